/* What the tests of grammars share: compiling, and asking whether a text is accepted. */
#ifndef TESTS_UNIT_GRAMMAR_GRAMMAR_LIB_H
#define TESTS_UNIT_GRAMMAR_GRAMMAR_LIB_H

#include <string.h>

#include "grammar/grammar.h"

static inline struct grammar *compile_or_fail(enum grammar_kind kind, const char *source) {
    const struct grammar_options options = {.kind = kind};
    struct grammar *g = NULL;
    struct grammar_refusal why;
    if (grammar_compile(str_of(source), &options, &g, &why) != ST_OK)
        fail_msg("%s: refused at %s: %s", source, why.path, why.err.text);
    return g;
}

static inline bool accepts(struct grammar *g, const char *text) {
    struct matcher m = matcher_init(g);
    bool is_accepted = matcher_accept(&m, str_of(text), NULL) && matcher_is_complete(&m);
    matcher_release(&m);
    return is_accepted;
}

/* One source, texts that it accepts and texts that it does not, each list ended by NULL. */
struct accept_case {
    const char *source;
    const char *yes[10], *no[10];
};

static inline void check_cases(enum grammar_kind kind, const struct accept_case *cases,
                               size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct grammar *g = compile_or_fail(kind, cases[i].source);
        for (const char *const *t = cases[i].yes; *t; t++)
            if (!accepts(g, *t)) fail_msg("%s does not accept %s", cases[i].source, *t);
        for (const char *const *t = cases[i].no; *t; t++)
            if (accepts(g, *t)) fail_msg("%s accepts %s", cases[i].source, *t);
        grammar_destroy(g);
    }
}

#endif
