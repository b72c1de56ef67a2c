/* api/think.h - finding a model's thoughts in its text while it is generated.
 *
 *   <think>\nFirst ..\n</think>\n\nThe answer
 *
 * A thought is the first part of an answer, between the marks of the model's form. Some templates
 * end the prompt with the opening mark; the answer then begins inside the thought. White space
 * (blanks) at both ends of the thought, and between it and the text after it, is dropped. If the
 * answer ends inside a thought (max_tokens), all of it is thought. An answer without an opening
 * mark has no thought, and its text is passed on unchanged. Only the first closing mark counts. An
 * opening mark inside a thought is part of it, except one with which the model repeats the mark
 * that ends the prompt.
 *
 * The result does not depend on how the text is divided into pieces.
 *
 * Lifetime: think_parser_init, push as the text comes, finish once, deinit. Thread: its owner.
 * Memory: at most the longest mark and THINK_BLANKS_MAX blanks are held back.
 *
 * To add a form: a row in api/think.c.
 */
#ifndef API_THINK_H
#define API_THINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

enum { THINK_BLANKS_MAX = 64 * 1024 };

struct think_form {
    const char *name;
    const char *open, *close; /* may be spellings of special tokens */
    /* Marks around the text after the thought; they are dropped. NULL: none. */
    const char *answer_open, *answer_close;
    const char *closing; /* written when the thinking budget is spent: `close` and blanks */
    const char *sign;    /* a chat template that contains it uses this form */
};
/* NULL-terminated. */
extern const struct think_form *const think_forms[];
const struct think_form *think_form_find(const char *name); /* NULL if unknown */
/* The form of a chat template; NULL: its model writes no thoughts. */
const struct think_form *think_form_of_template(struct str chat_template);
/* Whether a rendered prompt ends inside a thought: with the opening mark and blanks. */
bool think_is_open(const struct think_form *form, struct str prompt);
/* Whether it ends after one: thinking is switched off, and the answer should have no thought. */
bool think_is_over(const struct think_form *form, struct str prompt);
/* Whether `special` is one of the form's marks. */
bool think_form_needs(const struct think_form *form, struct str special);

struct think_callbacks {
    void (*on_thought)(void *ctx, struct str text);
    void (*on_text)(void *ctx, struct str text);
    void *ctx;
};

struct think_parser {
    const struct think_form *form;
    uint32_t state;
    uint32_t matched;    /* bytes of the mark that is being compared */
    bool is_open;        /* the prompt has opened the thought */
    struct buf held;     /* blanks at the beginning of the answer; later text of this piece */
    struct buf thought;  /* of this piece, then blanks that belong to it only if more follows */
    size_t thought_ends; /* bytes of `thought` before those blanks */
};

/* `is_open`: the text begins inside a thought. */
void think_parser_init(struct think_parser *p, const struct think_form *form, bool is_open);
void think_parser_deinit(struct think_parser *p);
/* ST_NOMEM only; nothing may be pushed after it. */
enum status think_parser_push(struct think_parser *p, struct str text,
                              const struct think_callbacks *to);
enum status think_parser_finish(struct think_parser *p, const struct think_callbacks *to);
/* Whether the next byte belongs to a thought or its marks: tokens are counted by this. */
bool think_parser_is_inside(const struct think_parser *p);
bool think_parser_is_undecided(const struct think_parser *p); /* it may still be a thought */
bool think_parser_is_over(const struct think_parser *p);      /* all that follows is text */

#endif
