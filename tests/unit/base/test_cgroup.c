/* Goal: the smallest limit of the process's control group and those above it is found.
 *
 * Method: a folder that looks like the root of a machine, with /proc/self/cgroup and a tree of
 * groups as version 2, version 1 and both side by side lay them out.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/cgroup.h"
#include "base/file.h"
#include "base/tree.h"

enum { PATH_BYTES = 512 };

static char root[64];

static int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof(root), "/tmp/jitney-test-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    (void)state;
    return tree_remove(root, NULL, NULL) == ST_OK ? 0 : -1;
}

static void put(const char *folder, const char *name, const char *text) {
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", root, folder);
    assert_int_equal(file_make_dirs(path, NULL), ST_OK);
    snprintf(path, sizeof(path), "%s/%s/%s", root, folder, name);
    assert_int_equal(file_write_atomic(path, str_of(text), NULL), ST_OK);
}

static void test_without_groups_there_is_no_quota(void **state) {
    (void)state;
    assert_int_equal(cgroup_cpu_quota(root), 0);
    put("proc/self", "cgroup", "0::/a/b\n");
    assert_int_equal(cgroup_cpu_quota(root), 0);
}

static void test_the_groups_own_quota_is_rounded_up(void **state) {
    (void)state;
    put("proc/self", "cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b", "cpu.max", "250000 100000\n");
    assert_int_equal(cgroup_cpu_quota(root), 3);
    put("sys/fs/cgroup/a/b", "cpu.max", "200000 100000\n");
    assert_int_equal(cgroup_cpu_quota(root), 2);
    put("sys/fs/cgroup/a/b", "cpu.max", "1000 100000\n");
    assert_int_equal(cgroup_cpu_quota(root), 1);
}

static void test_a_quota_may_sit_on_a_parent_and_the_smallest_counts(void **state) {
    (void)state;
    put("proc/self", "cgroup", "0::/a/bb/c\n");
    put("sys/fs/cgroup/a/bb/c", "cpu.max", "max 100000\n");
    put("sys/fs/cgroup/a/bb", "cpu.max", "400000 100000\n");
    assert_int_equal(cgroup_cpu_quota(root), 4);
    put("sys/fs/cgroup/a", "cpu.max", "200000 100000\n");
    assert_int_equal(cgroup_cpu_quota(root), 2);
    put("sys/fs/cgroup/a/b", "cpu.max", "100000 100000\n"); /* a neighbour's */
    assert_int_equal(cgroup_cpu_quota(root), 2);
}

static void test_in_a_container_the_root_of_the_tree_is_the_own_group(void **state) {
    (void)state;
    put("sys/fs/cgroup", "cpu.max", "300000 100000\n");
    assert_int_equal(cgroup_cpu_quota(root), 3);
    put("proc/self", "cgroup", "0::/docker/0123\n");
    assert_int_equal(cgroup_cpu_quota(root), 3);
    put("proc/self", "cgroup", "0::/../..\n");
    put("sys", "cpu.max", "100000 100000\n"); /* outside of the tree */
    assert_int_equal(cgroup_cpu_quota(root), 3);
}

static void test_version_1_has_two_files_in_the_folder_of_its_controllers(void **state) {
    (void)state;
    put("proc/self", "cgroup", "5:memory:/m\n2:cpu,cpuacct:/a/b\n1:cpuset:/\n");
    put("sys/fs/cgroup/cpu,cpuacct/a/b", "cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/a/b", "cpu.cfs_period_us", "100000\n");
    assert_int_equal(cgroup_cpu_quota(root), 0);
    put("sys/fs/cgroup/cpu,cpuacct/a", "cpu.cfs_quota_us", "150000\n");
    put("sys/fs/cgroup/cpu,cpuacct/a", "cpu.cfs_period_us", "50000\n");
    assert_int_equal(cgroup_cpu_quota(root), 3);
    put("sys/fs/cgroup/memory/m", "cpu.max", "100000 100000\n"); /* not a tree for processors */
    assert_int_equal(cgroup_cpu_quota(root), 3);
}

