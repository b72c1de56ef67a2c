/* api/openai.c - see api/openai.h for the contract. */
#include "api/openai.h"

#include "api/codec.h"
#include "base/json.h"
#include "text/tokenizer.h"

static const float LOGPROB_MIN = -9999.0f; /* what OpenAI writes for a probability of 0 */
enum { TOKEN_BYTES_MAX = 1 << 16 };

/* --- requests --------------------------------------------------------------------------- */

enum status openai_check(const struct json *body, struct api_request *r, struct api_error *e) {
    r->sample.top_logprobs = r->top_logprobs;
    r->many_tool_calls = json_bool(json_get(body, "parallel_tool_calls"), false);
    if (r->top_logprobs > 0 && !r->logprobs)
        return api_refuse(e, 400, "top_logprobs", NULL,
                          "'top_logprobs' is only possible where 'logprobs' is true.");
    if (json_kind(json_get(body, "stream_options")) == JS_MAP && !r->stream)
        return api_refuse(e, 400, "stream_options", NULL,
                          "'stream_options' is only possible where 'stream' is true.");
    if (r->has_max_tokens && r->min_tokens > r->max_tokens)
        return api_refuse(e, 400, "min_tokens", "invalid_value",
                          "'min_tokens' is %u, more than the %u tokens that the answer may have.",
                          r->min_tokens, r->max_tokens);
    if (r->continue_final && json_bool(json_get(body, "add_generation_prompt"), false))
        return api_refuse(e, 400, "continue_final_message", NULL,
                          "'continue_final_message' and 'add_generation_prompt' exclude each "
                          "other.");
    return ST_OK;
}

enum status openai_read_effort(const struct json *effort, struct api_request *r) {
    if (json_kind(effort) != JS_TEXT) return ST_OK;
    TRY(api_request_set_kwarg(r, STR("reasoning_effort"), json_pin(effort)));
    bool is_off = str_is(json_str(effort), "none");
    if (!is_off || json_get(r->template_kwargs, "enable_thinking")) return ST_OK;
    return api_request_set_kwarg(r, STR("enable_thinking"), json_bool_create(false));
}

/* --- answers ---------------------------------------------------------------------------- */

const char *openai_finish(enum finish_reason finish, uint32_t calls) {
    switch (finish) {
    case FINISH_LENGTH:
    case FINISH_EXPIRED: /* cut off by a limit */
        return "length";
    default:
        return calls ? "tool_calls" : "stop";
    }
}

void openai_open_answer(const struct answer *a, const char *object, struct buf *out) {
    PUT(out, "{\"id\":\"");
    buf_put_text(out, a->request->codec->id_prefix);
    buf_put_json_inner(out, str_of(a->id));
    PUT(out, "\",\"object\":\"");
    buf_put_text(out, object);
    PUT(out, "\",\"created\":");
    buf_put_uint(out, (uint64_t)a->created_s);
    PUT(out, ",\"model\":");
    buf_put_json_string(out, a->model);
    PUT(out, ",\"system_fingerprint\":");
    buf_put_json_string(out, a->fingerprint);
    PUT(out, ",\"choices\":[");
}

void openai_end_stream(struct encoder *e, struct str head) {
    const struct answer *a = e->answer;
    struct buf *out = &e->scratch;
    buf_clear(out);
    if (a->failure.status) {
        api_error_put_openai(&a->failure, STR(""), out);
        encoder_put(e, STR(""), buf_str(out));
    } else if (a->request->include_usage) {
        buf_put_str(out, head);
        PUT(out, "],\"usage\":");
        openai_put_usage(a, out);
        PUT(out, "}");
        encoder_put(e, STR(""), buf_str(out));
    }
    encoder_put(e, STR(""), str_of(OPENAI_END_MARK));
}

/* The object stays open. */
static void open_usage(uint64_t prompt, uint64_t completion, struct buf *out) {
    PUT(out, "{\"prompt_tokens\":");
    buf_put_uint(out, prompt);
    PUT(out, ",\"completion_tokens\":");
    buf_put_uint(out, completion);
    PUT(out, ",\"total_tokens\":");
    buf_put_uint(out, prompt + completion);
}

