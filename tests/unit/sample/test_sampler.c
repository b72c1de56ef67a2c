/* Goal:   what a sampler describes and row_sampler_run does is exactly what the definition in
 *         graph/sampling.h says.
 * Method: the definition written down once more with full sorts and no cleverness (reference
 *         below), compared token for token over seeded random settings, vocabularies and ties;
 *         penalties against a plain list of the tokens so far; named cases for the edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fmath.h"
#include "base/mem.h"
#include "base/rng.h"
#include "sample/sampler.h"
#include "unit/sample/pick.h"
#include "unit/sample/random_settings.h"

enum { VOCAB_BIG = 50257, HISTORY_MAX = 400 };

/* One row sampler for all samplers of a test: none may find anything of another's in it. */
static struct row_sampler *row_sampler;
static uint32_t row_sampler_vocab;

static void use_row_sampler(uint32_t vocab) {
    if (row_sampler && row_sampler_vocab == vocab) return;
    row_sampler_destroy(row_sampler);
    assert_int_equal(row_sampler_create(vocab, &row_sampler), ST_OK);
    row_sampler_vocab = vocab;
}

static int drop_row_sampler(void **state) {
    (void)state;
    row_sampler_destroy(row_sampler);
    row_sampler = NULL;
    return 0;
}

/* ---- the reference ---- */

struct ref_token {
    int32_t id;
    float logit, x, distance;
    uint64_t weight;
};

static int by_rank(const void *a, const void *b) {
    const struct ref_token *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int by_distance(const void *a, const void *b) {
    const struct ref_token *x = a, *y = b;
    if (x->distance != y->distance) return x->distance < y->distance ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b) {
    return ((const struct ref_token *)a)->id < ((const struct ref_token *)b)->id ? -1 : 1;
}

static uint64_t ref_sum(const struct ref_token *list, uint32_t count) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += list[i].weight;
    return sum;
}

/* The length of the shortest prefix in the given order that holds the share. */
static uint32_t ref_prefix(struct ref_token *list, uint32_t count, float share,
                           int (*order)(const void *, const void *)) {
    double wanted = (double)share * (double)ref_sum(list, count);
    uint64_t held = 0;
    qsort(list, count, sizeof(*list), order);
    uint32_t n = 0;
    do {
        held += list[n++].weight;
    } while (held < (uint64_t)ceil(wanted) && n < count);
    return n;
}

/* The list is in rank: its first has the largest logit. */
static uint32_t ref_weigh(struct ref_token *list, uint32_t count, float temperature) {
    float top = list[0].logit, scale = 1.0f / temperature;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        list[i].x = (list[i].logit - top) * scale;
        list[i].weight = (uint64_t)llrint((double)fm_exp(list[i].x) * 0x1p39);
        if (list[i].weight > 0) list[kept++] = list[i];
    }
    return kept;
}

static void ref_distances(struct ref_token *list, uint32_t count) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += (uint64_t)floor((double)list[i].weight * -(double)list[i].x);
    float mean = -(float)((double)sum / (double)ref_sum(list, count));
    for (uint32_t i = 0; i < count; i++) list[i].distance = fabsf(list[i].x - mean);
}

static uint32_t ref_min(struct ref_token *list, uint32_t count, double ratio) {
    uint64_t top = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) top = list[i].weight > top ? list[i].weight : top;
    for (uint32_t i = 0; i < count; i++)
        if ((double)list[i].weight >= ratio * (double)top) list[kept++] = list[i];
    return kept;
}

/* The upper half of a * b, by schoolbook. */
static uint64_t ref_times_high(uint64_t a, uint64_t b) {
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t mid = a1 * b0 + (a0 * b0 >> 32);
    uint64_t low = a0 * b1 + (uint32_t)mid;
    return a1 * b1 + (mid >> 32) + (low >> 32);
}

static int32_t ref_draw(struct ref_token *list, uint32_t count, uint64_t bits) {
    uint64_t target = ref_times_high(bits, ref_sum(list, count)), sum = 0;
    qsort(list, count, sizeof(*list), by_id);
    for (uint32_t i = 0; i < count; i++) {
        sum += list[i].weight;
        if (sum > target) return list[i].id;
    }
    return -1;
}

/* The tokens so far; the answer begins at `answer`. */
struct ref_text {
    const int32_t *ids;
    uint32_t count, answer;
};

