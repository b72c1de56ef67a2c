/* quant/round.c - to the nearest code, each number by itself. See quant/round.h. */
#include "quant/round.h"

#include <math.h>

#include "base/check.h"
#include "quant/round_int.h"
#include "tensor/dtype.h"

/* The least and the largest positive number of f16. */
#define SCALE_MIN 0x1p-24f
#define SCALE_MAX 65504.0f

/* A group that is all zero has any scale. */
static float scale_of(float span, float steps) {
    if (span == 0.0f) return 1.0f;
    float scale = f16_to_f32(f16_from_f32(span / steps));
    if (scale < SCALE_MIN) return SCALE_MIN;
    return scale > SCALE_MAX ? SCALE_MAX : scale;
}

struct grid grid_of(const struct int_format *format, float least, float most) {
    struct grid g = {.most = format->bits == 4 ? 15.0f : 255.0f};
    least = least < 0.0f ? least : 0.0f;
    most = most > 0.0f ? most : 0.0f;
    if (format->is_symmetric) {
        float peak = -least > most ? -least : most;
        g.scale = scale_of(peak, g.most / 2.0f);
        g.zero = (g.most + 1.0f) / 2.0f;
        return g;
    }
    g.scale = scale_of(most - least, g.most);
    g.zero = rintf(-least / g.scale);
    g.zero = g.zero > g.most ? g.most : g.zero;
    if (format->has_no_zero && g.zero < 1.0f) {
        g.scale = scale_of(most, g.most - 1.0f);
        g.zero = 1.0f;
    }
    return g;
}

struct grid grid_of_numbers(const struct int_format *format, const float *w, uint32_t count) {
    float least = 0.0f, most = 0.0f;
    for (uint32_t i = 0; i < count; i++) {
        least = w[i] < least ? w[i] : least;
        most = w[i] > most ? w[i] : most;
    }
    return grid_of(format, least, most);
}

static void round_group(const float *w, uint32_t count, const struct grid *g, uint8_t *codes) {
    for (uint32_t i = 0; i < count; i++) codes[i] = (uint8_t)grid_code(g, w[i]);
}

void round_row(const float *w, struct int_matrix *out, uint32_t row) {
    uint32_t width = out->format.group_cols ? out->format.group_cols : out->cols;
    for (uint32_t g = 0; g < out->groups; g++) {
        uint32_t first = g * width;
        uint32_t count = out->cols - first < width ? out->cols - first : width;
        struct grid grid = grid_of_numbers(&out->format, w + first, count);
        out->scales[(size_t)row * out->groups + g] = grid.scale;
        out->zeros[(size_t)row * out->groups + g] = (uint8_t)grid.zero;
        round_group(w + first, count, &grid, out->codes + (size_t)row * out->cols + first);
    }
}

struct nearest_job {
    const float *w;
    struct int_matrix *out;
};

static void round_rows(void *ctx, uint32_t thread, uint32_t threads) {
    const struct nearest_job *job = ctx;
    for (uint32_t row = thread; row < job->out->rows; row += threads)
        round_row(job->w + (size_t)row * job->out->cols, job->out, row);
}

void round_on_threads(uint32_t threads, pool_fn *fn, void *ctx) {
    struct pool *pool = NULL;
    struct err err;
    if (threads == 0) threads = pool_default_threads();
    if (threads == 1 || pool_create(&pool, threads, &err) != ST_OK) {
        fn(ctx, 0, 1);
        return;
    }
    pool_run(pool, fn, ctx);
    pool_destroy(pool);
}

void round_nearest(const float *w, struct int_matrix *out) {
    struct nearest_job job = {.w = w, .out = out};
    for (uint32_t k = 0; k < out->cols && out->group_of; k++)
        out->group_of[k] = out->format.group_cols ? k / out->format.group_cols : 0;
    round_on_threads(0, round_rows, &job);
}
