/* kernels/cpu/tap.h - shows the inputs of products to a callback (struct device_profiler, tap).
 *
 * Thread: the thread that runs share 0 of an op. All rows of the input are there then: a product
 * reads rows that other threads have made, so a barrier is before it.
 */
#ifndef KERNELS_CPU_TAP_H
#define KERNELS_CPU_TAP_H

#include <stdint.h>

#include "graph/device.h"

struct cpu_run;
struct op;

struct cpu_tap {
    device_tap_fn *fn; /* NULL: off */
    void *ctx;
};

/* The inputs of `op`, if it is a product. */
void cpu_tap_op(const struct cpu_run *x, const struct op *op);

#endif
