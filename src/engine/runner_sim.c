/* engine/runner_sim.c - see engine/runner_sim.h for the contract.
 *
 * Entry points: sim_clock_init, sim_text_begin, sim_token, runner_sim_open.
 *
 * The rows of a step are computed at the same time, so the model of KV memory takes them in
 * three passes: which row writes which block (no other row may write or read it), what rows read,
 * then the writes.
 *
 * A flight is a plan from its submit to its collect. submit reads the tokens that the plan has and
 * copies its block tables; the rest happens when the flight runs. With depth 0 that is in submit.
 */
#include "engine/runner_sim.h"

#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/mem.h"
#include "sched/drafts.h"

static const uint64_t GARBAGE = 0x6761726261676521u; /* not the hash of any text */
enum { ROW_BITS = 16 };                              /* of a mark: the row; the rest: the step */
enum { FLIGHTS = RUNNER_DEPTH_MAX + 1 };

struct sim_seq {
    bool is_begun;
    struct runner_seq info; /* valid while it is begun */
    int32_t sampled;        /* the last token that was sampled for it */
    uint64_t sampled_step;  /* in this step */
    uint64_t failed_step;   /* the last step in which its row failed and left garbage */
    uint64_t refused_step;  /* the last step in which a draft of it was refused */
    uint64_t owner, seed;
    uint32_t text_tokens; /* of its tokens, how many `text` is the hash of */
    uint64_t text;
    uint64_t *texts; /* [tokens_max], after each token; only with a model of memory */
};

/* Memory of one group: what each token position holds. */
struct sim_memory {
    uint64_t *blocks;  /* [block_count][block_tokens] */
    uint64_t *slots;   /* [spill_slots][block_tokens] */
    uint64_t *writers; /* [block_count]: step << ROW_BITS | row of the last write */
    uint64_t *users; /* [block_count]: the same of the last submitted row that reads or writes it */
};

struct sim_flight {
    const struct plan *plan;
    uint64_t step; /* its number, from 1 on */
    struct sim_fault fault;
    bool has_run;
    bool is_ahead;         /* the plan before it was under way when it was submitted */
    bool is_behind_failed; /* and failed */
    int64_t elapsed_us, done_us;
    struct row_result *results; /* [row_max] */
    int32_t *drafts;            /* [row_max][DRAFT_MAX] */
    uint32_t *tables;           /* [row_max][group_count][blocks_max], with a model of memory */
};

struct sim {
    struct runner_sim_options options;
    struct sim_seq *seqs;
    struct sim_flight flights[FLIGHTS]; /* a ring: flight_count of them from flight_first on */
    uint32_t flight_first, flight_count;
    struct sim_memory memory[KV_CACHE_GROUPS_MAX];
    uint64_t *texts;
    int32_t *words; /* options.words */
    uint64_t steps, garbage_count;
    uint64_t failed_step; /* the last one that failed */
    int64_t busy_until_us;
    uint32_t begun, blocks_max;
};

/* ---- time ---- */

static int64_t sim_now_us(void *self) { return ((struct sim_clock *)self)->now_us; }

void sim_clock_init(struct sim_clock *c) {
    *c = (struct sim_clock){.clock = {.name = "sim", .now_us = sim_now_us, .self = c},
                            .now_us = 1000000};
}

void sim_clock_advance(struct sim_clock *c, int64_t us) {
    CHECK(us >= 0);
    c->now_us += us;
}

/* ---- text ---- */

/* The finalizer of splitmix64: every bit of the input reaches every bit of the output. */
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t sim_text_begin(uint64_t owner) { return mix(owner + 0x9e3779b97f4a7c15u); }

uint64_t sim_text_add(uint64_t text, int32_t token) {
    return mix(text + 0x9e3779b97f4a7c15u * ((uint64_t)(uint32_t)token + 1));
}

static uint64_t draw(const struct runner_sim_options *o, uint64_t seed, uint64_t text) {
    return mix(text ^ mix(o->key + mix(seed)));
}

