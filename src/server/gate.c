/* server/gate.c - who may come in: hosts, origins, keys.
 *
 * A page in a browser can make its visitor's browser call a server that listens on loopback. Two
 * things give it away: the Host header names the page's site where DNS was bent to point here
 * (rebinding), and the Origin header names the page's site otherwise. So on loopback the host
 * must be one that means this machine, unless keys are asked for; and an origin other than the
 * server's own must be one that --cors-origin lists.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/check.h"
#include "server/server.h"
#include "server/server_int.h"

enum { NAME_BYTES = 256 };

static struct str lower(struct str s, char *out, size_t out_bytes) {
    size_t len = s.len < out_bytes ? s.len : out_bytes;
    for (size_t i = 0; i < len; i++)
        out[i] = (char)(s.ptr[i] >= 'A' && s.ptr[i] <= 'Z' ? s.ptr[i] + 32 : s.ptr[i]);
    return (struct str){out, len};
}

/* "name:port" without the port; "[::1]:80" gives "[::1]". What is no port stays. */
static struct str without_port(struct str host) {
    size_t len = host.len;
    while (len > 0 && host.ptr[len - 1] >= '0' && host.ptr[len - 1] <= '9') len--;
    bool has_port = len > 0 && host.ptr[len - 1] == ':';
    return has_port ? str_take(host, len - 1) : host;
}

bool server_host_is_local(const char *host) {
    struct in_addr v4;
    struct in6_addr v6;
    char bare[NAME_BYTES];
    struct str text = str_of(host);
    if (text.len >= 2 && text.ptr[0] == '[' && text.ptr[text.len - 1] == ']')
        text = (struct str){text.ptr + 1, text.len - 2};
    snprintf(bare, sizeof(bare), "%.*s", STR_ARG(text));
    if (inet_pton(AF_INET, bare, &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, bare, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
    return strcmp(bare, "localhost") == 0;
}

static bool is_listed_origin(const struct setting_list *list, struct str name) {
    for (uint32_t i = 0; i < list->count; i++)
        if (str_is(name, list->items[i]) || strcmp(list->items[i], "*") == 0) return true;
    return false;
}

/* Names of hosts are the same in capitals; `name` has none. */
static bool is_host(struct str name, const char *host) {
    char text[NAME_BYTES];
    return str_eq(name, lower(str_of(host), text, sizeof(text)));
}

static bool is_listed_host(const struct setting_list *list, struct str name) {
    for (uint32_t i = 0; i < list->count; i++)
        if (is_host(name, list->items[i]) || strcmp(list->items[i], "*") == 0) return true;
    return false;
}

static bool is_own_host(const struct server *s, struct str host) {
    char text[NAME_BYTES];
    if (host.len == 0) return true; /* HTTP/1.0 without one: no browser does that */
    struct str name = lower(without_port(host), text, sizeof(text));
    return str_is(name, "localhost") || str_is(name, "127.0.0.1") || str_is(name, "[::1]") ||
           is_host(name, s->settings.host) || is_listed_host(&s->settings.allowed_host, name);
}

static enum status check_host(const struct http_request *req, struct api_error *e) {
    const struct server *s = req->server;
    bool is_unix = str_is(req->head->peer, "unix");
    if (is_unix || !s->is_loopback || s->settings.api_key_file || is_own_host(s, req->head->host))
        return ST_OK;
    return api_refuse(e, 403, NULL, "host_not_allowed",
                      "the host \"%.*s\" is not one of this server's; --allowed-host adds one",
                      STR_ARG(req->head->host));
}

/* "https://name:port" is the page's own site: where it was loaded from is this server. */
static bool is_same_site(struct str origin, struct str host) {
    const char *at = memchr(origin.ptr, ':', origin.len);
    struct str rest = at ? str_skip(origin, (size_t)(at - origin.ptr)) : (struct str){0};
    return str_starts(rest, STR("://")) && str_eq(str_skip(rest, 3), host);
}

static enum status check_origin(struct http_request *req, struct api_error *e) {
    struct str origin = http_find(req->head, "origin");
    if (!origin.ptr) return ST_OK;
    req->is_allowed_origin = is_listed_origin(&req->server->settings.cors_origin, origin);
    if (req->is_allowed_origin || is_same_site(origin, req->head->host)) return ST_OK;
    return api_refuse(e, 403, NULL, "origin_not_allowed",
                      "pages of \"%.*s\" may not call this server; --cors-origin allows them",
                      STR_ARG(origin));
}

/* OpenAI's header, or Anthropic's. */
static struct str secret_of(const struct http_head *head) {
    struct str value = http_find(head, "authorization");
    char scheme[8];
    if (str_is(lower(str_take(value, 7), scheme, sizeof(scheme)), "bearer "))
        return str_trim(str_skip(value, 7));
    return http_find(head, "x-api-key");
}

static enum status check_key(struct http_request *req, enum auth_class class, struct api_error *e) {
    struct str secret = secret_of(req->head);
    req->key = keys_anyone(req->server->keys);
    if (!req->key && secret.len > 0) req->key = keys_find(req->server->keys, secret);
    if (class == AUTH_OPEN) return ST_OK;
    if (!req->key && secret.len == 0)
        return api_refuse(e, 401, NULL, "missing_api_key",
                          "an API key is needed: send it as \"Authorization: Bearer KEY\"");
    if (!req->key)
        return api_refuse(e, 401, NULL, "invalid_api_key", "the API key is not one of this server");
    if (class == AUTH_ADMIN && !req->key->is_admin)
        return api_refuse(e, 403, NULL, "not_admin", "the API key is not an administrator's");
    return ST_OK;
}

enum status gate_check(struct http_request *req, struct api_error *e) {
    bool is_preflight = req->head->method == HTTP_OPTIONS; /* browsers send no key with it */
    enum auth_class class = req->route ? req->route->auth : is_preflight ? AUTH_OPEN : AUTH_KEY;
    CHECK(class != AUTH_UNDECLARED);
    TRY(check_host(req, e));
    TRY(check_origin(req, e));
    return check_key(req, class, e);
}
