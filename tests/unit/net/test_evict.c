/* Goal:   when all places are taken the least useful connection of the peer with the most goes,
 *         busy ones stay, one peer has at most its share, and probes find a place.
 * Method: connections without sockets and with addresses of the test's choice are brought into
 *         every state; the test moves the clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "unit/net/h2_client.h"
#include "unit/net/ws_client.h"

#define GET "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"
#define HOLD "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"

enum { PLACES = 8, BYTES = 400000 };

struct room {
    struct fake root;
    struct fake peers[PLACES + 2];
    bool is_admitted[PLACES + 2];
};

static char text[BYTES];

static void begin(struct room *r, const struct http_limits *limits) {
    struct http_limits l = *limits;
    *r = (struct room){0};
    if (!l.connections) l.connections = PLACES;
    if (!l.peer_connections) l.peer_connections = UINT32_MAX;
    memset(text, 'x', sizeof(text));
    assert_int_equal(fake_init(&r->root, &l), ST_OK);
    for (int i = 0; i < PLACES + 2; i++) {
        r->peers[i].server = r->root.server;
        buf_init(&r->peers[i].out, FAKE_OUT_MAX);
    }
}

static void end(struct room *r) {
    conns_verify(r->root.server);
    for (int i = 0; i < PLACES + 2; i++) {
        fake_disconnect(&r->peers[i]);
        buf_deinit(&r->peers[i].out);
    }
    fake_deinit(&r->root);
}

/* What listen.c does for a new connection; false: there is no place for it. */
static bool arrive(struct room *r, int i, uint64_t address) {
    struct fake *f = &r->peers[i];
    f->address = address;
    assert_true(fake_connect(f));
    if (conn_admit(f->conn)) return true;
    fake_disconnect(f);
    return false;
}

static void pass_ms(struct room *r, int64_t ms) {
    fake_pass_ms(&r->root, ms);
    for (int i = 0; i < PLACES + 2; i++) fake_run_loop(&r->peers[i]);
}

/* Which connection was closed? -1: none; -2: several. */
static int find_closed(struct room *r) {
    int found = -1;
    for (int i = 0; i < PLACES + 2; i++) {
        if (!r->peers[i].is_closed) continue;
        found = found == -1 ? i : -2;
        fake_run_loop(&r->peers[i]);
    }
    conns_verify(r->root.server);
    return found;
}

/* ---- states ---- */

enum state { IDLE, LINGER, HEAD, BODY_, SLOW_READER, QUICK_READER, BUSY };

