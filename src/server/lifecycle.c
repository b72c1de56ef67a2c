/* server/lifecycle.c - server_run: listen, load, serve, drain, end; signals and the watchdog.
 *
 *     serving --SIGTERM, SIGINT--> draining --all done, or drain_s--> ending --> closed
 *        |                             +---------second signal---------^
 *        +--a model's threads hang or fail--> failed: requests are failed, probes can see it for
 *                                             two seconds, then the process ends
 *
 * A timer (on_tick) checks all that is waited for.
 */
#include "server/lifecycle.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "engine/embedder.h"
#include "engine/engine.h"
#include "engine/loaded_model.h"
#include "net/tls.h"
#include "server/accounts.h"
#include "server/batch_run.h"
#include "server/dispatch.h"
#include "server/engine_ask.h"
#include "server/engine_watch.h"
#include "report/log.h"
#include "server/generations.h"
#include "server/idle_trim.h"
#include "server/offline.h"
#include "server/registry.h"
#include "server/retention.h"
#include "server/routes.h"
#include "server/server.h"
#include "server/server_int.h"
#include "server/storage.h"
#include "server/stored_answer.h"

enum {
    TICK_MS = 100,
    DRAIN_TICK_MS = 10,
    KEY_CHECK_US = 1000000,
    LOAD_REPORT_US = 1000000,
    END_GRACE_US = 2000000,    /* for the last responses to be sent */
    FAILED_GRACE_US = 2000000, /* for probes to see a failure */
    STOP_US = 2000000,         /* for threads to stop using what is to be freed */
    STOP_HURRIED_US = 200000,  /* after a second signal */
    FAILED_STEPS_MAX = 8,      /* in a row: the device is lost */
    WORK_ITEMS_MAX = 4096,     /* that wait for libuv's pool */
};

static void log_event(struct server *s, enum log_level level, const char *event, const char *text) {
    struct log_field field = log_text("text", str_of(text));
    log_line(s->log, level, event, &field, 1);
}

/* ---- ending ---- */

static void fail_generations(struct server *s, uint32_t status, const char *code,
                             const char *sentence) {
    struct api_error e = {0};
    api_refuse(&e, status, NULL, code, "%s", sentence);
    e.retry_after_ms = status == 503 ? 5000 : 0;
    generations_fail(s->generations, &e);
}

static void close_handles(struct server *s) {
    for (uint32_t i = 0; i < SIGNALS; i++) uv_close((uv_handle_t *)&s->signals[i], NULL);
    uv_close((uv_handle_t *)&s->tick, NULL);
    uv_close((uv_handle_t *)&s->stalled, NULL);
    engine_watch_close(s->watch);
    engine_asks_close(s->asks);
    batch_runs_close(s->batches);
    retention_close(s->retention);
    storage_close(s);
}

static bool is_idle(const struct server *s) {
    return generations_stats(s->generations).live == 0 && s->embeds == 0 && s->tasks == 0 &&
           s->local_count == 0 && storage_is_idle(s);
}

/* Close all handles of the loop once nothing runs any more. Threads that do not stop in time (a
 * model that is being opened, texts in an embedder) are left as they are: the process exits. */
static void try_close(struct server *s, int64_t now_us) {
    if (!is_idle(s) || !registry_stop(s->registry)) {
        int64_t grace_us = s->is_hurried ? STOP_HURRIED_US : STOP_US;
        if (now_us < s->http_closed_us + grace_us) return;
        s->is_stuck = true;
        uv_stop(&s->loop);
        return;
    }
    s->is_closed = true;
    generations_close(s->generations);
    registry_close(s->registry);
    close_handles(s);
}

static void begin_end(struct server *s) {
    s->is_ending = true;
    s->drain_until_us = clock_now(&clock_real);
    batch_runs_stop(s->batches);
    fail_generations(s, 503, "shutting_down", "the server is shutting down");
    if (s->store) storage_push_retries(s); /* the last try */
    ws_clients_drain(s);
}

static void close_http(struct server *s) {
    s->is_http_closed = true;
    s->http_closed_us = clock_now(&clock_real);
    http_server_close(s->http);
}

