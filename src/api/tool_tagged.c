/* api/tool_tagged.c - arguments in tags, made into a JSON object while they arrive.
 *
 *   NEXT --mark--> on_next --> (the form reads a key) --> VALUE --line end--> LINE
 *   VALUE, LINE --'<'--> END --value_end--> AFTER --mark--> on_next
 *
 * A value ends at value_end only if a mark follows that may follow a value; so a value may contain
 * its own closing tag, as code and documents do. Whatever is not as it should be between values
 * makes the call malformed: from there on the text is passed on as written (RAW), up to
 * </tool_call>, and no brace is added. */
#include <string.h>

#include "api/tool_tags_int.h"
#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"

enum {
    NEXT = TOOL_TAGGED_FIRST,
    NEXT_MARK,
    VALUE,
    LINE,
    END,
    AFTER,
    AFTER_MARK,
    RAW,
    RAW_MARK,
};

enum { WORD_BYTES_MAX = 8, AGAIN_BYTES_MAX = 64 };

static const char *const raw_end[] = {"</tool_call>", NULL};

/* --- the object ------------------------------------------------------------------------- */

static void emit(struct tool_parser *p, const char *text) { tool_emit_args(p, str_of(text)); }

/* Uses scan.args, which has a use only before a call is emitted. */
static void emit_escaped(struct tool_parser *p, struct str text) {
    struct buf *room = &p->scan.args;
    while (text.len) {
        /* A character takes at most six bytes. */
        size_t len = text.len < 1024 ? text.len : utf8_complete_len(str_take(text, 1024));
        if (len == 0) len = 1024;
        room->len = 0;
        buf_put_json_inner(room, str_take(text, len));
        tool_emit_args(p, buf_str(room));
        text = str_skip(text, len);
    }
    room->len = 0;
}

static void emit_key(struct tool_parser *p) {
    emit(p, p->tagged.has_member ? ", \"" : "{\"");
    emit_escaped(p, buf_str(&p->tagged.key));
    emit(p, "\": ");
    p->tagged.has_member = true;
}

static void emit_whole_characters(struct tool_parser *p) {
    struct buf *value = &p->tagged.value;
    const struct str text = buf_str(value);
    const size_t whole = utf8_complete_len(text);
    if (!whole) return;
    emit_escaped(p, str_take(text, whole));
    memmove(value->ptr, value->ptr + whole, text.len - whole);
    value->len = text.len - whole;
}

static void begin_text(struct tool_parser *p) {
    emit_key(p);
    emit(p, "\"");
    p->tagged.is_text = true;
    emit_whole_characters(p);
}

static void put_value(struct tool_parser *p, char c) {
    struct tool_tagged *t = &p->tagged;
    buf_put_char(&t->value, c);
    if (t->is_text) {
        emit_whole_characters(p);
        return;
    }
    const bool is_first = t->word_bytes == 0 && !tool_is_blank(c);
    if (t->word_bytes || is_first) t->word_bytes++;
    const bool cannot_be = is_first && !(tool_kinds_at(c) & t->kinds);
    if (is_first) t->kinds &= tool_kinds_at(c) | KIND_TEXT;
    const bool is_word =
        t->word_bytes && !(t->kinds & ~(uint32_t)(KIND_BOOL | KIND_NULL | KIND_TEXT));
    const bool is_long = is_word && t->word_bytes > WORD_BYTES_MAX && !tool_is_blank(c);
    if (cannot_be || is_long || t->value.len == TOOL_VALUE_BYTES_MAX) begin_text(p);
}

/* A word that is no JSON but that templates write: as JSON. NULL: it is none, or is not allowed. */
static const char *python_word(struct str text, uint32_t kinds) {
    if (str_is(text, "True") && (kinds & KIND_BOOL)) return "true";
    if (str_is(text, "False") && (kinds & KIND_BOOL)) return "false";
    return str_is(text, "None") && (kinds & KIND_NULL) ? "null" : NULL;
}

static void end_value(struct tool_parser *p, const struct tool_tags *tags) {
    struct tool_tagged *t = &p->tagged;
    const struct str text = str_trim(buf_str(&t->value));
    const bool may_be_word = tags->has_python_words && !(t->kinds & KIND_TEXT);
    const char *word = may_be_word ? python_word(text, t->kinds) : NULL;
    if (!t->is_text && (word || tool_is_json_of(text, t->kinds & ~(uint32_t)KIND_TEXT))) {
        emit_key(p);
        tool_emit_args(p, word ? str_of(word) : text);
        return;
    }
    if (!t->is_text) begin_text(p);
    emit_escaped(p, buf_str(&t->value));
    emit(p, "\"");
}

void tool_tagged_begin(struct tool_parser *p) {
    struct tool_tagged *t = &p->tagged;
    t->parameters = json_get(tool_function(p, buf_str(&p->scan.name)), "parameters");
    t->has_member = false;
    p->scan.args.len = 0;
    p->scan.is_emitted = false;
    tool_emit_call(p);
    p->state = NEXT;
}

