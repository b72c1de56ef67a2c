/* engine/runner_local.c - see engine/runner_local.h for the contract.
 *
 * Submit fills the tables of a device step from the plan and submits it; collect waits for the
 * plan's steps and turns their outputs into results. There are as many sets of tables as steps may
 * be under way; a further step first waits for the oldest one, so that a plan of many steps needs
 * no more tables than others.
 *
 * A *wide* row is one that needs the logits of every token: of a prompt whose own log-probabilities
 * are wanted, or of a request with a logits tap. There is room for the outputs of few tokens at
 * once, so it is computed by itself, in slices of so many tokens.
 *
 * A row with drafts has an output at each of their places, described as if the drafts before it had
 * been accepted. The outputs are taken in order, as long as each draft equals the token that was
 * sampled at its place; the rest is ignored, whatever it is.
 *
 * A row of a sequence with a grammar is *late* while the grammar's work for it is not done
 * (engine/settler.h). Before it is sampled, it is left out of the step. After it, its result waits:
 * the scheduler plans the row again, which is then computed without being sampled.
 */
#include "engine/runner_local.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/request.h"
#include "engine/settler.h"
#include "graph/step.h"
#include "kv/cache.h"
#include "sched/drafts.h"

enum {
    WIDE_TOKENS = 64,     /* in a slice of a wide row, at least, where steps are that large */
    EDITS_PER_SEQ = 1024, /* logit edits in one step, for each sequence that it may have */
    UNDER_WAY_MAX = 2,    /* plans, and steps: the largest depth and one */
    LATE_WAIT_US = 2000,  /* for a late row, where a plan has no other rows */
};

/* A sequence, and how many of its tokens its sampler has accepted. */
struct local_seq {
    struct runner_seq info; /* sampler NULL: not begun, or ended */
    uint32_t known;
    int32_t last;                      /* the token that was sampled last, of those in `known` */
    uint32_t late_pos;                 /* of `late`; 0: there is none */
    struct sample_result late;         /* was sampled, and its grammar has not followed it yet */
    int32_t forced[SAMPLE_FORCED_MAX]; /* of the last result */
    uint32_t slot; /* of the device: where the token is that was sampled for it last */
};

/* The row of the plan and the position that an output belongs to. is_draft: the row's token there
 * is a draft; the output before it is of the same row. `assumed`: of the first output of a row with
 * drafts that are sampled with penalties while the row's first token is pending: what that token
 * was taken for; -1: it was known, or it makes no difference. */
struct output_of {
    uint32_t row, pos;
    bool is_draft;
    int32_t assumed;
};

/* A plan that was submitted and not collected. */
struct local_plan {
    const struct plan *plan;    /* NULL: free */
    struct row_result *results; /* [sample_max] */
    bool *is_open;              /* [sample_max] what was sampled last may equal the next draft */
    uint32_t step_count;        /* submitted and not collected */
    int64_t elapsed_us;
    bool has_late;      /* a row of it is late */
    enum status status; /* not ST_OK: a step of it failed, for this reason */
    struct err err;
};

/* The tables of a device step, and the plan that it belongs to while it is under way. */
struct local_step {
    struct step *step;
    struct output_of *outputs; /* [output_max] */
    struct local_plan *plan;   /* NULL: free */
};

struct local {
    struct loaded_model *loaded;
    const struct kv_cache *kv_cache;
    struct runner_local_options options;
    uint32_t output_max, edits_max;
    struct kv_memory kv;
    struct pass pass;
    struct local_seq *seqs; /* [seq_max] */
    struct settler *settler;

    struct local_plan plans[UNDER_WAY_MAX]; /* the oldest is plans[first_plan] */
    struct local_step steps[UNDER_WAY_MAX]; /* the oldest is steps[first_step] */
    uint32_t under_way_max;                 /* of both arrays, how much is used */
    uint32_t first_plan, plan_count, first_step, step_count;
};

static void local_begin(void *self, seq_idx seq, const struct runner_seq *info) {
    struct local *l = self;
    CHECK(seq < l->options.seq_max);
    CHECK(!l->seqs[seq].info.sampler);
    CHECK(info->sampler);
    CHECK(sampler_edits_max(info->sampler) <= l->edits_max);
    l->seqs[seq] = (struct local_seq){.info = *info, .known = info->prompt_tokens, .slot = seq};
}

