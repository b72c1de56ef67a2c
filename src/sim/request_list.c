/* sim/request_list.c - see sim/request_list.h for the contract. */
#include "sim/request_list.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/request.h"
#include "text/tokenizer.h"

enum {
    ID_BYTES_MAX = 1 << 16,
    PROMPT_TOKENS_MAX = 1 << 24,
    DRAWS_MAX = 64, /* tries to find a token that is not special */
};

static const struct json_limits line_limits = {.bytes_max = (size_t)1 << 28,
                                               .depth_max = 8,
                                               .values_max = (size_t)1 << 25,
                                               .unique_keys = true};

/* Fields that are a number or a boolean; the others have a function each. */
enum field_kind { FIELD_TIME, FIELD_COUNT, FIELD_SIGNED, FIELD_SEED, FIELD_REAL, FIELD_SWITCH };
struct field {
    const char *name;
    enum field_kind kind;
    size_t offset;
    double min, max;
};

#define AT(member) offsetof(struct listed_request, member)
#define LIMITS(row) (double)row(SAMPLE_LEAST_OF), (double)row(SAMPLE_MOST_OF)
static const double TIME_MS_MAX = 1e12;

static const struct field fields[] = {
    {"at_ms", FIELD_TIME, AT(at_us), 0, TIME_MS_MAX},
    {"cancel_after_ms", FIELD_TIME, AT(cancel_after_us), 0, TIME_MS_MAX},
    {"ttft_target_ms", FIELD_TIME, AT(ttft_target_us), 0, TIME_MS_MAX},
    {"tpot_target_ms", FIELD_TIME, AT(tpot_target_us), 0, TIME_MS_MAX},
    {"max_tokens", FIELD_COUNT, AT(max_tokens), LIMITS(SAMPLE_MAX_TOKENS)},
    {"n", FIELD_COUNT, AT(n), LIMITS(SAMPLE_N)},
    {"temperature", FIELD_REAL, AT(temperature), LIMITS(SAMPLE_TEMPERATURE)},
    {"seed", FIELD_SEED, AT(seed), LIMITS(SAMPLE_SEED)},
    {"ignore_eos", FIELD_SWITCH, AT(ignore_eos), 0, 1},
    {"batch", FIELD_SWITCH, AT(is_batch), 0, 1},
    {"priority", FIELD_SIGNED, AT(priority), INT32_MIN, INT32_MAX},
};

static const char *const other_keys[] = {
    "id", "prompt", "prompt_tokens", "prompt_len", "tenant", "stop_after", NULL};

struct reading {
    struct request_list *list;
    const struct prompt_source *source;
    line_note_fn *note;
    void *ctx;
    struct map *tenants; /* name -> number; its keys are the items' */
};

/* ---- plain fields ---- */

static bool is_whole(const struct field *f) {
    return f->kind != FIELD_TIME && f->kind != FIELD_REAL;
}

static enum status field_bad(const struct field *f, struct err *err) {
    if (f->kind == FIELD_SWITCH)
        return err_set(err, ST_BAD, "\"%s\" must be true or false", f->name);
    return err_set(err, ST_BAD, "\"%s\" must be a%s number from %.15g to %.15g", f->name,
                   is_whole(f) ? " whole" : "", f->min, f->max);
}

static enum status read_field(const struct field *f, const struct json *v,
                              struct listed_request *out, struct err *err) {
    char *at = (char *)out + f->offset;
    enum json_kind kind = json_kind(v);
    if (f->kind == FIELD_SWITCH) {
        if (kind != JS_BOOL) return field_bad(f, err);
        *(bool *)(void *)at = json_bool(v, false);
        return ST_OK;
    }
    double number = json_num(v, NAN);
    if (!(number >= f->min && number <= f->max)) return field_bad(f, err);
    if (is_whole(f) && number != floor(number)) return field_bad(f, err);
    switch (f->kind) {
    case FIELD_TIME:
        *(int64_t *)(void *)at = llround(number * 1000); /* 8.203 ms is 8202.99... us in binary */
        break;
    case FIELD_COUNT:
        *(uint32_t *)(void *)at = (uint32_t)number;
        break;
    case FIELD_SIGNED:
        *(int32_t *)(void *)at = (int32_t)number;
        break;
    case FIELD_SEED:
        if (json_int(v, -1) < 0) return field_bad(f, err); /* 1e18: not an exact integer */
        *(uint64_t *)(void *)at = (uint64_t)json_int(v, -1);
        break;
    default:
        *(double *)(void *)at = number;
    }
    return ST_OK;
}

