/* cli/cmd_compare.c - `jitney compare`: what a smaller model has lost. */
#include <stdio.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "cli/compare_run.h"
#include "cli/model_args.h"

enum { RESULT_BYTES_MAX = 1 << 20 };

static const struct flag flags[] = {
    {.name = "json", .kind = FLAG_BOOL, .help = "Print one JSON object."},
    {0},
};

static enum status find_model(const char *name, struct compared *out, struct err *err) {
    char path[MODEL_PATH_BYTES];
    TRY(model_args_resolve(name, path, err));
    snprintf(out->path, sizeof(out->path), "%s", path);
    snprintf(out->shown, sizeof(out->shown), "%s", name);
    return ST_OK;
}

static enum status print_comparison(const struct comparison *c, bool json, struct err *err) {
    struct buf out;
    buf_init(&out, RESULT_BYTES_MAX);
    if (json) buf_put_char(&out, '{');
    if (json)
        comparison_put_json(c, &out);
    else
        comparison_put_table(c, &out);
    if (json) buf_put_text(&out, "}\n");
    enum status st = buf_status(&out);
    if (st == ST_OK)
        st = out_write(buf_str(&out), err);
    else
        err_set(err, st, "out of memory for the result");
    buf_deinit(&out);
    return st;
}

static enum exit_code run(const struct args *args, struct err *err) {
    struct comparison c = {0};
    if (args_operands(args) < 1)
        return usage_set(err, "compare: one model; usage: jitney compare A B -f FILE");
    if (!args_text(args, "file")) return usage_set(err, "compare: no text; give -f FILE");
    enum status st = find_model(args_model(args), &c.a, err);
    if (st == ST_OK) st = find_model(args_operand(args, 0), &c.b, err);
    if (st == ST_OK) st = comparison_prepare(args, c.a.path, &c, err);
    if (st == ST_OK) st = compare_models(args, &c, err);
    if (st == ST_OK) st = print_comparison(&c, args_on(args, "json"), err);
    comparison_deinit(&c);
    return exit_of(st);
}

extern const struct command cmd_compare;
const struct command cmd_compare = {
    .name = "compare",
    .summary = "Measure how far the predictions of two models are apart",
    .operands = "B -f FILE",
    .about =
        "Two models predict the same text: A (-m, or the first argument) and B, which was made "
        "from A, "
        "for example by quantising it. Prints how much the predictions differ: the "
        "Kullback-Leibler "
        "divergence (KL) of B from A in nats (its mean, its largest value, and the value that 99 % "
        "of the "
        "positions do not exceed), how often both have the same most likely token, and the "
        "perplexities, sizes and speeds of both. Both models must have the same vocabulary; both "
        "are in memory at once.",
    .groups = {flags, flags_text, flags_compare, flags_chunk, flags_engine},
    .takes_model = true,
    .operands_max = 1,
    .run = run,
};
