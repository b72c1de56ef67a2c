/* format/gguf.c - GGUF, versions 2 and 3, little-endian.
 *
 *     "GGUF"  u32 version  u64 tensor count  u64 key count
 *     keys:    string name, u32 type, value       string: u64 bytes, then the bytes
 *     tensors: string name, u32 dims, u64 dim each (fastest first), u32 type, u64 offset
 *     padding to general.alignment (32 unless given), then the data that offsets count from
 *
 * A list is u32 item type, u64 count, items. The keys are read in format/gguf_facts.c.
 *
 * A split model is a set of such files, NAME-00001-of-0000N.gguf and so on, each with its own
 * head; the facts are those of the first, the tensors those of all.
 *
 * Entry points: format_gguf, gguf_open_memory.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/cursor.h"
#include "base/mem.h"
#include "base/size.h"
#include "format/format_int.h"
#include "format/limits.h"

enum {
    KEY_BYTES_MIN = 8 + 1 + 4 + 1,            /* of the shortest key in a file */
    TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8, /* of the shortest tensor record */
    VERSION_MIN = 2,
    VERSION_MAX = 3,
    ALIGNMENT_DEFAULT = 32,
    PATH_BYTES = 4096,
};

/* The tensor types of ggml by number; types that we do not read are here for error messages. */
static const char *const tensor_types[] = {
    "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
    "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
    "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
    "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
    "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
    "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4",    "Q1_0",
};
enum { TENSOR_TYPE_COUNT = sizeof(tensor_types) / sizeof(tensor_types[0]) };

uint32_t gguf_type_number(enum dtype type) {
    uint32_t i = 0;
    while (i < TENSOR_TYPE_COUNT && strcmp(tensor_types[i], dtype_info(type)->name) != 0) i++;
    CHECK(i < TENSOR_TYPE_COUNT); /* every type of ours is in the list */
    return i;
}

static bool gguf_find(const struct model_file *f, struct str key, struct meta_value *out) {
    return gguf_facts_value(f->self, key, out);
}

static void gguf_item(const struct model_file *f, const struct meta_value *list, uint64_t i,
                      struct meta_value *out) {
    (void)f;
    gguf_facts_item(list, i, out);
}

/* ---- Reading the head ---- */

static enum status check_version(const char *path, uint32_t version, struct err *err) {
    if (version >= VERSION_MIN && version <= VERSION_MAX) return ST_OK;
    /* A small number with its bytes in reverse order. */
    if (version >= 1u << 16 && (version & 0xFFFF) == 0)
        return err_set(err, ST_BAD, "%s: a big-endian GGUF, expected a little-endian one", path);
    return err_set(err, ST_BAD, "%s: GGUF version %" PRIu32 ", expected %d or %d", path, version,
                   VERSION_MIN, VERSION_MAX);
}

/* Check a count from the file against its limit and against the bytes that are left. */
static enum status check_count(const struct gguf_part *p, const char *what, uint64_t count,
                               uint64_t limit, uint32_t bytes_min, struct err *err) {
    if (count > limit)
        return err_set(err, ST_BAD, "%s: %" PRIu64 " %s, at most %" PRIu64 " are read", p->path,
                       count, what, limit);
    if (count > cursor_left(&p->c) / bytes_min)
        return err_set(err, ST_BAD,
                       "%s: %" PRIu64 " %s do not fit in the %zu bytes that are left of the file",
                       p->path, count, what, cursor_left(&p->c));
    return ST_OK;
}

static enum status read_head(struct gguf_part *p, struct err *err) {
    struct str magic = cursor_bytes(&p->c, 4);
    if (!str_is(magic, "GGUF"))
        return err_set(err, ST_BAD, "%s: does not begin with GGUF, expected a GGUF file", p->path);
    uint32_t version = cursor_u32(&p->c);
    if (p->c.failed)
        return err_set(err, ST_BAD, "%s: %zu bytes long, cut short inside the GGUF head", p->path,
                       p->c.len);
    TRY(check_version(p->path, version, err));
    p->tensor_count = cursor_u64(&p->c);
    p->key_count = cursor_u64(&p->c);
    if (p->c.failed)
        return err_set(err, ST_BAD, "%s: %zu bytes long, cut short inside the GGUF head", p->path,
                       p->c.len);
    TRY(check_count(p, "keys", p->key_count, LIMIT_GGUF_KEYS, KEY_BYTES_MIN, err));
    return check_count(p, "tensors", p->tensor_count, LIMIT_GGUF_TENSORS, TENSOR_BYTES_MIN, err);
}

static enum status bad_key(const struct gguf_part *p, const char *key, const char *what,
                           struct err *err) {
    return err_set(err, ST_BAD, "%s: key %s: %s", p->path, key, what);
}

