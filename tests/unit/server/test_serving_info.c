/* Goal:   what the server says of itself is right in every state: its models, its health, the state
 *         of an engine with requests in the batch and in the queue, a change of the policy, the
 *         page; and work on tokens and embeddings is measured, limited and charged.
 * Method: the whole server on a loop that the test turns, with an engine that is stepped by hand.
 * wrap: clock_now embedder_queue embedder_submit engine_start log_line tracer_add uv_now
 * wrap: uv_timer_start */
#include "engine/control.h"
#include "engine/embedder.h"
#include "server/engine_ask.h"
#include "server/generations.h"
#include "unit/server/server_rig.h"

#define COMPLETIONS "POST /v1/completions"
#define K1 "authorization: Bearer k1\r\n"
#define K2 "authorization: Bearer k2\r\n"

static const char *const bert[] = {"model", RIG_MODELS "bert", NULL};

static void assert_has(const struct reply *r, const char *words) {
    if (!strstr(buf_text((struct buf *)&r->body), words))
        fail_msg("no %s: %s", words, buf_text((struct buf *)&r->body));
}

static void assert_json_bool(const struct reply *r, const char *path, bool value) {
    const struct json *v = reply_path(r->json, path);
    assert_int_equal(json_kind(v), JS_BOOL);
    assert_int_equal(json_bool(v, !value), value);
}

/* ---- models ---- */

static void test_a_model_is_described(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    for (int is_bert = 0; is_bert < 2; is_bert++) {
        rig_open(&g, NULL, is_bert ? bert : NULL);
        ask(&g, &r, "GET /v1/models", NULL, NULL);
        assert_int_equal(json_count(json_get(r.json, "data")), 1);
        assert_json_text(&r, "data.0.id", is_bert ? "bert" : "llama");
        assert_json_int(&r, "data.0.created", g.model->created_s);
        assert_true(llabs(g.model->created_s - clock_wall_s()) < 3600);
        assert_json_int(&r, "data.0.max_model_len", is_bert ? 64 : 128);
        assert_json_text(&r, "data.0.meta.state", "ready");
        assert_json_bool(&r, "data.0.meta.writes", !is_bert);
        assert_json_bool(&r, "data.0.meta.embeds", is_bert);
        assert_json_bool(&r, "data.0.meta.chat_template", false);
        assert_json_int(&r, "data.0.meta.n_vocab", is_bert ? 128 : 288);
        assert_json_int(&r, "data.0.meta.n_ctx", is_bert ? 64 : 128);
        assert_json_int(&r, "data.0.meta.n_embd", is_bert ? 32 : 0);
        assert_json_int(&r, "data.0.meta.size", is_bert ? 97664 : 156288);
        reply_free(&r);
        ask(&g, &r, is_bert ? "GET /v1/models/bert" : "GET /v1/models/llama", NULL, NULL);
        assert_json_text(&r, "id", is_bert ? "bert" : "llama");
        assert_json_int(&r, "meta.size", is_bert ? 97664 : 156288);
        reply_free(&r);
        rig_close(&g);
    }
}

static void test_a_model_is_found_by_its_names(void **state) {
    (void)state;
    struct server_rig g;
    rig_open(&g, NULL,
             (const char *const[]){"model", RIG_MODELS "llama", "served-model-name", "a/b",
                                   "runner", "sim:0", NULL});
    expect(&g, "GET /v1/models/a/b", NULL, NULL, 200, NULL, NULL);
    expect(&g, "GET /v1/models/a%2Fb", NULL, NULL, 200, NULL, NULL);
    expect(&g, "GET /v1/models/a%2Fb:latest", NULL, NULL, 200, NULL, NULL);
    expect(&g, "GET /v1/models/llama", NULL, NULL, 200, NULL, NULL);
    expect(&g, "GET /v1/models/b", NULL, NULL, 404, "model_not_found", "unknown model \"b\"");
    rig_close(&g);
}

