/* engine/engine.c - opening a model and running steps on it; see engine/engine.h.
 *
 * Entry points: engine_open, engine_close, engine_logits, engine_embed, engine_run, and the
 * getters at the end. engine/generate.c has engine_generate.
 */
#include "engine/engine.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/pool.h"
#include "engine/engine_int.h"
#include "format/model_file.h"
#include "graph/tape.h"
#include "kernels/cpu/cpu.h"
#include "model/arch.h"
#include "model/model.h"
#include "text/tokenizer.h"

enum { CHUNK_DEFAULT = 256, CHUNK_MAX = 4096, CTX_DEFAULT_MAX = 8192, CTX_MAX = 1 << 24 };

struct loading {
    struct engine *e;
    const struct engine_options *options;
    size_t done, total;
};

static void report(const struct loading *l, const char *stage, double share) {
    if (l->options->on_progress) l->options->on_progress(l->options->progress_ctx, stage, share);
}

static enum status count_weight(void *ctx, struct weight *w, struct err *err) {
    (void)w;
    (void)err;
    ((struct loading *)ctx)->total++;
    return ST_OK;
}

static enum status prepare_weight(void *ctx, struct weight *w, struct err *err) {
    struct loading *l = ctx;
    TRY(l->e->device.prepare(l->e->device.self, w, err));
    l->done++;
    report(l, "weights", (double)l->done / (double)l->total);
    return ST_OK;
}

/* Prepared weights are read from the device's memory; embeddings still from the file. */
static void release_file_pages(struct engine *e) {
    const struct model *m = e->model;
    const void *kept[] = {m->token_embd.data, m->pos_embd.data, m->type_embd.data};
    for (size_t i = 0; i < tensor_count(e->file); i++) {
        const struct tensor_info *t = tensor_at(e->file, i);
        bool is_kept = false;
        for (size_t k = 0; k < sizeof(kept) / sizeof(kept[0]); k++)
            if (t->data == kept[k]) is_kept = true;
        if (!is_kept) tensor_release(e->file, t);
    }
}

static enum status choose_sizes(struct engine *e, const struct engine_options *o, struct err *err) {
    const struct hparams *hp = &e->model->hp;
    uint32_t ctx = o->ctx_tokens;
    if (model_is_encoder(e->model)) {
        e->ctx_tokens = hp->max_positions;
        e->chunk_tokens = hp->max_positions;
        return ST_OK;
    }
    if (ctx == 0) ctx = hp->ctx_train < CTX_DEFAULT_MAX ? hp->ctx_train : CTX_DEFAULT_MAX;
    if (ctx > CTX_MAX)
        return err_set(err, ST_BAD, "a context of %u tokens was asked for, at most %u is possible",
                       ctx, CTX_MAX);
    e->ctx_tokens = ctx;
    e->chunk_tokens = o->chunk_tokens ? o->chunk_tokens : CHUNK_DEFAULT;
    if (e->chunk_tokens > CHUNK_MAX) e->chunk_tokens = CHUNK_MAX;
    if (e->chunk_tokens > ctx) e->chunk_tokens = ctx;
    return ST_OK;
}

