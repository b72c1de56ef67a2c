/* embed/submit.h - from a caller's request to one that the engine takes.
 *
 * Thread: the one that submits; tokenizing happens here.
 */
#ifndef EMBED_SUBMIT_H
#define EMBED_SUBMIT_H

#include "base/status.h"
#include "text/tokenizer.h"

struct chat_prompt;
struct jitney_request;
struct request_spec;
struct ticket;

/* What a request is held against. */
struct submit_model {
    const struct tokenizer *tokenizer;
    const struct chat_prompt *chat; /* NULL: the model has no chat template */
};

/* Check `in`, which is whole (submit_read), and put its prompt, which the caller owns, into
 * `prompt`, the rest into `spec`, which borrows from both. */
enum status submit_spec(const struct submit_model *m, const struct jitney_request *in,
                        struct tokens *prompt, struct request_spec *spec, struct err *err);

/* A caller may know fewer fields than the library: those it does not know have their defaults. */
enum status submit_read(const struct jitney_request *in, struct jitney_request *out,
                        struct err *err);

/* The ticket that callers will be told by; its stop strings are copies. */
enum status submit_ticket(const struct jitney_request *in, struct ticket **out, struct err *err);

#endif
