/* engine/control.h - what other threads ask of the engine thread: which state each KV block is in,
 * and another policy or other knobs.
 *
 *     any thread:     control_ask_map -> a ticket; later control_map
 *                     control_ask_change -> a ticket; later control_is_done
 *     engine thread:  control_is_asked, once in a turn; control_take, then control_finish
 *
 * One thread asks at a time for a change; a second one before the first is done is ST_FULL.
 *
 * Lifetime: as its engine. Thread: as above; one lock. Memory: all allocated by create.
 */
#ifndef ENGINE_CONTROL_H
#define ENGINE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/knobs.h"

struct control; /* opaque */
struct kv_cache;
struct sched_policy;

/* What the scheduler is told. */
struct control_rules {
    const struct sched_policy *policy;
    struct knobs knobs;
};

/* `rules` are in force at the start. */
enum status control_create(struct control **out, const struct control_rules *rules);
void control_destroy(struct control *c); /* NULL is fine */

/* ---- any thread ---- */

struct control_rules control_rules(struct control *c); /* those in force */
uint64_t control_ask_map(struct control *c);
enum status control_ask_change(struct control *c, const struct control_rules *rules,
                               uint64_t *ticket);
bool control_is_done(struct control *c, uint64_t ticket);
/* The states of the blocks of the first KV group (enum kv_block_state), as they were when the last
 * map was made; `out` has room for kv_blocks. */
void control_map(struct control *c, uint8_t *out);

/* ---- the engine thread ---- */

bool control_is_asked(const struct control *c); /* cheap */
/* What is asked for; *rules: the new ones, if a change is among it (true). */
bool control_take(struct control *c, struct control_rules *rules);
/* All that was taken is done; a map is made from `kv`, if one was asked for. */
void control_finish(struct control *c, const struct kv_cache *kv);

#endif
