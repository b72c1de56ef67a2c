/* tests/ops/ops_rig.h - run one op on any table with any number of threads, from seeded data.
 *
 * A case names its values and one op over them. Before a run every value is filled with
 * numbers that depend only on (seed, value, row, column); after it all values are read back.
 * So two runs agree exactly when every row, written or skipped, holds the same bits.
 */
#ifndef TESTS_OPS_RIG_H
#define TESTS_OPS_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "graph/device.h"
#include "graph/step.h"
#include "graph/tape.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kv_tiles.h"
#include "tensor/q8.h"

enum { RIG_VALUES_MAX = 6, RIG_WEIGHTS_MAX = 3, RIG_ROWS_MAX = 1024 };

struct rig_value {
    enum rows_kind rows;
    enum value_type type;
    uint32_t cols;
    uint32_t limit; /* i32 only: numbers below it, different ones inside a row */
};

struct rig {
    uint64_t seed;
    float spread; /* numbers lie in (-spread, spread); 0 means 1 */
    bool edges;   /* numbers are spread or -spread: all of a row, or at random */
    struct rig_value values[RIG_VALUES_MAX];
    uint32_t value_count;
    struct op op;
    struct weight *weights[RIG_WEIGHTS_MAX]; /* prepared before the run */
    struct step step;
    uint32_t row_base;         /* row r is filled as row r + row_base: a part of a batch */
    const struct kv_tiles *kv; /* its memory is copied for every run, then given back changed */
};

/* All values after a run, and the cache. */
struct rig_result {
    uint8_t *bytes;
    size_t count;
    size_t offset[RIG_VALUES_MAX], row_bytes[RIG_VALUES_MAX];
    uint8_t *kv;
    size_t kv_bytes;
};

static inline struct operand rig_operand(const struct rig *r, uint32_t value) {
    return (struct operand){.value = (value_id)value, .col = 0, .cols = r->values[value].cols};
}

static inline float rig_float(const struct rig *r, uint32_t value, uint32_t row, uint32_t col) {
    float spread = r->spread > 0 ? r->spread : 1.0f;
    uint64_t at = ((uint64_t)(row + r->row_base) << 32) | col;
    float number = (float)((rng_unit_at(r->seed, value + 1, at) * 2 - 1) * spread);
    if (!r->edges) return number;
    uint32_t kind = (row + r->row_base) % 3;
    return kind == 0 || (kind == 1 && number > 0) ? spread : -spread;
}

static inline void rig_fill_row(const struct rig *r, uint32_t value, uint32_t row, uint8_t *to) {
    const struct rig_value *v = &r->values[value];
    float *x = mem_alloc_array(v->cols, sizeof(float));
    for (uint32_t c = 0; c < v->cols; c++) x[c] = rig_float(r, value, row, c);
    if (v->type == VALUE_Q8) {
        q8_quantise(x, v->cols, to);
    } else if (v->type == VALUE_F32) {
        memcpy(to, x, v->cols * sizeof(float));
    } else {
        uint32_t start = (uint32_t)rng_at(r->seed, value + 1, row + r->row_base) % v->limit;
        for (uint32_t c = 0; c < v->cols; c++)
            ((int32_t *)(void *)to)[c] = (int32_t)((start + c * 3) % v->limit);
    }
    mem_free(x);
}

static inline uint32_t rig_rows(const struct rig *r, uint32_t value) {
    switch (r->values[value].rows) {
    case ROWS_TOKENS:
        return r->step.row_count;
    case ROWS_OUTPUTS:
        return r->step.output_count;
    default:
        return r->step.seq_count;
    }
}

static inline struct tape *rig_tape(const struct rig *r) {
    struct tape *t;
    struct err err = {{0}};
    assert_int_equal(tape_create(&t), ST_OK);
    for (uint32_t i = 0; i < r->value_count; i++) {
        const struct rig_value *v = &r->values[i];
        assert_int_equal(tape_value(t, "value", v->rows, v->type, v->cols), i);
    }
    /* Every value is made to live through the op by being the output in turn; the plan only
     * keeps those apart that the op touches, which is all that is read back. */
    tape_push(t, &r->op);
    tape_set_output(t, 0);
    struct tape_sizes sizes = {r->step.row_count, r->step.output_count, r->step.seq_count};
    if (tape_finish(t, &sizes, &err) != ST_OK) fail_msg("%s", err.text);
    return t;
}

