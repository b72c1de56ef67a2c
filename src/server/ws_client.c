/* server/ws_client.c - answers over a WebSocket: GET /v1/stream.
 *
 * Each message of the client is a request; the events of its answer are sent back as messages. The
 * requests of one connection are handled one after the other:
 *
 *     {"model": .., "messages": [..]}                  a chat, as POST /v1/chat/completions
 *     {"path": "/v1/completions", "body": {..}}        any other route that gives text
 *     {"type": "cancel"}                               cancels the request under way
 *
 * Every request ends with one final message, also after an error or a cancel: the end mark of its
 * wire format, or the event or error that is the last one there. Only a request that comes while
 * another is under way gets an error alone, because an end mark would seem to be the other's.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "net/ws.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/routes.h"
#include "server/sink.h"
#include "server/task_int.h"
#include "server/text_request.h"

enum { EVENTS_A_RUN = 64, ERROR_BYTES = 1 << 16, LINES_BYTES_MAX = 1 << 28 };

struct ws_sink {
    struct sink base;
    struct ws_client *client;
    struct encoder encoder;
    struct buf lines; /* written and not sent */
    bool is_waiting;
};

struct ws_client {
    struct server *server;
    const struct key *key;
    struct ws *ws;
    const struct codec *codec;  /* of the request under way, or of the last */
    struct ws_sink *sink;       /* NULL: no request is under way */
    struct ws_message *reading; /* being parsed in the pool; NULL: none */
    bool is_closing;
    struct list_link in_server;
};

/* A message while it is read. */
struct ws_message {
    struct task base;
    struct ws_client *client; /* NULL: it has closed */
    char *copy;               /* NULL: `text` is the connection's */
    struct str text;
    uint64_t bytes_max;
    int64_t arrived_us;
    char id[SERVER_ID_BYTES];

    /* Its contents. */
    bool is_cancel, is_cancelled; /* it is a cancel; it was cancelled */
    const struct route *route;
    const struct codec *codec;
    struct api_request request;
};

/* ---- the sink ---- */

/* A message for each line; a piece never has a line break inside. */
static void send_lines(struct ws_sink *k) {
    struct str left = buf_str(&k->lines);
    if (buf_status(&k->lines) != ST_OK) k->encoder.status = buf_status(&k->lines);
    if (left.len == 0 || k->encoder.status != ST_OK) return;
    while (left.len > 0) {
        const char *end = memchr(left.ptr, '\n', left.len);
        CHECK(end);
        struct str line = str_take(left, (size_t)(end - left.ptr));
        ws_send(k->client->ws, line);
        left = str_skip(left, line.len + 1);
    }
    ws_flush(k->client->ws);
    buf_clear(&k->lines);
}

static bool ws_advance(struct sink *s) {
    struct ws_sink *k = (struct ws_sink *)s;
    while (!k->is_waiting) {
        bool is_all = encoder_run(&k->encoder, EVENTS_A_RUN, &k->lines);
        send_lines(k);
        if (k->encoder.status != ST_OK) ws_close(k->client->ws, WS_INTERNAL_ERROR, "out of memory");
        if (k->encoder.has_ended || k->encoder.status != ST_OK) return true;
        k->is_waiting = ws_backlog(k->client->ws) > STREAM_BACKLOG_BYTES;
        if (is_all) break;
    }
    return false;
}

/* Of a request that has not begun to be answered. */
static void send_error(struct ws_client *c, const struct api_error *e, const char *id) {
    struct buf body;
    bool is_busy = str_is(str_of(e->code), "busy");
    buf_init(&body, ERROR_BYTES);
    c->codec->put_error(e, str_of(id), &body);
    ws_send(c->ws, buf_str(&body));
    if (c->codec->end_mark && !is_busy) ws_send(c->ws, str_of(c->codec->end_mark));
    ws_flush(c->ws);
    buf_deinit(&body);
}

