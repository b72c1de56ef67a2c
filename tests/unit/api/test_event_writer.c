/* Goal:   tokens become the same events however they arrive, never half a character, nothing at
 *         or after a stop string, and every token is carried by one event.
 * Method: chosen tokens through an event_writer and a log; then random tokens in random cuts,
 *         compared with the same tokens one by one and with the tokenizer's own decoding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/api/tokenizer_fixture.h"
#include "unit/json_lib.h"

static struct lib_answer *begin(void) {
    struct lib_answer *l = mem_zalloc(sizeof(*l));
    api_request_init(&l->request, NULL);
    return l;
}

static void done(struct lib_answer *l) {
    lib_end(l);
    mem_free(l);
}

/* The log as text: T0+2(xy) is a text of tokens 0 and 1; H a thought, C a call, A arguments,
 * F the end. */
static void put_log(const struct event_log *log, struct buf *out) {
    for (uint32_t i = 0; i < event_log_count(log); i++) {
        struct api_event ev = event_log_at(log, i);
        buf_printf(out, "%c%u+%u(%.*s)", "THCAF"[ev.kind], ev.first_token, ev.token_count,
                   STR_ARG(ev.text));
        if (ev.kind == EVENT_FINISH) buf_printf(out, "%s/%u", finish_name(ev.finish), ev.tool);
    }
}

static void expect_log(const struct lib_answer *l, const char *wanted) {
    struct buf out;
    buf_init(&out, 1 << 16);
    put_log(l->answer.log, &out);
    assert_string_equal(buf_text(&out), wanted);
    buf_deinit(&out);
}

static void test_a_token_is_an_event_and_half_a_character_waits(void **state) {
    (void)state;
    struct lib_answer *l = begin();
    const int32_t tokens[] = {T_HELLO, 0xe2, 0x82, 0xac, T_THE, T_END};
    lib_begin(l, tokenizer, NULL, 1);
    assert_false(lib_push(l, 0, tokens, 6, 6));
    lib_finish(l, 0, FINISH_STOP);
    expect_log(l, "T0+1(Hello)T1+3(\xe2\x82\xac)T4+1( the)F5+1()stop/0");
    done(l);
}

static void test_a_character_cut_short_at_the_end_becomes_u_fffd(void **state) {
    (void)state;
    struct lib_answer *l = begin();
    const int32_t tokens[] = {'a', 0xe2, 0x82};
    lib_begin(l, tokenizer, NULL, 1);
    lib_push(l, 0, tokens, 3, 1);
    lib_finish(l, 0, FINISH_LENGTH);
    expect_log(l, "T0+1(a)T1+2(\xef\xbf\xbd)F3+0()length/0");
    done(l);
}

static void test_a_stop_string_ends_the_text_before_it(void **state) {
    (void)state;
    struct lib_answer *l = begin();
    const int32_t tokens[] = {'a', 'b', '<', '<', '>', 'z'};
    l->request.stops[0] = STR("<>");
    l->request.stops[1] = STR("zz");
    l->request.stop_count = 2;
    lib_begin(l, tokenizer, NULL, 1);
    assert_true(lib_push(l, 0, tokens, 6, 6));
    lib_finish(l, 0, FINISH_STOP);
    expect_log(l, "T0+1(a)T1+1(b)T2+2(<)F4+1(<>)stop/0");
    done(l);
}

static void test_include_stop_shows_the_stop_string(void **state) {
    (void)state;
    struct lib_answer *l = begin();
    const int32_t tokens[] = {'a', '<', '>'};
    l->request.stops[0] = STR("<>");
    l->request.stop_count = 1;
    l->request.include_stop = true;
    lib_begin(l, tokenizer, NULL, 1);
    assert_true(lib_push(l, 0, tokens, 3, 1));
    lib_finish(l, 0, FINISH_STOP);
    expect_log(l, "T0+1(a)T1+2(<>)F3+0(<>)stop/0");
    done(l);
}

static void test_text_held_back_for_a_stop_string_is_written_at_the_end(void **state) {
    (void)state;
    struct lib_answer *l = begin();
    const int32_t tokens[] = {'a', '<'};
    l->request.stops[0] = STR("<>");
    l->request.stop_count = 1;
    lib_begin(l, tokenizer, NULL, 1);
    assert_false(lib_push(l, 0, tokens, 2, 1));
    lib_finish(l, 0, FINISH_LENGTH);
    expect_log(l, "T0+1(a)T1+1(<)F2+0()length/0");
    done(l);
}

