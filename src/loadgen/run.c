/* loadgen/run.c - see loadgen/run.h. */
#include "loadgen/run.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"
#include "loadgen/conn.h"

enum {
    EVENTS_A_WAIT = 256,
    TIMEOUT_CHECK_MS = 500, /* how often requests are checked for --timeout-s */
};
static const double US_PER_S = 1e6;
static const int64_t US_PER_MS = 1000;

/* The state of a run. */
struct loop {
    const struct loadgen_run *run;
    struct measurement *out;
    struct conn *conns;
    struct conn **idle; /* a stack of `idle_count` */
    uint32_t idle_count, failures_in_row;
    uint64_t sent;
    int64_t due_us;     /* when the next request arrives */
    int64_t stop_us;    /* no request begins after; INT64_MAX: no limit */
    int64_t check_us;   /* when to check for --timeout-s next */
    struct buf body;    /* of the request that is being written */
    enum status status; /* why the run failed */
    struct err *err;
};

static int64_t now_us(const struct loop *l) { return clock_now(l->run->clock); }

static double cpu_s(void) {
    struct rusage u;
    CHECK(getrusage(RUSAGE_SELF, &u) == 0);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / US_PER_S;
}

/* ---- requests ---- */

static void note_failure(struct loop *l, const struct conn *c, const char *why) {
    measurement_add_failure(l->out, &c->result, why);
    if (++l->failures_in_row < LOADGEN_FAILURES_MAX || l->status != ST_OK) return;
    l->status = err_set(l->err, ST_UNAVAILABLE, "%d requests failed in a row, the last with: %s",
                        LOADGEN_FAILURES_MAX, why);
}

static void finish_request(struct loop *l, struct conn *c) {
    l->idle[l->idle_count++] = c;
    l->out->ended_us = now_us(l);
    if (c->status == ST_NOMEM)
        l->status = err_set(l->err, ST_NOMEM, "out of memory");
    else if (c->status != ST_OK)
        note_failure(l, c, c->why.text);
    else if (c->result.first_us == 0)
        note_failure(l, c, "the response has no text");
    else {
        measurement_add(l->out, &c->result);
        l->failures_in_row = 0;
    }
}

static enum status write_request(struct loop *l, struct conn *c, uint64_t i) {
    const struct loadgen_run *run = l->run;
    buf_clear(&l->body);
    buf_clear(&c->request);
    loadgen_put_body(run->requests, i, &l->body);
    target_put_request(run->target, loadgen_path(run->requests), run->key, &l->body, &c->request);
    enum status st = buf_status(&l->body);
    if (st == ST_OK) st = buf_status(&c->request);
    if (st == ST_NOMEM) return err_set(l->err, st, "out of memory");
    return st == ST_OK
               ? ST_OK
               : err_set(l->err, st, "the request is longer than %d bytes", CONN_REQUEST_BYTES);
}

static bool has_more(const struct loop *l, int64_t now) {
    return l->status == ST_OK && l->sent < l->run->request_max && now < l->stop_us;
}

/* Give each idle client the next request that is due. */
static void send_due(struct loop *l) {
    const struct loadgen_run *run = l->run;
    for (int64_t now; (now = now_us(l)), l->idle_count > 0 && has_more(l, now);) {
        if (run->rate > 0.0 && l->due_us > now) return;
        struct conn *c = l->idle[l->idle_count - 1];
        uint64_t i = run->first + l->sent++;
        l->status = write_request(l, c, i);
        if (l->status != ST_OK) return;
        l->idle_count--;
        c->gaps = &l->out->itl;
        bool has_ended =
            conn_begin(c, run->requests->streams, run->rate > 0.0 ? l->due_us : now_us(l));
        if (run->rate > 0.0) l->due_us += loadgen_gap_us(run->requests, i + 1, run->rate);
        if (has_ended) finish_request(l, c);
    }
}

static void abort_late(struct loop *l) {
    int64_t now = now_us(l);
    if (now < l->check_us) return;
    l->check_us = now + TIMEOUT_CHECK_MS * US_PER_MS;
    int64_t oldest_us = now - (int64_t)(l->run->timeout_s * US_PER_S);
    for (uint32_t i = 0; i < l->run->clients; i++) {
        struct conn *c = &l->conns[i];
        if (c->phase == CONN_IDLE || c->result.begun_us > oldest_us) continue;
        conn_abort(c, "no complete response within --timeout-s");
        finish_request(l, c);
    }
}

static int wait_ms(const struct loop *l) {
    int64_t now = now_us(l);
    if (l->run->rate == 0.0 || l->idle_count == 0 || !has_more(l, now)) return TIMEOUT_CHECK_MS;
    int64_t ms = (l->due_us - now) / US_PER_MS;
    return ms < 0 ? 0 : ms < TIMEOUT_CHECK_MS ? (int)ms : TIMEOUT_CHECK_MS;
}

static enum status wait_once(struct loop *l, int epoll) {
    struct epoll_event events[EVENTS_A_WAIT];
    int count = epoll_wait(epoll, events, EVENTS_A_WAIT, wait_ms(l));
    if (count < 0 && errno != EINTR) return err_set(l->err, ST_IO, "epoll: %s", strerror(errno));
    for (int i = 0; i < count; i++) {
        struct conn *c = events[i].data.ptr;
        if (conn_on_ready(c)) finish_request(l, c);
    }
    abort_late(l);
    return ST_OK;
}

