/* api/openapi.h - the description of the whole HTTP interface, as an OpenAPI 3.1 document.
 *
 *     paths      openapi_operations, one row each (openapi_paths.c)
 *     requests   written from the table of fields (api/fields.h), so they cannot disagree with
 *                what is accepted
 *     answers    openapi_schemas, one row each (openapi_schemas.c)
 *
 * Tests validate every response that they see against it, and compare the paths with the routes.
 *
 * Thread: any; all of it is constant.
 */
#ifndef API_OPENAPI_H
#define API_OPENAPI_H

#include <stdbool.h>
#include <stdint.h>

#include "api/fields.h"

struct buf;

/* Parameters besides the body: bits. */
enum openapi_params {
    PARAM_ID = 1 << 0,       /* {id} in the path */
    PARAM_POLL = 1 << 1,     /* ?after= and ?wait_ms= */
    PARAM_ASK = 1 << 2,      /* headers of a request for text: x-request-id, x-jitney-*, prefer */
    PARAM_RESUME = 1 << 3,   /* last-event-id */
    PARAM_GENERATE = 1 << 4, /* ?generate=1 */
    PARAM_MODEL = 1 << 5,    /* ?model= */
    PARAM_FROM = 1 << 6,     /* ?from= */
    PARAM_ITEM = 1 << 7,     /* {item_id} in the path */
    PARAM_PAGE = 1 << 8,     /* ?after=, ?limit= and ?order= */
    PARAM_BATCHES = 1 << 9,  /* Anthropic's ?after_id=, ?before_id= and ?limit= */
    PARAM_PURPOSE = 1 << 10, /* ?purpose= */
    PARAM_REPLAY = 1 << 11,  /* ?stream= and ?starting_after= */
};

struct openapi_operation {
    const char *path, *method; /* in lower case */
    const char *id, *summary;
    const char *answer;   /* the schema of a 200 in JSON; NULL: none */
    const char *events;   /* of the events of a stream; NULL: it does not stream */
    const char *media;    /* of answers that are not JSON, separated by blanks; NULL: none */
    const char *fault;    /* the schema of an error */
    const char *accepted; /* the schema of a 202; NULL: none */
    uint32_t body;        /* enum api_endpoint; 0: it has none, or `sent` */
    const char *sent;     /* the schema of a body that the table of fields does not have, or NULL */
    bool is_form;         /* `sent` is a form: multipart/form-data */
    bool may_be_empty;    /* the body may be left out */
    uint32_t params;      /* enum openapi_params */
    bool is_open;         /* needs no API key */
    bool may_be_unready;  /* a 503 has the schema of the answer */
    bool is_upgrade;      /* to a WebSocket */
};
extern const struct openapi_operation openapi_operations[];
extern const uint32_t openapi_operation_count;

/* JSON with ' in place of ", which is easier to read in C. */
struct openapi_schema {
    const char *name, *json;
};
extern const struct openapi_schema openapi_schemas[];
extern const uint32_t openapi_schema_count;

void openapi_put(struct buf *out);

#endif
