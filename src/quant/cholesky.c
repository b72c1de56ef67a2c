/* quant/cholesky.c - see quant/cholesky.h for the contract.
 *
 * By blocks of 64 rows: the diagonal block is factored by one thread; the rest of its rows is
 * solved, column by column; then the products of these rows are subtracted from all that is below
 * and to the right. Columns and tiles are shared out, and each is computed by one thread.
 */
#include "quant/cholesky.h"

#include <math.h>

#include "base/pool.h"
#include "quant/dense.h"

enum { TILE_ROWS = 48, STRIP_COLS = 64 };

struct run {
    struct cholesky *c;
    bool ok;
};

static float *row_of(const struct cholesky *c, uint32_t i) { return c->a + (size_t)i * c->n; }

/* Rows [first, end) of columns [left, right): everything left of `left` in these rows is final. */
static void solve_columns(const struct cholesky *c, uint32_t first, uint32_t end, uint32_t left,
                          uint32_t right) {
    for (uint32_t i = first; i < end; i++) {
        float *x = row_of(c, i);
        for (uint32_t r = first; r < i; r++) {
            const float factor = row_of(c, r)[i], *y = row_of(c, r);
            for (uint32_t j = left; j < right; j++) x[j] -= factor * y[j];
        }
        float inverse = 1.0f / x[i];
        for (uint32_t j = left; j < right; j++) x[j] *= inverse;
    }
}

static bool factor_block(const struct cholesky *c, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++) {
        float *x = row_of(c, i);
        for (uint32_t r = first; r < i; r++) {
            const float factor = row_of(c, r)[i], *y = row_of(c, r);
            for (uint32_t j = i; j < end; j++) x[j] -= factor * y[j];
        }
        if (!(x[i] > 0) || !isfinite(x[i])) return false;
        float root = sqrtf(x[i]), inverse = 1.0f / root;
        x[i] = root;
        for (uint32_t j = i + 1; j < end; j++) x[j] *= inverse;
    }
    return true;
}

/* transposed[j] = minus column j of the rows [first, end). */
static void transpose_columns(const struct cholesky *c, uint32_t first, uint32_t end, uint32_t left,
                              uint32_t right) {
    for (uint32_t r = first; r < end; r++)
        for (uint32_t j = left; j < right; j++)
            c->transposed[(size_t)j * CHOLESKY_BLOCK + (r - first)] = -row_of(c, r)[j];
}

static void subtract_tile(const struct cholesky *c, uint32_t first, uint32_t end, uint32_t top,
                          uint32_t bottom) {
    const struct dense_product p = {.c = row_of(c, top) + top,
                                    .a = c->transposed + (size_t)top * CHOLESKY_BLOCK,
                                    .b = row_of(c, first) + top,
                                    .c_stride = c->n,
                                    .a_stride = CHOLESKY_BLOCK,
                                    .b_stride = c->n,
                                    .rows = bottom - top,
                                    .cols = c->n - top,
                                    .depth = end - first};
    dense_multiply(&p);
}

static uint32_t end_of(uint32_t first, uint32_t width, uint32_t limit) {
    return limit - first < width ? limit : first + width;
}

static void wait_for_all(const struct cholesky *c) {
    if (c->pool) pool_barrier(c->pool);
}

static void factor(void *ctx, uint32_t thread, uint32_t threads) {
    struct run *run = ctx;
    const struct cholesky *c = run->c;
    for (uint32_t first = 0; first < c->n; first += CHOLESKY_BLOCK) {
        uint32_t end = end_of(first, CHOLESKY_BLOCK, c->n);
        if (thread == 0) run->ok = factor_block(c, first, end);
        wait_for_all(c);
        if (!run->ok) return;
        for (uint32_t left = end + thread * STRIP_COLS; left < c->n; left += threads * STRIP_COLS) {
            uint32_t right = end_of(left, STRIP_COLS, c->n);
            solve_columns(c, first, end, left, right);
            transpose_columns(c, first, end, left, right);
        }
        wait_for_all(c);
        for (uint32_t top = end + thread * TILE_ROWS; top < c->n; top += threads * TILE_ROWS)
            subtract_tile(c, first, end, top, end_of(top, TILE_ROWS, c->n));
        wait_for_all(c);
    }
}

bool cholesky_factor(struct cholesky *c) {
    struct run run = {.c = c, .ok = true};
    if (c->pool)
        pool_run(c->pool, factor, &run);
    else
        factor(&run, 0, 1);
    return run.ok;
}
