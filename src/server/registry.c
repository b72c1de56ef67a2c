/* server/registry.c - see server/registry.h.
 *
 * The loader thread owns the parts of a model until it raises `done_count`; after that they belong
 * to the I/O thread.
 */
#include "server/registry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "api/error.h"
#include "api/request.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "config/env.h"
#include "config/settings.h"
#include "engine/embedder.h"
#include "format/model_file.h"
#include "model/model.h"
#include "sched/policy.h"
#include "text/chat_prompt.h"
#include "text/tokenizer.h"
#include "server/memory_plan.h"

enum {
    LOADING_RETRY_MS = 1000,
    /* Texts that may wait for an embedder: two of the largest requests; of several tenants,
     * eight. */
    QUEUE_OF_ONE = 2 * API_INPUTS_MAX,
    QUEUE_OF_TENANTS = 8 * API_INPUTS_MAX,
};

struct model_parts {
    struct registry *registry;
    struct served_model *model;
    struct service service;
    struct loaded_model encoder; /* of an encoder */
    struct embedder *embedder;
    struct chat_prompt *chat;
    enum status status;
    struct err err, chat_err;
    char path[MODEL_PATH_BYTES];
    struct start_part start_parts[START_PARTS_MAX];
    uint32_t start_part_count;
    uint64_t file_hash; /* of its fingerprint */
    int64_t part_began_us;
    uv_async_t output, embedded;
    bool has_handles;
};

struct registry {
    struct uv_loop_s *loop;
    const struct settings *settings;
    struct registry_hooks hooks;
    struct served_model models[SERVED_MAX];
    uint32_t count;
    struct service_options service;
    struct cache_secret secret; /* of the prefix caches of all models */
    struct model_cache cache;
    char images[MODEL_PATH_BYTES]; /* where weights are kept */

    pthread_t thread;
    bool has_thread, is_joined, is_closed;
    uv_async_t changed;
    bool has_changed;
    uint32_t seen_count; /* of done_count */

    /* Shared with the loader thread. */
    atomic_bool stopping;
    atomic_uint done_count, busy; /* models done; the one under way, counted from 1 */
    atomic_uint permille;
    _Atomic(const char *) stage;
    atomic_bool has_ended;
};

const char *load_state_name(enum load_state s) {
    static const char *const names[] = {"waiting", "loading", "ready", "failed"};
    return names[s];
}

/* ---- the loader thread ---- */

/* The part of the start before it is over; NULL: all are. */
static void begin_part(struct model_parts *p, const char *name) {
    int64_t now_us = clock_now(&clock_real);
    struct start_part *last = p->start_parts + p->start_part_count;
    if (p->start_part_count > 0) (--last)->us += now_us - p->part_began_us;
    p->part_began_us = now_us;
    if (!name || (p->start_part_count > 0 && strcmp(last->name, name) == 0)) return;
    if (p->start_part_count < START_PARTS_MAX)
        p->start_parts[p->start_part_count++] = (struct start_part){.name = name};
}

static void on_progress(void *ctx, const char *stage, double share) {
    struct registry *r = ctx;
    uint32_t busy = atomic_load(&r->busy);
    if (busy > 0) begin_part(r->models[busy - 1].parts, share < 1 ? stage : "engine");
    atomic_store(&r->stage, stage);
    atomic_store(&r->permille, (unsigned)(share * 1000));
}

/* Opens the file without its weights. */
static bool is_encoder(const char *path) {
    struct loaded_model loaded = {0};
    struct err ignored = {0};
    struct loaded_model_options options = {.no_weights = true};
    bool is = loaded_model_open(&loaded, path, &options, &ignored) == ST_OK &&
              model_is_encoder(loaded.model);
    loaded_model_close(&loaded);
    return is;
}

/* A pass has as many tokens as a step of an engine, so that the two take turns fairly. */
static enum status open_embedder(struct registry *r, struct model_parts *p,
                                 struct loaded_model *loaded, struct err *err) {
    bool has_tenants = r->settings->api_key_file != NULL;
    struct embedder_options options = {.batch_tokens = r->service.knobs.max_step_tokens,
                                       .queue_max = has_tenants ? QUEUE_OF_TENANTS : QUEUE_OF_ONE,
                                       .queue_least = API_INPUTS_MAX,
                                       .has_tenants = has_tenants};
    return embedder_open(&p->embedder, loaded, &options, err);
}

