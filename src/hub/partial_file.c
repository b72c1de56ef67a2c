/* hub/partial_file.c - see hub/partial_file.h for the contract. */
#include "hub/partial_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"

enum { PATH_BYTES = 4096, CHUNK_BYTES = 1 << 16 };

struct partial_file {
    int fd;
    uint64_t bytes;
    struct sha256 *hash; /* of exactly the bytes in the part */
    char path[PATH_BYTES], part[PATH_BYTES], tag_path[PATH_BYTES];
    char tag[PARTIAL_FILE_TAG_BYTES];
};

static enum status fail_errno(struct err *err, enum status st, const char *path,
                              const char *doing) {
    if (errno == ENOSPC || errno == EDQUOT) st = ST_IO;
    return err_set(err, st, "%s: cannot %s: %s", path, doing, strerror(errno));
}

static enum status set_paths(struct partial_file *o, const char *path, struct err *err) {
    int need = snprintf(o->tag_path, sizeof(o->tag_path), "%s.part.tag", path);
    if (need < 0 || need >= (int)sizeof(o->tag_path))
        return err_set(err, ST_CREATE, "%s: name too long", path);
    snprintf(o->path, sizeof(o->path), "%s", path);
    snprintf(o->part, sizeof(o->part), "%.*s", need - (int)strlen(".tag"), o->tag_path);
    return ST_OK;
}

static enum status make_parent(const char *path, struct err *err) {
    char folder[PATH_BYTES];
    struct str base = path_base(path);
    snprintf(folder, sizeof(folder), "%.*s", (int)(base.ptr - path), path);
    return folder[0] ? file_make_dirs(folder, err) : ST_OK;
}

/* Without a readable tag the download starts again; nothing else is lost. */
static void read_tag(struct partial_file *o) {
    struct buf text;
    buf_init(&text, PARTIAL_FILE_TAG_BYTES - 1);
    if (file_read(o->tag_path, &text, NULL) == ST_OK)
        snprintf(o->tag, sizeof(o->tag), "%s", buf_text(&text));
    buf_deinit(&text);
}

static enum status hash_part(struct partial_file *o, struct err *err) {
    char chunk[CHUNK_BYTES];
    for (;;) {
        ssize_t got = read(o->fd, chunk, sizeof(chunk));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno(err, ST_IO, o->part, "read");
        if (got == 0) return ST_OK;
        sha256_add(o->hash, chunk, (size_t)got);
        o->bytes += (uint64_t)got;
    }
}

static enum status open_part(struct partial_file *o, struct err *err) {
    o->fd = open(o->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (o->fd < 0) return fail_errno(err, ST_CREATE, o->part, "create");
    struct stat info;
    if (fstat(o->fd, &info) != 0) return fail_errno(err, ST_IO, o->part, "read the size of");
    if (!S_ISREG(info.st_mode)) return err_set(err, ST_CREATE, "%s: not a regular file", o->part);
    o->hash = sha256_create();
    if (!o->hash) return err_set(err, ST_NOMEM, "%s: out of memory", o->part);
    read_tag(o);
    return hash_part(o, err);
}

enum status partial_file_open(const char *path, struct partial_file **out, struct err *err) {
    *out = NULL;
    struct partial_file *o = mem_zalloc(sizeof(*o));
    if (!o) return err_set(err, ST_NOMEM, "%s: out of memory", path);
    o->fd = -1;
    enum status st = set_paths(o, path, err);
    if (st == ST_OK) st = make_parent(path, err);
    if (st == ST_OK) st = open_part(o, err);
    if (st == ST_OK)
        *out = o;
    else
        partial_file_close(o);
    return st;
}

void partial_file_close(struct partial_file *o) {
    if (!o) return;
    if (o->fd >= 0) close(o->fd);
    /* An empty part is of no use to the next run. */
    if (o->fd >= 0 && o->bytes == 0) partial_file_discard(o);
    sha256_destroy(o->hash);
    mem_free(o);
}

uint64_t partial_file_bytes(const struct partial_file *o) { return o->bytes; }
const char *partial_file_tag(const struct partial_file *o) { return o->tag; }

enum status partial_file_restart(struct partial_file *o, struct err *err) {
    if (ftruncate(o->fd, 0) != 0 || lseek(o->fd, 0, SEEK_SET) != 0)
        return fail_errno(err, ST_IO, o->part, "empty");
    struct sha256 *fresh = sha256_create();
    if (!fresh) return err_set(err, ST_NOMEM, "%s: out of memory", o->part);
    sha256_destroy(o->hash);
    o->hash = fresh;
    o->bytes = 0;
    o->tag[0] = 0;
    unlink(o->tag_path);
    return ST_OK;
}

enum status partial_file_set_tag(struct partial_file *o, const char *tag, struct err *err) {
    if (strcmp(o->tag, tag) == 0) return ST_OK;
    snprintf(o->tag, sizeof(o->tag), "%s", tag);
    if (!o->tag[0]) {
        unlink(o->tag_path);
        return ST_OK;
    }
    return file_write_atomic(o->tag_path, str_of(o->tag), err);
}

enum status partial_file_write(struct partial_file *o, const void *bytes, size_t len,
                               struct err *err) {
    const char *next = bytes;
    while (len > 0) {
        ssize_t put = write(o->fd, next, len);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return fail_errno(err, ST_IO, o->part, "write");
        /* Count and hash what was written, so that both are right if the disk is full. */
        sha256_add(o->hash, next, (size_t)put);
        o->bytes += (uint64_t)put;
        next += put;
        len -= (size_t)put;
    }
    return ST_OK;
}

void partial_file_discard(struct partial_file *o) {
    unlink(o->part);
    unlink(o->tag_path);
}

static enum status check_sum(struct partial_file *o, uint64_t expected_bytes,
                             const char *expected_sha256, const char *sha256, struct err *err) {
    struct str name = path_base(o->path);
    if (expected_bytes != UINT64_MAX && o->bytes != expected_bytes)
        return err_set(err, ST_BAD, "%.*s: received %llu bytes, expected %llu; they were deleted",
                       STR_ARG(name), (unsigned long long)o->bytes,
                       (unsigned long long)expected_bytes);
    if (expected_sha256 && strcasecmp(expected_sha256, sha256) != 0)
        return err_set(err, ST_BAD,
                       "%.*s: the SHA-256 of the received file is %s, expected %s; it was deleted",
                       STR_ARG(name), sha256, expected_sha256);
    return ST_OK;
}

enum status partial_file_finish(struct partial_file *o, uint64_t expected_bytes,
                                const char *expected_sha256, char sha256[SHA256_HEX_BYTES],
                                struct err *err) {
    CHECK(o->hash);
    char found[SHA256_HEX_BYTES];
    sha256_hex(o->hash, found);
    sha256_destroy(o->hash);
    o->hash = NULL;
    enum status st = check_sum(o, expected_bytes, expected_sha256, found, err);
    if (st != ST_OK) {
        partial_file_discard(o);
        return st;
    }
    bool synced = fsync(o->fd) == 0;
    bool closed = close(o->fd) == 0;
    o->fd = -1;
    if (!synced || !closed) return fail_errno(err, ST_IO, o->part, "write");
    if (rename(o->part, o->path) != 0) return fail_errno(err, ST_IO, o->path, "write");
    unlink(o->tag_path);
    if (sha256) memcpy(sha256, found, sizeof(found));
    return ST_OK;
}
