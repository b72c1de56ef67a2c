/* net/conn.c - see net/conn_int.h for the contract.
 *
 * Sending. Bytes that the kernel does not take at once are copied to `pending`. One write is under
 * way at a time, of `sending`; when it is complete the two buffers are swapped. A response that
 * fits into the socket's buffer therefore costs one system call and no copy.
 *
 * Rates. While bytes wait, the peer must acknowledge `rate` bytes a second, measured over write_ms:
 * one that reads a byte now and then is closed like one that reads nothing.
 *
 * Deadlines. A connection is in at most one wait queue. All connections in a queue have the same
 * time limit, so the one at the head is due first, and the sweep looks only at the heads.
 *
 * Closing. conn_finish sends what is pending, ends our output (FIN), and reads and discards input
 * for CONN_LINGER_MS: if a socket is closed with unread input the kernel sends a reset, which can
 * destroy the response before the peer has read it.
 *
 * Queued responses. Everything that waits to be sent is charged to its connection and peer, to its
 * owner and to the server. New requests are refused when too much waits (http_room); what is under
 * way may exceed the limit by a quarter, then the connections that hold most are closed.
 *
 * Entry points: conn_create, conn_open, conn_set_account, conn_set_owner; conn_received, conn_eof,
 * conn_sent, conn_closed; conn_write, conn_charge_change, conn_finish, conn_close, conn_fail,
 * conn_defer; conn_pause, conn_hold, conn_release, conn_wait, conn_switch; conns_sweep,
 * conns_run_deferred, conns_verify.
 */
#include "net/conn_int.h"

#include "base/check.h"
#include "base/mem.h"
#include "net/http_int.h"
#include "net/tls_int.h"

enum {
    HELD_MAX = CONN_HELD_BYTES + 2 * READ_BUFFER_BYTES, /* one more read, and as much to spare */
    TRIM_BYTES = 4 << 20, /* a smaller peak stays with the C library */
    TRIM_AFTER_MS = 2000,
    CONN_BYTES = 16384,            /* of a connection, as far as trim() counts it */
    SHARED_KEEP_BYTES = 256 << 10, /* a larger shared buffer is freed after use */
    TURN_NS = 1000000, /* of input, and of deferred calls, before the loop looks for events */
    SWEEP_MS_MIN = 5,
    SWEEP_MS_MAX = 500,
};

/* ---- deadlines ---- */

static int64_t now_ms(const struct http_server *s) { return (int64_t)uv_now(s->loop); }

static void start_sweep(struct http_server *s) {
    if (uv_is_active((const uv_handle_t *)&s->sweep)) return;
    int64_t period = SWEEP_MS_MAX;
    for (int kind = WAIT_NONE + 1; kind < WAIT_KINDS; kind++)
        if (s->wait_ms[kind] / 4 < period) period = s->wait_ms[kind] / 4;
    if (period < SWEEP_MS_MIN) period = SWEEP_MS_MIN;
    uv_timer_start(&s->sweep, conns_sweep, (uint64_t)period, (uint64_t)period);
}

static void stop_wait(struct conn *c) {
    if (c->wait != WAIT_NONE) list_remove(&c->server->waits[c->wait], &c->links[LINK_WAIT]);
    c->wait = WAIT_NONE;
}

static void start_wait(struct conn *c, enum wait_kind kind) {
    stop_wait(c);
    if (kind == WAIT_NONE) return;
    c->wait = kind;
    c->wait_since_ms = now_ms(c->server);
    c->wait_bytes = 0;
    list_push_last(&c->server->waits[kind], &c->links[LINK_WAIT]);
    start_sweep(c->server);
}

void conn_wait(struct conn *c, enum wait_kind kind) {
    if (c->is_closing) return;
    c->wait_wanted = kind;
    if (!c->is_writing && !c->is_finishing) start_wait(c, kind);
}

/* The kernel's send queue counts too. It holds megabytes, and the kernel takes more only when a
 * good part of them has been acknowledged; a slow reader may need minutes for that. */
size_t conn_unacked(const struct conn *c) {
    return c->transport->unsent(c) + (c->transport->queued ? c->transport->queued(c) : 0);
}

static uint64_t due_of(const struct conn *c) { return c->pending.len + conn_unacked(c); }

