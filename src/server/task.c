/* server/task.c - see server/task_int.h. */
#include "server/task_int.h"

#include "base/check.h"
#include "server/server_int.h"

static void on_gone(struct http_request *req) {
    struct task *c = req->owner;
    c->http = NULL;
    http_request_free(req);
}

static void work(uv_work_t *work_handle) {
    struct task *c = (struct task *)work_handle;
    c->work(c);
}

static void done(uv_work_t *work_handle, int rc) {
    struct task *c = (struct task *)work_handle;
    CHECK(rc == 0);
    c->server->tasks--;
    c->done(c);
}

void task_run_alone(struct task *c, struct server *s, bool is_much) {
    c->server = s;
    if (is_much) {
        s->tasks++;
        CHECK(uv_queue_work(&s->loop, &c->req, work, done) == 0);
        return;
    }
    c->work(c);
    c->done(c);
}

void task_run(struct task *c, struct http_request *req, bool is_much) {
    c->http = req;
    req->owner = c;
    req->on_gone = on_gone;
    task_run_alone(c, req->server, is_much);
}
