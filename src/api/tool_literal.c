/* api/tool_literal.c - turns arguments that are not JSON into JSON byte by byte.
 *
 *   python    city="Paris", n=3, l=[1, 'a'], d={'k': None})
 *   escaped   city:<escape>Paris<escape>,n:3,l:[1],d:{k:null}}
 *   quoted    the same with <|"|> in place of <escape>
 *
 * Python's literals are strings in either quote, once or three times, with its escapes; numbers,
 * True, False and None; lists, tuples (which become lists) and dicts. JSON's true, false and null
 * are read too. Positional arguments, other expressions and numbers in other bases are malformed:
 * SCAN_NOT, and what is not yet passed on is in `raw`. */
#include <string.h>

#include "api/tool_literal_int.h"
#include "base/check.h"
#include "base/utf8.h"

const struct tool_notation tool_notation_python = {.assign = '=', .close = ')'};
const struct tool_notation tool_notation_escaped = {
    .assign = ':', .close = '}', .escape = "<escape>", .end = "<end_function_call>"};
const struct tool_notation tool_notation_quoted = {
    .assign = ':', .close = '}', .escape = "<|\"|>", .end = "<tool_call|>"};

enum {
    AT_NAME,   /* an argument's name, or the end */
    IN_NAME,   /* inside it */
    AT_ASSIGN, /* white space after it */
    AT_VALUE,
    AT_KEY, /* of a map */
    AT_COLON,
    AFTER_VALUE,
    IN_MARK,  /* the mark before a string */
    AT_QUOTE, /* after a string's first quote */
    AT_QUOTE2,
    IN_STRING,
    IN_ESCAPE,
    IN_HEX,
    IN_OCTAL,
    IN_NUMBER,
    IN_WORD,
};

static void put(struct tool_parser *p, const char *text) { tool_put_args(p, str_of(text)); }

static enum tool_scanned go(struct tool_literal *l, uint32_t state) {
    l->state = state;
    return SCAN_MORE;
}

static bool put_raw(struct tool_literal *l, char c) {
    if (l->raw_len == sizeof(l->raw)) return false;
    l->raw[l->raw_len++] = c;
    return true;
}

void tool_literal_flush(struct tool_parser *p, bool is_cut) {
    struct tool_literal *l = &p->scan.literal;
    if (l->state == AT_QUOTE2) put(p, "\"");
    if (is_cut && l->state != IN_NUMBER && l->state != IN_WORD) return;
    if (l->has_comma) put(p, ", ");
    tool_put_args(p, (struct str){l->raw, l->raw_len});
    l->raw_len = 0;
}

/* One byte of a string's content. */
static void put_content(struct tool_parser *p, char c) {
    char bytes[8];
    if (c != '"' && c != '\\' && (unsigned char)c >= ' ') {
        tool_put_args(p, (struct str){&c, 1});
        return;
    }
    static const char from[] = "\n\r\t\b\f\"\\", to[] = "nrtbf\"\\";
    const char *at = c ? strchr(from, c) : NULL;
    static const char hex[] = "0123456789abcdef";
    size_t len = 0;
    bytes[len++] = '\\';
    if (at) {
        bytes[len++] = to[at - from];
    } else {
        memcpy(bytes + len, "u00", 3);
        len += 3;
        bytes[len++] = hex[(unsigned char)c >> 4];
        bytes[len++] = hex[c & 15];
    }
    tool_put_args(p, (struct str){bytes, len});
}

/* A character that an escape stands for. Half a surrogate pair stays an escape. */
static void put_code(struct tool_parser *p, uint32_t code) {
    char bytes[6];
    if (code < 0x80) {
        put_content(p, (char)code);
        return;
    }
    if (code >= 0xD800 && code <= 0xDFFF) {
        bytes[0] = '\\';
        bytes[1] = 'u';
        for (int i = 0; i < 4; i++) bytes[2 + i] = "0123456789abcdef"[code >> (12 - 4 * i) & 15];
        tool_put_args(p, (struct str){bytes, 6});
        return;
    }
    size_t len = utf8_encode(code <= 0x10FFFF ? code : 0xFFFD, bytes);
    tool_put_args(p, (struct str){bytes, len});
}

/* An element of a list or a key of a map begins. */
static void begin_item(struct tool_parser *p) {
    struct tool_literal *l = &p->scan.literal;
    uint64_t bit = (uint64_t)1 << (l->depth - 1);
    if (l->has_item & bit) put(p, ", ");
    l->has_item |= bit;
    l->has_comma = false;
}

static bool in_map(const struct tool_literal *l) {
    return l->depth && l->closers[l->depth - 1] == '}';
}

