/* api/fields_store.c - stores the values of a body in the request. */
#include <math.h>
#include <stdio.h>

#include "api/api_int.h"
#include "api/grammar_read.h"
#include "api/metadata.h"
#include "api/request.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/chat_prompt.h"

static const double BIAS_MAX = 100.0; /* OpenAI's */
enum { ANY_SEED = -1 };               /* vLLM's, llama.cpp's and Ollama's */

static enum status add_stop(struct api_request *r, const struct json *v, const char *param,
                            struct api_error *e) {
    struct str text = json_str(v);
    if (json_kind(v) != JS_TEXT) return api_refuse_kind(e, v, FIELD_TEXT, "%s", param);
    if (text.len == 0 || text.len > API_STOP_BYTES_MAX)
        return api_refuse(e, 400, param,
                          text.len ? "string_above_max_length" : "string_below_min_length",
                          "Invalid '%s': a stop string must have 1 to %d bytes; this one has %zu.",
                          param, API_STOP_BYTES_MAX, text.len);
    if (r->stop_count == API_STOPS_MAX)
        return api_refuse(e, 400, param, "array_above_max_length",
                          "Invalid '%s': more than %d stop strings.", param, API_STOPS_MAX);
    r->stops[r->stop_count++] = text;
    return ST_OK;
}

static enum status store_stops(struct api_request *r, const struct json *v, const char *param,
                               struct api_error *e) {
    r->stop_count = 0;
    if (json_kind(v) == JS_TEXT) return add_stop(r, v, param, e);
    for (size_t i = 0; i < json_count(v); i++) {
        char member[API_PARAM_BYTES];
        snprintf(member, sizeof(member), "%.60s[%zu]", param, i);
        TRY(add_stop(r, json_at(v, i), member, e));
    }
    return ST_OK;
}

static enum status store_ids(struct api_request *r, const struct json *v, const char *param,
                             struct api_error *e) {
    CHECK(json_count(v) <= API_STOP_TOKENS_MAX); /* by the row's max */
    for (size_t i = 0; i < json_count(v); i++) {
        const struct json *id = json_at(v, i);
        if (!field_is_int(id)) return api_refuse_kind(e, id, FIELD_INT, "%s[%zu]", param, i);
        if (field_int(id) < 0 || field_int(id) > INT32_MAX)
            return api_refuse(e, 400, param, "invalid_value",
                              "Invalid '%s': member %zu is not a token id.", param, i);
        r->stop_tokens[i] = (int32_t)field_int(id);
    }
    r->stop_token_count = (uint32_t)json_count(v);
    return ST_OK;
}

static enum status read_bias(const struct json_iter *it, const char *param, struct logit_bias *out,
                             struct api_error *e) {
    int64_t token;
    if (!str_to_i64(it->key, &token) || token < 0 || token > INT32_MAX)
        return api_refuse(e, 400, param, "invalid_value", "Invalid '%s': '%.*s' is not a token id.",
                          param, (int)(it->key.len > 32 ? 32 : it->key.len), it->key.ptr);
    if (json_kind(it->value) != JS_INT && json_kind(it->value) != JS_REAL)
        return api_refuse_kind(e, it->value, FIELD_REAL, "%s.%d", param, (int)token);
    double bias = json_num(it->value, 0);
    if (!(fabs(bias) <= BIAS_MAX))
        return api_refuse(e, 400, param, "invalid_value",
                          "Invalid '%s': the bias of token %d is %g; it must be from -100 to 100.",
                          param, (int)token, bias);
    *out = (struct logit_bias){.token = (int32_t)token, .bias = (float)bias};
    return ST_OK;
}

static enum status store_bias(struct api_request *r, const struct json *v, const char *param,
                              struct api_error *e) {
    CHECK(json_count(v) <= LOGIT_BIAS_MAX); /* by the row's max */
    mem_free(r->bias);
    r->bias = mem_alloc_array(json_count(v) + 1, sizeof(r->bias[0]));
    if (!r->bias) return ST_NOMEM;
    uint32_t count = 0;
    for (struct json_iter it = json_iter_first(v); json_iter_ok(&it); json_iter_next(&it))
        TRY(read_bias(&it, param, &r->bias[count++], e));
    r->sample.bias = r->bias;
    r->sample.bias_count = count;
    return ST_OK;
}

static enum status store_kwargs(struct api_request *r, const struct json *v, const char *param,
                                struct api_error *e) {
    for (struct json_iter it = json_iter_first(v); json_iter_ok(&it); json_iter_next(&it)) {
        if (chat_prompt_is_reserved(it.key))
            return api_refuse(e, 400, param, "invalid_value",
                              "Invalid '%s': '%.*s' is set by the server.", param, STR_ARG(it.key));
        TRY(api_request_set_kwarg(r, it.key, json_pin(it.value)));
    }
    return ST_OK;
}

