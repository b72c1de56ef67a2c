/* sched/sched_drafts.c - how many drafts the rows of a plan carry; see sched/drafts.h.
 *
 * Entry points: sched_plan_drafts, sched_drafts_learn, sched_drafts_give_back,
 * sched_drafts_are_likely.
 *
 * A draft row costs time and gives a token only if it and all drafts before it are accepted. With p
 * the share of a sequence's drafts that were accepted, its draft number i gives p^i tokens on
 * average. The plan takes the drafts that give the most, one after the other, predicts the time of
 * the step with each further row (cost_rows.h), and keeps the number of drafts with the most tokens
 * per microsecond. With many sequences in the step a further row costs as much as a token is worth,
 * and the number is 0.
 *
 * Drafts take free blocks only, and give them back when the step is applied.
 */
#include "sched/sched_int.h"

enum {
    ROWS_MAX = 64,  /* rows of a plan that has drafts */
    PICKS_MAX = 64, /* drafts of a plan */
};
/* Else steps with many drafts would be predicted by the price of a token in a prompt, which is
 * less, and never be measured. */
_Static_assert(ROWS_MAX + PICKS_MAX <= COST_ROWS_MAX, "the time of each step is learned");
static const double GAIN_LEAST = 1.02;   /* times the tokens per microsecond without drafts */
static const double CHANCE_LEAST = 0.02; /* a draft that is less likely is not looked at */
/* What is assumed of a sequence without drafts so far: so many accepted, of so many. */
static const float PRIOR_HITS = 1.2F, PRIOR_TRIES = 2.0F;
static const float FORGET = 0.85F; /* weight of older drafts, with each row that has some */
static const float FADE = 0.99F;   /* the same with each step without drafts */

struct candidate {
    struct plan_row *row;
    uint32_t room; /* drafts that it may have */
    uint32_t want; /* drafts that it gets */
    double chance; /* that a draft is accepted, if those before it were */
    double next;   /* that the next draft, and all before it, are accepted */
};

struct candidates {
    struct candidate list[ROWS_MAX];
    uint32_t count;
};

static double chance_of(const struct slot *slot) {
    return (double)(slot->draft_hits + PRIOR_HITS) / (double)(slot->draft_tries + PRIOR_TRIES);
}

/* ---- candidates ---- */

/* How many drafts the row may have: the token sampled behind the last one must fit, too. */
static uint32_t room_of(const struct sched *s, const struct plan_row *row) {
    const struct sched_seq *seq = seq_at(s, row->seq);
    uint32_t most = seq->draft_max < s->knobs.draft_max ? seq->draft_max : s->knobs.draft_max;
    if (!row->samples || row->count != 1 || seq_generated(seq) == 0) return 0;
    if (s->slots[row->seq].child_first != SEQ_NONE) return 0;
    uint32_t left = seq->total_max - seq->total - 1;
    return most < left ? most : left;
}

/* Rows of batch lines get drafts only in a step of their own: beside others they pay for the time
 * that they add (sched_lines.c). */
static void gather(const struct planning *p, struct candidates *c) {
    const struct plan *plan = p->plan;
    bool has_others = plan->row_count > plan->batch_row_count;
    c->count = 0;
    for (uint32_t r = 0; r < plan->row_count; r++) {
        struct plan_row *row = &plan->rows[r];
        const struct slot *slot = &p->s->slots[row->seq];
        uint32_t room = room_of(p->s, row);
        if (room == 0 || (slot->seq.is_batch && has_others)) continue;
        double chance = chance_of(slot);
        /* The first guess is for the token that the plan under way samples. */
        double first = row->takes_sampled ? chance * chance : chance;
        c->list[c->count++] =
            (struct candidate){.row = row, .room = room, .chance = chance, .next = first};
    }
}

/* ---- how many ---- */

/* The candidate whose next draft is the most likely; NULL: there is none. */
static struct candidate *best_of(struct candidates *c) {
    struct candidate *best = NULL;
    for (uint32_t n = 0; n < c->count; n++) {
        struct candidate *one = &c->list[n];
        if (one->want < one->room && (!best || one->next > best->next)) best = one;
    }
    return best && best->next >= CHANCE_LEAST ? best : NULL;
}

