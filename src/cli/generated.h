/* cli/generated.h - what a model generates, as it arrives: printed at once, kept for JSON, or both.
 *
 * Lifetime: init, pass generated_take to request_run, read, deinit. Thread: the main thread.
 */
#ifndef CLI_GENERATED_H
#define CLI_GENERATED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

struct request_usage;
struct token_event;
struct tokenizer;

enum generated_mode {
    GENERATED_STREAM = 1,  /* write text to standard output as it comes */
    GENERATED_COLLECT = 2, /* collect the text                          */
    GENERATED_DETAIL = 4,  /* collect tokens and logprobs               */
    GENERATED_KEEP = GENERATED_COLLECT | GENERATED_DETAIL,
};

struct generated {
    int mode; /* GENERATED_* together */
    struct buf text;
    struct buf steps; /* struct sample_result, one after the other */
    enum status out_status;
    struct err out_err;
};

void generated_init(struct generated *g, int mode);
void generated_deinit(struct generated *g);

/* A token_event_fn; `ctx` is the struct generated. Cancels the request when standard output
 * cannot be written. */
bool generated_take(void *ctx, const struct token_event *event);

/* The first error of generated_take. */
enum status generated_status(const struct generated *g, struct err *err);

/* The members "text" to "usage" of the contract, without braces. Needs GENERATED_KEEP. */
void generated_put_json(const struct generated *g, const struct tokenizer *t,
                        const struct request_usage *usage, struct buf *out);

/* A number with 9 significant digits; null if it is not finite. */
void put_json_number(struct buf *out, double value);

/* One line about tokens and time on standard error. */
void report_speed(const struct request_usage *usage);

#endif
