/* Goal:   a sampler with a grammar forbids exactly the tokens that cannot follow; ends are allowed
 *         only where the text is complete; biases, the least length, rollback and fork go with it.
 * Method: a vocabulary of few words, a choice of short texts, and the mask of every position; draws
 *         through the reference of sampling (kernels/cpu/row_sampler.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "grammar/grammar.h"
#include "kernels/cpu/row_sampler.h"
#include "sample/sampler.h"

enum { A, B, C, AB, BC, END, ABC, SPECIAL, VOCAB };
enum { MASK_WORDS = 1, EDITS = 16, TOKENS_MAX = 100 };

static struct vocabulary *vocabulary;
static struct grammar *grammar;
static const int32_t ends[] = {END};

static int set_up(void **state) {
    static const char *const words[VOCAB] = {"a", "b", "c", "ab", "bc", "", "abc", ""};
    const struct grammar_options options = {.kind = GRAMMAR_CHOICE};
    struct str tokens[VOCAB];
    struct grammar_refusal why;
    (void)state;
    for (int i = 0; i < VOCAB; i++) tokens[i] = str_of(words[i]);
    assert_int_equal(vocabulary_create(tokens, VOCAB, &vocabulary), ST_OK);
    assert_int_equal(grammar_compile(STR("[\"ab\",\"abc\",\"cb\"]"), &options, &grammar, &why),
                     ST_OK);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    grammar_destroy(grammar);
    vocabulary_destroy(vocabulary);
    return 0;
}

static struct sample_params params(void) {
    struct sample_params p = sample_params_default();
    p.temperature = 0;
    p.grammar = grammar;
    p.rollback_max = SAMPLE_ROLLBACK_MAX;
    p.vocabulary = vocabulary;
    p.ends = ends;
    p.end_count = 1;
    return p;
}

static struct sampler *create(const struct sample_params *p) {
    const struct sample_bounds bounds = {VOCAB, TOKENS_MAX};
    struct sampler *s;
    struct err err = {{0}};
    assert_int_equal(sampler_create(p, &bounds, &s, &err), ST_OK);
    sampler_accept(s, C); /* the prompt, which the grammar says nothing about */
    sampler_accept(s, SPECIAL);
    sampler_begin_answer(s);
    return s;
}

/* The bits of the tokens that may come next. */
static uint64_t allowed(const struct sampler *s) {
    struct logit_edit edits[EDITS];
    uint64_t deny[MASK_WORDS];
    struct sampling_tables tables = {
        .edits = edits, .edit_cap = EDITS, .deny = deny, .deny_cap = MASK_WORDS};
    struct sampling out;
    assert_int_equal(sampler_describe(s, 5, false, &tables, &out), ST_OK);
    assert_int_equal(out.deny_first, 0);
    assert_int_equal(tables.deny_count, MASK_WORDS);
    return ~deny[0];
}

#define BIT(token) (UINT64_C(1) << (token))

static void test_only_what_may_follow_is_allowed(void **state) {
    (void)state;
    struct sample_params p = params();
    struct sampler *s = create(&p);
    assert_int_equal(allowed(s), BIT(A) | BIT(AB) | BIT(ABC) | BIT(C));
    assert_false(sampler_is_over(s));
    sampler_accept(s, A);
    assert_int_equal(allowed(s), BIT(B) | BIT(BC));
    sampler_accept(s, B);
    assert_int_equal(allowed(s), BIT(C) | BIT(END)); /* "ab" may end or go on */
    assert_false(sampler_is_over(s));
    sampler_accept(s, C);
    assert_int_equal(allowed(s), BIT(END));
    assert_true(sampler_is_over(s));
    sampler_accept(s, END);
    assert_int_equal(allowed(s), 0);
    assert_false(sampler_is_over(s)); /* it has ended already */
    sampler_destroy(s);
}

/* A stop token of the request can be a token with bytes that the grammar allows. */
static void test_an_end_that_has_bytes_waits_for_a_whole_text(void **state) {
    (void)state;
    static const int32_t with_bytes[] = {END, B};
    struct sample_params p = params();
    p.ends = with_bytes;
    p.end_count = 2;
    struct sampler *s = create(&p);
    sampler_accept(s, A);
    assert_int_equal(allowed(s), BIT(BC));
    sampler_accept(s, BC);
    assert_int_equal(allowed(s), BIT(END) | BIT(B));
    sampler_destroy(s);
}

