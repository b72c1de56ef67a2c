/* engine/runner_local.c - see engine/runner_local.h for the contract.
 *
 * A step: the plan's moves, then its rows as one forward pass, then sampling, shared out over
 * the device's threads. The pipeline has depth 0: submit does everything, collect hands over.
 *
 * A *wide* row is one of a prompt whose own logprobs are wanted. There is room for the logits of
 * few rows at once, so it is computed by itself, in slices of so many.
 */
#include "engine/runner_local.h"

#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/fvec.h"
#include "base/mem.h"
#include "engine/request.h"
#include "engine/spill.h"
#include "graph/step.h"
#include "kernels/cpu/choose.h"
#include "kv/cache.h"

enum { WIDE_TOKENS = 64 }; /* in a slice of a wide row, at least, where steps are that large */

/* A slice of a wide row, while its logits are looked at. */
struct slice {
    uint32_t row; /* of the plan */
    uint32_t first, count;
    atomic_bool failed;
};

/* What one thread samples with. */
struct picker {
    struct chooser *chooser;
    struct sampling_tables tables; /* of one row */
};

struct local {
    struct host *host;
    const struct kv_cache *kv_cache;
    struct runner_local_options options;
    struct pass pass;
    struct kv_memory kv;
    struct spill spill;
    uint32_t tiles_per_block;
    struct runner_seq *seqs; /* seq_max; sampler NULL: not begun */
    struct picker *pickers;  /* one per thread of the host */

    /* Step tables. */
    int32_t *token, *pos;       /* row_max */
    uint32_t *seq, *output_row; /* row_max, output_max */
    struct step_seq *step_seqs; /* sample_max */
    uint32_t *tiles; /* sample_max * groups * tiles of the longest, if blocks are not tiles */
    uint32_t tiles_max, output_max;
    struct slice slice;

    struct row_result *results; /* sample_max */
    struct step_result result;
    const struct plan *plan;
    const float *logits;
    size_t row_floats;
};

static void local_begin(void *self, seq_idx seq, const struct runner_seq *info) {
    struct local *l = self;
    CHECK(seq < l->options.seq_max);
    CHECK(!l->seqs[seq].sampler);
    CHECK(info->sampler);
    CHECK(sampler_edits_max(info->sampler) <= l->pickers[0].tables.edit_cap);
    l->seqs[seq] = *info;
}

static void local_end(void *self, seq_idx seq) {
    struct local *l = self;
    CHECK(seq < l->options.seq_max);
    l->seqs[seq] = (struct runner_seq){.sampler = NULL};
}

static void do_moves(struct local *l, const struct kv_moves *moves) {
    for (uint32_t i = 0; i < moves->count; i++) {
        const struct kv_move *m = &moves->list[i];
        switch (m->kind) {
        case KV_MOVE_OUT:
            spill_out(&l->spill, &l->kv, m->group, m->from, m->to);
            break;
        case KV_MOVE_IN:
            spill_in(&l->spill, &l->kv, m->group, m->from, m->to);
            break;
        case KV_MOVE_COPY:
            kv_memory_copy(&l->kv, l->tiles_per_block, m->group, m->from, m->to);
            break;
        }
    }
}

/* The device counts in tiles, the cache in blocks of several. */
static const uint32_t *tiles_of(struct local *l, const struct plan_row *row, uint32_t index,
                                uint32_t group) {
    const uint32_t *table = kv_seq_table(l->kv_cache, row->kv, group);
    uint32_t m = l->tiles_per_block;
    if (m == 1) return table;
    uint32_t *out = l->tiles + ((size_t)index * l->kv.group_count + group) * l->tiles_max;
    uint32_t count = (row->first + row->count + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    for (uint32_t t = 0; t < count; t++) {
        uint32_t block = table[t / m];
        out[t] = block == UINT32_MAX ? UINT32_MAX : block * m + t % m;
    }
    return out;
}

/* Tokens [first, first + count) of a plan's row join the step. */
static void fill_row(struct local *l, const struct plan_row *row, uint32_t first, uint32_t count,
                     struct step *step) {
    uint32_t index = step->seq_count++;
    struct step_seq *seq = &l->step_seqs[index];
    seq->first_row = step->row_count;
    seq->row_count = count;
    for (uint32_t g = 0; g < l->kv.group_count; g++) seq->blocks[g] = tiles_of(l, row, index, g);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t r = step->row_count++;
        l->token[r] = row->tokens[first + i];
        l->pos[r] = (int32_t)(first + i);
        l->seq[r] = index;
    }
}

