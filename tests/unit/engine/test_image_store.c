/* Goal:   an image is there whole or not at all; the folder stays under its cap, those used longest
 *         ago give way; what a dead writer left goes, what a live one writes stays.
 * Method: a folder of its own for each case, files without contents of the sizes that matter, times
 *         set by hand; writers that die and writers that race are processes of their own. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/tree.h"
#include "engine/image_store.h"

enum { WRITERS = 8, ROUNDS = 20, IMAGE_BYTES = 1 << 20 };

struct rig {
    char dir[64], images[96];
    struct image_store store;
};

static int set_up(void **state) {
    struct rig *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    snprintf(r->dir, sizeof(r->dir), "/tmp/jitney_store_XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->images, sizeof(r->images), "%s/cache/images", r->dir);
    r->store = (struct image_store){.dir = r->images, .max_bytes = 3 * IMAGE_BYTES};
    *state = r;
    return 0;
}

static int tear_down(void **state) {
    struct rig *r = *state;
    assert_int_equal(tree_remove(r->dir, NULL, NULL), ST_OK);
    free(r);
    return 0;
}

/* Its first letter is the place, the rest up to a comma the layout. */
static const struct image_key *key_of(const char *key) {
    static struct image_key out;
    out = (struct image_key){
        .place = {key, 1}, .layout = {key + 1, strcspn(key + 1, ",")}, .all = str_of(key)};
    return &out;
}

static const char *path_of(const struct rig *r, const char *key) {
    static char path[IMAGE_PATH_BYTES];
    assert_int_equal(image_store_path(&r->store, key_of(key), path, NULL), ST_OK);
    return path;
}

static bool has(const struct rig *r, const char *key) { return file_exists(path_of(r, key)); }

static enum status put(const struct rig *r, const char *key, int64_t bytes) {
    struct image_part part;
    enum status st = image_store_begin(&r->store, key_of(key), (uint64_t)bytes, &part, NULL);
    if (st != ST_OK) return st;
    assert_int_equal(ftruncate(part.fd, bytes), 0);
    return image_store_commit(&part, NULL);
}

/* Used so many seconds after 1970. */
static void set_used(const struct rig *r, const char *key, time_t s) {
    struct timespec times[2] = {{.tv_sec = s}, {.tv_sec = s}};
    assert_int_equal(utimensat(AT_FDCWD, path_of(r, key), times, 0), 0);
}

static uint32_t count_files(const struct rig *r, const char *suffix) {
    uint32_t count = 0;
    DIR *dir = opendir(r->images);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        count += str_ends(str_of(e->d_name), str_of(suffix));
    closedir(dir);
    return count;
}

static void test_an_image_appears_complete_and_only_at_the_end(void **state) {
    struct rig *r = *state;
    struct image_part part;
    struct err err = {{0}};
    if (image_store_begin(&r->store, key_of("a"), IMAGE_BYTES, &part, &err) != ST_OK)
        fail_msg("%s", err.text);
    assert_int_equal(write(part.fd, "all of it", 9), 9);
    assert_false(has(r, "a"));
    assert_int_equal(count_files(r, ".part"), 1);
    assert_int_equal(image_store_commit(&part, NULL), ST_OK);
    assert_int_equal(file_size(path_of(r, "a")), 9);
    assert_int_equal(count_files(r, ".part"), 0);
    assert_false(has(r, "b"));
}

static void test_an_abandoned_part_leaves_nothing(void **state) {
    struct rig *r = *state;
    struct image_part part;
    assert_int_equal(image_store_begin(&r->store, key_of("a"), IMAGE_BYTES, &part, NULL), ST_OK);
    image_store_abandon(&part);
    assert_false(has(r, "a"));
    assert_int_equal(count_files(r, ".part"), 0);
}

static void test_the_least_recently_used_images_are_removed_first(void **state) {
    struct rig *r = *state;
    static const char *const keys[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(put(r, keys[i], IMAGE_BYTES), ST_OK);
        set_used(r, keys[i], 1000 + i);
    }
    assert_true(has(r, "a"));
    image_store_touch(path_of(r, "a")); /* now the youngest */
    assert_int_equal(put(r, "d", IMAGE_BYTES), ST_OK);
    assert_true(has(r, "a"));
    assert_false(has(r, "b"));
    assert_true(has(r, "c"));
    assert_int_equal(put(r, "e", 2 * IMAGE_BYTES), ST_OK);
    assert_false(has(r, "c"));
    assert_true(has(r, "e"));
    assert_int_equal(count_files(r, ".jpk"), 2);
}

