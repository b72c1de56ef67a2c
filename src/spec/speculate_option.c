/* spec/speculate_option.c - see spec/speculate_option.h for the contract. */
#include "spec/speculate_option.h"

#include <stdio.h>
#include <string.h>

#include "spec/drafter.h"

/* Measured in src/spec/README.md. */
enum { NGRAM_MIN_DEFAULT = 2, NGRAM_MAX_DEFAULT = 4 };

/* Names are corrected if at most this many letters are wrong. */
enum { TYPO_LETTERS_MAX = 3, NAMES_BYTES = 256 };

static const char name_off[] = "off", name_model[] = "model";

struct speculate_option speculate_option_default(void) {
    return (struct speculate_option){.ngram_min = NGRAM_MIN_DEFAULT,
                                     .ngram_max = NGRAM_MAX_DEFAULT};
}

/* The name with this index in the order of --help; NULL behind the last. */
static const char *name_at(uint32_t index) {
    uint32_t drafter_count = 0;
    while (drafters[drafter_count]) drafter_count++;
    if (index == 0) return name_off;
    if (index <= drafter_count) return drafters[index - 1]->name;
    return index == drafter_count + 1 ? name_model : NULL;
}

static enum status say_unknown(struct str name, struct err *err) {
    char known[NAMES_BYTES] = "", hint[64] = "";
    uint32_t best_distance = TYPO_LETTERS_MAX;
    for (uint32_t i = 0; name_at(i); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", name_at(i));
        uint32_t distance = str_distance(name, str_of(name_at(i)));
        if (distance >= best_distance) continue;
        best_distance = distance;
        snprintf(hint, sizeof(hint), "did you mean '%s'? ", name_at(i));
    }
    return err_set(err, ST_BAD, "--speculate: unknown name '%.*s'; %sknown: %s", STR_ARG(name),
                   hint, known);
}

/* "MIN-MAX", or "N" for both. */
static enum status parse_ngram(struct str text, struct speculate_option *out, struct err *err) {
    const char *dash = text.len ? memchr(text.ptr, '-', text.len) : NULL;
    size_t len = dash ? (size_t)(dash - text.ptr) : text.len;
    uint64_t min, max;
    if (!str_to_u64(str_take(text, len), &min) ||
        !str_to_u64(dash ? str_skip(text, len + 1) : text, &max))
        return err_set(err, ST_BAD, "--speculate ngram: '%.*s' is not MIN-MAX, for example 2-4",
                       STR_ARG(text));
    if (min < 1 || min > max || max > SPECULATE_NGRAM_LIMIT)
        return err_set(err, ST_BAD,
                       "--speculate ngram: '%.*s' is out of range, expected 1 <= MIN <= MAX <= %d",
                       STR_ARG(text), SPECULATE_NGRAM_LIMIT);
    out->ngram_min = (uint32_t)min;
    out->ngram_max = (uint32_t)max;
    return ST_OK;
}

static const struct drafter *find_drafter(struct str name) {
    for (const struct drafter *const *d = drafters; *d; d++)
        if (str_is(name, (*d)->name)) return *d;
    return NULL;
}

enum status speculate_option_parse(struct str text, struct speculate_option *out, struct err *err) {
    struct speculate_option o = speculate_option_default();
    const char *colon = text.len ? memchr(text.ptr, ':', text.len) : NULL;
    size_t len = colon ? (size_t)(colon - text.ptr) : text.len;
    struct str name = str_take(text, len), options = str_skip(text, colon ? len + 1 : len);
    o.drafter = find_drafter(name);
    if (str_is(name, name_model)) {
        if (options.len == 0 || memchr(options.ptr, 0, options.len))
            return err_set(err, ST_BAD,
                           "--speculate model: no path of a model; expected model:PATH");
        o.kind = SPECULATE_MODEL;
        o.path = options;
    } else if (o.drafter) {
        o.kind = SPECULATE_TEXT;
    } else if (!str_is(name, name_off)) {
        return say_unknown(name, err);
    }
    if (colon && str_is(name, "ngram"))
        TRY(parse_ngram(options, &o, err));
    else if (colon && o.kind != SPECULATE_MODEL)
        return err_set(err, ST_BAD, "--speculate %.*s: takes no options, but ':%.*s' was given",
                       STR_ARG(name), STR_ARG(options));
    *out = o;
    return ST_OK;
}

bool speculate_option_find(struct str name, struct speculate_option *out) {
    struct speculate_option o = {.drafter = find_drafter(name)};
    if (o.drafter)
        o.kind = SPECULATE_TEXT;
    else if (str_is(name, name_model))
        o.kind = SPECULATE_MODEL;
    else if (!str_is(name, name_off))
        return false;
    *out = o;
    return true;
}
