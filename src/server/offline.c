/* server/offline.c - see server/offline.h.
 *
 * A seat holds a line while it is under way or waits to be started again.
 */
#include "server/offline.h"

#include <signal.h>
#include <uv.h>

#include "base/check.h"
#include "base/mem.h"
#include "server/lifecycle.h"
#include "server/local_request.h"
#include "server/registry.h"
#include "server/routes.h"
#include "server/server_int.h"

enum {
    TICK_MS = 100,
    SEATS_MIN = 8,
    LONE_REFUSALS_MAX = 5, /* of a line that is refused although no other is under way */
};
static const size_t LINE_BYTES_MAX = (size_t)1 << 30;

enum seat_state { SEAT_FREE, SEAT_REFUSED, SEAT_RUNNING };

struct seat {
    struct offline *offline;
    struct offline_line line;
    struct http_request *request; /* RUNNING */
    enum seat_state state;
    uint32_t lone_refusals;
};

struct offline {
    const struct offline_hooks *hooks;
    struct server *server;
    struct seat *seats;
    uint32_t seat_count, running_count, refused_count;
    uv_timer_t timer;
    bool has_timer, has_all; /* no next line */
    bool is_ready, is_over;
};

/* ---- the end ---- */

static void drop_lines(struct offline *o) {
    for (uint32_t i = 0; i < o->seat_count; i++) {
        if (o->seats[i].state != SEAT_RUNNING) continue;
        o->seats[i].state = SEAT_FREE;
        local_request_cancel(o->seats[i].request);
    }
}

static void end(struct offline *o, enum status st, const struct err *err) {
    if (o->is_over) return;
    o->is_over = true;
    if (st != ST_OK) {
        o->server->end_status = st;
        o->server->end_err = *err;
    }
    drop_lines(o);
    if (o->has_timer) uv_close((uv_handle_t *)&o->timer, NULL);
    lifecycle_drain(o->server);
}

void offline_interrupt(struct offline *o) {
    end(o, ST_CANCELLED, &(struct err){.text = "interrupted"});
}

/* ---- lines ---- */

static void on_done(void *ctx, const struct local_response *r);

static enum status start_line(struct seat *seat, struct err *err) {
    struct offline *o = seat->offline;
    struct str arg;
    uint32_t allowed;
    const struct route *route = routes_find(HTTP_POST, str_of(seat->line.url), &arg, &allowed);
    CHECK(route);
    const struct local_request spec = {.body = buf_str(&seat->line.body),
                                       .id = seat->line.id,
                                       .seed = seat->line.seed,
                                       .created_s = seat->line.created_s,
                                       .done = on_done,
                                       .ctx = seat};
    seat->state = SEAT_RUNNING;
    o->running_count++;
    seat->request = local_request_start(o->server, route, NULL, &spec);
    if (seat->request) return ST_OK;
    seat->state = SEAT_FREE;
    o->running_count--;
    return err_set(err, ST_NOMEM, "out of memory for a line");
}

/* One: another line that has ended has made room for about one. */
static enum status restart_refused(struct offline *o, struct err *err) {
    uint32_t i = 0;
    if (o->refused_count == 0) return ST_OK;
    while (o->seats[i].state != SEAT_REFUSED) i++;
    o->refused_count--;
    return start_line(&o->seats[i], err);
}

static enum status take_line(struct seat *seat, struct err *err) {
    struct offline *o = seat->offline;
    buf_clear(&seat->line.body);
    buf_clear(&seat->line.tag);
    seat->lone_refusals = 0;
    enum status st = o->hooks->next(o->hooks->ctx, &seat->line, err);
    o->has_all = st == ST_MISSING;
    if (st == ST_MISSING) return ST_OK;
    if (st == ST_OK) st = buf_status(&seat->line.body);
    return st == ST_OK ? start_line(seat, err) : st;
}

static enum status fill_seats(struct offline *o, struct err *err) {
    for (uint32_t i = 0; !o->has_all && o->refused_count == 0 && i < o->seat_count; i++)
        if (o->seats[i].state == SEAT_FREE) TRY(take_line(&o->seats[i], err));
    return ST_OK;
}

static void step(struct offline *o, enum status st, struct err *err) {
    if (st == ST_OK) st = fill_seats(o, err);
    bool is_done = o->has_all && o->running_count == 0 && o->refused_count == 0;
    if (st != ST_OK || is_done) end(o, st, err);
}

