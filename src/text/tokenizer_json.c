/* text/tokenizer_json.c - a tokenizer from a Hugging Face tokenizer.json.
 *
 * The parts are read in this order: the model (vocabulary first), added tokens, normaliser,
 * pre-tokenizer, post-processor, decoder. The steps of a chain are in steps_json.c. A part
 * that is not supported is refused by name: a tokenizer that is nearly right is wrong.
 */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "text/text_int.h"

enum { POWERS_MAX = 22 }; /* powers of ten that a double holds exactly */
static const double powers[POWERS_MAX + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                              1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                              1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static bool is_absent(const struct json *v) {
    return json_kind(v) == JS_NONE || json_kind(v) == JS_NULL;
}

/* "model.vocab" of BPE and WordPiece: text -> id. */
static enum status read_vocab_map(struct tokenizer *t, const struct json *vocab, struct err *err) {
    if (json_kind(vocab) != JS_MAP) return err_set(err, ST_BAD, "model: no \"vocab\"");
    TRY(vocab_init(&t->vocab,
                   (uint32_t)(json_count(vocab) > VOCAB_MAX ? VOCAB_MAX : json_count(vocab))));
    for (struct json_iter it = json_iter_first(vocab); json_iter_ok(&it); json_iter_next(&it)) {
        int64_t id = json_int(it.value, -1);
        if (id < 0 || id >= VOCAB_MAX)
            return err_set(err, ST_BAD, "model: vocab: \"%.*s\" has no id from 0 to %d",
                           STR_ARG(it.key), VOCAB_MAX - 1);
        TRY(vocab_set(&t->vocab, (uint32_t)id, it.key, PIECE_NORMAL, err));
        struct str kept = t->vocab.pieces[id];
        TRY(map_put(t->vocab.model, kept, (uint32_t)id));
        TRY(map_put(t->vocab.all, kept, (uint32_t)id));
    }
    return ST_OK;
}

/* A score as the tokenizers package reads it. Its JSON reader takes the digits as a whole number
 * and divides by a power of ten, which is off by a bit where there are more than 15 digits; two
 * ways to cut a text that are nearly equal differ by such bits. The digits are the
 * shortest that give the number back, which is how these files are written. */
static double read_score(double exact) {
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*e", digits - 1, exact);
        double back;
        if (str_to_f64(str_of(text), &back) && back == exact) break;
    }
    uint64_t significand = 0;
    int point = 0, exponent = 0;
    const char *c = text;
    for (; *c && *c != 'e'; c++) {
        if (*c == '.') point = 1;
        if (*c < '0' || *c > '9') continue;
        significand = significand * 10 + (uint64_t)(*c - '0');
        exponent -= point;
    }
    int64_t written = 0;
    if (*c == 'e' && str_to_i64(str_of(c + 1 + (c[1] == '+')), &written)) exponent += (int)written;
    while (significand && significand % 10 == 0) {
        significand /= 10;
        exponent++;
    }
    if (exponent < -POWERS_MAX || exponent > POWERS_MAX) return exact;
    double power = powers[exponent < 0 ? -exponent : exponent];
    double value = exponent < 0 ? (double)significand / power : (double)significand * power;
    return text[0] == '-' ? -value : value;
}

/* "model.vocab" of Unigram: [[text, score], ...]. */
static enum status read_vocab_list(struct tokenizer *t, const struct json *vocab, struct err *err) {
    size_t count = json_count(vocab);
    if (json_kind(vocab) != JS_LIST || count == 0 || count > VOCAB_MAX)
        return err_set(err, ST_BAD, "model: \"vocab\" is not a list of 1 to %d pieces", VOCAB_MAX);
    TRY(vocab_init(&t->vocab, (uint32_t)count));
    t->vocab.scores = mem_zalloc_array(count, sizeof(t->vocab.scores[0]));
    if (!t->vocab.scores) return ST_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct json *pair = json_at(vocab, i);
        enum json_kind kind = json_kind(json_at(pair, 1));
        if (json_kind(json_at(pair, 0)) != JS_TEXT || (kind != JS_REAL && kind != JS_INT))
            return err_set(err, ST_BAD, "model: vocab: entry %zu is not a text and a score", i);
        TRY(vocab_set(&t->vocab, (uint32_t)i, json_str(json_at(pair, 0)), PIECE_NORMAL, err));
        t->vocab.scores[i] = read_score(json_num(json_at(pair, 1), 0));
        TRY(map_put(t->vocab.model, t->vocab.pieces[i], (uint32_t)i));
        TRY(map_put(t->vocab.all, t->vocab.pieces[i], (uint32_t)i));
    }
    return ST_OK;
}