static bool is_wide(const struct local *l, const struct plan_row *row) {
    const struct runner_seq *seq = &l->seqs[row->seq];
    return seq->prompt_logprobs && row->first + 1 < seq->prompt_tokens;
}

static struct step empty_step(const struct local *l) {
    return (struct step){.token = l->token,
                         .pos = l->pos,
                         .seq = l->seq,
                         .output_row = l->output_row,
                         .seqs = l->step_seqs};
}

/* All rows but the wide ones. */
static struct step fill_step(struct local *l, const struct plan *plan) {
    struct step step = empty_step(l);
    CHECK(plan->token_count <= l->options.row_max);
    CHECK(plan->row_count <= l->options.sample_max);
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        if (is_wide(l, row)) continue;
        fill_row(l, row, row->first, row->count, &step);
        if (row->samples) l->output_row[step.output_count++] = step.row_count - 1;
    }
    return step;
}

static bool is_usable(const float *logits, uint32_t vocab) {
    return !fvec_at(0)->has_nan(logits, vocab);
}

static enum status pick(struct picker *p, const struct sampler *sampler, const float *logits,
                        uint32_t pos, struct sample_result *out) {
    struct sampling sampling;
    p->tables.edit_count = 0;
    TRY(sampler_describe(sampler, pos, false, &p->tables, &sampling));
    return choose(p->chooser, &sampling, &p->tables, -1, logits, out);
}

/* Sample after row `i` of the plan, whose logits are the output-th. */
static void sample_row(struct local *l, uint32_t i, uint32_t output, struct picker *picker) {
    const struct plan_row *row = &l->plan->rows[i];
    struct row_result *out = &l->results[i];
    struct runner_seq *seq = &l->seqs[row->seq];
    const float *logits = l->logits + output * l->row_floats;
    uint32_t pos = row->first + row->count;
    struct sample_result picked;
    if (!is_usable(logits, l->host->model->hp.vocab) ||
        pick(picker, seq->sampler, logits, pos, &picked) != ST_OK) {
        out->failed = true;
        return;
    }
    sampler_accept(seq->sampler, picked.chosen.token);
    if (seq->logprobs) seq->logprobs[pos - seq->prompt_tokens] = picked.chosen;
    if (seq->tops) seq->tops[pos - seq->prompt_tokens] = picked;
    out->token = picked.chosen.token;
    out->is_end = runner_is_among(seq->ends, seq->end_count, out->token);
}

/* Every thread_count-th sampling row is this thread's. */
static void sample_share(void *ctx, uint32_t thread_idx, uint32_t thread_count) {
    struct local *l = ctx;
    uint32_t output = 0;
    CHECK(thread_count <= l->host->threads);
    for (uint32_t i = 0; i < l->plan->row_count; i++) {
        if (!l->plan->rows[i].samples || is_wide(l, &l->plan->rows[i])) continue;
        if (output % thread_count == thread_idx) sample_row(l, i, output, &l->pickers[thread_idx]);
        output++;
    }
}

static void run_step(struct local *l, const struct step *step, pool_fn *then) {
    l->logits = pass_run(l->host, &l->pass, step, l->kv.spaces, &l->row_floats);
    l->host->device.parallel(l->host->device.self, then, l);
}

/* ---- wide rows ---- */

/* The logits after position p say what the model thinks of the token that stands at p + 1. */
static void score_token(struct local *l, uint32_t p, uint32_t output, struct picker *picker) {
    const struct plan_row *row = &l->plan->rows[l->slice.row];
    struct runner_seq *seq = &l->seqs[row->seq];
    const float *logits = l->logits + output * l->row_floats;
    struct sampling sampling;
    struct sample_result scored;
    if (!is_usable(logits, l->host->model->hp.vocab)) {
        atomic_store(&l->slice.failed, true);
        return;
    }
    sampler_describe_score(seq->sampler, row->tokens[p + 1], &sampling);
    CHECK(choose(picker->chooser, &sampling, NULL, -1, logits, &scored) == ST_OK);
    seq->prompt_logprobs[p + 1] = scored.chosen;
    if (seq->prompt_tops) seq->prompt_tops[p + 1] = scored;
}

