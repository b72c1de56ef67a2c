/* sched/sched_lines.c - batch lines: sequences that get what all others leave; see sched/lines.h.
 *
 * Entry points: sched_line_yields, sched_lines_free_blocks, sched_lines_free_seats while the rows
 * of interactive sequences are planned; sched_plan_lines after them.
 *
 * Lines are served in the order of submission. If lines have to be preempted, the one that was
 * submitted last goes first, so the oldest line always gets what it needs of what lines have.
 */
#include "sched/sched_int.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

static const double ROUNDING_US = 0.001;
static const double TAIL_SLOWDOWN = 0.1; /* share by which lines may slow the slowest requests */

enum {
    SKIP_MAX = 8,          /* lines of the queue skipped in one plan: they wait for a prefix */
    LINE_FLOOR = 16,       /* tokens of a prompt in a step without other rows, despite the target */
    LINE_FLOOR_BESIDE = 4, /* tokens of a prompt in a step of others, at least */
};

/* ---- create and destroy ---- */

enum status sched_lines_init(struct sched *s) {
    uint32_t seqs = s->knobs.max_seqs;
    s->lines.running = mem_zalloc_array(seqs, sizeof(s->lines.running[0]));
    s->lines.swapped = mem_zalloc_array(seqs, sizeof(s->lines.swapped[0]));
    if (!s->lines.running || !s->lines.swapped) return ST_NOMEM;
    TRY(heap_init(&s->lines.queue, s->slot_count));
    return heap_init(&s->lines.timers, s->slot_count);
}

void sched_lines_deinit(struct sched *s) {
    heap_deinit(&s->lines.queue);
    heap_deinit(&s->lines.timers);
    mem_free(s->lines.running);
    mem_free(s->lines.swapped);
}

/* ---- states ---- */

uint32_t sched_lines_waiting(const struct sched *s) {
    return s->lines.queue.count - s->lines.swapped_count + s->lines.forking_count;
}

/* Lines are admitted in the order of submission, so the place is at the end or close to it. */
void sched_line_start(struct sched *s, seq_idx i) {
    struct sched_lines *l = &s->lines;
    uint32_t at = l->running_count++;
    for (; at > 0 && s->slots[l->running[at - 1]].serial > s->slots[i].serial; at--) {
        l->running[at] = l->running[at - 1];
        seq_at(s, l->running[at])->run_idx = at;
    }
    l->running[at] = i;
    seq_at(s, i)->run_idx = at;
}

void sched_line_stop(struct sched *s, seq_idx i) {
    struct sched_lines *l = &s->lines;
    uint32_t at = seq_at(s, i)->run_idx;
    CHECK(l->running[at] == i);
    l->running_count--;
    for (; at < l->running_count; at++) {
        l->running[at] = l->running[at + 1];
        seq_at(s, l->running[at])->run_idx = at;
    }
}

void sched_line_swapped(struct sched *s, seq_idx i) {
    CHECK(s->swapped_count + s->lines.swapped_count < s->knobs.max_seqs);
    s->lines.swapped[s->lines.swapped_count++] = i;
}

void sched_line_unswapped(struct sched *s, seq_idx i) {
    struct sched_lines *l = &s->lines;
    uint32_t at = 0;
    while (l->swapped[at] != i) {
        at++;
        CHECK(at < l->swapped_count);
    }
    l->swapped[at] = l->swapped[--l->swapped_count];
}

/* ---- for interactive sequences ---- */

bool sched_line_yields(struct planning *p, seq_idx for_seq) {
    const struct sched_lines *l = &p->s->lines;
    if (l->running_count == 0 || sched_needs_drain(p)) return false;
    sched_preempt(p, l->running[l->running_count - 1], for_seq, PREEMPT_BATCH);
    return true;
}

bool sched_lines_free_blocks(struct planning *p, seq_idx for_seq, uint64_t blocks) {
    while (kv_cache_available(p->s->kv) < blocks) {
        if (sched_line_yields(p, for_seq)) continue;
        p->lacks_blocks = true;
        return false;
    }
    return true;
}

