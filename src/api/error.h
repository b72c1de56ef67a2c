/* api/error.h - an error response, free of any wire format.
 *
 * Every codec writes it in its own format. Client libraries retry 408, 409, 429 and 5xx, so a
 * permanent error never has one of these statuses; the header x-should-retry says the same.
 */
#ifndef API_ERROR_H
#define API_ERROR_H

#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct buf;

enum { API_PARAM_BYTES = 96 };

/* `type` and `code` have OpenAI's values. */
struct api_error {
    uint32_t status;  /* of HTTP; 0: no error */
    const char *type; /* "invalid_request_error", "not_found_error", "rate_limit_error", ... */
    const char *code; /* "model_not_found", "context_length_exceeded", ...; NULL: null */
    char param[API_PARAM_BYTES]; /* "messages[0].role"; "": null */
    struct err message;
    int64_t retry_after_ms; /* 0: none */
};

/* Fill it in and return ST_BAD, so that a refusal is one line:
 *     return api_refuse(e, 400, "temperature", NULL, "temperature is %g; ...", v);
 * `type` follows from the status. `param` may be NULL. */
enum status api_refuse(struct api_error *e, uint32_t status, const char *param, const char *code,
                       const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* The same for an internal failure: 503 for ST_NOMEM and ST_FULL, which are temporary, 400 for
 * ST_BAD, else 500. Returns `st`. */
enum status api_fail(struct api_error *e, enum status st, const char *sentence);

/* Whether the same request can succeed later. */
int api_error_is_temporary(const struct api_error *e);

/* {"error":{"message","type","param","code"}}, as OpenAI writes it, and its value alone. */
void api_error_put_openai(const struct api_error *e, struct str request_id, struct buf *out);
void api_error_put_object(const struct api_error *e, struct buf *out);

#endif
