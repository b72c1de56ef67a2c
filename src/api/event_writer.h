/* api/event_writer.h - writes the events of one choice into the answer's log as its tokens come.
 *
 *   token -> text_output (characters, stop strings) -> think parser -> tool-call parser -> log
 *
 * It works on one token at a time and does not know who reads the log, so a streamed answer and a
 * whole one are the same events. An event carries the tokens that arrived since the event before.
 *
 * Lifetime: create with the choice, destroy. Thread: its owner's. Memory: bounded by the longest
 * stop string, THINK_BLANKS_MAX, TOOL_HELD_BYTES_MAX and one token.
 */
#ifndef API_EVENT_WRITER_H
#define API_EVENT_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "api/event.h"
#include "api/request.h"
#include "base/status.h"

struct event_writer; /* opaque */
struct tokenizer;
struct think_form; /* api/think.h */
struct tool_form;  /* api/tools.h */

struct event_writer_options {
    const struct api_request *request; /* outlives it */
    const struct tokenizer *tokenizer; /* outlives it */
    uint32_t choice;
    const struct tool_form *tools;   /* how the model writes tool calls; NULL: text only */
    const struct think_form *thinks; /* how it writes thoughts; NULL: it has none */
    bool in_thought;                 /* the prompt ends inside a thought */
};
enum status event_writer_create(const struct event_writer_options *options,
                                struct event_writer **out, struct err *err);
void event_writer_destroy(struct event_writer *w); /* NULL is fine */

/* Say that the prompt, which was rendered after create, ends inside a thought. Call it before the
 * first token. */
void event_writer_set_in_thought(struct event_writer *w);

/* The next tokens of the answer. *has_stopped: a stop string was found, or a second tool call began
 * and the request allows one; later tokens are ignored, and the caller ends the choice. */
enum status event_writer_push(struct event_writer *w, const int32_t *tokens, uint32_t count,
                              struct event_log *log, bool *has_stopped);

/* The choice has ended: write what was held back, then EVENT_FINISH. *finish is the engine's
 * reason; it becomes FINISH_STOP if the text ended at a stop string. */
enum status event_writer_finish(struct event_writer *w, enum finish_reason *finish,
                                struct event_log *log);

uint32_t event_writer_calls(const struct event_writer *w); /* tool calls written so far */
/* Tokens of the thought so far, including those of its marks. */
uint32_t event_writer_thought_tokens(const struct event_writer *w);

#endif
