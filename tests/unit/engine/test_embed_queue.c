/* Goal:   tenants take turns by tokens, none fills the queue, and a text is returned exactly once,
 *         whether it was computed, cancelled or has expired.
 * Method: small queues by hand; seeded random walks of all functions against plain lists, with the
 *         sums checked after every step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "engine/embed_queue.h"

enum { JOBS = 64, LONG = 100 };

static struct embed_job job_of(uint32_t tenant, uint32_t tokens) {
    return (struct embed_job){.tenant = tenant, .tokens = tokens};
}

/* Compute the next text as a whole. */
static struct embed_job *serve(struct embed_queue *q) {
    struct embed_job *job = embed_queue_next(q, LONG, NULL);
    embed_queue_charge(q, job, job->tokens);
    embed_queue_remove(q, job);
    embed_queue_verify(q);
    return job;
}

static void test_tenants_take_turns_by_tokens(void **state) {
    (void)state;
    struct embed_queue q;
    struct embed_job many[8], one[2];
    embed_queue_init(&q, 100, 50, true);
    for (int i = 0; i < 8; i++) many[i] = job_of(1, 10);
    one[0] = job_of(2, 25);
    one[1] = job_of(2, 1);
    assert_int_equal(embed_queue_add(&q, many, 8), ST_OK);
    assert_ptr_equal(serve(&q), &many[0]);
    assert_ptr_equal(serve(&q), &many[1]);
    assert_int_equal(embed_queue_add(&q, one, 2), ST_OK); /* it does not wait for the other six */
    assert_ptr_equal(serve(&q), &one[0]);
    for (int i = 2; i < 4; i++) assert_ptr_equal(serve(&q), &many[i]); /* 25 to 10, 25 to 20 */
    struct embed_job *next = serve(&q);
    assert_true(next == &many[4] || next == &one[1]);
    while (embed_queue_next(&q, LONG, NULL)) serve(&q);
    embed_queue_deinit(&q);
}

/* Of two tenants that always have texts each gets one half of the tokens, whatever their texts'
 * lengths; a tenant that was away has no claim on what was computed meanwhile. */
static void test_long_and_short_texts_get_the_same_tokens(void **state) {
    (void)state;
    struct embed_queue q;
    static struct embed_job jobs[2][400];
    uint64_t served[2] = {0};
    embed_queue_init(&q, 1000, 0, true);
    for (int i = 0; i < 400; i++) {
        jobs[0][i] = job_of(0, 64);
        jobs[1][i] = job_of(1, 3);
    }
    assert_int_equal(embed_queue_add(&q, jobs[0], 300), ST_OK);
    for (int i = 0; i < 100; i++) serve(&q);
    assert_int_equal(embed_queue_add(&q, jobs[1], 300), ST_OK);
    while (served[1] < 900) {
        struct embed_job *job = serve(&q);
        served[job->tenant] += job->tokens;
    }
    assert_in_range(served[0], 900 - 64, 900 + 64);
    while (embed_queue_next(&q, LONG, NULL)) serve(&q);
    embed_queue_deinit(&q);
}

