/* Goal:   server-sent events are parsed correctly, however their bytes are cut; text and usage are
 *         read from every form of chunk.
 * Method: one stream with every kind of line end, field and comment, cut at every place, against
 *         the list of its events; then single chunks of several servers. */
#include <setjmp.h> /* cmocka */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "loadgen/delta.h"
#include "loadgen/sse.h"

static enum status keep(void *ctx, struct str data) {
    buf_put_char(ctx, '<');
    buf_put_str(ctx, data);
    buf_put_char(ctx, '>');
    return ST_OK;
}

static void check_cut(struct str stream, size_t cut, const char *expected) {
    struct sse s;
    struct buf events;
    struct err err = {0};
    sse_init(&s);
    buf_init(&events, 1 << 16);
    assert_int_equal(sse_feed(&s, str_take(stream, cut), &err, keep, &events), ST_OK);
    assert_int_equal(sse_feed(&s, str_skip(stream, cut), &err, keep, &events), ST_OK);
    assert_string_equal(buf_text(&events), expected);
    buf_deinit(&events);
    sse_deinit(&s);
}

static void test_events_do_not_depend_on_how_bytes_are_cut(void **state) {
    (void)state;
    struct str stream = STR(": a comment\n\n"
                            "event: x\nid: 3\ndata: one\n\n"
                            "data:two\r\ndata: lines\r\n\r\n"
                            "data\r\r"
                            "retry: 5\n\n"
                            "database: no\n\n"
                            "data:  kept space\n\n"
                            "data: [DONE]\n\ndata: cut off\n");
    for (size_t cut = 0; cut <= stream.len; cut++)
        check_cut(stream, cut, "<one><two\nlines><>< kept space><[DONE]>");
}

static enum status refuse(void *ctx, struct str data) {
    (void)data;
    ++*(int *)ctx;
    return ST_CANCELLED;
}

static void test_feeding_ends_when_the_callback_fails(void **state) {
    (void)state;
    struct sse s;
    struct err err = {0};
    int calls = 0;
    sse_init(&s);
    assert_int_equal(sse_feed(&s, STR("data: 1\n\ndata: 2\n\n"), &err, refuse, &calls),
                     ST_CANCELLED);
    assert_int_equal(calls, 1);
    sse_deinit(&s);
}

static void test_an_event_has_a_maximum_length(void **state) {
    (void)state;
    struct sse s;
    struct err err = {0};
    struct buf events;
    char block[4096];
    enum status st = ST_OK;
    for (size_t i = 0; i < sizeof(block); i++) block[i] = 'x';
    sse_init(&s);
    buf_init(&events, 16);
    for (size_t fed = 0; fed <= SSE_EVENT_BYTES && st == ST_OK; fed += sizeof(block))
        st = sse_feed(&s, (struct str){block, sizeof(block)}, &err, keep, &events);
    assert_int_equal(st, ST_BAD);
    buf_deinit(&events);
    sse_deinit(&s);
}

static void test_chunks_say_whether_they_carry_text(void **state) {
    (void)state;
    static const struct {
        const char *chunk;
        bool has_choice, has_text;
    } cases[] = {
        {"{\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}", true, true},
        {"{\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}", true, false},
        {"{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}", true, false},
        {"{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}]}", true, false},
        {"{\"choices\":[{\"delta\":{\"content\":\" b\"}}]}", true, true},
        {"{\"choices\":[{\"delta\":{\"reasoning_content\":\"b\"}}]}", true, true},
        {"{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}", true, true},
        {"{\"choices\":[{\"message\":{\"content\":\"whole\"}}]}", true, true},
        {"{\"choices\":[],\"usage\":null}", false, false},
        {"{}", false, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct delta d;
        struct err err = {0};
        assert_int_equal(delta_read(str_of(cases[i].chunk), &d, &err), ST_OK);
        assert_int_equal(d.has_choice, cases[i].has_choice);
        assert_int_equal(d.has_text, cases[i].has_text);
        assert_false(d.has_usage);
    }
}

static void test_usage_is_the_servers_count(void **state) {
    (void)state;
    struct delta d;
    struct err err = {0};
    struct str chunk =
        STR("{\"choices\":[],\"usage\":{\"prompt_tokens\":128,\"completion_tokens\":64,"
            "\"prompt_tokens_details\":{\"cached_tokens\":16}}}");
    assert_int_equal(delta_read(chunk, &d, &err), ST_OK);
    assert_true(d.has_usage);
    assert_int_equal(d.prompt_tokens, 128);
    assert_int_equal(d.output_tokens, 64);
    assert_int_equal(d.cached_tokens, 16);
    chunk = STR("{\"usage\":{\"prompt_tokens\":-5,\"completion_tokens\":99999999999}}");
    assert_int_equal(delta_read(chunk, &d, &err), ST_OK);
    assert_int_equal(d.prompt_tokens, 0);
    assert_int_equal(d.output_tokens, UINT32_MAX);
}

static void test_an_error_has_the_message_of_the_server(void **state) {
    (void)state;
    struct delta d;
    struct err err = {0};
    assert_int_equal(delta_read(STR("{\"error\":{\"message\":\"full\"}}"), &d, &err),
                     ST_UNAVAILABLE);
    assert_string_equal(err.text, "full");
    assert_int_equal(delta_read(STR("{\"error\":\"plain\"}"), &d, &err), ST_UNAVAILABLE);
    assert_string_equal(err.text, "plain");
    assert_int_equal(delta_read(STR("[1]"), &d, &err), ST_BAD);
    assert_int_equal(delta_read(STR("{\"choices\""), &d, &err), ST_BAD);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_do_not_depend_on_how_bytes_are_cut),
        cmocka_unit_test(test_feeding_ends_when_the_callback_fails),
        cmocka_unit_test(test_an_event_has_a_maximum_length),
        cmocka_unit_test(test_chunks_say_whether_they_carry_text),
        cmocka_unit_test(test_usage_is_the_servers_count),
        cmocka_unit_test(test_an_error_has_the_message_of_the_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
