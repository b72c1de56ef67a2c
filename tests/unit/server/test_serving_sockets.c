/* Goal:   a watcher of an engine gets every step once, from where it wants. On a WebSocket every
 *         request ends with one final message, in every state: queued, busy, cancelled, while the
 *         server drains, after its key was removed. A key file that has changed is in force for all
 *         that depends on it.
 * Method: the whole server on a loop that the test turns, with a stopped clock and an engine that
 *         is stepped by hand; frames are written and read as bytes.
 * wrap: clock_now engine_start log_line tracer_add uv_now uv_timer_start */
#include "server/generations.h"
#include "unit/server/server_rig.h"

#define ASK "{\"path\":\"/v1/completions\",\"body\":{\"prompt\":[5,6,7],\"max_tokens\":3}}"
#define CANCEL "{\"type\":\"cancel\"}"

enum { FRAME_BYTES = 70000, TEXT_FRAME = 0x81, CLOSE_FRAME = 0x88 };

/* One message of the server. */
struct frame {
    unsigned kind;
    struct str text; /* in the client's buffer */
};

static void ws_write(struct server_rig *g, struct client *c, const char *text) {
    static unsigned char frame[FRAME_BYTES + 14];
    const size_t len = strlen(text);
    size_t used = 0;
    assert_true(len <= FRAME_BYTES);
    frame[used++] = TEXT_FRAME;
    if (len < 126) {
        frame[used++] = (unsigned char)(0x80 | len);
    } else {
        frame[used++] = 0x80 | 127;
        for (int i = 7; i >= 0; i--) frame[used++] = (unsigned char)((uint64_t)len >> (8 * i));
    }
    for (int i = 0; i < 4; i++) frame[used++] = 0; /* a mask that changes nothing */
    memcpy(frame + used, text, len);
    client_write(g, c, (struct str){(const char *)frame, used + len});
}

/* Takes the first frame out of what has come; false: none is complete. */
static bool ws_take(struct client *c, size_t *at, struct frame *out) {
    const struct str in = str_skip(buf_str(&c->in), *at);
    const unsigned char *b = (const unsigned char *)in.ptr;
    if (in.len < 2) return false;
    size_t len = b[1] & 127, head = 2;
    if (len == 126) {
        if (in.len < 4) return false;
        len = (size_t)b[2] << 8 | b[3];
        head = 4;
    }
    assert_true(len < 65536);
    if (in.len < head + len) return false;
    *out = (struct frame){.kind = b[0], .text = {in.ptr + head, len}};
    *at += head + len;
    return true;
}

struct socket {
    struct client client;
    size_t at; /* behind the last frame */
};

static bool ws_next(struct server_rig *g, struct socket *w, struct frame *out) {
    const int64_t began_us = __real_clock_now(&clock_real);
    while (!ws_take(&w->client, &w->at, out)) {
        assert_false(rig_is_late(began_us));
        rig_turn(g);
        client_read(&w->client);
        if (w->client.is_closed && !ws_take(&w->client, &w->at, out)) return false;
    }
    return true;
}

static void ws_open(struct server_rig *g, struct socket *w, const char *headers) {
    struct buf text;
    *w = (struct socket){.at = 0};
    client_open(g, &w->client);
    buf_init(&text, 4096);
    buf_printf(&text,
               "GET /v1/stream HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: "
               "Upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: "
               "dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n",
               headers);
    client_write(g, &w->client, buf_str(&text));
    buf_deinit(&text);
    const int64_t began_us = __real_clock_now(&clock_real);
    const char *end;
    while (client_read(&w->client), !(end = strstr(buf_text(&w->client.in), "\r\n\r\n"))) {
        assert_false(rig_is_late(began_us));
        rig_turn(g);
    }
    assert_memory_equal(buf_text(&w->client.in), "HTTP/1.1 101", 12);
    w->at = (size_t)(end + 4 - buf_text(&w->client.in));
}

static void assert_text(struct server_rig *g, struct socket *w, const char *words) {
    struct frame f;
    assert_true(ws_next(g, w, &f));
    assert_int_equal(f.kind, TEXT_FRAME);
    char text[4096];
    snprintf(text, sizeof(text), "%.*s", STR_ARG(f.text));
    if (!strstr(text, words)) fail_msg("no %s: %s", words, text);
}

