/* Goal:   a generation ends exactly once whatever happens to it, leaves nothing behind, and every
 *         sink of it gets the same events with the same numbers.
 * Method: generations on a simulated model and its real engine thread; one case for each stage at
 *         which a client can disconnect and each way to fetch an answer again; then a seeded random
 *         walk over all of it that verifies every invariant after each operation. */
#include "server/generations.h"
#include "spec/spec.h"
#include "unit/server/generation_rig.h"

#include "base/rng.h"
#include "access/keys.h"
#include "server/generation_int.h"
#include "text/chat_prompt.h"
#include "unit/text/byte_tokenizer.h"

#define SMALL "{\"model\":\"tiny\",\"prompt\":\"a b c\",\"max_tokens\":20,\"stream\":true}"

static void test_all_sinks_number_the_same_events_without_gaps(void **state) {
    (void)state;
    struct rig g;
    struct received whole, rest;
    rig_open(&g, &(struct rig_options){.step_us = 100});
    received_init(&whole);
    received_init(&rest);
    struct generation *r = generation_make(&g, SMALL, 0);
    r->is_findable = true;
    generation_start(r, sink_make(r, &whole, 0));
    assert_true(rig_until(&g, rig_is_quiet));
    assert_int_equal(whole.ended, 1);
    assert_int_equal(whole.first, 1);
    assert_int_equal(whole.gaps, 0);
    assert_true(whole.pieces >= 20);

    assert_ptr_equal(generation_find(g.generations, NULL, STR("cmpl-000000000001")), r);
    generation_join_sink(r, sink_make(r, &rest, 5));
    assert_int_equal(rest.ended, 1);
    assert_int_equal(rest.first, 6);
    assert_int_equal(rest.gaps, 0);
    assert_int_equal(rest.last, whole.last);
    assert_true(str_ends(buf_str(&whole.text), buf_str(&rest.text)));
    received_deinit(&whole);
    received_deinit(&rest);
    rig_close(&g);
}

/* The client leaves while its prompt is in the pool, or once the engine has it. */
static void leave_early(bool is_prepared) {
    struct rig g;
    struct received h;
    rig_open(&g, &(struct rig_options){.step_us = 1000});
    received_init(&h);
    struct generation *r = generation_make(&g, SMALL, 0);
    struct sink *s = sink_make(r, &h, 0);
    generation_start(r, s);
    if (is_prepared) assert_true(rig_until(&g, rig_is_prepared));
    assert_int_equal(r->stage, is_prepared ? GENERATION_RUNNING : GENERATION_PREPARING);
    generations_verify(g.generations);
    generation_detach_sink(r, s);
    assert_int_equal(h.destroyed, 1);
    assert_true(rig_until(&g, rig_is_quiet));
    assert_int_equal(g.ended, 1);
    assert_int_equal(generations_stats(g.generations).kept, 0);
    received_deinit(&h);
    rig_close(&g);
}

static void test_a_client_may_disconnect_while_its_prompt_is_prepared(void **state) {
    (void)state;
    leave_early(false);
}

static void test_a_client_may_disconnect_while_it_is_queued(void **state) {
    (void)state;
    leave_early(true);
}

static struct received running;
static bool has_some(struct rig *g) {
    (void)g;
    return running.pieces >= 3;
}

static void test_a_client_may_disconnect_while_it_reads(void **state) {
    (void)state;
    struct rig g;
    rig_open(&g, &(struct rig_options){.step_us = 1000});
    received_init(&running);
    struct generation *r = generation_make(
        &g, "{\"model\":\"t\",\"prompt\":\"a\",\"max_tokens\":200,\"stream\":true}", 0);
    struct sink *s = sink_make(r, &running, 0);
    generation_start(r, s);
    assert_true(rig_until(&g, has_some));
    generation_detach_sink(r, s);
    assert_true(rig_until(&g, rig_is_quiet));
    assert_true(running.pieces < 150);
    assert_null(generation_find(g.generations, NULL, STR("000000000001")));
    received_deinit(&running);
    rig_close(&g);
}

static void test_a_generation_that_survives_continues_without_a_client(void **state) {
    (void)state;
    struct rig g;
    struct received h, later;
    rig_open(&g, &(struct rig_options){.step_us = 200});
    received_init(&h);
    received_init(&later);
    struct generation *r = generation_make(&g, SMALL, 0);
    struct sink *s = sink_make(r, &h, 0);
    r->survives = r->is_findable = true;
    generation_start(r, s);
    generation_detach_sink(r, s);
    assert_true(rig_until(&g, rig_is_quiet));
    assert_int_equal(r->answer.failure.status, 0);
    generation_join_sink(r, sink_make(r, &later, 0));
    assert_int_equal(later.ended, 1);
    assert_true(later.pieces >= 20);
    received_deinit(&h);
    received_deinit(&later);
    rig_close(&g);
}

static void test_a_slow_reader_delays_only_its_own_generation(void **state) {
    (void)state;
    struct rig g;
    struct received slow, quick;
    rig_open(&g, &(struct rig_options){.step_us = 100});
    received_init(&slow);
    received_init(&quick);
    slow.is_stuck = true;
    struct generation *r = generation_make(&g, SMALL, 0), *q = generation_make(&g, SMALL, 0);
    struct sink *s = sink_make(r, &slow, 0);
    generation_start(r, s);
    generation_start(q, sink_make(q, &quick, 0));
    assert_true(rig_until(&g, rig_is_quiet));
    assert_int_equal(quick.ended, 1);
    assert_int_equal(slow.pieces, 0);
    slow.is_stuck = false;
    generation_resume_sink(r, s);
    assert_int_equal(slow.ended, 1);
    assert_true(slow.pieces >= 20);
    received_deinit(&slow);
    received_deinit(&quick);
    rig_close(&g);
}

