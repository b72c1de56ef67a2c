/* Goal:   requests on simulated time arrive when they should, take what the profile says, and the
 *         same list always gives the same run; profiles come by name or from a file, or are
 *         refused with a sentence.
 * Method: a few requests through the real engine with known costs; profile files written here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "sim/replay.h"

enum { REQUESTS = 3, PROMPT = 10, ANSWER = 5 };

struct people {
    int64_t at_us[REQUESTS], cancel_us; /* cancel_us: of the last one */
    uint32_t next;
    struct request *requests[REQUESTS];
    uint32_t moves;
    int64_t ended_us[REQUESTS];
    enum finish_reason ends[REQUESTS];
};

static int64_t next_us(void *ctx) {
    const struct people *p = ctx;
    if (p->next < REQUESTS) return p->at_us[p->next];
    return p->cancel_us ? p->cancel_us : INT64_MAX;
}

static void submit(struct people *p, struct engine *e) {
    int32_t prompt[PROMPT] = {1, 2, 3, 4, 5, 6, 7, 8, 9, (int32_t)p->next};
    struct request_spec spec = {.prompt = prompt,
                                .prompt_tokens = PROMPT,
                                .max_tokens = ANSWER,
                                .n = 1,
                                .sample = sample_params_default()};
    spec.sample.temperature = 0;
    assert_int_equal(engine_submit(e, &spec, &p->requests[p->next], NULL), ST_OK);
    p->next++;
}

static void act(void *ctx, struct engine *e, int64_t now_us) {
    struct people *p = ctx;
    while (p->next < REQUESTS && p->at_us[p->next] <= now_us) submit(p, e);
    if (p->next < REQUESTS || p->cancel_us == 0 || p->cancel_us > now_us) return;
    engine_cancel(e, p->requests[REQUESTS - 1]);
    p->cancel_us = 0;
}

static void on_output(void *ctx, struct choice *choice, int64_t now_us) {
    struct people *p = ctx;
    uint32_t ready;
    p->moves++;
    for (int i = 0; i < REQUESTS; i++)
        if (choice->request == p->requests[i] && choice_poll(choice, &ready) != FINISH_NONE) {
            p->ends[i] = choice_poll(choice, &ready);
            p->ended_us[i] = now_us;
        }
}

static struct people replay(struct people p) {
    struct sim_engine_options o = {.profile = {"test", 1000, 100, 0, 10}};
    struct sim_clock clock;
    struct engine *e = NULL;
    struct err err = {0};
    o.engine.vocab = 50;
    o.engine.sched.policy = sched_policy_find("chunked");
    o.engine.sched.knobs = knobs_default();
    o.engine.sched.knobs.kv_blocks = 64;
    o.engine.sched.ctx_tokens = 128;
    o.engine.sched.group_count = 1;
    assert_int_equal(sim_engine_open(&e, &clock, &o, &err), ST_OK);
    const struct sim_clients clients = {next_us, act, on_output, NULL, &p};
    assert_int_equal(sim_replay_run(e, &clock, &clients, &err), ST_OK);
    engine_verify(e);
    engine_destroy(e);
    for (int i = 0; i < REQUESTS; i++) request_unref(p.requests[i]);
    return p;
}

static void test_time_passes_by_arrivals_and_the_cost_profile(void **state) {
    (void)state;
    struct people p = {.at_us = {2000000, 5000000, 9000000}};
    p = replay(p);
    /* A step for the prompt with its first token, and one for each of the other four. */
    int64_t alone_us = (1000 + 100 * PROMPT) + (ANSWER - 1) * (1000 + 100);
    for (int i = 0; i < REQUESTS; i++) {
        assert_int_equal(p.ends[i], FINISH_LENGTH);
        assert_int_equal(p.ended_us[i] - p.at_us[i], alone_us);
    }
    assert_int_equal(p.moves, REQUESTS * ANSWER);
}

static void test_the_same_list_gives_the_same_run(void **state) {
    (void)state;
    struct people p = {.at_us = {1000500, 1000600, 1003000}};
    struct people a = replay(p), b = replay(p);
    assert_memory_equal(a.ended_us, b.ended_us, sizeof(a.ended_us));
    assert_true(a.ended_us[2] > a.ended_us[0]);
}

static void test_a_cancel_happens_at_its_time(void **state) {
    (void)state;
    struct people p = {.at_us = {1000001, 1000001, 1000001}, .cancel_us = 1005000};
    p = replay(p);
    assert_int_equal(p.ends[0], FINISH_LENGTH);
    assert_int_equal(p.ends[2], FINISH_CANCELLED);
}

/* ---- profiles ---- */

static void test_a_profile_has_a_name(void **state) {
    (void)state;
    struct cost_profile p;
    assert_int_equal(sim_profile_load("h200-8b", &p, NULL), ST_OK);
    assert_true(p.fixed_us > 0);
    struct err err = {0};
    assert_int_equal(sim_profile_load("no-such-machine", &p, &err), ST_MISSING);
    assert_non_null(strstr(err.text, "no-such-machine"));
}

static enum status load_text(const char *text, struct cost_profile *out, struct err *err) {
    char path[] = "/tmp/jitney_profile_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(file_write_atomic(path, (struct str){text, strlen(text)}, err), ST_OK);
    enum status st = sim_profile_load(path, out, err);
    unlink(path);
    return st;
}

static void test_a_profile_comes_from_a_file(void **state) {
    (void)state;
    struct cost_profile p;
    struct err err = {0};
    const char *good = "{\"fixed_us\": 7, \"per_token_us\": 0.5, \"per_attended_us\": 0, "
                       "\"per_move_us\": 3}";
    assert_int_equal(load_text(good, &p, &err), ST_OK);
    assert_true(p.fixed_us > 6.9 && p.fixed_us < 7.1 && p.per_move_us > 2.9);
}

static void test_a_bad_profile_is_refused_with_the_field(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"fixed_us\": 7}", "per_token_us"},
        {"{\"fixed_us\": -1, \"per_token_us\": 1}", "fixed_us"},
        {"{\"fixed_us\": 1, \"per_token_us\": \"x\"}", "per_token_us"},
        {"{\"fixed_us\": 1, \"per_token_us\": 1, \"per_attended_us\": 0}", "per_move_us"},
        {"not json", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct cost_profile p;
        struct err err = {0};
        assert_int_equal(load_text(bad[i].text, &p, &err), ST_BAD);
        assert_non_null(strstr(err.text, bad[i].says));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_passes_by_arrivals_and_the_cost_profile),
        cmocka_unit_test(test_the_same_list_gives_the_same_run),
        cmocka_unit_test(test_a_cancel_happens_at_its_time),
        cmocka_unit_test(test_a_profile_has_a_name),
        cmocka_unit_test(test_a_profile_comes_from_a_file),
        cmocka_unit_test(test_a_bad_profile_is_refused_with_the_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
