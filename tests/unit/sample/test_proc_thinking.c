/* Goal:   a thought that has spent its budget is closed by the closing text and by nothing else;
 *         what is not a thought is left alone; rollback, fork and a grammar go with it.
 * Method: a tokenizer whose tokens are bytes, the tokens that each position allows, and answers
 *         drawn through the reference of sampling (unit/sample/pick.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "grammar/grammar.h"
#include "unit/sample/pick.h"
#include "unit/text/byte_tokenizer.h"

enum { TOKENS_MAX = 4096, WORDS = (T_VOCAB + 63) / 64, ANY = -1, MIXED = -2 };

static struct tokenizer *tokenizer;
static const int32_t closing[] = {'\n', '<', '/', 't', '>', '\n', '\n'};
#define CLOSING "\n</t>\n\n"
enum { CLOSING_COUNT = sizeof(closing) / sizeof(closing[0]) };

static int set_up(void **state) {
    (void)state;
    tokenizer = byte_tokenizer(STR(""));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    tokenizer_destroy(tokenizer);
    return 0;
}

static struct sample_params params(uint32_t budget, bool in_thought) {
    struct sample_params p = sample_params_default();
    p.temperature = 0;
    p.thinking = (struct sample_thinking){.has_budget = true,
                                          .in_thought = in_thought,
                                          .budget = budget,
                                          .open = "<t>",
                                          .close = "</t>",
                                          .tokenizer = tokenizer,
                                          .closing = closing,
                                          .closing_count = CLOSING_COUNT};
    return p;
}

static struct sampler *create(const struct sample_params *p) {
    const struct sample_bounds bounds = {T_VOCAB, TOKENS_MAX};
    struct sampler *s;
    struct err err = {{0}};
    assert_int_equal(sampler_create(p, &bounds, &s, &err), ST_OK);
    for (const char *prompt = "<t>a</t>"; *prompt; prompt++) sampler_accept(s, *prompt);
    sampler_begin_answer(s);
    return s;
}

static struct sampler *create_for(uint32_t budget, bool in_thought) {
    const struct sample_params p = params(budget, in_thought);
    return create(&p);
}

static void say(struct sampler *s, const char *text) {
    for (; *text; text++) sampler_accept(s, (uint8_t)*text);
}

/* The only token that may come next; ANY: all may; MIXED: some. */
static int32_t only(const struct sampler *s) {
    uint64_t deny[WORDS];
    struct sampling_tables tables = {.deny = deny, .deny_cap = WORDS};
    struct sampling out;
    assert_int_equal(sampler_describe(s, 5, false, &tables, &out), ST_OK);
    if (out.deny_first == SAMPLING_NONE) return ANY;
    int32_t allowed = ANY;
    uint32_t count = 0;
    for (int32_t token = 0; token < T_VOCAB; token++) {
        if (deny[token / 64] >> token % 64 & 1) continue;
        allowed = token;
        count++;
    }
    return count == 1 ? allowed : MIXED;
}

/* The closing text is forced from its token `from` on, and then nothing. */
static void expect_closing(struct sampler *s, uint32_t from) {
    for (uint32_t i = from; i < CLOSING_COUNT; i++) {
        assert_int_equal(only(s), closing[i]);
        sampler_accept(s, closing[i]);
    }
    for (int i = 0; i < 20; i++) {
        assert_int_equal(only(s), ANY);
        sampler_accept(s, '<' + i);
    }
}

static void test_a_thought_is_closed_when_its_budget_is_spent(void **state) {
    (void)state;
    for (uint32_t budget = 0; budget < 5; budget++) {
        struct sampler *s = create_for(budget, false);
        assert_int_equal(only(s), ANY);
        say(s, "\n <t>"); /* blanks and the mark do not count */
        for (uint32_t i = 0; i < budget; i++) {
            assert_int_equal(only(s), ANY);
            sampler_accept(s, 'x');
        }
        expect_closing(s, 0);
        sampler_destroy(s);
    }
}

