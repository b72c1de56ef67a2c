/* kernels/cpu/peaks_list.c - the instructions whose rates are ceilings, each in a loop of its own.
 *
 * Every instruction reads two registers and adds to one of twelve, so that none waits for another;
 * asm, so that nothing is moved or left out and no flag of the compiler is needed.
 */
#include <stddef.h>

#include "kernels/cpu/peaks.h"

#if defined(__x86_64__)

enum { LOOPS = 1 << 14, CHAINS = 12, TILE_LOOPS = LOOPS / 8, TILE_PRODUCTS = 4 };

#define LOOP_ALL(instruction)                                                                      \
    __asm__ volatile("1:\n\t" instruction(0) instruction(1) instruction(2) instruction(3)          \
                         instruction(4) instruction(5) instruction(6) instruction(7)               \
                             instruction(8) instruction(9) instruction(10)                         \
                                 instruction(11) "dec %0\n\tjnz 1b"                                \
                     : "+r"(left)                                                                  \
                     :                                                                             \
                     : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",       \
                       "xmm8", "xmm9", "xmm10", "xmm11")
#define FMA256(i) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #i "\n\t"
#define FMA512(i) "vfmadd231ps %%zmm14, %%zmm15, %%zmm" #i "\n\t"
#define MADDUBS(i) "vpmaddubsw %%ymm14, %%ymm15, %%ymm" #i "\n\t"
#define VNNI(i) "vpdpbusd %%zmm14, %%zmm15, %%zmm" #i "\n\t"

static void fma256(void) {
    uint64_t left = LOOPS;
    LOOP_ALL(FMA256);
}

static void fma512(void) {
    uint64_t left = LOOPS;
    LOOP_ALL(FMA512);
}

static void maddubs(void) {
    uint64_t left = LOOPS;
    LOOP_ALL(MADDUBS);
}

static void vnni(void) {
    uint64_t left = LOOPS;
    LOOP_ALL(VNNI);
}

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Products of 16 x 16 over 64 k, four sums in turn. */
static void tiles(void) {
    static const struct tile_config config = {
        .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16}};
    uint64_t left = TILE_LOOPS;
    __asm__ volatile("ldtilecfg %1\n\t"
                     "tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\t"
                     "tilezero %%tmm3\n\ttilezero %%tmm4\n\ttilezero %%tmm5\n"
                     "1:\n\t"
                     "tdpbssd %%tmm5, %%tmm4, %%tmm0\n\ttdpbssd %%tmm5, %%tmm4, %%tmm1\n\t"
                     "tdpbssd %%tmm5, %%tmm4, %%tmm2\n\ttdpbssd %%tmm5, %%tmm4, %%tmm3\n\t"
                     "dec %0\n\tjnz 1b\n\t"
                     "tilerelease"
                     : "+r"(left)
                     : "m"(config)
                     : "cc");
}

const struct cpu_peak cpu_peak_list[] = {
    {"fma f32 256", "avx2", false, fma256, 2.0 * 8 * CHAINS *LOOPS},
    {"maddubs 256", "avx2", true, maddubs, 2.0 * 32 * CHAINS *LOOPS},
    {"fma f32 512", "avx512", false, fma512, 2.0 * 16 * CHAINS *LOOPS},
    {"vpdpbusd 512", "avx512", true, vnni, 2.0 * 64 * CHAINS *LOOPS},
    {"tdpbssd 16x16x64", "amx", true, tiles, 2.0 * 16 * 16 * 64 * TILE_PRODUCTS *TILE_LOOPS},
    {.name = NULL},
};

#else

const struct cpu_peak cpu_peak_list[] = {{.name = NULL}};

#endif
