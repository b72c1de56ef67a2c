/* jinja/wrap.c - the wordwrap filter, which breaks lines as Python's textwrap does.
 *
 * A line is cut into chunks: runs of white space, words, words up to a hyphen between letters,
 * and dashes of two or more. Chunks fill lines; white space is dropped where a line breaks.
 */
#include <string.h>

#include "base/utf8.h"
#include "jinja/char.h"
#include "jinja/filters.h"
#include "jinja/methods.h"
#include "jinja/value.h"

struct wrap {
    struct run *r;
    int64_t width;
    bool break_words, break_hyphens;
    struct value lines; /* results */
};

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\v' || c == '\f' || c == '\r';
}

static uint32_t code_at(struct str s, size_t at) {
    uint32_t code = 0;
    if (at < s.len) utf8_decode(str_skip(s, at), &code);
    return code;
}

static uint32_t code_before(struct str s, size_t at) {
    uint32_t code = 0;
    if (at > 0) jinja_utf8_before(s, at, &code);
    return code;
}

static bool is_word(uint32_t code) { return code == '_' || jinja_char_is_alnum(code); }
static bool is_letter(uint32_t code) { return is_word(code) && !jinja_char_is_decimal(code); }

static bool is_word_punct(uint32_t code) {
    return is_word(code) || (code && code < 0x80 && strchr("!\"'&.,?", (int)code));
}

static size_t before(struct str s, size_t at) {
    uint32_t code;
    return at > 0 ? jinja_utf8_before(s, at, &code) : 0;
}

/* Whether the hyphen in front of `at` parts a word there: two letters before it (or a letter,
 * a hyphen and a word character), two letters after it, perhaps with a hyphen between. */
static bool parts_word(struct str s, size_t at) {
    size_t hyphen = before(s, at), one = before(s, hyphen), two = before(s, one);
    if (hyphen == 0) return false;
    bool two_letters = one > 0 && is_letter(code_at(s, one)) && is_letter(code_at(s, two));
    bool split_letter = two > 0 && is_word_punct(code_at(s, one)) && code_at(s, two) == '-' &&
                        is_letter(code_before(s, two));
    if (!two_letters && !split_letter) return false;
    uint32_t code = code_at(s, at);
    if (!is_letter(code)) return false;
    char bytes[4];
    size_t next = at + utf8_encode(code, bytes);
    if (code_at(s, next) == '-') next++;
    return is_letter(code_at(s, next));
}

static size_t dashes(struct str s, size_t at) {
    size_t end = at;
    while (end < s.len && s.ptr[end] == '-') end++;
    return end - at;
}

/* Whether a dash of two or more between words starts at `at`. */
static bool is_dash(struct str s, size_t at) {
    size_t count = dashes(s, at);
    return count >= 2 && is_word_punct(code_before(s, at)) && is_word(code_at(s, at + count));
}

static size_t chunk_end(const struct wrap *w, struct str s, size_t start) {
    size_t at = start;
    if (is_blank(s.ptr[at])) {
        while (at < s.len && is_blank(s.ptr[at])) at++;
        return at;
    }
    if (w->break_hyphens && is_dash(s, at)) return at + dashes(s, at);
    while (at < s.len && !is_blank(s.ptr[at])) {
        uint32_t code;
        size_t next = at + utf8_decode(str_skip(s, at), &code);
        if (w->break_hyphens && code == '-' && at > start && parts_word(s, next)) return next;
        at = next;
        if (w->break_hyphens && is_dash(s, at)) return at;
    }
    return at;
}

static enum status cut_chunks(struct wrap *w, struct str s, struct value *out) {
    TRY(jinja_value_of_list(w->r, 0, out));
    for (size_t at = 0; at < s.len;) {
        size_t end = chunk_end(w, s, at);
        struct value chunk;
        TRY(jinja_run_steps(w->r, (end - at) / 16 + 1));
        TRY(jinja_value_text(w->r, str_take(str_skip(s, at), end - at), &chunk));
        TRY(jinja_list_push(w->r, out->list, chunk));
        at = end;
    }
    return ST_OK;
}

static bool is_space_chunk(struct value v) {
    return jinja_str_strip_space(jinja_value_str(v), true, true).len == 0;
}

