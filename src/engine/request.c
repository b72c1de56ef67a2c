/* engine/request.c - see engine/request.h for the contract. */
#include "engine/request.h"

#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/grammars.h"

static enum status check_tokens(const char *name, const int32_t *tokens, uint32_t count,
                                uint32_t vocab, struct err *err) {
    for (uint32_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= vocab)
            return err_set(err, ST_BAD, "%s %u is %d, the model's vocabulary has 0 to %u", name, i,
                           tokens[i], vocab - 1);
    return ST_OK;
}

enum status request_check_prompt(uint64_t tokens, uint32_t ctx_tokens, bool is_minimum,
                                 struct err *err) {
    if (tokens == 0 && !is_minimum)
        return err_set(err, ST_BAD, "the prompt is empty; at least one token is required");
    if (tokens < ctx_tokens) return ST_OK;
    return err_set(err, ST_FULL,
                   "This model's maximum context length is %u tokens, the answer included, but the "
                   "prompt has %s%llu tokens",
                   ctx_tokens, is_minimum ? "at least " : "", (unsigned long long)tokens);
}

static enum status check_lengths(const struct request_spec *spec, uint32_t ctx, struct err *err) {
    if (request_check_prompt(spec->prompt_tokens, ctx, false, err) != ST_OK) return ST_BAD;
    TRY(sample_range_check(SAMPLE_AT_n, (double)spec->n, err));
    if (!spec->want_prompt_logprobs)
        TRY(sample_range_check(SAMPLE_AT_max_tokens, (double)spec->max_tokens, err));
    if (spec->min_tokens > spec->max_tokens)
        return err_set(err, ST_BAD, "min_tokens is %u and max_tokens %u, which is less",
                       spec->min_tokens, spec->max_tokens);
    if (spec->on_logits && (spec->n > 1 || spec->want_prompt_logprobs))
        return err_set(
            err, ST_BAD,
            "a request whose logits are wanted has n %u and prompt logprobs %s, expected "
            "n 1 and no prompt logprobs",
            spec->n, spec->want_prompt_logprobs ? "on" : "off");
    if (spec->stop_token_count > STOP_TOKENS_MAX)
        return err_set(err, ST_BAD, "there are %u stop tokens, at most %d are possible",
                       spec->stop_token_count, STOP_TOKENS_MAX);
    return ST_OK;
}

static enum status check_spec(const struct request_spec *spec, const struct request_bounds *bounds,
                              struct err *err) {
    TRY(check_lengths(spec, bounds->ctx_tokens, err));
    TRY(check_tokens("token", spec->prompt, spec->prompt_tokens, bounds->vocab, err));
    TRY(check_tokens("stop token", spec->stop_tokens, spec->stop_token_count, bounds->vocab, err));
    const struct sample_thinking *t = &spec->sample.thinking;
    if (t->has_budget)
        TRY(check_tokens("token at the end of thoughts", t->closing, t->closing_count,
                         bounds->vocab, err));
    return sample_params_check(&spec->sample, err);
}

static void free_choice(struct choice *c) {
    mem_free(c->tokens);
    mem_free(c->logprobs);
    mem_free(c->tops);
    mem_free(c->predicted);
    sampler_destroy(c->sampler);
    spec_seq_destroy(c->drafter);
}

static enum status make_room(struct choice *c, const struct request_spec *spec, uint32_t answer,
                             struct err *err) {
    /* Room for the longest answer. What is not written is not touched, so a page of it that no
     * token reaches costs nothing. */
    c->tokens = mem_alloc_array(c->total_max, sizeof(*c->tokens));
    bool has_room = c->tokens != NULL;
    if (spec->want_logprobs) {
        c->logprobs = mem_alloc_array(answer, sizeof(*c->logprobs));
        has_room = has_room && c->logprobs;
    }
    if (spec->want_logprobs && spec->sample.top_logprobs > 0) {
        c->tops = mem_alloc_array(answer, sizeof(*c->tops));
        has_room = has_room && c->tops;
    }
    if (c->request->follows_prediction) {
        c->predicted = mem_zalloc_array(answer / 8 + 1, sizeof(*c->predicted));
        has_room = has_room && c->predicted;
    }
    if (has_room) return ST_OK;
    return err_set(err, ST_NOMEM, "out of memory for a request of %u tokens", c->total_max);
}

