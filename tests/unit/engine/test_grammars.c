/* Goal:   an answer with a grammar is a text of the grammar, alone, beside others, as one of
 *         several choices, with the next step submitted ahead and with a small context; sources are
 *         refused with a sentence; a grammar that fails ends its own request only, and one whose
 *         work takes long delays its own request only.
 * Method: a golden model with a tokenizer on the devices cpu and delayed (depth 1), stepped by
 *         hand; every answer is matched again with a fresh matcher of its grammar. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "engine/grammars.h"
#include "engine/service.h"
#include "text/tokenizer.h"

enum { REQUESTS = 8, CHOICES = 3, ANSWER = 40, TURNS_MAX = 20000, TEXT_MAX = 4096 };

struct rig {
    struct service s;
    struct request *requests[REQUESTS];
    uint32_t count;
};

static void rig_open_with(struct rig *r, const char *device, uint32_t kv_blocks) {
    struct err err = {{0}};
    struct service_options o = {.knobs = knobs_default(), .device = device, .ctx_tokens = 128};
    o.knobs.max_seqs = REQUESTS;
    if (kv_blocks > 0) o.knobs.kv_blocks = kv_blocks;
    o.knobs.threads = 1;
    *r = (struct rig){.count = 0};
    if (service_open(&r->s, TEST_SOURCE_DIR "/golden/models/llama", &o, &err) != ST_OK)
        fail_msg("%s", err.text);
    assert_non_null(r->s.grammars);
}

static void rig_open(struct rig *r, const char *device) { rig_open_with(r, device, 0); }

static void rig_close(struct rig *r) {
    for (struct choice *c; (c = engine_next(r->s.engine, 0));) request_unref(c->request);
    for (uint32_t i = 0; i < r->count; i++) request_unref(r->requests[i]);
    service_close(&r->s);
}

static struct answer_grammar *compile(struct rig *r, enum grammar_kind kind, const char *text) {
    const struct grammar_source source = {.kind = kind, .text = str_of(text)};
    struct grammar_refusal why;
    struct answer_grammar *g = NULL;
    if (grammars_compile(r->s.grammars, &source, &g, &why) != ST_OK) fail_msg("%s", why.err.text);
    return g;
}

static struct request_spec spec_of(uint32_t seed) {
    static const int32_t prompt[] = {5, 6, 7, 8, 9};
    struct request_spec spec = {.prompt = prompt,
                                .prompt_tokens = 5,
                                .max_tokens = ANSWER,
                                .n = 1,
                                .sample = sample_params_default()};
    spec.sample.temperature = 1.0f;
    spec.sample.seed = seed;
    return spec;
}

static struct request *submit(struct rig *r, const struct request_spec *spec) {
    struct err err = {{0}};
    if (engine_submit(r->s.engine, spec, &r->requests[r->count], &err) != ST_OK)
        fail_msg("%s", err.text);
    return r->requests[r->count++];
}

/* With a grammar of its own, which the request alone holds afterwards. */
static struct request *submit_with(struct rig *r, enum grammar_kind kind, const char *text,
                                   struct request_spec spec) {
    spec.grammar = compile(r, kind, text);
    struct request *q = submit(r, &spec);
    answer_grammar_unref(spec.grammar);
    return q;
}

static bool all_ended(const struct rig *r) {
    for (uint32_t i = 0; i < r->count; i++)
        for (uint32_t c = 0; c < r->requests[i]->n; c++)
            if (atomic_load(&r->requests[i]->choices[c].finish) == FINISH_NONE) return false;
    return true;
}

static void run(struct rig *r) {
    bool did_work;
    for (uint32_t turn = 0; turn < TURNS_MAX && !all_ended(r); turn++) {
        assert_int_equal(engine_step(r->s.engine, &did_work), ST_OK);
        engine_verify(r->s.engine);
    }
    assert_true(all_ended(r));
}

static enum finish_reason finish_of(const struct request *q, uint32_t choice) {
    return (enum finish_reason)atomic_load(&q->choices[choice].finish);
}

