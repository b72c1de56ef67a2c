/* engine/key_statistics.c - see engine/key_statistics.h for the contract. */
#include "engine/key_statistics.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/loaded_model.h"
#include "graph/key_smoothing.h"
#include "graph/step.h"
#include "model/model.h"
#include "text/tokenizer.h"

enum { TOKENS_SEED = 0x6b657973, SHARE_LEAST = 1000 };
#define MOMENTS_ADDED 0.03
#define FEEDBACK_MOST 1e4

/* Prose, speech, figures, code and other languages: what keys of most texts have in common. */
static const char key_text[] =
    "The harbour of the old town was built in 1847, when the railway from the coal mines reached "
    "the sea. For forty years its three basins handled most of the region's trade in timber, salt "
    "and grain; by 1890, however, larger steamers could no longer pass the narrow entrance, and "
    "the "
    "company moved its offices to the new docks in the south. The engineer who led the work, Anna "
    "Lindqvist, later wrote that \"nobody had asked the wind\". Her report, published in two "
    "volumes, "
    "is still read by students of hydraulics.\n\n"
    "Question: What does a server do when its memory is full?\nAnswer: It can refuse the request, "
    "wait until another one ends, or move data to a slower place. Here is an example:\n\n"
    "def mean(values):\n    total = 0.0\n    for v in values:\n        total += v\n"
    "    return total / len(values)  # an empty list is an error\n\n"
    "1. Heat 250 g of butter. 2. Add 3 eggs and 1/2 cup of sugar. 3. Bake at 180 degrees for 35 "
    "minutes.\n\n"
    "Le petit marchand ouvrait sa boutique avant le lever du soleil. Die Kinder spielten bis spät "
    "am Abend im Garten. \"I don't know,\" she said, \"but we'll find out tomorrow, won't we?\"\n"
    "{\"name\": \"sensor-7\", \"value\": 21.5, \"ok\": true}\n";

struct key_statistics {
    struct key_smoothing *layers;
    uint32_t layer_count, head_dim, cols; /* kv_heads * head_dim */
    struct key_sums *sums;                /* [layer_count] */
    float *floats;                        /* all arrays of the layers */
    double *doubles;                      /* all arrays of the sums; NULL once they are used */
    double *room;                         /* [2][head_dim][head_dim]; likewise */
};

void key_statistics_destroy(struct key_statistics *p) {
    if (!p) return;
    mem_free(p->layers);
    mem_free(p->sums);
    mem_free(p->floats);
    mem_free(p->doubles);
    mem_free(p->room);
    mem_free(p);
}

static void share_out(struct key_statistics *p, size_t floats, size_t doubles) {
    for (uint32_t l = 0; l < p->layer_count; l++) {
        float *f = p->floats + l * floats;
        double *d = p->doubles + l * doubles;
        p->sums[l] = (struct key_sums){d, d + p->cols, d + 2 * (size_t)p->cols, 0};
        p->layers[l] = (struct key_smoothing){.mean = f,
                                              .scale = f + p->cols,
                                              .inverse = f + 2 * (size_t)p->cols,
                                              .feedback = f + 3 * (size_t)p->cols,
                                              .sums = &p->sums[l]};
    }
}

static enum status make(const struct model *m, struct key_statistics **out, struct err *err) {
    struct key_statistics *p = *out = mem_zalloc(sizeof(*p));
    if (!p) return err_set(err, ST_NOMEM, "out of memory for the smoothing of keys");
    p->layer_count = m->hp.layers;
    p->head_dim = m->hp.head_dim;
    p->cols = m->hp.kv_heads * m->hp.head_dim;
    size_t floats = p->cols * (3 + (size_t)kv_feedback_stride(p->head_dim));
    size_t doubles = p->cols * (2 + (size_t)p->head_dim);
    p->layers = mem_zalloc_array(p->layer_count, sizeof(p->layers[0]));
    p->sums = mem_zalloc_array(p->layer_count, sizeof(p->sums[0]));
    p->floats = mem_zalloc_array(p->layer_count * floats, sizeof(p->floats[0]));
    p->doubles = mem_zalloc_array(p->layer_count * doubles, sizeof(p->doubles[0]));
    p->room = mem_zalloc_array((size_t)p->head_dim * p->head_dim, 2 * sizeof(p->room[0]));
    if (!p->layers || !p->sums || !p->floats || !p->doubles || !p->room)
        return err_set(err, ST_NOMEM, "out of memory for the smoothing of keys");
    share_out(p, floats, doubles);
    return ST_OK;
}

