/* server/http_request.c - see server/http_request.h. */
#include "server/http_request.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "report/log.h"
#include "sample/random_seed.h"
#include "server/local_request.h"
#include "server/routes.h"

enum {
    HEADERS_MAX = 32,
    TEXT_BYTES = 1536,
    ERROR_BODY_BYTES = 1 << 16,
    DRAIN_RETRY_MS = 5000,
    ROOM_RETRY_MS = 1000,
};

/* Headers under construction; values that are printed are kept in `text`. */
struct head_list {
    struct http_header list[HEADERS_MAX];
    uint32_t count;
    char text[TEXT_BYTES];
    size_t used;
};

static void add(struct head_list *h, struct str name, struct str value) {
    CHECK(h->count < HEADERS_MAX);
    h->list[h->count++] = (struct http_header){name, value};
}

static void add_int(struct head_list *h, struct str name, int64_t value, const char *unit) {
    char *at = h->text + h->used;
    int len = snprintf(at, TEXT_BYTES - h->used, "%lld%s", (long long)value, unit);
    CHECK(len > 0 && (size_t)len < TEXT_BYTES - h->used);
    add(h, name, (struct str){at, (size_t)len});
    h->used += (size_t)len;
}

enum status server_check_draining(const struct server *s, struct api_error *e) {
    if (!s->is_draining) return ST_OK;
    api_refuse(e, 503, NULL, "shutting_down", "the server is shutting down");
    e->retry_after_ms = DRAIN_RETRY_MS;
    return ST_BAD;
}

enum status server_check_room(enum http_room room, struct api_error *e) {
    if (room == HTTP_ROOM) return ST_OK;
    if (room == HTTP_ROOM_SHARE)
        api_refuse(e, 429, NULL, "unread_responses",
                   "responses that this client has not read fill its share of the server's memory; "
                   "read them, then try again");
    else
        api_refuse(
            e, 503, NULL, "overloaded",
            "responses that clients have not read fill the server's memory; try again later");
    e->retry_after_ms = ROOM_RETRY_MS;
    return ST_BAD;
}

/* ---- ids ---- */

/* Taken from the system in advance, many at once: a system call takes half a microsecond. */
static const unsigned char *take_random(struct server *s, uint32_t bytes) {
    if (s->random_left < bytes) {
        /* After boot the system's pool is never empty, so a short read would be a bug. */
        CHECK(getrandom(s->random, sizeof(s->random), 0) == (ssize_t)sizeof(s->random));
        s->random_left = sizeof(s->random);
    }
    s->random_left -= bytes;
    return s->random + s->random_left;
}

void server_make_id(struct server *s, char out[SERVER_ID_BYTES]) {
    enum { BYTES = (SERVER_ID_BYTES - 1) / 2 };
    static const char digits[] = "0123456789abcdef";
    const unsigned char *bytes = take_random(s, BYTES);
    for (uint32_t i = 0; i < BYTES; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * BYTES] = 0;
}

uint64_t server_make_seed(struct server *s) {
    uint64_t bits;
    memcpy(&bits, take_random(s, sizeof(bits)), sizeof(bits));
    return random_seed_of(bits);
}

/* ---- headers ---- */

static void add_cors(struct http_request *req, struct head_list *h) {
    if (!req->grant.is_allowed_origin) return;
    add(h, STR("access-control-allow-origin"), http_find(req->head, "origin"));
    add(h, STR("access-control-expose-headers"),
        STR("x-request-id, openai-processing-ms, retry-after, retry-after-ms, location, "
            "x-jitney-warning, x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens"));
    add(h, STR("vary"), STR("origin"));
}

static void add_limits(const struct http_request *req, struct head_list *h, int64_t now_us) {
    const struct key *key = req->grant.key;
    if (!key || (!key->rpm && !key->tpm)) return;
    struct key_room room = keys_room(req->server->keys, key, now_us);
    if (key->rpm) {
        add_int(h, STR("x-ratelimit-limit-requests"), key->rpm, "");
        add_int(h, STR("x-ratelimit-remaining-requests"), room.requests_left, "");
        add_int(h, STR("x-ratelimit-reset-requests"), room.requests_reset_ms, "ms");
    }
    if (key->tpm) {
        add_int(h, STR("x-ratelimit-limit-tokens"), key->tpm, "");
        add_int(h, STR("x-ratelimit-remaining-tokens"), room.tokens_left, "");
        add_int(h, STR("x-ratelimit-reset-tokens"), room.tokens_reset_ms, "ms");
    }
}

/* Their number. */
static uint32_t make_headers(struct http_request *req, const struct response *r,
                             struct head_list *h) {
    int64_t now_us = clock_now(&clock_real);
    h->count = 0;
    h->used = 0;
    add(h, STR("content-type"), r->type ? str_of(r->type) : STR("application/json"));
    add(h, STR("x-request-id"), str_of(req->request_id));
    add_int(h, STR("openai-processing-ms"), (now_us - req->arrived_us) / 1000, "");
    for (uint32_t i = 0; i < r->header_count; i++) add(h, r->headers[i].name, r->headers[i].value);
    if (req->warning && req->warning[0]) add(h, STR("x-jitney-warning"), str_of(req->warning));
    add_limits(req, h, now_us);
    add_cors(req, h);
    return h->count;
}

