/* Goal:   a request's tokens and logprobs are the same bits alone and in a batch, under every
 *         policy, however its prompt is cut, whether its prefix comes from the cache, whether it
 *         is swapped or recomputed, as one of n choices or as a request of its own, with one
 *         thread and with two.
 * Method: runs (identity/batch_run.h) on tiny models with full and windowed attention, mixtures of
 *         experts and quantised weights: at least 500 pairs over all policies. Forty pairs and
 *         more on the real model where it is there; all of them with JITNEY_IDENTITY=full. The
 *         references are held against reference/forward.h, which shares no code with the scheduler.
 *         What happened in the runs is counted, and the suite fails if something that it is about
 *         did not happen. One run is repeated by "test_batch_identity MODEL NUMBER". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "engine/grammars.h"
#include "reference/forward.h"
#include "identity/models.h"
#include "identity/batch_run.h"
#include "unit/sample/pick.h"

enum { SOLO_REQUESTS_STEP = 3, SOLO_REQUESTS_STEP_FEW = 9 };

static struct coverage seen;
static struct test_model model; /* the one that is open */

static void open_model(const char *name, bool is_real) {
    struct err err = {0};
    char path[4096];
    if (is_real ? !models_real_path(path, sizeof(path)) : !models_path(name, path, sizeof(path)))
        skip();
    if (test_model_open(&model, name, path, is_real, &err) != ST_OK) fail_msg("%s", err.text);
}

static void check_runs(uint32_t first, uint32_t count) {
    struct err err = {0};
    for (uint32_t i = first; i < first + count; i++) {
        struct batch_run r = batch_run_draw(&model, i);
        if (batch_run_check(&model, &r, &seen, &err) != ST_OK) {
            test_model_close(&model);
            fail_msg("%s", err.text);
        }
    }
}

static void test_tiny(void **state) {
    const struct model_runs *plan = *state;
    open_model(plan->name, false);
    check_runs(plan->first_run, plan->run_count);
    test_model_close(&model);
}

static void test_real(void **state) {
    (void)state;
    bool full = models_want_all();
    open_model("real", true);
    struct coverage before = seen;
    check_runs(0, full ? MODELS_REAL_RUNS_ALL : MODELS_REAL_RUNS);
    uint32_t pairs = seen.pairs - before.pairs;
    printf("real model: %u pairs\n", pairs);
    test_model_close(&model);
    assert_true(pairs >= (full ? 500u : 40u));
}

/* ---- references against solo ---- */

struct last_row {
    float *row;
    uint32_t vocab, last;
};

static enum status keep_last(void *ctx, uint32_t first, uint32_t count, const float *logits) {
    struct last_row *l = ctx;
    if (first + count > l->last)
        memcpy(l->row, logits + (size_t)(l->last - first) * l->vocab, l->vocab * sizeof(float));
    return ST_OK;
}

/* Every token from the logits of a whole pass over all that stands before it. */
static void solo_answer(struct forward *e, const struct test_request *t, struct answer_bits *out) {
    static int32_t ids[4096];
    struct err err = {0};
    struct sampler *sampler;
    struct row_sampler *row_sampler;
    struct last_row last = {.vocab = forward_vocab(e)};
    last.row = test_malloc(last.vocab * sizeof(float));
    memcpy(ids, t->prompt, t->prompt_tokens * sizeof(ids[0]));
    const struct sample_bounds bounds = {last.vocab, t->prompt_tokens + t->max_tokens};
    struct sample_params params = t->sample;
    if (t->grammar) answer_grammar_apply(t->grammar, false, &params);
    assert_int_equal(sampler_create(&params, &bounds, &sampler, &err), ST_OK);
    assert_int_equal(row_sampler_create(last.vocab, &row_sampler), ST_OK);
    for (uint32_t i = 0; i < t->prompt_tokens; i++) sampler_accept(sampler, ids[i]);
    sampler_begin_answer(sampler);
    for (out->count = 0; out->count < t->max_tokens; out->count++) {
        uint32_t pos = t->prompt_tokens + out->count;
        struct sample_result picked;
        last.last = pos - 1;
        if (forward_logits(e, ids, pos, keep_last, &last, &err) != ST_OK) fail_msg("%s", err.text);
        assert_int_equal(pick(sampler, row_sampler, last.row, pos, &picked), ST_OK);
        sampler_accept(sampler, picked.chosen.token);
        out->tokens[out->count] = ids[pos] = picked.chosen.token;
        out->logprobs[out->count] = picked.chosen;
    }
    sampler_destroy(sampler);
    row_sampler_destroy(row_sampler);
    test_free(last.row);
}

