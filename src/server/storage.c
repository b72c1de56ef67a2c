/* server/storage.c - see server/storage.h. */
#include "server/storage.h"

#include <uv.h>

#include "base/check.h"
#include "base/clock.h"
#include "jobs/store.h"
#include "report/log.h"
#include "server/http_request.h"
#include "server/local_request.h"
#include "server/server_int.h"

enum { RETRY_US = 1000000 };

/* On the store's thread. */
static void notify(void *ctx) {
    struct server *s = ctx;
    uv_async_send(&s->storage_wake);
}

static void report_failure(struct server *s) {
    struct store_stats stats = store_stats(s->store);
    if (stats.is_failing == s->is_storage_failing) return;
    s->is_storage_failing = stats.is_failing;
    struct log_field field = log_text(
        "text", str_of(stats.is_failing ? stats.last_error : "the store can be written again"));
    log_line(s->log, stats.is_failing ? LOG_ERROR : LOG_INFO, "storage", &field, 1);
}

static void on_stored(uv_async_t *handle) {
    struct server *s = handle->data;
    local_requests_deliver(s);
    if (s->store) {
        store_drain(s->store);
        report_failure(s);
    }
    server_wake_engines(s);
}

static void report_opened(struct server *s) {
    const char *moved = store_moved_to(s->store);
    struct store_stats stats = store_stats(s->store);
    struct log_field fields[] = {log_text("dir", str_of(s->settings.data_dir)),
                                 log_int("bytes", (int64_t)stats.bytes),
                                 log_text("damaged_moved_to", str_of(moved))};
    log_line(s->log, moved[0] ? LOG_WARN : LOG_INFO, "storage", fields, moved[0] ? 3 : 2);
}

enum status storage_open(struct server *s, struct err *err) {
    CHECK(uv_async_init(&s->loop, &s->storage_wake, on_stored) == 0);
    s->storage_wake.data = s;
    s->has_storage_handle = true;
    if (!s->settings.data_dir) return ST_OK;
    const struct store_options options = {.dir = s->settings.data_dir,
                                          .bytes_max = s->settings.data_max,
                                          .recovers = s->settings.jobs_recover,
                                          .notify = notify,
                                          .ctx = s};
    TRY(store_open(&options, &s->store, err));
    report_opened(s);
    return ST_OK;
}

void storage_close(struct server *s) {
    struct store *store = s->store;
    if (store) store_close(store); /* calls `done` of what was left, which may look at s->store */
    s->store = NULL;
    if (s->has_storage_handle) uv_close((uv_handle_t *)&s->storage_wake, NULL);
    s->has_storage_handle = false;
}

void storage_push(struct server *s, struct store_op *op) {
    CHECK(s->store);
    store_push(s->store, op);
}

bool storage_retry(struct server *s, struct store_op *op, struct storage_retry *t) {
    if (!store_may_recover(op->status) || s->is_ending) return false;
    *t = (struct storage_retry){.op = op, .at_us = clock_now(&clock_real) + RETRY_US};
    list_push_last(&s->storage_retries, &t->in_retries);
    return true;
}

void storage_push_retries(struct server *s) {
    const int64_t now_us = clock_now(&clock_real);
    for (struct list_link *l = s->storage_retries.first, *next; l; l = next) {
        struct storage_retry *t = LIST_ITEM(l, struct storage_retry, in_retries);
        next = l->next;
        if (t->at_us > now_us && !s->is_ending) return;
        list_remove(&s->storage_retries, l);
        storage_push(s, t->op);
    }
}

bool storage_is_idle(const struct server *s) { return !s->store || store_pending(s->store) == 0; }

bool store_may_recover(enum status st) {
    return st == ST_FULL || st == ST_IO || st == ST_NOMEM || st == ST_UNAVAILABLE;
}

bool storage_require(struct http_request *req) {
    if (req->server->store) return true;
    struct api_error e = {0};
    api_refuse(&e, 400, NULL, "data_dir_required",
               "this server was started without --data-dir, so it stores no files, batches, "
               "answers or conversations; start it with --data-dir DIR");
    respond_error(req, &e);
    return false;
}

void storage_refuse(enum status st, const struct err *err, const char *what, struct api_error *e) {
    switch (st) {
    case ST_MISSING:
        api_refuse(e, 404, NULL, "not_found", "no such %s", what);
        return;
    case ST_BAD:
        api_refuse(e, 409, NULL, NULL, "%s", err->text);
        return;
    case ST_NOMEM:
        api_refuse(e, 503, NULL, "out_of_memory", "the server has no memory for this request");
        return;
    default:
        /* The log has the details; they name folders of the server. */
        api_refuse(e, 507, NULL, "insufficient_storage",
                   "the %s cannot be stored: %s; other requests are served as before", what,
                   st == ST_FULL ? "the server's disk or its --data-max is full"
                                 : "the server's store cannot be written at the moment");
        return;
    }
}