int32_t sim_token(const struct runner_sim_options *o, uint64_t seed, uint64_t text) {
    uint64_t drawn = draw(o, seed, text);
    return o->words ? o->words[drawn % o->word_count] : (int32_t)(drawn % o->vocab);
}

bool sim_token_ends(const struct runner_sim_options *o, uint64_t seed, uint64_t text) {
    return o->end_one_in > 0 && (draw(o, seed, text) >> 32) % o->end_one_in == 0;
}

float sim_logprob(const struct runner_sim_options *o, uint64_t seed, uint64_t text) {
    return -(float)(draw(o, seed, text) >> 48) / 4096.0f;
}

/* `token` stands at position p of the prompt, after the text so far. */
static void score_prompt(const struct sim *s, const struct sim_seq *seq, int32_t token,
                         uint32_t p) {
    struct token_logprob one = {token, sim_logprob(&s->options, seq->seed, seq->text)};
    if (seq->info.prompt_logprobs) seq->info.prompt_logprobs[p] = one;
    if (seq->info.prompt_tops)
        seq->info.prompt_tops[p] =
            (struct sample_result){.chosen = one, .top_count = 1, .top = {one}};
}

static void read_token(struct sim_seq *seq, int32_t token) {
    seq->text = sim_text_add(seq->text, token);
    if (seq->texts) seq->texts[seq->text_tokens] = seq->text;
    seq->text_tokens++;
}

/* Read the row's tokens, as far as they are not known. One that the plan before samples is read
 * when the row runs, and so are drafts. */
static void read_text(struct sim *s, const struct sim_flight *f, uint32_t index) {
    const struct plan_row *row = &f->plan->rows[index];
    struct sim_seq *seq = &s->seqs[row->seq];
    uint32_t end = row->first + row->count - row->draft_count;
    CHECK(row->draft_count <= DRAFT_MAX);
    memcpy(f->drafts + (size_t)index * DRAFT_MAX, row->tokens + end,
           row->draft_count * sizeof(f->drafts[0]));
    if (row->takes_sampled) return;
    for (uint32_t p = seq->text_tokens; p < end; p++) {
        if (p > 0 && p < seq->info.prompt_tokens) score_prompt(s, seq, row->tokens[p], p);
        read_token(seq, row->tokens[p]);
    }
}

/* One token, behind the text so far. */
static void sample_token(struct sim *s, struct sim_seq *seq, struct row_result *out) {
    const struct runner_sim_options *o = &s->options;
    uint32_t pos = seq->text_tokens;
    out->token = seq->sampled = sim_token(o, seq->seed, seq->text);
    if (!seq->is_begun) return; /* what its request gave it is gone */
    CHECK(pos >= seq->info.prompt_tokens);
    out->is_end = runner_is_among(seq->info.ends, seq->info.end_count, out->token) ||
                  (!seq->info.ignore_end && sim_token_ends(o, seq->seed, seq->text));
    struct token_logprob chosen = {out->token, sim_logprob(o, seq->seed, seq->text)};
    uint32_t i = pos - seq->info.prompt_tokens;
    if (seq->info.logprobs) seq->info.logprobs[i] = chosen;
    if (seq->info.tops)
        seq->info.tops[i] =
            (struct sample_result){.chosen = chosen, .top_count = 1, .top = {chosen}};
}

/* The token behind the row's own, and those behind drafts as long as they are what was sampled. */
static void sample_row(struct sim *s, const struct sim_flight *f, uint32_t index) {
    const struct plan_row *row = &f->plan->rows[index];
    const int32_t *drafts = f->drafts + (size_t)index * DRAFT_MAX;
    struct sim_seq *seq = &s->seqs[row->seq];
    struct row_result *out = &f->results[index];
    /* A token follows the last one there is. */
    CHECK(row->first + row->count - row->draft_count == seq->text_tokens);
    seq->sampled_step = f->step;
    out->checked = row->draft_count;
    sample_token(s, seq, out);
    while (out->accepted < row->draft_count && !out->is_end &&
           out->token == drafts[out->accepted]) {
        read_token(seq, out->token);
        out->accepted++;
        sample_token(s, seq, out);
    }
    if (out->accepted < row->draft_count) seq->refused_step = f->step;
}

