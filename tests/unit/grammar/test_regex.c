/* Goal:   regular expressions, choices and decimal limits accept exactly their texts.
 * Method: tables of texts on both sides; limits against every number with two decimals in a range;
 *         what is not regular is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include <utf8proc.h>

#include "base/utf8.h"
#include "unit/grammar/grammar_lib.h"

static void test_expressions_match_whole_texts(void **state) {
    (void)state;
    static const struct accept_case cases[] = {
        {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
        {"a*(b|cd)?e+", {"e", "aabe", "cdee"}, {"", "ab", "acde2"}},
        {"^[a-c]{2,3}$", {"ab", "abc"}, {"a", "abca", "ad"}},
        {"[^\\d\\s]+", {"x", "\xC3\xA9!"}, {"1", "a b"}},
        {"\\u00e9|\\x41|\\u{1F600}", {"\xC3\xA9", "A", "\xF0\x9F\x98\x80"}, {"e", "\xC3"}},
        {"(?:x{0,2}y){2}", {"yy", "xyxxy"}, {"y", "xxxyy"}},
        {".", {"\xE2\x82\xAC", "a"}, {"\n", "", "ab", "\xE2\x82"}},
        {"a{,2}", {"a{,2}"}, {"a", "aa"}},
        {"[]a]|[-+]", {"-", "+"}, {"a"}},
        {"(^a|^b)c", {"ac", "bc"}, {"c"}},
    };
    check_cases(GRAMMAR_REGEX, cases, sizeof(cases) / sizeof(*cases));
}

static void test_what_is_not_regular_is_refused(void **state) {
    (void)state;
    static const char *const sources[] = {"((?=a)b)", "(a)\\1", "\\bx", "a**b(", "[z-a]", "a{3,2}",
                                          "(?i)a",    "x^y",    "[a",   "\\",    "*",     "a$b"};
    for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); i++) {
        const struct grammar_options options = {.kind = GRAMMAR_REGEX};
        struct grammar *g = NULL;
        struct grammar_refusal why;
        assert_int_equal(grammar_compile(str_of(sources[i]), &options, &g, &why), ST_BAD);
        assert_true(why.err.text[0] != 0);
    }
}

static void test_look_ahead_outside_of_groups(void **state) {
    (void)state;
    static const struct accept_case cases[] = {
        {"(?!aws:)[a-z:]+", {"a", "aws", "awsx:", "xaws:"}, {"aws:", "aws:x", ""}},
        {"(?=.*[a-z])(?=.*[0-9])[a-z0-9]{2,4}", {"a1", "1a", "aa12"}, {"aa", "11", "a", "aaa11"}},
        {"a(?!b).|ab(?=c).*", {"ac", "abc", "abcd"}, {"ab", "abd"}},
    };
    static const struct accept_case strings[] = {
        {"{\"type\":\"string\",\"pattern\":\"^(?!x)\"}", {"\"\"", "\"ax\""}, {"\"x\"", "\"xa\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(?!\\\\s*$).+\"}", {"\" a\""}, {"\"\"", "\"  \""}},
        {"{\"type\":\"string\",\"pattern\":\"a(?=b$)\"}",
         {"\"ab\"", "\"xab\""},
         {"\"abc\"", "\"a\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(?!.*--)[a-z-]*$\"}",
         {"\"a-b-\"", "\"\""},
         {"\"a--b\"", "\"--\""}},
    };
    check_cases(GRAMMAR_REGEX, cases, sizeof(cases) / sizeof(*cases));
    check_cases(GRAMMAR_SCHEMA, strings, sizeof(strings) / sizeof(*strings));
}

/* Every character below U+3000 and some of each later block, against utf8proc. */
static void test_properties_are_the_general_categories(void **state) {
    (void)state;
    struct grammar *letters = compile_or_fail(GRAMMAR_REGEX, "\\p{L}");
    struct grammar *not_these = compile_or_fail(GRAMMAR_REGEX, "[^\\p{gc=Letter}\\p{Cn}]");
    struct grammar *others = compile_or_fail(GRAMMAR_REGEX, "\\P{C}");
    for (uint32_t c = 1; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 61) {
        char text[5] = {0};
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        utf8_encode(c, text);
        const char *name = utf8proc_category_string((utf8proc_int32_t)c);
        const bool is_letter = name[0] == 'L', is_unknown = strcmp(name, "Cn") == 0;
        if (accepts(letters, text) != is_letter) fail_msg("\\p{L}: U+%04X is %s", c, name);
        if (accepts(not_these, text) != (!is_letter && !is_unknown))
            fail_msg("[^...]: U+%04X is %s", c, name);
        if (accepts(others, text) != (name[0] != 'C')) fail_msg("\\P{C}: U+%04X is %s", c, name);
    }
    grammar_destroy(letters);
    grammar_destroy(not_these);
    grammar_destroy(others);
}

