/* Goal:   a text's vector is the same bits alone and in any batch, encoder or decoder, short or too
 *         long, beside a serving engine or not; jobs are batched, refused and returned as the
 *         header says; threads that share a model take turns.
 * Method: tiny models of the tree; every vector compared with that of forward_embed, which runs one
 *         text at a time. A test can make the forward pass return NaN.
 * wrap: cpu_program_collect */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "engine/embedder.h"
#include "engine/service.h"
#include "reference/forward.h"
#include "kernels/cpu/program.h"
#include "unit/engine/await.h"

#define MODELS TEST_SOURCE_DIR "/golden/models/"

enum { CTX = 128, TEXTS = 40, IDS_MAX = 700, WAIT_TRIES = 30000 };

enum status __real_cpu_program_collect(void *self, struct device_program *p,
                                       struct device_result *out, struct err *err);
enum status __wrap_cpu_program_collect(void *self, struct device_program *p,
                                       struct device_result *out, struct err *err);

static atomic_bool is_poisoned; /* the first number of every pass becomes NaN */

enum status __wrap_cpu_program_collect(void *self, struct device_program *p,
                                       struct device_result *out, struct err *err) {
    enum status st = __real_cpu_program_collect(self, p, out, err);
    if (atomic_load(&is_poisoned)) ((float *)(uintptr_t)out->rows)[0] = NAN;
    return st;
}

struct rig {
    struct loaded_model loaded;
    struct forward *forward;
    struct embedder *embedder;
    uint32_t dims;
    int32_t ids[TEXTS][IDS_MAX];
    struct embed_job jobs[TEXTS];
    float *vectors, *wanted; /* [TEXTS][dims] */
};

