/* translate/folder_tokens.c - tokenizer.json and tokenizer_config.json from the keys of
 * tokenizer.ggml.
 *
 * Every piece is in the vocabulary; those that are cut out of a text are among the added tokens as
 * well. A GGUF's patterns become Split steps, its rules for SentencePiece the steps that folders of
 * such models have.
 */
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "format/model_file.h"
#include "model/model.h"
#include "text/pretok.h"
#include "text/tokenizer.h"
#include "translate/around.h"
#include "translate/translate_int.h"

#define KEY(name) "tokenizer.ggml." name
#define BLANK_MARK "\xE2\x96\x81"

enum { PIECE_TEXT_BYTES = 1 << 16 };

static enum status no_memory(const struct to_folder *f) {
    return err_set(f->err, ST_NOMEM, "%s: out of memory for its vocabulary",
                   model_file_path(f->gguf));
}

static enum status read_flag(const struct to_folder *f, const char *key, bool *flag) {
    bool found;
    return meta_bool(f->gguf, key, &found, flag, f->err);
}

/* ---- Added tokens ---- */

enum status folder_token_type(const struct to_folder *f, uint32_t id, enum token_type *out) {
    uint64_t count;
    int64_t type = TYPE_NORMAL;
    *out = TYPE_NORMAL;
    if (meta_list(f->gguf, KEY("token_type"), &count) == META_NONE || id >= count) return ST_OK;
    TRY(meta_list_i64(f->gguf, KEY("token_type"), id, &type, f->err));
    if (type >= TYPE_NORMAL && type <= TYPE_BYTE) *out = (enum token_type)type;
    return ST_OK;
}

/* Does the token include a blank behind it? */
static enum status strips_right(const struct to_folder *f, token_id id, bool *out) {
    const struct encode_options usual = {0};
    struct tokens ids = {0};
    struct buf text;
    buf_init(&text, PIECE_TEXT_BYTES);
    buf_put_str(&text, tokenizer_piece(f->tokenizer, id));
    buf_put_char(&text, ' ');
    enum status st = buf_status(&text);
    if (st == ST_OK) st = tokenizer_encode(f->tokenizer, buf_str(&text), usual, &ids);
    *out = ids.count == 1 && ids.ids[0] == id;
    tokens_deinit(&ids);
    buf_deinit(&text);
    return st == ST_OK ? ST_OK : no_memory(f);
}

static enum status put_added_token(const struct to_folder *f, uint32_t id, bool is_special,
                                   bool is_first, struct buf *out) {
    bool strips;
    TRY(strips_right(f, (token_id)id, &strips));
    buf_printf(out, "%s{\"id\":%u,\"content\":", is_first ? "" : ",\n", id);
    buf_put_json_string(out, tokenizer_piece(f->tokenizer, (token_id)id));
    buf_printf(out,
               ",\"single_word\":false,\"lstrip\":false,\"rstrip\":%s,\"normalized\":false,"
               "\"special\":%s}",
               strips ? "true" : "false", is_special ? "true" : "false");
    return ST_OK;
}

static enum status put_added(const struct to_folder *f, struct buf *out) {
    bool is_first = true;
    buf_put_text(out, "\"added_tokens\":[");
    for (uint32_t i = 0; i < tokenizer_vocab(f->tokenizer); i++) {
        enum token_type type;
        TRY(folder_token_type(f, i, &type));
        bool is_special = type == TYPE_CONTROL || type == TYPE_UNKNOWN;
        if (!is_special && type != TYPE_USER) continue;
        if (tokenizer_piece(f->tokenizer, (token_id)i).len == 0) continue;
        TRY(put_added_token(f, i, is_special, is_first, out));
        is_first = false;
    }
    buf_put_text(out, "],\n");
    return ST_OK;
}

/* ---- Around a text ---- */

static void put_item(const struct to_folder *f, token_id id, bool is_before, struct buf *out) {
    if (id == TOKEN_NONE) return;
    if (!is_before) buf_put_char(out, ',');
    buf_put_text(out, "{\"SpecialToken\":{\"id\":");
    buf_put_json_string(out, tokenizer_piece(f->tokenizer, id));
    buf_put_text(out, ",\"type_id\":0}}");
    if (is_before) buf_put_char(out, ',');
}

