/* embed/tickets.c - see embed/tickets.h for the contract.
 *
 * One lock; under it only lists and bits change. Threads that wait for any request sleep on one
 * condition, those that wait for a certain one on one of WAITS_OF, chosen by its id.
 */
#include "embed/tickets.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/check.h"
#include "base/mem.h"

enum { BUCKETS = 1024, WAITS_OF = 32 }; /* ids count up, so they spread over both by themselves */

struct tickets {
    pthread_mutex_t lock;
    pthread_cond_t news; /* threads that wait for any request */
    pthread_cond_t news_of[WAITS_OF];
    pthread_cond_t left; /* tickets_empty waits on it */
    bool is_stopped;
    uint32_t inside_count;
    uint32_t open_count; /* tickets in the table */
    struct list ready;
    struct list buckets[BUCKETS];
};

/* --- tickets ---------------------------------------------------------------------------- */

struct ticket *ticket_create(uint32_t choice_count) {
    CHECK(choice_count >= 1);
    CHECK(choice_count <= CHOICES_MAX);
    struct ticket *t = mem_zalloc(sizeof(*t) + choice_count * sizeof(t->choices[0]));
    if (!t) return NULL;
    t->choice_count = choice_count;
    t->open = t->running = (1u << choice_count) - 1;
    return t;
}

void ticket_destroy(struct ticket *t) {
    if (!t) return;
    for (uint32_t i = 0; i < t->choice_count; i++) text_output_deinit(&t->choices[i].output);
    request_unref(t->request);
    mem_free(t->stop_strings);
    mem_free(t);
}

/* --- lists, all under the lock ---------------------------------------------------------- */

static pthread_cond_t *news_of(struct tickets *ts, uint64_t id) {
    return &ts->news_of[id % WAITS_OF];
}

static struct list *bucket_of(struct tickets *ts, uint64_t id) {
    return &ts->buckets[id % BUCKETS];
}

static struct ticket *find(struct tickets *ts, uint64_t id) {
    for (struct list_link *l = bucket_of(ts, id)->first; l; l = l->next) {
        struct ticket *t = LIST_ITEM(l, struct ticket, in_bucket);
        if (t->id == id) return t;
    }
    return NULL;
}

static bool is_ready(const struct tickets *ts, const struct ticket *t) {
    return list_has(&ts->ready, &t->in_ready);
}

/* Put it on the ready list, if there is something to claim, and wake a thread that waits. */
static void announce(struct tickets *ts, struct ticket *t) {
    if (!t->has_output || t->is_claimed || is_ready(ts, t) || !t->is_added) return;
    list_push_last(&ts->ready, &t->in_ready);
    pthread_cond_signal(&ts->news);
    if (t->waiter_count > 0) pthread_cond_broadcast(news_of(ts, t->id));
}

static void free_if_done(struct ticket *t) {
    bool in_use = t->open || t->running || t->is_claimed || t->waiter_count > 0;
    if (!in_use) ticket_destroy(t);
}

/* --- lifecycle ----------------------------------------------------------------------- */

static void init_cond(pthread_cond_t *cond) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

enum status tickets_create(struct tickets **out) {
    struct tickets *ts = mem_zalloc(sizeof(*ts));
    if (!ts) return ST_NOMEM;
    pthread_mutex_init(&ts->lock, NULL);
    init_cond(&ts->news);
    init_cond(&ts->left);
    for (uint32_t i = 0; i < WAITS_OF; i++) init_cond(&ts->news_of[i]);
    *out = ts;
    return ST_OK;
}

void tickets_destroy(struct tickets *ts) {
    if (!ts) return;
    CHECK(ts->inside_count == 0);
    for (uint32_t i = 0; i < BUCKETS; i++)
        for (struct list_link *l; (l = list_pop_first(&ts->buckets[i]));)
            ticket_destroy(LIST_ITEM(l, struct ticket, in_bucket));
    for (uint32_t i = 0; i < WAITS_OF; i++) pthread_cond_destroy(&ts->news_of[i]);
    pthread_cond_destroy(&ts->left);
    pthread_cond_destroy(&ts->news);
    pthread_mutex_destroy(&ts->lock);
    mem_free(ts);
}

bool tickets_enter(struct tickets *ts) {
    pthread_mutex_lock(&ts->lock);
    bool is_open = !ts->is_stopped;
    if (is_open) ts->inside_count++;
    pthread_mutex_unlock(&ts->lock);
    return is_open;
}

void tickets_leave(struct tickets *ts) {
    pthread_mutex_lock(&ts->lock);
    CHECK(ts->inside_count > 0);
    ts->inside_count--;
    if (ts->is_stopped && ts->inside_count == 0) pthread_cond_signal(&ts->left);
    pthread_mutex_unlock(&ts->lock);
}

void tickets_stop(struct tickets *ts) {
    pthread_mutex_lock(&ts->lock);
    ts->is_stopped = true;
    pthread_cond_broadcast(&ts->news);
    for (uint32_t i = 0; i < WAITS_OF; i++) pthread_cond_broadcast(&ts->news_of[i]);
    pthread_mutex_unlock(&ts->lock);
}

void tickets_empty(struct tickets *ts) {
    pthread_mutex_lock(&ts->lock);
    CHECK(ts->is_stopped);
    while (ts->inside_count > 0) pthread_cond_wait(&ts->left, &ts->lock);
    pthread_mutex_unlock(&ts->lock);
}