static enum status store_drafter(struct api_speculation *s, const struct json *v) {
    CHECK(speculate_option_find(json_str(v), &s->choice)); /* by the row's words */
    s->is_chosen = true;
    return ST_OK;
}

/* Of a list, the rows of its parts add the texts. */
static enum status store_prediction(struct api_speculation *s, const struct json *v) {
    if (json_kind(v) != JS_TEXT) return ST_OK;
    if (s->prediction.max == 0) buf_init(&s->prediction, API_MADE_BYTES_MAX);
    buf_put_str(&s->prediction, json_str(v));
    return buf_status(&s->prediction) == ST_OK ? ST_OK : ST_NOMEM;
}

static enum status store_metadata(struct buf *out, const struct json *v, const char *param,
                                  struct api_error *e) {
    buf_deinit(out);
    buf_init(out, METADATA_BYTES_MAX);
    return metadata_read(v, param, out, e);
}

/* Milliseconds as microseconds; a time above 0 is at least 1. */
static int64_t us_of_ms(double ms) {
    int64_t us = (int64_t)(ms * 1000);
    return us == 0 && ms > 0 ? 1 : us;
}

static void store_number(const struct api_field *f, const struct json *v, void *at) {
    switch (f->store) {
    case STORE_U32:
        *(uint32_t *)at = (uint32_t)field_int(v);
        return;
    case STORE_LIMIT:
        if (field_int(v) > 0) *(uint32_t *)at = (uint32_t)field_int(v);
        return;
    case STORE_BUDGET:
        if (field_int(v) >= 0) *(uint32_t *)at = (uint32_t)field_int(v);
        return;
    case STORE_TOP_K:
        *(uint32_t *)at = field_int(v) < 0 ? 0 : (uint32_t)field_int(v);
        return;
    case STORE_I32:
        *(int32_t *)at = (int32_t)field_int(v);
        return;
    case STORE_NEGATED_I32:
        *(int32_t *)at = (int32_t)-field_int(v);
        return;
    case STORE_SEED:
        if (field_int(v) != ANY_SEED) *(uint64_t *)at = (uint64_t)field_int(v);
        return;
    case STORE_FLOAT:
        *(float *)at = (float)json_num(v, 0);
        return;
    case STORE_MS:
        *(int64_t *)at = (int64_t)json_num(v, 0);
        return;
    case STORE_MS_US:
        *(int64_t *)at = us_of_ms(json_num(v, 0));
        return;
    default:
        check_failed(__FILE__, __LINE__, "a row that does not store a number");
    }
}

/* Whether the value means "not given". */
static bool is_open(const struct api_field *f, const struct json *v) {
    if (f->store == STORE_LIMIT) return field_int(v) <= 0;
    if (f->store == STORE_BUDGET) return field_int(v) < 0;
    return f->store == STORE_SEED && field_int(v) == ANY_SEED;
}

enum status field_store(const struct api_field *f, const struct json *v, void *request,
                        const char *param, struct api_error *e) {
    void *at = (char *)request + f->offset;
    if (f->given && !is_open(f, v)) *(bool *)((char *)request + f->given) = true;
    switch (f->store) {
    case STORE_NONE:
        return ST_OK;
    case STORE_BOOL:
        *(bool *)at = json_bool(v, false);
        return ST_OK;
    case STORE_NOT_BOOL:
        *(bool *)at = !json_bool(v, false);
        return ST_OK;
    case STORE_REASONING_FORMAT:
        *(bool *)at = str_is(json_str(v), "none");
        return ST_OK;
    case STORE_TEXT:
        *(struct str *)at = json_str(v);
        return ST_OK;
    case STORE_STOPS:
        return store_stops(request, v, param, e);
    case STORE_IDS:
        return store_ids(request, v, param, e);
    case STORE_BIAS:
        return store_bias(request, v, param, e);
    case STORE_KWARGS:
        return store_kwargs(request, v, param, e);
    case STORE_DRAFTER:
        return store_drafter(at, v);
    case STORE_PREDICTION:
        return store_prediction(at, v);
    case STORE_METADATA:
        return store_metadata(at, v, param, e);
    case STORE_FORMAT:
    case STORE_SCHEMA:
    case STORE_JSON_OR_SCHEMA:
    case STORE_ANY_JSON:
    case STORE_REGEX:
    case STORE_CHOICE:
    case STORE_GBNF:
    case STORE_RULES:
        return grammar_store(f, v, request, param, e);
    default:
        store_number(f, v, at);
        return ST_OK;
    }
}
