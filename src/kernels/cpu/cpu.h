/* kernels/cpu/cpu.h - the CPU as a device.
 *
 * Tables of the same ops, giving the same bits: "ref" (plain C straight from the definitions
 * in graph/op.h and tensor/q8.h, on weights as the file lays them), "portable" (plain C on packed
 * weights), "avx2" (AVX2 + FMA + F16C), "avx512" (AVX-512 with VNNI) and "amx" (that, with
 * products of many rows in AMX tiles); on 64-bit Arm "neon" and "dotprod" (that, with dot products
 * of bytes). "auto" takes the fastest that the processor has. "amxsim" is "amx" with the tile
 * instructions in plain C, for tests. All threads set flush-to-zero while
 * they compute.
 */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include <stdint.h>

#include "base/status.h"
#include "graph/device.h"

/* `isa`: "auto" or the name of a table. ST_BAD for another name or one that this processor cannot
 * run. The device is given to the caller, who calls
 * out->close(out->self). */
enum status cpu_device_open(const char *isa, uint32_t threads, struct device *out, struct err *err);

#endif
