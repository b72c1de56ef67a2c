/* identity/batch_run.c - see identity/batch_run.h. */
#include "identity/batch_run.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/grammars.h"
#include "engine/service.h"
#include "identity/batch_drafts.h"

enum {
    TINY_CTX = 384, /* past the cut of attention at 256 tokens */
    REAL_CTX = 320,
    FAMILIES = 3,
    STREAM_TOKENS = TINY_CTX,
    STEPS_MAX = 200000,
    RUN_REQUESTS_MAX = 16,
    STEP_US = 1000,
    IDLE_US = 20000,
    VERIFY_EVERY = 16,
    SHORT_REQUESTS = 10, /* the first so many have up to 64 tokens: answers weigh more */
};

/* ---- a clock that the test sets ---- */

struct set_clock {
    struct clock clock;
    int64_t now_us;
};

static int64_t set_clock_now(void *self) { return ((struct set_clock *)self)->now_us; }

static void set_clock_init(struct set_clock *c) {
    *c = (struct set_clock){.now_us = 1};
    c->clock = (struct clock){.name = "set by the test", .now_us = set_clock_now, .self = c};
}

/* The engine that makes references. */
struct alone {
    struct set_clock clock;
    struct service service;
};

/* ---- grammars ---- */

/* Token i is the number i, written with these characters. */
static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789,;()";
enum { BASE = sizeof(digits) - 1, NUMBER_BYTES = 8 };

struct made_tokens {
    struct grammars *grammars;
    char (*bytes)[NUMBER_BYTES];
    struct str *table;
};

static enum status make_tokens(struct test_model *l) {
    struct made_tokens *t = l->tokens = mem_zalloc(sizeof(*t));
    if (!t) return ST_NOMEM;
    t->bytes = mem_zalloc_array(l->vocab, sizeof(t->bytes[0]));
    t->table = mem_zalloc_array(l->vocab, sizeof(t->table[0]));
    if (!t->bytes || !t->table) return ST_NOMEM;
    for (uint32_t i = 0; i < l->vocab; i++) {
        uint32_t len = 0;
        for (uint32_t rest = i + 1; rest > 0; rest = (rest - 1) / BASE)
            t->bytes[i][len++] = digits[(rest - 1) % BASE];
        t->table[i] = (struct str){t->bytes[i], len};
    }
    const struct grammars_options options = {.tokens = t->table, .vocab = l->vocab};
    return grammars_create(&options, &t->grammars);
}

static void free_tokens(struct made_tokens *t) {
    if (!t) return;
    grammars_unref(t->grammars);
    mem_free(t->bytes);
    mem_free(t->table);
    mem_free(t);
}

/* Texts without an end, so that answers are as long as without a grammar. */
static enum status make_grammar(struct test_model *l, uint32_t request) {
    const struct grammar_source sources[] = {
        {.kind = GRAMMAR_REGEX, .text = STR("([a-z]{2,5}[0-9]{0,2}[,;])*")},
        {.kind = GRAMMAR_GBNF,
         .text = STR("root ::= item*\nitem ::= [a-f0-9]+ [,;] | \"(\" root \")\"")},
        {.kind = GRAMMAR_LARK, .text = STR("start: (/[a-m]+/ | /[n-z]+/ \";\" /[0-9]+/)*")},
        /* As tool calls in text: what follows the mark "q" is held to a shape. */
        {.kind = GRAMMAR_PARTS,
         .text =
             STR("{\"sequence\":[{\"free\":[\"q\"]},{\"repeat\":{\"sequence\":[{\"text\":\"q\"},"
                 "{\"pattern\":\"\\\\([a-f]{1,9}[0-9]\\\\)\"},{\"free\":[\"q\"]}]}}]}")},
    };
    enum { SOURCES = sizeof(sources) / sizeof(sources[0]) };
    struct grammar_refusal why;
    if (request % 3 != 1) return ST_OK;
    return grammars_compile(l->tokens->grammars, &sources[request / 3 % SOURCES],
                            &l->requests[request].grammar, &why);
}

/* ---- requests ---- */

static const uint16_t tiny_lengths[] = {1,  2,  5,   15,  16,  17,  31,  33,  48,  64,  65,
                                        80, 96, 100, 128, 150, 200, 255, 256, 257, 300, 310};
