/* text/tokenizer_gguf.c - a tokenizer from the tokenizer.* keys of a GGUF file.
 *
 * tokenizer.ggml.model names the family: "gpt2" (byte-level BPE, cut by the patterns that
 * tokenizer.ggml.pre names), "llama" (SentencePiece BPE by scores), "t5" (unigram), "bert"
 * (WordPiece). Token types say what is cut out of a text before that: control and unknown
 * tokens when specials are parsed, user-defined ones always.
 */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "format/model_file.h"
#include "text/text_int.h"

#define KEY(name) "tokenizer.ggml." name
#define BLANK_MARK "\xE2\x96\x81"
enum { BLANK_CODE = 0x2581 };

struct gguf_reader {
    struct tokenizer *t;
    struct model_file *f;
    struct err *err;
    token_id bos, eos, eot, eom, unk, sep;
    bool add_bos, add_eos, add_sep, add_prefix, join_blanks;
    bool prefix_first; /* the blank only before the whole text */
    const struct pretok_name *pre;
};

static enum status read_id(struct gguf_reader *r, const char *key, token_id *id) {
    bool found = false;
    uint64_t value;
    TRY(meta_u64(r->f, key, &found, &value, r->err));
    if (!found) return ST_OK;
    if (value >= r->t->vocab.count)
        return err_set(r->err, ST_BAD, "%s is %llu, the vocabulary has %u tokens", key,
                       (unsigned long long)value, r->t->vocab.count);
    *id = (token_id)value;
    return ST_OK;
}

static enum status read_flag(struct gguf_reader *r, const char *key, bool *flag) {
    bool found = false;
    return meta_bool(r->f, key, &found, flag, r->err);
}

/* A list with one entry per token, or none at all. */
static enum status list_length(struct gguf_reader *r, const char *key, uint64_t expected,
                               bool *present) {
    uint64_t count = 0;
    *present = meta_list(r->f, key, &count) != META_NONE;
    if (*present && count != expected)
        return err_set(r->err, ST_BAD, "%s has %llu entries, expected one per token: %llu", key,
                       (unsigned long long)count, (unsigned long long)expected);
    return ST_OK;
}

static enum piece_kind kind_of(int64_t type) {
    return type >= PIECE_NORMAL && type <= PIECE_BYTE ? (enum piece_kind)type : PIECE_NORMAL;
}

static enum status read_pieces(struct gguf_reader *r, uint64_t count, bool types) {
    struct vocab *v = &r->t->vocab;
    for (uint64_t i = 0; i < count; i++) {
        struct str text;
        int64_t type = PIECE_NORMAL;
        TRY(meta_list_str(r->f, KEY("tokens"), i, &text, r->err));
        if (types) TRY(meta_list_i64(r->f, KEY("token_type"), i, &type, r->err));
        TRY(vocab_set(v, (uint32_t)i, text, kind_of(type), r->err));
        struct str kept = v->pieces[i];
        bool produced =
            v->kinds[i] == PIECE_NORMAL || v->kinds[i] == PIECE_USER || v->kinds[i] == PIECE_UNUSED;
        if (!kept.len) continue;
        TRY(map_put(v->all, kept, (uint32_t)i));
        if (produced) TRY(map_put(v->model, kept, (uint32_t)i));
    }
    return ST_OK;
}

static enum status read_scores(struct gguf_reader *r, uint64_t count) {
    struct vocab *v = &r->t->vocab;
    bool present;
    TRY(list_length(r, KEY("scores"), count, &present));
    v->scores = mem_zalloc_array(count + 1, sizeof(v->scores[0]));
    if (!v->scores) return ST_NOMEM;
    for (uint64_t i = 0; present && i < count; i++) {
        TRY(meta_list_f64(r->f, KEY("scores"), i, &v->scores[i], r->err));
        if (v->scores[i] != v->scores[i])
            return err_set(r->err, ST_BAD, KEY("scores") ": entry %llu is not a number",
                           (unsigned long long)i);
    }
    return ST_OK;
}

