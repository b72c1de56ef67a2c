/* grammar/chars.c - ranges of characters as byte sequences.
 *
 * A range whose ends have UTF-8 forms of one length is cut where a continuation byte wraps, until
 * each piece is a sequence of independent byte ranges: U+0800..U+FFFF becomes E0 A0-BF 80-BF and
 * E1-EF 80-BF 80-BF.
 */
#include "grammar/chars.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"

enum { SURROGATE_LOW = 0xD800, SURROGATE_HIGH = 0xDFFF, TEXT_BYTES_MAX = 1 << 26, FEW_RANGES = 16 };

static void tidy(struct code_set *s) {
    for (uint32_t i = 1; i < s->count; i++) {
        for (uint32_t j = i; j > 0 && s->ranges[j - 1].low > s->ranges[j].low; j--) {
            uint32_t low = s->ranges[j].low, high = s->ranges[j].high;
            s->ranges[j] = s->ranges[j - 1];
            s->ranges[j - 1].low = low;
            s->ranges[j - 1].high = high;
        }
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        if (kept && s->ranges[i].low <= s->ranges[kept - 1].high + 1) {
            if (s->ranges[i].high > s->ranges[kept - 1].high)
                s->ranges[kept - 1].high = s->ranges[i].high;
        } else {
            s->ranges[kept++] = s->ranges[i];
        }
    }
    s->count = kept;
}

void code_set_add(struct code_set *s, uint32_t low, uint32_t high) {
    if (s->count == CODE_SET_MAX) tidy(s);
    if (s->count == CODE_SET_MAX) {
        s->is_full = true;
        return;
    }
    s->ranges[s->count].low = low;
    s->ranges[s->count++].high = high;
}

void code_set_add_set(struct code_set *s, const struct code_set *more) {
    for (uint32_t i = 0; i < more->count; i++)
        code_set_add(s, more->ranges[i].low, more->ranges[i].high);
    s->is_full |= more->is_full;
}

void code_set_negate(struct code_set *s) {
    tidy(s);
    struct code_set out;
    code_set_clear(&out);
    out.is_full = s->is_full;
    uint32_t next = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->ranges[i].low > next) code_set_add(&out, next, s->ranges[i].low - 1);
        next = s->ranges[i].high + 1;
    }
    if (next <= CODE_MAX) code_set_add(&out, next, CODE_MAX);
    s->count = out.count;
    s->is_full = out.is_full;
    memcpy(s->ranges, out.ranges, out.count * sizeof(*out.ranges));
}

void code_set_fold(struct code_set *s) {
    uint32_t count = s->count;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t c = 'A'; c <= 'Z'; c++) {
            uint32_t low = s->ranges[i].low, high = s->ranges[i].high, small = c + 32;
            if (low <= c && c <= high) code_set_add(s, small, small);
            if (low <= small && small <= high) code_set_add(s, c, c);
        }
    }
    tidy(s);
}

/* Byte ranges, one for each place of a sequence of `len` bytes. */
static expr_id sequence(struct expr_pool *p, const char *low, const char *high, size_t len) {
    expr_id e = EXPR_EMPTY;
    for (size_t i = len; i > 0; i--)
        e = expr_concat(p, expr_range(p, (uint8_t)low[i - 1], (uint8_t)high[i - 1]), e);
    return e;
}

/* The first code above `low` where a cut is needed, or `high` + 1: all continuation bytes behind
 * the first that differs must run over their whole range. */
static uint32_t piece_end(uint32_t low, uint32_t high) {
    for (uint32_t bits = 18; bits >= 6; bits -= 6) {
        uint32_t mask = (UINT32_C(1) << bits) - 1;
        if ((low & ~mask) == (high & ~mask)) continue;
        if (low & mask) return piece_end(low, low | mask);
        if ((high & mask) != mask) return piece_end(low, (high & ~mask) - 1);
        return high;
    }
    return high;
}

static expr_id utf8_range(struct expr_pool *p, uint32_t low, uint32_t high) {
    static const uint32_t ends[] = {0x7F,           0x7FF,  SURROGATE_LOW - 1,
                                    SURROGATE_HIGH, 0xFFFF, CODE_MAX};
    expr_id all = EXPR_NONE;
    while (low <= high) {
        uint32_t i = 0;
        while (low > ends[i]) i++;
        uint32_t end = high < ends[i] ? high : ends[i];
        if (ends[i] == SURROGATE_HIGH) {
            low = end + 1;
            continue;
        }
        end = piece_end(low, end);
        char first[4], last[4];
        size_t len = utf8_encode(low, first);
        utf8_encode(end, last);
        all = expr_or(p, all, sequence(p, first, last, len));
        low = end + 1;
    }
    return all;
}

static bool is_escaped(uint32_t code) { return code < 0x20 || code == '"' || code == '\\'; }

/* The part of a range that JSON writes as it is, and the rest escaped. */
static expr_id json_range(struct expr_pool *p, uint32_t low, uint32_t high) {
    expr_id all = EXPR_NONE;
    for (uint32_t c = low; c <= high && c <= '\\'; c++) {
        if (!is_escaped(c)) continue;
        char byte = (char)c;
        all = expr_or(p, all, chars_text(p, (struct str){&byte, 1}, SPELL_JSON));
    }
    while (low <= high) {
        if (is_escaped(low)) {
            low++;
            continue;
        }
        uint32_t end = low < '"' ? '"' - 1 : low < '\\' ? '\\' - 1 : CODE_MAX;
        if (end > high) end = high;
        all = expr_or(p, all, utf8_range(p, low, end));
        low = end + 1;
    }
    return all;
}

