/* engine/draft_model.c - see engine/draft_model.h for the contract.
 *
 * A call of `propose`: find the lanes (draft_lanes_find), share out the rows of the first step
 * (share_rows), run it, then run steps of one row for each sequence until all have what they asked
 * for.
 */
#include "engine/draft_model.h"

#include "base/check.h"
#include "base/mem.h"
#include "engine/draft_checks.h"
#include "engine/draft_lanes.h"
#include "graph/step.h"
#include "sched/cost.h"
#include "sched/cost_rows.h"

enum { SHORT_ROWS = 8 };                   /* of a text: they are computed at once */
static const double CATCH_UP_US = 20000;   /* that a call may take longer for long texts */
static const double ATTENDED_RATE = 0.125; /* of the mean of attended tokens */

/* A sequence in a call. */
struct draft_job {
    struct draft_ask *ask;
    struct draft_lane *lane;
    uint32_t most; /* drafts that it may have */
    uint32_t rows; /* in the step that is being made; 0: none */
};

struct drafting {
    struct loaded_model *target;
    bool shares_threads; /* with the target's device */
    struct loaded_model loaded;
    struct kv_memory kv;
    struct pass pass;
    struct step *step;
    uint32_t rows_max, block_tokens, lane_blocks;
    struct draft_lanes lanes;
    struct draft_job *jobs; /* [lanes.count] */
    struct cost_model cost;
    struct cost_rows cost_rows;
    double attended; /* by a row, on average */
    struct draft_model_stats stats;
};

/* ---- one step ---- */

/* Tokens [first, first + count) of a sequence join the step. */
static void fill_seq(struct drafting *d, uint32_t lane, const int32_t *tokens, uint32_t first,
                     uint32_t count) {
    struct step *step = d->step;
    uint32_t index = step->seq_count++;
    step->seqs[index] = (struct step_seq){.first_row = step->row_count, .row_count = count};
    uint32_t blocks = (first + count - 1) / d->block_tokens + 1;
    for (uint32_t g = 0; g < d->kv.group_count; g++)
        for (uint32_t b = 0; b < blocks; b++)
            step_blocks(step, index, g)[b] = lane * d->lane_blocks + b;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t r = step->row_count++;
        step->token[r] = tokens[i];
        step->pos[r] = (int32_t)(first + i);
        step->seq[r] = index;
    }
}

/* The token behind the last row is sampled. */
static void add_output(struct drafting *d, const struct sampling *draw, uint32_t position,
                       uint32_t slot) {
    uint32_t i = d->step->output_count++;
    d->step->output_row[i] = d->step->row_count - 1;
    d->step->samplings[i] = *draw;
    d->step->samplings[i].position = position;
    d->step->samplings[i].slot = d->step->samplings[i].pending_slot = slot;
}

static void learn(struct drafting *d, uint64_t attended, double us) {
    uint32_t rows = d->step->row_count;
    cost_rows_observe(&d->cost_rows, &d->cost, rows, attended, us);
    cost_observe(&d->cost, rows, attended, us);
    d->attended += ATTENDED_RATE * ((double)attended / rows - d->attended);
    d->stats.steps++;
    d->stats.rows += rows;
}

/* Run the step. The target's threads compute: nobody else may use them meanwhile. */
static enum status run_step(struct drafting *d, struct device_result *out, struct err *err) {
    uint64_t attended = 0;
    for (uint32_t r = 0; r < d->step->row_count; r++) attended += (uint64_t)d->step->pos[r] + 1;
    if (d->shares_threads) loaded_model_lock(d->target);
    enum status st = pass_run(&d->loaded, &d->pass, d->step, out, err);
    if (d->shares_threads) loaded_model_unlock(d->target);
    if (st == ST_OK) learn(d, attended, (double)out->elapsed_us);
    return st;
}

/* ---- a call ---- */

/* The asks that have a lane become jobs. */
static uint32_t make_jobs(struct drafting *d, struct draft_ask *const *asks, uint32_t count) {
    uint32_t made = 0;
    draft_lanes_next_call(&d->lanes);
    for (uint32_t i = 0; i < count; i++) {
        struct draft_ask *ask = asks[i];
        struct draft_lane *lane = draft_lanes_find(&d->lanes, ask);
        if (!lane) continue;
        uint32_t room = d->lanes.tokens_max - ask->count;
        d->jobs[made++] =
            (struct draft_job){.ask = ask, .lane = lane, .most = ask->max < room ? ask->max : room};
    }
    return made;
}

/* Tokens of long texts in this call. */
static uint32_t catch_up_rows(const struct drafting *d) {
    double row_us = cost_learned(&d->cost).per_token_us;
    double rows = CATCH_UP_US / (row_us > 0 ? row_us : 1);
    if (rows < DRAFT_CATCH_UP_MIN) return DRAFT_CATCH_UP_MIN;
    return rows < d->rows_max ? (uint32_t)rows : d->rows_max;
}

/* Who has how many rows in the first step: sequences that miss a few tokens first, then the long
 * texts, in the order of the asks, so that one of them after the other is caught up. */
