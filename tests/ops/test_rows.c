/* Goal:   every op that works row by row has the bits of the reference in every table, and the
 *         reference computes what graph/op_args.h says.
 * Method: seeded random rows of odd sizes through all tables and thread counts; the reference
 *         against formulas in double; a dense sweep of the vector functions against the scalar
 *         ones; broken numbers into the quantisation. */
#include <math.h>

#include "base/fmath.h"
#include "graph/key_smoothing.h"
#include "kernels/cpu/kernels_ref.h"
#include "ops/int4_rig.h"
#include "ops/matmul_rig.h"

static const uint32_t row_counts[] = {1, 2, 3, 5, 17, 64};
static const uint32_t widths[] = {32, 64, 96, 576, 1536};

static float *random_floats(uint32_t count, uint64_t seed) {
    float *x = mem_alloc_array(count, sizeof(float));
    for (uint32_t i = 0; i < count; i++) x[i] = (float)(rng_unit_at(seed, 1, i) * 2 - 1);
    return x;
}

static struct rig_value f32_value(uint32_t cols) {
    return (struct rig_value){ROWS_TOKENS, VALUE_F32, cols, 0};
}

static struct rig_value q8_value(uint32_t cols) {
    return (struct rig_value){ROWS_TOKENS, VALUE_Q8, cols, 0};
}

/* Random floats as a vector, which vector_free frees. */
static struct weight random_vector(uint32_t count, uint64_t seed) {
    return weight_vector(STR("vector"), random_floats(count, seed), count);
}

static void vector_free(struct weight *w) { mem_free((void *)(uintptr_t)w->data); }

static struct rig norm_rig(enum norm_kind kind, uint32_t group, uint32_t cols,
                           const struct weight *w, const struct weight *b, struct step step) {
    struct rig r = {.seed = cols, .value_count = 2, .step = step};
    r.values[0] = r.values[1] = f32_value(cols);
    r.op.kind = OP_NORM;
    r.op.norm = (struct op_norm){.kind = kind,
                                 .group = group,
                                 .eps = 1e-5f,
                                 .weight = w,
                                 .bias = b,
                                 .src = rig_operand(&r, 0),
                                 .dst = rig_operand(&r, 1),
                                 .q8 = operand_none};
    return r;
}

static void test_norms_have_the_same_bits(void **state) {
    (void)state;
    static const uint32_t groups[] = {1, 7, 16, 23, 64, 80, 576};
    for (uint32_t i = 0; i < 7; i++)
        for (int kind = NORM_RMS; kind <= NORM_LAYER; kind++) {
            struct rig_steps steps;
            struct weight w = random_vector(groups[i], 1), b = random_vector(groups[i], 2);
            struct step step = rig_one_seq(&steps, row_counts[i % 6], 0);
            steps.pos[step.row_count / 2] = -1;
            struct rig r = norm_rig(kind, groups[i], groups[i] * 3, &w, kind ? &b : NULL, step);
            rig_check_only(&r, "norm");
            if (groups[i] % 32 == 0) {
                r.values[1] = q8_value(groups[i] * 3);
                r.op.norm.dst = operand_none;
                r.op.norm.q8 = rig_operand(&r, 1);
                rig_check_only(&r, "norm to q8");
            }
            r.value_count = 1;
            r.op.norm.q8 = operand_none;
            r.op.norm.dst = r.op.norm.src;
            rig_check_only(&r, "norm in place");
            vector_free(&w);
            vector_free(&b);
        }
}

static void test_the_reference_norm_is_the_formula(void **state) {
    (void)state;
    enum { COLS = 100 };
    for (int kind = NORM_RMS; kind <= NORM_LAYER; kind++) {
        struct rig_steps steps;
        struct weight weight = random_vector(COLS, 1), bias = random_vector(COLS, 2);
        const float *w = weight.data, *b = bias.data;
        struct rig r =
            norm_rig(kind, COLS, COLS, &weight, kind ? &bias : NULL, rig_one_seq(&steps, 1, 0));
        struct rig_result got = rig_run(&r, "ref", 1);
        const float *x = rig_row(&got, 0, 0), *y = rig_row(&got, 1, 0);
        double mean = 0, square = 0;
        for (int i = 0; i < COLS && kind == NORM_LAYER; i++) mean += (double)x[i] / COLS;
        for (int i = 0; i < COLS; i++) square += pow((double)x[i] - mean, 2) / COLS;
        for (int i = 0; i < COLS; i++) {
            double want = ((double)x[i] - mean) / sqrt(square + 1e-5) * (double)w[i];
            if (kind == NORM_LAYER) want += (double)b[i];
            assert_true(fabs(want - (double)y[i]) < 1e-6);
        }
        rig_free(&got);
        vector_free(&weight);
        vector_free(&bias);
    }
}

static void test_quantising_has_the_same_bits(void **state) {
    (void)state;
    static const float spreads[] = {1.0f, 1e-37f, 1e-30f, 1e30f, 3e38f};
    for (uint32_t i = 0; i < 5; i++) {
        struct rig_steps steps;
        struct rig r = {.seed = i,
                        .spread = spreads[i],
                        .value_count = 2,
                        .step = rig_one_seq(&steps, row_counts[i], 0)};
        r.values[0] = f32_value(widths[i]);
        r.values[1] = q8_value(widths[i]);
        r.op.kind = OP_QUANT;
        r.op.quant = (struct op_quant){rig_operand(&r, 0), rig_operand(&r, 1)};
        rig_check_only(&r, "quant");
    }
}

enum { BROKEN_COLS = 192 };

