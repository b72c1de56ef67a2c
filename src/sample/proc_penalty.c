/* sample/proc_penalty.c - makes tokens that were there lately less likely.
 *
 * Repetition divides a positive logit (multiplies a negative one) once; presence subtracts
 * once; frequency subtracts for every occurrence. What counts is the last `window` tokens of
 * the context, prompt included; for presence and frequency only those of the answer, if the
 * settings say so.
 *
 * The occurrences are a set: `seen` lists the distinct tokens, so that a step costs as much as
 * there are of them and not a walk of the vocabulary. `index` finds a token in it: an open hash
 * table with linear probing, at most half full, whose entries are places in `seen` plus one (0:
 * empty). `ring` holds the last tokens in order, the window and what a rollback may bring back
 * into it. All of it is as large as the sequence or the window can make it, not as the vocabulary.
 */
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "sample/logit_proc.h"
#include "sample/sampler.h"

struct seen {
    int32_t token;
    uint32_t times;
    uint32_t answer_times; /* of them, those that presence and frequency count */
};

struct penalty {
    float repetition, presence, frequency;
    bool answer_only;
    uint32_t vocab, tokens_max;
    uint32_t window; /* UINT32_MAX: the whole context */
    uint32_t ring_cap, seen_cap, seen_count;
    uint32_t index_mask;
    uint64_t total;        /* tokens accepted and not taken back */
    uint64_t floor;        /* `total` cannot be rolled back below this */
    uint64_t answer_first; /* the answer begins here; 0 unless answer_only */
    struct seen *seen;     /* [seen_cap] */
    uint32_t *index;       /* [index_mask + 1] */
    int32_t *ring;         /* [ring_cap], token t at t % ring_cap */
};

