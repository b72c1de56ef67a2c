/* cli/batch_input.c - see cli/batch_input.h. */
#include "cli/batch_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/batch_lines.h"
#include "api/batch_objects.h"
#include "base/json.h"
#include "base/mem.h"
#include "jobs/batches.h"

enum { ITEMS_FIRST = 1024, SENTENCE_BYTES = 1024 };
static const size_t STDIN_BYTES_MAX = (size_t)1 << 32;
static const struct json_limits limits_errors = {
    .bytes_max = 1 << 21, .depth_max = 8, .values_max = 1 << 16};

/* ---- one line ---- */

static const char *url_of(struct str text) {
    for (uint32_t i = 0; batch_endpoints[i]; i++)
        if (str_is(text, batch_endpoints[i])) return batch_endpoints[i];
    return NULL;
}

enum status batch_input_read(const struct batch_input *in, uint32_t number,
                             struct batch_request *out, struct err *err) {
    const struct batch_item *item = &in->items[number];
    struct str text = {in->text.ptr + item->offset, item->bytes};
    struct json *doc = NULL;
    TRY(json_parse(text, &json_limits_request, &doc, err));
    *out = (struct batch_request){.doc = doc,
                                  .custom_id = json_str(json_get(doc, "custom_id")),
                                  .url = url_of(json_str(json_get(doc, "url"))),
                                  .body = json_get(doc, "body")};
    if (out->custom_id.len > 0 && out->url && json_kind(out->body) == JS_MAP) return ST_OK;
    json_destroy(doc);
    return err_set(err, ST_BAD,
                   "line %u has changed since it was checked; leave the input as it is until the "
                   "run has ended",
                   number + 1);
}

/* ---- all lines ---- */

static enum status add_item(struct batch_input *in, struct str line, uint64_t order,
                            struct err *err) {
    if (in->count == in->capacity) {
        uint32_t capacity = in->capacity ? 2 * in->capacity : ITEMS_FIRST;
        struct batch_item *items = mem_realloc(in->items, (size_t)capacity * sizeof(*items));
        if (!items) return err_set(err, ST_NOMEM, "out of memory for the lines");
        in->items = items;
        in->capacity = capacity;
    }
    in->items[in->count++] = (struct batch_item){.offset = (uint64_t)(line.ptr - in->text.ptr),
                                                 .bytes = (uint32_t)line.len,
                                                 .order = (uint32_t)order};
    return ST_OK;
}

static enum status check_lines(struct batch_input *in, struct batch_check *c, struct err *err) {
    for (struct str rest = in->text; rest.len > 0;) {
        struct batch_line checked;
        const char *end = memchr(rest.ptr, '\n', rest.len);
        struct str line = str_take(rest, end ? (size_t)(end - rest.ptr) : rest.len);
        rest = str_skip(rest, line.len + (end ? 1 : 0));
        if (c->line_count == 0) line = batch_skip_mark(line);
        line = str_trim(line);
        enum status st = batch_check_line(c, line, line.len > BATCH_LINE_BYTES_MAX, &checked);
        if (st == ST_OK) st = add_item(in, line, checked.order, err);
        if (st == ST_NOMEM) return err_set(err, st, "out of memory for the lines");
    }
    return ST_OK;
}

static void note_problems(struct batch_check *c, const char *name, batch_note_fn *note, void *ctx) {
    struct json *list = NULL;
    struct err ignored = {0};
    if (json_parse(buf_str(&c->errors), &limits_errors, &list, &ignored) != ST_OK) return;
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *problem = json_at(list, i);
        struct str text = json_str(json_get(problem, "message"));
        char sentence[SENTENCE_BYTES];
        snprintf(sentence, sizeof(sentence), "%s:%lld: %.*s", name,
                 (long long)json_int(json_get(problem, "line"), 0), STR_ARG(text));
        note(ctx, sentence);
    }
    json_destroy(list);
}

static enum status check_all(struct batch_input *in, const char *name, batch_note_fn *note,
                             void *ctx, struct err *err) {
    struct batch_check c;
    enum status st = batch_check_init(&c, (struct str){0});
    if (st == ST_OK) st = check_lines(in, &c, err);
    if (st == ST_OK && in->count == 0 && c.error_count == 0) {
        st = err_set(err, ST_BAD, "%s: no lines; expected a request on each line", name);
    } else if (st == ST_OK) {
        st = batch_check_end(&c);
        if (st == ST_BAD) note_problems(&c, name, note, ctx);
        if (st == ST_BAD)
            err_set(err, st, "%s: %u of %u lines %s invalid; nothing was computed", name,
                    c.error_count, c.line_count, c.error_count == 1 ? "is" : "are");
    }
    if (st == ST_NOMEM) err_set(err, st, "out of memory for the lines");
    batch_check_deinit(&c);
    return st;
}

/* ---- the file ---- */

static enum status open_text(struct batch_input *in, const char *path, struct err *err) {
    if (strcmp(path, "-") == 0) {
        TRY(file_read(path, &in->held, err));
        in->text = buf_str(&in->held);
        return ST_OK;
    }
    if (file_exists(path) && !file_is_regular(path) && !file_is_dir(path)) {
        TRY(file_read(path, &in->held, err)); /* a pipe */
        in->text = buf_str(&in->held);
        return ST_OK;
    }
    TRY(file_map_open(path, &in->map, err));
    in->text = (struct str){(const char *)in->map.ptr, in->map.len};
    return ST_OK;
}

static enum status hash_text(struct batch_input *in, struct err *err) {
    struct sha256 *h = sha256_create();
    if (!h) return err_set(err, ST_NOMEM, "out of memory");
    sha256_add(h, in->text.ptr, in->text.len);
    sha256_hex(h, in->sha256);
    sha256_destroy(h);
    return in->map.ptr ? file_map_check(&in->map, err) : ST_OK;
}

/* By the groups, then by the number; both are in the place as one value. */
static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static enum status make_run_order(struct batch_input *in, struct err *err) {
    uint64_t *places = mem_alloc_array(in->count, sizeof(places[0]));
    in->run_order = mem_alloc_array(in->count, sizeof(in->run_order[0]));
    if (!places || !in->run_order) {
        mem_free(places);
        return err_set(err, ST_NOMEM, "out of memory for the lines");
    }
    for (uint32_t i = 0; i < in->count; i++) places[i] = (uint64_t)in->items[i].order << 32 | i;
    qsort(places, in->count, sizeof(places[0]), compare);
    for (uint32_t i = 0; i < in->count; i++) in->run_order[i] = (uint32_t)places[i];
    mem_free(places);
    return ST_OK;
}

enum status batch_input_open(struct batch_input *in, const char *path, batch_note_fn *note,
                             void *ctx, struct err *err) {
    *in = (struct batch_input){0};
    buf_init(&in->held, STDIN_BYTES_MAX);
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    enum status st = open_text(in, path, err);
    if (st == ST_OK) st = hash_text(in, err);
    if (st == ST_OK) st = check_all(in, name, note, ctx, err);
    if (st == ST_OK) st = make_run_order(in, err);
    if (st != ST_OK) batch_input_close(in);
    return st;
}

void batch_input_close(struct batch_input *in) {
    file_map_close(&in->map);
    buf_deinit(&in->held);
    mem_free(in->items);
    mem_free(in->run_order);
    *in = (struct batch_input){0};
}
