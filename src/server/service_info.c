/* server/service_info.c - models, health, version, metrics and the OpenAPI document. */
#include <stdio.h>
#include <string.h>

#include "api/models.h"
#include "api/openapi.h"
#include "api/tools.h"
#include "base/buf.h"
#include "engine/embedder.h"
#include "page/page.h"
#include "jobs/store.h"
#include "server/batch_run.h"
#include "server/generations.h"
#include "server/handlers.h"
#include "server/lifecycle.h"
#include "report/log.h"
#include "server/registry.h"
#include "server/http_request.h"
#include "server/work_queue.h"
#include "text/tokenizer.h"

enum { INFO_BYTES_MAX = 1 << 24, NAME_BYTES_MAX = 1024 };

/* ---- models ---- */

static void fill_info(const struct served_model *m, struct model_info *out) {
    *out = (struct model_info){.id = str_of(m->name),
                               .created_s = m->created_s,
                               .ctx_tokens = m->ctx_tokens,
                               .writes = m->engine != NULL,
                               .embeds = m->embedder != NULL,
                               .has_chat = m->chat != NULL,
                               .tools = str_of(m->forms.tools ? m->forms.tools->name : NULL),
                               .file_bytes = m->file_bytes,
                               .state = str_of(load_state_name(m->state))};
    if (m->state != LOAD_READY) return;
    out->vocab = tokenizer_vocab(m->tokenizer);
    if (m->embedder) out->dims = embedder_dims(m->embedder);
}

void handle_models(struct http_request *req) {
    const struct registry *r = req->server->registry;
    struct model_info infos[SERVED_MAX];
    struct buf body;
    buf_init(&body, INFO_BYTES_MAX);
    for (uint32_t i = 0; i < registry_count(r); i++) fill_info(registry_at(r, i), &infos[i]);
    models_put(infos, registry_count(r), &body);
    respond_json(req, &body);
    buf_deinit(&body);
}

/* A name may have a slash, which clients send as it is or as %2F. */
static bool decode_name(struct str sent, struct buf *out) {
    struct buf query;
    buf_init(&query, NAME_BYTES_MAX);
    buf_put_text(&query, "n=");
    buf_put_str(&query, sent);
    bool ok = http_query_find(buf_str(&query), "n", out);
    buf_deinit(&query);
    return ok;
}

void handle_model(struct http_request *req) {
    struct buf body, name;
    struct api_error e = {0};
    struct model_info info;
    buf_init(&body, INFO_BYTES_MAX);
    buf_init(&name, NAME_BYTES_MAX);
    const struct served_model *m = NULL;
    if (decode_name(req->arg, &name)) m = registry_find(req->server->registry, buf_str(&name));
    if (m) {
        fill_info(m, &info);
        model_put(&info, &body);
        respond_json(req, &body);
    } else {
        api_refuse(&e, 404, "model", "model_not_found",
                   "unknown model \"%.*s\"; GET /v1/models lists this server's models",
                   STR_ARG(req->arg));
        respond_error(req, &e);
    }
    buf_deinit(&name);
    buf_deinit(&body);
}

/* ---- health ---- */

/* Every model has failed after it was loaded. */
static const char NO_MODEL[] = "no model can be used; the server's log says why";

static void respond_status(struct http_request *req, uint32_t status, const char *json) {
    static const struct http_header retry[] = {{{"retry-after", 11}, {"1", 1}}};
    respond(req, &(struct response){.status = status,
                                    .body = str_of(json),
                                    .headers = retry,
                                    .header_count = status == 503 ? 1 : 0});
}

void handle_live(struct http_request *req) {
    const char *failure = lifecycle_failure(req->server);
    char body[128];
    snprintf(body, sizeof(body), "{\"status\":\"%s\"}", failure ? failure : "ok");
    respond_status(req, failure ? 503 : 200, body);
}

/* "loading smollm2: weights 43 %" */
static void put_loading(const struct server *s, char *out, size_t bytes) {
    struct load_progress p = registry_progress(s->registry);
    if (p.model)
        snprintf(out, bytes, "Loading model %s: %s %.0f %%", p.model->name, p.stage, p.share * 100);
    else
        snprintf(out, bytes, "Loading model");
}