static void test_a_stop_string_met_at_the_end_is_the_finish_reason(void **state) {
    (void)state;
    struct lib_answer *l = begin();
    const int32_t tokens[] = {'a', 0xe2};
    l->request.stops[0] = STR("\xef\xbf\xbd");
    l->request.stop_count = 1;
    lib_begin(l, tokenizer, NULL, 1);
    assert_false(lib_push(l, 0, tokens, 2, 1));
    lib_finish(l, 0, FINISH_LENGTH);
    expect_log(l, "T0+1(a)F1+1(\xef\xbf\xbd)stop/0");
    done(l);
}

static void test_stop_strings_wait_for_min_tokens(void **state) {
    (void)state;
    struct lib_answer *l = begin();
    const int32_t tokens[] = {'a', 'x', 'b', 'x', 'c'};
    l->request.stops[0] = STR("x");
    l->request.stop_count = 1;
    l->request.min_tokens = 2;
    lib_begin(l, tokenizer, NULL, 1);
    assert_true(lib_push(l, 0, tokens, 5, 1));
    lib_finish(l, 0, FINISH_STOP);
    expect_log(l, "T0+1(a)T1+1(x)T2+1(b)F3+1(x)stop/0");
    done(l);
}

static void test_stop_tokens_and_special_tokens_are_not_text(void **state) {
    (void)state;
    const int32_t tokens[] = {T_BEGIN, 'a', T_THE};
    for (int shown = 0; shown < 2; shown++) {
        struct lib_answer *l = begin();
        l->request.stop_tokens[0] = T_THE;
        l->request.stop_token_count = 1;
        l->request.keep_special = l->request.include_stop = shown;
        lib_begin(l, tokenizer, NULL, 1);
        lib_push(l, 0, tokens, 3, 1);
        lib_finish(l, 0, FINISH_STOP);
        expect_log(l,
                   shown ? "T0+1(<|begin|>)T1+1(a)T2+1( the)F3+0()stop/0" : "T0+2(a)F2+1()stop/0");
        done(l);
    }
}

static void test_tokens_without_text_get_an_event_only_if_tokens_are_shown(void **state) {
    (void)state;
    struct lib_answer *l = begin();
    const int32_t tokens[] = {'a', T_END};
    l->request.return_token_ids = true;
    lib_begin(l, tokenizer, NULL, 1);
    lib_push(l, 0, tokens, 2, 1);
    lib_finish(l, 0, FINISH_STOP);
    expect_log(l, "T0+1(a)T1+1()F2+0()stop/0");
    done(l);
}

#define TOOLS json_of("[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]")
#define CALL "{\"name\":\"f\",\"arguments\":{}}</tool_call>"

static void say_calls(struct lib_answer *l, uint32_t count) {
    const int32_t mark = T_CALL;
    bool met = false;
    lib_push(l, 0, &(int32_t){'a'}, 1, 1);
    for (uint32_t i = 0; i < count && !met; i++) {
        struct str text = STR(CALL);
        lib_push(l, 0, &mark, 1, 1);
        for (size_t k = 0; k < text.len && !met; k++)
            met = lib_push(l, 0, &(int32_t){text.ptr[k]}, 1, 1);
    }
    lib_finish(l, 0, FINISH_STOP);
}

static void test_calls_become_events_and_are_not_text(void **state) {
    (void)state;
    struct lib_answer *l = begin();
    l->request.tools = TOOLS;
    l->request.tool_choice = TOOLS_AUTO;
    lib_begin(l, tokenizer, tool_form_find("hermes"), 1);
    say_calls(l, 2);
    uint32_t calls = 0, tokens = 0;
    for (uint32_t i = 0; i < event_log_count(l->answer.log); i++) {
        struct api_event ev = event_log_at(l->answer.log, i);
        calls += ev.kind == EVENT_TOOL;
        assert_int_equal(ev.first_token, tokens);
        tokens += ev.token_count;
        if (ev.kind == EVENT_TEXT) assert_true(str_is(ev.text, "a"));
    }
    assert_int_equal(calls, 2);
    assert_int_equal(tokens, l->choices[0].answer_tokens);
    assert_true(event_writer_calls(l->writers[0]) > 0);
    done(l);
}

