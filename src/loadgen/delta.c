/* loadgen/delta.c - see loadgen/delta.h. */
#include "loadgen/delta.h"

#include "base/json.h"

static uint32_t count_of(const struct json *v) {
    int64_t n = json_int(v, 0);
    return n < 0 ? 0 : n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static void read_usage(const struct json *usage, struct delta *out) {
    if (json_kind(usage) != JS_MAP) return;
    out->has_usage = true;
    out->prompt_tokens = count_of(json_get(usage, "prompt_tokens"));
    out->output_tokens = count_of(json_get(usage, "completion_tokens"));
    out->cached_tokens = count_of(json_path(usage, "prompt_tokens_details.cached_tokens"));
}

/* `part` is a delta of a stream or a whole message. */
static bool says_something(const struct json *part) {
    return json_str(json_get(part, "content")).len > 0 ||
           json_str(json_get(part, "reasoning_content")).len > 0 ||
           json_str(json_get(part, "reasoning")).len > 0 ||
           json_count(json_get(part, "tool_calls")) > 0;
}

static void read_choice(const struct json *choice, struct delta *out) {
    if (json_kind(choice) != JS_MAP) return;
    out->has_choice = true;
    out->has_text = json_str(json_get(choice, "text")).len > 0 ||
                    says_something(json_get(choice, "delta")) ||
                    says_something(json_get(choice, "message"));
}

static enum status read_error(const struct json *error, struct err *err) {
    struct str message = json_str(json_get(error, "message"));
    if (json_kind(error) == JS_TEXT) message = json_str(error);
    if (message.len == 0) message = STR("an error without a message");
    return err_set(err, ST_UNAVAILABLE, "%.*s", STR_ARG(message));
}

enum status delta_read(struct str text, struct delta *out, struct err *err) {
    struct json *doc = NULL;
    enum status st = ST_OK;
    *out = (struct delta){0};
    TRY(json_parse(text, &json_limits_request, &doc, err));
    const struct json *error = json_get(doc, "error");
    if (json_kind(doc) != JS_MAP)
        st = err_set(err, ST_BAD, "no JSON object");
    else if (json_kind(error) == JS_MAP || json_kind(error) == JS_TEXT)
        st = read_error(error, err);
    read_choice(json_at(json_get(doc, "choices"), 0), out);
    read_usage(json_get(doc, "usage"), out);
    json_destroy(doc);
    return st;
}