static enum status run_until_done(struct loop *l, int epoll) {
    for (;;) {
        send_due(l);
        bool is_idle = l->idle_count == l->run->clients;
        if (is_idle && !has_more(l, now_us(l))) return l->status;
        TRY(wait_once(l, epoll));
    }
}

/* ---- a run ---- */

static void begin_run(struct loop *l, int epoll) {
    const struct loadgen_run *run = l->run;
    l->idle_count = run->clients;
    for (uint32_t i = 0; i < run->clients; i++) {
        conn_init(&l->conns[i], run->target, run->clock, epoll);
        l->idle[i] = &l->conns[run->clients - 1 - i];
    }
    l->out->clients = run->clients;
    l->out->rate = run->rate;
    l->out->begun_us = l->out->ended_us = l->due_us = now_us(l);
    l->stop_us = run->seconds > 0.0 ? l->due_us + (int64_t)(run->seconds * US_PER_S) : INT64_MAX;
}

static enum status run_with(struct loop *l, int epoll) {
    double cpu_before_s = cpu_s();
    begin_run(l, epoll);
    enum status st = run_until_done(l, epoll);
    l->out->cpu_s = cpu_s() - cpu_before_s;
    for (uint32_t i = 0; i < l->run->clients; i++) conn_deinit(&l->conns[i]);
    return st;
}

enum status loadgen_run(const struct loadgen_run *run, struct measurement *out, struct err *err) {
    CHECK(run->clients > 0);
    CHECK(run->clients <= LOADGEN_CLIENTS_MAX);
    struct loop l = {.run = run, .out = out, .err = err};
    enum status st = ST_NOMEM;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0) return err_set(err, ST_IO, "epoll: %s", strerror(errno));
    l.conns = mem_zalloc_array(run->clients, sizeof(l.conns[0]));
    l.idle = mem_zalloc_array(run->clients, sizeof(struct conn *));
    buf_init(&l.body, CONN_REQUEST_BYTES);
    if (l.conns && l.idle)
        st = run_with(&l, epoll);
    else
        err_set(err, st, "out of memory");
    buf_deinit(&l.body);
    mem_free(l.idle);
    mem_free(l.conns);
    close(epoll);
    return st;
}

/* ---- one request by itself ---- */

/* c->request is filled. */
static enum status wait_for(struct conn *c, bool streams, const struct loadgen_run *run) {
    int64_t begun_us = clock_now(run->clock);
    int64_t end_us = begun_us + (int64_t)(run->timeout_s * US_PER_S);
    bool has_ended = conn_begin(c, streams, begun_us);
    while (!has_ended) {
        struct epoll_event event;
        int count = epoll_wait(c->epoll, &event, 1, TIMEOUT_CHECK_MS);
        if (count > 0) has_ended = conn_on_ready(c);
        if (has_ended || clock_now(run->clock) < end_us) continue;
        conn_abort(c, "no complete response within --timeout-s");
        has_ended = true;
    }
    return c->status;
}

/* Without a path: the probe. With one: GET, and run->requests is not used. */
static enum status send_alone(const struct loadgen_run *run, struct conn *c, const char *path,
                              uint32_t words) {
    struct buf body;
    buf_init(&body, CONN_REQUEST_BYTES);
    if (!path) loadgen_put_probe(run->requests, run->first, words, &body);
    target_put_request(run->target, path ? path : loadgen_path(run->requests), run->key,
                       path ? NULL : &body, &c->request);
    enum status st = buf_status(&body) == ST_OK ? buf_status(&c->request) : ST_NOMEM;
    if (st == ST_OK)
        st = wait_for(c, !path && run->requests->streams, run);
    else
        err_set(&c->why, st, "out of memory");
    buf_deinit(&body);
    return st;
}

static enum status send_one(const struct loadgen_run *run, const char *path, uint32_t words,
                            struct request_result *result, struct buf *out, struct err *err) {
    struct conn *c = mem_zalloc(sizeof(*c));
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    enum status st = ST_NOMEM;
    if (c && epoll >= 0) {
        conn_init(c, run->target, run->clock, epoll);
        st = send_alone(run, c, path, words);
        if (st != ST_OK)
            err_set(err, st, "%s://%s:%u: %s", run->target->is_tls ? "https" : "http",
                    run->target->host, run->target->port, c->why.text);
        if (result) *result = c->result;
        if (out && st == ST_OK) buf_put_str(out, buf_str(&c->body));
        conn_deinit(c);
    } else {
        err_set(err, st, "out of memory");
    }
    if (epoll >= 0) close(epoll);
    mem_free(c);
    return st;
}

enum status loadgen_send_probe(const struct loadgen_run *run, uint32_t words,
                               struct request_result *out, struct err *err) {
    return send_one(run, NULL, words, out, NULL, err);
}

enum status loadgen_get(const struct loadgen_run *run, const char *path, struct buf *out,
                        struct err *err) {
    return send_one(run, path, 0, NULL, out, err);
}
