/* api/event_writer.c - see api/event_writer.h for the contract. */
#include "api/event_writer.h"

#include "api/tools.h"
#include "base/buf.h"
#include "base/mem.h"
#include "engine/text_output.h"

enum { TEXT_BYTES_MAX = 1 << 20 }; /* of one token, or of what was held back */

struct event_writer {
    struct event_writer_options options;
    struct text_output output;
    struct tool_parser *parser;      /* NULL: everything is text */
    struct tool_callbacks on_parsed; /* the parser's results go into the log */
    struct buf text;                 /* of one token */
    uint32_t pushed, written;        /* tokens that came, tokens that events carry */
    uint32_t calls;                  /* written so far */
    bool has_opening; /* the parser has the part of a forced call that is in the prompt */
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

/* Special tokens are not text, but some forms mark calls with them. */
static bool shows_special(void *ctx, int32_t token) {
    const struct event_writer_options *o = &((struct event_writer *)ctx)->options;
    return tool_form_needs(o->tools, tokenizer_piece(o->tokenizer, token));
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
        .shows_special = w->parser ? shows_special : NULL,
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
    w->on_parsed = (struct tool_callbacks){on_text, on_call, on_args, w};
    buf_init(&w->text, TEXT_BYTES_MAX);
    if (has_tools && tool_parser_create(options->tools, r->tools, &w->parser) != ST_OK) {
        mem_free(w);
        return err_set(err, ST_NOMEM, "out of memory for an answer");
    }
    init_output(w);
    *out = w;
    return ST_OK;
}

void event_writer_destroy(struct event_writer *w) {
    if (!w) return;
    tool_parser_destroy(w->parser);
    text_output_deinit(&w->output);
    buf_deinit(&w->text);
    mem_free(w);
}

uint32_t event_writer_calls(const struct event_writer *w) { return w->calls; }

/* --- from a token to text to events ----------------------------------------------------- */

static void note(struct event_writer *w, enum status st) {
    if (w->status == ST_OK) w->status = st;
}

/* A forced call begins in the prompt. The parser receives that part when the model continues it,
 * so that an answer without text has no call. */
static void push_opening(struct event_writer *w) {
    const struct event_writer_options *o = &w->options;
    struct buf opening;
    if (w->has_opening) return;
    w->has_opening = true;
    buf_init(&opening, TEXT_BYTES_MAX);
    tool_opening_put(o->tools, tokenizer_chat_template(o->tokenizer, true), o->request, &opening);
    note(w, buf_status(&opening));
    note(w, tool_parser_push(w->parser, buf_str(&opening), &w->on_parsed));
    buf_deinit(&opening);
}

/* Writes w->text as events. */
static void write_text(struct event_writer *w) {
    note(w, w->text.status);
    if (w->text.len == 0) return;
    if (!w->parser) {
        on_text(w, buf_str(&w->text));
        return;
    }
    push_opening(w);
    note(w, tool_parser_push(w->parser, buf_str(&w->text), &w->on_parsed));
}

enum status event_writer_push(struct event_writer *w, const int32_t *tokens, uint32_t count,
                              struct event_log *log, bool *has_stopped) {
    w->log = log;
    for (uint32_t i = 0; i < count && !w->has_stopped && w->status == ST_OK; i++) {
        w->pushed++;
        buf_clear(&w->text);
        bool at_stop = text_output_push(&w->output, tokens[i], &w->text);
        write_text(w);
        w->has_stopped |= at_stop;
    }
    *has_stopped = w->has_stopped;
    return w->status;
}

enum status event_writer_finish(struct event_writer *w, enum finish_reason *finish,
                                struct event_log *log) {
    const struct api_request *r = w->options.request;
    bool shows_tokens = r->logprobs || r->return_token_ids;
    w->log = log;
    if (!w->has_stopped) {
        buf_clear(&w->text);
        *finish = text_output_finish(&w->output, *finish, &w->text);
        write_text(w);
    }
    if (w->parser && w->status == ST_OK) note(w, tool_parser_finish(w->parser, &w->on_parsed));
    if (shows_tokens && w->written < w->pushed)
        write_event(w, (struct api_event){.kind = EVENT_TEXT});
    write_event(
        w, (struct api_event){
               .kind = EVENT_FINISH, .finish = *finish, .tool = w->calls, .text = w->output.stop});
    return w->status;
}
