/* Goal:   attention has the bits of its definition in every table; the definition is softmax
 *         attention; and what unused places of the cache hold never matters.
 * Method: a cache of random numbers in which every token that no row may see is a NaN; all
 *         tables compared bit for bit; the reference against a softmax in double; rows of a
 *         batch against the rows alone. */
#include <math.h>

#include "graph/key_smoothing.h"
#include "kernels/cpu/kv_range.h"
#include "kernels/cpu/kernels_ref.h"
#include "ops/ops_rig.h"
#include "tensor/fp8.h"

struct attn_case {
    enum kv_type type;
    uint32_t heads, kv_heads, head_dim;
    uint32_t first, rows; /* positions first .. first + rows - 1 of one sequence */
    uint32_t window;
    uint32_t block_tiles; /* of one block; 0: one */
    float softcap;
    bool q8, keep_floats;
    bool is_coarse; /* the numbers of the cache are those of eight bits, whatever its type */
    uint32_t skip;
    uint64_t seed;
};

/* One for a head's keys, one for its values, different from token to token. */
static uint16_t cache_scale(const struct attn_case *c, uint32_t head, uint32_t pos, bool value) {
    uint64_t at = ((uint64_t)pos << 20) | head;
    return f16_from_f32((float)(rng_unit_at(c->seed + 200, value, at) + 0.1) / 127.0f);
}

/* A KV_I4 cache holds numbers of about the same size as others. */
static uint8_t int4_unit_code(const struct attn_case *c, uint32_t head, uint32_t pos, bool value) {
    uint64_t at = ((uint64_t)pos << 20) | head;
    return (uint8_t)(110 + rng_at(c->seed + 200, value, at) % 16);
}

static uint8_t int4_group(const struct attn_case *c, uint32_t head, uint32_t pos, uint32_t group,
                          bool value) {
    return (uint8_t)rng_at(c->seed + 300, value, ((uint64_t)pos << 20) | (head << 12) | group);
}

static uint8_t int4_code_of(const struct attn_case *c, uint32_t head, uint32_t pos, uint32_t d,
                            bool value) {
    return (uint8_t)(rng_at(c->seed + 100, value, ((uint64_t)pos << 20) | (head << 12) | d) % 16);
}

/* Still transformed. */
static float int4_number(const struct attn_case *c, uint32_t head, uint32_t pos, uint32_t d,
                         bool value) {
    uint32_t group = d / kv_group_dims(c->head_dim);
    struct int4_group g = int4_group_of(int4_group(c, head, pos, group, value));
    int units = g.step * (2 * int4_code_of(c, head, pos, d, value) - 16 - g.offset);
    return (float)units * int4_unit(int4_unit_code(c, head, pos, value));
}

static void store_int4(const struct attn_case *c, uint8_t *tile, uint32_t head, uint32_t pos,
                       bool value) {
    uint32_t token = pos % KV_TILE_TOKENS;
    size_t row = kv_row_bytes(KV_I4, c->head_dim);
    for (uint32_t d = 0; d < c->head_dim; d++) {
        uint8_t code = int4_code_of(c, head, pos, d, value);
        uint8_t *at = tile + (value ? token * row + kv_value_codes(d)
                                    : kv_key_codes(d) + (size_t)token * KV_KEY_STRIDE);
        bool high = value ? kv_value_is_high(d) : kv_key_is_high(d);
        *at = (uint8_t)(high ? (*at & 15) | code << 4 : (*at & 0xf0) | code);
    }
    tile[kv_scales_offset(KV_I4, c->head_dim) + token] = int4_unit_code(c, head, pos, value);
    for (uint32_t g = 0; g < kv_groups_of_head(c->head_dim); g++)
        tile[kv_group_offset(c->head_dim, g) + token] = int4_group(c, head, pos, g, value);
}

static void store(const struct attn_case *c, uint8_t *tile, size_t index, float value,
                  uint16_t scale) {
    if (c->type == KV_F32) {
        memcpy(tile + index * 4, &value, 4);
    } else if (c->type == KV_F8) {
        tile[index] = fp8_from_f32(value);
    } else if (c->type == KV_I8) {
        tile[index] = (uint8_t)(int8_t)lrintf(value / f16_to_f32(scale));
    } else {
        uint16_t half = f16_from_f32(value);
        memcpy(tile + index * 2, &half, 2);
    }
}

