/* kernels/cpu/tiles.h - many rows against a panel: what tile instructions read.
 *
 * A tile instruction multiplies 16 rows of activations by the 16 rows of a panel over 32 k at
 * once. It wants both sides in memory of their own:
 *
 *   gathered rows   per block b of 32 k: 16 rows x 32 bytes, 16 scales, 16 dsums; after the
 *                   last block, for formats that ask for it, the dsum16 of all blocks: 16 for
 *                   the first half of a block, 16 for the second. Rows that are missing are 0.
 * opened panel    codes turned into values, as PACK_BYTES lays them, signed, which is what a tile
 * reads; the
 *                   scales and minima of a block as floats. What the panel already holds that
 *                   way is read in place.
 *
 * Rows are gathered once for all panels of a product, a panel is opened once for all rows.
 *
 * Thread: every thread in its own memory.
 */
#ifndef KERNELS_CPU_TILES_H
#define KERNELS_CPU_TILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/cpu_int.h"

enum {
    TILE_Q_BYTES = MM_WIDE * Q8_BLOCK,
    TILE_NUMBERS = MM_WIDE * 4, /* bytes of 16 floats */
    TILE_STEP = TILE_Q_BYTES + 2 * TILE_NUMBERS,
};

/* The dsum16 of gathered rows of `cols`. */
static inline const float *tile_halves(const uint8_t *tile, uint32_t cols) {
    return (const float *)(const void *)(tile + (size_t)(cols / Q8_BLOCK) * TILE_STEP);
}

/* Every quantised format: values fit a signed byte. Plain ones are defined as sums of rounded
 * products in rising k, which no tile instruction gives. */
bool tiles_take(enum dtype type);

size_t tiles_row_bytes(uint32_t cols); /* 16 gathered rows */

void tiles_gather(const struct mm_row *rows, uint32_t count, uint32_t cols, bool halves,
                  uint8_t *tile);
/* `room` has pack_opened_bytes. */
struct mm_open tiles_open(const struct packed *w, const uint8_t *panel, uint8_t *room);

#endif
