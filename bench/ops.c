/* bench/ops.c - how fast each op runs, beside what the same machine reads in the same minute.
 *
 * Usage: bench/ops [threads] [isa] [word]
 *
 * With a word, only the ops that have it in their name are timed.
 * Every line is one op on random data: the best and the median of REPEATS timed batches, bytes
 * of weights or cache read, and the share of the read bandwidth measured at the start. Lines
 * marked "cold" walk through more weights than the caches hold, as a forward pass does.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "graph/device.h"
#include "graph/step.h"
#include "graph/tape.h"
#include "kernels/cpu/cpu.h"
#include "tensor/q8.h"

enum { REPEATS = 15, ROWS_MAX = 512, BATCH_US = 3000, COLD_BYTES = 192 << 20 };

struct bench {
    struct device dev;
    uint32_t threads;
    double read_gbs;
    const char *word;
    struct step_seq seq;
    struct step step;
    int32_t token[ROWS_MAX], pos[ROWS_MAX];
    uint32_t seq_of[ROWS_MAX], output_row[ROWS_MAX];
    uint32_t *blocks;
};

static int64_t now_us(void) { return clock_now(&clock_real); }

static void must(enum status st, const struct err *err) {
    if (st == ST_OK) return;
    fprintf(stderr, "bench: %s\n", err->text);
    exit(EXIT_FAILURE);
}

enum { STREAMS = 4, LINE_WORDS = 8, AHEAD_WORDS = 512, READ_REPEATS = 60, READ_BYTES = 96 << 20 };

struct reading {
    const uint64_t *words;
    size_t count;
    uint64_t sums[POOL_THREADS_MAX];
};

/* A thread reads its share as several streams with prefetching: what the memory gives, not
 * what one chain of loads can ask for. */
static void read_share(void *ctx, uint32_t ith, uint32_t nth) {
    struct reading *r = ctx;
    size_t stream = r->count / nth / STREAMS / LINE_WORDS * LINE_WORDS;
    const uint64_t *from = r->words + r->count / nth * ith;
    uint64_t sum = 0;
    for (size_t i = 0; i < stream; i += LINE_WORDS)
        for (size_t s = 0; s < STREAMS; s++) {
            const uint64_t *line = from + s * stream + i;
            __builtin_prefetch(line + AHEAD_WORDS);
            for (int w = 0; w < LINE_WORDS; w++) sum += line[w];
        }
    r->sums[ith] = sum;
}

static double read_bandwidth(struct bench *b) {
    struct pool *pool;
    struct err err = {{0}};
    static struct reading r;
    r.count = READ_BYTES / sizeof(uint64_t);
    uint64_t *words = b->dev.alloc(b->dev.self, READ_BYTES);
    if (!words) must(ST_NOMEM, &(struct err){"out of memory"});
    memset(words, 1, READ_BYTES);
    r.words = words;
    must(pool_create(&pool, b->threads, &err), &err);
    int64_t best = INT64_MAX;
    for (int i = 0; i < READ_REPEATS; i++) {
        int64_t start = now_us();
        pool_run(pool, read_share, &r);
        int64_t us = now_us() - start;
        if (us < best) best = us;
    }
    pool_destroy(pool);
    b->dev.free(b->dev.self, words, READ_BYTES);
    return (double)READ_BYTES / (double)best / 1e3;
}

/* A tape and its memory. */
struct pass {
    struct tape *tape;
    uint8_t *slab;
    const struct kv_space *kv;
};

