/* Goal:   how fast attention is by itself, as a share of what the card can do.
 * Method: one layer with the heads of the 8B shape, thin elsewhere. Steps run with an event after
 *         each op; the time of attention is the least of some rounds. Decoding is measured by the
 *         bytes of keys and values that it reads, as a share of the card's read ceiling; chunks of
 *         prompts by the operations of the positions that each row sees, in TFLOP/s. Over a cache
 *         of f16, then over one of fp8. */
#include <stdio.h>

#include "check.h"
#include "shaped.h"

enum { ROUNDS = 5, CHUNK_MAX = 8192, CONTEXT = 4096, SEQS_MAX = 256 };

struct watched {
    double attention_us; /* of the last step */
};

static void watch(void *ctx, const struct device_run *run, const struct device_times *times) {
    struct watched *w = ctx;
    w->attention_us = 0;
    for (uint32_t i = 0; i < times->op_count; i++)
        if (tape_op(run->tape, i)->kind == OP_ATTENTION)
            w->attention_us += (double)times->work_ns[i] / 1000;
}

static double least_us(struct shaped *m, uint32_t seqs, uint32_t rows, uint32_t first) {
    const struct device *dev = &m->dev;
    struct watched w = {0};
    double least = 0;
    shaped_set_step(m, seqs, rows, first);
    shaped_run(m, 2);
    dev->profiler->watch(dev->self, watch, &w);
    for (int i = 0; i < ROUNDS; i++) {
        shaped_run(m, 1);
        if (i == 0 || w.attention_us < least) least = w.attention_us;
    }
    dev->profiler->watch(dev->self, NULL, NULL);
    return least;
}

/* "decode_b32_4k_percent", of fp8 "decode_b32_4k_fp8_percent". */
static void keep(struct checks *c, const struct shaped *m, const char *what, const char *unit,
                 double value) {
    char name[64];
    snprintf(name, sizeof(name), "%s%s_%s", what, m->kv.shape.type == KV_F8 ? "_fp8" : "", unit);
    check_figure(c, "attention", name, value);
}

static void decode(struct checks *c, struct shaped *m, uint32_t seqs, uint32_t context,
                   const char *name, double read_gbs) {
    const struct shape *s = m->shape;
    double us = least_us(m, seqs, 1, context - 1), width = m->kv.shape.type == KV_F8 ? 1 : 2;
    double bytes = (double)seqs * context * s->kv_heads * s->head_dim * 2 * width; /* both sides */
    double gbs = us > 0 ? bytes / us / 1e3 : 0;
    double share = read_gbs > 0 ? 100 * gbs / read_gbs : 0;
    printf("  decode %3u x %4u %8.1f us %6.0f GB/s %5.1f %% of %.0f\n", seqs, context, us, gbs,
           share, read_gbs);
    keep(c, m, name, "percent", share);
}

static void chunk(struct checks *c, struct shaped *m, uint32_t rows, uint32_t first,
                  const char *name) {
    const struct shape *s = m->shape;
    double us = least_us(m, 1, rows, first);
    double seen = (double)rows * first + (double)rows * (rows + 1) / 2;
    double tflops = us > 0 ? 4 * seen * s->heads * s->head_dim / us / 1e6 : 0;
    printf("  chunk %5u after %4u %8.1f us %6.1f TFLOP/s\n", rows, first, us, tflops);
    keep(c, m, name, "tflops", tflops);
}

static void measure(struct checks *c, enum kv_type type) {
    static const struct shape heads = {"heads", DTYPE_BF16, 1, 1024, 32, 8, 128, 1024, 1024, false};
    static struct shaped m;
    struct shaped_sizes sizes = {.rows = CHUNK_MAX,
                                 .seqs = SEQS_MAX,
                                 .tokens = CHUNK_MAX + CONTEXT,
                                 .kv_tokens = SEQS_MAX * CONTEXT,
                                 .kv_type = type};
    struct err err = {{0}};
    struct peaks peaks = {0};
    char device[128];
    /* Else attention is part of the kernel of the op before, and has no time of its own. */
    snprintf(device, sizeof(device), "%s,fresh=off", c->device);
    if (!shaped_open(&m, &heads, device, &sizes)) {
        check_that(c, false, "%s cannot be run", device);
        return;
    }
    const struct device *dev = &m.dev;
    printf(" %s\n", kv_type_name(type));
    if (dev->profiler->peaks(dev->self, &peaks, &err) != ST_OK) printf("  %s\n", err.text);
    check_figure(c, "ceilings", "read_gbs", peaks.read_gbs);
    decode(c, &m, 1, 512, "decode_b1_512", peaks.read_gbs);
    decode(c, &m, 8, CONTEXT, "decode_b8_4k", peaks.read_gbs);
    decode(c, &m, 16, CONTEXT, "decode_b16_4k", peaks.read_gbs);
    decode(c, &m, 32, CONTEXT, "decode_b32_4k", peaks.read_gbs);
    decode(c, &m, 64, CONTEXT, "decode_b64_4k", peaks.read_gbs);
    decode(c, &m, 128, CONTEXT, "decode_b128_4k", peaks.read_gbs);
    decode(c, &m, 256, CONTEXT, "decode_b256_4k", peaks.read_gbs);
    decode(c, &m, 256, 512, "decode_b256_512", peaks.read_gbs);
    chunk(c, &m, 2048, 0, "chunk_2k");
    chunk(c, &m, CHUNK_MAX, 0, "chunk_8k");
    chunk(c, &m, 2048, CONTEXT, "chunk_2k_after_4k");
    shaped_close(&m);
}

void suite_attention_speed(struct checks *c) {
    measure(c, KV_F16);
    measure(c, KV_F8);
}