static const uint16_t real_lengths[] = {1,  2,  5,  15, 16, 17, 24, 31, 33, 40, 48,
                                        20, 36, 80, 64, 60, 49, 96, 30, 18, 70, 100};
enum { LENGTHS = sizeof(tiny_lengths) / sizeof(tiny_lengths[0]), TWINS = REQUESTS - LENGTHS };

static struct sample_params sampling_of(uint32_t request) {
    struct sample_params p = sample_params_default();
    p.seed = 1000 + 16 * (uint64_t)request; /* choices of different requests draw differently */
    switch (request % 4) {
    case 0:
        p.temperature = 0;
        break;
    case 1:
        p.temperature = 0.9f;
        break;
    case 2:
        p.temperature = 1.3f;
        p.top_k = 20;
        p.top_p = 0.95f;
        break;
    default:
        p.temperature = 0.8f;
        p.repetition_penalty = 1.2f;
        p.presence_penalty = 0.5f;
    }
    return p;
}

/* Answers to short prompts are long: they outgrow the blocks that were there at admission. */
static uint32_t answer_of(uint32_t request, bool is_real) {
    bool is_short = request < SHORT_REQUESTS;
    if (is_real) return is_short ? 12 + request : 4 + request % 5;
    return is_short ? 32 + request * 7 % (ANSWER_MAX - 32) : 8 + request * 7 % 32;
}

/* The beginning of a family's stream; one in four ends on its own tokens, so that prefixes meet
 * in the middle of prompts and of blocks. */
static enum status make_ticket(struct test_model *l, uint32_t i, uint32_t length, bool is_real) {
    struct test_request *t = &l->requests[i];
    struct rng stream = {.seed = 77 + i % FAMILIES}, own = {.seed = 500 + i};
    t->sample = sampling_of(i);
    t->max_tokens = answer_of(i, is_real);
    t->prompt_tokens = length;
    t->prompt = mem_alloc_array(length, sizeof(t->prompt[0]));
    if (!t->prompt) return ST_NOMEM;
    for (uint32_t k = 0; k < length; k++) t->prompt[k] = (int32_t)rng_below(&stream, l->vocab);
    uint32_t tail = i % 4 == 3 ? 0 : 1 + i % 7;
    for (uint32_t k = length > tail ? length - tail : 0; k < length; k++)
        t->prompt[k] = (int32_t)rng_below(&own, l->vocab);
    return make_grammar(l, i);
}

/* The same prompt but for one token at the edge of a block: sharing that block would be wrong. */
static enum status make_twin(struct test_model *l, uint32_t i, uint32_t of, uint32_t at) {
    struct test_request *t = &l->requests[i];
    const struct test_request *first = &l->requests[of];
    *t = *first;
    if (t->grammar) answer_grammar_ref(t->grammar);
    t->prompt = (int32_t *)(void *)mem_dup(first->prompt, first->prompt_tokens * sizeof(int32_t));
    if (!t->prompt) return ST_NOMEM;
    CHECK(at < t->prompt_tokens);
    t->prompt[at] = (t->prompt[at] + 1) % (int32_t)l->vocab;
    return ST_OK;
}

static enum status make_tickets(struct test_model *l, bool is_real) {
    const uint16_t *lengths = is_real ? real_lengths : tiny_lengths;
    for (uint32_t i = 0; i < LENGTHS; i++) TRY(make_ticket(l, i, lengths[i], is_real));
    static const uint8_t twins[TWINS][2] = {{8, 15}, {9, 31}, {13, 47}, {14, 63}};
    for (uint32_t i = 0; i < TWINS; i++)
        TRY(make_twin(l, LENGTHS + i, twins[i][0],
                      twins[i][1] < lengths[twins[i][0]] ? twins[i][1] : 15));
    return ST_OK;
}

static enum status read_vocab(struct test_model *l, struct err *err) {
    struct loaded_model loaded;
    TRY(loaded_model_open(&loaded, l->path,
                          &(struct loaded_model_options){.threads = 1, .tokens_only = true}, err));
    l->vocab = loaded.model->hp.vocab;
    loaded_model_close(&loaded);
    return ST_OK;
}

