/* bench/peaks.c - what the processor gives at most: the ceilings of the other figures.
 *
 * Usage: peaks [threads]
 *
 * Memory: all threads read 2 GiB, more than any cache holds, as several streams each. Arithmetic:
 * loops of independent instructions on registers alone, all threads at once, the best of several
 * rounds. One multiply-add counts as two operations. Instructions that the processor lacks are
 * passed over.
 */
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/pool.h"
#include "kernels/cpu/cpu_int.h"

enum { ROUNDS = 7, STREAMS = 4, LINE = 64, AHEAD = 4096, LOOPS = 1 << 19, CHAINS = 12 };
static const size_t READ_BYTES = (size_t)2 << 30;

struct peak {
    const char *name;
    const char *isa; /* the table that has it */
    void (*loop)(void);
    double ops; /* of one loop, on one thread */
};

#if defined(__x86_64__)

/* Every instruction reads two registers and adds to one of CHAINS; asm, so that nothing is moved
 * or left out. */
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

enum { TILE_LOOPS = LOOPS / 8, TILE_PRODUCTS = 4 };

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

static const struct peak peaks[] = {
    {"fma f32 256", "avx2", fma256, 2.0 * 8 * CHAINS *LOOPS},
    {"maddubs 256", "avx2", maddubs, 2.0 * 32 * CHAINS *LOOPS},
    {"fma f32 512", "avx512", fma512, 2.0 * 16 * CHAINS *LOOPS},
    {"vpdpbusd 512", "avx512", vnni, 2.0 * 64 * CHAINS *LOOPS},
    {"tdpbssd 16x16x64", "amx", tiles, 2.0 * 16 * 16 * 64 * TILE_PRODUCTS *TILE_LOOPS},
};

#else

static const struct peak peaks[] = {{"none", "none", NULL, 0}};

#endif

static void run_loop(void *ctx, uint32_t ith, uint32_t nth) {
    (void)ith;
    (void)nth;
    const struct peak *p = ctx;
    p->loop();
}

struct reading {
    const uint8_t *bytes;
    uint64_t sums[POOL_THREADS_MAX];
};

static void read_share(void *ctx, uint32_t ith, uint32_t nth) {
    struct reading *r = ctx;
    size_t stream = READ_BYTES / nth / STREAMS / LINE * LINE;
    const uint8_t *from = r->bytes + READ_BYTES / nth / LINE * LINE * ith;
    uint64_t sum = 0;
    for (size_t i = 0; i < stream; i += LINE)
        for (size_t s = 0; s < STREAMS; s++) {
            uint64_t words[LINE / 8];
            __builtin_prefetch(from + s * stream + i + AHEAD);
            memcpy(words, from + s * stream + i, LINE);
            for (int w = 0; w < LINE / 8; w++) sum += words[w];
        }
    r->sums[ith] = sum;
}

/* The least time of ROUNDS runs. */
static double best_us(struct pool *pool, pool_fn *fn, void *ctx) {
    double best = 1e18;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t start = clock_now(&clock_real);
        pool_run(pool, fn, ctx);
        double us = (double)(clock_now(&clock_real) - start);
        if (us < best) best = us;
    }
    return best;
}

static void measure_reading(struct pool *pool) {
    static struct reading r;
    void *bytes =
        mmap(NULL, READ_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) return;
    madvise(bytes, READ_BYTES, MADV_HUGEPAGE);
    memset(bytes, 1, READ_BYTES);
    r.bytes = bytes;
    printf("%-18s %10.1f GB/s\n", "memory, read",
           (double)READ_BYTES / best_us(pool, read_share, &r) / 1e3);
    munmap(bytes, READ_BYTES);
}

int main(int argc, char **argv) {
    struct pool *pool;
    struct err err = {{0}};
    uint32_t threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : pool_default_threads();
    if (threads < 1 || threads > POOL_THREADS_MAX) return EXIT_FAILURE;
    if (pool_create(&pool, threads, &err) != ST_OK) return EXIT_FAILURE;
    printf("%u threads\n", threads);
    measure_reading(pool);
    for (size_t i = 0; i < sizeof(peaks) / sizeof(peaks[0]); i++) {
        struct peak p = peaks[i];
        const struct cpu_table *table = cpu_table_find(p.isa);
        if (!table || !cpu_table_runs_here(table)) continue;
        printf("%-18s %10.1f Gop/s\n", p.name, p.ops * threads / best_us(pool, run_loop, &p) / 1e3);
    }
    pool_destroy(pool);
    return 0;
}