/* Bytes wait to be sent: from now on the peer must read at the least rate. */
static void start_write_wait(struct conn *c) {
    start_wait(c, WAIT_WRITE);
    c->mark_due = due_of(c);
    c->mark_read = c->written - c->mark_due;
}

/* For a unix socket the kernel counts whole buffers, each larger than its bytes, until the last
 * byte of one is read. So more may be due than before, although some bytes were read: that is no
 * progress. */
uint64_t conn_read_since(const struct conn *c) {
    const uint64_t read = c->written - due_of(c), more = read - c->mark_read;
    return more <= INT64_MAX ? more : 0;
}

/* Has the peer read, since start_write_wait, what it must read in write_ms? */
static bool has_kept_rate(const struct conn *c) {
    const uint64_t must = rate_bytes(&c->server->limits, c->server->limits.write_ms);
    return conn_read_since(c) >= (c->mark_due < must ? c->mark_due : must);
}

static void deadline_passed(struct conn *c, enum wait_kind kind) {
    stop_wait(c);
    if (kind == WAIT_WRITE && has_kept_rate(c)) {
        start_write_wait(c);
    } else if (kind == WAIT_HANDSHAKE || kind == WAIT_WRITE || kind == WAIT_LINGER ||
               c->has_failed) { /* it may have no protocol yet */
        c->server->stats.slow += kind == WAIT_WRITE;
        conn_close(c);
    } else {
        c->proto->on_deadline(c, kind);
    }
}

/* In a thread of the pool: it takes 0.1 ms for a megabyte, and other threads wait only if they need
 * memory that they do not have at hand. */
static void run_trim(uv_work_t *work) {
    (void)work;
    mem_trim();
}

static void trim_done(uv_work_t *work, int status) {
    (void)status;
    struct http_server *s = work->data;
    s->is_trimming = false;
    s->open_handles--;
}

static void start_trim(struct http_server *s) {
    s->trim_work.data = s;
    s->is_trimming = uv_queue_work(s->loop, &s->trim_work, run_trim, trim_done) == 0;
    s->open_handles += s->is_trimming;
}

/* After a peak of what clients held, its memory goes back to the system: once less than a quarter
 * of it has been held for TRIM_AFTER_MS, so that clients that come and go do not cause it all the
 * time. True: it is due later. */
static bool trim(struct http_server *s) {
    const uint64_t held = s->replies_bytes + s->bodies_bytes + s->heads_bytes +
                          (uint64_t)s->stats.connections * CONN_BYTES;
    if (held > s->peak_bytes) s->peak_bytes = held;
    if (s->peak_bytes < TRIM_BYTES || held > s->peak_bytes / 4) {
        s->fallen_ms = 0;
        return false;
    }
    if (s->fallen_ms == 0) s->fallen_ms = now_ms(s);
    if (s->is_trimming || now_ms(s) - s->fallen_ms < TRIM_AFTER_MS) return true;
    s->peak_bytes = held;
    s->fallen_ms = 0;
    start_trim(s);
    return false;
}

static bool has_waits(const struct http_server *s) {
    for (int kind = WAIT_NONE + 1; kind < WAIT_KINDS; kind++)
        if (s->waits[kind].first) return true;
    return false;
}

/* A deadline may put its connection into a queue that was looked at before, so the sweep asks for
 * connections that wait only when all queues are done. */
void conns_sweep(uv_timer_t *timer) {
    struct http_server *s = timer->data;
    const bool trims_later = trim(s);
    for (int kind = WAIT_NONE + 1; kind < WAIT_KINDS; kind++) {
        struct conn *c;
        while ((c = conn_at(s->waits[kind].first, LINK_WAIT)) &&
               now_ms(s) - c->wait_since_ms >= s->wait_ms[kind])
            deadline_passed(c, (enum wait_kind)kind);
    }
    if (!has_waits(s) && !trims_later) uv_timer_stop(timer);
}

/* ---- reading ---- */

static void update_reading(struct conn *c) {
    const bool wants = !c->is_paused && !c->is_full && !c->is_closing && !c->has_eof;
    if (wants == c->is_reading) return;
    c->is_reading = wants;
    c->transport->read(c, wants);
}

void conn_pause(struct conn *c, bool pause) {
    c->is_paused = pause;
    update_reading(c);
}

void conn_hold(struct conn *c, struct str bytes) {
    if (!bytes.len) return;
    buf_put_str(&c->held, bytes);
    if (buf_status(&c->held) != ST_OK) {
        conn_fail(c);
        return;
    }
    c->is_full = c->held.len >= CONN_HELD_BYTES;
    update_reading(c);
}

