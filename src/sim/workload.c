/* sim/workload.c - see sim/workload.h for the contract. */
#include "sim/workload.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"

enum { TRACE_BYTES_MAX = 64 << 20, LINE_BYTES_MIN = 6 /* "t,1,1\n" */ };
static const uint32_t TOKENS_MAX = 1 << 20;

/* ---- a trace ---- */

static bool next_line(struct str *rest, struct str *line) {
    if (rest->len == 0) return false;
    const char *end = memchr(rest->ptr, '\n', rest->len);
    size_t len = end ? (size_t)(end - rest->ptr) : rest->len;
    *line = str_trim(str_take(*rest, len));
    *rest = str_skip(*rest, end ? len + 1 : len);
    return true;
}

/* The text up to the next comma; `rest` moves past it. */
static struct str next_field(struct str *rest) {
    const char *end = rest->len ? memchr(rest->ptr, ',', rest->len) : NULL;
    size_t len = end ? (size_t)(end - rest->ptr) : rest->len;
    struct str field = str_take(*rest, len);
    *rest = str_skip(*rest, end ? len + 1 : len);
    return field;
}

static bool parse_line(struct str line, struct length_pair *out) {
    uint64_t prompt, answer;
    next_field(&line); /* the time */
    struct str a = next_field(&line), b = next_field(&line);
    if (!str_to_u64(a, &prompt) || !str_to_u64(b, &answer) || line.len > 0) return false;
    if (prompt > TOKENS_MAX || answer > TOKENS_MAX) return false;
    *out = (struct length_pair){(uint32_t)prompt, (uint32_t)answer};
    return true;
}

static enum status parse_trace(struct lengths *l, struct str text, const char *path,
                               struct err *err) {
    struct str line;
    next_line(&text, &line); /* the names */
    for (uint32_t number = 2; next_line(&text, &line); number++) {
        struct length_pair *p = &l->items[l->count];
        if (line.len == 0) continue;
        if (!parse_line(line, p))
            return err_set(err, ST_BAD, "%s, line %u: expected time,prompt tokens,answer tokens",
                           path, number);
        if (p->prompt_tokens > 0 && p->answer_tokens > 0) l->count++;
    }
    if (l->count == 0) return err_set(err, ST_BAD, "%s has no lengths", path);
    return ST_OK;
}

static enum status lengths_alloc(struct lengths *l, size_t room, struct err *err) {
    *l = (struct lengths){.items = mem_zalloc_array(room, sizeof(l->items[0]))};
    return l->items ? ST_OK : err_set(err, ST_NOMEM, "out of memory for lengths");
}

enum status lengths_read(struct lengths *l, const char *path, struct err *err) {
    struct buf text;
    *l = (struct lengths){.items = NULL};
    buf_init(&text, TRACE_BYTES_MAX);
    enum status st = file_read(path, &text, err);
    if (st == ST_OK) st = lengths_alloc(l, buf_str(&text).len / LINE_BYTES_MIN + 1, err);
    if (st == ST_OK) st = parse_trace(l, buf_str(&text), path, err);
    if (st != ST_OK) lengths_deinit(l);
    buf_deinit(&text);
    return st;
}

void lengths_deinit(struct lengths *l) {
    mem_free(l->items);
    *l = (struct lengths){.items = NULL};
}

/* ---- a shape ---- */

const struct length_shape shape_chat = {"chat", 1000, 0.75, 130, 0.95, 14000, 1000};
const struct length_shape shape_reading = {"reading", 1500, 0.95, 13, 1.1, 7400, 1900};
const struct length_shape shape_writing = {"writing", 60, 0.7, 700, 0.6, 1000, 3000};
const struct length_shape shape_heavy = {"heavy", 100, 0.5, 30, 1.6, 1000, 3000};

/* By the sum of twelve uniform numbers: mean 6, variance 1, and no library's logarithm. */
static double draw_normal(struct rng *rng) {
    double sum = 0;
    for (int i = 0; i < 12; i++) sum += rng_unit(rng);
    return sum - 6;
}

static uint32_t draw_length(struct rng *rng, double median, double spread, uint32_t max) {
    double tokens = median * exp(spread * draw_normal(rng));
    if (tokens < 1) return 1;
    return tokens < max ? (uint32_t)tokens : max;
}

enum status lengths_draw(struct lengths *l, const struct length_shape *shape, uint32_t count,
                         uint64_t seed, struct err *err) {
    struct rng rng = {.seed = seed};
    CHECK(count > 0);
    TRY(lengths_alloc(l, count, err));
    l->count = count;
    for (uint32_t i = 0; i < count; i++) {
        l->items[i].prompt_tokens =
            draw_length(&rng, shape->prompt_median, shape->prompt_spread, shape->prompt_max);
        l->items[i].answer_tokens =
            draw_length(&rng, shape->answer_median, shape->answer_spread, shape->answer_max);
    }
    return ST_OK;
}

/* ---- streams ---- */

static uint32_t divide(uint32_t tokens, uint32_t divisor) {
    uint32_t n = divisor > 1 ? tokens / divisor : tokens;
    return n > 0 ? n : 1;
}

static struct work_request make_request(const struct work_stream *s, uint32_t i, int64_t at_us) {
    const struct length_pair *p = &s->lengths->items[i % s->lengths->count];
    uint32_t answer = divide(p->answer_tokens, s->divisor);
    if (s->max_tokens > 0 && answer > s->max_tokens) answer = s->max_tokens;
    return (struct work_request){.at_us = at_us,
                                 .prompt_tokens = divide(p->prompt_tokens, s->divisor),
                                 .answer_tokens = answer,
                                 .max_tokens = s->max_tokens ? s->max_tokens : answer,
                                 .tenant = s->tenant,
                                 .priority = s->priority,
                                 .ttft_target_us = s->ttft_target_us,
                                 .tpot_target_us = s->tpot_target_us};
}

/* Both parts are sorted: the new one is merged from the back, behind equals of the old one. */
static void merge(struct workload *w, const struct work_request *added, uint32_t count) {
    uint32_t old = w->count;
    w->count += count;
    for (uint32_t to = w->count; count > 0; to--) {
        bool takes_old = old > 0 && w->requests[old - 1].at_us > added[count - 1].at_us;
        w->requests[to - 1] = takes_old ? w->requests[--old] : added[--count];
    }
}

enum status workload_add(struct workload *w, const struct work_stream *stream, struct err *err) {
    CHECK(stream->lengths->count > 0);
    struct rng rng = {.seed = stream->seed};
    size_t bytes = ((size_t)w->count + stream->count) * sizeof(w->requests[0]);
    struct work_request *added = mem_alloc_array(stream->count, sizeof(added[0]));
    struct work_request *grown = mem_realloc(w->requests, bytes);
    if (grown) w->requests = grown;
    if (!added || !grown) {
        mem_free(added);
        return err_set(err, ST_NOMEM, "out of memory for %u requests", stream->count);
    }
    double at_s = 0;
    for (uint32_t i = 0; i < stream->count; i++) {
        if (stream->per_s > 0) at_s += -log(1 - rng_unit(&rng)) / stream->per_s;
        added[i] = make_request(stream, i, (int64_t)(at_s * 1e6));
    }
    merge(w, added, stream->count);
    mem_free(added);
    return ST_OK;
}

void workload_deinit(struct workload *w) {
    mem_free(w->requests);
    *w = (struct workload){.requests = NULL};
}
