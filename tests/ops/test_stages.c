/* Goal:   where the barriers are, and which thread does what, changes no bit: not with few rows,
 *         where the last thread to arrive at a barrier runs the small ops alone, nor with more. And
 *         the small ops of a decoding layer have no barriers of their own.
 * Method: seeded random tapes of every kind of op over a few values, in any order and in place, run
 *         with 1 .. 9 rows, some of them skipped, by 1 .. 5 threads on every table; the result and
 *         the cache against those of one thread of the reference. A missing barrier would also
 *         show under a thread sanitizer. Stages of a layer's tape are counted. */
#include <math.h>

#include "kernels/cpu/workspace.h"
#include "kernels/cpu/stage.h"
#include "ops/matmul_rig.h"

enum {
    WIDTH_MAX = 384,
    DIM = 32,
    EXPERTS = 4,
    USED = 2,
    STREAMS = 4, /* values that the ops work on */
    WEIGHTS = 6,
    FEED = 544, /* two chunks of an act and a bit */
    VOCAB = 40,
    ROWS_MAX = 9,
    OUTPUTS_MAX = 5, /* fewer than there may be */
    THREADS_MAX = 5,
    OPS_MAX = 14,
    SEEDS = 100,
    KV_BLOCKS = 4,
};

/* What tapes are made of: `width` columns, so few that little stages are one thread's, or more. */
struct world {
    uint32_t width, heads;
    struct weight embd, product, experts, gate, up, down;
    float norm_floats[WIDTH_MAX], freqs_floats[DIM / 2];
    float order_floats[WIDTH_MAX];
    struct weight norm, head_norm, freqs, order; /* of a row, of a head */
};

static void world_init(struct world *w, uint32_t width) {
    w->width = width;
    w->heads = width / DIM;
    w->embd = random_weight(DTYPE_Q8_0, VOCAB, width, 1, 1);
    w->product = random_weight(DTYPE_Q4_0, width, width, 1, 2);
    w->experts = random_weight(DTYPE_Q4_1, width, width, EXPERTS, 3);
    w->gate = random_weight(DTYPE_Q5_1, FEED, width, 1, 4);
    w->up = random_weight(DTYPE_Q5_1, FEED, width, 1, 5);
    w->down = random_weight(DTYPE_Q8_0, width, FEED, 1, 6);
    for (int i = 0; i < WIDTH_MAX; i++) w->norm_floats[i] = 1.0f + 0.01f * (float)i;
    for (int i = 0; i < DIM / 2; i++) w->freqs_floats[i] = 1.0f / (float)(1 + i * i);
    w->norm = weight_vector(STR("norm"), w->norm_floats, width);
    w->head_norm = weight_vector(STR("head_norm"), w->norm_floats, DIM);
    w->freqs = weight_vector(STR("freqs"), w->freqs_floats, DIM / 2);
    for (uint32_t i = 0; i < width; i++) w->order_floats[i] = (float)(width - 1 - i);
    w->order = weight_vector(STR("order"), w->order_floats, width);
}

static void world_deinit(struct world *w) {
    struct weight *all[WEIGHTS] = {&w->embd, &w->product, &w->experts, &w->gate, &w->up, &w->down};
    for (int i = 0; i < WEIGHTS; i++) mem_free((void *)(uintptr_t)all[i]->data);
}

/* A tape while it is written. */
struct writer {
    struct tape *t;
    const struct world *w;
    struct rng rng;
    struct operand x[STREAMS];
};

static uint32_t below(struct writer *w, uint32_t limit) {
    return (uint32_t)(rng_next(&w->rng) % limit);
}

/* A stream that is not `this`. */
static struct operand other_than(struct writer *w, struct operand this) {
    struct operand x = this;
    while (x.value == this.value) x = w->x[below(w, STREAMS)];
    return x;
}

