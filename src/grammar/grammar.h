/* grammar/grammar.h - what an answer may be: schemas, regular expressions and grammars as masks.
 *
 * A source (JSON Schema, regular expression, list of choices, GBNF, Lark) is compiled to one form:
 * context-free rules whose terminals are regular expressions over bytes. A matcher is a position in
 * the texts that the rules allow. It says which tokens may come next, whether the text may end
 * here, and which bytes are the only ones possible.
 *
 *     source --grammar_compile--> grammar --matcher_init--> matcher --matcher_accept--> ...
 *                                            tokens --vocabulary_create--> matcher_mask
 *
 * A source is kept exactly or refused; nothing in it is ignored. Compiling and matching charge one
 * budget. Compiling that would pass it fails with a sentence. Matching first forgets what it can
 * compute again; a matcher fails only if its own next step passes the budget.
 *
 * Requests take their grammars from a cache (grammar/grammar_cache.h), which shares them.
 *
 * Lifetime: create, use, destroy; matchers end before their grammar. Thread: any; a grammar has a
 * mutex, so its matchers may be used by different threads, each matcher by one at a time.
 */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct clock;
struct grammar;    /* opaque */
struct vocabulary; /* opaque */

enum grammar_kind {
    GRAMMAR_JSON,   /* any JSON object; the source is not read                      */
    GRAMMAR_SCHEMA, /* JSON Schema: a JSON document                                 */
    GRAMMAR_REGEX,  /* ECMA 262, matches the whole answer                           */
    GRAMMAR_CHOICE, /* a JSON list of texts                                         */
    GRAMMAR_GBNF,   /* the notation of llama.cpp                                    */
    GRAMMAR_LARK,   /* the subset that docs/grammar.md describes                    */
    GRAMMAR_PARTS,  /* a JSON document of parts, below; the server's own, not a client's */
};

/* GRAMMAR_PARTS: the grammar of an answer that is made of thoughts, free text, tool calls and
 * schemas. The document is one part; a part is an object of one of these kinds:
 *
 *     {"text": "T"}                       exactly this text
 *     {"token": "T"}                      the special token that is spelled T
 *     {"free": ["M", ...]}                any text, also none, in which none of the marks M occurs;
 *                                         no special token
 *     {"free": [..], "pattern": "RE", "at": "PLACE"}
 *                                         the same; the regular expression matches it as a whole.
 *                                         With "relax": true an expression that cannot be kept is
 *                                         left out; see grammar_relaxed
 *     {"pattern": "RE"}                   a text that the regular expression matches as a whole
 *     {"schema": S, "at": "PLACE"}        JSON of this schema; $ref refers to places of S. With
 *                                         "relax": "object" or "value" a schema that cannot be
 *                                         kept becomes any JSON object or value; see
 *                                         grammar_relaxed. With "spaced": true one blank may follow
 *                                         each ',' and ':'; with
 *                                         "whitespace": true any blanks are between tokens
 *     {"grammar": "KIND", "source": "..", "at": "PLACE"}
 *                                         as the kinds above: json, schema, regex, choice, gbnf or
 *                                         lark
 *     {"refuse": "REASON", "at": "PLACE"} the document is refused for this reason
 *     {"sequence": [part, ...]}           one after the other
 *     {"any": [part, ...]}                one of them
 *     {"some": [part, ...], "between": part}
 *                                         each of them at most once, in this order; "between" is
 *                                         optional
 *     {"repeat": part, "min": N, "max": N, "between": part}
 *                                         min (0) to max (no limit) times; "between" is optional
 *
 * Lists of parts are not empty, parts nest at most 64 deep, and counts are at most 10,000. Texts of
 * parts are independent: two free texts, one after the other, may together contain a mark.
 *
 * A refusal's path begins with "at" where the part has one, else with the JSON pointer of the part:
 * "PLACE#/properties/a". */

/* In a vocabulary, the bytes of a special token are this mark, its spelling, this mark. The mark is
 * not UTF-8, so no text has it: special tokens are allowed only where {"token": ..} names them. */
enum { GRAMMAR_TOKEN_MARK = 0xFF };

struct grammar_options {
    enum grammar_kind kind;
    bool whitespace;     /* JSON: allow blanks, tabs and line ends between tokens; else compact */
    int64_t time_us;     /* of compiling; 0: the default, 2 s                                   */
    size_t bytes_max;    /* of all tables, in use too; 0: the default, 64 MiB                   */
    uint32_t states_max; /* of each automaton; 0: the default */
    size_t bytes_room;   /* what is left of the memory for all grammars; 0: enough */
    uint32_t tenant;     /* whose it is: grammar/grammar_cache.h shares it with no other */
    bool has_others;     /* there are other tenants */
    const struct clock *clock;    /* NULL: the machine's */
    bool (*cancelled)(void *ctx); /* may be NULL; true ends compiling with ST_CANCELLED */
    void *cancelled_ctx;
};