static void assert_done(struct server_rig *g, struct socket *w) {
    struct frame f;
    assert_true(ws_next(g, w, &f));
    assert_true(str_is(f.text, "[DONE]"));
}

static void assert_silent(struct server_rig *g, struct socket *w) {
    struct frame f;
    for (int i = 0; i < 5; i++) rig_turn(g);
    client_read(&w->client);
    assert_false(ws_take(&w->client, &w->at, &f));
}

/* The close frame, with its code. */
static void assert_closed(struct server_rig *g, struct socket *w, uint32_t code) {
    struct frame f;
    assert_true(ws_next(g, w, &f));
    assert_int_equal(f.kind, CLOSE_FRAME);
    assert_true(f.text.len >= 2);
    const unsigned char *b = (const unsigned char *)f.text.ptr;
    assert_int_equal((uint32_t)b[0] << 8 | b[1], code);
}

/* Messages until the end mark; how many. */
static uint32_t count_to_end(struct server_rig *g, struct socket *w) {
    struct frame f;
    for (uint32_t count = 0; count < 1000; count++) {
        assert_true(ws_next(g, w, &f));
        if (str_is(f.text, "[DONE]")) return count;
    }
    fail_msg("no end");
    return 0;
}

static bool has_live(struct server_rig *g) {
    return generations_stats(g->server->generations).live > 0;
}

static void queue(struct server_rig *g, struct socket *w, const char *message) {
    ws_write(g, &w->client, message);
    rig_until(g, has_live);
    rig_until(g, rig_is_prepared);
}

static void finish(struct server_rig *g) {
    while (!rig_is_quiet(g)) rig_step(g, 1);
}

/* ---- requests ---- */

static void test_requests_of_a_socket_follow_each_other(void **state) {
    (void)state;
    struct server_rig g;
    struct socket w;
    uint32_t counts[2];
    rig_open(&g, NULL, NULL);
    ws_open(&g, &w, "");
    for (int i = 0; i < 2; i++) {
        queue(&g, &w, ASK);
        assert_silent(&g, &w);
        finish(&g);
        counts[i] = count_to_end(&g, &w);
        rig_assert_logged("request", "route=/v1/completions");
        rig_assert_logged("request", "completion_tokens=3");
        rig_assert_logged("request", "finish=length");
    }
    assert_true(counts[0] >= 3);
    assert_int_equal(counts[0], counts[1]);
    client_close(&w.client);
    rig_close(&g);
}

static void test_an_invalid_message_is_answered_and_the_socket_stays_open(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{", "the message is not JSON"},
        {"[1]", "the message must be a JSON object"},
        {"{\"path\":\"/v1/models\",\"body\":{}}", "is not a path that gives text"},
        {"{\"path\":\"/nowhere\",\"body\":{}}", "is not a path that gives text"},
        {"{\"path\":\"/v1/completions\",\"body\":3}", "body must be an object"},
        {"{\"path\":\"/v1/completions\",\"body\":{\"prompt\":[5],\"n\":99}}", "error"},
        {"{\"path\":\"/v1/completions\",\"body\":{\"prompt\":[300]}}", "vocabulary"},
        {"{\"path\":\"/v1/completions\",\"body\":{\"prompt\":[5],\"model\":\"none\"}}",
         "unknown model"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", "no usable chat template"},
    };
    struct server_rig g;
    struct socket w;
    rig_open(&g, NULL, NULL);
    ws_open(&g, &w, "");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ws_write(&g, &w.client, cases[i][0]);
        assert_text(&g, &w, cases[i][1]);
        assert_done(&g, &w);
    }
    ws_write(&g, &w.client, CANCEL); /* of nothing */
    assert_silent(&g, &w);
    queue(&g, &w, ASK);
    finish(&g);
    assert_true(count_to_end(&g, &w) >= 3);
    client_close(&w.client);
    rig_close(&g);
}

