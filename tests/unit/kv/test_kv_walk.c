/* Goal:   whatever sequences do, every position that a token can read holds exactly the keys and
 *         values of that sequence's own text and tenant, and a refusal changes nothing.
 * Method: seeded random worlds of a few blocks (1 to 3 groups, windows, blocks of 1, 4 and 16
 *         tokens) in which sequences of look-alike texts open, attach, grow, fork, trim, swap,
 *         keep and close. The model is the device: what was written to each token slot of each
 *         block and spill slot, as (tenant, fingerprint of the text up to there). Moves are
 *         queued and done in order before a step's writes, as an engine does; some steps fail
 *         and do none of it. After each step every resident sequence is read back in full. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "kv/cache.h"

enum {
    WORLDS = 600,
    STEPS = 150,
    SEQS = 6,
    GROUPS = 3,
    BLOCKS = 40,
    SLOTS = 20,
    BLOCK_TOKENS = 16,
    TOKENS = 96,
    MOVES = 24,
    TEXTS = 3,
};

/* What one token slot of the device holds. */
struct cell {
    uint64_t salt, text; /* text: fingerprint of all tokens up to this one; 0: never written */
};

struct seq {
    bool open, grown, unsure; /* unsure: a queued move concerns it */
    kv_seq id;
    uint64_t salt;
    int32_t tokens[TOKENS];
    uint32_t computed, target, prompt;
};

struct world {
    struct rng rng;
    struct kv_cache_options o;
    struct kv_cache *c;
    struct cell blocks[GROUPS][BLOCKS * BLOCK_TOKENS], slots[GROUPS][SLOTS * BLOCK_TOKENS];
    struct kv_move list[MOVES];
    struct kv_moves moves;
    struct seq seqs[SEQS];
    int32_t texts[TEXTS][TOKENS];
    int64_t now_us;
};

/* What the walks have met: a walk that never meets a case proves nothing about it. */
struct met {
    uint64_t hits, promised, full_grow, full_out, full_in, copies, outs, ins, forks, trims, kept,
        evicted, failed_steps, windows;
};

static uint32_t below(struct world *w, uint32_t limit) {
    return (uint32_t)rng_below(&w->rng, limit);
}

/* ---- the model ---- */

/* Fingerprint of tokens[0 .. position]; nothing in common with the cache's own hash. */
static uint64_t text_of(const int32_t *tokens, uint32_t position) {
    uint64_t h = 14695981039346656037u;
    for (uint32_t i = 0; i <= position; i++) h = (h ^ (uint64_t)(tokens[i] + 1)) * 1099511628211u;
    return h;
}

static void do_moves(struct world *w) {
    uint32_t bt = w->o.block_tokens;
    for (uint32_t i = 0; i < w->moves.count; i++) {
        struct kv_move m = w->list[i];
        struct cell *from = m.kind == KV_MOVE_IN ? w->slots[m.group] : w->blocks[m.group];
        struct cell *to = m.kind == KV_MOVE_OUT ? w->slots[m.group] : w->blocks[m.group];
        memcpy(&to[m.to * bt], &from[m.from * bt], bt * sizeof(*to));
    }
    w->moves.count = 0;
}

static void write_tokens(struct world *w, const struct seq *s, uint32_t from, uint32_t end) {
    for (uint32_t g = 0; g < w->o.group_count; g++) {
        const uint32_t *table = kv_seq_table(w->c, s->id, g);
        for (uint32_t p = from; p < end; p++) {
            uint32_t block = table[p / w->o.block_tokens];
            assert_true(block < w->o.groups[g].block_count);
            w->blocks[g][block * w->o.block_tokens + p % w->o.block_tokens] =
                (struct cell){s->salt, text_of(s->tokens, p)};
        }
    }
}

/* What the next token reads is there, in every group. */
static void read_back(struct world *w, const struct seq *s) {
    for (uint32_t g = 0; g < w->o.group_count; g++) {
        const uint32_t *table = kv_seq_table(w->c, s->id, g);
        uint32_t window = w->o.groups[g].window;
        uint32_t first = window > 0 && s->computed >= window ? s->computed + 1 - window : 0;
        for (uint32_t p = first; p < s->computed; p++) {
            uint32_t block = table[p / w->o.block_tokens];
            assert_true(block < w->o.groups[g].block_count);
            const struct cell *cell =
                &w->blocks[g][block * w->o.block_tokens + p % w->o.block_tokens];
            assert_true(cell->salt == s->salt);
            assert_true(cell->text == text_of(s->tokens, p));
        }
    }
}

