/* engine/request_run.c - see engine/request_run.h for the contract. */
#include "engine/request_run.h"

#include <stdatomic.h>

#include "base/check.h"
#include "base/clock.h"
#include "engine/engine.h"

enum { TEXT_BYTES_MAX = 1 << 20 };

struct running {
    const struct request_run *run;
    struct request_usage *usage;
    struct request *request;
    struct text_output output;
    struct buf text;     /* of one event */
    uint32_t seen;       /* tokens, prompt included, that events have contained */
    bool is_prompt_only; /* the token that computing a prompt ends with is not shown */
    int64_t started_us, first_token_us;
    enum status status;
};

static void cancel(struct running *g, enum finish_reason why) {
    engine_cancel_choice(g->run->engine, g->request, 0, why);
    if (g->usage->finish == FINISH_NONE) g->usage->finish = why;
}

/* The event of the token at g->seen - 1, or of an end without a token. */
static void send_event(struct running *g, bool has_token) {
    const struct choice *c = &g->request->choices[0];
    struct token_event event = {.token = -1, .text = buf_str(&g->text), .finish = g->usage->finish};
    struct sample_result sample;
    if (has_token) {
        uint32_t i = g->seen - 1 - c->prompt_tokens;
        event.token = c->tokens[g->seen - 1];
        sample = (struct sample_result){.chosen.token = event.token};
        if (c->logprobs) sample.chosen = c->logprobs[i];
        if (c->tops) sample = c->tops[i];
        event.sample = &sample;
    }
    if (!g->run->on_event || g->run->on_event(g->run->ctx, &event)) return;
    if (event.finish == FINISH_NONE) cancel(g, FINISH_CANCELLED);
}

/* One more token: its text, and its event. `finish`: the engine's reason if it is the last. */
static void take_token(struct running *g, enum finish_reason finish) {
    int32_t token = g->request->choices[0].tokens[g->seen++];
    g->usage->completion_tokens++;
    buf_clear(&g->text);
    if (g->run->text) {
        if (text_output_push(&g->output, token, &g->text) && finish == FINISH_NONE)
            cancel(g, FINISH_STOP);
        if (finish != FINISH_NONE) finish = text_output_finish(&g->output, finish, &g->text);
        g->status = buf_status(&g->text);
    }
    if (finish != FINISH_NONE) g->usage->finish = finish;
    if (g->status == ST_OK) send_event(g, true);
}

/* The request has ended without a token for it: cancelled, or only the prompt was wanted. */
static void take_end(struct running *g, enum finish_reason finish) {
    buf_clear(&g->text);
    if (g->run->text) text_output_finish(&g->output, finish, &g->text);
    g->usage->finish = finish;
    g->status = buf_status(&g->text);
    if (g->status == ST_OK) send_event(g, false);
}

/* What the last step has published. True: the engine has finished with the request. */
static bool take_published(struct running *g) {
    const struct choice *c = &g->request->choices[0];
    uint32_t ready;
    enum finish_reason finish = choice_poll(c, &ready);
    if (ready > c->prompt_tokens && g->first_token_us == 0)
        g->first_token_us = clock_now(&clock_real);
    if (g->is_prompt_only) ready = c->prompt_tokens;
    while (g->seen < ready && g->usage->finish == FINISH_NONE && g->status == ST_OK)
        take_token(g, g->seen + 1 == ready ? finish : FINISH_NONE);
    if (finish == FINISH_NONE) return false;
    g->usage->cached_tokens = c->cached_tokens;
    g->usage->drafted = c->drafted;
    g->usage->accepted = c->accepted;
    bool has_failed = finish == FINISH_ERROR || finish == FINISH_REFUSED;
    if (g->is_prompt_only && !has_failed && finish != FINISH_CANCELLED) finish = FINISH_LENGTH;
    if (has_failed && g->usage->finish == FINISH_NONE)
        g->usage->finish = finish;
    else if (g->usage->finish == FINISH_NONE && g->status == ST_OK)
        take_end(g, finish);
    return true;
}

static void drop_notices(struct engine *e) {
    for (struct choice *c; (c = engine_next(e, 0));) request_unref(c->request);
}

static void step_to_end(struct running *g, enum status *step_status) {
    const _Atomic bool *is_cancelled = g->run->is_cancelled;
    bool has_ended = false, was_cancelled = false;
    while (!has_ended) {
        bool did_work;
        if (!was_cancelled && (g->status != ST_OK || (is_cancelled && atomic_load(is_cancelled)))) {
            was_cancelled = true;
            engine_cancel(g->run->engine, g->request);
        }
        enum status st = engine_step(g->run->engine, &did_work);
        if (st != ST_OK) *step_status = st;
        has_ended = take_published(g);
        drop_notices(g->run->engine);
    }
}

static void note_times(struct running *g) {
    int64_t end_us = clock_now(&clock_real);
    int64_t first_us = g->first_token_us ? g->first_token_us : end_us;
    g->usage->prompt_us = first_us - g->started_us;
    g->usage->decode_us = end_us - first_us;
}

/* Why the request failed; the sentence is the engine's. */
static enum status failure_of(const struct running *g, enum status step_status, struct err *err) {
    if (g->status != ST_OK) return err_set(err, g->status, "out of memory for the answer's text");
    bool has_failed = g->usage->finish == FINISH_ERROR || g->usage->finish == FINISH_REFUSED;
    if (!has_failed) return ST_OK;
    enum status st = step_status != ST_OK ? step_status : ST_BAD;
    return err_set(err, st, "%s", g->request->refusal.text);
}

enum status request_run(const struct request_run *run, struct request_usage *usage,
                        struct err *err) {
    struct request_spec spec = *run->spec;
    struct running g = {.run = run,
                        .usage = usage,
                        .seen = spec.prompt_tokens,
                        .is_prompt_only = spec.max_tokens == 0,
                        .started_us = clock_now(&clock_real)};
    CHECK(spec.n == 1);
    if (spec.max_tokens == 0) spec.max_tokens = 1; /* computing a prompt ends with a token */
    *usage = (struct request_usage){.prompt_tokens = spec.prompt_tokens};
    TRY(engine_submit(run->engine, &spec, &g.request, err));
    if (run->text) text_output_init(&g.output, run->text);
    buf_init(&g.text, TEXT_BYTES_MAX);
    enum status step_status = ST_OK;
    step_to_end(&g, &step_status);
    if (g.is_prompt_only && g.usage->finish == FINISH_ERROR && step_status == ST_OK) {
        g.usage->finish = FINISH_NONE; /* only the token that is not wanted has failed */
        take_end(&g, FINISH_LENGTH);
    }
    note_times(&g);
    enum status st = failure_of(&g, step_status, err);
    request_unref(g.request);
    buf_deinit(&g.text);
    if (run->text) text_output_deinit(&g.output);
    return st;
}
