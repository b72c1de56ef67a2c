/* Goal:   where the time of a step goes, with and without what makes it fast.
 * Method: tapes of real shapes with random weights and a context of 512 tokens. Steps are timed by
 *         the device's own events: some as they are, then 5 with an event behind every op. GB/s is
 *         what a step reads of weights and cache (as the file has them) in its time, also as a
 *         share of the card's ceiling. Variants are options in the name of the device. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "kernels/devices.h"
#include "rig.h"

enum { LAYERS_MAX = 32, MATS = 7, CONTEXT = 512, BLOCK_TOKENS = 64, ROWS_MAX = 2048 };
enum { STEPS = 20, PROMPT_STEPS = 4 };

struct shape {
    const char *name;
    enum dtype type;
    uint32_t layers, dim, heads, kv_heads, head_dim, ffn, vocab;
};

/* A model of one shape on a device. */
struct bench {
    const struct shape *shape;
    struct device dev;
    struct weight mats[LAYERS_MAX][MATS], embed, head, norm, freqs;
    void *numbers; /* that all matrices are made of */
    float *ones;
    struct tape *tape;
    struct kv_space kv;
    struct device_program *program;
    struct step *step;
    const char *variant;
    double read_gbs; /* the card's ceiling */
    double kind_us[OP_COUNT];
    uint32_t watched;
};

enum { MAT_Q, MAT_K, MAT_V, MAT_O, MAT_GATE, MAT_UP, MAT_DOWN };

static struct weight matrix(const struct bench *b, uint32_t rows, uint32_t cols) {
    struct weight w = {.name = STR("random"),
                       .use = WEIGHT_MATRIX,
                       .type = b->shape->type,
                       .rows = rows,
                       .cols = cols,
                       .experts = 1,
                       .data = b->numbers};
    CHECK(dtype_bytes(w.type, (uint64_t)rows * cols, &w.bytes));
    return w;
}

/* Random numbers for the largest matrix, a piece of which repeats. */
static void make_numbers(struct bench *b) {
    const struct shape *s = b->shape;
    struct weight piece = rig_weight(s->type, 1024, 1024, 1, 5);
    size_t bytes;
    CHECK(dtype_bytes(s->type, (uint64_t)s->vocab * s->dim, &bytes));
    uint8_t *to = mem_alloc(bytes);
    CHECK(to);
    for (size_t at = 0; at < bytes; at += piece.bytes)
        memcpy(to + at, piece.data, bytes - at < piece.bytes ? bytes - at : piece.bytes);
    b->numbers = to;
    rig_weight_free(&piece);
}

static void prepare(struct bench *b, struct weight *w) {
    struct err err = {{0}};
    if (b->dev.prepare(b->dev.self, w, &err) == ST_OK) return;
    printf("  %s\n", err.text);
    CHECK(false);
}

static void make_weights(struct bench *b) {
    const struct shape *s = b->shape;
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    const uint32_t sizes[MATS][2] = {{q, s->dim},     {kv, s->dim},     {kv, s->dim},
                                     {s->dim, q},     {s->ffn, s->dim}, {s->ffn, s->dim},
                                     {s->dim, s->ffn}};
    make_numbers(b);
    b->ones = mem_alloc_array(s->dim, sizeof(float));
    CHECK(b->ones);
    for (uint32_t i = 0; i < s->dim; i++) b->ones[i] = 0.05f;
    b->norm = weight_vector(STR("norm"), b->ones, s->dim);
    b->freqs = weight_vector(STR("freqs"), b->ones, s->head_dim / 2);
    b->embed = b->head = matrix(b, s->vocab, s->dim);
    prepare(b, &b->norm);
    prepare(b, &b->freqs);
    prepare(b, &b->head);
    b->embed = b->head; /* tied, so that 8B shapes of all types fit beside each other */
    for (uint32_t l = 0; l < s->layers; l++)
        for (int m = 0; m < MATS; m++) {
            b->mats[l][m] = matrix(b, sizes[m][0], sizes[m][1]);
            prepare(b, &b->mats[l][m]);
        }
}