static void share_rows(struct drafting *d, uint32_t job_count) {
    uint32_t left = d->rows_max, catch_up = catch_up_rows(d);
    for (uint32_t i = 0; i < job_count; i++) {
        struct draft_job *job = &d->jobs[i];
        uint32_t missing = job->ask->count - job->lane->computed;
        job->rows = missing <= SHORT_ROWS && missing <= left ? missing : 0;
        left -= job->rows;
    }
    if (catch_up > left) catch_up = left;
    for (uint32_t i = 0; i < job_count; i++) {
        struct draft_job *job = &d->jobs[i];
        uint32_t missing = job->ask->count - job->lane->computed;
        if (job->rows > 0) continue;
        job->rows = missing < catch_up ? missing : catch_up;
        catch_up -= job->rows;
        d->stats.caught_up += job->rows;
    }
}

/* Where the job's next row stands, and its token: of the text, or a draft. */
static const int32_t *next_tokens(const struct draft_job *job) {
    uint32_t at = job->lane->computed, text = job->ask->count;
    return at < text ? job->ask->tokens + at : job->ask->out + (at - text);
}

/* The rows of all jobs as one step; false: there are none. */
static bool fill_step(struct drafting *d, uint32_t job_count) {
    step_clear(d->step);
    for (uint32_t i = 0; i < job_count; i++) {
        const struct draft_job *job = &d->jobs[i];
        uint32_t end = job->lane->computed + job->rows;
        if (job->rows == 0) continue;
        fill_seq(d, job->lane->index, next_tokens(job), job->lane->computed, job->rows);
        if (end >= job->ask->count)
            add_output(d, draft_lanes_draw(&d->lanes, job->lane->seq), end, job->lane->index);
    }
    return d->step->row_count > 0;
}

/* What the step has sampled; and who is in the next one. */
static void take_step(struct drafting *d, uint32_t job_count, const struct device_result *result) {
    uint32_t output = 0;
    for (uint32_t i = 0; i < job_count; i++) {
        struct draft_job *job = &d->jobs[i];
        struct draft_ask *ask = job->ask;
        if (job->rows == 0) continue;
        draft_lane_extend(&d->lanes, job->lane, next_tokens(job), job->rows);
        job->rows = 0;
        if (job->lane->computed < ask->count) continue;
        const struct row_output *sampled = &result->outputs[output++];
        if (sampled->failed) continue;
        ask->out[ask->given++] = sampled->sample.chosen.token;
        job->rows = ask->given < job->most;
    }
    CHECK(output == result->output_count);
}

static void propose(void *self, struct draft_ask *const *asks, uint32_t count) {
    struct drafting *d = self;
    struct err err = {{0}};
    if (d->stats.has_failed) return;
    uint32_t job_count = make_jobs(d, asks, count);
    d->stats.calls++;
    share_rows(d, job_count);
    while (fill_step(d, job_count)) {
        struct device_result result;
        d->stats.has_failed = run_step(d, &result, &err) != ST_OK;
        if (d->stats.has_failed) return;
        take_step(d, job_count, &result);
    }
}

static double step_us(const struct drafting *d, uint32_t rows) {
    return cost_rows_predict_us(&d->cost_rows, &d->cost, rows, (uint64_t)(d->attended * rows));
}

/* In the first step a sequence has one row, or two if all its drafts were accepted before. */
static double cost_us(void *self, uint32_t seqs, uint32_t tokens) {
    const struct drafting *d = self;
    if (seqs > d->lanes.count) seqs = d->lanes.count;
    if (tokens == 0 || d->stats.has_failed) return 0;
    return (step_us(d, seqs) + step_us(d, 2 * seqs)) / 2 + (tokens - 1) * step_us(d, seqs);
}

static void begin(void *self, seq_idx seq, const struct sampling *draw) {
    draft_lanes_begin(&((struct drafting *)self)->lanes, seq, draw);
}

static void end(void *self, seq_idx seq) {
    draft_lanes_end(&((struct drafting *)self)->lanes, seq);
}

/* ---- open and close ---- */

static void close_model(void *self) {
    struct drafting *d = self;
    pass_destroy(&d->loaded, &d->pass);
    kv_memory_destroy(&d->loaded, &d->kv);
    step_destroy(d->step, &d->loaded.device);
    draft_lanes_deinit(&d->lanes);
    loaded_model_close(&d->loaded);
    mem_free(d->jobs);
    mem_free(d);
}

