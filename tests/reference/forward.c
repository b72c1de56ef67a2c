/* reference/forward.c - see reference/forward.h for the contract. */
#include "reference/forward.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/mean.h"
#include "format/model_file.h"
#include "graph/step.h"
#include "model/arch.h"

enum { CHUNK_DEFAULT = 256, CHUNK_MAX = 4096 };

struct forward {
    struct loaded_model loaded;
    struct pass logits; /* or the pooled pass of an encoder */
    struct pass hidden; /* of a decoder; made for its first embedding */
    struct kv_memory kv;
    uint32_t ctx_tokens, chunk_tokens;
    struct step *step; /* one sequence, its blocks in order */
};

/* Tokens, at most chunk_tokens, at positions first_pos and up. */
struct row_tokens {
    const int32_t *ids;
    uint32_t count, first_pos;
};

static void choose_sizes(struct forward *e, const struct forward_options *o) {
    e->ctx_tokens = e->loaded.ctx_tokens;
    e->chunk_tokens = o->chunk_tokens ? o->chunk_tokens : CHUNK_DEFAULT;
    if (e->chunk_tokens > CHUNK_MAX) e->chunk_tokens = CHUNK_MAX;
    bool is_whole = model_is_encoder(e->loaded.model); /* its rows see each other */
    if (is_whole || e->chunk_tokens > e->ctx_tokens) e->chunk_tokens = e->ctx_tokens;
}

static uint32_t blocks_of_context(const struct forward *e) {
    uint32_t block_tokens = e->loaded.device.kv_block_tokens;
    return (e->ctx_tokens + block_tokens - 1) / block_tokens;
}

/* Every token of a chunk is an output; nothing is sampled. */
static struct step_sizes sizes_of(const struct forward *e) {
    return (struct step_sizes){.rows_max = e->chunk_tokens,
                               .outputs_max = e->chunk_tokens,
                               .seqs_max = 1,
                               .group_count = e->kv.group_count,
                               .blocks_max = blocks_of_context(e)};
}

static enum status make_tables(struct forward *e, struct err *err) {
    struct step_sizes sizes = sizes_of(e);
    TRY(step_create(&e->step, &e->loaded.device, &sizes, err));
    for (uint32_t g = 0; g < e->kv.group_count; g++)
        for (uint32_t b = 0; b < sizes.blocks_max; b++) step_blocks(e->step, 0, g)[b] = b;
    return ST_OK;
}

static enum status make_kv(struct forward *e, enum kv_type type, struct err *err) {
    struct kv_memory_options o = {.type = type, .block_tokens = e->loaded.device.kv_block_tokens};
    if (model_is_encoder(e->loaded.model)) return ST_OK;
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++) o.block_counts[g] = blocks_of_context(e);
    return kv_memory_create(&e->loaded, &o, &e->kv, err);
}

static enum status make_pass(struct forward *e, enum model_goal goal, struct pass *out,
                             struct err *err) {
    struct pass_options o = {
        .goal = goal, .sizes = sizes_of(e), .kv = e->kv.group_count > 0 ? &e->kv : NULL};
    return pass_create(&e->loaded, &o, out, err);
}

static enum status load(struct forward *e, const char *path, const struct forward_options *o,
                        struct err *err) {
    struct loaded_model_options options = {.threads = o->threads,
                                           .ctx_tokens = o->ctx_tokens,
                                           .device = o->device,
                                           .isa = o->isa,
                                           .fp8_weights = o->fp8_weights,
                                           .weights = o->weights,
                                           .tokens_only = o->tokens_only};
    TRY(loaded_model_open(&e->loaded, path, &options, err));
    choose_sizes(e, o);
    TRY(make_kv(e, o->kv_type, err));
    TRY(make_tables(e, err));
    bool pools = model_is_encoder(e->loaded.model);
    return make_pass(e, pools ? GOAL_POOLED : GOAL_LOGITS, &e->logits, err);
}

enum status forward_open(const char *path, const struct forward_options *options,
                         struct forward **out, struct err *err) {
    CHECK(options);
    struct forward *e = mem_zalloc(sizeof(*e));
    if (!e) return err_set(err, ST_NOMEM, "out of memory while opening %s", path);
    enum status st = load(e, path, options, err);
    if (st == ST_OK)
        *out = e;
    else
        forward_close(e);
    return st;
}

void forward_close(struct forward *e) {
    if (!e) return;
    pass_destroy(&e->loaded, &e->hidden);
    pass_destroy(&e->loaded, &e->logits);
    step_destroy(e->step, &e->loaded.device);
    kv_memory_destroy(&e->loaded, &e->kv);
    loaded_model_close(&e->loaded);
    mem_free(e);
}

/* Run them through `pass`; the cache must hold everything before them. Every row is an output. */
static enum status run_tokens(struct forward *e, const struct pass *pass,
                              const struct row_tokens *t, struct device_result *out,
                              struct err *err) {
    struct step *step = e->step;
    CHECK(t->count > 0);
    CHECK(t->count <= e->chunk_tokens);
    CHECK(t->first_pos + t->count <= e->ctx_tokens);
    step_clear(step);
    step->hands_over = true;
    step->seq_count = 1;
    step->seqs[0] = (struct step_seq){.first_row = 0, .row_count = t->count};
    for (uint32_t i = 0; i < t->count; i++) {
        step->token[i] = t->ids[i];
        step->pos[i] = (int32_t)(t->first_pos + i);
        step->seq[i] = 0;
        step->output_row[i] = i;
    }
    step->row_count = step->output_count = t->count;
    return pass_run(&e->loaded, pass, step, out, err);
}

