/* server/chore.c - see server/chore_int.h. */
#include "server/chore_int.h"

#include "base/check.h"
#include "server/server_int.h"

static void on_gone(struct visit *v) {
    struct chore *c = v->owner;
    c->visit = NULL;
    visit_free(v);
}

static void work(uv_work_t *req) {
    struct chore *c = (struct chore *)req;
    c->work(c);
}

static void done(uv_work_t *req, int rc) {
    struct chore *c = (struct chore *)req;
    CHECK(rc == 0);
    c->server->chores--;
    c->done(c);
}

void chore_run_alone(struct chore *c, struct server *s, bool is_much) {
    c->server = s;
    if (is_much) {
        s->chores++;
        CHECK(uv_queue_work(&s->loop, &c->req, work, done) == 0);
        return;
    }
    c->work(c);
    c->done(c);
}

void chore_run(struct chore *c, struct visit *v, bool is_much) {
    c->visit = v;
    v->owner = c;
    v->on_gone = on_gone;
    chore_run_alone(c, v->server, is_much);
}
