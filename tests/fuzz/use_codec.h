/* fuzz/use_codec.h - any bytes as a body for a codec, and an answer made of the same bytes.
 *
 * Whatever is taken must be in range and be answered with valid JSON, whole and as a stream.
 */
#ifndef FUZZ_USE_CODEC_H
#define FUZZ_USE_CODEC_H

#include "fuzz/use_trees.h"
#include "base/check.h"
#include "unit/api/api_lib.h"

static inline void use_check_json(struct str text) {
    struct json *doc = NULL;
    if (!str_is(text, "[DONE]"))
        CHECK(json_parse(text, &json_limits_model_file, &doc, NULL) == ST_OK);
    json_destroy(doc);
}

static inline void use_pieces(struct str sse, uint32_t *count) {
    for (struct sse_piece p; sse_next(&sse, &p);) {
        CHECK(p.number == ++*count);
        use_check_json(p.data);
    }
}

static inline void use_check_request(const struct api_request *r) {
    struct err err = {0};
    CHECK(sample_params_check(&r->sample, &err) == ST_OK);
    CHECK(r->n >= 1 && r->n <= API_CHOICES_MAX);
    CHECK(r->stop_count <= API_STOPS_MAX && r->stop_token_count <= API_STOP_TOKENS_MAX);
    CHECK(r->is_chat || (r->prompt_count >= 1 && r->prompt_count * r->n <= API_CHOICES_MAX));
    CHECK(r->smooth_ms >= 0 && r->urgency.expires_us >= 0);
    use_check_trees(r);
}

static inline void use_answer(const struct codec *codec, struct lib_answer *l, struct str bytes,
                              bool fails) {
    const struct answer *a = &l->answer;
    struct encoder e;
    uint32_t pieces = 0;
    encoder_init(&e, codec, a, 0, FRAMING_SSE);
    struct buf sse;
    buf_init(&sse, 1 << 26);
    for (uint32_t i = 0; i < a->choice_count; i++) {
        encoder_run(&e, 2, &sse);
        if (fails && i > 0) api_refuse(&l->answer.failure, 500, "p", "c", "%.*s", STR_ARG(bytes));
        if (fails && i > 0) break;
        lib_say(l, i, str_take(bytes, 300), i ? FINISH_STOP : FINISH_LENGTH);
    }
    while (!encoder_run(&e, 5, &sse)) {
    }
    use_pieces(buf_str(&sse), &pieces);
    buf_deinit(&sse);
    CHECK(e.status == ST_OK && e.has_ended == answer_is_done(a));
    encoder_deinit(&e);
    if (a->failure.status) return;
    struct buf whole;
    buf_init(&whole, 1 << 26);
    codec->whole(a, &whole);
    CHECK(buf_status(&whole) == ST_OK);
    use_check_json(buf_str(&whole));
    buf_deinit(&whole);
}

static inline void use_error(const struct codec *codec, const struct api_error *e) {
    struct buf out;
    CHECK(e->status == 400 && e->message.text[0]);
    buf_init(&out, 1 << 16);
    codec->put_error(e, STR("id"), &out);
    use_check_json(buf_str(&out));
    buf_deinit(&out);
}

static inline void use_codec(const struct codec *codec, const uint8_t *data, size_t size) {
    static struct tokenizer *tokenizer; /* made once: it costs more than a body */
    static struct lib_answer l;
    struct str bytes = {(const char *)data, size};
    struct json *doc = NULL;
    struct api_error e = {0};
    if (!tokenizer) tokenizer = lib_tokenizer();
    if (json_parse(bytes, &json_limits_request, &doc, NULL) != ST_OK) return;
    api_request_init(&l.request, codec);
    enum status st = codec->read_body(doc, &l.request, &e);
    if (st == ST_BAD) use_error(codec, &e);
    if (st != ST_OK) {
        api_request_deinit(&l.request);
        return;
    }
    use_check_request(&l.request);
    uint32_t prompts = l.request.is_chat ? 1 : l.request.prompt_count;
    uint32_t choices = l.request.n * prompts;
    lib_begin(&l, tokenizer, tool_form_find("hermes"),
              choices < LIB_CHOICES ? choices : LIB_CHOICES);
    use_answer(codec, &l, bytes, size % 7 == 0);
    lib_end(&l);
}

#endif
