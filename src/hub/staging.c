/* hub/staging.c - see hub/staging.h for the contract. */
#define _DEFAULT_SOURCE
#include "hub/staging.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/tree.h"

static enum status too_long(struct err *err, const char *path) {
    return err_set(err, ST_CREATE, "%s: name too long", path);
}

enum status staging_open(struct staging *s, const struct model_cache *cache, const char *name,
                         struct err *err) {
    CHECK(model_name_ok(name));
    *s = (struct staging){.cache = cache};
    snprintf(s->name, sizeof(s->name), "%s", name);
    TRY(model_lock(&s->lock, cache, name, err));
    enum status st = model_cache_folder(cache, name, MODEL_PARTIAL_SUFFIX, s->folder, err);
    if (st == ST_OK) st = file_make_dirs(s->folder, err);
    if (st != ST_OK) model_unlock(&s->lock);
    return st;
}

void staging_close(struct staging *s) {
    if (s->lock.fd < 0) return;
    rmdir(s->folder); /* succeeds only if nothing was fetched */
    model_unlock(&s->lock);
}

static enum status move_file(const char *from_dir, const char *to_dir, const char *name,
                             struct err *err) {
    char from[MODEL_PATH_BYTES], to[MODEL_PATH_BYTES], parent[MODEL_PATH_BYTES];
    if (!path_join(from, sizeof(from), from_dir, name) || !path_join(to, sizeof(to), to_dir, name))
        return too_long(err, name);
    snprintf(parent, sizeof(parent), "%.*s", (int)(path_base(to).ptr - to - 1), to);
    TRY(file_make_dirs(parent, err));
    if (rename(from, to) != 0)
        return err_set(err, ST_IO, "%s: cannot move into place: %s", from, strerror(errno));
    return ST_OK;
}

static void sync_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

/* A hidden folder next to the model's: names of models never begin with a dot. */
static bool hidden_path(char *out, const char *folder, const char *suffix) {
    struct str base = path_base(folder);
    int need = snprintf(out, MODEL_PATH_BYTES, "%.*s.%.*s%s", (int)(base.ptr - folder), folder,
                        STR_ARG(base), suffix);
    return need > 0 && need < MODEL_PATH_BYTES;
}

static enum status swap_in(const char *fresh, const char *folder, const char *old,
                           struct err *err) {
    if (rename(folder, old) != 0 && errno != ENOENT)
        return err_set(err, ST_IO, "%s: cannot replace: %s", folder, strerror(errno));
    if (rename(fresh, folder) != 0)
        return err_set(err, ST_IO, "%s: cannot move into place: %s", folder, strerror(errno));
    return tree_remove(old, NULL, err);
}

enum status staging_commit(struct staging *s, struct manifest *m, struct err *err) {
    CHECK(s->lock.fd >= 0);
    CHECK(m->file_count > 0);
    char folder[MODEL_PATH_BYTES], fresh[MODEL_PATH_BYTES], old[MODEL_PATH_BYTES];
    TRY(model_cache_folder(s->cache, s->name, "", folder, err));
    if (!hidden_path(fresh, folder, ".new") || !hidden_path(old, folder, ".old"))
        return too_long(err, folder);
    TRY(tree_remove(fresh, NULL, err));
    TRY(tree_remove(old, NULL, err));
    TRY(file_make_dirs(fresh, err));
    for (uint32_t i = 0; i < m->file_count; i++)
        TRY(move_file(s->folder, fresh, m->files[i].path, err));
    TRY(manifest_write(m, fresh, err));
    sync_folder(fresh);
    TRY(swap_in(fresh, folder, old, err));
    char models[MODEL_PATH_BYTES];
    if (path_join(models, sizeof(models), s->cache->root, "models")) sync_folder(models);
    return tree_remove(s->folder, NULL, err);
}
