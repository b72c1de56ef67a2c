/* Goal:   an answer is delivered completely and once, whatever way it is fetched: whole, as a
 *         stream, later by polls; it is kept for as long as the settings say, for its own key; and
 *         its memory is counted and limited.
 * Method: the whole server on a loop that the test turns, with a stopped clock and an engine that
 *         is stepped by hand; timers are recorded, and called when the test wants.
 * wrap: clock_now engine_start log_line tracer_add uv_now uv_timer_start */
#include "server/generations.h"
#include "server/sink.h"
#include "unit/server/server_rig.h"

#define COMPLETIONS "POST /v1/completions"
#define ASYNC "prefer: respond-async\r\nx-request-id: my-id\r\n"
#define FOUR "{\"prompt\":[5,6,7],\"max_tokens\":4,\"seed\":3}"
#define FOUR_STREAMED "{\"prompt\":[5,6,7],\"max_tokens\":4,\"seed\":3,\"stream\":true}"

/* ---- polls ---- */

static const char *id_of(struct server_rig *g) { return rig_newest(g)->answer.id; }

/* GET of the answer with a query; the engine does not work meanwhile. */
static void poll(struct server_rig *g, struct reply *r, const char *query) {
    char line[128];
    const bool was_held = rig_is_held;
    rig_is_held = true;
    snprintf(line, sizeof(line), "GET /v1/requests/my-id%s", query);
    ask(g, r, line, NULL, NULL);
    rig_is_held = was_held;
}

static void assert_poll(struct server_rig *g, const char *query, const char *status, uint32_t first,
                        uint32_t count, uint32_t next, bool is_done) {
    struct reply r;
    poll(g, &r, query);
    assert_int_equal(r.status, 200);
    assert_json_text(&r, "status", status);
    const struct json *events = json_get(r.json, "events");
    assert_int_equal(json_count(events), count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(json_int(json_get(json_at(events, i), "id"), -1), first + i);
    assert_json_int(&r, "next", next);
    assert_int_equal(json_bool(json_get(r.json, "done"), !is_done), is_done);
    reply_free(&r);
}

static void start_async(struct server_rig *g, const char *body) {
    struct client c;
    struct reply r;
    char text[128];
    client_queue(g, &c, COMPLETIONS, ASYNC, body);
    reply_take(g, &c, &r);
    assert_int_equal(r.status, 202);
    assert_json_text(&r, "id", id_of(g));
    assert_json_text(&r, "status", "in_progress");
    snprintf(text, sizeof(text), "/v1/requests/%s", id_of(g));
    assert_header(&r, "location", text);
    assert_header(&r, "preference-applied", "respond-async");
    reply_free(&r);
}

/* Four tokens: an event for each, one for the end, and the mark of the end. */
static void test_polls_deliver_every_event_once(void **state) {
    (void)state;
    struct server_rig g;
    rig_open(&g, NULL, NULL);
    rig_is_held = true;
    start_async(&g, FOUR);
    assert_poll(&g, "", "in_progress", 0, 0, 0, false);
    rig_step(&g, 1);
    assert_poll(&g, "", "in_progress", 1, 1, 1, false);
    assert_poll(&g, "?after=1", "in_progress", 0, 0, 1, false);
    rig_step(&g, 2);
    assert_poll(&g, "?after=1", "in_progress", 2, 2, 3, false);
    assert_poll(&g, "?after=0", "in_progress", 1, 3, 3, false); /* again */
    assert_poll(&g, "?after=2", "in_progress", 3, 1, 3, false);
    rig_step(&g, 1);
    rig_until(&g, rig_is_quiet);
    struct reply r;
    poll(&g, &r, "");
    assert_json_text(&r, "id", id_of(&g));
    const uint32_t all = (uint32_t)json_count(json_get(r.json, "events"));
    assert_true(all >= 5);
    reply_free(&r);
    assert_poll(&g, "?after=3", "completed", 4, all - 3, all, true);
    assert_poll(&g, "?after=4", "completed", 5, all - 4, all, true);
    assert_poll(&g, "", "completed", 1, all, all, true);
    char query[64];
    snprintf(query, sizeof(query), "?after=%u", all);
    assert_poll(&g, query, "completed", 0, 0, all, true);
    assert_poll(&g, "?after=100", "completed", 0, 0, 100, true);
    assert_poll(&g, "?after=4294967295", "completed", 0, 0, UINT32_MAX, true);
    assert_poll(&g, "?after=4294967296", "completed", 0, 0, UINT32_MAX, true);
    assert_poll(&g, "?after=4294967297", "completed", 0, 0, UINT32_MAX, true);
    rig_close(&g);
}

/* The timer that was started last for a sink. */
static struct rig_timer *timer_of(const struct sink *s) {
    for (uint32_t n = 1; n <= rig_timer_count && n <= RIG_TIMERS; n++) {
        struct rig_timer *t = &rig_timers[(rig_timer_count - n) % RIG_TIMERS];
        if (t->data == s) return t;
    }
    fail_msg("no timer was started");
    return NULL;
}

static void test_a_poll_waits_for_an_event_for_at_most_a_minute(void **state) {
    (void)state;
    static const struct {
        const char *query;
        uint64_t ms;
    } cases[] = {{"?wait_ms=1", 1},
                 {"?wait_ms=59999", 59999},
                 {"?wait_ms=60000", 60000},
                 {"?wait_ms=60001", 60000},
                 {"?wait_ms=18446744073709551615", 60000}};
    struct server_rig g;
    struct reply r;
    rig_open(&g, NULL, (const char *const[]){"keep-s", "120", NULL});
    rig_is_held = true;
    start_async(&g, FOUR);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct client c;
        char line[128];
        snprintf(line, sizeof(line), "GET /v1/requests/my-id%s", cases[i].query);
        client_send(&g, &c, line, NULL, NULL);
        const int64_t began_us = __real_clock_now(&clock_real);
        while (!rig_newest(&g)->sinks.first && cases[i].ms > 1) {
            assert_false(rig_is_late(began_us));
            rig_turn(&g);
        }
        struct rig_timer *timer = NULL;
        if (cases[i].ms > 1) {
            timer = timer_of(LIST_ITEM(rig_newest(&g)->sinks.first, struct sink, in_generation));
            assert_int_equal(timer->ms, cases[i].ms);
            for (int n = 0; n < 3; n++) rig_turn(&g);
            client_read(&c);
            assert_int_equal(c.in.len, 0);
            timer->call(timer->timer); /* its time is over */
        }
        reply_take(&g, &c, &r);
        assert_int_equal(r.status, 200);
        assert_json_int(&r, "next", 0);
        assert_int_equal(json_bool(json_get(r.json, "done"), true), false);
        reply_free(&r);
    }
    struct client c;
    client_send(&g, &c, "GET /v1/requests/my-id?wait_ms=60000", NULL, NULL);
    while (!rig_newest(&g)->sinks.first) rig_turn(&g);
    rig_step(&g, 1);
    reply_take(&g, &c, &r); /* at the first event */
    assert_json_int(&r, "next", 1);
    reply_free(&r);
    rig_close(&g);
}

