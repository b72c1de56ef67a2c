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

enum { HASH_BYTES = 17, NAME_BYTES = 3 * HASH_BYTES, FILES_MAX = 1 << 16 };
enum { DISK_SHARE = 10, SMALL_SHARE = 100 };
enum { PART_TRIES = 100, MODE_PRIVATE = 0600, MODE_PUBLIC = 0644 };
static const uint64_t DISK_FREE_MIN = 1ull << 30;
static const char IMAGE_SUFFIX[] = ".jpk", PART_SUFFIX[] = ".part";

/* With the separator that follows it in a name: a dash, or nothing. */
static void put_hash(struct str text, char end, char out[HASH_BYTES]) {
    snprintf(out, HASH_BYTES, "%016llx", (unsigned long long)XXH3_64bits(text.ptr, text.len));
    out[HASH_BYTES - 1] = end;
}

/* Two keys of one name would only be in each other's way: an image holds its whole key. */
static void make_name(const struct image_key *key, char out[NAME_BYTES]) {
    put_hash(key->place, '-', out);
    put_hash(key->layout, '-', out + HASH_BYTES);
    put_hash(key->all, 0, out + 2 * HASH_BYTES);
}

enum status image_store_path(const struct image_store *s, const struct image_key *key,
                             char path[IMAGE_PATH_BYTES], struct err *err) {
    char name[NAME_BYTES];
    make_name(key, name);
    int need = snprintf(path, IMAGE_PATH_BYTES, "%s/%s%s", s->dir, name, IMAGE_SUFFIX);
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

enum part_state { PART_GONE, PART_HELD, PART_UNKNOWN };

/* The writer of a part holds its lock until it is done or dead; a part without a lock is removed.
 * About parts of other users, and on systems without locks, nothing is known. */
static enum part_state remove_if_stale(int dir, const char *name) {
    /* Open for writing: NFS gives exclusive locks only to writers. */
    int fd = openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT ? PART_GONE : PART_UNKNOWN;
    enum part_state state = PART_GONE;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        state = errno == EWOULDBLOCK ? PART_HELD : PART_UNKNOWN;
    else
        (void)unlinkat(dir, name, 0);
    close(fd);
    return state;
}

/* `own`: the name of the image that is to be written. False when out of memory. */
static bool look_at(struct listing *l, int dir, const char *name, struct str own) {
    struct str s = str_of(name);
    bool is_image = str_ends(s, str_of(IMAGE_SUFFIX)), is_part = str_ends(s, str_of(PART_SUFFIX));
    struct stat info;
    if (!is_image && !is_part) return true;
    if (fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) return true;
    bool is_same = str_starts(s, own); /* the one that is to be written, or an older one */
    if (is_image) return is_same || add_image(l, name, &info);
    enum part_state state = remove_if_stale(dir, name);
    if (state != PART_GONE) l->bytes += (uint64_t)info.st_size;
    if (state == PART_HELD && is_same) l->is_busy = true;
    return true;
}

static int by_use(const void *a, const void *b) {
    const struct held *x = a, *y = b;
    if (x->used_ns != y->used_ns) return x->used_ns < y->used_ns ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* The images but `own`, those that were used longest ago first. */
static enum status list_images(const char *path, struct str own, struct listing *out,
                               struct err *err) {
    DIR *dir = opendir(path);
    if (!dir) return err_set(err, ST_IO, "%s: cannot read: %s", path, strerror(errno));
    bool has_room = true;
    struct dirent *entry;
    while (has_room && (entry = readdir(dir)))
        has_room = look_at(out, dirfd(dir), entry->d_name, own);
    closedir(dir);
    if (!has_room) return err_set(err, ST_NOMEM, "%s: out of memory listing it", path);
    if (out->count) qsort(out->images, out->count, sizeof(out->images[0]), by_use);
    return ST_OK;
}

/* ---- room ---- */

bool image_store_disk_fits(uint64_t disk_bytes, uint64_t free_bytes, uint64_t bytes) {
    if (bytes > free_bytes) return false;
    if (bytes <= free_bytes / SMALL_SHARE) return true;
    uint64_t left = free_bytes - bytes;
    return left >= disk_bytes / DISK_SHARE && left >= DISK_FREE_MIN;
}

/* What there is to share, and what has been given up for it so far. */
struct room {
    uint64_t max_bytes, disk_bytes, free_bytes; /* of the store; of the disk */
    uint64_t held_bytes;                        /* by images and parts that stay */
};

static struct room look_for_room(const struct image_store *s, const struct listing *l) {
    struct statvfs disk;
    struct room r = {.max_bytes = s->max_bytes, .held_bytes = l->bytes};
    bool is_known = statvfs(s->dir, &disk) == 0; /* else the write itself reports a full disk */
    r.disk_bytes = is_known ? (uint64_t)disk.f_blocks * disk.f_frsize : 0;
    r.free_bytes = is_known ? (uint64_t)disk.f_bavail * disk.f_frsize : UINT64_MAX;
    return r;
}

static bool fits_cap(const struct room *r, uint64_t bytes) {
    return bytes <= r->max_bytes && r->held_bytes <= r->max_bytes - bytes;
}

static enum status check_room(const char *dir, const struct room *r, uint64_t bytes,
                              struct err *err) {
    if (!fits_cap(r, bytes))
        return err_set(
            err, ST_FULL,
            "%s: %llu MiB, but cached weights may take %llu MiB in all (weights-cache-max)", dir,
            (unsigned long long)(bytes >> 20), (unsigned long long)(r->max_bytes >> 20));
    if (!image_store_disk_fits(r->disk_bytes, r->free_bytes, bytes))
        return err_set(err, ST_FULL,
                       "%s: %llu MiB would leave the disk with less than a tenth or a GiB free; "
                       "make room, or move the cache with JITNEY_CACHE",
                       dir, (unsigned long long)(bytes >> 20));
    return ST_OK;
}

/* Decide first and remove then: an image that has no room anyway costs no other its place. */
static enum status make_room(const struct image_store *s, const struct listing *l, uint64_t bytes,
                             struct err *err) {
    struct room r = look_for_room(s, l);
    uint32_t victims = 0;
    while (victims < l->count && check_room(s->dir, &r, bytes, NULL) != ST_OK) {
        uint64_t gained = l->images[victims++].bytes;
        r.held_bytes -= gained;
        r.free_bytes = gained > UINT64_MAX - r.free_bytes ? UINT64_MAX : r.free_bytes + gained;
    }
    TRY(check_room(s->dir, &r, bytes, err));
    for (uint32_t i = 0; i < victims; i++) {
        char path[IMAGE_PATH_BYTES];
        if (path_join(path, sizeof(path), s->dir, l->images[i].name)) (void)unlink(path);
    }
    return ST_OK;
}

/* ---- a part ---- */

/* By open, not mkstemp, so that the umask counts. */
static enum status create_part(const struct image_store *s, const char *name,
                               struct image_part *out, struct err *err) {
    mode_t mode = s->is_private ? MODE_PRIVATE : MODE_PUBLIC;
    for (uint32_t i = 0; i < PART_TRIES; i++) {
        int need = snprintf(out->path, sizeof(out->path), "%s/%s.%ld-%u%s", s->dir, name,
                            (long)getpid(), i, PART_SUFFIX);
        if (need < 0 || need >= (int)sizeof(out->path))
            return err_set(err, ST_CREATE, "%s: name too long", s->dir);
        out->fd = open(out->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (out->fd >= 0) return ST_OK;
        if (errno != EEXIST) break;
    }
    return err_set(err, ST_CREATE, "%s: cannot create: %s", out->path, strerror(errno));
}

/* Systems without locks do without: their parts are never taken for stale. */
static enum status open_part(const struct image_store *s, const char *name, struct image_part *out,
                             struct err *err) {
    struct stat info;
    TRY(create_part(s, name, out, err));
    bool is_locked = flock(out->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    /* One who took it for stale before it was locked holds it, or has removed it already. */
    if (is_locked && fstat(out->fd, &info) == 0 && info.st_nlink > 0) return ST_OK;
    close(out->fd);
    out->fd = -1;
    return err_set(err, ST_UNAVAILABLE, "%s: was removed by another process", out->path);
}

enum status image_store_begin(const struct image_store *s, const struct image_key *key,
                              uint64_t bytes, struct image_part *out, struct err *err) {
    char name[NAME_BYTES];
    struct listing l = {.images = NULL};
    make_name(key, name);
    out->fd = -1;
    TRY(image_store_path(s, key, out->final_path, err));
    TRY(file_make_dirs(s->dir, err));
    enum status st = list_images(s->dir, str_of(name), &l, err);
    if (st == ST_OK && l.is_busy)
        st = err_set(err, ST_UNAVAILABLE, "%s: another process is writing it", out->final_path);
    if (st == ST_OK) st = make_room(s, &l, bytes, err);
    mem_free(l.images);
    if (st == ST_OK) st = open_part(s, name, out, err);
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

/* ---- images that go ---- */

static enum status remove_entry(const char *path, int dir, const char *name, uint64_t *freed_bytes,
                                struct err *err) {
    struct stat info;
    if (str_ends(str_of(name), str_of(PART_SUFFIX))) (void)remove_if_stale(dir, name);
    if (!str_ends(str_of(name), str_of(IMAGE_SUFFIX))) return ST_OK;
    bool is_known = fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
    if (unlinkat(dir, name, 0) != 0)
        return errno == ENOENT
                   ? ST_OK
                   : err_set(err, ST_IO, "%s/%s: cannot remove: %s", path, name, strerror(errno));
    if (is_known) *freed_bytes += (uint64_t)info.st_size;
    return ST_OK;
}

/* Whose names start with `start`, but not with `kept` unless that is empty. */
static enum status remove_all(const char *path, struct str start, struct str kept,
                              uint64_t *freed_bytes, struct err *err) {
    DIR *dir = opendir(path);
    if (!dir && errno == ENOENT) return ST_OK;
    if (!dir) return err_set(err, ST_IO, "%s: cannot read: %s", path, strerror(errno));
    enum status st = ST_OK;
    struct dirent *entry;
    while (st == ST_OK && (entry = readdir(dir))) {
        struct str name = str_of(entry->d_name);
        bool is_kept = kept.len && str_starts(name, kept);
        if (!is_kept && str_starts(name, start))
            st = remove_entry(path, dirfd(dir), entry->d_name, freed_bytes, err);
    }
    closedir(dir);
    return st;
}

enum status image_store_remove(const struct image_store *s, struct str place, uint64_t *freed_bytes,
                               struct err *err) {
    char start[HASH_BYTES];
    put_hash(place, '-', start);
    return remove_all(s->dir, (struct str){start, sizeof(start)}, STR(""), freed_bytes, err);
}

void image_store_remove_older(const struct image_store *s, const struct image_key *key) {
    char name[NAME_BYTES];
    uint64_t freed_bytes = 0;
    make_name(key, name);
    (void)remove_all(s->dir, (struct str){name, 2 * HASH_BYTES}, str_of(name), &freed_bytes, NULL);
}
