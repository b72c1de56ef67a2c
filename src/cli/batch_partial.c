/* cli/batch_partial.c - see cli/batch_partial.h.
 *
 * Entry points: batch_partial_read, batch_partial_open, batch_partial_close, batch_partial_begin,
 * batch_partial_has, batch_partial_totals, batch_partial_put, batch_partial_sync,
 * batch_partial_copy, batch_partial_finish.
 */
#define _DEFAULT_SOURCE
#include "cli/batch_partial.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/siphash.h"

enum {
    VERSION = 1,
    FIELDS = 5, /* numbers between the check and the object */
    CHECK_DIGITS = 16,
    HEADER_BYTES_MAX = 1024,
    PATH_BYTES = 4096,
    COPY_BYTES = 1 << 20,
    FAULT_STATUS = 500, /* from here on the line is not to blame */
};
static const size_t ENTRY_BYTES_MAX = (size_t)1 << 30;
#define MAGIC "{\"jitney_batch\":"

/* Where a line's object is in the file. */
struct place {
    uint64_t offset;
    uint32_t bytes; /* 0: the line has no result */
    uint32_t status;
};

struct batch_partial {
    int fd;
    char path[PATH_BYTES]; /* "": a temporary file without a name */
    struct batch_origin origin;
    struct place *places; /* [line_count] */
    struct batch_totals totals;
    uint64_t bytes; /* of the file */
    bool has_header, is_dirty;
    bool is_ours;    /* it was read and may be changed */
    struct buf text; /* the entry being written */
};

/* ---- the format ---- */

static uint64_t check_of(struct str text) {
    return siphash_of((struct siphash_key){0}, text.ptr, text.len).low;
}

static bool read_check(struct str text, uint64_t *out) {
    uint64_t value = 0;
    if (text.len <= CHECK_DIGITS || text.ptr[CHECK_DIGITS] != ' ') return false;
    for (uint32_t i = 0; i < CHECK_DIGITS; i++) {
        const char *digits = "0123456789abcdef", *at = strchr(digits, text.ptr[i]);
        if (!text.ptr[i] || !at) return false;
        value = value << 4 | (uint64_t)(at - digits);
    }
    *out = value;
    return true;
}

static bool take_number(struct str *text, uint64_t *out) {
    const char *blank = memchr(text->ptr, ' ', text->len);
    if (!blank) return false;
    size_t len = (size_t)(blank - text->ptr);
    bool ok = str_to_u64(str_take(*text, len), out);
    *text = str_skip(*text, len + 1);
    return ok;
}

/* A line without its line break. */
static bool read_entry(struct str line, uint32_t line_count, struct batch_entry *out) {
    uint64_t check, fields[FIELDS];
    if (!read_check(line, &check)) return false;
    struct str rest = str_skip(line, CHECK_DIGITS + 1);
    if (check_of(rest) != check) return false;
    for (uint32_t i = 0; i < FIELDS; i++)
        if (!take_number(&rest, &fields[i])) return false;
    if (fields[0] >= line_count || fields[1] < 100 || fields[1] > 999) return false;
    if (rest.len == 0 || rest.len > UINT32_MAX || rest.ptr[0] != '{') return false;
    *out = (struct batch_entry){.number = (uint32_t)fields[0],
                                .status = (uint32_t)fields[1],
                                .prompt_tokens = fields[2],
                                .cached_tokens = fields[3],
                                .answer_tokens = fields[4],
                                .output = rest};
    return true;
}

static void put_entry(const struct batch_entry *e, struct buf *out) {
    buf_printf(out, "%0*d ", CHECK_DIGITS, 0);
    buf_printf(out, "%" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 " ", e->number,
               e->status, e->prompt_tokens, e->cached_tokens, e->answer_tokens);
    buf_put_str(out, e->output);
    if (buf_status(out) != ST_OK) return;
    char digits[CHECK_DIGITS + 1];
    uint64_t check = check_of(str_skip(buf_str(out), CHECK_DIGITS + 1));
    snprintf(digits, sizeof(digits), "%016" PRIx64, check);
    memcpy(out->ptr, digits, CHECK_DIGITS);
    buf_put_char(out, '\n');
}

