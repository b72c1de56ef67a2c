/* cli/cmd_quantize.c - `jitney quantize`: write a model with fewer bits. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file_out.h"
#include "base/size_text.h"
#include "cli/calibrate_run.h"
#include "cli/cli.h"
#include "cli/compare_run.h"
#include "cli/generated.h"
#include "cli/model_args.h"
#include "cli/progress_bar.h"
#include "config/env.h"
#include "format/model_file.h"
#include "quant/convert.h"
#include "quant/importance.h"
#include "quant/quant.h"

static const struct flag flags[] = {
    {.name = "type",
     .kind = FLAG_TEXT,
     .value = "TYPE",
     .help = "Number format of the matrices: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, "
             "IQ4_NL, IQ4_XS, F16, BF16 or F32."},
    {.name = "allow-requantize",
     .kind = FLAG_BOOL,
     .help = "Also convert tensors that are quantised already. The new loss comes on top of the "
             "one that they have."},
    {.name = "calibrate",
     .kind = FLAG_TEXT,
     .value = "TEXT",
     .help = "Run the model over this text first, and weigh the error of each column of a matrix "
             "by the mean square of what the matrix reads there. Needs the CPU and memory for the "
             "model; without --chunks the first 64 windows of the text are used."},
    {.name = "report",
     .kind = FLAG_BOOL,
     .help = "Compare the new model with the old one on the text of --file, as \"jitney compare\" "
             "does, and print the result. Both are in memory then."},
    {.name = "max-kl",
     .kind = FLAG_REAL,
     .value = "X",
     .min = 0,
     .max = 1000,
     .help = "Report, and keep nothing if the mean KL is more than X: exit code 1."},
    {.name = "json", .kind = FLAG_BOOL, .help = "Print one JSON object."},
    {0},
};

/* One run, from the arguments to the summary. */
struct quantize {
    const struct args *args;
    char in[MODEL_PATH_BYTES];
    const char *out;
    enum dtype type;
    struct model_file *f;
    struct convert *convert;
    struct file_out file;
    struct progress_bar bar;
    double seconds;
    struct calibration calibration; /* importance: NULL without --calibrate */
    size_t weighed;                 /* tensors that are quantised with importance */
    bool has_report;
    struct comparison report;
};

static enum exit_code read_args(struct quantize *q, struct err *err) {
    const char *type = args_text(q->args, "type");
    if (args_operands(q->args) < 1)
        return usage_set(err, "quantize: no output; usage: jitney quantize IN OUT --type TYPE");
    if (!type)
        return usage_set(err, "quantize: no type; give --type TYPE with one of %s",
                         quant_known_types());
    q->has_report = args_on(q->args, "report") || args_given(q->args, "max-kl");
    if (q->has_report && !args_text(q->args, "file"))
        return usage_set(err, "quantize: --report and --max-kl need a text; give -f FILE");
    if (!q->has_report && args_text(q->args, "file"))
        return usage_set(err, "quantize: -f is for --report and --max-kl; give one of them");
    q->out = args_operand(q->args, 0);
    if (!dtype_find(str_of(type), &q->type) || !quant_has_encoder(q->type))
        return usage_set(err, "quantize: unknown type \"%s\"; known: %s", type,
                         quant_known_types());
    return EXIT_FINE;
}

static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

static enum status open_both(struct quantize *q, struct err *err) {
    TRY(model_args_path(q->args, q->in, err));
    if (is_same_file(q->in, q->out))
        return err_set(err, ST_CREATE, "%s: is the model itself; give another name for the output",
                       q->out);
    TRY(model_file_open(q->in, &q->f, err));
    if (model_file_kind(q->f) != MODEL_GGUF)
        return err_set(err, ST_BAD, "%s: a folder, expected a GGUF file", q->in);
    const struct convert_options options = {
        .type = q->type, .allow_requantize = args_on(q->args, "allow-requantize")};
    TRY(convert_create(q->f, &options, &q->convert, err));
    TRY(file_out_open(q->out, false, &q->file, err));
    return file_out_reserve(&q->file, convert_bytes(q->convert), err);
}

/* Give every matrix that is quantised what was measured for it. */
static enum status calibrate(struct quantize *q, struct err *err) {
    q->calibration.text_path = args_text(q->args, "calibrate");
    if (!q->calibration.text_path) return ST_OK;
    TRY(calibrate_model(q->args, q->in, &q->calibration, err));
    for (size_t i = 0; i < convert_count(q->convert); i++) {
        struct convert_tensor *t = convert_at(q->convert, i);
        const struct tensor_info *from = t->from;
        if (t->to == from->type || !dtype_is_quantised(t->to)) continue;
        t->importance =
            importance_find(q->calibration.importance, from->name, from->dims[from->dim_count - 1]);
        q->weighed += t->importance != NULL;
    }
    return ST_OK;
}

