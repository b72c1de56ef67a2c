/* api/message_batches.c - see api/message_batches.h for the contract.
 *
 * The scan below finds where values begin and end, and nothing else. What it cuts out, and what
 * remains without the requests, is parsed as JSON afterwards, so malformed text is refused there.
 */
#include "api/message_batches.h"

#include <stdio.h>
#include <string.h>

#include "api/batch_prefix.h"
#include "api/fields.h"
#include "api/ollama.h"
#include "base/json.h"
#include "base/map.h"
#include "jobs/batches.h"

enum { BODY_BYTES_MAX = 1 << 25 };

static const struct json_limits frame_limits = {
    .bytes_max = 1 << 20, .depth_max = 64, .values_max = 10000, .unique_keys = true};

/* ---- finding the ends of values ---- */

static struct str skip_blanks(struct str s) {
    while (s.len && strchr(" \t\r\n", s.ptr[0]) && s.ptr[0]) s = str_skip(s, 1);
    return s;
}

/* The length of a string with its quotes; 0: it does not end. */
static size_t text_len(struct str s) {
    for (size_t i = 1; i < s.len; i++) {
        if (s.ptr[i] == '"') return i + 1;
        if (s.ptr[i] == '\\') i++;
    }
    return 0;
}

/* The same of a list or a map, by counting brackets. */
static size_t nest_len(struct str s) {
    size_t depth = 0;
    for (size_t i = 0; i < s.len; i++) {
        const char c = s.ptr[i];
        if (c == '"') {
            const size_t len = text_len(str_skip(s, i));
            if (len == 0) return 0;
            i += len - 1;
        } else if (c == '[' || c == '{') {
            depth++;
        } else if ((c == ']' || c == '}') && --depth == 0) {
            return i + 1;
        }
    }
    return 0;
}

/* The length of the value at the beginning of `s`; 0: there is none, or it does not end. */
static size_t value_len(struct str s) {
    if (s.len == 0) return 0;
    if (s.ptr[0] == '"') return text_len(s);
    if (s.ptr[0] == '[' || s.ptr[0] == '{') return nest_len(s);
    size_t len = 0;
    while (len < s.len && !strchr(",]}: \t\r\n", s.ptr[len])) len++;
    return len;
}

/* ---- the frame: everything but the requests ---- */

static enum status refuse_text(struct str text, struct str at, struct api_error *e) {
    return api_refuse(e, 400, NULL, "invalid_json",
                      "The body is not a JSON object: it is malformed at byte %zu of %zu.",
                      text.len - at.len, text.len);
}

/* Find the value of `requests`; empty: there is none. */
static enum status find_requests(struct str text, struct str *out, struct api_error *e) {
    struct str rest = skip_blanks(text);
    *out = STR("");
    if (!str_starts(rest, STR("{"))) return refuse_text(text, rest, e);
    rest = skip_blanks(str_skip(rest, 1));
    while (rest.len && rest.ptr[0] == '"') {
        struct str key = str_take(rest, text_len(rest));
        rest = skip_blanks(str_skip(rest, key.len));
        if (key.len == 0 || !str_starts(rest, STR(":"))) return refuse_text(text, rest, e);
        rest = skip_blanks(str_skip(rest, 1));
        struct str value = str_take(rest, value_len(rest));
        if (value.len == 0) return refuse_text(text, rest, e);
        if (str_is(key, "\"requests\"")) *out = value;
        rest = skip_blanks(str_skip(rest, value.len));
        if (!str_starts(rest, STR(","))) break;
        rest = skip_blanks(str_skip(rest, 1));
    }
    return str_starts(rest, STR("}")) ? ST_OK : refuse_text(text, rest, e);
}

/* Parse the body without what the list of requests holds. */
static enum status check_frame(struct str text, struct str list, struct api_error *e) {
    struct json *doc = NULL;
    struct err err = {0};
    struct buf frame;
    const size_t before = (size_t)(list.ptr - text.ptr);
    buf_init(&frame, text.len + 2);
    buf_put_str(&frame, str_take(text, before));
    buf_put_text(&frame, "[]");
    buf_put_str(&frame, str_skip(text, before + list.len));
    enum status st = buf_status(&frame);
    if (st == ST_OK && json_parse(buf_str(&frame), &frame_limits, &doc, &err) != ST_OK)
        st = api_refuse(e, 400, NULL, "invalid_json", "The body without its requests: %s.",
                        err.text);
    json_destroy(doc);
    buf_deinit(&frame);
    return st;
}

