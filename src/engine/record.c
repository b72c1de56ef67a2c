/* engine/record.c - see engine/record.h for the contract. */
#include "engine/record.h"

#include <pthread.h>
#include <stdbool.h>

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
               "\"submit_us\":%lld,"
               "\"preempted\":[",
               (long long)r->at_us, (long long)r->elapsed_us, (unsigned long long)r->step, r->rows,
               r->tokens, r->samples, r->prompts, r->running, r->waiting, r->free_blocks, r->moves,
               (long long)r->sched_us, (long long)r->submit_us);
    for (uint32_t i = 0; i < r->preempted_count && i < RECORD_PREEMPTED_MAX; i++) {
        const struct plan_preempted *p = &r->preempted[i];
        buf_printf(out, "%s{\"request\":%llu,\"choice\":%u,\"why\":\"%s\",\"by\":\"%s\"}",
                   i ? "," : "", (unsigned long long)p->request, p->choice,
                   p->why == PREEMPT_MEMORY ? "memory" : "policy",
                   p->swapped ? "swap" : "recompute");
    }
    buf_put_text(out, "]}}");
}

/* Up to `max` records from number *next on that are still there; *next moves behind them. */
static uint32_t copy_from(struct record_ring *ring, uint64_t *next, struct step_record *out,
                          uint32_t max) {
    uint32_t count = 0;
    pthread_mutex_lock(&ring->lock);
    uint64_t oldest = ring->pushed < ring->capacity ? 0 : ring->pushed - ring->capacity;
    if (*next < oldest) *next = oldest;
    while (count < max && *next < ring->pushed)
        out[count++] = ring->records[(*next)++ % ring->capacity];
    pthread_mutex_unlock(&ring->lock);
    return count;
}

/* Some at a time, so that the engine never waits for text to be written; those that it
 * overwrites meanwhile are left out. */
void record_put_json(struct record_ring *ring, struct buf *out) {
    enum { PIECE = 16 };
    struct step_record piece[PIECE];
    uint64_t next = 0;
    bool is_first = true;
    buf_put_char(out, '[');
    for (uint32_t left = ring->capacity; left > 0;) {
        uint32_t count = copy_from(ring, &next, piece, left < PIECE ? left : PIECE);
        for (uint32_t i = 0; i < count; i++) {
            if (!is_first) buf_put_text(out, ",\n");
            is_first = false;
            put_record(&piece[i], out);
        }
        if (count == 0) break;
        left -= count;
    }
    buf_put_text(out, "]\n");
}
