/* server/generation_submit.c - from the request to the engine: prompt, deadline, submission.
 *
 * Templates and tokenizers take time in proportion to the text, and a template may come from
 * anyone, so both run in libuv's pool, for short texts too: nothing that a client sends or a model
 * brings can hold the I/O thread. So does compiling a grammar. The pool uses the request, the
 * prompts and the grammar and nothing else; a generation that is cancelled meanwhile waits for it.
 */
#include <stdatomic.h>
#include <string.h>

#include "api/event_writer.h"
#include "api/think.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "access/access.h"
#include "access/keys.h"
#include "server/accounts.h"
#include "server/registry.h"
#include "server/generation_int.h"
#include "server/sink.h"

struct generation_work {
    struct work_item item; /* first: the pool's queue gives it back */
    struct generation *generation;
    enum status status;
    struct api_error error;
    uint32_t tenant;
    bool has_others;          /* there are other tenants */
    atomic_bool is_cancelled; /* no client waits for it; the pool reads it */
};

static void refuse_full(const struct generation *gen, struct api_error *e) {
    struct engine_stats stats = engine_stats(gen->model->engine);
    api_refuse(e, 429, NULL, "queue_full", "the queue is full; try again later");
    e->retry_after_ms = (int64_t)(stats.predicted_wait_us / 1000) + 1;
}

static int64_t time_left(const struct generation *gen, int64_t now_us) {
    const struct urgency *u = &gen->request.urgency;
    int64_t limit_us = gen->timeout_us;
    if (u->expires_us > 0 && (limit_us == 0 || u->expires_us < limit_us)) limit_us = u->expires_us;
    if (limit_us == 0) return 0;
    int64_t left_us = limit_us - (now_us - gen->answer.arrived_us);
    return left_us > 1 ? left_us : 1;
}

/* The most tokens of one answer to a prompt. */
static uint32_t answer_max_of(const struct generation *gen, const struct tokens *prompt) {
    const struct api_request *q = &gen->request;
    uint32_t room = gen->model->ctx_tokens - (uint32_t)prompt->count;
    return q->has_max_tokens && q->max_tokens < room ? q->max_tokens : room;
}

/* Of the key's limit, for all choices together. A limit that is lower than what is asked for ends
 * the answers earlier, all at the same length. */
static enum status reserve_tokens(struct generation *gen, struct api_error *e) {
    uint32_t n = gen->request.n;
    struct key_claim claim = {0};
    if (gen->has_reserved) return ST_OK;
    gen->has_reserved = true;
    gen->answer_max = gen->prompts.answer_max ? gen->prompts.answer_max : UINT32_MAX;
    if (!gen->all->options.keys || gen->is_unlimited) return ST_OK;
    for (uint32_t p = 0; p < gen->prompts.count; p++) {
        uint32_t max = answer_max_of(gen, &gen->prompts.list[p]);
        claim.prompt_tokens += gen->prompts.list[p].count;
        claim.answer_tokens += (uint64_t)n * max;
        claim.answer_least += max > 0 ? n : 0;
    }
    const uint64_t asked = claim.answer_tokens;
    TRY(access_reserve(gen->all->options.keys, gen->key, &claim, clock_now(&clock_real), e));
    gen->reserved = claim.reserved;
    if (claim.answer_tokens < asked)
        gen->answer_max = (uint32_t)(claim.answer_tokens / gen->answer.choice_count);
    if (gen->answer_max != UINT32_MAX) gen->prompts.answer_max = gen->answer_max;
    return ST_OK;
}

static struct sample_thinking thinking_of(const struct generation *gen) {
    const struct prompts *p = &gen->prompts;
    const struct think_form *form = gen->model->forms.thinks;
    if (p->closing.count == 0) return (struct sample_thinking){.has_budget = false};
    return (struct sample_thinking){.has_budget = true,
                                    .in_thought = p->in_thought,
                                    .budget = gen->request.thinking.budget_tokens,
                                    .open = form->open,
                                    .close = form->close,
                                    .tokenizer = gen->model->tokenizer,
                                    .closing = p->closing.ids,
                                    .closing_count = (uint32_t)p->closing.count};
}

static struct speculation speculation_of(const struct generation *gen) {
    const struct api_speculation *q = &gen->request.speculation;
    const struct tokens *prediction = &gen->prompts.prediction;
    struct speculation s = {.is_chosen = q->is_chosen,
                            .choice = q->choice,
                            .max = q->max,
                            .prediction = prediction->ids,
                            .prediction_tokens = (uint32_t)prediction->count};
    if (q->has_max && q->max == 0) {
        s.is_chosen = true;
        s.choice = speculate_option_default(); /* off */
    }
    return s;
}

