/* Goal:   kernels touch nothing beyond the ends of what they are given, however odd the sizes:
 *         panels, activations, keys, values, rows and results.
 * Method: everything that a kernel reads or writes ends where a page begins that may not be
 *         touched; every table's kernels run so, and give the bits of the portable ones. Memory
 *         of the device itself comes in whole pages, where nobody else would notice. */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "base/pool.h"
#include "graph/key_smoothing.h"
#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/fp_mode.h"
#include "kernels/cpu/page.h"
#include "ops/matmul_rig.h"

enum { FENCES = 22, FENCE_BYTES = 1 << 17, PAGE_BYTES = 1 << 16, SENTINEL = 0x5A };

static uint8_t *fences[FENCES]; /* where forbidden pages begin */
static uint64_t mode_before;

/* Kernels are defined in the mode that the device puts its threads in. */
static int put_fences(void **state) {
    (void)state;
    mode_before = fp_mode_enter();
    for (int i = 0; i < FENCES; i++) {
        uint8_t *base = mmap(NULL, FENCE_BYTES + PAGE_BYTES, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED) return -1;
        fences[i] = base + FENCE_BYTES;
        if (mprotect(fences[i], PAGE_BYTES, PROT_NONE) != 0) return -1;
    }
    return 0;
}

static int remove_fences(void **state) {
    (void)state;
    fp_mode_leave(mode_before);
    for (int i = 0; i < FENCES; i++) munmap(fences[i] - FENCE_BYTES, FENCE_BYTES + PAGE_BYTES);
    return 0;
}

/* The last `bytes` before a fence. */
static void *before_fence(int i, size_t bytes) {
    assert_true(bytes <= FENCE_BYTES);
    return fences[i] - bytes;
}

static void *copy_before_fence(int i, const void *from, size_t bytes) {
    return memcpy(before_fence(i, bytes), from, bytes);
}

static float *floats_before_fence(int i, uint32_t count, uint64_t seed) {
    float *out = before_fence(i, count * sizeof(float));
    for (uint32_t k = 0; k < count; k++) out[k] = (float)(rng_unit_at(seed, 1, k) * 4 - 2);
    return out;
}

/* Calls fn for every table with kernels of its own that runs here, the portable one first. */
typedef void kernels_fn(const struct cpu_kernels *k, bool is_first, void *ctx);
static void for_each_table(kernels_fn *fn, void *ctx) {
    bool is_first = true;
    for (int i = 0; i < RIG_ISAS; i++) {
        if (strcmp(rig_isas[i], "ref") == 0 || !rig_isa_runs(rig_isas[i])) continue;
        fn(cpu_table_find(rig_isas[i])->kernels, is_first, ctx);
        is_first = false;
    }
}

/* ---- products ---- */

struct panel_job {
    const struct packed *w;
    struct mm_row rows[MM_TILE];
    const uint8_t *panel, *pair; /* the first panel, and both */
    uint8_t *room;
    float want[MM_TILE][PANEL_ROWS];
};

/* The first panel's results are known; those of the second follow them. */
static void run_pair(const struct panel_job *j, mm_pair_fn *fn) {
    float *to[MM_TILE];
    size_t bytes = PANEL_ROWS * sizeof(float);
    for (int i = 0; i < MM_TILE; i++) to[i] = before_fence(10 + i, MM_PAIR * bytes);
    fn(j->w, j->pair, j->rows, &(struct mm_sink){.rows = to});
    for (int i = 0; i < MM_TILE; i++) assert_memory_equal(to[i], j->want[i], bytes);
}

static void run_panel(const struct panel_job *j, mm_panel_fn *fn, const uint8_t *panel,
                      uint32_t count, bool is_first, float want[MM_TILE][PANEL_ROWS]) {
    float(*out)[PANEL_ROWS] = before_fence(7, count * sizeof(out[0]));
    fn(j->w, panel, j->rows, count, out);
    if (is_first && count == MM_TILE) memcpy(want, out, MM_TILE * sizeof(want[0]));
    if (!is_first) assert_memory_equal(out, want, count * sizeof(out[0]));
}

static void check_panel(const struct cpu_kernels *k, bool is_first, void *ctx) {
    struct panel_job *j = ctx;
    for (uint32_t count = 1; count <= MM_TILE; count++) {
        run_panel(j, k->panel[j->w->type], j->panel, count, is_first, j->want);
        if (!k->opener || !k->opener->panel[j->w->type]) continue;
        k->opener->open(j->w, j->panel, j->room);
        run_panel(j, k->opener->panel[j->w->type], j->room, count, is_first, j->want);
    }
    if (k->pairs && k->pairs->pair[j->w->type]) run_pair(j, k->pairs->pair[j->w->type]);
}