static void step_drain(struct server *s) {
    int64_t now_us = clock_now(&clock_real);
    if (!s->is_ending && (is_idle(s) || now_us >= s->drain_until_us)) begin_end(s);
    if (!s->is_ending) return;
    bool is_sent = http_stats(s->http).exchanges == 0 && !s->ws_clients.first;
    if (!s->is_http_closed && (is_sent || now_us >= s->drain_until_us + END_GRACE_US))
        close_http(s);
    if (s->is_http_closed) try_close(s, now_us);
}

/* ---- the watchdog ---- */

/* On the watchdog's thread. */
static void on_stall(void *ctx, int64_t stalled_us) {
    struct server *s = ctx;
    (void)stalled_us;
    uv_async_send(&s->stalled);
}

/* A model whose file has become unreadable fails all its steps; the other models go on. */
static const char *failure_of(const struct served_model *m, int64_t limit_us) {
    if (m->state == LOAD_FAILED) return NULL;
    if (m->embedder && embedder_stalled_us(m->embedder) > limit_us) return "the embedder hangs";
    if (!m->engine) return NULL;
    struct engine_liveness liveness = engine_liveness(m->engine);
    if (liveness.stalled_us > limit_us) return "the engine hangs";
    if (liveness.failed_steps >= FAILED_STEPS_MAX) return "every step of the engine fails";
    return NULL;
}

const char *lifecycle_failure(const struct server *s) {
    int64_t limit_us = (int64_t)(s->settings.watchdog_s * 1e6);
    const char *failure = s->failure;
    if (!failure && s->is_engine_lost)
        failure = "the steps of durable answers fail each time they are repeated";
    registry_check_files(s->registry);
    for (uint32_t i = 0; !failure && i < registry_count(s->registry); i++)
        failure = failure_of(registry_at(s->registry, i), limit_us);
    return failure;
}

/* Only a new process can repair it; the service manager starts one. */
static void end_after_failure(struct server *s, const char *failure) {
    if (s->failure || s->is_closed) return;
    s->failure = failure;
    s->drain_until_us = clock_now(&clock_real) + FAILED_GRACE_US;
    s->end_status = err_set(&s->end_err, ST_DEVICE, "%s", failure);
    log_event(s, LOG_ERROR, "engine_failed", failure);
    notify_status(&s->notify, failure);
    stored_answers_note_lost(s);
    fail_generations(s, 500, "engine_lost", "the engine does not respond; the server ends");
}

static void on_stalled(uv_async_t *handle) {
    struct server *s = handle->data;
    const char *failure = lifecycle_failure(s); /* NULL: the step has ended meanwhile */
    if (failure) end_after_failure(s, failure);
}

static void send_watchdog(struct server *s, int64_t now_us) {
    if (s->notify.watchdog_us <= 0 || now_us - s->watchdog_sent_us < s->notify.watchdog_us / 3)
        return;
    if (lifecycle_failure(s)) return;
    s->watchdog_sent_us = now_us;
    notify_watchdog(&s->notify);
}

/* ---- cached weights ---- */

static void log_weights(struct server *s, const struct served_model *m, enum log_level level,
                        const char *text) {
    struct log_field fields[] = {log_text("model", str_of(m->name)),
                                 log_text("text", str_of(text))};
    log_line(s->log, level, "weights", fields, 2);
}

static void report_verified(struct server *s, const struct served_model *m) {
    if (!weight_cache_report(m->loaded->weights).is_unverified)
        server_metrics_verified(s->metrics, m->metrics_idx);
}

/* The model is ready: check the weights that came from an image, write an image of others. */
static void keep_weights(struct server *s, const struct served_model *m) {
    struct err err = {0};
    report_verified(s, m);
    if (weight_cache_keep(m->loaded->weights, &err) != ST_OK) log_weights(s, m, LOG_WARN, err.text);
}

/* Log once for each model that its weights were checked or written, or why not. */
static void watch_weights(struct server *s) {
    for (uint32_t i = 0; i < registry_count(s->registry); i++) {
        const struct served_model *m = registry_at(s->registry, i);
        const char *text;
        enum status st;
        if (m->state != LOAD_READY || !weight_cache_kept(m->loaded->weights, &st, &text)) continue;
        report_verified(s, m);
        bool is_fine = st == ST_OK || st == ST_UNAVAILABLE;
        struct err line;
        (void)err_set(&line, st, "%s%s", text,
                      is_fine ? "" : "; not kept, so the next start converts the weights again");
        log_weights(s, m, is_fine ? LOG_INFO : LOG_WARN, line.text);
    }
}

