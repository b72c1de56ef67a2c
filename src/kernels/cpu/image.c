/* kernels/cpu/image.c - see kernels/cpu/image.h for the format. */
#include "kernels/cpu/image.h"

#include <string.h>
#include <xxhash.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/cursor.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/size.h"
#include "kernels/cpu/pack.h"

enum {
    MAGIC_BYTES = 8,
    CHECKSUM_AT = 72,
    ENTRIES_MAX = 1 << 20,
    ENTRY_BYTES_MIN = 2 + 1 + 3 * 4 + 3 * 8, /* without its names */
};

static const char MAGIC[MAGIC_BYTES + 1] = "JITNEYPK";

/* The first bytes of a head, as they lie there. */
struct fixed {
    struct str magic, table;
    uint32_t version, layout, panel_rows, byte_order, entry_count, key_bytes;
    uint64_t entries_bytes, data_offset, file_bytes, checksum;
};

struct image {
    struct image_entry *entries; /* heap */
    struct map *names;           /* name -> index in entries */
    uint32_t count;
};

static uint32_t byte_order(void) {
    const uint16_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    return first ? 1 : 2;
}

static struct fixed read_fixed(struct cursor *c) {
    struct fixed f = {.magic = cursor_bytes(c, MAGIC_BYTES)};
    f.version = cursor_u32(c);
    f.layout = cursor_u32(c);
    f.panel_rows = cursor_u32(c);
    f.byte_order = cursor_u32(c);
    f.table = cursor_bytes(c, IMAGE_TABLE_BYTES);
    f.entry_count = cursor_u32(c);
    f.key_bytes = cursor_u32(c);
    f.entries_bytes = cursor_u64(c);
    f.data_offset = cursor_u64(c);
    f.file_bytes = cursor_u64(c);
    f.checksum = cursor_u64(c);
    return f;
}

/* ---- refusing ---- */

static enum status check_maker(const struct fixed *f, struct err *err) {
    if (!str_eq(f->magic, str_of(MAGIC))) return err_set(err, ST_BAD, "is no image of weights");
    if (f->version != IMAGE_VERSION)
        return err_set(err, ST_BAD, "has format %u, expected %d", f->version, IMAGE_VERSION);
    if (f->layout != PACK_LAYOUT_VERSION)
        return err_set(err, ST_BAD, "has layout %u, expected %d", f->layout, PACK_LAYOUT_VERSION);
    if (f->panel_rows != PANEL_ROWS)
        return err_set(err, ST_BAD, "has panels of %u rows, expected %d", f->panel_rows,
                       PANEL_ROWS);
    if (f->byte_order != byte_order())
        return err_set(err, ST_BAD, "was made by a machine with another byte order");
    return ST_OK;
}

static enum status check_sizes(const struct fixed *f, uint64_t file_bytes, size_t *head_bytes,
                               struct err *err) {
    if (f->file_bytes != file_bytes)
        return err_set(err, ST_BAD, "has %llu bytes, its head says %llu",
                       (unsigned long long)file_bytes, (unsigned long long)f->file_bytes);
    /* Each is bounded first, so that the sum cannot wrap. */
    bool fits = f->key_bytes <= IMAGE_HEAD_BYTES_MAX && f->entries_bytes <= IMAGE_HEAD_BYTES_MAX &&
                f->entry_count <= ENTRIES_MAX &&
                (uint64_t)f->entry_count * ENTRY_BYTES_MIN <= f->entries_bytes;
    uint64_t bytes = IMAGE_FIXED_BYTES + (uint64_t)f->key_bytes + f->entries_bytes;
    fits = fits && bytes <= IMAGE_HEAD_BYTES_MAX && bytes <= f->data_offset;
    if (!fits || f->data_offset > file_bytes || f->data_offset % IMAGE_DATA_ALIGN)
        return err_set(err, ST_BAD, "has a head whose sizes cannot be");
    *head_bytes = (size_t)bytes;
    return ST_OK;
}

