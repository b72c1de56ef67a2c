/* engine/recorder.c - see engine/recorder.h. */
#include "engine/recorder.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/request.h"
#include "sched/sched.h"

enum {
    RING_BYTES_DEFAULT = 1 << 20,
    HAPPENED_MAX = 256, /* arrivals, and ends, of one record */
};

struct recorder {
    struct record_ring *ring;
    const struct sched_stats *stats;
    const struct kv_cache *kv;
    struct record_arrived arrived[HAPPENED_MAX];
    struct record_ended ended[HAPPENED_MAX];
    uint32_t arrived_count, ended_count;
    struct plan_admitted *admitted; /* of empty plans */
    uint32_t admitted_count, admitted_cap;
    struct record_head *open; /* the record of the plan that was applied; it has its rows */
    uint32_t row_count, prompts;
    struct record_row *rows; /* a copy of them, while another record is written before it */
    uint8_t policy;
};

enum status recorder_create(struct recorder **out, size_t bytes, uint32_t max_seqs,
                            const struct sched_stats *stats, const struct kv_cache *kv) {
    struct recorder *r = mem_zalloc(sizeof(*r));
    if (!r) return ST_NOMEM;
    r->stats = stats;
    r->kv = kv;
    r->admitted_cap = 2 * PLAN_ADMITTED_PARTS * max_seqs;
    r->admitted = mem_zalloc_array(r->admitted_cap, sizeof(r->admitted[0]));
    r->rows = mem_zalloc_array(max_seqs, sizeof(r->rows[0]));
    /* Rows and preemptions: one of each sequence. */
    uint32_t entries = 2 * max_seqs + PLAN_WAITS_MAX + 2 * HAPPENED_MAX + r->admitted_cap;
    size_t ring_bytes = bytes ? bytes : RING_BYTES_DEFAULT;
    bool made = r->admitted && r->rows &&
                record_ring_create(&r->ring, ring_bytes, entries, max_seqs) == ST_OK;
    if (made)
        *out = r;
    else
        recorder_destroy(r);
    return made ? ST_OK : ST_NOMEM;
}

void recorder_destroy(struct recorder *r) {
    if (!r) return;
    record_ring_destroy(r->ring);
    mem_free(r->admitted);
    mem_free(r->rows);
    mem_free(r);
}

struct record_ring *recorder_ring(const struct recorder *r) {
    return r->ring;
}

void recorder_set_policy(struct recorder *r, uint32_t place) {
    CHECK(place <= UINT8_MAX);
    r->policy = (uint8_t)place;
}

/* ---- what happens ---- */

/* All numbers but those of a plan. */
static void put_head(const struct recorder *r, struct record_head *h) {
    const struct kv_pool_stats *g = &r->stats->kv.groups[0];
    uint32_t shared = kv_cache_shared(r->kv);
    h->policy = r->policy;
    h->swapped = r->stats->swapped;
    h->used_blocks = g->held_count - shared;
    h->shared_blocks = shared;
    h->cached_blocks = g->cached_count + g->kept_count;
    h->free_blocks = g->free_count;
    h->available_blocks = g->free_count + g->cached_count;
    h->moves_in = h->moves_out = h->moves_copy = 0;
}

/* A record of what has happened so far, without a step. */
static void push_happened(struct recorder *r, int64_t now_us) {
    struct record_lists lists = {.arrived = r->arrived,
                                 .arrived_count = r->arrived_count,
                                 .admitted = r->admitted,
                                 .admitted_count = r->admitted_count,
                                 .ended = r->ended,
                                 .ended_count = r->ended_count};
    /* This record takes the place of one that has its rows already. */
    if (r->open) memcpy(r->rows, record_rows(r->open), r->row_count * sizeof(r->rows[0]));
    struct record_head *h = record_begin(r->ring);
    *h = (struct record_head){.times = {.at_us = now_us}};
    put_head(r, h);
    h->running = r->stats->running;
    h->waiting = r->stats->waiting;
    h->batch_running = r->stats->batch_running;
    h->batch_waiting = r->stats->batch_waiting;
    record_end(r->ring, h, &lists);
    r->arrived_count = r->admitted_count = r->ended_count = 0;
    if (!r->open) return;
    r->open = record_begin(r->ring);
    memcpy(record_rows(r->open), r->rows, r->row_count * sizeof(r->rows[0]));
}

void recorder_arrived(struct recorder *r, const struct choice *c) {
    if (r->arrived_count == HAPPENED_MAX) push_happened(r, c->submitted_us);
    r->arrived[r->arrived_count++] =
        (struct record_arrived){.request = c->request->id,
                                .at_us = c->submitted_us,
                                .choice = c->index,
                                .tenant = c->request->tenant,
                                .prompt_tokens = c->prompt_tokens,
                                .max_tokens = c->total_max - c->prompt_tokens,
                                .is_batch = c->request->is_batch};
}

