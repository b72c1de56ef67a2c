/* cli/compare_run.c - see cli/compare_run.h for the contract. */
#include "cli/compare_run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/size_text.h"
#include "cli/generated.h"
#include "cli/model_args.h"
#include "engine/request_run.h"
#include "engine/service.h"
#include "format/model_file.h"
#include "text/tokenizer.h"

enum { SVG_BYTES_MAX = 1 << 24, STARTS_MAX = 4, NAME_SHOWN = 40 };

const struct flag flags_compare[] = {
    {.name = "greedy",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "32",
     .min = 0,
     .max = 4096,
     .help = "Tokens that both models generate from the start of up to 4 windows; 0: none."},
    {.name = "svg",
     .kind = FLAG_TEXT,
     .value = "FILE",
     .help =
         "Also measure what each layer alone loses: the KL of A with only this layer taken from "
         "B. Writes a bar chart to FILE, which is replaced if it exists; --json has the numbers "
         "as kl_by_layer."},
    {0},
};

struct run {
    const struct args *args;
    struct comparison *c;
    struct service a, b;
    uint32_t vocab;
    const int32_t *window; /* its tokens */
    float *rows;           /* heap; a's logits of the second half of the window */
    struct divergence apart;
    enum status failed; /* of the logits tap */
};

/* ---- opening ---- */

static void describe(const struct service *s, struct compared *out) {
    const struct model_file *f = s->loaded.file;
    uint64_t bytes = 0, elems = 0;
    for (size_t i = 0; i < tensor_count(f); i++) {
        const struct tensor_info *t = tensor_at(f, i);
        uint64_t own = 1;
        for (uint32_t d = 0; d < t->dim_count; d++) own *= t->dims[d];
        elems += own;
        bytes += t->bytes;
    }
    for (uint32_t i = 0; i < model_file_parts(f); i++) out->bytes += model_file_part(f, i).bytes;
    out->bits_per_weight = elems ? 8.0 * (double)bytes / (double)elems : 0;
}

/* Both must give the same meaning to every token. */
static enum status check_vocabularies(const struct run *r, struct err *err) {
    const struct tokenizer *a = r->a.loaded.tokenizer, *b = r->b.loaded.tokenizer;
    uint32_t count_a = r->a.loaded.model->hp.vocab, count_b = r->b.loaded.model->hp.vocab;
    uint32_t known =
        tokenizer_vocab(a) < tokenizer_vocab(b) ? tokenizer_vocab(a) : tokenizer_vocab(b);
    for (uint32_t i = 0; i < known; i++) {
        struct str x = tokenizer_piece(a, (token_id)i), y = tokenizer_piece(b, (token_id)i);
        if (str_eq(x, y)) continue;
        return err_set(err, ST_BAD,
                       "compare: the vocabularies differ: token %u is \"%.*s\" in %s and \"%.*s\" "
                       "in %s; only models with the same vocabulary can be compared",
                       i, STR_ARG(str_take(x, NAME_SHOWN)), r->c->a.shown,
                       STR_ARG(str_take(y, NAME_SHOWN)), r->c->b.shown);
    }
    if (count_a == count_b && tokenizer_vocab(a) == tokenizer_vocab(b)) return ST_OK;
    return err_set(err, ST_BAD,
                   "compare: the vocabularies differ: %s has %u tokens and %s has %u; only models "
                   "with the same vocabulary can be compared",
                   r->c->a.shown, count_a, r->c->b.shown, count_b);
}

static enum status open_models(struct run *r, struct err *err) {
    uint32_t window = r->c->text.window_tokens, greedy = r->c->greedy_tokens;
    uint32_t ctx = window > window / 2 + greedy ? window : window / 2 + greedy;
    TRY(model_args_service_at(r->args, r->c->a.path, ctx, true, &r->a, err));
    TRY(model_args_service_at(r->args, r->c->b.path, ctx, true, &r->b, err));
    TRY(check_vocabularies(r, err));
    describe(&r->a, &r->c->a);
    describe(&r->b, &r->c->b);
    r->vocab = r->a.loaded.model->hp.vocab;
    return ST_OK;
}