static void put_header(const struct batch_origin *o, struct buf *out) {
    buf_printf(out,
               MAGIC "%d,\"input_bytes\":%" PRIu64 ",\"input_sha256\":\"%s\",\"lines\":%" PRIu32,
               VERSION, o->input_bytes, o->input_sha256, o->line_count);
    buf_put_text(out, ",\"model\":");
    buf_put_json_string(out, str_of(o->model));
    buf_printf(out, ",\"seed\":%" PRIu64 ",\"created\":%" PRId64 "}\n", o->seed, o->created_s);
}

static bool read_header(struct str line, struct batch_origin *out) {
    struct json *doc = NULL;
    struct err ignored = {0};
    *out = (struct batch_origin){0};
    if (line.len > HEADER_BYTES_MAX) return false;
    if (json_parse(line, &json_limits_request, &doc, &ignored) != ST_OK) return false;
    int64_t bytes = json_int(json_get(doc, "input_bytes"), -1);
    int64_t lines = json_int(json_get(doc, "lines"), -1);
    int64_t seed = json_int(json_get(doc, "seed"), -1);
    out->input_bytes = (uint64_t)bytes;
    out->line_count = (uint32_t)lines;
    out->seed = (uint64_t)seed;
    out->created_s = json_int(json_get(doc, "created"), -1);
    str_store(json_str(json_get(doc, "input_sha256")), out->input_sha256,
              sizeof(out->input_sha256));
    str_store(json_str(json_get(doc, "model")), out->model, sizeof(out->model));
    bool ok = json_int(json_get(doc, "jitney_batch"), 0) == VERSION && bytes >= 0 && seed >= 0 &&
              lines >= 0 && lines <= UINT32_MAX && out->created_s >= 0;
    json_destroy(doc);
    return ok;
}

/* A file that ended before its first line did: a beginning of it, or zeros after a power loss. */
static bool is_torn_header(struct str bytes) {
    struct str magic = STR(MAGIC);
    size_t common = bytes.len < magic.len ? bytes.len : magic.len;
    bool is_zero = bytes.len <= HEADER_BYTES_MAX;
    for (size_t i = 0; is_zero && i < bytes.len; i++) is_zero = bytes.ptr[i] == 0;
    return is_zero || (bytes.len <= HEADER_BYTES_MAX && str_starts(bytes, str_take(magic, common)));
}

enum status batch_partial_read(struct str bytes, struct batch_origin *origin,
                               void (*each)(void *ctx, const struct batch_entry *e, size_t offset),
                               void *ctx, size_t *used) {
    *used = 0;
    const char *end = bytes.len > 0 ? memchr(bytes.ptr, '\n', bytes.len) : NULL;
    if (!end) return is_torn_header(bytes) ? ST_MISSING : ST_BAD;
    size_t at = (size_t)(end - bytes.ptr) + 1;
    if (!read_header(str_take(bytes, at - 1), origin)) return ST_BAD;
    *used = at;
    while (at < bytes.len && (end = memchr(bytes.ptr + at, '\n', bytes.len - at))) {
        struct batch_entry e;
        struct str line = {bytes.ptr + at, (size_t)(end - bytes.ptr) - at};
        if (!read_entry(line, origin->line_count, &e)) break;
        each(ctx, &e, (size_t)(e.output.ptr - bytes.ptr));
        at += line.len + 1;
        *used = at;
    }
    return ST_OK;
}

/* ---- opening ---- */

static const char *name_of(const struct batch_partial *p) {
    return p->path[0] ? p->path : "temporary file";
}

static enum status say_errno(const struct batch_partial *p, enum status st, const char *what,
                             struct err *err) {
    return err_set(err, st, "%s: cannot %s: %s", name_of(p), what, strerror(errno));
}

