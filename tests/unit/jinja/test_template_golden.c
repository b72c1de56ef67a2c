/* Goal:   templates give byte for byte what Python's jinja2 gives, and errors where it does.
 * Method: replay golden files made by tools/make_template_goldens.py: the language in small
 *         snippets, families of chat templates over many conversations, and, where the
 *         environment variable JITNEY_TEMPLATE_GOLDENS names a folder, every file in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "jinja/template.h"

enum { FILE_MAX = 256 << 20, OUT_MAX = 64 << 20, SHOWN_MAX = 40 };

struct tally {
    unsigned cases, wrong;
};

static const char *shown(struct buf *b, struct str s) {
    buf_clear(b);
    buf_put_json_string(b, str_take(s, 600));
    return buf_text(b);
}

static void report(const struct json *c, struct str source, struct str want, struct str got) {
    struct buf a, b, d;
    buf_init(&a, OUT_MAX);
    buf_init(&b, OUT_MAX);
    buf_init(&d, OUT_MAX);
    struct str name = json_str(json_get(c, "T"));
    fprintf(stderr, "template %.*s %s vars %.*s\n  want %s\n  got  %s\n", STR_ARG(name),
            name.len ? "" : shown(&a, source), STR_ARG(json_str(json_get(c, "v"))), shown(&b, want),
            shown(&d, got));
    buf_deinit(&a);
    buf_deinit(&b);
    buf_deinit(&d);
}

static enum status render(struct str source, const struct json *vars, int64_t now_s,
                          struct buf *out, struct err *err) {
    struct template *t = NULL;
    enum status st = template_create(source, &t, err);
    if (st == ST_OK) st = template_render(t, vars, now_s, &template_limits_default, out, err);
    template_destroy(t);
    return st;
}

static void run_case(const struct json *doc, const struct json *c, struct tally *tally) {
    char key[256];
    struct json *by_name = json_get(c, "T");
    if (by_name) {
        snprintf(key, sizeof(key), "%.*s", STR_ARG(json_str(by_name)));
        by_name = json_get(json_get(doc, "templates"), key);
    }
    struct str source = json_str(by_name ? by_name : json_get(c, "t"));
    snprintf(key, sizeof(key), "%.*s", STR_ARG(json_str(json_get(c, "v"))));
    const struct json *vars = json_get(json_get(doc, "vars"), key);
    const struct json *want = json_get(c, "w");
    struct buf out;
    struct err err = {0};
    buf_init(&out, OUT_MAX);
    enum status st = render(source, vars, json_int(json_get(doc, "now"), 0), &out, &err);
    struct str got = st == ST_OK ? buf_str(&out) : str_of(err.text);
    bool is_right =
        want ? st == ST_OK && str_eq(got, json_str(want)) : st != ST_OK && err.text[0] != 0;
    tally->cases++;
    if (!is_right && tally->wrong++ < SHOWN_MAX)
        report(c, source, want ? json_str(want) : STR("(an error)"), got);
    buf_deinit(&out);
}

static void run_file(const char *path, struct tally *tally) {
    static const struct json_limits limits = {
        .bytes_max = FILE_MAX, .depth_max = 200, .values_max = 50u << 20};
    struct buf text;
    struct json *doc = NULL;
    struct err err = {0};
    buf_init(&text, FILE_MAX);
    if (file_read(path, &text, &err) != ST_OK ||
        json_parse(buf_str(&text), &limits, &doc, &err) != ST_OK)
        fail_msg("%s: %s", path, err.text);
    const struct json *cases = json_get(doc, "cases");
    for (size_t i = 0; i < json_count(cases); i++) run_case(doc, json_at(cases, i), tally);
    json_destroy(doc);
    buf_deinit(&text);
}

static void run_folder(const char *folder, struct tally *tally) {
    DIR *dir = opendir(folder);
    if (!dir) return;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        char path[4096];
        if (!str_ends(str_of(e->d_name), STR(".json"))) continue;
        if (path_join(path, sizeof(path), folder, e->d_name)) run_file(path, tally);
    }
    closedir(dir);
}

static void test_committed_goldens_match_jinja2(void **state) {
    (void)state;
    struct tally tally = {0};
    run_folder(TEST_SOURCE_DIR "/golden/template", &tally);
    print_message("%u cases, %u wrong\n", tally.cases, tally.wrong);
    assert_true(tally.cases > 1000);
    assert_int_equal(tally.wrong, 0);
}

static void test_goldens_outside_the_tree_match_jinja2(void **state) {
    (void)state;
    const char *folder = getenv("JITNEY_TEMPLATE_GOLDENS");
    if (!folder) skip();
    struct tally tally = {0};
    run_folder(folder, &tally);
    print_message("%u cases, %u wrong\n", tally.cases, tally.wrong);
    assert_true(tally.cases > 0);
    assert_int_equal(tally.wrong, 0);
}

int main(void) {
    setenv("TZ", "UTC0", 1); /* strftime_now shows local time */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_committed_goldens_match_jinja2),
        cmocka_unit_test(test_goldens_outside_the_tree_match_jinja2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
