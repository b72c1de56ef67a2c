/* Goal:   a request that cannot be run is refused with the numbers at fault, before anything is
 *         computed from it; one that can ends for the reason it says.
 * Method: named cases on the golden models of 288 tokens, which come with a tokenizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "engine/solo.h"

enum { CTX = 24, VOCAB_MAX = 1024, ANSWER_MAX = 64 };

static struct solo *open_golden(const char *name) {
    char path[4096] = TEST_SOURCE_DIR "/golden/models/";
    struct solo *e = NULL;
    struct err err = {{0}};
    strncat(path, name, sizeof(path) - strlen(path) - 1);
    struct solo_options o = {.threads = 1, .ctx_tokens = CTX, .chunk_tokens = 7};
    if (solo_open(path, &o, &e, &err) != ST_OK) fail_msg("%s", err.text);
    return e;
}

/* What came of a request. */
struct outcome {
    int32_t tokens[ANSWER_MAX];
    uint32_t count;
    uint32_t stop_after; /* cancel after so many; 0: never */
    char text[4096];
    struct gen_usage usage;
    struct err err;
};

static bool take(void *ctx, const struct gen_event *event) {
    struct outcome *o = ctx;
    if (event->token >= 0) o->tokens[o->count++] = event->token;
    strncat(o->text, event->text.len ? event->text.ptr : "", event->text.len);
    return o->stop_after == 0 || o->count < o->stop_after;
}

static struct gen_request request_of(const int32_t *ids, uint32_t count, uint32_t max) {
    struct gen_request req = {.prompt = ids,
                              .prompt_tokens = count,
                              .max_tokens = max,
                              .sample = sample_params_default(),
                              .ignore_end = true};
    req.sample.temperature = 0;
    return req;
}

static enum status generate(struct solo *e, const struct gen_request *req, struct outcome *o) {
    uint32_t stop_after = o->stop_after;
    *o = (struct outcome){.stop_after = stop_after};
    return solo_generate(e, req, take, o, &o->usage, &o->err);
}

static void says(const struct outcome *o, const char *word) {
    if (!strstr(o->err.text, word)) fail_msg("\"%s\" does not say %s", o->err.text, word);
}

static void test_ids_that_cannot_be_run_are_refused(void **state) {
    (void)state;
    struct solo *e = open_golden("llama");
    int32_t ids[CTX + 1] = {5, 6, 7};
    struct outcome o = {.count = 0};
    struct gen_request req = request_of(ids, 0, 4);
    assert_int_equal(generate(e, &req, &o), ST_BAD);
    says(&o, "empty");
    req.prompt_tokens = CTX + 1;
    assert_int_equal(generate(e, &req, &o), ST_BAD);
    says(&o, "25 tokens");
    says(&o, "24");
    const int32_t outside[] = {-1, 288, INT32_MAX, INT32_MIN};
    req.prompt_tokens = 3;
    for (int i = 0; i < 4; i++) {
        ids[2] = outside[i];
        assert_int_equal(generate(e, &req, &o), ST_BAD);
        says(&o, "token 2 is ");
    }
    solo_close(e);
}

/* A text that is cut keeps its last token, wherever that stood. */
static void test_the_token_that_a_cut_keeps_is_checked_too(void **state) {
    (void)state;
    struct solo *e = open_golden("bert");
    uint32_t max = solo_ctx_tokens(e);
    int32_t ids[4096] = {0};
    float out[4096];
    struct err err = {{0}};
    assert_true(max + 5 < 4096 && solo_embed_dims(e) <= 4096);
    assert_int_equal(solo_embed(e, ids, max + 5, out, &err), ST_OK);
    ids[max + 4] = (int32_t)solo_vocab(e);
    assert_int_equal(solo_embed(e, ids, max + 5, out, &err), ST_BAD);
    solo_close(e);
}

