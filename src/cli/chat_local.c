/* cli/chat_local.c - see cli/chat_local.h. */
#include "cli/chat_local.h"

#include <stdio.h>

#include "api/answer.h"
#include "api/codec.h"
#include "api/event_writer.h"
#include "api/model_forms.h"
#include "api/think.h"
#include "api/tools.h"
#include "api/tools_as_text.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/chat_answer.h"
#include "cli/dialog.h"
#include "cli/interrupt.h"
#include "engine/request_run.h"
#include "engine/service.h"
#include "text/chat_prompt.h"
#include "text/content_guard.h"

enum { LOG_BYTES_MAX = 1 << 28 };

struct local {
    struct local_options options;
    const struct tokenizer *tokenizer;
    struct json *tools;       /* NULL: none */
    struct model_forms forms; /* how the model writes tool calls and thoughts */
};

/* One answer. */
struct generating {
    const struct local *local;
    struct api_request request;
    struct tokens prompt;
    bool in_thought; /* the prompt ends inside a thought */
    struct event_writer *writer;
    struct event_log *log;
    uint32_t shown;    /* events of the log that `answer` has */
    struct answer ids; /* the ids of calls follow from it */
    struct chat_answer *answer;
    enum status status; /* ST_CANCELLED: standard output cannot be written */
    struct err *err;
};

static enum status no_memory(struct err *err) { return err_set(err, ST_NOMEM, "out of memory"); }

/* ---- the model ---- */

static enum status prepare(struct local *l, struct err *err) {
    const struct local_options *o = &l->options;
    l->forms = model_forms_of(l->tokenizer, NULL);
    if (o->tools.len == 0) return ST_OK;
    if (!l->forms.tools)
        return err_set(err, ST_BAD,
                       "%s writes tool calls in a form that this program cannot read, so --tools "
                       "cannot be used with it; leave out --tools or give another model",
                       o->model);
    return json_parse(o->tools, &json_limits_request, &l->tools, err);
}

enum status local_open(const struct local_options *options, struct local **out, struct err *err) {
    *out = NULL;
    struct local *l = mem_zalloc(sizeof(*l));
    if (!l) return no_memory(err);
    l->options = *options;
    l->tokenizer = options->service->loaded.tokenizer;
    enum status st = prepare(l, err);
    if (st == ST_OK)
        *out = l;
    else
        local_close(l);
    return st;
}

void local_close(struct local *l) {
    if (!l) return;
    json_destroy(l->tools);
    mem_free(l);
}

/* ---- the prompt ---- */

/* The conversation as the body of a request; NULL: out of memory. */
static struct json *make_body(const struct local *l) {
    struct json *body = json_map_create();
    enum status st = json_set(body, STR("messages"), dialog_messages(l->options.dialog));
    if (st == ST_OK && l->tools) st = json_set(body, STR("tools"), json_pin(l->tools));
    if (st == ST_OK) return body;
    json_destroy(body);
    return NULL;
}

/* Templates expect what the server gives them, such as arguments as maps. */
static enum status read_request(struct generating *g, struct err *err) {
    const struct codec *codec = codec_find("openai.chat");
    struct api_error refusal = {.status = 0};
    CHECK(codec);
    api_request_init(&g->request, codec);
    struct json *body = make_body(g->local);
    if (!body) return no_memory(err);
    enum status st = codec_read_body(codec, body, true, &g->request, &refusal);
    if (st == ST_OK) return ST_OK;
    return refusal.status ? err_set(err, st, "%s", refusal.message.text) : no_memory(err);
}

static enum status render(const struct generating *g, struct buf *out, struct text_places *plain,
                          struct err *err) {
    const struct local *l = g->local;
    struct chat_turn turn = {.messages = g->request.messages,
                             .tools = g->request.tools,
                             .kwargs = g->request.template_kwargs};
    struct json *converted = NULL;
    if (l->forms.tools_as_text) {
        enum status st = tools_as_text(turn.messages, turn.tools, &converted);
        if (st != ST_OK) return err_set(err, st, "the conversation does not fit in memory");
        turn.messages = converted;
        turn.tools = NULL;
    }
    enum status st = chat_prompt_render(dialog_template(l->options.dialog), &turn, out, plain, err);
    json_destroy(converted);
    return st;
}

static enum status encode(struct generating *g, struct err *err) {
    const struct local *l = g->local;
    struct buf text;
    struct text_places plain = {.at = NULL};
    buf_init(&text, CHAT_PROMPT_BYTES_MAX);
    enum status st = render(g, &text, &plain, err);
    if (st == ST_OK) {
        const struct encode_options options = {.plain = {plain.at, plain.count}};
        g->in_thought = l->forms.thinks && think_is_open(l->forms.thinks, buf_str(&text));
        st = tokenizer_encode(l->tokenizer, buf_str(&text), options, &g->prompt);
        if (st != ST_OK) err_set(err, st, "out of memory for the prompt");
    }
    text_places_deinit(&plain);
    buf_deinit(&text);
    return st;
}