static void test_an_image_that_never_fits_removes_no_other(void **state) {
    struct rig *r = *state;
    struct image_part part;
    struct err err = {{0}};
    assert_int_equal(put(r, "a", IMAGE_BYTES), ST_OK);
    assert_int_equal(image_store_begin(&r->store, key_of("b"), 3 * IMAGE_BYTES + 1, &part, &err),
                     ST_FULL);
    assert_non_null(strstr(err.text, "in all"));
    assert_true(has(r, "a"));
    assert_int_equal(put(r, "b", 3 * IMAGE_BYTES), ST_OK);
    assert_false(has(r, "a"));
}

static void test_an_image_that_is_replaced_does_not_count(void **state) {
    struct rig *r = *state;
    assert_int_equal(put(r, "a", IMAGE_BYTES), ST_OK);
    assert_int_equal(put(r, "b", IMAGE_BYTES), ST_OK);
    assert_int_equal(put(r, "b", 2 * IMAGE_BYTES), ST_OK);
    assert_true(has(r, "a"));
    assert_int_equal(file_size(path_of(r, "b")), 2 * IMAGE_BYTES);
}

static void test_files_that_are_not_images_are_not_touched(void **state) {
    struct rig *r = *state;
    char folder[128], note[128], link[128];
    snprintf(folder, sizeof(folder), "%s/folder.jpk", r->images);
    snprintf(note, sizeof(note), "%s/note.txt", r->images);
    snprintf(link, sizeof(link), "%s/link.part", r->images);
    assert_int_equal(file_make_dirs(folder, NULL), ST_OK);
    assert_int_equal(file_write_atomic(note, STR("keep me"), NULL), ST_OK);
    assert_int_equal(symlink(note, link), 0);
    assert_int_equal(put(r, "a", 3 * IMAGE_BYTES), ST_OK);
    assert_int_equal(put(r, "b", 3 * IMAGE_BYTES), ST_OK);
    assert_true(file_is_dir(folder));
    assert_true(file_exists(note));
    assert_true(file_exists(link));
}

/* Runs `fn` in a process of its own and gives its exit code. */
static int in_child(int (*fn)(const struct rig *r), const struct rig *r) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(fn(r));
    int code;
    assert_int_equal(waitpid(pid, &code, 0), pid);
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

/* As by a power cut between the last write and the rename. */
static int die_writing(const struct rig *r) {
    struct image_part part;
    if (image_store_begin(&r->store, key_of("a"), IMAGE_BYTES, &part, NULL) != ST_OK) return 1;
    return ftruncate(part.fd, IMAGE_BYTES) == 0 ? 0 : 1;
}

static void test_the_part_of_an_ended_writer_is_removed(void **state) {
    struct rig *r = *state;
    assert_int_equal(in_child(die_writing, r), 0);
    assert_int_equal(in_child(die_writing, r), 0);
    assert_int_equal(count_files(r, ".part"), 1); /* the second has removed the first's */
    assert_false(has(r, "a"));
    assert_int_equal(put(r, "b", IMAGE_BYTES), ST_OK);
    assert_int_equal(count_files(r, ".part"), 0);
    assert_int_equal(put(r, "a", IMAGE_BYTES), ST_OK);
}

static int begin_same(const struct rig *r) {
    struct image_part part;
    return (int)image_store_begin(&r->store, key_of("a"), IMAGE_BYTES, &part, NULL);
}

static int put_other(const struct rig *r) { return (int)put(r, "b", IMAGE_BYTES); }
static int put_large(const struct rig *r) { return (int)put(r, "c", 3 * IMAGE_BYTES); }

static void test_the_part_of_a_running_writer_stays_and_counts(void **state) {
    struct rig *r = *state;
    struct image_part part;
    assert_int_equal(image_store_begin(&r->store, key_of("a"), IMAGE_BYTES, &part, NULL), ST_OK);
    assert_int_equal(ftruncate(part.fd, IMAGE_BYTES), 0);
    assert_int_equal(in_child(begin_same, r), ST_UNAVAILABLE);
    assert_int_equal(in_child(put_other, r), ST_OK);
    assert_int_equal(in_child(put_large, r), ST_FULL);
    assert_true(file_exists(part.path));
    assert_int_equal(image_store_commit(&part, NULL), ST_OK);
    assert_true(has(r, "a"));
    assert_true(has(r, "b"));
}

