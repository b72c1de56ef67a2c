/* Goal:   which drafter a sequence gets, how many drafts, and what it takes.
 * Method: every choice of an engine with every choice of a request; memory is compared with what
 *         the drafter holds once it is made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "spec/drafter.h"
#include "spec/spec.h"

enum { VOCAB = 100, SEQS = 4, PREDICTION = 1000 };

static struct spec *open_spec(const char *option) {
    struct spec *s;
    struct err err = {0};
    struct spec_options o = {.vocab = VOCAB, .seq_max = SEQS};
    assert_int_equal(speculate_option_parse(str_of(option), &o.fallback, &err), ST_OK);
    assert_int_equal(spec_create(&s, &o, &err), ST_OK);
    return s;
}

static struct speculation choose(const char *name) {
    struct speculation wanted = {.is_chosen = true};
    assert_true(speculate_option_find(str_of(name), &wanted.choice));
    return wanted;
}

static void test_a_request_chooses_by_name_alone(void **state) {
    (void)state;
    struct speculate_option o = {.ngram_min = 77};
    for (uint32_t i = 0; drafters[i]; i++) {
        assert_true(speculate_option_find(str_of(drafters[i]->name), &o));
        assert_int_equal(o.kind, SPECULATE_TEXT);
        assert_ptr_equal(o.drafter, drafters[i]);
        assert_int_equal(o.ngram_min + o.ngram_max, 0);
    }
    assert_true(speculate_option_find(STR("off"), &o));
    assert_int_equal(o.kind, SPECULATE_OFF);
    assert_true(speculate_option_find(STR("model"), &o));
    assert_int_equal(o.kind, SPECULATE_MODEL);
    static const char *const wrong[] = {"", "of", "offf", "model:x", "ngram:2-4", "NGRAM"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(speculate_option_find(str_of(wrong[i]), &o));
}

static void test_how_many_drafts_a_sequence_may_have(void **state) {
    (void)state;
    const int32_t prediction[2] = {1, 2};
    struct speculation none = {0}, some = {.max = 5}, most = {.max = DRAFT_MAX + 5},
                       expects = {.prediction = prediction, .prediction_tokens = 2},
                       off = choose("off"), ngram = choose("ngram");
    struct spec *s = open_spec("off");
    assert_int_equal(spec_draft_max(s, &none), 0);
    assert_int_equal(spec_draft_max(s, &some), 0);
    assert_int_equal(spec_draft_max(s, &expects), DRAFT_MAX);
    assert_int_equal(spec_draft_max(s, &ngram), DRAFT_MAX);
    assert_true(spec_follows_prediction(s, &expects));
    assert_false(spec_follows_prediction(s, &ngram));
    off.prediction = prediction;
    off.prediction_tokens = 2;
    assert_int_equal(spec_draft_max(s, &off), 0);
    assert_false(spec_follows_prediction(s, &off));
    spec_destroy(s);

    s = open_spec("suffix");
    assert_int_equal(spec_draft_max(s, &none), DRAFT_MAX);
    assert_int_equal(spec_draft_max(s, &some), 5);
    assert_int_equal(spec_draft_max(s, &most), DRAFT_MAX);
    assert_int_equal(spec_draft_max(s, &off), 0);
    assert_true(spec_follows_prediction(s, &expects));
    assert_false(spec_follows_prediction(s, &none));
    spec_destroy(s);
}

static void test_a_draft_model_must_be_there(void **state) {
    (void)state;
    struct err err = {0};
    struct spec_seq *seq;
    struct spec *s = open_spec("ngram");
    const struct speculation wanted = choose("model");
    assert_false(spec_has_model(s));
    assert_int_equal(spec_seq_create(s, &wanted, &(struct spec_text){.tokens_max = 10}, &seq, &err),
                     ST_BAD);
    assert_non_null(strstr(err.text, "without --speculate model:PATH"));
    spec_destroy(s);
}

/* The memory of a request is counted before its drafters are made. */
static void test_the_memory_of_a_drafter_is_known_before(void **state) {
    (void)state;
    static const uint32_t lengths[] = {1, 2, 3, 1023, 1024, 1025, 5000};
    static const char *const engines[] = {"off", "ngram", "ngram:1-8", "ngram:3", "suffix"};
    static const char *const names[] = {"off", "ngram", "suffix", "predicted", NULL};
    static int32_t prediction[PREDICTION];
    struct err err = {0};
    for (size_t e = 0; e < sizeof(engines) / sizeof(engines[0]); e++) {
        struct spec *s = open_spec(engines[e]);
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            for (size_t n = 0; n < sizeof(lengths) / sizeof(lengths[0]); n++) {
                struct speculation wanted = names[i] ? choose(names[i]) : (struct speculation){0};
                struct spec_seq *seq;
                wanted.prediction = prediction;
                wanted.prediction_tokens = PREDICTION;
                const struct spec_text text = {.prompt_tokens = 1, .tokens_max = lengths[n]};
                const size_t bytes = spec_seq_bytes_for(s, &wanted, lengths[n]);
                assert_int_equal(spec_seq_create(s, &wanted, &text, &seq, &err), ST_OK);
                assert_int_equal(bytes, seq ? spec_seq_bytes(seq) : 0);
                spec_seq_destroy(seq);
            }
        spec_destroy(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_chooses_by_name_alone),
        cmocka_unit_test(test_how_many_drafts_a_sequence_may_have),
        cmocka_unit_test(test_a_draft_model_must_be_there),
        cmocka_unit_test(test_the_memory_of_a_drafter_is_known_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
