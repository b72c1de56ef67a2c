/* Goal:   at every stage of a request what it holds is counted, to the byte, for its peer or for
 *         its owner and for the server; whatever way its client then leaves, all of it is given
 *         back and the handler is told once.
 * Method: a table of stages and one of ways to leave, each stage with each way, over HTTP/1.1,
 *         HTTP/2 and WebSockets on connections without sockets, with and without an owner. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "unit/net/h2_client.h"
#include "unit/net/ws_client.h"

enum { OWNER = 7, EXCHANGE_BYTES = 1024, STREAM_BYTES = 1024, LONG_BYTES = 100000, WINDOW = 65535 };

enum protocol { H1, H2, WS, PROTOCOLS };

struct counters {
    uint32_t connections, exchanges, peers;
    uint64_t heads, bodies, replies; /* of the server */
    uint64_t peer_heads, peer_bodies, peer_replies;
    uint64_t owner_heads, owner_bodies, owner_replies;
};

struct desk {
    struct ws_bench b; /* first; b.f is the connection */
    enum protocol protocol;
    bool has_owner;
    struct h2_client h2;
    struct h2_seen *stream;
    struct http_handler handler;
};

static char filler[LONG_BYTES];

static struct str fill(size_t bytes) {
    memset(filler, 'x', sizeof(filler));
    return (struct str){filler, bytes};
}

static struct counters count(const struct desk *d) {
    struct http_server *s = d->b.f.server;
    struct counters n = {.connections = http_stats(s).connections,
                         .exchanges = http_stats(s).exchanges,
                         .peers = s->peers.count,
                         .heads = s->heads_bytes,
                         .bodies = http_stats(s).bodies_bytes,
                         .replies = http_stats(s).replies_bytes};
    if (d->b.f.conn && !d->b.f.is_closed) {
        const struct account *a = d->b.f.conn->account;
        n.peer_heads = a->heads_bytes;
        n.peer_bodies = a->bodies_bytes;
        n.peer_replies = a->replies_bytes;
    }
    const struct account *o = accounts_get(&s->owners, (struct account_id){.low = OWNER});
    n.owner_heads = o->heads_bytes;
    n.owner_bodies = o->bodies_bytes;
    n.owner_replies = o->replies_bytes;
    conns_verify(s);
    return n;
}

static void check_counters(const char *name, struct counters a, struct counters b) {
    if (memcmp(&a, &b, sizeof(a)) == 0) return;
    fail_msg("%s: connections %u %u, exchanges %u %u, heads %d %d, bodies %d %d, replies %d %d, "
             "peer %d %d %d, %d %d %d, owner %d %d %d, %d %d %d",
             name, a.connections, b.connections, a.exchanges, b.exchanges, (int)a.heads,
             (int)b.heads, (int)a.bodies, (int)b.bodies, (int)a.replies, (int)b.replies,
             (int)a.peer_heads, (int)a.peer_bodies, (int)a.peer_replies, (int)b.peer_heads,
             (int)b.peer_bodies, (int)b.peer_replies, (int)a.owner_heads, (int)a.owner_bodies,
             (int)a.owner_replies, (int)b.owner_heads, (int)b.owner_bodies, (int)b.owner_replies);
}

static void begin(struct desk *d, enum protocol protocol, bool has_owner) {
    *d = (struct desk){.protocol = protocol, .has_owner = has_owner};
    if (protocol == WS) {
        assert_int_equal(ws_bench_init(&d->b, NULL), ST_OK);
        d->b.options.message_bytes = LONG_BYTES;
        d->handler = ws_bench_http;
        d->handler.on_head = fake_on_head;
        d->b.f.server->handler = &d->handler;
    } else {
        assert_int_equal(fake_init(&d->b.f, NULL), ST_OK);
    }
    d->b.f.address = 1;
    d->b.f.document = http_document_create(fill(LONG_BYTES));
}

static void open_desk(struct desk *d) {
    assert_true(fake_connect(&d->b.f));
    if (d->protocol == H2) {
        h2_client_init(&d->h2, &d->b.f, true);
        h2_pump(&d->h2);
    }
    if (d->protocol == WS) {
        struct buf hello;
        buf_init(&hello, 1000);
        buf_put_text(&hello, WS_HELLO_TO("/now"));
        hello.len -= 2;
        buf_put_text(&hello, d->has_owner ? "x-owner: 7\r\n\r\n" : "\r\n");
        fake_send(&d->b.f, buf_str(&hello));
        buf_deinit(&hello);
        assert_non_null(d->b.ws);
    }
}

