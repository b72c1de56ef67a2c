/* engine/key_statistics.h - the smoothing of keys (graph/key_smoothing.h), found in the model's own
 * keys and queries.
 *
 * Once, after the weights are loaded, the model runs a built-in text of about KEY_TEXT_TOKENS_MAX
 * tokens with a cache of KV_F32. With the keys' mean m and deviation s and the queries' root of the
 * mean square r, by layer, KV head and dimension:
 *
 *     mean = m, or 0 where scores are capped        scale = sqrt(s / r)
 *
 * The feedback comes from the second moments of the queries, smoothed and transformed, with 0.03 of
 * their mean added to the diagonal. A model with which nothing was added up has no smoothing; a KV
 * head whose moments have no usable factor has feedback 0.
 *
 * If all stored numbers have errors of the same size, this scale gives the products of queries and
 * keys the smallest error. The result depends on the model alone: neither on the number of threads
 * nor on the instruction set.
 *
 * Lifetime: as the loaded model, whose layers point here.
 * Thread: the one that loads.
 * Memory: about 3 + head_dim floats for each dimension of a token's keys in all layers; 2 +
 * head_dim doubles more meanwhile, and the cache of the text.
 */
#ifndef ENGINE_KEY_STATISTICS_H
#define ENGINE_KEY_STATISTICS_H

#include "base/status.h"

enum { KEY_TEXT_TOKENS_MAX = 512 };

struct key_statistics;
struct loaded_model;

/* ST_NOMEM, or what the pass returns. */
enum status key_statistics_create(struct loaded_model *loaded, struct key_statistics **out,
                                  struct err *err);
void key_statistics_destroy(struct key_statistics *p); /* NULL is fine */

#endif
