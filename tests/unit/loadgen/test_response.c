/* Goal:   an HTTP/1.1 response is read exactly to its end, however its bytes are cut; an invalid
 *         one is refused.
 * Method: named responses, each fed whole, byte by byte and cut in two at every place; the
 *         collected body and the final state must agree with what the case says. */
#include <setjmp.h> /* cmocka */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "loadgen/response.h"

struct received {
    struct loadgen_response response;
    struct buf body;
    enum status status;
    size_t used;
};

static enum status keep(void *ctx, struct str bytes) {
    struct received *h = ctx;
    buf_put_str(&h->body, bytes);
    return ST_OK;
}

static void begin(struct received *h) {
    loadgen_response_reset(&h->response);
    buf_init(&h->body, 1 << 20);
    h->status = ST_OK;
    h->used = 0;
}

static void feed(struct received *h, struct str piece) {
    struct err err = {0};
    size_t used = 0;
    if (h->status != ST_OK) return;
    h->status = loadgen_response_feed(&h->response, piece, &used, &err, keep, h);
    h->used += used;
    if (h->status != ST_OK) assert_true(err.text[0] != 0);
}

static void check(const struct received *h, uint32_t status, const char *body, size_t used) {
    assert_int_equal(h->status, ST_OK);
    assert_int_equal(h->response.state, RESPONSE_DONE);
    assert_int_equal(h->response.status, status);
    assert_int_equal(h->used, used);
    assert_true(str_is(buf_str(&h->body), body));
}

/* `text` holds one whole response of `used` bytes; what follows must not be taken. */
static void check_all_cuts(const char *text, uint32_t status, const char *body, size_t used) {
    struct str all = str_of(text);
    struct received h;
    for (size_t cut = 0; cut <= all.len; cut++) {
        begin(&h);
        feed(&h, str_take(all, cut));
        feed(&h, str_skip(all, cut));
        check(&h, status, body, used);
        buf_deinit(&h.body);
    }
    begin(&h);
    for (size_t i = 0; i < all.len; i++) feed(&h, str_take(str_skip(all, i), 1));
    check(&h, status, body, used);
    buf_deinit(&h.body);
}

static void test_a_body_of_known_length_ends_there(void **state) {
    (void)state;
    const char *text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP";
    check_all_cuts(text, 200, "hello", strlen(text) - 4);
}

static void test_chunks_are_joined(void **state) {
    (void)state;
    const char *text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
                       "3\r\nabc\r\n0A;x=y\r\n0123456789\r\n0\r\nx-trailer: 1\r\n\r\n";
    check_all_cuts(text, 200, "abc0123456789", strlen(text));
}

static void test_bare_newlines_are_line_ends(void **state) {
    (void)state;
    const char *text = "HTTP/1.1 404 Not Found\ncontent-length: 2\n\nno";
    check_all_cuts(text, 404, "no", strlen(text));
}

static void test_interim_responses_are_skipped(void **state) {
    (void)state;
    const char *text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    check_all_cuts(text, 204, "", strlen(text));
}

static void test_without_a_length_the_body_ends_with_the_connection(void **state) {
    (void)state;
    struct received h;
    struct err err = {0};
    begin(&h);
    feed(&h, STR("HTTP/1.0 200 OK\r\n\r\nall of it"));
    assert_int_equal(h.response.state, RESPONSE_TO_CLOSE);
    assert_false(h.response.keeps_alive);
    assert_int_equal(loadgen_response_close(&h.response, &err), ST_OK);
    assert_true(str_is(buf_str(&h.body), "all of it"));
    buf_deinit(&h.body);
}

static void test_a_connection_closed_early_is_a_failure(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "HTTP/1.1 200",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct received h;
        struct err err = {0};
        begin(&h);
        feed(&h, str_of(texts[i]));
        assert_int_equal(loadgen_response_close(&h.response, &err), ST_BAD);
        buf_deinit(&h.body);
    }
}

static void test_the_connection_is_kept_unless_the_server_says_so(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool keeps;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", true},
        {"HTTP/1.1 200 OK\r\nConnection: Close\r\ncontent-length: 0\r\n\r\n", false},
        {"HTTP/1.1 200 OK\r\nconnection: x, close\r\ncontent-length: 0\r\n\r\n", false},
        {"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", false},
        {"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct received h;
        begin(&h);
        feed(&h, str_of(cases[i].text));
        assert_int_equal(h.response.state, RESPONSE_DONE);
        assert_int_equal(h.response.keeps_alive, cases[i].keeps);
        buf_deinit(&h.body);
    }
}

static void test_an_invalid_response_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/2 200\r\n",
        "HTTP/1.1 99 x\r\n",
        "HTTP/1.1 xyz\r\n",
        "HTTP/1.1 \r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct received h;
        begin(&h);
        feed(&h, str_of(texts[i]));
        assert_int_equal(h.status, ST_BAD);
        buf_deinit(&h.body);
    }
}

static void test_a_head_has_a_maximum_length(void **state) {
    (void)state;
    struct received h;
    struct buf line;
    buf_init(&line, 1 << 20);
    for (int i = 0; i < RESPONSE_LINE_BYTES; i++) buf_put_char(&line, 'x');
    begin(&h);
    feed(&h, STR("HTTP/1.1 200 OK\r\n"));
    feed(&h, buf_str(&line));
    assert_int_equal(h.status, ST_BAD);
    buf_deinit(&h.body);
    begin(&h);
    feed(&h, STR("HTTP/1.1 200 OK\r\n"));
    for (int i = 0; i < RESPONSE_HEAD_BYTES / 8 && h.status == ST_OK; i++)
        feed(&h, STR("abcd: x\r\n"));
    assert_int_equal(h.status, ST_BAD);
    buf_deinit(&h.body);
    buf_deinit(&line);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_body_of_known_length_ends_there),
        cmocka_unit_test(test_chunks_are_joined),
        cmocka_unit_test(test_bare_newlines_are_line_ends),
        cmocka_unit_test(test_interim_responses_are_skipped),
        cmocka_unit_test(test_without_a_length_the_body_ends_with_the_connection),
        cmocka_unit_test(test_a_connection_closed_early_is_a_failure),
        cmocka_unit_test(test_the_connection_is_kept_unless_the_server_says_so),
        cmocka_unit_test(test_an_invalid_response_is_refused),
        cmocka_unit_test(test_a_head_has_a_maximum_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