static void close_desk(struct desk *d) {
    fake_disconnect(&d->b.f);
    if (d->protocol == H2) h2_client_deinit(&d->h2);
    d->h2 = (struct h2_client){0};
}

static void end(struct desk *d) {
    struct http_document *document = d->b.f.document;
    if (d->protocol == WS)
        ws_bench_deinit(&d->b);
    else
        fake_deinit(&d->b.f);
    assert_int_equal(document->pins, 1); /* no response keeps it */
    http_document_unpin(document);
}

/* ---- stages ---- */

/* `method` "POST": with the first `sent` of 9 bytes. */
static void ask(struct desk *d, const char *method, const char *path, size_t sent) {
    const bool has_body = str_is(str_of(method), "POST");
    if (d->protocol == H1) {
        struct buf text;
        buf_init(&text, 1000);
        buf_printf(&text, "%s %s HTTP/1.1\r\nHost: a\r\n", method, path);
        if (d->has_owner) buf_printf(&text, "x-owner: %d\r\n", OWNER);
        if (has_body) buf_put_text(&text, "Content-Length: 9\r\n");
        buf_put_text(&text, "\r\n");
        buf_put(&text, "123456789", has_body ? sent : 0);
        fake_send(&d->b.f, buf_str(&text));
        buf_deinit(&text);
        return;
    }
    static const char *const nobody[] = {":authority", "a", NULL};
    static const char *const owner[] = {":authority", "a", "x-owner", "7", NULL};
    static char body[10];
    memcpy(body, "123456789", sizeof(body));
    body[sent] = 0;
    d->stream =
        h2_ask_with(&d->h2, method, path, d->has_owner ? owner : nobody, has_body ? body : NULL);
    d->stream->is_held = sent < 9;
    h2_pump(&d->h2);
}

/* Names and values, the target, and the exchange itself. */
static uint64_t head_bytes(const struct desk *d, const char *method, const char *path) {
    const bool has_body = str_is(str_of(method), "POST");
    uint64_t bytes = EXCHANGE_BYTES + strlen(path) + (d->has_owner ? strlen("x-owner7") : 0);
    if (d->protocol == H1)
        bytes += strlen("hosta") + (has_body ? strlen("content-length9") : 0);
    else
        bytes += strlen(method) + strlen(path) + strlen("a");
    return bytes;
}

static void charge(const struct desk *d, struct counters *n, uint64_t heads, uint64_t bodies,
                   uint64_t replies) {
    n->heads = heads;
    n->bodies = bodies;
    n->replies = n->peer_replies = replies;
    if (d->has_owner) {
        n->owner_heads = heads;
        n->owner_bodies = bodies;
        n->owner_replies = replies;
    } else {
        n->peer_heads = heads;
        n->peer_bodies = bodies;
    }
}

static void be_open(struct desk *d, struct counters *n) { (void)d, (void)n; }

static void send_part(struct desk *d, struct counters *n) {
    ask(d, "POST", "/hold", 5);
    n->exchanges = 1;
    charge(d, n, head_bytes(d, "POST", "/hold"), 5, 0);
}

static void be_held(struct desk *d, struct counters *n) {
    ask(d, "POST", "/hold", 9);
    assert_int_equal(d->b.f.held_count, 1);
    n->exchanges = 1;
    charge(d, n, head_bytes(d, "POST", "/hold"), 9, 0);
}

static void drop_body(struct desk *d, struct counters *n) {
    be_held(d, n);
    http_drop_body(d->b.f.held[0]);
    charge(d, n, head_bytes(d, "POST", "/hold"), 0, 0);
}

/* The head of the response and 1000 bytes: none is read. */
static void stream_unread(struct desk *d, struct counters *n) {
    be_held(d, n);
    struct http_exchange *x = d->b.f.held[0];
    d->b.f.room = 0;
    http_stream_begin(x, 200, NULL, 0);
    http_stream_put(x, fill(1000));
    http_stream_flush(x);
    const uint64_t queued = d->b.f.conn->sending.len + d->b.f.conn->pending.len;
    assert_true(queued > 1000);
    charge(d, n, head_bytes(d, "POST", "/hold"), 9, queued);
}

