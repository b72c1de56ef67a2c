/* model/head.c - see model/head.h for the contract. */
#include "model/head.h"

#include "format/model_file.h"
#include "model/arch.h"
#include "model/blocks.h"

static enum status check_number(const struct model *m, const char *key, uint32_t got,
                                uint32_t expected, struct err *err) {
    if (got == expected) return ST_OK;
    return err_set(err, ST_BAD,
                   "%s: %s is %u, the target %s has %u. Use a head that was made for this target",
                   model_file_path(m->file), key, got, model_file_path(m->target->file), expected);
}

enum status head_check(const struct model *m, struct err *err) {
    const char *path = model_file_path(m->file);
    if (model_file_kind(m->file) != MODEL_HF)
        return err_set(err, ST_BAD, "%s: is a GGUF file, expected the folder of a draft head",
                       path);
    if (m->arch->build_layer != block_layer)
        return err_set(err, ST_BAD,
                       "%s: draft heads of architecture %s are not supported, expected layers as "
                       "llama, mistral, qwen2 or qwen3 have them",
                       path, m->arch->name);
    if (!m->target->head)
        return err_set(err, ST_BAD, "%s: the target %s has no output matrix", path,
                       model_file_path(m->target->file));
    TRY(check_number(m, "hidden_size", m->hp.dim, m->target->hp.dim, err));
    return check_number(m, "vocab_size", m->hp.vocab, m->target->hp.vocab, err);
}

void head_build(const struct model *m, enum model_goal goal, struct tape *t) {
    uint32_t dim = m->hp.dim;
    struct flow f = {.m = m, .t = t};
    f.x = tape_all(t, tape_value(t, "pair", ROWS_TOKENS, VALUE_F32, 2 * dim));
    tape_push(t, &(struct op){.kind = OP_EMBED,
                              .embed = {.table = &m->token_embd,
                                        .source = EMBED_TOKEN,
                                        .scale = m->hp.embed_scale,
                                        .dst = operand_slice(f.x, 0, dim)}});
    tape_push(t, &(struct op){.kind = OP_INPUT, .input = {.dst = operand_slice(f.x, dim, dim)}});
    struct matmul_part fc = {&m->fc, m->fc_bias};
    f.x = block_matmul(&f, "x", f.x, &fc, 1);
    for (uint32_t l = 0; l < m->hp.layers; l++) block_layer(&f, l);
    flow_head(&f, goal, f.x);
}
