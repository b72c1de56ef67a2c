/* kernels/cpu/ops_list.c - the tables: which driver runs each op, with which kernels. */
#if defined(__x86_64__)
#define _DEFAULT_SOURCE
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_int.h"

enum { NAMES_BYTES = 128 };

/* The same in every table: the arithmetic is in the kernels, or too small to matter. */
#define ROW_OPS                                                                                    \
    [OP_EMBED] = op_embed_run, [OP_NORM] = op_norm_run, [OP_QUANT] = op_quant_run,                 \
    [OP_ROPE] = op_rope_run, [OP_KV_WRITE] = op_kv_write_run, [OP_ACT] = op_act_run,               \
    [OP_ADD] = op_add_run, [OP_SOFTCAP] = op_softcap_run, [OP_ROUTE] = op_route_run,               \
    [OP_EXPERT_SUM] = op_expert_sum_run, [OP_GATHER] = op_gather_run,                              \
    [OP_PERMUTE] = op_permute_run, [OP_POOL] = op_pool_run, [OP_INPUT] = op_input_run

static const struct cpu_table ref_table = {
    .name = "ref",
    .packs = false,
    .kernels = &cpu_kernels_ref,
    .ops = {ROW_OPS, [OP_MATMUL] = ref_matmul_run, [OP_EXPERT_MATMUL] = ref_expert_matmul_run,
            [OP_ATTENTION] = ref_attention_run, [OP_SELF_ATTENTION] = ref_self_attention_run},
};

#define PACKED_OPS                                                                                 \
    [OP_MATMUL] = op_matmul_run, [OP_EXPERT_MATMUL] = op_expert_matmul_run,                        \
    [OP_ATTENTION] = op_attention_run, [OP_SELF_ATTENTION] = op_self_attention_run

static const struct cpu_table portable_table = {
    .name = "portable",
    .packs = true,
    .kernels = &cpu_kernels_portable,
    .ops = {ROW_OPS, PACKED_OPS},
};

#if defined(__x86_64__)

static const struct cpu_table avx2_table = {
    .name = "avx2",
    .packs = true,
    .kernels = &cpu_kernels_avx2,
    .ops = {ROW_OPS, PACKED_OPS},
};

static const struct cpu_table avx512_table = {
    .name = "avx512",
    .packs = true,
    .kernels = &cpu_kernels_avx512,
    .ops = {ROW_OPS, PACKED_OPS},
};

static const struct cpu_table amx_table = {
    .name = "amx",
    .packs = true,
    .kernels = &cpu_kernels_amx,
    .ops = {ROW_OPS, PACKED_OPS},
};

static const struct cpu_table amxsim_table = {
    .name = "amxsim",
    .packs = true,
    .kernels = &cpu_kernels_amxsim,
    .ops = {ROW_OPS, PACKED_OPS},
};

/* Fastest first; the reference runs everywhere, so "auto" never gets past it. */
static const struct cpu_table *const tables[] = {&amx_table,      &avx512_table, &avx2_table,
                                                 &portable_table, &ref_table,    &amxsim_table};

static const char build_for[] = "x86-64";

/* Asked of the processor itself: clang 14's __builtin_cpu_supports does not know the name. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* The compiler's own check also asks whether the system keeps the wide registers. */
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni") && has_avx2();
}

/* Tiles are 8 KiB of state that Linux keeps only for processes that have asked for it; the
 * answer holds for all threads. Asking again is harmless. */
static bool may_use_tiles(void) {
    enum { ARCH_REQ_XCOMP_PERM_CODE = 0x1023, XFEATURE_XTILEDATA_BIT = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM_CODE, XFEATURE_XTILEDATA_BIT) == 0;
}

/* Asked of the processor itself: compilers differ in the names they know. */
static bool has_amx(void) {
    enum { AMX_TILE_BIT = 24, AMX_INT8_BIT = 25 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    bool has_both = (d >> AMX_TILE_BIT & 1) && (d >> AMX_INT8_BIT & 1);
    return has_both && has_avx512() && may_use_tiles();
}

bool cpu_table_runs_here(const struct cpu_table *table) {
    CHECK(table);
    if (table == &amx_table) return has_amx();
    if (table == &avx512_table || table == &amxsim_table) return has_avx512();
    return table == &avx2_table ? has_avx2() : true;
}

#elif defined(__aarch64__)

static const struct cpu_table dotprod_table = {
    .name = "dotprod",
    .packs = true,
    .kernels = &cpu_kernels_dotprod,
    .ops = {ROW_OPS, PACKED_OPS},
};

static const struct cpu_table neon_table = {
    .name = "neon",
    .packs = true,
    .kernels = &cpu_kernels_neon,
    .ops = {ROW_OPS, PACKED_OPS},
};

/* Fastest first. Every 64-bit Arm has NEON; dot products came later. */
static const struct cpu_table *const tables[] = {&dotprod_table, &neon_table, &portable_table,
                                                 &ref_table};

static const char build_for[] = "64-bit Arm";

bool cpu_table_runs_here(const struct cpu_table *table) {
    enum { HWCAP_DOT_PRODUCTS = 1 << 20 }; /* Linux's HWCAP_ASIMDDP */
    return table != &dotprod_table || (getauxval(AT_HWCAP) & HWCAP_DOT_PRODUCTS);
}

#else

static const struct cpu_table *const tables[] = {&portable_table, &ref_table};

static const char build_for[] = "any processor";

bool cpu_table_runs_here(const struct cpu_table *table) {
    (void)table;
    return true;
}

#endif

const struct cpu_table *cpu_table_find(const char *name) {
    bool any = strcmp(name, "auto") == 0;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        if (any ? cpu_table_runs_here(tables[i]) : strcmp(name, tables[i]->name) == 0)
            return tables[i];
    return NULL;
}

/* "avx2, portable, ref": those for users that run here. What is listed behind the reference is for
 * tests. */
static void name_runnable(char out[NAMES_BYTES]) {
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        if (cpu_table_runs_here(tables[i]) && used < NAMES_BYTES) {
            int bytes =
                snprintf(out + used, NAMES_BYTES - used, "%s%s", used ? ", " : "", tables[i]->name);
            used += bytes > 0 ? (size_t)bytes : 0;
        }
        if (tables[i] == &ref_table) return;
    }
}

enum status cpu_isa_check(const char *isa, struct err *err) {
    const struct cpu_table *table = cpu_table_find(isa);
    char names[NAMES_BYTES];
    if (table && cpu_table_runs_here(table)) return ST_OK;
    name_runnable(names);
    if (table)
        return err_set(err, ST_BAD, "this processor cannot run \"%s\"; it can run: %s; use auto",
                       isa, names);
    return err_set(err, ST_BAD,
                   "this build is for %s and has no \"%s\"; this processor can run: %s; use auto",
                   build_for, isa, names);
}