void conn_release(struct conn *c) {
    c->is_release_due = true;
    conn_defer(c);
}

/* Input is discarded and output is ignored. */
static bool is_ending(const struct conn *c) {
    return c->is_closing || c->is_finishing || c->has_failed;
}

static void start_turn(struct http_server *s, uint64_t now_ns) {
    s->turn_ms = now_ms(s);
    s->turn_ns = now_ns;
}

bool conns_turn_is_over(struct http_server *s) {
    const uint64_t now_ns = s->clock_ns();
    if (now_ms(s) != s->turn_ms) start_turn(s, now_ns);
    return now_ns - s->turn_ns > TURN_NS;
}

static void receive_tls(struct conn *c, struct str cipher);

/* Late input is handled by deferred calls, in which all peers have their turn. */
static void deliver(struct conn *c, struct str bytes) {
    if (is_ending(c)) return;
    if (c->held.len) {
        conn_hold(c, bytes);
    } else if (conns_turn_is_over(c->server)) {
        conn_hold(c, bytes);
        conn_release(c);
    } else {
        c->proto->on_bytes(c, bytes);
    }
}

static void deliver_held(struct conn *c) {
    struct buf held = c->held;
    buf_init(&c->held, HELD_MAX);
    c->is_release_due = false;
    c->is_full = false;
    if (held.len && c->proto)
        c->proto->on_bytes(c, buf_str(&held));
    else if (held.len)
        receive_tls(c, buf_str(&held));
    buf_deinit(&held);
    if (!c->is_closing) update_reading(c);
}

/* ---- deferred calls ---- */

static void start_deferred(struct http_server *s) {
    if (!uv_is_active((const uv_handle_t *)&s->defer_idle))
        uv_idle_start(&s->defer_idle, conns_run_deferred);
}

void conn_defer(struct conn *c) {
    struct http_server *s = c->server;
    if (c->is_deferred || c->is_closing) return;
    c->is_deferred = true;
    if (!c->account->deferred.first) list_push_last(&s->deferred, &c->account->turn);
    list_push_last(&c->account->deferred, &c->links[LINK_DEFERRED]);
    start_deferred(s);
}

static void cancel_deferred(struct conn *c) {
    if (!c->is_deferred) return;
    list_remove(&c->account->deferred, &c->links[LINK_DEFERRED]);
    if (!c->account->deferred.first) list_remove(&c->server->deferred, &c->account->turn);
    c->is_deferred = false;
}

/* Is there input that will be handled without any event: its turn comes, or the peer reads? Not
 * what a client has sent ahead of a response that is still produced. */
static bool has_input(const struct conn *c) {
    return c->is_release_due || (c->held.len && c->wait_wanted == WAIT_IDLE);
}

/* The peer has ended its output, and all of it is handled. That counts as a disconnect, but a peer
 * that reads a complete response may have the rest of it. */
static void end_input(struct conn *c) {
    if (c->is_writing && c->wait_wanted == WAIT_IDLE)
        conn_finish(c);
    else
        conn_close(c);
}

static void run_deferred(struct conn *c) {
    cancel_deferred(c);
    if (c->has_failed) {
        conn_close(c);
        return;
    }
    if (c->is_release_due && !is_ending(c)) deliver_held(c);
    if (!is_ending(c) && c->proto && c->proto->on_deferred) c->proto->on_deferred(c);
    if (!is_ending(c) && c->has_eof && !has_input(c)) end_input(c);
}

/* ---- queued responses ---- */

/* Above this the connections that hold most are closed; new requests are refused before. */
static uint64_t shed_above(const struct http_limits *l) {
    return l->replies_bytes + l->replies_bytes / 4;
}

void conn_charge_change(struct conn *c, struct account *owner, uint64_t *charged, uint64_t bytes) {
    struct http_server *s = c->server;
    const uint64_t change = bytes - *charged; /* wraps where it falls, and so do the sums */
    const bool is_more = bytes > *charged;
    *charged = bytes;
    c->queued += change;
    s->replies_bytes += change;
    c->account->replies_bytes += change;
    if (owner) owner->replies_bytes += change;
    if (is_more && s->replies_bytes > shed_above(&s->limits)) start_deferred(s);
}