/* Every thread_count-th token of the slice is this thread's. */
static void score_share(void *ctx, uint32_t thread_idx, uint32_t thread_count) {
    struct local *l = ctx;
    const struct plan_row *row = &l->plan->rows[l->slice.row];
    uint32_t prompt_tokens = l->seqs[row->seq].prompt_tokens;
    for (uint32_t i = thread_idx; i < l->slice.count; i += thread_count) {
        uint32_t p = l->slice.first + i;
        if (p + 1 < prompt_tokens) score_token(l, p, i, &l->pickers[thread_idx]);
        if (row->samples && p + 1 == row->first + row->count)
            sample_row(l, l->slice.row, i, &l->pickers[thread_idx]);
    }
}

static void run_wide(struct local *l, uint32_t i) {
    const struct plan_row *row = &l->plan->rows[i];
    uint32_t end = row->first + row->count;
    bool failed = false;
    for (uint32_t first = row->first; first < end && !failed; first += l->slice.count) {
        uint32_t count = end - first < l->output_max ? end - first : l->output_max;
        struct step step = empty_step(l);
        fill_row(l, row, first, count, &step);
        for (uint32_t r = 0; r < count; r++) l->output_row[r] = r;
        step.output_count = count;
        l->slice.row = i;
        l->slice.first = first;
        l->slice.count = count;
        atomic_store(&l->slice.failed, false);
        run_step(l, &step, score_share);
        failed = atomic_load(&l->slice.failed);
    }
    if (failed) l->results[i].failed = true;
}

/* ---- the step ---- */

static void run_rows(struct local *l, const struct plan *plan) {
    struct step step = fill_step(l, plan);
    if (step.row_count > 0) run_step(l, &step, sample_share);
    for (uint32_t i = 0; i < plan->row_count; i++)
        if (is_wide(l, &plan->rows[i])) run_wide(l, i);
}

static enum status local_submit(void *self, const struct plan *plan, struct err *err) {
    (void)err;
    struct local *l = self;
    int64_t start_us = clock_now(&clock_real);
    l->plan = plan;
    memset(l->results, 0, plan->row_count * sizeof(l->results[0]));
    host_lock(l->host);
    do_moves(l, &plan->moves);
    run_rows(l, plan);
    host_unlock(l->host);
    l->result = (struct step_result){.rows = l->results,
                                     .row_count = plan->row_count,
                                     .elapsed_us = clock_now(&clock_real) - start_us};
    return ST_OK;
}

static enum status local_collect(void *self, struct step_result *result, struct err *err) {
    (void)err;
    *result = ((struct local *)self)->result;
    return ST_OK;
}

static void local_close(void *self) {
    struct local *l = self;
    spill_close(&l->spill);
    kv_memory_destroy(l->host, &l->kv);
    pass_destroy(l->host, &l->pass);
    for (uint32_t t = 0; l->pickers && t < l->host->threads; t++) {
        chooser_destroy(l->pickers[t].chooser);
        mem_free(l->pickers[t].tables.edits);
    }
    mem_free(l->pickers);
    mem_free(l->seqs);
    mem_free(l->token);
    mem_free(l->pos);
    mem_free(l->seq);
    mem_free(l->output_row);
    mem_free(l->step_seqs);
    mem_free(l->tiles);
    mem_free(l->results);
    mem_free(l);
}

