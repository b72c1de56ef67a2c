/* kernels/cuda/cuda_int.h - what the host's files of the CUDA device share.
 *
 * One stream carries everything: copies of tables, KV moves, kernels, results. So steps run in the
 * order of their submits, and one place for tables and one slab of scratch serve all of them.
 */
#ifndef KERNELS_CUDA_CUDA_INT_H
#define KERNELS_CUDA_CUDA_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/device.h"
#include "graph/op.h"
#include "graph/tape.h"
#include "graph/weight.h"
#include "kernels/cuda/launch_attention.h"
#include "kernels/cuda/launch_fp8.h"
#include "kernels/cuda/launch_sample.h"
#include "kernels/cuda/library.h"

enum { CUDA_MMA_COLS = 64 };  /* rows of 16-bit weights are filled up to a multiple of it */
enum { CUDA_MANY_ROWS = 16 }; /* from here on products go to cuBLASLt */

struct cuda_blas;   /* blaslt.h */
struct cuda_graphs; /* graphs.c */
struct cuda_watch;  /* profile.c */
struct cuda_upload; /* upload.h */

/* The parts of one product, one behind the other in memory, so that one launch does all. */
struct cuda_joint {
    struct cuda_matrix matrix;
    const float *bias; /* NULL: none has one */
    const struct weight *parts[OP_PARTS_MAX];
    uint32_t part_count;
};

/* A weight in the card's memory; `prepared` of a struct weight points to one. */
struct cuda_weight {
    struct cuda_matrix matrix;
    void *memory; /* NULL: it lies in a joint that another weight holds */
    size_t bytes;
    struct cuda_joint *joint; /* of a first part; NULL: none */
    bool is_placed;           /* a program knows its address: it stays where it is */
    struct cuda_weight *next;
};

struct cuda_device {
    int card;
    char name[32];
    char card_name[256];
    uint32_t multiprocessors;
    struct cuda_switches switches;
    struct CUstream_st *stream;
    struct cuda_blas *blas; /* NULL: our own kernels do all products */
    bool fp8_weights;       /* weights of 16 bits become e4m3 */
    bool fp8_has_own_bits;  /* cuBLASLt's products of them have the bits of product_fp8.cu */
    struct cuda_weight *weights;
    struct cuda_upload *upload; /* while weights are copied; NULL: not needed yet */
    struct cuda_watch *watch;   /* NULL: no callback is set */
    void *staging;              /* for weights on their way to e4m3; NULL: none so far */
    size_t weight_bytes, other_bytes, staging_bytes; /* taken so far; other: KV and scratch */
};

/* ---- device.c ---- */

/* Make the card the calling thread's. */
void cuda_enter(const struct cuda_device *dev);
/* Zeroed memory of the card, counted in dev->other_bytes; NULL: no room. */
void *cuda_take(struct cuda_device *dev, size_t bytes);
void cuda_give(struct cuda_device *dev, void *ptr, size_t bytes); /* NULL is fine */
/* ST_NOMEM with what was wanted, what the card has, and what took it. */
enum status cuda_say_full(const struct cuda_device *dev, const char *what, size_t bytes,
                          struct err *err);
/* ST_DEVICE if a call or a kernel has failed. */
enum status cuda_check(const char *what, struct err *err);

/* ---- weights.c ---- */

enum status cuda_weight_create(struct cuda_device *dev, struct weight *w, struct err *err);
void cuda_weights_destroy(struct cuda_device *dev);
/* Put the parts of a product behind each other, where their formats allow it and there is room. */
void cuda_weights_join(struct cuda_device *dev, const struct matmul_part *parts, uint32_t count);
/* The joint of exactly these parts, or NULL. */
const struct cuda_joint *cuda_joint_of(const struct matmul_part *parts, uint32_t count);
static inline const struct cuda_matrix *cuda_matrix_of(const struct weight *w) {
    return &((const struct cuda_weight *)w->prepared)->matrix;
}
static inline const float *cuda_vector_of(const struct weight *w) {
    return w ? cuda_matrix_of(w)->data : NULL;
}

void cuda_weights_end(struct cuda_device *dev); /* all are there: frees what that needed */

/* ---- program.c ---- */

enum status cuda_program_create(struct cuda_device *dev, const struct program_options *options,
                                struct device_program **out, struct err *err);
void cuda_program_destroy(struct device_program *p); /* NULL is fine */
enum status cuda_program_submit(struct device_program *p, const struct step *step, struct err *err);
enum status cuda_program_collect(struct device_program *p, struct device_result *out,
                                 struct err *err);

