/* quant/gptq.c - rounding column by column; later columns compensate the error of earlier ones.
 *
 * With H the second moments and R upper triangular, H = R R^T, the squared error of a row's output
 * is |d R|^2, d being what rounding changed. Column j of d R has d[0] .. d[j] in it only. So when
 * the columns before j are rounded, the number that compensates their errors best is
 *
 *     v[j] = w[j] + sum over i < j of d[i] * B[i][j],   B[i][j] = R[i][j] / R[j][j]
 *
 * and d[j] = w[j] - round(v[j]). This is the procedure of Frantar et al. (2022), which has it with
 * the inverse of H and moves each error on at once; the sums are the same, and no inverse is
 * needed. R comes from the Cholesky factor of H with rows and columns in falling order.
 *
 * The scale of a group is found when its first column is reached. The widest grid spans the numbers
 * that would compensate all errors so far if nothing more were rounded: the same sums with d[j] =
 * w[j] - v[j]. Narrower ones cut off the largest numbers and have smaller steps: each is tried on
 * the whole group, and the one with the least error is kept. The error is the group's part of
 * |d R|^2, the sum of (v[j] - round(v[j]))^2 * R[j][j]^2. The procedure as published takes the
 * widest grid.
 *
 * Rows are independent: tiles of 64 are shared out among threads. Within a tile the sum over i is a
 * product of matrices up to the beginning of the group, another one up to the beginning of 32
 * columns, and single terms from there.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/pool.h"
#include "quant/cholesky.h"
#include "quant/dense.h"
#include "quant/moments.h"
#include "quant/round.h"
#include "quant/round_int.h"

enum { TILE_ROWS = 64, STEP_COLS = 32, CHUNK_COLS = 128, TRIES = 3, ROOMS = 4 };

/* Grids that are tried for a group: 1, 0.95, ... of the widest. A group of more columns than
 * SEARCH_COLS_MAX takes the widest, because a try costs the square of the columns. */
enum { GRIDS = 9, SEARCH_COLS_MAX = 128 };
#define GRID_STEP 0.05f

/* Of gptq_damp. Tokens of a text depend on each other, so that the moments have the noise of a
 * third as many rows (docs/decisions/0026-damping-follows-the-rows.md). */
#define DAMP_NOISE 3.0
#define DAMP_MIN 0.01
#define DAMP_MAX 1.0

struct gptq {
    struct int_matrix *out;
    const struct moments *moments;
    const float *w;
    uint32_t cols;
    uint32_t *order; /* [cols]: the column that is rounded at each place */
    float *b;        /* [cols][cols] */
    float *weights;  /* [cols]: R[j][j]^2 */
    float *room;     /* [threads][TILE_ROWS][cols] four times: w, v, u, d of struct tile */
    struct pool *pool;
};

static double diagonal(const struct moments *m, uint32_t k) {
    return (double)m->products[(size_t)k * m->cols + k];
}

struct ranked {
    double size;
    uint32_t col;
};

static int by_falling_size(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? 1 : -1;
    return x->col < y->col ? -1 : 1;
}

static bool make_order(struct gptq *g) {
    struct ranked *ranked = mem_alloc_array(g->cols, sizeof(*ranked));
    if (!ranked) return false;
    for (uint32_t k = 0; k < g->cols; k++) ranked[k] = (struct ranked){diagonal(g->moments, k), k};
    if (g->out->format.has_order) qsort(ranked, g->cols, sizeof(*ranked), by_falling_size);
    for (uint32_t k = 0; k < g->cols; k++) g->order[k] = ranked[k].col;
    mem_free(ranked);
    return true;
}

/* An input that is always 0 tells nothing: its column has a moment of 1, and becomes 0. */
static bool is_dead(const struct gptq *g, uint32_t col) { return !(diagonal(g->moments, col) > 0); }

static double mean_diagonal(const struct gptq *g) {
    double sum = 0;
    for (uint32_t k = 0; k < g->cols; k++) sum += is_dead(g, k) ? 1.0 : diagonal(g->moments, k);
    return sum / g->cols;
}

