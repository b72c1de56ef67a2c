/* hub/model_cache.h - the folder of fetched models, and how the name of a model becomes a path.
 *
 *     CACHE/models/NAME/        a model: its files and jitney.json      (see manifest.h)
 *     CACHE/models/NAME.part/   one that is being fetched               (staging.h)
 *     CACHE/locks/NAME          locked by the process that changes it   (model_lock.h)
 *     CACHE/images/             weights that servers cache              (engine/weight_cache.h)
 *
 * CACHE is $JITNEY_CACHE, else $XDG_CACHE_HOME/jitney, else ~/.cache/jitney. A name is
 * [ORG/]NAME[:VARIANT] of letters, digits, '.', '_' and '-'; on disk the slash is a '+'. A
 * model appears under its name by one rename, so that a model in the cache is always complete.
 *
 * Lifetime: struct model_cache is a value. Thread: any; several processes may use the cache.
 */
#ifndef HUB_MODEL_CACHE_H
#define HUB_MODEL_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "hub/manifest.h"

struct env_settings;

enum { MODEL_PATH_BYTES = 4096 };

struct model_cache {
    char root[MODEL_PATH_BYTES]; /* need not exist yet; "": no cache, only paths resolve */
};

/* Where the cache is. ST_MISSING when the environment names no place for it. */
enum status model_cache_init(struct model_cache *c, const struct env_settings *env,
                             struct err *err);

bool model_name_ok(const char *name);

/* The path to give to model_file_open for MODEL: a name in the cache, a GGUF file or a folder.
 * First a path that exists and has a '/' or ends in ".gguf"; then names; then any other path that
 * exists. ST_MISSING: `err` says how to fetch the model. ST_BAD: the cached model was changed. */
enum status model_cache_resolve(const struct model_cache *c, const char *model,
                                char path[MODEL_PATH_BYTES], struct err *err);

/* The folder of a model with a valid name, whether it exists or not; `suffix` is "" or
 * MODEL_PARTIAL_SUFFIX. */
extern const char MODEL_PARTIAL_SUFFIX[]; /* ".part" */
enum status model_cache_folder(const struct model_cache *c, const char *name, const char *suffix,
                               char path[MODEL_PATH_BYTES], struct err *err);

/* The folder of cached weights, whether it exists or not. False: there is no cache, or its name is
 * too long. */
bool model_cache_images(const struct model_cache *c, char path[MODEL_PATH_BYTES]);

/* Read a cached model's manifest into an initialised one. ST_MISSING: it is not in the cache. */
enum status model_cache_find(const struct model_cache *c, const char *name, struct manifest *out,
                             struct err *err);

/* ", did you mean \"smollm2\"?" from the cached and the known names, or "". */
void model_cache_suggest(const struct model_cache *c, const char *name, char out[MODEL_NAME_BYTES]);

enum model_state {
    MODEL_CACHED,  /* complete                                          */
    MODEL_PARTIAL, /* an interrupted download; another pull resumes it  */
    MODEL_DAMAGED, /* a file is missing or was changed                  */
    MODEL_KNOWN,   /* has a short name but is not in the cache          */
};
const char *model_state_name(enum model_state state);

struct model_row {
    char name[MODEL_NAME_BYTES];
    enum model_state state;
    uint64_t bytes;
    const char *format; /* "gguf" or "folder"; "" if unknown */
    char arch[MANIFEST_ARCH_BYTES];
    char source[MANIFEST_SOURCE_BYTES];
    char path[MODEL_PATH_BYTES]; /* "" if not in the cache */
};

struct model_list {
    struct model_row *rows; /* heap, sorted by name, MODEL_KNOWN last */
    uint32_t count, cap;
};
enum status model_list_create(const struct model_cache *c, struct model_list *out, struct err *err);
void model_list_destroy(struct model_list *list);

/* Remove a model and the rest of an interrupted download, adding to *freed_bytes. ST_MISSING:
 * neither exists. ST_FULL: another process is fetching it. */
enum status model_cache_remove(const struct model_cache *c, const char *name, uint64_t *freed_bytes,
                               struct err *err);

#endif