static struct operand new_value(struct writer *w, enum rows_kind rows, enum value_type type,
                                uint32_t cols) {
    return tape_all(w->t, tape_value(w->t, "value", rows, type, cols));
}

static void push_norm(struct writer *w, struct operand src, struct operand dst) {
    struct op op = {.kind = OP_NORM};
    const struct weight *weight = below(w, 2) ? &w->w->norm : &w->w->head_norm;
    op.norm = (struct op_norm){NORM_RMS, weight->cols, 1e-5f, weight, NULL, src, dst, operand_none};
    tape_push(w->t, &op);
}

static struct operand push_quant(struct writer *w, struct operand src, enum rows_kind rows) {
    struct operand q8 = new_value(w, rows, VALUE_Q8, src.cols);
    tape_push(w->t, &(struct op){.kind = OP_QUANT, .quant = {src, q8}});
    return q8;
}

static void push_product(struct writer *w, struct operand src, struct operand dst, bool add) {
    struct op op = {.kind = OP_MATMUL};
    op.matmul = (struct op_matmul){.parts = {{&w->w->product, NULL}},
                                   .part_count = 1,
                                   .add = add,
                                   .src = push_quant(w, src, ROWS_TOKENS),
                                   .dst = dst};
    tape_push(w->t, &op);
}

static void push_rope(struct writer *w, struct operand x) {
    struct op op = {.kind = OP_ROPE};
    op.rope = (struct op_rope){
        below(w, 2) ? ROPE_NEOX : ROPE_ADJACENT, w->w->heads, DIM, DIM, &w->w->freqs, 1.0f, x};
    tape_push(w->t, &op);
}

/* Normed first, for the cache holds no large numbers. */
static void push_kv_write(struct writer *w, struct operand k, struct operand v) {
    struct op op = {.kind = OP_KV_WRITE};
    push_norm(w, k, k);
    push_norm(w, v, v);
    op.kv_write = (struct op_kv_write){.k = k, .v = v};
    tape_push(w->t, &op);
}

static void push_attention(struct writer *w, struct operand q, struct operand dst) {
    struct op op = {.kind = OP_ATTENTION};
    op.attention = (struct op_attention){.heads = w->w->heads,
                                         .kv_heads = w->w->heads,
                                         .head_dim = DIM,
                                         .scale = 0.2f,
                                         .q = q,
                                         .dst = dst,
                                         .q8 = operand_none};
    tape_push(w->t, &op);
}

static void push_self_attention(struct writer *w, struct operand q, struct operand dst) {
    struct operand k = other_than(w, dst), v = other_than(w, dst);
    struct op op = {.kind = OP_SELF_ATTENTION};
    op.self_attention =
        (struct op_self_attention){w->w->heads, DIM, 0.2f, q, k, v, dst, operand_none};
    tape_push(w->t, &op);
}

static void push_act(struct writer *w, struct operand gate, struct operand dst) {
    struct op op = {.kind = OP_ACT};
    struct operand up = below(w, 2) ? other_than(w, dst) : operand_none;
    op.act = (struct op_act){ACT_SILU, 1, 0, gate, up, dst, operand_none};
    tape_push(w->t, &op);
}

/* An act that follows its product; gate and up, or one of the two alone. */
static void push_feed(struct writer *w, struct operand src, struct operand dst, bool with_up) {
    struct operand both = new_value(w, ROWS_TOKENS, VALUE_F32, 2 * FEED);
    struct operand y = new_value(w, ROWS_TOKENS, VALUE_F32, FEED);
    struct operand gate = operand_slice(both, 0, FEED), up = operand_slice(both, FEED, FEED);
    struct op wide = {.kind = OP_MATMUL}, act = {.kind = OP_ACT}, down = {.kind = OP_MATMUL};
    wide.matmul = (struct op_matmul){.parts = {{&w->w->gate, NULL}, {&w->w->up, NULL}},
                                     .part_count = 2,
                                     .src = push_quant(w, src, ROWS_TOKENS),
                                     .dst = both};
    tape_push(w->t, &wide);
    act.act = (struct op_act){.kind = ACT_SILU,
                              .segments = 1,
                              .gate = with_up || below(w, 2) ? gate : up,
                              .up = with_up ? up : operand_none,
                              .dst = y,
                              .q8 = operand_none};
    tape_push(w->t, &act);
    down.matmul = (struct op_matmul){.parts = {{&w->w->down, NULL}},
                                     .part_count = 1,
                                     .add = true,
                                     .src = push_quant(w, y, ROWS_TOKENS),
                                     .dst = dst};
    tape_push(w->t, &down);
}

