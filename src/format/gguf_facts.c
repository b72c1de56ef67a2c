/* format/gguf_facts.c - the keys and values at the head of a GGUF file.
 *
 * Values stay in the mapped file and are read at each call of a getter. Opening builds a map from
 * key to position, and for each list of strings a table of the strings' positions, so that every
 * item is found in constant time.
 *
 * Entry points: gguf_read_facts, gguf_facts_value, gguf_facts_item, gguf_facts_deinit.
 */
#include <inttypes.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/size.h"
#include "format/format_int.h"
#include "format/limits.h"

enum value_type {
    VALUE_U8,
    VALUE_I8,
    VALUE_U16,
    VALUE_I16,
    VALUE_U32,
    VALUE_I32,
    VALUE_F32,
    VALUE_BOOL,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_U64,
    VALUE_I64,
    VALUE_F64,
    VALUE_COUNT
};

static const struct {
    const char *name;
    uint32_t bytes_min; /* of one value; of a string: the minimum */
    enum meta_type kind;
} value_types[VALUE_COUNT] = {
    [VALUE_U8] = {"u8", 1, META_INT},         [VALUE_I8] = {"i8", 1, META_INT},
    [VALUE_U16] = {"u16", 2, META_INT},       [VALUE_I16] = {"i16", 2, META_INT},
    [VALUE_U32] = {"u32", 4, META_INT},       [VALUE_I32] = {"i32", 4, META_INT},
    [VALUE_F32] = {"f32", 4, META_REAL},      [VALUE_BOOL] = {"bool", 1, META_BOOL},
    [VALUE_STRING] = {"string", 8, META_STR}, [VALUE_LIST] = {"list", 12, META_LIST},
    [VALUE_U64] = {"u64", 8, META_INT},       [VALUE_I64] = {"i64", 8, META_INT},
    [VALUE_F64] = {"f64", 8, META_REAL},
};

struct gguf_fact {
    struct str key;
    enum value_type type, item_type; /* item_type: of a list */
    uint64_t count;                  /* items of a list */
    struct str bytes;                /* the value, or the items, in the file */
    uint32_t *starts;                /* heap; list of strings: where in `bytes` each begins */
};

void gguf_facts_deinit(struct gguf_facts *fs) {
    for (size_t i = 0; i < fs->count; i++) mem_free(fs->facts[i].starts);
    mem_free(fs->facts);
    map_destroy(fs->keys);
}

/* ---- Getting facts ---- */

static int64_t sign_extend(uint64_t value, uint32_t bytes) {
    uint32_t unused = 64 - 8 * bytes;
    return (int64_t)(value << unused) >> unused;
}

static uint64_t read_le(struct cursor *c, uint32_t bytes) {
    switch (bytes) {
    case 1:
        return cursor_u8(c);
    case 2:
        return cursor_u16(c);
    case 4:
        return cursor_u32(c);
    default:
        return cursor_u64(c);
    }
}

/* The value of `type` at the cursor, which lies in bytes that were checked at open. */
static void read_value(struct cursor *c, enum value_type type, struct meta_value *out) {
    *out = (struct meta_value){.kind = value_types[type].kind};
    switch (type) {
    case VALUE_F32:
        out->real = (double)cursor_f32(c);
        break;
    case VALUE_F64:
        out->real = cursor_f64(c);
        break;
    case VALUE_BOOL:
        out->truth = cursor_u8(c) != 0;
        break;
    case VALUE_STRING:
        out->text = cursor_bytes(c, (size_t)cursor_u64(c));
        break;
    case VALUE_I8:
    case VALUE_I16:
    case VALUE_I32:
    case VALUE_I64: {
        uint32_t bytes = value_types[type].bytes_min;
        int64_t value = sign_extend(read_le(c, bytes), bytes);
        out->negative = value < 0;
        out->whole = (uint64_t)value;
        break;
    }
    default:
        out->whole = read_le(c, value_types[type].bytes_min);
        break;
    }
    CHECK(!c->failed);
}

static const struct gguf_fact *facts_find(const struct gguf_facts *fs, struct str key) {
    uint32_t idx;
    return map_find(fs->keys, key, &idx) ? &fs->facts[idx] : NULL;
}

