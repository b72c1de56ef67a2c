/* server/generation_int.h - what the files of a generation share.
 *
 *     generation.c          create, destroy, and the end
 *     generation_submit.c   from the request to the engine
 *     generation_deliver.c  from the engine's tokens to events, and from events to sinks
 *     generation_keep.c     finding a generation, keeping those that have ended, and their memory
 *     generation_report.c   metrics, usage, log and trace of one that has ended
 */
#ifndef SERVER_GENERATION_INT_H
#define SERVER_GENERATION_INT_H

#include <uv.h>

#include "base/share.h"
#include "server/generation.h"
#include "server/generations.h"

enum { GENERATION_BUCKETS = 8192 };
enum { GRAMMAR_RETRY_MS = 1000 }; /* after a refusal for the memory of grammars */

/* One engine request of a generation. The engine's `user` points here until it is released. */
struct generation_part {
    struct generation *generation;
    struct request *request; /* a reference */
    uint32_t first;          /* its first choice among the generation's */
};

struct generation_choice {
    struct event_writer *writer;
    uint32_t taken;         /* tokens of the answer that became events */
    bool is_closed;         /* it gets no further events */
    bool is_finished;       /* the engine has ended it, or never had it */
    bool is_cached_counted; /* its prompt's cached tokens are in the answer */
    int64_t last_us;        /* when its last tokens arrived; 0: it has none */
};

struct generations {
    struct generations_options options;
    struct list items;           /* all generations */
    struct list kept;            /* ended and findable, the oldest first */
    struct list smoothing;       /* with text on their smoother's stage */
    uint32_t live;               /* started and not ended */
    struct budget answers, keep; /* memory of all generations, and of those that are kept */
    uint64_t refused;            /* for want of memory */
    uv_timer_t keep_timer, smooth_timer;
    bool is_closed;
    struct generation *by_id[GENERATION_BUCKETS], *by_request[GENERATION_BUCKETS];
};

/* ---- generation.c ---- */
/* End, keep or free the generation if it is time. Every function that changes a generation calls
 * this last; afterwards the generation may be freed. */
void generation_check_end(struct generation *gen);
void generation_destroy(struct generation *gen);

/* ---- generation_submit.c ---- */
void generation_cancel_parts(struct generation *gen);
void generation_cancel_work(struct generation *gen); /* unless the pool has begun with it */
void generation_release_parts(struct generation *gen);

/* ---- generation_grammar.c ---- */
bool generation_has_grammar(const struct generation *gen); /* a grammar restricts the answer */
/* Compile that grammar; `source` has the tenant and the cancellation. Runs in the pool, after the
 * prompts are prepared. Sets gen->grammar, and gen->answer.warning if a schema is not enforced. */
enum status generation_compile(struct generation *gen, struct grammar_source source,
                               struct api_error *e);
/* The error of an answer that failed because of its grammar: no token was allowed, or the memory
 * for grammars was used up. */
void generation_refuse_grammar(const struct generation *gen, const struct request *q,
                               struct api_error *e);

/* ---- generation_deliver.c ---- */
/* Call every sink: there are new events, or the generation has failed. Not inlined, because it is a
 * hop of docs/a-request.md and tools/trace_request sees calls alone. */
__attribute__((noinline)) void generation_deliver(struct generation *gen);
void generation_stop_smoothing(struct generation *gen); /* drop what its smoother holds */
void generations_on_smooth(uv_timer_t *timer);

/* ---- generation_keep.c ---- */
void generation_index_add(struct generation *gen); /* makes it findable by its ids */
void generation_index_remove(struct generation *gen);
/* Charge its tenant what the generation holds now and `more`. ST_BAD, ST_FULL, ST_UNAVAILABLE: as
 * in generation_create. `e` may be NULL. */
enum status generation_charge(struct generation *gen, uint64_t more, struct api_error *e);
/* The same for the log of a generation under way, which may take more than its tenant's share while
 * there is room. ST_UNAVAILABLE: there is none. ST_BAD: the answer alone is larger than all. */
enum status generation_grow(struct generation *gen, uint64_t more, struct api_error *e);
void generation_discharge(struct generation *gen); /* all of it; it is being freed */
bool generation_keep(struct generation *gen);      /* false: there is no room for it */
void generation_unkeep(struct generation *gen);
void generations_drop_oldest(struct generations *all); /* there is one */
void generations_on_keep(uv_timer_t *timer);

#endif