static void test_without_ends_a_whole_text_is_over_by_itself(void **state) {
    (void)state;
    struct sample_params p = params();
    p.end_count = 0;
    struct sampler *s = create(&p);
    sampler_accept(s, AB);
    assert_int_equal(allowed(s), BIT(C));
    assert_false(sampler_is_over(s));
    sampler_accept(s, C);
    assert_true(sampler_is_over(s));
    sampler_destroy(s);
}

static void test_a_rollback_goes_back_in_the_text(void **state) {
    (void)state;
    struct sample_params p = params();
    struct sampler *s = create(&p);
    sampler_accept(s, A);
    sampler_accept(s, BC);
    sampler_accept(s, END);
    sampler_rollback(s, 2);
    assert_int_equal(allowed(s), BIT(B) | BIT(BC));
    sampler_rollback(s, 1);
    assert_int_equal(allowed(s), BIT(A) | BIT(AB) | BIT(ABC) | BIT(C));
    sampler_destroy(s);
}

static void test_a_fork_goes_its_own_way(void **state) {
    (void)state;
    struct sample_params p = params();
    struct sampler *s = create(&p), *f;
    sampler_accept(s, A);
    assert_int_equal(sampler_fork(s, &f), ST_OK);
    sampler_accept(f, BC);
    assert_int_equal(allowed(f), BIT(END));
    assert_int_equal(allowed(s), BIT(B) | BIT(BC));
    sampler_rollback(f, 2);
    assert_int_equal(allowed(f), BIT(A) | BIT(AB) | BIT(ABC) | BIT(C));
    sampler_destroy(s);
    sampler_destroy(f);
}

static enum status draw(const struct sampler *s, int32_t *token) {
    static const float logits[VOCAB] = {1, 9, 2, 3, 8, 20, 2.5f, 30}; /* SPECIAL is the likeliest */
    struct logit_edit edits[EDITS];
    uint64_t deny[MASK_WORDS];
    struct sampling_tables tables = {
        .edits = edits, .edit_cap = EDITS, .deny = deny, .deny_cap = MASK_WORDS};
    struct sampling how;
    struct row_sampler *c;
    struct sample_result out;
    assert_int_equal(sampler_describe(s, 5, false, &tables, &how), ST_OK);
    assert_int_equal(row_sampler_create(VOCAB, &c), ST_OK);
    enum status st = row_sampler_run(c, &how, &tables, -1, logits, &out);
    row_sampler_destroy(c);
    *token = out.chosen.token;
    return st;
}

static void test_draws_keep_to_the_grammar_with_biases_and_a_least_length(void **state) {
    (void)state;
    int32_t token;
    struct sample_params p = params();
    struct logit_bias bias[] = {{AB, -100.0f}, {BC, -HUGE_VALF}};
    p.bias = bias;
    p.bias_count = 2;
    p.min_tokens = 3;
    struct sampler *s = create(&p);
    assert_int_equal(draw(s, &token), ST_OK);
    assert_int_equal(token, ABC); /* AB is the likelier, less its bias */
    sampler_accept(s, A);
    assert_int_equal(draw(s, &token), ST_OK);
    assert_int_equal(token, B); /* BC is forbidden */
    sampler_accept(s, B);
    assert_int_equal(draw(s, &token), ST_OK);
    assert_int_equal(token, C); /* END would come too early */
    sampler_accept(s, C);
    assert_int_equal(draw(s, &token), ST_OK);
    assert_int_equal(token, END);
    sampler_destroy(s);
}

static void test_a_bias_that_forbids_all_fails_the_row(void **state) {
    (void)state;
    int32_t token;
    struct sample_params p = params();
    struct logit_bias bias[] = {{B, -HUGE_VALF}, {BC, -HUGE_VALF}};
    p.bias = bias;
    p.bias_count = 2;
    struct sampler *s = create(&p);
    sampler_accept(s, A);
    assert_int_equal(draw(s, &token), ST_BAD);
    sampler_destroy(s);
}

/* A grammar that compiles and has no states left for its first mask. */
static struct grammar *compile_tight(void) {
    struct grammar *g = NULL;
    for (uint32_t states = 10; !g; states++) {
        const struct grammar_options options = {.kind = GRAMMAR_REGEX, .states_max = states};
        struct grammar_refusal why;
        grammar_compile(STR("c|(a|b)*a(a|b){40}"), &options, &g, &why);
    }
    return g;
}