/* How often `token` is among the last `window` of the text, from `first` on. */
static uint32_t ref_times(const struct sample_params *p, const struct ref_text *text,
                          uint32_t first, int32_t token) {
    uint32_t times = 0, window = (uint32_t)p->penalty_window;
    if (p->penalty_window >= 0 && window < text->count && first < text->count - window)
        first = text->count - window;
    for (uint32_t i = first; i < text->count; i++) times += text->ids[i] == token;
    return times;
}

static float ref_logit(const struct sample_params *p, const struct ref_text *text, int32_t token,
                       float logit) {
    uint32_t times = ref_times(p, text, 0, token);
    uint32_t counted = p->penalty_answer_only ? ref_times(p, text, text->answer, token) : times;
    if (times > 0)
        logit = logit > 0.0f ? logit / p->repetition_penalty : logit * p->repetition_penalty;
    if (counted > 0) logit += -(p->presence_penalty + p->frequency_penalty * (float)counted);
    for (uint32_t i = 0; i < p->end_count && text->count < text->answer + p->min_tokens; i++)
        if (p->ends[i] == token) return -HUGE_VALF;
    for (uint32_t i = 0; i < p->bias_count; i++)
        if (p->bias[i].token == token) logit += p->bias[i].bias;
    return logit;
}

static float ref_tame(float logit) {
    if (isnan(logit)) return -HUGE_VALF;
    if (fpclassify(logit) == FP_SUBNORMAL || logit == 0.0f) return 0.0f;
    return fminf(logit, FLT_MAX);
}

static int32_t reference_pick(const struct sample_params *p, const float *logits, uint32_t vocab,
                              const struct ref_text *text, uint64_t position) {
    struct ref_token *list = mem_alloc_array(vocab, sizeof(*list));
    uint32_t count = 0;
    for (uint32_t t = 0; t < vocab; t++) {
        float l = ref_tame(ref_logit(p, text, (int32_t)t, ref_tame(logits[t])));
        if (l > -HUGE_VALF) list[count++] = (struct ref_token){.id = (int32_t)t, .logit = l};
    }
    qsort(list, count, sizeof(*list), by_rank);
    int32_t chosen = count ? list[0].id : -1;
    if (count > 0 && p->temperature > 0.0f) {
        if (p->top_k > 0 && p->top_k < count) count = p->top_k;
        count = ref_weigh(list, count, p->temperature);
        if (p->typical_p < 1.0f) {
            ref_distances(list, count);
            count = ref_prefix(list, count, p->typical_p, by_distance);
        }
        if (p->top_p < 1.0f) count = ref_prefix(list, count, p->top_p, by_rank);
        if (p->min_p > 0.0f) count = ref_min(list, count, (double)p->min_p);
        chosen = ref_draw(list, count, rng_at(p->seed, 1, position));
    }
    mem_free(list);
    return chosen;
}

/* ---- random settings ---- */

/* Numbers at the ends of what a float can be: `kind` says which. */
static void odd_logits(struct rng *r, float *logits, uint32_t vocab, uint32_t kind) {
    static const float odd[] = {0.0f,    -0.0f,    1e-40f,    -1e-40f,    FLT_MIN, -FLT_MIN,
                                FLT_MAX, -FLT_MAX, HUGE_VALF, -HUGE_VALF, 1e30f,   -1e30f};
    for (uint32_t t = 0; t < vocab; t++) {
        uint32_t bits = (uint32_t)rng_next(r);
        switch (kind) {
        case 0: /* all the same */
            logits[t] = 2.5f;
            break;
        case 1: /* nearly the same: neighbours among floats */
            logits[t] = 1.0f + (float)rng_below(r, 4) * FLT_EPSILON;
            break;
        case 2: /* one far above the others */
            logits[t] = t == vocab / 2 ? 90.0f : (float)rng_unit(r);
            break;
        case 3: /* clumps, each a thousandth of the one before */
            logits[t] = (float)pow(1e-3, (double)rng_below(r, 12));
            break;
        case 4:
            logits[t] = odd[rng_below(r, sizeof(odd) / sizeof(odd[0]))];
            break;
        case 5: /* any pattern of bits */
            memcpy(&logits[t], &bits, sizeof(bits));
            break;
        default: /* so large that neighbours are further apart than a temperature */
            logits[t] = 1e7f + (float)rng_below(r, 40);
        }
    }
}

