/* bench/solo.c - one sequence, again and again: prompt and decode speed of a loaded model.
 *
 * Usage: solo MODEL [THREADS [ISA [PROMPT [ANSWER]]]]
 *
 * Loads the model once, runs one prompt that is not counted and says "ready". Then each line on
 * standard input is one run with a prompt of its own: it prints prompt and decode speed in tokens
 * per second. So a script can keep several programs loaded and let them take turns
 * (bench/device_cpu.py does).
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "engine/request_run.h"
#include "engine/service.h"

enum { PROMPT_MAX = 4096, LINE_BYTES = 64, STEP_TOKENS = 256 };

static void must(enum status st, const struct err *err) {
    if (st == ST_OK) return;
    fprintf(stderr, "solo: %s\n", err->text);
    exit(EXIT_FAILURE);
}

/* Run `run`: tokens that no other run starts with, so that nothing is found in the cache. */
static struct request_usage generate(struct service *s, uint64_t run, uint32_t prompt,
                                     uint32_t answer) {
    static int32_t ids[PROMPT_MAX];
    uint32_t vocab = s->loaded.model->hp.vocab;
    struct err err = {{0}};
    struct request_usage usage;
    for (uint32_t i = 0; i < prompt; i++) ids[i] = (int32_t)(rng_at(1, run, i) % vocab);
    ids[0] = (int32_t)(run % vocab);
    struct request_spec spec = {
        .prompt = ids,
        .prompt_tokens = prompt,
        .max_tokens = answer + 1, /* the first comes from the prompt's last row */
        .n = 1,
        .sample = sample_params_default(),
        .ignore_end = true,
    };
    spec.sample.temperature = 0;
    struct request_run run_it = {.engine = s->engine, .spec = &spec};
    must(request_run(&run_it, &usage, &err), &err);
    return usage;
}

int main(int argc, char **argv) {
    struct service s;
    struct err err = {{0}};
    if (argc < 2) {
        printf("solo: skipped, no model; usage: solo MODEL [THREADS [ISA [PROMPT "
               "[ANSWER]]]]\n");
        return 0;
    }
    uint32_t prompt = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 512;
    uint32_t answer = argc > 5 ? (uint32_t)strtoul(argv[5], NULL, 10) : 128;
    if (prompt < 1 || prompt > PROMPT_MAX) return 2;
    struct service_options options = {.knobs = knobs_default(),
                                      .is_single = true,
                                      .isa = argc > 3 ? argv[3] : "auto",
                                      .ctx_tokens = prompt + answer + 1};
    options.knobs.threads = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    options.knobs.max_step_tokens = STEP_TOKENS;
    must(service_open(&s, argv[1], &options, &err), &err);
    generate(&s, 0, prompt, 4);
    printf("ready %s %u\n", s.loaded.device.name, s.loaded.threads);
    fflush(stdout);
    char line[LINE_BYTES];
    for (uint64_t run = 1; fgets(line, sizeof(line), stdin); run++) {
        struct request_usage u = generate(&s, run, prompt, answer);
        printf("%.2f %.3f\n", prompt * 1e6 / (double)u.prompt_us,
               answer * 1e6 / (double)u.decode_us);
        fflush(stdout);
    }
    service_close(&s);
    return 0;
}