static float cache_number(const struct attn_case *c, uint32_t head, uint32_t pos, uint32_t d,
                          bool value) {
    uint64_t at = ((uint64_t)pos << 20) | (head << 12) | d;
    float x = (float)(rng_unit_at(c->seed + 100, value, at) * 2 - 1);
    if (c->type == KV_I4) return int4_number(c, head, pos, d, value);
    if (c->is_coarse) x = fp8_to_f32(fp8_from_f32(x));
    if (c->type == KV_I8) return rintf(127 * x) * f16_to_f32(cache_scale(c, head, pos, value));
    if (c->type == KV_F8) return fp8_to_f32(fp8_from_f32(x));
    return c->type == KV_F16 ? f16_to_f32(f16_from_f32(x)) : x;
}

/* Blocks in reverse order, the same for every sequence. */
static void reverse_blocks(struct rig_steps *steps, const struct kv_tiles *kv) {
    uint32_t count = kv->tile_count / kv->tiles_per_block;
    for (uint32_t q = 0; q < RIG_SEQS_MAX; q++)
        for (uint32_t b = 0; b < count; b++) steps->blocks[q][b] = count - 1 - b;
}

/* Of every other case over KV_I4. */
static const struct key_smoothing *smoothing_of(const struct attn_case *c) {
    enum { COLS_MAX = 1024 };
    static float mean[COLS_MAX], scale[COLS_MAX], inverse[COLS_MAX];
    static const struct key_smoothing smoothing = {mean, scale, inverse, NULL, NULL};
    if (c->type != KV_I4 || c->seed % 2 || c->kv_heads * c->head_dim > COLS_MAX) return NULL;
    for (uint32_t d = 0; d < COLS_MAX; d++) {
        mean[d] = (float)rng_unit_at(77, 0, d) - 0.5f;
        scale[d] = 0.5f + (float)rng_unit_at(77, 1, d);
        inverse[d] = 1.0f / scale[d];
    }
    return &smoothing;
}

/* Two layers, of which the op reads the second. */
static struct kv_tiles cache_init(const struct attn_case *c, struct rig_steps *steps) {
    uint32_t tokens = c->first + c->rows, tiles = c->block_tiles ? c->block_tiles : 1;
    struct kv_tiles kv = {.type = c->type,
                          .layers = 2,
                          .heads = c->kv_heads,
                          .head_dim = c->head_dim,
                          .tile_count = (tokens / (tiles * KV_TILE_TOKENS) + 2) * tiles,
                          .tiles_per_block = tiles};
    size_t bytes = rig_kv_bytes(&kv);
    kv.base = mem_alloc_aligned(64, bytes);
    memset(kv.base, 0xFF, bytes); /* NaN in both float formats and as a scale */
    reverse_blocks(steps, &kv);
    for (uint32_t pos = 0; pos < tokens; pos++)
        for (uint32_t h = 0; h < c->kv_heads; h++) {
            uint32_t tile = kv_tile_index(&kv, steps->blocks[0], pos / KV_TILE_TOKENS);
            uint8_t *k = kv_tile(&kv, 1, tile, h);
            uint8_t *v = k + kv_side_bytes(c->type, c->head_dim);
            uint32_t token = pos % KV_TILE_TOKENS;
            uint16_t scales[] = {cache_scale(c, h, pos, false), cache_scale(c, h, pos, true)};
            if (c->type == KV_I4) {
                store_int4(c, k, h, pos, false);
                store_int4(c, v, h, pos, true);
            }
            for (uint32_t d = 0; c->type != KV_I4 && d < c->head_dim; d++) {
                float key = cache_number(c, h, pos, d, false);
                store(c, k, d * KV_TILE_TOKENS + token, key, scales[0]);
                store(c, v, token * c->head_dim + d, cache_number(c, h, pos, d, true), scales[1]);
            }
            if (c->type != KV_I8) continue;
            memcpy(k + kv_scales_offset(KV_I8, c->head_dim) + 2 * token, &scales[0], 2);
            memcpy(v + kv_scales_offset(KV_I8, c->head_dim) + 2 * token, &scales[1], 2);
        }
    return kv;
}