static void test_a_prompt_that_is_too_long_is_refused_with_both_numbers(void **state) {
    (void)state;
    struct rig g;
    struct received h;
    struct buf json;
    char want[64];
    rig_open(&g, &(struct rig_options){0});
    received_init(&h);
    buf_init(&json, 1 << 24);
    buf_put_text(&json, "{\"model\":\"t\",\"prompt\":[1");
    for (uint32_t i = 1; i < g.model.ctx_tokens; i++) buf_put_text(&json, ",1");
    buf_put_text(&json, "]}");
    struct generation *r = generation_make(&g, buf_text(&json), 0);
    generation_start(r, sink_make(r, &h, 0));
    assert_true(rig_until(&g, rig_is_prepared));
    assert_int_equal(h.refused, 1);
    assert_int_equal(h.begun, 0);
    assert_int_equal(h.error.status, 400);
    assert_string_equal(h.error.code, "context_length_exceeded");
    snprintf(want, sizeof(want), "the prompt has %u tokens", g.model.ctx_tokens);
    assert_non_null(strstr(h.error.message.text, want));
    received_deinit(&h);
    buf_deinit(&json);
    rig_close(&g);
}

static void test_a_text_that_cannot_fit_is_refused_before_it_is_tokenised(void **state) {
    (void)state;
    struct rig g;
    struct received h;
    rig_open(&g, &(struct rig_options){.step_us = 100});
    received_init(&h);
    g.model.piece_bytes_max = 1; /* "a b c" has at least five tokens */
    g.model.ctx_tokens = 5;
    struct generation *r = generation_make(&g, SMALL, 0);
    generation_start(r, sink_make(r, &h, 0));
    assert_true(rig_until(&g, rig_is_quiet));
    assert_int_equal(h.refused, 1);
    assert_int_equal(h.error.status, 400);
    assert_string_equal(h.error.code, "context_length_exceeded");
    assert_non_null(strstr(h.error.message.text, "at least 5 tokens"));
    received_deinit(&h);
    rig_close(&g);
}

/* The generation of a chat request, and what its template needs. */
struct chat {
    struct rig g;
    struct received received;
    struct tokenizer *tokenizer;
    struct generation *generation;
};

static void chat_start(struct chat *c, const char *template) {
    static const char body[] = "{\"model\":\"tiny\",\"max_tokens\":4,\"stream\":true,"
                               "\"chat_template_kwargs\":{\"x\":1},"
                               "\"messages\":[{\"role\":\"user\",\"content\":\"abc\"}]}";
    struct err err = {0};
    rig_open(&c->g, &(struct rig_options){.step_us = 100});
    received_init(&c->received);
    c->tokenizer = byte_tokenizer(str_of(template));
    assert_int_equal(chat_prompt_create(c->tokenizer, &c->g.model.chat, &err), ST_OK);
    c->generation =
        generation_make_by(&c->g, "openai.chat", body, 0, (struct generation_spec){.key = NULL});
    c->generation->is_findable = true; /* it stays after its end */
    assert_non_null(c->generation->request.messages);
    assert_non_null(c->generation->request.template_kwargs);
    generation_start(c->generation, sink_make(c->generation, &c->received, 0));
    assert_true(rig_until(&c->g, rig_is_quiet));
}

static void chat_end(struct chat *c) {
    received_deinit(&c->received);
    rig_close(&c->g);
    chat_prompt_destroy(c->g.model.chat);
    tokenizer_destroy(c->tokenizer);
}

/* The messages of a long chat take many times the bytes of its prompt. */
static void test_messages_are_freed_once_the_prompt_is_made(void **state) {
    (void)state;
    struct chat c;
    chat_start(&c, "{{ messages[0].content }}");
    assert_int_equal(c.received.ended, 1);
    assert_int_equal(c.received.error.status, 0);
    assert_ptr_equal(generation_find(c.g.generations, NULL, STR("chatcmpl-000000000001")),
                     c.generation);
    assert_null(c.generation->request.messages);
    assert_null(c.generation->request.template_kwargs);
    chat_end(&c);
}

static void test_a_full_queue_is_refused_with_a_time_to_try_again(void **state) {
    (void)state;
    static const char *const knobs[] = {"max_seqs=1", "queue_max=2", NULL};
    struct rig g;
    struct received h[8];
    uint32_t refused = 0;
    rig_open(&g, &(struct rig_options){.step_us = 3000, .knobs = knobs});
    for (uint32_t i = 0; i < 8; i++) {
        received_init(&h[i]);
        struct generation *r = generation_make(&g, SMALL, 0);
        generation_start(r, sink_make(r, &h[i], 0));
    }
    assert_true(rig_until(&g, rig_is_prepared));
    generations_verify(g.generations);
    for (uint32_t i = 0; i < 8; i++) {
        if (!h[i].refused) continue;
        refused++;
        assert_int_equal(h[i].error.status, 429);
        assert_true(h[i].error.retry_after_ms > 0);
    }
    assert_int_equal(refused, 5); /* one runs, two wait */
    assert_true(rig_until(&g, rig_is_quiet));
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(h[i].refused + h[i].ended, 1);
        received_deinit(&h[i]);
    }
    rig_close(&g);
}