bool gguf_facts_value(const struct gguf_facts *fs, struct str key, struct meta_value *out) {
    const struct gguf_fact *fact = facts_find(fs, key);
    if (!fact) return false;
    if (fact->type == VALUE_LIST) {
        *out = (struct meta_value){.kind = META_LIST,
                                   .item_kind = value_types[fact->item_type].kind,
                                   .count = fact->count,
                                   .node = fact};
        return true;
    }
    struct cursor c = cursor_of(fact->bytes.ptr, fact->bytes.len);
    read_value(&c, fact->type, out);
    return true;
}

void gguf_facts_item(const struct meta_value *list, uint64_t i, struct meta_value *out) {
    const struct gguf_fact *fact = list->node;
    CHECK(i < fact->count);
    struct cursor c = cursor_of(fact->bytes.ptr, fact->bytes.len);
    size_t start =
        fact->starts ? fact->starts[i] : (size_t)i * value_types[fact->item_type].bytes_min;
    cursor_skip(&c, start);
    read_value(&c, fact->item_type, out);
}

struct str gguf_facts_key(const struct gguf_facts *fs, size_t i) {
    CHECK(i < fs->count);
    return fs->facts[i].key;
}

void gguf_put_number(struct buf *out, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) buf_put_char(out, (char)(value >> (8 * i) & 255));
}

void gguf_facts_put(const struct gguf_facts *fs, size_t i, struct buf *out) {
    CHECK(i < fs->count);
    const struct gguf_fact *fact = &fs->facts[i];
    gguf_put_number(out, fact->key.len, 8);
    buf_put_str(out, fact->key);
    gguf_put_number(out, fact->type, 4);
    if (fact->type == VALUE_LIST) {
        gguf_put_number(out, fact->item_type, 4);
        gguf_put_number(out, fact->count, 8);
    }
    buf_put_str(out, fact->bytes);
}

/* ---- Reading the keys ---- */

static enum status bad_key(const struct gguf_part *p, struct str key, const char *what,
                           struct err *err) {
    return err_set(err, ST_BAD, "%s: key %.*s: %s", p->path, STR_ARG(key), what);
}

static enum status key_cut_short(const struct gguf_part *p, struct str key, struct err *err) {
    return bad_key(p, key, "the file ends inside its value, so it is cut short", err);
}

/* Skip one string. False, without a message: it is too long or ends after the file. */
static bool skip_string(struct cursor *c) {
    uint64_t bytes = cursor_u64(c);
    if (bytes > LIMIT_GGUF_STRING_BYTES) return false;
    cursor_skip(c, (size_t)bytes);
    return !c->failed;
}

static enum status bad_string(const struct gguf_part *p, struct str key, struct err *err) {
    if (p->c.failed) return key_cut_short(p, key, err);
    return err_set(err, ST_BAD, "%s: key %.*s: a string of more than %d bytes", p->path,
                   STR_ARG(key), LIMIT_GGUF_STRING_BYTES);
}

static enum status check_bools(const struct gguf_part *p, const struct gguf_fact *fact,
                               struct err *err) {
    for (size_t i = 0; i < fact->bytes.len; i++)
        if ((uint8_t)fact->bytes.ptr[i] > 1)
            return bad_key(p, fact->key, "a boolean that is neither 0 nor 1", err);
    return ST_OK;
}

/* The items of a list of strings, noting where each begins. */
static enum status read_strings(struct gguf_part *p, struct gguf_fact *fact, struct err *err) {
    p->facts.string_count += fact->count;
    if (p->facts.string_count > LIMIT_GGUF_LIST_STRINGS)
        return err_set(err, ST_BAD,
                       "%s: key %.*s: the lists up to it have %" PRIu64
                       " strings, at most %d are read",
                       p->path, STR_ARG(fact->key), p->facts.string_count, LIMIT_GGUF_LIST_STRINGS);
    fact->starts = mem_alloc_array((size_t)fact->count, sizeof(fact->starts[0]));
    if (!fact->starts) return no_memory(p->path, err);
    size_t begin = p->c.pos;
    for (uint64_t i = 0; i < fact->count; i++) {
        size_t start = p->c.pos - begin;
        if (start > UINT32_MAX) return bad_key(p, fact->key, "a list of more than 4 GiB", err);
        fact->starts[i] = (uint32_t)start;
        if (!skip_string(&p->c)) return bad_string(p, fact->key, err);
    }
    fact->bytes = (struct str){(const char *)p->c.base + begin, p->c.pos - begin};
    return ST_OK;
}

