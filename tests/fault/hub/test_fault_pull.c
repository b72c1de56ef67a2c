/* Goal:   a pull survives the failure of any one allocation: it fails with a sentence or does
 *         without, leaks nothing, and what is under the model's name is whole.
 * Method: pull a small file again and again, the first time with the first allocation failing,
 *         then the second, until a pull needs no more; then the same for list and remove. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/tree.h"
#include "hub/staging.h"
#include "hub/pull.h"
#include "config/env.h"
#include "fault/fail_alloc.h"

enum { ALLOCATIONS_MAX = 2000 };

/* Magic, version 3, no tensors, no keys. */
static const char SMALL_GGUF[] = "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

struct fixture {
    char folder[64], url[160];
    struct env_settings env;
    struct model_cache cache;
};

static int set_up(void **state) {
    static struct fixture f;
    char path[128];
    snprintf(f.folder, sizeof(f.folder), "/tmp/test_fault_pull.XXXXXX");
    assert_non_null(mkdtemp(f.folder));
    snprintf(path, sizeof(path), "%s/tiny.gguf", f.folder);
    const struct str body = {SMALL_GGUF, sizeof(SMALL_GGUF) - 1};
    assert_int_equal(file_write_atomic(path, body, NULL), ST_OK);
    snprintf(f.url, sizeof(f.url), "file://%s", path);
    f.env = (struct env_settings){.cache_dir = f.folder, .dumb_terminal = true};
    assert_int_equal(model_cache_init(&f.cache, &f.env, NULL), ST_OK);
    *state = &f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    return tree_remove(f->folder, NULL, NULL) == ST_OK ? 0 : -1;
}

static enum status pull(struct fixture *f, struct err *err) {
    const struct pull_options options = {.stall_s = 10, .again = true};
    struct pull_target target;
    struct pull_result result;
    TRY(pull_parse(f->url, NULL, &target, err));
    return pull_model(&f->cache, &f->env, &target, &options, &result, err);
}

/* Under the name there is nothing, or all of it. */
static void expect_whole_or_nothing(struct fixture *f) {
    char folder[MODEL_PATH_BYTES];
    struct manifest m;
    bool touched;
    assert_int_equal(model_cache_folder(&f->cache, "tiny", "", folder, NULL), ST_OK);
    if (!file_exists(folder)) return;
    manifest_init(&m);
    assert_int_equal(manifest_read(&m, folder, NULL), ST_OK);
    assert_int_equal(manifest_check(&m, folder, &touched, NULL), ST_OK);
    assert_int_equal(manifest_verify(&m, folder, NULL), ST_OK);
    manifest_deinit(&m);
}

static void test_a_pull_survives_any_failed_allocation(void **state) {
    struct fixture *f = *state;
    for (long n = 0; n < ALLOCATIONS_MAX; n++) {
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = pull(f, &err);
        bool failed = fail_alloc_stop();
        expect_whole_or_nothing(f);
        if (!failed) {
            assert_int_equal(st, ST_OK);
            assert_in_range(n, 5, ALLOCATIONS_MAX);
            return;
        }
        bool fine = st == ST_OK || (st == ST_NOMEM && err.text[0]);
        if (!fine) fail_msg("allocation %ld: status %d, \"%s\"", n, st, err.text);
    }
    fail_msg("more than %d allocations", ALLOCATIONS_MAX);
}

static enum status list_and_remove(struct fixture *f, struct err *err) {
    struct model_list list;
    char hint[MODEL_NAME_BYTES];
    uint64_t freed_bytes = 0;
    TRY(model_list_create(&f->cache, &list, err));
    model_list_destroy(&list);
    model_cache_suggest(&f->cache, "tinny", hint);
    return model_cache_remove(&f->cache, "tiny", &freed_bytes, err);
}

static void test_list_and_remove_survive_any_failed_allocation(void **state) {
    struct fixture *f = *state;
    for (long n = 0; n < ALLOCATIONS_MAX; n++) {
        struct err err = {0};
        assert_int_equal(pull(f, &err), ST_OK);
        fail_alloc_at(n);
        enum status st = list_and_remove(f, &err);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            return;
        }
        bool fine = st == ST_OK || (st == ST_NOMEM && err.text[0]);
        if (!fine) fail_msg("allocation %ld: status %d, \"%s\"", n, st, err.text);
    }
    fail_msg("more than %d allocations", ALLOCATIONS_MAX);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest cases[] = {
        CASE(test_a_pull_survives_any_failed_allocation),
        CASE(test_list_and_remove_survive_any_failed_allocation),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
