/* Goal:   a limit allows what it names and refuses the next: places in the queue (with several
 *         choices, prompts and tenants), tokens of a key, deadlines, headers, ids and the drain;
 *         and a refusal says when to try again.
 * Method: the whole server on a loop that the test turns, with a stopped clock and an engine that
 *         is stepped by hand, so that requests stay queued for as long as the test wants.
 * wrap: clock_now engine_start engine_submit engine_wake log_line tracer_add uv_now
 * wrap: uv_timer_start */
#include "server/generations.h"
#include "unit/server/server_rig.h"

#define COMPLETIONS "POST /v1/completions"
#define ONE "{\"prompt\":[5,6,7],\"max_tokens\":4}"
#define TWO "{\"prompt\":[5,6,7],\"max_tokens\":4,\"n\":2}"

static const char *const places_4[] = {"set", "max_seqs=2", "set", "queue_max=2", NULL};

/* Every request that is queued succeeds when the engine works. */
static void finish_all(struct server_rig *g, struct client *c, uint32_t count) {
    struct reply r;
    rig_is_held = false;
    while (!rig_is_quiet(g)) rig_step(g, 1);
    for (uint32_t i = 0; i < count; i++) {
        reply_take(g, &c[i], &r);
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
}

/* ---- places in the queue ---- */

static void test_the_queue_holds_as_many_choices_as_it_has_places(void **state) {
    (void)state;
    static const char *const fill[][3] = {
        {"{\"prompt\":[[5],[6]],\"max_tokens\":4,\"n\":2}", NULL},
        {TWO, TWO, NULL},
        {"{\"prompt\":[5],\"max_tokens\":4,\"n\":3}", ONE, NULL},
        {"{\"prompt\":[5],\"max_tokens\":4,\"n\":4}", NULL},
    };
    for (size_t i = 0; i < sizeof(fill) / sizeof(fill[0]); i++) {
        struct server_rig g;
        struct client c[3];
        struct reply r;
        char text[32];
        uint32_t count = 0;
        rig_open(&g, NULL, places_4);
        expect(&g, COMPLETIONS, NULL, ONE, 200, NULL, NULL); /* so that it can predict */
        rig_is_held = true;
        for (; fill[i][count]; count++)
            client_queue(&g, &c[count], COMPLETIONS, NULL, fill[i][count]);
        assert_int_equal(g.model->live_choices, 4);
        ask(&g, &r, COMPLETIONS, NULL, ONE);
        assert_refused(&r, 429, "queue_full", "the queue is full; try again later");
        const int64_t wait_ms =
            (int64_t)(engine_stats(g.model->engine).predicted_wait_us / 1000) + 1;
        assert_true(wait_ms > 1);
        snprintf(text, sizeof(text), "%lld", (long long)wait_ms);
        assert_header(&r, "retry-after-ms", text);
        snprintf(text, sizeof(text), "%lld", (long long)(wait_ms + 999) / 1000);
        assert_header(&r, "retry-after", text);
        assert_header(&r, "x-should-retry", "true");
        reply_free(&r);
        finish_all(&g, c, count);
        expect(&g, COMPLETIONS, NULL, ONE, 200, NULL, NULL);
        rig_close(&g);
    }
}

static void test_more_choices_than_there_are_places_are_never_accepted(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    rig_open(&g, NULL, places_4);
    ask(&g, &r, COMPLETIONS, NULL, "{\"prompt\":[5],\"max_tokens\":4,\"n\":5}");
    assert_refused(&r, 400, NULL, "5 choices are requested; the queue holds at most 4");
    assert_json_text(&r, "error.param", "n");
    assert_null(strstr(buf_text(&r.body), "API key"));
    assert_header(&r, "x-should-retry", "false");
    assert_header(&r, "retry-after", "");
    reply_free(&r);
    expect(&g, COMPLETIONS, NULL, "{\"prompt\":[[5],[6],[7]],\"n\":2,\"max_tokens\":4}", 400, NULL,
           "6 choices are requested; the queue holds at most 4");
    expect(&g, COMPLETIONS, NULL, "{\"prompt\":[5],\"max_tokens\":4,\"n\":4}", 200, NULL, NULL);
    rig_close(&g);
}

/* Of the choices of one request, those that have ended leave their places. */
static void test_a_place_is_free_when_its_choice_has_ended(void **state) {
    (void)state;
    struct server_rig g;
    struct client c[2];
    rig_open(&g, NULL, places_4);
    rig_is_held = true;
    client_queue(&g, &c[0], COMPLETIONS, NULL, "{\"prompt\":[5],\"max_tokens\":1,\"n\":4}");
    expect(&g, COMPLETIONS, NULL, ONE, 429, "queue_full", NULL);
    for (uint32_t n = 0; g.model->live_choices == 4; n++) {
        assert_true(n < 10);
        rig_step(&g, 1);
    }
    assert_in_range(g.model->live_choices, 1, 3);
    client_queue(&g, &c[1], COMPLETIONS, NULL, ONE);
    finish_all(&g, c, 2);
    assert_int_equal(g.model->live_choices, 0);
    rig_close(&g);
}

#define TENANTS "k1 tenant=a\nk2 tenant=b\nk3 tenant=a\n"
#define K1 "authorization: Bearer k1\r\n"
#define K2 "authorization: Bearer k2\r\n"
#define K3 "authorization: Bearer k3\r\n"

/* Of 8 places a tenant may hold half while it is alone, with whatever of its keys. */
static void test_a_tenant_has_a_share_of_the_queue(void **state) {
    (void)state;
    static const char *const places_8[] = {"set", "max_seqs=4", "set", "queue_max=4", NULL};
    struct server_rig g;
    struct client c[3];
    rig_open(&g, TENANTS, places_8);
    rig_is_held = true;
    expect(&g, COMPLETIONS, K1, "{\"prompt\":[5],\"n\":5}", 400, NULL,
           "5 choices are requested; the queue holds at most 4 of one API key");
    client_queue(&g, &c[0], COMPLETIONS, K1, "{\"prompt\":[5],\"max_tokens\":4,\"n\":3}");
    expect(&g, COMPLETIONS, K3, TWO, 429, "queue_share_full",
           "this API key has used up its share of the queue; try again later");
    client_queue(&g, &c[1], COMPLETIONS, K3, ONE);
    expect(&g, COMPLETIONS, K1, ONE, 429, "queue_share_full", NULL);
    client_queue(&g, &c[2], COMPLETIONS, K2, TWO);
    assert_int_equal(g.model->live_choices, 6);
    finish_all(&g, c, 3);
    client_queue(&g, &c[0], COMPLETIONS, K1, "{\"prompt\":[5],\"max_tokens\":4,\"n\":4}");
    finish_all(&g, c, 1);
    rig_close(&g);
}

static void test_n_may_be_as_large_as_n_max(void **state) {
    (void)state;
    static const char *const flags[] = {"n-max", "3", NULL};
    struct server_rig g;
    rig_open(&g, NULL, flags);
    expect(&g, COMPLETIONS, NULL, "{\"prompt\":[5],\"max_tokens\":1,\"n\":3}", 200, NULL, NULL);
    expect(&g, COMPLETIONS, NULL, "{\"prompt\":[5],\"max_tokens\":1,\"n\":4}", 400, NULL,
           "n is 4; this server accepts at most 3");
    rig_close(&g);
}

/* ---- tokens of a key ---- */

static int64_t completion_tokens(const struct reply *r) {
    return json_int(reply_path(r->json, "usage.completion_tokens"), -1);
}

/* A limit that is lower than what is asked for ends all choices at the same length. */
static void test_the_tokens_of_a_key_end_its_answers(void **state) {
    (void)state;
    static const struct {
        const char *key, *body;
        uint32_t completion;
    } cases[] = {
        {"k1 tpm=30\nk2\n", "{\"prompt\":[5,6,7],\"max_tokens\":100,\"n\":2}", 26},
        {"k1 tpm=30\nk2\n", "{\"prompt\":[5,6,7],\"max_tokens\":100}", 27},
        {"k1 tpm=30\nk2\n", "{\"prompt\":[5,6,7],\"max_tokens\":27}", 27},
        {"k1 tpm=30\nk2\n", "{\"prompt\":[5,6,7],\"max_tokens\":26}", 26},
        {"k1 tpm=30\nk2\n", "{\"prompt\":[[5,6],[7]],\"max_tokens\":100,\"n\":2}", 24},
        {"k1 tpm=5\nk2\n", "{\"prompt\":[5,6,7],\"max_tokens\":100,\"n\":2}", 2},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct server_rig g;
        struct reply r;
        rig_open(&g, cases[i].key, NULL);
        rig_stop_clock_at_second();
        ask(&g, &r, COMPLETIONS, K1, cases[i].body);
        assert_int_equal(r.status, 200);
        assert_int_equal(completion_tokens(&r), cases[i].completion);
        reply_free(&r);
        rig_close(&g);
    }
}

/* One token for each choice is the least. */
static void test_a_request_that_the_tokens_of_a_minute_cannot_hold_is_refused(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    rig_open(&g, "k1 tpm=5\nk2\n", NULL);
    rig_stop_clock_at_second();
    expect(&g, COMPLETIONS, K1, "{\"prompt\":[5,6,7,8],\"max_tokens\":100,\"n\":2}", 400,
           "tokens_per_minute_exceeded", "needs at least 6 tokens");
    expect(&g, COMPLETIONS, K1, "{\"prompt\":[5,6,7],\"max_tokens\":100,\"n\":2}", 200, NULL, NULL);
    ask(&g, &r, COMPLETIONS, K1, ONE);
    assert_refused(&r, 429, NULL, "tokens per minute");
    assert_header(&r, "retry-after-ms", "60000");
    assert_header(&r, "retry-after", "60");
    assert_header(&r, "x-ratelimit-remaining-tokens", "0");
    assert_header(&r, "x-ratelimit-reset-tokens", "60000ms");
    reply_free(&r);
    rig_pass_us(59999999);
    expect(&g, COMPLETIONS, K1, "{\"prompt\":[5],\"max_tokens\":1}", 429, NULL, NULL);
    rig_pass_us(1);
    expect(&g, COMPLETIONS, K1, "{\"prompt\":[5],\"max_tokens\":1}", 200, NULL, NULL);
    rig_close(&g);
}

/* Whatever ends a request before it runs, its place among the concurrent ones is free again. */
static void test_a_refused_request_is_not_concurrent(void **state) {
    (void)state;
    static const char *const flags[] = {"text-max", "1024", "body-max", "65536", NULL};
    static const struct {
        const char *line, *body;
        uint32_t status;
    } cases[] = {
        {COMPLETIONS, "{\"prompt\":[5,6,7,300]}", 400},
        {COMPLETIONS, "{\"prompt\":[5],\"model\":\"none\"}", 404},
        {COMPLETIONS, "{\"prompt\":[5],\"n\":17}", 400},
        {COMPLETIONS, ONE, 200},
        {"POST /tokenize", "{\"content\":\"abc\"}", 200},
        {"POST /tokenize", "{\"content\":\"abc\",\"model\":\"none\"}", 404},
        {"POST /detokenize", "{\"tokens\":[5,6]}", 200},
        {"POST /detokenize", "{\"tokens\":[5,600]}", 400},
        {"POST /apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", 400},
        {"POST /v1/messages/count_tokens",
         "{\"model\":\"llama\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", 400},
        {"POST /v1/embeddings", "{\"input\":[5]}", 400},
    };
    struct server_rig g;
    rig_open(&g, "k1 concurrent=1\nk2\n", flags);
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t at = i / 2;
        struct reply r;
        ask(&g, &r, cases[at].line, K1, cases[at].body);
        if (r.status != cases[at].status)
            fail_msg("%s %s: %u: %s", cases[at].line, cases[at].body, r.status, buf_text(&r.body));
        reply_free(&r);
        rig_until(&g, rig_is_quiet);
        assert_true(keys_are_idle(g.server->keys));
    }
    rig_close(&g);
}

