/* kernels/cpu/program.c - see kernels/cpu/program.h for the contract.
 *
 * Entry points: cpu_program_create, cpu_program_submit, cpu_program_collect.
 */
#include "kernels/cpu/program.h"

#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/fvec.h"
#include "base/mem.h"
#include "base/pool.h"
#include "kernels/cpu/row_sampler.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/fp_mode.h"
#include "kernels/cpu/page.h"
#include "kernels/cpu/affinity.h"
#include "kernels/cpu/workspace.h"
#include "kernels/cpu/stage.h"
#include "kernels/cpu/op_timer.h"
#include "kernels/cpu/tap.h"

enum { SLOT_EMPTY = -1 }; /* no token was sampled into it */

struct device_program {
    struct cpu_program_parts parts;
    struct program_options options;
    struct workspace *workspace;
    struct kv_space spaces[KV_GROUPS_MAX]; /* options.kv */
    struct kv_tiles tiles[KV_GROUPS_MAX];
    uint8_t *slab;
    int32_t *slots;                /* [slot_count] the token that was last sampled into each */
    struct row_sampler **samplers; /* one per thread; NULL: the output is never sampled from */
    struct row_output *outputs;    /* [outputs_max] */
    const struct step *step;       /* the one that was submitted and not collected; or NULL */
    int64_t elapsed_us;
};

/* ---- making ---- */

static enum status check_ops(const struct cpu_program_parts *parts, const struct tape *t,
                             struct err *err) {
    for (uint32_t i = 0; i < tape_op_count(t); i++) {
        const struct op *op = tape_op(t, i);
        if (!parts->table->ops[op->kind])
            return err_set(err, ST_BAD,
                           "device %s does not implement op %s (op %u of the tape, layer %d)",
                           parts->device_name, op_name(op->kind), i, op->layer);
    }
    return ST_OK;
}

/* The kept value of output 0, and how many floats lie between two of them. */
static const float *kept_rows(const struct device_program *p, size_t *row_floats) {
    value_id kept = tape_kept(p->options.tape);
    *row_floats = 0;
    if (kept == VALUE_NONE) return NULL;
    const struct tape_value *v = tape_value_at(p->options.tape, kept);
    *row_floats = v->row_bytes / sizeof(float);
    return (const float *)(const void *)(p->slab + v->offset);
}

static const struct tape_value *output_value(const struct device_program *p) {
    return tape_value_at(p->options.tape, tape_output(p->options.tape));
}

static enum status make_samplers(struct device_program *p, struct err *err) {
    uint32_t threads = pool_threads(p->parts.pool), vocab = output_value(p)->cols;
    p->slots = mem_zalloc_array(p->options.slot_count, sizeof(p->slots[0]));
    p->outputs = mem_zalloc_array(p->options.sizes.outputs_max, sizeof(p->outputs[0]));
    p->samplers = mem_zalloc_array(threads, sizeof(struct row_sampler *));
    enum status st = p->slots && p->outputs && p->samplers ? ST_OK : ST_NOMEM;
    for (uint32_t t = 0; t < threads && st == ST_OK; t++)
        st = row_sampler_create(vocab, &p->samplers[t]);
    for (uint32_t i = 0; p->slots && i < p->options.slot_count; i++) p->slots[i] = SLOT_EMPTY;
    if (st == ST_OK) return ST_OK;
    return err_set(err, st,
                   "out of memory for sampling buffers: %u threads, a vocabulary of %u tokens",
                   threads, vocab);
}

static enum status make_slab(struct device_program *p, struct err *err) {
    size_t bytes = tape_slab_bytes(p->options.tape);
    p->slab = page_alloc(bytes);
    if (!p->slab)
        return err_set(
            err, ST_NOMEM,
            "cannot allocate %zu MiB of scratch memory for steps of %u rows; lower the knob "
            "max_step_tokens or --chunk",
            bytes >> 20, p->options.sizes.rows_max);
    affinity_spread(p->parts.affinity, p->slab, bytes);
    return ST_OK;
}

