/* cli/cmd_replay.c - `jitney replay`: a list of requests through the real engine. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/model_args.h"
#include "cli/progress_bar.h"
#include "cli/recording.h"
#include "cli/replay_output.h"
#include "config/env.h"
#include "engine/record.h"
#include "engine/record_json.h"
#include "engine/service.h"
#include "kernels/devices.h"
#include "sim/recorded.h"
#include "sim/replay.h"
#include "sim/replay_list.h"
#include "sim/request_list.h"
#include "text/tokenizer.h"

static const size_t LIST_BYTES_MAX = (size_t)1 << 31, OUT_BYTES_MAX = (size_t)1 << 33;

enum { RECORD_BYTES = 64 << 20 }; /* of step records, for --trace and --record */

static const struct flag flags[] = {
    {.name = "requests",
     .kind = FLAG_TEXT,
     .value = "FILE",
     .help = "The requests, one JSON object on each line, or a recording, as JSON or as a page "
             "(docs/page.md); \"-\" reads standard input."},
    {.name = "policy",
     .kind = FLAG_TEXT,
     .value = "NAME",
     .fallback = "chunked",
     .help = "The scheduling policy; \"jitney knobs\" lists them."},
    {.name = "set",
     .kind = FLAG_TEXT,
     .value = "KNOB=VALUE",
     .repeats = true,
     .help = "Set a knob; \"jitney knobs\" lists them."},
    {.name = "speculate",
     .kind = FLAG_TEXT,
     .value = "NAME",
     .fallback = "off",
     .help = "Speculate: guess the next tokens, and compute several of them in one step. Answers "
             "stay the same. ngram, suffix, model:PATH or off (docs/speculation.md)."},
    {.name = "device",
     .kind = FLAG_TEXT,
     .value = "auto|cpu|cuda:N",
     .fallback = "auto",
     .help = "Device that runs the model. auto: the best one of this machine.",
     .check = device_check_name},
    {.name = "weights",
     .kind = FLAG_WORD,
     .value = "auto|fp8",
     .fallback = "auto",
     .help = "Number format of the weights on the device; auto: as the model file has them. fp8: "
             "those of 16 bits become e4m3, on NVIDIA H100 and H200 alone."},
    {.name = "out",
     .kind = FLAG_TEXT,
     .value = "FILE",
     .help = "Write the answers to FILE, one JSON object on each line; \"-\" is standard output."},
    {.name = "json", .kind = FLAG_BOOL, .help = "Print a summary as one JSON object."},
    {.name = "trace",
     .kind = FLAG_TEXT,
     .value = "FILE",
     .help = "Write a record of the last 4096 steps, in the format of chrome://tracing."},
    {.name = "record",
     .kind = FLAG_TEXT,
     .value = "FILE",
     .help = "Write the last 10,000 steps to FILE: a page in one file, which a browser shows, or "
             "JSON if FILE ends with .json (docs/page.md)."},
    {.name = "sim",
     .kind = FLAG_TEXT,
     .value = "PROFILE",
     .help = "Simulate the model and the clock with a cost profile: h200-8b, this-cpu, or a JSON "
             "file with fixed_us, per_token_us, per_attended_us and per_move_us."},
    {0},
};

struct job {
    const struct args *args;
    const struct sched_policy *policy;
    struct knobs knobs;
    struct speculate_option speculate;
    struct buf text; /* of the list */
    struct request_list list;
    struct replay replay;
    struct service service;  /* the real engine */
    struct text_model words; /* a simulated one's tokenizer, if a model was named */
    struct sim_clock clock;
    struct engine *sim;
};

/* ---- settings ---- */

static enum exit_code read_speculate(struct job *j, struct err *err) {
    struct str text = str_of(args_text(j->args, "speculate"));
    struct err why = {0};
    if (speculate_option_parse(text, &j->speculate, &why) != ST_OK)
        return usage_set(err, "replay: %s", why.text);
    if (str_is(text, "predicted"))
        return usage_set(err, "replay: --speculate predicted guesses from the prediction of a "
                              "request to a server; choose ngram, suffix or model:PATH");
    if (j->speculate.kind == SPECULATE_MODEL && args_text(j->args, "sim"))
        return usage_set(err, "replay: --sim computes no model, so no draft model either; choose "
                              "ngram or suffix");
    return EXIT_FINE;
}

