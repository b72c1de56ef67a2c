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
 * Memory is counted for each tenant and in total (base/share.h): answers_bytes for all generations,
 * of that keep_bytes for those that are kept. A tenant at its limit loses its own oldest kept
 * answers, never those of others; if it has none, its new request is refused, or the generation
 * whose log grows fails.
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
struct accounts;
struct encoder;
struct key;
struct keys;
struct generation_choice;
struct generation_part;
struct generations; /* opaque: all of them */
struct served_model;
struct sink;
struct smoother;
struct server_metrics;
struct uv_async_s;
struct uv_loop_s;
struct work_queue;

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
    uint32_t counted;          /* of the model's live_choices */
    uint32_t answer_max;       /* tokens of a choice that its key's limit allows */
    uint64_t reserved;         /* tokens of its key's limit */
    struct smoother *smoother; /* NULL: events are delivered at once */
    struct list sinks;
    struct generation_work *work; /* in the pool; NULL: no work */
    bool has_started, has_ended, is_busy, is_kept;
    bool is_abandoned;       /* its last client has gone away */
    int64_t started_us;      /* its first choice entered the batch; set when that has ended */
    uint64_t engine_bytes;   /* memory of the engine's requests */
    uint64_t log_charged_at; /* bytes of the log from which on it is charged again */
    uint64_t charged_bytes;  /* to its tenant: what it holds, about */
    uint64_t kept_bytes;     /* of charged_bytes, if it is kept */
    int64_t kept_until_us;
    struct list_link in_all, in_kept, in_own_kept, in_smoothing, in_dirty;
    struct generation *by_id, *by_request, *by_request_prev; /* in the tables */
};

struct generations_options {
    struct uv_loop_s *loop;
    int64_t keep_ms;
    uint64_t keep_bytes;    /* of answers_bytes */
    uint64_t answers_bytes; /* of all generations; 0: 1 GiB */
    bool is_single;         /* there is one tenant only */
    uint64_t log_bytes;     /* of one answer's events; 0: 64 MiB */
    struct accounts *accounts;
    struct work_queue *work;        /* prompts are rendered and tokenised in libuv's pool */
    struct server_metrics *metrics; /* counts tokens; may be NULL */
    struct keys *keys;              /* limits the tokens of a key; NULL: no limits */
    /* Once for each generation that was started, when it has ended. */
    void (*on_ended)(void *ctx, struct generation *gen);
    void *ctx;
};

enum status generations_create(const struct generations_options *options, struct generations **out,
                               struct err *err);
/* Free the kept ones and close the timers; every generation has ended. */
void generations_close(struct generations *all);
void generations_destroy(struct generations *all); /* after the loop has run dry; NULL is fine */
void generations_set_keep(struct generations *all, int64_t keep_ms, uint64_t keep_bytes);
void generations_set_memory(struct generations *all, uint64_t answers_bytes, bool is_single);

struct generations_stats {
    uint32_t live, kept;
    uint64_t kept_bytes;
    uint64_t bytes, bytes_max; /* of all generations */
    uint64_t refused;          /* since the start, for want of memory */
};
struct generations_stats generations_stats(const struct generations *all);
void generations_verify(const struct generations *all); /* CHECK every invariant; slow */

/* `request` is moved out of: it is empty afterwards, also on failure. */
struct generation_spec {
    struct served_model *model; /* ready, and it writes text */
    const struct key *key;
    const char *route;
    struct str id;         /* the answer's: new, at most ANSWER_ID_BYTES - 1 */
    struct str request_id; /* x-request-id */
    struct api_request *request;
    int64_t arrived_us;
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
/* Call a sink again that had to wait. The generation may be freed. */
void generation_resume_sink(struct generation *gen, struct sink *s);

/* End it with an error, which its sinks deliver. The generation may be freed. */
void generation_fail(struct generation *gen, const struct api_error *e);

/* Its answer is done: do not keep it any longer. The generation may be freed. */
void generation_forget(struct generation *gen);

/* By the answer's id, with or without its codec's prefix, or by x-request-id. NULL: `key` has
 * started no such generation. */
struct generation *generation_find(const struct generations *all, const struct key *key,
                                   struct str id);
/* End every generation that is not done. */
void generations_fail(struct generations *all, const struct api_error *e);

/* A model's engine has tokens: take them and deliver them. `data` of the handle is the model. */
void generations_on_output(struct uv_async_s *handle);

#endif
