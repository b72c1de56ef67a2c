/* translate/check_tokens.c - see translate/check.h for the contract. */
#include <string.h>

#include "base/buf.h"
#include "format/model_file.h"
#include "text/tokenizer.h"
#include "translate/check.h"

/* Runs of ids from all over the vocabulary, made into texts. */
enum { RUNS_MAX = 2048, RUN_TOKENS = 8, TEXT_BYTES = 1 << 20, LAST_TOKENS = 64 };

/* What patterns and normalisers treat differently. All are NFC. */
static const char *const texts[] = {
    "",
    " ",
    "Hello, world!",
    "  two  blanks and   three, then  ",
    "I'm sure you'RE right, they'd say; don't",
    "1234567890 12 345 6,789.01 x2 3y",
    "line one\nline two\r\n\r\n\tindented\n\n  \n",
    "def f(x):\n    return {'a': [1, 2], \"b\": x ** 2}  # code\n",
    "na\xC3\xAFve caf\xC3\xA9 \xC3\x9C"
    "ber Stra\xC3\x9F"
    "e \xC3\xB1",
    "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82, \xD0\xBC\xD0\xB8\xD1\x80",
    "\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C\xE4\xB8\x96\xE7\x95\x8C\xE3\x80\x82\xE3\x81\x93\xE3\x82"
    "\x93\xE3\x81\xAB\xE3\x81\xA1\xE3\x81\xAF",
    "\xF0\x9F\x98\x80\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB \xE2\x82\xAC\xE2\x80\xA6 "
    "\xC2\xA0\xE2\x80\x83x",
    "https://example.org/a-b_c?d=e&f=%20#g user@example.org",
    "ALL CAPS, CamelCase and snake_case... (yes!) [no?] <tag/> ~|`^$+=",
    "aaaaaaaaaaaaaaaaaaaaaaaa                        --------------------------------",
};

struct token_check {
    const struct tokenizer *base, *view;
    const char *path;
    struct err *err;
    bool in_runs;
    struct buf text, decoded[2];
};

static enum status no_memory(const struct token_check *c) {
    return err_set(c->err, ST_NOMEM, "%s: out of memory while its tokenizer is compared", c->path);
}

static enum status say_token(const struct token_check *c, const char *what, token_id id) {
    return err_set(c->err, ST_BAD,
                   "%s: its tokenizer cannot be said in the other kind of file: %s would be "
                   "another: id %d, \"%.*s\"",
                   c->path, what, id, STR_ARG(str_take(tokenizer_piece(c->base, id), 60)));
}

static enum status say_text(const struct token_check *c, struct str text, const char *what) {
    struct str shown = str_take(text, 80);
    return err_set(c->err, ST_BAD,
                   "%s: its tokenizer cannot be said in the other kind of file: this text would "
                   "have other %s: \"%.*s\"%s",
                   c->path, what, STR_ARG(shown), shown.len < text.len ? "..." : "");
}

static bool is_same(const struct tokens *a, const struct tokens *b) {
    return a->count == b->count &&
           (a->count == 0 || memcmp(a->ids, b->ids, a->count * sizeof(a->ids[0])) == 0);
}

/* Ids past the rows of the embedding, which a view leaves out. */
static bool has_left_out(const struct token_check *c, const struct tokens *ids) {
    for (size_t i = 0; i < ids->count; i++)
        if ((uint32_t)ids->ids[i] >= tokenizer_vocab(c->view)) return true;
    return false;
}

static enum status decode_both(struct token_check *c, const struct tokens *ids, bool skip) {
    const struct tokenizer *const both[] = {c->base, c->view};
    for (int i = 0; i < 2; i++) {
        buf_clear(&c->decoded[i]);
        TRY(tokenizer_decode(both[i], ids->ids, ids->count, skip, &c->decoded[i]));
        TRY(buf_status(&c->decoded[i]));
    }
    return ST_OK;
}

/* A run of pieces that a byte-level tokenizer does not give back is not NFC. A GGUF does not say
 * NFC, and it is let pass: then the text tells nothing. */
static bool is_changed(const struct token_check *c, struct str text) {
    return c->in_runs && strcmp(tokenizer_model(c->base), "bpe") == 0 &&
           !str_eq(buf_str(&c->decoded[0]), text);
}

/* Nobody decodes what an encoder reads. */
static bool is_encoder(const struct token_check *c) {
    return strcmp(tokenizer_model(c->base), "wordpiece") == 0;
}

static enum status compare_encoded(struct token_check *c, struct str text,
                                   struct encode_options options, struct tokens ids[2]) {
    ids[0].count = ids[1].count = 0;
    if (tokenizer_encode(c->base, text, options, &ids[0]) != ST_OK) return no_memory(c);
    if (tokenizer_encode(c->view, text, options, &ids[1]) != ST_OK) return no_memory(c);
    if (has_left_out(c, &ids[0])) return ST_OK;
    if (decode_both(c, &ids[0], false) != ST_OK) return no_memory(c);
    if (is_changed(c, text)) return ST_OK;
    if (!is_same(&ids[0], &ids[1])) return say_text(c, text, "tokens");
    if (!is_encoder(c) && !str_eq(buf_str(&c->decoded[0]), buf_str(&c->decoded[1])))
        return say_text(c, text, "characters when it is decoded");
    return ST_OK;
}

