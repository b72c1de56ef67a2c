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

#include "base/str.h"

struct buf;

/* Append `text`, with the control characters (C0, DEL, C1) except newline and tab, and bytes that
 * are not UTF-8, written as \xNN. */
void terminal_text_put(struct buf *out, struct str text);

#endif
