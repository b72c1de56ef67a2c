/* embed/submit.c - see embed/submit.h for the contract. */
#include "embed/submit.h"

#include <jitney.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "embed/struct_copy.h"
#include "embed/tickets.h"
#include "engine/grammars.h"
#include "engine/request.h"
#include "sample/random_seed.h"
#include "text/chat_prompt.h"

static const double TIME_MS_MAX = 1e12;

_Static_assert(sizeof(struct jitney_bias) == sizeof(struct logit_bias), "same layout");
_Static_assert(offsetof(struct jitney_bias, bias) == offsetof(struct logit_bias, bias),
               "same layout");

void jitney_request_init(struct jitney_request *request, size_t size) {
    const struct sample_params p = sample_params_default();
    const struct jitney_request full = {
        .size = size,
        .max_tokens = SAMPLE_MAX_TOKENS(SAMPLE_FALLBACK_OF),
        .n = SAMPLE_N(SAMPLE_FALLBACK_OF),
        .temperature = p.temperature,
        .top_p = p.top_p,
        .typical_p = p.typical_p,
        .repetition_penalty = p.repetition_penalty,
        .penalty_window = p.penalty_window,
        .seed = random_seed(),
    };
    struct_copy(request, size, &full, sizeof(full));
}

enum status submit_read(const struct jitney_request *in, struct jitney_request *out,
                        struct err *err) {
    if (in->size < offsetof(struct jitney_request, user) + sizeof(void *))
        return err_set(err, ST_BAD,
                       "the request has no size; it must begin as jitney_request_default() gives "
                       "it");
    *out = jitney_request_default();
    struct_copy(out, sizeof(*out), in, in->size);
    return ST_OK;
}

/* --- the prompt ------------------------------------------------------------------------- */

static enum status check_chat(const struct submit_model *m, struct err *err) {
    if (m->chat) return ST_OK;
    return err_set(err, ST_BAD,
                   "the model has no chat template, so it was not made for conversations; `text` "
                   "continues any text");
}

static enum status encode_message(const struct submit_model *m, const char *text,
                                  struct tokens *prompt, struct err *err) {
    TRY(check_chat(m, err));
    struct json *messages = json_list_create(), *message = json_map_create();
    enum status st = json_push(messages, message);
    if (st == ST_OK) st = json_set(message, STR("role"), json_text_create(STR("user")));
    if (st == ST_OK) st = json_set(message, STR("content"), json_text_create(str_of(text)));
    if (st == ST_OK)
        st = chat_prompt_encode(m->chat, messages, prompt, err);
    else
        err_set(err, st, "out of memory for the prompt");
    json_destroy(messages);
    return st;
}

static enum status encode_messages(const struct submit_model *m, const char *json,
                                   struct tokens *prompt, struct err *err) {
    TRY(check_chat(m, err));
    return chat_prompt_encode_json(m->chat, str_of(json), prompt, err);
}

static enum status encode_text(const struct submit_model *m, const char *text,
                               struct tokens *prompt, struct err *err) {
    const struct encode_options options = {.add_special = true};
    if (tokenizer_encode(m->tokenizer, str_of(text), options, prompt) == ST_OK) return ST_OK;
    return err_set(err, ST_NOMEM, "out of memory for the prompt");
}

static enum status copy_tokens(const struct jitney_request *in, struct tokens *prompt,
                               struct err *err) {
    enum status st = ST_OK;
    for (size_t i = 0; i < in->token_count && st == ST_OK; i++)
        st = tokens_push(prompt, in->tokens[i]);
    return st == ST_OK ? ST_OK : err_set(err, st, "out of memory for the prompt");
}

static enum status encode_prompt(const struct submit_model *m, const struct jitney_request *in,
                                 struct tokens *prompt, struct err *err) {
    int given = !!in->chat + !!in->chat_json + !!in->text + !!in->tokens;
    if (given != 1)
        return err_set(err, ST_BAD,
                       "the request has %d of chat, chat_json, text and tokens; it must have one",
                       given);
    if (in->chat) return encode_message(m, in->chat, prompt, err);
    if (in->chat_json) return encode_messages(m, in->chat_json, prompt, err);
    if (in->text) return encode_text(m, in->text, prompt, err);
    return copy_tokens(in, prompt, err);
}

/* --- the rest --------------------------------------------------------------------------- */

static enum status read_time(const char *name, double ms, int64_t *us, struct err *err) {
    if (!(ms >= 0 && ms <= TIME_MS_MAX))
        return err_set(err, ST_BAD, "%s is %g; it must be from 0 to %g", name, ms, TIME_MS_MAX);
    *us = (int64_t)(ms * 1000);
    if (*us == 0 && ms > 0) *us = 1; /* 0 means: no limit */
    return ST_OK;
}

static struct sample_params read_sampling(const struct jitney_request *in) {
    return (struct sample_params){
        .temperature = in->temperature,
        .top_k = in->top_k,
        .top_p = in->top_p,
        .min_p = in->min_p,
        .typical_p = in->typical_p,
        .repetition_penalty = in->repetition_penalty,
        .presence_penalty = in->presence_penalty,
        .frequency_penalty = in->frequency_penalty,
        .penalty_window = in->penalty_window,
        .seed = in->seed,
        .bias = (const struct logit_bias *)(const void *)in->bias,
        .bias_count = (uint32_t)in->bias_count,
        .top_logprobs = in->top_logprobs,
    };
}