static enum status read_alignment(struct gguf_part *p, struct err *err) {
    p->align = ALIGNMENT_DEFAULT;
    struct meta_value v;
    if (!gguf_facts_value(&p->facts, STR("general.alignment"), &v)) return ST_OK;
    bool power = v.whole && (v.whole & (v.whole - 1)) == 0;
    if (v.kind != META_INT || v.negative || !power || v.whole > LIMIT_GGUF_ALIGNMENT)
        return err_set(err, ST_BAD, "%s: key general.alignment: expected a power of two up to %d",
                       p->path, LIMIT_GGUF_ALIGNMENT);
    p->align = v.whole;
    return ST_OK;
}

/* ---- Reading the tensors ---- */

static enum status bad_tensor(const struct gguf_part *p, struct str name, const char *what,
                              struct err *err) {
    return err_set(err, ST_BAD, "%s: tensor %.*s: %s", p->path, STR_ARG(name), what);
}

static enum status read_dims(struct gguf_part *p, struct tensor_info *t, struct err *err) {
    t->dim_count = cursor_u32(&p->c);
    if (p->c.failed) return bad_tensor(p, t->name, "the file ends inside its record", err);
    if (t->dim_count < 1 || t->dim_count > TENSOR_DIMS_MAX)
        return err_set(err, ST_BAD, "%s: tensor %.*s: %" PRIu32 " dims, expected 1 to %d", p->path,
                       STR_ARG(t->name), t->dim_count, TENSOR_DIMS_MAX);
    for (uint32_t i = 0; i < TENSOR_DIMS_MAX; i++) t->dims[i] = 1;
    for (uint32_t i = 0; i < t->dim_count; i++) t->dims[t->dim_count - 1 - i] = cursor_u64(&p->c);
    if (p->c.failed) return bad_tensor(p, t->name, "the file ends inside its record", err);
    for (uint32_t i = 0; i < t->dim_count; i++)
        if (t->dims[i] == 0) return bad_tensor(p, t->name, "a dim is 0, expected 1 or more", err);
    return ST_OK;
}

static enum status read_type(struct gguf_part *p, struct tensor_info *t, struct err *err) {
    uint32_t type = cursor_u32(&p->c);
    if (p->c.failed) return bad_tensor(p, t->name, "the file ends inside its record", err);
    if (type < TENSOR_TYPE_COUNT && dtype_find(str_of(tensor_types[type]), &t->type) &&
        (int)t->type < (int)DTYPE_GGUF_COUNT)
        return ST_OK;
    char known[160] = "";
    size_t used = 0;
    for (int i = 0; i < DTYPE_GGUF_COUNT; i++) {
        int put = snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
                           dtype_info((enum dtype)i)->name);
        if (put > 0) used += (size_t)put;
        CHECK(used < sizeof(known));
    }
    return err_set(err, ST_BAD,
                   "%s: tensor %.*s: type %s (number %" PRIu32 "), which is not read; expected one "
                   "of %s",
                   p->path, STR_ARG(t->name),
                   type < TENSOR_TYPE_COUNT ? tensor_types[type] : "unknown", type, known);
}

/* How many bytes the tensor takes, from its dims and type. */
static enum status size_tensor(const struct gguf_part *p, struct tensor_info *t, struct err *err) {
    const struct dtype_info *info = dtype_info(t->type);
    uint64_t row = t->dims[t->dim_count - 1];
    if (row % info->block_elems != 0)
        return err_set(err, ST_BAD,
                       "%s: tensor %.*s: rows of %" PRIu64
                       " elements, expected a multiple of %" PRIu32 " for %s",
                       p->path, STR_ARG(t->name), row, info->block_elems, info->name);
    size_t elems = 1;
    for (uint32_t i = 0; i < t->dim_count; i++)
        if (t->dims[i] > SIZE_MAX || !size_mul(elems, (size_t)t->dims[i], &elems))
            return bad_tensor(p, t->name, "more elements than can be counted", err);
    if (!dtype_bytes(t->type, elems, &t->bytes))
        return bad_tensor(p, t->name, "more bytes than can be counted", err);
    return ST_OK;
}