static struct request_spec spec_of(const struct generation *gen, const struct tokens *prompt,
                                   struct generation_part *part) {
    const struct api_request *q = &gen->request;
    uint32_t max = answer_max_of(gen, prompt);
    if (max > gen->answer_max) max = gen->answer_max;
    struct request_spec spec = {.prompt = prompt->ids,
                                .prompt_tokens = (uint32_t)prompt->count,
                                .max_tokens = max > 0 || q->prompt_logprobs ? max : 1,
                                .n = q->n,
                                .sample = q->sample,
                                .ignore_end = q->ignore_end,
                                .min_tokens = q->min_tokens,
                                .stop_tokens = q->stop_tokens,
                                .stop_token_count = q->stop_token_count,
                                .want_logprobs = q->logprobs,
                                .want_prompt_logprobs = q->prompt_logprobs,
                                .grammar = gen->grammar,
                                .forces_text = gen->model->forces_text,
                                .speculation = speculation_of(gen),
                                .cache_salt = q->cache_salt,
                                .tenant = gen->key ? gen->key->tenant : 0,
                                .is_batch = gen->is_batch,
                                .has_share = keys_has_others(gen->all->options.keys, gen->key),
                                .urgency = q->urgency,
                                .wakes_later = true, /* work_queue_options.after_batch */
                                .user = part};
    spec.sample.top_logprobs = q->top_logprobs;
    spec.sample.thinking = thinking_of(gen);
    spec.urgency.expires_us = time_left(gen, clock_now(&clock_real));
    return spec;
}

/* Memory of the engine's request: what request_create allocates. */
static uint64_t bytes_of(const struct generation *gen, const struct request_spec *spec) {
    uint64_t mask = spec->grammar ? tokenizer_vocab(gen->model->tokenizer) / 8 : 0;
    bool has_tops = spec->want_logprobs && spec->sample.top_logprobs > 0;
    uint64_t entry = (spec->want_logprobs ? sizeof(struct token_logprob) : 0) +
                     (has_tops ? sizeof(struct sample_result) : 0);
    uint64_t total = (uint64_t)spec->prompt_tokens + spec->max_tokens;
    uint64_t drafter =
        spec_seq_bytes_for(engine_spec(gen->model->engine), &spec->speculation, (uint32_t)total);
    uint64_t choice = drafter + sizeof(struct choice) + total * sizeof(spec->prompt[0]) +
                      spec->max_tokens * entry + mask;
    return spec->n * choice + (spec->want_prompt_logprobs ? spec->prompt_tokens * entry : 0);
}

/* For all prompts together: of a request that does not fit as a whole nothing is submitted. */
static enum status reserve_memory(struct generation *gen, struct api_error *e) {
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < gen->prompts.count; p++) {
        struct request_spec spec = spec_of(gen, &gen->prompts.list[p], &gen->parts[p]);
        bytes += bytes_of(gen, &spec);
    }
    TRY(generation_charge(gen, bytes, e));
    gen->engine_bytes = bytes;
    return ST_OK;
}

static enum status submit_part(struct generation *gen, uint32_t p, struct api_error *e) {
    const struct tokens *prompt = &gen->prompts.list[p];
    struct generation_part *part = &gen->parts[p];
    struct err err = {0};
    *part = (struct generation_part){.generation = gen, .first = p * gen->request.n};
    struct request_spec spec = spec_of(gen, prompt, part);
    enum status st = engine_submit(gen->model->engine, &spec, &part->request, &err);
    if (st == ST_FULL) {
        refuse_full(gen, e);
        return st;
    }
    if (st == ST_NOMEM) return api_refuse(e, 503, NULL, "out_of_memory", "%s", err.text);
    if (st != ST_OK) return api_refuse(e, 400, NULL, NULL, "%s", err.text);
    gen->part_count = p + 1;
    gen->model->has_submitted = true;
    for (uint32_t i = 0; i < gen->request.n; i++) {
        gen->answer.choices[part->first + i].tokens = &part->request->choices[i];
        gen->choices[part->first + i].is_finished = false;
        gen->open_choices++;
    }
    gen->answer.prompt_tokens += (uint32_t)prompt->count;
    return ST_OK;
}

static enum status submit_parts(struct generation *gen, struct api_error *e) {
    TRY(reserve_memory(gen, e));
    for (uint32_t p = 0; p < gen->prompts.count; p++) TRY(submit_part(gen, p, e));
    return ST_OK;
}

static void submit(struct generation *gen, enum status st, struct api_error *e) {
    for (uint32_t i = 0; gen->prompts.in_thought && i < gen->answer.choice_count; i++)
        event_writer_set_in_thought(gen->choices[i].writer);
    if (st == ST_OK) st = reserve_tokens(gen, e);
    if (st == ST_OK) st = submit_parts(gen, e);
    if (st != ST_OK) {
        generation_fail(gen, e);
        return;
    }
    gen->stage = GENERATION_RUNNING;
    if (gen->answer.choice_count == 0) gen->answer.finished_us = clock_now(&clock_real);
    generation_deliver(gen);
}

/* ---- the prompt and the grammar, in libuv's pool ---- */

