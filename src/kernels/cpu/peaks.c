/* kernels/cpu/peaks.c - see kernels/cpu/peaks.h for the contract. */
#include "kernels/cpu/peaks.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "graph/device.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_int.h"

enum {
    WINDOW_NS = 500000,
    LOOP_PIECES = 1200,
    CACHE_PIECES = 1200,
    READ_ROUNDS = 8, /* through the whole buffer */
    LINE_BYTES = 64,
    STREAMS_MAX = 4,
    STREAM_BYTES = (256 << 10) + (4 << 10), /* no power of two apart */
    PIECE_BYTES = STREAMS_MAX * STREAM_BYTES,
    CACHE_BYTES = 128 << 10, /* in the second cache of anything made since 2013 */
    CACHE_PASSES = 8,
    CACHES_IN_BUFFER = 8,
};
static const size_t BUFFER_BYTES_MIN = (size_t)256 << 20, BUFFER_BYTES_MAX = (size_t)2 << 30;

/* Equal pieces of work, the same number on every thread, and when each was begun. */
struct pacing {
    void (*work)(struct pacing *p, uint32_t thread, uint32_t piece);
    double amount; /* of one piece: bytes or operations */
    uint32_t pieces, threads;
    int64_t *marks; /* [threads][pieces + 1] ns */

    const struct cpu_peak *peak;     /* for loops */
    const uint8_t *bytes;            /* for reading */
    size_t apart;                    /* from one thread's bytes to the next one's */
    uint64_t sums[POOL_THREADS_MAX]; /* so that nothing is left out */
};

static void pace_share(void *ctx, uint32_t ith, uint32_t nth) {
    struct pacing *p = ctx;
    CHECK(nth == p->threads);
    int64_t *mark = p->marks + (size_t)ith * (p->pieces + 1);
    for (uint32_t i = 0; i < p->pieces; i++) {
        mark[i] = clock_fine_ns();
        p->work(p, ith, i);
    }
    mark[p->pieces] = clock_fine_ns();
}

/* Pieces that a thread had done at a time, the one under way in part. */
static double done_at(const struct pacing *p, uint32_t thread, int64_t ns) {
    const int64_t *mark = p->marks + (size_t)thread * (p->pieces + 1);
    if (ns <= mark[0]) return 0;
    if (ns >= mark[p->pieces]) return p->pieces;
    uint32_t low = 0, high = p->pieces; /* mark[low] <= ns < mark[high] */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (mark[middle] <= ns)
            low = middle;
        else
            high = middle;
    }
    return low + (double)(ns - mark[low]) / (double)(mark[high] - mark[low]);
}

/* What all threads did in the best window, in units of 10^9 a second. On a machine that does other
 * things too the threads rarely run at the same time from beginning to end, but now and then
 * for half a millisecond. */
static double best_window(const struct pacing *p) {
    double best = 0;
    for (uint32_t t = 0; t < p->threads; t++)
        for (uint32_t i = 0; i < p->pieces; i++) {
            int64_t from = p->marks[(size_t)t * (p->pieces + 1) + i];
            double done = 0;
            for (uint32_t u = 0; u < p->threads; u++)
                done += done_at(p, u, from + WINDOW_NS) - done_at(p, u, from);
            if (done > best) best = done;
        }
    return best * p->amount / WINDOW_NS;
}

/* The best window's rate; 0 if there is no room for the marks. */
static double pace(const struct device *dev, struct pacing *p) {
    p->threads = pool_threads(cpu_device_pool(dev));
    p->marks = mem_alloc_array((size_t)p->threads * (p->pieces + 1), sizeof(*p->marks));
    if (!p->marks) return 0;
    pool_run(cpu_device_pool(dev), pace_share, p);
    double rate = best_window(p);
    mem_free(p->marks);
    return rate;
}

/* The vector that every processor has. */
typedef uint64_t pair __attribute__((vector_size(16)));

/* Two lines of memory, in eight sums that do not wait for each other. */
static uint64_t read_streams(const uint8_t *from, uint32_t streams, size_t stream_bytes) {
    pair a = {0}, b = {0}, c = {0}, d = {0}, e = {0}, f = {0}, g = {0}, h = {0};
    for (size_t i = 0; i < stream_bytes; i += (size_t)2 * LINE_BYTES)
        for (uint32_t s = 0; s < streams; s++) {
            const pair *x = (const void *)(from + s * stream_bytes + i);
            a += x[0], b += x[1], c += x[2], d += x[3];
            e += x[4], f += x[5], g += x[6], h += x[7];
        }
    pair sum = a + b + c + d + e + f + g + h;
    return sum[0] + sum[1];
}

