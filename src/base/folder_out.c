/* base/folder_out.c - see base/folder_out.h for the contract. */
#define _GNU_SOURCE /* renameat2 */
#include "base/folder_out.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"

enum { MODE = 0755, PART_TRIES = 8 };

static enum status say_errno(const struct folder_out *out, enum status st, const char *doing,
                             struct err *err) {
    if (errno == ENOSPC || errno == EDQUOT) st = ST_IO;
    return err_set(err, st, "%s: cannot %s: %s", out->path, doing, strerror(errno));
}

static enum status say_exists(const struct folder_out *out, struct err *err) {
    return err_set(err, ST_CREATE, "%s: exists already; remove it, or give another name",
                   out->path);
}

static bool is_there(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

/* Is the open folder still the one with this name? */
static bool is_named(int fd, const char *path) {
    struct stat open_info, named_info;
    return fstat(fd, &open_info) == 0 && lstat(path, &named_info) == 0 &&
           open_info.st_ino == named_info.st_ino && open_info.st_dev == named_info.st_dev;
}

static bool empty_folder(int fd);

/* Remove the inner folder of NAME.part. Another one was not made here. */
static bool remove_inner(int fd, const char *name) {
    if (strcmp(name, FOLDER_OUT_INNER) != 0) return false;
    int inner = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (inner < 0) return false;
    bool ok = empty_folder(inner);
    close(inner);
    return ok && unlinkat(fd, name, AT_REMOVEDIR) == 0;
}

/* Remove the files in the folder, and in its inner one. False: one is left. */
static bool empty_folder(int fd) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    bool ok = dir != NULL;
    if (!dir && copy >= 0) close(copy);
    if (dir) rewinddir(dir);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (unlinkat(fd, e->d_name, 0) != 0 && !remove_inner(fd, e->d_name)) ok = false;
    }
    if (dir) closedir(dir);
    return ok;
}

/* Make NAME.part, or open the one that is there, and lock it. The process that had the lock may
 * have renamed or removed it meanwhile; then there is another to open. */
static enum status open_part(struct folder_out *out, struct err *err) {
    for (int i = 0; i < PART_TRIES; i++) {
        if (mkdir(out->part, MODE) != 0 && errno != EEXIST)
            return say_errno(out, ST_CREATE, "create", err);
        int fd = open(out->part, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 && errno == ENOENT) continue;
        if (fd < 0) return say_errno(out, ST_CREATE, "create", err);
        bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (locked && is_named(fd, out->part)) {
            out->fd = fd;
            return ST_OK;
        }
        close(fd);
        if (!locked) break;
    }
    return err_set(err, ST_CREATE, "%s: another process is writing %s", out->path, out->part);
}

static bool set_paths(struct folder_out *out, const char *path) {
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') len--;
    int need = snprintf(out->part, sizeof(out->part), "%.*s.part", (int)len, path);
    if (len == 0 || need <= 0 || need >= (int)sizeof(out->part)) return false;
    snprintf(out->path, sizeof(out->path), "%.*s", (int)len, path);
    return true;
}

enum status folder_out_open(const char *path, struct folder_out *out, struct err *err) {
    *out = (struct folder_out){.fd = -1};
    if (strlen(path) >= sizeof(out->path) || !set_paths(out, path))
        return err_set(err, ST_CREATE, "%s: not a name for a folder, or too long", path);
    if (is_there(out->path)) return say_exists(out, err);
    TRY(open_part(out, err));
    if (empty_folder(out->fd)) return ST_OK;
    enum status st =
        err_set(err, ST_CREATE, "%s: cannot remove what is in it; remove it yourself", out->part);
    close(out->fd);
    out->fd = -1;
    return st;
}

enum status folder_out_path(const struct folder_out *out, const char *name,
                            char path[FILE_OUT_PATH_BYTES], struct err *err) {
    CHECK(out->fd >= 0);
    int need = snprintf(path, FILE_OUT_PATH_BYTES, "%s/%s", out->part, name);
    if (need > 0 && need < FILE_OUT_PATH_BYTES) return ST_OK;
    return err_set(err, ST_CREATE, "%s/%s: name too long", out->part, name);
}

enum status folder_out_make_inner(struct folder_out *out, struct err *err) {
    CHECK(out->fd >= 0);
    if (mkdirat(out->fd, FOLDER_OUT_INNER, MODE) == 0) return ST_OK;
    return say_errno(out, ST_CREATE, "create " FOLDER_OUT_INNER " in", err);
}

/* A file system without this kind of rename would put the folder in place of an empty one. */
static bool rename_new(const char *from, const char *to) {
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return true;
    if (errno != EINVAL && errno != ENOSYS) return false;
    if (is_there(to)) {
        errno = EEXIST;
        return false;
    }
    return rename(from, to) == 0;
}

/* The name survives a power loss only when the folder that it is in is on the disk, too. */
static bool sync_parent(const struct folder_out *out) {
    int fd = openat(out->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return true; /* it may be written and not read */
    bool ok = fsync(fd) == 0 || errno == EINVAL;
    close(fd);
    return ok;
}

enum status folder_out_publish(struct folder_out *out, struct err *err) {
    CHECK(out->fd >= 0);
    if (fsync(out->fd) != 0 && errno != EINVAL) return say_errno(out, ST_IO, "write", err);
    if (!rename_new(out->part, out->path)) {
        if (errno == EEXIST || errno == ENOTEMPTY) return say_exists(out, err);
        return say_errno(out, ST_CREATE, "create", err);
    }
    bool ok = sync_parent(out);
    enum status st = ok ? ST_OK : say_errno(out, ST_IO, "write", err);
    close(out->fd);
    out->fd = -1;
    return st;
}

void folder_out_close(struct folder_out *out) {
    if (out->fd < 0) return;
    if (empty_folder(out->fd)) rmdir(out->part); /* before the lock is gone */
    close(out->fd);
    out->fd = -1;
}
