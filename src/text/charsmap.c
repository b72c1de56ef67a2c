/* text/charsmap.c - SentencePiece's compiled table of replacements.
 *
 * The blob is: u32 bytes of the double array; that many bytes of u32 units; then the
 * replacements, each ended by a NUL. A unit packs (darts-clone): label in bits 0-7 and bit 31,
 * "has a leaf" in bit 8, the offset to the children in bits 10-30, shifted by 8 more when bit
 * 9 is set. A leaf's value (bits 0-30) is where its replacement starts.
 *
 * The array comes from a file: every index is checked before it is followed.
 */
#include <string.h>

#include "base/cursor.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/text_int.h"

struct charsmap {
    uint32_t *units;
    size_t unit_count;
    char *texts; /* NUL after the last byte */
    size_t texts_len;
};

void charsmap_destroy(struct charsmap *m) {
    if (!m) return;
    mem_free(m->units);
    mem_free(m->texts);
    mem_free(m);
}

static enum status fill(struct charsmap *m, struct cursor *c) {
    m->units = mem_alloc_array(m->unit_count + 1, sizeof(m->units[0]));
    if (!m->units) return ST_NOMEM;
    for (size_t i = 0; i < m->unit_count; i++) m->units[i] = cursor_u32(c);
    m->texts_len = cursor_left(c);
    struct str texts = cursor_bytes(c, m->texts_len);
    m->texts = mem_dup(texts.ptr, texts.len);
    return m->texts ? ST_OK : ST_NOMEM;
}

enum status charsmap_create(struct str blob, struct charsmap **out, struct err *err) {
    struct cursor c = cursor_of(blob.ptr, blob.len);
    uint32_t bytes = cursor_u32(&c);
    if (c.failed || bytes > cursor_left(&c) || bytes % 4 != 0 || bytes == 0)
        return err_set(err, ST_BAD, "precompiled_charsmap: its table does not fit in %zu bytes",
                       blob.len);
    struct charsmap *m = mem_zalloc(sizeof(*m));
    if (!m) return ST_NOMEM;
    m->unit_count = bytes / 4;
    enum status st = fill(m, &c);
    if (st == ST_OK && !utf8_is_valid((struct str){m->texts, m->texts_len}))
        st = err_set(err, ST_BAD, "precompiled_charsmap: its texts are not UTF-8");
    if (st != ST_OK) {
        charsmap_destroy(m);
        return st;
    }
    *out = m;
    return ST_OK;
}

static uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

/* Walk along `text`; for each entry that ends, its length and value are kept. */
static size_t walk(const struct charsmap *m, struct str text, bool longest, uint32_t *value) {
    size_t found = 0, node = offset_of(m->units[0]);
    for (size_t i = 0; i < text.len; i++) {
        uint8_t byte = (uint8_t)text.ptr[i];
        if (byte == 0) break;
        node ^= byte;
        if (node >= m->unit_count) break;
        uint32_t unit = m->units[node];
        if ((unit & (1u << 31 | 0xFF)) != byte) break;
        node ^= offset_of(unit);
        if (node >= m->unit_count) break;
        if (unit >> 8 & 1) {
            *value = m->units[node] & 0x7FFFFFFF;
            found = i + 1;
            if (!longest) break;
        }
    }
    return found;
}

static size_t look_up(const struct charsmap *m, struct str text, bool longest, struct str *with) {
    uint32_t value = 0;
    size_t len = walk(m, text, longest, &value);
    if (!len || value >= m->texts_len) return 0;
    /* An entry may point inside a character only in a damaged file. */
    if (((uint8_t)m->texts[value] & 0xC0) == 0x80) return 0;
    *with = str_of(m->texts + value);
    return len;
}

size_t charsmap_longest(const struct charsmap *m, struct str text, struct str *with) {
    return look_up(m, text, true, with);
}

size_t charsmap_shortest(const struct charsmap *m, struct str text, struct str *with) {
    return look_up(m, text, false, with);
}
