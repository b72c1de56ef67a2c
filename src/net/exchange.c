/* net/exchange.c - one request with its response: the public calls, and the calls of protocols.
 *
 * The head is stored in an arena of the exchange. Body and output are growing buffers that are
 * freed with the exchange, so a long stream allocates only during its first flushes.
 *
 * Entry points: exchange_*, bodies_* for protocols (net/http_int.h); http_find, http_head,
 * http_body, http_drop_body, http_take_body, http_set_body_max, http_set_owner, http_set_user,
 * http_user, http_document_*, http_reply, http_stream_*, http_backlog.
 */
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/mem.h"
#include "net/http_int.h"

enum {
    FIRST_HEADERS = 16,
    ARENA_PER_HEADER = 64, /* alignment of two allocations */
    ARENA_SPARE = 16384,
    EXCHANGE_BYTES = 1024, /* of an exchange, beside the text of its head */
};

struct http_exchange *exchange_create(struct conn *c) {
    const struct http_limits *limits = &c->server->limits;
    struct http_exchange *x = mem_zalloc(sizeof(*x));
    if (!x) return NULL;
    x->arena = arena_create((size_t)limits->head_bytes * 2 +
                            (size_t)limits->headers * ARENA_PER_HEADER + ARENA_SPARE);
    if (!x->arena) {
        mem_free(x);
        return NULL;
    }
    x->conn = c;
    x->proto = c->proto;
    x->head.peer = str_of(c->peer);
    x->head.is_tls = c->tls != NULL;
    x->head.is_local = c->is_local;
    x->body_max = limits->body_bytes;
    buf_init(&x->out, CONN_PENDING_MAX);
    c->server->stats.exchanges++;
    return x;
}

/* Whose share bytes count against; NULL: nobody's. */
static struct account *holder_of(const struct conn *c, struct account *owner) {
    if (owner) return owner;
    return c->account->is_exempt ? NULL : c->account;
}

static void release_head(struct http_exchange *x) {
    struct account *holder = holder_of(x->conn, x->owner);
    x->conn->server->heads_bytes -= x->head_charged;
    if (holder) holder->heads_bytes -= x->head_charged;
}

void exchange_destroy(struct http_exchange *x) {
    struct http_server *s = x->conn->server;
    s->stats.exchanges--;
    release_head(x);
    http_drop_body(x);
    conn_charge(x->conn, x->owner, &x->charged, 0);
    arena_destroy(x->arena);
    mem_free(x->headers);
    buf_deinit(&x->out);
    mem_free(x);
}

static bool copy(struct http_exchange *x, struct str from, struct str *to) {
    *to = arena_dup(x->arena, from);
    return to->ptr != NULL;
}

static bool copy_lower(struct http_exchange *x, struct str from, struct str *to) {
    char *text = arena_alloc(x->arena, from.len + 1);
    if (!text) return false;
    for (size_t i = 0; i < from.len; i++) {
        const char b = from.ptr[i];
        text[i] = (char)(b >= 'A' && b <= 'Z' ? b | 0x20 : b);
    }
    text[from.len] = 0;
    *to = (struct str){text, from.len};
    return true;
}

static bool make_header_room(struct http_exchange *x) {
    if (x->head.header_count < x->header_cap) return true;
    const uint32_t cap = x->header_cap ? x->header_cap * 2 : FIRST_HEADERS;
    struct http_header *grown = mem_realloc(x->headers, cap * sizeof(*grown));
    if (!grown) return false;
    x->headers = grown;
    x->header_cap = cap;
    return true;
}

uint32_t exchange_add_header(struct http_exchange *x, struct str name, struct str value) {
    const struct http_limits *limits = &x->conn->server->limits;
    value = str_trim(value);
    if (x->head.header_count >= limits->headers) return 431;
    if (x->head_bytes + name.len + value.len > limits->head_bytes) return 431;
    if (!text_is_token(name) || !text_is_value(value)) return 400;
    x->head_bytes += (uint32_t)(name.len + value.len);
    if (!make_header_room(x)) return 500;
    struct http_header *header = &x->headers[x->head.header_count];
    if (!copy_lower(x, name, &header->name) || !copy(x, value, &header->value)) return 500;
    x->head.header_count++;
    return 0;
}

static enum http_method method_of(struct str name) {
    for (int m = HTTP_GET; m < HTTP_OTHER; m++)
        if (str_is(name, http_method_name((enum http_method)m))) return (enum http_method)m;
    return HTTP_OTHER;
}

/* Visible ASCII without '#': a client does not send the fragment. */
static bool is_target(struct str s) {
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] < 0x21 || s.ptr[i] > 0x7e || s.ptr[i] == '#') return false;
    return s.len > 0;
}

