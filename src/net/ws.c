/* net/ws.c - see net/ws.h for the contract.
 *
 * wslay reads and writes single frames. This file joins fragments to messages (control frames may
 * arrive between them), checks UTF-8 across fragments, and does the closing handshake. A message is
 * checked while it arrives, so that a bad one is refused early.
 *
 *     open --ws_close--> closing --close frame of the peer, or 5 s--> over
 *     open --close frame of the peer, or an error (a close is sent)--> over
 *
 * Frames are collected in `out` until a flush; pongs and closes are flushed at the end of the read
 * that caused them. Back-pressure: while the backlog is above twice backlog_bytes the connection
 * reads nothing, so a peer that makes us send and does not read has to wait.
 *
 * Entry points: ws_is_upgrade, ws_accept, ws_send, ws_flush, ws_close, ws_backlog; proto_ws.
 */
#include "net/ws.h"

#include <openssl/evp.h>
#include <string.h>
#include <wslay/wslay.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "net/http_int.h"

enum {
    KEY_BYTES = 24, /* base64 of 16 bytes */
    SHA1_BYTES = 20,
    CONTROL_BYTES = 125,
    CODE_BYTES = 2,
    MESSAGE_BYTES_DEFAULT = 8 << 20,
    MESSAGE_KEEP_BYTES = 4096, /* a larger message buffer is freed after use */
    OUT_KEEP_BYTES = 4096,
    PING_MS_DEFAULT = 30000,
    CLOSE_MS = 5000,    /* for the peer to answer our close frame */
    EMPTY_BURST = 1000, /* frames without text: pings, pongs, empty fragments */
    EMPTY_PER_S = 100,
    MESSAGES_PER_READ = 16, /* in a row before other connections are served */
};

struct ws {
    struct conn *conn;
    const struct ws_handler *handler;
    void *ctx;
    struct account *owner; /* the upgrade request's; NULL: not known */
    wslay_frame_context_ptr frames;
    struct str in;     /* input that is being parsed; borrowed from on_bytes */
    bool is_cut;       /* the rest of the input waits until others were served */
    uint32_t messages; /* read since on_bytes was called */
    struct buf out;    /* frames since the last flush */

    /* The frame that is arriving. */
    bool in_frame, is_final;
    uint8_t opcode;
    uint64_t left; /* bytes of its payload */
    char control[CONTROL_BYTES];
    size_t control_len;

    /* The message that is arriving; control frames may come between its fragments. */
    bool in_message;
    struct buf message;
    size_t checked; /* bytes of it that are complete, valid characters */
    uint64_t message_max;
    int64_t message_ms; /* when it started */

    int64_t ping_ms, last_read_ms, pinged_ms, closing_ms;
    size_t unacked;       /* conn_unacked when the ping was sent */
    struct bucket empty;  /* frames without text */
    uint32_t code;        /* of our close frame */
    bool is_pinged;       /* a ping was sent, and nothing has arrived since */
    bool is_closing;      /* our close frame was sent */
    bool is_over;         /* on_closed was called */
    bool is_writable_due; /* the backlog was above its limit: on_writable follows */
};

static int64_t now_ms(const struct ws *ws) { return (int64_t)uv_now(ws->conn->server->loop); }

/* ---- output ---- */

static ssize_t write_bytes(const uint8_t *data, size_t len, int flags, void *ctx) {
    (void)flags;
    struct ws *ws = ctx;
    buf_put(&ws->out, data, len);
    return buf_status(&ws->out) == ST_OK ? (ssize_t)len : -1;
}

/* If memory runs out the connection fails at the next flush. */
static void put_frame(struct ws *ws, uint8_t opcode, struct str payload) {
    if (ws->conn->has_failed) return; /* wslay may have stopped within a frame */
    struct wslay_frame_iocb frame = {
        .fin = 1,
        .opcode = opcode,
        .payload_length = payload.len,
        .data = (const uint8_t *)payload.ptr,
        .data_length = payload.len,
    };
    const ssize_t sent = wslay_frame_send(ws->frames, &frame);
    CHECK(sent == (ssize_t)payload.len || buf_status(&ws->out) != ST_OK);
}