static void ws_refuse(struct sink *s, const struct api_error *e) {
    struct ws_sink *k = (struct ws_sink *)s;
    send_error(k->client, e, s->generation->request_id);
}

/* The key may have been removed since the connection was opened. */
static bool check_key(struct ws_client *c) {
    if (c->is_closing) return false;
    if (keys_is_live(c->server->keys, c->key)) return true;
    c->is_closing = true;
    ws_close(c->ws, WS_POLICY_VIOLATION, "the API key was removed from this server's key file");
    return false;
}

static void ws_destroy(struct sink *s) {
    struct ws_sink *k = (struct ws_sink *)s;
    struct ws_client *c = k->client;
    encoder_deinit(&k->encoder);
    buf_deinit(&k->lines);
    mem_free(k);
    c->sink = NULL;
    check_key(c);
    if (c->server->is_draining) ws_clients_drain(c->server);
}

static const struct sink_kind ws_kind = {
    .name = "websocket", .advance = ws_advance, .refuse = ws_refuse, .destroy = ws_destroy};

void ws_clients_drain(struct server *s) {
    for (struct list_link *l = s->ws_clients.first; l; l = l->next) {
        struct ws_client *c = LIST_ITEM(l, struct ws_client, in_server);
        if (c->sink || c->reading || c->is_closing) continue;
        c->is_closing = true;
        ws_close(c->ws, WS_GOING_AWAY, "the server is shutting down");
    }
}

void ws_clients_check_keys(struct server *s) {
    for (struct list_link *l = s->ws_clients.first; l; l = l->next) {
        struct ws_client *c = LIST_ITEM(l, struct ws_client, in_server);
        if (!c->sink && !c->reading) check_key(c);
    }
}

/* ---- an answer under way ---- */

static void cancel(struct ws_client *c) {
    struct api_error e = {0};
    if (c->reading) c->reading->is_cancelled = true;
    if (!c->sink) return;
    api_refuse(&e, 499, NULL, "request_cancelled", "the request was cancelled");
    generation_fail(c->sink->base.generation, &e);
}

static enum status refuse_memory(struct api_error *e) {
    return api_refuse(e, 503, NULL, "out_of_memory", "the server has no memory for this request");
}

static struct ws_sink *make_sink(struct ws_client *c, const struct generation *gen) {
    struct ws_sink *k = mem_zalloc(sizeof(*k));
    if (!k) return NULL;
    k->base.kind = &ws_kind;
    k->client = c;
    encoder_init(&k->encoder, c->codec, &gen->answer, 0, FRAMING_LINES);
    buf_init(&k->lines, LINES_BYTES_MAX);
    return k;
}

static enum status start(struct ws_client *c, struct ws_message *t, struct api_error *e) {
    struct generation *gen;
    struct generation_spec spec = {.key = c->key,
                                   .route = t->route->path,
                                   .id = str_of(t->id),
                                   .request_id = str_of(t->id),
                                   .request = &t->request,
                                   .arrived_us = t->arrived_us};
    t->request.stream = true;
    TRY(server_check_room(ws_room(c->ws), e));
    TRY(text_generation_create(c->server, NULL, &spec, &gen, e));
    c->sink = make_sink(c, gen);
    bool has_sink = c->sink != NULL;
    generation_start(gen, has_sink ? &c->sink->base : NULL);
    return has_sink ? ST_OK : refuse_memory(e);
}

/* ---- reading a message, on any thread ---- */

/* The body of {"path", "body"}, as a document of its own. */
static enum status unwrap(const struct json *message, uint64_t bytes_max, struct json **body) {
    struct buf text;
    struct err err = {0};
    struct json_limits limits = json_limits_request;
    limits.bytes_max = bytes_max;
    buf_init(&text, bytes_max);
    json_put(json_get(message, "body"), &text);
    enum status st = buf_status(&text);
    if (st == ST_OK) st = json_parse(buf_str(&text), &limits, body, &err);
    buf_deinit(&text);
    return st;
}

