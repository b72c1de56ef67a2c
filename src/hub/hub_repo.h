/* hub/hub_repo.h - the files of a repository on the Hugging Face hub, and which of them to fetch.
 *
 * The list and every file are those of one commit, which is found first: a repository that changes
 * during a download cannot mix two versions. The hub lists the files with their sizes, the SHA-256
 * of large ones and git's name for the bytes of small ones. hub_choose selects
 * one model from the list: a GGUF file (with all its pieces if it is split), by a pattern or else
 * by a table of preferred number formats; without GGUF, the safetensors and the files that belong
 * to them.
 *
 * Lifetime: the caller's storage; init, use, deinit. Thread: its owner.
 */
#ifndef HUB_HUB_REPO_H
#define HUB_HUB_REPO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sha256.h"
#include "base/status.h"
#include "base/str.h"
#include "hub/fetch.h"
#include "hub/git_blob.h"
#include "hub/manifest.h"

enum { HUB_FILES_MAX = 20000 };

struct hub_file {
    char path[MANIFEST_PATH_BYTES];
    uint64_t bytes;
    char sha256[SHA256_HEX_BYTES]; /* "" for small files */
    char blob[GIT_HEX_BYTES];      /* git_blob.h; "" for large files */
    bool wanted;                   /* set by hub_choose */
};

struct hub_list {
    struct hub_file *files; /* heap */
    uint32_t count, cap;
    char commit[GIT_HEX_BYTES]; /* that the list is of; set by hub_list_fetch */
};

void hub_list_init(struct hub_list *list);
void hub_list_deinit(struct hub_list *list);

/* Add the rows of one page of the hub's response. Rows with unsafe paths are skipped. */
enum status hub_list_parse(struct hub_list *list, struct str json, struct err *err);

/* Request the newest commit of ORG/NAME and the list of its files from the hub. `endpoint` has no
 * slash at its end. */
enum status hub_list_fetch(struct hub_list *list, struct fetch *fetch, const char *endpoint,
                           const char *repo, struct err *err);

/* Mark the files of one model as wanted. `pattern` is part of a file name, any case; NULL for
 * the table. `entry` gets the GGUF file, or "" for a folder of safetensors. ST_MISSING: `err`
 * lists the GGUF files that the repository has. */
enum status hub_choose(struct hub_list *list, const char *repo, const char *pattern,
                       char entry[MANIFEST_PATH_BYTES], struct err *err);

/* The address of a file's bytes in a commit; false if it gets too long. */
bool hub_file_url(const char *endpoint, const char *repo, const char *commit, const char *path,
                  char url[FETCH_URL_BYTES]);

#endif
