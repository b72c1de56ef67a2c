/* server/ollama.c - routes that only Ollama's clients use: tags, show, ps, version. */
#include "api/ollama.h"

#include <stdio.h>
#include <xxhash.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/embedder.h"
#include "format/model_file.h"
#include "model/arch.h"
#include "model/model.h"
#include "server/handlers.h"
#include "server/registry.h"
#include "server/http_request.h"
#include "server/task_int.h"
#include "text/tokenizer.h"

enum { BODY_BYTES_MAX = 1 << 24, DIGEST_BYTES = 65 };

/* Ollama's clients identify a model by a digest. Hashing gigabytes would delay the start, so the
 * digest is made of the file's path and size. */
static void put_digest(const struct served_model *m, char out[DIGEST_BYTES]) {
    for (uint64_t i = 0; i < 4; i++) {
        uint64_t part = XXH3_64bits_withSeed(m->path, str_of(m->path).len, m->file_bytes + i);
        snprintf(out + 16 * i, DIGEST_BYTES - 16 * i, "%016llx", (unsigned long long)part);
    }
}

static void fill(const struct served_model *m, char digest[DIGEST_BYTES],
                 struct ollama_model *out) {
    put_digest(m, digest);
    *out = (struct ollama_model){.name = str_of(m->name),
                                 .modified_s = m->created_s,
                                 .bytes = m->file_bytes,
                                 .digest = {digest, DIGEST_BYTES - 1},
                                 .ctx_tokens = m->ctx_tokens,
                                 .has_tools = m->forms.tools != NULL,
                                 .has_thoughts = m->forms.thinks != NULL,
                                 .is_embedder = m->is_encoder};
    if (m->state != LOAD_READY) return;
    bool is_gguf = model_file_kind(m->loaded->file) == MODEL_GGUF;
    out->format = is_gguf ? STR("gguf") : STR("safetensors");
    out->family = str_of(m->loaded->model->arch->name);
    out->parameter_count = model_param_count(m->loaded->model);
    out->chat_template = tokenizer_chat_template(m->tokenizer, false);
    if (m->embedder) out->dims = embedder_dims(m->embedder);
}

typedef void list_put_fn(const struct ollama_model *models, uint32_t count, struct buf *out);

static void respond_list(struct http_request *req, bool only_ready, list_put_fn *put) {
    const struct registry *r = req->server->registry;
    struct ollama_model models[SERVED_MAX];
    char digests[SERVED_MAX][DIGEST_BYTES];
    uint32_t count = 0;
    struct buf body;
    buf_init(&body, BODY_BYTES_MAX);
    for (uint32_t i = 0; i < registry_count(r); i++) {
        const struct served_model *m = registry_at(r, i);
        if (only_ready && m->state != LOAD_READY) continue;
        fill(m, digests[count], &models[count]);
        count++;
    }
    put(models, count, &body);
    respond_json(req, &body);
    buf_deinit(&body);
}

void handle_ollama_tags(struct http_request *req) { respond_list(req, false, ollama_tags_put); }
void handle_ollama_ps(struct http_request *req) { respond_list(req, true, ollama_ps_put); }

void handle_ollama_version(struct http_request *req) {
    struct buf body;
    buf_init(&body, BODY_BYTES_MAX);
    ollama_version_put(JITNEY_VERSION, &body);
    respond_json(req, &body);
    buf_deinit(&body);
}

/* A request for a model's description, while its body is read. */
struct show_task {
    struct task base;
    char name[SERVED_NAME_BYTES];
};

static enum status read_show_body(struct task *task, struct json *doc) {
    struct show_task *t = (struct show_task *)task;
    struct str name = {0};
    enum status st = ollama_show_read(doc, &name, &task->error);
    snprintf(t->name, sizeof(t->name), "%.*s", STR_ARG(name));
    json_destroy(doc);
    return st;
}

static void respond_show(struct http_request *req, const struct served_model *m) {
    char digest[DIGEST_BYTES];
    struct ollama_model info;
    struct buf body;
    buf_init(&body, BODY_BYTES_MAX);
    fill(m, digest, &info);
    ollama_show_put(&info, &body);
    respond_json(req, &body);
    buf_deinit(&body);
}

static void on_show_body_read(struct task *task) {
    struct show_task *t = (struct show_task *)task;
    struct http_request *req = task->http;
    struct served_model *m = NULL;
    enum status st = task->status;
    if (req && st == ST_OK)
        st = registry_find_ready(req->server->registry, str_of(t->name), &m, &task->error);
    if (req && st == ST_OK)
        respond_show(req, m);
    else if (req)
        respond_error(req, &task->error);
    mem_free(t);
}

void handle_ollama_show(struct http_request *req) {
    struct show_task *t = task_create(req, sizeof(*t), read_show_body, on_show_body_read);
    if (t) task_read_body(&t->base);
}
