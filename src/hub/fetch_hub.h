/* hub/fetch_hub.h - what a repository on a Hugging Face hub holds, and which of it we want.
 *
 * The hub lists a repository's files with sizes and, for the big ones, SHA-256. From the list
 * one model is chosen: a GGUF file (with all its pieces if it is split), by a pattern or else
 * by a table of preferred number formats; without GGUF, the safetensors with the files that
 * belong to them.
 *
 * Lifetime: the caller's storage; init, use, deinit. Thread: its owner.
 */
#ifndef HUB_FETCH_HUB_H
#define HUB_FETCH_HUB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sha256.h"
#include "base/status.h"
#include "base/str.h"
#include "hub/fetch.h"
#include "hub/manifest.h"

enum { HUB_FILES_MAX = 20000 };

struct hub_file {
    char path[MANIFEST_PATH_BYTES];
    uint64_t bytes;
    char sha256[SHA256_HEX_BYTES]; /* "" for the small ones */
    bool wanted;                   /* set by hub_choose */
};

struct hub_list {
    struct hub_file *files; /* heap */
    uint32_t count, cap;
};

void hub_list_init(struct hub_list *list);
void hub_list_deinit(struct hub_list *list);

/* Add the rows of one page of the hub's answer. Rows whose paths we would never write are
 * left out. */
enum status hub_list_parse(struct hub_list *list, struct str json, struct err *err);

/* Ask the hub for the files of ORG/NAME. `endpoint` has no slash at its end. */
enum status hub_list_fetch(struct hub_list *list, struct fetch *fetch, const char *endpoint,
                           const char *repo, struct err *err);

/* Mark the files of one model as wanted. `pattern` is part of a file name, any case; NULL for
 * the table. `entry` gets the GGUF file, or "" for a folder of safetensors. ST_MISSING says
 * what there is instead. */
enum status hub_choose(struct hub_list *list, const char *repo, const char *pattern,
                       char entry[MANIFEST_PATH_BYTES], struct err *err);

/* The address of a file's bytes; false if it gets too long. */
bool hub_file_url(const char *endpoint, const char *repo, const char *path,
                  char url[FETCH_URL_BYTES]);

#endif
