/* engine/service.c - see engine/service.h for the contract. */
#include "engine/service.h"

#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/kv_budget.h"
#include "engine/runner_local.h"
#include "engine/runner_sim.h"
#include "engine/sim_words.h"
#include "sched/cost.h"
#include "spec/spec.h"
#include "text/tokenizer.h"

static const uint64_t KV_BYTES_DEFAULT = (uint64_t)1 << 30;
enum { KV_BLOCKS_MAX = 1 << 24 }; /* as for the knob: tables grow with the blocks */
enum { PATH_BYTES = 4096 };
_Static_assert((int)KV_GROUPS_MAX <= (int)KV_CACHE_GROUPS_MAX, "every group of a model has a pool");
static const char SPILL_DIR_DEFAULT[] = "/tmp";

/* Indexed by struct knobs.kv_type. */
static const enum kv_type kv_types[] = {KV_F16, KV_F32, KV_I8, KV_F8, KV_I4};

static enum status check_model(const struct loaded_model *loaded, const char *path,
                               struct err *err) {
    if (!model_is_encoder(loaded->model)) return ST_OK;
    return err_set(
        err, ST_BAD,
        "%s is an encoder: it gives embeddings and generates no text; use \"jitney embed\" or "
        "POST /v1/embeddings",
        path);
}

static enum status check_knobs(const struct knobs *k, struct err *err) {
    if (k->kv_type >= sizeof(kv_types) / sizeof(kv_types[0]))
        return err_set(err, ST_BAD, "knob kv_type: number %u, expected f16, f32, int8, fp8 or int4",
                       k->kv_type);
    return ST_OK;
}

/* Bytes that one block of a group takes, all layers of it. */
static uint64_t group_block_bytes(struct loaded_model *loaded, const struct knobs *k,
                                  uint32_t group) {
    return loaded_model_kv_block_bytes(loaded, kv_types[k->kv_type], k->block_size, group);
}

/* The memory of one block in every group. */
static uint64_t bytes_per_block(struct loaded_model *loaded, const struct knobs *k) {
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < loaded->model->kv_group_count; g++)
        bytes += group_block_bytes(loaded, k, g);
    CHECK(bytes > 0);
    return bytes;
}

static uint64_t blocks_for(uint64_t tokens, const struct knobs *k) {
    return (tokens + k->block_size - 1) / k->block_size;
}

/* Cached prefixes may fill all KV memory if the user has given its size, and on a device with
 * memory of its own, where all of it is allocated at once. Otherwise they may fill a quarter of it,
 * and at least one whole context, so that the longest conversation is found again; the rest becomes
 * real memory only when sequences run. */
static void choose_prefix_blocks(const struct loaded_model *loaded, struct knobs *k) {
    enum { PREFIX_SHARE = 4 };
    uint64_t quarter = k->kv_blocks / PREFIX_SHARE, context = blocks_for(loaded->ctx_tokens, k);
    uint64_t wanted = quarter > context ? quarter : context;
    k->prefix_blocks = wanted < k->kv_blocks ? (uint32_t)wanted : k->kv_blocks;
}

/* The tokens of a step of the largest size. A policy that never splits prompts may run one as long
 * as the context. */
static uint32_t rows_in_step(const struct service *s, const struct sched_policy *policy) {
    uint32_t rows = s->knobs.max_step_tokens;
    return policy->whole_prompts && rows < s->loaded.ctx_tokens ? s->loaded.ctx_tokens : rows;
}

/* Drafts in one step: their logits take memory. */
static uint32_t draft_rows(const struct knobs *k) {
    return k->max_step_tokens < DRAFT_ROWS_MAX ? k->max_step_tokens : DRAFT_ROWS_MAX;
}