/* The prompt leaves room for an answer. */
static enum status check_room(const struct generating *g, struct err *err) {
    uint32_t ctx = g->local->options.service->loaded.ctx_tokens;
    if (request_check_prompt(g->prompt.count, ctx, false, NULL) == ST_OK) return ST_OK;
    return err_set(err, ST_BAD,
                   "the conversation has %zu tokens, but the context holds %u, the answer "
                   "included; /reset starts a new conversation",
                   g->prompt.count, ctx);
}

/* ---- the answer ---- */

static enum status show_call(struct generating *g, const struct api_event *ev) {
    char id[CALL_ID_BYTES];
    struct call_piece piece = {.index = ev->tool};
    if (ev->kind == EVENT_TOOL) {
        answer_call_id(&g->ids, 0, ev->tool, "call_", id);
        piece.id = str_of(id);
        piece.name = ev->text;
    } else
        piece.args = ev->text;
    return chat_answer_take_call(g->answer, &piece, g->err);
}

static enum status show_event(struct generating *g, const struct api_event *ev) {
    switch (ev->kind) {
    case EVENT_THOUGHT:
        return chat_answer_take_thought(g->answer, ev->text) ? ST_OK : ST_CANCELLED;
    case EVENT_TEXT:
        return chat_answer_take_text(g->answer, ev->text) ? ST_OK : ST_CANCELLED;
    case EVENT_TOOL:
    case EVENT_ARGS:
        return show_call(g, ev);
    case EVENT_FINISH:
        return ST_OK;
    }
    return ST_OK;
}

/* Give the new events of the log to the answer. `written`: how writing them went. */
static void show_events(struct generating *g, enum status written) {
    g->status = written;
    if (written != ST_OK) err_set(g->err, written, "the answer does not fit in memory");
    while (g->status == ST_OK && g->shown < event_log_count(g->log)) {
        const struct api_event ev = event_log_at(g->log, g->shown++);
        g->status = show_event(g, &ev);
    }
}

/* A token_event_fn. There are no stop strings, so that the writer never ends an answer. */
static bool take_token(void *ctx, const struct token_event *event) {
    struct generating *g = ctx;
    bool has_stopped = false;
    if (event->token < 0) return true;
    show_events(g, event_writer_push(g->writer, &event->token, 1, g->log, &has_stopped));
    return g->status == ST_OK;
}

static enum status run(struct generating *g, const struct sample_params *sample,
                       uint32_t max_tokens, struct request_usage *usage, struct err *err) {
    const struct local_options *o = &g->local->options;
    uint32_t room = o->service->loaded.ctx_tokens - (uint32_t)g->prompt.count;
    const struct request_spec spec = {
        .prompt = g->prompt.ids,
        .prompt_tokens = (uint32_t)g->prompt.count,
        .max_tokens = max_tokens && max_tokens < room ? max_tokens : room,
        .n = 1,
        .sample = *sample,
    };
    _Atomic bool is_cancelled = false;
    const struct request_run run = {.engine = o->service->engine,
                                    .spec = &spec,
                                    .is_cancelled = &is_cancelled,
                                    .on_event = take_token,
                                    .ctx = g};
    interrupt_aim(o->interrupt, &is_cancelled);
    enum status st = request_run(&run, usage, err);
    interrupt_aim(o->interrupt, NULL);
    if (st != ST_OK) return st;
    enum finish_reason finish = usage->finish;
    if (g->status == ST_OK) show_events(g, event_writer_finish(g->writer, &finish, g->log));
    return g->status == ST_CANCELLED ? ST_OK : g->status;
}

static enum status begin(struct generating *g, struct err *err) {
    const struct local *l = g->local;
    TRY(read_request(g, err));
    TRY(encode(g, err));
    TRY(check_room(g, err));
    const struct event_writer_options options = {.request = &g->request,
                                                 .tokenizer = l->tokenizer,
                                                 .tools = l->forms.tools,
                                                 .thinks = l->forms.thinks,
                                                 .in_thought = g->in_thought};
    TRY(event_writer_create(&options, &g->writer, err));
    if (event_log_create(&g->log, LOG_BYTES_MAX) != ST_OK) return no_memory(err);
    /* Ids of calls differ within a conversation, because the number of its messages grows. */
    snprintf(g->ids.id, sizeof(g->ids.id), "%u", dialog_count(l->options.dialog));
    return ST_OK;
}

enum status local_generate(struct local *l, const struct sample_params *sample, uint32_t max_tokens,
                           struct chat_answer *answer, struct request_usage *usage,
                           struct err *err) {
    struct generating g = {
        .local = l, .answer = answer, .err = err, .ids = {.tokenizer = l->tokenizer}};
    *usage = (struct request_usage){0};
    enum status st = begin(&g, err);
    if (st == ST_OK) st = run(&g, sample, max_tokens, usage, err);
    event_writer_destroy(g.writer);
    event_log_destroy(g.log);
    tokens_deinit(&g.prompt);
    api_request_deinit(&g.request);
    return st;
}
