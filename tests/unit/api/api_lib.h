/* unit/api/api_lib.h - an answer without an engine: tokens of the test's choice go through tellers
 * into an event log, and from there through a codec, whole or as a stream.
 *
 * The tokenizer is byte-level: token N below 256 is the byte N, so that any bytes can be answered,
 * also half characters. Above them stand a few words and special tokens.
 */
#ifndef UNIT_API_API_LIB_H
#define UNIT_API_API_LIB_H

#include <string.h>

#include "api/answer.h"
#include "api/codec.h"
#include "api/teller.h"
#include "api/tools.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

enum { T_END = 256, T_BEGIN, T_THE, T_HELLO, T_WORLD, T_CALL, T_VOCAB };
enum { LIB_CHOICES = 4, LIB_TOKENS = 4096 };

#define LIB_TEMPLATE                                                                               \
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"                           \
    "{% if add_generation_prompt %}assistant:{% endif %}"

/* GPT-2's letter for a byte, as JSON text. */
static inline void lib_put_byte(struct buf *out, uint32_t byte) {
    bool is_plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    uint32_t moved = byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67;
    char letter[4];
    size_t len = utf8_encode(is_plain ? byte : 256 + moved, letter);
    buf_put_json_string(out, (struct str){letter, len});
}

static inline void lib_put_added(struct buf *out, uint32_t id, const char *text, bool special) {
    buf_printf(out,
               "{\"id\":%u,\"content\":\"%s\",\"special\":%s,\"single_word\":false,"
               "\"lstrip\":false,\"rstrip\":false,\"normalized\":false}",
               id, text, special ? "true" : "false");
}

static inline void lib_put_tokenizer(struct buf *out) {
    buf_put_text(out, "{\"normalizer\":null,\"post_processor\":null,\"pre_tokenizer\":"
                      "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
                      "\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\","
                      "\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
                      "\"added_tokens\":[");
    lib_put_added(out, T_END, "<|end|>", true);
    buf_put_char(out, ',');
    lib_put_added(out, T_BEGIN, "<|begin|>", true);
    buf_put_char(out, ',');
    lib_put_added(out, T_CALL, "<tool_call>", true);
    buf_put_text(out, "],\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (uint32_t i = 0; i < 256; i++) {
        lib_put_byte(out, i);
        buf_printf(out, ":%u,", i);
    }
    buf_printf(out, "\"<|end|>\":%d,\"<|begin|>\":%d,\"\xc4\xa0the\":%d,\"Hello\":%d,", T_END,
               T_BEGIN, T_THE, T_HELLO);
    buf_printf(out, "\"\xc4\xa0world\":%d,\"<tool_call>\":%d}}}", T_WORLD, T_CALL);
}

static inline struct tokenizer *lib_tokenizer_of(struct str template) {
    struct buf doc, config;
    struct json *doc_json, *config_json;
    struct tokenizer *t = NULL;
    struct err err = {0};
    buf_init(&doc, 1 << 20);
    buf_init(&config, 1 << 20);
    lib_put_tokenizer(&doc);
    buf_put_text(&config, "{\"bos_token\":\"<|begin|>\",\"eos_token\":\"<|end|>\","
                          "\"chat_template\":");
    buf_put_json_string(&config, template);
    buf_put_char(&config, '}');
    CHECK(json_parse(buf_str(&doc), &json_limits_model_file, &doc_json, &err) == ST_OK);
    CHECK(json_parse(buf_str(&config), &json_limits_model_file, &config_json, &err) == ST_OK);
    CHECK(tokenizer_create_json(doc_json, config_json, "bytes", &t, &err) == ST_OK);
    json_destroy(doc_json);
    json_destroy(config_json);
    buf_deinit(&doc);
    buf_deinit(&config);
    return t;
}

static inline struct tokenizer *lib_tokenizer(void) { return lib_tokenizer_of(STR(LIB_TEMPLATE)); }

/* --- an answer -------------------------------------------------------------------------- */

struct lib_answer {
    struct api_request request;
    struct answer answer;
    struct answer_choice choices[LIB_CHOICES];
    struct choice tokens[LIB_CHOICES];
    int32_t ids[LIB_CHOICES][LIB_TOKENS];
    struct token_logprob logprobs[LIB_CHOICES][LIB_TOKENS];
    struct sample_result tops[LIB_CHOICES][LIB_TOKENS];
    struct teller *tellers[LIB_CHOICES];
};

/* The request that a codec reads from `body`; ST_BAD leaves the reason in `e`. */
static inline enum status lib_decode(const struct codec *codec, struct str body,
                                     struct api_request *r, struct api_error *e) {
    struct json *doc = NULL;
    struct err err = {0};
    api_request_init(r, codec);
    if (json_parse(body, &json_limits_request, &doc, &err) != ST_OK)
        return api_refuse(e, 400, NULL, NULL, "%s", err.text);
    return codec->decode(doc, r, e);
}

static inline void lib_begin(struct lib_answer *l, const struct tokenizer *t,
                             const struct tool_form *form, uint32_t choices) {
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
        struct teller_options options = {
            .request = &l->request, .tokenizer = t, .choice = i, .tools = form};
        l->tokens[i] =
            (struct choice){.tokens = l->ids[i], .prompt_tokens = 2, .index = i, .request = &plain};
        l->ids[i][0] = 'p';
        l->ids[i][1] = 'q';
        if (l->request.logprobs) l->tokens[i].logprobs = l->logprobs[i];
        if (l->request.logprobs && l->request.top_logprobs) l->tokens[i].tops = l->tops[i];
        l->choices[i] = (struct answer_choice){.tokens = &l->tokens[i],
                                               .prompt = i / (l->request.n ? l->request.n : 1)};
        CHECK(teller_create(&options, &l->tellers[i], NULL) == ST_OK);
    }
}

static inline void lib_end(struct lib_answer *l) {
    for (uint32_t i = 0; i < l->answer.choice_count; i++) teller_destroy(l->tellers[i]);
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
        CHECK(teller_push(l->tellers[choice], tokens + i, some, l->answer.log, &met) == ST_OK);
    }
    return met;
}

static inline void lib_finish(struct lib_answer *l, uint32_t choice, enum finish_reason finish) {
    CHECK(teller_finish(l->tellers[choice], finish, l->answer.log) == ST_OK);
    l->choices[choice].finish = finish;
    l->choices[choice].has_tools = teller_has_tools(l->tellers[choice]);
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

static inline void lib_note_piece(void *ctx, uint32_t number, struct str name, struct str data) {
    struct buf *out = ctx;
    (void)number;
    if (name.len) {
        buf_put_str(out, name);
        buf_put_char(out, ' ');
    }
    buf_put_str(out, data);
    buf_put_char(out, '\n');
}

/* All pieces of a stream, a line each. */
static inline void lib_stream(const struct codec *codec, const struct answer *a, uint32_t after,
                              struct buf *out) {
    struct encoder e;
    encoder_init(&e, codec, a, after, lib_note_piece, out);
    while (!encoder_run(&e, 3)) {
    }
    CHECK(e.status == ST_OK);
    encoder_deinit(&e);
}

#endif
