/* hub/pip_download.c - see hub/pip_download.h for the contract. */
#include "hub/pip_download.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/size_text.h"
#include "base/tree.h"
#include "config/env.h"
#include "hub/progress.h"

enum { PATH_BYTES = 4096, LOG_BYTES_MAX = 1 << 20, ARGS_MAX = 20, POLL_MS = 100 };

/* The ways to call pip, best first. */
static const char *const runners[][4] = {
    {"python3", "-m", "pip", NULL},
    {"pip3", NULL},
    {"pip", NULL},
};

enum outcome { PIP_DONE, PIP_ABSENT, PIP_FAILED };

struct pip_run {
    const char *folder;
    char requirement[256];
    char log_path[PATH_BYTES];
    struct progress *progress;
};

static void fill_args(const struct pip_run *r, const char *const *runner,
                      const char *argv[ARGS_MAX]) {
    const char *const rest[] = {
        "download",       "--no-deps",  "--only-binary",
        ":all:",          "--no-input", "--disable-pip-version-check",
        "--progress-bar", "off",        "--quiet",
        "--dest",         r->folder,    r->requirement,
    };
    size_t n = 0;
    while (*runner) argv[n++] = *runner++;
    for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++) argv[n++] = rest[i];
    argv[n] = NULL;
}

/* Without input; standard output and error go to the log. 0 or an errno. */
static int spawn(const struct pip_run *r, const char *const *argv, char **environment, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0) return rc;
    rc = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, r->log_path,
                                              O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (rc == 0) rc = posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    /* posix_spawnp takes char *const * for historical reasons and changes nothing. */
    if (rc == 0)
        rc =
            posix_spawnp(pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

/* Wait for the child and report the size of the folder meanwhile. The exit code, or -1. */
static int watch(const struct pip_run *r, pid_t pid) {
    for (;;) {
        int state;
        pid_t got = waitpid(pid, &state, WNOHANG);
        if (got == pid) return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
        if (got < 0 && errno != EINTR) return -1;
        uint64_t bytes = tree_bytes(r->folder);
        /* At the end pip copies the wheel, so for a moment there are two. */
        uint64_t total = r->progress ? r->progress->total_bytes : 0;
        progress_update(r->progress, bytes < total ? bytes : total);
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    }
}

/* The last line that begins with "ERROR", else the last line of any kind. */
static struct str error_line(struct str log) {
    struct str last = {"", 0}, error = {"", 0};
    while (log.len) {
        const char *end = memchr(log.ptr, '\n', log.len);
        size_t len = end ? (size_t)(end - log.ptr) : log.len;
        struct str line = str_trim(str_take(log, len));
        if (line.len) last = line;
        if (str_starts(line, STR("ERROR"))) error = line;
        log = str_skip(log, len + (end ? 1 : 0));
    }
    return str_take(error.len ? error : last, 240);
}

/* The line of the log in which pip names a broken connection; empty if there is none. */
static struct str connection_line(struct str log) {
    static const char *const marks[] = {"connection broken by", "name resolution",
                                        "Failed to establish a new connection", "timed out"};
    const char *found = NULL;
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]) && !found; i++)
        found = strstr(log.ptr, marks[i]);
    if (!found) return (struct str){"", 0};
    /* The errno is what a person understands: "[Errno 101] Network is unreachable". */
    struct str line = {found, strcspn(found, "\n")};
    const char *code = strstr(found, "[Errno ");
    if (code && code < line.ptr + line.len) line = (struct str){code, strcspn(code, "'\"\n")};
    return str_take(line, 160);
}

/* Whether the disk of the folder has less than `bytes` left; false if nobody knows. */
static bool lacks_room(const struct pip_run *r, uint64_t bytes) {
    struct statvfs disk;
    if (statvfs(r->folder, &disk) != 0 || disk.f_blocks == 0) return false;
    return (uint64_t)disk.f_bavail * disk.f_frsize < bytes;
}

/* A full disk often leaves no message: pip cannot write to its log either. It needs the wheel
 * twice for a moment. */
static bool is_disk_full(const struct pip_run *r, const char *log, bool has_error) {
    static const char *const marks[] = {"No space left on device", "Errno 28",
                                        "Disk quota exceeded"};
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        if (strstr(log, marks[i])) return true;
    uint64_t wheel_bytes = r->progress ? r->progress->total_bytes : 0;
    return lacks_room(r, has_error ? wheel_bytes : 2 * wheel_bytes);
}

