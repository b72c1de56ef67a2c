/* sched/sched.c - create, submit, cancel, events and statistics; see sched/sched.h.
 *
 * Entry points: sched_create, sched_destroy, sched_submit, sched_cancel, sched_next_event,
 * sched_next_timer_us, sched_is_idle, sched_stats, sched_predict_wait_us.
 */
#include "sched/sched_int.h"

#include <string.h>

#include "base/mem.h"

/* The assumed length of an answer, in tokens, before any has ended. */
static const double MEAN_OUTPUT_START = 128;

/* ---- create and destroy ---- */

static enum status check_options(const struct sched_options *o, struct err *err) {
    const struct knobs *k = &o->knobs;
    if (k->kv_blocks == 0)
        return err_set(err, ST_BAD, "scheduler: kv_blocks is 0, expected at least 1");
    if (k->block_size == 0 || k->max_seqs == 0 || k->max_step_tokens == 0 || k->queue_max == 0)
        return err_set(err, ST_BAD,
                       "scheduler: block_size, max_seqs, max_step_tokens and queue_max must be "
                       "at least 1");
    if (o->ctx_tokens < 2)
        return err_set(err, ST_BAD, "scheduler: the context has %u tokens, expected at least 2",
                       o->ctx_tokens);
    if (o->group_count == 0 || o->group_count > KV_CACHE_GROUPS_MAX)
        return err_set(err, ST_BAD, "scheduler: %u KV groups, expected 1 to %d", o->group_count,
                       KV_CACHE_GROUPS_MAX);
    return ST_OK;
}

static enum status create_kv(struct sched *s, const struct sched_options *o, struct err *err) {
    struct kv_cache_options kv = {
        .block_tokens = o->knobs.block_size,
        .group_count = o->group_count,
        /* max_seqs running, max_seqs swapped out, and as many again of each that linger. */
        .seq_max = 4 * o->knobs.max_seqs,
        .tokens_max = o->ctx_tokens,
        .spill_slots = o->knobs.spill_blocks,
        .prefix_cache = o->knobs.prefix_cache,
        .prefix_blocks = o->knobs.prefix_blocks,
        .identity = o->kv_identity,
        .secret = o->kv_secret,
    };
    for (uint32_t g = 0; g < o->group_count; g++) {
        kv.groups[g].block_count = o->knobs.kv_blocks;
        kv.groups[g].window = o->windows[g];
    }
    return kv_cache_create(&s->kv, &kv, err);
}

static enum status create_heaps(struct sched *s) {
    TRY(heap_init(&s->queue, s->slot_count));
    TRY(heap_init(&s->by_arrival, s->slot_count));
    TRY(heap_init(&s->timers, s->slot_count));
    return heap_init(&s->prompts, s->slot_count);
}

/* Of this policy, and of every one that it may be changed to. */
static size_t state_bytes(const struct sched_policy *policy) {
    size_t most = policy->state_bytes ? policy->state_bytes : 1;
    for (uint32_t i = 0; sched_policies[i]; i++)
        if (sched_policies[i]->state_bytes > most) most = sched_policies[i]->state_bytes;
    return most;
}