/* ---- memory ---- */

static void wrong(const struct sim *s, const struct plan_row *row, const char *what,
                  uint32_t position, uint32_t block) {
    struct err err = {0};
    err_set(&err, ST_BAD, "sequence %u, tokens %u to %u: %s at position %u, block %u", row->seq,
            row->first, row->first + row->count, what, position, block);
    CHECK(s->options.watch.on_wrong);
    s->options.watch.on_wrong(s->options.watch.ctx, err.text);
}

static uint64_t *block_at(const struct sim *s, uint32_t group, uint32_t block) {
    CHECK(block < s->options.block_count);
    return &s->memory[group].blocks[(size_t)block * s->options.block_tokens];
}

static uint64_t *slot_at(const struct sim *s, uint32_t group, uint32_t slot) {
    CHECK(slot < s->options.spill_slots);
    return &s->memory[group].slots[(size_t)slot * s->options.block_tokens];
}

static void fill_garbage(struct sim *s, uint64_t *to, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) to[i] = GARBAGE + s->garbage_count++;
}

/* A move that fails leaves garbage. */
static void do_move(struct sim *s, const struct kv_move *m, bool fails) {
    CHECK(m->group < s->options.group_count);
    uint64_t *to =
        m->kind == KV_MOVE_OUT ? slot_at(s, m->group, m->to) : block_at(s, m->group, m->to);
    const uint64_t *from =
        m->kind == KV_MOVE_IN ? slot_at(s, m->group, m->from) : block_at(s, m->group, m->from);
    if (fails)
        fill_garbage(s, to, s->options.block_tokens);
    else
        memcpy(to, from, s->options.block_tokens * sizeof(to[0]));
}

static uint32_t *table_of(const struct sim *s, const struct sim_flight *f, uint32_t row,
                          uint32_t group) {
    size_t place = (size_t)row * s->options.group_count + group;
    return &f->tables[place * s->blocks_max];
}

static uint64_t mark_of(const struct sim_flight *f, uint32_t row) {
    return f->step << ROW_BITS | row;
}

/* The first position that the row reads. */
static uint32_t reads_from(const struct sim *s, const struct plan_row *row, uint32_t group) {
    uint32_t window = s->options.windows[group];
    return window > 0 && row->first + 1 > window ? row->first + 1 - window : 0;
}

static void mark_writes(struct sim *s, const struct sim_flight *f, uint32_t index, uint32_t group) {
    const struct plan_row *row = &f->plan->rows[index];
    uint32_t size = s->options.block_tokens;
    const uint32_t *table = table_of(s, f, index, group);
    uint64_t *writers = s->memory[group].writers;
    for (uint32_t b = row->first / size; b <= (row->first + row->count - 1) / size; b++) {
        if (table[b] >= s->options.block_count) {
            wrong(s, row, "there is no block to write", b * size, table[b]);
            return;
        }
        if (writers[table[b]] >> ROW_BITS == f->step)
            wrong(s, row, "another row writes the block too", b * size, table[b]);
        writers[table[b]] = mark_of(f, index);
    }
}

