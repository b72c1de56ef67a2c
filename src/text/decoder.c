/* text/decoder.c - what each decoder stage does to one token, and which chains can stream.
 *
 * Stages that keep something back between two tokens (ByteFallback, Fuse, ByteLevel's bytes) are
 * in detok.c; those here are functions of the token, of whether it is the first, and of whether
 * it is the last.
 */
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "text/text_int.h"

/* Replace in `b`, by way of `spare`. A buffer that has failed stays failed. */
static void replace_text(struct buf *b, struct buf *spare, struct str what, struct str with) {
    struct pattern p = {.literal = (char *)(uintptr_t)what.ptr, .literal_len = what.len};
    enum status before = buf_status(b);
    buf_clear(spare);
    pattern_replace(&p, with, NULL, buf_str(b), spare);
    struct buf swap = *b;
    *b = *spare;
    *spare = swap;
    if (before != ST_OK) b->status = before;
}

/* English spacing as WordPiece models print it. */
static void clean_up(struct buf *b, struct buf *spare) {
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        replace_text(b, spare, str_of(pairs[i][0]), str_of(pairs[i][1]));
}

static enum status stage_replace(const struct decoder_stage *s, struct str token, struct buf *b) {
    struct regex_work *work = s->pattern.re ? regex_work_create() : NULL;
    if (s->pattern.re && !work) return ST_NOMEM;
    pattern_replace(&s->pattern, s->text, work, token, b);
    regex_work_destroy(work);
    return ST_OK;
}

static void stage_metaspace(const struct decoder_stage *s, struct str token, bool first,
                            struct buf *b) {
    for (size_t pos = 0; pos < token.len;) {
        uint32_t c = uc_next(token, &pos);
        if (c != s->code)
            uc_put(b, c);
        else if (!first || !s->drop_first)
            buf_put_char(b, ' ');
    }
}

static void stage_wordpiece(const struct decoder_stage *s, struct str token, bool first,
                            struct buf *b) {
    bool inside =
        s->kind == DECODER_WORDPIECE ? str_starts(token, s->text) : !str_starts(token, s->text);
    bool strips = s->kind == DECODER_WORDPIECE ? inside && !first : !inside;
    if (!first && !inside) buf_put_char(b, ' ');
    buf_put_str(b, strips ? str_skip(token, s->text.len) : token);
    struct buf spare;
    buf_init(&spare, TEXT_BYTES_MAX);
    if (s->cleanup) clean_up(b, &spare);
    buf_deinit(&spare);
}

static void stage_ctc(const struct decoder_stage *s, struct str token, struct buf *b) {
    struct buf spare;
    buf_init(&spare, TEXT_BYTES_MAX);
    buf_put_str(b, token);
    replace_text(b, &spare, s->text, STR(""));
    if (s->cleanup) {
        clean_up(b, &spare);
        replace_text(b, &spare, s->delimiter, STR(" "));
    }
    buf_deinit(&spare);
}

static void stage_bpe(const struct decoder_stage *s, struct str token, bool last, struct buf *b) {
    struct buf spare;
    buf_init(&spare, TEXT_BYTES_MAX);
    buf_put_str(b, token);
    replace_text(b, &spare, s->text, last ? STR("") : STR(" "));
    buf_deinit(&spare);
}

/* A token by itself: `start` characters off its front and `stop` off its end. */
static struct str strip_token(const struct decoder_stage *s, struct str token) {
    char mark[4];
    struct str one = {mark, utf8_encode(s->code, mark)};
    for (uint32_t i = 0; i < s->start && str_starts(token, one); i++)
        token = str_skip(token, one.len);
    for (uint32_t i = 0; i < s->stop && str_ends(token, one); i++) token.len -= one.len;
    return token;
}

enum status decoder_apply(const struct decoder_stage *s, struct str token, bool first, bool last,
                          struct buf *b) {
    switch (s->kind) {
    case DECODER_REPLACE:
        TRY(stage_replace(s, token, b));
        break;
    case DECODER_METASPACE:
        stage_metaspace(s, token, first, b);
        break;
    case DECODER_WORDPIECE:
    case DECODER_WORDSTART:
        stage_wordpiece(s, token, first, b);
        break;
    case DECODER_BPE:
        stage_bpe(s, token, last, b);
        break;
    case DECODER_CTC:
        stage_ctc(s, token, b);
        break;
    case DECODER_STRIP:
        buf_put_str(b, strip_token(s, token));
        break;
    case DECODER_JOIN:
        if (!first) buf_put_char(b, ' ');
        buf_put_str(b, token);
        break;
    case DECODER_BYTE_LEVEL:
        if (!byte_chars_decode(b, token)) buf_put_str(b, token);
        break;
    default:
        CHECK(false);
    }
    return buf_status(b);
}

static bool holds_bytes(enum decoder_kind k) {
    return k == DECODER_BYTE_FALLBACK || k == DECODER_BYTE_LEVEL;
}

enum status decoder_check(const struct decoder_chain *c, struct err *err) {
    bool fused = false, stripped = false, holds = false, bytes = false;
    for (uint32_t i = 0; i < c->count; i++) {
        const struct decoder_stage *s = &c->stages[i];
        bool strip = s->kind == DECODER_STRIP;
        if ((fused || bytes) && s->kind != DECODER_FUSE && (!strip || bytes || stripped || s->stop))
            return err_set(err, ST_BAD,
                           "decoder: stage %u cannot work on the whole text at once "
                           "(only Strip at its start can, after Fuse)",
                           i + 1);
        if ((s->kind == DECODER_BPE || s->kind == DECODER_CTC) && i > 0)
            return err_set(err, ST_BAD,
                           "decoder: BPEDecoder and CTC are supported as the first "
                           "stage only");
        if (holds_bytes(s->kind) && holds)
            return err_set(err, ST_BAD, "decoder: ByteFallback and ByteLevel together, or twice");
        holds |= holds_bytes(s->kind);
        stripped |= fused && strip;
        bytes |= s->kind == DECODER_BYTE_LEVEL;
        fused |= s->kind == DECODER_FUSE;
    }
    return ST_OK;
}

void decoder_deinit(struct decoder_chain *c) {
    for (uint32_t i = 0; i < c->count; i++) pattern_deinit(&c->stages[i].pattern);
    c->count = 0;
}
