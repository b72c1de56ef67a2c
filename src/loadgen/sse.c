/* loadgen/sse.c - see loadgen/sse.h. */
#include "loadgen/sse.h"

#include "base/check.h"

void sse_init(struct sse *s) {
    buf_init(&s->line, SSE_EVENT_BYTES);
    buf_init(&s->data, SSE_EVENT_BYTES);
    s->has_data = s->after_cr = false;
}

void sse_deinit(struct sse *s) {
    buf_deinit(&s->line);
    buf_deinit(&s->data);
}

void sse_reset(struct sse *s) {
    buf_clear(&s->line);
    buf_clear(&s->data);
    s->has_data = s->after_cr = false;
}

static enum status check_size(const struct buf *b, struct err *err) {
    enum status st = buf_status(b);
    if (st == ST_OK) return ST_OK;
    return st == ST_FULL ? err_set(err, ST_BAD, "an event of the stream is too long")
                         : err_set(err, st, "out of memory");
}

static enum status end_event(struct sse *s, sse_event_fn *on_event, void *ctx) {
    enum status st = s->has_data ? on_event(ctx, buf_str(&s->data)) : ST_OK;
    buf_clear(&s->data);
    s->has_data = false;
    return st;
}

static enum status end_line(struct sse *s, struct err *err, sse_event_fn *on_event, void *ctx) {
    struct str line = buf_str(&s->line);
    enum status st = ST_OK;
    if (line.len == 0) {
        st = end_event(s, on_event, ctx);
    } else if (str_starts(line, STR("data:")) || str_is(line, "data")) {
        struct str value = str_skip(line, line.len > 4 ? 5 : 4);
        if (value.len > 0 && value.ptr[0] == ' ') value = str_skip(value, 1);
        if (s->has_data) buf_put_char(&s->data, '\n');
        buf_put_str(&s->data, value);
        s->has_data = true;
        st = check_size(&s->data, err);
    }
    buf_clear(&s->line);
    return st;
}

/* How many bytes stand before the end of the line, or all of them. */
static size_t line_part(struct str bytes) {
    size_t i = 0;
    while (i < bytes.len && bytes.ptr[i] != '\n' && bytes.ptr[i] != '\r') i++;
    return i;
}

enum status sse_feed(struct sse *s, struct str bytes, struct err *err, sse_event_fn *on_event,
                     void *ctx) {
    while (bytes.len > 0) {
        if (s->after_cr && bytes.ptr[0] == '\n') bytes = str_skip(bytes, 1);
        s->after_cr = false;
        size_t some = line_part(bytes);
        buf_put_str(&s->line, str_take(bytes, some));
        TRY(check_size(&s->line, err));
        if (some == bytes.len) return ST_OK;
        s->after_cr = bytes.ptr[some] == '\r';
        bytes = str_skip(bytes, some + 1);
        TRY(end_line(s, err, on_event, ctx));
    }
    return ST_OK;
}
