/* loadgen/response.c - see loadgen/response.h. */
#include "loadgen/response.h"

#include <string.h>

#include "base/check.h"

void loadgen_response_reset(struct loadgen_response *r) {
    r->state = RESPONSE_STATUS;
    r->status = 0;
    r->keeps_alive = true;
    r->is_chunked = r->has_length = false;
    r->left = 0;
    r->head_bytes = r->line_bytes = 0;
}

/* ---- lines ---- */

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

static bool same_word(struct str a, struct str b) {
    if (a.len != b.len) return false;
    for (size_t i = 0; i < a.len; i++)
        if (lower(a.ptr[i]) != lower(b.ptr[i])) return false;
    return true;
}

/* Is `word` one of a list with commas? */
static bool list_has(struct str list, struct str word) {
    while (list.len > 0) {
        const char *comma = memchr(list.ptr, ',', list.len);
        size_t len = comma ? (size_t)(comma - list.ptr) : list.len;
        if (same_word(str_trim(str_take(list, len)), word)) return true;
        list = str_skip(list, comma ? len + 1 : len);
    }
    return false;
}

/* "HTTP/1.1 200 OK" */
static enum status take_status_line(struct loadgen_response *r, struct str line, struct err *err) {
    enum { STATUS_AT = 9, STATUS_DIGITS = 3 };
    uint64_t status = 0;
    if (line.len == 0) return ST_OK; /* some servers send an extra newline after a body */
    bool is_http = str_starts(line, STR("HTTP/1.1 ")) || str_starts(line, STR("HTTP/1.0 "));
    struct str digits =
        str_take(str_skip(line, STATUS_AT < line.len ? STATUS_AT : line.len), STATUS_DIGITS);
    if (!is_http || !str_to_u64(digits, &status) || status < 100)
        return err_set(err, ST_BAD, "not an HTTP/1.1 response: \"%.40s\"", r->line);
    r->status = (uint32_t)status;
    r->keeps_alive = line.ptr[7] == '1';
    r->state = RESPONSE_HEADERS;
    return ST_OK;
}

static enum status take_header(struct loadgen_response *r, struct str line, struct err *err) {
    const char *colon = memchr(line.ptr, ':', line.len);
    if (!colon) return err_set(err, ST_BAD, "invalid header: \"%.40s\"", r->line);
    struct str name = str_take(line, (size_t)(colon - line.ptr));
    struct str value = str_trim(str_skip(line, name.len + 1));
    if (same_word(name, STR("content-length"))) {
        uint64_t length = 0;
        if (!str_to_u64(value, &length) || (r->has_length && length != r->left))
            return err_set(err, ST_BAD, "invalid Content-Length: \"%.40s\"", r->line);
        r->has_length = true;
        r->left = length;
    } else if (same_word(name, STR("transfer-encoding"))) {
        r->is_chunked = r->is_chunked || list_has(value, STR("chunked"));
    } else if (same_word(name, STR("connection"))) {
        if (list_has(value, STR("close"))) r->keeps_alive = false;
        if (list_has(value, STR("keep-alive"))) r->keeps_alive = true;
    }
    return ST_OK;
}

