/* grammar/lark.c - a subset of the notation of Lark; docs/grammar.md lists it.
 *
 * Terminals (upper case) are regular. What %ignore names may stand before the text and behind every
 * terminal of a rule. A text belongs to the grammar if any way to divide it into terminals fits; no
 * terminal is preferred over another.
 */
#include <string.h>

#include "base/buf.h"
#include "grammar/ebnf_reader.h"
#include "grammar/compile.h"
#include "grammar/regex.h"

enum { TEXT_BYTES_MAX = 1 << 16 };

/* The terminals of the module "common" that %import knows. */
static const struct {
    const char *name, *pattern;
} common[] = {
    {"DIGIT", "[0-9]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"NUMBER", "[0-9]+(?:[eE][+-]?[0-9]+)?|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER",
     "[+-]?(?:[0-9]+(?:[eE][+-]?[0-9]+)?|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[A-Za-z_][A-Za-z0-9_]*"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"WS_INLINE", "[ \\t]+"},
    {"NEWLINE", "(?:\\r?\\n)+"},
};

static void skip_blanks(struct ebnf_reader *r, bool lines) {
    while (true) {
        int c = reader_peek(r, 0);
        if (c == '/' && reader_peek(r, 1) == '/') {
            while (reader_peek(r, 0) >= 0 && reader_peek(r, 0) != '\n') reader_skip(r, 1);
        } else if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n')) {
            reader_skip(r, 1);
        } else {
            return;
        }
    }
}

/* Blanks; and line ends, where the rule goes on with another alternative. */
static void skip_to_item(struct ebnf_reader *r, bool nested) {
    skip_blanks(r, nested);
    struct ebnf_reader ahead = *r;
    skip_blanks(&ahead, true);
    if (reader_peek(&ahead, 0) != '|') return;
    r->at = ahead.at;
    r->line = ahead.line;
}

static bool is_terminal_name(struct str name) {
    for (size_t i = 0; i < name.len; i++)
        if (name.ptr[i] >= 'a' && name.ptr[i] <= 'z') return false;
    return true;
}

static enum status add_regex(struct ebnf_reader *r, struct str pattern, bool fold, node_id *out) {
    struct err err = {0};
    expr_id e = EXPR_NONE;
    const uint32_t flags = REGEX_NO_LOOK | (fold ? REGEX_FOLD_CASE : 0);
    if (regex_whole(r->e.c->g->exprs, pattern, flags, &e, &err) != ST_OK)
        return ebnf_refuse(&r->e, r->line, "%s", err.text);
    *out = ebnf_expr(&r->e, e);
    return ST_OK;
}

/* A text as a pattern: every character that means something is escaped. */
static enum status add_text(struct ebnf_reader *r, struct str text, bool fold, node_id *out) {
    struct buf pattern;
    buf_init(&pattern, TEXT_BYTES_MAX);
    for (size_t i = 0; i < text.len; i++) {
        if (strchr("\\^$.*+?()[]{}|/-", text.ptr[i]) && text.ptr[i]) buf_put_char(&pattern, '\\');
        buf_put_char(&pattern, text.ptr[i]);
    }
    enum status st = buf_status(&pattern);
    if (st == ST_OK) st = add_regex(r, buf_str(&pattern), fold, out);
    buf_deinit(&pattern);
    return st;
}

/* Behind the opening quote: a text, or a range of characters "a".."z". */
static enum status take_text(struct ebnf_reader *r, node_id *out) {
    struct buf text, last;
    buf_init(&text, TEXT_BYTES_MAX);
    buf_init(&last, TEXT_BYTES_MAX);
    enum status st = reader_text(r, &text);
    if (st == ST_OK && reader_take(r, "..\"")) {
        st = reader_text(r, &last);
        if (st == ST_OK && (text.len != 1 || last.len != 1 || text.ptr[0] > last.ptr[0]))
            st = reader_refuse(r, "a range is of two ASCII characters: \"a\"..\"z\"");
        if (st == ST_OK)
            *out = ebnf_expr(
                &r->e, expr_range(r->e.c->g->exprs, (uint8_t)text.ptr[0], (uint8_t)last.ptr[0]));
    } else if (st == ST_OK) {
        bool fold = reader_take(r, "i");
        st = fold ? add_text(r, buf_str(&text), true, out) : ST_OK;
        if (st == ST_OK && !fold)
            *out = ebnf_expr(&r->e, expr_literal(r->e.c->g->exprs, buf_str(&text)));
    }
    buf_deinit(&last);
    buf_deinit(&text);
    return st;
}

