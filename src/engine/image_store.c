/* engine/image_store.c - see engine/image_store.h for the contract. */
#define _GNU_SOURCE
#include "engine/image_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/mem.h"

enum { HASH_BYTES = 33, FILES_MAX = 1 << 16, DISK_SHARE = 10 };
static const uint64_t DISK_FREE_MIN = 1ull << 30;
static const char IMAGE_SUFFIX[] = ".jpk", PART_SUFFIX[] = ".part";

static void make_hash(struct str key, char out[HASH_BYTES]) {
    XXH128_hash_t h = XXH3_128bits(key.ptr, key.len);
    snprintf(out, HASH_BYTES, "%016llx%016llx", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
}

enum status image_store_path(const struct image_store *s, struct str key,
                             char path[IMAGE_PATH_BYTES], struct err *err) {
    char hash[HASH_BYTES];
    make_hash(key, hash);
    int need = snprintf(path, IMAGE_PATH_BYTES, "%s/%s%s", s->dir, hash, IMAGE_SUFFIX);
    if (need >= 0 && need < IMAGE_PATH_BYTES) return ST_OK;
    return err_set(err, ST_CREATE, "%s: name too long", s->dir);
}

void image_store_touch(const char *path) {
    (void)utimensat(AT_FDCWD, path, NULL, 0); /* of a folder that is not ours it does not matter */
}

/* ---- what is in the folder ---- */

struct held {
    char name[NAME_MAX + 1];
    uint64_t bytes;
    int64_t used_ns;
};

struct listing {
    struct held *images; /* heap */
    uint32_t count, cap;
    uint64_t bytes; /* of images and of parts in other hands */
    bool is_busy;   /* another process writes the same image */
};

static bool add_image(struct listing *l, const char *name, const struct stat *info) {
    if (l->count == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 16;
        struct held *more = cap <= FILES_MAX ? mem_realloc(l->images, cap * sizeof(*more)) : NULL;
        if (!more) return false;
        l->images = more;
        l->cap = cap;
    }
    struct held *h = &l->images[l->count++];
    snprintf(h->name, sizeof(h->name), "%s", name);
    h->bytes = (uint64_t)info->st_size;
    h->used_ns = (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
    l->bytes += h->bytes;
    return true;
}

/* Whoever writes a part holds its lock until it is done or dead. */
static bool remove_if_stale(int dir, const char *name) {
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT;
    bool is_stale = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (is_stale) (void)unlinkat(dir, name, 0);
    close(fd);
    return is_stale;
}

/* False when out of memory. */
static bool look_at(struct listing *l, int dir, const char *name, struct str hash) {
    struct str s = str_of(name);
    bool is_image = str_ends(s, str_of(IMAGE_SUFFIX)), is_part = str_ends(s, str_of(PART_SUFFIX));
    struct stat info;
    if (!is_image && !is_part) return true;
    if (fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) return true;
    bool is_same = str_starts(s, hash); /* the one that is to be written, or an older one */
    if (is_image) return is_same || add_image(l, name, &info);
    if (remove_if_stale(dir, name)) return true;
    l->bytes += (uint64_t)info.st_size;
    if (is_same) l->is_busy = true;
    return true;
}

static int by_use(const void *a, const void *b) {
    const struct held *x = a, *y = b;
    if (x->used_ns != y->used_ns) return x->used_ns < y->used_ns ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* The images but the one of `hash`, those that were used longest ago first. */
static enum status list_images(const char *path, struct str hash, struct listing *out,
                               struct err *err) {
    DIR *dir = opendir(path);
    if (!dir) return err_set(err, ST_IO, "%s: cannot read: %s", path, strerror(errno));
    bool has_room = true;
    struct dirent *entry;
    while (has_room && (entry = readdir(dir)))
        has_room = look_at(out, dirfd(dir), entry->d_name, hash);
    closedir(dir);
    if (!has_room) return err_set(err, ST_NOMEM, "%s: out of memory listing it", path);
    if (out->count) qsort(out->images, out->count, sizeof(out->images[0]), by_use);
    return ST_OK;
}

/* ---- room ---- */

bool image_store_disk_fits(uint64_t disk_bytes, uint64_t free_bytes, uint64_t bytes) {
    if (bytes > free_bytes) return false;
    uint64_t left = free_bytes - bytes;
    return left >= disk_bytes / DISK_SHARE && left >= DISK_FREE_MIN;
}

static enum status check_disk(const char *dir, uint64_t bytes, uint64_t freed, struct err *err) {
    struct statvfs disk;
    if (statvfs(dir, &disk) != 0) return ST_OK; /* the write itself will tell */
    uint64_t disk_bytes = (uint64_t)disk.f_blocks * disk.f_frsize;
    uint64_t free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize + freed;
    if (image_store_disk_fits(disk_bytes, free_bytes, bytes)) return ST_OK;
    return err_set(err, ST_FULL,
                   "%s: %llu MiB would leave the disk with less than a tenth or a GiB free", dir,
                   (unsigned long long)(bytes >> 20));
}

/* Decide first and remove then: an image that has no room anyway costs no other its place. */
static enum status make_room(const struct image_store *s, const struct listing *l, uint64_t bytes,
                             struct err *err) {
    uint64_t held = l->bytes, freed = 0;
    uint32_t victims = 0;
    while (victims < l->count && held + bytes > s->max_bytes) {
        held -= l->images[victims].bytes;
        freed += l->images[victims++].bytes;
    }
    if (held + bytes > s->max_bytes)
        return err_set(err, ST_FULL, "%s: %llu MiB, but kept weights may take %llu MiB in all",
                       s->dir, (unsigned long long)(bytes >> 20),
                       (unsigned long long)(s->max_bytes >> 20));
    TRY(check_disk(s->dir, bytes, freed, err));
    for (uint32_t i = 0; i < victims; i++) {
        char path[IMAGE_PATH_BYTES];
        if (path_join(path, sizeof(path), s->dir, l->images[i].name)) (void)unlink(path);
    }
    return ST_OK;
}

/* ---- a part ---- */

static enum status open_part(const struct image_store *s, const char *hash, struct image_part *out,
                             struct err *err) {
    int need = snprintf(out->path, sizeof(out->path), "%s/%s.XXXXXX%s", s->dir, hash, PART_SUFFIX);
    if (need < 0 || need >= (int)sizeof(out->path))
        return err_set(err, ST_CREATE, "%s: name too long", s->dir);
    out->fd = mkostemps(out->path, sizeof(PART_SUFFIX) - 1, O_CLOEXEC);
    if (out->fd < 0)
        return err_set(err, ST_CREATE, "%s: cannot create: %s", out->path, strerror(errno));
    (void)fchmod(out->fd, 0644);
    /* Held already by one who took it for stale before it could be locked; his file, then. Systems
     * without such locks do without: their parts are never taken for stale. */
    if (flock(out->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return ST_OK;
    close(out->fd);
    return err_set(err, ST_UNAVAILABLE, "%s: was removed by another process", out->path);
}

enum status image_store_begin(const struct image_store *s, struct str key, uint64_t bytes,
                              struct image_part *out, struct err *err) {
    char hash[HASH_BYTES];
    struct listing l = {.images = NULL};
    make_hash(key, hash);
    out->fd = -1;
    TRY(image_store_path(s, key, out->final_path, err));
    TRY(file_make_dirs(s->dir, err));
    enum status st = list_images(s->dir, str_of(hash), &l, err);
    if (st == ST_OK && l.is_busy)
        st = err_set(err, ST_UNAVAILABLE, "%s: another process is writing it", out->final_path);
    if (st == ST_OK) st = make_room(s, &l, bytes, err);
    mem_free(l.images);
    if (st == ST_OK) st = open_part(s, hash, out, err);
    return st;
}

enum status image_store_commit(struct image_part *part, struct err *err) {
    if (rename(part->path, part->final_path) == 0) {
        close(part->fd);
        part->fd = -1;
        return ST_OK;
    }
    enum status st = err_set(err, ST_IO, "%s: cannot rename: %s", part->path, strerror(errno));
    image_store_abandon(part);
    return st;
}

void image_store_abandon(struct image_part *part) {
    (void)unlink(part->path);
    close(part->fd);
    part->fd = -1;
}