static void push_experts(struct writer *w, struct operand src, struct operand dst) {
    struct operand ids = new_value(w, ROWS_TOKENS, VALUE_I32, USED);
    struct operand shares = new_value(w, ROWS_TOKENS, VALUE_F32, USED);
    struct operand each = new_value(w, ROWS_TOKENS, VALUE_F32, USED * w->w->width);
    struct op route = {.kind = OP_ROUTE}, product = {.kind = OP_EXPERT_MATMUL},
              sum = {.kind = OP_EXPERT_SUM};
    route.route =
        (struct op_route){EXPERTS, USED, true, operand_slice(src, 0, EXPERTS), ids, shares};
    tape_push(w->t, &route);
    product.expert_matmul = (struct op_expert_matmul){.parts = {{&w->w->experts, NULL}},
                                                      .part_count = 1,
                                                      .used = USED,
                                                      .src = push_quant(w, src, ROWS_TOKENS),
                                                      .ids = ids,
                                                      .dst = each};
    tape_push(w->t, &product);
    sum.expert_sum = (struct op_expert_sum){USED, below(w, 2), each, shares, dst};
    tape_push(w->t, &sum);
}

static void push_embed(struct writer *w, struct operand dst, bool add) {
    struct op op = {.kind = OP_EMBED};
    op.embed = (struct op_embed){&w->w->embd, add ? EMBED_POSITION : EMBED_TOKEN, add, 0.5f, dst};
    tape_push(w->t, &op);
}

/* One op, or a few that belong together, from one stream to another. */
static void push_random(struct writer *w) {
    struct operand a = w->x[below(w, STREAMS)], b = other_than(w, a);
    switch (below(w, 15)) {
    case 0:
        push_norm(w, a, b);
        break;
    case 1:
        push_product(w, a, b, below(w, 2));
        break;
    case 2:
        push_rope(w, a);
        break;
    case 3:
        push_kv_write(w, a, b);
        break;
    case 4:
        push_attention(w, a, b);
        break;
    case 5:
        push_self_attention(w, a, b);
        break;
    case 6:
        push_act(w, a, b);
        break;
    case 7:
        tape_push(w->t, &(struct op){.kind = OP_ADD, .add = {a, b}});
        break;
    case 8:
        tape_push(w->t, &(struct op){.kind = OP_SOFTCAP, .softcap = {30.0f, a}});
        break;
    case 9:
        push_experts(w, a, b);
        break;
    case 10:
    case 11:
        push_feed(w, a, b, below(w, 2));
        break;
    case 12:
        tape_push(w->t, &(struct op){.kind = OP_PERMUTE, .permute = {&w->w->order, a, b}});
        break;
    case 13:
        tape_push(w->t, &(struct op){.kind = OP_INPUT, .input = {b}});
        break;
    default:
        push_embed(w, b, true);
        break;
    }
    if (below(w, 2)) push_norm(w, b, b);
}