/* null counts as not given. */
static const struct json *member(const struct json *doc, const char *name) {
    const struct json *v = json_get(doc, name);
    return json_kind(v) == JS_NULL ? NULL : v;
}

static enum status read_fields(const struct json *doc, struct listed_request *out,
                               struct err *err) {
    out->cancel_after_us = -1;
    out->n = 1;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const struct json *v = member(doc, fields[i].name);
        if (v) TRY(read_field(&fields[i], v, out, err));
    }
    if (out->max_tokens == 0) return err_set(err, ST_BAD, "\"max_tokens\" is missing");
    return ST_OK;
}

/* ---- id, tenant ---- */

static enum status read_id(const struct json *doc, struct listed_request *out, struct err *err) {
    const struct json *v = member(doc, "id");
    if (v && json_kind(v) != JS_TEXT && json_kind(v) != JS_INT)
        return err_set(err, ST_BAD, "\"id\" must be a string or a whole number");
    struct buf text;
    buf_init(&text, ID_BYTES_MAX);
    if (v && json_kind(v) == JS_TEXT)
        buf_put_json_string(&text, json_str(v));
    else
        buf_printf(&text, "%lld", (long long)json_int(v, out->line));
    enum status st = buf_status(&text);
    if (st == ST_FULL) err_set(err, st = ST_BAD, "\"id\" is longer than %d bytes", ID_BYTES_MAX);
    size_t len;
    if (st == ST_OK && !(out->id = buf_take(&text, &len))) st = ST_NOMEM;
    buf_deinit(&text);
    if (st == ST_OK && !member(doc, "seed")) out->seed = XXH3_64bits(out->id, len);
    return st;
}

/* "7" and 7 are the same tenant. Called last, because the map borrows the name from the item. */
static enum status read_tenant(struct reading *r, const struct json *doc,
                               struct listed_request *out, struct err *err) {
    const struct json *v = member(doc, "tenant");
    if (!v) return ST_OK;
    if (json_kind(v) != JS_TEXT && json_kind(v) != JS_INT)
        return err_set(err, ST_BAD, "\"tenant\" must be a string or a whole number");
    char digits[24];
    snprintf(digits, sizeof(digits), "%lld", (long long)json_int(v, 0));
    struct str name = json_kind(v) == JS_TEXT ? json_str(v) : str_of(digits);
    if (map_find(r->tenants, name, &out->tenant)) return ST_OK;
    out->tenant = (uint32_t)map_count(r->tenants) + 1;
    out->tenant_name = mem_dup(name.ptr, name.len);
    if (!out->tenant_name) return ST_NOMEM;
    return map_put(r->tenants, (struct str){out->tenant_name, name.len}, out->tenant);
}

/* ---- where answers end ---- */

enum status listed_request_make_stops(struct listed_request *item) {
    item->stops = mem_zalloc_array(item->n, sizeof(item->stops[0]));
    return item->stops ? ST_OK : ST_NOMEM;
}

/* A number for all choices, or a list with one for each. */
static enum status read_stops(const struct json *doc, struct listed_request *out, struct err *err) {
    const struct json *v = member(doc, "stop_after");
    bool is_list = json_kind(v) == JS_LIST;
    if (!v) return ST_OK;
    if (is_list && json_count(v) != out->n)
        return err_set(err, ST_BAD, "\"stop_after\" has %zu entries for %u choices", json_count(v),
                       out->n);
    TRY(listed_request_make_stops(out));
    for (uint32_t i = 0; i < out->n; i++) {
        int64_t tokens = json_int(is_list ? json_at(v, i) : v, -1);
        if (tokens < 1 || tokens > out->max_tokens)
            return err_set(err, ST_BAD, "\"stop_after\" must be from 1 to max_tokens (%u)",
                           out->max_tokens);
        out->stops[i] = (uint32_t)tokens;
    }
    return ST_OK;
}

