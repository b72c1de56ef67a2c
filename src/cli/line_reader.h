/* cli/line_reader.h - lines from a person or from a pipe.
 *
 * On a terminal libedit edits the line and keeps a history, which is saved between runs. The line
 * is drawn again when the window changes its width. Elsewhere lines are read unchanged. Ctrl-C
 * arrives through struct interrupt.
 *
 * Lifetime: open, close (which saves the history). Thread: the main thread.
 */
#ifndef CLI_LINE_READER_H
#define CLI_LINE_READER_H

#include <stdbool.h>

#include "base/status.h"

struct buf;
struct interrupt;
struct line_reader; /* opaque */

enum line_result {
    LINE_TEXT,
    LINE_END,       /* end of input, or Ctrl-D on an empty line           */
    LINE_INTERRUPT, /* Ctrl-C; `out` is empty                             */
    LINE_TOO_LONG,  /* the line is lost: buf_status(out) is ST_FULL or ST_NOMEM */
};

/* `history_path` may be NULL: no history. `edit`: edit lines on the terminal. */
enum status line_reader_open(bool edit, const char *history_path, struct interrupt *interrupt,
                             struct line_reader **out, struct err *err);
void line_reader_close(struct line_reader *r); /* NULL is fine */

/* Read a line into `out` (cleared first), without its newline. `prompt` is shown only when
 * editing. */
enum line_result line_reader_next(struct line_reader *r, const char *prompt, struct buf *out);

/* Ask a question on the terminal and read the reply. Input that was typed before the question is
 * shown is dropped, because it cannot be meant as the reply. The reply is not added to the
 * history. */
enum line_result line_reader_ask(struct line_reader *r, const char *question, struct buf *out);

#endif
