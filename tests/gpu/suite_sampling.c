/* Goal:   a row of logits gives the same token, logprobs and candidates as on the CPU, to the bit.
 * Method: the same logits on both, as the output of a tape that only copies them, with random
 *         descriptions: every cut, edits with and without a pending token, masks, scores, NaN,
 *         infinities and ties. Two steps, so that the second one finds tokens in the slots. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "rig.h"

enum { ROWS = 12, EDITS = 64 };

static struct rig rig_of(uint32_t vocab, uint64_t seed) {
    struct rig r = {.seed = seed, .op_count = 1, .output = 1, .slot_count = ROWS, .spread = 12.0f};
    r.sizes = (struct step_sizes){.rows_max = ROWS,
                                  .outputs_max = ROWS,
                                  .seqs_max = 1,
                                  .edits_max = ROWS * EDITS,
                                  .deny_words_max = ROWS * ((vocab + 63) / 64)};
    r.values[0] = (struct rig_value){ROWS_TOKENS, VALUE_F32, vocab, 0};
    r.values[1] = (struct rig_value){ROWS_OUTPUTS, VALUE_F32, vocab, 0};
    r.value_count = 2;
    r.ops[0] = (struct op){.kind = OP_GATHER,
                           .gather = {.src = rig_operand(&r, 0), .dst = rig_operand(&r, 1)}};
    return r;
}

static void add_edits(struct step *s, struct sampling *out, struct rng *rng, uint32_t vocab) {
    out->edit_first = s->tables.edit_count;
    out->edit_count = (uint32_t)rng_below(rng, EDITS);
    out->seen_count = (uint32_t)rng_below(rng, out->edit_count + 1);
    for (uint32_t i = 0; i < out->edit_count; i++) {
        struct logit_edit *e = &s->tables.edits[s->tables.edit_count++];
        *e = (struct logit_edit){.token = (int32_t)rng_below(rng, vocab < 40 ? vocab : 40),
                                 .scale = rng_below(rng, 2) ? 1.3f : 1.0f,
                                 .add = (float)rng_unit(rng) * 4 - 2,
                                 .add_again = (float)rng_unit(rng) * 4 - 3};
        if (rng_below(rng, 9) == 0) e->add = -HUGE_VALF;
    }
}

static void add_mask(struct step *s, struct sampling *out, struct rng *rng, uint32_t vocab) {
    uint32_t words = (vocab + 63) / 64;
    uint64_t keep = rng_below(rng, 4); /* 0: everything is denied */
    out->deny_first = s->tables.deny_count;
    for (uint32_t i = 0; i < words; i++) {
        uint64_t bits = rng_next(rng);
        s->tables.deny[s->tables.deny_count++] = keep ? bits : UINT64_MAX;
    }
}

static struct sampling random_sampling(struct step *s, struct rng *rng, uint32_t vocab,
                                       uint32_t row, bool is_second) {
    static const float temperatures[] = {0.0f, 0.7f, 1.0f, 1.5f, 0.05f, 30.0f};
    struct sampling out = {.kind = rng_below(rng, 8) ? SAMPLING_DRAW : SAMPLING_SCORE,
                           .slot = row,
                           .pending_slot = row,
                           .token = (int32_t)rng_below(rng, vocab),
                           .temperature = temperatures[rng_below(rng, 6)],
                           .top_p = rng_below(rng, 2) ? 1.0f : (float)rng_unit(rng),
                           .typical_p = rng_below(rng, 3) ? 1.0f : (float)rng_unit(rng),
                           .min_p = rng_below(rng, 3) ? 0.0f : (float)rng_unit(rng) * 0.3f,
                           .top_k = rng_below(rng, 2) ? 0 : (uint32_t)rng_below(rng, vocab + 5),
                           .seed = rng_next(rng),
                           .position = rng_next(rng),
                           .deny_first = SAMPLING_NONE,
                           .fresh_scale = 1.2f,
                           .fresh_add = -0.5f,
                           .wants_logprob = rng_below(rng, 2) == 0,
                           .top_count = (uint32_t)rng_below(rng, TOP_LOGPROBS_MAX + 1)};
    if (out.top_k > 100 && rng_below(rng, 2)) out.top_k = 40;
    out.is_pending = is_second && rng_below(rng, 2);
    if (rng_below(rng, 2)) add_edits(s, &out, rng, vocab);
    if (rng_below(rng, 4) == 0) add_mask(s, &out, rng, vocab);
    return out;
}