/* The route of a message, and its body: `message` itself, or a document of its own. */
static enum status read_path(struct ws_message *t, struct json *message, struct json **body) {
    struct api_error *e = &t->base.error;
    struct str path = STR("/v1/chat/completions"), arg;
    uint32_t allowed;
    bool is_wrapped = json_kind(json_get(message, "path")) == JS_TEXT;
    if (is_wrapped) path = json_str(json_get(message, "path"));
    t->route = routes_find(HTTP_POST, path, &arg, &allowed);
    if (!t->route || t->route->handle != handle_text)
        return api_refuse(e, 404, "path", NULL, "\"%.*s\" is not a path that gives text",
                          STR_ARG(path));
    t->codec = routes_codec(t->route, path);
    if (!is_wrapped) return ST_OK;
    if (json_kind(json_get(message, "body")) != JS_MAP)
        return api_refuse(e, 400, "body", NULL, "body must be an object");
    enum status st = unwrap(message, t->bytes_max, body);
    return st == ST_OK ? ST_OK : api_refuse(e, 503, NULL, NULL, "out of memory");
}

/* Takes `message`. */
static enum status read_message(struct ws_message *t, struct json *message) {
    struct json *body = message;
    if (json_kind(message) != JS_MAP) {
        json_destroy(message);
        return api_refuse(&t->base.error, 400, NULL, NULL, "the message must be a JSON object");
    }
    t->is_cancel = str_is(json_str(json_get(message, "type")), "cancel");
    enum status st = t->is_cancel ? ST_OK : read_path(t, message, &body);
    bool is_read = st == ST_OK && !t->is_cancel;
    if (body != message || !is_read) json_destroy(message);
    if (!is_read) return st;
    st = codec_read_body(t->codec, body, t->base.logs_body, &t->request, &t->base.error);
    if (st == ST_OK) st = api_keeping_refuse(&t->request, &t->base.error);
    return st == ST_OK || st == ST_BAD ? st : refuse_memory(&t->base.error);
}

static void read_text(struct task *base) {
    struct ws_message *t = (struct ws_message *)base;
    struct json *message;
    struct err err = {0};
    struct json_limits limits = json_limits_request;
    limits.bytes_max = t->bytes_max;
    if (json_parse(t->text, &limits, &message, &err) == ST_OK)
        base->status = read_message(t, message);
    else
        base->status =
            api_refuse(&base->error, 400, NULL, NULL, "the message is not JSON: %s", err.text);
}

/* ---- handling a message ---- */

static enum status handle_message(struct ws_client *c, struct ws_message *t, struct api_error *e) {
    if (t->codec && !c->sink) c->codec = t->codec; /* also writes its errors */
    TRY(t->base.status);
    if (t->is_cancel) {
        cancel(c);
        return ST_OK;
    }
    if (c->sink || c->reading)
        return api_refuse(e, 409, NULL, "busy",
                          "an answer is under way; wait for its end or send {\"type\":\"cancel\"}");
    if (t->is_cancelled)
        return api_refuse(e, 499, NULL, "request_cancelled", "the request was cancelled");
    return start(c, t, e);
}

static void on_body_read(struct task *base) {
    struct ws_message *t = (struct ws_message *)base;
    struct ws_client *c = t->client; /* NULL: it has closed */
    if (c && c->reading == t) c->reading = NULL;
    if (c && !c->is_closing && handle_message(c, t, &base->error) != ST_OK)
        send_error(c, &base->error, t->id);
    if (c && c->server->is_draining) ws_clients_drain(c->server);
    api_request_deinit(&t->request);
    mem_free(t->copy);
    mem_free(t);
}

