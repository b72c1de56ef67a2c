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
 * Many requests may run at the same time; they share the steps of the model. No request changes
 * the answer of another: the same request gives the same bits, tokens and log-probabilities,
 * whichever requests run beside it.
 *
 * Threads: every function may be called from any thread at any time; several models may be open.
 * An event struct belongs to one thread at a time. jitney_close waits until running calls have
 * returned (those that wait return JITNEY_CLOSED at once); no call may begin after it.
 *
 * Memory: the library copies the strings and arrays that you pass before the call returns. The
 * pointers of an event are valid until the struct is used for another event or cleared.
 *
 * Errors: a function with a parameter `error` (NULL, or JITNEY_ERROR_BYTES bytes) writes one
 * sentence to it that says what happened and what to do.
 *
 * Compatibility: new fields are only added at the end of structs. The member `size` tells the
 * library which of them the caller knows; the _default functions set it.
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
    JITNEY_BAD,     /* the request or the model file is invalid                   */
    JITNEY_MISSING, /* no such model                                              */
    JITNEY_FULL,    /* the queue is full: try again later                         */
    JITNEY_NOMEM,   /* not enough memory                                          */
    JITNEY_IO,      /* the system failed while reading or writing                 */
    JITNEY_TIMEOUT, /* no event within the time limit                             */
    JITNEY_IDLE,    /* no request is running, so there is nothing to wait for     */
    JITNEY_CLOSED,  /* jitney_stop or jitney_close was called                     */
};

enum jitney_finish {
    JITNEY_MORE = 0,
    JITNEY_STOP,      /* the model ended its answer, or a stop string matched */
    JITNEY_LENGTH,    /* max_tokens, or the context is full                   */
    JITNEY_CANCELLED, /* jitney_cancel                                        */
    JITNEY_EXPIRED,   /* its deadline has passed                              */
    JITNEY_REFUSED,   /* it does not fit into memory; `error` says why        */
    JITNEY_ERROR,     /* its computation failed; the event's `error` says why */
};

struct jitney; /* an open model */

