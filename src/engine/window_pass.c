/* engine/window_pass.c - see engine/window_pass.h for the contract. */
#include "engine/window_pass.h"

#include "base/check.h"
#include "base/mem.h"
#include "engine/loaded_model.h"
#include "graph/step.h"

struct window_pass {
    struct loaded_model *loaded;
    struct window_pass_options options;
    struct kv_memory kv;
    struct pass pass;
    struct step *step; /* NULL until it is made */
};

static enum status create(struct window_pass *w, struct err *err) {
    struct loaded_model *loaded = w->loaded;
    uint32_t rows = w->options.window_tokens, block = loaded->device.kv_block_tokens;
    uint32_t blocks = (rows + block - 1) / block;
    struct kv_memory_options kv = {.type = w->options.kv_type, .block_tokens = block};
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++) kv.block_counts[g] = blocks;
    TRY(kv_memory_create(loaded, &kv, &w->kv, err));
    const struct pass_options pass = {.goal = GOAL_LOGITS,
                                      .sizes = {.rows_max = rows,
                                                .outputs_max = rows - 1 - w->options.first,
                                                .seqs_max = 1,
                                                .group_count = w->kv.group_count,
                                                .blocks_max = blocks},
                                      .kv = &w->kv};
    TRY(pass_create(loaded, &pass, &w->pass, err));
    TRY(step_create(&w->step, &loaded->device, &pass.sizes, err));
    for (uint32_t g = 0; g < w->kv.group_count; g++)
        for (uint32_t b = 0; b < blocks; b++) step_blocks(w->step, 0, g)[b] = b;
    return ST_OK;
}

enum status window_pass_create(struct loaded_model *loaded,
                               const struct window_pass_options *options, struct window_pass **out,
                               struct err *err) {
    CHECK(options->first + 1 < options->window_tokens);
    struct window_pass *w = mem_zalloc(sizeof(*w));
    if (!w) return err_set(err, ST_NOMEM, "out of memory for a forward pass");
    w->loaded = loaded;
    w->options = *options;
    enum status st = create(w, err);
    if (st == ST_OK)
        *out = w;
    else
        window_pass_destroy(w);
    return st;
}

void window_pass_destroy(struct window_pass *w) {
    if (!w) return;
    if (w->step) step_destroy(w->step, &w->loaded->device);
    pass_destroy(w->loaded, &w->pass);
    kv_memory_destroy(w->loaded, &w->kv);
    mem_free(w);
}

enum status window_pass_run(struct window_pass *w, const int32_t *ids, struct window_logits *out,
                            struct err *err) {
    struct step *step = w->step;
    struct device_result result;
    step->row_count = w->options.window_tokens;
    step->output_count = step->row_count - 1 - w->options.first;
    step->seq_count = 1;
    step->hands_over = true;
    step->seqs[0] = (struct step_seq){0, step->row_count};
    for (uint32_t r = 0; r < step->row_count; r++) {
        step->token[r] = ids[r];
        step->pos[r] = (int32_t)r;
        step->seq[r] = 0;
    }
    for (uint32_t i = 0; i < step->output_count; i++) step->output_row[i] = w->options.first + i;
    TRY(pass_run(w->loaded, &w->pass, step, &result, err));
    *out = (struct window_logits){result.rows, result.row_floats, step->output_count};
    return ST_OK;
}
