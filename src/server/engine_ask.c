/* server/engine_ask.c - see server/engine_ask.h. */
#include "server/engine_ask.h"

#include <uv.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/control.h"
#include "engine/engine.h"
#include "server/http_request.h"
#include "server/registry.h"

enum { LOOK_MS = 2 };

struct ask {
    struct engine_asks *asks;
    struct http_request *http;
    struct served_model *model;
    uint64_t ticket, until_ms;
    engine_respond_fn *answer;
    struct list_link in_asks;
};

struct engine_asks {
    struct server *server;
    uv_timer_t timer;
    struct list list;
};

enum status engine_asks_create(struct server *s, struct engine_asks **out) {
    struct engine_asks *a = mem_zalloc(sizeof(*a));
    if (!a) return ST_NOMEM;
    a->server = s;
    CHECK(uv_timer_init(&s->loop, &a->timer) == 0);
    a->timer.data = a;
    *out = a;
    return ST_OK;
}

void engine_asks_close(struct engine_asks *a) {
    if (a) uv_close((uv_handle_t *)&a->timer, NULL);
}

void engine_asks_destroy(struct engine_asks *a) {
    if (!a) return;
    CHECK(!a->list.first);
    mem_free(a);
}

static void forget(struct ask *q) {
    struct engine_asks *a = q->asks;
    list_remove(&a->list, &q->in_asks);
    if (!a->list.first) uv_timer_stop(&a->timer);
    mem_free(q);
}

static void on_gone(struct http_request *req) { forget(req->owner); }

static void on_look(uv_timer_t *timer) {
    struct engine_asks *a = timer->data;
    for (struct list_link *l = a->list.first, *next; l; l = next) {
        struct ask *q = LIST_ITEM(l, struct ask, in_asks), here = *q;
        next = l->next;
        bool is_done = control_is_done(engine_control(q->model->engine), q->ticket);
        if (!is_done && uv_now(&a->server->loop) < q->until_ms) continue;
        forget(q);
        here.answer(here.http, here.model, is_done);
    }
}

void engine_asks_wait(struct engine_asks *a, struct http_request *req, struct served_model *m,
                      uint64_t ticket, engine_respond_fn *answer) {
    struct ask *q = mem_zalloc(sizeof(*q));
    if (!q) {
        respond_out_of_memory(req);
        return;
    }
    *q = (struct ask){.asks = a,
                      .http = req,
                      .model = m,
                      .ticket = ticket,
                      .until_ms = uv_now(&a->server->loop) + ENGINE_ASK_MS,
                      .answer = answer};
    req->owner = q;
    req->on_gone = on_gone;
    list_push_last(&a->list, &q->in_asks);
    uv_timer_start(&a->timer, on_look, LOOK_MS, LOOK_MS);
}