/* The bytes of a choice, without an end token. */
static void text_of(const struct rig *r, const struct choice *c, char out[TEXT_MAX]) {
    struct buf text;
    buf_init(&text, TEXT_MAX - 1);
    for (uint32_t i = c->prompt_tokens; i < c->ready; i++)
        if (!tokenizer_is_end(r->s.loaded.tokenizer, c->tokens[i]))
            tokenizer_token_bytes(r->s.loaded.tokenizer, c->tokens[i], &text);
    assert_int_equal(buf_status(&text), ST_OK);
    if (text.len > 0) memcpy(out, text.ptr, text.len);
    out[text.len] = 0;
    buf_deinit(&text);
}

/* `whole`: all of it is a text of the grammar; else its beginning. */
static void assert_fits(const char *text, enum grammar_kind kind, const char *source, bool whole) {
    const struct grammar_options options = {.kind = kind};
    struct grammar *g;
    struct grammar_refusal why;
    assert_int_equal(grammar_compile(str_of(source), &options, &g, &why), ST_OK);
    struct matcher m = matcher_init(g);
    if (!matcher_accept(&m, str_of(text), NULL)) fail_msg("%s is not of %s", text, source);
    if (whole && !matcher_is_complete(&m)) fail_msg("%s ends too early for %s", text, source);
    grammar_destroy(g);
}

#define SCHEMA                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":3},\"b\":"      \
    "{\"enum\":[1,22,\"x\"]}},\"required\":[\"a\",\"b\"],\"additionalProperties\":false}"

static const struct {
    enum grammar_kind kind;
    const char *source;
} sources[] = {
    {GRAMMAR_SCHEMA, SCHEMA},
    {GRAMMAR_REGEX, "[a-f]{2,9}x"},
    {GRAMMAR_CHOICE, "[\"yes\",\"no\",\"yes and no\"]"},
    {GRAMMAR_GBNF, "root ::= \"(\" root \")\" | [0-9]+"},
    {GRAMMAR_JSON, ""},
};
enum { SOURCES = sizeof(sources) / sizeof(sources[0]) };

static void check_answer(const struct rig *r, const struct request *q, uint32_t choice, size_t k) {
    char text[TEXT_MAX];
    enum finish_reason finish = finish_of(q, choice);
    text_of(r, &q->choices[choice], text);
    assert_true(finish == FINISH_STOP || finish == FINISH_LENGTH);
    assert_fits(text, sources[k].kind, sources[k].source, finish == FINISH_STOP);
}

static void check_on(const char *device, char texts[SOURCES][TEXT_MAX]) {
    struct rig r;
    rig_open(&r, device);
    struct request_spec plain = spec_of(99), many = spec_of(7);
    submit(&r, &plain); /* a neighbour without a grammar */
    for (size_t k = 0; k < SOURCES; k++) {
        struct request_spec spec = spec_of((uint32_t)k);
        submit_with(&r, sources[k].kind, sources[k].source, spec);
    }
    many.n = CHOICES;
    struct request *q = submit_with(&r, sources[1].kind, sources[1].source, many);
    run(&r);
    for (uint32_t k = 0; k < SOURCES; k++) {
        check_answer(&r, r.requests[1 + k], 0, k);
        text_of(&r, &r.requests[1 + k]->choices[0], texts[k]);
    }
    for (uint32_t c = 0; c < CHOICES; c++) check_answer(&r, q, c, 1);
    rig_close(&r);
}

static void test_answers_are_texts_of_their_grammars_at_depth_0_and_1(void **state) {
    (void)state;
    static char cpu[SOURCES][TEXT_MAX], late[SOURCES][TEXT_MAX];
    check_on("cpu", cpu);
    check_on("delayed:depth=1,jitter=50", late);
    for (size_t k = 0; k < SOURCES; k++) assert_string_equal(cpu[k], late[k]);
}

static void test_a_grammar_that_is_shared_gives_the_same_answers(void **state) {
    (void)state;
    char first[TEXT_MAX], text[TEXT_MAX];
    struct rig r;
    rig_open(&r, "cpu");
    struct request_spec spec = spec_of(3);
    spec.grammar = compile(&r, GRAMMAR_SCHEMA, SCHEMA);
    for (int i = 0; i < 3; i++) submit(&r, &spec);
    answer_grammar_unref(spec.grammar);
    run(&r);
    text_of(&r, &r.requests[0]->choices[0], first);
    for (uint32_t i = 1; i < 3; i++) {
        text_of(&r, &r.requests[i]->choices[0], text);
        assert_string_equal(text, first);
    }
    rig_close(&r);
}

