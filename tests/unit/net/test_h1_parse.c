/* Goal:   the scanner of heads and the parser of chunks are strict by themselves, without the later
 *         checks (llhttp, headers).
 * Method: tables; every text in one piece and byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/buf.h"
#include "net/h1_int.h"

struct example {
    const char *bytes;
    size_t len;
    enum h1_step step;
    size_t used; /* when it has ended */
};
#define CASE(bytes, step, used)                                                                    \
    { bytes, sizeof(bytes) - 1, step, used }

static const struct example heads[] = {
    CASE("GET / HTTP/1.1\r\n\r\n", H1_END, 18),
    CASE("a\r\nb\r\n\r\nrest", H1_END, 8),
    CASE("\r\na\r\n\r\nrest", H1_END, 7),
    CASE("a\r\nb\x80\xff\tc\r\n\r\n", H1_END, 12),
    CASE("a\r\nb", H1_MORE, 0),
    CASE("a\r\n\r", H1_MORE, 0),
    CASE("\r\n\r\na", H1_BAD, 0),
    CASE("a\nb", H1_BAD, 0),
    CASE("a\rb", H1_BAD, 0),
    CASE("a\r\r\n", H1_BAD, 0),
    CASE("a\r\n b\r\n", H1_BAD, 0),
    CASE("a\r\n\tb\r\n", H1_BAD, 0),
    CASE(" a\r\n", H1_BAD, 0),
    CASE("a\0b", H1_BAD, 0),
    CASE("a\x1f", H1_BAD, 0),
    CASE("a\x7f", H1_BAD, 0),
    CASE("\n", H1_BAD, 0),
};

static void expect_scan(const struct example *e, size_t step_bytes, bool is_trailer) {
    struct h1_scan scan = {.is_trailer = is_trailer};
    struct str rest = {e->bytes, e->len};
    enum h1_step step = H1_MORE;
    while (rest.len && step == H1_MORE) {
        size_t used;
        step = h1_scan(&scan, str_take(rest, step_bytes), &used);
        rest = str_skip(rest, used);
    }
    assert_int_equal(step, e->step);
    if (step == H1_END) assert_int_equal(e->len - rest.len, e->used);
    if (step == H1_END) assert_int_equal(scan.bytes, e->used);
}

static void test_a_head_ends_at_its_empty_line_and_nowhere_else(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        expect_scan(&heads[i], heads[i].len, false);
        expect_scan(&heads[i], 1, false);
    }
}

static void test_trailers_may_be_empty(void **state) {
    (void)state;
    static const struct example trailers[] = {
        CASE("\r\nrest", H1_END, 2),
        CASE("a: b\r\n\r\nrest", H1_END, 8),
        CASE("\n", H1_BAD, 0),
    };
    for (size_t i = 0; i < sizeof(trailers) / sizeof(trailers[0]); i++) {
        expect_scan(&trailers[i], trailers[i].len, true);
        expect_scan(&trailers[i], 1, true);
    }
}

static const struct {
    struct example e;
    const char *body;
} chunked[] = {
    {CASE("0\r\n\r\nrest", H1_END, 5), ""},
    {CASE("3\r\nabc\r\n0\r\n\r\n", H1_END, 13), "abc"},
    {CASE("3;x=y; z\r\nabc\r\n00a\r\n0123456789\r\n0;q\r\nT: 1\r\n\r\nrest", H1_END, 45),
     "abc0123456789"},
    {CASE("3\r\nab", H1_MORE, 0), "ab"},
    {CASE("\r\n", H1_BAD, 0), ""},
    {CASE(";a\r\n", H1_BAD, 0), ""},
    {CASE("g\r\n", H1_BAD, 0), ""},
    {CASE("3 \r\n", H1_BAD, 0), ""},
    {CASE("3\n", H1_BAD, 0), ""},
    {CASE("3\rabc", H1_BAD, 0), ""},
    {CASE("3;\n", H1_BAD, 0), ""},
    {CASE("3\r\nabcd", H1_BAD, 0), "abc"},
    {CASE("3\r\nabc\n", H1_BAD, 0), "abc"},
    {CASE("3\r\nabc\rx", H1_BAD, 0), "abc"},
    {CASE("3\r\nabc\r\n\r\n", H1_BAD, 0), "abc"},
    {CASE("0\r\n\n", H1_BAD, 0), ""},
    {CASE("0\r\n\rx", H1_BAD, 0), ""},
    {CASE("1000000000000000\r\n", H1_BAD, 0), ""},
};

