/* engine/loaded_model.c - see engine/loaded_model.h for the contract. */
#include "engine/loaded_model.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/size.h"
#include "engine/key_statistics.h"
#include "engine/spill.h"
#include "format/model_file.h"
#include "graph/step.h"
#include "kernels/devices.h"
#include "text/tokenizer.h"

enum { CTX_DEFAULT_MAX = 8192, CTX_MAX = 1 << 24 };

/* A ticket lock, which is fair: a plain mutex would mostly go to the thread that has just released
 * it. */
struct loaded_model_mutex {
    pthread_mutex_t lock;
    pthread_cond_t turn_changed;
    uint64_t next, serving; /* the next to be drawn; the one whose turn it is */
};

struct loading {
    struct loaded_model *loaded;
    const struct loaded_model_options *options;
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

/* Release each weight at once: at most one weight is in memory twice. */
static void release_weight(const struct model_file *file, const struct weight *w) {
    for (uint32_t e = 0; e < w->experts; e++) {
        const struct row_source *source = w->source ? weight_source(w, e) : NULL;
        if (!source) model_file_release(file, weight_data(w, e), w->bytes / w->experts);
        for (int i = 0; source && i < ROW_PARTS_MAX; i++)
            if (source->parts[i].bytes)
                model_file_release(file, source->parts[i].ptr, source->parts[i].bytes);
    }
}

static enum status prepare_weight(void *ctx, struct weight *w, struct err *err) {
    struct loading *l = ctx;
    TRY(l->loaded->device.prepare(l->loaded->device.self, w, err));
    if (w->prepared)
        release_weight(l->loaded->file, w);
    else
        l->loaded->reads_file = true;
    l->done++;
    report(l, "weights", (double)l->done / (double)l->total);
    return ST_OK;
}

/* Small tensors were copied, too. An embedding table that is not the head as well was not prepared:
 * its rows come back from the file as they are looked up. */
static void release_file_pages(const struct loaded_model *loaded) {
    for (size_t i = 0; i < tensor_count(loaded->file); i++)
        tensor_release(loaded->file, tensor_at(loaded->file, i));
}

static enum status choose_ctx(struct loaded_model *loaded, uint32_t wanted, struct err *err) {
    const struct hparams *hp = &loaded->model->hp;
    uint32_t usual = hp->ctx_train < CTX_DEFAULT_MAX ? hp->ctx_train : CTX_DEFAULT_MAX;
    loaded->ctx_tokens = model_is_encoder(loaded->model) ? hp->max_positions
                         : wanted                        ? wanted
                                                         : usual;
    if (loaded->ctx_tokens <= CTX_MAX) return ST_OK;
    return err_set(err, ST_BAD, "the context is set to %u tokens; the maximum is %u", wanted,
                   CTX_MAX);
}

static enum status make_mutex(struct loaded_model *loaded, struct err *err) {
    loaded->mutex = mem_zalloc(sizeof(*loaded->mutex));
    if (!loaded->mutex) return err_set(err, ST_NOMEM, "out of memory for a model");
    pthread_mutex_init(&loaded->mutex->lock, NULL);
    pthread_cond_init(&loaded->mutex->turn_changed, NULL);
    return ST_OK;
}

static void free_mutex(struct loaded_model_mutex *g) {
    if (!g) return;
    pthread_cond_destroy(&g->turn_changed);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

void loaded_model_lock(struct loaded_model *loaded) {
    struct loaded_model_mutex *g = loaded->mutex;
    pthread_mutex_lock(&g->lock);
    uint64_t mine = g->next++;
    while (g->serving != mine) pthread_cond_wait(&g->turn_changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

void loaded_model_unlock(struct loaded_model *loaded) {
    struct loaded_model_mutex *g = loaded->mutex;
    pthread_mutex_lock(&g->lock);
    CHECK(g->serving < g->next);
    g->serving++;
    if (g->serving < g->next) pthread_cond_broadcast(&g->turn_changed);
    pthread_mutex_unlock(&g->lock);
}

/* Without weights nothing is run: one thread is enough to ask the device for KV sizes. */
static enum status open_device(struct loaded_model *loaded, const struct loaded_model_options *o,
                               struct err *err) {
    struct device_options device = {.name = o->device,
                                    .threads = loaded->threads,
                                    .isa = o->isa,
                                    .placement = o->placement,
                                    .fp8_weights = o->fp8_weights,
                                    .beside = o->beside,
                                    .keep_dir = o->weights.dir,
                                    .keeps_new = o->weights.max_bytes > 0};
    if (o->no_weights)
        device = (struct device_options){.name = o->device, .threads = 1, .placement = "off"};
    TRY(device_open(&device, &loaded->device, err));
    loaded->device_open = true;
    if (loaded->device.memory) loaded->memory = loaded->device.memory(loaded->device.self);
    return ST_OK;
}

/* "f16, f32, int8": the types that the device supports. */
static void name_kv_types(struct loaded_model *loaded, uint32_t block_tokens, char out[64]) {
    size_t len = 0;
    out[0] = '\0';
    for (int type = 0; type < KV_TYPE_COUNT; type++) {
        if (loaded_model_kv_block_bytes(loaded, (enum kv_type)type, block_tokens, 0) == 0) continue;
        len += (size_t)snprintf(out + len, 64 - len, "%s%s", len > 0 ? ", " : "",
                                kv_type_name((enum kv_type)type));
    }
}

/* Check the wanted KV cache against the device, before loading takes long. */
static enum status check_kv(struct loaded_model *loaded, const struct loaded_model_options *o,
                            struct err *err) {
    uint32_t multiple = loaded->device.kv_block_tokens;
    if (o->block_tokens == 0 || model_is_encoder(loaded->model)) return ST_OK;
    if (o->block_tokens % multiple != 0)
        return err_set(err, ST_BAD, "knob block_size is %u, expected a multiple of %u (device %s)",
                       o->block_tokens, multiple, loaded->device.name);
    if (loaded_model_kv_block_bytes(loaded, o->kv_type, o->block_tokens, 0) > 0) return ST_OK;
    char known[64];
    name_kv_types(loaded, o->block_tokens, known);
    return err_set(err, ST_BAD, "knob kv_type is %s, which device %s does not support; expected %s",
                   kv_type_name(o->kv_type), loaded->device.name, known);
}

static enum status load(struct loaded_model *loaded, const char *path,
                        const struct loaded_model_options *o, struct err *err) {
    struct loading l = {.loaded = loaded, .options = o};
    report(&l, "file", 0);
    TRY(make_mutex(loaded, err));
    TRY(model_file_open(path, &loaded->file, err));
    if (!o->tokens_only) TRY(tokenizer_create(loaded->file, &loaded->tokenizer, err));
    const struct model_options model = {
        .ctx_tokens = o->ctx_tokens, .ctx_default_max = CTX_DEFAULT_MAX, .head_of = o->head_of};
    TRY(model_open(loaded->file, &model, &loaded->model, err));
    TRY(choose_ctx(loaded, o->ctx_tokens, err));
    loaded->threads = o->threads ? o->threads : pool_default_threads();
    if (loaded->threads > POOL_THREADS_MAX)
        return err_set(err, ST_BAD, "threads is set to %u; the maximum is %d", loaded->threads,
                       POOL_THREADS_MAX);
    TRY(open_device(loaded, o, err));
    TRY(check_kv(loaded, o, err));
    if (o->no_weights) {
        report(&l, "weights", 1);
        return ST_OK;
    }
    loaded->has_weights = true;
    report(&l, "weights", 0);
    TRY(weight_cache_open(&loaded->weights, &o->weights, loaded->file, &loaded->device, err));
    TRY(model_each_weight(loaded->model, count_weight, &l, err));
    TRY(model_each_weight(loaded->model, prepare_weight, &l, err));
    TRY(loaded_model_check(loaded, err)); /* before an image is made of the weights */
    weight_cache_loaded(loaded->weights);
    release_file_pages(loaded);
    if (o->kv_type == KV_I4 && !model_is_encoder(loaded->model))
        TRY(key_statistics_create(loaded, &loaded->keys, err));
    return ST_OK;
}

enum status loaded_model_open(struct loaded_model *loaded, const char *path,
                              const struct loaded_model_options *options, struct err *err) {
    CHECK(options);
    *loaded = (struct loaded_model){.file = NULL};
    enum status st = load(loaded, path, options, err);
    if (st != ST_OK) loaded_model_close(loaded);
    return st;
}

void loaded_model_close(struct loaded_model *loaded) {
    weight_cache_close(loaded->weights);
    if (loaded->device_open) loaded->device.close(loaded->device.self);
    model_close(loaded->model);
    key_statistics_destroy(loaded->keys);
    tokenizer_destroy(loaded->tokenizer);
    model_file_close(loaded->file);
    free_mutex(loaded->mutex);
    *loaded = (struct loaded_model){.file = NULL};
}

enum status loaded_model_check(const struct loaded_model *loaded, struct err *err) {
    TRY(weight_cache_check(loaded->weights, err));
    return model_file_check(loaded->file, loaded->reads_file, err);
}

enum status pass_create(struct loaded_model *loaded, const struct pass_options *options,
                        struct pass *out, struct err *err) {
    const struct step_sizes *n = &options->sizes;
    struct tape_sizes sizes = {n->rows_max, n->outputs_max, n->seqs_max};
    *out = (struct pass){.tape = NULL};
    if (tape_create(&out->tape) != ST_OK)
        return err_set(err, ST_NOMEM, "out of memory for the forward pass");
    model_build(loaded->model, options->goal, out->tape);
    struct program_options program = {.tape = out->tape,
                                      .kv = options->kv ? options->kv->spaces : NULL,
                                      .kv_group_count = options->kv ? options->kv->group_count : 0,
                                      .sizes = options->sizes,
                                      .slot_count = options->slot_count};
    enum status st = tape_finish(out->tape, &sizes, err);
    if (st == ST_OK)
        st = loaded->device.program_create(loaded->device.self, &program, &out->program, err);
    if (st != ST_OK) pass_destroy(loaded, out);
    return st;
}

void pass_destroy(struct loaded_model *loaded, struct pass *p) {
    if (p->program) loaded->device.program_destroy(loaded->device.self, p->program);
    tape_destroy(p->tape);
    *p = (struct pass){.tape = NULL};
}

enum status pass_collect(struct loaded_model *loaded, const struct pass *p,
                         struct device_result *out, struct err *err) {
    TRY(loaded->device.collect(loaded->device.self, p->program, out, err));
    return loaded_model_check(loaded, err);
}

enum status pass_run(struct loaded_model *loaded, const struct pass *p, const struct step *step,
                     struct device_result *out, struct err *err) {
    loaded_model_lock(loaded);
    enum status st = loaded->device.submit(loaded->device.self, p->program, step, err);
    loaded_model_unlock(loaded);
    return st == ST_OK ? pass_collect(loaded, p, out, err) : st;
}

static struct kv_shape kv_shape(const struct loaded_model *loaded, enum kv_type type,
                                uint32_t block_tokens, uint32_t group) {
    return (struct kv_shape){.type = type,
                             .layers = loaded->model->kv_group_layers[group],
                             .heads = loaded->model->hp.kv_heads,
                             .head_dim = loaded->model->hp.head_dim,
                             .block_tokens = block_tokens};
}

size_t loaded_model_kv_block_bytes(struct loaded_model *loaded, enum kv_type type,
                                   uint32_t block_tokens, uint32_t group) {
    struct kv_shape shape = kv_shape(loaded, type, block_tokens, group);
    return loaded->device.kv_block_bytes(loaded->device.self, &shape);
}

static enum status make_space(struct loaded_model *loaded, const struct kv_memory_options *o,
                              uint32_t group, struct kv_space *out, struct err *err) {
    size_t bytes;
    *out = (struct kv_space){.shape = kv_shape(loaded, o->type, o->block_tokens, group),
                             .block_count = o->block_counts[group]};
    out->block_bytes = loaded->device.kv_block_bytes(loaded->device.self, &out->shape);
    if (out->block_bytes == 0)
        return err_set(err, ST_BAD,
                       "device %s does not support a KV cache of type %s with blocks of %u tokens; "
                       "choose another kv_type, or a block_size that is a multiple of %u",
                       loaded->device.name, kv_type_name(o->type), o->block_tokens,
                       loaded->device.kv_block_tokens);
    if (size_mul(out->block_bytes, out->block_count, &bytes))
        out->base = loaded->device.alloc(loaded->device.self, bytes);
    if (!out->base)
        return err_set(err, ST_NOMEM,
                       "device %s: cannot allocate %llu MiB for the KV cache; lower --kv-memory or "
                       "the context length",
                       loaded->device.name,
                       (unsigned long long)out->block_count * out->block_bytes >> 20);
    return spill_open(out, &loaded->device, o->spill_slots, o->spill_dir, err);
}

enum status kv_memory_create(struct loaded_model *loaded, const struct kv_memory_options *options,
                             struct kv_memory *out, struct err *err) {
    *out = (struct kv_memory){.group_count = loaded->model->kv_group_count};
    for (uint32_t g = 0; g < out->group_count; g++) {
        enum status st = make_space(loaded, options, g, &out->spaces[g], err);
        if (st == ST_OK) continue;
        kv_memory_destroy(loaded, out);
        return st;
    }
    return ST_OK;
}

void kv_memory_destroy(struct loaded_model *loaded, struct kv_memory *kv) {
    for (uint32_t g = 0; g < kv->group_count; g++) {
        struct kv_space *s = &kv->spaces[g];
        spill_close(s, &loaded->device);
        if (s->base)
            loaded->device.free(loaded->device.self, s->base, s->block_count * s->block_bytes);
    }
    *kv = (struct kv_memory){.group_count = 0};
}
