/* cli/cmd_batch.c - `jitney batch`: a file of requests without a server. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/file_out.h"
#include "base/pool.h"
#include "cli/batch_input.h"
#include "cli/batch_partial.h"
#include "cli/batch_run.h"
#include "cli/cli.h"
#include "cli/model_args.h"
#include "cli/serve_check.h"
#include "cli/setting_args.h"
#include "config/env.h"
#include "sample/random_seed.h"
#include "sample/ranges.h"

enum { PROBLEMS_SHOWN = 20, SUMMARY_BYTES_MAX = 1 << 16 };

static const struct flag flags[] = {
    {.name = "output",
     .letter = 'o',
     .kind = FLAG_TEXT,
     .value = "OUT",
     .help = "The file for the results, which is written when all lines are done; until then they "
             "are in OUT.partial. \"-\": standard output; such a run cannot be continued."},
    {.name = "seed",
     .kind = FLAG_INT,
     .value = "S",
     .min = (double)SAMPLE_SEED(SAMPLE_LEAST_OF),
     .max = (double)SAMPLE_SEED(SAMPLE_MOST_OF),
     .help = "Lines without a seed get one that is made of S and the line's number. If not given, "
             "S is random and is stored in OUT.partial."},
    {.name = "restart",
     .kind = FLAG_BOOL,
     .help = "Drop the results in OUT.partial and begin again."},
    {.name = "json",
     .kind = FLAG_BOOL,
     .help = "Print a summary as one JSON object to standard output."},
    {.name = "threads",
     .letter = 't',
     .kind = FLAG_INT,
     .value = "N",
     .min = 1,
     .max = POOL_THREADS_MAX,
     .help = "Number of compute threads; the same as --set threads=N. The result is the same bits "
             "with any number."},
    {0},
};

struct job {
    const struct args *args;
    const char *in_path, *out_path;
    char target[FILE_OUT_PATH_BYTES]; /* out_path, if that was a symbolic link to a file */
    struct settings settings;
    struct batch_input input;
    struct batch_origin origin;
    struct batch_partial *partial;
    struct batch_summary summary;
    uint32_t problem_count;
};

/* ---- arguments ---- */

/* Neither standard output nor a device can be replaced by a finished file. */
static bool is_stream(const struct job *j) {
    return strcmp(j->out_path, "-") == 0 || file_is_stream(j->out_path);
}

static enum exit_code read_paths(struct job *j, struct err *err) {
    const struct args *a = j->args;
    if (args_operands(a) == 0)
        return usage_set(err, "batch: no input; give a file with a request on each line, or -");
    j->in_path = args_operand(a, 0);
    j->out_path = args_text(a, "output");
    if (!j->out_path || !j->out_path[0])
        return usage_set(err, "batch: no output; give -o OUT, or -o - for standard output");
    if (file_is_dir(j->out_path))
        return usage_set(err, "batch: -o %s is a folder; give the name of a file", j->out_path);
    if (strcmp(j->out_path, "-") == 0 && args_on(a, "json"))
        return usage_set(err, "batch: --json and -o - both want standard output; give one of them");
    if (is_stream(j)) return EXIT_FINE;
    if (!file_follow(j->out_path, j->target, sizeof(j->target)))
        return usage_set(err,
                         "batch: -o %s: the name is too long, or its symbolic links form a loop",
                         j->out_path);
    j->out_path = j->target; /* the link stays */
    return EXIT_FINE;
}

/* Only what the engine needs is set; a log line is written for warnings and errors alone. */
static enum status fill_settings(struct job *j, struct err *err) {
    struct settings *s = &j->settings;
    char threads[32];
    TRY(settings_set(s, STR("model"), str_of(args_model(j->args)), FROM_FLAG, err));
    TRY(settings_set(s, STR("log-level"), STR("warn"), FROM_FLAG, err));
    TRY(setting_args_read(j->args, flags_settings_engine, s, err));
    if (!args_given(j->args, "threads")) return ST_OK;
    snprintf(threads, sizeof(threads), "threads=%lld", (long long)args_int(j->args, "threads"));
    return settings_set(s, STR("set"), str_of(threads), FROM_FLAG, err);
}

