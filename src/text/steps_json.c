/* text/steps_json.c - normalisers, pre-tokenizers and decoders of a tokenizer.json.
 *
 * Each chain is a tree of "Sequence" nodes in the file and a flat list here. To add a step:
 * its kind in normalize.h, pretok.h or decoder.h, its work in the .c beside it, a row here.
 */
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/text_int.h"

static bool is_absent(const struct json *v) {
    return json_kind(v) == JS_NONE || json_kind(v) == JS_NULL;
}

static bool flag(const struct json *v, const char *key, bool fallback) {
    return json_bool(json_get(v, key), fallback);
}

/* {"String": "x"} or {"Regex": "x"}. */
enum status pattern_read(struct pattern *p, const struct json *v, const char *what,
                         struct err *err) {
    const struct json *regex = json_get(v, "Regex"), *text = json_get(v, "String");
    if (regex) return regex_create(json_str(regex), what, &p->re, err);
    if (json_kind(v) == JS_TEXT) text = v;
    if (json_kind(text) != JS_TEXT)
        return err_set(err, ST_BAD, "%s: \"pattern\" is neither a String nor a Regex", what);
    p->literal = mem_dup(json_str(text).ptr, json_str(text).len);
    p->literal_len = json_str(text).len;
    return p->literal ? ST_OK : ST_NOMEM;
}

/* A key whose value is one character. */
static enum status read_char(const struct json *v, const char *key, const char *what,
                             uint32_t *code, struct err *err) {
    struct str text = json_str(json_get(v, key));
    if (text.len && utf8_decode(text, code) == text.len && !utf8_is_bad(*code)) return ST_OK;
    return err_set(err, ST_BAD, "%s: \"%s\" is not one character", what, key);
}

struct chain_reader {
    struct tokenizer *t;
    struct err *err;
    const char *what; /* "normalizer", for error messages */
    const char *list; /* the key of a Sequence's parts */
    enum status (*read_step)(struct chain_reader *r, struct str type, const struct json *v);
};

/* Walk the tree in order, depth first, without recursion: a path of (list, next index). */
static enum status read_chain(struct chain_reader *r, const struct json *v) {
    struct {
        const struct json *list;
        size_t next;
    } path[NESTING_MAX];
    uint32_t depth = 0;
    for (;;) {
        struct str type = json_str(json_get(v, "type"));
        if (str_is(type, "Sequence")) {
            if (depth == NESTING_MAX)
                return err_set(r->err, ST_BAD, "%s: sequences nested too deep", r->what);
            path[depth].list = json_get(v, r->list);
            path[depth++].next = 0;
        } else {
            TRY(r->read_step(r, type, v));
        }
        while (depth && path[depth - 1].next == json_count(path[depth - 1].list)) depth--;
        if (!depth) return ST_OK;
        v = json_at(path[depth - 1].list, path[depth - 1].next++);
    }
}

static enum status unsupported(struct chain_reader *r, struct str type) {
    return err_set(r->err, ST_BAD, "%s \"%.*s\" is not supported", r->what, STR_ARG(type));
}

static enum status too_many(struct chain_reader *r) {
    return err_set(r->err, ST_BAD, "%s: more than %d steps", r->what, STEPS_MAX);
}

/* ---- normalisers ---- */

static int base64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static bool base64_decode(struct str in, struct buf *out) {
    uint32_t bits = 0, held = 0;
    while (in.len && in.ptr[in.len - 1] == '=') in.len--;
    for (size_t i = 0; i < in.len; i++) {
        int digit = base64_digit(in.ptr[i]);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held < 8) continue;
        held -= 8;
        buf_put_char(out, (char)(bits >> held & 0xFF));
    }
    return true;
}