enum status message_batch_init(struct message_batch *b, struct str text, struct api_error *e) {
    struct str list;
    *b = (struct message_batch){.ids = map64_create(1024), .prefixes = map64_create(64)};
    buf_init(&b->body, BODY_BYTES_MAX);
    if (!b->ids || !b->prefixes) return ST_NOMEM;
    TRY(find_requests(text, &list, e));
    if (list.len == 0) return api_refuse_missing(e, "requests");
    if (list.ptr[0] != '[')
        return api_refuse(e, 400, "requests", "invalid_type",
                          "Invalid type for 'requests': expected an array.");
    TRY(check_frame(text, list, e));
    b->rest = skip_blanks((struct str){list.ptr + 1, list.len - 2});
    if (b->rest.len == 0)
        return api_refuse(e, 400, "requests", "array_below_min_length",
                          "Invalid 'requests': the array is empty; expected 1 to %d requests.",
                          MESSAGE_BATCH_REQUESTS_MAX);
    return ST_OK;
}

void message_batch_deinit(struct message_batch *b) {
    map64_destroy(b->ids);
    map64_destroy(b->prefixes);
    json_destroy(b->doc);
    buf_deinit(&b->body);
}

/* ---- requests ---- */

static bool is_id(struct str id) {
    if (id.len < 1 || id.len > MESSAGE_BATCH_ID_MAX) return false;
    for (size_t i = 0; i < id.len; i++) {
        const char c = id.ptr[i];
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_letter && !(c >= '0' && c <= '9') && c != '_' && c != '-') return false;
    }
    return true;
}

static enum status read_id(struct message_batch *b, struct str *out, struct api_error *e) {
    const struct json *v = json_get(b->doc, "custom_id");
    char param[API_PARAM_BYTES];
    uint64_t first;
    snprintf(param, sizeof(param), "requests[%u].custom_id", b->count);
    *out = json_str(v);
    if (!v) return api_refuse_missing(e, "%s", param);
    if (!is_id(*out))
        return api_refuse(e, 400, param, "invalid_value",
                          "Invalid '%s': expected a string of 1 to %d letters, digits, _ and -.",
                          param, MESSAGE_BATCH_ID_MAX);
    if (map64_find(b->ids, batch_id_hash(*out), &first))
        return api_refuse(e, 400, param, "invalid_value",
                          "Invalid '%s': '%.*s' is already the custom_id of requests[%llu].", param,
                          STR_ARG(*out), (unsigned long long)first);
    return map64_put(b->ids, batch_id_hash(*out), b->count);
}

static enum status read_params(struct message_batch *b, struct str *out, struct api_error *e) {
    const struct json *v = json_get(b->doc, "params");
    if (!v) return api_refuse_missing(e, "requests[%u].params", b->count);
    if (json_kind(v) != JS_MAP)
        return api_refuse_kind(e, v, FIELD_MAP, "requests[%u].params", b->count);
    if (json_bool(json_get(v, "stream"), false))
        return api_refuse_unsupported(e, "A request of a batch cannot stream",
                                      "requests[%u].params.stream", b->count);
    buf_clear(&b->body);
    json_put(v, &b->body);
    *out = buf_str(&b->body);
    return buf_status(&b->body);
}

/* Cut the next request out of the list and parse it. */
static enum status parse_next(struct message_batch *b, struct api_error *e) {
    struct err err = {0};
    struct str text = str_take(b->rest, value_len(b->rest));
    json_destroy(b->doc);
    b->doc = NULL;
    if (text.len == 0) err_set(&err, ST_BAD, "JSON: a value is missing");
    if (text.len == 0 || json_parse(text, &json_limits_request, &b->doc, &err) != ST_OK)
        return api_refuse(e, 400, NULL, "invalid_json", "requests[%u]: %s.", b->count, err.text);
    if (json_kind(b->doc) != JS_MAP)
        return api_refuse_kind(e, b->doc, FIELD_MAP, "requests[%u]", b->count);
    struct str rest = skip_blanks(str_skip(b->rest, text.len));
    if (rest.len && rest.ptr[0] != ',')
        return api_refuse(e, 400, NULL, "invalid_json",
                          "requests[%u]: JSON: expected a comma or the end of the array after it.",
                          b->count);
    b->rest = skip_blanks(str_skip(rest, rest.len > 0));
    if (rest.len && b->rest.len == 0)
        return api_refuse(e, 400, NULL, "invalid_json",
                          "requests[%u]: JSON: a comma without a value after it.", b->count);
    return ST_OK;
}