static void put_sequence(const struct to_folder *f, const struct around *a, const char *name,
                         struct buf *out) {
    put_item(f, a->before, true, out);
    buf_printf(out, "{\"Sequence\":{\"id\":\"%s\",\"type_id\":0}}", name);
    put_item(f, a->after, false, out);
}

static void put_special(const struct to_folder *f, token_id id, struct buf *out) {
    struct str piece = tokenizer_piece(f->tokenizer, id);
    buf_put_json_string(out, piece);
    buf_put_text(out, ":{\"id\":");
    buf_put_json_string(out, piece);
    buf_printf(out, ",\"ids\":[%d],\"tokens\":[", id);
    buf_put_json_string(out, piece);
    buf_put_text(out, "]}");
}

static enum status put_post(const struct to_folder *f, struct buf *out) {
    struct around a;
    if (around_find(f->tokenizer, &a) != ST_OK) return no_memory(f);
    buf_put_text(out, "\"post_processor\":");
    if (a.before == TOKEN_NONE && a.after == TOKEN_NONE) {
        buf_put_text(out, "null,\n");
        return ST_OK;
    }
    buf_put_text(out, "{\"type\":\"TemplateProcessing\",\"single\":[");
    put_sequence(f, &a, "A", out);
    buf_put_text(out, "],\"pair\":[");
    put_sequence(f, &a, "A", out);
    buf_put_char(out, ',');
    put_sequence(f, &a, "B", out);
    buf_put_text(out, "],\"special_tokens\":{");
    if (a.before != TOKEN_NONE) put_special(f, a.before, out);
    if (a.before != TOKEN_NONE && a.after != TOKEN_NONE && a.after != a.before)
        buf_put_char(out, ',');
    if (a.after != TOKEN_NONE && a.after != a.before) put_special(f, a.after, out);
    buf_put_text(out, "}},\n");
    return ST_OK;
}

/* ---- Models ---- */

static void put_vocab(const struct to_folder *f, struct buf *out) {
    bool is_first = true;
    buf_put_text(out, "\"vocab\":{");
    for (uint32_t i = 0; i < tokenizer_vocab(f->tokenizer); i++) {
        struct str piece = tokenizer_piece(f->tokenizer, (token_id)i);
        if (piece.len == 0) continue;
        if (!is_first) buf_put_text(out, ",\n");
        is_first = false;
        buf_put_json_string(out, piece);
        buf_printf(out, ":%u", i);
    }
    buf_put_text(out, "},\n");
}

void folder_put_merge(struct str left, struct str right, bool is_first, struct buf *out) {
    buf_put_text(out, is_first ? "[" : ",\n[");
    buf_put_json_string(out, left);
    buf_put_char(out, ',');
    buf_put_json_string(out, right);
    buf_put_char(out, ']');
}

/* Does the vocabulary have both pieces and what they give? */
static bool is_usable(const struct to_folder *f, struct str left, struct str right,
                      struct buf *joined) {
    buf_clear(joined);
    buf_put_str(joined, left);
    buf_put_str(joined, right);
    return tokenizer_find(f->tokenizer, left) != TOKEN_NONE &&
           tokenizer_find(f->tokenizer, right) != TOKEN_NONE &&
           tokenizer_find(f->tokenizer, buf_str(joined)) != TOKEN_NONE;
}

/* "left right", which the reader of the GGUF has checked; it leaves out what the vocabulary
 * lacks. */
static enum status put_merges(const struct to_folder *f, struct buf *out) {
    uint64_t count = 0;
    bool is_first = true;
    struct buf joined;
    enum status st = ST_OK;
    meta_list(f->gguf, KEY("merges"), &count);
    buf_init(&joined, PIECE_TEXT_BYTES);
    for (uint64_t i = 0; i < count && st == ST_OK && buf_status(&joined) == ST_OK; i++) {
        struct str merge = {0};
        st = meta_list_str(f->gguf, KEY("merges"), i, &merge, f->err);
        const char *blank = merge.len > 1 ? memchr(merge.ptr + 1, ' ', merge.len - 1) : NULL;
        if (st != ST_OK || !blank) continue;
        struct str left = str_take(merge, (size_t)(blank - merge.ptr));
        struct str right = str_skip(merge, left.len + 1);
        if (!is_usable(f, left, right, &joined)) continue;
        folder_put_merge(left, right, is_first, out);
        is_first = false;
    }
    if (st == ST_OK && buf_status(&joined) != ST_OK) st = no_memory(f);
    buf_deinit(&joined);
    return st;
}

