/* server/dispatch.c - what the network calls: a head, a whole request, a client that goes away.
 *
 * A request is routed and checked once, when its head has arrived, so that a refused request need
 * not send its body. When the body is complete, what may have changed meanwhile is checked again
 * (the key may have been removed, the server may be draining), and the route's handler gets it.
 */
#include "server/dispatch.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "server/http_request.h"
#include "server/routes.h"

enum {
    ALLOW_BYTES = 128,
    PLACE_RETRY_MS = 1000,
    FAULT_BYTES = 1 << 14,
    GONE_STATUS = 499, /* never sent: counted, as nginx does, for a client that did not wait */
};

/* "GET, HEAD, POST" from the bits of routes_find. */
static struct str put_methods(uint32_t allowed, char out[ALLOW_BYTES]) {
    size_t used = 0;
    if (allowed & 1u << HTTP_GET) allowed |= 1u << HTTP_HEAD;
    allowed |= 1u << HTTP_OPTIONS;
    for (int m = HTTP_GET; m < HTTP_OTHER; m++) {
        if (!(allowed & 1u << m)) continue;
        int len = snprintf(out + used, ALLOW_BYTES - used, "%s%s", used ? ", " : "",
                           http_method_name((enum http_method)m));
        used += (size_t)len;
    }
    return (struct str){out, used};
}

static void respond_unknown(struct http_request *req) {
    struct api_error e = {0};
    api_refuse(&e, 404, NULL, "unknown_url", "Unknown request URL: %s %.*s",
               http_method_name(req->head->method), STR_ARG(req->head->path));
    respond_error(req, &e);
}

static void respond_wrong_method(struct http_request *req) {
    struct api_error e = {0};
    struct buf body;
    char text[ALLOW_BYTES];
    struct http_header headers[] = {{STR("allow"), put_methods(req->allowed_methods, text)},
                                    {STR("x-should-retry"), STR("false")}};
    buf_init(&body, FAULT_BYTES);
    api_refuse(&e, 405, NULL, "method_not_allowed", "%.*s takes %.*s, not %s",
               STR_ARG(req->head->path), STR_ARG(headers[0].value),
               http_method_name(req->head->method));
    req->codec->put_error(&e, str_of(req->request_id), &body);
    respond(req, &(struct response){
                     .status = 405, .body = buf_str(&body), .headers = headers, .header_count = 2});
    buf_deinit(&body);
}

/* OPTIONS: the methods of the path and, for a page that may call, what its script may send. */
static void respond_options(struct http_request *req) {
    struct str wanted = http_find(req->head, "access-control-request-headers");
    char text[ALLOW_BYTES];
    struct str methods = put_methods(req->allowed_methods, text);
    struct http_header headers[] = {
        {STR("allow"), methods},
        {STR("access-control-allow-methods"), methods},
        {STR("access-control-max-age"), STR("600")},
        {STR("access-control-allow-headers"), wanted},
    };
    uint32_t count = !req->grant.is_allowed_origin ? 1 : wanted.ptr ? 4 : 3;
    respond(req, &(struct response){.status = 204, .headers = headers, .header_count = count});
}

/* A small compressed body could expand to any size, so no compressed body is accepted. */
static bool is_compressed(const struct http_request *req) {
    struct str coding = http_find(req->head, "content-encoding");
    return coding.len > 0 && !str_is(coding, "identity");
}

static enum status check_coding(const struct http_request *req, struct api_error *e) {
    if (!is_compressed(req)) return ST_OK;
    return api_refuse(e, 415, NULL, "unsupported_content_encoding",
                      "compressed bodies are not supported; send the body without "
                      "Content-Encoding");
}

/* A file whose length is announced is refused before it is sent. */
static enum status check_file(const struct http_request *req, struct api_error *e) {
    const uint64_t file_max = req->server->memory.file_max;
    uint64_t bytes;
    if (req->route->body_bytes != BODY_FILE) return ST_OK;
    if (!str_to_u64(http_find(req->head, "content-length"), &bytes)) return ST_OK;
    if (bytes <= routes_body_bytes(req->route, 0, file_max)) return ST_OK;
    return api_refuse(e, 413, NULL, "file_too_large",
                      "the request body has %llu bytes; this server takes files of at most %llu "
                      "(--file-max)",
                      (unsigned long long)bytes, (unsigned long long)file_max);
}

/* Probes and administrators are answered whatever the load is. */
static enum status check_load(const struct http_request *req, struct api_error *e) {
    if (req->grant.key && req->grant.key->is_admin) return ST_OK;
    if (!http_is_reserved(req->x)) return server_check_room(http_room(req->x), e);
    api_refuse(e, 503, NULL, "too_many_connections",
               "all connections that this server allows are in use; try again later");
    e->retry_after_ms = PLACE_RETRY_MS;
    return ST_BAD;
}

