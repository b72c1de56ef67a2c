/* Goal:   a generation survives the failure of any one allocation: it is refused or ends with an
 *         error, exactly once, and leaves nothing behind; the next one runs normally.
 * Method: one generation with the first allocation of the I/O thread failing, then the second,
 *         until no more are needed; the engine is stepped by hand and libuv's pool is replaced by a
 *         list, so that no other thread allocates.
 *
 * wrap: uv_queue_work
 */
#include "server/generations.h"
#include "unit/server/generation_rig.h"

#include "fault/fail_alloc.h"

enum { ALLOCATIONS_MAX = 5000 };

#define ASK                                                                                        \
    "{\"model\":\"t\",\"prompt\":[\"a b\",\"c\"],\"n\":2,\"max_tokens\":6,\"stop\":[\"zz\"],"      \
    "\"logprobs\":2,\"stream\":true}"

/* Work that libuv was given; it is done when the engine is stepped. */
static struct {
    uv_work_t *handle;
    uv_work_cb run;
    uv_after_work_cb done;
} given;

int __wrap_uv_queue_work(uv_loop_t *loop, uv_work_t *handle, uv_work_cb run, uv_after_work_cb done);
int __wrap_uv_queue_work(uv_loop_t *loop, uv_work_t *handle, uv_work_cb run,
                         uv_after_work_cb done) {
    (void)loop;
    CHECK(!given.handle);
    given.handle = handle;
    given.run = run;
    given.done = done;
    return 0;
}

static void run_engine(struct rig *g) {
    if (given.handle) {
        uv_work_t *handle = given.handle;
        given.handle = NULL;
        given.run(handle);
        given.done(handle, 0);
    }
    for (int i = 0; i < 100; i++) {
        bool did_work = false;
        engine_step(g->service.engine, &did_work);
        generations_on_output(&g->output);
    }
}

/* A sink is the test's own; its memory must not fail. */
static struct generation *begin(struct rig *g, struct received *h,
                                const struct generation_spec *ask, long n) {
    struct generation *r = NULL;
    fail_alloc_at(n);
    struct api_error e = {0};
    enum status st = generation_create(g->generations, ask, &r, &e);
    bool failed = fail_alloc_stop();
    if (st != ST_OK) {
        assert_true(failed);
        assert_int_equal(st, ST_NOMEM);
        assert_string_equal(e.code, "out_of_memory");
        h->refused++;
        return NULL;
    }
    r->is_findable = true;
    return r;
}

/* True: an allocation did fail. */
static bool generation_once(struct rig *g, long n) {
    struct received h;
    struct api_request q;
    struct api_error e = {0};
    struct err err = {0};
    struct json *doc;
    const struct codec *codec = codec_find("openai.completions");
    received_init(&h);
    assert_int_equal(json_parse(STR(ASK), &json_limits_request, &doc, &err), ST_OK);
    api_request_init(&q, codec);
    assert_int_equal(codec->read_body(doc, &q, &e), ST_OK);
    struct generation_spec ask = {.model = &g->model,
                                  .route = "/v1/completions",
                                  .id = STR("abc"),
                                  .request_id = STR("abc"),
                                  .request = &q};
    struct generation *r = begin(g, &h, &ask, n);
    bool failed = r == NULL;
    if (r) {
        struct sink *s = sink_make(r, &h, 0);
        fail_alloc_at(n);
        generation_start(r, s);
        run_engine(g);
        failed = fail_alloc_stop();
        run_engine(g);
    }
    generations_verify(g->generations);
    assert_int_equal(generations_stats(g->generations).live, 0);
    assert_int_equal(h.refused + h.ended + h.broken, 1);
    if (!failed) assert_int_equal(h.error.status, 0);
    assert_int_equal(g->model.live_choices, 0);
    received_deinit(&h);
    api_request_deinit(&q);
    r = generation_find(g->generations, NULL, STR("abc"));
    if (r) generation_forget(r);
    return failed;
}

static void test_any_allocation_of_a_generation_may_fail(void **state) {
    (void)state;
    struct rig g;
    long n = 0;
    rig_open_unstarted(&g, &(struct rig_options){0});
    while (generation_once(&g, n)) assert_true(++n < ALLOCATIONS_MAX);
    assert_true(n > 10);
    assert_false(generation_once(&g, ALLOCATIONS_MAX));
    rig_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_allocation_of_a_generation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
