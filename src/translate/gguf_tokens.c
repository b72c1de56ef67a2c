/* translate/gguf_tokens.c - tokenizer.json under the keys of tokenizer.ggml.
 *
 * A GGUF has three families that folders of the models here have, too:
 *
 *   gpt2   byte-level BPE: pieces and merges; tokenizer.ggml.pre names the patterns that cut a text
 *   llama  SentencePiece BPE: pieces and scores. A folder has merges; a piece's score is the
 *          negated rank of the first merge that gives it, which joins in the same order
 *   bert   WordPiece: a mark where a word begins, in place of one where it continues
 *
 * What a GGUF cannot say is refused here where it has a name, and found by check_tokens.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "format/gguf_writer.h"
#include "format/model_file.h"
#include "model/arch.h"
#include "text/pretok.h"
#include "text/tokenizer.h"
#include "translate/around.h"
#include "translate/translate_int.h"

#define KEY(name) "tokenizer.ggml." name
#define BLANK_MARK "\xE2\x96\x81"

enum { PIECE_TEXT_BYTES = 1 << 16, ENDS_MAX = 2 };

struct token_keys {
    struct to_gguf *g;
    const struct json *doc, *model, *config; /* config: tokenizer_config.json, or NULL */
    uint32_t count;                          /* of tokens: as many as the embedding has rows */
    uint8_t *types;                          /* heap; by id */
};

static enum status refuse(const struct token_keys *k, const char *what) {
    return err_set(k->g->err, ST_BAD, "%s: a GGUF cannot say this of tokenizer.json: %s",
                   model_file_path(k->g->folder), what);
}

static enum status no_memory(const struct token_keys *k) {
    return err_set(k->g->err, ST_NOMEM, "%s: out of memory for its vocabulary",
                   model_file_path(k->g->folder));
}

static bool is_absent(const struct json *v) {
    return json_kind(v) == JS_NONE || json_kind(v) == JS_NULL;
}

static bool has_type(const struct json *v, const char *type) {
    return str_is(json_str(json_get(v, "type")), type);
}

/* Step `i` of a chain, which may be a single step; NULL: past the last one. */
static const struct json *step_at(const struct json *chain, const char *list, size_t i) {
    if (is_absent(chain)) return NULL;
    if (has_type(chain, "Sequence")) return json_at(json_get(chain, list), i);
    return i == 0 ? chain : NULL;
}

/* ---- Tokens ---- */

static void set_types(struct token_keys *k) {
    const struct tokenizer *t = k->g->tokenizer;
    const struct json *added = json_get(k->doc, "added_tokens");
    for (uint32_t i = 0; i < k->count; i++)
        k->types[i] = tokenizer_piece(t, (token_id)i).len ? TYPE_NORMAL : TYPE_UNUSED;
    for (size_t i = 0; i < json_count(added); i++) {
        const struct json *token = json_at(added, i);
        token_id id = tokenizer_find(t, json_str(json_get(token, "content")));
        if (id < 0 || (uint32_t)id >= k->count) continue;
        k->types[id] = json_bool(json_get(token, "special"), false) ? TYPE_CONTROL : TYPE_USER;
    }
}

static void put_types(const struct token_keys *k) {
    struct gguf_writer *w = k->g->writer;
    gguf_writer_put_list(w, KEY("token_type"), GGUF_LIST_I32, k->count);
    for (uint32_t i = 0; i < k->count; i++) gguf_writer_item_i32(w, k->types[i]);
}

/* An id without a piece has one that no text gives: the embedding has a row for it. */
static void put_unused(struct gguf_writer *w, uint32_t id) {
    char name[32];
    snprintf(name, sizeof(name), "[PAD%u]", id);
    gguf_writer_item_str(w, str_of(name));
}

typedef enum status put_piece_fn(struct gguf_writer *w, struct str piece, enum token_type type);

static enum status put_plain(struct gguf_writer *w, struct str piece, enum token_type type) {
    (void)type;
    gguf_writer_item_str(w, piece);
    return ST_OK;
}

static enum status put_word(struct gguf_writer *w, struct str piece, enum token_type type) {
    if (type != TYPE_NORMAL) return put_plain(w, piece, type);
    if (str_starts(piece, STR("##"))) return put_plain(w, str_skip(piece, 2), type);
    struct buf word;
    buf_init(&word, PIECE_TEXT_BYTES);
    buf_put_text(&word, BLANK_MARK);
    buf_put_str(&word, piece);
    enum status st = buf_status(&word);
    if (st == ST_OK) gguf_writer_item_str(w, buf_str(&word));
    buf_deinit(&word);
    return st;
}