static enum status check_value_type(const struct gguf_part *p, struct str key, uint32_t type,
                                    const char *what, struct err *err) {
    if (type < VALUE_COUNT) return ST_OK;
    return err_set(err, ST_BAD, "%s: key %.*s: %s type %" PRIu32 ", expected 0 to %d", p->path,
                   STR_ARG(key), what, type, VALUE_COUNT - 1);
}

static enum status read_list(struct gguf_part *p, struct gguf_fact *fact, struct err *err) {
    uint32_t item_type = cursor_u32(&p->c);
    fact->count = cursor_u64(&p->c);
    if (p->c.failed) return key_cut_short(p, fact->key, err);
    TRY(check_value_type(p, fact->key, item_type, "list item", err));
    if (item_type == VALUE_LIST) return bad_key(p, fact->key, "a list of lists is not read", err);
    fact->item_type = (enum value_type)item_type;
    if (fact->count > LIMIT_GGUF_LIST_ITEMS)
        return err_set(err, ST_BAD,
                       "%s: key %.*s: a list of %" PRIu64 " items, at most %d are read", p->path,
                       STR_ARG(fact->key), fact->count, LIMIT_GGUF_LIST_ITEMS);
    size_t bytes;
    if (!size_mul((size_t)fact->count, value_types[item_type].bytes_min, &bytes) ||
        bytes > cursor_left(&p->c))
        return key_cut_short(p, fact->key, err);
    if (item_type == VALUE_STRING) return read_strings(p, fact, err);
    fact->bytes = cursor_bytes(&p->c, bytes);
    return item_type == VALUE_BOOL ? check_bools(p, fact, err) : ST_OK;
}

static enum status read_scalar(struct gguf_part *p, struct gguf_fact *fact, struct err *err) {
    size_t begin = p->c.pos;
    if (fact->type == VALUE_STRING) {
        if (!skip_string(&p->c)) return bad_string(p, fact->key, err);
    } else {
        cursor_skip(&p->c, value_types[fact->type].bytes_min);
    }
    if (p->c.failed) return key_cut_short(p, fact->key, err);
    fact->bytes = (struct str){(const char *)p->c.base + begin, p->c.pos - begin};
    return fact->type == VALUE_BOOL ? check_bools(p, fact, err) : ST_OK;
}

bool gguf_read_name(struct cursor *c, size_t bytes_max, struct str *out) {
    uint64_t bytes = cursor_u64(c);
    if (c->failed || bytes > bytes_max) return false;
    *out = cursor_bytes(c, (size_t)bytes);
    return !c->failed && name_is_sound(*out, bytes_max);
}

static enum status read_fact(struct gguf_part *p, struct gguf_fact *fact, struct err *err) {
    if (!gguf_read_name(&p->c, LIMIT_GGUF_KEY_BYTES, &fact->key))
        return err_set(err, ST_BAD,
                       "%s: key %zu of %" PRIu64 ": its name is %s, expected 1 to %d bytes of "
                       "printable UTF-8",
                       p->path, p->facts.count, p->key_count,
                       p->c.failed ? "cut short" : "too long or not text", LIMIT_GGUF_KEY_BYTES);
    if (facts_find(&p->facts, fact->key))
        return bad_key(p, fact->key, "is there twice, expected each key once", err);
    uint32_t type = cursor_u32(&p->c);
    if (p->c.failed) return key_cut_short(p, fact->key, err);
    TRY(check_value_type(p, fact->key, type, "value", err));
    fact->type = (enum value_type)type;
    return type == VALUE_LIST ? read_list(p, fact, err) : read_scalar(p, fact, err);
}

enum status gguf_read_facts(struct gguf_part *p, struct err *err) {
    struct gguf_facts *fs = &p->facts;
    fs->facts = mem_zalloc_array((size_t)p->key_count, sizeof(fs->facts[0]));
    fs->keys = map_create((size_t)p->key_count);
    if (!fs->facts || !fs->keys) return no_memory(p->path, err);
    for (uint32_t i = 0; i < p->key_count; i++) {
        struct gguf_fact *fact = &fs->facts[fs->count];
        enum status st = read_fact(p, fact, err);
        fs->count++; /* also one that was read in part: its table must be freed */
        if (st != ST_OK) return st;
        if (map_put(fs->keys, fact->key, i) != ST_OK) return no_memory(p->path, err);
    }
    return ST_OK;
}
