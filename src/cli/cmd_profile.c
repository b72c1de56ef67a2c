/* cli/cmd_profile.c - `jitney profile`: the time of a step by op, and the limits of the machine. */
#include "base/buf.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/model_args.h"
#include "cli/profile_report.h"
#include "engine/profile.h"

enum {
    KINDS = 3,
    REPORT_BYTES_MAX = 1 << 20,
    BATCH_MAX = 1024,
    ROWS_MAX = 4096,
    CTX_MAX = 1 << 20
};
static const int64_t BUDGET_US = 2000000; /* for the steps of one kind */

static const struct flag flags[] = {
    {.name = "ctx-fill",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "512",
     .min = 0,
     .max = CTX_MAX,
     .help = "Tokens in the context of each decoding sequence; less than the model's context."},
    {.name = "batch",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "32",
     .min = 0,
     .max = BATCH_MAX,
     .help = "Sequences in the batch that decodes; 0: skip this step."},
    {.name = "prompt",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "256",
     .min = 0,
     .max = ROWS_MAX,
     .help = "Tokens of a prompt in one step; 0: skip this step."},
    {.name = "steps",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "32",
     .min = PROFILE_STEPS_MIN,
     .max = 10000,
     .help = "Steps of each kind; the fastest quarter counts. If they take more than two seconds, "
             "fewer are run, but at least four."},
    {.name = "json", .kind = FLAG_BOOL, .help = "Print one JSON object."},
    {0},
};

/* The steps to run, from the flags. */
struct wanted {
    struct profile_shape shapes[KINDS];
    const char *kinds[KINDS];
    uint32_t count;
    uint32_t ctx_tokens; /* of the longest step */
};

static void want(struct wanted *w, const char *kind, struct profile_shape shape) {
    if (shape.seqs == 0 || shape.rows == 0) return;
    w->kinds[w->count] = kind;
    w->shapes[w->count++] = shape;
    uint32_t tokens = shape.ctx + shape.rows;
    if (tokens > w->ctx_tokens) w->ctx_tokens = tokens;
}

static struct wanted read_flags(const struct args *args) {
    struct wanted w = {.count = 0};
    uint32_t ctx = (uint32_t)args_int(args, "ctx-fill");
    want(&w, "decode", (struct profile_shape){1, 1, ctx});
    want(&w, "batch", (struct profile_shape){(uint32_t)args_int(args, "batch"), 1, ctx});
    want(&w, "prompt", (struct profile_shape){1, (uint32_t)args_int(args, "prompt"), 0});
    return w;
}

static enum status write_report(const struct profile_report *r, bool json, struct err *err) {
    struct buf out;
    buf_init(&out, REPORT_BYTES_MAX);
    if (json)
        profile_put_json(r, &out);
    else
        profile_put_tables(r, &out);
    enum status st = buf_status(&out);
    if (st == ST_OK)
        st = out_write(buf_str(&out), err);
    else
        err_set(err, st, "out of memory for the report");
    buf_deinit(&out);
    return st;
}

/* The step with many sequences needs the most memory. */
static enum status run_step(struct loaded_model *loaded, const struct profile_shape *shape,
                            const struct profile_options *options, struct profile *out,
                            struct err *err) {
    struct err why = {{0}};
    enum status st = profile_step(loaded, shape, options, out, &why);
    if (st == ST_NOMEM)
        return err_set(err, st, "%s; a smaller --batch or --ctx-fill needs less memory", why.text);
    return st == ST_OK ? ST_OK : err_set(err, st, "%s", why.text);
}

static enum exit_code check_fill(const struct args *args, const struct loaded_model *loaded,
                                 struct err *err) {
    uint32_t ctx_train = loaded->model->hp.ctx_train;
    int64_t fill = args_int(args, "ctx-fill");
    if (model_is_encoder(loaded->model) || !args_given(args, "ctx-fill") || fill < ctx_train)
        return EXIT_FINE;
    return usage_set(err,
                     "profile: --ctx-fill is %lld; it must be less than the model's context, "
                     "%u tokens",
                     (long long)fill, ctx_train);
}

static enum status measure(const struct args *args, const struct wanted *w,
                           struct loaded_model *loaded, struct profile *steps, struct err *err) {
    struct peaks peaks;
    struct device *dev = &loaded->device;
    struct profile_options options = {.kv_type = model_args_kv_type(args),
                                      .steps_max = (uint32_t)args_int(args, "steps"),
                                      .budget_us = BUDGET_US};
    if (model_is_encoder(loaded->model))
        return err_set(err, ST_BAD,
                       "%s is an embedding model; only models that write text can be profiled",
                       args_model(args));
    if (!dev->profiler)
        return err_set(err, ST_BAD, "device %s does not support profiling; use --device cpu",
                       dev->name);
    TRY(dev->profiler->peaks(dev->self, &peaks, err));
    for (uint32_t i = 0; i < w->count; i++)
        TRY(run_step(loaded, &w->shapes[i], &options, &steps[i], err));
    struct profile_report report = {.model = args_model(args),
                                    .device = loaded->device.name,
                                    .kv_type = args_text(args, "kv-type"),
                                    .threads = dev->threads,
                                    .peaks = &peaks,
                                    .steps = steps,
                                    .kinds = w->kinds,
                                    .step_count = w->count};
    return write_report(&report, args_on(args, "json"), err);
}

static enum exit_code run(const struct args *args, struct err *err) {
    struct wanted w = read_flags(args);
    struct loaded_model loaded = {.file = NULL};
    struct profile *steps = mem_zalloc_array(KINDS, sizeof(*steps));
    if (!steps) return exit_of(err_set(err, ST_NOMEM, "out of memory"));
    enum exit_code code = exit_of(model_args_load(args, w.ctx_tokens, true, &loaded, err));
    if (code == EXIT_FINE) code = check_fill(args, &loaded, err);
    if (code == EXIT_FINE) code = exit_of(measure(args, &w, &loaded, steps, err));
    loaded_model_close(&loaded);
    mem_free(steps);
    return code;
}

extern const struct command cmd_profile;
const struct command cmd_profile = {
    .name = "profile",
    .summary = "Measure the time of a step by op, and compare it with the machine's limits",
    .operands = "",
    .about =
        "Measures how fast this machine reads memory and multiplies, then runs three kinds of "
        "step: "
        "one sequence that decodes, a batch that decodes, and a piece of a prompt. For each step "
        "it "
        "prints, for every kind of op, its time, the time that threads wait at barriers, and its "
        "share of the ceiling that limits it: memory bandwidth for weights and keys, int8 or f32 "
        "throughput for arithmetic, cache bandwidth for the rest. The time of a step beyond the "
        "sum of its parts is shown as interrupted; it is near 0 on an idle machine. A share above "
        "100 % means that the weights of a small model fit in a cache, or that the machine was "
        "busy while the ceilings were measured.\n\n"
        "--json prints model, device, threads, kv_type, ceilings {memory_gbs, cache_gbs, "
        "int8_gops, "
        "f32_gops, ...} and steps [{kind, sequences, rows, context, step_us, tokens_per_second, "
        "ceiling_tokens_per_second, parts [{op, calls, us, wait_us, bound, least_us, share, "
        "...}], ...}]: step_us is the sum of the parts, around_us, sampling_us and interrupted_us.",
    .groups = {flags, flags_engine},
    .takes_model = true,
    .run = run,
};
