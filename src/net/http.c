/* net/http.c - the server: limits, create, drain, close, destroy.
 *
 * Entry points: http_raise_fd_limit, http_connections_allowed, http_server_create,
 * http_set_limits, http_server_drain, http_server_close, http_server_destroy, http_stats,
 * server_close_handles.
 */
#include "net/http.h"

#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>

#include "base/check.h"
#include "base/mem.h"
#include "net/http_int.h"

enum {
    FD_RESERVE = 64,      /* descriptors that are not for connections */
    CONNECTIONS_MIN = 16, /* even if there are fewer descriptors */
    SHARED_MAX = 1 << 30, /* shared buffers: what passes through them has limits of its own */
    TICK_MS_MAX = 1000,
    BODIES = 64, /* default of bodies_bytes, in bodies of full length */
    SHARE = 4,
    QUEUES = 16, /* default of queue_bytes, in backlogs */
    HEADS_BYTES = 64 << 20,
    REPLIES_BYTES = 256 << 20,
    RESERVE_PART = 8, /* of the connections are reserved, */
    RESERVE_MAX = 8,  /* but not more than this */
};

void http_raise_fd_limit(uint64_t *before, uint64_t *after) {
    struct rlimit limit = {0};
    *before = *after = 0;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    *before = *after = limit.rlim_cur;
    if (limit.rlim_cur == limit.rlim_max) return;
    const uint64_t hard = limit.rlim_max;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0) *after = hard;
}

uint32_t http_connections_allowed(void) {
    struct rlimit limit = {0};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return CONNECTIONS_MIN;
    if (limit.rlim_cur >= UINT32_MAX) return UINT32_MAX;
    if (limit.rlim_cur < FD_RESERVE + CONNECTIONS_MIN) return CONNECTIONS_MIN;
    return (uint32_t)limit.rlim_cur - FD_RESERVE;
}

/* A quarter of the shortest limit, so that no deadline is exceeded by more than a quarter. */
static int64_t tick_ms(const struct http_limits *l) {
    int64_t least = l->head_ms < l->body_ms ? l->head_ms : l->body_ms;
    if (l->write_ms < least) least = l->write_ms;
    if (least < 4) return 1;
    return least / 4 < TICK_MS_MAX ? least / 4 : TICK_MS_MAX;
}

#define FALLBACK(field, value)                                                                     \
    do {                                                                                           \
        if (!(field)) (field) = (value);                                                           \
    } while (0)

void http_set_limits(struct http_server *s, const struct http_limits *limits) {
    struct http_limits l = *limits;
    FALLBACK(l.head_bytes, 16384);
    FALLBACK(l.headers, 100);
    FALLBACK(l.body_bytes, 8 << 20);
    FALLBACK(l.bodies_bytes,
             l.body_bytes < UINT64_MAX / BODIES ? l.body_bytes * BODIES : UINT64_MAX);
    FALLBACK(l.share, SHARE);
    FALLBACK(l.connections, http_connections_allowed());
    FALLBACK(l.peer_connections, l.connections > 1 ? l.connections / 2 : 1);
    const uint32_t part = l.connections / RESERVE_PART;
    FALLBACK(l.reserve, part < RESERVE_MAX ? part : RESERVE_MAX);
    FALLBACK(l.heads_bytes, HEADS_BYTES);
    FALLBACK(l.replies_bytes, REPLIES_BYTES);
    FALLBACK(l.streams, 100);
    FALLBACK(l.backlog_bytes, 256 << 10);
    FALLBACK(l.queue_bytes, l.backlog_bytes * QUEUES);
    FALLBACK(l.head_ms, 10000);
    FALLBACK(l.rate, 1024);
    FALLBACK(l.body_ms, 30000);
    FALLBACK(l.body_total_ms, 300000);
    FALLBACK(l.idle_ms, 75000);
    FALLBACK(l.write_ms, 60000);
    FALLBACK(l.handshake_ms, 10000);
    s->limits = l;
    s->wait_ms[WAIT_HANDSHAKE] = l.handshake_ms;
    s->wait_ms[WAIT_IDLE] = l.idle_ms;
    s->wait_ms[WAIT_HEAD] = l.head_ms;
    s->wait_ms[WAIT_BODY] = l.body_ms;
    s->wait_ms[WAIT_WRITE] = l.write_ms;
    s->wait_ms[WAIT_TICK] = tick_ms(&l);
    s->wait_ms[WAIT_LINGER] = CONN_LINGER_MS;
}