static void expect_chunks(const struct example *e, const char *body, size_t step_bytes) {
    struct h1_chunks chunks = {0};
    struct str rest = {e->bytes, e->len};
    struct buf got;
    enum h1_step step = H1_MORE;
    buf_init(&got, 1000);
    while (rest.len && step == H1_MORE) {
        struct str piece = str_take(rest, step_bytes);
        const size_t before = piece.len;
        do {
            struct str data = {"", 0};
            step = h1_chunks_next(&chunks, &piece, &data);
            buf_put_str(&got, data);
        } while (step == H1_DATA);
        rest = str_skip(rest, before - piece.len);
    }
    assert_int_equal(step, e->step);
    assert_string_equal(buf_text(&got), body);
    if (step == H1_END) assert_int_equal(e->len - rest.len, e->used);
    buf_deinit(&got);
}

static void test_chunks_are_parsed_strictly(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(chunked) / sizeof(chunked[0]); i++) {
        expect_chunks(&chunked[i].e, chunked[i].body, chunked[i].e.len);
        expect_chunks(&chunked[i].e, chunked[i].body, 1);
    }
}

/* Extensions and trailers are bounded; without a limit they could be endless. */
static void test_the_framing_of_chunks_is_bounded(void **state) {
    (void)state;
    static const char *const starts[] = {"1;", "0\r\nX: "};
    for (int i = 0; i < 2; i++) {
        struct h1_chunks chunks = {0};
        struct str data, bytes = str_of(starts[i]);
        enum h1_step step = h1_chunks_next(&chunks, &bytes, &data);
        uint32_t count = 0;
        while (step == H1_MORE && count++ < 100000) {
            bytes = STR("x");
            step = h1_chunks_next(&chunks, &bytes, &data);
        }
        assert_int_equal(step, H1_BAD);
        assert_true(count < 10000);
    }
}

static void test_the_request_line_is_parsed_strictly(void **state) {
    (void)state;
    static const struct {
        const char *head;
        uint32_t status;
    } lines[] = {
        {"GET / HTTP/1.1\r\n\r\n", 0},    {"\r\nGET / HTTP/1.0\r\n\r\n", 0},
        {"GET / HTTP/1.1 \r\n\r\n", 400}, {"GET  / HTTP/1.1\r\n\r\n", 400},
        {"GET /\r\n\r\n", 400},           {"GET\r\n\r\n", 400},
        {" GET / HTTP/1.1\r\n\r\n", 400}, {"GET / HTTP/1,1\r\n\r\n", 400},
        {"GET / HTTP/3.0\r\n\r\n", 505},  {"GET / HTTP/11\r\n\r\n", 400},
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct h1_line line = {0};
        const char *sentence = NULL;
        const uint32_t status = h1_parse_line(str_of(lines[i].head), &line, &sentence);
        assert_int_equal(status, lines[i].status);
        assert_true(status == 0 || sentence);
        if (status) continue;
        assert_true(str_is(line.method, "GET"));
        assert_true(str_is(line.target, "/"));
        assert_int_equal(line.version, i == 0 ? 11 : 10);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_head_ends_at_its_empty_line_and_nowhere_else),
        cmocka_unit_test(test_trailers_may_be_empty),
        cmocka_unit_test(test_chunks_are_parsed_strictly),
        cmocka_unit_test(test_the_framing_of_chunks_is_bounded),
        cmocka_unit_test(test_the_request_line_is_parsed_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
