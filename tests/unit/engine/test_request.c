/* Goal:   what a client may ask for is checked before anything is allocated for it, and each
 *         choice has what it needs: room, seed.
 * Method: specs at and past every edge; reasons must carry the numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>

#include "engine/request.h"
#include "spec/drafter.h"
#include "spec/spec.h"
#include "unit/sample/pick.h"

enum { VOCAB = 50, CTX = 32 };

static const int32_t prompt[CTX] = {1, 2, 3, 4, 5};
static const int32_t model_ends[] = {7, 8};
static const struct request_bounds bounds = {VOCAB, CTX, model_ends, 2, NULL};

static struct request_spec usual(void) {
    return (struct request_spec){.prompt = prompt,
                                 .prompt_tokens = 5,
                                 .max_tokens = 10,
                                 .n = 1,
                                 .sample = sample_params_default(),
                                 .want_logprobs = true};
}

static void refused(const struct request_spec *spec, const char *part) {
    struct err err = {0};
    struct request *r = NULL;
    assert_int_equal(request_create(spec, 1, &bounds, 0, &r, &err), ST_BAD);
    assert_null(r);
    if (!strstr(err.text, part)) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static struct request *made(const struct request_spec *spec) {
    struct err err = {0};
    struct request *r = NULL;
    if (request_create(spec, 1, &bounds, 7, &r, &err) != ST_OK) fail_msg("%s", err.text);
    return r;
}

static void test_what_can_never_be_served_is_refused_with_the_numbers(void **state) {
    (void)state;
    struct request_spec s = usual();
    s.prompt_tokens = 0;
    refused(&s, "empty");
    s.prompt_tokens = CTX;
    refused(&s, "length is 32 tokens, the answer included, but the prompt has 32 tokens");
    s = usual();
    s.n = 0;
    refused(&s, "n is 0; it must be a whole number from 1 to 16");
    s.n = CHOICES_MAX + 1;
    refused(&s, "n is 17");
    s = usual();
    s.max_tokens = 0;
    refused(&s, "max_tokens is 0");
    s.want_prompt_logprobs = true; /* then it may be */
    request_unref(made(&s));
    s = usual();
    s.sample.temperature = -1;
    refused(&s, "temperature");
    const int32_t high[] = {1, VOCAB}, low[] = {-1};
    s = usual();
    s.prompt = high;
    s.prompt_tokens = 2;
    refused(&s, "token 1 is 50, the model's vocabulary has 0 to 49");
    s.prompt = low;
    s.prompt_tokens = 1;
    refused(&s, "token 0 is -1");
}

static void test_invalid_stop_tokens_are_refused_with_the_numbers(void **state) {
    (void)state;
    const int32_t outside[STOP_TOKENS_MAX + 1] = {3, VOCAB};
    struct request_spec s = usual();
    s.stop_tokens = outside;
    s.stop_token_count = 2;
    refused(&s, "stop token 1 is 50, the model's vocabulary has 0 to 49");
    s.stop_token_count = STOP_TOKENS_MAX + 1;
    refused(&s, "there are 65 stop tokens, at most 64");
    s = usual();
    s.min_tokens = s.max_tokens + 1;
    refused(&s, "min_tokens is 11 and max_tokens 10");
}

/* A tokenizer may have more tokens than the model. */
static void test_an_end_of_thoughts_outside_the_vocabulary_is_refused(void **state) {
    (void)state;
    const int32_t closing[] = {3, VOCAB};
    struct request_spec s = usual();
    s.sample.thinking =
        (struct sample_thinking){.has_budget = true, .closing = closing, .closing_count = 2};
    refused(&s, "token at the end of thoughts 1 is 50, the model's vocabulary has 0 to 49");
}

static void test_a_request_ends_at_the_models_ends_and_at_its_own(void **state) {
    (void)state;
    const int32_t own[] = {9, 10, 11};
    for (int ignores = 0; ignores < 2; ignores++)
        for (uint32_t stops = 0; stops < 4; stops++) {
            struct request_spec s = usual();
            s.ignore_end = ignores;
            s.stop_tokens = own;
            s.stop_token_count = stops;
            struct request *r = made(&s);
            for (int32_t t = 0; t < VOCAB; t++) {
                bool is_models = t == 7 || t == 8, is_own = t >= 9 && t < 9 + (int32_t)stops;
                assert_int_equal(request_ends_at(r, t), is_own || (is_models && !ignores));
            }
            request_unref(r);
        }
}

static void test_an_answer_is_capped_by_the_context(void **state) {
    (void)state;
    struct request_spec s = usual();
    s.max_tokens = UINT32_MAX;
    struct request *r = made(&s);
    assert_int_equal(r->choices[0].total_max, CTX);
    request_unref(r);
    s.prompt_tokens = CTX - 1;
    r = made(&s);
    assert_int_equal(r->choices[0].total_max, CTX);
    request_unref(r);
}

