#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "sim/pool.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

static uint32_t place_of(const char *policy) {
    uint32_t i = 0;
    while (sched_policies[i] && strcmp(sched_policies[i]->name, policy) != 0) i++;
    CHECK(i < POOL_POLICIES_MAX);
    return i;
}

static void add_outcome(struct pool_report *r, const struct world_outcome *o) {
    uint32_t policy = place_of(o->policy);
    r->worlds++;
    r->hash += o->hash;
    r->worlds_of[policy]++;
    r->steps_of[policy] += o->counts[COUNT_STEPS];
    for (int i = 0; i < WORLD_COUNTS; i++) r->counts[i] += o->counts[i];
}

/* Memory that the parent and its processes share. */
struct shared {
    bool is_over; /* something was found: the others need not go on */
    struct pool_report reports[POOL_PROCESSES_MAX];
};

/* Process `index` takes every processes-th seed and its share of the worlds. */
static void run_share(const struct pool_task *t, uint32_t index, struct shared *shared) {
    struct pool_report *r = &shared->reports[index];
    uint64_t worlds_min = t->worlds_min / t->processes + (t->worlds_min % t->processes != 0);
    uint64_t steps_min = t->steps_min / t->processes;
    for (uint64_t i = index; i < t->worlds_max && !shared->is_over; i += t->processes) {
        if (r->worlds >= worlds_min && r->counts[COUNT_STEPS] >= steps_min) break;
        struct world_options o = t->options;
        struct err err = {0};
        o.seed = t->first_seed + i;
        if (t->both_depths) o.depth = o.seed % 2;
        o.mark = &r->mark;
        if (t->seconds_max) alarm(t->seconds_max); /* for this world: others may be many */
        CHECK(world_run(&o, &r->outcome, &err) == ST_OK);
        if (r->outcome.is_wrong) {
            r->is_wrong = true;
            return;
        }
        add_outcome(r, &r->outcome);
    }
    r->is_done = true;
}

/* What a process says on its way down goes into `errors`. */
static pid_t start(const struct pool_task *t, uint32_t index, FILE *errors, struct shared *shared) {
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid > 0) return pid;
    dup2(fileno(errors), STDERR_FILENO);
    run_share(t, index, shared);
    _exit(shared->reports[index].is_done ? 0 : 1);
}

/* The line of a CHECK that failed, or of a sanitizer. */
static void read_errors(FILE *errors, struct err *out) {
    char line[512];
    rewind(errors);
    while (fgets(line, sizeof(line), errors)) {
        line[strcspn(line, "\n")] = 0;
        if (strstr(line, "does not hold") || strstr(line, "ERROR: ") ||
            strstr(line, "runtime error: ")) {
            err_set(out, ST_BAD, "%s", line);
            return;
        }
    }
    err_set(out, ST_BAD, "it crashed");
}

static void say(const struct pool_report *r, int status, FILE *errors, struct err *what) {
    struct err crash = {0};
    read_errors(errors, &crash);
    const char *why = r->is_wrong ? r->outcome.what.text : crash.text;
    if (!r->is_wrong && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        why = "it does not come to an end";
    err_set(what, ST_BAD, "seed %lu, depth %u, step %lu, %s: %s", (unsigned long)r->mark.seed,
            r->mark.depth, (unsigned long)r->mark.step, r->mark.policy, why);
}

static void add_report(struct pool_report *sum, const struct pool_report *r) {
    sum->worlds += r->worlds;
    sum->hash += r->hash;
    for (int i = 0; i < WORLD_COUNTS; i++) sum->counts[i] += r->counts[i];
    for (int i = 0; i < POOL_POLICIES_MAX; i++) {
        sum->worlds_of[i] += r->worlds_of[i];
        sum->steps_of[i] += r->steps_of[i];
    }
}

/* The first failure is reported. */
static void await(struct shared *shared, const pid_t *pids, FILE *const *errors, uint32_t count,
                  struct pool_report *sum, struct err *what) {
    for (uint32_t left = count; left > 0; left--) {
        int status;
        pid_t pid = wait(&status);
        uint32_t i = 0;
        while (i < count && pids[i] != pid) i++;
        CHECK(i < count);
        add_report(sum, &shared->reports[i]);
        if (shared->reports[i].is_done) continue;
        if (sum->is_done) {
            say(&shared->reports[i], status, errors[i], what);
            sum->failed_seed = shared->reports[i].mark.seed;
            sum->failed_depth = shared->reports[i].mark.depth;
        }
        sum->is_done = false;
        shared->is_over = true;
    }
}

bool pool_run(const struct pool_task *task, struct pool_report *sum, struct err *what) {
    CHECK(task->processes >= 1 && task->processes <= POOL_PROCESSES_MAX);
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pid_t pids[POOL_PROCESSES_MAX];
    FILE *errors[POOL_PROCESSES_MAX];
    for (uint32_t i = 0; i < task->processes; i++) {
        errors[i] = tmpfile();
        CHECK(errors[i]);
        pids[i] = start(task, i, errors[i], shared);
    }
    *sum = (struct pool_report){.is_done = true};
    await(shared, pids, errors, task->processes, sum, what);
    for (uint32_t i = 0; i < task->processes; i++) fclose(errors[i]);
    munmap(shared, sizeof(*shared));
    return sum->is_done;
}