/* The upper half of the moments, in the order of rounding, last column first. */
static void fill_factor(const struct gptq *g, float damp) {
    uint32_t n = g->cols;
    for (uint32_t i = 0; i < n; i++) {
        const float *from = g->moments->products + (size_t)g->order[n - 1 - i] * n;
        float *to = g->b + (size_t)i * n;
        for (uint32_t j = i; j < n; j++) to[j] = from[g->order[n - 1 - j]];
        to[i] = (is_dead(g, g->order[n - 1 - i]) ? 1.0f : to[i]) + damp;
    }
}

/* The factor U of the reversed matrix becomes B: B[i][j] = U[n-1-j][n-1-i] / U[n-1-j][n-1-j]. */
static void reverse_factor(const struct gptq *g) {
    size_t n = g->cols;
    for (size_t i = 0; i < n; i++) {
        float *row = g->b + i * n, inverse = 1.0f / row[i];
        g->weights[n - 1 - i] = row[i] * row[i];
        for (size_t j = i; j < n; j++) row[j] *= inverse;
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i; j < n - 1 - i; j++) {
            float *x = g->b + i * n + j, *y = g->b + (n - 1 - j) * n + (n - 1 - i), keep = *x;
            *x = *y;
            *y = keep;
        }
    }
}

/* The mean of r^2 over all pairs of inputs, r being the correlation of two; 0: there is no pair. */
static double mean_correlation(const struct moments *m) {
    double sum = 0, live = 0;
    for (uint32_t i = 0; i < m->cols; i++) {
        const float *row = m->products + (size_t)i * m->cols;
        double own = (double)row[i], here = 0;
        if (!(own > 0)) continue;
        live++;
        for (uint32_t j = 0; j < i; j++) {
            double other = diagonal(m, j);
            if (other > 0) here += (double)row[j] / own * ((double)row[j] / other);
        }
        sum += here;
    }
    return live > 1 ? sum / (live * (live - 1) / 2) : 0;
}

double gptq_damp(const struct moments *m) {
    double mean = mean_correlation(m);
    if (m->rows == 0 || !(mean > 0)) return DAMP_MAX;
    double share = DAMP_NOISE * (1 + 1 / mean) / (double)m->rows;
    return share < DAMP_MIN ? DAMP_MIN : share > DAMP_MAX ? DAMP_MAX : share;
}

static enum status make_factor(struct gptq *g, double damp, struct err *err) {
    float *transposed = mem_alloc_array((size_t)g->cols * CHOLESKY_BLOCK, sizeof(*transposed));
    if (!transposed) return err_set(err, ST_NOMEM, "out of memory to factor the moments");
    struct cholesky c = {.a = g->b, .transposed = transposed, .n = g->cols, .pool = g->pool};
    double mean = mean_diagonal(g), share = damp > 0 ? damp : gptq_damp(g->moments);
    bool ok = false;
    for (int i = 0; i < TRIES && !ok; i++, share *= 10) {
        fill_factor(g, (float)(share * mean));
        ok = cholesky_factor(&c);
    }
    mem_free(transposed);
    if (!ok)
        return err_set(err, ST_BAD,
                       "the second moments of %u inputs over %llu tokens cannot be factored, even "
                       "with %g of the mean of their diagonal added to it; give a longer text or "
                       "more damping",
                       g->cols, (unsigned long long)g->moments->rows, share / 10);
    reverse_factor(g);
    return ST_OK;
}

/* The numbers of a tile of rows, [rows][cols] each, columns in the order of rounding. u is v if
 * nothing more were rounded. */
struct tile {
    const struct gptq *g;
    float *w, *v, *u, *d;
    uint32_t first, rows;
};

static void read_tile(const struct tile *t) {
    const struct gptq *g = t->g;
    for (uint32_t r = 0; r < t->rows; r++) {
        const float *from = g->w + (size_t)(t->first + r) * g->cols;
        float *w = t->w + (size_t)r * g->cols;
        for (uint32_t k = 0; k < g->cols; k++)
            w[k] = is_dead(g, g->order[k]) ? 0 : from[g->order[k]];
    }
    memcpy(t->v, t->w, (size_t)t->rows * g->cols * sizeof(t->v[0]));
}

