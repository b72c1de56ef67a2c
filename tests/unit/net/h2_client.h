/* unit/net/h2_client.h - an HTTP/2 client (nghttp2's) on a connection without sockets (fake.h).
 *
 * h2_pump carries bytes both ways until neither side has more to send. What the client has received
 * is in `streams`, in the order in which it opened them. h2_put_frame writes frames that nghttp2
 * would not send.
 */
#ifndef UNIT_NET_H2_CLIENT_H
#define UNIT_NET_H2_CLIENT_H

#include <nghttp2/nghttp2.h>

#include "unit/net/fake.h"

enum { H2_STREAMS_MAX = 512, H2_FRAMES_MAX = 1 << 20, H2_PUMPS_MAX = 10000 };

struct h2_seen {
    int32_t id;
    uint32_t status, infos, data_frames, code;
    bool is_closed;
    char length[24]; /* of content-length; empty: none */
    char type[64];
    struct buf body;
    struct str request; /* its body */
    bool is_held;       /* the request's body does not end */
};

struct h2_client {
    struct fake *f;
    nghttp2_session *session;
    size_t read; /* of f->out */
    struct h2_seen streams[H2_STREAMS_MAX];
    uint32_t count;
    bool has_goaway, has_settings;
    uint32_t goaway_code;
    int32_t goaway_last;
    uint32_t pongs;
};

static inline struct h2_seen *h2_seen_of(struct h2_client *c, int32_t id) {
    for (uint32_t i = 0; i < c->count; i++)
        if (c->streams[i].id == id) return &c->streams[i];
    return NULL;
}

static inline void h2_note(char *to, size_t room, const uint8_t *value, size_t len) {
    CHECK(len < room);
    memcpy(to, value, len);
    to[len] = 0;
}

static inline int h2_see_header(nghttp2_session *session, const nghttp2_frame *frame,
                                const uint8_t *name, size_t name_len, const uint8_t *value,
                                size_t len, uint8_t flags, void *ctx) {
    (void)session, (void)flags;
    struct h2_seen *s = h2_seen_of(ctx, frame->hd.stream_id);
    const struct str n = {(const char *)name, name_len};
    uint64_t status = 0;
    if (!s) return 0;
    if (str_is(n, ":status")) {
        CHECK(str_to_u64((struct str){(const char *)value, len}, &status));
        if (status < 200)
            s->infos++;
        else
            s->status = (uint32_t)status;
    }
    if (str_is(n, "content-length")) h2_note(s->length, sizeof(s->length), value, len);
    if (str_is(n, "content-type")) h2_note(s->type, sizeof(s->type), value, len);
    return 0;
}

static inline int h2_see_data(nghttp2_session *session, uint8_t flags, int32_t id,
                              const uint8_t *data, size_t len, void *ctx) {
    (void)session, (void)flags;
    struct h2_seen *s = h2_seen_of(ctx, id);
    if (s) buf_put(&s->body, data, len);
    return 0;
}

static inline int h2_see_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx) {
    (void)session;
    struct h2_client *c = ctx;
    struct h2_seen *s = h2_seen_of(c, frame->hd.stream_id);
    if (frame->hd.type == NGHTTP2_SETTINGS) c->has_settings = true;
    if (frame->hd.type == NGHTTP2_PING) c->pongs++;
    if (frame->hd.type == NGHTTP2_DATA && s) s->data_frames++;
    if (frame->hd.type != NGHTTP2_GOAWAY) return 0;
    c->has_goaway = true;
    c->goaway_code = frame->goaway.error_code;
    c->goaway_last = frame->goaway.last_stream_id;
    return 0;
}

static inline int h2_see_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx) {
    (void)session;
    struct h2_seen *s = h2_seen_of(ctx, id);
    if (!s) return 0;
    s->is_closed = true;
    s->code = code;
    return 0;
}

static inline ssize_t h2_read_request(nghttp2_session *session, int32_t id, uint8_t *out,
                                      size_t room, uint32_t *flags, nghttp2_data_source *source,
                                      void *ctx) {
    (void)session, (void)source;
    struct h2_seen *s = h2_seen_of(ctx, id);
    const size_t len = s->request.len < room ? s->request.len : room;
    if (len == 0 && s->is_held) return NGHTTP2_ERR_DEFERRED;
    memcpy(out, s->request.ptr, len);
    s->request = str_skip(s->request, len);
    if (s->request.len == 0 && !s->is_held) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)len;
}