/* Every image that is ever seen has all its bytes. */
static int race(const struct rig *r) {
    static char bytes[4096];
    memset(bytes, 'x', sizeof(bytes));
    for (int i = 0; i < ROUNDS; i++) {
        struct image_part part;
        enum status st = image_store_begin(&r->store, key_of("a"), sizeof(bytes), &part, NULL);
        int64_t seen = file_size(path_of(r, "a"));
        if (seen >= 0 && seen != sizeof(bytes)) return 1;
        if (st == ST_UNAVAILABLE) continue;
        if (st != ST_OK) return 2;
        if (write(part.fd, bytes, sizeof(bytes)) != sizeof(bytes)) return 3;
        if (image_store_commit(&part, NULL) != ST_OK) return 4;
    }
    return 0;
}

static void test_two_writers_of_one_image_leave_one_good_image(void **state) {
    struct rig *r = *state;
    pid_t pids[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) _exit(race(r));
    }
    for (int i = 0; i < WRITERS; i++) {
        int code;
        assert_int_equal(waitpid(pids[i], &code, 0), pids[i]);
        assert_int_equal(code, 0);
    }
    assert_true(has(r, "a"));
    assert_int_equal(count_files(r, ".jpk"), 1);
    assert_int_equal(count_files(r, ".part"), 0);
}

static void test_a_folder_that_cannot_be_created_is_reported(void **state) {
    struct rig *r = *state;
    char file[96], below[128];
    struct image_part part;
    struct err err = {{0}};
    snprintf(file, sizeof(file), "%s/file", r->dir);
    snprintf(below, sizeof(below), "%s/images", file);
    assert_int_equal(file_write_atomic(file, STR(""), NULL), ST_OK);
    struct image_store store = {.dir = below, .max_bytes = IMAGE_BYTES};
    assert_int_equal(image_store_begin(&store, key_of("a"), 1, &part, &err), ST_CREATE);
    assert_non_null(strstr(err.text, file));
}

static mode_t mode_after(struct rig *r, mode_t mask, bool is_private) {
    struct stat info;
    mode_t old = umask(mask);
    r->store.is_private = is_private;
    assert_int_equal(put(r, "a", IMAGE_BYTES), ST_OK);
    umask(old);
    assert_int_equal(stat(path_of(r, "a"), &info), 0);
    return info.st_mode & 07777;
}

static void test_who_may_read_an_image_is_up_to_model_and_umask(void **state) {
    struct rig *r = *state;
    assert_int_equal(mode_after(r, 0022, false), 0644);
    assert_int_equal(mode_after(r, 0027, false), 0640);
    assert_int_equal(mode_after(r, 0077, false), 0600);
    assert_int_equal(mode_after(r, 0022, true), 0600);
}

/* As a user who may not look into the part. */
static int begin_as_nobody(const struct rig *r) {
    enum { NOBODY = 65534 };
    if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0) return -1;
    return begin_same(r);
}

static void test_a_part_of_another_user_is_ignored(void **state) {
    struct rig *r = *state;
    if (geteuid() != 0) skip();
    r->store.is_private = true;
    assert_int_equal(in_child(die_writing, r), 0);
    assert_int_equal(chmod(r->dir, 0755), 0);
    assert_int_equal(chmod(r->images, 0777), 0);
    assert_int_equal(in_child(begin_as_nobody, r), ST_OK);
}

static void test_removing_a_model_removes_its_images(void **state) {
    struct rig *r = *state;
    struct image_part part;
    uint64_t freed = 0;
    assert_int_equal(image_store_remove(&r->store, STR("a"), &freed, NULL), ST_OK);
    assert_int_equal(freed, 0);
    assert_int_equal(put(r, "a", IMAGE_BYTES), ST_OK);
    assert_int_equal(put(r, "a of another layout", IMAGE_BYTES / 2), ST_OK);
    assert_int_equal(put(r, "b", IMAGE_BYTES), ST_OK);
    assert_int_equal(in_child(die_writing, r), 0);
    assert_int_equal(image_store_begin(&r->store, key_of("a new"), 1, &part, NULL), ST_OK);
    assert_int_equal(image_store_remove(&r->store, STR("a"), &freed, NULL), ST_OK);
    assert_int_equal(freed, IMAGE_BYTES + IMAGE_BYTES / 2);
    assert_int_equal(count_files(r, ".jpk"), 1);
    assert_true(has(r, "b"));
    assert_int_equal(count_files(r, ".part"), 1); /* the live one */
    image_store_abandon(&part);
}

