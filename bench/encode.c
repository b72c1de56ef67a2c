/* bench/encode.c - what a streamed token costs between the engine and the socket.
 *
 *     bench/encode
 *
 * One answer of chat completions: tokens -> event_writer -> event log -> encoder -> bytes, one
 * token at a time as in a server. Prints nanoseconds per chunk for plain text, for text with a
 * stop string to look for, for text that may hold tool calls, and with log-probabilities; then the
 * cost of a request that is not streamed: its body from bytes to a request, and an answer of 64
 * tokens as one body.
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "unit/api/api_lib.h"

enum { TOKENS = LIB_TOKENS - 8, ROUNDS = 200, BODIES = 20000 };

#define REAL_BODY                                                                                  \
    "{\"model\":\"smollm2\",\"messages\":[{\"role\":\"system\",\"content\":\"You are a helpful "   \
    "assistant.\"},{\"role\":\"user\",\"content\":\"What is the capital of France?\"}],"           \
    "\"max_tokens\":64,\"temperature\":0.7,\"top_p\":0.9,\"seed\":7,\"stop\":[\"END\"],"           \
    "\"user\":\"u1\"}"
#define ASK "\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"

/* Of the processor, so that neighbours on a shared machine count less. */
static int64_t cpu_us(void) {
    struct timespec t;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

struct tally {
    uint64_t pieces, bytes;
};

static void count_pieces(struct encoder *e, struct buf *out, struct tally *t) {
    const uint32_t pieces = e->pieces;
    encoder_run(e, 16, out);
    t->pieces += e->pieces - pieces;
    t->bytes += out->len;
    buf_clear(out);
}

/* One answer, written as its tokens come. */
static void run_answer(const struct codec *codec, struct lib_answer *l, struct tally *t) {
    struct encoder e;
    struct buf out;
    buf_init(&out, 1 << 20);
    encoder_init(&e, codec, &l->answer, 0, FRAMING_SSE);
    for (uint32_t i = 0; i < TOKENS; i++) {
        int32_t token = i % 5 == 4 ? '.' : i % 2 ? T_THE : T_WORLD;
        lib_push(l, 0, &token, 1, 1);
        count_pieces(&e, &out, t);
    }
    lib_finish(l, 0, FINISH_STOP);
    count_pieces(&e, &out, t);
    encoder_deinit(&e);
    buf_deinit(&out);
}

static void bench(const char *name, const char *body, const struct tokenizer *tokenizer) {
    const struct codec *codec = codec_find("openai.chat");
    struct lib_answer *l = mem_zalloc(sizeof(*l));
    struct tally t = {0};
    int64_t spent_us = 0;
    CHECK(l);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct api_error error = {0};
        CHECK(lib_read_body(codec, str_of(body), &l->request, &error) == ST_OK);
        lib_begin(l, tokenizer, tool_form_find("hermes"), 1);
        int64_t start = cpu_us();
        run_answer(codec, l, &t);
        spent_us += cpu_us() - start;
        lib_end(l);
    }
    printf("%-12s %8.1f ns a chunk, %5.1f bytes a chunk, %" PRIu64 " chunks\n", name,
           (double)spent_us * 1e3 / (double)t.pieces, (double)t.bytes / (double)t.pieces, t.pieces);
    mem_free(l);
}

static void bench_bodies(const struct tokenizer *tokenizer) {
    const struct codec *codec = codec_find("openai.chat");
    struct lib_answer *l = mem_zalloc(sizeof(*l));
    struct api_error error = {0};
    struct buf out;
    CHECK(l);
    buf_init(&out, 1 << 20);
    int64_t start = cpu_us();
    for (uint32_t i = 0; i < BODIES; i++) {
        CHECK(lib_read_body(codec, STR(REAL_BODY), &l->request, &error) == ST_OK);
        api_request_deinit(&l->request);
    }
    int64_t read_us = cpu_us() - start;
    CHECK(lib_read_body(codec, STR(REAL_BODY), &l->request, &error) == ST_OK);
    lib_begin(l, tokenizer, NULL, 1);
    for (uint32_t i = 0; i < 64; i++) lib_push(l, 0, &(int32_t){T_WORLD}, 1, 1);
    lib_finish(l, 0, FINISH_LENGTH);
    start = cpu_us();
    for (uint32_t i = 0; i < BODIES; i++) {
        buf_clear(&out);
        codec->whole(&l->answer, &out);
    }
    int64_t write_us = cpu_us() - start;
    printf("%-12s %8.1f us a body of %zu bytes\n", "read", (double)read_us / BODIES,
           sizeof(REAL_BODY) - 1);
    printf("%-12s %8.1f us a body of %zu bytes\n", "write", (double)write_us / BODIES, out.len);
    buf_deinit(&out);
    lib_end(l);
    mem_free(l);
}

int main(void) {
    struct tokenizer *tokenizer = lib_tokenizer();
    bench("plain", "{" ASK "}", tokenizer);
    bench("stop", "{" ASK ",\"stop\":[\"never\"]}", tokenizer);
    bench("tools", "{" ASK ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}",
          tokenizer);
    bench("logprobs", "{" ASK ",\"logprobs\":true,\"top_logprobs\":2}", tokenizer);
    bench_bodies(tokenizer);
    tokenizer_destroy(tokenizer);
    return 0;
}
