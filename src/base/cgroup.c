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

enum { PATH_BYTES = 4096, NUMBERS_BYTES = 128, GROUPS_BYTES = 8192, STAT_BYTES = 8192 };

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

/* ---- what one folder says ---- */

/* NONE: nothing. */
typedef uint64_t folder_fn(const char *folder);
static const uint64_t NONE = UINT64_MAX;

/* The quota in processors, rounded up ("max" and -1: none). */
static uint64_t folder_quota(const char *folder) {
    int64_t numbers[2];
    bool known = read_numbers(folder, "cpu.max", numbers, 2) == 2 ||
                 (read_numbers(folder, "cpu.cfs_quota_us", numbers, 1) == 1 &&
                  read_numbers(folder, "cpu.cfs_period_us", numbers + 1, 1) == 1);
    if (!known || numbers[0] <= 0 || numbers[1] <= 0) return NONE;
    int64_t processors = (numbers[0] - 1) / numbers[1] + 1;
    return processors < UINT32_MAX ? (uint64_t)processors : UINT32_MAX;
}

/* A number of memory.stat: a line is "NAME NUMBER". */
static int64_t read_stat(const char *folder, const char *name) {
    char path[PATH_BYTES], storage[STAT_BYTES];
    struct str rest;
    int64_t value;
    if (!path_join(path, sizeof(path), folder, "memory.stat")) return 0;
    if (file_read_short(path, storage, sizeof(storage), &rest) != ST_OK) return 0;
    while (rest.len > 0) {
        struct str line = cut(&rest, '\n');
        if (str_is(cut(&line, ' '), name)) return str_to_i64(line, &value) ? value : 0;
    }
    return 0;
}

/* The kernel gives back the cache of files before it refuses memory, so that counts as free. */
static uint64_t folder_memory(const char *folder) {
    int64_t limit, used, cached;
    if (read_numbers(folder, "memory.max", &limit, 1) == 1 &&
        read_numbers(folder, "memory.current", &used, 1) == 1)
        cached = read_stat(folder, "file");
    else if (read_numbers(folder, "memory.limit_in_bytes", &limit, 1) == 1 &&
             read_numbers(folder, "memory.usage_in_bytes", &used, 1) == 1)
        cached = read_stat(folder, "total_cache");
    else
        return NONE;
    if (limit < 0 || used < 0) return NONE;
    if (cached > 0) used = cached < used ? used - cached : 0;
    return limit > used ? (uint64_t)(limit - used) : 0;
}

/* ---- the least of all folders ---- */

static uint64_t smaller(uint64_t a, uint64_t b) { return b < a ? b : a; }

/* From the process's group up to the root of the tree. A path that leads out of the tree ("/..",
 * seen from inside a namespace) names nothing that can be read here. */
static uint64_t tree_least(const struct tree *t, folder_fn *read) {
    uint64_t least = read(t->mount);
    if (str_starts(t->path, STR("/.."))) return least;
    for (size_t len = t->path.len; len > 1; len--) {
        bool is_group = len == t->path.len || t->path.ptr[len] == '/';
        char folder[PATH_BYTES];
        if (!is_group) continue;
        int bytes = snprintf(folder, sizeof(folder), "%s%.*s", t->mount, (int)len, t->path.ptr);
        if (bytes > 0 && (size_t)bytes < sizeof(folder)) least = smaller(least, read(folder));
    }
    return least;
}

static bool names(struct str controllers, const char *controller) {
    while (controllers.len > 0)
        if (str_is(cut(&controllers, ','), controller)) return true;
    return false;
}

/* What is looked for: the trees of a controller, and what their folders say. */
struct search {
    const char *root, *controller;
    folder_fn *read;
};

static uint64_t least_under(const struct search *s, const char *folder, struct str name,
                            struct str path) {
    struct tree t = {.path = path};
    int bytes = snprintf(t.mount, sizeof(t.mount), "%s/sys/fs/cgroup%s%.*s", s->root, folder,
                         STR_ARG(name));
    return bytes > 0 && (size_t)bytes < sizeof(t.mount) ? tree_least(&t, s->read) : NONE;
}

static uint64_t least_of_line(const struct search *s, struct str line) {
    struct str number = cut(&line, ':'), controllers = cut(&line, ':');
    if (str_is(number, "0") && controllers.len == 0)
        return smaller(least_under(s, "", STR(""), line),
                       least_under(s, "/unified", STR(""), line));
    return names(controllers, s->controller) ? least_under(s, "/", controllers, line) : NONE;
}

static uint64_t find_least(const struct search *s) {
    char path[PATH_BYTES], storage[GROUPS_BYTES];
    struct str rest;
    uint64_t least = least_under(s, "", STR(""), STR(""));
    if (!path_join(path, sizeof(path), s->root, "proc/self/cgroup")) return least;
    if (file_read_short(path, storage, sizeof(storage), &rest) != ST_OK) return least;
    while (rest.len > 0) least = smaller(least, least_of_line(s, cut(&rest, '\n')));
    return least;
}

uint32_t cgroup_cpu_quota(const char *root) {
    uint64_t least =
        find_least(&(struct search){.root = root, .controller = "cpu", .read = folder_quota});
    return least == NONE ? 0 : (uint32_t)least;
}

uint64_t cgroup_memory_left(const char *root) {
    return find_least(
        &(struct search){.root = root, .controller = "memory", .read = folder_memory});
}
