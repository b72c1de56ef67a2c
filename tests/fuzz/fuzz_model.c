/* fuzz/fuzz_model.c - a GGUF file that an attacker wrote, all the way to its logits.
 *
 * Opened, its tokenizer and its weights found, its passes written, checked and planned; where it
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
        spaces[g] = (struct kv_space){.type = KV_F16,
                                      .layers = m->kv_group_layers[g],
                                      .heads = m->hp.kv_heads,
                                      .head_dim = m->hp.head_dim,
                                      .block_count = CTX_TOKENS / KV_BLOCK_TOKENS};
        if (kv_space_bytes(&spaces[g]) > SLAB_BYTES_MAX) return false;
        spaces[g].base = d->alloc(d->self, kv_space_bytes(&spaces[g]));
        if (!spaces[g].base) return false;
    }
    return true;
}

static void run_rows(const struct model *m, struct device *d, const struct tape *t, uint8_t *slab) {
    struct kv_space spaces[KV_GROUPS_MAX] = {{.base = NULL}};
    uint32_t blocks[CTX_TOKENS / KV_BLOCK_TOKENS] = {0, 1}, seq[ROWS] = {0}, out[ROWS] = {0, 1};
    int32_t token[ROWS] = {0, (int32_t)m->hp.vocab - 1}, pos[ROWS] = {0, 1};
    struct step_seq one = {.row_count = ROWS};
    for (int g = 0; g < KV_GROUPS_MAX; g++) one.blocks[g] = blocks;
    struct step step = {.row_count = ROWS,
                        .output_count = ROWS,
                        .seq_count = 1,
                        .token = token,
                        .pos = pos,
                        .seq = seq,
                        .output_row = out,
                        .seqs = &one};
    bool is_short = model_is_encoder(m) && m->hp.max_positions < ROWS;
    if (!is_short && make_kv(m, d, spaces))
        d->run(d->self, &(struct device_run){.tape = t, .step = &step, .slab = slab, .kv = spaces});
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
        if (spaces[g].base) d->free(d->self, spaces[g].base, kv_space_bytes(&spaces[g]));
}

static bool is_cheap(const struct tape *t) {
    uint64_t flops = 0;
    for (uint32_t i = 0; i < tape_op_count(t); i++) flops += tape_op_cost(t, i, ROWS, ROWS).flops;
    return flops < RUN_FLOPS_MAX && tape_slab_bytes(t) < SLAB_BYTES_MAX;
}

static void run_pass(struct model *m, struct device *d, const struct tape *t, struct err *err) {
    if (!is_cheap(t) || d->check(d->self, t, err) != ST_OK) return;
    if (model_each_weight(m, prepare, d, err) != ST_OK) return;
    uint8_t *slab = d->alloc(d->self, tape_slab_bytes(t));
    if (slab) run_rows(m, d, t, slab);
    if (slab) d->free(d->self, slab, tape_slab_bytes(t));
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
