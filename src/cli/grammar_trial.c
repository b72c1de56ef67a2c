/* cli/grammar_trial.c - walking through an instance, and statistics of durations. */
#include "cli/grammar_trial.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "grammar/chars.h"
#include "grammar/decimal.h"
#include "grammar/grammar.h"
#include "text/tokenizer.h"

enum { ALL_TOKENS_BYTES_MAX = 1 << 28, BYTE_COUNT = 256 };

enum status durations_add(struct durations *d, int64_t ns) {
    if (d->count == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 1024;
        int64_t *list = mem_realloc(d->list, cap * sizeof(*list));
        if (!list) return ST_NOMEM;
        d->list = list;
        d->cap = cap;
    }
    d->list[d->count++] = ns;
    return ST_OK;
}

void durations_deinit(struct durations *d) {
    mem_free(d->list);
    *d = (struct durations){0};
}

static int compare_ns(const void *x, const void *y) {
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

/* mean, p50, p99, max in microseconds */
static void summarise(struct durations *d, double out[4]) {
    double sum = 0;
    for (int i = 0; i < 4; i++) out[i] = 0;
    if (d->count == 0) return;
    qsort(d->list, d->count, sizeof(*d->list), compare_ns);
    for (size_t i = 0; i < d->count; i++) sum += (double)d->list[i];
    out[0] = sum / (double)d->count / 1000;
    out[1] = (double)d->list[(d->count - 1) / 2] / 1000;
    out[2] = (double)d->list[(d->count - 1) * 99 / 100] / 1000;
    out[3] = (double)d->list[d->count - 1] / 1000;
}

void durations_put(struct durations *d, struct buf *out) {
    double v[4];
    summarise(d, v);
    buf_printf(out, "{\"mean\":%.2f,\"p50\":%.2f,\"p99\":%.2f,\"max\":%.2f}", v[0], v[1], v[2],
               v[3]);
}

void durations_put_text(struct durations *d, struct buf *out) {
    double v[4];
    summarise(d, v);
    buf_printf(out, "mean %.1f us, p50 %.1f us, p99 %.1f us, max %.1f us", v[0], v[1], v[2], v[3]);
}

static enum status byte_table(struct buf *bytes, size_t *ends) {
    for (int i = 0; i < BYTE_COUNT; i++) {
        buf_put_char(bytes, (char)i);
        ends[i] = bytes->len;
    }
    return buf_status(bytes);
}

static enum status token_table(const struct tokenizer *t, struct buf *bytes, size_t *ends) {
    for (uint32_t i = 0; i < tokenizer_vocab(t); i++) {
        if (!tokenizer_is_special(t, (token_id)i))
            TRY(tokenizer_token_bytes(t, (token_id)i, bytes));
        ends[i] = bytes->len;
    }
    return buf_status(bytes);
}

enum status trial_tokens_open(struct tokenizer *tokenizer, struct trial_tokens *out,
                              struct err *err) {
    uint32_t count = tokenizer ? tokenizer_vocab(tokenizer) : BYTE_COUNT;
    struct buf bytes;
    buf_init(&bytes, ALL_TOKENS_BYTES_MAX);
    size_t *ends = mem_zalloc_array(count + 1, sizeof(*ends));
    struct str *table = mem_zalloc_array(count + 1, sizeof(*table));
    *out = (struct trial_tokens){.tokenizer = tokenizer};
    enum status st = ends && table ? ST_OK : ST_NOMEM;
    if (st == ST_OK)
        st = tokenizer ? token_table(tokenizer, &bytes, ends) : byte_table(&bytes, ends);
    for (uint32_t i = 0; i < count && st == ST_OK; i++) {
        size_t start = i ? ends[i - 1] : 0;
        table[i] = (struct str){bytes.ptr + start, ends[i] - start};
    }
    if (st == ST_OK) st = vocabulary_create(table, count, &out->vocabulary);
    if (st == ST_OK) {
        out->mask = mem_zalloc_array(vocabulary_words(out->vocabulary) + 1, sizeof(*out->mask));
        if (!out->mask) st = ST_NOMEM;
    }
    if (st != ST_OK) err_set(err, st, "grammar: out of memory");
    mem_free(ends);
    mem_free(table);
    buf_deinit(&bytes);
    return st;
}

void trial_tokens_close(struct trial_tokens *t) {
    vocabulary_destroy(t->vocabulary);
    mem_free(t->mask);
    *t = (struct trial_tokens){0};
}

static void put_text(struct str text, struct buf *out) {
    buf_put_char(out, '"');
    chars_spell_json(out, text);
    buf_put_char(out, '"');
}

static void put_number(const struct json *v, struct buf *out) {
    struct decimal d;
    if (!decimal_of(v, &d)) {
        json_put(v, out);
        return;
    }
    buf_printf(out, "%s%s%s%s", d.negative ? "-" : "", d.whole, d.fraction[0] ? "." : "",
               d.fraction);
}

/* Recursion goes as deep as the document, which json_parse has limited. */
void instance_put(const struct json *v, struct buf *out) {
    switch (json_kind(v)) {
    case JS_INT:
    case JS_REAL:
        put_number(v, out);
        return;
    case JS_TEXT:
        put_text(json_str(v), out);
        return;
    case JS_LIST:
        buf_put_char(out, '[');
        for (size_t i = 0; i < json_count(v); i++) {
            if (i) buf_put_char(out, ',');
            instance_put(json_at(v, i), out);
        }
        buf_put_char(out, ']');
        return;
    case JS_MAP: {
        const char *mark = "{";
        for (struct json_iter i = json_iter_first(v); json_iter_ok(&i); json_iter_next(&i)) {
            buf_put_text(out, mark);
            put_text(i.key, out);
            buf_put_char(out, ':');
            instance_put(i.value, out);
            mark = ",";
        }
        buf_put_text(out, json_count(v) ? "}" : "{}");
        return;
    }
    default:
        json_put(v, out);
    }
}

/* A trial under way. */
struct walk {
    struct matcher matcher;
    struct trial_tokens *tokens;
    struct durations *masks;
    struct trial *out;
    struct err *err;
};

/* One token: its mask, whether it is allowed, and the next position. */
static enum status one_token(struct walk *w, uint32_t token, struct str bytes) {
    size_t accepted = 0;
    int64_t start = clock_fine_ns();
    matcher_mask(&w->matcher, w->tokens->vocabulary, w->tokens->mask);
    TRY(durations_add(w->masks, clock_fine_ns() - start));
    bool is_allowed = w->tokens->mask[token >> 6] >> (token & 63) & 1;
    bool fits = matcher_accept(&w->matcher, bytes, &accepted);
    TRY(matcher_status(&w->matcher, w->err));
    w->out->accepted = fits;
    w->out->rejected_at += accepted;
    if (is_allowed == fits) return ST_OK;
    return err_set(w->err, ST_BAD, "grammar: the mask and the matcher disagree at byte %zu",
                   w->out->rejected_at);
}

static enum status run_bytes(struct walk *w, struct str text) {
    for (size_t i = 0; i < text.len && w->out->accepted; i++)
        TRY(one_token(w, (uint8_t)text.ptr[i], str_take(str_skip(text, i), 1)));
    return ST_OK;
}

static enum status run_tokens(struct walk *w, struct str text) {
    const struct encode_options options = {.plain_special = true};
    struct tokens ids = {0};
    struct buf bytes;
    buf_init(&bytes, 1 << 20);
    enum status st = tokenizer_encode(w->tokens->tokenizer, text, options, &ids);
    for (size_t i = 0; i < ids.count && st == ST_OK && w->out->accepted; i++) {
        buf_clear(&bytes);
        st = tokenizer_token_bytes(w->tokens->tokenizer, ids.ids[i], &bytes);
        if (st == ST_OK) st = one_token(w, (uint32_t)ids.ids[i], buf_str(&bytes));
    }
    buf_deinit(&bytes);
    tokens_deinit(&ids);
    return st;
}

enum status trial_run(struct grammar *g, struct trial_tokens *t, struct str text,
                      struct durations *masks, struct trial *out, struct err *err) {
    struct walk w = {matcher_init(g), t, masks, out, err};
    *out = (struct trial){.accepted = true};
    enum status st = t->tokenizer ? run_tokens(&w, text) : run_bytes(&w, text);
    if (st == ST_NOMEM) err_set(err, st, "grammar: out of memory");
    if (st == ST_OK && out->accepted) out->accepted = matcher_is_complete(&w.matcher);
    matcher_release(&w.matcher);
    return st;
}
