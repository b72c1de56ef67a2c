/* api/fields.h - the one table of every field that a request body may have.
 *
 * A row says the path of a field, which values it may have, whether it is used, ignored as OpenAI
 * ignores it, or refused by name, and which member of the request it sets. All codecs read their
 * bodies through the table, and the OpenAPI document is written from it, so a limit exists once.
 * Fields without a row are ignored, because clients send fields that other servers know.
 *
 * A path names a field: "temperature", "stream_options.include_usage", "messages[].role" (of
 * every member of the list). A row is checked only if the object or list around it is given; null
 * means "not given". Rows are checked in the order of the table, so of two names for one thing the
 * later wins, and which error is reported first does not depend on the order of the body.
 *
 * To add a field: a row in fields_table.c; if it sets something of a new kind, a case in
 * fields_store.c.
 */
#ifndef API_FIELDS_H
#define API_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/error.h"
#include "base/status.h"

struct json;

/* The endpoints that have a field: bits. */
enum api_endpoint {
    EP_CHAT = 1 << 0,            /* /v1/chat/completions */
    EP_COMPLETIONS = 1 << 1,     /* /v1/completions */
    EP_RESPONSES = 1 << 2,       /* /v1/responses */
    EP_MESSAGES = 1 << 3,        /* /v1/messages, Anthropic's */
    EP_COUNT_TOKENS = 1 << 4,    /* /v1/messages/count_tokens */
    EP_OLLAMA_CHAT = 1 << 5,     /* /api/chat */
    EP_OLLAMA_GENERATE = 1 << 6, /* /api/generate */
    EP_EMBEDDINGS = 1 << 7,      /* /v1/embeddings */
    EP_TOKENIZE = 1 << 8,        /* /tokenize */
    EP_DETOKENIZE = 1 << 9,      /* /detokenize */
    EP_TEMPLATE = 1 << 10,       /* /apply-template */
    EP_OLLAMA_SHOW = 1 << 11,    /* /api/show */
    EP_OLLAMA_EMBED = 1 << 12,   /* /api/embed, /api/embeddings */
    EP_ENGINE_POLICY = 1 << 13,  /* /v1/engine/policy */
    EP_ENGINE_WHATIF = 1 << 14,  /* /v1/engine/whatif */
};

/* The kinds of value that a field may have: bits. */
enum field_kind {
    FIELD_BOOL = 1 << 0,
    FIELD_INT = 1 << 1, /* 3.0 as well */
    FIELD_REAL = 1 << 2,
    FIELD_TEXT = 1 << 3,
    FIELD_LIST = 1 << 4,
    FIELD_MAP = 1 << 5,
    FIELD_ANY = (1 << 6) - 1,
};

enum field_use {
    FIELD_USED,    /* by the row's `store`, or by the codec itself */
    FIELD_IGNORED, /* checked, but without effect on this server */
    FIELD_REFUSED, /* 400 by name, unless the value has no effect: "", [], {}, false, a number <=
                      max; if the row has a fallback, that boolean or number instead */
};

/* How a value is stored in the member at `offset`. */
enum field_store {
    STORE_NONE,             /* the codec reads it */
    STORE_BOOL,             /* bool */
    STORE_NOT_BOOL,         /* bool, negated */
    STORE_U32,              /* uint32_t */
    STORE_I32,              /* int32_t */
    STORE_NEGATED_I32,      /* int32_t, negated */
    STORE_SEED,             /* uint64_t, from any int64_t; -1 means a random seed: nothing is set */
    STORE_FLOAT,            /* float */
    STORE_TEXT,             /* struct str, in the document */
    STORE_MS,               /* int64_t: milliseconds */
    STORE_MS_US,            /* int64_t: milliseconds as microseconds, at least 1 */
    STORE_TOP_K,            /* uint32_t; -1 means 0 */
    STORE_LIMIT,            /* uint32_t; 0 and below mean "no limit": nothing is set */
    STORE_BUDGET,           /* uint32_t; below 0 means "no limit": nothing is set */
    STORE_REASONING_FORMAT, /* bool: the format is none */
    STORE_STOPS,            /* the request's stops */
    STORE_IDS,              /* the request's stop_tokens */
    STORE_BIAS,             /* the request's bias */
    STORE_KWARGS,           /* template_kwargs: every member of the map */
    STORE_DRAFTER,          /* the drafter's name, in struct api_speculation */
    STORE_PREDICTION,       /* a text is added to the prediction there; a list does nothing */
    STORE_METADATA,         /* struct buf: pairs of strings, as JSON (api/metadata.h) */
    /* The request's grammar (api/grammar_read.h): */
    STORE_FORMAT,         /* the type of a format: text, json_object or json_schema */
    STORE_SCHEMA,         /* a JSON schema, or a text that holds one */
    STORE_JSON_OR_SCHEMA, /* "json", or a JSON schema */
    STORE_ANY_JSON,       /* true: any JSON object */
    STORE_REGEX,          /* a regular expression */
    STORE_CHOICE,         /* a list of texts */
    STORE_GBNF,           /* a grammar in GBNF */
    STORE_RULES,          /* a grammar in GBNF, or in Lark's notation */
};

struct api_field {
    const char *path;
    uint32_t endpoints; /* enum api_endpoint */
    uint32_t kinds;     /* enum field_kind */
    enum field_use use;
    bool is_required;
    enum field_store store;
    uint32_t offset; /* of the member in the endpoint's request struct */
    uint32_t given;  /* of a bool that is set if the field is given; 0: none */
    /* Inclusive; both 0: no limit. For a number: its value; for a list or map: the count of its
     * members; for a text: its bytes, unless the field may also be a list. */
    double min, max;
    const char *words;    /* the values that a text may have, separated by blanks; NULL: any */
    const char *fallback; /* the default, as JSON; NULL: none is documented */
    const char *help;     /* one sentence */
};

/* Every row, in the order in which they are checked. */
extern const struct api_field api_fields[];
extern const uint32_t api_field_count;

/* The row of a path at an endpoint; NULL if it has none. */
const struct api_field *api_field_find(enum api_endpoint endpoint, const char *path);

/* Check the whole body and store the values that rows can store. `request` is a struct api_request,
 * or a struct that begins with one, as in api/embeddings.h and api/tokenize.h. ST_BAD: `e` says
 * which field and why; ST_NOMEM leaves `e` unchanged. */
enum status api_fields_read(enum api_endpoint endpoint, const struct json *body, void *request,
                            struct api_error *e);

/* For codecs, to refuse values that the table cannot check. `param` is a printf format for the
 * path: "messages[%zu].content". All return ST_BAD. */
enum status api_refuse_kind(struct api_error *e, const struct json *v, uint32_t kinds,
                            const char *param, ...) __attribute__((format(printf, 4, 5)));
enum status api_refuse_missing(struct api_error *e, const char *param, ...)
    __attribute__((format(printf, 2, 3)));
enum status api_refuse_unsupported(struct api_error *e, const char *what, const char *param, ...)
    __attribute__((format(printf, 3, 4))); /* "Images are not supported" */

#endif
