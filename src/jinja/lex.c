/* jinja/lex.c - cuts a template's source into tokens.
 *
 * Between tags the source is data; inside "{{ }}" and "{% %}" it is names, numbers, strings
 * and operators. White space is decided here: a '-' beside a tag strips it, a '+' keeps it,
 * and without a sign a statement or comment alone on its line takes its indentation and the
 * newline after it (lstrip_blocks, trim_blocks).
 *
 * Entry point: jinja_lex().
 */
#include <string.h>

#include "base/arena.h"
#include "base/utf8.h"
#include "jinja/char.h"
#include "jinja/parse.h"
#include "jinja/run.h"

enum { BRACKETS_MAX = 256 };

struct lexer {
    struct parse *p;
    struct str source; /* newlines are all '\n' */
    size_t pos;
    uint32_t line;
    bool line_starting;          /* the last thing read ended a line */
    char brackets[BRACKETS_MAX]; /* the closing brackets that are expected */
    uint32_t bracket_count;
};

static char at(const struct lexer *lx, size_t pos) {
    return pos < lx->source.len ? lx->source.ptr[pos] : 0;
}

static bool looking_at(const struct lexer *lx, size_t pos, const char *what) {
    return str_starts(str_skip(lx->source, pos), str_of(what));
}

static size_t skip_space(const struct lexer *lx, size_t pos) {
    while (pos < lx->source.len) {
        uint32_t code;
        size_t len = utf8_decode(str_skip(lx->source, pos), &code);
        if (!jinja_char_is_space(code)) break;
        pos += len;
    }
    return pos;
}

/* Move on to `end`, counting lines. */
static void advance(struct lexer *lx, size_t end) {
    for (size_t i = lx->pos; i < end; i++) lx->line += lx->source.ptr[i] == '\n';
    lx->line_starting = end > lx->pos && lx->source.ptr[end - 1] == '\n';
    lx->pos = end;
}

static enum status push_token(struct lexer *lx, struct token token) {
    struct tokens *list = &lx->p->tokens;
    if (list->count == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 64;
        struct token *grown = arena_zalloc_array(lx->p->arena, cap, sizeof(*grown));
        if (!grown) return jinja_parse_full(lx->p);
        if (list->count) memcpy(grown, list->items, list->count * sizeof(*grown));
        list->items = grown;
        list->cap = cap;
    }
    list->items[list->count++] = token;
    return ST_OK;
}

static enum status push_simple(struct lexer *lx, enum token_kind kind) {
    return push_token(lx, (struct token){.kind = kind, .line = lx->line});
}

static enum status push_data(struct lexer *lx, struct str text) {
    if (!text.len) return ST_OK;
    return push_token(lx, (struct token){.kind = T_DATA, .line = lx->line, .text = text});
}

/* What remains of the data in front of a tag with this sign. */
static struct str trim_before(const struct lexer *lx, struct str text, char sign,
                              bool is_variable) {
    if (sign == '-') return jinja_str_strip_space(text, false, true);
    if (sign == '+' || is_variable) return text;
    size_t start = text.len;
    while (start > 0 && text.ptr[start - 1] != '\n') start--;
    if (start == 0 && !lx->line_starting) return text;
    struct str tail = str_skip(text, start);
    return jinja_str_strip_space(tail, true, false).len ? text : str_take(text, start);
}

static char sign_at(const struct lexer *lx, size_t pos) {
    char c = at(lx, pos);
    return c == '-' || c == '+' ? c : 0;
}

/* Where the tag end at `pos` (with its sign and the space it takes along) ends; 0 if there is
 * none. `close` is "%}", "}}" or "#}". */
static size_t tag_end(const struct lexer *lx, size_t pos, const char *close) {
    bool is_variable = close[0] == '}';
    if (at(lx, pos) == '-' && looking_at(lx, pos + 1, close)) return skip_space(lx, pos + 3);
    if (!is_variable && at(lx, pos) == '+' && looking_at(lx, pos + 1, close)) return pos + 3;
    if (!looking_at(lx, pos, close)) return 0;
    return pos + 2 + (!is_variable && at(lx, pos + 2) == '\n');
}

