/* Goal:   clients on many threads compile grammars, share them and give them back while the engine
 *         matches them on its own thread; every answer keeps to its grammar.
 * Method: real threads on a golden model; few sources, so that most requests share; answers are
 *         matched again afterwards. Clean under the thread sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "engine/grammars.h"
#include "engine/service.h"
#include "unit/engine/await.h"

enum { CLIENTS = 4, REQUESTS_EACH = 6, SOURCES = 3, PROMPT = 4, ANSWER = 12 };

static const char *const sources[SOURCES] = {"[a-f]{3,20}!", "(yes|no|[0-9]{4})", "x{2,9}(y|z)"};

struct client {
    struct service *service;
    uint32_t number;
    struct request *requests[REQUESTS_EACH];
};

static struct grammar_source source_of(uint32_t number) {
    return (struct grammar_source){.kind = GRAMMAR_REGEX,
                                   .text = str_of(sources[number % SOURCES])};
}

static void *client_main(void *arg) {
    struct client *c = arg;
    static const int32_t prompt[PROMPT] = {5, 6, 7, 8};
    for (uint32_t i = 0; i < REQUESTS_EACH; i++) {
        const struct grammar_source source = source_of(c->number + i);
        struct grammar_refusal why;
        struct err err = {{0}};
        struct request_spec spec = {.prompt = prompt,
                                    .prompt_tokens = PROMPT,
                                    .max_tokens = ANSWER,
                                    .n = 1 + i % 2,
                                    .forces_text = i % 3 == 0,
                                    .sample = sample_params_default()};
        spec.sample.seed = c->number * 100 + i;
        enum status st = grammars_compile(c->service->grammars, &source, &spec.grammar, &why);
        if (st == ST_OK) st = engine_submit(c->service->engine, &spec, &c->requests[i], &err);
        if (st != ST_OK) c->requests[i] = NULL;
        if (st == ST_OK && i == 4) engine_cancel(c->service->engine, c->requests[i]);
        answer_grammar_unref(spec.grammar);
    }
    return NULL;
}

/* The answer is a text of its grammar, or the beginning of one. */
static void check_answer(struct service *s, const struct choice *c, uint32_t number) {
    const struct grammar_source source = source_of(number);
    struct sample_params params = sample_params_default();
    struct answer_grammar *g = NULL;
    struct grammar_refusal why;
    uint32_t ready;
    enum finish_reason finish = choice_poll(c, &ready);
    assert_true(finish == FINISH_STOP || finish == FINISH_LENGTH || finish == FINISH_CANCELLED);
    assert_int_equal(grammars_compile(s->grammars, &source, &g, &why), ST_OK);
    answer_grammar_apply(g, false, &params);
    struct matcher m = matcher_init(params.grammar);
    for (uint32_t i = c->prompt_tokens; i < ready; i++) {
        struct str bytes = vocabulary_token(params.vocabulary, (uint32_t)c->tokens[i]);
        assert_true(matcher_accept(&m, bytes, NULL));
    }
    if (finish == FINISH_STOP) assert_true(matcher_is_complete(&m));
    matcher_release(&m);
    answer_grammar_unref(g);
}

static void test_grammars_are_shared_between_threads(void **state) {
    (void)state;
    struct service s;
    struct err err = {{0}};
    struct service_options o = {.knobs = knobs_default(), .ctx_tokens = 64};
    o.knobs.threads = 1;
    o.knobs.max_seqs = 4;
    if (service_open(&s, TEST_SOURCE_DIR "/golden/models/llama", &o, &err) != ST_OK)
        fail_msg("%s", err.text);
    assert_int_equal(engine_start(s.engine, &err), ST_OK);
    pthread_t threads[CLIENTS];
    struct client clients[CLIENTS];
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.service = &s, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, client_main, &clients[i]), 0);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < CLIENTS * REQUESTS_EACH; i++) {
        struct request *r = clients[i / REQUESTS_EACH].requests[i % REQUESTS_EACH];
        assert_non_null(r);
        await_answer(s.engine, r);
        for (uint32_t k = 0; k < r->n; k++)
            check_answer(&s, &r->choices[k], i / REQUESTS_EACH + i % REQUESTS_EACH);
        request_unref(r);
    }
    service_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grammars_are_shared_between_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
