/* hub/model_cache.h - the folder where fetched models live, and how MODEL becomes a path.
 *
 *     CACHE/models/NAME/        a model: its files and jitney.json      (see manifest.h)
 *     CACHE/models/NAME.part/   one that is being fetched               (`jitney pull`)
 *     CACHE/locks/NAME          held by whoever changes that model
 *     CACHE/images/             weights that servers keep             (engine/weight_cache.h)
 *
 * CACHE is $JITNEY_CACHE, else $XDG_CACHE_HOME/jitney, else ~/.cache/jitney. A name is
 * [ORG/]NAME[:VARIANT] of letters, digits, '.', '_' and '-'; on disk the slash is a '+'. A
 * model appears under its name all at once, by a rename, so that whatever is found there is
 * whole.
 *
 * Lifetime: struct model_cache is a value. Thread: any; other processes may come and go.
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
 * What exists as a path and has a '/' or ends in ".gguf" is that path; then names are tried,
 * then any other path. ST_MISSING says how to get the model; ST_BAD that the cached one is no
 * longer what was fetched. */
enum status model_cache_resolve(const struct model_cache *c, const char *model,
                                char path[MODEL_PATH_BYTES], struct err *err);

/* The folder of a model (of an acceptable name), there or not; `suffix` is "" or
 * MODEL_PARTIAL_SUFFIX. */
extern const char MODEL_PARTIAL_SUFFIX[]; /* ".part" */
enum status model_cache_folder(const struct model_cache *c, const char *name, const char *suffix,
                               char path[MODEL_PATH_BYTES], struct err *err);

/* The folder where servers keep weights, there or not. False: there is no cache, or its name is too
 * long. */
bool model_cache_images(const struct model_cache *c, char path[MODEL_PATH_BYTES]);

/* Read the note of a cached model into an initialised manifest. ST_MISSING if not there. */
enum status model_cache_find(const struct model_cache *c, const char *name, struct manifest *out,
                             struct err *err);

/* ", did you mean \"smollm2\"?" from the cached and the known names, or "". */
void model_cache_suggest(const struct model_cache *c, const char *name, char out[MODEL_NAME_BYTES]);

enum model_state {
    MODEL_CACHED,  /* there                                             */
    MODEL_PARTIAL, /* a fetch was begun; pulling again goes on with it  */
    MODEL_DAMAGED, /* its files are not those that were fetched         */
    MODEL_KNOWN,   /* has a short name but is not there                 */
};
const char *model_state_name(enum model_state state);

struct model_row {
    char name[MODEL_NAME_BYTES];
    enum model_state state;
    uint64_t bytes;
    const char *format; /* "gguf" or "folder"; "" if unknown */
    char arch[MANIFEST_ARCH_BYTES];
    char source[MANIFEST_SOURCE_BYTES];
    char path[MODEL_PATH_BYTES]; /* "" if not there */
};

struct model_list {
    struct model_row *rows; /* heap, sorted by name, those that are there first */
    uint32_t count, cap;
};
enum status model_list_create(const struct model_cache *c, struct model_list *out, struct err *err);
void model_list_destroy(struct model_list *list);

#endif
