/* cli/cmd_quantize.c - `jitney quantize`: write a model with fewer bits. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/size_text.h"
#include "cli/cli.h"
#include "cli/compare_run.h"
#include "cli/generated.h"
#include "cli/model_args.h"
#include "cli/progress_bar.h"
#include "cli/quantize_run.h"
#include "cli/quantize_source.h"
#include "config/env.h"
#include "format/model_file.h"

static const struct flag flags[] = {
    {.name = "type",
     .kind = FLAG_TEXT,
     .value = "TYPE",
     .help = "Number format of the matrices: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, "
             "IQ4_NL, IQ4_XS, F16, BF16 or F32 for a GGUF file; gptq, awq, nf4 or int8 for a "
             "folder."},
    {.name = "allow-requantize",
     .kind = FLAG_BOOL,
     .help = "Also convert tensors that are quantised already. The new loss is added to the one "
             "that they have."},
    {.name = "calibrate",
     .kind = FLAG_TEXT,
     .value = "TEXT",
     .help = "Run the model over this text first, on the CPU, and round so that the error on such "
             "a text is small. For a GGUF file the error of each column of a matrix is weighed by "
             "the mean square of its inputs; this needs memory for the model. For gptq, awq and "
             "int8 the model is rounded layer by layer. The first 64 windows of the text are used, "
             "or as many as --chunks says; 8 are needed, unless --chunks says fewer."},
    {.name = "report",
     .kind = FLAG_BOOL,
     .help = "Compare the new model with the old one on the text of --file, as \"jitney compare\" "
             "does, and print the result. Needs memory for both models."},
    {.name = "max-kl",
     .kind = FLAG_REAL,
     .value = "X",
     .min = 0,
     .max = 1000,
     .help =
         "Make a report, and keep the new model only if its mean KL is at most X; otherwise the "
         "exit code is 1."},
    {.name = "json", .kind = FLAG_BOOL, .help = "Print one JSON object."},
    {0},
};

static const struct quantize_output *const outputs[] = {&quantize_gguf, &quantize_folder};
enum { OUTPUT_COUNT = sizeof(outputs) / sizeof(outputs[0]), SUMMARY_BYTES_MAX = 1 << 24 };

/* One run, from the arguments to the summary. */
struct quantize {
    struct quantize_run run;
    const struct quantize_output *output;
    void *self; /* of the output */
    double seconds;
    bool has_report;
    struct comparison report;
};

void quantize_on_progress(void *ctx, uint64_t done, uint64_t total) {
    (void)total;
    progress_bar_update(ctx, done * sizeof(float));
}

static enum exit_code say_unknown(const char *type, struct err *err) {
    char known[512] = "";
    size_t used = 0;
    for (int i = 0; i < OUTPUT_COUNT; i++) {
        int put = snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
                           outputs[i]->known_types());
        if (put > 0) used += (size_t)put;
        CHECK(used < sizeof(known));
    }
    if (!type) return usage_set(err, "quantize: no type; give --type TYPE with one of %s", known);
    return usage_set(err, "quantize: unknown type \"%s\"; known: %s", type, known);
}

static bool is_stdin(const struct args *args, const char *flag) {
    const char *path = args_text(args, flag);
    return path && strcmp(path, "-") == 0;
}

static enum exit_code read_args(struct quantize *q, struct err *err) {
    const struct args *args = q->run.args;
    const char *type = args_text(args, "type");
    enum exit_code code = quantize_target_read(args, &q->run.target, err);
    if (code != EXIT_FINE) return code;
    if (args_operands(args) < 1 && !q->run.target.writes_none)
        return usage_set(err, "quantize: no output; usage: jitney quantize IN OUT --type TYPE");
    if (!type && !q->run.target.is_set) return say_unknown(NULL, err);
    q->has_report = args_on(args, "report") || args_given(args, "max-kl");
    if (q->has_report && !args_text(args, "file"))
        return usage_set(err, "quantize: --report and --max-kl need a text; give -f FILE");
    if (!q->has_report && args_text(args, "file"))
        return usage_set(err, "quantize: -f is for --report and --max-kl; give one of them");
    if (q->has_report && is_stdin(args, "file") && is_stdin(args, "calibrate"))
        return usage_set(err, "quantize: --calibrate and -f both read standard input; give a file "
                              "for one of them");
    if (!q->has_report && args_text(args, "svg"))
        return usage_set(err, "quantize: --svg draws what --report measures; give --report");
    if (q->has_report && q->run.target.writes_none)
        return usage_set(err, "quantize: --plan writes nothing that --report could compare");
    if (args_operands(args) > 0) q->run.out = args_operand(args, 0);
    if (q->run.target.is_set) {
        q->run.type = "mixed";
        q->output = &quantize_gguf;
    }
    for (int i = 0; i < OUTPUT_COUNT && !q->output; i++) {
        q->run.type = outputs[i]->find_type(str_of(type));
        if (q->run.type) q->output = outputs[i];
    }
    if (!q->output) return say_unknown(type, err);
    return q->output->check ? q->output->check(&q->run, err) : EXIT_FINE;
}