static void charge_own(struct conn *c) {
    conn_charge(c, c->owner, &c->charged, c->pending.len + (c->is_writing ? c->sending.len : 0));
}

void conn_set_owner(struct conn *c, struct account *owner) {
    if (c->owner == owner) return;
    if (c->owner) c->owner->replies_bytes -= c->charged;
    if (owner) owner->replies_bytes += c->charged;
    c->owner = owner;
}

/* The connection that holds most, of the peer that holds most. A peer that many clients share is
 * as large as this one of its connections. */
static struct conn *find_largest(const struct http_server *s) {
    struct conn *largest = NULL;
    uint64_t most = 0;
    for (struct list_link *l = s->conns.first; l; l = l->next) {
        struct conn *c = conn_at(l, LINK_ALL);
        const uint64_t held = c->account->is_exempt ? c->queued : c->account->replies_bytes;
        const bool is_larger =
            held > most || (held == most && largest && c->queued > largest->queued);
        if (!c->queued || !is_larger) continue;
        largest = c;
        most = held;
    }
    return largest;
}

static void shed(struct http_server *s) {
    while (s->replies_bytes > shed_above(&s->limits)) {
        struct conn *c = find_largest(s);
        CHECK(c);
        s->stats.shed++;
        c->is_reset = true;
        conn_close(c);
    }
}

/* One deferred call of the peer whose turn it is; its next one comes after those of others. */
static void run_next(struct http_server *s) {
    struct account *a = LIST_ITEM(s->deferred.first, struct account, turn);
    struct conn *c = conn_at(a->deferred.first, LINK_DEFERRED);
    list_remove(&s->deferred, &a->turn);
    list_push_last(&s->deferred, &a->turn);
    run_deferred(c);
}

/* Calls that are added meanwhile, and those for which there is no time, wait for the next turn of
 * the loop, which accepts and reads before. */
void conns_run_deferred(uv_idle_t *idle) {
    struct http_server *s = idle->data;
    uint64_t count = 0;
    start_turn(s, s->clock_ns());
    shed(s);
    for (struct list_link *l = s->deferred.first; l; l = l->next)
        count += LIST_ITEM(l, struct account, turn)->deferred.count;
    for (; count && s->deferred.first; count--) {
        run_next(s);
        if (conns_turn_is_over(s)) break;
    }
    if (!s->deferred.first) uv_idle_stop(idle);
}

/* ---- closing ---- */

void conn_fail(struct conn *c) {
    c->has_failed = true;
    conn_defer(c);
}

/* A peer without connections needs no account. */
static void leave_account(struct conn *c) {
    struct account *a = c->account;
    list_remove(&a->conns, &c->links[LINK_PEER]);
    c->account = NULL;
    if (!a->conns.first && a != &c->server->local) accounts_remove(&c->server->peers, a);
}

void conn_set_account(struct conn *c, struct account *to) {
    if (to == c->account) return;
    CHECK(!c->is_deferred);
    leave_account(c);
    c->account = to;
    list_push_last(&to->conns, &c->links[LINK_PEER]);
}

void conn_close(struct conn *c) {
    if (c->is_closing) return;
    c->is_closing = true;
    stop_wait(c);
    cancel_deferred(c);
    list_remove(&c->server->conns, &c->links[LINK_ALL]);
    c->server->stats.connections--;
    if (c->proto) c->proto->close(c);
    c->state = NULL;
    conn_charge(c, c->owner, &c->charged, 0);
    CHECK(c->queued == 0);
    leave_account(c);
    c->transport->close(c);
}

void conn_closed(struct conn *c) {
    CHECK(c->is_closing);
    struct http_server *s = c->server;
    tls_session_destroy(c->tls);
    buf_deinit(&c->sending);
    buf_deinit(&c->pending);
    buf_deinit(&c->held);
    mem_free(c);
    CHECK(s->open_handles > 0);
    s->open_handles--;
    server_close_handles(s);
}

/* Everything has been sent: end our output and wait for the peer to close. */
static void shut_down(struct conn *c) {
    if (c->has_eof || c->transport->shutdown(c) != 0) {
        conn_fail(c);
        return;
    }
    c->is_shut = true;
    start_wait(c, WAIT_LINGER);
}

/* ---- sending ---- */