/* Does [from, to) of one block hold the row's own text? */
static void check_block(struct sim *s, const struct sim_flight *f, uint32_t index, uint32_t group,
                        uint32_t from, uint32_t to) {
    const struct plan_row *row = &f->plan->rows[index];
    uint32_t size = s->options.block_tokens;
    uint32_t block = table_of(s, f, index, group)[from / size];
    if (block >= s->options.block_count) {
        wrong(s, row, "a block that it reads was given back", from, block);
        return;
    }
    uint64_t writer = s->memory[group].writers[block];
    if (writer >> ROW_BITS == f->step && writer != mark_of(f, index))
        wrong(s, row, "another row writes what it reads", from, block);
    const uint64_t *held = block_at(s, group, block) + from % size;
    const uint64_t *own = s->seqs[row->seq].texts + from;
    if (memcmp(held, own, (to - from) * sizeof(held[0])) != 0)
        wrong(s, row, "memory holds other text than its own", from, block);
}

static void check_reads(struct sim *s, const struct sim_flight *f, uint32_t index, uint32_t group) {
    const struct plan_row *row = &f->plan->rows[index];
    uint32_t size = s->options.block_tokens, p = reads_from(s, row, group);
    while (p < row->first) {
        uint32_t end = (p / size + 1) * size;
        if (end > row->first) end = row->first;
        check_block(s, f, index, group, p, end);
        p = end;
    }
}

static void write_row(struct sim *s, const struct sim_flight *f, uint32_t index, uint32_t group,
                      bool fails) {
    const struct plan_row *row = &f->plan->rows[index];
    uint32_t size = s->options.block_tokens;
    const uint32_t *table = table_of(s, f, index, group);
    for (uint32_t p = row->first; p < row->first + row->count; p++) {
        if (table[p / size] >= s->options.block_count) return; /* reported already */
        uint64_t *to = block_at(s, group, table[p / size]) + p % size;
        if (fails || p >= s->seqs[row->seq].text_tokens) /* a refused draft */
            fill_garbage(s, to, 1);
        else
            *to = s->seqs[row->seq].texts[p];
    }
}

/* The plan before has refused drafts that the row stands behind: its result is not used. */
static bool is_behind_refused(const struct sim *s, const struct sim_flight *f,
                              const struct plan_row *row) {
    const struct sim_seq *seq = &s->seqs[row->seq];
    return row->takes_sampled && f->is_ahead && seq->refused_step + 1 == f->step;
}

/* A plan that failed left garbage in memory, and so did a row that failed or had drafts refused.
 * The sequences in it end, are recomputed or go on before the drafts, but a plan that was submitted
 * before that still has rows of them. */
static bool may_read_garbage(const struct sim *s, const struct sim_flight *f, uint32_t index) {
    const struct sim_seq *seq = &s->seqs[f->plan->rows[index].seq];
    if (f->fault.submit_fails || f->is_behind_failed) return true;
    if (is_behind_refused(s, f, &f->plan->rows[index])) return true;
    return f->is_ahead && seq->failed_step + 1 == f->step;
}

static void run_memory(struct sim *s, const struct sim_flight *f) {
    const struct plan *plan = f->plan;
    uint32_t groups = s->options.group_count;
    for (uint32_t i = 0; i < plan->moves.count; i++)
        do_move(s, &plan->moves.list[i], f->fault.submit_fails);
    for (uint32_t i = 0; i < plan->row_count; i++)
        for (uint32_t g = 0; g < groups; g++) mark_writes(s, f, i, g);
    for (uint32_t i = 0; i < plan->row_count; i++)
        for (uint32_t g = 0; g < groups && !may_read_garbage(s, f, i); g++) check_reads(s, f, i, g);
    for (uint32_t i = 0; i < plan->row_count; i++) {
        bool fails = f->fault.submit_fails || (f->fault.row_fails && f->fault.failed_row == i);
        for (uint32_t g = 0; g < groups; g++) write_row(s, f, i, g, fails);
    }
}

/* ---- memory of several flights ---- */

static struct sim_flight *flight_at(struct sim *s, uint32_t place) {
    return &s->flights[(s->flight_first + place) % FLIGHTS];
}

