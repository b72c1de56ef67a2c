/* server/ride.c - see server/ride.h: birth, sinks, end, and who is live. */
#include "server/ride.h"

#include <stdio.h>
#include <string.h>

#include "api/teller.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "server/registry.h"
#include "server/ride_int.h"
#include "server/sink.h"
#include "server/smoother.h"

static const uint64_t LOG_BYTES_DEFAULT = 64u << 20;
static const uint64_t POOL_FROM_DEFAULT = 16u << 10;

const char *ride_stage_name(enum ride_stage s) {
    static const char *const names[] = {"queued", "queued", "in_progress", "completed"};
    return names[s];
}

enum status rides_create(const struct rides_options *options, struct rides **out, struct err *err) {
    struct rides *all = mem_zalloc(sizeof(*all));
    if (!all) return err_set(err, ST_NOMEM, "out of memory for requests");
    all->options = *options;
    if (!all->options.log_bytes) all->options.log_bytes = LOG_BYTES_DEFAULT;
    if (!all->options.pool_from_bytes) all->options.pool_from_bytes = POOL_FROM_DEFAULT;
    CHECK(uv_timer_init(options->loop, &all->keep_timer) == 0);
    CHECK(uv_timer_init(options->loop, &all->smooth_timer) == 0);
    all->keep_timer.data = all->smooth_timer.data = all;
    *out = all;
    return ST_OK;
}

void rides_close(struct rides *all) {
    CHECK(all->live == 0);
    all->is_closed = true;
    while (all->kept_first) {
        struct ride *r = all->kept_first;
        ride_unkeep(r);
        ride_settle(r);
    }
    uv_close((uv_handle_t *)&all->keep_timer, NULL);
    uv_close((uv_handle_t *)&all->smooth_timer, NULL);
}

void rides_destroy(struct rides *all) {
    if (!all) return;
    CHECK(!all->first);
    mem_free(all);
}

struct rides_stats rides_stats(const struct rides *all) {
    return (struct rides_stats){
        .live = all->live, .kept = all->kept, .kept_bytes = all->kept_bytes};
}

/* ---- birth and death ---- */

static enum status fill_ride(struct ride *r, const struct ride_ask *ask) {
    struct answer *a = &r->answer;
    TRY(event_log_create(&a->log, r->all->options.log_bytes));
    if (r->request.smooth_ms > 0)
        TRY(smoother_create(r->request.smooth_ms * 1000, r->all->options.log_bytes, &r->smoother));
    snprintf(a->id, sizeof(a->id), "%.*s", STR_ARG(ask->id));
    snprintf(r->request_id, sizeof(r->request_id), "%.*s", STR_ARG(ask->request_id));
    r->prompts.bytes_max = ask->model->prompt_bytes_max;
    a->request = &r->request;
    a->tokenizer = ask->model->tokenizer;
    a->model = str_of(ask->model->name);
    a->fingerprint = str_of(ask->model->fingerprint);
    a->created_s = clock_wall_s();
    a->arrived_us = ask->arrived_us;
    return ST_OK;
}

static uint32_t prompts_of(const struct api_request *q) { return q->is_chat ? 1 : q->prompt_count; }

static enum status make_choice(struct ride *r, uint32_t i) {
    struct err err = {0};
    bool has_tools = r->request.tools.len > 0 && r->request.tool_choice != TOOLS_NONE;
    struct teller_options options = {.request = &r->request,
                                     .tokenizer = r->model->tokenizer,
                                     .choice = i,
                                     .tools = has_tools ? r->model->tools : NULL};
    r->choices[i].is_over = true; /* until the engine has it */
    r->answer.choices[i].prompt = i / r->request.n;
    return teller_create(&options, &r->choices[i].teller, &err);
}

