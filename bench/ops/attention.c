/* bench/ops/attention.c - attention over a cache: one row, a piece of a prompt, and one row of each
 * of several sequences. */
#include <stdio.h>

#include "ops/rig.h"

enum { SEQS_CTX = 2048, TOKENS = SEQS_MAX * SEQS_CTX, CTX_MAX = 8192, NAME_BYTES = 80 };

struct heads {
    uint32_t q, kv, dim;
};

static void bench_attention(struct bench *b, enum kv_type type, struct heads h) {
    static const uint32_t cases[][2] = {{1, 512}, {1, 2048}, {1, CTX_MAX}, {256, 512}, {256, 2048}};
    bench_open(b);
    struct kv_space kv = kv_make(b, type, h.kv, h.dim, TOKENS);
    struct tape *t = tape_begin();
    struct operand q = new_f32(t, "q", h.q * h.dim), out = new_q8(t, "out", h.q * h.dim);
    struct op op = {.kind = OP_ATTENTION};
    op.attention = (struct op_attention){.heads = h.q,
                                         .kv_heads = h.kv,
                                         .head_dim = h.dim,
                                         .scale = 0.125f,
                                         .q = q,
                                         .dst = operand_none,
                                         .q8 = out};
    tape_push(t, &op);
    tape_set_output(t, out.value);
    struct pass p = pass_make(b, t, &kv);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bench_set_rows(b, cases[i][0], cases[i][1]);
        char name[NAME_BYTES];
        snprintf(name, sizeof(name), "attention %s %u/%ux%u T=%u ctx=%u", kv_type_name(type), h.q,
                 h.kv, h.dim, cases[i][0], cases[i][1]);
        bench_measure(b, &p, name);
    }
    bench_set_seqs(b, SEQS_MAX, SEQS_CTX);
    char name[NAME_BYTES];
    snprintf(name, sizeof(name), "attention %s %u/%ux%u S=%d ctx=%d", kv_type_name(type), h.q, h.kv,
             h.dim, SEQS_MAX, SEQS_CTX);
    bench_measure(b, &p, name);
    pass_free(b, &p);
    kv_free(b, &kv);
    bench_close(b);
}

static void bench_self_attention(struct bench *b) {
    enum { HEADS = 12, DIM = 32, ROWS = 256 };
    bench_open(b);
    struct tape *t = tape_begin();
    struct operand q = new_f32(t, "q", HEADS * DIM), k = new_f32(t, "k", HEADS * DIM);
    struct operand v = new_f32(t, "v", HEADS * DIM), out = new_q8(t, "out", HEADS * DIM);
    struct op op = {.kind = OP_SELF_ATTENTION};
    op.self_attention = (struct op_self_attention){HEADS, DIM, 0.2f, q, k, v, operand_none, out};
    tape_push(t, &op);
    tape_set_output(t, out.value);
    struct pass p = pass_make(b, t, NULL);
    bench_set_rows(b, ROWS, ROWS);
    bench_measure(b, &p, "self_attention 12x32 T=256");
    pass_free(b, &p);
    bench_close(b);
}

void bench_attentions(struct bench *b) {
    static const enum kv_type types[] = {KV_F16, KV_I8, KV_I4};
    for (int i = 0; i < 3; i++) {
        bench_attention(b, types[i], (struct heads){9, 3, 64}); /* SmolLM2 */
        bench_attention(b, types[i], (struct heads){32, 8, 128});
    }
    bench_self_attention(b);
}
