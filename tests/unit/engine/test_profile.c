/* Goal:   a profile accounts for the whole step: its parts are the ops of the tape, each once, and
 *         add up; shapes that cannot be run are refused.
 * Method: golden models of every kind, with several sequences, a prompt, and a step so small that
 *         nothing of it fills a block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "engine/profile.h"

enum { CTX = 64 };

static const struct profile_options options = {
    .kv_type = KV_F16, .steps_max = 8, .budget_us = 1000000};

static void open_golden(struct loaded_model *loaded, const char *name) {
    char path[4096] = TEST_SOURCE_DIR "/golden/models/";
    struct err err = {{0}};
    strncat(path, name, sizeof(path) - strlen(path) - 1);
    const struct loaded_model_options o = {.threads = 2, .ctx_tokens = CTX, .tokens_only = true};
    if (loaded_model_open(loaded, path, &o, &err) != ST_OK) fail_msg("%s", err.text);
}

static const struct profile_part *find(const struct profile *p, const char *words) {
    for (uint32_t i = 0; i < p->part_count; i++)
        if (strstr(p->parts[i].label, words)) return &p->parts[i];
    return NULL;
}

static void check_sums(const struct profile *p) {
    double sum = p->around_us + p->sampling_us + p->interrupted_us;
    assert_true(p->steps >= PROFILE_STEPS_MIN);
    assert_true(p->part_count > 5);
    for (uint32_t i = 0; i < p->part_count; i++) {
        const struct profile_part *part = &p->parts[i];
        assert_true(part->calls > 0);
        assert_true(part->wait_us >= 0);
        assert_true(part->us >= part->wait_us);
        sum += part->us;
        for (uint32_t j = 0; j < i; j++) assert_string_not_equal(p->parts[j].label, part->label);
    }
    assert_true(p->around_us > 0);
    assert_true(p->sampling_us > 0);
    assert_true(sum > 0.999999 * p->step_us);
    assert_true(sum < 1.000001 * p->step_us);
    assert_true(p->median_us >= p->step_us);
}

static void test_parts_are_the_ops_of_the_tape_and_add_up(void **state) {
    (void)state;
    static const char *const models[] = {"llama", "llama-q4_k/model.gguf", "gemma2", "qwen3moe"};
    static const struct profile_shape shapes[] = {{1, 1, 40}, {5, 1, 33}, {1, 20, 0}, {1, 1, 0}};
    struct profile *p = mem_alloc(sizeof(*p));
    for (int m = 0; m < 4; m++) {
        struct loaded_model loaded;
        open_golden(&loaded, models[m]);
        for (int s = 0; s < 4; s++) {
            struct err err = {{0}};
            if (profile_step(&loaded, &shapes[s], &options, p, &err) != ST_OK)
                fail_msg("%s", err.text);
            check_sums(p);
            assert_non_null(find(p, "head "));
            assert_int_equal(find(p, "head ")->calls, 1);
            assert_int_equal(find(p, "kv_write f16")->calls % loaded.model->hp.layers, 0);
        }
        loaded_model_close(&loaded);
    }
    mem_free(p);
}

static void test_weights_are_listed_by_role_and_format(void **state) {
    (void)state;
    struct loaded_model loaded;
    struct profile *p = mem_alloc(sizeof(*p));
    open_golden(&loaded, "llama-q4_k/model.gguf");
    const struct profile_shape shape = {2, 3, 16};
    assert_int_equal(profile_step(&loaded, &shape, &options, p, NULL), ST_OK);
    const struct profile_part *gate = find(p, "matmul ffn_gate,ffn_up Q4_K");
    assert_non_null(gate);
    assert_int_equal(gate->calls, loaded.model->hp.layers);
    const struct hparams *hp = &loaded.model->hp;
    /* Six rows in every layer but the last, where one of each sequence is left. */
    uint32_t rows = 6 * (hp->layers - 1) + 2;
    assert_true(gate->work.int8_ops == 2.0 * rows * 2 * hp->ffn * hp->dim);
    loaded_model_close(&loaded);
    mem_free(p);
}

static void test_impossible_steps_are_refused(void **state) {
    (void)state;
    struct loaded_model loaded;
    struct err err = {{0}};
    struct profile *p = mem_alloc(sizeof(*p));
    open_golden(&loaded, "llama");
    const struct profile_shape longer = {1, 1, CTX};
    assert_int_equal(profile_step(&loaded, &longer, &options, p, &err), ST_BAD);
    assert_non_null(strstr(err.text, "64"));
    loaded_model_close(&loaded);
    open_golden(&loaded, "bert");
    const struct profile_shape small = {1, 1, 0};
    assert_int_equal(profile_step(&loaded, &small, &options, p, &err), ST_BAD);
    assert_non_null(strstr(err.text, "embeddings"));
    loaded_model_close(&loaded);
    mem_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_are_the_ops_of_the_tape_and_add_up),
        cmocka_unit_test(test_weights_are_listed_by_role_and_format),
        cmocka_unit_test(test_impossible_steps_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
