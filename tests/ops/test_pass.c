/* Goal:   a forward pass gives every position the same bits however the prompt is cut, however
 *         many threads run it, and what else is in the step.
 * Method: a two-layer model with random weights, run over a prompt that crosses segment edges:
 *         whole, in chunks of 1, 7 and 64, with 1, 2 and 5 threads, beside another sequence and
 *         between skipped rows, in every cache format, with blocks of one, two and three tiles;
 *         the logits of every position compared.
 *         Barriers that the plan leaves out would show here, and under a thread sanitizer. */
#include <math.h>

#include "ops/matmul_rig.h"

enum {
    LAYERS = 2,
    WIDTH = 96,
    HEADS = 3,
    KV_HEADS = 1,
    DIM = 32,
    FEED = 160,
    VOCAB = 70,
    PROMPT = 290,
    ROWS = 64,
    BLOCKS = 64,
};

struct layer {
    struct weight q, k, v, o, gate, up, down;
};

struct toy {
    struct weight embd, head;
    struct layer layers[LAYERS];
    float norm_floats[WIDTH], freqs_floats[DIM / 2];
    struct weight norm, freqs;
};

static void toy_init(struct toy *m) {
    memset(m, 0, sizeof(*m));
    m->embd = random_weight(DTYPE_Q8_0, VOCAB, WIDTH, 1, 1);
    m->head = random_weight(DTYPE_Q8_0, VOCAB, WIDTH, 1, 2);
    for (uint32_t i = 0; i < LAYERS; i++) {
        struct layer *l = &m->layers[i];
        uint64_t seed = 10 * (i + 1);
        l->q = random_weight(DTYPE_Q4_1, HEADS * DIM, WIDTH, 1, seed);
        l->k = random_weight(DTYPE_Q4_1, KV_HEADS * DIM, WIDTH, 1, seed + 1);
        l->v = random_weight(DTYPE_Q4_1, KV_HEADS * DIM, WIDTH, 1, seed + 2);
        l->o = random_weight(DTYPE_Q4_0, WIDTH, HEADS * DIM, 1, seed + 3);
        l->gate = random_weight(DTYPE_Q5_1, FEED, WIDTH, 1, seed + 4);
        l->up = random_weight(DTYPE_Q5_1, FEED, WIDTH, 1, seed + 5);
        l->down = random_weight(DTYPE_IQ4_NL, WIDTH, FEED, 1, seed + 6);
    }
    for (int i = 0; i < WIDTH; i++) m->norm_floats[i] = 1.0f + 0.01f * (float)i;
    for (int i = 0; i < DIM / 2; i++) m->freqs_floats[i] = 1.0f / (float)(1 + i * i);
    m->norm = weight_vector(STR("norm"), m->norm_floats, WIDTH);
    m->freqs = weight_vector(STR("freqs"), m->freqs_floats, DIM / 2);
}

static uint32_t toy_weights(struct toy *m, struct weight **out) {
    uint32_t count = 0;
    out[count++] = &m->embd;
    out[count++] = &m->head;
    for (int i = 0; i < LAYERS; i++) {
        struct layer *l = &m->layers[i];
        struct weight *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (int j = 0; j < 7; j++) out[count++] = all[j];
    }
    return count;
}

enum { WEIGHTS = 2 + 7 * LAYERS };

static void toy_deinit(struct toy *m) {
    struct weight *all[WEIGHTS];
    uint32_t count = toy_weights(m, all);
    for (uint32_t i = 0; i < count; i++) mem_free((void *)(uintptr_t)all[i]->data);
}

static void push_norm(struct tape *t, const struct toy *m, struct operand src, struct operand dst) {
    struct op op = {.kind = OP_NORM};
    op.norm = (struct op_norm){.kind = NORM_RMS,
                               .group = WIDTH,
                               .eps = 1e-5f,
                               .weight = &m->norm,
                               .src = src,
                               .dst = dst,
                               .q8 = operand_none};
    tape_push(t, &op);
}