static enum status read_vocab(struct gguf_reader *r, bool scores) {
    uint64_t count = 0;
    if (meta_list(r->f, KEY("tokens"), &count) != META_STR)
        return err_set(r->err, ST_BAD, "no list " KEY("tokens") " in this file");
    if (count == 0 || count > VOCAB_MAX)
        return err_set(r->err, ST_BAD, KEY("tokens") " has %llu entries, expected 1 to %d",
                       (unsigned long long)count, VOCAB_MAX);
    TRY(vocab_init(&r->t->vocab, (uint32_t)count));
    bool types;
    TRY(list_length(r, KEY("token_type"), count, &types));
    TRY(read_pieces(r, count, types));
    return scores ? read_scores(r, count) : ST_OK;
}

static enum status read_specials(struct gguf_reader *r) {
    TRY(read_id(r, KEY("bos_token_id"), &r->bos));
    TRY(read_id(r, KEY("eos_token_id"), &r->eos));
    TRY(read_id(r, KEY("eot_token_id"), &r->eot));
    TRY(read_id(r, KEY("eom_token_id"), &r->eom));
    TRY(read_id(r, KEY("unknown_token_id"), &r->unk));
    TRY(read_id(r, KEY("seperator_token_id"), &r->sep)); /* sic: the key in the files */
    TRY(read_id(r, KEY("separator_token_id"), &r->sep));
    TRY(read_flag(r, KEY("add_bos_token"), &r->add_bos));
    TRY(read_flag(r, KEY("add_eos_token"), &r->add_eos));
    TRY(read_flag(r, KEY("add_sep_token"), &r->add_sep));
    TRY(read_flag(r, KEY("add_space_prefix"), &r->add_prefix));
    TRY(read_flag(r, "jitney.tokenizer.space_prefix_first", &r->prefix_first));
    return read_flag(r, KEY("remove_extra_whitespaces"), &r->join_blanks);
}

static bool contains(struct str text, const char *word) {
    size_t len = strlen(word);
    for (size_t i = 0; i + len <= text.len; i++) {
        size_t k = 0;
        while (k < len && (text.ptr[i + k] | 32) == word[k]) k++;
        if (k == len) return true;
    }
    return false;
}

/* Files do not say which tokens include the white space after them; those of Phi-3 do. */
static enum status strips_right(struct gguf_reader *r, bool *strips) {
    struct str name = {0};
    bool found;
    TRY(meta_str(r->f, "general.name", &found, &name, r->err));
    *strips = found && (contains(name, "phi-3") || contains(name, "phi3"));
    return ST_OK;
}

static bool never_strips(struct str piece) {
    return str_is(piece, "<unk>") || str_is(piece, "<s>") || str_is(piece, "<|endoftext|>");
}

static enum status read_added(struct gguf_reader *r) {
    const struct vocab *v = &r->t->vocab;
    bool rstrip;
    TRY(strips_right(r, &rstrip));
    for (uint32_t i = 0; i < v->count; i++) {
        bool user = v->kinds[i] == PIECE_USER;
        bool special = v->kinds[i] == PIECE_CONTROL || v->kinds[i] == PIECE_UNKNOWN;
        if ((!user && !special) || v->pieces[i].len == 0) continue;
        if (v->pieces[i].len > ADDED_BYTES_MAX)
            return err_set(r->err, ST_BAD,
                           KEY("tokens") ": special token %u has %zu bytes, the "
                                         "limit is %d",
                           i, v->pieces[i].len, ADDED_BYTES_MAX);
        TRY(added_push(&r->t->added,
                       (struct added_token){.text = v->pieces[i],
                                            .id = (token_id)i,
                                            .special = special,
                                            .rstrip = rstrip && !never_strips(v->pieces[i])}));
    }
    return added_index(r->t);
}

