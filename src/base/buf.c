/* base/buf.c - see base/buf.h for the contract. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/utf8.h"

enum { FIRST_CAP = 64 };

void buf_init(struct buf *b, size_t max_bytes) {
    *b = (struct buf){.max = max_bytes, .status = ST_OK};
}

void buf_deinit(struct buf *b) {
    mem_free(b->ptr);
    b->ptr = NULL;
    b->len = b->cap = 0;
}

void buf_clear(struct buf *b) {
    b->len = 0;
    b->status = ST_OK;
    if (b->ptr) b->ptr[0] = 0;
}

/* Room for `extra` bytes and the NUL behind them. */
static bool reserve(struct buf *b, size_t extra) {
    if (b->status != ST_OK) return false;
    size_t need;
    if (!size_add(b->len, extra, &need) || need > b->max) {
        b->status = ST_FULL;
        return false;
    }
    if (need < b->cap) return true;
    size_t cap = b->cap ? b->cap : FIRST_CAP;
    while (cap <= need) cap += cap / 2;
    char *grown = mem_realloc(b->ptr, cap);
    if (!grown) {
        b->status = ST_NOMEM;
        return false;
    }
    b->ptr = grown;
    b->cap = cap;
    return true;
}

void buf_put(struct buf *b, const void *bytes, size_t len) {
    if (!reserve(b, len)) return;
    if (len) memcpy(b->ptr + b->len, bytes, len);
    b->len += len;
    b->ptr[b->len] = 0;
}

void buf_put_char(struct buf *b, char c) { buf_put(b, &c, 1); }

void buf_put_str(struct buf *b, struct str s) { buf_put(b, s.ptr, s.len); }

void buf_put_text(struct buf *b, const char *text) { buf_put(b, text, strlen(text)); }

void buf_printf(struct buf *b, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int need = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    CHECK(need >= 0);
    if (!reserve(b, (size_t)need)) return;
    va_start(args, fmt);
    vsnprintf(b->ptr + b->len, (size_t)need + 1, fmt, args);
    va_end(args);
    b->len += (size_t)need;
}

static bool is_control(uint32_t code) { return code < 0x20 || (code >= 0x7f && code < 0xa0); }

void buf_put_plain(struct buf *b, struct str s) {
    while (s.len) {
        uint32_t code;
        size_t len = utf8_decode(s, &code);
        if (utf8_is_bad(code) || is_control(code))
            buf_put_char(b, '?');
        else
            buf_put(b, s.ptr, len);
        s = str_skip(s, len);
    }
}

/* What some readers take for the end of a line: Python's splitlines, and so its HTTP clients. */
static bool is_line_end(uint32_t code) { return code == 0x85 || code == 0x2028 || code == 0x2029; }

static void put_json_char(struct buf *b, uint32_t code, const char *bytes, size_t len) {
    switch (code) {
    case '"':
        buf_put_text(b, "\\\"");
        return;
    case '\\':
        buf_put_text(b, "\\\\");
        return;
    case '\n':
        buf_put_text(b, "\\n");
        return;
    case '\r':
        buf_put_text(b, "\\r");
        return;
    case '\t':
        buf_put_text(b, "\\t");
        return;
    default:
        break;
    }
    if (code < 0x20 || code == 0x7f || is_line_end(code))
        buf_printf(b, "\\u%04x", code);
    else
        buf_put(b, bytes, len);
}

/* How many bytes at the start of `s` stand for themselves: most of most texts. */
static size_t plain_len(struct str s) {
    size_t len = 0;
    while (len < s.len && s.ptr[len] >= 0x20 && s.ptr[len] < 0x7f && s.ptr[len] != '"' &&
           s.ptr[len] != '\\')
        len++;
    return len;
}

void buf_put_json_inner(struct buf *b, struct str s) {
    while (s.len) {
        size_t plain = plain_len(s);
        if (plain) buf_put(b, s.ptr, plain);
        s = str_skip(s, plain);
        if (!s.len) break;
        uint32_t code;
        size_t len = utf8_decode(s, &code);
        if (utf8_is_bad(code))
            buf_put_text(b, "\xEF\xBF\xBD");
        else
            put_json_char(b, code, s.ptr, len);
        s = str_skip(s, len);
    }
}

void buf_put_json_string(struct buf *b, struct str s) {
    buf_put_char(b, '"');
    buf_put_json_inner(b, s);
    buf_put_char(b, '"');
}

void buf_put_uint(struct buf *b, uint64_t v) {
    char digits[20];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    buf_put(b, digits + at, sizeof(digits) - at);
}

enum status buf_status(const struct buf *b) { return b->status; }

struct str buf_str(const struct buf *b) {
    return (struct str){b->ptr ? b->ptr : "", b->len};
}

const char *buf_text(struct buf *b) { return b->ptr ? b->ptr : ""; }

char *buf_take(struct buf *b, size_t *len) {
    if (!reserve(b, 0)) return NULL;
    char *bytes = b->ptr;
    bytes[b->len] = 0;
    if (len) *len = b->len;
    buf_init(b, b->max);
    return bytes;
}
