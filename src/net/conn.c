/* net/conn.c - see net/conn_int.h for the contract.
 *
 * Sending. What the kernel does not take at once is copied to `pending`; one write at a time is
 * under way, of `sending`, and when it is done the two change places. A response that fits into
 * the socket's buffer therefore costs one system call and no copy.
 *
 * Deadlines. A connection is in at most one queue of waits. All in a queue have the same time, so
 * the one that came first is due first, and a sweep looks only at the heads.
 *
 * The end. conn_finish sends what waits, tells the peer that nothing more comes and reads on for a
 * moment, throwing away what it gets: closing a socket with unread bytes makes the kernel send a
 * reset, which can destroy the reply before the peer has read it.
 *
 * Entry points: conn_create, conn_open; conn_received, conn_eof, conn_sent, conn_closed;
 * conn_write, conn_finish, conn_kill, conn_break, conn_defer; conn_pause, conn_hold, conn_release,
 * conn_wait, conn_switch; conns_sweep, conns_turn, conns_verify.
 */
#include "net/conn_int.h"

#include "base/check.h"
#include "base/mem.h"
#include "net/http_int.h"
#include "net/tls_int.h"

enum {
    AHEAD_MAX = CONN_AHEAD_BYTES + 2 * READ_BUFFER_BYTES, /* what one more read can add, and ease */
    SHARED_KEEP_BYTES = 256 << 10, /* shared buffers above it are given back after use */
    SWEEP_MS_MIN = 5,
    SWEEP_MS_MAX = 500,
};

/* ---- lists ---- */

static void list_push(struct conn_list *list, int which, struct conn *c) {
    struct conn_link *link = &c->links[which];
    *link = (struct conn_link){.next = NULL, .prev = list->last};
    if (list->last)
        list->last->links[which].next = c;
    else
        list->first = c;
    list->last = c;
}

static void list_remove(struct conn_list *list, int which, struct conn *c) {
    struct conn_link *link = &c->links[which];
    if (link->next)
        link->next->links[which].prev = link->prev;
    else
        list->last = link->prev;
    if (link->prev)
        link->prev->links[which].next = link->next;
    else
        list->first = link->next;
    *link = (struct conn_link){NULL, NULL};
}

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

static void leave_wait(struct conn *c) {
    if (c->wait != WAIT_NONE) list_remove(&c->server->waits[c->wait], LINK_WAIT, c);
    c->wait = WAIT_NONE;
}

static void enter_wait(struct conn *c, enum wait_kind kind) {
    leave_wait(c);
    if (kind == WAIT_NONE) return;
    c->wait = kind;
    c->wait_since_ms = now_ms(c->server);
    list_push(&c->server->waits[kind], LINK_WAIT, c);
    start_sweep(c->server);
}

void conn_wait(struct conn *c, enum wait_kind kind) {
    if (c->is_closing) return;
    c->wait_wanted = kind;
    if (!c->is_writing && !c->is_finishing) enter_wait(c, kind);
}

/* The kernel's part counts, too: it holds megabytes, and asks for more only when a good part of
 * them has gone, which a slow reader may take minutes for. */
size_t conn_untaken(const struct conn *c) {
    return c->wire->unsent(c) + (c->wire->queued ? c->wire->queued(c) : 0);
}

static void late(struct conn *c, enum wait_kind kind) {
    leave_wait(c);
    const size_t untaken = kind == WAIT_WRITE ? conn_untaken(c) : 0;
    if (kind == WAIT_WRITE && untaken < c->untaken) {
        c->untaken = untaken;
        enter_wait(c, WAIT_WRITE);
    } else if (kind == WAIT_HANDSHAKE || kind == WAIT_WRITE || kind == WAIT_LINGER ||
               c->is_broken) { /* its protocol may not even have begun */
        conn_kill(c);
    } else {
        c->proto->on_late(c, kind);
    }
}