static enum status put_pieces(const struct token_keys *k, put_piece_fn *put) {
    struct gguf_writer *w = k->g->writer;
    gguf_writer_put_list(w, KEY("tokens"), GGUF_LIST_STR, k->count);
    for (uint32_t i = 0; i < k->count; i++) {
        struct str piece = tokenizer_piece(k->g->tokenizer, (token_id)i);
        enum token_type type = (enum token_type)k->types[i];
        if (type == TYPE_UNUSED)
            put_unused(w, i);
        else if (put(w, piece, type) != ST_OK)
            return no_memory(k);
    }
    return ST_OK;
}

/* ---- Byte-level BPE ---- */

/* One name for each list of patterns that GGUF files have, the usual one. */
static const char *const pre_names[] = {
    "gpt-2",          "llama-bpe",   "qwen2",      "smollm",       "tekken",  "gpt-4o",
    "smaug-bpe",      "deepseek-v3", "seed-coder", "deepseek-llm", "kimi-k2", "exaone-moe",
    "deepseek-coder", "bailingmoe",  "youtu",      "superbpe",     "afmoe",   "bloom",
    "viking",         "falcon",      "default",
};

enum { CUTS_MAX = 8 };

/* What cuts a text, in order: a pattern, or digits one by one if ptr is NULL. */
struct cuts {
    struct str at[CUTS_MAX];
    uint32_t count;
};

static bool push_cut(struct cuts *c, struct str pattern) {
    if (c->count == CUTS_MAX) return false;
    c->at[c->count++] = pattern;
    return true;
}

/* Cutting a match out and removing what lies between matches is the same if they leave nothing. */
static bool cuts_matches_out(const struct json *step) {
    bool invert = json_bool(json_get(step, "invert"), false);
    struct str behavior = json_str(json_get(step, "behavior"));
    return invert ? str_is(behavior, "Removed") : str_is(behavior, "Isolated");
}

/* A step before ByteLevel; false: no name of a GGUF has one like it. */
static bool read_cut(const struct json *step, struct cuts *c) {
    if (has_type(step, "Digits"))
        return json_bool(json_get(step, "individual_digits"), false) &&
               push_cut(c, (struct str){0});
    struct str pattern = json_str(json_get(json_get(step, "pattern"), "Regex"));
    return has_type(step, "Split") && pattern.len && cuts_matches_out(step) && push_cut(c, pattern);
}

/* Sets *cuts; false: the steps are others than patterns and ByteLevel. */
static bool read_cuts(const struct json *chain, struct cuts *c) {
    c->count = 0;
    for (size_t i = 0;; i++) {
        const struct json *step = step_at(chain, "pretokenizers", i);
        if (!step) return false;
        if (!has_type(step, "ByteLevel")) {
            if (!read_cut(step, c)) return false;
            continue;
        }
        if (json_bool(json_get(step, "add_prefix_space"), true)) return false;
        if (step_at(chain, "pretokenizers", i + 1)) return false;
        return !json_bool(json_get(step, "use_regex"), true) ||
               push_cut(c, str_of(pretok_gpt2_pattern));
    }
}

static bool is_digits(struct str cut) { return cut.ptr == NULL; }

static bool means_cuts(const struct pretok_name *pre, const struct cuts *c) {
    uint32_t at = 0;
    bool has_digits = pre->digits == PRETOK_DIGITS;
    if (pre->digits && !has_digits) return false; /* in groups: no step of a folder is the same */
    if (has_digits && !pre->digits_last && !(at < c->count && is_digits(c->at[at++]))) return false;
    for (size_t i = 0; i < sizeof(pre->splits) / sizeof(pre->splits[0]) && pre->splits[i]; i++) {
        if (at == c->count || is_digits(c->at[at])) return false;
        if (!str_is(c->at[at++], pre->splits[i])) return false;
    }
    if (has_digits && pre->digits_last && !(at < c->count && is_digits(c->at[at++]))) return false;
    return at == c->count;
}

static enum status put_pre(const struct token_keys *k) {
    struct cuts cuts;
    bool ignores = json_bool(json_get(k->model, "ignore_merges"), false);
    bool is_known = read_cuts(json_get(k->doc, "pre_tokenizer"), &cuts);
    for (size_t i = 0; is_known && i < sizeof(pre_names) / sizeof(pre_names[0]); i++) {
        const struct pretok_name *pre = pretok_name_find(str_of(pre_names[i]));
        CHECK(pre);
        if (pre->ignore_merges != ignores || !means_cuts(pre, &cuts)) continue;
        gguf_writer_put_str(k->g->writer, KEY("pre"), str_of(pre->name));
        return ST_OK;
    }
    return refuse(k, "pre_tokenizer: its patterns, with ignore_merges as it is, are those of no "
                     "value of tokenizer.ggml.pre that is known here");
}