/* ---- the timer ---- */

static void check_keys(struct server *s, int64_t now_us) {
    struct err err = {0}, line;
    if (now_us - s->key_check_us < KEY_CHECK_US) return;
    s->key_check_us = now_us;
    const uint32_t changes = keys_facts(s->keys).changes;
    enum status st = keys_reload(s->keys, false, &err);
    if (st != ST_OK) {
        (void)err_set(&line, st, "%s; the keys that were read before stay valid", err.text);
        log_event(s, LOG_WARN, "keys", line.text);
    }
    if (keys_facts(s->keys).changes == changes) return;
    lifecycle_share_memory(s);
    ws_clients_check_keys(s);
    engine_watch_check_keys(s->watch);
    char text[64];
    snprintf(text, sizeof(text), "the key file has changed; it has %u keys",
             keys_facts(s->keys).keys);
    log_event(s, LOG_INFO, "keys", text);
}

/* The service manager extends its timeout with each report. */
static void report_loading(struct server *s, int64_t now_us) {
    char text[SERVED_NAME_BYTES + 64];
    struct load_progress p = registry_progress(s->registry);
    if (s->is_loaded || !p.model || now_us - s->status_sent_us < LOAD_REPORT_US) return;
    s->status_sent_us = now_us;
    snprintf(text, sizeof(text), "loading %s: %s %.0f %%", p.model->name, p.stage, p.share * 100);
    notify_status(&s->notify, text);
}

/* A thread may hang, so nothing is freed; but the socket's file is removed. */
static void stop_failed(struct server *s) {
    if (!s->is_http_closed) close_http(s);
    uv_stop(&s->loop);
}

static void on_tick(uv_timer_t *timer) {
    struct server *s = timer->data;
    int64_t now_us = clock_now(&clock_real);
    const char *failure = lifecycle_failure(s);
    if (failure) end_after_failure(s, failure);
    report_loading(s, now_us);
    sink_streams_ping(s);
    if (s->store) storage_push_retries(s);
    stored_answers_recover(s);
    check_keys(s, now_us);
    watch_weights(s);
    idle_trim_tick(s->idle_trim, is_idle(s), http_stats(s->http).bytes_in, now_us);
    send_watchdog(s, now_us);
    if (s->failure && now_us >= s->drain_until_us) stop_failed(s);
    if (s->is_draining && !s->failure && !s->is_closed) step_drain(s);
}

void lifecycle_drain(struct server *s) {
    s->is_draining = true;
    s->drain_until_us = clock_now(&clock_real) + (int64_t)(s->settings.drain_s * 1e6);
    log_event(s, LOG_INFO, "drain",
              "finishing the requests under way; a second signal ends at once");
    notify_stopping(&s->notify);
    http_server_drain(s->http);
    ws_clients_drain(s);
    engine_watch_drain(s->watch);
    uv_timer_start(&s->tick, on_tick, 0, DRAIN_TICK_MS);
}

static void on_end_signal(uv_signal_t *handle, int number) {
    struct server *s = handle->data;
    (void)number;
    if (s->failure) return;
    if (!s->is_draining) {
        if (s->offline)
            offline_interrupt(s->offline);
        else
            lifecycle_drain(s);
        return;
    }
    s->is_hurried = true;
    if (!s->is_ending) begin_end(s);
    if (!s->is_http_closed) close_http(s);
}

static void on_reload_signal(uv_signal_t *handle, int number) {
    struct server *s = handle->data;
    (void)number;
    lifecycle_reload(s);
}

static void on_ignored_signal(uv_signal_t *handle, int number) {
    (void)handle;
    (void)number;
}

/* ---- models ---- */

static void add_metrics(struct server *s, struct served_model *m) {
    struct metrics_model info = {.name = m->name,
                                 .ctx_tokens = m->ctx_tokens,
                                 .block_tokens = m->knobs.block_size,
                                 .kv_blocks = m->engine ? m->knobs.kv_blocks : 0,
                                 .block_bytes = m->memory.block_bytes,
                                 .group_count = m->loaded->model->kv_group_count};
    if (server_metrics_add_model(s->metrics, &info, &m->metrics_idx) != ST_OK)
        log_event(s, LOG_WARN, "metrics", "out of memory for a model's metrics");
}