/* Value 0 is q, then the floats if they are kept, then the quantised row if it is wanted. */
static struct rig attn_rig(const struct attn_case *c, struct rig_steps *steps,
                           struct kv_tiles *kv) {
    uint32_t cols = c->heads * c->head_dim;
    struct rig r = {.seed = c->seed,
                    .spread = 3.0f,
                    .value_count = 1,
                    .step = rig_one_seq(steps, c->rows, c->first)};
    for (uint32_t i = 0; c->skip && i < c->rows; i += c->skip) steps->pos[i] = -1;
    *kv = cache_init(c, steps);
    r.kv = kv;
    r.values[0] = (struct rig_value){ROWS_TOKENS, VALUE_F32, cols, 0};
    r.op.kind = OP_ATTENTION;
    r.op.attention = (struct op_attention){.layer = 1,
                                           .heads = c->heads,
                                           .kv_heads = c->kv_heads,
                                           .head_dim = c->head_dim,
                                           .window = c->window,
                                           .scale = 1.0f / sqrtf((float)c->head_dim),
                                           .softcap = c->softcap,
                                           .q = rig_operand(&r, 0),
                                           .dst = operand_none,
                                           .q8 = operand_none,
                                           .smoothing = smoothing_of(c)};
    if (c->keep_floats) {
        r.values[r.value_count] = (struct rig_value){ROWS_TOKENS, VALUE_F32, cols, 0};
        r.op.attention.dst = rig_operand(&r, r.value_count++);
    }
    if (c->q8) {
        r.values[r.value_count] = (struct rig_value){ROWS_TOKENS, VALUE_Q8, cols, 0};
        r.op.attention.q8 = rig_operand(&r, r.value_count++);
    }
    return r;
}

static void check_attention(const struct attn_case *c) {
    struct rig_steps steps;
    struct kv_tiles kv;
    struct rig r = attn_rig(c, &steps, &kv);
    char what[120];
    snprintf(what, sizeof(what), "attention type %d heads %u/%u dim %u pos %u+%u window %u",
             c->type, c->heads, c->kv_heads, c->head_dim, c->first, c->rows, c->window);
    rig_check_only(&r, what);
    mem_free(kv.base);
}

static void test_every_head_shape_has_the_same_bits(void **state) {
    (void)state;
    static const uint32_t dims[] = {8, 20, 32, 40, 48, 64, 80, 96, 112, 128, 256};
    static const uint32_t ratios[] = {1, 3, 4, 7};
    for (uint32_t i = 0; i < 11; i++)
        for (uint32_t j = 0; j < 4 * KV_TYPE_COUNT; j++) {
            bool q8 = dims[i] * 4 * ratios[j % 4] % 32 == 0;
            struct attn_case c = {.type = (enum kv_type)(j / 4),
                                  .heads = 4 * ratios[j % 4],
                                  .kv_heads = 4,
                                  .head_dim = dims[i],
                                  .first = i * 3,
                                  .rows = 1 + j % 4,
                                  .keep_floats = j % 2 == 0 || !q8,
                                  .q8 = q8,
                                  .seed = i};
            check_attention(&c);
        }
}

static void test_segment_edges_and_windows_have_the_same_bits(void **state) {
    (void)state;
    static const uint32_t firsts[] = {0, 15, 250, 255, 256, 509, 800};
    static const uint32_t windows[] = {0, 1, 16, 100, 300};
    for (uint32_t i = 0; i < 7; i++)
        for (uint32_t j = 0; j < 5 * KV_TYPE_COUNT; j++) {
            struct attn_case c = {.type = (enum kv_type)(j / 5),
                                  .heads = 6,
                                  .kv_heads = 2,
                                  .head_dim = 32,
                                  .first = firsts[i],
                                  .rows = 5,
                                  .window = windows[j % 5],
                                  .softcap = j % 5 == 3 ? 5.0f : 0.0f,
                                  .q8 = true,
                                  .seed = i + 50};
            check_attention(&c);
        }
}

/* Up to far beyond what the other tests reach. */
static void test_long_sequences_have_the_same_bits(void **state) {
    (void)state;
    static const struct {
        enum kv_type type;
        uint32_t first, window;
    } cases[] = {{KV_F16, 4094, 0},
                 {KV_F32, 8190, 0},
                 {KV_I8, 8446, 0},
                 {KV_F8, 20000, 9000},
                 {KV_I4, 8446, 3000}};
    for (uint32_t i = 0; i < 5; i++) {
        struct attn_case c = {.type = cases[i].type,
                              .heads = 2,
                              .kv_heads = 1,
                              .head_dim = 8,
                              .first = cases[i].first,
                              .rows = 4,
                              .block_tiles = 64,
                              .window = cases[i].window,
                              .keep_floats = true,
                              .seed = i + 90};
        check_attention(&c);
    }
}

