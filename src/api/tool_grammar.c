/* api/tool_grammar.c - see api/tool_grammar.h for the contract. */
#include "api/tool_grammar.h"

#include <stdio.h>
#include <string.h>

#include "api/request.h"
#include "api/think.h"
#include "api/tool_close.h"
#include "api/tools.h"
#include "base/check.h"
#include "base/json.h"
#include "text/tokenizer.h"

/* --- what the answer is made of --------------------------------------------------------- */

static bool has_calls(const struct answer_shape *s) {
    const struct api_request *r = s->request;
    return s->tools && r->tool_choice != TOOLS_NONE && json_count(r->tools) > 0;
}

static bool is_forced(const struct api_request *r) {
    return r->tool_choice == TOOLS_REQUIRED || r->tool_choice == TOOLS_NAMED;
}

static bool is_strict(const struct api_request *r) {
    bool any = false;
    for (size_t i = 0; i < json_count(r->tools); i++) any = any || r->tool_facts[i].is_strict;
    return any;
}

/* The first of the form's shapes whose sign the template contains. */
static const struct tool_shape *shape_of(const struct answer_shape *s) {
    const struct str template = tokenizer_chat_template(s->tokenizer, true);
    const struct tool_shape *shape = s->tools->shapes;
    while (shape->sign && !tool_template_has(template, str_of(shape->sign))) shape++;
    return shape;
}

/* Whether the grammar restricts calls. If no call is forced and no tool is strict, the model writes
 * calls as it likes. */
static bool holds_calls(const struct answer_shape *s) {
    return has_calls(s) && (is_forced(s->request) || is_strict(s->request));
}

bool answer_shape_is_needed(const struct answer_shape *s) {
    return holds_calls(s) || s->request->grammar.is_given;
}

bool answer_shape_may_loosen(const struct answer_shape *s) {
    return holds_calls(s) && !is_strict(s->request) && !s->request->grammar.is_given;
}

/* --- writing parts ---------------------------------------------------------------------- */

/* Commas between the parts of a list. */
static void next_part(struct buf *out) {
    if (out->len > 0 && out->ptr[out->len - 1] != '[') buf_put_char(out, ',');
}

static void put_one(const char *kind, struct str text, struct buf *out) {
    next_part(out);
    buf_printf(out, "{\"%s\":", kind);
    buf_put_json_string(out, text);
    buf_put_char(out, '}');
}

static bool is_special(const struct answer_shape *s, struct str text) {
    const token_id id = tokenizer_find(s->tokenizer, text);
    return id != TOKEN_NONE && tokenizer_is_special(s->tokenizer, id);
}

/* The special token of the model that `text` begins with; empty: none. */
static struct str special_at(const struct answer_shape *s, struct str text) {
    const char *marks[] = {s->thinks ? s->thinks->open : NULL, s->thinks ? s->thinks->close : NULL};
    for (size_t i = 0; i < 2; i++)
        if (marks[i] && str_starts(text, str_of(marks[i])) && is_special(s, str_of(marks[i])))
            return str_of(marks[i]);
    for (const char *const *own = s->tools ? s->tools->specials : NULL; own && *own; own++)
        if (str_starts(text, str_of(*own)) && is_special(s, str_of(*own))) return str_of(*own);
    return (struct str){0};
}

/* A text, with the special tokens in it as such. */
static void put_text(const struct answer_shape *s, struct str text, struct buf *out) {
    size_t plain = 0;
    while (plain < text.len) {
        const struct str token = special_at(s, str_skip(text, plain));
        if (token.len == 0) {
            plain++;
            continue;
        }
        if (plain > 0) put_one("text", str_take(text, plain), out);
        put_one("token", token, out);
        text = str_skip(text, plain + token.len);
        plain = 0;
    }
    if (text.len > 0) put_one("text", text, out);
}

/* A byte of a regular expression; `may_have_blanks` around it. */
static void put_byte_pattern(char c, bool may_have_blanks, struct buf *out) {
    static const char blanks[] = "[ \\t\\r\\n]*";
    const bool is_blank = c == ' ' || c == '\n';
    if (is_blank || may_have_blanks) buf_put_text(out, blanks);
    if (is_blank) return;
    if (strchr("\\^$.*+?()[]{}|/", c)) buf_put_char(out, '\\');
    buf_put_char(out, c);
    if (may_have_blanks) buf_put_text(out, blanks);
}

static void put_pattern(struct buf *pattern, struct buf *out) {
    if (pattern->len > 0) put_one("pattern", buf_str(pattern), out);
    if (buf_status(pattern) != ST_OK) out->status = buf_status(pattern);
    buf_clear(pattern);
}