static void destroy(void *self) {
    struct penalty *p = self;
    mem_free(p->seen);
    mem_free(p->index);
    mem_free(p->ring);
    mem_free(p);
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static struct penalty *create_empty(uint32_t vocab, uint32_t tokens_max, uint32_t window) {
    struct penalty *p = mem_zalloc(sizeof(*p));
    if (!p) return NULL;
    uint32_t slots = 2;
    p->vocab = vocab;
    p->tokens_max = tokens_max;
    p->window = window;
    p->ring_cap = (window == UINT32_MAX ? 0 : least(window, tokens_max)) + SAMPLE_ROLLBACK_MAX;
    p->seen_cap = least(vocab, least(window, tokens_max));
    while (slots < 2 * (uint64_t)p->seen_cap) slots *= 2;
    p->index_mask = slots - 1;
    p->seen = mem_alloc_array(p->seen_cap + (size_t)1, sizeof(p->seen[0]));
    p->index = mem_zalloc_array(slots, sizeof(p->index[0]));
    p->ring = mem_zalloc_array(p->ring_cap, sizeof(p->ring[0]));
    if (p->seen && p->index && p->ring) return p;
    destroy(p);
    return NULL;
}

static enum status create(const struct sample_params *params, const struct sample_bounds *bounds,
                          void **self, struct err *err) {
    bool off = params->repetition_penalty == 1.0f && params->presence_penalty == 0.0f &&
               params->frequency_penalty == 0.0f;
    if (off || params->penalty_window == 0) return ST_OK;
    uint32_t window = params->penalty_window < 0 ? UINT32_MAX : (uint32_t)params->penalty_window;
    struct penalty *p = create_empty(bounds->vocab, bounds->tokens_max, window);
    if (!p) return err_set(err, ST_NOMEM, "sampler: out of memory");
    p->repetition = params->repetition_penalty;
    p->presence = params->presence_penalty;
    p->frequency = params->frequency_penalty;
    p->answer_only = params->penalty_answer_only;
    if (p->answer_only) p->answer_first = UINT64_MAX;
    *self = p;
    return ST_OK;
}

/* ---- the set ---- */

static uint32_t home_of(const struct penalty *p, int32_t token) {
    return (uint32_t)((uint64_t)(uint32_t)token * 0x9e3779b97f4a7c15u >> 32) & p->index_mask;
}

/* The slot that names the token, or the empty one where it would stand. */
static uint32_t slot_of(const struct penalty *p, int32_t token) {
    uint32_t slot = home_of(p, token);
    while (p->index[slot] != 0 && p->seen[p->index[slot] - 1].token != token)
        slot = (slot + 1) & p->index_mask;
    return slot;
}

/* Empty a slot of the hash table and move up the entries that linear probing put after it. */
static void clear_slot(struct penalty *p, uint32_t slot) {
    uint32_t hole = slot, mask = p->index_mask;
    for (uint32_t at = (slot + 1) & mask; p->index[at] != 0; at = (at + 1) & mask) {
        uint32_t home = home_of(p, p->seen[p->index[at] - 1].token);
        if (((at - home) & mask) < ((at - hole) & mask)) continue; /* its home is past the hole */
        p->index[hole] = p->index[at];
        hole = at;
    }
    p->index[hole] = 0;
}

static void count_up(struct penalty *p, int32_t token, bool in_answer) {
    uint32_t slot = slot_of(p, token);
    if (p->index[slot] == 0) {
        CHECK(p->seen_count < p->seen_cap);
        p->seen[p->seen_count++] = (struct seen){.token = token};
        p->index[slot] = p->seen_count;
    }
    struct seen *s = &p->seen[p->index[slot] - 1];
    s->times++;
    s->answer_times += in_answer;
}

static void count_down(struct penalty *p, int32_t token, bool in_answer) {
    uint32_t slot = slot_of(p, token), place = p->index[slot];
    CHECK(place > 0);
    struct seen *s = &p->seen[place - 1];
    s->times--;
    s->answer_times -= in_answer;
    if (s->times > 0) return;
    clear_slot(p, slot);
    struct seen last = p->seen[--p->seen_count];
    if (last.token == token) return;
    p->index[slot_of(p, last.token)] = place;
    p->seen[place - 1] = last;
}

/* ---- the context ---- */

static int32_t *at(const struct penalty *p, uint64_t t) { return &p->ring[t % p->ring_cap]; }

static void enter(struct penalty *p, uint64_t t) { count_up(p, *at(p, t), t >= p->answer_first); }
static void remove_at(struct penalty *p, uint64_t t) {
    count_down(p, *at(p, t), t >= p->answer_first);
}

static void accept(void *self, int32_t token) {
    struct penalty *p = self;
    CHECK(token >= 0 && (uint32_t)token < p->vocab);
    CHECK(p->total < p->tokens_max);
    if (p->total >= p->window) remove_at(p, p->total - p->window);
    *at(p, p->total) = token;
    enter(p, p->total++);
    if (p->total > SAMPLE_ROLLBACK_MAX && p->floor < p->total - SAMPLE_ROLLBACK_MAX)
        p->floor = p->total - SAMPLE_ROLLBACK_MAX;
}

static void rollback(void *self, uint32_t count) {
    struct penalty *p = self;
    CHECK(count <= p->total - p->floor);
    for (; count > 0; count--) {
        remove_at(p, --p->total);
        if (p->total >= p->window) enter(p, p->total - p->window);
    }
}

/* The prompt is over, and cannot be taken back any more. */
static void begin_answer(void *self) {
    struct penalty *p = self;
    p->floor = p->total;
    if (p->answer_only) p->answer_first = p->total;
}

/* ---- the edits ---- */

static float add_of(const struct penalty *p, uint32_t answer_times) {
    return answer_times ? -(p->presence + p->frequency * (float)answer_times) : 0.0f;
}

/* in_answer: the pending token, if there is one, will be of the answer. */
static void edit_seen(const struct penalty *p, const struct seen *s, bool in_answer,
                      struct logit_edits *out) {
    float again = add_of(p, s->answer_times + in_answer);
    logit_edits_add(
        out, (struct logit_edit){s->token, p->repetition, add_of(p, s->answer_times), again});
}

/* A token more will have come, and the oldest of a full window will have left. If that was its
 * only occurrence it is as good as never seen, should it be the one that comes, too. */
static void edit_pending(const struct penalty *p, struct logit_edits *out) {
    bool leaves = p->total >= p->window, in_answer = p->total >= p->answer_first;
    uint64_t oldest = leaves ? p->total - p->window : 0;
    int32_t leaver = leaves ? *at(p, oldest) : -1;
    for (uint32_t i = 0; i < p->seen_count; i++) {
        struct seen s = p->seen[i];
        if (s.token == leaver) {
            s.times--;
            s.answer_times -= oldest >= p->answer_first;
        }
        if (s.times > 0) edit_seen(p, &s, in_answer, out);
    }
    out->sampling->is_pending = true;
    out->sampling->fresh_scale = p->repetition;
    out->sampling->fresh_add = add_of(p, in_answer);
}

static void edit(void *self, bool is_pending, struct logit_edits *out) {
    const struct penalty *p = self;
    CHECK(out->sampling->edit_count == 0); /* the first of logit_procs */
    if (is_pending)
        edit_pending(p, out);
    else
        for (uint32_t i = 0; i < p->seen_count; i++) edit_seen(p, &p->seen[i], false, out);
    out->sampling->seen_count = out->sampling->edit_count;
}

static uint32_t edits_max(const void *self) { return ((const struct penalty *)self)->seen_cap; }

static enum status fork_penalty(const void *self, void **out) {
    const struct penalty *from = self;
    struct penalty *p = create_empty(from->vocab, from->tokens_max, from->window);
    if (!p) return ST_NOMEM;
    struct seen *seen = p->seen;
    uint32_t *index = p->index;
    int32_t *ring = p->ring;
    *p = *from;
    p->seen = seen;
    p->index = index;
    p->ring = ring;
    memcpy(seen, from->seen, from->seen_count * sizeof(seen[0]));
    memcpy(index, from->index, (from->index_mask + (size_t)1) * sizeof(index[0]));
    memcpy(ring, from->ring, from->ring_cap * sizeof(ring[0]));
    *out = p;
    return ST_OK;
}

extern const struct logit_proc logit_proc_penalty;
const struct logit_proc logit_proc_penalty = {
    .name = "penalty",
    .create = create,
    .edit = edit,
    .edits_max = edits_max,
    .accept = accept,
    .rollback = rollback,
    .begin_answer = begin_answer,
    .fork = fork_penalty,
    .destroy = destroy,
};
