/* engine/runner_sim.c - see engine/runner_sim.h for the contract.
 *
 * Entry points: sim_clock_init, sim_text_begin, sim_token, runner_sim_open.
 *
 * The rows of a step are computed at the same time, so the model of KV memory takes them in
 * three passes: who writes which block (nobody else may write or read it), what everyone reads,
 * then the writes.
 */
#include "engine/runner_sim.h"

#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/mem.h"

static const uint64_t GARBAGE = 0x6761726261676521u; /* never the hash of a text we meet */
enum { WRITER_BITS = 16 };                           /* of a mark: the row; the rest: the step */

struct sim_seq {
    bool is_begun;
    struct runner_seq info;
    uint64_t owner, seed;
    uint32_t text_tokens; /* how much of it `text` stands for */
    uint64_t text;
    uint64_t *texts; /* [tokens_max], after each token; only with a model of memory */
};

/* Memory of one group: what each token slot holds. */
struct sim_memory {
    uint64_t *blocks;  /* [block_count][block_tokens] */
    uint64_t *slots;   /* [spill_slots][block_tokens] */
    uint64_t *writers; /* [block_count]: step << WRITER_BITS | row of the last write */
};

struct sim {
    struct runner_sim_options options;
    struct sim_seq *seqs;
    struct row_result *results;
    struct step_result result;
    struct sim_memory memory[KV_CACHE_GROUPS_MAX];
    uint64_t *texts;
    int32_t *words; /* options.words */
    uint64_t steps, garbage_count;
    uint32_t begun;
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

/* Read the row's tokens, as far as they are not known. */
static void read_text(struct sim *s, const struct plan_row *row) {
    struct sim_seq *seq = &s->seqs[row->seq];
    uint32_t end = row->first + row->count;
    for (uint32_t p = seq->text_tokens; p < end; p++) {
        if (p > 0 && p < seq->info.prompt_tokens) score_prompt(s, seq, row->tokens[p], p);
        seq->text = sim_text_add(seq->text, row->tokens[p]);
        if (seq->texts) seq->texts[p] = seq->text;
    }
    if (end > seq->text_tokens) seq->text_tokens = end;
}

static void sample_row(struct sim *s, const struct plan_row *row, struct row_result *out) {
    const struct runner_sim_options *o = &s->options;
    const struct sim_seq *seq = &s->seqs[row->seq];
    uint32_t pos = row->first + row->count;
    CHECK(pos == seq->text_tokens); /* a token follows the last one there is */
    CHECK(pos >= seq->info.prompt_tokens);
    out->token = sim_token(o, seq->seed, seq->text);
    out->is_end = runner_is_among(seq->info.ends, seq->info.end_count, out->token) ||
                  (!seq->info.ignore_end && sim_token_ends(o, seq->seed, seq->text));
    struct token_logprob chosen = {out->token, sim_logprob(o, seq->seed, seq->text)};
    uint32_t i = pos - seq->info.prompt_tokens;
    if (seq->info.logprobs) seq->info.logprobs[i] = chosen;
    if (seq->info.tops)
        seq->info.tops[i] =
            (struct sample_result){.chosen = chosen, .top_count = 1, .top = {chosen}};
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

static void mark_writes(struct sim *s, const struct plan_row *row, uint32_t index, uint32_t group) {
    uint32_t size = s->options.block_tokens;
    const uint32_t *table = kv_seq_table(s->options.kv, row->kv, group);
    uint64_t *writers = s->memory[group].writers, mark = s->steps << WRITER_BITS | index;
    for (uint32_t b = row->first / size; b <= (row->first + row->count - 1) / size; b++) {
        if (table[b] >= s->options.block_count) {
            wrong(s, row, "there is no block to write", b * size, table[b]);
            return;
        }
        if (writers[table[b]] >> WRITER_BITS == s->steps)
            wrong(s, row, "another row writes the block too", b * size, table[b]);
        writers[table[b]] = mark;
    }
}

/* Does [from, to) of one block hold the row's own text? */
static void check_block(struct sim *s, const struct plan_row *row, uint32_t index, uint32_t group,
                        uint32_t from, uint32_t to) {
    uint32_t size = s->options.block_tokens;
    uint32_t block = kv_seq_table(s->options.kv, row->kv, group)[from / size];
    if (block >= s->options.block_count) {
        wrong(s, row, "a block that it reads was given back", from, block);
        return;
    }
    uint64_t writer = s->memory[group].writers[block];
    if (writer >> WRITER_BITS == s->steps && writer != (s->steps << WRITER_BITS | index))
        wrong(s, row, "another row writes what it reads", from, block);
    const uint64_t *held = block_at(s, group, block) + from % size;
    const uint64_t *own = s->seqs[row->seq].texts + from;
    if (memcmp(held, own, (to - from) * sizeof(held[0])) != 0)
        wrong(s, row, "memory holds other text than its own", from, block);
}

static void check_reads(struct sim *s, const struct plan_row *row, uint32_t index, uint32_t group) {
    uint32_t size = s->options.block_tokens, window = s->options.windows[group];
    uint32_t p = window > 0 && row->first + 1 > window ? row->first + 1 - window : 0;
    while (p < row->first) {
        uint32_t end = (p / size + 1) * size;
        if (end > row->first) end = row->first;
        check_block(s, row, index, group, p, end);
        p = end;
    }
}

static void write_row(struct sim *s, const struct plan_row *row, uint32_t group, bool fails) {
    uint32_t size = s->options.block_tokens;
    const uint32_t *table = kv_seq_table(s->options.kv, row->kv, group);
    for (uint32_t p = row->first; p < row->first + row->count; p++) {
        if (table[p / size] >= s->options.block_count) return; /* told already */
        uint64_t *to = block_at(s, group, table[p / size]) + p % size;
        if (fails)
            fill_garbage(s, to, 1);
        else
            *to = s->seqs[row->seq].texts[p];
    }
}

static void run_memory(struct sim *s, const struct plan *plan, const struct sim_fault *fault) {
    uint32_t groups = s->options.group_count;
    for (uint32_t i = 0; i < plan->moves.count; i++)
        do_move(s, &plan->moves.list[i], fault->submit_fails);
    for (uint32_t i = 0; i < plan->row_count; i++)
        for (uint32_t g = 0; g < groups; g++) mark_writes(s, &plan->rows[i], i, g);
    for (uint32_t i = 0; i < plan->row_count && !fault->submit_fails; i++)
        for (uint32_t g = 0; g < groups; g++) check_reads(s, &plan->rows[i], i, g);
    for (uint32_t i = 0; i < plan->row_count; i++) {
        bool fails = fault->submit_fails || (fault->row_fails && fault->failed_row == i);
        for (uint32_t g = 0; g < groups; g++) write_row(s, &plan->rows[i], g, fails);
    }
}

/* ---- the step ---- */

static void sim_begin(void *self, seq_idx i, const struct runner_seq *info) {
    struct sim *s = self;
    CHECK(i < s->options.seq_max);
    struct sim_seq *seq = &s->seqs[i];
    CHECK(!seq->is_begun);
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

/* Let the step's time pass; returns it. */
static int64_t spend_time(struct sim *s, const struct plan *plan, int64_t slow_us) {
    const struct cost_profile *c = &s->options.profile;
    if (!s->options.clock) {
        int64_t start_us = clock_now(&clock_real);
        pause_us(s->options.step_us + slow_us);
        return clock_now(&clock_real) - start_us;
    }
    double us = c->fixed_us + c->per_token_us * plan->token_count +
                c->per_attended_us * (double)plan->attended_tokens +
                c->per_move_us * plan->moves.count;
    int64_t elapsed_us = (us < 1 ? 1 : (int64_t)us) + slow_us;
    sim_clock_advance(s->options.clock, elapsed_us);
    return elapsed_us;
}

static void run_row(struct sim *s, const struct plan *plan, uint32_t i) {
    const struct plan_row *row = &plan->rows[i];
    CHECK(row->seq < s->options.seq_max);
    CHECK(s->seqs[row->seq].is_begun);
    CHECK(row->count > 0);
    read_text(s, row);
    if (row->samples) sample_row(s, row, &s->results[i]);
}

static enum status sim_submit(void *self, const struct plan *plan, struct err *err) {
    struct sim *s = self;
    struct sim_fault fault = {0};
    CHECK(plan->row_count <= s->options.row_max);
    if (++s->steps == s->options.hang_after) hang();
    if (s->options.fail_after && s->steps >= s->options.fail_after) fault.submit_fails = true;
    if (s->options.watch.on_plan) s->options.watch.on_plan(s->options.watch.ctx, plan, &fault);
    memset(s->results, 0, plan->row_count * sizeof(s->results[0]));
    for (uint32_t i = 0; i < plan->row_count; i++) run_row(s, plan, i);
    if (s->options.kv) run_memory(s, plan, &fault);
    if (fault.row_fails) {
        CHECK(fault.failed_row < plan->row_count);
        s->results[fault.failed_row] = (struct row_result){.failed = true};
    }
    int64_t elapsed_us = spend_time(s, plan, fault.slow_us);
    s->result = (struct step_result){
        .rows = s->results, .row_count = plan->row_count, .elapsed_us = elapsed_us};
    return fault.submit_fails ? err_set(err, ST_DEVICE, "the simulated device failed") : ST_OK;
}

static enum status sim_collect(void *self, struct step_result *result, struct err *err) {
    (void)err;
    *result = ((struct sim *)self)->result;
    return ST_OK;
}

static void sim_close(void *self) {
    struct sim *s = self;
    for (uint32_t g = 0; g < KV_CACHE_GROUPS_MAX; g++) {
        mem_free(s->memory[g].blocks);
        mem_free(s->memory[g].slots);
        mem_free(s->memory[g].writers);
    }
    mem_free(s->texts);
    mem_free(s->words);
    mem_free(s->seqs);
    mem_free(s->results);
    mem_free(s);
}

/* ---- birth ---- */

static enum status make_memory(struct sim *s, uint32_t group) {
    const struct runner_sim_options *o = &s->options;
    struct sim_memory *m = &s->memory[group];
    m->blocks = mem_alloc_array(o->block_count, o->block_tokens * sizeof(m->blocks[0]));
    m->slots = mem_alloc_array(o->spill_slots + 1, o->block_tokens * sizeof(m->slots[0]));
    m->writers = mem_zalloc_array(o->block_count, sizeof(m->writers[0]));
    if (!m->blocks || !m->slots || !m->writers) return ST_NOMEM;
    fill_garbage(s, m->blocks, o->block_count * o->block_tokens);
    fill_garbage(s, m->slots, o->spill_slots * o->block_tokens);
    return ST_OK;
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
    s->results = mem_zalloc_array(o->row_max, sizeof(s->results[0]));
    if (!s->seqs || !s->results) return ST_NOMEM;
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
    CHECK(options->row_max < 1u << WRITER_BITS);
    struct sim *s = mem_zalloc(sizeof(*s));
    if (!s) return err_set(err, ST_NOMEM, "out of memory for a simulated runner");
    s->options = *options;
    if (make_parts(s) != ST_OK) {
        sim_close(s);
        return err_set(err, ST_NOMEM, "out of memory for a simulated runner of %u sequences",
                       options->seq_max);
    }
    *out = (struct runner){.name = "sim",
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
