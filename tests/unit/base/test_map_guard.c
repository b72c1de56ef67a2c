/* Goal: a mapped file that is cut while it is read does not end the process, and the map says so.
 *
 * Method: files of several pages, cut at a page, within a page and to nothing, before and while
 * they are read, by one thread and by several; a table that is filled to its end; and, in a child
 * process, a SIGBUS outside every guarded map, which must still end it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/map_guard.h"
#include "base/sha256.h"

enum { PAGES = 16 };

static size_t page_bytes;
static char path[64];

/* A file of PAGES pages of 0x5A. */
static void make_file(void) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (size_t i = 0; i < PAGES * page_bytes; i++) fputc(0x5A, f);
    assert_int_equal(fclose(f), 0);
}

static int open_folder(void **state) {
    (void)state;
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    snprintf(path, sizeof(path), "/tmp/jitney-test-guard-%d", (int)getpid());
    return 0;
}

static int remove_file(void **state) {
    (void)state;
    unlink(path);
    return 0;
}

/* cmocka handles SIGBUS itself while a test runs; this puts the module's handler in its place. */
static void use_handler(void) {
    static struct sigaction ours;
    struct file_map map;
    make_file();
    assert_int_equal(file_map_open(path, &map, NULL), ST_OK); /* the first one installs it */
    if (!ours.sa_sigaction) assert_int_equal(sigaction(SIGBUS, NULL, &ours), 0);
    assert_int_equal(sigaction(SIGBUS, &ours, NULL), 0);
    file_map_close(&map);
}

static uint8_t byte_at(const struct file_map *map, size_t i) {
    return ((const volatile uint8_t *)map->ptr)[i];
}

static void test_pages_that_are_cut_read_as_zeros_and_are_reported(void **state) {
    (void)state;
    use_handler();
    const size_t lengths[] = {0, 1, page_bytes, 3 * page_bytes + 7, 15 * page_bytes};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct file_map map;
        struct err err = {0};
        make_file();
        assert_int_equal(file_map_open(path, &map, &err), ST_OK);
        assert_int_equal(byte_at(&map, 0), 0x5A);
        assert_int_equal(truncate(path, (off_t)lengths[i]), 0);
        assert_true(file_map_is_cut(&map));
        assert_int_equal(file_map_check(&map, &err), ST_OK); /* nothing missing was read yet */
        assert_int_equal(byte_at(&map, map.len - 1), 0);
        assert_int_equal(file_map_check(&map, &err), ST_IO);
        assert_non_null(strstr(err.text, "shorter"));
        if (lengths[i] > 0) assert_int_equal(byte_at(&map, 0), 0x5A);
        file_map_close(&map);
    }
}

static void test_a_whole_file_is_not_reported(void **state) {
    (void)state;
    use_handler();
    struct file_map map;
    struct err err = {0};
    char digest[SHA256_HEX_BYTES];
    make_file();
    assert_int_equal(file_map_open(path, &map, &err), ST_OK);
    for (size_t i = 0; i < map.len; i += page_bytes) assert_int_equal(byte_at(&map, i), 0x5A);
    assert_false(file_map_is_cut(&map));
    assert_int_equal(file_map_check(&map, &err), ST_OK);
    assert_int_equal(sha256_file(path, digest, &err), ST_OK);
    file_map_close(&map);
}

struct reader {
    pthread_t thread;
    const struct file_map *map;
    const atomic_bool *is_cut;
    bool saw_damage;
};

/* Reads the map again and again until it was read once after the cut. */
static void *read_all(void *arg) {
    struct reader *r = arg;
    unsigned sum = 0;
    for (bool last = false; !last;) {
        last = atomic_load(r->is_cut);
        for (size_t i = 0; i < r->map->len; i += 512) sum += byte_at(r->map, i);
    }
    r->saw_damage = sum > 0 && file_map_check(r->map, NULL) == ST_IO;
    return NULL;
}

