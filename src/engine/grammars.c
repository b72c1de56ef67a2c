/* engine/grammars.c - see engine/grammars.h for the contract. */
#include "engine/grammars.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "grammar/grammar_cache.h"
#include "sample/sampler.h"
#include "text/tokenizer.h"

enum {
    TOKENS_BYTES_MAX = 1 << 28, /* of all tokens of a vocabulary */
    BEGINNING_BYTES_MAX = 256,  /* of a forced text whose tokens are counted */
};

struct grammars {
    struct grammars_options options;
    pthread_mutex_t lock;
    struct vocabulary *vocabulary; /* under the lock until it is made; then it never changes */
    struct grammar_cache *cache;
    _Atomic unsigned refs;
};

struct answer_grammar {
    struct grammars *all; /* a reference */
    struct grammar_lease lease;
    _Atomic unsigned refs;
};

enum status grammars_create(const struct grammars_options *options, struct grammars **out) {
    struct grammars *all = mem_zalloc(sizeof(*all));
    if (!all) return ST_NOMEM;
    all->options = *options;
    pthread_mutex_init(&all->lock, NULL);
    atomic_init(&all->refs, 1);
    enum status st = grammar_cache_create(options->memory_max, options->memory_max, &all->cache);
    if (st == ST_OK)
        *out = all;
    else
        grammars_unref(all);
    return st;
}

/* acq_rel: the thread that frees sees everything that the other holders wrote. */
static bool drop_ref(_Atomic unsigned *refs) {
    unsigned before = atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel);
    CHECK(before > 0);
    return before == 1;
}

void grammars_unref(struct grammars *all) {
    if (!all || !drop_ref(&all->refs)) return;
    grammar_cache_destroy(all->cache);
    vocabulary_destroy(all->vocabulary);
    pthread_mutex_destroy(&all->lock);
    mem_free(all);
}

/* ---- the vocabulary ---- */

static bool has_mark(struct str bytes) {
    return bytes.len > 0 && memchr(bytes.ptr, GRAMMAR_TOKEN_MARK, bytes.len) != NULL;
}

/* A special token has its spelling between marks. A token of text that has the mark, such as the
 * one of the byte 0xFF, has no bytes: with others it could spell a special token. */
static enum status put_token(const struct tokenizer *t, int32_t token, struct buf *bytes) {
    const size_t start = bytes->len;
    if (!tokenizer_is_special(t, token)) {
        TRY(tokenizer_token_bytes(t, token, bytes));
        if (has_mark(str_skip(buf_str(bytes), start))) bytes->len = start;
        return ST_OK;
    }
    const struct str piece = tokenizer_piece(t, token);
    if (piece.len == 0 || has_mark(piece)) return ST_OK;
    buf_put_char(bytes, (char)GRAMMAR_TOKEN_MARK);
    buf_put(bytes, piece.ptr, piece.len);
    buf_put_char(bytes, (char)GRAMMAR_TOKEN_MARK);
    return ST_OK;
}

static enum status put_tokens(const struct grammars_options *o, struct buf *bytes, size_t *ends) {
    for (uint32_t i = 0; i < o->vocab; i++) {
        if (i < tokenizer_vocab(o->tokenizer)) TRY(put_token(o->tokenizer, (int32_t)i, bytes));
        ends[i] = bytes->len;
    }
    return buf_status(bytes);
}

static enum status make_vocabulary(const struct grammars_options *o, struct vocabulary **out) {
    if (o->tokens) return vocabulary_create(o->tokens, o->vocab, out);
    struct buf bytes;
    buf_init(&bytes, TOKENS_BYTES_MAX);
    size_t *ends = mem_zalloc_array(o->vocab, sizeof(*ends));
    struct str *tokens = mem_zalloc_array(o->vocab, sizeof(*tokens));
    enum status st = ends && tokens ? put_tokens(o, &bytes, ends) : ST_NOMEM;
    for (uint32_t i = 0; i < o->vocab && st == ST_OK; i++) {
        size_t start = i > 0 ? ends[i - 1] : 0;
        tokens[i] = (struct str){bytes.ptr + start, ends[i] - start};
    }
    if (st == ST_OK) st = vocabulary_create(tokens, o->vocab, out);
    mem_free(ends);
    mem_free(tokens);
    buf_deinit(&bytes);
    return st;
}

static enum status need_vocabulary(struct grammars *all) {
    pthread_mutex_lock(&all->lock);
    enum status st = ST_OK;
    if (!all->vocabulary) st = make_vocabulary(&all->options, &all->vocabulary);
    pthread_mutex_unlock(&all->lock);
    return st;
}

