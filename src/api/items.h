/* api/items.h - an answer's first choice as a list of items: thoughts, texts and tool calls.
 *
 * For wire formats that number the parts of an answer (OpenAI's responses, Anthropic's messages)
 * or write calls whole (Ollama). The items are built from the event log each time.
 *
 * Lifetime: init, next until false, deinit. Thread: the I/O thread.
 */
#ifndef API_ITEMS_H
#define API_ITEMS_H

#include <stdbool.h>
#include <stdint.h>

#include "api/answer.h"
#include "base/buf.h"
#include "base/str.h"

enum item_kind { ITEM_TEXT, ITEM_THOUGHT, ITEM_CALL };

struct answer_item {
    enum item_kind kind;
    uint32_t idx;                      /* among the items */
    uint32_t call;                     /* of a call: its number */
    struct str name;                   /* of a call */
    struct str text;                   /* the text or thought, or the call's arguments */
    uint32_t first_token, token_count; /* the answer's tokens that it carries */
};

/* How a wire format writes the arguments of a call. A model may write ones that are not an object,
 * and those of a call that max_tokens has cut are incomplete: as text they are given as they are.
 * Where only an object is possible, such a call becomes an item of text, "NAME ARGUMENTS": nothing
 * is lost, and no client takes it for a call. */
enum args_form { ARGS_AS_TEXT, ARGS_AS_OBJECT };

struct answer_items {
    const struct answer *answer;
    enum args_form form;
    uint32_t next_event, next_idx;
    struct buf text;
};

void answer_items_init(struct answer_items *it, const struct answer *a, enum args_form form);
/* Get the next item; its strings are valid until the next call. False: there is none. */
bool answer_items_next(struct answer_items *it, struct answer_item *item);
/* If memory ran out meanwhile, `out` gets that status. */
void answer_items_deinit(struct answer_items *it, struct buf *out);

/* The finish reason of the first choice, and the stop string that ended it (or empty). */
enum finish_reason answer_finish(const struct answer *a);
struct str answer_stop_text(const struct answer *a);

/* Write a call's arguments as a JSON object, without line breaks. False: they are not one, and
 * nothing is written. */
bool put_args_object(struct str args, struct buf *out);

#endif