static void test_prompts_and_skipped_rows_have_the_same_bits(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct attn_case c = {.type = i / 2 ? i % 2 ? KV_F8 : KV_I8 : KV_F16,
                              .heads = 9,
                              .kv_heads = 3,
                              .head_dim = 64,
                              .first = 230,
                              .rows = 64,
                              .q8 = true,
                              .keep_floats = true,
                              .skip = i % 2 ? 3 : 0};
        check_attention(&c);
    }
    /* Heads whose results are whole blocks only four at a time, of many KV heads. */
    struct attn_case c = {
        .heads = 8, .kv_heads = 8, .head_dim = 40, .first = 200, .rows = 100, .q8 = true};
    check_attention(&c);
}

/* Every length of a chunk up to several batches of rows, with heads that share a KV head one to
 * eight at a time, with segments that begin and windows that end inside a batch. */
static void test_chunks_of_every_length_have_the_same_bits(void **state) {
    (void)state;
    static const uint32_t dims[] = {64, 80, 32, 96, 64, 128, 40, 256};
    static const uint32_t firsts[] = {0, 7, 240}, windows[] = {0, 3, 0, 33, 0, 250};
    for (uint32_t rows = 1; rows <= 70; rows += RIG_IS_SLOW ? 5 : 1) {
        struct attn_case c = {.type = (enum kv_type)(rows % KV_TYPE_COUNT),
                              .heads = 1 + rows % 8,
                              .kv_heads = 1,
                              .head_dim = dims[rows % 8],
                              .first = firsts[rows / 3 % 3],
                              .rows = rows,
                              .window = windows[rows % 6],
                              .softcap = rows % 5 == 4 ? 4.0f : 0.0f,
                              .keep_floats = true,
                              .skip = rows % 11 == 10 ? 7 : 0,
                              .seed = rows};
        check_attention(&c);
    }
}

/* Sequences that share their blocks, as two requests with the same beginning do: their rows
 * lie side by side, at the ends and in the middle of what is cached. */
static void test_several_sequences_in_a_step_have_the_same_bits(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 9, 1, 20, 4}, firsts[] = {299, 250, 17, 0, 296};
    for (int type = KV_F16; type < KV_TYPE_COUNT; type++) {
        struct rig_steps steps;
        struct kv_tiles kv;
        struct attn_case c = {.type = (enum kv_type)type,
                              .heads = 6,
                              .kv_heads = 2,
                              .head_dim = 64,
                              .first = 265,
                              .rows = 35,
                              .q8 = true,
                              .seed = 77};
        struct rig r = attn_rig(&c, &steps, &kv);
        r.step.seq_count = 5;
        for (uint32_t s = 0, row = 0; s < 5; s++) {
            steps.seqs[s].first_row = row;
            steps.seqs[s].row_count = rows[s];
            for (uint32_t i = 0; i < rows[s]; i++, row++) {
                steps.seq[row] = s;
                steps.pos[row] = (int32_t)(firsts[s] + i);
            }
        }
        rig_check_only(&r, "several sequences");
        mem_free(kv.base);
    }
}

/* A row of each sequence in turn, as in decoding: few rows, which are shared out, and many, which
 * are claimed one ahead. What comes next lies in the next segment, a short one, or at another
 * row's window. */
static void test_rows_alone_have_the_same_bits(void **state) {
    (void)state;
    static const uint32_t positions[] = {511, 0, 256, 255, 527, 16, 299, 512, 700, 15, 257};
    static const uint32_t counts[] = {3, 9, 31, 32, 45}, windows[] = {0, 0, 40, 300};
    static const uint32_t ratios[] = {3, 1, 8, 6}, dims[] = {64, 128, 96, 32};
    for (uint32_t i = 0; i < 20; i += RIG_IS_SLOW ? 4 : 1) {
        struct rig_steps steps;
        struct kv_tiles kv;
        struct attn_case c = {.type = (enum kv_type)(i % KV_TYPE_COUNT),
                              .heads = 2 * ratios[i % 4],
                              .kv_heads = 2,
                              .head_dim = dims[i / 5],
                              .first = 701 - counts[i % 5],
                              .rows = counts[i % 5],
                              .window = windows[i / 2 % 4],
                              .q8 = true,
                              .seed = 90 + i};
        struct rig r = attn_rig(&c, &steps, &kv);
        r.step.seq_count = 8;
        for (uint32_t q = 1; q < 8; q++) steps.seqs[q] = steps.seqs[0];
        for (uint32_t row = 0; row < c.rows; row++) {
            steps.seq[row] = row % 8;
            steps.pos[row] = row % 13 == 7 ? -1 : (int32_t)positions[(row + i) % 11];
        }
        rig_check_only(&r, "rows alone");
        mem_free(kv.base);
    }
}