static enum status open_encoder(struct registry *r, struct model_parts *p, struct err *err) {
    struct loaded_model_options options = {.threads = r->service.knobs.threads,
                                           .device = r->service.device,
                                           .isa = r->service.isa,
                                           .placement = r->service.placement,
                                           .fp8_weights = r->service.fp8_weights,
                                           .weights = r->service.weights,
                                           .on_progress = on_progress,
                                           .progress_ctx = r};
    TRY(loaded_model_open(&p->encoder, p->path, &options, err));
    return open_embedder(r, p, &p->encoder, err);
}

static enum status open_text(struct registry *r, struct model_parts *p, struct err *err) {
    TRY(service_open(&p->service, p->path, &r->service, err));
    if (chat_prompt_create(p->service.loaded.tokenizer, &p->chat, &p->chat_err) != ST_OK)
        p->chat = NULL;
    if (p->chat && r->settings->special_in_content) chat_prompt_trust_content(p->chat);
    if (r->service.is_sim) return ST_OK;
    return open_embedder(r, p, &p->service.loaded, err);
}

static enum status open_model(struct registry *r, struct model_parts *p) {
    struct err *err = &p->err;
    TRY(model_cache_resolve(&r->cache, p->model->operand, p->path, err));
    enum status st = open_text(r, p, err);
    if (st != ST_BAD || !is_encoder(p->path)) return st;
    *err = (struct err){0};
    return open_encoder(r, p, err);
}

static void close_parts(struct model_parts *p) {
    embedder_close(p->embedder);
    p->embedder = NULL;
    chat_prompt_destroy(p->chat);
    p->chat = NULL;
    service_close(&p->service);
    loaded_model_close(&p->encoder);
}

static const struct model_file *file_of(const struct model_parts *p) {
    return p->service.engine ? p->service.loaded.file : p->encoder.file;
}

static void *load_main(void *arg) {
    struct registry *r = arg;
    for (uint32_t i = 0; i < r->count && !atomic_load(&r->stopping); i++) {
        struct model_parts *p = r->models[i].parts;
        atomic_store(&r->permille, 0);
        atomic_store(&r->busy, i + 1);
        uv_async_send(&r->changed);
        begin_part(p, "find");
        p->status = open_model(r, p);
        begin_part(p, NULL);
        if (p->status == ST_OK) p->file_hash = fingerprint_file(file_of(p));
        if (p->status != ST_OK) close_parts(p);
        atomic_store(&r->busy, 0);
        atomic_store(&r->done_count, i + 1);
    }
    atomic_store(&r->has_ended, true);
    uv_async_send(&r->changed);
    return NULL;
}

/* ---- on the I/O thread ---- */

static void notify_output(void *ctx) { uv_async_send(&((struct model_parts *)ctx)->output); }
static void notify_embedded(void *ctx) { uv_async_send(&((struct model_parts *)ctx)->embedded); }

/* Of a folder: the bytes of its tensors. */
static uint64_t bytes_of(const struct model_parts *p, const struct model_file *f) {
    uint64_t bytes = 0;
    if (model_file_kind(f) == MODEL_GGUF && file_size(p->path) > 0)
        return (uint64_t)file_size(p->path);
    for (size_t i = 0; i < tensor_count(f); i++) bytes += tensor_at(f, i)->bytes;
    return bytes;
}

/* The longest piece, where every byte of a text is a byte of some piece. 0: that does not hold, as
 * where a word or a run of blanks may become one token. */
static uint32_t piece_bytes_max(const struct tokenizer *t) {
    bool is_bpe = strcmp(tokenizer_model(t), "bpe") == 0 || strcmp(tokenizer_model(t), "spm") == 0;
    size_t longest = 0;
    for (uint32_t i = 0; is_bpe && i < tokenizer_vocab(t); i++) {
        size_t len = tokenizer_piece(t, (token_id)i).len;
        if (len > longest) longest = len;
    }
    return (uint32_t)longest;
}

