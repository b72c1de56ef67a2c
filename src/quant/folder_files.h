/* quant/folder_files.h - the small files of a quantised folder: config.json with its
 * quantization_config, and the tokenizer's files as they are.
 *
 * Copied are files of the kinds that come with a model (.json, .jinja, .txt, .model, .md, LICENSE),
 * but no weights, no index of weights and no settings of other quantisers.
 *
 * Thread: any. Memory: the largest file.
 */
#ifndef QUANT_FOLDER_FILES_H
#define QUANT_FOLDER_FILES_H

#include "base/status.h"

struct folder_out;
struct folder_writer;
struct model_file;

enum status folder_files_write(struct model_file *f, const struct folder_writer *w,
                               struct folder_out *out, struct err *err);

#endif
