/* server/generation.h - a request for text under way, from its body to the last event.
 *
 *     NEW -> PREPARING -> RUNNING -> DONE -> (kept for a while) -> freed
 *
 * A generation owns the request, its answer with the log of events, and the engine's requests (one
 * for each prompt). It can be cancelled at any time. It is freed when it has no sink, neither
 * libuv's pool nor the engine uses it, and it is not kept.
 *
 * A generation that loses its last sink is cancelled, unless it `survives`. One that has ended and
 * `is_findable` is kept for keep_ms.
 *
 * Lifetime: generation_create, generation_start; it ends and is freed by itself.
 * Thread: the I/O thread; the prompt is rendered and tokenised in libuv's pool.
 */
#ifndef SERVER_GENERATION_H
#define SERVER_GENERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "api/answer.h"
#include "api/codec.h"
#include "api/request.h"
#include "base/list.h"
#include "base/status.h"
#include "server/prompt.h"
#include "report/tracer.h"

struct account;
struct answer_grammar;
struct conversation_mark;
struct encoder;
struct key;
struct generation_choice;
struct generation_part;
struct generations; /* all of them: server/generations.h */
struct served_model;
struct sink;
struct smoother;

enum generation_stage { GENERATION_NEW, GENERATION_PREPARING, GENERATION_RUNNING, GENERATION_DONE };
const char *
generation_stage_name(enum generation_stage s); /* "queued", "in_progress", ... for clients */

enum { GENERATION_ID_BYTES = 132 };

struct generation {
    struct generations *all;
    struct served_model *model;
    const struct key *key;
    const char *route;                    /* the pattern of the table of routes */
    char request_id[GENERATION_ID_BYTES]; /* x-request-id */
    enum generation_stage stage;
    struct api_request request;
    struct answer answer;
    bool survives;      /* without a client */
    bool is_findable;   /* its events are kept for a while after the end */
    bool is_deleted;    /* by its client: no path finds it any more, also while it still ends */
    bool is_durable;    /* stored before it is acknowledged (server/stored_answer.h) */
    bool is_unstored;   /* durable, and its end is not on disk yet: it is given from memory */
    bool is_recovered;  /* it was stored before this process began */
    bool is_batch;      /* a line of a batch: runs with what others leave over */
    bool is_unlimited;  /* no limit of its key and of the queue applies to it */
    int64_t timeout_us; /* 0: no limit */
    struct trace_id trace;
    struct encoder *poll; /* of the last poll (server/sink_poll.c); owned */

    /* Private to generation*.c. */
    struct account *account; /* of its key's tenant */
    struct prompts prompts;
    struct answer_grammar *grammar;    /* a reference until the prompts are submitted; or NULL */
    struct generation_part *parts;     /* [part_count], owned */
    struct generation_choice *choices; /* [answer.choice_count], owned */
    uint32_t part_count;
    uint32_t open_choices;     /* that the engine has not ended */
    uint32_t turn;             /* the choice that gives the next event, where they take turns */
    uint32_t counted;          /* of the model's live_choices */
    uint32_t answer_max;       /* tokens of a choice that its key's limit allows */
    uint64_t reserved;         /* tokens of its key's limit */
    struct smoother *smoother; /* NULL: events are delivered at once */
    struct list sinks;
    struct generation_work *work; /* in the pool; NULL: no work */
    bool has_started, has_ended, is_busy, is_kept;
    bool has_reserved;       /* tokens of its key's limit, if that has one */
    bool is_abandoned;       /* its last client has gone away */
    int64_t started_us;      /* its first choice entered the batch; set when that has ended */
    uint64_t engine_bytes;   /* memory of the engine's requests */
    uint64_t stored_bytes;   /* of the events that are collected for the store */
    uint64_t log_charged_at; /* bytes of the log from which on it is charged again */
    uint64_t charged_bytes;  /* to its tenant: what it holds, about */
    uint64_t kept_bytes;     /* of charged_bytes, if it is kept */
    int64_t kept_until_us;
    struct list_link in_all, in_kept, in_own_kept, in_smoothing, in_dirty;
    struct generation *by_id, *by_request, *by_request_prev; /* in the tables */
};

/* `request` is moved out of: it is empty afterwards, also on failure. */
struct generation_spec {
    struct served_model *model; /* ready, and it writes text */
    const struct key *key;
    const char *route;
    struct str id;         /* the answer's: new, at most ANSWER_ID_BYTES - 1 */
    struct str request_id; /* x-request-id */
    struct api_request *request;
    int64_t arrived_us;
    int64_t created_s;      /* wall time; 0: now */
    bool is_batch;          /* a line of a batch */
    bool has_earlier;       /* the answer that it continues is part of its input */
    struct str body, items; /* of a durable one: its body, its own input as items; copied */
    const struct conversation_mark *read; /* of the conversation that it continues; or NULL */
};
/* ST_FULL: its tenant has used up its share of the memory for answers. ST_UNAVAILABLE: all tenants
 * together have used it up. ST_BAD: it is larger than its tenant's share can be. ST_NOMEM. `e` has
 * the error for the client. */
enum status generation_create(struct generations *all, const struct generation_spec *spec,
                              struct generation **out, struct api_error *e);

/* Add a sink to a generation that was started, and call it. The generation may be freed. */
void generation_join_sink(struct generation *gen, struct sink *s);
/* Remove a sink whose client has gone away. The generation may end and be freed. */
void generation_detach_sink(struct generation *gen, struct sink *s);
/* Remove and destroy a sink that needs nothing more. The generation stays as it is. */
void generation_remove_sink(struct generation *gen, struct sink *s);
/* Prepare the prompt and submit it to the engine; `s` receives the answer. NULL: it is cancelled at
 * once. The generation may be freed. */
void generation_start(struct generation *gen, struct sink *s);
/* Before generation_start: `s` receives the answer, too. */
void generation_add_sink(struct generation *gen, struct sink *s);
/* The answer to on_prepared: it is stored and goes on, or fails with `e`. It may be freed. */
void generation_stored(struct generation *gen, enum status st, struct api_error *e);
/* Call a sink again that had to wait. The generation may be freed. */
void generation_resume_sink(struct generation *gen, struct sink *s);

/* End it with an error, which its sinks deliver. The generation may be freed. */
void generation_fail(struct generation *gen, const struct api_error *e);

/* It is durable and failed because the server ends or the engine failed: it is generated again, by
 * this process or by the next one. */
bool generation_is_left_open(const struct generation *gen);

/* Its answer is done: do not keep it any longer. The generation may be freed. */
void generation_forget(struct generation *gen);

/* A client may see it: it runs, is kept or waits for the disk, and was not deleted. */
static inline bool generation_is_visible(const struct generation *gen) {
    return !gen->is_deleted && (gen->is_findable || gen->is_unstored || !gen->has_ended);
}

#endif
