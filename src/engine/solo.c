/* engine/solo.c - opening a model and running steps on it; see engine/solo.h.
 *
 * Entry points: solo_open, solo_close, solo_logits, solo_embed, solo_run, and the getters at the
 * end. engine/solo_generate.c has solo_generate.
 */
#include "engine/solo.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/mean.h"
#include "engine/solo_int.h"
#include "format/model_file.h"
#include "model/arch.h"

enum { CHUNK_DEFAULT = 256, CHUNK_MAX = 4096 };

static void choose_sizes(struct solo *e, const struct solo_options *o) {
    e->ctx_tokens = e->host.ctx_tokens;
    e->chunk_tokens = o->chunk_tokens ? o->chunk_tokens : CHUNK_DEFAULT;
    if (e->chunk_tokens > CHUNK_MAX) e->chunk_tokens = CHUNK_MAX;
    bool is_whole = model_is_encoder(e->host.model); /* its rows see each other */
    if (is_whole || e->chunk_tokens > e->ctx_tokens) e->chunk_tokens = e->ctx_tokens;
}

static enum status make_tables(struct solo *e, struct err *err) {
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

static enum status make_kv(struct solo *e, enum kv_type type, struct err *err) {
    uint32_t counts[KV_GROUPS_MAX];
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
        counts[g] = (e->ctx_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    if (model_is_encoder(e->host.model)) return ST_OK;
    return kv_memory_create(&e->host, type, counts, &e->kv, err);
}

static enum status make_pass(struct solo *e, enum model_goal goal, struct pass *out,
                             struct err *err) {
    struct tape_sizes sizes = {e->chunk_tokens, e->chunk_tokens, 1};
    return pass_create(&e->host, goal, &sizes, out, err);
}

static enum status load(struct solo *e, const char *path, const struct solo_options *o,
                        struct err *err) {
    struct host_options host = {.threads = o->threads,
                                .ctx_tokens = o->ctx_tokens,
                                .isa = o->isa,
                                .weights = o->weights,
                                .tokens_only = o->tokens_only,
                                .on_progress = o->on_progress,
                                .progress_ctx = o->progress_ctx};
    TRY(host_open(&e->host, path, &host, err));
    choose_sizes(e, o);
    TRY(make_tables(e, err));
    TRY(make_kv(e, o->kv_type, err));
    bool pools = model_is_encoder(e->host.model);
    return make_pass(e, pools ? GOAL_POOLED : GOAL_LOGITS, &e->logits, err);
}

enum status solo_open(const char *path, const struct solo_options *options, struct solo **out,
                      struct err *err) {
    CHECK(options);
    struct solo *e = mem_zalloc(sizeof(*e));
    if (!e) return err_set(err, ST_NOMEM, "out of memory while opening %s", path);
    enum status st = load(e, path, options, err);
    if (st == ST_OK)
        *out = e;
    else
        solo_close(e);
    return st;
}

void solo_close(struct solo *e) {
    if (!e) return;
    pass_destroy(&e->host, &e->hidden);
    pass_destroy(&e->host, &e->logits);
    kv_memory_destroy(&e->host, &e->kv);
    host_close(&e->host);
    mem_free(e->token);
    mem_free(e->pos);
    mem_free(e->seq);
    mem_free(e->output_row);
    mem_free(e->blocks);
    mem_free(e->cached);
    mem_free(e);
}

static uint32_t fill_outputs(struct solo *e, uint32_t count, enum row_choice rows) {
    uint32_t outputs = rows == ROWS_ALL ? count : rows == ROWS_LAST ? 1 : 0;
    for (uint32_t r = 0; r < outputs; r++) e->output_row[r] = count - outputs + r;
    return outputs;
}

const float *solo_run(struct solo *e, const struct pass *pass, const int32_t *ids, uint32_t count,
                      uint32_t first_pos, enum row_choice rows, size_t *row_floats) {
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
    bool has_kv = e->kv.group_count > 0;
    return pass_run(&e->host, pass, &step, has_kv ? e->kv.spaces : NULL, row_floats);
}

enum status solo_check_ids(const struct solo *e, const int32_t *ids, uint32_t count,
                           struct err *err) {
    if (count == 0) return err_set(err, ST_BAD, "the prompt is empty, expected at least one token");
    if (count > e->ctx_tokens)
        return err_set(err, ST_BAD, "the prompt has %u tokens and the context holds %u", count,
                       e->ctx_tokens);
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= e->host.model->hp.vocab)
            return err_set(err, ST_BAD, "token %u is %d, the model's vocabulary has 0 to %u", i,
                           ids[i], e->host.model->hp.vocab - 1);
    return ST_OK;
}

static enum status need_decoder(const struct solo *e, struct err *err) {
    if (!model_is_encoder(e->host.model)) return ST_OK;
    return err_set(err, ST_BAD, "%s: is an encoder (%s): it gives embeddings and cannot generate",
                   model_file_path(e->host.file), e->host.model->arch->name);
}

/* Hand rows to the callback one after the other where padding separates them, all at once where
 * it does not. */
static enum status hand_rows(const struct solo *e, const float *rows, size_t row_floats,
                             uint32_t first_pos, uint32_t count, logits_fn *fn, void *ctx) {
    if (row_floats == e->host.model->hp.vocab) return fn(ctx, first_pos, count, rows);
    for (uint32_t r = 0; r < count; r++) TRY(fn(ctx, first_pos + r, 1, rows + r * row_floats));
    return ST_OK;
}

enum status solo_logits(struct solo *e, const int32_t *ids, uint32_t count, logits_fn *fn,
                        void *ctx, struct err *err) {
    TRY(need_decoder(e, err));
    TRY(solo_check_ids(e, ids, count, err));
    e->cached_count = 0;
    for (uint32_t pos = 0; pos < count;) {
        uint32_t rows = count - pos < e->chunk_tokens ? count - pos : e->chunk_tokens;
        size_t row_floats;
        const float *logits = solo_run(e, &e->logits, ids + pos, rows, pos, ROWS_ALL, &row_floats);
        TRY(hand_rows(e, logits, row_floats, pos, rows, fn, ctx));
        pos += rows;
    }
    return ST_OK;
}

/* A decoder's embedding: the mean of its last hidden states, to unit length. */
static enum status embed_decoder(struct solo *e, const int32_t *ids, uint32_t count, float *out,
                                 struct err *err) {
    uint32_t dims = e->host.model->hp.dim;
    if (!e->hidden.slab) TRY(make_pass(e, GOAL_HIDDEN, &e->hidden, err));
    memset(out, 0, dims * sizeof(float));
    e->cached_count = 0;
    for (uint32_t pos = 0; pos < count;) {
        uint32_t rows = count - pos < e->chunk_tokens ? count - pos : e->chunk_tokens;
        size_t row_floats;
        const float *hidden = solo_run(e, &e->hidden, ids + pos, rows, pos, ROWS_ALL, &row_floats);
        mean_add(out, dims, hidden, row_floats, rows);
        pos += rows;
    }
    mean_finish(out, dims);
    return ST_OK;
}

static enum status embed_encoder(struct solo *e, const int32_t *ids, uint32_t count, float *out,
                                 struct err *err) {
    uint32_t max = solo_embed_tokens_max(e), kept = count < max ? count : max;
    const float *pooled;
    if (kept == count) {
        pooled = solo_run(e, &e->logits, ids, count, 0, ROWS_NONE, NULL);
    } else {
        int32_t *cut = mem_alloc_array(kept, sizeof(*cut));
        if (!cut) return err_set(err, ST_NOMEM, "out of memory for a text of %u tokens", kept);
        memcpy(cut, ids, kept * sizeof(*cut));
        cut[kept - 1] = ids[count - 1];
        pooled = solo_run(e, &e->logits, cut, kept, 0, ROWS_NONE, NULL);
        mem_free(cut);
    }
    memcpy(out, pooled, e->host.model->hp.dim * sizeof(float));
    return ST_OK;
}

enum status solo_embed(struct solo *e, const int32_t *ids, uint32_t count, float *out,
                       struct err *err) {
    bool is_encoder = model_is_encoder(e->host.model);
    uint32_t checked = is_encoder && count > e->ctx_tokens ? e->ctx_tokens : count;
    TRY(solo_check_ids(e, ids, checked, err));
    if (checked < count) TRY(solo_check_ids(e, ids + count - 1, 1, err)); /* kept by the cut */
    return is_encoder ? embed_encoder(e, ids, count, out, err)
                      : embed_decoder(e, ids, count, out, err);
}

uint32_t solo_embed_tokens_max(const struct solo *e) {
    return model_is_encoder(e->host.model) ? e->host.model->hp.embed_tokens_max : e->ctx_tokens;
}

uint32_t solo_embed_dims(const struct solo *e) { return e->host.model->hp.dim; }
struct model_file *solo_file(const struct solo *e) {
    return e->host.file;
}
const struct tokenizer *solo_tokenizer(const struct solo *e) { return e->host.tokenizer; }
const struct model *solo_model(const struct solo *e) { return e->host.model; }
const struct tape *solo_tape(const struct solo *e) { return e->logits.tape; }
uint32_t solo_vocab(const struct solo *e) { return e->host.model->hp.vocab; }
uint32_t solo_ctx_tokens(const struct solo *e) { return e->ctx_tokens; }
const char *solo_isa(const struct solo *e) { return e->host.device.name; }
uint32_t solo_threads(const struct solo *e) { return e->host.threads; }

struct weight_cache *solo_weights(const struct solo *e) {
    return e->host.weights;
}
bool solo_is_encoder(const struct solo *e) { return model_is_encoder(e->host.model); }
