/* translate/around.c - see translate/around.h for the contract. */
#include "translate/around.h"

#include <string.h>

#include "base/str.h"

static void compare(const struct tokenizer *t, const struct tokens *plain,
                    const struct tokens *whole, struct around *out) {
    size_t at = 0, more = whole->count - plain->count, bytes = plain->count * sizeof(token_id);
    if (plain->count == 0) at = tokenizer_adds_bos(t);
    while (plain->count && at < more && memcmp(whole->ids + at, plain->ids, bytes) != 0) at++;
    *out = (struct around){TOKEN_NONE, TOKEN_NONE, at > 1 || more - at > 1};
    if (at > 0) out->before = whole->ids[0];
    if (more > at) out->after = whole->ids[whole->count - 1];
}

enum status around_find(const struct tokenizer *t, struct around *out) {
    struct tokens plain = {0}, whole = {0};
    const struct encode_options with = {.add_special = true}, without = {0};
    enum status st = tokenizer_encode(t, STR("a"), without, &plain);
    if (st == ST_OK) st = tokenizer_encode(t, STR("a"), with, &whole);
    if (st == ST_OK) compare(t, &plain, &whole, out);
    tokens_deinit(&plain);
    tokens_deinit(&whole);
    return st;
}