/* The first steps are slow (memory is touched, threads wake), so each size runs twice. */
static enum status measure(struct drafting *d, struct err *err) {
    static const uint32_t sizes[] = {1, 2, 4, 8, 16, 64};
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), ROUNDS = 2, MOST = 64 };
    const int32_t tokens[MOST] = {0};
    const struct sampling draw = {
        .kind = SAMPLING_DRAW, .top_p = 1, .typical_p = 1, .deny_first = SAMPLING_NONE};
    for (uint32_t i = 0; i < SIZES; i++) {
        if (sizes[i] > d->rows_max || sizes[i] > d->lanes.tokens_max) break;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            struct device_result result;
            if (round + 1 < ROUNDS) d->cost_rows.us[sizes[i]] = 0;
            step_clear(d->step);
            fill_seq(d, 0, tokens, 0, sizes[i]);
            add_output(d, &draw, sizes[i], 0);
            struct cost_rows before = d->cost_rows;
            TRY(run_step(d, &result, err));
            if (round + 1 < ROUNDS) d->cost_rows = before;
        }
    }
    d->stats.steps = d->stats.rows = 0;
    return ST_OK;
}

static enum status make_tables(struct drafting *d, const struct draft_model_options *o,
                               const struct draft_needs *needs, struct err *err) {
    const struct draft_lanes_options lanes = {.count = needs->lanes,
                                              .seq_max = o->seq_max,
                                              .tokens_max = needs->ctx_tokens,
                                              .vocab = d->loaded.model->hp.vocab};
    TRY(draft_lanes_init(&d->lanes, &lanes, err));
    d->jobs = mem_zalloc_array(needs->lanes, sizeof(d->jobs[0]));
    if (d->jobs) return ST_OK;
    return err_set(err, ST_NOMEM, "out of memory for %u drafted sequences", needs->lanes);
}

static enum status make_parts(struct drafting *d, const struct draft_model_options *o,
                              const struct draft_needs *needs, struct err *err) {
    d->block_tokens = o->block_tokens;
    d->lane_blocks = needs->lane_blocks;
    d->rows_max = DRAFT_STEP_ROWS < needs->ctx_tokens ? DRAFT_STEP_ROWS : needs->ctx_tokens;
    if (d->rows_max < SHORT_ROWS * needs->lanes) d->rows_max = SHORT_ROWS * needs->lanes;
    struct kv_memory_options kv = {.type = o->load.kv_type, .block_tokens = o->block_tokens};
    for (uint32_t g = 0; g < d->loaded.model->kv_group_count; g++)
        kv.block_counts[g] = needs->lanes * needs->lane_blocks;
    TRY(kv_memory_create(&d->loaded, &kv, &d->kv, err));
    const struct pass_options pass = {.goal = GOAL_LOGITS,
                                      .sizes = {.rows_max = d->rows_max,
                                                .outputs_max = needs->lanes,
                                                .seqs_max = needs->lanes,
                                                .group_count = d->kv.group_count,
                                                .blocks_max = needs->lane_blocks,
                                                .edits_max = 1,
                                                .deny_words_max = 1},
                                      .kv = &d->kv,
                                      .slot_count = needs->lanes};
    TRY(pass_create(&d->loaded, &pass, &d->pass, err));
    TRY(step_create(&d->step, &d->loaded.device, &pass.sizes, err));
    TRY(make_tables(d, o, needs, err));
    const struct cost_profile *start = cost_profile_find("this-cpu");
    CHECK(start);
    cost_init(&d->cost, start);
    return measure(d, err);
}

static enum status load(struct drafting *d, const char *path, const struct draft_model_options *o,
                        struct draft_needs *needs, struct err *err) {
    struct loaded_model_options load = o->load;
    TRY(draft_checks_run(path, d->target, o, needs, err));
    load.ctx_tokens = needs->ctx_tokens;
    load.beside = &d->target->device;
    load.threads = d->target->threads;
    load.tokens_only = true; /* its texts were compared already */
    TRY(loaded_model_open(&d->loaded, path, &load, err));
    d->shares_threads = d->loaded.device.threads > 0;
    return make_parts(d, o, needs, err);
}

enum status draft_model_open(const char *path, struct loaded_model *target,
                             const struct draft_model_options *options, struct draft_model *out,
                             struct draft_model_memory *memory, struct err *err) {
    struct draft_needs needs = {0};
    struct drafting *d = mem_zalloc(sizeof(*d));
    if (!d) return err_set(err, ST_NOMEM, "out of memory for a draft model");
    d->target = target;
    enum status st = load(d, path, options, &needs, err);
    if (st != ST_OK) {
        close_model(d);
        return err_prefix(err, st, "--speculate model");
    }
    *memory = (struct draft_model_memory){.weight_bytes = needs.weight_bytes,
                                          .kv_bytes = needs.lanes * needs.lane_bytes,
                                          .lanes = needs.lanes,
                                          .tokens_max = needs.ctx_tokens};
    *out = (struct draft_model){.begin = begin,
                                .end = end,
                                .propose = propose,
                                .cost_us = cost_us,
                                .close = close_model,
                                .self = d};
    return ST_OK;
}

void draft_model_verify(const struct draft_model *model) {
    const struct drafting *d = model->self;
    CHECK(model->propose == propose);
    draft_lanes_verify(&d->lanes);
    cost_rows_verify(&d->cost_rows);
}

struct draft_model_stats draft_model_stats(const struct draft_model *model) {
    const struct drafting *d = model->self;
    struct draft_model_stats stats = d->stats;
    stats.step_us = step_us(d, 1);
    return stats;
}
