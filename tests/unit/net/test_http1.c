/* Goal:   HTTP/1.1 requests have one interpretation or are refused: every request of the table gets
 *         the response given in its row, however its bytes are split into pieces.
 * Method: a connection without sockets (fake.h); each case is sent in one piece, byte by byte, and
 *         split in two at every position. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "unit/net/fake.h"

/* `status`: of the last response. `kept`: the connection is still open after it. `text`: what the
 * responses contain, or NULL. */
struct example {
    const char *name, *bytes;
    size_t len;
    uint32_t status;
    bool is_kept;
    const char *text;
};
#define CASE(name, bytes, status, kept, text)                                                      \
    { name, bytes, sizeof(bytes) - 1, status, kept, text }
#define OK true
#define ENDS false
#define HOST "Host: a\r\n"

static const struct example good[] = {
    CASE("get", "GET /echo HTTP/1.1\r\n" HOST "\r\n", 200, OK, "GET /echo ?  @ a v11 1: "),
    CASE("query", "GET /echo?a=1?b HTTP/1.1\r\n" HOST "\r\n", 200, OK, "/echo ? a=1?b @"),
    CASE("post", "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello", 200, OK,
         ": hello"),
    CASE("empty body", "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", 200, OK, "2: "),
    CASE("chunked",
         "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
         "5\r\nhello\r\n6;x=\"y\"\r\n world\r\n0\r\n\r\n",
         200, OK, ": hello world"),
    CASE("chunked, upper case",
         "POST /echo HTTP/1.1\r\n" HOST
         "TRANSFER-ENCODING: Chunked\r\n\r\n0A\r\n0123456789\r\n0\r\n\r\n",
         200, OK, ": 0123456789"),
    CASE("trailers",
         "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
         "1\r\nx\r\n0\r\nContent-Length: 9\r\n\r\n",
         200, OK, "2: x"),
    CASE("pipelined",
         "GET /echo?1 HTTP/1.1\r\n" HOST "\r\nPOST /echo?2 HTTP/1.1\r\n" HOST
         "Content-Length: 2\r\n\r\nabGET /echo?3 HTTP/1.1\r\n" HOST "\r\n",
         200, OK, "/echo ? 3"),
    CASE("one empty line before", "\r\nGET /echo HTTP/1.1\r\n" HOST "\r\n", 200, OK, "GET /echo"),
    CASE("empty value", "GET /echo HTTP/1.1\r\n" HOST "X:\r\nY: \t \r\n\r\n", 200, OK, "v11 3: "),
    CASE("no space", "GET /echo HTTP/1.1\r\nHost:a\r\n\r\n", 200, OK, "@ a "),
    CASE("port", "GET /echo HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 200, OK, "@ [::1]:80 "),
    CASE("port of nothing", "GET /echo HTTP/1.1\r\nHost: a.b:\r\n\r\n", 200, OK, "@ a.b: "),
    CASE("absolute", "GET http://a/echo?q HTTP/1.1\r\n" HOST "\r\n", 200, OK, "/echo ? q @ a"),
    CASE("absolute, 1.0", "GET http://a/echo HTTP/1.0\r\n\r\n", 200, ENDS, "/echo ?  @ a v10"),
    CASE("absolute, bare", "GET http://a HTTP/1.1\r\n" HOST "\r\n", 200, OK, "GET / ?"),
    CASE("asterisk", "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", 200, OK, "OPTIONS * ?"),
    CASE("other method", "PROPFIND /echo HTTP/1.1\r\n" HOST "\r\n", 200, OK, "OTHER /echo"),
    CASE("close", "GET /echo HTTP/1.1\r\n" HOST "Connection: x, Close\r\n\r\n", 200, ENDS,
         "connection: close\r\n"),
    CASE("nothing behind a close",
         "GET /echo HTTP/1.1\r\n" HOST "Connection: close\r\n\r\nGET /second HTTP/1.1\r\n" HOST
         "\r\n",
         200, ENDS, "GET /echo"),
    CASE("1.0", "GET /echo HTTP/1.0\r\n\r\n", 200, ENDS, "v10 0: "),
    CASE("1.0, kept", "GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, OK,
         "connection: keep-alive\r\n"),
    CASE("stream", "GET /stream HTTP/1.1\r\n" HOST "\r\n", 200, OK,
         "\r\n\r\n8\r\none,two,\r\n5\r\nthree\r\n0\r\n\r\n"),
    CASE("stream, 1.0", "GET /stream HTTP/1.0\r\n\r\n", 200, ENDS, "\r\n\r\none,two,three"),
    CASE("stream, head", "HEAD /stream HTTP/1.1\r\n" HOST "\r\n", 200, OK, "event-stream"),
    CASE("upgrade to h2c is ignored",
         "GET /echo HTTP/1.1\r\n" HOST "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
         "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n",
         200, OK, "GET /echo"),
    CASE("early refusal, short rest",
         "POST /early HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabcGET /echo HTTP/1.1\r\n" HOST
         "\r\n",
         200, OK, "GET /echo"),
    CASE("early refusal, long rest",
         "POST /early HTTP/1.1\r\n" HOST "Content-Length: 300000\r\n\r\nabc", 401, ENDS,
         "close\r\n"),
    CASE("early refusal, chunks",
         "POST /early HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello", 401, ENDS,
         "close\r\n"),
    CASE("early refusal of an expectation",
         "POST /early HTTP/1.1\r\n" HOST "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n", 401,
         ENDS, "close\r\n"),
};

#define LENGTH "Content-Length: 3\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n"
#define POST "POST /echo HTTP/1.1\r\n" HOST
#define NEXT "GET /second HTTP/1.1\r\n" HOST "\r\n"

static const struct example bad[] = {
    CASE("length and chunked", POST LENGTH CHUNKED "\r\n0\r\n\r\n" NEXT, 400, ENDS, NULL),
    CASE("chunked and length", POST CHUNKED LENGTH "\r\n0\r\n\r\n" NEXT, 400, ENDS, NULL),
    CASE("two lengths", POST LENGTH "Content-Length: 4\r\n\r\nabcd" NEXT, 400, ENDS, NULL),
    CASE("the same length twice", POST LENGTH LENGTH "\r\nabc" NEXT, 400, ENDS, NULL),
    CASE("list of lengths", POST "Content-Length: 3, 3\r\n\r\nabc" NEXT, 400, ENDS, NULL),
    CASE("length with a sign", POST "Content-Length: +3\r\n\r\nabc" NEXT, 400, ENDS, NULL),
    CASE("negative length", POST "Content-Length: -3\r\n\r\nabc" NEXT, 400, ENDS, NULL),
    CASE("hexadecimal length", POST "Content-Length: 0x3\r\n\r\nabc" NEXT, 400, ENDS, NULL),
    CASE("length with a blank", POST "Content-Length: 3 0\r\n\r\nabc" NEXT, 400, ENDS, NULL),
    CASE("empty length", POST "Content-Length:\r\n\r\nabc" NEXT, 400, ENDS, NULL),
    CASE("length that wraps", POST "Content-Length: 18446744073709551617\r\n\r\na", 400, ENDS,
         NULL),
    CASE("length over 63 bits", POST "Content-Length: 9223372036854775808\r\n\r\na", 400, ENDS,
         NULL),
    CASE("gzip, chunked", POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, ENDS,
         NULL),
    CASE("chunked, gzip", POST "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400, ENDS,
         NULL),
    CASE("chunked twice", POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400, ENDS,
         NULL),
    CASE("two codings", POST CHUNKED CHUNKED "\r\n0\r\n\r\n" NEXT, 400, ENDS, NULL),
    CASE("identity", POST "Transfer-Encoding: identity\r\n\r\n" NEXT, 400, ENDS, NULL),
    CASE("xchunked", POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400, ENDS, NULL),
    CASE("chunked;q", POST "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", 400, ENDS, NULL),
    CASE("quoted", POST "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 400, ENDS, NULL),
    CASE("vertical tab", POST "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n", 400, ENDS, NULL),
    CASE("empty coding", POST "Transfer-Encoding:\r\n\r\n0\r\n\r\n", 400, ENDS, NULL),
    CASE("coding in 1.0", "POST / HTTP/1.0\r\n" CHUNKED "\r\n0\r\n\r\n", 400, ENDS, NULL),
    CASE("blank before the colon", POST "Content-Length : 3\r\n\r\nabc" NEXT, 400, ENDS, NULL),
    CASE("tab before the colon", POST "Transfer-Encoding\t: chunked\r\n\r\n", 400, ENDS, NULL),
    CASE("folded", POST "X: a\r\n b\r\n\r\n", 400, ENDS, NULL),
    CASE("folded by a tab", POST "Transfer-Encoding:\r\n\tchunked\r\n\r\n", 400, ENDS, NULL),
    CASE("folded first header", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400, ENDS, NULL),
    CASE("line feeds alone",
         "GET / HTTP/1.1\n"
         "Host: a\n\n",
         400, ENDS, NULL),
    CASE("one line feed alone", POST "X: y\nContent-Length: 3\r\n\r\nabc", 400, ENDS, NULL),
    CASE("one carriage return alone", POST "X: y\rContent-Length: 3\r\n\r\nabc", 400, ENDS, NULL),
    CASE("carriage return twice", POST "X: y\r\r\n\r\n", 400, ENDS, NULL),
    CASE("carriage return in the target", "GET /\rX HTTP/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("NUL in a value", POST "X: a\0b\r\n\r\n", 400, ENDS, NULL),
    CASE("NUL in a name", POST "X\0: ab\r\n\r\n", 400, ENDS, NULL),
    CASE("NUL in the target", "GET /\0 HTTP/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("control in a value", POST "X: a\x01\r\n\r\n", 400, ENDS, NULL),
    CASE("delete in a value", POST "X: a\x7f\r\n\r\n", 400, ENDS, NULL),
    CASE("bracket in a name", POST "X[]: a\r\n\r\n", 400, ENDS, NULL),
    CASE("high byte in a name", POST "X\xc3\xa4: a\r\n\r\n", 400, ENDS, NULL),
    CASE("no name", POST ": a\r\n\r\n", 400, ENDS, NULL),
    CASE("no colon", POST "nonsense\r\n\r\n", 400, ENDS, NULL),
    CASE("no host", "GET / HTTP/1.1\r\n\r\n", 400, ENDS, NULL),
    CASE("no host but an absolute target", "GET http://a/ HTTP/1.1\r\n\r\n", 400, ENDS, NULL),
    CASE("two hosts", "GET / HTTP/1.1\r\n" HOST "Host: b\r\n\r\n", 400, ENDS, NULL),
    CASE("the same host twice", "GET / HTTP/1.1\r\n" HOST HOST "\r\n", 400, ENDS, NULL),
    CASE("two hosts in 1.0", "GET / HTTP/1.0\r\n" HOST "Host: b\r\n\r\n", 400, ENDS, NULL),
    CASE("empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400, ENDS, NULL),
    CASE("host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, ENDS, NULL),
    CASE("host with a user", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400, ENDS, NULL),
    CASE("host with a word as port", "GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", 400, ENDS, NULL),
    CASE("host with two ports", "GET / HTTP/1.1\r\nHost: a:80:90\r\n\r\n", 400, ENDS, NULL),
    CASE("host with half a bracket", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400, ENDS, NULL),
    CASE("host behind a bracket", "GET / HTTP/1.1\r\nHost: [::1]a\r\n\r\n", 400, ENDS, NULL),
    CASE("host of brackets", "GET / HTTP/1.1\r\nHost: []\r\n\r\n", 400, ENDS, NULL),
    CASE("host of a port", "GET / HTTP/1.1\r\nHost: :80\r\n\r\n", 400, ENDS, NULL),
    CASE("host list", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, ENDS, NULL),
    CASE("other host in the target", "GET http://b/ HTTP/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("user in the target", "GET http://u@a/ HTTP/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("no host in the target", "GET http:///x HTTP/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("other scheme", "GET ftp://a/ HTTP/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("no slash", "GET echo HTTP/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("asterisk with get", "GET * HTTP/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("fragment", "GET /a#b HTTP/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("high byte in the target", "GET /\xc3\xa4 HTTP/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("connect", "CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n", 501, ENDS, NULL),
    CASE("unknown method", "BREW / HTTP/1.1\r\n" HOST "\r\n", 405, ENDS, NULL),
    CASE("method with a bracket", "GE[T / HTTP/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("lower-case method", "get / HTTP/1.1\r\n" HOST "\r\n", 405, ENDS, NULL),
    CASE("no method", " / HTTP/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("two blanks", "GET  / HTTP/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("blank behind the version", "GET / HTTP/1.1 \r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("blank in the target", "GET /a b HTTP/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("tab as blank", "GET\t/ HTTP/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("0.9", "GET /\r\n\r\n", 400, ENDS, NULL),
    CASE("0.9 by name", "GET / HTTP/0.9\r\n" HOST "\r\n", 505, ENDS, NULL),
    CASE("1.2", "GET / HTTP/1.2\r\n" HOST "\r\n", 505, ENDS, NULL),
    CASE("2.0", "GET / HTTP/2.0\r\n" HOST "\r\n", 505, ENDS, NULL),
    CASE("1.10", "GET / HTTP/1.10\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("lower-case version", "GET / http/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("other protocol", "GET / ICE/1.0\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("two empty lines before", "\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", 400, ENDS, NULL),
    CASE("TLS on a plain port", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, ENDS, NULL),
    CASE("other expectation", POST "Expect: wonders\r\n\r\n", 417, ENDS, NULL),
    CASE("chunk size is no number", POST CHUNKED "\r\nxyz\r\n", 400, ENDS, NULL),
    CASE("chunk size is empty", POST CHUNKED "\r\n\r\n", 400, ENDS, NULL),
    CASE("chunk size with 0x", POST CHUNKED "\r\n0x5\r\nhello\r\n", 400, ENDS, NULL),
    CASE("chunk size with a sign", POST CHUNKED "\r\n+5\r\nhello\r\n", 400, ENDS, NULL),
    CASE("chunk size behind a blank", POST CHUNKED "\r\n 5\r\nhello\r\n", 400, ENDS, NULL),
    CASE("chunk size before a blank", POST CHUNKED "\r\n5 \r\nhello\r\n", 400, ENDS, NULL),
    CASE("chunk size is huge", POST CHUNKED "\r\nffffffffffffffff\r\nhello", 400, ENDS, NULL),
    CASE("chunk size has many zeros", POST CHUNKED "\r\n0000000000000000005\r\n", 400, ENDS, NULL),
    CASE("chunk size and line feed", POST CHUNKED "\r\n5\nhello\r\n0\r\n\r\n", 400, ENDS, NULL),
    CASE("chunk size and carriage return", POST CHUNKED "\r\n5\rhello\r\n0\r\n\r\n", 400, ENDS,
         NULL),
    CASE("extension with a line feed", POST CHUNKED "\r\n5;a\nb\r\nhello\r\n", 400, ENDS, NULL),
    CASE("chunk longer than it says", POST CHUNKED "\r\n5\r\nhello!\r\n0\r\n\r\n", 400, ENDS, NULL),
    CASE("chunk ends in a line feed", POST CHUNKED "\r\n5\r\nhello\n0\r\n\r\n", 400, ENDS, NULL),
    CASE("last chunk and line feed", POST CHUNKED "\r\n0\r\n\n", 400, ENDS, NULL),
    CASE("folded trailer", POST CHUNKED "\r\n0\r\nX: a\r\n b\r\n\r\n", 400, ENDS, NULL),
    CASE("body over the handler's limit",
         "POST /small HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello", 413, ENDS, NULL),
    CASE("chunks over the handler's limit",
         "POST /small HTTP/1.1\r\n" HOST CHUNKED "\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", 413, ENDS,
         NULL),
};

/* The status of the last response that was received. */
static uint32_t last_status(const struct fake *f) {
    const struct str all = buf_str(&f->out);
    uint32_t status = 0;
    for (size_t i = 0; i + 12 <= all.len; i++) {
        uint64_t number;
        if (!str_starts(str_skip(all, i), STR("HTTP/1.1 "))) continue;
        if (str_to_u64((struct str){all.ptr + i + 9, 3}, &number)) status = (uint32_t)number;
    }
    return status;
}

static bool is_open(const struct fake *f) { return f->conn && !f->conn->is_finishing; }

/* The first `first` bytes at once, the rest in steps of `step`; what came back goes to `out`. */
static void run(const struct example *e, size_t first, size_t step, struct buf *out) {
    struct fake f;
    struct str rest = {e->bytes, e->len};
    assert_int_equal(fake_init(&f, NULL), ST_OK);
    assert_true(fake_connect(&f));
    for (size_t n = first; rest.len; n = step) {
        fake_send(&f, str_take(rest, n));
        rest = str_skip(rest, n < rest.len ? n : rest.len);
    }
    const char *got = buf_text(&f.out);
    if (last_status(&f) != e->status || is_open(&f) != e->is_kept ||
        (e->text && !strstr(got, e->text)) || strstr(got, "/second") || f.gones)
        fail_msg("%s, %zu and then %zu at a time: %u, %s\n%s", e->name, first, step,
                 last_status(&f), is_open(&f) ? "open" : "ended", got);
    fake_received(&f, out);
    fake_deinit(&f);
}

static void check_examples(const struct example *list, size_t count) {
    struct buf whole, pieces;
    buf_init(&whole, 1 << 20);
    buf_init(&pieces, 1 << 20);
    for (size_t i = 0; i < count; i++) {
        run(&list[i], list[i].len, 1, &whole);
        run(&list[i], 1, 1, &pieces);
        assert_string_equal(buf_text(&pieces), buf_text(&whole));
        for (size_t cut = 1; cut < list[i].len; cut++) {
            run(&list[i], cut, list[i].len, &pieces);
            assert_string_equal(buf_text(&pieces), buf_text(&whole));
        }
    }
    buf_deinit(&whole);
    buf_deinit(&pieces);
}

static void test_valid_requests_are_parsed_however_they_are_split(void **state) {
    (void)state;
    check_examples(good, sizeof(good) / sizeof(good[0]));
}

static void test_ambiguous_requests_are_refused_and_the_connection_is_closed(void **state) {
    (void)state;
    check_examples(bad, sizeof(bad) / sizeof(bad[0]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_requests_are_parsed_however_they_are_split),
        cmocka_unit_test(test_ambiguous_requests_are_refused_and_the_connection_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