static void local_end(void *self, seq_idx seq) {
    struct local *l = self;
    CHECK(seq < l->options.seq_max);
    const struct runner_seq *info = &l->seqs[seq].info;
    if (info->has_grammar && info->settling) settler_drop(l->settler, info->settling);
    l->seqs[seq] = (struct local_seq){.known = 0};
}

/* The work of its grammar is done; else it is now being done by another thread. */
static bool is_settled(struct local *l, struct local_seq *seq) {
    const struct runner_seq *info = &seq->info;
    if (!info->has_grammar) return true;
    /* The tap of a row must not be called twice. */
    if (!info->settling || info->on_logits) return sampler_settle(info->sampler, false);
    if (!settler_is_idle(info->settling)) return false;
    if (sampler_settle(info->sampler, true)) return true;
    settler_push(l->settler, info->settling);
    return false;
}

/* ---- results ---- */

/* Text that the grammar forces follows the token that was sampled. */
static void take_forced(struct local_seq *seq, struct row_result *out) {
    struct sampler *sampler = seq->info.sampler;
    out->forced = seq->forced;
    out->forced_count = sampler_forced(sampler, seq->forced);
    for (uint32_t i = 0; i < out->forced_count; i++) sampler_accept(sampler, seq->forced[i]);
    seq->known += out->forced_count;
}

/* The token of position `pos`, which the sampler has accepted. */
static void give_token(struct local_seq *seq, uint32_t pos, const struct sample_result *sample,
                       struct row_result *out) {
    const struct runner_seq *info = &seq->info;
    uint32_t answered = pos - info->prompt_tokens;
    seq->known = pos + 1;
    seq->last = sample->chosen.token;
    if (info->logprobs) info->logprobs[answered] = sample->chosen;
    if (info->tops) info->tops[answered] = *sample;
    out->token = sample->chosen.token;
    out->is_end = runner_is_among(info->ends, info->end_count, out->token);
    if (!info->has_grammar || out->is_end) return;
    if (info->forces_text) take_forced(seq, out);
    out->is_end = sampler_is_over(info->sampler);
}

/* A token was sampled for position `pos`. One that ends the sequence needs no grammar any more. */
static void take_token(struct local *l, struct local_seq *seq, uint32_t pos,
                       const struct sample_result *sample, struct row_result *out) {
    const struct runner_seq *info = &seq->info;
    int32_t token = sample->chosen.token;
    sampler_accept(info->sampler, token);
    if (runner_is_among(info->ends, info->end_count, token) || is_settled(l, seq)) {
        give_token(seq, pos, sample, out);
        return;
    }
    seq->late = *sample;
    seq->late_pos = pos;
    out->is_late = true;
}

/* The logits of position p give the log-probability of the token at p + 1. */
static void take_score(struct runner_seq *seq, uint32_t pos, const struct sample_result *sample) {
    seq->prompt_logprobs[pos] = sample->chosen;
    if (seq->prompt_tops) seq->prompt_tops[pos] = *sample;
}

/* A token was sampled at the place of a draft, behind the token that the row gave last. If that one
 * is the draft, the sequence goes on with what was sampled here. A grammar that is not settled ends
 * the row before it: the place is sampled again in a later step. */
static void take_draft(struct local *l, const struct local_step *s, uint32_t i,
                       const struct row_output *output) {
    const struct output_of *of = &s->outputs[i];
    struct local_seq *seq = &l->seqs[s->plan->plan->rows[of->row].seq];
    struct row_result *out = &s->plan->results[of->row];
    bool *is_open = &s->plan->is_open[of->row];
    const struct runner_seq *info = &seq->info;
    out->checked++;
    if (!*is_open || s->step->token[s->step->output_row[i]] != out->token || output->failed) {
        *is_open = false;
        return;
    }
    int32_t token = output->sample.chosen.token;
    sampler_accept(info->sampler, token);
    if (info->has_grammar && !runner_is_among(info->ends, info->end_count, token) &&
        !sampler_settle(info->sampler, true)) {
        sampler_rollback(info->sampler, 1);
        *is_open = false;
        return;
    }
    out->accepted++;
    give_token(seq, of->pos + 1, &output->sample, out);
    *is_open = !out->is_end;
}

