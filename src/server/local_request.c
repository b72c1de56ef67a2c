/* server/local_request.c - see server/local_request.h. */
#include "server/local_request.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "server/http_request.h"
#include "server/routes.h"

static const size_t RESPONSE_BYTES_MAX = (size_t)1 << 28;

struct local_call {
    struct http_request http; /* first: what the handlers see */
    struct http_head head;
    struct local_request spec;
    struct local_response response;
    struct buf body;
    struct list_link in_answered;
};

static struct local_call *call_of(const struct http_request *req) {
    CHECK(req->is_local);
    return (struct local_call *)(void *)(uintptr_t)req;
}

static void destroy(struct local_call *call) {
    buf_deinit(&call->body);
    mem_free(call);
}

struct http_request *local_request_start(struct server *s, const struct route *route,
                                         const struct key *key, const struct local_request *spec) {
    struct local_call *call = mem_zalloc(sizeof(*call));
    if (!call) return NULL;
    call->spec = *spec;
    call->head = (struct http_head){
        .method = route->method, .path = str_of(route->path), .peer = STR("batch")};
    struct http_request *req = &call->http;
    *req = (struct http_request){.server = s,
                                 .head = &call->head,
                                 .route = route,
                                 .grant = {.key = key},
                                 .codec = routes_codec(route, str_of(route->path)),
                                 .arrived_us = clock_now(&clock_real),
                                 .is_local = true};
    if (spec->id)
        str_store(str_of(spec->id), req->id, sizeof(req->id));
    else
        server_make_id(s, req->id);
    snprintf(req->request_id, sizeof(req->request_id), "%s", req->id);
    buf_init(&call->body, RESPONSE_BYTES_MAX);
    s->local_count++;
    route->handle(req);
    return req;
}

void local_request_respond(struct http_request *req, uint32_t status, struct str body,
                           int64_t retry_after_ms) {
    struct local_call *call = call_of(req);
    struct server *s = req->server;
    CHECK(call->response.status == 0);
    buf_put_str(&call->body, body);
    bool fits = buf_status(&call->body) == ST_OK;
    call->response.status = fits ? status : 503;
    call->response.retry_after_ms = retry_after_ms;
    list_push_last(&s->local_answered, &call->in_answered);
    uv_async_send(&s->storage_wake);
}

void local_request_cancel(struct http_request *req) {
    struct local_call *call = call_of(req);
    struct server *s = req->server;
    if (list_has(&s->local_answered, &call->in_answered))
        list_remove(&s->local_answered, &call->in_answered);
    else if (req->on_gone)
        req->on_gone(req);
    s->local_count--;
    destroy(call);
}

void local_requests_deliver(struct server *s) {
    for (struct list_link *l; (l = list_pop_first(&s->local_answered));) {
        struct local_call *call = LIST_ITEM(l, struct local_call, in_answered);
        call->response.body = buf_str(&call->body);
        call->response.request_id = call->http.request_id;
        s->local_count--;
        call->spec.done(call->spec.ctx, &call->response);
        destroy(call);
    }
}

struct str local_request_body(const struct http_request *req) {
    return call_of(req)->spec.body;
}
uint64_t local_request_seed(const struct http_request *req) { return call_of(req)->spec.seed; }
int64_t local_request_created_s(const struct http_request *req) {
    return call_of(req)->spec.created_s;
}

void local_request_count(struct http_request *req, uint64_t prompt_tokens, uint64_t cached_tokens,
                         uint64_t answer_tokens) {
    struct local_response *r = &call_of(req)->response;
    r->prompt_tokens = prompt_tokens;
    r->cached_tokens = cached_tokens;
    r->answer_tokens = answer_tokens;
}