/* Rows that are wanted, or one for each sequence, and a last product of them. */
static void push_end(struct writer *w) {
    struct operand src = w->x[below(w, STREAMS)];
    enum rows_kind rows = below(w, 2) ? ROWS_OUTPUTS : ROWS_SEQS;
    struct operand last = new_value(w, rows, VALUE_F32, w->w->width);
    struct operand out = new_value(w, rows, VALUE_F32, w->w->width);
    struct op end = {.kind = rows == ROWS_OUTPUTS ? OP_GATHER : OP_POOL}, op = {.kind = OP_MATMUL};
    if (rows == ROWS_OUTPUTS)
        end.gather = (struct op_gather){src, last};
    else
        end.pool = (struct op_pool){POOL_MEAN, below(w, 2), src, last};
    push_norm(w, src, src);
    tape_push(w->t, &end);
    push_norm(w, last, last);
    op.matmul = (struct op_matmul){.parts = {{&w->w->product, NULL}},
                                   .part_count = 1,
                                   .src = push_quant(w, last, rows),
                                   .dst = out};
    tape_push(w->t, &op);
    tape_set_output(w->t, out.value);
}

static struct tape *random_tape(const struct world *world, uint64_t seed) {
    struct writer w = {.w = world, .rng = {.seed = seed}};
    struct err err = {{0}};
    assert_int_equal(tape_create(&w.t), ST_OK);
    for (int i = 0; i < STREAMS; i++) w.x[i] = new_value(&w, ROWS_TOKENS, VALUE_F32, world->width);
    for (int i = 0; i < STREAMS; i++) push_embed(&w, w.x[i], false);
    push_kv_write(&w, w.x[0], w.x[1]);
    for (uint32_t i = 1 + below(&w, OPS_MAX); i > 0; i--) push_random(&w);
    push_end(&w);
    if (tape_finish(w.t, &(struct tape_sizes){ROWS_MAX, OUTPUTS_MAX, 1}, &err) != ST_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.text);
    return w.t;
}

/* Rows of one sequence. Some are skipped, the last never, and none of an encoder's, which attends
 * to all. Some of the others are wanted, or none. */
static struct step make_step(const struct world *w, struct rig_steps *s, uint32_t rows, bool skips,
                             uint64_t seed) {
    static float input[ROWS_MAX * WIDTH_MAX];
    struct step step = rig_one_seq(s, rows, 3);
    step.output_count = 0;
    step.input = input;
    step.sizes.input_floats = w->width;
    for (uint32_t i = 0; i < rows * w->width; i++)
        input[i] = (float)(rng_at(seed, 11, i) % 2000) / 1000.0f - 1.0f;
    for (uint32_t r = 0; r < rows; r++) {
        s->token[r] = (int32_t)(rng_at(seed, 8, r) % VOCAB);
        if (skips && r + 1 < rows && rng_at(seed, 9, r) % 4 == 0)
            s->pos[r] = -1;
        else if (step.output_count < OUTPUTS_MAX && rng_at(seed, 10, r) % 3 > 0)
            s->output_row[step.output_count++] = r;
    }
    return step;
}

/* What a run leaves: the output's rows, then the cache. */
static uint8_t *run_tape(struct world *w, const struct tape *t, const struct step *step,
                         const char *isa, uint32_t threads, size_t *bytes) {
    struct device dev;
    struct err err = {{0}};
    struct weight *all[WEIGHTS] = {&w->embd, &w->product, &w->experts, &w->gate, &w->up, &w->down};
    if (cpu_device_open(isa, threads, &dev, &err) != ST_OK) fail_msg("%s", err.text);
    for (int i = 0; i < WEIGHTS; i++) {
        all[i]->prepared = NULL;
        assert_int_equal(dev.prepare(dev.self, all[i], &err), ST_OK);
    }
    struct kv_tiles kv = {.type = KV_F16,
                          .layers = 1,
                          .heads = w->heads,
                          .head_dim = DIM,
                          .tile_count = KV_BLOCKS,
                          .tiles_per_block = 1};
    kv.base = (uint8_t *)(uintptr_t)dev.alloc(dev.self, rig_kv_bytes(&kv));
    struct device_program *p = rig_program(&dev, t, &kv);
    struct device_result got = rig_step(&dev, p, step);
    size_t part = got.row_floats * sizeof(float) * got.output_count;
    *bytes = part + rig_kv_bytes(&kv);
    uint8_t *left = mem_alloc(*bytes);
    memcpy(left, got.rows, part);
    memcpy(left + part, kv.base, rig_kv_bytes(&kv));
    dev.program_destroy(dev.self, p);
    dev.free(dev.self, (device_addr)(uintptr_t)kv.base, rig_kv_bytes(&kv));
    dev.close(dev.self);
    return left;
}