static void test_no_tenant_fills_the_queue(void **state) {
    (void)state;
    struct embed_queue q;
    static struct embed_job jobs[4][JOBS];
    struct list out = {0};
    for (uint32_t t = 0; t < 4; t++)
        for (uint32_t i = 0; i < JOBS; i++) {
            jobs[t][i] = job_of(t, 1);
            jobs[t][i].user = &jobs[t];
        }
    embed_queue_init(&q, 40, 4, true);
    assert_int_equal(embed_queue_room(&q, 0), 20);
    assert_int_equal(embed_queue_add(&q, jobs[0], 21), ST_FULL);
    assert_int_equal(embed_queue_add(&q, jobs[0], 20), ST_OK);
    assert_int_equal(embed_queue_room(&q, 0), 0);
    assert_int_equal(embed_queue_add(&q, jobs[1], 13), ST_OK); /* a third of 40 */
    assert_int_equal(embed_queue_add(&q, jobs[2], 7), ST_OK);
    assert_int_equal(embed_queue_add(&q, jobs[3], 1), ST_FULL);
    embed_queue_cancel(&q, &jobs[0], &out);
    assert_int_equal(out.count, 20);
    assert_int_equal(embed_queue_add(&q, jobs[3], 10), ST_OK);
    embed_queue_verify(&q);
    for (uint32_t t = 1; t < 4; t++) embed_queue_cancel(&q, &jobs[t], &out);
    assert_int_equal(out.count, 50);
    while (list_pop_first(&out)) {
    }
    embed_queue_deinit(&q);

    embed_queue_init(&q, 40, 0, false); /* all are one tenant */
    assert_int_equal(embed_queue_add(&q, jobs[0], 40), ST_OK);
    assert_int_equal(embed_queue_add(&q, jobs[1], 1), ST_FULL);
    embed_queue_cancel(&q, &jobs[0], &out);
    embed_queue_deinit(&q);
}

static void test_one_long_text_is_under_way_and_others_pass_it(void **state) {
    (void)state;
    struct embed_queue q;
    struct list out = {0};
    struct embed_job a = job_of(1, 3 * LONG), b = job_of(2, 2 * LONG), c = job_of(3, 5);
    embed_queue_init(&q, 100, 50, true);
    embed_queue_add(&q, &a, 1);
    embed_queue_add(&q, &b, 1);
    embed_queue_add(&q, &c, 1);
    assert_ptr_equal(embed_queue_next(&q, LONG, NULL), &a);
    embed_queue_charge(&q, &a, LONG);
    assert_ptr_equal(embed_queue_next(&q, LONG, &a), &c); /* b is long, too */
    embed_queue_charge(&q, &c, 5);
    embed_queue_remove(&q, &c);
    assert_ptr_equal(embed_queue_next(&q, LONG, &a), &a);
    assert_ptr_equal(embed_queue_next(&q, LONG, NULL), &b);
    embed_queue_verify(&q);

    a.is_under_way = true; /* a pass computes it */
    a.user = b.user = &q;
    embed_queue_cancel(&q, &q, &out);
    assert_int_equal(out.count, 1);
    assert_ptr_equal(out.first, &b.link);
    assert_true(a.is_cancelled);
    embed_queue_remove(&q, &a);
    embed_queue_deinit(&q);
}

/* A text that fills a pass is computed beside a long one; one of a token more waits for it. */
static void test_a_text_of_exactly_a_pass_is_not_long(void **state) {
    (void)state;
    struct embed_queue q;
    struct embed_job longest = job_of(1, 5 * LONG), exact = job_of(2, LONG),
                     more = job_of(3, LONG + 1);
    embed_queue_init(&q, 10, 5, true);
    assert_int_equal(embed_queue_add(&q, &longest, 1), ST_OK);
    embed_queue_charge(&q, &longest, LONG);
    assert_int_equal(embed_queue_add(&q, &more, 1), ST_OK);
    assert_ptr_equal(embed_queue_next(&q, LONG, &longest), &longest);
    assert_int_equal(embed_queue_add(&q, &exact, 1), ST_OK);
    assert_ptr_equal(embed_queue_next(&q, LONG, &longest), &exact);
    embed_queue_remove(&q, &exact);
    embed_queue_remove(&q, &more);
    embed_queue_remove(&q, &longest);
    embed_queue_deinit(&q);
}

