/* cli/terminal_text.h - text of a model or a server as it may be written to a terminal.
 *
 * A terminal takes control characters as commands: an answer could rewrite earlier lines, set the
 * title or fill the clipboard. On a terminal they are shown as \x1b and do nothing. Pipes and files
 * get the bytes as they are.
 *
 * Thread: any. Memory: none of its own.
 */
#ifndef CLI_TERMINAL_TEXT_H
#define CLI_TERMINAL_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct buf;

/* Append `text`, with the control characters (C0, DEL, C1) except newline and tab, and bytes that
 * are not UTF-8, written as \xNN. */
void terminal_text_put(struct buf *out, struct str text);

/* A line that is being edited shows emoji in parts: terminals disagree about how many columns a
 * joined one takes, and libedit cannot count them. A joiner is shown as a plus sign; a variation
 * selector, a keycap and the letters of a flag's tag as a space, one column each; a skin tone is
 * not joined with what is before it. */
void terminal_text_put_unjoined(struct buf *out, struct str text);
/* Is it shown in one column there, although it has no width? */
bool terminal_text_has_column(uint32_t code);

#endif
