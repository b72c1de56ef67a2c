/* grammar/regex.c - a recursive descent over the notation of ECMA 262.
 *
 * In a JSON string the quotes stand for the ends of the text: ^ and $ match them, and nothing else
 * of an expression can, since a quote inside the text is escaped. So a search is
 *
 *     (nothing | quote chars) expression (nothing | chars quote), among all JSON strings.
 *
 * An expression that passes two ^ or two $ one behind the other is refused: each would want the
 * one quote. Only a ^ before a part that begins with one, and a $ behind one that ends so, are left
 * out.
 *
 * Look-ahead outside of groups is an intersection: what follows, up to the end of the text, is also
 * of another expression, or not of it.
 */
#include "grammar/regex.h"

#include <string.h>

#include "base/utf8.h"
#include "grammar/properties.h"

enum { DEPTH_MAX = 100, REPEAT_MAX = 100000, ITEMS_MAX = 64, LOOKS_MAX = 8 };

struct reader {
    struct expr_pool *pool;
    struct str source;
    size_t at;
    enum spelling spelling;
    bool fold_case, no_look;
    uint32_t depth;
    struct err *err;
};

/* A part of an expression, whether it contains ^ or $, and whether each of its texts begins with ^
 * or ends with $. */
struct part {
    expr_id expr;
    bool has_begin, has_end, is_begin, is_end;
};

static enum status bad(const struct reader *r, const char *what) {
    return err_set(r->err, ST_BAD, "pattern \"%.*s\", byte %zu: %s", STR_ARG(r->source), r->at,
                   what);
}

static int peek(const struct reader *r, size_t ahead) {
    return r->at + ahead < r->source.len ? (uint8_t)r->source.ptr[r->at + ahead] : -1;
}

static bool take(struct reader *r, const char *text) {
    struct str rest = str_skip(r->source, r->at);
    if (!str_starts(rest, str_of(text))) return false;
    r->at += strlen(text);
    return true;
}

