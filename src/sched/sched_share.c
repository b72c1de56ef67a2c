/* sched/sched_share.c - see sched/share.h.
 *
 * The rules hold for sequences that were submitted with `has_share`. A tenant is above its share
 * if it has 1 / (other tenants that run + 2) of the batch slots, or of the blocks. It then leaves
 * `tenant_reserve` of them to tenants that are not. One sequence of a tenant is always within.
 */
#include "sched/sched_int.h"

#include "base/mem.h"

/* Tenants beyond this number share an entry, by their number. */
enum { TENANTS = 4096 };

struct tenant_use {
    uint32_t live, running; /* its sequences */
    int64_t last_place;     /* of the sequence that it submitted last, among its own */
    int64_t shift;          /* the `order` of a waiting sequence is its place plus this */
    uint64_t turn;          /* number of the last plan with a row of one of its prompts */
    uint64_t skipped_in;    /* number of the last plan that skipped a sequence because of a rule */
};

struct tenant_use *sched_share_create(void) {
    return mem_zalloc_array(TENANTS, sizeof(struct tenant_use));
}

static struct tenant_use *use_of(const struct sched *s, seq_idx i) {
    return &s->shares.tenants[seq_at(s, i)->tenant % TENANTS];
}

static uint32_t other_tenants(const struct sched *s, seq_idx i) {
    return s->shares.running_tenants - (use_of(s, i)->running > 0);
}

/* How many of `count` a tenant above its share leaves. With one there is nothing to leave. */
static uint32_t reserve(const struct sched *s, uint32_t count) {
    uint32_t part = (uint32_t)(s->knobs.tenant_reserve * count);
    if (count < 2 || !(s->knobs.tenant_reserve > 0)) return 0;
    return part > 0 ? part : 1;
}

/* ---- the order of arrival ---- */

/* Tenants take turns: the next sequence of a tenant comes one place after its previous one, but
 * never before the sequence that was admitted last. So a tenant that arrives goes before the
 * second waiting sequence of any other, however many there are. */
void sched_share_submit(struct sched *s, seq_idx i, int64_t now_us) {
    struct sched_seq *seq = seq_at(s, i);
    struct tenant_use *t = use_of(s, i);
    t->live++;
    s->shares.live_count += seq->has_share;
    seq->order = now_us;
    if (!seq->has_share) return;
    t->last_place++;
    if (t->last_place + t->shift < s->shares.order_floor)
        t->last_place = s->shares.order_floor - t->shift;
    s->slots[i].place = t->last_place;
    seq->order = t->last_place + t->shift;
}

void sched_share_end(struct sched *s, seq_idx i) {
    struct tenant_use *t = use_of(s, i);
    CHECK(t->live > 0);
    s->shares.live_count -= seq_at(s, i)->has_share;
    if (--t->live == 0) t->last_place = t->shift = 0;
}

void sched_share_reorder(struct sched *s, seq_idx i) {
    struct sched_seq *seq = seq_at(s, i);
    if (seq->has_share && seq->state != SEQ_RUNNING)
        seq->order = s->slots[i].place + use_of(s, i)->shift;
}

/* The plan also skips the tenant's later sequences, so that the order within a tenant is kept. All
 * of them move behind the sequence that was admitted last: those of a tenant that must wait would
 * otherwise collect at the front of the queue, where a plan skips only a few. */
void sched_share_skip(struct sched *s, seq_idx i) {
    struct tenant_use *t = use_of(s, i);
    int64_t order = s->slots[i].place + t->shift;
    if (seq_at(s, i)->has_share && order <= s->shares.order_floor)
        t->shift += s->shares.order_floor + 1 - order;
    t->skipped_in = s->plan_number;
}

bool sched_share_is_skipped(const struct sched *s, seq_idx i) {
    return seq_at(s, i)->has_share && use_of(s, i)->skipped_in == s->plan_number;
}

/* ---- batch slots ---- */

