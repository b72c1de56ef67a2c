/* hub/model_remove.c - removing a model from the cache. See hub/model_cache.h. */
#include "base/file.h"
#include "base/tree.h"
#include "hub/model_cache.h"
#include "hub/model_lock.h"

static enum status remove_locked(const struct model_cache *c, const char *name,
                                 uint64_t *freed_bytes, struct err *err) {
    char folder[MODEL_PATH_BYTES], partial[MODEL_PATH_BYTES];
    TRY(model_cache_folder(c, name, "", folder, err));
    TRY(model_cache_folder(c, name, MODEL_PARTIAL_SUFFIX, partial, err));
    TRY(tree_remove(folder, freed_bytes, err));
    return tree_remove(partial, freed_bytes, err);
}

enum status model_cache_remove(const struct model_cache *c, const char *name, uint64_t *freed_bytes,
                               struct err *err) {
    char folder[MODEL_PATH_BYTES], partial[MODEL_PATH_BYTES], hint[MODEL_NAME_BYTES];
    bool exists = model_name_ok(name);
    if (exists) {
        TRY(model_cache_folder(c, name, "", folder, err));
        TRY(model_cache_folder(c, name, MODEL_PARTIAL_SUFFIX, partial, err));
        exists = file_exists(folder) || file_exists(partial);
    }
    if (!exists) {
        model_cache_suggest(c, name, hint);
        return err_set(err, ST_MISSING,
                       "model %s is not in the cache%s `jitney list` shows the names", name,
                       hint[0] ? hint : ";");
    }
    struct model_lock lock;
    TRY(model_lock(&lock, c, name, err));
    enum status st = remove_locked(c, name, freed_bytes, err);
    model_unlock(&lock);
    return st;
}
