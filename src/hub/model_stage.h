/* hub/model_stage.h - a model on its way into the cache.
 *
 * While it is fetched its files lie in CACHE/models/NAME.part/, under a lock that one process
 * at a time can hold. A fetch that breaks leaves them there for the next; one that succeeds
 * moves those the manifest lists, and nothing else, to CACHE/models/NAME/.
 *
 * Lifetime: open, commit or not, close. Thread: its owner.
 */
#ifndef HUB_MODEL_STAGE_H
#define HUB_MODEL_STAGE_H

#include "hub/model_cache.h"

struct model_stage {
    const struct model_cache *cache;
    char name[MODEL_NAME_BYTES];
    char folder[MODEL_PATH_BYTES]; /* where to put the files; exists */
    char lock_path[MODEL_PATH_BYTES];
    int lock_fd;
};

/* ST_FULL when another process is changing this model. */
enum status model_stage_open(struct model_stage *s, const struct model_cache *cache,
                             const char *name, struct err *err);

/* Write the note, make everything durable and put it under the final name. An older model of
 * that name is replaced. */
enum status model_stage_commit(struct model_stage *s, struct manifest *m, struct err *err);

void model_stage_close(struct model_stage *s);

/* The lock alone, for those who only remove. */
enum status model_lock(struct model_stage *s, const struct model_cache *cache, const char *name,
                       struct err *err);
void model_unlock(struct model_stage *s);

/* Remove a model and what was fetched of it, adding to *freed_bytes. ST_MISSING if there is
 * neither; ST_FULL while somebody is fetching it. */
enum status model_cache_remove(const struct model_cache *c, const char *name, uint64_t *freed_bytes,
                               struct err *err);

#endif