/* The same text; any white space may replace its blanks, and may be around JSON's punctuation. */
static void put_loose_text(const struct answer_shape *s, struct str text, struct buf *out) {
    const bool is_json = memchr(text.ptr, '"', text.len) != NULL;
    bool in_quotes = false;
    struct buf pattern;
    buf_init(&pattern, API_TOOLS_BYTES_MAX);
    for (size_t i = 0; i < text.len; i++) {
        const struct str token = special_at(s, str_skip(text, i));
        if (token.len > 0) {
            put_pattern(&pattern, out);
            put_one("token", token, out);
            i += token.len - 1;
            continue;
        }
        const char c = text.ptr[i];
        if (c == '"' && (i == 0 || text.ptr[i - 1] != '\\')) in_quotes = !in_quotes;
        put_byte_pattern(c, is_json && !in_quotes && strchr("{}[]:,", c), &pattern);
    }
    put_pattern(&pattern, out);
    buf_deinit(&pattern);
}

/* Whether the model may choose the blanks of a call: only for calls that it begins by itself in
 * text. Forced calls have one spelling, so that a model cannot write blanks without end. */
static bool is_free_style(const struct answer_shape *s) {
    return !is_forced(s->request) && !s->request->grammar.is_given;
}

/* The text around a call's name and arguments. */
static void put_markup(const struct answer_shape *s, struct str text, struct buf *out) {
    if (text.len == 0) return;
    if (is_free_style(s))
        put_loose_text(s, text, out);
    else
        put_text(s, text, out);
}

/* Any text without the mark. If the mark is a special token, text with its spelling is excluded,
 * too, because the parser of the answer's text cannot distinguish the two. */
static void put_free(const char *mark, struct buf *out) {
    next_part(out);
    buf_put_text(out, "{\"free\":[");
    buf_put_json_string(out, str_of(mark));
    buf_put_text(out, "]}");
}

/* Text in which no call begins, however the form writes it; `pattern` may be NULL. */
static void put_plain(const struct answer_shape *s, const char *pattern, struct buf *out) {
    next_part(out);
    buf_put_text(out, "{\"free\":[");
    for (const char *const *mark = s->tools->openings; *mark; mark++) {
        next_part(out);
        buf_put_json_string(out, str_of(*mark));
    }
    buf_put_char(out, ']');
    if (pattern) {
        buf_put_text(out, ",\"pattern\":");
        buf_put_json_string(out, str_of(pattern));
    }
    buf_put_char(out, '}');
}

static void open_list(const char *kind, struct buf *out) {
    next_part(out);
    buf_printf(out, "{\"%s\":[", kind);
}

static void close_list(struct buf *out) { buf_put_text(out, "]}"); }

/* --- thoughts --------------------------------------------------------------------------- */

static void put_optional(const struct answer_shape *s, const char *mark, struct buf *out) {
    if (!mark) return;
    open_list("any", out);
    put_one("text", STR(""), out);
    open_list("sequence", out);
    put_text(s, str_of(mark), out);
    close_list(out);
    close_list(out);
}

static void put_thought(const struct answer_shape *s, struct buf *out) {
    put_free(s->thinks->close, out);
    put_text(s, str_of(s->thinks->close), out);
    put_one("pattern", STR("[ \\n]{0,4}"), out);
    put_optional(s, s->thinks->answer_open, out);
}

static void put_thoughts(const struct answer_shape *s, struct buf *out) {
    if (!s->thinks) return;
    if (s->in_thought) {
        put_thought(s, out);
        return;
    }
    open_list("any", out);
    put_one("text", STR(""), out);
    open_list("sequence", out);
    put_text(s, str_of(s->thinks->open), out);
    put_thought(s, out);
    close_list(out);
    close_list(out);
}

/* --- calls ------------------------------------------------------------------------------ */

static void put_schema(const struct answer_shape *s, const struct json *schema, struct str at,
                       bool strict, struct buf *out) {
    next_part(out);
    buf_put_text(out, "{\"schema\":");
    if (json_kind(schema) == JS_MAP)
        tool_put_closed_schema(schema, out);
    else
        buf_put_text(out, "{\"type\":\"object\"}");
    buf_put_text(out, is_free_style(s) ? ",\"whitespace\":true" : ",\"spaced\":true");
    buf_put_text(out, ",\"at\":");
    buf_put_json_string(out, at);
    if (!strict) buf_put_text(out, ",\"relax\":\"object\"");
    buf_put_char(out, '}');
}

static void put_args(const struct answer_shape *s, const struct tool_shape *shape, size_t i,
                     struct buf *out) {
    const struct json *function = json_get(json_at(s->request->tools, i), "function");
    const struct api_tool *facts = &s->request->tool_facts[i];
    const bool strict = facts->is_strict && !s->is_loose;
    char at[64];
    const int len = snprintf(at, sizeof(at), "tools[%u].%s", facts->idx, s->request->schema_key);
    const struct str place = {at, (size_t)len};
    const bool is_any = s->is_loose || (is_free_style(s) && !strict);
    if (shape->put_args) {
        next_part(out);
        shape->put_args(is_any ? NULL : function, place, strict, out);
    } else {
        put_schema(s, is_any ? NULL : json_get(function, "parameters"), place, strict, out);
    }
}

