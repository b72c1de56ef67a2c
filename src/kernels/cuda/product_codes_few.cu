/* kernels/cuda/product_codes_few.cu - products of quantised weights with 1 to 8 rows, near the rate
 * at which memory can be read; to the bit as kernels/cuda/product_codes.cu has them.
 *
 * The whole-number sum of a group is one mma of bytes (device_codes.cuh), which is exact. Then, in
 * rising groups:
 *
 *     acc = fma(sum, w.scale[g] * scale[b], acc), then fma(w.min[g], dsum[g], acc)
 *
 * Mapping and overlap: those of product_few.cu. A tile of 16 weight rows is half of a tile of
 * layout.h. A stage is 128 columns: codes as [piece][row][16 bytes], which is how they lie in
 * memory and what ldmatrix reads without a bank conflict; activations in rows of 128 bytes
 * (device_stage.cuh); then floats. Rows are whole stages, so that 16 bytes of any of these can be
 * copied at once; products of other widths are left to product_codes_mma.cu.
 *
 * Order of reading and overwriting: copies that are issued in turn i fill the slot of stage i - 1,
 * behind a barrier of the warp that all lanes reach after their last read of it.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/device_codes.cuh"
#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_mma.cuh"
#include "kernels/cuda/device_stage.cuh"
#include "kernels/cuda/product_few.cuh"

static constexpr uint32_t RUNS = 8, COLS = RUNS * CUDA_CODE_RUN,
                          BLOCKS = COLS / 32; /* of a stage */
static constexpr uint32_t LAYOUT_PIECE_BYTES = CUDA_TILE_ROWS * 16;

/* GROUP_RUNS: runs of 16 codes that share a scale; CODE: what a code is, of 4 bits in groups of 32.
 * Where things lie in a stage, in bytes. */
template <int GROUP_RUNS, enum cuda_code CODE>
struct few_codes {
    static constexpr uint32_t groups = RUNS / GROUP_RUNS;
    static constexpr uint32_t pieces =
        RUNS * code_bits<CODE> / 8; /* of 16 bytes of codes, of a weight */
    static constexpr uint32_t x = TILE_WEIGHTS * pieces * 16;              /* [row][piece] */
    static constexpr uint32_t scale = x + CUDA_FEW_ROWS * COLS;            /* [group][weight] */
    static constexpr uint32_t least = scale + groups * TILE_WEIGHTS * 4;   /* likewise */
    static constexpr uint32_t x_scale = least + groups * TILE_WEIGHTS * 4; /* [row][block] */
    static constexpr uint32_t dsum = x_scale + CUDA_FEW_ROWS * BLOCKS * 4; /* [row][group] */
    static constexpr uint32_t bytes = dsum + CUDA_FEW_ROWS * groups * 4;
    static_assert(bytes % 128 == 0, "a stage begins at a multiple of 128 bytes");
};

/* ---- copies ---- */

/* Where a lane's next copies come from. */
struct codes_lane {
    const uint8_t *codes;         /* piece lane / 16 of the stage, weight lane % 16 */
    const uint8_t *scale, *least; /* 16 bytes lane % 4 of group lane / 4 */
    const uint8_t *x[2];          /* piece lane % 8 of rows lane / 8 and + 4 */
    const uint8_t *floats;        /* of row lane % 8: scales, then (lane / 8 = 1, 2) dsums */
    bool has_x[2], has_floats;
};

template <int GROUP_RUNS, enum cuda_code CODE>
static __device__ inline void seek_weights(const struct cuda_product &a, uint32_t tile,
                                           struct codes_lane *l) {
    uint32_t lane = threadIdx.x % 32, all = a.w.cols / CUDA_CODE_RUN, layout = tile / 2;
    uint32_t half = tile % 2 * TILE_WEIGHTS;
    size_t piece = (size_t)layout * (all * code_bits<CODE> / 8) + lane / 16;
    size_t group = (size_t)layout * (all / GROUP_RUNS) + lane / 4;
    l->codes = (const uint8_t *)a.w.data + piece * LAYOUT_PIECE_BYTES + (half + lane % 16) * 16;
    l->scale = (const uint8_t *)(a.w.scale + group * CUDA_TILE_ROWS + half + lane % 4 * 4);
    l->least = (const uint8_t *)(a.w.min + group * CUDA_TILE_ROWS + half + lane % 4 * 4);
}

