/* engine/profile.c - see engine/profile.h for the contract. */
#include "engine/profile.h"

#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/profile_int.h"
#include "engine/runner_local.h"
#include "kv/cache.h"

enum { WARM_STEPS = 2, SPARE_BLOCKS = 8, TOKENS_SEED = 1 };

struct rig {
    struct loaded_model *loaded;
    struct profile_shape shape;
    struct profile_options options;
    uint32_t tokens_max; /* of a sequence */
    struct kv_cache *cache;
    struct runner runner;
    struct plan plan;
    kv_seq *kv;                /* by sequence */
    int32_t *tokens;           /* [seqs][tokens_max] */
    struct sampler **samplers; /* by sequence */
    struct laps laps;

    /* Filled while the device is watched. */
    uint8_t *part_of; /* by op */
    struct device_times times;
    struct profile *out;
};

static void take_times(void *ctx, const struct device_run *run, const struct device_times *times) {
    struct rig *r = ctx;
    if (r->out->part_count == 0) profile_sort_ops(&r->loaded->device, run, r->out, r->part_of);
    r->times = *times;
}

/* ---- making ---- */

static enum status check_shape(const struct loaded_model *loaded, const struct profile_shape *s,
                               struct err *err) {
    if (model_is_encoder(loaded->model))
        return err_set(err, ST_BAD, "the model gives embeddings and has no steps to profile");
    if (!loaded->device.profiler)
        return err_set(err, ST_BAD, "device %s does not support profiling; use --device cpu",
                       loaded->device.name);
    if (s->ctx + s->rows <= loaded->ctx_tokens) return ST_OK;
    return err_set(err, ST_BAD, "a step of %u tokens after %u does not fit a context of %u",
                   s->rows, s->ctx, loaded->ctx_tokens);
}

static enum status make_tables(struct rig *r, struct err *err) {
    size_t seqs = r->shape.seqs;
    r->kv = mem_zalloc_array(seqs, sizeof(*r->kv));
    r->tokens = mem_zalloc_array(seqs * r->tokens_max, sizeof(*r->tokens));
    r->samplers = mem_zalloc_array(seqs, sizeof(struct sampler *));
    r->part_of = mem_zalloc(TAPE_OPS_MAX);
    if (!r->kv || !r->tokens || !r->samplers || !r->part_of)
        return err_set(err, ST_NOMEM, "out of memory for %zu sequences", seqs);
    uint32_t vocab = r->loaded->model->hp.vocab;
    for (size_t i = 0; i < seqs * r->tokens_max; i++)
        r->tokens[i] = (int32_t)(rng_at(TOKENS_SEED, 0, i) % vocab);
    return ST_OK;
}

static enum status make_cache(struct rig *r, uint32_t block_count, struct err *err) {
    struct kv_cache_options o = {.block_tokens = r->loaded->device.kv_block_tokens,
                                 .group_count = r->loaded->model->kv_group_count,
                                 .seq_max = r->shape.seqs,
                                 .tokens_max = r->tokens_max};
    for (uint32_t g = 0; g < o.group_count; g++) o.groups[g].block_count = block_count;
    TRY(kv_cache_create(&r->cache, &o, err));
    for (uint32_t i = 0; i < r->shape.seqs; i++) {
        enum status st = kv_seq_open(r->cache, (struct kv_salt){0}, &r->kv[i]);
        if (st == ST_OK) st = kv_seq_grow(r->cache, r->kv[i], r->tokens_max, NULL);
        if (st != ST_OK) return err_set(err, st, "no blocks for %u sequences", r->shape.seqs);
    }
    return ST_OK;
}

static enum status make_runner(struct rig *r, uint32_t block_count, struct err *err) {
    uint32_t rows = r->shape.seqs * r->shape.rows;
    uint32_t block = r->loaded->device.kv_block_tokens;
    struct runner_local_options o = {.kv = {.type = r->options.kv_type, .block_tokens = block},
                                     .seq_max = r->shape.seqs,
                                     .row_max = rows > block ? rows : block,
                                     .sample_max = r->shape.seqs,
                                     .tokens_max = r->tokens_max};
    for (uint32_t g = 0; g < r->loaded->model->kv_group_count; g++)
        o.kv.block_counts[g] = block_count;
    return runner_local_open(r->loaded, r->cache, &o, &r->runner, err);
}

