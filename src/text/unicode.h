/* text/unicode.h - properties of characters, and GPT-2's printable alphabet for bytes. */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

struct buf;

bool uc_is_space(uint32_t c); /* White_Space */
bool uc_is_letter(uint32_t c);
bool uc_is_number(uint32_t c); /* Nd, Nl, No */
bool uc_is_punct(uint32_t c);  /* ASCII punctuation and symbols, and P* elsewhere */
bool uc_is_word(uint32_t c);   /* letters, marks, digits, connectors: \w */
bool uc_is_mark(uint32_t c);   /* Mn, Mc, Me */
bool uc_is_mark_nonspacing(uint32_t c);
bool uc_is_other(uint32_t c); /* Cc, Cf, Co, Cs, Cn */
bool uc_is_cjk(uint32_t c);   /* what BERT calls a Chinese character */

/* The next character of valid text at *pos, which moves on. */
uint32_t uc_next(struct str text, size_t *pos);
void uc_put(struct buf *out, uint32_t c);

/* GPT-2's alphabet: a printable character for every byte. */
uint32_t byte_char(uint8_t byte);
int char_byte(uint32_t c); /* -1 if `c` represents no byte */
void byte_chars_put(struct buf *out, struct str bytes);
/* The bytes that a piece represents; false, and nothing is put, if a character represents none. */
bool byte_chars_decode(struct buf *out, struct str piece);
int byte_of_spelling(struct str piece); /* "<0xE2>" gives 0xE2; -1 if it is not one */

#endif
