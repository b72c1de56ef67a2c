/* unit/server/generation_rig.h - a simulated model with its engine on a loop, and a sink that
 * records what it receives. */
#ifndef UNIT_SERVER_GENERATION_RIG_H
#define UNIT_SERVER_GENERATION_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <uv.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/accounts.h"
#include "server/registry.h"
#include "server/generation.h"
#include "server/generations.h"
#include "server/sink.h"
#include "unit/api/sse_pieces.h"

#define RIG_MODEL TEST_SOURCE_DIR "/golden/models/llama"

struct rig {
    uv_loop_t loop;
    uv_async_t output;
    struct service service;
    struct served_model model;
    struct accounts *accounts;
    struct work_queue *work;
    struct generations *generations;
    uint32_t ended, ids;
};

struct rig_options {
    int64_t step_us, keep_ms;
    uint64_t keep_bytes, answers_bytes;
    bool has_tenants;
    const char *const *knobs; /* NULL-terminated */
};

static inline void rig_hook(void *ctx) { uv_async_send(&((struct rig *)ctx)->output); }

static inline void rig_ended(void *ctx, struct generation *r) {
    struct rig *g = ctx;
    CHECK(answer_is_done(&r->answer));
    g->ended++;
}

static inline void rig_after_batch(void *ctx) { engine_wake(((struct rig *)ctx)->service.engine); }

/* The engine has no thread: it is stepped by hand. */
static inline void rig_open_unstarted(struct rig *g, const struct rig_options *o) {
    struct err err = {0};
    struct service_options service = {
        .knobs = knobs_default(), .is_sim = true, .sim_step_us = o->step_us};
    *g = (struct rig){.ended = 0};
    for (const char *const *k = o->knobs; k && *k; k++)
        assert_int_equal(knobs_set_pair(&service.knobs, str_of(*k), &err), ST_OK);
    assert_int_equal(service_open(&g->service, RIG_MODEL, &service, &err), ST_OK);
    g->model = (struct served_model){.name = "tiny",
                                     .state = LOAD_READY,
                                     .tokenizer = g->service.loaded.tokenizer,
                                     .ctx_tokens = g->service.loaded.ctx_tokens,
                                     .engine = g->service.engine,
                                     .loaded = &g->service.loaded,
                                     .knobs = g->service.knobs};
    CHECK(uv_loop_init(&g->loop) == 0);
    CHECK(uv_async_init(&g->loop, &g->output, generations_on_output) == 0);
    g->output.data = &g->model;
    struct work_queue_options work = {.loop = &g->loop,
                                      .items_max = 4096,
                                      .bytes_max = 1 << 28,
                                      .is_single = true,
                                      .after_batch = rig_after_batch,
                                      .ctx = g};
    assert_int_equal(accounts_create(&g->accounts), ST_OK);
    assert_int_equal(work_queue_create(&work, &g->work), ST_OK);
    struct generations_options generations = {.loop = &g->loop,
                                              .accounts = g->accounts,
                                              .work = g->work,
                                              .keep_ms = o->keep_ms ? o->keep_ms : 60000,
                                              .keep_bytes = o->keep_bytes ? o->keep_bytes : 1 << 24,
                                              .answers_bytes = o->answers_bytes,
                                              .is_single = !o->has_tenants,
                                              .on_ended = rig_ended,
                                              .ctx = g};
    assert_int_equal(generations_create(&generations, &g->generations, &err), ST_OK);
    engine_set_hook(g->service.engine, rig_hook, g);
}

static inline void rig_open(struct rig *g, const struct rig_options *o) {
    struct err err = {0};
    rig_open_unstarted(g, o);
    assert_int_equal(engine_start(g->service.engine, &err), ST_OK);
}

/* Turn the loop until `done` says so, at most ten seconds. */
static inline bool rig_until(struct rig *g, bool (*done)(struct rig *g)) {
    int64_t until_us = clock_now(&clock_real) + 10000000;
    while (!done(g)) {
        if (clock_now(&clock_real) > until_us) return false;
        uv_run(&g->loop, UV_RUN_NOWAIT);
    }
    return true;
}

static inline bool rig_is_quiet(struct rig *g) {
    return generations_stats(g->generations).live == 0;
}

/* The pool has prepared every prompt, and the engine has it. */
static inline bool rig_is_prepared(struct rig *g) {
    struct work_queue_stats stats = work_queue_stats(g->work);
    return stats.waiting + stats.running == 0;
}

static inline void rig_pass(struct rig *g, int64_t us) {
    int64_t until_us = clock_now(&clock_real) + us;
    do uv_run(&g->loop, UV_RUN_NOWAIT);
    while (clock_now(&clock_real) < until_us);
}