static void test_a_text_that_nothing_follows_ends_the_answer(void **state) {
    (void)state;
    char text[TEXT_MAX];
    struct rig r;
    rig_open(&r, "cpu");
    struct request_spec spec = spec_of(1);
    spec.ignore_end = true;
    spec.min_tokens = 30;
    struct request *q = submit_with(&r, GRAMMAR_CHOICE, "[\"no\"]", spec);
    run(&r);
    assert_int_equal(finish_of(q, 0), FINISH_STOP);
    assert_int_equal(q->choices[0].ended_by, -1);
    text_of(&r, &q->choices[0], text);
    assert_string_equal(text, "no");
    rig_close(&r);
}

static void test_an_answer_that_is_cut_says_length(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "cpu");
    struct request_spec spec = spec_of(1);
    spec.max_tokens = 3;
    struct request *q = submit_with(&r, GRAMMAR_REGEX, "[a-z]{500}", spec);
    run(&r);
    assert_int_equal(finish_of(q, 0), FINISH_LENGTH);
    rig_close(&r);
}

static void test_a_bias_that_forbids_every_way_on_is_explained(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "cpu");
    struct logit_bias bias[LOGIT_BIAS_MAX];
    struct request_spec spec = spec_of(1), plain = spec_of(2);
    spec.sample.bias = bias;
    spec.sample.bias_count = r.s.loaded.model->hp.vocab;
    for (uint32_t i = 0; i < spec.sample.bias_count; i++)
        bias[i] = (struct logit_bias){(int32_t)i, -HUGE_VALF};
    struct request *q = submit_with(&r, GRAMMAR_CHOICE, "[\"no\"]", spec);
    struct request *other = submit(&r, &plain);
    run(&r);
    assert_int_equal(finish_of(q, 0), FINISH_ERROR);
    assert_non_null(strstr(q->refusal.text, "grammar"));
    assert_int_equal(q->grammar_failure, ST_BAD);
    assert_int_not_equal(finish_of(other, 0), FINISH_ERROR);
    rig_close(&r);
}

/* --- work that takes long ----------------------------------------------------------------- */

/* A thread that has a grammar to itself, as if it made a mask that takes long. */
struct holder {
    struct grammar *grammar;
    pthread_t thread;
    pthread_barrier_t has, ends;
};

static void *hold(void *arg) {
    struct holder *h = arg;
    grammar_hold(h->grammar, false);
    pthread_barrier_wait(&h->has);
    pthread_barrier_wait(&h->ends);
    grammar_let_go(h->grammar);
    return NULL;
}

static void hold_begin(struct holder *h, const struct answer_grammar *g) {
    struct sample_params params = sample_params_default();
    answer_grammar_apply(g, false, &params);
    h->grammar = params.grammar;
    pthread_barrier_init(&h->has, NULL, 2);
    pthread_barrier_init(&h->ends, NULL, 2);
    assert_int_equal(pthread_create(&h->thread, NULL, hold, h), 0);
    pthread_barrier_wait(&h->has);
}

static void hold_end(struct holder *h) {
    pthread_barrier_wait(&h->ends);
    pthread_join(h->thread, NULL);
    pthread_barrier_destroy(&h->has);
    pthread_barrier_destroy(&h->ends);
}

static void step_until(struct rig *r, const struct choice *c, uint32_t answered) {
    bool did_work;
    for (uint32_t turn = 0; turn < TURNS_MAX && c->ready < c->prompt_tokens + answered; turn++) {
        assert_int_equal(engine_step(r->s.engine, &did_work), ST_OK);
        engine_verify(r->s.engine);
    }
    assert_true(c->ready >= c->prompt_tokens + answered);
}

/* The others go on; the late one has the tokens that it has without a delay. `after`: so many
 * tokens of it come before. */
