/* kernels/cpu/peaks.h - what the processor gives at most: the ceilings of all other figures.
 *
 * Memory: each thread walks through a share of a buffer that is many times the last cache, with
 * plain loads. Arithmetic: loops of independent instructions on registers alone; a multiply-add
 * counts as two operations. All of the device's threads work at once, and a rate is that of the
 * best half millisecond, because whatever else runs on the machine can only lower it.
 *
 * Streams whose distance is a power of two fall into the same banks of memory and are read at half
 * the speed (Zen 4: 37 GB/s of 73), and prefetch instructions cost a fifth; so there are neither.
 *
 * Thread: the device's caller.
 */
#ifndef KERNELS_CPU_PEAKS_H
#define KERNELS_CPU_PEAKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct device;
struct peaks;

/* Loops of one instruction, by the instruction set that has it. */
struct cpu_peak {
    const char *name; /* "vpdpbusd 512"; NULL ends the list */
    const char *isa;  /* the table that uses it */
    bool is_int8;     /* else float32 */
    void (*loop)(void);
    double ops; /* of one loop */
};
extern const struct cpu_peak cpu_peak_list[];

/* Of the instruction set that the CPU device `dev` uses; of the best there is if that is plain C.
 * ST_NOMEM: no room for the buffer. */
enum status cpu_peaks_measure(const struct device *dev, struct peaks *out, struct err *err);

/* One of the list, in Gop/s; 0 if this processor cannot run it. */
double cpu_peak_measure(const struct device *dev, const struct cpu_peak *peak);

/* Reading, in GB/s; 0 if there is no room for the buffer. */
double cpu_peak_read(const struct device *dev);
double cpu_peak_cache(const struct device *dev);

#endif
