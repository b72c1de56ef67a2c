/* text/pretok.c - the pre-tokenizer steps: text to pieces, pieces to smaller pieces.
 *
 * Most steps only cut: they walk a piece, put its parts one after the other (a match, or the
 * text between two), and a small state machine turns parts into pieces by the behaviour that the
 * file sets. Two steps also change the text (ByteLevel, Metaspace), so every step writes its
 * result anew: work->pieces to work->pieces_next, then they change places.
 */
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "text/text_int.h"

const char pretok_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static void push(struct pieces *p, size_t start, size_t len, bool first) {
    if (len == 0 || p->status != ST_OK) return;
    if (p->count == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 64;
        struct piece *at = mem_realloc(p->at, cap * sizeof(at[0]));
        if (!at) {
            p->status = ST_NOMEM;
            return;
        }
        p->at = at;
        p->cap = cap;
    }
    p->at[p->count++] = (struct piece){start, len, first};
}

static void pieces_clear(struct pieces *p) {
    buf_clear(&p->text);
    p->count = 0;
    p->status = ST_OK;
}

/* Cuts one piece of `base` into parts and pushes them by `behavior`. */
struct cutter {
    struct pieces *out;
    const struct piece *from;
    size_t out_start; /* where the piece's bytes lie in out->text */
    enum split_behavior behavior;
    bool invert;
    size_t start, end;    /* the part that may still grow */
    bool was_match, open; /* open: start and end mean something */
};

static void give(struct cutter *c) {
    if (!c->open) return;
    push(c->out, c->out_start + c->start, c->end - c->start, c->from->first && c->start == 0);
    c->open = false;
}

/* Whether this part joins the one before it. */
static bool joins(const struct cutter *c, bool match) {
    switch (c->behavior) {
    case SPLIT_CONTIGUOUS:
        return match == c->was_match;
    case SPLIT_PREVIOUS:
        return match && !c->was_match;
    case SPLIT_NEXT:
        return !match && c->was_match;
    default:
        return false;
    }
}

static void put_part(struct cutter *c, size_t start, size_t end, bool match) {
    match = match != c->invert;
    if (c->behavior == SPLIT_REMOVED && match) {
        give(c);
    } else if (c->open && joins(c, match)) {
        c->end = end;
    } else {
        give(c);
        c->start = start;
        c->end = end;
        c->open = true;
    }
    c->was_match = match;
}

static struct cutter cutter_of(const struct pretok_step *step, struct pieces *out,
                               const struct piece *from, size_t out_start) {
    return (struct cutter){.out = out,
                           .from = from,
                           .out_start = out_start,
                           .behavior = step->behavior,
                           .invert = step->invert};
}

/* Spans of a pattern's matches. */
static void cut_pattern(struct cutter *c, const struct pattern *pattern, struct regex_work *work,
                        struct str text) {
    struct pattern_search s;
    pattern_search_init(&s, pattern, work, text);
    size_t done = 0, start, end;
    while (pattern_search_next(&s, &start, &end)) {
        if (start > done) put_part(c, done, start, false);
        put_part(c, start, end, true);
        done = end;
    }
    if (done < text.len) put_part(c, done, text.len, false);
    give(c);
}

/* Spans of single characters of a kind. */
static void cut_chars(struct cutter *c, bool (*is_match)(uint32_t), uint32_t only,
                      struct str text) {
    size_t done = 0;
    for (size_t pos = 0; pos < text.len;) {
        size_t start = pos;
        uint32_t code = uc_next(text, &pos);
        if (is_match ? !is_match(code) : code != only) continue;
        if (start > done) put_part(c, done, start, false);
        put_part(c, start, pos, true);
        done = pos;
    }
    if (done < text.len) put_part(c, done, text.len, false);
    give(c);
}

static int word_class(uint32_t c) { return uc_is_space(c) ? 0 : uc_is_word(c) ? 1 : 2; }

/* Runs of word characters and runs of others; blanks are dropped. */
static void cut_words(struct cutter *c, struct str text) {
    for (size_t pos = 0; pos < text.len;) {
        size_t start = pos;
        int kind = word_class(uc_next(text, &pos));
        while (pos < text.len) {
            size_t next = pos;
            if (word_class(uc_next(text, &next)) != kind) break;
            pos = next;
        }
        put_part(c, start, pos, kind == 0);
    }
    give(c);
}

/* White space is dropped, each punctuation mark is a piece of its own. */
static void cut_bert(struct cutter *c, struct str text) {
    size_t done = 0;
    for (size_t pos = 0; pos < text.len;) {
        size_t start = pos;
        uint32_t code = uc_next(text, &pos);
        bool blank = uc_is_space(code);
        if (!blank && !uc_is_punct(code)) continue;
        if (start > done) put_part(c, done, start, false);
        if (!blank) {
            put_part(c, start, pos, false);
        } else {
            put_part(c, start, pos, true);
        }
        done = pos;
    }
    if (done < text.len) put_part(c, done, text.len, false);
    give(c);
}

/* Runs of digits in threes from the right: 1 234 567. */
static void cut_groups(struct cutter *c, struct str text) {
    size_t done = 0;
    for (size_t pos = 0; pos < text.len;) {
        size_t start = pos, count = 0, next = pos;
        while (next < text.len && uc_is_number(uc_next(text, &next))) {
            pos = next;
            count++;
        }
        if (count == 0) {
            (void)uc_next(text, &pos);
            continue;
        }
        if (start > done) put_part(c, done, start, false);
        for (done = start; done < pos;) {
            size_t end = done;
            for (size_t take = (count - 1) % 3 + 1; take > 0; take--, count--)
                (void)uc_next(text, &end);
            put_part(c, done, end, true);
            done = end;
        }
    }
    if (done < text.len) put_part(c, done, text.len, false);
    give(c);
}