bool sched_lines_free_seats(struct planning *p, seq_idx for_seq, uint32_t seats) {
    const struct sched *s = p->s;
    while (s->lines.running_count > 0 &&
           s->running_count + s->lines.running_count + s->forking_count + seats > s->knobs.max_seqs)
        if (!sched_line_yields(p, for_seq)) return false;
    return true;
}

bool sched_line_unspills(struct sched *s) {
    if (s->lines.swapped_count == 0) return false;
    sched_drop_blocks(s, s->lines.swapped[s->lines.swapped_count - 1]);
    return true;
}

/* When the prompt of a request with several choices is computed, they start without a plan: each
 * needs a seat, a copy of a block and one more. */
void sched_lines_make_room(struct planning *p) {
    const struct sched *s = p->s;
    if (s->forking_count == 0 || !sched_lines_free_seats(p, SEQ_NONE, 0)) return;
    uint64_t wanted = 2 * (uint64_t)s->forking_count + sched_watermark(s);
    while (s->lines.running_count > 0 && kv_cache_available(s->kv) < wanted)
        if (!sched_line_yields(p, SEQ_NONE)) return;
}

/* ---- for lines ---- */

bool sched_line_has_seat(const struct sched *s) {
    return s->running_count + s->lines.running_count + s->forking_count < s->knobs.max_seqs;
}

/* The other sequences wait for the copies: together they take no longer than a step without
 * rows. */
bool sched_line_may_swap(const struct planning *p, seq_idx i) {
    const struct sched *s = p->s;
    double moves = p->plan->moves.count + sched_blocks_for(s, seq_at(s, i)->computed);
    return moves * s->cost.per_move_us <= cost_predict_us(&s->cost, 0, 0);
}

/* The last line that comes after line i; not one that this plan has admitted. */
static seq_idx later_line(const struct planning *p, seq_idx i) {
    const struct sched *s = p->s;
    seq_idx last = s->lines.running[s->lines.running_count - 1];
    bool is_later = s->slots[last].serial > s->slots[i].serial;
    return is_later && s->slots[last].admitted_in != s->plan_number ? last : SEQ_NONE;
}

/* Only the oldest line asks for a drain: others can wait until it has ended. */
bool sched_line_ensure_blocks(struct planning *p, seq_idx i, uint32_t tokens) {
    struct sched *s = p->s;
    bool is_oldest = i == s->lines.running[0];
    while (!sched_grow(p, i, tokens)) {
        if (kv_seq_need(s->kv, seq_at(s, i)->kv, tokens) <= kv_cache_available(s->kv)) return false;
        seq_idx victim = later_line(p, i);
        if (victim == SEQ_NONE) {
            bool is_alone = is_oldest && s->running_count == 0;
            if (is_alone && sched_release_kept(s)) continue;
            return false;
        }
        if (p->is_ahead && (!is_oldest || sched_needs_drain(p))) return false;
        sched_preempt(p, victim, i, PREEMPT_MEMORY);
    }
    return true;
}

/* What a step without prompts of interactive sequences takes: each row as a decode, and the further
 * tokens of a line's prompt at the price of the cost model. */
double sched_step_us(const struct sched *s, uint32_t rows, uint32_t tokens, uint64_t attended) {
    double us = cost_rows_predict_us(&s->lines.cost, &s->cost, rows, attended);
    return us + s->cost.weight[1] * (tokens - rows);
}

static double plan_us(const struct sched *s, const struct plan *plan) {
    return sched_step_us(s, plan->row_count, plan->token_count, plan->attended_tokens);
}

/* What rows of lines add to the step of others, with a further row of `count` tokens; 0: no row. */
static double added_us(const struct planning *p, uint32_t first, uint32_t count) {
    const struct plan *plan = p->plan;
    return sched_step_us(p->s, plan->row_count + (count > 0), plan->token_count + count,
                         plan->attended_tokens + cost_attended(first, count)) -
           p->others_us;
}

/* Its first token is there, or is known to be sampled by the plan under way. */
static bool has_token(const struct sched_seq *seq) { return seq->total > seq->prompt_tokens; }