void recorder_ended(struct recorder *r, const struct choice *c, uint32_t generated, uint32_t seat,
                    enum finish_reason why, int64_t now_us) {
    if (r->ended_count == HAPPENED_MAX) push_happened(r, now_us);
    r->ended[r->ended_count++] = (struct record_ended){.request = c->request->id,
                                                       .at_us = now_us,
                                                       .choice = c->index,
                                                       .generated = generated,
                                                       .seat = seat,
                                                       .why = why};
}

static void add_admitted(struct recorder *r, const struct plan *plan) {
    CHECK(r->admitted_count + plan->admitted_count <= r->admitted_cap);
    memcpy(r->admitted + r->admitted_count, plan->admitted,
           plan->admitted_count * sizeof(plan->admitted[0]));
    r->admitted_count += plan->admitted_count;
}

void recorder_empty_plan(struct recorder *r, const struct plan *plan) {
    if (plan->admitted_count == 0) return;
    if (r->admitted_count > r->admitted_cap / 2 - plan->admitted_count) push_happened(r, 0);
    add_admitted(r, plan);
}

/* ---- records ---- */

_Static_assert(CHOICES_MAX <= 16, "a record has 4 bits for the choice");
_Static_assert(DRAFT_MAX < 32, "a record has 5 bits for the drafts");

void recorder_rows(struct recorder *r, const struct sched *s, const struct plan *plan) {
    struct record_head *h = record_begin(r->ring);
    struct record_row *to = record_rows(h);
    uint32_t prompts = 0;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        if (row->is_dropped) continue;
        const struct sched_seq *seq = sched_seq_at(s, row->seq);
        *to++ = (struct record_row){.request = seq->request,
                                    .tenant = seq->tenant,
                                    .first = row->first,
                                    .count = row->count,
                                    .seat = (uint16_t)seq->seat,
                                    .choice = seq->choice & 0xf,
                                    .samples = row->samples,
                                    .is_batch = seq->is_batch,
                                    .drafts = row->draft_count & 0x1f,
                                    .accepted = row->accepted & 0x1f};
        prompts += row->count - row->draft_count > 1;
    }
    r->row_count = (uint32_t)(to - record_rows(h));
    r->prompts = prompts;
    r->open = h;
}

static void put_moves(struct record_head *h, const struct kv_moves *moves) {
    for (uint32_t i = 0; i < moves->count; i++) {
        enum kv_move_kind kind = moves->list[i].kind;
        h->moves_in += kind == KV_MOVE_IN;
        h->moves_out += kind == KV_MOVE_OUT;
        h->moves_copy += kind == KV_MOVE_COPY;
    }
}

/* All lists but the rows. */
static struct record_lists lists_of(struct recorder *r, const struct plan *plan) {
    if (r->admitted_count > 0) add_admitted(r, plan);
    bool has_own = r->admitted_count > 0;
    return (struct record_lists){.waits = plan->waits,
                                 .wait_count = plan->wait_count,
                                 .arrived = r->arrived,
                                 .arrived_count = r->arrived_count,
                                 .admitted = has_own ? r->admitted : plan->admitted,
                                 .admitted_count =
                                     has_own ? r->admitted_count : plan->admitted_count,
                                 .preempted = plan->preempted,
                                 .preempted_count = plan->preempted_count,
                                 .ended = r->ended,
                                 .ended_count = r->ended_count};
}

static bool has_lists(const struct recorder *r, const struct plan *plan) {
    return r->arrived_count | r->admitted_count | r->ended_count | plan->wait_count |
           plan->admitted_count | plan->preempted_count;
}

void recorder_step(struct recorder *r, const struct record_times *times, const struct plan *plan) {
    struct record_head *h = r->open;
    put_head(r, h);
    h->has_step = true;
    h->times = *times;
    h->row_count = r->row_count;
    h->prompts = r->prompts;
    h->tokens = plan->token_count;
    h->samples = plan->sample_count;
    h->running = plan->running_count;
    h->waiting = plan->waiting_count;
    h->batch_running = plan->batch_running_count;
    h->batch_waiting = plan->batch_waiting_count;
    put_moves(h, &plan->moves);
    r->open = NULL;
    if (!has_lists(r, plan)) {
        record_end(r->ring, h, NULL);
        return;
    }
    struct record_lists lists = lists_of(r, plan);
    record_end(r->ring, h, &lists);
    r->arrived_count = r->admitted_count = r->ended_count = 0;
}

void recorder_flush(struct recorder *r, int64_t now_us) {
    if (r->arrived_count + r->admitted_count + r->ended_count > 0) push_happened(r, now_us);
}
