/* bench/ops/rig.c - see bench/ops/rig.h. */
#include "ops/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu.h"
#include "tensor/q8.h"

enum {
    REPEATS = 15,
    BATCH_NS = 1000000,
    LAP_NS_MIN = 10000,
    BUDGET_NS = 500000000,
    LAPS_MAX = 4096
};

void must(enum status st, const struct err *err) {
    if (st == ST_OK) return;
    fprintf(stderr, "bench: %s\n", err->text);
    exit(EXIT_FAILURE);
}

/* The CPU's memory is the host's. */
static uint8_t *bytes_at(device_addr addr) { return (uint8_t *)(uintptr_t)addr; }

static device_addr must_alloc(struct bench *b, size_t bytes) {
    device_addr addr = b->dev.alloc(b->dev.self, bytes);
    if (!addr) must(ST_NOMEM, &(struct err){"out of memory"});
    return addr;
}

static const struct step_sizes sizes = {.rows_max = ROWS_MAX,
                                        .outputs_max = ROWS_MAX,
                                        .seqs_max = SEQS_MAX,
                                        .group_count = 1,
                                        .blocks_max = BLOCKS_MAX};

void bench_open(struct bench *b) {
    struct err err = {{0}};
    must(cpu_device_open(b->isa, b->threads, &b->dev, &err), &err);
    must(step_create(&b->step, &b->dev, &sizes, &err), &err);
    for (uint32_t i = 0; i < BLOCKS_MAX; i++) step_blocks(b->step, 0, 0)[i] = i;
    for (uint32_t i = 0; i < ROWS_MAX; i++) b->step->output_row[i] = i;
    b->step->seq_count = 1;
    b->step->hands_over = true;
}

void bench_close(struct bench *b) {
    step_destroy(b->step, &b->dev);
    b->dev.close(b->dev.self);
}

void bench_set_rows(struct bench *b, uint32_t rows, uint32_t ctx) {
    for (uint32_t r = 0; r < rows; r++) b->step->pos[r] = (int32_t)(ctx - rows + r);
    for (uint32_t r = 0; r < rows; r++) b->step->seq[r] = 0;
    b->step->seqs[0].row_count = rows;
    b->step->seq_count = 1;
    b->step->row_count = rows;
    b->step->output_count = rows;
}

void bench_set_seqs(struct bench *b, uint32_t seqs, uint32_t ctx) {
    uint32_t blocks = ctx / b->dev.kv_block_tokens;
    for (uint32_t s = 0; s < seqs; s++) {
        b->step->pos[s] = (int32_t)ctx - 1;
        b->step->seq[s] = s;
        b->step->seqs[s] = (struct step_seq){s, 1};
        for (uint32_t i = 0; i < blocks; i++) step_blocks(b->step, s, 0)[i] = s * blocks + i;
    }
    b->step->seq_count = b->step->row_count = b->step->output_count = seqs;
}

bool bench_wants(const struct bench *b, const char *name) { return strstr(name, b->word); }

struct tape *tape_begin(void) {
    struct tape *t;
    if (tape_create(&t) != ST_OK) must(ST_NOMEM, &(struct err){"out of memory"});
    return t;
}

struct operand new_f32(struct tape *t, const char *name, uint32_t cols) {
    return tape_all(t, tape_value(t, name, ROWS_TOKENS, VALUE_F32, cols));
}

struct operand new_q8(struct tape *t, const char *name, uint32_t cols) {
    return tape_all(t, tape_value(t, name, ROWS_TOKENS, VALUE_Q8, cols));
}

static void fill_value(const struct pass *p, uint32_t v) {
    const struct tape_value *value = tape_value_at(p->tape, (value_id)v);
    float *row = mem_alloc_array(value->cols, sizeof(float));
    if (!row) must(ST_NOMEM, &(struct err){"out of memory"});
    for (uint32_t c = 0; c < value->cols; c++) row[c] = (float)(rng_unit_at(1, v, c) * 2 - 1);
    for (uint32_t r = 0; r < ROWS_MAX && (value->rows != ROWS_SEQS || r == 0); r++) {
        uint8_t *to = cpu_program_slab(p->program) + value->offset + r * value->row_bytes;
        if (value->type == VALUE_Q8)
            q8_quantise(row, value->cols, to);
        else if (value->type == VALUE_F32)
            memcpy(to, row, value->cols * sizeof(float));
        else /* experts: every row has others */
            for (uint32_t c = 0; c < value->cols; c++)
                ((int32_t *)(void *)to)[c] = (int32_t)((r * value->cols + c) % 8);
    }
    mem_free(row);
}

