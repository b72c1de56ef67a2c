/* api/tool_tags_int.h - what the forms with marks or tags around a name and its arguments share:
 * Qwen3-Coder, GLM, Kimi, DeepSeek. A form handles its own states and passes the others to
 * tool_section_step or tool_tagged_step.
 *
 * Only api/tool_*.c include this.
 */
#ifndef API_TOOL_TAGS_INT_H
#define API_TOOL_TAGS_INT_H

#include "api/tool_int.h"

/* tool_marks.c. What is held before the mark that is being compared is text; the form then gets the
 * bytes of this mark again, because they may begin another mark. Always false. */
bool tool_give_up_before_mark(struct tool_parser *p);
/* The mark p->mark is complete, but not expected here: what is held is text. Always true. */
bool tool_give_up_mark(struct tool_parser *p);

/* The tail: what is held after the name of an emitted call. It is never text. */
enum { TOOL_TAIL_BYTES_MAX = 4096 };                /* of blanks and marks in the tail */
bool tool_hold_tail(struct tool_parser *p, char c); /* false: too much; it is not held */
void tool_drop_tail(struct tool_parser *p);
void tool_emit_tail(struct tool_parser *p); /* as arguments */
/* As a step of a form: pass the tail on; then `state` gets the byte. */
bool tool_emit_tail_and_enter(struct tool_parser *p, uint32_t state);

/* The name of the call: a part of p->scan.name, without the blanks around it. */
void tool_set_name(struct tool_parser *p, struct str name);
/* tool_section.c: calls with JSON between marks, in a section of calls:
 *
 *   begin call HEAD sep .. {..} call_end  call HEAD sep .. {..} call_end  end */
struct tool_section {
    const char *const *open;                /* begin, call and end, NULL */
    const char *const *call;                /* call, NULL */
    const char *const *sep;                 /* what ends the head, NULL */
    const char *const *close;               /* call_end and end, NULL */
    bool has_fence;                         /* ``` may be around the JSON */
    bool (*on_head)(struct tool_parser *p); /* the head is in p->scan.name; returns true */
};
enum { TOOL_SECTION_ARGS = 32 }; /* its first state; smaller ones are the form's */
bool tool_section_step(struct tool_parser *p, char c, const struct tool_section *s);
/* The name is known: pass the call on; its arguments follow. */
bool tool_section_begin_args(struct tool_parser *p);

/* tool_tagged.c: arguments in tags, <tag=KEY>VALUE</tag>; the tool's schema gives their kinds. */
struct tool_tags {
    const char *const *value_end; /* the mark after a value, NULL */
    const char *const *next;      /* what may follow a value: another one, the call's end; NULL */
    bool has_lines;               /* one line end before and after a value is not part of it */
    bool has_python_words;        /* True, False, None are read if the schema allows no string */
    /* p->mark of `next` was read; what is held begins with it. Always true. */
    bool (*on_next)(struct tool_parser *p);
    /* For the grammar. */
    const char *before_key, *after_key, *after_value;
};
enum { TOOL_TAGGED_FIRST = 32 }; /* its states; smaller ones are the form's */
bool tool_tagged_step(struct tool_parser *p, char c, const struct tool_tags *t);
void tool_tagged_begin(struct tool_parser *p); /* the name is known: pass the call on */
void tool_tagged_begin_value(struct tool_parser *p, const struct tool_tags *t); /* of tagged.key */
bool tool_tagged_end(struct tool_parser *p); /* of the call. Always true */
/* The call is malformed: what is held and what follows is passed on as written. Always false. */
bool tool_tagged_malformed(struct tool_parser *p);

/* tool_values.c: the kinds of JSON that a property's schema allows, as bits. */
enum {
    KIND_TEXT = 1,
    KIND_INT = 2,
    KIND_REAL = 4, /* and whole numbers */
    KIND_BOOL = 8,
    KIND_NULL = 16,
    KIND_MAP = 32,
    KIND_LIST = 64,
    KIND_ANY = 127,
};
uint32_t tool_kinds_of(const struct json *root, const struct json *schema);
const struct json *tool_resolve(const struct json *root, const struct json *schema); /* $ref */
uint32_t tool_kinds_at(char first); /* of the values that can begin with this byte */
/* Whether the text is JSON of one of these kinds. */
bool tool_is_json_of(struct str text, uint32_t kinds);

/* tool_tagged_grammar.c: put_args of struct tool_shape. */
struct tool_schema {
    const struct json *function;
    struct str at;
    bool strict;
};
void tool_tagged_put_args(const struct tool_schema *s, const struct tool_tags *t, struct buf *out);

#endif