static struct operand push_quant(struct tape *t, struct operand src, enum rows_kind rows) {
    struct operand q8 = tape_all(t, tape_value(t, "q8", rows, VALUE_Q8, src.cols));
    struct op op = {.kind = OP_QUANT};
    op.quant = (struct op_quant){src, q8};
    tape_push(t, &op);
    return q8;
}

static void push_matmul(struct tape *t, struct operand src, struct operand dst, bool add,
                        const struct weight *a, const struct weight *b, const struct weight *c) {
    struct op op = {.kind = OP_MATMUL};
    op.matmul = (struct op_matmul){.parts = {{a, NULL}, {b, NULL}, {c, NULL}},
                                   .part_count = c   ? 3
                                                 : b ? 2
                                                     : 1,
                                   .add = add,
                                   .src = src,
                                   .dst = dst};
    tape_push(t, &op);
}

static void push_rope(struct tape *t, const struct toy *m, struct operand x, uint32_t heads) {
    struct op op = {.kind = OP_ROPE};
    op.rope = (struct op_rope){.style = ROPE_NEOX,
                               .heads = heads,
                               .head_dim = DIM,
                               .rot_dims = DIM,
                               .freqs = &m->freqs,
                               .factor = 1.0f,
                               .x = x};
    tape_push(t, &op);
}

static void push_attention(struct tape *t, const struct toy *m, uint32_t layer,
                           struct operand stream) {
    const struct layer *l = &m->layers[layer];
    struct operand x = tape_all(t, tape_value(t, "x", ROWS_TOKENS, VALUE_F32, WIDTH));
    struct operand qkv =
        tape_all(t, tape_value(t, "qkv", ROWS_TOKENS, VALUE_F32, (HEADS + 2 * KV_HEADS) * DIM));
    struct operand q = operand_slice(qkv, 0, HEADS * DIM);
    struct operand k = operand_slice(qkv, HEADS * DIM, KV_HEADS * DIM);
    struct operand v = operand_slice(qkv, (HEADS + KV_HEADS) * DIM, KV_HEADS * DIM);
    struct operand o = tape_all(t, tape_value(t, "o", ROWS_TOKENS, VALUE_F32, HEADS * DIM));
    push_norm(t, m, stream, x);
    push_matmul(t, push_quant(t, x, ROWS_TOKENS), qkv, false, &l->q, &l->k, &l->v);
    push_rope(t, m, q, HEADS);
    push_rope(t, m, k, KV_HEADS);
    struct op write = {.kind = OP_KV_WRITE};
    write.kv_write = (struct op_kv_write){.layer = layer, .k = k, .v = v};
    tape_push(t, &write);
    struct op attend = {.kind = OP_ATTENTION};
    attend.attention = (struct op_attention){.layer = layer,
                                             .heads = HEADS,
                                             .kv_heads = KV_HEADS,
                                             .head_dim = DIM,
                                             .window = layer ? 100 : 0,
                                             .scale = 0.2f,
                                             .q = q,
                                             .dst = o,
                                             .q8 = operand_none};
    tape_push(t, &attend);
    push_matmul(t, push_quant(t, o, ROWS_TOKENS), stream, true, &l->o, NULL, NULL);
}

static void push_feed(struct tape *t, const struct toy *m, uint32_t layer, struct operand stream) {
    const struct layer *l = &m->layers[layer];
    struct operand x = tape_all(t, tape_value(t, "x", ROWS_TOKENS, VALUE_F32, WIDTH));
    struct operand both = tape_all(t, tape_value(t, "both", ROWS_TOKENS, VALUE_F32, 2 * FEED));
    struct operand y = tape_all(t, tape_value(t, "y", ROWS_TOKENS, VALUE_F32, FEED));
    push_norm(t, m, stream, x);
    push_matmul(t, push_quant(t, x, ROWS_TOKENS), both, false, &l->gate, &l->up, NULL);
    struct op act = {.kind = OP_ACT};
    act.act = (struct op_act){.kind = ACT_SILU,
                              .segments = 1,
                              .gate = operand_slice(both, 0, FEED),
                              .up = operand_slice(both, FEED, FEED),
                              .dst = y,
                              .q8 = operand_none};
    tape_push(t, &act);
    push_matmul(t, push_quant(t, y, ROWS_TOKENS), stream, true, &l->down, NULL, NULL);
}

