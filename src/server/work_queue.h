/* server/work_queue.h - work for libuv's pool of threads, shared fairly among tenants.
 *
 * Parsing long JSON, rendering templates, tokenising and writing long answers take time in
 * proportion to what a client sends or asks for, so they run in the pool. A plain queue would let
 * one tenant's long texts delay the short texts of all others. So each tenant has a *lane* with a
 * queue for each of short, long and slow work, and a thread of the pool gets
 *
 *     1. these kinds in turns, if several wait; long work runs on `long_threads` at a time, slow
 *        work on one, which long work does not lose, and at least one thread is free for short work
 *        at any time;
 *     2. of the lanes that have such work, each in turn; with several tenants a lane never has all
 *        threads.
 *
 * To hand one short text to another thread costs as much as tokenising it. So a thread gets short
 * work in a *batch*: up to `batch_items` items of few bytes, of all tenants in turn. Items
 * that arrive before the thread starts are added to its batch. After 1 ms the thread starts no
 * further item; the remaining items return to the front of their lanes.
 *
 *     push -> waiting -> running, in the pool -> done
 *                +--cancel--> removed, without `done`
 *
 * The number of items and their bytes are limited for each tenant (base/share.h) and in total.
 *
 * Lifetime: create, push, destroy when it is idle. An item belongs to its owner, who keeps it until
 * `done` or until work_queue_cancel was true; a lane must be empty when it is freed.
 * Thread: the I/O thread; `run` in the pool.
 */
#ifndef SERVER_WORK_QUEUE_H
#define SERVER_WORK_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/share.h"
#include "base/status.h"

struct api_error;
struct clock;
struct uv_loop_s;
struct work_queue; /* opaque */

enum work_length { WORK_SHORT, WORK_LONG, WORK_SLOW, WORK_LENGTHS };
enum work_state { WORK_IDLE, WORK_WAITING, WORK_RUNNING };

/* One tenant's work. Zeroed, it is empty. */
struct work_lane {
    struct list waiting[WORK_LENGTHS];
    struct list_link in_queue[WORK_LENGTHS]; /* among the lanes that have such work */
    uint32_t running;                        /* items */
    uint32_t threads;                        /* that have some of them */
    struct share items, bytes;               /* waiting and running */
};

/* The first member of the owner's struct. The owner sets the fields of the first group. */
struct work_item {
    void (*run)(struct work_item *w);
    void (*done)(struct work_item *w);
    uint64_t bytes;     /* that it holds, or that it reads if it holds none */
    bool is_long;       /* it may take long although its bytes are few */
    bool is_slow;       /* it may take seconds, and nobody waits for it but its client */
    bool is_continuing; /* of a request that the pool has worked for: it is never refused */

    /* Private. */
    struct work_queue *queue;
    struct work_lane *lane;
    enum work_length length;
    enum work_state state;
    struct list_link in_lane;
};

struct work_queue_options {
    struct uv_loop_s *loop;
    uint32_t threads;         /* of the pool; 0: libuv's default */
    uint32_t long_threads;    /* for long work; 0: half of the processors; fewer than `threads` */
    uint64_t long_from_bytes; /* work of at least these bytes is long; 0: 64 KiB */
    uint64_t items_max, bytes_max;
    uint64_t bytes_least; /* that a tenant may hold, however many others hold some */
    bool is_single;       /* there is one tenant only */
    uint32_t batch_items; /* of short work that a thread gets at once; 0: 32, which is the most */
    void (*after_batch)(void *ctx); /* all `done` of a batch were called; NULL: nothing */
    void *ctx;
    const struct clock *clock; /* limits the time of a batch; NULL: the real one */
};
enum status work_queue_create(const struct work_queue_options *options, struct work_queue **out);
void work_queue_destroy(struct work_queue *q); /* NULL is fine */
/* New limits, for what is pushed from now on. */
void work_queue_set(struct work_queue *q, uint64_t bytes_max, uint64_t bytes_least, bool is_single);

/* Run `w->run` in the pool, then `w->done` here, never from within this call. ST_FULL: its tenant's
 * share is used up. ST_UNAVAILABLE: the whole queue is full. ST_BAD: it is larger than its tenant's
 * share can be. In all these cases nothing was queued. */
enum status work_queue_push(struct work_queue *q, struct work_lane *lane, struct work_item *w);
/* The error for a client whose work of `bytes` was refused with `st`. */
void work_queue_refuse(const struct work_queue *q, enum status st, uint64_t bytes,
                       struct api_error *e);
/* True: `w` was waiting, or is not in a queue; it is removed and `done` will not be called. False:
 * it is running, and `done` follows. */
bool work_queue_cancel(struct work_item *w);

struct work_queue_stats {
    uint32_t waiting, running;
    uint64_t bytes, bytes_max;
    uint64_t refused; /* since the start */
};
struct work_queue_stats work_queue_stats(const struct work_queue *q);
/* CHECK every invariant, with all lanes that were ever used; slow. */
void work_queue_verify(const struct work_queue *q, const struct work_lane *const *lanes,
                       uint32_t count);

#endif