static double source_us(const struct sched *s, const struct candidates *c) {
    uint32_t seqs = 0, longest = 0;
    if (!s->drafts.cost_us) return 0;
    for (uint32_t n = 0; n < c->count; n++) {
        uint32_t want = c->list[n].want + (c->list[n].want > 0 && c->list[n].row->takes_sampled);
        seqs += want > 0;
        if (want > longest) longest = want;
    }
    return longest > 0 ? s->drafts.cost_us(s->drafts.ctx, seqs, longest) : 0;
}

/* How long the step may take; 0: any time. */
static double step_limit_us(const struct planning *p) {
    struct sched *s = p->s;
    double target_us = s->knobs.step_target_ms * 1000;
    if (!s->policy->drafts_within_us) return target_us;
    double limit_us = s->policy->drafts_within_us(s->state, sched_update_view(s, p->now_us));
    return target_us > 0 && (limit_us <= 0 || target_us < limit_us) ? target_us : limit_us;
}

/* Give each candidate the number of drafts with which the step has the most tokens for its time.
 * Not the first maximum: kernels compute rows in groups, so a row that costs much may be followed
 * by rows that cost little. */
static void choose(const struct planning *p, struct candidates *c) {
    const struct sched *s = p->s;
    const struct plan *plan = p->plan;
    struct candidate *picks[PICKS_MAX];
    double limit_us = step_limit_us(p);
    uint64_t attended = plan->attended_tokens;
    uint32_t rows = plan->token_count, best = 0, count = 0;
    uint32_t most = s->knobs.max_step_tokens - rows;
    if (most > s->draft_rows_max) most = s->draft_rows_max;
    if (most > PICKS_MAX) most = PICKS_MAX;
    double tokens = plan->sample_count;
    double best_rate =
        GAIN_LEAST * tokens / cost_rows_predict_us(&s->lines.cost, &s->cost, rows, attended);
    while (count < most) {
        struct candidate *one = best_of(c);
        if (!one) break;
        tokens += one->next;
        one->next *= one->chance;
        one->want++;
        attended += seq_at(s, one->row->seq)->total + one->want;
        picks[count++] = one;
        double us = cost_rows_predict_us(&s->lines.cost, &s->cost, rows + count, attended) +
                    source_us(s, c);
        if (limit_us > 0 && us > limit_us) break;
        if (tokens / us <= best_rate) continue;
        best_rate = tokens / us;
        best = count;
    }
    while (count > best) picks[--count]->want--;
}

/* ---- the rows ---- */

/* Blocks for `count` drafts, or for as many as there are free ones. */
static uint32_t cut_to_blocks(struct planning *p, seq_idx i, uint32_t count) {
    const struct sched_seq *seq = seq_at(p->s, i);
    const struct kv_cache *kv = p->s->kv;
    uint32_t end = seq->total + count;
    if (end <= seq->writable_end) return count;
    bool is_free = kv_seq_need(kv, seq->kv, end) + sched_watermark(p->s) <= kv_cache_available(kv);
    if (is_free && sched_grow(p, i, end)) return count;
    return seq->writable_end > seq->total ? seq->writable_end - seq->total : 0;
}

static void extend_row(struct planning *p, struct plan_row *row, uint32_t count) {
    struct slot *slot = &p->s->slots[row->seq];
    count = cut_to_blocks(p, row->seq, count);
    if (count == 0) return;
    p->plan->attended_tokens += cost_attended(row->first + 1, count);
    p->plan->token_count += count;
    p->plan->draft_count += count;
    row->count += count;
    row->draft_count = count;
    slot->seq.planned += count;
    slot->planned_drafts = (uint8_t)count;
}