static void ignore_sigpipe(void) {
    struct sigaction action;
    if (sigaction(SIGPIPE, NULL, &action) != 0 || action.sa_handler != SIG_DFL) return;
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

/* Without a random seed collisions can be chosen, which costs time and nothing else. */
static void init_accounts(struct http_server *s) {
    uint64_t seeds[2] = {0};
    (void)!getrandom(seeds, sizeof(seeds), GRND_NONBLOCK);
    accounts_init(&s->peers, seeds[0]);
    accounts_init(&s->owners, seeds[1]);
    s->local.is_exempt = true;
}

enum status http_server_create(struct uv_loop_s *loop, const struct http_options *options,
                               struct http_server **out, struct err *err) {
    CHECK(options->handler && options->handler->on_request && options->handler->put_error_body);
    struct http_server *s = mem_zalloc(sizeof(*s));
    if (!s) return err_set(err, ST_NOMEM, "no memory for the HTTP server");
    s->loop = loop;
    s->clock_ns = uv_hrtime;
    s->handler = options->handler;
    s->ctx = options->ctx;
    http_set_limits(s, &options->limits);
    init_accounts(s);
    buf_init(&s->scratch, SHARED_MAX);
    buf_init(&s->gather, SHARED_MAX);
    buf_init(&s->cipher, SHARED_MAX);
    uv_timer_init(loop, &s->sweep); /* these two cannot fail */
    uv_idle_init(loop, &s->defer_idle);
    s->sweep.data = s->defer_idle.data = s;
    s->open_handles = 2;
    ignore_sigpipe();
    *out = s;
    return ST_OK;
}

void http_server_drain(struct http_server *s) {
    s->is_draining = true;
    for (struct list_link *l = s->conns.first; l; l = l->next) {
        struct conn *c = conn_at(l, LINK_ALL);
        c->is_draining = true;
        if (c->proto && !c->is_finishing && !c->has_failed) c->proto->drain(c);
    }
}

static void on_handle_closed(uv_handle_t *handle) {
    struct http_server *s = handle->data;
    s->open_handles--;
}

void server_close_handles(struct http_server *s) {
    if (!s->is_closing || s->conns.first || uv_is_closing((uv_handle_t *)&s->sweep)) return;
    uv_close((uv_handle_t *)&s->sweep, on_handle_closed);
    uv_close((uv_handle_t *)&s->defer_idle, on_handle_closed);
}

void http_server_close(struct http_server *s) {
    if (s->is_closing) return;
    s->is_closing = s->is_draining = true;
    listeners_close(s);
    for (struct list_link *l = s->conns.first; l; l = l->next) conn_fail(conn_at(l, LINK_ALL));
    server_close_handles(s);
}

void http_server_destroy(struct http_server *s) {
    if (!s) return;
    CHECK(s->is_closing);
    CHECK(s->open_handles == 0);
    CHECK(s->stats.connections == 0);
    CHECK(s->stats.exchanges == 0);
    CHECK(s->heads_bytes == 0);
    CHECK(s->bodies_bytes == 0);
    CHECK(s->replies_bytes == 0);
    CHECK(s->peers.count == 0);
    accounts_deinit(&s->peers);
    accounts_deinit(&s->owners);
    buf_deinit(&s->scratch);
    buf_deinit(&s->gather);
    buf_deinit(&s->cipher);
    mem_free(s);
}

struct http_stats http_stats(const struct http_server *s) {
    struct http_stats stats = s->stats;
    stats.bodies_bytes = s->bodies_bytes;
    stats.replies_bytes = s->replies_bytes;
    return stats;
}
