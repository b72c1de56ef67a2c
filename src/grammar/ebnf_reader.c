/* grammar/ebnf_reader.c - words, texts and numbers of a grammar's source. */
#include "grammar/ebnf_reader.h"

#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"

int reader_peek(const struct ebnf_reader *r, size_t ahead) {
    return r->at + ahead < r->source.len ? (uint8_t)r->source.ptr[r->at + ahead] : -1;
}

void reader_skip(struct ebnf_reader *r, size_t bytes) {
    for (; bytes > 0 && r->at < r->source.len; bytes--)
        if (r->source.ptr[r->at++] == '\n') r->line++;
}

bool reader_take(struct ebnf_reader *r, const char *text) {
    if (!str_starts(str_skip(r->source, r->at), str_of(text))) return false;
    reader_skip(r, strlen(text));
    return true;
}

enum status reader_refuse(struct ebnf_reader *r, const char *what) {
    return ebnf_refuse(&r->e, r->line, "%s", what);
}

static bool is_word(int c) {
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '-' || c == '_';
}

struct str reader_word(struct ebnf_reader *r) {
    size_t len = 0;
    while (is_word(reader_peek(r, len))) len++;
    struct str word = str_take(str_skip(r->source, r->at), len);
    reader_skip(r, len);
    return word;
}

bool reader_number(struct ebnf_reader *r, uint32_t *out) {
    uint32_t value = 0, digits = 0;
    for (; reader_peek(r, 0) >= '0' && reader_peek(r, 0) <= '9'; reader_skip(r, 1), digits++) {
        if (value <= REPEAT_MAX) value = value * 10 + (uint32_t)(reader_peek(r, 0) - '0');
    }
    *out = value;
    return digits > 0 && value <= REPEAT_MAX;
}

static int hex_value(int c) {
    if (c >= '0' && c <= '9') return c - '0';
    if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
    return -1;
}

static enum status take_code(struct ebnf_reader *r, uint32_t digits, struct buf *out) {
    uint32_t code = 0;
    char bytes[4];
    for (uint32_t i = 0; i < digits; i++) {
        int v = hex_value(reader_peek(r, i));
        if (v < 0) return reader_refuse(r, "expected hexadecimal digits in an escape");
        code = code * 16 + (uint32_t)v;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return reader_refuse(r, "an escape that is not a character");
    reader_skip(r, digits);
    buf_put(out, bytes, utf8_encode(code, bytes));
    return ST_OK;
}

static enum status take_escape(struct ebnf_reader *r, struct buf *out) {
    static const char letters[] = "nrtfv\\\"'/[]-^", meanings[] = "\n\r\t\f\v\\\"'/[]-^";
    int c = reader_peek(r, 0);
    const char *found = c > 0 ? strchr(letters, c) : NULL;
    if (c < 0 || (!found && c != 'x' && c != 'u' && c != 'U'))
        return reader_refuse(r, "an escape that is not known");
    reader_skip(r, 1);
    if (!found) return take_code(r, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    buf_put_char(out, meanings[found - letters]);
    return ST_OK;
}

enum status reader_text(struct ebnf_reader *r, struct buf *out) {
    while (!reader_take(r, "\"")) {
        int c = reader_peek(r, 0);
        if (c < 0 || c == '\n') return reader_refuse(r, "a text in quotes is not closed");
        reader_skip(r, 1);
        if (c == '\\')
            TRY(take_escape(r, out));
        else
            buf_put_char(out, (char)c);
    }
    return buf_status(out);
}