/* One row of activations, each of its arrays before a fence. */
static struct mm_row row_before_fences(uint32_t cols) {
    struct mm_row row = {.f32 = floats_before_fence(1, cols, 3)};
    if (cols % Q8_BLOCK != 0) return row;
    uint32_t blocks = cols / Q8_BLOCK;
    struct q8_out out = {before_fence(2, cols), before_fence(3, blocks * sizeof(float)),
                         before_fence(4, blocks * sizeof(float)),
                         before_fence(5, 2 * blocks * sizeof(float)),
                         before_fence(6, blocks * sizeof(int32_t))};
    q8_quantise_blocks(row.f32, blocks, out);
    row.q8 = (struct q8_row){out.q, out.scale, out.dsum, out.dsum16, out.isum};
    return row;
}

static void check_format(enum dtype type, uint32_t cols, struct pool *pool) {
    struct weight w = random_weight(type, MM_PAIR * PANEL_ROWS, cols, 1, type);
    struct page_arena arena = {0};
    struct packed *p = pack_create(&w, &arena);
    assert_non_null(p);
    pack_fill(p, &w, pool);
    struct panel_job j = {.w = p,
                          .panel = copy_before_fence(0, p->data, p->panel_bytes),
                          .pair = copy_before_fence(9, p->data, MM_PAIR * p->panel_bytes)};
    for (int i = 0; i < MM_TILE; i++) j.rows[i] = row_before_fences(cols);
    j.room = before_fence(8, pack_opened_bytes(cols));
    for_each_table(check_panel, &j);
    pack_free(p);
    page_arena_deinit(&arena);
    mem_free((void *)(uintptr_t)w.data);
}

static void test_products_touch_their_panel_and_rows_alone(void **state) {
    (void)state;
    struct pool *pool;
    struct err err = {{0}};
    assert_int_equal(pool_create(&pool, 1, &err), ST_OK);
    for (int type = 0; type < DTYPE_COUNT; type++) {
        uint32_t unit = dtype_info(type)->block_elems;
        for (uint32_t i = 1; i <= 3; i++) check_format(type, unit == 1 ? 7 * i : unit * i, pool);
    }
    pool_destroy(pool);
}

/* ---- attention ---- */

enum { TILES = 3, HEAD_DIM_MAX = 276 };

struct attend_job {
    struct attn_segment s;
    struct attn_part want[ATTN_QUERIES];
    float want_out[ATTN_QUERIES][HEAD_DIM_MAX];
};

static void check_attend(const struct cpu_kernels *k, bool is_first, void *ctx) {
    struct attend_job *j = ctx;
    size_t bytes = j->s.head_dim * sizeof(float);
    struct attn_part out[ATTN_QUERIES];
    for (int i = 0; i < ATTN_QUERIES; i++) out[i].out = before_fence(8 + i, bytes);
    k->attend(&j->s, out);
    for (uint32_t i = 0; i < j->s.query_count; i++) {
        if (is_first) {
            j->want[i] = out[i];
            memcpy(j->want_out[i], out[i].out, bytes);
        }
        assert_memory_equal(&out[i].max, &j->want[i].max, sizeof(float));
        assert_memory_equal(&out[i].sum, &j->want[i].sum, sizeof(float));
        assert_memory_equal(out[i].out, j->want_out[i], bytes);
    }
}

static void fill_tile(uint8_t *tile, size_t count, enum kv_type type, uint64_t seed) {
    for (size_t i = 0; i < count; i++) {
        float value = (float)rng_unit_at(seed, 2, i);
        uint16_t half = f16_from_f32(value);
        if (type == KV_F32) memcpy(tile + 4 * i, &value, 4);
        if (type == KV_F16) memcpy(tile + 2 * i, &half, 2);
        if (type == KV_I8) tile[i] = (uint8_t)(100 * value);
        if (type == KV_F8 || type == KV_I4) tile[i] = (uint8_t)(256 * value);
    }
}

/* A tile of `tokens` tokens; scales, where there are any, for all sixteen. */
static const uint8_t *tile_before_fence(int i, enum kv_type type, uint32_t head_dim,
                                        uint32_t tokens) {
    size_t values = tokens * kv_row_bytes(type, head_dim);
    size_t scales = KV_TILE_TOKENS * kv_scale_bytes(type, head_dim);
    uint8_t *tile = before_fence(i, values + scales);
    fill_tile(tile, values / kv_elem_bytes(type), type, (uint64_t)i);
    fill_tile(tile + values, type == KV_I4 ? scales : scales / 2, type == KV_I4 ? type : KV_F16,
              (uint64_t)i + 50);
    return tile;
}

