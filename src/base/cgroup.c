/* base/cgroup.c - see base/cgroup.h for the contract.
 *
 * A line of /proc/self/cgroup is "NUMBER:CONTROLLERS:PATH"; version 2 has the one line "0::PATH".
 * Its tree lies in /sys/fs/cgroup or, beside version 1, in /sys/fs/cgroup/unified; version 1's
 * in a folder named after its controllers.
 */
#include "base/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"

enum { PATH_BYTES = 4096, NUMBERS_BYTES = 128, GROUPS_BYTES = 8192 };

/* A tree of groups and the process's place in it. */
struct tree {
    char mount[PATH_BYTES];
    struct str path; /* "/a/b" */
};

/* Up to a character, which is passed over; all that is left if there is none. */
static struct str cut(struct str *rest, char at) {
    const char *found = rest->len ? memchr(rest->ptr, at, rest->len) : NULL;
    struct str word = str_take(*rest, found ? (size_t)(found - rest->ptr) : rest->len);
    *rest = str_skip(*rest, found ? word.len + 1 : word.len);
    return word;
}

/* The file's words, at most `count` of them; fewer if it is not there. */
static int read_numbers(const char *folder, const char *name, int64_t *out, int count) {
    char path[PATH_BYTES], storage[NUMBERS_BYTES];
    struct str rest;
    int got = 0;
    if (!path_join(path, sizeof(path), folder, name)) return 0;
    if (file_read_short(path, storage, sizeof(storage), &rest) != ST_OK) return 0;
    rest = str_trim(rest);
    while (got < count && rest.len > 0 && str_to_i64(cut(&rest, ' '), &out[got])) got++;
    return got;
}

/* The folder's own quota in processors, rounded up; 0: none ("max", -1 or no such file). */
static uint32_t folder_quota(const char *folder) {
    int64_t numbers[2];
    bool known = read_numbers(folder, "cpu.max", numbers, 2) == 2 ||
                 (read_numbers(folder, "cpu.cfs_quota_us", numbers, 1) == 1 &&
                  read_numbers(folder, "cpu.cfs_period_us", numbers + 1, 1) == 1);
    if (!known || numbers[0] <= 0 || numbers[1] <= 0) return 0;
    int64_t processors = (numbers[0] - 1) / numbers[1] + 1;
    return processors < UINT32_MAX ? (uint32_t)processors : UINT32_MAX;
}

static uint32_t smaller(uint32_t a, uint32_t b) { return a == 0 || (b && b < a) ? b : a; }

/* The smallest quota from the process's group up to the root of the tree. A path that leads out of
 * the tree ("/..", seen from inside a namespace) names nothing that can be read here. */
static uint32_t tree_quota(const struct tree *t) {
    uint32_t quota = folder_quota(t->mount);
    if (str_starts(t->path, STR("/.."))) return quota;
    for (size_t len = t->path.len; len > 1; len--) {
        bool is_group = len == t->path.len || t->path.ptr[len] == '/';
        char folder[PATH_BYTES];
        if (!is_group) continue;
        int bytes = snprintf(folder, sizeof(folder), "%s%.*s", t->mount, (int)len, t->path.ptr);
        if (bytes > 0 && (size_t)bytes < sizeof(folder))
            quota = smaller(quota, folder_quota(folder));
    }
    return quota;
}

static bool names_cpu(struct str controllers) {
    while (controllers.len > 0)
        if (str_is(cut(&controllers, ','), "cpu")) return true;
    return false;
}

static uint32_t quota_under(const char *root, const char *folder, struct str name,
                            struct str path) {
    struct tree t = {.path = path};
    int bytes =
        snprintf(t.mount, sizeof(t.mount), "%s/sys/fs/cgroup%s%.*s", root, folder, STR_ARG(name));
    return bytes > 0 && (size_t)bytes < sizeof(t.mount) ? tree_quota(&t) : 0;
}

static uint32_t line_quota(const char *root, struct str line) {
    struct str number = cut(&line, ':'), controllers = cut(&line, ':');
    if (str_is(number, "0") && controllers.len == 0)
        return smaller(quota_under(root, "", STR(""), line),
                       quota_under(root, "/unified", STR(""), line));
    return names_cpu(controllers) ? quota_under(root, "/", controllers, line) : 0;
}

uint32_t cgroup_cpu_quota(const char *root) {
    char path[PATH_BYTES], storage[GROUPS_BYTES];
    struct str rest;
    uint32_t quota = quota_under(root, "", STR(""), STR(""));
    if (!path_join(path, sizeof(path), root, "proc/self/cgroup")) return quota;
    if (file_read_short(path, storage, sizeof(storage), &rest) != ST_OK) return quota;
    while (rest.len > 0) quota = smaller(quota, line_quota(root, cut(&rest, '\n')));
    return quota;
}