static int hex_value(int c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool take_hex(struct reader *r, uint32_t digits, uint32_t *code) {
    *code = 0;
    for (uint32_t i = 0; i < digits; i++) {
        int v = hex_value(peek(r, i));
        if (v < 0) return false;
        *code = *code * 16 + (uint32_t)v;
    }
    r->at += digits;
    return true;
}

static enum status take_braced_hex(struct reader *r, uint32_t *code) {
    *code = 0;
    while (hex_value(peek(r, 0)) >= 0 && *code <= CODE_MAX)
        *code = *code * 16 + (uint32_t)hex_value(peek(r, 0)), r->at++;
    if (*code > CODE_MAX || !take(r, "}")) return bad(r, "expected \\u{...} with a character");
    return ST_OK;
}

/* Behind "\u". Two escapes that are a surrogate pair are one character. */
static enum status take_unicode(struct reader *r, uint32_t *code) {
    if (take(r, "{")) return take_braced_hex(r, code);
    if (!take_hex(r, 4, code)) return bad(r, "expected four hexadecimal digits behind \\u");
    if (*code < 0xD800 || *code > 0xDFFF) return ST_OK;
    uint32_t low = 0;
    if (*code >= 0xDC00 || !take(r, "\\u") || !take_hex(r, 4, &low) || low < 0xDC00 || low > 0xDFFF)
        return bad(r, "a surrogate without its other half");
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    return ST_OK;
}

static bool class_of_letter(int letter, struct code_set *s) {
    static const struct {
        uint32_t low, high;
    } blanks[] = {{9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680},
                  {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                  {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    code_set_clear(s);
    switch (letter | 32) {
    case 'd':
        code_set_add(s, '0', '9');
        break;
    case 'w':
        code_set_add(s, '0', '9');
        code_set_add(s, 'A', 'Z');
        code_set_add(s, '_', '_');
        code_set_add(s, 'a', 'z');
        break;
    case 's':
        for (size_t i = 0; i < sizeof(blanks) / sizeof(*blanks); i++)
            code_set_add(s, blanks[i].low, blanks[i].high);
        break;
    default:
        return false;
    }
    if (!(letter & 32)) code_set_negate(s);
    return true;
}

static enum status take_letter_escape(struct reader *r, int c, uint32_t *code) {
    switch (c) {
    case 'n':
        *code = '\n';
        return ST_OK;
    case 'r':
        *code = '\r';
        return ST_OK;
    case 't':
        *code = '\t';
        return ST_OK;
    case 'v':
        *code = '\v';
        return ST_OK;
    case 'f':
        *code = '\f';
        return ST_OK;
    case 'x':
        return take_hex(r, 2, code) ? ST_OK : bad(r, "expected two hexadecimal digits behind \\x");
    case 'u':
        return take_unicode(r, code);
    case 'c':
        *code = (uint32_t)peek(r, 0) & 31;
        if (peek(r, 0) < 'A' || (peek(r, 0) | 32) > 'z')
            return bad(r, "expected a letter behind \\c");
        r->at++;
        return ST_OK;
    default:
        return bad(r, "this escape is not supported");
    }
}

/* Behind a backslash: "p{name}" or "P{name}". */
static enum status take_property(struct reader *r, struct code_set *out) {
    const bool negated = peek(r, 0) == 'P';
    const size_t start = r->at + 2;
    if (peek(r, 1) != '{') return bad(r, "expected \\p{...}");
    size_t end = start;
    while (end < r->source.len && r->source.ptr[end] != '}') end++;
    const struct str name = {r->source.ptr + start, end - start};
    if (end == r->source.len || !property_chars(name, out))
        return bad(r, "this \\p{...} is not known; general categories are");
    r->at = end + 1;
    if (negated) code_set_negate(out);
    return ST_OK;
}

/* Behind a backslash: one character or a class. */
static enum status take_escape(struct reader *r, bool in_class, struct code_set *out) {
    int c = peek(r, 0);
    uint32_t code = 0;
    if (c < 0) return bad(r, "a backslash at the end");
    if (class_of_letter(c, out)) {
        r->at++;
        return ST_OK;
    }
    if (c >= '1' && c <= '9') return bad(r, "back-references are not supported");
    if (!in_class && (c == 'b' || c == 'B')) return bad(r, "word boundaries are not supported");
    if ((c | 32) == 'p') return take_property(r, out);
    size_t len = utf8_decode(str_skip(r->source, r->at), &code);
    r->at += len;
    if (c == 'b')
        code = '\b';
    else if (c == '0')
        code = 0;
    else if ((c | 32) >= 'a' && (c | 32) <= 'z')
        TRY(take_letter_escape(r, c, &code));
    else if (utf8_is_bad(code))
        return bad(r, "bad UTF-8");
    code_set_clear(out);
    code_set_add(out, code, code);
    return ST_OK;
}

/* One character or class inside brackets. */
static enum status take_class_item(struct reader *r, struct code_set *out) {
    uint32_t code = 0;
    if (take(r, "\\")) return take_escape(r, true, out);
    size_t len = utf8_decode(str_skip(r->source, r->at), &code);
    if (utf8_is_bad(code)) return bad(r, "bad UTF-8");
    r->at += len;
    code_set_clear(out);
    code_set_add(out, code, code);
    return ST_OK;
}

static bool is_single(const struct code_set *s) {
    return s->count == 1 && s->ranges[0].low == s->ranges[0].high;
}

static enum status take_class(struct reader *r, struct code_set *out) {
    bool negated = take(r, "^");
    struct code_set item, last;
    code_set_clear(out);
    while (peek(r, 0) != ']') {
        if (peek(r, 0) < 0) return bad(r, "a bracket is not closed");
        TRY(take_class_item(r, &item));
        bool is_range = peek(r, 0) == '-' && peek(r, 1) >= 0 && peek(r, 1) != ']';
        if (is_range && is_single(&item)) {
            r->at++;
            TRY(take_class_item(r, &last));
            if (!is_single(&last) || last.ranges[0].low < item.ranges[0].low)
                return bad(r, "the range in brackets is out of order");
            item.ranges[0].high = last.ranges[0].high;
        }
        code_set_add_set(out, &item);
    }
    r->at++;
    if (r->fold_case) code_set_fold(out);
    if (negated) code_set_negate(out);
    return out->is_full ? bad(r, "too many ranges in brackets") : ST_OK;
}

enum status regex_class(struct str source, size_t *at, struct code_set *out, struct err *err) {
    struct reader r = {.source = source, .at = *at, .err = err};
    TRY(take_class(&r, out));
    *at = r.at;
    return ST_OK;
}

static enum status take_choice(struct reader *r, bool at_start, struct part *out);

/* Behind an opening parenthesis. */
static enum status take_group(struct reader *r, bool at_start, struct part *out) {
    if (take(r, "?=") || take(r, "?!")) return bad(r, "look-ahead inside a group is not supported");
    if (take(r, "?<=") || take(r, "?<!")) return bad(r, "look-behind is not supported");
    if (take(r, "?<")) {
        while (peek(r, 0) >= 0 && peek(r, 0) != '>') r->at++;
        if (!take(r, ">")) return bad(r, "the name of a group is not closed");
    } else if (!take(r, "?:") && peek(r, 0) == '?') {
        return bad(r, "this kind of group is not supported");
    }
    if (++r->depth > DEPTH_MAX) return bad(r, "groups nest too deeply");
    TRY(take_choice(r, at_start, out));
    r->depth--;
    return take(r, ")") ? ST_OK : bad(r, "a parenthesis is not closed");
}

/* Whether only closing parentheses follow, or another alternative of the whole. */
static bool is_at_end(const struct reader *r) {
    size_t i = 0;
    while (peek(r, i) == ')') i++;
    return peek(r, i) < 0 || (i == 0 && r->depth == 0 && peek(r, 0) == '|');
}

static enum status take_anchor(struct reader *r, bool at_start, struct part *out) {
    bool is_begin = r->source.ptr[r->at++] == '^';
    if (r->spelling == SPELL_JSON) {
        *out =
            (struct part){expr_range(r->pool, '"', '"'), is_begin, !is_begin, is_begin, !is_begin};
        return ST_OK;
    }
    if (is_begin ? !at_start : !is_at_end(r)) return bad(r, "^ and $ may stand at the ends only");
    *out = (struct part){.expr = EXPR_EMPTY};
    return ST_OK;
}

static enum status take_atom(struct reader *r, bool at_start, struct part *out) {
    struct code_set s;
    int c = peek(r, 0);
    code_set_clear(&s);
    if (c == '^' || c == '$') return take_anchor(r, at_start, out);
    if (take(r, "(")) return take_group(r, at_start, out);
    if (c == '*' || c == '+' || c == '?') return bad(r, "nothing to repeat");
    if (take(r, "[")) {
        TRY(take_class(r, &s));
    } else if (take(r, "\\")) {
        TRY(take_escape(r, false, &s));
    } else if (take(r, ".")) {
        code_set_add(&s, '\n', '\n');
        code_set_add(&s, '\r', '\r');
        code_set_add(&s, 0x2028, 0x2029);
        code_set_negate(&s);
    } else {
        TRY(take_class_item(r, &s));
    }
    if (r->fold_case) code_set_fold(&s);
    *out = (struct part){.expr = chars_expr(r->pool, &s, r->spelling)};
    return ST_OK;
}

/* "{2}", "{2,}" or "{2,5}"; false: it is none, and the brace is a character. */
static bool take_counts(struct reader *r, uint32_t *min, uint32_t *max) {
    size_t at = r->at;
    uint64_t values[2] = {0, EXPR_NO_MAX};
    uint32_t part = 0, digits = 0;
    for (r->at++; peek(r, 0) >= 0 && peek(r, 0) != '}'; r->at++) {
        int c = peek(r, 0);
        if (c == ',' && part == 0 && digits) {
            part = 1;
            digits = 0;
            continue;
        }
        if (c < '0' || c > '9') break;
        if (digits++ == 0) values[part] = 0;
        values[part] = values[part] * 10 + (uint64_t)(c - '0');
        if (values[part] > EXPR_NO_MAX) values[part] = EXPR_NO_MAX;
    }
    if (!take(r, "}") || (part == 0 && digits == 0)) {
        r->at = at;
        return false;
    }
    *min = (uint32_t)values[0];
    *max = (uint32_t)(part == 0 ? values[0] : values[1]);
    return true;
}

static enum status take_repeated(struct reader *r, bool at_start, struct part *out) {
    uint32_t min = 1, max = 1;
    TRY(take_atom(r, at_start, out));
    while (true) {
        if (take(r, "*"))
            min = 0, max = EXPR_NO_MAX;
        else if (take(r, "+"))
            min = 1, max = EXPR_NO_MAX;
        else if (take(r, "?"))
            min = 0, max = 1;
        else if (peek(r, 0) != '{' || !take_counts(r, &min, &max))
            return ST_OK;
        take(r, "?"); /* a lazy quantifier matches the same texts */
        if (min > max || min > REPEAT_MAX || (max > REPEAT_MAX && max != EXPR_NO_MAX))
            return bad(r, "the numbers of a repetition are out of order or above 100,000");
        out->expr = expr_repeat(r->pool, out->expr, min, max);
        out->is_begin = out->is_end = false;
    }
}

static enum status append(struct reader *r, struct part *all, struct part more) {
    if ((all->has_begin && more.has_begin) || (all->has_end && more.has_end))
        return bad(r, "two ^ or two $ behind each other are not supported");
    all->has_begin |= more.has_begin;
    all->has_end |= more.has_end;
    return ST_OK;
}

/* Behind "(?=" or "(?!": the texts that may follow. `at_start`: ^ would say nothing new. */
static enum status take_look(struct reader *r, bool at_start, bool negated, expr_id *out) {
    struct part x;
    if (at_start) take(r, "^");
    r->depth++;
    TRY(take_choice(r, false, &x));
    r->depth--;
    if (!take(r, ")")) return bad(r, "a parenthesis is not closed");
    if (x.has_begin) return bad(r, "^ inside look-ahead is not supported");
    int c = peek(r, 0);
    if (c == '*' || c == '+' || c == '?' || c == '{') return bad(r, "look-ahead is repeated");
    expr_id e = expr_concat(r->pool, x.expr, EXPR_ANY);
    *out = negated ? expr_not(r->pool, e) : e;
    return ST_OK;
}

/* The look-ahead of a sequence: where it stands, and what may follow there. */
struct looks {
    expr_id exprs[LOOKS_MAX];
    uint32_t places[LOOKS_MAX]; /* items before it */
    uint32_t count;
};

/* Takes all look-ahead that stands here. */
static enum status take_looks(struct reader *r, bool at_start, uint32_t place, struct looks *l) {
    while (r->depth == 0) {
        bool negated = take(r, "(?!");
        if (!negated && !take(r, "(?=")) break;
        if (r->no_look) return bad(r, "look-ahead is not supported here");
        if (l->count == LOOKS_MAX) return bad(r, "too much look-ahead");
        l->places[l->count] = place;
        TRY(take_look(r, at_start, negated, &l->exprs[l->count]));
        l->count++;
    }
    return ST_OK;
}

/* Items and look-ahead from the last to the first. Look-ahead sees everything up to the end of the
 * text, so the end becomes part of the sequence. */
static enum status join_looks(struct reader *r, const expr_id *items, uint32_t count,
                              const struct looks *l, struct part *out) {
    struct expr_pool *p = r->pool;
    if (out->has_end && !out->is_end) return bad(r, "look-ahead with $ in the middle");
    out->expr = EXPR_EMPTY;
    if (r->spelling == SPELL_JSON && !out->is_end) {
        expr_id chars = expr_repeat(p, chars_any(p, SPELL_JSON), 0, EXPR_NO_MAX);
        out->expr = expr_concat(p, chars, expr_range(p, '"', '"'));
        out->has_end = out->is_end = true;
    }
    for (uint32_t at = count + 1, look = l->count; at-- > 0;) {
        for (; look > 0 && l->places[look - 1] == at; look--)
            out->expr = expr_and(p, out->expr, l->exprs[look - 1]);
        if (at > 0) out->expr = expr_concat(p, items[at - 1], out->expr);
    }
    return ST_OK;
}

static enum status take_sequence(struct reader *r, bool at_start, struct part *out) {
    expr_id items[ITEMS_MAX];
    uint32_t count = 0;
    bool is_only_begin = false;
    struct looks looks = {.count = 0};
    *out = (struct part){.expr = EXPR_EMPTY};
    while (true) {
        struct part item;
        TRY(take_looks(r, at_start && out->has_begin, count, &looks));
        if (peek(r, 0) < 0 || peek(r, 0) == '|' || peek(r, 0) == ')') break;
        if (expr_has_failed(r->pool)) return bad(r, "past the budget");
        size_t from = r->at;
        TRY(take_repeated(r, at_start, &item));
        const bool is_anchor = r->at == from + 1 && strchr("^$", r->source.ptr[from]);
        if (is_anchor && item.has_end && out->is_end) continue;   /* "(a$|b$)$" */
        if (is_only_begin && item.is_begin && looks.count == 0) { /* "^(^a|^b)" */
            count = 0;
            out->has_begin = false;
        }
        is_only_begin = is_anchor && item.has_begin && count == 0;
        TRY(append(r, out, item));
        if (looks.count && item.has_begin) return bad(r, "^ behind look-ahead is not supported");
        if (count == 0) out->is_begin = item.is_begin;
        out->is_end = item.is_end;
        if (r->source.ptr[from] != '^') at_start = false;
        items[count++] = item.expr;
        if (count < ITEMS_MAX) continue;
        if (looks.count) return bad(r, "look-ahead in so long a pattern is not supported");
        for (; count > 1; count--)
            items[count - 2] = expr_concat(r->pool, items[count - 2], items[count - 1]);
    }
    if (looks.count) return join_looks(r, items, count, &looks, out);
    for (; count > 0; count--) out->expr = expr_concat(r->pool, items[count - 1], out->expr);
    return ST_OK;
}

/* Recursion is bounded by DEPTH_MAX groups. */
static enum status take_choice(struct reader *r, bool at_start, struct part *out) {
    TRY(take_sequence(r, at_start, out));
    while (take(r, "|")) {
        struct part more;
        if (expr_has_failed(r->pool)) return bad(r, "past the budget");
        TRY(take_sequence(r, at_start, &more));
        out->expr = expr_or(r->pool, out->expr, more.expr);
        out->has_begin |= more.has_begin;
        out->has_end |= more.has_end;
        out->is_begin &= more.is_begin;
        out->is_end &= more.is_end;
    }
    return ST_OK;
}

static enum status read_all(struct reader *r, struct part *out) {
    TRY(take_choice(r, true, out));
    return r->at == r->source.len ? ST_OK : bad(r, "a parenthesis that was not opened");
}

enum status regex_whole(struct expr_pool *p, struct str source, uint32_t flags, expr_id *out,
                        struct err *err) {
    struct reader r = {.pool = p,
                       .source = source,
                       .spelling = SPELL_UTF8,
                       .fold_case = flags & REGEX_FOLD_CASE,
                       .no_look = flags & REGEX_NO_LOOK,
                       .err = err};
    struct part all;
    TRY(read_all(&r, &all));
    *out = all.expr;
    return ST_OK;
}

enum status regex_search_json(struct expr_pool *p, struct str source, expr_id *out,
                              struct err *err) {
    struct reader r = {.pool = p, .source = source, .spelling = SPELL_JSON, .err = err};
    struct part all;
    TRY(read_all(&r, &all));
    expr_id quote = expr_range(p, '"', '"');
    expr_id chars = expr_repeat(p, chars_any(p, SPELL_JSON), 0, EXPR_NO_MAX);
    expr_id before = expr_concat(p, quote, chars), behind = expr_concat(p, chars, quote);
    if (all.has_begin) before = all.is_begin ? EXPR_EMPTY : expr_or(p, before, EXPR_EMPTY);
    if (all.has_end) behind = all.is_end ? EXPR_EMPTY : expr_or(p, behind, EXPR_EMPTY);
    expr_id found = expr_concat(p, before, expr_concat(p, all.expr, behind));
    expr_id strings = expr_concat(p, quote, expr_concat(p, chars, quote));
    /* ^ and $ at all ends and nowhere else leave nothing but strings. */
    bool is_plain = all.has_begin == all.is_begin && all.has_end == all.is_end;
    *out = is_plain ? found : expr_and(p, found, strings);
    return ST_OK;
}
