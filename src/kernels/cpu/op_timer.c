/* kernels/cpu/op_timer.c - see kernels/cpu/op_timer.h for the contract. */
#include "kernels/cpu/op_timer.h"

#include "base/check.h"
#include "base/mem.h"
#include "graph/tape.h"

struct op_timer {
    device_watch_fn *fn;
    void *ctx;
    int64_t *work_ns, *wait_ns; /* [thread_count][TAPE_OPS_MAX], used with the run's stride */
    int64_t *serial_ns; /* [TAPE_OPS_MAX] written by the last thread at a barrier, read after it */
    int64_t begin_ns;
    uint32_t thread_count, op_count;
};

struct op_timer *op_timer_create(uint32_t thread_count, device_watch_fn *fn, void *ctx) {
    CHECK(fn);
    struct op_timer *w = mem_zalloc(sizeof(*w));
    if (!w) return NULL;
    *w = (struct op_timer){.fn = fn, .ctx = ctx, .thread_count = thread_count};
    w->work_ns = mem_zalloc_array((size_t)thread_count * TAPE_OPS_MAX, sizeof(*w->work_ns));
    w->wait_ns = mem_zalloc_array((size_t)thread_count * TAPE_OPS_MAX, sizeof(*w->wait_ns));
    w->serial_ns = mem_zalloc_array(TAPE_OPS_MAX, sizeof(*w->serial_ns));
    if (w->work_ns && w->wait_ns && w->serial_ns) return w;
    op_timer_destroy(w);
    return NULL;
}

void op_timer_destroy(struct op_timer *w) {
    if (!w) return;
    mem_free(w->work_ns);
    mem_free(w->wait_ns);
    mem_free(w->serial_ns);
    mem_free(w);
}

void op_timer_begin(struct op_timer *w, const struct device_run *run) {
    w->op_count = tape_op_count(run->tape);
    w->begin_ns = clock_fine_ns();
}

void op_timer_end(struct op_timer *w, const struct device_run *run) {
    const struct device_times times = {.thread_count = w->thread_count,
                                       .op_count = w->op_count,
                                       .run_ns = clock_fine_ns() - w->begin_ns,
                                       .work_ns = w->work_ns,
                                       .wait_ns = w->wait_ns};
    w->fn(w->ctx, run, &times);
}

struct lap lap_begin(struct op_timer *w, uint32_t thread) {
    if (!w) return (struct lap){.work_ns = NULL};
    size_t first = (size_t)thread * w->op_count;
    return (struct lap){.work_ns = w->work_ns + first,
                        .wait_ns = w->wait_ns + first,
                        .serial_ns = w->serial_ns,
                        .last_ns = clock_fine_ns()};
}

struct lap lap_begin_serial(struct op_timer *w) {
    if (!w) return (struct lap){.work_ns = NULL};
    return (struct lap){.work_ns = w->serial_ns, .last_ns = clock_fine_ns()};
}

void lap_fill_barrier(struct lap *l, const struct lap_barrier *m) {
    for (uint32_t i = m->first; i < m->end; i++) l->wait_ns[i] = 0;
    lap_take(l, &l->wait_ns[m->end - 1]);
    for (uint32_t i = m->end; i < m->serial_end; i++) {
        l->wait_ns[m->end - 1] -= l->serial_ns[i];
        l->work_ns[i] = m->by_me ? l->serial_ns[i] : 0;
        l->wait_ns[i] = m->by_me ? 0 : l->serial_ns[i];
    }
}
