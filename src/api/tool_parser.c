/* api/tool_parser.c - what the forms share; see api/tools.h. */
#include <string.h>

#include "api/tool_tags_int.h"
#include "base/check.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"

enum {
    BLANKS_BYTES_MAX = 64 * 1024, /* more than this is text: a model that repeats blanks */
    RUN_BYTES_MAX = 1 << 30,
    STEPS_PER_BYTE_MAX = 8, /* more states than a byte can pass through */
};

bool tool_is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static void flush(struct tool_parser *p) {
    struct str run = buf_str(&p->run);
    if (run.len && p->run_is_args)
        p->to->on_args(p->to->ctx, p->call_count - 1, run);
    else if (run.len)
        p->to->on_text(p->to->ctx, run);
    p->run.len = 0;
}

static void put_run(struct tool_parser *p, struct str bytes, bool is_args) {
    if (p->run_is_args != is_args) flush(p);
    p->run_is_args = is_args;
    buf_put_str(&p->run, bytes);
}

static void put_text(struct tool_parser *p, struct str text) {
    put_run(p, buf_str(&p->blanks), false);
    p->blanks.len = 0;
    put_run(p, text, false);
    p->has_text = true;
}

bool tool_take_blank(struct tool_parser *p, char c) {
    if (!p->has_text && p->blanks.len < BLANKS_BYTES_MAX)
        buf_put_char(&p->blanks, c);
    else
        put_text(p, (struct str){&c, 1});
    return true;
}

bool tool_take_text(struct tool_parser *p, char c) {
    if (tool_is_blank(c)) return tool_take_blank(p, c);
    put_text(p, (struct str){&c, 1});
    return true;
}

static void release_held(struct tool_parser *p) {
    if (p->held.len) put_text(p, buf_str(&p->held));
    p->held.len = 0;
}

bool tool_hold(struct tool_parser *p, char c) {
    buf_put_char(&p->held, c);
    if (p->held.len < TOOL_HELD_BYTES_MAX) return true;
    release_held(p);
    p->state = TOOL_TEXT;
    return true;
}

bool tool_give_up(struct tool_parser *p) {
    release_held(p);
    p->in_list = p->in_fence = false;
    p->state = TOOL_TEXT;
    return false;
}

bool tool_enter_state(struct tool_parser *p, uint32_t state) {
    p->state = state;
    p->matched = 0;
    return false;
}

enum tool_match tool_match(struct tool_parser *p, const char *mark, char c) {
    if (mark[p->matched] != c) return MATCH_NOT;
    tool_hold(p, c);
    p->matched++;
    return mark[p->matched] ? MATCH_MORE : MATCH_DONE;
}

enum tool_match tool_match_any(struct tool_parser *p, const char *const *marks, char c) {
    if (p->matched == 0) {
        p->mark = 0;
        p->mark_at = (uint32_t)p->held.len;
    }
    const char *so_far = marks[p->mark];
    for (uint32_t i = p->mark; marks[i]; i++) {
        if (strncmp(marks[i], so_far, p->matched) != 0 || marks[i][p->matched] != c) continue;
        buf_put_char(&p->held, c);
        p->mark = i;
        p->matched++;
        return marks[i][p->matched] ? MATCH_MORE : MATCH_DONE;
    }
    return MATCH_NOT;
}

bool tool_take_mark(struct tool_parser *p, char c, const char *mark, uint32_t next) {
    enum tool_match got = tool_match(p, mark, c);
    if (got == MATCH_NOT) return tool_give_up(p);
    if (got == MATCH_DONE) p->state = next;
    return true;
}

bool tool_take_object(struct tool_parser *p, char c, uint32_t next) {
    enum tool_scanned got = tool_scan_step(p, c);
    if (got == SCAN_NOT) return tool_give_up(p); /* nothing is held if the call was emitted */
    if (got == SCAN_DONE) p->state = next;
    return true;
}