/* The earlier one is answered with what there is. */
static void test_of_two_polls_the_later_one_waits(void **state) {
    (void)state;
    struct server_rig g;
    struct client c[2];
    struct reply r;
    rig_open(&g, NULL, NULL);
    rig_is_held = true;
    start_async(&g, FOUR);
    for (int i = 0; i < 2; i++) {
        client_send(&g, &c[i], "GET /v1/requests/my-id?wait_ms=60000", NULL, NULL);
        const uint32_t timers = rig_timer_count;
        while (rig_timer_count == timers || !rig_newest(&g)->sinks.first) rig_turn(&g);
    }
    reply_take(&g, &c[0], &r);
    assert_json_text(&r, "status", "in_progress");
    assert_json_int(&r, "next", 0);
    assert_int_equal(json_count(json_get(r.json, "events")), 0);
    reply_free(&r);
    assert_int_equal(rig_newest(&g)->sinks.count, 1);
    client_read(&c[1]);
    assert_int_equal(c[1].in.len, 0);
    rig_step(&g, 1);
    reply_take(&g, &c[1], &r);
    assert_json_int(&r, "next", 1);
    assert_int_equal(json_count(json_get(r.json, "events")), 1);
    reply_free(&r);
    rig_close(&g);
}

/* Its answer goes on without it. */
static void test_a_poll_whose_client_leaves_is_removed(void **state) {
    (void)state;
    struct server_rig g;
    struct client c;
    rig_open(&g, NULL, NULL);
    rig_is_held = true;
    start_async(&g, FOUR);
    client_send(&g, &c, "GET /v1/requests/my-id?wait_ms=60000", NULL, NULL);
    const int64_t began_us = __real_clock_now(&clock_real);
    while (!rig_newest(&g)->sinks.first && !rig_is_late(began_us)) rig_turn(&g);
    assert_int_equal(rig_newest(&g)->sinks.count, 1);
    client_close(&c);
    while (rig_newest(&g)->sinks.first && !rig_is_late(began_us)) rig_turn(&g);
    assert_int_equal(rig_newest(&g)->sinks.count, 0);
    while (!rig_is_quiet(&g)) rig_step(&g, 1);
    rig_assert_logged("request", "finish=length");
    rig_close(&g);
}

static bool is_draining(struct server_rig *g) { return g->server->is_draining; }

/* A client that waits would delay the end of the server. */
static void test_a_poll_does_not_wait_during_a_drain(void **state) {
    (void)state;
    struct server_rig g;
    rig_open(&g, NULL, NULL);
    rig_is_held = true;
    start_async(&g, FOUR);
    raise(SIGTERM);
    rig_until(&g, is_draining);
    const uint32_t before = rig_timers_of(60000);
    assert_poll(&g, "?wait_ms=60000", "in_progress", 0, 0, 0, false);
    assert_int_equal(rig_timers_of(60000), before);
    rig_close(&g);
}

static void test_a_position_that_is_no_number_is_refused(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    rig_open(&g, NULL, NULL);
    rig_is_held = true;
    start_async(&g, FOUR);
    static const struct {
        const char *query, *param, *words;
    } cases[] = {{"?after=x", "after", "after is \"x\"; it must be a whole number"},
                 {"?after=-1", "after", "after is \"-1\""},
                 {"?wait_ms=1.5", "wait_ms", "wait_ms is \"1.5\""}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        poll(&g, &r, cases[i].query);
        assert_refused(&r, 400, NULL, cases[i].words);
        assert_json_text(&r, "error.param", cases[i].param);
        reply_free(&r);
    }
    ask(&g, &r, "GET /v1/requests/my-id", "accept: text/event-stream\r\nlast-event-id: x\r\n",
        NULL);
    assert_refused(&r, 400, NULL, "last-event-id is \"x\"; it must be a whole number");
    assert_json_text(&r, "error.param", "last-event-id");
    reply_free(&r);
    rig_close(&g);
}

