/* text/unicode.c - properties of characters, and GPT-2's printable alphabet for bytes.
 *
 * The properties are those that the `tokenizers` package uses, from utf8proc's tables.
 */
#include <string.h>

#include <utf8proc.h>

#include "base/check.h"
#include "base/utf8.h"
#include "text/text_int.h"

static utf8proc_category_t category(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c); }

bool uc_is_space(uint32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
    if (c == 0x85 || c == 0xA0 || c == 0x1680 || c == 0x3000) return true;
    if (c < 0x2000 || c > 0x205F) return false;
    return c <= 0x200A || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F;
}

bool uc_is_letter(uint32_t c) {
    if (c < 0x80) return (c | 32) >= 'a' && (c | 32) <= 'z';
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool uc_is_number(uint32_t c) {
    if (c < 0x80) return c >= '0' && c <= '9';
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

bool uc_is_punct(uint32_t c) {
    if (c < 0x80) return c > 32 && c < 127 && !uc_is_letter(c) && !uc_is_number(c);
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool uc_is_mark(uint32_t c) {
    if (c < 0x300) return false;
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME;
}

bool uc_is_mark_nonspacing(uint32_t c) { return c >= 0x300 && category(c) == UTF8PROC_CATEGORY_MN; }

bool uc_is_other(uint32_t c) {
    if (c < 0x80) return c < 32 || c == 127;
    utf8proc_category_t k = category(c);
    return k == UTF8PROC_CATEGORY_CN || (k >= UTF8PROC_CATEGORY_CC && k <= UTF8PROC_CATEGORY_CO);
}

/* Letters among the symbols: the circled, squared and negative ones are Alphabetic too. */
static bool is_symbol_letter(uint32_t c) {
    return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
           (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool uc_is_word(uint32_t c) {
    if (c < 0x80) return uc_is_letter(c) || uc_is_number(c) || c == '_';
    utf8proc_category_t k = category(c);
    if (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) return true; /* L, M, Nd, Nl */
    return k == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D || is_symbol_letter(c);
}

/* The fifth range begins where the reference implementation has it, not where Unicode does. */
bool uc_is_cjk(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

uint32_t uc_next(struct str text, size_t *pos) {
    uint8_t first = (uint8_t)text.ptr[*pos];
    if (first < 0x80) {
        *pos += 1;
        return first;
    }
    uint32_t code;
    *pos += utf8_decode(str_skip(text, *pos), &code);
    DCHECK(!utf8_is_bad(code));
    return code;
}

void uc_put(struct buf *out, uint32_t c) {
    char bytes[4];
    buf_put(out, bytes, utf8_encode(c, bytes));
}

/* Printable Latin-1 represents itself; the 68 other bytes follow from U+0100 on, in order. */
static bool stands_for_itself(uint32_t c) {
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

uint32_t byte_char(uint8_t byte) {
    if (stands_for_itself(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    if (byte <= 0xA0) return 0x121u + (byte - 0x7Fu);
    return 0x143; /* 0xAD, the soft hyphen */
}

int char_byte(uint32_t c) {
    if (stands_for_itself(c)) return (int)c;
    if (c < 0x100 || c > 0x143) return -1;
    if (c <= 0x120) return (int)(c - 0x100);
    return c == 0x143 ? 0xAD : (int)(c - 0x121 + 0x7F);
}

void byte_chars_put(struct buf *out, struct str bytes) {
    for (size_t i = 0; i < bytes.len; i++) uc_put(out, byte_char((uint8_t)bytes.ptr[i]));
}

bool byte_chars_decode(struct buf *out, struct str piece) {
    for (size_t pos = 0; pos < piece.len;)
        if (char_byte(uc_next(piece, &pos)) < 0) return false;
    for (size_t pos = 0; pos < piece.len;) buf_put_char(out, (char)char_byte(uc_next(piece, &pos)));
    return true;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

int byte_of_spelling(struct str piece) {
    if (piece.len != 6 || memcmp(piece.ptr, "<0x", 3) != 0 || piece.ptr[5] != '>') return -1;
    int high = hex_digit(piece.ptr[3]), low = hex_digit(piece.ptr[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}
