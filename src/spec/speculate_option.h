/* spec/speculate_option.h - the text of --speculate NAME[:OPTIONS] as values.
 *
 *     off              no drafts
 *     ngram            prompt lookup with n-grams of 2 to 4 tokens
 *     ngram:MIN-MAX    the same with other lengths, 1 to SPECULATE_NGRAM_LIMIT
 *     suffix           this text and recent answers of the same tenant
 *     predicted        the text that the client expects (`prediction` of the request)
 *     model:PATH       a small model drafts
 *
 * Thread: any. Memory: none; `path` is borrowed from the text.
 */
#ifndef SPEC_SPECULATE_OPTION_H
#define SPEC_SPECULATE_OPTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

enum { SPECULATE_NGRAM_LIMIT = 8 }; /* the longest n-gram */

enum speculate_kind {
    SPECULATE_OFF,
    SPECULATE_TEXT,  /* `drafter` guesses from text */
    SPECULATE_MODEL, /* the model at `path` guesses */
};

struct drafter; /* spec/drafter.h */

struct speculate_option {
    enum speculate_kind kind;
    const struct drafter *drafter; /* SPECULATE_TEXT; else NULL */
    struct str path;               /* SPECULATE_MODEL; else empty; borrowed */
    /* The defaults unless the text says others. 0, which only speculate_option_find gives: those of
     * the engine's own option. */
    uint32_t ngram_min, ngram_max;
};

/* What `off` gives. */
struct speculate_option speculate_option_default(void);

/* ST_BAD with a sentence; then *out is as before. */
enum status speculate_option_parse(struct str text, struct speculate_option *out, struct err *err);

/* The drafter of this name, with the engine's own options: what a request chooses. False: there is
 * none of this name. A draft model has no path then: it is the engine's. */
bool speculate_option_find(struct str name, struct speculate_option *out);

#endif