/* Some rows get special numbers: ties, infinities, nothing allowed, NaN. */
static float special(uint32_t row, uint32_t i, float number) {
    switch (row) {
    case 1:
        return (float)(int)(number / 4);
    case 2:
        return i % 5 == 0 ? -HUGE_VALF : number;
    case 3:
        return i % 97 == 3 ? HUGE_VALF : number;
    case 4:
        return -HUGE_VALF;
    case 5:
        return i == 7 ? NAN : number;
    case 6:
        return i % 3 == 0 ? number * 1e-40f : number; /* becomes 0 */
    case 7:
        return number * 10;
    default:
        return number;
    }
}

static void plant(struct rig_run *run) {
    const struct tape_value *v = tape_value_at(run->tape, 0);
    for (uint32_t row = 0; row < ROWS; row++) {
        float *x = (float *)(void *)(run->bytes + v->offset + row * v->row_bytes);
        for (uint32_t i = 0; i < v->cols; i++) x[i] = special(row, i, x[i]);
    }
}

static bool same_result(const struct row_output *a, const struct row_output *b) {
    if (a->failed || b->failed) return a->failed == b->failed;
    const struct sample_result *p = &a->sample, *q = &b->sample;
    if (memcmp(&p->chosen, &q->chosen, sizeof(p->chosen)) != 0) return false;
    if (p->top_count != q->top_count) return false;
    return memcmp(p->top, q->top, p->top_count * sizeof(p->top[0])) == 0;
}

static void describe(struct rig_run *run, uint64_t seed, bool is_second) {
    struct rng rng = {.seed = seed};
    struct step *s = run->step;
    rig_one_seq(run, ROWS, 0, 0);
    s->hands_over = false;
    for (uint32_t i = 0; i < ROWS; i++)
        s->samplings[i] = random_sampling(s, &rng, run->rig->values[0].cols, i, is_second);
}

static void compare(struct checks *c, const struct rig_run *cpu, const struct rig_run *gpu,
                    uint64_t seed) {
    for (uint32_t i = 0; i < ROWS; i++) {
        const struct row_output *a = &cpu->result.outputs[i], *b = &gpu->result.outputs[i];
        const struct sampling *s = &cpu->step->samplings[i];
        check_that(c, same_result(a, b),
                   "sampling seed %llu row %u of %u: CPU %s%d (%.9g, %u), here %s%d (%.9g, %u); "
                   "kind %d t %g k %u p %g typ %g min %g edits %u pending %d deny %d",
                   (unsigned long long)seed, i, cpu->rig->values[0].cols, a->failed ? "fails " : "",
                   a->sample.chosen.token, (double)a->sample.chosen.logprob, a->sample.top_count,
                   b->failed ? "fails " : "", b->sample.chosen.token,
                   (double)b->sample.chosen.logprob, b->sample.top_count, (int)s->kind,
                   (double)s->temperature, s->top_k, (double)s->top_p, (double)s->typical_p,
                   (double)s->min_p, s->edit_count, s->is_pending, s->deny_first != SAMPLING_NONE);
    }
}

static void check_vocab(struct checks *c, uint32_t vocab, uint64_t seed) {
    struct rig_run cpu, gpu;
    struct rig r = rig_of(vocab, seed);
    r.prepare_bytes = plant;
    rig_open(&r, "ref", &cpu);
    rig_open(&r, c->device, &gpu);
    for (int second = 0; second < 2; second++) {
        describe(&cpu, seed + (uint64_t)second * 1000, second);
        rig_step(&cpu);
        describe(&gpu, seed + (uint64_t)second * 1000, second);
        rig_step(&gpu);
        compare(c, &cpu, &gpu, seed);
    }
    rig_close(&gpu);
    rig_close(&cpu);
}

void suite_sampling(struct checks *c) {
    static const uint32_t vocabs[] = {8, 64, 65, 1000, 2049};
    uint32_t seeds = c->is_quick ? 4 : 20;
    for (size_t i = 0; i < sizeof(vocabs) / sizeof(vocabs[0]); i++)
        for (uint64_t seed = 1; seed <= seeds; seed++) check_vocab(c, vocabs[i], seed * 31 + i);
    check_vocab(c, 32000, 3);
    if (c->is_quick) return;
    for (uint64_t seed = 1; seed <= 10; seed++) check_vocab(c, 151936, seed);
    check_vocab(c, 262144, 1);
}
