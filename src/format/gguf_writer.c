/* format/gguf_writer.c - see format/gguf_writer.h for the contract. The layout is in gguf.c. */
#include "format/gguf_writer.h"

#include <string.h>

#include "base/bits.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/file_out.h"
#include "base/mem.h"
#include "base/size.h"
#include "format/format_int.h"
#include "format/limits.h"

enum { HEAD_BYTES_MAX = 1 << 30, VERSION = 3, ALIGNMENT = 32 };

/* Numbers of value types, as gguf_facts.c reads them. */
enum { VALUE_U32 = 4, VALUE_I32 = 5, VALUE_F32 = 6, VALUE_BOOL = 7, VALUE_STR = 8, VALUE_LIST = 9 };

struct gguf_writer {
    struct buf keys, records; /* of tensors */
    uint64_t key_count, tensor_count;
    uint64_t data_bytes; /* of all tensors, each padded to the alignment */
    uint64_t *ends;      /* heap; where the bytes of each tensor end in the data, unpadded */
    size_t ends_cap;
    bool no_memory;
    struct file_out *file; /* borrowed; NULL before begin */
    uint64_t put_bytes;    /* of data, with padding */
    uint64_t put_tensors;  /* whole ones */
};

static uint64_t pad_up(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static void put_text(struct buf *b, struct str s) {
    gguf_put_number(b, s.len, 8);
    buf_put_str(b, s);
}

enum status gguf_writer_create(struct gguf_writer **out, struct err *err) {
    struct gguf_writer *w = mem_zalloc(sizeof(*w));
    if (!w) return err_set(err, ST_NOMEM, "out of memory for the head of a GGUF file");
    buf_init(&w->keys, HEAD_BYTES_MAX);
    buf_init(&w->records, HEAD_BYTES_MAX);
    *out = w;
    return ST_OK;
}

void gguf_writer_destroy(struct gguf_writer *w) {
    if (!w) return;
    buf_deinit(&w->keys);
    buf_deinit(&w->records);
    mem_free(w->ends);
    mem_free(w);
}

static void put_key(struct gguf_writer *w, const char *key, int type) {
    CHECK(!w->file);
    put_text(&w->keys, str_of(key));
    gguf_put_number(&w->keys, (uint64_t)type, 4);
    w->key_count++;
}

void gguf_writer_put_u32(struct gguf_writer *w, const char *key, uint32_t value) {
    put_key(w, key, VALUE_U32);
    gguf_put_number(&w->keys, value, 4);
}

void gguf_writer_put_f32(struct gguf_writer *w, const char *key, float value) {
    put_key(w, key, VALUE_F32);
    gguf_put_number(&w->keys, bits_of_float(value), 4);
}

void gguf_writer_put_bool(struct gguf_writer *w, const char *key, bool value) {
    put_key(w, key, VALUE_BOOL);
    gguf_put_number(&w->keys, value, 1);
}

void gguf_writer_put_str(struct gguf_writer *w, const char *key, struct str value) {
    put_key(w, key, VALUE_STR);
    put_text(&w->keys, value);
}

void gguf_writer_put_list(struct gguf_writer *w, const char *key, enum gguf_list type,
                          uint64_t count) {
    static const int types[] = {
        [GGUF_LIST_I32] = VALUE_I32, [GGUF_LIST_F32] = VALUE_F32, [GGUF_LIST_STR] = VALUE_STR};
    put_key(w, key, VALUE_LIST);
    gguf_put_number(&w->keys, (uint64_t)types[type], 4);
    gguf_put_number(&w->keys, count, 8);
}

void gguf_writer_item_i32(struct gguf_writer *w, int32_t value) {
    gguf_put_number(&w->keys, (uint32_t)value, 4);
}

void gguf_writer_item_f32(struct gguf_writer *w, float value) {
    gguf_put_number(&w->keys, bits_of_float(value), 4);
}

void gguf_writer_item_str(struct gguf_writer *w, struct str value) { put_text(&w->keys, value); }

void gguf_writer_copy_keys(struct gguf_writer *w, const struct model_file *f, gguf_drop_fn *drop) {
    CHECK(model_file_kind(f) == MODEL_GGUF);
    for (size_t i = 0; i < meta_count(f); i++) {
        struct str key = meta_key(f, i);
        if (str_is(key, "general.alignment") || str_starts(key, STR("split.")) || drop(key))
            continue;
        gguf_facts_put(f->self, i, &w->keys);
        w->key_count++;
    }
}

static bool push_end(struct gguf_writer *w, uint64_t end) {
    if (w->tensor_count == w->ends_cap) {
        size_t cap = w->ends_cap ? w->ends_cap * 2 : 64, bytes;
        if (!size_mul(cap, sizeof(w->ends[0]), &bytes)) return false;
        uint64_t *ends = mem_realloc(w->ends, bytes);
        if (!ends) return false;
        w->ends = ends;
        w->ends_cap = cap;
    }
    w->ends[w->tensor_count++] = end;
    return true;
}

void gguf_writer_add_tensor(struct gguf_writer *w, struct str name, const struct tensor_info *t,
                            enum dtype type) {
    size_t bytes, elems = 1;
    CHECK(!w->file);
    for (uint32_t i = 0; i < t->dim_count; i++) elems *= (size_t)t->dims[i];
    CHECK(dtype_bytes(type, elems, &bytes));
    put_text(&w->records, name);
    gguf_put_number(&w->records, t->dim_count, 4);
    for (uint32_t i = t->dim_count; i > 0; i--) gguf_put_number(&w->records, t->dims[i - 1], 8);
    gguf_put_number(&w->records, gguf_type_number(type), 4);
    gguf_put_number(&w->records, w->data_bytes, 8);
    if (!push_end(w, w->data_bytes + bytes)) w->no_memory = true;
    w->data_bytes += pad_up(bytes);
}

enum { FIXED_BYTES = 4 + 4 + 8 + 8 };

uint64_t gguf_writer_file_bytes(const struct gguf_writer *w) {
    return pad_up(FIXED_BYTES + w->keys.len + w->records.len) + w->data_bytes;
}

static enum status put_zeros(struct gguf_writer *w, uint64_t count, struct err *err) {
    static const char zeros[ALIGNMENT];
    CHECK(count < ALIGNMENT);
    return file_out_write(w->file, zeros, (size_t)count, err);
}

static void put_fixed(const struct gguf_writer *w, struct buf *out) {
    buf_put_text(out, "GGUF");
    gguf_put_number(out, VERSION, 4);
    gguf_put_number(out, w->tensor_count, 8);
    gguf_put_number(out, w->key_count, 8);
}

void gguf_writer_put_head(const struct gguf_writer *w, struct buf *out) {
    CHECK(w->tensor_count == 0);
    put_fixed(w, out);
    buf_put_str(out, buf_str(&w->keys));
    if (buf_status(&w->keys) != ST_OK) out->status = buf_status(&w->keys);
}

static enum status write_head(struct gguf_writer *w, struct err *err) {
    struct buf fixed;
    buf_init(&fixed, FIXED_BYTES);
    put_fixed(w, &fixed);
    enum status st = buf_status(&fixed);
    if (st != ST_OK) err_set(err, st, "out of memory for the head of a GGUF file");
    if (st == ST_OK) st = file_out_write(w->file, fixed.ptr, fixed.len, err);
    buf_deinit(&fixed);
    return st;
}

enum status gguf_writer_begin(struct gguf_writer *w, struct file_out *file, struct err *err) {
    CHECK(!w->file);
    bool full = buf_status(&w->keys) == ST_FULL || buf_status(&w->records) == ST_FULL;
    if (full || w->key_count > LIMIT_GGUF_KEYS || w->tensor_count > LIMIT_GGUF_TENSORS)
        return err_set(
            err, ST_BAD, "%s: %llu keys and %llu tensors do not fit into the head of one GGUF file",
            file->path, (unsigned long long)w->key_count, (unsigned long long)w->tensor_count);
    if (w->no_memory || buf_status(&w->keys) != ST_OK || buf_status(&w->records) != ST_OK)
        return err_set(err, ST_NOMEM, "%s: out of memory for the head of the file", file->path);
    w->file = file;
    TRY(write_head(w, err));
    if (w->keys.len) TRY(file_out_write(file, w->keys.ptr, w->keys.len, err));
    if (w->records.len) TRY(file_out_write(file, w->records.ptr, w->records.len, err));
    uint64_t head_bytes = FIXED_BYTES + w->keys.len + w->records.len;
    return put_zeros(w, pad_up(head_bytes) - head_bytes, err);
}

enum status gguf_writer_put_data(struct gguf_writer *w, const void *bytes, size_t len,
                                 struct err *err) {
    CHECK(w->file);
    CHECK(w->put_tensors < w->tensor_count);
    uint64_t end = w->ends[w->put_tensors];
    CHECK(w->put_bytes + len <= end);
    TRY(file_out_write(w->file, bytes, len, err));
    w->put_bytes += len;
    if (w->put_bytes < end) return ST_OK;
    w->put_tensors++;
    w->put_bytes = pad_up(end);
    return put_zeros(w, w->put_bytes - end, err);
}

void gguf_writer_finish(const struct gguf_writer *w) {
    CHECK(w->file);
    CHECK(w->put_tensors == w->tensor_count);
    CHECK(w->put_bytes == w->data_bytes);
}