template <int GROUP_RUNS, enum cuda_code CODE>
static __device__ inline void seek_rows(const struct cuda_product &a, struct codes_lane *l) {
    uint32_t lane = threadIdx.x % 32, row = lane % 8, part = lane / 8;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t r = lane / 8 + 4 * i;
        l->has_x[i] = r < a.row_count;
        l->x[i] = (const uint8_t *)mat_q8(a.src, l->has_x[i] ? r : 0).q + a.src.col +
                  lane % 8 * CUDA_CODE_RUN;
    }
    struct device_q8 q = mat_q8(a.src, row < a.row_count ? row : 0);
    const float *dsum = GROUP_RUNS == 2 ? q.dsum : q.dsum16;
    uint32_t col = a.src.col / 32, group = a.src.col / (GROUP_RUNS * CUDA_CODE_RUN);
    l->has_floats = row < a.row_count && (part == 0 || a.w.min);
    l->floats = (const uint8_t *)(part == 0 ? q.scale + col : dsum + group + (part - 1) % 2 * 4);
}

/* Codes, scales and minima of a stage. */
template <int GROUP_RUNS, enum cuda_code CODE>
static __device__ inline void bring_weights(const struct cuda_product &a,
                                            const struct codes_lane &l, uint32_t to) {
    using at = few_codes<GROUP_RUNS, CODE>;
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t i = 0; i < at::pieces / 2; i++)
        copy_16(to + (i * 32 + lane) * 16, l.codes + i * 2 * LAYOUT_PIECE_BYTES, true);
    if (lane / 4 >= at::groups) return;
    copy_16(to + at::scale + lane * 16, l.scale, true);
    if (a.w.min) copy_16(to + at::least + lane * 16, l.least, true);
}

/* Activations: lanes 0 to 7 bring the scales, the next 8 or 16 the dsums. */
template <int GROUP_RUNS, enum cuda_code CODE>
static __device__ inline void bring_rows(const struct codes_lane &l, uint32_t to) {
    using at = few_codes<GROUP_RUNS, CODE>;
    uint32_t lane = threadIdx.x % 32, part = lane / 8;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        copy_16_cached(to + at::x + swizzle(lane / 8 + 4 * i, lane % 8), l.x[i], l.has_x[i]);
    if (part > at::groups / BLOCKS) return;
    uint32_t place = part == 0 ? at::x_scale + lane % 8 * BLOCKS * 4
                               : at::dsum + lane % 8 * at::groups * 4 + (part - 1) * 16;
    copy_16_cached(to + place, l.floats, l.has_floats);
}

template <int GROUP_RUNS, enum cuda_code CODE>
static __device__ inline void advance_weights(struct codes_lane *l) {
    l->codes += few_codes<GROUP_RUNS, CODE>::pieces * LAYOUT_PIECE_BYTES;
    l->scale += few_codes<GROUP_RUNS, CODE>::groups * CUDA_TILE_ROWS * 4;
    l->least += few_codes<GROUP_RUNS, CODE>::groups * CUDA_TILE_ROWS * 4;
}

template <int GROUP_RUNS, enum cuda_code CODE>
static __device__ inline void advance_rows(struct codes_lane *l) {
    uint32_t floats = threadIdx.x % 32 / 8 == 0 ? BLOCKS : few_codes<GROUP_RUNS, CODE>::groups;
    l->x[0] += COLS;
    l->x[1] += COLS;
    l->floats += floats * 4;
}

/* ---- sums ---- */

/* What a lane multiplies in a stage, beside scales and minima of weights. */
template <int GROUP_RUNS, enum cuda_code CODE>
struct row_floats {
    float scale[2][BLOCKS], dsum[2][few_codes<GROUP_RUNS, CODE>::groups];
};

template <int GROUP_RUNS, enum cuda_code CODE>
static __device__ inline void read_floats(const uint8_t *stage,
                                          struct row_floats<GROUP_RUNS, CODE> *f) {
    using at = few_codes<GROUP_RUNS, CODE>;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t row = threadIdx.x % 4 * 2 + i;
        float4 four = *(const float4 *)(stage + at::x_scale + row * BLOCKS * 4);
        f->scale[i][0] = four.x;
        f->scale[i][1] = four.y;
        f->scale[i][2] = four.z;
        f->scale[i][3] = four.w;
#pragma unroll
        for (uint32_t g = 0; g < at::groups; g += 4) {
            four = *(const float4 *)(stage + at::dsum + (row * at::groups + g) * 4);
            f->dsum[i][g] = four.x;
            f->dsum[i][g + 1] = four.y;
            f->dsum[i][g + 2] = four.z;
            f->dsum[i][g + 3] = four.w;
        }
    }
}

/* Runs 2 * pair and the next, of weights and of rows: operands of one group, or of two. */
struct pair_operands {
    uint32_t w[4], x[4]; /* x: of this pair and the next */
};

