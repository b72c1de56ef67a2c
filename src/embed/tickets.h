/* embed/tickets.h - the requests of one open model, and who waits for news of them.
 *
 * A ticket is what the library keeps of a request: how far each of its answers has come, and what
 * of that its callers have been told. The engine's thread notes what has moved; callers' threads
 * wait, claim one answer that has news, make an event of it without holding the lock, and give
 * the ticket back. A ticket is claimed by one thread at a time, so that the events of an answer
 * are made in order, each once.
 *
 *     ready list:  tickets with news that nobody has claimed, in order of arrival
 *     table:       tickets by id, until the last event of their last answer was given
 *
 * A ticket is freed when its callers were told everything, the engine has finished with it, and
 * nobody has it in hand or waits for it.
 *
 * Lifetime: one per open model. Thread: any. Memory: a ticket is one block, made by the thread
 * that submits.
 */
#ifndef EMBED_TICKETS_H
#define EMBED_TICKETS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "engine/request.h"
#include "engine/stops.h"
#include "text/tokenizer.h"

struct tickets; /* opaque */

/* One answer. */
struct answer {
    /* What the engine has published; under the lock. */
    uint32_t ready; /* tokens, prompt included */
    uint32_t cached_tokens;
    enum finish_reason finish;
    /* Whoever has claimed the ticket. */
    uint32_t seen; /* tokens, prompt included, that events have told */
    struct detok detok;
    struct stops stops;
};

struct ticket {
    uint64_t id;
    void *user;
    struct request *request; /* a reference, once it is added */
    uint32_t answer_count;
    uint32_t top_count;
    bool keep_special, logprobs;
    struct str *stop_strings; /* heap, with their bytes behind them */
    uint32_t stop_count;

    /* Under the lock. */
    bool is_added, is_claimed, is_ready;
    uint32_t moved;   /* bit per answer: there is news */
    uint32_t open;    /* bit per answer: its last event was not given yet */
    uint32_t running; /* bit per answer: the engine has not finished with it */
    uint32_t turn;    /* the answer whose news come first */
    uint32_t waiter_count;
    struct ticket *next_ready, *prev_ready, *next_in_bucket;

    struct answer answers[]; /* answer_count */
};

/* NULL when out of memory. A ticket that was not added is freed by destroy. */
struct ticket *ticket_create(uint32_t answer_count);
void ticket_destroy(struct ticket *t); /* NULL is fine */

enum status tickets_create(struct tickets **out);
void tickets_destroy(struct tickets *ts); /* NULL is fine; frees what is left */

/* Every call of the library stands between enter and leave. False once it was stopped. */
bool tickets_enter(struct tickets *ts);
void tickets_leave(struct tickets *ts);
/* Let nobody in any more, and nobody wait. */
void tickets_stop(struct tickets *ts);
/* After stop: wait until everybody has left. */
void tickets_empty(struct tickets *ts);

/* The engine has accepted it: `request` is its reference. The engine may have noted news of it
 * already. */
void tickets_add(struct tickets *ts, struct ticket *t, struct request *request);

/* The engine's thread: `c`, whose request's user is a ticket, has moved. */
void tickets_note(struct tickets *ts, const struct choice *c);

/* Wait for news of ticket `id` (0: of any) and claim it. `until_us` is a time of clock_real: past,
 * it looks only; INT64_MAX waits for ever. */
enum wait_result { WAIT_CLAIMED, WAIT_TIMEOUT, WAIT_IDLE, WAIT_CLOSED };
struct claim {
    struct ticket *ticket;
    uint32_t answer;
    /* What the engine had published when it was claimed. */
    uint32_t ready, cached_tokens;
    enum finish_reason finish;
};
enum wait_result tickets_claim(struct tickets *ts, uint64_t id, int64_t until_us,
                               struct claim *out);
/* Give it back; `is_over`: that was the answer's last event. The ticket may be gone afterwards. */
void tickets_unclaim(struct tickets *ts, const struct claim *claim, bool is_over);

/* The request of ticket `id`, with a reference for the caller; NULL if there is none. */
struct request *tickets_find(struct tickets *ts, uint64_t id);

#endif