static enum exit_code read_settings(struct job *j, struct err *err) {
    enum status st = fill_settings(j, err);
    if (st != ST_BAD) return st == ST_OK ? serve_check_engine(&j->settings, err) : exit_of(st);
    (void)err_prefix(err, st, "batch");
    return EXIT_USAGE;
}

/* ---- the work ---- */

static void note_problem(void *ctx, const char *sentence) {
    struct job *j = ctx;
    if (j->problem_count++ < PROBLEMS_SHOWN) note_write(sentence);
}

static enum status open_partial(struct job *j, struct err *err) {
    char path[MODEL_PATH_BYTES];
    struct env_settings env;
    env_read(&env);
    bool has_seed = args_given(j->args, "seed");
    j->origin = (struct batch_origin){.input_bytes = j->input.text.len,
                                      .line_count = j->input.count,
                                      .seed = has_seed ? (uint64_t)args_int(j->args, "seed")
                                                       : random_seed(),
                                      .created_s = clock_wall_s()};
    memcpy(j->origin.input_sha256, j->input.sha256, sizeof(j->origin.input_sha256));
    int len = snprintf(path, sizeof(path), "%s.partial", j->out_path);
    if (len >= (int)sizeof(path)) return err_set(err, ST_CREATE, "%s: name too long", j->out_path);
    const struct batch_partial_options options = {.path = is_stream(j) ? NULL : path,
                                                  .temp_dir = env.tmp_dir ? env.tmp_dir : "/tmp",
                                                  .is_seed_given = has_seed,
                                                  .restarts = args_on(j->args, "restart")};
    return batch_partial_open(&options, &j->origin, &j->partial, err);
}

static enum status write_line(void *ctx, struct str line, struct err *err) {
    (void)ctx;
    return out_write(line, err);
}

static enum status write_device(void *ctx, struct str line, struct err *err) {
    if (fwrite(line.ptr, 1, line.len, ctx) == line.len) return ST_OK;
    return err_set(err, ST_IO, "-o: cannot write: %s", strerror(errno));
}

static enum status write_results(const struct job *j, struct err *err) {
    if (!is_stream(j)) return batch_partial_finish(j->partial, j->out_path, err);
    if (strcmp(j->out_path, "-") == 0) return batch_partial_copy(j->partial, write_line, NULL, err);
    int fd = file_open_stream(j->out_path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!file) {
        enum status why =
            err_set(err, ST_CREATE, "%s: cannot open: %s", j->out_path, strerror(errno));
        if (fd >= 0) close(fd);
        return why;
    }
    enum status st = batch_partial_copy(j->partial, write_device, file, err);
    if (fclose(file) != 0 && st == ST_OK)
        st = err_set(err, ST_IO, "%s: cannot write: %s", j->out_path, strerror(errno));
    return st;
}

/* What is done, and how to go on, behind the reason why the run ended. */
static enum status add_rest(const struct job *j, enum status st, struct err *err) {
    struct err why = *err;
    const char *next =
        is_stream(j) ? "nothing was written" : "the same command continues with the others";
    return err_set(err, st, "%s; %u of %u lines are done; %s", why.text, j->summary.totals.done,
                   j->summary.line_count, next);
}

/* The same file under any name. */
static enum status check_paths(const struct job *j, struct err *err) {
    struct stat in, out;
    if (strcmp(j->in_path, "-") == 0 || stat(j->in_path, &in) != 0) return ST_OK;
    if (stat(j->out_path, &out) != 0 || !S_ISREG(in.st_mode)) return ST_OK;
    if (in.st_dev != out.st_dev || in.st_ino != out.st_ino) return ST_OK;
    return err_set(err, ST_CREATE,
                   "batch: %s is the input, and would be overwritten; give -o another "
                   "name",
                   j->out_path);
}

static enum status run_lines(struct job *j, struct err *err) {
    TRY(check_paths(j, err));
    TRY(batch_input_open(&j->input, j->in_path, note_problem, j, err));
    TRY(open_partial(j, err));
    const struct batch_run_options options = {
        .settings = &j->settings, .input = &j->input, .partial = j->partial, .origin = &j->origin};
    enum status st = batch_run(&options, &j->summary, err);
    if (st == ST_OK) st = write_results(j, err);
    return st == ST_OK || st == ST_BAD || !err->text[0] ? st : add_rest(j, st, err);
}