void openai_put_chunk_usage(const struct answer *a, const struct api_event *ev, struct buf *out) {
    if (a->request->usage_in_chunks) {
        PUT(out, ",\"usage\":");
        open_usage(a->choices[ev->choice].tokens->prompt_tokens, ev->first_token + ev->token_count,
                   out);
        PUT(out, "}");
    } else if (a->request->include_usage) {
        PUT(out, ",\"usage\":null");
    }
}

void openai_put_usage(const struct answer *a, struct buf *out) {
    open_usage(a->prompt_tokens, answer_completion_tokens(a), out);
    PUT(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    buf_put_uint(out, a->cached_tokens);
    PUT(out, ",\"audio_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":");
    buf_put_uint(out, answer_thought_tokens(a));
    PUT(out, ",\"audio_tokens\":0,\"accepted_prediction_tokens\":");
    buf_put_uint(out, answer_predicted_tokens(a));
    PUT(out, ",\"rejected_prediction_tokens\":");
    buf_put_uint(out, answer_rejected_tokens(a));
    PUT(out, "}}");
}

void openai_put_logprob(float logprob, struct buf *out) {
    if (!(logprob >= LOGPROB_MIN)) logprob = LOGPROB_MIN; /* NaN, too */
    if (logprob >= 0) logprob = 0;                        /* never "-0" */
    buf_printf(out, "%.9g", (double)logprob);
}

static void put_bytes(struct str bytes, struct buf *out) {
    buf_put_char(out, '[');
    for (size_t i = 0; i < bytes.len; i++) {
        if (i) buf_put_char(out, ',');
        buf_put_uint(out, (uint8_t)bytes.ptr[i]);
    }
    buf_put_char(out, ']');
}

/* Only memory can be missing; then `out` gets that status. */
static void token_bytes(const struct answer *a, int32_t token, struct buf *bytes, struct buf *out) {
    buf_init(bytes, TOKEN_BYTES_MAX);
    enum status st = tokenizer_token_bytes(a->tokenizer, token, bytes);
    if (st != ST_OK && out->status == ST_OK) out->status = st;
}

void openai_put_token(const struct answer *a, int32_t token, struct buf *out) {
    struct buf bytes;
    token_bytes(a, token, &bytes, out);
    buf_put_json_string(out, buf_str(&bytes));
    buf_deinit(&bytes);
}

/* {"token":..,"logprob":..,"bytes":[..] and no closing bracket. */
static void open_entry(const struct answer *a, struct token_logprob t, struct buf *out) {
    struct buf bytes;
    token_bytes(a, t.token, &bytes, out);
    PUT(out, "{\"token\":");
    buf_put_json_string(out, buf_str(&bytes));
    PUT(out, ",\"logprob\":");
    openai_put_logprob(t.logprob, out);
    PUT(out, ",\"bytes\":");
    put_bytes(buf_str(&bytes), out);
    buf_deinit(&bytes);
}

void openai_put_logprobs(const struct answer *a, uint32_t choice, uint32_t first, uint32_t count,
                         struct buf *out) {
    for (uint32_t i = first; i < first + count; i++) {
        const struct sample_result *tops = answer_tops(a, choice, i);
        if (i > first) buf_put_char(out, ',');
        open_entry(a, answer_token(a, choice, i), out);
        PUT(out, ",\"top_logprobs\":[");
        for (uint32_t k = 0; tops && k < tops->top_count; k++) {
            if (k) buf_put_char(out, ',');
            open_entry(a, tops->top[k], out);
            buf_put_char(out, '}');
        }
        PUT(out, "]}");
    }
}

void openai_put_ids(const int32_t *ids, uint32_t count, struct buf *out) {
    buf_put_char(out, '[');
    for (uint32_t i = 0; i < count; i++) {
        if (i) buf_put_char(out, ',');
        buf_put_uint(out, (uint64_t)ids[i]);
    }
    buf_put_char(out, ']');
}

void openai_put_answer_ids(const struct answer *a, uint32_t choice, uint32_t first, uint32_t count,
                           struct buf *out) {
    const struct choice *c = a->choices[choice].tokens;
    openai_put_ids(c->tokens + c->prompt_tokens + first, count, out);
}