/* A table of numbers as an embedding: the way to bring chosen bits into a value. */
static struct rig_result run_broken(const char *isa, const float *numbers, const struct op *op,
                                    const struct kv_tiles *cache) {
    struct rig_steps steps;
    struct weight w = {.type = DTYPE_F32,
                       .rows = 1,
                       .cols = BROKEN_COLS,
                       .experts = 1,
                       .data = numbers,
                       .bytes = BROKEN_COLS * sizeof(float)};
    struct tape *t;
    struct device dev;
    struct rig r = {.value_count = 2, .step = rig_one_seq(&steps, 1, 0)};
    struct op embed = {.kind = OP_EMBED};
    r.values[0] = f32_value(BROKEN_COLS);
    r.values[1] = q8_value(BROKEN_COLS);
    embed.embed = (struct op_embed){
        .table = &w, .source = EMBED_ZERO, .scale = 1.0f, .dst = rig_operand(&r, 0)};
    assert_int_equal(tape_create(&t), ST_OK);
    tape_value(t, "x", ROWS_TOKENS, VALUE_F32, BROKEN_COLS);
    tape_value(t, "q", ROWS_TOKENS, VALUE_Q8, BROKEN_COLS);
    tape_push(t, &embed);
    tape_push(t, op);
    tape_set_output(t, 1);
    assert_int_equal(tape_finish(t, &(struct tape_sizes){1, 1, 1}, NULL), ST_OK);
    assert_int_equal(cpu_device_open(isa, 1, &dev, NULL), ST_OK);
    struct rig_result out = {.bytes = NULL};
    struct kv_tiles kv = *cache;
    out.kv_bytes = rig_kv_bytes(&kv);
    kv.base = out.kv = mem_alloc_aligned(64, out.kv_bytes + 1);
    memset(out.kv, 0xFF, out.kv_bytes);
    struct device_program *p = rig_program(&dev, t, &kv);
    (void)rig_step(&dev, p, &r.step);
    rig_copy_values(&r, t, cpu_program_slab(p), &out);
    dev.program_destroy(dev.self, p);
    dev.close(dev.self);
    tape_destroy(t);
    return out;
}

static void test_broken_numbers_quantise_alike_and_stay_in_range(void **state) {
    (void)state;
    float x[BROKEN_COLS] = {0};
    x[0] = NAN;
    x[1] = 2.0f;
    x[2] = -1.0f;
    x[33] = INFINITY;
    x[34] = -INFINITY;
    x[35] = 1.0f;
    const struct op quant = {.kind = OP_QUANT, .quant = {{0, 0, BROKEN_COLS}, {1, 0, BROKEN_COLS}}};
    const struct kv_tiles none = {.tiles_per_block = 1};
    struct rig_result ref = run_broken("ref", x, &quant, &none);
    struct q8_row q = q8_row_at(ref.bytes + ref.offset[1], BROKEN_COLS);
    assert_int_equal(q.q[0], 0);
    assert_int_equal(q.q[1], 127);
    assert_int_equal(q.q[2], -64);
    assert_int_equal(q.q[33], 127);
    assert_int_equal(q.q[34], -127);
    assert_int_equal(q.q[35], 0);
    assert_true(isfinite(q.scale[1]));
    for (int i = 0; i < RIG_ISAS; i++) {
        if (!rig_isa_runs(rig_isas[i])) continue;
        struct rig_result got = run_broken(rig_isas[i], x, &quant, &none);
        rig_same(&ref, &got, rig_isas[i], 1, "broken numbers");
        rig_free(&got);
    }
    rig_free(&ref);
}

/* One broken block among sound ones, at every place: kernels take several blocks at once. */
static void test_one_broken_block_among_sound_ones_quantises_alike(void **state) {
    (void)state;
    static const float broken[] = {NAN, INFINITY, -INFINITY, 0.0f, 1e-40f, 1e-37f, 3.4e38f};
    const struct op quant = {.kind = OP_QUANT, .quant = {{0, 0, BROKEN_COLS}, {1, 0, BROKEN_COLS}}};
    const struct kv_tiles none = {.tiles_per_block = 1};
    for (uint32_t kind = 0; kind < 7; kind++)
        for (uint32_t block = 0; block < BROKEN_COLS / Q8_BLOCK; block++) {
            float x[BROKEN_COLS];
            for (uint32_t i = 0; i < BROKEN_COLS; i++)
                x[i] = (float)(rng_unit_at(kind, block, i) * 2 - 1);
            for (uint32_t i = 0; i < Q8_BLOCK && kind > 2; i++) x[block * Q8_BLOCK + i] = 0.0f;
            x[block * Q8_BLOCK + 5 * kind] = broken[kind];
            struct rig_result ref = run_broken("ref", x, &quant, &none);
            for (int i = 0; i < RIG_ISAS; i++) {
                if (!rig_isa_runs(rig_isas[i])) continue;
                struct rig_result got = run_broken(rig_isas[i], x, &quant, &none);
                rig_same(&ref, &got, rig_isas[i], 1, "one broken block");
                rig_free(&got);
            }
            rig_free(&ref);
        }
}

static void check_rope(uint32_t rots, enum rope_style style, uint32_t rows, uint32_t first) {
    struct rig_steps steps;
    struct weight freqs = random_vector(rots / 2, 3);
    struct rig r = {.seed = rots, .value_count = 1, .step = rig_one_seq(&steps, rows, first)};
    r.values[0] = f32_value(3 * (rots + 4));
    r.op.kind = OP_ROPE;
    r.op.rope = (struct op_rope){.style = style,
                                 .heads = 3,
                                 .head_dim = rots + 4,
                                 .rot_dims = rots,
                                 .freqs = &freqs,
                                 .factor = rots % 8 ? 1.0f : 1.25f,
                                 .x = rig_operand(&r, 0)};
    rig_check_only(&r, "rope");
    vector_free(&freqs);
}

static const uint32_t rope_firsts[] = {0, 4000, 4094, 8190, 16383, 32767, 131071, 1048570};
enum { ROPE_FIRSTS = sizeof(rope_firsts) / sizeof(rope_firsts[0]) };