static enum status make_parts(struct device_program *p, struct err *err) {
    const struct tape *t = p->options.tape;
    TRY(workspace_create(&p->workspace, t, p->parts.table->kernels, pool_threads(p->parts.pool),
                         err));
    affinity_move_weights(p->parts.affinity, t);
    TRY(make_slab(p, err));
    return p->options.slot_count > 0 ? make_samplers(p, err) : ST_OK;
}

enum status cpu_program_create(const struct cpu_program_parts *parts,
                               const struct program_options *options, struct device_program **out,
                               struct err *err) {
    CHECK(options->kv_group_count <= KV_GROUPS_MAX);
    TRY(check_ops(parts, options->tape, err));
    struct device_program *p = mem_zalloc(sizeof(*p));
    if (!p) return err_set(err, ST_NOMEM, "out of memory for the forward pass");
    p->parts = *parts;
    p->options = *options;
    for (uint32_t g = 0; g < options->kv_group_count; g++) {
        p->spaces[g] = options->kv[g];
        p->tiles[g] = kv_tiles_of(&options->kv[g]);
    }
    p->options.kv = options->kv ? p->spaces : NULL;
    enum status st = make_parts(p, err);
    if (st != ST_OK) {
        cpu_program_destroy(p);
        return st;
    }
    *out = p;
    return ST_OK;
}

void cpu_program_destroy(struct device_program *p) {
    if (!p) return;
    for (uint32_t t = 0; p->samplers && t < pool_threads(p->parts.pool); t++)
        row_sampler_destroy(p->samplers[t]);
    mem_free(p->samplers);
    mem_free(p->outputs);
    mem_free(p->slots);
    page_free(p->slab, tape_slab_bytes(p->options.tape));
    workspace_destroy(p->workspace);
    mem_free(p);
}

uint8_t *cpu_program_slab(struct device_program *p) { return p->slab; }

/* ---- moves ---- */

static void do_moves(const struct device_program *p, const struct step *step) {
    for (uint32_t i = 0; i < step->move_count; i++) {
        const struct kv_move *m = &step->moves[i];
        CHECK(m->group < p->options.kv_group_count);
        struct kv_copy copy = kv_move_copy(&p->spaces[m->group], m);
        memcpy(copy.to, copy.from, copy.bytes);
    }
}

/* ---- rows ---- */

static void run_op(const struct cpu_run *x, uint32_t i, uint32_t ith, uint32_t nth) {
    const struct op *op = tape_op(x->tape, i);
    if (x->tap && ith == 0) cpu_tap_op(x, op);
    x->table->ops[op->kind](x, op, ith, nth);
}

/* Ops that one thread does for all, while all others wait: so the scratch of any is its own. */
struct alone {
    const struct cpu_run *x;
    struct range ops;
};

static void run_alone(void *ctx) {
    const struct alone *a = ctx;
    struct lap lap = lap_begin_serial(a->x->timer);
    for (uint32_t i = a->ops.first; i < a->ops.end; i++) {
        run_op(a->x, i, 0, 1);
        lap_work(&lap, i);
    }
}

static void run_share(void *ctx, uint32_t ith, uint32_t nth) {
    const struct cpu_run *x = ctx;
    const struct workspace *p = x->workspace;
    uint64_t mode = fp_mode_enter();
    workspace_fill_ropes(x, ith, nth);
    struct lap lap = lap_begin(x->timer, ith);
    for (uint32_t at = 0; at < p->stage_count;) {
        const struct stage *s = &p->stages[at];
        for (uint32_t i = s->first; i < s->end; i++) {
            run_op(x, i, ith, nth);
            lap_work(&lap, i);
        }
        at = stages_serial_end(p->stages, p->stage_count, at + 1, x->step, nth);
        struct alone rest = {x, {s->end, p->stages[at - 1].end}};
        bool was_mine = pool_barrier_then(x->pool, run_alone, &rest);
        lap_wait(&lap, &(struct lap_barrier){s->first, s->end, rest.ops.end, was_mine});
    }
    fp_mode_leave(mode);
}

