/* base/cursor.h - reading a hostile file from left to right.
 *
 * The one way in which a binary format is read. A cursor never leaves its bytes: the first
 * read that would sets `failed`, and it and all later ones give zeros, so a parser may read a
 * whole record and ask once. Numbers are little-endian.
 *
 * Lifetime: the caller's storage, over bytes that outlive it. Thread: its owner.
 */
#ifndef BASE_CURSOR_H
#define BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

struct cursor {
    const uint8_t *base;
    size_t len, pos;
    bool failed;
};

struct cursor cursor_of(const void *bytes, size_t len);

uint8_t cursor_u8(struct cursor *c);
uint16_t cursor_u16(struct cursor *c);
uint32_t cursor_u32(struct cursor *c);
uint64_t cursor_u64(struct cursor *c);
float cursor_f32(struct cursor *c);
double cursor_f64(struct cursor *c);

/* `len` bytes, borrowed; empty once failed. */
struct str cursor_bytes(struct cursor *c, size_t len);
void cursor_skip(struct cursor *c, size_t len);
size_t cursor_left(const struct cursor *c);

#endif