/* Queries in whole numbers, of KV_I4. */
struct whole_queries {
    int8_t *codes;
    int32_t *sums;
};
static struct whole_queries queries_before_fences(enum kv_type type, uint32_t head_dim,
                                                  uint32_t queries) {
    const uint32_t padded = kv_padded_dims(head_dim), groups = kv_groups_of_head(head_dim);
    struct whole_queries out = {
        before_fence(FENCES - 2, (size_t)queries * padded),
        before_fence(FENCES - 1, (size_t)queries * groups * sizeof(int32_t))};
    memset(out.codes, 0, (size_t)queries * padded);
    memset(out.sums, 0, queries * groups * sizeof(int32_t));
    for (uint32_t i = 0; type == KV_I4 && i < queries; i++)
        for (uint32_t d = 0; d < head_dim; d++) {
            int8_t code = (int8_t)((int)(rng_at(91, i, d) % 255) - 127);
            out.codes[i * padded + d] = code;
            out.sums[i * groups + d / kv_group_dims(head_dim)] += code;
        }
    return out;
}

/* The queries attend to tokens up to `end`, each to one more than the one before. Of an encoder's
 * last tile (floats) there are no more values than tokens. */
static void check_segment(enum kv_type type, uint32_t head_dim, uint32_t queries, uint32_t end) {
    struct attend_job j = {.s = {.v_stride = kv_row_bytes(type, head_dim),
                                 .type = type,
                                 .head_dim = head_dim,
                                 .codes_stride = kv_padded_dims(head_dim),
                                 .query_count = queries,
                                 .early = type == KV_I4 ? end % 5 : 0,
                                 .scale = 0.5f,
                                 .softcap = end % 2 ? 3.0f : 0.0f}};
    for (uint32_t t = 0; t * KV_TILE_TOKENS < end; t++) {
        uint32_t left = end - t * KV_TILE_TOKENS;
        bool all = type != KV_F32 || left > KV_TILE_TOKENS;
        j.s.k[t] = tile_before_fence((int)t, type, head_dim, KV_TILE_TOKENS);
        j.s.v[t] = tile_before_fence((int)(TILES + t), type, head_dim, all ? KV_TILE_TOKENS : left);
    }
    const float *q = floats_before_fence(2 * TILES, queries * head_dim, 5);
    struct whole_queries whole = queries_before_fences(type, head_dim, queries);
    for (uint32_t i = 0; i < queries; i++)
        j.s.query[i] = (struct attn_query){.q = q + (size_t)i * head_dim,
                                           .codes = whole.codes + i * j.s.codes_stride,
                                           .sums = whole.sums + i * kv_groups_of_head(head_dim),
                                           .codes_scale = 0.01f,
                                           .shift = 0.3f,
                                           .first = end % 3 ? 0 : i,
                                           .end = end - (queries - 1 - i)};
    for_each_table(check_attend, &j);
}

static void test_attention_touches_its_tiles_and_results_alone(void **state) {
    (void)state;
    static const enum kv_type types[] = {KV_F16, KV_F32, KV_I8, KV_F8, KV_I4};
    static const uint32_t dims[] = {4, 8, 20, 36, 40, 48, 64, 80, 96, 112, HEAD_DIM_MAX};
    for (uint32_t i = 0; i < 11 * KV_TYPE_COUNT; i++)
        for (uint32_t queries = 1; queries <= ATTN_QUERIES; queries++)
            for (uint32_t end = 2 * queries; end <= TILES * KV_TILE_TOKENS; end += 5)
                check_segment(types[i % KV_TYPE_COUNT], dims[i / KV_TYPE_COUNT], queries, end);
}

/* ---- rows ---- */

static void same_as_first(const float *got, float *want, uint32_t count, bool is_first) {
    if (is_first) memcpy(want, got, count * sizeof(float));
    assert_memory_equal(got, want, count * sizeof(float));
}

static void check_rows(const struct cpu_kernels *k, bool is_first, void *ctx) {
    static float normed[300], acted[300], capped[300], added[300];
    uint32_t count = *(uint32_t *)ctx;
    const float *x = floats_before_fence(0, count, 7), *w = floats_before_fence(1, count, 8);
    float *y = floats_before_fence(2, count, 9);
    struct norm_args norm = {
        .kind = NORM_LAYER, .group = count, .eps = 1e-5f, .weight = w, .bias = x};
    k->norm(&norm, x, y);
    same_as_first(y, normed, count, is_first);
    k->act(ACT_SILU, x, w, count, y);
    same_as_first(y, acted, count, is_first);
    k->softcap(3.0f, count, y);
    same_as_first(y, capped, count, is_first);
    k->add(x, count, y);
    same_as_first(y, added, count, is_first);
}