/* The loop takes 1,024 choices, serves the sockets, and must come back for the rest by itself: the
 * engine has nothing more to say. */
static void test_more_output_than_one_turn_takes_is_delivered(void **state) {
    (void)state;
    enum { REQUESTS = 80 }; /* of 16 choices each */
    static const char *const knobs[] = {"max_seqs=2048", "queue_max=2048", "kv_blocks=4096", NULL};
    static struct received h[REQUESTS];
    struct rig g;
    bool did_work = true;
    rig_open_unstarted(&g, &(struct rig_options){.knobs = knobs});
    for (uint32_t i = 0; i < REQUESTS; i++) {
        received_init(&h[i]);
        struct generation *r =
            generation_make(&g, "{\"model\":\"t\",\"prompt\":[5,6],\"n\":16,\"max_tokens\":1}", 0);
        generation_start(r, sink_make(r, &h[i], 0));
    }
    assert_true(rig_until(&g, rig_is_prepared));
    while (did_work) assert_int_equal(engine_step(g.service.engine, &did_work), ST_OK);
    assert_true(rig_until(&g, rig_is_quiet));
    for (uint32_t i = 0; i < REQUESTS; i++) {
        assert_int_equal(h[i].ended, 1);
        assert_int_equal(h[i].error.status, 0);
        received_deinit(&h[i]);
    }
    rig_close(&g);
}

/* How much a generation with two choices and this text behind its fields takes while it waits. */
static uint64_t bytes_of(struct rig *g, const char *more) {
    char json[256];
    struct received h;
    bool did_work = true;
    const uint64_t before = generations_stats(g->generations).bytes;
    snprintf(json, sizeof(json), "{\"model\":\"t\",\"prompt\":[5,6],\"n\":2,\"max_tokens\":50%s}",
             more);
    received_init(&h);
    struct generation *r = generation_make(g, json, 0);
    generation_start(r, sink_make(r, &h, 0));
    assert_true(rig_until(g, rig_is_prepared));
    const uint64_t bytes = generations_stats(g->generations).bytes - before;
    while (did_work) assert_int_equal(engine_step(g->service.engine, &did_work), ST_OK);
    assert_true(rig_until(g, rig_is_quiet));
    assert_int_equal(h.ended, 1);
    received_deinit(&h);
    return bytes;
}

static void test_the_memory_of_drafters_is_counted(void **state) {
    (void)state;
    struct rig g;
    rig_open_unstarted(&g, &(struct rig_options){.step_us = 0});
    const uint64_t plain = bytes_of(&g, ",\"speculation\":{\"drafter\":\"off\"}");
    static const char *const names[] = {"ngram", "suffix"};
    for (uint32_t i = 0; i < 2; i++) {
        struct speculation wanted = {.is_chosen = true};
        char more[64];
        assert_true(speculate_option_find(str_of(names[i]), &wanted.choice));
        snprintf(more, sizeof(more), ",\"speculation\":{\"drafter\":\"%s\"}", names[i]);
        const size_t each = spec_seq_bytes_for(engine_spec(g.service.engine), &wanted, 2 + 50);
        assert_true(each > 500);
        assert_true(bytes_of(&g, more) >= plain + 2 * each);
    }
    rig_close(&g);
}

static void test_a_failure_ends_a_running_generation_with_an_error(void **state) {
    (void)state;
    struct rig g;
    struct api_error e = {0};
    rig_open(&g, &(struct rig_options){.step_us = 1000});
    received_init(&running);
    struct generation *r = generation_make(
        &g, "{\"model\":\"t\",\"prompt\":\"a\",\"max_tokens\":200,\"stream\":true}", 0);
    generation_start(r, sink_make(r, &running, 0));
    assert_true(rig_until(&g, has_some));
    api_refuse(&e, 503, NULL, "shutting_down", "the end");
    generations_fail(g.generations, &e);
    assert_int_equal(running.ended, 1);
    assert_int_equal(running.error.status, 503);
    assert_non_null(strstr(buf_text(&running.text), "the end"));
    received_deinit(&running);
    rig_close(&g);
}

static void test_queue_time_ends_when_a_sequence_enters_the_batch(void **state) {
    (void)state;
    struct rig g;
    struct received h[2];
    struct generation *generations[2];
    struct err err = {0};
    rig_open_unstarted(
        &g,
        &(struct rig_options){.step_us = 1000, .knobs = (const char *const[]){"max_seqs=1", NULL}});
    for (uint32_t i = 0; i < 2; i++) {
        received_init(&h[i]);
        generations[i] = generation_make(&g, SMALL, 0);
        generations[i]->is_findable = true;
        generation_start(generations[i], sink_make(generations[i], &h[i], 0));
        assert_true(rig_until(&g, rig_is_prepared)); /* so that the first is first in the queue */
    }
    assert_int_equal(engine_start(g.service.engine, &err), ST_OK);
    assert_true(rig_until(&g, rig_is_quiet));
    assert_true(generations[0]->started_us >= generations[0]->answer.arrived_us);
    assert_true(generations[0]->started_us <= generations[0]->answer.first_token_us);
    assert_true(generations[1]->started_us - generations[1]->answer.arrived_us >
                15000); /* 20 tokens */
    assert_true(generations[1]->started_us <= generations[1]->answer.first_token_us);
    /* Both were submitted before the first step; the second entered when the first had ended. Both
     * times are the engine's: when this thread sees a token depends on the machine. */
    assert_true(generations[1]->started_us >= generations[0]->started_us + 15000);
    for (uint32_t i = 0; i < 2; i++) received_deinit(&h[i]);
    rig_close(&g);
}