static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

static enum status open_both(struct quantize *q, struct err *err) {
    struct quantize_run *r = &q->run;
    TRY(model_args_path(r->args, r->in, err));
    if (r->out && is_same_file(r->in, r->out))
        return err_set(err, ST_CREATE, "%s: is the model itself; give another name for the output",
                       r->out);
    TRY(model_file_open(r->in, &r->f, err));
    bool runs = q->has_report || args_text(r->args, "calibrate");
    TRY(quantize_source_check(r->args, r->f, runs, err));
    return q->output->open(r, &q->self, err);
}

/* Before the work, which may take hours. */
static enum status read_texts(struct quantize *q, struct err *err) {
    struct quantize_run *r = &q->run;
    const char *text = args_text(r->args, "calibrate");
    if (text) TRY(text_windows_read_calibration(r->args, text, r->in, &r->calibration_text, err));
    return q->has_report ? comparison_prepare(r->args, r->in, &q->report, err) : ST_OK;
}

static struct quantize_counts count_tensors(const struct quantize *q) {
    struct quantize_counts c = {0};
    q->output->count(q->self, &c);
    return c;
}

static enum status write_model(struct quantize *q, struct err *err) {
    struct quantize_counts c = count_tensors(q);
    if (args_text(q->run.args, "calibrate")) TRY(q->output->calibrate(q->self, err));
    if (q->run.target.writes_none) return ST_OK;
    int64_t began_us = clock_now(&clock_real);
    progress_bar_begin(&q->run.bar, "quantising", c.elems * sizeof(float), 0);
    enum status st = q->output->write(q->self, err);
    progress_bar_end(&q->run.bar);
    q->seconds = (double)(clock_now(&clock_real) - began_us) / 1e6;
    return st;
}

/* The old model beside the new one, which has no name yet. */
static enum status compare_both(struct quantize *q, struct err *err) {
    struct comparison *c = &q->report;
    if (!q->has_report) return ST_OK;
    snprintf(c->a.path, sizeof(c->a.path), "%s", q->run.in);
    snprintf(c->a.shown, sizeof(c->a.shown), "%s", q->run.in);
    TRY(q->output->readable(q->self, c->b.path, err));
    snprintf(c->b.shown, sizeof(c->b.shown), "%s", q->run.out);
    return compare_models(q->run.args, c, err);
}

/* EXIT_REJECTED: the model is worse than --max-kl allows. */
static enum exit_code publish(struct quantize *q, struct err *err) {
    const struct args *args = q->run.args;
    double most = args_given(args, "max-kl") ? args_real(args, "max-kl") : HUGE_VAL;
    if (q->has_report && !(q->report.apart.kl_mean <= most)) {
        err_set(
            err, ST_OK,
            "%s: the mean KL is %.6g, more than --max-kl %g; nothing was kept. A type with more "
            "bits loses less",
            q->run.out, q->report.apart.kl_mean, most);
        return EXIT_REJECTED;
    }
    if (q->run.target.writes_none) return EXIT_FINE;
    return exit_of(q->output->publish(q->self, err));
}

static void put_json(const struct quantize *q, const struct quantize_counts *c, struct buf *out) {
    uint32_t tokens = text_windows_tokens(&q->run.calibration_text);
    buf_put_text(out, "{\"path\":");
    buf_put_json_string(out, str_of(q->run.out));
    buf_printf(out, ",\"type\":\"%s\",\"tensors\":%zu,\"converted\":%zu,\"fallbacks\":%zu",
               q->run.type, c->tensors, c->converted, c->fallbacks);
    buf_printf(out, ",\"bytes_in\":%llu,\"bytes_out\":%llu,\"file_bytes\":%llu",
               (unsigned long long)c->bytes_in, (unsigned long long)c->bytes_out,
               (unsigned long long)c->file_bytes);
    buf_put_text(out, ",\"bits_per_weight\":");
    put_json_number(out, 8.0 * (double)c->bytes_out / (double)c->elems);
    buf_put_text(out, ",\"seconds\":");
    put_json_number(out, q->seconds);
    if (tokens > 0)
        buf_printf(out, ",\"calibration\":{\"tokens\":%u,\"matrices\":%zu}", tokens, c->weighed);
    if (q->run.plan) buf_put_text(out, ",\"plan\":");
    if (q->run.plan) quantize_plan_put_json(q->run.plan, out);
    if (q->has_report) buf_put_text(out, ",\"report\":{");
    if (q->has_report) comparison_put_json(&q->report, out);
    buf_put_text(out, q->has_report ? "}}\n" : "}\n");
}