static void check_late(const char *device, uint32_t after, bool forces_text) {
    enum { LATE_CHOICES = 2 };
    static const char source[] = "(left|right) [0-9]{3} and then [a-z]{20,60}";
    struct rig r;
    struct holder h;
    rig_open(&r, device);
    struct request_spec spec = spec_of(7), plain = spec_of(8);
    spec.forces_text = forces_text;
    spec.n = LATE_CHOICES;
    struct request *alone = submit_with(&r, GRAMMAR_REGEX, source, spec);
    run(&r);
    struct answer_grammar *g = compile(&r, GRAMMAR_REGEX, source);
    spec.grammar = g;
    const struct request *late = submit(&r, &spec);
    step_until(&r, &late->choices[0], after);
    hold_begin(&h, g);
    uint32_t before = late->choices[0].ready;
    const struct choice *other = &submit(&r, &plain)->choices[0];
    step_until(&r, other, ANSWER);
    assert_true(late->choices[0].ready <= before + 1);
    hold_end(&h);
    run(&r);
    for (uint32_t i = 0; i < LATE_CHOICES; i++) {
        const struct choice *a = &alone->choices[i], *b = &late->choices[i];
        assert_int_equal(finish_of(alone, i), finish_of(late, i));
        assert_int_equal(a->ready, b->ready);
        assert_memory_equal(a->tokens, b->tokens, b->ready * sizeof(b->tokens[0]));
    }
    answer_grammar_unref(g);
    rig_close(&r);
}

static void test_a_late_mask_delays_its_own_request(void **state) {
    (void)state;
    for (int forces = 0; forces < 2; forces++)
        for (uint32_t after = 0; after < 6; after += 5) {
            check_late("cpu", after, forces);
            check_late("delayed", after, forces);
        }
}

/* The work of one tenant's grammars leaves a thread for the work of another's. */
static void test_late_work_of_a_tenant_leaves_a_thread_to_others(void **state) {
    (void)state;
    enum { HELD = 3 };
    struct rig r;
    struct holder holders[HELD], brief;
    struct request_spec specs[HELD], spec = spec_of(9);
    bool did_work;
    rig_open(&r, "cpu");
    for (int i = 0; i < HELD; i++) {
        char source[32];
        snprintf(source, sizeof(source), "[a-z]{%d,60}", 30 + i);
        specs[i] = spec_of((uint32_t)i);
        specs[i].tenant = 1;
        specs[i].grammar = compile(&r, GRAMMAR_REGEX, source);
        hold_begin(&holders[i], specs[i].grammar);
        submit(&r, &specs[i]);
    }
    spec.tenant = 2;
    spec.grammar = compile(&r, GRAMMAR_REGEX, "[0-9]{5}");
    hold_begin(&brief, spec.grammar);
    const struct choice *other = &submit(&r, &spec)->choices[0];
    for (int i = 0; i < 5; i++) assert_int_equal(engine_step(r.s.engine, &did_work), ST_OK);
    hold_end(&brief);
    step_until(&r, other, 1);
    for (int i = 0; i < HELD; i++) assert_int_equal(r.requests[i]->choices[0].ready, 5);
    for (int i = 0; i < HELD; i++) hold_end(&holders[i]);
    run(&r);
    for (int i = 0; i < HELD; i++) answer_grammar_unref(specs[i].grammar);
    answer_grammar_unref(spec.grammar);
    rig_close(&r);
}

static void test_a_late_request_can_be_cancelled(void **state) {
    (void)state;
    struct rig r;
    struct holder h;
    bool did_work;
    rig_open(&r, "cpu");
    struct request_spec spec = spec_of(7);
    spec.grammar = compile(&r, GRAMMAR_REGEX, "[a-z]{30,60}");
    struct request *late = submit(&r, &spec);
    step_until(&r, &late->choices[0], 2);
    struct request *waits = submit(&r, &spec), *waits_too = submit(&r, &spec);
    hold_begin(&h, spec.grammar);
    for (int i = 0; i < 5; i++) assert_int_equal(engine_step(r.s.engine, &did_work), ST_OK);
    engine_cancel(r.s.engine, late); /* one job runs for each thread */
    engine_cancel(r.s.engine, waits);
    engine_cancel(r.s.engine, waits_too);
    run(&r);
    assert_int_equal(finish_of(late, 0), FINISH_CANCELLED);
    assert_int_equal(finish_of(waits_too, 0), FINISH_CANCELLED);
    hold_end(&h);
    answer_grammar_unref(spec.grammar);
    rig_close(&r);
}