static struct tape *toy_tape(const struct toy *m) {
    struct tape *t;
    struct err err = {{0}};
    assert_int_equal(tape_create(&t), ST_OK);
    struct operand stream = tape_all(t, tape_value(t, "stream", ROWS_TOKENS, VALUE_F32, WIDTH));
    struct op embed = {.kind = OP_EMBED}, gather = {.kind = OP_GATHER};
    embed.embed =
        (struct op_embed){.table = &m->embd, .source = EMBED_TOKEN, .scale = 1.0f, .dst = stream};
    tape_push(t, &embed);
    for (uint32_t i = 0; i < LAYERS; i++) {
        push_attention(t, m, i, stream);
        push_feed(t, m, i, stream);
    }
    struct operand last = tape_all(t, tape_value(t, "last", ROWS_OUTPUTS, VALUE_F32, WIDTH));
    struct operand logits = tape_all(t, tape_value(t, "logits", ROWS_OUTPUTS, VALUE_F32, VOCAB));
    gather.gather = (struct op_gather){stream, last};
    tape_push(t, &gather);
    push_norm(t, m, last, last);
    push_matmul(t, push_quant(t, last, ROWS_OUTPUTS), logits, false, &m->head, NULL, NULL);
    tape_set_output(t, logits.value);
    if (tape_finish(t, &(struct tape_sizes){ROWS, ROWS, 2}, &err) != ST_OK)
        fail_msg("%s", err.text);
    return t;
}

/* How a prompt is run. */
struct manner {
    const char *isa;
    uint32_t threads, chunk;
    bool company; /* another sequence and skipped rows stand before it in every step */
    enum kv_type type;
    uint32_t block_tiles;
};

struct session {
    struct device dev;
    struct tape *tape;
    struct device_program *program;
    struct kv_tiles kv;
    struct rig_steps steps;
    struct step step;
};

static int32_t token_at(uint32_t seq, uint32_t pos) {
    return (int32_t)(rng_at(7, seq, pos) % VOCAB);
}

/* Adds `count` rows of sequence `seq` from `first` on; returns the next free row. */
static uint32_t add_rows(struct session *s, uint32_t row, uint32_t seq, uint32_t first,
                         uint32_t count) {
    s->steps.seqs[seq].first_row = row;
    s->steps.seqs[seq].row_count = count;
    for (uint32_t i = 0; i < count; i++, row++) {
        s->steps.pos[row] = (int32_t)(first + i);
        s->steps.token[row] = token_at(seq, first + i);
        s->steps.seq[row] = seq;
    }
    return row;
}

static uint32_t add_skipped(struct session *s, uint32_t row) {
    s->steps.pos[row] = -1;
    s->steps.seq[row] = 0;
    s->steps.token[row] = -1;
    return row + 1;
}

/* One step: `count` tokens of the prompt from `first` on; their logits to `out`. */
static void run_step(struct session *s, const struct manner *how, uint32_t first, uint32_t count,
                     float *out) {
    uint32_t row = 0;
    if (how->company) {
        row = add_rows(s, add_skipped(s, row), 1, first, count < 3 ? count : 3);
        row = add_skipped(s, row);
    }
    uint32_t mine = row, end = add_rows(s, row, 0, first, count);
    for (uint32_t i = 0; i < count; i++) s->steps.output_row[i] = mine + i;
    s->step.row_count = end;
    s->step.output_count = count;
    s->step.seq_count = how->company ? 2 : 1;
    struct device_result got = rig_step(&s->dev, s->program, &s->step);
    assert_int_equal(got.output_count, count);
    for (uint32_t i = 0; i < count; i++)
        memcpy(out + (size_t)(first + i) * VOCAB, got.rows + i * got.row_floats,
               VOCAB * sizeof(float));
}