/* Whether "{% raw %}" or "{% endraw %}" is at `pos`; gives the end of its name. */
static bool is_raw_tag(const struct lexer *lx, size_t pos, const char *name, size_t *name_end) {
    if (!looking_at(lx, pos, "{%")) return false;
    pos += 2;
    pos += sign_at(lx, pos) != 0;
    pos = skip_space(lx, pos);
    if (!looking_at(lx, pos, name)) return false;
    *name_end = skip_space(lx, pos + strlen(name));
    return true;
}

/* A raw tag's own end takes no newline along, unlike every other statement's. */
static size_t raw_begin_end(const struct lexer *lx, size_t pos) {
    size_t end;
    if (!is_raw_tag(lx, pos, "raw", &end)) return 0;
    if (looking_at(lx, end, "-%}")) return skip_space(lx, end + 3);
    return looking_at(lx, end, "%}") ? end + 2 : 0;
}

static enum status lex_raw(struct lexer *lx, size_t content) {
    uint32_t line = lx->line;
    advance(lx, content);
    for (size_t pos = content; pos < lx->source.len; pos++) {
        size_t end;
        if (!is_raw_tag(lx, pos, "endraw", &end)) continue;
        end = tag_end(lx, end, "%}");
        if (!end) continue;
        struct str text = str_take(str_skip(lx->source, content), pos - content);
        enum status st = push_data(lx, trim_before(lx, text, sign_at(lx, pos + 2), false));
        advance(lx, end);
        return st;
    }
    return jinja_parse_fail(lx->p, line, "tag 'raw' is never closed");
}

static enum status lex_comment(struct lexer *lx) {
    uint32_t line = lx->line;
    size_t pos = lx->pos + 2;
    pos += sign_at(lx, pos) != 0;
    for (; pos < lx->source.len; pos++) {
        size_t end = tag_end(lx, pos, "#}");
        if (!end) continue;
        advance(lx, end);
        return ST_OK;
    }
    return jinja_parse_fail(lx->p, line, "a comment is never closed");
}

/* ------------------------------------------------------------------ inside a tag */

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Digits of `base` from `pos`, single underscores between them; where they end. */
static size_t skip_digits(const struct lexer *lx, size_t pos, int base) {
    size_t end = pos;
    for (;;) {
        size_t next = end + (at(lx, end) == '_' && end > pos);
        int digit = hex_value(at(lx, next));
        if (digit < 0 || digit >= base) return end;
        end = next + 1;
    }
}

/* Where a floating point number at `pos` ends; 0 if it is not one. */
static size_t float_end(const struct lexer *lx, size_t pos) {
    if (pos > 0 && at(lx, pos - 1) == '.') return 0;
    size_t end = skip_digits(lx, pos, 10);
    if (end == pos) return 0;
    bool has_point = at(lx, end) == '.' && is_digit(at(lx, end + 1));
    if (has_point) end = skip_digits(lx, end + 1, 10);
    if (at(lx, end) != 'e' && at(lx, end) != 'E') return has_point ? end : 0;
    size_t digits = end + 1;
    digits += at(lx, digits) == '+' || at(lx, digits) == '-';
    if (!is_digit(at(lx, digits))) return has_point ? end : 0;
    return skip_digits(lx, digits, 10);
}

static enum status number_text(struct lexer *lx, size_t end, char out[400], struct str *text) {
    size_t len = 0;
    for (size_t i = lx->pos; i < end; i++) {
        if (lx->source.ptr[i] == '_') continue;
        if (len >= 390) return jinja_parse_fail(lx->p, lx->line, "a number of over 390 digits");
        out[len++] = lx->source.ptr[i];
    }
    *text = (struct str){out, len};
    return ST_OK;
}

static enum status lex_float(struct lexer *lx, size_t end) {
    char digits[400];
    struct str text;
    TRY(number_text(lx, end, digits, &text));
    struct token token = {.kind = T_FLOAT, .line = lx->line};
    jinja_parse_python_float(text, &token.real); /* the lexer took nothing else */
    TRY(push_token(lx, token));
    advance(lx, end);
    return ST_OK;
}

