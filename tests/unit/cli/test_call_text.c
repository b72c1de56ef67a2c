/* Goal:   a call is one line that a person can read, whatever the model wrote; what is long is cut
 *         and its length is said; a command is shown so that its words can be told apart.
 * Method: tables of calls and commands with what is shown; then arguments of every length around
 *         the limits, which never break a character. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "cli/call_text.h"

enum { LINE_BYTES_MAX = 1 << 20 };

#define TEN "0123456789"
#define FIFTY TEN TEN TEN TEN TEN

static const struct {
    const char *name, *args;
    bool is_cut;
    const char *shown;
    bool is_long;
} rows[] = {
    {"now", "", false, "-> now()", false},
    {"now", " {} ", false, "-> now()", false},
    {"f", "{\"city\": \"Paris\", \"n\": 3}", false, "-> f(city=\"Paris\", n=3)", false},
    {"f", "{\"a\": {\"b\": [1, null, true]}}", false, "-> f(a={\"b\":[1,null,true]})", false},
    {"f", "{\"t\": \"a\\nb\\u001b\\\"\"}", false, "-> f(t=\"a\\nb\\u001b\\\"\")", false},
    {"f\n-> g", "{\"a\\nb\": 1}", false, "-> f\\n-> g(a\\nb=1)", false},
    {"f", "{\"t\": \"" FIFTY TEN "\"}", false, "-> f(t=\"" FIFTY TEN "\")", false},
    {"f", "{\"t\": \"" FIFTY TEN "x\"}", false, "-> f(t=\"" FIFTY TEN "...\" (61 bytes))", true},
    {"f", "{\"t\": [\"" FIFTY "\", 12345678]}", false,
     "-> f(t=[\"" FIFTY "\",123456... (63 bytes))", true},
    {FIFTY TEN "abcdef", "{}", false, "-> " FIFTY TEN "abcd... (66 bytes)()", true},
    {"f", "{\"city\": \"Par", true, "-> f({\\\"city\\\": \\\"Par (cut)", false},
    {"f", "", true, "-> f( (cut)", false},
    {"f", "[1]", false, "-> f([1]) (the arguments are not a JSON object)", false},
    {"f", "{\"a\"\n", false, "-> f({\\\"a\\\"\\n) (the arguments are not a JSON object)", false},
    {"", "{}", false, "-> ()", false},
    {"f",
     "{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,\"j\":1,\"k\":1,"
     "\"l\":1,\"m\":1,\"n\":1,\"o\":1,\"p\":1,\"q\":1}",
     false,
     "-> f(a=1, b=1, c=1, d=1, e=1, f=1, g=1, h=1, i=1, j=1, k=1, l=1, m=1, n=1, o=1, p=1, ... "
     "(17 arguments))",
     true},
};

static void test_calls_are_shown_on_one_line(void **state) {
    (void)state;
    struct buf out;
    buf_init(&out, LINE_BYTES_MAX);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        buf_clear(&out);
        bool is_long =
            call_text_put(str_of(rows[i].name), str_of(rows[i].args), rows[i].is_cut, &out);
        assert_string_equal(buf_text(&out), rows[i].shown);
        assert_int_equal(is_long, rows[i].is_long);
    }
    buf_deinit(&out);
}

static void test_arguments_are_whole_if_they_are_an_object(void **state) {
    (void)state;
    assert_true(call_args_are_whole(STR("")));
    assert_true(call_args_are_whole(STR(" \n")));
    assert_true(call_args_are_whole(STR("{\"a\": 1}")));
    assert_false(call_args_are_whole(STR("{\"a\": 1")));
    assert_false(call_args_are_whole(STR("[]")));
    assert_false(call_args_are_whole(STR("{} {}")));
    assert_false(call_args_are_whole(STR("null")));
    /* Readers differ in which of two values counts: what is shown must be what is run. */
    assert_false(call_args_are_whole(STR("{\"path\": \"/etc/passwd\", \"path\": \"notes\"}")));
    assert_false(call_args_are_whole(STR("{\"a\": [{\"b\": 1, \"b\": 2}]}")));
}

/* Characters of three bytes, so that most limits fall inside one. */
static void test_a_cut_never_breaks_a_character(void **state) {
    (void)state;
    struct buf args, out;
    buf_init(&args, LINE_BYTES_MAX);
    buf_init(&out, LINE_BYTES_MAX);
    for (size_t count = 1; count < 90; count++) {
        for (size_t ascii = 0; ascii < 3; ascii++) {
            buf_clear(&args);
            buf_clear(&out);
            buf_put(&args, "aaa", ascii);
            for (size_t i = 0; i < count; i++) buf_put_text(&args, "\xe2\x82\xac");
            size_t bytes = 3 * count + ascii;
            bool is_long = short_text_put(buf_str(&args), 60, &out);
            assert_true(utf8_is_valid(buf_str(&out)));
            assert_int_equal(is_long, bytes > 60);
            if (!is_long) assert_int_equal(out.len, bytes);
            assert_int_equal(strstr(buf_text(&out), " bytes)") != NULL, is_long);
        }
    }
    buf_deinit(&args);
    buf_deinit(&out);
}

static void test_the_words_of_a_command_can_be_told_apart(void **state) {
    (void)state;
    struct buf out;
    buf_init(&out, LINE_BYTES_MAX);
    char *const argv[] = {"/usr/bin/date", "-u",   "+%F %T", "",   "a\"b",
                          "$HOME",         "a\nb", "\033[m", "é*", NULL};
    command_text_put(argv, &out);
    assert_string_equal(buf_text(&out),
                        "/usr/bin/date -u \"+%F %T\" \"\" \"a\\\"b\" \"$HOME\" \"a\\nb\" "
                        "\"\\u001b[m\" \"é*\"");
    buf_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_shown_on_one_line),
        cmocka_unit_test(test_arguments_are_whole_if_they_are_an_object),
        cmocka_unit_test(test_a_cut_never_breaks_a_character),
        cmocka_unit_test(test_the_words_of_a_command_can_be_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