static void test_as_many_requests_are_concurrent_as_the_key_says(void **state) {
    (void)state;
    struct server_rig g;
    struct client c[2];
    struct reply r;
    rig_open(&g, "k1 concurrent=2\nk2\n", NULL);
    rig_is_held = true;
    for (int i = 0; i < 2; i++) client_queue(&g, &c[i], COMPLETIONS, K1, TWO);
    ask(&g, &r, COMPLETIONS, K1, ONE);
    assert_refused(&r, 429, NULL, "concurrent requests");
    assert_header(&r, "retry-after-ms", "1000");
    reply_free(&r);
    finish_all(&g, c, 2);
    client_queue(&g, &c[0], COMPLETIONS, K1, TWO);
    finish_all(&g, c, 1);
    rig_close(&g);
}

/* ---- the context ---- */

static void put_prompt(struct buf *out, uint32_t tokens, const char *rest) {
    buf_init(out, 1 << 20);
    buf_put_text(out, "{\"prompt\":[5");
    for (uint32_t i = 1; i < tokens; i++) buf_put_text(out, ",6");
    buf_printf(out, "]%s}", rest);
}

static void test_prompt_and_answer_fill_the_context_and_no_more(void **state) {
    (void)state;
    static const struct {
        uint32_t tokens;
        const char *rest;
        uint32_t status, completion;
    } cases[] = {
        {127, ",\"max_tokens\":5", 200, 1},           {100, ",\"max_tokens\":28", 200, 28},
        {100, ",\"max_tokens\":29", 200, 28},         {100, ",\"max_tokens\":27", 200, 27},
        {100, ",\"max_tokens\":28,\"n\":2", 200, 56}, {129, ",\"max_tokens\":1", 400, 0},
        {128, ",\"max_tokens\":1", 400, 0},
    };
    struct server_rig g;
    rig_open(&g, NULL, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf body;
        struct reply r;
        put_prompt(&body, cases[i].tokens, cases[i].rest);
        ask(&g, &r, COMPLETIONS, NULL, buf_text(&body));
        if (r.status != cases[i].status) fail_msg("%zu: %s", i, buf_text(&r.body));
        if (r.status == 200) assert_json_int(&r, "usage.completion_tokens", cases[i].completion);
        if (r.status == 200) assert_json_int(&r, "usage.prompt_tokens", cases[i].tokens);
        reply_free(&r);
        buf_deinit(&body);
    }
    rig_close(&g);
}

