/* Goal:   logits are the same bits however a prompt is cut, by however many threads, on every
 *         instruction set path.
 * Method: each tiny model under tests/golden/models gets a seeded prompt of 70 tokens and is run
 *         whole, in chunks of 1, 7 and 64, with 1, 2 and 5 threads, and on the reference, the
 *         portable, the AVX2 and the fastest kernels; the SHA-256 of all logits must be one. All
 *         of it in every cache format. The real model is tried too where JITNEY_TEST_MODEL
 *         names it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "reference/forward.h"
#include "kernels/cpu/cpu.h"

enum { PROMPT_TOKENS = 70 };

/* Under a sanitizer or an emulator, which slow everything many times, the first shapes have to
 * do. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(TESTS_ARE_EMULATED)
enum { IS_SLOW = 1, SHAPES_TRIED = 3 };
#else
enum { IS_SLOW = 0, SHAPES_TRIED = 24 };
#endif

static const char models_dir[] = TEST_SOURCE_DIR "/golden/models";

struct shape {
    uint32_t threads, chunk;
    const char *isa;
};

static const struct shape shapes[] = {
    {1, 128, "auto"},   {1, 1, "auto"},   {1, 7, "auto"},     {1, 64, "auto"},
    {2, 128, "auto"},   {5, 128, "auto"}, {2, 7, "auto"},     {5, 1, "auto"},
    {2, 128, "ref"},    {2, 7, "ref"},    {1, 1, "ref"},      {2, 128, "portable"},
    {5, 7, "portable"}, {2, 128, "avx2"}, {5, 7, "avx2"},     {1, 1, "avx2"},
    {2, 128, "avx512"}, {5, 7, "avx512"}, {2, 128, "amxsim"}, {2, 128, "amx"},
    {5, 64, "amx"},     {2, 128, "neon"}, {5, 7, "neon"},     {2, 128, "dotprod"},
};

_Static_assert(SHAPES_TRIED <= sizeof(shapes) / sizeof(shapes[0]), "more shapes than there are");

struct hashing {
    struct sha256 *hash;
    uint32_t vocab, rows;
};

static enum status add_rows(void *ctx, uint32_t first, uint32_t count, const float *logits) {
    struct hashing *h = ctx;
    assert_int_equal(first, h->rows);
    sha256_add(h->hash, logits, (size_t)count * h->vocab * sizeof(float));
    h->rows += count;
    return ST_OK;
}

static void hash_logits(const char *path, const struct shape *s, enum kv_type type, uint32_t tokens,
                        char out[SHA256_HEX_BYTES]) {
    struct forward_options o = {.threads = s->threads,
                                .ctx_tokens = 2 * tokens,
                                .chunk_tokens = s->chunk,
                                .kv_type = type,
                                .isa = s->isa,
                                .tokens_only = true};
    struct forward *e = NULL;
    struct err err = {0};
    struct rng rng = {.seed = 11};
    int32_t ids[PROMPT_TOKENS];
    if (forward_open(path, &o, &e, &err) != ST_OK) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < tokens; i++) ids[i] = (int32_t)rng_below(&rng, forward_vocab(e));
    struct hashing h = {.hash = sha256_create(), .vocab = forward_vocab(e)};
    assert_non_null(h.hash);
    if (forward_logits(e, ids, tokens, add_rows, &h, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(h.rows, tokens);
    sha256_hex(h.hash, out);
    sha256_destroy(h.hash);
    forward_close(e);
}

static const char *const type_names[] = {"f16", "f32", "int8", "fp8", "int4"};
enum { TYPE_COUNT = sizeof(type_names) / sizeof(type_names[0]) };
_Static_assert(TYPE_COUNT == (int)KV_TYPE_COUNT, "every format of the cache is tried");

/* Whether this processor has what the kernels need. */
static bool isa_runs(const char *isa) {
    struct device dev;
    if (cpu_device_open(isa, 1, &dev, NULL) != ST_OK) return false;
    dev.close(dev.self);
    return true;
}

/* All shapes that run here agree on the hash that is left in `first`; of fp8, which differs from
 * f16 in how a number is read alone, every third. */
static void check_type(const char *path, enum kv_type type, uint32_t tokens, size_t shape_count,
                       char first[SHA256_HEX_BYTES]) {
    char other[SHA256_HEX_BYTES];
    hash_logits(path, &shapes[0], type, tokens, first);
    for (size_t i = 1; i < shape_count; i += type == KV_F8 ? 3 : 1) {
        if (!isa_runs(shapes[i].isa)) continue;
        hash_logits(path, &shapes[i], type, tokens, other);
        if (strcmp(first, other) != 0)
            fail_msg("%s: %u threads, chunks of %u, %s, cache of %s: other bits than 1 thread and "
                     "one chunk",
                     path, shapes[i].threads, shapes[i].chunk, shapes[i].isa, type_names[type]);
    }
}

/* A format that were not used would show as the hash of another. */
static void check_path(const char *path, uint32_t tokens, size_t shape_count) {
    char hash[TYPE_COUNT][SHA256_HEX_BYTES];
    for (int type = 0; type < TYPE_COUNT; type++) {
        check_type(path, (enum kv_type)type, tokens, shape_count, hash[type]);
        for (int before = 0; before < type; before++)
            assert_string_not_equal(hash[before], hash[type]);
    }
}

static void test_tiny_model(void **state) {
    char dir[4096], path[4096];
    assert_true(path_join(dir, sizeof(dir), models_dir, *state));
    assert_true(path_join(path, sizeof(path), dir, "model.gguf"));
    check_path(file_exists(path) ? path : dir, PROMPT_TOKENS, SHAPES_TRIED);
}

static void test_real_model(void **state) {
    (void)state;
    const char *path = getenv("JITNEY_TEST_MODEL");
    if (IS_SLOW || !path || !file_exists(path)) skip();
    check_path(path, PROMPT_TOKENS, 8); /* the reference kernels would take minutes */
}

enum { MODELS_MAX = 128 };

int main(void) {
    static struct CMUnitTest tests[MODELS_MAX + 1];
    struct dirent **entries;
    int found = scandir(models_dir, &entries, NULL, alphasort);
    size_t count = 0;
    for (int i = 0; i < found && count < MODELS_MAX; i++) {
        const char *name = entries[i]->d_name;
        if (name[0] == '.' || strncmp(name, "bert", 4) == 0) continue;
        tests[count++] = (struct CMUnitTest){
            .name = name, .test_func = test_tiny_model, .initial_state = entries[i]->d_name};
    }
    tests[count++] = (struct CMUnitTest){.name = "real_model", .test_func = test_real_model};
    int failed = _cmocka_run_group_tests("identity", tests, count, NULL, NULL);
    for (int i = 0; i < found; i++) free(entries[i]);
    free(entries);
    return failed;
}
