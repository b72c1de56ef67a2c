/* tests/gpu/rig.c - see tests/gpu/rig.h. */
#include "rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda_load.h"
#include "kernels/devices.h"
#include "tensor/fp8.h"
#include "tensor/q8.h"

static void must(enum status st, const struct err *err) {
    if (st == ST_OK) return;
    fprintf(stderr, "%s: %s\n", status_name(st), err->text);
    exit(1);
}

/* ---- weights ---- */

/* Scales between 2^-6 and 2^-3, so that sums stay small. */
static void tame_half(uint8_t *at, uint64_t random) {
    uint16_t half = (uint16_t)((random & 0x83FF) | ((9 + (random >> 16) % 4) << 10));
    memcpy(at, &half, sizeof(half));
}

/* Byte offsets of the f16 numbers in one block; -1 ends the list. */
static const int *half_fields(enum dtype type) {
    static const int first[] = {0, -1}, two[] = {0, 2, -1}, q2k[] = {80, 82, -1};
    static const int q3k[] = {108, -1}, q6k[] = {208, -1};
    if (type == DTYPE_Q4_1 || type == DTYPE_Q5_1 || type == DTYPE_Q4_K || type == DTYPE_Q5_K)
        return two;
    if (type == DTYPE_Q2_K) return q2k;
    if (type == DTYPE_Q3_K) return q3k;
    return type == DTYPE_Q6_K ? q6k : first;
}

/* Scales of f32, and the zero point of 8 bits. */
static void tame_others(enum dtype type, uint64_t random, uint8_t *block) {
    float scale = f16_to_f32((uint16_t)(random & 0x83FF) | 11 << 10) * 1.0003f;
    int16_t zero = (int16_t)(random % 511) - 255;
    if (type == DTYPE_INT8 || type == DTYPE_NF4 || type == DTYPE_FP4)
        memcpy(block, &scale, sizeof(scale));
    if (type == DTYPE_INT8_Z) memcpy(block + 2, &zero, sizeof(zero));
}

static void fill_block(enum dtype type, struct rng *rng, uint8_t *block) {
    const struct dtype_info *info = dtype_info(type);
    float value = (float)(rng_unit(rng) - 0.5);
    uint16_t half = type == DTYPE_F16 ? f16_from_f32(value) : bf16_from_f32(value);
    if (type == DTYPE_F32) {
        memcpy(block, &value, sizeof(value));
    } else if (info->block_elems == 1) {
        memcpy(block, &half, sizeof(half));
    } else {
        for (uint32_t i = 0; i < info->block_bytes; i++) block[i] = (uint8_t)rng_next(rng);
        for (const int *field = half_fields(type); *field >= 0; field++)
            tame_half(block + *field, rng_next(rng));
        tame_others(type, rng_next(rng), block);
    }
}

struct weight rig_weight(enum dtype type, uint32_t rows, uint32_t cols, uint32_t experts,
                         uint64_t seed) {
    struct rng rng = {.seed = seed};
    struct weight w = {.name = STR("random"),
                       .use = WEIGHT_MATRIX,
                       .type = type,
                       .rows = rows,
                       .cols = cols,
                       .experts = experts};
    CHECK(dtype_bytes(type, (uint64_t)rows * cols * experts, &w.bytes));
    uint8_t *data = mem_alloc(w.bytes);
    CHECK(data);
    for (size_t at = 0; at < w.bytes; at += dtype_info(type)->block_bytes)
        fill_block(type, &rng, data + at);
    w.data = data;
    return w;
}

struct weight rig_vector(uint32_t count, float middle, uint64_t seed) {
    float *data = mem_alloc_array(count, sizeof(float));
    CHECK(data);
    for (uint32_t i = 0; i < count; i++) data[i] = middle + (float)rng_unit_at(seed, 0, i) - 0.5f;
    return weight_vector(STR("random"), data, count);
}

void rig_weight_free(struct weight *w) { mem_free((void *)(uintptr_t)w->data); }

/* ---- opening ---- */

struct operand rig_operand(const struct rig *r, uint32_t value) {
    return (struct operand){.value = (value_id)value, .col = 0, .cols = r->values[value].cols};
}

static void open_device(const char *name, struct rig_run *out) {
    struct err err = {{0}};
    out->is_cpu = strcmp(name, "ref") == 0;
    struct device_options o = {.name = name, .threads = 1, .fp8_weights = out->rig->is_fp8};
    must(out->is_cpu ? cpu_device_open("ref", 1, &out->dev, &err)
                     : device_open(&o, &out->dev, &err),
         &err);
}