/* May take as long as compiling a grammar may: engine/grammars.h. */
static enum status read_grammar(const struct submit_model *m, const struct jitney_request *in,
                                struct answer_grammar **out, struct err *err) {
    const char *text = in->schema ? in->schema : in->regex ? in->regex : in->grammar;
    struct grammar_source source = {
        .kind = GRAMMAR_SCHEMA, .text = str_of(text), .max_tokens = in->max_tokens};
    struct grammar_refusal why;
    int given = !!in->schema + !!in->regex + !!in->grammar;
    if (given == 0) return ST_OK;
    if (given > 1)
        return err_set(err, ST_BAD,
                       "the request has %d of schema, regex and grammar; it may have one", given);
    if (!m->grammars)
        return err_set(err, ST_BAD, "a model that pretends keeps to no schema or grammar");
    if (in->regex) source.kind = GRAMMAR_REGEX;
    if (in->grammar) source.kind = grammar_notation(source.text);
    enum status st = grammars_compile(m->grammars, &source, out, &why);
    if (st == ST_OK) return ST_OK;
    return err_set(err, st == ST_FULL ? ST_BAD : st, "the %s is refused%s%s: %s",
                   in->schema  ? "schema"
                   : in->regex ? "regular expression"
                               : "grammar",
                   why.path[0] ? " at " : "", why.path, why.err.text);
}

enum status submit_spec(const struct submit_model *m, const struct jitney_request *in,
                        struct tokens *prompt, struct request_spec *spec, struct err *err) {
    spec->grammar = NULL;
    if (in->bias_count > LOGIT_BIAS_MAX || (in->bias_count > 0 && !in->bias))
        return err_set(err, ST_BAD, "%zu logit biases; at most %d are possible", in->bias_count,
                       LOGIT_BIAS_MAX);
    if (in->top_logprobs > 0 && !in->logprobs)
        return err_set(err, ST_BAD, "top_logprobs is %u, but logprobs is off", in->top_logprobs);
    TRY(read_grammar(m, in, &spec->grammar, err));
    *spec = (struct request_spec){.max_tokens = in->max_tokens,
                                  .grammar = spec->grammar,
                                  .n = in->n,
                                  .sample = read_sampling(in),
                                  .ignore_end = in->ignore_end,
                                  .want_logprobs = in->logprobs,
                                  .tenant = in->tenant,
                                  .urgency = {.priority = in->priority}};
    struct urgency *u = &spec->urgency;
    TRY(read_time("ttft_target_ms", in->ttft_target_ms, &u->ttft_target_us, err));
    TRY(read_time("tpot_target_ms", in->tpot_target_ms, &u->tpot_target_us, err));
    TRY(read_time("expires_ms", in->expires_ms, &u->expires_us, err));
    TRY(encode_prompt(m, in, prompt, err));
    if (prompt->count > UINT32_MAX)
        return err_set(err, ST_BAD, "the prompt has %zu tokens", prompt->count);
    spec->prompt = prompt->ids;
    spec->prompt_tokens = (uint32_t)prompt->count;
    return ST_OK;
}

/* --- the ticket ------------------------------------------------------------------------- */

static enum status check_stop(const char *stop, uint32_t i, struct err *err) {
    if (i == JITNEY_STOPS_MAX)
        return err_set(err, ST_BAD, "there are more than %d stop strings", JITNEY_STOPS_MAX);
    size_t len = strlen(stop);
    if (len >= 1 && len <= STOP_STRING_BYTES_MAX) return ST_OK;
    return err_set(err, ST_BAD, "stop string %u has %zu bytes; it must have 1 to %d", i, len,
                   STOP_STRING_BYTES_MAX);
}

/* One allocation: the strings, then their bytes. */
static bool copy_stops(struct ticket *t, const char *const *stop, uint32_t count) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) bytes += strlen(stop[i]);
    if (count == 0) return true;
    t->stop_strings = mem_alloc(count * sizeof(*t->stop_strings) + bytes);
    if (!t->stop_strings) return false;
    char *at = (char *)(t->stop_strings + count);
    for (uint32_t i = 0; i < count; i++) {
        size_t len = strlen(stop[i]);
        memcpy(at, stop[i], len);
        t->stop_strings[i] = (struct str){at, len};
        at += len;
    }
    return true;
}

enum status submit_ticket(const struct submit_model *m, const struct jitney_request *in,
                          struct ticket **out, struct err *err) {
    uint32_t stop_count = 0;
    TRY(sample_range_check(SAMPLE_AT_n, (double)in->n, err));
    for (; in->stop && in->stop[stop_count]; stop_count++)
        TRY(check_stop(in->stop[stop_count], stop_count, err));
    struct ticket *t = ticket_create(in->n);
    if (!t || !copy_stops(t, in->stop, stop_count)) {
        ticket_destroy(t);
        return err_set(err, ST_NOMEM, "out of memory for a request");
    }
    t->user = in->user;
    t->top_count = in->top_logprobs;
    const struct text_output_options text = {.tokenizer = m->tokenizer,
                                             .stops = t->stop_strings,
                                             .stop_count = stop_count,
                                             .keep_special = in->keep_special,
                                             .ignore_end = in->ignore_end};
    for (uint32_t i = 0; i < in->n; i++) text_output_init(&t->choices[i].output, &text);
    *out = t;
    return ST_OK;
}
