/* net/h1_parse.c - see net/h1_int.h for the contract.
 *
 * The only file that uses llhttp.
 */
#include "net/h1_int.h"

#include <llhttp.h>
#include <string.h>

enum {
    BLANKS_MAX = 1,             /* empty lines before a request; some clients send one */
    SIZE_DIGITS_MAX = 15,       /* hexadecimal, of a chunk size: it cannot overflow 64 bits */
    EXTENSION_BYTES_MAX = 1024, /* of one chunk */
    TRAILER_BYTES_MAX = 8192,
};

/* ---- the end of a head ---- */

/* CR LF has been read. */
static enum h1_step end_line(struct h1_scan *s) {
    s->has_cr = false;
    if (s->line_bytes > 0) {
        s->lines++;
        s->line_bytes = 0;
        return H1_MORE;
    }
    if (s->lines > 0 || s->is_trailer) return H1_END;
    return ++s->blanks > BLANKS_MAX ? H1_BAD : H1_MORE;
}

static enum h1_step scan_byte(struct h1_scan *s, unsigned char b) {
    if (s->has_cr) return b == '\n' ? end_line(s) : H1_BAD;
    if (b == '\r') {
        s->has_cr = true;
        return H1_MORE;
    }
    if ((b < 0x20 && b != '\t') || b == 0x7f) return H1_BAD;
    if (s->line_bytes == 0 && (b == ' ' || b == '\t')) return H1_BAD; /* folded */
    s->line_bytes++;
    return H1_MORE;
}

enum h1_step h1_scan(struct h1_scan *s, struct str bytes, size_t *used) {
    enum h1_step step = H1_MORE;
    size_t i = 0;
    while (i < bytes.len && step == H1_MORE) step = scan_byte(s, (unsigned char)bytes.ptr[i++]);
    s->bytes += (uint32_t)i;
    *used = i;
    return step;
}

/* ---- the first line ---- */

static bool is_digit(char b) { return b >= '0' && b <= '9'; }

static uint32_t parse_version(struct str text, uint32_t *out, const char **sentence) {
    const bool is_version = text.len == 8 && str_starts(text, STR("HTTP/")) &&
                            is_digit(text.ptr[5]) && text.ptr[6] == '.' && is_digit(text.ptr[7]);
    *sentence = "malformed request line: it does not end in an HTTP version";
    if (!is_version) return 400;
    *out = (uint32_t)(text.ptr[5] - '0') * 10 + (uint32_t)(text.ptr[7] - '0');
    *sentence = "unsupported HTTP version; supported: HTTP/1.0, HTTP/1.1, HTTP/2";
    return *out == 10 || *out == 11 ? 0 : 505;
}

uint32_t h1_parse_line(struct str head, struct h1_line *out, const char **sentence) {
    while (head.len >= 2 && head.ptr[0] == '\r') head = str_skip(head, 2);
    const char *end = memchr(head.ptr, '\r', head.len);
    const struct str line = str_take(head, (size_t)(end - head.ptr));
    const char *first = memchr(line.ptr, ' ', line.len);
    *sentence = "malformed request line: expected \"METHOD TARGET HTTP/1.1\"";
    if (!first || first == line.ptr) return 400;
    out->method = str_take(line, (size_t)(first - line.ptr));
    const struct str rest = str_skip(line, out->method.len + 1);
    const char *second = memchr(rest.ptr, ' ', rest.len);
    if (!second || second == rest.ptr) return 400;
    out->target = str_take(rest, (size_t)(second - rest.ptr));
    return parse_version(str_skip(rest, out->target.len + 1), &out->version, sentence);
}

/* ---- headers ---- */

struct reader {
    h1_header_fn *on_header;
    void *ctx;
    struct str name, value;
    uint32_t status;
    bool is_done;
};

/* llhttp gets the whole head in one call, so each name and each value arrives in one piece. */
static int on_name(llhttp_t *p, const char *at, size_t len) {
    struct reader *r = p->data;
    r->name = (struct str){at, len};
    r->value = (struct str){"", 0};
    return 0;
}

static int on_value(llhttp_t *p, const char *at, size_t len) {
    struct reader *r = p->data;
    r->value = (struct str){at, len};
    return 0;
}

static int on_value_end(llhttp_t *p) {
    struct reader *r = p->data;
    r->status = r->on_header(r->ctx, r->name, r->value);
    return r->status ? HPE_USER : 0;
}

static int on_headers_end(llhttp_t *p) {
    struct reader *r = p->data;
    r->is_done = true;
    return HPE_PAUSED; /* llhttp does not parse the body */
}

/* 405, not 501: clients retry after a 5xx. */
static uint32_t status_of(llhttp_errno_t failure) {
    return failure == HPE_INVALID_METHOD ? 405 : 400;
}