static void test_the_choice_stops_after_one_call_if_only_one_is_allowed(void **state) {
    (void)state;
    struct lib_answer *l = begin();
    l->request.tools = TOOLS;
    l->request.tool_choice = TOOLS_AUTO;
    l->request.one_tool_call = true;
    lib_begin(l, tokenizer, tool_form_find("hermes"), 1);
    say_calls(l, 3);
    const struct api_event last = answer_last_event(&l->answer, 0);
    assert_int_equal(last.tool, 1);
    assert_int_equal(last.finish, FINISH_STOP);
    assert_true(l->choices[0].answer_tokens < 3 * strlen(CALL)); /* it was ended early */
    done(l);
}

static void test_without_tools_in_the_request_calls_are_text(void **state) {
    (void)state;
    struct lib_answer *l = begin();
    lib_begin(l, tokenizer, tool_form_find("hermes"), 1);
    lib_say(l, 0, STR("<tool_call>{}"), FINISH_STOP);
    assert_int_equal(event_log_at(l->answer.log, 0).kind, EVENT_TEXT);
    assert_int_equal(event_log_at(l->answer.log, 0).text.len, 1);
    done(l);
}

/* --- any cut ---------------------------------------------------------------------------- */

static uint32_t rng_next(uint32_t *rng) { return (*rng = *rng * 1664525u + 1013904223u) >> 8; }

static uint32_t draw_tokens(uint32_t *rng, int32_t *tokens) {
    static const char *const texts[] = {"<tool_call>", CALL, "stop",       "\xe2\x82\xac",
                                        "\xf0\x9f",    "st", "{\"name\":", "\xff"};
    uint32_t count = 0, parts = rng_next(rng) % 12;
    for (uint32_t i = 0; i < parts; i++) {
        uint32_t what = rng_next(rng) % 16;
        if (what >= 8) tokens[count++] = (int32_t)(rng_next(rng) % T_VOCAB);
        for (const char *c = what < 8 ? texts[what] : ""; *c; c++) tokens[count++] = (uint8_t)*c;
    }
    return count;
}

static void write_cut(const int32_t *tokens, uint32_t count, uint32_t step, uint32_t mode,
                      struct buf *out) {
    struct lib_answer *l = begin();
    l->request.ignore_end = true;
    l->request.logprobs = mode & 1;
    if (mode & 2) {
        l->request.stops[0] = STR("stop");
        l->request.stop_count = 1;
    }
    if (mode & 4) l->request.tools = TOOLS;
    l->request.tool_choice = TOOLS_AUTO;
    lib_begin(l, tokenizer, tool_form_find("hermes"), 1);
    lib_push(l, 0, tokens, count, step);
    lib_finish(l, 0, FINISH_LENGTH);
    put_log(l->answer.log, out);
    done(l);
}

static void test_any_cut_of_the_tokens_gives_the_same_events(void **state) {
    (void)state;
    uint32_t rng = 7;
    struct buf one, other;
    int32_t tokens[1024];
    buf_init(&one, 1 << 20);
    buf_init(&other, 1 << 20);
    for (uint32_t round = 0; round < 3000; round++) {
        uint32_t count = draw_tokens(&rng, tokens);
        buf_clear(&one);
        buf_clear(&other);
        write_cut(tokens, count, 1, round % 8, &one);
        write_cut(tokens, count, 1 + rng_next(&rng) % 40, round % 8, &other);
        if (strcmp(buf_text(&one), buf_text(&other)) != 0)
            fail_msg("round %u: %s\n%s", round, buf_text(&one), buf_text(&other));
    }
    buf_deinit(&one);
    buf_deinit(&other);
}

static void test_texts_joined_are_what_the_tokenizer_decodes(void **state) {
    (void)state;
    uint32_t rng = 99;
    int32_t tokens[1024];
    for (uint32_t round = 0; round < 1000; round++) {
        struct lib_answer *l = begin();
        struct buf joined, whole;
        buf_init(&joined, 1 << 20);
        buf_init(&whole, 1 << 20);
        uint32_t count = draw_tokens(&rng, tokens), reported = 0;
        l->request.ignore_end = true;
        lib_begin(l, tokenizer, NULL, 1);
        lib_push(l, 0, tokens, count, 3);
        lib_finish(l, 0, FINISH_LENGTH);
        for (uint32_t i = 0; i < event_log_count(l->answer.log); i++) {
            struct api_event ev = event_log_at(l->answer.log, i);
            assert_int_equal(ev.first_token, reported);
            assert_true(utf8_is_valid(ev.text));
            reported += ev.token_count;
            buf_put_str(&joined, ev.text);
        }
        assert_int_equal(reported, count);
        assert_int_equal(tokenizer_decode(tokenizer, tokens, count, true, &whole), ST_OK);
        assert_string_equal(buf_text(&joined), buf_text(&whole));
        buf_deinit(&joined);
        buf_deinit(&whole);
        done(l);
    }
}