static int radix_of(char letter) {
    switch (letter) {
    case 'b':
    case 'B':
        return 2;
    case 'o':
    case 'O':
        return 8;
    case 'x':
    case 'X':
        return 16;
    default:
        return 10;
    }
}

static enum status lex_int(struct lexer *lx) {
    int base = at(lx, lx->pos) == '0' ? radix_of(at(lx, lx->pos + 1)) : 10;
    size_t start = lx->pos + (base == 10 ? 0 : 2);
    size_t end = skip_digits(lx, start, base);
    if (base != 10 && at(lx, start) == '_' && hex_value(at(lx, start + 1)) >= 0 &&
        hex_value(at(lx, start + 1)) < base)
        end = skip_digits(lx, start + 1, base);
    if (base != 10 && end == start) { /* "0x" without digits is a zero and a name */
        base = 10;
        start = lx->pos;
        end = start + 1;
    }
    if (base == 10 && at(lx, start) == '0') { /* a decimal that starts with 0 is only zeros */
        end = start + 1;
        while (at(lx, end) == '0' || (at(lx, end) == '_' && at(lx, end + 1) == '0')) end++;
    }
    struct token token = {.kind = T_INT, .line = lx->line};
    for (size_t i = start; i < end; i++) {
        int digit = hex_value(at(lx, i));
        if (digit < 0) continue;
        if (__builtin_mul_overflow(token.integer, (int64_t)base, &token.integer) ||
            __builtin_add_overflow(token.integer, (int64_t)digit, &token.integer))
            return jinja_parse_fail(lx->p, lx->line, "an integer does not fit in 64 bits");
    }
    TRY(push_token(lx, token));
    advance(lx, end);
    return ST_OK;
}

static enum status lex_name(struct lexer *lx) {
    size_t end = lx->pos;
    while (end < lx->source.len) {
        uint32_t code;
        size_t len = utf8_decode(str_skip(lx->source, end), &code);
        if (code != '_' && !jinja_char_is_alnum(code)) break;
        bool can_follow = jinja_char_is_alpha(code) || jinja_char_is_decimal(code) || code == '_';
        if (!can_follow)
            return jinja_parse_fail(lx->p, lx->line, "invalid character in identifier");
        end += len;
    }
    struct str name = str_take(str_skip(lx->source, lx->pos), end - lx->pos);
    TRY(push_token(lx, (struct token){.kind = T_NAME, .line = lx->line, .text = name}));
    advance(lx, end);
    return ST_OK;
}

/* Up to `count` digits of `base` at `pos`; how many there were. */
static size_t read_digits(struct str s, size_t pos, size_t count, int base, uint32_t *value) {
    size_t i = 0;
    *value = 0;
    for (; i < count && pos + i < s.len; i++) {
        int digit = hex_value(s.ptr[pos + i]);
        if (digit < 0 || digit >= base) break;
        *value = *value * (uint32_t)base + (uint32_t)digit;
    }
    return i;
}

static size_t put_char(char *out, uint32_t code) { return utf8_encode(code, out); }

/* The escape at s[pos] (after the backslash) into `out`; *used is how much of `s` it took. */
static enum status unescape_one(struct lexer *lx, struct str s, size_t pos, char *out,
                                size_t *written, size_t *used) {
    static const char simple[] = "\\'\"abfnrtv", meaning[] = "\\'\"\a\b\f\n\r\t\v";
    char c = s.ptr[pos];
    const char *found = c ? strchr(simple, c) : NULL;
    uint32_t code = 0;
    *used = 1;
    if (c == '\n') {
        *written = 0;
    } else if (found) {
        out[0] = meaning[found - simple];
        *written = 1;
    } else if (c >= '0' && c <= '7') {
        *used = read_digits(s, pos, 3, 8, &code);
        *written = put_char(out, code);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        size_t want = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        *used = 1 + read_digits(s, pos + 1, want, 16, &code);
        bool is_surrogate = code >= 0xD800 && code < 0xE000;
        if (*used != 1 + want || code > 0x10FFFF || is_surrogate)
            return jinja_parse_fail(lx->p, lx->line, "bad escape '\\%c' in a string", c);
        *written = put_char(out, code);
    } else if (c == 'N') {
        return jinja_parse_fail(lx->p, lx->line, "characters by name ('\\N') are not supported");
    } else { /* an unknown escape stays as it is */
        out[0] = '\\';
        *written = 1;
        *used = 0;
    }
    return ST_OK;
}

