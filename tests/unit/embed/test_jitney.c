/* Goal:   a program that uses include/jitney.h gets what the header promises.
 * Method: the library on tiny random models of the tree: whole answers, stop strings, several
 *         requests at once compared bit by bit with the same ones alone, and every refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "unit/embed/embed_rig.h"

static int open_llama(void **state) {
    *state = open_with(LLAMA, NULL);
    return *state ? 0 : -1;
}

static int close_model(void **state) {
    jitney_close(*state);
    return 0;
}

static uint64_t submit(struct jitney *j, const struct jitney_request *r) {
    uint64_t id = 0;
    char why[JITNEY_ERROR_BYTES];
    enum jitney_status st = jitney_submit(j, r, &id, why);
    if (st != JITNEY_OK) fprintf(stderr, "refused: %s\n", why);
    assert_int_equal(st, JITNEY_OK);
    assert_true(id > 0);
    return id;
}

static struct received *run_all(struct jitney *j, const struct jitney_request *r) {
    struct received *a = calloc(r->n, sizeof(*a));
    assert_non_null(a);
    assert_int_equal(read_all_of(j, submit(j, r), a), JITNEY_IDLE);
    return a;
}

/* --- opening ---------------------------------------------------------------------------- */

static void refuse_open(const char *model, const struct jitney_options *o,
                        enum jitney_status expected, const char *sentence) {
    struct jitney *j = (struct jitney *)(uintptr_t)1;
    char why[JITNEY_ERROR_BYTES] = "";
    assert_int_equal(jitney_open(model, o, &j, why), expected);
    assert_null(j);
    if (!strstr(why, sentence)) fail_msg("\"%s\" does not say \"%s\"", why, sentence);
}

static void test_open_reports_what_is_wrong(void **state) {
    (void)state;
    struct jitney_options o = jitney_options_default();
    refuse_open("/nowhere/at/all", NULL, JITNEY_MISSING, "/nowhere/at/all: no such file");
    refuse_open("no-such-model", NULL, JITNEY_MISSING, "jitney pull");
    refuse_open(TEST_SOURCE_DIR "/CMakeLists.txt", NULL, JITNEY_BAD, "CMakeLists.txt");
    refuse_open(TEST_SOURCE_DIR "/golden/models/bert", NULL, JITNEY_BAD, "embeddings");
    refuse_open(NULL, NULL, JITNEY_BAD, "no model");
    o.policy = "fifo";
    refuse_open(LLAMA, &o, JITNEY_BAD, "unknown policy \"fifo\"; known: chunked");
    o.policy = NULL;
    o.set = (const char *const[]){"max_seqs=0", NULL};
    refuse_open(LLAMA, &o, JITNEY_BAD, "1 to 4096");
    o.set = (const char *const[]){"max_seats=4", NULL};
    refuse_open(LLAMA, &o, JITNEY_BAD, "max_seqs");
    o = (struct jitney_options){.threads = 1};
    refuse_open(LLAMA, &o, JITNEY_BAD, "jitney_options_default()");
    assert_int_equal(jitney_open("/nowhere", NULL, &(struct jitney *){NULL}, NULL), JITNEY_MISSING);
}

static void count_progress(void *ctx, double share) {
    double *last = ctx;
    assert_true(share >= *last && share <= 1);
    *last = share;
}

static void test_loading_reports_its_progress(void **state) {
    (void)state;
    double last = 0;
    struct jitney *j;
    struct jitney_options o = jitney_options_default();
    o.on_progress = count_progress;
    o.progress_ctx = &last;
    assert_int_equal(jitney_open(LLAMA, &o, &j, NULL), JITNEY_OK);
    assert_true(last == 1);
    jitney_close(j);
    jitney_close(NULL);
}

static void test_a_simulated_model_answers_without_computing(void **state) {
    double last = 0;
    struct jitney *j;
    struct jitney_options o = jitney_options_default();
    o.pretend = true;
    o.on_progress = count_progress;
    o.progress_ctx = &last;
    assert_int_equal(jitney_open(LLAMA, &o, &j, NULL), JITNEY_OK);
    assert_true(last == 1);
    struct jitney_request r = steady("Hello", 8, 1);
    struct received *a = run_all(j, &r), *again = run_all(j, &r), *real = run_all(*state, &r);
    assert_int_equal(a->count, 8);
    assert_true(a->text_bytes > 0);
    assert_true(received_same(a, again));
    assert_false(received_same(a, real));
    jitney_close(j);
    free(a);
    free(again);
    free(real);
}