/* The row was planned behind drafts of which one was refused meanwhile: it does not count. */
static bool is_behind_refused(const struct local_seq *seq, const struct plan_row *row) {
    return row->samples && seq->known < row->first + row->count - row->draft_count;
}

static void take_output(struct local *l, const struct local_step *s, uint32_t i,
                        const struct device_result *result) {
    const struct row_output *output = &result->outputs[i];
    const struct output_of *of = &s->outputs[i];
    const struct plan_row *row = &s->plan->plan->rows[of->row];
    struct local_seq *seq = &l->seqs[row->seq];
    struct row_result *out = &s->plan->results[of->row];
    if (!seq->info.sampler) return; /* the sequence has ended meanwhile */
    if (is_behind_refused(seq, row)) return;
    if (of->is_draft) {
        take_draft(l, s, i, output);
        return;
    }
    if (s->step->samplings[i].kind == SAMPLING_HAND_OVER)
        seq->info.on_logits(seq->info.logits_ctx, of->pos, result->rows + i * result->row_floats);
    else if (output->failed)
        out->failed = true;
    else if (s->step->samplings[i].kind == SAMPLING_DRAW) {
        /* The plan before may not be applied yet: the text still has the guess. */
        const bool is_assumed = of->assumed < 0 || of->assumed == seq->last;
        take_token(l, seq, of->pos + 1, &output->sample, out);
        s->plan->is_open[of->row] = is_assumed && !out->is_late && !out->is_end;
    } else
        take_score(&seq->info, of->pos + 1, &output->sample);
}

/* Wait for the oldest step, and give its tables back. */
static void collect_step(struct local *l) {
    CHECK(l->step_count > 0);
    struct local_step *s = &l->steps[l->first_step];
    struct local_plan *p = s->plan;
    CHECK(p);
    struct device_result result;
    struct err err = {{0}};
    enum status st = pass_collect(l->loaded, &l->pass, &result, &err);
    if (st == ST_OK) {
        CHECK(result.output_count == s->step->output_count);
        p->elapsed_us += result.elapsed_us;
        for (uint32_t i = 0; i < result.output_count; i++) take_output(l, s, i, &result);
    } else if (p->status == ST_OK) {
        p->status = st;
        p->err = err;
    }
    p->step_count--;
    s->plan = NULL;
    l->first_step = (l->first_step + 1) % l->under_way_max;
    l->step_count--;
}

/* ---- filling a step ---- */

static struct local_step *begin_step(struct local *l, struct local_plan *p) {
    if (l->step_count == l->under_way_max) collect_step(l);
    struct local_step *s = &l->steps[(l->first_step + l->step_count) % l->under_way_max];
    CHECK(!s->plan);
    step_clear(s->step);
    s->plan = p;
    return s;
}

static void submit_step(struct local *l, struct local_step *s) {
    struct local_plan *p = s->plan;
    struct device *dev = &l->loaded->device;
    struct err err = {{0}};
    loaded_model_lock(l->loaded);
    enum status st = dev->submit(dev->self, l->pass.program, s->step, &err);
    loaded_model_unlock(l->loaded);
    if (st == ST_OK) {
        l->step_count++;
        p->step_count++;
        return;
    }
    s->plan = NULL;
    p->status = st;
    p->err = err;
}

/* Tokens [first, first + count) of a plan's row join the step. */
static void fill_row(const struct local *l, const struct plan_row *row, uint32_t first,
                     uint32_t count, struct step *step) {
    uint32_t index = step->seq_count++;
    uint32_t blocks = (first + count - 1) / l->options.kv.block_tokens + 1;
    step->seqs[index] = (struct step_seq){.first_row = step->row_count, .row_count = count};
    for (uint32_t g = 0; g < l->kv.group_count; g++)
        memcpy(step_blocks(step, index, g), kv_seq_table(l->kv_cache, row->kv, g),
               blocks * sizeof(uint32_t));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t r = step->row_count++;
        bool is_sampled = row->takes_sampled && first + i == row->first;
        step->token[r] =
            is_sampled ? step_token_at(l->seqs[row->seq].slot) : row->tokens[first + i];
        step->pos[r] = (int32_t)(first + i);
        step->seq[r] = index;
    }
}