static enum status begin_seqs(struct rig *r, struct err *err) {
    struct sample_params params = sample_params_default();
    uint32_t steps_max = r->options.steps_max + WARM_STEPS;
    struct sample_bounds bounds = {r->loaded->model->hp.vocab, r->tokens_max + steps_max};
    params.no_logprobs = true;
    for (uint32_t i = 0; i < r->shape.seqs; i++) {
        params.seed = i;
        TRY(sampler_create(&params, &bounds, &r->samplers[i], err));
        r->runner.begin(r->runner.self, i,
                        &(struct runner_seq){.sampler = r->samplers[i],
                                             .prompt_tokens = r->tokens_max,
                                             .ignore_end = true});
    }
    return ST_OK;
}

/* ---- running ---- */

static enum status run_plan(struct rig *r, struct err *err) {
    struct step_result result;
    TRY(r->runner.submit(r->runner.self, &r->plan, err));
    TRY(r->runner.collect(r->runner.self, &result, err));
    for (uint32_t i = 0; i < result.row_count; i++)
        if (result.rows[i].failed)
            return err_set(err, ST_BAD, "the model's logits are not numbers");
    return ST_OK;
}

static void push_row(struct rig *r, uint32_t seq, uint32_t first, uint32_t count, bool samples) {
    CHECK(r->plan.row_count < r->plan.row_cap);
    r->plan.rows[r->plan.row_count++] =
        (struct plan_row){.seq = seq,
                          .first = first,
                          .count = count,
                          .samples = samples,
                          .kv = r->kv[seq],
                          .tokens = r->tokens + (size_t)seq * r->tokens_max};
    r->plan.token_count += count;
    r->plan.sample_count += samples;
}

/* Block `from` of a group to all others of it. */
static void push_copies(struct rig *r, uint32_t group, uint32_t from, uint32_t block_count) {
    struct kv_moves *moves = &r->plan.moves;
    for (uint32_t to = 0; to < block_count; to++)
        if (to != from)
            moves->list[moves->count++] = (struct kv_move){KV_MOVE_COPY, group, from, to};
}

/* Compute the first block of the first sequence and copy it to all others of its group. Memory
 * that nothing was written to would be one page of zeros, which no step ever reads. */
static enum status fill_cache(struct rig *r, uint32_t block_count, struct err *err) {
    uint32_t block = r->loaded->device.kv_block_tokens;
    uint32_t count = r->tokens_max < block ? r->tokens_max : block;
    plan_clear(&r->plan);
    push_row(r, 0, 0, count, false);
    TRY(run_plan(r, err));
    plan_clear(&r->plan);
    for (uint32_t g = 0; g < r->loaded->model->kv_group_count; g++)
        push_copies(r, g, kv_seq_table(r->cache, r->kv[0], g)[0], block_count);
    return run_plan(r, err);
}

/* Room for the times of all steps; the device has reported how many ops there are. */
static enum status make_laps(struct rig *r, struct err *err) {
    r->laps = (struct laps){.op_count = r->times.op_count, .steps_max = r->options.steps_max};
    size_t things = (size_t)r->times.op_count + LAPS_MORE;
    r->laps.list = mem_zalloc_array(things * r->laps.steps_max, sizeof(struct lap_us));
    if (r->laps.list) return ST_OK;
    return err_set(err, ST_NOMEM, "out of memory for the times of %u steps", r->laps.steps_max);
}