/* One record. The extent is relative to the start of the data, which is not known yet. */
static enum status read_tensor(struct gguf_part *p, uint64_t i, struct tensor_info *t,
                               struct extent *extent, struct err *err) {
    if (!gguf_read_name(&p->c, LIMIT_TENSOR_NAME_BYTES, &t->name))
        return err_set(err, ST_BAD,
                       "%s: tensor %" PRIu64 " of %" PRIu64 ": its name is %s, expected 1 to %d "
                       "bytes of printable UTF-8",
                       p->path, i, p->tensor_count,
                       p->c.failed ? "cut short" : "too long or not text", LIMIT_TENSOR_NAME_BYTES);
    TRY(read_dims(p, t, err));
    TRY(read_type(p, t, err));
    uint64_t offset = cursor_u64(&p->c);
    if (p->c.failed) return bad_tensor(p, t->name, "the file ends inside its record", err);
    TRY(size_tensor(p, t, err));
    if (offset % p->align != 0)
        return err_set(err, ST_BAD,
                       "%s: tensor %.*s: offset %" PRIu64 ", expected a multiple of %" PRIu64,
                       p->path, STR_ARG(t->name), offset, p->align);
    *extent = (struct extent){.start = offset, .name = t->name};
    if (__builtin_add_overflow(offset, (uint64_t)t->bytes, &extent->end))
        return bad_tensor(p, t->name, "its end is past the end of any file", err);
    return ST_OK;
}

/* Now that the records are read, the data begins at the next multiple of the alignment: point
 * the tensors added since `first` into it. */
static enum status place_tensors(struct model_file *f, const struct gguf_part *p, size_t first,
                                 const struct extent *extents, struct err *err) {
    size_t start;
    if (!size_round_up(p->c.pos, (size_t)p->align, &start) || start > p->c.len)
        return err_set(err, ST_BAD, "%s: the file ends before the data of its tensors", p->path);
    uint64_t data_bytes = p->c.len - start;
    for (size_t i = 0; i < p->tensor_count; i++) {
        struct tensor_info *t = &f->tensors[first + i];
        if (extents[i].end > data_bytes)
            return err_set(err, ST_BAD,
                           "%s: tensor %.*s: needs bytes %" PRIu64 " to %" PRIu64 " of the data, "
                           "the file has %" PRIu64 "; it is damaged or cut short",
                           p->path, STR_ARG(t->name), extents[i].start, extents[i].end, data_bytes);
        t->data = p->c.base + start + extents[i].start;
    }
    return ST_OK;
}

static enum status read_records(struct model_file *f, struct gguf_part *p, struct extent *extents,
                                struct err *err) {
    size_t first = f->tensor_count;
    for (uint64_t i = 0; i < p->tensor_count; i++) {
        struct tensor_info t = {0};
        TRY(read_tensor(p, i, &t, &extents[i], err));
        TRY(model_file_add(f, p->path, &t, err));
    }
    TRY(place_tensors(f, p, first, extents, err));
    return extents_sort(p->path, extents, (size_t)p->tensor_count, err);
}

static enum status read_tensors(struct model_file *f, struct gguf_part *p, struct err *err) {
    if (p->tensor_count == 0)
        return ST_OK; /* a file with a vocabulary and no tensors may end without padding */
    TRY(model_file_reserve(f, p->path, (size_t)p->tensor_count, err));
    struct extent *extents = mem_alloc_array((size_t)p->tensor_count, sizeof(*extents));
    if (!extents) return no_memory(p->path, err);
    enum status st = read_records(f, p, extents, err);
    mem_free(extents);
    return st;
}

/* ---- Whole files and sets of them ---- */

static enum status read_part(struct model_file *f, struct gguf_part *p, struct err *err) {
    TRY(read_head(p, err));
    TRY(gguf_read_facts(p, err));
    TRY(read_alignment(p, err));
    return read_tensors(f, p, err);
}

/* A fact about the split model; 0 if absent. */
static enum status split_fact(const struct gguf_part *p, const char *key, uint64_t *out,
                              struct err *err) {
    struct meta_value v;
    *out = 0;
    if (!gguf_facts_value(&p->facts, str_of(key), &v)) return ST_OK;
    if (v.kind != META_INT || v.negative || v.whole > INT32_MAX)
        return bad_key(p, key, "expected a small whole number", err);
    *out = v.whole;
    return ST_OK;
}

static enum status read_first(struct model_file *f, struct str bytes, uint64_t *part_count,
                              uint64_t *set_tensors, struct err *err) {
    struct gguf_facts *facts = mem_zalloc(sizeof(*facts));
    if (!facts) return no_memory(f->path, err);
    f->self = facts;
    struct gguf_part p = {.path = f->path, .c = cursor_of(bytes.ptr, bytes.len)};
    enum status st = read_part(f, &p, err);
    *facts = p.facts;
    if (st != ST_OK) return st;

    f->keys = mem_alloc_array(facts->count, sizeof(f->keys[0]));
    if (!f->keys) return no_memory(f->path, err);
    for (size_t i = 0; i < facts->count; i++) f->keys[i] = gguf_facts_key(facts, i);
    f->key_count = facts->count;

    uint64_t number;
    TRY(split_fact(&p, "split.no", &number, err));
    TRY(split_fact(&p, "split.count", part_count, err));
    TRY(split_fact(&p, "split.tensors.count", set_tensors, err));
    if (number != 0)
        return err_set(err, ST_BAD,
                       "%s: part %" PRIu64 " of %" PRIu64 " of a split model, expected the first",
                       f->path, number + 1, *part_count);
    if (*part_count > LIMIT_PARTS)
        return err_set(err, ST_BAD, "%s: key split.count: %" PRIu64 " parts, at most %d are read",
                       f->path, *part_count, LIMIT_PARTS);
    return ST_OK;
}

