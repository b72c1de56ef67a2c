/* cli/chat_answer.h - writes one answer of a conversation to standard output as it arrives, and
 * keeps it: thoughts, text and tool calls.
 *
 *   thoughts   dimmed if the terminal supports it, else between <think> and </think>; then a blank
 *              line
 *   text       as it is
 *   calls      a line each, at the end of the answer (cli/call_text.h)
 *
 * Control characters do not reach a terminal (cli/terminal_text.h).
 *
 * Lifetime: init, take what comes, finish once, read, deinit. Thread: the main thread.
 */
#ifndef CLI_CHAT_ANSWER_H
#define CLI_CHAT_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

struct json;

enum { ANSWER_CALLS_MAX = 64, CALL_ARGS_BYTES_MAX = 1 << 20 };

struct answer_call {
    struct buf id, name, args;
    bool is_long; /* its line does not show all of its arguments */
};

struct chat_answer {
    bool dims;     /* the terminal shows dimmed text */
    uint32_t part; /* what is being written */
    struct buf text, thoughts;
    uint32_t call_count;
    struct answer_call calls[ANSWER_CALLS_MAX];
    bool is_cut; /* the answer ended inside its last call */
    enum status out_status;
    struct err out_err;
};

void chat_answer_init(struct chat_answer *a, bool dims);
void chat_answer_deinit(struct chat_answer *a);

/* False: standard output cannot be written, and the request should be cancelled. */
bool chat_answer_take_thought(struct chat_answer *a, struct str text);
bool chat_answer_take_text(struct chat_answer *a, struct str text);

/* A part of a call. The first part of a call has its id, if there is one, and its name. */
struct call_piece {
    int64_t index; /* of the call, from 0 */
    struct str id, name;
    struct str args; /* the next bytes of the arguments */
};
/* ST_BAD: the index is wrong, or the call is too long. */
enum status chat_answer_take_call(struct chat_answer *a, const struct call_piece *piece,
                                  struct err *err);

/* The answer has ended: show the calls and end the line. `is_short`: the user stopped the answer,
 * or it reached its maximum of tokens. */
void chat_answer_finish(struct chat_answer *a, bool is_short);

/* The first error of writing or keeping it. */
enum status chat_answer_status(const struct chat_answer *a, struct err *err);

/* The message of the assistant for the history; the caller owns it. NULL: out of memory. */
struct json *chat_answer_message(const struct chat_answer *a, bool with_calls);

#endif
