/* Goal:   the small tools of base/ keep their contracts at the edges.
 * Method: named cases; a seeded walk of map against a plain array; pool under many runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/cursor.h"
#include "base/file.h"
#include "base/json.h"
#include "base/map.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/str.h"
#include "base/utf8.h"
#include "unit/json_lib.h"

static void test_buf_remembers_that_it_was_full(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 4);
    buf_put_text(&b, "abcd");
    assert_int_equal(buf_status(&b), ST_OK);
    buf_put_char(&b, 'e');
    buf_put_text(&b, "");
    assert_int_equal(buf_status(&b), ST_FULL);
    assert_string_equal(buf_text(&b), "abcd");
    buf_clear(&b);
    buf_put_json_string(&b, STR("\n"));
    assert_string_equal(buf_text(&b), "\"\\n\"");
    buf_deinit(&b);
}

/* Lines of JSON are cut by readers with ideas of their own about where a line ends. */
static void test_json_strings_hold_nothing_that_ends_a_line(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    buf_put_json_string(&b, STR("\v\f\x1c\xc2\x85\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa"));
    assert_string_equal(buf_text(&b), "\"\\u000b\\u000c\\u001c\\u0085\\u2028\\u2029\xe2\x80\xaa\"");
    buf_deinit(&b);
}

static void test_plain_text_holds_nothing_that_a_terminal_obeys(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    buf_put_plain(&b, STR("a\x1b[2J\n\x7f\xc2\x9b \xc3\xa9\xff\xe2\x82"));
    assert_string_equal(buf_text(&b), "a?[2J??? \xc3\xa9??");
    buf_deinit(&b);
}

static void test_utf8_bad_sequences_are_as_long_as_their_valid_prefix(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    utf8_put_lossy(&b, STR("a\xF0\x9F\x98z\xC0\xAF\xED\xA0\x80\xE2\x82"));
    assert_string_equal(buf_text(&b), "a\xEF\xBF\xBDz\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
                                      "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    buf_deinit(&b);
    assert_int_equal(utf8_complete_len(STR("ab\xE2\x82")), 2);
    assert_int_equal(utf8_complete_len(STR("ab\xE2\x82\xAC")), 5);
    assert_int_equal(utf8_complete_len(STR("ab\x82\x82\x82\x82")), 6);
}

static void test_utf8_round_trips_every_character(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 0x110000; code++) {
        if (code >= 0xD800 && code < 0xE000) continue;
        char bytes[4];
        uint32_t back;
        size_t len = utf8_encode(code, bytes);
        assert_int_equal(utf8_decode((struct str){bytes, len}, &back), len);
        assert_int_equal(back, code);
    }
}

static void test_numbers_are_read_strictly(void **state) {
    (void)state;
    uint64_t u;
    int64_t i;
    double d;
    assert_true(str_to_u64(STR("18446744073709551615"), &u));
    assert_false(str_to_u64(STR("18446744073709551616"), &u));
    assert_false(str_to_u64(STR(""), &u));
    assert_false(str_to_u64(STR("+1"), &u));
    assert_true(str_to_i64(STR("-9223372036854775808"), &i));
    assert_int_equal(i, INT64_MIN);
    assert_false(str_to_i64(STR("9223372036854775808"), &i));
    assert_true(str_to_f64(STR("1e-3"), &d));
    assert_false(str_to_f64(STR("1e"), &d));
    assert_false(str_to_f64(STR(" 1"), &d));
    assert_int_equal(str_distance(STR("genrate"), STR("generate")), 1);
}

static void test_cursor_gives_zeros_after_the_end(void **state) {
    (void)state;
    struct cursor c = cursor_of("\x01\x02\x03", 3);
    assert_int_equal(cursor_u16(&c), 0x0201);
    assert_int_equal(cursor_u32(&c), 0);
    assert_true(c.failed);
    assert_int_equal(cursor_u8(&c), 0);
    assert_int_equal(cursor_left(&c), 0);
}

