/* format/gguf_writer.h - writes a GGUF file (version 3).
 *
 *     create -> keys, tensors (names and shapes) -> begin -> the data of each tensor, in order
 *            -> finish -> destroy
 *
 * The head is kept in memory until `begin`; data goes straight into the file. Keys and tensors
 * never fail at the call: `begin` reports what went wrong. The writer does not check that a key
 * is given once.
 *
 * Lifetime: create, destroy; the file is the caller's and outlives it. Thread: its owner.
 * Memory: the head, which has the vocabulary: some 10 MB for 250,000 tokens.
 */
#ifndef FORMAT_GGUF_WRITER_H
#define FORMAT_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "tensor/dtype.h"

struct file_out;
struct gguf_writer; /* opaque */
struct model_file;
struct tensor_info;

enum status gguf_writer_create(struct gguf_writer **out, struct err *err);
void gguf_writer_destroy(struct gguf_writer *w); /* NULL is fine */

void gguf_writer_put_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_writer_put_f32(struct gguf_writer *w, const char *key, float value);
void gguf_writer_put_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_writer_put_str(struct gguf_writer *w, const char *key, struct str value);

/* A list of `count` items, each of which follows by one call of the function for its type. */
enum gguf_list { GGUF_LIST_I32, GGUF_LIST_F32, GGUF_LIST_STR };
void gguf_writer_put_list(struct gguf_writer *w, const char *key, enum gguf_list type,
                          uint64_t count);
void gguf_writer_item_i32(struct gguf_writer *w, int32_t value);
void gguf_writer_item_f32(struct gguf_writer *w, float value);
void gguf_writer_item_str(struct gguf_writer *w, struct str value);

/* All keys of a GGUF as they are, in their order, but those of the layout (general.alignment and
 * split.*) and those that `drop` accepts. */
typedef bool gguf_drop_fn(struct str key);
void gguf_writer_copy_keys(struct gguf_writer *w, const struct model_file *f, gguf_drop_fn *drop);

/* A tensor with the name and shape of `t`, stored as `type`; rows divide into its blocks. */
void gguf_writer_add_tensor(struct gguf_writer *w, struct str name, const struct tensor_info *t,
                            enum dtype type);

/* Bytes of the whole file, known once all keys and tensors are there. */
uint64_t gguf_writer_file_bytes(const struct gguf_writer *w);

/* Write the head. ST_NOMEM, ST_BAD (the head is larger than a reader takes), ST_IO. */
enum status gguf_writer_begin(struct gguf_writer *w, struct file_out *file, struct err *err);
/* The next bytes of the data; each tensor's data goes on where that of the one before has ended. */
enum status gguf_writer_put_data(struct gguf_writer *w, const void *bytes, size_t len,
                                 struct err *err);
/* CHECKs that every tensor has got all its bytes. */
void gguf_writer_finish(const struct gguf_writer *w);

#endif
