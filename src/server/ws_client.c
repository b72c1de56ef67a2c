/* server/ws_client.c - answers over a WebSocket: GET /v1/stream.
 *
 * A message is a request, and the pieces of its answer come back as messages, the same as the
 * events of a stream. Requests come one after the other on one connection:
 *
 *     {"model": .., "messages": [..]}                  a chat, as POST /v1/chat/completions
 *     {"path": "/v1/completions", "body": {..}}        any other route that gives text
 *     {"type": "cancel"}                               ends the answer under way
 */
#include <stdio.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "net/ws.h"
#include "server/handlers.h"
#include "server/server_int.h"
#include "server/sink.h"
#include "server/text.h"

enum { EVENTS_A_RUN = 64, ERROR_BYTES = 1 << 16 };

struct ws_sink {
    struct sink base;
    struct ws_client *client;
    struct encoder encoder;
    bool has_put, is_waiting;
};

struct ws_client {
    struct server *server;
    const struct key *key;
    struct ws *ws;
    const struct codec *codec; /* of the request under way, or of the last */
    struct ws_sink *sink;      /* NULL: nothing is under way */
    bool is_closing;
    struct ws_client *next, *prev;
};

/* ---- the sink ---- */

static void put_piece(void *ctx, uint32_t number, struct str name, struct str data) {
    struct ws_sink *k = ctx;
    (void)number;
    (void)name; /* stands in the data, too */
    k->has_put = true;
    ws_send(k->client->ws, data);
}

static bool ws_begin(struct sink *s) {
    (void)s;
    return false;
}

static bool ws_advance(struct sink *s) {
    struct ws_sink *k = (struct ws_sink *)s;
    while (!k->is_waiting) {
        bool is_all = encoder_run(&k->encoder, EVENTS_A_RUN);
        if (k->has_put) ws_flush(k->client->ws);
        k->has_put = false;
        if (k->encoder.status != ST_OK) ws_close(k->client->ws, WS_FAULT, "out of memory");
        if (k->encoder.has_ended || k->encoder.status != ST_OK) return true;
        k->is_waiting = ws_backlog(k->client->ws) > STREAM_BACKLOG_BYTES;
        if (is_all) break;
    }
    return false;
}

static void send_error(struct ws_client *c, const struct api_error *e, const char *id) {
    struct buf body;
    buf_init(&body, ERROR_BYTES);
    c->codec->put_error(e, str_of(id), &body);
    ws_send(c->ws, buf_str(&body));
    ws_flush(c->ws);
    buf_deinit(&body);
}

static void ws_refuse(struct sink *s, const struct api_error *e) {
    struct ws_sink *k = (struct ws_sink *)s;
    send_error(k->client, e, s->ride->request_id);
}

static void ws_destroy(struct sink *s) {
    struct ws_sink *k = (struct ws_sink *)s;
    struct ws_client *c = k->client;
    encoder_deinit(&k->encoder);
    mem_free(k);
    c->sink = NULL;
    if (c->server->is_draining) ws_clients_drain(c->server);
}

static const struct sink_kind ws_kind = {.name = "websocket",
                                         .begin = ws_begin,
                                         .advance = ws_advance,
                                         .refuse = ws_refuse,
                                         .destroy = ws_destroy};

void ws_clients_drain(struct server *s) {
    for (struct ws_client *c = s->clients; c; c = c->next) {
        if (c->sink || c->is_closing) continue;
        c->is_closing = true;
        ws_close(c->ws, WS_GOING_AWAY, "the server is shutting down");
    }
}

/* ---- messages ---- */

static void cancel(struct ws_client *c) {
    struct api_error e = {0};
    if (!c->sink) return;
    api_refuse(&e, 499, NULL, "request_cancelled", "the request was cancelled");
    ride_fail(c->sink->base.ride, &e);
}

/* The body of {"path", "body"}, as a document of its own. */
static enum status unwrap(struct server *s, struct json *message, struct json **body) {
    struct buf text;
    struct err err = {0};
    struct json_limits limits = json_limits_request;
    limits.bytes_max = s->settings.body_max;
    buf_init(&text, limits.bytes_max);
    json_put(json_get(message, "body"), &text);
    enum status st = buf_status(&text);
    if (st == ST_OK) st = json_parse(buf_str(&text), &limits, body, &err);
    buf_deinit(&text);
    return st;
}

/* Which route a message means, and what it says. */
static enum status read_message(struct ws_client *c, struct json *message,
                                const struct route **route, struct json **body,
                                struct api_error *e) {
    struct str path = STR("/v1/chat/completions"), arg;
    uint32_t allowed;
    bool is_wrapped = json_kind(json_get(message, "path")) == JS_TEXT;
    if (is_wrapped) path = json_str(json_get(message, "path"));
    *route = routes_find(HTTP_POST, path, &arg, &allowed);
    if (!*route || (*route)->handle != handle_text)
        return api_refuse(e, 404, "path", NULL, "\"%.*s\" is no path that gives text",
                          STR_ARG(path));
    c->codec = routes_codec(*route, path);
    *body = message;
    if (!is_wrapped) return ST_OK;
    if (json_kind(json_get(message, "body")) != JS_MAP)
        return api_refuse(e, 400, "body", NULL, "body must be an object");
    enum status st = unwrap(c->server, message, body);
    return st == ST_OK ? ST_OK : api_refuse(e, 503, NULL, NULL, "out of memory");
}