static void start_sending(struct conn *c) {
    struct buf swap = c->sending;
    c->sending = c->pending;
    c->pending = swap;
    buf_clear(&c->pending);
    c->is_writing = true;
    c->server->stats.writes++;
    if (c->transport->write(c) == 0) {
        if (c->wait != WAIT_WRITE) start_write_wait(c);
        return;
    }
    c->is_writing = false;
    conn_fail(c);
}

/* Copy everything after the first `taken` bytes to `pending`. */
static void queue_rest(struct conn *c, const uv_buf_t *bufs, uint32_t count, size_t taken) {
    for (uint32_t i = 0; i < count; i++) {
        const size_t skip = taken < bufs[i].len ? taken : bufs[i].len;
        buf_put(&c->pending, bufs[i].base + skip, bufs[i].len - skip);
        taken -= skip;
    }
}

static size_t total_of(const uv_buf_t *bufs, uint32_t count) {
    size_t total = 0;
    for (uint32_t i = 0; i < count; i++) total += bufs[i].len;
    return total;
}

static void send_raw(struct conn *c, const uv_buf_t *bufs, uint32_t count) {
    const size_t total = total_of(bufs, count);
    size_t taken = 0;
    if (!c->is_writing) {
        c->server->stats.writes++;
        const ssize_t got = c->transport->try_write(c, bufs, count);
        if (got < 0 && got != UV_EAGAIN) {
            conn_fail(c);
            return;
        }
        taken = got < 0 ? 0 : (size_t)got;
    }
    c->server->stats.bytes_out += total;
    c->written += total;
    if (taken == total) return;
    queue_rest(c, bufs, count, taken);
    if (buf_status(&c->pending) != ST_OK)
        conn_fail(c);
    else if (!c->is_writing)
        start_sending(c);
    charge_own(c);
}

static void shrink_shared(struct buf *b) {
    buf_clear(b);
    if (b->cap > SHARED_KEEP_BYTES) buf_deinit(b);
}

/* Send what the TLS session has written to the shared buffer. */
static void send_cipher(struct conn *c) {
    struct buf *cipher = &c->server->cipher;
    if (buf_status(cipher) != ST_OK) {
        conn_fail(c);
    } else if (cipher->len) {
        const uv_buf_t out = {.base = cipher->ptr, .len = cipher->len};
        send_raw(c, &out, 1);
    }
    shrink_shared(cipher);
}

/* Pieces that fit into one TLS record are joined, so that they become one record. */
static void send_tls(struct conn *c, const uv_buf_t *bufs, uint32_t count) {
    struct buf *gather = &c->server->gather;
    bool is_fine = true;
    if (total_of(bufs, count) <= PLAIN_BUFFER_BYTES) {
        for (uint32_t i = 0; i < count; i++) buf_put(gather, bufs[i].base, bufs[i].len);
        is_fine =
            buf_status(gather) == ST_OK && tls_session_write(c->tls, gather->ptr, gather->len);
        buf_clear(gather);
    } else {
        for (uint32_t i = 0; i < count && is_fine; i++)
            is_fine = tls_session_write(c->tls, bufs[i].base, bufs[i].len);
    }
    if (!is_fine) conn_fail(c);
    send_cipher(c);
}

void conn_write(struct conn *c, const uv_buf_t *bufs, uint32_t count) {
    if (is_ending(c) || total_of(bufs, count) == 0) return;
    if (c->tls)
        send_tls(c, bufs, count);
    else
        send_raw(c, bufs, count);
}

uint64_t conn_backlog(const struct conn *c) {
    return c->pending.len + (c->is_writing ? c->transport->unsent(c) : 0);
}

void conn_finish(struct conn *c) {
    if (is_ending(c)) return;
    if (c->tls) {
        tls_session_close_notify(c->tls);
        send_cipher(c);
    }
    c->is_finishing = true;
    buf_deinit(&c->held);
    c->is_paused = c->is_full = false;
    update_reading(c);
    if (!c->is_writing) shut_down(c);
}

void conn_sent(struct conn *c, int status) {
    c->is_writing = false;
    buf_clear(&c->sending);
    if (c->is_closing) return;
    if (status < 0) {
        conn_close(c);
        return;
    }
    if (c->pending.len) {
        start_sending(c);
        charge_own(c);
    } else {
        charge_own(c);
        buf_deinit(&c->sending);
        buf_deinit(&c->pending);
        if (c->is_finishing)
            shut_down(c);
        else
            start_wait(c, c->wait_wanted);
    }
    if (!is_ending(c) && c->proto) c->proto->on_written(c);
}