static void test_an_image_replaces_those_of_its_place_and_layout(void **state) {
    struct rig *r = *state;
    assert_int_equal(put(r, "a fast,old", IMAGE_BYTES / 2), ST_OK);
    assert_int_equal(put(r, "a slow,old", IMAGE_BYTES / 2), ST_OK);
    assert_int_equal(put(r, "b fast,old", IMAGE_BYTES / 2), ST_OK);
    assert_int_equal(put(r, "a fast,new", IMAGE_BYTES / 2), ST_OK);
    image_store_remove_older(&r->store, key_of("a fast,new"));
    assert_false(has(r, "a fast,old"));
    assert_true(has(r, "a fast,new"));
    assert_true(has(r, "a slow,old"));
    assert_true(has(r, "b fast,old"));
}

/* On a disk of 2 GiB, of which 1 must stay free. The images are holes and take none. */
static int fill_small_disk(const struct rig *r) {
    const int64_t gib = 1ll << 30;
    struct image_store store = {.dir = r->images, .max_bytes = UINT64_MAX};
    struct rig small = *r;
    struct image_part part;
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", NULL, MS_PRIVATE | MS_REC, NULL) != 0 ||
        mount("none", r->dir, "tmpfs", 0, "size=2g") != 0)
        return 77;
    small.store = store;
    if (put(&small, "a", gib * 3 / 4) != ST_OK || put(&small, "b", gib * 3 / 4) != ST_OK) return 1;
    set_used(&small, "a", 1000);
    if (image_store_begin(&store, key_of("c"), (uint64_t)gib * 3, &part, NULL) != ST_FULL) return 2;
    if (!has(&small, "a") || !has(&small, "b")) return 3;
    if (put(&small, "c", gib * 3 / 2) != ST_OK) return 4;
    return has(&small, "a") || !has(&small, "b") ? 5 : 0;
}

static void test_images_are_removed_on_a_disk_that_fills(void **state) {
    int code = in_child(fill_small_disk, *state);
    if (code == 77) skip(); /* not for us to mount one */
    assert_int_equal(code, 0);
}

static void test_a_tenth_of_the_disk_and_a_gib_stay_free(void **state) {
    (void)state;
    const uint64_t gib = 1ull << 30;
    assert_true(image_store_disk_fits(100 * gib, 20 * gib, 10 * gib));
    assert_false(image_store_disk_fits(100 * gib, 20 * gib, 10 * gib + 1));
    assert_true(image_store_disk_fits(5 * gib, 2 * gib, gib));
    assert_false(image_store_disk_fits(5 * gib, 2 * gib, gib + 1));
    assert_false(image_store_disk_fits(100 * gib, gib, 2 * gib));
    assert_false(image_store_disk_fits(100 * gib, 100 * gib, UINT64_MAX));
}

static void test_an_image_that_is_small_for_the_disk_is_kept_on_a_full_one(void **state) {
    (void)state;
    const uint64_t mib = 1ull << 20;
    assert_true(image_store_disk_fits(250000 * mib, 300 * mib, 3 * mib));
    assert_false(image_store_disk_fits(250000 * mib, 300 * mib, 3 * mib + 1));
    assert_false(image_store_disk_fits(250000 * mib, 0, 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_an_image_appears_complete_and_only_at_the_end, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_an_abandoned_part_leaves_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_least_recently_used_images_are_removed_first,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_image_that_never_fits_removes_no_other, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_an_image_that_is_replaced_does_not_count, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_files_that_are_not_images_are_not_touched, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_the_part_of_an_ended_writer_is_removed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_the_part_of_a_running_writer_stays_and_counts, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_two_writers_of_one_image_leave_one_good_image, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_folder_that_cannot_be_created_is_reported, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_who_may_read_an_image_is_up_to_model_and_umask, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_part_of_another_user_is_ignored, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_removing_a_model_removes_its_images, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_an_image_replaces_those_of_its_place_and_layout,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_images_are_removed_on_a_disk_that_fills, set_up,
                                        tear_down),
        cmocka_unit_test(test_a_tenth_of_the_disk_and_a_gib_stay_free),
        cmocka_unit_test(test_an_image_that_is_small_for_the_disk_is_kept_on_a_full_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
