/* embed/submit.h - from a caller's request to the engine's request_spec.
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

/* The model that the request is for. */
struct submit_model {
    const struct tokenizer *tokenizer;
    const struct chat_prompt *chat; /* NULL: the model has no chat template */
    struct grammars *grammars;      /* NULL: it keeps to none */
};

/* Check `in`, which submit_read has filled, and put its prompt, which the caller owns, into
 * `prompt` and everything else into `spec`, which borrows from both. spec->grammar is a reference
 * of the caller's, also after a failure. */
enum status submit_spec(const struct submit_model *m, const struct jitney_request *in,
                        struct tokens *prompt, struct request_spec *spec, struct err *err);

/* A caller may have been compiled with fewer fields than the library has: the others get their
 * defaults. */
enum status submit_read(const struct jitney_request *in, struct jitney_request *out,
                        struct err *err);

/* The ticket of the request; its stop strings are copies. */
enum status submit_ticket(const struct submit_model *m, const struct jitney_request *in,
                          struct ticket **out, struct err *err);

#endif