static void test_rope_has_the_same_bits(void **state) {
    (void)state;
    static const uint32_t rots[] = {2, 16, 20, 64};
    for (uint32_t i = 0; i < 4; i++)
        for (int style = ROPE_NEOX; style <= ROPE_ADJACENT; style++)
            for (uint32_t f = 0; f < ROPE_FIRSTS; f++)
                check_rope(rots[i], (enum rope_style)style, row_counts[i + 1], rope_firsts[f]);
}

/* Against the definition in double, up to a million positions; the angle is a float. */
static void check_reference_rope(enum rope_style style, uint32_t first) {
    struct rig_steps steps;
    enum { ROWS = 5 };
    static const float freqs[] = {0.5f, 0.01f};
    struct weight vector = weight_vector(STR("freqs"), freqs, 2);
    struct rig r = {.value_count = 1, .step = rig_one_seq(&steps, ROWS, first)};
    r.values[0] = f32_value(4);
    r.op.kind = OP_ROPE;
    r.op.rope = (struct op_rope){.style = style,
                                 .heads = 1,
                                 .head_dim = 4,
                                 .rot_dims = 4,
                                 .freqs = &vector,
                                 .factor = 1.0f,
                                 .x = rig_operand(&r, 0)};
    struct rig_result got = rig_run(&r, "ref", 1);
    for (uint32_t row = 0; row < ROWS; row++)
        for (int i = 0; i < 2; i++) {
            uint32_t a = style == ROPE_NEOX ? i : 2 * i, b = style == ROPE_NEOX ? i + 2 : 2 * i + 1;
            double angle = (double)((float)(first + row) * freqs[i]);
            double x = (double)rig_float(&r, 0, row, a), y = (double)rig_float(&r, 0, row, b);
            const float *out = rig_row(&got, 0, row);
            assert_true(fabs(x * cos(angle) - y * sin(angle) - (double)out[a]) < 1e-6);
            assert_true(fabs(x * sin(angle) + y * cos(angle) - (double)out[b]) < 1e-6);
        }
    rig_free(&got);
}

static void test_the_reference_rope_turns_pairs(void **state) {
    (void)state;
    for (int style = ROPE_NEOX; style <= ROPE_ADJACENT; style++)
        for (uint32_t f = 0; f < ROPE_FIRSTS; f++)
            check_reference_rope((enum rope_style)style, rope_firsts[f]);
}

static const uint32_t int4_dims[] = {8, 20, 64, 128, 40, 48, 96, 112, 256, 80};

/* Of every other head width, for 3 heads. */
static const struct key_smoothing *smoothing_of(uint32_t i) {
    enum { COLS_MAX = 512 };
    static float mean[COLS_MAX], scale[COLS_MAX], inverse[COLS_MAX], feedback[COLS_MAX * 128];
    static const struct key_smoothing smoothing = {mean, scale, inverse, feedback, NULL};
    if (i % 2 == 0) return NULL;
    for (uint32_t d = 0; d < COLS_MAX; d++) {
        mean[d] = (float)rng_unit_at(78, 0, d) - 0.5f;
        inverse[d] = 0.5f + (float)rng_unit_at(78, 1, d);
    }
    const uint32_t dim = int4_dims[i], stride = kv_feedback_stride(dim);
    memset(feedback, 0, sizeof(feedback));
    for (uint32_t row = 0; row < 3 * dim; row++)
        for (uint32_t d = 0; d < row % dim; d++)
            feedback[(size_t)row * stride + d] = (float)rng_unit_at(79, row, d) - 0.5f;
    return &smoothing;
}

static void test_kv_writes_have_the_same_bits(void **state) {
    (void)state;
    const uint32_t *dims = int4_dims;
    for (uint32_t i = 0; i < 10; i++)
        for (int type = KV_F16; type < KV_TYPE_COUNT; type++) {
            struct rig_steps steps;
            const uint32_t rows = row_counts[i % 6];
            struct kv_tiles kv = {.type = type,
                                  .layers = 2,
                                  .heads = 3,
                                  .head_dim = dims[i],
                                  .tile_count = 6,
                                  .tiles_per_block = 1};
            struct rig r = {.spread = i == 0   ? 1e5f
                                      : i == 1 ? 1e-7f
                                               : 1.0f,
                            .value_count = 2,
                            .step = rig_one_seq(&steps, rows, 25),
                            .kv = &kv};
            size_t bytes = rig_kv_bytes(&kv);
            kv.base = mem_alloc_aligned(64, bytes);
            memset(kv.base, 0xAB, bytes);
            steps.pos[rows / 2] = -1;
            r.values[0] = r.values[1] = f32_value(3 * dims[i]);
            r.op.kind = OP_KV_WRITE;
            r.op.kv_write =
                (struct op_kv_write){.layer = 1, .k = rig_operand(&r, 0), .v = rig_operand(&r, 1)};
            r.op.kv_write.smoothing = smoothing_of(i);
            rig_check_only(&r, "kv_write");
            mem_free(kv.base);
        }
}

/* Rows of two sequences, written with blocks of so many tiles in reverse order; the same on every
 * table. The memory of `kv` is the result's. */