/* The source writes its guesses behind the text of each sequence. */
static void ask(struct planning *p, struct candidates *c) {
    struct sched *s = p->s;
    struct draft_ask asks[ROWS_MAX];
    struct candidate *of[ROWS_MAX];
    uint32_t count = 0;
    for (uint32_t n = 0; n < c->count; n++) {
        struct plan_row *row = c->list[n].row;
        struct slot *slot = &s->slots[row->seq];
        if (c->list[n].want == 0) {
            slot->draft_hits *= FADE;
            slot->draft_tries *= FADE;
            continue;
        }
        uint32_t unknown = row->takes_sampled;
        uint32_t text = slot->seq.total - unknown;
        of[count] = &c->list[n];
        asks[count++] = (struct draft_ask){.seq = row->seq,
                                           .tokens = slot->seq.tokens,
                                           .known = text - slot->assumed_drafts,
                                           .count = text,
                                           .max = c->list[n].want + unknown,
                                           .out = slot->seq.tokens + text};
    }
    if (count == 0) return;
    s->drafts.propose(s->drafts.ctx, asks, count);
    for (uint32_t n = 0; n < count; n++) {
        uint32_t unknown = of[n]->row->takes_sampled;
        CHECK(asks[n].given <= asks[n].max);
        if (asks[n].given > unknown) extend_row(p, of[n]->row, asks[n].given - unknown);
    }
}

void sched_plan_drafts(struct planning *p) {
    const struct sched *s = p->s;
    struct candidates c;
    if (!s->drafts.propose || s->knobs.draft_max == 0 || s->draft_seqs == 0) return;
    if (p->has_prompt || p->plan->row_count > ROWS_MAX) return;
    if (p->plan->token_count >= s->knobs.max_step_tokens) return;
    gather(p, &c);
    if (c.count == 0) return;
    choose(p, &c);
    ask(p, &c);
}

/* ---- results ---- */

void sched_drafts_learn(struct sched *s, const struct plan_row *row,
                        const struct row_result *result) {
    struct slot *slot = &s->slots[row->seq];
    uint32_t accepted = result->accepted, refused = accepted < result->checked;
    CHECK(result->checked <= row->draft_count);
    CHECK(accepted <= result->checked);
    slot->draft_hits = slot->draft_hits * FORGET + (float)accepted;
    slot->draft_tries = slot->draft_tries * FORGET + (float)(accepted + refused);
    slot->drafted += result->checked;
    slot->accepted += accepted;
    s->draft_stats.rows++;
    s->draft_stats.drafted += result->checked;
    s->draft_stats.accepted += accepted;
    for (uint32_t i = 0; i < accepted; i++) s->draft_stats.accepted_at[i]++;
}

/* Blocks that only drafts have used: of the row that was applied, or of an earlier one. A plan
 * under way may still write to them; they are given back when it is applied. */
void sched_drafts_give_back(struct sched *s, seq_idx i) {
    struct sched_seq *seq = seq_at(s, i);
    if (seq->state != SEQ_RUNNING || sched_used_until(s, i) > 0) return;
    uint32_t end = sched_end_of_block(s, seq->total);
    if (seq->writable_end <= end) return;
    kv_seq_trim(s->kv, seq->kv, end);
    seq->writable_end = end;
    s->epoch++;
}

/* A row in the ahead plan counts only if all drafts of the plan under way are accepted. It is worth
 * its time if it gives more tokens per microsecond than the rows that the plan has. If the plan has
 * none, nobody waits for the result of the plan under way in vain: the sequence waits for it. */
bool sched_drafts_are_likely(const struct planning *p, seq_idx i) {
    const struct sched *s = p->s;
    const struct slot *slot = &s->slots[i];
    const struct plan *plan = p->plan;
    double likely = 1, chance = chance_of(slot);
    if (plan->token_count == 0) return false;
    for (uint32_t n = 0; n < slot->assumed_drafts; n++) likely *= chance;
    uint64_t attended = plan->attended_tokens;
    double us = cost_rows_predict_us(&s->lines.cost, &s->cost, plan->token_count, attended);
    double more_us = cost_rows_predict_us(&s->lines.cost, &s->cost, plan->token_count + 1,
                                          attended + slot->seq.total);
    return likely * us > plan->token_count * (more_us - us);
}