static enum status create_tables(struct sched *s) {
    uint32_t seqs = s->knobs.max_seqs, buckets = 1;
    while (buckets < s->slot_count) buckets *= 2;
    s->bucket_mask = buckets - 1;
    s->slots = mem_alloc_aligned(_Alignof(struct slot), s->slot_count * sizeof(s->slots[0]));
    s->running = mem_zalloc_array(seqs, sizeof(s->running[0]));
    s->buckets = mem_alloc_array(buckets, sizeof(s->buckets[0]));
    s->candidates = mem_zalloc_array(seqs, sizeof(const struct sched_seq *));
    s->order = mem_zalloc_array(seqs, sizeof(s->order[0]));
    s->rows = mem_zalloc_array(seqs, sizeof(s->rows[0]));
    s->state_bytes = state_bytes(s->policy);
    s->state = mem_zalloc(s->state_bytes);
    s->shares.tenants = sched_share_create();
    if (!s->slots || !s->running || !s->buckets || !s->candidates || !s->order || !s->rows ||
        !s->state || !s->shares.tenants || sched_notes_init(s) != ST_OK ||
        sched_lines_init(s) != ST_OK)
        return ST_NOMEM;
    for (uint32_t b = 0; b < buckets; b++) s->buckets[b] = SEQ_NONE;
    s->free_first = SEQ_NONE;
    for (uint32_t i = s->slot_count; i-- > 0;) {
        s->slots[i] = (struct slot){0};
        s->slots[i].seq.next = s->free_first;
        s->free_first = i;
    }
    return create_heaps(s);
}

uint32_t sched_live_max(const struct knobs *k) { return k->max_seqs + k->queue_max; }
uint32_t sched_batch_live_max(const struct knobs *k) { return 2 * k->max_seqs; }

/* Those that do not live, of each class: max_seqs swapped out; max_seqs that have ended and whose
 * last event was not taken yet; and those that linger: two plans use at most max_seqs running ones
 * each, and one of them (not the ahead plan) max_seqs that it swaps out. */
static uint32_t ended_max(const struct knobs *k) { return 5 * k->max_seqs; }

uint32_t sched_seq_max(const struct knobs *k) {
    return sched_live_max(k) + sched_batch_live_max(k) + 2 * ended_max(k);
}

enum status sched_create(struct sched **out, const struct sched_options *options, struct err *err) {
    CHECK(options->policy);
    TRY(check_options(options, err));
    struct sched *s = mem_zalloc(sizeof(*s));
    if (!s) return err_set(err, ST_NOMEM, "scheduler: out of memory");
    s->policy = options->policy;
    s->knobs = options->knobs;
    s->cost = options->cost;
    s->ctx_tokens = options->ctx_tokens;
    s->drafts = options->drafts;
    s->draft_rows_max = options->draft_rows_max;
    s->live_max = sched_live_max(&s->knobs);
    s->lines.live_max = sched_batch_live_max(&s->knobs);
    s->slot_count = sched_seq_max(&s->knobs);
    s->oldest_running = s->event_first = s->event_last = s->linger_first = SEQ_NONE;
    s->mean_output = MEAN_OUTPUT_START;
    s->epoch = 1;
    s->view = (struct sched_view){.knobs = &s->knobs, .cost = &s->cost};

    enum status st = create_tables(s);
    if (st == ST_OK)
        st = create_kv(s, options, err);
    else
        err_set(err, st, "scheduler: out of memory for %u sequences", s->slot_count);
    if (st != ST_OK) {
        sched_destroy(s);
        return st;
    }
    if (s->policy->init) s->policy->init(s->state, &s->knobs);
    *out = s;
    return ST_OK;
}

void sched_destroy(struct sched *s) {
    if (!s) return;
    kv_cache_destroy(s->kv);
    heap_deinit(&s->queue);
    heap_deinit(&s->by_arrival);
    heap_deinit(&s->timers);
    heap_deinit(&s->prompts);
    mem_free(s->slots);
    mem_free(s->running);
    mem_free(s->buckets);
    mem_free(s->candidates);
    mem_free(s->order);
    mem_free(s->rows);
    mem_free(s->state);
    mem_free(s->shares.tenants);
    sched_notes_deinit(s);
    sched_lines_deinit(s);
    mem_free(s);
}

/* ---- the table ---- */

static seq_idx *bucket_of(const struct sched *s, uint64_t request, uint32_t choice) {
    uint64_t h = request * 0x9e3779b97f4a7c15u + choice * 0xc2b2ae3d27d4eb4fu; /* odd constants */
    return &s->buckets[(uint32_t)(h >> 32) & s->bucket_mask];
}

