/* tests/gpu/shaped.c - see tests/gpu/shaped.h. */
#include "shaped.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "kernels/devices.h"
#include "rig.h"

enum { BLOCK_TOKENS = 64 };
enum { MAT_Q, MAT_K, MAT_V, MAT_O, MAT_GATE, MAT_UP, MAT_DOWN };
/* The biases of products are in the order of their matrices. */
enum { VEC_Q, VEC_K, VEC_V, VEC_O, VEC_DOWN, VEC_NORM, VEC_FFN_NORM, VEC_Q_NORM, VEC_K_NORM };

/* ---- real shapes ---- */

static const struct shape shapes[] = {
    {"0.6B-bf16", DTYPE_BF16, 28, 1024, 16, 8, 128, 3072, 151936, false},
    {"8B-bf16", DTYPE_BF16, 32, 4096, 32, 8, 128, 14336, 128256, false},
    {"0.6B-Q4_K", DTYPE_Q4_K, 28, 1024, 16, 8, 128, 3072, 151936, false},
    {"8B-Q8_0", DTYPE_Q8_0, 32, 4096, 32, 8, 128, 14336, 128256, false},
    {"8B-Q4_0", DTYPE_Q4_0, 32, 4096, 32, 8, 128, 14336, 128256, false},
    {"8B-IQ4_XS", DTYPE_IQ4_XS, 32, 4096, 32, 8, 128, 14336, 128256, false},
    {"8B-Q4_K", DTYPE_Q4_K, 32, 4096, 32, 8, 128, 14336, 128256, false},
    {"8B-fp8", DTYPE_BF16, 32, 4096, 32, 8, 128, 14336, 128256, true},
    /* A quarter of the layers: unpacking all takes long. */
    {"2B-bf16", DTYPE_BF16, 8, 4096, 32, 8, 128, 14336, 128256, false},
    {"tiny-fp8", DTYPE_BF16, 1, 640, 2, 1, 64, 256, 100, true}, /* for an emulated card */
    {"2B-fp8", DTYPE_BF16, 8, 4096, 32, 8, 128, 14336, 128256, true},
    {"2B-Q8_0", DTYPE_Q8_0, 8, 4096, 32, 8, 128, 14336, 128256, false},
    {"2B-Q4_0", DTYPE_Q4_0, 8, 4096, 32, 8, 128, 14336, 128256, false},
    {"2B-IQ4_XS", DTYPE_IQ4_XS, 8, 4096, 32, 8, 128, 14336, 128256, false},
    {"2B-Q4_K", DTYPE_Q4_K, 8, 4096, 32, 8, 128, 14336, 128256, false},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

const struct shape *shape_find(const char *name) {
    for (int i = 0; i < SHAPES; i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    return NULL;
}

/* ---- weights ---- */

static struct weight matrix(const struct shaped *m, uint32_t rows, uint32_t cols) {
    struct weight w = {.name = STR("random"),
                       .use = WEIGHT_MATRIX,
                       .type = m->shape->type,
                       .rows = rows,
                       .cols = cols,
                       .experts = 1,
                       .data = m->numbers};
    CHECK(dtype_bytes(w.type, (uint64_t)rows * cols, &w.bytes));
    return w;
}

/* Random numbers for the largest matrix, a piece of which repeats. */
static void make_numbers(struct shaped *m) {
    const struct shape *s = m->shape;
    struct weight piece = rig_weight(s->type, 1024, 1024, 1, 5);
    size_t bytes;
    uint32_t rows = s->heads * s->head_dim > s->ffn ? s->heads * s->head_dim : s->ffn;
    if (s->vocab > rows) rows = s->vocab;
    CHECK(dtype_bytes(s->type, (uint64_t)rows * s->dim, &bytes));
    uint8_t *to = mem_alloc(bytes);
    CHECK(to);
    for (size_t at = 0; at < bytes; at += piece.bytes)
        memcpy(to + at, piece.data, bytes - at < piece.bytes ? bytes - at : piece.bytes);
    m->numbers = to;
    rig_weight_free(&piece);
}

static void prepare(struct shaped *m, struct weight *w) {
    struct err err = {{0}};
    if (m->dev.prepare(m->dev.self, w, &err) == ST_OK) return;
    printf("  %s\n", err.text);
    CHECK(false);
}

static void make_vectors(struct shaped *m, uint32_t layer) {
    const struct shape *s = m->shape;
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    const uint32_t sizes[SHAPED_VECTORS] = {q,      kv,     kv,          s->dim,     s->dim,
                                            s->dim, s->dim, s->head_dim, s->head_dim};
    for (uint32_t i = 0; m->is_rich && i < SHAPED_VECTORS; i++) {
        m->vectors[layer][i] = rig_vector(sizes[i], 0.0f, 100 * layer + i);
        prepare(m, &m->vectors[layer][i]);
    }
}

static void make_weights(struct shaped *m) {
    const struct shape *s = m->shape;
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    const uint32_t sizes[SHAPED_MATRICES][2] = {{q, s->dim},     {kv, s->dim},     {kv, s->dim},
                                                {s->dim, q},     {s->ffn, s->dim}, {s->ffn, s->dim},
                                                {s->dim, s->ffn}};
    make_numbers(m);
    m->ones = mem_alloc_array(s->dim, sizeof(float));
    CHECK(m->ones);
    for (uint32_t i = 0; i < s->dim; i++) m->ones[i] = 0.05f;
    m->norm = weight_vector(STR("norm"), m->ones, s->dim);
    m->freqs = weight_vector(STR("freqs"), m->ones, s->head_dim / 2);
    m->embed = m->head = matrix(m, s->vocab, s->dim);
    m->head.keeps_type = true;
    prepare(m, &m->norm);
    prepare(m, &m->freqs);
    prepare(m, &m->head);
    m->embed = m->head; /* tied, so that 8B shapes of all types fit beside each other */
    for (uint32_t l = 0; l < s->layers; l++) {
        for (int i = 0; i < SHAPED_MATRICES; i++) {
            m->mats[l][i] = matrix(m, sizes[i][0], sizes[i][1]);
            prepare(m, &m->mats[l][i]);
        }
        make_vectors(m, l);
    }
}

/* ---- the tape ---- */

struct values {
    value_id x, n, n8, qkv, attn, attn8, gate_up, act, act8;
};

/* A vector of a layer, or `plain`. */
static const struct weight *vector_of(const struct shaped *m, uint32_t layer, int which,
                                      const struct weight *plain) {
    return m->is_rich ? &m->vectors[layer][which] : plain;
}

static struct operand normed(struct shaped *m, struct tape *t, const struct values *v,
                             const struct weight *weight) {
    struct op op = {.kind = OP_NORM,
                    .norm = {.kind = NORM_RMS,
                             .group = m->shape->dim,
                             .eps = 1e-5f,
                             .weight = weight,
                             .src = tape_all(t, v->x),
                             .dst = tape_all(t, v->n),
                             .q8 = operand_none}};
    tape_push(t, &op);
    if (!dtype_has_integers(m->shape->type)) return tape_all(t, v->n);
    struct op quant = {.kind = OP_QUANT,
                       .quant = {.src = tape_all(t, v->n), .q8 = tape_all(t, v->n8)}};
    tape_push(t, &quant);
    return tape_all(t, v->n8);
}

static struct operand rounded(struct shaped *m, struct tape *t, value_id floats, value_id q8) {
    if (!dtype_has_integers(m->shape->type)) return tape_all(t, floats);
    struct op quant = {.kind = OP_QUANT,
                       .quant = {.src = tape_all(t, floats), .q8 = tape_all(t, q8)}};
    tape_push(t, &quant);
    return tape_all(t, q8);
}

/* `biases`: of its parts; NULL: none has one. */
static void push_product(struct tape *t, const struct weight *w, const struct weight *biases,
                         uint32_t parts, struct operand src, struct operand dst) {
    bool add = strcmp(tape_value_at(t, dst.value)->name, "x") == 0;
    struct op op = {.kind = OP_MATMUL,
                    .matmul = {.part_count = parts, .add = add, .src = src, .dst = dst}};
    for (uint32_t i = 0; i < parts; i++) op.matmul.parts[i].weight = &w[i];
    for (uint32_t i = 0; i < parts && biases; i++) op.matmul.parts[i].bias = &biases[i];
    tape_push(t, &op);
}

static void push_rope(struct shaped *m, struct tape *t, struct operand x, uint32_t heads) {
    struct op op = {.kind = OP_ROPE,
                    .rope = {.style = m->style,
                             .heads = heads,
                             .head_dim = m->shape->head_dim,
                             .rot_dims = m->shape->head_dim,
                             .freqs = &m->freqs,
                             .factor = 1.0f,
                             .x = x}};
    tape_push(t, &op);
}

/* Norms of heads, in place. */
static void push_head_norm(struct shaped *m, struct tape *t, const struct weight *weight,
                           struct operand heads) {
    struct op op = {.kind = OP_NORM,
                    .norm = {.kind = NORM_RMS,
                             .group = m->shape->head_dim,
                             .eps = 1e-5f,
                             .weight = weight,
                             .src = heads,
                             .dst = heads,
                             .q8 = operand_none}};
    if (m->is_rich) tape_push(t, &op);
}

static void push_attention(struct shaped *m, struct tape *t, const struct values *v, uint32_t l) {
    const struct shape *s = m->shape;
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    struct operand all = tape_all(t, v->qkv);
    const struct weight *norm = vector_of(m, l, VEC_NORM, &m->norm);
    push_product(t, &m->mats[l][MAT_Q], vector_of(m, l, VEC_Q, NULL), 3, normed(m, t, v, norm),
                 all);
    push_head_norm(m, t, &m->vectors[l][VEC_Q_NORM], operand_slice(all, 0, q));
    push_head_norm(m, t, &m->vectors[l][VEC_K_NORM], operand_slice(all, q, kv));
    push_rope(m, t, operand_slice(all, 0, q), s->heads);
    push_rope(m, t, operand_slice(all, q, kv), s->kv_heads);
    struct op write = {.kind = OP_KV_WRITE,
                       .kv_write = {.layer = l,
                                    .k = operand_slice(all, q, kv),
                                    .v = operand_slice(all, q + kv, kv)}};
    tape_push(t, &write);
    struct op attend = {.kind = OP_ATTENTION,
                        .attention = {.layer = l,
                                      .heads = s->heads,
                                      .kv_heads = s->kv_heads,
                                      .head_dim = s->head_dim,
                                      .scale = 0.09f,
                                      .q = operand_slice(all, 0, q),
                                      .dst = tape_all(t, v->attn),
                                      .q8 = operand_none}};
    tape_push(t, &attend);
    push_product(t, &m->mats[l][MAT_O], vector_of(m, l, VEC_O, NULL), 1,
                 rounded(m, t, v->attn, v->attn8), tape_all(t, v->x));
}

static void push_ffn(struct shaped *m, struct tape *t, const struct values *v, uint32_t l) {
    struct operand all = tape_all(t, v->gate_up);
    uint32_t ffn = m->shape->ffn;
    const struct weight *norm = vector_of(m, l, VEC_FFN_NORM, &m->norm);
    push_product(t, &m->mats[l][MAT_GATE], NULL, 2, normed(m, t, v, norm), all);
    struct op act = {.kind = OP_ACT,
                     .act = {.kind = ACT_SILU,
                             .segments = 1,
                             .stride = 2 * ffn,
                             .gate = operand_slice(all, 0, ffn),
                             .up = operand_slice(all, ffn, ffn),
                             .dst = tape_all(t, v->act),
                             .q8 = operand_none}};
    tape_push(t, &act);
    push_product(t, &m->mats[l][MAT_DOWN], vector_of(m, l, VEC_DOWN, NULL), 1,
                 rounded(m, t, v->act, v->act8), tape_all(t, v->x));
}

static void push_head(struct shaped *m, struct tape *t, const struct values *v) {
    const struct shape *s = m->shape;
    struct operand rows = normed(m, t, v, &m->norm);
    value_id last = tape_value(t, "last", ROWS_OUTPUTS, VALUE_F32, s->dim);
    value_id last8 = tape_value(t, "last8", ROWS_OUTPUTS, VALUE_Q8, s->dim);
    value_id logits = tape_value(t, "logits", ROWS_OUTPUTS, VALUE_F32, s->vocab);
    (void)rows;
    struct op gather = {.kind = OP_GATHER,
                        .gather = {.src = tape_all(t, v->n), .dst = tape_all(t, last)}};
    tape_push(t, &gather);
    push_product(t, &m->head, NULL, 1, rounded(m, t, last, last8), tape_all(t, logits));
    tape_set_output(t, logits);
}

static void make_tape(struct shaped *m, const struct step_sizes *n) {
    const struct shape *s = m->shape;
    struct err err = {{0}};
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    CHECK(tape_create(&m->tape) == ST_OK);
    struct tape *t = m->tape;
    struct values v = {
        .x = tape_value(t, "x", ROWS_TOKENS, VALUE_F32, s->dim),
        .n = tape_value(t, "n", ROWS_TOKENS, VALUE_F32, s->dim),
        .n8 = tape_value(t, "n8", ROWS_TOKENS, VALUE_Q8, s->dim),
        .qkv = tape_value(t, "qkv", ROWS_TOKENS, VALUE_F32, q + 2 * kv),
        .attn = tape_value(t, "attn", ROWS_TOKENS, VALUE_F32, q),
        .attn8 = tape_value(t, "attn8", ROWS_TOKENS, VALUE_Q8, q),
        .gate_up = tape_value(t, "gate_up", ROWS_TOKENS, VALUE_F32, 2 * s->ffn),
        .act = tape_value(t, "act", ROWS_TOKENS, VALUE_F32, s->ffn),
        .act8 = tape_value(t, "act8", ROWS_TOKENS, VALUE_Q8, s->ffn),
    };
    struct op embed = {.kind = OP_EMBED,
                       .embed = {.table = &m->embed, .scale = 1.0f, .dst = tape_all(t, v.x)}};
    tape_push(t, &embed);
    for (uint32_t l = 0; l < s->layers; l++) {
        push_attention(m, t, &v, l);
        push_ffn(m, t, &v, l);
    }
    push_head(m, t, &v);
    struct tape_sizes sizes = {n->rows_max, n->outputs_max, n->seqs_max};
    if (tape_finish(t, &sizes, &err) != ST_OK) printf("  %s\n", err.text);
}

/* ---- opening ---- */

static enum status make_program(struct shaped *m, const struct step_sizes *n,
                                const struct shaped_sizes *sizes, struct err *err) {
    const struct shape *s = m->shape;
    m->kv = (struct kv_space){
        .shape = {sizes->kv_type, s->layers, s->kv_heads, s->head_dim, BLOCK_TOKENS},
        .block_count = sizes->kv_tokens / BLOCK_TOKENS};
    m->kv.block_bytes = m->dev.kv_block_bytes(m->dev.self, &m->kv.shape);
    m->kv.base = m->dev.alloc(m->dev.self, m->kv.block_bytes * m->kv.block_count);
    CHECK(m->kv.base);
    struct program_options p = {
        .tape = m->tape, .kv = &m->kv, .kv_group_count = 1, .sizes = *n, .slot_count = n->seqs_max};
    TRY(m->dev.program_create(m->dev.self, &p, &m->program, err));
    return step_create(&m->step, &m->dev, n, err);
}

bool shaped_open(struct shaped *m, const struct shape *s, const char *device,
                 const struct shaped_sizes *sizes) {
    struct err err = {{0}};
    struct device_options o = {.name = device, .threads = 1, .fp8_weights = s->is_fp8};
    struct step_sizes n = {.rows_max = sizes->rows,
                           .outputs_max = sizes->seqs,
                           .seqs_max = sizes->seqs,
                           .group_count = 1,
                           .blocks_max = (sizes->tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS};
    *m = (struct shaped){.shape = s, .style = sizes->style, .is_rich = sizes->is_rich};
    enum status st = device_open(&o, &m->dev, &err);
    if (st == ST_OK) {
        make_weights(m);
        make_tape(m, &n);
        st = make_program(m, &n, sizes, &err);
    }
    if (st != ST_OK) printf("  %s: %s\n", device, err.text);
    return st == ST_OK;
}

void shaped_close(struct shaped *m) {
    step_destroy(m->step, &m->dev);
    m->dev.program_destroy(m->dev.self, m->program);
    if (m->kv.base) m->dev.free(m->dev.self, m->kv.base, m->kv.block_bytes * m->kv.block_count);
    m->dev.close(m->dev.self);
    tape_destroy(m->tape);
    for (uint32_t l = 0; m->is_rich && l < m->shape->layers; l++)
        for (int i = 0; i < SHAPED_VECTORS; i++) rig_weight_free(&m->vectors[l][i]);
    mem_free(m->numbers);
    mem_free(m->ones);
}

/* ---- steps ---- */

void shaped_set_step(struct shaped *m, uint32_t seqs, uint32_t rows, uint32_t first) {
    struct step *s = m->step;
    step_clear(s);
    s->row_count = seqs * rows;
    s->seq_count = s->output_count = seqs;
    for (uint32_t i = 0; i < seqs * rows; i++) {
        s->token[i] = (int32_t)(i * 977 % m->shape->vocab);
        s->pos[i] = (int32_t)(first + i % rows);
        s->seq[i] = i / rows;
    }
    for (uint32_t i = 0; i < seqs; i++) {
        s->seqs[i] = (struct step_seq){i * rows, rows};
        s->output_row[i] = i * rows + rows - 1;
        s->samplings[i] = (struct sampling){.kind = SAMPLING_DRAW,
                                            .slot = i,
                                            .top_p = 1.0f,
                                            .typical_p = 1.0f,
                                            .deny_first = SAMPLING_NONE};
        for (uint32_t k = 0; k < s->sizes.blocks_max; k++)
            step_blocks(s, i, 0)[k] = (i * s->sizes.blocks_max + k) % m->kv.block_count;
    }
}

static bool submit(struct shaped *m, struct err *err) {
    return m->dev.submit(m->dev.self, m->program, m->step, err) == ST_OK;
}

/* One step is submitted while the one before it runs, as engines do at depth 1. */
double shaped_run(struct shaped *m, uint32_t count) {
    struct err err = {{0}};
    double us = 0;
    bool is_fine = submit(m, &err);
    for (uint32_t i = 0; is_fine && i < count; i++) {
        is_fine = i + 1 == count || submit(m, &err);
        is_fine = is_fine && m->dev.collect(m->dev.self, m->program, &m->result, &err) == ST_OK;
        us += (double)m->result.elapsed_us;
    }
    if (!is_fine) printf("  %s\n", err.text);
    return is_fine ? us / count : 0;
}