enum status image_head_bytes(struct str fixed, uint64_t file_bytes, size_t *out, struct err *err) {
    struct cursor c = cursor_of(fixed.ptr, fixed.len);
    struct fixed f = read_fixed(&c);
    if (c.failed) return err_set(err, ST_BAD, "ends within its head");
    TRY(check_maker(&f, err));
    return check_sizes(&f, file_bytes, out, err);
}

/* Of the head without the eight bytes that hold it. */
static uint64_t head_checksum(struct str head) {
    uint64_t front = XXH3_64bits(head.ptr, CHECKSUM_AT);
    struct str rest = str_skip(head, IMAGE_FIXED_BYTES);
    return XXH3_64bits_withSeed(rest.ptr, rest.len, front);
}

/* The name without the zeros behind it. */
static struct str table_name(struct str field) {
    struct str name = field;
    while (name.len && name.ptr[name.len - 1] == 0) name.len--;
    return name;
}

/* ---- entries ---- */

static enum status bad_entry(struct err *err, uint32_t i, const char *what) {
    return err_set(err, ST_BAD, "has an entry, number %u, %s", i, what);
}

/* `end` is where the entry before ends; this one's end comes back. */
static enum status read_entry(struct cursor *c, uint32_t i, const struct fixed *f, uint64_t *end,
                              struct image_entry *out, struct err *err) {
    out->name = cursor_bytes(c, cursor_u16(c));
    struct str type = cursor_bytes(c, cursor_u8(c));
    out->rows = cursor_u32(c);
    out->cols = cursor_u32(c);
    out->experts = cursor_u32(c);
    out->offset = cursor_u64(c);
    out->bytes = cursor_u64(c);
    out->checksum = cursor_u64(c);
    if (c->failed) return bad_entry(err, i, "that is cut off");
    if (out->name.len == 0) return bad_entry(err, i, "without a name");
    if (!dtype_find(type, &out->type)) return bad_entry(err, i, "of an unknown number format");
    if (out->offset % IMAGE_ENTRY_ALIGN || out->offset < *end || out->offset > f->file_bytes ||
        out->bytes > f->file_bytes - out->offset)
        return bad_entry(err, i, "whose bytes lie elsewhere");
    *end = out->offset + out->bytes;
    return ST_OK;
}

static enum status read_entries(struct image *image, struct cursor *c, const struct fixed *f,
                                struct err *err) {
    uint64_t end = f->data_offset;
    for (uint32_t i = 0; i < f->entry_count; i++) {
        uint32_t other;
        TRY(read_entry(c, i, f, &end, &image->entries[i], err));
        if (map_find(image->names, image->entries[i].name, &other))
            return bad_entry(err, i, "that is there twice");
        if (map_put(image->names, image->entries[i].name, i) != ST_OK)
            return err_set(err, ST_NOMEM, "out of memory");
        image->count++;
    }
    return cursor_left(c) ? err_set(err, ST_BAD, "has more in its head than entries") : ST_OK;
}

static enum status make_image(struct cursor *c, const struct fixed *f, struct image **out,
                              struct err *err) {
    struct image *image = mem_zalloc(sizeof(*image));
    if (!image) return err_set(err, ST_NOMEM, "out of memory");
    image->entries =
        mem_zalloc_array(f->entry_count ? f->entry_count : 1, sizeof(image->entries[0]));
    image->names = map_create(f->entry_count);
    enum status st = image->entries && image->names ? read_entries(image, c, f, err)
                                                    : err_set(err, ST_NOMEM, "out of memory");
    if (st == ST_OK)
        *out = image;
    else
        image_destroy(image);
    return st;
}