/* ---- prompts ---- */

static enum status prompt_from_text(const struct reading *r, struct str text,
                                    struct listed_request *out, struct err *err) {
    struct tokens ids = {0};
    if (!r->source->tokenizer)
        return err_set(
            err, ST_BAD,
            "\"prompt\" is text, which needs a model; use \"prompt_tokens\" or \"prompt_len\"");
    enum status st = tokenizer_encode(r->source->tokenizer, text,
                                      (struct encode_options){.add_special = true}, &ids);
    if (st == ST_OK && ids.count == 0) st = err_set(err, ST_BAD, "\"prompt\" has no tokens");
    if (st == ST_OK && ids.count > PROMPT_TOKENS_MAX)
        st = err_set(err, ST_BAD, "\"prompt\" has %zu tokens", ids.count);
    if (st != ST_OK) {
        tokens_deinit(&ids);
        return st;
    }
    out->prompt = ids.ids;
    out->prompt_tokens = (uint32_t)ids.count;
    return ST_OK;
}

static enum status prompt_room(struct listed_request *out, size_t count) {
    out->prompt = mem_alloc_array(count, sizeof(out->prompt[0]));
    out->prompt_tokens = (uint32_t)count;
    return out->prompt ? ST_OK : ST_NOMEM;
}

static enum status prompt_from_ids(const struct reading *r, const struct json *ids,
                                   struct listed_request *out, struct err *err) {
    size_t count = json_count(ids);
    if (json_kind(ids) != JS_LIST || count == 0 || count > PROMPT_TOKENS_MAX)
        return err_set(err, ST_BAD, "\"prompt_tokens\" must be a list of 1 to %d token ids",
                       PROMPT_TOKENS_MAX);
    TRY(prompt_room(out, count));
    for (size_t i = 0; i < count; i++) {
        const struct json *v = json_at(ids, i);
        int64_t id = json_kind(v) == JS_INT ? json_int(v, -1) : -1;
        if (id < 0 || id >= (int64_t)r->source->vocab)
            return err_set(err, ST_BAD, "\"prompt_tokens\"[%zu] must be a token id from 0 to %u", i,
                           r->source->vocab - 1);
        out->prompt[i] = (int32_t)id;
    }
    return ST_OK;
}

/* Not a special token: a random prompt must not begin or end a message. */
static int32_t draw_token(const struct prompt_source *source, struct rng *rng) {
    int32_t id = 0;
    for (uint32_t i = 0; i < DRAWS_MAX; i++) {
        id = (int32_t)rng_below(rng, source->vocab);
        if (!source->tokenizer || !tokenizer_is_special(source->tokenizer, id)) break;
    }
    return id;
}

enum status listed_request_draw_prompt(struct listed_request *item, uint32_t prompt_tokens,
                                       const struct prompt_source *source) {
    TRY(prompt_room(item, prompt_tokens));
    struct rng rng = {.seed = XXH3_64bits(item->id, strlen(item->id))};
    for (uint32_t i = 0; i < prompt_tokens; i++) item->prompt[i] = draw_token(source, &rng);
    return ST_OK;
}

static enum status prompt_from_len(const struct reading *r, const struct json *len,
                                   struct listed_request *out, struct err *err) {
    int64_t count = json_kind(len) == JS_INT ? json_int(len, 0) : 0;
    if (count < 1 || count > PROMPT_TOKENS_MAX)
        return err_set(err, ST_BAD, "\"prompt_len\" must be a whole number from 1 to %d",
                       PROMPT_TOKENS_MAX);
    return listed_request_draw_prompt(out, (uint32_t)count, r->source);
}

static enum status read_prompt(const struct reading *r, const struct json *doc,
                               struct listed_request *out, struct err *err) {
    const struct json *text = member(doc, "prompt"), *ids = member(doc, "prompt_tokens");
    const struct json *len = member(doc, "prompt_len");
    if ((text != NULL) + (ids != NULL) + (len != NULL) != 1)
        return err_set(err, ST_BAD,
                       "give exactly one of \"prompt\", \"prompt_tokens\" and \"prompt_len\"");
    if (ids) return prompt_from_ids(r, ids, out, err);
    if (len) return prompt_from_len(r, len, out, err);
    if (json_kind(text) != JS_TEXT) return err_set(err, ST_BAD, "\"prompt\" must be a string");
    return prompt_from_text(r, json_str(text), out, err);
}

