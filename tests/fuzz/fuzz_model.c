/* fuzz/fuzz_model.c - a GGUF file that an attacker wrote, all the way to its logits.
 *
 * Opened, its tokenizer and its weights found, its passes written and made into programs; where it
 * is small enough the reference kernels then run two rows on a copy of nothing but what the file
 * gave. A refusal is one sentence; whatever is accepted must run without a fault.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/mem.h"
#include "format/format_int.h"
#include "graph/device.h"
#include "graph/step.h"
#include "graph/tape.h"
#include "kernels/cpu/cpu.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include "unit/format/use_model.h"

enum {
    CTX_TOKENS = 32,
    BLOCK_TOKENS = 16,
    ROWS = 2,
    RUN_FLOPS_MAX = 1 << 22, /* what is run must not take the fuzzer's time */
    SLAB_BYTES_MAX = 1 << 24,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum status prepare(void *ctx, struct weight *w, struct err *err) {
    struct device *d = ctx;
    return d->prepare(d->self, w, err);
}

/* Where the rows' keys and values go. */
static bool make_kv(const struct model *m, struct device *d, struct kv_space *spaces) {
    for (uint32_t g = 0; g < m->kv_group_count; g++) {
        spaces[g] = (struct kv_space){.shape = {.type = KV_F16,
                                                .layers = m->kv_group_layers[g],
                                                .heads = m->hp.kv_heads,
                                                .head_dim = m->hp.head_dim,
                                                .block_tokens = BLOCK_TOKENS},
                                      .block_count = CTX_TOKENS / BLOCK_TOKENS};
        spaces[g].block_bytes = d->kv_block_bytes(d->self, &spaces[g].shape);
        size_t bytes = spaces[g].block_count * spaces[g].block_bytes;
        if (bytes > SLAB_BYTES_MAX) return false;
        spaces[g].base = d->alloc(d->self, bytes);
        if (!spaces[g].base) return false;
    }
    return true;
}

static void fill_step(const struct model *m, struct step *s) {
    s->row_count = s->output_count = s->seqs[0].row_count = ROWS;
    s->seq_count = 1;
    s->hands_over = true;
    for (uint32_t r = 0; r < ROWS; r++) {
        s->token[r] = r == 0 ? 0 : (int32_t)m->hp.vocab - 1;
        s->pos[r] = (int32_t)r;
        s->output_row[r] = r;
    }
    for (uint32_t g = 0; g < s->sizes.group_count; g++)
        for (uint32_t b = 0; b < s->sizes.blocks_max; b++) step_blocks(s, 0, g)[b] = b;
}

static void run_step(const struct model *m, struct device *d, struct device_program *p,
                     const struct step_sizes *sizes, struct err *err) {
    struct step *step;
    struct device_result result;
    if (step_create(&step, d, sizes, err) != ST_OK) return;
    fill_step(m, step);
    CHECK(d->submit(d->self, p, step, err) == ST_OK);
    CHECK(d->collect(d->self, p, &result, err) == ST_OK);
    step_destroy(step, d);
}

static void run_rows(const struct model *m, struct device *d, const struct tape *t,
                     struct err *err) {
    struct kv_space spaces[KV_GROUPS_MAX] = {{.base = 0}};
    struct device_program *p = NULL;
    struct program_options o = {.tape = t,
                                .kv = spaces,
                                .kv_group_count = m->kv_group_count,
                                .sizes = {.rows_max = ROWS,
                                          .outputs_max = ROWS,
                                          .seqs_max = 1,
                                          .group_count = m->kv_group_count,
                                          .blocks_max = CTX_TOKENS / BLOCK_TOKENS}};
    bool is_short = model_is_encoder(m) && m->hp.max_positions < ROWS;
    if (make_kv(m, d, spaces) && d->program_create(d->self, &o, &p, err) == ST_OK && !is_short)
        run_step(m, d, p, &o.sizes, err);
    d->program_destroy(d->self, p);
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
        if (spaces[g].base)
            d->free(d->self, spaces[g].base, spaces[g].block_count * spaces[g].block_bytes);
}

static bool is_cheap(const struct tape *t) {
    uint64_t flops = 0;
    for (uint32_t i = 0; i < tape_op_count(t); i++) flops += tape_op_cost(t, i, ROWS, ROWS).flops;
    return flops < RUN_FLOPS_MAX && tape_slab_bytes(t) < SLAB_BYTES_MAX;
}

static void run_pass(struct model *m, struct device *d, const struct tape *t, struct err *err) {
    if (!is_cheap(t) || model_each_weight(m, prepare, d, err) != ST_OK) return;
    run_rows(m, d, t, err);
}

static void build_pass(struct model *m, const char *isa) {
    struct tape *t;
    struct device d;
    struct err err = {{0}};
    if (tape_create(&t) != ST_OK) return;
    model_build(m, model_is_encoder(m) ? GOAL_POOLED : GOAL_LOGITS, t);
    enum status st = tape_finish(t, &(struct tape_sizes){ROWS, ROWS, 1}, &err);
    CHECK(st == ST_OK || err.text[0]);
    if (st == ST_OK && cpu_device_open(isa, 1, &d, &err) == ST_OK) {
        run_pass(m, &d, t, &err);
        d.close(d.self);
    }
    tape_destroy(t);
}

static void use_weights(const struct model_file *f, const char *isa) {
    struct err err = {{0}};
    struct model *m;
    enum status st = model_open(f, &(struct model_options){.ctx_tokens = CTX_TOKENS}, &m, &err);
    CHECK(st == ST_OK || is_sentence(&err, "fuzz") || st == ST_NOMEM);
    if (st != ST_OK) return;
    CHECK(model_param_count(m) > 0);
    build_pass(m, isa);
    model_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err = {{0}};
    struct model_file *f;
    struct str bytes = {(const char *)data, size};
    if (gguf_open_memory(bytes, "fuzz", &f, &err) != ST_OK) return 0;
    struct tokenizer *tokenizer = NULL;
    if (tokenizer_create(f, &tokenizer, &err) != ST_OK) CHECK(is_sentence(&err, "fuzz"));
    tokenizer_destroy(tokenizer);
    use_weights(f, "ref");
    use_weights(f, "portable");
    model_file_close(f);
    return 0;
}