static void test_json_limits_hold(void **state) {
    (void)state;
    struct json_limits tight = {.bytes_max = 30, .depth_max = 2, .values_max = 8};
    struct json *doc;
    struct err err = {0};
    assert_int_equal(json_parse(STR("[[1]]"), &tight, &doc, &err), ST_OK);
    assert_int_equal(json_int(json_at(json_at(doc, 0), 0), -1), 1);
    json_destroy(doc);
    static const char *const deep[] = {"[[[1]]]", "{\"a\":{\"b\":{}}}", "[{\"a\":[1]}]",
                                       "{\"a\":[{\"b\":1}]}", "[[],[{\"a\":{}}]]"};
    for (size_t i = 0; i < sizeof(deep) / sizeof(deep[0]); i++)
        assert_int_equal(json_parse(str_of(deep[i]), &tight, &doc, &err), ST_BAD);
    assert_int_equal(json_parse(STR("[1,2,3,4,5,6,7,8]"), &tight, &doc, &err), ST_BAD);
    assert_int_equal(json_parse(STR("\"[[[[[[[\""), &tight, &doc, &err), ST_OK);
    json_destroy(doc);
    assert_int_equal(json_parse(STR("{\"a\": nope}"), &tight, &doc, &err), ST_BAD);
    assert_int_equal(json_parse(STR("{\"a\":{\"b\":7}}"), &tight, &doc, &err), ST_OK);
    assert_int_equal(json_int(json_path(doc, "a.b"), -1), 7);
    assert_int_equal(json_kind(json_path(doc, "a.c")), JS_NONE);
    json_destroy(doc);
}

/* Such numbers are read from a changed copy of the text, which is freed in any case. */
static void test_invalid_json_with_a_number_beyond_64_bits_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "[1000000000000000019884624838656,", "{\"a\":1000000000000000019884624838656}}",
        "[-1000000000000000019884624838656 1]", "1000000000000000019884624838656x"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct json *doc;
        struct err err = {0};
        assert_int_equal(json_parse(str_of(texts[i]), &json_limits_request, &doc, &err), ST_BAD);
    }
}

static void test_json_that_is_put_reads_as_the_same(void **state) {
    (void)state;
    static const char *const texts[] = {
        "null",
        "[true,false,null,-7,0]",
        "{\"b\":\"x\\\"\\n\\u0000\\u0001\",\"a\":[{},[]]}",
        "[1.0,-0.5,1e+300,0.1,0.30000000000000004]",
        "[\"\xc3\xa9\xf0\x9f\x98\x80\"]",
    };
    struct buf out;
    buf_init(&out, 1000);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct json *doc;
        assert_int_equal(json_parse(str_of(texts[i]), &json_limits_request, &doc, NULL), ST_OK);
        buf_clear(&out);
        json_put(doc, &out);
        assert_string_equal(buf_text(&out), texts[i]);
        json_destroy(doc);
    }
    buf_deinit(&out);
}

static void test_json_trees_are_built_and_share_values(void **state) {
    (void)state;
    struct json *doc = json_of("{\"a\":[1,\"x\"],\"b\":1e2}"), *tree = json_map_create();
    struct json *list = json_list_create();
    assert_int_equal(json_push(list, json_pin(json_get(doc, "a"))), ST_OK);
    assert_int_equal(json_push(list, json_text_create(STR("\"\xff\""))), ST_OK);
    assert_int_equal(json_push(list, json_text_create((struct str){NULL, 0})), ST_OK);
    assert_int_equal(json_set(tree, STR("k"), json_bool_create(true)), ST_OK);
    assert_int_equal(json_set(tree, STR("l"), list), ST_OK);
    assert_int_equal(json_set(tree, STR("k"), json_null_create()), ST_OK); /* in its place */
    json_destroy(doc);
    assert_true(json_is(tree, "{\"k\":null,\"l\":[[1,\"x\"],\"\\\"\xEF\xBF\xBD\\\"\",\"\"]}"));
    /* Values: the map, null, two lists, 1, three texts; keys k and l; texts of 1, 5 and 0 bytes. */
    assert_int_equal(json_weight(tree), 8 + 2 + 6);
    json_destroy(tree);
}

static void test_json_trees_report_what_could_not_be_created(void **state) {
    (void)state;
    struct json *map = json_map_create(), *list = json_list_create();
    assert_int_equal(json_set(map, STR("k"), NULL), ST_NOMEM);
    assert_int_equal(json_push(list, NULL), ST_NOMEM);
    assert_int_equal(json_set(NULL, STR("k"), json_text_create(STR("x"))), ST_NOMEM);
    assert_int_equal(json_push(NULL, json_text_create(STR("x"))), ST_NOMEM);
    assert_null(json_pin(NULL));
    json_destroy(map);
    json_destroy(list);
}

