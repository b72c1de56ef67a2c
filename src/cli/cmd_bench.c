/* cli/cmd_bench.c - `jitney bench`: measures a server under load. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "config/env.h"
#include "loadgen/run.h"
#include "loadgen/tls.h"
#include "sim/workload.h"

enum {
    RUNS_MAX = 16, /* numbers in --clients */
    OUT_BYTES_MAX = 1 << 20,
    NAME_BYTES = 512,
    TOKENS_MAX = 1 << 20,
    REQUESTS_A_CLIENT = 8, /* unless the user says how many, or how long */
    PROBE_FEW = 8,         /* words of the two requests that measure how the server counts */
    PROBE_MANY = 40,
};

/* Probes and warm-up have other request numbers than the measured ones: no prompt is sent twice. */
static const uint64_t FIRST_PROBE = (uint64_t)1 << 60, FIRST_WARM = (uint64_t)1 << 61;
static const uint32_t RUN_SHIFT = 40; /* and each run has its own */

static const struct flag flags[] = {
    {.name = "clients",
     .kind = FLAG_TEXT,
     .value = "N,...",
     .fallback = "1",
     .help = "Number of concurrent clients; several numbers: one run for each."},
    {.name = "requests",
     .kind = FLAG_INT,
     .value = "N",
     .min = 1,
     .max = 1e9,
     .help = "Requests in a run. Without it and without --seconds: 8 for each client."},
    {.name = "seconds",
     .kind = FLAG_REAL,
     .value = "S",
     .min = 0.001,
     .max = 1e6,
     .help = "Send no more requests after this time; requests under way are completed."},
    {.name = "rate",
     .kind = FLAG_REAL,
     .value = "R",
     .min = 1e-6,
     .max = 1e6,
     .help = "Requests arrive at random, R a second (Poisson), at most --clients at a time. "
             "Without it each client sends its next request when the last response is complete."},
    {.name = "prompt-tokens",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "128",
     .min = 1,
     .max = TOKENS_MAX,
     .help = "Length of each prompt."},
    {.name = "output-tokens",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "64",
     .min = 1,
     .max = TOKENS_MAX,
     .help =
         "Length of each answer; requests have ignore_eos, so that the model does not end them."},
    {.name = "trace",
     .kind = FLAG_TEXT,
     .value = "FILE",
     .help = "Take both lengths at random from a table \"time,prompt tokens,answer tokens\"."},
    {.name = "divide",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "1",
     .min = 1,
     .max = 1000,
     .help = "Divide the lengths of --trace by N, for smaller models or machines."},
    {.name = "prompt-max",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "1048576",
     .min = 1,
     .max = TOKENS_MAX,
     .help = "Shorten longer prompts of --trace to N tokens."},
    {.name = "output-max",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "1048576",
     .min = 1,
     .max = TOKENS_MAX,
     .help = "Shorten longer answers of --trace to N tokens."},
    {.name = "shared-prefix",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "0",
     .min = 0,
     .max = TOKENS_MAX,
     .help = "The first N tokens are the same in all prompts; the rest is different in each."},
    {.name = "prompt",
     .kind = FLAG_WORD,
     .value = "words|ids",
     .fallback = "words",
     .help = "Prompts of random words, or of random token ids if the server accepts them."},
    {.name = "vocab",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "32000",
     .min = 256,
     .max = 1 << 24,
     .help = "With --prompt ids: token ids are below N."},
    {.name = "seed",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "1",
     .min = 0,
     .max = 9007199254740992.0,
     .help = "Seed of the random numbers: the same seed gives the same requests."},
    {.name = "model",
     .kind = FLAG_TEXT,
     .value = "NAME",
     .help = "Model in the requests. Without it: the first that /v1/models lists."},
    {.name = "api",
     .kind = FLAG_WORD,
     .value = "completions|chat",
     .fallback = "completions",
     .help = "API to use: /v1/completions or /v1/chat/completions."},
    {.name = "no-stream",
     .kind = FLAG_BOOL,
     .help = "Do not stream: the first token then arrives together with the last."},
    {.name = "fields",
     .kind = FLAG_TEXT,
     .value = "JSON",
     .help = "JSON object whose fields are added to every request."},
    {.name = "warmup",
     .kind = FLAG_INT,
     .value = "N",
     .min = 0,
     .max = 1e6,
     .help = "Requests before each run that are not measured. Without it: one for each client."},
    {.name = "timeout-s",
     .kind = FLAG_REAL,
     .value = "S",
     .fallback = "600",
     .min = 0.1,
     .max = 1e6,
     .help = "A request that takes longer counts as failed."},
    {.name = "cacert",
     .kind = FLAG_TEXT,
     .value = "FILE",
     .help = "With https: accept certificates of the authorities in this PEM file instead of the "
             "system's."},
    {.name = "insecure", .kind = FLAG_BOOL, .help = "With https: accept any certificate."},
    {.name = "json", .kind = FLAG_BOOL, .help = "Print one JSON object instead of tables."},
    {0},
};