/* How many events with an id a stream has, and the first of these ids. */
static uint32_t count_ids(const struct reply *r, uint32_t *first) {
    uint32_t count = 0;
    for (const char *at = buf_text((struct buf *)&r->body); (at = strstr(at, "id: ")); at++)
        if (at == buf_text((struct buf *)&r->body) || at[-1] == '\n') {
            if (count++ == 0) *first = (uint32_t)strtoul(at + 4, NULL, 10);
        }
    return count;
}

static void test_a_stream_is_resumed_after_the_event_that_is_named(void **state) {
    (void)state;
    static const struct {
        const char *line, *headers;
        uint32_t after;
    } cases[] = {
        {"GET /v1/requests/my-id", "accept: text/event-stream\r\n", 0},
        {"GET /v1/requests/my-id?after=2", "accept: text/event-stream\r\n", 2},
        {"GET /v1/requests/my-id?after=2", "accept: text/event-stream\r\nlast-event-id: 3\r\n", 3},
        {"GET /v1/requests/my-id?after=2", "accept: text/event-stream\r\nlast-event-id: 0\r\n", 0},
        {"GET /v1/requests/my-id", "accept: text/event-stream\r\nlast-event-id: 4294967297\r\n",
         UINT32_MAX},
        {"GET /v1/requests/my-id?after=4294967297", "accept: text/event-stream\r\n", UINT32_MAX},
    };
    struct server_rig g;
    struct reply r;
    uint32_t all = 0, first = 0;
    rig_open(&g, NULL, NULL);
    ask(&g, &r, COMPLETIONS, "x-request-id: my-id\r\n", FOUR_STREAMED);
    assert_int_equal(r.status, 200);
    all = count_ids(&r, &first);
    assert_int_equal(first, 1);
    assert_true(all >= 5);
    reply_free(&r);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ask(&g, &r, cases[i].line, cases[i].headers, NULL);
        assert_int_equal(r.status, 200);
        first = 0;
        const uint32_t left = cases[i].after < all ? all - cases[i].after : 0;
        assert_int_equal(count_ids(&r, &first), left);
        if (left > 0) assert_int_equal(first, cases[i].after + 1);
        reply_free(&r);
    }
    rig_close(&g);
}

/* ---- prompts that are being prepared ---- */

enum { BLOCKED = 6 };

/* All are in the batch of one thread, which does not begin. */
static void test_a_request_whose_prompt_waits_is_queued(void **state) {
    (void)state;
    for (uint32_t is_cancelled = 0; is_cancelled < 2; is_cancelled++) {
        struct server_rig g;
        struct client c[BLOCKED];
        struct reply r;
        char line[64], header[64];
        rig_open(&g, NULL, NULL);
        rig_is_held = true;
        rig_block_pool(&g);
        for (uint32_t i = 0; i < BLOCKED; i++) {
            snprintf(header, sizeof(header), "x-request-id: id-%u\r\n", i);
            client_send(&g, &c[i], COMPLETIONS, header, "{\"prompt\":\"aaaa\",\"max_tokens\":2}");
            while (generations_stats(g.server->generations).live < i + 1) rig_turn(&g);
        }
        assert_metric(&g, NULL, "jitney:work_items", BLOCKED);
        assert_metric(&g, NULL, "jitney:answers_under_way", BLOCKED);
        assert_true(metric(&g, NULL, "jitney:work_bytes") >= 4 * BLOCKED);
        assert_int_equal(g.model->live_choices, BLOCKED);
        for (uint32_t i = 0; i < BLOCKED; i++) {
            snprintf(line, sizeof(line), "%s /v1/requests/id-%u", is_cancelled ? "DELETE" : "GET",
                     i);
            ask(&g, &r, line, NULL, NULL);
            assert_int_equal(r.status, 200);
            assert_json_text(&r, "status", is_cancelled ? "cancelled" : "queued");
            reply_free(&r);
        }
        for (uint32_t i = 0; i < BLOCKED && is_cancelled; i++) {
            reply_take(&g, &c[i], &r);
            assert_refused(&r, 499, "request_cancelled", NULL);
            reply_free(&r);
        }
        rig_open_pool();
        while (!rig_is_quiet(&g)) rig_step(&g, 1);
        for (uint32_t i = 0; i < BLOCKED && !is_cancelled; i++) {
            reply_take(&g, &c[i], &r);
            assert_int_equal(r.status, 200);
            assert_json_int(&r, "usage.completion_tokens", 2);
            reply_free(&r);
        }
        assert_metric(&g, NULL, "jitney:work_items", 0);
        assert_metric(&g, NULL, "jitney:work_bytes", 0);
        assert_metric(&g, NULL, "jitney:requests_submitted_total", is_cancelled ? 0 : BLOCKED);
        assert_int_equal(g.model->live_choices, 0);
        rig_close(&g);
    }
}

/* Texts so long that a thread gets one at a time: the first have a thread, the others wait for
 * one. Those that wait are given back at once, the others when their thread is done. */
