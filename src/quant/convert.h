/* quant/convert.h - writes a model as a GGUF file with other number formats.
 *
 *     convert_create (which tensors become what) -> convert_write -> convert_destroy
 *
 * Lifetime: create, destroy; the model file is borrowed. Thread: its owner. Memory: the head of
 * the file and some pieces of tensors (quant/recode.h); tensors are read from the mapped file and
 * their pages are given back.
 */
#ifndef QUANT_CONVERT_H
#define QUANT_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "tensor/dtype.h"

struct convert; /* opaque */
struct file_out;
struct gguf_writer;
struct model_file;
struct tensor_info;

/* One tensor of the new file. */
struct convert_tensor {
    struct str name;                /* in the new file */
    const struct tensor_info *from; /* borrowed from the model file */
    enum dtype to;
    enum dtype wanted;       /* other than `to`: its blocks do not divide the rows */
    const float *importance; /* of each column, borrowed; NULL: none */
};

struct convert_options {
    enum dtype type;
    const enum dtype *types; /* NULL, or for each tensor of the model: what it is stored as, instead
                                of what the rules say; `type` is the kind of the file then */
    bool allow_requantize;   /* tensors may be quantised already */
};

/* Choose the types (quant/choose.h). ST_BAD: the model has no tensors, or one that is quantised
 * already. The keys are those of the GGUF `f`, with the new type. */
enum status convert_create(const struct model_file *f, const struct convert_options *options,
                           struct convert **out, struct err *err);
void convert_destroy(struct convert *c); /* NULL is fine */

size_t convert_count(const struct convert *c);
struct convert_tensor *convert_at(struct convert *c, size_t i); /* importance may be set */
uint64_t convert_bytes(struct convert *c);                      /* of the new file */

/* Elements done so far, of all. */
typedef void convert_progress_fn(void *ctx, uint64_t done, uint64_t total);

struct convert_run {
    uint32_t threads; /* 0: the default of base/pool.h */
    struct file_out *file;
    convert_progress_fn *on_progress; /* may be NULL */
    void *progress_ctx;
};

/* Once. ST_IO: also when a file of the model was cut meanwhile. */
enum status convert_write(struct convert *c, const struct convert_run *run, struct err *err);

#endif
