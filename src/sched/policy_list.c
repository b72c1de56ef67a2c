/* sched/policy_list.c - every scheduling policy, in the order in which "jitney knobs" lists them.
 *
 * The first is the default of the C library.
 */
#include <string.h>

#include "sched/policy.h"

extern const struct sched_policy sched_policy_chunked, sched_policy_prefill_first,
    sched_policy_orca, sched_policy_static, sched_policy_dynamic, sched_policy_mlfq,
    sched_policy_sjf, sched_policy_priority, sched_policy_deadline, sched_policy_fair;

const struct sched_policy *const sched_policies[] = {
    &sched_policy_chunked,
    &sched_policy_prefill_first,
    &sched_policy_orca,
    &sched_policy_static,
    &sched_policy_dynamic,
    &sched_policy_mlfq,
    &sched_policy_sjf,
    &sched_policy_priority,
    &sched_policy_deadline,
    &sched_policy_fair,
    NULL,
};

const struct sched_policy *sched_policy_find(const char *name) {
    for (const struct sched_policy *const *p = sched_policies; *p; p++)
        if (strcmp((*p)->name, name) == 0) return *p;
    return NULL;
}
