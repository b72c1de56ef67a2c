/* hub/staging.h - the folder of a model that is being fetched.
 *
 * The files of a model are written to CACHE/models/NAME.part/ while the process holds the model's
 * lock. An interrupted fetch leaves them there for the next one. A commit moves the files that the
 * manifest lists, and nothing else, to CACHE/models/NAME/.
 *
 * Lifetime: the caller's storage; open, commit or not, close. Thread: its owner. Memory: none.
 */
#ifndef HUB_STAGING_H
#define HUB_STAGING_H

#include "hub/model_cache.h"
#include "hub/model_lock.h"

struct staging {
    const struct model_cache *cache;
    char name[MODEL_NAME_BYTES];
    char folder[MODEL_PATH_BYTES]; /* where to put the files; exists */
    struct model_lock lock;
};

/* ST_FULL: another process is changing this model. */
enum status staging_open(struct staging *s, const struct model_cache *cache, const char *name,
                         struct err *err);

/* Write the manifest, sync everything and rename it to the final name. An older model of that name
 * is replaced. */
enum status staging_commit(struct staging *s, struct manifest *m, struct err *err);

void staging_close(struct staging *s);

#endif
