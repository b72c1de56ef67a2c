/* Goal:   tokens become the same text for every client: whole characters, nothing of a stop string,
 *         no special token that was not wanted, and the finish reason that follows from the text.
 * Method: named cases over a tokenizer of bytes; then seeded tokens whose pieces cut the stop
 *         strings everywhere, compared with a search of the whole text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "engine/text_output.h"
#include "unit/text/byte_tokenizer.h"

static struct tokenizer *tokenizer;

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

/* A text_output and what it gave. */
struct writing {
    struct text_output output;
    struct buf out;
};

static void begin(struct writing *w, struct text_output_options options) {
    options.tokenizer = tokenizer;
    text_output_init(&w->output, &options);
    buf_init(&w->out, 1 << 16);
}

static bool push(struct writing *w, int32_t token) {
    bool met = text_output_push(&w->output, token, &w->out);
    assert_int_equal(buf_status(&w->out), ST_OK);
    return met;
}

/* Bytes as tokens; true if a stop string was met. */
static bool push_text(struct writing *w, const char *text) {
    bool met = false;
    for (; *text; text++) met = push(w, (uint8_t)*text);
    return met;
}

static void finish(struct writing *w, enum finish_reason reason, enum finish_reason expected,
                   const char *text) {
    assert_int_equal(text_output_finish(&w->output, reason, &w->out), expected);
    assert_int_equal(buf_status(&w->out), ST_OK);
    assert_string_equal(buf_text(&w->out), text);
    buf_deinit(&w->out);
    text_output_deinit(&w->output);
}

static void test_text_is_held_back_until_a_stop_string_is_ruled_out(void **state) {
    (void)state;
    const struct str stops[] = {STR("</s>"), STR("User:")};
    struct writing w;
    begin(&w, (struct text_output_options){.stops = stops, .stop_count = 2});
    assert_false(push_text(&w, "Hi <"));
    assert_string_equal(buf_text(&w.out), "Hi ");
    assert_false(push_text(&w, "/b> Us"));
    assert_string_equal(buf_text(&w.out), "Hi </b> ");
    assert_true(push_text(&w, "er: x"));
    assert_true(str_is(w.output.stop, "User:"));
    assert_int_equal(w.output.token_count, strlen("Hi </b> User:"));
    finish(&w, FINISH_CANCELLED, FINISH_STOP, "Hi </b> ");
}

static void test_text_held_back_is_shown_at_the_end(void **state) {
    (void)state;
    const struct str stops[] = {STR("abc")};
    struct writing w;
    begin(&w, (struct text_output_options){.stops = stops, .stop_count = 1});
    assert_false(push_text(&w, "xab"));
    assert_string_equal(buf_text(&w.out), "x");
    assert_int_equal(w.output.stop.len, 0);
    finish(&w, FINISH_LENGTH, FINISH_LENGTH, "xab");
}

static void test_half_a_character_waits_for_its_other_bytes(void **state) {
    (void)state;
    struct writing w;
    begin(&w, (struct text_output_options){0});
    push_text(&w, "a\xe2\x82");
    assert_string_equal(buf_text(&w.out), "a");
    push_text(&w, "\xac\xe2");
    assert_string_equal(buf_text(&w.out), "a\xe2\x82\xac");
    finish(&w, FINISH_STOP, FINISH_STOP, "a\xe2\x82\xac\xef\xbf\xbd");
}

static void test_a_stop_string_that_the_last_bytes_complete_ends_the_text(void **state) {
    (void)state;
    const struct str stops[] = {STR("\xef\xbf\xbd")};
    struct writing w;
    begin(&w, (struct text_output_options){.stops = stops, .stop_count = 1});
    assert_false(push_text(&w, "a\xe2"));
    finish(&w, FINISH_LENGTH, FINISH_STOP, "a");
}

static void test_include_stop_keeps_the_stop_string(void **state) {
    (void)state;
    const struct str stops[] = {STR("<>")};
    struct writing w;
    begin(&w, (struct text_output_options){.stops = stops, .stop_count = 1, .include_stop = true});
    assert_true(push_text(&w, "a<>b"));
    finish(&w, FINISH_STOP, FINISH_STOP, "a<>");
}

static void test_stop_strings_are_ignored_before_min_tokens(void **state) {
    (void)state;
    const struct str stops[] = {STR("x")};
    struct writing w;
    begin(&w, (struct text_output_options){.stops = stops, .stop_count = 1, .min_tokens = 2});
    assert_false(push_text(&w, "axb"));
    assert_true(push_text(&w, "x"));
    finish(&w, FINISH_STOP, FINISH_STOP, "axb");
}

static void test_stop_tokens_are_text_before_min_tokens_and_with_include_stop(void **state) {
    (void)state;
    const int32_t stops[] = {T_THE};
    struct text_output_options options = {.stop_tokens = stops, .stop_token_count = 1};
    for (int include = 0; include < 2; include++) {
        struct writing w;
        options.min_tokens = 1;
        options.include_stop = include;
        begin(&w, options);
        push(&w, T_THE);
        push(&w, 'a');
        push(&w, T_THE);
        finish(&w, FINISH_STOP, FINISH_STOP, include ? " thea the" : " thea");
    }
}