static void put_close(struct ws *ws, uint32_t code, struct str reason) {
    char payload[CONTROL_BYTES];
    reason = str_take(reason, utf8_complete_len(str_take(reason, CONTROL_BYTES - CODE_BYTES)));
    payload[0] = (char)(code >> 8);
    payload[1] = (char)code;
    memcpy(payload + CODE_BYTES, reason.ptr, reason.len);
    const size_t len = code == WS_NO_CODE ? 0 : CODE_BYTES + reason.len;
    put_frame(ws, WSLAY_CONNECTION_CLOSE, (struct str){payload, len});
    ws->is_closing = true;
    ws->closing_ms = now_ms(ws);
    ws->code = code;
}

enum http_room ws_room(const struct ws *ws) { return replies_room(ws->conn, ws->owner); }

uint64_t ws_backlog(const struct ws *ws) { return ws->out.len + conn_backlog(ws->conn); }

void ws_flush(struct ws *ws) {
    if (buf_status(&ws->out) != ST_OK) {
        conn_fail(ws->conn);
    } else if (ws->out.len) {
        const uv_buf_t all = uv_buf_init(ws->out.ptr, (unsigned)ws->out.len);
        conn_write(ws->conn, &all, 1);
    }
    buf_clear(&ws->out);
    if (ws->out.cap > OUT_KEEP_BYTES) buf_deinit(&ws->out);
    if (ws_backlog(ws) > ws->conn->server->limits.backlog_bytes) ws->is_writable_due = true;
}

void ws_send(struct ws *ws, struct str text) {
    DCHECK(utf8_is_valid(text));
    if (!ws->is_closing) put_frame(ws, WSLAY_TEXT_FRAME, text);
}

void ws_close(struct ws *ws, uint32_t code, const char *reason) {
    CHECK(code >= WS_NORMAL && code < 5000);
    if (ws->is_closing) return;
    put_close(ws, code, str_of(reason));
    ws_flush(ws);
}

/* ---- closing ---- */

static void report_closed(struct ws *ws, uint32_t code) {
    if (ws->is_over) return;
    ws->is_over = true;
    ws->handler->on_closed(ws->ctx, ws, code);
}

static void finish(struct ws *ws, uint32_t code) {
    struct conn *c = ws->conn;
    ws_flush(ws);
    report_closed(ws, code);
    conn_finish(c);
}

/* The peer has made an error: send a close frame with its code, and close. */
static void fail(struct ws *ws, uint32_t code) {
    if (ws->is_closing) code = ws->code;
    if (!ws->is_closing) put_close(ws, code, (struct str){"", 0});
    ws->conn->server->stats.protocol_errors++;
    finish(ws, code);
}

/* May a peer send this code? */
static bool is_code(uint32_t code) {
    if (code >= 3000) return code < 5000;
    return code >= 1000 && code <= 1014 && !(code >= 1004 && code <= 1006);
}

static void take_close(struct ws *ws) {
    const struct str payload = {ws->control, ws->control_len};
    uint32_t code = WS_NO_CODE;
    if (payload.len >= CODE_BYTES) {
        code = (uint32_t)(uint8_t)payload.ptr[0] << 8 | (uint8_t)payload.ptr[1];
        if (!is_code(code)) {
            fail(ws, WS_PROTOCOL_ERROR);
            return;
        }
    } else if (payload.len) {
        fail(ws, WS_PROTOCOL_ERROR);
        return;
    }
    if (!utf8_is_valid(str_skip(payload, payload.len ? CODE_BYTES : 0))) {
        fail(ws, WS_INVALID_PAYLOAD);
        return;
    }
    if (ws->is_closing)
        code = ws->code;
    else
        put_close(ws, code, (struct str){"", 0});
    finish(ws, code);
}

