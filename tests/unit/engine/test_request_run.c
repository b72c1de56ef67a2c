/* Goal:   one request, run on the caller's thread, ends for the reason that it reports; a request
 *         that cannot be run is refused with the numbers; a logits tap receives every position
 *         once, with the bits of one pass, whatever the step size; the prefix cache changes no
 *         token.
 * Method: named cases on the golden models of 288 tokens, which come with a tokenizer; logits are
 *         compared with those of forward_logits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/request_run.h"
#include "engine/service.h"
#include "reference/forward.h"

#define LLAMA TEST_SOURCE_DIR "/golden/models/llama"

enum { CTX = 64, VOCAB = 288, ANSWER_MAX = 80 };

static void open_llama(struct service *s, uint32_t step_tokens) {
    struct err err = {{0}};
    struct service_options o = {
        .knobs = knobs_default(), .ctx_tokens = CTX, .is_single = true, .logit_rows = step_tokens};
    o.knobs.threads = 1;
    o.knobs.max_step_tokens = step_tokens;
    if (service_open(s, LLAMA, &o, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(s->loaded.model->hp.vocab, VOCAB);
}

/* What came of a request. */
struct outcome {
    int32_t tokens[ANSWER_MAX];
    uint32_t count, ends; /* tokens; events with a finish reason */
    uint32_t stop_after;  /* the callback cancels after so many; 0: never */
    uint32_t set_after;   /* the flag is set after so many; 0: never */
    _Atomic bool flag;
    char text[4096];
    struct request_usage usage;
    struct err err;
};

static bool take(void *ctx, const struct token_event *event) {
    struct outcome *o = ctx;
    if (event->token >= 0) o->tokens[o->count++] = event->token;
    assert_true((event->token >= 0) == (event->sample != NULL));
    strncat(o->text, event->text.len ? event->text.ptr : "", event->text.len);
    o->ends += event->finish != FINISH_NONE;
    if (o->set_after && o->count == o->set_after) atomic_store(&o->flag, true);
    return o->stop_after == 0 || o->count < o->stop_after;
}

static struct request_spec spec_of(const int32_t *ids, uint32_t count, uint32_t max) {
    struct request_spec spec = {.prompt = ids,
                                .prompt_tokens = count,
                                .max_tokens = max,
                                .n = 1,
                                .sample = sample_params_default(),
                                .ignore_end = true};
    spec.sample.temperature = 0;
    return spec;
}

static enum status run_with(struct service *s, const struct request_spec *spec,
                            struct text_output_options text, struct outcome *o) {
    uint32_t stop_after = o->stop_after, set_after = o->set_after;
    *o = (struct outcome){.stop_after = stop_after, .set_after = set_after};
    text.tokenizer = s->loaded.tokenizer;
    text.ignore_end = spec->ignore_end;
    struct request_run run = {.engine = s->engine,
                              .spec = spec,
                              .text = &text,
                              .is_cancelled = &o->flag,
                              .on_event = take,
                              .ctx = o};
    enum status st = request_run(&run, &o->usage, &o->err);
    engine_verify(s->engine);
    assert_null(engine_next(s->engine, 0));
    return st;
}

static enum status run_spec(struct service *s, const struct request_spec *spec, struct outcome *o) {
    return run_with(s, spec, (struct text_output_options){0}, o);
}

static void says(const struct outcome *o, const char *word) {
    if (!strstr(o->err.text, word)) fail_msg("\"%s\" does not say %s", o->err.text, word);
}

static void test_prompts_that_cannot_be_run_are_refused(void **state) {
    (void)state;
    struct service s;
    int32_t ids[CTX + 1] = {5, 6, 7};
    struct outcome o = {.count = 0};
    struct request_spec spec = spec_of(ids, 0, 4);
    open_llama(&s, 7);
    assert_int_equal(run_spec(&s, &spec, &o), ST_BAD);
    says(&o, "empty");
    spec.prompt_tokens = CTX + 1;
    assert_int_equal(run_spec(&s, &spec, &o), ST_BAD);
    says(&o, "65 tokens");
    const int32_t outside[] = {-1, VOCAB, INT32_MAX, INT32_MIN};
    spec.prompt_tokens = 3;
    for (int i = 0; i < 4; i++) {
        ids[2] = outside[i];
        assert_int_equal(run_spec(&s, &spec, &o), ST_BAD);
        says(&o, "token 2 is ");
    }
    service_close(&s);
}