/* A row of the step is an output; `sampling` says what to do with it. */
static void add_output(struct local_step *s, uint32_t step_row, struct output_of of,
                       const struct sampling *sampling) {
    uint32_t i = s->step->output_count++;
    s->step->output_row[i] = step_row;
    s->step->samplings[i] = *sampling;
    s->outputs[i] = of;
}

/* The row's own token is pending if the step that samples it has not been collected. It may have
 * been since the plan was made: a step that needed its tables. Behind a row with drafts that is
 * under way, the row counts only if they are accepted: the sampler is asked as if they were. */
static enum status describe_draw(struct local *l, const struct plan_row *row, struct step *step,
                                 struct sampling *out) {
    const struct local_seq *seq = &l->seqs[row->seq];
    struct sampler *sampler = seq->info.sampler;
    uint32_t pos = row->first + row->count, ahead = 0;
    bool is_pending = row->takes_sampled && seq->known < pos;
    while (seq->known + ahead < pos - is_pending)
        sampler_accept(sampler, row->tokens[seq->known + ahead++]);
    enum status st = sampler_describe(sampler, pos, is_pending, &step->tables, out);
    sampler_rollback(sampler, ahead);
    if (st != ST_OK) return st;
    out->slot = out->pending_slot = seq->slot;
    return ST_OK;
}

static bool is_wide(const struct local *l, const struct plan_row *row) {
    const struct runner_seq *seq = &l->seqs[row->seq].info;
    return seq->on_logits || (seq->prompt_logprobs && row->first + 1 < seq->prompt_tokens);
}

/* Whether the row is to be sampled: not if it was, and its result has waited. */
static bool is_drawn(struct local *l, struct local_plan *p, uint32_t i) {
    const struct plan_row *row = &p->plan->rows[i];
    struct local_seq *seq = &l->seqs[row->seq];
    if (!row->samples) return false;
    if (seq->late_pos == 0) return true;
    CHECK(seq->late_pos == row->first + row->count - row->draft_count);
    give_token(seq, seq->late_pos, &seq->late, &p->results[i]);
    seq->late_pos = 0;
    return false;
}

/* Describe what is sampled behind tokens[0 .. end) of a row with drafts. The sampler accepts those
 * that it does not know yet, and `ahead` counts them. ST_FULL: there is no room for the edits, or
 * the grammar needs more time. */
static enum status describe_place(const struct local_seq *seq, const struct plan_row *row,
                                  uint32_t end, uint32_t *ahead, struct step *step,
                                  struct sampling *out) {
    struct sampler *sampler = seq->info.sampler;
    bool is_pending = row->takes_sampled && end == row->first + 1 && seq->known < end;
    while (seq->known + *ahead < end - is_pending)
        sampler_accept(sampler, row->tokens[seq->known + (*ahead)++]);
    if (seq->info.has_grammar && !sampler_settle(sampler, true)) return ST_FULL;
    return sampler_describe(sampler, end, is_pending, &step->tables, out);
}

/* A sequence has two slots: a row with drafts writes to the one that it does not read from, because
 * its outputs are sampled in any order. */
static uint32_t other_slot(const struct local *l, const struct local_seq *seq) {
    return seq->slot < l->options.seq_max ? seq->slot + l->options.seq_max
                                          : seq->slot - l->options.seq_max;
}

/* Penalties of what is sampled at a draft count the tokens before it. If the row's first token is
 * pending, they count the guess of it that stands in the text; -1: nothing depends on it. */
static int32_t assumed_token(const struct local_seq *seq, const struct plan_row *row) {
    bool is_pending = row->takes_sampled && seq->known <= row->first;
    if (!is_pending || sampler_edits_max(seq->info.sampler) == 0) return -1;
    return row->tokens[row->first];
}

/* A row with drafts joins the step, with as many of them as can be described. Each output has a
 * slot of its own: only the last one's token can be the input of a row that was planned ahead. */
