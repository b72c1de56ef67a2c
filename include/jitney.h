/* jitney.h - run a language model inside your own program.
 *
 *     struct jitney *j;
 *     char why[JITNEY_ERROR_BYTES];
 *     if (jitney_open("smollm2", NULL, &j, why) != JITNEY_OK) { puts(why); return 1; }
 *
 *     struct jitney_request req = jitney_request_default();
 *     req.chat = "What is the capital of France?";
 *     uint64_t id;
 *     jitney_submit(j, &req, &id, why);
 *
 *     struct jitney_event ev;
 *     while (jitney_next(j, &ev, -1) == JITNEY_OK) {
 *         fwrite(ev.text, 1, ev.text_bytes, stdout);
 *         if (ev.finish != JITNEY_MORE) break;
 *     }
 *     jitney_close(j);
 *
 * Many requests may be under way at once; they share the model step by step, and none of them
 * changes what another one answers: for the same request the tokens and log-probabilities are
 * the same bits whoever else is being served.
 *
 * Threads: every function may be called from any thread at any time, but for jitney_close,
 * after which nothing else may be called. Text in an event belongs to the library and is valid
 * until the same thread calls jitney_next again.
 *
 * Errors: a function returns a jitney_status; where it takes `error` (NULL, or JITNEY_ERROR_BYTES
 * bytes) it puts one sentence there that says what happened and what to do.
 *
 * Compatibility: fields are only ever added at the end of structs, whose `size` member tells the
 * library how much of them the caller knows; the _default functions set it.
 */
#ifndef JITNEY_H
#define JITNEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { JITNEY_ERROR_BYTES = 512, JITNEY_TOP_MAX = 20 };

enum jitney_status {
    JITNEY_OK = 0,
    JITNEY_BAD,     /* the request or the model file is wrong                     */
    JITNEY_MISSING, /* no such model                                              */
    JITNEY_FULL,    /* the queue is full: try again later                         */
    JITNEY_NOMEM,   /* not enough memory                                          */
    JITNEY_IO,      /* the system failed while reading or writing                 */
    JITNEY_TIMEOUT, /* nothing happened in the time given                         */
    JITNEY_IDLE,    /* nothing is under way, so there is nothing to wait for      */
};

enum jitney_finish {
    JITNEY_MORE = 0,
    JITNEY_STOP,      /* the model ended its answer, or a stop string was met */
    JITNEY_LENGTH,    /* max_tokens, or the context is full                   */
    JITNEY_CANCELLED, /* jitney_cancel, jitney_close                          */
    JITNEY_EXPIRED,   /* its time was over                                    */
    JITNEY_REFUSED,   /* it can never be served; the event's text says why    */
    JITNEY_ERROR,     /* its computation failed                               */
};

struct jitney; /* an open model */

struct jitney_options {
    size_t size;
    uint32_t threads;       /* 0: as many as the process may use */
    uint32_t ctx_tokens;    /* the longest sequence; 0: the model's own, at most 8192 */
    uint64_t kv_bytes;      /* memory for the KV cache; 0: 1 GiB or what the seats can use */
    const char *policy;     /* NULL: "chunked" */
    const char *const *set; /* "knob=value", NULL-terminated; NULL: none */
};
struct jitney_options jitney_options_default(void);

/* `model`: a name in the model cache, a GGUF file or a Hugging Face folder. `options` may be
 * NULL. */
enum jitney_status jitney_open(const char *model, const struct jitney_options *options,
                               struct jitney **out, char *error);
void jitney_close(struct jitney *j); /* NULL is fine; cancels what is under way */

struct jitney_request {
    size_t size;
    /* One of these four: a message for a chat model; a whole conversation as JSON (a list of
     * {"role","content"}); plain text to continue; token ids. */
    const char *chat, *chat_json, *text;
    const int32_t *tokens;
    size_t token_count;
    uint32_t max_tokens;
    uint32_t n;        /* answers; the i-th draws with seed + i */
    float temperature; /* 0: always the likeliest */
    uint32_t top_k;
    float top_p, min_p, typical_p;
    float repetition_penalty, presence_penalty, frequency_penalty;
    uint64_t seed;
    const char *const *stop; /* NULL-terminated; NULL: none */
    bool ignore_end;
    bool logprobs;
    uint32_t top_logprobs;
    uint32_t tenant; /* requests of one tenant share prefixes and a fair share */
    int32_t priority;
    double ttft_target_ms, tpot_target_ms, expires_ms; /* 0: none */
    void *user;                                        /* comes back in every event */
};
struct jitney_request jitney_request_default(void); /* max_tokens 256, n 1, temperature 0.8 */

enum jitney_status jitney_submit(struct jitney *j, const struct jitney_request *request,
                                 uint64_t *id, char *error);

struct jitney_logprob {
    int32_t token;
    float logprob;
};

/* What has become of one answer since its last event. */
struct jitney_event {
    uint64_t id;
    uint32_t choice;
    void *user;
    const char *text; /* what may be shown now; may be empty */
    size_t text_bytes;
    const int32_t *tokens;                 /* the new tokens */
    const struct jitney_logprob *logprobs; /* one per token; NULL unless asked for */
    uint32_t token_count;
    enum jitney_finish finish;
    uint32_t prompt_tokens, completion_tokens, cached_tokens; /* so far */
};

/* Wait for the next event of any request: timeout_ms 0 looks only, negative waits for ever.
 * JITNEY_IDLE when no request is under way. */
enum jitney_status jitney_next(struct jitney *j, struct jitney_event *out, int64_t timeout_ms);
/* The same, of one request only. */
enum jitney_status jitney_next_of(struct jitney *j, uint64_t id, struct jitney_event *out,
                                  int64_t timeout_ms);

void jitney_cancel(struct jitney *j, uint64_t id); /* fine if it has ended */

struct jitney_stats {
    size_t size;
    uint32_t running, waiting, swapped;
    uint64_t steps, preempted, finished;
    uint64_t prompt_tokens_looked_up, prompt_tokens_cached;
    uint32_t kv_blocks, kv_blocks_free;
    double kv_waste; /* share of held token slots that held nothing, over all steps */
};
void jitney_stats(struct jitney *j, struct jitney_stats *out); /* set out->size first */

/* Text and tokens; the caller frees what it gets with jitney_free. */
enum jitney_status jitney_tokenize(struct jitney *j, const char *text, size_t bytes,
                                   int32_t **tokens, size_t *count, char *error);
enum jitney_status jitney_detokenize(struct jitney *j, const int32_t *tokens, size_t count,
                                     char **text, size_t *bytes, char *error);
void jitney_free(void *ptr);

const char *jitney_version(void);

#ifdef __cplusplus
}
#endif

#endif
