/* server/stored_answer.h - answers that survive a crash.
 *
 * A request is durable if it has `store: true`, `background: true`, a `conversation` or the header
 * x-jitney-keep: durable. Its row is stored before anything is sent to the client. Then the answer
 * is generated like any other. Nothing else is stored until its end: the engine gives the same bits
 * each time, so after a crash the request is generated again from its first token, and a client
 * that comes back gets the same events with the same numbers.
 *
 *     prepared --insert--> submitted to the engine --events--> ended --finish--> in the store
 *
 * A sink of its own collects the events of the answer, and keeps the generation until its end is
 * stored. While the end cannot be stored (a full disk), it is tried again every second.
 *
 * An answer that ends because the server ends (shutting_down, engine_lost) stays open in the store
 * and is generated again after the next start.
 *
 * Thread: the I/O thread.
 */
#ifndef SERVER_STORED_ANSWER_H
#define SERVER_STORED_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "api/error.h"
#include "base/status.h"
#include "base/str.h"

struct answer;
struct answer_row;
struct buf;
struct generation;
struct generation_spec;
struct server;
struct sink;

/* Make a generation that was not started durable; its sink is added. The body, the items and the
 * mark of `spec` are copied. ST_NOMEM. */
enum status stored_answer_keep(struct server *s, struct generation *gen,
                               const struct generation_spec *spec);
/* The same for one that was read from the store. */
enum status stored_answer_resume(struct server *s, struct generation *gen);

/* The object and the events of an answer that failed before its first event: its `log` is empty,
 * and it needs no model. ST_NOMEM. */
enum status stored_answer_put_failed(const struct answer *a, struct buf *whole, struct buf *pieces);

/* generations_options.on_prepared. */
void stored_answer_insert(void *ctx, struct generation *gen);

/* ---- stored_recover.c ---- */

/* All models are loaded: generate the answers that were open when the last process ended. Called
 * again by the timer while some are left. */
void stored_answers_recover(struct server *s);
/* An answer that was read cannot be started for a reason that may pass: all open answers are read
 * again in a second. */
void stored_answers_recover_again(struct server *s);
/* A step of the engine failed while a durable answer was generated: count it, and generate it
 * again. */
void stored_answer_lost(struct server *s, const struct generation *gen);
/* The engine has failed: count that for the answers under way, so that an answer that makes it fail
 * each time ends with an error. */
void stored_answers_note_lost(struct server *s);

#endif