static struct pass pass_make(struct bench *b, struct tape *t) {
    struct err err = {{0}};
    struct pass p = {.tape = t};
    must(tape_finish(t, &(struct tape_sizes){ROWS_MAX, ROWS_MAX, 1}, &err), &err);
    must(b->dev.check(b->dev.self, t, &err), &err);
    p.slab = b->dev.alloc(b->dev.self, tape_slab_bytes(t));
    if (!p.slab) must(ST_NOMEM, &(struct err){"out of memory"});
    for (uint32_t v = 0; v < tape_value_count(t); v++) {
        const struct tape_value *value = tape_value_at(t, (value_id)v);
        float *row = mem_alloc_array(value->cols, sizeof(float));
        for (uint32_t c = 0; c < value->cols; c++) row[c] = (float)(rng_unit_at(1, v, c) * 2 - 1);
        for (uint32_t r = 0; r < ROWS_MAX; r++) {
            uint8_t *to = p.slab + value->offset + r * value->row_bytes;
            if (value->type == VALUE_Q8)
                q8_quantise(row, value->cols, to);
            else if (value->type == VALUE_F32)
                memcpy(to, row, value->cols * sizeof(float));
        }
        mem_free(row);
    }
    return p;
}

static void pass_free(struct bench *b, struct pass *p) {
    b->dev.free(b->dev.self, p->slab, tape_slab_bytes(p->tape));
    tape_destroy(p->tape);
}

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* `bytes` and `ops` are those of one run of the tape. */
static void measure(struct bench *b, const char *name, const struct pass *p, double bytes,
                    double ops) {
    struct device_run run = {.tape = p->tape, .step = &b->step, .slab = p->slab, .kv = p->kv};
    double us[REPEATS];
    if (!strstr(name, b->word)) return;
    b->dev.run(b->dev.self, &run);
    int64_t start = now_us();
    b->dev.run(b->dev.self, &run);
    int64_t one = now_us() - start + 1;
    int count = one < BATCH_US ? (int)(BATCH_US / one) : 1;
    for (int i = 0; i < REPEATS; i++) {
        start = now_us();
        for (int j = 0; j < count; j++) b->dev.run(b->dev.self, &run);
        us[i] = (double)(now_us() - start) / count;
    }
    qsort(us, REPEATS, sizeof(us[0]), order);
    double gbs = bytes / us[0] / 1e3;
    printf("%-34s %10.1f %10.1f %8.1f %6.0f%% %9.1f\n", name, us[0], us[REPEATS / 2], gbs,
           100 * gbs / b->read_gbs, ops / us[0] / 1e3);
    fflush(stdout);
}

static void set_rows(struct bench *b, uint32_t rows, uint32_t first_pos) {
    for (uint32_t r = 0; r < rows; r++) b->pos[r] = (int32_t)(first_pos + r);
    b->seq.row_count = rows;
    b->step.row_count = rows;
    b->step.output_count = rows;
}

/* A weight of zeros: the speed does not depend on the numbers. */
static struct weight make_weight(struct bench *b, enum dtype type, uint32_t rows, uint32_t cols) {
    struct weight w = {.type = type, .rows = rows, .cols = cols, .experts = 1};
    struct err err = {{0}};
    if (!dtype_bytes(type, (uint64_t)rows * cols, &w.bytes)) exit(EXIT_FAILURE);
    w.data = b->dev.alloc(b->dev.self, w.bytes);
    if (!w.data) must(ST_NOMEM, &(struct err){"out of memory"});
    must(b->dev.prepare(b->dev.self, &w, &err), &err);
    return w;
}