/* Nothing may be left: no generation, no sequence, no count. */
static inline void rig_close(struct rig *g) {
    assert_true(rig_until(g, rig_is_quiet));
    generations_verify(g->generations);
    assert_int_equal(g->model.live_choices, 0);
    engine_stop(g->service.engine);
    struct sched_stats stats = engine_stats(g->service.engine).sched;
    assert_int_equal(stats.running + stats.waiting + stats.swapped, 0);
    generations_close(g->generations);
    uv_close((uv_handle_t *)&g->output, NULL);
    uv_run(&g->loop, UV_RUN_DEFAULT);
    generations_destroy(g->generations);
    work_queue_destroy(g->work);
    accounts_destroy(g->accounts);
    service_close(&g->service);
    assert_int_equal(uv_loop_close(&g->loop), 0);
}

/* ---- a sink that counts ---- */

/* What a sink has received; outlives the sink. */
struct received {
    uint32_t begun, refused, destroyed, ended;
    uint32_t broken;      /* the view lacked memory */
    uint32_t first, last; /* numbers of pieces */
    uint32_t gaps;        /* numbers that did not follow their neighbour */
    uint32_t pieces;
    struct api_error error;
    struct buf text; /* all data, a line each */
    bool is_stuck;   /* takes nothing */
};

static inline void received_init(struct received *h) {
    *h = (struct received){.begun = 0};
    buf_init(&h->text, 1 << 24);
}
static inline void received_deinit(struct received *h) { buf_deinit(&h->text); }

struct test_sink {
    struct sink base;
    struct encoder encoder;
    struct received *received;
};

static inline void received_pieces(struct str sse, struct received *h) {
    for (struct sse_piece p; sse_next(&sse, &p);) {
        if (h->pieces == 0) h->first = p.number;
        h->gaps += h->pieces > 0 && p.number != h->last + 1;
        h->last = p.number;
        h->pieces++;
        buf_put_str(&h->text, p.data);
        buf_put_char(&h->text, '\n');
    }
}

static inline bool test_advance(struct sink *s) {
    struct test_sink *t = (struct test_sink *)s;
    t->received->begun += !s->has_begun;
    if (t->received->is_stuck) return false;
    struct buf sse;
    buf_init(&sse, 1 << 24);
    while (!encoder_run(&t->encoder, 7, &sse)) {
    }
    if (buf_status(&sse) != ST_OK) t->encoder.status = buf_status(&sse);
    if (t->encoder.status == ST_OK) received_pieces(buf_str(&sse), t->received);
    buf_deinit(&sse);
    if (t->encoder.status != ST_OK) {
        t->received->broken++;
        return true;
    }
    if (!t->encoder.has_ended) return false;
    t->received->ended++;
    t->received->error = s->generation->answer.failure;
    return true;
}

static inline void test_refuse(struct sink *s, const struct api_error *e) {
    struct test_sink *t = (struct test_sink *)s;
    t->received->refused++;
    t->received->error = *e;
}

static inline void test_destroy(struct sink *s) {
    struct test_sink *t = (struct test_sink *)s;
    t->received->destroyed++;
    encoder_deinit(&t->encoder);
    mem_free(t);
}

static const struct sink_kind test_kind = {
    .name = "test", .advance = test_advance, .refuse = test_refuse, .destroy = test_destroy};

static inline struct sink *sink_make(struct generation *r, struct received *h, uint32_t after) {
    struct test_sink *t = mem_zalloc(sizeof(*t));
    CHECK(t);
    t->base.kind = &test_kind;
    t->received = h;
    encoder_init(&t->encoder, r->request.codec, &r->answer, after, FRAMING_SSE);
    return &t->base;
}

/* A request of a codec, as JSON, that holds so many bytes. `ask` has its key and request id (NULL:
 * the answer's id). */
static inline struct generation *generation_make_by(struct rig *g, const char *codec_name,
                                                    const char *json, uint64_t held_bytes,
                                                    struct generation_spec ask) {
    const struct codec *codec = codec_find(codec_name);
    struct api_request q;
    struct api_error e = {0};
    struct err err = {0};
    struct json *doc;
    char id[32];
    assert_int_equal(json_parse(str_of(json), &json_limits_model_file, &doc, &err), ST_OK);
    api_request_init(&q, codec);
    assert_int_equal(codec->read_body(doc, &q, &e), ST_OK);
    q.held_bytes = held_bytes;
    snprintf(id, sizeof(id), "%012x", ++g->ids);
    ask.model = &g->model;
    ask.route = "/v1/completions";
    ask.id = str_of(id);
    if (!ask.request_id.ptr) ask.request_id = ask.id;
    ask.request = &q;
    ask.arrived_us = clock_now(&clock_real);
    struct generation *r;
    assert_int_equal(generation_create(g->generations, &ask, &r, &e), ST_OK);
    return r;
}

static inline struct generation *generation_make(struct rig *g, const char *json,
                                                 uint64_t held_bytes) {
    return generation_make_by(g, "openai.completions", json, held_bytes,
                              (struct generation_spec){.model = NULL});
}

#endif
