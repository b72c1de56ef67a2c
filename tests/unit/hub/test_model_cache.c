/* Goal:   the name of a model becomes the right path or the right error; nothing outside the cache
 *         is read or removed; a model appears complete or not at all.
 * Method: a cache in a new temporary folder for each case, filled through the staging folder as a
 *         pull fills it; names and manifests from tables, hostile ones included. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/tree.h"
#include "hub/staging.h"
#include "config/env.h"
#include "hub/manifest.h"
#include "hub/model_cache.h"

static const char HELLO_SHA256[] =
    "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

struct fixture {
    char folder[64];
    struct model_cache cache;
};

static int set_up(void **state) {
    static struct fixture f;
    snprintf(f.folder, sizeof(f.folder), "/tmp/test_model_cache.XXXXXX");
    assert_non_null(mkdtemp(f.folder));
    struct env_settings env = {.cache_dir = f.folder};
    assert_int_equal(model_cache_init(&f.cache, &env, NULL), ST_OK);
    *state = &f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    return tree_remove(f->folder, NULL, NULL) == ST_OK ? 0 : -1;
}

static void write_at(const char *folder, const char *name, const char *text) {
    char path[MODEL_PATH_BYTES], parent[MODEL_PATH_BYTES];
    assert_true(path_join(path, sizeof(path), folder, name));
    snprintf(parent, sizeof(parent), "%.*s", (int)(path_base(path).ptr - path - 1), path);
    assert_int_equal(file_make_dirs(parent, NULL), ST_OK);
    assert_int_equal(file_write_atomic(path, str_of(text), NULL), ST_OK);
}

/* Put a model of one file into the cache. */
static void add_model(struct fixture *f, const char *name, const char *file, bool folder_model) {
    struct staging stage;
    struct manifest m;
    struct err err = {0};
    assert_int_equal(staging_open(&stage, &f->cache, name, &err), ST_OK);
    write_at(stage.folder, file, "hello");
    write_at(stage.folder, "scrap.part", "left over");
    manifest_init(&m);
    snprintf(m.name, sizeof(m.name), "%s", name);
    snprintf(m.source, sizeof(m.source), "test");
    if (!folder_model) snprintf(m.entry, sizeof(m.entry), "%s", file);
    assert_int_equal(manifest_add(&m, file, 5, HELLO_SHA256, &err), ST_OK);
    assert_int_equal(staging_commit(&stage, &m, &err), ST_OK);
    staging_close(&stage);
    manifest_deinit(&m);
}

static void test_the_cache_is_where_the_environment_says(void **state) {
    (void)state;
    struct model_cache c;
    struct env_settings env = {.cache_dir = "/a/", .xdg_cache_home = "/x", .home = "/h"};
    assert_int_equal(model_cache_init(&c, &env, NULL), ST_OK);
    assert_string_equal(c.root, "/a");
    env.cache_dir = NULL;
    assert_int_equal(model_cache_init(&c, &env, NULL), ST_OK);
    assert_string_equal(c.root, "/x/jitney");
    env.xdg_cache_home = NULL;
    assert_int_equal(model_cache_init(&c, &env, NULL), ST_OK);
    assert_string_equal(c.root, "/h/.cache/jitney");
    env.home = NULL;
    struct err err = {0};
    assert_int_equal(model_cache_init(&c, &env, &err), ST_MISSING);
    assert_non_null(strstr(err.text, "JITNEY_CACHE"));
    /* Without a place for it, names are missing and paths still work. */
    char path[MODEL_PATH_BYTES];
    c.root[0] = 0;
    assert_int_equal(model_cache_resolve(&c, "smollm2", path, &err), ST_MISSING);
    assert_int_equal(model_cache_resolve(&c, "/tmp", path, &err), ST_OK);
}