static void put_text(const struct quantize *q, const struct quantize_counts *c, struct buf *out) {
    char before[SIZE_TEXT_BYTES], after[SIZE_TEXT_BYTES], rate[SIZE_TEXT_BYTES];
    uint32_t tokens = text_windows_tokens(&q->run.calibration_text);
    double per_s = q->seconds > 0 ? 4.0 * (double)c->elems / q->seconds : 0;
    buf_printf(out, "%s: %s, was %s; %.2f bits a weight, was %.2f; %zu of %zu tensors converted\n",
               q->run.out, size_text(c->bytes_out, after), size_text(c->bytes_in, before),
               8.0 * (double)c->bytes_out / (double)c->elems,
               8.0 * (double)c->bytes_in / (double)c->elems, c->converted, c->tensors);
    buf_printf(out, "%.1f s, %s of float32 a second\n", q->seconds,
               size_text((uint64_t)per_s, rate));
    if (tokens > 0)
        buf_printf(out, "calibrated with %u tokens: %zu matrices\n", tokens, c->weighed);
    if (q->run.plan) quantize_plan_put_table(q->run.plan, false, out);
    if (q->has_report) comparison_put_table(&q->report, out);
}

/* Of --plan. */
static void put_plan(const struct quantize *q, struct buf *out) {
    if (!args_on(q->run.args, "json")) {
        quantize_plan_put_table(q->run.plan, true, out);
        return;
    }
    buf_put_text(out, "{\"plan\":");
    quantize_plan_put_json(q->run.plan, out);
    buf_put_text(out, "}\n");
}

static enum status print_summary(const struct quantize *q, struct err *err) {
    struct quantize_counts c = count_tensors(q);
    struct buf out;
    buf_init(&out, SUMMARY_BYTES_MAX);
    if (q->run.target.writes_none)
        put_plan(q, &out);
    else if (args_on(q->run.args, "json"))
        put_json(q, &c, &out);
    else
        put_text(q, &c, &out);
    enum status st = buf_status(&out);
    if (st == ST_OK)
        st = out_write(buf_str(&out), err);
    else
        err_set(err, st, "out of memory for the summary");
    buf_deinit(&out);
    return st;
}

static enum exit_code run(const struct args *args, struct err *err) {
    struct env_settings env;
    struct quantize q = {.run.args = args};
    enum exit_code code = read_args(&q, err);
    if (code != EXIT_FINE) return code;
    signal(SIGXFSZ, SIG_IGN); /* a file over the system's size limit is an error of the write */
    env_read(&env);
    progress_bar_init(&q.run.bar, &env, PROGRESS_BAR_LINES);
    enum status st = open_both(&q, err);
    if (st == ST_OK) st = read_texts(&q, err);
    if (st == ST_OK) st = write_model(&q, err);
    if (st == ST_OK) st = compare_both(&q, err);
    code = st == ST_OK ? publish(&q, err) : exit_of(st);
    if (code == EXIT_FINE) code = exit_of(print_summary(&q, err));
    comparison_deinit(&q.report);
    text_windows_deinit(&q.run.calibration_text);
    q.output->close(q.self);
    model_file_close(q.run.f);
    return code;
}

extern const struct command cmd_quantize;
const struct command cmd_quantize = {
    .name = "quantize",
    .summary = "Write a model with fewer bits",
    .operands = "OUT --type TYPE|--budget SIZE",
    .about =
        "Writes a model, a GGUF file or a Hugging Face folder, with another number format for its "
        "matrices. OUT is a GGUF file, or, with the types gptq, awq, nf4 and int8, a safetensors "
        "folder that transformers reads. Norms and other vectors stay as they are. In a GGUF file "
        "the output matrix takes Q6_K or Q8_0, and a matrix whose rows do not divide into the "
        "blocks of the type takes a related type, as in llama.cpp; a line on standard error names "
        "these types. With --budget or --bits the command chooses a type for each matrix. In a "
        "folder only the matrices of layers are quantised. OUT must not exist; it appears when it "
        "is whole, so that a run that is stopped leaves at most OUT.part. Memory does not grow "
        "with the model, except with --calibrate, --report and --max-kl.",
    .groups = {flags, flags_plan, flags_folder, flags_text, flags_compare, flags_chunk,
               flags_engine},
    .takes_model = true,
    .operands_max = 1,
    .run = run,
};
