/* kernels/cpu/program.h - a tape on the CPU: its stages, its scratch memory, and its steps.
 *
 * A submit runs the step to its end: KV moves, then the walk along the tape by all threads of the
 * pool, then sampling, shared out over the same threads. So a step has run when submit returns, and
 * collect only returns its result.
 *
 * Lifetime: create, submit and collect in turn, destroy. Thread: the device's caller.
 */
#ifndef KERNELS_CPU_PROGRAM_H
#define KERNELS_CPU_PROGRAM_H

#include "graph/device.h"

struct cpu_table;
struct op_timer;
struct affinity;
struct cpu_tap;
struct pool;

/* What a program uses of its device. */
struct cpu_program_parts {
    const struct cpu_table *table;
    struct pool *pool;
    struct affinity *affinity; /* NULL: threads are not bound */
    const char *device_name;
    struct op_timer *const *timer; /* the device's; NULL there while no one measures */
    const struct cpu_tap *tap;     /* the device's */
};

enum status cpu_program_create(const struct cpu_program_parts *parts,
                               const struct program_options *options, struct device_program **out,
                               struct err *err);
void cpu_program_destroy(struct device_program *p); /* NULL is fine */

/* Entries of struct device; `self` and `err` are not used. */
enum status cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                               struct err *err);
enum status cpu_program_collect(void *self, struct device_program *p, struct device_result *out,
                                struct err *err);

#endif