static void test_buf_writes_numbers_and_the_inside_of_strings(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    buf_put_uint(&b, 0);
    buf_put_char(&b, ' ');
    buf_put_uint(&b, UINT64_MAX);
    buf_put_json_inner(&b, STR(" a\"b\xff\x7f\\"));
    assert_string_equal(buf_text(&b), "0 18446744073709551615 a\\\"b\xEF\xBF\xBD\\u007f\\\\");
    buf_deinit(&b);
}

static void test_json_whole_numbers_past_int64_become_real(void **state) {
    (void)state;
    struct json *doc;
    struct err err = {0};
    struct str text = STR("{\"max\":1000000000000000019884624838656,\"s\":\"12345678901234567890\","
                          "\"l\":[-9223372036854775809,-9223372036854775808,9223372036854775807,"
                          "9223372036854775808,0.12345678901234567890,12345678901234567890e2]}");
    assert_int_equal(json_parse(text, &json_limits_request, &doc, &err), ST_OK);
    const struct json *l = json_get(doc, "l");
    assert_true(json_num(json_get(doc, "max"), 0) == 1000000000000000019884624838656.0);
    assert_true(str_is(json_str(json_get(doc, "s")), "12345678901234567890"));
    assert_int_equal(json_kind(json_at(l, 0)), JS_REAL);
    assert_true(json_int(json_at(l, 1), 0) == INT64_MIN);
    assert_true(json_int(json_at(l, 2), 0) == INT64_MAX);
    assert_true(json_num(json_at(l, 3), 0) == 9223372036854775808.0);
    assert_true(json_num(json_at(l, 4), 0) == 0.12345678901234567890);
    assert_true(json_num(json_at(l, 5), 0) == 12345678901234567890e2);
    json_destroy(doc);
    assert_int_equal(json_parse(STR("12345678901234567890"), &json_limits_request, &doc, &err),
                     ST_OK);
    assert_true(json_num(doc, 0) == 12345678901234567890.0);
    json_destroy(doc);
    assert_int_equal(json_parse(STR("12345678901234567890 x"), &json_limits_request, &doc, &err),
                     ST_BAD);
}

static void test_map_agrees_with_an_array(void **state) {
    (void)state;
    enum { KEYS = 500, STEPS = 20000 };
    static char names[KEYS][8];
    uint32_t model[KEYS];
    bool present[KEYS] = {false};
    struct rng rng = {.seed = 7};
    struct map *m = map_create(0);
    assert_non_null(m);
    for (uint32_t i = 0; i < KEYS; i++) snprintf(names[i], sizeof(names[i]), "k%u", i);
    for (int step = 0; step < STEPS; step++) {
        uint32_t i = (uint32_t)rng_below(&rng, KEYS);
        uint32_t found;
        assert_int_equal(map_find(m, str_of(names[i]), &found), present[i]);
        if (present[i]) assert_int_equal(found, model[i]);
        model[i] = (uint32_t)rng_next(&rng);
        present[i] = true;
        assert_int_equal(map_put(m, str_of(names[i]), model[i]), ST_OK);
    }
    map_destroy(m);
}

static void test_arena_stops_at_its_limit(void **state) {
    (void)state;
    struct arena *a = arena_create(10000);
    assert_non_null(arena_alloc(a, 6000));
    assert_null(arena_alloc(a, 6000));
    assert_non_null(arena_alloc(a, 3000));
    assert_null(arena_zalloc_array(a, SIZE_MAX / 2, 3));
    arena_reset(a);
    assert_int_equal(arena_used(a), 0);
    assert_string_equal(arena_dup(a, STR("hi")).ptr, "hi");
    arena_destroy(a);
}

struct tally {
    struct pool *pool;
    uint32_t slots[POOL_THREADS_MAX];
    uint32_t sums[POOL_THREADS_MAX];
};

static void count_twice(void *ctx, uint32_t idx, uint32_t count) {
    struct tally *t = ctx;
    t->slots[idx]++;
    pool_barrier(t->pool);
    t->sums[idx] = 0;
    for (uint32_t i = 0; i < count; i++) t->sums[idx] += t->slots[i];
    pool_barrier(t->pool);
}

