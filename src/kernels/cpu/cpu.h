/* kernels/cpu/cpu.h - the CPU as a device.
 *
 * Tables of the same ops, giving the same bits: "ref" (plain C straight from kernels/cpu/numerics.h
 * and tensor/q8.h, on weights as the file lays them), "portable" (plain C on packed
 * weights), "avx2" (AVX2 + FMA + F16C), "avx512" (AVX-512 with VNNI) and "amx" (that, with
 * products of many rows in AMX tiles); on 64-bit Arm "neon" and "dotprod" (that, with dot products
 * of bytes). "auto" takes the fastest that the processor has. "amxsim" is "amx" with the tile
 * instructions in plain C, for tests. All threads set flush-to-zero while
 * they compute.
 */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/device.h"

struct pool;

/* Whether threads are bound to processors (kernels/cpu/affinity.h). */
enum cpu_placement { CPU_PLACE_AUTO, CPU_PLACE_OFF, CPU_PLACE_ON };

/* `isa`: "auto" or the name of a table. ST_BAD for a name that this build does not have or this
 * processor cannot run, with those that it can. */
enum status cpu_isa_check(const char *isa, struct err *err);

/* ST_BAD as cpu_isa_check. The device is given to the caller, who calls out->close(out->self). */
enum status cpu_device_open(const char *isa, uint32_t threads, struct device *out, struct err *err);

/* The same with the threads of a device that was opened here. The two never run at the same time,
 * and `other` is closed last. */
enum status cpu_device_open_beside(const char *isa, const struct device *other, struct device *out,
                                   struct err *err);
bool cpu_device_is(const struct device *dev); /* it was opened here */

/* Bind the threads of a device that was opened here, before any weight is prepared: sets bound_to,
 * or unbound_text if nothing is bound though CPU_PLACE_ON asked for it. */
void cpu_device_place(struct device *dev, enum cpu_placement mode);

/* The threads of a device that was opened here, for measuring. */
struct pool *cpu_device_pool(const struct device *dev);

/* Scratch memory of a program of such a device, for tests that look at values inside a tape. */
uint8_t *cpu_program_slab(struct device_program *p);

#endif