static void test_the_time_to_wait_counts_the_turns_of_others(void **state) {
    (void)state;
    struct embed_queue q;
    struct list out = {0};
    struct embed_job a = job_of(1, 1000), b = job_of(2, 30), c = job_of(3, 7);
    embed_queue_init(&q, 100, 50, true);
    assert_int_equal(embed_queue_tokens_before(&q, 1), 0);
    embed_queue_add(&q, &a, 1);
    embed_queue_add(&q, &b, 1);
    embed_queue_add(&q, &c, 1);
    assert_int_equal(embed_queue_tokens_before(&q, 1), 1037);
    assert_int_equal(embed_queue_tokens_before(&q, 2), 30 + 30 + 7);
    assert_int_equal(embed_queue_tokens_before(&q, 3), 21);
    assert_int_equal(embed_queue_tokens_before(&q, 4), 0);
    embed_queue_cancel(&q, NULL, &out); /* all have no user */
    embed_queue_deinit(&q);
}

/* ---- walks ---- */

struct model_job {
    struct embed_job job;
    bool is_in;
};

static void take_out(struct model_job *all, struct list *out, const void *user, int64_t now_us) {
    for (uint32_t i = 0; i < JOBS; i++) {
        struct embed_job *job = &all[i].job;
        bool has_expired = job->expires_us > 0 && job->expires_us <= now_us;
        bool wanted = user ? job->user == user : has_expired;
        if (!all[i].is_in || !wanted) continue;
        assert_true(list_has(out, &job->link));
        list_remove(out, &job->link);
        all[i].is_in = false;
    }
    assert_int_equal(out->count, 0);
}

static void walk(uint64_t seed) {
    struct rng rng = {.seed = seed};
    static struct model_job all[JOBS];
    static char users[4];
    struct embed_queue q;
    embed_queue_init(&q, 1 + (uint32_t)rng_below(&rng, 40), (uint32_t)rng_below(&rng, 4), true);
    for (uint32_t i = 0; i < JOBS; i++) all[i] = (struct model_job){.is_in = false};
    for (int64_t step = 1; step < 400; step++) {
        struct list out = {0};
        uint32_t i = (uint32_t)rng_below(&rng, JOBS);
        switch (rng_below(&rng, 8)) {
        case 0:
            embed_queue_cancel(&q, &users[i % 4], &out);
            take_out(all, &out, &users[i % 4], 0);
            break;
        case 1:
            embed_queue_expire(&q, step, &out);
            take_out(all, &out, NULL, step);
            break;
        case 2:
        case 3:
            if (embed_queue_next(&q, LONG, NULL))
                all[(struct model_job *)serve(&q) - all].is_in = false;
            break;
        default:
            if (all[i].is_in) break;
            all[i].job = job_of(i % 5, 1 + (uint32_t)rng_below(&rng, 30));
            all[i].job.user = &users[i % 4];
            all[i].job.expires_us = rng_below(&rng, 2) ? step + (int64_t)rng_below(&rng, 60) : 0;
            all[i].is_in = embed_queue_add(&q, &all[i].job, 1) == ST_OK;
        }
        embed_queue_verify(&q);
        uint32_t in = 0;
        for (uint32_t k = 0; k < JOBS; k++) in += all[k].is_in;
        assert_int_equal(q.texts.used, in);
    }
    while (embed_queue_next(&q, LONG, NULL)) serve(&q);
    embed_queue_deinit(&q);
}

static void test_random_walks_agree_with_a_list(void **state) {
    (void)state;
    _Static_assert(offsetof(struct model_job, job) == 0, "a job is the first member");
    for (uint64_t seed = 1; seed <= 100; seed++) walk(seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tenants_take_turns_by_tokens),
        cmocka_unit_test(test_long_and_short_texts_get_the_same_tokens),
        cmocka_unit_test(test_no_tenant_fills_the_queue),
        cmocka_unit_test(test_one_long_text_is_under_way_and_others_pass_it),
        cmocka_unit_test(test_a_text_of_exactly_a_pass_is_not_long),
        cmocka_unit_test(test_the_time_to_wait_counts_the_turns_of_others),
        cmocka_unit_test(test_random_walks_agree_with_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
