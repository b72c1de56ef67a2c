/* base/cursor.c - see base/cursor.h for the contract. */
#include "base/cursor.h"

#include <string.h>

struct cursor cursor_of(const void *bytes, size_t len) {
    return (struct cursor){.base = bytes, .len = len};
}

size_t cursor_left(const struct cursor *c) { return c->failed ? 0 : c->len - c->pos; }

struct str cursor_bytes(struct cursor *c, size_t len) {
    if (c->failed || len > c->len - c->pos) {
        c->failed = true;
        return STR("");
    }
    struct str bytes = {len ? (const char *)c->base + c->pos : "", len};
    c->pos += len;
    return bytes;
}

void cursor_skip(struct cursor *c, size_t len) { (void)cursor_bytes(c, len); }

static uint64_t read_le(struct cursor *c, size_t len) {
    struct str bytes = cursor_bytes(c, len);
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.len; i++) value |= (uint64_t)(uint8_t)bytes.ptr[i] << (8 * i);
    return value;
}

uint8_t cursor_u8(struct cursor *c) { return (uint8_t)read_le(c, 1); }
uint16_t cursor_u16(struct cursor *c) { return (uint16_t)read_le(c, 2); }
uint32_t cursor_u32(struct cursor *c) { return (uint32_t)read_le(c, 4); }
uint64_t cursor_u64(struct cursor *c) { return read_le(c, 8); }

float cursor_f32(struct cursor *c) {
    uint32_t bits = cursor_u32(c);
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

double cursor_f64(struct cursor *c) {
    uint64_t bits = cursor_u64(c);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}
