/* kernels/cpu/cpu_int.h - what the files of the CPU device share.
 *
 * A run is walked by all threads of the pool at once: each op function does the share of
 * thread `ith` of `nth`, and every stage ends in a barrier (kernels/cpu/stage.h); one thread runs
 * the small stages alone, as share 0 of 1. Work is shared out by rows,
 * panels or heads; every output element is computed wholly by one thread in the order that
 * kernels/cpu/numerics.h states, so the number of threads changes no bits.
 *
 * Op functions ("drivers") find the operands and split the work; kernels do the arithmetic on
 * one row, group or panel. A table names the driver of every op and the kernels they call.
 */
#ifndef KERNELS_CPU_CPU_INT_H
#define KERNELS_CPU_CPU_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/op.h"
#include "graph/step.h"
#include "graph/tape.h"
#include "kernels/cpu/numerics.h"
#include "kernels/cpu/kv_tiles.h"
#include "kernels/cpu/mm.h"
#include "kernels/cpu/pack.h"
#include "tensor/q8.h"

struct workspace;
struct cpu_table;
struct op_timer;
struct pool;

struct cpu_run {
    const struct cpu_table *table;
    const struct workspace *workspace;
    const struct tape *tape;
    const struct step *step;
    const struct kv_tiles *kv; /* by KV group; NULL for an encoder */
    uint8_t *slab;
    const int32_t *slots; /* [slot_count] the token that was sampled last into each; -1: none */
    uint32_t slot_count;
    struct pool *pool;
    struct op_timer *timer;    /* NULL: profiling is off */
    const struct cpu_tap *tap; /* NULL: no one sees the inputs of products */
};

typedef void cpu_op_fn(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth);

/* Queries that one call of an attention kernel takes at most, and neighbouring rows that go
 * together at most: however many heads share a KV head, the queries of twelve rows come out even.
 * What does not fill a call goes through kernels ATTN_FEW at a time. */
enum { ATTN_QUERIES = 12, ATTN_FEW = 6, ATTN_ROWS = 12 };
enum { ATTN_TILES = ATTN_SEGMENT / KV_TILE_TOKENS };

/* A query, and the tokens [first, end) of the segment that it attends to: at least one. */
struct attn_query {
    const float *q;
    /* Of KV_I4: the transformed query in whole numbers, their sums by groups of dimensions, what
     * they are multiples of, and what the products with early keys lack. */
    const int8_t *codes; /* [kv_padded_dims] */
    const int32_t *sums; /* [kv_groups_of_head] */
    float codes_scale, shift;
    uint32_t first, end;
};

/* Keys and values of one KV head in one segment, and queries of one row, or of neighbouring
 * rows. Tokens that a query does not attend to may hold anything. */
struct attn_segment {
    const uint8_t *k[ATTN_TILES]; /* as kv_tiles.h draws them; those that are attended to */
    const uint8_t *v[ATTN_TILES]; /* token j at v + j * v_stride */
    size_t v_stride;              /* bytes */
    size_t codes_stride;          /* of KV_I4: bytes from a query's codes to the next one's */
    enum kv_type type;
    uint32_t head_dim, query_count;
    uint32_t early; /* of KV_I4: so many keys, from 0 on, are kept with their mean */
    float scale, softcap;
    struct attn_query query[ATTN_QUERIES];
    /* Tiles that the caller needs next, to be fetched meanwhile; NULL: nothing is known. */
    const uint8_t *next[ATTN_TILES];
};

/* A query's result of a segment, or of several joined ones: out has head_dim elements. */
struct attn_part {
    float max, sum, *out;
};

/* A norm with its vectors found. */
struct norm_args {
    enum norm_kind kind;
    uint32_t group;
    float eps;
    const float *weight, *bias; /* bias NULL unless LAYER */
};

/* Vectors are read where they lie; NULL stays NULL. */
static inline const float *vector_floats(const struct weight *w) { return w ? w->data : NULL; }

