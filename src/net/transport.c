/* net/transport.c - a connection's bytes on a uv stream: TCP or a unix socket. */
#include <sys/ioctl.h>

#include "net/http_int.h"

static ssize_t try_write(struct conn *c, const uv_buf_t *bufs, uint32_t count) {
    return uv_try_write(&c->uv.stream, bufs, count);
}

static void on_wrote(uv_write_t *req, int status) { conn_sent(req->data, status); }

static int write_all(struct conn *c) {
    const uv_buf_t all = {.base = c->sending.ptr, .len = c->sending.len};
    c->req.write.data = c;
    return uv_write(&c->req.write, &c->uv.stream, &all, 1, on_wrote);
}

static size_t unsent(const struct conn *c) { return uv_stream_get_write_queue_size(&c->uv.stream); }

static size_t queued(const struct conn *c) {
    uv_os_fd_t fd;
    int bytes = 0;
    if (uv_fileno(&c->uv.handle, &fd) != 0 || ioctl(fd, TIOCOUTQ, &bytes) != 0) return 0;
    return bytes > 0 ? (size_t)bytes : 0;
}

/* All connections share one buffer: each read is handled before the next one starts. */
static void lend_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
    (void)suggested;
    struct conn *c = handle->data;
    *out = uv_buf_init(c->server->read_buffer, sizeof(c->server->read_buffer));
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf) {
    struct conn *c = stream->data;
    if (got > 0) conn_received(c, (struct str){buf->base, (size_t)got});
    if (got < 0) conn_eof(c, (int)got);
}

static void read_stream(struct conn *c, bool on) {
    if (!on)
        uv_read_stop(&c->uv.stream);
    else if (uv_read_start(&c->uv.stream, lend_buffer, on_read) != 0)
        conn_fail(c);
}

static void on_shut(uv_shutdown_t *req, int status) {
    (void)req;
    (void)status; /* the connection closes when the peer does, or after CONN_LINGER_MS */
}

static int shutdown_stream(struct conn *c) {
    return uv_shutdown(&c->req.shutdown, &c->uv.stream, on_shut);
}

static void on_closed(uv_handle_t *handle) { conn_closed(handle->data); }

static void close_stream(struct conn *c) {
    const bool can_reset = c->is_reset && c->uv.handle.type == UV_TCP && !c->is_shut;
    if (can_reset && uv_tcp_close_reset(&c->uv.tcp, on_closed) == 0) return;
    uv_close(&c->uv.handle, on_closed);
}

const struct transport transport_uv = {
    .name = "uv",
    .try_write = try_write,
    .write = write_all,
    .unsent = unsent,
    .queued = queued,
    .read = read_stream,
    .shutdown = shutdown_stream,
    .close = close_stream,
};
