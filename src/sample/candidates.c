/* sample/candidates.c - see sample/candidates.h.
 *
 * top-k runs twice over the logits: once with a heap of k that ends up holding the k first in
 * rank, its root being the last of them; once to take, in the order of ids, whatever stands no
 * lower than that root. The other cuts build a heap over the candidates by their key, which
 * takes linear time, and pop until the share is reached.
 */
#include "sample/candidates.h"

#include <float.h>
#include <math.h>

#include "base/check.h"
#include "base/fmath.h"
#include "base/mem.h"

enum status candidates_init(struct candidates *c, uint32_t vocab) {
    *c = (struct candidates){.cap = vocab};
    c->list = mem_alloc_array(vocab, sizeof(c->list[0]));
    c->key = mem_alloc_array(vocab, sizeof(c->key[0]));
    c->order = mem_alloc_array(vocab, sizeof(c->order[0]));
    c->keep = mem_alloc_array(vocab, sizeof(c->keep[0]));
    if (c->list && c->key && c->order && c->keep) return ST_OK;
    candidates_deinit(c);
    return ST_NOMEM;
}

void candidates_deinit(struct candidates *c) {
    mem_free(c->list);
    mem_free(c->key);
    mem_free(c->order);
    mem_free(c->keep);
    *c = (struct candidates){0};
}

/* Does token a stand before token b in rank? */
static bool ranks_before(const float *logits, uint32_t a, uint32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* Restore the heap whose root is the last in rank, from place i down. */
static void sift_last(uint32_t *heap, uint32_t count, uint32_t i, const float *logits) {
    for (uint32_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && ranks_before(logits, heap[child], heap[child + 1])) child++;
        if (ranks_before(logits, heap[child], heap[i])) return;
        uint32_t swap = heap[i];
        heap[i] = heap[child];
        heap[child] = swap;
    }
}

/* The token that is k-th in rank (k >= 1); UINT32_MAX if fewer than k are possible. */
static uint32_t find_kth(struct candidates *c, const float *logits, uint32_t vocab, uint32_t k) {
    uint32_t *heap = c->order, count = 0, t = 0;
    for (; t < vocab && count < k; t++)
        if (logits[t] > -HUGE_VALF) heap[count++] = t;
    if (count < k) return UINT32_MAX;
    for (uint32_t i = k / 2; i-- > 0;) sift_last(heap, k, i, logits);
    for (; t < vocab; t++) {
        /* NaN and minus infinity rank before nothing. */
        if (!ranks_before(logits, t, heap[0])) continue;
        heap[0] = t;
        sift_last(heap, k, 0, logits);
    }
    return heap[0];
}

void candidates_fill(struct candidates *c, const float *logits, uint32_t vocab, uint32_t top_k) {
    CHECK(vocab <= c->cap);
    uint32_t kth = UINT32_MAX;
    if (top_k > 0 && top_k < vocab) kth = find_kth(c, logits, vocab, top_k);
    c->count = 0;
    for (uint32_t t = 0; t < vocab; t++) {
        if (!(logits[t] > -HUGE_VALF)) continue;
        if (kth != UINT32_MAX && ranks_before(logits, kth, t)) continue;
        c->list[c->count++] = (struct candidate){.logit = logits[t], .token = (int32_t)t};
    }
}

static float largest_logit(const struct candidates *c) {
    float top = -HUGE_VALF;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->list[i].logit > top) top = c->list[i].logit;
    return top;
}

static double sum_weights(const struct candidates *c) {
    double sum = 0.0;
    for (uint32_t i = 0; i < c->count; i++) sum += c->list[i].weight;
    return sum;
}

/* The exponent of a candidate's weight. */
static double exponent(const struct candidate *one, float top, float temperature) {
    return ((double)one->logit - (double)top) / (double)temperature;
}

void candidates_weigh(struct candidates *c, float temperature) {
    CHECK(temperature > 0.0f);
    CHECK(c->count > 0);
    float top = largest_logit(c);
    CHECK(top <= FLT_MAX);
    for (uint32_t i = 0; i < c->count; i++) {
        /* Kept in `key` for the typical cut, which runs first among those that use it. */
        c->key[i] = exponent(&c->list[i], top, temperature);
        c->list[i].weight = fm_exp_d(c->key[i]);
    }
}

/* Does the candidate at place a come before the one at b: by key, then by rank? */
static bool comes_before(const struct candidates *c, uint32_t a, uint32_t b) {
    if (c->key[a] != c->key[b]) return c->key[a] < c->key[b];
    if (c->list[a].logit != c->list[b].logit) return c->list[a].logit > c->list[b].logit;
    return a < b;
}

static void sift_first(struct candidates *c, uint32_t count, uint32_t i) {
    for (uint32_t child; (child = 2 * i + 1) < count; i = child) {
        uint32_t *heap = c->order;
        if (child + 1 < count && comes_before(c, heap[child + 1], heap[child])) child++;
        if (!comes_before(c, heap[child], heap[i])) return;
        uint32_t swap = heap[i];
        heap[i] = heap[child];
        heap[child] = swap;
    }
}

static void drop_unkept(struct candidates *c) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->keep[i]) c->list[kept++] = c->list[i];
    c->count = kept;
}

/* Keep the shortest prefix, in the order of the keys, that holds `share` of the weight. */
static void cut_prefix(struct candidates *c, double share) {
    double wanted = share * sum_weights(c);
    for (uint32_t i = 0; i < c->count; i++) {
        c->order[i] = i;
        c->keep[i] = false;
    }
    for (uint32_t i = c->count / 2; i-- > 0;) sift_first(c, c->count, i);
    double held = 0.0;
    for (uint32_t left = c->count; left > 0; left--) {
        uint32_t first = c->order[0];
        c->keep[first] = true;
        held += c->list[first].weight;
        if (held >= wanted) break;
        c->order[0] = c->order[left - 1];
        sift_first(c, left - 1, 0);
    }
    drop_unkept(c);
}

/* -log p is log S - x with x the exponent and S the sum of weights; H = log S - sum p x. */
void candidates_cut_typical(struct candidates *c, double share) {
    double sum = sum_weights(c), mean = 0.0;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->list[i].weight > 0.0) mean += c->list[i].weight / sum * c->key[i];
    for (uint32_t i = 0; i < c->count; i++) c->key[i] = fabs(mean - c->key[i]);
    cut_prefix(c, share);
}

void candidates_cut_top(struct candidates *c, double share) {
    for (uint32_t i = 0; i < c->count; i++) c->key[i] = -(double)c->list[i].logit;
    cut_prefix(c, share);
}

void candidates_cut_min(struct candidates *c, double ratio) {
    double top = 0.0;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->list[i].weight > top) top = c->list[i].weight;
    for (uint32_t i = 0; i < c->count; i++) c->keep[i] = c->list[i].weight >= ratio * top;
    drop_unkept(c);
}

int32_t candidates_draw(const struct candidates *c, double unit) {
    CHECK(c->count > 0);
    double target = unit * sum_weights(c), sum = 0.0;
    int32_t last = c->list[0].token;
    for (uint32_t i = 0; i < c->count; i++) {
        if (!(c->list[i].weight > 0.0)) continue;
        last = c->list[i].token;
        sum += c->list[i].weight;
        if (sum > target) return last;
    }
    return last; /* rounding: unit * sum may equal the sum */
}