enum status test_model_open(struct test_model *l, const char *name, const char *path, bool is_real,
                            struct err *err) {
    const char *device = getenv("JITNEY_RIDES_DEVICE");
    *l = (struct test_model){.name = name,
                             .device = device ? device : "cpu",
                             .ctx_tokens = is_real ? REAL_CTX : TINY_CTX};
    CHECK(strlen(path) < sizeof(l->path));
    memcpy(l->path, path, strlen(path) + 1);
    TRY(read_vocab(l, err));
    l->references = mem_zalloc_array(KV_TYPES * REQUESTS * CHOICES, sizeof(l->references[0]));
    enum status st = l->references ? make_tokens(l) : ST_NOMEM;
    if (st == ST_OK) st = make_tickets(l, is_real);
    if (st == ST_OK) return ST_OK;
    test_model_close(l);
    return err_set(err, st, "%s: out of memory", name);
}

void test_model_close(struct test_model *l) {
    for (uint32_t i = 0; i < REQUESTS; i++) {
        mem_free(l->requests[i].prompt);
        answer_grammar_unref(l->requests[i].grammar);
    }
    for (uint32_t i = 0; i < KV_TYPES; i++) {
        if (l->alone[i]) service_close(&l->alone[i]->service);
        mem_free(l->alone[i]);
    }
    mem_free(l->references);
    free_tokens(l->tokens);
    *l = (struct test_model){.name = NULL};
}

/* ---- one engine ---- */

static enum status open_engine(const struct test_model *l, const struct batch_run *r,
                               const struct set_clock *clock, struct service *out,
                               struct err *err) {
    const struct service_options o = {.policy = r->policy,
                                      .knobs = r->knobs,
                                      .device = r->device ? r->device : l->device,
                                      .ctx_tokens = l->ctx_tokens,
                                      .tokens_only = true,
                                      .clock = &clock->clock,
                                      .speculate = r->speculate};
    return service_open(out, l->path, &o, err);
}

static struct request_spec spec_of(const struct test_request *t) {
    return (struct request_spec){.prompt = t->prompt,
                                 .prompt_tokens = t->prompt_tokens,
                                 .max_tokens = t->max_tokens,
                                 .n = 1,
                                 .sample = t->sample,
                                 .ignore_end = true,
                                 .grammar = t->grammar,
                                 .want_logprobs = true};
}

/* ---- references ---- */

/* One slot in the batch, whole prompts, one thread, nothing kept from one request to the next. */
static enum status open_alone(struct test_model *l, uint32_t kv_type, struct err *err) {
    struct batch_run alone = {.knobs = knobs_default()};
    struct knobs *k = &alone.knobs;
    k->max_seqs = 1;
    k->threads = 1;
    k->prefix_cache = false;
    k->kv_type = kv_type;
    k->spill_blocks = 0;
    struct alone *a = mem_zalloc(sizeof(*a));
    if (!a) return err_set(err, ST_NOMEM, "out of memory");
    set_clock_init(&a->clock);
    enum status st = open_engine(l, &alone, &a->clock, &a->service, err);
    if (st == ST_OK)
        l->alone[kv_type] = a;
    else
        mem_free(a);
    return st;
}

static enum status copy_answer(const struct choice *c, struct answer_bits *out, struct err *err) {
    uint32_t ready;
    if (choice_poll(c, &ready) != FINISH_LENGTH)
        return err_set(err, ST_BAD, "a request alone did not run to its end");
    out->count = ready - c->prompt_tokens;
    CHECK(out->count <= ANSWER_MAX);
    memcpy(out->tokens, c->tokens + c->prompt_tokens, out->count * sizeof(out->tokens[0]));
    memcpy(out->logprobs, c->logprobs, out->count * sizeof(out->logprobs[0]));
    out->is_known = true;
    return ST_OK;
}

static enum status run_alone(struct test_model *l, uint32_t kv_type, uint32_t request,
                             uint32_t choice, struct answer_bits *out, struct err *err) {
    if (!l->alone[kv_type]) TRY(open_alone(l, kv_type, err));
    struct engine *e = l->alone[kv_type]->service.engine;
    struct request_spec spec = spec_of(&l->requests[request]);
    spec.sample.seed += choice;
    struct request *r;
    TRY(engine_submit(e, &spec, &r, err));
    enum status st = ST_OK;
    bool did_work = true;
    while (st == ST_OK && atomic_load(&r->choices[0].finish) == FINISH_NONE && did_work)
        st = engine_step(e, &did_work);
    for (struct choice *c; (c = engine_next(e, 0));) request_unref(c->request);
    if (st == ST_OK) st = copy_answer(&r->choices[0], out, err);
    request_unref(r);
    return st;
}

