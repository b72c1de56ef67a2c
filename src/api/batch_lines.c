/* api/batch_lines.c - see api/batch_lines.h for the contract. */
#include "api/batch_lines.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "api/batch_objects.h"
#include "api/batch_prefix.h"
#include "base/json.h"
#include "base/map.h"
#include "jobs/batches.h"

enum { ERRORS_BYTES_MAX = 1 << 20, MESSAGE_BYTES = 400, BODY_BYTES_MAX = 2 * BATCH_LINE_BYTES_MAX };

/* ---- lines of a file that comes in chunks ---- */

void line_splitter_init(struct line_splitter *s) {
    *s = (struct line_splitter){.chunk = STR("")};
    buf_init(&s->held, BATCH_LINE_BYTES_MAX);
}

void line_splitter_deinit(struct line_splitter *s) { buf_deinit(&s->held); }

void line_splitter_push(struct line_splitter *s, struct str chunk, bool is_last) {
    s->chunk = chunk;
    s->is_last = is_last;
}

/* Keep a part of a line; what is over the maximum is left out. */
static void hold(struct line_splitter *s, struct str part) {
    const size_t room = BATCH_LINE_BYTES_MAX - s->held.len;
    if (part.len > room) s->too_long = true;
    buf_put_str(&s->held, str_take(part, room));
}

static struct str without_cr(struct str line) {
    if (line.len && line.ptr[line.len - 1] == '\r') line.len--;
    return line;
}

/* Give out a line that is whole in the chunk, or was held and ends in it. */
static struct str give(struct line_splitter *s, struct str line) {
    s->gave_held = true;
    if (s->held.len == 0 && line.len <= BATCH_LINE_BYTES_MAX) return without_cr(line);
    hold(s, line);
    return without_cr(buf_str(&s->held));
}

bool line_splitter_next(struct line_splitter *s, struct str *line) {
    if (s->gave_held) {
        buf_clear(&s->held);
        s->gave_held = s->too_long = false;
    }
    const char *end = s->chunk.len ? memchr(s->chunk.ptr, '\n', s->chunk.len) : NULL;
    struct str part = end ? str_take(s->chunk, (size_t)(end - s->chunk.ptr)) : s->chunk;
    s->chunk = str_skip(s->chunk, part.len + (end != NULL));
    const bool is_whole = end || (s->is_last && (part.len || s->held.len));
    if (is_whole)
        *line = give(s, part);
    else
        hold(s, part);
    return is_whole && buf_status(&s->held) == ST_OK;
}

/* ---- errors ---- */

static void put_or_null(const char *text, struct buf *out) {
    if (text)
        buf_put_json_string(out, str_of(text));
    else
        buf_put_text(out, "null");
}

void batch_check_add(struct batch_check *c, const struct batch_fault *fault) {
    if (c->error_count++ >= BATCH_ERRORS_MAX) return;
    buf_put_text(&c->errors, c->errors.len ? ",{\"code\":" : "[{\"code\":");
    put_or_null(fault->code, &c->errors);
    buf_put_text(&c->errors, ",\"line\":");
    if (fault->line)
        buf_put_uint(&c->errors, fault->line);
    else
        buf_put_text(&c->errors, "null");
    buf_put_text(&c->errors, ",\"message\":");
    put_or_null(fault->message, &c->errors);
    buf_put_text(&c->errors, ",\"param\":");
    put_or_null(fault->param, &c->errors);
    buf_put_char(&c->errors, '}');
}

/* Add an error of the present line. Returns ST_BAD. */
static enum status refuse(struct batch_check *c, const char *code, const char *param,
                          const char *message) {
    batch_check_add(c, &(struct batch_fault){code, param, c->line_count, message});
    return ST_BAD;
}

static enum status refuse_member(struct batch_check *c, const struct json *v, const char *param,
                                 const char *expected) {
    char text[MESSAGE_BYTES];
    const bool is_missing = json_kind(v) == JS_NONE || json_kind(v) == JS_NULL;
    snprintf(text, sizeof(text),
             is_missing ? "The required parameter '%s' is missing; expected %s."
                        : "Invalid type for '%s': expected %s.",
             param, expected);
    return refuse(c, is_missing ? "missing_required_parameter" : "invalid_type", param, text);
}

/* ---- the members of a line ---- */

