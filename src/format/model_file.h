/* format/model_file.h - a model on disk: facts about it, and its tensors.
 *
 * Two kinds are read: a GGUF file, and a Hugging Face folder (config.json, *.safetensors).
 * Both are memory-mapped; tensors point into the map. Both offer:
 *
 *   facts    key -> number, text, boolean or list. For GGUF the keys of the file
 *            ("llama.block_count"); for a folder the paths in config.json
 *            ("num_hidden_layers", "rope_scaling.factor").
 *   tensors  name -> format, shape, bytes. A matrix that another tool quantised is one tensor,
 *            NAME.weight, whatever the tensors of the folder that it is made of. Shapes are
 *            row-major, slowest first, so a matrix that maps D inputs to N outputs is (N, D) in
 *            both kinds.
 *
 * The file is not trusted: counts and sizes are checked against the limits in format/limits.h
 * before memory is allocated for them, and every tensor must lie inside the file. An error message
 * names the file, the key or tensor, and what was expected.
 *
 * Lifetime: open, read, close; borrowed data is valid until close.
 * Thread: any, once open; but model_file_json and model_file_text cache what they have read, so
 * only one thread at a time may call them. To add a kind: one file, one line in format_list.c.
 */
#ifndef FORMAT_MODEL_FILE_H
#define FORMAT_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "base/str.h"
#include "tensor/dtype.h"

struct json;
struct model_file; /* opaque */
struct row_source; /* tensor/row_source.h */

enum model_kind { MODEL_GGUF, MODEL_HF };

enum { TENSOR_DIMS_MAX = 4 };

struct tensor_info {
    struct str name;
    enum dtype type;
    uint32_t dim_count;
    uint64_t dims[TENSOR_DIMS_MAX];  /* row-major, slowest first; unused ones are 1 */
    const void *data;                /* borrowed from the map, any alignment; NULL: see source */
    size_t bytes;                    /* in the file */
    const struct row_source *source; /* NULL, or what makes the rows, of a quantised folder */
    const uint32_t *order;           /* NULL, or which input each column is multiplied by */
    bool is_part;                    /* of one with a source; such are not listed */
    struct str made_of;              /* in a view: the (first) tensor of its base */
};

/* `path`: a .gguf file (of a split model: the first) or a folder. */
enum status model_file_open(const char *path, struct model_file **out, struct err *err);
void model_file_close(struct model_file *f); /* NULL is fine */

enum model_kind model_file_kind(const struct model_file *f);
const char *model_file_path(const struct model_file *f);

/* The files that the tensors lie in, always in the same order. */
uint32_t model_file_parts(const struct model_file *f);
struct file_id model_file_part(const struct model_file *f, uint32_t i);

/* Facts. `found` is false, and the value untouched, when the key is absent; ST_BAD: it
 * has another type, or is out of the type's range. */
enum status meta_u64(const struct model_file *f, const char *key, bool *found, uint64_t *out,
                     struct err *err);
enum status meta_f64(const struct model_file *f, const char *key, bool *found, double *out,
                     struct err *err); /* whole numbers count too */
enum status meta_bool(const struct model_file *f, const char *key, bool *found, bool *out,
                      struct err *err);
enum status meta_str(const struct model_file *f, const char *key, bool *found, struct str *out,
                     struct err *err);

enum meta_type { META_NONE, META_BOOL, META_INT, META_REAL, META_STR, META_LIST, META_MAP };
enum meta_type meta_kind(const struct model_file *f, const char *key);

/* Lists. meta_list gives the type of the elements, META_NONE with a count of 0 if there is no
 * such list. A folder's list may mix types: it gives that of the first (META_REAL if numbers
 * with and without fraction are mixed; META_NONE if it is empty). The element getters CHECK
 * that `i` is in range and give ST_BAD for another type. */
enum meta_type meta_list(const struct model_file *f, const char *key, uint64_t *count);
enum status meta_list_str(const struct model_file *f, const char *key, uint64_t i, struct str *out,
                          struct err *err);
enum status meta_list_i64(const struct model_file *f, const char *key, uint64_t i, int64_t *out,
                          struct err *err);
enum status meta_list_f64(const struct model_file *f, const char *key, uint64_t i, double *out,
                          struct err *err);

/* For display: keys in the order of the file, values as short text. */
size_t meta_count(const struct model_file *f);
struct str meta_key(const struct model_file *f, size_t i);
struct buf;
void meta_put_value(const struct model_file *f, size_t i, struct buf *out);

/* Tensors, in the order of the file. */
size_t tensor_count(const struct model_file *f);
const struct tensor_info *tensor_at(const struct model_file *f, size_t i);
const struct tensor_info *tensor_find(const struct model_file *f, const char *name); /* or NULL */

/* Why a tensor that the file has is not among them: the name of a number format that is not
 * read ("I64"), or "more than 4 dims", "no elements". NULL if the file has no such tensor or
 * tensor_find returns it. For error messages about missing tensors. */
const char *tensor_skipped(const struct model_file *f, const char *name);

/* Why no model can be made of the file, although it could be opened: it was quantised in a way that
 * is not read, or its parts disagree. A sentence that begins with the path; NULL: nothing. */
const char *model_file_problem(const struct model_file *f);

/* Are all bytes that were read from the model's files so far theirs? ST_IO: a file was cut, or its
 * disk failed, and zeros were read in place of what is missing; `err` names the file. `in_use`: it
 * is also an error that a file is shorter now, whatever was read. */
enum status model_file_check(const struct model_file *f, bool in_use, struct err *err);

/* Tell the system that these mapped bytes were copied and need not stay in memory. */
void model_file_release(const struct model_file *f, const void *ptr, size_t bytes);
void tensor_release(const struct model_file *f, const struct tensor_info *t);

/* Read a small file in the folder of the model (tokenizer.json, tokenizer_config.json, ...) as
 * JSON. *out is NULL, with ST_OK, if the folder has no such file; always for GGUF. The
 * document belongs to `f`. */
enum status model_file_json(struct model_file *f, const char *name, const struct json **out,
                            struct err *err);

/* The same as plain text (chat_template.jinja, ...), borrowed from `f`; *found: the file exists. */
enum status model_file_text(struct model_file *f, const char *name, bool *found, struct str *out,
                            struct err *err);

#endif
