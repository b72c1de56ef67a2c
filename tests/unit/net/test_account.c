/* Goal:   what one peer or owner holds is counted and limited, and others are not affected.
 * Method: addresses and networks as text; the tables against a plain list; several connections
 *         without sockets on one server, each with an address of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <string.h>

#include "base/mem.h"
#include "unit/net/h2_client.h"
#include "unit/net/ws_client.h"

enum { PEERS = 8, NINETY = 90 };

/* Connections of one server; room.peers[0] has address 1, and so on. */
struct room {
    struct fake root;
    struct fake peers[PEERS];
};

static void begin(struct room *r, const struct http_limits *limits) {
    *r = (struct room){0};
    assert_int_equal(fake_init(&r->root, limits), ST_OK);
    for (uint32_t i = 0; i < PEERS; i++) {
        r->peers[i].server = r->root.server;
        r->peers[i].address = i + 1;
        buf_init(&r->peers[i].out, FAKE_OUT_MAX);
    }
}

static void end(struct room *r) {
    for (uint32_t i = 0; i < PEERS; i++) {
        fake_disconnect(&r->peers[i]);
        buf_deinit(&r->peers[i].out);
    }
    assert_int_equal(r->root.server->peers.count, 0);
    fake_deinit(&r->root);
}

static bool has(const struct fake *f, const char *text) {
    return f->out.len && strstr(f->out.ptr, text) != NULL;
}

