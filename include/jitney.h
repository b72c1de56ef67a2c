/* jitney.h - run a language model inside your own program.
 *
 *     struct jitney *j;
 *     char why[JITNEY_ERROR_BYTES];
 *     if (jitney_open("smollm2", NULL, &j, why) != JITNEY_OK) { puts(why); return 1; }
 *
 *     struct jitney_request req = jitney_request_default();
 *     req.chat = "What is the capital of France?";
 *     uint64_t id;
 *     if (jitney_submit(j, &req, &id, why) != JITNEY_OK) { puts(why); return 1; }
 *
 *     struct jitney_event ev = jitney_event_default();
 *     while (jitney_next(j, &ev, -1) == JITNEY_OK)
 *         fwrite(ev.text, 1, ev.text_bytes, stdout);
 *     jitney_event_clear(&ev);
 *     jitney_close(j);
 *
 * Many requests may be under way at once; they share the model step by step, and none of them
 * changes what another one answers: for the same request the tokens and log-probabilities are
 * the same bits whoever else is being served.
 *
 * Threads: every function may be called from any thread at any time, on several models at once;
 * an event struct belongs to one thread at a time. jitney_close waits until calls that have begun
 * have returned (those that wait return JITNEY_CLOSED at once); none may begin after it.
 *
 * Memory: strings and arrays that you pass are copied before the call returns. What an event
 * points to stays valid until the struct is used for another event or cleared.
 *
 * Errors: where a function takes `error` (NULL, or JITNEY_ERROR_BYTES bytes) it puts one sentence
 * there that says what happened and what to do.
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

enum { JITNEY_ERROR_BYTES = 512, JITNEY_TOP_MAX = 20, JITNEY_STOPS_MAX = 16 };
enum jitney_status {
    JITNEY_OK = 0,
    JITNEY_BAD,     /* the request or the model file is wrong                     */
    JITNEY_MISSING, /* no such model                                              */
    JITNEY_FULL,    /* the queue is full: try again later                         */
    JITNEY_NOMEM,   /* not enough memory                                          */
    JITNEY_IO,      /* the system failed while reading or writing                 */
    JITNEY_TIMEOUT, /* nothing happened in the time given                         */
    JITNEY_IDLE,    /* nothing is under way, so there is nothing to wait for      */
    JITNEY_CLOSED,  /* jitney_stop or jitney_close was called                     */
};

enum jitney_finish {
    JITNEY_MORE = 0,
    JITNEY_STOP,      /* the model ended its answer, or a stop string was met */
    JITNEY_LENGTH,    /* max_tokens, or the context is full                   */
    JITNEY_CANCELLED, /* jitney_cancel                                        */
    JITNEY_EXPIRED,   /* its time was over                                    */
    JITNEY_REFUSED,   /* it can never be served; the event's `error` says why */
    JITNEY_ERROR,     /* its computation failed; the event's `error` says how */
};

struct jitney; /* an open model */

struct jitney_options {
    size_t size;
    uint32_t threads;       /* at most 256; 0: as many as the process may use */
    uint32_t ctx_tokens;    /* the longest sequence; 0: the model's own, at most 8192 */
    uint64_t kv_bytes;      /* memory for the KV cache; 0: 1 GiB or what the seats can use */
    const char *policy;     /* NULL: "chunked" */
    const char *const *set; /* "knob=value", NULL-terminated; NULL: none. Wins over the above. */
    void (*on_progress)(void *ctx, double share); /* while loading, 0 to 1; NULL: not wanted */
    void *progress_ctx;
    bool pretend; /* compute nothing: answers are words of the vocabulary, up to max_tokens; for
                     testing a program without waiting for a model */
    uint32_t pretend_step_us; /* how long a step then takes */
};
void jitney_options_init(struct jitney_options *options, size_t size);
static inline struct jitney_options jitney_options_default(void) {
    struct jitney_options s;
    jitney_options_init(&s, sizeof(s));
    return s;
}

/* `model`: a name in the model cache, a GGUF file or a Hugging Face folder. `options` may be
 * NULL. Reads JITNEY_CACHE, XDG_CACHE_HOME and HOME to find the cache. */
enum jitney_status jitney_open(const char *model, const struct jitney_options *options,
                               struct jitney **out, char *error);
/* Make all who wait, and all who call from now on, get JITNEY_CLOSED, so that threads leave their
 * loops; when they have, close. What is under way gets no more events and ends with close. */
void jitney_stop(struct jitney *j);
void jitney_close(struct jitney *j); /* stops first; NULL is fine */

struct jitney_info {
    size_t size;
    uint32_t ctx_tokens, vocab, threads; /* as they are in force */
    bool has_chat;                       /* the model has a chat template */
};
void jitney_info(struct jitney *j, struct jitney_info *out); /* set out->size first */