void handle_ready(struct http_request *req) {
    struct server *s = req->server;
    char text[SERVED_NAME_BYTES + 128];
    struct buf body;
    const char *failure = lifecycle_failure(s);
    if (!failure && s->is_loaded && !registry_has_ready(s->registry)) failure = NO_MODEL;
    uint32_t status = s->is_loaded && !s->is_draining && !failure ? 200 : 503;
    if (status == 200 || failure || s->is_draining)
        snprintf(text, sizeof(text), "%s", failure ? failure : status == 200 ? "ok" : "draining");
    else
        put_loading(s, text, sizeof(text));
    buf_init(&body, INFO_BYTES_MAX);
    buf_put_text(&body, "{\"status\":");
    buf_put_json_string(&body, str_of(text));
    buf_put_char(&body, '}');
    respond_status(req, status, buf_text(&body));
    buf_deinit(&body);
}

/* In the form that llama-server's clients expect. */
void handle_health(struct http_request *req) {
    struct server *s = req->server;
    char text[SERVED_NAME_BYTES + 128];
    struct buf body;
    const char *failure = lifecycle_failure(s);
    if (!failure && s->is_loaded && !registry_has_ready(s->registry)) failure = NO_MODEL;
    if (s->is_loaded && !failure) {
        respond_status(req, 200, "{\"status\":\"ok\"}");
        return;
    }
    if (failure)
        snprintf(text, sizeof(text), "%s", failure);
    else
        put_loading(s, text, sizeof(text));
    buf_init(&body, INFO_BYTES_MAX);
    buf_put_text(&body, "{\"error\":{\"code\":503,\"message\":");
    buf_put_json_string(&body, str_of(text));
    buf_put_text(&body, ",\"type\":\"unavailable_error\",\"param\":null}}");
    respond_status(req, 503, buf_text(&body));
    buf_deinit(&body);
}

void handle_version(struct http_request *req) {
    respond_status(req, 200, "{\"version\":\"" JITNEY_VERSION "\"}");
}

/* ---- metrics ---- */

static void pull_durable(struct server *s, struct store_stats *store, struct metrics_durable *out) {
    if (!s->store) return;
    const struct batch_stats batches = batch_runs_stats(s->batches);
    *store = store_stats(s->store);
    *out = (struct metrics_durable){.store = store,
                                    .batches_open = batches.open,
                                    .lines_waiting = batches.waiting,
                                    .lines_running = batches.running,
                                    .lines_completed = batches.completed,
                                    .lines_failed = batches.failed,
                                    .lines_repeated = batches.repeated};
}

void handle_metrics(struct http_request *req) {
    struct server *s = req->server;
    struct engine_stats engines[SERVED_MAX];
    struct http_stats http = http_stats(s->http);
    struct generations_stats generations = generations_stats(s->generations);
    struct work_queue_stats work = work_queue_stats(s->work);
    struct store_stats store;
    struct metrics_pull pull = {.http = &http,
                                .answers_bytes = generations.bytes,
                                .embeddings_bytes = s->embeddings.used,
                                .answers_refused = generations.refused,
                                .work_items = (uint64_t)work.waiting + work.running,
                                .work_bytes = work.bytes,
                                .work_refused = work.refused,
                                .memory_max = s->memory.total,
                                .kept_answers = generations.kept,
                                .kept_bytes = generations.kept_bytes,
                                .answers = generations.live,
                                .lost_log_lines = log_lost(s->log),
                                .lost_spans = s->tracer ? tracer_lost(s->tracer) : 0};
    pull_durable(s, &store, &pull.durable);
    for (uint32_t i = 0; i < registry_count(s->registry); i++) {
        const struct served_model *m = registry_at(s->registry, i);
        if (m->state != LOAD_READY || !m->engine) continue;
        engines[i] = engine_stats(m->engine);
        pull.engines[m->metrics_idx] = &engines[i];
    }
    struct buf body;
    buf_init(&body, INFO_BYTES_MAX);
    server_metrics_print(s->metrics, &pull, &body);
    respond(req, &(struct response){.status = 200,
                                    .type = "text/plain; version=0.0.4; charset=utf-8",
                                    .body = buf_str(&body)});
    buf_deinit(&body);
}

/* ---- documents ---- */

enum status server_make_documents(struct server *s) {
    struct buf text;
    buf_init(&text, INFO_BYTES_MAX);
    openapi_put(&text);
    if (buf_status(&text) == ST_OK) s->openapi = http_document_create(buf_str(&text));
    buf_deinit(&text);
    if (!s->openapi) return ST_NOMEM;
    for (uint32_t i = 0; i < page_count(); i++) {
        s->page[i] = http_document_create(page_at(i)->bytes);
        if (!s->page[i]) return ST_NOMEM;
    }
    return ST_OK;
}

void handle_openapi(struct http_request *req) {
    respond(req, &(struct response){.status = 200, .document = req->server->openapi});
}