static void copy_tables(struct sim *s, struct sim_flight *f) {
    uint32_t size = s->options.block_tokens;
    for (uint32_t i = 0; i < f->plan->row_count; i++) {
        const struct plan_row *row = &f->plan->rows[i];
        uint32_t blocks = (row->first + row->count + size - 1) / size;
        CHECK(blocks <= s->blocks_max);
        for (uint32_t g = 0; g < s->options.group_count; g++)
            memcpy(table_of(s, f, i, g), kv_seq_table(s->options.kv, row->kv, g),
                   blocks * sizeof(f->tables[0]));
    }
}

/* Is the block used by a row of another sequence in a plan that is still under way? */
static bool is_in_use(struct sim *s, uint32_t group, uint32_t block, seq_idx by) {
    if (block >= s->options.block_count) return false; /* reported when it is written */
    uint64_t mark = s->memory[group].users[block];
    for (uint32_t n = 0; n < s->flight_count; n++) {
        const struct sim_flight *f = flight_at(s, n);
        if (mark >> ROW_BITS != f->step) continue;
        return f->plan->rows[mark & ((1u << ROW_BITS) - 1)].seq != by;
    }
    return false;
}

static void check_unused(struct sim *s, const struct sim_flight *f, uint32_t index,
                         uint32_t group) {
    const struct plan_row *row = &f->plan->rows[index];
    uint32_t size = s->options.block_tokens;
    const uint32_t *table = table_of(s, f, index, group);
    for (uint32_t b = row->first / size; b <= (row->first + row->count - 1) / size; b++)
        if (is_in_use(s, group, table[b], row->seq))
            wrong(s, row, "the row writes a block that a plan under way uses", b * size, table[b]);
}

static void mark_uses(struct sim *s, const struct sim_flight *f, uint32_t index, uint32_t group) {
    const struct plan_row *row = &f->plan->rows[index];
    uint32_t size = s->options.block_tokens;
    const uint32_t *table = table_of(s, f, index, group);
    uint32_t b = reads_from(s, row, group) / size;
    for (; b <= (row->first + row->count - 1) / size; b++)
        if (table[b] < s->options.block_count) s->memory[group].users[table[b]] = mark_of(f, index);
}

/* What a plan may not do while another one is under way. */
static void check_ahead(struct sim *s, const struct sim_flight *f) {
    const struct sim_watch *watch = &s->options.watch;
    const struct plan *plan = f->plan;
    bool is_wrong = plan->preempted_count > 0;
    for (uint32_t i = 0; i < plan->moves.count; i++) {
        const struct kv_move *m = &plan->moves.list[i];
        is_wrong = is_wrong || m->kind == KV_MOVE_OUT || is_in_use(s, m->group, m->to, SEQ_NONE);
    }
    if (is_wrong)
        watch->on_wrong(
            watch->ctx,
            "an ahead plan preempts a sequence, or moves a block that a plan under way uses");
    for (uint32_t i = 0; i < plan->row_count; i++)
        for (uint32_t g = 0; g < s->options.group_count; g++) check_unused(s, f, i, g);
}

/* Called before the flight is one of those under way. */
static void submit_memory(struct sim *s, struct sim_flight *f) {
    copy_tables(s, f);
    if (s->options.depth == 0) return;
    if (f->is_ahead) check_ahead(s, f);
    for (uint32_t i = 0; i < f->plan->row_count; i++)
        for (uint32_t g = 0; g < s->options.group_count; g++) mark_uses(s, f, i, g);
}

/* What a row wrote for a sequence that has ended must not be read. */
static void spoil_dropped(struct sim *s, const struct sim_flight *f) {
    for (uint32_t i = 0; i < f->plan->row_count; i++)
        if (!s->seqs[f->plan->rows[i].seq].is_begun)
            for (uint32_t g = 0; g < s->options.group_count; g++) write_row(s, f, i, g, true);
}

/* ---- the step ---- */

