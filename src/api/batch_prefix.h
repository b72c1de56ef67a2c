/* api/batch_prefix.h - which lines of a batch begin with the same prompt; see api/batch_lines.h.
 *
 * Thread: any.
 */
#ifndef API_BATCH_PREFIX_H
#define API_BATCH_PREFIX_H

#include <stdint.h>

#include "base/str.h"

struct json;

/* A hash of the prefix of a request's body; equal prefixes have equal hashes. */
uint64_t batch_prefix_of(const struct json *body);
/* A hash of a custom_id, for finding one that is used twice. Two of 100,000 different ids have the
 * same one with a probability of 3e-10. */
uint64_t batch_id_hash(struct str custom_id);

#endif
