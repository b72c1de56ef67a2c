/* base/file_out.c - see base/file_out.h for the contract. */
#define _GNU_SOURCE
#include "base/file_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/size_text.h"

enum { MODE = 0644, PART_TRIES = 8 };

static enum status say_errno(const struct file_out *out, enum status st, const char *doing,
                             struct err *err) {
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) st = ST_IO;
    return err_set(err, st, "%s: cannot %s: %s", out->path, doing, strerror(errno));
}

static enum status say_exists(const struct file_out *out, struct err *err) {
    return err_set(err, ST_CREATE, "%s: exists already; remove it, or give another name",
                   out->path);
}

/* The folder that the file will be in. */
static void folder_of(const char *path, char folder[FILE_OUT_PATH_BYTES]) {
    const char *slash = strrchr(path, '/');
    if (!slash)
        snprintf(folder, FILE_OUT_PATH_BYTES, ".");
    else if (slash == path)
        snprintf(folder, FILE_OUT_PATH_BYTES, "/");
    else
        snprintf(folder, FILE_OUT_PATH_BYTES, "%.*s", (int)(slash - path), path);
}

static bool part_path(const struct file_out *out, char part[FILE_OUT_PATH_BYTES]) {
    int need = snprintf(part, FILE_OUT_PATH_BYTES, "%s.part", out->path);
    return need > 0 && need < FILE_OUT_PATH_BYTES;
}

/* False: the file system has no files without a name, or they could not get one later. */
static bool open_unnamed(struct file_out *out) {
    char folder[FILE_OUT_PATH_BYTES];
    folder_of(out->path, folder);
    out->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, MODE);
    if (out->fd < 0) return false;
    char self[FILE_OUT_PATH_BYTES];
    file_out_readable(out, self);
    if (access(self, F_OK) == 0) return true;
    close(out->fd);
    out->fd = -1;
    return false;
}

/* Is the open file still the one with this name? */
static bool is_named(int fd, const char *path) {
    struct stat open_info, named_info;
    return fstat(fd, &open_info) == 0 && stat(path, &named_info) == 0 &&
           open_info.st_ino == named_info.st_ino && open_info.st_dev == named_info.st_dev;
}

/* Open NAME.part and lock it. The process that had the lock may have renamed or removed the file
 * meanwhile; then there is another to open. */
static enum status open_named(struct file_out *out, struct err *err) {
    char part[FILE_OUT_PATH_BYTES];
    if (!part_path(out, part)) return err_set(err, ST_CREATE, "%s: name too long", out->path);
    for (int i = 0; i < PART_TRIES; i++) {
        int fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, MODE);
        if (fd < 0) return say_errno(out, ST_CREATE, "create", err);
        bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (locked && is_named(fd, part) && ftruncate(fd, 0) == 0) {
            out->fd = fd;
            out->named = true;
            return ST_OK;
        }
        close(fd);
        if (!locked) break;
    }
    return err_set(err, ST_CREATE, "%s: another process is writing %s", out->path, part);
}

enum status file_out_open(const char *path, bool with_name, struct file_out *out, struct err *err) {
    *out = (struct file_out){.fd = -1};
    int need = snprintf(out->path, sizeof(out->path), "%s", path);
    if (need < 0 || need >= (int)sizeof(out->path))
        return err_set(err, ST_CREATE, "%s: name too long", path);
    struct stat info;
    if (lstat(path, &info) == 0) return say_exists(out, err);
    if (!with_name && open_unnamed(out)) return ST_OK;
    return open_named(out, err);
}

/* Where a file system cannot reserve room: is there as much now? */
static bool has_room(int fd, uint64_t bytes) {
    struct statvfs info;
    return fstatvfs(fd, &info) != 0 || info.f_bavail >= bytes / (info.f_frsize ? info.f_frsize : 1);
}

/* False: errno says why. The limit of file size counts when bytes are written, not here. */
static bool reserve(int fd, uint64_t bytes) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        bytes > limit.rlim_cur) {
        errno = EFBIG;
        return false;
    }
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) == 0) return true;
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) return false;
    bool ok = has_room(fd, bytes);
    errno = ENOSPC;
    return ok;
}

enum status file_out_reserve(struct file_out *out, uint64_t bytes, struct err *err) {
    CHECK(out->fd >= 0);
    char size[SIZE_TEXT_BYTES];
    if (bytes == 0 || bytes > INT64_MAX || reserve(out->fd, bytes)) return ST_OK;
    return err_set(err, ST_IO, "%s: cannot write %s: %s", out->path, size_text(bytes, size),
                   strerror(errno));
}

enum status file_out_write(struct file_out *out, const void *bytes, size_t len, struct err *err) {
    CHECK(out->fd >= 0);
    const char *at = bytes;
    while (len) {
        ssize_t put = write(out->fd, at, len);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return say_errno(out, ST_IO, "write", err);
        at += put;
        len -= (size_t)put;
        out->bytes += (uint64_t)put;
    }
    return ST_OK;
}

void file_out_readable(const struct file_out *out, char path[FILE_OUT_PATH_BYTES]) {
    if (!out->named || !part_path(out, path))
        snprintf(path, FILE_OUT_PATH_BYTES, "/proc/self/fd/%d", out->fd);
}

/* A name of the file survives a power loss only when its folder is on the disk, too. */
static bool sync_folder(const struct file_out *out) {
    char folder[FILE_OUT_PATH_BYTES];
    folder_of(out->path, folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return true; /* a folder that may be written and not read */
    bool ok = fsync(fd) == 0 || errno == EINVAL;
    close(fd);
    return ok;
}

/* Room that was reserved and not needed goes back. */
static bool release_rest(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 && ftruncate(fd, info.st_size) == 0;
}

enum status file_out_publish(struct file_out *out, struct err *err) {
    CHECK(out->fd >= 0);
    char now[FILE_OUT_PATH_BYTES];
    file_out_readable(out, now);
    if (!release_rest(out->fd)) return say_errno(out, ST_IO, "write", err);
    if (fsync(out->fd) != 0) return say_errno(out, ST_IO, "write", err);
    bool linked = linkat(AT_FDCWD, now, AT_FDCWD, out->path, AT_SYMLINK_FOLLOW) == 0;
    if (!linked && errno == EEXIST) return say_exists(out, err);
    if (!linked && out->named && !file_exists(out->path)) {
        /* A file system without hard links. */
        linked = rename(now, out->path) == 0;
    } else if (linked && out->named) {
        unlink(now);
    }
    if (!linked) return say_errno(out, ST_CREATE, "create", err);
    out->named = false; /* nothing is left to remove */
    return sync_folder(out) ? ST_OK : say_errno(out, ST_IO, "write", err);
}

void file_out_close(struct file_out *out) {
    char part[FILE_OUT_PATH_BYTES];
    if (out->fd < 0) return;
    if (out->named && part_path(out, part)) unlink(part); /* before the lock is gone */
    close(out->fd);
    out->fd = -1;
}
