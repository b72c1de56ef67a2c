/* server/generation_deliver.c - from the engine's tokens to events, and from events to sinks.
 *
 * The hot path: the new tokens of a choice become events in its generation's log, and the
 * generation is put on a list; then every generation of the list calls its sinks once, so that
 * tokens of one step are sent together. Nothing is allocated for a token, and only generations with
 * new tokens are looked at.
 */
#include <stdatomic.h>

#include "api/event_writer.h"
#include "base/check.h"
#include "base/clock.h"
#include "report/server_metrics.h"
#include "server/generations.h"
#include "server/registry.h"
#include "server/generation_int.h"
#include "server/sink.h"
#include "server/smoother.h"

enum {
    TAKE_MAX = 1024,     /* choices in one call, so that sockets are served in between */
    SMOOTH_TICK_MS = 10, /* how often smoothed text is released */
    LOG_STEP_BYTES = 16 << 10,
};

void generation_remove_sink(struct generation *gen, struct sink *s) {
    list_remove(&gen->sinks, &s->in_generation);
    s->kind->destroy(s);
}

static void advance_sink(struct generation *gen, struct sink *s) {
    bool is_over = s->kind->advance(s);
    s->has_begun = true;
    if (is_over) generation_remove_sink(gen, s);
}

static void deliver_to(struct generation *gen, struct sink *s) {
    if (!s->has_begun && gen->answer.failure.status != 0) {
        s->kind->refuse(s, &gen->answer.failure);
        generation_remove_sink(gen, s);
    } else if (gen->stage >= GENERATION_RUNNING) {
        advance_sink(gen, s);
    }
}

void generation_deliver(struct generation *gen) {
    bool was_busy = gen->is_busy;
    gen->is_busy = true;
    for (struct list_link *l = gen->sinks.first, *next; l; l = next) {
        next = l->next;
        deliver_to(gen, LIST_ITEM(l, struct sink, in_generation));
    }
    gen->is_busy = was_busy;
}

void generation_resume_sink(struct generation *gen, struct sink *s) {
    bool was_busy = gen->is_busy;
    gen->is_busy = true;
    advance_sink(gen, s);
    gen->is_busy = was_busy;
    generation_check_end(gen);
}

void generation_join_sink(struct generation *gen, struct sink *s) {
    s->generation = gen;
    list_push_first(&gen->sinks, &s->in_generation);
    generation_resume_sink(gen, s);
}

void generation_detach_sink(struct generation *gen, struct sink *s) {
    generation_remove_sink(gen, s);
    generation_check_end(gen);
}

/* ---- from tokens to events ---- */

static void note_finish(void *ctx, uint32_t choice, enum finish_reason finish) {
    struct generation *gen = ctx;
    gen->answer.choices[choice].finish = finish;
    gen->answer.finished_count++;
    if (answer_is_done(&gen->answer)) gen->answer.finished_us = clock_now(&clock_real);
}

static struct event_log *log_of(struct generation *gen) {
    return gen->smoother ? smoother_stage(gen->smoother) : gen->answer.log;
}

static void fail_log(struct generation *gen, enum status st) {
    struct api_error e = {0};
    api_refuse(&e, 500, NULL, NULL,
               st == ST_FULL ? "the answer is longer than the server's limit"
                             : "the server has no memory for the rest of the answer");
    generation_fail(gen, &e);
}

/* The log grows by a few bytes with each token; it is charged in larger steps. */
static void charge_log(struct generation *gen) {
    uint64_t log = event_log_bytes(gen->answer.log);
    if (log < gen->log_charged_at) return;
    gen->log_charged_at = log + LOG_STEP_BYTES;
    struct api_error e = {0};
    if (generation_grow(gen, LOG_STEP_BYTES, &e) != ST_OK) generation_fail(gen, &e);
}

static void finish_choice(struct generation *gen, uint32_t i, enum finish_reason finish) {
    struct generation_choice *c = &gen->choices[i];
    c->is_closed = true;
    enum status st = event_writer_finish(c->writer, &finish, log_of(gen));
    gen->answer.choices[i].has_tools = event_writer_calls(c->writer) > 0;
    gen->answer.choices[i].thought_tokens = event_writer_thought_tokens(c->writer);
    if (st != ST_OK)
        fail_log(gen, st);
    else if (!gen->smoother)
        note_finish(gen, i, finish);
}

/* The error of a finish reason other than stop and length. */
static void fail_choice(struct generation *gen, const struct request *q,
                        enum finish_reason finish) {
    struct api_error e = {0};
    if (finish == FINISH_EXPIRED)
        api_refuse(&e, 504, NULL, "deadline_exceeded", "the request exceeded its deadline");
    else if (finish == FINISH_CANCELLED)
        api_refuse(&e, 499, NULL, "request_cancelled", "the request was cancelled");
    else if (finish == FINISH_ERROR && q->grammar_failure != ST_OK)
        generation_refuse_grammar(gen, q, &e);
    else if (finish == FINISH_ERROR && q->is_step_failed && gen->is_durable)
        api_refuse(&e, 500, NULL, "engine_lost", "%s", q->refusal.text); /* it is left open */
    else
        api_refuse(&e, finish == FINISH_REFUSED ? 400 : 500, NULL, NULL, "%s", q->refusal.text);
    generation_fail(gen, &e);
}