/* A model without a tokenizer runs tokens at random. */
static enum status make_tokens(const struct loaded_model *loaded, struct tokens *out,
                               struct err *err) {
    uint32_t most =
        loaded->ctx_tokens < KEY_TEXT_TOKENS_MAX ? loaded->ctx_tokens : KEY_TEXT_TOKENS_MAX;
    enum status st = ST_OK;
    struct str text = {key_text, sizeof(key_text) - 1};
    if (loaded->tokenizer)
        st = tokenizer_encode(loaded->tokenizer, text, (struct encode_options){.add_special = true},
                              out);
    for (uint64_t i = 0; !loaded->tokenizer && i < most && st == ST_OK; i++)
        st = tokens_push(out, (token_id)(rng_at(TOKENS_SEED, 0, i) % loaded->model->hp.vocab));
    if (st != ST_OK) return err_set(err, st, "out of memory for the smoothing of keys");
    if (out->count > most) out->count = most;
    return ST_OK;
}

/* One step over the tokens, which are all of one sequence. */
struct trial {
    struct kv_memory kv;
    struct pass pass;
    struct step *step;
};

static enum status trial_open(struct trial *t, struct loaded_model *loaded, uint32_t rows,
                              struct err *err) {
    uint32_t block = loaded->device.kv_block_tokens, blocks = (rows + block - 1) / block;
    struct kv_memory_options kv = {.type = KV_F32, .block_tokens = block};
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++) kv.block_counts[g] = blocks;
    TRY(kv_memory_create(loaded, &kv, &t->kv, err));
    struct pass_options pass = {.goal = GOAL_HIDDEN,
                                .sizes = {.rows_max = rows,
                                          .outputs_max = 1,
                                          .seqs_max = 1,
                                          .group_count = t->kv.group_count,
                                          .blocks_max = blocks},
                                .kv = &t->kv};
    TRY(pass_create(loaded, &pass, &t->pass, err));
    TRY(step_create(&t->step, &loaded->device, &pass.sizes, err));
    for (uint32_t g = 0; g < t->kv.group_count; g++)
        for (uint32_t b = 0; b < blocks; b++) step_blocks(t->step, 0, g)[b] = b;
    return ST_OK;
}

static void trial_close(struct trial *t, struct loaded_model *loaded) {
    step_destroy(t->step, &loaded->device);
    pass_destroy(loaded, &t->pass);
    kv_memory_destroy(loaded, &t->kv);
}

static enum status trial_run(struct trial *t, struct loaded_model *loaded,
                             const struct tokens *tokens, struct err *err) {
    struct step *step = t->step;
    struct device_result result;
    step->row_count = (uint32_t)tokens->count;
    step->output_count = step->seq_count = 1;
    step->hands_over = true;
    step->seqs[0] = (struct step_seq){0, step->row_count};
    step->output_row[0] = step->row_count - 1;
    for (uint32_t r = 0; r < step->row_count; r++) {
        step->token[r] = tokens->ids[r];
        step->pos[r] = (int32_t)r;
        step->seq[r] = 0;
    }
    return pass_run(loaded, &t->pass, step, &result, err);
}

static enum status gather(struct loaded_model *loaded, struct err *err) {
    struct tokens tokens = {0};
    struct trial t = {.step = NULL};
    enum status st = make_tokens(loaded, &tokens, err);
    if (st == ST_OK && tokens.count > 0) {
        st = trial_open(&t, loaded, (uint32_t)tokens.count, err);
        if (st == ST_OK) st = trial_run(&t, loaded, &tokens, err);
        trial_close(&t, loaded);
    }
    tokens_deinit(&tokens);
    return st;
}

/* At least a thousandth of the largest, so that no dimension that was still is blown up. */
static void raise_small(double *x, uint32_t count) {
    double largest = 0;
    for (uint32_t d = 0; d < count; d++)
        if (x[d] > largest) largest = x[d];
    for (uint32_t d = 0; d < count; d++)
        if (!(x[d] >= largest / SHARE_LEAST)) x[d] = largest / SHARE_LEAST;
}

/* Of one KV head, whose arrays begin at `first`. The squares of keys become deviations. */
static void choose_scales(const struct key_smoothing *s, uint32_t first, uint32_t head_dim,
                          bool is_capped, double *query) {
    double rows = (double)s->sums->rows;
    double *key = s->sums->key + first, *deviation = s->sums->key_squares + first;
    const double *products = s->sums->query_products + (size_t)first * head_dim;
    for (uint32_t d = 0; d < head_dim; d++) {
        double mean = is_capped ? 0 : key[d] / rows;
        s->mean[first + d] = (float)mean;
        deviation[d] = sqrt(fmax(deviation[d] / rows - mean * mean, 0));
        query[d] = sqrt(products[(size_t)d * head_dim + d] / rows);
    }
    raise_small(deviation, head_dim);
    raise_small(query, head_dim);
    for (uint32_t d = 0; d < head_dim; d++) {
        double scale = sqrt(deviation[d] / query[d]);
        bool is_usable = scale > 1e-6 && scale < 1e6; /* false for a NaN */
        s->scale[first + d] = is_usable ? (float)scale : 1.0f;
        s->inverse[first + d] = 1.0f / s->scale[first + d];
        if (!(fabsf(s->mean[first + d]) < 1e30f)) s->mean[first + d] = 0.0f;
    }
}

