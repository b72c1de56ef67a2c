/* Goal:   an engine's steps with drafts allocate nothing. Drafts are no tokens of a prompt, and the
 *         step records have them.
 * Method: a request is answered, and then again with a drafter that knows the answer, while every
 *         allocation after submit fails. The clock stands still, so steps seem to cost what the
 *         profile of a CPU says, and drafts pay.
 * wrap: clock_now */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "engine/service.h"
#include "fault/fail_alloc.h"

int64_t __wrap_clock_now(const struct clock *c);
int64_t __wrap_clock_now(const struct clock *c) {
    (void)c;
    return 1000000;
}

enum { DRAFT_ANSWER = 40 };

/* Of the records since the last call. */
static void assert_recorded(struct engine *e, uint32_t drafted, uint32_t accepted) {
    enum { PIECE_WORDS = 1 << 15 };
    static struct record_cursor cursor;
    static uint64_t piece[PIECE_WORDS];
    uint32_t drafts_seen = 0, accepted_seen = 0;
    for (size_t used; (used = record_read(engine_records(e), &cursor, piece, sizeof(piece))) > 0;) {
        const void *at = piece, *end = (char *)piece + used;
        for (struct record r; record_next(&at, end, &r);)
            for (uint32_t i = 0; i < r.lists.row_count; i++) {
                drafts_seen += r.lists.rows[i].drafts;
                accepted_seen += r.lists.rows[i].accepted;
            }
    }
    assert_int_equal(drafts_seen, drafted);
    assert_int_equal(accepted_seen, accepted);
}

/* Answer without any allocation after submit. Returns how many drafts were accepted. */
static uint32_t answer_without_memory(struct engine *e, const struct request_spec *in,
                                      int32_t answer[DRAFT_ANSWER]) {
    struct request *r = NULL;
    struct err err = {0};
    if (engine_submit(e, in, &r, &err) != ST_OK) fail_msg("%s", err.text);
    const struct engine_stats before = engine_stats(e);
    fail_alloc_at(0);
    for (bool did_work = true; did_work;) engine_step(e, &did_work);
    assert_false(fail_alloc_stop());
    const struct engine_stats after = engine_stats(e);
    assert_int_equal(after.prompt_tokens - before.prompt_tokens, in->prompt_tokens);
    assert_int_equal(after.answer_tokens - before.answer_tokens, DRAFT_ANSWER);
    const struct choice *c = &r->choices[0];
    assert_int_equal(atomic_load(&c->finish), FINISH_LENGTH);
    memcpy(answer, c->tokens + c->prompt_tokens, DRAFT_ANSWER * sizeof(answer[0]));
    uint32_t accepted = c->accepted;
    assert_recorded(e, atomic_load(&c->drafted), accepted);
    request_unref(r);
    return accepted;
}

static void draft_without_memory(struct service *s, const char *name) {
    static const int32_t prompt[] = {1, 2, 3};
    int32_t wanted[DRAFT_ANSWER], got[DRAFT_ANSWER];
    struct request_spec in = {.prompt = prompt,
                              .prompt_tokens = 3,
                              .max_tokens = DRAFT_ANSWER,
                              .n = 1,
                              .sample = sample_params_default(),
                              .ignore_end = true,
                              .want_logprobs = true};
    in.sample.top_logprobs = 2;
    in.sample.repetition_penalty = 1.1f;
    answer_without_memory(s->engine, &in, wanted);
    in.speculation.is_chosen = true;
    in.speculation.prediction = wanted;
    in.speculation.prediction_tokens = DRAFT_ANSWER;
    assert_true(speculate_option_find(str_of(name), &in.speculation.choice));
    wanted[DRAFT_ANSWER / 2]++;                 /* a draft that is refused */
    answer_without_memory(s->engine, &in, got); /* "suffix" remembers it */
    wanted[DRAFT_ANSWER / 2]--;
    uint32_t accepted = answer_without_memory(s->engine, &in, got);
    assert_memory_equal(got, wanted, sizeof(wanted));
    if (accepted < DRAFT_ANSWER / 2) fail_msg("%s: %u drafts were accepted", name, accepted);
}

static void test_a_step_with_drafts_allocates_nothing(void **state) {
    (void)state;
    struct service s;
    struct err err = {0};
    struct service_options o = {
        .knobs = knobs_default(), .ctx_tokens = 64, .isa = "portable", .tokens_only = true};
    o.knobs.threads = 1;
    o.record_bytes = 1 << 20;
    if (service_open(&s, TEST_SOURCE_DIR "/golden/models/llama", &o, &err) != ST_OK)
        fail_msg("%s", err.text);
    draft_without_memory(&s, "suffix");
    draft_without_memory(&s, "predicted");
    service_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_with_drafts_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
