/* Goal:   attention gives the CPU's bits, whole or in chunks, in every cache format.
 * Method: a tape that writes keys and values and attends, over two sequences side by side: a chunk
 *         of each, then single tokens; then the first sequence again in other chunks. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/numerics.h"
#include "kernels/cuda/layout.h"
#include "rig.h"

_Static_assert((int)CUDA_ATTN_SEGMENT == (int)ATTN_SEGMENT, "the CPU's order of sums");
_Static_assert((int)CUDA_ATTN_LANES == (int)ATTN_LANES, "the CPU's order of sums");
_Static_assert((int)CUDA_NORM_LANES == (int)NORM_LANES, "the CPU's order of sums");

struct shape {
    uint32_t heads, kv_heads, head_dim, window;
    float softcap;
    enum kv_type type;
    bool is_quantised; /* the result is wanted quantised alone */
};

enum { SEQS = 2, BLOCK_TOKENS = 32, TOKENS_MAX = 640, BLOCKS = TOKENS_MAX / BLOCK_TOKENS };

static struct rig rig_of(const struct shape *s, uint32_t rows_max) {
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    struct rig r = {.seed = q + s->window, .op_count = 2, .output = 1, .spread = 2.0f};
    r.sizes = (struct step_sizes){.rows_max = rows_max,
                                  .outputs_max = rows_max,
                                  .seqs_max = SEQS,
                                  .group_count = 1,
                                  .blocks_max = BLOCKS};
    r.kv = (struct kv_shape){s->type, 2, s->kv_heads, s->head_dim, BLOCK_TOKENS};
    r.kv_blocks = SEQS * BLOCKS;
    r.values[0] = (struct rig_value){ROWS_TOKENS, VALUE_F32, q + 2 * kv, 0};
    r.values[1] = (struct rig_value){ROWS_TOKENS, VALUE_F32, q, 0};
    r.values[2] = (struct rig_value){ROWS_TOKENS, VALUE_Q8, q, 0};
    r.value_count = s->is_quantised ? 3 : 2;
    struct operand all = rig_operand(&r, 0);
    r.ops[0] = (struct op){.kind = OP_KV_WRITE,
                           .kv_write = {.layer = 1,
                                        .k = operand_slice(all, q, kv),
                                        .v = operand_slice(all, q + kv, kv)}};
    r.ops[1] =
        (struct op){.kind = OP_ATTENTION,
                    .attention = {.layer = 1,
                                  .heads = s->heads,
                                  .kv_heads = s->kv_heads,
                                  .head_dim = s->head_dim,
                                  .window = s->window,
                                  .scale = 0.125f,
                                  .softcap = s->softcap,
                                  .q = operand_slice(all, 0, q),
                                  .dst = s->is_quantised ? operand_none : rig_operand(&r, 1),
                                  .q8 = s->is_quantised ? rig_operand(&r, 2) : operand_none}};
    return r;
}

/* Rows [first, first + count) of the first sequence, and `other` of the second from 5 on. */
static void set_step(struct rig_run *run, uint32_t first, uint32_t count, uint32_t other) {
    struct step *s = run->step;
    rig_one_seq(run, count + other, first, 0);
    s->seqs[0] = (struct step_seq){0, count};
    s->seqs[1] = (struct step_seq){count, other};
    s->seq_count = SEQS;
    for (uint32_t i = 0; i < other; i++) {
        s->pos[count + i] = (int32_t)(other > 1 ? i : 5);
        s->seq[count + i] = 1;
    }
    /* Blocks in no order. */
    for (uint32_t b = 0; b < SEQS * BLOCKS; b++) s->blocks[b] = (b * 7 + 3) % (SEQS * BLOCKS);
}