struct bench {
    const struct args *args;
    uint32_t clients[RUNS_MAX], runs;
    struct target target;
    struct loadgen_tls *tls;
    struct loadgen_requests requests;
    struct loadgen_run run;
    struct loadgen_length *lengths;
    struct buf fields;
    char model[NAME_BYTES];
    struct buf out;
};

/* ---- flags ---- */

static enum exit_code read_clients(struct bench *b, struct err *err) {
    struct str list = str_of(args_text(b->args, "clients"));
    for (b->runs = 0; b->runs < RUNS_MAX; b->runs++) {
        const char *comma = memchr(list.ptr, ',', list.len);
        struct str word = str_take(list, comma ? (size_t)(comma - list.ptr) : list.len);
        uint64_t n = 0;
        if (!str_to_u64(word, &n) || n == 0 || n > LOADGEN_CLIENTS_MAX)
            return usage_set(
                err, "bench: --clients has \"%.*s\"; it must be a whole number from 1 to %d",
                STR_ARG(word), LOADGEN_CLIENTS_MAX);
        b->clients[b->runs] = (uint32_t)n;
        if (!comma) {
            b->runs++;
            return EXIT_FINE;
        }
        list = str_skip(list, word.len + 1);
    }
    return usage_set(err, "bench: --clients has more than %d numbers", RUNS_MAX);
}

/* The inside of the object, to be written into others. */
static enum exit_code read_fields(struct bench *b, struct err *err) {
    const char *text = args_text(b->args, "fields");
    struct json *doc = NULL;
    struct err why = {0};
    if (!text) return EXIT_FINE;
    enum status st = json_parse(str_of(text), &json_limits_request, &doc, &why);
    if (st != ST_OK || json_kind(doc) != JS_MAP) {
        json_destroy(doc);
        return usage_set(err, "bench: --fields must be a JSON object%s%s", why.text[0] ? ": " : "",
                         why.text);
    }
    json_put(doc, &b->fields);
    json_destroy(doc);
    if (buf_status(&b->fields) != ST_OK) return exit_of(err_set(err, ST_NOMEM, "out of memory"));
    b->requests.fields = str_take(str_skip(buf_str(&b->fields), 1), b->fields.len - 2);
    return EXIT_FINE;
}

static uint32_t scale(uint32_t tokens, uint32_t divisor, uint32_t max) {
    uint32_t scaled = tokens / divisor;
    if (scaled == 0) return 1;
    return scaled < max ? scaled : max;
}

static enum status read_lengths(struct bench *b, struct err *err) {
    const struct args *a = b->args;
    struct lengths table = {0};
    const char *path = args_text(a, "trace");
    if (path) TRY(lengths_read(&table, path, err));
    uint32_t count = path ? table.count : 1;
    b->lengths = mem_zalloc_array(count ? count : 1, sizeof(b->lengths[0]));
    enum status st = ST_OK;
    if (!b->lengths) st = err_set(err, ST_NOMEM, "out of memory");
    if (st == ST_OK && count == 0) st = err_set(err, ST_BAD, "%s: no lengths", path);
    uint32_t divisor = (uint32_t)args_int(a, "divide");
    uint32_t prompt_max = (uint32_t)args_int(a, "prompt-max");
    uint32_t output_max = (uint32_t)args_int(a, "output-max");
    for (uint32_t i = 0; path && st == ST_OK && i < count; i++)
        b->lengths[i] = (struct loadgen_length){
            .prompt_tokens = scale(table.items[i].prompt_tokens, divisor, prompt_max),
            .output_tokens = scale(table.items[i].answer_tokens, divisor, output_max)};
    if (!path && st == ST_OK)
        b->lengths[0] = (struct loadgen_length){(uint32_t)args_int(a, "prompt-tokens"),
                                                (uint32_t)args_int(a, "output-tokens")};
    b->requests.lengths = b->lengths;
    b->requests.length_count = count;
    lengths_deinit(&table);
    return st;
}