/* Send the head of a request with a body of 100 bytes, and 90 bytes of it. `owner` 0: none. */
static void send_most(struct fake *f, uint32_t owner) {
    struct buf text;
    buf_init(&text, 1000);
    assert_true(fake_connect(f));
    buf_put_text(&text, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n");
    if (owner) buf_printf(&text, "x-owner: %u\r\n", owner);
    buf_put_text(&text, "\r\n");
    for (int i = 0; i < NINETY; i++) buf_put_char(&text, 'x');
    fake_send(f, buf_str(&text));
    buf_deinit(&text);
}

static void check_answered(struct fake *f) {
    fake_send(f, STR("1234567890"));
    assert_true(has(f, "HTTP/1.1 200"));
}

/* ---- addresses ---- */

static void test_networks_are_read_and_matched(void **state) {
    (void)state;
    static const struct {
        const char *network, *address;
        bool is_valid, is_in;
    } cases[] = {
        {"10.0.0.0/8", "10.255.1.2", true, true},
        {"10.0.0.0/8", "11.0.0.0", true, false},
        {"10.1.2.3", "10.1.2.3", true, true},
        {"10.1.2.3", "10.1.2.4", true, false},
        {"10.1.2.128/25", "10.1.2.129", true, true},
        {"10.1.2.128/25", "10.1.2.127", true, false},
        {"10.1.2.3/32", "::ffff:10.1.2.3", true, true},
        {"0.0.0.0/0", "1.2.3.4", true, true},
        {"0.0.0.0/0", "2001:db8::1", true, false},
        {"::/0", "1.2.3.4", true, true},
        {"2001:db8::/33", "2001:db8:7fff::1", true, true},
        {"2001:db8::/33", "2001:db8:8000::1", true, false},
        {"::1", "::1", true, true},
        {"::1", "::2", true, false},
        {"10.0.0.0/33", "10.0.0.0", false, false},
        {"2001:db8::/129", "::1", false, false},
        {"10.0.0.0/", "10.0.0.0", false, false},
        {"10.0.0.0/-1", "10.0.0.0", false, false},
        {"10.0.0", "10.0.0.0", false, false},
        {"proxy.example", "10.0.0.0", false, false},
        {"", "10.0.0.0", false, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct network n, one;
        assert_true(network_parse(cases[i].address, &one));
        assert_int_equal(network_parse(cases[i].network, &n), cases[i].is_valid);
        if (cases[i].is_valid) assert_int_equal(network_has(&n, one.address), cases[i].is_in);
    }
}

static struct account_id id_of(const char *text) {
    struct network n;
    assert_true(network_parse(text, &n));
    return network_id(n.address, false);
}

static bool is_one_peer(const char *a, const char *b) {
    const struct account_id x = id_of(a), y = id_of(b);
    return x.high == y.high && x.low == y.low;
}

static void test_a_peer_is_an_ipv4_address_or_an_ipv6_network_of_64_bits(void **state) {
    (void)state;
    assert_true(is_one_peer("10.0.0.1", "10.0.0.1"));
    assert_true(is_one_peer("10.0.0.1", "::ffff:10.0.0.1"));
    assert_false(is_one_peer("10.0.0.1", "10.0.0.2"));
    assert_true(is_one_peer("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff"));
    assert_false(is_one_peer("2001:db8:0:1::1", "2001:db8:0:2::1"));
    assert_false(is_one_peer("::1", "10.0.0.1"));
    struct sockaddr_in in4 = {.sin_family = AF_INET, .sin_addr = {htonl(0x0a000001)}};
    struct network n;
    uint8_t bytes[16];
    assert_true(network_parse("10.0.0.1", &n));
    assert_true(network_address((const struct sockaddr *)&in4, bytes));
    assert_memory_equal(bytes, n.address, 16);
}

static void test_accounts_are_found_again_and_removed(void **state) {
    (void)state;
    enum { IDS = 2000 };
    struct account *all[IDS];
    struct accounts t;
    accounts_init(&t, 7);
    for (uint64_t i = 0; i < IDS; i++)
        assert_non_null(all[i] = accounts_get(&t, (struct account_id){i % 3, i}));
    assert_int_equal(t.count, IDS);
    for (uint64_t i = 0; i < IDS; i += 2) accounts_remove(&t, all[i]);
    for (uint64_t i = 1; i < IDS; i += 2)
        assert_ptr_equal(accounts_get(&t, (struct account_id){i % 3, i}), all[i]);
    assert_int_equal(t.count, IDS / 2);
    accounts_deinit(&t);
}

/* ---- bodies ---- */

static const struct http_limits body_limits = {.body_bytes = 100, .bodies_bytes = 800};

static void test_a_peer_holds_its_share_of_bodies_and_others_go_on(void **state) {
    (void)state;
    struct room r;
    begin(&r, &body_limits);
    for (uint32_t i = 0; i < 4; i++) r.peers[i].address = 1;
    for (uint32_t i = 0; i < 3; i++) send_most(&r.peers[i], 0);
    assert_false(has(&r.peers[1], "HTTP/1.1")); /* 2 * 90 are within the share of 200 */
    assert_true(has(&r.peers[2], "HTTP/1.1 429"));
    assert_true(has(&r.peers[2], "retry-after: 1\r\n"));
    assert_int_equal(http_stats(r.root.server).bodies_refused, 1);
    assert_int_equal(http_stats(r.root.server).bodies_bytes, 180);
    send_most(&r.peers[4], 0); /* another address */
    check_answered(&r.peers[4]);
    check_answered(&r.peers[0]);
    fake_disconnect(&r.peers[1]);
    send_most(&r.peers[3], 0); /* there is room again */
    check_answered(&r.peers[3]);
    end(&r);
}

static void test_an_owner_holds_its_share_wherever_it_comes_from(void **state) {
    (void)state;
    struct room r;
    begin(&r, &body_limits);
    for (uint32_t i = 0; i < 3; i++) send_most(&r.peers[i], 9); /* from three addresses */
    assert_true(has(&r.peers[2], "HTTP/1.1 429"));
    for (uint32_t i = 3; i < PEERS; i++) r.peers[i].address = 1;
    send_most(&r.peers[3], 10); /* the address of a client that is over its owner's share */
    check_answered(&r.peers[3]);
    check_answered(&r.peers[0]);
    end(&r);
}

static void test_all_together_are_limited_too(void **state) {
    (void)state;
    struct room r;
    begin(&r, &(struct http_limits){.body_bytes = 100, .bodies_bytes = 300});
    for (uint32_t i = 0; i < 4; i++) send_most(&r.peers[i], 0);
    assert_false(has(&r.peers[2], "HTTP/1.1"));
    assert_true(has(&r.peers[3], "HTTP/1.1 503"));
    assert_true(has(&r.peers[3], "retry-after: 1\r\n"));
    end(&r);
}

static void test_an_exempt_peer_has_no_share(void **state) {
    (void)state;
    struct room r;
    begin(&r, &body_limits);
    for (uint32_t i = 0; i < PEERS; i++) {
        r.peers[i].address = 0;
        send_most(&r.peers[i], 0);
        assert_false(has(&r.peers[i], "HTTP/1.1"));
    }
    for (uint32_t i = 0; i < PEERS; i++) check_answered(&r.peers[i]);
    end(&r);
}

static void test_one_body_always_fits_a_share(void **state) {
    (void)state;
    struct room r;
    begin(&r, &(struct http_limits){.body_bytes = 100, .bodies_bytes = 120});
    send_most(&r.peers[0], 0);
    check_answered(&r.peers[0]);
    end(&r);
}

static void test_bodies_on_http2_count_against_the_share(void **state) {
    (void)state;
    struct room r;
    struct h2_client c;
    char body[101] = "";
    memset(body, 'x', 100);
    begin(&r, &(struct http_limits){.body_bytes = 100, .bodies_bytes = 600});
    assert_true(fake_connect(&r.peers[0]));
    h2_client_init(&c, &r.peers[0], false);
    struct h2_seen *first = h2_ask(&c, "POST", "/hold", body);
    struct h2_seen *second = h2_ask(&c, "POST", "/hold", body);
    h2_pump(&c);
    assert_int_equal(first->status, 0);
    assert_int_equal(second->status, 429);
    assert_int_equal(r.root.server->bodies_bytes, 100);
    h2_client_deinit(&c);
    end(&r);
}

static void test_websocket_messages_count_against_the_share(void **state) {
    (void)state;
    struct ws_bench b;
    const struct http_limits limits = {.body_bytes = 100, .bodies_bytes = 400};
    assert_int_equal(ws_bench_init(&b, &limits), ST_OK);
    b.f.address = 1;
    assert_true(fake_connect(&b.f));
    fake_send(&b.f, STR(WS_HELLO_TO("/")));
    char text[90];
    memset(text, 'x', sizeof(text));
    ws_say(&b, 0x01, (struct str){text, sizeof(text)});
    assert_int_equal(b.f.conn->account->bodies_bytes, 90);
    ws_say(&b, 0x00, (struct str){text, sizeof(text)});
    assert_int_equal(b.closed, 1);
    assert_int_equal(b.code, WS_TRY_AGAIN_LATER);
    ws_bench_deinit(&b);
}

static void test_a_dropped_body_gives_its_room_back(void **state) {
    (void)state;
    struct room r;
    begin(&r, &body_limits);
    assert_true(fake_connect(&r.peers[0]));
    fake_send(
        &r.peers[0],
        STR("POST /hold HTTP/1.1\r\nHost: a\r\nx-owner: 3\r\nContent-Length: 5\r\n\r\nhello"));
    assert_int_equal(r.root.held_count, 1);
    assert_int_equal(r.root.server->bodies_bytes, 5);
    http_drop_body(r.root.held[0]);
    assert_int_equal(r.root.server->bodies_bytes, 0);
    assert_int_equal(http_body(r.root.held[0]).len, 0);
    fake_answer_held(&r.root);
    end(&r);
}

/* ---- heads ---- */

/* A stream that waits for its body holds its head, which HPACK makes cheap to send. */
static void test_heads_of_requests_under_way_have_a_limit(void **state) {
    (void)state;
    enum { LONG = 4000 };
    for (uint32_t owner = 0; owner < 2; owner++) {
        struct room r;
        struct h2_client c;
        static char value[LONG + 1];
        const char *const extra[] = {":authority", "a", "x-long", value, "x-owner", "1", NULL};
        const char *const plain[] = {":authority", "a", "x-long", value, NULL};
        memset(value, 'x', LONG);
        begin(&r, &(struct http_limits){.heads_bytes = 16 * LONG});
        assert_true(fake_connect(&r.peers[0]));
        h2_client_init(&c, &r.peers[0], false);
        for (int i = 0; i < 6; i++) {
            h2_ask_with(&c, "POST", "/hold", owner ? extra : plain, "x")->is_held = true;
            h2_pump(&c);
            conns_verify(r.root.server);
        }
        /* A quarter has room for three of 4,000 bytes and 1 KiB each. */
        for (int i = 0; i < 6; i++) assert_int_equal(c.streams[i].status, i < 3 ? 0 : 429);
        assert_in_range(r.root.server->heads_bytes, 3 * LONG, 4 * LONG);
        assert_int_equal(r.root.incompletes, 3);
        assert_true(fake_connect(&r.peers[1])); /* others go on */
        fake_send(&r.peers[1], STR("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_true(has(&r.peers[1], "HTTP/1.1 200"));
        fake_disconnect(&r.peers[0]);
        assert_int_equal(r.root.server->heads_bytes, 0);
        h2_client_deinit(&c);
        end(&r);
    }
}

static void test_heads_of_all_together_have_a_limit(void **state) {
    (void)state;
    struct room r;
    begin(&r, &(struct http_limits){.heads_bytes = 5000, .share = 1});
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(fake_connect(&r.peers[i]));
        fake_send(&r.peers[i], STR("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_int_equal(has(&r.peers[i], "HTTP/1.1 503"), i == 4);
    }
    fake_answer_held(&r.root);
    end(&r);
}

static void test_a_long_target_counts_as_part_of_the_head(void **state) {
    (void)state;
    enum { LONG = 4000 };
    struct room r;
    struct buf text;
    buf_init(&text, FAKE_OUT_MAX);
    buf_put_text(&text, "GET /hold?");
    for (int i = 0; i < LONG; i++) buf_put_char(&text, 'x');
    buf_put_text(&text, " HTTP/1.1\r\nHost: a\r\n\r\n");
    begin(&r, &(struct http_limits){0});
    assert_true(fake_connect(&r.peers[0]));
    fake_send(&r.peers[0], buf_str(&text));
    assert_int_equal(r.root.held_count, 1);
    assert_in_range(r.root.server->heads_bytes, LONG, 2 * LONG);
    fake_answer_held(&r.root);
    assert_int_equal(r.root.server->heads_bytes, 0);
    buf_deinit(&text);
    end(&r);
}

/* ---- queued responses ---- */

enum { BODY = 10000, KILO = 1000 };

/* A request whose response echoes `bytes` bytes. */
static void ask_for(struct fake *f, uint32_t owner, uint32_t bytes) {
    struct buf text;
    buf_init(&text, FAKE_OUT_MAX);
    buf_printf(&text, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %u\r\n", bytes);
    if (owner) buf_printf(&text, "x-owner: %u\r\n", owner);
    buf_put_text(&text, "\r\n");
    for (uint32_t i = 0; i < bytes; i++) buf_put_char(&text, 'x');
    fake_send(f, buf_str(&text));
    buf_deinit(&text);
}

/* A connection whose client does not read. */
static void connect_unread(struct fake *f) {
    assert_true(fake_connect(f));
    f->room = 0;
}

static void test_what_a_client_does_not_read_is_counted_four_times(void **state) {
    (void)state;
    struct room r;
    begin(&r, NULL);
    const struct http_server *s = r.root.server;
    connect_unread(&r.peers[0]);
    connect_unread(&r.peers[1]);
    ask_for(&r.peers[0], 7, BODY);
    ask_for(&r.peers[1], 0, BODY);
    conns_verify(s);
    const struct account *owner = accounts_get(&r.root.server->owners, (struct account_id){0, 7});
    const uint64_t first = r.peers[0].conn->queued, second = r.peers[1].conn->queued;
    assert_in_range(first, BODY, BODY + KILO);
    assert_int_equal(r.peers[0].conn->account->replies_bytes, first);
    assert_int_equal(owner->replies_bytes, first);
    assert_int_equal(http_stats(s).replies_bytes, first + second);
    fake_drain(&r.peers[0]);
    conns_verify(s);
    assert_int_equal(owner->replies_bytes, 0);
    assert_int_equal(s->replies_bytes, second);
    fake_disconnect(&r.peers[1]);
    assert_int_equal(s->replies_bytes, 0);
    end(&r);
}

static void test_a_peer_or_owner_over_its_share_of_replies_is_refused(void **state) {
    (void)state;
    for (uint32_t owner = 0; owner < 2; owner++) {
        struct room r;
        begin(&r, &(struct http_limits){.replies_bytes = 2 * BODY});
        r.root.checks_room = true;
        connect_unread(&r.peers[0]);
        ask_for(&r.peers[0], owner, BODY);
        r.peers[1].address = owner ? 2 : 1; /* the same owner, or the same address */
        assert_true(fake_connect(&r.peers[1]));
        ask_for(&r.peers[1], owner, 1);
        assert_true(has(&r.peers[1], "HTTP/1.1 429"));
        assert_true(fake_connect(&r.peers[2]));
        ask_for(&r.peers[2], owner ? 5 : 0, 1);
        assert_true(has(&r.peers[2], "HTTP/1.1 200"));
        fake_drain(&r.peers[0]);
        ask_for(&r.peers[1], owner, 1);
        assert_true(has(&r.peers[1], "HTTP/1.1 200"));
        end(&r);
    }
}

static void test_all_replies_together_have_a_limit(void **state) {
    (void)state;
    struct room r;
    begin(&r, &(struct http_limits){.replies_bytes = 4 * BODY});
    r.root.checks_room = true;
    for (uint32_t i = 0; i < 4; i++) {
        connect_unread(&r.peers[i]);
        ask_for(&r.peers[i], 0, BODY);
        assert_true(r.peers[i].conn->queued > BODY);
    }
    assert_true(fake_connect(&r.peers[4]));
    ask_for(&r.peers[4], 0, 1);
    assert_true(has(&r.peers[4], "HTTP/1.1 503"));
    for (uint32_t i = 0; i < 4; i++) fake_disconnect(&r.peers[i]);
    ask_for(&r.peers[4], 0, 1);
    assert_true(has(&r.peers[4], "HTTP/1.1 200"));
    end(&r);
}

/* Requests under way are answered in any case: then connections are closed, the one that holds most
 * of the peer that holds most first. */
static void test_over_the_limit_the_largest_of_the_largest_peer_is_closed(void **state) {
    (void)state;
    struct room r;
    begin(&r, &(struct http_limits){.replies_bytes = 4 * BODY}); /* closes above 5 * BODY */
    static const struct {
        uint64_t address;
        uint32_t bytes;
    } held[] = {{1, BODY}, {1, BODY / 2}, {1, BODY}, {2, 2 * BODY}, {3, BODY / 4}};
    r.peers[0].address = r.peers[1].address = r.peers[2].address = 1;
    for (uint32_t i = 0; i < 5; i++) {
        r.peers[i].address = held[i].address;
        connect_unread(&r.peers[i]);
        ask_for(&r.peers[i], 0, held[i].bytes + i);
        conns_run_deferred(&r.root.server->defer_idle);
        assert_int_equal(http_stats(r.root.server).shed, 0);
    }
    connect_unread(&r.peers[5]); /* peer 1 holds 2.5 BODY, peer 2 holds 2, peer 6 holds 1 */
    ask_for(&r.peers[5], 0, BODY);
    assert_true(r.root.server->replies_bytes > 5 * BODY);
    conns_run_deferred(&r.root.server->defer_idle);
    assert_int_equal(http_stats(r.root.server).shed, 1);
    for (uint32_t i = 0; i < 6; i++) assert_int_equal(r.peers[i].is_closed, i == 2);
    fake_run_loop(&r.peers[2]);
    conns_verify(r.root.server);
    end(&r);
}

static void test_http2_streams_are_refused_while_much_waits_on_their_connection(void **state) {
    (void)state;
    struct room r;
    struct h2_client c;
    const nghttp2_settings_entry shut = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
    static char body[BODY + 1];
    memset(body, 'x', BODY);
    begin(&r, &(struct http_limits){.queue_bytes = 3 * BODY});
    assert_true(fake_connect(&r.peers[0]));
    h2_client_init(&c, &r.peers[0], true);
    assert_int_equal(nghttp2_submit_settings(c.session, 0, &shut, 1), 0);
    for (int i = 0; i < 6; i++) {
        h2_ask(&c, "POST", "/echo", body);
        h2_pump(&c);
        conns_verify(r.root.server);
    }
    for (int i = 0; i < 6; i++) assert_int_equal(c.streams[i].status, i < 3 ? 200 : 503);
    assert_int_equal(r.root.heads, 3); /* the handler has not seen the others */
    assert_in_range(r.root.server->replies_bytes, 3 * BODY, 3 * BODY + 9 * KILO);
    for (int i = 0; i < 6; i++)
        nghttp2_submit_window_update(c.session, 0, c.streams[i].id, 2 * BODY);
    h2_pump(&c);
    assert_int_equal(r.root.server->replies_bytes, 0);
    struct h2_seen *again = h2_ask(&c, "GET", "/echo", NULL);
    h2_pump(&c);
    assert_int_equal(again->status, 200);
    conns_verify(r.root.server);
    h2_client_deinit(&c);
    end(&r);
}

/* Also the short text of a refusal waits in memory if the client does not read it. */
static void test_refusals_that_are_not_read_are_counted(void **state) {
    (void)state;
    enum { ASKED = 20 };
    struct room r;
    struct h2_client c;
    const nghttp2_settings_entry shut = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
    begin(&r, &(struct http_limits){.body_bytes = 10});
    assert_true(fake_connect(&r.peers[0]));
    h2_client_init(&c, &r.peers[0], true);
    assert_int_equal(nghttp2_submit_settings(c.session, 0, &shut, 1), 0);
    for (int i = 0; i < ASKED; i++) h2_ask(&c, "POST", "/echo", "a body of more than ten bytes");
    h2_pump(&c);
    for (int i = 0; i < ASKED; i++) assert_int_equal(c.streams[i].status, 413);
    assert_in_range(r.root.server->replies_bytes, ASKED * KILO, 2 * ASKED * KILO);
    assert_int_equal(r.peers[0].conn->account->replies_bytes, r.root.server->replies_bytes);
    conns_verify(r.root.server);
    h2_client_deinit(&c);
    end(&r);
}

static void test_many_http2_requests_let_others_pass(void **state) {
    (void)state;
    enum { ASKED = 90 };
    struct room r;
    struct h2_client c;
    struct buf asked;
    const uint8_t *bytes;
    ssize_t len;
    begin(&r, NULL);
    assert_true(fake_connect(&r.peers[0]));
    h2_client_init(&c, &r.peers[0], false);
    h2_pump(&c);
    buf_init(&asked, 1 << 20);
    for (int i = 0; i < ASKED; i++) h2_ask(&c, "GET", "/echo", NULL);
    while ((len = nghttp2_session_mem_send(c.session, &bytes)) > 0)
        buf_put(&asked, bytes, (size_t)len);
    conn_received(r.peers[0].conn, buf_str(&asked));
    for (uint32_t done = 16; done < ASKED; done += 16) {
        assert_int_equal(r.root.requests, done); /* the loop would read other connections here */
        conns_verify(r.root.server);
        conns_run_deferred(&r.root.server->defer_idle);
    }
    assert_int_equal(r.root.requests, ASKED);
    h2_pump(&c);
    for (uint32_t i = 0; i < c.count; i++) assert_int_equal(c.streams[i].status, 200);
    buf_deinit(&asked);
    h2_client_deinit(&c);
    end(&r);
}

static uint64_t test_now_ns;
static uint64_t test_clock(void) { return test_now_ns; }

/* Input that arrives late in a turn is deferred; then peers are served in turn, not connections. */
static void test_peers_have_their_turn_while_the_loop_is_late(void **state) {
    (void)state;
    struct room r;
    begin(&r, NULL);
    r.root.server->clock_ns = test_clock;
    test_now_ns = 1;
    for (uint32_t i = 0; i < PEERS; i++) {
        r.peers[i].address = i < PEERS - 1 ? 1 : 2;
        assert_true(fake_connect(&r.peers[i]));
    }
    conn_received(r.peers[0].conn, STR("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_true(has(&r.peers[0], "HTTP/1.1 200")); /* the turn has begun */
    test_now_ns += 6000000;
    for (uint32_t i = 0; i < PEERS; i++)
        conn_received(r.peers[i].conn, STR("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_int_equal(r.root.held_count, 0);
    conns_verify(r.root.server);
    conns_run_deferred(&r.root.server->defer_idle);
    assert_int_equal(r.root.held_count, PEERS);
    /* The only connection of peer 2 came last and was served second. */
    assert_ptr_equal(r.root.held[1]->conn, r.peers[PEERS - 1].conn);
    fake_answer_held(&r.root);
    end(&r);
}

/* ---- documents ---- */

static void test_a_document_is_sent_by_many_streams_without_a_copy(void **state) {
    (void)state;
    enum { BYTES = 100000, STREAMS = 50 };
    struct room r;
    struct h2_client c;
    char *text = mem_zalloc(BYTES);
    assert_non_null(text);
    memset(text, 'd', BYTES);
    begin(&r, NULL);
    r.root.document = http_document_create((struct str){text, BYTES});
    assert_true(fake_connect(&r.peers[0]));
    h2_client_init(&c, &r.peers[0], true);
    for (int i = 0; i < STREAMS; i++) h2_ask(&c, "GET", "/document", NULL);
    h2_pump(&c);
    assert_int_equal(r.root.document->pins, 1 + STREAMS);
    assert_true(r.root.server->replies_bytes < 2 * BYTES); /* 50 streams, not 50 documents */
    http_document_unpin(r.root.document);
    for (int i = 0; i < STREAMS; i++) {
        nghttp2_submit_window_update(c.session, 0, c.streams[i].id, BYTES);
        nghttp2_submit_window_update(c.session, 0, 0, BYTES);
    }
    h2_pump(&c);
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(c.streams[i].body.len, BYTES);
        assert_memory_equal(c.streams[i].body.ptr, text, BYTES);
        assert_true(c.streams[i].is_closed);
    }
    h2_client_deinit(&c);
    mem_free(text);
    end(&r);
}

static void test_a_document_is_sent_on_http1_and_its_head_alone_for_head(void **state) {
    (void)state;
    struct room r;
    begin(&r, NULL);
    r.root.document = http_document_create(STR("the document"));
    assert_true(fake_connect(&r.peers[0]));
    fake_send(&r.peers[0], STR("GET /document HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_true(has(&r.peers[0], "content-length: 12\r\n\r\nthe document"));
    buf_clear(&r.peers[0].out);
    fake_send(&r.peers[0], STR("HEAD /document HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_true(has(&r.peers[0], "content-length: 12\r\n"));
    assert_false(has(&r.peers[0], "the document"));
    assert_int_equal(r.root.document->pins, 1);
    http_document_unpin(r.root.document);
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_networks_are_read_and_matched),
        cmocka_unit_test(test_a_peer_is_an_ipv4_address_or_an_ipv6_network_of_64_bits),
        cmocka_unit_test(test_accounts_are_found_again_and_removed),
        cmocka_unit_test(test_a_peer_holds_its_share_of_bodies_and_others_go_on),
        cmocka_unit_test(test_an_owner_holds_its_share_wherever_it_comes_from),
        cmocka_unit_test(test_all_together_are_limited_too),
        cmocka_unit_test(test_an_exempt_peer_has_no_share),
        cmocka_unit_test(test_one_body_always_fits_a_share),
        cmocka_unit_test(test_bodies_on_http2_count_against_the_share),
        cmocka_unit_test(test_websocket_messages_count_against_the_share),
        cmocka_unit_test(test_a_dropped_body_gives_its_room_back),
        cmocka_unit_test(test_heads_of_requests_under_way_have_a_limit),
        cmocka_unit_test(test_heads_of_all_together_have_a_limit),
        cmocka_unit_test(test_a_long_target_counts_as_part_of_the_head),
        cmocka_unit_test(test_what_a_client_does_not_read_is_counted_four_times),
        cmocka_unit_test(test_a_peer_or_owner_over_its_share_of_replies_is_refused),
        cmocka_unit_test(test_all_replies_together_have_a_limit),
        cmocka_unit_test(test_over_the_limit_the_largest_of_the_largest_peer_is_closed),
        cmocka_unit_test(test_http2_streams_are_refused_while_much_waits_on_their_connection),
        cmocka_unit_test(test_refusals_that_are_not_read_are_counted),
        cmocka_unit_test(test_many_http2_requests_let_others_pass),
        cmocka_unit_test(test_peers_have_their_turn_while_the_loop_is_late),
        cmocka_unit_test(test_a_document_is_sent_by_many_streams_without_a_copy),
        cmocka_unit_test(test_a_document_is_sent_on_http1_and_its_head_alone_for_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