static void test_an_answer_says_why_it_ended(void **state) {
    (void)state;
    struct solo *e = open_golden("llama");
    const int32_t ids[] = {70, 71, 72, 73};
    struct outcome o = {.count = 0};
    struct gen_request req = request_of(ids, 4, 0);
    assert_int_equal(generate(e, &req, &o), ST_OK);
    assert_int_equal(o.usage.finish, FINISH_LENGTH);
    assert_int_equal(o.count, 0);
    req.max_tokens = 5;
    assert_int_equal(generate(e, &req, &o), ST_OK);
    assert_int_equal(o.usage.finish, FINISH_LENGTH);
    assert_int_equal(o.count, 5);
    req.max_tokens = 1000; /* the context ends it: what is in it, and one token more */
    assert_int_equal(generate(e, &req, &o), ST_OK);
    assert_int_equal(o.usage.finish, FINISH_LENGTH);
    assert_int_equal(o.count, CTX - 4 + 1);
    o.stop_after = 3;
    assert_int_equal(generate(e, &req, &o), ST_OK);
    assert_int_equal(o.usage.finish, FINISH_CANCELLED);
    assert_int_equal(o.count, 3);
    solo_close(e);
}

static enum status ignore_logits(void *ctx, uint32_t first_pos, uint32_t row_count,
                                 const float *logits) {
    (void)ctx;
    (void)first_pos;
    (void)row_count;
    (void)logits;
    return ST_OK;
}

static void test_the_cache_changes_no_token(void **state) {
    (void)state;
    struct solo *e = open_golden("llama"), *fresh = open_golden("llama");
    int32_t ids[] = {70, 71, 72, 73, 74, 75, 76, 77, 78};
    struct outcome first = {.count = 0}, again = {.count = 0}, other = {.count = 0};
    struct gen_request req = request_of(ids, 9, 8);
    assert_int_equal(generate(e, &req, &first), ST_OK);
    assert_int_equal(first.usage.cached_tokens, 0);
    assert_int_equal(generate(e, &req, &again), ST_OK);
    assert_int_equal(again.usage.cached_tokens, 8);
    assert_memory_equal(first.tokens, again.tokens, sizeof(first.tokens));
    /* Other work on the model leaves nothing of it. */
    const int32_t others[] = {7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    assert_int_equal(solo_logits(e, others, 10, ignore_logits, NULL, &again.err), ST_OK);
    assert_int_equal(generate(e, &req, &again), ST_OK);
    assert_int_equal(again.usage.cached_tokens, 0);
    assert_memory_equal(first.tokens, again.tokens, sizeof(first.tokens));
    ids[4] = 99; /* only what stands before it is still true */
    assert_int_equal(generate(e, &req, &again), ST_OK);
    assert_int_equal(again.usage.cached_tokens, 4);
    assert_int_equal(generate(fresh, &req, &other), ST_OK);
    assert_memory_equal(other.tokens, again.tokens, sizeof(other.tokens));
    solo_close(fresh);
    solo_close(e);
}

static void test_an_answer_with_nothing_to_say_is_an_error(void **state) {
    (void)state;
    struct solo *e = open_golden("llama");
    struct logit_bias bias[VOCAB_MAX];
    const int32_t ids[] = {70};
    struct outcome o = {.count = 0};
    struct gen_request req = request_of(ids, 1, 4);
    uint32_t vocab = solo_vocab(e);
    assert_true(vocab <= VOCAB_MAX);
    for (uint32_t i = 0; i < vocab; i++) bias[i] = (struct logit_bias){(int32_t)i, -INFINITY};
    req.sample.bias = bias;
    req.sample.bias_count = vocab;
    assert_int_equal(generate(e, &req, &o), ST_BAD);
    says(&o, "no token is possible");
    bias[33].bias = 0; /* the one that is left is taken, whatever it is worth */
    assert_int_equal(generate(e, &req, &o), ST_OK);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(o.tokens[i], 33);
    solo_close(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_that_cannot_be_run_are_refused),
        cmocka_unit_test(test_the_token_that_a_cut_keeps_is_checked_too),
        cmocka_unit_test(test_an_answer_says_why_it_ended),
        cmocka_unit_test(test_the_cache_changes_no_token),
        cmocka_unit_test(test_an_answer_with_nothing_to_say_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