static void bring(struct room *r, int i, uint64_t address, enum state state) {
    struct fake *f = &r->peers[i];
    assert_true(arrive(r, i, address));
    switch (state) {
    case IDLE:
        fake_send(f, STR(GET));
        break;
    case LINGER:
        fake_send(f, STR("GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        assert_true(f->is_shut);
        break;
    case HEAD:
        fake_send(f, STR("GET /echo HTT"));
        break;
    case BODY_:
        fake_send(f, STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx"));
        break;
    case SLOW_READER:
    case QUICK_READER:
        fake_send(f, STR(HOLD));
        f->room = 0;
        http_reply(r->root.held[0], &(struct http_reply){.status = 200, .body = {text, BYTES}});
        break;
    case BUSY:
        fake_send(f, STR(HOLD));
        http_stream_begin(r->root.held[0], 200, NULL, 0);
        http_stream_put(r->root.held[0], STR("some"));
        http_stream_flush(r->root.held[0]);
        r->root.held_count = 0;
        break;
    }
}

/* ---- order ---- */

static void test_the_idlest_goes_first_then_the_slowest_and_busy_ones_stay(void **state) {
    (void)state;
    static const enum state states[PLACES] = {BUSY,   BODY_, QUICK_READER, IDLE,
                                              LINGER, HEAD,  SLOW_READER,  BUSY};
    struct room r;
    begin(&r, &(struct http_limits){.reserve = UINT32_MAX});
    r.root.server->limits.reserve = 0;
    for (int i = 0; i < PLACES; i++) bring(&r, i, 1 + (uint64_t)i, states[i]);
    pass_ms(&r, 500); /* not 1000: the one that lingers would close */
    assert_int_equal(find_closed(&r), -1);
    assert_true(conns_make_room(r.root.server, NULL));
    assert_int_equal(find_closed(&r), 3); /* idle for as long, and older */
    bring(&r, 3, 20, BUSY);
    assert_true(conns_make_room(r.root.server, NULL));
    assert_int_equal(find_closed(&r), 4);
    bring(&r, 4, 21, BUSY);
    pass_ms(&r, 2500);
    fake_take(&r.peers[2], 100000); /* 33 KB a second */
    fake_take(&r.peers[6], 10);
    static const int order[] = {5, 1, 6}; /* nothing has arrived since; 4 bytes a second */
    for (size_t k = 0; k < sizeof(order) / sizeof(order[0]); k++) {
        assert_true(conns_make_room(r.root.server, NULL));
        assert_int_equal(find_closed(&r), order[k]);
        bring(&r, order[k], 30 + k, BUSY);
    }
    assert_false(
        conns_make_room(r.root.server, NULL)); /* the quick reader and the busy ones stay */
    assert_int_equal(find_closed(&r), -1);
    assert_int_equal(http_stats(r.root.server).evicted, 5);
    end(&r);
}

static void test_the_slowest_reader_goes_before_a_less_slow_one(void **state) {
    (void)state;
    struct room r;
    begin(&r, &(struct http_limits){.reserve = 1});
    r.root.server->limits.reserve = 0;
    for (int i = 0; i < PLACES; i++) bring(&r, i, 1 + (uint64_t)i, SLOW_READER);
    pass_ms(&r, 3000);
    for (int i = 0; i < PLACES; i++) fake_take(&r.peers[i], 1000 + 10 * ((i + 5) % PLACES));
    for (int k = 0; k < PLACES; k++) { /* 3, 4, 5, ... */
        assert_true(conns_make_room(r.root.server, NULL));
        const int closed = find_closed(&r);
        assert_int_equal(closed, (3 + k) % PLACES);
        bring(&r, closed, 30, BUSY);
    }
    end(&r);
}

/* The kernel takes a response in large parts: for two seconds nothing is known of its reader. */
static void test_a_reader_is_not_slow_before_two_seconds(void **state) {
    (void)state;
    struct room r;
    begin(&r, &(struct http_limits){.reserve = 1});
    r.root.server->limits.reserve = 0;
    for (int i = 0; i < PLACES; i++) bring(&r, i, 1 + (uint64_t)i, SLOW_READER);
    pass_ms(&r, 1990);
    assert_false(conns_make_room(r.root.server, NULL));
    assert_int_equal(find_closed(&r), -1);
    pass_ms(&r, 20);
    assert_true(conns_make_room(r.root.server, NULL));
    assert_int_equal(find_closed(&r), 0);
    end(&r);
}

static void test_the_peer_with_the_most_connections_loses_one(void **state) {
    (void)state;
    struct room r;
    begin(&r, &(struct http_limits){.reserve = 1});
    r.root.server->limits.reserve = 0;
    static const uint64_t addresses[PLACES] = {1, 2, 3, 3, 2, 3, 0, 0};
    for (int i = 0; i < PLACES; i++) {
        bring(&r, i, addresses[i], HEAD);
        pass_ms(&r, 10);
    }
    assert_true(conns_make_room(r.root.server, NULL));
    assert_int_equal(find_closed(&r), 2); /* the oldest of peer 3; 0 are unix sockets */
    bring(&r, 2, 1, IDLE);
    assert_true(conns_make_room(r.root.server, NULL)); /* one that was just used is no idle one */
    assert_int_equal(find_closed(&r), 0);              /* the oldest: each peer has two now */
    bring(&r, 0, 4, BUSY);
    pass_ms(&r, 300);
    assert_true(conns_make_room(r.root.server, NULL)); /* an idle one of any peer comes before */
    assert_int_equal(find_closed(&r), 2);
    end(&r);
}

/* One client with many slow connections does not cost others their idle ones. */
/* Behind a unix socket or a trusted proxy there are many clients: they are no large peer. */
static void test_a_peer_without_limits_is_not_large(void **state) {
    (void)state;
    struct room r;
    begin(&r, &(struct http_limits){.reserve = 1});
    r.root.server->limits.reserve = 0;
    static const uint64_t addresses[PLACES] = {0, 0, 0, 0, 0, 0, 3, 3};
    for (int i = 0; i < PLACES; i++) {
        bring(&r, i, addresses[i], HEAD);
        pass_ms(&r, 10);
    }
    pass_ms(&r, 300);
    assert_true(conns_make_room(r.root.server, NULL));
    assert_int_equal(find_closed(&r), 6);
    end(&r);
}

static void test_the_slow_ones_of_a_large_peer_go_before_idle_ones_of_others(void **state) {
    (void)state;
    struct room r;
    begin(&r, &(struct http_limits){.reserve = 1});
    r.root.server->limits.reserve = 0;
    for (int i = 0; i < PLACES; i++) bring(&r, i, i < 5 ? 1 : 2, i < 5 ? HEAD : IDLE);
    pass_ms(&r, 300);
    assert_true(arrive(&r, PLACES, 3));
    assert_int_equal(find_closed(&r), 0);
    assert_true(arrive(&r, PLACES + 1, 3)); /* four are not many: now an idle one goes */
    assert_int_equal(find_closed(&r), 5);
    end(&r);
}

static void test_a_peer_at_its_limit_costs_nobody_else_a_connection(void **state) {
    (void)state;
    struct room r;
    begin(&r, &(struct http_limits){.reserve = 1, .peer_connections = 3});
    r.root.server->limits.reserve = 0;
    for (int i = 0; i < 3; i++) bring(&r, i, 1, BUSY);
    for (int i = 3; i < PLACES; i++) bring(&r, i, 10 + (uint64_t)i, IDLE);
    pass_ms(&r, 300);
    assert_false(arrive(&r, PLACES, 1));
    assert_int_equal(find_closed(&r), -1);
    assert_int_equal(http_stats(r.root.server).evicted, 0);
    assert_true(arrive(&r, PLACES, 2));
    assert_int_equal(find_closed(&r), 3);
    end(&r);
}

/* Nothing of the newest request has arrived yet, and two bytes a second of the others. */
static void test_a_request_that_has_just_begun_is_not_the_slowest(void **state) {
    (void)state;
    static const enum state states[] = {HEAD, BODY_};
    for (size_t k = 0; k < sizeof(states) / sizeof(states[0]); k++) {
        struct room r;
        begin(&r, &(struct http_limits){.reserve = 1});
        r.root.server->limits.reserve = 0;
        for (int i = 0; i < PLACES - 1; i++) bring(&r, i, 1 + (uint64_t)i, BODY_);
        for (int s = 0; s < 3; s++) {
            pass_ms(&r, 1000);
            for (int i = 0; i < PLACES - 1; i++) fake_send(&r.peers[i], STR("xx"));
        }
        bring(&r, PLACES - 1, PLACES, states[k]);
        assert_true(conns_make_room(r.root.server, NULL));
        assert_int_equal(find_closed(&r), 0);
        pass_ms(&r, 1000); /* nothing more has arrived of it: now it is */
        bring(&r, 0, 1, BUSY);
        assert_true(conns_make_room(r.root.server, NULL));
        assert_int_equal(find_closed(&r), PLACES - 1);
        end(&r);
    }
}

/* ---- peers ---- */

static void test_a_peer_has_at_most_its_number_of_connections(void **state) {
    (void)state;
    struct room r;
    begin(&r, &(struct http_limits){.peer_connections = 3});
    for (int i = 0; i < 3; i++) bring(&r, i, 1, i == 1 ? IDLE : BUSY);
    assert_true(arrive(&r, 3, 1)); /* its own idle one makes room, */
    assert_int_equal(find_closed(&r), 1);
    fake_send(&r.peers[3], STR(HOLD));
    assert_false(arrive(&r, 4, 1)); /* then none does */
    assert_int_equal(http_stats(r.root.server).peer_refused, 1);
    assert_int_equal(http_stats(r.root.server).refused, 1);
    for (int i = 5; i < 8; i++) assert_true(arrive(&r, i, 2)); /* others have their own */
    fake_disconnect(&r.peers[0]);
    assert_true(arrive(&r, 4, 1));
    end(&r);
}

static void test_half_of_the_connections_is_the_default_for_a_peer(void **state) {
    (void)state;
    struct room r;
    begin(&r, &(struct http_limits){0});
    const struct http_limits limits = {.connections = PLACES};
    http_set_limits(r.root.server, &limits);
    assert_int_equal(r.root.server->limits.peer_connections, PLACES / 2);
    for (int i = 0; i < PLACES / 2; i++) bring(&r, i, 1, BUSY);
    assert_false(arrive(&r, PLACES / 2, 1));
    for (int i = 4; i < PLACES - 1; i++) bring(&r, i, 0, BUSY); /* unix sockets have no limit */
    end(&r);
}

/* More long responses than are compared at a time do not hide an idle connection. */
static void test_an_idle_connection_behind_many_busy_ones_is_found(void **state) {
    (void)state;
    enum { MANY = 100 };
    static struct fake busy[MANY];
    struct room r;
    begin(&r, &(struct http_limits){.connections = 2 * MANY, .peer_connections = MANY + 1});
    for (int i = 0; i < MANY; i++) {
        busy[i] = (struct fake){.server = r.root.server, .address = 1};
        buf_init(&busy[i].out, FAKE_OUT_MAX);
        assert_true(fake_connect(&busy[i]));
        assert_true(conn_admit(busy[i].conn));
        fake_send(&busy[i], STR(HOLD));
        r.root.held_count = 0;
    }
    bring(&r, 0, 1, IDLE);
    assert_false(arrive(&r, 1, 1)); /* the first ones are all busy; */
    assert_true(arrive(&r, 2, 1));  /* now the others are compared */
    assert_int_equal(find_closed(&r), 0);
    for (int i = 0; i < MANY; i++) {
        fake_disconnect(&busy[i]);
        buf_deinit(&busy[i].out);
    }
    end(&r);
}

/* ---- the reserve ---- */

static void test_the_last_places_are_reserved(void **state) {
    (void)state;
    struct room r;
    begin(&r, &(struct http_limits){.reserve = 2});
    r.root.checks_room = true; /* 503 if http_is_reserved, unless the path is /probe */
    for (int i = 0; i < PLACES - 2; i++) bring(&r, i, 1, BUSY);
    assert_true(arrive(&r, 6, 2));
    fake_send(&r.peers[6], STR(GET));
    assert_non_null(strstr(r.peers[6].out.ptr, "HTTP/1.1 503"));
    assert_true(r.peers[6].is_shut); /* closes after the response */
    assert_true(arrive(&r, 7, 2));
    assert_int_equal(find_closed(&r), 6); /* it lingered */
    fake_send(&r.peers[7], STR("GET /probe HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_non_null(strstr(r.peers[7].out.ptr, "HTTP/1.1 200"));
    assert_non_null(strstr(r.peers[7].out.ptr, "connection: close"));
    assert_true(arrive(&r, 8, 3)); /* it lingers too and has made room, */
    assert_int_equal(find_closed(&r), 7);
    for (int i = 0; i < 3; i++) fake_disconnect(&r.peers[i]);
    fake_send(&r.peers[8], STR(GET)); /* and now there are places for all */
    assert_non_null(strstr(r.peers[8].out.ptr, "HTTP/1.1 200"));
    end(&r);
}

/* ---- HTTP/2 and WebSocket ---- */

static void test_http2_connections_are_evicted_if_idle_or_slow(void **state) {
    (void)state;
    static const struct {
        const char *method, *path, *body;
        bool is_held, is_evicted;
    } cases[] = {
        {NULL, NULL, NULL, false, true},       /* no stream */
        {"GET", "/hold", NULL, false, false},  /* a response is being produced */
        {"POST", "/echo", "some", true, true}, /* a body that does not arrive */
        {"POST", "/echo", text, false, true},  /* a response that is not read */
    };
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        struct room r;
        struct h2_client c;
        const nghttp2_settings_entry shut = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
        begin(&r, &(struct http_limits){.connections = 1, .reserve = 1});
        r.root.server->limits.reserve = 0;
        text[BYTES - 1] = 0;
        assert_true(arrive(&r, 0, 1));
        h2_client_init(&c, &r.peers[0], true);
        assert_int_equal(nghttp2_submit_settings(c.session, 0, &shut, 1), 0);
        struct h2_seen *s =
            cases[k].path ? h2_ask(&c, cases[k].method, cases[k].path, cases[k].body) : NULL;
        if (s) s->is_held = cases[k].is_held;
        h2_pump(&c);
        pass_ms(&r, 3000);
        assert_int_equal(conns_make_room(r.root.server, NULL), cases[k].is_evicted);
        assert_int_equal(find_closed(&r), cases[k].is_evicted ? 0 : -1);
        h2_client_deinit(&c);
        end(&r);
    }
}

static bool ws_is_idle;
static bool say_idle(void *ctx, const struct ws *ws) {
    (void)ctx, (void)ws;
    return ws_is_idle;
}

static void test_websockets_are_evicted_while_no_answer_is_under_way(void **state) {
    (void)state;
    struct ws_handler handler = ws_bench_handler;
    handler.is_idle = say_idle;
    for (int idle = 0; idle < 2; idle++) {
        struct ws_bench b;
        ws_is_idle = idle;
        assert_int_equal(ws_bench_init(&b, &(struct http_limits){.connections = 1}), ST_OK);
        b.options.handler = &handler;
        assert_true(fake_connect(&b.f));
        fake_send(&b.f, STR(WS_HELLO_TO("/")));
        assert_int_equal(conns_make_room(b.f.server, NULL), idle);
        assert_int_equal(b.closed, idle);
        ws_bench_deinit(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_idlest_goes_first_then_the_slowest_and_busy_ones_stay),
        cmocka_unit_test(test_the_slowest_reader_goes_before_a_less_slow_one),
        cmocka_unit_test(test_a_reader_is_not_slow_before_two_seconds),
        cmocka_unit_test(test_the_peer_with_the_most_connections_loses_one),
        cmocka_unit_test(test_a_peer_without_limits_is_not_large),
        cmocka_unit_test(test_the_slow_ones_of_a_large_peer_go_before_idle_ones_of_others),
        cmocka_unit_test(test_a_peer_at_its_limit_costs_nobody_else_a_connection),
        cmocka_unit_test(test_a_request_that_has_just_begun_is_not_the_slowest),
        cmocka_unit_test(test_a_peer_has_at_most_its_number_of_connections),
        cmocka_unit_test(test_an_idle_connection_behind_many_busy_ones_is_found),
        cmocka_unit_test(test_half_of_the_connections_is_the_default_for_a_peer),
        cmocka_unit_test(test_the_last_places_are_reserved),
        cmocka_unit_test(test_http2_connections_are_evicted_if_idle_or_slow),
        cmocka_unit_test(test_websockets_are_evicted_while_no_answer_is_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
