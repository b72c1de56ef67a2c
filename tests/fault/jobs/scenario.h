/* fault/jobs/scenario.h - a life of a store, step by step, that uses every verb, and what the store
 * holds after each step.
 *
 * A step is one operation or several; only the last one changes what clients can see. So a store
 * that failed in step i holds state i or state i + 1, and nothing else, and the step can be run
 * again if it holds state i.
 *
 *     scenario_learn();                       run it without faults, note the states
 *     char *dump = scenario_dump(dir);        what clients could see; free it
 *     scenario_state(i)                       what that is before step i
 */
#ifndef FAULT_JOBS_SCENARIO_H
#define FAULT_JOBS_SCENARIO_H

#include <stddef.h>

#include "base/status.h"

struct test_store;

/* A log that is moved to the database after a few operations, so that faults hit that as well. */
enum { LOG_PAGES = 25 };

/* Sanitizers and emulators make a run several times as long, so they take fewer of them. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(TESTS_ARE_EMULATED)
enum { FEWER = 4 };
#else
enum { FEWER = 1 };
#endif

struct scenario_step {
    const char *name;
    enum status (*run)(struct test_store *t);
};
extern const struct scenario_step scenario_steps[];
extern const size_t scenario_count;

void scenario_learn(void);
void scenario_forget(void);
const char *scenario_state(size_t step);
char *scenario_dump(const char *dir);

/* From step `first` on to the end, without faults; every step must work and the end be right. */
void scenario_complete(struct test_store *t, size_t first);
/* The store failed in step `step`, is healthy again and open: check what it holds, and return the
 * step to go on with. */
size_t scenario_judge(struct test_store *t, size_t step, const char *what);

#endif