static void test_references(void **state) {
    const struct model_runs *plan = *state;
    open_model(plan->name, false);
    struct err err = {0};
    struct forward *e = NULL;
    const struct forward_options o = {.threads = 1,
                                      .device = model.device,
                                      .ctx_tokens = model.ctx_tokens,
                                      .tokens_only = true,
                                      .kv_type = KV_F16};
    if (forward_open(model.path, &o, &e, &err) != ST_OK) fail_msg("%s", err.text);
    uint32_t step = models_are_few() ? SOLO_REQUESTS_STEP_FEW : SOLO_REQUESTS_STEP;
    for (uint32_t i = 0; i < REQUESTS; i += step) {
        struct answer_bits got = {0};
        const struct answer_bits *want = test_model_reference(&model, 0, i, 0, &err);
        if (!want) fail_msg("%s", err.text);
        solo_answer(e, &model.requests[i], &got);
        assert_int_equal(got.count, want->count);
        assert_memory_equal(got.tokens, want->tokens, got.count * sizeof(got.tokens[0]));
        assert_memory_equal(got.logprobs, want->logprobs, got.count * sizeof(got.logprobs[0]));
    }
    forward_close(e);
    test_model_close(&model);
}

/* ---- what the suite must have met ---- */

static void test_all_of_it_was_met(void **state) {
    (void)state;
    printf(
        "%u pairs: %u greedy, %u sampled, %u of n = 4, %u cancelled, %u from the cache (%u "
        "midway), %u preempted, %u chunked, %u with a grammar (%u preempted), %u batch lines (%u "
        "preempted); runs that swapped %u, that recomputed %u\n",
        seen.pairs, seen.greedy, seen.sampled, seen.forked, seen.cancelled, seen.cached,
        seen.cached_midway, seen.preempted, seen.chunked, seen.guided, seen.guided_preempted,
        seen.lines, seen.lines_preempted, seen.swapped, seen.recomputed);
    printf("%lu drafts, %lu accepted, in %u choices: %u preempted, %u with a grammar, %u sampled\n",
           (unsigned long)seen.drafted, (unsigned long)seen.accepted, seen.speculated,
           seen.speculated_preempted, seen.speculated_guided, seen.speculated_sampled);
    if (models_are_few()) skip();
    assert_true(seen.drafted >= 1000 && seen.accepted >= 500 && seen.accepted < seen.drafted);
    assert_true(seen.speculated >= 50 && seen.speculated_preempted >= 10);
    assert_true(seen.speculated_guided >= 10 && seen.speculated_sampled >= 20);
    assert_true(seen.pairs >= 500);
    for (uint32_t i = 0; sched_policies[i]; i++) assert_true(seen.pairs_by_policy[i] >= 20);
    assert_true(seen.greedy >= 50 && seen.sampled >= 50);
    assert_true(seen.forked >= 50 && seen.cancelled >= 5);
    assert_true(seen.cached >= 50 && seen.cached_midway >= 20 && seen.uncached >= 50);
    assert_true(seen.preempted >= 40 && seen.swapped >= 8 && seen.recomputed >= 8);
    assert_true(seen.guided >= 100 && seen.guided_preempted >= 10);
    assert_true(seen.lines >= 50 && seen.lines_preempted >= 20);
    assert_true(seen.chunked >= 50 && seen.threads_1 >= 50 && seen.threads_2 >= 50);
    for (uint32_t i = 0; i < 3; i++) assert_true(seen.block_sizes[i] >= 20);
}

/* "real" is the real model. */
static int repeat(const char *name, const char *number) {
    struct err err = {0};
    char path[4096];
    bool is_real = strcmp(name, "real") == 0;
    bool there =
        is_real ? models_real_path(path, sizeof(path)) : models_path(name, path, sizeof(path));
    if (!there || test_model_open(&model, name, path, is_real, &err) != ST_OK) {
        printf("%s: %s\n", name, there ? err.text : "not there");
        return 1;
    }
    struct batch_run r = batch_run_draw(&model, (uint32_t)strtoul(number, NULL, 10));
    enum status st = batch_run_check(&model, &r, &seen, &err);
    for (uint32_t i = 0; i < knobs_count(); i++) {
        struct knob_row row;
        knobs_show(&r.knobs, i, &row);
        if (strcmp(row.value, row.fallback) != 0) printf("%s=%s ", row.name, row.value);
    }
    printf("\n%u pairs, %u preempted: %s\n", seen.pairs, seen.preempted,
           st == ST_OK ? "all the same" : err.text);
    test_model_close(&model);
    return st != ST_OK;
}

int main(int argc, char **argv) {
    if (argc == 3) return repeat(argv[1], argv[2]);
    static struct CMUnitTest tests[2 * MODELS_MAX + 2];
    static char names[MODELS_MAX][64];
    size_t count = 0;
    for (uint32_t i = 0; i < models_count(); i++) {
        const struct model_runs *plan = models_at(i);
        snprintf(names[i], sizeof(names[i]), "%s alone as solo", plan->name);
        tests[count++] =
            (struct CMUnitTest){names[i], test_references, NULL, NULL, (void *)(uintptr_t)plan};
        tests[count++] =
            (struct CMUnitTest){plan->name, test_tiny, NULL, NULL, (void *)(uintptr_t)plan};
    }
    tests[count++] = (struct CMUnitTest){"real_model", test_real, NULL, NULL, NULL};
    tests[count++] =
        (struct CMUnitTest){"all_of_it_was_met", test_all_of_it_was_met, NULL, NULL, NULL};
    return _cmocka_run_group_tests("batch identity", tests, count, NULL, NULL);
}