static enum status check_text(struct token_check *c, struct str text) {
    static const struct encode_options plain = {.plain_special = true}, usual = {0};
    struct tokens ids[2] = {{0}, {0}};
    enum status st = compare_encoded(c, text, usual, ids);
    if (st == ST_OK) st = compare_encoded(c, text, plain, ids);
    tokens_deinit(&ids[0]);
    tokens_deinit(&ids[1]);
    return st;
}

/* What is put around a text. */
static enum status check_around(struct token_check *c) {
    static const struct encode_options with = {.add_special = true};
    struct tokens ids[2] = {{0}, {0}};
    enum status st = compare_encoded(c, STR("a"), with, ids);
    tokens_deinit(&ids[0]);
    tokens_deinit(&ids[1]);
    return st;
}

/* A special token within a text, with and without blanks beside it. */
static enum status check_within(struct token_check *c, token_id id) {
    struct str piece = tokenizer_piece(c->base, id);
    buf_clear(&c->text);
    for (int i = 0; i < 2; i++) {
        buf_put_text(&c->text, i ? " b " : "a");
        buf_put_str(&c->text, piece);
    }
    buf_put_str(&c->text, piece);
    buf_put_text(&c->text, " \nc");
    if (buf_status(&c->text) != ST_OK) return no_memory(c);
    return check_text(c, buf_str(&c->text));
}

static uint32_t common_vocab(const struct token_check *c) {
    uint32_t a = tokenizer_vocab(c->base), b = tokenizer_vocab(c->view);
    return a < b ? a : b;
}

static enum status check_ids(struct token_check *c) {
    uint32_t count = common_vocab(c);
    bool is_decoder = !is_encoder(c);
    token_id bos = tokenizer_bos(c->base), eos = tokenizer_eos(c->base);
    if (is_decoder && bos != TOKEN_NONE && bos != tokenizer_bos(c->view))
        return say_token(c, "the token that begins a text", bos);
    if (is_decoder && eos != TOKEN_NONE && eos != tokenizer_eos(c->view))
        return say_token(c, "the token that ends a text", eos);
    for (uint32_t i = 0; i < count; i++) {
        token_id id = (token_id)i;
        struct str piece = tokenizer_piece(c->base, id);
        if (is_decoder && piece.len && !str_eq(piece, tokenizer_piece(c->view, id)))
            return say_token(c, "a piece", id);
        if (tokenizer_is_special(c->base, id) != tokenizer_is_special(c->view, id))
            return say_token(c, "whether a token is special", id);
        if (is_decoder && tokenizer_is_end(c->base, id) != tokenizer_is_end(c->view, id))
            return say_token(c, "whether a token ends an answer", id);
        if (tokenizer_is_special(c->base, id) || i + LAST_TOKENS >= count) TRY(check_within(c, id));
    }
    return ST_OK;
}

static enum status check_runs(struct token_check *c) {
    uint32_t count = common_vocab(c);
    uint32_t runs = count / RUN_TOKENS < RUNS_MAX ? count / RUN_TOKENS : RUNS_MAX;
    c->in_runs = true;
    for (uint32_t r = 0; r < runs; r++) {
        uint32_t first = (uint32_t)((uint64_t)r * count / runs);
        token_id ids[RUN_TOKENS];
        uint32_t len = 0;
        for (; len < RUN_TOKENS && first + len < count; len++) ids[len] = (token_id)(first + len);
        buf_clear(&c->text);
        if (tokenizer_decode(c->base, ids, len, true, &c->text) != ST_OK) return no_memory(c);
        if (buf_status(&c->text) != ST_OK) return no_memory(c);
        TRY(check_text(c, buf_str(&c->text)));
    }
    return ST_OK;
}

static enum status check_all(struct token_check *c) {
    for (int tools = 0; tools < 2; tools++)
        if (!str_eq(tokenizer_chat_template(c->base, tools),
                    tokenizer_chat_template(c->view, tools)))
            return err_set(c->err, ST_BAD,
                           "%s: its chat template cannot be said in the other kind of file",
                           c->path);
    TRY(check_ids(c));
    TRY(check_around(c));
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        TRY(check_text(c, str_of(texts[i])));
    return check_runs(c);
}

enum status check_tokens(const struct tokenizer *base, struct model_file *view, struct err *err) {
    struct tokenizer *t;
    TRY(tokenizer_create(view, &t, err));
    struct token_check c = {.base = base, .view = t, .path = model_file_path(view), .err = err};
    struct buf *bufs[] = {&c.text, &c.decoded[0], &c.decoded[1]};
    for (int i = 0; i < 3; i++) buf_init(bufs[i], TEXT_BYTES);
    enum status st = check_all(&c);
    for (int i = 0; i < 3; i++) buf_deinit(bufs[i]);
    tokenizer_destroy(t);
    return st;
}