static inline void rig_copy_values(const struct rig *r, const struct tape *t, uint8_t *slab,
                                   struct rig_result *out) {
    for (uint32_t i = 0; i < r->value_count; i++) {
        const struct tape_value *v = tape_value_at(t, (value_id)i);
        out->offset[i] = out->count;
        out->row_bytes[i] = v->row_bytes;
        size_t bytes = v->row_bytes * rig_rows(r, i);
        out->bytes = mem_realloc(out->bytes, out->count + bytes);
        memcpy(out->bytes + out->count, slab + v->offset, bytes);
        out->count += bytes;
    }
}

static inline size_t rig_kv_bytes(const struct kv_tiles *kv) {
    return kv->tile_count * kv_tile_bytes(kv);
}

/* The same memory as whole blocks, as the device receives it. */
static inline struct kv_space rig_space(const struct kv_tiles *kv) {
    assert_int_equal(kv->tile_count % kv->tiles_per_block, 0);
    return (struct kv_space){.shape = {.type = kv->type,
                                       .layers = kv->layers,
                                       .heads = kv->heads,
                                       .head_dim = kv->head_dim,
                                       .block_tokens = kv->tiles_per_block * KV_TILE_TOKENS},
                             .block_count = kv->tile_count / kv->tiles_per_block,
                             .block_bytes = kv->tiles_per_block * kv_tile_bytes(kv),
                             .base = (device_addr)(uintptr_t)kv->base};
}

/* A program of the tape that hands its output over; `kv` NULL: without a cache. */
static inline struct device_program *rig_program(const struct device *dev, const struct tape *t,
                                                 const struct kv_tiles *kv) {
    const struct tape_sizes *sizes = tape_sizes(t);
    struct kv_space space = {.base = 0};
    struct err err = {{0}};
    struct device_program *p;
    struct program_options options = {.tape = t,
                                      .sizes = {.rows_max = sizes->rows_max,
                                                .outputs_max = sizes->outputs_max,
                                                .seqs_max = sizes->seqs_max}};
    if (kv) {
        space = rig_space(kv);
        options.kv = &space;
        options.kv_group_count = 1;
    }
    if (dev->program_create(dev->self, &options, &p, &err) != ST_OK) fail_msg("%s", err.text);
    return p;
}

/* One step from its submit to its collect. */
static inline struct device_result rig_step(const struct device *dev, struct device_program *p,
                                            const struct step *step) {
    struct device_result out;
    struct err err = {{0}};
    if (dev->submit(dev->self, p, step, &err) != ST_OK) fail_msg("%s", err.text);
    if (dev->collect(dev->self, p, &out, &err) != ST_OK) fail_msg("%s", err.text);
    return out;
}

static inline struct rig_result rig_run(const struct rig *r, const char *isa, uint32_t threads) {
    struct device dev;
    struct err err = {{0}};
    struct rig_result out = {.bytes = NULL};
    if (cpu_device_open(isa, threads, &dev, &err) != ST_OK) fail_msg("%s", err.text);
    struct tape *t = rig_tape(r);
    for (int i = 0; i < RIG_WEIGHTS_MAX; i++) {
        if (!r->weights[i]) continue;
        r->weights[i]->prepared = NULL;
        if (dev.prepare(dev.self, r->weights[i], &err) != ST_OK) fail_msg("%s", err.text);
    }
    struct kv_tiles kv = {0};
    if (r->kv) {
        kv = *r->kv;
        out.kv_bytes = rig_kv_bytes(&kv);
        kv.base = out.kv = mem_alloc_aligned(64, out.kv_bytes);
        memcpy(out.kv, r->kv->base, out.kv_bytes);
    }
    struct device_program *p = rig_program(&dev, t, r->kv ? &kv : NULL);
    uint8_t *slab = cpu_program_slab(p);
    for (uint32_t i = 0; i < r->value_count; i++) {
        const struct tape_value *v = tape_value_at(t, (value_id)i);
        for (uint32_t row = 0; row < rig_rows(r, i); row++)
            rig_fill_row(r, i, row, slab + v->offset + row * v->row_bytes);
    }
    (void)rig_step(&dev, p, &r->step);
    rig_copy_values(r, t, slab, &out);
    dev.program_destroy(dev.self, p);
    tape_destroy(t);
    dev.close(dev.self);
    for (int i = 0; i < RIG_WEIGHTS_MAX; i++)
        if (r->weights[i]) r->weights[i]->prepared = NULL;
    return out;
}

