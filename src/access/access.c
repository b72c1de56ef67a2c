/* access/access.c - see access/access.h. */
#include "access/access.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "access/keys.h"
#include "base/check.h"
#include "config/settings.h"
#include "net/http.h"

enum { NAME_BYTES = 256 };

static struct str lower(struct str s, char *out, size_t out_bytes) {
    size_t len = s.len < out_bytes ? s.len : out_bytes;
    for (size_t i = 0; i < len; i++)
        out[i] = (char)(s.ptr[i] >= 'A' && s.ptr[i] <= 'Z' ? s.ptr[i] + 32 : s.ptr[i]);
    return (struct str){out, len};
}

/* "name:port" without the port: "[::1]:80" gives "[::1]". Only digits are a port. */
static struct str without_port(struct str host) {
    size_t len = host.len;
    while (len > 0 && host.ptr[len - 1] >= '0' && host.ptr[len - 1] <= '9') len--;
    bool has_port = len > 0 && host.ptr[len - 1] == ':';
    return has_port ? str_take(host, len - 1) : host;
}

bool access_host_is_loopback(const char *host) {
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

/* Host names are compared without case; `name` is in lower case. */
static bool is_host(struct str name, const char *host) {
    char text[NAME_BYTES];
    return str_eq(name, lower(str_of(host), text, sizeof(text)));
}

static bool is_listed_host(const struct setting_list *list, struct str name) {
    for (uint32_t i = 0; i < list->count; i++)
        if (is_host(name, list->items[i]) || strcmp(list->items[i], "*") == 0) return true;
    return false;
}

static bool is_own_host(const struct settings *s, struct str host) {
    char text[NAME_BYTES];
    if (host.len == 0) return true; /* HTTP/1.0 without Host: no browser sends that */
    struct str name = lower(without_port(host), text, sizeof(text));
    return str_is(name, "localhost") || str_is(name, "127.0.0.1") || str_is(name, "[::1]") ||
           is_host(name, s->host) || is_listed_host(&s->allowed_host, name);
}

static enum status check_host(const struct access_rules *rules, const struct http_head *head,
                              struct api_error *e) {
    const struct settings *s = rules->settings;
    bool is_unix = str_is(head->peer, "unix");
    if (is_unix || !rules->is_loopback || s->api_key_file || is_own_host(s, head->host))
        return ST_OK;
    return api_refuse(e, 403, NULL, "host_not_allowed",
                      "Host \"%.*s\" is not a name of this server; --allowed-host adds one",
                      STR_ARG(head->host));
}

/* Was the page loaded from this server? "https://name:port" against Host. */
static bool is_same_site(struct str origin, struct str host) {
    const char *at = memchr(origin.ptr, ':', origin.len);
    struct str rest = at ? str_skip(origin, (size_t)(at - origin.ptr)) : (struct str){0};
    return str_starts(rest, STR("://")) && str_eq(str_skip(rest, 3), host);
}

static enum status check_origin(const struct access_rules *rules, const struct http_head *head,
                                struct access_grant *out, struct api_error *e) {
    struct str origin = http_find(head, "origin");
    if (!origin.ptr) return ST_OK;
    out->is_allowed_origin = is_listed_origin(&rules->settings->cors_origin, origin);
    if (out->is_allowed_origin || is_same_site(origin, head->host)) return ST_OK;
    return api_refuse(e, 403, NULL, "origin_not_allowed",
                      "pages of \"%.*s\" may not call this server; --cors-origin allows an origin",
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

/* `key` NULL: the request has no valid one. */
static enum status check_class(const struct key *key, enum access_class class,
                               struct api_error *e) {
    if (class == ACCESS_OPEN) return ST_OK;
    if (!key)
        return api_refuse(e, 401, NULL, "invalid_api_key",
                          "the API key is not in this server's key file");
    if (class == ACCESS_ADMIN && !key->is_admin)
        return api_refuse(e, 403, NULL, "not_admin", "the API key is not an administrator's");
    return ST_OK;
}

static enum status check_key(const struct keys *keys, const struct http_head *head,
                             enum access_class class, struct access_grant *out,
                             struct api_error *e) {
    struct str secret = secret_of(head);
    out->key = keys_anyone(keys);
    if (!out->key && secret.len > 0) out->key = keys_find(keys, secret);
    if (!out->key && secret.len == 0 && class != ACCESS_OPEN)
        return api_refuse(e, 401, NULL, "missing_api_key",
                          "an API key is required: send it as \"Authorization: Bearer KEY\"");
    return check_class(out->key, class, e);
}

enum status access_check(const struct access_rules *rules, const struct http_head *head,
                         enum access_class class, struct access_grant *out, struct api_error *e) {
    CHECK(class != ACCESS_UNDECLARED);
    *out = (struct access_grant){0};
    TRY(check_host(rules, head, e));
    TRY(check_origin(rules, head, out, e));
    return check_key(rules->keys, head, class, out, e);
}

enum status access_recheck(const struct keys *keys, const struct key *key, enum access_class class,
                           struct api_error *e) {
    return check_class(key && keys_is_live(keys, key) ? key : NULL, class, e);
}

enum status access_begin(struct keys *keys, const struct key *key, int64_t now_us,
                         struct api_error *e) {
    int64_t wait_ms = 0;
    const char *limit = "";
    if (keys_begin(keys, key, 0, now_us, &wait_ms, &limit)) return ST_OK;
    api_refuse(e, 429, NULL, "rate_limit_exceeded", "this API key has reached its limit of %s",
               limit);
    e->retry_after_ms = wait_ms > 0 ? wait_ms : 1;
    return ST_BAD;
}
