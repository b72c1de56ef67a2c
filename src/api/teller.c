/* api/teller.c - see api/teller.h for the contract. */
#include "api/teller.h"

#include "api/tools.h"
#include "base/buf.h"
#include "base/mem.h"
#include "engine/stops.h"
#include "text/tokenizer.h"

enum { PIECE_BYTES_MAX = 1 << 20 };

struct teller {
    struct teller_options options;
    struct detok detok;
    struct stops stops;
    struct tool_parser *parser; /* NULL: everything is text */
    struct tool_sink sink;
    struct buf fresh, shown; /* of one token: its text, and what of it may be told */
    uint32_t pushed, told;   /* tokens that came, tokens that events have taken along */
    uint32_t calls;          /* told so far */
    bool has_begun;          /* the parser has the beginning of a call that must be made */
    bool wants_tokens;       /* somebody wants to see them, even without text */
    bool has_stopped;        /* at a stop string, or before a call too many */
    struct event_log *log;   /* during a call */
    enum status status;
};

/* --- events ----------------------------------------------------------------------------- */

static void tell(struct teller *t, struct api_event ev) {
    if (t->status != ST_OK) return;
    ev.choice = t->options.choice;
    ev.first_token = t->told;
    ev.token_count = t->pushed - t->told;
    t->told = t->pushed;
    t->status = event_log_add(t->log, &ev);
}

static void tell_text(void *ctx, struct str text) {
    if (text.len) tell(ctx, (struct api_event){.kind = EVENT_TEXT, .text = text});
}

static bool is_too_many(const struct teller *t, uint32_t call) {
    return t->options.request->one_tool_call && call > 0;
}

static void tell_call(void *ctx, uint32_t call, struct str name) {
    struct teller *t = ctx;
    if (is_too_many(t, call)) {
        t->has_stopped = true;
        return;
    }
    t->calls = call + 1;
    tell(t, (struct api_event){.kind = EVENT_TOOL, .tool = call, .text = name});
}

static void tell_args(void *ctx, uint32_t call, struct str piece) {
    struct teller *t = ctx;
    if (piece.len == 0 || is_too_many(t, call)) return;
    tell(t, (struct api_event){.kind = EVENT_ARGS, .tool = call, .text = piece});
}

/* --- life ------------------------------------------------------------------------------- */

static bool wants_calls(const struct teller_options *o) {
    return o->tools && o->request->tools && o->request->tool_choice != TOOLS_NONE;
}

enum status teller_create(const struct teller_options *options, struct teller **out,
                          struct err *err) {
    const struct api_request *r = options->request;
    struct teller *t = mem_zalloc(sizeof(*t));
    if (!t) return err_set(err, ST_NOMEM, "out of memory for an answer");
    t->options = *options;
    t->wants_tokens = r->logprobs || r->return_token_ids;
    t->sink = (struct tool_sink){tell_text, tell_call, tell_args, t};
    stops_init(&t->stops, r->stops, r->stop_count);
    buf_init(&t->fresh, PIECE_BYTES_MAX);
    buf_init(&t->shown, PIECE_BYTES_MAX);
    enum status st = ST_OK;
    if (wants_calls(options)) st = tool_parser_create(options->tools, r->tools, &t->parser);
    if (st != ST_OK) {
        teller_destroy(t);
        return err_set(err, st, "out of memory for an answer");
    }
    *out = t;
    return ST_OK;
}

void teller_destroy(struct teller *t) {
    if (!t) return;
    tool_parser_destroy(t->parser);
    stops_deinit(&t->stops);
    buf_deinit(&t->fresh);
    buf_deinit(&t->shown);
    mem_free(t);
}

/* --- from a token to text to events ----------------------------------------------------- */

static bool is_stop_token(const struct api_request *r, int32_t token) {
    for (uint32_t i = 0; i < r->stop_token_count; i++)
        if (r->stop_tokens[i] == token) return true;
    return false;
}