static enum exit_code read_settings(struct job *j, struct err *err) {
    const struct args *a = j->args;
    if (!args_text(a, "requests"))
        return usage_set(err, "replay: no requests; give --requests FILE");
    if (!args_model(a) && !args_text(a, "sim"))
        return usage_set(err, "replay: no model; give -m MODEL or --sim PROFILE");
    j->policy = sched_policy_find(args_text(a, "policy"));
    if (!j->policy)
        return usage_set(err, "replay: unknown policy \"%s\"; \"jitney knobs\" lists them",
                         args_text(a, "policy"));
    j->knobs = knobs_default();
    for (uint32_t i = 0; i < args_count(a, "set"); i++) {
        struct err why = {0};
        if (knobs_set_pair(&j->knobs, str_of(args_text_at(a, "set", i)), &why) != ST_OK)
            return usage_set(err, "replay: %s", why.text);
    }
    return read_speculate(j, err);
}

/* Checked before the run, which may take hours. */
static enum status check_folder(const char *path, struct err *err) {
    char dir[MODEL_PATH_BYTES];
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (!slash || slash == path) return ST_OK;
    snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
    return file_is_dir(dir) ? ST_OK
                            : err_set(err, ST_CREATE, "%s: no such folder; create it first", dir);
}

static enum status read_input(struct job *j, struct err *err) {
    TRY(check_folder(args_text(j->args, "out"), err));
    TRY(check_folder(args_text(j->args, "trace"), err));
    TRY(check_folder(args_text(j->args, "record"), err));
    return file_read(args_text(j->args, "requests"), &j->text, err);
}

static bool knob_given(const struct args *a, const char *name) {
    size_t len = strlen(name);
    for (uint32_t i = 0; i < args_count(a, "set"); i++) {
        const char *pair = args_text_at(a, "set", i);
        if (strncmp(pair, name, len) == 0 && pair[len] == '=') return true;
    }
    return false;
}

static void note_line(void *ctx, uint32_t line, bool is_bad, const char *reason) {
    const struct job *j = ctx;
    fprintf(stderr, "jitney: %s:%u: %s%s\n", args_text(j->args, "requests"), line, reason,
            is_bad ? "; the line is skipped" : "");
}

static enum status read_requests(struct job *j, const struct prompt_source *source,
                                 struct err *err) {
    struct str json;
    if (!recorded_find(buf_str(&j->text), &json))
        return request_list_read(&j->list, buf_str(&j->text), source, note_line, j, err);
    enum status st = recorded_read_file(json, source, &j->list, err);
    return st == ST_OK ? st : err_prefix(err, st, args_text(j->args, "requests"));
}

/* Unless the user has set queue_max, all requests of the list may wait. */
static enum status read_list(struct job *j, const struct prompt_source *source, struct err *err) {
    TRY(read_requests(j, source, err));
    if (!knob_given(j->args, "queue_max")) replay_widen_queue(&j->list, &j->knobs);
    return replay_init(&j->replay, &j->list, err);
}

/* ---- the engine that is real ---- */

static enum status open_service(struct job *j, const char *path, const struct env_settings *env,
                                struct err *err) {
    struct progress_bar bar;
    progress_bar_init(&bar, env, PROGRESS_BAR_SILENT);
    const struct service_options options = {.policy = j->policy,
                                            .knobs = j->knobs,
                                            .ctx_tokens = model_args_ctx(j->args),
                                            .device = args_text(j->args, "device"),
                                            .fp8_weights =
                                                strcmp(args_text(j->args, "weights"), "fp8") == 0,
                                            .spill_dir = env->tmp_dir,
                                            .speculate = j->speculate,
                                            .record_bytes = RECORD_BYTES,
                                            .on_progress = progress_bar_on_load,
                                            .progress_ctx = &bar};
    progress_bar_begin_share(&bar, "loading");
    enum status st = service_open(&j->service, path, &options, err);
    progress_bar_end(&bar);
    return st;
}

/* The list is read first, with a tokenizer of its own: how long it is decides how many may
 * wait, and an engine is made for a number. */
