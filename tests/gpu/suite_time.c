/* Goal:   where the time of a step goes, with and without what makes it fast.
 * Method: tapes of real shapes with random weights and a context of 512 tokens. Steps are timed by
 *         the device's own events: some as they are, then 5 with an event behind every op. GB/s is
 *         what a step reads of weights and cache (as the file has them) in its time, also as a
 *         share of the card's ceiling. Variants are options in the name of the device. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "shaped.h"

enum { CONTEXT = 512, ROWS_MAX = 2048, STEPS = 20, PROMPT_STEPS = 4 };

/* A model that is measured. */
struct bench {
    struct shaped model;
    const char *variant;
    double read_gbs; /* the card's ceiling */
    double kind_us[OP_COUNT];
    uint32_t watched;
};

static void watch(void *ctx, const struct device_run *run, const struct device_times *times) {
    struct bench *b = ctx;
    for (uint32_t i = 0; i < times->op_count; i++)
        b->kind_us[tape_op(run->tape, i)->kind] += (double)times->work_ns[i] / 1000;
    b->watched++;
}

static double step_bytes(const struct bench *b, uint32_t rows, uint32_t ctx) {
    double bytes = 0;
    for (uint32_t i = 0; i < tape_op_count(b->model.tape); i++)
        bytes += (double)tape_op_cost(b->model.tape, i, rows, ctx).bytes;
    return bytes;
}

static void measure(struct bench *b, uint32_t seqs, uint32_t rows, uint32_t first) {
    static const enum op_kind kinds[] = {OP_EMBED,    OP_NORM,      OP_QUANT, OP_MATMUL, OP_ROPE,
                                         OP_KV_WRITE, OP_ATTENTION, OP_ACT,   OP_GATHER};
    const struct device *dev = &b->model.dev;
    shaped_set_step(&b->model, seqs, rows, first);
    shaped_run(&b->model, 3);
    double us = shaped_run(&b->model, rows > 1 ? PROMPT_STEPS : STEPS);
    memset(b->kind_us, 0, sizeof(b->kind_us));
    b->watched = 0;
    dev->profiler->watch(dev->self, watch, b);
    shaped_run(&b->model, 5);
    dev->profiler->watch(dev->self, NULL, NULL);
    double gbs = us > 0 ? step_bytes(b, seqs * rows, first + rows) / us / 1e3 : 0;
    printf("  %-10s%-40s %4u x %-4u %9.0f us %9.0f tok/s %5.0f GB/s %3.0f %% |",
           b->model.shape->name, b->variant, seqs, rows, us, us > 0 ? seqs * rows * 1e6 / us : 0.0,
           gbs, b->read_gbs > 0 ? 100 * gbs / b->read_gbs : 0.0);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        printf(" %s %.0f", op_name(kinds[i]), b->watched ? b->kind_us[kinds[i]] / b->watched : 0.0);
    printf("\n");
    fflush(stdout);
}

static bool bench_open(struct bench *b, const struct shape *s, const char *card,
                       const char *variant) {
    struct err err = {{0}};
    char device[256];
    struct shaped_sizes sizes = {.rows = ROWS_MAX,
                                 .seqs = 256,
                                 .tokens = ROWS_MAX + CONTEXT,
                                 .kv_tokens = 256 * (CONTEXT + 64)};
    snprintf(device, sizeof(device), "%s%s", card, variant);
    *b = (struct bench){.variant = variant};
    if (!shaped_open(&b->model, s, device, &sizes)) return false;
    struct peaks peaks = {0};
    const struct device *dev = &b->model.dev;
    if (dev->profiler->peaks(dev->self, &peaks, &err) == ST_OK) b->read_gbs = peaks.read_gbs;
    return true;
}

static void measure_shape(struct checks *c, const struct shape *s, const char *variant,
                          uint32_t prompt_max) {
    static struct bench b;
    static const uint32_t batches[] = {1, 4, 8, 16, 32, 64, 128, 256};
    if (!bench_open(&b, s, c->device, variant)) {
        check_that(c, false, "%s%s cannot be run", s->name, variant);
        return;
    }
    printf("  memory can be read at %.0f GB/s\n", b.read_gbs);
    for (size_t k = 0; k < sizeof(batches) / sizeof(batches[0]); k++)
        measure(&b, batches[k], 1, CONTEXT);
    for (uint32_t rows = 512; rows <= prompt_max; rows *= 4) measure(&b, 1, rows, 0);
    shaped_close(&b.model);
}

