/* cli/line_reader.h - lines from a person or from a pipe.
 *
 * On a terminal libedit edits the line and remembers earlier ones, also across runs; anywhere
 * else lines come as they are. Ctrl-C reaches it through struct interrupt.
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
    LINE_INTERRUPT, /* Ctrl-C; `out` holds nothing                        */
    LINE_TOO_LONG,  /* more bytes than `out` may hold; the line is gone   */
};

/* `history_path` may be NULL: nothing is remembered. `edit`: use the terminal's abilities. */
enum status line_reader_open(bool edit, const char *history_path, struct interrupt *interrupt,
                             struct line_reader **out, struct err *err);
void line_reader_close(struct line_reader *r); /* NULL is fine */

/* Read a line into `out` (cleared first), without its newline. `prompt` is shown only when
 * editing. */
enum line_result line_reader_next(struct line_reader *r, const char *prompt, struct buf *out);

#endif