const struct answer_bits *test_model_reference(struct test_model *l, uint32_t kv_type,
                                               uint32_t request, uint32_t choice, struct err *err) {
    CHECK(kv_type < KV_TYPES);
    CHECK(request < REQUESTS);
    CHECK(choice < CHOICES);
    struct answer_bits *a = &l->references[(kv_type * REQUESTS + request) * CHOICES + choice];
    if (!a->is_known && run_alone(l, kv_type, request, choice, a, err) != ST_OK) return NULL;
    return a;
}

/* ---- drawing a run ---- */

#define PICK(rng, list) (list)[rng_below((rng), sizeof(list) / sizeof((list)[0]))]

static uint32_t policy_count(void) {
    uint32_t count = 0;
    while (sched_policies[count]) count++;
    return count;
}

/* Enough for the longest request of the run, and in three runs of four not much more. */
static uint32_t draw_blocks(const struct test_model *l, struct rng *rng, uint32_t block_size,
                            uint32_t request_end) {
    uint32_t longest = 0;
    for (uint32_t i = 0; i < request_end; i++) {
        uint32_t total = l->requests[i].prompt_tokens + l->requests[i].max_tokens;
        if (total > longest) longest = total;
    }
    uint32_t least = (longest + block_size - 1) / block_size + 1;
    return rng_below(rng, 3) == 0 ? least * RUN_REQUESTS_MAX
                                  : least + (uint32_t)rng_below(rng, least + 2);
}

struct batch_run batch_run_draw(const struct test_model *l, uint32_t number) {
    static const uint32_t chunks[] = {0, 1, 2, 3, 5, 15, 16, 17, 31, 64, 128, 512};
    static const uint32_t steps[] = {2, 7, 16, 33, 64, 128, 512, 512};
    static const uint32_t blocks[] = {16, 16, 32, 64};
    static const uint32_t kv_types[] = {0, 0, 1, 2, 3, 4, 4};
    static const uint32_t batch_sizes[] = {2, 3, 4, 8, 16};
    struct rng rng = {.seed = 9000 + number};
    struct batch_run r = {.number = number,
                          .policy = sched_policies[number % policy_count()],
                          .knobs = knobs_default()};
    struct knobs *k = &r.knobs;
    k->chunk_tokens = PICK(&rng, chunks);
    k->max_step_tokens = PICK(&rng, steps);
    k->block_size = PICK(&rng, blocks);
    k->max_seqs = PICK(&rng, batch_sizes);
    k->prefix_cache = rng_below(&rng, 4) != 0;
    k->kv_type = PICK(&rng, kv_types);
    r.request_end = rng_below(&rng, 3) == 0 ? REQUESTS : SHORT_REQUESTS;
    k->kv_blocks = draw_blocks(l, &rng, k->block_size, r.request_end);
    k->preempt = (enum preempt_mode)rng_below(&rng, 3);
    k->preempt_max = 1 + (uint32_t)rng_below(&rng, 10);
    k->threads = 1 + number / policy_count() % 2;
    k->watermark = 0;
    k->step_target_ms = rng_below(&rng, 4) == 0 ? 20 : 0;
    k->static_wait_ms = k->dynamic_window_ms = 5;
    k->dynamic_batch = 3;
    k->mlfq_quantum_ms = 2;
    r.request_count = 8 + (uint32_t)rng_below(&rng, RUN_REQUESTS_MAX - 8);
    r.speculate = batch_drafts_option(&r);
    return r;
}

/* ---- a run in progress ---- */

struct submission {
    uint32_t request_idx, n;
    uint32_t submit_step, cancel_step; /* steps; cancel_step 0: never cancelled */
    bool is_batch;
    struct request *request;
};

struct execution {
    struct test_model *model;
    const struct batch_run *run;
    struct service service;
    struct set_clock clock;
    struct submission submissions[RUN_REQUESTS_MAX];
    struct coverage *seen;
    struct batch_drafts drafts;
};

/* For batch_drafts.request_of. */
static uint32_t find_request(void *ctx, uint64_t id) {
    const struct execution *t = ctx;
    uint32_t i = 0;
    while (i < t->run->request_count &&
           (!t->submissions[i].request || t->submissions[i].request->id != id))
        i++;
    CHECK(i < t->run->request_count);
    return t->submissions[i].request_idx;
}