enum status image_parse(struct str head, uint64_t file_bytes, const struct image_ident *id,
                        struct image **out, struct err *err) {
    size_t head_bytes;
    TRY(image_head_bytes(head, file_bytes, &head_bytes, err));
    if (head.len != head_bytes) return err_set(err, ST_BAD, "ends within its head");
    struct cursor c = cursor_of(head.ptr, head.len);
    struct fixed f = read_fixed(&c);
    if (f.checksum != head_checksum(head))
        return err_set(err, ST_BAD, "has a head with another checksum than it says");
    if (!str_eq(table_name(f.table), id->table))
        return err_set(err, ST_BAD, "was made for the instruction set %.*s",
                       STR_ARG(table_name(f.table)));
    if (!str_eq(cursor_bytes(&c, f.key_bytes), id->key))
        return err_set(err, ST_BAD, "was made of other files");
    return make_image(&c, &f, out, err);
}

void image_destroy(struct image *image) {
    if (!image) return;
    map_destroy(image->names);
    mem_free(image->entries);
    mem_free(image);
}

const struct image_entry *image_find(const struct image *image, struct str name) {
    uint32_t i;
    return map_find(image->names, name, &i) ? &image->entries[i] : NULL;
}

uint32_t image_count(const struct image *image) { return image->count; }

/* ---- making ---- */

static uint64_t round_up(uint64_t v, uint64_t step) { return (v + step - 1) / step * step; }

static uint64_t entries_bytes(const struct image_entry *entries, uint32_t count) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += ENTRY_BYTES_MIN + entries[i].name.len + strlen(dtype_info(entries[i].type)->name);
    return bytes;
}

static uint64_t data_offset(const struct image_entry *entries, uint32_t count,
                            const struct image_ident *id) {
    return round_up(IMAGE_FIXED_BYTES + id->key.len + entries_bytes(entries, count),
                    IMAGE_DATA_ALIGN);
}

uint64_t image_lay_out(struct image_entry *entries, uint32_t count, const struct image_ident *id) {
    uint64_t end = data_offset(entries, count, id);
    for (uint32_t i = 0; i < count; i++) {
        entries[i].offset = round_up(end, IMAGE_ENTRY_ALIGN);
        end = entries[i].offset + entries[i].bytes;
    }
    return end;
}

static void put_number(struct buf *out, uint64_t v, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i++) buf_put_char(out, (char)(uint8_t)(v >> 8 * i));
}

static void put_entry(struct buf *out, const struct image_entry *e) {
    struct str type = str_of(dtype_info(e->type)->name);
    CHECK(e->name.len <= UINT16_MAX);
    put_number(out, e->name.len, 2);
    buf_put_str(out, e->name);
    put_number(out, type.len, 1);
    buf_put_str(out, type);
    put_number(out, e->rows, 4);
    put_number(out, e->cols, 4);
    put_number(out, e->experts, 4);
    put_number(out, e->offset, 8);
    put_number(out, e->bytes, 8);
    put_number(out, e->checksum, 8);
}

void image_put_head(struct buf *out, const struct image_entry *entries, uint32_t count,
                    const struct image_ident *id, uint64_t file_bytes) {
    static const char zeros[IMAGE_TABLE_BYTES];
    CHECK(id->table.len < IMAGE_TABLE_BYTES);
    CHECK(out->len == 0);
    buf_put(out, MAGIC, MAGIC_BYTES);
    put_number(out, IMAGE_VERSION, 4);
    put_number(out, PACK_LAYOUT_VERSION, 4);
    put_number(out, PANEL_ROWS, 4);
    put_number(out, byte_order(), 4);
    buf_put_str(out, id->table);
    buf_put(out, zeros, IMAGE_TABLE_BYTES - id->table.len);
    put_number(out, count, 4);
    put_number(out, id->key.len, 4);
    put_number(out, entries_bytes(entries, count), 8);
    put_number(out, data_offset(entries, count, id), 8);
    put_number(out, file_bytes, 8);
    put_number(out, 0, 8);
    buf_put_str(out, id->key);
    for (uint32_t i = 0; i < count; i++) put_entry(out, &entries[i]);
    if (buf_status(out) != ST_OK) return;
    uint64_t checksum = head_checksum(buf_str(out));
    for (uint32_t i = 0; i < 8; i++) out->ptr[CHECKSUM_AT + i] = (char)(uint8_t)(checksum >> 8 * i);
}