static inline void rig_free(struct rig_result *out) {
    mem_free(out->bytes);
    mem_free(out->kv);
}

static inline const float *rig_row(const struct rig_result *out, uint32_t value, uint32_t row) {
    return (const float *)(const void *)(out->bytes + out->offset[value] +
                                         row * out->row_bytes[value]);
}

static const char *const rig_isas[] = {"ref",    "portable", "avx2", "avx512",
                                       "amxsim", "amx",      "neon", "dotprod"};
enum { RIG_ISAS = sizeof(rig_isas) / sizeof(rig_isas[0]) };

/* Whether this processor has what the table needs. */
static inline bool rig_isa_runs(const char *isa) {
    struct device dev;
    if (cpu_device_open(isa, 1, &dev, NULL) != ST_OK) return false;
    dev.close(dev.self);
    return true;
}

static inline void rig_same(const struct rig_result *a, const struct rig_result *b, const char *isa,
                            uint32_t threads, const char *what) {
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++)
        if (a->bytes[i] != b->bytes[i])
            fail_msg("%s: %s with %u threads differs from ref at byte %zu", what, isa, threads, i);
    assert_int_equal(a->kv_bytes, b->kv_bytes);
    if (a->kv_bytes && memcmp(a->kv, b->kv, a->kv_bytes) != 0)
        fail_msg("%s: %s with %u threads leaves another cache", what, isa, threads);
}

/* Sanitizers make everything many times slower: then some cases are left out. */
#if defined(__SANITIZE_ADDRESS__)
enum { RIG_IS_SLOW = 1 };
#else
enum { RIG_IS_SLOW = 0 };
#endif

/* Every table with 1, 2 and 5 threads gives the bits of the reference. The caller frees what
 * the reference gave. */
static inline struct rig_result rig_check(const struct rig *r, const char *what) {
    static const uint32_t threads[] = {1, 2, 5};
    struct rig_result ref = rig_run(r, "ref", 1);
    for (int i = 0; i < RIG_ISAS; i++) {
        if (!rig_isa_runs(rig_isas[i])) continue;
        for (int j = RIG_IS_SLOW ? 1 : 0; j < (RIG_IS_SLOW ? 2 : 3); j++) {
            struct rig_result got = rig_run(r, rig_isas[i], threads[j]);
            rig_same(&ref, &got, rig_isas[i], threads[j], what);
            rig_free(&got);
        }
    }
    return ref;
}

static inline void rig_check_only(const struct rig *r, const char *what) {
    struct rig_result ref = rig_check(r, what);
    rig_free(&ref);
}

/* Step tables for one sequence of `rows` rows from position `first` on; sequences have one table
 * of blocks each, at first that of the blocks in order. */
enum { RIG_SEQS_MAX = 8 };
struct rig_steps {
    int32_t token[RIG_ROWS_MAX], pos[RIG_ROWS_MAX];
    uint32_t seq[RIG_ROWS_MAX], output_row[RIG_ROWS_MAX];
    uint32_t blocks[RIG_SEQS_MAX][RIG_ROWS_MAX];
    struct step_seq seqs[RIG_SEQS_MAX];
};

static inline struct step rig_one_seq(struct rig_steps *s, uint32_t rows, uint32_t first) {
    memset(s, 0, sizeof(*s));
    for (uint32_t i = 0; i < rows; i++) {
        s->token[i] = (int32_t)(i * 7 % 5);
        s->pos[i] = (int32_t)(first + i);
        s->output_row[i] = i;
    }
    for (uint32_t q = 0; q < RIG_SEQS_MAX; q++)
        for (uint32_t i = 0; i < RIG_ROWS_MAX; i++) s->blocks[q][i] = i;
    s->seqs[0].row_count = rows;
    return (struct step){.sizes = {.rows_max = RIG_ROWS_MAX,
                                   .outputs_max = RIG_ROWS_MAX,
                                   .seqs_max = RIG_SEQS_MAX,
                                   .group_count = 1,
                                   .blocks_max = RIG_ROWS_MAX},
                         .row_count = rows,
                         .output_count = rows,
                         .seq_count = 1,
                         .hands_over = true,
                         .token = s->token,
                         .pos = s->pos,
                         .seq = s->seq,
                         .output_row = s->output_row,
                         .seqs = s->seqs,
                         .blocks = s->blocks[0]};
}

#endif
