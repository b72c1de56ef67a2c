/* tests/gpu/emulate/emulate_map.h - what an emulated CUtensorMap holds: a matrix of four dimensions
 * and the box that a copy takes of it. Written by runtime.c, read by device_grid.cuh. */
#ifndef TESTS_GPU_EMULATE_MAP_H
#define TESTS_GPU_EMULATE_MAP_H

#include <stdint.h>

struct emulate_map {
    const uint8_t *base;
    uint64_t size[4];   /* elements */
    uint64_t stride[3]; /* bytes, of dimensions 1 to 3 */
    uint32_t box[4], elem_bytes;
};

#endif
