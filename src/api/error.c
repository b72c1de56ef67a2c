/* api/error.c - see api/error.h for the contract. */
#include "api/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"

static const char *type_of(uint32_t status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    case 503:
        return "unavailable_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

static void fill(struct api_error *e, uint32_t status, const char *param, const char *code) {
    *e = (struct api_error){.status = status, .type = type_of(status), .code = code};
    if (param) snprintf(e->param, sizeof(e->param), "%s", param);
}

enum status api_refuse(struct api_error *e, uint32_t status, const char *param, const char *code,
                       const char *fmt, ...) {
    char text[ERR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    fill(e, status, param, code);
    err_set(&e->message, ST_BAD, "%s", text); /* which also cuts between characters */
    return ST_BAD;
}

enum status api_fail(struct api_error *e, enum status st, const char *sentence) {
    bool is_short = st == ST_NOMEM || st == ST_FULL;
    fill(e, st == ST_BAD ? 400 : is_short ? 503 : 500, NULL, NULL);
    err_set(&e->message, st, "%s", sentence);
    return st;
}

int api_error_is_temporary(const struct api_error *e) {
    switch (e->status) {
    case 408:
    case 409:
    case 429:
    case 502:
    case 503:
    case 504:
        return 1;
    default:
        return 0;
    }
}

static void put_or_null(const char *text, struct buf *out) {
    if (text && text[0])
        buf_put_json_string(out, str_of(text));
    else
        buf_put_text(out, "null");
}

void api_error_put_object(const struct api_error *e, struct buf *out) {
    buf_put_text(out, "{\"message\":");
    buf_put_json_string(out, str_of(e->message.text));
    buf_put_text(out, ",\"type\":");
    buf_put_json_string(out, str_of(e->type));
    buf_put_text(out, ",\"param\":");
    put_or_null(e->param, out);
    buf_put_text(out, ",\"code\":");
    put_or_null(e->code, out);
    buf_put_char(out, '}');
}

/* OpenAI's body has no member for the request's id; the header x-request-id has it. */
void api_error_put_openai(const struct api_error *e, struct str request_id, struct buf *out) {
    (void)request_id;
    buf_put_text(out, "{\"error\":");
    api_error_put_object(e, out);
    buf_put_char(out, '}');
}