/* The tail share: by how much requests at the pace, and slower ones, may become slower. */
static double tail_share(const struct sched *s) {
    return fmin(s->knobs.batch_slowdown, TAIL_SLOWDOWN);
}

/* How long the step may take, so that no running interactive sequence has a mean time per token,
 * from its first token to the end of the step, above the pace times (1 + the tail share). 0: the
 * pace is not known yet. */
static double pace_limit_us(const struct planning *p) {
    const struct sched *s = p->s;
    double begin_us = (double)p->now_us;
    double pace_us = line_pace_us(&s->lines.pace) * (1 + tail_share(s));
    double limit_us = pace_us;
    if (p->is_ahead) begin_us += plan_us(s, s->under_way[0].plan);
    for (uint32_t n = 0; n < s->running_count && limit_us > 0; n++) {
        const struct sched_seq *seq = seq_at(s, s->running[n]);
        if (!has_token(seq)) continue;
        double since_us = seq->first_token_us > 0 ? begin_us - (double)seq->first_token_us : 0;
        uint32_t later_tokens = seq_generated(seq) - 1 + (seq->planned > 0);
        limit_us = fmin(limit_us, pace_us * later_tokens - since_us);
    }
    return limit_us;
}

/* In a step with interactive rows, lines may add the share `batch_slowdown` of its time as far as
 * the pace allows, and in addition what the credit allows. Each such step earns credit: the tail
 * share of its time, or `batch_slowdown` of it while the pace is not known. */
static void start_budget(struct planning *p) {
    const struct sched *s = p->s;
    const struct plan *plan = p->plan;
    double target_us = s->knobs.step_target_ms * 1000;
    p->line_limit_us = target_us > 0 ? target_us : (double)INFINITY;
    p->others_us = plan->token_count > 0 ? plan_us(s, plan) : 0;
    const double slowdown = s->knobs.batch_slowdown, slack_us = pace_limit_us(p) - p->others_us;
    bool knows_pace = line_pace_us(&s->lines.pace) > 0;
    p->line_earned_us = p->others_us * (knows_pace ? tail_share(s) : slowdown);
    p->line_credit_us = (double)INFINITY;
    if (plan->token_count == 0) return;
    p->line_credit_us = s->lines.credit_us + p->line_earned_us;
    p->line_free_us = fmin(fmax(slack_us, 0), p->others_us * slowdown);
}

/* What is added beyond the pace is paid with credit. Credit is saved only while a row of a line
 * waits for it, so it never exceeds the time of that row or what one step earns. */
static void end_budget(struct planning *p) {
    struct sched_lines *l = &p->s->lines;
    p->plan->batch_us = p->plan->batch_row_count > 0 ? added_us(p, 0, 0) : 0;
    if (isinf(p->line_credit_us)) return;
    double left_us = p->line_credit_us - fmax(p->plan->batch_us - p->line_free_us, 0);
    l->credit_us = p->line_lacks_credit ? left_us : fmin(left_us, p->line_earned_us);
}

/* Is there time within the pace, or credit, for a row of `count` tokens? */
static bool has_credit(struct planning *p, uint32_t first, uint32_t count) {
    if (isinf(p->line_credit_us)) return true;
    if (added_us(p, first, count) <= p->line_free_us + p->line_credit_us) return true;
    p->line_lacks_credit = true;
    return false;
}

/* The first row of a step needs no time: an older sequence would have it. */
static bool has_time(struct planning *p, uint32_t first) {
    if (p->plan->token_count == 0) return true;
    return p->others_us + added_us(p, first, 1) <= p->line_limit_us && has_credit(p, first, 1);
}

static bool has_tokens(const struct planning *p) {
    return p->plan->token_count < p->s->knobs.max_step_tokens;
}

/* Tokens of a prompt with which the step stays within `limit_us`. The first one has the price of a
 * row, the others that of tokens. */