static void fill_served(struct registry *r, struct model_parts *p) {
    struct served_model *m = p->model;
    m->is_encoder = !p->service.engine;
    m->is_sim = r->service.is_sim && !m->is_encoder;
    m->loaded = m->is_encoder ? &p->encoder : &p->service.loaded;
    m->tokenizer = m->loaded->tokenizer;
    m->ctx_tokens = m->is_encoder ? embedder_tokens_max(p->embedder) : m->loaded->ctx_tokens;
    m->piece_bytes_max = piece_bytes_max(m->tokenizer);
    m->knobs = p->service.knobs;
    m->memory = p->service.memory;
    memcpy(m->start_parts, p->start_parts, sizeof(m->start_parts));
    m->start_part_count = p->start_part_count;
    m->chat = p->chat;
    m->chat_missing = p->chat_err;
    m->engine = p->service.engine;
    m->grammars = p->service.grammars;
    m->forces_text = r->settings->forced_text;
    m->embedder = p->embedder;
    if (!m->is_encoder) m->forms = model_forms_of(m->tokenizer, r->settings->tool_form);
    m->file_bytes = bytes_of(p, m->loaded->file);
    snprintf(m->path, sizeof(m->path), "%s", p->path);
    const struct fingerprint_parts parts = {
        .file_hash = p->file_hash,
        .chat_template = m->chat ? chat_prompt_source(m->chat, true) : STR(""),
        .device = m->loaded->has_weights ? m->loaded->device.name : "none",
        .weights = r->settings->weights,
        .tool_form = r->settings->tool_form,
        .special_in_content = r->settings->special_in_content,
        .forced_text = r->settings->forced_text,
        .kv_type = p->service.knobs.kv_type,
        .ctx_tokens = m->loaded->ctx_tokens,
        .is_sim = r->service.is_sim};
    fingerprint_make(&parts, m->fingerprint);
}

static enum status start_served(struct registry *r, struct served_model *m, struct err *err) {
    struct model_parts *p = m->parts;
    fill_served(r, p);
    if (m->embedder) embedder_set_hook(m->embedder, notify_embedded, p);
    if (!m->engine) return ST_OK;
    engine_set_hook(m->engine, notify_output, p);
    engine_watch(m->engine, (int64_t)(r->settings->watchdog_s * 1e6), r->hooks.on_stall,
                 r->hooks.ctx);
    return engine_start(m->engine, err);
}

static void finish_model(struct registry *r, struct served_model *m) {
    struct model_parts *p = m->parts;
    enum status st = p->status;
    m->failure = p->err;
    if (st == ST_OK) st = start_served(r, m, &m->failure);
    m->load_status = st;
    m->state = st == ST_OK ? LOAD_READY : LOAD_FAILED;
    r->hooks.on_changed(r->hooks.ctx, m);
}

static void check_file(struct registry *r, struct served_model *m) {
    if (m->state != LOAD_READY || loaded_model_check(m->loaded, &m->failure) == ST_OK) return;
    m->state = LOAD_FAILED;
    r->hooks.on_changed(r->hooks.ctx, m);
}

void registry_check_files(struct registry *r) {
    for (uint32_t i = 0; i < r->count; i++) check_file(r, &r->models[i]);
}

static void on_changed(uv_async_t *handle) {
    struct registry *r = handle->data;
    bool has_ended = atomic_load(&r->has_ended);
    uint32_t done = atomic_load(&r->done_count), busy = atomic_load(&r->busy);
    while (r->seen_count < done) finish_model(r, &r->models[r->seen_count++]);
    if (busy > done && r->models[busy - 1].state == LOAD_WAITING) {
        r->models[busy - 1].state = LOAD_LOADING;
        r->hooks.on_changed(r->hooks.ctx, &r->models[busy - 1]);
    }
    if (has_ended && !r->is_joined) {
        pthread_join(r->thread, NULL);
        r->is_joined = true;
        r->hooks.on_changed(r->hooks.ctx, NULL);
    }
}

/* ---- names ---- */

/* The file's name without ".gguf"; of a folder, its name. */
static void make_stem(const char *path, char out[SERVED_NAME_BYTES]) {
    struct str base = path_base(path);
    if (str_ends(base, STR(".gguf"))) base.len -= 5;
    snprintf(out, SERVED_NAME_BYTES, "%.*s", STR_ARG(base));
}

