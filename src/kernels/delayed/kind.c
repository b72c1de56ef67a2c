/* kernels/delayed/kind.c - the test device in the list of devices; it wraps the CPU. */
#include "graph/device_kind.h"
#include "kernels/cpu/cpu.h"
#include "kernels/delayed/delayed.h"

static enum status check(struct str args, struct err *err) {
    struct delayed_options ignored;
    return delayed_parse(args, &ignored, err);
}

static enum status open_delayed(const struct device_options *o, struct str args, struct device *out,
                                struct err *err) {
    struct delayed_options options;
    struct device inner;
    TRY(delayed_parse(args, &options, err));
    TRY(cpu_device_open(o->isa ? o->isa : "auto", o->threads, &inner, err));
    return delayed_open(&inner, &options, out, err);
}

extern const struct device_kind device_kind_delayed;
const struct device_kind device_kind_delayed = {
    .name = "delayed", .is_for_tests = true, .check = check, .open = open_delayed};
