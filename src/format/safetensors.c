/* format/safetensors.c - the tensors of one safetensors file.
 *
 *     u64 header bytes, then the header, JSON:
 *         {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
 *          "__metadata__": {text: text, ...}}
 *     then the data that offsets count from.
 *
 * Like the reference reader, this one requires that the tensors cover the data exactly: each byte
 * belongs to one tensor. Tensors in formats that no kernel reads (float8 of other kinds than e4m3)
 * are checked like the others and then skipped; integers and e4m3 are kept apart, for folders that
 * are quantised (format/quant.h).
 *
 * Entry points: safetensors_add, safetensors_open_memory.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/cursor.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/size.h"
#include "format/format_int.h"
#include "format/limits.h"

static const struct json_limits header_limits = {
    .bytes_max = LIMIT_SAFETENSORS_HEADER_BYTES,
    .depth_max = LIMIT_SAFETENSORS_HEADER_DEPTH,
    .values_max = LIMIT_SAFETENSORS_HEADER_VALUES,
    .unique_keys = true,
};

static const struct number_format {
    const char *name;
    uint32_t bits;
    int type; /* enum dtype, or -1 if it is not read */
} number_formats[] = {
    {"F32", 32, DTYPE_F32}, {"F16", 16, DTYPE_F16}, {"BF16", 16, DTYPE_BF16}, {"F64", 64, -1},
    {"C64", 64, -1},        {"I64", 64, -1},        {"U64", 64, -1},          {"I32", 32, -1},
    {"U32", 32, -1},        {"I16", 16, -1},        {"U16", 16, -1},          {"I8", 8, -1},
    {"U8", 8, -1},          {"BOOL", 8, -1},        {"F8_E4M3", 8, -1},       {"F8_E5M2", 8, -1},
    {"F8_E8M0", 8, -1},     {"F8_E4M3FNUZ", 8, -1}, {"F8_E5M2FNUZ", 8, -1},   {"F6_E2M3", 6, -1},
    {"F6_E3M2", 6, -1},     {"F4", 4, -1},
};
enum { NUMBER_FORMAT_COUNT = sizeof(number_formats) / sizeof(number_formats[0]) };

/* One file while it is being read. */
struct reading {
    struct model_file *f;
    const char *path;
    const uint8_t *data;
    size_t data_bytes;
};

/* One entry of the header, checked. */
struct entry {
    struct str name;
    const struct number_format *format;
    uint32_t dim_count;
    uint64_t dims[LIMIT_SAFETENSORS_DIMS];
    uint64_t elems;
    struct extent extent;
};

static enum status bad_tensor(const struct reading *r, struct str name, const char *what,
                              struct err *err) {
    return err_set(err, ST_BAD, "%s: tensor %.*s: %s", r->path, STR_ARG(name), what);
}

static enum status read_format(const struct reading *r, const struct json *v, struct entry *e,
                               struct err *err) {
    struct str name = json_str(json_get(v, "dtype"));
    for (int i = 0; i < NUMBER_FORMAT_COUNT; i++)
        if (str_is(name, number_formats[i].name)) e->format = &number_formats[i];
    if (e->format) return ST_OK;
    return err_set(err, ST_BAD, "%s: tensor %.*s: dtype \"%.*s\", expected one of safetensors'",
                   r->path, STR_ARG(e->name), STR_ARG(str_take(name, 40)));
}

static enum status read_shape(const struct reading *r, const struct json *v, struct entry *e,
                              struct err *err) {
    const struct json *shape = json_get(v, "shape");
    size_t count = json_count(shape);
    if (json_kind(shape) != JS_LIST || count > LIMIT_SAFETENSORS_DIMS)
        return err_set(err, ST_BAD, "%s: tensor %.*s: expected a shape of at most %d dims", r->path,
                       STR_ARG(e->name), LIMIT_SAFETENSORS_DIMS);
    e->dim_count = (uint32_t)count;
    size_t elems = 1;
    for (size_t i = 0; i < count; i++) {
        const struct json *dim = json_at(shape, i);
        if (json_kind(dim) != JS_INT || json_int(dim, -1) < 0)
            return bad_tensor(r, e->name, "a dim is not a whole number of 0 or more", err);
        e->dims[i] = (uint64_t)json_int(dim, 0);
        if (!size_mul(elems, (size_t)e->dims[i], &elems))
            return bad_tensor(r, e->name, "more elements than can be counted", err);
    }
    e->elems = elems;
    return ST_OK;
}

