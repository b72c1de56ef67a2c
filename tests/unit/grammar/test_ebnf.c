/* Goal:   GBNF and the subset of Lark accept exactly their texts; mistakes are refused with a line.
 * Method: tables of texts on both sides, recursive rules among them; a table of mistakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/grammar/grammar_lib.h"

static void test_gbnf(void **state) {
    (void)state;
    static const struct accept_case cases[] = {
        {"root ::= \"yes\" | \"no\" # comment\n", {"yes", "no"}, {"", "yesno", "n"}},
        {"root ::= item (\",\" item)*\nitem ::= [a-c]{2} | \"\\x41\" | [^a-z0-9,]\n",
         {"ab", "ab,A,cc", "\xC3\xA9"},
         {"a", "ab,", "d"}},
        {"root ::= expr\nexpr ::= term (\"+\" term |\n \"-\" term)*\n"
         "term ::= [0-9]+ | \"(\" expr \")\"\n",
         {"1", "1+(2-(3+4))-5"},
         {"", "(1", "1+", "()"}},
        {"root ::= \"a\" root \"b\" | \"\"", {"", "ab", "aaabbb"}, {"a", "aab", "abb"}},
        {"root ::= x{1,3} y{,2} \"z\"?\nx ::= \"x\"\ny ::= \"y\"",
         {"x", "xxxyyz"},
         {"", "xxxx", "xyyy"}},
        {"root ::= (.\n  \"!\")+", {"a!", "\xE2\x82\xAC!b!"}, {"a", "!"}},
    };
    check_cases(GRAMMAR_GBNF, cases, sizeof(cases) / sizeof(*cases));
}

static void test_lark(void **state) {
    (void)state;
    static const struct accept_case cases[] = {
        {"start: \"a\" | \"B\"i\n     | /[0-9]{2}/ -> digits\n", {"a", "b", "B", "42"}, {"A", "4"}},
        {"%import common.INT\n%import common.WS\n%ignore WS\nstart: sum\n?sum: atom (\"+\" atom)*\n"
         "atom: INT | \"(\" sum \")\"\n",
         {"1+2", " 1 + ( 2+ 3 ) ", "12"},
         {"1 2", "", "(1", "+"}},
        {"start: WORD~2..3 [\"!\"]\nWORD: LOWER+ \";\"\nLOWER: \"a\"..\"f\" // letters\n",
         {"a;bc;", "a;b;c;!"},
         {"a;", "a;b;c;d;", "g;a;", "a ;b;"}},
        {"start: list\nlist: \"[\" (list (\",\" list)*)? \"]\"", {"[]", "[[],[[]]]"}, {"[", "[,]"}},
    };
    check_cases(GRAMMAR_LARK, cases, sizeof(cases) / sizeof(*cases));
}

static void test_mistakes_are_refused_with_their_line(void **state) {
    (void)state;
    static const struct {
        enum grammar_kind kind;
        const char *source, *path;
    } rows[] = {
        {GRAMMAR_GBNF, "root ::= a", "line 1"},
        {GRAMMAR_GBNF, "\nroot ::= \"x", "line 2"},
        {GRAMMAR_GBNF, "root ::= x\n\nx ::= x \"a\" | \"b\"", "line 3"},
        {GRAMMAR_GBNF, "root ::= x\nx ::= \"a\"? y\ny ::= x | \"b\"", "line 2"},
        {GRAMMAR_GBNF, "root ::= \"a\"\nroot ::= \"b\"", "line 2"},
        {GRAMMAR_GBNF, "other ::= \"a\"", "line 1"},
        {GRAMMAR_GBNF, "root ::= (\"a\"", "line 1"},
        {GRAMMAR_GBNF, "root ::= \"a\"{3,2}", "line 1"},
        {GRAMMAR_GBNF, "root ::= \"a\"{100000}", "line 1"},
        {GRAMMAR_GBNF, "root ::= [z-a]", "line 1"},
        {GRAMMAR_LARK, "start: A\nA: \"x\" A?", "line 2"},
        {GRAMMAR_LARK, "start.2: \"a\"", "line 1"},
        {GRAMMAR_LARK, "start: \"a\"\n%import python.X", "line 2"},
        {GRAMMAR_LARK, "start: /a(?=b)/", "line 1"},
        {GRAMMAR_LARK, "start: t{x}", "line 1"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct grammar_options options = {.kind = rows[i].kind};
        struct grammar *g = NULL;
        struct grammar_refusal why;
        if (grammar_compile(str_of(rows[i].source), &options, &g, &why) != ST_BAD)
            fail_msg("%s is not refused", rows[i].source);
        assert_string_equal(why.path, rows[i].path);
        assert_true(why.err.text[0] != 0);
    }
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_gbnf),
        cmocka_unit_test(test_lark),
        cmocka_unit_test(test_mistakes_are_refused_with_their_line),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
