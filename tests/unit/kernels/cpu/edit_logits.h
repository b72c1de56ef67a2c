/* unit/kernels/cpu/edit_logits.h - change logits between the forward pass and the sampling of a
 * CPU program, as a broken kernel would.
 *
 * Included by one file of a program, which says "wrap: cpu_program_create cpu_program_submit
 * pool_run" on one line and defines edit_logits. A submit has its threads sample through a second
 * pool_run, whose context is the program: that is where the edit comes in.
 *
 * Thread: steps are submitted on one.
 */
#ifndef TESTS_EDIT_LOGITS_H
#define TESTS_EDIT_LOGITS_H

#include "base/pool.h"
#include "graph/tape.h"
#include "kernels/cpu/cpu.h"
#include "unit/kernels/cpu/programs.h"

/* Before a step samples: the logits of its outputs, output r at rows + r * row_floats. */
struct logits {
    const struct step *step;
    float *rows;
    size_t row_floats;
    uint32_t vocab, threads;
};
static void edit_logits(const struct logits *l); /* the includer's */

static struct {
    struct device_program *program;
    const struct step *step;
} submitted;

enum status __real_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err);
enum status __wrap_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err);
void __real_pool_run(struct pool *pool, pool_fn *fn, void *ctx);
void __wrap_pool_run(struct pool *pool, pool_fn *fn, void *ctx);

enum status __wrap_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err) {
    submitted.program = p;
    submitted.step = step;
    enum status st = __real_cpu_program_submit(self, p, step, err);
    submitted.program = NULL;
    return st;
}

void __wrap_pool_run(struct pool *pool, pool_fn *fn, void *ctx) {
    if (submitted.program && ctx == submitted.program) {
        const struct tape *t = program_find(submitted.program)->tape;
        const struct tape_value *v = tape_value_at(t, tape_output(t));
        struct logits l = {.step = submitted.step,
                           .rows = (float *)(void *)(cpu_program_slab(ctx) + v->offset),
                           .row_floats = v->row_bytes / sizeof(float),
                           .vocab = v->cols,
                           .threads = pool_threads(pool)};
        edit_logits(&l);
    }
    __real_pool_run(pool, fn, ctx);
}

#endif