static struct rig_result write_blocks(struct kv_tiles *kv, struct rig_steps *steps) {
    enum { ROWS = 90, MINE = 50 };
    struct rig r = {.seed = 11, .value_count = 2, .step = rig_one_seq(steps, ROWS, 25), .kv = kv};
    uint32_t blocks = kv->tile_count / kv->tiles_per_block;
    size_t bytes = rig_kv_bytes(kv);
    kv->base = mem_alloc_aligned(64, bytes);
    memset(kv->base, 0xAB, bytes);
    r.step.seq_count = 2;
    steps->seqs[0] = (struct step_seq){0, MINE};
    steps->seqs[1] = (struct step_seq){MINE, ROWS - MINE};
    for (uint32_t row = MINE; row < ROWS; row++) {
        steps->seq[row] = 1;
        steps->pos[row] = (int32_t)(row - MINE);
    }
    for (uint32_t b = 0; b < blocks / 2; b++) {
        steps->blocks[0][b] = blocks - 1 - 2 * b;
        steps->blocks[1][b] = 2 * b;
    }
    r.values[0] = r.values[1] = f32_value(kv->heads * kv->head_dim);
    r.op.kind = OP_KV_WRITE;
    r.op.kv_write =
        (struct op_kv_write){.layer = 1, .k = rig_operand(&r, 0), .v = rig_operand(&r, 1)};
    struct rig_result out = rig_check(&r, "kv_write of blocks");
    mem_free(kv->base);
    kv->base = out.kv;
    return out;
}

/* Tile by tile of each sequence, wherever it lies; both layers. */
static void test_blocks_of_several_tiles_are_written_as_blocks_of_one(void **state) {
    (void)state;
    for (int type = KV_F16; type < KV_TYPE_COUNT; type++) {
        struct rig_steps steps, one_steps;
        struct kv_tiles one = {.type = (enum kv_type)type,
                               .layers = 2,
                               .heads = 3,
                               .head_dim = 20,
                               .tile_count = 12,
                               .tiles_per_block = 1};
        struct kv_tiles empty = one;
        struct rig_result want = write_blocks(&one, &one_steps);
        for (uint32_t tiles = 2; tiles <= 3; tiles++) {
            struct kv_tiles several = empty;
            several.tiles_per_block = tiles;
            several.tile_count = one.tile_count * tiles; /* as many blocks */
            struct rig_result got = write_blocks(&several, &steps);
            for (uint32_t seq = 0; seq < 2; seq++)
                for (uint32_t t = 0; t < 6; t++)
                    assert_memory_equal(
                        kv_tile(&one, 0, kv_tile_index(&one, one_steps.blocks[seq], t), 0),
                        kv_tile(&several, 0, kv_tile_index(&several, steps.blocks[seq], t), 0),
                        kv_tile_bytes(&one));
            rig_free(&got);
        }
        rig_free(&want);
    }
}

static float half_at(const uint8_t *p) {
    uint16_t half;
    memcpy(&half, p, sizeof(half));
    return f16_to_f32(half);
}

/* The numbers of one head of one token, in a K tile (stride 16) or a V tile. */
static void check_int8_row(const float *x, uint32_t dim, const int8_t *q, size_t stride,
                           float scale) {
    float max = 0.0f;
    for (uint32_t d = 0; d < dim; d++) max = fmaxf(max, fabsf(x[d]));
    float below = f16_to_f32((uint16_t)(f16_from_f32(scale) - 1));
    assert_true(scale >= max / 127.0f);
    assert_true(below < max / 127.0f);
    for (uint32_t d = 0; d < dim; d++)
        assert_true(fabsf(x[d] - (float)q[d * stride] * scale) <= scale * 0.50001f);
}

static void test_an_int8_cache_holds_every_number_to_half_a_step(void **state) {
    (void)state;
    enum { DIM = 40, HEADS = 2, ROWS = 21 };
    static const float spreads[] = {1e-6f, 1e-3f, 1.0f, 300.0f, 5e6f};
    for (int i = 0; i < 5; i++) {
        struct rig_steps steps;
        struct kv_tiles kv = {.type = KV_I8,
                              .layers = 1,
                              .heads = HEADS,
                              .head_dim = DIM,
                              .tile_count = 2,
                              .tiles_per_block = 1};
        struct rig r = {.seed = 70,
                        .spread = spreads[i],
                        .value_count = 2,
                        .step = rig_one_seq(&steps, ROWS, 0),
                        .kv = &kv};
        kv.base = mem_alloc_aligned(64, rig_kv_bytes(&kv));
        memset(kv.base, 0xFF, rig_kv_bytes(&kv));
        r.values[0] = r.values[1] = f32_value(HEADS * DIM);
        r.op.kind = OP_KV_WRITE;
        r.op.kv_write = (struct op_kv_write){.k = rig_operand(&r, 0), .v = rig_operand(&r, 1)};
        struct rig_result got = rig_check(&r, "kv_write int8");
        struct kv_tiles left = kv;
        left.base = got.kv;
        for (uint32_t row = 0; row < ROWS; row++)
            for (uint32_t h = 0; h < HEADS; h++) {
                uint32_t token = row % KV_TILE_TOKENS;
                const uint8_t *k = kv_tile(&left, 0, row / KV_TILE_TOKENS, h);
                const uint8_t *v = k + kv_side_bytes(KV_I8, DIM);
                size_t scale = kv_scales_offset(KV_I8, DIM) + 2 * token;
                check_int8_row(rig_row(&got, 0, row) + h * DIM, DIM, (const int8_t *)k + token,
                               KV_TILE_TOKENS, half_at(k + scale));
                check_int8_row(rig_row(&got, 1, row) + h * DIM, DIM,
                               (const int8_t *)v + token * DIM, 1, half_at(v + scale));
            }
        rig_free(&got);
        mem_free(kv.base);
    }
}

