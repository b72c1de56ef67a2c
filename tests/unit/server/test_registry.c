/* Goal:   models are found by each of their names, load one after the other, and one that cannot be
 *         loaded reports why and does not affect the others.
 * Method: tiny golden models, simulated and embedding ones, on a loop of the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <uv.h>

#include "api/error.h"
#include "base/check.h"
#include "base/clock.h"
#include "config/settings.h"
#include "engine/embedder.h"
#include "server/registry.h"

#define LLAMA TEST_SOURCE_DIR "/golden/models/llama"
#define BERT TEST_SOURCE_DIR "/golden/models/bert"

struct world {
    uv_loop_t loop;
    struct settings settings;
    struct registry *registry;
    uint32_t changes;
    bool is_loaded;
};

static void on_output(uv_async_t *handle) { (void)handle; }
static void on_embedded(uv_async_t *handle) { (void)handle; }
static void on_changed(void *ctx, struct served_model *m) {
    struct world *w = ctx;
    w->changes++;
    if (!m) w->is_loaded = true;
}
static void on_stall(void *ctx, int64_t us) {
    (void)ctx;
    (void)us;
}

static void set(struct world *w, const char *name, const char *value) {
    struct err err = {0};
    assert_int_equal(settings_set(&w->settings, str_of(name), str_of(value), FROM_FLAG, &err),
                     ST_OK);
}

static enum status make(struct world *w, struct err *err) {
    const struct registry_hooks hooks = {.on_output = on_output,
                                         .on_embedded = on_embedded,
                                         .on_changed = on_changed,
                                         .on_stall = on_stall,
                                         .ctx = w};
    return registry_create(&w->loop, &w->settings, &hooks, &w->registry, err);
}

static void world_open(struct world *w) {
    *w = (struct world){.changes = 0};
    CHECK(uv_loop_init(&w->loop) == 0);
    assert_int_equal(settings_init(&w->settings), ST_OK);
}

static void world_close(struct world *w) {
    if (w->registry) registry_destroy(w->registry);
    settings_deinit(&w->settings);
    assert_int_equal(uv_loop_close(&w->loop), 0);
}

static void load(struct world *w) {
    struct err err = {0};
    int64_t until_us = clock_now(&clock_real) + 20000000;
    assert_int_equal(make(w, &err), ST_OK);
    for (uint32_t i = 0; i < registry_count(w->registry); i++)
        assert_int_equal(registry_at(w->registry, i)->state, LOAD_WAITING);
    assert_int_equal(registry_start(w->registry, &err), ST_OK);
    while (!w->is_loaded && clock_now(&clock_real) < until_us) uv_run(&w->loop, UV_RUN_ONCE);
    assert_true(w->is_loaded);
    assert_true(registry_is_loaded(w->registry));
}

static void unload(struct world *w) {
    assert_true(registry_stop(w->registry));
    registry_close(w->registry);
    uv_run(&w->loop, UV_RUN_DEFAULT);
}

static void test_a_model_is_found_by_name_by_file_and_with_latest(void **state) {
    (void)state;
    struct world w;
    world_open(&w);
    set(&w, "model", LLAMA);
    set(&w, "served-model-name", "chatty");
    set(&w, "runner", "sim:0");
    load(&w);
    struct served_model *m = registry_at(w.registry, 0);
    assert_int_equal(m->state, LOAD_READY);
    assert_true(m->is_sim);
    assert_ptr_equal(registry_find(w.registry, STR("chatty")), m);
    assert_ptr_equal(registry_find(w.registry, STR("llama")), m);
    assert_ptr_equal(registry_find(w.registry, STR("chatty:latest")), m);
    assert_null(registry_find(w.registry, STR("gpt-4o")));
    assert_null(registry_find(w.registry, STR("")));
    assert_ptr_equal(registry_default(w.registry), m);
    assert_int_equal(strncmp(m->fingerprint, "fp_", 3), 0);
    unload(&w);
    world_close(&w);
}

static void test_a_missing_model_fails_and_the_others_load(void **state) {
    (void)state;
    struct world w;
    world_open(&w);
    set(&w, "model", "/nowhere/at-all.gguf");
    set(&w, "model", LLAMA);
    set(&w, "runner", "sim:0");
    load(&w);
    struct served_model *bad = registry_at(w.registry, 0), *good = registry_at(w.registry, 1);
    assert_int_equal(bad->state, LOAD_FAILED);
    assert_true(strlen(bad->failure.text) > 10);
    assert_int_equal(good->state, LOAD_READY);
    assert_ptr_equal(registry_default(w.registry), good);
    unload(&w);
    world_close(&w);
}

static void test_an_encoder_gives_embeddings_and_no_text(void **state) {
    (void)state;
    struct world w;
    world_open(&w);
    set(&w, "model", BERT);
    set(&w, "model", LLAMA);
    load(&w);
    struct served_model *bert = registry_at(w.registry, 0), *llama = registry_at(w.registry, 1);
    assert_int_equal(bert->state, LOAD_READY);
    assert_true(bert->is_encoder);
    assert_null(bert->engine);
    assert_non_null(bert->embedder);
    assert_non_null(llama->engine);
    assert_non_null(llama->embedder);
    assert_ptr_equal(registry_default(w.registry), llama);
    unload(&w);
    world_close(&w);
}

/* Which of two models without a name gets a request for embeddings; NULL: refused. */
static struct served_model *embedder_of(struct world *w, const char *name, struct api_error *e) {
    struct served_model *m = NULL;
    *e = (struct api_error){0};
    return registry_find_embedder(w->registry, str_of(name), &m, e) == ST_OK ? m : NULL;
}

