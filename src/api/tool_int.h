/* api/tool_int.h - what the forms of api/tools.h share: the parser's state and functions on it.
 *
 * A form is a state machine over bytes. Each byte is text, is held until it is certain what it
 * is, is part of a call's JSON (the scanner's), or is markup around a call, which is dropped.
 * Every decision is made byte by byte, so it does not depend on how the text is cut.
 *
 * Only api/tool_*.c include this.
 */
#ifndef API_TOOL_INT_H
#define API_TOOL_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/tools.h"
#include "base/buf.h"

/* The first state of every form, and the state after text that is not a call. */
enum { TOOL_TEXT = 0 };

/* Decodes the content of a JSON string byte by byte. Zero-initialise after the opening quote. */
struct tool_unescape {
    uint32_t step;
    uint32_t code; /* of the current \u escape */
    uint32_t high; /* the first half of a surrogate pair that waits for the second */
};

/* Scans the JSON object of one call byte by byte. */
struct tool_scan {
    uint32_t state;
    uint32_t key;   /* whose value it is in */
    uint32_t level; /* 1: the object, 2: the object under its key "function", 0: arguments only */
    uint32_t depth; /* of brackets inside the value it is in */
    bool in_string; /* inside that value */
    bool in_escape; /* the byte before was a backslash */
    bool is_strict; /* no mark precedes the object: unknown keys and missing arguments mean
                           that it is not a call */
    bool has_name;  /* the name is whole, and one of the request's */
    bool has_args;  /* the arguments have begun */
    bool has_arg_bytes; /* some of them were passed on */
    bool is_emitted;    /* the call was passed on: what follows cannot be text any more */
    char key_text[16];
    uint32_t key_len;
    struct tool_unescape text;
    struct buf name;
    struct buf args; /* what came before the name */
};

struct tool_parser {
    const struct tool_form *form;
    const struct tool_callbacks *to; /* during push and finish */
    uint32_t state;                  /* the form's */
    uint32_t matched;                /* bytes of the mark that is being compared */
    bool has_text;                   /* text was passed on since the beginning or the last call */
    bool in_list, in_fence;          /* the form's: its objects are in a list, in a ``` fence */
    bool held_is_tail;               /* `held` is the end of a call; never text */
    uint32_t call_count;
    struct buf blanks; /* white space that is text only if text follows */
    struct buf held;   /* undecided bytes: text if they are not a call */
    struct buf run;    /* decided, but not yet passed on */
    bool run_is_args;
    struct tool_scan scan;
    const struct json *tools; /* borrowed; NULL: every name counts */
};

bool tool_is_blank(char c); /* JSON's white space */

/* Take a byte outside calls. Always true: the byte is consumed. */
bool tool_take_text(struct tool_parser *p, char c);
/* The same for a byte between calls, which counts as white space. */
bool tool_take_blank(struct tool_parser *p, char c);
/* Hold an undecided byte. Always true. */
bool tool_hold(struct tool_parser *p, char c);

/* Not a call after all: what is held is text. Always false: the byte is not consumed. */
bool tool_give_up(struct tool_parser *p);
/* Change the state. Always false: the new state gets the same byte. */
bool tool_enter_state(struct tool_parser *p, uint32_t state);

/* Compare with a mark byte by byte and hold what matches. Set `matched` to 0 before the first. */
enum tool_match { MATCH_MORE, MATCH_DONE, MATCH_NOT };
enum tool_match tool_match(struct tool_parser *p, const char *mark, char c);

/* A step inside a mark; after its end the state is `next`. */
bool tool_take_mark(struct tool_parser *p, char c, const char *mark, uint32_t next);

bool tool_name_is_known(const struct tool_parser *p, struct str name);
/* Pass on the call in p->scan, whose name is known; then pieces of its arguments. */
void tool_emit_call(struct tool_parser *p);
void tool_emit_args(struct tool_parser *p, struct str piece);

/* tool_scan.c: the bytes of an object from its '{' on, or of arguments alone for the call whose
 * name is in p->scan.name. Until the call is emitted its bytes are held. SCAN_NOT: not consumed. */
enum tool_scanned { SCAN_MORE, SCAN_DONE, SCAN_NOT };
void tool_scan_begin(struct tool_parser *p, bool is_strict);
void tool_scan_begin_args(struct tool_parser *p);
enum tool_scanned tool_scan_step(struct tool_parser *p, char c);
/* The same as a step of a form; after the object the state is `next`. If it is not a call, what is
 * held becomes text. */
bool tool_take_object(struct tool_parser *p, char c, uint32_t next);

/* tool_scan.c: decode one byte; *len is 0 to 7 bytes in `out`. */
enum tool_scanned tool_unescape_step(struct tool_unescape *u, char c, char out[8], size_t *len);

#endif
