/* Goal:   compiling and matching survive the failure of any one allocation: ST_NOMEM with a
 *         sentence, nothing lost, and the next call works.
 * Method: compile a source of each kind and compute a mask, again and again, the first time with
 *         the first allocation failing, then the second, until no more are needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault/fail_alloc.h"
#include "grammar/grammar.h"

enum { ALLOCATIONS_MAX = 20000 };

static const struct {
    enum grammar_kind kind;
    const char *source, *text;
} rows[] = {
    {GRAMMAR_SCHEMA,
     "{\"$id\":\"http://a/"
     "\",\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,\"x\",{\"b\":[1],"
     "\"c\":2}]},\"d\":{\"$ref\":\"#/$defs/"
     "n\"}},\"patternProperties\":{\"^z\":{\"type\":\"number\","
     "\"minimum\":1.5}},\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"d\"]}],\"$defs\":{\"n\":"
     "{\"type\":\"array\",\"contains\":{\"const\":3},\"unevaluatedItems\":true}}}",
     "{\"a\":\"x\",\"z1\":2.5}"},
    {GRAMMAR_CHOICE, "[\"abc\",\"abd\",\"\"]", "abd"},
    {GRAMMAR_GBNF, "root ::= \"(\" root \")\" | [a-z]{2,5} # c", "((ab))"},
    {GRAMMAR_LARK, "%import common.WS\n%ignore WS\nstart: \"x\"i start? /y+/", "x XyY"},
    {GRAMMAR_PARTS,
     "{\"sequence\":[{\"free\":[\"<t>\",\"x\"]},{\"any\":[{\"text\":\"<t>\"},{\"token\":\"t\"}]},"
     "{\"repeat\":{\"schema\":{\"type\":\"nothing\"},\"at\":\"a\",\"relax\":\"object\"},"
     "\"between\":{\"pattern\":\", "
     "?\"},\"min\":1},{\"schema\":{\"type\":\"null\"},\"spaced\":true}]}",
     "ab<t>{\"a\":1}, {}null"},
};

static enum status round_trip(size_t row, struct err *err) {
    const struct str tokens[] = {STR("a"), STR("{\""), STR("x"), STR("12")};
    const struct grammar_options options = {.kind = rows[row].kind};
    struct grammar *g = NULL;
    struct vocabulary *v = NULL;
    struct grammar_refusal why;
    uint64_t mask[1];
    enum status st = grammar_compile(str_of(rows[row].source), &options, &g, &why);
    *err = why.err;
    if (st != ST_OK) return st;
    st = vocabulary_create(tokens, 4, &v);
    if (st != ST_OK) err_set(err, st, "vocabulary");
    if (st == ST_OK) {
        struct matcher m = matcher_init(g);
        matcher_mask(&m, v, mask);
        matcher_accept(&m, str_of(rows[row].text), NULL);
        st = matcher_status(&m, err);
    }
    vocabulary_destroy(v);
    grammar_destroy(g);
    return st;
}

static void test_every_failed_allocation_is_reported(void **state) {
    (void)state;
    for (size_t row = 0; row < sizeof(rows) / sizeof(*rows); row++) {
        long n = 0;
        for (; n < ALLOCATIONS_MAX; n++) {
            struct err said = {0};
            fail_alloc_at(n);
            enum status st = round_trip(row, &said);
            if (!fail_alloc_stop()) {
                assert_int_equal(st, ST_OK);
                break;
            }
            /* A mask that could not be remembered is no failure. */
            if (st == ST_OK) continue;
            if (st != ST_NOMEM || !said.text[0])
                fail_msg("row %zu, allocation %ld: %s \"%s\"", row, n, status_name(st), said.text);
        }
        assert_true(n > 10 && n < ALLOCATIONS_MAX);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_failed_allocation_is_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
