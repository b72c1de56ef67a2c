/* jinja/case.c - methods of texts about letter case, kinds of characters and padding. */
#include "base/utf8.h"
#include "jinja/template.h"
#include "jinja/char.h"
#include "jinja/methods.h"
#include "jinja/run.h"
#include "jinja/value.h"

/* ------------------------------------------------------------------ letter case */

/* Append one character in the case that follows from `mode` and the characters before it. */
typedef void case_fn(struct buf *out, struct str whole, size_t at, uint32_t code, bool in_word);

static void one_upper(struct buf *out, struct str whole, size_t at, uint32_t code, bool in_word) {
    (void)whole, (void)at, (void)in_word;
    jinja_put_upper(out, code);
}

static void one_lower(struct buf *out, struct str whole, size_t at, uint32_t code, bool in_word) {
    (void)in_word;
    jinja_put_lower(out, whole, at, code);
}

static void one_folded(struct buf *out, struct str whole, size_t at, uint32_t code, bool in_word) {
    (void)whole, (void)at, (void)in_word;
    jinja_put_casefold(out, code);
}

static void one_swapped(struct buf *out, struct str whole, size_t at, uint32_t code, bool in_word) {
    (void)in_word;
    if (jinja_char_is_upper(code))
        jinja_put_lower(out, whole, at, code);
    else if (jinja_char_is_lower(code))
        jinja_put_upper(out, code);
    else
        buf_put_str(out, str_take(str_skip(whole, at), utf8_decode(str_skip(whole, at), &code)));
}

static void one_title(struct buf *out, struct str whole, size_t at, uint32_t code, bool in_word) {
    if (in_word)
        jinja_put_lower(out, whole, at, code);
    else
        jinja_put_title(out, code);
}

static void one_capital(struct buf *out, struct str whole, size_t at, uint32_t code, bool in_word) {
    (void)in_word;
    one_title(out, whole, at, code, at > 0);
}

static enum status change_case(struct run *r, struct value v, case_fn *fn, struct value *out) {
    struct str s = jinja_value_str(v);
    size_t mark = r->work.len;
    bool in_word = false;
    TRY(jinja_run_steps(r, s.len / 16));
    for (size_t at = 0; at < s.len;) {
        uint32_t code;
        size_t len = utf8_decode(str_skip(s, at), &code);
        fn(&r->work, s, at, code, in_word);
        in_word = jinja_char_is_cased(code);
        at += len;
    }
    TRY(jinja_run_take(r, mark, out));
    out->text->markup = v.text->markup;
    return ST_OK;
}

enum status jinja_str_upper(struct run *r, struct call *call, struct value *out) {
    return change_case(r, call->self, one_upper, out);
}
enum status jinja_str_lower(struct run *r, struct call *call, struct value *out) {
    return change_case(r, call->self, one_lower, out);
}
enum status jinja_str_casefold(struct run *r, struct call *call, struct value *out) {
    return change_case(r, call->self, one_folded, out);
}
enum status jinja_str_swapcase(struct run *r, struct call *call, struct value *out) {
    return change_case(r, call->self, one_swapped, out);
}
enum status jinja_str_title(struct run *r, struct call *call, struct value *out) {
    return change_case(r, call->self, one_title, out);
}
enum status jinja_str_capitalize(struct run *r, struct call *call, struct value *out) {
    return change_case(r, call->self, one_capital, out);
}

/* ------------------------------------------------------------------ kinds of characters */

/* Whether every character is of a kind; `if_empty` is the answer for "". */
static enum status all_chars(struct run *r, struct value v, bool (*is)(uint32_t), bool if_empty,
                             struct value *out) {
    struct str s = jinja_value_str(v);
    bool all = s.len ? true : if_empty;
    TRY(jinja_run_steps(r, s.len / 16));
    while (s.len && all) {
        uint32_t code;
        size_t len = utf8_decode(s, &code);
        all = is(code);
        s = str_skip(s, len);
    }
    *out = jinja_value_bool(all);
    return ST_OK;
}

