/* kernels/cpu/mm.h - kernels of products with packed weights, as drivers call them.
 *
 * A kernel multiplies a tile of a few rows of activations with one panel of weights
 * (kernels/cpu/pack.h). Where a processor is faster with more at once, a table also has kernels for
 * two panels, for many rows, or for opened panels (codes turned into bytes before,
 * kernels/cpu/tiles.h). All give the same bits (tensor/q8.h).
 */
#ifndef KERNELS_CPU_MM_H
#define KERNELS_CPU_MM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/pack.h"
#include "tensor/q8.h"

/* Activation rows that one call of a panel kernel takes at most, and panels of a pair. */
enum { MM_TILE = 4, MM_PAIR = 2 };

/* One row of activations: quantised, or plain floats, as the weight asks for. */
struct mm_row {
    struct q8_row q8;
    const float *f32;
};

/* The products of `count` rows (1 .. MM_TILE) with one panel of packed weights. */
typedef void mm_panel_fn(const struct packed *w, const uint8_t *panel, const struct mm_row *rows,
                         uint32_t count, float out[MM_TILE][PANEL_ROWS]);

/* Where the products of a pair of whole panels go. */
struct mm_sink {
    float *const *rows; /* [MM_TILE] */
    size_t col;
    const float *bias; /* of the first column; NULL: none */
    bool add;          /* to what is there */
};

/* The products of MM_TILE rows with a panel and the one that follows it. */
typedef void mm_pair_fn(const struct packed *w, const uint8_t *panel, const struct mm_row *rows,
                        const struct mm_sink *to);

/* Kernels for two panels at once, from `rows_min` rows on. */
struct mm_pairs {
    uint32_t rows_min;
    mm_pair_fn *const *pair; /* [DTYPE_COUNT]; NULL: the format has none */
};

/* Rows that one call of a wide kernel takes. */
enum { MM_WIDE = 16 };

/* A panel as a wide kernel reads it: values and numbers of block b at b times their step. */
struct mm_open {
    const uint8_t *values, *numbers;
    size_t value_step, number_step;
};

/* Products of many rows at once, for processors that have instructions for it. Rows are
 * gathered once for all panels, a panel is opened once for all rows, both in the thread's
 * scratch (kernels/cpu/tiles.h). A run of rows is cut into MM_WIDE at a time; fewer than
 * `rows_min` go through the panel kernels instead, with the same bits. */
struct mm_wide {
    uint32_t rows_min;
    bool (*takes)(enum dtype type);
    size_t (*row_bytes)(uint32_t cols); /* MM_WIDE gathered rows */
    void (*enter)(void);                /* around the calls of one op, on every thread */
    void (*leave)(void);
    /* `halves`: the weight has minima in groups of 16. */
    void (*gather)(const struct mm_row *rows, uint32_t count, uint32_t cols, bool halves,
                   uint8_t *tile);
    struct mm_open (*open)(const struct packed *w, const uint8_t *panel, uint8_t *room);
    void (*multiply)(const struct packed *w, const struct mm_open *open, const uint8_t *tile,
                     float out[MM_WIDE][PANEL_ROWS]);
};

/* Products of many rows with a format whose codes cost more to turn into bytes than to multiply:
 * from `rows_min` rows on, a panel is opened once in the thread's scratch (kernels/cpu/pack.h) and
 * goes through kernels for that. */
struct mm_opener {
    uint32_t rows_min;
    void (*open)(const struct packed *w, const uint8_t *panel, uint8_t *room);
    mm_panel_fn *const *panel; /* [DTYPE_COUNT]; NULL: the format is not opened */
};

#endif