static enum status make_sampler(struct choice *c, const struct request_spec *spec, uint32_t vocab,
                                struct err *err) {
    struct sample_bounds bounds = {.vocab = vocab, .tokens_max = c->total_max};
    struct sample_params sample = spec->sample;
    sample.seed += c->index;
    sample.no_logprobs = !spec->want_logprobs;
    sample.min_tokens = spec->min_tokens;
    sample.ends = c->request->ends;
    sample.end_count = c->request->end_count;
    if (c->request->grammar)
        answer_grammar_apply(c->request->grammar, c->request->forces_text, &sample);
    if (c->request->draft_max > 0) sample.rollback_max = c->request->draft_max + 1;
    TRY(sampler_create(&sample, &bounds, &c->sampler, err));
    for (uint32_t i = 0; i < spec->prompt_tokens; i++) sampler_accept(c->sampler, spec->prompt[i]);
    sampler_begin_answer(c->sampler);
    return ST_OK;
}

static enum status fill_choice(struct choice *c, const struct request_spec *spec,
                               const struct request_bounds *bounds, struct err *err) {
    uint32_t room = bounds->ctx_tokens - spec->prompt_tokens;
    uint32_t answer = spec->max_tokens < room ? spec->max_tokens : room;
    if (answer == 0) answer = 1; /* computing a prompt ends with a token, shown or not */
    c->prompt_tokens = spec->prompt_tokens;
    c->total_max = spec->prompt_tokens + answer;
    TRY(make_room(c, spec, answer, err));
    memcpy(c->tokens, spec->prompt, spec->prompt_tokens * sizeof(*c->tokens));
    TRY(make_sampler(c, spec, bounds->vocab, err));
    atomic_init(&c->ready, spec->prompt_tokens);
    atomic_init(&c->finish, FINISH_NONE);
    c->seq = SEQ_NONE;
    c->ended_by = -1;
    c->settling = (struct settle_job){.sampler = c->sampler, .request = c->request};
    return ST_OK;
}

static enum status make_prompt_room(struct request *r, const struct request_spec *spec,
                                    struct err *err) {
    if (!spec->want_prompt_logprobs) return ST_OK;
    uint32_t count = spec->prompt_tokens;
    r->is_prompt_only = spec->max_tokens == 0;
    r->prompt_logprobs = mem_zalloc_array(count, sizeof(*r->prompt_logprobs));
    bool has_room = r->prompt_logprobs != NULL;
    if (spec->sample.top_logprobs > 0) {
        r->prompt_tops = mem_zalloc_array(count, sizeof(*r->prompt_tops));
        has_room = has_room && r->prompt_tops;
    }
    if (has_room) return ST_OK;
    return err_set(err, ST_NOMEM, "out of memory for the logprobs of %u tokens", count);
}

/* The model's, unless they are to be ignored, and the request's own. */
static enum status fill_ends(struct request *r, const struct request_spec *spec,
                             const struct request_bounds *bounds, struct err *err) {
    uint32_t models = spec->ignore_end ? 0 : bounds->end_count, own = spec->stop_token_count;
    if (models + own == 0) return ST_OK;
    r->ends = mem_alloc_array(models + own, sizeof(*r->ends));
    if (!r->ends) return err_set(err, ST_NOMEM, "out of memory for a request");
    if (models > 0) memcpy(r->ends, bounds->ends, models * sizeof(*r->ends));
    if (own > 0) memcpy(r->ends + models, spec->stop_tokens, own * sizeof(*r->ends));
    r->end_count = models + own;
    return ST_OK;
}

bool request_ends_at(const struct request *r, int32_t token) {
    return runner_is_among(r->ends, r->end_count, token);
}

