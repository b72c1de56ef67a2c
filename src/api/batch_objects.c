/* api/batch_objects.c - see api/batch_objects.h for the contract. */
#include "api/batch_objects.h"

#include "api/fields.h"
#include "api/file_objects.h"
#include "api/metadata.h"
#include "base/json.h"
#include "jobs/batches.h"

enum { ID_BYTES_MAX = 256 };

const char *const batch_endpoints[] = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings",
                                       "/v1/responses", NULL};

/* ---- reading ---- */

/* A member that must be a text of 1 to ID_BYTES_MAX bytes. */
static enum status read_text(const struct json *body, const char *key, struct str *out,
                             struct api_error *e) {
    const struct json *v = json_get(body, key);
    if (json_kind(v) == JS_NONE || json_kind(v) == JS_NULL) return api_refuse_missing(e, "%s", key);
    if (json_kind(v) != JS_TEXT) return api_refuse_kind(e, v, FIELD_TEXT, "%s", key);
    *out = json_str(v);
    if (out->len >= 1 && out->len <= ID_BYTES_MAX) return ST_OK;
    return api_refuse(e, 400, key, "invalid_value",
                      "Invalid '%s': the string is %zu bytes long; expected 1 to %d.", key,
                      out->len, ID_BYTES_MAX);
}

static enum status check_endpoint(struct str endpoint, struct api_error *e) {
    for (const char *const *known = batch_endpoints; *known; known++)
        if (str_is(endpoint, *known)) return ST_OK;
    return api_refuse(e, 400, "endpoint", "invalid_value",
                      "Invalid 'endpoint': '%.*s' is not supported; supported: "
                      "/v1/chat/completions, /v1/completions, /v1/embeddings, /v1/responses.",
                      STR_ARG(endpoint));
}

static int64_t unit_s(char unit) {
    switch (unit) {
    case 's':
        return 1;
    case 'm':
        return 60;
    case 'h':
        return 3600;
    case 'd':
        return 86400;
    default:
        return 0;
    }
}

static enum status read_window(struct str window, int64_t *out, struct api_error *e) {
    const int64_t unit = unit_s(window.ptr[window.len - 1]);
    uint64_t count;
    if (unit && str_to_u64(str_take(window, window.len - 1), &count) &&
        count >= BATCH_WINDOW_MIN_S && count <= (uint64_t)(BATCH_WINDOW_MAX_S / unit)) {
        *out = (int64_t)count * unit;
        return ST_OK;
    }
    return api_refuse(e, 400, "completion_window", "invalid_value",
                      "Invalid 'completion_window': '%.*s'; expected 24h, or another number with "
                      "s, m, h or d, at most 30d.",
                      (int)(window.len > 32 ? 32 : window.len), window.ptr);
}

/* {"anchor":"created_at","seconds":3600} */
static enum status read_output_expiry(const struct json *v, int64_t *out, struct api_error *e) {
    const struct json *anchor = json_get(v, "anchor"), *seconds = json_get(v, "seconds");
    if (json_kind(v) == JS_NONE || json_kind(v) == JS_NULL) return ST_OK;
    if (json_kind(v) != JS_MAP) return api_refuse_kind(e, v, FIELD_MAP, "output_expires_after");
    if (!anchor) return api_refuse_missing(e, "output_expires_after.anchor");
    if (!seconds) return api_refuse_missing(e, "output_expires_after.seconds");
    if (!str_is(json_str(anchor), "created_at"))
        return api_refuse(e, 400, "output_expires_after.anchor", "invalid_value",
                          "Invalid 'output_expires_after.anchor'; supported: created_at.");
    *out = json_int(seconds, 0);
    if (*out >= EXPIRES_AFTER_MIN_S && *out <= EXPIRES_AFTER_MAX_S) return ST_OK;
    return api_refuse(e, 400, "output_expires_after.seconds", "invalid_value",
                      "Invalid 'output_expires_after.seconds'; expected a whole number from %d to "
                      "%d.",
                      EXPIRES_AFTER_MIN_S, EXPIRES_AFTER_MAX_S);
}

