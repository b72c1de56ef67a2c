/* cli/cmd_perplexity.c - `jitney perplexity`: how well a model predicts a text.
 *
 * The text is cut into windows of --ctx tokens without overlap; the first token of each is
 * replaced by BOS if the model wants one. In every window the tokens of the second half are
 * scored: each by its log-likelihood after all tokens before it in the window. The result is exp of
 * the mean negative log-likelihood. This is llama.cpp's method, so figures can be compared.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/fmath.h"
#include "cli/generated.h"
#include "cli/cli.h"
#include "cli/model_args.h"
#include "cli/text_windows.h"
#include "engine/request_run.h"
#include "engine/service.h"

static const struct flag flags[] = {
    {.name = "json", .kind = FLAG_BOOL, .help = "Print one JSON object."},
    {.name = "dump-logits",
     .kind = FLAG_TEXT,
     .value = "FILE",
     .help = "Write the logits of the scored positions to FILE: int32 rows, int32 columns, then "
             "the rows in float32."},
    {0},
};

struct score {
    struct service service;
    struct text_windows text;
    uint32_t done;      /* windows */
    const int32_t *ids; /* of the current window */
    double loss;        /* sum of -log p */
    uint64_t scored;    /* tokens */
    FILE *dump;         /* NULL: none */
    const char *dump_path;
    bool dump_failed;
};

static double loss_of(const float *logits, uint32_t vocab, int32_t token) {
    float top = logits[0];
    for (uint32_t t = 1; t < vocab; t++)
        if (logits[t] > top) top = logits[t];
    return fm_log_d(fm_sum_exp(logits, vocab, top)) - ((double)logits[token] - (double)top);
}

static void dump_bytes(struct score *s, const void *bytes, size_t len) {
    if (s->dump && fwrite(bytes, 1, len, s->dump) != len) s->dump_failed = true;
}

static uint32_t vocab_of(const struct score *s) { return s->service.loaded.model->hp.vocab; }

static void score_position(void *ctx, uint32_t pos, const float *logits) {
    struct score *s = ctx;
    if (pos < s->text.window_tokens / 2 || pos + 1 >= s->text.window_tokens || s->dump_failed)
        return;
    s->loss += loss_of(logits, vocab_of(s), s->ids[pos + 1]);
    s->scored++;
    dump_bytes(s, logits, vocab_of(s) * sizeof(logits[0]));
}

static enum status score_window(struct score *s, struct err *err) {
    const struct request_spec spec = {.prompt = s->ids,
                                      .prompt_tokens = s->text.window_tokens,
                                      .n = 1,
                                      .sample = sample_params_default(),
                                      .on_logits = score_position,
                                      .logits_ctx = s};
    const struct request_run run = {.engine = s->service.engine, .spec = &spec};
    struct request_usage usage;
    return request_run(&run, &usage, err);
}

static double perplexity_so_far(const struct score *s) {
    return fm_exp_d(s->loss / (double)s->scored);
}

/* One line that is overwritten; only on a terminal. */
static void show_progress(const struct score *s) {
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[K%u of %u windows, perplexity %.4f", s->done, s->text.windows,
            perplexity_so_far(s));
    if (s->done == s->text.windows) fprintf(stderr, "\r\033[K");
}

static enum status score_windows(struct score *s, struct err *err) {
    for (s->done = 0; s->done < s->text.windows;) {
        s->ids = text_windows_at(&s->text, s->done);
        enum status st = score_window(s, err);
        if (s->dump_failed) return err_set(err, ST_IO, "%s: %s", s->dump_path, strerror(errno));
        if (st != ST_OK) return st;
        s->done++;
        show_progress(s);
    }
    return ST_OK;
}

static enum status open_dump(struct score *s, struct err *err) {
    if (!s->dump_path) return ST_OK;
    s->dump = fopen(s->dump_path, "wb");
    if (!s->dump) return err_set(err, ST_CREATE, "%s: %s", s->dump_path, strerror(errno));
    uint64_t rows =
        (uint64_t)s->text.windows * (s->text.window_tokens - 1 - s->text.window_tokens / 2);
    if (rows > INT32_MAX)
        return err_set(err, ST_BAD, "--dump-logits: %llu rows are too many; use --chunks",
                       (unsigned long long)rows);
    int32_t header[2] = {(int32_t)rows, (int32_t)vocab_of(s)};
    dump_bytes(s, header, sizeof(header));
    return ST_OK;
}

/* Remove a dump that is incomplete. */
static enum status close_dump(struct score *s, enum status st, struct err *err) {
    if (!s->dump) return st;
    bool failed = fclose(s->dump) != 0;
    if (st == ST_OK && failed) st = err_set(err, ST_IO, "%s: %s", s->dump_path, strerror(errno));
    if (st != ST_OK && file_is_regular(s->dump_path)) unlink(s->dump_path);
    return st;
}

static enum status print_result(const struct score *s, bool json, struct err *err) {
    struct buf out;
    buf_init(&out, 4096);
    if (json) {
        buf_put_text(&out, "{\"perplexity\":");
        put_json_number(&out, perplexity_so_far(s));
        buf_printf(&out, ",\"tokens\":%llu,\"chunks\":%u}\n", (unsigned long long)s->scored,
                   s->text.windows);
    } else {
        buf_printf(&out, "perplexity %.4f over %llu tokens in %u window%s of %u\n",
                   perplexity_so_far(s), (unsigned long long)s->scored, s->text.windows,
                   s->text.windows == 1 ? "" : "s", s->text.window_tokens);
    }
    enum status st = out_write(buf_str(&out), err);
    buf_deinit(&out);
    return st;
}

static enum status score_text(struct score *s, const struct args *args, struct err *err) {
    enum status st = open_dump(s, err);
    if (st == ST_OK) st = score_windows(s, err);
    st = close_dump(s, st, err);
    return st == ST_OK ? print_result(s, args_on(args, "json"), err) : st;
}

static enum exit_code run(const struct args *args, struct err *err) {
    const char *text = args_text(args, "file");
    char path[MODEL_PATH_BYTES];
    if (!text) return usage_set(err, "perplexity: no text; give -f FILE");
    struct score s = {.dump_path = args_text(args, "dump-logits")};
    enum status st = model_args_path(args, path, err);
    if (st == ST_OK) st = text_windows_read(args, text, path, &s.text, err);
    if (st == ST_OK)
        st = model_args_service(args, s.text.window_tokens, true, NULL, &s.service, err);
    if (st == ST_OK) st = score_text(&s, args, err);
    service_close(&s.service);
    text_windows_deinit(&s.text);
    return exit_of(st);
}

extern const struct command cmd_perplexity;
const struct command cmd_perplexity = {
    .name = "perplexity",
    .summary = "Measure how well a model predicts a text",
    .operands = "-f FILE",
    .about =
        "Divides the text into windows that do not overlap and scores the second half of each, "
        "as llama.cpp does; a lower perplexity is better. --json prints perplexity, tokens "
        "(number scored) and chunks (number of windows).",
    .groups = {flags_text, flags, flags_chunk, flags_engine},
    .takes_model = true,
    .run = run,
};
