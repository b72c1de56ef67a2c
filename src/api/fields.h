/* api/fields.h - the one table of every field that a request body may have.
 *
 * A row says where a field stands, what it may be, whether it is used, passed over as OpenAI
 * passes over it, or refused by name, and which member of the request it sets. All codecs read
 * their bodies through it, and the OpenAPI document is written from it, so a limit exists once.
 * What has no row is unknown and is ignored, because clients send extras of many servers.
 *
 * A path names a field: "temperature", "stream_options.include_usage", "messages[].role" (of
 * every member of the list). A row is judged only if what encloses it is there; null is "not
 * given". Rows are judged in the order of the table, so of two names for one thing the later
 * wins, and which fault is told first does not depend on the order of the body.
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

/* Who has the field: bits. */
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
};

/* What it may be: bits. */
enum field_kind {
    FIELD_BOOL = 1 << 0,
    FIELD_INT = 1 << 1, /* 3.0 is one, too */
    FIELD_REAL = 1 << 2,
    FIELD_TEXT = 1 << 3,
    FIELD_LIST = 1 << 4,
    FIELD_MAP = 1 << 5,
    FIELD_ANY = (1 << 6) - 1,
};

enum field_use {
    FIELD_USED,    /* by the row's `store`, or by the codec itself */
    FIELD_IGNORED, /* checked, without effect here */
    FIELD_REFUSED, /* 400 by name, unless it asks for nothing: "", [], {}, false, a number <= max;
                      of booleans and numbers the row's fallback instead, if it has one */
};

/* How a value gets into the member at `offset`. */
enum field_store {
    STORE_NONE,     /* the codec reads it */
    STORE_BOOL,     /* bool */
    STORE_NOT_BOOL, /* bool, the opposite */
    STORE_U32,      /* uint32_t */
    STORE_I32,      /* int32_t */
    STORE_NOT_I32,  /* int32_t, the negative */
    STORE_SEED,     /* uint64_t, from any int64_t; -1 is "any": nothing is set */
    STORE_FLOAT,    /* float */
    STORE_TEXT,     /* struct str, in the document */
    STORE_MS,       /* int64_t: milliseconds */
    STORE_MS_US,    /* int64_t: milliseconds as microseconds, at least 1 */
    STORE_TOP_K,    /* uint32_t: -1 is 0 */
    STORE_LIMIT,    /* uint32_t: 0 and negative ones are "no limit": nothing is set */
    STORE_STOPS,    /* the request's stops */
    STORE_IDS,      /* the request's stop_tokens */
    STORE_BIAS,     /* the request's bias */
    STORE_KWARG,    /* the request's template_kwargs: one more, of the field's name */
    STORE_KWARGS,   /* the request's template_kwargs: all of a map's members */
};

struct api_field {
    const char *path;
    uint32_t endpoints; /* enum api_endpoint */
    uint32_t kinds;     /* enum field_kind */
    enum field_use use;
    bool is_required;
    enum field_store store;
    uint32_t offset; /* of the member in the endpoint's request struct */
    uint32_t given;  /* of a bool that tells whether it was given; 0: none */
    /* Both included; both 0: no limit. Of a number its value, of a list or map its members, of a
     * text its bytes unless it could be a list as well. */
    double min, max;
    const char *words;    /* the values that a text may have, separated by blanks; NULL: any */
    const char *fallback; /* what holds if it is not given, as JSON; NULL: nothing to say */
    const char *help;     /* one sentence */
};

/* Every row, in the order in which they are judged. */
extern const struct api_field api_fields[];
extern const uint32_t api_field_count;

/* The row of a path at an endpoint; NULL if it has none. */
const struct api_field *api_field_find(enum api_endpoint endpoint, const char *path);

/* Judge the whole body and store what rows can store. `request` is a struct api_request, or a
 * struct that begins with one, as api/embeddings.h and api/tokenize.h have them. ST_BAD: `e` says
 * which field and why; ST_NOMEM leaves `e` alone. */
enum status api_fields_read(enum api_endpoint endpoint, const struct json *body, void *request,
                            struct api_error *e);

/* For codecs, about values that a table cannot judge. `param` is a printf format that spells the
 * path: "messages[%zu].content". All give ST_BAD. */
enum status api_refuse_kind(struct api_error *e, const struct json *v, uint32_t kinds,
                            const char *param, ...) __attribute__((format(printf, 4, 5)));
enum status api_refuse_missing(struct api_error *e, const char *param, ...)
    __attribute__((format(printf, 2, 3)));
enum status api_refuse_unsupported(struct api_error *e, const char *what, const char *param, ...)
    __attribute__((format(printf, 3, 4))); /* "Images are not supported" */

#endif