/* "a b", or ["a", "b"]. */
static bool merge_parts(const struct json *v, struct str *left, struct str *right) {
    if (json_kind(v) == JS_LIST) {
        *left = json_str(json_at(v, 0));
        *right = json_str(json_at(v, 1));
        return json_count(v) == 2;
    }
    struct str text = json_str(v);
    const char *blank = text.len ? memchr(text.ptr, ' ', text.len) : NULL;
    if (!blank) return false;
    size_t at = (size_t)(blank - text.ptr);
    *left = str_take(text, at);
    *right = str_skip(text, at + 1);
    return !memchr(right->ptr, ' ', right->len);
}

static enum status add_merge(struct tokenizer *t, const struct json *v, uint32_t rank,
                             struct buf *joined, struct err *err) {
    struct str left, right;
    if (!merge_parts(v, &left, &right))
        return err_set(err, ST_BAD, "model: merges: entry %u is not a pair of pieces", rank);
    size_t prefix = right.len < t->bpe.prefix.len ? right.len : t->bpe.prefix.len;
    buf_clear(joined);
    buf_put_str(joined, left);
    buf_put_str(joined, str_skip(right, prefix));
    TRY(buf_status(joined));
    token_id left_id = vocab_find(&t->vocab, left), right_id = vocab_find(&t->vocab, right);
    token_id id = vocab_find(&t->vocab, buf_str(joined));
    if (left_id == TOKEN_NONE || right_id == TOKEN_NONE || id == TOKEN_NONE)
        return err_set(err, ST_BAD, "model: merges: entry %u uses a piece that is not in vocab",
                       rank);
    uint64_t key = (uint64_t)(uint32_t)left_id << 32 | (uint32_t)right_id;
    return map64_put(t->bpe.merges, key, (uint64_t)rank << 32 | (uint32_t)id);
}

static enum status read_merges(struct tokenizer *t, const struct json *merges, struct err *err) {
    size_t count = json_count(merges);
    if (json_kind(merges) != JS_LIST || count > VOCAB_MAX)
        return err_set(err, ST_BAD, "model: \"merges\" is not a list of at most %d", VOCAB_MAX);
    t->bpe.merges = map64_create(count);
    if (!t->bpe.merges) return ST_NOMEM;
    struct buf joined;
    buf_init(&joined, 4 * (size_t)PIECE_BYTES_MAX);
    enum status st = ST_OK;
    for (size_t i = 0; i < count && st == ST_OK; i++)
        st = add_merge(t, json_at(merges, i), (uint32_t)i, &joined, err);
    buf_deinit(&joined);
    return st;
}

/* The id of a piece that the file names; absent is fine. */
static enum status named_piece(struct tokenizer *t, const struct json *model, const char *key,
                               token_id *id, struct err *err) {
    const struct json *v = json_get(model, key);
    if (is_absent(v)) return ST_OK;
    *id = vocab_find(&t->vocab, json_str(v));
    if (*id != TOKEN_NONE) return ST_OK;
    return err_set(err, ST_BAD, "model: %s \"%.*s\" is not in vocab", key, STR_ARG(json_str(v)));
}