/* What attention over the case gives, with blocks of so many tiles; equal on every table. */
static struct rig_result attend_blocks(struct attn_case c, uint32_t tiles, uint32_t seqs) {
    struct rig_steps steps;
    struct kv_tiles kv;
    c.block_tiles = tiles;
    struct rig r = attn_rig(&c, &steps, &kv);
    char what[80];
    snprintf(what, sizeof(what), "attention over blocks of %u tiles, type %d", tiles, c.type);
    r.step.seq_count = seqs;
    for (uint32_t q = 0; q < seqs; q++) steps.seqs[q] = (struct step_seq){q, 1};
    steps.seqs[seqs - 1].row_count = c.rows - (seqs - 1);
    for (uint32_t row = 0; row < c.rows; row++) steps.seq[row] = row < seqs ? row : seqs - 1;
    struct rig_result out = rig_check(&r, what);
    mem_free(kv.base);
    return out;
}

/* Rows of one sequence and of several; positions that end and windows that begin in the first,
 * the middle and the last tile of a block, and segments that end inside a block. */
static void test_blocks_of_several_tiles_give_the_bits_of_blocks_of_one(void **state) {
    (void)state;
    static const uint32_t firsts[] = {0, 13, 31, 47, 95, 250, 500};
    static const uint32_t windows[] = {0, 20, 70}, row_counts[] = {1, 5, 70};
    for (uint32_t i = 0; i < 42; i += 5) {
        struct attn_case c = {.type = (enum kv_type)(i % KV_TYPE_COUNT),
                              .heads = 6,
                              .kv_heads = 2,
                              .head_dim = 32,
                              .first = firsts[i % 7],
                              .rows = row_counts[i / 7 % 3],
                              .window = windows[i / 3 % 3],
                              .q8 = true,
                              .keep_floats = true,
                              .seed = 300 + i};
        uint32_t seqs = i / 21 && c.rows > 1 ? 4 : 1;
        struct rig_result one = attend_blocks(c, 1, seqs);
        for (uint32_t tiles = 2; tiles <= 3; tiles++) {
            struct rig_result several = attend_blocks(c, tiles, seqs);
            assert_int_equal(one.count, several.count);
            assert_memory_equal(one.bytes, several.bytes, one.count);
            rig_free(&several);
        }
        rig_free(&one);
    }
}

/* Most tokens' values are zero, so that results show the weights of the others however small. */
static void clear_values(const struct attn_case *c, const struct kv_tiles *kv,
                         const uint32_t *blocks) {
    size_t bytes = kv_row_bytes(c->type, c->head_dim);
    for (uint32_t pos = 0; pos < c->first + c->rows; pos++)
        for (uint32_t h = 0; h < c->kv_heads && pos % 8 > 0; h++) {
            uint8_t *k = kv_tile(kv, 1, kv_tile_index(kv, blocks, pos / KV_TILE_TOKENS), h);
            uint8_t *v = k + kv_side_bytes(c->type, c->head_dim);
            /* Code 8 of KV_I4 is zero where the offset is 0. */
            memset(v + pos % KV_TILE_TOKENS * bytes, c->type == KV_I4 ? 0x88 : 0, bytes);
            for (uint32_t g = 0; c->type == KV_I4 && g < kv_groups_of_head(c->head_dim); g++)
                v[kv_group_offset(c->head_dim, g) + pos % KV_TILE_TOKENS] = 0x80;
        }
}

/* Scores so far apart that exponentials come near the smallest number, and beyond it to zero. */
static void test_weights_that_vanish_have_the_same_bits(void **state) {
    (void)state;
    static const float spreads[] = {100.0f, 250.0f, 1000.0f};
    for (uint32_t i = 0; i < 3 * KV_TYPE_COUNT; i++) {
        struct attn_case c = {.type = (enum kv_type)(i / 3),
                              .heads = 6,
                              .kv_heads = 2,
                              .head_dim = 64,
                              .first = 490,
                              .rows = 40,
                              .window = i % 2 ? 200 : 0,
                              .keep_floats = true,
                              .seed = 130 + i};
        struct rig_steps steps;
        struct kv_tiles kv;
        struct rig r = attn_rig(&c, &steps, &kv);
        r.spread = spreads[i % 3];
        clear_values(&c, &kv, steps.blocks[0]);
        rig_check_only(&r, "weights that vanish");
        mem_free(kv.base);
    }
}

