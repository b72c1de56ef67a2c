/* server/work_queue.c - see server/work_queue.h.
 *
 * At most `threads` batches are given to libuv at a time, so libuv's own queue stays empty and the
 * order is decided here, when a thread becomes free. Every function takes constant time: a lane
 * that has as many threads as it may have has an item in most batches, so there are not many such
 * lanes, and the search for a lane skips no others.
 *
 * A batch can be added to until its thread begins with it: when a processor has much to do, threads
 * begin late, and then one switch of threads serves many requests.
 */
#include "server/work_queue.h"

#include <pthread.h>
#include <uv.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "server/shortage.h"

enum {
    THREADS_DEFAULT = 4, /* libuv's */
    THREADS_MAX = 64,
    LONG_FROM_BYTES = 64 << 10,
    BATCH_ITEMS = 32,
    BATCH_BYTES = 16 << 10, /* of several items: tokenising them takes about a millisecond */
    BATCH_US = 1000,        /* after which no further item of a batch is begun */
};

/* Items that libuv has: short ones, or one that is not. */
struct slot {
    uv_work_t handle; /* first: libuv gives it back */
    struct work_queue *queue;
    struct slot *next_free;
    struct work_item *items[BATCH_ITEMS];
    uint32_t count;
    uint64_t bytes;
    bool has_begun; /* under the queue's lock: no item is added any more */
    uint32_t ran;   /* the thread of the pool wrote it */
};

struct work_queue {
    struct work_queue_options options;
    struct list lanes[WORK_LENGTHS]; /* that have such work; the next to be served is first */
    struct budget items, bytes;
    uint32_t waiting, running;              /* items */
    uint32_t busy, busy_with[WORK_LENGTHS]; /* threads */
    enum work_length last;                  /* that was started; the others are next */
    uint64_t refused;
    struct slot slots[THREADS_MAX], *free; /* one for each thread */
    struct slot *newest;                   /* batch of short work; NULL: it is complete */
    pthread_mutex_t lock;                  /* has_begun of all slots */
};