/* ---- request headers ---- */

static void test_headers_reach_the_request_in_their_units(void **state) {
    (void)state;
    struct server_rig g;
    struct client c[2];
    rig_open(&g, NULL, (const char *const[]){"request-timeout-s", "2.5", NULL});
    rig_is_held = true;
    client_queue(&g, &c[0], COMPLETIONS,
                 "x-jitney-ttft-ms: 1.5\r\nx-jitney-tpot-ms: 2.25\r\nx-jitney-deadline-ms: 2000\r\n"
                 "x-jitney-smooth-ms: 30\r\nx-jitney-priority: -7\r\nx-jitney-keep: true\r\n",
                 ONE);
    const struct generation *gen = rig_newest(&g);
    assert_int_equal(gen->request.urgency.ttft_target_us, 1500);
    assert_int_equal(gen->request.urgency.tpot_target_us, 2250);
    assert_int_equal(gen->request.urgency.expires_us, 2000000);
    assert_int_equal(gen->request.urgency.priority, -7);
    assert_int_equal(gen->request.smooth_ms, 0); /* it is not a stream */
    assert_int_equal(gen->timeout_us, 2500000);
    assert_true(gen->survives);
    assert_true(gen->is_findable);
    client_queue(&g, &c[1], COMPLETIONS, "x-jitney-smooth-ms: 30\r\n",
                 "{\"prompt\":[5],\"max_tokens\":2,\"stream\":true}");
    gen = rig_newest(&g);
    assert_int_equal(gen->request.smooth_ms, 30);
    assert_int_equal(gen->request.urgency.ttft_target_us, 0);
    assert_int_equal(gen->request.urgency.priority, 0);
    assert_false(gen->survives);
    assert_true(gen->is_findable);
    finish_all(&g, c, 2);
    rig_close(&g);
}

