/* Goal:   a mask is exactly what the plain walk gives: each token that the matcher accepts byte by
 *         byte, and no other.
 * Method: random walks by seed through many grammars. At each state the mask of one grammar is
 *         compared with a second grammar of the same source, in which every token is tried alone on
 *         a copy of the matcher and no mask is ever computed. Tokens and grammars are such that
 *         each shortcut is taken: texts by length, words, open strings, parts of trees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "base/rng.h"
#include "grammar/grammar_int.h"
#include "unit/grammar/grammar_lib.h"

enum { TOKENS = 3000, TOKEN_BYTES = 80, WALKS = 4, STEPS = 24, COLLECT_EVERY = 7 };

static char token_bytes[TOKENS][TOKEN_BYTES];
static struct str tokens[TOKENS];

static const char *const pieces[] = {
    "a",       "bc",       "name",  "x",    "-",    "X",    "7",     "42",       " ",
    "_",       "@",        ".",     "/",    ":",    "\"",   "\",\"", "\":",      "\"}",
    "\\",      "\\n",      "\n",    "\t",   "{",    "}",    ",",     "\xC3\xA9", "\xC3",
    "\xA9",    "\xE6\x97", "\xA5",  "\xE0", "\xED", "\xF0", "\xC0",  "\x7F",     "zz",
    "1234567", "true",     "null",  "[",    "]",    "{\"",  "\":\"", "\",\"x-",  "0",
    "e",       "\\u00e9",  "false", "-1",   "2024-"};
enum { PIECES = sizeof(pieces) / sizeof(*pieces) };

/* The single bytes, so that every text has tokens; texts of 1 to 40 letters; mixtures; and some of
 * these again under another number. */
static void make_tokens(void) {
    struct rng rng = {.seed = 11};
    for (size_t i = 0; i < TOKENS; i++) {
        size_t len = 0;
        if (i < 256) {
            token_bytes[i][len++] = (char)i;
        } else if (i < 900) {
            size_t count = 1 + rng_below(&rng, 40);
            while (len < count)
                token_bytes[i][len++] = "abcdnamexz_7 X"[rng_below(&rng, i % 15 + 1) % 14];
        } else if (i % 50 == 0) {
            size_t other = 256 + rng_below(&rng, (uint32_t)i - 256);
            len = tokens[other].len;
            memcpy(token_bytes[i], token_bytes[other], len);
        } else {
            size_t count = rng_below(&rng, 6) ? 1 + rng_below(&rng, 4) : 10;
            for (size_t k = 0; k < count; k++) {
                struct str piece = str_of(pieces[rng_below(&rng, PIECES)]);
                if (len + piece.len > TOKEN_BYTES) break;
                memcpy(token_bytes[i] + len, piece.ptr, piece.len);
                len += piece.len;
            }
        }
        tokens[i] = (struct str){token_bytes[i], len};
    }
}

struct source {
    enum grammar_kind kind;
    const char *text;
};