static bool is_cancelled(void *ctx) {
    return atomic_load(&((struct generation_work *)ctx)->is_cancelled);
}

static enum status compile_grammar(struct generation_work *w, struct api_error *e) {
    const struct grammar_source source = {.tenant = w->tenant,
                                          .has_others = w->has_others,
                                          .cancelled = is_cancelled,
                                          .cancelled_ctx = w};
    return generation_compile(w->generation, source, e);
}

static enum status prepare_prompts(struct generation_work *w, struct api_error *e) {
    struct generation *gen = w->generation;
    enum status st = prompts_prepare(gen->model, &gen->request, &gen->prompts, e);
    if (st == ST_OK && generation_has_grammar(gen)) st = compile_grammar(w, e);
    api_request_drop_messages(&gen->request); /* takes 15 ms if there are many */
    return st;
}

static void run_in_pool(struct work_item *item) {
    struct generation_work *w = (struct generation_work *)item;
    w->status = prepare_prompts(w, &w->error);
}

/* The engine has copied the prompt, or will not get it. */
static void drop_prompts(struct generation *gen) {
    api_request_drop_messages(&gen->request);
    prompts_deinit(&gen->prompts);
    answer_grammar_unref(gen->grammar);
    gen->grammar = NULL;
    mem_free(gen->work);
    gen->work = NULL;
    enum status st = generation_charge(gen, 0, NULL);
    CHECK(st == ST_OK); /* it is less */
}

void generation_stored(struct generation *gen, enum status st, struct api_error *e) {
    gen->is_busy = true;
    if (gen->answer.failure.status == 0) submit(gen, st, e);
    drop_prompts(gen);
    gen->is_busy = false;
    generation_check_end(gen);
}

/* gen->work stays until it is stored: so it is not freed meanwhile. */
static void take_prompts(struct generation_work *w) {
    struct generation *gen = w->generation;
    bool is_new = w->status == ST_OK && gen->answer.failure.status == 0 && gen->is_durable &&
                  !gen->is_recovered;
    /* The limit of its key is stored with it. */
    if (is_new) w->status = reserve_tokens(gen, &w->error);
    if (is_new && w->status == ST_OK)
        gen->all->options.on_prepared(gen->all->options.ctx, gen);
    else
        generation_stored(gen, w->status, &w->error);
}

static void on_prepared(struct work_item *item) { take_prompts((struct generation_work *)item); }

static void refuse_work(struct generation *gen, enum status st) {
    struct api_error e = {0};
    work_queue_refuse(gen->all->options.work, st, gen->request.prompt_bytes, &e);
    generation_fail(gen, &e);
}

static void prepare(struct generation *gen) {
    struct generation_work *w = mem_zalloc(sizeof(*w));
    enum status st = w ? ST_OK : ST_NOMEM;
    if (w) {
        w->item.run = run_in_pool;
        w->item.done = on_prepared;
        w->item.bytes = gen->request.prompt_bytes;
        w->item.is_long = generation_has_grammar(gen);
        w->generation = gen;
        w->tenant = gen->key ? gen->key->tenant : 0;
        w->has_others = keys_has_others(gen->all->options.keys, gen->key);
        st = work_queue_push(gen->all->options.work, &gen->account->lane, &w->item);
    }
    if (st == ST_OK) {
        gen->work = w;
        return;
    }
    mem_free(w);
    refuse_work(gen, st);
}

void generation_cancel_work(struct generation *gen) {
    if (!gen->work) return;
    atomic_store(&gen->work->is_cancelled, true);
    if (gen->work->item.state != WORK_WAITING) return;
    CHECK(work_queue_cancel(&gen->work->item));
    drop_prompts(gen);
}

void generation_add_sink(struct generation *gen, struct sink *s) {
    CHECK(gen->stage == GENERATION_NEW && !gen->has_started);
    s->generation = gen;
    list_push_first(&gen->sinks, &s->in_generation);
}

void generation_start(struct generation *gen, struct sink *s) {
    if (s) generation_add_sink(gen, s);
    gen->has_started = true;
    gen->all->live++;
    gen->counted = gen->is_unlimited ? 0 : gen->answer.choice_count;
    gen->model->live_choices += gen->counted;
    gen->stage = GENERATION_PREPARING;
    gen->is_busy = true;
    prepare(gen);
    gen->is_busy = false;
    generation_check_end(gen);
}

void generation_cancel_parts(struct generation *gen) {
    for (uint32_t p = 0; p < gen->part_count; p++)
        engine_cancel(gen->model->engine, gen->parts[p].request);
}

/* The engine may post a choice once more after its end: it must not refer to this generation. */
void generation_release_parts(struct generation *gen) {
    for (uint32_t p = 0; p < gen->part_count; p++) {
        gen->parts[p].request->user = NULL;
        request_unref(gen->parts[p].request);
    }
    mem_free(gen->parts);
}