static enum status make_tables(struct engine *e, struct err *err) {
    size_t rows = e->chunk_tokens, ctx = e->ctx_tokens;
    size_t blocks = (ctx + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    e->token = mem_zalloc_array(rows, sizeof(*e->token));
    e->pos = mem_zalloc_array(rows, sizeof(*e->pos));
    e->seq = mem_zalloc_array(rows, sizeof(*e->seq));
    e->output_row = mem_zalloc_array(rows, sizeof(*e->output_row));
    e->blocks = mem_zalloc_array(blocks, sizeof(*e->blocks));
    e->cached = mem_zalloc_array(ctx, sizeof(*e->cached));
    if (!e->token || !e->pos || !e->seq || !e->output_row || !e->blocks || !e->cached)
        return err_set(err, ST_NOMEM, "out of memory for a context of %u tokens", e->ctx_tokens);
    for (uint32_t b = 0; b < blocks; b++) e->blocks[b] = b;
    return ST_OK;
}

static enum status make_kv(struct engine *e, enum kv_type type, struct err *err) {
    const struct model *m = e->model;
    if (model_is_encoder(m)) return ST_OK;
    for (uint32_t g = 0; g < m->kv_group_count; g++) {
        struct kv_space *kv = &e->kv[g];
        *kv = (struct kv_space){.type = type,
                                .layers = m->kv_group_layers[g],
                                .heads = m->hp.kv_heads,
                                .head_dim = m->hp.head_dim,
                                .block_count =
                                    (e->ctx_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS};
        kv->base = e->device.alloc(e->device.self, kv_space_bytes(kv));
        if (!kv->base)
            return err_set(
                err, ST_NOMEM,
                "no memory for %zu MiB of KV cache (%u tokens); a smaller --ctx needs less",
                kv_space_bytes(kv) >> 20, e->ctx_tokens);
    }
    return ST_OK;
}

enum status engine_make_pass(struct engine *e, int goal, struct engine_pass *out, struct err *err) {
    struct tape_sizes sizes = {e->chunk_tokens, e->chunk_tokens, 1};
    if (tape_create(&out->tape) != ST_OK)
        return err_set(err, ST_NOMEM, "out of memory for the forward pass");
    model_build(e->model, (enum model_goal)goal, out->tape);
    TRY(tape_finish(out->tape, &sizes, err));
    TRY(e->device.check(e->device.self, out->tape, err));
    out->slab = e->device.alloc(e->device.self, tape_slab_bytes(out->tape));
    if (out->slab) return ST_OK;
    return err_set(err, ST_NOMEM, "no memory for %zu MiB of scratch; a smaller --chunk needs less",
                   tape_slab_bytes(out->tape) >> 20);
}

static void free_pass(struct engine *e, struct engine_pass *pass) {
    if (pass->slab) e->device.free(e->device.self, pass->slab, tape_slab_bytes(pass->tape));
    tape_destroy(pass->tape);
}

static enum status load(struct engine *e, const char *path, const struct engine_options *o,
                        struct err *err) {
    struct loading l = {.e = e, .options = o};
    report(&l, "file", 0);
    TRY(model_file_open(path, &e->file, err));
    if (!o->tokens_only) TRY(tokenizer_create(e->file, &e->tokenizer, err));
    TRY(model_open(e->file, &(struct model_options){.ctx_tokens = o->ctx_tokens}, &e->model, err));
    e->threads = o->threads ? o->threads : pool_default_threads();
    TRY(cpu_device_open(o->isa ? o->isa : "auto", e->threads, &e->device, err));
    e->device_open = true;
    TRY(choose_sizes(e, o, err));
    TRY(model_each_weight(e->model, count_weight, &l, err));
    TRY(model_each_weight(e->model, prepare_weight, &l, err));
    release_file_pages(e);
    TRY(make_tables(e, err));
    TRY(make_kv(e, o->kv_type, err));
    int goal = model_is_encoder(e->model) ? GOAL_POOLED : GOAL_LOGITS;
    return engine_make_pass(e, goal, &e->logits, err);
}

enum status engine_open(const char *path, const struct engine_options *options, struct engine **out,
                        struct err *err) {
    CHECK(options);
    struct engine *e = mem_zalloc(sizeof(*e));
    if (!e) return err_set(err, ST_NOMEM, "out of memory while opening %s", path);
    enum status st = load(e, path, options, err);
    if (st == ST_OK)
        *out = e;
    else
        engine_close(e);
    return st;
}

void engine_close(struct engine *e) {
    if (!e) return;
    free_pass(e, &e->hidden);
    free_pass(e, &e->logits);
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
        if (e->kv[g].base) e->device.free(e->device.self, e->kv[g].base, kv_space_bytes(&e->kv[g]));
    if (e->device_open) e->device.close(e->device.self);
    mem_free(e->token);
    mem_free(e->pos);
    mem_free(e->seq);
    mem_free(e->output_row);
    mem_free(e->blocks);
    mem_free(e->cached);
    model_close(e->model);
    tokenizer_destroy(e->tokenizer);
    model_file_close(e->file);
    mem_free(e);
}

static uint32_t fill_outputs(struct engine *e, uint32_t count, enum row_choice rows) {
    uint32_t outputs = rows == ROWS_ALL ? count : rows == ROWS_LAST ? 1 : 0;
    for (uint32_t r = 0; r < outputs; r++) e->output_row[r] = count - outputs + r;
    return outputs;
}

const float *engine_run(struct engine *e, const struct engine_pass *pass, const int32_t *ids,
                        uint32_t count, uint32_t first_pos, enum row_choice rows,
                        size_t *row_floats) {
    CHECK(count > 0);
    CHECK(count <= e->chunk_tokens);
    CHECK(first_pos + count <= e->ctx_tokens);
    for (uint32_t i = 0; i < count; i++) {
        e->token[i] = ids[i];
        e->pos[i] = (int32_t)(first_pos + i);
    }
    struct step_seq seq = {.first_row = 0, .row_count = count};
    for (int g = 0; g < KV_GROUPS_MAX; g++) seq.blocks[g] = e->blocks;
    struct step step = {.row_count = count,
                        .output_count = fill_outputs(e, count, rows),
                        .seq_count = 1,
                        .token = e->token,
                        .pos = e->pos,
                        .seq = e->seq,
                        .output_row = e->output_row,
                        .seqs = &seq};
    struct device_run run = {
        .tape = pass->tape, .step = &step, .slab = pass->slab, .kv = e->kv[0].base ? e->kv : NULL};
    e->device.run(e->device.self, &run);
    const struct tape_value *out = tape_value_at(pass->tape, tape_output(pass->tape));
    if (row_floats) *row_floats = out->row_bytes / sizeof(float);
    return (const float *)(const void *)(pass->slab + out->offset);
}

enum status engine_check_ids(const struct engine *e, const int32_t *ids, uint32_t count,
                             struct err *err) {
    if (count == 0) return err_set(err, ST_BAD, "the prompt is empty, expected at least one token");
    if (count > e->ctx_tokens)
        return err_set(err, ST_BAD, "the prompt has %u tokens and the context holds %u", count,
                       e->ctx_tokens);
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= e->model->hp.vocab)
            return err_set(err, ST_BAD, "token %u is %d, the model's vocabulary has 0 to %u", i,
                           ids[i], e->model->hp.vocab - 1);
    return ST_OK;
}

static enum status need_decoder(const struct engine *e, struct err *err) {
    if (!model_is_encoder(e->model)) return ST_OK;
    return err_set(err, ST_BAD, "%s: is an encoder (%s): it gives embeddings and cannot generate",
                   model_file_path(e->file), e->model->arch->name);
}

/* Hand rows to the callback one after the other where padding separates them, all at once where
 * it does not. */
static enum status hand_rows(const struct engine *e, const float *rows, size_t row_floats,
                             uint32_t first_pos, uint32_t count, logits_fn *fn, void *ctx) {
    if (row_floats == e->model->hp.vocab) return fn(ctx, first_pos, count, rows);
    for (uint32_t r = 0; r < count; r++) TRY(fn(ctx, first_pos + r, 1, rows + r * row_floats));
    return ST_OK;
}

enum status engine_logits(struct engine *e, const int32_t *ids, uint32_t count, logits_fn *fn,
                          void *ctx, struct err *err) {
    TRY(need_decoder(e, err));
    TRY(engine_check_ids(e, ids, count, err));
    e->cached_count = 0;
    for (uint32_t pos = 0; pos < count;) {
        uint32_t rows = count - pos < e->chunk_tokens ? count - pos : e->chunk_tokens;
        size_t row_floats;
        const float *logits =
            engine_run(e, &e->logits, ids + pos, rows, pos, ROWS_ALL, &row_floats);
        TRY(hand_rows(e, logits, row_floats, pos, rows, fn, ctx));
        pos += rows;
    }
    return ST_OK;
}

static void scale_to_unit(float *v, uint32_t dims) {
    double sum = 0;
    for (uint32_t i = 0; i < dims; i++) sum += (double)v[i] * (double)v[i];
    double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (uint32_t i = 0; i < dims; i++) v[i] = (float)(v[i] * scale);
}

/* A decoder's embedding: the mean of its last hidden states, to unit length. Added up in the
 * order of positions, so chunks change nothing. */
static enum status embed_decoder(struct engine *e, const int32_t *ids, uint32_t count, float *out,
                                 struct err *err) {
    uint32_t dims = e->model->hp.dim;
    if (!e->hidden.slab) TRY(engine_make_pass(e, GOAL_HIDDEN, &e->hidden, err));
    memset(out, 0, dims * sizeof(float));
    e->cached_count = 0;
    for (uint32_t pos = 0; pos < count;) {
        uint32_t rows = count - pos < e->chunk_tokens ? count - pos : e->chunk_tokens;
        size_t row_floats;
        const float *hidden =
            engine_run(e, &e->hidden, ids + pos, rows, pos, ROWS_ALL, &row_floats);
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t i = 0; i < dims; i++) out[i] += hidden[r * row_floats + i];
        pos += rows;
    }
    scale_to_unit(out, dims);
    return ST_OK;
}