static enum tool_scanned end_value(struct tool_literal *l) {
    bool was_key = l->is_key;
    l->is_key = false;
    return go(l, was_key ? AT_COLON : AFTER_VALUE);
}

static enum tool_scanned open_bracket(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    if (l->depth == TOOL_LITERAL_DEPTH_MAX) return SCAN_NOT;
    l->closers[l->depth] = c == '{' ? '}' : c == '[' ? ']' : ')';
    l->has_item &= ~((uint64_t)1 << l->depth);
    l->depth++;
    put(p, c == '{' ? "{" : "[");
    return go(l, c == '{' ? AT_KEY : AT_VALUE);
}

static enum tool_scanned close_bracket(struct tool_parser *p) {
    struct tool_literal *l = &p->scan.literal;
    put(p, in_map(l) ? "}" : "]");
    l->has_comma = false;
    l->depth--;
    return go(l, AFTER_VALUE);
}

static enum tool_scanned begin_string(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    l->quote = c;
    l->matched = 0;
    l->is_triple = false;
    p->scan.in_string = true;
    p->scan.is_broken = false;
    put(p, "\"");
    return go(l, AT_QUOTE);
}

static enum tool_scanned end_string(struct tool_parser *p) {
    p->scan.in_string = p->scan.is_broken = false;
    put(p, "\"");
    return end_value(&p->scan.literal);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* A byte of an argument's name, or of a key without quotes. JSON's names have bytes that Python's
 * do not have. */
static bool is_name_byte_at(const struct tool_notation *notation, size_t at, char c) {
    if (notation->escape) return (unsigned char)c > ' ' && !strchr(":,{}[]<>\"\\", c);
    if (is_letter(c) || (unsigned char)c >= 0x80 || c == '$' || c == '@') return true;
    return at && (is_digit(c) || c == '-' || c == '.' || c == '/');
}

static bool is_name_byte(const struct tool_literal *l, char c) {
    return is_name_byte_at(l->notation, l->raw_len, c);
}

bool tool_literal_is_name(const struct tool_notation *notation, struct str name) {
    for (size_t i = 0; i < name.len; i++)
        if (!is_name_byte_at(notation, i, name.ptr[i])) return false;
    return name.len > 0 && name.len <= TOOL_LITERAL_WORD_MAX;
}

/* A string, number or word: a value or a key. */
static enum tool_scanned begin_scalar(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    l->raw_len = 0;
    if (l->notation->escape && c == '<') {
        put_raw(l, c);
        return go(l, IN_MARK);
    }
    if (!l->notation->escape && (c == '"' || c == '\'')) return begin_string(p, c);
    bool is_number = is_digit(c) || (c && strchr("+-.", c));
    if (!is_number && (l->is_key || !is_letter(c))) return SCAN_NOT;
    put_raw(l, c);
    return go(l, is_number ? IN_NUMBER : IN_WORD);
}

static enum tool_scanned step_at_value(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    if (tool_is_blank(c)) return SCAN_MORE;
    bool in_list = l->depth && !in_map(l);
    if (in_list && c == l->closers[l->depth - 1]) return close_bracket(p);
    bool is_open = c == '[' || c == '{' || (c == '(' && !l->notation->escape);
    if (!is_open && !is_letter(c) && !is_digit(c) && !(c && strchr("+-.\"'<", c))) return SCAN_NOT;
    if (in_list) begin_item(p);
    return is_open ? open_bracket(p, c) : begin_scalar(p, c);
}

static enum tool_scanned step_at_key(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    if (tool_is_blank(c)) return SCAN_MORE;
    if (c == '}') return close_bracket(p);
    l->is_key = true;
    l->raw_len = 0;
    if (l->notation->escape && is_name_byte(l, c)) {
        begin_item(p);
        put_raw(l, c);
        return go(l, IN_NAME);
    }
    if (!is_digit(c) && !(c && strchr("-\"'<", c))) return SCAN_NOT;
    begin_item(p);
    return begin_scalar(p, c);
}

static enum tool_scanned end_args(struct tool_parser *p) {
    bool is_empty = !p->scan.has_args;
    tool_args_begin(p);
    put(p, is_empty ? "{}" : "}");
    p->scan.args_ended = true;
    return SCAN_DONE;
}

static enum tool_scanned step_at_name(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    if (tool_is_blank(c)) return SCAN_MORE;
    if (c == l->notation->close) return end_args(p);
    l->raw_len = 0;
    if (!is_name_byte(l, c)) return SCAN_NOT;
    put_raw(l, c);
    return go(l, IN_NAME);
}

/* The name in `raw` is an argument's, or a key's inside a map. */
static enum tool_scanned end_name(struct tool_parser *p) {
    struct tool_literal *l = &p->scan.literal;
    bool is_first = l->depth == 0 && !p->scan.has_args;
    if (is_first) tool_args_begin(p);
    if (l->depth == 0) put(p, is_first ? "{" : ", ");
    l->is_key = l->has_comma = false;
    put(p, "\"");
    for (uint32_t i = 0; i < l->raw_len; i++) put_content(p, l->raw[i]);
    l->raw_len = 0;
    put(p, "\": ");
    return go(l, AT_VALUE);
}

static enum tool_scanned step_name(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    if (c == l->notation->assign) return end_name(p);
    if (l->state == IN_NAME && is_name_byte(l, c)) return put_raw(l, c) ? SCAN_MORE : SCAN_NOT;
    return tool_is_blank(c) ? go(l, AT_ASSIGN) : SCAN_NOT;
}

static enum tool_scanned step_after(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    if (tool_is_blank(c)) return SCAN_MORE;
    l->has_comma = c == ',';
    if (c == ',' && l->depth) return go(l, in_map(l) ? AT_KEY : AT_VALUE);
    if (c == ',') return go(l, AT_NAME);
    if (l->depth) return c == l->closers[l->depth - 1] ? close_bracket(p) : SCAN_NOT;
    return c == l->notation->close ? end_args(p) : SCAN_NOT;
}

static enum tool_scanned step_mark(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    const char *mark = l->notation->escape;
    if (mark[l->raw_len] != c) return SCAN_NOT;
    put_raw(l, c);
    if (mark[l->raw_len]) return SCAN_MORE;
    l->raw_len = l->matched = 0;
    put(p, "\"");
    p->scan.is_broken = true; /* the closing mark ends the string too */
    return go(l, IN_STRING);
}

/* Content up to the mark, which begins with a byte that does not occur in it again. */
static enum tool_scanned step_marked_string(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    const char *mark = l->notation->escape;
    if (mark[l->matched] == c) {
        l->matched++;
        return mark[l->matched] ? SCAN_MORE : end_string(p);
    }
    for (uint32_t i = 0; i < l->matched; i++) put_content(p, mark[i]);
    l->matched = c == mark[0];
    if (!l->matched) put_content(p, c);
    return SCAN_MORE;
}

static enum tool_scanned step_string(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    if (l->notation->escape) return step_marked_string(p, c);
    if (c == l->quote) {
        l->matched++;
        return l->matched < (l->is_triple ? 3 : 1) ? SCAN_MORE : end_string(p);
    }
    for (; l->matched; l->matched--) put_content(p, l->quote);
    if (c == '\\') {
        l->raw_len = 0;
        put_raw(l, c);
        return go(l, IN_ESCAPE);
    }
    if ((unsigned char)c < ' ' && !l->is_triple) p->scan.is_broken = true;
    put_content(p, c);
    return SCAN_MORE;
}

/* One quote begins a string, two are an empty one, three begin a long one. */
static enum tool_scanned step_quote(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    if (l->state == AT_QUOTE && c != l->quote) {
        l->state = IN_STRING;
        return step_string(p, c);
    }
    if (l->state == AT_QUOTE) {
        p->scan.in_string = false; /* unless a third follows */
        return go(l, AT_QUOTE2);
    }
    if (c == l->quote) {
        l->is_triple = p->scan.in_string = true;
        return go(l, IN_STRING);
    }
    end_string(p);
    return tool_literal_step(p, c); /* once: the string has ended */
}

static enum tool_scanned end_escape(struct tool_literal *l) {
    l->raw_len = 0;
    return go(l, IN_STRING);
}

static enum tool_scanned step_escape(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    static const char from[] = "nrtbfav\\'\"/", to[] = "\n\r\t\b\f\a\v\\'\"/";
    const char *at = c ? strchr(from, c) : NULL;
    if (c == 'x' || c == 'u' || c == 'U') {
        put_raw(l, c);
        l->digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        l->code = 0;
        return go(l, IN_HEX);
    }
    if (c >= '0' && c <= '7') {
        l->digits = 2;
        l->code = (uint32_t)(c - '0');
        return go(l, IN_OCTAL);
    }
    if (at) {
        put_content(p, to[at - from]);
    } else if (c != '\n') { /* Python keeps the backslash of other escapes */
        put_content(p, '\\');
        put_content(p, c);
    }
    return end_escape(l);
}

static int hex_value(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static enum tool_scanned step_hex(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    int value = hex_value(c);
    if (value < 0) return SCAN_NOT;
    put_raw(l, c);
    l->code = l->code * 16 + (uint32_t)value;
    if (--l->digits) return SCAN_MORE;
    put_code(p, l->code);
    return end_escape(l);
}

static enum tool_scanned step_octal(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    bool is_more = l->digits && c >= '0' && c <= '7';
    if (is_more) l->code = l->code * 8 + (uint32_t)(c - '0');
    if (is_more && --l->digits) return SCAN_MORE;
    put_code(p, l->code);
    end_escape(l);
    return is_more ? SCAN_MORE : step_string(p, c);
}

/* Digits without the underscores between them; how many. */
static uint32_t put_digits(const char **at, char *out, size_t *len) {
    uint32_t count = 0;
    for (; is_digit(**at) || (**at == '_' && count && is_digit((*at)[1])); ++*at) {
        if (**at == '_') continue;
        out[(*len)++] = **at;
        count++;
    }
    return count;
}

/* Write a number of Python as one of JSON, at most two bytes longer. False: it is not a decimal
 * number. */
static bool convert_number(const char *at, char *out, size_t *len) {
    if (*at == '-') out[(*len)++] = '-';
    if (*at == '-' || *at == '+') at++;
    if (at[0] == '0' && (is_digit(at[1]) || at[1] == '_')) return false;
    if (*at == '.') out[(*len)++] = '0';
    uint32_t digits = put_digits(&at, out, len);
    if (*at == '.') {
        at++;
        out[(*len)++] = '.';
        uint32_t more = put_digits(&at, out, len);
        if (!more) out[(*len)++] = '0';
        digits += more;
    }
    if (!digits) return false;
    if (*at != 'e' && *at != 'E') return *at == 0;
    out[(*len)++] = *at++;
    if (*at == '-' || *at == '+') out[(*len)++] = *at++;
    return put_digits(&at, out, len) && *at == 0;
}

static enum tool_scanned end_number(struct tool_parser *p) {
    struct tool_literal *l = &p->scan.literal;
    char text[TOOL_LITERAL_WORD_MAX + 1], number[TOOL_LITERAL_WORD_MAX + 8];
    size_t len = 0;
    memcpy(text, l->raw, l->raw_len);
    text[l->raw_len] = 0;
    if (l->is_key) number[len++] = '"';
    if (!convert_number(text, number, &len)) return SCAN_NOT;
    if (l->is_key) number[len++] = '"';
    tool_put_args(p, (struct str){number, len});
    return SCAN_DONE;
}

static enum tool_scanned end_word(struct tool_parser *p) {
    struct tool_literal *l = &p->scan.literal;
    static const char *const words[][2] = {{"True", "true"},   {"true", "true"}, {"False", "false"},
                                           {"false", "false"}, {"None", "null"}, {"null", "null"}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (!str_is((struct str){l->raw, l->raw_len}, words[i][0])) continue;
        put(p, words[i][1]);
        return SCAN_DONE;
    }
    return SCAN_NOT;
}

/* A number or word; the byte after its end decides. */
static enum tool_scanned step_plain(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    bool is_number = l->state == IN_NUMBER;
    bool is_part = is_letter(c) || is_digit(c) || (is_number && c && strchr("+-.", c));
    if (is_part) return put_raw(l, c) ? SCAN_MORE : SCAN_NOT;
    if ((is_number ? end_number(p) : end_word(p)) == SCAN_NOT) return SCAN_NOT;
    l->raw_len = 0;
    end_value(l);
    return tool_literal_step(p, c);
}

enum tool_scanned tool_literal_step(struct tool_parser *p, char c) {
    struct tool_literal *l = &p->scan.literal;
    switch (l->state) {
    case AT_NAME:
        return step_at_name(p, c);
    case IN_NAME:
    case AT_ASSIGN:
        return step_name(p, c);
    case AT_VALUE:
        return step_at_value(p, c);
    case AT_KEY:
        return step_at_key(p, c);
    case AT_COLON:
        if (tool_is_blank(c)) return SCAN_MORE;
        if (c != ':') return SCAN_NOT;
        put(p, ": ");
        return go(l, AT_VALUE);
    case IN_MARK:
        return step_mark(p, c);
    case AT_QUOTE:
    case AT_QUOTE2:
        return step_quote(p, c);
    case IN_STRING:
        return step_string(p, c);
    case IN_ESCAPE:
        return step_escape(p, c);
    case IN_HEX:
        return step_hex(p, c);
    case IN_OCTAL:
        return step_octal(p, c);
    case IN_NUMBER:
    case IN_WORD:
        return step_plain(p, c);
    default:
        return step_after(p, c);
    }
}