static void test_a_thought_that_the_prompt_opens_counts_from_the_first_token(void **state) {
    (void)state;
    struct sampler *s = create_for(3, true);
    say(s, "\na");
    assert_int_equal(only(s), ANY);
    sampler_accept(s, 'b');
    expect_closing(s, 0);
    sampler_destroy(s);
    s = create_for(0, true);
    expect_closing(s, 0);
    sampler_destroy(s);
}

static void test_a_thought_that_ends_in_time_is_left_alone(void **state) {
    (void)state;
    static const char *const texts[] = {"<t>ab</t>", "<t></t>", "<t></</t>", "<t>a</</t>"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct sampler *s = create_for(8, false);
        say(s, texts[i]);
        for (int k = 0; k < 30; k++) {
            assert_int_equal(only(s), ANY);
            say(s, "<t>");
        }
        sampler_destroy(s);
    }
}

static void test_an_answer_without_a_thought_has_no_budget(void **state) {
    (void)state;
    static const char *const texts[] = {"a<t>", "<b><t>", "<<t>", "\n\n.<t>"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct sampler *s = create_for(1, false);
        say(s, texts[i]);
        for (int k = 0; k < 10; k++) {
            sampler_accept(s, 'x');
            assert_int_equal(only(s), ANY);
        }
        sampler_destroy(s);
    }
}

/* A model may write a mark as one token, or as part of one. */
static void test_marks_are_found_in_the_bytes_of_tokens(void **state) {
    (void)state;
    struct sample_params p = params(2, false);
    p.thinking.open = "<tool_call>";
    p.thinking.close = "Hell";
    struct sampler *s = create(&p);
    sampler_accept(s, T_CALL);
    sampler_accept(s, 'x');
    assert_int_equal(only(s), ANY);
    struct sampler *spent;
    assert_int_equal(sampler_fork(s, &spent), ST_OK);
    sampler_accept(s, T_HELLO);
    for (int i = 0; i < 5; i++) {
        sampler_accept(s, 'x');
        assert_int_equal(only(s), ANY);
    }
    sampler_accept(spent, 'x');
    assert_int_equal(only(spent), closing[0]);
    sampler_destroy(spent);
    sampler_destroy(s);
}

static void test_a_rollback_goes_back_into_the_thought(void **state) {
    (void)state;
    struct sampler *s = create_for(2, false);
    say(s, "<t>ab\n<");
    assert_int_equal(only(s), '/');
    sampler_rollback(s, 2);
    assert_int_equal(only(s), '\n');
    sampler_rollback(s, 1);
    assert_int_equal(only(s), ANY);
    say(s, "c");
    expect_closing(s, 0);
    sampler_rollback(s, 20 + CLOSING_COUNT); /* as many as expect_closing has accepted */
    expect_closing(s, 0);
    sampler_destroy(s);

    s = create_for(1, false);
    say(s, "<t>");
    sampler_rollback(s, 3);
    say(s, "a<t>bcd");
    assert_int_equal(only(s), ANY);
    sampler_rollback(s, 5);
    say(s, "t>b");
    assert_int_equal(only(s), ANY); /* "at>b" */
    sampler_destroy(s);
}

static void test_every_rollback_gives_the_same_as_never_having_gone_on(void **state) {
    (void)state;
    static const char text[] = " <t>a</b<" CLOSING "more <t> text";
    for (size_t len = 0; len < sizeof(text); len++) {
        for (uint32_t back = 0; back <= len; back++) {
            struct sampler *s = create_for(5, false), *fresh = create_for(5, false);
            for (size_t i = 0; i < len; i++) sampler_accept(s, text[i]);
            for (size_t i = 0; i < len - back; i++) sampler_accept(fresh, text[i]);
            sampler_rollback(s, back);
            for (size_t i = len - back; i < sizeof(text) - 1; i++) {
                assert_int_equal(only(s), only(fresh));
                sampler_accept(s, text[i]);
                sampler_accept(fresh, text[i]);
            }
            sampler_destroy(s);
            sampler_destroy(fresh);
        }
    }
}