static void test_prompts_count_whether_a_thread_has_them_or_not(void **state) {
    (void)state;
    enum { TEXT_BYTES = 12 << 10, COUNT = 8 };
    struct server_rig g;
    struct client c[COUNT];
    struct reply r;
    struct buf body;
    char line[64], header[64];
    rig_open(&g, NULL, NULL);
    rig_is_held = true;
    buf_init(&body, 1 << 20);
    buf_put_text(&body, "{\"max_tokens\":2,\"prompt\":\"");
    for (uint32_t i = 0; i < TEXT_BYTES; i++) buf_put_char(&body, 'a');
    buf_put_text(&body, "\"}");
    rig_block_pool(&g);
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(header, sizeof(header), "x-request-id: id-%u\r\n", i);
        client_send(&g, &c[i], COMPLETIONS, header, buf_text(&body));
        while (generations_stats(g.server->generations).live < i + 1) rig_turn(&g);
    }
    buf_deinit(&body);
    const struct work_queue_stats work = work_queue_stats(g.server->work);
    assert_true(work.waiting > 0 && work.running > 0);
    assert_metric(&g, NULL, "jitney:work_items", COUNT);
    assert_true(metric(&g, NULL, "jitney:work_bytes") >= COUNT * TEXT_BYTES);
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(line, sizeof(line), "DELETE /v1/requests/id-%u", i);
        expect(&g, line, NULL, NULL, 200, NULL, NULL);
        reply_take(&g, &c[i], &r);
        assert_refused(&r, 499, "request_cancelled", NULL);
        reply_free(&r);
    }
    assert_metric(&g, NULL, "jitney:work_items", work.running);
    rig_open_pool();
    rig_until(&g, rig_is_quiet);
    assert_metric(&g, NULL, "jitney:work_items", 0);
    assert_metric(&g, NULL, "jitney:work_bytes", 0);
    rig_close(&g);
}

/* The texts that wait for the pool may take so many bytes, and no more. */
static void test_a_prompt_that_the_pool_has_no_room_for_is_refused(void **state) {
    (void)state;
    struct server_rig g;
    struct client c[2];
    struct reply r;
    char body[2][256];
    rig_open(&g, NULL, NULL);
    rig_is_held = true;
    for (int i = 0; i < 2; i++) {
        char text[128] = "";
        memset(text, 'a', i == 0 ? 60 : 101);
        snprintf(body[i], sizeof(body[i]), "{\"prompt\":\"%s\",\"max_tokens\":2}", text);
    }
    work_queue_set(g.server->work, 100, 0, true);
    rig_block_pool(&g);
    client_send(&g, &c[0], COMPLETIONS, NULL, body[0]);
    while (generations_stats(g.server->generations).live < 1) rig_turn(&g);
    const uint64_t held = work_queue_stats(g.server->work).bytes;
    assert_in_range(held, 60, 100);
    ask(&g, &r, COMPLETIONS, NULL, body[0]);
    assert_refused(&r, 503, "work_queue_full", "too many requests are being prepared");
    assert_header(&r, "retry-after-ms", "1000");
    reply_free(&r);
    ask(&g, &r, COMPLETIONS, NULL, body[1]);
    assert_refused(&r, 413, "memory_share_exceeded", "one client can have 100");
    reply_free(&r);
    assert_metric(&g, NULL, "jitney:work_refused_total", 2);
    assert_int_equal(generations_stats(g.server->generations).live, 1);
    assert_int_equal(g.model->live_choices, 1);
    rig_open_pool();
    while (!rig_is_quiet(&g)) rig_step(&g, 1);
    reply_take(&g, &c[0], &r);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    rig_close(&g);
}

/* ---- the end ---- */

static void test_a_delete_cancels_or_forgets(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    struct api_error e = {0};
    rig_open(&g, NULL, NULL);
    for (int i = 0; i < 3; i++) {
        static const char *const first[] = {"cancelled", "completed", "failed"};
        rig_is_held = true;
        start_async(&g, FOUR);
        rig_is_held = false;
        api_refuse(&e, 500, NULL, "engine_lost", "lost");
        if (i == 1)
            while (!rig_is_quiet(&g)) rig_step(&g, 1);
        if (i == 2) generation_fail(rig_newest(&g), &e);
        ask(&g, &r, "DELETE /v1/requests/my-id", NULL, NULL);
        assert_int_equal(r.status, 200);
        assert_json_text(&r, "status", first[i]);
        assert_int_equal(strlen(json_str(json_get(r.json, "id")).ptr) >= 24, true);
        reply_free(&r);
        while (!rig_is_quiet(&g)) rig_step(&g, 1);
        if (i == 0) { /* it is kept, with its error */
            poll(&g, &r, "");
            assert_json_text(&r, "status", "cancelled");
            assert_int_equal(json_bool(json_get(r.json, "done"), false), true);
            reply_free(&r);
            expect(&g, "DELETE /v1/requests/my-id", NULL, NULL, 200, NULL, NULL);
        }
        expect(&g, "GET /v1/requests/my-id", NULL, NULL, 404, "request_not_found",
               "unknown request \"my-id\"; finished ones are kept for 120 s");
        expect(&g, "DELETE /v1/requests/my-id", NULL, NULL, 404, "request_not_found", NULL);
        assert_int_equal(generations_stats(g.server->generations).kept, 0);
    }
    rig_close(&g);
}

static void test_a_failed_answer_says_so(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    struct api_error e = {0};
    rig_open(&g, NULL, NULL);
    rig_is_held = true;
    start_async(&g, FOUR);
    api_refuse(&e, 500, NULL, "engine_lost", "lost");
    generation_fail(rig_newest(&g), &e);
    poll(&g, &r, "");
    assert_json_text(&r, "status", "failed");
    reply_free(&r);
    rig_close(&g);
}

/* ---- kept ---- */