/* A row of the sequence that had this index before must not be under way. */
static void check_index_is_free(struct sim *s, seq_idx i) {
    for (uint32_t n = 0; n < s->flight_count; n++) {
        const struct plan *plan = flight_at(s, n)->plan;
        for (uint32_t r = 0; r < plan->row_count; r++)
            if (plan->rows[r].seq == i)
                wrong(s, &plan->rows[r],
                      "the sequence's index was reused while a plan under way has a row of it", 0,
                      0);
    }
}

static void sim_begin(void *self, seq_idx i, const struct runner_seq *info) {
    struct sim *s = self;
    CHECK(i < s->options.seq_max);
    struct sim_seq *seq = &s->seqs[i];
    CHECK(!seq->is_begun);
    check_index_is_free(s, i);
    *seq = (struct sim_seq){.is_begun = true, .info = *info, .texts = seq->texts};
    const struct sim_watch *watch = &s->options.watch;
    if (s->options.draws_by_seed) seq->seed = sampler_seed(info->sampler);
    if (watch->identify) watch->identify(watch->ctx, i, &seq->owner, &seq->seed);
    seq->text = sim_text_begin(seq->owner);
    s->begun++;
}

static void sim_end(void *self, seq_idx i) {
    struct sim *s = self;
    CHECK(i < s->options.seq_max);
    CHECK(s->seqs[i].is_begun);
    s->seqs[i].is_begun = false;
    s->begun--;
}

static void pause_us(int64_t us) {
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    if (us > 0) nanosleep(&t, NULL);
}

/* What a lost device looks like. */
static void hang(void) {
    for (;;) pause_us(1000000);
}

/* How long the step takes. */
static int64_t step_us(const struct sim *s, const struct plan *plan, int64_t slow_us) {
    const struct cost_profile *c = &s->options.profile;
    if (!s->options.clock) return s->options.step_us + slow_us;
    double us = c->fixed_us + c->per_token_us * plan->token_count +
                c->per_attended_us * (double)plan->attended_tokens +
                c->per_move_us * plan->moves.count;
    return (us < 1 ? 1 : (int64_t)us) + slow_us;
}

/* The flight's time begins when the one before it is done. */
static void begin_time(struct sim *s, struct sim_flight *f) {
    const struct sim_clock *clock = s->options.clock;
    int64_t now_us = clock ? clock->now_us : clock_now(&clock_real);
    f->elapsed_us = step_us(s, f->plan, f->fault.slow_us);
    f->done_us = (now_us > s->busy_until_us ? now_us : s->busy_until_us) + f->elapsed_us;
    s->busy_until_us = f->done_us;
}

/* Let time pass until the flight is done. A real pause may take longer than it should. */
static void end_time(struct sim *s, struct sim_flight *f) {
    struct sim_clock *clock = s->options.clock;
    int64_t left_us = f->done_us - (clock ? clock->now_us : clock_now(&clock_real));
    if (left_us <= 0) return;
    if (clock) {
        sim_clock_advance(clock, left_us);
        return;
    }
    pause_us(left_us);
    f->elapsed_us += clock_now(&clock_real) - f->done_us;
}

/* The token that the plan before has sampled for the row's sequence. */
static void take_sampled(struct sim *s, const struct sim_flight *f, const struct plan_row *row) {
    struct sim_seq *seq = &s->seqs[row->seq];
    if (seq->sampled_step + 1 != f->step || seq->text_tokens != row->first ||
        row->count - row->draft_count != 1)
        wrong(s, row,
              "the row takes a sampled token, but the previous plan sampled none for this sequence",
              row->first, 0);
    read_token(seq, seq->sampled);
}

/* The flight's moves and rows happen now. Those before it have run. */
static void run_flight(struct sim *s, struct sim_flight *f) {
    const struct plan *plan = f->plan;
    f->has_run = true;
    f->is_behind_failed = f->is_ahead && s->failed_step + 1 == f->step;
    memset(f->results, 0, plan->row_count * sizeof(f->results[0]));
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        if (is_behind_refused(s, f, row)) continue;
        if (row->takes_sampled) take_sampled(s, f, row);
        if (row->samples) sample_row(s, f, i);
    }
    if (s->options.kv) run_memory(s, f);
    if (f->fault.submit_fails) s->failed_step = f->step;
    if (!f->fault.row_fails) return;
    CHECK(f->fault.failed_row < plan->row_count);
    f->results[f->fault.failed_row] = (struct row_result){.failed = true};
    s->seqs[plan->rows[f->fault.failed_row].seq].failed_step = f->step;
}

