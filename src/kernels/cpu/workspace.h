/* kernels/cpu/workspace.h - what the CPU device keeps for each tape.
 *
 * The stages of a run, the tables of cosines and sines that rope ops share, each thread's
 * scratch memory, and counters from which threads claim or take the work of an op.
 *
 * Lifetime: made and destroyed with a program. Thread: the tables are written at the start of a
 * run, rows shared out; all threads may claim, take and count at once; the rest is read-only.
 */
#ifndef KERNELS_CPU_WORKSPACE_H
#define KERNELS_CPU_WORKSPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/op.h"

struct cpu_kernels;
struct cpu_run;
struct workspace_chunk;
struct workspace_claims;
struct workspace_taker;
struct stage;
struct tape;

/* Parts: enough for one row of 32 heads of 128 at 60,000 tokens; only touched when used. */
enum { WORKSPACE_ROPES_MAX = 8, WORKSPACE_PARTS_FLOATS = 1 << 20 };

/* Angles of one kind: row r holds `pair_count` cosines, then as many sines. */
struct workspace_rope {
    const float *freqs;
    float factor;
    uint32_t pair_count;
    size_t first; /* offset into `tables`, in floats */
};

struct workspace {
    const struct tape *tape;
    struct stage *stages; /* [stage_count] */
    bool *follows;        /* [ops] an act that follows its product, if there are few rows */
    struct workspace_chunk *chunks; /* what is done of its columns */
    uint32_t stage_count;
    struct workspace_claims *claims; /* [ops] */
    struct workspace_taker *takers;  /* [threads] */
    uint64_t run;                    /* counts the runs */
    struct workspace_rope ropes[WORKSPACE_ROPES_MAX];
    uint32_t rope_count;
    float *tables;
    size_t tables_bytes;
    float *scratch; /* [threads][scratch_floats] */
    size_t scratch_floats, scratch_bytes;
    float *parts; /* WORKSPACE_PARTS_FLOATS shared by all threads; NULL without attention */
};

/* ST_BAD if the tape holds more kinds of rope than fit, ST_NOMEM. */
enum status workspace_create(struct workspace **out, const struct tape *t,
                             const struct cpu_kernels *k, uint32_t threads, struct err *err);
void workspace_destroy(struct workspace *p); /* NULL is fine */

/* Before a run, on one thread: nothing is claimed. */
void workspace_reset_claims(struct workspace *p);

/* With fewer rows than CLAIM_ROWS_MIN, claiming work costs more than it saves. Work is cut so that
 * a thread does about CLAIMS_PER_THREAD claims or pieces; TAKES_PER_THREAD with few rows. */
enum { CLAIM_ROWS_MIN = 32, CLAIMS_PER_THREAD = 8, TAKES_PER_THREAD = 4 };

/* The next unit of an op's work that no thread has taken yet in this run; counts on past the last
 * one. The claim orders nothing: what a unit reads was written before a barrier that precedes
 * the op, and what it writes is read after the one that follows. */
uint32_t workspace_claim(const struct workspace *p, uint32_t op_idx);

/* Pieces of one thread's share at most. */
enum { WORKSPACE_PIECES_MAX = (1 << 16) - 1 };

/* Work stealing, for ops where a thread's own share is cheaper for it than another's (weights that
 * it streams, rows in its caches). Every thread has a share of the op's work and takes it piece by
 * piece; a thread that has finished takes pieces from the shares of others. Returns the next piece
 * of `owner`'s share; `pieces` if none is left. Orders nothing, like a claim. */
uint32_t workspace_take(const struct workspace *p, uint32_t op_idx, uint32_t owner,
                        uint32_t pieces);

/* Does any of an op's shares have pieces left? `shares`: how many have pieces at the start. One
 * load, instead of one for the share of every thread. May be true a moment too long, and stays true
 * if fewer than `shares` shares had pieces. */
bool workspace_has_left(const struct workspace *p, uint32_t op_idx, uint32_t shares);

/* With few rows an activation follows its product without a barrier: the thread that finishes the
 * last of a chunk's columns, of gate and of up, activates that chunk. */
enum { WORKSPACE_CHUNK_COLS = 256 };
bool workspace_follows(const struct workspace *p, const struct op *act, uint32_t rows);

/* `cols` more columns of a chunk are done. True for the thread that did the last of `all`: it sees
 * what all have written, and the count begins anew. */
bool workspace_finishes(const struct workspace *p, uint32_t chunk, uint32_t cols, uint32_t all);

/* Fill the rope tables for the step's rows: the share of one thread. */
void workspace_fill_ropes(const struct cpu_run *x, uint32_t ith, uint32_t nth);

/* The row's cosines; the sines follow them. */
const float *workspace_rope_row(const struct workspace *p, const struct op_rope *r, uint32_t row);

static inline float *workspace_scratch(const struct workspace *p, uint32_t thread) {
    return p->scratch + thread * p->scratch_floats;
}

/* Where a thread's attention keeps things in its scratch, in floats. */
struct attn_scratch {
    size_t row;         /* ATTN_ROWS * heads * head_dim: rows that are only wanted quantised */
    size_t part;        /* ATTN_QUERIES * head_dim: one segment of each query */
    size_t transformed; /* ATTN_QUERIES * int4_query_floats: queries as KV_I4 wants them */
    size_t tiles;       /* an encoder's keys in tiles, attn_unit() heads */
    size_t total;
};
struct attn_scratch attn_scratch(uint32_t heads, uint32_t head_dim, uint32_t tile_rows);

/* Heads that are worked on together, so that what they give is whole blocks of Q8_BLOCK. */
uint32_t attn_unit(uint32_t heads, uint32_t head_dim);

#endif
