/* api/items.h - an answer's first choice as a list of items: runs of text and tool calls.
 *
 * Wire formats that number the parts of an answer (OpenAI's responses, Anthropic's messages) and
 * those that tell calls whole (Ollama) read it this way; the log of events stays the truth.
 *
 * Lifetime: init, next until false, deinit. Thread: the io thread.
 */
#ifndef API_ITEMS_H
#define API_ITEMS_H

#include <stdbool.h>
#include <stdint.h>

#include "api/answer.h"
#include "base/buf.h"
#include "base/str.h"

struct answer_item {
    bool is_call;
    uint32_t idx;                      /* among the items */
    uint32_t call;                     /* of a call: its number */
    struct str name;                   /* of a call */
    struct str text;                   /* the run of text, or the call's arguments */
    uint32_t first_token, token_count; /* the answer's tokens that came with it */
};

struct answer_items {
    const struct answer *answer;
    uint32_t next_event, next_idx;
    struct buf text;
};

void answer_items_init(struct answer_items *it, const struct answer *a);
/* The next one; its strings live until the next call. false: there is none. */
bool answer_items_next(struct answer_items *it, struct answer_item *item);
/* A shortage of memory on the way makes `out` fail, too. */
void answer_items_deinit(struct answer_items *it, struct buf *out);

/* How the first choice ended, and at which of the request's stop strings; empty: at none. */
enum finish_reason answer_finish(const struct answer *a);
struct str answer_stop_text(const struct answer *a);

/* A call's arguments as a JSON object, without line breaks. What the model wrote may be none, or
 * cut short: then it is the text under the key "arguments", so that nothing is lost. */
void put_args_object(struct str args, struct buf *out);

#endif