/* The last row's own token is broken; the rows before it may not notice. */
static void test_a_row_sees_nothing_of_the_rows_after_it(void **state) {
    (void)state;
    for (int isa = 0; isa < RIG_ISAS; isa++)
        for (uint32_t rows = 2; rows <= 20 && rig_isa_runs(rig_isas[isa]); rows += 3)
            for (int type = KV_F16; type < KV_TYPE_COUNT; type++) {
                struct attn_case c = {.type = (enum kv_type)type,
                                      .heads = 2,
                                      .kv_heads = 2,
                                      .head_dim = 72,
                                      .first = 20,
                                      .rows = rows,
                                      .window = rows % 2 ? 9 : 0,
                                      .keep_floats = true};
                struct rig_steps steps;
                struct kv_tiles kv;
                struct rig r = attn_rig(&c, &steps, &kv);
                struct rig_result whole = rig_run(&r, rig_isas[isa], 1);
                mem_free(kv.base);
                c.rows--; /* so that the cache ends before the last row */
                r = attn_rig(&c, &steps, &kv);
                r.step = rig_one_seq(&steps, rows, c.first);
                reverse_blocks(&steps, &kv);
                struct rig_result broken = rig_run(&r, rig_isas[isa], 1);
                for (uint32_t row = 0; row + 1 < rows; row++)
                    assert_memory_equal(rig_row(&whole, 1, row), rig_row(&broken, 1, row),
                                        2 * 72 * sizeof(float));
                rig_free(&whole);
                rig_free(&broken);
                mem_free(kv.base);
            }
}

static void check_row_alone(enum kv_type type) {
    struct attn_case c = {.type = type,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = 64,
                          .first = 240,
                          .rows = 40,
                          .keep_floats = true};
    for (int isa = 0; isa < RIG_ISAS; isa++) {
        if (!rig_isa_runs(rig_isas[isa])) continue;
        for (uint32_t row = 0; row < c.rows; row += 13) {
            struct rig_steps steps;
            struct kv_tiles kv;
            struct rig r = attn_rig(&c, &steps, &kv);
            struct rig_result all = rig_run(&r, rig_isas[isa], 2);
            int32_t pos = (int32_t)(c.first + row);
            r.step.row_count = r.step.output_count = steps.seqs[0].row_count = 1;
            r.step.pos = &pos;
            r.row_base = row;
            struct rig_result alone = rig_run(&r, rig_isas[isa], 1);
            assert_memory_equal(rig_row(&all, 1, row), rig_row(&alone, 1, 0), 4 * 64 * 4);
            rig_free(&all);
            rig_free(&alone);
            mem_free(kv.base);
        }
    }
}

static void test_a_row_of_a_batch_equals_the_row_alone(void **state) {
    (void)state;
    for (int type = KV_F16; type < KV_TYPE_COUNT; type++) check_row_alone((enum kv_type)type);
}

/* Every number of eight bits is one of f16, and there are no scales. */
static void test_an_fp8_cache_gives_the_bits_of_the_same_numbers_in_f16(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        struct rig_steps steps;
        struct kv_tiles kv;
        struct rig_result got[2];
        struct attn_case c = {.heads = 4,
                              .kv_heads = 2,
                              .head_dim = i % 2 ? 64 : 40,
                              .first = 200 * i,
                              .rows = 1 + 9 * i,
                              .window = i == 4 ? 90 : 0,
                              .keep_floats = true,
                              .is_coarse = true,
                              .seed = 500 + i};
        for (int f8 = 0; f8 < 2; f8++) {
            c.type = f8 ? KV_F8 : KV_F16;
            struct rig r = attn_rig(&c, &steps, &kv);
            got[f8] = rig_run(&r, "auto", 1);
            mem_free(kv.base);
        }
        assert_int_equal(got[0].count, got[1].count);
        assert_memory_equal(got[0].bytes, got[1].bytes, got[0].count);
        rig_free(&got[0]);
        rig_free(&got[1]);
    }
}