static uint32_t tokens_within(const struct planning *p, double limit_us, uint32_t first,
                              uint32_t max) {
    const struct plan *plan = p->plan;
    const struct cost_model *m = &p->s->cost;
    if (isinf(limit_us) || max == 0) return max;
    double left_us = limit_us - p->others_us - added_us(p, first, 1);
    if (left_us < 0) return 0;
    uint32_t tokens = plan->token_count + 1;
    uint64_t attended = plan->attended_tokens + cost_attended(first, 1);
    double target_us = left_us + cost_predict_us(m, tokens, attended);
    return 1 + cost_tokens_within(m, target_us, tokens, attended, first + 1, max - 1);
}

/* Beside interactive rows a prompt goes on in small pieces: the step is computed anyway. */
static uint32_t cut_to_credit(struct planning *p, uint32_t first, uint32_t max) {
    uint32_t floor = max < LINE_FLOOR_BESIDE ? max : LINE_FLOOR_BESIDE;
    if (isinf(p->line_credit_us)) return max;
    if (!has_credit(p, first, floor)) return 0;
    double limit_us = p->others_us + p->line_free_us + p->line_credit_us;
    uint32_t fit = tokens_within(p, limit_us, first, max);
    return fit > floor ? fit : floor;
}

uint32_t sched_line_chunk(struct planning *p, seq_idx i, uint32_t first) {
    const struct knobs *k = &p->s->knobs;
    const struct plan *plan = p->plan;
    if (!has_tokens(p)) return 0;
    uint32_t max = seq_at(p->s, i)->total - first, left = k->max_step_tokens - plan->token_count;
    if (max > left) max = left;
    if (k->chunk_tokens > 0 && max > k->chunk_tokens) max = k->chunk_tokens;
    uint32_t fit = tokens_within(p, p->line_limit_us, first, max);
    if (fit < LINE_FLOOR && plan->token_count == 0) fit = max < LINE_FLOOR ? max : LINE_FLOOR;
    return fit > 0 ? cut_to_credit(p, first, fit) : 0;
}

/* ---- the plan ---- */

/* A line that needs blocks preempts later ones: they are at the end of the array. */
static void plan_decodes(struct planning *p) {
    const struct sched *s = p->s;
    for (uint32_t n = 0; n < s->lines.running_count && has_tokens(p); n++) {
        seq_idx i = s->lines.running[n];
        const struct sched_seq *seq = seq_at(s, i);
        if (seq_left(seq) != 1 || sched_skips_ahead_plan(p, i)) continue;
        if (!has_time(p, seq->computed)) return;
        if (sched_ensure_blocks(p, i, seq->total)) sched_row_add(p, i, 1);
    }
}

static void plan_prompts(struct planning *p) {
    const struct sched *s = p->s;
    for (uint32_t n = 0; n < s->lines.running_count && has_tokens(p); n++) {
        seq_idx i = s->lines.running[n];
        const struct sched_seq *seq = seq_at(s, i);
        if (seq_left(seq) == 1 || sched_skips_ahead_plan(p, i)) continue;
        uint32_t count = sched_line_chunk(p, i, seq->computed);
        if (count == 0) return;
        count = sched_cut_to_memory(s, i, count);
        if (sched_ensure_blocks(p, i, seq->computed + count)) sched_row_add(p, i, count);
    }
}

/* A line that this plan has preempted is not admitted again by it, unless no sequence runs. */
static bool may_return(const struct sched *s, seq_idx i) {
    bool is_preempted = s->slots[i].preempted_in == s->plan_number;
    return !is_preempted || s->running_count + s->lines.running_count == 0;
}

static void plan_queue(struct planning *p) {
    struct sched *s = p->s;
    seq_idx skipped[SKIP_MAX], i;
    uint32_t skipped_count = 0;
    while (skipped_count < SKIP_MAX && has_tokens(p) && sched_line_has_seat(s)) {
        i = heap_top(&s->lines.queue);
        if (i == SEQ_NONE || !may_return(s, i)) break;
        enum admission result = sched_admit(p, i);
        if (result != ADMITTED && result != ADMIT_SKIP) break;
        if (result == ADMITTED) continue;
        heap_remove(&s->lines.queue, i);
        skipped[skipped_count++] = i;
    }
    for (uint32_t n = 0; n < skipped_count; n++)
        heap_push(&s->lines.queue, skipped[n], 0, s->slots[skipped[n]].serial);
}