/* "a b", or ["a", "b"]. */
static enum status put_merge(const struct token_keys *k, const struct json *v, struct buf *text) {
    struct gguf_writer *w = k->g->writer;
    if (json_kind(v) != JS_LIST) {
        gguf_writer_item_str(w, json_str(v));
        return ST_OK;
    }
    buf_clear(text);
    buf_put_str(text, json_str(json_at(v, 0)));
    buf_put_char(text, ' ');
    buf_put_str(text, json_str(json_at(v, 1)));
    if (buf_status(text) != ST_OK) return no_memory(k);
    gguf_writer_item_str(w, buf_str(text));
    return ST_OK;
}

static enum status put_merges(const struct token_keys *k) {
    const struct json *merges = json_get(k->model, "merges");
    size_t count = json_count(merges);
    struct buf text;
    enum status st = ST_OK;
    gguf_writer_put_list(k->g->writer, KEY("merges"), GGUF_LIST_STR, count);
    buf_init(&text, PIECE_TEXT_BYTES);
    for (size_t i = 0; i < count && st == ST_OK; i++) st = put_merge(k, json_at(merges, i), &text);
    buf_deinit(&text);
    return st;
}

/* NFC is let pass, as llama.cpp's converter does: the name of the patterns does not say it. */
static enum status put_bytes(const struct token_keys *k) {
    const struct json *normalizer = json_get(k->doc, "normalizer");
    if (json_str(json_get(k->model, "continuing_subword_prefix")).len ||
        json_str(json_get(k->model, "end_of_word_suffix")).len)
        return refuse(k, "model: continuing_subword_prefix and end_of_word_suffix");
    if (!is_absent(normalizer) && !has_type(normalizer, "NFC"))
        return refuse(k, "normalizer: other than NFC, with byte-level BPE");
    gguf_writer_put_str(k->g->writer, KEY("model"), STR("gpt2"));
    TRY(put_pre(k));
    TRY(put_pieces(k, put_plain));
    put_types(k);
    return put_merges(k);
}

/* ---- SentencePiece BPE ---- */

static bool is_replace(const struct json *step) {
    return has_type(step, "Replace") &&
           str_is(json_str(json_get(json_get(step, "pattern"), "String")), " ") &&
           str_is(json_str(json_get(step, "content")), BLANK_MARK);
}

static bool is_prepend(const struct json *step) {
    return has_type(step, "Prepend") && str_is(json_str(json_get(step, "prepend")), BLANK_MARK);
}

/* Blanks become marks, and there may be one before the text: by the normaliser, or by a Metaspace
 * pre-tokenizer, which may add it only at the start of the whole text. */
static enum status read_prefix(const struct token_keys *k, bool *adds, bool *at_start) {
    const struct json *normalizer = json_get(k->doc, "normalizer");
    const struct json *pretok = json_get(k->doc, "pre_tokenizer");
    const struct json *first = step_at(normalizer, "normalizers", 0);
    if (first) {
        *adds = is_prepend(first);
        const struct json *replace = step_at(normalizer, "normalizers", *adds);
        bool is_all = !step_at(normalizer, "normalizers", *adds + 1u);
        bool is_idle = is_absent(pretok) || has_type(pretok, "Split"); /* gemma: no blank is left */
        if (is_replace(replace) && is_all && is_idle) return ST_OK;
        return refuse(k, "normalizer: other than a mark for each blank, and one before the text");
    }
    struct str scheme = json_str(json_get(pretok, "prepend_scheme"));
    *adds = !str_is(scheme, "never");
    *at_start = str_is(scheme, "first");
    return has_type(pretok, "Metaspace") ? ST_OK : refuse(k, "pre_tokenizer: other than Metaspace");
}

static struct str joined(const struct json *merge, struct buf *text) {
    struct str whole = json_str(merge);
    buf_clear(text);
    if (json_kind(merge) == JS_LIST) {
        buf_put_str(text, json_str(json_at(merge, 0)));
        buf_put_str(text, json_str(json_at(merge, 1)));
        return buf_str(text);
    }
    const char *blank = whole.len ? memchr(whole.ptr, ' ', whole.len) : NULL;
    size_t at = blank ? (size_t)(blank - whole.ptr) : whole.len;
    buf_put_str(text, str_take(whole, at));
    buf_put_str(text, str_skip(whole, at + (blank != NULL)));
    return buf_str(text);
}