static void draw_submissions(struct execution *t) {
    struct rng rng = {.seed = 40000 + t->run->number};
    for (uint32_t i = 0; i < t->run->request_count; i++) {
        struct submission *r = &t->submissions[i];
        *r = (struct submission){.request_idx = (uint32_t)rng_below(&rng, t->run->request_end),
                                 .n = 1};
        r->submit_step = (uint32_t)rng_below(&rng, 40);
        if (rng_below(&rng, 5) == 0) r->n = CHOICES;
        if (rng_below(&rng, 9) == 0)
            r->cancel_step = r->submit_step + 1 + (uint32_t)rng_below(&rng, 30);
        r->is_batch = t->run->number % 3 > 0 && i % 3 == 0;
    }
}

/* Neighbours differ in tenant and in urgency; one request in three has the same tenant. */
static enum status submit_one(struct execution *t, uint32_t i, struct err *err) {
    struct submission *r = &t->submissions[i];
    struct request_spec spec = spec_of(&t->model->requests[r->request_idx]);
    spec.n = r->n;
    spec.is_batch = r->is_batch;
    spec.tenant = i % 3;
    spec.urgency.priority = (int32_t)(i % 4);
    if (i % 2) spec.urgency.ttft_target_us = 100000000;
    TRY(batch_drafts_predict(&t->drafts, r->request_idx, &spec.speculation, err));
    return engine_submit(t->service.engine, &spec, &r->request, err);
}

/* An engine takes few batch lines at a time: the others are submitted later. */
static enum status submit_when_there_is_room(struct execution *t, uint32_t i, struct err *err) {
    struct submission *r = &t->submissions[i];
    enum status st = submit_one(t, i, err);
    if (st != ST_FULL || !r->is_batch) return st;
    r->submit_step++;
    return ST_OK;
}

static enum status run_step(struct execution *t, uint32_t step, struct err *err) {
    for (uint32_t i = 0; i < t->run->request_count; i++) {
        struct submission *r = &t->submissions[i];
        if (r->submit_step == step) TRY(submit_when_there_is_room(t, i, err));
        if (r->cancel_step != step || step == 0) continue;
        if (r->request)
            engine_cancel(t->service.engine, r->request);
        else
            r->cancel_step++;
    }
    bool did_work;
    TRY(engine_step(t->service.engine, &did_work));
    t->clock.now_us += did_work ? STEP_US : IDLE_US;
    if (step % VERIFY_EVERY == 0) engine_verify(t->service.engine);
    for (struct choice *c; (c = engine_next(t->service.engine, 0));) request_unref(c->request);
    return ST_OK;
}

static bool all_ended(const struct execution *t) {
    for (uint32_t i = 0; i < t->run->request_count; i++) {
        const struct request *r = t->submissions[i].request;
        if (!r) return false;
        for (uint32_t c = 0; c < r->n; c++)
            if (atomic_load(&r->choices[c].finish) == FINISH_NONE) return false;
    }
    return true;
}

static enum status run_to_end(struct execution *t, struct err *err) {
    for (uint32_t step = 0; step < STEPS_MAX; step++) {
        TRY(run_step(t, step, err));
        if (all_ended(t)) return ST_OK;
    }
    return err_set(err, ST_BAD, "stuck after %d steps", STEPS_MAX);
}

/* ---- comparing ---- */

/* `count` of them; all, or for a cancelled one as many as it got. */
static enum status compare(const struct choice *c, const struct answer_bits *want, uint32_t count,
                           struct err *err) {
    for (uint32_t i = 0; i < count; i++) {
        int32_t token = c->tokens[c->prompt_tokens + i];
        if (token != want->tokens[i])
            return err_set(err, ST_BAD, "token %u is %d, alone it is %d", i, token,
                           want->tokens[i]);
        if (memcmp(&c->logprobs[i], &want->logprobs[i], sizeof(c->logprobs[i])) != 0)
            return err_set(err, ST_BAD, "logprob %u is %.9g, alone it is %.9g", i,
                           (double)c->logprobs[i].logprob, (double)want->logprobs[i].logprob);
    }
    return ST_OK;
}

