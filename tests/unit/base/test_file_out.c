/* Goal:   a new file is seen whole or not at all, whatever happens before it is published.
 * Method: every step with both ways of writing (without a name, and as NAME.part), and what other
 *         processes may have left or made meanwhile; the folder is listed after each. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/file_out.h"

struct place {
    char folder[64], path[128], part[160];
};

static void make_place(struct place *p) {
    snprintf(p->folder, sizeof(p->folder), "/tmp/jitney-test-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->path, sizeof(p->path), "%s/new", p->folder);
    snprintf(p->part, sizeof(p->part), "%s.part", p->path);
}

static int count_files(const struct place *p) {
    int count = 0;
    DIR *dir = opendir(p->folder);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) count += e->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void remove_place(const struct place *p) {
    unlink(p->path);
    unlink(p->part);
    assert_int_equal(rmdir(p->folder), 0);
}

static void put_file(const char *path, const char *text) {
    struct err err = {0};
    assert_int_equal(file_write_atomic(path, str_of(text), &err), ST_OK);
}

static void assert_text(const char *path, const char *text) {
    struct buf b;
    struct err err = {0};
    buf_init(&b, 1 << 20);
    if (file_read(path, &b, &err) != ST_OK) fail_msg("%s", err.text);
    assert_string_equal(buf_text(&b), text);
    buf_deinit(&b);
}

static void test_a_file_appears_when_it_is_published(void **state) {
    (void)state;
    for (int with_name = 0; with_name < 2; with_name++) {
        struct place p;
        struct file_out out;
        struct err err = {0};
        char now[FILE_OUT_PATH_BYTES];
        make_place(&p);
        assert_int_equal(file_out_open(p.path, with_name, &out, &err), ST_OK);
        assert_int_equal(file_out_reserve(&out, 1 << 20, &err), ST_OK);
        assert_int_equal(file_out_write(&out, "one ", 4, &err), ST_OK);
        assert_int_equal(file_out_write(&out, "two", 3, &err), ST_OK);
        assert_int_equal(out.bytes, 7);
        assert_false(file_exists(p.path));
        file_out_readable(&out, now);
        assert_text(now, "one two");
        assert_int_equal(file_out_publish(&out, &err), ST_OK);
        file_out_close(&out);
        file_out_close(&out);
        assert_text(p.path, "one two");
        struct stat info; /* what was reserved and not needed is given back */
        assert_int_equal(stat(p.path, &info), 0);
        assert_true((uint64_t)info.st_blocks * 512 < 1 << 16);
        assert_int_equal(count_files(&p), 1);
        remove_place(&p);
    }
}

static void test_what_is_not_published_is_gone(void **state) {
    (void)state;
    for (int with_name = 0; with_name < 2; with_name++) {
        struct place p;
        struct file_out out;
        struct err err = {0};
        make_place(&p);
        assert_int_equal(file_out_open(p.path, with_name, &out, &err), ST_OK);
        assert_int_equal(file_out_write(&out, "half", 4, &err), ST_OK);
        assert_int_equal(count_files(&p), with_name);
        file_out_close(&out);
        assert_int_equal(count_files(&p), 0);
        remove_place(&p);
    }
}

static void test_an_existing_file_is_never_replaced(void **state) {
    (void)state;
    for (int with_name = 0; with_name < 2; with_name++) {
        struct place p;
        struct file_out out;
        struct err err = {0};
        make_place(&p);
        assert_int_equal(file_out_open(p.path, with_name, &out, &err), ST_OK);
        put_file(p.path, "theirs"); /* meanwhile */
        assert_int_equal(file_out_publish(&out, &err), ST_CREATE);
        assert_non_null(strstr(err.text, "exists already"));
        file_out_close(&out);
        assert_text(p.path, "theirs");
        assert_int_equal(file_out_open(p.path, with_name, &out, &err), ST_CREATE);
        assert_non_null(strstr(err.text, "exists already"));
        assert_int_equal(count_files(&p), 1);
        remove_place(&p);
    }
}

static void test_a_part_that_was_left_is_taken_over(void **state) {
    (void)state;
    struct place p;
    struct file_out out;
    struct err err = {0};
    make_place(&p);
    put_file(p.part, "a long rest of a run that was killed");
    assert_int_equal(file_out_open(p.path, true, &out, &err), ST_OK);
    assert_int_equal(file_out_write(&out, "new", 3, &err), ST_OK);
    assert_int_equal(file_out_publish(&out, &err), ST_OK);
    file_out_close(&out);
    assert_text(p.path, "new");
    assert_int_equal(count_files(&p), 1);
    remove_place(&p);
}

static void test_a_part_that_is_being_written_is_left_alone(void **state) {
    (void)state;
    struct place p;
    struct file_out out;
    struct err err = {0};
    make_place(&p);
    put_file(p.part, "theirs");
    int fd = open(p.part, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(file_out_open(p.path, true, &out, &err), ST_CREATE);
    assert_non_null(strstr(err.text, "another process"));
    assert_text(p.part, "theirs");
    close(fd);
    remove_place(&p);
}

static void test_a_folder_that_does_not_exist_is_named(void **state) {
    (void)state;
    struct file_out out;
    struct err err = {0};
    assert_int_equal(file_out_open("/nonexistent-folder/new", false, &out, &err), ST_CREATE);
    assert_non_null(strstr(err.text, "/nonexistent-folder/new: cannot create"));
    file_out_close(&out);
    char name[FILE_OUT_PATH_BYTES + 8];
    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    assert_int_equal(file_out_open(name, false, &out, &err), ST_CREATE);
    file_out_close(&out);
}

static void test_a_limit_of_the_system_is_an_error_of_the_write(void **state) {
    (void)state;
    struct place p;
    struct file_out out;
    struct err err = {0};
    struct rlimit old, small = {4096, RLIM_INFINITY};
    static char bytes[8192];
    make_place(&p);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(file_out_open(p.path, false, &out, &err), ST_OK);
    assert_int_equal(file_out_write(&out, bytes, sizeof(bytes), &err), ST_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_non_null(strstr(err.text, "File too large"));
    file_out_close(&out);
    assert_int_equal(count_files(&p), 0);
    remove_place(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_appears_when_it_is_published),
        cmocka_unit_test(test_what_is_not_published_is_gone),
        cmocka_unit_test(test_an_existing_file_is_never_replaced),
        cmocka_unit_test(test_a_part_that_was_left_is_taken_over),
        cmocka_unit_test(test_a_part_that_is_being_written_is_left_alone),
        cmocka_unit_test(test_a_folder_that_does_not_exist_is_named),
        cmocka_unit_test(test_a_limit_of_the_system_is_an_error_of_the_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