#define KEYS                                                                                       \
    "{\"type\":\"object\",\"properties\":{\"the name of the "                                      \
    "person\":{\"enum\":[\"Ada\",\"Bob\"]},"                                                       \
    "\"a long word here\":{\"type\":\"boolean\"}},\"required\":[\"the name of the person\",\"a "   \
    "long word here\"],\"additionalProperties\":false}"

/* Request 0 to REQUESTS - 1 with a schema of long keys; returns the steps that it took. */
static uint64_t run_keys(struct rig *r, bool forces_text, char texts[REQUESTS][TEXT_MAX]) {
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct request_spec spec = spec_of(i);
        spec.max_tokens = i == 7 ? 12 : 100; /* one is cut in the middle of forced text */
        spec.forces_text = forces_text;
        submit_with(r, GRAMMAR_SCHEMA, KEYS, spec);
    }
    run(r);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        const struct request *q = r->requests[i];
        text_of(r, &q->choices[0], texts[i]);
        assert_int_equal(finish_of(q, 0), i == 7 ? FINISH_LENGTH : FINISH_STOP);
        assert_int_equal(q->choices[0].ready <= q->choices[0].total_max, 1);
        if (i == 7) assert_int_equal(q->choices[0].ready, q->choices[0].total_max);
        assert_fits(texts[i], GRAMMAR_SCHEMA, KEYS, i != 7);
    }
    return engine_liveness(r->s.engine).steps;
}

static void test_forced_text_takes_fewer_steps_and_no_other_answers_in_a_batch(void **state) {
    (void)state;
    static char plain[REQUESTS][TEXT_MAX], forced[REQUESTS][TEXT_MAX], other[REQUESTS][TEXT_MAX];
    struct rig r;
    rig_open(&r, "cpu");
    uint64_t plain_steps = run_keys(&r, false, plain);
    rig_close(&r);
    rig_open(&r, "cpu");
    uint64_t forced_steps = run_keys(&r, true, forced);
    rig_close(&r);
    assert_true(forced_steps * 2 < plain_steps);
    rig_open(&r, "delayed:depth=1,jitter=50");
    run_keys(&r, true, other);
    rig_close(&r);
    assert_memory_equal(forced, other, sizeof(forced));
    rig_open_with(&r, "cpu", 16); /* all of them do not fit */
    run_keys(&r, true, other);
    uint32_t preempted = 0;
    for (uint32_t i = 0; i < REQUESTS; i++) preempted += r.requests[i]->choices[0].preempt_count;
    assert_true(preempted > 0);
    rig_close(&r);
    assert_memory_equal(forced, other, sizeof(forced));
}

/* The tokens that are forced behind "<" if the answer is "<`word`>" or differs from it at `cut`. */
static uint32_t forced_of(struct rig *r, const char *word, size_t cut,
                          int32_t out[SAMPLE_FORCED_MAX]) {
    char source[200];
    struct tokens first = {0};
    struct sampler *s = NULL;
    struct err err = {{0}};
    struct sample_params params = sample_params_default();
    const struct sample_bounds bounds = {r->s.loaded.model->hp.vocab, TEXT_MAX};
    const struct encode_options plain = {.plain_special = true};
    snprintf(source, sizeof(source), "[\"<%s>\",\"<%.*s%s\"]", word, (int)cut, word,
             word[cut] == '#' ? "!" : "#");
    struct answer_grammar *g = compile(r, GRAMMAR_CHOICE, source);
    answer_grammar_apply(g, true, &params);
    assert_int_equal(sampler_create(&params, &bounds, &s, &err), ST_OK);
    sampler_begin_answer(s);
    assert_int_equal(tokenizer_encode(r->s.loaded.tokenizer, STR("<"), plain, &first), ST_OK);
    assert_int_equal(first.count, 1);
    sampler_accept(s, first.ids[0]);
    const uint32_t count = sampler_forced(s, out);
    tokens_deinit(&first);
    sampler_destroy(s);
    answer_grammar_unref(g);
    return count;
}

