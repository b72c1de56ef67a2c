/* server/smoother.h - sends text evenly that the engine produces in bursts.
 *
 * New events are written to the smoother's own log, the stage. smoother_release moves them to the
 * answer's log, at a rate that empties the stage one window after the newest event was written.
 * A text may be divided, but never within a character; its tokens are counted with its first piece.
 * Other events move as soon as everything before them has moved.
 *
 * Lifetime: create, note new events, release as time passes, destroy. Thread: its owner.
 * Memory: the stage, under a maximum.
 */
#ifndef SERVER_SMOOTHER_H
#define SERVER_SMOOTHER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/seq.h"

struct event_log;
struct smoother; /* opaque */

enum status smoother_create(int64_t window_us, uint64_t bytes_max, struct smoother **out);
void smoother_destroy(struct smoother *s); /* NULL is fine */

struct event_log *smoother_stage(struct smoother *s);
/* Call it when events were written to the stage. */
void smoother_note(struct smoother *s, int64_t now_us);

/* Move the events that are due. `on_finish` is called for every EVENT_FINISH that moves. Returns
 * the status of the log. */
typedef void smoother_finish_fn(void *ctx, uint32_t choice, enum finish_reason finish);
enum status smoother_release(struct smoother *s, int64_t now_us, struct event_log *to,
                             smoother_finish_fn *on_finish, void *ctx);
bool smoother_is_empty(const struct smoother *s);

#endif
