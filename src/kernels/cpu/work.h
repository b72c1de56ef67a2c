/* kernels/cpu/work.h - what an op has to move and compute on the CPU (graph/work.h). */
#ifndef KERNELS_CPU_WORK_H
#define KERNELS_CPU_WORK_H

#include "graph/device.h"

struct op;

/* Of one op of the tape that `run` ran. */
struct work cpu_op_work(const struct device_run *run, const struct op *op);

#endif
