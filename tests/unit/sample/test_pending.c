/* Goal:   a step described while the token before it is pending gives, for whatever that token
 *         turns out to be, the bits that accepting it first would give.
 * Method: seeded settings, histories and logits; pending tokens that were seen, were not, leave
 *         the window, have a bias, end an answer around min_tokens. Compared are the logits after
 *         all edits, worked out here from the definition, and what choose makes of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "unit/sample/pick.h"
#include "unit/sample/random_settings.h"

enum { VOCAB_MAX = 40, HISTORY_MAX = 30, EDITS_MAX = 100, ROUNDS = 6000, KINDS = 6 };

static const int32_t windows[] = {-1, 1, 2, 5, 12};

struct scene {
    struct sample_params params;
    struct logit_bias bias[4];
    uint32_t vocab;
    float logits[VOCAB_MAX];
    int32_t history[HISTORY_MAX];
    uint32_t count;
    struct sampler *sampler;
    struct row_sampler *row_sampler;
};

static struct { uint32_t seen, unseen, leaving, leaving_last, biased, ended, differ; } covered;

/* ---- the reference: the definition's edits, one after the other ---- */

static void edit(float *logit, float scale, float add) {
    float l = (*logit > 0.0f ? *logit / scale : *logit * scale) + add;
    if (isnan(l)) l = -HUGE_VALF;
    *logit = fabsf(l) < FLT_MIN ? 0.0f : fminf(l, FLT_MAX);
}

static void edited_logits(const struct scene *c, const struct sampler *s, int32_t pending,
                          float *out) {
    struct logit_edit edits[EDITS_MAX];
    struct sampling_tables tables = {.edits = edits, .edit_cap = EDITS_MAX};
    struct sampling d;
    bool is_fresh = true;
    assert_int_equal(sampler_describe(s, 7, pending >= 0, &tables, &d), ST_OK);
    assert_true(d.edit_count <= sampler_edits_max(s));
    assert_true(d.deny_first == SAMPLING_NONE);
    for (uint32_t t = 0; t < c->vocab; t++) {
        out[t] = -0.0f; /* -0 + 0 is +0: what is smaller than FLT_MIN becomes that */
        edit(&out[t], 1.0f, c->logits[t]);
    }
    for (uint32_t i = 0; i < d.edit_count; i++) {
        const struct logit_edit *e = &edits[d.edit_first + i];
        bool is_again = d.is_pending && i < d.seen_count && e->token == pending;
        if (i == d.seen_count && d.is_pending && is_fresh)
            edit(&out[pending], d.fresh_scale, d.fresh_add);
        edit(&out[e->token], e->scale, is_again ? e->add_again : e->add);
        is_fresh = is_fresh && !is_again;
    }
    if (d.edit_count == d.seen_count && d.is_pending && is_fresh)
        edit(&out[pending], d.fresh_scale, d.fresh_add);
}

/* ---- scenes ---- */