/* ---- all or nothing ---- */

struct before {
    struct kv_cache_stats stats;
    uint32_t tokens, moves, table[GROUPS][TOKENS];
};

static void remember(const struct world *w, const struct seq *s, struct before *b) {
    memset(b, 0, sizeof(*b));
    b->stats = kv_cache_stats(w->c);
    b->tokens = kv_seq_tokens(w->c, s->id);
    b->moves = w->moves.count;
    uint32_t blocks = (b->tokens + w->o.block_tokens - 1) / w->o.block_tokens;
    if (kv_seq_is_swapped_out(w->c, s->id)) return;
    for (uint32_t g = 0; g < w->o.group_count; g++)
        memcpy(b->table[g], kv_seq_table(w->c, s->id, g), blocks * sizeof(uint32_t));
}

static void expect_unchanged(const struct world *w, const struct seq *s, const struct before *b) {
    struct before now;
    remember(w, s, &now);
    assert_memory_equal(b, &now, sizeof(now));
}

/* ---- what sequences do ---- */

/* Texts share beginnings: one of a few, cut somewhere and going its own way from there. */
static void make_text(struct world *w, int32_t *out) {
    memcpy(out, w->texts[below(w, TEXTS)], TOKENS * sizeof(int32_t));
    if (below(w, 2)) return;
    for (uint32_t i = below(w, w->o.tokens_max); i < TOKENS; i++) out[i] = (int32_t)below(w, 3);
}

/* A resident sequence is at the block that follows the hit, with the same text and tenant. */
static bool is_being_computed(const struct world *w, const struct seq *reader, uint32_t hit) {
    uint32_t end = hit + w->o.block_tokens;
    for (uint32_t i = 0; i < SEQS; i++) {
        const struct seq *s = &w->seqs[i];
        if (s->open && !kv_seq_is_swapped_out(w->c, s->id) && s->salt == reader->salt &&
            s->prompt >= end && s->computed < end &&
            memcmp(s->tokens, reader->tokens, end * sizeof(int32_t)) == 0)
            return true;
    }
    return false;
}

static void do_open(struct world *w, struct seq *s, struct met *met) {
    struct seq fresh = {.salt = below(w, 2)};
    make_text(w, fresh.tokens);
    uint32_t prompt = 1 + below(w, w->o.tokens_max);
    struct kv_match match =
        kv_cache_match(w->c, (struct kv_salt){fresh.salt, 0}, fresh.tokens, prompt);
    assert_true(match.tokens < prompt);
    assert_int_equal(match.tokens % w->o.block_tokens, 0);
    if (match.is_promised) assert_true(is_being_computed(w, &fresh, match.tokens));
    met->promised += match.is_promised;

    if (kv_seq_open(w->c, (struct kv_salt){fresh.salt, 0}, &fresh.id) != ST_OK) return;
    fresh.open = true;
    if (below(w, 8)) {
        fresh.computed = kv_seq_attach(w->c, fresh.id, fresh.tokens, prompt);
        fresh.prompt = prompt;
        assert_int_equal(fresh.computed, match.tokens);
        met->hits += fresh.computed > 0;
    }
    *s = fresh;
}

static void do_close(struct world *w, struct seq *s) {
    if (below(w, 4) == 0) kv_seq_keep(w->c, s->id, w->now_us + 1 + below(w, 50));
    kv_seq_close(w->c, s->id);
    s->open = false;
}

static void do_grow(struct world *w, struct seq *s, struct met *met) {
    struct before b;
    uint32_t most = w->o.tokens_max - s->computed;
    if (most == 0) return;
    uint32_t target = s->computed + 1 + below(w, below(w, 2) ? most : most / 8 + 1);
    uint32_t need = kv_seq_need(w->c, s->id, target), available = kv_cache_available(w->c);
    bool has_moves = w->moves.cap - w->moves.count >= w->o.group_count;
    remember(w, s, &b);
    if (kv_seq_grow(w->c, s->id, target, &w->moves) != ST_OK) {
        assert_true(need > available || !has_moves);
        expect_unchanged(w, s, &b);
        met->full_grow++;
        return;
    }
    assert_true(need <= available || w->o.group_count > 1);
    assert_true(kv_seq_tokens(w->c, s->id) >= target);
    s->unsure |= w->moves.count > b.moves;
    met->copies += w->moves.count - b.moves;
    s->target = target;
    s->grown = true;
}

