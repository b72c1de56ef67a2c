/* sim/request_list.h - the requests of a replay, read from lines of JSON.
 *
 * A line is one request (docs/cli.md, replay):
 *
 *     {"id": "a", "at_ms": 10, "prompt": "Once", "max_tokens": 16, "temperature": 0.7, "seed": 3}
 *
 * An invalid line is reported to the caller and skipped; the others stay in the order of the file.
 * Empty lines are skipped.
 *
 * Lifetime: read, use, deinit. Thread: its owner.
 */
#ifndef SIM_REQUEST_LIST_H
#define SIM_REQUEST_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct tokenizer;

struct listed_request {
    char *id;      /* as JSON, with quotes; the line's number if not given */
    uint32_t line; /* 1 .. */
    int64_t at_us;
    int64_t cancel_after_us; /* from arrival; -1: never */
    int32_t *prompt;
    uint32_t prompt_tokens;
    uint32_t max_tokens, n;
    uint32_t *stops; /* by choice: the answer ends after so many tokens, as if the model had ended
                        it, 0: not by this; NULL: none does */
    double temperature;
    uint64_t seed; /* if not given: a hash of the id */
    bool ignore_eos;
    bool is_batch; /* "batch": it gets what other requests leave */
    int32_t priority;
    uint32_t tenant;   /* numbered in the order of appearance; 0: no tenant */
    char *tenant_name; /* of the first request that names it; else NULL */
    int64_t ttft_target_us, tpot_target_us;
};

struct request_list {
    struct listed_request *items;
    uint32_t count, cap;
    uint32_t bad_lines;
};

/* How a prompt becomes tokens. */
struct prompt_source {
    const struct tokenizer *tokenizer; /* NULL: prompts cannot be text */
    uint32_t vocab;
};

/* Reports a line that was skipped, or (is_bad false) a warning about one that is used. */
typedef void line_note_fn(void *ctx, uint32_t line, bool is_bad, const char *reason);

/* Fails with ST_NOMEM only; invalid lines are counted and reported to `note`. */
enum status request_list_read(struct request_list *list, struct str text,
                              const struct prompt_source *source, line_note_fn *note, void *ctx,
                              struct err *err);
void request_list_deinit(struct request_list *list); /* a zeroed one is fine */

/* For other readers: a copy of *item at the end of the list, which owns what it points to from then
 * on; room for the stops of its n choices, all 0; a prompt of random tokens, seeded by the id. */
enum status request_list_push(struct request_list *list, const struct listed_request *item);
enum status listed_request_make_stops(struct listed_request *item);
enum status listed_request_draw_prompt(struct listed_request *item, uint32_t prompt_tokens,
                                       const struct prompt_source *source);
void listed_request_deinit(struct listed_request *item);

uint32_t request_list_choices(const struct request_list *list); /* of all requests together */

#endif