/* A message of 64 KiB is read in the pool. */
static void test_a_second_request_is_refused_while_one_is_queued(void **state) {
    (void)state;
    struct server_rig g;
    struct socket w;
    static char big[66000];
    rig_open(&g, NULL, NULL);
    ws_open(&g, &w, "");
    queue(&g, &w, ASK);
    ws_write(&g, &w.client, ASK);
    assert_text(&g, &w, "\"code\":\"busy\"");
    assert_silent(&g, &w); /* an end mark would be the other's */
    size_t used = (size_t)snprintf(big, sizeof(big), "{\"path\":\"");
    memset(big + used, 'a', 65800);
    snprintf(big + used + 65800, 10, "\"}");
    ws_write(&g, &w.client, big);
    assert_text(&g, &w, "an answer is under way; wait for its end");
    assert_silent(&g, &w);
    finish(&g);
    assert_true(count_to_end(&g, &w) >= 3);
    client_close(&w.client);
    rig_close(&g);
}

static void test_a_queued_request_is_cancelled(void **state) {
    (void)state;
    struct server_rig g;
    struct socket w;
    rig_open(&g, "k1 name=alice tpm=1000\nk2\n", NULL);
    rig_stop_clock();
    const struct key *key = keys_find(g.server->keys, STR("k1"));
    ws_open(&g, &w, "authorization: Bearer k1\r\n");
    queue(&g, &w, ASK);
    assert_int_equal(keys_room(g.server->keys, key, clock_now(&clock_real)).tokens_left, 994);
    ws_write(&g, &w.client, CANCEL);
    assert_text(&g, &w, "the request was cancelled");
    assert_done(&g, &w);
    finish(&g);
    rig_assert_logged("request", "status=499");
    rig_assert_logged("request", "key=alice");
    assert_int_equal(keys_room(g.server->keys, key, clock_now(&clock_real)).tokens_left, 997);
    queue(&g, &w, ASK);
    finish(&g);
    assert_true(count_to_end(&g, &w) >= 3);
    client_close(&w.client);
    rig_close(&g);
}

static bool has_no_client(struct server_rig *g) { return g->server->ws_clients.count == 0; }

static void test_a_socket_that_disconnects_cancels_its_queued_request(void **state) {
    (void)state;
    struct server_rig g;
    struct socket w;
    rig_open(&g, NULL, NULL);
    ws_open(&g, &w, "");
    assert_int_equal(g.server->ws_clients.count, 1);
    queue(&g, &w, ASK);
    client_close(&w.client);
    rig_until(&g, has_no_client);
    finish(&g);
    rig_assert_logged("request", "finish=cancelled");
    rig_assert_logged("request", "completion_tokens=0");
    assert_int_equal(g.model->live_choices, 0);
    rig_close(&g);
}

static void test_a_plain_request_is_told_to_upgrade(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    rig_open(&g, NULL, NULL);
    ask(&g, &r, "GET /v1/stream", NULL, NULL);
    assert_refused(&r, 426, "upgrade_required", "requires an upgrade to WebSocket");
    assert_header(&r, "upgrade", "websocket");
    assert_header(&r, "sec-websocket-version", "13");
    reply_free(&r);
    rig_close(&g);
}

/* ---- the drain ---- */

static bool is_draining(struct server_rig *g) { return g->server->is_draining; }

static void test_a_drain_closes_idle_sockets_and_lets_others_finish(void **state) {
    (void)state;
    struct server_rig g;
    struct socket idle, busy;
    rig_open(&g, NULL, NULL);
    ws_open(&g, &idle, "");
    ws_open(&g, &busy, "");
    queue(&g, &busy, ASK);
    raise(SIGTERM);
    rig_until(&g, is_draining);
    assert_closed(&g, &idle, 1001);
    assert_silent(&g, &busy);
    finish(&g);
    assert_true(count_to_end(&g, &busy) >= 3);
    assert_closed(&g, &busy, 1001);
    client_close(&idle.client);
    client_close(&busy.client);
    rig_close(&g);
}

/* A message of 64 KiB, which the pool reads, so that the drain begins meanwhile. */
static void test_a_message_that_is_read_during_a_drain_is_refused(void **state) {
    (void)state;
    struct server_rig g;
    struct socket w;
    static char big[68000];
    rig_open(&g, NULL, NULL);
    ws_open(&g, &w, "");
    rig_block_pool(&g);
    size_t used = (size_t)snprintf(
        big, sizeof(big), "{\"path\":\"/v1/completions\",\"body\":{\"max_tokens\":2,\"prompt\":\"");
    memset(big + used, 'a', 66000);
    snprintf(big + used + 66000, 10, "\"}}");
    ws_write(&g, &w.client, big);
    const int64_t began_us = __real_clock_now(&clock_real);
    while (g.server->tasks == 0) {
        assert_false(rig_is_late(began_us));
        rig_turn(&g);
    }
    raise(SIGTERM);
    rig_until(&g, is_draining);
    assert_silent(&g, &w); /* it is not closed before it is answered */
    rig_open_pool();
    assert_text(&g, &w, "the server is shutting down");
    assert_done(&g, &w);
    assert_closed(&g, &w, 1001);
    client_close(&w.client);
    rig_close(&g);
}