static enum status add_post(struct gguf_reader *r) {
    struct post *p = &r->t->post;
    p->count = 0;
    if (r->add_bos && r->bos != TOKEN_NONE) p->items[p->count++] = r->bos;
    p->items[p->count++] = POST_SEQUENCE;
    if (r->add_sep && r->sep != TOKEN_NONE) p->items[p->count++] = r->sep;
    if (r->add_eos && r->eos != TOKEN_NONE) p->items[p->count++] = r->eos;
    return ST_OK;
}

static enum status add_literal(struct pattern *p, struct str text) {
    p->literal = mem_dup(text.ptr, text.len);
    p->literal_len = text.len;
    return p->literal ? ST_OK : ST_NOMEM;
}

static struct decoder_stage *add_stage(struct tokenizer *t, enum decoder_kind kind) {
    struct decoder_stage *s = &t->decoder.stages[t->decoder.count++];
    *s = (struct decoder_stage){.kind = kind};
    return s;
}

/* SentencePiece: U+2581 to a blank, bytes to characters, and the leading blank is removed. */
static enum status add_spm_decoder(struct gguf_reader *r) {
    struct decoder_stage *s = add_stage(r->t, DECODER_REPLACE);
    s->text = STR(" ");
    TRY(add_literal(&s->pattern, STR(BLANK_MARK)));
    add_stage(r->t, DECODER_BYTE_FALLBACK);
    add_stage(r->t, DECODER_FUSE);
    if (r->add_prefix) {
        s = add_stage(r->t, DECODER_STRIP);
        s->code = ' ';
        s->start = 1;
    }
    return ST_OK;
}

/* "left right" with one blank between; the first piece may itself start with one. */
static bool cut_merge(struct str merge, struct str *left, struct str *right) {
    if (merge.len < 3) return false;
    const char *blank = memchr(merge.ptr + 1, ' ', merge.len - 1);
    if (!blank) return false;
    size_t at = (size_t)(blank - merge.ptr);
    *left = str_take(merge, at);
    *right = str_skip(merge, at + 1);
    return right->len > 0;
}

/* A merge whose pieces are not in the vocabulary can never apply and is left out. */
static enum status add_merge(struct gguf_reader *r, struct str merge, uint32_t rank,
                             struct buf *joined) {
    const struct map *ids = r->t->vocab.all;
    struct str left, right;
    uint32_t left_id, right_id, id;
    if (!cut_merge(merge, &left, &right))
        return err_set(r->err, ST_BAD, KEY("merges") ": entry %u is not two pieces and a blank",
                       rank);
    buf_clear(joined);
    buf_put_str(joined, left);
    buf_put_str(joined, right);
    TRY(buf_status(joined));
    if (!map_find(ids, left, &left_id) || !map_find(ids, right, &right_id)) return ST_OK;
    if (!map_find(ids, buf_str(joined), &id)) return ST_OK;
    uint64_t key = (uint64_t)left_id << 32 | right_id, old;
    if (map64_find(r->t->bpe.merges, key, &old)) return ST_OK;
    return map64_put(r->t->bpe.merges, key, (uint64_t)rank << 32 | id);
}

static enum status read_merges(struct gguf_reader *r) {
    uint64_t count = 0;
    if (meta_list(r->f, KEY("merges"), &count) != META_STR)
        return err_set(r->err, ST_BAD, "no list " KEY("merges") " in this file");
    if (count > VOCAB_MAX)
        return err_set(r->err, ST_BAD, KEY("merges") " has %llu entries, the limit is %d",
                       (unsigned long long)count, VOCAB_MAX);
    r->t->bpe.merges = map64_create(count);
    if (!r->t->bpe.merges) return ST_NOMEM;
    struct buf joined;
    buf_init(&joined, 4 * (size_t)PIECE_BYTES_MAX);
    enum status st = ST_OK;
    for (uint64_t i = 0; i < count && st == ST_OK; i++) {
        struct str merge;
        st = meta_list_str(r->f, KEY("merges"), i, &merge, r->err);
        if (st == ST_OK) st = add_merge(r, merge, (uint32_t)i, &joined);
    }
    buf_deinit(&joined);
    return st;
}

static void add_digits(struct pretok_chain *c, enum pretok_kind kind) {
    c->steps[c->count++] = (struct pretok_step){.kind = kind, .behavior = SPLIT_ISOLATED};
}

