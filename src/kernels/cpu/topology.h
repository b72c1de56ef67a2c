/* kernels/cpu/topology.h - what placing needs of the system, by hwloc or not at all.
 *
 * place_hwloc.c or place_none.c is built, depending on whether hwloc is there.
 */
#ifndef KERNELS_CPU_TOPOLOGY_H
#define KERNELS_CPU_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

struct topology; /* opaque */

struct topology *topology_open(void); /* NULL: there is none */
void topology_close(struct topology *t);

/* Both only advise: where the system refuses, memory stays where it is. */
void topology_move(struct topology *t, void *ptr, size_t bytes, uint32_t node);
void topology_spread(struct topology *t, void *ptr, size_t bytes);

#endif