static enum status add_drafts(struct local *l, struct local_step *s, uint32_t i) {
    const struct plan_row *row = &s->plan->plan->rows[i];
    struct local_seq *seq = &l->seqs[row->seq];
    struct sampling places[DRAFT_MAX + 1];
    uint32_t count = 0, ahead = 0, first = s->step->row_count, last = other_slot(l, seq);
    uint32_t room = l->output_max - s->step->output_count;
    const int32_t assumed = assumed_token(seq, row);
    uint32_t most = row->count < room ? row->count : room;
    while (count < most && describe_place(seq, row, row->first + count + 1, &ahead, s->step,
                                          &places[count]) == ST_OK)
        count++;
    sampler_rollback(seq->info.sampler, ahead);
    if (count == 0) return ST_FULL;
    fill_row(l, row, row->first, count, s->step);
    for (uint32_t n = 0; n < count; n++) {
        bool is_last = n + 1 == row->count;
        places[n].slot = is_last ? last : 2 * l->options.seq_max + s->step->output_count;
        places[n].pending_slot = seq->slot;
        add_output(s, first + n, (struct output_of){i, row->first + n, n > 0, n > 0 ? -1 : assumed},
                   &places[n]);
    }
    if (count == row->count) seq->slot = last;
    return ST_OK;
}

/* A row of the plan joins the step; ST_FULL: there is no room for its logit edits. */
static enum status add_row(struct local *l, struct local_step *s, uint32_t i) {
    const struct plan_row *row = &s->plan->plan->rows[i];
    uint32_t count = row->count - row->draft_count;
    struct sampling sampling;
    const bool draws = is_drawn(l, s->plan, i);
    if (draws && row->draft_count > 0) return add_drafts(l, s, i);
    if (draws) TRY(describe_draw(l, row, s->step, &sampling));
    fill_row(l, row, row->first, count, s->step);
    struct output_of of = {i, row->first + count - 1, false, -1};
    if (draws) add_output(s, s->step->row_count - 1, of, &sampling);
    return ST_OK;
}

/* A row that samples is left out until its grammar is settled. */
static bool is_late(struct local *l, struct local_plan *p, uint32_t i) {
    const struct plan_row *row = &p->plan->rows[i];
    if (!row->samples || is_settled(l, &l->seqs[row->seq])) return false;
    p->results[i].is_late = true;
    p->has_late = true;
    return true;
}

/* The plan's moves and all its rows but the wide ones. */
static void submit_rows(struct local *l, struct local_plan *p) {
    const struct plan *plan = p->plan;
    struct local_step *s = begin_step(l, p);
    s->step->moves = plan->moves.list;
    s->step->move_count = plan->moves.count;
    for (uint32_t i = 0; i < plan->row_count && p->status == ST_OK; i++) {
        if (is_wide(l, &plan->rows[i]) || is_late(l, p, i)) continue;
        if (add_row(l, s, i) == ST_OK) continue;
        submit_step(l, s);
        if (p->status != ST_OK) return;
        s = begin_step(l, p);
        enum status st = add_row(l, s, i);
        CHECK(st == ST_OK); /* the edits of one row fit an empty step */
    }
    if (s->step->row_count > 0 || s->step->move_count > 0)
        submit_step(l, s);
    else
        s->plan = NULL;
}

/* Tokens [first, first + count) of a wide row as a step of their own. */
static void submit_slice(struct local *l, struct local_plan *p, uint32_t i, uint32_t first,
                         uint32_t count) {
    const struct plan_row *row = &p->plan->rows[i];
    const struct runner_seq *seq = &l->seqs[row->seq].info;
    struct local_step *s = begin_step(l, p);
    fill_row(l, row, first, count, s->step);
    for (uint32_t r = 0; r < count; r++) {
        uint32_t pos = first + r;
        struct sampling sampling = {.kind = SAMPLING_HAND_OVER};
        bool is_scored = seq->prompt_logprobs && pos + 1 < seq->prompt_tokens;
        if (is_scored) sampler_describe_score(seq->sampler, row->tokens[pos + 1], &sampling);
        if (is_scored || seq->on_logits)
            add_output(s, r, (struct output_of){i, pos, false, -1}, &sampling);
    }
    uint32_t end = first + count;
    if (end == row->first + row->count && is_drawn(l, p, i)) {
        struct sampling draw;
        enum status st = describe_draw(l, row, s->step, &draw);
        CHECK(st == ST_OK); /* the step is empty */
        add_output(s, count - 1, (struct output_of){i, end - 1, false, -1}, &draw);
    }
    submit_step(l, s);
}

