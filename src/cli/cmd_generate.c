/* cli/cmd_generate.c - `jitney generate`: one prompt, one answer. */
#include <float.h>
#include <stdio.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "cli/generated.h"
#include "cli/cli.h"
#include "cli/dialog.h"
#include "cli/model_args.h"
#include "engine/grammars.h"
#include "engine/request.h"
#include "engine/request_run.h"
#include "engine/service.h"
#include "text/tokenizer.h"

enum { PROMPT_BYTES_MAX = 1 << 28, GRAMMAR_FILE_BYTES_MAX = 64 << 20 };

static const struct flag flags[] = {
    {.name = "prompt",
     .letter = 'p',
     .kind = FLAG_TEXT,
     .value = "TEXT",
     .help = "The prompt; \"-\" reads all of standard input, as does leaving out -p and -f."},
    {.name = "file",
     .letter = 'f',
     .kind = FLAG_TEXT,
     .value = "FILE",
     .help = "Read the prompt from FILE."},
    {.name = "chat",
     .kind = FLAG_BOOL,
     .help = "Treat the prompt as one message of a user, through the model's chat template."},
    {.name = "system",
     .kind = FLAG_TEXT,
     .value = "TEXT",
     .help = "With --chat: the system message."},
    {.name = "max-tokens",
     .letter = 'n',
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "256",
     .min = 0,
     .max = 1 << 24,
     .help = "Stop after N tokens."},
    {.name = "stop",
     .kind = FLAG_TEXT,
     .value = "TEXT",
     .repeats = true,
     .help = "Stop before TEXT appears in the answer."},
    {.name = "schema",
     .kind = FLAG_TEXT,
     .value = "FILE",
     .help = "The answer is JSON that satisfies the JSON schema in FILE."},
    {.name = "regex",
     .kind = FLAG_TEXT,
     .value = "RE",
     .help = "The answer matches the regular expression RE as a whole."},
    {.name = "grammar",
     .kind = FLAG_TEXT,
     .value = "FILE",
     .help = "The answer is a text of the grammar in FILE: GBNF, or Lark's notation."},
    {.name = "forced-text",
     .kind = FLAG_BOOL,
     .help = "With --schema, --regex or --grammar: append text that cannot be otherwise without "
             "computing its tokens one by one. Not with --json or --hash-logits."},
    {.name = "speculate",
     .kind = FLAG_TEXT,
     .value = "NAME",
     .fallback = "off",
     .help = "Speculate: guess the next tokens, and compute several of them in one step. The "
             "answer stays the same. ngram, suffix, model:PATH or off (docs/speculation.md). With "
             "--hash-logits there are no drafts."},
    {.name = "ignore-eos",
     .kind = FLAG_BOOL,
     .help = "Continue after the model's end-of-text tokens."},
    {.name = "show-special", .kind = FLAG_BOOL, .help = "Show special tokens in the answer."},
    {.name = "json", .kind = FLAG_BOOL, .help = "Print one JSON object instead of the text."},
    {.name = "logprobs",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "0",
     .min = 0,
     .max = TOP_LOGPROBS_MAX,
     .help = "With --json: also the N most likely tokens at each position."},
    {.name = "hash-logits",
     .kind = FLAG_BOOL,
     .help = "Give the SHA-256 of the float32 logits of every position of prompt and answer."},
    {.name = "verbose",
     .letter = 'v',
     .kind = FLAG_BOOL,
     .help = "Report speed on standard error."},
    {0},
};

/* Everything that one run holds. */
struct job {
    const struct args *args;
    struct service service;
    struct dialog *dialog; /* with --chat */
    struct tokens prompt;
    struct sample_params sample;
    struct speculate_option speculate;
    struct logit_bias *bias;        /* [LOGIT_BIAS_MAX] */
    struct sha256 *hash;            /* with --hash-logits */
    struct answer_grammar *grammar; /* with --schema, --regex or --grammar */
    int64_t load_us;
};

