/* unit/format/make_files.h - writes small model files for the tests of format/.
 *
 * A writer only appends what it is given, right or wrong, so that a test can lie about any
 * field. Include it from one test program; everything is static.
 */
#ifndef UNIT_FORMAT_MAKE_FILES_H
#define UNIT_FORMAT_MAKE_FILES_H

#include <dirent.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"

enum { FILE_BYTES_MAX = 64 << 20 };

/* GGUF's numbers for value types and a few tensor types. */
enum { G_U8, G_I8, G_U16, G_I16, G_U32, G_I32, G_F32, G_BOOL, G_STR, G_LIST, G_U64, G_I64, G_F64 };
enum { T_F32 = 0, T_F16 = 1, T_Q4_0 = 2, T_Q8_0 = 8, T_Q4_K = 12, T_BF16 = 30 };

static inline void put_le(struct buf *b, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) buf_put_char(b, (char)(value >> (8 * i)));
}

static inline void put_u32(struct buf *b, uint32_t value) { put_le(b, value, 4); }
static inline void put_u64(struct buf *b, uint64_t value) { put_le(b, value, 8); }

static inline void put_string(struct buf *b, const char *text) {
    put_u64(b, strlen(text));
    buf_put_text(b, text);
}

static inline void put_head(struct buf *b, uint32_t version, uint64_t tensors, uint64_t keys) {
    buf_put_text(b, "GGUF");
    put_u32(b, version);
    put_u64(b, tensors);
    put_u64(b, keys);
}

static inline void put_key(struct buf *b, const char *key, uint32_t type) {
    put_string(b, key);
    put_u32(b, type);
}

static inline void put_key_u32(struct buf *b, const char *key, uint32_t value) {
    put_key(b, key, G_U32);
    put_u32(b, value);
}

static inline void put_key_str(struct buf *b, const char *key, const char *value) {
    put_key(b, key, G_STR);
    put_string(b, value);
}

static inline void put_key_list(struct buf *b, const char *key, uint32_t type, uint64_t count) {
    put_key(b, key, G_LIST);
    put_u32(b, type);
    put_u64(b, count);
}

/* One dim if `outer` is 0, else two; `inner` is the length of a row. */
static inline void put_tensor(struct buf *b, const char *name, uint64_t inner, uint64_t outer,
                              uint32_t type, uint64_t offset) {
    put_string(b, name);
    put_u32(b, outer ? 2 : 1);
    put_u64(b, inner);
    if (outer) put_u64(b, outer);
    put_u32(b, type);
    put_u64(b, offset);
}

static inline void put_pad(struct buf *b, size_t align) {
    while (b->len % align) buf_put_char(b, 0);
}

/* `count` bytes that differ from their neighbours. */
static inline void put_data(struct buf *b, size_t count) {
    for (size_t i = 0; i < count; i++) buf_put_char(b, (char)(i * 7 + 1));
}

/* A whole model in little: every value type, lists of each kind, three tensors. */
static inline void put_small_gguf(struct buf *b) {
    put_head(b, 3, 3, 18);
    put_key_str(b, "general.architecture", "llama");
    put_key(b, "t.u8", G_U8), put_le(b, 200, 1);
    put_key(b, "t.i8", G_I8), put_le(b, 0xFE, 1);
    put_key(b, "t.u16", G_U16), put_le(b, 60000, 2);
    put_key(b, "t.i16", G_I16), put_le(b, 0x8000, 2);
    put_key_u32(b, "t.u32", 4000000000u);
    put_key(b, "t.i32", G_I32), put_u32(b, 0xFFFFFFFF);
    put_key(b, "t.f32", G_F32), put_u32(b, 0x3FC00000); /* 1.5 */
    put_key(b, "t.yes", G_BOOL), put_le(b, 1, 1);
    put_key(b, "t.no", G_BOOL), put_le(b, 0, 1);
    put_key(b, "t.u64", G_U64), put_u64(b, UINT64_MAX);
    put_key(b, "t.i64", G_I64), put_u64(b, (uint64_t)INT64_MIN);
    put_key(b, "t.f64", G_F64), put_u64(b, 0xC004000000000000); /* -2.5 */
    put_key_list(b, "l.str", G_STR, 3), put_string(b, "a"), put_string(b, ""), put_string(b, "ccc");
    put_key_list(b, "l.i32", G_I32, 2), put_u32(b, 7), put_u32(b, 0xFFFFFFF8);
    put_key_list(b, "l.f32", G_F32, 2), put_u32(b, 0x3F800000), put_u32(b, 0xC0000000);
    put_key_list(b, "l.bool", G_BOOL, 2), put_le(b, 1, 1), put_le(b, 0, 1);
    put_key_list(b, "l.empty", G_STR, 0);
    put_tensor(b, "embd", 4, 3, T_F32, 0);   /* 48 bytes */
    put_tensor(b, "mat", 32, 2, T_Q8_0, 64); /* 68 bytes */
    put_tensor(b, "norm", 4, 0, T_F16, 160); /* 8 bytes */
    put_pad(b, 32);
    put_data(b, 168);
}

/* A safetensors file with this header and `data_bytes` of data. */
static inline void put_safetensors(struct buf *b, const char *header, size_t data_bytes) {
    put_string(b, header);
    put_data(b, data_bytes);
}

#define SMALL_SAFETENSORS                                                                          \
    "{\"__metadata__\":{\"format\":\"pt\"},"                                                       \
    "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"                           \
    "\"ids\":{\"dtype\":\"I64\",\"shape\":[1,2],\"data_offsets\":[24,40]},"                        \
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[40,44]},"                           \
    "\"one\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[44,46]},"                           \
    "\"none\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[46,46]}}"
enum { SMALL_SAFETENSORS_DATA = 46 };

/* A folder of its own under the system's temporary one, and files in it. */
static inline void make_folder(char *out, size_t out_bytes) {
    const char *temp = getenv("TMPDIR");
    struct buf path;
    buf_init(&path, out_bytes - 1);
    buf_printf(&path, "%s/jitney-test-XXXXXX", temp ? temp : "/tmp");
    memcpy(out, buf_text(&path), path.len + 1);
    buf_deinit(&path);
    if (!mkdtemp(out)) abort();
}

static inline void remove_folder(const char *folder) {
    DIR *dir = opendir(folder);
    if (!dir) abort();
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        char path[4096];
        if (path_join(path, sizeof(path), folder, e->d_name)) unlink(path); /* not "." */
    }
    closedir(dir);
    rmdir(folder);
}

static inline void write_file(const char *folder, const char *name, const void *bytes, size_t len) {
    char path[4096];
    struct err err = {0};
    if (!path_join(path, sizeof(path), folder, name)) abort();
    if (file_write_atomic(path, (struct str){bytes, len}, &err) != ST_OK) abort();
}

static inline void write_text(const char *folder, const char *name, const char *text) {
    write_file(folder, name, text, strlen(text));
}

static inline void write_buf(const char *folder, const char *name, struct buf *b) {
    if (buf_status(b) != ST_OK) abort();
    write_file(folder, name, b->ptr, b->len);
}

#endif