struct jitney_logprob {
    int32_t token; /* -1: none */
    float logprob; /* natural logarithm, of the model's own distribution */
};
struct jitney_bias {
    int32_t token;
    float bias; /* added to its logit; minus infinity: never this token */
};

struct jitney_request {
    size_t size;
    /* One of these four: a message for a chat model; a whole conversation as JSON (a list of
     * {"role","content"}); plain text to continue; token ids. */
    const char *chat, *chat_json, *text;
    const int32_t *tokens;
    size_t token_count;
    uint32_t max_tokens;
    uint32_t n;        /* answers, 1 to 16; the i-th draws with seed + i */
    float temperature; /* 0: always the likeliest */
    uint32_t top_k;    /* 0: off */
    float top_p, min_p, typical_p;
    float repetition_penalty, presence_penalty, frequency_penalty;
    int32_t penalty_window; /* last tokens that the penalties look at; -1: all of them */
    uint64_t seed;
    const struct jitney_bias *bias;
    size_t bias_count;
    const char *const *stop; /* NULL-terminated, at most JITNEY_STOPS_MAX; NULL: none */
    bool ignore_end;         /* go on past the model's end tokens */
    bool keep_special;       /* show special tokens in the text */
    bool logprobs;
    uint32_t top_logprobs; /* at most JITNEY_TOP_MAX; needs logprobs */
    uint32_t tenant;       /* requests of one tenant share prefixes and a fair share */
    int32_t priority;      /* larger is more important, under the policy "priority" */
    double ttft_target_ms, tpot_target_ms, expires_ms; /* 0: none */
    void *user;                                        /* comes back in every event */
};
/* max_tokens 256, n 1, temperature 0.8, a seed drawn anew by each call; everything else off. */
void jitney_request_init(struct jitney_request *request, size_t size);
static inline struct jitney_request jitney_request_default(void) {
    struct jitney_request s;
    jitney_request_init(&s, sizeof(s));
    return s;
}

/* JITNEY_BAD says what of the request is wrong; JITNEY_FULL: try again later. Otherwise each of
 * its n answers gets events until one with a `finish`; the first may be given to another thread
 * before this returns. */
enum jitney_status jitney_submit(struct jitney *j, const struct jitney_request *request,
                                 uint64_t *id, char *error);

/* What has become of one answer since its last event. */
struct jitney_event {
    size_t size;
    uint64_t id;
    uint32_t choice; /* 0 to n-1 */
    enum jitney_finish finish;
    void *user;
    const char *text; /* what may be shown now: whole characters, no stop strings; NUL behind */
    size_t text_bytes;
    const int32_t *tokens; /* the new tokens */
    uint32_t token_count;
    uint32_t top_count;                        /* columns of top_logprobs */
    const struct jitney_logprob *logprobs;     /* one per token; NULL unless asked for */
    const struct jitney_logprob *top_logprobs; /* [token_count][top_count], the likeliest first */
    uint32_t prompt_tokens, completion_tokens, cached_tokens; /* so far */
    const char *error; /* one sentence with JITNEY_REFUSED and JITNEY_ERROR; else NULL */
    void *memory;      /* the library's: keep it from call to call */
};
void jitney_event_init(struct jitney_event *ev, size_t size);
static inline struct jitney_event jitney_event_default(void) {
    struct jitney_event s;
    jitney_event_init(&s, sizeof(s));
    return s;
}
void jitney_event_clear(struct jitney_event *ev); /* frees its memory; also after jitney_close */

/* Wait for the next event of any request: timeout_ms 0 looks only, negative waits for ever.
 * JITNEY_IDLE when no request is under way. Text is put together here, in the caller's thread,
 * while the model computes. Each event is given once, to whoever comes first. */
enum jitney_status jitney_next(struct jitney *j, struct jitney_event *ev, int64_t timeout_ms);
/* The same, of one request only; JITNEY_IDLE once its last event was given. Events of others
 * wait for those who ask for them. */
enum jitney_status jitney_next_of(struct jitney *j, uint64_t id, struct jitney_event *ev,
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

/* Text and tokens; the caller frees what it gets with jitney_free. `special`: with what the model
 * puts around a text (BOS ...), as a request's `text` has it; with special tokens shown. */
enum jitney_status jitney_tokenize(struct jitney *j, const char *text, size_t bytes, bool special,
                                   int32_t **tokens, size_t *count, char *error);
enum jitney_status jitney_detokenize(struct jitney *j, const int32_t *tokens, size_t count,
                                     bool special, char **text, size_t *bytes, char *error);
void jitney_free(void *ptr); /* NULL is fine */

const char *jitney_version(void);

#ifdef __cplusplus
}
#endif

#endif