static enum status make_choices(struct ride *r) {
    uint32_t prompts = prompts_of(&r->request), count = r->request.n * prompts;
    /* Ollama's clients ask for nothing to see whether a model is there. What looks at the first
     * choice finds an empty one then. */
    r->parts = mem_zalloc_array(prompts + 1, sizeof(r->parts[0]));
    r->choices = mem_zalloc_array(count + 1, sizeof(r->choices[0]));
    r->answer.choices = mem_zalloc_array(count + 1, sizeof(r->answer.choices[0]));
    if (!r->parts || !r->choices || !r->answer.choices) return ST_NOMEM;
    r->answer.choice_count = count;
    for (uint32_t i = 0; i < count; i++) TRY(make_choice(r, i));
    return ST_OK;
}

static void free_parts(struct ride *r) {
    ride_release_parts(r);
    for (uint32_t i = 0; i < r->answer.choice_count; i++) teller_destroy(r->choices[i].teller);
    mem_free(r->choices);
    mem_free(r->answer.choices);
    smoother_destroy(r->smoother);
    event_log_destroy(r->answer.log);
    prompts_deinit(&r->prompts);
    api_request_deinit(&r->request);
    mem_free(r);
}

static void link_ride(struct ride *r) {
    struct rides *all = r->all;
    r->next = all->first;
    if (r->next) r->next->prev = r;
    all->first = r;
    all->all_count++;
    ride_list(r);
}

enum status ride_create(struct rides *all, const struct ride_ask *ask, struct ride **out) {
    struct ride *r = mem_zalloc(sizeof(*r));
    if (!r) {
        api_request_deinit(ask->request);
        return ST_NOMEM;
    }
    *r = (struct ride){.all = all,
                       .model = ask->model,
                       .key = ask->key,
                       .route = ask->route,
                       .request = *ask->request,
                       .body_bytes = ask->body_bytes};
    api_request_init(ask->request, r->request.codec);
    if (fill_ride(r, ask) != ST_OK || make_choices(r) != ST_OK) {
        free_parts(r);
        return ST_NOMEM;
    }
    link_ride(r);
    *out = r;
    return ST_OK;
}

static void unlink_ride(struct ride *r) {
    struct rides *all = r->all;
    if (r->prev)
        r->prev->next = r->next;
    else
        all->first = r->next;
    if (r->next) r->next->prev = r->prev;
    all->all_count--;
    ride_unlist(r);
}

void ride_destroy(struct ride *r) {
    CHECK(!r->sinks && !r->work && !r->is_kept && !r->is_smoothing);
    CHECK(r->open_choices == 0);
    CHECK(r->counted == 0);
    unlink_ride(r);
    if (r->poll) encoder_deinit(r->poll);
    mem_free(r->poll);
    free_parts(r);
}

/* ---- going and ending ---- */

void ride_attach(struct ride *r, struct sink *s) {
    s->ride = r;
    s->prev = NULL;
    s->next = r->sinks;
    if (s->next) s->next->prev = s;
    r->sinks = s;
}

void ride_go(struct ride *r) {
    CHECK(r->stage == RIDE_NEW && !r->has_gone);
    r->has_gone = true;
    r->all->live++;
    r->counted = r->answer.choice_count;
    r->model->live_choices += r->counted;
    r->stage = RIDE_PREPARING;
    ride_prepare(r);
    ride_settle(r);
}

static void end_ride(struct ride *r) {
    struct rides *all = r->all;
    r->has_ended = true;
    r->stage = RIDE_DONE;
    r->model->live_choices -= r->counted;
    r->counted = 0;
    if (all->options.on_ended) all->options.on_ended(all->options.ctx, r);
    all->live--;
    bool may_stay = all->options.keep_ms > 0 && !all->is_closed && !r->is_abandoned;
    /* One that is larger than the room for all of them must not push the others out. */
    if (r->is_findable && may_stay && ride_weight(r) <= all->options.keep_bytes)
        ride_keep(r);
    else
        r->is_findable = false;
}