void tool_tagged_begin_value(struct tool_parser *p, const struct tool_tags *tags) {
    struct tool_tagged *t = &p->tagged;
    const struct json *root = tool_resolve(t->parameters, t->parameters);
    const struct json *properties = json_get(root, "properties");
    const struct json *schema = json_get(properties, buf_text(&t->key));
    t->kinds = tool_kinds_of(t->parameters, schema);
    t->word_bytes = 0;
    t->value.len = 0;
    t->is_text = false;
    t->at_begin = tags->has_lines;
    tool_drop_tail(p);
    if (t->kinds == KIND_TEXT) begin_text(p);
    p->state = VALUE;
}

bool tool_tagged_end(struct tool_parser *p) {
    tool_drop_tail(p);
    emit(p, p->tagged.has_member ? "}" : "{}");
    p->state = TOOL_TEXT;
    return true;
}

bool tool_tagged_malformed(struct tool_parser *p) { return tool_emit_tail_and_enter(p, RAW); }

/* --- the states ------------------------------------------------------------------------- */

static bool step_next(struct tool_parser *p, char c) {
    if (c == '<') return tool_enter_state(p, NEXT_MARK);
    return (tool_is_blank(c) && tool_hold_tail(p, c)) || tool_tagged_malformed(p);
}

static bool step_next_mark(struct tool_parser *p, char c, const struct tool_tags *t) {
    const enum tool_match got = tool_match_any(p, t->next, c);
    p->held_is_tail = true;
    if (got == MATCH_NOT) return tool_tagged_malformed(p);
    return got == MATCH_DONE ? t->on_next(p) : true;
}

/* What is held is a part of the value. */
static bool back_to_value(struct tool_parser *p) {
    for (size_t i = 0; i < p->held.len; i++) put_value(p, p->held.ptr[i]);
    tool_drop_tail(p);
    return tool_enter_state(p, VALUE);
}

static bool step_value(struct tool_parser *p, char c, const struct tool_tags *t) {
    const bool at_begin = p->tagged.at_begin;
    p->tagged.at_begin = false;
    if (at_begin && c == '\n') return true;
    if (c == '<') return tool_enter_state(p, END);
    if (c == '\n' && t->has_lines) {
        p->state = LINE;
        return tool_hold_tail(p, c);
    }
    put_value(p, c);
    return true;
}

static bool step_line(struct tool_parser *p, char c) {
    return c == '<' ? tool_enter_state(p, END) : back_to_value(p);
}

static bool step_end(struct tool_parser *p, char c, const struct tool_tags *t) {
    const enum tool_match got = tool_match_any(p, t->value_end, c);
    p->held_is_tail = true;
    if (got == MATCH_NOT) return back_to_value(p);
    if (got == MATCH_DONE) p->state = AFTER;
    return true;
}

static bool step_after(struct tool_parser *p, char c) {
    if (c == '<') return tool_enter_state(p, AFTER_MARK);
    return (tool_is_blank(c) && tool_hold_tail(p, c)) || back_to_value(p);
}

/* The closing tag was a part of the value; but the mark that has begun behind it, and the line end
 * before that, may be the end of the value. */
static bool retry_end(struct tool_parser *p, const struct tool_tags *t) {
    char again[AGAIN_BYTES_MAX];
    size_t from = p->mark_at;
    if (buf_status(&p->held) != ST_OK) return true; /* out of memory: the push fails */
    if (t->has_lines && p->held.ptr[from - 1] == '\n') from--;
    const size_t len = p->held.len - from;
    CHECK(len <= sizeof(again));
    memcpy(again, p->held.ptr + from, len);
    p->held.len = from;
    back_to_value(p);
    for (size_t i = 0; i < len; i++)
        while (!tool_tagged_step(p, again[i], t)) {
        }
    return false;
}

static bool step_after_mark(struct tool_parser *p, char c, const struct tool_tags *t) {
    const enum tool_match got = tool_match_any(p, t->next, c);
    if (got == MATCH_NOT) return retry_end(p, t);
    if (got == MATCH_MORE) return true;
    end_value(p, t);
    if (buf_status(&p->held) != ST_OK) return true; /* out of memory: the push fails */
    memmove(p->held.ptr, p->held.ptr + p->mark_at, p->held.len - p->mark_at);
    p->held.len -= p->mark_at;
    p->mark_at = 0;
    return t->on_next(p);
}

static bool step_raw(struct tool_parser *p, char c) {
    if (c == '<') return tool_enter_state(p, RAW_MARK);
    tool_emit_args(p, (struct str){&c, 1});
    return true;
}

static bool step_raw_mark(struct tool_parser *p, char c) {
    const enum tool_match got = tool_match_any(p, raw_end, c);
    p->held_is_tail = true;
    if (got == MATCH_NOT) return tool_tagged_malformed(p);
    if (got == MATCH_MORE) return true;
    tool_drop_tail(p);
    p->in_section = false;
    p->state = TOOL_TEXT;
    return true;
}

bool tool_tagged_step(struct tool_parser *p, char c, const struct tool_tags *t) {
    switch (p->state) {
    case NEXT:
        return step_next(p, c);
    case NEXT_MARK:
        return step_next_mark(p, c, t);
    case VALUE:
        return step_value(p, c, t);
    case LINE:
        return step_line(p, c);
    case END:
        return step_end(p, c, t);
    case AFTER:
        return step_after(p, c);
    case AFTER_MARK:
        return step_after_mark(p, c, t);
    case RAW:
        return step_raw(p, c);
    default:
        return step_raw_mark(p, c);
    }
}
