/* tests/gpu/main.c - the GPU's device against the CPU's: gpu_check [SUITE...]
 *
 *     gpu_check                     all suites but those that are named below
 *     gpu_check rows sampling       some
 *     gpu_check time                how long the ops of decoding steps take
 *     gpu_check compare             how long steps take, of the variants beside each other
 *     gpu_check options             the same in turns, of options that are off: what each gains
 *     gpu_check attention_speed     attention alone, as a share of what the card can do
 *     gpu_check batches             answers of the engine, alone and in batches (tests/identity)
 *     gpu_check logits              of a model and tokens, to a file: --model, --tokens, --out,
 *                                   --chunk (suite_logits.c)
 *     --variants /,graphs=off       what is put behind the device's name, with slashes between
 *     --device cuda:1               another card
 *     --models DIR                  where the golden models are
 *     --shape 0.6B-bf16             steps, compare and options: of this shape
 *     --quick                       fewer cases, for an emulated card
 *     --details                     compare: times of kinds of ops, too
 *     --json FILE                   what compare (8B shapes), options and steps found, as JSON
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "check.h"

enum { SHOWN_MAX = 12 };

void check_that(struct checks *c, bool holds, const char *format, ...) {
    if (holds) {
        c->passed++;
        return;
    }
    c->failed++;
    if (c->suite_failed++ >= SHOWN_MAX) return;
    va_list args;
    va_start(args, format);
    printf("  FAILED ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

void check_figure(struct checks *c, const char *key, const char *type, double value) {
    if (c->figure_count == FIGURES_MAX) return;
    struct figure *f = &c->figures[c->figure_count++];
    *f = (struct figure){.key = key, .value = value};
    snprintf(f->type, sizeof(f->type), "%s", type);
}

static bool is_first(const struct checks *c, uint32_t i) {
    for (uint32_t k = 0; k < i; k++)
        if (strcmp(c->figures[k].key, c->figures[i].key) == 0) return false;
    return true;
}

/* {"decode_b1": {"bf16": 231.5}, ...} */
static bool write_json(const struct checks *c, const char *path) {
    FILE *f = fopen(path, "w");
    if (!f) return false;
    fprintf(f, "{\"device\": \"%s\", \"checks\": {\"passed\": %u, \"failed\": %u}", c->device,
            c->passed, c->failed);
    for (uint32_t i = 0; i < c->figure_count; i++) {
        if (!is_first(c, i)) continue;
        fprintf(f, ",\n \"%s\": {", c->figures[i].key);
        for (uint32_t k = i; k < c->figure_count; k++)
            if (strcmp(c->figures[k].key, c->figures[i].key) == 0)
                fprintf(f, "%s\"%s\": %.1f", k > i ? ", " : "", c->figures[k].type,
                        c->figures[k].value);
        fprintf(f, "}");
    }
    fprintf(f, "}\n");
    return fclose(f) == 0;
}

static const struct suite {
    const char *name;
    suite_fn *run;
    bool is_asked_for; /* only by its name */
} suites[] = {
    {"rows", suite_rows, false},
    {"products", suite_products, false},
    {"attention", suite_attention, false},
    {"sampling", suite_sampling, false},
    {"fp8", suite_fp8, false},
    {"models", suite_models, false},
    {"steps", suite_steps, false},
    {"resident", suite_resident, false},
    {"batches", suite_batches, true},
    {"time", suite_time, true},
    {"compare", suite_compare, true},
    {"options", suite_options, true},
    {"attention_speed", suite_attention_speed, true},
    {"logits", suite_logits, true},
};
enum { SUITES = sizeof(suites) / sizeof(suites[0]) };

static void run_suite(struct checks *c, const struct suite *s) {
    int64_t begin_us = clock_now(&clock_real);
    uint32_t passed = c->passed;
    c->suite_failed = 0;
    printf("%s\n", s->name);
    fflush(stdout);
    s->run(c);
    printf("  %s: %u passed, %u failed, %.1f s\n", s->name, c->passed - passed, c->suite_failed,
           (double)(clock_now(&clock_real) - begin_us) / 1e6);
    fflush(stdout);
}

static bool is_named(const char *name, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0) return true;
    return false;
}

static const char *option(const char *name, const char *otherwise, int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return argv[i + 1];
    return otherwise;
}

int main(int argc, char **argv) {
    struct checks c = {.device = option("--device", "cuda:0", argc, argv),
                       .models = option("--models", "models", argc, argv),
                       .variants = option("--variants", "", argc, argv),
                       .shape = option("--shape", NULL, argc, argv),
                       .model = option("--model", NULL, argc, argv),
                       .tokens = option("--tokens", NULL, argc, argv),
                       .out = option("--out", NULL, argc, argv),
                       .chunk = (uint32_t)strtoul(option("--chunk", "256", argc, argv), NULL, 10),
                       .is_quick = is_named("--quick", argc, argv),
                       .has_details = is_named("--details", argc, argv)};
    bool any = false;
    for (int i = 0; i < SUITES; i++) any = any || is_named(suites[i].name, argc, argv);
    for (int i = 0; i < SUITES; i++)
        if (any ? is_named(suites[i].name, argc, argv) : !suites[i].is_asked_for)
            run_suite(&c, &suites[i]);
    printf("%s: %u checks passed, %u failed\n", c.device, c.passed, c.failed);
    const char *json = option("--json", NULL, argc, argv);
    if (!json || write_json(&c, json)) return c.failed > 0;
    printf("%s cannot be written\n", json);
    return 1;
}
