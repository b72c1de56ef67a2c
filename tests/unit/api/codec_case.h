/* unit/api/codec_case.h - a codec in a test: it reads a body and writes an answer.
 *
 * A case is a body and the events of an answer. Its transcript has the request that
 * the codec read, the whole answer, and every piece of the stream, as text to compare with a
 * committed file:
 *
 *     == name
 *     -- thoughts, messages, tools, kwargs, limits: what templates and the engine get
 *     -- whole
 *     -- stream: each piece as "name data"
 */
#ifndef UNIT_API_CODEC_CASE_H
#define UNIT_API_CODEC_CASE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "api/answer.h"
#include "api/codec.h"
#include "api/event.h"
#include "api/request.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/json.h"
#include "unit/api/sse_pieces.h"

enum { CASE_EVENTS_MAX = 16, CASE_BYTES_MAX = 1 << 24 };

struct codec_case {
    const char *name;
    const char *body;
    enum finish_reason finish;                /* FINISH_NONE: the answer has failed */
    const char *stop;                         /* the stop string that was met, or NULL */
    struct api_event events[CASE_EVENTS_MAX]; /* without the last; kind TEXT and empty: no more */
    bool is_load;                             /* no choice at all */
};

/* STR() is no constant to gcc. */
#define CASE_STR(words)                                                                            \
    { "" words, sizeof(words) - 1 }
#define CASE_TEXT(words)                                                                           \
    { .kind = EVENT_TEXT, .text = CASE_STR(words) }
#define CASE_THOUGHT(words)                                                                        \
    { .kind = EVENT_THOUGHT, .text = CASE_STR(words) }
#define CASE_TOOL(number, words)                                                                   \
    { .kind = EVENT_TOOL, .tool = (number), .text = CASE_STR(words) }
#define CASE_ARGS(number, words)                                                                   \
    { .kind = EVENT_ARGS, .tool = (number), .text = CASE_STR(words) }

/* Everything that a case needs while it runs. */
struct case_run {
    struct api_request request;
    struct answer answer;
    struct answer_choice choice;
    struct choice tokens; /* the engine's part: no log-probabilities */
    int32_t ids[2 * CASE_EVENTS_MAX];
};

static inline enum status case_log_events(struct case_run *run, const struct codec_case *c) {
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < CASE_EVENTS_MAX; i++) {
        struct api_event ev = c->events[i];
        if (ev.kind == EVENT_TEXT && !ev.text.len) break;
        ev.first_token = tokens++;
        ev.token_count = 1;
        TRY(event_log_add(run->answer.log, &ev));
        if (ev.kind == EVENT_TOOL) run->choice.has_tools = true;
        if (ev.kind == EVENT_THOUGHT) run->choice.thought_tokens = tokens;
    }
    run->choice.answer_tokens = tokens;
    if (c->finish == FINISH_NONE) return ST_OK;
    struct api_event last = {.kind = EVENT_FINISH, .finish = c->finish, .first_token = tokens};
    last.text = str_of(c->stop);
    return event_log_add(run->answer.log, &last);
}

/* The request has been read. */
static inline enum status case_answer(struct case_run *run, const struct codec_case *c) {
    struct answer *a = &run->answer;
    *a = (struct answer){.request = &run->request,
                         .id = "0123456789abcdef",
                         .model = STR("tiny"),
                         .fingerprint = STR("fp_test"),
                         .created_s = 1700000000,
                         .arrived_us = 1000000,
                         .first_token_us = 1250000,
                         .finished_us = 3250000,
                         .prompt_tokens = c->is_load ? 0 : 12,
                         .cached_tokens = c->is_load ? 0 : 5,
                         .choice_count = !c->is_load,
                         .choices = &run->choice};
    run->choice = (struct answer_choice){.tokens = &run->tokens, .finish = c->finish};
    run->tokens = (struct choice){.tokens = run->ids};
    enum status st = event_log_create(&a->log, CASE_BYTES_MAX);
    if (st == ST_OK && !c->is_load) st = case_log_events(run, c);
    a->finished_count = c->finish != FINISH_NONE && !c->is_load;
    if (c->finish == FINISH_NONE && !c->is_load)
        api_refuse(&a->failure, 500, NULL, NULL, "the engine has \"stopped\"");
    return st;
}

