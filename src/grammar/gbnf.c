/* grammar/gbnf.c - the notation of llama.cpp: name ::= alternatives, texts in quotes, classes in
 * brackets, repetitions, comments from # to the end of the line. The first rule is "root". */
#include "base/buf.h"
#include "grammar/chars.h"
#include "grammar/ebnf_reader.h"
#include "grammar/compile.h"
#include "grammar/regex.h"

enum { TEXT_BYTES_MAX = 1 << 16 };

/* Blanks and comments; `lines`: line ends, too. */
static void skip_blanks(struct ebnf_reader *r, bool lines) {
    while (true) {
        int c = reader_peek(r, 0);
        if (c == '#') {
            while (reader_peek(r, 0) >= 0 && reader_peek(r, 0) != '\n') reader_skip(r, 1);
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            reader_skip(r, 1);
        } else {
            return;
        }
    }
}

static enum status take_choice(struct ebnf_reader *r, bool nested, node_id *out);

static enum status take_literal(struct ebnf_reader *r, node_id *out) {
    struct buf text;
    buf_init(&text, TEXT_BYTES_MAX);
    enum status st = reader_text(r, &text);
    if (st == ST_OK) *out = ebnf_expr(&r->e, expr_literal(r->e.c->g->exprs, buf_str(&text)));
    buf_deinit(&text);
    return st;
}

static enum status take_class(struct ebnf_reader *r, node_id *out) {
    struct code_set set;
    struct err err = {0};
    size_t at = r->at;
    if (regex_class(r->source, &at, &set, &err) != ST_OK)
        return reader_refuse(r, "the class in brackets is wrong: expected [a-z], [^x] or the like");
    reader_skip(r, at - r->at);
    *out = ebnf_expr(&r->e, chars_expr(r->e.c->g->exprs, &set, SPELL_UTF8));
    return ST_OK;
}

static enum status take_atom(struct ebnf_reader *r, node_id *out) {
    if (reader_take(r, "\"")) return take_literal(r, out);
    if (reader_take(r, "[")) return take_class(r, out);
    if (reader_take(r, ".")) {
        *out = ebnf_expr(&r->e, chars_any(r->e.c->g->exprs, SPELL_UTF8));
        return ST_OK;
    }
    if (reader_take(r, "(")) {
        if (++r->depth > EBNF_DEPTH_MAX) return reader_refuse(r, "groups nest too deeply");
        TRY(take_choice(r, true, out));
        r->depth--;
        return reader_take(r, ")") ? ST_OK : reader_refuse(r, "a parenthesis is not closed");
    }
    uint32_t line = r->line;
    struct str name = reader_word(r);
    if (name.len == 0) return reader_refuse(r, "expected a text, a class, a group or a name");
    *out = ebnf_name(&r->e, name, line);
    return ST_OK;
}

/* "{2}", "{2,}", "{,5}" or "{2,5}", behind the brace. */
static enum status take_counts(struct ebnf_reader *r, uint32_t *min, uint32_t *max) {
    *min = 0;
    bool has_min = reader_number(r, min);
    *max = *min;
    if (reader_take(r, ",")) {
        *max = EXPR_NO_MAX;
        if (reader_peek(r, 0) != '}' && !reader_number(r, max)) has_min = false;
        if (*max == EXPR_NO_MAX && !has_min) return reader_refuse(r, "expected {2}, {2,} or {2,5}");
    } else if (!has_min) {
        return reader_refuse(r, "expected a number of at most 10000 in braces");
    }
    if (!reader_take(r, "}") || *min > *max)
        return reader_refuse(r, "expected {2}, {2,} or {2,5} with numbers of at most 10000");
    return ST_OK;
}

static enum status take_repeated(struct ebnf_reader *r, node_id *out) {
    TRY(take_atom(r, out));
    while (true) {
        uint32_t min = 0, max = EXPR_NO_MAX;
        if (reader_take(r, "+"))
            min = 1;
        else if (reader_take(r, "?"))
            max = 1;
        else if (reader_take(r, "{"))
            TRY(take_counts(r, &min, &max));
        else if (!reader_take(r, "*"))
            return ST_OK;
        *out = ebnf_repeat(&r->e, *out, min, max);
    }
}

static bool is_sequence_end(const struct ebnf_reader *r) {
    int c = reader_peek(r, 0);
    return c < 0 || c == '|' || c == ')' || c == '\n' || c == '\r';
}

static enum status take_sequence(struct ebnf_reader *r, bool nested, node_id *out) {
    node_id last = NODE_NONE, item = NODE_NONE;
    *out = ebnf_group(&r->e, NODE_SEQUENCE);
    skip_blanks(r, nested);
    for (uint32_t count = 0; !is_sequence_end(r); count++) {
        if (count == SEQUENCE_MAX) return reader_refuse(r, "more than 1000 items in a row");
        TRY(take_repeated(r, &item));
        ebnf_append(&r->e, *out, last, item);
        last = item;
        skip_blanks(r, nested);
    }
    return ST_OK;
}

/* Recursion is bounded by EBNF_DEPTH_MAX. */
static enum status take_choice(struct ebnf_reader *r, bool nested, node_id *out) {
    node_id last = NODE_NONE, item = NODE_NONE;
    *out = ebnf_group(&r->e, NODE_CHOICE);
    do {
        skip_blanks(r, last != NODE_NONE);
        TRY(take_sequence(r, nested, &item));
        ebnf_append(&r->e, *out, last, item);
        last = item;
    } while (r->e.c->g->budget.status == ST_OK && reader_take(r, "|"));
    return ST_OK;
}

static enum status take_rule(struct ebnf_reader *r) {
    uint32_t line = r->line;
    node_id body = NODE_NONE;
    struct str name = reader_word(r);
    skip_blanks(r, false);
    if (name.len == 0 || !reader_take(r, "::="))
        return reader_refuse(r, "expected a rule: name ::= ...");
    skip_blanks(r, true);
    TRY(take_choice(r, false, &body));
    int c = reader_peek(r, 0);
    if (c >= 0 && c != '\n' && c != '\r') return reader_refuse(r, "expected the end of the line");
    return ebnf_define(&r->e, name, body, line, false);
}

enum status compile_gbnf(struct compiler *c, struct str source) {
    struct ebnf_reader r = {.source = source, .line = 1};
    enum status st = ebnf_init(&r.e, c);
    for (skip_blanks(&r, true); st == ST_OK && r.at < source.len; skip_blanks(&r, true))
        st = take_rule(&r);
    if (st == ST_OK) st = ebnf_finish(&r.e, "root");
    ebnf_deinit(&r.e);
    return st;
}