/* Nobody is left to tell. */
static void abandon(struct ride *r) {
    struct api_error e = {0};
    api_refuse(&e, 499, NULL, "request_cancelled", "the client has gone away");
    r->is_abandoned = true;
    ride_fail(r, &e);
}

void ride_settle(struct ride *r) {
    struct rides *all = r->all;
    if (r->is_busy) return;
    bool is_done = answer_is_done(&r->answer);
    if (r->has_gone && !is_done && !r->sinks && !r->survives) {
        abandon(r); /* settles */
        return;
    }
    if (r->has_gone && (!is_done || r->work || r->open_choices > 0)) return;
    if (r->has_gone && !r->has_ended) end_ride(r);
    if (!r->sinks && !r->is_kept) ride_destroy(r);
    if (all->live == 0 && all->options.on_empty) all->options.on_empty(all->options.ctx);
}

void ride_detach(struct ride *r, struct sink *s) {
    ride_over(r, s);
    ride_settle(r);
}

void ride_join(struct ride *r, struct sink *s) {
    ride_attach(r, s);
    s->has_begun = true;
    r->is_busy = true;
    bool is_over = s->kind->begin(s) || s->kind->advance(s);
    r->is_busy = false;
    if (is_over) ride_over(r, s);
    ride_settle(r);
}

void ride_forget(struct ride *r) {
    r->is_findable = false;
    if (r->is_kept) ride_unkeep(r);
    ride_settle(r);
}

void ride_wake(struct ride *r, struct sink *s) {
    CHECK(s->has_begun);
    bool was_busy = r->is_busy;
    r->is_busy = true;
    bool is_over = s->kind->advance(s);
    r->is_busy = was_busy;
    if (is_over) ride_over(r, s);
    ride_settle(r);
}

void ride_fail(struct ride *r, const struct api_error *e) {
    if (answer_is_done(&r->answer)) return;
    r->answer.failure = *e;
    r->answer.finished_us = clock_now(&clock_real);
    for (uint32_t i = 0; i < r->answer.choice_count; i++) r->choices[i].is_told = true;
    ride_unsmooth(r);
    ride_cancel_parts(r);
    if (r->work) uv_cancel((uv_req_t *)r->work);
    ride_tell(r);
    ride_settle(r);
}

/* From `r` on, the first that is under way. */
static struct ride *first_going(struct ride *r) {
    while (r && (!r->has_gone || answer_is_done(&r->answer))) r = r->next;
    return r;
}

/* Failing one may free it and others that are only kept, never another that is under way. */
void rides_fail(struct rides *all, const struct api_error *e) {
    for (struct ride *r = first_going(all->first), *next; r; r = next) {
        next = first_going(r->next);
        ride_fail(r, e);
    }
}

static void verify_ride(const struct ride *r) {
    uint32_t open = 0;
    for (uint32_t i = 0; i < r->answer.choice_count; i++) open += !r->choices[i].is_over;
    CHECK(open == r->open_choices);
    CHECK(!r->has_ended || open == 0);
    CHECK(!r->is_kept || r->has_ended);
    CHECK(!r->has_ended || r->sinks || r->is_kept);
    for (const struct sink *s = r->sinks; s; s = s->next) CHECK(s->ride == r);
    CHECK(ride_find(r->all, r->key, str_of(r->answer.id)) == r);
}

void rides_verify(const struct rides *all) {
    uint32_t live = 0, kept = 0, count = 0;
    uint64_t bytes = 0;
    for (const struct ride *r = all->first; r; r = r->next) {
        verify_ride(r);
        live += r->has_gone && !r->has_ended;
        kept += r->is_kept;
        bytes += r->is_kept ? r->kept_bytes : 0;
        count++;
    }
    CHECK(live == all->live);
    CHECK(kept == all->kept);
    CHECK(bytes == all->kept_bytes);
    CHECK(count == all->all_count);
}
