/* engine/settler.c - see engine/settler.h for the contract. */
#define _GNU_SOURCE
#include "engine/settler.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/grammars.h"
#include "engine/request.h"
#include "sample/sampler.h"

enum { THREADS_MAX = 3, OF_TENANT_MAX = 2, SECOND_NS = 1000000000 };

/* A thread, and what it does; grammar NULL: nothing. */
struct worker {
    pthread_t thread;
    struct settler *settler;
    const struct grammar *grammar;
    uint32_t tenant;
};

struct settler {
    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t has_work, has_ended;
    struct list waiting; /* jobs, oldest first */
    uint32_t thread_count, idle_count;
    bool job_ended; /* since the last settler_wait */
    bool is_closing;
    bool has_processors;
    cpu_set_t processors; /* of the thread that created it */
    struct worker workers[THREADS_MAX];
};

enum status settler_create(struct settler **out) {
    struct settler *s = mem_zalloc(sizeof(*s));
    if (!s) return ST_NOMEM;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->has_work, &attr);
    pthread_cond_init(&s->has_ended, &attr);
    pthread_condattr_destroy(&attr);
    s->has_processors = sched_getaffinity(0, sizeof(s->processors), &s->processors) == 0;
    *out = s;
    return ST_OK;
}

/* release: the thread that finds the job idle sees what was done to its sampler. */
static void set_state(struct settle_job *job, enum job_state state) {
    atomic_store_explicit(&job->state, state, memory_order_release);
}

bool settler_is_idle(const struct settle_job *job) {
    return atomic_load_explicit(&job->state, memory_order_acquire) == JOB_IDLE;
}

static bool may_run(const struct settler *s, const struct settle_job *job) {
    const struct grammar *grammar = answer_grammar_shared(job->request->grammar);
    uint32_t of_tenant = 0;
    for (uint32_t i = 0; i < s->thread_count; i++) {
        const struct worker *w = &s->workers[i];
        if (w->grammar == grammar) return false;
        of_tenant += w->grammar && w->tenant == job->request->tenant;
    }
    return of_tenant < OF_TENANT_MAX;
}

/* The oldest job that may run; NULL: none. */
static struct settle_job *take_next(struct settler *s) {
    for (struct list_link *l = s->waiting.first; l; l = l->next) {
        struct settle_job *job = LIST_ITEM(l, struct settle_job, in_waiting);
        if (!may_run(s, job)) continue;
        list_remove(&s->waiting, l);
        return job;
    }
    return NULL;
}

/* Called with the lock, which is open meanwhile. The request may end with the job. */
static void run(struct settler *s, struct worker *w, struct settle_job *job) {
    struct request *request = job->request;
    w->grammar = answer_grammar_shared(request->grammar);
    w->tenant = request->tenant;
    set_state(job, JOB_RUNNING);
    pthread_mutex_unlock(&s->lock);
    sampler_settle(job->sampler, false);
    set_state(job, JOB_IDLE);
    request_unref(request);
    pthread_mutex_lock(&s->lock);
    w->grammar = NULL;
    s->job_ended = true;
    if (s->waiting.count > 0) pthread_cond_broadcast(&s->has_work); /* of this grammar or tenant */
    pthread_cond_signal(&s->has_ended);
}

static void *settler_main(void *arg) {
    struct worker *w = arg;
    struct settler *s = w->settler;
    pthread_mutex_lock(&s->lock);
    while (!s->is_closing) {
        struct settle_job *job = take_next(s);
        if (job) {
            run(s, w, job);
            continue;
        }
        s->idle_count++;
        pthread_cond_wait(&s->has_work, &s->lock);
        s->idle_count--;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* The thread that pushes a job may be bound to the processor that it computes on: the new one is
 * not. */
static bool create_thread(struct settler *s, struct worker *w) {
    pthread_attr_t attr;
    if (pthread_attr_init(&attr) != 0) return false;
    if (s->has_processors)
        pthread_attr_setaffinity_np(&attr, sizeof(s->processors), &s->processors);
    bool is_created = pthread_create(&w->thread, &attr, settler_main, w) == 0;
    pthread_attr_destroy(&attr);
    return is_created;
}

static void start_thread(struct settler *s) {
    if (s->idle_count >= s->waiting.count || s->thread_count == THREADS_MAX) return;
    struct worker *w = &s->workers[s->thread_count];
    *w = (struct worker){.settler = s};
    if (create_thread(s, w)) s->thread_count++;
}

void settler_push(struct settler *s, struct settle_job *job) {
    CHECK(settler_is_idle(job));
    request_ref(job->request);
    pthread_mutex_lock(&s->lock);
    set_state(job, JOB_WAITING);
    list_push_last(&s->waiting, &job->in_waiting);
    start_thread(s);
    if (s->thread_count == 0) run(s, &(struct worker){.settler = s}, take_next(s));
    pthread_cond_signal(&s->has_work);
    pthread_mutex_unlock(&s->lock);
}

void settler_drop(struct settler *s, struct settle_job *job) {
    pthread_mutex_lock(&s->lock);
    bool has_waited = atomic_load(&job->state) == JOB_WAITING;
    if (has_waited) {
        list_remove(&s->waiting, &job->in_waiting);
        set_state(job, JOB_IDLE);
    }
    pthread_mutex_unlock(&s->lock);
    if (has_waited) request_unref(job->request);
}

void settler_wait(struct settler *s, int64_t us) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(us * 1000 % SECOND_NS);
    until.tv_sec += us * 1000 / SECOND_NS + until.tv_nsec / SECOND_NS;
    until.tv_nsec %= SECOND_NS;
    pthread_mutex_lock(&s->lock);
    int timed_out = 0;
    while (!s->job_ended && !timed_out)
        timed_out = pthread_cond_timedwait(&s->has_ended, &s->lock, &until);
    s->job_ended = false;
    pthread_mutex_unlock(&s->lock);
}

void settler_destroy(struct settler *s) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->is_closing = true;
    pthread_cond_broadcast(&s->has_work);
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < s->thread_count; i++) pthread_join(s->workers[i].thread, NULL);
    for (struct list_link *l; (l = list_pop_first(&s->waiting)) != NULL;) {
        struct settle_job *job = LIST_ITEM(l, struct settle_job, in_waiting);
        set_state(job, JOB_IDLE);
        request_unref(job->request);
    }
    pthread_cond_destroy(&s->has_work);
    pthread_cond_destroy(&s->has_ended);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}