/* Characters whose UTF-8 forms share their first bytes: 2 to the power of `bits` from `start`. */
struct block {
    struct expr_pool *pool;
    const struct code_set *set; /* in order */
    uint32_t low;               /* characters below have shorter forms */
    uint32_t start, bits;
    uint32_t first; /* no range before this one is in the block */
};

enum { CONTINUATION_BITS = 6, CONTINUATIONS = 64 };

static expr_id block_expr(struct block b);

/* `count` blocks, each behind one byte from `byte`; bytes with the same rest are joined. */
static expr_id blocks_expr(struct block b, uint8_t byte, uint32_t count) {
    struct byte_set sets[CONTINUATIONS];
    expr_id rests[CONTINUATIONS], all[CONTINUATIONS];
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct block part = b;
        part.start += i << b.bits;
        const expr_id rest = block_expr(part);
        if (rest == EXPR_NONE) continue;
        uint32_t at = 0;
        while (at < used && rests[at] != rest) at++;
        if (at == used) {
            sets[used] = (struct byte_set){0};
            rests[used++] = rest;
        }
        byte_set_add(&sets[at], (uint8_t)(byte + i), (uint8_t)(byte + i));
    }
    for (uint32_t i = 0; i < used; i++)
        all[i] = expr_concat(b.pool, expr_bytes(b.pool, &sets[i]), rests[i]);
    return expr_or_all(b.pool, all, used);
}

/* The continuation bytes of a block. Recursion: once for each of them, at most three. */
static expr_id block_expr(struct block b) {
    const uint32_t end = b.start + (UINT32_C(1) << b.bits) - 1, bytes = b.bits / CONTINUATION_BITS;
    while (b.first < b.set->count && b.set->ranges[b.first].high < b.start) b.first++;
    if (b.first == b.set->count || b.set->ranges[b.first].low > end || end < b.low)
        return EXPR_NONE;
    if (b.start >= SURROGATE_LOW && end <= SURROGATE_HIGH) return EXPR_NONE;
    if (bytes == 0) return EXPR_EMPTY;
    const bool is_whole = b.set->ranges[b.first].low <= b.start && b.start >= b.low &&
                          b.set->ranges[b.first].high >= end;
    if (is_whole && (end < SURROGATE_LOW || b.start > SURROGATE_HIGH))
        return expr_repeat(b.pool, expr_range(b.pool, 0x80, 0xBF), bytes, bytes);
    b.bits -= CONTINUATION_BITS;
    return blocks_expr(b, 0x80, CONTINUATIONS);
}

/* The characters from U+0080 of a set of many ranges, as a tree of their bytes. */
static expr_id tree_expr(struct expr_pool *p, const struct code_set *s) {
    const struct block two = {.pool = p, .set = s, .low = 0x80, .bits = 6};
    const struct block three = {.pool = p, .set = s, .low = 0x800, .bits = 12};
    const struct block four = {.pool = p, .set = s, .low = 0x10000, .bits = 18};
    return expr_or_all(p,
                       (expr_id[]){blocks_expr(two, 0xC0, 32), blocks_expr(three, 0xE0, 16),
                                   blocks_expr(four, 0xF0, 5)},
                       3);
}

expr_id chars_expr(struct expr_pool *p, const struct code_set *s, enum spelling spelling) {
    expr_id all = EXPR_NONE;
    const bool is_tree = s->count > FEW_RANGES;
    if (is_tree) {
        struct code_set sorted = *s;
        tidy(&sorted);
        all = tree_expr(p, &sorted);
    }
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t low = s->ranges[i].low, high = s->ranges[i].high;
        if (is_tree && high > 0x7F) high = 0x7F;
        if (low > high) continue;
        all = expr_or(p, all,
                      spelling == SPELL_JSON ? json_range(p, low, high) : utf8_range(p, low, high));
    }
    return all;
}

expr_id chars_any(struct expr_pool *p, enum spelling spelling) {
    return spelling == SPELL_JSON ? json_range(p, 0, CODE_MAX) : utf8_range(p, 0, CODE_MAX);
}

void chars_spell_json(struct buf *out, struct str text) {
    static const char shorts[] = "btnvfr"; /* of 8 to 13; JSON has no \\v */
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = (uint8_t)text.ptr[i];
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c >= 8 && c <= 13 && c != 11)
            buf_printf(out, "\\%c", shorts[c - 8]);
        else if (c < 0x20)
            buf_printf(out, "\\u%04x", c);
        else
            buf_put_char(out, (char)c);
    }
}

expr_id chars_text(struct expr_pool *p, struct str text, enum spelling spelling) {
    if (spelling == SPELL_UTF8) return expr_literal(p, text);
    struct buf b;
    buf_init(&b, TEXT_BYTES_MAX);
    chars_spell_json(&b, text);
    expr_id e = expr_literal(p, buf_str(&b));
    if (buf_status(&b) != ST_OK) e = EXPR_NONE;
    buf_deinit(&b);
    return e;
}