static void test_two_models_are_open_at_once(void **state) {
    struct jitney *second = open_with(QWEN2, NULL);
    assert_non_null(second);
    struct jitney_request r = steady("Hello", 8, 1);
    struct received *a = run_all(*state, &r), *b = run_all(second, &r);
    assert_int_equal(a->count, 8);
    assert_int_equal(b->count, 8);
    jitney_close(second);
    struct received *again = run_all(*state, &r);
    assert_true(received_same(a, again));
    free(a);
    free(b);
    free(again);
}

static void test_info_reports_the_settings_in_force(void **state) {
    struct jitney_info info = {.size = sizeof(info)};
    jitney_info(*state, &info);
    assert_int_equal(info.threads, 2);
    assert_true(info.ctx_tokens > 0 && info.vocab > 0);
    assert_false(info.has_chat);
    assert_int_equal(info.size, sizeof(info));
    /* A caller that knows only the first field is given no more than that. */
    struct jitney_info small = {.size = sizeof(size_t) + sizeof(uint32_t), .vocab = 77};
    jitney_info(*state, &small);
    assert_int_equal(small.ctx_tokens, info.ctx_tokens);
    assert_int_equal(small.vocab, 77);
    assert_true(strlen(jitney_version()) >= 5);
}

/* --- requests --------------------------------------------------------------------------- */

static void test_events_contain_the_whole_answer(void **state) {
    struct jitney_request r = steady("Hello", 24, 7);
    int user;
    r.user = &user;
    struct received *a = run_all(*state, &r);
    assert_int_equal(a->finish, JITNEY_LENGTH);
    assert_int_equal(a->count, 24);
    assert_int_equal(a->completion_tokens, 24);
    assert_int_equal(a->last_count, 1);
    for (uint32_t i = 0; i < a->count; i++) assert_true(a->logprobs[i] <= 0);

    int32_t *ids;
    size_t count, bytes;
    char *text;
    assert_int_equal(jitney_tokenize(*state, "Hello", 5, true, &ids, &count, NULL), JITNEY_OK);
    assert_int_equal(a->prompt_tokens, count);
    jitney_free(ids);
    assert_int_equal(jitney_detokenize(*state, a->tokens, a->count, false, &text, &bytes, NULL),
                     JITNEY_OK);
    assert_int_equal(bytes, a->text_bytes);
    assert_memory_equal(text, a->text, bytes);
    jitney_free(text);
    free(a);
}

static void test_the_user_pointer_comes_back_in_every_event(void **state) {
    int first, second;
    struct jitney_request r = steady("Hello", 8, 7);
    r.user = &first;
    uint64_t id = submit(*state, &r);
    r.user = &second;
    submit(*state, &r);
    struct jitney_event ev = jitney_event_default();
    uint32_t count = 0;
    for (; jitney_next(*state, &ev, -1) == JITNEY_OK; count++)
        assert_ptr_equal(ev.user, ev.id == id ? &first : &second);
    assert_true(count >= 2);
    jitney_event_clear(&ev);
    jitney_event_clear(&ev);
}

static void test_text_and_tokens_are_the_same_prompt(void **state) {
    struct jitney_request r = steady("The quick brown fox", 8, 3);
    struct received *a = run_all(*state, &r);
    int32_t *ids;
    size_t count;
    assert_int_equal(jitney_tokenize(*state, r.text, strlen(r.text), true, &ids, &count, NULL),
                     JITNEY_OK);
    r.text = NULL;
    r.tokens = ids;
    r.token_count = count;
    struct received *b = run_all(*state, &r);
    assert_true(received_same(a, b));
    jitney_free(ids);
    free(a);
    free(b);
}

static void test_a_default_request_draws_its_own_seed(void **state) {
    (void)state;
    struct jitney_request a = jitney_request_default(), b = jitney_request_default();
    assert_true(a.seed != b.seed);
    assert_true(a.seed < (uint64_t)1 << 53);
    assert_int_equal(a.max_tokens, 256);
    assert_int_equal(a.n, 1);
}

