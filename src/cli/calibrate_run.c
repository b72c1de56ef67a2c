/* cli/calibrate_run.c - see cli/calibrate_run.h for the contract. */
#include "cli/calibrate_run.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/size_text.h"
#include "cli/cli.h"
#include "cli/model_args.h"
#include "cli/text_windows.h"
#include "engine/request_run.h"
#include "engine/service.h"
#include "format/model_file.h"
#include "graph/weight.h"
#include "quant/importance.h"

struct run {
    const struct args *args;
    struct calibration *c;
    struct service service;
};

/* The model's own forward pass, seen from inside. */
static void take_input(void *ctx, const struct device_input *input) {
    struct run *r = ctx;
    const struct importance_part part = {.name = input->weight->name,
                                         .cols = input->weight->cols,
                                         .col = input->col,
                                         .count = input->count,
                                         .x = input->x};
    importance_add(r->c->importance, &part);
}

/* Asking for the logits of all positions makes the head read all of them. */
static void ignore_logits(void *ctx, uint32_t pos, const float *logits) {
    (void)ctx, (void)pos, (void)logits;
}

static enum status say_needs(const char *path, uint32_t ctx_tokens, struct err *err) {
    struct model_file *f;
    char size[SIZE_TEXT_BYTES], line[256];
    uint64_t bytes = 0;
    TRY(model_file_open(path, &f, err));
    for (size_t i = 0; i < tensor_count(f); i++) bytes += tensor_at(f, i)->bytes;
    model_file_close(f);
    snprintf(
        line, sizeof(line),
        "jitney: calibration runs the model on the CPU; it needs %s of memory for the weights, "
        "and room for %u tokens",
        size_text(bytes, size), ctx_tokens);
    note_write(line);
    return ST_OK;
}

static enum status run_window(struct run *r, uint32_t i, struct err *err) {
    const struct text_windows *text = r->c->text;
    const struct request_spec spec = {.prompt = text_windows_at(text, i),
                                      .prompt_tokens = text->window_tokens,
                                      .n = 1,
                                      .sample = sample_params_default(),
                                      .on_logits = ignore_logits};
    const struct request_run run = {.engine = r->service.engine, .spec = &spec};
    struct request_usage usage;
    TRY(request_run(&run, &usage, err));
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[Kcalibrating: %u of %u windows", i + 1, text->windows);
        if (i + 1 == text->windows) fprintf(stderr, "\r\033[K");
    }
    return importance_status(r->c->importance, err);
}

static enum status run_windows(struct run *r, struct err *err) {
    const struct device *device = &r->service.loaded.device;
    if (!device->profiler || !device->profiler->tap)
        return err_set(err, ST_BAD,
                       "quantize: --calibrate needs the CPU, this is %s; give --device cpu",
                       device->name);
    TRY(importance_create(&r->c->importance, err));
    device->profiler->tap(device->self, take_input, r);
    enum status st = ST_OK;
    for (uint32_t i = 0; i < r->c->text->windows && st == ST_OK; i++) st = run_window(r, i, err);
    device->profiler->tap(device->self, NULL, NULL);
    return st;
}

enum status calibrate_model(const struct args *args, const char *path, struct calibration *c,
                            struct err *err) {
    struct run r = {.args = args, .c = c};
    uint32_t tokens = c->text->window_tokens;
    TRY(say_needs(path, tokens, err));
    enum status st = model_args_service_at(args, path, tokens, true, &r.service, err);
    if (st == ST_OK) st = run_windows(&r, err);
    service_close(&r.service);
    return st;
}
