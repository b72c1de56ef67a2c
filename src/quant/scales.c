/* quant/scales.c - scales for inputs: the search of AWQ, and SmoothQuant's formula. */
#include <math.h>

#include "base/check.h"
#include "base/fmath.h"
#include "base/mem.h"
#include "base/pool.h"
#include "quant/dense.h"
#include "quant/moments.h"
#include "quant/round.h"
#include "quant/round_int.h"

enum { TILE_ROWS = 48 };

/* ---- the search of AWQ ---- */

struct search {
    const struct same_input *in;
    const struct int_format *format;
    const double *scales; /* [cols] */
    float *d;             /* [threads][2][TILE_ROWS][cols]: changes, and their products */
    double *errors;       /* [tiles] of one matrix */
    uint32_t matrix, rows, threads;
};

static uint32_t rows_of(const struct same_input *in, uint32_t matrix) {
    return in->rows[matrix] < AWQ_ROWS_MAX ? in->rows[matrix] : AWQ_ROWS_MAX;
}

/* The i-th of the rows that are looked at. */
static const float *row_at(const struct search *s, uint32_t i) {
    uint64_t row = (uint64_t)i * s->in->rows[s->matrix] / s->rows;
    return s->in->w[s->matrix] + row * s->in->cols;
}

/* d = what rounding the scaled row changes. */
static void change_row(const struct search *s, const float *w, float *d) {
    uint32_t cols = s->in->cols, width = s->format->group_cols ? s->format->group_cols : cols;
    for (uint32_t k = 0; k < cols; k++) d[k] = (float)((double)w[k] * s->scales[k]);
    for (uint32_t first = 0; first < cols; first += width) {
        uint32_t end = cols - first < width ? cols : first + width;
        struct grid grid = grid_of_numbers(s->format, d + first, end - first);
        for (uint32_t k = first; k < end; k++) {
            float rounded = grid.scale * (grid_code(&grid, d[k]) - grid.zero);
            d[k] = (float)((double)w[k] - (double)rounded / s->scales[k]);
        }
    }
}

static double tile_error(const struct search *s, uint32_t first, uint32_t count, float *room) {
    size_t cols = s->in->cols;
    float *d = room, *products = room + TILE_ROWS * cols;
    for (uint32_t r = 0; r < count; r++) change_row(s, row_at(s, first + r), d + r * cols);
    for (size_t i = 0; i < count * cols; i++) products[i] = 0.0f;
    const struct dense_product p = {.c = products,
                                    .a = d,
                                    .b = s->in->moments->products,
                                    .c_stride = cols,
                                    .a_stride = cols,
                                    .b_stride = cols,
                                    .rows = count,
                                    .cols = (uint32_t)cols,
                                    .depth = (uint32_t)cols};
    dense_multiply(&p);
    double sum = 0;
    for (size_t i = 0; i < count * cols; i++) sum += (double)d[i] * (double)products[i];
    return sum;
}

static void run_tiles(void *ctx, uint32_t thread, uint32_t threads) {
    const struct search *s = ctx;
    float *room = s->d + (size_t)thread * 2 * TILE_ROWS * s->in->cols;
    for (uint32_t first = thread * TILE_ROWS; first < s->rows; first += threads * TILE_ROWS) {
        uint32_t count = s->rows - first < TILE_ROWS ? s->rows - first : TILE_ROWS;
        s->errors[first / TILE_ROWS] = tile_error(s, first, count, room);
    }
}

/* A row that is looked at stands for as many as there are of it. */
static double error_of(struct search *s, struct pool *pool) {
    double sum = 0;
    for (s->matrix = 0; s->matrix < s->in->count; s->matrix++) {
        s->rows = rows_of(s->in, s->matrix);
        if (pool)
            pool_run(pool, run_tiles, s);
        else
            run_tiles(s, 0, 1);
        double own = 0;
        for (uint32_t i = 0; i * TILE_ROWS < s->rows; i++) own += s->errors[i];
        sum += own * s->in->rows[s->matrix] / s->rows;
    }
    return sum;
}

/* abs_mean^a; an input that is nearly always 0 is not scaled by next to nothing. */
static void fill_scales(const struct moments *m, double a, double *scales) {
    double peak = 0, least = HUGE_VAL, most = 0;
    for (uint32_t k = 0; k < m->cols; k++) peak = m->abs_sum[k] > peak ? m->abs_sum[k] : peak;
    for (uint32_t k = 0; k < m->cols; k++) {
        double share = peak > 0 ? m->abs_sum[k] / peak : 1;
        scales[k] = fm_pow_d(share > 1e-4 ? share : 1e-4, a);
        least = scales[k] < least ? scales[k] : least;
        most = scales[k] > most ? scales[k] : most;
    }
    double middle = sqrt(least * most);
    for (uint32_t k = 0; k < m->cols; k++) scales[k] /= middle;
}

static void choose(struct search *s, struct pool *pool, double *scales, float *out) {
    double best = HUGE_VAL;
    for (int step = 0; step <= AWQ_STEPS; step++) {
        fill_scales(s->in->moments, (double)step / AWQ_STEPS, scales);
        s->scales = scales;
        double error = error_of(s, pool);
        if (!(error < best) && step > 0) continue;
        best = error;
        for (uint32_t k = 0; k < s->in->cols; k++) out[k] = (float)scales[k];
    }
}

enum status awq_scales(const struct same_input *in, const struct int_format *format, float *scales,
                       struct err *err) {
    struct pool *pool = NULL;
    struct err ignored;
    uint32_t threads = pool_default_threads();
    CHECK(in->moments->cols == in->cols);
    if (threads > 1 && pool_create(&pool, threads, &ignored) != ST_OK) threads = 1;
    struct search s = {.in = in, .format = format, .threads = threads};
    double *tried = mem_alloc_array(in->cols, sizeof(*tried));
    s.d = mem_alloc_array((size_t)threads * 2 * TILE_ROWS * in->cols, sizeof(s.d[0]));
    s.errors = mem_alloc_array(AWQ_ROWS_MAX / TILE_ROWS + 1, sizeof(s.errors[0]));
    enum status st = tried && s.d && s.errors ? ST_OK : ST_NOMEM;
    if (st == ST_OK)
        choose(&s, pool, tried, scales);
    else
        err_set(err, st, "out of memory for the search of scales of %u inputs", in->cols);
    pool_destroy(pool);
    mem_free(tried);
    mem_free(s.d);
    mem_free(s.errors);
    return st;
}

/* ---- SmoothQuant ---- */

void smooth_scales(const struct same_input *in, double alpha, float *scales) {
    const double least = 1e-5;
    CHECK(alpha >= 0);
    CHECK(alpha <= 1);
    for (uint32_t k = 0; k < in->cols; k++) scales[k] = 0.0f;
    for (uint32_t i = 0; i < in->count; i++) {
        for (size_t row = 0; row < in->rows[i]; row++) {
            const float *w = in->w[i] + row * in->cols;
            for (uint32_t k = 0; k < in->cols; k++)
                scales[k] = fabsf(w[k]) > scales[k] ? fabsf(w[k]) : scales[k];
        }
    }
    for (uint32_t k = 0; k < in->cols; k++) {
        double x = (double)in->moments->abs_max[k], w = (double)scales[k];
        double top = fm_pow_d(x > least ? x : least, alpha);
        scales[k] = (float)(top / fm_pow_d(w > least ? w : least, 1 - alpha));
    }
}