static struct runner_local_options runner_options(const struct service *s,
                                                  const struct sched_policy *policy,
                                                  const struct service_options *options) {
    const struct knobs *k = &s->knobs;
    const char *spill_dir = options->spill_dir;
    uint32_t logit_rows = options->logit_rows; /* a step has no more rows than max_step_tokens */
    if (logit_rows > k->max_step_tokens) logit_rows = k->max_step_tokens;
    struct runner_local_options o = {
        .kv = {.type = kv_types[k->kv_type],
               .block_tokens = k->block_size,
               .spill_slots = k->spill_blocks,
               .spill_dir = spill_dir ? spill_dir : SPILL_DIR_DEFAULT},
        .seq_max = sched_seq_max(k),
        .row_max = rows_in_step(s, policy),
        .sample_max = k->max_seqs,
        .draft_rows = draft_rows(k),
        .tokens_max = s->total_max,
        .logit_rows = logit_rows,
    };
    for (uint32_t g = 0; g < s->loaded.model->kv_group_count; g++)
        o.kv.block_counts[g] = k->kv_blocks;
    return o;
}

/* How many bytes of KV blocks the device has room for, beside weights and scratch memory. */
static enum status measure_room(struct service *s, const struct sched_policy *policy,
                                const struct service_options *o, uint64_t *bytes, struct err *err) {
    struct loaded_model *loaded = &s->loaded;
    const struct device *dev = &loaded->device;
    struct runner_local_options runner = runner_options(s, policy, o);
    struct kv_budget budget = {.device = dev->name,
                               .total_bytes = loaded->memory.total_bytes,
                               .free_bytes = loaded->memory.free_bytes,
                               .share = o->memory_share,
                               .least_bytes = blocks_for(loaded->ctx_tokens, &s->knobs) *
                                              bytes_per_block(loaded, &s->knobs),
                               .ctx_tokens = loaded->ctx_tokens};
    TRY(runner_local_measure(loaded, &runner, &budget.scratch_bytes, err));
    uint64_t now = dev->memory(dev->self).free_bytes;
    budget.weight_bytes = now < budget.free_bytes ? budget.free_bytes - now : 0;
    return kv_budget_bytes(&budget, bytes, err);
}

/* More blocks than max_seqs whole contexts could only hold old prefixes; a user who wants that sets
 * kv_blocks or kv_bytes. */
static enum status count_blocks(struct service *s, const struct sched_policy *policy,
                                const struct service_options *o, struct err *err) {
    struct loaded_model *loaded = &s->loaded;
    struct knobs *k = &s->knobs;
    if (k->kv_blocks > 0) return ST_OK;
    bool is_measured = loaded->device.memory && !o->kv_bytes && !o->is_sim;
    uint64_t bytes = o->kv_bytes ? o->kv_bytes : KV_BYTES_DEFAULT;
    if (is_measured) TRY(measure_room(s, policy, o, &bytes, err));
    uint64_t blocks = bytes / bytes_per_block(loaded, k);
    uint64_t useful = blocks_for(loaded->ctx_tokens, k) * k->max_seqs;
    if (!o->kv_bytes && blocks > useful) blocks = useful;
    if (blocks == 0)
        return err_set(err, ST_BAD, "%llu bytes of KV memory do not hold a block of %llu",
                       (unsigned long long)bytes, (unsigned long long)bytes_per_block(loaded, k));
    if (blocks > KV_BLOCKS_MAX)
        return err_set(err, ST_BAD, "%llu bytes of KV memory are %llu blocks, at most %d may be",
                       (unsigned long long)bytes, (unsigned long long)blocks, KV_BLOCKS_MAX);
    k->kv_blocks = (uint32_t)blocks;
    if (!o->kv_bytes && !is_measured && k->prefix_blocks == 0) choose_prefix_blocks(loaded, k);
    return ST_OK;
}

/* KV blocks and step sizes of a service that runs one request at a time. */
static void size_for_one(struct service *s) {
    struct knobs *k = &s->knobs;
    s->total_max = s->loaded.ctx_tokens + 1;
    k->max_seqs = k->queue_max = 1;
    k->kv_blocks = (uint32_t)blocks_for(s->total_max, k);
    k->spill_blocks = 0; /* a lone sequence is never preempted */
    if (k->max_step_tokens > s->loaded.ctx_tokens) k->max_step_tokens = s->loaded.ctx_tokens;
}

/* As kv/cache.h has it, 0 or more than there are is all of them. */
static void note_memory(struct service *s) {
    struct knobs *k = &s->knobs;
    if (k->prefix_blocks == 0 || k->prefix_blocks > k->kv_blocks) k->prefix_blocks = k->kv_blocks;
    for (uint32_t g = 0; g < s->loaded.model->kv_group_count; g++)
        s->memory.block_bytes[g] = group_block_bytes(&s->loaded, k, g);
    s->memory.kv_bytes = k->kv_blocks * bytes_per_block(&s->loaded, k);
    s->memory.prefix_bytes = k->prefix_blocks * bytes_per_block(&s->loaded, k);
}