static void note_choice(struct coverage *seen, const struct execution *t, const struct choice *c) {
    const struct knobs *k = &t->run->knobs;
    seen->pairs++;
    seen->pairs_by_policy[t->run->number % policy_count()]++;
    seen->forked += c->request->n > 1;
    seen->cached += c->cached_tokens > 0;
    seen->cached_midway += c->cached_tokens > 0 && c->cached_tokens + 16 < c->prompt_tokens;
    seen->preempted += c->preempt_count > 0;
    seen->guided += c->request->grammar != NULL;
    seen->guided_preempted += c->request->grammar && c->preempt_count > 0;
    seen->lines += c->request->is_batch;
    seen->lines_preempted += c->request->is_batch && c->preempt_count > 0;
    seen->chunked += k->chunk_tokens > 0 && k->chunk_tokens < c->prompt_tokens;
    seen->threads_1 += k->threads == 1;
    seen->threads_2 += k->threads == 2;
    seen->batched += k->max_seqs > 2;
    seen->uncached += !k->prefix_cache;
    seen->block_sizes[k->block_size / 32]++;
    if (c->accepted == 0) return;
    seen->speculated++;
    seen->speculated_preempted += c->preempt_count > 0;
    seen->speculated_guided += c->request->grammar != NULL;
    seen->speculated_sampled += sampler_seed(c->sampler) > 0;
}

static enum status check_choice(struct execution *t, const struct submission *r, uint32_t choice,
                                struct err *err) {
    const struct choice *c = &r->request->choices[choice];
    const struct answer_bits *want =
        test_model_reference(t->model, t->run->knobs.kv_type, r->request_idx, choice, err);
    if (!want) return ST_BAD;
    uint32_t ready;
    enum finish_reason finish = choice_poll(c, &ready);
    uint32_t count = ready - c->prompt_tokens;
    bool cancelled = finish == FINISH_CANCELLED && r->cancel_step > 0;
    if (!cancelled && (finish != FINISH_LENGTH || count != want->count))
        return err_set(err, ST_BAD, "ended as %s after %u tokens: %s", finish_name(finish), count,
                       c->request->refusal.text);
    note_choice(t->seen, t, c);
    t->seen->cancelled += cancelled;
    bool greedy = !(t->model->requests[r->request_idx].sample.temperature > 0);
    t->seen->greedy += greedy;
    t->seen->sampled += !greedy;
    return compare(c, want, count, err);
}

static enum status check_submissions(struct execution *t, struct err *err) {
    for (uint32_t i = 0; i < t->run->request_count; i++)
        for (uint32_t c = 0; c < t->submissions[i].n; c++) {
            if (check_choice(t, &t->submissions[i], c, err) == ST_OK) continue;
            char who[64];
            snprintf(who, sizeof(who), "submission %u (request %u, choice %u)", i,
                     t->submissions[i].request_idx, c);
            return err_prefix(err, ST_BAD, who);
        }
    return ST_OK;
}

static void note_run(struct execution *t) {
    struct sched_stats stats = sched_stats(engine_sched(t->service.engine));
    t->seen->swapped += stats.swapped_out > 0;
    t->seen->recomputed += stats.recomputed_tokens > 0;
    t->seen->drafted += stats.drafts.drafted;
    t->seen->accepted += stats.drafts.accepted;
}

enum status batch_run_check(struct test_model *l, const struct batch_run *r, struct coverage *seen,
                            struct err *err) {
    struct execution t = {.model = l, .run = r, .seen = seen};
    set_clock_init(&t.clock);
    TRY(open_engine(l, r, &t.clock, &t.service, err));
    t.drafts = (struct batch_drafts){
        .model = l, .run = r, .service = &t.service, .request_of = find_request, .ctx = &t};
    draw_submissions(&t);
    enum status st = batch_drafts_plug(&t.drafts, err);
    if (st == ST_OK) st = run_to_end(&t, err);
    if (st == ST_OK) st = check_submissions(&t, err);
    note_run(&t);
    for (uint32_t i = 0; i < r->request_count; i++) request_unref(t.submissions[i].request);
    service_close(&t.service);
    if (st == ST_OK) return ST_OK;
    char where[128];
    snprintf(where, sizeof(where), "%s, run %u, %s", l->name, r->number, r->policy->name);
    return err_prefix(err, st, where);
}
