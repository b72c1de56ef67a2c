/* server/smoother.h - text that comes in bursts, told evenly.
 *
 * Tellers write into a log of its own, the stage; from there events move on to the answer's log,
 * so many characters for the time that has passed that everything on the stage is out a window
 * after the last of it came. A text may be told in pieces, never within a character; its tokens
 * go with its first piece. What is no text moves on as soon as everything before it has.
 *
 * Lifetime: create, note what came, release as time passes, destroy. Thread: its owner.
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
/* Something was written to the stage. */
void smoother_note(struct smoother *s, int64_t now_us);

/* Move on what is due. `on_finish` hears of every EVENT_FINISH that has moved. The status is that
 * of the log. */
typedef void smoother_finish_fn(void *ctx, uint32_t choice, enum finish_reason finish);
enum status smoother_release(struct smoother *s, int64_t now_us, struct event_log *to,
                             smoother_finish_fn *on_finish, void *ctx);
bool smoother_is_empty(const struct smoother *s);

#endif