static struct sampler *create_fine(const struct sample_params *p, uint32_t vocab,
                                   uint32_t tokens_max) {
    const struct sample_bounds bounds = {vocab, tokens_max};
    struct err err = {0};
    struct sampler *s = NULL;
    use_row_sampler(vocab);
    if (sampler_create(p, &bounds, &s, &err) != ST_OK) fail_msg("%s", err.text);
    return s;
}

/* The logits are there already; the settings are drawn. */
static void compare_once(struct rng *r, const float *logits, uint32_t vocab) {
    struct logit_bias bias[4];
    struct sample_params p = random_params(r, vocab, bias);
    int32_t history[HISTORY_MAX];
    struct ref_text text = {history, (uint32_t)rng_below(r, HISTORY_MAX), 0};
    text.answer = (uint32_t)rng_below(r, text.count + 1);
    struct sampler *s = create_fine(&p, vocab, text.count);
    for (uint32_t i = 0; i < text.count; i++) {
        history[i] = (int32_t)rng_below(r, vocab);
        if (i == text.answer) sampler_begin_answer(s);
        sampler_accept(s, history[i]);
    }
    if (text.answer == text.count) sampler_begin_answer(s);
    for (uint64_t position = 0; position < 3; position++) {
        struct sample_result got;
        int32_t expected = reference_pick(&p, logits, vocab, &text, position);
        enum status st = pick(s, row_sampler, logits, position, &got);
        assert_int_equal(st, expected < 0 ? ST_BAD : ST_OK);
        if (expected >= 0) assert_int_equal(got.chosen.token, expected);
    }
    sampler_destroy(s);
}

static void test_small_vocabularies_agree_with_the_reference(void **state) {
    (void)state;
    float logits[41];
    struct rng r = {.seed = 11};
    for (int round = 0; round < 20000; round++) {
        uint32_t vocab = 1 + (uint32_t)rng_below(&r, 40);
        random_logits(&r, logits, vocab);
        compare_once(&r, logits, vocab);
    }
}

static void test_odd_logits_agree_with_the_reference(void **state) {
    (void)state;
    enum { VOCAB_MAX = 3000 };
    float *logits = mem_alloc_array(VOCAB_MAX, sizeof(*logits));
    struct rng r = {.seed = 13};
    for (uint32_t round = 0; round < 1400; round++) {
        uint32_t vocab = 1 + (uint32_t)rng_below(&r, VOCAB_MAX);
        odd_logits(&r, logits, vocab, round % 7);
        compare_once(&r, logits, vocab);
    }
    mem_free(logits);
}

static void test_a_vocabulary_of_50k_agrees_with_the_reference(void **state) {
    (void)state;
    float *logits = mem_alloc_array(VOCAB_BIG, sizeof(*logits));
    struct rng r = {.seed = 12};
    for (uint32_t round = 0; round < 47; round++) {
        if (round < 40)
            random_logits(&r, logits, VOCAB_BIG);
        else
            odd_logits(&r, logits, VOCAB_BIG, round - 40);
        compare_once(&r, logits, VOCAB_BIG);
    }
    mem_free(logits);
}

/* ---- named cases ---- */

static void test_greedy_takes_the_lowest_id_of_a_tie(void **state) {
    (void)state;
    struct sample_params p = sample_params_default();
    p.temperature = 0.0f;
    struct sampler *s = create_fine(&p, 5, 0);
    struct sample_result got;
    float logits[] = {1.0f, NAN, 7.0f, 7.0f, -HUGE_VALF};
    assert_int_equal(pick(s, row_sampler, logits, 0, &got), ST_OK);
    assert_int_equal(got.chosen.token, 2);
    logits[4] = HUGE_VALF;
    assert_int_equal(pick(s, row_sampler, logits, 0, &got), ST_OK);
    assert_int_equal(got.chosen.token, 4);
    assert_true(got.chosen.logprob == 0.0f);
    sampler_destroy(s);
}