/* A key or a value as it was before it was stored, but for what the format lost. */
static void cache_row(const struct attn_case *c, uint32_t head, uint32_t pos, bool value,
                      float *out) {
    for (uint32_t d = 0; d < c->head_dim; d++) out[d] = cache_number(c, head, pos, d, value);
    if (c->type == KV_I4) ref_kv_hadamard(out, c->head_dim);
    const struct key_smoothing *s = value ? NULL : smoothing_of(c);
    for (uint32_t d = 0; s && d < c->head_dim; d++) out[d] *= s->scale[head * c->head_dim + d];
}

/* A query as the definition rounds it, transformed back. */
static void round_query(const struct attn_case *c, const float *q, uint32_t kv_head, float *out) {
    int8_t codes[64];
    int32_t sums[64];
    float scale;
    const struct key_smoothing *s = smoothing_of(c);
    const size_t first = (size_t)kv_head * c->head_dim;
    memcpy(out, q, c->head_dim * sizeof(*out));
    if (c->type != KV_I4) return;
    for (uint32_t d = 0; s && d < c->head_dim; d++) out[d] *= s->scale[first + d];
    ref_kv_hadamard(out, c->head_dim);
    ref_kv_query(out, c->head_dim, (struct int4_query){codes, sums, &scale});
    for (uint32_t d = 0; d < c->head_dim; d++) {
        assert_true(fabsf(out[d] - codes[d] * scale) <= 0.5001f * scale);
        out[d] = codes[d] * scale;
    }
    ref_kv_hadamard(out, c->head_dim);
    for (uint32_t d = 0; s && d < c->head_dim; d++) out[d] *= s->inverse[first + d];
}

/* Early keys have their mean, the others do not. */
static double early_shift(const struct attn_case *c, const float *q, uint32_t kv_head,
                          uint32_t pos) {
    const struct key_smoothing *s = smoothing_of(c);
    double sum = 0;
    for (uint32_t d = 0; s && pos < KEY_MEAN_FIRST && d < c->head_dim; d++)
        sum += (double)q[d] * (double)s->mean[kv_head * c->head_dim + d];
    return sum;
}

/* Plain softmax attention of one head in double. */
static void softmax_attention(const struct attn_case *c, const float *q, uint32_t kv_head,
                              uint32_t end, double *out) {
    double sum = 0;
    float rounded[64];
    round_query(c, q, kv_head, rounded);
    uint32_t first = c->window && end > c->window ? end - c->window : 0;
    memset(out, 0, c->head_dim * sizeof(*out));
    for (uint32_t j = first; j < end; j++) {
        double s = -early_shift(c, q, kv_head, j);
        float key[64], val[64];
        cache_row(c, kv_head, j, false, key);
        cache_row(c, kv_head, j, true, val);
        for (uint32_t d = 0; d < c->head_dim; d++) s += (double)rounded[d] * (double)key[d];
        s /= sqrt(c->head_dim);
        if (c->softcap > 0) s = (double)c->softcap * tanh(s / (double)c->softcap);
        double p = exp(s); /* |s| is small here, so no maximum is needed */
        sum += p;
        for (uint32_t d = 0; d < c->head_dim; d++) out[d] += p * (double)val[d];
    }
    for (uint32_t d = 0; d < c->head_dim; d++) out[d] /= sum;
}

static void test_the_reference_is_softmax_attention(void **state) {
    (void)state;
    struct attn_case cases[] = {
        {.type = KV_F16, .heads = 4, .kv_heads = 2, .head_dim = 64, .first = 600, .rows = 2},
        {.type = KV_F32,
         .heads = 2,
         .kv_heads = 2,
         .head_dim = 48,
         .first = 600,
         .rows = 2,
         .window = 300,
         .softcap = 3.0f},
        {.type = KV_I8, .heads = 4, .kv_heads = 2, .head_dim = 64, .first = 600, .rows = 2},
        {.type = KV_F8, .heads = 4, .kv_heads = 2, .head_dim = 64, .first = 600, .rows = 2},
        {.type = KV_I4, .heads = 4, .kv_heads = 2, .head_dim = 64, .first = 600, .rows = 2},
        {.type = KV_I4, .heads = 6, .kv_heads = 2, .head_dim = 40, .first = 300, .rows = 3},
        {.type = KV_I4,
         .heads = 4,
         .kv_heads = 2,
         .head_dim = 64,
         .first = 9,
         .rows = 3,
         .seed = 1},
        {.type = KV_F32, .heads = 1, .kv_heads = 1, .head_dim = 8, .first = 8190, .rows = 4},
        {.type = KV_F16, .heads = 2, .kv_heads = 1, .head_dim = 8, .first = 20000, .rows = 2},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct attn_case *c = &cases[i];
        struct rig_steps steps;
        struct kv_tiles kv;
        double want[64];
        c->keep_floats = true;
        c->block_tiles = c->first > 4000 ? 64 : 1;
        struct rig r = attn_rig(c, &steps, &kv);
        struct rig_result got = rig_run(&r, "ref", 1);
        for (uint32_t row = 0; row < c->rows; row++)
            for (uint32_t h = 0; h < c->heads; h++) {
                softmax_attention(c, rig_row(&got, 0, row) + h * c->head_dim,
                                  h / (c->heads / c->kv_heads), c->first + row + 1, want);
                const float *have = rig_row(&got, 1, row) + h * c->head_dim;
                for (uint32_t d = 0; d < c->head_dim; d++)
                    assert_true(fabs(want[d] - (double)have[d]) < 1e-5);
            }
        rig_free(&got);
        mem_free(kv.base);
    }
}

