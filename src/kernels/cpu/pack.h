/* kernels/cpu/pack.h - weights in the order in which the panel kernels read them.
 *
 * A matrix of N rows is cut into panels of PANEL_ROWS rows, the last one padded with zero
 * rows; an expert's panels follow those of the expert before. A panel is one stream of bytes
 * that a kernel reads once, front to back. `r` is a row of the panel, b a block of 32 k:
 *
 *   PACK_NIBBLES  per b: 256 bytes of nibbles, then 16 scales, then 16 minima if there are any, or
 *                 16 zero points, int8: the minimum is -(scale x zero point), exact in f32.
 *                 Byte [j 0..3][r 0..15][c 0..3] holds k = 4j + c low and k = 16 + 4j + c high,
 *                 so that a vector of 32 bytes is 8 rows x 4 k once unpacked.
 *   PACK_BYTES    per b: 512 bytes [j 0..7][r][c 0..3], k = 4j + c; then for each group of the
 *                 block (one of 32 or two of 16) 16 scales, then likewise minima.
 *   PACK_SUPER    per superblock of 256 k: 16 f16 d; 16 f16 -dmin if there are minima; for each b
 *                 the codes of its scales and minima, arrays of 16 int8 in the order of
 *                 PACK_BYTES; then for each b its values: nibbles as in PACK_NIBBLES, and the
 *                 high bits of codes that have more than four:
 *                   one    64 bytes [r][c]: bit i belongs to k = 4i + c
 *                   two    128 bytes [half][r][c]: bits 2i, 2i + 1 to k = 16 half + 4i + c
 *                 A scale is d times its code and a minimum -dmin times its code, exact in f32.
 *   PACK_PLAIN    per k: 16 values in the file's own width.
 *   PACK_F8       per 128 k: 16 scales f32, then for each k 16 codes. The last step of a row that
 *                 is no multiple of 128 has room for 128, too.
 *
 * Scales and minima are f16 where the file keeps them so, else f32. Nibbles hold q + 8 for Q4_0,
 * whose kernels take 8 x isum away again, and the codes of tensor/dtype.h for formats that have
 * them: q + 32 for Q6_K, places in a table for IQ4_NL, IQ4_XS, NF4 and FP4. Bits of a packed
 * weight: Q4_K 4.63, Q5_K 5.63, Q6_K 6.56, IQ4_XS 4.31; the formats of f16 scales as in the file,
 * but Q5_0 8.5 and Q5_1 9; Q2_K 12 and Q3_K 10; INT4 4.75, NF4 and FP4 5, INT8 9, INT8_Z 10,
 * F8 8.25.
 *
 * Lifetime: made by pack_create, filled once, freed by pack_free. Thread: read-only once made.
 */
#ifndef KERNELS_CPU_PACK_H
#define KERNELS_CPU_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "graph/weight.h"

struct page_arena;
struct pool;

enum { PANEL_ROWS = 16 };

/* Raised with every change of a layout: packed weights are kept on disk (kernels/cpu/image.h), and
 * those of another version are packed anew. */
enum { PACK_LAYOUT_VERSION = 2 };

enum pack_layout { PACK_NIBBLES, PACK_BYTES, PACK_SUPER, PACK_PLAIN, PACK_F8 };

/* How a number format is packed. */
struct pack_info {
    enum pack_layout layout;
    bool half_scales; /* scales and minima are f16 */
    bool has_min;
    bool has_zero;        /* minima are there as zero points */
    uint32_t group_elems; /* 16 or 32; 0 for plain and F8 */
    uint32_t high_bits;   /* of a code, beyond its nibble: 0, 1 or 2 */
    uint32_t step_elems;  /* k of a step: 32; 256 of a superblock, 1 of a plain panel, 128 of F8 */
    uint32_t step_bytes;
};
struct pack_info pack_info(enum dtype type);

enum { PACK_SUPER_BLOCKS = 8, PACK_NIBBLE_BYTES = 256, PACK_HIGH_BYTES = 64 };

/* Scales of a step of PACK_F8. */
enum { PACK_F8_SCALE_BYTES = PANEL_ROWS * sizeof(float) };

/* Byte offsets in a superblock: codes of scales and minima, values, and their steps from one b
 * to the next. d and -dmin are at its start. */
struct pack_super {
    uint32_t codes, code_step, values, value_step, bytes;
};
static inline struct pack_super pack_super(bool has_min, uint32_t groups, uint32_t high_bits) {
    uint32_t kinds = has_min ? 2 : 1, codes = kinds * PANEL_ROWS * 2;
    uint32_t code_step = kinds * groups * PANEL_ROWS,
             values = codes + code_step * PACK_SUPER_BLOCKS;
    uint32_t value_step = PACK_NIBBLE_BYTES + high_bits * PACK_HIGH_BYTES;
    return (struct pack_super){codes, code_step, values, value_step,
                               values + value_step * PACK_SUPER_BLOCKS};
}

/* A panel of any quantised format opened for many rows: PACK_BYTES with f32 numbers. */
static inline size_t pack_opened_bytes(uint32_t cols) {
    enum { VALUES = 2 * PACK_NIBBLE_BYTES, ARRAYS_MAX = 4 };
    return (size_t)(cols / 32) * (VALUES + ARRAYS_MAX * PANEL_ROWS * sizeof(float));
}

struct packed {
    struct str name; /* the weight's */
    enum dtype type;
    uint32_t rows, cols, experts;
    uint32_t panel_count; /* of one expert */
    size_t panel_bytes;
    uint8_t *data; /* the arena's */
    size_t bytes;
    uint64_t checksum;          /* that its image says */
    bool is_unverified;         /* it was read from an image, and not compared with its checksum */
    struct list_link in_device; /* the device's list of weights */
};

/* Zeroed panels for a weight, taken from `arena`; NULL when there is no room. */
struct packed *pack_create(const struct weight *w, struct page_arena *arena);
/* Fill panels that are still zero. */
void pack_fill(struct packed *p, const struct weight *w, struct pool *pool);
void pack_clear(struct packed *p); /* the panels are zero again */
void pack_free(struct packed *p);  /* NULL is fine */

/* A row of the first expert as float32, the bits that dtype_dequant makes of it in the file. All of
 * a panel passes the cache for it: for rows that are looked up, not for products. */
void pack_read_row(const struct packed *p, uint32_t row, float *out);

static inline const uint8_t *pack_panel(const struct packed *p, uint32_t expert, uint32_t panel) {
    return p->data + ((size_t)expert * p->panel_count + panel) * p->panel_bytes;
}

#endif