static enum status read_id(struct batch_check *c, struct str *out) {
    char text[MESSAGE_BYTES];
    const struct json *v = json_get(c->doc, "custom_id");
    uint64_t first;
    *out = json_str(v);
    if (json_kind(v) != JS_TEXT || out->len == 0)
        return refuse_member(c, json_kind(v) == JS_TEXT ? NULL : v, "custom_id",
                             "a string that is not empty");
    if (out->len > BATCH_CUSTOM_ID_MAX) {
        snprintf(text, sizeof(text), "The custom_id has %zu bytes, more than the maximum of %d.",
                 out->len, BATCH_CUSTOM_ID_MAX);
        return refuse(c, "string_above_max_length", "custom_id", text);
    }
    if (map64_find(c->ids, batch_id_hash(*out), &first)) {
        snprintf(text, sizeof(text), "The custom_id '%.*s' is already used on line %llu.",
                 (int)(out->len > 100 ? 100 : out->len), out->ptr, (unsigned long long)first);
        return refuse(c, "duplicate_custom_id", "custom_id", text);
    }
    return ST_OK;
}

static enum status check_method(struct batch_check *c) {
    char text[MESSAGE_BYTES];
    const struct json *v = json_get(c->doc, "method");
    if (json_kind(v) != JS_TEXT) return refuse_member(c, v, "method", "\"POST\"");
    if (str_is(json_str(v), "POST")) return ST_OK;
    snprintf(text, sizeof(text), "The method is '%.*s'; expected POST.",
             (int)(json_str(v).len > 32 ? 32 : json_str(v).len), json_str(v).ptr);
    return refuse(c, "invalid_method", "method", text);
}

static struct str find_endpoint(struct str url) {
    for (uint32_t i = 0; batch_endpoints[i]; i++)
        if (str_is(url, batch_endpoints[i])) return str_of(batch_endpoints[i]);
    return (struct str){0};
}

static enum status read_url(struct batch_check *c, struct str *out) {
    char text[MESSAGE_BYTES];
    const struct json *v = json_get(c->doc, "url");
    struct str url = json_str(v), shown = str_take(url, 100);
    if (json_kind(v) != JS_TEXT)
        return refuse_member(c, v, "url", c->endpoint.len ? "the batch's endpoint" : "a path");
    *out = c->endpoint.len ? c->endpoint : find_endpoint(url);
    if (out->len && str_eq(url, *out)) return ST_OK;
    if (c->endpoint.len)
        snprintf(text, sizeof(text), "The url is '%.*s'; expected the batch's endpoint '%.*s'.",
                 STR_ARG(shown), STR_ARG(c->endpoint));
    else
        snprintf(text, sizeof(text),
                 "The url is '%.*s'; expected /v1/chat/completions, /v1/completions, "
                 "/v1/embeddings or /v1/responses.",
                 STR_ARG(shown));
    return refuse(c, "url_mismatch", "url", text);
}

static enum status check_model(struct batch_check *c, const struct json *body) {
    char text[2 * BATCH_MODEL_BYTES + MESSAGE_BYTES];
    const struct json *v = json_get(body, "model");
    struct str model = json_str(v);
    if (v && json_kind(v) != JS_TEXT && json_kind(v) != JS_NULL)
        return refuse_member(c, v, "body.model", "a string");
    if (model.len >= BATCH_MODEL_BYTES)
        return refuse(c, "string_above_max_length", "body.model",
                      "The model's name has more than 256 bytes, the maximum.");
    if (c->good_count == 0) str_store(model, c->model, sizeof(c->model));
    if (c->endpoint.len == 0 || str_is(model, c->model)) return ST_OK;
    snprintf(text, sizeof(text),
             "The model is '%.*s'; expected '%s' as on the lines before: a batch has one model.",
             (int)model.len, model.ptr, c->model);
    return refuse(c, "model_mismatch", "body.model", text);
}

static enum status read_request(struct batch_check *c, struct str *body_text) {
    const struct json *body = json_get(c->doc, "body");
    if (json_kind(body) != JS_MAP) return refuse_member(c, body, "body", "an object");
    if (json_bool(json_get(body, "stream"), false))
        return refuse(c, "unsupported_parameter", "body.stream",
                      "A line of a batch cannot stream; leave 'stream' out, or set it to false.");
    TRY(check_model(c, body));
    buf_clear(&c->body);
    json_put(body, &c->body);
    *body_text = buf_str(&c->body);
    return buf_status(&c->body);
}

/* The number of the first good line with the same prefix. */
static enum status find_order(struct batch_check *c, struct str url, uint64_t *out) {
    const uint64_t prefix =
        str_is(url, "/v1/embeddings") ? 0 : batch_prefix_of(json_get(c->doc, "body"));
    if (map64_find(c->prefixes, prefix, out)) return ST_OK;
    *out = c->good_count;
    return map64_put(c->prefixes, prefix, c->good_count);
}

