/* text/regex_translate.c - see text/regex_int.h. */
#include <string.h>

#include "base/buf.h"
#include "text/regex_int.h"

/* The bodies of sets, without brackets. */
static const char space_set[] = "\\x09-\\x0D\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}"
                                "\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
static const char word_set[] = "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}"
                               "\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";
static const char hex_set[] = "0-9A-Fa-f";

struct translate {
    struct str in;
    size_t pos;
    struct buf *out;
    const char *what;
    struct err *err;
};

static enum status refuse(const struct translate *t, const char *construct) {
    return err_set(t->err, ST_BAD, "%s: regular expression: %s is not supported", t->what,
                   construct);
}

static char peek(const struct translate *t, size_t ahead) {
    return t->pos + ahead < t->in.len ? t->in.ptr[t->pos + ahead] : '\0';
}

static const char *set_of(char letter) {
    switch (letter) {
    case 's':
    case 'S':
        return space_set;
    case 'w':
    case 'W':
        return word_set;
    case 'h':
    case 'H':
        return hex_set;
    default:
        return NULL;
    }
}

static bool is_category(struct str name) {
    static const char first[] = "LMNPSZC";
    static const char *const other[] = {"Any", "L&", "Xan", "Xps", "Xsp", "Xwd"};
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
        if (str_is(name, other[i])) return true;
    return name.len >= 1 && name.len <= 2 && memchr(first, name.ptr[0], sizeof(first) - 1);
}