/* Columns [first, end) of v, or of u, take in the changes of the columns [from, to). */
static void take_in(const struct tile *t, float *v, uint32_t first, uint32_t end, uint32_t from,
                    uint32_t to) {
    size_t n = t->g->cols;
    const struct dense_product p = {.c = v + first,
                                    .a = t->d + from,
                                    .b = t->g->b + from * n + first,
                                    .c_stride = n,
                                    .a_stride = n,
                                    .b_stride = n,
                                    .rows = t->rows,
                                    .cols = end - first,
                                    .depth = to - from};
    if (to > from) dense_multiply(&p);
}

/* Columns [first, end) of u, whose changes before `first` are taken in already. */
static void settle_columns(const struct tile *t, uint32_t first, uint32_t end) {
    size_t n = t->g->cols;
    for (uint32_t r = 0; r < t->rows; r++) {
        const float *w = t->w + r * n;
        float *u = t->u + r * n, *d = t->d + r * n;
        for (uint32_t k = first; k < end; k++) {
            d[k] = w[k] - u[k];
            for (uint32_t j = k + 1; j < end; j++) u[j] += d[k] * t->g->b[k * n + j];
        }
    }
}

static void settle(const struct tile *t, uint32_t first, uint32_t end) {
    size_t n = t->g->cols;
    for (uint32_t r = 0; r < t->rows; r++)
        memcpy(t->u + r * n + first, t->v + r * n + first, (end - first) * sizeof(t->u[0]));
    for (uint32_t step = first; step < end && first > 0; step += STEP_COLS) {
        uint32_t step_end = end - step < STEP_COLS ? end : step + STEP_COLS;
        take_in(t, t->u, step, step_end, first, step);
        settle_columns(t, step, step_end);
    }
}

static struct grid read_grid(const struct int_matrix *out, uint32_t row, uint32_t group) {
    size_t at = (size_t)row * out->groups + group;
    return (struct grid){out->scales[at], out->zeros[at], out->format.bits == 4 ? 15.0f : 255.0f};
}

/* The group's part of the row's error with this grid; `most` or more if it is not below that. */
static float group_error(const struct tile *t, uint32_t r, uint32_t first, uint32_t end,
                         const struct grid *grid, float most) {
    const struct gptq *g = t->g;
    const float *w = t->w + (size_t)r * g->cols + first;
    uint32_t count = end - first;
    float v[SEARCH_COLS_MAX], error = 0;
    memcpy(v, t->v + (size_t)r * g->cols + first, count * sizeof(v[0]));
    for (uint32_t k = 0; k < count && error < most; k++) {
        const float *b = g->b + (size_t)(first + k) * g->cols + first;
        float value = grid->scale * (grid_code(grid, v[k]) - grid->zero);
        float off = v[k] - value, d = w[k] - value;
        error += off * off * g->weights[first + k];
        for (uint32_t j = k + 1; j < count; j++) v[j] += d * b[j];
    }
    return error;
}

static struct grid search_grid(const struct tile *t, uint32_t r, uint32_t first, uint32_t end) {
    const struct int_format *format = &t->g->out->format;
    const float *u = t->u + (size_t)r * t->g->cols;
    float least = 0.0f, most = 0.0f;
    for (uint32_t k = first; k < end; k++) {
        least = u[k] < least ? u[k] : least;
        most = u[k] > most ? u[k] : most;
    }
    struct grid best = grid_of(format, least, most);
    if (end - first > SEARCH_COLS_MAX) return best;
    float best_error = group_error(t, r, first, end, &best, INFINITY);
    for (int i = 1; i < GRIDS; i++) {
        float share = 1.0f - (float)i * GRID_STEP;
        struct grid grid = grid_of(format, least * share, most * share);
        float error = group_error(t, r, first, end, &grid, best_error);
        if (!(error < best_error)) continue;
        best = grid;
        best_error = error;
    }
    return best;
}

static void begin_group(const struct tile *t, uint32_t group, uint32_t first, uint32_t end) {
    struct int_matrix *out = t->g->out;
    settle(t, first, end);
    for (uint32_t r = 0; r < t->rows; r++) {
        struct grid grid = search_grid(t, r, first, end);
        size_t at = (size_t)(t->first + r) * out->groups + group;
        out->scales[at] = grid.scale;
        out->zeros[at] = (uint8_t)grid.zero;
    }
}

