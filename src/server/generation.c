/* server/generation.c - see server/generation.h: create, destroy, and the end. */
#include "server/generation.h"
#include "server/generations.h"

#include <string.h>

#include "api/event_writer.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "server/accounts.h"
#include "server/registry.h"
#include "server/generation_int.h"
#include "server/shortage.h"
#include "server/sink.h"
#include "server/smoother.h"

static const uint64_t LOG_BYTES_DEFAULT = 64u << 20;
static const uint64_t ANSWERS_BYTES_DEFAULT = 1u << 30;

const char *generation_stage_name(enum generation_stage s) {
    static const char *const names[] = {"queued", "queued", "in_progress", "completed"};
    return names[s];
}

enum status generations_create(const struct generations_options *options, struct generations **out,
                               struct err *err) {
    struct generations *all = mem_zalloc(sizeof(*all));
    if (!all) return err_set(err, ST_NOMEM, "out of memory for requests");
    all->options = *options;
    all->keep.max = options->keep_bytes;
    generations_set_memory(all,
                           options->answers_bytes ? options->answers_bytes : ANSWERS_BYTES_DEFAULT,
                           options->is_single);
    if (!all->options.log_bytes) all->options.log_bytes = LOG_BYTES_DEFAULT;
    CHECK(uv_timer_init(options->loop, &all->keep_timer) == 0);
    CHECK(uv_timer_init(options->loop, &all->smooth_timer) == 0);
    all->keep_timer.data = all->smooth_timer.data = all;
    *out = all;
    return ST_OK;
}

void generations_close(struct generations *all) {
    CHECK(all->live == 0);
    all->is_closed = true;
    while (all->kept.first) generations_drop_oldest(all);
    uv_close((uv_handle_t *)&all->keep_timer, NULL);
    uv_close((uv_handle_t *)&all->smooth_timer, NULL);
}

void generations_destroy(struct generations *all) {
    if (!all) return;
    CHECK(all->items.count == 0);
    CHECK(all->answers.used == 0);
    CHECK(all->keep.used == 0);
    mem_free(all);
}

struct generations_stats generations_stats(const struct generations *all) {
    return (struct generations_stats){.live = all->live,
                                      .kept = all->kept.count,
                                      .kept_bytes = all->keep.used,
                                      .bytes = all->answers.used,
                                      .bytes_max = all->answers.max,
                                      .refused = all->refused};
}

/* ---- create and destroy ---- */

static enum status fill_generation(struct generation *gen, const struct generation_spec *spec) {
    struct answer *a = &gen->answer;
    gen->account = accounts_find(gen->all->options.accounts, spec->key);
    if (!gen->account) return ST_NOMEM;
    TRY(event_log_create(&a->log, gen->all->options.log_bytes));
    if (gen->request.smooth_ms > 0)
        TRY(smoother_create(gen->request.smooth_ms * 1000, gen->all->options.log_bytes,
                            &gen->smoother));
    str_store(spec->id, a->id, sizeof(a->id));
    str_store(spec->request_id, gen->request_id, sizeof(gen->request_id));
    gen->prompts.ctx_tokens = spec->model->ctx_tokens;
    a->request = &gen->request;
    a->tokenizer = spec->model->tokenizer;
    a->model = str_of(spec->model->name);
    a->fingerprint = str_of(spec->model->fingerprint);
    a->created_s = spec->created_s ? spec->created_s : clock_wall_s();
    a->arrived_us = spec->arrived_us;
    return ST_OK;
}

static uint32_t prompts_of(const struct api_request *q) { return q->is_chat ? 1 : q->prompt_count; }

static enum status make_choice(struct generation *gen, uint32_t i) {
    struct err err = {0};
    bool has_tools = gen->request.tools && gen->request.tool_choice != TOOLS_NONE;
    struct event_writer_options options = {.request = &gen->request,
                                           .tokenizer = gen->model->tokenizer,
                                           .choice = i,
                                           .tools = has_tools ? gen->model->forms.tools : NULL,
                                           .thinks = gen->model->forms.thinks};
    gen->choices[i].is_finished = true; /* until the engine has it */
    gen->answer.choices[i].prompt = i / gen->request.n;
    return event_writer_create(&options, &gen->choices[i].writer, &err);
}