/* A long message is read in the pool, from a copy; later messages are read here meanwhile. */
static struct ws_message *make_message(struct ws_client *c, struct str text, bool is_long) {
    struct ws_message *t = mem_zalloc(sizeof(*t));
    char *copy = t && is_long ? mem_dup(text.ptr, text.len) : NULL;
    if (!t || (is_long && !copy)) {
        mem_free(t);
        return NULL;
    }
    *t = (struct ws_message){.base = {.key = c->key,
                                      .work = read_text,
                                      .done = on_body_read,
                                      .bytes = text.len,
                                      .logs_body = c->server->settings.log_prompts},
                             .client = c,
                             .copy = copy,
                             .text = {copy ? copy : text.ptr, text.len},
                             .bytes_max = c->server->settings.body_max,
                             .arrived_us = clock_now(&clock_real)};
    server_make_id(c->server, t->id);
    api_request_init(&t->request, c->codec);
    return t;
}

static void on_text(void *ctx, struct ws *ws, struct str text) {
    struct ws_client *c = ctx;
    struct api_error e = {0};
    char id[SERVER_ID_BYTES];
    bool is_long = text.len >= TASK_READ_FROM_BYTES;
    (void)ws;
    if (!check_key(c)) return;
    bool is_busy = is_long && (c->reading || c->sink);
    struct ws_message *t = is_busy ? NULL : make_message(c, text, is_long);
    if (t) {
        if (is_long) c->reading = t;
        task_run_alone(&t->base, c->server, is_long);
        return;
    }
    server_make_id(c->server, id);
    api_refuse(&e, is_busy ? 409 : 503, NULL, is_busy ? "busy" : "out_of_memory",
               is_busy ? "an answer is under way; wait for its end" : "out of memory");
    send_error(c, &e, id);
}

static void on_writable(void *ctx, struct ws *ws) {
    struct ws_client *c = ctx;
    (void)ws;
    if (!c->sink) return;
    c->sink->is_waiting = false;
    generation_resume_sink(c->sink->base.generation, &c->sink->base);
}

static void on_closed(void *ctx, struct ws *ws, uint32_t code) {
    struct ws_client *c = ctx;
    (void)ws;
    (void)code;
    c->is_closing = true;
    list_remove(&c->server->ws_clients, &c->in_server);
    if (c->reading) {
        c->reading->client = NULL;
        task_cancel(&c->reading->base);
    }
    if (c->sink) generation_detach_sink(c->sink->base.generation, &c->sink->base);
    mem_free(c);
}

static bool is_idle(void *ctx, const struct ws *ws) {
    const struct ws_client *c = ctx;
    (void)ws;
    return !c->sink && !c->reading;
}

static const struct ws_handler handler = {
    .on_text = on_text, .on_writable = on_writable, .is_idle = is_idle, .on_closed = on_closed};

static void refuse_upgrade(struct http_request *req) {
    static const struct http_header headers[] = {
        {{"upgrade", 7}, {"websocket", 9}},
        {{"sec-websocket-version", 21}, {"13", 2}},
    };
    struct api_error e = {0};
    struct buf body;
    api_refuse(&e, 426, NULL, "upgrade_required",
               "this path requires an upgrade to WebSocket (RFC 6455)");
    buf_init(&body, ERROR_BYTES);
    req->codec->put_error(&e, str_of(req->request_id), &body);
    respond(req, &(struct response){
                     .status = 426, .body = buf_str(&body), .headers = headers, .header_count = 2});
    buf_deinit(&body);
}

void handle_stream(struct http_request *req) {
    struct server *s = req->server;
    struct err err = {0};
    if (!ws_is_upgrade(req->x)) {
        refuse_upgrade(req);
        return;
    }
    struct ws_client *c = mem_zalloc(sizeof(*c));
    struct ws_options options = {
        .handler = &handler, .ctx = c, .message_bytes = s->settings.body_max};
    struct http_exchange *x = req->x;
    if (!c || ws_accept(x, &options, &c->ws, &err) != ST_OK) {
        mem_free(c);
        respond_out_of_memory(req);
        return;
    }
    c->server = s;
    c->key = req->grant.key;
    c->codec = req->codec;
    list_push_first(&s->ws_clients, &c->in_server);
    mem_free(req); /* ws_accept has ended the exchange without a callback */
}