static enum status report_full(const struct pip_run *r, struct err *err) {
    char size[SIZE_TEXT_BYTES];
    return err_set(err, ST_IO,
                   "pip could not download %s: the disk of %s is full; free %s, or set "
                   "JITNEY_CACHE to a folder on another disk",
                   r->requirement, r->folder,
                   size_text(2 * (r->progress ? r->progress->total_bytes : 0), size));
}

static enum status report_failure(const struct pip_run *r, struct str log, int code,
                                  struct err *err) {
    struct str line = error_line(log);
    struct str connection = connection_line(log);
    if (connection.len)
        return err_set(err, ST_UNAVAILABLE,
                       "pip could not download %s: no connection to the package index: %.*s; "
                       "check the network, HTTPS_PROXY and PIP_INDEX_URL, or give a wheel with "
                       "--wheel (the whole output is in %s)",
                       r->requirement, STR_ARG(connection), r->log_path);
    if (is_disk_full(r, log.ptr, str_starts(line, STR("ERROR")))) return report_full(r, err);
    if (line.len == 0 && code < 0)
        return err_set(err, ST_UNAVAILABLE,
                       "pip could not download %s: a signal ended it and it wrote no message",
                       r->requirement);
    if (line.len == 0)
        return err_set(err, ST_UNAVAILABLE,
                       "pip could not download %s: it ended with exit code %d and wrote no "
                       "message; run `pip download --no-deps %s` to see why",
                       r->requirement, code, r->requirement);
    return err_set(err, ST_UNAVAILABLE,
                   "pip could not download %s: %.*s (the whole output is in %s)", r->requirement,
                   STR_ARG(line), r->log_path);
}

static enum outcome read_log(const struct pip_run *r, int code, enum status *st, struct err *err) {
    struct buf log;
    buf_init(&log, LOG_BYTES_MAX);
    file_read(r->log_path, &log, NULL);
    struct str text = {buf_text(&log), log.len};
    enum outcome outcome = PIP_FAILED;
    if (strstr(text.ptr, "No module named pip"))
        outcome = PIP_ABSENT;
    else
        *st = report_failure(r, text, code, err);
    buf_deinit(&log);
    return outcome;
}

static enum outcome run_one(const struct pip_run *r, const char *const *runner, char **environment,
                            enum status *st, struct err *err) {
    const char *argv[ARGS_MAX];
    pid_t pid;
    fill_args(r, runner, argv);
    int rc = spawn(r, argv, environment, &pid);
    if (rc == ENOSPC || rc == EDQUOT) {
        *st = report_full(r, err); /* no room even for the log */
        return PIP_FAILED;
    }
    if (rc == ENOENT || rc == EACCES || rc == ENOTDIR) return PIP_ABSENT;
    if (rc != 0) {
        *st = err_set(err, ST_UNAVAILABLE, "cannot run %s: %s", argv[0], strerror(rc));
        return PIP_FAILED;
    }
    int code = watch(r, pid);
    if (code == 0) return PIP_DONE;
    /* The child exits with 127 if it could not execute the program. */
    return code == 127 ? PIP_ABSENT : read_log(r, code, st, err);
}

enum status pip_download(const char *package, const char *version, const char *folder,
                         struct progress *progress, struct err *err) {
    struct pip_run r = {.folder = folder, .progress = progress};
    snprintf(r.requirement, sizeof(r.requirement), "%s==%s", package, version);
    if (!path_join(r.log_path, sizeof(r.log_path), folder, "pip.log"))
        return err_set(err, ST_CREATE, "%s: name too long", folder);
    /* pip downloads to TMPDIR first. Inside `folder` its growth can be measured, and a full /tmp
     * does not matter. */
    char **environment = env_for_child("TMPDIR", folder);
    if (!environment) return err_set(err, ST_NOMEM, "out of memory starting pip");
    enum status st = ST_OK;
    enum outcome outcome = PIP_ABSENT;
    for (size_t i = 0; i < sizeof(runners) / sizeof(runners[0]) && outcome == PIP_ABSENT; i++)
        outcome = run_one(&r, runners[i], environment, &st, err);
    mem_free(environment);
    if (outcome == PIP_ABSENT) return err_set(err, ST_MISSING, "pip is not installed");
    return outcome == PIP_DONE ? ST_OK : st;
}