/* ---- input ---- */

static void begin_proto(struct conn *c, const struct proto *proto) {
    c->proto = proto;
    if (proto->open(c) != ST_OK) conn_fail(c);
}

/* False: the handshake is not complete, or the connection is ending. */
static bool do_handshake(struct conn *c) {
    const enum tls_step step = tls_session_handshake(c->tls);
    send_cipher(c);
    if (step == TLS_FAILED || step == TLS_EOF) {
        conn_finish(c);
        return false;
    }
    if (step == TLS_MORE) return false;
    begin_proto(c, tls_session_is_h2(c->tls) ? &proto_http2 : &proto_http1);
    return !is_ending(c);
}

static void receive_tls(struct conn *c, struct str cipher) {
    struct http_server *s = c->server;
    tls_session_feed(c->tls, cipher);
    if (!c->proto && !do_handshake(c)) return;
    enum tls_step step;
    do {
        size_t got = 0;
        step = tls_session_read(c->tls, s->plain_buffer, sizeof(s->plain_buffer), &got);
        send_cipher(c);
        if (step == TLS_DONE) deliver(c, (struct str){s->plain_buffer, got});
    } while (step == TLS_DONE && !is_ending(c));
    if (is_ending(c)) return;
    if (step == TLS_EOF) conn_eof(c, UV_EOF);
    if (step == TLS_FAILED) conn_finish(c);
}

void conn_received(struct conn *c, struct str bytes) {
    c->server->stats.bytes_in += bytes.len;
    c->wait_bytes += bytes.len;
    if (is_ending(c)) return;
    const bool has_handshake = c->tls && !c->proto; /* which costs a millisecond of the processor */
    if (has_handshake && (c->held.len || conns_turn_is_over(c->server))) {
        conn_hold(c, bytes);
        conn_release(c);
    } else if (c->tls) {
        receive_tls(c, bytes);
    } else {
        deliver(c, bytes);
    }
}

/* A client that leaves hundreds of connections at once has its turn like others, because the kernel
 * and the handler need some time to give up what each of them holds. */
void conn_eof(struct conn *c, int status) {
    const bool is_late = conns_turn_is_over(c->server);
    if (status != UV_EOF || c->is_shut) { /* the peer reads no more, or has read everything */
        if (is_late)
            conn_fail(c);
        else
            conn_close(c);
        return;
    }
    c->has_eof = true;
    update_reading(c);
    if (c->is_finishing || has_input(c)) return;
    if (is_late)
        conn_defer(c);
    else
        end_input(c);
}

struct conn *conn_create(struct http_server *s, const struct transport *transport) {
    struct conn *c = mem_zalloc(sizeof(*c));
    if (!c) return NULL;
    c->server = s;
    c->transport = transport;
    c->is_draining = s->is_draining;
    buf_init(&c->sending, CONN_PENDING_MAX);
    buf_init(&c->pending, CONN_PENDING_MAX);
    buf_init(&c->held, HELD_MAX);
    list_push_last(&s->conns, &c->links[LINK_ALL]);
    c->account = &s->local;
    list_push_last(&s->local.conns, &c->links[LINK_PEER]);
    s->stats.connections++;
    s->open_handles++;
    return c;
}

void conn_open(struct conn *c, struct tls_context *tls) {
    if (tls) {
        c->tls = tls_session_create(tls, &c->server->cipher);
        if (!c->tls) conn_fail(c);
        conn_wait(c, WAIT_HANDSHAKE);
    } else {
        begin_proto(c, &proto_http1);
    }
    update_reading(c);
}

void conn_switch(struct conn *c, const struct proto *to, void *state, struct str bytes) {
    c->proto->close(c);
    c->state = state;
    c->proto = to;
    if (!state && to->open(c) != ST_OK) conn_fail(c);
    if (bytes.len && !is_ending(c)) to->on_bytes(c, bytes);
}

/* ---- invariants ---- */

static uint32_t verify_list(const struct list *list, int which) {
    list_verify(list);
    for (struct list_link *l = list->first; l; l = l->next) CHECK(!conn_at(l, which)->is_closing);
    return list->count;
}