static enum status run_real(struct job *j, struct engine_stats *stats, struct err *err) {
    char path[MODEL_PATH_BYTES];
    struct env_settings env;
    env_read(&env);
    TRY(model_args_path(j->args, path, err));
    TRY(text_model_open(j->args, &j->words, err));
    struct prompt_source source = {j->words.tokenizer, tokenizer_vocab(j->words.tokenizer)};
    TRY(read_list(j, &source, err));
    TRY(open_service(j, path, &env, err));
    TRY(engine_start(j->service.engine, err));
    TRY(replay_run(&j->replay, j->service.engine, err));
    engine_stop(j->service.engine); /* its numbers are those of its last step now */
    *stats = engine_stats(j->service.engine);
    return ST_OK;
}

/* ---- the engine that is simulated ---- */

static enum status open_sim(struct job *j, uint32_t vocab, struct err *err) {
    struct replay_sim_options o = {.policy = j->policy,
                                   .knobs = j->knobs,
                                   .ctx_tokens = model_args_ctx(j->args),
                                   .vocab = vocab,
                                   .speculate = j->speculate,
                                   .record_bytes = RECORD_BYTES};
    TRY(sim_profile_load(args_text(j->args, "sim"), &o.profile, err));
    return replay_open_sim(&o, &j->clock, &j->sim, err);
}

static enum status run_sim(struct job *j, struct engine_stats *stats, struct err *err) {
    struct prompt_source source = {.vocab = SIM_VOCAB};
    if (args_model(j->args)) {
        TRY(text_model_open(j->args, &j->words, err));
        source = (struct prompt_source){j->words.tokenizer, tokenizer_vocab(j->words.tokenizer)};
    }
    TRY(read_list(j, &source, err));
    TRY(open_sim(j, source.vocab, err));
    TRY(replay_run_sim(&j->replay, j->sim, &j->clock, err));
    *stats = engine_stats(j->sim);
    return ST_OK;
}

/* ---- output ---- */

static enum status write_to(const char *path, struct buf *bytes, struct err *err) {
    enum status st = buf_status(bytes);
    if (st != ST_OK) return err_set(err, st, "out of memory for the answers");
    if (strcmp(path, "-") == 0) return out_write(buf_str(bytes), err);
    return file_write_atomic(path, buf_str(bytes), err);
}

static enum status write_results(const struct job *j, const char *path, struct err *err) {
    struct buf out;
    buf_init(&out, OUT_BYTES_MAX);
    replay_put_results(&j->replay, &out);
    enum status st = write_to(path, &out, err);
    buf_deinit(&out);
    return st;
}

static enum status write_records(const struct job *j, const char *path, struct err *err) {
    struct buf out;
    buf_init(&out, OUT_BYTES_MAX);
    record_put_json(engine_records(j->sim ? j->sim : j->service.engine), &out);
    enum status st = write_to(path, &out, err);
    buf_deinit(&out);
    return st;
}

/* Times of a simulated clock begin at 0, so a recording shows them as times of day from 0:00. */
static enum status write_recording(const struct job *j, const char *path, struct err *err) {
    struct engine *e = j->sim ? j->sim : j->service.engine;
    const char *model = args_model(j->args);
    const struct kv_pool_stats pool = engine_stats(e).sched.kv.groups[0];
    const struct record_hello hello = {
        .model = str_of(model ? model : args_text(j->args, "sim")),
        .epoch_ms = j->sim ? 0 : (clock_wall_us() - clock_now(&clock_real)) / 1000,
        .seats = j->knobs.max_seqs,
        .blocks = pool.free_count + pool.held_count + pool.cached_count,
        .block_tokens = j->knobs.block_size};
    struct buf out;
    buf_init(&out, OUT_BYTES_MAX);
    enum status st = recording_put(e, &hello, !str_ends(str_of(path), STR(".json")), &out);
    if (st == ST_OK) st = write_to(path, &out, err);
    if (st == ST_NOMEM) err_set(err, st, "%s: no memory for the recording", path);
    buf_deinit(&out);
    return st;
}