static void round_columns(const struct tile *t, uint32_t group, uint32_t first, uint32_t end) {
    const struct gptq *g = t->g;
    for (uint32_t r = 0; r < t->rows; r++) {
        const float *w = t->w + (size_t)r * g->cols;
        float *v = t->v + (size_t)r * g->cols, *d = t->d + (size_t)r * g->cols;
        struct grid grid = read_grid(g->out, t->first + r, group);
        uint8_t *codes = g->out->codes + (size_t)(t->first + r) * g->cols;
        for (uint32_t k = first; k < end; k++) {
            float code = grid_code(&grid, v[k]);
            const float *b = g->b + (size_t)k * g->cols;
            codes[g->order[k]] = (uint8_t)code;
            d[k] = w[k] - grid.scale * (code - grid.zero);
            for (uint32_t j = k + 1; j < end; j++) v[j] += d[k] * b[j];
        }
    }
}

static void round_tile(const struct tile *t) {
    uint32_t cols = t->g->cols, group_cols = t->g->out->format.group_cols;
    uint32_t width = group_cols ? group_cols : CHUNK_COLS;
    read_tile(t);
    for (uint32_t first = 0; first < cols; first += width) {
        uint32_t end = cols - first < width ? cols : first + width;
        uint32_t group = group_cols ? first / group_cols : 0;
        take_in(t, t->v, first, end, 0, first);
        if (group_cols || first == 0) begin_group(t, group, first, group_cols ? end : cols);
        for (uint32_t step = first; step < end; step += STEP_COLS) {
            uint32_t step_end = end - step < STEP_COLS ? end : step + STEP_COLS;
            take_in(t, t->v, step, step_end, first, step);
            round_columns(t, group, step, step_end);
        }
    }
}

static void round_tiles(void *ctx, uint32_t thread, uint32_t threads) {
    const struct gptq *g = ctx;
    size_t size = (size_t)TILE_ROWS * g->cols;
    float *room = g->room + thread * size * ROOMS;
    for (uint32_t first = thread * TILE_ROWS; first < g->out->rows; first += threads * TILE_ROWS) {
        uint32_t rows = g->out->rows - first < TILE_ROWS ? g->out->rows - first : TILE_ROWS;
        const struct tile t = {.g = g,
                               .w = room,
                               .v = room + size,
                               .u = room + 2 * size,
                               .d = room + 3 * size,
                               .first = first,
                               .rows = rows};
        round_tile(&t);
    }
}

static void set_groups(const struct gptq *g) {
    uint32_t width = g->out->format.group_cols;
    for (uint32_t k = 0; k < g->cols && g->out->group_of; k++)
        g->out->group_of[g->order[k]] = width ? k / width : 0;
}

static enum status take_room(struct gptq *g, uint32_t threads, struct err *err) {
    struct err ignored;
    if (threads > 1 && pool_create(&g->pool, threads, &ignored) != ST_OK) threads = 1;
    g->order = mem_alloc_array(g->cols, sizeof(g->order[0]));
    g->b = mem_zalloc_array((size_t)g->cols * g->cols, sizeof(g->b[0]));
    g->weights = mem_alloc_array(g->cols, sizeof(g->weights[0]));
    g->room = mem_alloc_array((size_t)threads * TILE_ROWS * ROOMS * g->cols, sizeof(g->room[0]));
    if (g->order && g->b && g->weights && g->room && make_order(g)) return ST_OK;
    return err_set(err, ST_NOMEM, "out of memory to round a matrix of %u x %u", g->out->rows,
                   g->cols);
}

enum status round_gptq(const float *w, const struct moments *moments,
                       const struct gptq_options *options, struct int_matrix *out,
                       struct err *err) {
    CHECK(moments->cols == out->cols);
    struct gptq g = {.out = out, .moments = moments, .w = w, .cols = out->cols};
    enum status st =
        take_room(&g, options->threads ? options->threads : pool_default_threads(), err);
    if (st == ST_OK) st = make_factor(&g, options->damp, err);
    if (st == ST_OK) {
        set_groups(&g);
        if (g.pool)
            pool_run(g.pool, round_tiles, &g);
        else
            round_tiles(&g, 0, 1);
    }
    pool_destroy(g.pool);
    mem_free(g.order);
    mem_free(g.b);
    mem_free(g.weights);
    mem_free(g.room);
    return st;
}
