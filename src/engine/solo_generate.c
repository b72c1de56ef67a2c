/* engine/solo_generate.c - one request, from prompt to its last token. */
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "engine/solo_int.h"
#include "engine/stops.h"
#include "model/model.h"
#include "text/tokenizer.h"

enum { TEXT_MAX = 1 << 20 };

struct generation {
    struct solo *e;
    const struct gen_request *req;
    gen_event_fn *fn;
    void *ctx;
    struct gen_usage *usage;
    struct sampler *sampler;
    struct row_output sampled; /* behind the last token */
    struct detok detok;
    struct stops stops;
    struct buf text, shown;
    uint32_t pos; /* tokens in the cache */
    struct err *err;
};

void solo_stop(struct solo *e) { atomic_store(&e->stopping, true); }

static bool is_stopped(const struct generation *g) { return atomic_load(&g->e->stopping); }

/* How many tokens at the front of the prompt are in the cache from before. The last one is
 * always computed: its logits are wanted. */
static uint32_t count_cached(const struct generation *g) {
    const struct solo *e = g->e;
    if (g->req->all_logits) return 0;
    uint32_t max = g->req->prompt_tokens - 1, same = 0;
    if (e->cached_count < max) max = e->cached_count;
    while (same < max && e->cached[same] == g->req->prompt[same]) same++;
    return same;
}

/* Compute `count` tokens at g->pos, sample behind the last one if `samples`, and remember that the
 * cache holds them. */
static enum status run_tokens(struct generation *g, const int32_t *ids, uint32_t count,
                              bool samples) {
    struct solo *e = g->e;
    struct device_result out;
    struct solo_tokens tokens = {.ids = ids,
                                 .count = count,
                                 .first_pos = g->pos,
                                 .hands_over = g->req->all_logits,
                                 .sampler = samples ? g->sampler : NULL};
    e->cached_count = g->pos; /* what follows is being overwritten */
    TRY(solo_run(e, &e->logits, &tokens, &out, g->err));
    memcpy(e->cached + g->pos, ids, count * sizeof(*ids));
    e->cached_count = g->pos + count;
    for (uint32_t r = 0; g->req->all_logits && r < count; r++)
        TRY(g->req->on_logits(g->req->logits_ctx, g->pos + r, 1, out.rows + r * out.row_floats));
    if (samples) g->sampled = out.outputs[out.output_count - 1];
    g->pos += count;
    return ST_OK;
}

static enum status run_prompt(struct generation *g) {
    const struct gen_request *req = g->req;
    int64_t start_us = clock_now(&clock_real);
    g->pos = count_cached(g);
    g->usage->cached_tokens = g->pos;
    while (g->pos < req->prompt_tokens && !is_stopped(g)) {
        uint32_t left = req->prompt_tokens - g->pos;
        uint32_t count = left < g->e->chunk_tokens ? left : g->e->chunk_tokens;
        bool samples = count == left && req->max_tokens > 0;
        TRY(run_tokens(g, req->prompt + g->pos, count, samples));
    }
    g->usage->prompt_us = clock_now(&clock_real) - start_us;
    return ST_OK;
}

/* Turn a token into the text that may be shown now; true if a stop string was met. */
static enum status add_text(struct generation *g, int32_t token, bool *met) {
    bool hide = !g->req->keep_special;
    buf_clear(&g->text);
    buf_clear(&g->shown);
    TRY(detok_push(&g->detok, g->e->host.tokenizer, token, hide, &g->text));
    TRY(buf_status(&g->text));
    *met = stops_push(&g->stops, buf_str(&g->text), &g->shown);
    return buf_status(&g->shown);
}

/* What detokenizer and stop strings held back, at an end that was not a stop string. */
static void flush_text(struct generation *g) {
    buf_clear(&g->text);
    detok_finish(&g->detok, &g->text);
    if (!stops_push(&g->stops, buf_str(&g->text), &g->shown)) stops_finish(&g->stops, &g->shown);
}

static enum finish_reason why_finished(struct generation *g, int32_t token, bool met_stop) {
    if (!g->req->ignore_end && tokenizer_is_end(g->e->host.tokenizer, token)) return FINISH_STOP;
    if (met_stop) return FINISH_STOP;
    if (g->usage->completion_tokens >= g->req->max_tokens) return FINISH_LENGTH;
    if (g->pos >= g->e->ctx_tokens) return FINISH_LENGTH;
    return is_stopped(g) ? FINISH_CANCELLED : FINISH_NONE;
}

