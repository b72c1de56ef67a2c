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
#include "graph/device.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/peaks.h"

int main(int argc, char **argv) {
    struct device dev;
    struct err err = {{0}};
    uint32_t threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : pool_default_threads();
    if (threads < 1 || threads > POOL_THREADS_MAX) return EXIT_FAILURE;
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
