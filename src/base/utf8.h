/* base/utf8.h - reading and writing UTF-8, strictly.
 *
 * Overlong forms, surrogates and values past U+10FFFF are errors. A bad sequence is as long
 * as its longest valid prefix (at least one byte), the rule that Unicode recommends and that
 * Python, Rust and browsers follow, so that replacement counts agree with theirs.
 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

struct buf;

enum { UTF8_BAD = 0x110000, UTF8_CUT = 0x110001 }; /* what utf8_decode gives for a bad one */

/* Decode the character at the start of `s` (not empty); returns its length in bytes. For bytes
 * that are wrong *code is UTF8_BAD; for a sequence that the end of `s` cuts short but that is
 * right so far, UTF8_CUT. */
size_t utf8_decode(struct str s, uint32_t *code);

static inline bool utf8_is_bad(uint32_t code) { return code >= UTF8_BAD; }

/* Write `code` (a valid one) to out[0..4); returns 1..4. */
size_t utf8_encode(uint32_t code, char out[4]);

bool utf8_is_valid(struct str s);
size_t utf8_count(struct str s); /* characters; a bad sequence counts as one */

/* Append `s` with every bad sequence replaced by U+FFFD. */
void utf8_put_lossy(struct buf *out, struct str s);

/* The longest prefix of `s` that does not end inside a character that more bytes could
 * complete: what may be shown now when more is to come. */
size_t utf8_complete_len(struct str s);

#endif