seq_idx sched_find(const struct sched *s, uint64_t request, uint32_t choice) {
    seq_idx i = *bucket_of(s, request, choice);
    while (i != SEQ_NONE && (seq_at(s, i)->request != request || seq_at(s, i)->choice != choice))
        i = s->slots[i].hash_next;
    return i;
}

static seq_idx slot_take(struct sched *s, const struct sched_submit *in) {
    seq_idx i = s->free_first;
    CHECK(i != SEQ_NONE);
    s->free_first = seq_at(s, i)->next;
    seq_idx *bucket = bucket_of(s, in->request, in->choice);
    s->slots[i] = (struct slot){
        .seq = {.request = in->request,
                .choice = in->choice,
                .tenant = in->tenant,
                .has_share = in->has_share,
                .salt = in->salt,
                .reads_no_prefix = in->reads_no_prefix,
                .one_row_at_a_time = in->one_row_at_a_time,
                .waits_for_token = in->waits_for_token,
                .is_batch = in->is_batch,
                .draft_max = (uint8_t)(in->draft_max < DRAFT_MAX ? in->draft_max : DRAFT_MAX),
                .urgency = in->urgency,
                .tokens = in->tokens,
                .prompt_tokens = in->prompt_tokens,
                .total = in->prompt_tokens,
                .total_max = in->total_max,
                .seat = SEAT_NONE,
                .fork_parent = SEQ_NONE,
                .next = SEQ_NONE},
        .serial = s->next_serial++,
        .hash_next = *bucket,
        .event_next = SEQ_NONE,
        .linger_next = SEQ_NONE,
        .child_first = SEQ_NONE,
    };
    *bucket = i;
    s->draft_seqs += in->draft_max > 0;
    s->lines.slot_count += in->is_batch;
    if (in->is_batch)
        s->lines.live_count++;
    else
        s->live_count++;
    return i;
}

/* sched_find finds it no longer. */
static void slot_unhash(struct sched *s, seq_idx i) {
    const struct slot *slot = &s->slots[i];
    seq_idx *link = bucket_of(s, slot->seq.request, slot->seq.choice);
    while (*link != i) link = &s->slots[*link].hash_next;
    *link = slot->hash_next;
}

void sched_slot_free(struct sched *s, seq_idx i) {
    s->lines.slot_count -= seq_at(s, i)->is_batch;
    s->draft_seqs -= seq_at(s, i)->draft_max > 0;
    seq_at(s, i)->state = SEQ_FREE;
    seq_at(s, i)->next = s->free_first;
    s->free_first = i;
}

/* ---- submit and cancel ---- */

/* Lines leave the entries of the table that interactive sequences may need. */
static enum status check_line_fits(const struct sched *s, struct err *err) {
    const struct sched_lines *l = &s->lines;
    if (l->live_count < l->live_max && l->slot_count < l->live_max + ended_max(&s->knobs))
        return ST_OK;
    return err_set(err, ST_FULL,
                   "%u batch lines run or wait, at most %u may (2 * max_seqs); try again later",
                   l->live_count, l->live_max);
}

static enum status check_submit(const struct sched *s, const struct sched_submit *in,
                                struct err *err) {
    if (in->prompt_tokens == 0) return err_set(err, ST_BAD, "the prompt is empty");
    if (in->total_max <= in->prompt_tokens)
        return err_set(err, ST_BAD, "no room for an answer: %u tokens in all, the prompt has %u",
                       in->total_max, in->prompt_tokens);
    if (in->total_max > s->ctx_tokens)
        return err_set(err, ST_BAD,
                       "the request needs %u tokens (%u of prompt and %u of answer), the context "
                       "has %u",
                       in->total_max, in->prompt_tokens, in->total_max - in->prompt_tokens,
                       s->ctx_tokens);
    uint32_t need = sched_blocks_for(s, in->total_max);
    if (need > s->knobs.kv_blocks)
        return err_set(err, ST_BAD, "the request needs %u KV blocks for %u tokens, the pool has %u",
                       need, in->total_max, s->knobs.kv_blocks);
    if (in->is_batch) return check_line_fits(s, err);
    if (s->live_count >= s->live_max || s->free_first == SEQ_NONE)
        return err_set(err, ST_FULL,
                       "the queue is full: %u sequences run or wait, at most %u may (max_seqs + "
                       "queue_max); try again later",
                       s->live_count, s->live_max);
    return ST_OK;
}

