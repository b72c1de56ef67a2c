/* loadgen/delta.h - what one JSON object of an answer says to somebody who measures.
 *
 * The same for a chunk of a stream and for a whole answer, of /v1/completions and of
 * /v1/chat/completions: does it carry text, how many tokens does the server count, is it a
 * failure in the middle of a stream?
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
    bool has_choice; /* it belongs to the answer's text, even if it carries none */
    bool has_text;   /* content, reasoning or a tool call: at least one character */
    bool has_usage;
    uint32_t prompt_tokens, output_tokens, cached_tokens; /* as the server counts; has_usage */
};

/* ST_BAD: no JSON object. ST_UNAVAILABLE: an error, whose message is in `err`. */
enum status delta_read(struct str text, struct delta *out, struct err *err);

#endif