/* ---- watchers of the engine ---- */

static void read_until(struct server_rig *g, struct client *c, const char *words) {
    const int64_t began_us = __real_clock_now(&clock_real);
    while (client_read(c), !strstr(buf_text(&c->in), words)) {
        assert_false(rig_is_late(began_us));
        rig_turn(g);
    }
}

/* The first step that a watcher has got. */
static uint32_t first_step(struct client *c) {
    const char *at = strstr(buf_text(&c->in), "\nid: ");
    return at ? (uint32_t)strtoul(at + 5, NULL, 10) : 0;
}

static void test_a_watcher_begins_where_it_wants(void **state) {
    (void)state;
    static const struct {
        const char *line, *headers;
        uint32_t first;
    } cases[] = {
        {"GET /v1/engine/steps", NULL, 5},
        {"GET /v1/engine/steps?from=1", NULL, 1},
        {"GET /v1/engine/steps?from=0", NULL, 1},
        {"GET /v1/engine/steps?from=3", NULL, 3},
        {"GET /v1/engine/steps?from=4", NULL, 4},
        {"GET /v1/engine/steps?from=5", NULL, 5},
        {"GET /v1/engine/steps?from=1000", NULL, 5},
        {"GET /v1/engine/steps?from=1", "last-event-id: 2\r\n", 3},
        {"GET /v1/engine/steps?from=1", "last-event-id: 18446744073709551615\r\n", 1},
        {"GET /v1/engine/steps", "last-event-id: 0\r\n", 1},
    };
    enum { CASES = sizeof(cases) / sizeof(cases[0]) };
    struct server_rig g;
    struct client c[CASES];
    rig_open(&g, NULL, (const char *const[]){"set", "max_seqs=3", "set", "kv_blocks=40", NULL});
    expect(&g, "POST /v1/completions", NULL, "{\"prompt\":[5],\"max_tokens\":4}", 200, NULL, NULL);
    rig_is_held = true;
    for (uint32_t i = 0; i < CASES; i++) {
        client_send(&g, &c[i], cases[i].line, cases[i].headers, NULL);
        read_until(&g, &c[i], "event: hello\ndata: ");
    }
    rig_is_held = false;
    expect(&g, "POST /v1/completions", NULL, "{\"prompt\":[6],\"max_tokens\":1}", 200, NULL, NULL);
    for (uint32_t i = 0; i < CASES; i++) {
        read_until(&g, &c[i], "\nid: 5\n");
        assert_non_null(strstr(buf_text(&c[i].in), "\"seats\":3"));
        assert_non_null(strstr(buf_text(&c[i].in), "\"blocks\":40"));
        assert_non_null(strstr(buf_text(&c[i].in), "\"block_tokens\":16"));
        assert_int_equal(first_step(&c[i]), cases[i].first);
        assert_null(strstr(buf_text(&c[i].in), "event: skipped"));
        client_close(&c[i]);
    }
    rig_close(&g);
}

static void test_an_engine_has_at_most_64_watchers(void **state) {
    (void)state;
    enum { WATCHERS = 64 };
    struct server_rig g;
    struct client c[WATCHERS];
    rig_open(&g, NULL, NULL);
    for (uint32_t i = 0; i < WATCHERS; i++) {
        client_send(&g, &c[i], "GET /v1/engine/steps", NULL, NULL);
        read_until(&g, &c[i], "event: hello");
    }
    expect(&g, "GET /v1/engine/steps", NULL, NULL, 503, "too_many_watchers", "64 clients watch");
    expect(&g, "HEAD /v1/engine/steps", NULL, NULL, 200, NULL, NULL);
    client_close(&c[0]);
    while (http_stats(g.server->http).exchanges == WATCHERS) rig_turn(&g);
    client_send(&g, &c[0], "GET /v1/engine/steps", NULL, NULL);
    read_until(&g, &c[0], "event: hello");
    /* A drain ends them all. */
    raise(SIGTERM);
    rig_until(&g, is_draining);
    for (uint32_t i = 0; i < WATCHERS; i++) {
        struct reply r;
        reply_take(&g, &c[i], &r);
        assert_int_equal(r.status, 200);
        assert_header(&r, "content-type", "text/event-stream; charset=utf-8");
        assert_header(&r, "cache-control", "no-store");
        reply_free(&r);
    }
    rig_close(&g);
}

