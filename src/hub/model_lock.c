/* hub/model_lock.c - see hub/model_lock.h for the contract. */
#define _DEFAULT_SOURCE
#include "hub/model_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"

enum { TRIES = 8 };

static enum status make_path(struct model_lock *l, const struct model_cache *cache,
                             const char *name, struct err *err) {
    char folder[MODEL_PATH_BYTES], locks[MODEL_PATH_BYTES];
    TRY(model_cache_folder(cache, name, "", folder, err));
    bool fits = path_join(locks, sizeof(locks), cache->root, "locks");
    if (fits) TRY(file_make_dirs(locks, err));
    fits = fits && path_join(l->path, sizeof(l->path), locks, path_base(folder).ptr);
    return fits ? ST_OK : err_set(err, ST_CREATE, "%s: name too long", folder);
}

/* The process that unlocks also deletes the file. So the file that was locked may be deleted by
 * now, and another process may have created a new one: then this lock protects nothing. */
static bool is_still_there(const struct model_lock *l) {
    struct stat mine, there;
    return fstat(l->fd, &mine) == 0 && stat(l->path, &there) == 0 && mine.st_ino == there.st_ino &&
           mine.st_dev == there.st_dev;
}

enum status model_lock(struct model_lock *l, const struct model_cache *cache, const char *name,
                       struct err *err) {
    CHECK(model_name_ok(name));
    l->fd = -1;
    TRY(make_path(l, cache, name, err));
    for (int i = 0; i < TRIES; i++) {
        l->fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (l->fd < 0)
            return err_set(err, errno == ENOSPC ? ST_IO : ST_CREATE, "%s: cannot create: %s",
                           l->path, strerror(errno));
        bool held = flock(l->fd, LOCK_EX | LOCK_NB) == 0;
        if (held && is_still_there(l)) return ST_OK;
        close(l->fd);
        l->fd = -1;
        if (!held) break;
    }
    return err_set(err, ST_FULL,
                   "model %s is being changed by another jitney right now; try again later", name);
}

void model_unlock(struct model_lock *l) {
    if (l->fd < 0) return;
    unlink(l->path);
    close(l->fd);
    l->fd = -1;
}