static void expect_end(struct service *s, const struct request_spec *spec, struct outcome *o,
                       enum finish_reason finish, uint32_t count) {
    assert_int_equal(run_spec(s, spec, o), ST_OK);
    assert_int_equal(o->usage.finish, finish);
    assert_int_equal(o->count, count);
    assert_int_equal(o->usage.completion_tokens, count);
}

static void test_a_request_reports_why_it_ended(void **state) {
    (void)state;
    struct service s;
    const int32_t ids[CTX] = {70, 71, 72, 73};
    struct outcome o = {.count = 0};
    struct request_spec spec = spec_of(ids, 4, 0);
    open_llama(&s, 7);
    expect_end(&s, &spec, &o, FINISH_LENGTH, 0);
    assert_int_equal(o.ends, 1);
    spec.max_tokens = 5;
    expect_end(&s, &spec, &o, FINISH_LENGTH, 5);
    assert_int_equal(o.ends, 1);
    spec.max_tokens = 1000; /* the context ends it: what is in it, and one token more */
    expect_end(&s, &spec, &o, FINISH_LENGTH, CTX - 4 + 1);
    spec.prompt_tokens = CTX; /* a full context still gives a token */
    expect_end(&s, &spec, &o, FINISH_LENGTH, 1);
    spec.prompt_tokens = 4;
    o.stop_after = 3;
    expect_end(&s, &spec, &o, FINISH_CANCELLED, 3);
    assert_int_equal(o.ends, 0); /* the callback has asked for no more */
    o.stop_after = 0;
    o.set_after = 3;
    expect_end(&s, &spec, &o, FINISH_CANCELLED, 3);
    assert_int_equal(o.ends, 1);
    service_close(&s);
}

static void test_a_stop_string_ends_the_text_and_the_request(void **state) {
    (void)state;
    struct service s;
    const int32_t ids[] = {70, 71, 72, 73};
    struct outcome whole = {.count = 0}, cut = {.count = 0};
    struct request_spec spec = spec_of(ids, 4, 40);
    open_llama(&s, 7);
    assert_int_equal(run_spec(&s, &spec, &whole), ST_OK);
    size_t at = strlen(whole.text) / 2;
    struct str stop = {whole.text + at, 3};
    size_t first = (size_t)(strstr(whole.text, (char[]){stop.ptr[0], stop.ptr[1], stop.ptr[2], 0}) -
                            whole.text);
    struct text_output_options text = {.stops = &stop, .stop_count = 1};
    assert_int_equal(run_with(&s, &spec, text, &cut), ST_OK);
    assert_int_equal(cut.usage.finish, FINISH_STOP);
    assert_int_equal(cut.ends, 1);
    assert_int_equal(strlen(cut.text), first);
    assert_memory_equal(cut.text, whole.text, first);
    assert_true(cut.count < whole.count);
    assert_int_equal(cut.usage.completion_tokens, cut.count);
    assert_int_equal(cut.usage.prompt_tokens, 4);
    assert_memory_equal(cut.tokens, whole.tokens, cut.count * sizeof(int32_t));
    service_close(&s);
}

static void test_the_prefix_cache_changes_no_token(void **state) {
    (void)state;
    struct service s, fresh;
    int32_t ids[40] = {0};
    struct outcome first = {.count = 0}, again = {.count = 0}, other = {.count = 0};
    struct request_spec spec = spec_of(ids, 40, 8);
    for (int32_t i = 0; i < 40; i++) ids[i] = 70 + i;
    open_llama(&s, 7);
    open_llama(&fresh, 7);
    uint32_t block = s.knobs.block_size;
    assert_int_equal(run_spec(&s, &spec, &first), ST_OK);
    assert_int_equal(first.usage.cached_tokens, 0);
    assert_int_equal(run_spec(&s, &spec, &again), ST_OK);
    assert_int_equal(again.usage.cached_tokens, 39 / block * block);
    assert_memory_equal(first.tokens, again.tokens, sizeof(first.tokens));
    ids[block + 4] = 7; /* only the block before it holds the same text */
    assert_int_equal(run_spec(&s, &spec, &again), ST_OK);
    assert_int_equal(again.usage.cached_tokens, block);
    assert_int_equal(run_spec(&fresh, &spec, &other), ST_OK);
    assert_memory_equal(other.tokens, again.tokens, sizeof(other.tokens));
    service_close(&fresh);
    service_close(&s);
}

