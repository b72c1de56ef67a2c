/* api/tokenize.h - request and response bodies of /tokenize, /detokenize and
 * /apply-template.
 *
 * Both forms that clients use: vLLM's {"prompt"} or {"messages"}, and llama.cpp's {"content"}.
 *
 * Lifetime: X_read, then tokenize_request_deinit also when it failed. Thread: its owner.
 */
#ifndef API_TOKENIZE_H
#define API_TOKENIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "api/error.h"
#include "api/request.h"
#include "base/status.h"
#include "base/str.h"

struct buf;
struct json;
struct tokenizer;

struct tokenize_request {
    struct api_request text;     /* a conversation, or one prompt: text or ids; must be first */
    bool has_add_special, plain; /* while reading: they decide text.raw_prompt */
    bool no_special;             /* the text of a special token is ordinary text */
    bool with_pieces;            /* llama.cpp: each token as {"id", "piece"} */
    bool with_texts;             /* vLLM: token_strs beside the tokens */
    struct str content;          /* while reading: it becomes text.prompts[0] */
};

/* The request owns the body from then on, also on failure. ST_BAD: `e` says why. */
enum status tokenize_request_read(struct json *body, struct tokenize_request *r,
                                  struct api_error *e);
enum status detokenize_request_read(struct json *body, struct tokenize_request *r,
                                    struct api_error *e);
enum status template_request_read(struct json *body, struct tokenize_request *r,
                                  struct api_error *e);
void tokenize_request_deinit(struct tokenize_request *r);

/* {"tokens", "count", "max_model_len", "token_strs"} */
enum status tokenize_answer_put(const struct tokenize_request *r, const struct tokenizer *t,
                                const int32_t *ids, uint32_t count, uint32_t ctx_tokens,
                                struct buf *out);
/* {"prompt", "content"}, the same text twice. ST_BAD: the model has no token of an id, or the text
 * has more than `text_max` bytes (0: any length up to 64 MiB). */
enum status detokenize_answer_put(const struct tokenize_request *r, const struct tokenizer *t,
                                  uint64_t text_max, struct buf *out, struct api_error *e);
/* {"prompt"} */
void template_answer_put(struct str prompt, struct buf *out);

#endif