static uint64_t width_of(const struct convert_tensor *t) {
    return t->from->dims[t->from->dim_count - 1];
}

/* Has an earlier tensor the same fallback? Then it is mentioned there. */
static bool is_repeated(const struct quantize *q, size_t at) {
    const struct convert_tensor *t = convert_at(q->convert, at);
    for (size_t i = 0; i < at; i++) {
        const struct convert_tensor *o = convert_at(q->convert, i);
        if (o->to == t->to && o->wanted == t->wanted && width_of(o) == width_of(t)) return true;
    }
    return false;
}

static size_t count_like(const struct quantize *q, const struct convert_tensor *t) {
    size_t count = 0;
    for (size_t i = 0; i < convert_count(q->convert); i++) {
        const struct convert_tensor *o = convert_at(q->convert, i);
        count += o->to == t->to && o->wanted == t->wanted && width_of(o) == width_of(t);
    }
    return count;
}

/* One line for each kind of fallback. */
static void note_fallbacks(const struct quantize *q) {
    for (size_t i = 0; i < convert_count(q->convert); i++) {
        const struct convert_tensor *t = convert_at(q->convert, i);
        if (t->to == t->wanted || is_repeated(q, i)) continue;
        size_t count = count_like(q, t);
        char line[256];
        snprintf(line, sizeof(line),
                 "jitney: %zu %s stored as %s instead of %s, because rows of %llu elements do not "
                 "divide into blocks of %u",
                 count, count == 1 ? "matrix is" : "matrices are", dtype_info(t->to)->name,
                 dtype_info(t->wanted)->name, (unsigned long long)width_of(t),
                 dtype_info(t->wanted)->block_elems);
        note_write(line);
    }
}

static void on_progress(void *ctx, uint64_t done, uint64_t total) {
    (void)total;
    progress_bar_update(ctx, done * sizeof(float));
}

struct counts {
    size_t converted, fallbacks;
    uint64_t elems, bytes_in, bytes_out;
};

static struct counts count_tensors(const struct quantize *q) {
    struct counts c = {0};
    for (size_t i = 0; i < convert_count(q->convert); i++) {
        const struct convert_tensor *t = convert_at(q->convert, i);
        uint64_t elems = 1;
        size_t bytes = 0;
        for (uint32_t d = 0; d < t->from->dim_count; d++) elems *= t->from->dims[d];
        dtype_bytes(t->to, elems, &bytes);
        c.converted += t->to != t->from->type;
        c.fallbacks += t->to != t->wanted;
        c.elems += elems;
        c.bytes_in += t->from->bytes;
        c.bytes_out += bytes;
    }
    return c;
}

static enum status write_model(struct quantize *q, struct err *err) {
    struct counts c = count_tensors(q);
    int64_t began_us = clock_now(&clock_real);
    const struct convert_run run = {.threads = (uint32_t)args_int(q->args, "threads"),
                                    .file = &q->file,
                                    .on_progress = on_progress,
                                    .progress_ctx = &q->bar};
    progress_bar_begin(&q->bar, "quantising", c.elems * sizeof(float), 0);
    enum status st = convert_write(q->convert, &run, err);
    progress_bar_end(&q->bar);
    q->seconds = (double)(clock_now(&clock_real) - began_us) / 1e6;
    return st;
}

/* The old model beside the new one, whose file has no name yet. */
static enum status compare_both(struct quantize *q, struct err *err) {
    struct comparison *c = &q->report;
    if (!q->has_report) return ST_OK;
    snprintf(c->a.path, sizeof(c->a.path), "%s", q->in);
    snprintf(c->a.shown, sizeof(c->a.shown), "%s", q->in);
    file_out_readable(&q->file, c->b.path);
    snprintf(c->b.shown, sizeof(c->b.shown), "%s", q->out);
    return compare_models(q->args, c, err);
}

/* EXIT_REJECTED: the model is worse than --max-kl allows. */
static enum exit_code publish(struct quantize *q, struct err *err) {
    double most = args_given(q->args, "max-kl") ? args_real(q->args, "max-kl") : HUGE_VAL;
    if (q->has_report && !(q->report.apart.kl_mean <= most)) {
        err_set(
            err, ST_OK,
            "%s: the mean KL is %.6g, more than --max-kl %g; nothing was kept. A type with more "
            "bits loses less",
            q->out, q->report.apart.kl_mean, most);
        return EXIT_REJECTED;
    }
    return exit_of(file_out_publish(&q->file, err));
}