/* Of a stop token at each place, the first included, and for each min_tokens. */
static void test_a_stop_token_is_text_exactly_up_to_min_tokens(void **state) {
    (void)state;
    const int32_t stops[] = {T_THE};
    for (uint32_t min = 0; min < 4; min++)
        for (uint32_t place = 1; place <= 5; place++) {
            struct writing w;
            char expected[64];
            begin(&w, (struct text_output_options){
                          .stop_tokens = stops, .stop_token_count = 1, .min_tokens = min});
            for (uint32_t i = 1; i < place; i++) push(&w, 'a');
            push(&w, T_THE);
            snprintf(expected, sizeof(expected), "%.*s%s", (int)place - 1, "aaaaa",
                     place <= min ? " the" : "");
            finish(&w, FINISH_STOP, FINISH_STOP, expected);
        }
}

static void test_special_tokens_are_hidden_unless_wanted(void **state) {
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        struct writing w;
        begin(&w, (struct text_output_options){.keep_special = keep});
        push(&w, T_BEGIN);
        push(&w, 'a');
        push(&w, T_END);
        finish(&w, FINISH_STOP, FINISH_STOP, keep ? "<|begin|>a<|end|>" : "a");
    }
}

static void test_an_ignored_end_token_is_hidden_and_the_text_goes_on(void **state) {
    (void)state;
    struct writing w;
    begin(&w, (struct text_output_options){.ignore_end = true});
    push(&w, 'a');
    push(&w, T_END);
    push(&w, 'b');
    finish(&w, FINISH_LENGTH, FINISH_LENGTH, "ab");
}

static bool is_call(void *ctx, int32_t token) {
    ++*(uint32_t *)ctx;
    return token == T_CALL;
}

static void test_the_caller_can_show_some_special_tokens(void **state) {
    (void)state;
    uint32_t calls = 0;
    struct writing w;
    begin(&w, (struct text_output_options){.shows_special = is_call, .ctx = &calls});
    push(&w, T_BEGIN);
    push(&w, 'a'); /* not special: the caller is not called */
    push(&w, T_CALL);
    assert_int_equal(calls, 2);
    finish(&w, FINISH_STOP, FINISH_STOP, "a<tool_call>");
}

static void test_a_buffer_that_is_too_small_is_reported(void **state) {
    (void)state;
    const struct str stops[] = {STR("zz")};
    for (uint32_t stop_count = 0; stop_count < 2; stop_count++) {
        struct writing w;
        begin(&w, (struct text_output_options){.stops = stops, .stop_count = stop_count});
        buf_deinit(&w.out);
        buf_init(&w.out, 3);
        text_output_push(&w.output, T_HELLO, &w.out);
        assert_int_equal(buf_status(&w.out), ST_FULL);
        buf_deinit(&w.out);
        text_output_deinit(&w.output);
    }
}

/* The text of all tokens up to the earliest stop string. */
static size_t cut_at(struct str text, const struct str *stops, uint32_t count) {
    for (size_t at = 0; at < text.len; at++)
        for (uint32_t i = 0; i < count; i++)
            if (str_starts(str_skip(text, at), stops[i])) return at;
    return text.len;
}

static void run_random(struct rng *rng) {
    static const int32_t pieces[] = {'H', 'e', 'l', 'o', ' ', 't', 'h', T_HELLO, T_THE, T_WORLD};
    static const struct str stops[] = {{"lloH", 4}, {" th", 3}, {"e l", 3}, {"oHello w", 8}};
    uint32_t stop_count = (uint32_t)rng_below(rng, 5), count = (uint32_t)rng_below(rng, 30);
    int32_t tokens[30];
    struct writing w;
    struct buf whole;
    bool met = false;
    buf_init(&whole, 1 << 10);
    begin(&w, (struct text_output_options){.stops = stops, .stop_count = stop_count});
    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = pieces[rng_below(rng, sizeof(pieces) / sizeof(pieces[0]))];
        if (!met) met = push(&w, tokens[i]);
    }
    assert_int_equal(tokenizer_decode(tokenizer, tokens, count, true, &whole), ST_OK);
    size_t expected = cut_at(buf_str(&whole), stops, stop_count);
    assert_int_equal(met, expected < whole.len);
    whole.len = expected;
    if (whole.ptr) whole.ptr[expected] = 0;
    finish(&w, FINISH_LENGTH, met ? FINISH_STOP : FINISH_LENGTH, buf_text(&whole));
    buf_deinit(&whole);
}

static void test_any_split_into_tokens_gives_the_same_text(void **state) {
    (void)state;
    struct rng rng = {.seed = 5};
    for (int i = 0; i < 20000; i++) run_random(&rng);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_held_back_until_a_stop_string_is_ruled_out),
        cmocka_unit_test(test_text_held_back_is_shown_at_the_end),
        cmocka_unit_test(test_half_a_character_waits_for_its_other_bytes),
        cmocka_unit_test(test_a_stop_string_that_the_last_bytes_complete_ends_the_text),
        cmocka_unit_test(test_include_stop_keeps_the_stop_string),
        cmocka_unit_test(test_stop_strings_are_ignored_before_min_tokens),
        cmocka_unit_test(test_stop_tokens_are_text_before_min_tokens_and_with_include_stop),
        cmocka_unit_test(test_a_stop_token_is_text_exactly_up_to_min_tokens),
        cmocka_unit_test(test_special_tokens_are_hidden_unless_wanted),
        cmocka_unit_test(test_an_ignored_end_token_is_hidden_and_the_text_goes_on),
        cmocka_unit_test(test_the_caller_can_show_some_special_tokens),
        cmocka_unit_test(test_a_buffer_that_is_too_small_is_reported),
        cmocka_unit_test(test_any_split_into_tokens_gives_the_same_text),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