void sched_share_start(struct sched *s, seq_idx i) {
    s->shares.running_tenants += use_of(s, i)->running++ == 0;
    if (seq_at(s, i)->order > s->shares.order_floor) s->shares.order_floor = seq_at(s, i)->order;
}

void sched_share_stop(struct sched *s, seq_idx i) {
    CHECK(use_of(s, i)->running > 0);
    s->shares.running_tenants -= --use_of(s, i)->running == 0;
}

bool sched_share_may_run(const struct sched *s, seq_idx i) {
    uint32_t max = s->knobs.max_seqs, used = s->running_count + s->held_batch_slots;
    if (used >= max) return false;
    uint32_t runs = use_of(s, i)->running;
    if (!seq_at(s, i)->has_share || runs == 0 || max - used > reserve(s, max)) return true;
    return runs < max / (other_tenants(s, i) + 2);
}

/* ---- blocks ---- */

/* Blocks of all sequences of its tenant that run. A block that several of them share counts for
 * each. */
static uint64_t blocks_of_tenant(const struct sched *s, seq_idx i) {
    uint64_t sum = 0;
    for (uint32_t n = 0; n < s->running_count; n++) {
        seq_idx k = s->running[n];
        if (use_of(s, k) != use_of(s, i)) continue;
        sum += s->policy->reserves_all
                   ? s->slots[k].reserved
                   : sched_blocks_for(s, kv_seq_tokens(s->kv, seq_at(s, k)->kv));
    }
    return sum;
}

bool sched_share_is_above(const struct sched *s, seq_idx i, uint32_t need) {
    bool is_running = seq_at(s, i)->state == SEQ_RUNNING;
    if (use_of(s, i)->running <= (is_running ? 1 : 0)) return false;
    return blocks_of_tenant(s, i) + need > s->knobs.kv_blocks / (other_tenants(s, i) + 2);
}

uint32_t sched_share_spare(const struct sched *s, seq_idx i, uint32_t need, uint64_t left) {
    if (!seq_at(s, i)->has_share) return 0;
    uint32_t spare = reserve(s, s->knobs.kv_blocks);
    if (left >= spare) return 0;
    return sched_share_is_above(s, i, need) ? spare : 0;
}

/* ---- prompts ---- */

void sched_share_took_turn(struct sched *s, seq_idx i) { use_of(s, i)->turn = s->plan_number; }

bool sched_share_goes_before(const struct sched *s, seq_idx a, seq_idx b) {
    uint64_t turn_a = use_of(s, a)->turn, turn_b = use_of(s, b)->turn;
    if (s->shares.live_count > 0 && turn_a != turn_b) return turn_a < turn_b;
    return sched_goes_before(s, a, b);
}

/* ---- verify ---- */

void sched_share_verify(const struct sched *s) {
    uint32_t running = 0, running_tenants = 0, live = 0, with_share = 0;
    for (uint32_t t = 0; t < TENANTS; t++) {
        const struct tenant_use *use = &s->shares.tenants[t];
        CHECK(use->running <= use->live);
        CHECK(use->live > 0 || (use->last_place == 0 && use->shift == 0));
        CHECK(use->turn <= s->plan_number);
        running += use->running;
        running_tenants += use->running > 0;
        live += use->live;
    }
    for (uint32_t n = 0; n < s->running_count; n++) {
        CHECK(use_of(s, s->running[n])->running > 0);
        CHECK(seq_at(s, s->running[n])->order <= s->shares.order_floor);
    }
    for (seq_idx i = 0; i < s->slot_count; i++) {
        enum seq_state state = seq_at(s, i)->state;
        bool is_live = state != SEQ_FREE && state != SEQ_ENDED && state != SEQ_LINGERING;
        with_share += is_live && seq_at(s, i)->has_share && !seq_at(s, i)->is_batch;
    }
    CHECK(running == s->running_count);
    CHECK(running_tenants == s->shares.running_tenants);
    CHECK(live == s->live_count);
    CHECK(with_share == s->shares.live_count);
}