/* A program that was compiled with a later header, whose structs have more fields. */
static void test_fields_that_the_library_does_not_know_are_left_alone(void **state) {
    struct {
        struct jitney_request r;
        char added[16];
    } later = {.added = "fifteen letters"};
    jitney_request_init(&later.r, sizeof(later));
    later.r.text = "Hello";
    later.r.max_tokens = 2;
    assert_string_equal(later.added, "fifteen letters");
    submit(*state, &later.r);
    struct {
        struct jitney_event ev;
        char added[16];
    } event = {.added = "fifteen letters"};
    jitney_event_init(&event.ev, sizeof(event));
    while (jitney_next(*state, &event.ev, -1) == JITNEY_OK)
        assert_int_equal(event.ev.size, sizeof(event));
    assert_string_equal(event.added, "fifteen letters");
    jitney_event_clear(&event.ev);
    assert_int_equal(event.ev.size, sizeof(event));
}

static void refuse(struct jitney *j, const struct jitney_request *r, const char *sentence) {
    char why[JITNEY_ERROR_BYTES] = "";
    uint64_t id = 5;
    assert_int_equal(jitney_submit(j, r, &id, why), JITNEY_BAD);
    assert_int_equal(id, 0);
    if (!strstr(why, sentence)) fail_msg("\"%s\" does not say \"%s\"", why, sentence);
}

static void test_submit_reports_what_is_wrong(void **state) {
    struct jitney *j = *state;
    const struct jitney_request fine = steady("Hello", 8, 1);
    struct jitney_request r = fine;
    r.chat = "Hello";
    refuse(j, &r, "has 2 of chat, chat_json, text and tokens");
    r = fine, r.text = NULL;
    refuse(j, &r, "has 0 of chat");
    r.chat = "Hello";
    refuse(j, &r, "no chat template");
    r = fine, r.n = 0;
    refuse(j, &r, "n is 0");
    r.n = 17;
    refuse(j, &r, "n is 17; it must be a whole number from 1 to 16");
    r = fine, r.max_tokens = 0;
    refuse(j, &r, "max_tokens is 0");
    r = fine, r.temperature = -1;
    refuse(j, &r, "temperature is -1");
    r = fine, r.expires_ms = NAN;
    refuse(j, &r, "expires_ms");
    r = fine, r.top_logprobs = 21;
    refuse(j, &r, "top_logprobs is 21");
    r.top_logprobs = 1, r.logprobs = false;
    refuse(j, &r, "logprobs is off");
    r = fine, r.stop = (const char *const[]){"a", "", NULL};
    refuse(j, &r, "stop string 1 has 0 bytes");
    r = fine, r.bias_count = 1;
    refuse(j, &r, "logit biases");
    r = fine, r.text = NULL, r.tokens = (const int32_t[]){1, -5}, r.token_count = 2;
    refuse(j, &r, "token 1 is -5");
    r.token_count = 0;
    refuse(j, &r, "empty");
    r = fine, r.schema = "{\"properties\":{\"a\":{\"pattern\":\"(\"}}}";
    refuse(j, &r, "the schema is refused at #/properties/a");
    r = fine, r.regex = "a", r.grammar = "root ::= [a]";
    refuse(j, &r, "has 2 of schema, regex and grammar");
    r = (struct jitney_request){.text = "Hello"};
    refuse(j, &r, "jitney_request_default()");
    struct jitney_event ev = jitney_event_default();
    assert_int_equal(jitney_next(j, &ev, -1), JITNEY_IDLE);
    jitney_event_clear(&ev);
}

static void test_an_answer_keeps_to_a_schema_an_expression_or_a_grammar(void **state) {
    struct jitney_request r = steady("Hello", 40, 1);
    r.schema = "{\"const\":{\"a\":[true,\"x\"]}}";
    struct received *a = run_all(*state, &r);
    assert_string_equal(a->text, "{\"a\":[true,\"x\"]}");
    assert_int_equal(a->finish, JITNEY_STOP);
    free(a);
    r.schema = NULL, r.regex = "ab{3}c";
    a = run_all(*state, &r);
    assert_string_equal(a->text, "abbbc");
    free(a);
    r.regex = NULL, r.grammar = "start: \"x\" /y{2}/";
    a = run_all(*state, &r);
    assert_string_equal(a->text, "xyy");
    free(a);
}