static enum status read_offsets(const struct reading *r, const struct json *v, struct entry *e,
                                struct err *err) {
    const struct json *offsets = json_get(v, "data_offsets");
    int64_t start = json_int(json_at(offsets, 0), -1), end = json_int(json_at(offsets, 1), -1);
    if (json_count(offsets) != 2 || start < 0 || end < start)
        return bad_tensor(r, e->name, "expected data_offsets [begin, end]", err);
    if ((uint64_t)end > r->data_bytes)
        return err_set(err, ST_BAD,
                       "%s: tensor %.*s: needs bytes %" PRId64 " to %" PRId64 " of the data, the "
                       "file has %zu; it is damaged or cut short",
                       r->path, STR_ARG(e->name), start, end, r->data_bytes);
    e->extent = (struct extent){(uint64_t)start, (uint64_t)end, e->name};
    return ST_OK;
}

/* Does the shape take as many bytes as the offsets give it? */
static enum status check_bytes(const struct reading *r, const struct entry *e, struct err *err) {
    size_t bits;
    if (!size_mul((size_t)e->elems, e->format->bits, &bits))
        return bad_tensor(r, e->name, "more bytes than can be counted", err);
    uint64_t given = e->extent.end - e->extent.start;
    if (bits % 8 == 0 && bits / 8 == given) return ST_OK;
    return err_set(err, ST_BAD,
                   "%s: tensor %.*s: %" PRIu64 " bytes of data, expected %zu for its shape and "
                   "dtype %s",
                   r->path, STR_ARG(e->name), given, bits / 8, e->format->name);
}

static enum status read_entry(struct reading *r, struct str key, const struct json *v,
                              struct entry *e, struct err *err) {
    if (!name_is_sound(key, LIMIT_TENSOR_NAME_BYTES))
        return err_set(err, ST_BAD, "%s: a tensor's name is not 1 to %d bytes of printable UTF-8",
                       r->path, LIMIT_TENSOR_NAME_BYTES);
    e->name = arena_dup(r->f->arena, key);
    if (!e->name.ptr) return no_memory(r->path, err);
    if (json_kind(v) != JS_MAP) return bad_tensor(r, key, "expected a map in the header", err);
    TRY(read_format(r, v, e, err));
    TRY(read_shape(r, v, e, err));
    TRY(read_offsets(r, v, e, err));
    return check_bytes(r, e, err);
}

static bool is_code(const struct number_format *format) {
    return format->name[0] == 'I' || format->name[0] == 'U' || strcmp(format->name, "F8_E4M3") == 0;
}

static enum status keep_raw(struct reading *r, const struct entry *e, struct err *err) {
    struct raw_tensor t = {.name = e->name,
                           .format = e->format->name,
                           .dim_count = e->dim_count,
                           .data = r->data + e->extent.start,
                           .bytes = (size_t)(e->extent.end - e->extent.start)};
    for (uint32_t i = 0; i < TENSOR_DIMS_MAX; i++) t.dims[i] = i < e->dim_count ? e->dims[i] : 1;
    return model_file_add_raw(r->f, r->path, &t, err);
}

static enum status keep_entry(struct reading *r, const struct entry *e, struct err *err) {
    CHECK(e->format);
    if (e->format->type < 0 && is_code(e->format) && e->dim_count <= TENSOR_DIMS_MAX)
        return keep_raw(r, e, err);
    if (e->format->type < 0) return model_file_skip(r->f, r->path, e->name, e->format->name, err);
    if (e->elems == 0) return model_file_skip(r->f, r->path, e->name, "no elements", err);
    if (e->dim_count > TENSOR_DIMS_MAX)
        return model_file_skip(r->f, r->path, e->name, "more than 4 dims", err);
    struct tensor_info t = {
        .name = e->name,
        .type = (enum dtype)e->format->type,
        .dim_count = e->dim_count,
        .data = r->data + e->extent.start,
    };
    for (uint32_t i = 0; i < TENSOR_DIMS_MAX; i++) t.dims[i] = i < e->dim_count ? e->dims[i] : 1;
    bool fits = dtype_bytes(t.type, e->elems, &t.bytes);
    CHECK(fits); /* check_bytes has compared it with the file */
    CHECK(t.bytes == e->extent.end - e->extent.start);
    return model_file_add(r->f, r->path, &t, err);
}

