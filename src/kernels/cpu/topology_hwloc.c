/* kernels/cpu/topology_hwloc.c - the machine as hwloc knows it. */
#include <hwloc.h>
#include <stdlib.h>

#include "base/mem.h"
#include "kernels/cpu/affinity.h"
#include "kernels/cpu/topology.h"

struct topology {
    hwloc_topology_t hw;
};

/* Keep to what the process may use: its affinity mask, which hwloc's own idea of the allowed
 * processors (cpusets) does not contain. */
static bool restrict_to(hwloc_topology_t hw, const char *allowed) {
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    bool fine = set != NULL;
    if (fine && allowed) fine = hwloc_bitmap_list_sscanf(set, allowed) == 0;
    if (fine && !allowed) fine = hwloc_get_cpubind(hw, set, HWLOC_CPUBIND_PROCESS) == 0;
    if (fine) fine = hwloc_topology_restrict(hw, set, 0) == 0;
    hwloc_bitmap_free(set);
    return fine;
}

/* Of all that hwloc can find out only processors, cores and nodes matter, and the system's own
 * tables tell those: asking each processor in turn, or looking for devices, takes 30 ms of a start
 * that takes 150. */
static void look_at_little(hwloc_topology_t hw) {
    (void)hwloc_topology_set_components(hw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    (void)hwloc_topology_set_io_types_filter(hw, HWLOC_TYPE_FILTER_KEEP_NONE);
    (void)hwloc_topology_set_cache_types_filter(hw, HWLOC_TYPE_FILTER_KEEP_NONE);
}

static hwloc_topology_t load(const struct cpu_machine_source *source) {
    hwloc_topology_t hw;
    if (hwloc_topology_init(&hw) != 0) return NULL;
    look_at_little(hw);
    bool fine = !source->synthetic || hwloc_topology_set_synthetic(hw, source->synthetic) == 0;
    if (fine) fine = hwloc_topology_load(hw) == 0;
    if (fine && (!source->synthetic || source->allowed)) fine = restrict_to(hw, source->allowed);
    if (fine) return hw;
    hwloc_topology_destroy(hw);
    return NULL;
}

static struct cpu_processor describe(hwloc_topology_t hw, hwloc_obj_t pu) {
    hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(hw, HWLOC_OBJ_CORE, pu);
    int node = pu->nodeset ? hwloc_bitmap_first(pu->nodeset) : 0;
    return (struct cpu_processor){
        .cpu = pu->os_index,
        .core = core ? core->logical_index : pu->logical_index,
        .node = node > 0 ? (uint32_t)node : 0,
    };
}

static int by_node(const void *a, const void *b) {
    const struct cpu_processor *x = a, *y = b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    if (x->core != y->core) return x->core < y->core ? -1 : 1;
    return x->cpu < y->cpu ? -1 : x->cpu > y->cpu;
}

bool cpu_machine_read(const struct cpu_machine_source *source, struct cpu_machine *out) {
    out->cpu_count = 0;
    hwloc_topology_t hw = load(source);
    if (!hw) return false;
    int count = hwloc_get_nbobjs_by_type(hw, HWLOC_OBJ_PU);
    for (int i = 0; i < count && i < MACHINE_CPUS_MAX; i++) {
        hwloc_obj_t pu = hwloc_get_obj_by_type(hw, HWLOC_OBJ_PU, (unsigned)i);
        out->cpus[out->cpu_count++] = describe(hw, pu);
    }
    hwloc_topology_destroy(hw);
    qsort(out->cpus, out->cpu_count, sizeof(out->cpus[0]), by_node);
    return count > 0 && count <= MACHINE_CPUS_MAX;
}

struct topology *topology_open(void) {
    struct topology *t = mem_zalloc(sizeof(*t));
    if (!t) return NULL;
    t->hw = load(&(struct cpu_machine_source){.synthetic = NULL});
    if (t->hw) return t;
    mem_free(t);
    return NULL;
}

void topology_close(struct topology *t) {
    if (!t) return;
    hwloc_topology_destroy(t->hw);
    mem_free(t);
}

void topology_move(struct topology *t, void *ptr, size_t bytes, uint32_t node) {
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set && hwloc_bitmap_only(set, node) == 0)
        (void)hwloc_set_area_membind(t->hw, ptr, bytes, set, HWLOC_MEMBIND_BIND,
                                     HWLOC_MEMBIND_BYNODESET | HWLOC_MEMBIND_MIGRATE);
    hwloc_bitmap_free(set);
}

void topology_spread(struct topology *t, void *ptr, size_t bytes) {
    hwloc_const_nodeset_t all = hwloc_topology_get_topology_nodeset(t->hw);
    (void)hwloc_set_area_membind(t->hw, ptr, bytes, all, HWLOC_MEMBIND_INTERLEAVE,
                                 HWLOC_MEMBIND_BYNODESET);
}
