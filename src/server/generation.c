/* server/generation.c - see server/generation.h: birth, sinks, end, and who is live. */
#include "server/generation.h"

#include <stdio.h>
#include <string.h>

#include "api/teller.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "server/registry.h"
#include "server/generation_int.h"
#include "server/sink.h"
#include "server/smoother.h"

static const uint64_t LOG_BYTES_DEFAULT = 64u << 20;
static const uint64_t POOL_FROM_DEFAULT = 16u << 10;

const char *generation_stage_name(enum generation_stage s) {
    static const char *const names[] = {"queued", "queued", "in_progress", "completed"};
    return names[s];
}

enum status generations_create(const struct generations_options *options, struct generations **out,
                               struct err *err) {
    struct generations *all = mem_zalloc(sizeof(*all));
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

void generations_close(struct generations *all) {
    CHECK(all->live == 0);
    all->is_closed = true;
    while (all->kept_first) {
        struct generation *r = all->kept_first;
        generation_unkeep(r);
        generation_settle(r);
    }
    uv_close((uv_handle_t *)&all->keep_timer, NULL);
    uv_close((uv_handle_t *)&all->smooth_timer, NULL);
}

void generations_destroy(struct generations *all) {
    if (!all) return;
    CHECK(!all->first);
    mem_free(all);
}

struct generations_stats generations_stats(const struct generations *all) {
    return (struct generations_stats){
        .live = all->live, .kept = all->kept, .kept_bytes = all->kept_bytes};
}

/* ---- birth and death ---- */

static enum status fill_generation(struct generation *r, const struct generation_ask *ask) {
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

static enum status make_choice(struct generation *r, uint32_t i) {
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

static enum status make_choices(struct generation *r) {
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

static void free_parts(struct generation *r) {
    generation_release_parts(r);
    for (uint32_t i = 0; i < r->answer.choice_count; i++) teller_destroy(r->choices[i].teller);
    mem_free(r->choices);
    mem_free(r->answer.choices);
    smoother_destroy(r->smoother);
    event_log_destroy(r->answer.log);
    prompts_deinit(&r->prompts);
    api_request_deinit(&r->request);
    mem_free(r);
}

static void link_generation(struct generation *r) {
    struct generations *all = r->all;
    r->next = all->first;
    if (r->next) r->next->prev = r;
    all->first = r;
    all->all_count++;
    generation_list(r);
}

enum status generation_create(struct generations *all, const struct generation_ask *ask,
                              struct generation **out) {
    struct generation *r = mem_zalloc(sizeof(*r));
    if (!r) {
        api_request_deinit(ask->request);
        return ST_NOMEM;
    }
    *r = (struct generation){.all = all,
                             .model = ask->model,
                             .key = ask->key,
                             .route = ask->route,
                             .request = *ask->request,
                             .body_bytes = ask->body_bytes};
    api_request_init(ask->request, r->request.codec);
    if (fill_generation(r, ask) != ST_OK || make_choices(r) != ST_OK) {
        free_parts(r);
        return ST_NOMEM;
    }
    link_generation(r);
    *out = r;
    return ST_OK;
}

static void unlink_generation(struct generation *r) {
    struct generations *all = r->all;
    if (r->prev)
        r->prev->next = r->next;
    else
        all->first = r->next;
    if (r->next) r->next->prev = r->prev;
    all->all_count--;
    generation_unlist(r);
}

void generation_destroy(struct generation *r) {
    CHECK(!r->sinks && !r->work && !r->is_kept && !r->is_smoothing);
    CHECK(r->open_choices == 0);
    CHECK(r->counted == 0);
    unlink_generation(r);
    if (r->poll) encoder_deinit(r->poll);
    mem_free(r->poll);
    free_parts(r);
}

/* ---- going and ending ---- */

void generation_attach(struct generation *r, struct sink *s) {
    s->generation = r;
    s->prev = NULL;
    s->next = r->sinks;
    if (s->next) s->next->prev = s;
    r->sinks = s;
}

void generation_go(struct generation *r) {
    CHECK(r->stage == GENERATION_NEW && !r->has_gone);
    r->has_gone = true;
    r->all->live++;
    r->counted = r->answer.choice_count;
    r->model->live_choices += r->counted;
    r->stage = GENERATION_PREPARING;
    generation_prepare(r);
    generation_settle(r);
}

static void end_generation(struct generation *r) {
    struct generations *all = r->all;
    r->has_ended = true;
    r->stage = GENERATION_DONE;
    r->model->live_choices -= r->counted;
    r->counted = 0;
    if (all->options.on_ended) all->options.on_ended(all->options.ctx, r);
    all->live--;
    bool may_stay = all->options.keep_ms > 0 && !all->is_closed && !r->is_abandoned;
    /* One that is larger than the room for all of them must not push the others out. */
    if (r->is_findable && may_stay && generation_weight(r) <= all->options.keep_bytes)
        generation_keep(r);
    else
        r->is_findable = false;
}

/* Nobody is left to tell. */
static void abandon(struct generation *r) {
    struct api_error e = {0};
    api_refuse(&e, 499, NULL, "request_cancelled", "the client has gone away");
    r->is_abandoned = true;
    generation_fail(r, &e);
}

void generation_settle(struct generation *r) {
    struct generations *all = r->all;
    if (r->is_busy) return;
    bool is_done = answer_is_done(&r->answer);
    if (r->has_gone && !is_done && !r->sinks && !r->survives) {
        abandon(r); /* settles */
        return;
    }
    if (r->has_gone && (!is_done || r->work || r->open_choices > 0)) return;
    if (r->has_gone && !r->has_ended) end_generation(r);
    if (!r->sinks && !r->is_kept) generation_destroy(r);
    if (all->live == 0 && all->options.on_empty) all->options.on_empty(all->options.ctx);
}

void generation_detach(struct generation *r, struct sink *s) {
    generation_over(r, s);
    generation_settle(r);
}

void generation_join(struct generation *r, struct sink *s) {
    generation_attach(r, s);
    s->has_begun = true;
    r->is_busy = true;
    bool is_over = s->kind->begin(s) || s->kind->advance(s);
    r->is_busy = false;
    if (is_over) generation_over(r, s);
    generation_settle(r);
}

void generation_forget(struct generation *r) {
    r->is_findable = false;
    if (r->is_kept) generation_unkeep(r);
    generation_settle(r);
}

void generation_wake(struct generation *r, struct sink *s) {
    CHECK(s->has_begun);
    bool was_busy = r->is_busy;
    r->is_busy = true;
    bool is_over = s->kind->advance(s);
    r->is_busy = was_busy;
    if (is_over) generation_over(r, s);
    generation_settle(r);
}

void generation_fail(struct generation *r, const struct api_error *e) {
    if (answer_is_done(&r->answer)) return;
    r->answer.failure = *e;
    r->answer.finished_us = clock_now(&clock_real);
    for (uint32_t i = 0; i < r->answer.choice_count; i++) r->choices[i].is_told = true;
    generation_unsmooth(r);
    generation_cancel_parts(r);
    if (r->work) uv_cancel((uv_req_t *)r->work);
    generation_tell(r);
    generation_settle(r);
}

/* From `r` on, the first that is under way. */
static struct generation *first_going(struct generation *r) {
    while (r && (!r->has_gone || answer_is_done(&r->answer))) r = r->next;
    return r;
}

/* Failing one may free it and others that are only kept, never another that is under way. */
void generations_fail(struct generations *all, const struct api_error *e) {
    for (struct generation *r = first_going(all->first), *next; r; r = next) {
        next = first_going(r->next);
        generation_fail(r, e);
    }
}

static void verify_generation(const struct generation *r) {
    uint32_t open = 0;
    for (uint32_t i = 0; i < r->answer.choice_count; i++) open += !r->choices[i].is_over;
    CHECK(open == r->open_choices);
    CHECK(!r->has_ended || open == 0);
    CHECK(!r->is_kept || r->has_ended);
    CHECK(!r->has_ended || r->sinks || r->is_kept);
    for (const struct sink *s = r->sinks; s; s = s->next) CHECK(s->generation == r);
    CHECK(generation_find(r->all, r->key, str_of(r->answer.id)) == r);
}

void generations_verify(const struct generations *all) {
    uint32_t live = 0, kept = 0, count = 0;
    uint64_t bytes = 0;
    for (const struct generation *r = all->first; r; r = r->next) {
        verify_generation(r);
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