static enum status read_charsmap(const struct json *v, struct charsmap **out, struct err *err) {
    struct str text = json_str(json_get(v, "precompiled_charsmap"));
    if (!text.len) return ST_OK;
    struct buf blob;
    buf_init(&blob, 1 << 24);
    enum status st = ST_OK;
    if (!base64_decode(text, &blob) || buf_status(&blob) == ST_FULL)
        st = err_set(err, ST_BAD, "normalizer Precompiled: not base64 of at most 16 MiB");
    if (st == ST_OK) st = buf_status(&blob);
    if (st == ST_OK) st = charsmap_create(buf_str(&blob), out, err);
    buf_deinit(&blob);
    return st;
}

static void read_bert(const struct json *v, struct norm_step *s) {
    s->clean = flag(v, "clean_text", true);
    s->cjk = flag(v, "handle_chinese_chars", true);
    s->lower = flag(v, "lowercase", true);
    s->accents = flag(v, "strip_accents", s->lower); /* null: as lowercase */
}

static bool simple_norm(struct str type, struct norm_step *s) {
    static const struct {
        const char *type;
        enum norm_kind kind;
        enum nf_form form;
    } rows[] = {
        {"Lowercase", NORM_LOWER, 0}, {"NFC", NORM_NF, NF_C},
        {"NFD", NORM_NF, NF_D},       {"NFKC", NORM_NF, NF_KC},
        {"NFKD", NORM_NF, NF_KD},     {"StripAccents", NORM_STRIP_ACCENTS, 0},
        {"Nmt", NORM_NMT, 0},         {"ByteLevel", NORM_BYTE_LEVEL, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!str_is(type, rows[i].type)) continue;
        s->kind = rows[i].kind;
        s->form = rows[i].form;
        return true;
    }
    return false;
}

static enum status read_norm(struct chain_reader *r, struct str type, const struct json *v) {
    struct norm_chain *c = &r->t->norm;
    if (c->count == STEPS_MAX) return too_many(r);
    struct norm_step *s = &c->steps[c->count++];
    *s = (struct norm_step){0};
    if (simple_norm(type, s)) return ST_OK;
    if (str_is(type, "BertNormalizer")) {
        s->kind = NORM_BERT;
        read_bert(v, s);
        return ST_OK;
    }
    if (str_is(type, "Strip")) {
        s->kind = NORM_STRIP;
        s->left = flag(v, "strip_left", true);
        s->right = flag(v, "strip_right", true);
        return ST_OK;
    }
    if (str_is(type, "Replace")) {
        s->kind = NORM_REPLACE;
        TRY(text_dup(r->t, json_str(json_get(v, "content")), &s->text));
        return pattern_read(&s->pattern, json_get(v, "pattern"), "normalizer Replace", r->err);
    }
    if (str_is(type, "Prepend")) {
        s->kind = NORM_PREPEND;
        return text_dup(r->t, json_str(json_get(v, "prepend")), &s->text);
    }
    if (str_is(type, "Precompiled")) {
        s->kind = NORM_PRECOMPILED;
        return read_charsmap(v, &s->map, r->err);
    }
    c->count--;
    return unsupported(r, type);
}

enum status norm_read(struct tokenizer *t, const struct json *v, struct err *err) {
    struct chain_reader r = {t, err, "normalizer", "normalizers", read_norm};
    return is_absent(v) ? ST_OK : read_chain(&r, v);
}

/* ---- pre-tokenizers ---- */

static enum status read_behavior(struct chain_reader *r, const struct json *v,
                                 struct pretok_step *s) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    struct str name = json_str(json_get(v, "behavior"));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!str_is(name, names[i])) continue;
        s->behavior = (enum split_behavior)i;
        return ST_OK;
    }
    return err_set(r->err, ST_BAD, "pre_tokenizer: behavior \"%.*s\" is not supported",
                   STR_ARG(name));
}

static enum status read_byte_level(struct chain_reader *r, const struct json *v,
                                   struct pretok_step *s) {
    s->kind = PRETOK_BYTE_LEVEL;
    s->add_prefix = flag(v, "add_prefix_space", true);
    s->use_regex = flag(v, "use_regex", true);
    if (!s->use_regex || r->t->pretok.gpt2) return ST_OK;
    return regex_create(str_of(pretok_gpt2_pattern), "pre_tokenizer ByteLevel", &r->t->pretok.gpt2,
                        r->err);
}

