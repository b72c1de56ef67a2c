/* cli/tool_run.h - runs the command of a tool and keeps a bounded part of its output.
 *
 * The program is started without a shell, in a session of its own: it has no terminal, and its
 * processes can be ended together. It gets `input` on standard input. The first bytes of its
 * standard output and standard error are kept; the rest is read and counted. At the time limit and
 * at Ctrl-C its processes get SIGTERM, one second later SIGKILL. If the program exits and leaves
 * processes behind, they are not waited for.
 *
 *   start --> exit ............ TOOL_EXITED, `code` is the exit status
 *         --> signal .......... TOOL_SIGNALLED, `code` is its number
 *         --> time limit ...... TOOL_TIMED_OUT
 *         --> Ctrl-C .......... TOOL_STOPPED
 *         --> not started ..... TOOL_NOT_STARTED, `code` is the errno
 *
 * Lifetime: tool_result_init, tool_run, read, tool_result_deinit. Thread: the main thread.
 * Memory: TOOL_OUTPUT_BYTES_MAX + TOOL_ERRORS_BYTES_MAX.
 */
#ifndef CLI_TOOL_RUN_H
#define CLI_TOOL_RUN_H

#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

struct interrupt;

enum { TOOL_OUTPUT_BYTES_MAX = 64 * 1024, TOOL_ERRORS_BYTES_MAX = 4 * 1024 };

enum tool_end { TOOL_EXITED, TOOL_SIGNALLED, TOOL_TIMED_OUT, TOOL_STOPPED, TOOL_NOT_STARTED };

struct tool_command {
    char *const *argv; /* ends with NULL; argv[0] is searched in PATH */
    struct str input;
    int64_t timeout_us;
    struct interrupt *interrupt; /* borrowed; in the state IDLE (cli/interrupt.h) */
};

struct tool_result {
    enum tool_end end;
    int code;
    struct buf output, errors;           /* the first bytes of each */
    uint64_t output_bytes, errors_bytes; /* of all that was written */
};

void tool_result_init(struct tool_result *r);
void tool_result_deinit(struct tool_result *r);

void tool_run(const struct tool_command *command, struct tool_result *out);

#endif
