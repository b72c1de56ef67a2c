/* server/listen.c - the listeners, the text that is printed at the start, and SIGHUP. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "net/http_listen.h"
#include "net/tls.h"
#include "server/generations.h"
#include "server/lifecycle.h"
#include "report/log.h"
#include "server/registry.h"
#include "server/server_int.h"
#include "server/work_queue.h"

enum { CONNECTION_BYTES = 64 << 10 }; /* of --memory-max for each connection, by default */

static int64_t ms_of(double seconds) { return (int64_t)(seconds * 1000); }

/* An idle connection holds up to 30 KiB (HTTP/2 with TLS), which --memory-max must bear too. */
static uint32_t connections(const struct server *s) {
    const uint64_t by_memory = s->memory.total / CONNECTION_BYTES;
    const uint32_t by_files = http_connections_allowed();
    if (s->settings.connections_max > 0) return (uint32_t)s->settings.connections_max;
    return by_memory < by_files ? (uint32_t)by_memory : by_files;
}

/* 0 selects the default of http_limits. */
static uint32_t peer_connections(const struct settings *t) {
    if (t->connections_per_peer < 0) return 0;
    return t->connections_per_peer == 0 ? UINT32_MAX : (uint32_t)t->connections_per_peer;
}

static enum status set_trusted(struct server *s, struct err *err) {
    const struct setting_list *list = &s->settings.trusted_proxy;
    return http_set_trusted(s->http, list->items, list->count, err);
}

void lifecycle_limits(const struct server *s, struct http_limits *out) {
    const struct settings *t = &s->settings;
    *out = (struct http_limits){.head_bytes = (uint32_t)t->head_max,
                                .body_bytes = t->body_max,
                                .bodies_bytes = s->memory.bodies,
                                .heads_bytes = s->memory.replies / 5,
                                .replies_bytes = s->memory.replies / 5 * 3,
                                .connections = connections(s),
                                .peer_connections = peer_connections(t),
                                .rate = (uint32_t)t->rate_min,
                                .backlog_bytes = STREAM_BACKLOG_BYTES,
                                .head_ms = ms_of(t->head_timeout_s),
                                .body_ms = ms_of(t->body_timeout_s),
                                .idle_ms = ms_of(t->idle_timeout_s),
                                .write_ms = ms_of(t->write_timeout_s)};
}

uint64_t lifecycle_keep_bytes(const struct server *s) {
    uint64_t wanted = s->settings.keep_memory;
    return wanted < s->memory.answers ? wanted : s->memory.answers;
}

void lifecycle_share_memory(struct server *s) {
    bool is_single = keys_facts(s->keys).keys < 2;
    work_queue_set(s->work, s->memory.work, s->settings.body_max, is_single);
    generations_set_memory(s->generations, s->memory.answers, is_single);
    s->embeddings.max = s->memory.embeddings;
    s->embeddings.is_single = is_single;
}

static void print_listening(const char *where) {
    fprintf(stderr, "listening on %s\n", where);
    fflush(stderr);
}

static enum status listen_tcp(struct server *s, struct err *err) {
    const char *host = s->settings.host;
    uint16_t port = (uint16_t)s->settings.port;
    TRY(http_listen_tcp(s->http, host, &port, s->tls, err));
    bool is_six = strchr(host, ':') && host[0] != '[';
    snprintf(s->url, sizeof(s->url), "%s://%s%s%s:%u", s->tls ? "https" : "http", is_six ? "[" : "",
             host, is_six ? "]" : "", port);
    print_listening(s->url);
    return ST_OK;
}

static enum status listen_unix(struct server *s, struct err *err) {
    char where[512];
    TRY(http_listen_unix(s->http, s->settings.uds, err));
    snprintf(where, sizeof(where), "unix:%s", s->settings.uds);
    print_listening(where);
    return ST_OK;
}

static enum status listen_given(struct server *s, struct err *err) {
    for (uint32_t i = 0; i < s->notify.listen_count; i++) {
        char where[64];
        TRY(http_listen_fd(s->http, s->notify.listen_fds[i], s->tls, err));
        snprintf(where, sizeof(where), "file descriptor %d, passed by the service manager",
                 s->notify.listen_fds[i]);
        print_listening(where);
    }
    return ST_OK;
}