static inline void case_deinit(struct case_run *run) {
    event_log_destroy(run->answer.log);
    api_request_deinit(&run->request);
}

static inline enum status case_read_body(const struct codec *codec, struct str body,
                                         struct api_request *r, struct api_error *e) {
    struct json *doc = NULL;
    api_request_init(r, codec);
    TRY(json_parse(body, &json_limits_request, &doc, &e->message));
    return codec->read_body(doc, r, e);
}

static inline void case_put_pieces(struct str sse, struct buf *out) {
    for (struct sse_piece p; sse_next(&sse, &p);) {
        buf_put_str(out, p.name);
        buf_put_text(out, p.name.len ? " " : "");
        buf_put_str(out, p.data);
        buf_put_char(out, '\n');
    }
}

/* The pieces behind number `after`, written `step` events at a time. */
static inline enum status case_stream(const struct case_run *run, uint32_t after, uint32_t step,
                                      struct buf *out) {
    struct encoder e;
    encoder_init(&e, run->request.codec, &run->answer, after, FRAMING_SSE);
    struct buf sse;
    buf_init(&sse, CASE_BYTES_MAX);
    for (uint32_t i = 0; i < 10 * CASE_EVENTS_MAX && !e.has_ended; i++) encoder_run(&e, step, &sse);
    enum status st = e.status == ST_OK ? buf_status(&sse) : e.status;
    if (st == ST_OK) case_put_pieces(buf_str(&sse), out);
    buf_deinit(&sse);
    encoder_deinit(&e);
    return st == ST_OK ? buf_status(out) : st;
}

static inline void case_put_request(const struct api_request *r, struct buf *out) {
    const struct api_thinking *thinking = &r->thinking;
    if (thinking->in_text || thinking->is_hidden || thinking->has_budget)
        buf_printf(out, "-- thoughts in_text %d hidden %d budget %u/%d\n", thinking->in_text,
                   thinking->is_hidden, thinking->budget_tokens, thinking->has_budget);
    buf_put_text(out, "-- messages ");
    if (r->messages) json_put(r->messages, out);
    for (uint32_t i = 0; i < r->prompt_count; i++) {
        buf_put_text(out, "\n-- prompt ");
        buf_put_str(out, r->prompts[i].text);
    }
    buf_put_text(out, "\n-- tools ");
    if (r->tools) json_put(r->tools, out);
    buf_put_text(out, "\n-- kwargs ");
    if (r->template_kwargs) json_put(r->template_kwargs, out);
    buf_printf(out,
               "\n-- choice %d '%.*s' one %d continue %d max %u/%d stops %u stream %d\n"
               "-- t %g k %u p %g min %g typ %g rep %g pres %g freq %g win %d seed %llu/%d\n",
               r->tool_choice, STR_ARG(r->tool_name), r->one_tool_call, r->continue_final,
               r->max_tokens, r->has_max_tokens, r->stop_count, r->stream,
               (double)r->sample.temperature, r->sample.top_k, (double)r->sample.top_p,
               (double)r->sample.min_p, (double)r->sample.typical_p,
               (double)r->sample.repetition_penalty, (double)r->sample.presence_penalty,
               (double)r->sample.frequency_penalty, r->sample.penalty_window,
               (unsigned long long)r->sample.seed, r->has_seed);
}

/* The whole record of a case. ST_NOMEM wherever memory lacked. */
static inline enum status case_transcribe(const struct codec *codec, const struct codec_case *c,
                                          struct buf *out) {
    struct case_run run = {.choice = {0}};
    struct api_error e = {0};
    buf_printf(out, "== %s\n", c->name);
    enum status st = case_read_body(codec, str_of(c->body), &run.request, &e);
    if (st == ST_OK) case_put_request(&run.request, out);
    if (st == ST_OK) st = case_answer(&run, c);
    if (st == ST_OK && run.answer.failure.status == 0) {
        buf_put_text(out, "-- whole\n");
        codec->whole(&run.answer, out);
        buf_put_char(out, '\n');
    }
    if (st == ST_OK) {
        buf_put_text(out, "-- stream\n");
        st = case_stream(&run, 0, UINT32_MAX, out);
    }
    case_deinit(&run);
    return st == ST_OK ? buf_status(out) : st;
}

#endif