static void check_quantise(const struct cpu_kernels *k, bool is_first, void *ctx) {
    (void)is_first;
    uint32_t blocks = *(uint32_t *)ctx, cols = blocks * Q8_BLOCK;
    struct mm_row want = row_before_fences(cols);
    struct q8_out out = {before_fence(8, cols), before_fence(9, blocks * sizeof(float)),
                         before_fence(10, blocks * sizeof(float)),
                         before_fence(11, 2 * blocks * sizeof(float)),
                         before_fence(12, blocks * sizeof(int32_t))};
    k->quantise(want.f32, cols, out);
    assert_memory_equal(out.q, want.q8.q, cols);
    assert_memory_equal(out.scale, want.q8.scale, blocks * sizeof(float));
    assert_memory_equal(out.dsum, want.q8.dsum, blocks * sizeof(float));
    assert_memory_equal(out.dsum16, want.q8.dsum16, 2 * blocks * sizeof(float));
    assert_memory_equal(out.isum, want.q8.isum, blocks * sizeof(int32_t));
}

static void test_row_kernels_touch_their_row_alone(void **state) {
    (void)state;
    for (uint32_t count = 1; count <= 70; count++) for_each_table(check_rows, &count);
    for (uint32_t blocks = 1; blocks <= 13; blocks++) for_each_table(check_quantise, &blocks);
}

/* Of KV_I4: each into a tile of its own, and as a query. */
static void store_int4(const struct cpu_kernels *k, const float *x, uint32_t head_dim,
                       uint8_t *tiles[2]) {
    enum { FEEDBACK_ROW = (HEAD_DIM_MAX + 31) / 32 * 32 };
    static float feedback[HEAD_DIM_MAX * FEEDBACK_ROW];
    static int8_t want[FEEDBACK_ROW];
    const uint32_t padded = kv_padded_dims(head_dim), groups = kv_groups_of_head(head_dim);
    float *own = before_fence(3, padded * sizeof(float)), scale;
    float *room = before_fence(4, padded * sizeof(float));
    struct int4_query out = {before_fence(5, padded), before_fence(6, groups * sizeof(int32_t)),
                             &scale};
    memset(feedback, 0, sizeof(feedback));
    for (uint32_t d = 0; d < head_dim; d++)
        for (uint32_t i = 0; i < d; i++)
            feedback[d * kv_feedback_stride(head_dim) + i] = (float)rng_unit_at(92, d, i) - 0.5f;
    for (int i = 0; i < 2; i++) {
        memcpy(own, x, head_dim * sizeof(float));
        k->kv_store_int4(own, room, i ? NULL : feedback, head_dim, i, tiles[i], KV_TILE_TOKENS - 1);
    }
    memcpy(own, x, head_dim * sizeof(float));
    k->kv_query(own, head_dim, out);
    if (k == &cpu_kernels_portable) memcpy(want, out.codes, padded);
    assert_memory_equal(out.codes, want, padded);
}

/* The last token, so that its values end where the tile's do. */
static void check_store(const struct cpu_kernels *k, bool is_first, void *ctx) {
    static uint8_t want[2][HEAD_DIM_MAX * KV_TILE_TOKENS * 4];
    const struct kv_tiles *s = ctx;
    size_t bytes = kv_side_bytes(s->type, s->head_dim);
    const float *x = floats_before_fence(0, s->head_dim, 11);
    uint8_t *tiles[2] = {before_fence(1, bytes), before_fence(2, bytes)};
    for (int i = 0; i < 2; i++) memset(tiles[i], SENTINEL, bytes);
    if (s->type == KV_I4)
        store_int4(k, x, s->head_dim, tiles);
    else
        k->kv_store(s->type, x, x, s->head_dim, tiles[0], tiles[1], KV_TILE_TOKENS - 1);
    for (int i = 0; i < 2; i++) {
        if (is_first) memcpy(want[i], tiles[i], bytes);
        assert_memory_equal(tiles[i], want[i], bytes);
    }
}

static void test_keys_and_values_are_stored_within_their_tiles(void **state) {
    (void)state;
    static const enum kv_type types[] = {KV_F16, KV_F32, KV_I8, KV_F8, KV_I4};
    for (int t = 0; t < KV_TYPE_COUNT; t++)
        for (uint32_t head_dim = 1; head_dim <= HEAD_DIM_MAX; head_dim++) {
            struct kv_tiles s = {.type = types[t], .head_dim = head_dim};
            for_each_table(check_store, &s);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_touch_their_panel_and_rows_alone),
        cmocka_unit_test(test_attention_touches_its_tiles_and_results_alone),
        cmocka_unit_test(test_row_kernels_touch_their_row_alone),
        cmocka_unit_test(test_keys_and_values_are_stored_within_their_tiles),
    };
    return cmocka_run_group_tests(tests, put_fences, remove_fences);
}