template <int GROUP_RUNS, enum cuda_code CODE>
static __device__ inline void
add_group(const uint8_t *stage, uint32_t g, const struct pair_operands &o,
          const struct row_floats<GROUP_RUNS, CODE> &f, bool has_least, float acc[4]) {
    using at = few_codes<GROUP_RUNS, CODE>;
    uint32_t weight = g * TILE_WEIGHTS + threadIdx.x % 32 / 4;
    const float *scale = (const float *)(stage + at::scale) + weight;
    const float *least = (const float *)(stage + at::least) + weight;
    const uint32_t *x = o.x + g * GROUP_RUNS % 4;
    int32_t c[4] = {SUM_BEGINS, SUM_BEGINS, SUM_BEGINS, SUM_BEGINS};
    if (GROUP_RUNS == 2)
        mma_s8_16x8x32(c, o.w, x);
    else
        mma_s8_16x8x16(c, o.w + g % 2 * 2, x[0]);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        float sum = float_of_begun<CODE>(c[i]);
        float by = scale[i / 2 * 8] * f.scale[i % 2][g * GROUP_RUNS / 2];
        acc[i] = fmaf(sum, by, acc[i]);
        if (has_least) acc[i] = fmaf(least[i / 2 * 8], f.dsum[i % 2][g], acc[i]);
    }
}

/* Runs `run` and the next. Matrices: rows 0 to 7 and 8 to 15 of the first run, then of the second;
 * codes of 4 bits have both runs in one. */
template <enum cuda_code CODE>
static __device__ inline void read_codes(uint32_t stage, uint32_t run, const uint32_t table[4],
                                         uint32_t w[4]) {
    uint32_t lane = threadIdx.x % 32;
    if (CODE == CUDA_CODE_8) {
        ldmatrix_x4(w, stage + (run * TILE_WEIGHTS + lane) * 16);
    } else {
        ldmatrix_x2(w, stage + (run / 2 * TILE_WEIGHTS + lane % 16) * 16);
        w[2] = last_codes<CODE>(w[0], table);
        w[3] = last_codes<CODE>(w[1], table);
        w[0] = first_codes<CODE>(w[0], table);
        w[1] = first_codes<CODE>(w[1], table);
    }
}

template <int GROUP_RUNS, enum cuda_code CODE>
static __device__ inline void add_stage(const struct cuda_matrix &weights, const uint8_t *stage,
                                        float acc[4]) {
    using at = few_codes<GROUP_RUNS, CODE>;
    uint32_t lane = threadIdx.x % 32, base = shared_address(stage);
    struct row_floats<GROUP_RUNS, CODE> f;
    struct pair_operands o;
    read_floats<GROUP_RUNS, CODE>(stage, &f);
#pragma unroll
    for (uint32_t run = 0; run < RUNS; run += 2) {
        read_codes<CODE>(base, run, weights.table, o.w);
        if (run % 4 == 0) ldmatrix_x4(o.x, base + at::x + swizzle(lane % 8, run + lane / 8));
#pragma unroll
        for (uint32_t g = run / GROUP_RUNS; g < (run + 2) / GROUP_RUNS; g++)
            add_group<GROUP_RUNS, CODE>(stage, g, o, f, weights.min != NULL, acc);
    }
}

/* ---- the kernel ---- */

template <int GROUP_RUNS, enum cuda_code CODE, int STAGES>
static __global__ void __launch_bounds__(WARPS_MAX * 32, 1)
    few_codes_kernel(struct cuda_product a) {
    using at = few_codes<GROUP_RUNS, CODE>;
    extern __shared__ __align__(128) uint8_t rings[];
    admit_next_kernel();
    struct few_tiles mine = tiles_of_warp((a.w.rows + TILE_WEIGHTS - 1) / TILE_WEIGHTS);
    uint32_t stages = a.w.cols / COLS, count = mine.count * stages;
    uint8_t *own = rings + threadIdx.x / 32 * STAGES * at::bytes;
    uint32_t ring = shared_address(own);
    struct codes_lane l;
    struct few_place brought = {mine.first, 0}, now = {mine.first, 0}, rows = {mine.first, 0};
    if (count > 0) seek_weights<GROUP_RUNS, CODE>(a, mine.first, &l);
    for (uint32_t i = 0; i < STAGES - 1; i++) {
        if (i < count) {
            bring_weights<GROUP_RUNS, CODE>(a, l, ring + i * at::bytes);
            advance_weights<GROUP_RUNS, CODE>(&l);
            if (next_stage(stages, &brought)) seek_weights<GROUP_RUNS, CODE>(a, brought.tile, &l);
        }
        copies_commit();
    }
    wait_for_inputs();
    if (count == 0) return;
    seek_rows<GROUP_RUNS, CODE>(a, &l);
    for (uint32_t i = 0; i < STAGES - 1 && i < count; i++) {
        bring_rows<GROUP_RUNS, CODE>(l, ring + i * at::bytes);
        advance_rows<GROUP_RUNS, CODE>(&l);
        if (next_stage(stages, &rows)) seek_rows<GROUP_RUNS, CODE>(a, &l);
    }
    copies_commit();
    struct few_results results;
    float acc[4] = {0.0f};
    find_results(a, &results);
    read_old(a, mine.first, &results);
    copies_wait<0>();
    for (uint32_t i = 0, slot = 0; i < count; i++) {
        uint32_t to = ring + (slot == 0 ? STAGES - 1 : slot - 1) * at::bytes;
        copies_wait<STAGES - 2>();
        __syncwarp();
        if (i + STAGES - 1 < count) {
            bring_weights<GROUP_RUNS, CODE>(a, l, to);
            bring_rows<GROUP_RUNS, CODE>(l, to);
            advance_weights<GROUP_RUNS, CODE>(&l);
            advance_rows<GROUP_RUNS, CODE>(&l);
            if (next_stage(stages, &brought)) {
                seek_weights<GROUP_RUNS, CODE>(a, brought.tile, &l);
                seek_rows<GROUP_RUNS, CODE>(a, &l);
            }
        }
        copies_commit();
        add_stage<GROUP_RUNS, CODE>(a.w, own + slot * at::bytes, acc);
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        uint32_t tile = now.tile;
        if (!next_stage(stages, &now)) continue;
        store_tile(a, tile, results, acc);
        read_old(a, now.tile, &results);
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) acc[k] = 0.0f;
    }
}

