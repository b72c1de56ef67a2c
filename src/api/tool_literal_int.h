/* api/tool_literal_int.h - arguments of calls that are not written as JSON: Python's and Gemma's.
 *
 * Only api/tool_*.c include this.
 */
#ifndef API_TOOL_LITERAL_INT_H
#define API_TOOL_LITERAL_INT_H

#include "api/tool_int.h"

/* tool_literal.c: a notation of arguments other than JSON. */
struct tool_notation {
    char assign, close; /* after an argument's name; after the last argument */
    const char *escape; /* the mark around strings; NULL: quotes, with Python's escapes */
    const char *end;    /* with `escape`: the mark behind the call, which ends a string, too */
};
extern const struct tool_notation tool_notation_python;  /* a="x", b=[1, None]) */
extern const struct tool_notation tool_notation_escaped; /* a:<escape>x<escape>,b:[1,null]} */
extern const struct tool_notation tool_notation_quoted;  /* the same with <|"|> for <escape> */
/* Whether an argument can have this name. */
bool tool_literal_is_name(const struct tool_notation *notation, struct str name);
enum tool_scanned tool_literal_step(struct tool_parser *p, char c);
/* Pass on what is not yet decided. is_cut: the answer ends here, so only if it is a value. */
void tool_literal_flush(struct tool_parser *p, bool is_cut);

/* tool_literal_parts.c: tool_shape.put_args of these notations. */
void tool_python_put_args(const struct json *function, struct str at, bool strict, struct buf *out);
void tool_escaped_put_args(const struct json *function, struct str at, bool strict,
                           struct buf *out);
void tool_quoted_put_args(const struct json *function, struct str at, bool strict, struct buf *out);

#endif