/* ---- the tape ---- */

struct values {
    value_id x, n, n8, qkv, attn, attn8, gate_up, act, act8;
};

static struct operand normed(struct bench *b, struct tape *t, const struct values *v) {
    struct op op = {.kind = OP_NORM,
                    .norm = {.kind = NORM_RMS,
                             .group = b->shape->dim,
                             .eps = 1e-5f,
                             .weight = &b->norm,
                             .src = tape_all(t, v->x),
                             .dst = tape_all(t, v->n),
                             .q8 = operand_none}};
    tape_push(t, &op);
    if (!dtype_is_quantised(b->shape->type)) return tape_all(t, v->n);
    struct op quant = {.kind = OP_QUANT,
                       .quant = {.src = tape_all(t, v->n), .q8 = tape_all(t, v->n8)}};
    tape_push(t, &quant);
    return tape_all(t, v->n8);
}

static struct operand rounded(struct bench *b, struct tape *t, value_id floats, value_id q8) {
    if (!dtype_is_quantised(b->shape->type)) return tape_all(t, floats);
    struct op quant = {.kind = OP_QUANT,
                       .quant = {.src = tape_all(t, floats), .q8 = tape_all(t, q8)}};
    tape_push(t, &quant);
    return tape_all(t, q8);
}

static void push_product(struct tape *t, const struct weight *w, uint32_t parts, struct operand src,
                         struct operand dst, bool add) {
    struct op op = {.kind = OP_MATMUL,
                    .matmul = {.part_count = parts, .add = add, .src = src, .dst = dst}};
    for (uint32_t i = 0; i < parts; i++) op.matmul.parts[i].weight = &w[i];
    tape_push(t, &op);
}

static void push_rope(struct bench *b, struct tape *t, struct operand x, uint32_t heads) {
    struct op op = {.kind = OP_ROPE,
                    .rope = {.style = ROPE_NEOX,
                             .heads = heads,
                             .head_dim = b->shape->head_dim,
                             .rot_dims = b->shape->head_dim,
                             .freqs = &b->freqs,
                             .factor = 1.0f,
                             .x = x}};
    tape_push(t, &op);
}

static void push_attention(struct bench *b, struct tape *t, const struct values *v, uint32_t l) {
    const struct shape *s = b->shape;
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    struct operand all = tape_all(t, v->qkv);
    push_product(t, &b->mats[l][MAT_Q], 3, normed(b, t, v), all, false);
    push_rope(b, t, operand_slice(all, 0, q), s->heads);
    push_rope(b, t, operand_slice(all, q, kv), s->kv_heads);
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
    push_product(t, &b->mats[l][MAT_O], 1, rounded(b, t, v->attn, v->attn8), tape_all(t, v->x),
                 true);
}

static void push_ffn(struct bench *b, struct tape *t, const struct values *v, uint32_t l) {
    struct operand all = tape_all(t, v->gate_up);
    uint32_t ffn = b->shape->ffn;
    push_product(t, &b->mats[l][MAT_GATE], 2, normed(b, t, v), all, false);
    struct op act = {.kind = OP_ACT,
                     .act = {.kind = ACT_SILU,
                             .segments = 1,
                             .stride = 2 * ffn,
                             .gate = operand_slice(all, 0, ffn),
                             .up = operand_slice(all, ffn, ffn),
                             .dst = tape_all(t, v->act),
                             .q8 = operand_none}};
    tape_push(t, &act);
    push_product(t, &b->mats[l][MAT_DOWN], 1, rounded(b, t, v->act, v->act8), tape_all(t, v->x),
                 true);
}