static void name_model(const struct registry *r, uint32_t i, struct served_model *m) {
    const struct setting_list *names = &r->settings->served_model_name;
    char path[MODEL_PATH_BYTES];
    struct err ignored = {0};
    bool is_name = model_name_ok(m->operand) && !str_ends(str_of(m->operand), STR(".gguf"));
    if (model_cache_resolve(&r->cache, m->operand, path, &ignored) == ST_OK)
        make_stem(path, m->stem);
    else
        make_stem(m->operand, m->stem);
    const char *name = i < names->count ? names->items[i] : is_name ? m->operand : m->stem;
    snprintf(m->name, sizeof(m->name), "%.*s", SERVED_NAME_BYTES - 1, name);
}

static bool is_called(const struct served_model *m, struct str name) {
    return str_is(name, m->name) || str_is(name, m->stem);
}

struct served_model *registry_find(const struct registry *r, struct str name) {
    if (str_ends(name, STR(":latest"))) name.len -= 7;
    for (uint32_t i = 0; i < r->count; i++)
        if (str_is(name, r->models[i].name)) return registry_at(r, i);
    for (uint32_t i = 0; i < r->count; i++)
        if (is_called(&r->models[i], name)) return registry_at(r, i);
    return NULL;
}

static enum status refuse_loading(const struct registry *r, const struct served_model *m,
                                  struct api_error *e) {
    struct load_progress p = registry_progress(r);
    api_refuse(e, 503, NULL, "model_loading", "Loading model \"%s\": %s %.0f %%", m->name,
               p.model == m ? p.stage : load_state_name(m->state),
               p.model == m ? p.share * 100 : 0.0);
    e->retry_after_ms = LOADING_RETRY_MS;
    return ST_BAD;
}

/* `m` NULL: no model has the name. */
static enum status check_ready(struct registry *r, struct str name, struct served_model *m,
                               struct served_model **out, struct api_error *e) {
    if (!m)
        return api_refuse(e, 404, "model", "model_not_found",
                          "unknown model \"%.*s\"; GET /v1/models lists this server's models",
                          STR_ARG(name));
    check_file(r, m);
    if (m->state == LOAD_FAILED)
        return api_refuse(e, 503, "model", "model_failed",
                          "the model \"%s\" could not be loaded, or its file has become "
                          "unreadable, or its cached weights are damaged; the server's log says "
                          "why",
                          m->name);
    if (m->state != LOAD_READY) return refuse_loading(r, m, e);
    *out = m;
    return ST_OK;
}

enum status registry_find_ready(struct registry *r, struct str name, struct served_model **out,
                                struct api_error *e) {
    struct served_model *m = name.ptr ? registry_find(r, name) : registry_default(r);
    return check_ready(r, name, m, out, e);
}

/* Before all models are loaded it is not known which is the encoder. A request that came then must
 * not get vectors of another model than the requests after it. */
static struct served_model *default_embedder(const struct registry *r) {
    for (uint32_t i = 0; i < r->count; i++)
        if (r->models[i].is_encoder) return registry_at(r, i);
    for (uint32_t i = 0; i < r->count; i++)
        if (r->models[i].state < LOAD_READY) return registry_at(r, i);
    return registry_default(r);
}

enum status registry_find_embedder(struct registry *r, struct str name, struct served_model **out,
                                   struct api_error *e) {
    struct served_model *m = name.ptr ? registry_find(r, name) : default_embedder(r);
    TRY(check_ready(r, name, m, out, e));
    if ((*out)->embedder) return ST_OK;
    return api_refuse(e, 400, "model", NULL, "the model \"%s\" gives no embeddings", (*out)->name);
}

/* ---- create and destroy ---- */

/* Removes ",NAME=NUMBER" from the end of *text; *out is unchanged if it is absent. */
static bool cut_number(struct str *text, struct str name, uint64_t *out) {
    for (size_t i = 0; i < text->len; i++) {
        if (!str_starts(str_skip(*text, i), name)) continue;
        bool ok = str_to_u64(str_skip(*text, i + name.len), out);
        text->len = i;
        return ok;
    }
    return true;
}

/* "local", "sim:STEP_US" or, for tests, that with ",hang-after=N", ",fail-after=N" or ",nan-at=N"
 * behind it. */