/* Heads of 16: NaN everywhere; all zeros; below every f16; beyond f16 on both sides. */
static void test_broken_numbers_enter_an_int4_cache_alike(void **state) {
    (void)state;
    enum { DIM = 16 };
    const struct op write = {.kind = OP_KV_WRITE, .kv_write = {.k = {0, 0, 64}, .v = {0, 0, 64}}};
    const struct kv_tiles kv = {.type = KV_I4,
                                .layers = 1,
                                .heads = 4,
                                .head_dim = DIM,
                                .tile_count = 1,
                                .tiles_per_block = 1};
    float x[BROKEN_COLS] = {NAN, INFINITY, -INFINITY, 1e6f, -2.0f};
    x[2 * DIM] = 1e-12f;
    x[3 * DIM + 1] = 1e7f;
    struct rig_result ref = run_broken("ref", x, &write, &kv);
    static const float most[] = {0.0f, 0.0f, 0x1p-22f, 70000.0f};
    for (uint32_t h = 0; h < 4; h++) {
        const uint8_t *v = ref.kv + (2 * h + 1) * kv_side_bytes(KV_I4, DIM);
        float out[DIM];
        read_int4(v, DIM, 0, true, out);
        for (uint32_t d = 0; d < DIM; d++) {
            assert_true(fabsf(out[d]) <= most[h]);
            assert_true(h < 3 || fabsf(out[d]) > 60000.0f);
        }
    }
    for (int i = 0; i < RIG_ISAS; i++) {
        if (!rig_isa_runs(rig_isas[i])) continue;
        struct rig_result got = run_broken(rig_isas[i], x, &write, &kv);
        rig_same(&ref, &got, rig_isas[i], 1, "broken numbers in an int4 cache");
        rig_free(&got);
    }
    rig_free(&ref);
}

static void test_numbers_enter_an_fp8_cache_by_its_rules(void **state) {
    (void)state;
    enum { DIM = 16 };
    const struct op write = {.kind = OP_KV_WRITE, .kv_write = {.k = {0, 0, 64}, .v = {0, 0, 64}}};
    const struct kv_tiles kv = {.type = KV_F8,
                                .layers = 1,
                                .heads = 4,
                                .head_dim = DIM,
                                .tile_count = 1,
                                .tiles_per_block = 1};
    float x[BROKEN_COLS] = {NAN, INFINITY, -INFINITY, 1e6f, -2.0f, 1.0625f, 1.1875f, -1e-39f};
    struct rig_result ref = run_broken("ref", x, &write, &kv);
    static const uint8_t want[] = {0, 0x7e, 0xfe, 0x7e, 0xc0, 0x38, 0x3a, 0x80};
    const uint8_t *k = ref.kv, *v = k + kv_side_bytes(KV_F8, DIM);
    assert_memory_equal(v, want, sizeof(want));
    for (uint32_t d = 0; d < sizeof(want); d++)
        assert_int_equal(k[(size_t)d * KV_TILE_TOKENS], want[d]);
    for (int i = 0; i < RIG_ISAS; i++) {
        if (!rig_isa_runs(rig_isas[i])) continue;
        struct rig_result got = run_broken(rig_isas[i], x, &write, &kv);
        rig_same(&ref, &got, rig_isas[i], 1, "broken numbers in an fp8 cache");
        rig_free(&got);
    }
    rig_free(&ref);
}

/* Heads of 16: one with broken numbers, one that is all zeros, one below every f16, one above. */
static void test_broken_numbers_enter_an_int8_cache_alike(void **state) {
    (void)state;
    enum { DIM = 16 };
    const struct op write = {.kind = OP_KV_WRITE, .kv_write = {.k = {0, 0, 64}, .v = {0, 0, 64}}};
    const struct kv_tiles kv = {.type = KV_I8,
                                .layers = 1,
                                .heads = 4,
                                .head_dim = DIM,
                                .tile_count = 1,
                                .tiles_per_block = 1};
    float x[BROKEN_COLS] = {NAN, INFINITY, -INFINITY, 1e6f, -2.0f};
    x[2 * DIM] = 1e-12f;
    x[2 * DIM + 1] = -1e-39f;
    x[3 * DIM] = 3e38f;
    x[3 * DIM + 1] = -65504.0f * 100.0f;
    struct rig_result ref = run_broken("ref", x, &write, &kv);
    static const float scales[] = {65504.0f, 0.0f, 0x1p-24f, 65504.0f};
    static const int8_t want[4][5] = {{0, 127, -127, 15, 0}, {0}, {0}, {127, -100}};
    for (uint32_t h = 0; h < 4; h++) {
        const uint8_t *v = ref.kv + (2 * h + 1) * kv_side_bytes(KV_I8, DIM);
        assert_true(half_at(v + kv_scales_offset(KV_I8, DIM)) == scales[h]);
        assert_memory_equal(v, want[h], sizeof(want[h]));
    }
    for (int i = 0; i < RIG_ISAS; i++) {
        if (!rig_isa_runs(rig_isas[i])) continue;
        struct rig_result got = run_broken(rig_isas[i], x, &write, &kv);
        rig_same(&ref, &got, rig_isas[i], 1, "broken numbers in an int8 cache");
        rig_free(&got);
    }
    rig_free(&ref);
}

static void test_activations_have_the_same_bits(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 5; i++)
        for (int kind = ACT_SILU; kind <= ACT_GELU_ERF; kind++)
            for (int form = 0; form < 4; form++) {
                struct rig_steps steps;
                bool q8 = form & 1, up = form & 2;
                uint32_t segments = i == 2 ? 3 : 1, cols = widths[i] + (q8 ? 0 : i);
                struct rig r = {.seed = i,
                                .spread = 12.0f,
                                .value_count = 2,
                                .step = rig_one_seq(&steps, row_counts[i], 0)};
                r.values[0] = f32_value(2 * cols * segments);
                r.values[1] = q8 ? q8_value(cols * segments) : f32_value(cols * segments);
                steps.pos[row_counts[i] / 2] = -1;
                r.op.kind = OP_ACT;
                r.op.act =
                    (struct op_act){.kind = kind,
                                    .segments = segments,
                                    .stride = 2 * cols,
                                    .gate = {0, 0, cols},
                                    .up = up ? (struct operand){0, cols, cols} : operand_none,
                                    .dst = q8 ? operand_none : rig_operand(&r, 1),
                                    .q8 = q8 ? rig_operand(&r, 1) : operand_none};
                rig_check_only(&r, "act");
            }
}

