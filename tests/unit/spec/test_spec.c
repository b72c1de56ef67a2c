/* Goal:   which drafter a sequence gets and is asked of, how many drafts, and what it takes.
 * Method: every choice of an engine with every choice of a request; memory is compared with what
 *         the drafter holds once it is made. A draft model that gives what the test says. */
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

/* The text of the sequence is another one here: the guess follows from what create has indexed. */
static void test_a_prompt_is_indexed_before_the_first_guess(void **state) {
    (void)state;
    static const int32_t prompt[] = {1, 2, 3, 4, 1, 2}, other[] = {9, 8, 7, 6, 1, 2};
    const struct speculation wanted = choose("suffix");
    const struct spec_text text = {.prompt = prompt, .prompt_tokens = 6, .tokens_max = 20};
    struct spec *s = open_spec("off");
    struct spec_seq *seq;
    struct err err = {0};
    int32_t out[1];
    struct draft_ask ask = {.tokens = other, .known = 6, .count = 6, .max = 1, .out = out};
    assert_int_equal(spec_seq_create(s, &wanted, &text, &seq, &err), ST_OK);
    spec_begin(s, 0, seq, &(struct sampling){.kind = SAMPLING_DRAW});
    spec_source(s).propose(s, &ask, 1);
    assert_int_equal(ask.given, 1);
    assert_int_equal(out[0], 3);
    spec_end(s, 0, other, 6, 6);
    spec_seq_destroy(seq);
    spec_destroy(s);
}

/* ---- asking ---- */

/* Gives the tokens of `gives`. */
struct fake_model {
    const int32_t *gives;
    uint32_t given;
    uint32_t begun, ended, asked;
};

static void fake_begin(void *self, seq_idx seq, const struct sampling *draw) {
    (void)seq, (void)draw;
    ((struct fake_model *)self)->begun++;
}
static void fake_end(void *self, seq_idx seq) {
    (void)seq;
    ((struct fake_model *)self)->ended++;
}
static void fake_propose(void *self, struct draft_ask *const *asks, uint32_t count) {
    struct fake_model *m = self;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(asks[i]->out, m->gives, m->given * sizeof(m->gives[0]));
        asks[i]->given = m->given;
        m->asked++;
    }
}
static double fake_cost_us(void *self, uint32_t seqs, uint32_t tokens) {
    (void)self;
    return seqs * tokens;
}

static void plug_fake(struct spec *s, struct fake_model *m) {
    spec_plug_model(s, &(struct draft_model){.begin = fake_begin,
                                             .end = fake_end,
                                             .propose = fake_propose,
                                             .cost_us = fake_cost_us,
                                             .close = NULL,
                                             .self = m});
}

static struct spec_seq *begin_seq(struct spec *s, seq_idx i, const char *name) {
    const struct speculation wanted = choose(name);
    const struct spec_text text = {.prompt_tokens = 1, .tokens_max = 20};
    const struct sampling draw = {.kind = SAMPLING_DRAW};
    struct spec_seq *seq;
    struct err err = {0};
    assert_int_equal(spec_seq_create(s, &wanted, &text, &seq, &err), ST_OK);
    spec_begin(s, i, seq, &draw);
    return seq;
}

static void test_each_sequence_is_asked_of_its_own_drafter(void **state) {
    (void)state;
    static const int32_t tokens[] = {1, 2, 3, 4, 1, 2}, gives[] = {70, 71};
    struct fake_model m = {.gives = gives, .given = 2};
    struct spec *s = open_spec("off");
    struct draft_source source = spec_source(s);
    plug_fake(s, &m);
    struct spec_seq *text = begin_seq(s, 2, "ngram");
    assert_int_equal(m.begun, 0);
    assert_true(source.cost_us(source.ctx, 1, 3) <= 0); /* no sequence has the model's drafts */
    struct spec_seq *modelled = begin_seq(s, 1, "model");
    assert_int_equal(m.begun, 1);
    assert_true(source.cost_us(source.ctx, 1, 3) > 0);
    int32_t out[2][2];
    struct draft_ask asks[2];
    for (uint32_t i = 0; i < 2; i++)
        asks[i] = (struct draft_ask){
            .seq = 2 - i, .tokens = tokens, .known = 6, .count = 6, .max = 2, .out = out[i]};
    source.propose(source.ctx, asks, 2);
    assert_int_equal(m.asked, 1);
    assert_int_equal(asks[0].given, 2);
    assert_memory_equal(out[0], &tokens[2], sizeof(out[0])); /* what followed 1, 2 before */
    assert_int_equal(asks[1].given, 2);
    assert_memory_equal(out[1], gives, sizeof(out[1]));
    spec_end(s, 1, tokens, 6, 1);
    assert_int_equal(m.ended, 1);
    assert_true(source.cost_us(source.ctx, 1, 3) <= 0);
    spec_end(s, 2, tokens, 6, 1);
    assert_int_equal(m.ended, 1);
    spec_begin(s, 1, text, &(struct sampling){.kind = SAMPLING_DRAW}); /* the index is free */
    spec_end(s, 1, tokens, 6, 1);
    spec_seq_destroy(text);
    spec_seq_destroy(modelled);
    spec_destroy(s);
}

/* The row of a token that the model does not have would be read behind the end of its table. */
static void test_drafts_end_before_a_token_that_the_model_does_not_have(void **state) {
    (void)state;
    static const int32_t wrong[][3] = {{5, VOCAB, 6}, {5, -1, 6}, {5, INT32_MIN, 6}};
    static const int32_t tokens[] = {1}, right[] = {0, VOCAB - 1, 6};
    struct fake_model m = {.given = 3};
    struct spec *s = open_spec("off");
    struct draft_source source = spec_source(s);
    plug_fake(s, &m);
    struct spec_seq *seq = begin_seq(s, 0, "model");
    for (uint32_t i = 0; i < 4; i++) {
        int32_t out[3];
        struct draft_ask ask = {.tokens = tokens, .known = 1, .count = 1, .max = 3, .out = out};
        m.gives = i < 3 ? wrong[i] : right;
        source.propose(source.ctx, &ask, 1);
        assert_int_equal(ask.given, i < 3 ? 1 : 3);
    }
    spec_end(s, 0, tokens, 1, 1);
    spec_seq_destroy(seq);
    spec_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_chooses_by_name_alone),
        cmocka_unit_test(test_how_many_drafts_a_sequence_may_have),
        cmocka_unit_test(test_a_draft_model_must_be_there),
        cmocka_unit_test(test_the_memory_of_a_drafter_is_known_before),
        cmocka_unit_test(test_a_prompt_is_indexed_before_the_first_guess),
        cmocka_unit_test(test_each_sequence_is_asked_of_its_own_drafter),
        cmocka_unit_test(test_drafts_end_before_a_token_that_the_model_does_not_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