/* ---- the summary ---- */

static enum status put_summary(const struct job *j, struct err *err) {
    const struct batch_summary *s = &j->summary;
    struct buf out;
    buf_init(&out, SUMMARY_BYTES_MAX);
    buf_printf(&out, "{\"lines\":%u,\"completed\":%u,\"failed\":%u,\"resumed_lines\":%u",
               s->line_count, s->totals.done - s->totals.failed, s->totals.failed,
               s->resumed_lines);
    buf_printf(&out, ",\"prompt_tokens\":%llu,\"cached_tokens\":%llu,\"completion_tokens\":%llu",
               (unsigned long long)s->totals.prompt_tokens,
               (unsigned long long)s->totals.cached_tokens,
               (unsigned long long)s->totals.answer_tokens);
    buf_printf(&out, ",\"seconds\":%.3f,\"tokens_per_s\":%.1f}\n", s->seconds, s->tokens_per_s);
    enum status st = out_write(buf_str(&out), err);
    buf_deinit(&out);
    return st;
}

static void note_summary(const struct job *j) {
    const struct batch_summary *s = &j->summary;
    char text[256];
    snprintf(text, sizeof(text), "%u lines in %.1f s, %.0f tokens/s; %u failed", s->line_count,
             s->seconds, s->tokens_per_s, s->totals.failed);
    if (isatty(STDERR_FILENO)) note_write(text);
}

static enum exit_code report(const struct job *j, struct err *err) {
    const struct batch_summary *s = &j->summary;
    note_summary(j);
    enum status st = args_on(j->args, "json") ? put_summary(j, err) : ST_OK;
    if (st != ST_OK) return exit_of(st);
    if (s->totals.failed == 0) return EXIT_FINE;
    (void)err_set(err, ST_BAD,
                  "%u of %u lines failed; in the output their status_code is 400 or more",
                  s->totals.failed, s->line_count);
    return EXIT_REJECTED;
}

static enum exit_code run(const struct args *args, struct err *err) {
    struct job j = {.args = args};
    enum exit_code code = read_paths(&j, err);
    if (code != EXIT_FINE) return code;
    if (settings_init(&j.settings) != ST_OK)
        return exit_of(err_set(err, ST_NOMEM, "out of memory"));
    code = read_settings(&j, err);
    if (code == EXIT_FINE) {
        enum status st = run_lines(&j, err);
        code = st == ST_OK ? report(&j, err) : st == ST_DEVICE ? EXIT_BUG : exit_of(st);
    }
    batch_partial_close(j.partial);
    batch_input_close(&j.input);
    settings_deinit(&j.settings);
    return code;
}

extern const struct command cmd_batch;
const struct command cmd_batch = {
    .name = "batch",
    .summary = "Answer a file of requests without a server",
    .operands = "IN -o OUT",
    .about =
        "Each line of IN is a request as in a file for POST /v1/batches: {\"custom_id\", "
        "\"method\": "
        "\"POST\", \"url\", \"body\"}. The url is /v1/chat/completions, /v1/completions, "
        "/v1/embeddings or /v1/responses; lines may have different ones. MODEL answers every line, "
        "whatever \"model\" its body names. \"-\" reads standard input. All lines are checked "
        "before the first is run; if one is invalid, nothing is computed.\n\n"
        "OUT gets a line for each line of IN, in the same order: {\"id\", \"custom_id\", "
        "\"response\": {\"status_code\", \"request_id\", \"body\"}, \"error\"}. A line that failed "
        "has a status_code of 400 or more. An answer is the same bits as that of \"jitney "
        "serve\".\n\n"
        "Results are kept in OUT.partial until all lines are done. After Ctrl-C, a crash, a power "
        "loss or a full disk the same command continues: lines that have a result are not run "
        "again, and the answers are the same as without the interruption (docs/offline.md).\n\n"
        "Exit code: 0 if all lines succeeded, 1 if some failed, 65 if lines of IN are invalid or "
        "OUT.partial belongs to other work, 73 or 74 if OUT cannot be created or written, 130 "
        "after Ctrl-C; "
        "docs/offline.md has all of them.",
    .groups = {flags, flags_settings_engine},
    .takes_model = true,
    .model_by_flag = true,
    .operands_max = 1,
    .run = run,
};