static void do_fork(struct world *w, struct seq *parent, struct met *met) {
    struct seq *child = NULL;
    for (uint32_t i = 0; i < SEQS; i++)
        if (!w->seqs[i].open) child = &w->seqs[i];
    if (!child || parent->computed == 0) return;
    bool is_windowed = false;
    for (uint32_t g = 0; g < w->o.group_count; g++) is_windowed |= w->o.groups[g].window > 0;
    uint32_t back = below(w, is_windowed ? 1 : parent->computed);
    struct seq fresh = *parent;
    fresh.prompt = 0;
    fresh.grown = false;
    fresh.computed -= back;
    if (kv_seq_fork(w->c, parent->id, fresh.computed, &fresh.id) != ST_OK) return;
    /* The child goes its own way. */
    for (uint32_t i = fresh.computed; i < TOKENS; i++) fresh.tokens[i] = (int32_t)below(w, 3);
    *child = fresh;
    met->forks++;
}

static void do_trim(struct world *w, struct seq *s, struct met *met) {
    uint32_t room = kv_seq_tokens(w->c, s->id);
    uint32_t to = s->computed + below(w, room - s->computed + 1); /* only room */
    bool is_windowed = false;
    for (uint32_t g = 0; g < w->o.group_count; g++) is_windowed |= w->o.groups[g].window > 0;
    if (below(w, 3) == 0) to = is_windowed ? 0 : below(w, s->computed + 1);
    kv_seq_trim(w->c, s->id, to);
    assert_int_equal(kv_seq_tokens(w->c, s->id), to);
    s->grown = false;
    met->trims++;
    if (to >= s->computed) return;
    s->computed = to;
    s->prompt = 0;
    for (uint32_t i = to; i < TOKENS; i++) s->tokens[i] = (int32_t)below(w, 3);
}

static void do_swap_out(struct world *w, struct seq *s, struct met *met) {
    struct before b;
    remember(w, s, &b);
    if (kv_seq_swap_out(w->c, s->id, &w->moves) != ST_OK) {
        expect_unchanged(w, s, &b);
        met->full_out++;
        return;
    }
    assert_true(kv_seq_is_swapped_out(w->c, s->id));
    s->unsure = true;
    s->grown = false;
    s->prompt = 0;
    met->outs += w->moves.count - b.moves;
}

static void do_swap_in(struct world *w, struct seq *s, struct met *met) {
    struct before b;
    remember(w, s, &b);
    if (kv_seq_swap_in(w->c, s->id, &w->moves) != ST_OK) {
        expect_unchanged(w, s, &b);
        met->full_in++;
        return;
    }
    s->unsure = true;
    met->ins += w->moves.count - b.moves;
}

static void do_something(struct world *w, struct met *met) {
    struct seq *s = &w->seqs[below(w, SEQS)];
    uint32_t op = below(w, 16);
    if (!s->open) {
        do_open(w, s, met);
    } else if (op == 0) {
        do_close(w, s);
    } else if (kv_seq_is_swapped_out(w->c, s->id)) {
        if (op < 8) do_swap_in(w, s, met);
    } else if (op == 1) {
        do_swap_out(w, s, met);
    } else if (op == 2) {
        do_fork(w, s, met);
    } else if (op == 3) {
        do_trim(w, s, met);
    } else {
        do_grow(w, s, met);
    }
}

/* ---- steps ---- */

/* Moves and writes are done; each grown sequence commits some of what it was given room for. */
static void run_step(struct world *w) {
    do_moves(w);
    for (uint32_t i = 0; i < SEQS; i++) {
        struct seq *s = &w->seqs[i];
        if (!s->open) continue;
        s->unsure = false;
        if (!s->grown) continue;
        uint32_t end = s->target - below(w, s->target - s->computed + 1);
        write_tokens(w, s, s->computed, s->target); /* more than is committed, like a draft */
        kv_seq_commit(w->c, s->id, s->tokens, end);
        s->computed = end;
        s->grown = false;
    }
}

