/* cli/answer.h - an answer as it arrives: shown at once, or kept for JSON; both if asked.
 *
 * Lifetime: init, give answer_take to solo_generate, read, deinit. Thread: the main thread.
 */
#ifndef CLI_ANSWER_H
#define CLI_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

struct gen_event;
struct gen_usage;
struct tokenizer;

enum answer_mode {
    ANSWER_STREAM = 1,  /* write text to standard output as it comes */
    ANSWER_COLLECT = 2, /* collect the text                          */
    ANSWER_DETAIL = 4,  /* collect tokens and logprobs               */
    ANSWER_KEEP = ANSWER_COLLECT | ANSWER_DETAIL,
};

struct answer {
    int mode; /* ANSWER_* together */
    struct buf text;
    struct buf steps; /* struct sample_result, one after the other */
    enum status out_status;
    struct err out_err;
};

void answer_init(struct answer *a, int mode);
void answer_deinit(struct answer *a);

/* A gen_event_fn; `ctx` is the struct answer. Stops the engine when nobody reads any more. */
bool answer_take(void *ctx, const struct gen_event *event);

/* What went wrong while taking, if anything. */
enum status answer_status(const struct answer *a, struct err *err);

/* The members "text" to "usage" of the contract, without braces. Needs ANSWER_KEEP. */
void answer_put_json(const struct answer *a, const struct tokenizer *t,
                     const struct gen_usage *usage, struct buf *out);

/* A number with 9 significant digits; null if JSON has no word for it. */
void put_json_number(struct buf *out, double value);

/* One line about tokens and time on standard error. */
void answer_report_speed(const struct gen_usage *usage);

#endif
