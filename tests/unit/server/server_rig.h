/* unit/server/server_rig.h - the whole server on a loop that the test turns, with a client, a clock
 * that can be stopped, an engine that can be stepped by hand, and a record of what is logged.
 *
 * The server is the one that `jitney serve` runs, from its settings to its sockets. By default its
 * engine has no thread: nothing is computed before rig_step, so a request stays queued until then.
 *
 * A test that includes this names the wrapped functions in its first comment:
 * (wrap) clock_now engine_start log_line tracer_add uv_now uv_timer_start
 */
#ifndef UNIT_SERVER_SERVER_RIG_H
#define UNIT_SERVER_SERVER_RIG_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>
#include <uv.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "report/log.h"
#include "report/tracer.h"
#include "server/accounts.h"
#include "server/generation_int.h"
#include "server/generations.h"
#include "server/registry.h"
#include "server/server_int.h"
#include "server/work_queue.h"

#define RIG_MODELS TEST_SOURCE_DIR "/golden/models/"

enum { RIG_LINES = 64, RIG_LINE_BYTES = 2048, RIG_TIMERS = 64, RIG_WAIT_S = 60 };
enum { RIG_LOOK_MS = 2 }; /* of server/engine_ask.c */

/* ---- the clock ---- */

static atomic_llong rig_stopped_us; /* not 0: the time is this */
static atomic_llong rig_ahead_us;   /* else: ahead of the machine's */

int64_t __real_clock_now(const struct clock *clock);
int64_t __wrap_clock_now(const struct clock *clock);
int64_t __wrap_clock_now(const struct clock *clock) {
    if (clock != &clock_real) return __real_clock_now(clock);
    const int64_t stopped_us = atomic_load(&rig_stopped_us);
    return stopped_us ? stopped_us : __real_clock_now(clock) + atomic_load(&rig_ahead_us);
}

static inline void rig_stop_clock(void) { atomic_store(&rig_stopped_us, clock_now(&clock_real)); }
/* At the beginning of a second, so that limits of a minute do not divide a test. */
static inline void rig_stop_clock_at_second(void) {
    const int64_t now_us = clock_now(&clock_real);
    atomic_store(&rig_stopped_us, now_us + 1000000 - now_us % 1000000);
}
static inline void rig_pass_us(int64_t us) {
    if (atomic_load(&rig_stopped_us))
        atomic_fetch_add(&rig_stopped_us, us);
    else
        atomic_fetch_add(&rig_ahead_us, us);
}

/* The loop's clock, for those that read it; its timers are not earlier. */
static uint64_t rig_loop_ahead_ms;

uint64_t __real_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop) { return __real_uv_now(loop) + rig_loop_ahead_ms; }

/* ---- the engine ---- */

static bool rig_has_thread; /* set before rig_open; rig_close resets it */
static bool rig_is_held;    /* ask() does not step the engine */

enum status __real_engine_start(struct engine *e, struct err *err);
enum status __wrap_engine_start(struct engine *e, struct err *err);
enum status __wrap_engine_start(struct engine *e, struct err *err) {
    return rig_has_thread ? __real_engine_start(e, err) : ST_OK;
}

/* ---- log, traces and timers ---- */

struct rig_line {
    enum log_level level;
    const char *event;
    char text[RIG_LINE_BYTES]; /* " status=200 ms=1.5" */
};
static struct rig_line rig_lines[RIG_LINES]; /* a ring */
static uint32_t rig_line_count;

void __wrap_log_line(struct log *log, enum log_level level, const char *event,
                     const struct log_field *fields, uint32_t count);
