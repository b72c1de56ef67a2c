/* api/tool_scan.c - scans one tool call byte by byte.
 *
 *   {"name": "f", "arguments": {..}}                        in any order of keys
 *   {"name": "f", "parameters": {..}}
 *   {"type": "function", "function": {"name": "f", ..}}     and "function": "f"
 *   {"name": "f", "arguments": "{..}"}                      JSON in a string
 *
 * Strict about what decides whether it is a call (keys, the name, separators), lax inside values:
 * arguments are passed on as the model wrote them, so the scanner only follows brackets and strings
 * to find their end. It counts the depth and needs no stack.
 *
 * What is malformed before the name is whole is not a call. After it the call was emitted (if a
 * mark preceded it), and the arguments come as they are written, whatever they are.
 */
#include <string.h>

#include "api/tool_literal_int.h"
#include "base/check.h"
#include "base/utf8.h"

enum { UN_PLAIN, UN_BACKSLASH, UN_HEX1, UN_HEX2, UN_HEX3, UN_HEX4 };

enum { REPLACEMENT = 0xFFFD };

static void put_code(uint32_t code, char *out, size_t *len) {
    char bytes[4];
    size_t count = utf8_encode(code, bytes);
    memcpy(out + *len, bytes, count);
    *len += count;
}

/* A first half of a surrogate pair without its second half. */
static void drop_high(struct tool_unescape *u, char *out, size_t *len) {
    if (u->high) put_code(REPLACEMENT, out, len);
    u->high = 0;
}