static bool is_empty(const struct generation *gen) {
    return gen->request.has_max_tokens && gen->request.max_tokens == 0;
}

/* A draft that was equal to its sample but is behind the end of the answer counts as rejected. */
static void count_predicted(struct answer_choice *a, const struct choice *c, uint32_t from) {
    if (!c->predicted) return;
    for (uint32_t i = from; i < a->answer_tokens; i++)
        a->predicted_tokens += choice_was_predicted(c, i);
    a->rejected_tokens =
        atomic_load_explicit(&c->drafted, memory_order_relaxed) - a->predicted_tokens;
}

/* With the first token of the choice that has the prompt, or at an end without any: an answer that
 * is done does not change, because it may be read by other threads. */
static void count_cached(struct generation *gen, uint32_t i, const struct choice *c) {
    struct generation_choice *mine = &gen->choices[i];
    if (c->index > 0 || mine->is_cached_counted || answer_is_done(&gen->answer)) return;
    mine->is_cached_counted = true;
    gen->answer.cached_tokens += atomic_load_explicit(&c->cached_tokens, memory_order_relaxed);
}

static void push_tokens(struct generation *gen, uint32_t i, const struct choice *c, uint32_t end) {
    struct generation_choice *mine = &gen->choices[i];
    struct event_log *log = log_of(gen);
    uint32_t before = mine->taken;
    bool met = false;
    if (is_empty(gen)) return;
    if (c->prompt_tokens + mine->taken < end) count_cached(gen, i, c);
    for (uint32_t at = c->prompt_tokens + mine->taken; at < end && !met; at++) {
        mine->taken++;
        gen->answer.choices[i].answer_tokens = mine->taken;
        enum status st = event_writer_push(mine->writer, &c->tokens[at], 1, log, &met);
        gen->answer.choices[i].thought_tokens = event_writer_thought_tokens(mine->writer);
        if (st != ST_OK) {
            fail_log(gen, st);
            return;
        }
    }
    count_predicted(&gen->answer.choices[i], c, before);
    if (!met) return;
    engine_cancel_choice(gen->model->engine, c->request, c->index, FINISH_STOP);
    finish_choice(gen, i, FINISH_STOP);
}

static void count_tokens(struct generation *gen, uint32_t i, uint32_t before, int64_t now_us) {
    struct generation_choice *mine = &gen->choices[i];
    struct server_metrics *metrics = gen->all->options.metrics;
    if (mine->taken == before) return;
    /* Read again: `now_us` may be older than the token, which the engine posted meanwhile. */
    if (gen->answer.first_token_us == 0) gen->answer.first_token_us = clock_now(&clock_real);
    int64_t gap_us = mine->last_us && !gen->is_batch ? now_us - mine->last_us : -1;
    mine->last_us = now_us;
    if (metrics)
        server_metrics_tokens(metrics, gen->model->metrics_idx, mine->taken - before, gap_us);
}

static bool is_natural(enum finish_reason f) { return f == FINISH_STOP || f == FINISH_LENGTH; }

/* Event numbers of a durable answer must not depend on when tokens arrive: its choices take turns,
 * one token each. */
static bool takes_turns(const struct generation *gen) {
    return gen->is_durable && gen->answer.choice_count > 1;
}

/* The token or the end of the choice whose turn it is. False: it has not been generated. */
static bool take_turn(struct generation *gen, uint32_t i, int64_t now_us) {
    struct generation_choice *mine = &gen->choices[i];
    const struct choice *c = &gen->parts[i / gen->request.n].request->choices[i % gen->request.n];
    uint32_t ready, before = mine->taken;
    enum finish_reason finish = choice_poll(c, &ready);
    uint32_t at = c->prompt_tokens + mine->taken;
    if (at < ready && !is_empty(gen)) {
        push_tokens(gen, i, c, at + 1);
        count_tokens(gen, i, before, now_us);
        return true;
    }
    if (!is_natural(finish)) return false;
    finish_choice(gen, i, is_empty(gen) ? FINISH_LENGTH : finish);
    return true;
}

static void push_in_turn(struct generation *gen, int64_t now_us) {
    for (uint32_t closed = 0; closed < gen->answer.choice_count && gen->answer.failure.status == 0;
         gen->turn = (gen->turn + 1) % gen->answer.choice_count) {
        bool is_closed = gen->choices[gen->turn].is_closed;
        if (!is_closed && !take_turn(gen, gen->turn, now_us)) return;
        closed = is_closed ? closed + 1 : 0;
    }
}

