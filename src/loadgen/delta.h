/* loadgen/delta.h - the facts to measure in one JSON object of a response.
 *
 * The object is a chunk of a stream or a whole response, of /v1/completions or
 * /v1/chat/completions: does it have text, how many tokens does the server count, is it an error
 * in the middle of a stream?
 *
 * Lifetime: a value. Thread: any.
 */
#ifndef LOADGEN_DELTA_H
#define LOADGEN_DELTA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct delta {
    bool has_choice; /* it belongs to the answer, even if it has no text */
    bool has_text;   /* content, reasoning or a tool call: at least one character */
    bool has_usage;
    uint32_t prompt_tokens, output_tokens, cached_tokens; /* as the server counts; has_usage */
};

/* ST_BAD: not a JSON object. ST_UNAVAILABLE: an error, whose message is in `err`. */
enum status delta_read(struct str text, struct delta *out, struct err *err);

#endif