/* The stages of a tape hold every op once, in order; returns the mask of kinds that were seen. */
static uint32_t check_stages(const struct tape *t) {
    struct stage *stages = mem_alloc_array(tape_op_count(t), sizeof(*stages));
    bool *follows = mem_zalloc_array(tape_op_count(t), sizeof(*follows));
    uint32_t count = stages_make(t, follows, stages), next = 0, kinds = 0;
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(stages[i].first, next);
        assert_true(stages[i].end > next);
        next = stages[i].end;
    }
    assert_int_equal(next, tape_op_count(t));
    for (uint32_t i = 0; i < next; i++) kinds |= 1u << tape_op(t, i)->kind;
    mem_free(stages);
    mem_free(follows);
    return kinds;
}

static void check_seed(struct world *w, uint64_t seed, uint32_t *kinds) {
    static struct rig_steps steps;
    struct tape *t = random_tape(w, seed);
    uint32_t own_kinds = check_stages(t);
    bool skips = !(own_kinds >> OP_SELF_ATTENTION & 1);
    struct step step = make_step(w, &steps, 1 + (uint32_t)(seed % ROWS_MAX), skips, seed);
    const char *isa = rig_isas[seed / 2 % RIG_ISAS];
    size_t want_bytes, got_bytes;
    uint8_t *want = run_tape(w, t, &step, "ref", 1, &want_bytes);
    for (uint32_t i = 0; i < w->width; i++)
        assert_true(isfinite(((const float *)(const void *)want)[i]));
    if (!rig_isa_runs(isa)) isa = "auto";
    for (uint32_t threads = 1; threads <= THREADS_MAX; threads++) {
        uint8_t *got = run_tape(w, t, &step, isa, threads, &got_bytes);
        assert_int_equal(got_bytes, want_bytes);
        if (memcmp(got, want, want_bytes) != 0)
            fail_msg("seed %llu, width %u: %s with %u threads and %u rows differs",
                     (unsigned long long)seed, w->width, isa, threads, step.row_count);
        mem_free(got);
    }
    *kinds |= own_kinds;
    mem_free(want);
    tape_destroy(t);
}

static void test_random_tapes_give_the_bits_of_one_thread(void **state) {
    (void)state;
    for (uint32_t width = 2 * DIM; width <= WIDTH_MAX; width += WIDTH_MAX - 2 * DIM) {
        struct world w;
        uint32_t kinds = 0;
        world_init(&w, width);
        for (uint64_t seed = 1; seed <= SEEDS; seed++) check_seed(&w, seed, &kinds);
        assert_int_equal(kinds, (1u << OP_COUNT) - 1); /* all were met */
        world_deinit(&w);
    }
}

/* A layer of a llama: what a tape of it would be after fusing. */
static struct tape *layer_tape(const struct world *world) {
    struct writer w = {.w = world};
    assert_int_equal(tape_create(&w.t), ST_OK);
    for (int i = 0; i < STREAMS; i++) w.x[i] = new_value(&w, ROWS_TOKENS, VALUE_F32, world->width);
    push_product(&w, w.x[0], w.x[1], true); /* of the layer before */
    push_norm(&w, w.x[1], w.x[0]);
    push_product(&w, w.x[0], w.x[2], false);
    push_rope(&w, w.x[2]);
    push_rope(&w, w.x[3]);
    tape_push(w.t, &(struct op){.kind = OP_KV_WRITE, .kv_write = {0, 0, w.x[2], w.x[3]}});
    push_attention(&w, w.x[2], w.x[3]);
    push_product(&w, w.x[3], w.x[1], true);
    push_norm(&w, w.x[1], w.x[0]);
    push_feed(&w, w.x[0], w.x[1], true);
    tape_set_output(w.t, w.x[1].value);
    assert_int_equal(tape_finish(w.t, &(struct tape_sizes){4096, 1, 1}, NULL), ST_OK);
    return w.t;
}