static void end_choice(struct generation *gen, uint32_t i, const struct choice *c,
                       enum finish_reason finish) {
    struct generation_choice *mine = &gen->choices[i];
    mine->is_finished = true;
    gen->open_choices--;
    if (gen->counted > 0) {
        gen->counted--;
        gen->model->live_choices--;
    }
    count_cached(gen, i, c);
    bool is_earlier = gen->started_us == 0 || c->admitted_us < gen->started_us;
    if (c->admitted_us > 0 && is_earlier) gen->started_us = c->admitted_us;
    if (mine->is_closed) return;
    if (!is_natural(finish))
        fail_choice(gen, c->request, finish);
    else if (!takes_turns(gen))
        finish_choice(gen, i, is_empty(gen) ? FINISH_LENGTH : finish);
}

/* False: it had ended before. The engine may post a choice once more after its end was taken; its
 * generation is only kept then and may be freed at any time. */
static bool take_choice(struct generation_part *part, struct choice *c, int64_t now_us) {
    struct generation *gen = part->generation;
    uint32_t i = part->first + c->index, ready;
    struct generation_choice *mine = &gen->choices[i];
    if (mine->is_finished) return false;
    enum finish_reason finish = choice_poll(c, &ready);
    uint32_t before = mine->taken;
    gen->is_busy = true;
    if (takes_turns(gen)) {
        push_in_turn(gen, now_us);
    } else {
        if (!mine->is_closed) push_tokens(gen, i, c, ready);
        count_tokens(gen, i, before, now_us);
    }
    if (!mine->is_closed) charge_log(gen);
    if (finish != FINISH_NONE) end_choice(gen, i, c, finish);
    gen->is_busy = false;
    return true;
}

/* ---- smoothing ---- */

void generation_stop_smoothing(struct generation *gen) {
    struct list *list = &gen->all->smoothing;
    if (list_has(list, &gen->in_smoothing)) list_remove(list, &gen->in_smoothing);
}

/* Release the text that is due; all of it if the generation has no sink. */
static void release(struct generation *gen, int64_t now_us) {
    int64_t until_us = gen->sinks.first ? now_us : INT64_MAX;
    enum status st = smoother_release(gen->smoother, until_us, gen->answer.log, note_finish, gen);
    if (st == ST_OK && !smoother_is_empty(gen->smoother)) return;
    generation_stop_smoothing(gen);
    if (st != ST_OK) fail_log(gen, st);
}

void generations_on_smooth(uv_timer_t *timer) {
    struct generations *all = timer->data;
    int64_t now_us = clock_now(&clock_real);
    for (struct list_link *l = all->smoothing.first, *next; l; l = next) {
        struct generation *gen = LIST_ITEM(l, struct generation, in_smoothing);
        next = l->next;
        gen->is_busy = true;
        release(gen, now_us);
        generation_deliver(gen);
        gen->is_busy = false;
        generation_check_end(gen);
    }
    if (!all->smoothing.first) uv_timer_stop(&all->smooth_timer);
}

static void smooth(struct generation *gen, int64_t now_us) {
    struct generations *all = gen->all;
    smoother_note(gen->smoother, now_us);
    if (list_has(&all->smoothing, &gen->in_smoothing) || smoother_is_empty(gen->smoother)) return;
    list_push_first(&all->smoothing, &gen->in_smoothing);
    if (uv_is_active((uv_handle_t *)&all->smooth_timer)) return;
    uv_timer_start(&all->smooth_timer, generations_on_smooth, SMOOTH_TICK_MS, SMOOTH_TICK_MS);
}

/* ---- engine output ---- */

static void deliver_all(struct list *dirty, int64_t now_us) {
    for (struct list_link *l; (l = list_pop_first(dirty));) {
        struct generation *gen = LIST_ITEM(l, struct generation, in_dirty);
        if (gen->smoother && gen->answer.failure.status == 0)
            smooth(gen, now_us);
        else
            generation_deliver(gen);
        generation_check_end(gen);
    }
}

void generations_on_output(uv_async_t *handle) {
    struct served_model *m = handle->data;
    struct list dirty = {0}; /* generations with new tokens */
    int64_t now_us = clock_now(&clock_real);
    uint32_t count = 0;
    for (struct choice *c; count < TAKE_MAX && (c = engine_next(m->engine, 0)); count++) {
        struct generation_part *part = c->request->user;
        struct generation *gen = part ? part->generation : NULL;
        if (gen && take_choice(part, c, now_us) && !list_has(&dirty, &gen->in_dirty))
            list_push_first(&dirty, &gen->in_dirty);
        request_unref(c->request);
    }
    deliver_all(&dirty, now_us);
    if (count == TAKE_MAX) uv_async_send(handle); /* continue after the sockets were served */
}
