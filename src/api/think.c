/* api/think.c - see api/think.h for the contract.
 *
 * A state machine. Long runs that cannot contain a mark are taken whole; only bytes that may belong
 * to a mark are looked at one by one, so the result does not depend on the cut.
 *
 *   START   blanks, then perhaps the opening mark; everything is held
 *   ENTER   blanks at the beginning of the thought, which are dropped
 *   INSIDE  the thought, up to its closing mark
 *   BEHIND  blanks behind the thought, which are dropped, and perhaps the answer's opening mark
 *   TEXT    the rest, passed on in place
 */
#include "api/think.h"

#include <string.h>

#include "api/tools.h"
#include "base/check.h"

/* The least specific sign comes last. */
static const struct think_form form_seed = {
    .name = "seed", /* Seed-OSS */
    .open = "<seed:think>",
    .close = "</seed:think>",
    .closing = "\n</seed:think>",
    .sign = "seed:think>",
};
static const struct think_form form_granite = {
    .name = "granite", /* Granite 3.3 */
    .open = "<think>",
    .close = "</think>",
    .answer_open = "<response>",
    .answer_close = "</response>",
    .closing = "\n</think>\n\n",
    .sign = "<response></response>",
};
static const struct think_form form_mistral = {
    .name = "mistral", /* Magistral */
    .open = "[THINK]",
    .close = "[/THINK]",
    .closing = "[/THINK]",
    .sign = "[THINK]",
};
static const struct think_form form_kimi = {
    .name = "kimi", /* Kimi-Dev */
    .open = "\u25c1think\u25b7",
    .close = "\u25c1/think\u25b7",
    .closing = "\n\u25c1/think\u25b7\n\n",
    .sign = "\u25c1think\u25b7",
};
static const struct think_form form_command = {
    .name = "command", /* Command R7B, Command A Reasoning */
    .open = "<|START_THINKING|>",
    .close = "<|END_THINKING|>",
    .closing = "<|END_THINKING|>",
    .sign = "<|START_THINKING|>",
};
static const struct think_form form_think = {
    .name = "think", /* Qwen3, QwQ, DeepSeek R1, GLM, SmolLM3 and others */
    .open = "<think>",
    .close = "</think>",
    .closing = "\n</think>\n\n",
    .sign = "think>", /* some templates have only one of the two marks */
};

const struct think_form *const think_forms[] = {
    &form_seed, &form_granite, &form_mistral, &form_kimi, &form_command, &form_think, NULL};

const struct think_form *think_form_find(const char *name) {
    for (size_t i = 0; think_forms[i]; i++)
        if (strcmp(think_forms[i]->name, name) == 0) return think_forms[i];
    return NULL;
}

