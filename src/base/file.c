/* base/file.c - see base/file.h for the contract. */
#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/map_guard.h"

enum { PATH_BYTES = 4096, READ_BYTES = 1 << 16, LINKS_MAX = 40 };

static enum status say_errno(struct err *err, enum status st, const char *path, const char *doing) {
    if (errno == ENOENT && st == ST_IO) st = ST_MISSING;
    if (errno == ENOSPC || errno == EDQUOT) st = ST_IO;
    if (errno == ENOMEM) st = ST_NOMEM;
    return err_set(err, st, "%s: cannot %s: %s", path, doing, strerror(errno));
}

static enum status check_regular(int fd, const char *path, struct stat *st, struct err *err) {
    if (fstat(fd, st) != 0) return say_errno(err, ST_IO, path, "look at");
    if (S_ISREG(st->st_mode)) return ST_OK;
    return err_set(err, ST_BAD, "%s: is %s, expected a regular file", path,
                   S_ISDIR(st->st_mode) ? "a folder" : "a device or a pipe");
}

static int64_t time_ns(const struct timespec *t) {
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static struct file_id id_of(const struct stat *info) {
    return (struct file_id){
        .device = info->st_dev,
        .inode = info->st_ino,
        .bytes = (uint64_t)info->st_size,
        .mtime_ns = time_ns(&info->st_mtim),
        .ctime_ns = time_ns(&info->st_ctim),
        .mode = (uint32_t)info->st_mode,
    };
}

/* `fd` stays open with the map. */
static enum status map_fd(int fd, const char *path, size_t len, struct file_map *out,
                          struct err *err) {
    void *ptr = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    if (ptr == MAP_FAILED) return say_errno(err, ST_IO, path, "map");
    struct map_guard *guard = map_guard_add(ptr, len);
    if (!guard) {
        munmap(ptr, len);
        return err_set(err, ST_FULL,
                       "%s: cannot map: %d files are mapped already, the most that "
                       "one process maps",
                       path, MAP_GUARDS_MAX);
    }
    *out = (struct file_map){.ptr = ptr, .len = len, .fd = fd, .guard = guard};
    return ST_OK;
}

enum status file_map_open(const char *path, struct file_map *out, struct err *err) {
    *out = (struct file_map){.ptr = NULL};
    /* Not blocking: opening a pipe would else wait for a writer before we can refuse it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return say_errno(err, ST_IO, path, "open");
    struct stat info;
    enum status st = check_regular(fd, path, &info, err);
    if (st == ST_OK && info.st_size > 0) st = map_fd(fd, path, (size_t)info.st_size, out, err);
    if (st == ST_OK) out->id = id_of(&info);
    if (!out->ptr) close(fd);
    return st;
}

void file_map_close(struct file_map *map) {
    if (map->ptr) {
        map_guard_remove(map->guard);
        munmap((void *)(uintptr_t)map->ptr, map->len);
        close(map->fd);
    }
    *map = (struct file_map){.ptr = NULL};
}

enum status file_map_check(const struct file_map *map, struct err *err) {
    if (!map->ptr || !map_guard_is_damaged(map->guard)) return ST_OK;
    return err_set(err, ST_IO,
                   "the file has become shorter, or its disk has failed, while it was in use; "
                   "restore it and start again (to replace a file in use, rename a new one over "
                   "it)");
}

bool file_map_is_cut(const struct file_map *map) {
    struct stat info;
    return map->ptr && fstat(map->fd, &info) == 0 && (uint64_t)info.st_size < map->len;
}

void file_map_release(const struct file_map *map, const void *ptr, size_t len) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = ((uintptr_t)ptr + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)ptr + len) & ~(page - 1);
    bool inside = (uintptr_t)ptr >= (uintptr_t)map->ptr &&
                  (uintptr_t)ptr + len <= (uintptr_t)map->ptr + map->len;
    if (inside && start < end) madvise((void *)start, end - start, MADV_DONTNEED);
}

static enum status read_fd(int fd, const char *path, struct buf *out, struct err *err) {
    char chunk[READ_BYTES];
    for (;;) {
        ssize_t got = read(fd, chunk, sizeof(chunk));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return say_errno(err, ST_IO, path, "read");
        if (got == 0) return ST_OK;
        buf_put(out, chunk, (size_t)got);
        if (buf_status(out) == ST_FULL)
            return err_set(err, ST_BAD, "%s: more than %zu bytes, which is the most that is read",
                           path, out->max);
        if (buf_status(out) != ST_OK)
            return err_set(err, ST_NOMEM, "%s: out of memory while reading", path);
    }
}

enum status file_read(const char *path, struct buf *out, struct err *err) {
    if (strcmp(path, "-") == 0) return read_fd(STDIN_FILENO, "standard input", out, err);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return say_errno(err, ST_IO, path, "open");
    enum status st = read_fd(fd, path, out, err);
    close(fd);
    return st;
}

static bool write_all(int fd, struct str bytes) {
    while (bytes.len) {
        ssize_t put = write(fd, bytes.ptr, bytes.len);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return false;
        bytes = str_skip(bytes, (size_t)put);
    }
    return true;
}

/* In /proc, where a link stands for an open file: what it reads as is a name that the file may have
 * no more, and other programs write to the file behind that name, too. */
static bool is_in_proc(const char *path) {
    struct statfs info;
    int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    bool is_there = fd >= 0 && fstatfs(fd, &info) == 0 && info.f_type == PROC_SUPER_MAGIC;
    if (fd >= 0) close(fd);
    return is_there;
}

bool file_is_stream(const char *path) {
    char end[PATH_BYTES];
    if (file_exists(path) && !file_is_regular(path) && !file_is_dir(path)) return true;
    return file_follow(path, end, sizeof(end)) && is_in_proc(end);
}

/* /proc/self/fd/1, opened again, would begin at the file's first byte. -1: it is no such name. */
static int open_again(const char *path) {
    struct stat named, own;
    const char *slash = strrchr(path, '/');
    char *end;
    long fd = strtol(slash ? slash + 1 : path, &end, 10);
    if (*end || fd < 0 || fd > INT32_MAX || !is_in_proc(path) || stat(path, &named) != 0) return -1;
    bool is_own = fstat((int)fd, &own) == 0 && own.st_dev == named.st_dev &&
                  own.st_ino == named.st_ino && (fcntl((int)fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
    return is_own ? fcntl((int)fd, F_DUPFD_CLOEXEC, 0) : -1;
}

int file_open_stream(const char *path) {
    char end[PATH_BYTES];
    int fd = file_follow(path, end, sizeof(end)) ? open_again(end) : -1;
    return fd >= 0 ? fd : open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
}

static enum status write_in_place(const char *path, struct str bytes, struct err *err) {
    int fd = file_open_stream(path);
    if (fd < 0) return say_errno(err, ST_CREATE, path, "open");
    bool ok = write_all(fd, bytes);
    if (close(fd) != 0) ok = false;
    return ok ? ST_OK : say_errno(err, ST_IO, path, "write");
}

bool file_follow(const char *path, char *out, size_t out_bytes) {
    char target[PATH_BYTES], next[PATH_BYTES];
    int need = snprintf(out, out_bytes, "%s", path);
    for (int i = 0; i < LINKS_MAX; i++) {
        if (need < 0 || (size_t)need >= out_bytes || (size_t)need >= sizeof(next)) return false;
        ssize_t len = readlink(out, target, sizeof(target) - 1);
        if (len < 0 || is_in_proc(out)) return true; /* no link, nothing at all, or an open file */
        target[len] = 0;
        const char *slash = strrchr(out, '/');
        const int folder_len = target[0] == '/' || !slash ? 0 : (int)(slash - out) + 1;
        need = snprintf(next, sizeof(next), "%.*s%s", folder_len, out, target);
        if (need > 0 && (size_t)need < out_bytes && (size_t)need < sizeof(next))
            memcpy(out, next, (size_t)need + 1);
    }
    return false;
}

enum status file_write_atomic(const char *name, struct str bytes, struct err *err) {
    if (file_is_stream(name)) return write_in_place(name, bytes, err);
    char path[PATH_BYTES], temp[PATH_BYTES];
    if (!file_follow(name, path, sizeof(path)))
        return err_set(err, ST_CREATE,
                       "%s: the name is too long, or its symbolic links form a loop", name);
    int need = snprintf(temp, sizeof(temp), "%s.part.%ld", path, (long)getpid());
    if (need < 0 || need >= (int)sizeof(temp))
        return err_set(err, ST_CREATE, "%s: name too long", path);
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return say_errno(err, ST_CREATE, path, "create");
    bool ok = write_all(fd, bytes) && fsync(fd) == 0;
    if (close(fd) != 0) ok = false;
    if (ok && rename(temp, path) == 0) return ST_OK;
    enum status st = say_errno(err, ST_IO, path, "write");
    unlink(temp);
    return st;
}

bool file_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

bool file_is_regular(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool file_is_dir(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

int64_t file_size(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 ? (int64_t)info.st_size : -1;
}

enum status file_make_dirs(const char *path, struct err *err) {
    char part[PATH_BYTES];
    size_t len = strlen(path);
    if (len >= sizeof(part)) return err_set(err, ST_CREATE, "%s: name too long", path);
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0755) == 0 || errno == EEXIST) continue;
        return say_errno(err, ST_CREATE, part, "create folder");
    }
    if (!file_is_dir(path)) return err_set(err, ST_CREATE, "%s: exists and is not a folder", path);
    return ST_OK;
}

enum status file_read_short(const char *path, char *storage, size_t bytes, struct str *out) {
    *out = (struct str){storage, 0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? ST_MISSING : ST_IO;
    ssize_t got = 0;
    while (out->len < bytes) {
        got = read(fd, storage + out->len, bytes - out->len);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        out->len += (size_t)got;
    }
    close(fd);
    return got < 0 ? ST_IO : ST_OK;
}

bool path_join(char *out, size_t out_bytes, const char *dir, const char *name) {
    const char *slash = *dir && dir[strlen(dir) - 1] == '/' ? "" : "/";
    int need = snprintf(out, out_bytes, "%s%s%s", dir, slash, name);
    return need >= 0 && (size_t)need < out_bytes;
}

struct str path_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return str_of(slash ? slash + 1 : path);
}