/* ---- input ---- */

static ssize_t read_bytes(uint8_t *out, size_t room, int flags, void *ctx) {
    (void)flags;
    struct ws *ws = ctx;
    const size_t len = ws->in.len < room ? ws->in.len : room;
    if (len == 0) return -1; /* wslay returns WSLAY_ERR_WANT_READ */
    memcpy(out, ws->in.ptr, len);
    ws->in = str_skip(ws->in, len);
    return (ssize_t)len;
}

static bool is_control(uint8_t opcode) { return wslay_is_ctrl_frame(opcode); }

/* 0, or the code to close with. */
static uint32_t check_frame(const struct ws *ws, const struct wslay_frame_iocb *f) {
    if (f->rsv || !f->mask) return WS_PROTOCOL_ERROR;
    switch (f->opcode) {
    case WSLAY_CONNECTION_CLOSE:
    case WSLAY_PING:
    case WSLAY_PONG:
        return f->fin && f->payload_length <= CONTROL_BYTES ? 0 : WS_PROTOCOL_ERROR;
    case WSLAY_CONTINUATION_FRAME:
        if (!ws->in_message) return WS_PROTOCOL_ERROR;
        break;
    case WSLAY_TEXT_FRAME:
        if (ws->in_message) return WS_PROTOCOL_ERROR;
        break;
    case WSLAY_BINARY_FRAME:
        return ws->in_message ? WS_PROTOCOL_ERROR : WS_UNSUPPORTED_DATA;
    default:
        return WS_PROTOCOL_ERROR;
    }
    return f->payload_length > ws->message_max - ws->message.len ? WS_TOO_BIG : 0;
}

static void begin_frame(struct ws *ws, const struct wslay_frame_iocb *f) {
    ws->in_frame = true;
    ws->is_final = f->fin;
    ws->opcode = f->opcode;
    ws->left = f->payload_length;
    ws->control_len = 0;
    if (f->opcode != WSLAY_TEXT_FRAME) return;
    ws->in_message = true;
    ws->message_ms = now_ms(ws);
}

/* Check the bytes that have arrived since the last call; false: invalid UTF-8. */
static bool check_text(struct ws *ws) {
    struct str rest = str_skip(buf_str(&ws->message), ws->checked);
    while (rest.len) {
        uint32_t code;
        const size_t len = utf8_decode(rest, &code);
        if (code == UTF8_CUT) return true;
        if (utf8_is_bad(code)) return false;
        ws->checked += len;
        rest = str_skip(rest, len);
    }
    return true;
}

/* 0, or the code to close with. */
static uint32_t take_payload(struct ws *ws, struct str bytes) {
    if (is_control(ws->opcode)) {
        CHECK(bytes.len <= CONTROL_BYTES - ws->control_len);
        memcpy(ws->control + ws->control_len, bytes.ptr, bytes.len);
        ws->control_len += bytes.len;
        return 0;
    }
    if (ws->is_closing) return 0; /* messages are discarded after our close frame */
    if (bodies_charge(ws->conn, ws->owner, bytes.len)) return WS_TRY_AGAIN_LATER;
    buf_put_str(&ws->message, bytes);
    if (buf_status(&ws->message) != ST_OK) {
        bodies_release(ws->conn, ws->owner, bytes.len);
        return WS_INTERNAL_ERROR;
    }
    return check_text(ws) ? 0 : WS_INVALID_PAYLOAD;
}

static void end_message(struct ws *ws) {
    if (ws->checked != ws->message.len && !ws->is_closing) {
        fail(ws, WS_INVALID_PAYLOAD);
        return;
    }
    ws->in_message = false;
    ws->messages++;
    if (!ws->is_closing) ws->handler->on_text(ws->ctx, ws, buf_str(&ws->message));
    bodies_release(ws->conn, ws->owner, ws->message.len);
    buf_clear(&ws->message);
    ws->checked = 0;
    if (ws->message.cap > MESSAGE_KEEP_BYTES) buf_deinit(&ws->message);
}

