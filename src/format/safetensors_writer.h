/* format/safetensors_writer.h - writes the tensors of a folder: one safetensors file, or several
 * and an index.
 *
 *     create -> add each tensor (name, format, shape) -> begin -> the data of each, in order
 *            -> finish -> destroy
 *
 * Tensors go into files of at most `file_bytes_max`, in the order in which they were added; a
 * tensor that is larger has a file of its own. One file is called model.safetensors; several are
 * called model-00001-of-00003.safetensors, and model.safetensors.index.json says which tensor is
 * in which. Room for all files is reserved by `begin`.
 *
 * Adding never fails at the call: `begin` reports what went wrong. The names are not checked.
 *
 * Lifetime: create, destroy; the folder is the caller's and outlives it. Thread: its owner.
 * Memory: the names and shapes, and 8 KiB for each file.
 */
#ifndef FORMAT_SAFETENSORS_WRITER_H
#define FORMAT_SAFETENSORS_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct folder_out;
struct safetensors_writer; /* opaque */

/* As other tools have it: some file systems and hubs do not take larger files. */
#define SAFETENSORS_FILE_BYTES_MAX ((uint64_t)4 << 30)

enum status safetensors_writer_create(uint64_t file_bytes_max, struct safetensors_writer **out,
                                      struct err *err);
void safetensors_writer_destroy(struct safetensors_writer *w); /* NULL is fine; closes the files */

struct safetensors_entry {
    struct str name;
    const char *format; /* "F16", static */
    uint32_t dim_count; /* 0: one number */
    uint64_t dims[4];
    uint64_t bytes;
};
void safetensors_writer_add(struct safetensors_writer *w, const struct safetensors_entry *t);

/* Bytes of all files, known once all tensors are there. */
uint64_t safetensors_writer_bytes(const struct safetensors_writer *w);

/* Open the files and reserve room. ST_NOMEM, ST_BAD (more than a reader takes), ST_CREATE, ST_IO.
 */
enum status safetensors_writer_begin(struct safetensors_writer *w, struct folder_out *folder,
                                     struct err *err);
/* The next bytes of the data; each tensor's data goes on where that of the one before has ended. */
enum status safetensors_writer_put(struct safetensors_writer *w, const void *bytes, size_t len,
                                   struct err *err);
/* Give the files their names in the folder, and write the index if there are several. CHECKs that
 * every tensor has got all its bytes. */
enum status safetensors_writer_finish(struct safetensors_writer *w, struct err *err);

#endif