static void take_code(struct tool_unescape *u, char *out, size_t *len) {
    bool is_low = u->code >= 0xDC00 && u->code <= 0xDFFF;
    if (u->high && is_low) {
        put_code(0x10000 + ((u->high - 0xD800) << 10) + (u->code - 0xDC00), out, len);
        u->high = 0;
        return;
    }
    drop_high(u, out, len);
    if (u->code >= 0xD800 && u->code <= 0xDBFF)
        u->high = u->code;
    else
        put_code(is_low ? REPLACEMENT : u->code, out, len);
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* What a backslash and `c` mean; for an escape that JSON does not have, `c` itself. */
static char escaped(char c) {
    static const char from[] = "nrtbf", to[] = "\n\r\t\b\f";
    const char *at = c ? strchr(from, c) : NULL;
    return at ? to[at - from] : c;
}

enum tool_scanned tool_unescape_step(struct tool_unescape *u, char c, char out[8], size_t *len) {
    *len = 0;
    if (u->step >= UN_HEX1) {
        int value = hex_value(c);
        if (value < 0) return SCAN_NOT;
        u->raw[u->raw_len++] = c;
        u->code = u->code * 16 + (uint32_t)value;
        u->step = u->step == UN_HEX4 ? UN_PLAIN : u->step + 1;
        if (u->step == UN_PLAIN) take_code(u, out, len);
        if (u->step == UN_PLAIN) u->raw_len = 0;
        return SCAN_MORE;
    }
    if (u->step == UN_BACKSLASH && c == 'u') {
        u->step = UN_HEX1;
        u->code = 0;
        u->raw[u->raw_len++] = c;
        return SCAN_MORE;
    }
    if (u->step == UN_PLAIN && c == '\\') {
        u->step = UN_BACKSLASH;
        u->raw[0] = c;
        u->raw_len = 1;
        return SCAN_MORE;
    }
    drop_high(u, out, len);
    if (u->step == UN_PLAIN && c == '"') return SCAN_DONE;
    out[(*len)++] = u->step == UN_BACKSLASH ? escaped(c) : c;
    u->step = UN_PLAIN;
    u->raw_len = 0;
    return SCAN_MORE;
}

enum {
    AT_OPEN,      /* the object's '{' */
    AT_KEY,       /* a key's quote or the object's end */
    IN_KEY,       /* inside the quotes */
    AT_COLON,     /* after a key */
    AT_VALUE,     /* after the colon */
    IN_NAME,      /* the string with the function's name */
    AT_ARGS,      /* before arguments that are alone */
    IN_ARGS,      /* the arguments' object, or another value in its place */
    IN_ARGS_TEXT, /* the string with the arguments' object in it */
    IN_ARGS_WORD, /* a number or word in place of the arguments */
    IN_LITERAL,   /* arguments in another notation */
    IN_REST,      /* malformed arguments: everything up to the closing mark */
    IN_OTHER,     /* a string, list or map that is skipped */
    IN_SCALAR,    /* a number or word that is skipped */
    AT_COMMA,     /* after a value */
};

enum { KEY_NAME, KEY_FUNCTION, KEY_ARGS, KEY_KNOWN, KEY_UNKNOWN };

static const struct {
    const char *text;
    uint32_t key;
} key_list[] = {{"name", KEY_NAME},       {"function", KEY_FUNCTION}, {"arguments", KEY_ARGS},
                {"parameters", KEY_ARGS}, {"type", KEY_KNOWN},        {"id", KEY_KNOWN}};

static uint32_t key_of(struct str text) {
    for (size_t i = 0; i < sizeof(key_list) / sizeof(key_list[0]); i++)
        if (str_is(text, key_list[i].text)) return key_list[i].key;
    return KEY_UNKNOWN;
}

static void reset(struct tool_parser *p) {
    struct buf name = p->scan.name, args = p->scan.args;
    p->scan = (struct tool_scan){.name = name, .args = args, .is_active = true};
    p->scan.args.len = 0;
}

void tool_scan_begin(struct tool_parser *p, bool is_strict) {
    reset(p);
    p->scan.name.len = 0;
    p->scan.level = 1;
    p->scan.is_strict = is_strict;
}

void tool_scan_begin_args(struct tool_parser *p) {
    reset(p);
    p->scan.state = AT_ARGS;
    p->scan.has_name = p->scan.has_args = true;
    tool_emit_call(p);
}

void tool_scan_begin_literal(struct tool_parser *p, const struct tool_notation *notation,
                             bool is_strict) {
    reset(p);
    p->scan.state = IN_LITERAL;
    p->scan.has_name = true;
    p->scan.is_strict = is_strict;
    p->scan.literal.notation = notation;
    if (!is_strict) tool_emit_call(p);
}

void tool_put_args(struct tool_parser *p, struct str piece) {
    if (!piece.len) return;
    p->scan.has_arg_bytes = true;
    if (p->scan.is_emitted)
        tool_emit_args(p, piece);
    else
        buf_put_str(&p->scan.args, piece);
}

static void put_arg_byte(struct tool_parser *p, char c) { tool_put_args(p, (struct str){&c, 1}); }

static void emit_if_known(struct tool_parser *p) {
    struct tool_scan *s = &p->scan;
    bool is_known = s->has_name && (s->has_args || !s->is_strict);
    if (is_known && !s->is_emitted) tool_emit_call(p);
}

void tool_args_begin(struct tool_parser *p) {
    p->scan.has_args = true;
    emit_if_known(p);
}

void tool_scan_break(struct tool_parser *p, struct str piece) {
    DCHECK(p->scan.is_emitted);
    p->scan.has_args = true;
    p->scan.state = IN_REST;
    tool_put_args(p, piece);
}

static enum tool_scanned go(struct tool_scan *s, uint32_t state) {
    s->state = state;
    return SCAN_MORE;
}

static enum tool_scanned end_args(struct tool_scan *s) {
    s->args_ended = true;
    return s->level == 0 ? SCAN_DONE : go(s, AT_COMMA);
}

static enum tool_scanned end_object(struct tool_parser *p) {
    struct tool_scan *s = &p->scan;
    if (s->level == 2) {
        s->level = 1;
        return go(s, AT_COMMA);
    }
    if (!s->is_emitted && (s->is_strict || !s->has_name)) return SCAN_NOT;
    if (!s->is_emitted) tool_emit_call(p);
    if (!s->has_arg_bytes) tool_put_args(p, STR("{}"));
    return SCAN_DONE;
}

static enum tool_scanned step_key(struct tool_parser *p, char c) {
    struct tool_scan *s = &p->scan;
    if (c == '"' && !s->in_escape) {
        s->key = key_of((struct str){s->key_text, s->key_len});
        bool is_strange = s->key == KEY_UNKNOWN && s->is_strict && !s->is_emitted;
        return is_strange ? SCAN_NOT : go(s, AT_COLON);
    }
    if ((unsigned char)c < ' ') return SCAN_NOT;
    /* A key that is longer than any known one, or has escapes, is unknown. */
    s->in_escape = c == '\\' && !s->in_escape;
    if (s->key_len < sizeof(s->key_text)) s->key_text[s->key_len++] = c;
    return SCAN_MORE;
}

static bool is_word_char(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c && strchr("+-.E", c));
}