/* By id: the rank of the first merge that gives the piece, plus 1; 0: none does. */
static enum status rank_pieces(const struct token_keys *k, uint32_t *ranks) {
    const struct json *merges = json_get(k->model, "merges");
    struct buf text;
    buf_init(&text, PIECE_TEXT_BYTES);
    for (size_t i = 0; i < json_count(merges) && buf_status(&text) == ST_OK; i++) {
        token_id id = tokenizer_find(k->g->tokenizer, joined(json_at(merges, i), &text));
        if (id >= 0 && (uint32_t)id < k->count && !ranks[id]) ranks[id] = (uint32_t)i + 1;
    }
    enum status st = buf_status(&text);
    buf_deinit(&text);
    return st == ST_OK ? ST_OK : no_memory(k);
}

static enum status put_scores(const struct token_keys *k) {
    struct gguf_writer *w = k->g->writer;
    size_t last = json_count(json_get(k->model, "merges")) + 1;
    uint32_t *ranks = mem_zalloc_array((size_t)k->count + 1, sizeof(*ranks));
    enum status st = ranks ? rank_pieces(k, ranks) : no_memory(k);
    gguf_writer_put_list(w, KEY("scores"), GGUF_LIST_F32, k->count);
    for (uint32_t i = 0; i < k->count && st == ST_OK; i++) {
        bool has_score = k->types[i] == TYPE_NORMAL;
        size_t rank = ranks[i] ? ranks[i] - 1 : last;
        gguf_writer_item_f32(w, has_score ? -(float)rank : 0);
    }
    mem_free(ranks);
    return st;
}

static void type_bytes(const struct token_keys *k) {
    for (int i = 0; i < 256; i++) {
        char name[16];
        snprintf(name, sizeof(name), "<0x%02X>", (unsigned)i);
        token_id id = tokenizer_find(k->g->tokenizer, str_of(name));
        if (id >= 0 && (uint32_t)id < k->count) k->types[id] = TYPE_BYTE;
    }
}

static enum status put_spm(const struct token_keys *k) {
    bool adds_prefix = false, at_start = false;
    struct gguf_writer *w = k->g->writer;
    token_id unk = tokenizer_find(k->g->tokenizer, json_str(json_get(k->model, "unk_token")));
    TRY(read_prefix(k, &adds_prefix, &at_start));
    type_bytes(k);
    if (unk >= 0 && (uint32_t)unk < k->count) k->types[unk] = TYPE_UNKNOWN;
    gguf_writer_put_str(w, KEY("model"), STR("llama"));
    gguf_writer_put_str(w, KEY("pre"), STR("default"));
    TRY(put_pieces(k, put_plain));
    TRY(put_scores(k));
    put_types(k);
    gguf_writer_put_bool(w, KEY("add_space_prefix"), adds_prefix);
    /* A key of our own: for other readers the blank is behind each special token. */
    if (at_start) gguf_writer_put_bool(w, "jitney.tokenizer.space_prefix_first", true);
    return ST_OK;
}

/* ---- WordPiece ---- */

static enum status put_words(const struct token_keys *k) {
    const struct json *prefix = json_get(k->model, "continuing_subword_prefix");
    if (prefix && !str_is(json_str(prefix), "##"))
        return refuse(k, "model: continuing_subword_prefix other than \"##\"");
    gguf_writer_put_str(k->g->writer, KEY("model"), STR("bert"));
    gguf_writer_put_str(k->g->writer, KEY("pre"), STR("default"));
    TRY(put_pieces(k, put_word));
    put_types(k);
    return ST_OK;
}

/* ---- Special tokens ---- */

static void put_id(const struct token_keys *k, const char *key, token_id id) {
    if (id >= 0 && (uint32_t)id < k->count) gguf_writer_put_u32(k->g->writer, key, (uint32_t)id);
}

/* "unk_token": a text or {"content": text}. */
static token_id config_token(const struct token_keys *k, const char *name) {
    const struct json *v = json_get(k->config, name), *content = json_get(v, "content");
    struct str text = json_str(content ? content : v);
    return text.len ? tokenizer_find(k->g->tokenizer, text) : TOKEN_NONE;
}

static enum status find_around(const struct token_keys *k, struct around *out) {
    if (around_find(k->g->tokenizer, out) != ST_OK) return no_memory(k);
    if (!out->has_more) return ST_OK;
    return refuse(k, "post_processor: more than one token before or behind a text");
}