static void open_scene(struct rng *r, struct scene *c) {
    struct err err = {0};
    c->vocab = 4 + (uint32_t)rng_below(r, VOCAB_MAX - 3);
    c->params = random_params(r, c->vocab, c->bias);
    c->params.penalty_window = windows[rng_below(r, 5)];
    c->params.top_logprobs = (uint32_t)rng_below(r, 4);
    c->params.no_logprobs = rng_below(r, 2);
    c->count = (uint32_t)rng_below(r, HISTORY_MAX);
    uint32_t answered = (uint32_t)rng_below(r, 13);
    uint32_t answer = answered < c->count ? c->count - answered : 0;
    const struct sample_bounds bounds = {c->vocab, HISTORY_MAX + 1};
    random_logits(r, c->logits, c->vocab);
    if (sampler_create(&c->params, &bounds, &c->sampler, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(row_sampler_create(c->vocab, &c->row_sampler), ST_OK);
    for (uint32_t i = 0; i < c->count; i++) {
        if (i == answer) sampler_begin_answer(c->sampler);
        c->history[i] = (int32_t)rng_below(r, rng_below(r, 2) ? c->vocab : 4);
        sampler_accept(c->sampler, c->history[i]);
    }
    if (answer == c->count && rng_below(r, 8)) sampler_begin_answer(c->sampler);
}

static void close_scene(struct scene *c) {
    sampler_destroy(c->sampler);
    row_sampler_destroy(c->row_sampler);
}

static uint32_t times_in_window(const struct scene *c, int32_t token) {
    uint32_t window = (uint32_t)c->params.penalty_window, first = 0, times = 0;
    if (c->params.penalty_window >= 0 && window < c->count) first = c->count - window;
    for (uint32_t i = first; i < c->count; i++) times += c->history[i] == token;
    return times;
}

/* A token of the kind that is asked for, or any if there is none. */
static int32_t token_of_kind(struct rng *r, const struct scene *c, uint32_t kind) {
    int32_t any = (int32_t)rng_below(r, c->vocab);
    uint32_t window = (uint32_t)c->params.penalty_window;
    bool is_full = c->params.penalty_window > 0 && window <= c->count;
    if (kind == 0 && c->count > 0) return c->history[c->count - 1];
    if (kind == 1)
        for (int32_t t = 0; t < (int32_t)c->vocab; t++)
            if (times_in_window(c, t) == 0) return t;
    if (kind == 2 && is_full) return c->history[c->count - window];
    if (kind == 3 && c->params.bias_count > 0) return c->bias[0].token;
    if (kind == 4 && c->params.end_count > 0) return c->params.ends[0];
    return any;
}

static void note_coverage(const struct scene *c, int32_t token) {
    uint32_t times = times_in_window(c, token), window = (uint32_t)c->params.penalty_window;
    bool leaves = c->params.penalty_window > 0 && window <= c->count &&
                  c->history[c->count - window] == token;
    covered.seen += times > 0;
    covered.unseen += times == 0;
    covered.leaving += leaves;
    covered.leaving_last += leaves && times == 1;
    covered.biased += c->params.bias_count > 0 && c->bias[0].token == token;
    covered.ended += c->params.end_count > 0 && c->params.min_tokens > 0 && token == 0;
}

static void assert_same_results(const struct sample_result *a, const struct sample_result *b) {
    assert_memory_equal(&a->chosen, &b->chosen, sizeof(a->chosen));
    assert_int_equal(a->top_count, b->top_count);
    assert_memory_equal(a->top, b->top, a->top_count * sizeof(a->top[0]));
}

static void compare(const struct scene *c, int32_t token) {
    float wanted[VOCAB_MAX], got[VOCAB_MAX], unaware[VOCAB_MAX];
    struct sample_result known, pending;
    struct sampler *fork;
    assert_int_equal(sampler_fork(c->sampler, &fork), ST_OK);
    sampler_accept(fork, token);
    edited_logits(c, fork, -1, wanted);
    edited_logits(c, c->sampler, token, got);
    edited_logits(c, c->sampler, -1, unaware);
    assert_memory_equal(got, wanted, c->vocab * sizeof(got[0]));
    covered.differ += memcmp(got, unaware, c->vocab * sizeof(got[0])) != 0;
    for (uint64_t position = 0; position < 2; position++) {
        enum status st = pick(fork, c->row_sampler, c->logits, position, &known);
        assert_int_equal(
            pick_behind(c->sampler, c->row_sampler, c->logits, position, token, &pending), st);
        if (st == ST_OK) assert_same_results(&pending, &known);
    }
    sampler_destroy(fork);
}

static void test_a_pending_token_gives_what_accepting_it_gives(void **state) {
    (void)state;
    struct rng r = {.seed = 41};
    for (int round = 0; round < ROUNDS; round++) {
        struct scene c;
        open_scene(&r, &c);
        for (uint32_t kind = 0; kind < KINDS; kind++) {
            int32_t token = token_of_kind(&r, &c, kind);
            note_coverage(&c, token);
            compare(&c, token);
        }
        close_scene(&c);
    }
    assert_true(covered.seen > ROUNDS / 10 && covered.unseen > ROUNDS / 10);
    assert_true(covered.leaving > ROUNDS / 10 && covered.leaving_last > ROUNDS / 20);
    assert_true(covered.biased > ROUNDS / 10 && covered.ended > ROUNDS / 10);
    assert_true(covered.differ > ROUNDS);
}

/* An answer of one token, asked for before it is known, lets an end come after it. */
static void test_a_pending_token_counts_for_min_tokens(void **state) {
    (void)state;
    const float logits[] = {3.0f, 2.0f, 1.0f};
    const int32_t end = 0;
    const struct sample_bounds bounds = {3, 10};
    struct sample_params p = sample_params_default();
    struct sample_result got;
    struct sampler *s;
    struct row_sampler *c;
    struct err err = {0};
    p.temperature = 0.0f;
    p.min_tokens = 1;
    p.ends = &end;
    p.end_count = 1;
    assert_int_equal(row_sampler_create(3, &c), ST_OK);
    assert_int_equal(sampler_create(&p, &bounds, &s, &err), ST_OK);
    assert_int_equal(pick_behind(s, c, logits, 1, 2, &got), ST_OK);
    assert_int_equal(got.chosen.token, 1); /* a token of the prompt does not count */
    sampler_begin_answer(s);
    assert_int_equal(pick(s, c, logits, 1, &got), ST_OK);
    assert_int_equal(got.chosen.token, 1);
    assert_int_equal(pick_behind(s, c, logits, 2, 1, &got), ST_OK);
    assert_int_equal(got.chosen.token, 0);
    sampler_destroy(s);
    row_sampler_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pending_token_gives_what_accepting_it_gives),
        cmocka_unit_test(test_a_pending_token_counts_for_min_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