/* ---- windows ---- */

/* Is the prediction at this position compared? */
static bool is_scored(const struct run *r, uint32_t pos) {
    return pos >= r->c->text.window_tokens / 2 && pos + 1 < r->c->text.window_tokens;
}

static float *row_at(const struct run *r, uint32_t pos) {
    return r->rows + (size_t)(pos - r->c->text.window_tokens / 2) * r->vocab;
}

static void keep_row(void *ctx, uint32_t pos, const float *logits) {
    struct run *r = ctx;
    if (is_scored(r, pos)) memcpy(row_at(r, pos), logits, r->vocab * sizeof(logits[0]));
}

static void compare_row(void *ctx, uint32_t pos, const float *logits) {
    struct run *r = ctx;
    if (!is_scored(r, pos) || r->failed != ST_OK) return;
    r->failed = divergence_add(&r->apart, row_at(r, pos), logits, r->vocab, r->window[pos + 1]);
}

static enum status run_window(struct run *r, struct service *s, logits_tap_fn *tap,
                              struct err *err) {
    const struct request_spec spec = {.prompt = r->window,
                                      .prompt_tokens = r->c->text.window_tokens,
                                      .n = 1,
                                      .sample = sample_params_default(),
                                      .on_logits = tap,
                                      .logits_ctx = r};
    const struct request_run run = {.engine = s->engine, .spec = &spec};
    struct request_usage usage;
    return request_run(&run, &usage, err);
}

static void show_progress(const struct run *r, uint32_t done) {
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[K%u of %u windows, KL %.6f", done, r->c->text.windows,
            r->apart.kl_sum / (double)r->apart.count);
    if (done == r->c->text.windows) fprintf(stderr, "\r\033[K");
}

static enum status compare_windows(struct run *r, struct err *err) {
    const struct text_windows *text = &r->c->text;
    uint32_t window = text->window_tokens;
    r->rows = mem_alloc_array((size_t)(window - window / 2) * r->vocab, sizeof(r->rows[0]));
    if (!r->rows)
        return err_set(err, ST_NOMEM,
                       "out of memory for the logits of %u positions; use a smaller --ctx",
                       window / 2);
    for (uint32_t i = 0; i < text->windows; i++) {
        r->window = text_windows_at(text, i);
        TRY(run_window(r, &r->a, keep_row, err));
        TRY(run_window(r, &r->b, compare_row, err));
        if (r->failed != ST_OK) return err_set(err, r->failed, "out of memory for the result");
        show_progress(r, i + 1);
    }
    return ST_OK;
}

/* ---- greedy ---- */

struct answer {
    int32_t tokens[4096];
    uint32_t count;
};

static bool take_token(void *ctx, const struct token_event *event) {
    struct answer *a = ctx;
    if (event->token >= 0 && a->count < sizeof(a->tokens) / sizeof(a->tokens[0]))
        a->tokens[a->count++] = event->token;
    return true;
}

static enum status continue_window(struct run *r, struct service *s, struct answer *answer,
                                   int64_t *decode_us, struct err *err) {
    struct request_spec spec = {.prompt = r->window,
                                .prompt_tokens = r->c->text.window_tokens / 2,
                                .max_tokens = r->c->greedy_tokens,
                                .n = 1,
                                .sample = sample_params_default(),
                                .ignore_end = true};
    spec.sample.temperature = 0;
    answer->count = 0;
    const struct request_run run = {
        .engine = s->engine, .spec = &spec, .on_event = take_token, .ctx = answer};
    struct request_usage usage;
    TRY(request_run(&run, &usage, err));
    *decode_us += usage.decode_us;
    return ST_OK;
}