/* An op's time is the mean of all threads'. */
static void add_laps(struct rig *r, double step_us) {
    const struct device_times *t = &r->times;
    struct laps *l = &r->laps;
    double scale = 1e-3 / t->thread_count, run_us = (double)t->run_ns * 1e-3, ops_us = 0;
    for (uint32_t op = 0; op < t->op_count; op++) {
        struct lap_us *lap = &laps_of(l, op)[l->count];
        for (uint32_t i = 0; i < t->thread_count; i++) {
            size_t at = (size_t)i * t->op_count + op;
            lap->wait += (double)t->wait_ns[at] * scale;
            lap->all += (double)(t->work_ns[at] + t->wait_ns[at]) * scale;
        }
        ops_us += lap->all;
    }
    laps_of(l, l->op_count + LAP_AROUND)[l->count].all = run_us - ops_us;
    laps_of(l, l->op_count + LAP_SAMPLING)[l->count].all = step_us - run_us;
    laps_of(l, l->op_count + LAP_STEP)[l->count].all = step_us;
    l->count++;
}

static enum status run_steps(struct rig *r, struct err *err) {
    plan_clear(&r->plan);
    for (uint32_t i = 0; i < r->shape.seqs; i++) push_row(r, i, r->shape.ctx, r->shape.rows, true);
    for (int i = 0; i < WARM_STEPS; i++) TRY(run_plan(r, err));
    TRY(make_laps(r, err));
    int64_t begin_ns = clock_fine_ns(), end_ns = begin_ns;
    while (r->laps.count < r->options.steps_max) {
        bool is_late = end_ns - begin_ns > r->options.budget_us * 1000;
        if (r->laps.count >= PROFILE_STEPS_MIN && is_late) break;
        int64_t from_ns = clock_fine_ns();
        TRY(run_plan(r, err));
        end_ns = clock_fine_ns();
        add_laps(r, (double)(end_ns - from_ns) * 1e-3);
    }
    profile_reduce(&r->laps, r->part_of, r->out);
    return ST_OK;
}

static enum status run_all(struct rig *r, struct err *err) {
    uint32_t block = r->loaded->device.kv_block_tokens;
    uint32_t per_seq = (r->tokens_max + block - 1) / block;
    uint32_t block_count = r->shape.seqs * per_seq + SPARE_BLOCKS;
    uint32_t groups = r->loaded->model->kv_group_count;
    struct device *dev = &r->loaded->device;
    TRY(make_tables(r, err));
    TRY(make_cache(r, block_count, err));
    if (plan_init(&r->plan, r->shape.seqs, groups * block_count) != ST_OK)
        return err_set(err, ST_NOMEM, "out of memory for a plan of %u rows", r->shape.seqs);
    TRY(make_runner(r, block_count, err));
    TRY(begin_seqs(r, err));
    TRY(fill_cache(r, block_count, err));
    if (dev->profiler->watch(dev->self, take_times, r) != ST_OK)
        return err_set(err, ST_NOMEM, "out of memory for the times of ops");
    return run_steps(r, err);
}

static void drop(struct rig *r) {
    struct device *dev = &r->loaded->device;
    if (dev->profiler) dev->profiler->watch(dev->self, NULL, NULL);
    if (r->runner.close) r->runner.close(r->runner.self);
    for (uint32_t i = 0; r->samplers && i < r->shape.seqs; i++) sampler_destroy(r->samplers[i]);
    plan_deinit(&r->plan);
    kv_cache_destroy(r->cache);
    mem_free(r->kv);
    mem_free(r->tokens);
    mem_free(r->samplers);
    mem_free(r->laps.list);
    mem_free(r->part_of);
}

enum status profile_step(struct loaded_model *loaded, const struct profile_shape *shape,
                         const struct profile_options *options, struct profile *out,
                         struct err *err) {
    CHECK(shape->seqs > 0);
    CHECK(shape->rows > 0);
    CHECK(options->steps_max >= PROFILE_STEPS_MIN);
    *out = (struct profile){.shape = *shape};
    TRY(check_shape(loaded, shape, err));
    struct rig r = {.loaded = loaded,
                    .shape = *shape,
                    .options = *options,
                    .tokens_max = shape->ctx + shape->rows,
                    .out = out};
    enum status st = run_all(&r, err);
    drop(&r);
    return st;
}
