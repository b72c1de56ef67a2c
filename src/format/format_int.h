/* format/format_int.h - what the readers in this folder share; no other folder includes it.
 *
 * A reader is a `struct format`: it opens a path into an empty `struct model_file` and adds the
 * tensors with the functions below. It returns facts as typed values (struct meta_value); meta.c
 * builds the getters of format/model_file.h on them.
 */
#ifndef FORMAT_FORMAT_INT_H
#define FORMAT_FORMAT_INT_H

#include "base/arena.h"
#include "base/cursor.h"
#include "base/file.h"
#include "base/map.h"
#include "format/model_file.h"

/* A fact with its type. `kind` decides which fields are valid. */
struct meta_value {
    enum meta_type kind;
    enum meta_type item_kind; /* META_LIST: of its items */
    bool truth;               /* META_BOOL */
    bool negative;            /* META_INT: `whole` is the bits of an int64_t below zero */
    uint64_t whole;           /* META_INT */
    double real;              /* META_REAL */
    struct str text;          /* META_STR, borrowed */
    uint64_t count;           /* META_LIST, META_MAP */
    const void *node;         /* META_LIST: where the reader finds the items */
};

struct format {
    const char *name; /* "gguf" */
    enum model_kind kind;

    /* Whether `path`, which exists, has this format, by its name or first bytes. */
    bool (*probe)(const char *path);

    /* Fill `f`, whose path is set. close() is called after a failure, too. */
    enum status (*open)(struct model_file *f, struct err *err);
    void (*close)(struct model_file *f); /* frees f->self, which may be NULL */

    /* false if there is no such key. */
    bool (*find)(const struct model_file *f, struct str key, struct meta_value *out);
    void (*item)(const struct model_file *f, const struct meta_value *list, uint64_t i,
                 struct meta_value *out);
};

/* NULL-terminated; format_list.c holds it. */
extern const struct format *const formats[];

/* A tensor of integers or of e4m3, as quantised folders have them. No model reads one by itself. */
struct raw_tensor {
    struct str name;
    const char *format; /* "I32", "F8_E4M3" */
    uint32_t dim_count;
    uint64_t dims[TENSOR_DIMS_MAX]; /* unused ones are 1 */
    const uint8_t *data;            /* borrowed from the map; any alignment */
    size_t bytes;
};

/* A document in the folder of the model, read once. */
struct beside {
    char *name;        /* heap */
    struct json *json; /* or NULL */
    char *text;        /* heap, or NULL */
    size_t text_len;
};

struct model_file {
    const struct format *format;
    char *path;          /* heap */
    struct arena *arena; /* names and other memory that is freed with the model */
    void *self;          /* the reader's own */

    struct file_map *maps; /* heap; one for each file */
    uint32_t map_count, map_cap;

    struct tensor_info *tensors; /* heap */
    size_t tensor_count, tensor_cap;
    struct map *tensor_names; /* name -> index in tensors */

    struct map *skipped;      /* name -> index in skipped_why */
    const char **skipped_why; /* heap array of arena text */
    size_t skipped_count, skipped_cap;

    struct raw_tensor *raws; /* heap */
    size_t raw_count, raw_cap;
    struct map *raw_names; /* name -> index in raws */

    const char *problem; /* why a model of this file cannot run, in the arena; NULL: nothing */

    struct str *keys; /* heap array of borrowed text; the facts in the order of the file */
    size_t key_count;

    struct beside *beside; /* heap */
    size_t beside_count;

    const struct model_file *base; /* of a view (format/view.h), borrowed; else NULL */
    char *head;                    /* heap; the GGUF of a view that is one */
};
extern const struct format format_hf;

/* An empty model_file for `path`; NULL: out of memory. */
struct model_file *model_file_create(const struct format *format, const char *path);

/* Map one more file; the map belongs to `f`. */
enum status model_file_map(struct model_file *f, const char *path, struct str *bytes,
                           struct err *err);

/* Room for `count` more tensors. `path` is the file that they are in, for the error message. */
enum status model_file_reserve(struct model_file *f, const char *path, size_t count,
                               struct err *err);

/* Add a tensor, whose name must outlive `f`. ST_BAD if the name is taken. */
enum status model_file_add(struct model_file *f, const char *path, const struct tensor_info *t,
                           struct err *err);

/* Remember a tensor that the file has but that cannot be used, and why. */
enum status model_file_skip(struct model_file *f, const char *path, struct str name,
                            const char *why, struct err *err);

/* The same for a tensor of integers or of e4m3. */
enum status model_file_add_raw(struct model_file *f, const char *path, const struct raw_tensor *t,
                               struct err *err);

/* Forget the tensors that are parts of others. */
enum status model_file_drop_parts(struct model_file *f, struct err *err);

/* Whether a name is valid: UTF-8, no control characters, 1 to `bytes_max` bytes. */
bool name_is_sound(struct str name, size_t bytes_max);

enum status no_memory(const char *path, struct err *err);

/* The bytes of a tensor in its file. */
struct extent {
    uint64_t start, end;
    struct str name;
};

/* Sort by start. ST_BAD: two overlap, and the message names both; empty ones never overlap. */
enum status extents_sort(const char *path, struct extent *extents, size_t count, struct err *err);

/* The keys of one GGUF file. */
struct gguf_facts {
    struct gguf_fact *facts; /* heap */
    size_t count;
    uint64_t string_count; /* in all lists */
    struct map *keys;      /* key -> index in facts */
};

/* One GGUF file while it is being read. */
struct gguf_part {
    const char *path;
    struct cursor c;
    uint64_t key_count, tensor_count;
    uint64_t align;
    struct gguf_facts facts;
};

/* Read p->key_count keys at the cursor into p->facts; deinit it also after a failure. */
enum status gguf_read_facts(struct gguf_part *p, struct err *err);
void gguf_facts_deinit(struct gguf_facts *fs);

struct str gguf_facts_key(const struct gguf_facts *fs, size_t i);
bool gguf_facts_value(const struct gguf_facts *fs, struct str key, struct meta_value *out);
void gguf_facts_item(const struct meta_value *list, uint64_t i, struct meta_value *out);

/* The `bytes` low bytes of a number, in the order of the file. */
void gguf_put_number(struct buf *out, uint64_t value, int bytes);

/* Key i with its value, as a GGUF file has them. */
void gguf_facts_put(const struct gguf_facts *fs, size_t i, struct buf *out);

/* The number of a tensor type in GGUF files. */
uint32_t gguf_type_number(enum dtype type);

/* A small file of a view, copied; config.json and the like. */
enum status model_file_put_text(struct model_file *f, const char *name, struct str text,
                                struct err *err);
/* Open a folder view, whose small files are all there. */
enum status hf_read_texts(struct model_file *f, struct err *err);

struct gguf_writer; /* its head, so far */
void gguf_writer_put_head(const struct gguf_writer *w, struct buf *out);

/* A name at the cursor. False: it ends after the file, is too long or invalid. */
bool gguf_read_name(struct cursor *c, size_t bytes_max, struct str *out);

/* Read a GGUF file from memory, which must outlive it; error messages give `name` as its path. A
 * split model is refused. */
enum status gguf_open_memory(struct str bytes, const char *name, struct model_file **out,
                             struct err *err);

/* Add the tensors of one safetensors file, `bytes`, to `f`. */
enum status safetensors_add(struct model_file *f, const char *path, struct str bytes,
                            struct err *err);

/* The same into a new model without facts. For tests and fuzzing. */
enum status safetensors_open_memory(struct str bytes, const char *name, struct model_file **out,
                                    struct err *err);

#endif