static enum status make_choices(struct generation *gen) {
    uint32_t prompts = prompts_of(&gen->request), count = gen->request.n * prompts;
    /* Ollama's clients send no prompt to ask whether a model is there. One element more makes the
     * first choice valid, and empty, in that case. */
    gen->parts = mem_zalloc_array(prompts + 1, sizeof(gen->parts[0]));
    gen->choices = mem_zalloc_array(count + 1, sizeof(gen->choices[0]));
    gen->answer.choices = mem_zalloc_array(count + 1, sizeof(gen->answer.choices[0]));
    if (!gen->parts || !gen->choices || !gen->answer.choices) return ST_NOMEM;
    gen->answer.choice_count = count;
    for (uint32_t i = 0; i < count; i++) TRY(make_choice(gen, i));
    return ST_OK;
}

static void free_parts(struct generation *gen) {
    generation_discharge(gen);
    generation_release_parts(gen);
    for (uint32_t i = 0; i < gen->answer.choice_count; i++)
        event_writer_destroy(gen->choices[i].writer);
    mem_free(gen->choices);
    mem_free(gen->answer.choices);
    smoother_destroy(gen->smoother);
    event_log_destroy(gen->answer.log);
    prompts_deinit(&gen->prompts);
    api_request_deinit(&gen->request);
    mem_free(gen);
}

enum status generation_create(struct generations *all, const struct generation_spec *spec,
                              struct generation **out, struct api_error *e) {
    struct generation *gen = mem_zalloc(sizeof(*gen));
    if (!gen) {
        api_request_deinit(spec->request);
        shortage_put(SHORTAGE_ANSWERS, ST_NOMEM, 0, 0, e);
        return ST_NOMEM;
    }
    *gen = (struct generation){.all = all,
                               .model = spec->model,
                               .key = spec->key,
                               .route = spec->route,
                               .is_batch = spec->is_batch,
                               .is_unlimited = spec->is_batch,
                               .request = *spec->request};
    api_request_init(spec->request, gen->request.codec);
    enum status st = fill_generation(gen, spec);
    if (st == ST_OK) st = generation_charge(gen, 0, e);
    if (st == ST_OK) st = make_choices(gen);
    if (st != ST_OK) {
        if (st == ST_NOMEM) shortage_put(SHORTAGE_ANSWERS, st, 0, 0, e);
        free_parts(gen);
        return st;
    }
    list_push_first(&all->items, &gen->in_all);
    generation_index_add(gen);
    *out = gen;
    return ST_OK;
}

void generation_destroy(struct generation *gen) {
    CHECK(!gen->sinks.first && !gen->work && !gen->is_kept);
    CHECK(!list_has(&gen->all->smoothing, &gen->in_smoothing));
    CHECK(gen->open_choices == 0);
    CHECK(gen->counted == 0);
    list_remove(&gen->all->items, &gen->in_all);
    generation_index_remove(gen);
    if (gen->poll) encoder_deinit(gen->poll);
    mem_free(gen->poll);
    free_parts(gen);
}

/* ---- the end ---- */

static void end_generation(struct generation *gen) {
    struct generations *all = gen->all;
    gen->has_ended = true;
    gen->stage = GENERATION_DONE;
    gen->model->live_choices -= gen->counted;
    gen->counted = 0;
    if (all->options.on_ended) all->options.on_ended(all->options.ctx, gen);
    all->live--;
    bool may_stay = all->options.keep_ms > 0 && !all->is_closed && !gen->is_abandoned;
    if (!gen->is_findable || !may_stay || !generation_keep(gen)) gen->is_findable = false;
}

static void cancel_abandoned(struct generation *gen) {
    struct api_error e = {0};
    api_refuse(&e, 499, NULL, "request_cancelled", "the client has gone away");
    gen->is_abandoned = true;
    generation_fail(gen, &e);
}