static void test_a_header_out_of_its_range_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *header;
        uint32_t status;
    } cases[] = {
        {"x-jitney-priority: 1000\r\n", 200},    {"x-jitney-priority: 1001\r\n", 400},
        {"x-jitney-priority: -1000\r\n", 200},   {"x-jitney-priority: -1001\r\n", 400},
        {"x-jitney-priority: high\r\n", 400},    {"x-jitney-ttft-ms: 86400000\r\n", 200},
        {"x-jitney-ttft-ms: 86400001\r\n", 400}, {"x-jitney-ttft-ms: -1\r\n", 400},
        {"x-jitney-ttft-ms: 0\r\n", 200},        {"x-jitney-tpot-ms: x\r\n", 400},
        {"x-jitney-deadline-ms: nan\r\n", 400},  {"x-jitney-smooth-ms: -1\r\n", 400},
        {"x-jitney-deadline-ms: 0\r\n", 200},
    };
    struct server_rig g;
    rig_open(&g, NULL, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct reply r;
        ask(&g, &r, COMPLETIONS, cases[i].header, ONE);
        if (r.status != cases[i].status) fail_msg("%s: %u", cases[i].header, r.status);
        if (r.status == 400) {
            char name[64];
            snprintf(name, sizeof(name), "%.*s", (int)strcspn(cases[i].header, ":"),
                     cases[i].header);
            assert_json_text(&r, "error.param", name);
        }
        reply_free(&r);
    }
    rig_close(&g);
}

/* ---- what the engine gets ---- */

/* The last request that was submitted; its pointers are not valid any more. */
static struct request_spec spec;
static int32_t spec_stop;
static char spec_salt[16];

enum status __real_engine_submit(struct engine *e, const struct request_spec *s,
                                 struct request **out, struct err *err);
enum status __wrap_engine_submit(struct engine *e, const struct request_spec *s,
                                 struct request **out, struct err *err);
enum status __wrap_engine_submit(struct engine *e, const struct request_spec *s,
                                 struct request **out, struct err *err) {
    spec = *s;
    spec_stop = s->stop_token_count > 0 ? s->stop_tokens[0] : -1;
    snprintf(spec_salt, sizeof(spec_salt), "%.*s", STR_ARG(s->cache_salt));
    return __real_engine_submit(e, s, out, err);
}

static uint32_t woken;
void __real_engine_wake(struct engine *e);
void __wrap_engine_wake(struct engine *e);
void __wrap_engine_wake(struct engine *e) {
    woken++;
    __real_engine_wake(e);
}

static void test_a_request_reaches_the_engine_with_all_that_it_says(void **state) {
    (void)state;
    struct server_rig g;
    struct client c[2];
    rig_open(&g, "k1 tenant=a\nk2 tenant=b\n", NULL);
    rig_is_held = true;
    rig_stop_clock();
    woken = 0;
    client_queue(
        &g, &c[0], COMPLETIONS,
        K2 "x-jitney-priority: -3\r\nx-jitney-ttft-ms: 200\r\nx-jitney-tpot-ms: 300\r\n"
           "x-jitney-deadline-ms: 40\r\n",
        "{\"prompt\":[5,6,7],\"max_tokens\":9,\"n\":2,\"min_tokens\":4,\"ignore_eos\":true,"
        "\"stop_token_ids\":[77,78],\"logprobs\":3,\"echo\":true,\"temperature\":0.5,"
        "\"seed\":12,\"cache_salt\":\"salt\"}");
    assert_int_equal(spec.prompt_tokens, 3);
    assert_int_equal(spec.max_tokens, 9);
    assert_int_equal(spec.n, 2);
    assert_int_equal(spec.min_tokens, 4);
    assert_true(spec.ignore_end);
    assert_int_equal(spec.stop_token_count, 2);
    assert_int_equal(spec_stop, 77);
    assert_true(spec.want_logprobs);
    assert_true(spec.want_prompt_logprobs);
    assert_int_equal(spec.sample.top_logprobs, 3);
    assert_int_equal(spec.sample.seed, 12);
    assert_true(spec.sample.temperature > 0.49f && spec.sample.temperature < 0.51f);
    assert_string_equal(spec_salt, "salt");
    assert_int_equal(spec.tenant, keys_find(g.server->keys, STR("k2"))->tenant);
    assert_true(spec.has_share);
    assert_int_equal(spec.urgency.priority, -3);
    assert_int_equal(spec.urgency.ttft_target_us, 200000);
    assert_int_equal(spec.urgency.tpot_target_us, 300000);
    assert_int_equal(spec.urgency.expires_us, 40000);
    assert_true(spec.wakes_later); /* one call for all requests that were prepared together */
    assert_int_equal(woken, 1);
    client_queue(&g, &c[1], COMPLETIONS, K1, ONE);
    assert_int_equal(woken, 2);
    assert_false(spec.ignore_end);
    assert_false(spec.want_logprobs);
    assert_false(spec.want_prompt_logprobs);
    assert_int_equal(spec.stop_token_count, 0);
    assert_int_equal(spec.min_tokens, 0);
    assert_int_equal(spec.urgency.expires_us, 600000000); /* --request-timeout-s */
    finish_all(&g, c, 2);
    rig_close(&g);
    rig_open(&g, "k1 tenant=a\n", NULL);
    expect(&g, COMPLETIONS, K1, ONE, 200, NULL, NULL);
    assert_false(spec.has_share); /* it is alone */
    rig_close(&g);
}