static void put_json(const struct quantize *q, const struct counts *c, struct buf *out) {
    buf_put_text(out, "{\"path\":");
    buf_put_json_string(out, str_of(q->out));
    buf_printf(out, ",\"type\":\"%s\",\"tensors\":%zu,\"converted\":%zu,\"fallbacks\":%zu",
               dtype_info(q->type)->name, convert_count(q->convert), c->converted, c->fallbacks);
    buf_printf(out, ",\"bytes_in\":%llu,\"bytes_out\":%llu,\"file_bytes\":%llu",
               (unsigned long long)c->bytes_in, (unsigned long long)c->bytes_out,
               (unsigned long long)q->file.bytes);
    buf_put_text(out, ",\"bits_per_weight\":");
    put_json_number(out, 8.0 * (double)c->bytes_out / (double)c->elems);
    buf_put_text(out, ",\"seconds\":");
    put_json_number(out, q->seconds);
    if (q->calibration.importance)
        buf_printf(out, ",\"calibration\":{\"tokens\":%u,\"matrices\":%zu}",
                   q->calibration.windows * q->calibration.window_tokens, q->weighed);
    if (q->has_report) buf_put_text(out, ",\"report\":{");
    if (q->has_report) comparison_put_json(&q->report, out);
    buf_put_text(out, q->has_report ? "}}\n" : "}\n");
}

static void put_text(const struct quantize *q, const struct counts *c, struct buf *out) {
    char before[SIZE_TEXT_BYTES], after[SIZE_TEXT_BYTES], rate[SIZE_TEXT_BYTES];
    double per_s = q->seconds > 0 ? 4.0 * (double)c->elems / q->seconds : 0;
    buf_printf(out, "%s: %s, was %s; %.2f bits a weight, was %.2f; %zu of %zu tensors converted\n",
               q->out, size_text(c->bytes_out, after), size_text(c->bytes_in, before),
               8.0 * (double)c->bytes_out / (double)c->elems,
               8.0 * (double)c->bytes_in / (double)c->elems, c->converted,
               convert_count(q->convert));
    buf_printf(out, "%.1f s, %s of float32 a second\n", q->seconds,
               size_text((uint64_t)per_s, rate));
    if (q->calibration.importance)
        buf_printf(out, "calibrated with %u tokens: %zu matrices\n",
                   q->calibration.windows * q->calibration.window_tokens, q->weighed);
    if (q->has_report) comparison_put_table(&q->report, out);
}

static enum status print_summary(const struct quantize *q, struct err *err) {
    struct counts c = count_tensors(q);
    struct buf out;
    buf_init(&out, 1 << 16);
    if (args_on(q->args, "json"))
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
    struct quantize q = {.args = args, .file = {.fd = -1}};
    enum exit_code code = read_args(&q, err);
    if (code != EXIT_FINE) return code;
    signal(SIGXFSZ, SIG_IGN); /* a file over the system's size limit is an error of the write */
    env_read(&env);
    progress_bar_init(&q.bar, &env, PROGRESS_BAR_LINES);
    enum status st = open_both(&q, err);
    if (st == ST_OK) note_fallbacks(&q);
    if (st == ST_OK) st = calibrate(&q, err);
    if (st == ST_OK) st = write_model(&q, err);
    if (st == ST_OK) st = compare_both(&q, err);
    code = st == ST_OK ? publish(&q, err) : exit_of(st);
    if (code == EXIT_FINE) code = exit_of(print_summary(&q, err));
    file_out_close(&q.file);
    convert_destroy(q.convert);
    importance_destroy(q.calibration.importance);
    model_file_close(q.f);
    return code;
}

extern const struct command cmd_quantize;
const struct command cmd_quantize = {
    .name = "quantize",
    .summary = "Write a model with fewer bits",
    .operands = "OUT --type TYPE",
    .about =
        "Writes the model as the GGUF file OUT, whose matrices have another number format. Norms "
        "and other vectors stay as they are. The output matrix takes Q6_K or Q8_0, and a matrix "
        "whose rows do not divide into the blocks of the type takes a related type, as in "
        "llama.cpp; the second is told on standard error. OUT must not exist; it appears when it "
        "is whole, so a run that is stopped leaves nothing. Memory does not grow with the model, "
        "unless a report is wanted.",
    .groups = {flags, flags_compare, flags_chunk, flags_engine},
    .takes_model = true,
    .operands_max = 1,
    .run = run,
};
