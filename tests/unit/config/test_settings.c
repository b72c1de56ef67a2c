/* Goal:   every setting takes its value from the right origin and within its range.
 * Method: facts that hold for all rows of the table, checked row by row; then each rule of
 *         config/settings.h on settings chosen for it; files and an environment made here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "config/settings.h"

static void set_up(struct settings *s) { assert_int_equal(settings_init(s), ST_OK); }

static void must_set(struct settings *s, const char *name, const char *value,
                     enum setting_origin origin) {
    struct err err = {0};
    enum status st = settings_set(s, str_of(name), str_of(value), origin, &err);
    if (st != ST_OK) fail_msg("%s = %s: %s", name, value, err.text);
}

static void must_refuse(const char *name, const char *value, const char *sentence) {
    struct settings s;
    struct err err = {0};
    set_up(&s);
    assert_int_equal(settings_set(&s, str_of(name), str_of(value), FROM_FLAG, &err), ST_BAD);
    assert_string_equal(err.text, sentence);
    settings_deinit(&s);
}

static enum status read_text(struct settings *s, const char *text, struct err *err) {
    return settings_read_text(s, str_of(text), "f.conf", err);
}

static void test_every_row_is_sound(void **state) {
    (void)state;
    assert_non_null(settings_section(0));
    for (uint32_t i = 0; i < settings_count(); i++) {
        const struct setting_row *row = &setting_rows[i];
        assert_true(strlen(row->help) > 5);
        assert_int_equal(row->help[strlen(row->help) - 1], '.');
        assert_true((row->kind == SETTING_BOOL) == (row->value == NULL));
        assert_true(row->min <= row->max);
        assert_null(strchr(row->flag, '_'));
        for (uint32_t k = 0; k < i; k++) assert_string_not_equal(row->flag, setting_rows[k].flag);
    }
}

static void test_documented_settings_have_their_defaults(void **state) {
    (void)state;
    struct settings s;
    set_up(&s);
    assert_string_equal(s.host, "127.0.0.1");
    assert_int_equal(s.port, 8080);
    assert_null(s.uds);
    assert_int_equal(s.served_model_name.count, 0);
    assert_int_equal(s.kv_memory, 0);
    assert_string_equal(s.policy, "chunked");
    assert_int_equal(s.body_max, 8 << 20);
    assert_true(s.drain_s == 30);
    assert_false(s.no_auth);
    assert_string_equal(s.runner, "local");
    assert_int_equal(s.models.count, 1);
    assert_int_equal(settings_origin(&s, "port"), FROM_DEFAULT);
    settings_deinit(&s);
}

static void test_the_stronger_origin_wins_in_any_order(void **state) {
    (void)state;
    struct settings s;
    set_up(&s);
    must_set(&s, "port", "4", FROM_FLAG);
    must_set(&s, "port", "3", FROM_ENV);
    must_set(&s, "port", "2", FROM_FILE);
    assert_int_equal(s.port, 4);
    assert_int_equal(settings_origin(&s, "port"), FROM_FLAG);
    must_set(&s, "host", "file", FROM_FILE);
    must_set(&s, "host", "env", FROM_ENV);
    assert_string_equal(s.host, "env");
    must_set(&s, "host", "again", FROM_ENV);
    assert_string_equal(s.host, "again");
    settings_deinit(&s);
}

static void test_a_list_grows_within_an_origin_and_is_replaced_by_a_stronger_one(void **state) {
    (void)state;
    struct settings s;
    set_up(&s);
    must_set(&s, "model", "a", FROM_FILE);
    must_set(&s, "model", "b", FROM_FILE);
    assert_int_equal(s.models.count, 2);
    must_set(&s, "model", "c", FROM_FLAG);
    must_set(&s, "model", "d", FROM_FILE);
    assert_int_equal(s.models.count, 1);
    assert_string_equal(s.models.items[0], "c");
    for (uint32_t i = 1; i < SETTING_LIST_MAX; i++) must_set(&s, "model", "x", FROM_FLAG);
    struct err err = {0};
    assert_int_equal(settings_set(&s, STR("model"), STR("x"), FROM_FLAG, &err), ST_BAD);
    assert_string_equal(err.text, "model is given more than 64 times, which is the maximum");
    settings_deinit(&s);
}

static void test_sizes_are_powers_of_1024(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"512", 512},
        {"64K", 65536},
        {"64k", 65536},
        {"3M", 3u << 20},
        {"2G", 2ull << 30},
        {"1T", 1ull << 40},
        {"4T", 1ull << 42},
        {"2GiB", 2ull << 30},
        {"4398046511104", 1ull << 42},
    };
    struct settings s;
    set_up(&s);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        must_set(&s, "kv-memory", cases[i].text, FROM_FLAG);
        assert_true(s.kv_memory == cases[i].bytes);
    }
    settings_deinit(&s);
    const char *const bad[] = {"",
                               "K",
                               "-1",
                               "1.5G",
                               "1 G",
                               "1KB",
                               "5T",
                               "1P",
                               "0x10",
                               "iB",
                               "18446744073709551615",
                               "17179869184G",
                               "1GG",
                               "1iB5"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char sentence[200];
        snprintf(sentence, sizeof(sentence),
                 "--kv-memory is \"%s\"; it must be a size such as 512, 64K or 2G, from 0 to 4T",
                 bad[i]);
        must_refuse("kv-memory", bad[i], sentence);
    }
}

static void test_values_out_of_range_and_unknown_names_are_refused(void **state) {
    (void)state;
    must_refuse("port", "65536", "--port is \"65536\"; it must be a whole number from 0 to 65535");
    must_refuse("port", "80a", "--port is \"80a\"; it must be a whole number from 0 to 65535");
    must_refuse("drain-s", "-1", "--drain-s is \"-1\"; it must be a number from 0 to 86400");
    must_refuse("drain-s", "nan", "--drain-s is \"nan\"; it must be a number from 0 to 86400");
    must_refuse("no-auth", "maybe", "--no-auth is \"maybe\"; it must be true or false");
    must_refuse("log-format", "xml", "--log-format is \"xml\"; it must be one of logfmt|json");
    must_refuse("host", "", "--host is \"\"; it must be text without control characters");
    must_refuse("host", "a\nb", "--host is \"a?b\"; it must be text without control characters");
    must_refuse("kv_memory", "1G", "unknown setting \"kv_memory\"; did you mean kv-memory?");
    must_refuse("prot", "1", "unknown setting \"prot\"; did you mean port?");
    must_refuse("colour", "1", "unknown setting \"colour\"; \"jitney serve --help\" lists them");
}

static void test_a_file_is_lines_of_name_and_value(void **state) {
    (void)state;
    struct settings s;
    struct err err = {0};
    set_up(&s);
    const char *text = "# a comment\n"
                       "\n"
                       "  port=81   # the port\r\n"
                       "host = \"a # b\\\"\\\\\"  # quoted\n"
                       "model = one\n"
                       "model = two#2\n"
                       "no-auth = yes\n"
                       "keep-memory = 1M";
    assert_int_equal(read_text(&s, text, &err), ST_OK);
    assert_int_equal(s.port, 81);
    assert_string_equal(s.host, "a # b\"\\");
    assert_int_equal(s.models.count, 2);
    assert_string_equal(s.models.items[1], "two#2");
    assert_true(s.no_auth);
    assert_int_equal(s.keep_memory, 1 << 20);
    assert_int_equal(settings_origin(&s, "port"), FROM_FILE);
    settings_deinit(&s);
}

static void test_a_mistake_in_a_file_names_its_line(void **state) {
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"\nport 80\n", "f.conf:2: not a setting; expected \"name = value\""},
        {"port = 80\nport = x", "f.conf:2: port is \"x\"; it must be a whole number from 0 to "
                                "65535"},
        {"prot = 80", "f.conf:1: unknown setting \"prot\"; did you mean port?"},
        {"host = \"a", "f.conf:1: the quoted value has no closing quote, or text follows it"},
        {"host = \"a\" b", "f.conf:1: the quoted value has no closing quote, or text follows it"},
        {"host =", "f.conf:1: host is \"\"; it must be text without control characters"},
        {"= 5", "f.conf:1: unknown setting \"\"; \"jitney serve --help\" lists them"},
        {"config = other",
         "f.conf:1: a config file cannot name another config file; remove this line"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct settings s;
        struct err err = {0};
        set_up(&s);
        assert_int_equal(read_text(&s, cases[i].text, &err), ST_BAD);
        assert_string_equal(err.text, cases[i].sentence);
        settings_deinit(&s);
    }
}

static const char *look_up(const char *name) {
    if (strcmp(name, "JITNEY_PORT") == 0) return "99";
    if (strcmp(name, "JITNEY_MODEL") == 0) return "a, b,,c";
    if (strcmp(name, "JITNEY_KV_MEMORY") == 0) return "3G";
    return NULL;
}

static const char *look_up_bad(const char *name) {
    return strcmp(name, "JITNEY_DRAIN_S") == 0 ? "soon" : NULL;
}

static void test_the_environment_has_a_variable_for_every_flag(void **state) {
    (void)state;
    struct settings s;
    struct err err = {0};
    set_up(&s);
    assert_int_equal(settings_read_env(&s, look_up, &err), ST_OK);
    assert_int_equal(s.port, 99);
    assert_int_equal(s.models.count, 3);
    assert_string_equal(s.models.items[1], "b");
    assert_true(s.kv_memory == 3ull << 30);
    assert_int_equal(settings_read_env(&s, look_up_bad, &err), ST_BAD);
    assert_string_equal(err.text, "JITNEY_DRAIN_S is \"soon\"; it must be a number from 0 to "
                                  "86400");
    settings_deinit(&s);
}

static void test_the_printed_settings_are_a_file_with_the_same_effect(void **state) {
    (void)state;
    struct settings s, again;
    struct buf first, second;
    struct err err = {0};
    set_up(&s);
    must_set(&s, "model", "a # b", FROM_FLAG);
    must_set(&s, "model", " \"q\"\\", FROM_FLAG);
    must_set(&s, "drain-s", "0.1", FROM_ENV);
    must_set(&s, "body-max", "1025", FROM_FILE);
    must_set(&s, "keep-memory", "3M", FROM_FILE);
    buf_init(&first, 1 << 16);
    buf_init(&second, 1 << 16);
    settings_print(&s, &first);
    set_up(&again);
    assert_int_equal(settings_read_text(&again, buf_str(&first), "printed", &err), ST_OK);
    assert_string_equal(again.models.items[1], " \"q\"\\");
    assert_true(again.drain_s == 0.1);
    settings_print(&again, &second);
    struct settings third;
    set_up(&third);
    assert_int_equal(settings_read_text(&third, buf_str(&second), "printed", &err), ST_OK);
    buf_clear(&first);
    settings_print(&third, &first);
    assert_string_equal(buf_text(&first), buf_text(&second));
    settings_deinit(&s);
    settings_deinit(&again);
    settings_deinit(&third);
    buf_deinit(&first);
    buf_deinit(&second);
}

static void test_printing_shows_the_origin_of_values(void **state) {
    (void)state;
    struct settings s;
    struct buf out;
    set_up(&s);
    must_set(&s, "port", "1", FROM_ENV);
    buf_init(&out, 1 << 16);
    settings_print(&s, &out);
    const char *text = buf_text(&out);
    assert_non_null(strstr(text, "# Listening\n"));
    const char *port = strstr(text, "\nport = 1 ");
    assert_non_null(port);
    size_t line = strcspn(port + 1, "\n");
    assert_memory_equal(port + 1 + line - 13, "# environment", 13);
    assert_non_null(strstr(text, "\n# uds = "));
    assert_non_null(strstr(text, "\nbody-max = 8M "));
    settings_deinit(&s);
    buf_deinit(&out);
}

static void write_file(const char *path, const char *text) {
    struct err err = {0};
    assert_int_equal(file_write_atomic(path, str_of(text), &err), ST_OK);
}

static void test_a_reload_changes_some_settings_and_names_those_that_need_a_restart(void **state) {
    (void)state;
    char path[64];
    snprintf(path, sizeof(path), "/tmp/test_settings.%d.conf", (int)getpid());
    struct settings s, next;
    struct err err = {0};
    struct buf restart;
    buf_init(&restart, 1000);
    write_file(path, "port = 81\nlog-level = info\nkeep-s = 5\nping-s = 7\n");
    set_up(&s);
    must_set(&s, "config", path, FROM_FLAG);
    must_set(&s, "keep-s", "9", FROM_FLAG);
    assert_int_equal(settings_read_file(&s, path, &err), ST_OK);

    write_file(path, "port = 82\nlog-level = debug\nkeep-s = 6\nkv-memory = 2G\n");
    assert_int_equal(settings_reload(&s, &next, &restart, &err), ST_OK);
    assert_int_equal(next.port, 81);
    assert_string_equal(next.log_level, "debug");
    assert_true(next.keep_s == 9);
    assert_true(next.ping_s == 15); /* gone from the file: the default again */
    assert_true(next.kv_memory == 0);
    assert_string_equal(buf_text(&restart), "kv-memory, port");
    assert_int_equal(settings_origin(&next, "keep-s"), FROM_FLAG);
    assert_int_equal(settings_origin(&next, "ping-s"), FROM_DEFAULT);
    settings_deinit(&next);

    write_file(path, "port = nonsense\n");
    next = (struct settings){0};
    assert_int_equal(settings_reload(&s, &next, &restart, &err), ST_BAD);
    assert_null(next.origins);
    unlink(path);
    assert_int_equal(settings_reload(&s, &next, &restart, &err), ST_MISSING);
    settings_deinit(&s);
    buf_deinit(&restart);
}