static void test_a_prompt_that_can_never_fit_is_refused_with_the_numbers(void **state) {
    struct jitney_info info = {.size = sizeof(info)};
    jitney_info(*state, &info);
    int32_t *ids = calloc(info.ctx_tokens, sizeof(*ids));
    struct jitney_request r = steady(NULL, 8, 1);
    char expected[64];
    snprintf(expected, sizeof(expected), "%u tokens", info.ctx_tokens);
    r.tokens = ids;
    r.token_count = info.ctx_tokens;
    refuse(*state, &r, expected);
    free(ids);
}

/* The engine, not submit, finds out that the cache has too few blocks for it. */
static void test_a_request_too_big_for_the_cache_ends_refused(void **state) {
    (void)state;
    struct jitney *j = open_with(LLAMA, (const char *const[]){"kv_blocks=2", NULL});
    assert_non_null(j);
    struct jitney_request r = steady("Hello", 64, 1);
    struct jitney_event ev = jitney_event_default();
    submit(j, &r);
    assert_int_equal(jitney_next(j, &ev, -1), JITNEY_OK);
    assert_int_equal(ev.finish, JITNEY_REFUSED);
    assert_non_null(ev.error);
    assert_non_null(strstr(ev.error, "the pool has 2"));
    assert_int_equal(ev.text_bytes + ev.token_count, 0);
    assert_int_equal(jitney_next(j, &ev, -1), JITNEY_IDLE);
    jitney_event_clear(&ev);
    jitney_close(j);
}

static void test_n_answers_are_those_of_n_seeds(void **state) {
    struct jitney_request r = steady("Once upon a time", 16, 40);
    r.n = 4;
    struct received *all = run_all(*state, &r);
    for (uint32_t i = 0; i < 4; i++) {
        struct jitney_request one = steady("Once upon a time", 16, 40 + i);
        struct received *alone = run_all(*state, &one);
        assert_true(received_same(&all[i], alone));
        assert_int_equal(all[i].last_count, 1);
        free(alone);
    }
    free(all);
}

static void test_logprobs_name_the_likeliest_tokens(void **state) {
    struct jitney_request r = steady("Hello", 12, 5);
    r.top_logprobs = RIG_TOPS;
    r.temperature = 0;
    struct received *a = run_all(*state, &r);
    for (uint32_t i = 0; i < a->count; i++) {
        assert_int_equal(a->tops[i][0].token, a->tokens[i]);
        assert_true(a->tops[i][0].logprob == a->logprobs[i]);
        for (uint32_t t = 1; t < RIG_TOPS; t++)
            assert_true(a->tops[i][t].logprob <= a->tops[i][t - 1].logprob);
    }
    r.logprobs = false;
    r.top_logprobs = 0;
    submit(*state, &r);
    struct jitney_event ev = jitney_event_default();
    while (jitney_next(*state, &ev, -1) == JITNEY_OK) {
        assert_null(ev.logprobs);
        assert_null(ev.top_logprobs);
    }
    jitney_event_clear(&ev);
    free(a);
}

static void test_a_bias_forbids_a_token(void **state) {
    struct jitney_request r = steady("Hello", 1, 5);
    r.temperature = 0;
    struct received *a = run_all(*state, &r);
    const struct jitney_bias bias = {a->tokens[0], -INFINITY};
    r.bias = &bias;
    r.bias_count = 1;
    struct received *b = run_all(*state, &r);
    assert_int_not_equal(a->tokens[0], b->tokens[0]);
    free(a);
    free(b);
}

/* --- stop strings ----------------------------------------------------------------------- */

/* Every piece of an answer's text, as a stop string, ends it before the piece's first place. */
static void test_a_stop_string_cuts_the_text_before_it(void **state) {
    struct jitney_request r = steady("Hello", 24, 7);
    struct received *whole = run_all(*state, &r);
    uint32_t checked = 0;
    for (size_t at = 0; at + 3 <= whole->text_bytes; at += 2) {
        char stop[4] = {0};
        memcpy(stop, whole->text + at, 3);
        if (memchr(stop, 0, 3)) continue;
        const char *place = strstr(whole->text, stop);
        r.stop = (const char *const[]){"not in any text, surely", stop, NULL};
        struct received *cut = run_all(*state, &r);
        assert_non_null(place);
        assert_int_equal(cut->finish, JITNEY_STOP);
        assert_int_equal(cut->text_bytes, place - whole->text);
        assert_memory_equal(cut->text, whole->text, cut->text_bytes);
        assert_true(cut->count <= whole->count);
        assert_memory_equal(cut->tokens, whole->tokens, cut->count * sizeof(cut->tokens[0]));
        assert_int_equal(cut->completion_tokens, cut->count);
        assert_int_equal(cut->last_count, 1);
        free(cut);
        checked++;
    }
    assert_true(checked > 5);
    free(whole);
}