bool tool_is_name_char(char c) {
    bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return is_letter || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

bool tool_put_name(struct tool_parser *p, char c) {
    if (p->scan.name.len == TOOL_NAME_BYTES_MAX) return false;
    buf_put_char(&p->scan.name, c);
    return true;
}

const struct json *tool_function(const struct tool_parser *p, struct str name) {
    uint32_t number;
    if (!p->names || !map_find(p->names, name, &number)) return NULL;
    return json_get(json_at(p->tools, number), "function");
}

bool tool_name_is_known(const struct tool_parser *p, struct str name) {
    if (!name.len) return false;
    return !p->names || tool_function(p, name);
}

void tool_emit_call(struct tool_parser *p) {
    DCHECK(!p->scan.is_emitted);
    flush(p);
    p->held.len = p->blanks.len = 0;
    p->has_text = false;
    p->scan.is_emitted = true;
    p->to->on_call(p->to->ctx, p->call_count++, buf_str(&p->scan.name));
    if (p->scan.args.len) tool_emit_args(p, buf_str(&p->scan.args));
    p->scan.args.len = 0;
}

void tool_emit_args(struct tool_parser *p, struct str piece) { put_run(p, piece, true); }

static enum status parser_status(const struct tool_parser *p) {
    const struct buf *all[] = {&p->blanks,    &p->held,       &p->run,         &p->scan.name,
                               &p->scan.args, &p->tagged.key, &p->tagged.value};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (buf_status(all[i]) != ST_OK) return ST_NOMEM;
    return ST_OK;
}

/* The length of the part of `text` that is certainly text: a fast path. */
static size_t plain_bytes(const struct tool_parser *p, struct str text) {
    if (p->state != TOOL_TEXT || !p->has_text) return 0;
    const char first = p->form->opener, second = p->form->second_opener;
    if (second) {
        size_t len = 0;
        while (len < text.len && text.ptr[len] != first && text.ptr[len] != second) len++;
        return len;
    }
    const char *opener = first ? memchr(text.ptr, first, text.len) : NULL;
    return opener ? (size_t)(opener - text.ptr) : text.len;
}

/* Apart from tool_parser_push, whose usual case needs none of its registers. */
__attribute__((noinline)) static enum status push_bytes(struct tool_parser *p, struct str text,
                                                        const struct tool_callbacks *to) {
    p->to = to;
    while (text.len) {
        size_t plain = plain_bytes(p, text);
        if (plain) put_text(p, str_take(text, plain));
        text = str_skip(text, plain);
        if (!text.len) break;
        int steps = 0;
        while (!p->form->step(p, text.ptr[0])) CHECK(++steps < STEPS_PER_BYTE_MAX);
        text = str_skip(text, 1);
    }
    flush(p);
    p->to = NULL;
    return parser_status(p);
}

enum status tool_parser_push(struct tool_parser *p, struct str text,
                             const struct tool_callbacks *to) {
    if (!text.len || plain_bytes(p, text) < text.len) return push_bytes(p, text, to);
    to->on_text(to->ctx, text); /* most tokens: nothing is copied */
    return ST_OK;
}

enum status tool_parser_finish(struct tool_parser *p, const struct tool_callbacks *to) {
    p->to = to;
    tool_scan_finish(p);
    if (!p->held_is_tail) release_held(p);
    if (p->call_count == 0) put_run(p, buf_str(&p->blanks), false);
    flush(p);
    p->to = NULL;
    return parser_status(p);
}

/* A request may have API_TOOLS_MAX tools and an answer thousands of calls, so names are looked up
 * by their hash. */
static enum status note_names(struct tool_parser *p) {
    if (!p->tools) return ST_OK;
    p->names = map_create(json_count(p->tools));
    if (!p->names) return ST_NOMEM;
    for (size_t i = 0; i < json_count(p->tools); i++) {
        const struct json *function = json_get(json_at(p->tools, i), "function");
        TRY(map_put(p->names, json_str(json_get(function, "name")), (uint32_t)i));
    }
    return ST_OK;
}

enum status tool_parser_create(const struct tool_form *form, const struct json *tools,
                               struct tool_parser **out) {
    struct tool_parser *p = mem_zalloc(sizeof(*p));
    if (!p) return ST_NOMEM;
    p->form = form;
    p->tools = tools;
    buf_init(&p->blanks, BLANKS_BYTES_MAX);
    buf_init(&p->held, TOOL_HELD_BYTES_MAX + TOOL_MARK_BYTES_MAX);
    buf_init(&p->run, RUN_BYTES_MAX);
    buf_init(&p->scan.name, TOOL_NAME_BYTES_MAX);
    buf_init(&p->scan.args, TOOL_HELD_BYTES_MAX);
    buf_init(&p->tagged.key, TOOL_TAIL_BYTES_MAX);
    buf_init(&p->tagged.value, TOOL_VALUE_BYTES_MAX);
    enum status st = note_names(p);
    if (st == ST_OK)
        *out = p;
    else
        tool_parser_destroy(p);
    return st;
}

void tool_parser_destroy(struct tool_parser *p) {
    if (!p) return;
    buf_deinit(&p->blanks);
    buf_deinit(&p->held);
    buf_deinit(&p->run);
    buf_deinit(&p->scan.name);
    buf_deinit(&p->scan.args);
    buf_deinit(&p->tagged.key);
    buf_deinit(&p->tagged.value);
    map_destroy(p->names);
    mem_free(p);
}
