/* api/tool_hermes.c - <tool_call>{"name": .., "arguments": {..}}</tool_call>, as Hermes and Qwen
 * models write it: anywhere in the answer, any number of times.
 *
 *   TEXT --'<'--> OPEN --mark--> BEFORE --'{'--> BODY --'}'--> AFTER --'<'--> CLOSE --> TEXT
 *
 * If the JSON is invalid after the call was emitted, the rest up to the closing mark is skipped
 * (SKIP). */
#include "api/tool_int.h"

enum { OPEN = TOOL_TEXT + 1, BEFORE, BODY, AFTER, CLOSE, SKIP, SKIP_CLOSE };

static bool step_before(struct tool_parser *p, char c) {
    if (tool_is_blank(c)) return tool_hold(p, c);
    if (c != '{') return tool_give_up(p);
    tool_scan_begin(p, false);
    return tool_enter_state(p, BODY);
}

static bool step_body(struct tool_parser *p, char c) {
    enum tool_scanned got = tool_scan_step(p, c);
    if (got == SCAN_NOT) return p->scan.is_emitted ? tool_enter_state(p, SKIP) : tool_give_up(p);
    if (got == SCAN_DONE) p->state = AFTER;
    return true;
}

static bool step_after(struct tool_parser *p, char c) {
    if (tool_is_blank(c)) return true;
    return tool_enter_state(p, c == '<' ? CLOSE : TOOL_TEXT);
}

/* The closing mark may be missing: an opening mark, which differs from the second byte on, or text
 * may follow instead. Inside an invalid call everything else is skipped. */
static bool step_close(struct tool_parser *p, char c) {
    enum tool_match got = tool_match(p, "</tool_call>", c);
    p->held_is_tail = got == MATCH_MORE;
    if (got == MATCH_MORE) return true;
    if (got == MATCH_NOT && p->matched == 1 && c == 't') {
        p->state = OPEN;
        return false;
    }
    if (got == MATCH_NOT && p->state == CLOSE) return tool_give_up(p);
    p->held.len = 0;
    p->state = got == MATCH_DONE ? TOOL_TEXT : SKIP;
    return got == MATCH_DONE;
}

static bool step(struct tool_parser *p, char c) {
    switch (p->state) {
    case OPEN:
        return tool_take_mark(p, c, "<tool_call>", BEFORE);
    case BEFORE:
        return step_before(p, c);
    case BODY:
        return step_body(p, c);
    case AFTER:
        return step_after(p, c);
    case CLOSE:
    case SKIP_CLOSE:
        return step_close(p, c);
    case SKIP:
        return c == '<' ? tool_enter_state(p, SKIP_CLOSE) : true;
    default:
        return c == '<' ? tool_enter_state(p, OPEN) : tool_take_text(p, c);
    }
}

static const char *const marks[] = {"<tool_call>", "</tool_call>", NULL};
static const char *const signs[] = {"<tool_call>", NULL};

static const struct tool_opening openings[] = {
    {NULL, "<tool_call>\n{\"name\": \"", "\", \"arguments\": {"}};

const struct tool_form tool_form_hermes = {
    .name = "hermes",
    .signs = signs,
    .specials = marks,
    .openings = openings,
    .opener = '<',
    .step = step,
};