/* ---- launching ---- */

template <int GROUP_RUNS, enum cuda_code CODE, int STAGES>
static void launch_stages(const struct cuda_product *a, struct few_grid grid,
                          const struct cuda_queue *queue) {
    launch(queue, few_codes_kernel<GROUP_RUNS, CODE, STAGES>, grid.blocks, grid.warps * 32,
           few_shared_bytes(grid.warps * STAGES * few_codes<GROUP_RUNS, CODE>::bytes), *a);
}

template <int GROUP_RUNS, enum cuda_code CODE>
static void launch_group(const struct cuda_product *a, struct few_grid grid,
                         const struct cuda_queue *queue) {
    if (grid.warps <= 2)
        launch_stages<GROUP_RUNS, CODE, 16>(a, grid, queue);
    else if (grid.warps == 3)
        launch_stages<GROUP_RUNS, CODE, 12>(a, grid, queue);
    else if (grid.warps <= 5)
        launch_stages<GROUP_RUNS, CODE, 8>(a, grid, queue);
    else
        launch_stages<GROUP_RUNS, CODE, 6>(a, grid, queue);
}

template <int GROUP_RUNS, enum cuda_code CODE, int STAGES>
static void prepare_stages(uint32_t warps) {
    cudaFuncSetAttribute(
        few_codes_kernel<GROUP_RUNS, CODE, STAGES>, cudaFuncAttributeMaxDynamicSharedMemorySize,
        (int)few_shared_bytes(warps * STAGES * few_codes<GROUP_RUNS, CODE>::bytes));
}

template <int GROUP_RUNS, enum cuda_code CODE> static void prepare_group(void) {
    prepare_stages<GROUP_RUNS, CODE, 16>(2);
    prepare_stages<GROUP_RUNS, CODE, 12>(3);
    prepare_stages<GROUP_RUNS, CODE, 8>(5);
    prepare_stages<GROUP_RUNS, CODE, 6>(WARPS_MAX);
}

void cuda_product_codes_few_prepare(void) {
    prepare_group<1, CUDA_CODE_8>();
    prepare_group<2, CUDA_CODE_8>();
    prepare_group<2, CUDA_CODE_4>();
    prepare_group<2, CUDA_CODE_4_SIGNED>();
    prepare_group<2, CUDA_CODE_4_PLACE>();
}

bool cuda_product_codes_few_can(const struct cuda_product *a) {
    bool is_whole = a->w.cols % COLS == 0 && a->src.all_cols % COLS == 0 && a->src.col % COLS == 0;
    return a->w.form == CUDA_CODES && a->used == 0 && a->row_count <= CUDA_FEW_ROWS && is_whole;
}

void cuda_product_codes_few(const struct cuda_product *a, uint32_t multiprocessors,
                            const struct cuda_queue *queue) {
    struct few_grid grid = few_grid_of(a->w.rows, multiprocessors);
    if (a->row_count == 0) return;
    if (a->w.code == CUDA_CODE_4)
        launch_group<2, CUDA_CODE_4>(a, grid, queue);
    else if (a->w.code == CUDA_CODE_4_SIGNED)
        launch_group<2, CUDA_CODE_4_SIGNED>(a, grid, queue);
    else if (a->w.code == CUDA_CODE_4_PLACE)
        launch_group<2, CUDA_CODE_4_PLACE>(a, grid, queue);
    else if (a->w.group == 32)
        launch_group<2, CUDA_CODE_8>(a, grid, queue);
    else
        launch_group<1, CUDA_CODE_8>(a, grid, queue);
}