static enum status add_pretok(struct gguf_reader *r) {
    struct pretok_chain *c = &r->t->pretok;
    const struct pretok_name *pre = r->pre;
    if (pre->digits && !pre->digits_last) add_digits(c, (enum pretok_kind)pre->digits);
    for (size_t i = 0; i < 6 && pre->splits[i]; i++) {
        struct pretok_step *step = &c->steps[c->count];
        *step = (struct pretok_step){.kind = PRETOK_SPLIT, .behavior = SPLIT_ISOLATED};
        TRY(regex_create(str_of(pre->splits[i]), KEY("pre"), &step->pattern.re, r->err));
        c->count++;
    }
    if (pre->digits && pre->digits_last) add_digits(c, (enum pretok_kind)pre->digits);
    c->steps[c->count++] = (struct pretok_step){.kind = PRETOK_BYTE_LEVEL};
    c->raw_bytes = true;
    return ST_OK;
}

static enum status find_pre(struct gguf_reader *r) {
    struct str name = STR("default");
    bool found;
    TRY(meta_str(r->f, KEY("pre"), &found, &name, r->err));
    r->pre = pretok_name_find(name);
    if (r->pre) return ST_OK;
    return err_set(r->err, ST_BAD, KEY("pre") ": pre-tokenizer \"%.*s\" is not known",
                   STR_ARG(name));
}

static enum status read_bpe(struct gguf_reader *r) {
    r->t->model = TOK_BPE;
    TRY(find_pre(r));
    r->add_bos = r->pre->add_bos;
    r->add_sep = r->pre->add_sep;
    TRY(read_vocab(r, false));
    TRY(read_specials(r));
    TRY(read_merges(r));
    bpe_fill_bytes(&r->t->vocab, &r->t->bpe);
    r->t->bpe.ignore_merges = r->pre->ignore_merges;
    if (r->t->bpe.ignore_merges) TRY(bpe_index_raw(&r->t->vocab, &r->t->bpe));
    TRY(add_pretok(r));
    add_stage(r->t, DECODER_BYTE_LEVEL);
    return ST_OK;
}

/* A mark for each blank, and one before the text: behind every special token, as llama.cpp has it,
 * or only at the start. */
static enum status add_spm_marks(struct gguf_reader *r) {
    struct norm_chain *n = &r->t->norm;
    struct pretok_chain *p = &r->t->pretok;
    if (r->add_prefix && r->prefix_first) {
        p->steps[p->count++] = (struct pretok_step){
            .kind = PRETOK_METASPACE, .prepend = PREPEND_FIRST, .code = BLANK_CODE};
        return ST_OK;
    }
    if (r->add_prefix)
        n->steps[n->count++] = (struct norm_step){.kind = NORM_PREPEND, .text = STR(BLANK_MARK)};
    n->steps[n->count] = (struct norm_step){.kind = NORM_REPLACE, .text = STR(BLANK_MARK)};
    return add_literal(&n->steps[n->count++].pattern, STR(" "));
}

static enum status read_spm(struct gguf_reader *r) {
    r->t->model = TOK_SPM;
    r->add_bos = r->add_prefix = true;
    TRY(read_vocab(r, true));
    r->bos = r->t->vocab.count > 1 ? 1 : TOKEN_NONE;
    r->eos = r->t->vocab.count > 2 ? 2 : TOKEN_NONE;
    r->unk = 0;
    TRY(read_specials(r));
    bpe_fill_bytes(&r->t->vocab, &r->t->bpe);
    r->t->bpe.unk = r->unk;
    TRY(bpe_rank_scores(&r->t->vocab, &r->t->bpe));
    bpe_find_words(&r->t->vocab, &r->t->bpe);
    TRY(add_spm_marks(r));
    return add_spm_decoder(r);
}