static void test_a_deadline_ends_a_generation(void **state) {
    (void)state;
    struct rig g;
    struct received h;
    rig_open(&g, &(struct rig_options){.step_us = 5000});
    received_init(&h);
    struct generation *r = generation_make(&g, SMALL, 0);
    r->timeout_us = 20000;
    generation_start(r, sink_make(r, &h, 0));
    assert_true(rig_until(&g, rig_is_quiet));
    assert_int_equal(h.ended, 1);
    assert_int_equal(h.error.status, 504);
    received_deinit(&h);
    rig_close(&g);
}

static void test_several_prompts_and_choices_have_their_own_indices(void **state) {
    (void)state;
    struct rig g;
    struct received h;
    rig_open(&g, &(struct rig_options){.step_us = 0});
    received_init(&h);
    struct generation *r = generation_make(
        &g, "{\"model\":\"t\",\"prompt\":[\"a\",\"b\",\"c\"],\"n\":2,\"max_tokens\":5}", 0);
    r->is_findable = true;
    generation_start(r, sink_make(r, &h, 0));
    assert_true(rig_until(&g, rig_is_quiet));
    assert_int_equal(r->answer.choice_count, 6);
    assert_int_equal(answer_completion_tokens(&r->answer), 30);
    for (uint32_t i = 0; i < 6; i++) assert_int_equal(r->answer.choices[i].prompt, i / 2);
    received_deinit(&h);
    rig_close(&g);
}

/* ---- numbers that are reported ---- */

static struct generation *run_body(struct rig *g, const char *body, struct received *h) {
    received_init(h);
    struct generation *r = generation_make(g, body, 0);
    r->is_findable = true; /* it stays after its end */
    generation_start(r, sink_make(r, h, 0));
    assert_true(rig_until(g, rig_is_quiet));
    return r;
}

/* The text of an answer, from its events. */
static void text_of(const struct generation *r, struct buf *out) {
    buf_init(out, 1 << 16);
    for (uint32_t i = 0; i < event_log_count(r->answer.log); i++) {
        struct api_event e = event_log_at(r->answer.log, i);
        if (e.kind == EVENT_TEXT) buf_put_str(out, e.text);
    }
}

/* Every token of this model's answers is a word. A stop string that ends with the k-th token leaves
 * exactly k tokens in the usage, however many the engine had computed by then. */
static void test_the_usage_of_a_stopped_answer_ends_with_its_last_token(void **state) {
    (void)state;
    struct rig g;
    struct received h;
    char body[512];
    rig_open(&g, &(struct rig_options){.step_us = 0});
    for (uint32_t tokens = 1; tokens <= 12; tokens++) {
        struct buf text;
        snprintf(body, sizeof(body),
                 "{\"model\":\"t\",\"prompt\":\"a\",\"max_tokens\":%u,\"seed\":3}", tokens);
        struct generation *whole = run_body(&g, body, &h);
        assert_int_equal(answer_completion_tokens(&whole->answer), tokens);
        text_of(whole, &text);
        received_deinit(&h);
        snprintf(body, sizeof(body),
                 "{\"model\":\"t\",\"prompt\":\"a\",\"max_tokens\":40,\"seed\":3,"
                 "\"stop\":[\"%s\"]}",
                 buf_text(&text));
        struct generation *cut = run_body(&g, body, &h);
        assert_int_equal(answer_completion_tokens(&cut->answer), tokens);
        assert_int_equal(cut->answer.choices[0].finish, FINISH_STOP);
        assert_int_equal(cut->answer.prompt_tokens, whole->answer.prompt_tokens);
        received_deinit(&h);
        buf_deinit(&text);
    }
    rig_close(&g);
}

/* Whether the choices run together, wait for each other or are preempted: the prompt was cached
 * once. */
static void test_cached_tokens_count_a_prompt_once_for_all_its_choices(void **state) {
    (void)state;
    static const char *const together[] = {"max_seqs=8", NULL};
    static const char *const one_by_one[] = {"max_seqs=1", NULL};
    static const char *const tight[] = {"max_seqs=8", "kv_blocks=8", "preempt=recompute", NULL};
    static const char *const *const knobs[] = {together, one_by_one, tight};
    enum { PROMPT = 33 };
    char body[1024], prompt[PROMPT * 2] = "5";
    for (int i = 1; i < PROMPT; i++) memcpy(prompt + 2 * i - 1, ",6", 2);
    for (int k = 0; k < 3; k++)
        for (uint32_t n = 1; n <= 4; n++) {
            struct rig g;
            struct received h;
            rig_open(&g, &(struct rig_options){.step_us = 0, .knobs = knobs[k]});
            for (uint32_t again = 0; again < 2; again++) {
                snprintf(body, sizeof(body),
                         "{\"model\":\"t\",\"prompt\":[%s],\"max_tokens\":20,\"n\":%u}", prompt,
                         again ? n : 1);
                struct generation *r = run_body(&g, body, &h);
                assert_int_equal(r->answer.cached_tokens, again ? PROMPT / 16 * 16 : 0);
                assert_int_equal(r->answer.prompt_tokens, PROMPT);
                assert_int_equal(answer_completion_tokens(&r->answer), 20 * (again ? n : 1));
                received_deinit(&h);
            }
            rig_close(&g);
        }
}

