/* text/tokenizer.c - the pipeline, and the questions about a tokenizer.
 *
 * Entry points: tokens_*, tokenizer_create*, tokenizer_destroy, tokenizer_encode and the small
 * getters. Decoding is in detok.c and decoder.c, reading files in tokenizer_gguf.c and
 * tokenizer_json.c.
 */
#include "text/tokenizer.h"

#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "format/model_file.h"
#include "text/text_int.h"

void tokens_deinit(struct tokens *t) {
    mem_free(t->ids);
    *t = (struct tokens){0};
}

enum status tokens_push(struct tokens *t, token_id id) {
    if (t->count == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 64;
        token_id *ids = mem_realloc(t->ids, cap * sizeof(ids[0]));
        if (!ids) return ST_NOMEM;
        t->ids = ids;
        t->cap = cap;
    }
    t->ids[t->count++] = id;
    return ST_OK;
}

enum status work_init(struct work *w) {
    memset(w, 0, sizeof(*w));
    struct buf *bufs[] = {&w->fixed, &w->norm,        &w->norm_next,
                          &w->spare, &w->pieces.text, &w->pieces_next.text};
    for (size_t i = 0; i < sizeof(bufs) / sizeof(bufs[0]); i++) buf_init(bufs[i], TEXT_BYTES_MAX);
    w->regex = regex_work_create();
    return w->regex ? ST_OK : ST_NOMEM;
}

void work_deinit(struct work *w) {
    struct buf *bufs[] = {&w->fixed, &w->norm,        &w->norm_next,
                          &w->spare, &w->pieces.text, &w->pieces_next.text};
    for (size_t i = 0; i < sizeof(bufs) / sizeof(bufs[0]); i++) buf_deinit(bufs[i]);
    mem_free(w->pieces.at);
    mem_free(w->pieces_next.at);
    mem_free(w->lattice);
    bpe_work_destroy(w->bpe);
    regex_work_destroy(w->regex);
}

static enum status encode_piece(const struct tokenizer *t, struct str piece, struct work *work,
                                struct tokens *out) {
    switch (t->model) {
    case TOK_BPE:
    case TOK_SPM:
        return bpe_encode(&t->vocab, &t->bpe, piece, t->pretok.raw_bytes, work, out);
    case TOK_UNIGRAM:
        return unigram_encode(&t->vocab, &t->unigram, piece, work, out);
    case TOK_WORDPIECE:
        return wordpiece_encode(&t->wordpiece, piece, out);
    }
    return ST_OK;
}

/* Text without added tokens, already normalised. */
static enum status encode_plain(const struct tokenizer *t, struct str text, bool at_start,
                                struct work *work, struct tokens *out) {
    if (text.len == 0) return ST_OK;
    TRY(pretok_apply(&t->pretok, text, at_start, work));
    const struct pieces *p = &work->pieces;
    for (size_t i = 0; i < p->count; i++)
        TRY(encode_piece(t, (struct str){p->text.ptr + p->at[i].start, p->at[i].len}, work, out));
    return ST_OK;
}

/* Text between two tokens that were cut out before normalising. */
static enum status encode_segment(const struct tokenizer *t, struct str text, bool at_start,
                                  bool plain_special, struct work *work, struct tokens *out) {
    if (text.len == 0) return ST_OK;
    struct str normal;
    TRY(norm_apply(&t->norm, text, work, &normal, &at_start));
    struct added_scan scan = {
        .a = &t->added, .text = normal, .normalized = true, .plain_special = plain_special};
    struct added_cut cut;
    while (added_scan_next(&scan, &cut)) {
        bool first = at_start && cut.before.ptr == normal.ptr;
        TRY(encode_plain(t, cut.before, first, work, out));
        if (cut.id != TOKEN_NONE) TRY(tokens_push(out, cut.id));
    }
    return ST_OK;
}

/* Normalising moves bytes, so in a segment that has a listed byte no special token is looked for
 * afterwards. */