/* What the engine has allocated, besides weights and what all models share. */
static uint32_t memory_fields(const struct served_model *m, struct log_field *out) {
    out[0] = log_int("kv_mib", (int64_t)(m->memory.kv_bytes >> 20));
    out[1] = log_int("prefix_mib", (int64_t)(m->memory.prefix_bytes >> 20));
    out[2] = log_int("scratch_mib", (int64_t)(m->memory.scratch_bytes >> 20));
    const struct draft_model_memory *draft = &m->memory.draft;
    if (draft->lanes == 0) return 3;
    out[3] = log_int("draft_mib", (int64_t)((draft->weight_bytes + draft->kv_bytes) >> 20));
    out[4] = log_int("draft_sequences", draft->lanes);
    return 5;
}

static void log_placement(struct server *s, const struct served_model *m) {
    if (m->state != LOAD_READY) return;
    const char *bound_to = m->loaded->device.bound_to, *unbound = m->loaded->device.unbound_text;
    struct log_field fields[] = {log_text("model", str_of(m->name)),
                                 bound_to ? log_text("processors", str_of(bound_to))
                                          : log_text("text", str_of(unbound))};
    if (bound_to || unbound[0])
        log_line(s->log, bound_to ? LOG_INFO : LOG_WARN, "placement", fields, 2);
}

static void log_model(struct server *s, struct served_model *m) {
    struct log_field fields[10] = {log_text("model", str_of(m->name)),
                                   log_text("state", str_of(load_state_name(m->state)))};
    uint32_t count = 2;
    bool failed = m->state == LOAD_FAILED;
    if (m->path[0]) fields[count++] = log_text("path", str_of(m->path));
    if (failed) fields[count++] = log_text("error", str_of(m->failure.text));
    struct weight_report weights = {.note = ""};
    if (m->state == LOAD_READY) weights = weight_cache_report(m->loaded->weights);
    if (weights.read || weights.made)
        fields[count++] = log_text("weights", weights.made ? STR("made") : STR("kept"));
    if (m->state == LOAD_READY && m->engine) count += memory_fields(m, fields + count);
    if (weights.note[0]) {
        struct err line;
        (void)err_set(&line, ST_BAD, "%s; the weights were converted again", weights.note);
        log_weights(s, m, LOG_WARN, line.text);
    }
    log_line(s->log, failed ? LOG_ERROR : LOG_INFO, "model", fields, count);
    log_placement(s, m);
}

/* Every model is ready or has failed. Without any model there is nothing to serve. */
static void all_loaded(struct server *s) {
    s->is_loaded = true;
    if (s->is_draining) return;
    if (!registry_has_ready(s->registry)) {
        struct served_model *m = registry_at(s->registry, 0);
        s->end_err = m->failure;
        s->end_status = m->load_status;
        lifecycle_drain(s);
        return;
    }
    if (s->offline) {
        offline_begin(s->offline);
        return;
    }
    notify_ready(&s->notify);
    notify_status(&s->notify, "serving");
    stored_answers_recover(s);
    lifecycle_print_examples(s);
}

static void on_changed(void *ctx, struct served_model *m) {
    struct server *s = ctx;
    if (!m) {
        all_loaded(s);
        return;
    }
    log_model(s, m);
    if (m->state != LOAD_READY) return;
    add_metrics(s, m);
    keep_weights(s, m);
    batch_runs_wake(s->batches);
}

/* ---- start ---- */

static void open_handles(struct server *s) {
    /* SIGXFSZ: a file over the system's size limit is an error of the write, not of the process. */
    static const int numbers[SIGNALS] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGXFSZ};
    const uv_signal_cb calls[SIGNALS] = {on_end_signal, on_end_signal,
                                         s->offline ? on_end_signal : on_reload_signal,
                                         on_ignored_signal, on_ignored_signal};
    for (uint32_t i = 0; i < SIGNALS; i++) {
        CHECK(uv_signal_init(&s->loop, &s->signals[i]) == 0);
        s->signals[i].data = s;
        CHECK(uv_signal_start(&s->signals[i], calls[i], numbers[i]) == 0);
    }
    CHECK(uv_timer_init(&s->loop, &s->tick) == 0);
    CHECK(uv_async_init(&s->loop, &s->stalled, on_stalled) == 0);
    s->tick.data = s->stalled.data = s;
    CHECK(uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS) == 0);
}