/* `copies` products in a row, each with its own weight. */
static void bench_matmul(struct bench *b, enum dtype type, uint32_t n, uint32_t k, bool cold) {
    static const uint32_t row_counts[] = {1, 4, 32, 256};
    enum { COPIES_MAX = 256 };
    static struct weight w[COPIES_MAX];
    struct tape *t;
    uint32_t copies = 0;
    size_t total = 0;
    if (tape_create(&t) != ST_OK) exit(EXIT_FAILURE);
    bool quantised = dtype_is_quantised(type);
    value_id src = tape_value(t, "src", ROWS_TOKENS, quantised ? VALUE_Q8 : VALUE_F32, k);
    value_id dst = tape_value(t, "dst", ROWS_TOKENS, VALUE_F32, n);
    do {
        w[copies] = make_weight(b, type, n, k);
        total += w[copies].bytes;
        struct op op = {.kind = OP_MATMUL};
        op.matmul = (struct op_matmul){.parts = {{&w[copies], NULL}},
                                       .part_count = 1,
                                       .src = tape_all(t, src),
                                       .dst = tape_all(t, dst)};
        tape_push(t, &op);
        copies++;
    } while (cold && total < COLD_BYTES && copies < COPIES_MAX);
    tape_set_output(t, dst);
    struct pass p = pass_make(b, t);
    for (int i = 0; i < 4; i++) {
        char name[64];
        set_rows(b, row_counts[i], 0);
        snprintf(name, sizeof(name), "matmul %s %ux%u M=%u%s", dtype_info(type)->name, n, k,
                 row_counts[i], cold ? " cold" : "");
        measure(b, name, &p, (double)total, 2.0 * n * k * row_counts[i] * copies);
    }
    pass_free(b, &p);
    for (uint32_t i = 0; i < copies; i++)
        b->dev.free(b->dev.self, (void *)(uintptr_t)w[i].data, w[i].bytes);
}

static void bench_attention(struct bench *b, enum kv_type type, uint32_t rows, uint32_t ctx) {
    static const char *const names[] = {[KV_F16] = "f16", [KV_F32] = "f32", [KV_I8] = "int8"};
    enum { HEADS = 9, KV_HEADS = 3, DIM = 64 };
    struct kv_space kv = {.type = type,
                          .layers = 1,
                          .heads = KV_HEADS,
                          .head_dim = DIM,
                          .block_count = ctx / KV_BLOCK_TOKENS + 1};
    kv.base = b->dev.alloc(b->dev.self, kv_space_bytes(&kv));
    struct tape *t;
    if (!kv.base || tape_create(&t) != ST_OK) exit(EXIT_FAILURE);
    value_id q = tape_value(t, "q", ROWS_TOKENS, VALUE_F32, HEADS * DIM);
    value_id o = tape_value(t, "o", ROWS_TOKENS, VALUE_Q8, HEADS * DIM);
    struct op op = {.kind = OP_ATTENTION};
    op.attention = (struct op_attention){.heads = HEADS,
                                         .kv_heads = KV_HEADS,
                                         .head_dim = DIM,
                                         .scale = 0.125f,
                                         .q = tape_all(t, q),
                                         .dst = operand_none,
                                         .q8 = tape_all(t, o)};
    tape_push(t, &op);
    tape_set_output(t, o);
    struct pass p = pass_make(b, t);
    p.kv = &kv;
    set_rows(b, rows, ctx - rows);
    char name[64];
    snprintf(name, sizeof(name), "attention %s 9/3x64 T=%u ctx=%u", names[type], rows, ctx);
    double seen = (double)rows * (ctx - rows / 2.0);
    double bytes = (double)kv_layer_bytes(&kv) * ctx / KV_BLOCK_TOKENS;
    measure(b, name, &p, bytes, 4.0 * HEADS * DIM * seen);
    pass_free(b, &p);
    b->dev.free(b->dev.self, kv.base, kv_space_bytes(&kv));
}