enum { GRAMMAR_PATH_BYTES = 256 };

/* Why a source was refused: the place, as a JSON pointer ("#/properties/a") or "line 3", and a
 * sentence. Paths that are longer are cut at their end. */
struct grammar_refusal {
    char path[GRAMMAR_PATH_BYTES];
    bool is_late;  /* ST_FULL: the limit of time, which depends on the machine's other work */
    bool is_share; /* ST_UNAVAILABLE: the tenant's share of the memory is used up, not all of it */
    struct err err;
};

/* ST_BAD: the source is wrong or cannot be kept exactly; ST_FULL: it passes the budget;
 * ST_UNAVAILABLE: it passes bytes_room; `why` says where. A source that no text satisfies compiles;
 * see grammar_is_empty. */
enum status grammar_compile(struct str source, const struct grammar_options *options,
                            struct grammar **out, struct grammar_refusal *why);
void grammar_destroy(struct grammar *g); /* NULL is fine */

bool grammar_is_empty(const struct grammar *g); /* no text satisfies it */
/* Of GRAMMAR_PARTS: the place and the reason of the first schema or pattern that could not be kept
 * and was relaxed; "": none was. */
const char *grammar_relaxed(const struct grammar *g);
uint32_t grammar_states(struct grammar *g);
size_t grammar_bytes(struct grammar *g);

/* A position. The grammar keeps what the matcher needs to go on from there until the matcher moves
 * or is released; so it is copied by matcher_copy, not by assignment. A caller that may have to go
 * back keeps a copy for each token. A grammar that is
 * destroyed needs no release; one of a cache lives on, and a pin that is left keeps its state. */
struct matcher {
    struct grammar *grammar;
    uint32_t state;
    uint32_t text;      /* of an array with uniqueItems that it is in; 0: none */
    enum status status; /* ST_OK, or why it has failed; see matcher_status */
};

struct matcher matcher_init(struct grammar *g);
struct matcher matcher_copy(const struct matcher *m); /* a second one at the same place */
void matcher_release(struct matcher *m);              /* zeroed is fine; leaves it zeroed */

/* Lock the grammar for several calls by this thread. is_quick: do not wait for the lock, and limit
 * the work of all calls together to about a millisecond. Returns false, without the lock, if
 * another thread holds it or if tables must be freed first. A call that would exceed the limit
 * changes nothing; grammar_is_late is then true, and the call may succeed in a hold that is not
 * quick. */
bool grammar_hold(struct grammar *g, bool is_quick);
bool grammar_is_late(const struct grammar *g); /* while it is held */
void grammar_let_go(struct grammar *g);

/* Advance by `bytes`. False: they cannot follow here; the matcher is unchanged and *accepted, if
 * not NULL, says how many bytes could. After a failure of the budget nothing can follow; see
 * matcher_status. */
bool matcher_accept(struct matcher *m, struct str bytes, size_t *accepted);
bool matcher_is_complete(const struct matcher *m); /* the text may end here */

/* Whether something may follow. A complete text that nothing follows is at its end. */
bool matcher_may_continue(const struct matcher *m);

/* The bytes that must follow, up to `max`: each is the only possibility and the text may not end
 * before it. Returns how many were written. Does not advance. */
size_t matcher_forced(const struct matcher *m, char *out, size_t max);

/* Set bit `id` of `allowed` (vocabulary_words words of 64 bits) for each token that may follow, and
 * clear the others. Tokens without bytes are never allowed. The caller decides about ends: they are
 * possible where matcher_is_complete, and nowhere else. On a failure of the budget nothing is
 * allowed; see matcher_status. */
void matcher_mask(struct matcher *m, const struct vocabulary *v, uint64_t *allowed);

/* ST_OK, or why this matcher has failed: ST_FULL, ST_NOMEM or ST_UNAVAILABLE, with a sentence.
 * Other matchers of the grammar go on. */
enum status matcher_status(const struct matcher *m, struct err *err);

/* The bytes of each token, by id; those of a special token have marks (GRAMMAR_TOKEN_MARK), those
 * of text have none. A token without bytes is never allowed. The table is copied. */
enum status vocabulary_create(const struct str *tokens, uint32_t count, struct vocabulary **out);
void vocabulary_destroy(struct vocabulary *v); /* NULL is fine */
uint32_t vocabulary_count(const struct vocabulary *v);
uint32_t vocabulary_words(const struct vocabulary *v); /* 64-bit words of a mask */
struct str vocabulary_token(const struct vocabulary *v, uint32_t token); /* its bytes */

#endif