const struct think_form *think_form_of_template(struct str chat_template) {
    for (size_t i = 0; think_forms[i]; i++)
        if (tool_template_has(chat_template, str_of(think_forms[i]->sign))) return think_forms[i];
    return NULL;
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static size_t count_blanks(struct str text) {
    size_t count = 0;
    while (count < text.len && is_blank(text.ptr[count])) count++;
    return count;
}

static size_t count_blanks_at_end(struct str text) {
    size_t count = 0;
    while (count < text.len && is_blank(text.ptr[text.len - 1 - count])) count++;
    return count;
}

static bool ends_with(struct str prompt, const char *mark) {
    return str_ends(str_take(prompt, prompt.len - count_blanks_at_end(prompt)), str_of(mark));
}

bool think_is_open(const struct think_form *form, struct str prompt) {
    return form && ends_with(prompt, form->open);
}

bool think_is_over(const struct think_form *form, struct str prompt) {
    return form && ends_with(prompt, form->close);
}

bool think_form_needs(const struct think_form *form, struct str special) {
    if (!form) return false;
    const char *const marks[] = {form->open, form->close, form->answer_open, form->answer_close};
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        if (marks[i] && str_is(special, marks[i])) return true;
    return false;
}

/* --- the parser --------------------------------------------------------------------------- */

enum { START, ENTER, INSIDE, BEHIND, TEXT };

enum { PIECE_BYTES_MAX = 1 << 30 }; /* what comes in one piece has a limit of its own */

void think_parser_init(struct think_parser *p, const struct think_form *form, bool is_open) {
    *p = (struct think_parser){.form = form, .state = START, .is_open = is_open};
    buf_init(&p->held, PIECE_BYTES_MAX);
    buf_init(&p->thought, PIECE_BYTES_MAX);
}

void think_parser_deinit(struct think_parser *p) {
    buf_deinit(&p->held);
    buf_deinit(&p->thought);
}

bool think_parser_is_inside(const struct think_parser *p) {
    return p->state == ENTER || p->state == INSIDE || (p->state == START && p->is_open);
}

bool think_parser_is_undecided(const struct think_parser *p) { return p->state == START; }
bool think_parser_is_over(const struct think_parser *p) { return p->state == TEXT; }

static void enter(struct think_parser *p, uint32_t state) {
    p->state = state;
    p->matched = 0;
}

/* Take part of the thought. Blanks at its end wait for more of it, THINK_BLANKS_MAX at most. */
static void add_thought(struct think_parser *p, struct str text) {
    const size_t blanks = count_blanks_at_end(text);
    buf_put_str(&p->thought, text);
    if (blanks < text.len) p->thought_ends = p->thought.len - blanks;
    while (p->thought.len - p->thought_ends >= THINK_BLANKS_MAX)
        p->thought_ends += THINK_BLANKS_MAX;
}

static void emit_thought(struct think_parser *p, const struct think_callbacks *to) {
    const size_t rest = p->thought.len - p->thought_ends;
    if (p->thought_ends == 0) return;
    to->on_thought(to->ctx, str_take(buf_str(&p->thought), p->thought_ends));
    memmove(p->thought.ptr, p->thought.ptr + p->thought_ends, rest);
    p->thought.len = rest;
    p->thought_ends = 0;
}

static void emit_held(struct think_parser *p, const struct think_callbacks *to) {
    if (p->held.len) to->on_text(to->ctx, buf_str(&p->held));
    p->held.len = 0;
}

/* The compared bytes are not the mark after all: they are text. */
static void give_up(struct think_parser *p, const char *mark) {
    buf_put(&p->held, mark, p->matched);
    enter(p, TEXT);
}

/* Compare one more byte with a mark. If it does not fit, the longest end of the compared bytes that
 * can still begin the mark stays; *released is how many bytes before it are no part of the mark.
 * True: `c` fits. */
static bool match(const char *mark, uint32_t *matched, char c, uint32_t *released) {
    const uint32_t before = *matched;
    while (*matched && mark[*matched] != c) {
        uint32_t keep = *matched - 1;
        while (keep && memcmp(mark, mark + *matched - keep, keep) != 0) keep--;
        *matched = keep;
    }
    *released = before - *matched;
    if (mark[*matched] != c) return false;
    ++*matched;
    return true;
}

static void take_inside(struct think_parser *p, char c) {
    const char *mark = p->form->close;
    uint32_t released;
    const bool fits = match(mark, &p->matched, c, &released);
    if (released) add_thought(p, (struct str){mark, released});
    if (!fits) add_thought(p, (struct str){&c, 1});
    if (mark[p->matched]) return;
    p->thought.len = p->thought_ends; /* the blanks before the mark */
    enter(p, BEHIND);
}

static void take_text(struct think_parser *p, char c) {
    const char *mark = p->form->answer_close;
    uint32_t released;
    const bool fits = match(mark, &p->matched, c, &released);
    buf_put(&p->held, mark, released);
    if (!fits) buf_put_char(&p->held, c);
    if (!mark[p->matched]) p->matched = 0;
}

/* --- steps: each takes some bytes, or none and changes the state ---------------------------- */

/* The prompt has opened a thought, and what was compared is not the mark once more. */
static void begin_inside(struct think_parser *p) {
    const uint32_t count = p->matched;
    enter(p, INSIDE);
    for (uint32_t i = 0; i < count; i++) take_inside(p, p->form->open[i]);
}

static size_t step_start(struct think_parser *p, struct str text) {
    const char *mark = p->form->open;
    if (p->matched == 0 && is_blank(text.ptr[0])) {
        if (p->is_open) return count_blanks(text);
        buf_put_char(&p->held, text.ptr[0]);
        if (p->held.len == THINK_BLANKS_MAX) enter(p, TEXT);
        return 1;
    }
    if (mark[p->matched] == text.ptr[0]) {
        p->matched++;
        if (mark[p->matched]) return 1;
        p->held.len = 0;
        enter(p, ENTER);
        return 1;
    }
    if (p->is_open)
        begin_inside(p);
    else
        give_up(p, mark);
    return 0;
}

static size_t step_enter(struct think_parser *p, struct str text) {
    const size_t blanks = count_blanks(text);
    if (blanks < text.len) enter(p, INSIDE);
    return blanks;
}

/* How many bytes come before the next that can begin the mark. */
static size_t bytes_before(const char *mark, struct str text) {
    const char *at = memchr(text.ptr, mark[0], text.len);
    return at ? (size_t)(at - text.ptr) : text.len;
}

static size_t step_inside(struct think_parser *p, struct str text) {
    const size_t plain = p->matched ? 0 : bytes_before(p->form->close, text);
    if (plain)
        add_thought(p, str_take(text, plain));
    else
        take_inside(p, text.ptr[0]);
    return plain ? plain : 1;
}

static size_t step_behind(struct think_parser *p, struct str text) {
    const char *mark = p->form->answer_open;
    if (p->matched == 0 && is_blank(text.ptr[0])) return count_blanks(text);
    if (!mark || mark[p->matched] != text.ptr[0]) {
        give_up(p, mark);
        return 0;
    }
    p->matched++;
    if (!mark[p->matched]) enter(p, TEXT);
    return 1;
}

static size_t step_text(struct think_parser *p, struct str text, const struct think_callbacks *to) {
    if (!p->form->answer_close) {
        emit_thought(p, to);
        if (!p->held.len)
            to->on_text(to->ctx, text);
        else
            buf_put_str(&p->held, text);
        return text.len;
    }
    const size_t plain = p->matched ? 0 : bytes_before(p->form->answer_close, text);
    if (plain)
        buf_put_str(&p->held, str_take(text, plain));
    else
        take_text(p, text.ptr[0]);
    return plain ? plain : 1;
}

static size_t step(struct think_parser *p, struct str text, const struct think_callbacks *to) {
    switch (p->state) {
    case START:
        return step_start(p, text);
    case ENTER:
        return step_enter(p, text);
    case INSIDE:
        return step_inside(p, text);
    case BEHIND:
        return step_behind(p, text);
    default:
        return step_text(p, text, to);
    }
}

static enum status parser_status(const struct think_parser *p) {
    return buf_status(&p->held) == ST_OK && buf_status(&p->thought) == ST_OK ? ST_OK : ST_NOMEM;
}

enum status think_parser_push(struct think_parser *p, struct str text,
                              const struct think_callbacks *to) {
    while (text.len && parser_status(p) == ST_OK) text = str_skip(text, step(p, text, to));
    if (parser_status(p) != ST_OK) return ST_NOMEM;
    emit_thought(p, to);
    if (p->state == TEXT) emit_held(p, to);
    return ST_OK;
}

enum status think_parser_finish(struct think_parser *p, const struct think_callbacks *to) {
    if (p->state == START && p->is_open) begin_inside(p);
    if (p->state == START) give_up(p, p->form->open);
    if (p->state == BEHIND && p->matched) give_up(p, p->form->answer_open);
    if (p->state == INSIDE && p->matched) add_thought(p, (struct str){p->form->close, p->matched});
    if (p->state == TEXT && p->matched) give_up(p, p->form->answer_close);
    if (parser_status(p) != ST_OK) return ST_NOMEM;
    emit_thought(p, to);
    emit_held(p, to);
    return ST_OK;
}