void conns_sweep(uv_timer_t *timer) {
    struct http_server *s = timer->data;
    bool is_empty = true;
    for (int kind = WAIT_NONE + 1; kind < WAIT_KINDS; kind++) {
        struct conn *c;
        while ((c = s->waits[kind].first) && now_ms(s) - c->wait_since_ms >= s->wait_ms[kind])
            late(c, (enum wait_kind)kind);
        if (s->waits[kind].first) is_empty = false;
    }
    if (is_empty) uv_timer_stop(timer);
}

/* ---- reading ---- */

static void update_reading(struct conn *c) {
    const bool wants = !c->is_paused && !c->is_full && !c->is_closing && !c->has_eof;
    if (wants == c->is_reading) return;
    c->is_reading = wants;
    c->wire->read(c, wants);
}

void conn_pause(struct conn *c, bool pause) {
    c->is_paused = pause;
    update_reading(c);
}

void conn_hold(struct conn *c, struct str bytes) {
    if (!bytes.len) return;
    buf_put_str(&c->ahead, bytes);
    if (buf_status(&c->ahead) != ST_OK) {
        conn_break(c);
        return;
    }
    c->is_full = c->ahead.len >= CONN_AHEAD_BYTES;
    update_reading(c);
}

void conn_release(struct conn *c) {
    c->is_released = true;
    conn_defer(c);
}

/* Nobody listens any more. */
static bool is_deaf(const struct conn *c) {
    return c->is_closing || c->is_finishing || c->is_broken;
}

static void deliver(struct conn *c, struct str bytes) {
    if (is_deaf(c)) return;
    if (c->ahead.len)
        conn_hold(c, bytes);
    else
        c->proto->on_bytes(c, bytes);
}

static void give_ahead(struct conn *c) {
    struct buf ahead = c->ahead;
    buf_init(&c->ahead, AHEAD_MAX);
    c->is_released = false;
    c->is_full = false;
    if (ahead.len) c->proto->on_bytes(c, buf_str(&ahead));
    buf_deinit(&ahead);
    if (!c->is_closing) update_reading(c);
}

/* ---- turns ---- */

void conn_defer(struct conn *c) {
    struct http_server *s = c->server;
    if (c->is_deferred || c->is_closing) return;
    c->is_deferred = true;
    list_push(&s->turns, LINK_TURN, c);
    if (!uv_is_active((const uv_handle_t *)&s->turn)) uv_idle_start(&s->turn, conns_turn);
}

static void leave_turns(struct conn *c) {
    if (!c->is_deferred) return;
    list_remove(&c->server->turns, LINK_TURN, c);
    c->is_deferred = false;
}

static void take_turn(struct conn *c) {
    leave_turns(c);
    if (c->is_broken) {
        conn_kill(c);
        return;
    }
    if (c->is_released && !is_deaf(c)) give_ahead(c);
    if (!is_deaf(c) && c->proto && c->proto->on_turn) c->proto->on_turn(c);
}

void conns_turn(uv_idle_t *idle) {
    struct http_server *s = idle->data;
    uint32_t count = 0; /* who joins during the turn has the next one */
    for (struct conn *c = s->turns.first; c; c = c->links[LINK_TURN].next) count++;
    for (; count && s->turns.first; count--) take_turn(s->turns.first);
    if (!s->turns.first) uv_idle_stop(idle);
}

/* ---- the end ---- */

void conn_break(struct conn *c) {
    c->is_broken = true;
    conn_defer(c);
}

void conn_kill(struct conn *c) {
    if (c->is_closing) return;
    c->is_closing = true;
    leave_wait(c);
    leave_turns(c);
    list_remove(&c->server->conns, LINK_ALL, c);
    c->server->stats.connections--;
    if (c->proto) c->proto->close(c);
    c->state = NULL;
    c->wire->close(c);
}

void conn_closed(struct conn *c) {
    CHECK(c->is_closing);
    struct http_server *s = c->server;
    tls_session_destroy(c->tls);
    buf_deinit(&c->sending);
    buf_deinit(&c->pending);
    buf_deinit(&c->ahead);
    mem_free(c);
    CHECK(s->open_handles > 0);
    s->open_handles--;
    server_settle(s);
}