/* What ends an answer beside eos, as generation_config.json lists it. */
static enum status put_ends(const struct token_keys *k, token_id eos) {
    static const char *const keys[ENDS_MAX] = {KEY("eot_token_id"), KEY("eom_token_id")};
    const struct json *generation;
    uint32_t put = 0;
    TRY(model_file_json(k->g->folder, "generation_config.json", &generation, k->g->err));
    const struct json *ids = json_get(generation, "eos_token_id");
    for (size_t i = 0; i < json_count(ids) && put < ENDS_MAX; i++) {
        int64_t id = json_int(json_at(ids, i), TOKEN_NONE);
        if (id < 0 || id >= k->count || id == eos) continue;
        put_id(k, keys[put++], (token_id)id);
    }
    int64_t only = json_int(ids, TOKEN_NONE);
    if (only >= 0 && only < k->count && only != eos) put_id(k, keys[0], (token_id)only);
    return ST_OK;
}

static enum status put_decoder_ids(const struct token_keys *k) {
    const struct tokenizer *t = k->g->tokenizer;
    struct gguf_writer *w = k->g->writer;
    struct around around;
    TRY(find_around(k, &around));
    token_id bos = around.before != TOKEN_NONE ? around.before : tokenizer_bos(t);
    token_id eos = around.after != TOKEN_NONE ? around.after : tokenizer_eos(t);
    put_id(k, KEY("bos_token_id"), bos);
    put_id(k, KEY("eos_token_id"), eos);
    put_id(k, KEY("unknown_token_id"), config_token(k, "unk_token"));
    put_id(k, KEY("padding_token_id"), config_token(k, "pad_token"));
    gguf_writer_put_bool(w, KEY("add_bos_token"), around.before != TOKEN_NONE);
    gguf_writer_put_bool(w, KEY("add_eos_token"), around.after != TOKEN_NONE);
    return put_ends(k, eos);
}

/* The key for the separator is misspelt in the format itself. */
static enum status put_encoder_ids(const struct token_keys *k) {
    struct around around;
    TRY(find_around(k, &around));
    put_id(k, KEY("bos_token_id"), around.before);
    put_id(k, KEY("cls_token_id"), around.before);
    put_id(k, KEY("seperator_token_id"), around.after);
    put_id(k, KEY("unknown_token_id"),
           tokenizer_find(k->g->tokenizer, json_str(json_get(k->model, "unk_token"))));
    put_id(k, KEY("padding_token_id"), config_token(k, "pad_token"));
    put_id(k, KEY("mask_token_id"), config_token(k, "mask_token"));
    gguf_writer_put_bool(k->g->writer, KEY("add_bos_token"), around.before != TOKEN_NONE);
    gguf_writer_put_bool(k->g->writer, KEY("add_sep_token"), around.after != TOKEN_NONE);
    return ST_OK;
}

static void put_templates(const struct token_keys *k) {
    struct str usual = tokenizer_chat_template(k->g->tokenizer, false);
    struct str tools = tokenizer_chat_template(k->g->tokenizer, true);
    if (usual.len) gguf_writer_put_str(k->g->writer, "tokenizer.chat_template", usual);
    if (tools.len && !str_eq(tools, usual))
        gguf_writer_put_str(k->g->writer, "tokenizer.chat_template.tool_use", tools);
}

static enum status put_all(struct token_keys *k) {
    const char *model = tokenizer_model(k->g->tokenizer);
    set_types(k);
    if (strcmp(model, "wordpiece") == 0) {
        TRY(put_words(k));
        return put_encoder_ids(k);
    }
    if (strcmp(model, "unigram") == 0) return refuse(k, "model: Unigram, for this architecture");
    TRY(strcmp(model, "spm") == 0 ? put_spm(k) : put_bytes(k));
    TRY(put_decoder_ids(k));
    put_templates(k);
    return ST_OK;
}

enum status gguf_put_tokens(struct to_gguf *g) {
    struct token_keys k = {.g = g, .count = g->model->hp.vocab};
    TRY(model_file_json(g->folder, "tokenizer.json", &k.doc, g->err));
    TRY(model_file_json(g->folder, "tokenizer_config.json", &k.config, g->err));
    k.model = json_get(k.doc, "model");
    k.types = mem_zalloc((size_t)k.count + 1);
    if (!k.types) return no_memory(&k);
    enum status st = put_all(&k);
    mem_free(k.types);
    return st;
}
