/* kernels/cpu/kind.c - the CPU in the list of devices. */
#include <string.h>

#include "graph/device_kind.h"
#include "kernels/cpu/cpu.h"

static bool is_likely(void) { return true; }

static enum status check(struct str args, struct err *err) {
    if (args.len == 0) return ST_OK;
    return err_set(err, ST_BAD, "device cpu takes no options, found \":%.*s\"; write --device cpu",
                   STR_ARG(args));
}

static enum cpu_placement placement_of(const char *word) {
    if (!word || strcmp(word, "auto") == 0) return CPU_PLACE_AUTO;
    return strcmp(word, "on") == 0 ? CPU_PLACE_ON : CPU_PLACE_OFF;
}

static enum status open_cpu(const struct device_options *o, struct str args, struct device *out,
                            struct err *err) {
    (void)args;
    const char *isa = o->isa ? o->isa : "auto";
    if (o->beside && cpu_device_is(o->beside))
        TRY(cpu_device_open_beside(isa, o->beside, out, err));
    else
        TRY(cpu_device_open(isa, o->threads, out, err));
    cpu_device_place(out, placement_of(o->placement));
    return ST_OK;
}

extern const struct device_kind device_kind_cpu;
const struct device_kind device_kind_cpu = {
    .name = "cpu", .is_likely = is_likely, .check = check, .open = open_cpu};
