/* sched/sched_change.c - another policy, or other knobs, while sequences live; see sched/sched.h.
 *
 * Entry point: sched_change.
 *
 * To the new policy all live sequences arrive at once, in the order in which they were submitted;
 * those that run are admitted at once. What the old policy had noted is forgotten. Nobody is
 * preempted, and no sequence changes its state. No policy sees batch lines.
 */
#include "sched/sched_int.h"

#include <string.h>

static bool is_live(const struct sched_seq *seq) {
    return seq->state == SEQ_WAITING || seq->state == SEQ_RUNNING || seq->state == SEQ_SWAPPED ||
           seq->state == SEQ_FORKING;
}

/* A policy that reserves gets its reservations for those that run as far as they all fit; the
 * others can be preempted as before, until they have ended. */
static void reserve_again(struct sched *s, seq_idx i) {
    struct slot *slot = &s->slots[i];
    slot->reserved = 0;
    if (slot->seq.state != SEQ_RUNNING || !s->policy->reserves_all) return;
    uint32_t need = sched_blocks_for(s, slot->seq.total_max);
    if (s->reserved_blocks + need > s->knobs.kv_blocks) return;
    slot->reserved = need;
    s->reserved_blocks += need;
}

static void arrive_again(struct sched *s, seq_idx i, int64_t now_us) {
    struct sched_seq *seq = seq_at(s, i);
    const struct sched_policy *policy = s->policy;
    memset(&seq->policy, 0, sizeof(seq->policy));
    seq->key = INT64_MAX; /* last in the queue until sched_rekey below, as in sched_submit */
    if (heap_has(&s->queue, i)) heap_change(&s->queue, i, seq->key, sched_queue_tie(s, i));
    const struct sched_view *view = sched_update_view(s, now_us);
    if (policy->on_arrive) policy->on_arrive(s->state, seq, view);
    if (seq->state == SEQ_RUNNING && policy->on_admit) policy->on_admit(s->state, seq, view);
    sched_rekey(s, i);
    sched_set_timer(s, i);
    reserve_again(s, i);
}

void sched_change(struct sched *s, const struct sched_policy *policy, const struct knobs *knobs,
                  int64_t now_us) {
    CHECK(s->under_way_count == 0);
    CHECK(policy->state_bytes <= s->state_bytes);
    CHECK(knobs->max_seqs == s->knobs.max_seqs);
    CHECK(knobs->kv_blocks == s->knobs.kv_blocks);
    CHECK(knobs->block_size == s->knobs.block_size);
    CHECK(sched_live_max(knobs) <= s->live_max);
    s->policy = policy;
    s->knobs = *knobs;
    memset(s->state, 0, s->state_bytes);
    if (policy->init) policy->init(s->state, &s->knobs);
    s->held_batch_slots = 0;
    s->reserved_blocks = 0;
    s->epoch++; /* what was not admitted is tried again */
    s->notes.front.is_known = false;
    heap_clear(&s->prompts); /* scratch: the live sequences by submission */
    for (seq_idx i = 0; i < s->slot_count; i++)
        if (is_live(seq_at(s, i)) && !is_line(s, i))
            heap_push(&s->prompts, i, 0, s->slots[i].serial);
    for (seq_idx i; (i = heap_top(&s->prompts)) != SEQ_NONE;) {
        heap_remove(&s->prompts, i);
        arrive_again(s, i, now_us);
    }
}