/* A request may be less urgent than its key, never more. */
static void test_a_key_limits_how_urgent_its_requests_are(void **state) {
    (void)state;
    static const struct {
        const char *headers, *body;
        int32_t priority;
        int64_t ttft_us, tpot_us, smooth_ms;
    } cases[] = {
        {K1, ONE, 5, 0, 0, 0},
        {K2, ONE, 0, 0, 0, 0},
        {K1 "x-jitney-priority: 9\r\n", ONE, 5, 0, 0, 0},
        {K1 "x-jitney-priority: 4\r\n", ONE, 4, 0, 0, 0},
        {K1 "x-jitney-priority: -3\r\n", ONE, -3, 0, 0, 0},
        {K2 "x-jitney-priority: 4\r\n", ONE, 0, 0, 0, 0},
        {K1, "{\"prompt\":[5],\"max_tokens\":2,\"priority\":3}", -3, 0, 0,
         0}, /* as vLLM: lower is first */
        {K1 "x-jitney-ttft-ms: 399\r\nx-jitney-tpot-ms: 29\r\n", ONE, 5, 400000, 30000, 0},
        {K1 "x-jitney-ttft-ms: 401\r\nx-jitney-tpot-ms: 31\r\n", ONE, 5, 401000, 31000, 0},
        {K1, "{\"prompt\":[5],\"max_tokens\":2,\"stream\":true,\"smooth_ms\":40}", 5, 0, 0, 40},
        {K1 "x-jitney-smooth-ms: 50\r\n",
         "{\"prompt\":[5],\"max_tokens\":2,\"stream\":true,\"smooth_ms\":40}", 5, 0, 0, 50},
    };
    struct server_rig g;
    rig_open(&g, "k1 priority=5 ttft=400 tpot=30\nk2\n", NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct client c;
        rig_is_held = true;
        client_queue(&g, &c, COMPLETIONS, cases[i].headers, cases[i].body);
        const struct api_request *q = &rig_newest(&g)->request;
        if (q->urgency.priority != cases[i].priority || q->smooth_ms != cases[i].smooth_ms)
            fail_msg("case %zu: %d, %d", i, q->urgency.priority, (int)q->smooth_ms);
        assert_int_equal(spec.urgency.priority, cases[i].priority);
        assert_int_equal(spec.urgency.ttft_target_us, cases[i].ttft_us);
        assert_int_equal(spec.urgency.tpot_target_us, cases[i].tpot_us);
        finish_all(&g, &c, 1);
    }
    rig_close(&g);
}

/* Without max_tokens the rest of the context is reserved. */
static void test_a_request_reserves_its_prompt_and_its_longest_answer(void **state) {
    (void)state;
    static const struct {
        const char *line, *body;
        uint32_t reserved;
    } cases[] = {
        {"POST /api/generate", "{\"model\":\"llama\",\"prompt\":\"a\",\"raw\":true}", 128},
        {COMPLETIONS, "{\"prompt\":[5,6,7],\"max_tokens\":1000}", 128},
        {COMPLETIONS, "{\"prompt\":[5,6,7],\"max_tokens\":1000,\"n\":2}", 3 + 2 * 125},
        {COMPLETIONS, "{\"prompt\":[[5,6,7],[8]],\"max_tokens\":10,\"n\":2}", 4 + 4 * 10},
        {COMPLETIONS, "{\"prompt\":[5,6,7],\"max_tokens\":0,\"echo\":true}", 3},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct server_rig g;
        struct client c;
        rig_open(&g, "k1 tpm=1000\nk2\n", NULL);
        rig_stop_clock_at_second();
        rig_is_held = true;
        const struct key *key = keys_find(g.server->keys, STR("k1"));
        client_queue(&g, &c, cases[i].line, K1, cases[i].body);
        assert_int_equal(rig_newest(&g)->reserved, cases[i].reserved);
        assert_int_equal(keys_room(g.server->keys, key, clock_now(&clock_real)).tokens_left,
                         1000 - cases[i].reserved);
        finish_all(&g, &c, 1);
        rig_close(&g);
    }
    struct server_rig g;
    rig_open(&g, "k1 tpm=3\nk2\n", NULL);
    rig_stop_clock_at_second();
    expect(&g, COMPLETIONS, K1, "{\"prompt\":[5,6,7],\"max_tokens\":0,\"echo\":true}", 200, NULL,
           NULL);
    rig_close(&g);
}

/* ---- deadlines ---- */

