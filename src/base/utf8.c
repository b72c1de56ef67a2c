/* base/utf8.c - see base/utf8.h for the contract. */
#include "base/utf8.h"

#include "base/buf.h"
#include "base/check.h"

/* The second byte's range is what excludes overlong forms, surrogates and values too large;
 * later bytes are plain continuations. */
struct lead {
    uint8_t len;
    uint8_t second_min, second_max;
    uint8_t bits; /* payload of the lead byte */
};

static struct lead lead_of(uint8_t b) {
    if (b < 0xC2) return (struct lead){0, 0, 0, 0}; /* continuation, or overlong 2-byte form */
    if (b < 0xE0) return (struct lead){2, 0x80, 0xBF, b & 0x1F};
    if (b == 0xE0) return (struct lead){3, 0xA0, 0xBF, 0};
    if (b == 0xED) return (struct lead){3, 0x80, 0x9F, 0x0D};
    if (b < 0xF0) return (struct lead){3, 0x80, 0xBF, b & 0x0F};
    if (b == 0xF0) return (struct lead){4, 0x90, 0xBF, 0};
    if (b < 0xF4) return (struct lead){4, 0x80, 0xBF, b & 0x07};
    if (b == 0xF4) return (struct lead){4, 0x80, 0x8F, 0x04};
    return (struct lead){0, 0, 0, 0};
}

size_t utf8_decode(struct str s, uint32_t *code) {
    DCHECK(s.len > 0);
    uint8_t first = (uint8_t)s.ptr[0];
    if (first < 0x80) {
        *code = first;
        return 1;
    }
    struct lead lead = lead_of(first);
    *code = UTF8_BAD;
    if (lead.len == 0) return 1;
    uint32_t value = lead.bits;
    for (size_t i = 1; i < lead.len; i++) {
        if (i == s.len) {
            *code = UTF8_CUT;
            return i;
        }
        uint8_t b = (uint8_t)s.ptr[i];
        uint8_t min = i == 1 ? lead.second_min : 0x80;
        uint8_t max = i == 1 ? lead.second_max : 0xBF;
        if (b < min || b > max) return i;
        value = value << 6 | (b & 0x3F);
    }
    *code = value;
    return lead.len;
}

size_t utf8_encode(uint32_t code, char out[4]) {
    CHECK(code < UTF8_BAD);
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

bool utf8_is_valid(struct str s) {
    while (s.len) {
        uint32_t code;
        size_t len = utf8_decode(s, &code);
        if (utf8_is_bad(code)) return false;
        s = str_skip(s, len);
    }
    return true;
}

size_t utf8_count(struct str s) {
    size_t count = 0;
    for (uint32_t code; s.len; count++) s = str_skip(s, utf8_decode(s, &code));
    return count;
}

void utf8_put_lossy(struct buf *out, struct str s) {
    while (s.len) {
        uint32_t code;
        size_t len = utf8_decode(s, &code);
        if (utf8_is_bad(code))
            buf_put(out, "\xEF\xBF\xBD", 3);
        else
            buf_put(out, s.ptr, len);
        s = str_skip(s, len);
    }
}

size_t utf8_complete_len(struct str s) {
    size_t back = s.len < 3 ? s.len : 3;
    for (size_t i = 1; i <= back; i++) {
        uint8_t b = (uint8_t)s.ptr[s.len - i];
        if ((b & 0xC0) == 0x80) continue;
        uint32_t code;
        utf8_decode(str_skip(s, s.len - i), &code);
        return code == UTF8_CUT ? s.len - i : s.len;
    }
    return s.len;
}