static void test_pool_runs_everyone_and_barriers_publish(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 5; threads++) {
        struct tally t = {0};
        assert_int_equal(pool_create(&t.pool, threads, NULL), ST_OK);
        for (uint32_t run = 1; run <= 200; run++) {
            pool_run(t.pool, count_twice, &t);
            for (uint32_t i = 0; i < threads; i++) assert_int_equal(t.sums[i], threads * run);
        }
        pool_destroy(t.pool);
    }
}

static void test_a_pipe_is_refused_without_waiting_for_a_writer(void **state) {
    (void)state;
    char folder[] = "/tmp/jitney-test-XXXXXX", path[64];
    struct file_map map;
    struct err err = {0};
    assert_non_null(mkdtemp(folder));
    assert_true(path_join(path, sizeof(path), folder, "pipe"));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(file_map_open(path, &map, &err), ST_BAD);
    assert_non_null(strstr(err.text, "a pipe"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* A reader that opened the old file goes on reading it: the new one is another inode. */
static void test_an_atomic_write_replaces_the_file_and_leaves_no_other(void **state) {
    (void)state;
    char folder[] = "/tmp/jitney-test-XXXXXX", path[64];
    struct file_map old;
    struct buf now;
    struct err err = {0};
    assert_non_null(mkdtemp(folder));
    assert_true(path_join(path, sizeof(path), folder, "file"));
    assert_int_equal(file_write_atomic(path, STR("first"), &err), ST_OK);
    assert_int_equal(file_map_open(path, &old, &err), ST_OK);
    assert_int_equal(file_write_atomic(path, STR("2nd"), &err), ST_OK);
    assert_memory_equal(old.ptr, "first", 5);
    file_map_close(&old);
    buf_init(&now, 100);
    assert_int_equal(file_read(path, &now, &err), ST_OK);
    assert_string_equal(buf_text(&now), "2nd");
    buf_deinit(&now);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0); /* what cannot be replaced stays, and no part of ours */
    assert_int_equal(file_write_atomic(path, STR("third"), &err), ST_IO);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(folder), 0); /* fails if anything is left in it */
}

static void test_an_open_file_by_its_number_is_appended_to_and_stays(void **state) {
    (void)state;
    char folder[] = "/tmp/jitney-test-XXXXXX", file[64], link[64], number[64], to[64];
    struct err err = {0};
    struct buf now;
    assert_non_null(mkdtemp(folder));
    assert_true(path_join(file, sizeof(file), folder, "file"));
    assert_true(path_join(link, sizeof(link), folder, "link"));
    for (int append = 0; append < 2; append++) {
        int fd = open(file, O_RDWR | O_CREAT | (append ? O_APPEND : 0), 0600);
        assert_int_equal(write(fd, "first ", 6), 6);
        snprintf(number, sizeof(number), "/proc/self/fd/%d", fd);
        assert_int_equal(symlink(number, link), 0); /* as /dev/stdout is one */
        assert_true(file_is_stream(link));
        assert_false(file_is_stream(file));
        assert_true(file_follow(link, to, sizeof(to)));
        assert_string_equal(to, number);
        assert_int_equal(file_write_atomic(link, STR("second "), &err), ST_OK);
        assert_int_equal(write(fd, "third", 5), 5);
        buf_init(&now, 100);
        assert_int_equal(file_read(file, &now, &err), ST_OK);
        assert_string_equal(buf_text(&now), "first second third");
        buf_deinit(&now);
        assert_int_equal(unlink(file), 0); /* its name is now "file (deleted)" */
        assert_int_equal(file_write_atomic(link, STR("more"), &err), ST_OK);
        assert_int_equal(lseek(fd, 0, SEEK_END), 22);
        assert_int_equal(close(fd), 0);
        assert_int_equal(unlink(link), 0);
    }
    assert_int_equal(rmdir(folder), 0); /* nothing else was made */
}

static void test_a_symbolic_link_is_written_through_and_stays(void **state) {
    (void)state;
    char folder[] = "/tmp/jitney-test-XXXXXX", file[64], link[64], far[64], to[64];
    struct err err = {0};
    struct buf now;
    assert_non_null(mkdtemp(folder));
    assert_true(path_join(file, sizeof(file), folder, "file"));
    assert_true(path_join(link, sizeof(link), folder, "link"));
    assert_true(path_join(far, sizeof(far), folder, "far"));
    assert_int_equal(symlink("file", link), 0); /* beside it */
    assert_int_equal(symlink(link, far), 0);
    for (int i = 0; i < 2; i++) { /* first it points at nothing */
        assert_true(file_follow(far, to, sizeof(to)));
        assert_string_equal(to, file);
        assert_int_equal(file_write_atomic(far, i ? STR("2nd") : STR("1st"), &err), ST_OK);
        buf_init(&now, 100);
        assert_int_equal(file_read(file, &now, &err), ST_OK);
        assert_string_equal(buf_text(&now), i ? "2nd" : "1st");
        buf_deinit(&now);
        assert_int_equal(unlink(file), 0);
        if (i == 0) assert_int_equal(file_write_atomic(file, STR("old"), &err), ST_OK);
    }
    assert_false(file_follow(far, to, 8));
    assert_int_equal(unlink(link), 0); /* still links */
    assert_int_equal(symlink(far, link), 0);
    assert_false(file_follow(far, to, sizeof(to)));
    assert_int_equal(file_write_atomic(far, STR("x"), &err), ST_CREATE);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(unlink(far), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void test_rng_is_a_function_of_its_place(void **state) {
    (void)state;
    assert_int_equal(rng_at(0, 0, 0), rng_at(0, 0, 0));
    assert_int_not_equal(rng_at(1, 2, 3), rng_at(1, 2, 4));
    assert_int_not_equal(rng_at(1, 2, 3), rng_at(1, 3, 3));
    assert_int_not_equal(rng_at(1, 2, 3), rng_at(2, 2, 3));
    double sum = 0;
    for (uint64_t i = 0; i < 10000; i++) sum += rng_unit_at(9, 0, i);
    assert_true(sum > 4900 && sum < 5100);
    assert_int_equal((uint32_t)rng_at(0, 0, 0), 0x6627e8d5u); /* Random123's known answer */
}

static void test_a_device_is_written_into_and_not_replaced(void **state) {
    (void)state;
    struct err err = {0};
    assert_false(file_is_regular("/dev/null"));
    assert_int_equal(file_write_atomic("/dev/null", STR("gone"), &err), ST_OK);
    assert_true(file_exists("/dev/null"));
    assert_false(file_is_regular("/dev/null"));
    assert_int_equal(file_write_atomic("/dev/full", STR("x"), &err), ST_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buf_remembers_that_it_was_full),
        cmocka_unit_test(test_json_strings_hold_nothing_that_ends_a_line),
        cmocka_unit_test(test_plain_text_holds_nothing_that_a_terminal_obeys),
        cmocka_unit_test(test_utf8_bad_sequences_are_as_long_as_their_valid_prefix),
        cmocka_unit_test(test_utf8_round_trips_every_character),
        cmocka_unit_test(test_numbers_are_read_strictly),
        cmocka_unit_test(test_cursor_gives_zeros_after_the_end),
        cmocka_unit_test(test_json_limits_hold),
        cmocka_unit_test(test_invalid_json_with_a_number_beyond_64_bits_is_refused),
        cmocka_unit_test(test_json_that_is_put_reads_as_the_same),
        cmocka_unit_test(test_json_trees_are_built_and_share_values),
        cmocka_unit_test(test_json_trees_report_what_could_not_be_created),
        cmocka_unit_test(test_buf_writes_numbers_and_the_inside_of_strings),
        cmocka_unit_test(test_json_whole_numbers_past_int64_become_real),
        cmocka_unit_test(test_map_agrees_with_an_array),
        cmocka_unit_test(test_arena_stops_at_its_limit),
        cmocka_unit_test(test_pool_runs_everyone_and_barriers_publish),
        cmocka_unit_test(test_a_pipe_is_refused_without_waiting_for_a_writer),
        cmocka_unit_test(test_an_atomic_write_replaces_the_file_and_leaves_no_other),
        cmocka_unit_test(test_an_open_file_by_its_number_is_appended_to_and_stays),
        cmocka_unit_test(test_a_symbolic_link_is_written_through_and_stays),
        cmocka_unit_test(test_rng_is_a_function_of_its_place),
        cmocka_unit_test(test_a_device_is_written_into_and_not_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
