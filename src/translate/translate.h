/* translate/translate.h - a folder as a GGUF, and a GGUF as a folder.
 *
 * A translation is a view (format/view.h): a model_file of the other kind, which reads the numbers
 * of its base and makes everything else anew.
 *
 *   keys      config.json <-> the keys of llama.cpp's converter
 *   tokens    tokenizer.json and its companions <-> tokenizer.ggml.*
 *   tensors   names; rows reordered (Q and K of llama), stacked or unstacked (experts), a 1 added
 *             to norms or taken away (gemma), rope's divisors
 *
 * Read it as any model file: meta_*, tensor_at, tensor_read_f32 (format/tensor_read.h),
 * tensor_release, model_file_check; a folder's small files (config.json, tokenizer.json,
 * tokenizer_config.json, generation_config.json, chat_template.jinja) are view_text_at of
 * format/view.h. Matrices keep the type of the base; the rows of those whose order changes are made
 * when they are read, so memory does not grow with them. Vectors, and what llama.cpp keeps in
 * float32, are float32.
 *
 * tensor_info.made_of is the name of the base's tensor, the first if there are several: what was
 * measured for that tensor of the base (importance, Hessians) holds for this one, because columns
 * never change their order.
 *
 * A translation is checked before the caller gets it: opened as a model, it has the
 * hyperparameters, the layers and the rope of the base; its tokenizer has the tokens of the base.
 * ST_BAD: the base has something that the other kind of file cannot express, or that is not known
 * here; `err` names it. A base without tensors or without a tokenizer is refused as well.
 *
 * Lifetime: the base outlives the view, which model_file_close frees. Thread: its owner.
 */
#ifndef TRANSLATE_TRANSLATE_H
#define TRANSLATE_TRANSLATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct model_file;
struct tensor_info;

/* `folder` is of kind MODEL_HF, the view of kind MODEL_GGUF. */
enum status translate_to_gguf(struct model_file *folder, struct model_file **out, struct err *err);

/* `gguf` is of kind MODEL_GGUF and no view, the view of kind MODEL_HF. Its tensors are in no
 * particular order; config.json says torch_dtype after the type of most matrices, "float32" if they
 * are quantised: a writer of another type replaces it. Encoders are refused. */
enum status translate_to_folder(struct model_file *gguf, struct model_file **out, struct err *err);

/* Are the rows of a tensor of a view in another order than those of `made_of`? */
bool translate_moves_rows(const struct tensor_info *t);

/* Which row of `made_of` row `row` of a tensor of a view is. The tensor is no stack. */
uint64_t translate_base_row(const struct tensor_info *t, uint64_t row);

#endif