static void session_open(struct session *s, struct toy *m, const struct manner *how) {
    struct err err = {{0}};
    struct weight *all[WEIGHTS];
    uint32_t count = toy_weights(m, all);
    if (cpu_device_open(how->isa, how->threads, &s->dev, &err) != ST_OK) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < count; i++) {
        all[i]->prepared = NULL;
        assert_int_equal(s->dev.prepare(s->dev.self, all[i], &err), ST_OK);
    }
    s->tape = toy_tape(m);
    s->kv = (struct kv_tiles){.type = how->type,
                              .layers = LAYERS,
                              .heads = KV_HEADS,
                              .head_dim = DIM,
                              .tile_count = 2 * BLOCKS * how->block_tiles,
                              .tiles_per_block = how->block_tiles};
    s->kv.base = (uint8_t *)(uintptr_t)s->dev.alloc(s->dev.self, rig_kv_bytes(&s->kv));
    memset(s->kv.base, 0xFF, rig_kv_bytes(&s->kv)); /* stale places hold NaN */
    s->program = rig_program(&s->dev, s->tape, &s->kv);
    s->step = rig_one_seq(&s->steps, 1, 0);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        s->steps.blocks[0][b] = 2 * b + 1;
        s->steps.blocks[1][b] = 2 * (BLOCKS - 1 - b);
    }
}

static void session_close(struct session *s) {
    s->dev.program_destroy(s->dev.self, s->program);
    s->dev.free(s->dev.self, (device_addr)(uintptr_t)s->kv.base, rig_kv_bytes(&s->kv));
    tape_destroy(s->tape);
    s->dev.close(s->dev.self);
}

static float *run_prompt(struct toy *m, const struct manner *how) {
    static struct session s;
    float *out = mem_alloc_array((size_t)PROMPT * VOCAB, sizeof(float));
    session_open(&s, m, how);
    for (uint32_t first = 0; first < PROMPT; first += how->chunk) {
        uint32_t left = PROMPT - first;
        run_step(&s, how, first, left < how->chunk ? left : how->chunk, out);
    }
    session_close(&s);
    return out;
}

static void same_as(struct toy *m, const float *want, struct manner how) {
    if (!rig_isa_runs(how.isa)) return;
    float *got = run_prompt(m, &how);
    for (uint32_t i = 0; i < PROMPT; i++)
        if (memcmp(got + (size_t)i * VOCAB, want + (size_t)i * VOCAB, VOCAB * sizeof(float)) != 0)
            fail_msg("%s, %u threads, chunks of %u%s, cache format %d, %u tiles a block: position "
                     "%u differs",
                     how.isa, how.threads, how.chunk, how.company ? " in company" : "", how.type,
                     how.block_tiles, i);
    mem_free(got);
}

static void check_cache_format(struct toy *m, enum kv_type type) {
    float *want = run_prompt(m, &(struct manner){"ref", 1, ROWS, false, type, 1});
    for (uint32_t i = 0; i < PROMPT * VOCAB; i++) assert_true(isfinite(want[i]));
    assert_memory_not_equal(want, want + VOCAB, VOCAB * sizeof(float));
    for (int isa = 0; isa < RIG_ISAS; isa++) {
        same_as(m, want, (struct manner){rig_isas[isa], 1, ROWS, false, type, 1});
        same_as(m, want, (struct manner){rig_isas[isa], 2, 7, false, type, 1});
        same_as(m, want, (struct manner){rig_isas[isa], 5, 40, true, type, 1});
        same_as(m, want, (struct manner){rig_isas[isa], 2, 1, true, type, 1});
    }
    same_as(m, want, (struct manner){"avx2", 5, 1, false, type, 1});
    same_as(m, want, (struct manner){"avx2", 5, 7, false, type, 1});
    same_as(m, want, (struct manner){"avx2", 2, ROWS, false, type, 1});
    for (uint32_t tiles = 2; tiles <= 3; tiles++) {
        same_as(m, want, (struct manner){"ref", 1, 7, true, type, tiles});
        same_as(m, want, (struct manner){"auto", 2, 40, true, type, tiles});
    }
    mem_free(want);
}

static void test_chunks_threads_and_company_change_no_bit(void **state) {
    (void)state;
    struct toy m;
    toy_init(&m);
    for (int type = KV_F16; type < KV_TYPE_COUNT; type++)
        check_cache_format(&m, (enum kv_type)type);
    toy_deinit(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_threads_and_company_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