static void test_the_oldest_kept_generations_are_removed_first(void **state) {
    (void)state;
    struct rig g;
    struct received h[6];
    rig_open(&g, &(struct rig_options){.keep_bytes = 20000});
    for (uint32_t i = 0; i < 6; i++) {
        received_init(&h[i]);
        struct generation *r = generation_make(&g, SMALL, 1000);
        r->is_findable = true;
        generation_start(r, sink_make(r, &h[i], 0));
        assert_true(rig_until(&g, rig_is_quiet));
        received_deinit(&h[i]);
    }
    struct generations_stats stats = generations_stats(g.generations);
    assert_true(stats.kept >= 1 && stats.kept < 6);
    assert_true(stats.kept_bytes <= 20000);
    assert_null(generation_find(g.generations, NULL, STR("000000000001")));
    assert_non_null(generation_find(g.generations, NULL, STR("000000000006")));
    rig_close(&g);
}

static void test_a_generation_too_large_to_be_kept_removes_no_other(void **state) {
    (void)state;
    struct rig g;
    struct received h[2];
    const uint64_t held_bytes[2] = {1000, 50000};
    rig_open(&g, &(struct rig_options){.keep_bytes = 20000});
    for (uint32_t i = 0; i < 2; i++) {
        received_init(&h[i]);
        struct generation *r = generation_make(&g, SMALL, held_bytes[i]);
        r->is_findable = true;
        generation_start(r, sink_make(r, &h[i], 0));
        assert_true(rig_until(&g, rig_is_quiet));
        received_deinit(&h[i]);
    }
    assert_non_null(generation_find(g.generations, NULL, STR("000000000001")));
    assert_null(generation_find(g.generations, NULL, STR("000000000002")));
    rig_close(&g);
}

/* ---- tenants ---- */

static const struct key tenants[3] = {
    {.name = "a", .tenant = 1}, {.name = "b", .tenant = 2}, {.name = "c", .tenant = 3}};

/* An answer of a tenant that holds so many bytes, and is kept if there is room. */
static void keep_answer(struct rig *g, const struct key *key, uint64_t held_bytes) {
    struct received h;
    received_init(&h);
    struct generation *r = generation_make_by(g, "openai.completions", SMALL, held_bytes,
                                              (struct generation_spec){.key = key});
    r->is_findable = true;
    generation_start(r, sink_make(r, &h, 0));
    assert_true(rig_until(g, rig_is_quiet));
    generations_verify(g->generations);
    received_deinit(&h);
}

static void test_a_tenant_never_removes_the_kept_answers_of_another(void **state) {
    (void)state;
    struct rig g;
    rig_open(&g, &(struct rig_options){.keep_bytes = 400000, .has_tenants = true});
    keep_answer(&g, &tenants[0], 50000);                                   /* 1 */
    for (uint32_t i = 0; i < 20; i++) keep_answer(&g, &tenants[1], 30000); /* 2 to 0x15 */
    assert_non_null(generation_find(g.generations, &tenants[0], STR("000000000001")));
    assert_null(generation_find(g.generations, &tenants[1], STR("000000000002")));
    assert_non_null(generation_find(g.generations, &tenants[1], STR("000000000015")));
    struct generations_stats stats = generations_stats(g.generations);
    assert_true(stats.kept >= 3 && stats.kept < 6); /* a third of 400,000 bytes, and one more */
    keep_answer(&g, &tenants[2], 250000);           /* more than its share */
    assert_null(generation_find(g.generations, &tenants[2], STR("000000000016")));
    assert_int_equal(generations_stats(g.generations).kept, stats.kept);
    rig_close(&g);
}

static void test_a_tenant_at_its_share_of_memory_is_refused_and_others_are_not(void **state) {
    (void)state;
    struct rig g;
    struct api_request q;
    struct api_error e = {0};
    struct generation *r;
    rig_open(&g, &(struct rig_options){.answers_bytes = 300000, .has_tenants = true});
    keep_answer(&g, &tenants[0], 50000); /* makes room for the next one of its tenant */
    struct generation *first = generation_make_by(&g, "openai.completions", SMALL, 120000,
                                                  (struct generation_spec){.key = &tenants[0]});
    assert_null(generation_find(g.generations, &tenants[0], STR("000000000001")));
    api_request_init(&q, codec_find("openai.completions"));
    q.held_bytes = 60000;
    struct generation_spec ask = {
        .model = &g.model, .key = &tenants[0], .id = STR("x"), .request = &q};
    assert_int_equal(generation_create(g.generations, &ask, &r, &e), ST_FULL);
    assert_int_equal(e.status, 429);
    assert_true(e.retry_after_ms > 0);
    api_request_init(&q, codec_find("openai.completions"));
    struct generation *second = generation_make_by(&g, "openai.completions", SMALL, 90000,
                                                   (struct generation_spec){.key = &tenants[2]});
    q.held_bytes = 72000;
    ask.key = &tenants[1];
    assert_int_equal(generation_create(g.generations, &ask, &r, &e), ST_UNAVAILABLE);
    assert_int_equal(e.status, 503);
    struct generation *other = generation_make_by(&g, "openai.completions", SMALL, 50000,
                                                  (struct generation_spec){.key = &tenants[1]});
    assert_int_equal(generations_stats(g.generations).refused, 2);
    generation_start(first, NULL); /* cancelled at once */
    generation_start(second, NULL);
    generation_start(other, NULL);
    assert_true(rig_until(&g, rig_is_quiet));
    assert_int_equal(generations_stats(g.generations).bytes, 0);
    rig_close(&g);
}

