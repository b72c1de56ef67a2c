/* text/normalize.c - the normaliser steps of a tokenizer, text to text.
 *
 * Each does what the step of the same name in the `tokenizers` package does to the text;
 * offsets are not kept, because nothing needs them. Only one fact is: whether the first
 * character still comes from the first character of the input, which Metaspace's "first"
 * scheme needs.
 */
#include <string.h>

#include <utf8proc.h>

#include "base/check.h"
#include "base/utf8.h"
#include "text/text_int.h"

#define BLANK_MARK "\xE2\x96\x81" /* U+2581, SentencePiece's blank */

static void put_lower(struct buf *out, uint32_t c) {
    if (c == 0x130) { /* the one character whose small form is two */
        buf_put_text(out, "i\xCC\x87");
        return;
    }
    uc_put(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

static void lower(struct str in, struct buf *out) {
    for (size_t pos = 0; pos < in.len;) put_lower(out, uc_next(in, &pos));
}

static bool bert_drops(uint32_t c) {
    if (c == '\t' || c == '\n' || c == '\r') return false;
    return c == 0 || c == 0xFFFD || uc_is_other(c);
}

static void bert_clean(struct str in, struct buf *out) {
    for (size_t pos = 0; pos < in.len;) {
        uint32_t c = uc_next(in, &pos);
        if (bert_drops(c)) continue;
        uc_put(out, uc_is_space(c) ? ' ' : c);
    }
}

static void bert_cjk(struct str in, struct buf *out) {
    for (size_t pos = 0; pos < in.len;) {
        uint32_t c = uc_next(in, &pos);
        if (uc_is_cjk(c)) {
            buf_put_char(out, ' ');
            uc_put(out, c);
            buf_put_char(out, ' ');
        } else {
            uc_put(out, c);
        }
    }
}

static void drop_if(struct str in, bool (*drop)(uint32_t), struct buf *out) {
    for (size_t pos = 0; pos < in.len;) {
        uint32_t c = uc_next(in, &pos);
        if (!drop(c)) uc_put(out, c);
    }
}

static bool nmt_drops(uint32_t c) {
    return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
           c == 0x9F;
}

static bool nmt_blanks(uint32_t c) {
    return c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xFEFF || c == 0xFFFD;
}

static void nmt(struct str in, struct buf *out) {
    for (size_t pos = 0; pos < in.len;) {
        uint32_t c = uc_next(in, &pos);
        if (!nmt_drops(c)) uc_put(out, nmt_blanks(c) ? ' ' : c);
    }
}

static struct str strip(struct str in, bool left, bool right) {
    size_t from = 0, to = in.len;
    while (left && from < to) {
        size_t next = from;
        if (!uc_is_space(uc_next(in, &next))) break;
        from = next;
    }
    while (right && to > from) {
        size_t start = to - 1, pos;
        while (start > from && ((uint8_t)in.ptr[start] & 0xC0) == 0x80) start--;
        pos = start;
        if (!uc_is_space(uc_next(in, &pos))) break;
        to = start;
    }
    return (struct str){in.ptr + from, to - from};
}

/* The end of the grapheme cluster that starts at `pos`. */
static size_t grapheme_end(struct str in, size_t pos) {
    utf8proc_int32_t state = 0;
    uint32_t before = uc_next(in, &pos);
    while (pos < in.len) {
        size_t next = pos;
        uint32_t c = uc_next(in, &next);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)c, &state))
            break;
        before = c;
        pos = next;
    }
    return pos;
}

/* By grapheme while that is short, else by character; an entry that matches the start of
 * either replaces all of it. That is how the package does it, and models depend on it. */
static void precompiled(const struct charsmap *m, struct str in, struct buf *out) {
    enum { GRAPHEME_BYTES = 6 };
    struct str with;
    for (size_t pos = 0; pos < in.len;) {
        size_t end = grapheme_end(in, pos);
        struct str cluster = {in.ptr + pos, end - pos};
        if (cluster.len < GRAPHEME_BYTES && charsmap_shortest(m, cluster, &with)) {
            buf_put_str(out, with);
            pos = end;
            continue;
        }
        while (pos < end) {
            size_t from = pos;
            (void)uc_next(in, &pos);
            struct str one = {in.ptr + from, pos - from};
            buf_put_str(out, charsmap_shortest(m, one, &with) ? with : one);
        }
    }
}

/* The longest user-defined token at `pos`, which normalising does not change. */
static size_t user_len(const struct trie *t, struct str in, size_t pos) {
    size_t found = 0;
    uint32_t node = 0, value;
    for (size_t i = pos; t && i < in.len && trie_step(t, &node, (uint8_t)in.ptr[i]); i++)
        if (trie_value(t, node, &value)) found = i + 1 - pos;
    return found;
}

/* One unit of the result. Leading blanks are dropped if the unit before ended in one. */
static bool spm_put(const struct norm_step *step, struct str unit, bool was_blank,
                    struct buf *out) {
    while (was_blank && step->join_blanks && unit.len && unit.ptr[0] == ' ')
        unit = str_skip(unit, 1);
    if (!unit.len) return was_blank;
    for (size_t i = 0; i < unit.len; i++) {
        if (unit.ptr[i] == ' ')
            buf_put_text(out, BLANK_MARK);
        else
            buf_put_char(out, unit.ptr[i]);
    }
    return unit.ptr[unit.len - 1] == ' ';
}