/* While it is queued: `before_us` after its arrival it is there, at the deadline it is not. */
static void check_deadline(const char *flag, const char *header, int64_t limit_us) {
    struct server_rig g;
    struct client c;
    struct reply r;
    rig_open(&g, NULL, (const char *const[]){"request-timeout-s", flag, NULL});
    rig_stop_clock();
    rig_is_held = true;
    client_queue(&g, &c, COMPLETIONS, header, "{\"prompt\":[5],\"max_tokens\":100,\"n\":2}");
    rig_pass_us(limit_us - 1);
    rig_step(&g, 2);
    assert_int_equal(generations_stats(g.server->generations).live, 1);
    rig_pass_us(1);
    while (!rig_is_quiet(&g)) rig_step(&g, 1);
    reply_take(&g, &c, &r);
    assert_refused(&r, 504, "deadline_exceeded", "the request exceeded its deadline");
    reply_free(&r);
    rig_close(&g);
}

static void test_a_deadline_is_exact(void **state) {
    (void)state;
    check_deadline("2.5", NULL, 2500000);
    check_deadline("2.5", "x-jitney-deadline-ms: 400\r\n", 400000);
    check_deadline("2.5", "x-jitney-deadline-ms: 2600\r\n", 2500000);
    check_deadline("0", "x-jitney-deadline-ms: 400.5\r\n", 400500);
}

/* ---- the drain ---- */

static bool is_draining(struct server_rig *g) { return g->server->is_draining; }

static void begin_drain(struct server_rig *g) {
    raise(SIGTERM);
    rig_until(g, is_draining);
}

static bool has_work(struct server_rig *g) { return !rig_is_prepared(g); }

/* A simulation that has a thread when the drain begins is not begun, or not continued. */
static void test_a_simulation_ends_with_the_drain(void **state) {
    (void)state;
    static const char body[] =
        "{\"policies\":[\"fair\"],\"recording\":{\"jitney_recording\":1,\"hello\":{\"arrived\":"
        "[\"max\",\"prompt\",\"at_us\",\"tenant\",\"choice\",\"request\"],\"ended\":[\"generated\","
        "\"request\",\"choice\"]},\"state\":{},\"steps\":[{\"step\":1,\"at_us\":0,\"arrived\":"
        "[[20,16,0,0,0,1]],\"ended\":[]}]}}";
    for (uint32_t drains = 0; drains < 2; drains++) {
        struct server_rig g;
        struct client c;
        struct reply r;
        rig_open(&g, NULL, NULL);
        rig_block_pool(&g);
        client_send(&g, &c, "POST /v1/engine/whatif", NULL, body);
        rig_until(&g, has_work);
        if (drains) begin_drain(&g);
        rig_open_pool();
        reply_take(&g, &c, &r);
        if (drains) {
            assert_refused(&r, 503, "shutting_down", "the server is shutting down");
            rig_assert_logged("whatif", "turns=0");
            rig_assert_logged("whatif", "outcome=refused");
        } else {
            assert_int_equal(r.status, 200);
            rig_assert_logged("whatif", "outcome=done");
        }
        reply_free(&r);
        rig_close(&g);
    }
}

static void test_what_is_queued_is_answered_during_a_drain(void **state) {
    (void)state;
    struct server_rig g;
    struct client c[3];
    struct reply r;
    rig_open(&g, TENANTS, NULL);
    rig_is_held = true;
    client_queue(&g, &c[0], COMPLETIONS, K1, TWO);
    client_queue(&g, &c[1], COMPLETIONS, K2, "{\"prompt\":[[5],[6]],\"max_tokens\":3}");
    client_queue(&g, &c[2], COMPLETIONS, K3, ONE);
    begin_drain(&g);
    ask(&g, &r, COMPLETIONS, K1, ONE);
    assert_refused(&r, 503, "shutting_down", "the server is shutting down");
    assert_header(&r, "retry-after-ms", "5000");
    assert_header(&r, "retry-after", "5");
    assert_header(&r, "x-should-retry", "true");
    reply_free(&r);
    expect(&g, "POST /tokenize", K1, "{\"content\":\"a\"}", 503, "shutting_down", NULL);
    expect(&g, "GET /v1/models", K1, NULL, 200, NULL, NULL);
    expect(&g, "GET /livez", NULL, NULL, 200, NULL, NULL);
    expect(&g, "GET /health", NULL, NULL, 200, NULL, NULL);
    ask(&g, &r, "GET /readyz", NULL, NULL);
    assert_int_equal(r.status, 503);
    assert_json_text(&r, "status", "draining");
    assert_header(&r, "retry-after", "1");
    reply_free(&r);
    assert_int_equal(generations_stats(g.server->generations).live, 3);
    assert_false(g.server->is_ending);
    finish_all(&g, c, 3);
    rig_close(&g);
}

