/* engine/host.c - see engine/host.h for the contract. */
#include "engine/host.h"

#include <pthread.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/pool.h"
#include "format/model_file.h"
#include "graph/step.h"
#include "kernels/cpu/cpu.h"
#include "text/tokenizer.h"

enum { CTX_DEFAULT_MAX = 8192, CTX_MAX = 1 << 24 };

/* Tickets: a plain lock would mostly go to the thread that has just let it go. */
struct host_gate {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t next, serving; /* the next to be drawn; the one whose turn it is */
};

struct loading {
    struct host *h;
    const struct host_options *options;
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

/* At once, so that never more than one weight is in memory twice. */
static void release_weight(const struct model_file *file, const struct weight *w) {
    for (uint32_t e = 0; e < w->experts; e++)
        model_file_release(file, weight_data(w, e), w->bytes / w->experts);
}

static enum status prepare_weight(void *ctx, struct weight *w, struct err *err) {
    struct loading *l = ctx;
    TRY(l->h->device.prepare(l->h->device.self, w, err));
    if (w->prepared) release_weight(l->h->file, w);
    l->done++;
    report(l, "weights", (double)l->done / (double)l->total);
    return ST_OK;
}

/* Small tensors were copied, too. An embedding table that is not the head as well was not prepared:
 * its rows come back from the file as they are looked up. */
static void release_file_pages(const struct host *h) {
    for (size_t i = 0; i < tensor_count(h->file); i++)
        tensor_release(h->file, tensor_at(h->file, i));
}

static enum status choose_ctx(struct host *h, uint32_t asked, struct err *err) {
    const struct hparams *hp = &h->model->hp;
    uint32_t usual = hp->ctx_train < CTX_DEFAULT_MAX ? hp->ctx_train : CTX_DEFAULT_MAX;
    h->ctx_tokens = model_is_encoder(h->model) ? hp->max_positions : asked ? asked : usual;
    if (h->ctx_tokens <= CTX_MAX) return ST_OK;
    return err_set(err, ST_BAD, "a context of %u tokens was asked for, at most %u is possible",
                   asked, CTX_MAX);
}

static enum status make_gate(struct host *h, struct err *err) {
    h->gate = mem_zalloc(sizeof(*h->gate));
    if (!h->gate) return err_set(err, ST_NOMEM, "out of memory for a model");
    pthread_mutex_init(&h->gate->lock, NULL);
    pthread_cond_init(&h->gate->moved, NULL);
    return ST_OK;
}

static void free_gate(struct host_gate *g) {
    if (!g) return;
    pthread_cond_destroy(&g->moved);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

void host_lock(struct host *h) {
    struct host_gate *g = h->gate;
    pthread_mutex_lock(&g->lock);
    uint64_t mine = g->next++;
    while (g->serving != mine) pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

void host_unlock(struct host *h) {
    struct host_gate *g = h->gate;
    pthread_mutex_lock(&g->lock);
    CHECK(g->serving < g->next);
    g->serving++;
    if (g->serving < g->next) pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

static enum cpu_placement placement_of(const struct host_options *o) {
    if (!o->placement || strcmp(o->placement, "auto") == 0) return CPU_PLACE_AUTO;
    return strcmp(o->placement, "on") == 0 ? CPU_PLACE_ON : CPU_PLACE_OFF;
}

static enum status load(struct host *h, const char *path, const struct host_options *o,
                        struct err *err) {
    struct loading l = {.h = h, .options = o};
    report(&l, "file", 0);
    TRY(make_gate(h, err));
    TRY(model_file_open(path, &h->file, err));
    if (!o->tokens_only) TRY(tokenizer_create(h->file, &h->tokenizer, err));
    const struct model_options model = {.ctx_tokens = o->ctx_tokens,
                                        .ctx_default_max = CTX_DEFAULT_MAX};
    TRY(model_open(h->file, &model, &h->model, err));
    TRY(choose_ctx(h, o->ctx_tokens, err));
    h->threads = o->threads ? o->threads : pool_default_threads();
    if (h->threads > POOL_THREADS_MAX)
        return err_set(err, ST_BAD, "%u threads were asked for, at most %d are possible",
                       h->threads, POOL_THREADS_MAX);
    if (o->no_weights) {
        report(&l, "weights", 1);
        return ST_OK;
    }
    TRY(cpu_device_open(o->isa ? o->isa : "auto", h->threads, &h->device, err));
    h->device_open = true;
    h->bound_to = cpu_device_place(&h->device, placement_of(o), &h->unbound);
    TRY(weight_cache_open(&h->weights, &o->weights, h->file, &h->device, err));
    TRY(model_each_weight(h->model, count_weight, &l, err));
    TRY(model_each_weight(h->model, prepare_weight, &l, err));
    weight_cache_loaded(h->weights);
    release_file_pages(h);
    return ST_OK;
}

enum status host_open(struct host *h, const char *path, const struct host_options *options,
                      struct err *err) {
    CHECK(options);
    *h = (struct host){.file = NULL};
    enum status st = load(h, path, options, err);
    if (st != ST_OK) host_close(h);
    return st;
}

void host_close(struct host *h) {
    weight_cache_close(h->weights);
    if (h->device_open) h->device.close(h->device.self);
    model_close(h->model);
    tokenizer_destroy(h->tokenizer);
    model_file_close(h->file);
    free_gate(h->gate);
    *h = (struct host){.file = NULL};
}

enum status pass_create(struct host *h, enum model_goal goal, const struct tape_sizes *sizes,
                        struct pass *out, struct err *err) {
    *out = (struct pass){.tape = NULL};
    if (tape_create(&out->tape) != ST_OK)
        return err_set(err, ST_NOMEM, "out of memory for the forward pass");
    model_build(h->model, goal, out->tape);
    enum status st = tape_finish(out->tape, sizes, err);
    if (st == ST_OK) st = h->device.check(h->device.self, out->tape, err);
    if (st == ST_OK) out->slab = h->device.alloc(h->device.self, tape_slab_bytes(out->tape));
    if (st == ST_OK && !out->slab)
        st =
            err_set(err, ST_NOMEM, "no memory for %zu MiB of scratch; fewer rows at once need less",
                    tape_slab_bytes(out->tape) >> 20);
    if (st != ST_OK) pass_destroy(h, out);
    return st;
}

void pass_destroy(struct host *h, struct pass *p) {
    if (p->slab) h->device.free(h->device.self, p->slab, tape_slab_bytes(p->tape));
    tape_destroy(p->tape);
    *p = (struct pass){.tape = NULL};
}

const float *pass_run(struct host *h, const struct pass *p, const struct step *step,
                      const struct kv_space *kv, size_t *row_floats) {
    struct device_run run = {.tape = p->tape, .step = step, .slab = p->slab, .kv = kv};
    h->device.run(h->device.self, &run);
    const struct tape_value *out = tape_value_at(p->tape, tape_output(p->tape));
    if (row_floats) *row_floats = out->row_bytes / sizeof(float);
    return (const float *)(const void *)(p->slab + out->offset);
}

enum status kv_memory_create(struct host *h, enum kv_type type, const uint32_t *block_counts,
                             struct kv_memory *out, struct err *err) {
    const struct model *m = h->model;
    *out = (struct kv_memory){.group_count = m->kv_group_count};
    for (uint32_t g = 0; g < m->kv_group_count; g++) {
        struct kv_space *kv = &out->spaces[g];
        *kv = (struct kv_space){.type = type,
                                .layers = m->kv_group_layers[g],
                                .heads = m->hp.kv_heads,
                                .head_dim = m->hp.head_dim,
                                .block_count = block_counts[g]};
        kv->base = h->device.alloc(h->device.self, kv_space_bytes(kv));
        if (kv->base) continue;
        size_t mib = kv_space_bytes(kv) >> 20;
        kv_memory_destroy(h, out);
        return err_set(err, ST_NOMEM,
                       "no memory for %zu MiB of KV cache; a smaller context needs less", mib);
    }
    return ST_OK;
}

void kv_memory_destroy(struct host *h, struct kv_memory *kv) {
    for (uint32_t g = 0; g < kv->group_count; g++) {
        struct kv_space *s = &kv->spaces[g];
        if (s->base) h->device.free(h->device.self, s->base, kv_space_bytes(s));
    }
    *kv = (struct kv_memory){.group_count = 0};
}