static uint32_t same_start(const struct answer *a, const struct answer *b) {
    uint32_t same = 0;
    while (same < a->count && same < b->count && a->tokens[same] == b->tokens[same]) same++;
    return same;
}

static double rate_of(uint64_t tokens, int64_t us) {
    return us > 0 ? 1e6 * (double)tokens / (double)us : 0;
}

static enum status compare_greedy(struct run *r, struct err *err) {
    uint32_t starts = r->c->text.windows < STARTS_MAX ? r->c->text.windows : STARTS_MAX;
    int64_t us_a = 0, us_b = 0;
    uint64_t same = 0, tokens = 0;
    if (r->c->greedy_tokens < 2) return ST_OK;
    struct answer *answers = mem_alloc_array(2, sizeof(answers[0]));
    if (!answers) return err_set(err, ST_NOMEM, "out of memory for the answers");
    enum status st = ST_OK;
    for (uint32_t i = 0; i < starts && st == ST_OK; i++) {
        r->window = text_windows_at(&r->c->text, i);
        st = continue_window(r, &r->a, &answers[0], &us_a, err);
        if (st == ST_OK) st = continue_window(r, &r->b, &answers[1], &us_b, err);
        same += same_start(&answers[0], &answers[1]);
        tokens += r->c->greedy_tokens;
    }
    mem_free(answers);
    if (st != ST_OK) return st;
    uint64_t decoded = tokens - starts; /* the first token of each comes with the prompt */
    r->c->greedy_agree = (double)same / (double)tokens;
    r->c->a.decode_rate = rate_of(decoded, us_a);
    r->c->b.decode_rate = rate_of(decoded, us_b);
    return ST_OK;
}

/* ---- layers ---- */

static enum status write_svg(const struct run *r, const char *path, struct err *err) {
    struct buf svg;
    buf_init(&svg, SVG_BYTES_MAX);
    layer_kl_put_svg(&r->c->layers, r->c->a.shown, r->c->b.shown, &svg);
    enum status st = buf_status(&svg);
    if (st == ST_OK)
        st = file_write_atomic(path, buf_str(&svg), err);
    else
        err_set(err, st, "%s: out of memory for the drawing", path);
    buf_deinit(&svg);
    return st;
}

static enum status compare_layers(struct run *r, struct err *err) {
    const char *path = args_text(r->args, "svg");
    const struct layer_kl_options options = {
        .kv_type = model_args_kv_type(r->args),
        .threads = (uint32_t)args_int(r->args, "threads"),
        .text = {r->c->text.ids.ids, r->c->text.windows, r->c->text.window_tokens}};
    if (!path) return ST_OK;
    r->c->has_layers = true;
    TRY(layer_kl_measure(&r->c->layers, &r->a.loaded, &r->b.loaded, &options, err));
    return write_svg(r, path, err);
}

static enum status check_drawing(const char *path, struct err *err) {
    char dir[MODEL_PATH_BYTES] = ".";
    const char *slash = strrchr(path, '/');
    if (file_is_dir(path))
        return err_set(err, ST_CREATE, "%s: is a folder, expected the name of a file", path);
    if (slash) snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path) + 1, path);
    if (access(dir, W_OK | X_OK) == 0) return ST_OK;
    return err_set(err, ST_CREATE, "%s: cannot create: %s", path, strerror(errno));
}

enum status comparison_prepare(const struct args *args, const char *model_path,
                               struct comparison *c, struct err *err) {
    const char *svg = args_text(args, "svg");
    if (svg) TRY(check_drawing(svg, err));
    return text_windows_read(args, args_text(args, "file"), model_path, &c->text, err);
}

void comparison_deinit(struct comparison *c) {
    text_windows_deinit(&c->text);
    layer_kl_deinit(&c->layers);
}

