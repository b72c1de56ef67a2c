/* hub/model_lock.h - the lock that a process holds while it changes a cached model.
 *
 * A file CACHE/locks/NAME under flock(). It is deleted when the lock is released, and it is
 * released by the system if the process dies. Readers take no lock: a model appears by one rename.
 *
 * Lifetime: the caller's storage; lock, unlock. Thread: its owner. Memory: none.
 */
#ifndef HUB_MODEL_LOCK_H
#define HUB_MODEL_LOCK_H

#include "hub/model_cache.h"

struct model_lock {
    char path[MODEL_PATH_BYTES];
    int fd; /* -1: not held */
};

/* ST_FULL: another process is changing this model. */
enum status model_lock(struct model_lock *l, const struct model_cache *cache, const char *name,
                       struct err *err);
void model_unlock(struct model_lock *l);

#endif
