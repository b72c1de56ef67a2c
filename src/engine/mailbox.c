/* engine/mailbox.c - see engine/mailbox.h for the contract.
 *
 * One lock for each direction. A thread holds it only to link or unlink requests and choices, and
 * wakes the engine after that: if it held the lock, the engine would wait for it at once.
 */
#include "engine/mailbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/check.h"
#include "base/mem.h"

/* Choices, of batch requests or of all others. */
struct load {
    uint64_t choices; /* of requests in the list */
    uint64_t taken;   /* choices that wait in the engine: the last set_live, and taken since */
    uint64_t running; /* those of the last set_live that do not wait */
    uint64_t max;     /* of all three together */
};

struct submitted {
    struct list requests;
    struct load loads[2]; /* [1]: of batch requests */
};

struct mailbox {
    pthread_mutex_t in_lock, out_lock;
    pthread_cond_t in_arrived, out_arrived;
    struct submitted submitted;
    struct list cancelled; /* requests */
    atomic_uint in_count;  /* of both lists; the engine asks every step, and most find nothing */
    bool is_woken;
    struct list outbox; /* choices */
    struct list posted; /* choices, since the last flush; the engine thread's */
    output_hook *hook;
    void *hook_ctx;
};

static void init_cond(pthread_cond_t *cond) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

enum status mailbox_create(struct mailbox **out, uint32_t live_max, uint32_t batch_max) {
    struct mailbox *m = mem_zalloc(sizeof(*m));
    if (!m) return ST_NOMEM;
    pthread_mutex_init(&m->in_lock, NULL);
    pthread_mutex_init(&m->out_lock, NULL);
    init_cond(&m->in_arrived);
    init_cond(&m->out_arrived);
    m->submitted.loads[0].max = live_max;
    m->submitted.loads[1].max = batch_max;
    *out = m;
    return ST_OK;
}

static struct choice *pop_posted(struct list *posted) {
    return LIST_ITEM(list_pop_first(posted), struct choice, in_posted);
}

/* Under the lock; NULL if there is none. */
static struct choice *pop_output(struct mailbox *m) {
    return LIST_ITEM(list_pop_first(&m->outbox), struct choice, in_outbox);
}

/* Move the posted choices to the outbox. A choice that is still there from an earlier step is not
 * added again: its client reads all new tokens when it takes the choice. */
static void hand_over(struct mailbox *m, output_hook **hook, void **hook_ctx) {
    struct list again = {0};
    pthread_mutex_lock(&m->out_lock);
    for (struct choice *c; (c = pop_posted(&m->posted));) {
        if (list_has(&m->outbox, &c->in_outbox))
            list_push_last(&again, &c->in_posted);
        else
            list_push_last(&m->outbox, &c->in_outbox);
    }
    *hook = m->hook;
    *hook_ctx = m->hook_ctx;
    pthread_cond_broadcast(&m->out_arrived);
    pthread_mutex_unlock(&m->out_lock);
    for (struct choice *c; (c = pop_posted(&again));) request_unref(c->request);
}

void mailbox_destroy(struct mailbox *m) {
    if (!m) return;
    uint32_t choices;
    enum finish_reason why;
    output_hook *hook;
    void *ctx;
    hand_over(m, &hook, &ctx); /* without calling the hook */
    for (struct request *r; (r = mailbox_take_submitted(m));) request_unref(r);
    for (struct request *r; (r = mailbox_take_cancelled(m, &choices, &why));) request_unref(r);
    for (struct choice *c; (c = mailbox_take_output(m, 0));) request_unref(c->request);
    pthread_cond_destroy(&m->in_arrived);
    pthread_cond_destroy(&m->out_arrived);
    pthread_mutex_destroy(&m->in_lock);
    pthread_mutex_destroy(&m->out_lock);
    mem_free(m);
}

void mailbox_set_max(struct mailbox *m, uint32_t live_max) {
    pthread_mutex_lock(&m->in_lock);
    m->submitted.loads[0].max = live_max;
    pthread_mutex_unlock(&m->in_lock);
}

enum status mailbox_submit(struct mailbox *m, struct request *r, bool wakes) {
    struct submitted *s = &m->submitted;
    pthread_mutex_lock(&m->in_lock);
    struct load *load = &s->loads[r->is_batch];
    uint64_t live = load->choices + load->taken + load->running;
    bool has_room = live == 0 || live + r->n <= load->max;
    if (has_room) {
        request_ref(r);
        list_push_last(&s->requests, &r->in_submitted);
        atomic_fetch_add(&m->in_count, 1);
        load->choices += r->n;
    }
    pthread_mutex_unlock(&m->in_lock);
    if (has_room && wakes) mailbox_notify(m);
    return has_room ? ST_OK : ST_FULL;
}

void mailbox_notify(struct mailbox *m) { pthread_cond_signal(&m->in_arrived); }

void mailbox_cancel(struct mailbox *m, struct request *r, uint32_t choices,
                    enum finish_reason why) {
    pthread_mutex_lock(&m->in_lock);
    for (uint32_t i = 0; i < r->n; i++)
        if (choices & ~r->cancel_choices & (1u << i)) r->cancel_why[i] = why;
    r->cancel_choices |= choices & ((1u << r->n) - 1);
    if (!list_has(&m->cancelled, &r->in_cancelled)) {
        request_ref(r);
        list_push_last(&m->cancelled, &r->in_cancelled);
        atomic_fetch_add(&m->in_count, 1);
    }
    pthread_mutex_unlock(&m->in_lock);
    pthread_cond_signal(&m->in_arrived);
}