static void end_frame(struct ws *ws) {
    ws->in_frame = false;
    if (ws->opcode == WSLAY_CONNECTION_CLOSE)
        take_close(ws);
    else if (ws->opcode == WSLAY_PING && !ws->is_closing)
        put_frame(ws, WSLAY_PONG, (struct str){ws->control, ws->control_len});
    else if (!is_control(ws->opcode) && ws->is_final)
        end_message(ws);
}

/* Must other connections be served before the next message is read? */
static bool must_cut(const struct ws *ws) {
    if (ws->messages == 0) return false;
    return ws->messages >= MESSAGES_PER_READ || conns_turn_is_over(ws->conn->server);
}

/* Parse the next piece of a frame; false: the input is used up, or the connection is closed. */
static bool read_piece(struct ws *ws) {
    struct wslay_frame_iocb f = {0};
    const ssize_t got = wslay_frame_recv(ws->frames, &f);
    if (got == WSLAY_ERR_WANT_READ) return false;
    uint32_t fault = got < 0 ? WS_PROTOCOL_ERROR : 0;
    if (!fault && !ws->in_frame) {
        const bool is_empty = is_control(f.opcode) || f.payload_length == 0;
        fault = check_frame(ws, &f);
        if (is_empty && bucket_add(&ws->empty, now_ms(ws), EMPTY_PER_S, EMPTY_BURST))
            fault = WS_POLICY_VIOLATION;
        if (!fault) begin_frame(ws, &f);
    }
    if (!fault) fault = take_payload(ws, (struct str){(const char *)f.data, f.data_length});
    if (fault) {
        fail(ws, fault);
        return false;
    }
    ws->left -= f.data_length;
    if (ws->left == 0) end_frame(ws);
    return !ws->is_over;
}

/* ---- a connection ---- */

static void update_reading(struct ws *ws) {
    const bool must_pause = ws_backlog(ws) > 2 * ws->conn->server->limits.backlog_bytes;
    if (must_pause != ws->conn->is_paused) conn_pause(ws->conn, must_pause);
}

/* A message must arrive at the least rate, measured from its start, and in body_total_ms. */
static bool is_message_slow(const struct ws *ws) {
    const struct http_limits *l = &ws->conn->server->limits;
    const int64_t took_ms = ws->in_message ? now_ms(ws) - ws->message_ms : 0;
    if (took_ms >= l->body_total_ms) return true;
    return took_ms >= l->body_ms && ws->message.len < rate_bytes(l, took_ms);
}

static void refuse_slow(struct ws *ws) {
    ws->conn->server->stats.slow++;
    fail(ws, WS_POLICY_VIOLATION);
}

static void on_bytes(struct conn *c, struct str bytes) {
    struct ws *ws = c->state;
    ws->in = bytes;
    ws->last_read_ms = now_ms(ws);
    ws->is_pinged = false;
    ws->messages = 0;
    ws->is_cut = false;
    while (!ws->is_cut && read_piece(ws)) ws->is_cut = must_cut(ws);
    if (ws->is_over) return;
    if (ws->is_cut) {
        conn_hold(c, ws->in);
        conn_release(c);
    }
    if (!ws->is_closing && is_message_slow(ws)) { /* there is no tick while bytes wait to be sent */
        refuse_slow(ws);
        return;
    }
    ws_flush(ws);
    update_reading(ws);
}

/* wslay may hold the rest of the input: then the connection holds nothing and calls no on_bytes. */
static void on_deferred(struct conn *c) {
    const struct ws *ws = c->state;
    if (ws->is_cut && !c->is_deferred) on_bytes(c, (struct str){"", 0});
}