static void read_memory(struct pacing *p, uint32_t thread, uint32_t piece) {
    const uint8_t *from = p->bytes + thread * p->apart + (size_t)piece * PIECE_BYTES;
    uint32_t streams = piece / 32 % 2 ? STREAMS_MAX : 1;
    p->sums[thread] += read_streams(from, streams, PIECE_BYTES / streams);
}

static void read_cache(struct pacing *p, uint32_t thread, uint32_t piece) {
    (void)piece;
    for (int i = 0; i < CACHE_PASSES; i++)
        p->sums[thread] += read_streams(p->bytes + thread * p->apart, 1, CACHE_BYTES);
}

static void run_loop(struct pacing *p, uint32_t thread, uint32_t piece) {
    (void)thread;
    (void)piece;
    p->peak->loop();
}

/* Many times the last cache in all, in whole pieces. */
static size_t thread_bytes(uint32_t threads) {
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t bytes = cache > 0 ? (size_t)cache * CACHES_IN_BUFFER : BUFFER_BYTES_MIN;
    if (bytes < BUFFER_BYTES_MIN) bytes = BUFFER_BYTES_MIN;
    if (bytes > BUFFER_BYTES_MAX) bytes = BUFFER_BYTES_MAX;
    return (bytes / threads / PIECE_BYTES + 1) * PIECE_BYTES;
}

/* `share` bytes for each thread, read in pieces as `p` says, `rounds` times. */
static double pace_reading(const struct device *dev, struct pacing *p, size_t share, int rounds) {
    size_t bytes = share * pool_threads(cpu_device_pool(dev));
    uint8_t *buffer = (uint8_t *)(uintptr_t)dev->alloc(dev->self, bytes);
    double best = 0;
    if (!buffer) return 0;
    memset(buffer, 1, bytes); /* untouched pages would all be the same page of zeros */
    p->bytes = buffer;
    p->apart = share;
    for (int i = 0; i < rounds; i++) {
        double rate = pace(dev, p);
        if (rate > best) best = rate;
    }
    dev->free(dev->self, (device_addr)(uintptr_t)buffer, bytes);
    return best;
}

double cpu_peak_read(const struct device *dev) {
    size_t share = thread_bytes(pool_threads(cpu_device_pool(dev)));
    struct pacing p = {
        .work = read_memory, .amount = PIECE_BYTES, .pieces = (uint32_t)(share / PIECE_BYTES)};
    return pace_reading(dev, &p, share, READ_ROUNDS);
}

double cpu_peak_cache(const struct device *dev) {
    struct pacing p = {
        .work = read_cache, .amount = (double)CACHE_BYTES * CACHE_PASSES, .pieces = CACHE_PIECES};
    return pace_reading(dev, &p, CACHE_BYTES, 1);
}

double cpu_peak_measure(const struct device *dev, const struct cpu_peak *peak) {
    const struct cpu_table *table = cpu_table_find(peak->isa);
    if (!table || !cpu_table_runs_here(table)) return 0;
    struct pacing p = {.work = run_loop, .amount = peak->ops, .pieces = LOOP_PIECES, .peak = peak};
    return pace(dev, &p);
}

static bool has_peak(const char *isa, bool is_int8) {
    for (const struct cpu_peak *p = cpu_peak_list; p->name; p++)
        if (p->is_int8 == is_int8 && strcmp(p->isa, isa) == 0) return true;
    return false;
}

/* The instructions that the table `isa` uses, or all if it has none of its own. Tables build on
 * each other: "amx" has no float instruction of its own and uses that of "avx512". */
static void measure_kind(const struct device *dev, const char *isa, bool is_int8,
                         struct peaks *out) {
    double *rate = is_int8 ? &out->int8_gops : &out->f32_gops;
    const char **name = is_int8 ? &out->int8_name : &out->f32_name;
    bool only = has_peak(isa, is_int8);
    for (const struct cpu_peak *p = cpu_peak_list; p->name; p++) {
        if (p->is_int8 != is_int8 || (only && strcmp(p->isa, isa) != 0)) continue;
        double gops = cpu_peak_measure(dev, p);
        if (gops <= *rate) continue;
        *rate = gops;
        *name = p->name;
    }
}

enum status cpu_peaks_measure(const struct device *dev, struct peaks *out, struct err *err) {
    static const char prefix[] = "cpu-";
    CHECK(strncmp(dev->name, prefix, sizeof(prefix) - 1) == 0);
    const char *isa = dev->name + sizeof(prefix) - 1;
    *out = (struct peaks){.int8_name = "", .f32_name = ""};
    out->read_gbs = cpu_peak_read(dev);
    out->cache_gbs = cpu_peak_cache(dev);
    if (out->read_gbs <= 0 || out->cache_gbs <= 0)
        return err_set(err, ST_NOMEM, "no memory for measuring how fast memory is");
    measure_kind(dev, isa, true, out);
    measure_kind(dev, isa, false, out);
    return ST_OK;
}