/* Every place of the largest, with what is its equal or not a number before and behind it. */
static void test_greedy_without_logprobs_takes_the_same_token(void **state) {
    (void)state;
    enum { VOCAB = 2 * 1024 + 5 };
    static const float tops[] = {7.0f,    -7.0f,    FLT_MAX, HUGE_VALF, 0.0f,
                                 -1e-40f, -FLT_MAX, FLT_MIN, -HUGE_VALF};
    static const float rest[] = {-8.0f, -FLT_MAX, -HUGE_VALF, NAN, FLT_MAX, -0.0f, 1e-40f};
    static float logits[VOCAB];
    struct rng r = {.seed = 17};
    struct sample_params p = sample_params_default();
    p.temperature = 0.0f;
    struct sampler *slow = create_fine(&p, VOCAB, 0);
    p.no_logprobs = true;
    struct sampler *fast = create_fine(&p, VOCAB, 0);
    for (int round = 0; round < 2000; round++) {
        struct sample_result wanted, got;
        uint32_t filler = (uint32_t)rng_below(&r, 7);
        for (int t = 0; t < VOCAB; t++) logits[t] = rest[filler];
        for (int i = 0; i < 3; i++) logits[rng_below(&r, VOCAB)] = rest[rng_below(&r, 7)];
        for (int i = 0; i < 2; i++) logits[rng_below(&r, VOCAB)] = tops[round % 9];
        enum status st = pick(slow, row_sampler, logits, 0, &wanted);
        assert_int_equal(pick(fast, row_sampler, logits, 0, &got), st);
        if (st != ST_OK) continue;
        assert_int_equal(got.chosen.token, wanted.chosen.token);
        assert_int_equal(got.top_count, 0);
    }
    sampler_destroy(slow);
    sampler_destroy(fast);
}

static void test_nothing_allowed_is_an_error(void **state) {
    (void)state;
    struct logit_bias bias[] = {{0, -HUGE_VALF}, {2, -HUGE_VALF}};
    for (int greedy = 0; greedy < 2; greedy++) {
        struct sample_params p = sample_params_default();
        if (greedy) p.temperature = 0.0f;
        p.bias = bias;
        p.bias_count = 2;
        struct sampler *s = create_fine(&p, 3, 0);
        struct sample_result got;
        const float logits[] = {5.0f, NAN, 1.0f};
        assert_int_equal(pick(s, row_sampler, logits, 0, &got), ST_BAD);
        const float healthy[] = {5.0f, -3.0f, 1.0f};
        assert_int_equal(pick(s, row_sampler, healthy, 0, &got), ST_OK);
        assert_int_equal(got.chosen.token, 1);
        sampler_destroy(s);
    }
}

static void test_draws_follow_the_softmax(void **state) {
    (void)state;
    enum { DRAWS = 200000 };
    const float logits[] = {0.0f, 1.0f, 2.0f, -1.0f};
    struct sample_params p = sample_params_default();
    p.temperature = 2.0f;
    p.seed = 7;
    struct sampler *s = create_fine(&p, 4, 0);
    uint32_t counts[4] = {0};
    for (uint64_t i = 0; i < DRAWS; i++) {
        struct sample_result got;
        assert_int_equal(pick(s, row_sampler, logits, i, &got), ST_OK);
        counts[got.chosen.token]++;
    }
    double sum = 0.0;
    for (int t = 0; t < 4; t++) sum += exp((double)logits[t] / 2.0);
    for (int t = 0; t < 4; t++) {
        double share = exp((double)logits[t] / 2.0) / sum;
        double sigma = sqrt(DRAWS * share * (1.0 - share));
        assert_true(fabs(counts[t] - DRAWS * share) < 5.0 * sigma);
    }
    sampler_destroy(s);
}

static void test_a_draw_depends_on_seed_and_position_only(void **state) {
    (void)state;
    float logits[100];
    struct rng r = {.seed = 5};
    for (int i = 0; i < 100; i++) logits[i] = (float)rng_unit(&r);
    struct sample_params p = sample_params_default();
    p.seed = 99;
    struct sampler *a = create_fine(&p, 100, 0), *b = create_fine(&p, 100, 0);
    struct sample_result x, y;
    uint32_t moved = 0;
    for (uint64_t i = 0; i < 50; i++) {
        assert_int_equal(pick(a, row_sampler, logits, i, &x), ST_OK);
        assert_int_equal(pick(b, row_sampler, logits, 49 - i, &y), ST_OK);
        assert_int_equal(pick(b, row_sampler, logits, i, &y), ST_OK);
        assert_int_equal(x.chosen.token, y.chosen.token);
        assert_int_equal(pick(a, row_sampler, logits, i + 1, &y), ST_OK);
        moved += x.chosen.token != y.chosen.token;
    }
    assert_true(moved > 40);
    sampler_destroy(a);
    sampler_destroy(b);
}