/* Blocks are shared only within one model file and one KV number format. */
static uint64_t kv_identity(const char *path, const struct knobs *k) {
    return XXH3_64bits_withSeed(path, strlen(path), k->kv_type);
}

/* The tokens that end an answer, for the caller to free; NULL: none, or no memory. */
static int32_t *find_ends(const struct loaded_model *loaded, uint32_t *count) {
    uint32_t vocab = loaded->model->hp.vocab, found = 0;
    *count = 0;
    if (!loaded->tokenizer) return NULL;
    for (uint32_t i = 0; i < vocab; i++) *count += tokenizer_is_end(loaded->tokenizer, (int32_t)i);
    int32_t *ends = *count > 0 ? mem_alloc_array(*count, sizeof(*ends)) : NULL;
    for (uint32_t i = 0; ends && i < vocab; i++)
        if (tokenizer_is_end(loaded->tokenizer, (int32_t)i)) ends[found++] = (int32_t)i;
    return ends;
}

static enum status create_engine(struct service *s, const char *path,
                                 const struct service_options *options,
                                 const struct sched_policy *policy, struct err *err) {
    const struct model *m = s->loaded.model;
    struct engine_options o = {.vocab = m->hp.vocab,
                               .clock = options->clock,
                               .record_bytes = options->record_bytes,
                               .speculate = options->speculate,
                               .sched = {.policy = policy,
                                         .knobs = s->knobs,
                                         .ctx_tokens = s->total_max,
                                         .group_count = m->kv_group_count,
                                         .draft_rows_max = draft_rows(&s->knobs),
                                         .kv_identity = kv_identity(path, &s->knobs)}};
    if (options->secret)
        o.secret = *options->secret;
    else
        TRY(cache_secret_make(NULL, &o.secret, err));
    const struct cost_profile *start = cost_profile_find("this-cpu");
    CHECK(start);
    cost_init(&o.sched.cost, start);
    for (uint32_t l = 0; l < m->hp.layers; l++)
        if (m->layers[l].slides) o.sched.windows[m->layers[l].kv_group] = m->hp.window;
    int32_t *ends = find_ends(&s->loaded, &o.end_count);
    if (o.end_count > 0 && !ends) return err_set(err, ST_NOMEM, "out of memory for an engine");
    o.ends = ends;
    enum status st = engine_create(&s->engine, &o, err);
    mem_free(ends);
    return st;
}

static enum status plug_sim(struct service *s, const struct service_options *o, struct err *err) {
    struct runner_sim_options sim = {.seq_max = sched_seq_max(&s->knobs),
                                     .row_max = s->knobs.max_seqs,
                                     .vocab = s->loaded.model->hp.vocab,
                                     .draws_by_seed = true,
                                     .step_us = o->sim_step_us,
                                     .hang_after = o->sim_hang_after,
                                     .fail_after = o->sim_fail_after,
                                     .nan_at = o->sim_nan_at};
    struct sim_words words = {0};
    struct runner runner;
    if (s->loaded.tokenizer) TRY(sim_words_choose(&words, s->loaded.tokenizer, sim.vocab, err));
    sim.words = words.list;
    sim.word_count = words.count;
    enum status st = runner_sim_open(&sim, &runner, err);
    sim_words_deinit(&words);
    if (st == ST_OK) engine_plug(s->engine, &runner);
    return st;
}

/* No more than there can be sequences in a step. */
static uint32_t draft_lanes(const struct service *s, const struct service_options *o) {
    uint32_t wanted = o->draft_lanes > 0 ? o->draft_lanes : DRAFT_LANES_DEFAULT;
    return wanted < s->knobs.max_seqs ? wanted : s->knobs.max_seqs;
}