/* Sorted extents must touch each other and both ends of the data. */
static enum status check_cover(const struct reading *r, const struct extent *extents, size_t count,
                               struct err *err) {
    uint64_t end = 0;
    for (size_t i = 0; i < count; i++) {
        if (extents[i].start != end)
            return err_set(err, ST_BAD,
                           "%s: tensor %.*s: begins at byte %" PRIu64
                           " of the data, expected %" PRIu64 ", where the one before it ends",
                           r->path, STR_ARG(extents[i].name), extents[i].start, end);
        end = extents[i].end;
    }
    if (end == r->data_bytes) return ST_OK;
    return err_set(err, ST_BAD, "%s: %zu bytes of data, expected %" PRIu64 " as the header says",
                   r->path, r->data_bytes, end);
}

static enum status read_entries(struct reading *r, const struct json *header,
                                struct extent *extents, struct err *err) {
    size_t count = 0;
    struct json_iter it = json_iter_first(header);
    for (; json_iter_ok(&it); json_iter_next(&it)) {
        if (str_is(it.key, "__metadata__")) continue;
        struct entry e = {0};
        TRY(read_entry(r, it.key, it.value, &e, err));
        TRY(keep_entry(r, &e, err));
        extents[count++] = e.extent;
    }
    TRY(extents_sort(r->path, extents, count, err));
    return check_cover(r, extents, count, err);
}

static enum status read_header(struct reading *r, const struct json *header, struct err *err) {
    if (json_kind(header) != JS_MAP)
        return err_set(err, ST_BAD, "%s: the header is not a JSON map", r->path);
    size_t count = json_count(header);
    TRY(model_file_reserve(r->f, r->path, count, err));
    struct extent *extents = mem_alloc_array(count, sizeof(*extents));
    if (!extents) return no_memory(r->path, err);
    enum status st = read_entries(r, header, extents, err);
    mem_free(extents);
    return st;
}

enum status safetensors_add(struct model_file *f, const char *path, struct str bytes,
                            struct err *err) {
    struct cursor c = cursor_of(bytes.ptr, bytes.len);
    uint64_t header_bytes = cursor_u64(&c);
    if (c.failed)
        return err_set(err, ST_BAD, "%s: %zu bytes long, expected at least 8 of a safetensors file",
                       path, bytes.len);
    if (header_bytes > LIMIT_SAFETENSORS_HEADER_BYTES)
        return err_set(err, ST_BAD, "%s: a header of %" PRIu64 " bytes, at most %d are read", path,
                       header_bytes, LIMIT_SAFETENSORS_HEADER_BYTES);
    struct str text = cursor_bytes(&c, (size_t)header_bytes);
    if (c.failed)
        return err_set(err, ST_BAD, "%s: cut short: a header of %" PRIu64 " bytes, %zu are there",
                       path, header_bytes, bytes.len - 8);
    struct json *header;
    enum status st = json_parse(text, &header_limits, &header, err);
    if (st != ST_OK) {
        err_prefix(err, st, "header");
        return err_prefix(err, st, path);
    }
    struct reading r = {f, path, c.base + c.pos, cursor_left(&c)};
    st = read_header(&r, header, err);
    json_destroy(header);
    return st;
}

/* ---- One file as a model, for tests ---- */

static void close_alone(struct model_file *f) { (void)f; }

static bool find_nothing(const struct model_file *f, struct str key, struct meta_value *out) {
    (void)f;
    (void)key;
    (void)out;
    return false;
}

static const struct format format_alone = {
    .name = "safetensors",
    .kind = MODEL_HF,
    .close = close_alone,
    .find = find_nothing,
};

enum status safetensors_open_memory(struct str bytes, const char *name, struct model_file **out,
                                    struct err *err) {
    struct model_file *f = model_file_create(&format_alone, name);
    if (!f) return no_memory(name, err);
    enum status st = safetensors_add(f, name, bytes, err);
    if (st == ST_OK)
        *out = f;
    else
        model_file_close(f);
    return st;
}