struct jitney_options {
    size_t size;
    uint32_t threads;    /* at most 256; 0: as many as the process may use */
    uint32_t ctx_tokens; /* the longest sequence; 0: the model's own, at most 8192 */
    uint64_t kv_bytes;   /* memory for the KV cache; 0: 1 GiB (on a GPU what 0.9 of its free memory
                               leaves beside the weights), or less if max_seqs needs less */
    const char *policy;  /* NULL: "chunked" */
    const char *const *set; /* "knob=value", NULL-terminated, or NULL. Overrides the above. */
    void (*on_progress)(void *ctx, double share); /* while loading, 0 to 1; may be NULL */
    void *progress_ctx;
    bool pretend; /* compute nothing: answers are words of the vocabulary, up to max_tokens; for
                     testing a program without a model */
    uint32_t pretend_step_us; /* with `pretend`: the time of a step */
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
/* Calls that wait, and all later calls, return JITNEY_CLOSED, so that threads leave their loops;
 * then call jitney_close. Running requests get no more events. */
void jitney_stop(struct jitney *j);
void jitney_close(struct jitney *j); /* stops first; NULL is fine */

struct jitney_info {
    size_t size;
    uint32_t ctx_tokens, vocab, threads; /* the values in use */
    bool has_chat;                       /* the model has a chat template */
};
void jitney_info(struct jitney *j, struct jitney_info *out); /* set out->size first */

struct jitney_logprob {
    int32_t token; /* -1: no token */
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
    uint32_t n;        /* answers, 1 to 16; answer i is sampled with seed + i */
    float temperature; /* 0 to 10; 0: always the most likely token */
    uint32_t top_k;    /* 0: off */
    float top_p, min_p, typical_p;
    float repetition_penalty, presence_penalty, frequency_penalty;
    int32_t penalty_window; /* how many of the last tokens the penalties count; -1: all */
    uint64_t seed;
    const struct jitney_bias *bias;
    size_t bias_count;
    const char *const *stop; /* NULL-terminated, at most JITNEY_STOPS_MAX; may be NULL */
    bool ignore_end;         /* continue past the model's end tokens */
    bool keep_special;       /* show special tokens in the text */
    bool logprobs;
    uint32_t top_logprobs; /* at most JITNEY_TOP_MAX; needs logprobs */
    uint32_t tenant;       /* requests of one tenant share cached prefixes and a fair share */
    int32_t priority;      /* larger is more important, under the policy "priority" */
    double ttft_target_ms, tpot_target_ms, expires_ms; /* 0: not set */
    void *user;                                        /* every event of the request has it */
    /* At most one of these: the answer is JSON that satisfies this JSON schema, a text that the
     * expression matches, a text of the grammar (GBNF, or Lark's notation). NULL: any text. */
    const char *schema, *regex, *grammar;
};
/* max_tokens 256, n 1, temperature 0.8, a new random seed; everything else off. */
void jitney_request_init(struct jitney_request *request, size_t size);
static inline struct jitney_request jitney_request_default(void) {
    struct jitney_request s;
    jitney_request_init(&s, sizeof(s));
    return s;
}

/* JITNEY_BAD: `error` says what is wrong with the request. JITNEY_FULL: try again later. Otherwise
 * each of its n answers gets events, the last of them with a `finish`; another thread may get the
 * first event before this call returns. */
enum jitney_status jitney_submit(struct jitney *j, const struct jitney_request *request,
                                 uint64_t *id, char *error);

/* The new part of one answer since its last event. */
struct jitney_event {
    size_t size;
    uint64_t id;
    uint32_t choice; /* 0 to n-1 */
    enum jitney_finish finish;
    void *user;
    const char *text; /* whole characters, no stop strings; NUL-terminated */
    size_t text_bytes;
    const int32_t *tokens; /* the new tokens */
    uint32_t token_count;
    uint32_t top_count;                        /* columns of top_logprobs */
    const struct jitney_logprob *logprobs;     /* one for each token; NULL if not requested */
    const struct jitney_logprob *top_logprobs; /* [token_count][top_count], most likely first */
    uint32_t prompt_tokens, completion_tokens, cached_tokens; /* so far */
    const char *error; /* one sentence with JITNEY_REFUSED and JITNEY_ERROR; else NULL */
    void *memory;      /* owned by the library; do not change it */
};
void jitney_event_init(struct jitney_event *ev, size_t size);
static inline struct jitney_event jitney_event_default(void) {
    struct jitney_event s;
    jitney_event_init(&s, sizeof(s));
    return s;
}
void jitney_event_clear(struct jitney_event *ev); /* frees its memory; also after jitney_close */

/* Wait for the next event of any request. timeout_ms 0: do not wait; negative: no time limit.
 * JITNEY_IDLE: no request is running. Tokens become text here, in the caller's thread, while the
 * model computes. Each event is delivered once, to the first thread that calls. */
enum jitney_status jitney_next(struct jitney *j, struct jitney_event *ev, int64_t timeout_ms);
/* The same for one request; JITNEY_IDLE: its last event has been delivered. Events of other
 * requests stay queued. */
enum jitney_status jitney_next_of(struct jitney *j, uint64_t id, struct jitney_event *ev,
                                  int64_t timeout_ms);

void jitney_cancel(struct jitney *j, uint64_t id); /* no effect if it has finished */

struct jitney_stats {
    size_t size;
    uint32_t running, waiting, swapped;
    uint64_t steps, preempted, finished;
    uint64_t prompt_tokens_looked_up, prompt_tokens_cached;
    uint32_t kv_blocks, kv_blocks_free;
    double kv_waste; /* share of allocated token slots without a token, over all steps */
};
void jitney_stats(struct jitney *j, struct jitney_stats *out); /* set out->size first */

/* Text to tokens and back; free the results with jitney_free. `special` in tokenize: add the tokens
 * that the model puts around a text (BOS ...), as for a request's `text`; in detokenize: show
 * special tokens. */
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