/* The token that ended the answer is not part of its text. */
static bool is_end(const struct teller *t, int32_t token) {
    const struct api_request *r = t->options.request;
    if (is_stop_token(r, token)) return !r->include_stop && t->pushed > r->min_tokens;
    if (r->keep_special || r->ignore_end) return false;
    return tokenizer_is_end(t->options.tokenizer, token);
}

/* Special tokens are hidden unless they were asked for, or the tool parser must see them. */
static bool is_hidden(const struct teller *t, int32_t token) {
    const struct tokenizer *tokenizer = t->options.tokenizer;
    if (t->options.request->keep_special || !tokenizer_is_special(tokenizer, token)) return false;
    return !t->parser || !tool_form_needs(t->options.tools, tokenizer_piece(tokenizer, token));
}

static enum status note(struct teller *t, enum status st) {
    if (t->status == ST_OK) t->status = st;
    return t->status;
}

/* A call that must be made begins in the prompt: the parser is given that part once the model goes
 * on with it. */
static void begin_call(struct teller *t) {
    const struct teller_options *o = &t->options;
    struct buf opening;
    if (t->has_begun) return;
    t->has_begun = true;
    buf_init(&opening, PIECE_BYTES_MAX);
    tool_opening_put(o->tools, tokenizer_chat_template(o->tokenizer, true), o->request, &opening);
    note(t, buf_status(&opening));
    note(t, tool_parser_push(t->parser, buf_str(&opening), &t->sink));
    buf_deinit(&opening);
}

static void show(struct teller *t, struct str text) {
    if (text.len == 0) return;
    if (!t->parser) {
        tell_text(t, text);
        return;
    }
    begin_call(t);
    note(t, tool_parser_push(t->parser, text, &t->sink));
}

/* Text before min_tokens is not held against the stop strings. */
static void check_stops(struct teller *t, struct str text) {
    if (t->stops.count == 0 || t->pushed <= t->options.request->min_tokens) {
        show(t, text);
        return;
    }
    buf_clear(&t->shown);
    t->has_stopped = stops_push(&t->stops, text, &t->shown);
    note(t, buf_status(&t->stops.held));
    if (t->has_stopped && t->options.request->include_stop) buf_put_str(&t->shown, t->stops.met);
    note(t, buf_status(&t->shown));
    show(t, buf_str(&t->shown));
}

enum status teller_push(struct teller *t, const int32_t *tokens, uint32_t count,
                        struct event_log *log, bool *met) {
    t->log = log;
    for (uint32_t i = 0; i < count && !t->has_stopped && t->status == ST_OK; i++) {
        t->pushed++;
        if (is_end(t, tokens[i])) continue;
        buf_clear(&t->fresh);
        note(t, detok_push(&t->detok, t->options.tokenizer, tokens[i], is_hidden(t, tokens[i]),
                           &t->fresh));
        if (t->fresh.len) check_stops(t, buf_str(&t->fresh));
    }
    *met = t->has_stopped;
    return t->status;
}

static void flush(struct teller *t) {
    buf_clear(&t->fresh);
    detok_finish(&t->detok, &t->fresh);
    note(t, buf_status(&t->fresh));
    if (t->fresh.len) check_stops(t, buf_str(&t->fresh));
    if (t->has_stopped) return;
    buf_clear(&t->shown);
    stops_finish(&t->stops, &t->shown);
    note(t, buf_status(&t->shown));
    show(t, buf_str(&t->shown));
}

enum status teller_finish(struct teller *t, enum finish_reason finish, struct event_log *log) {
    t->log = log;
    if (!t->has_stopped) flush(t);
    if (t->parser && t->status == ST_OK) note(t, tool_parser_finish(t->parser, &t->sink));
    if (t->wants_tokens && t->told < t->pushed) tell(t, (struct api_event){.kind = EVENT_TEXT});
    tell(t, (struct api_event){
                .kind = EVENT_FINISH, .finish = finish, .tool = t->calls, .text = t->stops.met});
    return t->status;
}

bool teller_has_tools(const struct teller *t) { return t->calls > 0; }
