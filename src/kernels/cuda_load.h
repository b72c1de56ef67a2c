/* kernels/cuda_load.h - an NVIDIA GPU as a device, from a library that is opened when it
 * is asked for.
 *
 * So one program runs with and without a GPU. libjitney-cuda.so is looked for at
 * JITNEY_CUDA_LIBRARY, beside the program, and in ../lib of it. It stays open until the process
 * ends.
 *
 * Thread: any; one open at a time.
 */
#ifndef KERNELS_CUDA_LOAD_H
#define KERNELS_CUDA_LOAD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "base/str.h"
#include "graph/device.h"
#include "kernels/cuda/library.h"

/* "0" or "" is the first card; "1,cublaslt=off,graphs=off" the second, with two things turned off
 * (kernels/cuda/library.h). ST_BAD says what is wrong. */
struct cuda_choice {
    int card;
    const char *keep_dir; /* these three as in struct device_options */
    bool keeps_new, fp8_weights;
    struct cuda_switches switches;
};
enum status cuda_parse(struct str args, struct cuda_choice *out, struct err *err);

/* The driver's library is installed. Costs microseconds where it is not. */
bool cuda_is_likely(void);

/* ST_MISSING: there is no library, driver or card; ST_BAD: one does not fit. The device is given to
 * the caller, who calls out->close(out->self). */
enum status cuda_device_open(const struct cuda_choice *choice, struct device *out, struct err *err);

/* For tests: scratch memory of a program of such a device, to (or from) `host`. */
enum status cuda_program_copy(struct device_program *p, size_t offset, size_t bytes, void *host,
                              bool is_write);
/* For tests: what kernels/cuda/library.h says of it. */
struct cuda_library_resident cuda_program_resident(const struct device_program *p);

#endif
