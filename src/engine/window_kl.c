/* engine/window_kl.c - see engine/window_kl.h for the contract. */
#include "engine/window_kl.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/pool.h"
#include "engine/loaded_model.h"
#include "graph/step.h"
#include "quant/divergence.h"

struct window_kl {
    struct loaded_model *loaded;
    struct window_kl_options options;
    struct pool *pool;
    uint32_t vocab, row_count; /* rows of one window that are compared */
    float *rows;               /* heap; of the model as it was: [windows][row_count][vocab] */
    double *kl;                /* heap; [row_count] */
    /* one window, in compare_rows */
    const float *before;
    const struct device_result *now;
};

/* ---- the forward pass ---- */

struct window_pass {
    struct kv_memory kv;
    struct pass pass;
    struct step *step; /* NULL until it is made */
};

static enum status pass_open(const struct window_kl *w, struct window_pass *p, struct err *err) {
    struct loaded_model *loaded = w->loaded;
    uint32_t rows = w->options.window_tokens, block = loaded->device.kv_block_tokens;
    uint32_t blocks = (rows + block - 1) / block;
    struct kv_memory_options kv = {.type = w->options.kv_type, .block_tokens = block};
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++) kv.block_counts[g] = blocks;
    TRY(kv_memory_create(loaded, &kv, &p->kv, err));
    const struct pass_options pass = {.goal = GOAL_LOGITS,
                                      .sizes = {.rows_max = rows,
                                                .outputs_max = w->row_count,
                                                .seqs_max = 1,
                                                .group_count = p->kv.group_count,
                                                .blocks_max = blocks},
                                      .kv = &p->kv};
    TRY(pass_create(loaded, &pass, &p->pass, err));
    TRY(step_create(&p->step, &loaded->device, &pass.sizes, err));
    for (uint32_t g = 0; g < p->kv.group_count; g++)
        for (uint32_t b = 0; b < blocks; b++) step_blocks(p->step, 0, g)[b] = b;
    return ST_OK;
}

static void pass_close(const struct window_kl *w, struct window_pass *p) {
    if (p->step) step_destroy(p->step, &w->loaded->device);
    pass_destroy(w->loaded, &p->pass);
    kv_memory_destroy(w->loaded, &p->kv);
}

static enum status pass_window(const struct window_kl *w, struct window_pass *p, uint32_t window,
                               struct device_result *out, struct err *err) {
    const int32_t *ids = w->options.ids + window * w->options.stride;
    struct step *step = p->step;
    step->row_count = w->options.window_tokens;
    step->output_count = w->row_count;
    step->seq_count = 1;
    step->hands_over = true;
    step->seqs[0] = (struct step_seq){0, step->row_count};
    for (uint32_t r = 0; r < step->row_count; r++) {
        step->token[r] = ids[r];
        step->pos[r] = (int32_t)r;
        step->seq[r] = 0;
    }
    for (uint32_t i = 0; i < w->row_count; i++) step->output_row[i] = w->options.first + i;
    return pass_run(w->loaded, &p->pass, step, out, err);
}

/* ---- comparing ---- */

static float *rows_at(const struct window_kl *w, uint32_t window) {
    return w->rows + (size_t)window * w->row_count * w->vocab;
}

static enum status keep_rows(struct window_kl *w, struct window_pass *p, struct err *err) {
    struct device_result result;
    TRY(pass_open(w, p, err));
    for (uint32_t i = 0; i < w->options.windows; i++) {
        TRY(pass_window(w, p, i, &result, err));
        for (uint32_t r = 0; r < w->row_count; r++)
            memcpy(rows_at(w, i) + (size_t)r * w->vocab, result.rows + r * result.row_floats,
                   w->vocab * sizeof(float));
    }
    return ST_OK;
}

static void compare_rows(void *ctx, uint32_t thread, uint32_t threads) {
    struct window_kl *w = ctx;
    for (uint32_t r = thread; r < w->row_count; r += threads)
        w->kl[r] = divergence_kl(w->before + (size_t)r * w->vocab,
                                 w->now->rows + r * w->now->row_floats, w->vocab);
}

static enum status compare_windows(struct window_kl *w, struct window_pass *p, double *sum,
                                   struct err *err) {
    struct device_result result;
    TRY(pass_open(w, p, err));
    for (uint32_t i = 0; i < w->options.windows; i++) {
        TRY(pass_window(w, p, i, &result, err));
        w->before = rows_at(w, i);
        w->now = &result;
        pool_run(w->pool, compare_rows, w);
        for (uint32_t r = 0; r < w->row_count; r++) *sum += w->kl[r];
    }
    return ST_OK;
}

static enum status create(struct window_kl *w, struct err *err) {
    uint32_t threads = w->options.threads ? w->options.threads : pool_default_threads();
    size_t rows = (size_t)w->options.windows * w->row_count;
    struct window_pass p = {.step = NULL};
    TRY(pool_create(&w->pool, threads, err));
    w->rows = mem_alloc_array(rows * w->vocab, sizeof(w->rows[0]));
    w->kl = mem_alloc_array(w->row_count, sizeof(w->kl[0]));
    if (!w->rows || !w->kl)
        return err_set(err, ST_NOMEM, "out of memory for the logits of %zu positions", rows);
    enum status st = keep_rows(w, &p, err);
    pass_close(w, &p);
    return st;
}

void window_kl_spread(const struct window_kl_text *text, uint32_t windows_max, uint32_t tokens_max,
                      struct window_kl_options *out) {
    CHECK(text->windows > 0);
    out->windows = text->windows < windows_max ? text->windows : windows_max;
    out->window_tokens = text->window_tokens < tokens_max ? text->window_tokens : tokens_max;
    out->stride = (size_t)(text->windows / out->windows) * text->window_tokens;
    out->ids = text->ids;
}

enum status window_kl_create(struct loaded_model *loaded, const struct window_kl_options *options,
                             struct window_kl **out, struct err *err) {
    CHECK(options->windows > 0);
    CHECK(options->first + 1 < options->window_tokens);
    struct window_kl *w = mem_zalloc(sizeof(*w));
    if (!w) return err_set(err, ST_NOMEM, "out of memory");
    w->loaded = loaded;
    w->options = *options;
    w->vocab = loaded->model->hp.vocab;
    w->row_count = options->window_tokens - 1 - options->first;
    enum status st = create(w, err);
    if (st == ST_OK)
        *out = w;
    else
        window_kl_destroy(w);
    return st;
}

void window_kl_destroy(struct window_kl *w) {
    if (!w) return;
    pool_destroy(w->pool);
    mem_free(w->rows);
    mem_free(w->kl);
    mem_free(w);
}

enum status window_kl_measure(struct window_kl *w, double *kl, struct err *err) {
    struct window_pass p = {.step = NULL};
    double sum = 0;
    enum status st = compare_windows(w, &p, &sum, err);
    pass_close(w, &p);
    *kl = sum / ((double)w->options.windows * w->row_count);
    return st;
}