/* The draft model takes its memory before the KV cache is sized. */
static enum status open_draft(struct service *s, const struct service_options *o,
                              const struct loaded_model_options *load, struct err *err) {
    char path[PATH_BYTES];
    struct str text = o->speculate.path;
    if (o->speculate.kind != SPECULATE_MODEL || text.len == 0) return ST_OK;
    if (o->is_sim)
        return err_set(
            err, ST_BAD,
            "--speculate model: a simulated model has no draft model; use another drafter");
    if (text.len >= sizeof(path))
        return err_set(err, ST_BAD, "--speculate model: the path has %zu bytes; the maximum is %d",
                       text.len, PATH_BYTES - 1);
    memcpy(path, text.ptr, text.len);
    path[text.len] = 0;
    const struct draft_model_options options = {.load = *load,
                                                .block_tokens = s->knobs.block_size,
                                                .seq_max = sched_seq_max(&s->knobs),
                                                .lanes = draft_lanes(s, o),
                                                .memory_bytes = o->draft_bytes};
    return draft_model_open(path, &s->loaded, &options, &s->draft, &s->memory.draft, err);
}

static enum status plug_local(struct service *s, const struct sched_policy *policy,
                              const struct service_options *options, struct err *err) {
    struct runner_local_options o = runner_options(s, policy, options);
    struct runner runner;
    TRY(runner_local_open(&s->loaded, engine_kv(s->engine), &o, &runner, err));
    s->memory.scratch_bytes = runner_local_scratch_bytes(&runner);
    engine_plug(s->engine, &runner);
    return ST_OK;
}

static void plug_draft(struct service *s) {
    if (!s->draft.close) return;
    spec_plug_model(engine_spec(s->engine), &s->draft);
    s->draft.close = NULL;
}

static enum status create_grammars(struct service *s, const struct service_options *o,
                                   struct err *err) {
    struct grammars_options options = {.tokenizer = s->loaded.tokenizer,
                                       .vocab = s->loaded.model->hp.vocab,
                                       .time_us = o->grammar_us,
                                       .bytes_max = o->grammar_bytes,
                                       .memory_max = o->grammar_memory};
    if (!options.tokenizer) return ST_OK;
    if (grammars_create(&options, &s->grammars) == ST_OK) return ST_OK;
    return err_set(err, ST_NOMEM, "out of memory for an engine");
}

static enum status open_parts(struct service *s, const char *path, const struct service_options *o,
                              struct err *err) {
    const struct sched_policy *policy = o->policy ? o->policy : sched_policies[0];
    struct loaded_model_options options = {.threads = o->knobs.threads,
                                           .ctx_tokens = o->ctx_tokens,
                                           .device = o->device,
                                           .block_tokens = o->knobs.block_size,
                                           .kv_type = kv_types[o->knobs.kv_type],
                                           .isa = o->isa,
                                           .placement = o->placement,
                                           .fp8_weights = o->fp8_weights,
                                           .weights = o->weights,
                                           .tokens_only = o->tokens_only,
                                           .no_weights = o->is_sim,
                                           .on_progress = o->on_progress,
                                           .progress_ctx = o->progress_ctx};
    TRY(check_knobs(&o->knobs, err));
    TRY(loaded_model_open(&s->loaded, path, &options, err));
    TRY(check_model(&s->loaded, path, err));
    s->knobs.threads = s->loaded.threads;
    s->total_max = s->loaded.ctx_tokens;
    if (o->is_single) s->knobs.max_seqs = s->knobs.queue_max = 1;
    TRY(open_draft(s, o, &options, err));
    if (o->is_single)
        size_for_one(s);
    else
        TRY(count_blocks(s, policy, o, err));
    note_memory(s);
    TRY(create_engine(s, path, o, policy, err));
    plug_draft(s);
    if (o->is_sim) return plug_sim(s, o, err);
    TRY(create_grammars(s, o, err));
    return plug_local(s, policy, o, err);
}

enum status service_open(struct service *s, const char *path, const struct service_options *options,
                         struct err *err) {
    *s = (struct service){.knobs = options->knobs};
    enum status st = open_parts(s, path, options, err);
    if (st != ST_OK) service_close(s);
    return st;
}

void service_close(struct service *s) {
    engine_destroy(s->engine);
    if (s->draft.close) s->draft.close(s->draft.self);
    grammars_unref(s->grammars);
    loaded_model_close(&s->loaded);
    *s = (struct service){.engine = NULL};
}