static enum status read_runner(struct registry *r, const char *word, struct err *err) {
    struct str text = str_of(word), number = str_skip(text, 4);
    struct service_options *o = &r->service;
    uint64_t step_us = 0;
    if (text.len == 0 || str_is(text, "local")) return ST_OK;
    bool ok = str_starts(text, STR("sim:")) &&
              cut_number(&number, STR(",hang-after="), &o->sim_hang_after) &&
              cut_number(&number, STR(",fail-after="), &o->sim_fail_after) &&
              cut_number(&number, STR(",nan-at="), &o->sim_nan_at) &&
              str_to_u64(number, &step_us) && step_us <= 60000000;
    if (!ok)
        return err_set(err, ST_BAD, "runner: \"%s\", expected local or sim:STEP_US (0 to 60000000)",
                       word);
    o->is_sim = true;
    o->sim_step_us = (int64_t)step_us;
    return ST_OK;
}

static enum status read_settings(struct registry *r, const struct env_settings *env,
                                 struct err *err) {
    const struct settings *s = r->settings;
    struct service_options *o = &r->service;
    struct memory_plan memory;
    TRY(memory_plan_make(s, memory_plan_machine_bytes(), &memory, err));
    *o = (struct service_options){.knobs = knobs_default(),
                                  .kv_bytes = s->kv_memory,
                                  .memory_share = s->gpu_memory,
                                  .ctx_tokens = (uint32_t)s->ctx,
                                  .device = s->device,
                                  .isa = s->isa,
                                  .placement = s->placement,
                                  .fp8_weights = strcmp(s->weights, "fp8") == 0,
                                  .spill_dir = env->tmp_dir,
                                  .record_bytes = s->record_bytes,
                                  .grammar_us = (int64_t)(s->grammar_s * 1e6),
                                  .grammar_bytes = s->grammar_max,
                                  .grammar_memory = memory.grammars,
                                  .secret = &r->secret,
                                  .on_progress = on_progress,
                                  .progress_ctx = r};
    bool keeps = strcmp(s->weights_cache, "on") == 0 && model_cache_images(&r->cache, r->images);
    if (keeps)
        o->weights = (struct weight_cache_options){
            .dir = r->images, .max_bytes = s->weights_cache_max, .verify = s->verify};
    TRY(cache_secret_make(s->cache_secret_file, &r->secret, err));
    o->policy = sched_policy_find(s->policy);
    if (!o->policy)
        return err_set(err, ST_BAD, "unknown policy \"%s\"; \"jitney knobs\" lists the policies",
                       s->policy);
    for (uint32_t i = 0; i < s->set.count; i++)
        TRY(knobs_set_pair(&o->knobs, str_of(s->set.items[i]), err));
    TRY(speculate_option_parse(str_of(s->speculate), &o->speculate, err));
    return read_runner(r, s->runner, err);
}

static enum status add_model(struct registry *r, const char *operand, struct err *err) {
    if (r->count == SERVED_MAX)
        return err_set(err, ST_BAD, "too many models; at most %d can be served", SERVED_MAX);
    if (str_of(operand).len >= MODEL_PATH_BYTES)
        return err_set(err, ST_BAD, "the name of a model is too long");
    struct served_model *m = &r->models[r->count];
    snprintf(m->operand, sizeof(m->operand), "%s", operand);
    m->created_s = clock_wall_s();
    name_model(r, r->count, m);
    for (uint32_t i = 0; i < r->count; i++)
        if (strcmp(r->models[i].name, m->name) == 0)
            return err_set(err, ST_BAD,
                           "two models have the name \"%s\"; give each a --served-model-name",
                           m->name);
    m->parts = mem_zalloc(sizeof(*m->parts));
    if (!m->parts) return err_set(err, ST_NOMEM, "out of memory for a model");
    m->parts->registry = r;
    m->parts->model = m;
    r->count++;
    return ST_OK;
}

static enum status fill(struct registry *r, struct err *err) {
    const struct settings *s = r->settings;
    struct env_settings env;
    struct err cache_err = {0};
    env_read(&env);
    /* Without a cache folder (no HOME) a path still works. */
    if (model_cache_init(&r->cache, &env, &cache_err) != ST_OK) r->cache.root[0] = 0;
    TRY(read_settings(r, &env, err));
    if (s->models.count == 0) TRY(add_model(r, "smollm2", err));
    for (uint32_t i = 0; i < s->models.count; i++) TRY(add_model(r, s->models.items[i], err));
    uint32_t names = s->served_model_name.count;
    if (names > 0 && names != r->count)
        return err_set(err, ST_BAD,
                       "--served-model-name gives %u names for %u models; give one for each model, "
                       "in the same order, or none",
                       names, r->count);
    return ST_OK;
}

