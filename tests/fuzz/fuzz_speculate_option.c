/* tests/fuzz/fuzz_speculate_option.c - any bytes as the text of --speculate.
 *
 * What is accepted has one meaning and is within its ranges; what is not has a sentence. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "spec/drafter.h"
#include "spec/speculate_option.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct speculate_option *o, struct str text) {
    if ((o->kind == SPECULATE_TEXT) != (o->drafter != NULL)) abort();
    if ((o->kind == SPECULATE_MODEL) != (o->path.len > 0)) abort();
    if (o->ngram_min < 1 || o->ngram_min > o->ngram_max) abort();
    if (o->ngram_max > SPECULATE_NGRAM_LIMIT) abort();
    if (o->kind == SPECULATE_OFF && !str_is(text, "off")) abort();
    if (o->drafter && !str_starts(text, str_of(o->drafter->name))) abort();
    if (o->path.len > 0 && !str_ends(text, o->path)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct str text = {(const char *)data, size};
    struct speculate_option o = speculate_option_default();
    struct err err = {0};
    enum status st = speculate_option_parse(text, &o, &err);
    if (st == ST_OK)
        check(&o, text);
    else if (st != ST_BAD || !err.text[0] || o.kind != SPECULATE_OFF)
        abort();
    return 0;
}
