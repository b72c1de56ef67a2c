/* loadgen/target.c - see loadgen/target.h. */
#include "loadgen/target.h"

#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/check.h"

enum { HTTP_PORT = 80, HTTPS_PORT = 443, PORT_MAX = 65535 };

static bool copy_text(char *out, size_t out_bytes, struct str s) {
    if (s.len >= out_bytes) return false;
    memcpy(out, s.ptr, s.len);
    out[s.len] = 0;
    return true;
}

static bool is_plain(struct str s) {
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] <= ' ' || s.ptr[i] == 127) return false;
    return true;
}

/* "host", "host:80", "[::1]:80" */
static bool take_authority(struct target *t, struct str s) {
    bool is_v6 = s.len > 0 && s.ptr[0] == '[';
    const char *host_end = is_v6 ? memchr(s.ptr, ']', s.len) : memchr(s.ptr, ':', s.len);
    if (is_v6 && !host_end) return false;
    size_t skip = is_v6 ? 1 : 0;
    size_t host_len = host_end ? (size_t)(host_end - s.ptr) - skip : s.len;
    if (host_len == 0 ||
        !copy_text(t->host, sizeof(t->host), str_take(str_skip(s, skip), host_len)))
        return false;
    struct str rest = str_skip(s, skip + host_len + (is_v6 ? 1 : 0));
    uint64_t port = t->is_tls ? HTTPS_PORT : HTTP_PORT;
    if (rest.len > 0 && (rest.ptr[0] != ':' || !str_to_u64(str_skip(rest, 1), &port))) return false;
    if (port == 0 || port > PORT_MAX) return false;
    t->port = (uint16_t)port;
    return true;
}

enum status target_parse(const char *url, struct target *out, struct err *err) {
    struct str s = str_of(url);
    *out = (struct target){0};
    out->is_tls = str_starts(s, STR("https://"));
    bool is_good = (out->is_tls || str_starts(s, STR("http://"))) && is_plain(s);
    s = str_skip(s, is_good ? out->is_tls ? 8 : 7 : 0);
    const char *slash = memchr(s.ptr, '/', s.len);
    struct str authority = str_take(s, slash ? (size_t)(slash - s.ptr) : s.len);
    struct str path = str_skip(s, authority.len);
    while (path.len > 0 && path.ptr[path.len - 1] == '/') path.len--;
    bool has_version = str_ends(path, STR("/v1"));
    is_good = is_good && take_authority(out, authority) && path.len + 4 < sizeof(out->base) &&
              copy_text(out->base, sizeof(out->base), path);
    if (!is_good)
        return err_set(err, ST_BAD,
                       "\"%.100s\" is not an address; expected for example http://127.0.0.1:8080",
                       url);
    if (!has_version) memcpy(out->base + path.len, "/v1", 4);
    return ST_OK;
}

enum status target_resolve(struct target *t, struct err *err) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    char port[8];
    snprintf(port, sizeof(port), "%u", t->port);
    int failed = getaddrinfo(t->host, port, &hints, &found);
    if (failed) return err_set(err, ST_UNAVAILABLE, "%s: %s", t->host, gai_strerror(failed));
    CHECK(found->ai_addrlen <= sizeof(t->address));
    memcpy(t->address, found->ai_addr, found->ai_addrlen);
    t->address_bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return ST_OK;
}

void target_put_request(const struct target *t, const char *path, const char *key,
                        const struct buf *body, struct buf *out) {
    bool is_v6 = strchr(t->host, ':') != NULL;
    buf_printf(out, "%s %s%s HTTP/1.1\r\n", body ? "POST" : "GET", t->base, path);
    buf_printf(out, "host: %s%s%s:%u\r\n", is_v6 ? "[" : "", t->host, is_v6 ? "]" : "", t->port);
    if (key) buf_printf(out, "authorization: Bearer %s\r\n", key);
    if (body)
        buf_printf(out, "content-type: application/json\r\ncontent-length: %zu\r\n", body->len);
    buf_put_text(out, "\r\n");
    if (body) buf_put_str(out, buf_str(body));
}