static void test_both_versions_side_by_side(void **state) {
    (void)state;
    put("proc/self", "cgroup", "1:cpu:/\n0::/a\n");
    put("sys/fs/cgroup/unified/a", "cpu.max", "500000 100000\n");
    assert_int_equal(cgroup_cpu_quota(root), 5);
    put("sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "200000\n");
    put("sys/fs/cgroup/cpu", "cpu.cfs_period_us", "100000\n");
    assert_int_equal(cgroup_cpu_quota(root), 2);
}

static void test_what_cannot_be_read_as_numbers_is_no_quota(void **state) {
    (void)state;
    put("proc/self", "cgroup", "nonsense\n::\n0::\n");
    const char *texts[] = {"",  "max",   "100000",  "-5 100000",
                           "0", "5 0\n", "1 two\n", "99999999999999999999 1"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        put("sys/fs/cgroup", "cpu.max", texts[i]);
        assert_int_equal(cgroup_cpu_quota(root), 0);
    }
    put("sys/fs/cgroup", "cpu.max", "9223372036854775807 1");
    assert_int_equal(cgroup_cpu_quota(root), UINT32_MAX);
}

static void test_memory_left_is_the_least_of_all_groups(void **state) {
    (void)state;
    assert_true(cgroup_memory_left(root) == UINT64_MAX);
    put("proc/self", "cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b", "memory.max", "max\n");
    put("sys/fs/cgroup/a/b", "memory.current", "700\n");
    assert_true(cgroup_memory_left(root) == UINT64_MAX);
    put("sys/fs/cgroup/a/b", "memory.max", "1000\n");
    assert_int_equal(cgroup_memory_left(root), 300);
    put("sys/fs/cgroup/a/b", "memory.stat", "anon 300\nfilesystem 9\nfile 400\nkernel 1\n");
    assert_int_equal(cgroup_memory_left(root), 700);
    put("sys/fs/cgroup/a", "memory.max", "2000\n");
    put("sys/fs/cgroup/a", "memory.current", "1950\n");
    assert_int_equal(cgroup_memory_left(root), 50);
    put("sys/fs/cgroup/a", "memory.current", "2001\n");
    assert_int_equal(cgroup_memory_left(root), 0);
    put("sys/fs/cgroup/a", "memory.max", "nonsense\n");
    put("sys/fs/cgroup/a/b", "memory.stat", "file 999999\n");
    assert_int_equal(cgroup_memory_left(root), 1000);
}

static void test_memory_left_of_version_1(void **state) {
    (void)state;
    put("proc/self", "cgroup", "5:memory:/m\n2:cpu:/a\n");
    put("sys/fs/cgroup/memory", "memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory", "memory.usage_in_bytes", "5000\n");
    assert_true(cgroup_memory_left(root) > UINT64_MAX / 4);
    put("sys/fs/cgroup/memory/m", "memory.limit_in_bytes", "4000\n");
    put("sys/fs/cgroup/memory/m", "memory.usage_in_bytes", "3000\n");
    put("sys/fs/cgroup/memory/m", "memory.stat", "cache 10\nrss 2400\ntotal_cache 600\n");
    assert_int_equal(cgroup_memory_left(root), 1600);
    put("sys/fs/cgroup/cpu/a", "memory.limit_in_bytes", "1\n"); /* not a tree for memory */
    put("sys/fs/cgroup/cpu/a", "memory.usage_in_bytes", "1\n");
    assert_int_equal(cgroup_memory_left(root), 1600);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_without_groups_there_is_no_quota),
        CASE(test_the_groups_own_quota_is_rounded_up),
        CASE(test_a_quota_may_sit_on_a_parent_and_the_smallest_counts),
        CASE(test_in_a_container_the_root_of_the_tree_is_the_own_group),
        CASE(test_version_1_has_two_files_in_the_folder_of_its_controllers),
        CASE(test_both_versions_side_by_side),
        CASE(test_what_cannot_be_read_as_numbers_is_no_quota),
        CASE(test_memory_left_is_the_least_of_all_groups),
        CASE(test_memory_left_of_version_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