static enum status read_bpe(struct tokenizer *t, const struct json *model, struct err *err) {
    struct bpe *b = &t->bpe;
    t->model = TOK_BPE;
    if (json_num(json_get(model, "dropout"), 0) > 0)
        return err_set(err, ST_BAD, "model: BPE with dropout is not supported");
    TRY(read_vocab_map(t, json_get(model, "vocab"), err));
    TRY(text_dup(t, json_str(json_get(model, "continuing_subword_prefix")), &b->prefix));
    TRY(text_dup(t, json_str(json_get(model, "end_of_word_suffix")), &b->suffix));
    TRY(read_merges(t, json_get(model, "merges"), err));
    TRY(named_piece(t, model, "unk_token", &b->unk, err));
    b->fuse_unk = json_bool(json_get(model, "fuse_unk"), false);
    b->byte_fallback = json_bool(json_get(model, "byte_fallback"), false);
    b->ignore_merges = json_bool(json_get(model, "ignore_merges"), false);
    bpe_fill_bytes(&t->vocab, b);
    bpe_find_words(&t->vocab, b);
    if (b->byte_fallback) t->model = TOK_SPM;
    return ST_OK;
}

static enum status make_trie(const struct vocab *v, struct trie **out) {
    struct trie_entry *entries = mem_alloc_array((size_t)v->count + 1, sizeof(entries[0]));
    if (!entries) return ST_NOMEM;
    size_t count = 0;
    for (uint32_t i = 0; i < v->count; i++)
        if (v->pieces[i].len) entries[count++] = (struct trie_entry){v->pieces[i], i};
    *out = trie_create(entries, count);
    mem_free(entries);
    return *out ? ST_OK : ST_NOMEM;
}

static enum status read_unigram(struct tokenizer *t, const struct json *model, struct err *err) {
    struct unigram *u = &t->unigram;
    t->model = TOK_UNIGRAM;
    TRY(read_vocab_list(t, json_get(model, "vocab"), err));
    const struct json *unk = json_get(model, "unk_id");
    int64_t id = json_int(unk, -1);
    if (is_absent(unk) || id < 0 || id >= t->vocab.count)
        return err_set(err, ST_BAD, "model: Unigram without a valid \"unk_id\" is not supported");
    u->unk = (token_id)id;
    u->byte_fallback = json_bool(json_get(model, "byte_fallback"), false);
    u->min_score = t->vocab.scores[0];
    for (uint32_t i = 1; i < t->vocab.count; i++)
        if (t->vocab.scores[i] < u->min_score) u->min_score = t->vocab.scores[i];
    bpe_fill_bytes(&t->vocab, &t->bpe);
    memcpy(u->fallback_ids, t->bpe.fallback_ids, sizeof(u->fallback_ids));
    return make_trie(&t->vocab, &u->trie);
}

/* Every piece may begin a word; those with the prefix may continue one. */
static enum status fill_wordpiece(struct tokenizer *t, struct str prefix) {
    const struct vocab *v = &t->vocab;
    struct trie_entry *inside = mem_alloc_array((size_t)v->count + 1, sizeof(inside[0]));
    if (!inside) return ST_NOMEM;
    size_t count = 0;
    for (uint32_t i = 0; i < v->count; i++)
        if (str_starts(v->pieces[i], prefix) && v->pieces[i].len > prefix.len)
            inside[count++] = (struct trie_entry){str_skip(v->pieces[i], prefix.len), i};
    t->wordpiece.inside = trie_create(inside, count);
    mem_free(inside);
    if (!t->wordpiece.inside) return ST_NOMEM;
    return make_trie(v, &t->wordpiece.start);
}

static enum status read_wordpiece(struct tokenizer *t, const struct json *model, struct err *err) {
    t->model = TOK_WORDPIECE;
    TRY(read_vocab_map(t, json_get(model, "vocab"), err));
    TRY(named_piece(t, model, "unk_token", &t->wordpiece.unk, err));
    if (t->wordpiece.unk == TOKEN_NONE)
        return err_set(err, ST_BAD, "model: WordPiece without \"unk_token\"");
    int64_t chars = json_int(json_get(model, "max_input_chars_per_word"), 100);
    t->wordpiece.word_chars_max = chars < 0 ? 0 : chars > INT32_MAX ? INT32_MAX : (uint32_t)chars;
    const struct json *prefix = json_get(model, "continuing_subword_prefix");
    return fill_wordpiece(t, prefix ? json_str(prefix) : STR("##"));
}