/* Room comes when another line ends; without another, after some tries there is none. */
static bool is_refusal(const struct seat *seat, const struct local_response *r) {
    return (r->status == 429 || r->status == 503) && seat->lone_refusals < LONE_REFUSALS_MAX;
}

static void on_done(void *ctx, const struct local_response *r) {
    struct seat *seat = ctx;
    struct offline *o = seat->offline;
    struct err err = {0};
    o->running_count--;
    seat->state = SEAT_FREE;
    if (o->is_over || o->server->failure) return; /* the line was not answered: the engine failed */
    if (is_refusal(seat, r)) {
        seat->state = SEAT_REFUSED;
        seat->lone_refusals += o->running_count == 0;
        o->refused_count++;
        return;
    }
    const struct offline_result result = {.number = seat->line.number,
                                          .tag = buf_str(&seat->line.tag),
                                          .status = r->status,
                                          .body = r->body,
                                          .request_id = r->request_id,
                                          .prompt_tokens = r->prompt_tokens,
                                          .cached_tokens = r->cached_tokens,
                                          .answer_tokens = r->answer_tokens};
    enum status st = o->hooks->done(o->hooks->ctx, &result, &err);
    if (st == ST_OK) st = restart_refused(o, &err);
    step(o, st, &err);
}

/* A model whose file was cut refuses every line from then on. */
static enum status check_model(const struct offline *o, struct err *err) {
    const struct served_model *m = registry_at(o->server->registry, 0);
    return m->state == LOAD_FAILED ? err_set(err, ST_IO, "%s", m->failure.text) : ST_OK;
}

static void report_loading(const struct offline *o) {
    struct load_progress p = registry_progress(o->server->registry);
    if (p.model && o->hooks->loading) o->hooks->loading(o->hooks->ctx, p.stage, p.share);
}

static void on_tick(uv_timer_t *timer) {
    struct offline *o = timer->data;
    struct err err = {0};
    if (!o->is_ready) {
        report_loading(o);
        return;
    }
    if (o->server->failure) return; /* lifecycle.c ends the process */
    enum status st = check_model(o, &err);
    if (st == ST_OK) st = o->hooks->tick(o->hooks->ctx, &err);
    if (st == ST_OK) st = restart_refused(o, &err);
    step(o, st, &err);
}

/* ---- start ---- */

static enum status make_seats(struct offline *o, struct err *err) {
    uint32_t count = 2 * registry_at(o->server->registry, 0)->knobs.max_seqs;
    if (count < SEATS_MIN) count = SEATS_MIN;
    o->seats = mem_zalloc_array(count, sizeof(o->seats[0]));
    if (!o->seats) return err_set(err, ST_NOMEM, "out of memory for the lines under way");
    o->seat_count = count;
    for (uint32_t i = 0; i < count; i++) {
        o->seats[i].offline = o;
        buf_init(&o->seats[i].line.body, LINE_BYTES_MAX);
        buf_init(&o->seats[i].line.tag, LINE_BYTES_MAX);
    }
    return ST_OK;
}

void offline_begin(struct offline *o) {
    struct err err = {0};
    const struct served_model *m = registry_at(o->server->registry, 0);
    o->is_ready = true;
    enum status st = o->hooks->is_ready(o->hooks->ctx, m->name, m->fingerprint, &err);
    if (st == ST_OK) st = make_seats(o, &err);
    step(o, st, &err);
}

static void open_timer(struct offline *o) {
    CHECK(uv_timer_init(&o->server->loop, &o->timer) == 0);
    o->timer.data = o;
    o->has_timer = true;
    CHECK(uv_timer_start(&o->timer, on_tick, TICK_MS, TICK_MS) == 0);
}

enum status offline_run(const struct settings *settings, const struct offline_hooks *hooks,
                        struct err *err) {
    struct offline o = {.hooks = hooks};
    TRY(server_open_offline(settings, &o, &o.server, err));
    open_timer(&o);
    uv_run(&o.server->loop, UV_RUN_DEFAULT);
    enum status st = server_close(o.server, err);
    signal(SIGPIPE, SIG_IGN); /* the loop has set them back to their defaults */
    signal(SIGXFSZ, SIG_IGN);
    for (uint32_t i = 0; i < o.seat_count; i++) {
        buf_deinit(&o.seats[i].line.body);
        buf_deinit(&o.seats[i].line.tag);
    }
    mem_free(o.seats);
    return st;
}
