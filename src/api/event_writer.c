/* api/event_writer.c - see api/event_writer.h for the contract. */
#include "api/event_writer.h"

#include "api/think.h"
#include "api/tools.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "engine/text_output.h"

enum { TEXT_BYTES_MAX = 1 << 20 }; /* of one token, or of what was held back */

struct event_writer {
    struct event_writer_options options;
    struct text_output output;
    bool has_think;                  /* thoughts are told from text */
    bool skips_think;                /* they are text, but calls are looked for behind them */
    struct think_parser think;       /* if has_think or skips_think */
    struct buf undecided;            /* skips_think: may be the beginning of a thought */
    size_t behind;                   /* skips_think: bytes that `think` takes for text */
    struct tool_parser *parser;      /* NULL: everything is text */
    struct tool_callbacks on_parsed; /* the parser's results go into the log */
    struct buf text;                 /* of one token */
    uint32_t pushed, written;        /* tokens that came, tokens that events carry */
    uint32_t calls;                  /* written so far */
    uint32_t thought_tokens;
    bool has_stopped;
    struct event_log *log; /* during push and finish */
    enum status status;
};

/* --- events ----------------------------------------------------------------------------- */

static void write_event(struct event_writer *w, struct api_event ev) {
    if (w->status != ST_OK) return;
    ev.choice = w->options.choice;
    ev.first_token = w->written;
    ev.token_count = w->pushed - w->written;
    w->written = w->pushed;
    w->status = event_log_add(w->log, &ev);
}

static void on_text(void *ctx, struct str text) {
    if (text.len) write_event(ctx, (struct api_event){.kind = EVENT_TEXT, .text = text});
}

static bool shows_tokens(const struct event_writer *w) {
    return w->options.request->logprobs || w->options.request->return_token_ids;
}

/* A thought that is not shown leaves its tokens to an event without text, if tokens are shown. */
static void on_thought(void *ctx, struct str text) {
    struct event_writer *w = ctx;
    if (!w->options.request->thinking.is_hidden)
        write_event(w, (struct api_event){.kind = EVENT_THOUGHT, .text = text});
    else if (shows_tokens(w) && w->written < w->pushed)
        write_event(w, (struct api_event){.kind = EVENT_TEXT});
}

static bool is_too_many(const struct event_writer *w, uint32_t call) {
    return w->options.request->one_tool_call && call > 0;
}

static void on_call(void *ctx, uint32_t call, struct str name) {
    struct event_writer *w = ctx;
    if (is_too_many(w, call)) {
        w->has_stopped = true;
        return;
    }
    w->calls = call + 1;
    write_event(w, (struct api_event){.kind = EVENT_TOOL, .tool = call, .text = name});
}

static void on_args(void *ctx, uint32_t call, struct str piece) {
    struct event_writer *w = ctx;
    if (piece.len == 0 || is_too_many(w, call)) return;
    write_event(w, (struct api_event){.kind = EVENT_ARGS, .tool = call, .text = piece});
}

/* --- lifecycle -------------------------------------------------------------------------- */

/* Special tokens are not text, but some forms mark calls and thoughts with them. */
static bool shows_special(void *ctx, int32_t token) {
    const struct event_writer *w = ctx;
    const struct str piece = tokenizer_piece(w->options.tokenizer, token);
    if (w->parser && tool_form_needs(w->options.tools, piece)) return true;
    return think_form_needs(w->options.thinks, piece);
}

static void init_output(struct event_writer *w) {
    const struct api_request *r = w->options.request;
    const struct text_output_options options = {
        .tokenizer = w->options.tokenizer,
        .stops = r->stops,
        .stop_count = r->stop_count,
        .stop_tokens = r->stop_tokens,
        .stop_token_count = r->stop_token_count,
        .min_tokens = r->min_tokens,
        .include_stop = r->include_stop,
        .keep_special = r->keep_special,
        .ignore_end = r->ignore_end,
        .shows_special = w->parser || w->options.thinks ? shows_special : NULL,
        .ctx = w,
    };
    text_output_init(&w->output, &options);
}

enum status event_writer_create(const struct event_writer_options *options,
                                struct event_writer **out, struct err *err) {
    const struct api_request *r = options->request;
    bool has_tools = options->tools && r->tools && r->tool_choice != TOOLS_NONE;
    struct event_writer *w = mem_zalloc(sizeof(*w));
    if (!w) return err_set(err, ST_NOMEM, "out of memory for an answer");
    w->options = *options;
    if (!r->is_chat) w->options.thinks = NULL; /* a text that is continued has no thoughts */
    w->has_think = w->options.thinks && !r->thinking.in_text;
    w->skips_think = w->options.thinks && r->thinking.in_text && has_tools;
    think_parser_init(&w->think, w->options.thinks, options->in_thought);
    buf_init(&w->undecided, TEXT_BYTES_MAX);
    w->on_parsed = (struct tool_callbacks){on_text, on_call, on_args, w};
    buf_init(&w->text, TEXT_BYTES_MAX);
    if (has_tools && tool_parser_create(options->tools, r->tools, &w->parser) != ST_OK) {
        mem_free(w); /* its buffers are empty */
        return err_set(err, ST_NOMEM, "out of memory for an answer");
    }
    init_output(w);
    *out = w;
    return ST_OK;
}