static void test_a_request_without_a_possible_token_fails(void **state) {
    (void)state;
    struct service s;
    struct logit_bias bias[VOCAB];
    const int32_t ids[] = {70};
    struct outcome o = {.count = 0};
    struct request_spec spec = spec_of(ids, 1, 4);
    open_llama(&s, 7);
    for (int32_t i = 0; i < VOCAB; i++) bias[i] = (struct logit_bias){i, -INFINITY};
    spec.sample.bias = bias;
    spec.sample.bias_count = VOCAB;
    assert_int_equal(run_spec(&s, &spec, &o), ST_BAD);
    says(&o, "no token is possible");
    spec.max_tokens = 0; /* no token is wanted, so none has to be possible */
    assert_int_equal(run_spec(&s, &spec, &o), ST_OK);
    spec.max_tokens = 4;
    bias[33].bias = 0; /* the only token that is left is taken */
    assert_int_equal(run_spec(&s, &spec, &o), ST_OK);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(o.tokens[i], 33);
    service_close(&s);
}

/* ---- the logits tap ---- */

struct rows {
    float values[CTX][VOCAB];
    uint32_t count;
};

static void keep_row(void *ctx, uint32_t pos, const float *logits) {
    struct rows *rows = ctx;
    assert_int_equal(pos, rows->count++);
    memcpy(rows->values[pos], logits, sizeof(rows->values[pos]));
}

static enum status keep_rows(void *ctx, uint32_t first, uint32_t count, const float *logits) {
    for (uint32_t i = 0; i < count; i++) keep_row(ctx, first + i, logits + (size_t)i * VOCAB);
    return ST_OK;
}

/* One pass over all `count` tokens. */
static void reference(const int32_t *ids, uint32_t count, struct rows *out) {
    struct err err = {{0}};
    struct forward *e = NULL;
    struct forward_options o = {.threads = 1, .ctx_tokens = CTX, .chunk_tokens = CTX};
    if (forward_open(LLAMA, &o, &e, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(forward_logits(e, ids, count, keep_rows, out, &err), ST_OK);
    forward_close(e);
}

static void test_a_logits_tap_receives_every_position_once(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 2, 7, 21, 64};
    struct rows *wanted = calloc(1, sizeof(*wanted)), *got = calloc(1, sizeof(*got));
    int32_t ids[CTX] = {0};
    struct outcome plain = {.count = 0}, tapped = {.count = 0};
    struct request_spec spec = spec_of(ids, 21, 9);
    for (int32_t i = 0; i < 21; i++) ids[i] = (i * i * 3 + 70) % VOCAB;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct service s;
        open_llama(&s, sizes[i]);
        spec.on_logits = NULL;
        assert_int_equal(run_spec(&s, &spec, &plain), ST_OK); /* fills the prefix cache */
        spec.on_logits = keep_row;
        spec.logits_ctx = got;
        got->count = 0;
        assert_int_equal(run_spec(&s, &spec, &tapped), ST_OK);
        assert_int_equal(tapped.usage.cached_tokens, 0);
        assert_memory_equal(plain.tokens, tapped.tokens, sizeof(plain.tokens));
        /* No logits come after the last token, which is never computed. */
        assert_int_equal(got->count, 21 + 9 - 1);
        memcpy(ids + 21, tapped.tokens, 8 * sizeof(int32_t));
        wanted->count = 0;
        if (i == 0) reference(ids, got->count, wanted);
        assert_memory_equal(got->values, wanted->values, got->count * sizeof(got->values[0]));
        service_close(&s);
    }
    free(wanted);
    free(got);
}

static void test_a_tap_with_choices_or_prompt_logprobs_is_refused(void **state) {
    (void)state;
    struct service s;
    struct err err = {{0}};
    const int32_t ids[] = {70, 71};
    struct request *r;
    struct request_spec spec = spec_of(ids, 2, 2);
    open_llama(&s, 7);
    spec.on_logits = keep_row;
    spec.n = 2;
    assert_int_equal(engine_submit(s.engine, &spec, &r, &err), ST_BAD);
    spec.n = 1;
    spec.want_prompt_logprobs = true;
    assert_int_equal(engine_submit(s.engine, &spec, &r, &err), ST_BAD);
    service_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts_that_cannot_be_run_are_refused),
        cmocka_unit_test(test_a_request_reports_why_it_ended),
        cmocka_unit_test(test_a_stop_string_ends_the_text_and_the_request),
        cmocka_unit_test(test_the_prefix_cache_changes_no_token),
        cmocka_unit_test(test_a_request_without_a_possible_token_fails),
        cmocka_unit_test(test_a_logits_tap_receives_every_position_once),
        cmocka_unit_test(test_a_tap_with_choices_or_prompt_logprobs_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
