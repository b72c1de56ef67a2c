/* kernels/cpu/affinity.h - which processor computes which share, and on which NUMA node its memory
 * lies.
 *
 * Thread i of a pool reads the i-th share of every large weight, step after step. On a machine with
 * several NUMA nodes that is only fast if the share lies on the thread's own node and the thread
 * stays there; where two processors are hardware threads of one core, two shares should not run on
 * one core while another is idle. On any other machine binding only restricts the system's
 * scheduler, so no thread is bound.
 *
 *     cpu_machine_read (processors, cores, nodes)
 *     -> affinity_assign (pure: a processor for each thread) -> struct affinity
 *
 * The machine is read through hwloc. Without that library nothing is known about it, and no thread
 * is ever bound.
 *
 * Lifetime: create, bind and move memory, destroy. Thread: one at a time, that of the device.
 */
#ifndef KERNELS_CPU_AFFINITY_H
#define KERNELS_CPU_AFFINITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/cpu.h"

struct pool;
struct tape;

enum { MACHINE_CPUS_MAX = 1024 };

/* A processor that the process may use. Equal `core`: threads of one core. */
struct cpu_processor {
    uint32_t cpu, core, node;
};

struct cpu_machine {
    uint32_t cpu_count;
    struct cpu_processor cpus[MACHINE_CPUS_MAX]; /* by node, then core, then cpu */
};

/* This machine within the process's affinity mask and cpuset, or one that tests make up. */
struct cpu_machine_source {
    const char *synthetic; /* as hwloc writes one, "numa:2 core:4 pu:2"; NULL: this machine */
    const char *allowed;   /* of a synthetic one, "0-3,8"; NULL: all */
};

/* False: nothing is known about the machine; *out is empty. */
bool cpu_machine_read(const struct cpu_machine_source *source, struct cpu_machine *out);

/* A processor for each of `threads`; false: nothing is to be bound. Nodes get shares in turn, a
 * core's second thread is used when every core has one, and threads with neighbouring numbers, so
 * neighbouring shares, are on one node as far as that goes. Automatic binding asks for a reason
 * (several nodes, or cores with two threads) and for a pool that fills the cores, but for one that
 * is left to others (pool_threads_for), since only then nothing better can be done by moving
 * threads. A pool with more threads than processors is never bound. */
bool affinity_assign(const struct cpu_machine *m, enum cpu_placement mode, uint32_t threads,
                     uint32_t *cpus);

struct affinity; /* opaque */

/* NULL: nothing is bound, for any reason; all below take that. Where binding was asked for, with
 * CPU_PLACE_ON, `why` says it. */
struct affinity *affinity_create(enum cpu_placement mode, uint32_t threads, struct err *why);
void affinity_destroy(struct affinity *p); /* gives its caller's thread back its old mask */

const char *
affinity_text(const struct affinity *p); /* "0-3,8-11": threads' processors in order; or NULL */

/* Bind all threads of the pool but the first, which is the caller of pool_run. */
void affinity_bind_workers(struct affinity *p, struct pool *pool);
/* Bind the calling thread as the first; nothing if it already is. */
void affinity_bind_caller(struct affinity *p);

/* Pages of memory that all threads read go to all nodes in turn. */
void affinity_spread(const struct affinity *p, void *ptr, size_t bytes);
/* Move panels of the tape's weights to the nodes of the threads that read them. */
void affinity_move_weights(const struct affinity *p, const struct tape *t);

#endif