/* `keeps_windows`: only the test opens the windows of streams. */
static inline void h2_client_init(struct h2_client *c, struct fake *f, bool keeps_windows) {
    *c = (struct h2_client){.f = f};
    nghttp2_session_callbacks *cb;
    nghttp2_option *options;
    CHECK(nghttp2_session_callbacks_new(&cb) == 0 && nghttp2_option_new(&options) == 0);
    nghttp2_session_callbacks_set_on_header_callback(cb, h2_see_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, h2_see_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, h2_see_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, h2_see_close);
    nghttp2_option_set_no_auto_window_update(options, keeps_windows);
    nghttp2_option_set_peer_max_concurrent_streams(options, H2_STREAMS_MAX);
    CHECK(nghttp2_session_client_new2(&c->session, cb, c, options) == 0);
    CHECK(nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, NULL, 0) == 0);
    nghttp2_option_del(options);
    nghttp2_session_callbacks_del(cb);
}

static inline void h2_client_deinit(struct h2_client *c) {
    for (uint32_t i = 0; i < c->count; i++) buf_deinit(&c->streams[i].body);
    nghttp2_session_del(c->session);
}

static inline nghttp2_nv h2_nv(const char *name, const char *value) {
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .namelen = strlen(name),
                        .value = (uint8_t *)(uintptr_t)value,
                        .valuelen = strlen(value)};
}

/* A request with these headers (pairs, NULL at the end) behind the pseudo headers. `body` NULL:
 * none. */
static inline struct h2_seen *h2_ask_with(struct h2_client *c, const char *method, const char *path,
                                          const char *const *extra, const char *body) {
    CHECK(c->count < H2_STREAMS_MAX);
    struct h2_seen *s = &c->streams[c->count];
    *s = (struct h2_seen){.request = str_of(body)};
    buf_init(&s->body, FAKE_OUT_MAX);
    nghttp2_nv nv[300];
    size_t count = 0;
    nv[count++] = h2_nv(":method", method);
    nv[count++] = h2_nv(":scheme", "http");
    if (path) nv[count++] = h2_nv(":path", path);
    for (; extra && *extra; extra += 2) {
        CHECK(count < sizeof(nv) / sizeof(nv[0]));
        nv[count++] = h2_nv(extra[0], extra[1]);
    }
    const nghttp2_data_provider data = {.read_callback = h2_read_request};
    s->id = nghttp2_submit_request(c->session, NULL, nv, count, body ? &data : NULL, NULL);
    CHECK(s->id > 0);
    c->count++;
    return s;
}

static inline struct h2_seen *h2_ask(struct h2_client *c, const char *method, const char *path,
                                     const char *body) {
    const char *const host[] = {":authority", "a", NULL};
    return h2_ask_with(c, method, path, host, body);
}

static inline void h2_put_frame(struct buf *out, uint8_t type, uint8_t flags, int32_t id,
                                struct str payload) {
    const uint8_t head[9] = {(uint8_t)(payload.len >> 16),
                             (uint8_t)(payload.len >> 8),
                             (uint8_t)payload.len,
                             type,
                             flags,
                             (uint8_t)(id >> 24),
                             (uint8_t)(id >> 16),
                             (uint8_t)(id >> 8),
                             (uint8_t)id};
    buf_put(out, head, sizeof(head));
    buf_put_str(out, payload);
}

/* Send the client's output, at most `piece` bytes at a time; true: there was some. */
static inline bool h2_say(struct h2_client *c, size_t piece) {
    const uint8_t *bytes;
    const ssize_t len = nghttp2_session_mem_send(c->session, &bytes);
    CHECK(len >= 0);
    struct str rest = {(const char *)bytes, (size_t)len};
    while (rest.len) {
        const struct str part = str_take(rest, piece);
        fake_send(c->f, part);
        rest = str_skip(rest, part.len);
    }
    return len > 0;
}

static inline bool h2_receive(struct h2_client *c) {
    const struct str news = str_skip(buf_str(&c->f->out), c->read);
    if (news.len == 0) return false;
    /* The server responds to it, which may add new output: copy it first. */
    struct buf copy;
    buf_init(&copy, FAKE_OUT_MAX);
    buf_put_str(&copy, news);
    c->read += news.len;
    CHECK(nghttp2_session_mem_recv(c->session, (const uint8_t *)copy.ptr, copy.len) >= 0);
    buf_deinit(&copy);
    return true;
}

static inline void h2_pump_pieces(struct h2_client *c, size_t piece) {
    bool is_quiet = false;
    for (int i = 0; i < H2_PUMPS_MAX && !is_quiet; i++) {
        const bool said = h2_say(c, piece);
        const bool received = h2_receive(c);
        is_quiet = !said && !received;
    }
    CHECK(is_quiet);
}

static inline void h2_pump(struct h2_client *c) { h2_pump_pieces(c, SIZE_MAX); }

#endif