static enum status read_prepend(const struct json *v, enum prepend_scheme *scheme, const char *what,
                                struct err *err) {
    struct str name = json_str(json_get(v, "prepend_scheme"));
    *scheme = flag(v, "add_prefix_space", true) ? PREPEND_ALWAYS : PREPEND_NEVER;
    if (!name.len) return ST_OK;
    static const char *const names[] = {"never", "first", "always"};
    for (size_t i = 0; i < 3; i++) {
        if (!str_is(name, names[i])) continue;
        *scheme = (enum prepend_scheme)i;
        return ST_OK;
    }
    return err_set(err, ST_BAD, "%s: prepend_scheme \"%.*s\" is not supported", what,
                   STR_ARG(name));
}

static enum status read_metaspace(struct chain_reader *r, const struct json *v,
                                  struct pretok_step *s) {
    s->kind = PRETOK_METASPACE;
    s->split = flag(v, "split", true);
    TRY(read_prepend(v, &s->prepend, "pre_tokenizer Metaspace", r->err));
    return read_char(v, "replacement", "pre_tokenizer Metaspace", &s->code, r->err);
}

static bool simple_pretok(struct str type, const struct json *v, struct pretok_step *s) {
    bool each = flag(v, "individual_digits", false);
    const struct {
        const char *type;
        enum pretok_kind kind;
        enum split_behavior behavior;
    } rows[] = {
        {"Digits", each ? PRETOK_DIGITS : PRETOK_DIGIT_RUNS,
         each ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS},
        {"Whitespace", PRETOK_WORDS, SPLIT_REMOVED},
        {"WhitespaceSplit", PRETOK_BLANKS, SPLIT_REMOVED},
        {"BertPreTokenizer", PRETOK_BERT, SPLIT_REMOVED},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!str_is(type, rows[i].type)) continue;
        s->kind = rows[i].kind;
        s->behavior = rows[i].behavior;
        return true;
    }
    return false;
}

static enum status read_pretok(struct chain_reader *r, struct str type, const struct json *v) {
    struct pretok_chain *c = &r->t->pretok;
    if (c->count == STEPS_MAX) return too_many(r);
    struct pretok_step *s = &c->steps[c->count++];
    *s = (struct pretok_step){0};
    if (simple_pretok(type, v, s)) return ST_OK;
    if (str_is(type, "ByteLevel")) return read_byte_level(r, v, s);
    if (str_is(type, "Metaspace")) return read_metaspace(r, v, s);
    if (str_is(type, "Split")) {
        s->kind = PRETOK_SPLIT;
        s->invert = flag(v, "invert", false);
        TRY(read_behavior(r, v, s));
        return pattern_read(&s->pattern, json_get(v, "pattern"), "pre_tokenizer Split", r->err);
    }
    if (str_is(type, "Punctuation")) {
        s->kind = PRETOK_PUNCT;
        s->behavior = SPLIT_ISOLATED;
        return json_get(v, "behavior") ? read_behavior(r, v, s) : ST_OK;
    }
    if (str_is(type, "CharDelimiterSplit")) {
        s->kind = PRETOK_CHAR;
        return read_char(v, "delimiter", "pre_tokenizer CharDelimiterSplit", &s->code, r->err);
    }
    c->count--;
    return unsupported(r, type);
}

enum status pretok_read(struct tokenizer *t, const struct json *v, struct err *err) {
    struct chain_reader r = {t, err, "pre_tokenizer", "pretokenizers", read_pretok};
    return is_absent(v) ? ST_OK : read_chain(&r, v);
}

/* ---- decoders ---- */