/* Old files have no "type"; the keys show which it is. */
static enum status read_model(struct tokenizer *t, const struct json *model, struct err *err) {
    struct str type = json_str(json_get(model, "type"));
    if (str_is(type, "BPE") || (!type.len && json_get(model, "merges")))
        return read_bpe(t, model, err);
    if (str_is(type, "Unigram") || (!type.len && json_get(model, "unk_id")))
        return read_unigram(t, model, err);
    if (str_is(type, "WordPiece") || (!type.len && json_get(model, "max_input_chars_per_word")))
        return read_wordpiece(t, model, err);
    return err_set(err, ST_BAD, "model \"%.*s\" is not supported", STR_ARG(type));
}

static enum status read_added_token(struct tokenizer *t, const struct json *v, size_t i,
                                    struct err *err) {
    struct str text = json_str(json_get(v, "content"));
    int64_t id = json_int(json_get(v, "id"), -1);
    if (json_kind(json_get(v, "content")) != JS_TEXT || id < 0 || id >= VOCAB_MAX)
        return err_set(err, ST_BAD, "added_tokens: entry %zu has no content or no id", i);
    if (text.len == 0) return ST_OK;
    if (text.len > ADDED_BYTES_MAX)
        return err_set(err, ST_BAD, "added_tokens: entry %zu has %zu bytes, the limit is %d", i,
                       text.len, ADDED_BYTES_MAX);
    token_id known = vocab_find(&t->vocab, text);
    if (known != TOKEN_NONE) id = known;
    bool special = json_bool(json_get(v, "special"), false);
    TRY(vocab_set(&t->vocab, (uint32_t)id, text, special ? PIECE_CONTROL : PIECE_USER, err));
    struct added_token token = {
        .text = t->vocab.pieces[id],
        .id = (token_id)id,
        .special = special,
        .lstrip = json_bool(json_get(v, "lstrip"), false),
        .rstrip = json_bool(json_get(v, "rstrip"), false),
        .single_word = json_bool(json_get(v, "single_word"), false),
        .normalized = json_bool(json_get(v, "normalized"), !special),
    };
    TRY(map_put(t->vocab.all, token.text, (uint32_t)id));
    return added_push(&t->added, token);
}

static enum status read_added(struct tokenizer *t, const struct json *list, struct err *err) {
    if (is_absent(list)) return ST_OK;
    if (json_kind(list) != JS_LIST || json_count(list) > ADDED_MAX)
        return err_set(err, ST_BAD, "added_tokens is not a list of at most %d", ADDED_MAX);
    for (size_t i = 0; i < json_count(list); i++)
        TRY(read_added_token(t, json_at(list, i), i, err));
    return ST_OK;
}

/* Byte-level BPE can work on bytes when nothing but ByteLevel precedes it, and the
 * vocabulary has a piece for every byte that text can contain. */
static enum status choose_raw(struct tokenizer *t) {
    struct pretok_chain *c = &t->pretok;
    const struct bpe *b = &t->bpe;
    if (t->model != TOK_BPE || c->count == 0) return ST_OK;
    if (c->steps[c->count - 1].kind != PRETOK_BYTE_LEVEL) return ST_OK;
    if (b->prefix.len || b->suffix.len) return ST_OK;
    for (int i = 0; i < 256; i++) {
        bool in_text = i != 0xC0 && i != 0xC1 && i < 0xF5;
        if (in_text && b->byte_ids[i] == TOKEN_NONE) return ST_OK;
    }
    c->raw_bytes = true;
    return b->ignore_merges ? bpe_index_raw(&t->vocab, &t->bpe) : ST_OK;
}

enum status tokenizer_read_json(struct tokenizer *t, const struct json *doc, struct err *err) {
    const struct json *model = json_get(doc, "model");
    if (json_kind(model) != JS_MAP)
        return err_set(err, ST_BAD, "not a tokenizer.json: no \"model\"");
    TRY(read_model(t, model, err));
    TRY(read_added(t, json_get(doc, "added_tokens"), err));
    TRY(norm_read(t, json_get(doc, "normalizer"), err));
    TRY(pretok_read(t, json_get(doc, "pre_tokenizer"), err));
    TRY(post_read(t, json_get(doc, "post_processor"), err));
    TRY(decode_read(t, json_get(doc, "decoder"), err));
    TRY(choose_raw(t));
    return added_index(t);
}
