/* fuzz/use_peer.h - a body of an attacker through one of the codecs of peers.
 *
 * It is refused with one sentence and a 4xx status, or becomes a valid request: messages and tools
 * have their form, numbers are in range. An accepted request is then answered, whole and as a
 * stream, and every piece must be JSON without a line break.
 */
#ifndef FUZZ_USE_PEER_H
#define FUZZ_USE_PEER_H

#include <stddef.h>
#include <stdint.h>

#include "fuzz/use_trees.h"
#include "unit/api/codec_case.h"

static inline void check_json(struct str text, enum json_kind kind) {
    struct json *doc = NULL;
    struct err err = {0};
    struct json_limits limits = {
        .bytes_max = CASE_BYTES_MAX, .depth_max = 128, .values_max = 1000000};
    CHECK(json_parse(text, &limits, &doc, &err) == ST_OK);
    CHECK(json_kind(doc) == kind);
    json_destroy(doc);
}

static inline void check_pieces(struct str sse, uint32_t *count) {
    for (struct sse_piece p; sse_next(&sse, &p);) {
        CHECK(p.number == ++*count);
        CHECK(memchr(p.data.ptr, '\n', p.data.len) == NULL);
        CHECK(p.name.len == 0 || memchr(p.name.ptr, '\n', p.name.len) == NULL);
        check_json(p.data, JS_MAP);
    }
}

static inline void check_request(const struct api_request *r) {
    struct err err = {0};
    use_check_trees(r);
    CHECK(sample_params_check(&r->sample, &err) == ST_OK);
    CHECK(r->n == 1);
    CHECK(r->stop_count <= API_STOPS_MAX);
    CHECK(r->tool_choice != TOOLS_NAMED || r->tool_name.len);
    CHECK(r->tool_choice == TOOLS_NONE || r->tools);
}

static inline void answer_request(struct case_run *run, const struct codec_case *c) {
    struct buf out;
    uint32_t pieces = 0;
    struct encoder e;
    CHECK(case_answer(run, c) == ST_OK);
    run->request.logprobs = false; /* no tokenizer here to spell them with */
    buf_init(&out, CASE_BYTES_MAX);
    if (run->answer.failure.status == 0) {
        run->request.codec->whole(&run->answer, &out);
        CHECK(buf_status(&out) == ST_OK);
        check_json(buf_str(&out), JS_MAP);
    }
    encoder_init(&e, run->request.codec, &run->answer, 0, FRAMING_SSE);
    buf_clear(&out);
    while (!e.has_ended) encoder_run(&e, 1, &out);
    check_pieces(buf_str(&out), &pieces);
    CHECK(e.status == ST_OK && pieces > 0);
    encoder_deinit(&e);
    buf_deinit(&out);
}

static inline void use_peer(const struct codec *codec, struct str body) {
    static const struct codec_case answers[] = {
        {.finish = FINISH_STOP,
         .events = {CASE_TEXT("a\n\""), CASE_TOOL(0, "f\n"), CASE_ARGS(0, "{\"a\":\n1}"),
                    CASE_TEXT("b")}},
        {.finish = FINISH_LENGTH, .events = {CASE_TOOL(0, "f"), CASE_ARGS(0, "{\"a")}},
        {.finish = FINISH_NONE, .events = {CASE_TEXT("x")}},
    };
    struct case_run run = {.choice = {0}};
    struct api_error e = {0};
    struct json *doc = NULL;
    api_request_init(&run.request, codec);
    if (json_parse(body, &json_limits_request, &doc, &e.message) != ST_OK) {
        api_request_deinit(&run.request);
        return;
    }
    enum status st = codec->read_body(doc, &run.request, &e);
    CHECK(st == ST_OK || st == ST_BAD);
    if (st == ST_BAD) CHECK(e.status >= 400 && e.status < 500 && e.message.text[0]);
    if (st == ST_OK) check_request(&run.request);
    for (size_t i = 0; st == ST_OK && i < sizeof(answers) / sizeof(answers[0]); i++) {
        answer_request(&run, &answers[i]);
        event_log_destroy(run.answer.log);
        run.answer.log = NULL;
    }
    case_deinit(&run);
}

#endif