static void run_flights(struct sim *s, uint32_t count) {
    for (uint32_t n = 0; n < s->flight_count && count > 0; n++) {
        if (flight_at(s, n)->has_run) continue;
        run_flight(s, flight_at(s, n));
        count--;
    }
}

static enum status device_failed(struct err *err) {
    return err_set(err, ST_DEVICE, "the simulated device failed");
}

static enum status sim_submit(void *self, const struct plan *plan, struct err *err) {
    struct sim *s = self;
    CHECK(plan->row_count <= s->options.row_max);
    CHECK(s->flight_count <= s->options.depth);
    struct sim_flight *f = flight_at(s, s->flight_count);
    f->plan = plan;
    f->fault = (struct sim_fault){0};
    f->has_run = false;
    f->is_ahead = s->flight_count > 0;
    if ((f->step = ++s->steps) == s->options.hang_after) hang();
    if (s->options.fail_after && f->step >= s->options.fail_after) f->fault.submit_fails = true;
    if (f->step == s->options.nan_at && plan->row_count > 0) f->fault.row_fails = true;
    if (s->options.watch.on_plan) s->options.watch.on_plan(s->options.watch.ctx, plan, &f->fault);
    for (uint32_t i = 0; i < plan->row_count; i++) {
        CHECK(plan->rows[i].seq < s->options.seq_max);
        CHECK(s->seqs[plan->rows[i].seq].is_begun);
        CHECK(plan->rows[i].count > 0);
        read_text(s, f, i);
    }
    if (s->options.kv) submit_memory(s, f);
    begin_time(s, f);
    s->flight_count++;
    uint64_t drawn = s->options.depth > 0 ? mix(s->options.delay_seed + mix(f->step)) : FLIGHTS;
    bool fails_here = f->fault.submit_fails && (s->options.depth == 0 || (drawn >> 32 & 1));
    run_flights(s, fails_here ? FLIGHTS : (uint32_t)drawn % (FLIGHTS + 1));
    if (s->options.depth == 0 || fails_here) end_time(s, f);
    if (!fails_here) return ST_OK;
    s->flight_count--;
    return device_failed(err);
}

static enum status sim_collect(void *self, struct step_result *result, struct err *err) {
    struct sim *s = self;
    CHECK(s->flight_count > 0);
    struct sim_flight *f = flight_at(s, 0);
    if (!f->has_run) run_flight(s, f);
    if (s->options.kv) spoil_dropped(s, f);
    end_time(s, f);
    s->flight_first = (s->flight_first + 1) % FLIGHTS;
    s->flight_count--;
    *result = (struct step_result){
        .rows = f->results, .row_count = f->plan->row_count, .elapsed_us = f->elapsed_us};
    return f->fault.submit_fails ? device_failed(err) : ST_OK;
}

static void sim_close(void *self) {
    struct sim *s = self;
    for (uint32_t g = 0; g < KV_CACHE_GROUPS_MAX; g++) {
        mem_free(s->memory[g].blocks);
        mem_free(s->memory[g].slots);
        mem_free(s->memory[g].writers);
        mem_free(s->memory[g].users);
    }
    for (uint32_t i = 0; i < FLIGHTS; i++) {
        mem_free(s->flights[i].results);
        mem_free(s->flights[i].drafts);
        mem_free(s->flights[i].tables);
    }
    mem_free(s->texts);
    mem_free(s->words);
    mem_free(s->seqs);
    mem_free(s);
}

/* ---- open ---- */