/* Whatever follows, they are the tokens that the tokenizer gives for all that is behind "<". */
static void test_forced_tokens_stay_whatever_follows(void **state) {
    (void)state;
    static const char *const words[] = {"international",    "the name of the person",
                                        "Forwarded:9",      "street_address",
                                        "a long word here", "12345 and then"};
    const struct encode_options plain = {.plain_special = true};
    struct rig r;
    uint32_t all = 0;
    rig_open(&r, "cpu");
    for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++) {
        char text[64];
        struct tokens whole = {0};
        snprintf(text, sizeof(text), "%s>", words[w]);
        assert_int_equal(tokenizer_encode(r.s.loaded.tokenizer, str_of(text), plain, &whole),
                         ST_OK);
        for (size_t cut = 2; cut < strlen(words[w]); cut++) {
            int32_t forced[SAMPLE_FORCED_MAX];
            const uint32_t count = forced_of(&r, words[w], cut, forced);
            assert_true(count <= whole.count);
            if (count > 0 && memcmp(forced, whole.ids, count * sizeof(forced[0])) != 0)
                fail_msg("%s, %d bytes of it forced", words[w], (int)cut);
            all += count;
        }
        tokens_deinit(&whole);
    }
    assert_true(all > 20);
    rig_close(&r);
}

static void test_nothing_is_forced_where_log_probabilities_are_wanted(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "cpu");
    struct request_spec spec = spec_of(1);
    spec.max_tokens = 100;
    spec.want_logprobs = spec.forces_text = true;
    struct request *q = submit_with(&r, GRAMMAR_CHOICE, "[\"the only answer\"]", spec);
    assert_false(q->forces_text);
    run(&r);
    const struct choice *c = &q->choices[0];
    for (uint32_t i = c->prompt_tokens; i < c->ready; i++)
        assert_int_equal(c->logprobs[i - c->prompt_tokens].token, c->tokens[i]);
    rig_close(&r);
}

/* ---- special tokens ---- */

#define MARK "\xFF"

static token_id find_token(const struct rig *r, const char *piece) {
    const token_id id = tokenizer_find(r->s.loaded.tokenizer, str_of(piece));
    if (id < 0) fail_msg("no token %s", piece);
    return id;
}

static void test_special_tokens_are_spelled_between_marks(void **state) {
    (void)state;
    struct rig r;
    struct sample_params params = sample_params_default();
    rig_open(&r, "cpu");
    struct answer_grammar *g = compile(&r, GRAMMAR_JSON, "");
    answer_grammar_apply(g, false, &params);
    const struct {
        const char *piece, *bytes;
    } tokens[] = {{"<unk>", MARK "<unk>" MARK},
                  {"</s>", MARK "</s>" MARK},
                  {"a", "a"},
                  {"\xC3\xBF", ""}}; /* the byte 0xFF */
    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++) {
        const uint32_t id = (uint32_t)find_token(&r, tokens[i].piece);
        if (!str_eq(vocabulary_token(params.vocabulary, id), str_of(tokens[i].bytes)))
            fail_msg("%s", tokens[i].piece);
    }
    answer_grammar_unref(g);
    rig_close(&r);
}

#define TOKENS_AND_TEXT                                                                            \
    "{\"sequence\":[{\"token\":\"<s>\"},{\"free\":[\"e\"]},{\"text\":\"e then\"},"                 \
    "{\"repeat\":{\"token\":\"<unk>\"},\"min\":2,\"max\":3},{\"pattern\":\"[0-9]{2}\"}]}"

static void check_tokens_and_text(const char *device, bool forces_text) {
    struct rig r;
    struct buf bytes;
    struct sample_params params = sample_params_default();
    struct request_spec spec = spec_of(3);
    rig_open(&r, device);
    buf_init(&bytes, TEXT_MAX - 1);
    spec.max_tokens = 100;
    spec.forces_text = forces_text;
    spec.grammar = compile(&r, GRAMMAR_PARTS, TOKENS_AND_TEXT);
    answer_grammar_apply(spec.grammar, false, &params);
    const struct choice *c = &submit(&r, &spec)->choices[0];
    run(&r);
    uint32_t unknown = 0;
    for (uint32_t i = c->prompt_tokens; i < c->ready; i++) {
        if (tokenizer_is_end(r.s.loaded.tokenizer, c->tokens[i])) continue;
        unknown += c->tokens[i] == find_token(&r, "<unk>");
        buf_put_str(&bytes, vocabulary_token(params.vocabulary, (uint32_t)c->tokens[i]));
    }
    assert_int_equal(c->tokens[c->prompt_tokens], find_token(&r, "<s>"));
    const bool is_whole = finish_of(c->request, 0) == FINISH_STOP;
    if (is_whole) assert_in_range(unknown, 2, 3);
    buf_put_char(&bytes, 0);
    assert_int_equal(buf_status(&bytes), ST_OK);
    assert_fits(bytes.ptr, GRAMMAR_PARTS, TOKENS_AND_TEXT, is_whole);
    answer_grammar_unref(spec.grammar);
    buf_deinit(&bytes);
    rig_close(&r);
}