uint32_t exchange_set_target(struct http_exchange *x, struct str method, struct str target) {
    if (!text_is_token(method) || !is_target(target)) return 400;
    if (target.len > x->conn->server->limits.head_bytes) return 414;
    x->head.method = method_of(method);
    const bool is_asterisk = str_is(target, "*") && x->head.method == HTTP_OPTIONS;
    if (target.ptr[0] != '/' && !is_asterisk) return 400;
    struct str text;
    if (!copy(x, target, &text)) return 500;
    const char *mark = memchr(text.ptr, '?', text.len);
    x->head.path = mark ? str_take(text, (size_t)(mark - text.ptr)) : text;
    x->head.query = mark ? str_skip(text, x->head.path.len + 1) : (struct str){"", 0};
    return 0;
}

uint32_t exchange_set_host(struct http_exchange *x, struct str host) {
    if (!text_is_host(host)) return 400;
    return copy(x, host, &x->head.host) ? 0 : 500;
}

void exchange_head_done(struct http_exchange *x) {
    x->head.headers = x->headers;
    x->has_head = true;
    buf_init(&x->body, SIZE_MAX / 2);
}

/* ---- bodies ---- */

/* `least`: what an owner or a peer may hold in any case. */
static uint32_t charge(struct conn *c, struct account *owner, size_t bytes, uint64_t least) {
    struct http_server *s = c->server;
    struct account *holder = holder_of(c, owner);
    const struct http_limits *l = &s->limits;
    const uint64_t part = l->bodies_bytes / l->share;
    const uint64_t share = part < least ? least : part;
    uint32_t status = 0;
    if (holder && holder->bodies_bytes + bytes > share) status = 429;
    if (s->bodies_bytes + bytes > l->bodies_bytes) status = 503;
    if (status) {
        s->stats.bodies_refused++;
        return status;
    }
    s->bodies_bytes += bytes;
    if (holder) holder->bodies_bytes += bytes;
    return 0;
}

uint32_t bodies_charge(struct conn *c, struct account *owner, size_t bytes) {
    return charge(c, owner, bytes, c->server->limits.body_bytes);
}

void bodies_release(struct conn *c, struct account *owner, size_t bytes) {
    struct account *holder = holder_of(c, owner);
    CHECK(c->server->bodies_bytes >= bytes);
    c->server->bodies_bytes -= bytes;
    if (!holder) return;
    CHECK(holder->bodies_bytes >= bytes);
    holder->bodies_bytes -= bytes;
}

enum http_room replies_room(const struct conn *c, const struct account *owner) {
    const struct http_server *s = c->server;
    const struct account *holder = owner ? owner : c->account;
    const bool is_exempt = !owner && holder->is_exempt;
    if (s->replies_bytes >= s->limits.replies_bytes) return HTTP_ROOM_NONE;
    if (!is_exempt && holder->replies_bytes >= s->limits.replies_bytes / s->limits.share)
        return HTTP_ROOM_SHARE;
    return HTTP_ROOM;
}

uint32_t exchange_admit(struct http_exchange *x) {
    struct http_server *s = x->conn->server;
    struct account *holder = holder_of(x->conn, x->owner);
    const uint32_t target = (uint32_t)(x->head.path.len + x->head.query.len);
    const uint32_t bytes = x->head_bytes + target + EXCHANGE_BYTES;
    uint32_t status = 0;
    if (holder && holder->heads_bytes + bytes > s->limits.heads_bytes / s->limits.share)
        status = 429;
    if (s->heads_bytes + bytes > s->limits.heads_bytes) status = 503;
    if (status) {
        s->stats.bodies_refused++;
        return status;
    }
    x->head_charged = bytes;
    s->heads_bytes += bytes;
    if (holder) holder->heads_bytes += bytes;
    return 0;
}

uint32_t exchange_body_add(struct http_exchange *x, struct str bytes) {
    if (bytes.len > x->body_max || x->body.len > x->body_max - bytes.len) return 413;
    const uint64_t usual = x->conn->server->limits.body_bytes;
    const uint64_t least = x->body_max > usual ? x->body_max : usual;
    const uint32_t status = charge(x->conn, x->owner, bytes.len, least);
    if (status) return status;
    buf_put_str(&x->body, bytes);
    if (buf_status(&x->body) == ST_OK) return 0;
    bodies_release(x->conn, x->owner, bytes.len);
    return 503;
}

const char *exchange_body_sentence(const struct http_exchange *x, uint32_t status) {
    if (status == 413 && x->body_max == 0)
        return "no request body is accepted here; send the request without a body";
    if (status == 413)
        return "the request body is longer than this path accepts; send a shorter one";
    if (status == 429)
        return "requests of this client hold their share of the server's memory; try again when "
               "some of them have ended";
    return "out of memory for the request; try again later";
}

void exchange_gone(struct http_exchange *x) {
    const struct http_server *s = x->conn->server;
    const bool is_incomplete = x->has_head && !x->is_handled && !x->is_answered;
    if ((x->is_handled || x->is_streaming) && s->handler->on_gone) s->handler->on_gone(s->ctx, x);
    if (is_incomplete && s->handler->on_incomplete) s->handler->on_incomplete(s->ctx, x);
    exchange_destroy(x);
}

void exchange_end(struct http_exchange *x) {
    const struct http_server *s = x->conn->server;
    if (s->handler->on_end) s->handler->on_end(s->ctx, x, x->status, x->body_sent);
    exchange_destroy(x);
}