static void submit_wide(struct local *l, struct local_plan *p, uint32_t i) {
    const struct plan_row *row = &p->plan->rows[i];
    uint32_t end = row->first + row->count;
    /* A tapped row that samples has two outputs at its last token. */
    uint32_t most = l->seqs[row->seq].info.on_logits ? l->output_max - 1 : l->output_max;
    for (uint32_t first = row->first; first < end && p->status == ST_OK && !p->results[i].failed;) {
        uint32_t count = end - first < most ? end - first : most;
        submit_slice(l, p, i, first, count);
        first += count;
    }
}

/* ---- plans ---- */

static enum status local_submit(void *self, const struct plan *plan, struct err *err) {
    struct local *l = self;
    CHECK(plan->token_count <= l->options.row_max);
    CHECK(plan->row_count <= l->options.sample_max);
    CHECK(l->plan_count < l->under_way_max);
    struct local_plan *p = &l->plans[(l->first_plan + l->plan_count) % l->under_way_max];
    *p = (struct local_plan){.plan = plan, .results = p->results, .is_open = p->is_open};
    memset(p->results, 0, plan->row_count * sizeof(p->results[0]));
    memset(p->is_open, 0, plan->row_count * sizeof(p->is_open[0]));
    submit_rows(l, p);
    for (uint32_t i = 0; i < plan->row_count && p->status == ST_OK; i++)
        if (is_wide(l, &plan->rows[i]) && !is_late(l, p, i)) submit_wide(l, p, i);
    if (p->status != ST_OK) {
        while (p->step_count > 0) collect_step(l);
        *err = p->err;
        return p->status;
    }
    l->plan_count++;
    return ST_OK;
}

static enum status local_collect(void *self, struct step_result *result, struct err *err) {
    struct local *l = self;
    CHECK(l->plan_count > 0);
    struct local_plan *p = &l->plans[l->first_plan];
    if (p->has_late && p->step_count == 0) settler_wait(l->settler, LATE_WAIT_US);
    while (p->step_count > 0) collect_step(l);
    l->first_plan = (l->first_plan + 1) % l->under_way_max;
    l->plan_count--;
    *result = (struct step_result){
        .rows = p->results,
        .row_count = p->plan->row_count,
        .elapsed_us = p->has_late ? 0 : p->elapsed_us /* of fewer rows than planned */};
    if (p->status != ST_OK) *err = p->err;
    return p->status;
}

/* ---- open and close ---- */

static void local_close(void *self) {
    struct local *l = self;
    while (l->step_count > 0) collect_step(l);
    settler_destroy(l->settler);
    pass_destroy(l->loaded, &l->pass);
    kv_memory_destroy(l->loaded, &l->kv);
    for (uint32_t i = 0; i < UNDER_WAY_MAX; i++) {
        step_destroy(l->steps[i].step, &l->loaded->device);
        mem_free(l->steps[i].outputs);
        mem_free(l->plans[i].results);
        mem_free(l->plans[i].is_open);
    }
    mem_free(l->seqs);
    mem_free(l);
}

/* The most logit edits of one sequence: one for every token that it may hold, for every bias, and
 * for every end token of the model and stop token of the request. */
static uint32_t edits_of_one(const struct local *l) {
    uint32_t vocab = l->loaded->model->hp.vocab, tokens = l->options.tokens_max + 1;
    uint32_t ends = vocab + STOP_TOKENS_MAX;
    return (tokens < vocab ? tokens : vocab) + LOGIT_BIAS_MAX + ends;
}

static struct step_sizes sizes_of(const struct local *l) {
    const struct runner_local_options *o = &l->options;
    uint32_t one = edits_of_one(l), all = o->sample_max * EDITS_PER_SEQ;
    uint32_t mask_words = (l->loaded->model->hp.vocab + 63) / 64;
    return (struct step_sizes){
        .rows_max = o->row_max,
        .outputs_max = l->output_max,
        .seqs_max = o->sample_max,
        .group_count = l->kv.group_count,
        .blocks_max = (o->tokens_max + o->kv.block_tokens - 1) / o->kv.block_tokens,
        .edits_max = one > all ? one : all,
        .deny_words_max = (o->sample_max + o->draft_rows) * mask_words,
    };
}

