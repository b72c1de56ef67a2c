/* hub/model_stage.c - see hub/model_stage.h for the contract. */
#define _DEFAULT_SOURCE
#include "hub/model_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/tree.h"

static enum status too_long(struct err *err, const char *path) {
    return err_set(err, ST_CREATE, "%s: name too long", path);
}

static enum status lock_path(struct model_stage *s, struct err *err) {
    char folder[MODEL_PATH_BYTES], locks[MODEL_PATH_BYTES];
    TRY(model_cache_folder(s->cache, s->name, "", folder, err));
    if (!path_join(locks, sizeof(locks), s->cache->root, "locks")) return too_long(err, folder);
    TRY(file_make_dirs(locks, err));
    if (!path_join(s->lock_path, sizeof(s->lock_path), locks, path_base(folder).ptr))
        return too_long(err, folder);
    return ST_OK;
}

/* Whoever leaves removes the lock file, so the file that was locked may be gone by now and a
 * stranger's may stand in its place: then the lock is worth nothing. */
static bool is_still_there(const struct model_stage *s) {
    struct stat mine, there;
    return fstat(s->lock_fd, &mine) == 0 && stat(s->lock_path, &there) == 0 &&
           mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

enum status model_lock(struct model_stage *s, const struct model_cache *cache, const char *name,
                       struct err *err) {
    CHECK(model_name_ok(name));
    *s = (struct model_stage){.cache = cache, .lock_fd = -1};
    snprintf(s->name, sizeof(s->name), "%s", name);
    TRY(lock_path(s, err));
    enum { TRIES = 8 };
    for (int i = 0; i < TRIES; i++) {
        s->lock_fd = open(s->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (s->lock_fd < 0)
            return err_set(err, errno == ENOSPC ? ST_IO : ST_CREATE, "%s: cannot create: %s",
                           s->lock_path, strerror(errno));
        bool held = flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0;
        if (held && is_still_there(s)) return ST_OK;
        close(s->lock_fd);
        s->lock_fd = -1;
        if (!held) break;
    }
    return err_set(err, ST_FULL,
                   "model %s is being changed by another jitney right now; try again later", name);
}

void model_unlock(struct model_stage *s) {
    if (s->lock_fd < 0) return;
    unlink(s->lock_path);
    close(s->lock_fd);
    s->lock_fd = -1;
}

enum status model_stage_open(struct model_stage *s, const struct model_cache *cache,
                             const char *name, struct err *err) {
    TRY(model_lock(s, cache, name, err));
    enum status st = model_cache_folder(cache, name, MODEL_PARTIAL_SUFFIX, s->folder, err);
    if (st == ST_OK) st = file_make_dirs(s->folder, err);
    if (st != ST_OK) model_unlock(s);
    return st;
}

void model_stage_close(struct model_stage *s) {
    if (s->lock_fd < 0) return;
    rmdir(s->folder); /* only goes if nothing was fetched */
    model_unlock(s);
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

/* A hidden neighbour of the model's folder: names never begin with a dot. */
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

enum status model_stage_commit(struct model_stage *s, struct manifest *m, struct err *err) {
    CHECK(s->lock_fd >= 0);
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
    bool there = model_name_ok(name);
    if (there) {
        TRY(model_cache_folder(c, name, "", folder, err));
        TRY(model_cache_folder(c, name, MODEL_PARTIAL_SUFFIX, partial, err));
        there = file_exists(folder) || file_exists(partial);
    }
    if (!there) {
        model_cache_suggest(c, name, hint);
        return err_set(err, ST_MISSING,
                       "there is no model named %s in the cache%s `jitney list` shows the names",
                       name, hint[0] ? hint : ";");
    }
    struct model_stage lock;
    TRY(model_lock(&lock, c, name, err));
    enum status st = remove_locked(c, name, freed_bytes, err);
    model_unlock(&lock);
    return st;
}