static void test_logprobs_are_the_models_own(void **state) {
    (void)state;
    const float logits[] = {1.0f, 3.0f, NAN, 3.0f, -HUGE_VALF, -2.0f};
    struct logit_bias bias = {1, -50.0f};
    struct sample_params p = sample_params_default();
    p.temperature = 0.0f;
    p.bias = &bias;
    p.bias_count = 1;
    p.top_logprobs = 5;
    struct sampler *s = create_fine(&p, 6, 0);
    struct sample_result got;
    assert_int_equal(pick(s, row_sampler, logits, 0, &got), ST_OK);
    double log_sum = log(exp(1.0) + 2.0 * exp(3.0) + exp(-2.0));
    assert_int_equal(got.chosen.token, 3);
    assert_true(fabs((double)got.chosen.logprob - (3.0 - log_sum)) < 1e-7);
    const int32_t order[] = {1, 3, 0, 5};
    assert_int_equal(got.top_count, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(got.top[i].token, order[i]);
        double expected = (double)logits[order[i]] - log_sum;
        assert_true(fabs((double)got.top[i].logprob - expected) < 1e-6);
    }
    sampler_destroy(s);
}

/* Temperature, top_p, top_k, min_p, penalties and biases choose the token; they do not change what
 * is reported of it. */
static void test_settings_that_choose_change_no_logprob(void **state) {
    (void)state;
    const float logits[] = {1.0f, 3.0f, 2.5f, 0.0f, -1.0f, -2.0f};
    const float temperatures[] = {0.0f, 0.1f, 0.5f, 1.0f, 1.7f, 2.0f};
    struct logit_bias bias = {4, 3.0f};
    double log_sum = 0;
    for (int i = 0; i < 6; i++) log_sum += exp((double)logits[i]);
    log_sum = log(log_sum);
    for (int n = 0; n < 6 * 16; n++) {
        struct sample_params p = sample_params_default();
        p.temperature = temperatures[n % 6];
        p.top_logprobs = 6;
        if (n / 6 & 1) p.top_p = 0.7f;
        if (n / 6 & 2) p.top_k = 3;
        if (n / 6 & 4) p.presence_penalty = 1.0f;
        if (n / 6 & 8) p.bias = &bias, p.bias_count = 1;
        struct sampler *s = create_fine(&p, 6, 0);
        for (uint64_t at = 0; at < 20; at++) {
            struct sample_result got;
            assert_int_equal(pick(s, row_sampler, logits, at, &got), ST_OK);
            double expected = (double)logits[got.chosen.token] - log_sum;
            assert_true(fabs((double)got.chosen.logprob - expected) < 1e-6);
            for (uint32_t i = 0; i < got.top_count; i++) {
                expected = (double)logits[got.top[i].token] - log_sum;
                assert_true(fabs((double)got.top[i].logprob - expected) < 1e-6);
            }
        }
        sampler_destroy(s);
    }
}

static void test_a_choice_is_the_same_without_logprobs(void **state) {
    (void)state;
    float logits[300];
    struct rng r = {.seed = 8};
    for (int round = 0; round < 500; round++) {
        struct logit_bias bias[4];
        struct sample_params p = random_params(&r, 300, bias);
        struct sample_result with, without;
        random_logits(&r, logits, 300);
        p.top_logprobs = 3;
        struct sampler *a = create_fine(&p, 300, 0);
        p.no_logprobs = true;
        struct sampler *b = create_fine(&p, 300, 0);
        enum status st = pick(a, row_sampler, logits, 0, &with);
        assert_int_equal(pick(b, row_sampler, logits, 0, &without), st);
        if (st == ST_OK) {
            assert_int_equal(with.chosen.token, without.chosen.token);
            assert_int_equal(without.top_count, 0);
            assert_true(without.chosen.logprob == 0.0f);
            pick_score(b, row_sampler, logits, with.chosen.token,
                       &without); /* may still be asked */
            assert_memory_equal(&with.chosen, &without.chosen, sizeof(with.chosen));
            assert_int_equal(without.top_count, with.top_count);
        }
        sampler_destroy(a);
        sampler_destroy(b);
    }
}