static void test_choices_are_their_texts(void **state) {
    (void)state;
    static const struct accept_case cases[] = {
        {"[\"red\", \"re\", \"rot\", \"\\u00e9\", \"red\"]",
         {"red", "re", "rot", "\xC3\xA9"},
         {"r", "", "redd", "ro"}},
        {"[\"\"]", {""}, {"a"}},
    };
    check_cases(GRAMMAR_CHOICE, cases, sizeof(cases) / sizeof(*cases));
}

static bool within(int hundredths, double low, double high, bool exclusive) {
    double v = hundredths / 100.0;
    return exclusive ? v > low && v < high : v >= low && v <= high;
}

/* Every number from -30.00 to 130.00 in steps of 0.01, as short as it can be written. */
static void check_limits(double low, double high, bool exclusive) {
    char schema[200], text[32];
    const char *form = exclusive ? "{\"type\":\"number\",\"exclusiveMinimum\":%g,"
                                   "\"exclusiveMaximum\":%g}"
                                 : "{\"type\":\"number\",\"minimum\":%g,\"maximum\":%g}";
    snprintf(schema, sizeof(schema), form, low, high);
    struct grammar *g = compile_or_fail(GRAMMAR_SCHEMA, schema);
    for (int i = -3000; i <= 13000; i++) {
        snprintf(text, sizeof(text), "%g", i / 100.0);
        if (accepts(g, text) != within(i, low, high, exclusive)) fail_msg("%s: %s", schema, text);
    }
    grammar_destroy(g);
}

static void test_limits_are_compared_as_decimals(void **state) {
    (void)state;
    static const double limits[][2] = {{0, 100},     {-5.5, 7.25}, {-20, -3.1}, {9.99, 10.01},
                                       {0.05, 0.05}, {1, 99.5},    {-1, 0},     {99, 101}};
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
        check_limits(limits[i][0], limits[i][1], false);
        check_limits(limits[i][0], limits[i][1], true);
    }
}

static void test_multiples_are_exact(void **state) {
    (void)state;
    char text[32];
    struct grammar *seven =
        compile_or_fail(GRAMMAR_SCHEMA, "{\"type\":\"integer\",\"multipleOf\":7}");
    struct grammar *tenth =
        compile_or_fail(GRAMMAR_SCHEMA, "{\"multipleOf\":0.25,\"type\":\"number\"}");
    for (int i = -300; i <= 300; i++) {
        snprintf(text, sizeof(text), "%d", i);
        assert_int_equal(accepts(seven, text), i % 7 == 0);
        snprintf(text, sizeof(text), "%g", i / 20.0);
        assert_int_equal(accepts(tenth, text), i % 5 == 0);
    }
    assert_false(accepts(seven, "14.0"));
    assert_false(accepts(seven, "14.7"));
    assert_false(accepts(tenth, "0.7500"));
    grammar_destroy(seven);
    grammar_destroy(tenth);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_expressions_match_whole_texts),
        cmocka_unit_test(test_what_is_not_regular_is_refused),
        cmocka_unit_test(test_look_ahead_outside_of_groups),
        cmocka_unit_test(test_properties_are_the_general_categories),
        cmocka_unit_test(test_choices_are_their_texts),
        cmocka_unit_test(test_limits_are_compared_as_decimals),
        cmocka_unit_test(test_multiples_are_exact),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