/* All has been sent. */
static void say_end(struct conn *c) {
    if (c->has_eof || c->wire->shutdown(c) != 0) {
        conn_break(c);
        return;
    }
    c->is_shut = true;
    enter_wait(c, WAIT_LINGER);
}

/* ---- sending ---- */

static void start_sending(struct conn *c) {
    struct buf swap = c->sending;
    c->sending = c->pending;
    c->pending = swap;
    buf_clear(&c->pending);
    c->is_writing = true;
    enter_wait(c, WAIT_WRITE);
    c->server->stats.writes++;
    if (c->wire->write(c) == 0) {
        c->untaken = conn_untaken(c);
        return;
    }
    c->is_writing = false;
    conn_break(c);
}

/* Copy what lies behind the first `taken` bytes. */
static void keep_rest(struct conn *c, const uv_buf_t *bufs, uint32_t count, size_t taken) {
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
        const ssize_t got = c->wire->try_write(c, bufs, count);
        if (got < 0 && got != UV_EAGAIN) {
            conn_break(c);
            return;
        }
        taken = got < 0 ? 0 : (size_t)got;
    }
    c->server->stats.bytes_out += total;
    if (taken == total) return;
    keep_rest(c, bufs, count, taken);
    if (buf_status(&c->pending) != ST_OK)
        conn_break(c);
    else if (!c->is_writing)
        start_sending(c);
}

static void shrink_shared(struct buf *b) {
    buf_clear(b);
    if (b->cap > SHARED_KEEP_BYTES) buf_deinit(b);
}

/* What the TLS session has written to the shared buffer. */
static void send_cipher(struct conn *c) {
    struct buf *cipher = &c->server->cipher;
    if (buf_status(cipher) != ST_OK) {
        conn_break(c);
    } else if (cipher->len) {
        const uv_buf_t out = {.base = cipher->ptr, .len = cipher->len};
        send_raw(c, &out, 1);
    }
    shrink_shared(cipher);
}

/* Pieces that fit into one TLS record become one. */
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
    if (!is_fine) conn_break(c);
    send_cipher(c);
}

void conn_write(struct conn *c, const uv_buf_t *bufs, uint32_t count) {
    if (is_deaf(c) || total_of(bufs, count) == 0) return;
    if (c->tls)
        send_tls(c, bufs, count);
    else
        send_raw(c, bufs, count);
}

uint64_t conn_backlog(const struct conn *c) {
    return c->pending.len + (c->is_writing ? c->wire->unsent(c) : 0);
}

void conn_finish(struct conn *c) {
    if (is_deaf(c)) return;
    if (c->tls) {
        tls_session_goodbye(c->tls);
        send_cipher(c);
    }
    c->is_finishing = true;
    buf_deinit(&c->ahead);
    c->is_paused = c->is_full = false;
    update_reading(c);
    if (!c->is_writing) say_end(c);
}

void conn_sent(struct conn *c, int status) {
    c->is_writing = false;
    buf_clear(&c->sending);
    if (c->is_closing) return;
    if (status < 0) {
        conn_kill(c);
        return;
    }
    if (c->pending.len) {
        start_sending(c);
    } else {
        buf_deinit(&c->sending);
        buf_deinit(&c->pending);
        if (c->is_finishing)
            say_end(c);
        else
            enter_wait(c, c->wait_wanted);
    }
    if (!is_deaf(c) && c->proto) c->proto->on_written(c);
}

/* ---- what comes in ---- */

static void begin_proto(struct conn *c, const struct proto *proto) {
    c->proto = proto;
    if (proto->open(c) != ST_OK) conn_break(c);
}

/* False: nothing more can be done with what came. */
static bool shake_hands(struct conn *c) {
    const enum tls_step step = tls_session_handshake(c->tls);
    send_cipher(c);
    if (step == TLS_FAILED || step == TLS_EOF) {
        conn_finish(c);
        return false;
    }
    if (step == TLS_MORE) return false;
    begin_proto(c, tls_session_is_h2(c->tls) ? &proto_http2 : &proto_http1);
    return !is_deaf(c);
}

