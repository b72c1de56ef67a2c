/* cli/tool_run.c - see cli/tool_run.h. */
#define _GNU_SOURCE /* POSIX_SPAWN_SETSID, pipe2, posix_spawn_file_actions_addclosefrom_np */
#include "cli/tool_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/interrupt.h"
#include "config/env.h"

enum {
    READ_BYTES = 16 * 1024,
    TICK_MS = 20,                 /* how soon an exit is noticed while a pipe stays open */
    GRACE_US = 1000 * 1000,       /* between SIGTERM and SIGKILL */
    GIVE_UP_US = 5 * 1000 * 1000, /* after SIGKILL, for a process that the kernel holds */
    DRAIN_READS_MAX = 1024,       /* of what is left in a pipe that others still write to */
};

enum { IN, OUT, ERRORS, STREAMS };

struct job {
    const struct tool_command *command;
    struct tool_result *result;
    pid_t pid;
    int fds[STREAMS]; /* our ends of the pipes; -1: closed */
    struct str input; /* what is not yet written */
    int64_t deadline_us;
    int64_t kill_us; /* when SIGKILL is due; 0: the command was not asked to end */
    bool is_killed;
};

void tool_result_init(struct tool_result *r) {
    *r = (struct tool_result){0};
    buf_init(&r->output, TOOL_OUTPUT_BYTES_MAX);
    buf_init(&r->errors, TOOL_ERRORS_BYTES_MAX);
}

void tool_result_deinit(struct tool_result *r) {
    buf_deinit(&r->output);
    buf_deinit(&r->errors);
}

/* ---- starting ---- */

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* theirs[IN] is read by the command, the others are written by it. */
static int open_pipes(struct job *j, int theirs[STREAMS]) {
    for (int s = 0; s < STREAMS; s++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) return errno;
        const int ours = s == IN ? 1 : 0;
        j->fds[s] = ends[ours];
        theirs[s] = ends[1 - ours];
        if (fcntl(j->fds[s], F_SETFL, O_NONBLOCK) != 0) return errno;
    }
    return 0;
}

/* Signals that this program blocks or ignores have their usual effect in the command. */
static int set_attributes(posix_spawnattr_t *attributes) {
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    int rc = posix_spawnattr_setsigmask(attributes, &none);
    if (rc == 0) rc = posix_spawnattr_setsigdefault(attributes, &defaults);
    if (rc == 0)
        rc = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
                                                      POSIX_SPAWN_SETSIGDEF);
    return rc;
}

static int spawn(struct job *j, const int theirs[STREAMS]) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0) return rc;
    rc = posix_spawnattr_init(&attributes);
    if (rc != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return rc;
    }
    for (int s = 0; s < STREAMS && rc == 0; s++)
        rc = posix_spawn_file_actions_adddup2(&actions, theirs[s], s);
    if (rc == 0) rc = posix_spawn_file_actions_addclosefrom_np(&actions, STREAMS);
    if (rc == 0) rc = set_attributes(&attributes);
    if (rc == 0)
        rc = posix_spawnp(&j->pid, j->command->argv[0], &actions, &attributes, j->command->argv,
                          env_all());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

static int start(struct job *j) {
    int theirs[STREAMS] = {-1, -1, -1};
    int rc = open_pipes(j, theirs);
    if (rc == 0) rc = spawn(j, theirs);
    for (int s = 0; s < STREAMS; s++) close_fd(&theirs[s]);
    return rc;
}

/* ---- while it runs ---- */

static void write_input(struct job *j) {
    if (j->input.len > 0) {
        ssize_t put = write(j->fds[IN], j->input.ptr, j->input.len);
        if (put < 0 && (errno == EAGAIN || errno == EINTR)) return;
        /* A command need not read its input: a closed pipe is not an error. */
        j->input = put < 0 ? (struct str){0} : str_skip(j->input, (size_t)put);
    }
    if (j->input.len == 0) close_fd(&j->fds[IN]);
}

