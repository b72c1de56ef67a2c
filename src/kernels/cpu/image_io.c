/* kernels/cpu/image_io.c - see kernels/cpu/image_io.h for the contract. */
#define _GNU_SOURCE
#include "kernels/cpu/image_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/pool.h"
#include "kernels/cpu/pack.h"

enum {
    SLICE_BYTES = 1 << 20,  /* between two looks at whether to go on */
    WINDOW_BYTES = 8 << 20, /* under way to the disk at one time, so that no sync takes long */
    AHEAD_BYTES = 32 << 20, /* asked of the disk before it is read */
    PATH_BYTES = 4096,
};

/* ---- reading ---- */

struct image_source {
    int fd;
    char *head; /* heap; the image borrows it */
    struct image *image;
    bool verify;
    struct err damage; /* of the first weight that could not be taken */
};

/* False with errno, which is 0 at the end of the file. */
static bool read_at(int fd, uint8_t *to, size_t len, uint64_t offset) {
    while (len) {
        errno = 0;
        ssize_t got = pread(fd, to, len, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        to += got;
        len -= (size_t)got;
        offset += (uint64_t)got;
    }
    return true;
}

static enum status say_read(struct err *err, const char *what) {
    if (errno == 0) return err_set(err, ST_BAD, "ends within %s", what);
    return err_set(err, ST_IO, "cannot read %s: %s", what, strerror(errno));
}

/* Where every user may write, any user can leave an image that changes every answer. Images of this
 * user, of root and of the folder's owner, who decides who writes there, are trusted. */
static bool is_trusted(const char *path, const struct stat *info) {
    char folder[PATH_BYTES];
    struct stat dir;
    if (info->st_uid == geteuid() || info->st_uid == 0) return true;
    size_t len = (size_t)(path_base(path).ptr - path);
    if (len >= sizeof(folder)) return false;
    snprintf(folder, sizeof(folder), "%.*s", (int)len, path);
    return stat(len ? folder : ".", &dir) == 0 && dir.st_uid == info->st_uid;
}

static enum status read_head(struct image_source *s, const char *path, const struct image_ident *id,
                             struct err *err) {
    uint8_t fixed[IMAGE_FIXED_BYTES];
    struct stat info;
    size_t bytes;
    if (fstat(s->fd, &info) != 0) return say_read(err, "its size");
    if (!S_ISREG(info.st_mode)) return err_set(err, ST_BAD, "is no regular file");
    if (!is_trusted(path, &info))
        return err_set(err, ST_IO,
                       "belongs to user %u, who owns neither this process nor the folder",
                       (unsigned)info.st_uid);
    if (info.st_mode & (S_IWGRP | S_IWOTH))
        return err_set(err, ST_BAD,
                       "mode %03o lets other users write to it, expected only its owner",
                       (unsigned)info.st_mode & 0777);
    uint64_t file_bytes = (uint64_t)info.st_size;
    if (!read_at(s->fd, fixed, sizeof(fixed), 0)) return say_read(err, "its head");
    TRY(image_head_bytes((struct str){(const char *)fixed, sizeof(fixed)}, file_bytes, &bytes,
                         err));
    s->head = mem_alloc(bytes);
    if (!s->head) return err_set(err, ST_NOMEM, "out of memory for its head");
    if (!read_at(s->fd, (uint8_t *)s->head, bytes, 0)) return say_read(err, "its head");
    return image_parse((struct str){s->head, bytes}, file_bytes, id, &s->image, err);
}

/* There is none, or none for us: the caller that keeps one gets the reason. */
static bool is_absent(int number) {
    return number == ENOENT || number == ENOTDIR || number == EACCES;
}

enum status image_source_open(struct image_source **out, const char *path,
                              const struct image_ident *id, bool verify, struct err *err) {
    struct image_source *s = mem_zalloc(sizeof(*s));
    if (!s) return err_set(err, ST_NOMEM, "%s: out of memory", path);
    s->verify = verify;
    s->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum status st = ST_OK;
    if (s->fd < 0)
        st =
            err_set(err, is_absent(errno) ? ST_MISSING : ST_IO, "cannot open: %s", strerror(errno));
    if (st == ST_OK) st = read_head(s, path, id, err);
    if (st == ST_OK) {
        *out = s;
        return ST_OK;
    }
    (void)image_source_close(s, NULL);
    return err_prefix(err, st, path);
}

struct read_job {
    int fd;
    struct packed *p;
    uint64_t offset;
    int failures[POOL_THREADS_MAX]; /* errno of each thread; -1: the file ends; 0: none */
};

/* The panels that this thread would have packed, so that they lie near it, too. */
static void read_share(void *ctx, uint32_t thread_idx, uint32_t thread_count) {
    struct read_job *job = ctx;
    const struct packed *p = job->p;
    uint64_t panels = (uint64_t)p->panel_count * p->experts;
    size_t first = panels * thread_idx / thread_count * p->panel_bytes;
    size_t end = panels * (thread_idx + 1) / thread_count * p->panel_bytes;
    bool ok = read_at(job->fd, p->data + first, end - first, job->offset + first);
    job->failures[thread_idx] = ok ? 0 : errno ? errno : -1;
}

static bool fits(const struct image_entry *e, const struct packed *p) {
    return e->type == p->type && e->rows == p->rows && e->cols == p->cols &&
           e->experts == p->experts && e->bytes == p->bytes;
}

static enum status read_panels(struct image_source *s, const struct image_entry *e,
                               struct packed *p, struct pool *pool, struct err *err) {
    struct read_job job = {.fd = s->fd, .p = p, .offset = e->offset};
    if (!fits(e, p)) return err_set(err, ST_BAD, "has another shape");
    /* Only advice: the disk reads on while this is copied. */
    (void)posix_fadvise(s->fd, (off_t)(e->offset + e->bytes), AHEAD_BYTES, POSIX_FADV_WILLNEED);
    pool_run(pool, read_share, &job);
    for (uint32_t i = 0; i < pool_threads(pool); i++) {
        if (job.failures[i] == 0) continue;
        errno = job.failures[i] > 0 ? job.failures[i] : 0;
        return say_read(err, "its panels");
    }
    if (s->verify && XXH3_64bits(p->data, p->bytes) != e->checksum)
        return err_set(err, ST_BAD, "fails its checksum");
    return ST_OK;
}

bool image_source_read(struct image_source *s, struct packed *p, struct pool *pool) {
    const struct image_entry *e = image_find(s->image, p->name);
    struct err why = {{0}};
    if (!e) return false;
    if (read_panels(s, e, p, pool, &why) == ST_OK) {
        p->checksum = e->checksum;
        p->is_unverified = !s->verify;
        return true;
    }
    if (!s->damage.text[0])
        (void)err_set(&s->damage, ST_BAD, "weight %.*s %s", STR_ARG(p->name), why.text);
    memset(p->data, 0, p->bytes);
    return false;
}

enum status image_source_close(struct image_source *s, struct err *err) {
    if (!s) return ST_OK;
    enum status st = ST_OK;
    if (s->damage.text[0]) st = err_set(err, ST_BAD, "%s", s->damage.text);
    image_destroy(s->image);
    mem_free(s->head);
    if (s->fd >= 0) close(s->fd);
    mem_free(s);
    return st;
}

/* ---- checking what was read ---- */

static enum status check_panels(const struct packed *p, const struct device_image_check *check,
                                XXH3_state_t *sum, struct err *err) {
    XXH3_64bits_reset(sum);
    for (size_t at = 0; at < p->bytes; at += SLICE_BYTES) {
        if (!check->may_go_on(check->ctx)) return err_set(err, ST_CANCELLED, "was asked to stop");
        XXH3_64bits_update(sum, p->data + at,
                           p->bytes - at < SLICE_BYTES ? p->bytes - at : SLICE_BYTES);
    }
    if (XXH3_64bits_digest(sum) == p->checksum) return ST_OK;
    return err_set(err, ST_BAD, "weight %.*s fails its checksum", STR_ARG(p->name));
}

enum status image_check(const struct list *weights, const struct device_image_check *check,
                        struct err *err) {
    XXH3_state_t *sum = XXH3_createState();
    enum status st = sum ? ST_OK : err_set(err, ST_NOMEM, "out of memory");
    for (struct list_link *l = weights->first; st == ST_OK && l; l = l->next) {
        const struct packed *p = LIST_ITEM(l, struct packed, in_device);
        if (p->is_unverified) st = check_panels(p, check, sum, err);
    }
    XXH3_freeState(sum);
    return st;
}

/* ---- writing ---- */

/* One entry for each weight, in the order of the list; the caller frees them. NULL when out of
 * memory. */
static struct image_entry *create_entries(const struct list *weights) {
    size_t count = weights->count ? weights->count : 1;
    struct image_entry *entries = mem_zalloc_array(count, sizeof(*entries)), *e = entries;
    for (struct list_link *l = weights->first; entries && l; l = l->next) {
        const struct packed *p = LIST_ITEM(l, struct packed, in_device);
        *e++ = (struct image_entry){.name = p->name,
                                    .type = p->type,
                                    .rows = p->rows,
                                    .cols = p->cols,
                                    .experts = p->experts,
                                    .bytes = p->bytes};
    }
    return entries;
}

enum status image_file_bytes(const struct list *weights, const struct image_ident *id,
                             uint64_t *bytes, struct err *err) {
    struct image_entry *entries = create_entries(weights);
    if (!entries)
        return err_set(err, ST_NOMEM, "out of memory for the entries of %u weights",
                       weights->count);
    *bytes = image_lay_out(entries, weights->count, id);
    mem_free(entries);
    return ST_OK;
}

struct writing {
    const struct device_image_out *out;
    XXH3_state_t *sum; /* of one weight */
    uint64_t unsynced; /* where the window begins that is under way to the disk */
};

static enum status write_slice(int fd, const void *bytes, size_t len, uint64_t offset,
                               struct err *err) {
    const uint8_t *from = bytes;
    while (len) {
        ssize_t put = pwrite(fd, from, len, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return err_set(err, ST_IO, "cannot write: %s", strerror(errno));
        from += put;
        len -= (size_t)put;
        offset += (uint64_t)put;
    }
    return ST_OK;
}

/* Send what is written on its way, and wait for what was sent before. Only advice: the sync at the
 * end is what counts. */
static void sync_window(struct writing *w, uint64_t end) {
    if (end - w->unsynced < WINDOW_BYTES) return;
    int fd = w->out->fd;
    (void)sync_file_range(fd, (off_t)w->unsynced, (off_t)(end - w->unsynced),
                          SYNC_FILE_RANGE_WRITE);
    if (w->unsynced >= WINDOW_BYTES)
        (void)sync_file_range(fd, (off_t)(w->unsynced - WINDOW_BYTES), WINDOW_BYTES,
                              SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                  SYNC_FILE_RANGE_WAIT_AFTER);
    w->unsynced = end;
}

static enum status write_panels(struct writing *w, const struct packed *p, struct image_entry *e,
                                struct err *err) {
    XXH3_64bits_reset(w->sum);
    for (uint64_t at = 0; at < e->bytes; at += SLICE_BYTES) {
        size_t len = e->bytes - at < SLICE_BYTES ? (size_t)(e->bytes - at) : SLICE_BYTES;
        if (!w->out->may_go_on(w->out->ctx)) return err_set(err, ST_CANCELLED, "was asked to stop");
        XXH3_64bits_update(w->sum, p->data + at, len);
        TRY(write_slice(w->out->fd, p->data + at, len, e->offset + at, err));
        sync_window(w, e->offset + at + len);
    }
    e->checksum = XXH3_64bits_digest(w->sum);
    return ST_OK;
}

static enum status write_all(struct writing *w, const struct list *weights,
                             struct image_entry *entries, struct err *err) {
    for (struct list_link *l = weights->first; l; l = l->next)
        TRY(write_panels(w, LIST_ITEM(l, struct packed, in_device), entries++, err));
    return ST_OK;
}

static enum status write_head(int fd, const struct image_ident *id, uint64_t file_bytes,
                              const struct image_entry *entries, uint32_t count, struct err *err) {
    struct buf head;
    buf_init(&head, IMAGE_HEAD_BYTES_MAX);
    image_put_head(&head, entries, count, id, file_bytes);
    enum status st = buf_status(&head);
    if (st == ST_OK)
        st = write_slice(fd, head.ptr, head.len, 0, err);
    else
        (void)err_set(err, st, "no room for the head of an image");
    buf_deinit(&head);
    if (st == ST_OK && fdatasync(fd) != 0)
        st = err_set(err, ST_IO, "cannot write: %s", strerror(errno));
    return st;
}

enum status image_write(const struct list *weights, const struct image_ident *id,
                        const struct device_image_out *out, struct err *err) {
    struct writing w = {.out = out, .sum = XXH3_createState()};
    struct image_entry *entries = create_entries(weights);
    uint32_t count = weights->count;
    enum status st = entries && w.sum ? ST_OK : err_set(err, ST_NOMEM, "out of memory");
    uint64_t file_bytes = st == ST_OK ? image_lay_out(entries, count, id) : 0;
    if (st == ST_OK && ftruncate(out->fd, (off_t)file_bytes) != 0)
        st = err_set(err, ST_IO, "cannot write: %s", strerror(errno));
    if (st == ST_OK) st = write_all(&w, weights, entries, err);
    if (st == ST_OK) st = write_head(out->fd, id, file_bytes, entries, count, err);
    mem_free(entries);
    XXH3_freeState(w.sum);
    return st;
}