struct request *mailbox_take_submitted(struct mailbox *m) {
    struct submitted *s = &m->submitted;
    if (atomic_load(&m->in_count) == 0) return NULL;
    pthread_mutex_lock(&m->in_lock);
    struct request *r = LIST_ITEM(list_pop_first(&s->requests), struct request, in_submitted);
    if (r) {
        atomic_fetch_sub(&m->in_count, 1);
        s->loads[r->is_batch].choices -= r->n;
        s->loads[r->is_batch].taken += r->n;
    }
    pthread_mutex_unlock(&m->in_lock);
    return r;
}

/* Only the engine's thread writes these numbers, so it may read them without the lock. */
void mailbox_set_live(struct mailbox *m, bool is_batch, uint32_t waiting, uint32_t running) {
    struct load *load = &m->submitted.loads[is_batch];
    if (load->taken == waiting && load->running == running) return;
    pthread_mutex_lock(&m->in_lock);
    load->taken = waiting;
    load->running = running;
    pthread_mutex_unlock(&m->in_lock);
}

uint32_t mailbox_waiting(struct mailbox *m) {
    pthread_mutex_lock(&m->in_lock);
    const struct load *loads = m->submitted.loads;
    uint64_t waiting = loads[0].choices + loads[0].taken + loads[1].choices + loads[1].taken;
    pthread_mutex_unlock(&m->in_lock);
    return (uint32_t)waiting;
}

/* The choices of `r` that are cancelled for the same reason as the first of them. */
static uint32_t same_reason(const struct request *r, enum finish_reason *why) {
    uint32_t choices = 0;
    *why = FINISH_CANCELLED;
    for (uint32_t i = r->n; i-- > 0;)
        if (r->cancel_choices >> i & 1) *why = r->cancel_why[i];
    for (uint32_t i = 0; i < r->n; i++)
        if ((r->cancel_choices >> i & 1) && r->cancel_why[i] == *why) choices |= 1u << i;
    return choices;
}

struct request *mailbox_take_cancelled(struct mailbox *m, uint32_t *choices,
                                       enum finish_reason *why) {
    if (atomic_load(&m->in_count) == 0) return NULL;
    pthread_mutex_lock(&m->in_lock);
    struct request *r = LIST_ITEM(m->cancelled.first, struct request, in_cancelled);
    if (r) {
        *choices = same_reason(r, why);
        r->cancel_choices &= ~*choices;
        if (r->cancel_choices != 0) {
            request_ref(r); /* it comes again */
        } else {
            list_remove(&m->cancelled, &r->in_cancelled);
            atomic_fetch_sub(&m->in_count, 1);
        }
    }
    pthread_mutex_unlock(&m->in_lock);
    return r;
}

static struct timespec deadline_after(int64_t timeout_us) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + timeout_us % 1000000 * 1000;
    t.tv_sec += (time_t)(timeout_us / 1000000 + ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return t;
}

/* False when the time is over. */
static bool wait_on(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t timeout_us,
                    const struct timespec *deadline) {
    if (timeout_us < 0) return pthread_cond_wait(cond, lock) == 0;
    return pthread_cond_timedwait(cond, lock, deadline) != ETIMEDOUT;
}

void mailbox_wait(struct mailbox *m, int64_t timeout_us) {
    struct timespec deadline = deadline_after(timeout_us < 0 ? 0 : timeout_us);
    pthread_mutex_lock(&m->in_lock);
    while (!m->submitted.requests.first && !m->cancelled.first && !m->is_woken)
        if (!wait_on(&m->in_arrived, &m->in_lock, timeout_us, &deadline)) break;
    m->is_woken = false;
    pthread_mutex_unlock(&m->in_lock);
}

void mailbox_wake(struct mailbox *m) {
    pthread_mutex_lock(&m->in_lock);
    m->is_woken = true;
    pthread_mutex_unlock(&m->in_lock);
    pthread_cond_signal(&m->in_arrived);
}

void mailbox_post_output(struct mailbox *m, struct choice *c) {
    if (list_has(&m->posted, &c->in_posted)) return;
    request_ref(c->request);
    list_push_last(&m->posted, &c->in_posted);
}

void mailbox_set_hook(struct mailbox *m, output_hook *hook, void *ctx) {
    pthread_mutex_lock(&m->out_lock);
    m->hook = hook;
    m->hook_ctx = ctx;
    pthread_mutex_unlock(&m->out_lock);
}

void mailbox_flush(struct mailbox *m) {
    if (!m->posted.first) return;
    output_hook *hook;
    void *ctx;
    hand_over(m, &hook, &ctx);
    if (hook) hook(ctx);
}

struct choice *mailbox_take_output(struct mailbox *m, int64_t timeout_us) {
    struct timespec deadline = {0};
    if (timeout_us > 0) deadline = deadline_after(timeout_us);
    pthread_mutex_lock(&m->out_lock);
    while (!m->outbox.first && timeout_us != 0)
        if (!wait_on(&m->out_arrived, &m->out_lock, timeout_us, &deadline)) break;
    struct choice *c = pop_output(m);
    pthread_mutex_unlock(&m->out_lock);
    return c;
}

uint32_t mailbox_take_outputs(struct mailbox *m, struct choice **out, uint32_t max) {
    uint32_t count = 0;
    pthread_mutex_lock(&m->out_lock);
    while (count < max && (out[count] = pop_output(m))) count++;
    pthread_mutex_unlock(&m->out_lock);
    return count;
}