/* Read once. False: there is nothing to read at present, or nothing more. */
static bool read_stream(struct job *j, int stream) {
    char bytes[READ_BYTES];
    struct tool_result *r = j->result;
    struct buf *kept = stream == OUT ? &r->output : &r->errors;
    uint64_t *total = stream == OUT ? &r->output_bytes : &r->errors_bytes;
    if (j->fds[stream] < 0) return false;
    ssize_t got = read(j->fds[stream], bytes, sizeof(bytes));
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
        close_fd(&j->fds[stream]);
        return false;
    }
    *total += (uint64_t)got;
    size_t room = kept->max - kept->len;
    buf_put(kept, bytes, (size_t)got < room ? (size_t)got : room);
    return true;
}

/* Its processes are its group, which has the number of its leader. */
static void send_signal(const struct job *j, int number) { kill(-j->pid, number); }

static void ask_to_end(struct job *j, enum tool_end why, int64_t now_us) {
    if (j->kill_us == 0 || why == TOOL_STOPPED) j->result->end = why;
    if (j->kill_us == 0) {
        j->kill_us = now_us + GRACE_US;
        send_signal(j, SIGTERM);
    } else
        j->kill_us = now_us; /* Ctrl-C while it is ending */
}

/* Whether the command has ended; its number stays taken until it is reaped. */
static bool has_ended(const struct job *j) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)j->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

static void move_bytes(struct job *j) {
    const int interrupt = interrupt_fd(j->command->interrupt);
    struct pollfd fds[] = {{j->fds[IN], POLLOUT, 0},
                           {j->fds[OUT], POLLIN, 0},
                           {j->fds[ERRORS], POLLIN, 0},
                           {interrupt, POLLIN, 0}};
    if (poll(fds, 4, TICK_MS) < 0) return; /* EINTR */
    if (fds[IN].revents) write_input(j);
    if (fds[OUT].revents) read_stream(j, OUT);
    if (fds[ERRORS].revents) read_stream(j, ERRORS);
}

/* False: the kernel does not let go of it, and there is nothing left to try. */
static bool check_limits(struct job *j) {
    int64_t now_us = clock_now(&clock_real);
    if (interrupt_take(j->command->interrupt)) ask_to_end(j, TOOL_STOPPED, now_us);
    if (j->kill_us == 0 && now_us >= j->deadline_us) ask_to_end(j, TOOL_TIMED_OUT, now_us);
    if (j->kill_us > 0 && now_us >= j->kill_us && !j->is_killed) {
        j->is_killed = true;
        send_signal(j, SIGKILL);
    }
    return !j->is_killed || now_us < j->kill_us + GIVE_UP_US;
}

static void note_end(struct job *j) {
    int status = 0;
    if (j->kill_us > 0) send_signal(j, SIGKILL); /* what ignored SIGTERM in its group */
    pid_t pid = waitpid(j->pid, &status, WNOHANG);
    if (j->kill_us > 0 || pid != j->pid) return;
    j->result->end = WIFEXITED(status) ? TOOL_EXITED : TOOL_SIGNALLED;
    j->result->code = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
}

void tool_run(const struct tool_command *command, struct tool_result *out) {
    struct job j = {.command = command,
                    .result = out,
                    .fds = {-1, -1, -1},
                    .input = command->input,
                    .deadline_us = clock_now(&clock_real) + command->timeout_us};
    int rc = start(&j);
    if (rc != 0) {
        out->end = TOOL_NOT_STARTED;
        out->code = rc;
    } else {
        bool ended = false;
        while (!(ended = has_ended(&j)) && check_limits(&j)) move_bytes(&j);
        for (int stream = OUT; stream < STREAMS && ended; stream++)
            for (int i = 0; i < DRAIN_READS_MAX && read_stream(&j, stream); i++) {
            }
        note_end(&j);
    }
    for (int s = 0; s < STREAMS; s++) close_fd(&j.fds[s]);
}