static void note_entry(struct batch_partial *p, const struct batch_entry *e, uint64_t offset) {
    struct place *place = &p->places[e->number];
    if (place->bytes > 0) {
        if (place->status < FAULT_STATUS) return;
        p->totals.done--; /* the result of a second run replaces it; its tokens were spent */
        p->totals.failed--;
    }
    *place = (struct place){offset, (uint32_t)e->output.len, e->status};
    p->totals.done++;
    p->totals.failed += e->status >= 400;
    p->totals.prompt_tokens += e->prompt_tokens;
    p->totals.cached_tokens += e->cached_tokens;
    p->totals.answer_tokens += e->answer_tokens;
}

static void take_entry(void *ctx, const struct batch_entry *e, size_t offset) {
    struct batch_partial *p = ctx;
    if (e->status < FAULT_STATUS && e->number < p->origin.line_count) note_entry(p, e, offset);
}

static enum status refuse(const struct batch_partial *p, const char *what, struct err *err) {
    return err_set(err, ST_BAD,
                   "%s has results of %s; give the same as before to continue, --restart to drop "
                   "these results, or another -o",
                   p->path, what);
}

static enum status check_origin(const struct batch_partial *p, const struct batch_origin *was,
                                bool is_seed_given, struct err *err) {
    const struct batch_origin *now = &p->origin;
    char what[160];
    if (was->input_bytes != now->input_bytes) {
        snprintf(what, sizeof(what),
                 "another input, which has %" PRIu64 " bytes (this one: %" PRIu64 ")",
                 was->input_bytes, now->input_bytes);
        return refuse(p, what, err);
    }
    if (strcmp(was->input_sha256, now->input_sha256) != 0 || was->line_count != now->line_count)
        return refuse(p, "another input, which has as many bytes but differs", err);
    if (!is_seed_given || was->seed == now->seed) return ST_OK;
    snprintf(what, sizeof(what), "another seed, %" PRIu64 " (--seed: %" PRIu64 ")", was->seed,
             now->seed);
    return refuse(p, what, err);
}

static enum status read_file(struct batch_partial *p, struct str bytes,
                             const struct batch_partial_options *options, struct err *err) {
    struct batch_origin was;
    size_t used;
    enum status st = batch_partial_read(bytes, &was, take_entry, p, &used);
    if (st == ST_BAD)
        return err_set(err, st,
                       "%s is not a file of partial results of this version of jitney; move it "
                       "away, or give --restart to replace it",
                       p->path);
    p->bytes = used;
    if (st == ST_MISSING) return ST_OK;
    TRY(check_origin(p, &was, options->is_seed_given, err));
    p->origin = was;
    p->has_header = true;
    return ST_OK;
}

/* Read what is there, and cut off what is damaged. */
static enum status load(struct batch_partial *p, const struct batch_partial_options *options,
                        struct err *err) {
    struct file_map map;
    if (!options->restarts) {
        TRY(file_map_open(p->path, &map, err));
        enum status st = read_file(p, (struct str){(const char *)map.ptr, map.len}, options, err);
        if (st == ST_OK) st = file_map_check(&map, err);
        file_map_close(&map);
        TRY(st);
    }
    if (ftruncate(p->fd, (off_t)p->bytes) != 0) return say_errno(p, ST_IO, "cut", err);
    p->is_ours = true;
    return ST_OK;
}

/* A process that has finished removes the file, so the one that was locked may be gone. */
static bool is_still_there(const struct batch_partial *p) {
    struct stat mine, there;
    return fstat(p->fd, &mine) == 0 && stat(p->path, &there) == 0 && mine.st_ino == there.st_ino &&
           mine.st_dev == there.st_dev;
}

static enum status lock(const struct batch_partial *p, struct err *err) {
    bool is_held = flock(p->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!is_held && is_still_there(p)) return ST_OK;
    return err_set(err, ST_FULL, "%s: another process is writing it; try again when it has ended",
                   p->path);
}

static enum status open_named(struct batch_partial *p, const char *path, struct err *err) {
    int len = snprintf(p->path, sizeof(p->path), "%s", path);
    if (len >= (int)sizeof(p->path)) return err_set(err, ST_CREATE, "%s: name too long", path);
    if (file_exists(path) && !file_is_regular(path))
        return err_set(err, ST_CREATE, "%s: exists and is not a file", path);
    p->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (p->fd < 0) return say_errno(p, ST_CREATE, "create", err);
    return lock(p, err);
}

