#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "sim/pool.h"

#include <fcntl.h>
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

/* Process `index` takes every processes-th seed and its share of the worlds. */
static void run_share(const struct pool_task *t, uint32_t index, struct pool_report *r) {
    uint64_t worlds_min = t->worlds_min / t->processes + (t->worlds_min % t->processes != 0);
    uint64_t steps_min = t->steps_min / t->processes;
    for (uint64_t i = index; i < t->worlds_max; i += t->processes) {
        if (r->worlds >= worlds_min && r->counts[COUNT_STEPS] >= steps_min) break;
        struct world_options o = t->options;
        struct err err = {0};
        o.seed = t->first_seed + i;
        o.mark = &r->mark;
        CHECK(world_run(&o, &r->outcome, &err) == ST_OK);
        if (r->outcome.is_wrong) {
            r->is_wrong = true;
            return;
        }
        add_outcome(r, &r->outcome);
    }
    r->is_done = true;
}

static pid_t start(const struct pool_task *t, uint32_t index, struct pool_report *r) {
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid > 0) return pid;
    if (t->seconds_max) alarm(t->seconds_max);
    int null = t->is_quiet ? open("/dev/null", O_WRONLY) : -1;
    if (null >= 0) dup2(null, STDERR_FILENO);
    run_share(t, index, r);
    _exit(r->is_done ? 0 : 1);
}

static void say(const struct pool_report *r, int status, struct err *what) {
    if (what->text[0]) return; /* the first one is enough */
    const char *why = r->is_wrong ? r->outcome.what.text : "a CHECK failed or it crashed";
    if (!r->is_wrong && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        why = "it does not come to an end";
    err_set(what, ST_BAD, "seed %lu, step %lu, %s: %s; replay: build/tests/test_sim --seed %lu --trace",
            (unsigned long)r->mark.seed, (unsigned long)r->mark.step, r->mark.policy, why,
            (unsigned long)r->mark.seed);
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

bool pool_run(const struct pool_task *task, struct pool_report *sum, struct err *what) {
    CHECK(task->processes >= 1 && task->processes <= POOL_PROCESSES_MAX);
    size_t bytes = POOL_PROCESSES_MAX * sizeof(struct pool_report);
    struct pool_report *reports =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(reports != MAP_FAILED);
    pid_t pids[POOL_PROCESSES_MAX];
    for (uint32_t i = 0; i < task->processes; i++) pids[i] = start(task, i, &reports[i]);
    *sum = (struct pool_report){.is_done = true};
    for (uint32_t i = 0; i < task->processes; i++) {
        int status;
        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        add_report(sum, &reports[i]);
        if (reports[i].is_done) continue;
        sum->is_done = false;
        say(&reports[i], status, what);
    }
    munmap(reports, bytes);
    return sum->is_done;
}