static void test_a_stopped_choice_leaves_the_others_running(void **state) {
    struct jitney_request r = steady("Hello", 24, 7);
    r.n = 3;
    struct received *whole = run_all(*state, &r);
    char stop[9] = {0};
    memcpy(stop, whole[1].text + 4, 8);
    r.stop = (const char *const[]){stop, NULL};
    struct received *cut = run_all(*state, &r);
    assert_int_equal(cut[1].finish, JITNEY_STOP);
    for (uint32_t i = 0; i < 3; i++) {
        bool has_it = strstr(whole[i].text, stop) != NULL;
        assert_int_equal(cut[i].finish, has_it ? JITNEY_STOP : JITNEY_LENGTH);
        if (!has_it) assert_true(received_same(&cut[i], &whole[i]));
    }
    free(whole);
    free(cut);
}

/* --- waiting ---------------------------------------------------------------------------- */

static void test_nothing_under_way_is_idle_and_nothing_new_a_timeout(void **state) {
    (void)state;
    const char *const slow[] = {"dynamic_window_ms=600000", "dynamic_batch=8", NULL};
    struct jitney_options o = jitney_options_default();
    o.policy = "dynamic";
    o.set = slow;
    struct jitney *j;
    assert_int_equal(jitney_open(LLAMA, &o, &j, NULL), JITNEY_OK);
    struct jitney_event ev = jitney_event_default();
    assert_int_equal(jitney_next(j, &ev, -1), JITNEY_IDLE);
    assert_int_equal(jitney_next_of(j, 12345, &ev, -1), JITNEY_IDLE);
    assert_int_equal(jitney_next_of(j, 0, &ev, -1), JITNEY_IDLE);
    struct jitney_request r = steady("Hello", 8, 1);
    uint64_t id = submit(j, &r);
    assert_int_equal(jitney_next(j, &ev, 0), JITNEY_TIMEOUT);
    assert_int_equal(jitney_next(j, &ev, 20), JITNEY_TIMEOUT);
    assert_int_equal(jitney_next_of(j, id, &ev, 20), JITNEY_TIMEOUT);
    assert_int_equal(jitney_next_of(j, id + 1, &ev, 20), JITNEY_IDLE);
    jitney_cancel(j, id);
    jitney_cancel(j, id + 1);
    assert_int_equal(jitney_next(j, &ev, -1), JITNEY_OK);
    assert_int_equal(ev.finish, JITNEY_CANCELLED);
    assert_int_equal(jitney_next(j, &ev, -1), JITNEY_IDLE);
    jitney_event_clear(&ev);
    ev.size = 0;
    assert_int_equal(jitney_next(j, &ev, -1), JITNEY_BAD);
    jitney_close(j);
}

static void test_one_request_is_read_without_losing_events_of_another(void **state) {
    struct jitney_request r = steady("Hello", 20, 1);
    struct received *expected = run_all(*state, &r);
    struct received first = {0}, second = {0};
    uint64_t a = submit(*state, &r), b = submit(*state, &r);
    assert_int_equal(read_all_of(*state, b, &second), JITNEY_IDLE);
    struct jitney_event ev = jitney_event_default();
    while (jitney_next(*state, &ev, -1) == JITNEY_OK) {
        assert_int_equal(ev.id, a);
        received_add(&first, &ev);
    }
    assert_true(received_same(&first, expected));
    assert_true(received_same(&second, expected));
    jitney_event_clear(&ev);
    free(expected);
}

static void test_cancel_ends_a_request_with_an_event(void **state) {
    struct jitney_request r = steady("Hello", 400, 1);
    uint64_t id = submit(*state, &r);
    struct received a = {0};
    struct jitney_event ev = jitney_event_default();
    assert_int_equal(jitney_next_of(*state, id, &ev, -1), JITNEY_OK);
    received_add(&a, &ev);
    jitney_cancel(*state, id);
    assert_int_equal(read_all_of(*state, id, &a), JITNEY_IDLE);
    assert_int_equal(a.last_count, 1);
    assert_true(a.finish == JITNEY_CANCELLED || a.finish == JITNEY_LENGTH);
    jitney_cancel(*state, id);
    jitney_event_clear(&ev);
}