/* ---- variants beside each other ---- */

enum { ROUNDS = 3 };

/* The least of some rounds: others on the machine only ever add to a time. */
static double least_us(struct shaped *m, uint32_t seqs, uint32_t rows) {
    double least = 0;
    shaped_set_step(m, seqs, rows, rows > 1 ? 0 : CONTEXT);
    shaped_run(m, 3);
    for (int i = 0; i < ROUNDS; i++) {
        double us = shaped_run(m, rows > 1 ? 2 : STEPS);
        if (i == 0 || us < least) least = us;
    }
    return least;
}

/* By kinds of ops, with events between them. */
static void measure_details(struct bench *b) {
    measure(b, 1, 1, CONTEXT);
    measure(b, 8, 1, CONTEXT);
    measure(b, 128, 1, CONTEXT);
    measure(b, 256, 1, CONTEXT);
    measure(b, 1, ROWS_MAX, 0);
}

/* Under the names of figures that others read: 8B shapes, context 512. */
static void keep_figure(struct checks *c, const struct shape *s, uint32_t seqs, uint32_t rows,
                        double per_s) {
    static const struct {
        const char *key;
        uint32_t seqs, rows;
    } known[] = {{"decode_b1", 1, 1},
                 {"decode_b32", 32, 1},
                 {"decode_b128", 128, 1},
                 {"decode_b256", 256, 1},
                 {"prompt_2k", 1, 2048}};
    if (strncmp(s->name, "8B-", 3) != 0) return;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].seqs == seqs && known[i].rows == rows)
            check_figure(c, known[i].key, s->name + 3, per_s);
}

static void compare_shape(struct checks *c, const struct shape *s, const char *variant,
                          const uint32_t (*steps)[2], uint32_t count) {
    static struct bench b;
    if (!bench_open(&b, s, c->device, variant)) {
        check_that(c, false, "%s%s cannot be run", s->name, variant);
        return;
    }
    printf("  %-10s%-44s %5.0f GB/s |", s->name, variant, b.read_gbs);
    check_figure(c, "ceilings", "read_gbs", b.read_gbs);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t seqs = steps[i][0], rows = steps[i][1];
        double us = least_us(&b.model, seqs, rows), per_s = us > 0 ? seqs * rows * 1e6 / us : 0.0;
        printf(" %ux%u %.0f us %.0f/s", seqs, rows, us, per_s);
        keep_figure(c, s, seqs, rows, per_s);
        fflush(stdout);
    }
    printf("\n");
    if (c->has_details) measure_details(&b);
    fflush(stdout);
    shaped_close(&b.model);
}

/* Those of the device's name, beside what `--variants` lists with a slash between. */
void suite_compare(struct checks *c) {
    static const uint32_t steps[][2] = {{1, 1},  {2, 1},  {4, 1},   {8, 1},   {16, 1},
                                        {32, 1}, {64, 1}, {128, 1}, {256, 1}, {1, 2048}};
    char variant[256];
    const char *at = c->variants;
    const struct shape *s = shape_find(c->shape ? c->shape : "8B-bf16");
    check_that(c, s != NULL, "unknown shape \"%s\"", c->shape);
    while (s && at) {
        size_t len = strcspn(at, "/");
        snprintf(variant, sizeof(variant), "%.*s", (int)len, at);
        compare_shape(c, s, variant, steps, sizeof(steps) / sizeof(steps[0]));
        at = at[len] == '/' ? at + len + 1 : NULL;
    }
}

void suite_time(struct checks *c) {
    measure_shape(c, shape_find("0.6B-bf16"), "", ROWS_MAX);
    measure_shape(c, shape_find("0.6B-bf16"), ",graphs=off", 0);
    measure_shape(c, shape_find("0.6B-bf16"), ",graphs=off,fusion=off", 0);
    measure_shape(c, shape_find("0.6B-bf16"), ",attention=plain", ROWS_MAX);
    measure_shape(c, shape_find("8B-bf16"), "", ROWS_MAX);
    measure_shape(c, shape_find("8B-bf16"), ",attention=plain", 0);
    measure_shape(c, shape_find("0.6B-Q4_K"), "", ROWS_MAX);
    measure_shape(c, shape_find("0.6B-Q4_K"), ",codes=plain", 0);
    measure_shape(c, shape_find("8B-Q8_0"), "", ROWS_MAX);
}
