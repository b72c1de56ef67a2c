/* api/tool_int.h - what the forms of api/tools.h share: the parser's state and its verbs.
 *
 * A form is a state machine over bytes. Each byte is text, is held until it is certain what it
 * is, is part of a call's JSON (the scanner's), or is spelling around a call and told to nobody.
 * Because every decision is taken byte by byte, the cut of the pieces cannot matter.
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

/* The state in which every form begins, and to which what is no call returns. */
enum { TOOL_TEXT = 0 };

/* A JSON string's contents, a byte at a time. Zero-initialise behind the opening quote. */
struct tool_unescape {
    uint32_t step;
    uint32_t code; /* the \u escape under way */
    uint32_t high; /* the first half of a surrogate pair that waits for the second */
};

/* One call's JSON object, a byte at a time. */
struct tool_scan {
    uint32_t state;
    uint32_t key;   /* whose value it is in */
    uint32_t level; /* 1: the object, 2: the object under its key "function", 0: arguments only */
    uint32_t depth; /* of brackets inside the value it is in */
    bool in_string; /* inside that value */
    bool in_escape; /* the byte before was a backslash */
    bool is_strict; /* only the object itself says that it is a call: no unknown keys, and
                           arguments are a must */
    bool has_name;  /* the name is whole, and one of the request's */
    bool has_args;  /* the arguments have begun */
    bool has_arg_bytes; /* some of them have been passed on */
    bool is_told;       /* the call has been told: what follows cannot be text any more */
    char key_text[16];
    uint32_t key_len;
    struct tool_unescape text;
    struct buf name;
    struct buf args; /* what came before the name */
};

struct tool_parser {
    const struct tool_form *form;
    const struct tool_sink *sink; /* during push and finish */
    uint32_t state;               /* the form's */
    uint32_t matched;             /* bytes of the mark that is being compared */
    bool has_text;                /* text has been told since the beginning or the last call */
    bool in_list, in_fence;       /* the form's: what stands around its objects */
    bool held_is_tail;            /* what is held closes a call: nothing is lost if it breaks off */
    uint32_t call_count;
    struct buf blanks; /* white space that is told only if text follows */
    struct buf held;   /* what is undecided: text if it is no call */
    struct buf run;    /* what is decided but not passed on yet */
    bool run_is_args;
    struct tool_scan scan;
    const struct json *tools; /* borrowed; NULL: every name counts */
};

bool tool_is_blank(char c); /* JSON's white space */

/* A byte outside calls. As a step's result: it is used up. */
bool tool_take_text(struct tool_parser *p, char c);
/* The same for a byte that separates calls: it counts as white space. */
bool tool_take_blank(struct tool_parser *p, char c);
/* A byte that is undecided. */
bool tool_hold(struct tool_parser *p, char c);

/* No call after all: what is held is text, and the byte at hand comes again. */
bool tool_give_up(struct tool_parser *p);
/* Into another state, where the byte at hand comes again. */
bool tool_go(struct tool_parser *p, uint32_t state);

/* Compare with a mark, byte by byte, holding what fits. Set `matched` to 0 before the first. */
enum tool_match { MATCH_MORE, MATCH_DONE, MATCH_NOT };
enum tool_match tool_match(struct tool_parser *p, const char *mark, char c);

/* A step inside a mark, and into `next` behind it. */
bool tool_take_mark(struct tool_parser *p, char c, const char *mark, uint32_t next);

bool tool_name_is_known(const struct tool_parser *p, struct str name);
/* The call in p->scan begins: its name is known. */
void tool_tell_call(struct tool_parser *p);
void tool_tell_args(struct tool_parser *p, struct str piece);

/* tool_scan.c: the bytes of an object from its '{' on, or of arguments alone for the call whose
 * name is in p->scan.name. What is not told yet is held. SCAN_NOT: the byte is not used up. */
enum tool_scanned { SCAN_MORE, SCAN_DONE, SCAN_NOT };
void tool_scan_begin(struct tool_parser *p, bool is_strict);
void tool_scan_begin_args(struct tool_parser *p);
enum tool_scanned tool_scan_step(struct tool_parser *p, char c);
/* The same as a form's step, and into `next` behind it. What is no call after all is text. */
bool tool_take_object(struct tool_parser *p, char c, uint32_t next);

/* tool_scan.c: 0 .. 7 bytes of a string's contents to out. */
enum tool_scanned tool_unescape_step(struct tool_unescape *u, char c, char out[8], size_t *len);

#endif
