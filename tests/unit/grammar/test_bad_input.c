/* Goal:   sources that are made to cost much are compiled or refused with a sentence within their
 *         budget of time, and what compiles can be matched.
 * Method: each kind of such a source, in sizes that would take minutes or gigabytes if the budget
 *         were not kept; a limit of time that only an endless compile reaches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "unit/grammar/grammar_lib.h"

enum { SOURCE_BYTES_MAX = 64 << 20, BUDGET_US = 100000, LIMIT_US = 60000000, STEPS = 20 };

/* Takes the first byte that may follow, with masks, some times. */
static void walk(struct grammar *g) {
    struct str tokens[256];
    char bytes[256];
    uint64_t mask[4];
    struct vocabulary *v = NULL;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct str){&bytes[i], 1};
    }
    assert_int_equal(vocabulary_create(tokens, 256, &v), ST_OK);
    struct matcher m = matcher_init(g);
    for (int step = 0; step < STEPS && matcher_status(&m, NULL) == ST_OK; step++) {
        matcher_mask(&m, v, mask);
        int byte = 0;
        while (byte < 256 && !(mask[byte >> 6] >> (byte & 63) & 1)) byte++;
        if (byte == 256) break;
        assert_true(matcher_accept(&m, tokens[byte], NULL) || matcher_status(&m, NULL) != ST_OK);
    }
    vocabulary_destroy(v);
}

static void try_source(enum grammar_kind kind, const struct buf *source, const char *what) {
    const struct grammar_options options = {.kind = kind, .time_us = BUDGET_US};
    struct grammar *g = NULL;
    struct grammar_refusal why;
    assert_int_equal(buf_status(source), ST_OK);
    const int64_t start = clock_now(&clock_real);
    enum status st = grammar_compile(buf_str(source), &options, &g, &why);
    if (clock_now(&clock_real) - start > LIMIT_US) fail_msg("%s: the budget is not kept", what);
    if (st == ST_OK)
        walk(g);
    else if ((st != ST_BAD && st != ST_FULL) || !why.err.text[0])
        fail_msg("%s: status %d, \"%s\"", what, st, why.err.text);
    grammar_destroy(g);
}

/* A text between the repetitions of another one, which may have a number. */
static void put_many(struct buf *b, int count, const char *form, const char *between) {
    for (int i = 0; i < count; i++) {
        if (i) buf_put_text(b, between);
        buf_printf(b, form, i);
    }
}

static void test_large_schemas(void **state) {
    (void)state;
    static const struct {
        const char *before, *form, *between, *behind;
        int count;
    } rows[] = {
        {"{\"enum\":[", "\"value %d\"", ",", "]}", 100000},
        {"{\"enum\":[", "{\"a\":[%d]}", ",", "]}", 20000},
        {"{\"type\":\"object\",\"properties\":{", "\"property_number_%d\":{\"type\":\"string\"}",
         ",", "},\"additionalProperties\":false}", 20000},
        {"{\"anyOf\":[", "{\"const\":%d}", ",", "]}", 400000},
        {"{\"oneOf\":[", "{\"properties\":{\"k%d\":{\"type\":\"integer\"}}}", ",", "]}", 20000},
        {"{\"allOf\":[", "{\"anyOf\":[{\"required\":[\"a%d\"]},{\"minProperties\":2}]}", ",", "]}",
         60},
        {"{\"not\":{\"anyOf\":[", "{\"pattern\":\"x%d.*y\"}", ",", "]}}", 90},
        {"{\"patternProperties\":{", "\"a.*%d\":{}", ",", "}}", 1000},
        {"", "{\"items\":", "", "", 10000},
        {"", "[", "", "", 1000000},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct buf b;
        buf_init(&b, SOURCE_BYTES_MAX);
        buf_put_text(&b, rows[i].before);
        put_many(&b, rows[i].count, rows[i].form, rows[i].between);
        buf_put_text(&b, rows[i].behind);
        try_source(GRAMMAR_SCHEMA, &b, rows[i].form);
        buf_deinit(&b);
    }
}

static void test_small_schemas_that_grow(void **state) {
    (void)state;
    static const char *const sources[] = {
        "{\"type\":\"string\",\"pattern\":\"(a|b)*a(a|b){200}(a|b)*\"}",
        "{\"type\":\"string\",\"pattern\":\"^(([a-z])+.)+[A-Z]([a-z])+$\",\"maxLength\":5000}",
        "{\"type\":\"string\",\"pattern\":\"^((a{1,100}){1,100}){1,100}$\"}",
        "{\"type\":\"string\",\"pattern\":\"(x+x+)+y\",\"not\":{\"pattern\":\"(y|x){30}z\"}}",
        "{\"type\":\"string\",\"pattern\":\"^(?=.*a.{40})(?=.*b.{40})(?!.*c.{40}).*$\"}",
        "{\"type\":\"array\",\"minItems\":90000,\"items\":{\"type\":\"object\",\"minProperties\":1}"
        "}",
        "{\"type\":\"array\",\"minItems\":90000,\"maxItems\":99000,\"contains\":{\"const\":1}}",
        "{\"type\":\"integer\",\"multipleOf\":999983,\"minimum\":1e300}",
        "{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"}]}},"
        "\"$ref\":\"#/$defs/a\"}",
        "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"$ref\":\"#\"}}}",
        "{\"type\":\"array\",\"minItems\":1,\"items\":{\"$ref\":\"#\"},\"uniqueItems\":true}",
        "{\"anyOf\":[{\"$ref\":\"#\"},{\"not\":{\"$ref\":\"#\"}}]}",
        "{\"not\":{\"not\":{\"$ref\":\"#\"}}}",
    };
    for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); i++) {
        struct buf b;
        buf_init(&b, SOURCE_BYTES_MAX);
        buf_put_text(&b, sources[i]);
        try_source(GRAMMAR_SCHEMA, &b, sources[i]);
        buf_deinit(&b);
    }
}