/* Values 0, 1, 2 are q, k, v; 3 the result. */
static struct rig encoder_rig(uint32_t heads, uint32_t head_dim, struct step step, bool q8) {
    uint32_t cols = heads * head_dim;
    struct rig r = {.seed = 5, .spread = 2.0f, .value_count = 4, .step = step};
    for (int i = 0; i < 3; i++) r.values[i] = (struct rig_value){ROWS_TOKENS, VALUE_F32, cols, 0};
    r.values[3] = (struct rig_value){ROWS_TOKENS, q8 ? VALUE_Q8 : VALUE_F32, cols, 0};
    r.op.kind = OP_SELF_ATTENTION;
    r.op.self_attention = (struct op_self_attention){.heads = heads,
                                                     .head_dim = head_dim,
                                                     .scale = 1.0f / sqrtf((float)head_dim),
                                                     .q = rig_operand(&r, 0),
                                                     .k = rig_operand(&r, 1),
                                                     .v = rig_operand(&r, 2),
                                                     .dst = q8 ? operand_none : rig_operand(&r, 3),
                                                     .q8 = q8 ? rig_operand(&r, 3) : operand_none};
    return r;
}

static void test_encoder_attention_has_the_same_bits(void **state) {
    (void)state;
    static const uint32_t lengths[] = {1, 2, 16, 37, 300};
    static const uint32_t dims[] = {8, 32, 48, 64};
    for (uint32_t i = 0; i < 5; i++)
        for (uint32_t j = 0; j < 4; j++) {
            struct rig_steps steps;
            struct step step = rig_one_seq(&steps, lengths[i] + 20, 0);
            step.seq_count = 2;
            steps.seqs[0].row_count = lengths[i];
            steps.seqs[1].first_row = lengths[i];
            steps.seqs[1].row_count = 20;
            for (uint32_t row = lengths[i]; row < lengths[i] + 20; row++) {
                steps.seq[row] = 1;
                steps.pos[row] = (int32_t)(row - lengths[i]);
            }
            struct rig r = encoder_rig(4, dims[j], step, j % 2);
            rig_check_only(&r, "encoder");
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_head_shape_has_the_same_bits),
        cmocka_unit_test(test_segment_edges_and_windows_have_the_same_bits),
        cmocka_unit_test(test_long_sequences_have_the_same_bits),
        cmocka_unit_test(test_prompts_and_skipped_rows_have_the_same_bits),
        cmocka_unit_test(test_chunks_of_every_length_have_the_same_bits),
        cmocka_unit_test(test_several_sequences_in_a_step_have_the_same_bits),
        cmocka_unit_test(test_rows_alone_have_the_same_bits),
        cmocka_unit_test(test_blocks_of_several_tiles_give_the_bits_of_blocks_of_one),
        cmocka_unit_test(test_weights_that_vanish_have_the_same_bits),
        cmocka_unit_test(test_a_row_sees_nothing_of_the_rows_after_it),
        cmocka_unit_test(test_a_row_of_a_batch_equals_the_row_alone),
        cmocka_unit_test(test_an_fp8_cache_gives_the_bits_of_the_same_numbers_in_f16),
        cmocka_unit_test(test_the_reference_is_softmax_attention),
        cmocka_unit_test(test_encoder_attention_has_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
