/* cli/grammar_trial.h - instances tried against a grammar, with the time of each mask.
 *
 * A trial walks through an instance token by token as a generation would: it computes the mask,
 * looks the token up, and advances. Without a model every byte is a token.
 *
 * Lifetime: open, use, close. Thread: the main thread.
 */
#ifndef CLI_GRAMMAR_TRIAL_H
#define CLI_GRAMMAR_TRIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct args;
struct buf;
struct grammar;
struct json;
struct tokenizer;
struct vocabulary;

/* Durations in nanoseconds, collected one by one. */
struct durations {
    int64_t *list; /* heap */
    size_t count, cap;
};
enum status durations_add(struct durations *d, int64_t ns);
void durations_deinit(struct durations *d);
/* Append {"mean": .., "p50": .., "p99": .., "max": ..} in microseconds; zeros if there are none. */
void durations_put(struct durations *d, struct buf *out);
void durations_put_text(struct durations *d, struct buf *out); /* the same for people */

struct trial_tokens {
    struct tokenizer *tokenizer; /* NULL: each byte is a token */
    struct vocabulary *vocabulary;
    uint64_t *mask; /* heap, for one mask */
};
enum status trial_tokens_open(struct tokenizer *tokenizer, struct trial_tokens *out,
                              struct err *err);
void trial_tokens_close(struct trial_tokens *t); /* a zeroed one is fine */

/* Append the value as `grammar check` reads it: compact, UTF-8, numbers without exponents and
 * integers without a fraction, the properties in their own order. */
void instance_put(const struct json *v, struct buf *out);

struct trial {
    bool accepted;
    size_t rejected_at; /* byte; the length of the text where it ends too early */
};
/* ST_BAD: the mask and the matcher disagree, which is a bug; ST_FULL: past the budget. */
enum status trial_run(struct grammar *g, struct trial_tokens *t, struct str text,
                      struct durations *masks, struct trial *out, struct err *err);

#endif