/* ---- compiling ---- */

enum grammar_kind grammar_notation(struct str text) {
    for (size_t i = 0; i < text.len; i++)
        if (str_starts(str_skip(text, i), STR("::="))) return GRAMMAR_GBNF;
    return GRAMMAR_LARK;
}

/* least[end]: the fewest tokens that spell `text` up to there. The last may go on past its end. */
static void count_from(const struct vocabulary *v, struct str text, size_t at, uint32_t *least) {
    for (uint32_t t = 0; t < vocabulary_count(v); t++) {
        struct str token = vocabulary_token(v, t), rest = str_skip(text, at);
        size_t len = token.len < rest.len ? token.len : rest.len;
        if (len == 0 || memcmp(token.ptr, rest.ptr, len) != 0) continue;
        if (least[at] + 1 < least[at + len]) least[at + len] = least[at] + 1;
    }
}

/* Every token has at least a byte, so a short text needs no count. */
static enum status check_length(const struct grammars *all, struct grammar *g, uint32_t max_tokens,
                                struct grammar_refusal *why) {
    char bytes[BEGINNING_BYTES_MAX];
    uint32_t least[BEGINNING_BYTES_MAX + 1] = {0};
    const struct matcher first = matcher_init(g); /* a place that is always kept */
    const struct str text = {bytes, matcher_forced(&first, bytes, sizeof(bytes))};
    if (max_tokens == 0 || text.len <= max_tokens) return ST_OK;
    for (size_t i = 1; i <= text.len; i++) least[i] = UINT32_MAX;
    for (size_t i = 0; i < text.len; i++)
        if (least[i] < UINT32_MAX) count_from(all->vocabulary, text, i, least);
    if (least[text.len] <= max_tokens) return ST_OK;
    if (least[text.len] == UINT32_MAX)
        return err_set(&why->err, ST_BAD, "the model has no tokens for the text that it demands");
    return err_set(&why->err, ST_BAD,
                   "every answer has at least %u tokens, and at most %u may be generated; raise "
                   "the maximum of tokens",
                   least[text.len], max_tokens);
}

static enum status take(const struct grammars *all, const struct grammar_source *source,
                        struct grammar_lease *out, struct grammar_refusal *why) {
    const struct grammar_options options = {.kind = source->kind,
                                            .whitespace = source->whitespace,
                                            .time_us = all->options.time_us,
                                            .bytes_max = all->options.bytes_max,
                                            .tenant = source->tenant,
                                            .has_others = source->has_others,
                                            .cancelled = source->cancelled,
                                            .cancelled_ctx = source->cancelled_ctx};
    TRY(grammar_cache_take(all->cache, source->text, &options, all->vocabulary, out, why));
    enum status st = grammar_is_empty(out->grammar)
                         ? err_set(&why->err, ST_BAD, "no text satisfies it")
                         : check_length(all, out->grammar, source->max_tokens, why);
    if (st != ST_OK) grammar_cache_give(all->cache, out);
    return st;
}

enum status grammars_compile(struct grammars *all, const struct grammar_source *source,
                             struct answer_grammar **out, struct grammar_refusal *why) {
    *why = (struct grammar_refusal){0};
    struct answer_grammar *g = mem_zalloc(sizeof(*g));
    if (!g || need_vocabulary(all) != ST_OK) {
        mem_free(g);
        return err_set(&why->err, ST_NOMEM, "out of memory for a grammar");
    }
    enum status st = take(all, source, &g->lease, why);
    if (st != ST_OK) {
        mem_free(g);
        return st;
    }
    atomic_fetch_add_explicit(&all->refs, 1, memory_order_relaxed);
    g->all = all;
    atomic_init(&g->refs, 1);
    *out = g;
    return ST_OK;
}

/* ---- in use ---- */

void answer_grammar_ref(struct answer_grammar *g) {
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
}

void answer_grammar_unref(struct answer_grammar *g) {
    if (!g || !drop_ref(&g->refs)) return;
    grammar_cache_give(g->all->cache, &g->lease);
    grammars_unref(g->all);
    mem_free(g);
}

const struct grammar *answer_grammar_shared(const struct answer_grammar *g) {
    return g->lease.grammar;
}

const char *answer_grammar_relaxed(const struct answer_grammar *g) {
    return grammar_relaxed(g->lease.grammar);
}

void answer_grammar_apply(const struct answer_grammar *g, bool forces_text,
                          struct sample_params *out) {
    out->grammar = g->lease.grammar;
    out->vocabulary = g->all->vocabulary;
    if (forces_text) out->forces_with = g->all->options.tokenizer;
}