static void receive_tls(struct conn *c, struct str cipher) {
    struct http_server *s = c->server;
    tls_session_feed(c->tls, cipher);
    if (!c->proto && !shake_hands(c)) return;
    enum tls_step step;
    do {
        size_t got = 0;
        step = tls_session_read(c->tls, s->plain_buffer, sizeof(s->plain_buffer), &got);
        send_cipher(c);
        if (step == TLS_DONE) deliver(c, (struct str){s->plain_buffer, got});
    } while (step == TLS_DONE && !is_deaf(c));
    if (is_deaf(c)) return;
    if (step == TLS_EOF) conn_eof(c, UV_EOF);
    if (step == TLS_FAILED) conn_finish(c);
}

void conn_received(struct conn *c, struct str bytes) {
    c->server->stats.bytes_in += bytes.len;
    if (is_deaf(c)) return;
    if (c->tls)
        receive_tls(c, bytes);
    else
        deliver(c, bytes);
}

void conn_eof(struct conn *c, int status) {
    const bool may_still_read = status == UV_EOF && c->is_finishing && !c->is_shut;
    if (!may_still_read) {
        conn_kill(c);
        return;
    }
    c->has_eof = true;
    update_reading(c);
}

struct conn *conn_create(struct http_server *s, const struct wire *wire) {
    struct conn *c = mem_zalloc(sizeof(*c));
    if (!c) return NULL;
    c->server = s;
    c->wire = wire;
    c->is_draining = s->is_draining;
    buf_init(&c->sending, CONN_PENDING_MAX);
    buf_init(&c->pending, CONN_PENDING_MAX);
    buf_init(&c->ahead, AHEAD_MAX);
    list_push(&s->conns, LINK_ALL, c);
    s->stats.connections++;
    s->open_handles++;
    return c;
}

void conn_open(struct conn *c, struct tls_context *tls) {
    if (tls) {
        c->tls = tls_session_create(tls, &c->server->cipher);
        if (!c->tls) conn_break(c);
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
    if (!state && to->open(c) != ST_OK) conn_break(c);
    if (bytes.len && !is_deaf(c)) to->on_bytes(c, bytes);
}

/* ---- invariants ---- */

static uint32_t verify_list(const struct conn_list *list, int which) {
    uint32_t count = 0;
    const struct conn *last = NULL;
    for (const struct conn *c = list->first; c; c = c->links[which].next) {
        CHECK(c->links[which].prev == last);
        CHECK(!c->is_closing);
        last = c;
        count++;
    }
    CHECK(list->last == last);
    return count;
}

static void verify_conn(const struct conn *c) {
    CHECK(c->is_writing || c->pending.len == 0 || c->is_broken);
    CHECK(!c->is_writing || c->wait == WAIT_WRITE);
    CHECK(c->is_writing || c->wait != WAIT_WRITE);
    CHECK(!c->is_shut || c->is_finishing);
    CHECK(!c->is_finishing || c->is_writing || c->wait == WAIT_LINGER || c->is_broken);
    CHECK(!c->is_broken || c->is_deferred);
    CHECK(!c->is_full || !c->is_reading);
}

void conns_verify(const struct http_server *s) {
    uint32_t waiting = 0, deferred = 0, in_waits = 0;
    CHECK(verify_list(&s->conns, LINK_ALL) == s->stats.connections);
    for (const struct conn *c = s->conns.first; c; c = c->links[LINK_ALL].next) {
        verify_conn(c);
        waiting += c->wait != WAIT_NONE;
        deferred += c->is_deferred;
    }
    CHECK(!s->waits[WAIT_NONE].first);
    for (int kind = WAIT_NONE + 1; kind < WAIT_KINDS; kind++) {
        in_waits += verify_list(&s->waits[kind], LINK_WAIT);
        for (const struct conn *c = s->waits[kind].first; c; c = c->links[LINK_WAIT].next) {
            const struct conn *next = c->links[LINK_WAIT].next;
            CHECK((int)c->wait == kind);
            CHECK(!next || next->wait_since_ms >= c->wait_since_ms);
        }
    }
    CHECK(in_waits == waiting);
    CHECK(verify_list(&s->turns, LINK_TURN) == deferred);
}