static void check_against(struct checks *c, const struct shape *s, const char *device,
                          double tolerance) {
    char what[96];
    struct rig_run cpu, gpu;
    struct rig r = rig_of(s, 128);
    static const uint32_t steps[][2] = {{0, 100},  {100, 1},   {101, 120}, {221, 34}, {255, 3},
                                        {258, 60}, {318, 120}, {438, 90},  {528, 1},  {529, 7}};
    rig_open(&r, "ref", &cpu);
    rig_open(&r, device, &gpu);
    for (uint32_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        r.row_base = steps[i][0];
        set_step(&cpu, steps[i][0], steps[i][1], i % 3);
        rig_step(&cpu);
        set_step(&gpu, steps[i][0], steps[i][1], i % 3);
        rig_step(&gpu);
        snprintf(what, sizeof(what), "attention %u/%u heads of %u, window %u, %s, rows %u + %u",
                 s->heads, s->kv_heads, s->head_dim, s->window, kv_type_name(s->type), steps[i][0],
                 steps[i][1]);
        rig_compare(c, &cpu, &gpu, tolerance, what);
    }
    rig_close(&gpu);
    rig_close(&cpu);
}

/* Attention in f32 has the CPU's bits. On tensor cores queries and weights are rounded to f16,
 * 2^-12 of their size: with scores below 30 in size, of 64 or 128 terms, results differ by less
 * than 1 % of a row's largest. */
static void check_shape(struct checks *c, const struct shape *s) {
    char device[256];
    bool is_mma = cuda_attends_mma(s->type, s->head_dim);
    snprintf(device, sizeof(device), "%s,attention=plain", c->device);
    check_against(c, s, device, 0);
    if (!is_mma || s->is_quantised) return;
    check_against(c, s, c->device, 0.01);
    snprintf(device, sizeof(device), "%s,whole=always", c->device);
    check_against(c, s, device, 0.01);
}

static void check_self(struct checks *c, uint32_t heads, uint32_t head_dim, uint32_t rows) {
    uint32_t q = heads * head_dim;
    struct rig r = {.seed = rows, .op_count = 1, .output = 1, .spread = 2.0f};
    r.sizes = (struct step_sizes){.rows_max = rows, .outputs_max = rows, .seqs_max = 1};
    r.values[0] = (struct rig_value){ROWS_TOKENS, VALUE_F32, 3 * q, 0};
    r.values[1] = (struct rig_value){ROWS_TOKENS, VALUE_F32, q, 0};
    r.value_count = 2;
    struct operand all = rig_operand(&r, 0);
    r.ops[0] = (struct op){.kind = OP_SELF_ATTENTION,
                           .self_attention = {.heads = heads,
                                              .head_dim = head_dim,
                                              .scale = 0.2f,
                                              .q = operand_slice(all, 0, q),
                                              .k = operand_slice(all, q, q),
                                              .v = operand_slice(all, 2 * q, q),
                                              .dst = rig_operand(&r, 1),
                                              .q8 = operand_none}};
    rig_check(c, &r, rows, 0, 0, "self attention");
}

/* The bits of rows 0 to 299 in chunks of `chunk`. */
static void run_chunks(const struct rig *r, const char *device, uint32_t chunk, float *out) {
    enum { ROWS = 300 };
    struct rig_run run;
    struct rig copy = *r;
    uint32_t cols = r->values[1].cols;
    rig_open(&copy, device, &run);
    for (uint32_t at = 0; at < ROWS; at += chunk) {
        uint32_t count = ROWS - at < chunk ? ROWS - at : chunk;
        copy.row_base = at;
        set_step(&run, at, count, 0);
        rig_step(&run);
        for (uint32_t i = 0; i < count; i++)
            memcpy(out + (size_t)(at + i) * cols, rig_row(&run, 1, i), cols * sizeof(float));
    }
    rig_close(&run);
}

static void check_chunks(struct checks *c, const struct shape *s) {
    struct rig r = rig_of(s, 300);
    size_t floats = 300 * (size_t)r.values[1].cols;
    float *whole = mem_alloc_array(floats, sizeof(float));
    float *parts = mem_alloc_array(floats, sizeof(float));
    CHECK(whole && parts);
    run_chunks(&r, c->device, 300, whole);
    static const uint32_t chunks[] = {1, 7, 64};
    for (size_t i = c->is_quick ? 1 : 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
        run_chunks(&r, c->device, chunks[i], parts);
        check_that(c, memcmp(whole, parts, floats * sizeof(float)) == 0,
                   "attention in chunks of %u has other bits than in one", chunks[i]);
    }
    mem_free(whole);
    mem_free(parts);
}