static void on_written(struct conn *c) {
    struct ws *ws = c->state;
    if (ws->is_over) return;
    update_reading(ws);
    if (!ws->is_writable_due || ws_backlog(ws) > c->server->limits.backlog_bytes / 2) return;
    ws->is_writable_due = false;
    if (ws->handler->on_writable && !ws->is_closing) ws->handler->on_writable(ws->ctx, ws);
}

static void mark_pinged(struct ws *ws) {
    ws->is_pinged = true;
    ws->pinged_ms = now_ms(ws);
    ws->unacked = conn_unacked(ws->conn);
}

/* Has the peer failed to answer a ping within ping_ms? While it still reads what was sent before
 * the ping (conn_unacked falls) it cannot have seen the ping, and the time starts again. */
static bool has_missed_ping(struct ws *ws) {
    if (!ws->is_pinged || now_ms(ws) - ws->pinged_ms < ws->ping_ms) return false;
    if (conn_unacked(ws->conn) >= ws->unacked) return true;
    mark_pinged(ws);
    return false;
}

static void on_deadline(struct conn *c, enum wait_kind kind) {
    (void)kind;
    struct ws *ws = c->state;
    const int64_t silent_ms = now_ms(ws) - ws->last_read_ms;
    const bool is_late = ws->is_closing && now_ms(ws) - ws->closing_ms >= CLOSE_MS;
    if (is_late || has_missed_ping(ws)) {
        conn_close(c);
        return;
    }
    if (is_message_slow(ws)) {
        refuse_slow(ws);
        return;
    }
    if (silent_ms >= ws->ping_ms && !ws->is_pinged && !ws->is_closing) {
        put_frame(ws, WSLAY_PING, (struct str){"", 0});
        ws_flush(ws);
        mark_pinged(ws);
    }
    conn_wait(c, WAIT_TICK);
}

static void destroy(struct ws *ws) {
    if (ws->frames) wslay_frame_context_free(ws->frames);
    bodies_release(ws->conn, ws->owner, ws->message.len);
    buf_deinit(&ws->out);
    buf_deinit(&ws->message);
    mem_free(ws);
}

static void close_ws(struct conn *c) {
    struct ws *ws = c->state;
    report_closed(ws, ws->is_closing ? ws->code : WS_ABNORMAL);
    destroy(ws);
}

/* conn_switch passes the state, so there is nothing to create. */
static enum status open_ws(struct conn *c) {
    CHECK(c->state);
    return ST_OK;
}

static void drain(struct conn *c) { (void)c; }

static enum conn_use use(const struct conn *c) {
    const struct ws *ws = c->state;
    if (ws->is_over) return USE_IDLE;
    if (!ws->handler->is_idle || !ws->handler->is_idle(ws->ctx, ws)) return USE_BUSY;
    return ws->in_message ? USE_SLOW : USE_IDLE;
}

/* Frames are flushed by the call that puts them, so nothing waits but in the connection. */
static uint64_t charged(const struct conn *c, bool is_owned) {
    (void)c;
    (void)is_owned;
    return 0;
}

const struct proto proto_ws = {
    .name = "websocket",
    .open = open_ws,
    .close = close_ws,
    .on_bytes = on_bytes,
    .on_written = on_written,
    .on_deadline = on_deadline,
    .on_deferred = on_deferred,
    .drain = drain,
    .use = use,
    .charged = charged,
};

/* ---- the handshake ---- */

static bool is_base64(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '+' ||
           c == '/';
}

/* base64 of 16 bytes: 22 characters and "==". */
static bool is_key(struct str key) {
    if (key.len != KEY_BYTES || !str_ends(key, STR("=="))) return false;
    for (size_t i = 0; i < KEY_BYTES - 2; i++)
        if (!is_base64(key.ptr[i])) return false;
    return true;
}

static uint32_t count_of(const struct http_head *h, const char *name) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < h->header_count; i++) count += str_is(h->headers[i].name, name);
    return count;
}

