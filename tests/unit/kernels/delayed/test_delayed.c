/* Goal:   the device `delayed` is late, hides its memory, spoils old results, and fails on demand;
 *         its numbers are those of the device that it wraps.
 * Method: it wraps a small device of this file, whose "tape" copies a value out of device memory.
 *         What must crash is tried in a child process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "graph/tape.h"
#include "kernels/cpu/cpu.h"
#include "kernels/delayed/delayed.h"

enum { COLS = 64, ROWS = 4, VOCAB = COLS };

struct rig {
    struct device dev;
    struct tape *tape;
    struct weight table;
    struct device_program *program;
    struct step *steps[2];
};

static float numbers[VOCAB * COLS];

/* Rows of a table are looked up by token: the logits of token t are row t. */
static struct tape *make_tape(const struct weight *table) {
    struct err err = {{0}};
    struct tape *t;
    assert_int_equal(tape_create(&t), ST_OK);
    struct operand x = tape_all(t, tape_value(t, "x", ROWS_TOKENS, VALUE_F32, COLS));
    struct operand out = tape_all(t, tape_value(t, "out", ROWS_OUTPUTS, VALUE_F32, COLS));
    tape_push(t,
              &(struct op){.kind = OP_EMBED,
                           .embed = {.table = table, .source = EMBED_TOKEN, .scale = 1, .dst = x}});
    tape_push(t, &(struct op){.kind = OP_GATHER, .gather = {.src = x, .dst = out}});
    tape_set_output(t, out.value);
    tape_set_kept(t, out.value);
    if (tape_finish(t, &(struct tape_sizes){ROWS, ROWS, ROWS}, &err) != ST_OK)
        fail_msg("%s", err.text);
    return t;
}

static void rig_open(struct rig *r, const char *options) {
    struct err err = {{0}};
    struct delayed_options o;
    struct device inner;
    for (int i = 0; i < VOCAB * COLS; i++) numbers[i] = (float)((i * 37) % 1009) / 7.0f;
    if (delayed_parse(str_of(options), &o, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(cpu_device_open("ref", 1, &inner, &err), ST_OK);
    assert_int_equal(delayed_open(&inner, &o, &r->dev, &err), ST_OK);
    r->table = (struct weight){.name = STR("table"),
                               .use = WEIGHT_TABLE,
                               .type = DTYPE_F32,
                               .rows = VOCAB,
                               .cols = COLS,
                               .experts = 1,
                               .data = numbers,
                               .bytes = sizeof(numbers)};
    r->tape = make_tape(&r->table);
    struct program_options p = {.tape = r->tape,
                                .sizes = {.rows_max = ROWS, .outputs_max = ROWS, .seqs_max = ROWS},
                                .slot_count = ROWS};
    if (r->dev.program_create(r->dev.self, &p, &r->program, &err) != ST_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < 2; i++)
        assert_int_equal(step_create(&r->steps[i], &r->dev, &p.sizes, &err), ST_OK);
}

static void rig_close(struct rig *r) {
    for (int i = 0; i < 2; i++) step_destroy(r->steps[i], &r->dev);
    r->dev.program_destroy(r->dev.self, r->program);
    tape_destroy(r->tape);
    r->dev.close(r->dev.self);
}

/* One row: token, or what slot 0 holds if it is -1; greedy into slot 0. */
static struct step *fill(struct rig *r, int which, int32_t token) {
    struct step *s = r->steps[which];
    step_clear(s);
    s->row_count = s->output_count = s->seq_count = 1;
    s->token[0] = token >= 0 ? token : step_token_at(0);
    s->pos[0] = 0;
    s->seq[0] = s->output_row[0] = 0;
    s->seqs[0] = (struct step_seq){0, 1};
    s->samplings[0] = (struct sampling){.kind = SAMPLING_DRAW,
                                        .top_p = 1,
                                        .typical_p = 1,
                                        .deny_first = SAMPLING_NONE,
                                        .wants_logprob = true};
    return s;
}

static int32_t best_after(int32_t token) {
    const float *row = numbers + (size_t)token * COLS;
    int32_t best = 0;
    for (int32_t i = 1; i < COLS; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

static void submit(struct rig *r, const struct step *s) {
    struct err err = {{0}};
    assert_int_equal(r->dev.submit(r->dev.self, r->program, s, &err), ST_OK);
}

static int32_t collect(struct rig *r) {
    struct err err = {{0}};
    struct device_result out;
    assert_int_equal(r->dev.collect(r->dev.self, r->program, &out, &err), ST_OK);
    assert_int_equal(out.output_count, 1);
    assert_false(out.outputs[0].failed);
    assert_int_equal(out.kept_floats, out.row_floats); /* the tape keeps its output */
    assert_memory_equal(out.kept, out.rows, COLS * sizeof(float));
    return out.outputs[0].sample.chosen.token;
}

static void test_a_step_takes_the_token_of_the_step_before(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "depth=1,jitter=2000,seed=3");
    int32_t token = 5;
    submit(&r, fill(&r, 0, token));
    for (int n = 1; n < 40; n++) {
        submit(&r, fill(&r, n % 2, -1));
        int32_t got = collect(&r);
        assert_int_equal(got, best_after(token));
        token = got;
    }
    assert_int_equal(collect(&r), best_after(token));
    rig_close(&r);
}

static void test_submit_returns_before_the_step_has_run(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "depth=1,delay=400000,jitter=0");
    int64_t begin_us = clock_now(&clock_real);
    submit(&r, fill(&r, 0, 1));
    submit(&r, fill(&r, 1, -1));
    assert_true(clock_now(&clock_real) - begin_us < 350000);
    collect(&r);
    assert_true(clock_now(&clock_real) - begin_us >= 400000);
    collect(&r);
    assert_true(clock_now(&clock_real) - begin_us >= 800000);
    rig_close(&r);
}

static void test_results_are_spoilt_by_the_next_submit(void **state) {
    (void)state;
    struct rig r;
    struct err err = {{0}};
    struct device_result out;
    rig_open(&r, "depth=0,jitter=0");
    submit(&r, fill(&r, 0, 1));
    assert_int_equal(r.dev.collect(r.dev.self, r.program, &out, &err), ST_OK);
    assert_int_equal(out.outputs[0].sample.chosen.token, best_after(1));
    assert_true(out.rows[0] == numbers[COLS]);
    submit(&r, fill(&r, 1, 1));
    assert_int_equal(out.outputs[0].sample.chosen.token, -1);
    assert_true(isnan(out.rows[0]));
    collect(&r);
    rig_close(&r);
}

static void test_tables_are_read_when_the_step_runs(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "depth=1,delay=30000,jitter=0");
    submit(&r, fill(&r, 0, 1));
    submit(&r, fill(&r, 1, 2));
    r.steps[1]->token[0] = 9; /* a caller may not do this: it shows */
    assert_int_equal(collect(&r), best_after(1));
    assert_int_equal(collect(&r), best_after(9));
    rig_close(&r);
}

static void test_the_host_cannot_touch_device_memory(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "");
    device_addr addr = r.dev.alloc(r.dev.self, 1 << 16);
    assert_true(addr != 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile uint8_t *)(uintptr_t)addr = 1;
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    r.dev.free(r.dev.self, addr, 1 << 16);
    rig_close(&r);
}