static void test_a_fork_goes_its_own_way(void **state) {
    (void)state;
    struct sampler *s = create_for(3, true), *f;
    say(s, "ab");
    assert_int_equal(sampler_fork(s, &f), ST_OK);
    say(f, "c\n");
    assert_int_equal(only(f), '<');
    assert_int_equal(only(s), ANY);
    sampler_rollback(f, 3); /* past the fork */
    assert_int_equal(only(f), ANY);
    say(f, "bc");
    expect_closing(f, 0);
    say(s, "c");
    expect_closing(s, 0);
    sampler_destroy(s);
    sampler_destroy(f);
}

static struct vocabulary *make_vocabulary(void) {
    static char bytes[T_VOCAB];
    struct str tokens[T_VOCAB];
    struct vocabulary *v;
    for (int i = 0; i < T_VOCAB; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct str){&bytes[i], i < 256};
    }
    assert_int_equal(vocabulary_create(tokens, T_VOCAB, &v), ST_OK);
    return v;
}

/* What is drawn if the model always prefers the same token. */
static void draw(struct sampler *s, int32_t liked, uint32_t count, char *out) {
    static float logits[T_VOCAB];
    struct row_sampler *c;
    struct sample_result result;
    memset(logits, 0, sizeof(logits));
    logits[liked] = 9;
    assert_int_equal(row_sampler_create(T_VOCAB, &c), ST_OK);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(pick(s, c, logits, 10 + i, &result), ST_OK);
        out[i] = (char)result.chosen.token;
        sampler_accept(s, result.chosen.token);
    }
    out[count] = 0;
    row_sampler_destroy(c);
}

static void test_draws_write_the_closing_text(void **state) {
    (void)state;
    char text[32];
    struct sampler *s = create_for(4, true);
    draw(s, 'x', 13, text);
    assert_string_equal(text, "xxxx" CLOSING "xx");
    sampler_destroy(s);
}

static void test_a_grammar_behind_the_thought_holds_as_well(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *text;
    } cases[] = {
        {"(x|\\n|/|t|>|<)*</t>\\n\\n(yes|no)", "xxx" CLOSING "no"},
        /* It does not allow the whole closing text: it decides. */
        {"[x\\n</t]*</t>(yes|no)", "xxx\n</t>no"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct grammar_options options = {.kind = GRAMMAR_REGEX};
        struct grammar_refusal why;
        struct grammar *g;
        char text[64];
        struct vocabulary *v = make_vocabulary();
        assert_int_equal(grammar_compile(str_of(cases[i].pattern), &options, &g, &why), ST_OK);
        struct sample_params p = params(3, true);
        p.grammar = g;
        p.vocabulary = v;
        p.rollback_max = SAMPLE_ROLLBACK_MAX;
        struct sampler *s = create(&p);
        draw(s, 'x', (uint32_t)strlen(cases[i].text) - 2, text);
        draw(s, 'n', 2, text + strlen(text));
        assert_string_equal(text, cases[i].text);
        sampler_destroy(s);
        grammar_destroy(g);
        vocabulary_destroy(v);
    }
}

static void test_a_mask_without_room_is_refused(void **state) {
    (void)state;
    struct sampler *s = create_for(0, true);
    struct sampling_tables tables = {.deny_cap = 0};
    struct sampling out;
    assert_int_equal(sampler_describe(s, 5, false, &tables, &out), ST_FULL);
    assert_int_equal(tables.deny_count, 0);
    sampler_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thought_is_closed_when_its_budget_is_spent),
        cmocka_unit_test(test_a_thought_that_the_prompt_opens_counts_from_the_first_token),
        cmocka_unit_test(test_a_thought_that_ends_in_time_is_left_alone),
        cmocka_unit_test(test_an_answer_without_a_thought_has_no_budget),
        cmocka_unit_test(test_marks_are_found_in_the_bytes_of_tokens),
        cmocka_unit_test(test_a_rollback_goes_back_into_the_thought),
        cmocka_unit_test(test_every_rollback_gives_the_same_as_never_having_gone_on),
        cmocka_unit_test(test_a_fork_goes_its_own_way),
        cmocka_unit_test(test_draws_write_the_closing_text),
        cmocka_unit_test(test_a_grammar_behind_the_thought_holds_as_well),
        cmocka_unit_test(test_a_mask_without_room_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
