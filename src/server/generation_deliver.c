/* server/generation_deliver.c - from the engine's tokens to events, and from events to sinks.
 *
 * The hot path: for every choice that has moved its tokens go through its teller into the log,
 * and its generation is put on a list; then every generation of the list tells its sinks once, so
 * that what
 * came together leaves together. Nothing is allocated for a token, and nobody is looked at who
 * has not moved.
 */
#include "api/teller.h"
#include "base/check.h"
#include "base/clock.h"
#include "server/registry.h"
#include "server/generation_int.h"
#include "server/sink.h"
#include "server/smoother.h"

enum {
    TAKE_MAX = 1024,     /* choices in one go, so that sockets get their turn */
    SMOOTH_TICK_MS = 10, /* how often smoothed texts move on */
};

void generation_over(struct generation *r, struct sink *s) {
    if (s->prev)
        s->prev->next = s->next;
    else
        r->sinks = s->next;
    if (s->next) s->next->prev = s->prev;
    s->kind->destroy(s);
}

/* True: the sink is over. */
static bool tell_sink(struct generation *r, struct sink *s) {
    if (!s->has_begun && r->answer.failure.status != 0) {
        s->kind->refuse(s, &r->answer.failure);
        return true;
    }
    if (r->stage < GENERATION_RUNNING) return false;
    if (!s->has_begun) {
        s->has_begun = true;
        if (s->kind->begin(s)) return true;
    }
    return s->kind->advance(s);
}

void generation_tell(struct generation *r) {
    bool was_busy = r->is_busy;
    r->is_busy = true;
    for (struct sink *s = r->sinks, *next; s; s = next) {
        next = s->next;
        if (tell_sink(r, s)) generation_over(r, s);
    }
    r->is_busy = was_busy;
}

/* ---- from tokens to events ---- */

static void note_finish(void *ctx, uint32_t choice, enum finish_reason finish) {
    struct generation *r = ctx;
    r->answer.choices[choice].finish = finish;
    r->answer.finished_count++;
    if (answer_is_done(&r->answer)) r->answer.finished_us = clock_now(&clock_real);
}

static struct event_log *log_of(struct generation *r) {
    return r->smoother ? smoother_stage(r->smoother) : r->answer.log;
}

static void fail_log(struct generation *r, enum status st) {
    struct api_error e = {0};
    api_refuse(&e, 500, NULL, NULL,
               st == ST_FULL ? "the answer is longer than this server keeps"
                             : "the server has no memory for the rest of the answer");
    generation_fail(r, &e);
}

static void finish_choice(struct generation *r, uint32_t i, enum finish_reason finish) {
    struct generation_choice *c = &r->choices[i];
    c->is_told = true;
    enum status st = teller_finish(c->teller, finish, log_of(r));
    r->answer.choices[i].has_tools = teller_has_tools(c->teller);
    if (st != ST_OK)
        fail_log(r, st);
    else if (!r->smoother)
        note_finish(r, i, finish);
}

/* What a reason that is none of the model's own means to a client. */
static void fail_choice(struct generation *r, const struct request *q, enum finish_reason finish) {
    struct api_error e = {0};
    if (finish == FINISH_EXPIRED)
        api_refuse(&e, 504, NULL, "deadline_exceeded", "the request did not end in its time");
    else if (finish == FINISH_CANCELLED)
        api_refuse(&e, 499, NULL, "request_cancelled", "the request was cancelled");
    else
        api_refuse(&e, finish == FINISH_REFUSED ? 400 : 500, NULL, NULL, "%s", q->refusal.text);
    generation_fail(r, &e);
}

static void push_tokens(struct generation *r, uint32_t i, const struct choice *c, uint32_t end) {
    struct generation_choice *mine = &r->choices[i];
    struct event_log *log = log_of(r);
    bool met = false;
    if (r->request.has_max_tokens && r->request.max_tokens == 0) return;
    for (uint32_t at = c->prompt_tokens + mine->taken; at < end && !met; at++) {
        mine->taken++;
        r->answer.choices[i].answer_tokens = mine->taken;
        enum status st = teller_push(mine->teller, &c->tokens[at], 1, log, &met);
        if (st != ST_OK) {
            fail_log(r, st);
            return;
        }
    }
    if (!met) return;
    engine_cancel_choice(r->model->engine, c->request, c->index, FINISH_STOP);
    finish_choice(r, i, FINISH_STOP);
}

static void count_tokens(struct generation *r, uint32_t i, uint32_t before, int64_t now_us) {
    struct generation_choice *mine = &r->choices[i];
    const struct generations_options *o = &r->all->options;
    if (mine->taken == before) return;
    if (r->answer.first_token_us == 0) r->answer.first_token_us = now_us;
    int64_t gap_us = mine->last_us ? now_us - mine->last_us : -1;
    mine->last_us = now_us;
    if (o->on_tokens) o->on_tokens(o->ctx, r, mine->taken - before, gap_us);
}