/* ---- ops.c ---- */
/* Scratch beside the tape's slab, by the largest op that needs it. */
struct cuda_scratch {
    void *x[2]; /* activations in 16 bits or fp8; [1] is what a product finds that follows an act */
    float *x_scale[2]; /* of fp8: [rows] */
    float *rows;       /* results that are wanted in another form only */
    float *parts;      /* of attention */
    size_t x_bytes, x_rows, row_floats, part_floats; /* x_rows: of fp8 */
};

/* What is done at an op beside it (fuse.c). */
struct cuda_plan {
    uint32_t op_count;              /* this op and those behind it that its launch does as well */
    const struct cuda_matrix *half; /* the result is also the next product's input, in its form */
    bool is_half_only;              /* the result is wanted in that form alone */
    bool has_x;                     /* a product: scratch->x holds its input already */
    uint8_t half_to, x_from;        /* which of scratch->x `half` goes to, and `has_x` means */
    bool attends; /* behind kv_write: attention that alone reads what these ops make */
    bool gates; /* a product of few rows can do the act behind it, whose input no other op reads */
    bool goes_first;              /* a norm that such a product can do: no other op reads it */
    bool has_product, has_floats; /* attention, and the product behind it that can quantise */
};

/* A step on its way: the tables are the card's copies. */
struct cuda_run {
    const struct cuda_device *dev;
    struct cuda_queue queue;
    const struct tape *tape;
    const struct step *step; /* the host's, for counts and positions */
    const struct cuda_kv *kv;
    uint8_t *slab;
    const int32_t *slots;
    const int32_t *token, *pos;
    const uint32_t *seq, *output_row, *seqs, *blocks;
    const struct cuda_scratch *scratch;
    uint32_t segments; /* of attention without a window: at least what a row needs */
    bool is_whole;     /* attention does a sequence in one block: cuda_step_is_whole */
    struct cuda_row_runs runs;
    uint32_t runs_group;         /* queries with one KV head that the runs are made for; 0: none */
    const struct cuda_plan *now; /* of the op that is being launched */
};

/* ST_BAD names an op that cannot be run. Adds what it needs to `scratch`, pointers aside. */
enum status cuda_op_measure(const struct tape *t, uint32_t i, const struct program_options *options,
                            struct cuda_scratch *scratch, struct err *err);
/* Returns how many ops were launched: this one and those behind it that are fused with it. */
uint32_t cuda_op_launch(const struct cuda_run *x, const struct op *op);
uint32_t cuda_step_segments(const struct step *s);
uint32_t cuda_step_rows(const struct step *s, enum rows_kind kind);

/* ---- fuse.c ---- */

void cuda_plan_make(const struct tape *t, bool is_fused, struct cuda_plan *out); /* [op count] */

/* ---- runs.c ---- */

/* The rows of a step in runs for attention on tensor cores. */
struct cuda_runs {
    uint32_t group, kv_heads;   /* queries that share a KV head; 0: there are no such ops */
    bool is_f8;                 /* the cache */
    uint32_t long_queries;      /* of a long run */
    uint32_t cap;               /* entries of a table */
    struct cuda_row_run *table; /* the card's */
};
/* What attention needs, table aside; `by_groups`: the card has wgmma. */
void cuda_runs_plan(const struct program_options *options, bool by_groups, struct cuda_runs *out);
/* The runs of a step, with the table `host` (of `cap`, pinned) on its way to the card if there is
 * one. */
struct cuda_row_runs cuda_runs_make(const struct cuda_runs *r, const struct step *step,
                                    struct cuda_row_run *host, struct CUstream_st *stream);
bool cuda_step_is_whole(const struct step *, const struct cuda_runs *, const struct cuda_device *);

/* ---- graphs.c ---- */

/* All that the launches of a step depend on, beside tables in device memory. */
struct cuda_graph_key {
    uint32_t rows, outputs, seqs, segments, is_whole;
};
typedef void cuda_enqueue_fn(void *ctx);

struct cuda_graphs *cuda_graphs_create(void);    /* NULL: no memory; steps run without */
void cuda_graphs_destroy(struct cuda_graphs *g); /* NULL is fine; nothing of it runs any more */
/* Enqueue what `enqueue` does, by a graph if there is one for this key. */
void cuda_graphs_run(struct cuda_graphs *g, const struct cuda_graph_key *key,
                     cuda_enqueue_fn *enqueue, void *ctx, struct CUstream_st *stream);

/* ---- profile.c ---- */

extern const struct device_profiler cuda_profiler;
void cuda_watch_destroy(struct cuda_watch *w); /* NULL is fine */
/* So many ops of the tape are enqueued: 0, then 1, and so on. NULL: nothing is done. */
void cuda_watch_mark(struct cuda_watch *w, const struct tape *t, uint32_t ops_done,
                     struct CUstream_st *stream);
/* All of them are: waits for the last one. */
void cuda_watch_tell(struct cuda_watch *w, const struct device_run *run);

#endif