static void test_a_full_log_is_reported(void **state) {
    (void)state;
    struct lib_answer *l = begin();
    struct event_log *small;
    bool met;
    lib_begin(l, tokenizer, NULL, 1);
    assert_int_equal(event_log_create(&small, 100), ST_OK);
    enum status st = ST_OK;
    for (int i = 0; i < 10 && st == ST_OK; i++)
        st = event_writer_push(l->writers[0], &(int32_t){T_HELLO}, 1, small, &met);
    assert_int_equal(st, ST_FULL);
    assert_true(event_log_bytes(small) <= 100);
    enum finish_reason finish = FINISH_STOP;
    assert_int_equal(event_writer_finish(l->writers[0], &finish, small), ST_FULL);
    event_log_destroy(small);
    done(l);
}

/* Texts of any length stay whole, and a log takes as many bytes as it may and no byte more. */
static void test_a_log_keeps_long_texts_up_to_its_last_byte(void **state) {
    (void)state;
    enum { LONG = 70000 };
    static char text[LONG];
    memset(text, 'x', sizeof(text));
    struct event_log *log;
    struct api_event ev = {.kind = EVENT_TEXT, .text = {text, LONG}};
    assert_int_equal(event_log_create(&log, 1 << 20), ST_OK);
    assert_int_equal(event_log_add(log, &ev), ST_OK);
    assert_int_equal(event_log_add(log, &ev), ST_OK);
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(event_log_at(log, i).text.len, LONG);
    const uint64_t bytes = event_log_bytes(log);
    assert_true(bytes > 2 * (uint64_t)LONG);
    event_log_destroy(log);
    for (uint64_t more = 0; more < 2; more++) {
        assert_int_equal(event_log_create(&log, bytes - 1 + more), ST_OK);
        assert_int_equal(event_log_add(log, &ev), ST_OK);
        assert_int_equal(event_log_add(log, &ev), more ? ST_OK : ST_FULL);
        assert_int_equal(event_log_count(log), 1 + more);
        event_log_destroy(log);
    }
}

static void test_text_is_cut_between_characters(void **state) {
    (void)state;
    static const struct {
        size_t bytes, kept;
    } cases[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 4}, {5, 5}, {99, 5}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(event_cut_text(STR("a\xe2\x82\xac"
                                            "b"),
                                        cases[i].bytes)
                             .len,
                         cases[i].kept);
    assert_int_equal(event_cut_text(STR("\xe2\x82\xac"), 1).len, 3);
    assert_int_equal(event_cut_text(STR(""), 1).len, 0);
}

static void test_a_log_links_the_events_of_each_choice(void **state) {
    (void)state;
    static const uint32_t choices[] = {2, 0, 2, 2, 0, 5};
    struct event_log *log;
    assert_int_equal(event_log_create(&log, 1 << 16), ST_OK);
    assert_int_equal(event_log_first(log, 0), EVENT_NO);
    for (uint32_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++)
        assert_int_equal(event_log_add(log, &(struct api_event){.choice = choices[i]}), ST_OK);
    for (uint32_t choice = 0; choice < 8; choice++) {
        uint32_t at = event_log_first(log, choice), last = EVENT_NO;
        for (uint32_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
            if (choices[i] != choice) continue;
            assert_int_equal(at, i);
            last = i;
            at = event_log_after(log, at);
        }
        assert_int_equal(at, EVENT_NO);
        assert_int_equal(event_log_last(log, choice), last);
    }
    event_log_destroy(log);
}

/* --- thoughts ----------------------------------------------------------------------------- */

static struct lib_answer *begin_thinking(void) {
    struct lib_answer *l = begin();
    l->request.is_chat = true;
    return l;
}

static void say_thinking(struct lib_answer *l, const char *text) {
    lib_begin_with(l, tokenizer,
                   (struct lib_forms){tool_form_find("hermes"), think_form_find("think")}, 1);
    lib_say(l, 0, str_of(text), FINISH_STOP);
}