static void test_ollamas_clients_get_the_same_numbers(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    char first[80];
    rig_open(&g, NULL, NULL);
    ask(&g, &r, "GET /api/tags", NULL, NULL);
    assert_json_text(&r, "models.0.name", "llama");
    assert_json_int(&r, "models.0.size", 156288);
    assert_json_text(&r, "models.0.details.format", "safetensors");
    assert_json_text(&r, "models.0.details.family", "llama");
    assert_json_text(&r, "models.0.details.parameter_size", "0.04M");
    const struct str digest = json_str(reply_path(r.json, "models.0.digest"));
    assert_int_equal(digest.len, 64);
    snprintf(first, sizeof(first), "%.*s", STR_ARG(digest));
    assert_int_equal(strspn(first, "0123456789abcdef"), 64);
    assert_memory_not_equal(first, first + 16, 16);
    reply_free(&r);
    ask(&g, &r, "GET /api/ps", NULL, NULL);
    assert_json_text(&r, "models.0.digest", first);
    assert_json_int(&r, "models.0.context_length", 128);
    reply_free(&r);
    ask(&g, &r, "POST /api/show", NULL, "{\"model\":\"llama\"}");
    assert_json_text(&r, "capabilities.0", "completion");
    assert_has(&r, "\"general.parameter_count\":39072");
    assert_has(&r, "\"llama.context_length\":128");
    reply_free(&r);
    expect(&g, "POST /api/show", NULL, "{\"model\":\"none\"}", 404, NULL, NULL);
    ask(&g, &r, "GET /api/version", NULL, NULL);
    assert_json_text(&r, "version", JITNEY_VERSION);
    reply_free(&r);
    g.model->state = LOAD_LOADING;
    ask(&g, &r, "GET /api/ps", NULL, NULL);
    assert_int_equal(json_count(json_get(r.json, "models")), 0);
    reply_free(&r);
    ask(&g, &r, "GET /api/tags", NULL, NULL);
    assert_int_equal(json_count(json_get(r.json, "models")), 1);
    reply_free(&r);
    g.model->state = LOAD_READY;
    rig_close(&g);
    rig_open(&g, NULL, bert);
    ask(&g, &r, "POST /api/show", NULL, "{\"model\":\"bert\"}");
    assert_has(&r, "\"capabilities\":[\"embedding\"]");
    assert_has(&r, "\"bert.embedding_length\":32");
    reply_free(&r);
    rig_close(&g);
}

/* ---- health ---- */

static void assert_health(struct server_rig *g, uint32_t live, uint32_t ready, const char *text) {
    struct reply r;
    ask(g, &r, "GET /livez", NULL, NULL);
    assert_int_equal(r.status, live);
    assert_header(&r, "retry-after", live == 503 ? "1" : "");
    assert_json_text(&r, "status", live == 503 ? text : "ok");
    reply_free(&r);
    ask(g, &r, "GET /readyz", NULL, NULL);
    assert_int_equal(r.status, ready);
    assert_header(&r, "retry-after", ready == 503 ? "1" : "");
    assert_json_text(&r, "status", text);
    reply_free(&r);
    ask(g, &r, "GET /health", NULL, NULL);
    assert_int_equal(r.status, ready);
    if (ready == 200) {
        assert_json_text(&r, "status", "ok");
    } else {
        assert_json_int(&r, "error.code", 503);
        assert_json_text(&r, "error.message", text);
        assert_json_text(&r, "error.type", "unavailable_error");
        assert_header(&r, "retry-after", "1");
    }
    reply_free(&r);
}

static void test_the_probes_see_each_state(void **state) {
    (void)state;
    struct server_rig g;
    rig_open(&g, NULL, NULL);
    assert_health(&g, 200, 200, "ok");
    g.server->is_loaded = false;
    assert_health(&g, 200, 503, "Loading model");
    g.server->is_loaded = true;
    g.model->state = LOAD_FAILED;
    assert_health(&g, 200, 503, "no model can be used; the server's log says why");
    expect(&g, COMPLETIONS, NULL, "{\"prompt\":[5]}", 503, "model_failed", NULL);
    g.model->state = LOAD_LOADING;
    struct reply r;
    ask(&g, &r, COMPLETIONS, NULL, "{\"prompt\":[5]}");
    assert_refused(&r, 503, "model_loading", "Loading model \"llama\": ");
    assert_header(&r, "retry-after-ms", "1000");
    reply_free(&r);
    g.model->state = LOAD_READY;
    g.server->drain_until_us = INT64_MAX; /* so that it does not end */
    g.server->failure = "the engine hangs";
    assert_health(&g, 503, 503, "the engine hangs");
    g.server->failure = NULL;
    ask(&g, &r, "GET /version", NULL, NULL);
    assert_json_text(&r, "version", JITNEY_VERSION);
    reply_free(&r);
    rig_close(&g);
}

/* ---- metrics of what is under way ---- */

static void test_what_is_under_way_is_counted(void **state) {
    (void)state;
    struct server_rig g;
    struct client c[2];
    struct reply r;
    rig_open(&g, NULL,
             (const char *const[]){"set", "max_seqs=1", "set", "queue_max=8", "memory-max", "64M",
                                   NULL});
    rig_is_held = true;
    client_queue(&g, &c[0], COMPLETIONS, NULL, "{\"prompt\":[5,6,7],\"max_tokens\":100,\"n\":2}");
    client_queue(&g, &c[1], COMPLETIONS, NULL, "{\"prompt\":[[5],[6]],\"max_tokens\":100}");
    rig_step(&g, 1);
    assert_metric(&g, NULL, "vllm:num_requests_running", 1);
    assert_metric(&g, NULL, "vllm:num_requests_waiting", 3);
    assert_metric(&g, NULL, "jitney:answers_under_way", 2);
    assert_metric(&g, NULL, "jitney:http_exchanges", 3);
    assert_metric(&g, NULL, "jitney:http_connections", 3);
    assert_metric(&g, NULL, "jitney:kv_blocks_held", 1);
    assert_metric(&g, NULL, "vllm:generation_tokens_total", 1);
    assert_metric(&g, NULL, "vllm:iteration_tokens_total_sum", 3);
    assert_metric(&g, NULL, "jitney:engine_steps_total", 1);
    assert_metric(&g, NULL, "jitney:requests_submitted_total", 3);
    assert_metric(&g, NULL, "jitney:memory_max_bytes", 64 << 20);
    g.server->embeddings.used = 12345; /* as if some were under way */
    assert_metric(&g, NULL, "jitney:embeddings_bytes", 12345);
    g.server->embeddings.used = 0;
    rig_is_held = false;
    while (!rig_is_quiet(&g)) rig_step(&g, 1);
    for (int i = 0; i < 2; i++) {
        reply_take(&g, &c[i], &r);
        reply_free(&r);
    }
    rig_close(&g);
}