static enum status make_memory(struct sim *s, uint32_t group) {
    const struct runner_sim_options *o = &s->options;
    struct sim_memory *m = &s->memory[group];
    m->blocks = mem_alloc_array(o->block_count, o->block_tokens * sizeof(m->blocks[0]));
    m->slots = mem_alloc_array(o->spill_slots + 1, o->block_tokens * sizeof(m->slots[0]));
    m->writers = mem_zalloc_array(o->block_count, sizeof(m->writers[0]));
    m->users = mem_zalloc_array(o->block_count, sizeof(m->users[0]));
    if (!m->blocks || !m->slots || !m->writers || !m->users) return ST_NOMEM;
    fill_garbage(s, m->blocks, o->block_count * o->block_tokens);
    fill_garbage(s, m->slots, o->spill_slots * o->block_tokens);
    return ST_OK;
}

static enum status make_flight(struct sim *s, struct sim_flight *f) {
    const struct runner_sim_options *o = &s->options;
    f->results = mem_zalloc_array(o->row_max, sizeof(f->results[0]));
    f->drafts = mem_alloc_array(o->row_max, DRAFT_MAX * sizeof(f->drafts[0]));
    if (!f->results || !f->drafts) return ST_NOMEM;
    if (!o->kv) return ST_OK;
    s->blocks_max = (o->tokens_max + o->block_tokens - 1) / o->block_tokens;
    f->tables = mem_zalloc_array((size_t)o->row_max * o->group_count,
                                 (size_t)s->blocks_max * sizeof(f->tables[0]));
    return f->tables ? ST_OK : ST_NOMEM;
}

static enum status copy_words(struct sim *s) {
    uint32_t count = s->options.word_count;
    s->words = mem_alloc_array(count, sizeof(s->words[0]));
    if (!s->words) return ST_NOMEM;
    memcpy(s->words, s->options.words, count * sizeof(s->words[0]));
    s->options.words = s->words;
    return ST_OK;
}

static enum status make_parts(struct sim *s) {
    const struct runner_sim_options *o = &s->options;
    s->seqs = mem_zalloc_array(o->seq_max, sizeof(s->seqs[0]));
    if (!s->seqs) return ST_NOMEM;
    for (uint32_t i = 0; i < FLIGHTS; i++) TRY(make_flight(s, &s->flights[i]));
    if (o->words) TRY(copy_words(s));
    if (!o->kv) return ST_OK;
    s->texts = mem_zalloc_array(o->seq_max, o->tokens_max * sizeof(s->texts[0]));
    if (!s->texts) return ST_NOMEM;
    for (uint32_t i = 0; i < o->seq_max; i++)
        s->seqs[i].texts = s->texts + (size_t)i * o->tokens_max;
    for (uint32_t g = 0; g < o->group_count; g++) TRY(make_memory(s, g));
    return ST_OK;
}

enum status runner_sim_open(const struct runner_sim_options *options, struct runner *out,
                            struct err *err) {
    CHECK(options->vocab > 0);
    CHECK(!options->words || options->word_count > 0);
    CHECK(options->row_max < 1u << ROW_BITS);
    CHECK(options->depth <= RUNNER_DEPTH_MAX);
    struct sim *s = mem_zalloc(sizeof(*s));
    if (!s) return err_set(err, ST_NOMEM, "out of memory for a simulated runner");
    s->options = *options;
    if (make_parts(s) != ST_OK) {
        sim_close(s);
        return err_set(err, ST_NOMEM, "out of memory for a simulated runner of %u sequences",
                       options->seq_max);
    }
    *out = (struct runner){.name = "sim",
                           .depth = options->depth,
                           .begin = sim_begin,
                           .end = sim_end,
                           .submit = sim_submit,
                           .collect = sim_collect,
                           .close = sim_close,
                           .self = s};
    return ST_OK;
}

uint32_t runner_sim_begun(const struct runner *runner) {
    return ((const struct sim *)runner->self)->begun;
}