/* Norm, rope, act and quant of `rows` rows; bytes are those read and written. */
static void bench_rows(struct bench *b, uint32_t rows) {
    enum { COLS = 1536, HEADS = 9, DIM = 64 };
    static float weight[COLS], freqs[DIM / 2];
    struct op ops[3] = {{.kind = OP_NORM}, {.kind = OP_ACT}, {.kind = OP_ROPE}};
    static const char *const names[] = {"norm 1536 to q8", "silu 1536 to q8", "rope 9x64"};
    static const double bytes[] = {COLS * 5.6, COLS * 9.6, HEADS * DIM * 8.0};
    for (int i = 0; i < 3; i++) {
        struct tape *t;
        if (tape_create(&t) != ST_OK) exit(EXIT_FAILURE);
        value_id x = tape_value(t, "x", ROWS_TOKENS, VALUE_F32, i == 2 ? HEADS * DIM : 2 * COLS);
        value_id y = i == 2 ? x : tape_value(t, "y", ROWS_TOKENS, VALUE_Q8, COLS);
        struct operand first = {x, 0, COLS}, second = {x, COLS, COLS};
        struct operand none = operand_none, q8 = tape_all(t, y);
        if (i == 0)
            ops[i].norm = (struct op_norm){NORM_RMS, COLS, 1e-5f, weight, NULL, first, none, q8};
        else if (i == 1)
            ops[i].act = (struct op_act){ACT_SILU, 1, 0, first, second, none, q8};
        else
            ops[i].rope = (struct op_rope){ROPE_NEOX, HEADS, DIM, DIM, freqs, 1.0f, tape_all(t, x)};
        tape_push(t, &ops[i]);
        tape_set_output(t, x);
        struct pass p = pass_make(b, t);
        char name[64];
        set_rows(b, rows, 0);
        snprintf(name, sizeof(name), "%s T=%u", names[i], rows);
        measure(b, name, &p, bytes[i] * rows, 0);
        pass_free(b, &p);
    }
}

int main(int argc, char **argv) {
    static struct bench b;
    struct err err = {{0}};
    b.threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : pool_default_threads();
    if (b.threads < 1 || b.threads > POOL_THREADS_MAX) return EXIT_FAILURE;
    must(cpu_device_open(argc > 2 ? argv[2] : "auto", b.threads, &b.dev, &err), &err);
    b.word = argc > 3 ? argv[3] : "";
    b.blocks = mem_zalloc_array(1 << 16, sizeof(*b.blocks));
    if (!b.blocks) return EXIT_FAILURE;
    for (uint32_t i = 0; i < 1 << 16; i++) b.blocks[i] = i;
    for (int g = 0; g < KV_GROUPS_MAX; g++) b.seq.blocks[g] = b.blocks;
    b.step = (struct step){.seq_count = 1,
                           .token = b.token,
                           .pos = b.pos,
                           .seq = b.seq_of,
                           .output_row = b.output_row,
                           .seqs = &b.seq};
    b.read_gbs = read_bandwidth(&b);
    printf("%s, %u threads; reads %.1f GB/s (best of %d)\n", b.dev.name, b.threads, b.read_gbs,
           READ_REPEATS);
    printf("%-34s %10s %10s %8s %7s %9s\n", "op", "best us", "median us", "GB/s", "share", "Gop/s");

    bench_matmul(&b, DTYPE_Q4_1, 1536, 576, true);
    bench_matmul(&b, DTYPE_Q8_0, 49152, 576, true);
    bench_matmul(&b, DTYPE_Q4_0, 4096, 4096, true);
    bench_matmul(&b, DTYPE_Q4_K, 4096, 4096, true);
    bench_matmul(&b, DTYPE_Q6_K, 4096, 4096, true);
    bench_matmul(&b, DTYPE_F16, 1536, 576, true);
    bench_matmul(&b, DTYPE_F32, 1536, 576, true);
    bench_matmul(&b, DTYPE_Q4_1, 1536, 576, false);
    static const enum kv_type kv_types[] = {KV_F16, KV_I8};
    for (int i = 0; i < 2; i++) {
        bench_attention(&b, kv_types[i], 1, 512);
        bench_attention(&b, kv_types[i], 1, 2048);
        bench_attention(&b, kv_types[i], 1, 8192);
        bench_attention(&b, kv_types[i], 256, 512);
    }
    bench_rows(&b, 1);
    bench_rows(&b, 64);
    b.dev.close(b.dev.self);
    mem_free(b.blocks);
    return 0;
}
