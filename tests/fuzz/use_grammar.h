/* tests/fuzz/use_grammar.h - compile any bytes as a grammar, then read any bytes with it.
 *
 * The input is a source, a NUL byte and a text; without a NUL there is no text. Limits are small,
 * so that inputs stay quick and states are forgotten often. Masks are compared with the matcher for
 * each byte while the tables are small. */
#ifndef TESTS_FUZZ_USE_GRAMMAR_H
#define TESTS_FUZZ_USE_GRAMMAR_H

#include <string.h>

#include "base/check.h"
#include "grammar/grammar.h"

enum { COMPARED_BYTES = 400000 };

static void fuzz_text(struct grammar *g, struct str text) {
    static const char bytes[] = "{}[]\",:0123456789abcdexyz\\ntrufls- .<>/_\n\xFF";
    struct str tokens[sizeof(bytes)];
    struct vocabulary *v = NULL;
    char forced[16];
    uint32_t count = sizeof(bytes) - 1;
    for (uint32_t i = 0; i < count; i++) tokens[i] = (struct str){bytes + i, 1};
    if (vocabulary_create(tokens, count, &v) != ST_OK) return;
    struct matcher m = matcher_init(g);
    for (size_t i = 0; i < text.len && i < 40; i++) {
        uint64_t mask[1] = {0};
        matcher_mask(&m, v, mask);
        size_t len = matcher_forced(&m, forced, sizeof(forced));
        if (matcher_status(&m, NULL) != ST_OK) break;
        struct matcher ahead = matcher_copy(&m);
        CHECK(matcher_accept(&ahead, (struct str){forced, len}, NULL) ||
              matcher_status(&ahead, NULL) != ST_OK);
        matcher_release(&ahead);
        for (uint32_t k = 0; k < count && grammar_bytes(g) < COMPARED_BYTES; k++) {
            struct matcher copy = matcher_copy(&m);
            bool fits = matcher_accept(&copy, tokens[k], NULL);
            CHECK(matcher_status(&copy, NULL) != ST_OK || fits == (mask[0] >> k & 1));
            matcher_release(&copy);
        }
        if (!matcher_accept(&m, str_take(str_skip(text, i), 1), NULL)) break;
    }
    vocabulary_destroy(v);
}

static int fuzz_grammar(enum grammar_kind kind, const uint8_t *data, size_t size) {
    const struct grammar_options options = {
        .kind = kind, .time_us = 200000, .bytes_max = 1 << 20, .states_max = 20000};
    struct str input = {(const char *)data, size};
    const char *nul = size ? memchr(data, 0, size) : NULL;
    struct str source = nul ? str_take(input, (size_t)(nul - input.ptr)) : input;
    struct str text = nul ? str_skip(input, source.len + 1) : STR("");
    struct grammar *g = NULL;
    struct grammar_refusal why;
    if (grammar_compile(source, &options, &g, &why) != ST_OK) {
        CHECK(why.err.text[0] != 0);
        return 0;
    }
    fuzz_text(g, text);
    grammar_destroy(g);
    return 0;
}

#endif
