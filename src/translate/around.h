/* translate/around.h - the tokens that a tokenizer puts around a text. */
#ifndef TRANSLATE_AROUND_H
#define TRANSLATE_AROUND_H

#include <stdbool.h>

#include "base/status.h"
#include "text/tokenizer.h"

struct around {
    token_id before, after; /* or TOKEN_NONE */
    bool has_more;          /* than one before, or one behind: the two are those at the ends */
};

/* ST_NOMEM without a sentence. */
enum status around_find(const struct tokenizer *t, struct around *out);

#endif