/* The limit of connections is derived from the limit of descriptors. */
static void raise_descriptors(struct server *s) {
    uint64_t before = 0, after = 0;
    http_raise_fd_limit(&before, &after);
    struct log_field fields[] = {log_int("from", (int64_t)before), log_int("to", (int64_t)after)};
    log_line(s->log, LOG_INFO, "descriptors", fields, 2);
}

static enum status make_tools(struct server *s, struct err *err) {
    TRY(log_create(2, s->settings.log_format, s->settings.log_level, &s->log, err));
    TRY(routes_check(err));
    TRY(keys_create(s->settings.api_key_file, &s->keys, err));
    if (s->settings.tls_cert)
        TRY(tls_context_create(s->settings.tls_cert, s->settings.tls_key, &s->tls, err));
    if (server_metrics_create(&s->metrics) != ST_OK)
        return err_set(err, ST_NOMEM, "out of memory for the metrics");
    if (server_make_documents(s) != ST_OK)
        return err_set(err, ST_NOMEM, "out of memory for the OpenAPI document");
    TRY(tracer_create(s->settings.otlp_endpoint, "jitney", &s->tracer, err));
    if (!s->offline) TRY(notify_open(&s->notify, err));
    bool is_any = access_host_is_any(s->settings.host) || s->notify.listen_count > 0;
    bool is_local = access_host_is_loopback(s->settings.host) && s->notify.listen_count == 0;
    s->access_rules = (struct access_rules){.settings = &s->settings,
                                            .keys = s->keys,
                                            .is_any_address = is_any,
                                            .is_local_only = is_local};
    return ST_OK;
}

void server_wake_engines(struct server *s) {
    for (uint32_t i = 0; i < registry_count(s->registry); i++) {
        struct served_model *m = registry_at(s->registry, i);
        if (m->has_submitted) engine_wake(m->engine);
        m->has_submitted = false;
    }
}

/* Once for all requests that were prepared together. */
static void wake_engines(void *ctx) { server_wake_engines(ctx); }

static enum status make_queue(struct server *s, struct err *err) {
    TRY(memory_plan_make(&s->settings, memory_plan_machine_bytes(), &s->memory, err));
    const struct work_queue_options options = {.loop = &s->loop,
                                               .after_batch = wake_engines,
                                               .ctx = s,
                                               .items_max = WORK_ITEMS_MAX,
                                               .bytes_max = s->memory.work,
                                               .bytes_least = s->settings.body_max,
                                               .is_single = keys_facts(s->keys).keys < 2};
    if (accounts_create(&s->accounts) != ST_OK || work_queue_create(&options, &s->work) != ST_OK)
        return err_set(err, ST_NOMEM, "out of memory for the queue of work");
    return ST_OK;
}

/* What works with the store, if there is one. */
static enum status make_durable(struct server *s, struct err *err) {
    TRY(storage_open(s, err));
    if (!s->store) return ST_OK;
    if (batch_runs_create(s, &s->batches) != ST_OK || retention_create(s, &s->retention) != ST_OK)
        return err_set(err, ST_NOMEM, "out of memory for the batches");
    return ST_OK;
}

static enum status make_parts(struct server *s, struct err *err) {
    const struct registry_hooks hooks = {.on_output = generations_on_output,
                                         .on_embedded = embeddings_on_done,
                                         .on_changed = on_changed,
                                         .on_stall = on_stall,
                                         .ctx = s};
    TRY(make_queue(s, err));
    const struct generations_options generations = {.loop = &s->loop,
                                                    .accounts = s->accounts,
                                                    .work = s->work,
                                                    .keep_ms = (int64_t)(s->settings.keep_s * 1e3),
                                                    .keep_bytes = lifecycle_keep_bytes(s),
                                                    .answers_bytes = s->memory.answers,
                                                    .is_single = keys_facts(s->keys).keys < 2,
                                                    .metrics = s->metrics,
                                                    .keys = s->keys,
                                                    .on_prepared = stored_answer_insert,
                                                    .on_ended = generation_report,
                                                    .ctx = s};
    if (engine_watch_create(s, &s->watch) != ST_OK || engine_asks_create(s, &s->asks) != ST_OK)
        return err_set(err, ST_NOMEM, "out of memory for the watchers of engines");
    if (idle_trim_create(&s->loop, &s->idle_trim) != ST_OK)
        return err_set(err, ST_NOMEM, "out of memory for the server");
    struct http_options http = {.handler = &dispatch_handler, .ctx = s};
    lifecycle_limits(s, &http.limits);
    TRY(registry_create(&s->loop, &s->settings, &hooks, &s->registry, err));
    TRY(make_durable(s, err));
    TRY(http_server_create(&s->loop, &http, &s->http, err));
    if (!s->offline) TRY(lifecycle_listen(s, err));
    TRY(generations_create(&generations, &s->generations, err));
    lifecycle_share_memory(s);
    return ST_OK;
}