/* --- the engine's side ------------------------------------------------------------------ */

void tickets_add(struct tickets *ts, struct ticket *t, struct request *request) {
    pthread_mutex_lock(&ts->lock);
    CHECK(!t->is_added);
    t->id = request->id;
    t->request = request;
    t->is_added = true;
    list_push_first(bucket_of(ts, t->id), &t->in_bucket);
    ts->open_count++;
    announce(ts, t);
    pthread_mutex_unlock(&ts->lock);
}

void tickets_note(struct tickets *ts, const struct choice *c) {
    struct ticket *t = c->request->user;
    struct ticket_choice *a = &t->choices[c->index];
    uint32_t bit = 1u << c->index;
    pthread_mutex_lock(&ts->lock);
    CHECK(c->index < t->choice_count);
    a->finish = choice_poll(c, &a->ready);
    a->cached_tokens = c->cached_tokens;
    if (a->finish != FINISH_NONE) t->running &= ~bit;
    if (t->open & bit) t->has_output |= bit;
    announce(ts, t);
    free_if_done(t);
    pthread_mutex_unlock(&ts->lock);
}

/* --- the callers' side ------------------------------------------------------------------ */

/* False: the time is over. */
static bool sleep_until(struct tickets *ts, pthread_cond_t *cond, int64_t until_us) {
    if (until_us == INT64_MAX) return pthread_cond_wait(cond, &ts->lock) == 0;
    const struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
                                   .tv_nsec = (long)(until_us % 1000000 * 1000)};
    return pthread_cond_timedwait(cond, &ts->lock, &until) != ETIMEDOUT;
}

/* The choices of a ticket take turns, so that one with new tokens in every step does not delay
 * the others. */
static void claim(struct tickets *ts, struct ticket *t, struct claim *out) {
    list_remove(&ts->ready, &t->in_ready);
    while (!(t->has_output >> t->turn & 1)) t->turn = (t->turn + 1) % t->choice_count;
    const struct ticket_choice *a = &t->choices[t->turn];
    *out = (struct claim){.ticket = t,
                          .choice = t->turn,
                          .ready = a->ready,
                          .cached_tokens = a->cached_tokens,
                          .finish = a->finish};
    t->has_output &= ~(1u << t->turn);
    t->turn = (t->turn + 1) % t->choice_count;
    t->is_claimed = true;
}

static enum wait_result claim_any(struct tickets *ts, int64_t until_us, struct claim *out) {
    for (;;) {
        if (ts->is_stopped) return WAIT_CLOSED;
        struct ticket *first = LIST_ITEM(ts->ready.first, struct ticket, in_ready);
        if (first) return claim(ts, first, out), WAIT_CLAIMED;
        if (ts->open_count == 0) return WAIT_IDLE;
        if (!sleep_until(ts, &ts->news, until_us) && !ts->ready.first) return WAIT_TIMEOUT;
    }
}

static enum wait_result claim_one(struct tickets *ts, struct ticket *t, int64_t until_us,
                                  struct claim *out) {
    for (;;) {
        if (ts->is_stopped) return WAIT_CLOSED;
        if (is_ready(ts, t)) return claim(ts, t, out), WAIT_CLAIMED;
        if (t->open == 0) return WAIT_IDLE;
        if (!sleep_until(ts, news_of(ts, t->id), until_us) && !is_ready(ts, t)) return WAIT_TIMEOUT;
    }
}

enum wait_result tickets_claim(struct tickets *ts, uint64_t id, int64_t until_us,
                               struct claim *out) {
    enum wait_result result = WAIT_IDLE;
    pthread_mutex_lock(&ts->lock);
    struct ticket *t = id ? find(ts, id) : NULL;
    if (!id)
        result = claim_any(ts, until_us, out);
    else if (t) {
        t->waiter_count++;
        result = claim_one(ts, t, until_us, out);
        t->waiter_count--;
        free_if_done(t);
    }
    pthread_mutex_unlock(&ts->lock);
    return result;
}

/* The last event of its last choice was returned: threads that still wait for it must wake. */
static void end(struct tickets *ts, struct ticket *t) {
    list_remove(bucket_of(ts, t->id), &t->in_bucket);
    ts->open_count--;
    if (t->waiter_count > 0) pthread_cond_broadcast(news_of(ts, t->id));
    if (ts->open_count == 0) pthread_cond_broadcast(&ts->news);
}

void tickets_unclaim(struct tickets *ts, const struct claim *c, bool is_over) {
    struct ticket *t = c->ticket;
    uint32_t bit = 1u << c->choice;
    pthread_mutex_lock(&ts->lock);
    CHECK(t->is_claimed);
    t->is_claimed = false;
    if (is_over) {
        CHECK(t->open & bit);
        t->open &= ~bit;
        t->has_output &= ~bit;
        if (t->open == 0) end(ts, t);
    }
    announce(ts, t);
    free_if_done(t);
    pthread_mutex_unlock(&ts->lock);
}

struct request *tickets_find(struct tickets *ts, uint64_t id) {
    pthread_mutex_lock(&ts->lock);
    struct ticket *t = find(ts, id);
    struct request *r = t ? t->request : NULL;
    if (r) request_ref(r);
    pthread_mutex_unlock(&ts->lock);
    return r;
}