enum { SWEEP_COLS = 1 << 14 };

/* A vector table and the reference side by side, fed with the same row of arguments. */
struct sweep {
    float table[SWEEP_COLS];
    struct weight w;
    struct rig_steps steps;
    struct step step;
    struct tape *tape;
    struct device dev[2];
    struct device_program *program[2];
};

/* The functions are the kinds of act, and one more: softcap by 1, which is tanh. */
static void sweep_open(struct sweep *s, int function) {
    struct operand x = {0, 0, SWEEP_COLS};
    struct op embed = {.kind = OP_EMBED}, op = {.kind = OP_ACT};
    s->w = (struct weight){.type = DTYPE_F32,
                           .rows = 1,
                           .cols = SWEEP_COLS,
                           .experts = 1,
                           .data = s->table,
                           .bytes = sizeof(s->table)};
    s->step = rig_one_seq(&s->steps, 1, 0);
    embed.embed = (struct op_embed){.table = &s->w, .source = EMBED_ZERO, .scale = 1.0f, .dst = x};
    op.act = (struct op_act){.kind = function,
                             .segments = 1,
                             .gate = x,
                             .up = operand_none,
                             .dst = x,
                             .q8 = operand_none};
    if (function > ACT_GELU_ERF) {
        op.kind = OP_SOFTCAP;
        op.softcap = (struct op_softcap){.cap = 1.0f, .x = x};
    }
    assert_int_equal(tape_create(&s->tape), ST_OK);
    tape_value(s->tape, "x", ROWS_TOKENS, VALUE_F32, SWEEP_COLS);
    tape_push(s->tape, &embed);
    tape_push(s->tape, &op);
    tape_set_output(s->tape, 0);
    assert_int_equal(tape_finish(s->tape, &(struct tape_sizes){1, 1, 1}, NULL), ST_OK);
    for (int d = 0; d < 2; d++) {
        assert_int_equal(cpu_device_open(d ? "auto" : "ref", 1, &s->dev[d], NULL), ST_OK);
        s->program[d] = rig_program(&s->dev[d], s->tape, NULL);
    }
}

static void sweep_close(struct sweep *s) {
    for (int d = 0; d < 2; d++) {
        s->dev[d].program_destroy(s->dev[d].self, s->program[d]);
        s->dev[d].close(s->dev[d].self);
    }
    tape_destroy(s->tape);
}

/* Bit patterns from `first` to `end`; NaN results are only compared as NaN. */
static void sweep_run(struct sweep *s, int function, uint64_t first, uint64_t end,
                      uint32_t stride) {
    for (uint64_t bits = first; bits < end;) {
        for (uint32_t i = 0; i < SWEEP_COLS; i++, bits += stride) {
            uint32_t pattern = (uint32_t)bits;
            memcpy(&s->table[i], &pattern, sizeof(pattern));
        }
        const float *y[2];
        for (int d = 0; d < 2; d++) y[d] = rig_step(&s->dev[d], s->program[d], &s->step).rows;
        for (uint32_t i = 0; i < SWEEP_COLS; i++) {
            if (isnan(y[0][i]) && isnan(y[1][i])) continue;
            if (memcmp(&y[0][i], &y[1][i], sizeof(float)) != 0)
                fail_msg("function %d of %a: %a, not %a", function, (double)s->table[i],
                         (double)y[1][i], (double)y[0][i]);
        }
    }
}

/* The whole range of floats coarsely, and 1/16 to 16, where the polynomials work, finely. */
static void test_vector_functions_equal_the_scalar_ones(void **state) {
    (void)state;
    static struct sweep s;
    for (int function = ACT_SILU; function <= ACT_GELU_ERF + 1; function++) {
        sweep_open(&s, function);
        sweep_run(&s, function, 0, UINT64_C(1) << 32, 4001);
        sweep_run(&s, function, 0x3D800000, 0x41800000, 61);
        sweep_run(&s, function, 0xBD800000, 0xC1800000, 61);
        sweep_close(&s);
    }
}

/* Every column comes from where the order says, in every row but the one that is skipped. */
static void check_permute(struct rig *r, uint32_t cols) {
    float *floats = mem_alloc_array(cols, sizeof(float));
    for (uint32_t i = 0; i < cols; i++) floats[i] = (float)((i * 7 + 3) % cols);
    struct weight order = weight_vector(STR("order"), floats, cols);
    r->op.kind = OP_PERMUTE;
    r->op.permute = (struct op_permute){&order, rig_operand(r, 0), rig_operand(r, 1)};
    struct rig_result got = rig_check(r, "permute");
    for (uint32_t row = 0; row < r->step.row_count; row++)
        for (uint32_t i = 0; i < cols && r->step.pos[row] >= 0; i++)
            assert_true(rig_row(&got, 1, row)[i] == rig_float(r, 0, row, (uint32_t)floats[i]));
    rig_free(&got);
    mem_free(floats);
}

static void test_small_ops_have_the_same_bits(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        struct rig_steps steps;
        struct rig r = {.seed = i,
                        .spread = 20.0f,
                        .value_count = 2,
                        .step = rig_one_seq(&steps, row_counts[i], 0)};
        uint32_t cols = 13 * (i + 1);
        steps.pos[row_counts[i] / 2] = -1;
        r.values[0] = r.values[1] = f32_value(cols);
        r.op.kind = OP_ADD;
        r.op.add = (struct op_add){rig_operand(&r, 0), rig_operand(&r, 1)};
        rig_check_only(&r, "add");
        r.value_count = 1;
        r.op.kind = OP_SOFTCAP;
        r.op.softcap = (struct op_softcap){.cap = 15.0f, .x = rig_operand(&r, 0)};
        rig_check_only(&r, "softcap");
        r.value_count = 2;
        check_permute(&r, cols);
        r.values[1].rows = ROWS_OUTPUTS;
        r.step.output_count = (row_counts[i] + 1) / 2;
        for (uint32_t o = 0; o < r.step.output_count; o++)
            steps.output_row[o] = row_counts[i] - 1 - o;
        r.op.kind = OP_GATHER;
        r.op.gather = (struct op_gather){rig_operand(&r, 0), rig_operand(&r, 1)};
        rig_check_only(&r, "gather");
    }
}