static enum exit_code check_flags(const struct args *a, struct err *err) {
    if (!args_text(a, "prompt") && !args_text(a, "file") && isatty(STDIN_FILENO))
        return usage_set(err, "generate: no prompt; give -p TEXT or -f FILE, or write the prompt "
                              "to standard input (echo TEXT | jitney generate MODEL)");
    if (args_text(a, "prompt") && args_text(a, "file"))
        return usage_set(err, "generate: give -p or -f, not both");
    if (args_text(a, "system") && !args_on(a, "chat"))
        return usage_set(err, "generate: --system needs --chat");
    if (!!args_text(a, "schema") + !!args_text(a, "regex") + !!args_text(a, "grammar") > 1)
        return usage_set(err, "generate: give one of --schema, --regex and --grammar");
    if (args_count(a, "stop") > STOP_STRINGS_MAX)
        return usage_set(err, "generate: --stop was given %u times; at most %d are possible",
                         args_count(a, "stop"), STOP_STRINGS_MAX);
    for (uint32_t i = 0; i < args_count(a, "stop"); i++) {
        size_t len = str_of(args_text_at(a, "stop", i)).len;
        if (len == 0 || len > STOP_STRING_BYTES_MAX)
            return usage_set(err, "generate: a --stop text has %zu bytes; it must have 1 to %d",
                             len, STOP_STRING_BYTES_MAX);
    }
    return EXIT_FINE;
}

static enum exit_code read_speculate(struct job *j, struct err *err) {
    struct str text = str_of(args_text(j->args, "speculate"));
    struct err why = {0};
    if (speculate_option_parse(text, &j->speculate, &why) != ST_OK)
        return usage_set(err, "generate: %s", why.text);
    if (str_is(text, "predicted"))
        return usage_set(err, "generate: --speculate predicted guesses from the prediction of a "
                              "request to a server; choose ngram, suffix or model:PATH");
    return EXIT_FINE;
}

static enum status read_prompt(const struct args *a, struct buf *out, struct err *err) {
    const char *text = args_text(a, "prompt");
    if (!text && !args_text(a, "file")) return file_read("-", out, err);
    if (!text) return file_read(args_text(a, "file"), out, err);
    if (str_is(str_of(text), "-")) return file_read("-", out, err);
    buf_put_text(out, text);
    return buf_status(out) == ST_OK ? ST_OK : err_set(err, ST_NOMEM, "out of memory");
}

/* An empty standard input counts as a prompt only where -p or -f names it. */
static enum exit_code check_given(const struct args *a, const struct buf *text, struct err *err) {
    if (text->len > 0 || args_text(a, "prompt") || args_text(a, "file")) return EXIT_FINE;
    return usage_set(err, "generate: no prompt; standard input is empty: give -p TEXT or -f FILE");
}

static enum status encode_chat(struct job *j, struct str text, struct err *err) {
    TRY(dialog_open(j->service.loaded.tokenizer, args_model(j->args), &j->dialog, err));
    TRY(dialog_reset(j->dialog, str_of(args_text(j->args, "system")), err));
    TRY(dialog_add(j->dialog, "user", text, err));
    return dialog_encode(j->dialog, &j->prompt, err);
}

static enum status encode_plain(struct job *j, struct str text, struct err *err) {
    const struct encode_options options = {.add_special = true};
    enum status st = tokenizer_encode(j->service.loaded.tokenizer, text, options, &j->prompt);
    return st == ST_OK ? ST_OK : err_set(err, st, "out of memory");
}

static enum status check_prompt(const struct job *j, struct err *err) {
    uint32_t ctx = j->service.loaded.ctx_tokens;
    if (j->prompt.count == 0)
        return err_set(err, ST_BAD, "generate: the prompt is empty and %s adds no token of its own",
                       args_model(j->args));
    if (j->prompt.count <= ctx) return ST_OK; /* a full context still gives one token */
    return err_set(err, ST_BAD,
                   "generate: the prompt has %zu tokens, but the context holds %u; shorten the "
                   "prompt or raise --ctx",
                   j->prompt.count, ctx);
}