static void put_digits(struct buf *out) {
    buf_put_text(out, "{\"type\":\"Digits\",\"individual_digits\":true},\n");
}

static void put_split(const char *pattern, struct buf *out) {
    buf_put_text(out, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
    buf_put_json_string(out, str_of(pattern));
    buf_put_text(out, "},\"behavior\":\"Isolated\",\"invert\":false},\n");
}

static enum status put_pretok(const struct to_folder *f, const struct pretok_name *pre,
                              struct buf *out) {
    if (pre->digits && pre->digits != PRETOK_DIGITS)
        return err_set(f->err, ST_BAD,
                       "%s: " KEY("pre") " \"%s\" counts digits in threes from the right, which a "
                                         "tokenizer.json cannot say",
                       model_file_path(f->gguf), pre->name);
    buf_put_text(out, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[\n");
    if (pre->digits && !pre->digits_last) put_digits(out);
    for (size_t i = 0; i < sizeof(pre->splits) / sizeof(pre->splits[0]) && pre->splits[i]; i++)
        put_split(pre->splits[i], out);
    if (pre->digits && pre->digits_last) put_digits(out);
    buf_put_text(out, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
                      "\"use_regex\":false}]},\n");
    return ST_OK;
}

static enum status put_bytes(const struct to_folder *f, struct buf *out) {
    struct str name = STR("default");
    bool found;
    TRY(meta_str(f->gguf, KEY("pre"), &found, &name, f->err));
    const struct pretok_name *pre = pretok_name_find(name);
    CHECK(pre); /* the tokenizer has been created */
    buf_put_text(out, "\"normalizer\":null,\n");
    TRY(put_pretok(f, pre, out));
    TRY(put_post(f, out));
    buf_printf(out,
               "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
               "\"trim_offsets\":true,\"use_regex\":true},\n"
               "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
               "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
               "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":%s,\n",
               pre->ignore_merges ? "true" : "false");
    put_vocab(f, out);
    buf_put_text(out, "\"merges\":[");
    TRY(put_merges(f, out));
    buf_put_text(out, "]}}\n");
    return ST_OK;
}

/* at_start: the prefix is only before the whole text. */
static void put_spm_normalizer(bool has_prefix, bool at_start, struct buf *out) {
    static const char replace[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                                  "\"content\":\"" BLANK_MARK "\"}";
    static const char prepend[] = "{\"type\":\"Prepend\",\"prepend\":\"" BLANK_MARK "\"}";
    if (has_prefix && at_start) {
        buf_put_text(out, "\"normalizer\":null,\n\"pre_tokenizer\":{\"type\":\"Metaspace\","
                          "\"replacement\":\"" BLANK_MARK "\",\"prepend_scheme\":\"first\","
                          "\"split\":false},\n");
        return;
    }
    if (has_prefix)
        buf_printf(out, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s,%s]},\n",
                   prepend, replace);
    else
        buf_printf(out, "\"normalizer\":%s,\n", replace);
    buf_put_text(out, "\"pre_tokenizer\":null,\n");
}

static void put_spm_decoder(bool has_prefix, struct buf *out) {
    buf_put_text(out, "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
                      "\"pattern\":{\"String\":\"" BLANK_MARK "\"},\"content\":\" \"},"
                      "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}");
    if (has_prefix)
        buf_put_text(out, ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}");
    buf_put_text(out, "]},\n");
}

static enum status put_spm(const struct to_folder *f, struct buf *out) {
    bool has_prefix = true, at_start = false, found = false;
    uint64_t unk = 0;
    TRY(read_flag(f, KEY("add_space_prefix"), &has_prefix));
    TRY(read_flag(f, "jitney.tokenizer.space_prefix_first", &at_start));
    TRY(meta_u64(f->gguf, KEY("unknown_token_id"), &found, &unk, f->err));
    put_spm_normalizer(has_prefix, at_start, out);
    TRY(put_post(f, out));
    put_spm_decoder(has_prefix, out);
    buf_put_text(out, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":");
    buf_put_json_string(out, tokenizer_piece(f->tokenizer, (token_id)unk));
    buf_put_text(out, ",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                      "\"fuse_unk\":true,\"byte_fallback\":true,\"ignore_merges\":false,\n");
    put_vocab(f, out);
    buf_put_text(out, "\"merges\":[");
    TRY(folder_put_spm_merges(f, out));
    buf_put_text(out, "]}}\n");
    return ST_OK;
}

enum status folder_put_tokenizer(const struct to_folder *f, struct buf *out) {
    const char *model = tokenizer_model(f->tokenizer);
    bool is_bytes = strcmp(model, "bpe") == 0;
    if (!is_bytes && strcmp(model, "spm") != 0)
        return err_set(f->err, ST_BAD, "%s: a tokenizer of kind %s cannot become a folder's yet",
                       model_file_path(f->gguf), model);
    buf_put_text(out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n");
    TRY(put_added(f, out));
    return is_bytes ? put_bytes(f, out) : put_spm(f, out);
}

/* ---- tokenizer_config.json ---- */

static void put_token(const struct to_folder *f, const char *key, token_id id, struct buf *out) {
    struct str piece = tokenizer_piece(f->tokenizer, id);
    if (piece.len == 0) return;
    buf_printf(out, "  \"%s\": ", key);
    buf_put_json_string(out, piece);
    buf_put_text(out, ",\n");
}

static enum status put_token_of_key(const struct to_folder *f, const char *name, const char *key,
                                    struct buf *out) {
    uint64_t id = 0;
    bool found = false;
    TRY(meta_u64(f->gguf, key, &found, &id, f->err));
    if (found && id < tokenizer_vocab(f->tokenizer)) put_token(f, name, (token_id)id, out);
    return ST_OK;
}

static void put_template(const char *name, struct str text, struct buf *out) {
    buf_printf(out, "{\"name\": \"%s\", \"template\": ", name);
    buf_put_json_string(out, text);
    buf_put_char(out, '}');
}

/* A text, or a list where there is one for tools. */
static void put_templates(const struct to_folder *f, struct buf *out) {
    struct str usual = tokenizer_chat_template(f->tokenizer, false);
    struct str tools = tokenizer_chat_template(f->tokenizer, true);
    if (usual.len == 0 && tools.len == 0) return;
    buf_put_text(out, "  \"chat_template\": ");
    if (str_eq(usual, tools)) {
        buf_put_json_string(out, usual);
    } else {
        buf_put_char(out, '[');
        put_template("default", usual, out);
        buf_put_text(out, ", ");
        put_template("tool_use", tools, out);
        buf_put_char(out, ']');
    }
    buf_put_text(out, ",\n");
}

enum status folder_put_tokenizer_config(const struct to_folder *f, struct buf *out) {
    struct around a;
    if (around_find(f->tokenizer, &a) != ST_OK) return no_memory(f);
    buf_put_text(out, "{\n");
    put_token(f, "bos_token", tokenizer_bos(f->tokenizer), out);
    put_token(f, "eos_token", tokenizer_eos(f->tokenizer), out);
    TRY(put_token_of_key(f, "unk_token", KEY("unknown_token_id"), out));
    TRY(put_token_of_key(f, "pad_token", KEY("padding_token_id"), out));
    put_templates(f, out);
    buf_printf(out,
               "  \"add_bos_token\": %s,\n  \"add_eos_token\": %s,\n"
               "  \"clean_up_tokenization_spaces\": false,\n  \"model_max_length\": %u,\n"
               "  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n",
               a.before == TOKEN_NONE ? "false" : "true", a.after == TOKEN_NONE ? "false" : "true",
               f->model->hp.ctx_train);
    return ST_OK;
}
