/* kernels/cuda/early.c - products by cuBLASLt before the first step: each is run once for each
 * range of rows, so that its algorithms are timed while a model is loaded and not while a request
 * waits. That takes 10 to 100 ms for each shape of weights and range.
 *
 * Entry point: cuda_early_products.
 */
#include <cuda_runtime_api.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cuda/blaslt.h"
#include "kernels/cuda/cuda_int.h"
#include "kernels/cuda/early.h"

enum { SHAPES_MAX = 64, PATTERN_BYTES = 1 << 20 };

/* What tells one product from another, for cuBLASLt. */
struct shape {
    uint32_t rows, cols, parts;
    enum cuda_form form;
    bool free_scales;
    struct operand dst;
};

struct shapes {
    struct shape list[SHAPES_MAX];
    uint32_t count;
};

static bool is_same(const struct shape *a, const struct shape *b) {
    return a->rows == b->rows && a->cols == b->cols && a->parts == b->parts && a->form == b->form &&
           a->free_scales == b->free_scales && a->dst.value == b->dst.value &&
           a->dst.col == b->dst.col;
}

/* Is this a product that cuBLASLt does, and the first of its shape? */
static bool is_new(struct shapes *known, const struct op *op) {
    if (op->kind != OP_MATMUL || known->count == SHAPES_MAX) return false;
    const struct cuda_matrix *w = cuda_matrix_of(op->matmul.parts[0].weight);
    struct shape s = {w->rows, w->cols,        op->matmul.part_count,
                      w->form, w->free_scales, op->matmul.dst};
    if (w->form != CUDA_BF16 && w->form != CUDA_F16 && w->form != CUDA_FP8) return false;
    for (uint32_t i = 0; i < known->count; i++)
        if (is_same(&known->list[i], &s)) return false;
    known->list[known->count++] = s;
    return true;
}

/* `pattern` again and again. */
static void fill(void *to, size_t bytes, const uint8_t *pattern) {
    size_t done = bytes < PATTERN_BYTES ? bytes : PATTERN_BYTES;
    if (bytes > 0) cudaMemcpy(to, pattern, done, cudaMemcpyHostToDevice);
    for (; done < bytes; done *= 2) {
        size_t count = bytes - done < done ? bytes - done : done;
        cudaMemcpy((uint8_t *)to + done, to, count, cudaMemcpyDeviceToDevice);
    }
}

/* Numbers from 0.007 to 2 if they are read as floats, bf16 or f16, and finite ones as e4m3: an
 * algorithm with other bits than our kernel's is found out. */
static void make_pattern(uint8_t *pattern) {
    struct rng rng = {.seed = 1};
    for (size_t i = 0; i < PATTERN_BYTES; i += 2) {
        uint64_t bits = rng_next(&rng);
        pattern[i] = (uint8_t)(bits & 0xf7);
        pattern[i + 1] = (uint8_t)(0x3c + (bits >> 8 & 3));
    }
}

static void fill_all(const struct cuda_early *e, const uint8_t *pattern) {
    const struct cuda_scratch *s = e->scratch;
    fill(e->slab, e->slab_bytes, pattern);
    for (int i = 0; i < 2; i++) {
        fill(s->x[i], s->x_bytes, pattern);
        fill(s->x_scale[i], s->x_rows * sizeof(float), pattern);
    }
}

static void run_all(const struct cuda_early *e, uint32_t rows) {
    const struct tape_sizes *most = tape_sizes(e->tape);
    struct shapes known = {.count = 0};
    struct step step = {.row_count = rows < most->rows_max ? rows : most->rows_max,
                        .output_count = rows < most->outputs_max ? rows : most->outputs_max,
                        .seq_count = rows < most->seqs_max ? rows : most->seqs_max};
    struct cuda_run x = {.dev = e->dev,
                         .queue = {.stream = e->dev->stream},
                         .tape = e->tape,
                         .step = &step,
                         .slab = e->slab,
                         .scratch = e->scratch};
    for (uint32_t i = 0; i < tape_op_count(e->tape); i++) {
        if (!is_new(&known, tape_op(e->tape, i))) continue;
        x.now = &e->plan[i];
        cuda_op_launch(&x, tape_op(e->tape, i));
    }
}

enum status cuda_early_products(const struct cuda_early *e, struct err *err) {
    uint32_t most = tape_sizes(e->tape)->rows_max;
    uint8_t *pattern = mem_alloc(PATTERN_BYTES);
    if (!pattern) return err_set(err, ST_NOMEM, "out of memory for timing products");
    make_pattern(pattern);
    fill_all(e, pattern);
    for (uint32_t rows = cuda_blas_range(1); rows < most; rows = cuda_blas_range(rows + 1))
        run_all(e, rows);
    run_all(e, most);
    memset(pattern, 0, PATTERN_BYTES);
    cudaStreamSynchronize(e->dev->stream);
    fill_all(e, pattern);
    mem_free(pattern);
    return cuda_check("timing products", err);
}