static uint32_t long_threads(const struct work_queue_options *o) {
    uint32_t wanted = o->long_threads ? o->long_threads : uv_available_parallelism() / 2;
    uint32_t most = o->threads > 1 ? o->threads - 1 : 1;
    return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

static void give_slot(struct work_queue *q, struct slot *slot) {
    slot->next_free = q->free;
    q->free = slot;
}

enum status work_queue_create(const struct work_queue_options *options, struct work_queue **out) {
    struct work_queue *q = mem_zalloc(sizeof(*q));
    if (!q) return ST_NOMEM;
    q->options = *options;
    if (!q->options.threads) q->options.threads = THREADS_DEFAULT;
    if (!q->options.long_from_bytes) q->options.long_from_bytes = LONG_FROM_BYTES;
    if (!q->options.batch_items) q->options.batch_items = BATCH_ITEMS;
    if (!q->options.clock) q->options.clock = &clock_real;
    q->options.long_threads = long_threads(&q->options);
    q->items = (struct budget){.max = options->items_max, .least = 1};
    q->last = WORK_SLOW;
    CHECK(q->options.threads <= THREADS_MAX);
    CHECK(q->options.batch_items <= BATCH_ITEMS);
    pthread_mutex_init(&q->lock, NULL);
    for (uint32_t i = 0; i < q->options.threads; i++) give_slot(q, &q->slots[i]);
    work_queue_set(q, options->bytes_max, options->bytes_least, options->is_single);
    *out = q;
    return ST_OK;
}

void work_queue_destroy(struct work_queue *q) {
    if (!q) return;
    CHECK(q->waiting == 0);
    CHECK(q->running == 0);
    CHECK(q->items.used == 0);
    CHECK(q->bytes.used == 0);
    pthread_mutex_destroy(&q->lock);
    mem_free(q);
}

void work_queue_set(struct work_queue *q, uint64_t bytes_max, uint64_t bytes_least,
                    bool is_single) {
    q->bytes.max = bytes_max;
    q->bytes.least = bytes_least;
    q->items.is_single = q->bytes.is_single = q->options.is_single = is_single;
}

/* ---- counts ---- */

static enum status take_room(struct work_queue *q, struct work_lane *lane,
                             const struct work_item *w) {
    bool is_full = q->items.used >= q->items.max || q->bytes.used + w->bytes > q->bytes.max;
    bool fits =
        1 <= share_room(&q->items, &lane->items) && w->bytes <= share_room(&q->bytes, &lane->bytes);
    if (!fits && !w->is_continuing) {
        q->refused++;
        if (w->bytes > share_most(&q->bytes)) return ST_BAD;
        return is_full ? ST_UNAVAILABLE : ST_FULL;
    }
    share_add(&q->items, &lane->items, 1);
    share_add(&q->bytes, &lane->bytes, w->bytes);
    return ST_OK;
}

static void give_room(struct work_item *w) {
    struct work_queue *q = w->queue;
    share_give(&q->items, &w->lane->items, 1);
    share_give(&q->bytes, &w->lane->bytes, w->bytes);
    w->state = WORK_IDLE;
}

/* ---- waiting ---- */

static void enqueue(struct work_item *w, bool is_first) {
    struct work_lane *lane = w->lane;
    struct list *lanes = &w->queue->lanes[w->length], *waiting = &lane->waiting[w->length];
    if (is_first)
        list_push_first(waiting, &w->in_lane);
    else
        list_push_last(waiting, &w->in_lane);
    if (waiting->count == 1) list_push_last(lanes, &lane->in_queue[w->length]);
    w->state = WORK_WAITING;
    w->queue->waiting++;
}

static void dequeue(struct work_item *w) {
    struct work_lane *lane = w->lane;
    struct list *lanes = &w->queue->lanes[w->length];
    list_remove(&lane->waiting[w->length], &w->in_lane);
    if (!lane->waiting[w->length].first) list_remove(lanes, &lane->in_queue[w->length]);
    w->queue->waiting--;
}

/* ---- batches ---- */

static bool has_lane(const struct slot *slot, const struct work_lane *lane) {
    uint32_t i = 0;
    while (i < slot->count && slot->items[i]->lane != lane) i++;
    return i < slot->count;
}

static bool has_room(const struct slot *slot, const struct work_item *w) {
    return slot->count < slot->queue->options.batch_items && slot->bytes + w->bytes <= BATCH_BYTES;
}

static void add(struct slot *slot, struct work_item *w) {
    struct work_queue *q = slot->queue;
    w->lane->threads += !has_lane(slot, w->lane);
    w->lane->running++;
    w->state = WORK_RUNNING;
    slot->items[slot->count++] = w;
    slot->bytes += w->bytes;
    q->running++;
}

/* Each lane has one thread less, once. */
static void remove_lanes(struct slot *slot) {
    while (slot->count > 0) {
        struct work_item *w = slot->items[--slot->count];
        w->lane->threads -= !has_lane(slot, w->lane);
        w->lane->running--;
        slot->queue->running--;
    }
}

static struct slot *take_slot(struct work_queue *q, enum work_length length) {
    struct slot *slot = q->free;
    q->free = slot->next_free;
    slot->queue = q;
    slot->count = slot->ran = 0;
    slot->bytes = 0;
    slot->has_begun = false;
    q->busy++;
    q->busy_with[length]++;
    q->last = length;
    return slot;
}

/* ---- running ---- */

static void start_waiting(struct work_queue *q);

static uint32_t begin(struct slot *slot) {
    pthread_mutex_lock(&slot->queue->lock);
    slot->has_begun = true;
    uint32_t count = slot->count;
    pthread_mutex_unlock(&slot->queue->lock);
    return count;
}

static void run_batch(struct slot *slot) {
    const struct clock *clock = slot->queue->options.clock;
    const uint32_t count = begin(slot);
    const int64_t until_us = clock_now(clock) + BATCH_US;
    do {
        struct work_item *w = slot->items[slot->ran++];
        w->run(w);
    } while (slot->ran < count && clock_now(clock) < until_us);
}

static void run_in_pool(uv_work_t *handle) { run_batch((struct slot *)handle); }

/* Those that did not run are first in their lanes again. Returns the number of the others. */
static uint32_t leave_pool(struct slot *slot, struct work_item **ran) {
    struct work_queue *q = slot->queue;
    const uint32_t count = slot->count;
    if (q->newest == slot) q->newest = NULL;
    q->busy--;
    q->busy_with[slot->items[0]->length]--;
    remove_lanes(slot);
    for (uint32_t i = count; i-- > slot->ran;) enqueue(slot->items[i], true);
    for (uint32_t i = 0; i < slot->ran; i++) ran[i] = slot->items[i];
    give_slot(q, slot);
    return slot->ran;
}

static void end_batch(struct slot *slot) {
    struct work_queue *q = slot->queue;
    struct work_item *ran[BATCH_ITEMS];
    const uint32_t count = leave_pool(slot, ran);
    start_waiting(q);
    for (uint32_t i = 0; i < count; i++) {
        give_room(ran[i]);
        ran[i]->done(ran[i]); /* may free it */
    }
    if (q->options.after_batch) q->options.after_batch(q->options.ctx);
}

static void on_run(uv_work_t *handle, int rc) {
    CHECK(rc == 0); /* libuv's own queue is empty: nothing is cancelled there */
    end_batch((struct slot *)handle);
}

static bool may_have_thread(const struct work_queue *q, const struct work_lane *lane) {
    return q->options.is_single || q->options.threads == 1 ||
           lane->threads + 1 < q->options.threads;
}

static bool may_join(const struct slot *slot, const struct work_lane *lane) {
    return has_lane(slot, lane) || may_have_thread(slot->queue, lane);
}

/* The item whose lane's turn it is. NULL: no lane may have a thread or, if a batch `slot` is given,
 * a place in it. */
static struct work_item *find_next(const struct work_queue *q, enum work_length length,
                                   const struct slot *slot) {
    for (struct list_link *l = q->lanes[length].first; l; l = l->next) {
        struct work_lane *lane = (struct work_lane *)list_item(
            l, offsetof(struct work_lane, in_queue) + length * sizeof(struct list_link));
        if (slot ? may_join(slot, lane) : may_have_thread(q, lane))
            return LIST_ITEM(lane->waiting[length].first, struct work_item, in_lane);
    }
    return NULL;
}

/* Its lane goes to the end of the line. */
static void take_turn(struct work_item *w) {
    struct list *lanes = &w->queue->lanes[w->length];
    list_remove(lanes, &w->lane->in_queue[w->length]);
    list_push_last(lanes, &w->lane->in_queue[w->length]);
    dequeue(w);
}

/* May one more of this kind run? One thread, if there are several, is for short work only. */
static bool has_thread_for(const struct work_queue *q, enum work_length length) {
    const uint32_t most = length == WORK_LONG ? q->options.long_threads : 1;
    if (length == WORK_SHORT) return true;
    const uint32_t others = q->busy_with[WORK_LONG] + q->busy_with[WORK_SLOW];
    return q->busy_with[length] < most &&
           (others + 1 < q->options.threads || q->options.threads == 1);
}

static void start(struct work_item *w) {
    struct work_queue *q = w->queue;
    struct slot *slot = take_slot(q, w->length);
    const bool is_short = w->length == WORK_SHORT;
    do {
        take_turn(w);
        add(slot, w);
        w = is_short ? find_next(q, WORK_SHORT, slot) : NULL;
    } while (w && has_room(slot, w));
    if (is_short) q->newest = slot;
    CHECK(uv_queue_work(q->options.loop, &slot->handle, run_in_pool, on_run) == 0);
}

static void start_waiting(struct work_queue *q) {
    while (q->waiting > 0 && q->busy < q->options.threads) {
        struct work_item *w = NULL;
        for (int i = 1; i <= WORK_LENGTHS && !w; i++) {
            const enum work_length length = (enum work_length)((q->last + i) % WORK_LENGTHS);
            if (has_thread_for(q, length)) w = find_next(q, length, NULL);
        }
        if (!w) return;
        start(w);
    }
}

/* Into the newest batch, if its thread has not begun and nothing waits that would come before. */
static bool join_newest(struct work_queue *q, struct work_item *w) {
    struct slot *slot = q->newest;
    if (!slot || w->length != WORK_SHORT || q->lanes[WORK_SHORT].first) return false;
    if (!has_room(slot, w) || !may_join(slot, w->lane)) return false;
    pthread_mutex_lock(&q->lock);
    const bool joins = !slot->has_begun;
    if (joins) add(slot, w);
    pthread_mutex_unlock(&q->lock);
    if (!joins) q->newest = NULL;
    return joins;
}

enum status work_queue_push(struct work_queue *q, struct work_lane *lane, struct work_item *w) {
    CHECK(w->state == WORK_IDLE);
    CHECK(w->run && w->done);
    TRY(take_room(q, lane, w));
    w->queue = q;
    w->lane = lane;
    bool is_long = w->is_long || w->bytes >= q->options.long_from_bytes;
    w->length = w->is_slow ? WORK_SLOW : is_long ? WORK_LONG : WORK_SHORT;
    if (join_newest(q, w)) return ST_OK;
    enqueue(w, false);
    start_waiting(q);
    return ST_OK;
}

void work_queue_refuse(const struct work_queue *q, enum status st, uint64_t bytes,
                       struct api_error *e) {
    shortage_put(SHORTAGE_WORK, st, bytes, share_most(&q->bytes), e);
}

bool work_queue_cancel(struct work_item *w) {
    if (w->state == WORK_RUNNING) return false;
    if (w->state == WORK_IDLE) return true;
    dequeue(w);
    give_room(w);
    return true;
}

struct work_queue_stats work_queue_stats(const struct work_queue *q) {
    return (struct work_queue_stats){.waiting = q->waiting,
                                     .running = q->running,
                                     .bytes = q->bytes.used,
                                     .bytes_max = q->bytes.max,
                                     .refused = q->refused};
}

/* ---- verify ---- */

static void verify_lane(const struct work_queue *q, const struct work_lane *lane) {
    uint64_t bytes = 0;
    uint32_t count = 0;
    for (int length = 0; length < WORK_LENGTHS; length++) {
        const struct list *waiting = &lane->waiting[length];
        list_verify(waiting);
        CHECK((waiting->count > 0) == list_has(&q->lanes[length], &lane->in_queue[length]));
        for (struct list_link *l = waiting->first; l; l = l->next) {
            const struct work_item *w = LIST_ITEM(l, struct work_item, in_lane);
            CHECK(w->state == WORK_WAITING);
            CHECK(w->lane == lane);
            CHECK((int)w->length == length);
            bytes += w->bytes;
            count++;
        }
    }
    CHECK(lane->items.held == count + lane->running);
    CHECK(lane->bytes.held >= bytes);
    CHECK(lane->threads <= lane->running);
    CHECK((lane->threads > 0) == (lane->running > 0));
    CHECK(lane->threads == 0 || may_have_thread(q, lane) ||
          lane->threads + 1 == q->options.threads);
}

void work_queue_verify(const struct work_queue *q, const struct work_lane *const *lanes,
                       uint32_t count) {
    uint64_t items = 0, bytes = 0;
    uint32_t waiting = 0, running = 0;
    for (uint32_t i = 0; i < count; i++) {
        verify_lane(q, lanes[i]);
        for (int length = 0; length < WORK_LENGTHS; length++)
            waiting += lanes[i]->waiting[length].count;
        running += lanes[i]->running;
        items += lanes[i]->items.held;
        bytes += lanes[i]->bytes.held;
    }
    CHECK(waiting == q->waiting);
    CHECK(running == q->running);
    CHECK(items == q->items.used);
    CHECK(bytes == q->bytes.used);
    CHECK(q->busy <= q->options.threads);
    CHECK(q->busy <= q->running && q->running <= q->busy * q->options.batch_items);
    CHECK(q->busy_with[WORK_LONG] <= q->options.long_threads && q->busy_with[WORK_SLOW] <= 1);
    for (int length = 0; length < WORK_LENGTHS; length++) list_verify(&q->lanes[length]);
}