enum status registry_create(struct uv_loop_s *loop, const struct settings *settings,
                            const struct registry_hooks *hooks, struct registry **out,
                            struct err *err) {
    struct registry *r = mem_zalloc(sizeof(*r));
    if (!r) return err_set(err, ST_NOMEM, "out of memory for the models");
    r->loop = loop;
    r->settings = settings;
    r->hooks = *hooks;
    enum status st = fill(r, err);
    if (st == ST_OK)
        *out = r;
    else
        registry_destroy(r);
    return st;
}

static void open_handles(struct registry *r) {
    CHECK(uv_async_init(r->loop, &r->changed, on_changed) == 0);
    r->changed.data = r;
    r->has_changed = true;
    for (uint32_t i = 0; i < r->count; i++) {
        struct model_parts *p = r->models[i].parts;
        CHECK(uv_async_init(r->loop, &p->output, r->hooks.on_output) == 0);
        CHECK(uv_async_init(r->loop, &p->embedded, r->hooks.on_embedded) == 0);
        p->output.data = p->embedded.data = p->model;
        p->has_handles = true;
    }
}

enum status registry_start(struct registry *r, struct err *err) {
    open_handles(r);
    int rc = pthread_create(&r->thread, NULL, load_main, r);
    if (rc != 0) return err_set(err, ST_NOMEM, "cannot start a thread: %s", strerror(rc));
    r->has_thread = true;
    return ST_OK;
}

bool registry_stop(struct registry *r) {
    atomic_store(&r->stopping, true);
    if (r->has_thread && !r->is_joined) {
        if (!atomic_load(&r->has_ended)) return false;
        pthread_join(r->thread, NULL);
        r->is_joined = true;
    }
    for (uint32_t i = 0; i < r->count; i++)
        if (r->models[i].engine) engine_stop(r->models[i].engine);
    return true;
}

void registry_close(struct registry *r) {
    if (r->is_closed) return;
    r->is_closed = true;
    if (r->has_changed) uv_close((uv_handle_t *)&r->changed, NULL);
    for (uint32_t i = 0; i < r->count; i++) {
        struct model_parts *p = r->models[i].parts;
        close_parts(p); /* first: its threads post to the handles */
        if (!p->has_handles) continue;
        uv_close((uv_handle_t *)&p->output, NULL);
        uv_close((uv_handle_t *)&p->embedded, NULL);
    }
}

void registry_destroy(struct registry *r) {
    if (!r) return;
    for (uint32_t i = 0; i < r->count; i++) mem_free(r->models[i].parts);
    mem_free(r);
}

uint32_t registry_count(const struct registry *r) { return r->count; }

struct served_model *registry_at(const struct registry *r, uint32_t i) {
    CHECK(i < r->count);
    return r->models[i].parts->model;
}

struct served_model *registry_default(const struct registry *r) {
    for (uint32_t i = 0; i < r->count; i++)
        if (r->models[i].state == LOAD_READY && !r->models[i].is_encoder) return registry_at(r, i);
    return registry_at(r, 0);
}

bool registry_has_ready(const struct registry *r) {
    for (uint32_t i = 0; i < r->count; i++)
        if (r->models[i].state == LOAD_READY) return true;
    return false;
}

bool registry_is_loaded(const struct registry *r) {
    for (uint32_t i = 0; i < r->count; i++)
        if (r->models[i].state == LOAD_WAITING || r->models[i].state == LOAD_LOADING) return false;
    return true;
}

struct load_progress registry_progress(const struct registry *r) {
    struct load_progress p = {.stage = ""};
    for (uint32_t i = 0; i < r->count; i++)
        if (r->models[i].state == LOAD_LOADING) p.model = &r->models[i];
    if (!p.model) return p;
    const char *stage = atomic_load(&((struct registry *)r)->stage);
    p.stage = stage ? stage : "";
    p.share = (double)atomic_load(&((struct registry *)r)->permille) / 1000;
    return p;
}
