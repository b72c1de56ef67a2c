/* kernels/devices.h - the devices there are, and one of them opened by its name.
 *
 * A name is "auto" or a device name, optionally followed by a colon and the device's options:
 * "cpu", "cuda:0", "delayed:depth=1". "auto" takes the best device that this machine has.
 *
 * To add a device: a folder in kernels/ and a line in devices.def.
 */
#ifndef KERNELS_DEVICES_H
#define KERNELS_DEVICES_H

#include "base/status.h"
#include "graph/device.h"
#include "graph/device_kind.h"

/* ST_BAD: unknown device name; the message lists the known ones. ST_MISSING: this machine does not
 * have the device. The device is given to the caller, who calls out->close(out->self). */
enum status device_open(const struct device_options *options, struct device *out, struct err *err);

/* Whether device_open would know the name, or the instruction set; nothing is opened. */
enum status device_check_name(const char *name, struct err *err);
enum status device_check_isa(const char *isa, struct err *err);

#endif
