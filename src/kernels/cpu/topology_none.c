/* kernels/cpu/topology_none.c - placing without hwloc: nothing is known of the machine. */
#include "kernels/cpu/affinity.h"
#include "kernels/cpu/topology.h"

bool cpu_machine_read(const struct cpu_machine_source *source, struct cpu_machine *out) {
    (void)source;
    out->cpu_count = 0;
    return false;
}

struct topology *topology_open(void) {
    return NULL;
}

void topology_close(struct topology *t) { (void)t; }

void topology_move(struct topology *t, void *ptr, size_t bytes, uint32_t node) {
    (void)t;
    (void)ptr;
    (void)bytes;
    (void)node;
}

void topology_spread(struct topology *t, void *ptr, size_t bytes) {
    (void)t;
    (void)ptr;
    (void)bytes;
}