static const struct source sources[] = {
    /* Schemas beside free text, where line ends are text, and behind it. */
    {GRAMMAR_PARTS, "{\"any\":[{\"free\":[\"x\"]},{\"schema\":{\"type\":\"string\"}}]}"},
    {GRAMMAR_PARTS,
     "{\"any\":[{\"free\":[\"zz\"]},{\"schema\":{\"type\":\"string\",\"maxLength\":9}}]}"},
    {GRAMMAR_PARTS,
     "{\"sequence\":[{\"free\":[\"name\"]},{\"repeat\":{\"sequence\":[{\"text\":\"name\"},"
     "{\"schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":"
     "12}}},\"spaced\":true},{\"free\":[\"name\"]}]}}]}"},
    {GRAMMAR_PARTS, "{\"sequence\":[{\"free\":[\"x-\"]},{\"text\":\"x-\"},{\"schema\":{\"type\":"
                    "\"array\",\"items\":"
                    "{\"type\":\"string\"}},\"whitespace\":true},{\"pattern\":\"[a-z]*\"}]}"},
    {GRAMMAR_SCHEMA, "{}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\"}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"maxLength\":1}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"maxLength\":9}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"minLength\":3,\"maxLength\":12}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"minLength\":20,\"maxLength\":34}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"maxLength\":60}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"minLength\":5}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"maxLength\":12,\"pattern\":\"^[a-z]\"}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[a-z][a-z0-9_]{2,15}$\"}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[a-z]{3,30}$\"}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[a-zA-Z0-9]{1,12}-[a-z]+$\"}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^.{3}x*$\"}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[\\\\s\\\\S]{2,5}x+$\"}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[a-z \xC3\xA8]*$\"}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"[0-9]\"}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"format\":\"email\"}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"format\":\"date-time\"}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"format\":\"uri\"}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"format\":\"hostname\"}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"format\":\"uuid\"}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"integer\",\"minimum\":-120,\"maximum\":4200}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"number\",\"multipleOf\":0.25,\"minimum\":0}"},
    {GRAMMAR_SCHEMA, "{\"type\":[\"number\",\"null\",\"boolean\"]}"},
    {GRAMMAR_SCHEMA, "{\"enum\":[\"a\",\"name\",\"names\",7,42,null,[1,\"x\"]]}"},
    {GRAMMAR_SCHEMA, "{\"not\":{\"enum\":[\"name\",\"names\",\"zz\"]},\"type\":\"string\"}"},
    {GRAMMAR_SCHEMA, "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":4},{\"type\":\"string\","
                     "\"pattern\":\"^(name|zz)+$\"}]}"},
    {GRAMMAR_SCHEMA,
     "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":10},{\"const\":\"aaaaaaaaaaaaaa"
     "aaaaaa\"}]}"},
    {GRAMMAR_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":20},\"x\":{"
     "\"type\":\"integer\"}},\"required\":[\"name\"],\"additionalProperties\":false}"},
    {GRAMMAR_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"integer\"},\"bc\":{}},"
     "\"patternProperties\":{\"^x-\":{\"type\":\"boolean\"},\"f.o\":{\"type\":\"null\"}},"
     "\"additionalProperties\":{\"type\":\"null\"}}"},
    {GRAMMAR_SCHEMA,
     "{\"type\":\"object\",\"propertyNames\":{\"maxLength\":6},\"maxProperties\":2}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"object\",\"properties\":{\"abcdef\":{},\"abcxyz\":{},\"name\":{},"
                     "\"names\":{},\"zzname\":{},\"zzz\":{},\"x_axis\":{},\"x_name\":{}},"
                     "\"additionalProperties\":{\"type\":\"string\"},\"required\":[\"zzz\"]}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"array\",\"uniqueItems\":true}"},
    {GRAMMAR_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":3},"
                     "\"uniqueItems\":true,\"maxItems\":4}"},
    {GRAMMAR_SCHEMA, "{\"items\":{\"enum\":[\"a\",\"abc\",\"zz\",7]},\"uniqueItems\":true,\"type\":"
                     "\"array\"}"},
    {GRAMMAR_SCHEMA,
     "{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}},"
     "\"contains\":{\"const\":[]}}"},
    {GRAMMAR_JSON, ""},
    {GRAMMAR_REGEX, "(a|b)*a(a|b){12}"},
    {GRAMMAR_REGEX, "[a-z ]{2,30}[.!]?"},
    {GRAMMAR_REGEX, "[^\\n]*\\n"},
    {GRAMMAR_CHOICE, "[\"name\",\"names\",\"a name\",\"\xC3\xA9\",\"7\"]"},
    {GRAMMAR_GBNF,
     "root ::= item (\",\" item)*\nitem ::= [a-z]+ | \"[\" root \"]\" | [0-9]{1,3}\n"},
};

static struct grammar *compile(const struct source *s, bool is_spaced) {
    const struct grammar_options options = {.kind = s->kind, .whitespace = is_spaced};
    struct grammar *g = NULL;
    struct grammar_refusal why;
    if (grammar_compile(str_of(s->text), &options, &g, &why) != ST_OK)
        fail_msg("%s: refused at %s: %s", s->text, why.path, why.err.text);
    return g;
}

static bool plain_fits(const struct matcher *m, uint32_t token) {
    struct matcher copy = matcher_copy(m);
    bool fits = tokens[token].len && matcher_accept(&copy, tokens[token], NULL);
    assert_int_equal(matcher_status(&copy, NULL), ST_OK);
    matcher_release(&copy);
    return fits;
}

