/* kernels/cpu/key_sums.c - see kernels/cpu/key_sums.h for the contract; the same plain code for
 * every table. */
#include "kernels/cpu/key_sums.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "graph/key_smoothing.h"

void transform_query(const struct cpu_kernels *k, const struct key_smoothing *s, size_t first,
                     uint32_t head_dim, float *room, struct attn_query *q) {
    int8_t *codes = (int8_t *)(room + kv_padded_dims(head_dim));
    int32_t *sums = (int32_t *)(void *)(codes + kv_padded_dims(head_dim));
    q->shift = 0.0f;
    if (s)
        q->shift = -k->kv_smooth(q->q, s->scale + first, s->mean + first, head_dim, room);
    else
        memcpy(room, q->q, head_dim * sizeof(*room));
    k->kv_hadamard(room, head_dim);
    k->kv_query(room, head_dim, (struct int4_query){codes, sums, &q->codes_scale});
    q->codes = codes;
    q->sums = sums;
}

static void add_key(const uint8_t *tile, uint32_t token, uint32_t head_dim, double *sums,
                    double *squares) {
    for (uint32_t d = 0; d < head_dim; d++) {
        float key;
        memcpy(&key, tile + ((size_t)d * KV_TILE_TOKENS + token) * sizeof(key), sizeof(key));
        sums[d] += (double)key;
        squares[d] += (double)key * (double)key;
    }
}

/* The mean of all queries that share a KV head. */
static void add_queries(const float *q, uint32_t heads, uint32_t head_dim, double *products) {
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t d = 0; d < head_dim; d++) {
            const float *own = q + (size_t)h * head_dim;
            double x = (double)own[d] / heads, *row = products + (size_t)d * head_dim;
            for (uint32_t i = 0; i <= d; i++) row[i] += x * (double)own[i];
        }
}

void attention_add_sums(const struct cpu_run *x, const struct op_attention *a, uint32_t ith,
                        uint32_t nth) {
    const struct kv_tiles *kv = &x->kv[a->group];
    struct key_sums *sums = a->smoothing ? a->smoothing->sums : NULL;
    if (!sums) return;
    CHECK(kv->type == KV_F32);
    struct mat q = mat_of(x, a->q);
    struct range heads = range_share(a->kv_heads, ith, nth);
    uint32_t shared = a->heads / a->kv_heads;
    for (uint32_t r = 0; r < q.row_count; r++) {
        if (x->step->pos[r] < KEY_MEAN_FIRST) continue; /* one that is skipped is at -1 */
        uint32_t pos = (uint32_t)x->step->pos[r];
        const uint32_t *blocks = step_blocks(x->step, x->step->seq[r], a->group);
        uint32_t tile = kv_tile_index(kv, blocks, pos / KV_TILE_TOKENS);
        for (uint32_t h = heads.first; h < heads.end; h++) {
            size_t first = (size_t)h * a->head_dim;
            add_key(kv_tile(kv, a->layer, tile, h), pos % KV_TILE_TOKENS, a->head_dim,
                    sums->key + first, sums->key_squares + first);
            add_queries(mat_f32(&q, r) + first * shared, shared, a->head_dim,
                        sums->query_products + first * a->head_dim);
        }
        if (ith == 0) sums->rows++;
    }
}
