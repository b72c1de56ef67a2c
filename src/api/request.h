/* api/request.h - a request for text, read from any wire format.
 *
 * OpenAI's chat, completions and responses, Anthropic's messages, Ollama's chat and generate: all
 * become this struct, and the server and the engine see no other. `codec` writes the answer in the
 * request's own format. The table in api/fields.h has checked all ranges.
 *
 * Lifetime: api_request_init, a codec's read_body, api_request_deinit. It owns everything that its
 * strings point into. Thread: its owner; a prompt may be rendered in libuv's pool meanwhile.
 */
#ifndef API_REQUEST_H
#define API_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"
#include "engine/grammars.h"
#include "engine/request.h"
#include "sample/sampler.h"
#include "sched/seq.h"

struct api_error;
struct codec;
struct json;

enum {
    API_STOPS_MAX = 16,
    API_STOP_BYTES_MAX = 256,
    API_STOP_TOKENS_MAX = 64,
    API_PROMPTS_MAX = 128, /* texts in one completions request; times n at most API_CHOICES_MAX */
    API_CHOICES_MAX = 128,
    API_MESSAGES_MAX = 2048,
    API_TOOLS_MAX = 1024,
    API_CALLS_MAX = 16384, /* in one message */
    API_INPUTS_MAX = 2048, /* texts in one embeddings request */
    API_PROMPT_TOKENS_MAX = 1 << 20,
    API_TOOLS_BYTES_MAX = 1 << 20,
    API_MADE_BYTES_MAX = 1 << 26, /* of a message's text that a codec joins from parts */
};

/* A text to continue, or its tokens. */
struct api_prompt {
    struct str text;
    int32_t *ids; /* owned; NULL: `text` */
    uint32_t count;
};

struct api_tool {
    uint32_t idx;   /* in the request's list */
    bool is_strict; /* its schema is enforced exactly, or the request is refused */
};

/* TOOLS_REQUIRED means one of several; a single tool that is required is TOOLS_NAMED. */
enum tool_choice { TOOLS_NONE, TOOLS_AUTO, TOOLS_REQUIRED, TOOLS_NAMED };

/* How the model's thoughts are treated. */
struct api_thinking {
    bool in_text;    /* reasoning_format none: thoughts stay part of the text */
    bool is_hidden;  /* thoughts are generated and counted, but not returned */
    bool has_budget; /* after budget_tokens tokens of thought the closing mark is written */
    uint32_t budget_tokens;
};

/* What the answer must be; api/grammar_read.h. */
struct api_grammar {
    const char *field; /* that gave it, for errors; NULL: none did */
    bool is_given, is_format, needs_schema;
    enum grammar_kind kind;
    struct buf source; /* owned; until api_request_drop_messages */
};

/* Which drafts the answer may have (spec/spec.h), and what the client expects of it. */
struct api_speculation {
    bool is_chosen; /* by the request: `choice`; otherwise the engine's drafter */
    struct speculate_option choice;
    bool has_max;
    uint32_t max; /* drafts in a step; 0: none */
    bool has_prediction;
    struct buf prediction; /* its text; owned; until api_request_drop_messages */
};

/* What is to be kept with the answer, and what it continues. It needs a store (--data-dir): see
 * api_keeping_refuse. */
struct api_keeping {
    bool store;              /* also if `background` is given: an answer to be polled is stored */
    bool background;         /* answer at once with the status queued */
    struct str previous;     /* previous_response_id as sent, "resp_..."; empty: none */
    struct str conversation; /* its id as sent, "conv_..."; empty: none */
    struct buf metadata;     /* JSON object, or empty: not given; owned */
};

struct api_request {
    const struct codec *codec;
    struct json *doc; /* the body; strings point into it until api_request_drop_body */
    struct str model; /* empty: not given */

    /* Either a conversation in the form that chat templates read (api/messages.h) ... */
    bool is_chat;
    struct json *messages;        /* a list; NULL unless is_chat */
    struct json *tools;           /* those that the model may call; NULL: none */
    struct api_tool *tool_facts;  /* [tools] owned */
    const char *schema_key;       /* where a tool of the body has its schema, for errors */
    struct json *template_kwargs; /* further variables of the template, a map; NULL: none */
    bool no_generation_prompt, continue_final;
    enum tool_choice tool_choice;
    struct str tool_name; /* TOOLS_NAMED */
    bool one_tool_call;   /* parallel_tool_calls: false */
    bool many_tool_calls; /* the request says parallel_tool_calls: true */
    struct api_thinking thinking;
    /* ... or texts. */
    struct api_prompt *prompts; /* owned */
    uint32_t prompt_count;
    bool echo;       /* the answer begins with the prompt */
    bool raw_prompt; /* no special tokens are added to a text */

    /* The answer. */
    uint32_t max_tokens; /* 0 with has_max_tokens: no answer, only the prompt */
    bool has_max_tokens; /* otherwise up to the end of the context */
    uint32_t min_tokens;
    uint32_t n;
    struct sample_params sample; /* `bias` points to `bias` below */
    bool has_seed;               /* otherwise the server chooses one at random */
    struct logit_bias *bias;     /* owned */
    struct str stops[API_STOPS_MAX];
    uint32_t stop_count;
    int32_t stop_tokens[API_STOP_TOKENS_MAX];
    uint32_t stop_token_count;
    bool include_stop; /* the stop string is part of the answer */
    bool ignore_end, keep_special;
    bool logprobs;
    uint32_t top_logprobs;
    bool prompt_logprobs; /* of the prompt as well, for echo */
    bool return_token_ids;
    struct api_grammar grammar;
    struct api_speculation speculation;

    /* How it is delivered. */
    bool stream, include_usage;
    bool usage_in_chunks; /* of a stream: the usage so far in every chunk */
    int64_t smooth_ms;    /* spread bursts of text over this time; 0: send at once */

    /* How it is scheduled. */
    struct urgency urgency; /* expires_us relative to now */
    struct str cache_salt, user;

    struct api_keeping keeping;

    /* Since api_request_drop_body; owned. */
    char *texts, *prompt_texts;        /* what its strings point into */
    uint64_t held_bytes, prompt_bytes; /* memory, about; prompt_bytes until the prompt is made */
};

/* Set OpenAI's defaults: temperature 1, one choice, no limit of tokens. */
void api_request_init(struct api_request *r, const struct codec *codec);
void api_request_deinit(struct api_request *r);
/* The body was read: free it, with all that the request does not need, and copy what it does. So a
 * request holds what was read, whatever else the client has sent. ST_NOMEM. */
enum status api_request_drop_body(struct api_request *r);
/* The prompt was made: free what only that needed; parsed JSON takes many times the bytes of its
 * text. */
void api_request_drop_messages(struct api_request *r);
/* Memory that it holds, about; 0 before api_request_drop_body. */
uint64_t api_request_bytes(const struct api_request *r);

/* Set a variable of the chat template; a later value of the same name replaces it. `value` is owned
 * by the request from then on. NULL: ST_NOMEM. */
enum status api_request_set_kwarg(struct api_request *r, struct str name, struct json *value);

/* For a server without a store. ST_BAD: the request needs one; `e` (400) names the field: store,
 * background, previous_response_id or conversation. Metadata alone need none. */
enum status api_keeping_refuse(const struct api_request *r, struct api_error *e);

#endif