static enum status check_ids(const struct forward *e, const int32_t *ids, uint32_t count,
                             struct err *err) {
    if (count == 0) return err_set(err, ST_BAD, "the prompt is empty, expected at least one token");
    if (count > e->ctx_tokens)
        return err_set(err, ST_BAD, "the prompt has %u tokens and the context holds %u", count,
                       e->ctx_tokens);
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= e->loaded.model->hp.vocab)
            return err_set(err, ST_BAD, "token %u is %d, the model's vocabulary has 0 to %u", i,
                           ids[i], e->loaded.model->hp.vocab - 1);
    return ST_OK;
}

static enum status need_decoder(const struct forward *e, struct err *err) {
    if (!model_is_encoder(e->loaded.model)) return ST_OK;
    return err_set(err, ST_BAD, "%s: is an encoder (%s): it gives embeddings and cannot generate",
                   model_file_path(e->loaded.file), e->loaded.model->arch->name);
}

/* Hand rows to the callback one after the other where padding separates them, all at once where
 * it does not. */
static enum status hand_rows(const struct forward *e, const float *rows, size_t row_floats,
                             uint32_t first_pos, uint32_t count, logits_fn *fn, void *ctx) {
    if (row_floats == e->loaded.model->hp.vocab) return fn(ctx, first_pos, count, rows);
    for (uint32_t r = 0; r < count; r++) TRY(fn(ctx, first_pos + r, 1, rows + r * row_floats));
    return ST_OK;
}

enum status forward_logits(struct forward *e, const int32_t *ids, uint32_t count, logits_fn *fn,
                           void *ctx, struct err *err) {
    TRY(need_decoder(e, err));
    TRY(check_ids(e, ids, count, err));
    for (uint32_t pos = 0; pos < count;) {
        uint32_t rows = count - pos < e->chunk_tokens ? count - pos : e->chunk_tokens;
        struct device_result out;
        struct row_tokens tokens = {ids + pos, rows, pos};
        TRY(run_tokens(e, &e->logits, &tokens, &out, err));
        TRY(hand_rows(e, out.rows, out.row_floats, pos, rows, fn, ctx));
        pos += rows;
    }
    return ST_OK;
}

/* A decoder's embedding: the mean of its last hidden states, to unit length. */
static enum status embed_decoder(struct forward *e, const int32_t *ids, uint32_t count, float *out,
                                 struct err *err) {
    uint32_t dims = e->loaded.model->hp.dim;
    if (!e->hidden.program) TRY(make_pass(e, GOAL_HIDDEN, &e->hidden, err));
    memset(out, 0, dims * sizeof(float));
    for (uint32_t pos = 0; pos < count;) {
        uint32_t rows = count - pos < e->chunk_tokens ? count - pos : e->chunk_tokens;
        struct device_result hidden;
        struct row_tokens tokens = {ids + pos, rows, pos};
        TRY(run_tokens(e, &e->hidden, &tokens, &hidden, err));
        mean_add(out, dims, hidden.rows, hidden.row_floats, rows);
        pos += rows;
    }
    mean_finish(out, dims);
    return ST_OK;
}

static enum status embed_encoder(struct forward *e, const int32_t *ids, uint32_t count, float *out,
                                 struct err *err) {
    uint32_t max = forward_embed_tokens_max(e), kept = count < max ? count : max;
    struct device_result pooled;
    struct row_tokens tokens = {.ids = ids, .count = kept};
    int32_t *cut = NULL;
    if (kept < count) {
        cut = mem_alloc_array(kept, sizeof(*cut));
        if (!cut) return err_set(err, ST_NOMEM, "out of memory for a text of %u tokens", kept);
        memcpy(cut, ids, kept * sizeof(*cut));
        cut[kept - 1] = ids[count - 1];
        tokens.ids = cut;
    }
    enum status st = run_tokens(e, &e->logits, &tokens, &pooled, err);
    mem_free(cut);
    if (st == ST_OK) memcpy(out, pooled.rows, e->loaded.model->hp.dim * sizeof(float));
    return st;
}

enum status forward_embed(struct forward *e, const int32_t *ids, uint32_t count, float *out,
                          struct err *err) {
    bool is_encoder = model_is_encoder(e->loaded.model);
    uint32_t checked = is_encoder && count > e->ctx_tokens ? e->ctx_tokens : count;
    TRY(check_ids(e, ids, checked, err));
    if (checked < count) TRY(check_ids(e, ids + count - 1, 1, err)); /* kept by the cut */
    return is_encoder ? embed_encoder(e, ids, count, out, err)
                      : embed_decoder(e, ids, count, out, err);
}

uint32_t forward_embed_tokens_max(const struct forward *e) {
    return model_is_encoder(e->loaded.model) ? e->loaded.model->hp.embed_tokens_max : e->ctx_tokens;
}

uint32_t forward_embed_dims(const struct forward *e) { return e->loaded.model->hp.dim; }
struct loaded_model *forward_loaded(struct forward *e) {
    return &e->loaded;
}
uint32_t forward_vocab(const struct forward *e) { return e->loaded.model->hp.vocab; }
bool forward_is_encoder(const struct forward *e) { return model_is_encoder(e->loaded.model); }