enum status lifecycle_listen(struct server *s, struct err *err) {
    bool is_port_set = settings_origin(&s->settings, "port") != FROM_DEFAULT;
    bool has_other = s->settings.uds || s->notify.listen_count > 0;
    TRY(set_trusted(s, err));
    TRY(listen_given(s, err));
    if (s->settings.uds) TRY(listen_unix(s, err));
    return is_port_set || !has_other ? listen_tcp(s, err) : ST_OK;
}

static void print_ready(const struct server *s) {
    const char *word = " serves ";
    fprintf(stderr, "ready: %s", s->url[0] ? s->url : "the socket");
    for (uint32_t i = 0; i < registry_count(s->registry); i++) {
        const struct served_model *m = registry_at(s->registry, i);
        if (m->state != LOAD_READY) continue;
        fprintf(stderr, "%s%s", word, m->name);
        word = ", ";
    }
    fprintf(stderr, "\n");
}

/* To be pasted into a shell and into Python, so no line is indented. */
void lifecycle_print_examples(struct server *s) {
    const struct served_model *m = registry_default(s->registry);
    const char *auth = s->settings.api_key_file ? " -H 'authorization: Bearer KEY'" : "";
    print_ready(s);
    if (!s->url[0] || !m->engine) return;
    fprintf(
        stderr,
        "\n"
        "curl -s %s/v1/chat/completions%s -H 'content-type: application/json' \\\n"
        "  -d '{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello!\"}]}'\n\n"
        "from openai import OpenAI\n"
        "client = OpenAI(base_url=\"%s/v1\", api_key=\"%s\")\n"
        "print(client.chat.completions.create(model=\"%s\", messages=[{\"role\": \"user\", "
        "\"content\": \"Hello!\"}]).choices[0].message.content)\n\n",
        s->url, auth, m->name, s->url, s->settings.api_key_file ? "KEY" : "none", m->name);
    fflush(stderr);
}

/* ---- SIGHUP ---- */

static void log_reload(struct server *s, enum log_level level, const char *what, const char *text) {
    struct log_field fields[] = {log_text("what", str_of(what)), log_text("text", str_of(text))};
    log_line(s->log, level, "reload", fields, text[0] ? 2 : 1);
}

static void apply_settings(struct server *s, struct settings *fresh) {
    struct http_limits limits;
    struct memory_plan memory;
    struct err err = {0};
    settings_deinit(&s->settings);
    s->settings = *fresh;
    if (memory_plan_make(fresh, memory_plan_machine_bytes(), &memory, &err) == ST_OK)
        s->memory = memory;
    else
        log_reload(s, LOG_WARN, "memory", err.text);
    lifecycle_limits(s, &limits);
    http_set_limits(s->http, &limits);
    if (set_trusted(s, &err) != ST_OK) log_reload(s, LOG_WARN, "trusted-proxy", err.text);
    generations_set_keep(s->generations, ms_of(s->settings.keep_s), lifecycle_keep_bytes(s));
    if (log_set(s->log, s->settings.log_format, s->settings.log_level, &err) != ST_OK)
        log_reload(s, LOG_WARN, "log", err.text);
}

static void reload_settings(struct server *s) {
    struct settings fresh;
    struct buf restart;
    struct err err = {0};
    buf_init(&restart, 4096);
    if (settings_reload(&s->settings, &fresh, &restart, &err) != ST_OK)
        log_reload(s, LOG_WARN, "settings", err.text);
    else
        apply_settings(s, &fresh);
    if (restart.len > 0)
        log_reload(s, LOG_WARN, "settings that need a restart", buf_text(&restart));
    buf_deinit(&restart);
}

void lifecycle_reload(struct server *s) {
    struct err err = {0};
    bool is_serving = s->is_loaded && !s->is_draining; /* else "ready" must not be reported */
    if (is_serving) notify_reloading(&s->notify);
    if (s->settings.config) reload_settings(s);
    if (keys_reload(s->keys, true, &err) != ST_OK) log_reload(s, LOG_WARN, "keys", err.text);
    ws_clients_check_keys(s);
    if (s->tls && tls_context_reload(s->tls, &err) != ST_OK)
        log_reload(s, LOG_WARN, "tls", err.text);
    lifecycle_share_memory(s);
    log_reload(s, LOG_INFO, "done", "");
    if (is_serving) notify_ready(&s->notify);
}
