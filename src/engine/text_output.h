/* engine/text_output.h - from the tokens of one choice to its text.
 *
 *   token -> detokenizer (whole characters) -> stop strings -> text for the client
 *
 * Every way of generating uses it: the HTTP API, the C library and the command line, so the same
 * tokens give the same text everywhere. These tokens add nothing to the text:
 *   - a stop token of the request, unless include_stop is set;
 *   - an end token of the model, unless keep_special or ignore_end is set;
 *   - any other special token, unless keep_special is set or `shows_special` accepts it.
 * Text that may be the beginning of a stop string is held back until more text decides it. Before
 * min_tokens, stop tokens are ordinary tokens and text is not compared with the stop strings.
 *
 * Lifetime: init, push each token, finish, deinit. Thread: its owner.
 * Memory: bounded by the longest stop string and the longest token.
 */
#ifndef ENGINE_TEXT_OUTPUT_H
#define ENGINE_TEXT_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"
#include "sched/seq.h"
#include "text/tokenizer.h"

enum { STOP_STRINGS_MAX = 16, STOP_STRING_BYTES_MAX = 256 };

/* All pointers are borrowed and outlive the text_output. */
struct text_output_options {
    const struct tokenizer *tokenizer;
    const struct str *stops; /* stop strings */
    uint32_t stop_count;
    const int32_t *stop_tokens;
    uint32_t stop_token_count;
    uint32_t min_tokens;
    bool include_stop; /* the stop string, or the text of the stop token, ends the text */
    bool keep_special;
    bool ignore_end; /* the model's end tokens do not end the answer */
    /* Special tokens that stay in the text although keep_special is off; NULL: none do. */
    bool (*shows_special)(void *ctx, int32_t token);
    void *ctx;
};

struct text_output {
    struct text_output_options options;
    struct detok detok;
    struct buf piece;     /* the text of one token; empty between calls */
    struct buf held;      /* may be the beginning of a stop string */
    uint32_t token_count; /* pushed */
    struct str stop;      /* the stop string that was met; empty: none */
    bool has_stopped;     /* a stop string was met; later tokens are ignored */
};

void text_output_init(struct text_output *o, const struct text_output_options *options);
void text_output_deinit(struct text_output *o);

/* Appends to `out` the text that can be shown after one more token; often empty. True: a stop
 * string was met, and the caller ends the choice. A failure is in buf_status(out). */
bool text_output_push(struct text_output *o, int32_t token, struct buf *out);

/* The choice has ended for `reason`: appends what was held back. Returns the reason to report,
 * which is FINISH_STOP if the text ended at a stop string. A failure is in buf_status(out). */
enum finish_reason text_output_finish(struct text_output *o, enum finish_reason reason,
                                      struct buf *out);

#endif
