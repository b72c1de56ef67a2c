/* engine/stops.h - ending a text at the first of some strings, without showing any of it.
 *
 * Text goes in piece by piece; what can no longer be part of a stop string comes out. The bytes
 * that may be the beginning of one are held back until they are or are not.
 *
 * Lifetime: init, use, deinit. Thread: its owner.
 */
#ifndef ENGINE_STOPS_H
#define ENGINE_STOPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

struct stops {
    const struct str *strings; /* borrowed */
    uint32_t count;
    struct buf held;
    struct str met; /* which one was met; empty until then */
};

void stops_init(struct stops *s, const struct str *strings, uint32_t count);
void stops_deinit(struct stops *s);

/* Append what may be shown to `out`; true if a stop string was met, after which nothing more
 * comes. */
bool stops_push(struct stops *s, struct str text, struct buf *out);

/* The text has ended by other means: what was held back is shown. */
void stops_finish(struct stops *s, struct buf *out);

#endif