static enum exit_code read_settings(struct bench *b, struct err *err) {
    const struct args *a = b->args;
    if (args_operands(a) == 0)
        return usage_set(err,
                         "bench: no server; give its address, for example http://127.0.0.1:8080");
    struct err why = {0};
    if (target_parse(args_operand(a, 0), &b->target, &why) != ST_OK)
        return usage_set(err, "bench: %s", why.text);
    b->requests = (struct loadgen_requests){
        .model = b->model,
        .is_chat = strcmp(args_text(a, "api"), "chat") == 0,
        .streams = !args_on(a, "no-stream"),
        .form = strcmp(args_text(a, "prompt"), "ids") == 0 ? PROMPT_IDS : PROMPT_WORDS,
        .vocab = (uint32_t)args_int(a, "vocab"),
        .seed = (uint64_t)args_int(a, "seed"),
        .shared_tokens = (uint32_t)args_int(a, "shared-prefix"),
        .tokens_per_word = 1.0,
    };
    if (b->requests.is_chat && b->requests.form == PROMPT_IDS)
        return usage_set(err, "bench: --prompt ids needs --api completions");
    b->run = (struct loadgen_run){.target = &b->target,
                                  .requests = &b->requests,
                                  .clock = &clock_real,
                                  .key = env_find("JITNEY_API_KEY"),
                                  .timeout_s = args_real(a, "timeout-s")};
    enum exit_code code = read_clients(b, err);
    return code == EXIT_FINE ? read_fields(b, err) : code;
}

/* ---- before the runs ---- */

static enum status find_model(struct bench *b, struct err *err) {
    const char *name = args_text(b->args, "model");
    struct json *doc = NULL;
    struct buf list;
    if (name) {
        snprintf(b->model, sizeof(b->model), "%s", name);
        return ST_OK;
    }
    buf_init(&list, OUT_BYTES_MAX);
    enum status st = loadgen_get(&b->run, "/models", &list, err);
    if (st == ST_OK) st = json_parse(buf_str(&list), &json_limits_request, &doc, err);
    if (st == ST_OK) {
        struct str id = json_str(json_get(json_at(json_get(doc, "data"), 0), "id"));
        snprintf(b->model, sizeof(b->model), "%.*s", STR_ARG(id));
        if (id.len == 0)
            st = err_set(err, ST_UNAVAILABLE, "the server lists no model; give --model NAME");
    }
    json_destroy(doc);
    buf_deinit(&list);
    return st;
}

/* Measure how many tokens the server counts for a number of words. */
static enum status calibrate(struct bench *b, struct err *err) {
    struct loadgen_run run = b->run;
    struct request_result few, many;
    if (b->requests.form == PROMPT_IDS) return ST_OK;
    run.first = FIRST_PROBE;
    TRY(loadgen_send_probe(&run, PROBE_FEW, &few, err));
    run.first++;
    TRY(loadgen_send_probe(&run, PROBE_MANY, &many, err));
    loadgen_calibrate(&b->requests, (struct loadgen_probe){PROBE_FEW, few.prompt_tokens},
                      (struct loadgen_probe){PROBE_MANY, many.prompt_tokens});
    return ST_OK;
}

/* ---- runs ---- */

