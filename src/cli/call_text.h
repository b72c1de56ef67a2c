/* cli/call_text.h - writes tool calls, commands and outputs on one line, for a person to read.
 *
 *   -> get_weather(city="Paris", days=3)
 *   -> note(text="Lorem ipsum dolor sit amet..." (1234 bytes))
 *   -> get_weather({"city": "Par (cut)
 *
 * The model chooses names and arguments. Control characters and newlines in them are escaped as in
 * JSON, so that a call cannot imitate a line that the program writes.
 *
 * Thread: any. Memory: none of its own.
 */
#ifndef CLI_CALL_TEXT_H
#define CLI_CALL_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

struct buf;

/* Whether the arguments of a call are a JSON object; no text at all counts as an empty one. */
bool call_args_are_whole(struct str args);

/* Append the call without a newline. `is_cut`: the answer ended inside it. Returns whether a part
 * of the arguments is left out because it is long. */
bool call_text_put(struct str name, struct str args, bool is_cut, struct buf *out);

/* Append the words of a command; those with blanks, quotes or unusual characters as JSON strings.
 * `argv` ends with NULL. */
void command_text_put(char *const *argv, struct buf *out);

/* Append at most `bytes` bytes of the text, escaped, then "..." and the whole length if it has
 * more. Returns whether it has. */
bool short_text_put(struct str text, size_t bytes, struct buf *out);

#endif