/* Compares the mask of `fast` with the plain walk of `plain`, and picks a token that may follow;
 * TOKENS: none may. Longer tokens are preferred, or most walks would be short. */
static uint32_t compare_and_pick(struct matcher *fast, const struct matcher *plain,
                                 const struct vocabulary *v, struct rng *rng, const char *where) {
    static uint64_t mask[(TOKENS + 63) / 64];
    uint32_t picked = TOKENS, seen = 0;
    matcher_mask(fast, v, mask);
    assert_int_equal(matcher_status(fast, NULL), ST_OK);
    for (uint32_t i = 0; i < TOKENS; i++) {
        bool fits = plain_fits(plain, i);
        if ((mask[i >> 6] >> (i & 63) & 1) != fits)
            fail_msg("%s: token %u \"%.*s\" may%s follow, state %u", where, i, (int)tokens[i].len,
                     tokens[i].ptr, fits ? "" : " not", fast->state);
        if (fits && rng_below(rng, ++seen) == 0) picked = i;
    }
    return picked;
}

static void walk(const struct source *s, bool is_spaced, uint64_t seed,
                 const struct vocabulary *v) {
    struct grammar *a = compile(s, is_spaced), *b = compile(s, is_spaced);
    struct matcher fast = matcher_init(a), plain = matcher_init(b);
    struct rng rng = {.seed = seed};
    for (int step = 0; step < STEPS; step++) {
        uint32_t token = compare_and_pick(&fast, &plain, v, &rng, s->text);
        if (token == TOKENS) { /* the text is whole: begin again */
            matcher_release(&fast);
            matcher_release(&plain);
            fast = matcher_init(a);
            plain = matcher_init(b);
            continue;
        }
        assert_true(matcher_accept(&fast, tokens[token], NULL));
        assert_true(matcher_accept(&plain, tokens[token], NULL));
        assert_int_equal(matcher_is_complete(&fast), matcher_is_complete(&plain));
        if (step % COLLECT_EVERY == COLLECT_EVERY - 1) tables_collect(a);
    }
    matcher_release(&fast);
    matcher_release(&plain);
    grammar_destroy(a);
    grammar_destroy(b);
}

static void test_masks_are_those_of_the_plain_walk(void **state) {
    (void)state;
    struct vocabulary *v = NULL;
    make_tokens();
    assert_int_equal(vocabulary_create(tokens, TOKENS, &v), ST_OK);
    for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); i++)
        for (uint64_t seed = 0; seed < WALKS; seed++)
            walk(&sources[i], seed % 2 == 1, 100 * i + seed, v);
    vocabulary_destroy(v);
}

/* Only where the quote must follow do the texts by length say all. */
static void test_a_length_is_a_limit_only_before_the_quote(void **state) {
    (void)state;
    struct budget budget = {.bytes_max = 1 << 20, .states_max = 1000};
    struct expr_pool *p = expr_pool_create(&budget);
    const expr_id item = expr_range(p, 'a', 'z'), few = expr_repeat(p, item, 1, 5);
    const expr_id quote = expr_range(p, '"', '"'), other = expr_range(p, '"', '#');
    const expr_id many = expr_repeat(p, item, 0, EXPR_NO_MAX);
    assert_true(expr_room_ends(p, expr_concat(p, few, quote), item, '"'));
    assert_true(expr_room_ends(p, expr_concat(p, few, expr_literal(p, STR("\":"))), item, '"'));
    assert_false(expr_room_ends(p, expr_concat(p, few, other), item, '"'));
    assert_false(expr_room_ends(p, expr_concat(p, few, expr_literal(p, STR("x\""))), item, '"'));
    assert_false(expr_room_ends(p, expr_concat(p, many, quote), item, '"'));
    assert_false(expr_room_ends(p, expr_concat(p, few, quote), other, '"'));
    assert_false(expr_room_ends(p, few, item, '"'));
    expr_pool_destroy(p);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_masks_are_those_of_the_plain_walk),
        cmocka_unit_test(test_a_length_is_a_limit_only_before_the_quote),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