/* After the empty line: decide where the body ends. */
static void end_head(struct loadgen_response *r) {
    if (r->status < 200) {
        loadgen_response_reset(r); /* an interim response; the real one follows */
        return;
    }
    if (r->status == 204 || r->status == 304) {
        r->state = RESPONSE_DONE;
    } else if (r->is_chunked) {
        r->left = 0;
        r->state = RESPONSE_CHUNK_SIZE;
    } else if (r->has_length) {
        r->state = r->left ? RESPONSE_LENGTH : RESPONSE_DONE;
    } else {
        r->keeps_alive = false;
        r->state = RESPONSE_TO_CLOSE;
    }
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "1a;extension" */
static enum status take_chunk_size(struct loadgen_response *r, struct str line, struct err *err) {
    enum { DIGITS_MAX = 15 };
    size_t i = 0;
    uint64_t size = 0;
    for (; i < line.len && hex_digit(line.ptr[i]) >= 0; i++)
        size = size * 16 + (uint64_t)hex_digit(line.ptr[i]);
    bool ends_well = i == line.len || line.ptr[i] == ';' || line.ptr[i] == ' ';
    if (i == 0 || i > DIGITS_MAX || !ends_well)
        return err_set(err, ST_BAD, "invalid chunk size: \"%.40s\"", r->line);
    r->left = size;
    r->state = size ? RESPONSE_CHUNK_DATA : RESPONSE_TRAILERS;
    return ST_OK;
}

static enum status take_line(struct loadgen_response *r, struct str line, struct err *err) {
    switch (r->state) {
    case RESPONSE_STATUS:
        return take_status_line(r, line, err);
    case RESPONSE_HEADERS:
        if (line.len > 0) return take_header(r, line, err);
        end_head(r);
        return ST_OK;
    case RESPONSE_CHUNK_SIZE:
        return take_chunk_size(r, line, err);
    case RESPONSE_CHUNK_END:
        if (line.len > 0) return err_set(err, ST_BAD, "a chunk is longer than its stated size");
        r->state = RESPONSE_CHUNK_SIZE;
        return ST_OK;
    default:
        CHECK(r->state == RESPONSE_TRAILERS);
        if (line.len == 0) r->state = RESPONSE_DONE;
        return ST_OK;
    }
}

static bool counts_as_head(const struct loadgen_response *r) {
    return r->state == RESPONSE_STATUS || r->state == RESPONSE_HEADERS ||
           r->state == RESPONSE_TRAILERS;
}

/* Collect bytes up to a newline; *used says how many were taken. */
static enum status feed_line(struct loadgen_response *r, struct str bytes, size_t *used,
                             struct err *err) {
    const char *newline = memchr(bytes.ptr, '\n', bytes.len);
    size_t some = newline ? (size_t)(newline - bytes.ptr) + 1 : bytes.len;
    if (counts_as_head(r))
        r->head_bytes += (uint32_t)(some < RESPONSE_HEAD_BYTES ? some : RESPONSE_HEAD_BYTES);
    if (some >= RESPONSE_LINE_BYTES - r->line_bytes || r->head_bytes > RESPONSE_HEAD_BYTES)
        return err_set(err, ST_BAD, "the head of the response is too long");
    memcpy(r->line + r->line_bytes, bytes.ptr, some);
    r->line_bytes += (uint32_t)some;
    *used = some;
    if (!newline) return ST_OK;
    struct str line = {r->line, r->line_bytes - 1};
    if (line.len > 0 && line.ptr[line.len - 1] == '\r') line.len--;
    r->line[line.len] = 0; /* for error messages */
    r->line_bytes = 0;
    return take_line(r, line, err);
}

static enum status feed_body(struct loadgen_response *r, struct str bytes, size_t *used,
                             loadgen_body_fn *on_body, void *ctx) {
    bool is_open = r->state == RESPONSE_TO_CLOSE;
    size_t some = is_open || r->left > bytes.len ? bytes.len : (size_t)r->left;
    *used = some;
    if (!is_open) {
        r->left -= some;
        if (r->left == 0)
            r->state = r->state == RESPONSE_LENGTH ? RESPONSE_DONE : RESPONSE_CHUNK_END;
    }
    return on_body(ctx, str_take(bytes, some));
}

static bool in_body(const struct loadgen_response *r) {
    return r->state == RESPONSE_LENGTH || r->state == RESPONSE_TO_CLOSE ||
           r->state == RESPONSE_CHUNK_DATA;
}

enum status loadgen_response_feed(struct loadgen_response *r, struct str bytes, size_t *used,
                                  struct err *err, loadgen_body_fn *on_body, void *ctx) {
    *used = 0;
    while (bytes.len > 0 && r->state != RESPONSE_DONE) {
        size_t some = 0;
        if (in_body(r))
            TRY(feed_body(r, bytes, &some, on_body, ctx));
        else
            TRY(feed_line(r, bytes, &some, err));
        CHECK(some > 0);
        *used += some;
        bytes = str_skip(bytes, some);
    }
    return ST_OK;
}

enum status loadgen_response_close(struct loadgen_response *r, struct err *err) {
    if (r->state == RESPONSE_TO_CLOSE) r->state = RESPONSE_DONE;
    if (r->state == RESPONSE_DONE) return ST_OK;
    return err_set(err, ST_BAD, "the connection was closed before the end of the response");
}
