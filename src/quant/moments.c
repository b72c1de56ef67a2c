/* quant/moments.c - see quant/moments.h for the contract.
 *
 * Rows are gathered until there are DENSE_DEPTH of them; then all products of their columns are
 * added at once. So the sums do not depend on how many rows a call brings. Only i <= j is computed;
 * moments_end copies it to the other half.
 */
#include "quant/moments.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/pool.h"
#include "quant/dense.h"

enum { TILE_ROWS = 48 }; /* a multiple of what the product takes at a time */

struct moments_room {
    struct pool *pool;  /* NULL: there was no memory for threads */
    float *rows;        /* [DENSE_DEPTH][cols] */
    float *turned;      /* [cols][DENSE_DEPTH] */
    uint32_t row_count; /* in rows */
};

static struct moments_room *make_room(uint32_t cols) {
    struct err err;
    struct moments_room *r = mem_zalloc(sizeof(*r));
    if (!r) return NULL;
    r->rows = mem_alloc_array((size_t)DENSE_DEPTH * cols, sizeof(r->rows[0]));
    r->turned = mem_alloc_array((size_t)DENSE_DEPTH * cols, sizeof(r->turned[0]));
    if (r->rows && r->turned && pool_create(&r->pool, pool_default_threads(), &err) != ST_OK)
        r->pool = NULL;
    return r;
}

enum status moments_create(uint32_t cols, struct moments **out, struct err *err) {
    CHECK(cols > 0);
    struct moments *m = mem_zalloc(sizeof(*m));
    if (m) {
        m->cols = cols;
        m->products = mem_zalloc_array((size_t)cols * cols, sizeof(m->products[0]));
        m->abs_sum = mem_zalloc_array(cols, sizeof(m->abs_sum[0]));
        m->abs_max = mem_zalloc_array(cols, sizeof(m->abs_max[0]));
        m->room = make_room(cols);
    }
    if (m && m->products && m->abs_sum && m->abs_max && m->room && m->room->rows &&
        m->room->turned) {
        *out = m;
        return ST_OK;
    }
    moments_destroy(m);
    return err_set(err, ST_NOMEM, "out of memory for the second moments of %u inputs", cols);
}

static void free_room(struct moments *m) {
    if (!m->room) return;
    pool_destroy(m->room->pool);
    mem_free(m->room->rows);
    mem_free(m->room->turned);
    mem_free(m->room);
    m->room = NULL;
}

void moments_destroy(struct moments *m) {
    if (!m) return;
    free_room(m);
    mem_free(m->products);
    mem_free(m->abs_sum);
    mem_free(m->abs_max);
    mem_free(m);
}

static void turn_rows(const struct moments *m, uint32_t first, uint32_t end) {
    const struct moments_room *r = m->room;
    for (uint32_t row = 0; row < r->row_count; row++)
        for (uint32_t i = first; i < end; i++)
            r->turned[(size_t)i * DENSE_DEPTH + row] = r->rows[(size_t)row * m->cols + i];
}

static void add_tile(const struct moments *m, uint32_t first, uint32_t end) {
    const struct moments_room *r = m->room;
    const struct dense_product p = {.c = m->products + (size_t)first * m->cols + first,
                                    .a = r->turned + (size_t)first * DENSE_DEPTH,
                                    .b = r->rows + first,
                                    .c_stride = m->cols,
                                    .a_stride = DENSE_DEPTH,
                                    .b_stride = m->cols,
                                    .rows = end - first,
                                    .cols = m->cols - first,
                                    .depth = r->row_count};
    dense_multiply(&p);
}

static void add_tiles(void *ctx, uint32_t thread, uint32_t threads) {
    const struct moments *m = ctx;
    for (uint32_t first = thread * TILE_ROWS; first < m->cols; first += threads * TILE_ROWS) {
        uint32_t end = m->cols - first < TILE_ROWS ? m->cols : first + TILE_ROWS;
        turn_rows(m, first, end);
        add_tile(m, first, end);
    }
}

static void add_gathered(struct moments *m) {
    if (m->room->row_count == 0) return;
    if (m->room->pool)
        pool_run(m->room->pool, add_tiles, m);
    else
        add_tiles(m, 0, 1);
    m->room->row_count = 0;
}

void moments_add(struct moments *m, const float *x, uint32_t count) {
    CHECK(m->room);
    for (uint32_t i = 0; i < count; i++, x += m->cols) {
        float *row = m->room->rows + (size_t)m->room->row_count * m->cols;
        for (uint32_t k = 0; k < m->cols; k++) {
            float v = isfinite(x[k]) ? x[k] : 0.0f, size = fabsf(v);
            row[k] = v;
            m->abs_sum[k] += (double)size;
            m->abs_max[k] = size > m->abs_max[k] ? size : m->abs_max[k];
        }
        m->rows++;
        if (++m->room->row_count == DENSE_DEPTH) add_gathered(m);
    }
}

void moments_end(struct moments *m) {
    CHECK(m->room);
    add_gathered(m);
    free_room(m);
    for (uint32_t i = 0; i < m->cols; i++)
        for (uint32_t j = 0; j < i; j++)
            m->products[(size_t)i * m->cols + j] = m->products[(size_t)j * m->cols + i];
}