static enum status compile_grammar(struct job *j, enum grammar_kind kind, struct str text,
                                   struct err *err) {
    const struct grammar_source source = {
        .kind = kind, .text = text, .max_tokens = (uint32_t)args_int(j->args, "max-tokens")};
    struct grammar_refusal why;
    enum status st = grammars_compile(j->service.grammars, &source, &j->grammar, &why);
    if (st == ST_OK) return ST_OK;
    return err_set(err, st, "generate: the grammar is refused%s%s: %s", why.path[0] ? " at " : "",
                   why.path, why.err.text);
}

static enum status read_grammar(struct job *j, struct err *err) {
    const char *schema = args_text(j->args, "schema"), *regex = args_text(j->args, "regex");
    const char *path = schema ? schema : args_text(j->args, "grammar");
    if (regex) return compile_grammar(j, GRAMMAR_REGEX, str_of(regex), err);
    if (!path) return ST_OK;
    struct buf text;
    buf_init(&text, GRAMMAR_FILE_BYTES_MAX);
    enum status st = file_read(path, &text, err);
    struct str source = buf_str(&text);
    if (st == ST_OK)
        st = compile_grammar(j, schema ? GRAMMAR_SCHEMA : grammar_notation(source), source, err);
    buf_deinit(&text);
    return st;
}

static enum status prepare(struct job *j, struct str text, struct err *err) {
    int64_t begun_us = clock_now(&clock_real);
    TRY(model_args_service(j->args, model_args_ctx(j->args), args_on(j->args, "hash-logits"),
                           &j->speculate, &j->service, err));
    j->load_us = clock_now(&clock_real) - begun_us;
    if (args_on(j->args, "chat"))
        TRY(encode_chat(j, text, err));
    else
        TRY(encode_plain(j, text, err));
    TRY(check_prompt(j, err));
    TRY(read_grammar(j, err));
    if (args_on(j->args, "hash-logits") && !(j->hash = sha256_create()))
        return err_set(err, ST_NOMEM, "out of memory");
    return ST_OK;
}

static void hash_logits(void *ctx, uint32_t pos, const float *logits) {
    (void)pos;
    const struct job *j = ctx;
    /* Little-endian machines only: the bytes in memory are the bytes of the contract. */
    sha256_add(j->hash, logits, j->service.loaded.model->hp.vocab * sizeof(float));
}

static struct request_spec spec_of(struct job *j) {
    struct request_spec spec = {
        .prompt = j->prompt.ids,
        .prompt_tokens = (uint32_t)j->prompt.count,
        .max_tokens = (uint32_t)args_int(j->args, "max-tokens"),
        .n = 1,
        .sample = j->sample,
        .ignore_end = args_on(j->args, "ignore-eos"),
        .want_logprobs = args_on(j->args, "json"), /* which alone shows them */
        .on_logits = j->hash ? hash_logits : NULL,
        .logits_ctx = j,
        .grammar = j->grammar,
        .forces_text = args_on(j->args, "forced-text"),
    };
    spec.sample.top_logprobs = (uint32_t)args_int(j->args, "logprobs");
    return spec;
}

static struct text_output_options text_of(const struct job *j, struct str stops[STOP_STRINGS_MAX]) {
    uint32_t count = args_count(j->args, "stop");
    for (uint32_t i = 0; i < count; i++) stops[i] = str_of(args_text_at(j->args, "stop", i));
    return (struct text_output_options){.tokenizer = j->service.loaded.tokenizer,
                                        .stops = stops,
                                        .stop_count = count,
                                        .keep_special = args_on(j->args, "show-special"),
                                        .ignore_end = args_on(j->args, "ignore-eos")};
}