/* Answers the request, unless its body may be sent. */
static void accept_head(struct http_request *req) {
    struct api_error e = {0};
    enum status st = access_check(&req->server->access_rules, req->head,
                                  routes_access(req->route, req->head->method), &req->grant, &e);
    bool is_known = req->route || req->allowed_methods != 0;
    bool has_owner = req->grant.key && req->grant.key != keys_anyone(req->server->keys);
    http_set_body_max(req->x, routes_body_bytes(req->route, req->server->settings.body_max,
                                                req->server->memory.file_max));
    if (st == ST_OK && has_owner) http_set_owner(req->x, req->grant.key->tenant);
    if (st == ST_OK && req->route && req->route->class == ROUTE_WORK)
        st = server_check_draining(req->server, &e);
    if (st == ST_OK && req->route && req->route->class != ROUTE_PROBE) st = check_load(req, &e);
    if (st == ST_OK && req->route) st = check_coding(req, &e);
    if (st == ST_OK && req->route) st = check_file(req, &e);
    if (st != ST_OK)
        respond_error(req, &e);
    else if (!is_known)
        respond_unknown(req);
    else if (req->head->method == HTTP_OPTIONS)
        respond_options(req);
    else if (!req->route)
        respond_wrong_method(req);
}

/* The client's own id is used if it can be written into a log line and a header. */
static bool is_printable_id(struct str id) {
    if (id.len == 0 || id.len > 128) return false;
    for (size_t i = 0; i < id.len; i++)
        if (id.ptr[i] <= ' ' || id.ptr[i] > '~') return false;
    return true;
}

/* Ids, route and codec. */
static void init_request(struct http_request *req, struct server *s, struct http_exchange *x) {
    *req = (struct http_request){.server = s, .x = x, .head = http_head(x)};
    req->arrived_us = clock_now(&clock_real);
    server_make_id(s, req->id);
    struct str given = http_find(req->head, "x-request-id");
    str_store(is_printable_id(given) ? given : str_of(req->id), req->request_id,
              sizeof(req->request_id));
    req->route = routes_find(req->head->method, req->head->path, &req->arg, &req->allowed_methods);
    req->codec = routes_codec(req->route, req->head->path);
}

static void on_head(void *ctx, struct http_exchange *x) {
    struct http_request here, *req = mem_alloc(sizeof(*req));
    init_request(req ? req : &here, ctx, x);
    http_set_user(x, req);
    if (req) {
        accept_head(req);
        return;
    }
    http_request_count(&here, 503);
    respond_out_of_memory(&here);
}

static void on_request(void *ctx, struct http_exchange *x) {
    struct http_request *req = http_user(x);
    struct api_error e = {0};
    (void)ctx;
    req->arrived_us = clock_now(&clock_real);
    enum status st = access_recheck(req->server->keys, req->grant.key, req->route->access, &e);
    if (st == ST_OK && req->route->class == ROUTE_WORK) st = server_check_draining(req->server, &e);
    if (st == ST_OK)
        req->route->handle(req);
    else
        respond_error(req, &e);
}

static void on_incomplete(void *ctx, struct http_exchange *x) {
    (void)ctx;
    mem_free(http_user(x));
}

static void on_gone(void *ctx, struct http_exchange *x) {
    struct http_request *req = http_user(x);
    (void)ctx;
    if (!req) return;
    if (req->on_gone) req->on_gone(req);
    http_request_count(req, GONE_STATUS);
    mem_free(req);
}

static void on_end(void *ctx, struct http_exchange *x, uint32_t status, uint64_t body_bytes) {
    struct http_request *req = http_user(x);
    (void)ctx;
    (void)body_bytes;
    if (!req) return; /* there was no memory for it */
    http_request_count(req, req->is_aborted ? 500 : status);
    mem_free(req);
}

static void on_writable(void *ctx, struct http_exchange *x) {
    struct http_request *req = http_user(x);
    (void)ctx;
    if (req && req->on_writable) req->on_writable(req);
}

static void put_error_body(void *ctx, uint32_t status, const char *sentence, struct buf *body) {
    struct api_error e = {0};
    (void)ctx;
    api_refuse(&e, status, NULL, NULL, "%s", sentence);
    routes_codec(NULL, STR("/"))->put_error(&e, (struct str){0}, body);
}

const struct http_handler dispatch_handler = {.on_head = on_head,
                                              .on_request = on_request,
                                              .on_incomplete = on_incomplete,
                                              .on_gone = on_gone,
                                              .on_writable = on_writable,
                                              .put_error_body = put_error_body,
                                              .on_end = on_end};