/* The window of the stream is used up; 1000 bytes more wait for it. */
static void stream_behind_window(struct desk *d, struct counters *n) {
    be_held(d, n);
    struct http_exchange *x = d->b.f.held[0];
    http_stream_begin(x, 200, NULL, 0);
    http_stream_put(x, fill(WINDOW));
    http_stream_flush(x);
    h2_pump(&d->h2);
    http_stream_put(x, fill(1000));
    http_stream_flush(x);
    charge(d, n, head_bytes(d, "POST", "/hold"), 9, STREAM_BYTES + 1000);
}

/* It was put and not flushed: it counts after the flush. */
static void stream_put(struct desk *d, struct counters *n) {
    be_held(d, n);
    struct http_exchange *x = d->b.f.held[0];
    http_stream_begin(x, 200, NULL, 0);
    http_stream_flush(x);
    http_stream_put(x, fill(1000));
}

static void leave_document_unread(struct desk *d, struct counters *n) {
    if (d->protocol == H1) d->b.f.room = 0;
    ask(d, "GET", "/document", 9);
    const uint64_t copied = d->b.f.conn->sending.len + d->b.f.conn->pending.len;
    if (d->protocol == H1) assert_true(copied > LONG_BYTES);
    if (d->protocol == H2) assert_int_equal(d->stream->body.len, WINDOW); /* the rest is shared */
    charge(d, n, 0, 0, d->protocol == H1 ? copied : STREAM_BYTES);
    assert_int_equal(d->b.f.document->pins, d->protocol == H1 ? 1 : 2);
}

static void be_refused(struct desk *d, struct counters *n) {
    (void)n;
    ask(d, "POST", "/early", 5);
    assert_int_equal(d->b.f.last_status, 401);
}

static void send_two(struct desk *d, struct counters *n) {
    be_held(d, n);
    ask(d, "POST", "/hold", 4);
    if (d->protocol == H1) return; /* it waits as bytes */
    n->exchanges = 2;
    charge(d, n, 2 * head_bytes(d, "POST", "/hold"), 9 + 4, 0);
}

static void say(struct desk *d, uint8_t first, size_t bytes) { ws_say(&d->b, first, fill(bytes)); }

static void send_fragment(struct desk *d, struct counters *n) {
    say(d, 0x01, 600);
    charge(d, n, 0, 600, 0);
}

static void send_fragments(struct desk *d, struct counters *n) {
    say(d, 0x01, 600);
    say(d, 0x00, 70);
    charge(d, n, 0, 670, 0);
}

static void send_message(struct desk *d, struct counters *n) {
    (void)n;
    say(d, 0x81, 600);
    say(d, 0x81, 600);
    assert_int_equal(d->b.received.len, 2 * 601);
}

static void echo_unread(struct desk *d, struct counters *n) {
    d->b.f.room = 0;
    d->b.echoes = true;
    say(d, 0x81, 600);
    charge(d, n, 0, 0, 4 + 600);
}

struct stage {
    const char *name;
    void (*arrange)(struct desk *d, struct counters *n);
    bool is_in[PROTOCOLS];
};

static const struct stage stages[] = {
    {"open", be_open, {true, true, true}},
    {"a part of a body", send_part, {true, true, false}},
    {"without a response", be_held, {true, true, false}},
    {"without its body", drop_body, {true, true, false}},
    {"a stream that is not read", stream_unread, {true, false, false}},
    {"a stream behind its window", stream_behind_window, {false, true, false}},
    {"a stream with bytes that are not flushed", stream_put, {true, true, false}},
    {"a document that is not read", leave_document_unread, {true, true, false}},
    {"a refused request", be_refused, {true, true, false}},
    {"two requests", send_two, {true, true, false}},
    {"a fragment", send_fragment, {false, false, true}},
    {"two fragments", send_fragments, {false, false, true}},
    {"two messages", send_message, {false, false, true}},
    {"a text that is not read", echo_unread, {false, false, true}},
};

/* ---- ways to leave ---- */

static void end_output(struct desk *d) { fake_end_input(&d->b.f, UV_EOF); }
static void reset(struct desk *d) { fake_end_input(&d->b.f, UV_ECONNRESET); }

static void break_write(struct desk *d) {
    struct fake *f = &d->b.f;
    if (!f->is_writing) {
        reset(d);
        return;
    }
    f->is_writing = false;
    f->taken = 0;
    conn_sent(f->conn, UV_EPIPE);
    fake_run_loop(f);
}

