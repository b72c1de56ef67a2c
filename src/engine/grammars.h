/* engine/grammars.h - the grammars of one model's requests, compiled and ready to be matched.
 *
 *     source --grammars_compile--> answer_grammar --request_spec.grammar--> the request's samplers
 *
 * The masks of a grammar need the bytes of all the model's tokens. They are gathered when the first
 * request with a grammar comes. Requests with the same source share one grammar
 * (grammar/grammar_cache.h).
 *
 * Lifetime: grammars_create, grammars_unref; each answer_grammar holds a reference to its grammars
 * and is released by answer_grammar_unref. Thread: any.
 */
#ifndef ENGINE_GRAMMARS_H
#define ENGINE_GRAMMARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "grammar/grammar.h"

struct answer_grammar; /* opaque: a grammar, and the vocabulary of its masks */
struct grammars;       /* opaque */
struct sample_params;
struct tokenizer;

struct grammars_options {
    const struct tokenizer *tokenizer; /* outlives the last grammars_compile and forced text */
    const struct str *tokens; /* [vocab] their bytes, instead of a tokenizer; as long-lived */
    uint32_t vocab;           /* of the model; at least the tokenizer's */
    int64_t time_us;          /* of compiling one; 0: as in grammar/grammar.h */
    size_t bytes_max;         /* of one; 0: as in grammar/grammar.h */
    size_t memory_max; /* of all in use, and of those kept; 0: as in grammar/grammar_cache.h */
};
enum status grammars_create(const struct grammars_options *options, struct grammars **out);
void grammars_unref(struct grammars *all); /* NULL is fine */

struct grammar_source {
    enum grammar_kind kind;
    struct str text;
    uint32_t max_tokens;          /* of the answer, to see whether it can be whole; 0: any */
    bool whitespace;              /* as in struct grammar_options */
    uint32_t tenant;              /* the same */
    bool has_others;              /* the same */
    bool (*cancelled)(void *ctx); /* the same */
    void *cancelled_ctx;
};

/* How a grammar of named rules is written: GBNF if it has "::=", else Lark. */
enum grammar_kind grammar_notation(struct str text);

/* May take as long as the limits allow. ST_BAD: the source is refused, no text satisfies it, or the
 * text that every answer begins with has more than max_tokens tokens.
 * ST_FULL: it passes the limits of the options. ST_UNAVAILABLE: requests under way use up the
 * memory, or the tenant's share of it. ST_CANCELLED, ST_NOMEM. `why` has the sentence. */
enum status grammars_compile(struct grammars *all, const struct grammar_source *source,
                             struct answer_grammar **out, struct grammar_refusal *why);

void answer_grammar_ref(struct answer_grammar *g);
void answer_grammar_unref(struct answer_grammar *g); /* NULL is fine */

/* Equal for requests that share one grammar, whose work cannot be done at the same time. */
const struct grammar *answer_grammar_shared(const struct answer_grammar *g);

/* grammar_relaxed of the compiled grammar. */
const char *answer_grammar_relaxed(const struct answer_grammar *g);

/* Set the grammar of a sampler to be, and whether it forces text. */
void answer_grammar_apply(const struct answer_grammar *g, bool forces_text,
                          struct sample_params *out);

#endif
