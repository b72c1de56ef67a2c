/* unit/kernels/cpu/programs.h - what the programs of CPU devices were made of, for a test that
 * stands between the engine and the device.
 *
 * Included by one file of a program, which says "wrap: cpu_program_create". Several engines may
 * be open at a time, each with programs of its own.
 *
 * Thread: programs are made and looked up on one.
 */
#ifndef TESTS_PROGRAMS_H
#define TESTS_PROGRAMS_H

#include <string.h>

#include "base/check.h"
#include "kernels/cpu/program.h"

enum { PROGRAMS_MAX = 256 };

struct known_program {
    const struct device_program *program; /* NULL: free */
    const struct tape *tape;
    struct kv_space kv[KV_GROUPS_MAX];
};

static struct known_program known_programs[PROGRAMS_MAX];

/* Its entry; an address that is used again has the entry that it had. */
static inline struct known_program *program_find(const struct device_program *p) {
    uint32_t i = 0;
    while (known_programs[i].program && known_programs[i].program != p) {
        i++;
        CHECK(i < PROGRAMS_MAX);
    }
    return &known_programs[i];
}

enum status __real_cpu_program_create(const struct cpu_program_parts *parts,
                                      const struct program_options *options,
                                      struct device_program **out, struct err *err);
enum status __wrap_cpu_program_create(const struct cpu_program_parts *parts,
                                      const struct program_options *options,
                                      struct device_program **out, struct err *err);

enum status __wrap_cpu_program_create(const struct cpu_program_parts *parts,
                                      const struct program_options *options,
                                      struct device_program **out, struct err *err) {
    TRY(__real_cpu_program_create(parts, options, out, err));
    struct known_program *known = program_find(*out);
    *known = (struct known_program){.program = *out, .tape = options->tape};
    if (options->kv) memcpy(known->kv, options->kv, options->kv_group_count * sizeof(known->kv[0]));
    return ST_OK;
}

#endif