/* Is `word` in any header of that name? Each may be a list. */
static bool header_has(const struct http_head *h, const char *name, const char *word) {
    for (uint32_t i = 0; i < h->header_count; i++)
        if (str_is(h->headers[i].name, name) && text_list_has(h->headers[i].value, word))
            return true;
    return false;
}

bool ws_is_upgrade(const struct http_exchange *x) {
    const struct http_head *h = http_head(x);
    if (h->version != 11 || h->method != HTTP_GET || http_body(x).len) return false;
    if (!header_has(h, "connection", "upgrade")) return false;
    if (!header_has(h, "upgrade", "websocket")) return false;
    if (count_of(h, "sec-websocket-key") != 1 || count_of(h, "sec-websocket-version") != 1)
        return false;
    return is_key(http_find(h, "sec-websocket-key")) &&
           str_is(http_find(h, "sec-websocket-version"), "13");
}

/* The value of Sec-WebSocket-Accept. */
static bool accept_of(struct str key, char out[KEY_BYTES + 8]) {
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    char text[KEY_BYTES + sizeof(guid)];
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    memcpy(text, key.ptr, KEY_BYTES);
    memcpy(text + KEY_BYTES, guid, sizeof(guid));
    if (!EVP_Digest(text, sizeof(text) - 1, digest, &len, EVP_sha1(), NULL)) return false;
    CHECK(len == SHA1_BYTES);
    EVP_EncodeBlock((unsigned char *)out, digest, SHA1_BYTES);
    return true;
}

static struct ws *create(struct conn *c, const struct ws_options *o) {
    static const struct wslay_frame_callbacks callbacks = {.send_callback = write_bytes,
                                                           .recv_callback = read_bytes};
    struct ws *ws = mem_zalloc(sizeof(*ws));
    if (!ws) return NULL;
    ws->conn = c;
    ws->handler = o->handler;
    ws->ctx = o->ctx;
    ws->message_max = o->message_bytes ? o->message_bytes : MESSAGE_BYTES_DEFAULT;
    ws->ping_ms = o->ping_ms ? o->ping_ms : PING_MS_DEFAULT;
    ws->last_read_ms = ws->empty.at_ms = now_ms(ws);
    buf_init(&ws->out, CONN_PENDING_MAX);
    buf_init(&ws->message, (size_t)ws->message_max);
    if (wslay_frame_context_init(&ws->frames, &callbacks, ws) != 0) {
        destroy(ws);
        return NULL;
    }
    return ws;
}

/* The tick must be short enough for ping_ms too. */
static void shorten_tick(struct http_server *s, int64_t ping_ms) {
    const int64_t period_ms = ping_ms < 4 ? 1 : ping_ms / 4;
    if (period_ms < s->wait_ms[WAIT_TICK]) s->wait_ms[WAIT_TICK] = period_ms;
}

enum status ws_accept(struct http_exchange *x, const struct ws_options *options, struct ws **out,
                      struct err *err) {
    CHECK(ws_is_upgrade(x));
    CHECK(x->is_handled && !x->is_answered);
    struct conn *c = x->conn;
    char proof[KEY_BYTES + 8];
    struct ws *ws = create(c, options);
    if (ws) ws->owner = x->owner;
    if (!ws || !accept_of(http_find(http_head(x), "sec-websocket-key"), proof)) {
        if (ws) destroy(ws);
        return err_set(err, ST_NOMEM, "no memory for a WebSocket");
    }
    buf_printf(&ws->out,
               "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n"
               "connection: Upgrade\r\nsec-websocket-accept: %s\r\n\r\n",
               proof);
    if (buf_status(&ws->out) != ST_OK) {
        destroy(ws);
        return err_set(err, ST_NOMEM, "no memory for a WebSocket");
    }
    ws_flush(ws);
    *out = ws;
    shorten_tick(c->server, ws->ping_ms);
    http1_upgrade(x, &proto_ws, ws);
    conn_wait(c, WAIT_TICK);
    return ST_OK;
}