static bool is_ascii(uint32_t code) { return code < 0x80; }

enum status jinja_str_isalnum(struct run *r, struct call *call, struct value *out) {
    return all_chars(r, call->self, jinja_char_is_alnum, false, out);
}
enum status jinja_str_isalpha(struct run *r, struct call *call, struct value *out) {
    return all_chars(r, call->self, jinja_char_is_alpha, false, out);
}
enum status jinja_str_isascii(struct run *r, struct call *call, struct value *out) {
    return all_chars(r, call->self, is_ascii, true, out);
}
enum status jinja_str_isdecimal(struct run *r, struct call *call, struct value *out) {
    return all_chars(r, call->self, jinja_char_is_decimal, false, out);
}
enum status jinja_str_isdigit(struct run *r, struct call *call, struct value *out) {
    return all_chars(r, call->self, jinja_char_is_digit, false, out);
}
enum status jinja_str_isnumeric(struct run *r, struct call *call, struct value *out) {
    return all_chars(r, call->self, jinja_char_is_numeric, false, out);
}
enum status jinja_str_isprintable(struct run *r, struct call *call, struct value *out) {
    return all_chars(r, call->self, jinja_char_is_printable, true, out);
}
enum status jinja_str_isspace(struct run *r, struct call *call, struct value *out) {
    return all_chars(r, call->self, jinja_char_is_space, false, out);
}

enum status jinja_str_isidentifier(struct run *r, struct call *call, struct value *out) {
    struct str s = jinja_value_str(call->self);
    bool is_name = s.len > 0;
    TRY(jinja_run_steps(r, s.len / 16));
    for (size_t at = 0; at < s.len && is_name;) {
        uint32_t code;
        size_t len = utf8_decode(str_skip(s, at), &code);
        is_name =
            code == '_' || jinja_char_is_alpha(code) || (at > 0 && jinja_char_is_decimal(code));
        at += len;
    }
    *out = jinja_value_bool(is_name);
    return ST_OK;
}

/* All cased characters are of one case, and there is one. */
static enum status all_cased(struct run *r, struct value v, bool (*is)(uint32_t),
                             struct value *out) {
    struct str s = jinja_value_str(v);
    bool any = false;
    *out = jinja_value_bool(false);
    TRY(jinja_run_steps(r, s.len / 16));
    while (s.len) {
        uint32_t code;
        size_t len = utf8_decode(s, &code);
        bool is_right = is(code);
        if (!is_right && jinja_char_is_cased(code)) return ST_OK;
        any = any || is_right;
        s = str_skip(s, len);
    }
    *out = jinja_value_bool(any);
    return ST_OK;
}

enum status jinja_str_islower(struct run *r, struct call *call, struct value *out) {
    return all_cased(r, call->self, jinja_char_is_lower, out);
}
enum status jinja_str_isupper(struct run *r, struct call *call, struct value *out) {
    return all_cased(r, call->self, jinja_char_is_upper, out);
}

/* Capitals only start words, small letters only continue them. */
enum status jinja_str_istitle(struct run *r, struct call *call, struct value *out) {
    struct str s = jinja_value_str(call->self);
    bool in_word = false, any = false;
    *out = jinja_value_bool(false);
    TRY(jinja_run_steps(r, s.len / 16));
    while (s.len) {
        uint32_t code;
        size_t len = utf8_decode(s, &code);
        bool is_capital = jinja_char_is_upper(code) || jinja_char_is_title(code);
        bool is_small = jinja_char_is_lower(code);
        if ((is_capital && in_word) || (is_small && !in_word)) return ST_OK;
        in_word = is_capital || is_small;
        any = any || in_word;
        s = str_skip(s, len);
    }
    *out = jinja_value_bool(any);
    return ST_OK;
}

/* ------------------------------------------------------------------ padding */

