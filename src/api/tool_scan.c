/* api/tool_scan.c - scans the JSON of one tool call byte by byte.
 *
 *   {"name": "f", "arguments": {..}}                        in any order of keys
 *   {"name": "f", "parameters": {..}}
 *   {"type": "function", "function": {"name": "f", ..}}     and "function": "f"
 *   {"name": "f", "arguments": "{..}"}                      JSON in a string
 *
 * Strict about what decides whether it is a call (keys, the name, separators), lax inside values:
 * arguments are passed on as the model wrote them, so the scanner only follows brackets and strings
 * to find their end. It counts the depth and needs no stack.
 */
#include <string.h>

#include "api/tool_int.h"
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
        u->code = u->code * 16 + (uint32_t)value;
        u->step = u->step == UN_HEX4 ? UN_PLAIN : u->step + 1;
        if (u->step == UN_PLAIN) take_code(u, out, len);
        return SCAN_MORE;
    }
    if (u->step == UN_BACKSLASH && c == 'u') {
        u->step = UN_HEX1;
        u->code = 0;
        return SCAN_MORE;
    }
    if (u->step == UN_PLAIN && c == '\\') {
        u->step = UN_BACKSLASH;
        return SCAN_MORE;
    }
    drop_high(u, out, len);
    if (u->step == UN_PLAIN && c == '"') return SCAN_DONE;
    out[(*len)++] = u->step == UN_BACKSLASH ? escaped(c) : c;
    u->step = UN_PLAIN;
    return SCAN_MORE;
}

enum {
    AT_OPEN,      /* the object's '{' */
    AT_KEY,       /* a key's quote or the object's end */
    IN_KEY,       /* inside the quotes */
    AT_COLON,     /* after a key */
    AT_VALUE,     /* after the colon */
    IN_NAME,      /* the string with the function's name */
    IN_ARGS,      /* the arguments' object */
    IN_ARGS_TEXT, /* the string with the arguments' object in it */
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
    p->scan = (struct tool_scan){.name = name, .args = args};
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
    p->scan.state = IN_ARGS;
    p->scan.has_name = p->scan.has_args = true;
    tool_emit_call(p);
}

/* Arguments are passed on, or are kept until the call is emitted. */
static void put_args(struct tool_parser *p, struct str piece) {
    if (!piece.len) return;
    p->scan.has_arg_bytes = true;
    if (p->scan.is_emitted)
        tool_emit_args(p, piece);
    else
        buf_put_str(&p->scan.args, piece);
}

static void emit_if_known(struct tool_parser *p) {
    struct tool_scan *s = &p->scan;
    if (s->has_name && s->has_args && !s->is_emitted) tool_emit_call(p);
}

static enum tool_scanned go(struct tool_scan *s, uint32_t state) {
    s->state = state;
    return SCAN_MORE;
}

static enum tool_scanned end_object(struct tool_parser *p) {
    struct tool_scan *s = &p->scan;
    if (s->level == 2) {
        s->level = 1;
        return go(s, AT_COMMA);
    }
    if (!s->is_emitted && (s->is_strict || !s->has_name)) return SCAN_NOT;
    if (!s->is_emitted) tool_emit_call(p);
    if (!s->has_arg_bytes) put_args(p, STR("{}"));
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

static enum tool_scanned begin_other(struct tool_scan *s, char c) {
    bool is_word = c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z');
    if (is_word) return go(s, IN_SCALAR);
    if (c != '"' && c != '{' && c != '[') return SCAN_NOT;
    s->in_string = c == '"';
    s->in_escape = false;
    s->depth = c != '"';
    return go(s, IN_OTHER);
}

static enum tool_scanned begin_args(struct tool_parser *p, char c) {
    struct tool_scan *s = &p->scan;
    if (c == '"') {
        s->text = (struct tool_unescape){0};
        return go(s, IN_ARGS_TEXT);
    }
    s->has_args = true;
    s->in_string = s->in_escape = false;
    s->depth = 1;
    s->state = IN_ARGS;
    emit_if_known(p);
    put_args(p, (struct str){&c, 1});
    return SCAN_MORE;
}

/* A value begins. Until the call is emitted, a value that no call has ends the scan. Afterwards,
 * and for a second value of the same key, it is skipped. */
static enum tool_scanned begin_value(struct tool_parser *p, char c) {
    struct tool_scan *s = &p->scan;
    bool is_name = s->key == KEY_NAME || s->key == KEY_FUNCTION;
    if (s->is_emitted || s->key >= KEY_KNOWN) return begin_other(s, c);
    if (s->key == KEY_FUNCTION && c == '{' && s->level == 1) {
        s->level = 2;
        return go(s, AT_KEY);
    }
    if (is_name && c == '"' && !s->has_name) {
        s->name.len = 0;
        s->text = (struct tool_unescape){0};
        return go(s, IN_NAME);
    }
    if (is_name || s->has_args) return SCAN_NOT;
    if (c == '{' || c == '"') return begin_args(p, c);
    return c == 'n' ? begin_other(s, c) : SCAN_NOT; /* null: without arguments */
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
        return is_end && s->depth == 0;
    }
    if (c == '"') s->in_string = true;
    if (c == '{' || c == '[') s->depth++;
    if (c == '}' || c == ']') s->depth--;
    return !s->in_string && s->depth == 0;
}

static enum tool_scanned step_args(struct tool_parser *p, char c) {
    bool is_end = value_ends(&p->scan, c);
    put_args(p, (struct str){&c, 1});
    if (!is_end) return SCAN_MORE;
    return p->scan.level == 0 ? SCAN_DONE : go(&p->scan, AT_COMMA);
}

static enum tool_scanned step_args_text(struct tool_parser *p, char c) {
    struct tool_scan *s = &p->scan;
    char bytes[8];
    size_t len;
    enum tool_scanned got = tool_unescape_step(&s->text, c, bytes, &len);
    if (got == SCAN_NOT) return SCAN_NOT;
    if (!s->has_args && len && !tool_is_blank(bytes[0])) {
        if (bytes[0] != '{') return SCAN_NOT; /* arguments must be an object */
        s->has_args = true;
        emit_if_known(p);
    }
    if (s->has_args) put_args(p, (struct str){bytes, len});
    return got == SCAN_DONE ? go(s, AT_COMMA) : SCAN_MORE;
}

static enum tool_scanned step_comma(struct tool_parser *p, char c) {
    if (tool_is_blank(c)) return SCAN_MORE;
    if (c == ',') return go(&p->scan, AT_KEY);
    return c == '}' ? end_object(p) : SCAN_NOT;
}

static enum tool_scanned step_scalar(struct tool_parser *p, char c) {
    bool is_word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || strchr("+-.E", c);
    if (is_word && c) return SCAN_MORE;
    p->scan.state = AT_COMMA;
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
    case IN_ARGS:
        return step_args(p, c);
    case IN_ARGS_TEXT:
        return step_args_text(p, c);
    case IN_OTHER:
        return value_ends(s, c) ? go(s, AT_COMMA) : SCAN_MORE;
    case IN_SCALAR:
        return step_scalar(p, c);
    default:
        return step_comma(p, c);
    }
}

enum tool_scanned tool_scan_step(struct tool_parser *p, char c) {
    enum tool_scanned got = step_any(p, c);
    if (got == SCAN_MORE && !p->scan.is_emitted) tool_hold(p, c);
    return got;
}