/* Every response is counted; failures of the server are logged, and at level debug all are. */
void http_request_count(const struct http_request *req, uint32_t status) {
    struct server *s = req->server;
    int64_t took_us = clock_now(&clock_real) - req->arrived_us;
    server_metrics_response(s->metrics, req->route ? req->route->path : "other", status,
                            (double)took_us / 1e6);
    enum log_level level = status >= 500 && status != 503 ? LOG_WARN : LOG_DEBUG;
    if (!log_wants(s->log, level)) return;
    struct log_field fields[] = {
        log_text("id", str_of(req->request_id)),
        log_text("method", str_of(http_method_name(req->head->method))),
        log_text("path", req->head->path),
        log_int("status", status),
        log_real("ms", (double)took_us / 1e3),
        log_text("peer", req->head->peer),
    };
    log_line(s->log, level, "response", fields, sizeof(fields) / sizeof(fields[0]));
}

/* ---- responses ---- */

/* Its handler is done with it: the rest is between the exchange and dispatch.c. */
static void detach(struct http_request *req) {
    req->on_gone = NULL;
    req->on_writable = NULL;
}

void respond(struct http_request *req, const struct response *r) {
    struct head_list h;
    detach(req);
    if (req->is_local) {
        local_request_respond(req, r->status, r->body, 0);
        return;
    }
    uint32_t count = make_headers(req, r, &h);
    http_reply(req->x, &(struct http_reply){.status = r->status,
                                            .headers = h.list,
                                            .header_count = count,
                                            .body = r->body,
                                            .document = r->document});
}

void respond_json(struct http_request *req, struct buf *body) {
    if (buf_status(body) != ST_OK)
        respond_out_of_memory(req);
    else
        respond(req, &(struct response){.status = 200, .body = buf_str(body)});
}

static void add_retry(const struct api_error *e, struct head_list *h) {
    bool is_temporary = api_error_is_temporary(e);
    add(h, STR("x-should-retry"), is_temporary ? STR("true") : STR("false"));
    if (e->retry_after_ms <= 0) return;
    add_int(h, STR("retry-after"), (e->retry_after_ms + 999) / 1000, "");
    add_int(h, STR("retry-after-ms"), e->retry_after_ms, "");
}

void respond_error(struct http_request *req, const struct api_error *e) {
    struct head_list extra;
    struct buf body;
    extra.count = 0;
    extra.used = 0;
    CHECK(e->status >= 400);
    buf_init(&body, ERROR_BODY_BYTES);
    req->codec->put_error(e, str_of(req->request_id), &body);
    if (req->is_local) {
        detach(req);
        local_request_respond(req, e->status, buf_str(&body), e->retry_after_ms);
        buf_deinit(&body);
        return;
    }
    add_retry(e, &extra);
    if (e->status == 401) add(&extra, STR("www-authenticate"), STR("Bearer"));
    respond(req, &(struct response){.status = e->status,
                                    .body = buf_str(&body),
                                    .headers = extra.list,
                                    .header_count = extra.count});
    buf_deinit(&body);
}

void respond_out_of_memory(struct http_request *req) {
    struct api_error e = {0};
    api_refuse(&e, 503, NULL, "out_of_memory", "the server has no memory for this response");
    respond_error(req, &e);
}

void respond_begin(struct http_request *req, const struct response *r) {
    struct head_list h;
    http_stream_begin(req->x, r->status, h.list, make_headers(req, r, &h));
}

void respond_end(struct http_request *req) {
    detach(req);
    http_stream_end(req->x);
}

void respond_abort(struct http_request *req) {
    detach(req);
    req->is_aborted = true;
    http_stream_abort(req->x);
}

/* ---- bodies and parameters ---- */

struct str http_request_body(const struct http_request *req) {
    return req->is_local ? local_request_body(req) : http_body(req->x);
}

void http_request_drop_body(struct http_request *req) {
    if (!req->is_local) http_drop_body(req->x);
}

bool http_request_query_u64(struct http_request *req, const char *name, uint64_t fallback,
                            uint64_t *out) {
    struct buf text;
    struct api_error e = {0};
    *out = fallback;
    buf_init(&text, 64);
    bool ok = !http_query_find(req->head->query, name, &text) || str_to_u64(buf_str(&text), out);
    if (!ok) {
        api_refuse(&e, 400, name, NULL, "%s is \"%.*s\"; it must be a whole number", name,
                   STR_ARG(buf_str(&text)));
        respond_error(req, &e);
    }
    buf_deinit(&text);
    return ok;
}

bool http_request_header_is(const struct http_request *req, const char *name, const char *value) {
    struct str have = http_find(req->head, name), want = str_of(value);
    if (have.len != want.len) return false;
    for (size_t i = 0; i < have.len; i++) {
        char c = have.ptr[i];
        if ((c >= 'A' && c <= 'Z' ? c + 32 : c) != want.ptr[i]) return false;
    }
    return true;
}
