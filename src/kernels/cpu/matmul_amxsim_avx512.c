/* kernels/cpu/matmul_amxsim_avx512.c - the AMX table with its tile instructions in plain C.
 *
 * Gathering, opening, scaling and the drivers are those of "amx", so that all but four
 * instructions is tested on processors without them. Slow; never chosen by "auto".
 */
#include "kernels/cpu/kernels_avx512.h"
#include "kernels/cpu/matmul_tiles_avx512.h"

enum { ROWS_MIN = 8 };

static void nothing(void) {}

static const struct mm_wide amxsim_wide = {
    .rows_min = ROWS_MIN,
    .takes = tiles_take,
    .row_bytes = tiles_row_bytes,
    .enter = nothing,
    .leave = nothing,
    .gather = tiles_gather,
    .open = tiles_open,
    .multiply = tiles_multiply,
};

const struct cpu_kernels cpu_kernels_amxsim = {AVX512_KERNELS, .wide = &amxsim_wide};
