/* cli/quantize_source.h - what `jitney quantize` checks before it begins, because the work may take
 * hours.
 *
 * Lifetime: during the command. Thread: the main thread.
 */
#ifndef CLI_QUANTIZE_SOURCE_H
#define CLI_QUANTIZE_SOURCE_H

#include <stdbool.h>

#include "base/status.h"

struct args;
struct model_file;

/* Is a folder the model that its config.json describes? Other files, and draft heads, pass. ST_BAD:
 * the sentence names the key or the tensor. `runs`: the model is to predict a text. ST_BAD:
 * it is an encoder. ST_BAD, ST_MISSING: there is no such device. */
enum status quantize_source_check(const struct args *args, const struct model_file *f, bool runs,
                                  struct err *err);

/* `view`: the model as the other kind of file. ST_BAD: --svg is given, and it cannot exchange
 * layers between the two. */
enum status quantize_source_check_view(const struct args *args, const struct model_file *view,
                                       struct err *err);

#endif