static void test_a_request_expires(void **state) {
    struct jitney_request r = steady("Hello", 400, 1);
    r.expires_ms = 0.001;
    struct received *a = run_all(*state, &r);
    assert_int_equal(a->finish, JITNEY_EXPIRED);
    free(a);
}

static void test_close_ends_what_is_under_way_and_events_stay_readable(void **state) {
    (void)state;
    struct jitney *j = open_with(LLAMA, NULL);
    struct jitney_request r = steady("Hello", 400, 1);
    for (int i = 0; i < 4; i++) submit(j, &r);
    struct jitney_event ev = jitney_event_default();
    assert_int_equal(jitney_next(j, &ev, -1), JITNEY_OK);
    int32_t token = ev.tokens[0];
    jitney_close(j);
    assert_int_equal(ev.tokens[0], token);
    assert_int_equal(strlen(ev.text), ev.text_bytes);
    jitney_event_clear(&ev);
}

static void test_after_stop_every_call_returns_closed(void **state) {
    (void)state;
    struct jitney *j = open_with(LLAMA, NULL);
    struct jitney_request r = steady("Hello", 400, 1);
    uint64_t id = submit(j, &r);
    char why[JITNEY_ERROR_BYTES];
    struct jitney_event ev = jitney_event_default();
    jitney_stop(j);
    assert_int_equal(jitney_next(j, &ev, -1), JITNEY_CLOSED);
    assert_int_equal(jitney_next_of(j, id, &ev, -1), JITNEY_CLOSED);
    assert_int_equal(jitney_submit(j, &r, NULL, why), JITNEY_CLOSED);
    assert_non_null(strstr(why, "closed"));
    struct jitney_info info = {.size = sizeof(info), .vocab = 5};
    jitney_info(j, &info);
    assert_int_equal(info.vocab, 0);
    jitney_cancel(j, id);
    jitney_stop(j);
    jitney_close(j);
    jitney_event_clear(&ev);
}

/* --- company ---------------------------------------------------------------------------- */

enum { BATCH = 16 };
static const char *const prompts[] = {"Hello", "The quick brown fox jumps over the lazy dog.",
                                      "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21", "A"};

static struct jitney_request batch_request(uint32_t i) {
    struct jitney_request r = steady(prompts[i % 4], 10 + i * 3 % 40, i);
    r.temperature = i % 3 == 0 ? 0 : 0.9f;
    r.top_p = i % 3 == 1 ? 0.8f : 1;
    r.repetition_penalty = i % 5 == 2 ? 1.3f : 1;
    return r;
}

static void compare_batch(const char *model, const char *const *set) {
    struct jitney *j = open_with(model, set);
    assert_non_null(j);
    struct received *alone = calloc(BATCH, sizeof(*alone)),
                    *together = calloc(BATCH, sizeof(*alone));
    for (uint32_t i = 0; i < BATCH; i++) {
        struct jitney_request r = batch_request(i);
        assert_int_equal(read_all_of(j, submit(j, &r), &alone[i]), JITNEY_IDLE);
    }
    for (uint32_t i = 0; i < BATCH; i++) {
        struct jitney_request r = batch_request(i);
        r.user = &together[i];
        submit(j, &r);
    }
    struct jitney_event ev = jitney_event_default();
    while (jitney_next(j, &ev, -1) == JITNEY_OK) received_add(ev.user, &ev);
    for (uint32_t i = 0; i < BATCH; i++) assert_true(received_same(&alone[i], &together[i]));
    jitney_event_clear(&ev);
    jitney_close(j);
    free(alone);
    free(together);
}

static void test_requests_in_a_batch_have_the_bits_of_each_alone(void **state) {
    (void)state;
    const char *const tight[] = {"max_seqs=5", "kv_blocks=20", "max_step_tokens=24", NULL};
    const char *const uncached[] = {"prefix_cache=off", NULL};
    compare_batch(LLAMA, NULL);
    compare_batch(LLAMA, tight);
    compare_batch(QWEN2, uncached);
    compare_batch(QWEN2, tight);
}