static void sleep_ms(long ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* Lengths around every edge: one token, a tile, the longest, and past what an encoder takes. */
static uint32_t length_of(const struct rig *rig, uint32_t text) {
    static const uint32_t lengths[] = {1, 2, 15, 16, 17, 31, 33, 64, 5, 7};
    uint32_t max = forward_embed_tokens_max(rig->forward);
    if (text == 10) return max;
    if (text == 11) return max - 1;
    if (text == 12 && forward_is_encoder(rig->forward)) return max + 60;
    return lengths[text % 10];
}

static void open_rig(struct rig *rig, const char *path, uint32_t batch_tokens, int64_t window_us) {
    struct err err = {0};
    struct forward_options fo = {.threads = 1, .ctx_tokens = CTX, .tokens_only = true};
    struct loaded_model_options options = {.threads = 2, .ctx_tokens = CTX, .tokens_only = true};
    struct embedder_options o = {.batch_tokens = batch_tokens, .window_us = window_us};
    *rig = (struct rig){.forward = NULL};
    if (forward_open(path, &fo, &rig->forward, &err) != ST_OK) fail_msg("%s", err.text);
    if (loaded_model_open(&rig->loaded, path, &options, &err) != ST_OK) fail_msg("%s", err.text);
    if (embedder_open(&rig->embedder, &rig->loaded, &o, &err) != ST_OK) fail_msg("%s", err.text);
    rig->dims = embedder_dims(rig->embedder);
    assert_int_equal(rig->dims, forward_embed_dims(rig->forward));
    assert_int_equal(embedder_tokens_max(rig->embedder), forward_embed_tokens_max(rig->forward));
    rig->vectors = mem_zalloc_array((size_t)TEXTS * rig->dims, sizeof(float));
    rig->wanted = mem_zalloc_array((size_t)TEXTS * rig->dims, sizeof(float));
    uint32_t vocab = forward_vocab(rig->forward);
    for (uint32_t t = 0; t < TEXTS; t++) {
        uint32_t count = length_of(rig, t);
        assert_true(count <= IDS_MAX);
        for (uint32_t i = 0; i < count; i++)
            rig->ids[t][i] = (int32_t)((t * 31 + i * i * 7 + i) % vocab);
        rig->jobs[t] = (struct embed_job){
            .ids = rig->ids[t], .count = count, .out = rig->vectors + (size_t)t * rig->dims};
        if (forward_embed(rig->forward, rig->ids[t], count, rig->wanted + (size_t)t * rig->dims,
                          &err) != ST_OK)
            fail_msg("%s", err.text);
    }
}

static void close_rig(struct rig *rig) {
    embedder_close(rig->embedder);
    loaded_model_close(&rig->loaded);
    forward_close(rig->forward);
    mem_free(rig->vectors);
    mem_free(rig->wanted);
}

static void submit(struct rig *rig, struct embed_job *job) {
    struct err err = {0};
    if (embedder_submit(rig->embedder, job, 1, &err) != ST_OK) fail_msg("%s", err.text);
}

static struct embed_job *take(struct rig *rig) {
    for (uint32_t i = 0; i < WAIT_TRIES; i++) {
        struct embed_job *job = embedder_next(rig->embedder);
        if (job) return job;
        sleep_ms(1);
    }
    fail_msg("no text was done");
    return NULL;
}

static void check_job(const struct rig *rig, const struct embed_job *job) {
    size_t text = (size_t)(job - rig->jobs);
    assert_int_equal(job->status, ST_OK);
    assert_memory_equal(job->out, rig->wanted + text * rig->dims, rig->dims * sizeof(float));
}

/* ---- bits ---- */

static void check_model(const char *path, uint32_t batch_tokens, int64_t window_us) {
    static struct rig rig;
    open_rig(&rig, path, batch_tokens, window_us);
    for (uint32_t t = 0; t < TEXTS; t++) submit(&rig, &rig.jobs[t]);
    for (uint32_t t = 0; t < TEXTS; t++) {
        const struct embed_job *job = take(&rig);
        assert_ptr_equal(job, &rig.jobs[t]); /* in the order in which they came */
        check_job(&rig, job);
    }
    assert_null(embedder_next(rig.embedder));
    close_rig(&rig);
}

static void test_an_encoders_vectors_are_the_same_bits_in_any_batch(void **state) {
    (void)state;
    check_model(MODELS "bert", 1, 0); /* one by one */
    check_model(MODELS "bert", 100, 5000);
    check_model(MODELS "bert", 0, 5000); /* all at once */
    check_model(MODELS "bert-cls", 0, 5000);
}

static void test_a_decoders_vectors_are_the_same_bits_in_any_batch(void **state) {
    (void)state;
    check_model(MODELS "llama", 1, 0); /* token by token */
    check_model(MODELS "llama", 20, 0);
    check_model(MODELS "llama", 0, 5000);
    check_model(MODELS "gemma3", 100, 5000); /* windows: two groups of layers */
    check_model(MODELS "mistral", 0, 5000);
}

/* ---- batches ---- */

static void count_call(void *ctx) { atomic_fetch_add((atomic_uint *)ctx, 1); }

static void test_texts_that_wait_share_a_pass(void **state) {
    (void)state;
    static struct rig rig;
    atomic_uint batches = 0;
    open_rig(&rig, MODELS "bert", 2048, 300000);
    embedder_set_hook(rig.embedder, count_call, &batches);
    for (uint32_t t = 0; t < 8; t++) submit(&rig, &rig.jobs[t]);
    for (uint32_t t = 0; t < 8; t++) check_job(&rig, take(&rig));
    close_rig(&rig); /* its thread has ended, so the hook was called */
    assert_int_equal(atomic_load(&batches), 1);
}

static void test_a_full_batch_does_not_wait_for_more(void **state) {
    (void)state;
    static struct rig rig;
    open_rig(&rig, MODELS "bert", 17, 60000000); /* a minute: the test would not end */
    submit(&rig, &rig.jobs[3]);
    submit(&rig, &rig.jobs[0]);
    check_job(&rig, take(&rig));
    check_job(&rig, take(&rig));
    close_rig(&rig);
}

static void refused(struct rig *rig, const int32_t *ids, uint32_t count, const char *part) {
    struct embed_job job = {.ids = ids, .count = count, .out = rig->vectors};
    struct err err = {0};
    assert_int_equal(embedder_submit(rig->embedder, &job, 1, &err), ST_BAD);
    if (!strstr(err.text, part)) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void test_impossible_jobs_are_refused_with_the_numbers(void **state) {
    (void)state;
    static struct rig rig;
    static int32_t ids[CTX + 1];
    open_rig(&rig, MODELS "llama", 0, 0);
    refused(&rig, ids, 0, "empty");
    refused(&rig, ids, CTX + 1, "129 tokens and the context holds 128");
    ids[5] = -1;
    refused(&rig, ids, 6, "token 5 is -1");
    ids[5] = (int32_t)forward_vocab(rig.forward);
    refused(&rig, ids, 6, "the model's vocabulary has 0 to");
    submit(&rig, &rig.jobs[0]);
    check_job(&rig, take(&rig));
    close_rig(&rig);
}

/* An encoder cuts a long text and keeps its last token, which is past the cut. */
static void test_the_token_that_a_cut_keeps_is_checked_too(void **state) {
    (void)state;
    static struct rig rig;
    open_rig(&rig, MODELS "bert", 0, 0);
    struct embed_job *job = &rig.jobs[12];
    assert_true(job->count > embedder_tokens_max(rig.embedder) + 1);
    rig.ids[12][job->count - 2] = -1; /* is cut off */
    submit(&rig, job);
    check_job(&rig, take(&rig));
    rig.ids[12][job->count - 1] = -1;
    refused(&rig, rig.ids[12], job->count, "is -1");
    close_rig(&rig);
}

static void test_one_text_can_be_run_and_waited_for(void **state) {
    (void)state;
    static struct rig rig;
    static const char *const paths[] = {MODELS "bert", MODELS "llama"};
    struct err err = {0};
    for (uint32_t i = 0; i < 2; i++) {
        open_rig(&rig, paths[i], 7, 0); /* a long text of a decoder takes several passes */
        for (uint32_t t = 0; t < TEXTS; t++) {
            assert_int_equal(embedder_run(rig.embedder, &rig.jobs[t], &err), ST_OK);
            check_job(&rig, &rig.jobs[t]);
        }
        atomic_store(&is_poisoned, true);
        assert_int_equal(embedder_run(rig.embedder, &rig.jobs[0], &err), ST_DEVICE);
        assert_true(err.text[0] != 0);
        atomic_store(&is_poisoned, false);
        rig.jobs[0].count = 0;
        assert_int_equal(embedder_run(rig.embedder, &rig.jobs[0], &err), ST_BAD);
        close_rig(&rig);
    }
}

static void test_jobs_left_at_close_are_cancelled_and_a_full_queue_is_reported(void **state) {
    (void)state;
    static struct rig rig;
    struct err err = {0};
    open_rig(&rig, MODELS "bert", 0, 0);
    embedder_close(rig.embedder);
    struct embedder_options o = {.queue_max = 3, .window_us = 60000000};
    assert_int_equal(embedder_open(&rig.embedder, &rig.loaded, &o, &err), ST_OK);
    for (uint32_t t = 0; t < 3; t++) submit(&rig, &rig.jobs[t]);
    assert_int_equal(embedder_submit(rig.embedder, &rig.jobs[3], 1, &err), ST_FULL);
    assert_non_null(strstr(err.text, "at most 3 texts"));
    embedder_close(rig.embedder);
    rig.embedder = NULL;
    for (uint32_t t = 0; t < 3; t++) {
        assert_int_equal(rig.jobs[t].status, ST_CANCELLED);
        assert_true(rig.jobs[t].err.text[0] != 0);
    }
    close_rig(&rig);
}

static void test_a_vector_that_is_not_numbers_fails_its_job_alone(void **state) {
    (void)state;
    static struct rig rig;
    const char *paths[] = {MODELS "bert", MODELS "llama"};
    for (uint32_t i = 0; i < 2; i++) {
        open_rig(&rig, paths[i], 0, 300000);
        atomic_store(&is_poisoned, true);
        for (uint32_t t = 0; t < 3; t++) submit(&rig, &rig.jobs[t]);
        assert_int_equal(take(&rig)->status, ST_DEVICE);
        assert_true(rig.jobs[0].err.text[0] != 0);
        check_job(&rig, take(&rig));
        check_job(&rig, take(&rig));
        atomic_store(&is_poisoned, false);
        submit(&rig, &rig.jobs[0]); /* it can be tried again */
        check_job(&rig, take(&rig));
        close_rig(&rig);
    }
}

/* ---- ends ---- */

/* Nothing runs before the window is over: those that are cancelled are reported at once, and not
 * with the next pass. */
static void test_cancelled_texts_are_not_computed(void **state) {
    (void)state;
    static struct rig rig;
    static const char *const paths[] = {MODELS "bert", MODELS "llama"};
    for (uint32_t i = 0; i < 2; i++) {
        atomic_uint calls = 0;
        open_rig(&rig, paths[i], 2048, 60000000);
        embedder_set_hook(rig.embedder, count_call, &calls);
        for (uint32_t t = 0; t < 8; t++) {
            rig.jobs[t].user = t % 2 ? &rig : NULL;
            memset(rig.jobs[t].out, 0x5a, rig.dims * sizeof(float));
            submit(&rig, &rig.jobs[t]);
        }
        embedder_cancel(rig.embedder, &rig);
        assert_int_equal(atomic_load(&calls), 1);
        for (uint32_t t = 1; t < 8; t += 2) {
            struct embed_job *job = take(&rig);
            assert_ptr_equal(job, &rig.jobs[t]);
            assert_int_equal(job->status, ST_CANCELLED);
            assert_false(job->has_expired);
            float untouched;
            memset(&untouched, 0x5a, sizeof(untouched));
            assert_memory_equal(job->out, &untouched, sizeof(untouched));
        }
        assert_null(embedder_next(rig.embedder));
        close_rig(&rig);
        for (uint32_t t = 0; t < 8; t += 2) assert_int_equal(rig.jobs[t].status, ST_CANCELLED);
    }
}

static void test_texts_expire_and_the_others_are_computed(void **state) {
    (void)state;
    static struct rig rig;
    open_rig(&rig, MODELS "llama", 64, 50000);
    for (uint32_t t = 0; t < 10; t++) {
        rig.jobs[t].expires_us = t % 2 ? 1 : clock_now(&clock_real) + 60000000;
        submit(&rig, &rig.jobs[t]);
    }
    for (uint32_t t = 0; t < 10; t++) {
        struct embed_job *job = take(&rig);
        bool is_late = (job - rig.jobs) % 2;
        if (is_late) assert_int_equal(job->status, ST_CANCELLED);
        assert_int_equal(job->has_expired, is_late);
        if (!is_late) check_job(&rig, job);
    }
    close_rig(&rig);
}

/* A decoder's text of 127 tokens takes 16 passes here; texts of another tenant that come later are
 * done long before it, and every vector has its bits. */
static void test_short_texts_are_computed_between_the_passes_of_a_long_one(void **state) {
    (void)state;
    static struct rig rig;
    open_rig(&rig, MODELS "llama", 8, 0);
    loaded_model_lock(&rig.loaded); /* its first pass waits until all are submitted */
    rig.jobs[10].tenant = rig.jobs[11].tenant = 1;
    submit(&rig, &rig.jobs[10]);
    submit(&rig, &rig.jobs[11]);
    for (uint32_t t = 20; t < 22; t++) {
        rig.jobs[t].tenant = 2;
        submit(&rig, &rig.jobs[t]); /* 1 and 2 tokens */
    }
    loaded_model_unlock(&rig.loaded);
    static const uint32_t order[] = {20, 21, 10, 11};
    for (uint32_t i = 0; i < 4; i++) {
        struct embed_job *job = take(&rig);
        assert_int_equal(job - rig.jobs, order[i]);
        check_job(&rig, job);
    }
    close_rig(&rig);
}

static void test_a_long_text_is_cancelled_between_two_passes(void **state) {
    (void)state;
    static struct rig rig;
    open_rig(&rig, MODELS "llama", 1, 0);
    loaded_model_lock(&rig.loaded);
    rig.jobs[10].user = &rig;
    submit(&rig, &rig.jobs[10]);
    submit(&rig, &rig.jobs[11]);
    sleep_ms(20); /* its first pass waits for the model */
    embedder_cancel(rig.embedder, &rig);
    loaded_model_unlock(&rig.loaded);
    assert_ptr_equal(take(&rig), &rig.jobs[10]);
    assert_int_equal(rig.jobs[10].status, ST_CANCELLED);
    assert_true(rig.jobs[10].computed < rig.jobs[10].tokens);
    check_job(&rig, take(&rig));
    close_rig(&rig);
}

/* The next long one is computed all the same. */
static void test_a_long_text_expires_between_two_passes(void **state) {
    (void)state;
    enum { LEFT_US = 100000 };
    static struct rig rig;
    open_rig(&rig, MODELS "llama", 1, 0);
    loaded_model_lock(&rig.loaded);
    const int64_t expires_us = clock_now(&clock_real) + LEFT_US;
    rig.jobs[10].expires_us = expires_us;
    submit(&rig, &rig.jobs[10]);
    submit(&rig, &rig.jobs[11]);
    while (clock_now(&clock_real) <= expires_us) sleep_ms(5); /* its first pass waits meanwhile */
    loaded_model_unlock(&rig.loaded);
    assert_ptr_equal(take(&rig), &rig.jobs[10]);
    assert_int_equal(rig.jobs[10].status, ST_CANCELLED);
    assert_true(rig.jobs[10].has_expired);
    assert_true(rig.jobs[10].computed <= 1); /* by the pass that was under way, of one token */
    assert_true(rig.jobs[10].computed < rig.jobs[10].tokens);
    check_job(&rig, take(&rig));
    close_rig(&rig);
}

/* ---- company ---- */

struct waiter {
    struct loaded_model *loaded;
    atomic_uint turns;
    atomic_bool is_waiting;
};

static void *wait_for_turn(void *arg) {
    struct waiter *w = arg;
    atomic_store(&w->is_waiting, true);
    loaded_model_lock(w->loaded);
    atomic_fetch_add(&w->turns, 1);
    loaded_model_unlock(w->loaded);
    return NULL;
}

/* A caller that unlocks a model and locks it again comes after those that have waited. */
static void test_threads_take_a_shared_model_in_order_of_arrival(void **state) {
    (void)state;
    struct loaded_model loaded;
    struct err err = {0};
    struct loaded_model_options o = {.threads = 1, .tokens_only = true, .no_weights = true};
    assert_int_equal(loaded_model_open(&loaded, MODELS "llama", &o, &err), ST_OK);
    struct embedder_options eo = {0};
    struct embedder *none = NULL;
    assert_int_equal(embedder_open(&none, &loaded, &eo, &err), ST_BAD);
    for (int round = 0; round < 20; round++) {
        struct waiter w = {.loaded = &loaded};
        pthread_t thread;
        loaded_model_lock(&loaded);
        assert_int_equal(pthread_create(&thread, NULL, wait_for_turn, &w), 0);
        while (!atomic_load(&w.is_waiting)) sleep_ms(1);
        sleep_ms(20); /* from there to its ticket */
        assert_int_equal(atomic_load(&w.turns), 0);
        loaded_model_unlock(&loaded);
        loaded_model_lock(&loaded);
        assert_int_equal(atomic_load(&w.turns), 1);
        loaded_model_unlock(&loaded);
        pthread_join(thread, NULL);
    }
    loaded_model_close(&loaded);
}

static struct request *ask(struct service *s) {
    static const int32_t prompt[] = {1, 7, 9, 11};
    struct err err = {0};
    struct request *r = NULL;
    struct request_spec spec = {.prompt = prompt,
                                .prompt_tokens = 4,
                                .max_tokens = 60,
                                .n = 2,
                                .sample = sample_params_default(),
                                .ignore_end = true,
                                .want_logprobs = true};
    if (engine_submit(s->engine, &spec, &r, &err) != ST_OK) fail_msg("%s", err.text);
    return r;
}

static void test_an_embedder_beside_an_engine_changes_no_bit(void **state) {
    (void)state;
    static struct rig rig;
    struct service s;
    struct err err = {0};
    struct service_options o = {
        .knobs = knobs_default(), .ctx_tokens = CTX, .tokens_only = true, .isa = "auto"};
    struct embedder_options eo = {.batch_tokens = 64};
    o.knobs.threads = 2;
    o.knobs.max_seqs = 4;
    open_rig(&rig, MODELS "llama", 0, 0);
    embedder_close(rig.embedder);
    assert_int_equal(service_open(&s, MODELS "llama", &o, &err), ST_OK);
    assert_int_equal(embedder_open(&rig.embedder, &s.loaded, &eo, &err), ST_OK);
    assert_int_equal(engine_start(s.engine, &err), ST_OK);
    struct request *alone = ask(&s);
    await_answer(s.engine, alone);
    struct request *beside = ask(&s);
    for (uint32_t t = 0; t < TEXTS; t++) submit(&rig, &rig.jobs[t]);
    await_answer(s.engine, beside);
    for (uint32_t t = 0; t < TEXTS; t++) check_job(&rig, take(&rig));
    for (uint32_t i = 0; i < 2; i++) {
        const struct choice *a = &alone->choices[i], *b = &beside->choices[i];
        assert_memory_equal(a->tokens, b->tokens, 64 * sizeof(int32_t));
        assert_memory_equal(a->logprobs, b->logprobs, 60 * sizeof(struct token_logprob));
    }
    request_unref(alone);
    request_unref(beside);
    embedder_close(rig.embedder);
    rig.embedder = NULL;
    service_close(&s);
    close_rig(&rig);
}

/* ---- a device that fails ---- */

static struct embed_job *await_job(struct embedder *e) {
    struct embed_job *job = NULL;
    for (int i = 0; i < WAIT_TRIES && !(job = embedder_next(e)); i++) sleep_ms(1);
    assert_non_null(job);
    return job;
}

/* A step that fails takes 20 ms and 8 tokens here: if it counted, there would be a
 * predicted time for a text that waits. */
static void test_a_pass_that_failed_fails_its_jobs_and_does_not_count_as_speed(void **state) {
    (void)state;
    enum { TOKENS = 8 };
    struct err err = {0};
    struct loaded_model loaded;
    struct embedder *e;
    struct loaded_model_options o = {.threads = 1,
                                     .ctx_tokens = CTX,
                                     .tokens_only = true,
                                     .device = "delayed:depth=1,delay=20000,jitter=0,lose=1"};
    if (loaded_model_open(&loaded, MODELS "bert", &o, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(embedder_open(&e, &loaded, &(struct embedder_options){0}, &err), ST_OK);
    int32_t ids[TOKENS] = {1, 2, 3, 4, 5, 6, 7, 8};
    float *out = mem_alloc_array(embedder_dims(e), sizeof(*out));
    struct embed_job jobs[3];
    for (int i = 0; i < 3; i++)
        jobs[i] = (struct embed_job){.ids = ids, .count = TOKENS, .out = out};
    assert_int_equal(embedder_submit(e, &jobs[0], 1, &err), ST_OK);
    assert_int_equal(await_job(e)->status, ST_DEVICE);
    assert_non_null(strstr(jobs[0].err.text, "step 1 failed"));
    assert_int_equal(embedder_submit(e, &jobs[1], 1, &err), ST_OK);
    sleep_ms(5); /* it is being run */
    assert_int_equal(embedder_submit(e, &jobs[2], 1, &err), ST_OK);
    assert_int_equal(embedder_queue(e, 0).wait_us, 0);
    for (int i = 1; i < 3; i++) assert_int_equal(await_job(e)->status, ST_DEVICE);
    assert_int_equal(embedder_stalled_us(e), 0); /* no pass is under way */
    embedder_close(e);
    loaded_model_close(&loaded);
    mem_free(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_encoders_vectors_are_the_same_bits_in_any_batch),
        cmocka_unit_test(test_a_decoders_vectors_are_the_same_bits_in_any_batch),
        cmocka_unit_test(test_cancelled_texts_are_not_computed),
        cmocka_unit_test(test_texts_expire_and_the_others_are_computed),
        cmocka_unit_test(test_short_texts_are_computed_between_the_passes_of_a_long_one),
        cmocka_unit_test(test_a_long_text_is_cancelled_between_two_passes),
        cmocka_unit_test(test_a_long_text_expires_between_two_passes),
        cmocka_unit_test(test_texts_that_wait_share_a_pass),
        cmocka_unit_test(test_a_full_batch_does_not_wait_for_more),
        cmocka_unit_test(test_impossible_jobs_are_refused_with_the_numbers),
        cmocka_unit_test(test_the_token_that_a_cut_keeps_is_checked_too),
        cmocka_unit_test(test_one_text_can_be_run_and_waited_for),
        cmocka_unit_test(test_jobs_left_at_close_are_cancelled_and_a_full_queue_is_reported),
        cmocka_unit_test(test_a_vector_that_is_not_numbers_fails_its_job_alone),
        cmocka_unit_test(test_a_pass_that_failed_fails_its_jobs_and_does_not_count_as_speed),
        cmocka_unit_test(test_threads_take_a_shared_model_in_order_of_arrival),
        cmocka_unit_test(test_an_embedder_beside_an_engine_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
