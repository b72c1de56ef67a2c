/* server/retention.c - see server/retention.h. */
#include "server/retention.h"

#include <uv.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "jobs/answers.h"
#include "jobs/batches.h"
#include "jobs/files.h"
#include "jobs/store.h"
#include "report/log.h"
#include "server/server_int.h"
#include "server/storage.h"

enum {
    PERIOD_MS = 60000,
    ROWS_A_TIME = 32, /* a file's row has all its bytes */
    DAY_S = 86400,
};

enum retention_kind { KEEP_FILES, KEEP_BATCHES, KEEP_ANSWERS, KEEP_KINDS };

struct retention {
    struct server *server;
    uv_timer_t timer;
    struct store_op op;
    enum retention_kind kind; /* of the operation under way */
    int64_t now_s, before_s;
    uint32_t count;   /* deleted by the operation */
    uint64_t deleted; /* by this round */
    bool is_busy;
};

static struct retention *retention_of(struct store_op *op) {
    return LIST_ITEM(&op->in_store, struct retention, op.in_store);
}

static enum status run(struct store_op *op, struct store_db *db) {
    struct retention *r = retention_of(op);
    r->count = 0;
    switch (r->kind) {
    case KEEP_FILES:
        return files_expire(db, r->now_s, r->before_s, ROWS_A_TIME, &r->count, &op->err);
    case KEEP_BATCHES:
        return batches_expire(db, r->before_s, ROWS_A_TIME, &r->count, &op->err);
    case KEEP_ANSWERS:
        return answers_expire(db, r->before_s, ROWS_A_TIME, &r->count, &op->err);
    case KEEP_KINDS:
        break;
    }
    return ST_OK;
}

static void end_round(struct retention *r) {
    struct log_field field = log_int("deleted", (int64_t)r->deleted);
    r->is_busy = false;
    if (r->deleted > 0) log_line(r->server->log, LOG_INFO, "retention", &field, 1);
}

static void done(struct store_op *op) {
    struct retention *r = retention_of(op);
    const struct server *s = r->server;
    r->deleted += r->count;
    if (op->status != ST_OK || r->count < ROWS_A_TIME) r->kind++;
    const bool keeps_all = r->before_s == 0 && r->kind > KEEP_FILES;
    if (r->kind == KEEP_KINDS || keeps_all || s->is_draining || s->failure)
        end_round(r);
    else
        storage_push(r->server, op);
}

static void begin_round(uv_timer_t *timer) {
    struct retention *r = timer->data;
    const struct server *s = r->server;
    if (r->is_busy || s->is_draining || s->failure || !s->store) return;
    r->is_busy = true;
    r->kind = KEEP_FILES;
    r->deleted = 0;
    r->now_s = clock_wall_s();
    r->before_s = r->now_s - (int64_t)(s->settings.data_keep * DAY_S);
    if (s->settings.data_keep <= 0) r->before_s = 0;
    r->op = (struct store_op){.run = run, .done = done};
    storage_push(r->server, &r->op);
}

enum status retention_create(struct server *s, struct retention **out) {
    struct retention *r = mem_zalloc(sizeof(*r));
    if (!r) return ST_NOMEM;
    r->server = s;
    CHECK(uv_timer_init(&s->loop, &r->timer) == 0);
    r->timer.data = r;
    *out = r;
    return ST_OK;
}

void retention_start(struct retention *r) { uv_timer_start(&r->timer, begin_round, 0, PERIOD_MS); }

void retention_close(struct retention *r) {
    if (r) uv_close((uv_handle_t *)&r->timer, NULL);
}

void retention_destroy(struct retention *r) {
    if (!r) return;
    CHECK(!r->is_busy);
    mem_free(r);
}