static enum status read_line(struct batch_check *c, struct batch_line *out) {
    *out = (struct batch_line){.number = c->good_count};
    if (json_kind(c->doc) != JS_MAP)
        return refuse(c, "invalid_json_line", NULL, "The line is not a JSON object.");
    TRY(read_id(c, &out->custom_id));
    TRY(check_method(c));
    TRY(read_url(c, &out->url));
    TRY(read_request(c, &out->body));
    TRY(find_order(c, out->url, &out->order));
    TRY(map64_put(c->ids, batch_id_hash(out->custom_id), c->line_count));
    c->good_count++;
    return ST_OK;
}

/* ---- entry points ---- */

enum status batch_check_init(struct batch_check *c, struct str endpoint) {
    *c = (struct batch_check){.endpoint = endpoint};
    buf_init(&c->errors, ERRORS_BYTES_MAX);
    buf_init(&c->body, BODY_BYTES_MAX);
    c->ids = map64_create(1024);
    c->prefixes = map64_create(64);
    return c->ids && c->prefixes ? ST_OK : ST_NOMEM;
}

void batch_check_deinit(struct batch_check *c) {
    map64_destroy(c->ids);
    map64_destroy(c->prefixes);
    json_destroy(c->doc);
    buf_deinit(&c->errors);
    buf_deinit(&c->body);
}

struct str batch_skip_mark(struct str line) {
    return str_starts(line, STR("\xEF\xBB\xBF")) ? str_skip(line, 3) : line;
}

/* "JSON line 1 column 5: .." is column 5 of whichever line of the file it is. */
static enum status refuse_json(struct batch_check *c, const struct err *err) {
    char message[MESSAGE_BYTES + ERR_TEXT_BYTES];
    struct str text = str_of(err->text), place = STR("JSON line 1 ");
    if (str_starts(text, place)) text = str_skip(text, place.len);
    snprintf(message, sizeof(message), "The line is not valid JSON: %.*s.", STR_ARG(text));
    return refuse(c, "invalid_json_line", NULL, message);
}

enum status batch_check_line(struct batch_check *c, struct str text, bool is_too_long,
                             struct batch_line *out) {
    struct err err = {0};
    char message[MESSAGE_BYTES];
    if (c->is_over) return ST_BAD;
    c->line_count++;
    json_destroy(c->doc);
    c->doc = NULL;
    if (str_trim(text).len == 0) return ST_MISSING;
    if (c->endpoint.len > 0 && c->good_count == BATCH_LINES_MAX) {
        c->is_over = true;
        snprintf(message, sizeof(message), "The file has more than %d lines, the maximum.",
                 BATCH_LINES_MAX);
        return refuse(c, "too_many_tasks", NULL, message);
    }
    if (is_too_long) {
        snprintf(message, sizeof(message), "The line has more than %d bytes, the maximum.",
                 BATCH_LINE_BYTES_MAX);
        return refuse(c, "line_too_long", NULL, message);
    }
    if (json_parse(text, &json_limits_request, &c->doc, &err) != ST_OK) return refuse_json(c, &err);
    return read_line(c, out);
}

enum status batch_check_end(struct batch_check *c) {
    if (c->good_count == 0 && c->error_count == 0)
        batch_check_add(c, &(struct batch_fault){"empty_file", "input_file_id", 0,
                                                 "The input file has no lines; expected at least "
                                                 "one request."});
    if (c->error_count) buf_put_char(&c->errors, ']');
    TRY(buf_status(&c->errors));
    return c->error_count ? ST_BAD : ST_OK;
}

/* ---- output ---- */

bool batch_output_is_error(const struct line_row *row) {
    return row->result.state != LINE_DONE || row->result.status >= 400;
}

static void put_not_run(const struct line_row *row, struct buf *out) {
    const bool is_expired = row->result.state == LINE_EXPIRED;
    buf_printf(out, ",\"response\":null,\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}\n",
               is_expired ? "batch_expired" : "batch_cancelled",
               is_expired ? "The batch expired before this request was run."
                          : "The batch was cancelled before this request was run.");
}

void batch_output_put(struct str batch_id, const struct line_row *row, struct buf *out) {
    const struct line_result *r = &row->result;
    const XXH128_hash_t hash = XXH3_128bits_withSeed(batch_id.ptr, batch_id.len, row->line.number);
    buf_printf(out, "{\"id\":\"batch_req_%016llx%016llx\",\"custom_id\":",
               (unsigned long long)hash.high64, (unsigned long long)hash.low64);
    buf_put_json_string(out, row->line.custom_id);
    if (r->state != LINE_DONE && r->state != LINE_FAILED) {
        put_not_run(row, out);
        return;
    }
    buf_printf(out, ",\"response\":{\"status_code\":%u,\"request_id\":", r->status);
    buf_put_json_string(out, r->request_id);
    buf_put_text(out, ",\"body\":");
    if (r->body.len)
        buf_put_str(out, r->body);
    else
        buf_put_text(out, "null");
    buf_put_text(out, "},\"error\":null}\n");
}
