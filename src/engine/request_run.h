/* engine/request_run.h - one request from its prompt to its last token, on the caller's thread.
 *
 * For programs that run one request at a time: `jitney generate`, `chat` and `perplexity`. The
 * engine must not have been started (engine_start): request_run steps it until the request has
 * ended. What later requests share with this one stays in the engine's prefix cache.
 *
 * Lifetime: all of it is in use during request_run only. Thread: one caller at a time.
 */
#ifndef ENGINE_REQUEST_RUN_H
#define ENGINE_REQUEST_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "engine/request.h"
#include "engine/text_output.h"

struct engine;

/* One for each generated token. If the answer ends otherwise, one more without a token. */
struct token_event {
    int32_t token;                      /* -1: there is none */
    struct str text;                    /* may be empty; valid during the call */
    const struct sample_result *sample; /* NULL without a token; log-probabilities if wanted */
    enum finish_reason finish;          /* FINISH_NONE: more events follow */
};
/* False: cancel the request; no further event comes. */
typedef bool token_event_fn(void *ctx, const struct token_event *event);

struct request_run {
    struct engine *engine;
    const struct request_spec *spec;        /* n is 1; max_tokens 0: only the prompt is computed */
    const struct text_output_options *text; /* NULL: events have no text */
    const _Atomic bool *is_cancelled;       /* any thread may set it; NULL: never cancelled */
    token_event_fn *on_event;               /* NULL: no events */
    void *ctx;
};

struct request_usage {
    uint32_t prompt_tokens, completion_tokens;
    uint32_t cached_tokens;       /* of the prompt: their KV blocks were in the prefix cache */
    uint32_t drafted, accepted;   /* drafts that were compared with samples; equal ones */
    int64_t prompt_us, decode_us; /* until the first token; from there to the end */
    enum finish_reason finish;
};

/* ST_OK: the request has ended, also by cancellation; usage->finish has the reason. ST_BAD: the
 * request is not possible, or no token can be sampled. */
enum status request_run(const struct request_run *run, struct request_usage *usage,
                        struct err *err);

#endif