enum status compare_models(const struct args *args, struct comparison *c, struct err *err) {
    struct run r = {.args = args, .c = c};
    c->greedy_tokens = (uint32_t)args_int(args, "greedy");
    divergence_init(&r.apart);
    enum status st = open_models(&r, err);
    if (st == ST_OK && args_text(args, "svg")) st = layer_kl_check(&r.a.loaded, &r.b.loaded, err);
    if (st == ST_OK) st = compare_windows(&r, err);
    if (st == ST_OK) divergence_result(&r.apart, &c->apart);
    if (st == ST_OK) st = compare_greedy(&r, err);
    if (st == ST_OK) st = compare_layers(&r, err);
    divergence_deinit(&r.apart);
    mem_free(r.rows);
    service_close(&r.b);
    service_close(&r.a);
    return st;
}

/* ---- results ---- */

static void put_number(struct buf *out, const char *key, double value) {
    buf_printf(out, ",\"%s\":", key);
    put_json_number(out, value);
}

void comparison_put_json(const struct comparison *c, struct buf *out) {
    const struct divergence_result *d = &c->apart;
    buf_printf(out, "\"positions\":%zu,\"chunks\":%u", d->positions, c->text.windows);
    put_number(out, "kl_mean", d->kl_mean);
    put_number(out, "kl_p99", d->kl_p99);
    put_number(out, "kl_max", d->kl_max);
    put_number(out, "top1_agree", d->top1_agree);
    put_number(out, "ppl_a", d->ppl_a);
    put_number(out, "ppl_b", d->ppl_b);
    buf_printf(out, ",\"bytes_a\":%llu,\"bytes_b\":%llu", (unsigned long long)c->a.bytes,
               (unsigned long long)c->b.bytes);
    put_number(out, "bits_per_weight_a", c->a.bits_per_weight);
    put_number(out, "bits_per_weight_b", c->b.bits_per_weight);
    if (c->has_layers) buf_put_text(out, ",\"kl_by_layer\":");
    if (c->has_layers) layer_kl_put_json(&c->layers, out);
    if (c->greedy_tokens < 2) return;
    put_number(out, "greedy_agree", c->greedy_agree);
    put_number(out, "tokens_per_s_a", c->a.decode_rate);
    put_number(out, "tokens_per_s_b", c->b.decode_rate);
}

void comparison_put_table(const struct comparison *c, struct buf *out) {
    const struct divergence_result *d = &c->apart;
    char a[SIZE_TEXT_BYTES], b[SIZE_TEXT_BYTES];
    buf_printf(out, "A: %s\nB: %s\n", c->a.shown, c->b.shown);
    buf_printf(out, "%-24s %12s %12s\n", "", "A", "B");
    buf_printf(out, "%-24s %12s %12s\n", "size", size_text(c->a.bytes, a),
               size_text(c->b.bytes, b));
    buf_printf(out, "%-24s %12.2f %12.2f\n", "bits a weight", c->a.bits_per_weight,
               c->b.bits_per_weight);
    buf_printf(out, "%-24s %12.4f %12.4f\n", "perplexity", d->ppl_a, d->ppl_b);
    if (c->greedy_tokens >= 2)
        buf_printf(out, "%-24s %12.1f %12.1f\n", "tokens a second", c->a.decode_rate,
                   c->b.decode_rate);
    buf_printf(out, "KL of B from A: mean %.6f, 99 %% of positions at most %.6f, largest %.6f\n",
               d->kl_mean, d->kl_p99, d->kl_max);
    buf_printf(out, "same most likely token: %.2f %% of %zu positions in %u window%s of %u\n",
               100 * d->top1_agree, d->positions, c->text.windows, c->text.windows == 1 ? "" : "s",
               c->text.window_tokens);
    if (c->greedy_tokens >= 2)
        buf_printf(out, "greedy answers of %u tokens: the same for the first %.1f on average\n",
                   c->greedy_tokens, c->greedy_agree * c->greedy_tokens);
}