void __wrap_log_line(struct log *log, enum log_level level, const char *event,
                     const struct log_field *fields, uint32_t count) {
    (void)log;
    struct rig_line *line = &rig_lines[rig_line_count++ % RIG_LINES];
    size_t used = 0;
    *line = (struct rig_line){.level = level, .event = event};
    for (uint32_t i = 0; i < count && used < RIG_LINE_BYTES; i++) {
        const struct log_field *f = &fields[i];
        char *at = line->text + used;
        const size_t left = RIG_LINE_BYTES - used;
        int len = 0;
        if (f->kind == LOG_TEXT)
            len = snprintf(at, left, " %s=%.*s", f->name, (int)f->text.len, f->text.ptr);
        else if (f->kind == LOG_INT)
            len = snprintf(at, left, " %s=%lld", f->name, (long long)f->integer);
        else
            len = snprintf(at, left, " %s=%.3f", f->name, f->real);
        used += (size_t)len;
    }
}

/* The last line of an event, or NULL. */
static inline const struct rig_line *rig_last_line(const char *event) {
    for (uint32_t n = 1; n <= rig_line_count && n <= RIG_LINES; n++) {
        const struct rig_line *line = &rig_lines[(rig_line_count - n) % RIG_LINES];
        if (strcmp(line->event, event) == 0) return line;
    }
    return NULL;
}

/* Whether the last line of an event has this field: "status=200". */
static inline void rig_assert_logged(const char *event, const char *field) {
    const struct rig_line *line = rig_last_line(event);
    assert_non_null(line);
    const size_t len = strlen(field);
    for (const char *at = line->text; (at = strstr(at, field)); at++)
        if (at[-1] == ' ' && (at[len] == ' ' || at[len] == 0)) return;
    fail_msg("event=%s has no %s:%s", event, field, line->text);
}

static struct trace_request rig_trace; /* the last; its texts are not valid any more */
static char rig_trace_finish[32], rig_trace_model[64], rig_trace_request[64];
static uint32_t rig_trace_count;

void __wrap_tracer_add(struct tracer *t, const struct trace_request *r);
void __wrap_tracer_add(struct tracer *t, const struct trace_request *r) {
    (void)t;
    rig_trace = *r;
    snprintf(rig_trace_finish, sizeof(rig_trace_finish), "%s", r->finish);
    snprintf(rig_trace_model, sizeof(rig_trace_model), "%s", r->model);
    snprintf(rig_trace_request, sizeof(rig_trace_request), "%s", r->request_id);
    rig_trace_count++;
}

struct rig_timer {
    uv_timer_t *timer;
    uv_timer_cb call;
    void *data; /* as it was then: the timer may be freed meanwhile */
    uint64_t ms;
};
static struct rig_timer rig_timers[RIG_TIMERS]; /* a ring of those that were started */
static uint32_t rig_timer_count;

int __real_uv_timer_start(uv_timer_t *t, uv_timer_cb call, uint64_t ms, uint64_t repeat_ms);
int __wrap_uv_timer_start(uv_timer_t *t, uv_timer_cb call, uint64_t ms, uint64_t repeat_ms);
int __wrap_uv_timer_start(uv_timer_t *t, uv_timer_cb call, uint64_t ms, uint64_t repeat_ms) {
    rig_timers[rig_timer_count++ % RIG_TIMERS] =
        (struct rig_timer){.timer = t, .call = call, .data = t->data, .ms = ms};
    return __real_uv_timer_start(t, call, ms, repeat_ms);
}

/* How many of the last timers were started for so long. */
static inline uint32_t rig_timers_of(uint64_t ms) {
    uint32_t count = 0;
    for (uint32_t n = 0; n < rig_timer_count && n < RIG_TIMERS; n++)
        count += rig_timers[n].ms == ms;
    return count;
}

static inline void rig_forget_timers(void) { rig_timer_count = 0; }

/* ---- the server ---- */

struct server_rig {
    struct server *server;
    struct served_model *model; /* the first */
    char folder[64], socket[80], keys[80];
};

