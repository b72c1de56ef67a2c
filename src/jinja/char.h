/* jinja/char.h - the properties of single characters, as in Python; for this folder only.
 *
 * Categories and simple case mappings come from utf8proc. What it does not have (mappings to
 * several characters, the digit and case properties outside the categories) is in tables.
 */
#ifndef JINJA_CHAR_H
#define JINJA_CHAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct buf;

bool jinja_char_is_space(uint32_t code);
bool jinja_char_is_alpha(uint32_t code);
bool jinja_char_is_decimal(uint32_t code);
bool jinja_char_is_digit(uint32_t code);
bool jinja_char_is_numeric(uint32_t code);
bool jinja_char_is_alnum(uint32_t code);
bool jinja_char_is_lower(uint32_t code);
bool jinja_char_is_upper(uint32_t code);
bool jinja_char_is_title(uint32_t code);
bool jinja_char_is_cased(uint32_t code);
bool jinja_char_is_printable(uint32_t code);

/* Append the upper, lower or title case of one character, which may be several. */
void jinja_put_upper(struct buf *out, uint32_t code);
void jinja_put_title(struct buf *out, uint32_t code);
void jinja_put_casefold(struct buf *out, uint32_t code);
/* Lower case looks around a capital sigma: `whole` is the text, `offset` its place. */
void jinja_put_lower(struct buf *out, struct str whole, size_t offset, uint32_t code);

struct str jinja_str_strip_space(struct str s, bool left, bool right); /* Unicode white space */
/* The character that ends at `end` (> 0), and where it starts. */
size_t jinja_utf8_before(struct str s, size_t end, uint32_t *code);

#endif
