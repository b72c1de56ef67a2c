/* jobs/schema_int.h - conditions that indexes and queries must write in the same words. */
#ifndef JOBS_SCHEMA_INT_H
#define JOBS_SCHEMA_INT_H

/* The batch is in a state that is not final: VALIDATING, IN_PROGRESS, FINALIZING, CANCELLING. */
#define BATCH_IS_OPEN "state IN (0, 2, 3, 6)"

#endif
