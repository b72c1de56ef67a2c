/* graph/device_kind.h - a kind of device, as the list of devices knows it.
 *
 * A folder of kernels/ defines one `const struct device_kind device_kind_NAME` and has a line in
 * kernels/devices.def; kernels/devices.h opens devices by their names.
 */
#ifndef GRAPH_DEVICE_KIND_H
#define GRAPH_DEVICE_KIND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct device;

struct device_options {
    const char *name;      /* NULL: "auto" */
    uint32_t threads;      /* of the host that may compute; at least 1 */
    const char *isa;       /* of a device that computes on the host; NULL: "auto" */
    const char *placement; /* are threads bound to processors: "auto", "off", "on"; NULL: "auto" */
    bool fp8_weights;      /* weights of 16 bits become e4m3 */
    const char *keep_dir;  /* where a device may keep what it has measured; NULL: nowhere */
    bool keeps_new;        /* it may write there, too */
    const struct device *beside; /* a device that never runs at the same time: if both compute on
                                    the host, they share its threads. It is closed last. NULL:
                                    none */
};

/* `args`: what follows the colon in the device's name; empty if there is none. */
struct device_kind {
    const char *name;
    bool is_for_tests; /* not offered to users */
    bool takes_fp8;    /* knows device_options.fp8_weights */

    /* Optional: may this machine have such a device? "auto" opens the first one that answers true
     * and can be opened; one without this entry is never taken unless it is asked for. */
    bool (*is_likely)(void);

    /* ST_BAD says what is wrong with `args`. Nothing is opened. */
    enum status (*check)(struct str args, struct err *err);

    /* ST_BAD as check; ST_MISSING: this machine does not have the device. */
    enum status (*open)(const struct device_options *options, struct str args, struct device *out,
                        struct err *err);
};

#endif