static enum status read_strip(struct chain_reader *r, const struct json *v,
                              struct decoder_stage *s) {
    int64_t start = json_int(json_get(v, "start"), 0), stop = json_int(json_get(v, "stop"), 0);
    s->kind = DECODER_STRIP;
    s->start = start < 0 ? 0 : start > INT32_MAX ? INT32_MAX : (uint32_t)start;
    s->stop = stop < 0 ? 0 : stop > INT32_MAX ? INT32_MAX : (uint32_t)stop;
    return read_char(v, "content", "decoder Strip", &s->code, r->err);
}

static enum status read_decode_metaspace(struct chain_reader *r, const struct json *v,
                                         struct decoder_stage *s) {
    enum prepend_scheme scheme;
    s->kind = DECODER_METASPACE;
    TRY(read_prepend(v, &scheme, "decoder Metaspace", r->err));
    s->drop_first = scheme != PREPEND_NEVER;
    return read_char(v, "replacement", "decoder Metaspace", &s->code, r->err);
}

static struct str text_or(const struct json *v, const char *key, struct str fallback) {
    const struct json *text = json_get(v, key);
    return json_kind(text) == JS_TEXT ? json_str(text) : fallback;
}

static enum status read_decode_ctc(struct chain_reader *r, const struct json *v,
                                   struct decoder_stage *s) {
    s->kind = DECODER_CTC;
    s->cleanup = flag(v, "cleanup", true);
    TRY(text_dup(r->t, text_or(v, "pad_token", STR("<pad>")), &s->text));
    return text_dup(r->t, text_or(v, "word_delimiter_token", STR("|")), &s->delimiter);
}

static bool simple_decode(struct str type, struct decoder_stage *s) {
    static const struct {
        const char *type;
        enum decoder_kind kind;
    } rows[] = {{"ByteLevel", DECODER_BYTE_LEVEL},
                {"ByteFallback", DECODER_BYTE_FALLBACK},
                {"Fuse", DECODER_FUSE}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!str_is(type, rows[i].type)) continue;
        s->kind = rows[i].kind;
        return true;
    }
    return false;
}

static enum status read_decode(struct chain_reader *r, struct str type, const struct json *v) {
    struct decoder_chain *c = &r->t->decoder;
    if (c->count == DECODER_STAGES_MAX)
        return err_set(r->err, ST_BAD, "decoder: more than %d stages", DECODER_STAGES_MAX);
    struct decoder_stage *s = &c->stages[c->count++];
    *s = (struct decoder_stage){0};
    if (simple_decode(type, s)) return ST_OK;
    if (str_is(type, "Metaspace")) return read_decode_metaspace(r, v, s);
    if (str_is(type, "Strip")) return read_strip(r, v, s);
    if (str_is(type, "CTC")) return read_decode_ctc(r, v, s);
    if (str_is(type, "WordPiece")) {
        s->kind = DECODER_WORDPIECE;
        s->cleanup = flag(v, "cleanup", true);
        return text_dup(r->t, text_or(v, "prefix", STR("##")), &s->text);
    }
    if (str_is(type, "Replace")) {
        s->kind = DECODER_REPLACE;
        TRY(text_dup(r->t, json_str(json_get(v, "content")), &s->text));
        return pattern_read(&s->pattern, json_get(v, "pattern"), "decoder Replace", r->err);
    }
    if (str_is(type, "BPEDecoder")) {
        s->kind = DECODER_BPE;
        return text_dup(r->t, text_or(v, "suffix", STR("</w>")), &s->text);
    }
    c->count--;
    return unsupported(r, type);
}

enum status decode_read(struct tokenizer *t, const struct json *v, struct err *err) {
    struct chain_reader r = {t, err, "decoder", "decoders", read_decode};
    if (is_absent(v)) {
        t->decoder.stages[t->decoder.count++] = (struct decoder_stage){.kind = DECODER_JOIN};
        return ST_OK;
    }
    TRY(read_chain(&r, v));
    return decoder_check(&t->decoder, err);
}
