/* engine/embed_queue.c - see engine/embed_queue.h for the contract. */
#include "engine/embed_queue.h"

#include "base/check.h"
#include "base/mem.h"

struct tenant {
    struct list_link link;
    uint32_t number;
    struct list jobs;
    struct share texts;
    uint64_t tokens; /* of its jobs, not computed yet */
    uint64_t served; /* tokens computed for it, counted from the turn at which it came */
};

static struct tenant *tenant_at(struct list_link *l) { return LIST_ITEM(l, struct tenant, link); }
static struct embed_job *job_at(struct list_link *l) {
    return LIST_ITEM(l, struct embed_job, link);
}

void embed_queue_init(struct embed_queue *q, uint32_t texts_max, uint32_t least, bool has_tenants) {
    *q = (struct embed_queue){
        .texts = {.max = texts_max, .least = least, .is_single = !has_tenants}};
}

void embed_queue_deinit(struct embed_queue *q) {
    CHECK(q->tenants.count == 0);
    CHECK(q->tokens == 0);
}

static struct tenant *find(const struct embed_queue *q, uint32_t number) {
    for (struct list_link *l = q->tenants.first; l; l = l->next)
        if (tenant_at(l)->number == number) return tenant_at(l);
    return NULL;
}

static uint32_t left(const struct embed_job *job) { return job->tokens - job->computed; }

/* ---- in and out ---- */

static struct tenant *find_or_add(struct embed_queue *q, uint32_t number) {
    struct tenant *t = find(q, number);
    if (t) return t;
    t = mem_zalloc(sizeof(*t));
    if (!t) return NULL;
    t->number = number;
    t->served = q->turn;
    list_push_last(&q->tenants, &t->link);
    return t;
}

enum status embed_queue_add(struct embed_queue *q, struct embed_job *jobs, uint32_t count) {
    CHECK(count > 0);
    if (embed_queue_room(q, jobs[0].tenant) < count) return ST_FULL;
    struct tenant *t = find_or_add(q, jobs[0].tenant);
    if (!t) return ST_NOMEM;
    share_add(&q->texts, &t->texts, count);
    for (uint32_t i = 0; i < count; i++) {
        struct embed_job *job = &jobs[i];
        CHECK(job->tenant == t->number);
        CHECK(job->tokens > 0);
        job->computed = 0;
        job->is_under_way = job->is_cancelled = job->has_expired = false;
        list_push_last(&t->jobs, &job->link);
        t->tokens += job->tokens;
        q->tokens += job->tokens;
    }
    return ST_OK;
}

void embed_queue_remove(struct embed_queue *q, struct embed_job *job) {
    struct tenant *t = find(q, job->tenant);
    CHECK(t);
    list_remove(&t->jobs, &job->link);
    t->tokens -= left(job);
    q->tokens -= left(job);
    share_give(&q->texts, &t->texts, 1);
    if (t->jobs.count > 0) return;
    list_remove(&q->tenants, &t->link);
    mem_free(t);
}

/* ---- turns ---- */

struct embed_job *embed_queue_next(const struct embed_queue *q, uint32_t long_tokens,
                                   const struct embed_job *but) {
    const struct tenant *best = NULL;
    for (struct list_link *l = q->tenants.first; l; l = l->next) {
        const struct tenant *t = tenant_at(l);
        const struct embed_job *job = job_at(t->jobs.first);
        if (but && job != but && job->tokens > long_tokens) continue;
        if (!best || t->served < best->served) best = t;
    }
    return best ? job_at(best->jobs.first) : NULL;
}

void embed_queue_charge(struct embed_queue *q, struct embed_job *job, uint32_t tokens) {
    struct tenant *t = find(q, job->tenant);
    CHECK(t);
    CHECK(t->jobs.first == &job->link);
    CHECK(tokens <= left(job));
    q->turn = t->served;
    job->computed += tokens;
    t->served += tokens;
    t->tokens -= tokens;
    q->tokens -= tokens;
}

/* ---- ends ---- */

static void end_job(struct embed_queue *q, struct embed_job *job, struct list *out) {
    if (job->is_under_way) {
        job->is_cancelled = true;
        return;
    }
    embed_queue_remove(q, job);
    list_push_last(out, &job->link);
}

void embed_queue_cancel(struct embed_queue *q, const void *user, struct list *out) {
    for (struct list_link *l = q->tenants.first, *next; l; l = next) {
        next = l->next; /* the tenant goes with its last text */
        for (struct list_link *j = tenant_at(l)->jobs.first, *after; j; j = after) {
            after = j->next;
            if (job_at(j)->user == user) end_job(q, job_at(j), out);
        }
    }
}

void embed_queue_expire(struct embed_queue *q, int64_t now_us, struct list *out) {
    for (struct list_link *l = q->tenants.first, *next; l; l = next) {
        next = l->next;
        for (struct list_link *j = tenant_at(l)->jobs.first, *after; j; j = after) {
            struct embed_job *job = job_at(j);
            after = j->next;
            if (job->expires_us == 0 || job->expires_us > now_us) continue;
            job->has_expired = true;
            end_job(q, job, out);
        }
    }
}

/* ---- room ---- */

uint64_t embed_queue_room(const struct embed_queue *q, uint32_t tenant) {
    const struct tenant *t = find(q, tenant);
    return share_room(&q->texts, t ? &t->texts : &(struct share){0});
}

uint64_t embed_queue_tokens_before(const struct embed_queue *q, uint32_t tenant) {
    const struct tenant *own = find(q, tenant);
    if (!own) return 0;
    uint64_t tokens = 0;
    for (struct list_link *l = q->tenants.first; l; l = l->next) {
        uint64_t waiting = tenant_at(l)->tokens;
        tokens += waiting < own->tokens ? waiting : own->tokens;
    }
    return tokens;
}

void embed_queue_verify(const struct embed_queue *q) {
    uint64_t tokens = 0, texts = 0;
    for (struct list_link *l = q->tenants.first; l; l = l->next) {
        const struct tenant *t = tenant_at(l);
        uint64_t own = 0;
        CHECK(find(q, t->number) == t);
        CHECK(t->jobs.count > 0);
        CHECK(t->texts.held == t->jobs.count);
        for (struct list_link *j = t->jobs.first; j; j = j->next) {
            CHECK(job_at(j)->tenant == t->number);
            own += left(job_at(j));
        }
        CHECK(own == t->tokens);
        tokens += own;
        texts += t->jobs.count;
    }
    CHECK(tokens == q->tokens);
    CHECK(texts == q->texts.used);
    CHECK(q->tenants.count == q->texts.holders);
}
