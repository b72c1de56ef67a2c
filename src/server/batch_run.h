/* server/batch_run.h - the batches that have not ended: validated, run and written to files.
 *
 * Every open batch has a *run*, made when the batch is created and again when the server starts
 * with a store that has open batches. A run does one thing after the other:
 *
 *     READING   its input file is read in slices, checked in libuv's pool, and stored as lines
 *     RUNNING   its waiting lines are fetched in pages and run as local requests
 *     WRITING   the results are written to its output files, and the batch gets its final state
 *
 * Nothing that a run knows is needed after a crash: the store has the batch's state and which lines
 * have a result. A line without one is run again, with the same seed.
 *
 * Fairness: owners take turns, line by line; of an owner's batches the oldest comes first. A model
 * has at most twice as many lines under way as its engine runs sequences.
 *
 * Failures: an operation that the store cannot do (disk full) is tried again every second; while a
 * result waits to be stored, no new line is started. A line that is refused for the moment (429,
 * 503) is run again later, and fewer lines are kept under way. While the server is draining, no
 * line is started; what has no result when it ends is run after the next start.
 *
 * Lifetime: create, recover, (loop), stop, close, destroy. Thread: the I/O thread. Memory: at most
 * LINES_BYTES_MAX of lines and results (batch_int.h), and a page of lines or one long line for
 * each batch.
 */
#ifndef SERVER_BATCH_RUN_H
#define SERVER_BATCH_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct batch_row;
struct batch_runs; /* opaque: all of them */
struct server;

enum { BATCHES_OPEN_MAX = 100 }; /* of one owner */

enum status batch_runs_create(struct server *s, struct batch_runs **out);
/* Go on with the batches that the store has; after the models were started to load. */
void batch_runs_recover(struct batch_runs *all);
/* The server ends: cancel the lines under way that have no result. */
void batch_runs_stop(struct batch_runs *all);
void batch_runs_close(struct batch_runs *all);   /* its handle; NULL is fine */
void batch_runs_destroy(struct batch_runs *all); /* after the loop has run dry; NULL is fine */

/* The batch is stored, in the state VALIDATING or IN_PROGRESS. Out of memory: it is begun by the
 * next start of the server. */
void batch_runs_add(struct batch_runs *all, const struct batch_row *row);
/* It is stored that the batch is CANCELLING. */
void batch_runs_cancel(struct batch_runs *all, struct str id);
/* How many more batches the owner may open. */
uint32_t batch_runs_room(const struct batch_runs *all, struct str owner);
/* A model is ready, or a key was added: lines may be able to run. */
void batch_runs_wake(struct batch_runs *all);

struct batch_stats {
    uint32_t open;                        /* batches */
    uint64_t waiting;                     /* lines that have no result and are not under way */
    uint32_t running;                     /* lines under way */
    uint64_t completed, failed, repeated; /* lines, since the start */
};
struct batch_stats batch_runs_stats(const struct batch_runs *all);

#endif