static void be_silent(struct desk *d) {
    while (d->b.f.held_count) { /* a response may take as long as it wants */
        if (d->b.f.held[0]->is_answered)
            http_stream_end(d->b.f.held[0]);
        else
            fake_answer(&d->b.f, d->b.f.held[0]);
        fake_run_loop(&d->b.f);
    }
    for (int i = 0; i < 20; i++) fake_pass_ms(&d->b.f, 60000);
    fake_end_input(&d->b.f, UV_EOF);
}

static void be_drained(struct desk *d) {
    http_server_drain(d->b.f.server);
    fake_run_loop(&d->b.f);
    fake_end_input(&d->b.f, UV_EOF);
    d->b.f.server->is_draining = false;
}

static void be_evicted(struct desk *d) {
    conn_close(d->b.f.conn); /* as evict.c and shed() do */
    fake_run_loop(&d->b.f);
}

/* The stream alone on HTTP/2, the closing handshake on a WebSocket. */
static void leave_politely(struct desk *d) {
    if (d->protocol == H2 && d->stream) {
        nghttp2_submit_rst_stream(d->h2.session, NGHTTP2_FLAG_NONE, d->stream->id, NGHTTP2_CANCEL);
        h2_pump(&d->h2);
        const struct counters n = count(d);
        const uint32_t left = d->h2.count > 1; /* of two the other one stays */
        assert_int_equal(n.exchanges, left);
        assert_int_equal(n.bodies, 9 * left);
        assert_int_equal(n.replies, 0);
        nghttp2_submit_goaway(d->h2.session, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, NULL, 0);
        h2_pump(&d->h2);
    }
    if (d->protocol == WS) {
        ws_say(&d->b, 0x88, STR("\x03\xe8"));
        assert_int_equal(d->b.closed, 1);
    }
    if (d->b.f.conn) fake_end_input(&d->b.f, UV_EOF);
    if (d->b.f.conn) fake_drain(&d->b.f); /* what is sent first is read */
    if (d->b.f.conn) fake_end_input(&d->b.f, UV_EOF);
}

static const struct {
    const char *name;
    void (*leave)(struct desk *d);
} ways[] = {
    {"an end", end_output},           {"a reset", reset},      {"a failed write", break_write},
    {"silence", be_silent},           {"a drain", be_drained}, {"an eviction", be_evicted},
    {"a polite end", leave_politely},
};

enum { WAYS = sizeof(ways) / sizeof(ways[0]), STAGES = sizeof(stages) / sizeof(stages[0]) };

/* Every head that the handler saw has ended, or its client has gone. */
static void check_told(const char *name, const struct fake *f) {
    if (f->heads == f->ends + f->gones + f->incompletes) return;
    fail_msg("%s: of %u requests %u have ended, %u are gone, %u are incomplete", name, f->heads,
             f->ends, f->gones, f->incompletes);
}

static void leave_at(enum protocol protocol, bool has_owner, const struct stage *stage,
                     uint32_t w) {
    static const char *const names[PROTOCOLS] = {"HTTP/1.1", "HTTP/2", "WebSocket"};
    char name[200];
    struct desk d;
    begin(&d, protocol, has_owner);
    snprintf(name, sizeof(name), "%s, %s, %s, %s", names[protocol],
             has_owner ? "with an owner" : "without", stage->name, ways[w].name);
    const struct counters before = count(&d);
    struct counters expected = before;
    expected.connections = expected.peers = 1;
    open_desk(&d);
    stage->arrange(&d, &expected);
    check_counters(name, count(&d), expected);
    ways[w].leave(&d);
    close_desk(&d);
    check_counters(name, count(&d), before);
    if (protocol != WS) check_told(name, &d.b.f);
    if (protocol == WS) assert_int_equal(d.b.closed, 1);
    end(&d);
}

static void test_whatever_a_client_held_is_given_back(void **state) {
    (void)state;
    for (int protocol = 0; protocol < PROTOCOLS; protocol++)
        for (uint32_t s = 0; s < STAGES; s++)
            for (uint32_t w = 0; stages[s].is_in[protocol] && w < WAYS; w++) {
                leave_at((enum protocol)protocol, false, &stages[s], w);
                leave_at((enum protocol)protocol, true, &stages[s], w);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whatever_a_client_held_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