static void test_thoughts_are_events_of_their_own_and_their_tokens_are_counted(void **state) {
    (void)state;
    struct lib_answer *l = begin_thinking();
    say_thinking(l, "<think>\na b</think>\n\nc");
    expect_log(l, "H0+9(a)H9+2( b)T11+11(c)F22+0()stop/0");
    assert_int_equal(event_writer_thought_tokens(l->writers[0]), 19);
    done(l);
}

static void test_if_tokens_are_shown_the_closing_mark_is_no_part_of_the_text(void **state) {
    (void)state;
    struct lib_answer *l = begin_thinking();
    l->request.return_token_ids = true;
    say_thinking(l, "<think>a</think>\nc");
    expect_log(l, "H0+8(a)H8+8()T16+2(c)F18+0()stop/0");
    done(l);
}

static void test_hidden_thoughts_are_counted_and_leave_their_tokens(void **state) {
    (void)state;
    for (int shown = 0; shown < 2; shown++) {
        struct lib_answer *l = begin_thinking();
        l->request.thinking.is_hidden = true;
        l->request.return_token_ids = shown;
        say_thinking(l, "<think>ab</think>c");
        expect_log(l, shown ? "T0+8()T8+1()T9+8()T17+1(c)F18+0()stop/0" : "T0+18(c)F18+0()stop/0");
        assert_int_equal(event_writer_thought_tokens(l->writers[0]), 17);
        done(l);
    }
}

static void test_thoughts_stay_in_the_text_if_the_request_or_the_prompt_says_so(void **state) {
    (void)state;
    for (int is_chat = 0; is_chat < 2; is_chat++) {
        struct lib_answer *l = begin_thinking();
        l->request.is_chat = is_chat;
        l->request.thinking.in_text = is_chat;
        say_thinking(l, "<think>a</think>c");
        for (uint32_t i = 0; i < event_log_count(l->answer.log); i++)
            assert_int_not_equal(event_log_at(l->answer.log, i).kind, EVENT_THOUGHT);
        assert_int_equal(event_log_count(l->answer.log), strlen("<think>a</think>c") + 1);
        assert_int_equal(event_writer_thought_tokens(l->writers[0]), 0);
        done(l);
    }
}

static void test_a_thought_that_the_prompt_has_opened_begins_with_the_answer(void **state) {
    (void)state;
    struct lib_answer *l = begin_thinking();
    lib_begin_with(l, tokenizer, (struct lib_forms){NULL, think_form_find("think")}, 1);
    event_writer_set_in_thought(l->writers[0]);
    lib_say(l, 0, STR("\na"), FINISH_LENGTH);
    expect_log(l, "H0+2(a)F2+0()length/0");
    assert_int_equal(event_writer_thought_tokens(l->writers[0]), 2);
    done(l);
}

static void test_calls_are_found_behind_thoughts_and_not_in_them(void **state) {
    (void)state;
    struct lib_answer *l = begin_thinking();
    l->request.tools = TOOLS;
    l->request.tool_choice = TOOLS_AUTO;
    say_thinking(l, "<think><tool_call>" CALL "</think>\n<tool_call>" CALL);
    struct buf thought;
    buf_init(&thought, 1 << 10);
    for (uint32_t i = 0; i < event_log_count(l->answer.log); i++) {
        struct api_event ev = event_log_at(l->answer.log, i);
        assert_int_not_equal(ev.kind, EVENT_TEXT);
        if (ev.kind == EVENT_THOUGHT) buf_put_str(&thought, ev.text);
    }
    assert_string_equal(buf_text(&thought), "<tool_call>" CALL);
    assert_int_equal(event_writer_calls(l->writers[0]), 1);
    buf_deinit(&thought);
    done(l);
}