static void verify_conn(const struct conn *c) {
    CHECK(c->is_writing || c->pending.len == 0 || c->has_failed);
    CHECK(!c->is_writing || c->wait == WAIT_WRITE);
    CHECK(c->is_writing || c->wait != WAIT_WRITE);
    CHECK(!c->is_shut || c->is_finishing);
    CHECK(!c->is_finishing || c->is_writing || c->wait == WAIT_LINGER || c->has_failed);
    CHECK(!c->has_failed || c->is_deferred);
    CHECK(!c->is_full || !c->is_reading);
    CHECK(c->charged == c->pending.len + (c->is_writing ? c->sending.len : 0));
    CHECK(c->queued == c->charged + (c->proto ? c->proto->charged(c, false) : 0));
}

static uint64_t owned_by(const struct conn *c) {
    return (c->owner ? c->charged : 0) + (c->proto ? c->proto->charged(c, true) : 0);
}

/* Peers hold their connections and what those hold; all together what the server counts. */
static void verify_peer(const struct account *a, uint32_t *conns, uint64_t *replies) {
    uint64_t queued = 0;
    *conns += verify_list(&a->conns, LINK_PEER);
    for (struct list_link *l = a->conns.first; l; l = l->next) {
        CHECK(conn_at(l, LINK_PEER)->account == a);
        queued += conn_at(l, LINK_PEER)->queued;
    }
    CHECK(queued == a->replies_bytes);
    CHECK(!a->conns.first || a->deferred.count <= a->conns.count);
    *replies += queued;
}

static void verify_accounts(const struct http_server *s) {
    uint32_t conns = 0, peers = 0;
    uint64_t replies = 0, owned = 0, bodies = 0, heads = 0;
    for (struct list_link *l = s->conns.first; l; l = l->next)
        owned += owned_by(conn_at(l, LINK_ALL));
    verify_peer(&s->local, &conns, &replies);
    for (uint32_t i = 0; i < ACCOUNT_LISTS; i++) {
        for (struct list_link *l = s->peers.lists[i].first; l; l = l->next) {
            const struct account *a = LIST_ITEM(l, struct account, link);
            CHECK(a->conns.first);
            verify_peer(a, &conns, &replies);
            bodies += a->bodies_bytes;
            heads += a->heads_bytes;
            peers++;
        }
        for (struct list_link *l = s->owners.lists[i].first; l; l = l->next) {
            CHECK(owned >= LIST_ITEM(l, struct account, link)->replies_bytes);
            owned -= LIST_ITEM(l, struct account, link)->replies_bytes;
            bodies += LIST_ITEM(l, struct account, link)->bodies_bytes;
            heads += LIST_ITEM(l, struct account, link)->heads_bytes;
        }
    }
    CHECK(peers == s->peers.count);
    CHECK(conns == s->stats.connections);
    CHECK(replies == s->replies_bytes);
    CHECK(owned == 0);
    CHECK(bodies <= s->bodies_bytes);
    CHECK(heads <= s->heads_bytes);
}

void conns_verify(const struct http_server *s) {
    uint32_t waiting = 0, deferred = 0, in_waits = 0;
    verify_accounts(s);
    CHECK(verify_list(&s->conns, LINK_ALL) == s->stats.connections);
    for (struct list_link *l = s->conns.first; l; l = l->next) {
        const struct conn *c = conn_at(l, LINK_ALL);
        verify_conn(c);
        waiting += c->wait != WAIT_NONE;
        deferred += c->is_deferred;
    }
    CHECK(!s->waits[WAIT_NONE].first);
    for (int kind = WAIT_NONE + 1; kind < WAIT_KINDS; kind++) {
        in_waits += verify_list(&s->waits[kind], LINK_WAIT);
        for (struct list_link *l = s->waits[kind].first; l; l = l->next) {
            const struct conn *c = conn_at(l, LINK_WAIT), *next = conn_at(l->next, LINK_WAIT);
            CHECK((int)c->wait == kind);
            CHECK(!next || next->wait_since_ms >= c->wait_since_ms);
        }
    }
    CHECK(in_waits == waiting);
    CHECK(in_waits == 0 || uv_is_active((const uv_handle_t *)&s->sweep));
    list_verify(&s->deferred);
    for (struct list_link *l = s->deferred.first; l; l = l->next) {
        const struct account *a = LIST_ITEM(l, struct account, turn);
        CHECK(a->deferred.first);
        deferred -= verify_list(&a->deferred, LINK_DEFERRED);
    }
    CHECK(deferred == 0);
}
