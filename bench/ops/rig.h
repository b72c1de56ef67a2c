/* bench/ops/rig.h - what the cases of bench/ops share: a device, a step, and timing a tape.
 *
 * A case opens a device, writes a tape of one op (or of many with weights of their own), and
 * measures it for several numbers of rows. Failures end the program.
 */
#ifndef BENCH_OPS_RIG_H
#define BENCH_OPS_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/device.h"
#include "graph/step.h"
#include "graph/tape.h"
#include "graph/work.h"

enum { ROWS_MAX = 512, SEQS_MAX = 32, BLOCKS_MAX = 1 << 12, COLD_BYTES = 128 << 20 };

struct bench {
    const char *isa, *word; /* only cases with the word in their name are measured */
    uint32_t threads;
    bool json;
    struct peaks peaks;
    uint32_t printed; /* cases */

    struct device dev; /* of the case */
    struct step *step; /* one sequence, its blocks in order */
};

/* A finished tape as a program. */
struct pass {
    struct tape *tape;
    struct device_program *program;
    const struct kv_space *kv; /* NULL: none */
};

void must(enum status st, const struct err *err);
void bench_open(struct bench *b);  /* the device of a case */
void bench_close(struct bench *b); /* and all that was prepared on it */

/* One sequence whose rows end at context `ctx`; all are outputs. */
void bench_set_rows(struct bench *b, uint32_t rows, uint32_t ctx);

/* That many sequences with one row each, which ends at context `ctx`. */
void bench_set_seqs(struct bench *b, uint32_t seqs, uint32_t ctx);

struct tape *tape_begin(void);
struct operand new_f32(struct tape *t, const char *name, uint32_t cols);
struct operand new_q8(struct tape *t, const char *name, uint32_t cols);

/* KV memory of one layer for `tokens` tokens, of which every byte was touched. */
struct kv_space kv_make(struct bench *b, enum kv_type type, uint32_t heads, uint32_t head_dim,
                        uint32_t tokens);
void kv_free(struct bench *b, struct kv_space *kv);

/* Finish the tape, make it a program and fill every value with random numbers. `kv`: NULL if the
 * tape has no cache; outlives the pass. */
struct pass pass_make(struct bench *b, struct tape *t, const struct kv_space *kv);
void pass_free(struct bench *b, struct pass *p);

/* Time it and print a line: the best and the median time of one op, what it moved and computed in
 * the best, and its share of the ceiling that binds it. The ops of the tape are alike. Passed
 * over if bench_wants says so. */
void bench_measure(struct bench *b, const struct pass *p, const char *name);
bool bench_wants(const struct bench *b, const char *name);

/* A weight of random bytes, prepared. */
struct weight weight_make(struct bench *b, enum dtype type, uint32_t rows, uint32_t cols,
                          uint32_t experts);
void weight_free(struct bench *b, struct weight *w);

/* The cases, by kind of op. */
void bench_matmuls(struct bench *b);
void bench_experts(struct bench *b);
void bench_attentions(struct bench *b);
void bench_row_ops(struct bench *b);

#endif