struct kv_space kv_make(struct bench *b, enum kv_type type, uint32_t heads, uint32_t head_dim,
                        uint32_t tokens) {
    struct kv_space kv = {.shape = {.type = type,
                                    .layers = 1,
                                    .heads = heads,
                                    .head_dim = head_dim,
                                    .block_tokens = b->dev.kv_block_tokens},
                          .block_count = tokens / b->dev.kv_block_tokens};
    kv.block_bytes = b->dev.kv_block_bytes(b->dev.self, &kv.shape);
    kv.base = must_alloc(b, kv.block_count * kv.block_bytes);
    /* Untouched pages would all be one page of zeros. */
    memset(bytes_at(kv.base), 1, kv.block_count * kv.block_bytes);
    return kv;
}

void kv_free(struct bench *b, struct kv_space *kv) {
    b->dev.free(b->dev.self, kv->base, kv->block_count * kv->block_bytes);
}

struct pass pass_make(struct bench *b, struct tape *t, const struct kv_space *kv) {
    struct err err = {{0}};
    struct pass p = {.tape = t, .kv = kv};
    struct program_options o = {.tape = t, .kv = kv, .kv_group_count = kv ? 1 : 0, .sizes = sizes};
    must(tape_finish(t, &(struct tape_sizes){ROWS_MAX, ROWS_MAX, SEQS_MAX}, &err), &err);
    must(b->dev.program_create(b->dev.self, &o, &p.program, &err), &err);
    for (uint32_t v = 0; v < tape_value_count(t); v++) fill_value(&p, v);
    return p;
}

void pass_free(struct bench *b, struct pass *p) {
    b->dev.program_destroy(b->dev.self, p->program);
    tape_destroy(p->tape);
}

/* Bytes of which any two make an ordinary f16 below 1 and any four an ordinary float, so that every
 * scale is one, whatever the format; kernels may be slower with scales of zero. */
static void fill_bytes(uint8_t *data, size_t count) {
    enum { LEAST = 0x20, MOST = 0x3B };
    uint64_t bits = 0;
    for (size_t i = 0; i < count; i++, bits >>= 8) {
        if (i % sizeof(bits) == 0) bits = rng_at(7, 0, i);
        data[i] = (uint8_t)(LEAST + (bits & 0xFF) % (MOST - LEAST));
    }
}

struct weight weight_make(struct bench *b, enum dtype type, uint32_t rows, uint32_t cols,
                          uint32_t experts) {
    struct weight w = {.type = type, .rows = rows, .cols = cols, .experts = experts};
    struct err err = {{0}};
    if (!dtype_bytes(type, (uint64_t)rows * cols * experts, &w.bytes)) exit(EXIT_FAILURE);
    uint8_t *data = bytes_at(must_alloc(b, w.bytes));
    fill_bytes(data, w.bytes);
    w.data = data;
    must(b->dev.prepare(b->dev.self, &w, &err), &err);
    return w;
}

void weight_free(struct bench *b, struct weight *w) {
    b->dev.free(b->dev.self, (device_addr)(uintptr_t)w->data, w->bytes);
}

/* ---- timing ---- */

struct timing {
    double best_us, median_us;
};

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run_step(struct bench *b, const struct pass *p) {
    struct device_result result;
    struct err err = {{0}};
    must(b->dev.submit(b->dev.self, p->program, b->step, &err), &err);
    must(b->dev.collect(b->dev.self, p->program, &result, &err), &err);
}

