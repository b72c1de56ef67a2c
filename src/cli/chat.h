/* cli/chat.h - a conversation at the terminal: its state, its turns, its slash commands.
 *
 * Lifetime: the storage of cmd_chat.c's run. Thread: the main thread.
 */
#ifndef CLI_CHAT_H
#define CLI_CHAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"
#include "engine/request_run.h"
#include "engine/service.h"

struct args;
struct chat_answer;
struct dialog;
struct interrupt;
struct line_reader;
struct local;
struct remote;
struct tool_set;

enum { CHAT_CALL_ROUNDS_MAX = 16 };

struct chat {
    const struct args *args;
    struct remote *remote;  /* the server that answers; NULL: `local` does */
    struct local *local;    /* the model of `service` */
    struct service service; /* zeroed with a remote */
    struct dialog *dialog;
    struct interrupt *interrupt;
    struct line_reader *reader;
    struct logit_bias *bias; /* [LOGIT_BIAS_MAX] */
    struct sample_params sample;
    uint32_t max_tokens;       /* 0: as many as fit */
    struct tool_set *tools;    /* of --tools; NULL: none */
    int64_t tool_timeout_us;   /* of a command */
    bool runs_tools;           /* calls are run without asking */
    struct buf system;         /* the system message; empty: none */
    struct request_usage last; /* of the last answer */
    uint64_t answer_tokens;    /* of all answers */
    int64_t answer_us;
    bool on_terminal; /* standard input and output are a terminal */
    bool dims;        /* standard output is a terminal that shows dimmed text */
    bool quit;
    enum status worst; /* of the last turn that failed; the exit code if not on a terminal */
};

/* Send one message of the user and print the answer. The commands of tools that the model calls are
 * run, and their results are sent, until an answer has no call or the user stops the turn. A
 * failure is printed to standard error and leaves the conversation unchanged; a status other than
 * ST_OK ends the program. */
enum status chat_turn(struct chat *c, struct str text, struct err *err);

/* Answer the calls of an answer: ask the user, run the commands, add the results to the
 * conversation. *goes_on: the model should answer; false: the user has stopped the turn. */
enum status chat_run_calls(struct chat *c, const struct chat_answer *answer, bool *goes_on,
                           struct err *err);

/* Run a line that begins with a slash; its output goes to standard error. */
void chat_command(struct chat *c, struct str line);

/* Print a line to standard error. */
void chat_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