static void test_embeddings_without_a_name_go_to_the_encoder(void **state) {
    (void)state;
    for (int encoder_first = 0; encoder_first < 2; encoder_first++) {
        struct world w;
        struct api_error e;
        world_open(&w);
        set(&w, "model", encoder_first ? BERT : LLAMA);
        set(&w, "model", encoder_first ? LLAMA : BERT);
        load(&w);
        struct served_model *bert = registry_find(w.registry, STR("bert"));
        struct served_model *llama = registry_find(w.registry, STR("llama"));
        assert_ptr_equal(embedder_of(&w, NULL, &e), bert);
        assert_ptr_equal(embedder_of(&w, "llama", &e), llama);
        assert_ptr_equal(embedder_of(&w, "bert", &e), bert);
        assert_null(embedder_of(&w, "other", &e));
        assert_int_equal(e.status, 404);
        unload(&w);
        world_close(&w);
    }
}

static void test_without_an_encoder_embeddings_come_from_the_text_model(void **state) {
    (void)state;
    struct world w;
    struct api_error e;
    world_open(&w);
    set(&w, "model", LLAMA);
    load(&w);
    assert_ptr_equal(embedder_of(&w, NULL, &e), registry_at(w.registry, 0));
    unload(&w);
    world_close(&w);
}

/* The second may be an encoder: the answer must not depend on when the request comes. */
static void test_embeddings_without_a_name_wait_until_all_models_are_loaded(void **state) {
    (void)state;
    struct world w;
    struct err err = {0};
    struct api_error e;
    world_open(&w);
    set(&w, "model", LLAMA);
    set(&w, "model", BERT);
    assert_int_equal(make(&w, &err), ST_OK);
    assert_int_equal(registry_start(w.registry, &err), ST_OK);
    struct served_model *first = NULL;
    while (!w.is_loaded) {
        struct served_model *m = embedder_of(&w, NULL, &e);
        if (m && !first) first = m;
        if (!m) assert_int_equal(e.status, 503);
        uv_run(&w.loop, UV_RUN_ONCE);
    }
    if (!first) first = embedder_of(&w, NULL, &e);
    assert_ptr_equal(first, registry_at(w.registry, 1));
    unload(&w);
    world_close(&w);
}

/* A folder with the encoder's files and one more, which says that texts have at most 24 tokens. */
static const char *const FILES[] = {"1_Pooling",    "config.json",    "model.safetensors",
                                    "modules.json", "tokenizer.json", "tokenizer_config.json"};
enum { FILE_COUNT = sizeof(FILES) / sizeof(FILES[0]) };

static void make_encoder_of_24(const char *folder) {
    char from[512], to[512];
    for (uint32_t i = 0; i < FILE_COUNT; i++) {
        snprintf(from, sizeof(from), "%s/%s", BERT, FILES[i]);
        snprintf(to, sizeof(to), "%s/%s", folder, FILES[i]);
        assert_int_equal(symlink(from, to), 0);
    }
    snprintf(to, sizeof(to), "%s/sentence_bert_config.json", folder);
    FILE *f = fopen(to, "w");
    assert_non_null(f);
    fputs("{\"max_seq_length\": 24}", f);
    fclose(f);
}