static enum status open_unnamed(struct batch_partial *p, const char *dir, struct err *err) {
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/jitney-batch-XXXXXX", dir);
    p->fd = mkstemp(path);
    if (p->fd < 0) return err_set(err, ST_CREATE, "%s: cannot create: %s", path, strerror(errno));
    unlink(path);
    return ST_OK;
}

enum status batch_partial_open(const struct batch_partial_options *options,
                               struct batch_origin *origin, struct batch_partial **out,
                               struct err *err) {
    struct batch_partial *p = mem_zalloc(sizeof(*p));
    struct place *places = mem_zalloc_array(origin->line_count + 1u, sizeof(places[0]));
    if (!p || !places) {
        mem_free(p);
        mem_free(places);
        return err_set(err, ST_NOMEM, "out of memory for the results");
    }
    *p = (struct batch_partial){.fd = -1, .origin = *origin, .places = places};
    buf_init(&p->text, ENTRY_BYTES_MAX);
    enum status st =
        options->path ? open_named(p, options->path, err) : open_unnamed(p, options->temp_dir, err);
    if (st == ST_OK && options->path) st = load(p, options, err);
    if (st != ST_OK) {
        batch_partial_close(p);
        return st;
    }
    *origin = p->origin;
    *out = p;
    return ST_OK;
}

void batch_partial_close(struct batch_partial *p) {
    if (!p) return;
    if (p->is_ours && p->totals.done == 0) unlink(p->path);
    if (p->fd >= 0) close(p->fd);
    buf_deinit(&p->text);
    mem_free(p->places);
    mem_free(p);
}

/* ---- writing ---- */