static enum status unescape(struct lexer *lx, struct str raw, struct str *out) {
    if (!raw.len || !memchr(raw.ptr, '\\', raw.len)) {
        *out = raw;
        return ST_OK;
    }
    /* No escape is longer than what it stands for, except that "\777" is 2 bytes of 4. */
    char *text = arena_alloc(lx->p->arena, raw.len + 4);
    if (!text) return jinja_parse_full(lx->p);
    size_t len = 0;
    for (size_t i = 0; i < raw.len;) {
        if (raw.ptr[i] != '\\' || i + 1 == raw.len) {
            text[len++] = raw.ptr[i++];
            continue;
        }
        size_t written = 0, used = 0;
        TRY(unescape_one(lx, raw, i + 1, text + len, &written, &used));
        len += written;
        i += 1 + used;
    }
    *out = (struct str){text, len};
    return ST_OK;
}

static enum status lex_string(struct lexer *lx) {
    char quote = at(lx, lx->pos);
    size_t end = lx->pos + 1;
    while (end < lx->source.len && lx->source.ptr[end] != quote)
        end += lx->source.ptr[end] == '\\' && end + 1 < lx->source.len ? 2 : 1;
    if (end >= lx->source.len) return jinja_parse_fail(lx->p, lx->line, "a string is never closed");
    struct str raw = str_take(str_skip(lx->source, lx->pos + 1), end - lx->pos - 1);
    struct token token = {.kind = T_STRING, .line = lx->line};
    TRY(unescape(lx, raw, &token.text));
    TRY(push_token(lx, token));
    advance(lx, end + 1);
    return ST_OK;
}

static const struct {
    const char *text;
    enum token_kind kind;
} operators[] = {
    {"**", T_POW},   {"//", T_FLOORDIV}, {"==", T_EQ},      {"!=", T_NE},      {">=", T_GE},
    {"<=", T_LE},    {"+", T_ADD},       {"-", T_SUB},      {"*", T_MUL},      {"/", T_DIV},
    {"%", T_MOD},    {"~", T_TILDE},     {"<", T_LT},       {">", T_GT},       {"=", T_ASSIGN},
    {".", T_DOT},    {":", T_COLON},     {"|", T_PIPE},     {",", T_COMMA},    {";", T_SEMICOLON},
    {"(", T_LPAREN}, {")", T_RPAREN},    {"[", T_LBRACKET}, {"]", T_RBRACKET}, {"{", T_LBRACE},
    {"}", T_RBRACE},
};

static enum status balance(struct lexer *lx, enum token_kind kind, char c) {
    char closing = kind == T_LPAREN ? ')' : kind == T_LBRACKET ? ']' : '}';
    if (kind == T_LPAREN || kind == T_LBRACKET || kind == T_LBRACE) {
        if (lx->bracket_count == BRACKETS_MAX)
            return jinja_parse_fail(lx->p, lx->line, "brackets nested over %d deep", BRACKETS_MAX);
        lx->brackets[lx->bracket_count++] = closing;
    } else if (kind == T_RPAREN || kind == T_RBRACKET || kind == T_RBRACE) {
        if (!lx->bracket_count) return jinja_parse_fail(lx->p, lx->line, "unexpected '%c'", c);
        char due = lx->brackets[--lx->bracket_count];
        if (due != c)
            return jinja_parse_fail(lx->p, lx->line, "unexpected '%c', expected '%c'", c, due);
    }
    return ST_OK;
}