static enum status fill_request(struct request *r, const struct request_spec *spec,
                                const struct request_bounds *bounds, int64_t now_us,
                                struct err *err) {
    r->tenant = spec->tenant;
    r->has_share = spec->has_share;
    r->is_batch = spec->is_batch;
    r->urgency = spec->urgency;
    if (r->urgency.expires_us > 0) r->urgency.expires_us += now_us;
    r->ignore_end = spec->ignore_end;
    r->user = spec->user;
    r->on_logits = spec->on_logits;
    r->logits_ctx = spec->logits_ctx;
    r->grammar = spec->grammar;
    if (r->grammar) answer_grammar_ref(r->grammar);
    r->forces_text = spec->grammar && spec->forces_text && !spec->want_logprobs && !spec->on_logits;
    r->waits_for_token = spec->grammar || spec->sample.thinking.has_budget;
    bool may_draft = bounds->spec && !spec->on_logits && !r->forces_text && spec->max_tokens > 0;
    r->draft_max = may_draft ? spec_draft_max(bounds->spec, &spec->speculation) : 0;
    r->follows_prediction =
        r->draft_max > 0 && spec_follows_prediction(bounds->spec, &spec->speculation);
    TRY(fill_ends(r, spec, bounds, err));
    TRY(make_prompt_room(r, spec, err));
    for (uint32_t i = 0; i < r->n; i++) {
        r->choices[i] = (struct choice){.request = r, .index = i, .submitted_us = now_us};
        TRY(fill_choice(&r->choices[i], spec, bounds, err));
    }
    return ST_OK;
}

enum status request_create(const struct request_spec *spec, uint64_t id,
                           const struct request_bounds *bounds, int64_t now_us,
                           struct request **out, struct err *err) {
    TRY(check_spec(spec, bounds, err));
    struct request *r = mem_zalloc(sizeof(*r) + spec->n * sizeof(r->choices[0]));
    if (!r) return err_set(err, ST_NOMEM, "out of memory for a request");
    r->id = id;
    r->n = spec->n;
    atomic_init(&r->refs, 1);
    enum status st = fill_request(r, spec, bounds, now_us, err);
    if (st != ST_OK) {
        request_unref(r);
        return st;
    }
    *out = r;
    return ST_OK;
}

enum status request_create_drafters(struct request *r, const struct request_spec *spec,
                                    const struct request_bounds *bounds, struct err *err) {
    for (uint32_t i = 0; i < r->n && r->draft_max > 0; i++) {
        struct choice *c = &r->choices[i];
        const struct spec_text text = {.prompt = c->tokens,
                                       .prompt_tokens = c->prompt_tokens,
                                       .tokens_max = c->total_max,
                                       .salt = r->salt};
        TRY(spec_seq_create(bounds->spec, &spec->speculation, &text, &c->drafter, err));
    }
    return ST_OK;
}

void request_ref(struct request *r) {
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
}

/* acq_rel: the thread that frees sees everything that the other holders wrote. */
void request_unref(struct request *r) {
    if (!r) return;
    unsigned before = atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel);
    CHECK(before > 0);
    if (before > 1) return;
    for (uint32_t i = 0; i < r->n; i++) free_choice(&r->choices[i]);
    answer_grammar_unref(r->grammar);
    mem_free(r->ends);
    mem_free(r->prompt_logprobs);
    mem_free(r->prompt_tops);
    mem_free(r);
}

/* `finish` first: once it is set, `ready` is final. */
enum finish_reason choice_poll(const struct choice *c, uint32_t *ready) {
    enum finish_reason finish = (enum finish_reason)atomic_load(&c->finish);
    *ready = atomic_load_explicit(&c->ready, memory_order_acquire);
    return finish;
}

bool choice_was_predicted(const struct choice *c, uint32_t i) {
    if (!c->predicted) return false;
    return atomic_load_explicit(&c->predicted[i / 8], memory_order_relaxed) >> i % 8 & 1;
}
