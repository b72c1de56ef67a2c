/* sample/proc_penalty.c - makes tokens that were there lately less likely.
 *
 * Repetition divides a positive logit (multiplies a negative one) once; presence subtracts
 * once; frequency subtracts for every occurrence. What counts is the last `window` tokens of
 * the context, prompt included.
 *
 * The occurrences are a set: `seen` lists the distinct tokens, `place` says where in it a
 * token stands (plus one; 0 is absent), so that a step costs as much as there are distinct
 * tokens and not a walk of the vocabulary. `ring` holds the last tokens in order, the window
 * and what a rollback may bring back into it.
 */
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "sample/logit_proc.h"
#include "sample/sampler.h"

struct seen {
    int32_t token;
    uint32_t times;
};

struct penalty {
    float repetition, presence, frequency;
    uint32_t vocab;
    uint32_t window; /* UINT32_MAX: the whole context */
    uint32_t ring_cap;
    uint32_t seen_count;
    uint64_t total;    /* tokens accepted and not taken back */
    uint64_t floor;    /* `total` cannot be rolled back below this */
    struct seen *seen; /* [vocab] */
    uint32_t *place;   /* [vocab] */
    int32_t *ring;     /* [ring_cap], token t at t % ring_cap */
};

static void destroy(void *self) {
    struct penalty *p = self;
    mem_free(p->seen);
    mem_free(p->place);
    mem_free(p->ring);
    mem_free(p);
}

static struct penalty *create_empty(uint32_t vocab, uint32_t window) {
    struct penalty *p = mem_zalloc(sizeof(*p));
    if (!p) return NULL;
    p->vocab = vocab;
    p->window = window;
    p->ring_cap = (window == UINT32_MAX ? 0 : window) + SAMPLE_ROLLBACK_MAX;
    p->seen = mem_alloc_array(vocab, sizeof(p->seen[0]));
    p->place = mem_zalloc_array(vocab, sizeof(p->place[0]));
    p->ring = mem_zalloc_array(p->ring_cap, sizeof(p->ring[0]));
    if (p->seen && p->place && p->ring) return p;
    destroy(p);
    return NULL;
}

static enum status create(const struct sample_params *params, uint32_t vocab, void **self,
                          struct err *err) {
    bool off = params->repetition_penalty == 1.0f && params->presence_penalty == 0.0f &&
               params->frequency_penalty == 0.0f;
    if (off || params->penalty_window == 0) return ST_OK;
    uint32_t window = params->penalty_window < 0 ? UINT32_MAX : (uint32_t)params->penalty_window;
    struct penalty *p = create_empty(vocab, window);
    if (!p) return err_set(err, ST_NOMEM, "sampler: out of memory");
    p->repetition = params->repetition_penalty;
    p->presence = params->presence_penalty;
    p->frequency = params->frequency_penalty;
    *self = p;
    return ST_OK;
}

static uint32_t edits_max(const void *self) {
    const struct penalty *p = self;
    return p->window < p->vocab ? p->window : p->vocab;
}

static void edit(const void *self, struct logit_edits *out) {
    const struct penalty *p = self;
    for (uint32_t i = 0; i < p->seen_count; i++) {
        float add = -(p->presence + p->frequency * (float)p->seen[i].times);
        logit_edits_add(out, (struct logit_edit){p->seen[i].token, p->repetition, add});
    }
}

static void count_up(struct penalty *p, int32_t token) {
    uint32_t place = p->place[token];
    if (place == 0) {
        p->seen[p->seen_count++] = (struct seen){token, 1};
        p->place[token] = p->seen_count;
        return;
    }
    p->seen[place - 1].times++;
}

static void count_down(struct penalty *p, int32_t token) {
    uint32_t place = p->place[token];
    CHECK(place > 0);
    if (--p->seen[place - 1].times > 0) return;
    struct seen last = p->seen[--p->seen_count];
    p->seen[place - 1] = last;
    p->place[last.token] = place;
    p->place[token] = 0;
}

static int32_t *at(const struct penalty *p, uint64_t t) { return &p->ring[t % p->ring_cap]; }

static void accept(void *self, int32_t token) {
    struct penalty *p = self;
    CHECK(token >= 0 && (uint32_t)token < p->vocab);
    if (p->total >= p->window) count_down(p, *at(p, p->total - p->window));
    *at(p, p->total) = token;
    p->total++;
    if (p->total > SAMPLE_ROLLBACK_MAX && p->floor < p->total - SAMPLE_ROLLBACK_MAX)
        p->floor = p->total - SAMPLE_ROLLBACK_MAX;
    count_up(p, token);
}

static void rollback(void *self, uint32_t count) {
    struct penalty *p = self;
    CHECK(count <= p->total - p->floor);
    for (; count > 0; count--) {
        p->total--;
        count_down(p, *at(p, p->total));
        if (p->total >= p->window) count_up(p, *at(p, p->total - p->window));
    }
}

static enum status fork_penalty(const void *self, void **out) {
    const struct penalty *from = self;
    struct penalty *p = create_empty(from->vocab, from->window);
    if (!p) return ST_NOMEM;
    struct seen *seen = p->seen;
    uint32_t *place = p->place;
    int32_t *ring = p->ring;
    *p = *from;
    p->seen = seen;
    p->place = place;
    p->ring = ring;
    memcpy(seen, from->seen, from->seen_count * sizeof(seen[0]));
    memcpy(place, from->place, from->vocab * sizeof(place[0]));
    memcpy(ring, from->ring, from->ring_cap * sizeof(ring[0]));
    *out = p;
    return ST_OK;
}

extern const struct logit_proc logit_proc_penalty;
const struct logit_proc logit_proc_penalty = {
    .name = "penalty",
    .create = create,
    .edits_max = edits_max,
    .edit = edit,
    .accept = accept,
    .rollback = rollback,
    .fork = fork_penalty,
    .destroy = destroy,
};