enum status message_batch_next(struct message_batch *b, struct batch_line *out,
                               struct api_error *e) {
    if (b->rest.len == 0) return ST_MISSING;
    if (b->count == MESSAGE_BATCH_REQUESTS_MAX)
        return api_refuse(e, 400, "requests", "array_above_max_length",
                          "Invalid 'requests': more than %d requests, the maximum.",
                          MESSAGE_BATCH_REQUESTS_MAX);
    *out = (struct batch_line){.number = b->count, .url = STR("/v1/messages")};
    TRY(parse_next(b, e));
    TRY(read_id(b, &out->custom_id, e));
    TRY(read_params(b, &out->body, e));
    const uint64_t prefix = batch_prefix_of(json_get(b->doc, "params"));
    if (!map64_find(b->prefixes, prefix, &out->order)) {
        out->order = b->count;
        TRY(map64_put(b->prefixes, prefix, b->count));
    }
    b->count++;
    return ST_OK;
}

/* ---- objects ---- */

/* RFC 3339, or null. */
static void put_time(const char *key, int64_t wall_s, struct buf *out) {
    buf_printf(out, ",\"%s\":", key);
    if (wall_s)
        ollama_time_put(wall_s, out);
    else
        buf_put_text(out, "null");
}

static int64_t ended_s(const struct batch_row *row) {
    switch (row->state) {
    case BATCH_COMPLETED:
        return row->completed_s;
    case BATCH_FAILED:
        return row->failed_s;
    case BATCH_EXPIRED:
        return row->expired_s;
    case BATCH_CANCELLED:
        return row->cancelled_s;
    default:
        return 0;
    }
}

static bool has_ended(const struct batch_row *row) {
    return row->state == BATCH_COMPLETED || row->state == BATCH_FAILED ||
           row->state == BATCH_EXPIRED || row->state == BATCH_CANCELLED;
}

static void put_counts(const struct batch_row *row, struct buf *out) {
    const bool is_over = has_ended(row);
    buf_printf(out,
               ",\"request_counts\":{\"processing\":%u,\"succeeded\":%u,\"errored\":%u,"
               "\"canceled\":%u,\"expired\":%u}",
               is_over ? 0 : row->total, is_over ? row->completed : 0, is_over ? row->failed : 0,
               is_over ? row->cancelled : 0, is_over ? row->expired : 0);
}

void message_batch_object_put(const struct batch_row *row, struct str origin, struct buf *out) {
    const bool is_over = has_ended(row);
    const char *status = is_over                          ? "ended"
                         : row->state == BATCH_CANCELLING ? "canceling"
                                                          : "in_progress";
    buf_put_text(out, "{\"id\":");
    buf_put_json_string(out, row->id);
    buf_printf(out, ",\"type\":\"message_batch\",\"processing_status\":\"%s\"", status);
    put_counts(row, out);
    put_time("created_at", row->created_s, out);
    put_time("expires_at", row->expires_s, out);
    put_time("ended_at", ended_s(row), out);
    put_time("cancel_initiated_at", row->cancelling_s, out);
    buf_put_text(out, ",\"archived_at\":null,\"results_url\":");
    if (is_over) {
        buf_put_char(out, '"');
        buf_put_json_inner(out, origin);
        buf_put_text(out, "/v1/messages/batches/");
        buf_put_json_inner(out, row->id);
        buf_put_text(out, "/results\"}");
    } else {
        buf_put_text(out, "null}");
    }
}

void message_batch_deleted_put(struct str id, struct buf *out) {
    buf_put_text(out, "{\"id\":");
    buf_put_json_string(out, id);
    buf_put_text(out, ",\"type\":\"message_batch_deleted\"}");
}

void message_batch_result_put(const struct line_row *row, struct buf *out) {
    const struct line_result *r = &row->result;
    buf_put_text(out, "{\"custom_id\":");
    buf_put_json_string(out, row->line.custom_id);
    buf_put_text(out, ",\"result\":{\"type\":");
    if (r->state == LINE_DONE && r->status < 400) {
        buf_put_text(out, "\"succeeded\",\"message\":");
        buf_put_str(out, r->body);
    } else if (r->state == LINE_DONE || r->state == LINE_FAILED) {
        buf_put_text(out, "\"errored\",\"error\":");
        buf_put_str(out, r->body);
    } else {
        buf_put_text(out, r->state == LINE_EXPIRED ? "\"expired\"" : "\"canceled\"");
    }
    buf_put_text(out, "}}\n");
}
