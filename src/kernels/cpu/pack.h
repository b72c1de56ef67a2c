/* kernels/cpu/pack.h - weights in the order in which the panel kernels read them.
 *
 * A matrix of N rows is cut into panels of PANEL_ROWS rows, the last one padded with zero
 * rows; an expert's panels follow those of the expert before. A panel is one stream of bytes
 * that a kernel reads once, front to back. `r` is a row of the panel, b a block of 32 k:
 *
 *   PACK_NIBBLES  per b: 256 bytes of nibbles, then 16 scales, then 16 minima if there are any.
 *                 Byte [j 0..3][r 0..15][c 0..3] holds k = 4j + c low and k = 16 + 4j + c high,
 *                 so that a vector of 32 bytes is 8 rows x 4 k once unpacked.
 *   PACK_BYTES    per b: 512 bytes [j 0..7][r][c 0..3], k = 4j + c; then for each group of the
 *                 block (one of 32 or two of 16) 16 scales, then likewise minima.
 *   PACK_PLAIN    per k: 16 values in the file's own width.
 *
 * Scales and minima are f16 where the file keeps them so, else f32. Q4_0 keeps q + 8 in its
 * nibbles; kernels take 8 x isum away again.
 *
 * Lifetime: made by pack_create, filled once, freed by pack_free. Thread: read-only once made.
 */
#ifndef KERNELS_CPU_PACK_H
#define KERNELS_CPU_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/weight.h"

struct page_book;
struct pool;

enum { PANEL_ROWS = 16 };

/* Raised with every change of a layout: packed weights are kept on disk (kernels/cpu/image.h), and
 * those of another version are packed anew. */
enum { PACK_LAYOUT_VERSION = 1 };

enum pack_layout { PACK_NIBBLES, PACK_BYTES, PACK_PLAIN };

/* How a number format is packed. */
struct pack_info {
    enum pack_layout layout;
    bool half_scales; /* scales and minima are f16 */
    bool has_min;
    uint32_t group_elems; /* 16 or 32; 0 for plain */
    uint32_t step_bytes;  /* one block of 32 k, or one k of a plain panel */
};
struct pack_info pack_info(enum dtype type);

struct packed {
    struct str name; /* the weight's */
    enum dtype type;
    uint32_t rows, cols, experts;
    uint32_t panel_count; /* of one expert */
    size_t panel_bytes;
    uint8_t *data; /* the book's */
    size_t bytes;
    struct packed *next; /* the device's list */
};

/* Zeroed panels for a weight, taken from `book`; NULL when there is no room. */
struct packed *pack_create(const struct weight *w, struct page_book *book);
/* Fill panels that are still zero. */
void pack_fill(struct packed *p, const struct weight *w, struct pool *pool);
void pack_free(struct packed *p); /* NULL is fine */

static inline const uint8_t *pack_panel(const struct packed *p, uint32_t expert, uint32_t panel) {
    return p->data + ((size_t)expert * p->panel_count + panel) * p->panel_bytes;
}

#endif