static void test_top_logprobs_of_a_big_vocabulary_are_in_rank_order(void **state) {
    (void)state;
    float *logits = mem_alloc_array(VOCAB_BIG, sizeof(*logits));
    struct rng r = {.seed = 21};
    struct sample_params p = sample_params_default();
    p.top_logprobs = TOP_LOGPROBS_MAX;
    struct sampler *s = create_fine(&p, VOCAB_BIG, 0);
    for (int round = 0; round < 20; round++) {
        random_logits(&r, logits, VOCAB_BIG);
        struct sample_result got;
        assert_int_equal(pick(s, row_sampler, logits, 0, &got), ST_OK);
        assert_int_equal(got.top_count, TOP_LOGPROBS_MAX);
        for (uint32_t i = 0; i < got.top_count; i++) {
            uint32_t before = 0; /* tokens that stand before this one in rank */
            for (int32_t t = 0; t < VOCAB_BIG; t++) {
                float mine = logits[got.top[i].token];
                before += logits[t] > mine || (logits[t] == mine && t < got.top[i].token);
            }
            assert_int_equal(before, i);
        }
    }
    sampler_destroy(s);
    mem_free(logits);
}

struct walk {
    struct sampler *s;
    struct ref_text text;
    int32_t history[HISTORY_MAX];
    uint32_t takeable;
};

/* One step: a sampler and the list that models it change together. */
static void walk_step(struct rng *r, struct walk *w, uint32_t vocab) {
    uint32_t what = (uint32_t)rng_below(r, 10);
    if (what == 0) {
        uint32_t back = (uint32_t)rng_below(r, w->takeable + 1);
        sampler_rollback(w->s, back);
        w->text.count -= back;
        w->takeable -= back;
    } else if (what == 1) {
        struct sampler *fork;
        assert_int_equal(sampler_fork(w->s, &fork), ST_OK);
        sampler_destroy(w->s);
        w->s = fork;
    } else {
        int32_t token = (int32_t)rng_below(r, vocab);
        w->history[w->text.count++] = token;
        sampler_accept(w->s, token);
        if (w->takeable < SAMPLE_ROLLBACK_MAX) w->takeable++;
    }
}

static struct sample_params walk_params(int round) {
    static const int32_t windows[] = {-1, 1, 7, 100}, ends[] = {3};
    struct sample_params p = sample_params_default();
    p.seed = (uint64_t)round;
    p.repetition_penalty = 1.3f;
    p.frequency_penalty = 0.4f;
    p.penalty_window = windows[round % 4];
    p.penalty_answer_only = round / 4 % 2;
    p.min_tokens = 50;
    p.ends = ends;
    p.end_count = 1;
    return p;
}

static void test_rollback_and_fork_agree_with_a_plain_list(void **state) {
    (void)state;
    struct rng r = {.seed = 31};
    for (int round = 0; round < 60; round++) {
        uint32_t vocab = round % 3 ? 12 : 300;
        float logits[300];
        struct sample_params p = walk_params(round);
        struct walk w = {.s = create_fine(&p, vocab, HISTORY_MAX)};
        w.text = (struct ref_text){w.history, 0, HISTORY_MAX};
        for (uint64_t step = 0; step < HISTORY_MAX; step++) {
            walk_step(&r, &w, vocab);
            if (step == 100) {
                sampler_begin_answer(w.s);
                w.text.answer = w.text.count;
                w.takeable = 0;
            }
            random_logits(&r, logits, vocab);
            struct sample_result got;
            int32_t expected = reference_pick(&p, logits, vocab, &w.text, step);
            if (pick(w.s, row_sampler, logits, step, &got) == ST_OK)
                assert_int_equal(got.chosen.token, expected);
            else
                assert_int_equal(expected, -1);
        }
        sampler_destroy(w.s);
    }
}

/* What OpenAI's penalties mean: a word of the question may be said in the answer, once. */
static void test_presence_spares_the_prompt_and_repetition_does_not(void **state) {
    (void)state;
    const float logits[] = {1.0f, 0.9f, 0.8f};
    struct sample_params p = sample_params_default();
    struct sample_result got;
    p.temperature = 0.0f;
    p.penalty_window = -1;
    p.penalty_answer_only = true;
    for (int kind = 0; kind < 2; kind++) {
        p.presence_penalty = kind == 0 ? 0.5f : 0.0f;
        p.repetition_penalty = kind == 0 ? 1.0f : 2.0f;
        struct sampler *s = create_fine(&p, 3, 10);
        sampler_accept(s, 0);
        sampler_begin_answer(s);
        assert_int_equal(pick(s, row_sampler, logits, 1, &got), ST_OK);
        assert_int_equal(got.chosen.token, kind);
        sampler_accept(s, 0);
        assert_int_equal(pick(s, row_sampler, logits, 2, &got), ST_OK);
        assert_int_equal(got.chosen.token, 1);
        sampler_destroy(s);
    }
}