static enum status make_tables(struct local *l, struct err *err) {
    const struct runner_local_options *o = &l->options;
    l->tiles_max = (o->tokens_max + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    size_t tiles =
        l->tiles_per_block == 1 ? 1 : (size_t)o->sample_max * l->kv.group_count * l->tiles_max;
    l->seqs = mem_zalloc_array(o->seq_max, sizeof(*l->seqs));
    l->token = mem_zalloc_array(o->row_max, sizeof(*l->token));
    l->pos = mem_zalloc_array(o->row_max, sizeof(*l->pos));
    l->seq = mem_zalloc_array(o->row_max, sizeof(*l->seq));
    l->output_row = mem_zalloc_array(l->output_max, sizeof(*l->output_row));
    l->step_seqs = mem_zalloc_array(o->sample_max, sizeof(*l->step_seqs));
    l->tiles = mem_zalloc_array(tiles, sizeof(*l->tiles));
    l->results = mem_zalloc_array(o->sample_max, sizeof(*l->results));
    bool has_room = l->seqs && l->token && l->pos && l->seq && l->output_row && l->step_seqs;
    if (has_room && l->tiles && l->results) return ST_OK;
    return err_set(err, ST_NOMEM, "out of memory for the tables of %u rows", o->row_max);
}

/* Penalties name a token once; so do the model's ends. */
static enum status make_picker(uint32_t vocab, struct picker *p) {
    p->tables.edit_cap = 2 * vocab + LOGIT_BIAS_MAX + STOP_TOKENS_MAX;
    p->tables.edits = mem_alloc_array(p->tables.edit_cap, sizeof(p->tables.edits[0]));
    return p->tables.edits ? chooser_create(vocab, &p->chooser) : ST_NOMEM;
}

static enum status make_pickers(struct local *l, struct err *err) {
    uint32_t threads = l->host->threads, vocab = l->host->model->hp.vocab;
    l->pickers = mem_zalloc_array(threads, sizeof(l->pickers[0]));
    enum status st = l->pickers ? ST_OK : ST_NOMEM;
    for (uint32_t t = 0; t < threads && st == ST_OK; t++) st = make_picker(vocab, &l->pickers[t]);
    if (st == ST_OK) return ST_OK;
    return err_set(err, st, "out of memory for sampling from %u tokens", vocab);
}

static enum status open_memory(struct local *l, struct err *err) {
    const struct runner_local_options *o = &l->options;
    uint32_t tiles[KV_GROUPS_MAX] = {0};
    l->output_max = o->row_max < WIDE_TOKENS ? o->row_max : WIDE_TOKENS;
    if (l->output_max < o->sample_max) l->output_max = o->sample_max;
    struct tape_sizes sizes = {o->row_max, l->output_max, o->sample_max};
    for (uint32_t g = 0; g < l->host->model->kv_group_count; g++) {
        if (o->block_counts[g] > UINT32_MAX / l->tiles_per_block)
            return err_set(err, ST_BAD, "%u blocks are more than can be numbered",
                           o->block_counts[g]);
        tiles[g] = o->block_counts[g] * l->tiles_per_block;
    }
    TRY(pass_create(l->host, GOAL_LOGITS, &sizes, &l->pass, err));
    TRY(kv_memory_create(l->host, o->kv_type, tiles, &l->kv, err));
    TRY(spill_open(&l->spill, &l->kv, l->tiles_per_block, o->spill_slots, o->spill_dir, err));
    TRY(make_pickers(l, err));
    return make_tables(l, err);
}

enum status runner_local_open(struct host *host, const struct kv_cache *kv,
                              const struct runner_local_options *options, struct runner *out,
                              struct err *err) {
    if (options->block_tokens % KV_BLOCK_TOKENS != 0 || options->block_tokens == 0)
        return err_set(err, ST_BAD, "block_size is %u, expected a multiple of %d",
                       options->block_tokens, KV_BLOCK_TOKENS);
    struct local *l = mem_zalloc(sizeof(*l));
    if (!l) return err_set(err, ST_NOMEM, "out of memory for a runner");
    l->host = host;
    l->kv_cache = kv;
    l->options = *options;
    l->tiles_per_block = options->block_tokens / KV_BLOCK_TOKENS;
    enum status st = open_memory(l, err);
    if (st != ST_OK) {
        local_close(l);
        return st;
    }
    *out = (struct runner){.name = "local",
                           .begin = local_begin,
                           .end = local_end,
                           .submit = local_submit,
                           .collect = local_collect,
                           .close = local_close,
                           .self = l};
    return ST_OK;
}

size_t runner_local_scratch_bytes(const struct runner *runner) {
    CHECK(runner->close == local_close);
    return tape_slab_bytes(((const struct local *)runner->self)->pass.tape);
}