/* A step with a prompt of an interactive sequence has no rows of lines: they would delay its first
 * token. An ahead plan never has rows of lines alone: interactive sequences that run wait for a
 * result of the plan under way, and one that arrives waits for one step of lines, not for two. */
static bool is_free_for_lines(const struct planning *p) {
    if (p->is_solo || p->lacks_blocks) return false;
    if (p->has_prompt && p->plan->token_count > 0) return false;
    return !p->is_ahead || (!p->plan->wants_drain && p->plan->row_count > 0);
}

void sched_plan_lines(struct planning *p) {
    const struct sched *s = p->s;
    start_budget(p);
    if (is_free_for_lines(p)) {
        plan_decodes(p);
        plan_prompts(p);
        plan_queue(p);
    }
    end_budget(p);
    if (s->lines.running_count > 0 && !p->is_ahead)
        CHECK(p->plan->row_count > 0 || p->plan->moves.count > 0);
}

/* ---- what lines have cost ---- */

/* In proportion to the prediction: a step that takes longer than predicted does so for all rows. */
void sched_lines_count_time(struct sched *s, const struct plan *plan, double us) {
    if (plan->batch_us > 0 && us > 0)
        s->lines.added_us += us * fmin(plan->batch_us / plan_us(s, plan), 1);
}

void sched_lines_first_token(struct sched *s, seq_idx i) {
    s->slots[i].line_added_us = s->lines.added_us;
}

void sched_lines_last_token(struct sched *s, seq_idx i) {
    const struct sched_seq *seq = seq_at(s, i);
    if (seq_generated(seq) < 2) return;
    uint32_t later_tokens = seq_generated(seq) - 1;
    double us = (double)(seq->last_token_us - seq->first_token_us) / later_tokens;
    double added_us = (s->lines.added_us - s->slots[i].line_added_us) / later_tokens;
    line_pace_observe(&s->lines.pace, us, added_us, sched_step_us(s, 1, 1, seq->total));
}

double sched_pace_us(const struct sched *s) { return line_pace_us(&s->lines.pace); }

/* ---- verify ---- */

void sched_lines_verify(const struct sched *s) {
    const struct sched_lines *l = &s->lines;
    uint32_t live = 0, slots = 0, forking = 0;
    heap_verify(&l->queue);
    heap_verify(&l->timers);
    for (seq_idx i = 0; i < s->slot_count; i++) {
        const struct sched_seq *seq = seq_at(s, i);
        if (seq->state == SEQ_FREE || !seq->is_batch) {
            CHECK(!heap_has(&l->queue, i));
            CHECK(!heap_has(&l->timers, i));
            continue;
        }
        slots++;
        live += seq->state != SEQ_ENDED && seq->state != SEQ_LINGERING;
        forking += seq->state == SEQ_FORKING;
        CHECK(s->slots[i].reserved == 0);
        CHECK(!heap_has(&s->queue, i));
        CHECK(!heap_has(&s->timers, i));
    }
    CHECK(slots == l->slot_count);
    CHECK(live == l->live_count);
    CHECK(live == l->running_count + l->queue.count + forking);
    CHECK(forking == l->forking_count);
    CHECK(l->credit_us >= -ROUNDING_US);
    cost_rows_verify(&l->cost);
    line_pace_verify(&l->pace);
    CHECK(live <= l->live_max);
    for (uint32_t n = 0; n < l->running_count; n++) {
        CHECK(seq_at(s, l->running[n])->is_batch);
        CHECK(seq_at(s, l->running[n])->state == SEQ_RUNNING);
        CHECK(seq_at(s, l->running[n])->run_idx == n);
        if (n > 0) CHECK(s->slots[l->running[n - 1]].serial < s->slots[l->running[n]].serial);
    }
    for (uint32_t n = 0; n < l->swapped_count; n++) {
        CHECK(seq_at(s, l->swapped[n])->is_batch);
        CHECK(seq_at(s, l->swapped[n])->state == SEQ_SWAPPED);
    }
}
