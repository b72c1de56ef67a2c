/* bench/depth.c - does planning a step while another runs hide what the host does?
 *
 * Usage: depth MODEL [sequences [delay_us]]
 *
 * An engine on the device `delayed`, whose steps take a fixed time (5 ms if not given), with so
 * many sequences that decode (64) and a client that takes every event. All of them have penalties
 * over their whole context and log-probabilities, so that the host has something to do. Prints CSV:
 * depth, sequences, steps, microseconds a step, per cent above the delay. At depth 1 the limit is
 * 3 %. MODEL is best a tiny one: what it computes must fit the delay.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "engine/service.h"

enum { SEQS = 64, DELAY_US = 5000, PROMPT = 16, WARM_STEPS = 40, STEPS = 400, SEQS_MAX = 1024 };
enum { EVENTS_MAX = 256, WAIT_US = 200 };

static void must(enum status st, const struct err *err) {
    if (st == ST_OK) return;
    fprintf(stderr, "depth: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static void submit_one(struct service *s, uint32_t i, struct request **out) {
    struct err err = {{0}};
    int32_t prompt[PROMPT];
    for (uint32_t t = 0; t < PROMPT; t++)
        prompt[t] = (int32_t)((i * 31 + t * 7) % s->loaded.model->hp.vocab);
    struct request_spec spec = {.prompt = prompt,
                                .prompt_tokens = PROMPT,
                                .max_tokens = WARM_STEPS + STEPS + 64,
                                .n = 1,
                                .sample = sample_params_default(),
                                .ignore_end = true,
                                .want_logprobs = true};
    spec.sample.seed = i;
    spec.sample.top_logprobs = 5;
    spec.sample.penalty_window = -1;
    spec.sample.repetition_penalty = 1.1f;
    must(engine_submit(s->engine, &spec, out, &err), &err);
}

/* Take events until the engine has done so many steps. */
static void run_steps(struct service *s, uint64_t steps) {
    uint64_t end = engine_liveness(s->engine).steps + steps;
    struct choice *choices[EVENTS_MAX];
    while (engine_liveness(s->engine).steps < end) {
        uint32_t count = engine_next_many(s->engine, choices, EVENTS_MAX);
        for (uint32_t i = 0; i < count; i++) request_unref(choices[i]->request);
        struct timespec nap = {.tv_nsec = WAIT_US * 1000};
        if (count == 0) nanosleep(&nap, NULL);
    }
}

static double measure(const char *model, uint32_t depth, uint32_t seqs, uint32_t delay_us) {
    static struct request *requests[SEQS_MAX];
    char device[64];
    struct err err = {{0}};
    struct service s;
    snprintf(device, sizeof(device), "delayed:depth=%u,delay=%u,jitter=0", depth, delay_us);
    struct service_options o = {
        .knobs = knobs_default(), .device = device, .ctx_tokens = 2048, .tokens_only = true};
    o.knobs.max_seqs = seqs;
    o.knobs.threads = 1;
    must(service_open(&s, model, &o, &err), &err);
    must(engine_start(s.engine, &err), &err);
    for (uint32_t i = 0; i < seqs; i++) submit_one(&s, i, &requests[i]);
    run_steps(&s, WARM_STEPS);
    int64_t begin_us = clock_now(&clock_real);
    uint64_t first = engine_liveness(s.engine).steps;
    run_steps(&s, STEPS);
    double us = (double)(clock_now(&clock_real) - begin_us);
    us /= (double)(engine_liveness(s.engine).steps - first);
    engine_stop(s.engine);
    for (struct choice *c; (c = engine_next(s.engine, 0));) request_unref(c->request);
    for (uint32_t i = 0; i < seqs; i++) request_unref(requests[i]);
    service_close(&s);
    return us;
}

int main(int argc, char **argv) {
    const char *model = argc > 1 ? argv[1] : "tests/golden/models/llama";
    uint32_t seqs = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : SEQS;
    uint32_t delay_us = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : DELAY_US;
    CHECK(seqs > 0 && seqs <= SEQS_MAX && delay_us > 0);
    puts("depth,sequences,steps,step_us,above_delay_percent");
    for (uint32_t depth = 0; depth <= 1; depth++) {
        double us = measure(model, depth, seqs, delay_us);
        printf("%u,%u,%d,%.1f,%.2f\n", depth, seqs, STEPS, us, 100 * (us / delay_us - 1));
        fflush(stdout);
    }
    return 0;
}