/* ---- the engine's state ---- */

static int64_t runs_of(const struct reply *r) {
    const struct json *map = reply_path(r->json, "blocks.map");
    int64_t sum = 0;
    for (size_t i = 0; i < json_count(map); i++)
        sum += json_int(json_at(json_at(map, i), 1), -1000);
    return sum;
}

/* Asks for the state; the engine makes no step but the one that answers. */
static void ask_state(struct server_rig *g, struct reply *r) {
    struct client c;
    rig_forget_timers();
    client_send(g, &c, "GET /v1/engine/state", K2, NULL);
    rig_until_asked(g);
    rig_step(g, 1);
    reply_take(g, &c, r);
}

/* Who answers, when, and what is in force. The clock is stopped. */
static void assert_rules(const struct reply *r) {
    assert_json_text(r, "jitney", JITNEY_VERSION);
    assert_json_text(r, "model", "llama");
    assert_json_int(r, "now_us", clock_now(&clock_real));
    const int64_t epoch_ms = json_int(json_get(r->json, "epoch_ms"), 0);
    assert_true(llabs(epoch_ms - (clock_wall_us() - clock_now(&clock_real)) / 1000) < 600000);
    assert_json_text(r, "policy", "chunked");
    assert_int_equal(json_count(json_get(r->json, "knobs")), knobs_count());
    assert_json_text(r, "knobs.2.name", "max_seqs");
    assert_json_int(r, "knobs.2.value", 2);
    assert_json_bool(r, "knobs.2.live", false);
    assert_json_bool(r, "knobs.3.live", true);
    assert_json_text(r, "knobs.6.value", "on");
}

static void assert_places(const struct reply *r) {
    assert_json_int(r, "blocks.total", 40);
    assert_json_int(r, "blocks.block_tokens", 16);
    assert_int_equal(runs_of(r), 40);
    assert_int_equal(json_count(json_get(r->json, "tenants")), 3);
    assert_json_text(r, "tenants.0", "");
    assert_json_text(r, "tenants.1", "a");
    assert_json_text(r, "tenants.2", "b");
    assert_json_text(r, "models.0.id", "llama");
    assert_json_text(r, "models.0.state", "ready");
}