/* The floats of the host go to the columns that the op names, and a skipped row stays. */
static void test_inputs_are_copied(void **state) {
    (void)state;
    enum { ROWS = 17, COLS = 24, FIRST = 8 };
    static float input[ROWS * COLS];
    struct rig_steps steps;
    struct rig r = {.seed = 3, .value_count = 1, .step = rig_one_seq(&steps, ROWS, 0)};
    for (int i = 0; i < ROWS * COLS; i++) input[i] = 1000.0f + (float)i;
    steps.pos[3] = -1;
    r.step.input = input;
    r.step.sizes.input_floats = COLS;
    r.values[0] = f32_value(FIRST + COLS);
    r.op.kind = OP_INPUT;
    r.op.input.dst = operand_slice(rig_operand(&r, 0), FIRST, COLS);
    struct rig_result got = rig_check(&r, "input");
    for (uint32_t row = 0; row < ROWS; row++) {
        const float *x =
            (const float *)(const void *)(got.bytes + got.offset[0] + row * got.row_bytes[0]);
        for (uint32_t c = 0; c < FIRST + COLS; c++)
            assert_true((x[c] >= 1000.0f) == (c >= FIRST && row != 3));
        if (row != 3) assert_memory_equal(x + FIRST, input + row * COLS, COLS * sizeof(float));
    }
    rig_free(&got);
}

/* As the file lays it and, where tables pack, from the panels of a head. */
static void test_embeddings_have_the_same_bits(void **state) {
    (void)state;
    for (int type = 0; type < DTYPE_COUNT; type++)
        for (int i = 0; i < 2 * (EMBED_ZERO + 1); i++) {
            enum embed_source source = (enum embed_source)(i / 2);
            struct rig_steps steps;
            struct weight w = random_weight(type, 17, 256, 1, 4);
            struct rig r = {.value_count = 1, .step = rig_one_seq(&steps, 17, 0)};
            steps.pos[3] = -1;
            if (i % 2) r.weights[0] = &w;
            r.values[0] = f32_value(256);
            r.op.kind = OP_EMBED;
            r.op.embed = (struct op_embed){.table = &w,
                                           .source = source,
                                           .add = source == EMBED_POSITION,
                                           .scale = 1.5f,
                                           .dst = rig_operand(&r, 0)};
            rig_check_only(&r, "embed");
            mem_free((void *)(uintptr_t)w.data);
        }
}

/* Row i of the table holds the number i: the one of the position, or of the token. */
static void test_embeddings_are_the_rows_of_long_tables(void **state) {
    (void)state;
    enum { TABLE_ROWS = 300000, COLS = 8, ROWS = 5 };
    static const uint32_t firsts[] = {0, 32766, 65534, 131070, TABLE_ROWS - ROWS};
    float *table = mem_alloc_array(TABLE_ROWS, COLS * sizeof(*table));
    assert_non_null(table);
    for (uint32_t i = 0; i < TABLE_ROWS * COLS; i++) table[i] = (float)(i / COLS);
    struct weight w = weight_vector(STR("table"), table, COLS);
    w.use = WEIGHT_TABLE;
    w.rows = TABLE_ROWS;
    w.bytes *= TABLE_ROWS;
    for (size_t f = 0; f < sizeof(firsts) / sizeof(firsts[0]); f++)
        for (int source = EMBED_TOKEN; source <= EMBED_POSITION; source++) {
            struct rig_steps steps;
            struct rig r = {.value_count = 1, .step = rig_one_seq(&steps, ROWS, firsts[f])};
            for (uint32_t i = 0; i < ROWS; i++) steps.token[i] = (int32_t)(firsts[f] + i);
            r.values[0] = f32_value(COLS);
            r.op.kind = OP_EMBED;
            r.op.embed = (struct op_embed){.table = &w,
                                           .source = (enum embed_source)source,
                                           .scale = 1.0f,
                                           .dst = rig_operand(&r, 0)};
            struct rig_result got = rig_run(&r, "ref", 1);
            for (uint32_t row = 0; row < ROWS; row++)
                for (uint32_t c = 0; c < COLS; c++)
                    assert_true(rig_row(&got, 0, row)[c] == (float)(firsts[f] + row));
            rig_free(&got);
        }
    mem_free(table);
}

static void test_pooling_has_the_same_bits_and_unit_length(void **state) {
    (void)state;
    for (int kind = POOL_MEAN; kind <= POOL_LAST; kind++) {
        struct rig_steps steps;
        struct rig r = {.value_count = 2, .step = rig_one_seq(&steps, 20, 0)};
        r.step.seq_count = 2;
        steps.seqs[0].row_count = 7;
        steps.seqs[1].first_row = 7;
        steps.seqs[1].row_count = 13;
        r.values[0] = f32_value(37);
        r.values[1] = (struct rig_value){ROWS_SEQS, VALUE_F32, 37, 0};
        r.op.kind = OP_POOL;
        r.op.pool = (struct op_pool){kind, true, rig_operand(&r, 0), rig_operand(&r, 1)};
        struct rig_result ref = rig_check(&r, "pool");
        double length = 0;
        for (int i = 0; i < 37; i++) length += pow((double)rig_row(&ref, 1, 1)[i], 2);
        assert_true(fabs(length - 1) < 1e-6);
        rig_free(&ref);
    }
}

