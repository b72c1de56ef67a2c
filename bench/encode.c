/* bench/encode.c - what a streamed token costs between the engine and the socket.
 *
 *     bench/encode
 *
 * One answer of chat completions: tokens -> teller -> event log -> encoder -> bytes, a token at a
 * time as a server does. Prints nanoseconds a chunk for plain text, for text with a stop string
 * to look out for, for text that may hold tool calls, and with log-probabilities.
 */
#include <inttypes.h>
#include <stdio.h>

#include "../tests/unit/api/api_lib.h"
#include "base/clock.h"

enum { TOKENS = LIB_TOKENS - 8, ROUNDS = 200 };

struct tally {
    uint64_t pieces, bytes;
};

static void count_piece(void *ctx, uint32_t number, struct str name, struct str data) {
    struct tally *t = ctx;
    (void)number;
    (void)name;
    t->pieces++;
    t->bytes += data.len;
}

/* One answer, told as its tokens come. */
static void run_answer(const struct codec *codec, struct lib_answer *l, struct tally *t) {
    struct encoder e;
    encoder_init(&e, codec, &l->answer, 0, count_piece, t);
    for (uint32_t i = 0; i < TOKENS; i++) {
        int32_t token = i % 5 == 4 ? '.' : i % 2 ? T_THE : T_WORLD;
        lib_push(l, 0, &token, 1, 1);
        encoder_run(&e, 16);
    }
    lib_finish(l, 0, FINISH_STOP);
    encoder_run(&e, 16);
    encoder_deinit(&e);
}

static void bench(const char *name, const char *body, const struct tokenizer *tokenizer) {
    const struct codec *codec = codec_find("openai.chat");
    struct lib_answer *l = mem_zalloc(sizeof(*l));
    struct tally t = {0};
    int64_t spent_us = 0;
    CHECK(l);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct api_error error = {0};
        CHECK(lib_decode(codec, str_of(body), &l->request, &error) == ST_OK);
        lib_begin(l, tokenizer, tool_form_find("hermes"), 1);
        int64_t start = clock_now(&clock_real);
        run_answer(codec, l, &t);
        spent_us += clock_now(&clock_real) - start;
        lib_end(l);
    }
    printf("%-12s %8.1f ns a chunk, %5.1f bytes a chunk, %" PRIu64 " chunks\n", name,
           (double)spent_us * 1e3 / (double)t.pieces, (double)t.bytes / (double)t.pieces, t.pieces);
    mem_free(l);
}

#define ASK "\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"

int main(void) {
    struct tokenizer *tokenizer = lib_tokenizer();
    bench("plain", "{" ASK "}", tokenizer);
    bench("stop", "{" ASK ",\"stop\":[\"never\"]}", tokenizer);
    bench("tools", "{" ASK ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}",
          tokenizer);
    bench("logprobs", "{" ASK ",\"logprobs\":true,\"top_logprobs\":2}", tokenizer);
    tokenizer_destroy(tokenizer);
    return 0;
}