static enum status pad(struct run *r, struct call *call, int64_t width, int64_t left,
                       struct value *out) {
    struct value v = call->self, fill = call->argv[1];
    int64_t missing = width - jinja_text_chars(v.text);
    size_t mark = r->work.len;
    struct str unit = STR(" ");
    if (fill.type != V_MISSING) {
        bool is_one = fill.type == V_TEXT && jinja_text_chars(fill.text) == 1;
        if (!is_one)
            return jinja_run_fail(r, "the fill character must be exactly one character long");
        unit = jinja_value_str(fill);
    }
    if (missing <= 0) {
        *out = v;
        return ST_OK;
    }
    if ((uint64_t)missing > r->limits->memory_max) return jinja_run_full(r);
    TRY(jinja_run_steps(r, (uint64_t)missing / 16));
    for (int64_t i = 0; i < left; i++) buf_put_str(&r->work, unit);
    buf_put_str(&r->work, jinja_value_str(v));
    for (int64_t i = left; i < missing; i++) buf_put_str(&r->work, unit);
    TRY(jinja_run_take(r, mark, out));
    out->text->markup = v.text->markup;
    return ST_OK;
}

enum status jinja_str_center(struct run *r, struct call *call, struct value *out) {
    int64_t width;
    TRY(jinja_arg_int(r, call, 0, 0, &width));
    int64_t missing = width - jinja_text_chars(call->self.text);
    return pad(r, call, width, missing / 2 + (missing & width & 1), out);
}

enum status jinja_str_ljust(struct run *r, struct call *call, struct value *out) {
    int64_t width;
    TRY(jinja_arg_int(r, call, 0, 0, &width));
    return pad(r, call, width, 0, out);
}

enum status jinja_str_rjust(struct run *r, struct call *call, struct value *out) {
    int64_t width;
    TRY(jinja_arg_int(r, call, 0, 0, &width));
    return pad(r, call, width, width - jinja_text_chars(call->self.text), out);
}

/* Zeros go between a sign and the digits. */
enum status jinja_str_zfill(struct run *r, struct call *call, struct value *out) {
    struct value v = call->self;
    struct str s = jinja_value_str(v);
    int64_t width;
    TRY(jinja_arg_int(r, call, 0, 0, &width));
    int64_t missing = width - jinja_text_chars(v.text);
    *out = v;
    if (missing <= 0) return ST_OK;
    if ((uint64_t)missing > r->limits->memory_max) return jinja_run_full(r);
    TRY(jinja_run_steps(r, (uint64_t)missing / 16));
    size_t mark = r->work.len, sign = s.len && (s.ptr[0] == '-' || s.ptr[0] == '+');
    buf_put_str(&r->work, str_take(s, sign));
    for (int64_t i = 0; i < missing; i++) buf_put_char(&r->work, '0');
    buf_put_str(&r->work, str_skip(s, sign));
    TRY(jinja_run_take(r, mark, out));
    out->text->markup = v.text->markup;
    return ST_OK;
}

enum status jinja_str_expandtabs(struct run *r, struct call *call, struct value *out) {
    struct str s = jinja_value_str(call->self);
    int64_t size, column = 0;
    size_t mark = r->work.len;
    TRY(jinja_arg_int(r, call, 0, 8, &size));
    for (size_t at = 0; at < s.len;) {
        uint32_t code;
        size_t len = utf8_decode(str_skip(s, at), &code);
        TRY(jinja_run_steps(r, 1));
        int64_t blanks = code == '\t' && size > 0 ? size - column % size : 0;
        if ((uint64_t)blanks > r->limits->memory_max) return jinja_run_full(r);
        for (int64_t i = 0; i < blanks; i++) buf_put_char(&r->work, ' ');
        if (code != '\t') buf_put_str(&r->work, str_take(str_skip(s, at), len));
        column = code == '\n' || code == '\r' ? 0 : column + blanks + (code != '\t');
        at += len;
    }
    TRY(jinja_run_take(r, mark, out));
    out->text->markup = call->self.text->markup;
    return ST_OK;
}
