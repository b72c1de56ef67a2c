/* kernels/cpu/place.h - which processor computes which share, and where its memory lies.
 *
 * Thread i of a team reads the i-th share of every large weight, step after step. On a machine
 * with several memory nodes that is only fast if the share lies on the thread's own node and the
 * thread stays there; where two processors are threads of one core, two shares should not land on
 * one core while another is idle. On any other machine, and where a thread may be wanted elsewhere
 * tomorrow, binding only takes choices from the system's scheduler, so nothing is bound.
 *
 *     place_read (what machine is this?) -> place_threads (pure: who goes where?) -> struct place
 *
 * The machine is read through hwloc. Without that library it is one that nothing is known of, and
 * nothing is ever bound.
 *
 * Lifetime: create, bind and move memory, destroy. Thread: one at a time, that of the device.
 */
#ifndef KERNELS_CPU_PLACE_H
#define KERNELS_CPU_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/cpu.h"

struct pool;
struct tape;

enum { PLACE_CPUS_MAX = 1024 };

/* A processor that the process may use. Equal `core`: threads of one core. */
struct place_cpu {
    uint32_t cpu, core, node;
};

struct place_machine {
    uint32_t cpu_count;
    struct place_cpu cpus[PLACE_CPUS_MAX]; /* by node, then core, then cpu */
};

/* This machine within the process's affinity mask and cpuset, or one that tests make up. */
struct place_source {
    const char *synthetic; /* as hwloc writes one, "numa:2 core:4 pu:2"; NULL: this machine */
    const char *allowed;   /* of a synthetic one, "0-3,8"; NULL: all */
};

/* False: nothing is known, which leaves an empty machine. */
bool place_read(const struct place_source *source, struct place_machine *out);

/* A processor for each of `threads`; false: nothing is to be bound. Nodes get shares in turn, a
 * core's second thread is used when every core has one, and threads with neighbouring numbers, so
 * neighbouring shares, are on one node as far as that goes. Automatic binding asks for a reason
 * (several nodes, or cores with two threads) and for a team that fills the cores, but for one that
 * is left to others (pool_threads_for), since only then nothing better can be done by moving
 * threads. A team larger than the machine is never bound. */
bool place_threads(const struct place_machine *m, enum cpu_placement mode, uint32_t threads,
                   uint32_t *cpus);

struct place; /* opaque */

/* NULL: nothing is bound, for any reason; all below take that. Where binding was asked for, with
 * CPU_PLACE_ON, `why` says it. */
struct place *place_create(enum cpu_placement mode, uint32_t threads, struct err *why);
void place_destroy(struct place *p); /* gives its caller's thread back its old mask */

const char *
place_text(const struct place *p); /* "0-3,8-11": threads' processors in order; or NULL */

/* Bind all threads of the team but the first, which is whoever calls. */
void place_bind_workers(struct place *p, struct pool *pool);
/* Bind the calling thread as the first; nothing if it already is. */
void place_bind_caller(struct place *p);

/* Pages of memory that all threads read go to all nodes in turn. */
void place_spread(const struct place *p, void *ptr, size_t bytes);
/* Move panels of the tape's weights to the nodes of the threads that read them. */
void place_weights(const struct place *p, const struct tape *t);

#endif