void event_writer_destroy(struct event_writer *w) {
    if (!w) return;
    tool_parser_destroy(w->parser);
    think_parser_deinit(&w->think);
    buf_deinit(&w->undecided);
    text_output_deinit(&w->output);
    buf_deinit(&w->text);
    mem_free(w);
}

void event_writer_set_in_thought(struct event_writer *w) {
    CHECK(w->pushed == 0);
    w->think.is_open = true;
}

uint32_t event_writer_calls(const struct event_writer *w) { return w->calls; }
uint32_t event_writer_thought_tokens(const struct event_writer *w) { return w->thought_tokens; }

/* --- from a token to text to events ----------------------------------------------------- */

static void note(struct event_writer *w, enum status st) {
    if (w->status == ST_OK) w->status = st;
}

/* Text behind the thoughts. */
static void take_text(void *ctx, struct str text) {
    struct event_writer *w = ctx;
    if (w->parser)
        note(w, tool_parser_push(w->parser, text, &w->on_parsed));
    else
        on_text(w, text);
}

static void skip_thought(void *ctx, struct str text) {
    (void)ctx;
    (void)text;
}

static void count_behind(void *ctx, struct str text) {
    struct event_writer *w = ctx;
    w->behind += text.len;
}

/* What was read is a thought, with its marks, and text behind it. */
static void write_skipped(struct event_writer *w) {
    const struct str all = buf_str(&w->undecided);
    const size_t thought = w->behind < all.len ? all.len - w->behind : 0;
    on_text(w, str_take(all, thought));
    if (thought < all.len) take_text(w, str_skip(all, thought));
    buf_clear(&w->undecided);
}

static void skip_thoughts(struct event_writer *w) {
    const struct think_callbacks skipped = {skip_thought, count_behind, w};
    buf_put_str(&w->undecided, buf_str(&w->text));
    note(w, buf_status(&w->undecided));
    w->behind = 0;
    note(w, think_parser_push(&w->think, buf_str(&w->text), &skipped));
    if (w->think.is_open || !think_parser_is_undecided(&w->think)) write_skipped(w);
}

/* Writes w->text as events. */
static void write_text(struct event_writer *w) {
    const struct think_callbacks on_thoughts = {on_thought, take_text, w};
    note(w, w->text.status);
    if (w->text.len == 0) return;
    if (w->skips_think && !think_parser_is_over(&w->think))
        skip_thoughts(w);
    else if (w->has_think)
        note(w, think_parser_push(&w->think, buf_str(&w->text), &on_thoughts));
    else
        take_text(w, buf_str(&w->text));
}

/* Thoughts come first: every token up to their end is one of theirs. The tokens of their closing
 * mark are not those of the text behind it. */
static void count_thoughts(struct event_writer *w, bool was_inside) {
    const bool is_inside = w->has_think && think_parser_is_inside(&w->think);
    if (was_inside || is_inside) w->thought_tokens = w->pushed;
    if (!was_inside || is_inside || !shows_tokens(w) || w->written == w->pushed) return;
    const bool is_hidden = w->options.request->thinking.is_hidden;
    write_event(w, (struct api_event){.kind = is_hidden ? EVENT_TEXT : EVENT_THOUGHT});
}

enum status event_writer_push(struct event_writer *w, const int32_t *tokens, uint32_t count,
                              struct event_log *log, bool *has_stopped) {
    w->log = log;
    for (uint32_t i = 0; i < count && !w->has_stopped && w->status == ST_OK; i++) {
        const bool was_inside = w->has_think && think_parser_is_inside(&w->think);
        w->pushed++;
        buf_clear(&w->text);
        bool at_stop = text_output_push(&w->output, tokens[i], &w->text);
        write_text(w);
        count_thoughts(w, was_inside);
        w->has_stopped |= at_stop;
    }
    *has_stopped = w->has_stopped;
    return w->status;
}

enum status event_writer_finish(struct event_writer *w, enum finish_reason *finish,
                                struct event_log *log) {
    const struct think_callbacks on_thoughts = {on_thought, take_text, w};
    w->log = log;
    if (!w->has_stopped) {
        buf_clear(&w->text);
        *finish = text_output_finish(&w->output, *finish, &w->text);
        write_text(w);
    }
    if (w->skips_think && w->undecided.len > 0) {
        w->behind = w->undecided.len;
        write_skipped(w);
    }
    if (w->has_think && w->status == ST_OK) note(w, think_parser_finish(&w->think, &on_thoughts));
    if (w->parser && w->status == ST_OK) note(w, tool_parser_finish(w->parser, &w->on_parsed));
    if (shows_tokens(w) && w->written < w->pushed)
        write_event(w, (struct api_event){.kind = EVENT_TEXT});
    write_event(
        w, (struct api_event){
               .kind = EVENT_FINISH, .finish = *finish, .tool = w->calls, .text = w->output.stop});
    return w->status;
}