static enum status run_once(struct bench *b, uint32_t i, struct measurement *m, struct err *err) {
    const struct args *a = b->args;
    struct loadgen_run run = b->run;
    const uint32_t clients = b->clients[i];
    run.clients = clients;
    run.first = FIRST_WARM + ((uint64_t)i << RUN_SHIFT);
    run.request_max = args_given(a, "warmup") ? (uint64_t)args_int(a, "warmup") : clients;
    if (run.request_max > 0) TRY(loadgen_run(&run, m, err));
    *m = (struct measurement){0};
    bool has_end = args_given(a, "requests") || args_given(a, "seconds");
    run.first = (uint64_t)i << RUN_SHIFT;
    run.request_max = (uint64_t)clients * REQUESTS_A_CLIENT;
    if (has_end)
        run.request_max =
            args_given(a, "requests") ? (uint64_t)args_int(a, "requests") : UINT64_MAX;
    run.seconds = args_given(a, "seconds") ? args_real(a, "seconds") : 0.0;
    run.rate = args_given(a, "rate") ? args_real(a, "rate") : 0.0;
    return loadgen_run(&run, m, err);
}

static enum status flush_output(struct bench *b, struct err *err) {
    enum status st = buf_status(&b->out);
    if (st != ST_OK) return err_set(err, st, "out of memory");
    TRY(out_write(buf_str(&b->out), err));
    buf_clear(&b->out);
    return out_flush(err);
}

static enum status run_all(struct bench *b, struct measurement *m, struct err *err) {
    bool json = args_on(b->args, "json");
    uint64_t failed = 0;
    if (json) {
        buf_put_text(&b->out, "{\"model\":");
        buf_put_json_string(&b->out, str_of(b->model));
        buf_put_text(&b->out, ",\"runs\":[");
    }
    for (uint32_t i = 0; i < b->runs; i++) {
        *m = (struct measurement){0};
        TRY(run_once(b, i, m, err));
        failed += m->failed;
        if (json && i > 0) buf_put_char(&b->out, ',');
        if (json)
            measurement_put_json(m, &b->out);
        else
            measurement_put_table(m, &b->out);
        if (!json) TRY(flush_output(b, err));
    }
    if (json) buf_put_text(&b->out, "]}\n");
    TRY(flush_output(b, err));
    if (failed == 0) return ST_OK;
    return err_set(err, ST_UNAVAILABLE, "%llu request%s failed", (unsigned long long)failed,
                   failed == 1 ? "" : "s");
}

static enum status set_up_tls(struct bench *b, struct err *err) {
    const struct loadgen_tls_options options = {.authorities = args_text(b->args, "cacert"),
                                                .is_unchecked = args_on(b->args, "insecure")};
    if (!b->target.is_tls) return ST_OK;
    TRY(loadgen_tls_create(&options, &b->tls, err));
    b->target.tls = b->tls;
    return ST_OK;
}

static enum status measure_server(struct bench *b, struct err *err) {
    TRY(read_lengths(b, err));
    TRY(set_up_tls(b, err));
    TRY(target_resolve(&b->target, err));
    TRY(find_model(b, err));
    TRY(calibrate(b, err));
    struct measurement *m = mem_zalloc(sizeof(*m));
    if (!m) return err_set(err, ST_NOMEM, "out of memory");
    enum status st = run_all(b, m, err);
    mem_free(m);
    return st;
}

static enum exit_code run(const struct args *args, struct err *err) {
    struct bench b = {.args = args};
    buf_init(&b.fields, OUT_BYTES_MAX);
    buf_init(&b.out, OUT_BYTES_MAX);
    enum exit_code code = read_settings(&b, err);
    if (code == EXIT_FINE) code = exit_of(measure_server(&b, err));
    mem_free(b.lengths);
    loadgen_tls_destroy(b.tls);
    buf_deinit(&b.out);
    buf_deinit(&b.fields);
    return code;
}

extern const struct command cmd_bench;
const struct command cmd_bench = {
    .name = "bench",
    .summary = "Measure a server under load: latency and throughput",
    .operands = "URL",
    .about =
        "Works with any server that has OpenAI's completions or chat completions over HTTP/1.1, "
        "also with https. "
        "Prints, for each number of clients, the time to the first token (TTFT), the time per "
        "output token after it (TPOT), the time between events (ITL) and the time to the end "
        "(E2EL), each as mean and percentiles, and the throughput. Token counts are the server's. "
        "Prompts are random; two short requests before the first run measure how many tokens the "
        "server's chat template adds. JITNEY_API_KEY is sent as the key, if it is set.\n\n"
        "The exit code is 69 if a request failed.",
    .groups = {flags},
    .operands_max = 1,
    .run = run,
};