static inline void rig_write_keys(const struct server_rig *g, const char *text) {
    FILE *f = fopen(g->keys, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Other threads may have to run before there is more to do. */
static inline void rig_turn(struct server_rig *g) {
    if (uv_run(&g->server->loop, UV_RUN_NOWAIT)) sched_yield();
}

static inline bool rig_is_late(int64_t began_us) {
    return __real_clock_now(&clock_real) - began_us > RIG_WAIT_S * 1000000ll;
}

/* Turn the loop until `done` says so. */
static inline void rig_until(struct server_rig *g, bool (*done)(struct server_rig *g)) {
    const int64_t began_us = __real_clock_now(&clock_real);
    while (!done(g)) {
        assert_false(rig_is_late(began_us));
        rig_turn(g);
    }
}

static inline bool rig_is_loaded(struct server_rig *g) { return g->server->is_loaded; }
/* No text is being prepared: the engine has every request. */
static inline bool rig_is_prepared(struct server_rig *g) {
    const struct work_queue_stats stats = work_queue_stats(g->server->work);
    return stats.waiting + stats.running == 0;
}
static inline bool rig_is_quiet(struct server_rig *g) {
    return generations_stats(g->server->generations).live == 0 && g->server->tasks == 0;
}

/* The engines take steps until they have nothing to do; each at most so many that did work. */
static inline uint32_t rig_step(struct server_rig *g, uint32_t steps_max) {
    uint32_t steps = 0;
    for (uint32_t i = 0; i < registry_count(g->server->registry); i++) {
        struct engine *engine = registry_at(g->server->registry, i)->engine;
        steps = 0;
        for (bool did_work = engine; did_work && steps < steps_max; steps += did_work)
            assert_int_equal(engine_step(engine, &did_work), ST_OK);
    }
    rig_turn(g);
    return steps;
}

/* The one that was created last. */
static inline struct generation *rig_newest(struct server_rig *g) {
    struct list_link *first = g->server->generations->items.first;
    assert_non_null(first);
    return LIST_ITEM(first, struct generation, in_all);
}

/* `flags`: names and values in turn, NULL at the end. `keys`: the text of a key file, or NULL. */
static inline void rig_open(struct server_rig *g, const char *keys, const char *const *flags) {
    struct settings s;
    struct err err = {0};
    *g = (struct server_rig){.server = NULL};
    snprintf(g->folder, sizeof(g->folder), "/tmp/jitney-rig-XXXXXX");
    assert_non_null(mkdtemp(g->folder));
    snprintf(g->socket, sizeof(g->socket), "%s/s", g->folder);
    snprintf(g->keys, sizeof(g->keys), "%s/keys", g->folder);
    assert_int_equal(settings_init(&s), ST_OK);
    const char *const usual[] = {"uds",           g->socket, "watchdog-s", "3600",
                                 "log-level",     "debug",   "drain-s",    "3600",
                                 "weights-cache", "off",     NULL};
    for (const char *const *f = usual; *f; f += 2)
        assert_int_equal(settings_set(&s, str_of(f[0]), str_of(f[1]), FROM_FLAG, &err), ST_OK);
    if (keys) {
        rig_write_keys(g, keys);
        assert_int_equal(settings_set(&s, STR("api-key-file"), str_of(g->keys), FROM_FLAG, &err),
                         ST_OK);
    }
    bool has_model = false;
    for (const char *const *f = flags; f && *f; f += 2) {
        has_model |= strcmp(f[0], "model") == 0;
        if (settings_set(&s, str_of(f[0]), str_of(f[1]), FROM_FLAG, &err) != ST_OK)
            fail_msg("%s", err.text);
    }
    const char *const sim[] = {"model", RIG_MODELS "llama", "runner", "sim:0", NULL};
    for (const char *const *f = sim; !has_model && *f; f += 2)
        assert_int_equal(settings_set(&s, str_of(f[0]), str_of(f[1]), FROM_FLAG, &err), ST_OK);
    rig_line_count = rig_timer_count = rig_trace_count = 0;
    if (server_open(&s, &g->server, &err) != ST_OK) fail_msg("%s", err.text);
    settings_deinit(&s);
    rig_until(g, rig_is_loaded);
    g->model = registry_at(g->server->registry, 0);
    assert_int_equal(g->model->state, LOAD_READY);
}

static inline bool rig_is_closed(struct server_rig *g) {
    return g->server->is_closed && !uv_loop_alive(&g->server->loop);
}

/* SIGTERM; the engine finishes what is under way. */
static inline void rig_close(struct server_rig *g) {
    struct err err = {0};
    atomic_store(&rig_stopped_us, 0);
    const int64_t began_us = __real_clock_now(&clock_real);
    if (!g->server->is_draining) raise(SIGTERM);
    while (!rig_is_closed(g)) {
        assert_false(rig_is_late(began_us));
        if (!g->server->is_closed && !rig_has_thread) rig_step(g, 1000);
        uv_run(&g->server->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(server_close(g->server, &err), ST_OK);
    unlink(g->keys);
    assert_int_equal(rmdir(g->folder), 0);
    atomic_store(&rig_ahead_us, 0);
    rig_has_thread = rig_is_held = false;
    rig_loop_ahead_ms = 0;
}

/* ---- libuv's pool ---- */

enum { RIG_POOL_MAX = 64 };
static uv_work_t rig_blocks[RIG_POOL_MAX];
static uv_sem_t rig_gate;

static inline void rig_wait_at_gate(uv_work_t *work) {
    (void)work;
    uv_sem_wait(&rig_gate);
}
static inline void rig_after_gate(uv_work_t *work, int status) {
    (void)work;
    (void)status;
}

/* Nothing in libuv's pool begins until rig_open_pool. */
static inline void rig_block_pool(struct server_rig *g) {
    assert_int_equal(uv_sem_init(&rig_gate, 0), 0);
    for (uint32_t i = 0; i < RIG_POOL_MAX; i++)
        assert_int_equal(
            uv_queue_work(&g->server->loop, &rig_blocks[i], rig_wait_at_gate, rig_after_gate), 0);
}

static inline void rig_open_pool(void) {
    for (uint32_t i = 0; i < RIG_POOL_MAX; i++) uv_sem_post(&rig_gate);
}

/* ---- a client ---- */

/* One request, on a connection that the server closes after its response. */
struct client {
    int fd;
    bool is_closed; /* by the server */
    struct buf in;
};

static inline void client_open(struct server_rig *g, struct client *c) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof(to.sun_path), "%s", g->socket);
    *c = (struct client){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_true(c->fd >= 0);
    buf_init(&c->in, 1 << 28);
    assert_int_equal(connect(c->fd, (struct sockaddr *)&to, sizeof(to)), 0);
    assert_true(fcntl(c->fd, F_SETFL, O_NONBLOCK) == 0);
}

static inline void client_close(struct client *c) {
    close(c->fd);
    buf_deinit(&c->in);
}

/* Reads what is there. */
static inline void client_read(struct client *c) {
    char bytes[65536];
    for (ssize_t len; (len = read(c->fd, bytes, sizeof(bytes))) != -1;) {
        if (len == 0) {
            c->is_closed = true;
            return;
        }
        buf_put_str(&c->in, (struct str){bytes, (size_t)len});
    }
    if (errno == ECONNRESET) c->is_closed = true;
}

static inline void client_write(struct server_rig *g, struct client *c, struct str bytes) {
    const int64_t began_us = __real_clock_now(&clock_real);
    while (bytes.len > 0) {
        ssize_t len = send(c->fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
        if (len > 0) bytes = str_skip(bytes, (size_t)len);
        if (len < 0 && errno == EPIPE) return; /* it was answered and closed */
        assert_false(rig_is_late(began_us));
        if (bytes.len > 0) rig_turn(g);
    }
}

/* `headers`: lines that end with \r\n, or NULL. `body` NULL: none. */
static inline void client_send(struct server_rig *g, struct client *c, const char *line,
                               const char *headers, const char *body) {
    struct buf text;
    client_open(g, c);
    buf_init(&text, 1 << 26);
    buf_printf(&text, "%s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n", line);
    buf_put_text(&text, headers ? headers : "");
    if (body)
        buf_printf(&text, "content-type: application/json\r\ncontent-length: %zu\r\n",
                   strlen(body));
    buf_put_text(&text, "\r\n");
    buf_put_text(&text, body ? body : "");
    client_write(g, c, buf_str(&text));
    buf_deinit(&text);
}

/* A request for text that the engine gets and does not begin with: it is queued. */
static inline void client_queue(struct server_rig *g, struct client *c, const char *line,
                                const char *headers, const char *body) {
    const uint32_t before = generations_stats(g->server->generations).live;
    const int64_t began_us = __real_clock_now(&clock_real);
    client_send(g, c, line, headers, body);
    while (generations_stats(g->server->generations).live == before) {
        assert_false(rig_is_late(began_us));
        rig_turn(g);
        client_read(c);
        if (c->in.len > 0) fail_msg("%s", buf_text(&c->in));
    }
    rig_until(g, rig_is_prepared);
}

/* ---- a reply ---- */

struct reply {
    uint32_t status;
    struct buf head, body; /* the body without its chunks' lengths */
    struct json *json;     /* of the body; NULL: it is none */
};

static inline void reply_unchunk(const char *at, struct buf *out) {
    for (;;) {
        char *end;
        const unsigned long len = strtoul(at, &end, 16);
        assert_true(end[0] == '\r' && end[1] == '\n');
        if (len == 0) return;
        buf_put_str(out, (struct str){end + 2, len});
        at = end + 2 + len + 2;
    }
}

/* Frees the client. */
static inline void reply_take(struct server_rig *g, struct client *c, struct reply *r) {
    const int64_t began_us = __real_clock_now(&clock_real);
    while (client_read(c), !c->is_closed) {
        assert_false(rig_is_late(began_us));
        rig_turn(g);
    }
    const char *text = buf_text(&c->in), *end = strstr(text, "\r\n\r\n");
    assert_non_null(end);
    *r = (struct reply){.status = 0};
    buf_init(&r->head, 1 << 20);
    buf_init(&r->body, 1 << 28);
    assert_int_equal(sscanf(text, "HTTP/1.1 %u", &r->status), 1);
    buf_put_str(&r->head, (struct str){text, (size_t)(end + 2 - text)});
    if (strstr(buf_text(&r->head), "transfer-encoding: chunked"))
        reply_unchunk(end + 4, &r->body);
    else
        buf_put_text(&r->body, end + 4);
    struct err ignored = {0};
    if (json_parse(buf_str(&r->body), &json_limits_model_file, &r->json, &ignored) != ST_OK)
        r->json = NULL;
    client_close(c);
}

static inline void reply_free(struct reply *r) {
    json_destroy(r->json);
    buf_deinit(&r->head);
    buf_deinit(&r->body);
}

/* Send, and wait for the reply; the engine works meanwhile, unless it is held. */
static inline void ask(struct server_rig *g, struct reply *r, const char *line, const char *headers,
                       const char *body) {
    struct client c;
    const int64_t began_us = __real_clock_now(&clock_real);
    client_send(g, &c, line, headers, body);
    while (client_read(&c), !c.is_closed) {
        assert_false(rig_is_late(began_us));
        if (!rig_has_thread && !rig_is_held) rig_step(g, 1);
        rig_turn(g);
    }
    reply_take(g, &c, r);
}

/* After rig_forget_timers: the server has begun to look whether the engine has answered. */
static inline void rig_until_asked(struct server_rig *g) {
    const int64_t began_us = __real_clock_now(&clock_real);
    while (rig_timers_of(RIG_LOOK_MS) == 0) {
        assert_false(rig_is_late(began_us));
        rig_turn(g);
    }
}

/* The value of a header; "" if it is absent. */
static inline const char *reply_header(const struct reply *r, const char *name, char out[256]) {
    char start[80];
    snprintf(start, sizeof(start), "\r\n%s: ", name);
    const char *at = strstr(buf_text((struct buf *)&r->head), start);
    out[0] = 0;
    if (!at) return out;
    at += strlen(start);
    snprintf(out, 256, "%.*s", (int)strcspn(at, "\r"), at);
    return out;
}

static inline void assert_header(const struct reply *r, const char *name, const char *value) {
    char text[256];
    assert_string_equal(reply_header(r, name, text), value);
}

/* "choices.0.text" */
static inline const struct json *reply_path(const struct json *v, const char *path) {
    char name[64];
    while (v && *path) {
        const size_t len = strcspn(path, ".");
        snprintf(name, sizeof(name), "%.*s", (int)len, path);
        v = json_kind(v) == JS_LIST ? json_at(v, strtoul(name, NULL, 10)) : json_get(v, name);
        path += len + (path[len] == '.');
    }
    return v;
}

static inline void assert_json_int(const struct reply *r, const char *path, int64_t value) {
    const struct json *v = reply_path(r->json, path);
    if (json_kind(v) != JS_INT) fail_msg("no %s: %s", path, buf_text((struct buf *)&r->body));
    if (json_int(v, -1) != value)
        fail_msg("%s is %lld, not %lld", path, (long long)json_int(v, -1), (long long)value);
}

static inline void assert_json_text(const struct reply *r, const char *path, const char *value) {
    const struct json *v = reply_path(r->json, path);
    if (json_kind(v) != JS_TEXT) fail_msg("no %s: %s", path, buf_text((struct buf *)&r->body));
    if (!str_is(json_str(v), value))
        fail_msg("%s is \"%.*s\", not \"%s\"", path, STR_ARG(json_str(v)), value);
}

/* The status and code of an error, and words of its message. */
static inline void assert_refused(const struct reply *r, uint32_t status, const char *code,
                                  const char *words) {
    if (r->status != status)
        fail_msg("%u, not %u: %s", r->status, status, buf_text((struct buf *)&r->body));
    if (code) assert_json_text(r, "error.code", code);
    const struct str message = json_str(reply_path(r->json, "error.message"));
    char text[2048];
    snprintf(text, sizeof(text), "%.*s", STR_ARG(message));
    if (words && !strstr(text, words)) fail_msg("no \"%s\": %s", words, text);
}

/* ask, for one that is only refused */
static inline void expect(struct server_rig *g, const char *line, const char *headers,
                          const char *body, uint32_t status, const char *code, const char *words) {
    struct reply r;
    ask(g, &r, line, headers, body);
    if (status < 400)
        assert_int_equal(r.status, status);
    else
        assert_refused(&r, status, code, words);
    reply_free(&r);
}

/* ---- metrics ---- */

/* The value of a row as GET /metrics prints it, its labels included; -1: there is none. A row
 * without a label may be followed by {model_name="..."}. */
static inline double metric(struct server_rig *g, const char *headers, const char *name) {
    struct reply r;
    char start[256];
    double value = -1;
    ask(g, &r, "GET /metrics", headers, NULL);
    assert_int_equal(r.status, 200);
    snprintf(start, sizeof(start), "\n%s", name);
    const size_t len = strlen(start);
    for (const char *at = buf_text(&r.body); value < 0 && (at = strstr(at, start)); at++) {
        const char *end = at + len;
        if (*end == '{' && !strchr(name, '{')) end = strchr(end, '}') + 1;
        if (*end == ' ') value = strtod(end, NULL);
    }
    reply_free(&r);
    return value;
}

#define assert_metric(g, headers, name, value) assert_metric_at(g, headers, name, value, __LINE__)
static inline void assert_metric_at(struct server_rig *g, const char *headers, const char *name,
                                    double value, int line) {
    const double found = metric(g, headers, name);
    if (found - value > 1e-9 || value - found > 1e-9)
        fail_msg("line %d: %s is %.9g, not %.9g", line, name, found, value);
}

#endif