static void test_the_state_shows_who_is_in_the_batch_and_in_the_queue(void **state) {
    (void)state;
    struct server_rig g;
    struct client c[2];
    struct reply r;
    char id[2][80];
    rig_open(&g, "k1 tenant=a\nk2 tenant=b admin\n",
             (const char *const[]){"set", "max_seqs=2", "set", "queue_max=64", "set",
                                   "kv_blocks=40", NULL});
    rig_is_held = true;
    ask_state(&g, &r);
    assert_json_int(&r, "step", 0);
    assert_int_equal(json_count(json_get(r.json, "requests")), 0);
    reply_free(&r);
    assert_metric(&g, K2,
                  "vllm:cache_config_info{model_name=\"llama\",engine=\"0\",block_size=\"16\","
                  "num_gpu_blocks=\"40\",max_model_len=\"128\"}",
                  1);
    client_queue(&g, &c[0], COMPLETIONS, K1, "{\"prompt\":[5,6,7],\"max_tokens\":100,\"n\":2}");
    snprintf(id[0], sizeof(id[0]), "cmpl-%s", rig_newest(&g)->answer.id);
    /* A stream: it is kept when it has ended, and is not the engine's any more. */
    client_queue(&g, &c[1], COMPLETIONS, K2,
                 "{\"prompt\":[[5],[6]],\"max_tokens\":100,\"stream\":true}");
    snprintf(id[1], sizeof(id[1]), "cmpl-%s", rig_newest(&g)->answer.id);
    rig_step(&g, 2);
    rig_stop_clock();
    ask_state(&g, &r);
    assert_int_equal(r.status, 200);
    assert_rules(&r);
    /* The second choice of the first request waits until its prompt is computed, so the other
     * tenant has the second seat. */
    assert_int_equal(json_count(json_get(r.json, "seats")), 2);
    assert_json_int(&r, "seats.0.tenant", 1);
    assert_json_int(&r, "seats.0.choice", 0);
    assert_json_int(&r, "seats.1.tenant", 2);
    assert_json_int(&r, "seats.1.choice", 0);
    assert_places(&r);
    assert_json_int(&r, "step", 3);
    /* The newest generation is first; each of its prompts is a request. */
    assert_int_equal(json_count(json_get(r.json, "requests")), 3);
    static const struct { uint32_t gen, tenant; } wanted[] = {{1, 2}, {1, 2}, {0, 1}};
    for (int i = 0; i < 3; i++) {
        char path[32];
        snprintf(path, sizeof(path), "requests.%d.id", i);
        assert_json_text(&r, path, id[wanted[i].gen]);
        snprintf(path, sizeof(path), "requests.%d.tenant", i);
        assert_json_int(&r, path, wanted[i].tenant);
    }
    assert_json_int(&r, "seats.0.request", json_int(reply_path(r.json, "requests.2.request"), -1));
    assert_json_int(&r, "seats.1.request", json_int(reply_path(r.json, "requests.0.request"), -1));
    reply_free(&r);
    rig_is_held = false;
    while (!rig_is_quiet(&g)) rig_step(&g, 1);
    for (int i = 0; i < 2; i++) {
        reply_take(&g, &c[i], &r);
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
    ask_state(&g, &r);
    assert_int_equal(generations_stats(g.server->generations).kept, 1);
    assert_int_equal(json_count(json_get(r.json, "requests")), 0);
    assert_int_equal(json_kind(reply_path(r.json, "seats.0")), JS_NULL);
    reply_free(&r);
    rig_close(&g);
}

static void test_each_engine_has_its_own_state(void **state) {
    (void)state;
    static const char *const flags[] = {
        "model", RIG_MODELS "llama",  "model", RIG_MODELS "llama", "served-model-name",
        "one",   "served-model-name", "two",   "runner",           "sim:0",
        NULL};
    struct server_rig g;
    struct client c, asking;
    struct reply r;
    rig_open(&g, NULL, flags);
    rig_is_held = true;
    client_queue(&g, &c, COMPLETIONS, NULL, "{\"model\":\"two\",\"prompt\":[5],\"max_tokens\":9}");
    for (int i = 0; i < 2; i++) {
        rig_forget_timers();
        client_send(&g, &asking,
                    i == 0 ? "GET /v1/engine/state?model=one" : "GET /v1/engine/state?model=two",
                    NULL, NULL);
        rig_until_asked(&g);
        rig_step(&g, 1);
        reply_take(&g, &asking, &r);
        assert_json_text(&r, "model", i == 0 ? "one" : "two");
        assert_int_equal(json_count(json_get(r.json, "requests")), i);
        assert_int_equal(json_count(json_get(r.json, "models")), 2);
        assert_json_text(&r, "models.1.id", "two");
        reply_free(&r);
    }
    while (!rig_is_quiet(&g)) rig_step(&g, 1);
    reply_take(&g, &c, &r);
    reply_free(&r);
    rig_close(&g);
}

/* The state without a map, a change with an error. */
static void test_an_engine_that_does_not_answer_is_not_waited_for(void **state) {
    (void)state;
    struct server_rig g;
    struct client c;
    struct reply r;
    rig_open(&g, NULL, NULL);
    rig_is_held = true;
    for (int is_change = 0; is_change < 2; is_change++) {
        rig_forget_timers();
        client_send(&g, &c, is_change ? "POST /v1/engine/policy" : "GET /v1/engine/state", NULL,
                    is_change ? "{\"policy\":\"fair\"}" : NULL);
        rig_until_asked(&g);
        if (is_change)
            expect(&g, "POST /v1/engine/policy", NULL, "{\"policy\":\"fair\"}", 503, "engine_busy",
                   NULL);
        rig_loop_ahead_ms += ENGINE_ASK_MS;
        reply_take(&g, &c, &r);
        if (is_change) {
            assert_refused(&r, 503, "engine_busy", "it will be in force after the step under way");
            assert_header(&r, "retry-after-ms", "1000");
        } else {
            assert_int_equal(r.status, 200);
            assert_int_equal(json_count(reply_path(r.json, "blocks.map")), 0);
        }
        reply_free(&r);
    }
    rig_close(&g);
}

static void test_a_policy_and_its_knobs_are_changed(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    rig_open(&g, NULL, (const char *const[]){"set", "queue_max=64", NULL});
    ask(&g, &r, "POST /v1/engine/policy", NULL,
        "{\"policy\":\"fair\",\"knobs\":{\"max_step_tokens\":256,\"watermark\":0.25,"
        "\"preempt\":\"swap\"}}");
    assert_int_equal(r.status, 200);
    assert_json_text(&r, "policy", "fair");
    assert_json_text(&r, "knobs.3.name", "max_step_tokens");
    assert_json_int(&r, "knobs.3.value", 256);
    reply_free(&r);
    rig_assert_logged("policy", "policy=fair");
    rig_assert_logged("policy", "model=llama");
    const struct control_rules rules = control_rules(engine_control(g.model->engine));
    assert_int_equal(rules.knobs.max_step_tokens, 256);
    assert_true(rules.knobs.watermark > 0.2499 && rules.knobs.watermark < 0.2501);
    static const struct {
        const char *body, *param, *words;
    } bad[] = {
        {"{\"policy\":\"none\"}", "policy", "unknown policy \"none\""},
        {"{\"knobs\":{\"max_seqs\":3}}", "knobs.max_seqs", "restart the server with --set"},
        {"{\"knobs\":{\"nothing\":3}}", "knobs.nothing", NULL},
        {"{\"knobs\":{\"queue_max\":65}}", "knobs.queue_max", NULL},
        {"{\"knobs\":{\"watermark\":2}}", "knobs.watermark", NULL},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ask(&g, &r, "POST /v1/engine/policy", NULL, bad[i].body);
        assert_refused(&r, 400, NULL, bad[i].words);
        assert_json_text(&r, "error.param", bad[i].param);
        reply_free(&r);
    }
    expect(&g, "POST /v1/engine/policy", NULL, "{\"knobs\":{\"queue_max\":64}}", 200, NULL, NULL);
    expect(&g, "POST /v1/engine/policy?model=none", NULL, "{}", 404, "model_not_found", NULL);
    rig_close(&g);
    rig_open(&g, NULL, bert);
    expect(&g, "GET /v1/engine/state", NULL, NULL, 400, NULL,
           "the model \"bert\" writes no text, so it has no engine");
    expect(&g, COMPLETIONS, NULL, "{\"prompt\":[5]}", 400, NULL,
           "the model \"bert\" gives embeddings and writes no text");
    rig_close(&g);
}

/* ---- tokens ---- */

static void put_text(struct buf *out, const char *before, uint32_t bytes, const char *after) {
    buf_init(out, 1 << 20);
    buf_put_text(out, before);
    for (uint32_t i = 0; i < bytes; i++) buf_put_char(out, 'a');
    buf_put_text(out, after);
}

static void test_tokens_are_counted(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    rig_open(&g, "k1 rpm=10 tpm=100\nk2\n", NULL);
    rig_stop_clock_at_second();
    ask(&g, &r, "POST /tokenize", K1, "{\"content\":\"abc abc\"}");
    assert_json_int(&r, "count", 6);
    assert_json_int(&r, "max_model_len", 128);
    assert_int_equal(json_count(json_get(r.json, "tokens")), 6);
    assert_json_int(&r, "tokens.0", 67);
    assert_json_int(&r, "tokens.3", 262);
    assert_header(&r, "x-ratelimit-remaining-requests", "9");
    assert_header(&r, "x-ratelimit-remaining-tokens", "100");
    reply_free(&r);
    ask(&g, &r, "POST /detokenize", K1, "{\"tokens\":[67,68,69,262,68,69]}");
    assert_json_text(&r, "content", "abc abc");
    assert_header(&r, "x-ratelimit-remaining-requests", "8");
    reply_free(&r);
    expect(&g, "POST /detokenize", K1, "{\"tokens\":[287]}", 200, NULL, NULL);
    expect(&g, "POST /detokenize", K1, "{\"tokens\":[288]}", 400, NULL, NULL);
    rig_close(&g);
}

static void test_a_text_may_be_as_long_as_text_max(void **state) {
    (void)state;
    static const struct {
        const char *line, *before, *after;
        bool of_bert;
    } cases[] = {
        {"POST /tokenize", "{\"content\":\"", "\"}", false},
        {"POST /tokenize", "{\"content\":\"", "\"}", true},
        {"POST /v1/embeddings", "{\"input\":\"", "\"}", true},
        {"POST /v1/embeddings", "{\"input\":[\"a\",\"", "\"]}", true},
        {"POST /api/embed", "{\"model\":\"bert\",\"input\":\"", "\"}", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct server_rig g;
        rig_open(&g, NULL,
                 cases[i].of_bert
                     ? (const char *const[]){"text-max", "2048", bert[0], bert[1], NULL}
                     : (const char *const[]){"text-max", "2048", NULL});
        for (uint32_t bytes = 2047; bytes <= 2049; bytes++) {
            struct buf body;
            struct reply r;
            put_text(&body, cases[i].before, bytes, cases[i].after);
            ask(&g, &r, cases[i].line, NULL, buf_text(&body));
            if (bytes <= 2048) {
                if (r.status == 413) fail_msg("%s", buf_text(&r.body));
            } else {
                assert_int_equal(r.status, 413);
                assert_has(&r, "the text has 2049 bytes; this server accepts at most 2048");
            }
            reply_free(&r);
            buf_deinit(&body);
        }
        rig_close(&g);
    }
}

/* ---- embeddings ---- */

static bool is_embedded(struct server_rig *g) { return g->server->embeds == 0; }

static void assert_ends(struct server_rig *g, const char *which, double value) {
    char name[128];
    snprintf(name, sizeof(name),
             "vllm:request_success_total{model_name=\"bert\",finished_reason=\"%s\"}", which);
    assert_metric(g, K2, name, value);
}

static void test_embeddings_are_counted_and_charged(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    rig_open(&g, "k1 rpm=10 tpm=100\nk2\n", bert);
    rig_stop_clock_at_second();
    const struct key *key = keys_find(g.server->keys, STR("k1"));
    ask(&g, &r, "POST /v1/embeddings", K1, "{\"input\":[[5,6,7],[8,9]]}");
    assert_int_equal(r.status, 200);
    assert_json_int(&r, "usage.prompt_tokens", 5);
    assert_json_int(&r, "usage.total_tokens", 5);
    assert_json_text(&r, "model", "bert");
    assert_int_equal(json_count(json_get(r.json, "data")), 2);
    assert_json_int(&r, "data.1.index", 1);
    assert_int_equal(json_count(reply_path(r.json, "data.1.embedding")), 32);
    assert_header(&r, "x-ratelimit-remaining-requests", "9");
    assert_header(&r, "x-ratelimit-remaining-tokens", "95");
    reply_free(&r);
    rig_until(&g, is_embedded);
    assert_int_equal(keys_room(g.server->keys, key, clock_now(&clock_real)).tokens_left, 95);
    assert_ends(&g, "stop", 1);
    assert_metric(&g, K2, "vllm:prompt_tokens_total", 5);
    assert_metric(&g, K2, "vllm:request_prompt_tokens_sum", 5);
    assert_metric(&g, K2, "vllm:e2e_request_latency_seconds_count", 1);
    assert_metric(&g, K2, "vllm:e2e_request_latency_seconds_sum", 0);
    assert_metric(&g, K2, "jitney:embeddings_bytes", 0);
    /* One that is refused takes no tokens and is not counted as the model's. */
    expect(&g, "POST /v1/embeddings", K1, "{\"input\":[[5],[128]]}", 400, NULL,
           "token 0 is 128; the model's vocabulary has 0 to 127");
    rig_until(&g, is_embedded);
    assert_int_equal(keys_room(g.server->keys, key, clock_now(&clock_real)).tokens_left, 95);
    assert_ends(&g, "stop", 1);
    assert_ends(&g, "error", 0);
    assert_ends(&g, "abort", 0);
    rig_close(&g);
}

static void test_ollamas_clients_get_embeddings(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    rig_open(&g, NULL, bert);
    ask(&g, &r, "POST /api/embeddings", NULL, "{\"model\":\"bert\",\"prompt\":\"a\"}");
    assert_int_equal(r.status, 200);
    assert_int_equal(json_count(json_get(r.json, "embedding")), 32);
    reply_free(&r);
    rig_stop_clock();
    ask(&g, &r, "POST /api/embed", NULL, "{\"model\":\"bert\",\"input\":[\"a\",\"a\"]}");
    assert_int_equal(r.status, 200);
    assert_int_equal(json_count(json_get(r.json, "embeddings")), 2);
    assert_json_int(&r, "prompt_eval_count", 6);
    assert_json_int(&r, "total_duration", 0); /* the clock stands still */
    reply_free(&r);
    rig_until(&g, is_embedded);
    rig_close(&g);
}

static void test_a_key_has_as_many_tokens_for_embeddings_as_its_limit(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    rig_open(&g, "k1 tpm=8\nk2\n", bert);
    rig_stop_clock_at_second();
    expect(&g, "POST /v1/embeddings", K1, "{\"input\":[[5,6,7,8,9,10,11,12,13]]}", 400,
           "tokens_per_minute_exceeded", NULL);
    expect(&g, "POST /v1/embeddings", K1, "{\"input\":[[5,6,7],[8,9]]}", 200, NULL, NULL);
    rig_until(&g, is_embedded);
    ask(&g, &r, "POST /v1/embeddings", K1, "{\"input\":[[5,6,7,8]]}");
    assert_refused(&r, 429, NULL, "tokens per minute");
    assert_header(&r, "retry-after-ms", "60000");
    reply_free(&r);
    expect(&g, "POST /v1/embeddings", K1, "{\"input\":[[5,6,7]]}", 200, NULL, NULL);
    rig_until(&g, is_embedded);
    assert_true(keys_are_idle(g.server->keys));
    rig_close(&g);
}

static void test_a_text_may_have_as_many_tokens_as_the_embedder_takes(void **state) {
    (void)state;
    struct server_rig g;
    rig_open(&g, NULL, bert);
    for (uint32_t tokens = 63; tokens <= 65; tokens++) {
        struct buf body;
        struct reply r;
        buf_init(&body, 1 << 16);
        buf_put_text(&body, "{\"input\":[[5],[6");
        for (uint32_t i = 1; i < tokens; i++) buf_put_text(&body, ",7");
        buf_put_text(&body, "]]}");
        ask(&g, &r, "POST /v1/embeddings", NULL, buf_text(&body));
        if (tokens <= 64) {
            assert_int_equal(r.status, 200);
            assert_json_int(&r, "usage.prompt_tokens", tokens + 1);
        } else {
            assert_refused(&r, 400, "context_length_exceeded",
                           "maximum context length is 64 tokens, but input 1 has 65 tokens");
            assert_json_text(&r, "error.param", "input");
        }
        reply_free(&r);
        buf_deinit(&body);
    }
    rig_close(&g);
}

/* Two keys: one may have half of an eighth of 16 MiB. */
static void test_embeddings_have_a_share_of_the_memory(void **state) {
    (void)state;
    struct server_rig g;
    rig_open(&g, "k1 tenant=a\nk2 tenant=b\n",
             (const char *const[]){"memory-max", "16M", "body-max", "1M", bert[0], bert[1], NULL});
    assert_int_equal(g.server->embeddings.max, 2 << 20);
    for (uint32_t count = 200; count <= 2000; count += 1800) {
        struct buf body;
        struct reply r;
        buf_init(&body, 1 << 20);
        buf_put_text(&body, "{\"input\":[[5]");
        for (uint32_t i = 1; i < count; i++) buf_put_text(&body, ",[6]");
        buf_put_text(&body, "]}");
        ask(&g, &r, "POST /v1/embeddings", K1, buf_text(&body));
        if (count == 200) {
            assert_json_int(&r, "usage.prompt_tokens", 200);
        } else {
            assert_refused(&r, 413, "memory_share_exceeded", "one client can have 1048576");
            assert_has(&r, "send fewer inputs in a request");
            /* Of each input: a job, a pointer, a token, and 32 numbers as floats and as text. */
            unsigned long long bytes = 0;
            const char *message = json_str(reply_path(r.json, "error.message")).ptr;
            assert_int_equal(sscanf(message, "the request needs %llu bytes", &bytes), 1);
            const uint64_t least = 2000 * (sizeof(struct embed_job) + 8 + 4 + 32 * (4 + 13));
            assert_in_range(bytes, least + 1, least + 2000 * 64); /* and its body */
        }
        reply_free(&r);
        buf_deinit(&body);
        rig_until(&g, is_embedded);
        assert_int_equal(g.server->embeddings.used, 0);
    }
    rig_close(&g);
}

/* What happens before the embedder gets the texts. */
static int64_t submit_late_us;
static bool is_full;
static int64_t queue_wait_us = -1; /* below 0: as it is */
static struct embed_job submitted; /* the first of the last request */

enum status __real_embedder_submit(struct embedder *e, struct embed_job *jobs, uint32_t count,
                                   struct err *err);
enum status __wrap_embedder_submit(struct embedder *e, struct embed_job *jobs, uint32_t count,
                                   struct err *err);
enum status __wrap_embedder_submit(struct embedder *e, struct embed_job *jobs, uint32_t count,
                                   struct err *err) {
    if (is_full) return ST_FULL;
    if (submit_late_us > 0) rig_pass_us(submit_late_us);
    submitted = jobs[0];
    return __real_embedder_submit(e, jobs, count, err);
}

struct embedder_queue __real_embedder_queue(struct embedder *e, uint32_t tenant);
struct embedder_queue __wrap_embedder_queue(struct embedder *e, uint32_t tenant);
struct embedder_queue __wrap_embedder_queue(struct embedder *e, uint32_t tenant) {
    struct embedder_queue q = __real_embedder_queue(e, tenant);
    if (queue_wait_us >= 0) q.wait_us = queue_wait_us;
    return q;
}

static void test_embeddings_have_a_deadline(void **state) {
    (void)state;
    static const struct {
        const char *timeout_s, *header;
        int64_t limit_us; /* 0: none */
    } cases[] = {
        {"0", "", 0},
        {"0", "x-jitney-deadline-ms: 50\r\n", 50000},
        {"2.5", "", 2500000},
        {"2.5", "x-jitney-deadline-ms: 50\r\n", 50000},
        {"2.5", "x-jitney-deadline-ms: 2600\r\n", 2500000},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct server_rig g;
        char headers[128];
        rig_open(
            &g, "k1 tpm=100\nk2\n",
            (const char *const[]){"request-timeout-s", cases[i].timeout_s, bert[0], bert[1], NULL});
        rig_stop_clock_at_second();
        const struct key *key = keys_find(g.server->keys, STR("k1"));
        snprintf(headers, sizeof(headers), "%s%s", K1, cases[i].header);
        const int64_t limit_us = cases[i].limit_us, began_us = clock_now(&clock_real);
        submit_late_us = limit_us ? limit_us - 1 : 3600000000;
        expect(&g, "POST /v1/embeddings", headers, "{\"input\":[[5,6]]}", 200, NULL, NULL);
        assert_int_equal(submitted.expires_us, limit_us ? began_us + limit_us : 0);
        assert_int_equal(submitted.tenant, key->tenant);
        assert_int_equal(submitted.count, 2);
        submit_late_us = limit_us + 1;
        if (limit_us > 0) {
            expect(&g, "POST /v1/embeddings", headers, "{\"input\":[[5,6,7]]}", 504,
                   "deadline_exceeded", "the request exceeded its deadline");
            rig_until(&g, is_embedded);
            submit_late_us = 0;
            assert_ends(&g, "abort", 1);
            assert_ends(&g, "stop", 1);
            assert_int_equal(keys_room(g.server->keys, key, clock_now(&clock_real)).tokens_left,
                             98);
        }
        submit_late_us = 0;
        rig_close(&g);
    }
}

static void test_a_full_embedder_says_when_to_try_again(void **state) {
    (void)state;
    static const struct {
        int64_t wait_us;
        const char *retry_ms, *retry_s;
    } cases[] = {{0, "1000", "1"}, {2500000, "2501", "3"}, {999, "1", "1"}};
    struct server_rig g;
    struct reply r;
    rig_open(&g, "k1 tpm=100\nk2\n", bert);
    is_full = true;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        queue_wait_us = cases[i].wait_us;
        ask(&g, &r, "POST /v1/embeddings", K1, "{\"input\":[[5,6]]}");
        assert_refused(&r, 429, "queue_full", "the queue of the embedder is full; try again later");
        assert_header(&r, "retry-after-ms", cases[i].retry_ms);
        assert_header(&r, "retry-after", cases[i].retry_s);
        assert_header(&r, "x-ratelimit-limit-tokens", "100");
        reply_free(&r);
        rig_until(&g, is_embedded);
        assert_true(keys_are_idle(g.server->keys));
        assert_int_equal(g.server->embeddings.used, 0);
    }
    is_full = false;
    queue_wait_us = -1;
    assert_ends(&g, "error", 0); /* the model never had them */
    const struct key *key = keys_find(g.server->keys, STR("k1"));
    assert_int_equal(keys_room(g.server->keys, key, clock_now(&clock_real)).tokens_left, 100);
    rig_close(&g);
}

/* ---- the page ---- */

static void test_the_page_is_for_browsers_and_the_text_for_others(void **state) {
    (void)state;
    struct server_rig g;
    struct reply r;
    char etag[256], header[300];
    rig_open(&g, NULL, NULL);
    ask(&g, &r, "GET /", NULL, NULL);
    assert_header(&r, "content-type", "text/plain; charset=utf-8");
    assert_header(&r, "cache-control", "no-store");
    assert_has(&r, "  llama  ready\n");
    assert_has(&r, "curl -s http://localhost/v1/chat/completions -H 'content-type");
    assert_has(&r, "\"model\":\"llama\"");
    reply_free(&r);
    ask(&g, &r, "GET /", "accept: text/html\r\n", NULL);
    assert_int_equal(r.status, 200);
    assert_header(&r, "cache-control", "no-cache");
    assert_header(&r, "x-content-type-options", "nosniff");
    assert_has(&r, "<html");
    reply_header(&r, "etag", etag);
    assert_true(strlen(etag) > 2);
    reply_free(&r);
    snprintf(header, sizeof(header), "accept: text/html\r\nif-none-match: \"x\", %s\r\n", etag);
    ask(&g, &r, "GET /", header, NULL);
    assert_int_equal(r.status, 304);
    assert_int_equal(r.body.len, 0);
    reply_free(&r);
    snprintf(header, sizeof(header), "accept: text/html\r\nif-none-match: \"x\"\r\n");
    expect(&g, "GET /", header, NULL, 200, NULL, NULL);
    expect(&g, "GET /page/index.html", NULL, NULL, 200, NULL, NULL);
    expect(&g, "GET /page/none.js", NULL, NULL, 404, "unknown_url", "the page has no file");
    rig_close(&g);
    rig_open(&g, "k1\n", (const char *const[]){"no-page", "true", NULL});
    ask(&g, &r, "GET /", "accept: text/html\r\n", NULL);
    assert_header(&r, "content-type", "text/plain; charset=utf-8");
    assert_has(&r, " -H 'authorization: Bearer KEY'");
    reply_free(&r);
    expect(&g, "GET /page/index.html", NULL, NULL, 404, "unknown_url", "--no-page");
    rig_close(&g);
    rig_open(&g, NULL, bert);
    ask(&g, &r, "GET /", NULL, NULL);
    assert_has(&r, "  bert  ready, embeddings\n");
    reply_free(&r);
    rig_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_is_described),
        cmocka_unit_test(test_a_model_is_found_by_its_names),
        cmocka_unit_test(test_ollamas_clients_get_the_same_numbers),
        cmocka_unit_test(test_the_probes_see_each_state),
        cmocka_unit_test(test_what_is_under_way_is_counted),
        cmocka_unit_test(test_the_state_shows_who_is_in_the_batch_and_in_the_queue),
        cmocka_unit_test(test_each_engine_has_its_own_state),
        cmocka_unit_test(test_an_engine_that_does_not_answer_is_not_waited_for),
        cmocka_unit_test(test_a_policy_and_its_knobs_are_changed),
        cmocka_unit_test(test_tokens_are_counted),
        cmocka_unit_test(test_a_text_may_be_as_long_as_text_max),
        cmocka_unit_test(test_embeddings_are_counted_and_charged),
        cmocka_unit_test(test_ollamas_clients_get_embeddings),
        cmocka_unit_test(test_a_key_has_as_many_tokens_for_embeddings_as_its_limit),
        cmocka_unit_test(test_a_text_may_have_as_many_tokens_as_the_embedder_takes),
        cmocka_unit_test(test_embeddings_have_a_share_of_the_memory),
        cmocka_unit_test(test_embeddings_have_a_deadline),
        cmocka_unit_test(test_a_full_embedder_says_when_to_try_again),
        cmocka_unit_test(test_the_page_is_for_browsers_and_the_text_for_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
