/* engine/mailbox.h - the two queues between client threads and the engine thread.
 *
 * The inbox holds submitted requests and cancellations. One limit applies to the choices in the
 * inbox and those that the engine has taken and that still wait for a slot in the batch. The outbox
 * holds choices with new tokens or a finish reason that the client has not taken yet. A request is
 * in the list of cancellations at most once and a choice in the outbox at most once. All are linked
 * lists through the requests themselves, so nothing is allocated and nothing can overflow. The
 * engine collects the choices with new output of a step in a list of its own and hands the list
 * over at the end of the step, so it takes the lock once per step.
 *
 * Lifetime: created with the engine, destroyed after its thread has ended. Thread: any.
 */
#ifndef ENGINE_MAILBOX_H
#define ENGINE_MAILBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/request.h"

struct mailbox; /* opaque */

/* Choices of requests, and of batch requests, which have a limit of their own. */
enum status mailbox_create(struct mailbox **out, uint32_t live_max, uint32_t batch_max);
/* Another limit, for what is submitted from now on, without batch requests. */
void mailbox_set_max(struct mailbox *m, uint32_t live_max);
void mailbox_destroy(struct mailbox *m); /* NULL is fine; releases what is left inside */

/* Clients. ST_FULL: the request's choices and those of its kind that run or wait are together over
 * the limit. The engine gets its own reference. `wakes`: wake the engine now, not by
 * mailbox_notify. */
enum status mailbox_submit(struct mailbox *m, struct request *r, bool wakes);
void mailbox_notify(struct mailbox *m); /* wake the engine if something was submitted */
/* Bit i of `choices`: choice i. The first reason given for a choice wins. */
void mailbox_cancel(struct mailbox *m, struct request *r, uint32_t choices, enum finish_reason why);

/* The engine: the next submitted request, or NULL. Its reference moves to the caller. */
struct request *mailbox_take_submitted(struct mailbox *m);
/* After each step: so many of the choices that were taken still wait for a slot in the batch,
 * and so many have one or had one before; of batch requests, or of all others. */
void mailbox_set_live(struct mailbox *m, bool is_batch, uint32_t waiting, uint32_t running);
/* Any thread: choices that wait, in the inbox or taken; batch requests included. */
uint32_t mailbox_waiting(struct mailbox *m);
/* The engine: the next cancelled request, or NULL. Its reference moves to the caller. A request
 * whose choices are cancelled for several reasons is returned once for each reason. */
struct request *mailbox_take_cancelled(struct mailbox *m, uint32_t *choices,
                                       enum finish_reason *why);
/* Sleep until something arrives, wake is called, or `timeout_us` (negative: no limit) is over. */
void mailbox_wait(struct mailbox *m, int64_t timeout_us);
void mailbox_wake(struct mailbox *m);

/* The engine: the choice has new tokens or has finished; clients can take it after the next flush.
 * The choice's request must stay alive until it is taken: the mailbox holds a reference. */
void mailbox_post_output(struct mailbox *m, struct choice *c);
/* Hand over what was posted, wake the threads that wait in take_output, and call the hook, if one
 * is set: once per flush that has something, on the engine thread. */
void mailbox_flush(struct mailbox *m);
typedef void output_hook(void *ctx);
void mailbox_set_hook(struct mailbox *m, output_hook *hook, void *ctx);

/* Clients: the next choice with new output, with a reference to its request that the caller
 * releases; NULL when `timeout_us` is over (0: at once). */
struct choice *mailbox_take_output(struct mailbox *m, int64_t timeout_us);
/* The same for up to `max` of them at once, without waiting; returns how many. */
uint32_t mailbox_take_outputs(struct mailbox *m, struct choice **out, uint32_t max);

#endif