/* Behind the opening slash. */
static enum status take_regex(struct ebnf_reader *r, node_id *out) {
    size_t len = 0;
    for (; reader_peek(r, len) != '/'; len++) {
        if (reader_peek(r, len) < 0 || reader_peek(r, len) == '\n')
            return reader_refuse(r, "a regular expression is not closed");
        if (reader_peek(r, len) == '\\' && reader_peek(r, len + 1) >= 0) len++;
    }
    struct str pattern = str_take(str_skip(r->source, r->at), len);
    reader_skip(r, len + 1);
    bool fold = reader_take(r, "i");
    int c = reader_peek(r, 0);
    if (c >= 'a' && c <= 'z') return reader_refuse(r, "of the flags only i is supported");
    return add_regex(r, pattern, fold, out);
}

static enum status take_choice(struct ebnf_reader *r, bool nested, node_id *out);

static enum status take_group(struct ebnf_reader *r, const char *end, node_id *out) {
    if (++r->depth > EBNF_DEPTH_MAX) return reader_refuse(r, "groups nest too deeply");
    TRY(take_choice(r, true, out));
    r->depth--;
    return reader_take(r, end) ? ST_OK : reader_refuse(r, "a group is not closed");
}

static enum status take_atom(struct ebnf_reader *r, node_id *out) {
    if (reader_take(r, "\"")) return take_text(r, out);
    if (reader_take(r, "/")) return take_regex(r, out);
    if (reader_take(r, "(")) return take_group(r, ")", out);
    if (reader_take(r, "[")) {
        TRY(take_group(r, "]", out));
        *out = ebnf_repeat(&r->e, *out, 0, 1);
        return ST_OK;
    }
    uint32_t line = r->line;
    struct str name = reader_word(r);
    if (name.len == 0) return reader_refuse(r, "expected a text, an expression, a group or a name");
    if (reader_peek(r, 0) == '{') return reader_refuse(r, "templates are not supported");
    *out = ebnf_name(&r->e, name, line);
    return ST_OK;
}

/* "~2" or "~2..5", behind the tilde. */
static enum status take_counts(struct ebnf_reader *r, uint32_t *min, uint32_t *max) {
    skip_blanks(r, false);
    bool good = reader_number(r, min);
    *max = *min;
    if (good && reader_take(r, "..")) good = reader_number(r, max);
    if (good && *min <= *max) return ST_OK;
    return reader_refuse(r, "expected ~2 or ~2..5 with numbers of at most 10000");
}

static enum status take_repeated(struct ebnf_reader *r, node_id *out) {
    TRY(take_atom(r, out));
    skip_blanks(r, false);
    uint32_t min = 0, max = EXPR_NO_MAX;
    if (reader_take(r, "+"))
        min = 1;
    else if (reader_take(r, "?"))
        max = 1;
    else if (reader_take(r, "~"))
        TRY(take_counts(r, &min, &max));
    else if (!reader_take(r, "*"))
        return ST_OK;
    *out = ebnf_repeat(&r->e, *out, min, max);
    return ST_OK;
}

static bool is_sequence_end(const struct ebnf_reader *r) {
    int c = reader_peek(r, 0);
    return c < 0 || c == '|' || c == ')' || c == ']' || c == '\n' || c == '-';
}