static void test_every_choice_has_its_own_room(void **state) {
    (void)state;
    struct request_spec s = usual();
    s.n = CHOICES_MAX;
    s.sample.top_logprobs = 2;
    struct request *r = made(&s);
    for (uint32_t i = 0; i < r->n; i++) {
        struct choice *c = &r->choices[i];
        uint32_t ready;
        assert_ptr_equal(c->request, r);
        assert_int_equal(c->index, i);
        assert_int_equal(choice_poll(c, &ready), FINISH_NONE);
        assert_int_equal(ready, s.prompt_tokens);
        assert_memory_equal(c->tokens, prompt, s.prompt_tokens * sizeof(prompt[0]));
        assert_non_null(c->tops);
        for (uint32_t k = 0; k < i; k++) assert_ptr_not_equal(c->tokens, r->choices[k].tokens);
    }
    request_unref(r);
}

/* Choice i draws what a request with seed + i draws. */
static void test_choices_draw_with_the_seeds_that_follow(void **state) {
    (void)state;
    struct request_spec s = usual();
    s.sample.temperature = 2;
    s.sample.seed = 40;
    s.n = 4;
    struct request *four = made(&s);
    struct row_sampler *row_sampler;
    assert_int_equal(row_sampler_create(VOCAB, &row_sampler), ST_OK);
    const float logits[VOCAB] = {0};
    s.n = 1;
    for (uint32_t i = 0; i < 4; i++) {
        s.sample.seed = 40 + i;
        struct request *one = made(&s);
        struct sample_result a, b;
        for (uint32_t pos = 5; pos < 12; pos++) {
            assert_int_equal(pick(four->choices[i].sampler, row_sampler, logits, pos, &a), ST_OK);
            assert_int_equal(pick(one->choices[0].sampler, row_sampler, logits, pos, &b), ST_OK);
            assert_int_equal(a.chosen.token, b.chosen.token);
        }
        request_unref(one);
    }
    request_unref(four);
    row_sampler_destroy(row_sampler);
}

static void test_an_expiry_counts_from_now(void **state) {
    (void)state;
    struct request_spec s = usual();
    struct request *r = made(&s);
    assert_int_equal(r->urgency.expires_us, 0);
    request_unref(r);
    s.urgency.expires_us = 100;
    r = made(&s);
    assert_int_equal(r->urgency.expires_us, 107);
    request_unref(r);
}

static void test_the_last_reference_frees(void **state) {
    (void)state;
    struct request_spec s = usual();
    struct request *r = made(&s);
    request_ref(r);
    request_unref(r);
    assert_int_equal(atomic_load(&r->refs), 1);
    request_unref(r);
    request_unref(NULL);
}

static void tap(void *ctx, uint32_t pos, const float *logits) {
    (void)ctx, (void)pos, (void)logits;
}

/* A logits tap receives each position once and in order, and needs no drafts. */
static void test_who_may_have_drafts(void **state) {
    (void)state;
    struct err err = {0};
    struct spec *drafts;
    const struct spec_options options = {
        .fallback = {.kind = SPECULATE_TEXT, .drafter = drafter_find("ngram")},
        .vocab = VOCAB,
        .seq_max = 4};
    assert_int_equal(spec_create(&drafts, &options, &err), ST_OK);
    struct request_bounds drafting = bounds;
    drafting.spec = drafts;
    struct request_spec specs[] = {usual(), usual(), usual(), usual()};
    const uint32_t wanted[] = {DRAFT_MAX, 3, 0, 0};
    specs[0].n = 2;
    specs[1].speculation.max = 3;
    specs[2].on_logits = tap;
    specs[3].max_tokens = 0;
    specs[3].want_prompt_logprobs = true;
    for (uint32_t i = 0; i < 4; i++) {
        struct request *r;
        if (request_create(&specs[i], 1, &drafting, 7, &r, &err) != ST_OK) fail_msg("%s", err.text);
        assert_int_equal(request_create_drafters(r, &specs[i], &drafting, &err), ST_OK);
        assert_int_equal(r->draft_max, wanted[i]);
        for (uint32_t c = 0; c < r->n; c++)
            assert_int_equal(r->choices[c].drafter != NULL, wanted[i] > 0);
        request_unref(r);
    }
    spec_destroy(drafts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_can_never_be_served_is_refused_with_the_numbers),
        cmocka_unit_test(test_invalid_stop_tokens_are_refused_with_the_numbers),
        cmocka_unit_test(test_an_end_of_thoughts_outside_the_vocabulary_is_refused),
        cmocka_unit_test(test_a_request_ends_at_the_models_ends_and_at_its_own),
        cmocka_unit_test(test_an_answer_is_capped_by_the_context),
        cmocka_unit_test(test_every_choice_has_its_own_room),
        cmocka_unit_test(test_choices_draw_with_the_seeds_that_follow),
        cmocka_unit_test(test_an_expiry_counts_from_now),
        cmocka_unit_test(test_the_last_reference_frees),
        cmocka_unit_test(test_who_may_have_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