/* Numbers that are in both formats give the same bits from a cache of fp8 and from one of f16. */
static void check_formats(struct checks *c, uint32_t head_dim, uint32_t chunk) {
    struct shape s = {.heads = 4, .kv_heads = 2, .head_dim = head_dim, .window = 200};
    size_t floats = 300 * (size_t)s.heads * head_dim;
    float *found[2] = {mem_alloc_array(floats, sizeof(float)),
                       mem_alloc_array(floats, sizeof(float))};
    char device[256];
    CHECK(found[0] && found[1]);
    snprintf(device, sizeof(device), "%s%s", c->device, chunk == 1 ? ",whole=always" : "");
    for (int i = 0; i < 2; i++) {
        s.type = i ? KV_F8 : KV_F16;
        struct rig r = rig_of(&s, 300);
        r.is_coarse = true;
        run_chunks(&r, device, chunk, found[i]);
    }
    check_that(c, memcmp(found[0], found[1], floats * sizeof(float)) == 0,
               "attention over fp8 has other bits than over the same numbers in f16: heads of %u, "
               "chunks of %u",
               head_dim, chunk);
    mem_free(found[0]);
    mem_free(found[1]);
}

void suite_attention(struct checks *c) {
    static const struct shape shapes[] = {
        {.heads = 4, .kv_heads = 4, .head_dim = 64, .type = KV_F16},
        {.heads = 8, .kv_heads = 2, .head_dim = 128, .type = KV_F16},
        {.heads = 7, .kv_heads = 1, .head_dim = 64, .type = KV_F16, .is_quantised = true},
        {.heads = 7, .kv_heads = 1, .head_dim = 64, .type = KV_F16, .window = 100},
        {.heads = 4, .kv_heads = 2, .head_dim = 128, .type = KV_F16, .softcap = 20, .window = 300},
        {.heads = 16, .kv_heads = 1, .head_dim = 64, .type = KV_F16},
        {.heads = 6, .kv_heads = 2, .head_dim = 96, .type = KV_F32},
        {.heads = 4, .kv_heads = 2, .head_dim = 256, .type = KV_F16, .softcap = 20.0f},
        {.heads = 8, .kv_heads = 1, .head_dim = 256, .type = KV_I8, .window = 300},
        {.heads = 2, .kv_heads = 1, .head_dim = 8, .type = KV_F32, .window = 17},
        {.heads = 2, .kv_heads = 2, .head_dim = 24, .type = KV_I8},
        {.heads = 4, .kv_heads = 2, .head_dim = 128, .type = KV_I8, .window = 100},
        {.heads = 4, .kv_heads = 4, .head_dim = 32, .type = KV_F16, .is_quantised = true},
        {.heads = 8, .kv_heads = 2, .head_dim = 128, .type = KV_F8},
        {.heads = 7, .kv_heads = 1, .head_dim = 64, .type = KV_F8, .softcap = 20, .window = 100},
        {.heads = 6, .kv_heads = 2, .head_dim = 96, .type = KV_F8, .window = 300},
    };
    enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };
    for (int i = 0; i < SHAPES; i++) check_shape(c, &shapes[i]);
    check_self(c, 4, 32, 61);
    check_self(c, 3, 64, 300);
    check_self(c, 4, 8, 1);
    check_chunks(c, &shapes[1]);
    check_chunks(c, &shapes[3]);
    check_chunks(c, &shapes[4]);
    check_chunks(c, &shapes[10]);
    check_chunks(c, &shapes[13]);
    check_chunks(c, &shapes[14]);
    check_formats(c, 64, 7);
    check_formats(c, 128, 64);
    check_formats(c, 64, 1);
}
