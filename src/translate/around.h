/* translate/around.h - the tokens that a tokenizer adds before and after a text. */
#ifndef TRANSLATE_AROUND_H
#define TRANSLATE_AROUND_H

#include <stdbool.h>

#include "base/status.h"
#include "text/tokenizer.h"

struct around {
    token_id before, after; /* or TOKEN_NONE */
    bool has_more; /* several are before or behind it: the two are the first and the last */
};

/* ST_NOMEM without a sentence. */
enum status around_find(const struct tokenizer *t, struct around *out);

#endif