/* Nothing is dropped for a request that does not fit even if its tenant is alone. */
static void test_a_request_larger_than_its_share_is_refused_for_good(void **state) {
    (void)state;
    struct rig g;
    struct received h;
    struct api_request q;
    struct api_error e = {0};
    struct generation *r;
    rig_open(&g, &(struct rig_options){.answers_bytes = 300000, .has_tenants = true});
    keep_answer(&g, &tenants[0], 50000);
    api_request_init(&q, codec_find("openai.completions"));
    q.held_bytes = 150001;
    struct generation_spec ask = {
        .model = &g.model, .key = &tenants[0], .id = STR("x"), .request = &q};
    assert_int_equal(generation_create(g.generations, &ask, &r, &e), ST_BAD);
    assert_int_equal(e.status, 413);
    assert_string_equal(e.code, "memory_share_exceeded");
    assert_non_null(strstr(e.message.text, " 150000"));
    assert_int_equal(e.retry_after_ms, 0);
    received_init(&h); /* the first of the prompts would fit, all together do not */
    r = generation_make_by(&g, "openai.completions",
                           "{\"model\":\"t\",\"prompt\":[\"a\",\"b\",\"c\"],\"n\":4,"
                           "\"max_tokens\":100,\"logprobs\":1}",
                           0, (struct generation_spec){.key = &tenants[0]});
    generation_start(r, sink_make(r, &h, 0));
    assert_true(rig_until(&g, rig_is_quiet));
    assert_int_equal(h.error.status, 413);
    assert_int_equal(h.pieces, 0);
    assert_non_null(generation_find(g.generations, &tenants[0], STR("000000000001")));
    received_deinit(&h);
    rig_close(&g);
}

/* A reader that takes nothing leaves all events in the log. */
static void test_a_log_that_grows_over_the_memory_fails_its_generation(void **state) {
    (void)state;
    struct rig g;
    struct received h;
    rig_open(&g, &(struct rig_options){.answers_bytes = 20000});
    received_init(&h);
    struct generation *r = generation_make(
        &g, "{\"model\":\"t\",\"prompt\":\"a\",\"max_tokens\":1000,\"stream\":true}", 0);
    generation_start(r, sink_make(r, &h, 0));
    assert_true(rig_until(&g, rig_is_quiet));
    assert_int_equal(h.error.status, 413);
    assert_string_equal(h.error.code, "memory_share_exceeded");
    assert_non_null(strstr(h.error.message.text, " 20000"));
    assert_int_equal(generations_stats(g.generations).bytes, 0);
    received_deinit(&h);
    rig_close(&g);
}

/* Looked at whenever a step may have added to it. */
static void test_what_is_charged_grows_with_the_log(void **state) {
    (void)state;
    enum { LOG_BYTES = 50000, PASSES = 1000000 };
    struct rig g;
    struct received h;
    rig_open(&g, &(struct rig_options){.step_us = 100});
    received_init(&h);
    struct generation *r = generation_make(&g,
                                           "{\"model\":\"t\",\"prompt\":\"a\",\"max_tokens\":900,"
                                           "\"n\":16,\"stream\":true,\"ignore_eos\":true}",
                                           0);
    r->is_findable = true; /* it is kept at its end, so it can be looked at then */
    generation_start(r, sink_make(r, &h, 0));
    for (uint32_t i = 0; i < PASSES && !r->has_ended; i++) {
        uv_run(&g.loop, UV_RUN_NOWAIT);
        assert_true(r->charged_bytes >= r->engine_bytes + event_log_bytes(r->answer.log));
    }
    assert_true(rig_until(&g, rig_is_quiet));
    assert_true(event_log_bytes(r->answer.log) > LOG_BYTES);
    received_deinit(&h);
    rig_close(&g);
}

static void test_a_request_id_of_another_key_hides_nothing(void **state) {
    (void)state;
    struct rig g;
    struct received h[2];
    const struct key keys[2] = {{.name = "a"}, {.name = "b"}};
    struct generation *generations[2];
    rig_open(&g, &(struct rig_options){.step_us = 1000});
    for (uint32_t i = 0; i < 2; i++) {
        received_init(&h[i]);
        generations[i] = generation_make_by(
            &g, "openai.completions", SMALL, 0,
            (struct generation_spec){.key = &keys[i], .request_id = STR("same")});
        generation_start(generations[i], sink_make(generations[i], &h[i], 0));
    }
    assert_ptr_equal(generation_find(g.generations, &keys[0], STR("same")), generations[0]);
    assert_ptr_equal(generation_find(g.generations, &keys[1], STR("same")), generations[1]);
    assert_null(generation_find(g.generations, &keys[1], STR("000000000001")));
    assert_true(rig_until(&g, rig_is_quiet));
    for (uint32_t i = 0; i < 2; i++) received_deinit(&h[i]);
    rig_close(&g);
}

static bool nothing_is_kept(struct rig *g) { return generations_stats(g->generations).kept == 0; }