/* SentencePiece: replace by the table, join blanks and drop them at both ends (if the model
 * says so), put one in front, write blanks as U+2581. */
static void spm(const struct norm_step *step, struct str in, struct buf *out) {
    if (in.len == 0) return;
    if (step->add_blank) buf_put_text(out, BLANK_MARK);
    bool was_blank = true;
    for (size_t pos = 0; pos < in.len;) {
        struct str here = str_skip(in, pos), with;
        size_t len = user_len(step->user, in, pos);
        with = str_take(here, len);
        if (!len && step->map) len = charsmap_longest(step->map, here, &with);
        if (!len) {
            size_t next = pos;
            (void)uc_next(in, &next);
            len = next - pos;
            with = str_take(here, len);
        }
        was_blank = spm_put(step, with, was_blank, out);
        pos += len;
    }
    struct str mark = STR(BLANK_MARK);
    if (!step->join_blanks) return;
    while (str_ends(buf_str(out), mark)) out->len -= mark.len;
}

/* The five stages of BERT's cleaning, each from one buffer to the other. */
static void bert_stage(int stage, struct str in, struct buf *out) {
    switch (stage) {
    case 0:
        bert_clean(in, out);
        break;
    case 1:
        bert_cjk(in, out);
        break;
    case 2:
        (void)nf_apply(NF_D, in, out);
        break;
    case 3:
        drop_if(in, uc_is_mark_nonspacing, out);
        break;
    case 4:
        lower(in, out);
        break;
    }
}

static void bert(const struct norm_step *step, struct str in, struct buf *out, struct buf *spare) {
    const bool on[] = {step->clean, step->cjk, step->accents, step->accents, step->lower};
    struct buf *from = spare, *to = out;
    enum status st = ST_OK;
    buf_put_str(to, in);
    for (int stage = 0; stage < 5; stage++) {
        if (!on[stage]) continue;
        if (st == ST_OK) st = buf_status(to);
        struct buf *swap = from;
        from = to;
        to = swap;
        buf_clear(to);
        bert_stage(stage, buf_str(from), to);
    }
    if (st == ST_OK) st = buf_status(to);
    if (to != out) {
        buf_clear(out);
        buf_put_str(out, buf_str(to));
    }
    if (st != ST_OK) out->status = st;
}

static void apply(const struct norm_step *step, struct str in, struct work *work, struct buf *out) {
    switch (step->kind) {
    case NORM_BERT:
        bert(step, in, out, &work->spare);
        break;
    case NORM_LOWER:
        lower(in, out);
        break;
    case NORM_NF:
        (void)nf_apply(step->form, in, out); /* the buffer keeps the failure */
        break;
    case NORM_STRIP_ACCENTS:
        drop_if(in, uc_is_mark, out);
        break;
    case NORM_STRIP:
        buf_put_str(out, strip(in, step->left, step->right));
        break;
    case NORM_REPLACE:
        pattern_replace(&step->pattern, step->text, work->regex, in, out);
        break;
    case NORM_PREPEND:
        if (in.len) buf_put_str(out, step->text);
        buf_put_str(out, in);
        break;
    case NORM_NMT:
        nmt(in, out);
        break;
    case NORM_PRECOMPILED:
        if (step->map)
            precompiled(step->map, in, out);
        else
            buf_put_str(out, in);
        break;
    case NORM_BYTE_LEVEL:
        byte_chars_put(out, in);
        break;
    case NORM_SPM:
        spm(step, in, out);
        break;
    }
}

/* Whether the step takes the first character away. */
static bool drops_first(const struct norm_step *step, struct str in) {
    size_t pos = 0;
    if (in.len == 0) return false;
    uint32_t c = uc_next(in, &pos);
    switch (step->kind) {
    case NORM_STRIP:
        return step->left && uc_is_space(c);
    case NORM_BERT:
        return step->clean && bert_drops(c);
    case NORM_STRIP_ACCENTS:
        return uc_is_mark(c);
    case NORM_NMT:
        return nmt_drops(c);
    default:
        return false;
    }
}

enum status norm_apply(const struct norm_chain *c, struct str text, struct work *work,
                       struct str *out, bool *at_start) {
    for (uint32_t i = 0; i < c->count; i++) {
        struct buf *to = &work->norm_next;
        buf_clear(to);
        if (drops_first(&c->steps[i], text)) *at_start = false;
        apply(&c->steps[i], text, work, to);
        TRY(buf_status(to));
        struct buf swap = work->norm;
        work->norm = work->norm_next;
        work->norm_next = swap;
        text = buf_str(&work->norm);
    }
    *out = text;
    return ST_OK;
}

void norm_deinit(struct norm_chain *c) {
    for (uint32_t i = 0; i < c->count; i++) {
        pattern_deinit(&c->steps[i].pattern);
        charsmap_destroy(c->steps[i].map);
    }
    c->count = 0;
}