/* A chunk longer than a whole line: the part that fits goes on the current line. */
static enum status break_chunk(struct wrap *w, struct value *chunk, int64_t room,
                               bool line_is_empty, struct value *part) {
    struct run *r = w->r;
    *part = jinja_value_missing();
    if (!w->break_words) {
        if (!line_is_empty) return ST_OK;
        *part = *chunk;
        return jinja_value_text(r, STR(""), chunk);
    }
    int64_t cut = room < 0 ? 0 : room; /* an empty part still ends the line */
    if (w->break_hyphens && jinja_text_chars(chunk->text) > cut) {
        struct str head = str_take(jinja_value_str(*chunk), jinja_text_offset(chunk->text, cut));
        size_t hyphen = head.len;
        while (hyphen > 0 && head.ptr[hyphen - 1] != '-') hyphen--;
        bool has_other = hyphen > 1 && dashes(head, 0) < hyphen - 1;
        if (has_other) cut = (int64_t)utf8_count(str_take(head, hyphen));
    }
    size_t at = jinja_text_offset(chunk->text, cut);
    struct str s = jinja_value_str(*chunk);
    TRY(jinja_value_text(r, str_take(s, at), part));
    return jinja_value_text(r, str_skip(s, at), chunk);
}

static enum status push_line(struct wrap *w, const struct list *line) {
    struct run *r = w->r;
    struct value text;
    size_t count = line->count, mark = r->work.len;
    if (count && is_space_chunk(line->items[count - 1])) count--;
    if (!count) return ST_OK;
    for (size_t i = 0; i < count; i++) buf_put_str(&r->work, jinja_value_str(line->items[i]));
    TRY(jinja_run_take(r, mark, &text));
    return jinja_list_push(r, w->lines.list, text);
}

/* One line from the chunks from *next on. */
static enum status fill_line(struct wrap *w, struct list *chunks, size_t *next) {
    struct value line, part;
    int64_t length = 0;
    TRY(jinja_value_of_list(w->r, 0, &line));
    bool has_lines = w->lines.list->count > 0;
    if (has_lines && is_space_chunk(chunks->items[*next])) ++*next;
    while (*next < chunks->count) {
        int64_t chars = jinja_text_chars(chunks->items[*next].text);
        if (length + chars > w->width) break;
        TRY(jinja_list_push(w->r, line.list, chunks->items[(*next)++]));
        length += chars;
    }
    if (*next < chunks->count && jinja_text_chars(chunks->items[*next].text) > w->width) {
        TRY(break_chunk(w, &chunks->items[*next], w->width - length, line.list->count == 0, &part));
        if (part.type != V_MISSING) TRY(jinja_list_push(w->r, line.list, part));
        if (jinja_value_str(chunks->items[*next]).len == 0) ++*next;
    }
    return push_line(w, line.list);
}

static enum status wrap_line(struct wrap *w, struct str s) {
    struct value chunks;
    size_t next = 0;
    TRY(jinja_value_of_list(w->r, 0, &w->lines));
    TRY(cut_chunks(w, s, &chunks));
    while (next < chunks.list->count) {
        TRY(jinja_run_steps(w->r, 1));
        TRY(fill_line(w, chunks.list, &next));
    }
    return ST_OK;
}

enum status jinja_filter_wordwrap(struct run *r, struct call *call, struct value *out) {
    struct wrap w = {.r = r};
    struct value lines;
    struct str joint = STR("\n");
    TRY(jinja_arg_int(r, call, 0, 79, &w.width));
    w.break_words = jinja_arg_bool(call, 1, true);
    w.break_hyphens = jinja_arg_bool(call, 3, true);
    if (jinja_arg_given(call, 2)) TRY(jinja_arg_text(r, call, 2, joint, &joint));
    if (call->self.type == V_UNDEFINED) return jinja_run_fail_undefined(r, call->self);
    if (call->self.type != V_TEXT) return jinja_run_fail(r, "wordwrap needs a str");
    TRY(jinja_text_split_lines(r, call->self, false, &lines));
    if (w.width <= 0 && lines.list->count) return jinja_run_fail(r, "invalid width (must be > 0)");
    size_t mark = r->work.len;
    for (size_t i = 0; i < lines.list->count; i++) {
        TRY(wrap_line(&w, jinja_value_str(lines.list->items[i])));
        if (i) buf_put_str(&r->work, joint);
        for (size_t k = 0; k < w.lines.list->count; k++) {
            if (k) buf_put_str(&r->work, joint);
            buf_put_str(&r->work, jinja_value_str(w.lines.list->items[k]));
        }
    }
    return jinja_run_take(r, mark, out);
}
