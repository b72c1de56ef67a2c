/* server/engine_paths.c - the paths below /v1/engine: what an engine does, for operators. */
#include "base/buf.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/record.h"
#include "server/engine_paths.h"
#include "server/engine_watch.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/registry.h"

enum { NAME_BYTES_MAX = 4096 };

struct served_model *engine_paths_model(struct http_request *req) {
    struct served_model *m = NULL;
    struct api_error e = {0};
    struct buf name;
    buf_init(&name, NAME_BYTES_MAX);
    bool is_named = http_query_find(req->head->query, "model", &name);
    struct str wanted = is_named ? buf_str(&name) : (struct str){0};
    enum status st = registry_find_ready(req->server->registry, wanted, &m, &e);
    if (st == ST_OK && !m->engine)
        st = api_refuse(&e, 400, "model", NULL,
                        "the model \"%s\" writes no text, so it has no engine", m->name);
    buf_deinit(&name);
    if (st == ST_OK) return m;
    respond_error(req, &e);
    return NULL;
}

int64_t engine_epoch_ms(void) { return (clock_wall_us() - clock_now(&clock_real)) / 1000; }

/* Where a watcher begins: behind Last-Event-ID, at ?from=N, or at the newest record. False: the
 * request was answered. */
static bool find_start(struct http_request *req, const struct record_span *span, uint64_t *from) {
    struct str last = http_find(req->head, "last-event-id");
    uint64_t seen;
    if (!http_request_query_u64(req, "from", span->next, from)) return false;
    if (last.ptr && str_to_u64(last, &seen) && seen < UINT64_MAX) *from = seen + 1;
    if (*from == 0) *from = span->first;
    if (*from > span->next) *from = span->next;
    return true;
}

void handle_engine_steps(struct http_request *req) {
    uint64_t from;
    struct served_model *m = engine_paths_model(req);
    if (!m) return;
    struct record_span span = record_span(engine_records(m->engine));
    if (find_start(req, &span, &from)) engine_watch_add(req->server->watch, req, m, from);
}