/* The device did nothing: the sequences of the step end. */
static void fail_step(struct world *w) {
    w->moves.count = 0;
    for (uint32_t i = 0; i < SEQS; i++) {
        struct seq *s = &w->seqs[i];
        if (s->open && (s->grown || s->unsure)) do_close(w, s);
    }
}

static void check(struct world *w, struct met *met) {
    kv_cache_verify(w->c);
    for (uint32_t i = 0; i < SEQS; i++) {
        struct seq *s = &w->seqs[i];
        if (s->open && !kv_seq_is_swapped_out(w->c, s->id)) read_back(w, s);
    }
    struct kv_cache_stats n = kv_cache_stats(w->c);
    for (uint32_t g = 0; g < w->o.group_count; g++) met->kept += n.groups[g].kept_count;
}

/* ---- worlds ---- */

static void make_world(struct world *w, uint64_t seed, struct met *met) {
    static const uint32_t block_tokens[] = {1, 4, 16};
    static const uint32_t windows[] = {0, 0, 1, 3, 4, 5, 16, 17};
    *w = (struct world){.rng = {.seed = seed}};
    w->moves = (struct kv_moves){.list = w->list, .cap = 4 + below(w, MOVES - 3)};
    w->o = (struct kv_cache_options){
        .block_tokens = block_tokens[below(w, 3)],
        .group_count = 1 + below(w, GROUPS),
        .seq_max = 1 + below(w, SEQS),
        .spill_slots = below(w, SLOTS + 1),
        .prefix_cache = below(w, 8) > 0,
        .identity = seed,
    };
    uint32_t longest = w->o.block_tokens * 12;
    w->o.tokens_max = 1 + below(w, longest < TOKENS ? longest : TOKENS);
    for (uint32_t g = 0; g < w->o.group_count; g++) {
        w->o.groups[g].block_count = 1 + below(w, BLOCKS);
        w->o.groups[g].window = windows[below(w, sizeof(windows) / sizeof(windows[0]))];
        met->windows += w->o.groups[g].window > 0;
    }
    for (uint32_t t = 0; t < TEXTS; t++)
        for (uint32_t i = 0; i < TOKENS; i++) w->texts[t][i] = (int32_t)below(w, 3);
    assert_int_equal(kv_cache_create(&w->c, &w->o, NULL), ST_OK);
}

static void walk(uint64_t seed, struct met *met) {
    static struct world world; /* too large for the stack */
    struct world *w = &world;
    make_world(w, seed, met);
    for (int step = 0; step < STEPS; step++) {
        for (uint32_t ops = 1 + below(w, 5); ops > 0; ops--) do_something(w, met);
        kv_cache_verify(w->c);
        if (below(w, 20) == 0) {
            fail_step(w);
            met->failed_steps++;
        } else {
            run_step(w);
        }
        check(w, met);
        w->now_us++;
        if (below(w, 4) == 0) kv_cache_expire(w->c, w->now_us);
    }
    met->evicted += kv_cache_stats(w->c).evicted_blocks;
    for (uint32_t i = 0; i < SEQS; i++)
        if (w->seqs[i].open) kv_seq_close(w->c, w->seqs[i].id);
    kv_cache_verify(w->c);
    struct kv_cache_stats n = kv_cache_stats(w->c);
    assert_int_equal(n.spilled_blocks, 0);
    for (uint32_t g = 0; g < w->o.group_count; g++) assert_int_equal(n.groups[g].held_count, 0);
    kv_cache_destroy(w->c);
}

/* A failed assertion does not come back to the test, so the seed is printed here. */
static int tell_seed(void **state) {
    const uint64_t *seed = *state;
    if (*seed) printf("the walk ended at seed %llu\n", (unsigned long long)*seed);
    return 0;
}

static void test_random_worlds_agree_with_the_device(void **state) {
    uint64_t *seed = *state;
    struct met met = {0};
    for (*seed = 1; *seed <= WORLDS; ++*seed) walk(*seed, &met);
    *seed = 0;
    const uint64_t *counts = (const uint64_t *)&met;
    for (size_t i = 0; i < sizeof(met) / sizeof(uint64_t); i++) assert_true(counts[i] >= 100);
}

int main(void) {
    uint64_t seed = 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate_setup_teardown(test_random_worlds_agree_with_the_device, NULL,
                                                 tell_seed, &seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