/* The transform of graph/kv_space.h of `count` numbers that lie `stride` apart. */
static void hadamard(double *x, uint32_t count, size_t stride) {
    uint32_t n = count & (0 - count);
    double factor = 1.0 / sqrt((double)n);
    for (uint32_t h = 1; h < n; h *= 2)
        for (uint32_t i = 0; i < count; i++) {
            if (i & h) continue;
            double a = x[i * stride], b = x[(i + h) * stride];
            x[i * stride] = a + b;
            x[(i + h) * stride] = a - b;
        }
    for (uint32_t i = 0; i < count; i++) x[i * stride] *= factor;
}

/* The second moments of a KV head's queries, smoothed and transformed. A share of their mean is
 * added to the diagonal: what few tokens show of small ones is not exact. */
static void find_moments(const struct key_smoothing *s, uint32_t first, uint32_t head_dim,
                         double *out) {
    const double *products = s->sums->query_products + (size_t)first * head_dim;
    const float *scale = s->scale + first;
    double trace = 0;
    for (uint32_t d = 0; d < head_dim; d++)
        for (uint32_t i = 0; i <= d; i++) {
            double x = products[(size_t)d * head_dim + i] * (double)scale[d] * (double)scale[i];
            out[(size_t)d * head_dim + i] = out[(size_t)i * head_dim + d] = x;
        }
    for (uint32_t d = 0; d < head_dim; d++) hadamard(out + (size_t)d * head_dim, head_dim, 1);
    for (uint32_t d = 0; d < head_dim; d++) hadamard(out + d, head_dim, head_dim);
    for (uint32_t d = 0; d < head_dim; d++) trace += out[(size_t)d * head_dim + d];
    for (uint32_t d = 0; d < head_dim; d++)
        out[(size_t)d * head_dim + d] += trace / head_dim * MOMENTS_ADDED;
}

/* The lower triangle R with R * R^T = m; false if there is none. */
static bool factorise(const double *m, uint32_t n, double *r) {
    for (uint32_t d = 0; d < n; d++)
        for (uint32_t i = 0; i <= d; i++) {
            double x = m[(size_t)d * n + i];
            for (uint32_t k = 0; k < i; k++) x -= r[(size_t)d * n + k] * r[(size_t)i * n + k];
            if (i == d && !(x > 0 && x < 1e30)) return false;
            r[(size_t)d * n + i] = i == d ? sqrt(x) : x / r[(size_t)i * n + i];
        }
    return true;
}

/* Where there is none that is usable, all of it is 0. */
static void choose_feedback(const struct key_smoothing *s, uint32_t first, uint32_t head_dim,
                            double *room) {
    double *moments = room, *r = room + (size_t)head_dim * head_dim;
    const size_t stride = kv_feedback_stride(head_dim);
    float *rows = s->feedback + first * stride;
    find_moments(s, first, head_dim, moments);
    bool is_usable = factorise(moments, head_dim, r);
    for (uint32_t d = 0; is_usable && d < head_dim; d++)
        for (uint32_t i = 0; i < d; i++) {
            double share = r[(size_t)d * head_dim + i] / r[(size_t)i * head_dim + i];
            rows[d * stride + i] = (float)share;
            is_usable = is_usable && fabs(share) < FEEDBACK_MOST; /* false for a NaN */
        }
    if (!is_usable) memset(rows, 0, head_dim * stride * sizeof(*rows));
}

static void choose_head(const struct key_smoothing *s, uint32_t first, const struct model *m,
                        double *room) {
    choose_scales(s, first, m->hp.head_dim, m->hp.attn_softcap > 0, room);
    choose_feedback(s, first, m->hp.head_dim, room);
}

enum status key_statistics_create(struct loaded_model *loaded, struct key_statistics **out,
                                  struct err *err) {
    struct model *m = loaded->model;
    enum status st = make(m, out, err);
    for (uint32_t l = 0; st == ST_OK && l < m->hp.layers; l++)
        m->layers[l].smoothing = &(*out)->layers[l];
    if (st == ST_OK) st = gather(loaded, err);
    if (st != ST_OK) {
        for (uint32_t l = 0; l < m->hp.layers; l++) m->layers[l].smoothing = NULL;
        key_statistics_destroy(*out);
        *out = NULL;
        return st;
    }
    for (uint32_t l = 0; l < m->hp.layers; l++) {
        struct key_smoothing *s = &(*out)->layers[l];
        for (uint32_t h = 0; s->sums->rows > 0 && h < m->hp.kv_heads; h++)
            choose_head(s, h * m->hp.head_dim, m, (*out)->room);
        if (s->sums->rows == 0) m->layers[l].smoothing = NULL;
        s->sums = NULL;
    }
    mem_free((*out)->doubles);
    mem_free((*out)->room);
    (*out)->doubles = (*out)->room = NULL;
    return ST_OK;
}