static void run_rows(struct device_program *p, const struct step *step, struct op_timer *timer) {
    struct device_run run = {.tape = p->options.tape, .step = step, .kv = p->options.kv};
    struct cpu_run x = {
        .table = p->parts.table,
        .workspace = p->workspace,
        .tape = p->options.tape,
        .step = step,
        .kv = p->options.kv ? p->tiles : NULL,
        .slab = p->slab,
        .slots = p->slots,
        .slot_count = p->options.slot_count,
        .pool = p->parts.pool,
        .timer = timer,
        .tap = p->parts.tap->fn ? p->parts.tap : NULL,
    };
    workspace_reset_claims(p->workspace);
    if (timer) op_timer_begin(timer, &run);
    pool_run(p->parts.pool, run_share, &x);
    if (timer) op_timer_end(timer, &run);
}

/* ---- outputs ---- */

static const float *output_at(const struct device_program *p, uint32_t output) {
    const struct tape_value *v = output_value(p);
    return (const float *)(const void *)(p->slab + v->offset + output * v->row_bytes);
}

static void sample_output(struct device_program *p, uint32_t i, struct row_sampler *sampler) {
    const struct sampling *s = &p->step->samplings[i];
    struct row_output *out = &p->outputs[i];
    const float *logits = output_at(p, i);
    out->failed = false;
    if (s->kind == SAMPLING_HAND_OVER) return;
    bool draws = s->kind == SAMPLING_DRAW;
    CHECK(!draws || s->slot < p->options.slot_count);
    CHECK(!s->is_pending || s->pending_slot < p->options.slot_count);
    int32_t pending = draws && s->is_pending ? p->slots[s->pending_slot] : -1;
    if (fvec_at(0)->has_nan(logits, output_value(p)->cols) ||
        row_sampler_run(sampler, s, &p->step->tables, pending, logits, &out->sample) != ST_OK)
        out->failed = true;
    /* A failed row empties its slot: a row of the next step with is_pending fails, too. */
    if (draws) p->slots[s->slot] = out->failed ? SLOT_EMPTY : out->sample.chosen.token;
}

/* Every thread_count-th output is this thread's. */
static void sample_share(void *ctx, uint32_t ith, uint32_t nth) {
    struct device_program *p = ctx;
    uint64_t mode = fp_mode_enter();
    for (uint32_t i = ith; i < p->step->output_count; i += nth)
        sample_output(p, i, p->samplers[ith]);
    fp_mode_leave(mode);
}

/* ---- steps ---- */

static void check_sizes(const struct device_program *p, const struct step *step) {
    const struct tape_sizes *sizes = tape_sizes(p->options.tape);
    CHECK(step->row_count <= sizes->rows_max);
    CHECK(step->output_count <= sizes->outputs_max);
    CHECK(step->seq_count <= sizes->seqs_max);
    CHECK(step->hands_over || step->output_count == 0 || p->samplers);
}

enum status cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                               struct err *err) {
    (void)self, (void)err;
    int64_t start_us = clock_now(&clock_real);
    CHECK(!p->step); /* the step before was collected */
    check_sizes(p, step);
    p->step = step;
    affinity_bind_caller(p->parts.affinity);
    do_moves(p, step);
    if (step->row_count > 0) run_rows(p, step, *p->parts.timer);
    if (step->output_count > 0 && !step->hands_over) pool_run(p->parts.pool, sample_share, p);
    p->elapsed_us = clock_now(&clock_real) - start_us;
    return ST_OK;
}

enum status cpu_program_collect(void *self, struct device_program *p, struct device_result *out,
                                struct err *err) {
    (void)self, (void)err;
    CHECK(p->step);
    const struct tape_value *v = output_value(p);
    *out = (struct device_result){.outputs = p->step->hands_over ? NULL : p->outputs,
                                  .output_count = v->rows == ROWS_SEQS ? p->step->seq_count
                                                                       : p->step->output_count,
                                  .rows = output_at(p, 0),
                                  .row_floats = v->row_bytes / sizeof(float),
                                  .elapsed_us = p->elapsed_us};
    out->kept = kept_rows(p, &out->kept_floats);
    p->step = NULL;
    return ST_OK;
}