/* --- the rest --------------------------------------------------------------------------- */

static void test_stats_count_what_happened(void **state) {
    struct jitney_request r = steady("The quick brown fox jumps over the lazy dog, again", 8, 1);
    for (int i = 0; i < 3; i++) free(run_all(*state, &r));
    struct jitney_stats s = {.size = sizeof(s)};
    jitney_stats(*state, &s);
    assert_true(s.finished >= 3);
    assert_true(s.steps >= 24);
    assert_true(s.kv_blocks > 0 && s.kv_blocks_free <= s.kv_blocks);
    assert_true(s.prompt_tokens_looked_up >= s.prompt_tokens_cached);
    assert_true(s.kv_waste >= 0 && s.kv_waste < 1);
}

static void test_text_becomes_tokens_and_back(void **state) {
    const char text[] = "Gr\xc3\xbc\xc3\x9f"
                        "e, world! \xf0\x9f\x9a\x90";
    int32_t *ids;
    char *back;
    size_t count, bytes;
    char why[JITNEY_ERROR_BYTES];
    assert_int_equal(jitney_tokenize(*state, text, strlen(text), true, &ids, &count, why),
                     JITNEY_OK);
    assert_int_equal(jitney_detokenize(*state, ids, count, false, &back, &bytes, why), JITNEY_OK);
    assert_string_equal(back, text);
    assert_int_equal(bytes, strlen(text));
    jitney_free(back);
    jitney_free(ids);
    assert_int_equal(jitney_tokenize(*state, "", 0, false, &ids, &count, why), JITNEY_OK);
    assert_int_equal(count, 0);
    jitney_free(ids);
    assert_int_equal(jitney_detokenize(*state, NULL, 0, false, &back, &bytes, why), JITNEY_OK);
    assert_string_equal(back, "");
    jitney_free(back);
    const int32_t wrong[] = {1, 1 << 30};
    assert_int_equal(jitney_detokenize(*state, wrong, 2, false, &back, &bytes, why), JITNEY_BAD);
    assert_non_null(strstr(why, "token 1 is 1073741824"));
    assert_null(back);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_reports_what_is_wrong),
        cmocka_unit_test(test_loading_reports_its_progress),
        cmocka_unit_test(test_a_simulated_model_answers_without_computing),
        cmocka_unit_test(test_two_models_are_open_at_once),
        cmocka_unit_test(test_info_reports_the_settings_in_force),
        cmocka_unit_test(test_events_contain_the_whole_answer),
        cmocka_unit_test(test_the_user_pointer_comes_back_in_every_event),
        cmocka_unit_test(test_text_and_tokens_are_the_same_prompt),
        cmocka_unit_test(test_a_default_request_draws_its_own_seed),
        cmocka_unit_test(test_fields_that_the_library_does_not_know_are_left_alone),
        cmocka_unit_test(test_submit_reports_what_is_wrong),
        cmocka_unit_test(test_an_answer_keeps_to_a_schema_an_expression_or_a_grammar),
        cmocka_unit_test(test_a_prompt_that_can_never_fit_is_refused_with_the_numbers),
        cmocka_unit_test(test_a_request_too_big_for_the_cache_ends_refused),
        cmocka_unit_test(test_n_answers_are_those_of_n_seeds),
        cmocka_unit_test(test_logprobs_name_the_likeliest_tokens),
        cmocka_unit_test(test_a_bias_forbids_a_token),
        cmocka_unit_test(test_a_stop_string_cuts_the_text_before_it),
        cmocka_unit_test(test_a_stopped_choice_leaves_the_others_running),
        cmocka_unit_test(test_nothing_under_way_is_idle_and_nothing_new_a_timeout),
        cmocka_unit_test(test_one_request_is_read_without_losing_events_of_another),
        cmocka_unit_test(test_cancel_ends_a_request_with_an_event),
        cmocka_unit_test(test_a_request_expires),
        cmocka_unit_test(test_close_ends_what_is_under_way_and_events_stay_readable),
        cmocka_unit_test(test_after_stop_every_call_returns_closed),
        cmocka_unit_test(test_requests_in_a_batch_have_the_bits_of_each_alone),
        cmocka_unit_test(test_stats_count_what_happened),
        cmocka_unit_test(test_text_becomes_tokens_and_back),
    };
    return cmocka_run_group_tests(tests, open_llama, close_model);
}
