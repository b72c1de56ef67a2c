/* cli/quantize_source.h - what `jitney quantize` checks before it begins, because the work may take
 * hours.
 *
 * Lifetime: during the command. Thread: the main thread.
 */
#ifndef CLI_QUANTIZE_SOURCE_H
#define CLI_QUANTIZE_SOURCE_H

#include "base/status.h"

struct model_file;

/* Is a folder the model that its config.json describes? Other files, and draft heads, pass. ST_BAD:
 * the sentence names the key or the tensor. */
enum status quantize_source_check(const struct model_file *f, struct err *err);

#endif
