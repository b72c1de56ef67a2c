/* engine/record.c - see engine/record.h for the contract. */
#include "engine/record.h"

#include <pthread.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"

struct record_ring {
    pthread_mutex_t lock;
    uint32_t capacity;
    uint64_t pushed;
    struct step_record records[];
};

enum status record_ring_create(struct record_ring **out, uint32_t capacity) {
    CHECK(capacity > 0);
    struct record_ring *ring = mem_zalloc(sizeof(*ring) + capacity * sizeof(ring->records[0]));
    if (!ring) return ST_NOMEM;
    pthread_mutex_init(&ring->lock, NULL);
    ring->capacity = capacity;
    *out = ring;
    return ST_OK;
}

void record_ring_destroy(struct record_ring *ring) {
    if (!ring) return;
    pthread_mutex_destroy(&ring->lock);
    mem_free(ring);
}

void record_push(struct record_ring *ring, const struct step_record *record) {
    pthread_mutex_lock(&ring->lock);
    ring->records[ring->pushed++ % ring->capacity] = *record;
    pthread_mutex_unlock(&ring->lock);
}

uint32_t record_copy(struct record_ring *ring, struct step_record *out, uint32_t max) {
    pthread_mutex_lock(&ring->lock);
    uint64_t count = ring->pushed < ring->capacity ? ring->pushed : ring->capacity;
    if (count > max) count = max;
    for (uint64_t i = 0; i < count; i++)
        out[i] = ring->records[(ring->pushed - count + i) % ring->capacity];
    pthread_mutex_unlock(&ring->lock);
    return (uint32_t)count;
}

static void put_record(const struct step_record *r, struct buf *out) {
    buf_printf(out,
               "{\"name\":\"step\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":%lld,\"dur\":%lld,"
               "\"args\":{\"step\":%llu,\"rows\":%u,\"tokens\":%u,\"samples\":%u,\"prompts\":%u,"
               "\"running\":%u,\"waiting\":%u,\"free_blocks\":%u,\"moves\":%u,\"sched_us\":%lld,"
               "\"preempted\":[",
               (long long)r->at_us, (long long)r->elapsed_us, (unsigned long long)r->step, r->rows,
               r->tokens, r->samples, r->prompts, r->running, r->waiting, r->free_blocks, r->moves,
               (long long)r->sched_us);
    for (uint32_t i = 0; i < r->preempted_count && i < RECORD_PREEMPTED_MAX; i++) {
        const struct plan_preempted *p = &r->preempted[i];
        buf_printf(out, "%s{\"request\":%llu,\"choice\":%u,\"why\":\"%s\",\"by\":\"%s\"}",
                   i ? "," : "", (unsigned long long)p->request, p->choice,
                   p->why == PREEMPT_MEMORY ? "memory" : "policy",
                   p->swapped ? "swap" : "recompute");
    }
    buf_put_text(out, "]}}");
}

void record_put_trace(struct record_ring *ring, struct buf *out) {
    buf_put_char(out, '[');
    pthread_mutex_lock(&ring->lock);
    uint64_t count = ring->pushed < ring->capacity ? ring->pushed : ring->capacity;
    for (uint64_t i = 0; i < count; i++) {
        if (i) buf_put_text(out, ",\n");
        put_record(&ring->records[(ring->pushed - count + i) % ring->capacity], out);
    }
    pthread_mutex_unlock(&ring->lock);
    buf_put_text(out, "]\n");
}
