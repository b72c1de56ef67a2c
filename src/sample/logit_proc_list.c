/* sample/logit_proc_list.c - every logit processor, in the order in which their edits apply. */
#include "sample/logit_proc.h"

#include <stddef.h>

extern const struct logit_proc logit_proc_penalty;
extern const struct logit_proc logit_proc_bias;
extern const struct logit_proc logit_proc_early;
extern const struct logit_proc logit_proc_grammar;
extern const struct logit_proc logit_proc_thinking;

const struct logit_proc *const logit_procs[] = {
    &logit_proc_penalty, &logit_proc_bias,     &logit_proc_early,
    &logit_proc_grammar, &logit_proc_thinking, NULL,
};
_Static_assert(sizeof(logit_procs) / sizeof(logit_procs[0]) <= LOGIT_PROCS_MAX + 1,
               "a sampler has room for LOGIT_PROCS_MAX processors");