/* ---- lines ---- */

static bool is_known(struct str key) {
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (str_is(key, fields[i].name)) return true;
    for (const char *const *k = other_keys; *k; k++)
        if (str_is(key, *k)) return true;
    return false;
}

static void warn_of_keys(const struct reading *r, const struct json *doc, uint32_t line) {
    for (struct json_iter it = json_iter_first(doc); json_iter_ok(&it); json_iter_next(&it)) {
        if (is_known(it.key)) continue;
        struct err text = {0};
        err_set(&text, ST_BAD, "unknown key \"%.*s\" is ignored", STR_ARG(it.key));
        r->note(r->ctx, line, false, text.text);
    }
}

void listed_request_deinit(struct listed_request *item) {
    mem_free(item->id);
    mem_free(item->tenant_name);
    mem_free(item->prompt);
    mem_free(item->stops);
}

enum status request_list_push(struct request_list *list, const struct listed_request *item) {
    if (list->count == list->cap) {
        uint32_t cap = list->cap ? 2 * list->cap : 64;
        void *grown = mem_realloc(list->items, cap * sizeof(list->items[0]));
        if (!grown) return ST_NOMEM;
        list->items = grown;
        list->cap = cap;
    }
    list->items[list->count++] = *item;
    return ST_OK;
}

static enum status read_members(struct reading *r, const struct json *doc,
                                struct listed_request *item, struct err *err) {
    if (json_kind(doc) != JS_MAP) return err_set(err, ST_BAD, "the line must be a JSON object");
    TRY(read_fields(doc, item, err));
    TRY(read_stops(doc, item, err));
    TRY(read_id(doc, item, err));
    TRY(read_prompt(r, doc, item, err));
    return read_tenant(r, doc, item, err);
}

/* ST_BAD: the line is invalid; `err` says why. */
static enum status read_line(struct reading *r, struct str text, uint32_t line, struct err *err) {
    struct json *doc = NULL;
    struct listed_request item = {.line = line};
    TRY(json_parse(text, &line_limits, &doc, err));
    enum status st = read_members(r, doc, &item, err);
    if (st == ST_OK) warn_of_keys(r, doc, line);
    if (st == ST_OK) st = request_list_push(r->list, &item);
    if (st != ST_OK) listed_request_deinit(&item);
    json_destroy(doc);
    return st;
}

static enum status read_lines(struct reading *r, struct str text) {
    for (uint32_t line = 1; text.len > 0; line++) {
        const char *end = memchr(text.ptr, '\n', text.len);
        size_t len = end ? (size_t)(end - text.ptr) : text.len;
        struct str one = str_trim(str_take(text, len));
        text = str_skip(text, end ? len + 1 : len);
        if (one.len == 0) continue;
        struct err why = {0};
        enum status st = read_line(r, one, line, &why);
        if (st != ST_OK && st != ST_BAD) return st;
        if (st == ST_OK) continue;
        r->list->bad_lines++;
        r->note(r->ctx, line, true, why.text);
    }
    return ST_OK;
}

enum status request_list_read(struct request_list *list, struct str text,
                              const struct prompt_source *source, line_note_fn *note, void *ctx,
                              struct err *err) {
    struct reading r = {.list = list, .source = source, .note = note, .ctx = ctx};
    *list = (struct request_list){.items = NULL};
    r.tenants = map_create(64);
    enum status st = r.tenants ? read_lines(&r, text) : ST_NOMEM;
    map_destroy(r.tenants);
    if (st == ST_OK) return ST_OK;
    request_list_deinit(list);
    return err_set(err, st, "out of memory for the list of requests");
}

void request_list_deinit(struct request_list *list) {
    for (uint32_t i = 0; i < list->count; i++) listed_request_deinit(&list->items[i]);
    mem_free(list->items);
    *list = (struct request_list){.items = NULL};
}

uint32_t request_list_choices(const struct request_list *list) {
    uint32_t choices = 0;
    for (uint32_t i = 0; i < list->count; i++) choices += list->items[i].n;
    return choices;
}