/* Thoughts that stay in the text are no place for calls either; every byte of them is text. */
static void test_calls_in_thoughts_that_stay_in_the_text_are_text(void **state) {
    (void)state;
    static const struct {
        bool is_open;
        const char *answer, *text;
        uint32_t calls;
    } rows[] = {
        {false, "<think>\n<tool_call>" CALL "</think>\n\n<tool_call>" CALL,
         "<think>\n<tool_call>" CALL "</think>\n\n", 1},
        {true, "\n<tool_call>" CALL "</think>\n<tool_call>" CALL, "\n<tool_call>" CALL "</think>\n",
         1},
        {false, "<thin<tool_call>" CALL, "<thin", 1},
        {false, "<tool_call>" CALL, "", 1},
        {false, " <think", " <think", 0},
        {true, " <tool_call>" CALL, " <tool_call>" CALL, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct lib_answer *l = begin_thinking();
        struct buf text;
        buf_init(&text, 1 << 12);
        l->request.tools = TOOLS;
        l->request.tool_choice = TOOLS_AUTO;
        l->request.thinking.in_text = true;
        lib_begin_with(l, tokenizer,
                       (struct lib_forms){tool_form_find("hermes"), think_form_find("think")}, 1);
        if (rows[i].is_open) event_writer_set_in_thought(l->writers[0]);
        lib_say(l, 0, str_of(rows[i].answer), FINISH_STOP);
        for (uint32_t k = 0; k < event_log_count(l->answer.log); k++) {
            struct api_event ev = event_log_at(l->answer.log, k);
            if (ev.kind == EVENT_TEXT) buf_put_str(&text, ev.text);
        }
        assert_string_equal(buf_text(&text), rows[i].text);
        assert_int_equal(event_writer_calls(l->writers[0]), rows[i].calls);
        buf_deinit(&text);
        done(l);
    }
}

/* The marks of some models are special tokens, which are usually left out of the text. */
static void test_marks_that_are_special_tokens_are_seen(void **state) {
    (void)state;
    static const struct think_form form = {
        .name = "special", .open = "<tool_call>", .close = "<|begin|>"};
    const int32_t tokens[] = {T_CALL, 'a', T_BEGIN, 'b', T_END};
    for (int in_text = 0; in_text < 2; in_text++) {
        struct lib_answer *l = begin_thinking();
        l->request.thinking.in_text = in_text;
        lib_begin_with(l, tokenizer, (struct lib_forms){NULL, &form}, 1);
        lib_push(l, 0, tokens, 5, 5);
        lib_finish(l, 0, FINISH_STOP);
        expect_log(l, in_text ? "T0+1(<tool_call>)T1+1(a)T2+1(<|begin|>)T3+1(b)F4+1()stop/0"
                              : "H0+2(a)T2+2(b)F4+1()stop/0");
        assert_int_equal(event_writer_thought_tokens(l->writers[0]), in_text ? 0 : 3);
        done(l);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_token_is_an_event_and_half_a_character_waits),
        cmocka_unit_test(test_a_character_cut_short_at_the_end_becomes_u_fffd),
        cmocka_unit_test(test_a_stop_string_ends_the_text_before_it),
        cmocka_unit_test(test_include_stop_shows_the_stop_string),
        cmocka_unit_test(test_text_held_back_for_a_stop_string_is_written_at_the_end),
        cmocka_unit_test(test_a_stop_string_met_at_the_end_is_the_finish_reason),
        cmocka_unit_test(test_stop_strings_wait_for_min_tokens),
        cmocka_unit_test(test_stop_tokens_and_special_tokens_are_not_text),
        cmocka_unit_test(test_tokens_without_text_get_an_event_only_if_tokens_are_shown),
        cmocka_unit_test(test_calls_become_events_and_are_not_text),
        cmocka_unit_test(test_the_choice_stops_after_one_call_if_only_one_is_allowed),
        cmocka_unit_test(test_without_tools_in_the_request_calls_are_text),
        cmocka_unit_test(test_any_cut_of_the_tokens_gives_the_same_events),
        cmocka_unit_test(test_texts_joined_are_what_the_tokenizer_decodes),
        cmocka_unit_test(test_a_full_log_is_reported),
        cmocka_unit_test(test_a_log_keeps_long_texts_up_to_its_last_byte),
        cmocka_unit_test(test_text_is_cut_between_characters),
        cmocka_unit_test(test_a_log_links_the_events_of_each_choice),
        cmocka_unit_test(test_thoughts_are_events_of_their_own_and_their_tokens_are_counted),
        cmocka_unit_test(test_if_tokens_are_shown_the_closing_mark_is_no_part_of_the_text),
        cmocka_unit_test(test_hidden_thoughts_are_counted_and_leave_their_tokens),
        cmocka_unit_test(test_thoughts_stay_in_the_text_if_the_request_or_the_prompt_says_so),
        cmocka_unit_test(test_a_thought_that_the_prompt_has_opened_begins_with_the_answer),
        cmocka_unit_test(test_calls_are_found_behind_thoughts_and_not_in_them),
        cmocka_unit_test(test_calls_in_thoughts_that_stay_in_the_text_are_text),
        cmocka_unit_test(test_marks_that_are_special_tokens_are_seen),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