static void step_all(struct server_rig *g) {
    while (!rig_is_quiet(g)) rig_step(g, 1);
}

static void call_keep_timer(struct server_rig *g) {
    uv_timer_stop(&g->server->generations->keep_timer); /* as the loop does before it calls it */
    generations_on_keep(&g->server->generations->keep_timer);
}

static uint64_t keep_timer_ms(void) {
    for (uint32_t n = 1; n <= rig_timer_count && n <= RIG_TIMERS; n++) {
        const struct rig_timer *t = &rig_timers[(rig_timer_count - n) % RIG_TIMERS];
        if (t->call == generations_on_keep) return t->ms;
    }
    return 0;
}

static void test_an_answer_is_kept_for_as_long_as_the_settings_say(void **state) {
    (void)state;
    struct server_rig g;
    rig_open(&g, NULL, (const char *const[]){"keep-s", "2.5", NULL});
    rig_stop_clock();
    expect(&g, COMPLETIONS, "x-request-id: first\r\n", FOUR_STREAMED, 200, NULL, NULL);
    step_all(&g);
    assert_int_equal(keep_timer_ms(), 2501);
    rig_pass_us(1000000);
    expect(&g, COMPLETIONS, "x-request-id: second\r\n", FOUR_STREAMED, 200, NULL, NULL);
    step_all(&g);
    assert_metric(&g, NULL, "jitney:kept_answers", 2);
    assert_metric(&g, NULL, "jitney:kept_answers_bytes",
                  2.0 * (double)rig_newest(&g)->charged_bytes);
    assert_metric(&g, NULL, "jitney:answers_bytes", 2.0 * (double)rig_newest(&g)->charged_bytes);
    rig_pass_us(1499999);
    call_keep_timer(&g);
    expect(&g, "GET /v1/requests/first", NULL, NULL, 200, NULL, NULL);
    rig_pass_us(1);
    call_keep_timer(&g);
    expect(&g, "GET /v1/requests/first", NULL, NULL, 404, "request_not_found", NULL);
    expect(&g, "GET /v1/requests/second", NULL, NULL, 200, NULL, NULL);
    assert_int_equal(keep_timer_ms(), 1001);
    rig_pass_us(1000000);
    call_keep_timer(&g);
    expect(&g, "GET /v1/requests/second", NULL, NULL, 404, "request_not_found",
           "finished ones are kept for 2 s");
    assert_metric(&g, NULL, "jitney:kept_answers", 0);
    assert_metric(&g, NULL, "jitney:kept_answers_bytes", 0);
    assert_metric(&g, NULL, "jitney:answers_bytes", 0);
    rig_close(&g);
}

/* To the byte: equal requests take equal memory. */
static void test_answers_are_kept_up_to_the_last_byte(void **state) {
    (void)state;
    struct server_rig g;
    rig_open(&g, NULL, NULL);
    struct generations *all = g.server->generations;
    expect(&g, COMPLETIONS, "x-request-id: a\r\n", FOUR_STREAMED, 200, NULL, NULL);
    step_all(&g);
    const uint64_t bytes = rig_newest(&g)->kept_bytes;
    assert_int_equal(generations_stats(all).kept_bytes, bytes);
    for (uint64_t less = 0; less < 2; less++) { /* of one, then of two */
        for (uint64_t count = 1; count <= 2; count++) {
            generations_set_keep(all, 60000, 0);
            assert_int_equal(generations_stats(all).kept, 0);
            generations_set_keep(all, 60000, count * bytes - less);
            for (uint64_t i = 0; i < count; i++) {
                expect(&g, COMPLETIONS, i == 0 ? "x-request-id: b\r\n" : "x-request-id: c\r\n",
                       FOUR_STREAMED, 200, NULL, NULL);
                step_all(&g);
            }
            assert_int_equal(generations_stats(all).kept, count - less);
            assert_int_equal(generations_stats(all).kept_bytes, (count - less) * bytes);
            if (count == 2) /* the older one was dropped for the newer */
                expect(&g, "GET /v1/requests/b", NULL, NULL, less ? 404 : 200, NULL, NULL);
        }
    }
    generations_set_keep(all, 60000, 3 * bytes);
    for (int i = 0; i < 2; i++) {
        expect(&g, COMPLETIONS, NULL, FOUR_STREAMED, 200, NULL, NULL);
        step_all(&g);
    }
    assert_int_equal(generations_stats(all).kept, 3);
    generations_set_keep(all, 60000, 3 * bytes);
    assert_int_equal(generations_stats(all).kept, 3);
    generations_set_keep(all, 60000, generations_stats(all).kept_bytes);
    assert_int_equal(generations_stats(all).kept, 3);
    generations_set_keep(all, 60000, generations_stats(all).kept_bytes - 1);
    assert_int_equal(generations_stats(all).kept, 2);
    rig_close(&g);
}

