/* api/embeddings.h - request and response bodies of /v1/embeddings.
 *
 * Lifetime: embed_request_read, then embed_request_deinit also when it failed. Thread: its owner.
 */
#ifndef API_EMBEDDINGS_H
#define API_EMBEDDINGS_H

#include <stdint.h>

#include "api/error.h"
#include "api/request.h"
#include "base/status.h"
#include "base/str.h"

struct buf;
struct json;

struct embed_request {
    struct api_request text; /* model, prompts (the inputs), raw_prompt, user; must be first */
    struct str format;       /* "float", "base64"; empty: float */
    uint32_t dimensions;     /* 0: all that the model has */
};

/* The request owns the body from then on, also on failure. ST_BAD: `e` says why. */
enum status embed_request_read(struct json *body, struct embed_request *r, struct api_error *e);
void embed_request_deinit(struct embed_request *r);

/* ST_BAD: a model whose vectors have `dims` numbers cannot serve the request. */
enum status embed_request_check(const struct embed_request *r, uint32_t dims, struct api_error *e);

struct embed_answer {
    struct str model;
    const float *const *vectors; /* one for each input, `dims` numbers */
    uint32_t count, dims;
    uint64_t prompt_tokens;
};
/* Write the whole response, or the vector of one input as a list of numbers. If the request wants
 * fewer dimensions than the model has, a vector keeps its first ones, scaled to length 1. */
void embed_answer_put(const struct embed_request *r, const struct embed_answer *a, struct buf *out);
void embed_vector_put(const struct embed_request *r, const struct embed_answer *a, uint32_t input,
                      struct buf *out);

#endif