/* Will `parent` still compute the prompt that `in` shares? */
static bool can_fork(const struct sched *s, const struct sched_submit *in) {
    if (in->parent >= s->slot_count || in->prompt_tokens < 2) return false;
    const struct slot *parent = &s->slots[in->parent];
    bool is_live = parent->seq.state == SEQ_WAITING || parent->seq.state == SEQ_RUNNING ||
                   parent->seq.state == SEQ_SWAPPED;
    return is_live && parent->seq.request == in->request && parent->seq.is_batch == in->is_batch &&
           parent->seq.prompt_tokens == in->prompt_tokens &&
           parent->seq.total == parent->seq.prompt_tokens;
}

enum status sched_submit(struct sched *s, const struct sched_submit *in, int64_t now_us,
                         seq_idx *out, struct err *err) {
    TRY(check_submit(s, in, err));
    CHECK(sched_find(s, in->request, in->choice) == SEQ_NONE);
    seq_idx i = slot_take(s, in);
    struct sched_seq *seq = seq_at(s, i);
    seq->arrived_us = s->slots[i].waits_since_us = now_us;
    if (!in->is_batch) sched_share_submit(s, i, now_us);
    seq->key = in->is_batch ? 0 : INT64_MAX; /* last in the queue until sched_rekey below */
    if (can_fork(s, in)) {
        seq->state = SEQ_FORKING;
        seq->fork_parent = in->parent;
        seq->next = s->slots[in->parent].child_first;
        s->slots[in->parent].child_first = i;
        *sched_forking_count(s, i) += 1;
        s->notes.front.is_known = false;
    } else {
        sched_enqueue(s, i);
    }
    *out = i;
    const struct sched_view *view = sched_update_view(s, now_us);
    if (in->is_batch) {
        sched_set_timer(s, i);
        return ST_OK;
    }
    if (s->policy->on_arrive) s->policy->on_arrive(s->state, seq, view);
    sched_rekey(s, i);
    sched_set_timer(s, i); /* its expiry */
    if (s->policy->sheds && s->policy->sheds(s->state, seq, view))
        sched_end(s, i, FINISH_EXPIRED, now_us);
    return ST_OK;
}

void sched_cancel(struct sched *s, uint64_t request, uint32_t choice, enum finish_reason why,
                  int64_t now_us) {
    seq_idx i = sched_find(s, request, choice);
    if (i == SEQ_NONE) return;
    if (seq_at(s, i)->state == SEQ_ENDED) return;
    sched_end(s, i, why, now_us);
}

/* ---- events ---- */

bool sched_next_event(struct sched *s, struct sched_event *out) {
    seq_idx i = s->event_first;
    if (i == SEQ_NONE) return false;
    struct slot *slot = &s->slots[i];
    s->event_first = slot->event_next;
    if (s->event_first == SEQ_NONE) s->event_last = SEQ_NONE;
    slot->has_event = false;
    *out = (struct sched_event){
        .seq = i,
        .request = slot->seq.request,
        .choice = slot->seq.choice,
        .seat = slot->seq.seat,
        .total = slot->seq.total - slot->assumes_token,
        .finish = slot->seq.state == SEQ_ENDED ? slot->finish : FINISH_NONE,
        .cached_tokens = slot->seq.cached_tokens,
        .drafted = slot->drafted,
        .accepted = slot->accepted,
        .preempt_count = slot->seq.preempt_count,
        .admitted_us = slot->seq.admitted_us,
        .first_token_us = slot->seq.first_token_us,
    };
    if (slot->seq.state != SEQ_ENDED) return true;
    slot_unhash(s, i);
    if (slot->lingers_until > 0)
        slot->seq.state = SEQ_LINGERING; /* sched_end_lingering frees it (I8) */
    else
        sched_slot_free(s, i);
    return true;
}