static enum status read_charsmap(struct gguf_reader *r, struct charsmap **out) {
    uint64_t count = 0;
    if (meta_list(r->f, KEY("precompiled_charsmap"), &count) == META_NONE || count == 0)
        return ST_OK;
    if (count > 1 << 24)
        return err_set(r->err, ST_BAD, KEY("precompiled_charsmap") " has %llu bytes",
                       (unsigned long long)count);
    char *blob = mem_alloc(count);
    if (!blob) return ST_NOMEM;
    enum status st = ST_OK;
    for (uint64_t i = 0; i < count && st == ST_OK; i++) {
        int64_t byte = 0;
        st = meta_list_i64(r->f, KEY("precompiled_charsmap"), i, &byte, r->err);
        blob[i] = (char)byte;
    }
    if (st == ST_OK) st = charsmap_create((struct str){blob, count}, out, r->err);
    mem_free(blob);
    return st;
}

/* A trie of the pieces whose kind is in the set `kinds` (bit per kind). */
static enum status make_trie(const struct vocab *v, uint32_t kinds, struct trie **out) {
    struct trie_entry *entries = mem_alloc_array((size_t)v->count + 1, sizeof(entries[0]));
    if (!entries) return ST_NOMEM;
    size_t count = 0;
    for (uint32_t i = 0; i < v->count; i++)
        if ((kinds >> v->kinds[i] & 1) && v->pieces[i].len)
            entries[count++] = (struct trie_entry){v->pieces[i], i};
    *out = trie_create(entries, count);
    mem_free(entries);
    return *out ? ST_OK : ST_NOMEM;
}

static void find_score_range(const struct vocab *v, struct unigram *u) {
    bool any = false;
    for (uint32_t i = 0; i < v->count; i++) {
        if (v->kinds[i] != PIECE_NORMAL) continue;
        if (!any || v->scores[i] < u->min_score) u->min_score = v->scores[i];
        if (!any || v->scores[i] > u->max_score) u->max_score = v->scores[i];
        any = true;
    }
}

static enum status read_unigram(struct gguf_reader *r) {
    struct tokenizer *t = r->t;
    t->model = TOK_UNIGRAM;
    r->add_eos = r->add_prefix = r->join_blanks = true;
    TRY(read_vocab(r, true));
    r->eos = t->vocab.count > 1 ? 1 : TOKEN_NONE;
    r->unk = t->vocab.count > 2 ? 2 : 0;
    TRY(read_specials(r));
    struct unigram *u = &t->unigram;
    u->spm = true;
    u->unk = r->unk;
    find_score_range(&t->vocab, u);
    bpe_fill_bytes(&t->vocab, &t->bpe);
    memcpy(u->fallback_ids, t->bpe.fallback_ids, sizeof(u->fallback_ids));
    u->byte_fallback = u->fallback_ids[0] != TOKEN_NONE;
    TRY(make_trie(&t->vocab, 1u << PIECE_NORMAL | 1u << PIECE_USER | 1u << PIECE_UNUSED, &u->trie));
    TRY(make_trie(&t->vocab, 1u << PIECE_USER, &t->user));
    struct norm_step *step = &t->norm.steps[t->norm.count++];
    *step = (struct norm_step){.kind = NORM_SPM,
                               .join_blanks = r->join_blanks,
                               .add_blank = r->add_prefix,
                               .user = t->user};
    TRY(read_charsmap(r, &step->map));
    return add_spm_decoder(r);
}

/* Pieces that begin a word are written with U+2581 in front, the others without. */
static enum status fill_wordpiece(struct tokenizer *t) {
    const struct vocab *v = &t->vocab;
    struct str mark = STR(BLANK_MARK);
    struct trie_entry *start = mem_alloc_array((size_t)v->count + 1, sizeof(start[0]));
    struct trie_entry *inside = mem_alloc_array((size_t)v->count + 1, sizeof(inside[0]));
    size_t start_count = 0, inside_count = 0;
    for (uint32_t i = 0; start && inside && i < v->count; i++) {
        struct str text = v->pieces[i];
        if (v->kinds[i] == PIECE_CONTROL || v->kinds[i] == PIECE_UNKNOWN || !text.len) continue;
        if (str_starts(text, mark))
            start[start_count++] = (struct trie_entry){str_skip(text, mark.len), i};
        else
            inside[inside_count++] = (struct trie_entry){text, i};
    }
    if (start && inside) {
        t->wordpiece.start = trie_create(start, start_count);
        t->wordpiece.inside = trie_create(inside, inside_count);
    }
    mem_free(start);
    mem_free(inside);
    return t->wordpiece.start && t->wordpiece.inside ? ST_OK : ST_NOMEM;
}

