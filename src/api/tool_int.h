/* api/tool_int.h - what the forms of api/tools.h share: the parser's state and functions on it.
 *
 * A form is a state machine over bytes. Each byte is text, is held back until more is known, is
 * part of a call's JSON (the scanner takes it), or is markup around a call, which is dropped. Every
 * decision is made byte by byte, so it does not depend on how the text is divided into pieces.
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
enum { TOOL_MARK_BYTES_MAX = 64 };

struct tool_notation;

/* Decodes the content of a JSON string byte by byte. Zero-initialise after the opening quote. */
struct tool_unescape {
    uint32_t step;
    uint32_t raw_len;
    char raw[6];   /* the current escape as it was written */
    uint32_t code; /* of the current \u escape */
    uint32_t high; /* the first half of a surrogate pair that waits for the second */
};

enum { TOOL_LITERAL_DEPTH_MAX = 64, TOOL_LITERAL_WORD_MAX = 128 };

/* Arguments that are not JSON; tool_literal.c turns them into JSON byte by byte. */
struct tool_literal {
    const struct tool_notation *notation;
    uint32_t state;
    uint32_t depth;                       /* of brackets inside the arguments */
    char closers[TOOL_LITERAL_DEPTH_MAX]; /* of those brackets */
    uint64_t has_item;                    /* bit d: the bracket at depth d has an element */
    bool has_comma;                       /* one was read and not yet passed on */
    bool is_key;                          /* the value is a key of a map */
    bool is_triple;                       /* of the string: three quotes end it */
    char quote;
    uint32_t matched; /* quotes, or bytes of a mark, that may end the string */
    uint32_t digits;  /* of an escape that are still to come */
    uint32_t code;    /* of that escape */
    uint32_t raw_len;
    char raw[TOOL_LITERAL_WORD_MAX]; /* a word, number or escape that is not yet decided */
};

/* Scans one call byte by byte, from the '{' of its JSON on, or its arguments alone.
 *
 * Without a mark before it (is_strict), the call is emitted when its name is known and its
 * arguments have begun. With a mark, it is emitted when its name is known. From then on nothing is
 * text: what is malformed is passed on as arguments, as written, up to the form's closing mark. */
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
    bool is_active;     /* between its first and its last byte */
    bool args_ended;    /* the arguments are whole */
    bool is_broken;     /* the string has a line break: the closing mark counts inside it, too */
    /* The mark that ends a broken call; NULL: none. A form sets it after tool_scan_begin. It begins
     * with a byte that does not occur in it again, or is a repetition of one byte. */
    const char *closing;
    uint32_t closing_matched;
    bool is_closed; /* the closing mark ended the call and was consumed */
    char key_text[16];
    uint32_t key_len;
    struct tool_unescape text;
    struct tool_literal literal;
    struct buf name;
    struct buf args; /* arguments before the name is known, or not yet decided */
};

/* Arguments in tags, while they are converted to a JSON object; see tool_tagged.c. */
struct tool_tagged {
    const struct json *parameters; /* the schema of the call's tool; NULL: none */
    uint32_t kinds;                /* of JSON that the value may be */
    uint32_t word_bytes;           /* of the value, from the first that is not blank */
    bool has_member;               /* of the object */
    bool is_text;                  /* the value is a string, and its beginning was passed on */
    bool at_begin;                 /* a line end here is no part of the value */
    struct buf key;
    struct buf value; /* what was not passed on yet */
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
    uint32_t mark;    /* tool_match_any: the number of the mark that is or was being compared */
    uint32_t mark_at; /* and where in `held` it begins */
    bool in_section;  /* a mark that ends a call or a section may follow; it is not text */
    struct tool_tagged tagged;
    const struct json *tools; /* borrowed; NULL: every name counts */
    struct map *names;        /* of the tools, to their numbers; NULL: every name counts */
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

/* The same for several marks, of which none is the beginning of another. `mark` is the number of
 * one that begins with what matched. */
enum tool_match tool_match_any(struct tool_parser *p, const char *const *marks, char c);

/* A step inside a mark; after its end the state is `next`. */
bool tool_take_mark(struct tool_parser *p, char c, const char *mark, uint32_t next);

/* The member "function" of the request's tool with this name; NULL: none. */
const struct json *tool_function(const struct tool_parser *p, struct str name);
/* A name outside JSON: letters, digits, '_', '-' and '.'. Set scan.name.len to 0 before the first.
 * False: too long. */
bool tool_is_name_char(char c);
bool tool_put_name(struct tool_parser *p, char c);

bool tool_name_is_known(const struct tool_parser *p, struct str name);
/* Pass on the call in p->scan, whose name is known; then pieces of its arguments. */
void tool_emit_call(struct tool_parser *p);
void tool_emit_args(struct tool_parser *p, struct str piece);

/* tool_scan.c: scans an object from its '{' on, or only the arguments of the call whose name is in
 * p->scan.name; that call is emitted at once. The bytes of a call are held until it is emitted.
 * SCAN_NOT: the byte is not consumed. It is not a call, or, if the call was emitted, its arguments
 * are complete and what follows is not the end of the object. */
enum tool_scanned { SCAN_MORE, SCAN_DONE, SCAN_NOT };
void tool_scan_begin(struct tool_parser *p, bool is_strict);
void tool_scan_begin_args(struct tool_parser *p);
/* Arguments in another notation, from the byte after their opening bracket to the closing one. */
void tool_scan_begin_literal(struct tool_parser *p, const struct tool_notation *notation,
                             bool is_strict);
enum tool_scanned tool_scan_step(struct tool_parser *p, char c);
/* The emitted call's arguments are malformed: `piece` and what follows are passed on unchanged. */
void tool_scan_break(struct tool_parser *p, struct str piece);
void tool_scan_finish(struct tool_parser *p); /* the answer ends */
/* The same as a step of a form; after the object the state is `next`. If it is not a call, what is
 * held becomes text. */
bool tool_take_object(struct tool_parser *p, char c, uint32_t next);

/* tool_scan.c: decode one byte; *len is 0 to 7 bytes in `out`. */
enum tool_scanned tool_unescape_step(struct tool_unescape *u, char c, char out[8], size_t *len);

/* tool_values.c: the texts of a list, which may be long, for look-ups. NULL: no memory. */
struct map *tool_names_of(const struct json *list);
/* Whether each name that the schema requires is one of its properties. False without memory. */
bool tool_required_are_listed(const struct json *schema);

/* Pass on arguments, or keep them until the call is emitted. */
void tool_put_args(struct tool_parser *p, struct str piece);
/* The arguments have begun: emits the call if its name is known. */
void tool_args_begin(struct tool_parser *p);

/* tool_marked.c: a JSON object or a list of objects after a mark. */
struct tool_marks {
    const char *const *open; /* NULL-terminated; all begin with the form's opener */
    const char *start;       /* another mark, valid only if no text precedes it; NULL: none */
    const char *close;
};
bool tool_marked_step(struct tool_parser *p, char c, const struct tool_marks *marks);

#endif