static void cut_byte_level(const struct pretok_chain *chain, const struct pretok_step *step,
                           const struct piece *from, struct str text, struct work *work) {
    struct pieces *out = &work->pieces_next;
    size_t start = out->text.len;
    if (step->add_prefix && text.ptr[0] != ' ') buf_put_char(&out->text, ' ');
    buf_put_str(&out->text, text);
    if (buf_status(&out->text) != ST_OK) return;
    struct str whole = str_skip(buf_str(&out->text), start);
    struct cutter c = {.out = out, .from = from, .out_start = start, .behavior = SPLIT_ISOLATED};
    if (step->use_regex) {
        struct pattern gpt2 = {.re = chain->gpt2};
        cut_pattern(&c, &gpt2, work->regex, whole);
    } else {
        put_part(&c, 0, whole.len, false);
        give(&c);
    }
}

static void cut_metaspace(const struct pretok_step *step, const struct piece *from, struct str text,
                          struct pieces *out) {
    size_t start = out->text.len, pos = 0;
    uint32_t first = uc_next(text, &pos);
    bool marked = first == step->code || first == ' ';
    bool wanted =
        step->prepend == PREPEND_ALWAYS || (step->prepend == PREPEND_FIRST && from->first);
    if (wanted && !marked) uc_put(&out->text, step->code);
    for (pos = 0; pos < text.len;) {
        uint32_t code = uc_next(text, &pos);
        uc_put(&out->text, code == ' ' ? step->code : code);
    }
    if (buf_status(&out->text) != ST_OK) return;
    struct str whole = str_skip(buf_str(&out->text), start);
    struct cutter c = {.out = out, .from = from, .out_start = start, .behavior = SPLIT_NEXT};
    if (step->split) {
        cut_chars(&c, NULL, step->code, whole);
    } else {
        put_part(&c, 0, whole.len, false);
        give(&c);
    }
}

static void cut_plain(const struct pretok_step *step, const struct piece *from, struct str text,
                      struct work *work) {
    struct pieces *out = &work->pieces_next;
    struct cutter c = cutter_of(step, out, from, out->text.len);
    buf_put_str(&out->text, text);
    if (buf_status(&out->text) != ST_OK) return;
    switch (step->kind) {
    case PRETOK_SPLIT:
        cut_pattern(&c, &step->pattern, work->regex, text);
        break;
    case PRETOK_DIGITS:
    case PRETOK_DIGIT_RUNS:
        cut_chars(&c, uc_is_number, 0, text);
        break;
    case PRETOK_DIGIT_GROUPS:
        cut_groups(&c, text);
        break;
    case PRETOK_PUNCT:
        cut_chars(&c, uc_is_punct, 0, text);
        break;
    case PRETOK_WORDS:
        cut_words(&c, text);
        break;
    case PRETOK_BLANKS:
        cut_chars(&c, uc_is_space, 0, text);
        break;
    case PRETOK_BERT:
        cut_bert(&c, text);
        break;
    case PRETOK_CHAR:
        cut_chars(&c, NULL, step->code, text);
        break;
    default:
        CHECK(false);
    }
}

/* Write each piece in GPT-2's alphabet. */
static void map_bytes(struct pieces *from, struct pieces *to) {
    for (size_t i = 0; i < from->count; i++) {
        struct piece p = from->at[i];
        size_t start = to->text.len;
        byte_chars_put(&to->text, (struct str){from->text.ptr + p.start, p.len});
        push(to, start, to->text.len - start, p.first);
    }
}

static enum status turn(struct work *work) {
    struct pieces swap = work->pieces;
    work->pieces = work->pieces_next;
    work->pieces_next = swap;
    pieces_clear(&work->pieces_next);
    TRY(buf_status(&work->pieces.text));
    return work->pieces.status;
}

static enum status run_step(const struct pretok_chain *chain, uint32_t i, struct work *work) {
    const struct pretok_step *step = &chain->steps[i];
    for (size_t k = 0; k < work->pieces.count; k++) {
        struct piece *from = &work->pieces.at[k];
        struct str text = {work->pieces.text.ptr + from->start, from->len};
        if (step->kind == PRETOK_BYTE_LEVEL)
            cut_byte_level(chain, step, from, text, work);
        else if (step->kind == PRETOK_METASPACE)
            cut_metaspace(step, from, text, &work->pieces_next);
        else
            cut_plain(step, from, text, work);
    }
    TRY(turn(work));
    bool last = i + 1 == chain->count;
    if (step->kind != PRETOK_BYTE_LEVEL || (last && chain->raw_bytes)) return ST_OK;
    map_bytes(&work->pieces, &work->pieces_next);
    return turn(work);
}

enum status pretok_apply(const struct pretok_chain *c, struct str text, bool at_start,
                         struct work *work) {
    pieces_clear(&work->pieces);
    pieces_clear(&work->pieces_next);
    buf_put_str(&work->pieces.text, text);
    TRY(buf_status(&work->pieces.text));
    push(&work->pieces, 0, text.len, at_start);
    TRY(work->pieces.status);
    for (uint32_t i = 0; i < c->count; i++) TRY(run_step(c, i, work));
    return ST_OK;
}

void pretok_deinit(struct pretok_chain *c) {
    for (uint32_t i = 0; i < c->count; i++) pattern_deinit(&c->steps[i].pattern);
    regex_destroy(c->gpt2);
    c->count = 0;
    c->gpt2 = NULL;
}