static void make_tape(const struct rig *r, struct rig_run *out) {
    struct err err = {{0}};
    must(tape_create(&out->tape), &err);
    for (uint32_t i = 0; i < r->value_count; i++) {
        const struct rig_value *v = &r->values[i];
        CHECK(tape_value(out->tape, "value", v->rows, v->type, v->cols) == i);
    }
    for (uint32_t i = 0; i < r->op_count; i++) tape_push(out->tape, &r->ops[i]);
    tape_set_output(out->tape, r->output);
    struct tape_sizes sizes = {r->sizes.rows_max, r->sizes.outputs_max, r->sizes.seqs_max};
    must(tape_finish(out->tape, &sizes, &err), &err);
}

static void make_kv(const struct rig *r, struct rig_run *out) {
    if (r->kv.heads == 0) return;
    out->kv = (struct kv_space){.shape = r->kv, .block_count = r->kv_blocks};
    out->kv.block_bytes = out->dev.kv_block_bytes(out->dev.self, &r->kv);
    CHECK(out->kv.block_bytes > 0);
    out->kv.base = out->dev.alloc(out->dev.self, out->kv.block_bytes * r->kv_blocks);
    CHECK(out->kv.base);
}

void rig_open(const struct rig *r, const char *device, struct rig_run *out) {
    struct err err = {{0}};
    *out = (struct rig_run){.rig = r};
    open_device(device, out);
    make_tape(r, out);
    make_kv(r, out);
    for (int i = 0; i < RIG_WEIGHTS_MAX; i++)
        if (r->weights[i]) must(out->dev.prepare(out->dev.self, r->weights[i], &err), &err);
    struct program_options o = {.tape = out->tape,
                                .kv = r->kv.heads ? &out->kv : NULL,
                                .kv_group_count = r->kv.heads ? 1 : 0,
                                .sizes = r->sizes,
                                .slot_count = r->slot_count};
    must(out->dev.program_create(out->dev.self, &o, &out->program, &err), &err);
    must(step_create(&out->step, &out->dev, &r->sizes, &err), &err);
    out->bytes = mem_zalloc(tape_slab_bytes(out->tape) + 1);
    CHECK(out->bytes);
}

void rig_close(struct rig_run *run) {
    const struct rig *r = run->rig;
    step_destroy(run->step, &run->dev);
    run->dev.program_destroy(run->dev.self, run->program);
    if (run->kv.base)
        run->dev.free(run->dev.self, run->kv.base, run->kv.block_bytes * r->kv_blocks);
    run->dev.close(run->dev.self);
    for (int i = 0; i < RIG_WEIGHTS_MAX; i++)
        if (r->weights[i]) r->weights[i]->prepared = NULL;
    tape_destroy(run->tape);
    mem_free(run->bytes);
}

/* ---- steps ---- */

void rig_one_seq(struct rig_run *run, uint32_t rows, uint32_t first, uint32_t skip) {
    struct step *s = run->step;
    step_clear(s);
    s->hands_over = true;
    s->row_count = rows;
    s->output_count = rows;
    s->seq_count = 1;
    s->seqs[0] = (struct step_seq){0, rows};
    for (uint32_t i = 0; i < rows; i++) {
        s->token[i] = (int32_t)(i * 7 % 5);
        s->pos[i] = skip && i % skip == skip - 1 ? -1 : (int32_t)(first + i);
        s->seq[i] = 0;
        s->output_row[i] = i;
    }
    for (uint32_t b = 0; b < s->sizes.group_count * s->sizes.blocks_max; b++) s->blocks[b] = b;
}

uint32_t rig_rows(const struct rig_run *run, uint32_t value) {
    enum rows_kind kind = run->rig->values[value].rows;
    if (kind == ROWS_TOKENS) return run->step->row_count;
    return kind == ROWS_OUTPUTS ? run->step->output_count : run->step->seq_count;
}

bool rig_row_is_live(const struct rig_run *run, uint32_t value, uint32_t row) {
    enum rows_kind kind = run->rig->values[value].rows;
    if (kind == ROWS_SEQS) return true;
    return run->step->pos[kind == ROWS_TOKENS ? row : run->step->output_row[row]] >= 0;
}

static float number(const struct rig *r, uint32_t value, uint32_t row, uint32_t col) {
    float spread = r->spread > 0 ? r->spread : 1.0f;
    uint64_t at = ((uint64_t)(row + r->row_base) << 32) | col;
    float x = (float)((rng_unit_at(r->seed, value + 1, at) * 2 - 1) * spread);
    return r->is_coarse ? fp8_to_f32(fp8_from_f32(x)) : x;
}

