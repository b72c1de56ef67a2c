/* translate/check.h - compares a translation with its base (invariant 1).
 *
 * ST_BAD: `err` names what the other kind of file cannot express. Thread: its owner.
 */
#ifndef TRANSLATE_CHECK_H
#define TRANSLATE_CHECK_H

#include "base/status.h"

struct model;
struct model_file;
struct tokenizer;

/* Opens the view as a model: numbers, layers, weights, rope. */
enum status check_model(const struct model *base, const struct model_file *view, struct err *err);

/* Creates the view's tokenizer: pieces, special tokens, ends, chat templates, and the tokens of
 * texts that are made from the vocabulary and from a list of difficult ones. */
enum status check_tokens(const struct tokenizer *base, struct model_file *view, struct err *err);

#endif
