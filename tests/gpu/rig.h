/* tests/gpu/rig.h - a tape of a few ops on any device, from seeded data.
 *
 * A rig names its values and the ops over them. Before a step every value is filled with numbers
 * that depend only on (seed, value, row, column); after it all values are read back.
 */
#ifndef TESTS_GPU_RIG_H
#define TESTS_GPU_RIG_H

#include "check.h"
#include "graph/device.h"
#include "graph/op.h"
#include "graph/tape.h"

enum { RIG_VALUES_MAX = 8, RIG_OPS_MAX = 3, RIG_WEIGHTS_MAX = 8 };

struct rig_value {
    enum rows_kind rows;
    enum value_type type;
    uint32_t cols;
    uint32_t limit; /* i32 only: numbers below it, different ones inside a row */
};

struct rig_run;

struct rig {
    uint64_t seed;
    float spread;   /* numbers lie in (-spread, spread); 0 means 1 */
    bool is_coarse; /* they are numbers of tensor/fp8.h */
    bool is_fp8;    /* weights of 16 bits become e4m3 on a GPU */
    struct rig_value values[RIG_VALUES_MAX];
    uint32_t value_count;
    struct op ops[RIG_OPS_MAX];
    uint32_t op_count;
    value_id output;
    struct weight *weights[RIG_WEIGHTS_MAX];
    struct step_sizes sizes;
    struct kv_shape kv; /* heads 0: no cache */
    uint32_t kv_blocks;
    uint32_t slot_count;
    uint32_t row_base; /* row r is filled as row r + row_base */
    void (*prepare_bytes)(
        struct rig_run *run); /* changes run->bytes before a step; NULL: nothing */
};

/* A rig on a device. */
struct rig_run {
    const struct rig *rig;
    bool is_cpu;
    struct device dev;
    struct tape *tape;
    struct device_program *program;
    struct step *step; /* the caller fills it before rig_step */
    struct kv_space kv;
    uint8_t *bytes; /* all values after a step */
    struct device_result result;
};

/* "ref" is the CPU's reference; else the name of a device. Ends the program if that fails. */
void rig_open(const struct rig *r, const char *device, struct rig_run *out);
void rig_close(struct rig_run *run);

struct operand rig_operand(const struct rig *r, uint32_t value);

/* One sequence of `rows` rows from position `first` on in blocks 0, 1, ...; all are outputs. Every
 * skip-th row is marked -1; 0: none. */
void rig_one_seq(struct rig_run *run, uint32_t rows, uint32_t first, uint32_t skip);

void rig_step(struct rig_run *run); /* fill, submit, collect, read */
const uint8_t *rig_row(const struct rig_run *run, uint32_t value, uint32_t row);
uint32_t rig_rows(const struct rig_run *run, uint32_t value);
bool rig_row_is_live(const struct rig_run *run, uint32_t value, uint32_t row);

/* Values of live rows agree: to the bit if tolerance is 0, else floats within tolerance times the
 * largest of the row. */
void rig_compare(struct checks *c, const struct rig_run *a, const struct rig_run *b,
                 double tolerance, const char *what);

/* rig_one_seq with the same rows on the reference and on the device, compared. */
void rig_check(struct checks *c, const struct rig *r, uint32_t rows, uint32_t skip,
               double tolerance, const char *what);

/* Random weights; free with rig_weight_free. */
struct weight rig_weight(enum dtype type, uint32_t rows, uint32_t cols, uint32_t experts,
                         uint64_t seed);
struct weight rig_vector(uint32_t count, float middle, uint64_t seed);
void rig_weight_free(struct weight *w);

#endif