static void fill_row(const struct rig *r, uint32_t value, uint32_t row, uint8_t *to) {
    const struct rig_value *v = &r->values[value];
    if (v->type == VALUE_I32) {
        uint32_t start = (uint32_t)rng_at(r->seed, value + 1, row + r->row_base) % v->limit;
        for (uint32_t c = 0; c < v->cols; c++)
            ((int32_t *)(void *)to)[c] = (int32_t)((start + c) % v->limit);
        return;
    }
    float *x = mem_alloc_array(v->cols, sizeof(float));
    CHECK(x);
    for (uint32_t c = 0; c < v->cols; c++) x[c] = number(r, value, row, c);
    if (v->type == VALUE_Q8)
        q8_quantise(x, v->cols, to);
    else
        memcpy(to, x, v->cols * sizeof(float));
    mem_free(x);
}

static void copy_slab(struct rig_run *run, bool is_write) {
    size_t bytes = tape_slab_bytes(run->tape);
    if (!run->is_cpu) {
        CHECK(cuda_program_copy(run->program, 0, bytes, run->bytes, is_write) == ST_OK);
        return;
    }
    uint8_t *slab = cpu_program_slab(run->program);
    memcpy(is_write ? slab : run->bytes, is_write ? run->bytes : slab, bytes);
}

void rig_step(struct rig_run *run) {
    struct err err = {{0}};
    for (uint32_t i = 0; i < run->rig->value_count; i++) {
        const struct tape_value *v = tape_value_at(run->tape, (value_id)i);
        for (uint32_t row = 0; row < rig_rows(run, i); row++)
            fill_row(run->rig, i, row, run->bytes + v->offset + row * v->row_bytes);
    }
    if (run->rig->prepare_bytes) run->rig->prepare_bytes(run);
    copy_slab(run, true);
    must(run->dev.submit(run->dev.self, run->program, run->step, &err), &err);
    must(run->dev.collect(run->dev.self, run->program, &run->result, &err), &err);
    copy_slab(run, false);
}

const uint8_t *rig_row(const struct rig_run *run, uint32_t value, uint32_t row) {
    const struct tape_value *v = tape_value_at(run->tape, (value_id)value);
    return run->bytes + v->offset + row * v->row_bytes;
}

/* ---- comparing ---- */

static bool rows_agree(const struct rig_run *a, const struct rig_run *b, uint32_t value,
                       uint32_t row, double tolerance) {
    const struct tape_value *v = tape_value_at(a->tape, (value_id)value);
    const uint8_t *x = rig_row(a, value, row), *y = rig_row(b, value, row);
    size_t bytes = v->type == VALUE_Q8 ? q8_row_bytes(v->cols) : v->cols * sizeof(float);
    if (tolerance == 0 || v->type != VALUE_F32) return memcmp(x, y, bytes) == 0;
    const float *p = (const float *)(const void *)x, *q = (const float *)(const void *)y;
    double most = 0;
    for (uint32_t i = 0; i < v->cols; i++) most = fmax(most, fabs((double)p[i]));
    for (uint32_t i = 0; i < v->cols; i++)
        if (!(fabs((double)p[i] - (double)q[i]) <= tolerance * most)) return false;
    return true;
}

static void say_first(struct checks *c, const struct rig_run *a, const struct rig_run *b,
                      uint32_t value, uint32_t row, const char *what) {
    const float *p = (const float *)(const void *)rig_row(a, value, row);
    const float *q = (const float *)(const void *)rig_row(b, value, row);
    uint32_t i = 0, cols = a->rig->values[value].cols;
    while (i + 1 < cols && memcmp(&p[i], &q[i], sizeof(float)) == 0) i++;
    check_that(c, false, "%s: value %u, row %u, column %u: %.9g on the CPU, %.9g here", what, value,
               row, i, (double)p[i], (double)q[i]);
}

void rig_compare(struct checks *c, const struct rig_run *a, const struct rig_run *b,
                 double tolerance, const char *what) {
    for (uint32_t value = 0; value < a->rig->value_count; value++)
        for (uint32_t row = 0; row < rig_rows(a, value); row++) {
            if (!rig_row_is_live(a, value, row)) continue;
            if (rows_agree(a, b, value, row, tolerance)) continue;
            say_first(c, a, b, value, row, what);
            return;
        }
    check_that(c, true, "%s", what);
}

void rig_check(struct checks *c, const struct rig *r, uint32_t rows, uint32_t skip,
               double tolerance, const char *what) {
    struct rig_run cpu, gpu;
    rig_open(r, "ref", &cpu);
    rig_one_seq(&cpu, rows, 3, skip);
    rig_step(&cpu);
    rig_open(r, c->device, &gpu);
    rig_one_seq(&gpu, rows, 3, skip);
    rig_step(&gpu);
    rig_compare(c, &cpu, &gpu, tolerance, what);
    rig_close(&gpu);
    rig_close(&cpu);
}