static void test_a_silent_watcher_gets_a_comment_after_ten_seconds(void **state) {
    (void)state;
    struct server_rig g;
    struct client c;
    rig_open(&g, NULL, NULL);
    client_send(&g, &c, "GET /v1/engine/steps", NULL, NULL);
    read_until(&g, &c, "event: hello");
    const uint32_t before = rig_timer_count;
    while (rig_timer_count < before + 3) rig_turn(&g); /* it looks several times */
    client_read(&c);
    assert_null(strstr(buf_text(&c.in), ": idle"));
    rig_loop_ahead_ms += 10000;
    read_until(&g, &c, ": idle\n\n");
    client_close(&c);
    rig_close(&g);
}

/* ---- keys ---- */

static void tick(struct server_rig *g) { g->server->tick.timer_cb(&g->server->tick); }

static void test_the_key_file_is_looked_at_every_second(void **state) {
    (void)state;
    struct server_rig g;
    struct socket idle, busy;
    rig_open(&g, "k1 name=alice\n", NULL);
    rig_stop_clock();
    tick(&g);
    g.server->key_check_us = clock_now(&clock_real);
    ws_open(&g, &idle, "authorization: Bearer k1\r\n");
    ws_open(&g, &busy, "authorization: Bearer k1\r\n");
    queue(&g, &busy, ASK);
    assert_true(g.server->embeddings.is_single);
    rig_write_keys(&g, "# alice has gone\nk2 tenant=b\nk3 tenant=c\nk4 tenant=c\n");
    rig_pass_us(999999);
    tick(&g);
    assert_null(keys_find(g.server->keys, STR("k2")));
    rig_pass_us(1);
    tick(&g);
    assert_non_null(keys_find(g.server->keys, STR("k2")));
    rig_assert_logged("keys", "text=the key file has changed; it has 3 keys");
    assert_false(g.server->embeddings.is_single);
    assert_false(g.server->generations->answers.is_single);
    expect(&g, "GET /v1/models", "authorization: Bearer k1\r\n", NULL, 401, NULL, NULL);
    expect(&g, "GET /v1/models", "authorization: Bearer k3\r\n", NULL, 200, NULL, NULL);
    assert_closed(&g, &idle, 1008);
    finish(&g); /* what was under way ends as it began */
    assert_true(count_to_end(&g, &busy) >= 3);
    assert_closed(&g, &busy, 1008);
    client_close(&idle.client);
    client_close(&busy.client);
    /* A file that is not valid changes nothing. */
    rig_write_keys(&g, "k9 rpm=x\n");
    rig_pass_us(1000000);
    tick(&g);
    assert_non_null(keys_find(g.server->keys, STR("k2")));
    assert_non_null(
        strstr(rig_last_line("keys")->text, "the keys that were read before stay valid"));
    assert_int_equal(rig_last_line("keys")->level, LOG_WARN);
    rig_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_of_a_socket_follow_each_other),
        cmocka_unit_test(test_an_invalid_message_is_answered_and_the_socket_stays_open),
        cmocka_unit_test(test_a_second_request_is_refused_while_one_is_queued),
        cmocka_unit_test(test_a_queued_request_is_cancelled),
        cmocka_unit_test(test_a_socket_that_disconnects_cancels_its_queued_request),
        cmocka_unit_test(test_a_plain_request_is_told_to_upgrade),
        cmocka_unit_test(test_a_drain_closes_idle_sockets_and_lets_others_finish),
        cmocka_unit_test(test_a_message_that_is_read_during_a_drain_is_refused),
        cmocka_unit_test(test_a_watcher_begins_where_it_wants),
        cmocka_unit_test(test_an_engine_has_at_most_64_watchers),
        cmocka_unit_test(test_a_silent_watcher_gets_a_comment_after_ten_seconds),
        cmocka_unit_test(test_the_key_file_is_looked_at_every_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
