/* engine/settler.h - grammar work that is too long for the engine's thread.
 *
 * After each token of an answer with a grammar the engine's thread settles the answer's sampler
 * (sample/sampler.h), if that is quick. If it is not, a job takes the sampler to one of a few
 * threads here, and the sequence has no row until the job is done. Other sequences go on.
 *
 *     JOB_IDLE --settler_push--> JOB_WAITING --> JOB_RUNNING --> JOB_IDLE
 *                                     `---settler_drop---> JOB_IDLE
 *
 * At most one job of a grammar runs at a time, because a job locks its grammar. At most two jobs of
 * a tenant run at a time, so that one thread is free for other tenants. Within these limits the
 * oldest job runs first.
 *
 * A job refers to its request while it waits or runs, so the sampler and the grammar stay.
 *
 * Lifetime: create, destroy. Thread: the engine's; the jobs run in threads of the settler, which
 * are started when they are needed.
 */
#ifndef ENGINE_SETTLER_H
#define ENGINE_SETTLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/status.h"

struct request;
struct sampler;
struct settler; /* opaque */

enum job_state { JOB_IDLE, JOB_WAITING, JOB_RUNNING };

/* A part of the choice whose sampler it is. */
struct settle_job {
    struct sampler *sampler;
    struct request *request;
    struct list_link in_waiting; /* under the settler's lock */
    _Atomic int state;           /* enum job_state */
};

enum status settler_create(struct settler **out);
void settler_destroy(struct settler *s); /* drops what waits, waits for what runs; NULL is fine */

/* The job is idle. If no thread can be started the work is done before it returns. */
void settler_push(struct settler *s, struct settle_job *job);
bool settler_is_idle(const struct settle_job *job); /* true: the sampler is the caller's */

/* The sequence has ended. A job that runs goes on and holds its request; one that waits is taken
 * out. */
void settler_drop(struct settler *s, struct settle_job *job);

/* Returns when a job has ended since the last call, or after `us`. */
void settler_wait(struct settler *s, int64_t us);

#endif
