/* cli/recording.h - the step records of an engine as a file: a recording (docs/page.md).
 *
 * Lifetime: none of its own. Thread: the caller's; the engine may run on. Memory: a copy of one
 * piece of the records at a time.
 */
#ifndef CLI_RECORDING_H
#define CLI_RECORDING_H

#include <stdbool.h>

#include "base/status.h"

struct buf;
struct engine;
struct record_hello;

/* The newest records of `e`, as many as the page shows, as JSON; `is_page`: inside the page in one
 * file, which a browser shows from a disk. ST_NOMEM: memory ran out. */
enum status recording_put(const struct engine *e, const struct record_hello *hello, bool is_page,
                          struct buf *out);

#endif