/* Many ways to go on, each with a call of its own: a mask has a limit of work, which counts them
 * all. Without it this one takes seconds, and an engine's other answers wait for it. */
static void test_a_mask_of_many_ways_ends_at_the_limit_of_work(void **state) {
    (void)state;
    struct buf source;
    struct grammar *g = NULL;
    struct grammar_refusal why;
    struct vocabulary *v = NULL;
    enum { BYTES = 94 }; /* each leads to a state of its own, and "ab" with each of them, too */
    char bytes[2 * BYTES][3];
    struct str tokens[2 * BYTES];
    uint64_t mask[(2 * BYTES + 63) / 64];
    for (int i = 0; i < 2 * BYTES; i++) {
        const char last = (char)(0x20 + i % BYTES), text[3] = {'a', 'b', last};
        memcpy(bytes[i], i < BYTES ? &last : text, i < BYTES ? 1 : 3);
        tokens[i] = (struct str){bytes[i], i < BYTES ? 1 : 3};
    }
    const struct grammar_options options = {.kind = GRAMMAR_GBNF};
    buf_init(&source, SOURCE_BYTES_MAX);
    buf_put_text(&source, "root ::= ");
    put_many(&source, 1500, "w \"%d\"", " | ");
    buf_put_text(&source, "\nw ::= c w \"\\x02\" | c\nc ::= [");
    for (int byte = 0x21; byte < 0x7e; byte += 2) buf_printf(&source, "\\x%02x", byte);
    buf_put_text(&source, "] \"\\x01\"? | [");
    for (int byte = 0x20; byte < 0x7f; byte += 2) buf_printf(&source, "\\x%02x", byte);
    buf_put_text(&source, "] \"\\x01\"?\n");
    enum status st = grammar_compile(buf_str(&source), &options, &g, &why);
    if (st != ST_OK) fail_msg("%s", why.err.text);
    assert_int_equal(vocabulary_create(tokens, 2 * BYTES, &v), ST_OK);
    struct matcher m = matcher_init(g);
    matcher_mask(&m, v, mask);
    assert_int_equal(matcher_status(&m, NULL), ST_FULL);
    grammar_destroy(g);
    vocabulary_destroy(v);
    buf_deinit(&source);
}

static void test_large_notations(void **state) {
    (void)state;
    static const struct {
        enum grammar_kind kind;
        const char *before, *form, *between, *behind;
        int count;
    } rows[] = {
        {GRAMMAR_REGEX, "", "word%d", "|", "", 1000000},
        {GRAMMAR_REGEX, "", "(", "", "", 100000},
        {GRAMMAR_REGEX, "", "(?!a%d)", "", "b*", 100000},
        {GRAMMAR_REGEX, "", "[%d-z]", "", "", 100000},
        {GRAMMAR_CHOICE, "[", "\"word%d\"", ",", "]", 1000000},
        {GRAMMAR_GBNF, "root ::= ", "\"w%d\"", " | ", "\n", 1000000},
        {GRAMMAR_GBNF, "root ::= ", "(", "", "", 100000},
        {GRAMMAR_GBNF, "root ::= \"x\"", "\nr%d ::= root root", "", "\n", 300000},
        {GRAMMAR_LARK, "start: ", "\"w%d\"", " | ", "\n", 1000000},
        {GRAMMAR_LARK, "start: ", "[", "", "", 100000},
        {GRAMMAR_LARK, "start: a0\n", "a%d: \"x\" | \"y\"", "\n", "\n", 300000},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct buf b;
        buf_init(&b, SOURCE_BYTES_MAX);
        buf_put_text(&b, rows[i].before);
        put_many(&b, rows[i].count, rows[i].form, rows[i].between);
        buf_put_text(&b, rows[i].behind);
        try_source(rows[i].kind, &b, rows[i].form);
        buf_deinit(&b);
    }
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_large_schemas),
        cmocka_unit_test(test_small_schemas_that_grow),
        cmocka_unit_test(test_a_mask_of_many_ways_ends_at_the_limit_of_work),
        cmocka_unit_test(test_large_notations),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
