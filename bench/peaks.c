/* bench/peaks.c - what the processor gives at most: the ceilings of the other figures.
 *
 * Usage: peaks [threads]
 *
 * Prints how fast all threads together read memory and their own caches, and the rate of every
 * instruction that the kernels are made of, as kernels/cpu/peaks.h measures them. Instructions
 * that the processor lacks are passed over.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/pool.h"
#include "base/str.h"
#include "graph/device.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/peaks.h"

enum { EXIT_USAGE = 2 };

int main(int argc, char **argv) {
    struct device dev;
    struct err err = {{0}};
    uint64_t count = pool_processors();
    bool is_number = argc < 2 || str_to_u64(str_of(argv[1]), &count);
    if (argc > 2 || !is_number || count < 1 || count > POOL_THREADS_MAX) {
        fprintf(stderr, "usage: peaks [threads], 1 to %d of them\n", POOL_THREADS_MAX);
        return EXIT_USAGE;
    }
    uint32_t threads = (uint32_t)count;
    if (cpu_device_open("auto", threads, &dev, &err) != ST_OK) {
        fprintf(stderr, "peaks: %s\n", err.text);
        return EXIT_FAILURE;
    }
    printf("%u threads\n", threads);
    printf("%-18s %10.1f GB/s\n", "memory, read", cpu_peak_read(&dev));
    printf("%-18s %10.1f GB/s\n", "own cache, read", cpu_peak_cache(&dev));
    for (const struct cpu_peak *p = cpu_peak_list; p->name; p++) {
        double gops = cpu_peak_measure(&dev, p);
        if (gops > 0) printf("%-18s %10.1f Gop/s\n", p->name, gops);
    }
    dev.close(dev.self);
    return 0;
}