static enum status encode_text(const struct tokenizer *t, struct str text,
                               const struct encode_options *o, struct work *work,
                               struct tokens *out) {
    struct added_scan scan = {
        .a = &t->added, .text = text, .plain_special = o->plain_special, .plain = o->plain};
    if (!utf8_is_valid(text)) {
        utf8_put_lossy(&work->fixed, text);
        TRY(buf_status(&work->fixed));
        text = scan.text = buf_str(&work->fixed);
        scan.plain_special = o->plain_special || o->plain.count > 0; /* the offsets are void */
    }
    struct added_cut cut;
    while (added_scan_next(&scan, &cut)) {
        size_t start = (size_t)(cut.before.ptr - text.ptr);
        bool plain = scan.plain_special || plain_bytes_in(o->plain, start, start + cut.before.len);
        TRY(encode_segment(t, cut.before, start == 0, plain, work, out));
        if (cut.id != TOKEN_NONE) TRY(tokens_push(out, cut.id));
    }
    return ST_OK;
}

enum status tokenizer_encode(const struct tokenizer *t, struct str text,
                             struct encode_options options, struct tokens *out) {
    struct work work;
    enum status st = work_init(&work);
    uint32_t count = options.add_special ? t->post.count : 1;
    for (uint32_t i = 0; i < count && st == ST_OK; i++) {
        token_id item = options.add_special ? t->post.items[i] : POST_SEQUENCE;
        st = item == POST_SEQUENCE ? encode_text(t, text, &options, &work, out)
                                   : tokens_push(out, item);
        buf_clear(&work.fixed);
    }
    work_deinit(&work);
    return st == ST_OK ? ST_OK : ST_NOMEM;
}

void tokenizer_destroy(struct tokenizer *t) {
    if (!t) return;
    bpe_deinit(&t->bpe);
    unigram_deinit(&t->unigram);
    wordpiece_deinit(&t->wordpiece);
    norm_deinit(&t->norm);
    pretok_deinit(&t->pretok);
    decoder_deinit(&t->decoder);
    added_deinit(&t->added);
    trie_destroy(t->user);
    mem_free(t->flags);
    vocab_deinit(&t->vocab);
    mem_free(t);
}

enum status text_dup(struct tokenizer *t, struct str text, struct str *out) {
    *out = arena_dup(t->vocab.arena, text);
    return out->ptr ? ST_OK : ST_NOMEM;
}