static struct ws_sink *make_sink(struct ws_client *c, const struct ride *r) {
    struct ws_sink *k = mem_zalloc(sizeof(*k));
    if (!k) return NULL;
    k->base.kind = &ws_kind;
    k->client = c;
    encoder_init(&k->encoder, c->codec, &r->answer, 0, put_piece, k);
    return k;
}

static void go(struct ws_client *c, struct ride *r) {
    c->sink = make_sink(c, r);
    if (c->sink) ride_attach(r, &c->sink->base);
    ride_go(r); /* without a sink it ends at once */
}

/* `message` is used up. */
static enum status ask(struct ws_client *c, struct json *message, size_t bytes, const char *id,
                       struct api_error *e) {
    const struct route *route;
    struct json *body = NULL;
    struct api_request q;
    struct ride *r;
    enum status st = read_message(c, message, &route, &body, e);
    if (body != message) json_destroy(message);
    if (st != ST_OK) {
        if (body == message) json_destroy(message);
        return st;
    }
    st = text_decode(c->codec, body, &q, e);
    if (st != ST_OK) {
        api_request_deinit(&q);
        return st;
    }
    q.stream = true;
    struct asker asker = {.server = c->server,
                          .key = c->key,
                          .route = route->path,
                          .id = id,
                          .request_id = id,
                          .arrived_us = clock_now(&clock_real),
                          .body_bytes = bytes};
    TRY(text_admit(&asker, &q, &r, e));
    go(c, r);
    return ST_OK;
}

static enum status take_message(struct ws_client *c, struct str text, const char *id,
                                struct api_error *e) {
    struct json *message;
    struct err err = {0};
    struct json_limits limits = json_limits_request;
    limits.bytes_max = c->server->settings.body_max;
    if (json_parse(text, &limits, &message, &err) != ST_OK)
        return api_refuse(e, 400, NULL, NULL, "the message is not JSON: %s", err.text);
    if (json_kind(message) == JS_MAP && str_is(json_str(json_get(message, "type")), "cancel")) {
        json_destroy(message);
        cancel(c);
        return ST_OK;
    }
    if (json_kind(message) == JS_MAP && !c->sink) return ask(c, message, text.len, id, e);
    json_destroy(message);
    if (c->sink)
        return api_refuse(e, 409, NULL, "busy",
                          "an answer is under way; wait for its end or send {\"type\":\"cancel\"}");
    return api_refuse(e, 400, NULL, NULL, "the message must be a JSON object");
}

static void on_text(void *ctx, struct ws *ws, struct str text) {
    struct ws_client *c = ctx;
    struct api_error e = {0};
    char id[SERVER_ID_BYTES];
    (void)ws;
    if (c->is_closing) return;
    server_make_id(c->server, id);
    if (take_message(c, text, id, &e) != ST_OK) send_error(c, &e, id);
}

static void on_room(void *ctx, struct ws *ws) {
    struct ws_client *c = ctx;
    (void)ws;
    if (!c->sink) return;
    c->sink->is_waiting = false;
    ride_wake(c->sink->base.ride, &c->sink->base);
}

static void on_closed(void *ctx, struct ws *ws, uint32_t code) {
    struct ws_client *c = ctx;
    (void)ws;
    (void)code;
    if (c->prev)
        c->prev->next = c->next;
    else
        c->server->clients = c->next;
    if (c->next) c->next->prev = c->prev;
    if (c->sink) ride_detach(c->sink->base.ride, &c->sink->base);
    mem_free(c);
}

static const struct ws_handler handler = {
    .on_text = on_text, .on_room = on_room, .on_closed = on_closed};

static void refuse_upgrade(struct visit *v) {
    static const struct http_header headers[] = {
        {{"upgrade", 7}, {"websocket", 9}},
        {{"sec-websocket-version", 21}, {"13", 2}},
    };
    struct api_error e = {0};
    struct buf body;
    api_refuse(&e, 426, NULL, "upgrade_required", "this path speaks WebSocket (RFC 6455)");
    buf_init(&body, ERROR_BYTES);
    v->codec->put_error(&e, str_of(v->request_id), &body);
    visit_reply(v,
                &(struct reply){
                    .status = 426, .body = buf_str(&body), .headers = headers, .header_count = 2});
    buf_deinit(&body);
}

void handle_stream(struct visit *v) {
    struct server *s = v->server;
    struct err err = {0};
    if (!ws_wants(v->x)) {
        refuse_upgrade(v);
        return;
    }
    struct ws_client *c = mem_zalloc(sizeof(*c));
    struct ws_options options = {
        .handler = &handler, .ctx = c, .message_bytes = s->settings.body_max};
    struct http_exchange *x = v->x;
    if (!c || ws_accept(x, &options, &c->ws, &err) != ST_OK) {
        mem_free(c);
        visit_refuse_memory(v);
        return;
    }
    c->server = s;
    c->key = v->key;
    c->codec = v->codec;
    c->next = s->clients;
    if (c->next) c->next->prev = c;
    s->clients = c;
    visit_free(v); /* the exchange has ended with its answer of 101 */
}