/* The name of a new file is on the disk only when its folder is; not all file systems can. */
static void sync_folder(const char *path) {
    char dir[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    int len = slash ? (int)(slash - path) + 1 : 1;
    snprintf(dir, sizeof(dir), "%.*s", len, slash ? path : ".");
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    int ignored = fsync(fd);
    (void)ignored;
    close(fd);
}

/* All bytes, or none of them: what was written of them is cut off. */
static enum status append(struct batch_partial *p, struct str bytes, struct err *err) {
    for (size_t done = 0; done < bytes.len;) {
        ssize_t put = pwrite(p->fd, bytes.ptr + done, bytes.len - done, (off_t)(p->bytes + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) {
            enum status st = say_errno(p, ST_IO, "write", err);
            int cut = ftruncate(p->fd, (off_t)p->bytes);
            (void)cut; /* else the next batch_partial_open cuts it */
            return st;
        }
        done += (size_t)put;
    }
    p->bytes += bytes.len;
    p->is_dirty = true;
    return ST_OK;
}

enum status batch_partial_begin(struct batch_partial *p, const char *model, struct err *err) {
    if (p->has_header && strcmp(p->origin.model, model) != 0) {
        char what[160];
        snprintf(what, sizeof(what),
                 "another model, or of other settings of it: its fingerprint is %s, and this one's "
                 "is %s",
                 p->origin.model, model);
        return refuse(p, what, err);
    }
    if (p->has_header) return ST_OK;
    snprintf(p->origin.model, sizeof(p->origin.model), "%s", model);
    buf_clear(&p->text);
    put_header(&p->origin, &p->text);
    if (buf_status(&p->text) != ST_OK) return err_set(err, ST_NOMEM, "out of memory");
    TRY(append(p, buf_str(&p->text), err));
    p->has_header = true;
    TRY(batch_partial_sync(p, err)); /* so that results never stand behind a torn first line */
    if (p->path[0]) sync_folder(p->path);
    return ST_OK;
}

bool batch_partial_has(const struct batch_partial *p, uint32_t number) {
    CHECK(number < p->origin.line_count);
    return p->places[number].bytes > 0;
}

struct batch_totals batch_partial_totals(const struct batch_partial *p) {
    return p->totals;
}

enum status batch_partial_put(struct batch_partial *p, const struct batch_entry *e,
                              struct err *err) {
    CHECK(p->has_header);
    CHECK(e->number < p->origin.line_count);
    CHECK(e->output.len > 0);
    buf_clear(&p->text);
    put_entry(e, &p->text);
    if (buf_status(&p->text) != ST_OK)
        return err_set(err, ST_NOMEM, "out of memory for the result of line %u", e->number + 1);
    uint64_t first = p->bytes;
    TRY(append(p, buf_str(&p->text), err));
    note_entry(p, e, first + p->text.len - 1 - e->output.len);
    return ST_OK;
}

enum status batch_partial_sync(struct batch_partial *p, struct err *err) {
    if (!p->is_dirty || !p->path[0]) return ST_OK;
    if (fdatasync(p->fd) != 0) return say_errno(p, ST_IO, "write", err);
    p->is_dirty = false;
    return ST_OK;
}

/* ---- the end ---- */

static enum status read_at(const struct batch_partial *p, const struct place *place,
                           struct buf *out, struct err *err) {
    char piece[4096];
    buf_clear(out);
    for (uint64_t done = 0; done < place->bytes;) {
        size_t want = place->bytes - done < sizeof(piece) ? place->bytes - done : sizeof(piece);
        ssize_t got = pread(p->fd, piece, want, (off_t)(place->offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got == 0)
            return err_set(err, ST_IO, "%s: another program made it shorter during the run",
                           name_of(p));
        if (got < 0) return say_errno(p, ST_IO, "read", err);
        buf_put(out, piece, (size_t)got);
        done += (uint64_t)got;
    }
    buf_put_char(out, '\n');
    return buf_status(out) == ST_OK ? ST_OK : err_set(err, ST_NOMEM, "out of memory");
}

enum status batch_partial_copy(const struct batch_partial *p, batch_write_fn *write, void *ctx,
                               struct err *err) {
    enum status st = ST_OK;
    struct buf line;
    buf_init(&line, ENTRY_BYTES_MAX);
    for (uint32_t i = 0; st == ST_OK && i < p->origin.line_count; i++) {
        CHECK(batch_partial_has(p, i));
        st = read_at(p, &p->places[i], &line, err);
        if (st == ST_OK) st = write(ctx, buf_str(&line), err);
    }
    buf_deinit(&line);
    return st;
}

static enum status write_stream(void *ctx, struct str line, struct err *err) {
    if (fwrite(line.ptr, 1, line.len, ctx) == line.len) return ST_OK;
    return err_set(err, ST_IO, "cannot write: %s", strerror(errno));
}

static enum status write_out(const struct batch_partial *p, FILE *file, struct err *err) {
    TRY(batch_partial_copy(p, write_stream, file, err));
    if (fflush(file) == 0 && fsync(fileno(file)) == 0) return ST_OK;
    return err_set(err, ST_IO, "cannot write: %s", strerror(errno));
}

enum status batch_partial_finish(struct batch_partial *p, const char *out_path, struct err *err) {
    char temp[PATH_BYTES];
    int len = snprintf(temp, sizeof(temp), "%s.tmp", p->path);
    if (len >= (int)sizeof(temp)) return err_set(err, ST_CREATE, "%s: name too long", out_path);
    FILE *file = fopen(temp, "w");
    if (!file) return err_set(err, ST_CREATE, "%s: cannot create: %s", temp, strerror(errno));
    enum status st = write_out(p, file, err);
    if (fclose(file) != 0 && st == ST_OK)
        st = err_set(err, ST_IO, "cannot write: %s", strerror(errno));
    if (st == ST_OK && rename(temp, out_path) != 0)
        st = err_set(err, ST_CREATE, "cannot rename %s to it: %s", temp, strerror(errno));
    if (st != ST_OK) {
        unlink(temp);
        return err_prefix(err, st, out_path);
    }
    sync_folder(out_path); /* before the results lose their other name */
    p->is_ours = false;
    return unlink(p->path) == 0 ? ST_OK : say_errno(p, ST_IO, "remove", err);
}