/* Show the sampled token, and say whether that was the end. */
static enum status emit_token(struct generation *g, int32_t *token) {
    bool met_stop = false;
    if (g->sampled.failed) return ST_BAD;
    *token = g->sampled.sample.chosen.token;
    sampler_accept(g->sampler, *token);
    g->usage->completion_tokens++;
    bool is_end = !g->req->ignore_end && tokenizer_is_end(g->e->host.tokenizer, *token);
    buf_clear(&g->shown);
    if (!is_end || g->req->keep_special) TRY(add_text(g, *token, &met_stop));
    g->usage->finish = why_finished(g, *token, met_stop);
    if (g->usage->finish != FINISH_NONE && !met_stop) flush_text(g);
    struct gen_event event = {.token = *token,
                              .text = buf_str(&g->shown),
                              .sample = &g->sampled.sample,
                              .finish = g->usage->finish};
    if (!g->fn(g->ctx, &event) && g->usage->finish == FINISH_NONE)
        g->usage->finish = FINISH_CANCELLED;
    return ST_OK;
}

static enum status decode(struct generation *g) {
    int64_t start_us = clock_now(&clock_real);
    while (g->usage->finish == FINISH_NONE) {
        int32_t token;
        TRY(emit_token(g, &token));
        if (g->usage->finish == FINISH_NONE) TRY(run_tokens(g, &token, 1, true));
    }
    g->usage->decode_us = clock_now(&clock_real) - start_us;
    return ST_OK;
}

/* The answer ended without a token: stopped during the prompt, or none was asked for. */
static void emit_end(struct generation *g, enum finish_reason why) {
    g->usage->finish = why;
    struct gen_event event = {.token = -1, .text = STR(""), .finish = why};
    g->fn(g->ctx, &event);
}

static enum status make_sampler(struct generation *g, struct err *err) {
    struct sample_bounds bounds = {.vocab = g->e->host.model->hp.vocab,
                                   .tokens_max = g->e->ctx_tokens + 1};
    TRY(sampler_create(&g->req->sample, &bounds, &g->sampler, err));
    for (uint32_t i = 0; i < g->req->prompt_tokens; i++)
        sampler_accept(g->sampler, g->req->prompt[i]);
    sampler_begin_answer(g->sampler);
    return ST_OK;
}

static enum status run_request(struct generation *g, struct err *err) {
    TRY(make_sampler(g, err));
    TRY(run_prompt(g));
    if (g->pos < g->req->prompt_tokens) {
        emit_end(g, FINISH_CANCELLED);
        return ST_OK;
    }
    if (g->req->max_tokens == 0) {
        emit_end(g, FINISH_LENGTH);
        return ST_OK;
    }
    return decode(g);
}

enum status solo_generate(struct solo *e, const struct gen_request *req, gen_event_fn *fn,
                          void *ctx, struct gen_usage *usage, struct err *err) {
    if (model_is_encoder(e->host.model))
        return err_set(err, ST_BAD,
                       "this model is an encoder: it gives embeddings and cannot generate");
    TRY(solo_check_ids(e, req->prompt, req->prompt_tokens, err));
    TRY(sample_params_check(&req->sample, err));
    CHECK(req->stop_count <= STOP_STRINGS_MAX);
    CHECK(e->host.tokenizer);
    atomic_store(&e->stopping, false);
    *usage = (struct gen_usage){.prompt_tokens = req->prompt_tokens};
    struct generation g = {.e = e, .req = req, .fn = fn, .ctx = ctx, .usage = usage, .err = err};
    stops_init(&g.stops, req->stops, req->stop_count);
    buf_init(&g.text, TEXT_MAX);
    buf_init(&g.shown, TEXT_MAX);
    enum status st = run_request(&g, err);
    if (st == ST_BAD && err && !err->text[0])
        err_set(err, st,
                "no token is possible after %u of the answer: the model's logits are not numbers, "
                "or every token is forbidden by a bias",
                usage->completion_tokens);
    if (st != ST_OK && err && !err->text[0])
        err_set(err, st, "generating failed: %s", status_name(st));
    buf_deinit(&g.shown);
    buf_deinit(&g.text);
    stops_deinit(&g.stops);
    sampler_destroy(g.sampler);
    return st;
}
