/* engine/record_json.h - step records as JSON, as docs/api.md describes it for /v1/engine/steps.
 *
 * Lists are arrays of numbers and words; "hello" names their columns once.
 * Thread: any.
 */
#ifndef ENGINE_RECORD_JSON_H
#define ENGINE_RECORD_JSON_H

#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct buf;
struct record;
struct record_ring;

struct record_hello {
    struct str model;
    int64_t epoch_ms; /* wall time at at_us 0 */
    uint32_t seats, blocks, block_tokens;
};
void record_put_hello(const struct record_hello *hello, struct buf *out);
void record_put_step(const struct record *r, struct buf *out);
/* The newest `count` records of the ring, as many as it keeps, separated by commas; each begins a
 * line. ST_NOMEM: memory for a piece of them ran out; `out` has its own status. */
enum status record_put_steps(struct record_ring *ring, uint64_t count, struct buf *out);

#endif