/* Spellings that end an answer wherever a model has them as a special token. */
static bool spells_end(struct str s) {
    static const char *const names[] = {
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<end_of_turn>",
        "<|end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|return|>",
        "<|call|>",
        "<|end_of_turn|>",
        "<EOT>",
        "<end_of_utterance>",
        "<|eot|>",
        "<|eom|>",
        "<turn|>",
        "</s>",
        "<eos>",
        "<|END_OF_TURN_TOKEN|>",
        "<｜end▁of▁sentence｜>",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (str_is(s, names[i])) return true;
    return false;
}

/* In the "harmony" format an answer continues after <|end|>; it ends with <|return|>. */
static void flag_ends(struct tokenizer *t) {
    bool harmony = tokenizer_find(t, STR("<|return|>")) != TOKEN_NONE &&
                   tokenizer_find(t, STR("<|call|>")) != TOKEN_NONE;
    for (uint32_t i = 0; i < t->vocab.count; i++) {
        if (!(t->flags[i] & TOKEN_SPECIAL) || !spells_end(t->vocab.pieces[i])) continue;
        if (harmony && str_is(t->vocab.pieces[i], "<|end|>")) continue;
        t->flags[i] |= TOKEN_END;
    }
    if (t->eos != TOKEN_NONE) t->flags[t->eos] |= TOKEN_END;
    for (uint32_t i = 0; i < t->more_end_count; i++) t->flags[t->more_ends[i]] |= TOKEN_END;
}

static enum status make_flags(struct tokenizer *t) {
    t->flags = mem_zalloc((size_t)t->vocab.count + 1);
    if (!t->flags) return ST_NOMEM;
    for (uint32_t i = 0; i < t->vocab.count; i++)
        if (t->vocab.kinds[i] == PIECE_CONTROL) t->flags[i] |= TOKEN_SPECIAL;
    for (uint32_t i = 0; i < t->added.count; i++)
        if (t->added.tokens[i].special) t->flags[t->added.tokens[i].id] |= TOKEN_SPECIAL;
    flag_ends(t);
    return ST_OK;
}

static struct tokenizer *new_tokenizer(void) {
    struct tokenizer *t = mem_zalloc(sizeof(*t));
    if (!t) return NULL;
    t->bos = t->eos = t->bpe.unk = t->unigram.unk = t->wordpiece.unk = TOKEN_NONE;
    t->post = (struct post){{POST_SEQUENCE}, 1};
    return t;
}

static void end_id(struct tokenizer *t, int64_t id) {
    if (id >= 0 && id < t->vocab.count) t->flags[id] |= TOKEN_END;
}

/* A number, or a list of them. */
static void end_ids(struct tokenizer *t, const struct json *v) {
    end_id(t, json_int(v, -1));
    for (size_t i = 0; i < json_count(v); i++) end_id(t, json_int(json_at(v, i), -1));
}

/* "bos_token": a text or {"content": text}. */
static token_id config_token(const struct tokenizer *t, const struct json *config,
                             const char *key) {
    const struct json *v = json_get(config, key);
    const struct json *content = json_get(v, "content");
    struct str text = json_str(content ? content : v);
    return text.len ? tokenizer_find(t, text) : TOKEN_NONE;
}

/* chat_template: a text, or a list of {"name", "template"}. */
static enum status read_templates(struct tokenizer *t, const struct json *v) {
    if (json_kind(v) == JS_TEXT) return text_dup(t, json_str(v), &t->chat_template);
    for (size_t i = 0; i < json_count(v); i++) {
        struct str name = json_str(json_get(json_at(v, i), "name"));
        struct str text = json_str(json_get(json_at(v, i), "template"));
        if (str_is(name, "default")) TRY(text_dup(t, text, &t->chat_template));
        if (str_is(name, "tool_use")) TRY(text_dup(t, text, &t->chat_template_tools));
    }
    return ST_OK;
}

static enum status build_json(struct tokenizer *t, const struct json *doc,
                              const struct json *config, struct err *err) {
    TRY(tokenizer_read_json(t, doc, err));
    t->bos = config_token(t, config, "bos_token");
    t->eos = config_token(t, config, "eos_token");
    TRY(make_flags(t));
    return read_templates(t, json_get(config, "chat_template"));
}

enum status tokenizer_create_json(const struct json *doc, const struct json *config,
                                  const char *name, struct tokenizer **out, struct err *err) {
    struct tokenizer *t = new_tokenizer();
    enum status st = t ? build_json(t, doc, config, err) : ST_NOMEM;
    if (st == ST_OK) {
        *out = t;
        return ST_OK;
    }
    tokenizer_destroy(t);
    if (st == ST_NOMEM) err_set(err, st, "no memory for the tokenizer");
    return err_prefix(err, st, name);
}

/* Files beside tokenizer.json: more templates, more tokens that end an answer. */
static enum status read_neighbours(struct tokenizer *t, struct model_file *f, struct err *err) {
    const struct json *generation, *templates;
    struct str text;
    bool found;
    TRY(model_file_json(f, "generation_config.json", &generation, err));
    end_ids(t, json_get(generation, "eos_token_id"));
    TRY(model_file_json(f, "chat_template.json", &templates, err));
    TRY(read_templates(t, json_get(templates, "chat_template")));
    TRY(model_file_text(f, "chat_template.jinja", &found, &text, err));
    if (found) TRY(text_dup(t, text, &t->chat_template));
    return ST_OK;
}

/* config.json's ids, for models whose tokenizer_config.json does not name the tokens. */
static void read_config_ids(struct tokenizer *t, const struct model_file *f) {
    struct {
        const char *key;
        token_id *id;
    } keys[] = {{"bos_token_id", &t->bos}, {"eos_token_id", &t->eos}};
    for (size_t i = 0; i < 2; i++) {
        bool found = false;
        uint64_t id = 0;
        if (meta_kind(f, keys[i].key) != META_INT) continue;
        if (meta_u64(f, keys[i].key, &found, &id, NULL) != ST_OK || !found) continue;
        if (id >= t->vocab.count) continue;
        if (*keys[i].id == TOKEN_NONE) *keys[i].id = (token_id)id;
        if (i == 1) t->flags[id] |= TOKEN_END;
    }
}

static enum status create_hf(struct model_file *f, struct tokenizer **out, struct err *err) {
    const struct json *doc, *config;
    TRY(model_file_json(f, "tokenizer.json", &doc, err));
    TRY(model_file_json(f, "tokenizer_config.json", &config, err));
    if (!doc)
        return err_set(err, ST_MISSING, "%s: no tokenizer.json in this folder", model_file_path(f));
    struct tokenizer *t = NULL;
    TRY(tokenizer_create_json(doc, config, model_file_path(f), &t, err));
    enum status st = read_neighbours(t, f, err);
    if (st != ST_OK) {
        tokenizer_destroy(t);
        return st;
    }
    read_config_ids(t, f);
    *out = t;
    return ST_OK;
}

enum status tokenizer_create(struct model_file *f, struct tokenizer **out, struct err *err) {
    if (model_file_kind(f) == MODEL_HF) return create_hf(f, out, err);
    struct tokenizer *t = new_tokenizer();
    enum status st = t ? tokenizer_read_gguf(t, f, err) : ST_NOMEM;
    if (st == ST_OK) st = make_flags(t);
    if (st == ST_OK) {
        *out = t;
        return ST_OK;
    }
    tokenizer_destroy(t);
    if (st == ST_NOMEM) err_set(err, st, "no memory for the tokenizer");
    return err_prefix(err, st, model_file_path(f));
}

token_id tokenizer_bos(const struct tokenizer *t) { return t->bos; }
token_id tokenizer_eos(const struct tokenizer *t) { return t->eos; }

bool tokenizer_adds_bos(const struct tokenizer *t) {
    return t->bos != TOKEN_NONE && t->post.count && t->post.items[0] == t->bos;
}

bool tokenizer_is_end(const struct tokenizer *t, token_id id) {
    return id >= 0 && (uint32_t)id < t->vocab.count && (t->flags[id] & TOKEN_END);
}

bool tokenizer_is_special(const struct tokenizer *t, token_id id) {
    return id >= 0 && (uint32_t)id < t->vocab.count && (t->flags[id] & TOKEN_SPECIAL);
}

uint32_t tokenizer_vocab(const struct tokenizer *t) { return t->vocab.count; }

struct str tokenizer_piece(const struct tokenizer *t, token_id id) {
    if (id < 0 || (uint32_t)id >= t->vocab.count) return STR("");
    return t->vocab.pieces[id].ptr ? t->vocab.pieces[id] : STR("");
}

token_id tokenizer_find(const struct tokenizer *t, struct str piece) {
    uint32_t id;
    return map_find(t->vocab.all, piece, &id) ? (token_id)id : TOKEN_NONE;
}

const char *tokenizer_model(const struct tokenizer *t) {
    static const char *const names[] = {"bpe", "spm", "unigram", "wordpiece"};
    return names[t->model];
}

struct str tokenizer_chat_template(const struct tokenizer *t, bool tools) {
    if (tools && t->chat_template_tools.len) return t->chat_template_tools;
    return t->chat_template;
}