int64_t sched_next_timer_us(const struct sched *s) {
    seq_idx i = heap_top(&s->timers), line = heap_top(&s->lines.timers);
    int64_t t = i == SEQ_NONE ? INT64_MAX : heap_key(&s->timers, i);
    int64_t line_t = line == SEQ_NONE ? INT64_MAX : heap_key(&s->lines.timers, line);
    return t < line_t ? t : line_t;
}

bool sched_is_idle(const struct sched *s) { return s->live_count + s->lines.live_count == 0; }

/* ---- statistics ---- */

struct sched_stats sched_stats(const struct sched *s) {
    const struct sched_lines *l = &s->lines;
    uint32_t batch_waiting = sched_lines_waiting(s);
    return (struct sched_stats){
        .waiting = s->by_arrival.count + s->forking_count + batch_waiting,
        .running = s->running_count + l->running_count,
        .swapped = s->swapped_count + l->swapped_count,
        .batch_waiting = batch_waiting,
        .batch_running = l->running_count,
        .batch_swapped = l->swapped_count,
        .steps = s->steps,
        .preempted = s->preempted,
        .swapped_out = s->swapped_out,
        .recomputed_tokens = s->recomputed_tokens,
        .finished = s->finished,
        .ahead_plans = s->ahead_plans,
        .dropped_rows = s->dropped_rows,
        .held_positions = s->held_positions,
        .used_positions = s->used_positions,
        .drafts = s->draft_stats,
        .heap_moves = s->queue.moves + s->by_arrival.moves + s->timers.moves + s->prompts.moves +
                      l->queue.moves + l->timers.moves,
        .kv = kv_cache_stats(s->kv),
    };
}

const struct cost_model *sched_cost(const struct sched *s) { return &s->cost; }
struct kv_cache *sched_kv(const struct sched *s) {
    return s->kv;
}

const struct sched_seq *sched_seq_at(const struct sched *s, seq_idx i) {
    CHECK(i < s->slot_count);
    return seq_at(s, i);
}

/* A new request waits for two things: the prompts before it, and running sequences that must end
 * first. Prompts are computed at the speed of full steps. An answer has the mean length and gets a
 * token a step. While others wait, as many sequences run as memory allows. */
double sched_predict_wait_us(const struct sched *s, uint32_t prompt_tokens) {
    uint32_t step_tokens = s->knobs.max_step_tokens;
    double target_us = s->knobs.step_target_ms * 1000;
    if (target_us > 0) {
        uint32_t fit = cost_tokens_within(&s->cost, target_us, s->decode_count, 0, 0, step_tokens);
        step_tokens = fit > 0 ? fit : 1;
    }
    double token_us = cost_predict_us(&s->cost, step_tokens, 0) / step_tokens;
    double prompt_us = ((double)s->queue_tokens + prompt_tokens) * token_us;

    uint32_t waiting = s->queue.count + s->forking_count, free_count = 0;
    if (s->running_count < s->knobs.max_seqs && waiting == 0)
        free_count = s->knobs.max_seqs - s->running_count;
    uint32_t ahead = waiting + 1 > free_count ? waiting + 1 - free_count : 0;
    if (ahead == 0 || s->running_count == 0) return prompt_us;
    double step_us = cost_predict_us(&s->cost, s->running_count, 0);
    return prompt_us + ahead * s->mean_output * step_us / s->running_count;
}
