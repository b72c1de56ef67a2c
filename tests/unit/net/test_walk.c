/* Goal:   whatever clients and handler do, in any order, the queues of the server stay consistent
 *         and every request ends exactly once.
 * Method: a seeded random sequence of actions on several connections without sockets: connect, send
 *         pieces of valid and malformed requests, disconnect, read slowly, respond, stream, abort;
 *         every invariant is checked after every action. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "unit/net/fake.h"

enum { PEERS = 6, STEPS = 60000, WALKS = 3 };

struct walk {
    struct fake root;         /* owns the server and counts the handler's callbacks */
    struct fake peers[PEERS]; /* each has a connection of that server */
    struct str script[PEERS]; /* what it has still to send */
    uint64_t rng;
};

static uint32_t roll(struct walk *w, uint32_t count) {
    w->rng = w->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->rng >> 33) % count;
}

static struct str pick_script(struct walk *w) {
    static const char *const scripts[] = {
        "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /hold HTTP/1.1\r\nHost: a\r\n\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n",
        ("POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
         "POST /hold HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
         "chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        "HEAD /hold HTTP/1.1\r\nHost: a\r\n\r\nGET /stream HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /hold HTTP/1.0\r\n\r\n",
        "GET /hold HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /echo HTTP/1.1\r\n",
        "POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n123456789",
        "POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n123456789",
        "POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n123456789",
        "GET /hold HTTP/1.1\r\nHost: a\r\n\r\nnonsense\r\n\r\n",
        "POST /hold HTTP/1.1\r\nHost: a\r\nx-owner: 1\r\nContent-Length: 5\r\n\r\nhello",
        ("GET /hold HTTP/1.1\r\nHost: a\r\nx-owner: 2\r\n\r\n"
         "GET /hold HTTP/1.1\r\nHost: a\r\nx-owner: 1\r\n\r\n"),
    };
    return str_of(scripts[roll(w, sizeof(scripts) / sizeof(scripts[0]))]);
}

static void client_acts(struct walk *w, uint32_t k) {
    struct fake *f = &w->peers[k];
    if (!f->conn) {
        assert_true(fake_connect(f));
        w->script[k] = pick_script(w);
        return;
    }
    const uint32_t action = roll(w, 40);
    if (action == 0 || f->is_shut) fake_end_input(f, roll(w, 2) ? UV_EOF : UV_ECONNRESET);
    if (action == 1) f->room = roll(w, 200);
    if (action == 2) f->room = SIZE_MAX;
    if (action == 3) fake_drain(f);
    if (action == 4 && f->is_writing) {
        f->is_writing = false;
        conn_sent(f->conn, UV_EPIPE);
        fake_run_loop(f);
    }
    if (action < 20 || !f->conn) return;
    if (w->script[k].len == 0) w->script[k] = pick_script(w);
    if (!f->is_reading) return;
    const size_t n = 1 + roll(w, (uint32_t)w->script[k].len);
    fake_send(f, str_take(w->script[k], n));
    w->script[k] = str_skip(w->script[k], n);
}

static void handler_acts(struct walk *w) {
    struct fake *root = &w->root;
    if (root->held_count == 0) return;
    struct http_exchange *x = root->held[roll(w, root->held_count)];
    const uint32_t action = roll(w, 40);
    root->is_inside = true;
    if (!http_user(x) && action < 20) {
        root->is_inside = false;
        fake_answer(root, x);
    } else if (!http_user(x)) {
        http_set_user(x, w);
        http_stream_begin(x, 200, NULL, 0);
    } else if (action == 0) {
        http_stream_end(x);
    } else if (action == 1) {
        http_stream_abort(x);
    } else {
        http_stream_put(x, STR("data: something\n\n"));
        http_stream_flush(x);
    }
    root->is_inside = false;
}

static void walk_once(struct walk *w, uint64_t seed) {
    const struct http_limits limits = {.backlog_bytes = 300, .replies_bytes = 700};
    *w = (struct walk){.rng = seed};
    assert_int_equal(fake_init(&w->root, &limits), ST_OK);
    for (int k = 0; k < PEERS; k++) {
        w->peers[k].server = w->root.server;
        w->peers[k].address = (uint64_t)k / 2; /* 0: none */
        buf_init(&w->peers[k].out, FAKE_OUT_MAX);
    }
    for (int step = 0; step < STEPS; step++) {
        const uint32_t k = roll(w, PEERS);
        if (roll(w, 3) == 0)
            handler_acts(w);
        else
            client_acts(w, k);
        if (roll(w, 4) == 0) uv_run(&w->root.loop, UV_RUN_NOWAIT);
        for (int i = 0; i < PEERS; i++)
            if (w->peers[i].is_closed) fake_run_loop(&w->peers[i]);
        conns_verify(w->root.server);
    }
}

static void walk_end(struct walk *w) {
    for (int k = 0; k < PEERS; k++) {
        fake_disconnect(&w->peers[k]);
        buf_deinit(&w->peers[k].out);
    }
    assert_int_equal(w->root.held_count, 0);
    assert_int_equal(http_stats(w->root.server).exchanges, 0);
    assert_int_equal(http_stats(w->root.server).replies_bytes, 0);
    /* Every request that was handled has ended or its client has gone; early ones have ended. */
    assert_true(w->root.ends + w->root.gones >= w->root.requests);
    assert_int_equal(w->root.ends + w->root.gones + w->root.incompletes, w->root.heads);
    fake_deinit(&w->root);
}

static void test_random_walks_keep_every_invariant(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= WALKS; seed++) {
        struct walk w;
        walk_once(&w, seed);
        print_message(
            "seed %lu: %u requests, %u ended, %u gone, %u writables, %u errors, %lu shed\n",
            (unsigned long)seed, w.root.requests, w.root.ends, w.root.gones, w.root.writables,
            w.root.error_bodies, (unsigned long)http_stats(w.root.server).shed);
        assert_true(w.root.ends > 500);
        assert_true(w.root.gones > 50);
        assert_true(w.root.writables > 10);
        assert_true(w.root.error_bodies > 50);
        assert_true(http_stats(w.root.server).shed > 1);
        walk_end(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_walks_keep_every_invariant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