/* Where a query in whole numbers goes: see struct attn_query. */
struct int4_query {
    int8_t *codes;
    int32_t *sums;
    float *scale;
};
/* Arithmetic on one row or group. `count` is in elements. */
struct cpu_kernels {
    void (*norm)(const struct norm_args *n, const float *x, float *y); /* one group; y may be x */
    void (*quantise)(const float *x, uint32_t count, struct q8_out out);
    void (*rope)(const struct op_rope *r, const float *cosine, const float *sine, float *head);
    void (*act)(enum act_kind kind, const float *gate, const float *up, uint32_t count, float *y);
    void (*add)(const float *src, uint32_t count, float *dst);
    void (*softcap)(float cap, uint32_t count, float *x);
    /* Turns a head as KV_I4 stores it, or back (graph/kv_space.h). */
    void (*kv_hadamard)(float *x, uint32_t head_dim);
    /* out[d] = q[d] * scale[d]; returns the sum of q[d] * mean[d], of KV_I4. */
    float (*kv_smooth)(const float *q, const float *scale, const float *mean, uint32_t head_dim,
                       float *out);
    /* A transformed query in whole numbers. `q` has room for whole runs. */
    void (*kv_query)(float *q, uint32_t head_dim, struct int4_query out);
    /* One token's transformed key or value. `x`, and `room` as large, have room for whole runs and
     * are overwritten. `feedback`: NULL, or as graph/key_smoothing.h draws it. */
    void (*kv_store_int4)(float *x, float *room, const float *feedback, uint32_t head_dim,
                          bool is_value, uint8_t *tile, uint32_t token);
    /* One token of one KV head, not of KV_I4: K goes with a stride of KV_TILE_TOKENS elements. */
    void (*kv_store)(enum kv_type type, const float *k, const float *v, uint32_t head_dim,
                     uint8_t *k_tile, uint8_t *v_tile, uint32_t token);
    void (*attend)(const struct attn_segment *s, struct attn_part *out); /* one for each query */
    void (*attn_merge)(struct attn_part *into, const struct attn_part *part, uint32_t head_dim);
    void (*attn_finish)(struct attn_part *part, uint32_t head_dim);
    mm_panel_fn *const *panel;      /* [DTYPE_COUNT] */
    const struct mm_pairs *pairs;   /* NULL: the table has none */
    const struct mm_wide *wide;     /* likewise */
    const struct mm_opener *opener; /* likewise */
};

struct cpu_table {
    const char *name; /* "avx2" */
    bool packs;       /* weights are packed before they are used */
    const struct cpu_kernels *kernels;
    cpu_op_fn *ops[OP_COUNT]; /* NULL: this table lacks the op */
};

extern const struct cpu_kernels cpu_kernels_ref, cpu_kernels_portable, cpu_kernels_avx2,
    cpu_kernels_avx512, cpu_kernels_amx, cpu_kernels_amxsim, cpu_kernels_neon, cpu_kernels_dotprod;

/* Scratch that a thread needs for a product with rows of `cols`. */
size_t mm_scratch_bytes(const struct cpu_kernels *k, uint32_t cols);

/* The table of that name ("auto" is the fastest that runs here), or NULL. */
const struct cpu_table *cpu_table_find(const char *name);
bool cpu_table_runs_here(const struct cpu_table *table);

/* Part `ith` of `nth` of `count` things, in one piece. */
struct range {
    uint32_t first, end;
};
static inline struct range range_share(uint32_t count, uint32_t ith, uint32_t nth) {
    return (struct range){(uint32_t)((uint64_t)count * ith / nth),
                          (uint32_t)((uint64_t)count * (ith + 1) / nth)};
}

/* The panels of part `part` that are thread `ith`'s of `nth` when an op has few rows, though others
 * help a late one; with more, threads claim panels or own rows. Weights are prepared. */
struct range mm_share(const struct matmul_part *parts, uint32_t part_count, uint32_t part,
                      uint32_t ith, uint32_t nth);

/* An operand in memory. */
struct mat {
    uint8_t *base;    /* first row of the value; NULL: no operand */
    size_t row_bytes; /* from one row to the next */
    uint32_t col, cols;
    uint32_t all_cols; /* of the value */
    uint32_t row_count;
    enum rows_kind kind;
};
struct mat mat_of(const struct cpu_run *x, struct operand o);
struct q8_row mat_q8_read(const struct mat *m, uint32_t row, uint32_t col);
struct q8_out mat_q8_write(const struct mat *m, uint32_t row, uint32_t col);
static inline float *mat_f32(const struct mat *m, uint32_t row) {
    return (float *)(void *)(m->base + row * m->row_bytes) + m->col;
}
static inline int32_t *mat_i32(const struct mat *m, uint32_t row) {
    return (int32_t *)(void *)(m->base + row * m->row_bytes) + m->col;
}

uint32_t step_rows(const struct step *s, enum rows_kind kind); /* how many there are */
bool run_row_is_live(const struct cpu_run *x, enum rows_kind kind, uint32_t row); /* not skipped */

/* Drivers. */
cpu_op_fn op_embed_run, op_norm_run, op_quant_run, op_rope_run, op_kv_write_run, op_act_run,
    op_add_run, op_softcap_run, op_route_run, op_expert_sum_run, op_gather_run, op_permute_run,
    op_pool_run, op_input_run;
/* An activation after its product (workspace_follows): columns [cols.first, cols.end) of the
 * product's value are done in all rows. */
void op_act_follow(const struct cpu_run *x, const struct op *op, struct range cols);
cpu_op_fn op_matmul_run, op_expert_matmul_run;       /* on packed weights */
cpu_op_fn op_attention_run, op_self_attention_run;   /* through kernels->attend */
cpu_op_fn ref_matmul_run, ref_expert_matmul_run;     /* on weights as the file lays them */
cpu_op_fn ref_attention_run, ref_self_attention_run; /* straight from the definition */

#endif