static enum status start(struct server *s, struct err *err) {
    TRY(make_tools(s, err));
    raise_descriptors(s);
    open_handles(s); /* before loading, so that signals during it are handled */
    s->has_handles = true;
    TRY(make_parts(s, err));
    TRY(registry_start(s->registry, err));
    if (!s->store) return ST_OK;
    batch_runs_recover(s->batches);
    retention_start(s->retention);
    return ST_OK;
}

/* ---- the end ---- */

/* Close what a failed start has opened. */
static void abandon_start(struct server *s) {
    if (s->http && !s->is_http_closed) close_http(s);
    if (s->generations) generations_close(s->generations);
    if (s->registry) {
        registry_stop(s->registry);
        registry_close(s->registry);
    }
    if (s->has_handles) close_handles(s);
    uv_run(&s->loop, UV_RUN_DEFAULT);
}

/* A thread that hangs may use what would be freed: the process exits without freeing it. */
static void exit_unfreed(struct server *s) {
    tracer_destroy(s->tracer);
    notify_close(&s->notify);
}

/* Every request has ended, in whatever way: nothing is counted as under way or held. */
static void check_empty(const struct server *s) {
    CHECK(s->tasks == 0);
    CHECK(s->embeds == 0);
    CHECK(s->embeddings.used == 0);
    CHECK(s->ws_clients.count == 0);
    CHECK(s->pings.count == 0);
    CHECK(s->local_count == 0);
    CHECK(!s->store);
    CHECK(!s->keys || keys_are_idle(s->keys));
    for (uint32_t i = 0; s->registry && i < registry_count(s->registry); i++)
        CHECK(registry_at(s->registry, i)->live_choices == 0);
}

static void destroy(struct server *s) {
    batch_runs_destroy(s->batches);
    retention_destroy(s->retention);
    check_empty(s);
    generations_destroy(s->generations);
    work_queue_destroy(s->work);
    accounts_destroy(s->accounts);
    registry_destroy(s->registry);
    http_server_destroy(s->http);
    engine_watch_destroy(s->watch);
    engine_asks_destroy(s->asks);
    idle_trim_destroy(s->idle_trim);
    tls_context_destroy(s->tls);
    tracer_destroy(s->tracer);
    server_metrics_destroy(s->metrics);
    http_document_unpin(s->openapi);
    for (uint32_t i = 0; i < PAGE_FILES_MAX; i++) http_document_unpin(s->page[i]);
    keys_destroy(s->keys);
    notify_close(&s->notify);
    CHECK(uv_loop_close(&s->loop) == 0);
    log_destroy(s->log);
    settings_deinit(&s->settings);
    mem_free(s);
}

enum status server_open_offline(const struct settings *settings, struct offline *offline,
                                struct server **out, struct err *err) {
    struct server *s = mem_zalloc(sizeof(*s));
    if (!s) return err_set(err, ST_NOMEM, "out of memory for the server");
    s->offline = offline;
    s->notify.fd = -1;
    enum status st = settings_copy(settings, &s->settings);
    if (st != ST_OK) {
        mem_free(s);
        return err_set(err, st, "out of memory for the settings");
    }
    CHECK(uv_loop_init(&s->loop) == 0);
    st = start(s, err);
    if (st != ST_OK) {
        abandon_start(s);
        destroy(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

enum status server_open(const struct settings *settings, struct server **out, struct err *err) {
    return server_open_offline(settings, NULL, out, err);
}

enum status server_close(struct server *s, struct err *err) {
    enum status st = s->end_status;
    *err = s->end_err;
    if (s->failure || s->is_stuck)
        exit_unfreed(s);
    else
        destroy(s);
    return st;
}

enum status server_run(const struct settings *settings, struct err *err) {
    struct server *s;
    TRY(server_open(settings, &s, err));
    uv_run(&s->loop, UV_RUN_DEFAULT);
    return server_close(s, err);
}
