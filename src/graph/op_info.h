/* graph/op_info.h - what is known of every op, one row per op (graph/op_list.c).
 *
 * A row describes an op by what is true on every device: its operands, the rows they have, the
 * shapes it asks for, what it costs, how it is put into words, and into what pieces it can be
 * divided. Checking, fusion, planning, cost, dumps and a device's stages are generic code over
 * these rows; none of them has a list of ops of its own. How fast a device is at an op, and how
 * it divides it in fact, is that device's business.
 *
 * Lifetime: constant. Thread: any.
 */
#ifndef GRAPH_OP_INFO_H
#define GRAPH_OP_INFO_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/tape.h"

struct op_check; /* graph_int.h: what a check function reports to */

enum operand_use {
    USE_NONE, /* behind the last operand of a row */
    USE_READ,
    USE_WRITE,
    USE_UPDATE, /* reads it and writes it: in place, or a sum that is added to */
    USE_ADD_IF, /* USE_UPDATE if the op's flag is set, else USE_WRITE */
};

struct op_operand {
    const char *name; /* as op_args.h calls it; for error messages */
    uint16_t offset;  /* of the struct operand in struct op */
    uint16_t flag;    /* USE_ADD_IF: of the bool in struct op */
    enum operand_use use;
    enum value_type type;
    bool is_typed_by_weights; /* f32 or q8 as the weights ask; the op's check function looks */
    bool is_optional;         /* may be VALUE_NONE; of the results, one at least is there */
};

/* Which row of an operand belongs to which. */
enum op_rows {
    ROWS_EACH,       /* row r of every operand belongs together */
    ROWS_EACH_TOKEN, /* likewise; all are the step's tokens, because the op looks up row r's token,
                        position or sequence in the step's tables */
    ROWS_PICKED,     /* reads rows of tokens, writes wanted outputs */
    ROWS_JOINED,     /* reads rows of tokens, writes one row per sequence */
};

/* The smallest piece that workers may share out. A row that says nothing gets the first, which is
 * right for any op. */
enum op_grain {
    GRAIN_SUM,     /* an element or a head, each a sum over weights, cache or rows: enough work to
                      occupy all workers even for one row */
    GRAIN_ELEMENT, /* an element, so that a single row can be shared; a few operations each */
    GRAIN_ROW,     /* a row. A few operations per element; under ROWS_EACH and ROWS_EACH_TOKEN it
                      reads and writes no other row, in scratch or in the cache, so a worker may go
                      on with the same rows of the next such op before others are done */
};

enum op_kv { KV_UNUSED, KV_READ, KV_WRITTEN };

/* For drawings. */
enum op_family { FAMILY_OTHER, FAMILY_PRODUCT, FAMILY_ATTENTION, FAMILY_ROW, FAMILY_LOOKUP };
enum { OP_FAMILY_COUNT = FAMILY_LOOKUP + 1 };

enum { OP_INFO_OPERANDS_MAX = 6 };
struct op_info {
    const char *name;
    struct op_operand operands[OP_INFO_OPERANDS_MAX]; /* ends at USE_NONE */
    enum op_rows rows;
    enum op_grain grain;
    enum op_kv kv;
    uint16_t kv_group; /* unless KV_UNUSED: offset of the uint32_t group in struct op */
    enum op_family family;

    /* What is particular to the op, once its operands are known to be columns of values of the
     * right type; rows are checked after it. NULL: all operands are as wide as the first. */
    void (*check)(struct op_check *c, const struct op *op);

    /* `rows` rows of results at context length `ctx`. NULL: 4 flops per element that it reads. */
    struct op_cost (*cost)(const struct op *op, uint64_t rows, uint64_t ctx);

    /* Elements that one row takes, unless GRAIN_SUM. NULL: the columns of the first operand. */
    uint32_t (*row_elements)(const struct op *op);

    /* The matrices it reads, OP_PARTS_MAX at most; returns how many. NULL: none. */
    uint32_t (*matrices)(const struct op *op, const struct weight **out);

    /* Its weights and numbers in words, each with a blank before it. NULL: it has none. */
    void (*put_detail)(const struct op *op, struct buf *out);
};

extern const struct op_info op_infos[OP_COUNT];
const struct op_info *op_info(enum op_kind kind);

uint32_t op_row_elements(const struct op *op); /* 0: GRAIN_SUM */
uint32_t op_matrices(const struct op *op, const struct weight *out[OP_PARTS_MAX]);
uint32_t op_kv_group(const struct op *op); /* CHECKs that it uses the cache */

/* Where an op keeps its results as floats and quantised; NULL if it has no such result. */
struct op_results {
    struct operand *f32, *q8;
};
struct op_results op_results(struct op *op);

#endif
