/* kernels/cuda/profile.c - where the time of a step goes: an event behind every op of a tape.
 *
 * The events keep ops from running into each other and cost some microseconds each, so that the
 * times of a watched step add up to more than an unwatched one takes.
 *
 * Entry points: cuda_profiler, cuda_watch_mark, cuda_watch_tell.
 */
#include <cuda_runtime_api.h>

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cuda/cuda_int.h"

struct cuda_watch {
    device_watch_fn *fn;
    void *ctx;
    cudaEvent_t *events; /* [op_cap + 1]: before the first op, and behind each */
    int64_t *work_ns, *wait_ns;
    uint32_t op_cap;
};

static void watch_deinit(struct cuda_watch *w) {
    for (uint32_t i = 0; w->events && i <= w->op_cap; i++)
        if (w->events[i]) cudaEventDestroy(w->events[i]);
    mem_free(w->events);
    mem_free(w->work_ns);
    mem_free(w->wait_ns);
}

void cuda_watch_destroy(struct cuda_watch *w) {
    if (!w) return;
    watch_deinit(w);
    mem_free(w);
}

/* Room for a tape; false: there is none. */
static bool make_room(struct cuda_watch *w, uint32_t op_count) {
    if (op_count <= w->op_cap) return true;
    watch_deinit(w);
    w->op_cap = op_count;
    w->events = mem_zalloc_array(op_count + (size_t)1, sizeof(cudaEvent_t));
    w->work_ns = mem_zalloc_array(op_count, sizeof(int64_t));
    w->wait_ns = mem_zalloc_array(op_count, sizeof(int64_t));
    bool is_made = w->events && w->work_ns && w->wait_ns;
    for (uint32_t i = 0; is_made && i <= op_count; i++)
        is_made = cudaEventCreate(&w->events[i]) == cudaSuccess;
    if (!is_made) w->op_cap = 0;
    return is_made;
}

void cuda_watch_mark(struct cuda_watch *w, const struct tape *t, uint32_t ops_done,
                     struct CUstream_st *stream) {
    if (!w || !make_room(w, tape_op_count(t))) return;
    cudaEventRecord(w->events[ops_done], stream);
}

void cuda_watch_tell(struct cuda_watch *w, const struct device_run *run) {
    uint32_t count = tape_op_count(run->tape);
    float ms = 0.0f;
    if (!w || w->op_cap < count) return;
    cudaEventSynchronize(w->events[count]);
    for (uint32_t i = 0; i < count; i++) {
        cudaEventElapsedTime(&ms, w->events[i], w->events[i + 1]);
        w->work_ns[i] = (int64_t)((double)ms * 1e6);
    }
    cudaEventElapsedTime(&ms, w->events[0], w->events[count]);
    struct device_times times = {.thread_count = 1,
                                 .op_count = count,
                                 .run_ns = (int64_t)((double)ms * 1e6),
                                 .work_ns = w->work_ns,
                                 .wait_ns = w->wait_ns};
    w->fn(w->ctx, run, &times);
}

/* ---- the plug ---- */

static enum status profiler_watch(void *self, device_watch_fn *fn, void *ctx) {
    struct cuda_device *dev = self;
    cuda_enter(dev);
    cuda_watch_destroy(dev->watch);
    dev->watch = NULL;
    if (!fn) return ST_OK;
    dev->watch = mem_zalloc(sizeof(*dev->watch));
    if (!dev->watch) return ST_NOMEM;
    dev->watch->fn = fn;
    dev->watch->ctx = ctx;
    return ST_OK;
}

/* The best of some reads of a gigabyte; 0 where there is no room for one. */
static double measure_read_gbs(struct cuda_device *dev) {
    enum { READ_BYTES = 1 << 30, READS = 8 };
    cudaEvent_t begin, end;
    double best_ms = 0;
    uint8_t *memory = cuda_take(dev, READ_BYTES);
    if (!memory) return 0;
    if (cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess) {
        for (int i = 0; i < READS; i++) {
            float ms = 0.0f;
            cudaEventRecord(begin, dev->stream);
            cuda_read(memory, READ_BYTES, (uint32_t *)(void *)memory, dev->multiprocessors,
                      dev->stream);
            cudaEventRecord(end, dev->stream);
            cudaEventSynchronize(end);
            cudaEventElapsedTime(&ms, begin, end);
            if (best_ms <= 0 || (double)ms < best_ms) best_ms = (double)ms;
        }
        cudaEventDestroy(begin);
        cudaEventDestroy(end);
    }
    cuda_give(dev, memory, READ_BYTES);
    return best_ms > 0 ? READ_BYTES / best_ms / 1e6 : 0;
}

/* Memory alone is measured: decoding is bound by it. */
static enum status profiler_peaks(void *self, struct peaks *out, struct err *err) {
    struct cuda_device *dev = self;
    cuda_enter(dev);
    *out = (struct peaks){.read_gbs = measure_read_gbs(dev), .int8_name = "", .f32_name = ""};
    return cuda_check("measuring memory", err);
}

/* How much less the product's weights have here than in the file. */
static uint64_t saved_bytes(const struct op *op) {
    uint64_t saved = 0;
    for (uint32_t i = 0; op->kind == OP_MATMUL && i < op->matmul.part_count; i++) {
        const struct weight *w = op->matmul.parts[i].weight;
        const struct cuda_matrix *m = cuda_matrix_of(w);
        uint64_t bytes = m->expert_elems + m->rows * sizeof(float);
        if (m->form == CUDA_FP8 && bytes < w->bytes) saved += w->bytes - bytes;
    }
    return saved;
}

static struct work profiler_op_work(void *self, const struct device_run *run, const struct op *op) {
    (void)self;
    uint32_t i = (uint32_t)(op - tape_op(run->tape, 0)), ctx = 0;
    const struct step *s = run->step;
    for (uint32_t r = 0; r < s->row_count; r++)
        if (s->pos[r] >= (int32_t)ctx) ctx = (uint32_t)s->pos[r] + 1;
    struct op_cost cost = tape_op_cost(run->tape, i, s->row_count, ctx);
    return (struct work){.memory_bytes = (double)(cost.bytes - saved_bytes(op)),
                         .f32_ops = (double)cost.flops};
}

const struct device_profiler cuda_profiler = {
    .watch = profiler_watch,
    .peaks = profiler_peaks,
    .op_work = profiler_op_work,
};
