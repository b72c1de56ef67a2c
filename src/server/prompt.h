/* server/prompt.h - from what a client asked to the tokens that the model reads.
 *
 * Template and tokenizer are the only work on a request that grows with its text, so this is what
 * is handed to a pool of threads when the text is long.
 *
 * Lifetime: zero, bytes_max if wanted, prepare, deinit. Thread: any; the model and the request do
 * not change meanwhile.
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
    uint64_t bytes_max; /* of one text, for those who want no more than fits; 0: any */
};

/* ST_BAD: `e` says what the client did wrong; ST_NOMEM fills it, too. */
enum status prompts_prepare(const struct served_model *m, const struct api_request *r,
                            struct prompts *out, struct api_error *e);
void prompts_deinit(struct prompts *p); /* a zeroed one is fine */

/* The text that a conversation becomes; appended to `out`. */
enum status prompt_render(const struct served_model *m, const struct api_request *r,
                          struct buf *out, struct api_error *e);

#endif