/* The head is enough to be refused: the body need not be sent. */
static void test_a_refusal_does_not_wait_for_the_body(void **state) {
    (void)state;
    static const struct {
        const char *line, *headers;
        uint32_t status;
    } cases[] = {
        {COMPLETIONS, "content-length: 1000\r\n", 401},
        {COMPLETIONS, K1 "content-length: 1000\r\ncontent-encoding: gzip\r\n", 415},
        {COMPLETIONS, K1 "content-length: 10000000\r\n", 413},
        {"POST /nowhere", K1 "content-length: 1000\r\n", 404},
        {"POST /v1/engine/policy", K1 "content-length: 10\r\n", 403},
        {COMPLETIONS, K1 "content-length: 1000\r\n", 503}, /* the server drains */
    };
    struct server_rig g;
    struct client c, queued;
    struct reply r;
    rig_open(&g, TENANTS, NULL);
    rig_is_held = true;
    client_queue(&g, &queued, COMPLETIONS, K1, ONE);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (cases[i].status == 503) begin_drain(&g);
        client_send(&g, &c, cases[i].line, cases[i].headers, NULL);
        reply_take(&g, &c, &r);
        assert_int_equal(r.status, cases[i].status);
        reply_free(&r);
    }
    finish_all(&g, &queued, 1);
    rig_close(&g);
}

static void test_a_drain_ends_what_is_queued_after_its_time(void **state) {
    (void)state;
    struct server_rig g;
    struct client c;
    struct reply r;
    rig_open(&g, NULL, (const char *const[]){"drain-s", "1.5", NULL});
    rig_stop_clock();
    rig_is_held = true;
    client_queue(&g, &c, COMPLETIONS, NULL, TWO);
    begin_drain(&g);
    assert_int_equal(g.server->drain_until_us - clock_now(&clock_real), 1500000);
    rig_pass_us(1499999);
    g.server->tick.timer_cb(&g.server->tick);
    assert_false(g.server->is_ending);
    rig_pass_us(1);
    g.server->tick.timer_cb(&g.server->tick);
    assert_true(g.server->is_ending);
    reply_take(&g, &c, &r);
    assert_refused(&r, 503, "shutting_down", "the server is shutting down");
    assert_header(&r, "retry-after-ms", "5000");
    reply_free(&r);
    rig_close(&g);
}

/* ---- responses that wait to be read ---- */

static void test_unread_responses_of_one_client_or_of_all_refuse_the_next(void **state) {
    (void)state;
    struct api_error e = {0};
    assert_int_equal(server_check_room(HTTP_ROOM, &e), ST_OK);
    assert_int_equal(e.status, 0);
    assert_int_equal(server_check_room(HTTP_ROOM_SHARE, &e), ST_BAD);
    assert_int_equal(e.status, 429);
    assert_string_equal(e.code, "unread_responses");
    assert_int_equal(e.retry_after_ms, 1000);
    e = (struct api_error){0};
    assert_int_equal(server_check_room(HTTP_ROOM_NONE, &e), ST_BAD);
    assert_int_equal(e.status, 503);
    assert_string_equal(e.code, "overloaded");
    assert_int_equal(e.retry_after_ms, 1000);
}

/* ---- ids and methods ---- */

static void test_the_clients_id_is_used_if_it_can_be_printed(void **state) {
    (void)state;
    struct server_rig g;
    char id[160], header[200], found[256];
    rig_open(&g, NULL, NULL);
    for (uint32_t len = 127; len <= 129; len++) {
        struct reply r;
        memset(id, 'a', len);
        id[0] = '!';
        id[1] = '~';
        id[len] = 0;
        snprintf(header, sizeof(header), "x-request-id: %s\r\n", id);
        ask(&g, &r, "GET /version", header, NULL);
        reply_header(&r, "x-request-id", found);
        if (len <= 128)
            assert_string_equal(found, id);
        else
            assert_int_equal(strlen(found), 24);
        reply_free(&r);
    }
    static const char *const bad[] = {"a b", "\xc3\xa9", "\xe9z", "z\xe9", ""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct reply r;
        snprintf(header, sizeof(header), "x-request-id: %s\r\n", bad[i]);
        ask(&g, &r, "GET /version", header, NULL);
        assert_int_equal(strspn(reply_header(&r, "x-request-id", found), "0123456789abcdef"), 24);
        reply_free(&r);
    }
    rig_close(&g);
}

/* Ids are taken from a store of random bytes, which is filled again when it is used up. */
static void test_ids_and_seeds_do_not_repeat(void **state) {
    (void)state;
    enum { IDS = 200 };
    static char ids[IDS][SERVER_ID_BYTES];
    struct server_rig g;
    uint64_t seeds[IDS];
    rig_open(&g, NULL, NULL);
    for (uint32_t i = 0; i < IDS; i++) {
        server_make_id(g.server, ids[i]);
        seeds[i] = server_make_seed(g.server);
        assert_int_equal(strspn(ids[i], "0123456789abcdef"), SERVER_ID_BYTES - 1);
        assert_int_equal(strlen(ids[i]), SERVER_ID_BYTES - 1);
        for (uint32_t j = 0; j < i; j++) {
            assert_memory_not_equal(ids[i], ids[j], 12);
            assert_memory_not_equal(ids[i] + 12, ids[j] + 12, 12);
            assert_true(seeds[i] != seeds[j]);
        }
    }
    rig_close(&g);
}