static void push_head(struct bench *b, struct tape *t, const struct values *v) {
    const struct shape *s = b->shape;
    struct operand rows = normed(b, t, v);
    value_id last = tape_value(t, "last", ROWS_OUTPUTS, VALUE_F32, s->dim);
    value_id last8 = tape_value(t, "last8", ROWS_OUTPUTS, VALUE_Q8, s->dim);
    value_id logits = tape_value(t, "logits", ROWS_OUTPUTS, VALUE_F32, s->vocab);
    (void)rows;
    struct op gather = {.kind = OP_GATHER,
                        .gather = {.src = tape_all(t, v->n), .dst = tape_all(t, last)}};
    tape_push(t, &gather);
    push_product(t, &b->head, 1, rounded(b, t, last, last8), tape_all(t, logits), false);
    tape_set_output(t, logits);
}

static void make_tape(struct bench *b, const struct step_sizes *n) {
    const struct shape *s = b->shape;
    struct err err = {{0}};
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    CHECK(tape_create(&b->tape) == ST_OK);
    struct tape *t = b->tape;
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
                       .embed = {.table = &b->embed, .scale = 1.0f, .dst = tape_all(t, v.x)}};
    tape_push(t, &embed);
    for (uint32_t l = 0; l < s->layers; l++) {
        push_attention(b, t, &v, l);
        push_ffn(b, t, &v, l);
    }
    push_head(b, t, &v);
    struct tape_sizes sizes = {n->rows_max, n->outputs_max, n->seqs_max};
    if (tape_finish(t, &sizes, &err) != ST_OK) printf("  %s\n", err.text);
}

/* ---- running ---- */

static void watch(void *ctx, const struct device_run *run, const struct device_times *times) {
    struct bench *b = ctx;
    for (uint32_t i = 0; i < times->op_count; i++)
        b->kind_us[tape_op(run->tape, i)->kind] += (double)times->work_ns[i] / 1000;
    b->watched++;
}

/* `seqs` sequences, `rows` rows each, from position `first` on. */
static void set_step(struct bench *b, uint32_t seqs, uint32_t rows, uint32_t first) {
    struct step *s = b->step;
    step_clear(s);
    s->row_count = seqs * rows;
    s->seq_count = s->output_count = seqs;
    for (uint32_t i = 0; i < seqs * rows; i++) {
        s->token[i] = (int32_t)(i * 977 % b->shape->vocab);
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
            step_blocks(s, i, 0)[k] = (i * s->sizes.blocks_max + k) % b->kv.block_count;
    }
}

static double run_steps(struct bench *b, uint32_t count) {
    struct device_result out;
    struct err err = {{0}};
    double us = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (b->dev.submit(b->dev.self, b->program, b->step, &err) != ST_OK ||
            b->dev.collect(b->dev.self, b->program, &out, &err) != ST_OK) {
            printf("  %s\n", err.text);
            return 0;
        }
        us += (double)out.elapsed_us;
    }
    return us / count;
}

static double step_bytes(const struct bench *b, uint32_t rows, uint32_t ctx) {
    double bytes = 0;
    for (uint32_t i = 0; i < tape_op_count(b->tape); i++)
        bytes += (double)tape_op_cost(b->tape, i, rows, ctx).bytes;
    return bytes;
}

static void measure(struct bench *b, uint32_t seqs, uint32_t rows, uint32_t first) {
    static const enum op_kind kinds[] = {OP_EMBED,    OP_NORM,      OP_QUANT, OP_MATMUL, OP_ROPE,
                                         OP_KV_WRITE, OP_ATTENTION, OP_ACT,   OP_GATHER};
    set_step(b, seqs, rows, first);
    run_steps(b, 3);
    double us = run_steps(b, rows > 1 ? PROMPT_STEPS : STEPS);
    memset(b->kind_us, 0, sizeof(b->kind_us));
    b->watched = 0;
    b->dev.profiler->watch(b->dev.self, watch, b);
    run_steps(b, 5);
    b->dev.profiler->watch(b->dev.self, NULL, NULL);
    double gbs = us > 0 ? step_bytes(b, seqs * rows, first + rows) / us / 1e3 : 0;
    printf("  %-10s%-40s %4u x %-4u %9.0f us %9.0f tok/s %5.0f GB/s %3.0f %% |", b->shape->name,
           b->variant, seqs, rows, us, us > 0 ? seqs * rows * 1e6 / us : 0.0, gbs,
           b->read_gbs > 0 ? 100 * gbs / b->read_gbs : 0.0);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        printf(" %s %.0f", op_name(kinds[i]), b->watched ? b->kind_us[kinds[i]] / b->watched : 0.0);
    printf("\n");
    fflush(stdout);
}