static double time_runs(struct bench *b, const struct pass *p, int64_t count) {
    int64_t begin_ns = clock_fine_ns();
    for (int64_t i = 0; i < count; i++) run_step(b, p);
    return (double)(clock_fine_ns() - begin_ns) / (double)count;
}

/* Batches of runs, each long enough for the clock. */
static struct timing time_batches(struct bench *b, const struct pass *p, double one_ns) {
    double us[REPEATS];
    int64_t count = (int64_t)(BATCH_NS / (one_ns + 1)) + 1;
    for (int i = 0; i < REPEATS; i++) us[i] = time_runs(b, p, count) / 1e3 / tape_op_count(p->tape);
    qsort(us, REPEATS, sizeof(us[0]), order);
    return (struct timing){us[0], us[REPEATS / 2]};
}

/* Times of single ops, all threads' mean, as the device tells them. */
struct laps {
    double us[LAPS_MAX];
    uint32_t count;
};

static void take_laps(void *ctx, const struct device_run *run, const struct device_times *t) {
    struct laps *l = ctx;
    (void)run;
    for (uint32_t op = 0; op < t->op_count && l->count < LAPS_MAX; op++) {
        int64_t sum_ns = 0;
        for (uint32_t i = 0; i < t->thread_count; i++) {
            size_t at = (size_t)i * t->op_count + op;
            sum_ns += t->work_ns[at] + t->wait_ns[at];
        }
        l->us[l->count++] = (double)sum_ns * 1e-3 / t->thread_count;
    }
}

/* Op by op: what interrupts a long run then spoils a few of its ops and not all. The best is what
 * one in ten reaches, since some may find a part of their weights in a cache. */
static struct timing time_laps(struct bench *b, const struct pass *p) {
    static struct laps l;
    int64_t begin_ns = clock_fine_ns();
    l.count = 0;
    must(b->dev.profiler->watch(b->dev.self, take_laps, &l), &(struct err){"out of memory"});
    for (int i = 0; i < REPEATS && l.count < LAPS_MAX; i++) {
        if (i > 0 && clock_fine_ns() - begin_ns > BUDGET_NS) break;
        run_step(b, p);
    }
    b->dev.profiler->watch(b->dev.self, NULL, NULL);
    qsort(l.us, l.count, sizeof(l.us[0]), order);
    return (struct timing){l.us[l.count / 10], l.us[l.count / 2]};
}

static struct timing time_pass(struct bench *b, const struct pass *p) {
    run_step(b, p);
    double one_ns = time_runs(b, p, 1);
    bool is_long = one_ns > LAP_NS_MIN * (double)tape_op_count(p->tape);
    return is_long ? time_laps(b, p) : time_batches(b, p, one_ns);
}

static void print_case(struct bench *b, const char *name, struct timing t, const struct work *w) {
    struct least_time least = work_least(w, &b->peaks);
    double bytes = w->memory_bytes > 0 ? w->memory_bytes : w->cache_bytes;
    double gbs = bytes / t.best_us / 1e3, gops = (w->int8_ops + w->f32_ops) / t.best_us / 1e3;
    const char *bound = bound_name(least.bound);
    if (b->json)
        printf("%s\n{\"name\":\"%s\",\"best_us\":%.3f,\"median_us\":%.3f,\"gbs\":%.3f,"
               "\"gops\":%.3f,\"bound\":\"%s\",\"share\":%.4f}",
               b->printed ? "," : "", name, t.best_us, t.median_us, gbs, gops, bound,
               least.us / t.best_us);
    else
        printf("%-38s %11.1f %11.1f %8.1f %8.1f  %-6s %5.0f%%\n", name, t.best_us, t.median_us, gbs,
               gops, bound, 100 * least.us / t.best_us);
    b->printed++;
    fflush(stdout);
}

void bench_measure(struct bench *b, const struct pass *p, const char *name) {
    struct device_run run = {.tape = p->tape, .step = b->step, .kv = p->kv};
    if (!bench_wants(b, name)) return;
    struct timing t = time_pass(b, p);
    struct work work = b->dev.profiler->op_work(b->dev.self, &run, tape_op(p->tape, 0));
    print_case(b, name, t, &work);
}
