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
#include "kernels/cpu/peaks.h"

enum { ROWS_MAX = 512, BLOCKS_MAX = 1 << 12, COLD_BYTES = 128 << 20 };

struct bench {
    const char *isa, *word; /* only cases with the word in their name are measured */
    uint32_t threads;
    bool json;
    struct cpu_peaks peaks;
    uint32_t printed; /* cases */

    struct device dev; /* of the case */
    struct step_seq seq;
    struct step step;
    int32_t token[ROWS_MAX], pos[ROWS_MAX];
    uint32_t seq_of[ROWS_MAX], output_row[ROWS_MAX];
    uint32_t blocks[BLOCKS_MAX];
};

/* A finished tape and its memory. */
struct pass {
    struct tape *tape;
    uint8_t *slab;
    const struct kv_space *kv; /* NULL: none */
};

void must(enum status st, const struct err *err);
void bench_open(struct bench *b);  /* the device of a case */
void bench_close(struct bench *b); /* and all that was prepared on it */

/* One sequence whose rows end at context `ctx`; all are outputs. */
void bench_set_rows(struct bench *b, uint32_t rows, uint32_t ctx);

struct tape *tape_begin(void);
struct operand new_f32(struct tape *t, const char *name, uint32_t cols);
struct operand new_q8(struct tape *t, const char *name, uint32_t cols);

/* Finish the tape and fill every value with random numbers. */
struct pass pass_make(struct bench *b, struct tape *t);
void pass_free(struct bench *b, struct pass *p);

/* Time it and print a line: the best and the median time of one op, what it moved and computed in
 * the best, and its share of the ceiling that binds it. The ops of the tape are alike. Passed
 * over if bench_wants says so. */
void bench_measure(struct bench *b, const struct pass *p, const char *name);
bool bench_wants(const struct bench *b, const char *name);

/* A weight of zeros, prepared: the speed does not depend on the numbers. */
struct weight weight_make(struct bench *b, enum dtype type, uint32_t rows, uint32_t cols,
                          uint32_t experts);
void weight_free(struct bench *b, struct weight *w);

/* The cases, by kind of op. */
void bench_matmuls(struct bench *b);
void bench_experts(struct bench *b);
void bench_attentions(struct bench *b);
void bench_row_ops(struct bench *b);

#endif