static enum status lex_operator(struct lexer *lx) {
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++) {
        if (!looking_at(lx, lx->pos, operators[i].text)) continue;
        TRY(balance(lx, operators[i].kind, operators[i].text[0]));
        TRY(push_simple(lx, operators[i].kind));
        advance(lx, lx->pos + strlen(operators[i].text));
        return ST_OK;
    }
    uint32_t code;
    struct str rest = str_skip(lx->source, lx->pos);
    struct str bad = str_take(rest, utf8_decode(rest, &code));
    return jinja_parse_fail(lx->p, lx->line, "unexpected character '%.*s'", STR_ARG(bad));
}

static enum status lex_in_tag(struct lexer *lx) {
    uint32_t code;
    utf8_decode(str_skip(lx->source, lx->pos), &code);
    if (code >= '0' && code <= '9') {
        size_t end = float_end(lx, lx->pos);
        return end ? lex_float(lx, end) : lex_int(lx);
    }
    if (code == '_' || jinja_char_is_alpha(code) || jinja_char_is_numeric(code))
        return lex_name(lx);
    if (code == '"' || code == '\'') return lex_string(lx);
    return lex_operator(lx);
}

/* From the opening braces to the closing ones. */
static enum status lex_tag(struct lexer *lx, bool is_variable) {
    const char *close = is_variable ? "}}" : "%}";
    TRY(push_simple(lx, is_variable ? T_VARIABLE_BEGIN : T_BLOCK_BEGIN));
    advance(lx, lx->pos + 2 + (sign_at(lx, lx->pos + 2) != 0));
    lx->bracket_count = 0;
    while (lx->pos < lx->source.len) {
        size_t end = lx->bracket_count ? 0 : tag_end(lx, lx->pos, close);
        if (end) {
            TRY(push_simple(lx, is_variable ? T_VARIABLE_END : T_BLOCK_END));
            advance(lx, end);
            return ST_OK;
        }
        size_t behind = skip_space(lx, lx->pos);
        if (behind > lx->pos)
            advance(lx, behind);
        else
            TRY(lex_in_tag(lx));
    }
    return ST_OK; /* the parser says what is missing */
}

/* ------------------------------------------------------------------ outside tags */

static size_t find_tag(const struct lexer *lx) {
    for (size_t pos = lx->pos; pos + 1 < lx->source.len; pos++) {
        const char *brace = memchr(lx->source.ptr + pos, '{', lx->source.len - pos - 1);
        if (!brace) break;
        pos = (size_t)(brace - lx->source.ptr);
        if (brace[1] == '{' || brace[1] == '%' || brace[1] == '#') return pos;
    }
    return lx->source.len;
}

static enum status lex_root(struct lexer *lx) {
    size_t start = find_tag(lx);
    struct str text = str_take(str_skip(lx->source, lx->pos), start - lx->pos);
    if (start == lx->source.len) {
        enum status st = push_data(lx, text);
        advance(lx, start);
        return st;
    }
    char kind = lx->source.ptr[start + 1];
    TRY(push_data(lx, trim_before(lx, text, sign_at(lx, start + 2), kind == '{')));
    advance(lx, start);
    size_t raw_end = raw_begin_end(lx, start);
    if (raw_end) return lex_raw(lx, raw_end);
    if (kind == '#') return lex_comment(lx);
    return lex_tag(lx, kind == '{');
}

/* All newlines become '\n', and one at the very end is dropped. */
static enum status normalize(struct parse *p, struct str source, struct str *out) {
    char *text = arena_alloc(p->arena, source.len);
    if (!text) return jinja_parse_full(p);
    size_t len = 0;
    for (size_t i = 0; i < source.len; i++) {
        char c = source.ptr[i];
        if (c == '\r') {
            c = '\n';
            if (i + 1 < source.len && source.ptr[i + 1] == '\n') i++;
        }
        text[len++] = c;
    }
    if (len && text[len - 1] == '\n') len--;
    *out = (struct str){text, len};
    return ST_OK;
}

enum status jinja_lex(struct parse *p, struct str source) {
    if (!utf8_is_valid(source)) return jinja_parse_fail(p, 1, "the template is not valid UTF-8");
    struct lexer lx = {.p = p, .line = 1, .line_starting = true};
    TRY(normalize(p, source, &lx.source));
    while (lx.pos < lx.source.len) TRY(lex_root(&lx));
    return push_simple(&lx, T_EOF);
}