static void put_call(const struct answer_shape *s, const struct tool_shape *shape, size_t i,
                     struct buf *out) {
    const struct json *function = json_get(json_at(s->request->tools, i), "function");
    const struct str name = json_str(json_get(function, "name")),
                     before = str_of(shape->before_name);
    const bool is_quoted = before.len > 0 && before.ptr[before.len - 1] == '"';
    struct buf head;
    buf_init(&head, API_TOOLS_BYTES_MAX);
    buf_put_str(&head, before);
    if (is_quoted)
        buf_put_json_inner(&head, name);
    else
        buf_put_str(&head, name);
    buf_put_text(&head, shape->after_name);
    if (buf_status(&head) != ST_OK) out->status = buf_status(&head);
    open_list("sequence", out);
    put_markup(s, buf_str(&head), out);
    put_args(s, shape, i, out);
    put_markup(s, str_of(shape->after_args), out);
    close_list(out);
    buf_deinit(&head);
}

/* The calls; `one`: exactly one. */
static void put_calls(const struct answer_shape *s, bool one, struct buf *out) {
    const struct tool_shape *shape = shape_of(s);
    open_list("sequence", out);
    put_markup(s, str_of(shape->begin), out);
    next_part(out);
    buf_put_text(out, "{\"repeat\":{\"any\":[");
    for (size_t i = 0; i < json_count(s->request->tools) && buf_status(out) == ST_OK; i++)
        put_call(s, shape, i, out);
    buf_put_text(out, "]},\"min\":1");
    if (one) buf_put_text(out, ",\"max\":1");
    if (shape->between[0]) {
        buf_put_text(out, ",\"between\":{\"sequence\":[");
        put_markup(s, str_of(shape->between), out);
        buf_put_text(out, "]}");
    }
    buf_put_char(out, '}');
    put_markup(s, str_of(shape->end), out);
    close_list(out);
}

/* --- the text of the answer ------------------------------------------------------------- */

static void put_grammar(const struct api_grammar *g, struct buf *out) {
    static const char *const kinds[] = {
        [GRAMMAR_JSON] = "json",     [GRAMMAR_SCHEMA] = "schema", [GRAMMAR_REGEX] = "regex",
        [GRAMMAR_CHOICE] = "choice", [GRAMMAR_GBNF] = "gbnf",     [GRAMMAR_LARK] = "lark"};
    next_part(out);
    buf_printf(out, "{\"grammar\":\"%s\",\"at\":\"\",\"source\":", kinds[g->kind]);
    buf_put_json_string(out, buf_str(&g->source));
    buf_put_char(out, '}');
}

/* Text and calls. A call begins where its mark is written. If the form has no mark, the answer is
 * either calls, or text that cannot be mistaken for the beginning of a call. */
static void put_mixed(const struct answer_shape *s, struct buf *out) {
    const char *trigger = shape_of(s)->trigger;
    const bool one = s->request->one_tool_call;
    if (!trigger) {
        open_list("any", out);
        put_calls(s, one, out);
        put_plain(s, "(?:[^\\s{\\[`<][\\s\\S]*)?", out);
        close_list(out);
        return;
    }
    put_plain(s, NULL, out);
    next_part(out);
    buf_put_text(out, "{\"repeat\":{\"sequence\":[");
    put_calls(s, one, out);
    put_plain(s, NULL, out);
    buf_put_text(out, "]}");
    if (one) buf_put_text(out, ",\"max\":1");
    buf_put_char(out, '}');
}

static void put_body(const struct answer_shape *s, struct buf *out) {
    const struct api_request *r = s->request;
    if (has_calls(s) && is_forced(r)) {
        put_calls(s, !r->many_tool_calls, out);
    } else if (r->grammar.is_given && has_calls(s)) {
        open_list("any", out);
        put_calls(s, r->one_tool_call, out);
        put_grammar(&r->grammar, out);
        close_list(out);
    } else if (r->grammar.is_given) {
        put_grammar(&r->grammar, out);
    } else {
        put_mixed(s, out);
    }
}

enum status answer_shape_put(const struct answer_shape *s, struct buf *out) {
    CHECK(answer_shape_is_needed(s));
    buf_put_text(out, "{\"sequence\":[");
    put_thoughts(s, out);
    put_body(s, out);
    if (s->thinks) put_optional(s, s->thinks->answer_close, out);
    buf_put_text(out, "]}");
    return buf_status(out);
}