enum status engine_embed(struct engine *e, const int32_t *ids, uint32_t count, float *out,
                         struct err *err) {
    TRY(engine_check_ids(e, ids, count, err));
    if (!model_is_encoder(e->model)) return embed_decoder(e, ids, count, out, err);
    const float *pooled = engine_run(e, &e->logits, ids, count, 0, ROWS_NONE, NULL);
    memcpy(out, pooled, e->model->hp.dim * sizeof(float));
    return ST_OK;
}

uint32_t engine_embed_dims(const struct engine *e) { return e->model->hp.dim; }
struct model_file *engine_file(const struct engine *e) {
    return e->file;
}
const struct tokenizer *engine_tokenizer(const struct engine *e) { return e->tokenizer; }
const struct model *engine_model(const struct engine *e) { return e->model; }
const struct tape *engine_tape(const struct engine *e) { return e->logits.tape; }
uint32_t engine_vocab(const struct engine *e) { return e->model->hp.vocab; }
uint32_t engine_ctx_tokens(const struct engine *e) { return e->ctx_tokens; }
const char *engine_isa(const struct engine *e) { return e->device.name; }
uint32_t engine_threads(const struct engine *e) { return e->threads; }
bool engine_is_encoder(const struct engine *e) { return model_is_encoder(e->model); }