static enum status make_tables(struct local *l, const struct step_sizes *sizes, struct err *err) {
    l->seqs = mem_zalloc_array(l->options.seq_max, sizeof(l->seqs[0]));
    bool has_room = l->seqs != NULL;
    for (uint32_t i = 0; i < l->under_way_max; i++) {
        TRY(step_create(&l->steps[i].step, &l->loaded->device, sizes, err));
        l->steps[i].outputs = mem_zalloc_array(l->output_max, sizeof(struct output_of));
        l->plans[i].results = mem_zalloc_array(l->options.sample_max, sizeof(struct row_result));
        l->plans[i].is_open = mem_zalloc_array(l->options.sample_max, sizeof(bool));
        has_room = has_room && l->steps[i].outputs && l->plans[i].results && l->plans[i].is_open;
    }
    if (has_room) return ST_OK;
    return err_set(err, ST_NOMEM, "out of memory for the tables of %u rows", l->options.row_max);
}

static enum status open_parts(struct local *l, struct err *err) {
    const struct runner_local_options *o = &l->options;
    l->output_max = o->row_max < WIDE_TOKENS ? o->row_max : WIDE_TOKENS;
    if (l->output_max < o->sample_max + o->draft_rows)
        l->output_max = o->sample_max + o->draft_rows;
    uint32_t tapped = (o->logit_rows ? o->logit_rows : 1) + 1; /* see submit_wide */
    if (l->output_max < tapped) l->output_max = tapped;
    TRY(kv_memory_create(l->loaded, &o->kv, &l->kv, err));
    struct step_sizes sizes = sizes_of(l);
    l->edits_max = sizes.edits_max;
    struct pass_options pass = {.goal = GOAL_LOGITS,
                                .sizes = sizes,
                                .kv = &l->kv,
                                .slot_count = 2 * o->seq_max + l->output_max};
    TRY(pass_create(l->loaded, &pass, &l->pass, err));
    return make_tables(l, &sizes, err);
}

static enum status create(struct loaded_model *loaded, const struct kv_cache *kv,
                          const struct runner_local_options *options, struct local **out,
                          struct err *err) {
    struct local *l = mem_zalloc(sizeof(*l));
    if (!l) return err_set(err, ST_NOMEM, "out of memory for a runner");
    l->loaded = loaded;
    l->kv_cache = kv;
    l->options = *options;
    l->under_way_max = loaded->device.depth + 1;
    CHECK(l->under_way_max <= UNDER_WAY_MAX);
    enum status st = settler_create(&l->settler);
    if (st != ST_OK)
        err_set(err, st, "out of memory for a runner");
    else
        st = open_parts(l, err);
    if (st == ST_OK)
        *out = l;
    else
        local_close(l);
    return st;
}

enum status runner_local_open(struct loaded_model *loaded, const struct kv_cache *kv,
                              const struct runner_local_options *options, struct runner *out,
                              struct err *err) {
    uint32_t tile = loaded->device.kv_block_tokens;
    if (options->kv.block_tokens % tile != 0 || options->kv.block_tokens == 0)
        return err_set(err, ST_BAD, "block_size is %u, expected a multiple of %u (device %s)",
                       options->kv.block_tokens, tile, loaded->device.name);
    struct local *l = NULL;
    TRY(create(loaded, kv, options, &l, err));
    *out = (struct runner){.name = "local",
                           .depth = loaded->device.depth,
                           .begin = local_begin,
                           .end = local_end,
                           .submit = local_submit,
                           .collect = local_collect,
                           .close = local_close,
                           .self = l};
    return ST_OK;
}

size_t runner_local_scratch_bytes(const struct runner *runner) {
    CHECK(runner->close == local_close);
    return tape_slab_bytes(((const struct local *)runner->self)->pass.tape);
}

/* A device copies a step's tables into memory of its own size when it first sees one. */
enum status runner_local_measure(struct loaded_model *loaded,
                                 const struct runner_local_options *options, uint64_t *bytes,
                                 struct err *err) {
    const struct device *dev = &loaded->device;
    struct runner_local_options o = *options;
    struct local *l = NULL;
    o.kv.spill_slots = 0;
    for (uint32_t g = 0; g < loaded->model->kv_group_count; g++) o.kv.block_counts[g] = 1;
    uint64_t before = dev->memory(dev->self).free_bytes;
    TRY(create(loaded, NULL, &o, &l, err));
    uint64_t after = dev->memory(dev->self).free_bytes;
    *bytes = (before > after ? before - after : 0) + l->steps[0].step->memory_bytes;
    local_close(l);
    return ST_OK;
}