/* Begin to follow a string, list or map from its first byte. */
static void begin_value_at(struct tool_scan *s, char c) {
    s->in_string = c == '"';
    s->in_escape = s->is_broken = false;
    s->depth = c != '"';
}

static enum tool_scanned begin_other(struct tool_scan *s, char c) {
    if (c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z')) return go(s, IN_SCALAR);
    if (c != '"' && c != '{' && c != '[') return SCAN_NOT;
    begin_value_at(s, c);
    return go(s, IN_OTHER);
}

/* The arguments begin. Only after the call was emitted may they be something else than an object:
 * before, that means that it is not a call. */
static enum tool_scanned begin_args(struct tool_parser *p, char c) {
    struct tool_scan *s = &p->scan;
    s->args.len = 0;
    if (c == '"') {
        s->text = (struct tool_unescape){0};
        s->is_broken = false;
        buf_put_char(&s->args, c);
        return go(s, IN_ARGS_TEXT);
    }
    if (c == '{' || (c == '[' && s->is_emitted)) {
        begin_value_at(s, c);
        s->state = IN_ARGS;
        tool_args_begin(p);
        put_arg_byte(p, c);
        return SCAN_MORE;
    }
    if (!s->is_emitted) return c == 'n' ? begin_other(s, c) : SCAN_NOT; /* null: none */
    if (!is_word_char(c)) return SCAN_NOT;
    buf_put_char(&s->args, c);
    return go(s, IN_ARGS_WORD);
}

/* A value begins. Until the call is emitted, a value that no call has ends the scan. Afterwards,
 * and for a second value of the same key, it is skipped. */
static enum tool_scanned begin_value(struct tool_parser *p, char c) {
    struct tool_scan *s = &p->scan;
    if (s->key >= KEY_KNOWN) return begin_other(s, c);
    if (s->key == KEY_ARGS && !s->has_args) return begin_args(p, c);
    if (s->is_emitted) return begin_other(s, c);
    if (s->key == KEY_ARGS) return SCAN_NOT;
    if (s->key == KEY_FUNCTION && c == '{' && s->level == 1) {
        s->level = 2;
        return go(s, AT_KEY);
    }
    if (c != '"' || s->has_name) return SCAN_NOT;
    s->name.len = 0;
    s->text = (struct tool_unescape){0};
    return go(s, IN_NAME);
}

static enum tool_scanned step_name(struct tool_parser *p, char c) {
    struct tool_scan *s = &p->scan;
    char bytes[8];
    size_t len;
    enum tool_scanned got = tool_unescape_step(&s->text, c, bytes, &len);
    if (got == SCAN_NOT || (unsigned char)c < ' ') return SCAN_NOT;
    if (s->name.len + len > TOOL_NAME_BYTES_MAX) return SCAN_NOT;
    buf_put(&s->name, bytes, len);
    if (got == SCAN_MORE) return SCAN_MORE;
    if (!tool_name_is_known(p, buf_str(&s->name))) return SCAN_NOT;
    s->has_name = true;
    emit_if_known(p);
    return go(s, AT_COMMA);
}

/* Follow brackets and strings; true at the end of the value. */
static bool value_ends(struct tool_scan *s, char c) {
    if (s->in_string) {
        bool is_end = c == '"' && !s->in_escape;
        s->in_escape = c == '\\' && !s->in_escape;
        s->in_string = !is_end;
        s->is_broken = !is_end && (s->is_broken || (unsigned char)c < ' ');
        return is_end && s->depth == 0;
    }
    if (c == '"') s->in_string = true;
    if (c == '{' || c == '[') s->depth++;
    if (c == '}' || c == ']') s->depth--;
    return !s->in_string && s->depth == 0;
}

static enum tool_scanned step_at_args(struct tool_parser *p, char c) {
    if (tool_is_blank(c)) return SCAN_MORE;
    if (c != '{' && c != '[' && c != '"') return SCAN_NOT;
    begin_value_at(&p->scan, c);
    put_arg_byte(p, c);
    return go(&p->scan, IN_ARGS);
}

static enum tool_scanned step_args(struct tool_parser *p, char c) {
    bool is_end = value_ends(&p->scan, c);
    put_arg_byte(p, c);
    return is_end ? end_args(&p->scan) : SCAN_MORE;
}

/* The string in scan.args, as far as it has come, holds no object: it is passed on as written. */
static enum tool_scanned begin_raw_text(struct tool_parser *p, bool is_whole) {
    struct tool_scan *s = &p->scan;
    if (!s->is_emitted) return SCAN_NOT;
    s->has_args = true;
    tool_put_args(p, buf_str(&s->args));
    s->args.len = 0;
    begin_value_at(s, '"');
    s->in_escape = s->text.step == UN_BACKSLASH;
    return is_whole ? end_args(s) : go(s, IN_ARGS);
}

/* White space before the object in the string is dropped. */
static enum tool_scanned begin_args_text(struct tool_parser *p, struct str bytes, bool is_whole) {
    enum { BLANKS_MAX = 256 };
    struct tool_scan *s = &p->scan;
    bool is_blank = !bytes.len || tool_is_blank(bytes.ptr[0]);
    if (is_blank && !is_whole && s->args.len < BLANKS_MAX) return SCAN_MORE;
    if (!is_blank && bytes.ptr[0] != '{') return begin_raw_text(p, is_whole);
    if (is_blank && !is_whole) return begin_raw_text(p, false);
    s->args.len = 0;
    if (is_blank) return end_args(s);
    tool_args_begin(p);
    tool_put_args(p, bytes);
    return SCAN_MORE;
}

static enum tool_scanned step_args_text(struct tool_parser *p, char c) {
    struct tool_scan *s = &p->scan;
    char bytes[8];
    size_t len;
    enum tool_scanned got = tool_unescape_step(&s->text, c, bytes, &len);
    if (got == SCAN_NOT) return SCAN_NOT;
    if ((unsigned char)c < ' ') s->is_broken = true;
    if (!s->has_args) {
        buf_put_char(&s->args, c);
        return begin_args_text(p, (struct str){bytes, len}, got == SCAN_DONE);
    }
    tool_put_args(p, (struct str){bytes, len});
    return got == SCAN_DONE ? end_args(s) : SCAN_MORE;
}

static enum tool_scanned step_comma(struct tool_parser *p, char c) {
    if (tool_is_blank(c)) return SCAN_MORE;
    if (c == ',') return go(&p->scan, AT_KEY);
    return c == '}' ? end_object(p) : SCAN_NOT;
}

static enum tool_scanned step_scalar(struct tool_parser *p, char c) {
    if (is_word_char(c)) return SCAN_MORE;
    if (p->scan.key == KEY_ARGS) p->scan.args_ended = true;
    p->scan.state = AT_COMMA;
    return step_comma(p, c);
}

/* null means that there are no arguments; any other word is passed on as it is. */
static enum tool_scanned step_args_word(struct tool_parser *p, char c) {
    struct tool_scan *s = &p->scan;
    bool is_word = is_word_char(c);
    if (is_word) buf_put_char(&s->args, c);
    bool is_null = str_is(buf_str(&s->args), "null");
    if (is_word && str_starts(STR("null"), buf_str(&s->args))) return SCAN_MORE;
    if (!is_null) tool_put_args(p, buf_str(&s->args));
    s->args.len = 0;
    if (is_word) return SCAN_MORE;
    s->has_args = true;
    end_args(s);
    return step_comma(p, c);
}

static enum tool_scanned step_at_key(struct tool_parser *p, char c) {
    struct tool_scan *s = &p->scan;
    if (tool_is_blank(c)) return SCAN_MORE;
    if (c == '}') return end_object(p);
    if (c != '"') return SCAN_NOT;
    s->key_len = 0;
    s->in_escape = false;
    return go(s, IN_KEY);
}

static enum tool_scanned step_any(struct tool_parser *p, char c) {
    struct tool_scan *s = &p->scan;
    switch (s->state) {
    case AT_OPEN:
        return c == '{' ? go(s, AT_KEY) : SCAN_NOT;
    case AT_KEY:
        return step_at_key(p, c);
    case IN_KEY:
        return step_key(p, c);
    case AT_COLON:
        if (tool_is_blank(c)) return SCAN_MORE;
        return c == ':' ? go(s, AT_VALUE) : SCAN_NOT;
    case AT_VALUE:
        return tool_is_blank(c) ? SCAN_MORE : begin_value(p, c);
    case IN_NAME:
        return step_name(p, c);
    case AT_ARGS:
        return step_at_args(p, c);
    case IN_ARGS:
        return step_args(p, c);
    case IN_ARGS_TEXT:
        return step_args_text(p, c);
    case IN_ARGS_WORD:
        return step_args_word(p, c);
    case IN_LITERAL:
        return tool_literal_step(p, c);
    case IN_REST:
        put_arg_byte(p, c);
        return SCAN_MORE;
    case IN_OTHER:
        return value_ends(s, c) ? go(s, AT_COMMA) : SCAN_MORE;
    case IN_SCALAR:
        return step_scalar(p, c);
    default:
        return step_comma(p, c);
    }
}

/* Pass on what was read of the arguments but not yet decided. */
static void put_undecided(struct tool_parser *p) {
    struct tool_scan *s = &p->scan;
    if (s->state == IN_LITERAL) tool_literal_flush(p, false);
    if (s->state == IN_ARGS_TEXT && s->has_args)
        tool_put_args(p, (struct str){s->text.raw, s->text.raw_len});
    if (s->state == IN_ARGS_TEXT || s->state == IN_ARGS_WORD) tool_put_args(p, buf_str(&s->args));
    s->args.len = 0;
}

static enum tool_scanned take_byte(struct tool_parser *p, char c) {
    struct tool_scan *s = &p->scan;
    enum tool_scanned got = step_any(p, c);
    if (got != SCAN_NOT || !s->is_emitted || s->args_ended) return got;
    put_undecided(p);
    tool_scan_break(p, (struct str){&c, 1});
    return SCAN_MORE;
}

/* Inside a string that is well-formed so far, where the closing mark is a part of the string, or
 * inside a word, which any mark ends. */
static bool is_quoted(const struct tool_scan *s) {
    if (s->state == IN_ARGS_WORD) return true;
    if (s->is_broken) return false;
    if (s->state == IN_KEY || s->state == IN_ARGS_TEXT) return true;
    return (s->state == IN_ARGS || s->state == IN_OTHER || s->state == IN_LITERAL) && s->in_string;
}

static bool may_close(const struct tool_scan *s) {
    if (!s->closing || !s->is_emitted || s->args_ended) return false;
    return s->closing_matched > 0 || !is_quoted(s);
}

enum tool_scanned tool_scan_step(struct tool_parser *p, char c) {
    struct tool_scan *s = &p->scan;
    if (may_close(s) && s->closing[s->closing_matched] == c) {
        s->is_closed = s->closing[++s->closing_matched] == 0;
        if (!s->is_closed) return SCAN_MORE;
        if (s->state != IN_REST) put_undecided(p);
        s->is_active = false;
        return SCAN_DONE;
    }
    uint32_t matched = s->closing_matched;
    s->closing_matched = 0;
    for (uint32_t i = 0; i < matched; i++) CHECK(take_byte(p, s->closing[i]) == SCAN_MORE);
    if (matched) return tool_scan_step(p, c); /* once: nothing is matched any more */
    enum tool_scanned got = take_byte(p, c);
    s->is_active = got == SCAN_MORE;
    if (got == SCAN_MORE && !s->is_emitted) tool_hold(p, c);
    return got;
}

void tool_scan_finish(struct tool_parser *p) {
    struct tool_scan *s = &p->scan;
    if (!s->is_active || !s->is_emitted || s->args_ended) return;
    bool is_literal = s->state == IN_LITERAL;
    if (is_literal) tool_literal_flush(p, true);
    if (s->state == IN_ARGS_WORD) put_undecided(p);
    bool is_cut_mark = is_literal && s->literal.notation->escape; /* not of the content */
    if (s->closing_matched && !is_cut_mark)
        tool_put_args(p, str_take(str_of(s->closing), s->closing_matched));
}