static void test_an_answer_has_the_special_tokens_of_its_grammar(void **state) {
    (void)state;
    for (int forces = 0; forces < 2; forces++) {
        check_tokens_and_text("cpu", forces);
        check_tokens_and_text("delayed:depth=1,jitter=50", forces);
    }
}

/* `list` is of parts behind {"text":"<"}; `expected` has the pieces of text that are forced, and
 * special tokens as "\1" and their piece. NULL ends it. */
static void check_forced(struct rig *r, const char *list, const char *const *expected) {
    char source[1000];
    int32_t forced[SAMPLE_FORCED_MAX];
    struct tokens all = {0};
    struct sampler *s = NULL;
    struct err err = {{0}};
    struct sample_params params = sample_params_default();
    const int32_t ends[] = {find_token(r, "</s>")};
    const struct sample_bounds bounds = {r->s.loaded.model->hp.vocab, TEXT_MAX};
    const struct encode_options plain = {.plain_special = true};
    snprintf(source, sizeof(source), "{\"sequence\":[{\"text\":\"<\"},%s]}", list);
    struct answer_grammar *g = compile(r, GRAMMAR_PARTS, source);
    answer_grammar_apply(g, true, &params);
    params.ends = ends;
    params.end_count = 1;
    assert_int_equal(sampler_create(&params, &bounds, &s, &err), ST_OK);
    sampler_begin_answer(s);
    sampler_accept(s, find_token(r, "<"));
    for (; *expected; expected++) {
        if ((*expected)[0] == 1)
            assert_int_equal(tokens_push(&all, find_token(r, *expected + 1)), ST_OK);
        else
            assert_int_equal(
                tokenizer_encode(r->s.loaded.tokenizer, str_of(*expected), plain, &all), ST_OK);
    }
    const uint32_t count = sampler_forced(s, forced);
    if (count != all.count) fail_msg("%s: %u forced, not %zu", list, count, all.count);
    if (count > 0) assert_memory_equal(forced, all.ids, count * sizeof(forced[0]));
    tokens_deinit(&all);
    sampler_destroy(s);
    answer_grammar_unref(g);
}

static void test_special_tokens_are_forced_with_the_text_around_them(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "cpu");
    check_forced(&r,
                 "{\"text\":\"abc and then\"},{\"token\":\"<unk>\"},{\"token\":\"<s>\"},"
                 "{\"text\":\"the end\"}",
                 (const char *const[]){"abc and then", "\1<unk>", "\1<s>", "the end", NULL});
    check_forced(&r, "{\"token\":\"<unk>\"}", (const char *const[]){"\1<unk>", NULL});
    /* What follows the text may change its tokens; the special token keeps those before it. */
    check_forced(&r, "{\"text\":\"and\"},{\"token\":\"<s>\"},{\"text\":\"and\"},{\"free\":[]}",
                 (const char *const[]){"and", "\1<s>", NULL});
    /* An end, a token that the model does not have, and one that is ordinary text. */
    check_forced(&r, "{\"text\":\"the end\"},{\"token\":\"</s>\"},{\"text\":\"x\"}",
                 (const char *const[]){"the end", NULL});
    check_forced(&r, "{\"token\":\"<s>\"},{\"token\":\"<none>\"},{\"text\":\"x\"}",
                 (const char *const[]){"\1<s>", NULL});
    check_forced(&r, "{\"token\":\"<s>\"},{\"token\":\"a\"},{\"text\":\"x\"}",
                 (const char *const[]){"\1<s>", NULL});
    /* The text of a special token is text. */
    check_forced(&r, "{\"text\":\"a <unk> b\"}", (const char *const[]){"a <unk> b", NULL});
    rig_close(&r);
}

