/* server/dispatch.c - what the network calls: heads, whole requests, clients that are gone.
 *
 * A request is judged twice. When its head is in, so that what is refused sends no body; and when
 * the body is in, because only then there is something to remember about it.
 */
#include "server/dispatch.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/mem.h"
#include "server/server_int.h"

enum { ALLOW_BYTES = 128, FAULT_BYTES = 1 << 14 };

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

static void refuse_path(struct http_request *req, uint32_t allowed) {
    struct api_error e = {0};
    const char *method = http_method_name(req->head->method);
    char text[ALLOW_BYTES];
    if (allowed == 0) {
        api_refuse(&e, 404, NULL, "unknown_url", "Unknown request URL: %s %.*s", method,
                   STR_ARG(req->head->path));
        respond_error(req, &e);
        return;
    }
    struct buf body;
    struct http_header headers[] = {{STR("allow"), put_methods(allowed, text)},
                                    {STR("x-should-retry"), STR("false")}};
    buf_init(&body, FAULT_BYTES);
    api_refuse(&e, 405, NULL, "method_not_allowed", "%.*s takes %.*s, not %s",
               STR_ARG(req->head->path), STR_ARG(headers[0].value), method);
    req->codec->put_error(&e, str_of(req->request_id), &body);
    respond(req, &(struct response){
                     .status = 405, .body = buf_str(&body), .headers = headers, .header_count = 2});
    buf_deinit(&body);
}

/* OPTIONS: what the path takes and, for a page that may call, what its script may send. */
static void answer_options(struct http_request *req) {
    struct str arg, asked = http_find(req->head, "access-control-request-headers");
    uint32_t allowed;
    char text[ALLOW_BYTES];
    routes_find(HTTP_OTHER, req->head->path, &arg, &allowed);
    if (allowed == 0) {
        refuse_path(req, 0);
        return;
    }
    struct str methods = put_methods(allowed, text);
    struct http_header headers[] = {
        {STR("allow"), methods},
        {STR("access-control-allow-methods"), methods},
        {STR("access-control-max-age"), STR("600")},
        {STR("access-control-allow-headers"), asked},
    };
    uint32_t count = !req->is_allowed_origin ? 1 : asked.ptr ? 4 : 3;
    respond(req, &(struct response){.status = 204, .headers = headers, .header_count = count});
}

static void refuse_draining(struct http_request *req) {
    struct api_error e = {0};
    api_refuse(&e, 503, NULL, "shutting_down", "the server is shutting down");
    e.retry_after_ms = 5000;
    respond_error(req, &e);
}

/* A small body could unfold to any size, so none is unfolded. */
static bool is_packed(const struct http_request *req) {
    struct str coding = http_find(req->head, "content-encoding");
    return coding.len > 0 && !str_is(coding, "identity");
}

static void refuse_packed(struct http_request *req) {
    struct api_error e = {0};
    api_refuse(&e, 415, NULL, "unsupported_content_encoding",
               "compressed bodies are not read; send it without Content-Encoding");
    respond_error(req, &e);
}

/* True: the exchange may go on. Otherwise it has been answered. */
static bool let_in(struct http_request *req) {
    struct api_error e = {0};
    if (gate_check(req, &e) != ST_OK) {
        respond_error(req, &e);
        return false;
    }
    if (req->head->method == HTTP_OPTIONS) {
        answer_options(req);
        return false;
    }
    if (!req->route) {
        struct str arg;
        uint32_t allowed;
        routes_find(req->head->method, req->head->path, &arg, &allowed);
        refuse_path(req, allowed);
        return false;
    }
    if (req->route->is_work && req->server->is_draining) {
        refuse_draining(req);
        return false;
    }
    if (is_packed(req)) {
        refuse_packed(req);
        return false;
    }
    return true;
}

static void on_head(void *ctx, struct http_exchange *x) {
    struct http_request req;
    http_request_init(&req, ctx, x);
    if (let_in(&req)) http_request_deinit(&req);
}

static void on_request(void *ctx, struct http_exchange *x) {
    struct http_request *req = mem_alloc(sizeof(*req));
    if (!req) {
        struct http_request here;
        http_request_init(&here, ctx, x);
        respond_out_of_memory(&here);
        return;
    }
    http_request_init(req, ctx, x);
    http_set_user(x, req);
    if (let_in(req)) req->route->handle(req);
}

static void on_gone(void *ctx, struct http_exchange *x) {
    struct http_request *req = http_user(x);
    (void)ctx;
    if (!req) return;
    http_request_count_gone(req);
    http_set_user(x, NULL);
    if (req->on_gone)
        req->on_gone(req);
    else
        http_request_free(req);
}

static void on_room(void *ctx, struct http_exchange *x) {
    struct http_request *req = http_user(x);
    (void)ctx;
    if (req && req->on_room) req->on_room(req);
}

static void put_fault(void *ctx, uint32_t status, const char *sentence, struct buf *body) {
    struct api_error e = {0};
    (void)ctx;
    api_refuse(&e, status, NULL, NULL, "%s", sentence);
    routes_codec(NULL, STR("/"))->put_error(&e, (struct str){0}, body);
}

const struct http_handler dispatch_handler = {.on_head = on_head,
                                              .on_request = on_request,
                                              .on_gone = on_gone,
                                              .on_writable = on_room,
                                              .put_error_body = put_fault};