static void test_names_that_could_leave_the_cache_are_refused(void **state) {
    (void)state;
    static const char *const good[] = {"smollm2",         "a",       "org/name",
                                       "org/name:Q4_K_M", "A.b-c_d", "name:v1"};
    static const char *const bad[] = {
        "",       ".",     "..", "../x", "a/..", "a/../b",   "/a",     "a/",
        "a/b/c",  "a:b:c", ".a", "a/.b", "a b",  "a\n",      "a\\b",   "a+b",
        "a.part", "a:",    "a*", "-a",   "a/:b", "\xC3\xA4", "a:../b", "a:b/c"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        if (!model_name_ok(good[i])) fail_msg("%s is refused", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (model_name_ok(bad[i])) fail_msg("%s is accepted", bad[i]);
    char long_name[200];
    memset(long_name, 'a', sizeof(long_name));
    long_name[97] = 0;
    assert_false(model_name_ok(long_name));
    long_name[96] = 0;
    assert_true(model_name_ok(long_name));
}

static void test_paths_in_a_manifest_stay_below_its_folder(void **state) {
    (void)state;
    static const char *const bad[] = {"",     "/x", "../x", "a/../b", "a//b",       ".hidden",
                                      "a/.b", "a/", "a\\b", "a\nb",   "jitney.json"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (manifest_path_ok(bad[i])) fail_msg("%s is accepted", bad[i]);
    assert_true(manifest_path_ok("1_Pooling/config.json"));
    assert_true(manifest_path_ok("a b (c).gguf"));
    struct manifest m;
    manifest_init(&m);
    assert_int_equal(manifest_add(&m, "../../etc/passwd", 1, "", NULL), ST_BAD);
    manifest_deinit(&m);
}

static void test_a_cached_name_resolves_to_its_file_or_folder(void **state) {
    struct fixture *f = *state;
    char path[MODEL_PATH_BYTES], expected[MODEL_PATH_BYTES];
    add_model(f, "tiny", "tiny.gguf", false);
    add_model(f, "org/name:Q8_0", "sub/x.gguf", true);
    assert_int_equal(model_cache_resolve(&f->cache, "tiny", path, NULL), ST_OK);
    snprintf(expected, sizeof(expected), "%s/models/tiny/tiny.gguf", f->folder);
    assert_string_equal(path, expected);
    assert_int_equal(model_cache_resolve(&f->cache, "hf:org/name:Q8_0", path, NULL), ST_OK);
    snprintf(expected, sizeof(expected), "%s/models/org+name:Q8_0", f->folder);
    assert_string_equal(path, expected);
}

static void test_a_path_that_exists_wins(void **state) {
    struct fixture *f = *state;
    char file[MODEL_PATH_BYTES], path[MODEL_PATH_BYTES];
    snprintf(file, sizeof(file), "%s/some.gguf", f->folder);
    write_at(f->folder, "some.gguf", "x");
    assert_int_equal(model_cache_resolve(&f->cache, file, path, NULL), ST_OK);
    assert_string_equal(path, file);
    assert_int_equal(model_cache_resolve(&f->cache, f->folder, path, NULL), ST_OK);
    assert_string_equal(path, f->folder);
}

static void expect_missing(struct fixture *f, const char *model, const char *part) {
    char path[MODEL_PATH_BYTES];
    struct err err = {0};
    assert_int_equal(model_cache_resolve(&f->cache, model, path, &err), ST_MISSING);
    if (!strstr(err.text, part)) fail_msg("\"%s\" lacks \"%s\"", err.text, part);
}

static void test_a_missing_model_says_how_to_get_it(void **state) {
    struct fixture *f = *state;
    add_model(f, "my-model", "m.gguf", false);
    expect_missing(f, "smollm2", "`jitney pull smollm2`");
    expect_missing(f, "smolm2", "did you mean smollm2?");
    expect_missing(f, "my-modl", "did you mean my-model?");
    expect_missing(f, "someorg/some-model", "`jitney pull someorg/some-model`");
    expect_missing(f, "/no/such/file.gguf", "no such file or folder");
    expect_missing(f, "zzzzzzzz", "jitney list");
    expect_missing(f, "", "no such file or folder");
}

static void test_a_file_of_another_size_is_damage(void **state) {
    struct fixture *f = *state;
    char folder[MODEL_PATH_BYTES], path[MODEL_PATH_BYTES];
    struct err err = {0};
    add_model(f, "tiny", "tiny.gguf", false);
    assert_int_equal(model_cache_folder(&f->cache, "tiny", "", folder, NULL), ST_OK);
    write_at(folder, "tiny.gguf", "hell");
    assert_int_equal(model_cache_resolve(&f->cache, "tiny", path, &err), ST_BAD);
    assert_non_null(strstr(err.text, "has 4 bytes, expected 5"));
    assert_non_null(strstr(err.text, "`jitney pull tiny`"));
}

static void test_a_same_sized_change_shows_by_time_and_checksum(void **state) {
    struct fixture *f = *state;
    char folder[MODEL_PATH_BYTES];
    struct manifest m;
    bool touched;
    add_model(f, "tiny", "tiny.gguf", false);
    assert_int_equal(model_cache_folder(&f->cache, "tiny", "", folder, NULL), ST_OK);
    manifest_init(&m);
    assert_int_equal(manifest_read(&m, folder, NULL), ST_OK);
    assert_int_equal(manifest_check(&m, folder, &touched, NULL), ST_OK);
    assert_false(touched);
    assert_int_equal(manifest_verify(&m, folder, NULL), ST_OK);
    write_at(folder, "tiny.gguf", "jello");
    assert_int_equal(manifest_check(&m, folder, &touched, NULL), ST_OK);
    assert_true(touched);
    assert_int_equal(manifest_verify(&m, folder, NULL), ST_BAD);
    manifest_deinit(&m);
}

static void test_a_hostile_manifest_is_refused(void **state) {
    struct fixture *f = *state;
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "{}",
        "{\"name\": \"x\", \"files\": []}",
        "{\"name\": \"x\", \"files\": [{\"path\": \"../../x\", \"bytes\": 1, \"sha256\": \"\"}]}",
        "{\"name\": \"x\", \"files\": [{\"path\": \"a\", \"bytes\": -1, \"sha256\": \"\"}]}",
        "{\"name\": \"x\", \"entry\": \"b\", \"files\": [{\"path\": \"a\", \"bytes\": 1}]}",
        "{\"name\": \"x\", \"entry\": \"../b\", \"files\": [{\"path\": \"a\", \"bytes\": 1}]}",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct manifest m;
        manifest_init(&m);
        write_at(f->folder, "jitney.json", texts[i]);
        if (manifest_read(&m, f->folder, NULL) != ST_BAD) fail_msg("accepted: %s", texts[i]);
        manifest_deinit(&m);
    }
}

static void test_a_commit_moves_only_what_the_manifest_lists(void **state) {
    struct fixture *f = *state;
    char folder[MODEL_PATH_BYTES], path[MODEL_PATH_BYTES];
    add_model(f, "tiny", "tiny.gguf", false);
    assert_int_equal(model_cache_folder(&f->cache, "tiny", "", folder, NULL), ST_OK);
    assert_true(path_join(path, sizeof(path), folder, "scrap.part"));
    assert_false(file_exists(path));
    assert_int_equal(model_cache_folder(&f->cache, "tiny", ".part", folder, NULL), ST_OK);
    assert_false(file_exists(folder));
    add_model(f, "tiny", "other.gguf", false); /* replaces the whole */
    assert_int_equal(model_cache_resolve(&f->cache, "tiny", path, NULL), ST_OK);
    assert_non_null(strstr(path, "other.gguf"));
}

static void test_only_one_can_change_a_model_at_a_time(void **state) {
    struct fixture *f = *state;
    struct staging first, second;
    uint64_t freed = 0;
    assert_int_equal(staging_open(&first, &f->cache, "tiny", NULL), ST_OK);
    assert_int_equal(staging_open(&second, &f->cache, "tiny", NULL), ST_FULL);
    assert_int_equal(model_cache_remove(&f->cache, "tiny", &freed, NULL), ST_FULL);
    staging_close(&first);
    assert_int_equal(staging_open(&second, &f->cache, "tiny", NULL), ST_OK);
    staging_close(&second);
}

static void test_the_list_shows_cached_partial_damaged_and_known_models(void **state) {
    struct fixture *f = *state;
    char folder[MODEL_PATH_BYTES];
    add_model(f, "org/good", "g.gguf", false);
    add_model(f, "bad", "b.gguf", false);
    assert_int_equal(model_cache_folder(&f->cache, "bad", "", folder, NULL), ST_OK);
    write_at(folder, "b.gguf", "longer than before");
    assert_int_equal(model_cache_folder(&f->cache, "half", ".part", folder, NULL), ST_OK);
    assert_int_equal(file_make_dirs(folder, NULL), ST_OK);
    write_at(folder, "h.gguf.part", "1234567");
    struct model_list list;
    assert_int_equal(model_list_create(&f->cache, &list, NULL), ST_OK);
    static const struct {
        const char *name;
        enum model_state state;
    } expected[] = {{"bad", MODEL_DAMAGED},
                    {"half", MODEL_PARTIAL},
                    {"org/good", MODEL_CACHED},
                    {"minilm", MODEL_KNOWN},
                    {"smollm2", MODEL_KNOWN}};
    assert_int_equal(list.count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(list.rows[i].name, expected[i].name);
        assert_int_equal(list.rows[i].state, expected[i].state);
    }
    assert_int_equal(list.rows[1].bytes, 7);
    assert_string_equal(list.rows[2].format, "gguf");
    model_list_destroy(&list);
}

static void test_removing_never_leaves_the_cache(void **state) {
    struct fixture *f = *state;
    char outside[MODEL_PATH_BYTES], link[MODEL_PATH_BYTES];
    uint64_t freed = 0;
    add_model(f, "tiny", "tiny.gguf", false);
    snprintf(outside, sizeof(outside), "%s/outside", f->folder);
    assert_int_equal(file_make_dirs(outside, NULL), ST_OK);
    write_at(outside, "precious", "stays");
    /* A link inside a model, and one in place of a model. */
    snprintf(link, sizeof(link), "%s/models/tiny/link", f->folder);
    assert_int_equal(symlink(outside, link), 0);
    snprintf(link, sizeof(link), "%s/models/fake", f->folder);
    assert_int_equal(symlink(outside, link), 0);
    assert_int_equal(model_cache_remove(&f->cache, "../outside", &freed, NULL), ST_MISSING);
    assert_int_equal(model_cache_remove(&f->cache, outside, &freed, NULL), ST_MISSING);
    assert_int_equal(freed, 0);
    assert_int_equal(model_cache_remove(&f->cache, "fake", &freed, NULL), ST_OK);
    assert_int_equal(model_cache_remove(&f->cache, "tiny", &freed, NULL), ST_OK);
    assert_true(freed > 5);
    assert_true(path_join(link, sizeof(link), outside, "precious"));
    assert_true(file_exists(link));
    snprintf(link, sizeof(link), "%s/models/tiny", f->folder);
    assert_false(file_exists(link));
    struct err err = {0};
    assert_int_equal(model_cache_remove(&f->cache, "smolm2", &freed, &err), ST_MISSING);
    assert_non_null(strstr(err.text, "did you mean smollm2?"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_the_cache_is_where_the_environment_says),
        cmocka_unit_test(test_names_that_could_leave_the_cache_are_refused),
        cmocka_unit_test(test_paths_in_a_manifest_stay_below_its_folder),
        CASE(test_a_cached_name_resolves_to_its_file_or_folder),
        CASE(test_a_path_that_exists_wins),
        CASE(test_a_missing_model_says_how_to_get_it),
        CASE(test_a_file_of_another_size_is_damage),
        CASE(test_a_same_sized_change_shows_by_time_and_checksum),
        CASE(test_a_hostile_manifest_is_refused),
        CASE(test_a_commit_moves_only_what_the_manifest_lists),
        CASE(test_only_one_can_change_a_model_at_a_time),
        CASE(test_the_list_shows_cached_partial_damaged_and_known_models),
        CASE(test_removing_never_leaves_the_cache),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