static enum status take_sequence(struct ebnf_reader *r, bool nested, node_id *out) {
    node_id last = NODE_NONE, item = NODE_NONE;
    *out = ebnf_group(&r->e, NODE_SEQUENCE);
    skip_to_item(r, nested);
    for (uint32_t count = 0; !is_sequence_end(r); count++) {
        if (count == SEQUENCE_MAX) return reader_refuse(r, "more than 1000 items in a row");
        TRY(take_repeated(r, &item));
        ebnf_append(&r->e, *out, last, item);
        last = item;
        skip_to_item(r, nested);
    }
    if (reader_take(r, "->")) { /* the name of an alternative */
        skip_blanks(r, false);
        reader_word(r);
        skip_to_item(r, nested);
    }
    return ST_OK;
}

/* Recursion is bounded by EBNF_DEPTH_MAX. */
static enum status take_choice(struct ebnf_reader *r, bool nested, node_id *out) {
    node_id last = NODE_NONE, item = NODE_NONE;
    *out = ebnf_group(&r->e, NODE_CHOICE);
    do {
        TRY(take_sequence(r, nested, &item));
        ebnf_append(&r->e, *out, last, item);
        last = item;
    } while (r->e.c->g->budget.status == ST_OK && reader_take(r, "|"));
    return ST_OK;
}

/* "common.WS" or "common.WS -> BLANK", behind %import. */
static enum status take_import(struct ebnf_reader *r) {
    uint32_t line = r->line;
    node_id body = NODE_NONE;
    skip_blanks(r, false);
    if (!reader_take(r, "common.")) return reader_refuse(r, "%import knows the module common only");
    struct str name = reader_word(r), alias = name;
    skip_blanks(r, false);
    if (reader_take(r, "->")) {
        skip_blanks(r, false);
        alias = reader_word(r);
    }
    for (size_t i = 0; i < sizeof(common) / sizeof(*common); i++) {
        if (!str_is(name, common[i].name)) continue;
        TRY(add_regex(r, str_of(common[i].pattern), false, &body));
        return ebnf_define(&r->e, alias, body, line, true);
    }
    return ebnf_refuse(&r->e, line, "%%import does not know common.%.*s", STR_ARG(name));
}

static enum status take_ignore(struct ebnf_reader *r, node_id ignored, node_id *last) {
    node_id item = NODE_NONE;
    skip_blanks(r, false);
    TRY(take_choice(r, false, &item));
    ebnf_append(&r->e, ignored, *last, item);
    *last = item;
    return ST_OK;
}

static enum status take_rule(struct ebnf_reader *r) {
    uint32_t line = r->line;
    node_id body = NODE_NONE;
    while (reader_take(r, "?") || reader_take(r, "!")) continue;
    struct str name = reader_word(r);
    if (reader_peek(r, 0) == '.') return reader_refuse(r, "priorities are not supported");
    skip_blanks(r, false);
    if (name.len == 0 || !reader_take(r, ":"))
        return reader_refuse(r, "expected a rule: name: ...");
    TRY(take_choice(r, false, &body));
    if (reader_peek(r, 0) >= 0 && reader_peek(r, 0) != '\n')
        return reader_refuse(r, "expected the end of the line");
    return ebnf_define(&r->e, name, body, line, is_terminal_name(name));
}

static enum status read_all(struct ebnf_reader *r, node_id ignored) {
    node_id last = NODE_NONE;
    for (skip_blanks(r, true); r->at < r->source.len; skip_blanks(r, true)) {
        if (reader_take(r, "%import"))
            TRY(take_import(r));
        else if (reader_take(r, "%ignore"))
            TRY(take_ignore(r, ignored, &last));
        else
            TRY(take_rule(r));
    }
    if (last == NODE_NONE) return ST_OK;
    return ebnf_define(&r->e, STR("%ignore"), ebnf_repeat(&r->e, ignored, 0, EXPR_NO_MAX), 1, true);
}

enum status compile_lark(struct compiler *c, struct str source) {
    struct ebnf_reader r = {.source = source, .line = 1};
    enum status st = ebnf_init(&r.e, c);
    node_id ignored = st == ST_OK ? ebnf_group(&r.e, NODE_CHOICE) : NODE_NONE;
    if (st == ST_OK) st = read_all(&r, ignored);
    if (st == ST_OK) st = ebnf_finish(&r.e, "start");
    ebnf_deinit(&r.e);
    return st;
}
