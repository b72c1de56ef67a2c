/* unit/api/tokenizer_fixture.h - the tokenizer of api_lib.h for all cases of a program. */
#ifndef UNIT_API_TOKENIZER_FIXTURE_H
#define UNIT_API_TOKENIZER_FIXTURE_H

#include "unit/api/api_lib.h"

static struct tokenizer *tokenizer;

static int set_up(void **state) {
    (void)state;
    tokenizer = lib_tokenizer();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    tokenizer_destroy(tokenizer);
    return 0;
}

#endif