static enum status print_json(struct job *j, struct generated *generated,
                              const struct request_usage *usage, struct err *err) {
    struct buf out;
    buf_init(&out, PROMPT_BYTES_MAX);
    buf_put_char(&out, '{');
    generated_put_json(generated, j->service.loaded.tokenizer, usage, &out);
    buf_printf(&out, ",\"timings\":{\"load_ms\":%.9g,\"prompt_ms\":%.9g,\"decode_ms\":%.9g}",
               (double)j->load_us / 1e3, (double)usage->prompt_us / 1e3,
               (double)usage->decode_us / 1e3);
    if (j->speculate.kind != SPECULATE_OFF)
        buf_printf(&out, ",\"drafts\":{\"drafted\":%u,\"accepted\":%u}", usage->drafted,
                   usage->accepted);
    buf_printf(&out, ",\"seed\":%llu", (unsigned long long)j->sample.seed);
    if (j->hash) {
        char hex[SHA256_HEX_BYTES];
        sha256_hex(j->hash, hex);
        buf_printf(&out, ",\"logits_sha256\":\"%s\"", hex);
    }
    buf_put_text(&out, "}\n");
    enum status st = buf_status(&out);
    st = st == ST_OK ? out_write(buf_str(&out), err) : err_set(err, st, "out of memory");
    buf_deinit(&out);
    return st;
}

static enum status print_end(struct job *j, const struct request_usage *usage, struct err *err) {
    TRY(out_write(STR("\n"), err));
    TRY(out_flush(err));
    if (args_on(j->args, "verbose")) report_speed(usage);
    if (!j->hash) return ST_OK;
    char hex[SHA256_HEX_BYTES];
    sha256_hex(j->hash, hex);
    fprintf(stderr, "logits_sha256 %s\n", hex);
    return ST_OK;
}

static enum status generate(struct job *j, struct err *err) {
    bool json = args_on(j->args, "json");
    struct str stops[STOP_STRINGS_MAX];
    const struct request_spec spec = spec_of(j);
    const struct text_output_options text = text_of(j, stops);
    struct request_usage usage;
    struct generated generated;
    const struct request_run run = {.engine = j->service.engine,
                                    .spec = &spec,
                                    .text = &text,
                                    .on_event = generated_take,
                                    .ctx = &generated};
    generated_init(&generated, json ? GENERATED_KEEP : GENERATED_STREAM);
    enum status st = request_run(&run, &usage, err);
    if (st == ST_OK) st = generated_status(&generated, err);
    if (st == ST_OK) st = json ? print_json(j, &generated, &usage, err) : print_end(j, &usage, err);
    generated_deinit(&generated);
    return st;
}

static void drop(struct job *j) {
    sha256_destroy(j->hash);
    answer_grammar_unref(j->grammar);
    tokens_deinit(&j->prompt);
    dialog_close(j->dialog);
    service_close(&j->service);
    mem_free(j->bias);
}

static enum exit_code run(const struct args *args, struct err *err) {
    struct job j = {.args = args};
    enum exit_code code = check_flags(args, err);
    if (code == EXIT_FINE) code = read_speculate(&j, err);
    if (code != EXIT_FINE) return code;
    j.bias = mem_alloc_array(LOGIT_BIAS_MAX, sizeof(j.bias[0]));
    if (!j.bias) return exit_of(err_set(err, ST_NOMEM, "out of memory"));
    code = model_args_sampling(args, j.bias, &j.sample, err);
    struct buf text;
    buf_init(&text, PROMPT_BYTES_MAX);
    if (code == EXIT_FINE) {
        enum status st = read_prompt(args, &text, err);
        code = st == ST_OK ? check_given(args, &text, err) : exit_of(st);
    }
    if (code == EXIT_FINE) {
        enum status st = prepare(&j, buf_str(&text), err);
        if (st == ST_OK) st = generate(&j, err);
        code = exit_of(st);
    }
    buf_deinit(&text);
    drop(&j);
    return code;
}

extern const struct command cmd_generate;
const struct command cmd_generate = {
    .name = "generate",
    .summary = "Continue a text, or answer one message",
    .operands = "[-p TEXT]",
    .about =
        "Prints the continuation of the prompt as the model generates it. With --chat the prompt "
        "is "
        "a user's message and the output is the answer to it.\n\n"
        "--json prints one object with text, tokens, logprobs (natural logarithms, of the chosen "
        "tokens, before temperature and penalties), finish_reason, usage, timings, seed and, with "
        "--speculate, drafts (how many were drafted and accepted).",
    .groups = {flags, flags_sampling, flags_context, flags_chunk, flags_engine},
    .takes_model = true,
    .run = run,
};