static void test_kept_generations_are_freed_when_their_time_is_over(void **state) {
    (void)state;
    struct rig g;
    struct received h;
    rig_open(&g, &(struct rig_options){.keep_ms = 30});
    received_init(&h);
    struct generation *r = generation_make(&g, SMALL, 0);
    r->is_findable = true;
    generation_start(r, sink_make(r, &h, 0));
    assert_true(rig_until(&g, rig_is_quiet));
    assert_int_equal(generations_stats(g.generations).kept, 1);
    assert_true(rig_until(&g, nothing_is_kept));
    assert_null(generation_find(g.generations, NULL, STR("000000000001")));
    received_deinit(&h);
    rig_close(&g);
}

/* When the time of one is over, the timer waits for the next. */
static void test_each_kept_generation_has_its_own_time(void **state) {
    (void)state;
    enum { KEPT = 3 };
    struct rig g;
    rig_open(&g, &(struct rig_options){.keep_ms = 60000});
    for (uint32_t i = 0; i < KEPT; i++) keep_answer(&g, NULL, 0);
    uv_timer_t *timer = &g.generations->keep_timer;
    for (uint32_t left = KEPT; left > 0; left--) {
        assert_int_equal(generations_stats(g.generations).kept, left);
        assert_true(uv_is_active((uv_handle_t *)timer));
        LIST_ITEM(g.generations->kept.first, struct generation, in_kept)->kept_until_us = 1;
        uv_timer_stop(timer); /* as the loop does with a timer that is due */
        generations_on_keep(timer);
        generations_verify(g.generations);
    }
    assert_false(uv_is_active((uv_handle_t *)timer));
    rig_close(&g);
}

static void test_less_memory_for_kept_generations_removes_the_oldest_at_once(void **state) {
    (void)state;
    struct rig g;
    rig_open(&g, &(struct rig_options){.keep_bytes = 1 << 20});
    for (uint32_t i = 0; i < 6; i++) keep_answer(&g, NULL, 10000);
    assert_int_equal(generations_stats(g.generations).kept, 6);
    const uint64_t half = generations_stats(g.generations).kept_bytes / 2;
    generations_set_keep(g.generations, 60000, half);
    generations_verify(g.generations);
    assert_int_equal(generations_stats(g.generations).kept, 3);
    assert_true(generations_stats(g.generations).kept_bytes <= half);
    assert_null(generation_find(g.generations, NULL, STR("000000000003")));
    assert_non_null(generation_find(g.generations, NULL, STR("000000000004")));
    rig_close(&g);
}

/* The text of all choices' pieces, however they were cut. */
static void joined(const struct generation *r, struct buf *out) {
    for (uint32_t i = 0; i < event_log_count(r->answer.log); i++)
        buf_put_str(out, event_log_at(r->answer.log, i).text);
}

static void test_smoothing_changes_the_times_and_not_the_text(void **state) {
    (void)state;
    struct rig g;
    struct received h[2];
    struct buf text[2];
    rig_open(&g, &(struct rig_options){.step_us = 0});
    for (int i = 0; i < 2; i++) {
        received_init(&h[i]);
        buf_init(&text[i], 1 << 20);
        struct generation *r = generation_make(
            &g,
            i ? "{\"model\":\"t\",\"prompt\":\"a\",\"seed\":7,\"max_tokens\":30,\"stream\":true,"
                "\"smooth_ms\":100}"
              : "{\"model\":\"t\",\"prompt\":\"a\",\"seed\":7,\"max_tokens\":30,\"stream\":true}",
            0);
        if (i) assert_int_equal(r->request.smooth_ms, 100);
        r->is_findable = true;
        int64_t began_us = clock_now(&clock_real);
        generation_start(r, sink_make(r, &h[i], 0));
        assert_true(rig_until(&g, rig_is_quiet));
        int64_t took_us = clock_now(&clock_real) - began_us;
        if (i) assert_true(took_us > 80000);
        joined(r, &text[i]);
        assert_int_equal(h[i].gaps, 0);
        assert_int_equal(h[i].ended, 1);
    }
    assert_true(str_eq(buf_str(&text[0]), buf_str(&text[1])));
    for (int i = 0; i < 2; i++) {
        received_deinit(&h[i]);
        buf_deinit(&text[i]);
    }
    rig_close(&g);
}

/* ---- a random walk ---- */

enum { WALKERS = 24, STEPS = 1500 };

struct walker {
    struct generation *generation; /* NULL: none, or it may be gone */
    struct sink *sink;
    struct received received;
    char id[ANSWER_ID_BYTES];
};

static struct walker walkers[WALKERS];

static void walk_begin(struct rig *g, struct walker *w, struct rng *rng) {
    char json[256];
    snprintf(json, sizeof(json),
             "{\"model\":\"t\",\"prompt\":\"a b\",\"n\":%u,\"max_tokens\":%u,\"stream\":true%s}",
             (unsigned)(1 + rng_below(rng, 3)), (unsigned)(1 + rng_below(rng, 40)),
             rng_below(rng, 4) ? "" : ",\"smooth_ms\":20");
    struct generation *r = generation_make(g, json, rng_below(rng, 3) ? 0 : 1 << 20);
    received_deinit(&w->received);
    received_init(&w->received);
    snprintf(w->id, sizeof(w->id), "%s", r->answer.id);
    r->survives = rng_below(rng, 3) == 0;
    r->is_findable = r->survives || rng_below(rng, 2);
    if (rng_below(rng, 5) == 0) r->timeout_us = 1 + (int64_t)rng_below(rng, 20000);
    generation_start(r, sink_make(r, &w->received, 0));
}

/* Find it again by its id: that is the only safe way to a generation that may be gone. */
static struct generation *walk_find(struct rig *g, const struct walker *w) {
    return w->id[0] ? generation_find(g->generations, NULL, str_of(w->id)) : NULL;
}