/* Behind the first product, which is not the layer's. */
static uint32_t count_barriers(const struct tape *t, uint32_t rows, uint32_t threads) {
    struct step step = {.row_count = rows, .output_count = 1, .seq_count = 1};
    struct stage stages[32];
    bool follows[32] = {false};
    assert_true(tape_op_count(t) <= 32);
    for (uint32_t i = 0; i < tape_op_count(t); i++) follows[i] = stage_may_follow(t, i);
    uint32_t count = stages_make(t, follows, stages), barriers = 0, at = 0;
    while (at < count && tape_op(t, stages[at].first)->kind != OP_MATMUL) at++;
    at = stages_serial_end(stages, count, at + 1, &step, threads);
    for (; at < count; barriers++) at = stages_serial_end(stages, count, at + 1, &step, threads);
    return barriers;
}

static void test_a_layer_meets_five_times_with_one_row_and_nine_times_with_many(void **state) {
    (void)state;
    struct world w;
    world_init(&w, WIDTH_MAX);
    struct tape *t = layer_tape(&w);
    for (uint32_t threads = 1; threads <= 64; threads *= 2) {
        assert_int_equal(count_barriers(t, 1, threads), 5);
        if (threads > 1) assert_int_equal(count_barriers(t, 4096, threads), 9);
    }
    assert_int_equal(count_barriers(t, CLAIM_ROWS_MIN - 1, 2), 8); /* the act still follows */
    assert_int_equal(count_barriers(t, CLAIM_ROWS_MIN, 2), 9);
    tape_destroy(t);
    world_deinit(&w);
}

static void test_what_sharing_would_save_decides_who_does_a_stage(void **state) {
    (void)state;
    struct stage norm = {.end = 1, .rows = ROWS_TOKENS, .row_work = 2048};
    struct stage act = {.end = 1, .rows = ROWS_TOKENS, .row_work = 2048, .splits_rows = true};
    struct stage product = {.end = 1, .rows = ROWS_TOKENS};
    struct step none = {0}, one = {.row_count = 1}, two = {.row_count = 2}, six = {.row_count = 6};
    assert_int_equal(stages_serial_end(&norm, 1, 0, &one, 2), 1); /* one row is for one anyway */
    assert_int_equal(stages_serial_end(&norm, 1, 0, &two, 2), 0); /* 2,048 more for one of two */
    assert_int_equal(stages_serial_end(&norm, 1, 0, &two, 4), 1);
    assert_int_equal(stages_serial_end(&norm, 1, 0, &six, 16), 0); /* 10,240 of 8,192 */
    assert_int_equal(stages_serial_end(&norm, 1, 0, &six, 20), 1);
    assert_int_equal(stages_serial_end(&act, 1, 0, &one, 2), 1); /* 1,024 of 1,024 */
    assert_int_equal(stages_serial_end(&act, 1, 0, &two, 2), 0);
    assert_int_equal(stages_serial_end(&norm, 1, 0, &none, 4), 1);
    assert_int_equal(stages_serial_end(&product, 1, 0, &one, 64), 0);
    assert_int_equal(stages_serial_end(&product, 1, 1, &one, 64), 1); /* none is left */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_tapes_give_the_bits_of_one_thread),
        cmocka_unit_test(test_a_layer_meets_five_times_with_one_row_and_nine_times_with_many),
        cmocka_unit_test(test_what_sharing_would_save_decides_who_does_a_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
