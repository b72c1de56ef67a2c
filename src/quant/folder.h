/* quant/folder.h - writes a model as a Hugging Face folder with quantised matrices.
 *
 *     create (which tensors become what) -> begin (files, room on the disk)
 *            -> one of the three puts for each tensor, in order -> finish -> destroy
 *
 * Packed are the matrices of layers, as the tools do that made these formats: names with "layers"
 * or "layer" and a number in them, two dims, not the router of experts. All others are kept as f16
 * or bf16: in the source's type, float32 and quantised ones as f16 (bf16 if most of the model is
 * bf16). Float32 beside 16 bits in a folder stays.
 *
 * Tensors are in the order of their layers, those of no layer first.
 *
 * Lifetime: create, destroy; model file and folder are the caller's. Thread: its owner; threads of
 * its own run inside a call. Memory: one packed matrix, some rows of it as float32.
 */
#ifndef QUANT_FOLDER_H
#define QUANT_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "quant/pack.h"

struct folder_out;
struct folder_writer; /* opaque */
struct model_file;
struct tensor_info;

struct folder_options {
    struct pack_format format; /* without `plain`; group_cols 0: the largest that divides */
    bool allow_requantize;     /* matrices may be quantised already */
};

/* A tensor of the source. */
struct folder_tensor {
    const struct tensor_info *from; /* borrowed from the model file */
    int32_t layer;                  /* -1: none */
    bool is_packed;
    bool is_refused; /* it would be packed if its shape allowed it */
    enum dtype to;   /* if it is not packed */
};

/* The number behind "layers." or "layer." in the name of a tensor; -1: none. */
int32_t folder_layer_of(struct str name);

/* `f` is of kind MODEL_HF. ST_BAD: it has no matrices to pack, one is quantised already, or its
 * shape does not fit into groups. */
enum status folder_writer_create(struct model_file *f, const struct folder_options *options,
                                 struct folder_writer **out, struct err *err);
void folder_writer_destroy(struct folder_writer *w); /* NULL is fine */

size_t folder_writer_count(const struct folder_writer *w);
const struct folder_tensor *folder_writer_at(const struct folder_writer *w, size_t i);
const struct pack_format *folder_writer_format(const struct folder_writer *w);
uint64_t folder_writer_bytes(const struct folder_writer *w, size_t i); /* of what it becomes */
uint64_t folder_writer_file_bytes(const struct folder_writer *w);      /* of all safetensors */

/* Files, with room reserved for them. file_bytes_max: SAFETENSORS_FILE_BYTES_MAX. */
enum status folder_writer_begin(struct folder_writer *w, struct folder_out *out,
                                uint64_t file_bytes_max, struct err *err);

/* Which tensor is next; folder_writer_count after the last. */
size_t folder_writer_next(const struct folder_writer *w);

/* The next one with the numbers of the source; a packed one is rounded to nearest. ST_BAD: a number
 * is not finite, or too large. ST_IO: also when a file of the model was cut meanwhile. */
enum status folder_writer_put(struct folder_writer *w, struct err *err);
/* The next one, which is packed, as its owner has packed it. */
enum status folder_writer_put_packed(struct folder_writer *w, const struct packed_matrix *m,
                                     struct err *err);
/* The next one, which is not packed, with other numbers. */
enum status folder_writer_put_numbers(struct folder_writer *w, const float *x, struct err *err);

/* The files get their names in the folder; config.json and the other small files of the source are
 * written (quant/folder_files.h). */
enum status folder_writer_finish(struct folder_writer *w, struct err *err);

#endif