static void test_a_failure_is_of_one_sampler(void **state) {
    (void)state;
    struct sample_params p = params();
    struct err err = {{0}};
    struct grammar *tight = compile_tight();
    p.grammar = tight;
    struct sampler *failed = create(&p), *other = create(&p);
    assert_int_equal(allowed(failed), 0);
    assert_int_equal(sampler_explain(failed, &err), ST_FULL);
    assert_non_null(strstr(err.text, "budget"));
    assert_int_equal(sampler_explain(other, &err), ST_BAD);
    assert_non_null(strstr(err.text, "bias"));
    sampler_destroy(failed);
    sampler_destroy(other);
    p.grammar = NULL;
    struct sampler *plain = create(&p);
    assert_int_equal(sampler_explain(plain, &err), ST_OK);
    sampler_destroy(plain);
    grammar_destroy(tight);
}

/* A row can fail because its logits are no numbers. */
static void test_a_grammar_that_allows_some_token_is_not_at_fault(void **state) {
    (void)state;
    struct err err = {{0}};
    struct sample_params p = params();
    struct sampler *s = create(&p);
    assert_true(allowed(s) != 0);
    assert_int_equal(sampler_explain(s, &err), ST_OK);
    sampler_destroy(s);
    struct logit_bias bias[] = {{B, -HUGE_VALF}};
    p.bias = bias;
    p.bias_count = 1;
    s = create(&p);
    assert_true(allowed(s) != 0);
    assert_int_equal(sampler_explain(s, &err), ST_BAD); /* it may be the bias */
    sampler_destroy(s);
}

static void test_a_mask_without_room_is_refused(void **state) {
    (void)state;
    struct sample_params p = params();
    struct sampler *s = create(&p);
    struct sampling_tables tables = {.deny_cap = 0};
    struct sampling out;
    assert_int_equal(sampler_describe(s, 5, false, &tables, &out), ST_FULL);
    assert_int_equal(tables.deny_count, 0);
    sampler_destroy(s);
}

/* Special tokens have bytes of their own: they come where the grammar names them, also beside text
 * with the same letters. An end that is named waits for a whole text like any other. */
static void test_a_special_token_comes_where_the_grammar_names_it(void **state) {
    (void)state;
    static const char *const words[VOCAB] = {"a",
                                             "b",
                                             "c",
                                             "ab",
                                             "bc",
                                             "\xFF"
                                             "c"
                                             "\xFF",
                                             "abc",
                                             "\xFF"
                                             "b"
                                             "\xFF"};
    const struct grammar_options options = {.kind = GRAMMAR_PARTS};
    struct str tokens[VOCAB];
    struct vocabulary *v = NULL;
    struct grammar *g = NULL;
    struct grammar_refusal why;
    for (int i = 0; i < VOCAB; i++) tokens[i] = str_of(words[i]);
    assert_int_equal(vocabulary_create(tokens, VOCAB, &v), ST_OK);
    assert_int_equal(
        grammar_compile(
            STR("{\"sequence\":[{\"text\":\"a\"},{\"any\":[{\"token\":\"b\"},{\"token\":"
                "\"c\"},{\"text\":\"bc\"}]},{\"text\":\"c\"}]}"),
            &options, &g, &why),
        ST_OK);
    struct sample_params p = params();
    p.grammar = g;
    p.vocabulary = v;
    struct sampler *s = create(&p);
    assert_int_equal(allowed(s), BIT(A) | BIT(AB) | BIT(ABC));
    sampler_accept(s, A);
    assert_int_equal(allowed(s), BIT(B) | BIT(BC) | BIT(SPECIAL));
    sampler_accept(s, SPECIAL);
    assert_int_equal(allowed(s), BIT(C));
    sampler_accept(s, C);
    assert_int_equal(allowed(s), BIT(END));
    assert_true(sampler_is_over(s));
    sampler_rollback(s, 2);
    assert_int_equal(allowed(s), BIT(B) | BIT(BC) | BIT(SPECIAL));
    sampler_destroy(s);
    grammar_destroy(g);
    vocabulary_destroy(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_what_may_follow_is_allowed),
        cmocka_unit_test(test_an_end_that_has_bytes_waits_for_a_whole_text),
        cmocka_unit_test(test_without_ends_a_whole_text_is_over_by_itself),
        cmocka_unit_test(test_a_rollback_goes_back_in_the_text),
        cmocka_unit_test(test_a_fork_goes_its_own_way),
        cmocka_unit_test(test_draws_keep_to_the_grammar_with_biases_and_a_least_length),
        cmocka_unit_test(test_a_bias_that_forbids_all_fails_the_row),
        cmocka_unit_test(test_a_failure_is_of_one_sampler),
        cmocka_unit_test(test_a_grammar_that_allows_some_token_is_not_at_fault),
        cmocka_unit_test(test_a_mask_without_room_is_refused),
        cmocka_unit_test(test_a_special_token_comes_where_the_grammar_names_it),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
