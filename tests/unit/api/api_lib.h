/* unit/api/api_lib.h - an answer without an engine: tokens that the test chooses go through
 * event_writers into an event log, and from there through a codec, whole or as a stream.
 *
 * The tokenizer is the one of unit/text/byte_tokenizer.h.
 */
#ifndef UNIT_API_API_LIB_H
#define UNIT_API_API_LIB_H

#include <string.h>

#include "api/answer.h"
#include "api/codec.h"
#include "api/event_writer.h"
#include "api/think.h"
#include "api/tools.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer.h"
#include "unit/text/byte_tokenizer.h"
#include "unit/api/sse_pieces.h"

enum { LIB_CHOICES = 4, LIB_TOKENS = 4096 };

#define LIB_TEMPLATE                                                                               \
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"                           \
    "{% if add_generation_prompt %}assistant:{% endif %}"

static inline struct tokenizer *lib_tokenizer(void) { return byte_tokenizer(STR(LIB_TEMPLATE)); }

/* --- an answer -------------------------------------------------------------------------- */

struct lib_answer {
    struct api_request request;
    struct answer answer;
    struct answer_choice choices[LIB_CHOICES];
    struct choice tokens[LIB_CHOICES];
    int32_t ids[LIB_CHOICES][LIB_TOKENS];
    struct token_logprob logprobs[LIB_CHOICES][LIB_TOKENS];
    struct sample_result tops[LIB_CHOICES][LIB_TOKENS];
    struct event_writer *writers[LIB_CHOICES];
};

/* The request that a codec reads from `body`; ST_BAD leaves the reason in `e`. */
static inline enum status lib_read_body(const struct codec *codec, struct str body,
                                        struct api_request *r, struct api_error *e) {
    struct json *doc = NULL;
    struct err err = {0};
    api_request_init(r, codec);
    if (json_parse(body, &json_limits_request, &doc, &err) != ST_OK)
        return api_refuse(e, 400, NULL, NULL, "%s", err.text);
    return codec->read_body(doc, r, e);
}

/* How the model writes calls and thoughts; NULL: it does not. */
struct lib_forms {
    const struct tool_form *tools;
    const struct think_form *thinks;
};

static inline void lib_begin_with(struct lib_answer *l, const struct tokenizer *t,
                                  struct lib_forms forms, uint32_t choices) {
    static struct request plain; /* without log-probabilities of the prompt */
    CHECK(choices <= LIB_CHOICES);
    l->answer = (struct answer){.request = &l->request,
                                .tokenizer = t,
                                .id = "abc123",
                                .model = STR("m\"1"),
                                .fingerprint = STR("fp_0"),
                                .created_s = 1700000000,
                                .prompt_tokens = 3,
                                .cached_tokens = 1,
                                .choice_count = choices,
                                .choices = l->choices};
    CHECK(event_log_create(&l->answer.log, 1 << 24) == ST_OK);
    for (uint32_t i = 0; i < choices; i++) {
        struct event_writer_options options = {.request = &l->request, .tokenizer = t, .choice = i};
        options.tools = forms.tools;
        options.thinks = forms.thinks;
        l->tokens[i] =
            (struct choice){.tokens = l->ids[i], .prompt_tokens = 2, .index = i, .request = &plain};
        l->ids[i][0] = 'p';
        l->ids[i][1] = 'q';
        if (l->request.logprobs) l->tokens[i].logprobs = l->logprobs[i];
        if (l->request.logprobs && l->request.top_logprobs) l->tokens[i].tops = l->tops[i];
        l->choices[i] = (struct answer_choice){.tokens = &l->tokens[i],
                                               .prompt = i / (l->request.n ? l->request.n : 1)};
        CHECK(event_writer_create(&options, &l->writers[i], NULL) == ST_OK);
    }
}

static inline void lib_begin(struct lib_answer *l, const struct tokenizer *t,
                             const struct tool_form *form, uint32_t choices) {
    lib_begin_with(l, t, (struct lib_forms){.tools = form}, choices);
}

static inline void lib_end(struct lib_answer *l) {
    for (uint32_t i = 0; i < l->answer.choice_count; i++) event_writer_destroy(l->writers[i]);
    event_log_destroy(l->answer.log);
    api_request_deinit(&l->request);
}

/* The engine's part: a token with a log-probability that its id makes. */
static inline void lib_note(struct lib_answer *l, uint32_t choice, int32_t token) {
    uint32_t at = l->choices[choice].answer_tokens++;
    CHECK(at + 2 < LIB_TOKENS);
    l->ids[choice][at + 2] = token;
    struct token_logprob chosen = {token, -(float)(token % 8) / 4};
    l->logprobs[choice][at] = chosen;
    struct sample_result *tops = &l->tops[choice][at];
    *tops = (struct sample_result){.chosen = chosen, .top_count = l->request.top_logprobs};
    for (uint32_t i = 0; i < tops->top_count; i++)
        tops->top[i] = (struct token_logprob){(int32_t)('a' + i), -0.5f * (float)(i + 1)};
}

/* Push tokens in pieces of `step`; true if a stop string was met. */
static inline bool lib_push(struct lib_answer *l, uint32_t choice, const int32_t *tokens,
                            uint32_t count, uint32_t step) {
    bool met = false;
    for (uint32_t i = 0; i < count && !met; i += step) {
        uint32_t some = count - i < step ? count - i : step;
        for (uint32_t k = 0; k < some; k++) lib_note(l, choice, tokens[i + k]);
        CHECK(event_writer_push(l->writers[choice], tokens + i, some, l->answer.log, &met) ==
              ST_OK);
    }
    return met;
}

static inline void lib_finish(struct lib_answer *l, uint32_t choice, enum finish_reason finish) {
    CHECK(event_writer_finish(l->writers[choice], &finish, l->answer.log) == ST_OK);
    l->choices[choice].finish = finish;
    l->choices[choice].has_tools = event_writer_calls(l->writers[choice]) > 0;
    l->choices[choice].thought_tokens = event_writer_thought_tokens(l->writers[choice]);
    l->answer.finished_count++;
}

/* A text as byte tokens, ended. */
static inline void lib_say(struct lib_answer *l, uint32_t choice, struct str text,
                           enum finish_reason finish) {
    for (size_t i = 0; i < text.len; i++) {
        int32_t token = (uint8_t)text.ptr[i];
        if (lib_push(l, choice, &token, 1, 1)) break;
    }
    lib_finish(l, choice, finish);
}

static inline void lib_note_pieces(struct str sse, struct buf *out) {
    for (struct sse_piece p; sse_next(&sse, &p);) {
        if (p.name.len) {
            buf_put_str(out, p.name);
            buf_put_char(out, ' ');
        }
        buf_put_str(out, p.data);
        buf_put_char(out, '\n');
    }
}

/* All pieces of a stream, a line each. */
static inline void lib_stream(const struct codec *codec, const struct answer *a, uint32_t after,
                              struct buf *out) {
    struct encoder e;
    encoder_init(&e, codec, a, after, FRAMING_SSE);
    struct buf sse;
    buf_init(&sse, 1 << 26);
    while (!encoder_run(&e, 3, &sse)) {
    }
    lib_note_pieces(buf_str(&sse), out);
    buf_deinit(&sse);
    CHECK(e.status == ST_OK);
    encoder_deinit(&e);
}

#endif