static void test_each_of_several_readers_sees_the_mark(void **state) {
    (void)state;
    use_handler();
    enum { READERS = 4 };
    for (int round = 0; round < 10; round++) {
        struct file_map map;
        struct reader readers[READERS];
        atomic_bool is_cut = false;
        make_file();
        assert_int_equal(file_map_open(path, &map, NULL), ST_OK);
        for (int i = 0; i < READERS; i++) {
            readers[i] = (struct reader){.map = &map, .is_cut = &is_cut};
            assert_int_equal(pthread_create(&readers[i].thread, NULL, read_all, &readers[i]), 0);
        }
        assert_int_equal(truncate(path, (off_t)page_bytes), 0);
        atomic_store(&is_cut, true);
        for (int i = 0; i < READERS; i++) {
            pthread_join(readers[i].thread, NULL);
            assert_true(readers[i].saw_damage);
        }
        file_map_close(&map);
    }
}

static void test_damage_stays_with_its_own_map(void **state) {
    (void)state;
    use_handler();
    struct file_map cut, whole;
    char other[80];
    make_file();
    snprintf(other, sizeof(other), "%s-other", path);
    assert_int_equal(rename(path, other), 0);
    make_file();
    assert_int_equal(file_map_open(path, &cut, NULL), ST_OK);
    assert_int_equal(file_map_open(other, &whole, NULL), ST_OK);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(byte_at(&cut, 0), 0);
    assert_int_equal(byte_at(&whole, 0), 0x5A);
    assert_int_equal(file_map_check(&cut, NULL), ST_IO);
    assert_int_equal(file_map_check(&whole, NULL), ST_OK);
    file_map_close(&cut);
    /* The entry of the table is used again, without the mark. */
    make_file();
    assert_int_equal(file_map_open(path, &cut, NULL), ST_OK);
    assert_int_equal(file_map_check(&cut, NULL), ST_OK);
    file_map_close(&cut);
    file_map_close(&whole);
    unlink(other);
}

static void test_the_table_has_an_end_and_entries_come_back(void **state) {
    (void)state;
    use_handler();
    static struct map_guard *all[MAP_GUARDS_MAX];
    const uint8_t *base = (const uint8_t *)(uintptr_t)page_bytes; /* never read */
    for (size_t i = 0; i < MAP_GUARDS_MAX; i++) {
        all[i] = map_guard_add(base + i * page_bytes, page_bytes);
        assert_non_null(all[i]);
    }
    assert_null(map_guard_add(base, page_bytes));
    make_file();
    struct file_map map;
    struct err err = {0};
    assert_int_equal(file_map_open(path, &map, &err), ST_FULL);
    assert_non_null(strstr(err.text, "4096"));
    for (size_t i = 0; i < MAP_GUARDS_MAX; i++) map_guard_remove(all[i]);
    assert_int_equal(file_map_open(path, &map, &err), ST_OK);
    file_map_close(&map);
}

/* A map that is not guarded. */
static void read_cut_map(void) {
    int fd = open(path, O_RDWR);
    const volatile uint8_t *ptr = mmap(NULL, page_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (fd < 0 || ptr == MAP_FAILED || ftruncate(fd, 0) != 0) _exit(3);
    _exit(ptr[0] == 0 ? 4 : 5);
}

/* The first test, so that the child is the one that installs the handler. */
static void test_another_bus_error_still_ends_the_process(void **state) {
    (void)state;
    make_file();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct file_map map;
        signal(SIGBUS, SIG_DFL); /* in place of a sanitizer's, which would write a report */
        if (file_map_open("/proc/self/exe", &map, NULL) != ST_OK) _exit(2);
        read_cut_map();
    }
    int ended = 0;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended));
    assert_int_equal(WTERMSIG(ended), SIGBUS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_bus_error_still_ends_the_process),
        cmocka_unit_test(test_pages_that_are_cut_read_as_zeros_and_are_reported),
        cmocka_unit_test(test_a_whole_file_is_not_reported),
        cmocka_unit_test(test_each_of_several_readers_sees_the_mark),
        cmocka_unit_test(test_damage_stays_with_its_own_map),
        cmocka_unit_test(test_the_table_has_an_end_and_entries_come_back),
    };
    return cmocka_run_group_tests_name("map_guard", tests, open_folder, remove_file);
}