static void test_an_end_cannot_come_before_min_tokens(void **state) {
    (void)state;
    const float logits[] = {3.0f, 2.0f, 1.0f};
    const int32_t ends[] = {0, 1}, outside[] = {3};
    struct sample_params p = sample_params_default();
    struct sample_result got;
    p.temperature = 0.0f;
    p.min_tokens = 2;
    p.ends = ends;
    p.end_count = 2;
    struct sampler *s = create_fine(&p, 3, 10);
    for (int i = 0; i < 4; i++) sampler_accept(s, 1); /* the prompt does not count */
    sampler_begin_answer(s);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(pick(s, row_sampler, logits, i, &got), ST_OK);
        assert_int_equal(got.chosen.token, i < 2 ? 2 : 0);
        sampler_accept(s, got.chosen.token);
    }
    sampler_destroy(s);
    struct err err = {0};
    const struct sample_bounds bounds = {3, 10};
    p.ends = outside;
    p.end_count = 1;
    assert_int_equal(sampler_create(&p, &bounds, &s, &err), ST_BAD);
    assert_string_equal(err.text, "stop token 3 is not in the vocabulary (0 to 2)");
}

static void refuse(struct sample_params p, const char *field) {
    struct err err = {0};
    assert_int_equal(sample_params_check(&p, &err), ST_BAD);
    assert_non_null(strstr(err.text, field));
}

static void test_settings_out_of_range_are_named(void **state) {
    (void)state;
    struct sample_params p = sample_params_default();
    assert_int_equal(sample_params_check(&p, NULL), ST_OK);
#define REFUSE(field, value)                                                                       \
    do {                                                                                           \
        struct sample_params bad = p;                                                              \
        bad.field = value;                                                                         \
        refuse(bad, #field);                                                                       \
    } while (0)
    REFUSE(temperature, -0.1f);
    REFUSE(temperature, NAN);
    REFUSE(temperature, 10.5f);
    REFUSE(top_p, 1.5f);
    REFUSE(min_p, -1.0f);
    REFUSE(typical_p, NAN);
    REFUSE(repetition_penalty, 0.0f);
    REFUSE(presence_penalty, 3.0f);
    REFUSE(frequency_penalty, -3.0f);
    REFUSE(penalty_window, -2);
    REFUSE(top_logprobs, 21);
    struct logit_bias outside = {5, 1.0f};
    p.bias = &outside;
    p.bias_count = 1;
    struct err err = {0};
    struct sampler *s;
    const struct sample_bounds bounds = {5, 10};
    assert_int_equal(sampler_create(&p, &bounds, &s, &err), ST_BAD);
    assert_string_equal(err.text, "logit_bias: token 5 is not in the vocabulary (0 to 4)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_vocabularies_agree_with_the_reference),
        cmocka_unit_test(test_odd_logits_agree_with_the_reference),
        cmocka_unit_test(test_a_vocabulary_of_50k_agrees_with_the_reference),
        cmocka_unit_test(test_greedy_takes_the_lowest_id_of_a_tie),
        cmocka_unit_test(test_greedy_without_logprobs_takes_the_same_token),
        cmocka_unit_test(test_nothing_allowed_is_an_error),
        cmocka_unit_test(test_draws_follow_the_softmax),
        cmocka_unit_test(test_a_draw_depends_on_seed_and_position_only),
        cmocka_unit_test(test_logprobs_are_the_models_own),
        cmocka_unit_test(test_settings_that_choose_change_no_logprob),
        cmocka_unit_test(test_a_choice_is_the_same_without_logprobs),
        cmocka_unit_test(test_top_logprobs_of_a_big_vocabulary_are_in_rank_order),
        cmocka_unit_test(test_rollback_and_fork_agree_with_a_plain_list),
        cmocka_unit_test(test_presence_spares_the_prompt_and_repetition_does_not),
        cmocka_unit_test(test_an_end_cannot_come_before_min_tokens),
        cmocka_unit_test(test_settings_out_of_range_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, drop_row_sampler);
}