/* Long names of categories that patterns use; PCRE2 knows only the short ones. */
static const char *short_category(struct str name) {
    static const struct {
        const char *name, *category;
    } names[] = {{"Letter", "L"},
                 {"Mark", "M"},
                 {"Number", "N"},
                 {"Punctuation", "P"},
                 {"Symbol", "S"},
                 {"Separator", "Z"},
                 {"Other", "C"},
                 {"Uppercase_Letter", "Lu"},
                 {"Lowercase_Letter", "Ll"},
                 {"Decimal_Number", "Nd"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (str_is(name, names[i].name)) return names[i].category;
    return NULL;
}

/* \p{Han} is a script to Oniguruma; PCRE2 would use script extensions by default. */
static enum status put_property(struct translate *t) {
    char kind = peek(t, 1);
    if (peek(t, 2) != '{') return refuse(t, "\\p without braces");
    const char *close = memchr(t->in.ptr + t->pos, '}', t->in.len - t->pos);
    if (!close) return refuse(t, "\\p{ without }");
    size_t from = t->pos + 3, to = (size_t)(close - t->in.ptr);
    bool negate = t->in.ptr[from] == '^';
    struct str name = {t->in.ptr + from + negate, to - from - negate};
    const char *category = short_category(name);
    if ((kind == 'P') != negate)
        buf_put_text(t->out, "\\P{");
    else
        buf_put_text(t->out, "\\p{");
    if (category)
        buf_put_text(t->out, category);
    else
        buf_printf(t->out, "%s%.*s", is_category(name) ? "" : "sc:", STR_ARG(name));
    buf_put_char(t->out, '}');
    t->pos = to + 1;
    return ST_OK;
}

/* \u0041 and \u{41}. */
static enum status put_code(struct translate *t) {
    size_t from = t->pos + 2, digits = 4;
    bool braces = peek(t, 2) == '{';
    if (braces) {
        const char *close = memchr(t->in.ptr + from, '}', t->in.len - from);
        if (!close) return refuse(t, "\\u{ without }");
        from++;
        digits = (size_t)(close - t->in.ptr) - from;
    }
    if (digits == 0 || digits > 6 || from + digits > t->in.len) return refuse(t, "this \\u");
    buf_printf(t->out, "\\x{%.*s}", (int)digits, t->in.ptr + from);
    t->pos = from + digits + braces;
    return ST_OK;
}

static void put_two(struct translate *t) {
    size_t len = t->in.len - t->pos < 2 ? t->in.len - t->pos : 2;
    buf_put(t->out, t->in.ptr + t->pos, len);
    t->pos += len;
}

/* An escape inside brackets. */
static enum status put_set_escape(struct translate *t) {
    char letter = peek(t, 1);
    const char *set = set_of(letter);
    if (set && (letter == 'S' || letter == 'W' || letter == 'H')) {
        /* PCRE2 cannot subtract, but it can name the complement of \s well enough: all
         * letters, marks, numbers, punctuation, symbols, others that are not blanks. */
        if (letter != 'S') return refuse(t, "a negated set inside brackets");
        buf_put_text(t->out, "\\x00-\\x08\\x0E-\\x1F\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}"
                             "\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}"
                             "\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}");
        t->pos += 2;
        return ST_OK;
    }
    if (set) {
        buf_put_text(t->out, set);
        t->pos += 2;
        return ST_OK;
    }
    if (letter == 'p' || letter == 'P') return put_property(t);
    if (letter == 'u') return put_code(t);
    put_two(t);
    return ST_OK;
}

/* Inside brackets up to the closing one or to &&; nested sets are joined to this one. */
static enum status put_set_body(struct translate *t, bool nested) {
    bool first = true;
    while (t->pos < t->in.len) {
        char c = peek(t, 0);
        if (c == ']' && !first) return ST_OK;
        if (c == '&' && peek(t, 1) == '&') return nested ? refuse(t, "this use of &&") : ST_OK;
        if (c == '[' && peek(t, 1) == ':') {
            buf_put_text(t->out, "[:");
            t->pos += 2;
        } else if (c == '[') {
            if (nested || peek(t, 1) == '^') return refuse(t, "this set inside a set");
            t->pos++;
            TRY(put_set_body(t, true));
            t->pos++;
        } else if (c == '\\') {
            TRY(put_set_escape(t));
        } else {
            buf_put_char(t->out, c);
            t->pos++;
        }
        first = false;
    }
    return refuse(t, "[ without ]");
}

static enum status put_bracketed(struct translate *t) {
    buf_put_char(t->out, '[');
    t->pos++;
    if (peek(t, 0) == '^') {
        buf_put_char(t->out, '^');
        t->pos++;
    }
    TRY(put_set_body(t, false));
    buf_put_char(t->out, ']');
    return ST_OK;
}

/* [A&&[^B]] is "one of A that is also one of not-B": (?=[^B])[A]. */
static enum status put_set(struct translate *t) {
    struct buf *out = t->out, left;
    buf_init(&left, 1 << 20);
    t->out = &left;
    enum status st = put_bracketed(t);
    t->out = out;
    bool both = st == ST_OK && peek(t, 0) == '&';
    if (both) {
        t->pos += 2;
        st = peek(t, 0) == '[' ? ST_OK : refuse(t, "&& without a set after it");
        buf_put_text(out, "(?:(?=");
        if (st == ST_OK) st = put_bracketed(t);
        if (st == ST_OK) t->pos++;
        if (st == ST_OK && peek(t, 0) != ']') st = refuse(t, "this use of &&");
        buf_put_text(out, ")");
    }
    buf_put_str(out, buf_str(&left));
    if (both) buf_put_text(out, ")");
    if (st == ST_OK) t->pos++;
    if (buf_status(&left) != ST_OK) st = buf_status(&left);
    buf_deinit(&left);
    return st;
}

/* A word boundary, or none, with Oniguruma's idea of a word. */
static void put_boundary(struct translate *t, bool boundary) {
    const char *w = word_set;
    if (boundary)
        buf_printf(t->out, "(?:(?<=[%s])(?![%s])|(?<![%s])(?=[%s]))", w, w, w, w);
    else
        buf_printf(t->out, "(?:(?<=[%s])(?=[%s])|(?<![%s])(?![%s]))", w, w, w, w);
    t->pos += 2;
}

/* An escape outside brackets. */
static enum status put_escape(struct translate *t) {
    char letter = peek(t, 1);
    const char *set = set_of(letter);
    if (set) {
        bool negate = letter == 'S' || letter == 'W' || letter == 'H';
        buf_printf(t->out, "[%s%s]", negate ? "^" : "", set);
        t->pos += 2;
        return ST_OK;
    }
    if (letter == 'b' || letter == 'B') {
        put_boundary(t, letter == 'b');
        return ST_OK;
    }
    if (letter == 'p' || letter == 'P') return put_property(t);
    if (letter == 'u') return put_code(t);
    put_two(t);
    return ST_OK;
}

enum status regex_translate(struct str pattern, const char *what, struct buf *out,
                            struct err *err) {
    struct translate t = {.in = pattern, .out = out, .what = what, .err = err};
    while (t.pos < pattern.len) {
        char c = peek(&t, 0);
        if (c == '\\') {
            TRY(put_escape(&t));
        } else if (c == '[') {
            TRY(put_set(&t));
        } else {
            buf_put_char(out, c);
            t.pos++;
        }
    }
    return ST_OK;
}
