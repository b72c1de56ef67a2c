/* server/prompt.h - from a request to the tokens of its prompts.
 *
 * Rendering the chat template and tokenising are the only work on a request that grows with its
 * text, so it is done in libuv's pool.
 *
 * Lifetime: zero, set ctx_tokens, prepare, deinit. Thread: any; the model and the request do not
 * change meanwhile.
 */
#ifndef SERVER_PROMPT_H
#define SERVER_PROMPT_H

#include <stdint.h>

#include "api/error.h"
#include "api/request.h"
#include "base/status.h"
#include "text/tokenizer.h"

struct buf;
struct served_model;

struct prompts {
    struct tokens *list; /* owned; one for each prompt of the request, one for a conversation */
    uint32_t count;
    uint32_t ctx_tokens;      /* each prompt must fit this context; 0: any length is accepted */
    bool in_thought;          /* of a conversation: the prompt ends inside a thought */
    bool thought_is_over;     /* it ends after a thought: the answer has none */
    uint32_t answer_max;      /* tokens of each answer, by the key's limit; 0: any */
    struct tokens prediction; /* what the client expects of an answer; empty: nothing; not stored */
    struct tokens closing;    /* written when the thinking budget is spent; empty: no budget */
    uint64_t text_bytes_max;  /* of each prompt's text, also of a rendered one; 0: any */
};

/* ST_BAD: `e` says what is wrong with the request; ST_NOMEM fills it, too. */
enum status prompts_prepare(const struct served_model *m, const struct api_request *r,
                            struct prompts *out, struct api_error *e);
void prompts_deinit(struct prompts *p); /* a zeroed one is fine */

/* The same tokens as bytes, to be stored, and from there. The bytes are for this program on a
 * machine of the same byte order. ST_BAD: they are not such bytes. */
void prompts_put(const struct prompts *p, struct buf *out);
enum status prompts_get(struct str bytes, struct prompts *out);

/* ST_BAD: the text is longer than `max`, and `e` says so (413). 0: any length is accepted. */
enum status prompt_check_text(uint64_t bytes, uint64_t max, struct api_error *e);

/* The text of a chat prompt; appended to `out`. */
enum status prompt_render(const struct served_model *m, const struct api_request *r,
                          struct buf *out, struct api_error *e);

#endif