static void remove_encoder(const char *folder) {
    char path[512];
    for (uint32_t i = 0; i < FILE_COUNT; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, FILES[i]);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/sentence_bert_config.json", folder);
    unlink(path);
    rmdir(folder);
}

static void test_an_encoder_says_the_longest_text_and_no_form_of_tool_calls(void **state) {
    (void)state;
    struct world w;
    char folder[] = "/tmp/jitney-encoder-XXXXXX";
    assert_non_null(mkdtemp(folder));
    make_encoder_of_24(folder);
    world_open(&w);
    set(&w, "model", folder);
    load(&w);
    remove_encoder(folder);
    struct served_model *bert = registry_at(w.registry, 0);
    assert_int_equal(bert->loaded->ctx_tokens, 64);
    assert_int_equal(embedder_tokens_max(bert->embedder), 24);
    assert_int_equal(bert->ctx_tokens, 24);
    assert_null(bert->forms.tools);
    unload(&w);
    world_close(&w);
}

static void refused(const char *name, const char *value, const char *sentence) {
    struct world w;
    struct err err = {0};
    world_open(&w);
    set(&w, "model", LLAMA);
    set(&w, name, value);
    assert_int_equal(make(&w, &err), ST_BAD);
    assert_non_null(strstr(err.text, sentence));
    w.registry = NULL;
    world_close(&w);
}

static void test_invalid_settings_are_refused_before_anything_is_loaded(void **state) {
    (void)state;
    refused("runner", "remote", "runner");
    refused("runner", "sim:", "runner");
    refused("runner", "sim:-1", "runner");
    refused("runner", "sim:1,hang-after=x", "runner");
    refused("policy", "nice", "policy");
    refused("set", "no_such_knob=1", "knob");
    refused("model", LLAMA, "two models");
    refused("cache-secret-file", "/dev/null", "/dev/null");
}

/* One for each, or none. */
static void test_names_for_some_of_the_models_are_refused(void **state) {
    (void)state;
    for (uint32_t names = 0; names <= 3; names++) {
        struct world w;
        struct err err = {0};
        static const char *const list[] = {"a", "b", "c"};
        world_open(&w);
        set(&w, "model", LLAMA);
        set(&w, "model", BERT);
        for (uint32_t i = 0; i < names; i++) set(&w, "served-model-name", list[i]);
        bool is_fine = names == 0 || names == 2;
        assert_int_equal(make(&w, &err), is_fine ? ST_OK : ST_BAD);
        if (!is_fine) assert_non_null(strstr(err.text, "names for 2 models"));
        if (!is_fine) w.registry = NULL;
        world_close(&w);
    }
}

static void test_loading_can_be_stopped(void **state) {
    (void)state;
    struct world w;
    struct err err = {0};
    world_open(&w);
    set(&w, "model", LLAMA);
    assert_int_equal(make(&w, &err), ST_OK);
    assert_int_equal(registry_start(w.registry, &err), ST_OK);
    while (!registry_stop(w.registry)) uv_run(&w.loop, UV_RUN_NOWAIT);
    registry_close(w.registry);
    uv_run(&w.loop, UV_RUN_DEFAULT);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_is_found_by_name_by_file_and_with_latest),
        cmocka_unit_test(test_a_missing_model_fails_and_the_others_load),
        cmocka_unit_test(test_an_encoder_gives_embeddings_and_no_text),
        cmocka_unit_test(test_invalid_settings_are_refused_before_anything_is_loaded),
        cmocka_unit_test(test_embeddings_without_a_name_go_to_the_encoder),
        cmocka_unit_test(test_without_an_encoder_embeddings_come_from_the_text_model),
        cmocka_unit_test(test_embeddings_without_a_name_wait_until_all_models_are_loaded),
        cmocka_unit_test(test_an_encoder_says_the_longest_text_and_no_form_of_tool_calls),
        cmocka_unit_test(test_names_for_some_of_the_models_are_refused),
        cmocka_unit_test(test_loading_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
