/* kernels/cuda/library.h - what libjitney-cuda.so gives to the program that opens it.
 *
 * The library holds the device, its kernels and a copy of the few functions of base/, tensor/ and
 * graph/ that it calls. It shares structs with the program, so both must come from one build:
 * struct cuda_library_sizes tells.
 */
#ifndef KERNELS_CUDA_LIBRARY_H
#define KERNELS_CUDA_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct device;
struct device_program;

/* Of the structs that cross the border. */
struct cuda_library_sizes {
    uint32_t device, step, op, weight, sampling, row_output;
};

/* What can be turned off, and on, to compare it with what it replaces; kernels/cuda_load.c has the
 * defaults. */
struct cuda_switches {
    bool without_cublaslt; /* products of many rows by our own kernels: slow, the same bits */
    bool without_depth;    /* a step is submitted when the one before it has been collected */
    bool without_graphs;   /* every step is launched kernel by kernel */
    bool fills;            /* skipped rows fill up steps: a graph for several row counts */
    bool without_fusion;   /* a kernel for each op, a product for each of its parts */
    bool plain_attention;  /* attention in f32, as on the CPU, for all formats of the cache */
    bool plain_codes;      /* products of quantised weights by dp4a alone */
    bool byte_codes;       /* quantised weights become codes of 8 bits alone */
    bool overlap;          /* a kernel starts before the one in front of it has ended */
    bool few_rows;         /* products of up to 8 rows by kernels that read ahead (sm_90) */
    bool two_rows;         /* and those of 1 or 2 rows by kernels with fewer instructions */
    bool two_always;       /* however few weights there are, for tests */
    bool two_first;        /* also of fewer weights, where the norm before them can go in */
    bool gated;            /* product_few.cu and _two.cu do the act after gates and ups */
    bool fresh;            /* rotation, cache and attention of up to 8 rows in one launch */
    bool few_codes;        /* products of quantised weights likewise (sm_90) */
    bool first;            /* product_two.cu and _codes_dots.cu do the norm before them */
    bool dots;             /* quantised weights, up to 4 rows: product_codes_dots.cu */
    bool even_tiles;       /* and divides gates and ups among blocks by tiles, not by pairs */
    bool timed;            /* cuBLASLt's algorithms are chosen by their times */
    bool timed_early;      /* and that when a model is loaded */
    bool any_sums;         /* and may add up in any order: a row's bits depend on the others */
    bool whole;            /* attention of many rows does a sequence in one block */
    bool whole_always;     /* also of few rows, for tests */
    bool bulk;             /* and goes on from one to the next, by bulk copies (sm_90a) */
    bool groups;           /* attention of prompts by wgmma (sm_90a) */
    bool upload;           /* large weights are copied by several threads */
    bool dense;            /* norms of many rows that become e4m3: with more of them at once */
    bool act_clusters;     /* acts of up to 64 rows that become e4m3 in one launch (sm_90) */
    bool e4m3_card;        /* rows become e4m3 by the card's own instruction (sm_89) */
    bool stored_fp8;       /* matrices that the file has in fp8 stay so where they can (sm_90) */
    bool resident;         /* steps of up to 4 rows: layers in one launch (sm_90a) */
    bool lean;             /* norms and acts four numbers at a time; results that are wanted in 16
                              bits alone are not written as floats */
};

struct cuda_library_options {
    const char *version; /* of the program */
    struct cuda_library_sizes sizes;
    int card;                  /* the number of the GPU */
    const char *cublaslt_dirs; /* where libcublasLt.so may lie beside the usual places: a list with
                                  colons; NULL: nowhere */
    const char *keep_dir;      /* of kernels/cuda/kept.h; NULL: nothing is kept */
    bool keeps_new;            /* what is found is written there */
    bool fp8_weights;          /* weights of 16 bits become e4m3 */
    struct cuda_switches switches;
};

/* The library's entry point. ST_MISSING: there is no driver or no such card; ST_BAD: the library,
 * the driver or the card does not fit. */
#define CUDA_LIBRARY_OPEN "jitney_cuda_open"
typedef enum status cuda_library_open_fn(const struct cuda_library_options *options,
                                         struct device *out, struct err *err);

/* For tests: scratch memory of a program, to (or from) `host`. Waits for the device. */
#define CUDA_LIBRARY_SLAB "jitney_cuda_slab"
typedef enum status cuda_library_slab_fn(struct device_program *p, size_t offset, size_t bytes,
                                         void *host, bool is_write);

/* For tests: how many steps of a program had layers in one launch, and how many layers those are;
 * why_not: why there are none, or NULL. */
struct cuda_library_resident {
    uint64_t steps;
    uint32_t layers;
    const char *why_not;
    bool is_off; /* it was not asked for, or the card is none of Hopper's */
};
#define CUDA_LIBRARY_RESIDENT "jitney_cuda_resident"
typedef struct cuda_library_resident cuda_library_resident_fn(const struct device_program *p);

#endif