void generation_check_end(struct generation *gen) {
    if (gen->is_busy) return;
    bool is_done = answer_is_done(&gen->answer);
    if (gen->has_started && !is_done && !gen->sinks.first && !gen->survives) {
        cancel_abandoned(gen); /* calls this function again */
        return;
    }
    if (gen->has_started && (!is_done || gen->work || gen->open_choices > 0)) return;
    if (gen->has_started && !gen->has_ended) end_generation(gen);
    if (!gen->sinks.first && !gen->is_kept) generation_destroy(gen);
}

void generation_forget(struct generation *gen) {
    gen->is_findable = false;
    if (gen->is_kept) generation_unkeep(gen);
    generation_check_end(gen);
}

void generation_fail(struct generation *gen, const struct api_error *e) {
    if (answer_is_done(&gen->answer)) return;
    gen->answer.failure = *e;
    gen->answer.finished_us = clock_now(&clock_real);
    for (uint32_t i = 0; i < gen->answer.choice_count; i++) gen->choices[i].is_closed = true;
    generation_stop_smoothing(gen);
    generation_cancel_parts(gen);
    generation_cancel_work(gen);
    generation_deliver(gen);
    generation_check_end(gen);
}

/* The first of them, from `link` on, that is under way. */
static struct generation *first_live(struct list_link *link) {
    for (; link; link = link->next) {
        struct generation *gen = LIST_ITEM(link, struct generation, in_all);
        if (gen->has_started && !answer_is_done(&gen->answer)) return gen;
    }
    return NULL;
}

void generations_each_live(const struct generations *all,
                           void (*each)(void *ctx, const struct generation *gen), void *ctx) {
    for (struct generation *gen = first_live(all->items.first); gen;
         gen = first_live(gen->in_all.next))
        each(ctx, gen);
}

/* Failing one may free it and others that are only kept, never another that is under way. */
void generations_fail(struct generations *all, const struct api_error *e) {
    for (struct generation *gen = first_live(all->items.first), *next; gen; gen = next) {
        next = first_live(gen->in_all.next);
        generation_fail(gen, e);
    }
}

static void verify_generation(const struct generation *gen) {
    uint32_t open = 0;
    for (uint32_t i = 0; i < gen->answer.choice_count; i++) open += !gen->choices[i].is_finished;
    CHECK(open == gen->open_choices);
    CHECK(!gen->has_ended || open == 0);
    CHECK(!gen->is_kept || gen->has_ended);
    CHECK(!gen->has_ended || gen->sinks.first || gen->is_kept);
    CHECK(gen->is_kept == list_has(&gen->all->kept, &gen->in_kept));
    CHECK(gen->is_kept == list_has(&gen->account->kept_generations, &gen->in_own_kept));
    list_verify(&gen->sinks);
    for (struct list_link *l = gen->sinks.first; l; l = l->next)
        CHECK(LIST_ITEM(l, struct sink, in_generation)->generation == gen);
    CHECK(generation_find(gen->all, gen->key, str_of(gen->answer.id)) == gen);
}

void generations_verify(const struct generations *all) {
    uint32_t live = 0;
    uint64_t bytes = 0, charged = 0;
    list_verify(&all->items);
    list_verify(&all->kept);
    list_verify(&all->smoothing);
    for (struct list_link *l = all->items.first; l; l = l->next) {
        const struct generation *gen = LIST_ITEM(l, struct generation, in_all);
        verify_generation(gen);
        live += gen->has_started && !gen->has_ended;
        bytes += gen->is_kept ? gen->kept_bytes : 0;
        charged += gen->charged_bytes;
    }
    CHECK(live == all->live);
    CHECK(bytes == all->keep.used);
    CHECK(charged == all->answers.used);
}

bool generation_is_left_open(const struct generation *gen) {
    const struct api_error *e = &gen->answer.failure;
    struct str code = str_of(e->code ? e->code : "");
    return gen->is_durable && e->status != 0 &&
           (str_is(code, "shutting_down") || str_is(code, "engine_lost"));
}