static void test_a_copy_shares_nothing(void **state) {
    (void)state;
    struct settings s, copy;
    set_up(&s);
    must_set(&s, "model", "a", FROM_FLAG);
    must_set(&s, "uds", "/x", FROM_ENV);
    assert_int_equal(settings_copy(&s, &copy), ST_OK);
    settings_deinit(&s);
    assert_string_equal(copy.models.items[0], "a");
    assert_string_equal(copy.uds, "/x");
    assert_int_equal(settings_origin(&copy, "uds"), FROM_ENV);
    settings_deinit(&copy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_is_sound),
        cmocka_unit_test(test_documented_settings_have_their_defaults),
        cmocka_unit_test(test_the_stronger_origin_wins_in_any_order),
        cmocka_unit_test(test_a_list_grows_within_an_origin_and_is_replaced_by_a_stronger_one),
        cmocka_unit_test(test_sizes_are_powers_of_1024),
        cmocka_unit_test(test_values_out_of_range_and_unknown_names_are_refused),
        cmocka_unit_test(test_a_file_is_lines_of_name_and_value),
        cmocka_unit_test(test_a_mistake_in_a_file_names_its_line),
        cmocka_unit_test(test_the_environment_has_a_variable_for_every_flag),
        cmocka_unit_test(test_the_printed_settings_are_a_file_with_the_same_effect),
        cmocka_unit_test(test_printing_shows_the_origin_of_values),
        cmocka_unit_test(test_a_reload_changes_some_settings_and_names_those_that_need_a_restart),
        cmocka_unit_test(test_a_copy_shares_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