static bool bench_open(struct bench *b, const struct shape *s, const char *card,
                       const char *variant) {
    struct err err = {{0}};
    char device[128];
    snprintf(device, sizeof(device), "%s%s", card, variant);
    struct device_options o = {.name = device, .threads = 1};
    struct step_sizes n = {.rows_max = ROWS_MAX,
                           .outputs_max = 256,
                           .seqs_max = 256,
                           .group_count = 1,
                           .blocks_max = (ROWS_MAX + CONTEXT) / BLOCK_TOKENS};
    *b = (struct bench){.shape = s, .variant = variant};
    if (device_open(&o, &b->dev, &err) != ST_OK) {
        printf("  %s\n", err.text);
        return false;
    }
    struct peaks peaks = {0};
    if (b->dev.profiler->peaks(b->dev.self, &peaks, &err) == ST_OK) b->read_gbs = peaks.read_gbs;
    make_weights(b);
    make_tape(b, &n);
    b->kv = (struct kv_space){.shape = {KV_F16, s->layers, s->kv_heads, s->head_dim, BLOCK_TOKENS},
                              .block_count = 256 * (CONTEXT / BLOCK_TOKENS + 1)};
    b->kv.block_bytes = b->dev.kv_block_bytes(b->dev.self, &b->kv.shape);
    b->kv.base = b->dev.alloc(b->dev.self, b->kv.block_bytes * b->kv.block_count);
    CHECK(b->kv.base);
    struct program_options p = {
        .tape = b->tape, .kv = &b->kv, .kv_group_count = 1, .sizes = n, .slot_count = 256};
    enum status st = b->dev.program_create(b->dev.self, &p, &b->program, &err);
    if (st == ST_OK) st = step_create(&b->step, &b->dev, &n, &err);
    if (st != ST_OK) printf("  %s\n", err.text);
    return st == ST_OK;
}

static void bench_close(struct bench *b) {
    step_destroy(b->step, &b->dev);
    b->dev.program_destroy(b->dev.self, b->program);
    if (b->kv.base) b->dev.free(b->dev.self, b->kv.base, b->kv.block_bytes * b->kv.block_count);
    b->dev.close(b->dev.self);
    tape_destroy(b->tape);
    mem_free(b->numbers);
    mem_free(b->ones);
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
    bench_close(&b);
}

void suite_time(struct checks *c) {
    static const struct shape shapes[] = {
        {"0.6B bf16", DTYPE_BF16, 28, 1024, 16, 8, 128, 3072, 151936},
        {"8B bf16", DTYPE_BF16, 32, 4096, 32, 8, 128, 14336, 128256},
        {"0.6B Q4_K", DTYPE_Q4_K, 28, 1024, 16, 8, 128, 3072, 151936},
        {"8B Q8_0", DTYPE_Q8_0, 32, 4096, 32, 8, 128, 14336, 128256},
    };
    measure_shape(c, &shapes[0], "", ROWS_MAX);
    measure_shape(c, &shapes[0], ",graphs=off", 0);
    measure_shape(c, &shapes[0], ",graphs=off,fusion=off", 0);
    measure_shape(c, &shapes[0], ",attention=plain", ROWS_MAX);
    measure_shape(c, &shapes[1], "", ROWS_MAX);
    measure_shape(c, &shapes[1], ",attention=plain", 0);
    measure_shape(c, &shapes[2], "", ROWS_MAX);
    measure_shape(c, &shapes[2], ",codes=plain", 0);
    measure_shape(c, &shapes[3], "", ROWS_MAX);
}
