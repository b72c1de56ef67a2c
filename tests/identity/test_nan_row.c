/* Goal:   a model that gives NaN for one row ends that request with an error; the others go on to
 *         the same bits.
 * Method: NaN is written into one output of one step behind the forward pass, at every step and
 *         output of a small batch in turn; the batch without the fault is the reference.
 * wrap: cpu_program_create cpu_program_submit pool_run */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "engine/service.h"
#include "unit/kernels/cpu/edit_logits.h"

enum { BATCH = 3, ANSWER = 6, STEPS_NONE = INT32_MAX };

static struct {
    uint32_t step, output; /* where NaN goes */
    uint32_t steps;        /* so far that sample */
    bool done;
} fault;

static void edit_logits(const struct logits *l) {
    if (fault.steps++ != fault.step || fault.output >= l->step->output_count) return;
    l->rows[fault.output * l->row_floats + 5] = NAN;
    fault.done = true;
}

/* Steps the batch to its end; the requests report which of them failed. */
static void run(uint32_t step, uint32_t output, struct request *out[BATCH]) {
    struct service s;
    struct err err = {0};
    struct service_options o = {.knobs = knobs_default(), .ctx_tokens = 64, .tokens_only = true};
    o.knobs.max_seqs = BATCH;
    o.knobs.threads = 2;
    o.knobs.max_step_tokens = 16;
    if (service_open(&s, TEST_SOURCE_DIR "/golden/models/llama", &o, &err) != ST_OK)
        fail_msg("%s", err.text);
    memset(&fault, 0, sizeof(fault));
    fault.step = step;
    fault.output = output;
    for (uint32_t i = 0; i < BATCH; i++) {
        const int32_t prompt[] = {3, 1, (int32_t)i, 5, 9, 2, 6};
        struct request_spec spec = {.prompt = prompt,
                                    .prompt_tokens = 7,
                                    .max_tokens = ANSWER,
                                    .n = 1,
                                    .sample = sample_params_default(),
                                    .ignore_end = true,
                                    .want_logprobs = true};
        assert_int_equal(engine_submit(s.engine, &spec, &out[i], &err), ST_OK);
    }
    for (bool did_work = true; did_work;) engine_step(s.engine, &did_work);
    engine_verify(s.engine);
    assert_true(sched_is_idle(engine_sched(s.engine)));
    service_close(&s);
}

static void compare(struct request *const want[BATCH], struct request *const got[BATCH]) {
    uint32_t failed = 0;
    for (uint32_t i = 0; i < BATCH; i++) {
        const struct choice *a = &want[i]->choices[0], *b = &got[i]->choices[0];
        uint32_t ready;
        enum finish_reason finish = choice_poll(b, &ready);
        uint32_t count = ready - b->prompt_tokens;
        failed += finish == FINISH_ERROR;
        if (finish != FINISH_ERROR) assert_int_equal(finish, FINISH_LENGTH);
        if (finish != FINISH_ERROR) assert_int_equal(count, ANSWER);
        assert_memory_equal(a->tokens, b->tokens, ready * sizeof(a->tokens[0]));
        assert_memory_equal(a->logprobs, b->logprobs, count * sizeof(a->logprobs[0]));
    }
    assert_int_equal(failed, fault.done ? 1 : 0);
}

static void drop(struct request *r[BATCH]) {
    for (uint32_t i = 0; i < BATCH; i++) request_unref(r[i]);
}

static void test_nan_in_any_row_harms_nobody_else(void **state) {
    (void)state;
    struct request *want[BATCH], *got[BATCH];
    uint32_t done = 0;
    run(STEPS_NONE, 0, want);
    uint32_t steps = fault.steps;
    for (uint32_t step = 0; step < steps; step++)
        for (uint32_t output = 0; output < BATCH; output++) {
            run(step, output, got);
            compare(want, got);
            done += fault.done;
            drop(got);
        }
    assert_int_equal(done, BATCH * ANSWER); /* every token of every answer was hit */
    drop(want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nan_in_any_row_harms_nobody_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
