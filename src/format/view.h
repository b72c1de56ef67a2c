/* format/view.h - a model as the other kind of file, without writing one.
 *
 * A view is a model_file that no file on disk is: its keys (of a GGUF) or its small files (of a
 * folder) are made by the caller, and its tensors refer to those of another model, its base. What
 * reads model files reads a view as well: model_open, tokenizer_create, the converters. Messages
 * give the path of the base.
 *
 *     view_open_gguf or view_open_folder -> view_add for each tensor -> use -> model_file_close
 *
 * Lifetime: the base outlives the view. Thread: as model_file. Memory: the keys or small files, and
 * what view_arena gave.
 */
#ifndef FORMAT_VIEW_H
#define FORMAT_VIEW_H

#include <stddef.h>

#include "base/status.h"
#include "base/str.h"

struct arena;
struct gguf_writer;
struct model_file;
struct tensor_info;

/* A GGUF with the keys of `w`, which has no tensors yet. */
enum status view_open_gguf(const struct model_file *base, const struct gguf_writer *w,
                           struct model_file **out, struct err *err);

/* A folder of small files, which are copied; config.json is one of them. */
struct view_text {
    const char *name; /* "tokenizer.json" */
    struct str text;
};
enum status view_open_folder(const struct model_file *base, const struct view_text *texts,
                             size_t count, struct model_file **out, struct err *err);

/* For the names, row sources and vectors of the view's tensors; freed with it. */
struct arena *view_arena(struct model_file *view);

/* Add a tensor. Name, data and source are in the base or in view_arena. */
enum status view_add(struct model_file *view, const struct tensor_info *t, struct err *err);

/* The small files of a folder view, in the order in which they were given. */
size_t view_text_count(const struct model_file *view);
struct view_text view_text_at(const struct model_file *view, size_t i);

#endif