static enum status write_summary(const struct job *j, const struct engine_stats *stats,
                                 struct err *err) {
    struct replay_summary summary = replay_summarize(&j->replay, stats);
    struct buf out;
    buf_init(&out, OUT_BYTES_MAX);
    if (args_on(j->args, "json"))
        replay_put_summary(&summary, &out);
    else
        replay_put_table(&summary, &out);
    enum status st = write_to("-", &out, err);
    buf_deinit(&out);
    return st;
}

/* Answers go to --out; without it to standard output, unless the summary goes there. */
static enum status write_all(const struct job *j, const struct engine_stats *stats,
                             struct err *err) {
    const char *path = args_text(j->args, "out"), *records = args_text(j->args, "trace");
    const char *recording = args_text(j->args, "record");
    bool json = args_on(j->args, "json");
    if (path || !json) TRY(write_results(j, path ? path : "-", err));
    if (records) TRY(write_records(j, records, err));
    if (recording) TRY(write_recording(j, recording, err));
    bool is_taken = !path || strcmp(path, "-") == 0;
    if (json || !is_taken) TRY(write_summary(j, stats, err));
    if (j->list.bad_lines == 0) return ST_OK;
    return err_set(err, ST_BAD, "%s: %u line%s could not be used", args_text(j->args, "requests"),
                   j->list.bad_lines, j->list.bad_lines == 1 ? "" : "s");
}

static void drop(struct job *j) {
    engine_destroy(j->sim);
    service_close(&j->service);
    replay_deinit(&j->replay);
    request_list_deinit(&j->list);
    text_model_close(&j->words);
    buf_deinit(&j->text);
}

static enum exit_code run(const struct args *args, struct err *err) {
    struct job j = {.args = args};
    struct engine_stats stats = {0};
    enum exit_code code = read_settings(&j, err);
    if (code != EXIT_FINE) return code;
    buf_init(&j.text, LIST_BYTES_MAX);
    enum status st = read_input(&j, err);
    if (st == ST_OK)
        st = args_text(args, "sim") ? run_sim(&j, &stats, err) : run_real(&j, &stats, err);
    if (st == ST_OK) st = write_all(&j, &stats, err);
    drop(&j);
    return exit_of(st);
}

extern const struct command cmd_replay;
const struct command cmd_replay = {
    .name = "replay",
    .summary = "Run a list of requests through the engine at their arrival times",
    .operands = "--requests FILE",
    .about =
        "Each line of FILE is a request: {\"id\", \"at_ms\", \"prompt\" | \"prompt_tokens\" | "
        "\"prompt_len\", \"max_tokens\", \"temperature\", \"seed\", \"ignore_eos\", \"n\", "
        "\"priority\", \"tenant\", \"batch\", \"ttft_target_ms\", \"tpot_target_ms\", "
        "\"cancel_after_ms\", \"stop_after\"}. Required are max_tokens and one kind of prompt: a "
        "text, token ids, "
        "or "
        "a length (then the tokens are random; the id is their seed). The request arrives at_ms "
        "after the start and is cancelled cancel_after_ms after its arrival. Its answer ends "
        "after stop_after tokens, as if the model had ended it (a number, or a list with one for "
        "each choice). With batch true the request is a batch line: it gets the batch slots, KV "
        "blocks and time of a step that other requests leave (docs/scheduling.md). The default "
        "temperature is 0; the default seed is derived from the id. An invalid line is reported "
        "on standard error and skipped; the exit code is then 65.\n\n"
        "An answer is {\"id\", \"choice\", \"tokens\", \"logprobs\", \"finish_reason\", "
        "\"ttft_ms\", \"tpot_ms\", \"preempted\", \"cached_tokens\", "
        "\"drafted\", \"accepted\"}, one per choice; "
        "finish_reason is stop, length, cancelled, expired, refused or error; \"error\" says why "
        "a request was refused. Answers are written to --out; without --out and --json, to "
        "standard output. Tokens and logprobs do not depend on the policy, the knobs or other "
        "requests.\n\n"
        "Of a recording the arrivals and the lengths of prompts and answers are replayed, with "
        "random tokens as prompts.",
    .groups = {flags, flags_context},
    .takes_model = true,
    .model_optional = true,
    .run = run,
};