void exchange_written(struct http_exchange *x) {
    const struct http_server *s = x->conn->server;
    if (!x->is_writable_due || http_backlog(x) > s->limits.backlog_bytes / 2) return;
    x->is_writable_due = false;
    if (s->handler->on_writable) s->handler->on_writable(s->ctx, x);
}

void exchange_put_error(struct http_server *s, uint32_t status, const char *sentence,
                        struct buf *body) {
    s->stats.protocol_errors++;
    s->handler->put_error_body(s->ctx, status, sentence, body);
}

/* ---- the public calls ---- */

struct str http_find(const struct http_head *h, const char *name) {
    for (uint32_t i = 0; i < h->header_count; i++)
        if (str_is(h->headers[i].name, name)) return h->headers[i].value;
    return (struct str){NULL, 0};
}

const struct http_head *http_head(const struct http_exchange *x) { return &x->head; }

struct str http_body(const struct http_exchange *x) {
    return buf_str(&x->body);
}

void http_set_body_max(struct http_exchange *x, uint64_t bytes) { x->body_max = bytes; }

void http_drop_body(struct http_exchange *x) {
    bodies_release(x->conn, x->owner, x->body.len + x->body_taken);
    x->body_taken = 0;
    buf_deinit(&x->body);
}

char *http_take_body(struct http_exchange *x, size_t *len) {
    const size_t bytes = x->body.len;
    *len = 0;
    if (bytes == 0) return NULL;
    x->body_taken += bytes;
    return buf_take(&x->body, len);
}

/* Without memory for an account the peer's share applies. */
void http_set_owner(struct http_exchange *x, uint32_t owner) {
    CHECK(x->body.len == 0);
    CHECK(x->charged == 0);
    x->owner = accounts_get(&x->conn->server->owners, (struct account_id){.low = owner});
    if (x->proto != &proto_http2) conn_set_owner(x->conn, x->owner);
}

bool http_is_reserved(const struct http_exchange *x) {
    const struct http_server *s = x->conn->server;
    return x->conn->is_reserved && s->stats.connections > s->limits.connections - s->limits.reserve;
}

enum http_room http_room(const struct http_exchange *x) { return replies_room(x->conn, x->owner); }

void http_set_user(struct http_exchange *x, void *user) { x->user = user; }

void *http_user(const struct http_exchange *x) { return x->user; }

struct http_document *http_document_create(struct str bytes) {
    struct http_document *d = mem_alloc(sizeof(*d) + bytes.len);
    if (!d) return NULL;
    d->pins = 1;
    d->len = bytes.len;
    memcpy(d->bytes, bytes.ptr, bytes.len);
    return d;
}

struct http_document *document_pin(struct http_document *d) {
    CHECK(d->pins > 0);
    d->pins++;
    return d;
}

void http_document_unpin(struct http_document *d) {
    if (!d) return;
    CHECK(d->pins > 0);
    if (--d->pins == 0) mem_free(d);
}

struct str http_document_bytes(const struct http_document *d) {
    return (struct str){d->bytes, d->len};
}

void http_reply(struct http_exchange *x, const struct http_reply *r) {
    const struct str body = r->document ? http_document_bytes(r->document) : r->body;
    CHECK(!x->is_answered);
    CHECK(r->status >= 200);
    x->is_answered = true;
    x->status = r->status;
    x->document = r->document;
    x->proto->send_head(x, r->status, r->headers, r->header_count, &body);
}

void http_stream_begin(struct http_exchange *x, uint32_t status, const struct http_header *headers,
                       uint32_t header_count) {
    CHECK(!x->is_answered);
    CHECK(status >= 200);
    x->is_answered = x->is_streaming = true;
    x->status = status;
    x->proto->send_head(x, status, headers, header_count, NULL);
    conn_charge(x->conn, x->owner, &x->charged, x->out.len);
}

void http_stream_put(struct http_exchange *x, struct str bytes) {
    buf_put_str(http_stream_buf(x), bytes);
}

struct buf *http_stream_buf(struct http_exchange *x) {
    CHECK(x->is_streaming);
    return &x->out;
}

void http_stream_flush(struct http_exchange *x) {
    CHECK(x->is_streaming);
    if (buf_status(&x->out) != ST_OK) {
        conn_fail(x->conn);
        buf_clear(&x->out);
        x->out_head = 0;
        return;
    }
    if (x->out.len == 0) return;
    x->proto->send_data(x);
    conn_charge(x->conn, x->owner, &x->charged, x->out.len);
    if (http_backlog(x) > x->conn->server->limits.backlog_bytes) x->is_writable_due = true;
}

void http_stream_end(struct http_exchange *x) {
    CHECK(x->is_streaming);
    x->is_streaming = false;
    if (buf_status(&x->out) != ST_OK)
        x->proto->send_abort(x);
    else
        x->proto->send_end(x);
}

void http_stream_abort(struct http_exchange *x) {
    CHECK(x->is_streaming);
    x->is_streaming = false;
    x->proto->send_abort(x);
}

uint64_t http_backlog(const struct http_exchange *x) { return x->proto->backlog(x); }