static void walk_leave(struct rig *g, struct walker *w) {
    struct generation *r = walk_find(g, w);
    if (r && r->sinks.first)
        generation_detach_sink(r, LIST_ITEM(r->sinks.first, struct sink, in_generation));
}

static void walk_join(struct rig *g, struct walker *w, struct rng *rng) {
    struct generation *r = walk_find(g, w);
    struct received view;
    if (!r) return;
    received_init(&view);
    struct sink *s = sink_make(r, &view, (uint32_t)rng_below(rng, 30));
    generation_join_sink(r, s);
    if (!view.destroyed) generation_detach_sink(walk_find(g, w), s);
    assert_int_equal(view.gaps, 0);
    received_deinit(&view);
}

static void walk_fail(struct rig *g, struct walker *w) {
    struct generation *r = walk_find(g, w);
    struct api_error e = {0};
    api_refuse(&e, 499, NULL, "request_cancelled", "cancelled");
    if (r) generation_fail(r, &e);
}

static void walk_forget(struct rig *g, struct walker *w) {
    struct generation *r = walk_find(g, w);
    if (r && r->has_ended) generation_forget(r);
}

static void walk(uint64_t seed) {
    struct rig g;
    struct rng rng = {.seed = seed};
    rig_open(&g, &(struct rig_options){.step_us = 50, .keep_ms = 20, .keep_bytes = 1 << 16});
    for (uint32_t i = 0; i < WALKERS; i++) {
        walkers[i] = (struct walker){.generation = NULL};
        received_init(&walkers[i].received);
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        struct walker *w = &walkers[rng_below(&rng, WALKERS)];
        switch (rng_below(&rng, 8)) {
        case 0:
        case 1:
            if (!walk_find(&g, w) || walk_find(&g, w)->has_ended) {
                walk_forget(&g, w);
                if (!walk_find(&g, w)) walk_begin(&g, w, &rng);
            }
            break;
        case 2:
            walk_leave(&g, w);
            break;
        case 3:
            walk_join(&g, w, &rng);
            break;
        case 4:
            if (rng_below(&rng, 4) == 0) walk_fail(&g, w);
            break;
        case 5:
            walk_forget(&g, w);
            break;
        default:
            rig_pass(&g, (int64_t)rng_below(&rng, 300));
            break;
        }
        generations_verify(g.generations);
    }
    assert_true(rig_until(&g, rig_is_quiet));
    for (uint32_t i = 0; i < WALKERS; i++) {
        assert_int_equal(walkers[i].received.gaps, 0);
        received_deinit(&walkers[i].received);
    }
    rig_close(&g);
}

static void test_a_random_walk_leaves_nothing_behind(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        walk(seed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_sinks_number_the_same_events_without_gaps),
        cmocka_unit_test(test_a_client_may_disconnect_while_its_prompt_is_prepared),
        cmocka_unit_test(test_a_client_may_disconnect_while_it_is_queued),
        cmocka_unit_test(test_a_client_may_disconnect_while_it_reads),
        cmocka_unit_test(test_a_generation_that_survives_continues_without_a_client),
        cmocka_unit_test(test_a_slow_reader_delays_only_its_own_generation),
        cmocka_unit_test(test_a_prompt_that_is_too_long_is_refused_with_both_numbers),
        cmocka_unit_test(test_a_text_that_cannot_fit_is_refused_before_it_is_tokenised),
        cmocka_unit_test(test_messages_are_freed_once_the_prompt_is_made),
        cmocka_unit_test(test_a_full_queue_is_refused_with_a_time_to_try_again),
        cmocka_unit_test(test_more_output_than_one_turn_takes_is_delivered),
        cmocka_unit_test(test_the_memory_of_drafters_is_counted),
        cmocka_unit_test(test_a_failure_ends_a_running_generation_with_an_error),
        cmocka_unit_test(test_queue_time_ends_when_a_sequence_enters_the_batch),
        cmocka_unit_test(test_a_deadline_ends_a_generation),
        cmocka_unit_test(test_several_prompts_and_choices_have_their_own_indices),
        cmocka_unit_test(test_the_usage_of_a_stopped_answer_ends_with_its_last_token),
        cmocka_unit_test(test_cached_tokens_count_a_prompt_once_for_all_its_choices),
        cmocka_unit_test(test_the_oldest_kept_generations_are_removed_first),
        cmocka_unit_test(test_a_generation_too_large_to_be_kept_removes_no_other),
        cmocka_unit_test(test_a_tenant_never_removes_the_kept_answers_of_another),
        cmocka_unit_test(test_a_tenant_at_its_share_of_memory_is_refused_and_others_are_not),
        cmocka_unit_test(test_a_request_larger_than_its_share_is_refused_for_good),
        cmocka_unit_test(test_a_log_that_grows_over_the_memory_fails_its_generation),
        cmocka_unit_test(test_what_is_charged_grows_with_the_log),
        cmocka_unit_test(test_a_request_id_of_another_key_hides_nothing),
        cmocka_unit_test(test_kept_generations_are_freed_when_their_time_is_over),
        cmocka_unit_test(test_each_kept_generation_has_its_own_time),
        cmocka_unit_test(test_less_memory_for_kept_generations_removes_the_oldest_at_once),
        cmocka_unit_test(test_smoothing_changes_the_times_and_not_the_text),
        cmocka_unit_test(test_a_random_walk_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
