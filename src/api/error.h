/* api/error.h - what a client is told when something cannot be done.
 *
 * One struct for every wire format; a codec words it in its own shape. The status decides what
 * client libraries do: they retry 408, 409, 429 and 5xx, so a permanent fault is never one of
 * those, and x-should-retry says so once more.
 */
#ifndef API_ERROR_H
#define API_ERROR_H

#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct buf;

enum { API_PARAM_BYTES = 96 };

/* OpenAI's words for `type` and `code`. */
struct api_error {
    uint32_t status;  /* HTTP's; 0: nothing is wrong */
    const char *type; /* "invalid_request_error", "not_found_error", "rate_limit_error", ... */
    const char *code; /* "model_not_found", "context_length_exceeded", ...; NULL: null */
    char param[API_PARAM_BYTES]; /* "messages[0].role"; "": null */
    struct err message;
    int64_t retry_after_ms; /* 0: not said */
};

/* Fill it in and return ST_BAD, so that a refusal is one line:
 *     return api_refuse(e, 400, "temperature", NULL, "temperature is %g; ...", v);
 * `type` follows from the status. `param` may be NULL. */
enum status api_refuse(struct api_error *e, uint32_t status, const char *param, const char *code,
                       const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* The same for a failure that is not the client's: 503 for ST_NOMEM and ST_FULL, which pass, else
 * 500; 400 for ST_BAD. Returns `st`. */
enum status api_fail(struct api_error *e, enum status st, const char *sentence);

/* Whether the same request can succeed later. */
int api_error_is_temporary(const struct api_error *e);

/* {"error":{"message","type","param","code"}}, as OpenAI writes it, and its value alone. */
void api_error_put_openai(const struct api_error *e, struct str request_id, struct buf *out);
void api_error_put_object(const struct api_error *e, struct buf *out);

#endif
