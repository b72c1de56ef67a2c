/* unit/format/use_model.h - touches everything that an open model offers.
 *
 * What an attacker gains from a file is what happens after it was accepted; tests and fuzzing
 * therefore read every fact, every item at the ends of lists, and both ends of every tensor.
 */
#ifndef UNIT_FORMAT_USE_MODEL_H
#define UNIT_FORMAT_USE_MODEL_H

#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "format/model_file.h"
#include "tensor/row_source.h"

enum { USED_TENSORS_MAX = 1000, USED_BYTES_MAX = 1 << 20 };

static inline void use_item(const struct model_file *f, const char *key, uint64_t i) {
    struct err err = {0};
    struct str text;
    int64_t whole;
    double real;
    if (meta_list_str(f, key, i, &text, &err) == ST_OK && text.len)
        CHECK(text.ptr[0] + text.ptr[text.len - 1] < 1000);
    (void)meta_list_i64(f, key, i, &whole, &err);
    (void)meta_list_f64(f, key, i, &real, &err);
}

static inline void use_fact(const struct model_file *f, const char *key) {
    struct err err = {0};
    bool found, truth;
    uint64_t whole, count;
    double real;
    struct str text;
    (void)meta_u64(f, key, &found, &whole, &err);
    (void)meta_f64(f, key, &found, &real, &err);
    (void)meta_bool(f, key, &found, &truth, &err);
    (void)meta_str(f, key, &found, &text, &err);
    (void)meta_list(f, key, &count);
    if (meta_kind(f, key) == META_LIST && count > 0) {
        use_item(f, key, 0);
        use_item(f, key, count - 1);
    }
}

/* The first and the last block of the first and of the last row. */
static inline void use_source(const struct tensor_info *t) {
    enum { BLOCK_BYTES_MAX = 64 };
    const struct dtype_info *info = dtype_info(t->type);
    uint32_t rows[] = {0, (uint32_t)t->dims[0] - 1};
    uint32_t blocks[] = {0, (uint32_t)(t->dims[1] / info->block_elems) - 1};
    uint8_t block[BLOCK_BYTES_MAX];
    float values[256];
    CHECK(info->block_bytes <= BLOCK_BYTES_MAX);
    for (int i = 0; i < 4; i++) {
        const struct row_piece piece = {rows[i / 2], 1, blocks[i % 2], 1};
        t->source->read(t->source, &piece, block);
        dtype_dequant(t->type, block, info->block_elems, values);
    }
    for (uint64_t k = 0; t->order && k < t->dims[1]; k++) CHECK(t->order[k] < t->dims[1]);
}

static inline void use_tensor(const struct tensor_info *t) {
    const struct dtype_info *info = dtype_info(t->type);
    size_t bytes;
    uint64_t elems = 1;
    for (int i = 0; i < TENSOR_DIMS_MAX; i++) elems *= t->dims[i];
    CHECK(dtype_bytes(t->type, elems, &bytes));
    float values[256];
    if (t->source) {
        use_source(t);
        return;
    }
    CHECK(bytes == t->bytes);
    const char *data = t->data;
    dtype_dequant(t->type, data, info->block_elems, values);
    dtype_dequant(t->type, data + t->bytes - info->block_bytes, info->block_elems, values);
}

static inline void use_model(const struct model_file *f) {
    struct buf shown;
    buf_init(&shown, USED_BYTES_MAX);
    for (size_t i = 0; i < meta_count(f); i++) {
        struct str key = meta_key(f, i);
        char *text = mem_dup(key.ptr, key.len);
        if (text) use_fact(f, text);
        mem_free(text);
        meta_put_value(f, i, &shown);
        buf_clear(&shown);
    }
    buf_deinit(&shown);
    for (size_t i = 0; i < tensor_count(f) && i < USED_TENSORS_MAX; i++) {
        const struct tensor_info *t = tensor_at(f, i);
        use_tensor(t);
        char *name = mem_dup(t->name.ptr, t->name.len);
        if (name) CHECK(tensor_find(f, name) == t);
        mem_free(name);
    }
}

/* A refusal is one sentence: something, on one line, that begins with the name of the file. */
static inline bool is_sentence(const struct err *err, const char *name) {
    size_t len = strlen(err->text);
    return len > strlen(name) + 2 && strncmp(err->text, name, strlen(name)) == 0 &&
           !memchr(err->text, '\n', len);
}

#endif
