/* api/teller.h - from a choice's tokens to the events of its answer.
 *
 *   token -> detokenizer (whole characters) -> stop strings -> tool-call parser -> event log
 *
 * Works a token at a time and knows nothing of who listens, so a streamed answer and a whole one
 * are the same events.
 *
 * Lifetime: create with the choice, destroy. Thread: its owner's. Memory: bounded by the longest
 * stop string, the longest tool-call head, and a character.
 */
#ifndef API_TELLER_H
#define API_TELLER_H

#include <stdbool.h>
#include <stdint.h>

#include "api/event.h"
#include "api/request.h"
#include "base/status.h"

struct teller; /* opaque */
struct tokenizer;
struct tool_form; /* api/tools.h */

struct teller_options {
    const struct api_request *request; /* outlives it */
    const struct tokenizer *tokenizer; /* outlives it */
    uint32_t choice;
    const struct tool_form *tools; /* how the model spells tool calls; NULL: text only */
};
enum status teller_create(const struct teller_options *options, struct teller **out,
                          struct err *err);
void teller_destroy(struct teller *t); /* NULL is fine */

/* The next tokens of the answer. *met: a stop string has been met; everything after it is
 * ignored, and the caller ends the choice. */
enum status teller_push(struct teller *t, const int32_t *tokens, uint32_t count,
                        struct event_log *log, bool *met);

/* The choice has ended: what was held back, then EVENT_FINISH. */
enum status teller_finish(struct teller *t, enum finish_reason finish, struct event_log *log);

bool teller_has_tools(const struct teller *t); /* it has told at least one call */

#endif