static void expect_refusal(struct rig *r, enum grammar_kind kind, const char *text,
                           const char *path, const char *word) {
    const struct grammar_source source = {.kind = kind, .text = str_of(text)};
    struct grammar_refusal why;
    struct answer_grammar *g = NULL;
    assert_int_equal(grammars_compile(r->s.grammars, &source, &g, &why), ST_BAD);
    assert_null(g);
    assert_string_equal(why.path, path);
    if (!strstr(why.err.text, word)) fail_msg("\"%s\" does not say %s", why.err.text, word);
}

static void test_an_answer_that_cannot_be_whole_is_refused(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "cpu");
    struct grammar_source source = {.kind = GRAMMAR_SCHEMA,
                                    .text = STR("{\"const\":{\"a long key\":\"a long text\"}}"),
                                    .max_tokens = 2};
    struct grammar_refusal why;
    struct answer_grammar *g = NULL;
    uint32_t least = 0;
    for (; grammars_compile(r.s.grammars, &source, &g, &why) == ST_BAD; source.max_tokens++) {
        assert_null(g);
        assert_non_null(strstr(why.err.text, "tokens, and at most"));
        least = source.max_tokens + 1;
    }
    assert_non_null(g);
    assert_int_equal(source.max_tokens, least);
    assert_true(least > 3 && least < 28); /* its text has 28 bytes */
    struct request_spec spec = spec_of(1);
    spec.grammar = g;
    spec.max_tokens = 28;
    struct request *q = submit(&r, &spec);
    answer_grammar_unref(g);
    run(&r);
    assert_int_equal(finish_of(q, 0), FINISH_STOP);
    assert_true(q->choices[0].ready - q->choices[0].prompt_tokens >= least);
    rig_close(&r);
}

static bool always(void *ctx) {
    (void)ctx;
    return true;
}

static void test_refusals_have_a_place_and_a_sentence(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, "cpu");
    expect_refusal(&r, GRAMMAR_SCHEMA, "{\"properties\":{\"a\":{\"pattern\":\"(\"}}}",
                   "#/properties/a", "parenthesis");
    expect_refusal(&r, GRAMMAR_SCHEMA, "false", "", "no text");
    const struct grammar_source source = {
        .kind = GRAMMAR_SCHEMA, .text = STR(SCHEMA), .cancelled = always};
    struct grammar_refusal why;
    struct answer_grammar *g = NULL;
    assert_int_equal(grammars_compile(r.s.grammars, &source, &g, &why), ST_CANCELLED);
    assert_int_equal(grammar_notation(STR("root ::= \"a\"")), GRAMMAR_GBNF);
    assert_int_equal(grammar_notation(STR("start: \"a\"")), GRAMMAR_LARK);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_are_texts_of_their_grammars_at_depth_0_and_1),
        cmocka_unit_test(test_a_grammar_that_is_shared_gives_the_same_answers),
        cmocka_unit_test(test_a_text_that_nothing_follows_ends_the_answer),
        cmocka_unit_test(test_an_answer_that_is_cut_says_length),
        cmocka_unit_test(test_a_bias_that_forbids_every_way_on_is_explained),
        cmocka_unit_test(test_a_late_mask_delays_its_own_request),
        cmocka_unit_test(test_late_work_of_a_tenant_leaves_a_thread_to_others),
        cmocka_unit_test(test_a_late_request_can_be_cancelled),
        cmocka_unit_test(test_forced_text_takes_fewer_steps_and_no_other_answers_in_a_batch),
        cmocka_unit_test(test_forced_tokens_stay_whatever_follows),
        cmocka_unit_test(test_nothing_is_forced_where_log_probabilities_are_wanted),
        cmocka_unit_test(test_special_tokens_are_spelled_between_marks),
        cmocka_unit_test(test_an_answer_has_the_special_tokens_of_its_grammar),
        cmocka_unit_test(test_special_tokens_are_forced_with_the_text_around_them),
        cmocka_unit_test(test_an_answer_that_cannot_be_whole_is_refused),
        cmocka_unit_test(test_refusals_have_a_place_and_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