static enum status read_wordpiece(struct gguf_reader *r) {
    struct tokenizer *t = r->t;
    t->model = TOK_WORDPIECE;
    r->add_bos = r->add_sep = true;
    TRY(read_vocab(r, false));
    struct {
        const char *text;
        token_id *id;
    } usual[] = {{"[CLS]", &r->bos}, {"[SEP]", &r->sep}, {"[UNK]", &r->unk}};
    for (size_t i = 0; i < 3; i++) *usual[i].id = tokenizer_find(t, str_of(usual[i].text));
    TRY(read_specials(r));
    if (r->unk == TOKEN_NONE)
        return err_set(r->err, ST_BAD, "no " KEY("unknown_token_id") " in this file");
    t->wordpiece.unk = r->unk;
    t->wordpiece.word_chars_max = 100;
    TRY(fill_wordpiece(t));
    t->norm.steps[t->norm.count++] = (struct norm_step){
        .kind = NORM_BERT, .clean = true, .cjk = true, .accents = true, .lower = true};
    t->pretok.steps[t->pretok.count++] =
        (struct pretok_step){.kind = PRETOK_BERT, .behavior = SPLIT_REMOVED};
    struct decoder_stage *s = add_stage(t, DECODER_WORDSTART);
    s->text = STR(BLANK_MARK);
    s->cleanup = true;
    return ST_OK;
}

static enum status read_templates(struct gguf_reader *r) {
    struct str text;
    bool found;
    TRY(meta_str(r->f, "tokenizer.chat_template", &found, &text, r->err));
    if (found) TRY(text_dup(r->t, text, &r->t->chat_template));
    TRY(meta_str(r->f, "tokenizer.chat_template.tool_use", &found, &text, r->err));
    if (found) TRY(text_dup(r->t, text, &r->t->chat_template_tools));
    return ST_OK;
}

static enum status read_model(struct gguf_reader *r) {
    struct str model;
    bool found;
    TRY(meta_str(r->f, KEY("model"), &found, &model, r->err));
    if (!found) return err_set(r->err, ST_BAD, "no " KEY("model") " in this file");
    if (str_is(model, "gpt2")) return read_bpe(r);
    if (str_is(model, "llama")) return read_spm(r);
    if (str_is(model, "t5")) return read_unigram(r);
    if (str_is(model, "bert")) return read_wordpiece(r);
    if (str_is(model, "none") || str_is(model, "no_vocab"))
        return err_set(r->err, ST_BAD, "this file has no vocabulary (" KEY("model") " is \"%.*s\")",
                       STR_ARG(model));
    return err_set(r->err, ST_BAD, KEY("model") ": tokenizer \"%.*s\" is not supported",
                   STR_ARG(model));
}

static void mark_ends(struct gguf_reader *r) {
    token_id ids[] = {r->eot, r->eom};
    for (size_t i = 0; i < 2; i++)
        if (ids[i] != TOKEN_NONE) r->t->more_ends[r->t->more_end_count++] = ids[i];
}

enum status tokenizer_read_gguf(struct tokenizer *t, struct model_file *f, struct err *err) {
    struct gguf_reader r = {.t = t, .f = f, .err = err};
    r.bos = r.eos = r.eot = r.eom = r.unk = r.sep = TOKEN_NONE;
    TRY(read_model(&r));
    t->bos = r.bos;
    t->eos = r.eos;
    mark_ends(&r);
    TRY(add_post(&r));
    TRY(read_added(&r));
    return read_templates(&r);
}