static void test_a_path_names_its_methods(void **state) {
    (void)state;
    static const struct {
        const char *line;
        uint32_t status;
        const char *allow;
    } cases[] = {
        {"POST /v1/models", 405, "GET, HEAD, OPTIONS"},
        {"GET /v1/completions", 405, "POST, OPTIONS"},
        {"PUT /v1/requests/x", 405, "GET, HEAD, DELETE, OPTIONS"},
        {"OPTIONS /v1/completions", 204, "POST, OPTIONS"},
        {"OPTIONS /v1/models", 204, "GET, HEAD, OPTIONS"},
    };
    struct server_rig g;
    rig_open(&g, NULL, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct reply r;
        ask(&g, &r, cases[i].line, NULL, NULL);
        assert_int_equal(r.status, cases[i].status);
        assert_header(&r, "allow", cases[i].allow);
        assert_header(&r, "access-control-allow-methods", "");
        if (r.status == 405) assert_refused(&r, 405, "method_not_allowed", cases[i].allow);
        if (r.status == 405) assert_header(&r, "x-should-retry", "false");
        reply_free(&r);
    }
    expect(&g, "OPTIONS /nowhere", NULL, NULL, 404, "unknown_url", NULL);
    expect(&g, COMPLETIONS, "content-encoding: gzip\r\n", ONE, 415, "unsupported_content_encoding",
           NULL);
    expect(&g, COMPLETIONS, "content-encoding: identity\r\n", ONE, 200, NULL, NULL);
    rig_close(&g);
}

static void test_a_page_of_a_listed_origin_may_read_the_answer(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    rig_open(&g, NULL, (const char *const[]){"cors-origin", "http://a.example", NULL});
    ask(&g, &r, "GET /version", "origin: http://a.example\r\n", NULL);
    assert_int_equal(r.status, 200);
    assert_header(&r, "access-control-allow-origin", "http://a.example");
    assert_header(&r, "vary", "origin");
    char text[256];
    assert_non_null(
        strstr(reply_header(&r, "access-control-expose-headers", text), "x-request-id"));
    reply_free(&r);
    ask(&g, &r, "OPTIONS /v1/models",
        "origin: http://a.example\r\naccess-control-request-headers: x-a, x-b\r\n", NULL);
    assert_header(&r, "access-control-allow-methods", "GET, HEAD, OPTIONS");
    assert_header(&r, "access-control-max-age", "600");
    assert_header(&r, "access-control-allow-headers", "x-a, x-b");
    reply_free(&r);
    ask(&g, &r, "OPTIONS /v1/models", "origin: http://a.example\r\n", NULL);
    assert_header(&r, "access-control-max-age", "600");
    assert_null(strstr(buf_text(&r.head), "access-control-allow-headers"));
    reply_free(&r);
    ask(&g, &r, "GET /version", NULL, NULL);
    assert_header(&r, "access-control-allow-origin", "");
    reply_free(&r);
    rig_close(&g);
}

static void test_a_request_without_a_key_is_told_to_send_one(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    rig_open(&g, TENANTS, NULL);
    ask(&g, &r, "GET /v1/models", NULL, NULL);
    assert_refused(&r, 401, NULL, NULL);
    assert_header(&r, "www-authenticate", "Bearer");
    assert_header(&r, "x-should-retry", "false");
    reply_free(&r);
    ask(&g, &r, "GET /v1/engine/state", K1, NULL);
    assert_refused(&r, 403, NULL, NULL);
    assert_header(&r, "www-authenticate", "");
    reply_free(&r);
    rig_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_queue_holds_as_many_choices_as_it_has_places),
        cmocka_unit_test(test_more_choices_than_there_are_places_are_never_accepted),
        cmocka_unit_test(test_a_place_is_free_when_its_choice_has_ended),
        cmocka_unit_test(test_a_tenant_has_a_share_of_the_queue),
        cmocka_unit_test(test_n_may_be_as_large_as_n_max),
        cmocka_unit_test(test_the_tokens_of_a_key_end_its_answers),
        cmocka_unit_test(test_a_request_that_the_tokens_of_a_minute_cannot_hold_is_refused),
        cmocka_unit_test(test_a_refused_request_is_not_concurrent),
        cmocka_unit_test(test_as_many_requests_are_concurrent_as_the_key_says),
        cmocka_unit_test(test_prompt_and_answer_fill_the_context_and_no_more),
        cmocka_unit_test(test_headers_reach_the_request_in_their_units),
        cmocka_unit_test(test_a_header_out_of_its_range_is_refused),
        cmocka_unit_test(test_a_request_reaches_the_engine_with_all_that_it_says),
        cmocka_unit_test(test_a_key_limits_how_urgent_its_requests_are),
        cmocka_unit_test(test_a_request_reserves_its_prompt_and_its_longest_answer),
        cmocka_unit_test(test_a_deadline_is_exact),
        cmocka_unit_test(test_a_simulation_ends_with_the_drain),
        cmocka_unit_test(test_what_is_queued_is_answered_during_a_drain),
        cmocka_unit_test(test_a_refusal_does_not_wait_for_the_body),
        cmocka_unit_test(test_a_drain_ends_what_is_queued_after_its_time),
        cmocka_unit_test(test_unread_responses_of_one_client_or_of_all_refuse_the_next),
        cmocka_unit_test(test_the_clients_id_is_used_if_it_can_be_printed),
        cmocka_unit_test(test_ids_and_seeds_do_not_repeat),
        cmocka_unit_test(test_a_path_names_its_methods),
        cmocka_unit_test(test_a_page_of_a_listed_origin_may_read_the_answer),
        cmocka_unit_test(test_a_request_without_a_key_is_told_to_send_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