static void test_steps_fail_on_demand(void **state) {
    (void)state;
    struct rig r;
    struct err err = {{0}};
    struct device_result out;
    rig_open(&r, "depth=0,jitter=0,fail=2,lose=4");
    static const enum status want[] = {ST_OK, ST_DEVICE, ST_OK, ST_DEVICE, ST_DEVICE};
    for (int i = 0; i < 5; i++) {
        submit(&r, fill(&r, 0, 1));
        assert_int_equal(r.dev.collect(r.dev.self, r.program, &out, &err), want[i]);
    }
    assert_non_null(strstr(err.text, "step 5"));
    rig_close(&r);
}

/* The steps of another program, more than the device keeps at one time. */
struct other {
    struct rig *rig;
    struct device_program *program;
    struct step *step;
    int done;
};

static void *run_other(void *arg) {
    struct other *o = arg;
    const struct device *dev = &o->rig->dev;
    struct device_result out;
    for (int i = 0; i < 20; i++)
        if (dev->submit(dev->self, o->program, o->step, NULL) == ST_OK &&
            dev->collect(dev->self, o->program, &out, NULL) == ST_OK)
            o->done++;
    return NULL;
}

static void test_a_step_that_is_not_collected_holds_up_others_at_most(void **state) {
    (void)state;
    struct rig r;
    struct err err = {{0}};
    pthread_t thread;
    rig_open(&r, "depth=1,jitter=0");
    struct program_options p = {.tape = r.tape, .sizes = r.steps[0]->sizes, .slot_count = ROWS};
    struct other other = {.rig = &r, .step = fill(&r, 1, 4)};
    assert_int_equal(r.dev.program_create(r.dev.self, &p, &other.program, &err), ST_OK);
    submit(&r, fill(&r, 0, 1));
    assert_int_equal(pthread_create(&thread, NULL, run_other, &other), 0);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    assert_int_equal(collect(&r), best_after(1));
    pthread_join(thread, NULL);
    assert_int_equal(other.done, 20);
    r.dev.program_destroy(r.dev.self, other.program);
    rig_close(&r);
}

static void test_options_are_checked(void **state) {
    (void)state;
    struct delayed_options o;
    struct err err = {{0}};
    assert_int_equal(
        delayed_parse(STR("depth=0,delay=5,jitter=6,seed=7,fail=8,lose=9,memory=10"), &o, &err),
        ST_OK);
    assert_int_equal(o.memory, 10);
    assert_int_equal(o.depth, 0);
    assert_int_equal(o.delay_us + o.jitter_us, 11);
    assert_int_equal(o.seed + o.fail_step + o.lose_step, 24);
    static const char *const wrong[] = {
        "depth=2", "depth=", "speed=3",  "delay=-1", "delay", "=", "delay=99999999999999999999",
        "seed=1x", ",",      "depth=1,,"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        err = (struct err){{0}};
        assert_int_equal(delayed_parse(str_of(wrong[i]), &o, &err), ST_BAD);
        assert_non_null(strstr(err.text, "device delayed"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_takes_the_token_of_the_step_before),
        cmocka_unit_test(test_submit_returns_before_the_step_has_run),
        cmocka_unit_test(test_results_are_spoilt_by_the_next_submit),
        cmocka_unit_test(test_tables_are_read_when_the_step_runs),
        cmocka_unit_test(test_the_host_cannot_touch_device_memory),
        cmocka_unit_test(test_steps_fail_on_demand),
        cmocka_unit_test(test_a_step_that_is_not_collected_holds_up_others_at_most),
        cmocka_unit_test(test_options_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