static const char *sentence_of(llhttp_errno_t failure) {
    switch (failure) {
    case HPE_INVALID_METHOD:
        return "unknown method";
    case HPE_INVALID_HEADER_TOKEN:
        return "a header contains a character that is not allowed";
    case HPE_INVALID_CONTENT_LENGTH:
    case HPE_UNEXPECTED_CONTENT_LENGTH:
        return "Content-Length is not one number, or Transfer-Encoding is given too";
    case HPE_INVALID_TRANSFER_ENCODING:
        return "Transfer-Encoding must be exactly \"chunked\"";
    case HPE_INVALID_URL:
        return "the request target is not a valid path";
    default:
        return "malformed request head";
    }
}

uint32_t h1_parse_headers(struct str head, h1_header_fn *on_header, void *ctx,
                          const char **sentence) {
    static const llhttp_settings_t settings = {
        .on_header_field = on_name,
        .on_header_value = on_value,
        .on_header_value_complete = on_value_end,
        .on_headers_complete = on_headers_end,
    };
    struct reader r = {.on_header = on_header, .ctx = ctx};
    llhttp_t parser;
    llhttp_init(&parser, HTTP_REQUEST, &settings);
    parser.data = &r;
    const llhttp_errno_t failure = llhttp_execute(&parser, head.ptr, head.len);
    if (r.status) return r.status;
    if (r.is_done) return 0;
    *sentence = sentence_of(failure);
    return status_of(failure);
}

/* ---- chunks ---- */

static int hex_of(char b) {
    if (is_digit(b)) return b - '0';
    if (b >= 'a' && b <= 'f') return b - 'a' + 10;
    if (b >= 'A' && b <= 'F') return b - 'A' + 10;
    return -1;
}

/* The size line is complete. */
static enum h1_step begin_chunk(struct h1_chunks *c) {
    c->has_cr = false;
    c->extension_bytes = 0;
    c->state = c->left > 0 ? CHUNK_DATA : CHUNK_TRAILER;
    if (c->left == 0) c->trailer = (struct h1_scan){.is_trailer = true};
    return c->digits > 0 ? H1_MORE : H1_BAD;
}

static enum h1_step take_size_byte(struct h1_chunks *c, char b) {
    if (c->has_cr) return b == '\n' ? begin_chunk(c) : H1_BAD;
    const int digit = hex_of(b);
    if (digit >= 0 && c->state == CHUNK_SIZE) {
        c->left = c->left << 4 | (uint64_t)digit;
        return ++c->digits > SIZE_DIGITS_MAX ? H1_BAD : H1_MORE;
    }
    if (b == '\r') {
        c->has_cr = true;
        return H1_MORE;
    }
    if (c->state == CHUNK_SIZE) {
        c->state = CHUNK_EXTENSION;
        return b == ';' && c->digits > 0 ? H1_MORE : H1_BAD;
    }
    const unsigned char u = (unsigned char)b;
    if ((u < 0x20 && u != '\t') || u == 0x7f) return H1_BAD;
    return ++c->extension_bytes > EXTENSION_BYTES_MAX ? H1_BAD : H1_MORE;
}

/* The CR LF after the data. */
static enum h1_step take_tail_byte(struct h1_chunks *c, char b) {
    if (b != (c->has_cr ? '\n' : '\r')) return H1_BAD;
    if (c->has_cr) {
        c->state = CHUNK_SIZE;
        c->digits = 0;
    }
    c->has_cr = !c->has_cr;
    return H1_MORE;
}

static enum h1_step take_trailer(struct h1_chunks *c, struct str *bytes) {
    size_t used;
    const enum h1_step step = h1_scan(&c->trailer, *bytes, &used);
    *bytes = str_skip(*bytes, used);
    return c->trailer.bytes > TRAILER_BYTES_MAX ? H1_BAD : step;
}

static void take_data(struct h1_chunks *c, struct str *bytes, struct str *data) {
    *data = str_take(*bytes, c->left < bytes->len ? (size_t)c->left : bytes->len);
    *bytes = str_skip(*bytes, data->len);
    c->left -= data->len;
    if (c->left == 0) c->state = CHUNK_TAIL;
}

enum h1_step h1_chunks_next(struct h1_chunks *c, struct str *bytes, struct str *data) {
    enum h1_step step = H1_MORE;
    while (bytes->len && step == H1_MORE) {
        if (c->state == CHUNK_DATA) {
            take_data(c, bytes, data);
            return H1_DATA;
        }
        if (c->state == CHUNK_TRAILER) return take_trailer(c, bytes);
        const char b = bytes->ptr[0];
        *bytes = str_skip(*bytes, 1);
        step = c->state == CHUNK_TAIL ? take_tail_byte(c, b) : take_size_byte(c, b);
    }
    return step;
}
