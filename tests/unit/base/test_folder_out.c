/* Goal:   a new folder is seen whole or not at all, whatever happens before it is published.
 * Method: every step, and what other processes may have left or made meanwhile; the place where the
 *         folder is to be is listed after each. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder_out.h"

/* A test's own folder, and what it makes there. */
struct place {
    char folder[64], path[128], part[160], inner[192];
    struct folder_out out;
    struct err err;
};

static void make_place(struct place *p) {
    *p = (struct place){0};
    snprintf(p->folder, sizeof(p->folder), "/tmp/jitney-test-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->path, sizeof(p->path), "%s/new", p->folder);
    snprintf(p->part, sizeof(p->part), "%s.part", p->path);
    snprintf(p->inner, sizeof(p->inner), "%s/a", p->path);
}

static int count_files(const char *folder) {
    int count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) count += e->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* What a process that was killed has left in the part; a name with "/" at its end is a folder. */
static void leave_part(const struct place *p, const char *name) {
    char rest[256];
    struct err err;
    if (!file_is_dir(p->part)) assert_int_equal(mkdir(p->part, 0755), 0);
    snprintf(rest, sizeof(rest), "%s/%s", p->part, name);
    if (name[strlen(name) - 1] == '/')
        assert_int_equal(mkdir(rest, 0755), 0);
    else
        assert_int_equal(file_write_atomic(rest, STR("of a killed run"), &err), ST_OK);
}

static void remove_place(const struct place *p) {
    unlink(p->inner);
    rmdir(p->path);
    assert_int_equal(rmdir(p->folder), 0);
}

static void put_inner(struct folder_out *out, const char *name, const char *text) {
    char path[FILE_OUT_PATH_BYTES];
    struct file_out file;
    struct err err = {0};
    assert_int_equal(folder_out_path(out, name, path, &err), ST_OK);
    assert_int_equal(file_out_open(path, false, &file, &err), ST_OK);
    assert_int_equal(file_out_write(&file, text, strlen(text), &err), ST_OK);
    assert_int_equal(file_out_publish(&file, &err), ST_OK);
    file_out_close(&file);
}

static void test_a_folder_appears_when_it_is_published(void **state) {
    (void)state;
    static const char *const ends[] = {"", "/", "//"};
    for (int i = 0; i < 3; i++) {
        struct place p;
        char name[256];
        make_place(&p);
        snprintf(name, sizeof(name), "%s%s", p.path, ends[i]);
        assert_int_equal(folder_out_open(name, &p.out, &p.err), ST_OK);
        put_inner(&p.out, "a", "one");
        assert_false(file_exists(p.path));
        assert_int_equal(count_files(p.part), 1);
        assert_int_equal(folder_out_publish(&p.out, &p.err), ST_OK);
        folder_out_close(&p.out);
        assert_true(file_is_dir(p.path));
        assert_int_equal(file_size(p.inner), 3);
        assert_int_equal(count_files(p.folder), 1);
        remove_place(&p);
    }
}

static void test_what_is_not_published_is_gone(void **state) {
    (void)state;
    struct place p;
    make_place(&p);
    assert_int_equal(folder_out_open(p.path, &p.out, &p.err), ST_OK);
    put_inner(&p.out, "a", "one");
    put_inner(&p.out, ".b", "two");
    folder_out_close(&p.out);
    folder_out_close(&p.out);
    assert_int_equal(count_files(p.folder), 0);
    remove_place(&p);
}

static void test_an_existing_name_is_never_replaced(void **state) {
    (void)state;
    struct place p;
    make_place(&p);
    assert_int_equal(folder_out_open(p.path, &p.out, &p.err), ST_OK);
    assert_int_equal(mkdir(p.path, 0755), 0); /* meanwhile; it is empty */
    assert_int_equal(folder_out_publish(&p.out, &p.err), ST_CREATE);
    assert_non_null(strstr(p.err.text, "exists already"));
    folder_out_close(&p.out);
    assert_int_equal(count_files(p.path), 0);
    assert_int_equal(folder_out_open(p.path, &p.out, &p.err), ST_CREATE);
    assert_non_null(strstr(p.err.text, "exists already"));
    assert_int_equal(count_files(p.folder), 1);
    remove_place(&p);
}

static void test_a_part_that_was_left_is_emptied_and_taken_over(void **state) {
    (void)state;
    struct place p;
    make_place(&p);
    leave_part(&p, "rest");
    assert_int_equal(folder_out_open(p.path, &p.out, &p.err), ST_OK);
    assert_int_equal(count_files(p.part), 0);
    put_inner(&p.out, "a", "one");
    assert_int_equal(folder_out_publish(&p.out, &p.err), ST_OK);
    assert_int_equal(count_files(p.path), 1);
    assert_int_equal(count_files(p.folder), 1);
    remove_place(&p);
}

static void test_the_inner_folder_goes_with_what_was_not_published(void **state) {
    (void)state;
    struct place p;
    make_place(&p);
    leave_part(&p, FOLDER_OUT_INNER "/");
    leave_part(&p, FOLDER_OUT_INNER "/rest");
    assert_int_equal(folder_out_open(p.path, &p.out, &p.err), ST_OK);
    assert_int_equal(count_files(p.part), 0);
    assert_int_equal(folder_out_make_inner(&p.out, &p.err), ST_OK);
    assert_int_equal(folder_out_make_inner(&p.out, &p.err), ST_CREATE);
    put_inner(&p.out, FOLDER_OUT_INNER "/a", "one");
    put_inner(&p.out, "b", "two");
    folder_out_close(&p.out);
    assert_int_equal(count_files(p.folder), 0);
    remove_place(&p);
}

static void test_a_part_with_a_folder_in_it_is_left_alone(void **state) {
    (void)state;
    struct place p;
    char inner[256];
    make_place(&p);
    leave_part(&p, "theirs/");
    snprintf(inner, sizeof(inner), "%s/theirs", p.part);
    assert_int_equal(folder_out_open(p.path, &p.out, &p.err), ST_CREATE);
    assert_non_null(strstr(p.err.text, "remove it yourself"));
    folder_out_close(&p.out);
    assert_true(file_is_dir(inner));
    rmdir(inner);
    rmdir(p.part);
    remove_place(&p);
}

static void test_a_part_that_is_being_written_is_left_alone(void **state) {
    (void)state;
    struct place p;
    make_place(&p);
    assert_int_equal(mkdir(p.part, 0755), 0);
    int fd = open(p.part, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(folder_out_open(p.path, &p.out, &p.err), ST_CREATE);
    assert_non_null(strstr(p.err.text, "another process"));
    close(fd);
    rmdir(p.part);
    remove_place(&p);
}

static void test_names_that_no_folder_can_have(void **state) {
    (void)state;
    struct folder_out out;
    struct err err = {0};
    char name[FILE_OUT_PATH_BYTES + 8];
    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    assert_int_equal(folder_out_open(name, &out, &err), ST_CREATE);
    assert_int_equal(folder_out_open("", &out, &err), ST_CREATE);
    assert_int_equal(folder_out_open("/nonexistent-folder/new", &out, &err), ST_CREATE);
    assert_non_null(strstr(err.text, "/nonexistent-folder/new: cannot create"));
    folder_out_close(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_folder_appears_when_it_is_published),
        cmocka_unit_test(test_what_is_not_published_is_gone),
        cmocka_unit_test(test_an_existing_name_is_never_replaced),
        cmocka_unit_test(test_a_part_that_was_left_is_emptied_and_taken_over),
        cmocka_unit_test(test_the_inner_folder_goes_with_what_was_not_published),
        cmocka_unit_test(test_a_part_with_a_folder_in_it_is_left_alone),
        cmocka_unit_test(test_a_part_that_is_being_written_is_left_alone),
        cmocka_unit_test(test_names_that_no_folder_can_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