static enum status check_place(const struct gguf_part *p, uint64_t number, uint64_t part_count,
                               struct err *err) {
    uint64_t own_number, own_count;
    TRY(split_fact(p, "split.no", &own_number, err));
    TRY(split_fact(p, "split.count", &own_count, err));
    if (own_number == number && own_count == part_count) return ST_OK;
    return err_set(err, ST_BAD,
                   "%s: says that it is part %" PRIu64 " of %" PRIu64 ", expected part %" PRIu64
                   " of %" PRIu64,
                   p->path, own_number + 1, own_count, number + 1, part_count);
}

static enum status read_further(struct model_file *f, const char *path, uint64_t number,
                                uint64_t part_count, struct err *err) {
    struct str bytes;
    TRY(model_file_map(f, path, &bytes, err));
    struct gguf_part p = {.path = path, .c = cursor_of(bytes.ptr, bytes.len)};
    enum status st = read_part(f, &p, err);
    if (st == ST_OK) st = check_place(&p, number, part_count, err);
    gguf_facts_deinit(&p.facts);
    return st;
}

/* The path of part `number`: the path of the first part with another number in it. */
static bool part_path(const char *first, uint64_t number, uint64_t part_count, char *out) {
    char suffix[64], other[64];
    snprintf(suffix, sizeof(suffix), "-00001-of-%05" PRIu64 ".gguf", part_count);
    snprintf(other, sizeof(other), "-%05" PRIu64 "-of-%05" PRIu64 ".gguf", number + 1, part_count);
    struct str path = str_of(first);
    if (!str_ends(path, str_of(suffix))) return false;
    struct str stem = str_take(path, path.len - strlen(suffix));
    int need = snprintf(out, PATH_BYTES, "%.*s%s", (int)stem.len, stem.ptr, other);
    return stem.len < PATH_BYTES && need > 0 && need < PATH_BYTES;
}

static enum status gguf_open(struct model_file *f, struct err *err) {
    struct str bytes;
    uint64_t part_count = 0, set_tensors = 0;
    TRY(model_file_map(f, f->path, &bytes, err));
    TRY(read_first(f, bytes, &part_count, &set_tensors, err));
    for (uint64_t i = 1; i < part_count; i++) {
        char path[PATH_BYTES];
        if (!part_path(f->path, i, part_count, path))
            return err_set(err, ST_BAD,
                           "%s: the first of %" PRIu64 " parts, expected a name that ends in "
                           "-00001-of-%05" PRIu64 ".gguf, by which the others are found",
                           f->path, part_count, part_count);
        TRY(read_further(f, path, i, part_count, err));
    }
    if (part_count > 1 && set_tensors && set_tensors != f->tensor_count)
        return err_set(err, ST_BAD, "%s: %zu tensors in all parts, expected %" PRIu64, f->path,
                       f->tensor_count, set_tensors);
    return ST_OK;
}

static void gguf_close(struct model_file *f) {
    if (f->self) gguf_facts_deinit(f->self);
    mem_free(f->self);
}

static bool gguf_probe(const char *path) {
    struct file_map map;
    if (file_map_open(path, &map, NULL) != ST_OK) return false;
    bool is_gguf = map.len >= 4 && memcmp(map.ptr, "GGUF", 4) == 0;
    file_map_close(&map);
    return is_gguf || str_ends(str_of(path), STR(".gguf")); /* open reports the error */
}

const struct format format_gguf = {
    .name = "gguf",
    .kind = MODEL_GGUF,
    .probe = gguf_probe,
    .open = gguf_open,
    .close = gguf_close,
    .find = gguf_find,
    .item = gguf_item,
};

enum status gguf_open_memory(struct str bytes, const char *name, struct model_file **out,
                             struct err *err) {
    struct model_file *f = model_file_create(&format_gguf, name);
    if (!f) return no_memory(name, err);
    uint64_t part_count = 0, set_tensors = 0;
    enum status st = read_first(f, bytes, &part_count, &set_tensors, err);
    if (st == ST_OK && part_count > 1)
        st = err_set(err, ST_BAD, "%s: one of %" PRIu64 " parts, expected a whole model", name,
                     part_count);
    if (st == ST_OK)
        *out = f;
    else
        model_file_close(f);
    return st;
}