/* Value 0 is the logits, 1 the ids, 2 the weights. */
static void test_routing_picks_the_likeliest_and_has_the_same_bits(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        struct rig_steps steps;
        uint32_t experts = 4 + i * 10, used = 1 + i % 4;
        struct rig r = {
            .seed = i, .spread = 4, .value_count = 3, .step = rig_one_seq(&steps, 9, 0)};
        r.values[0] = f32_value(experts);
        r.values[1] = (struct rig_value){ROWS_TOKENS, VALUE_I32, used, experts};
        r.values[2] = f32_value(used);
        r.op.kind = OP_ROUTE;
        r.op.route = (struct op_route){.experts = experts,
                                       .used = used,
                                       .normalise = true,
                                       .logits = rig_operand(&r, 0),
                                       .ids = rig_operand(&r, 1),
                                       .weights = rig_operand(&r, 2)};
        struct rig_result ref = rig_check(&r, "route");
        for (uint32_t row = 0; row < 9; row++) {
            const float *logits = rig_row(&ref, 0, row), *weights = rig_row(&ref, 2, row);
            const int32_t *ids = (const int32_t *)(const void *)rig_row(&ref, 1, row);
            double sum = 0;
            uint32_t above = 0;
            for (uint32_t j = 0; j < used; j++) sum += (double)weights[j];
            for (uint32_t e = 0; e < experts; e++) above += logits[e] > logits[ids[used - 1]];
            assert_true(fabs(sum - 1) < 1e-6);
            assert_int_equal(above, used - 1);
        }
        rig_free(&ref);
    }
}

static void test_equal_logits_are_routed_to_the_lower_number(void **state) {
    (void)state;
    struct rig_steps steps;
    struct rig r = {.spread = 1e-45f, .value_count = 3, .step = rig_one_seq(&steps, 1, 0)};
    r.values[0] = f32_value(8);
    r.values[1] = (struct rig_value){ROWS_TOKENS, VALUE_I32, 3, 8};
    r.values[2] = f32_value(3);
    r.op.kind = OP_ROUTE;
    r.op.route = (struct op_route){.experts = 8,
                                   .used = 3,
                                   .logits = rig_operand(&r, 0),
                                   .ids = rig_operand(&r, 1),
                                   .weights = rig_operand(&r, 2)};
    struct rig_result ref = rig_check(&r, "route of equals");
    const int32_t *ids = (const int32_t *)(const void *)rig_row(&ref, 1, 0);
    for (int j = 0; j < 3; j++) assert_int_equal(ids[j], j);
    assert_true(rig_row(&ref, 2, 0)[0] == 0.125f);
    rig_free(&ref);
}

static void test_expert_sums_have_the_same_bits(void **state) {
    (void)state;
    for (int add = 0; add < 2; add++) {
        struct rig_steps steps;
        struct rig r = {.value_count = 3, .step = rig_one_seq(&steps, 5, 0)};
        r.values[0] = f32_value(4 * 33);
        r.values[1] = f32_value(4);
        r.values[2] = f32_value(33);
        r.op.kind = OP_EXPERT_SUM;
        r.op.expert_sum = (struct op_expert_sum){4, add, rig_operand(&r, 0), rig_operand(&r, 1),
                                                 rig_operand(&r, 2)};
        struct rig_result ref = rig_check(&r, "expert sum");
        double want = add ? (double)rig_float(&r, 2, 1, 9) : 0;
        for (uint32_t j = 0; j < 4; j++)
            want += (double)rig_float(&r, 1, 1, j) * (double)rig_float(&r, 0, 1, j * 33 + 9);
        assert_true(fabs(want - (double)rig_row(&ref, 2, 1)[9]) < 1e-6);
        rig_free(&ref);
    }
}

static void test_a_name_that_is_no_table_is_refused(void **state) {
    (void)state;
    struct device dev;
    struct err err = {{0}};
    assert_int_equal(cpu_device_open("sse9", 1, &dev, &err), ST_BAD);
    assert_non_null(strstr(err.text, "sse9"));
    assert_true(rig_isa_runs("ref"));
    assert_true(rig_isa_runs("portable"));
    assert_true(rig_isa_runs("auto"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms_have_the_same_bits),
        cmocka_unit_test(test_the_reference_norm_is_the_formula),
        cmocka_unit_test(test_quantising_has_the_same_bits),
        cmocka_unit_test(test_broken_numbers_quantise_alike_and_stay_in_range),
        cmocka_unit_test(test_one_broken_block_among_sound_ones_quantises_alike),
        cmocka_unit_test(test_rope_has_the_same_bits),
        cmocka_unit_test(test_the_reference_rope_turns_pairs),
        cmocka_unit_test(test_kv_writes_have_the_same_bits),
        cmocka_unit_test(test_blocks_of_several_tiles_are_written_as_blocks_of_one),
        cmocka_unit_test(test_an_int8_cache_holds_every_number_to_half_a_step),
        cmocka_unit_test(test_broken_numbers_enter_an_int8_cache_alike),
        cmocka_unit_test(test_broken_numbers_enter_an_int4_cache_alike),
        cmocka_unit_test(test_numbers_enter_an_fp8_cache_by_its_rules),
        cmocka_unit_test(test_activations_have_the_same_bits),
        cmocka_unit_test(test_vector_functions_equal_the_scalar_ones),
        cmocka_unit_test(test_small_ops_have_the_same_bits),
        cmocka_unit_test(test_inputs_are_copied),
        cmocka_unit_test(test_embeddings_have_the_same_bits),
        cmocka_unit_test(test_embeddings_are_the_rows_of_long_tables),
        cmocka_unit_test(test_pooling_has_the_same_bits_and_unit_length),
        cmocka_unit_test(test_routing_picks_the_likeliest_and_has_the_same_bits),
        cmocka_unit_test(test_equal_logits_are_routed_to_the_lower_number),
        cmocka_unit_test(test_expert_sums_have_the_same_bits),
        cmocka_unit_test(test_a_name_that_is_no_table_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