static bool is_natural(enum finish_reason f) { return f == FINISH_STOP || f == FINISH_LENGTH; }

static void end_choice(struct generation *r, uint32_t i, const struct choice *c,
                       enum finish_reason finish) {
    struct generation_choice *mine = &r->choices[i];
    mine->is_over = true;
    r->open_choices--;
    r->counted--;
    r->model->live_choices--;
    if (c->index == 0) r->answer.cached_tokens += c->cached_tokens;
    bool is_earlier = r->started_us == 0 || c->admitted_us < r->started_us;
    if (c->admitted_us > 0 && is_earlier) r->started_us = c->admitted_us;
    if (mine->is_told) return;
    bool is_empty = r->request.has_max_tokens && r->request.max_tokens == 0;
    if (is_natural(finish))
        finish_choice(r, i, is_empty ? FINISH_LENGTH : finish);
    else
        fail_choice(r, c->request, finish);
}

/* False: nothing has come of it. A choice may be posted once more after its end was seen; its
 * generation
 * is only kept then and may go at any time. */
static bool take_choice(struct generation_part *part, struct choice *c, int64_t now_us) {
    struct generation *r = part->generation;
    uint32_t i = part->first + c->index, ready;
    struct generation_choice *mine = &r->choices[i];
    if (mine->is_over) return false;
    enum finish_reason finish = choice_poll(c, &ready);
    uint32_t before = mine->taken;
    r->is_busy = true;
    if (!mine->is_told) push_tokens(r, i, c, ready);
    count_tokens(r, i, before, now_us);
    if (finish != FINISH_NONE) end_choice(r, i, c, finish);
    r->is_busy = false;
    return true;
}

/* ---- smoothing ---- */

void generation_unsmooth(struct generation *r) {
    if (!r->is_smoothing) return;
    struct generation **at = &r->all->smoothing;
    while (*at != r) at = &(*at)->smooth_next;
    *at = r->smooth_next;
    r->is_smoothing = false;
}

/* Move on what is due; for a generation that nobody hears that is everything. */
static void release(struct generation *r, int64_t now_us) {
    int64_t until_us = r->sinks ? now_us : INT64_MAX;
    enum status st = smoother_release(r->smoother, until_us, r->answer.log, note_finish, r);
    if (st == ST_OK && !smoother_is_empty(r->smoother)) return;
    generation_unsmooth(r);
    if (st != ST_OK) fail_log(r, st);
}

void generations_on_smooth(uv_timer_t *timer) {
    struct generations *all = timer->data;
    int64_t now_us = clock_now(&clock_real);
    for (struct generation *r = all->smoothing, *next; r; r = next) {
        next = r->smooth_next;
        r->is_busy = true;
        release(r, now_us);
        generation_tell(r);
        r->is_busy = false;
        generation_settle(r);
    }
    if (!all->smoothing) uv_timer_stop(&all->smooth_timer);
}

static void smooth(struct generation *r, int64_t now_us) {
    smoother_note(r->smoother, now_us);
    if (r->is_smoothing || smoother_is_empty(r->smoother)) return;
    r->is_smoothing = true;
    r->smooth_next = r->all->smoothing;
    r->all->smoothing = r;
    if (uv_is_active((uv_handle_t *)&r->all->smooth_timer)) return;
    uv_timer_start(&r->all->smooth_timer, generations_on_smooth, SMOOTH_TICK_MS, SMOOTH_TICK_MS);
}

/* ---- a wake-up ---- */

static void tell_dirty(struct generation *first, int64_t now_us) {
    for (struct generation *r = first, *next; r; r = next) {
        next = r->dirty_next;
        r->is_dirty = false;
        if (r->smoother && r->answer.failure.status == 0)
            smooth(r, now_us);
        else
            generation_tell(r);
        generation_settle(r);
    }
}

bool generations_on_moved(struct generations *all, struct served *m) {
    struct generation *dirty = NULL;
    int64_t now_us = clock_now(&clock_real);
    (void)all;
    uint32_t count = 0;
    for (struct choice *c; count < TAKE_MAX && (c = engine_next(m->engine, 0)); count++) {
        struct generation_part *part = c->request->user;
        if (part && take_choice(part, c, now_us) && !part->generation->is_dirty) {
            part->generation->is_dirty = true;
            part->generation->dirty_next = dirty;
            dirty = part->generation;
        }
        request_unref(c->request);
    }
    tell_dirty(dirty, now_us);
    return count == TAKE_MAX;
}