static void test_what_is_kept_depends_on_how_it_was_asked(void **state) {
    (void)state;
    static const struct {
        const char *headers, *body, *keep_s;
        bool leaves, is_kept;
    } cases[] = {
        {"x-request-id: my-id\r\n", FOUR_STREAMED, "9", false, true},
        {"x-request-id: my-id\r\n", FOUR, "9", false, false},
        {"x-request-id: my-id\r\nx-jitney-keep: true\r\n", FOUR, "9", false, true},
        {"x-request-id: my-id\r\nx-jitney-keep: false\r\n", FOUR, "9", false, false},
        {"x-request-id: my-id\r\nx-jitney-keep: true\r\n", FOUR, "9", true, true},
        {"x-request-id: my-id\r\nx-jitney-keep: true\r\n", FOUR_STREAMED, "9", true, true},
        {"x-request-id: my-id\r\n", FOUR_STREAMED, "9", true, false},
        {"x-request-id: my-id\r\n", FOUR_STREAMED, "0", false, false},
        {"x-request-id: my-id\r\nprefer: wait=5, respond-async\r\n", FOUR, "9", false, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct server_rig g;
        struct client c;
        struct reply r;
        print_message("case %zu\n", i);
        rig_open(&g, NULL, (const char *const[]){"keep-s", cases[i].keep_s, NULL});
        rig_is_held = true;
        client_queue(&g, &c, COMPLETIONS, cases[i].headers, cases[i].body);
        if (cases[i].leaves) {
            client_close(&c);
            while (rig_newest(&g)->sinks.first) {
                rig_turn(&g);
                if (!g.server->generations->items.first) break;
            }
        }
        step_all(&g);
        if (!cases[i].leaves) {
            reply_take(&g, &c, &r);
            reply_free(&r);
        }
        expect(&g, "GET /v1/requests/my-id", NULL, NULL, cases[i].is_kept ? 200 : 404, NULL, NULL);
        if (cases[i].is_kept) rig_assert_logged("request", "finish=length");
        rig_close(&g);
    }
}

static void test_an_answer_is_found_with_its_own_key_and_by_each_of_its_ids(void **state) {
    (void)state;
    struct server_rig g;
    char line[3][128];
    rig_open(&g, "k1\nk2\n", NULL);
    expect(&g, COMPLETIONS, "authorization: Bearer k1\r\nx-request-id: my-id\r\n", FOUR_STREAMED,
           200, NULL, NULL);
    step_all(&g);
    snprintf(line[0], sizeof(line[0]), "GET /v1/requests/%s", id_of(&g));
    snprintf(line[1], sizeof(line[1]), "GET /v1/requests/cmpl-%s", id_of(&g));
    snprintf(line[2], sizeof(line[2]), "GET /v1/requests/my-id");
    for (int i = 0; i < 3; i++) {
        expect(&g, line[i], "authorization: Bearer k1\r\n", NULL, 200, NULL, NULL);
        expect(&g, line[i], "authorization: Bearer k2\r\n", NULL, 404, "request_not_found", NULL);
    }
    expect(&g, "GET /v1/requests/my", "authorization: Bearer k1\r\n", NULL, 404, NULL, NULL);
    rig_close(&g);
}

/* ---- memory ---- */

/* What request_create allocates, and what a grammar would add. */
static void test_the_memory_of_the_engines_requests_is_counted(void **state) {
    (void)state;
    const uint64_t plain = sizeof(struct choice) + 7 * sizeof(int32_t);
    const uint64_t one = sizeof(struct token_logprob), top = sizeof(struct sample_result);
    const struct {
        const char *body;
        uint64_t bytes;
    } cases[] = {
        {FOUR, plain},
        {"{\"prompt\":[5,6,7],\"max_tokens\":4,\"n\":3}", 3 * plain},
        {"{\"prompt\":[[5,6,7],[8,9,10]],\"max_tokens\":4,\"n\":2}", 4 * plain},
        {"{\"prompt\":[5,6,7],\"max_tokens\":4,\"logprobs\":0}", plain + 4 * one},
        {"{\"prompt\":[5,6,7],\"max_tokens\":4,\"logprobs\":2}", plain + 4 * (one + top)},
        {"{\"prompt\":[5,6,7],\"max_tokens\":4,\"logprobs\":2,\"echo\":true}",
         plain + 7 * (one + top)},
        {"{\"prompt\":[5,6,7],\"max_tokens\":4,\"logprobs\":2,\"n\":2}",
         2 * (plain + 4 * (one + top))},
    };
    struct server_rig g;
    rig_open(&g, NULL, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct client c;
        struct reply r;
        rig_is_held = true;
        client_queue(&g, &c, COMPLETIONS, NULL, cases[i].body);
        const struct generation *gen = rig_newest(&g);
        assert_int_equal(gen->engine_bytes, cases[i].bytes);
        assert_in_range(gen->charged_bytes, sizeof(*gen) + 4096 + cases[i].bytes,
                        sizeof(*gen) + 8192 + cases[i].bytes);
        assert_metric(&g, NULL, "jitney:answers_bytes", (double)gen->charged_bytes);
        rig_is_held = false;
        step_all(&g);
        reply_take(&g, &c, &r);
        assert_int_equal(r.status, 200);
        reply_free(&r);
        assert_int_equal(generations_stats(g.server->generations).bytes, 0);
    }
    rig_close(&g);
}

enum { FILL_MAX = 400 };
#define BIG "{\"prompt\":[5,6,7],\"max_tokens\":100,\"n\":4,\"logprobs\":5}"
#define SMALL_MEMORY                                                                               \
    "memory-max", "16M", "body-max", "1M", "set", "max_seqs=8", "set", "queue_max=8192"

/* Queue requests until one is refused; how many were accepted. */
static uint32_t fill(struct server_rig *g, const char *key, struct client *c, struct reply *r) {
    for (uint32_t count = 0; count < FILL_MAX; count++) {
        const uint32_t before = generations_stats(g->server->generations).live;
        const uint64_t refused = generations_stats(g->server->generations).refused;
        client_send(g, &c[count], COMPLETIONS, key, BIG);
        while (generations_stats(g->server->generations).live == before &&
               generations_stats(g->server->generations).refused == refused)
            rig_turn(g);
        rig_until(g, rig_is_prepared);
        if (generations_stats(g->server->generations).refused == refused) continue;
        reply_take(g, &c[count], r);
        return count;
    }
    fail_msg("nothing was refused");
    return 0;
}

static void free_all(struct server_rig *g, struct client *c, uint32_t count) {
    struct reply r;
    rig_is_held = false;
    for (uint32_t i = 0; i < count; i++) client_close(&c[i]);
    step_all(g);
    rig_until(g, rig_is_quiet);
    (void)r;
    assert_int_equal(generations_stats(g->server->generations).bytes, 0);
}

static void test_answers_take_a_quarter_of_the_memory(void **state) {
    (void)state;
    static const char *const flags[] = {SMALL_MEMORY, NULL};
    static struct client c[FILL_MAX];
    struct server_rig g;
    struct reply r;
    rig_open(&g, NULL, flags);
    rig_is_held = true;
    const uint32_t count = fill(&g, NULL, c, &r);
    const struct generations_stats stats = generations_stats(g.server->generations);
    assert_int_equal(stats.bytes_max, 4 << 20);
    assert_true(stats.bytes <= stats.bytes_max);
    assert_true(stats.bytes + stats.bytes / count > stats.bytes_max);
    assert_refused(&r, 503, "memory_full", "the server's memory for answers is used up");
    assert_header(&r, "retry-after-ms", "1000");
    reply_free(&r);
    assert_metric(&g, NULL, "jitney:answers_refused_total", 1);
    assert_metric(&g, NULL, "jitney:memory_max_bytes", 16 << 20);
    free_all(&g, c, count);
    expect(&g, COMPLETIONS, NULL, BIG, 200, NULL, NULL);
    rig_close(&g);
}

static void test_a_tenants_answers_take_its_share_of_the_memory(void **state) {
    (void)state;
    static const char *const flags[] = {SMALL_MEMORY, NULL};
    static struct client c[2 * FILL_MAX];
    struct server_rig g;
    struct reply r;
    rig_open(&g, "k1 tenant=a\nk2 tenant=b\n", flags);
    rig_is_held = true;
    const uint32_t first = fill(&g, "authorization: Bearer k1\r\n", c, &r);
    const struct generations_stats stats = generations_stats(g.server->generations);
    assert_true(stats.bytes <= 2 << 20);
    assert_true(stats.bytes + stats.bytes / first > 2 << 20);
    assert_refused(&r, 429, "memory_share_full",
                   "the answers of this API key use up its share of the server's memory");
    assert_header(&r, "retry-after-ms", "1000");
    reply_free(&r);
    const uint32_t second = fill(&g, "authorization: Bearer k2\r\n", c + first, &r);
    assert_true(second > 0);
    reply_free(&r);
    free_all(&g, c, first + second);
    rig_close(&g);
}

static void test_a_request_that_no_share_can_hold_is_refused_for_good(void **state) {
    (void)state;
    static const char *const flags[] = {SMALL_MEMORY, NULL};
    struct server_rig g;
    struct reply r;
    struct buf body;
    rig_open(&g, "k1\nk2\n", flags);
    buf_init(&body, 1 << 20);
    buf_put_text(&body, "{\"max_tokens\":127,\"n\":8,\"logprobs\":5,\"prompt\":[[5]");
    for (uint32_t i = 0; i < 15; i++) buf_put_text(&body, ",[6]");
    buf_put_text(&body, "]}");
    ask(&g, &r, COMPLETIONS, "authorization: Bearer k1\r\n", buf_text(&body));
    assert_refused(&r, 413, "memory_share_exceeded", "one client can have 2097152");
    assert_header(&r, "retry-after", "");
    reply_free(&r);
    buf_deinit(&body);
    assert_int_equal(generations_stats(g.server->generations).refused, 1);
    assert_int_equal(generations_stats(g.server->generations).bytes, 0);
    rig_close(&g);
}

/* ---- streams ---- */

static void test_a_stream_has_the_headers_and_the_form_of_its_route(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    rig_open(&g, NULL, NULL);
    ask(&g, &r, COMPLETIONS, NULL, FOUR_STREAMED);
    assert_header(&r, "content-type", "text/event-stream; charset=utf-8");
    assert_header(&r, "cache-control", "no-store");
    assert_header(&r, "x-accel-buffering", "no");
    assert_non_null(strstr(buf_text(&r.body), "data: [DONE]\n\n"));
    reply_free(&r);
    ask(&g, &r, "POST /api/generate", NULL,
        "{\"model\":\"llama\",\"prompt\":\"a\",\"raw\":true,\"options\":{\"num_predict\":3}}");
    assert_header(&r, "content-type", "application/x-ndjson");
    assert_header(&r, "cache-control", "no-store");
    reply_free(&r);
    rig_close(&g);
}

static uint32_t count_of(struct client *c, const char *word) {
    uint32_t count = 0;
    client_read(c);
    for (const char *at = buf_text(&c->in); (at = strstr(at, word)); at++) count++;
    return count;
}

static void pass_loop(struct server_rig *g, uint64_t ms) {
    rig_loop_ahead_ms += ms;
    sink_streams_ping(g->server);
    for (int n = 0; n < 3; n++) rig_turn(g);
}

/* A stream that is queued, and one that has got an event meanwhile. */
static void test_a_silent_stream_gets_heartbeats(void **state) {
    (void)state;
    struct server_rig g;
    struct client c[2];
    struct reply r;
    rig_open(&g, NULL, (const char *const[]){"ping-s", "3600", NULL});
    rig_is_held = true;
    for (int i = 0; i < 2; i++) client_queue(&g, &c[i], COMPLETIONS, NULL, FOUR_STREAMED);
    pass_loop(&g, 3590000);
    for (int i = 0; i < 2; i++) assert_int_equal(count_of(&c[i], ": ping\n\n"), 0);
    pass_loop(&g, 10000);
    for (int i = 0; i < 2; i++) assert_int_equal(count_of(&c[i], ": ping\n\n"), 1);
    pass_loop(&g, 3590000);
    for (int i = 0; i < 2; i++) assert_int_equal(count_of(&c[i], ": ping\n\n"), 1);
    rig_step(&g, 1); /* both get a token: the next heartbeat is an hour later */
    pass_loop(&g, 3590000);
    for (int i = 0; i < 2; i++) assert_int_equal(count_of(&c[i], ": ping\n\n"), 1);
    pass_loop(&g, 10000);
    for (int i = 0; i < 2; i++) assert_int_equal(count_of(&c[i], ": ping\n\n"), 2);
    g.server->settings.ping_s = 0;
    pass_loop(&g, 7200000);
    for (int i = 0; i < 2; i++) assert_int_equal(count_of(&c[i], ": ping\n\n"), 2);
    rig_is_held = false;
    step_all(&g);
    for (int i = 0; i < 2; i++) {
        reply_take(&g, &c[i], &r);
        reply_free(&r);
    }
    assert_int_equal(g.server->pings.count, 0);
    rig_close(&g);
}

/* ---- whole ---- */

/* Log-probabilities from 4,096 entries on are written in the pool. */
static void test_a_long_answer_is_written_in_the_pool(void **state) {
    (void)state;
    static const struct {
        const char *body;
        bool in_pool;
    } cases[] = {
        {"{\"prompt\":[5],\"max_tokens\":64,\"n\":16,\"logprobs\":3,\"ignore_eos\":true}", true},
        {"{\"prompt\":[5],\"max_tokens\":63,\"n\":16,\"logprobs\":3,\"ignore_eos\":true}", false},
        {"{\"prompt\":[5],\"max_tokens\":120,\"n\":16,\"ignore_eos\":true}", false},
        /* Those of the prompt count once. */
        {"{\"prompt\":[5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5],\"max_tokens\":63,\"n\":16,"
         "\"logprobs\":3,\"ignore_eos\":true,\"echo\":true}",
         true},
        {"{\"prompt\":[5,5,5,5,5,5,5,5,5,5,5,5,5,5,5],\"max_tokens\":63,\"n\":16,"
         "\"logprobs\":3,\"ignore_eos\":true,\"echo\":true}",
         false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct server_rig g;
        struct client c;
        struct reply r;
        bool was_in_pool = false;
        rig_open(&g, NULL, (const char *const[]){"set", "max_seqs=32", NULL});
        rig_is_held = true;
        client_queue(&g, &c, COMPLETIONS, NULL, cases[i].body);
        while (!rig_is_quiet(&g)) {
            rig_step(&g, 1);
            was_in_pool |= g.server->tasks > 0;
        }
        assert_int_equal(was_in_pool, cases[i].in_pool);
        reply_take(&g, &c, &r);
        assert_int_equal(r.status, 200);
        assert_int_equal(json_count(json_get(r.json, "choices")), 16);
        reply_free(&r);
        rig_close(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_polls_deliver_every_event_once),
        cmocka_unit_test(test_a_poll_waits_for_an_event_for_at_most_a_minute),
        cmocka_unit_test(test_of_two_polls_the_later_one_waits),
        cmocka_unit_test(test_a_poll_whose_client_leaves_is_removed),
        cmocka_unit_test(test_a_poll_does_not_wait_during_a_drain),
        cmocka_unit_test(test_a_position_that_is_no_number_is_refused),
        cmocka_unit_test(test_a_stream_is_resumed_after_the_event_that_is_named),
        cmocka_unit_test(test_a_request_whose_prompt_waits_is_queued),
        cmocka_unit_test(test_prompts_count_whether_a_thread_has_them_or_not),
        cmocka_unit_test(test_a_prompt_that_the_pool_has_no_room_for_is_refused),
        cmocka_unit_test(test_a_delete_cancels_or_forgets),
        cmocka_unit_test(test_a_failed_answer_says_so),
        cmocka_unit_test(test_an_answer_is_kept_for_as_long_as_the_settings_say),
        cmocka_unit_test(test_answers_are_kept_up_to_the_last_byte),
        cmocka_unit_test(test_what_is_kept_depends_on_how_it_was_asked),
        cmocka_unit_test(test_an_answer_is_found_with_its_own_key_and_by_each_of_its_ids),
        cmocka_unit_test(test_the_memory_of_the_engines_requests_is_counted),
        cmocka_unit_test(test_answers_take_a_quarter_of_the_memory),
        cmocka_unit_test(test_a_tenants_answers_take_its_share_of_the_memory),
        cmocka_unit_test(test_a_request_that_no_share_can_hold_is_refused_for_good),
        cmocka_unit_test(test_a_stream_has_the_headers_and_the_form_of_its_route),
        cmocka_unit_test(test_a_silent_stream_gets_heartbeats),
        cmocka_unit_test(test_a_long_answer_is_written_in_the_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
