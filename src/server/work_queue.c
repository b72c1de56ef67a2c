/* server/work_queue.c - see server/work_queue.h.
 *
 * At most `threads` items are given to libuv at a time, so libuv's own queue stays empty and the
 * order is decided here, when a thread becomes free. Every function takes constant time: of the
 * lanes that have work at most one has as many threads as it may have, so the search for a lane
 * looks at two.
 */
#include "server/work_queue.h"

#include <uv.h>

#include "base/check.h"
#include "base/mem.h"
#include "server/shortage.h"

enum { THREADS_DEFAULT = 4 /* libuv's */, THREADS_MAX = 64, LONG_FROM_BYTES = 64 << 10 };

/* An item that libuv has. */
struct slot {
    uv_work_t handle; /* first: libuv gives it back */
    struct work_item *item;
    struct slot *next_free;
};

struct work_queue {
    struct work_queue_options options;
    struct list lanes[WORK_LENGTHS]; /* that have such work; the next to be served is first */
    struct budget items, bytes;
    uint32_t waiting, running, running_of[WORK_LENGTHS];
    enum work_length last; /* that was started; the others are next */
    uint64_t refused;
    struct slot slots[THREADS_MAX], *free; /* one for each thread */
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
    q->options.long_threads = long_threads(&q->options);
    q->items = (struct budget){.max = options->items_max, .least = 1};
    q->last = WORK_SLOW;
    CHECK(q->options.threads <= THREADS_MAX);
    for (uint32_t i = 0; i < q->options.threads; i++) give_slot(q, &q->slots[i]);
    work_queue_set(q, options->bytes_max, options->bytes_least, options->is_single);
    *out = q;
    return ST_OK;
}

void work_queue_destroy(struct work_queue *q) {
    if (!q) return;
    CHECK(q->waiting == 0);
    CHECK(q->running == 0);
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

static void enqueue(struct work_item *w) {
    struct work_lane *lane = w->lane;
    struct list *lanes = &w->queue->lanes[w->length];
    list_push_last(&lane->waiting[w->length], &w->in_lane);
    if (lane->waiting[w->length].count == 1) list_push_last(lanes, &lane->in_queue[w->length]);
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

/* ---- running ---- */

static void start_waiting(struct work_queue *q);

static struct work_item *leave_pool(uv_work_t *handle, int rc) {
    struct slot *slot = (struct slot *)handle;
    struct work_item *w = slot->item;
    struct work_queue *q = w->queue;
    CHECK(rc == 0); /* libuv's own queue is empty: nothing is cancelled there */
    give_slot(q, slot);
    q->running--;
    q->running_of[w->length]--;
    w->lane->running--;
    give_room(w);
    start_waiting(q);
    return w;
}

static void run_in_pool(uv_work_t *handle) {
    struct work_item *w = ((struct slot *)handle)->item;
    w->run(w);
}

static void on_run(uv_work_t *handle, int rc) {
    struct work_item *w = leave_pool(handle, rc);
    w->done(w); /* may free it */
}

static void start(struct work_item *w) {
    struct work_queue *q = w->queue;
    struct slot *slot = q->free;
    q->free = slot->next_free;
    slot->item = w;
    w->state = WORK_RUNNING;
    w->lane->running++;
    q->running++;
    q->running_of[w->length]++;
    q->last = w->length;
    CHECK(uv_queue_work(q->options.loop, &slot->handle, run_in_pool, on_run) == 0);
}

static bool may_have_thread(const struct work_queue *q, const struct work_lane *lane) {
    return q->options.is_single || q->options.threads == 1 ||
           lane->running + 1 < q->options.threads;
}

/* The lane whose turn it is; it goes to the end of the line. NULL: none may have a thread. */
static struct work_lane *next_lane(struct work_queue *q, enum work_length length) {
    struct list *lanes = &q->lanes[length];
    for (struct list_link *l = lanes->first; l; l = l->next) {
        struct work_lane *lane = (struct work_lane *)list_item(
            l, offsetof(struct work_lane, in_queue) + length * sizeof(struct list_link));
        if (!may_have_thread(q, lane)) continue;
        list_remove(lanes, l);
        list_push_last(lanes, l);
        return lane;
    }
    return NULL;
}

/* May one more of this kind run? One thread, if there are several, is for short work only. */
static bool has_thread_for(const struct work_queue *q, enum work_length length) {
    const uint32_t most = length == WORK_LONG ? q->options.long_threads : 1;
    if (length == WORK_SHORT) return true;
    const uint32_t others = q->running_of[WORK_LONG] + q->running_of[WORK_SLOW];
    return q->running_of[length] < most &&
           (others + 1 < q->options.threads || q->options.threads == 1);
}

static struct work_item *next_of(struct work_queue *q, enum work_length length) {
    if (!has_thread_for(q, length)) return NULL;
    struct work_lane *lane = next_lane(q, length);
    return lane ? LIST_ITEM(lane->waiting[length].first, struct work_item, in_lane) : NULL;
}

static void start_waiting(struct work_queue *q) {
    while (q->waiting > 0 && q->running < q->options.threads) {
        struct work_item *w = NULL;
        for (int i = 1; i <= WORK_LENGTHS && !w; i++)
            w = next_of(q, (enum work_length)((q->last + i) % WORK_LENGTHS));
        if (!w) return;
        dequeue(w);
        start(w);
    }
}

enum status work_queue_push(struct work_queue *q, struct work_lane *lane, struct work_item *w) {
    CHECK(w->state == WORK_IDLE);
    CHECK(w->run && w->done);
    TRY(take_room(q, lane, w));
    w->queue = q;
    w->lane = lane;
    bool is_long = w->is_long || w->bytes >= q->options.long_from_bytes;
    w->length = w->is_slow ? WORK_SLOW : is_long ? WORK_LONG : WORK_SHORT;
    enqueue(w);
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
    CHECK(lane->running == 0 || may_have_thread(q, lane) ||
          lane->running + 1 == q->options.threads);
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
    CHECK(q->running <= q->options.threads);
    CHECK(q->running_of[WORK_LONG] <= q->options.long_threads && q->running_of[WORK_SLOW] <= 1);
    for (int length = 0; length < WORK_LENGTHS; length++) list_verify(&q->lanes[length]);
}