enum status batch_create_read(const struct json *body, struct batch_create *out,
                              struct api_error *e) {
    *out = (struct batch_create){0};
    buf_init(&out->metadata, METADATA_BYTES_MAX);
    if (json_kind(body) != JS_MAP) return api_refuse_kind(e, body, FIELD_MAP, "body");
    TRY(read_text(body, "input_file_id", &out->input_file, e));
    TRY(read_text(body, "endpoint", &out->endpoint, e));
    TRY(check_endpoint(out->endpoint, e));
    TRY(read_text(body, "completion_window", &out->window, e));
    TRY(read_window(out->window, &out->window_s, e));
    TRY(read_output_expiry(json_get(body, "output_expires_after"), &out->output_after_s, e));
    return metadata_read(json_get(body, "metadata"), "metadata", &out->metadata, e);
}

void batch_create_deinit(struct batch_create *c) { buf_deinit(&c->metadata); }

/* ---- writing ---- */

static const char *const states[] = {
    [BATCH_VALIDATING] = "validating",   [BATCH_FAILED] = "failed",
    [BATCH_IN_PROGRESS] = "in_progress", [BATCH_FINALIZING] = "finalizing",
    [BATCH_COMPLETED] = "completed",     [BATCH_EXPIRED] = "expired",
    [BATCH_CANCELLING] = "cancelling",   [BATCH_CANCELLED] = "cancelled",
};

static void put_text(const char *key, struct str text, struct buf *out) {
    buf_printf(out, ",\"%s\":", key);
    if (text.len)
        buf_put_json_string(out, text);
    else
        buf_put_text(out, "null");
}

static void put_time(const char *key, int64_t wall_s, struct buf *out) {
    buf_printf(out, ",\"%s\":", key);
    if (wall_s)
        buf_printf(out, "%lld", (long long)wall_s);
    else
        buf_put_text(out, "null");
}

static void put_errors(struct str errors, struct buf *out) {
    buf_put_text(out, ",\"errors\":");
    if (errors.len == 0) {
        buf_put_text(out, "null");
        return;
    }
    buf_put_text(out, "{\"object\":\"list\",\"data\":");
    buf_put_str(out, errors);
    buf_put_char(out, '}');
}

static void put_counts(const struct batch_row *row, struct buf *out) {
    buf_printf(out, ",\"request_counts\":{\"total\":%u,\"completed\":%u,\"failed\":%u}", row->total,
               row->completed, row->failed);
    const unsigned long long prompt = row->prompt_tokens, answer = row->answer_tokens;
    buf_printf(out,
               ",\"usage\":{\"input_tokens\":%llu,\"input_tokens_details\":{\"cached_tokens\":%llu}"
               ",\"output_tokens\":%llu,\"output_tokens_details\":{\"reasoning_tokens\":0},"
               "\"total_tokens\":%llu}",
               prompt, (unsigned long long)row->cached_tokens, answer, prompt + answer);
}

void batch_object_put(const struct batch_row *row, struct buf *out) {
    buf_put_text(out, "{\"id\":");
    buf_put_json_string(out, row->id);
    buf_put_text(out, ",\"object\":\"batch\"");
    put_text("endpoint", row->endpoint, out);
    put_text("model", row->model, out);
    put_errors(row->errors, out);
    put_text("input_file_id", row->input_file, out);
    put_text("completion_window", row->window, out);
    buf_printf(out, ",\"status\":\"%s\"", states[row->state]);
    put_text("output_file_id", row->output_file, out);
    put_text("error_file_id", row->error_file, out);
    buf_printf(out, ",\"created_at\":%lld", (long long)row->created_s);
    put_time("in_progress_at", row->in_progress_s, out);
    put_time("expires_at", row->expires_s, out);
    put_time("finalizing_at", row->finalizing_s, out);
    put_time("completed_at", row->completed_s, out);
    put_time("failed_at", row->failed_s, out);
    put_time("expired_at", row->expired_s, out);
    put_time("cancelling_at", row->cancelling_s, out);
    put_time("cancelled_at", row->cancelled_s, out);
    put_counts(row, out);
    metadata_put(row->metadata, "null", out);
    buf_put_char(out, '}');
}
