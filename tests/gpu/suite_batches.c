/* Goal:   on the card, a request's tokens and log-probabilities are the same bits alone and in a
 *         batch: under every policy, cut, cached, preempted, swapped, at depth 0 and 1.
 * Method: the runs of tests/identity on golden models, through the engine. Each answer is compared
 *         with that of the same request alone on the same device. */
#include <stdio.h>

#include "base/file.h"
#include "check.h"
#include "identity/batch_run.h"

enum { RUNS = 10, QUICK_RUNS = 2, PATH_BYTES = 4096 }; /* ten: one for each policy */

static bool find_path(const struct checks *c, const char *name, char *out) {
    char dir[PATH_BYTES];
    if (!path_join(dir, sizeof(dir), c->models, name)) return false;
    if (path_join(out, PATH_BYTES, dir, "model.gguf") && file_exists(out)) return true;
    return path_join(out, PATH_BYTES, c->models, name) && file_exists(out);
}

static void check_model(struct checks *c, const char *name, const char *device,
                        struct coverage *seen) {
    static struct test_model model;
    struct err err = {{0}};
    char path[PATH_BYTES];
    if (!find_path(c, name, path)) {
        check_that(c, false, "no model %s under %s", name, c->models);
        return;
    }
    enum status st = test_model_open(&model, name, path, false, &err);
    check_that(c, st == ST_OK, "%s: %s", path, err.text);
    if (st != ST_OK) return;
    model.device = device;
    for (uint32_t i = 0; i < (c->is_quick ? QUICK_RUNS : RUNS); i++) {
        struct batch_run run = batch_run_draw(&model, i);
        st = batch_run_check(&model, &run, seen, &err);
        check_that(c, st == ST_OK, "%s on %s, run %u (%s): %s", name, device, i, run.policy->name,
                   err.text);
    }
    test_model_close(&model);
}

static void check_depth(struct checks *c, const char *options, const char *figure) {
    static const char *const models[] = {"llama-bf16", "qwen3moe", "gemma3", "llama-q4_k"};
    char device[256];
    struct coverage seen = {0};
    uint32_t failed = c->failed;
    snprintf(device, sizeof(device), "%s%s", c->device, options);
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        if (!c->is_quick || i == 0) check_model(c, models[i], device, &seen);
    printf("  %s %s: %u pairs, %u preempted, %u swapped, %u from the cache, %u chunked\n",
           c->failed == failed ? "PASS" : "FAIL", device, seen.pairs, seen.preempted, seen.swapped,
           seen.cached, seen.chunked);
    fflush(stdout);
    check_that(c, c->is_quick || seen.pairs >= 200, "%s: %u pairs, expected 200", device,
               seen.pairs);
    check_figure(c, "identity", figure, seen.pairs);
}

void suite_batches(struct checks *c) {
    check_depth(c, "", "pairs_depth_1");
    check_depth(c, ",depth=0", "pairs_depth_0");
    check_figure(c, "identity", "pairs_failed", c->suite_failed);
}
