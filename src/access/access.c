/* access/access.c - see access/access.h. */
#include "access/access.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "access/keys.h"
#include "base/check.h"
#include "config/settings.h"
#include "net/http.h"

enum { NAME_BYTES = 256, HOST_SHOWN_BYTES = 100 };

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

/* An address in any spelling, with or without brackets; IPv4 as IPv6 writes it (::ffff:1.2.3.4).
 * False: it is a name. */
static bool read_address(struct str text, struct in6_addr *out) {
    struct in_addr v4;
    char bare[INET6_ADDRSTRLEN];
    if (text.len >= 2 && text.ptr[0] == '[' && text.ptr[text.len - 1] == ']')
        text = (struct str){text.ptr + 1, text.len - 2};
    if (text.len >= sizeof(bare)) return false;
    memcpy(bare, text.ptr, text.len);
    bare[text.len] = 0;
    if (inet_pton(AF_INET6, bare, out) == 1) return true;
    if (inet_pton(AF_INET, bare, &v4) != 1) return false;
    *out = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(&out->s6_addr[12], &v4, sizeof(v4));
    return true;
}

static bool is_loopback(const struct in6_addr *a) {
    return IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127);
}

bool access_host_is_loopback(const char *host) {
    struct in6_addr address;
    if (read_address(str_of(host), &address)) return is_loopback(&address);
    return strcmp(host, "localhost") == 0 || strcmp(host, "[localhost]") == 0;
}

bool access_host_is_any(const char *host) {
    struct in6_addr address;
    if (!read_address(str_of(host), &address)) return host[0] == 0;
    if (IN6_IS_ADDR_V4MAPPED(&address)) memset(&address.s6_addr[10], 0, 2);
    return IN6_IS_ADDR_UNSPECIFIED(&address);
}

static bool is_listed_origin(const struct setting_list *list, struct str name) {
    for (uint32_t i = 0; i < list->count; i++)
        if (str_is(name, list->items[i]) || strcmp(list->items[i], "*") == 0) return true;
    return false;
}

/* A Host header or a setting, so that equal ones can be compared: an address, or a name in lower
 * case without the dot of the root. */
struct host {
    bool is_address;
    struct in6_addr address;
    struct str name; /* in `text`; empty if it is too long for a name of DNS */
    char text[NAME_BYTES];
};

static void read_host(struct str text, struct host *out) {
    struct str bare = without_port(text);
    *out = (struct host){0};
    out->is_address = read_address(text, &out->address) || read_address(bare, &out->address);
    if (out->is_address || bare.len > sizeof(out->text)) return;
    out->name = lower(bare, out->text, sizeof(out->text));
    if (str_ends(out->name, STR("."))) out->name.len--;
}

static bool is_host(const struct host *host, const char *setting) {
    struct host own;
    read_host(str_of(setting), &own);
    if (host->is_address != own.is_address) return false;
    if (host->is_address) return IN6_ARE_ADDR_EQUAL(&host->address, &own.address);
    return host->name.len > 0 && str_eq(host->name, own.name);
}

static bool is_listed_host(const struct setting_list *list, const struct host *host) {
    for (uint32_t i = 0; i < list->count; i++)
        if (is_host(host, list->items[i]) || strcmp(list->items[i], "*") == 0) return true;
    return false;
}

/* No DNS server is asked for localhost and what is below it (RFC 6761). */
static bool is_localhost(const struct host *host) {
    if (host->is_address) return is_host(host, "127.0.0.1") || is_host(host, "::1");
    return str_is(host->name, "localhost") || str_ends(host->name, STR(".localhost"));
}

/* The same for what nearly every client sends, without parsing it. */
static bool is_plain_localhost(struct str text) {
    struct str bare = without_port(text);
    return str_is(bare, "127.0.0.1") || str_is(bare, "localhost");
}

static bool is_own_host(const struct access_rules *rules, struct str text) {
    const struct settings *s = rules->settings;
    struct host host;
    if (text.len == 0) return true; /* HTTP/1.0 without Host: no browser sends that */
    if (is_plain_localhost(text)) return true;
    read_host(text, &host);
    if (host.is_address && rules->is_any_address) return true;
    return is_localhost(&host) || is_host(&host, s->host) ||
           is_listed_host(&s->allowed_host, &host);
}

static enum status check_host(const struct access_rules *rules, const struct http_head *head,
                              struct api_error *e) {
    bool is_unix = str_is(head->peer, "unix");
    if (is_unix || rules->settings->api_key_file || is_own_host(rules, head->host)) return ST_OK;
    struct str shown = str_take(head->host, HOST_SHOWN_BYTES);
    return api_refuse(e, 403, NULL, "host_not_allowed",
                      "Host \"%.*s\" is not a name of this server, which requires no API key; "
                      "start it with --allowed-host NAME to accept the name, or, if a reverse "
                      "proxy wrote it, let the proxy pass on the client's Host",
                      STR_ARG(shown));
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

/* Headers with which a proxy names the client for whom it asks. */
static bool is_passed_on(const struct http_head *head) {
    static const char *const names[] = {"forwarded", "x-forwarded-for", "x-real-ip", "via"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (http_find(head, names[i]).ptr) return true;
    return false;
}

/* Without API keys: does the request come from this machine, and not for another client? */
static enum status check_local(const struct access_rules *rules, const struct http_head *head,
                               struct api_error *e) {
    struct host host;
    read_host(head->host, &host);
    bool is_own = str_is(head->peer, "unix") || head->host.len == 0 || is_localhost(&host);
    if (rules->is_local_only && is_own && !is_passed_on(head)) return ST_OK;
    return api_refuse(e, 403, NULL, "not_admin",
                      "this path needs the API key of an administrator; without --api-key-file it "
                      "is open only to clients on the same machine, of a server that listens on "
                      "loopback or a unix socket alone");
}

enum status access_check(const struct access_rules *rules, const struct http_head *head,
                         enum access_class class, struct access_grant *out, struct api_error *e) {
    CHECK(class != ACCESS_UNDECLARED);
    *out = (struct access_grant){0};
    TRY(check_host(rules, head, e));
    TRY(check_origin(rules, head, out, e));
    if (class != ACCESS_ADMIN || !keys_anyone(rules->keys))
        return check_key(rules->keys, head, class, out, e);
    out->key = keys_anyone(rules->keys);
    return check_local(rules, head, e);
}

enum status access_recheck(const struct keys *keys, const struct key *key, enum access_class class,
                           struct api_error *e) {
    if (key && key == keys_anyone(keys)) return ST_OK; /* access_check has checked where it is */
    return check_class(key && keys_is_live(keys, key) ? key : NULL, class, e);
}

static enum status refuse_limit(const struct key_refusal *why, struct api_error *e) {
    if (why->wait_ms == 0)
        return api_refuse(e, 400, NULL, "tokens_per_minute_exceeded",
                          "this request needs at least %" PRIu64 " tokens, but its API key has a "
                          "limit of %" PRIu64 " %s; it cannot succeed later either: send a shorter "
                          "prompt or ask for a higher limit",
                          why->wanted, why->max, why->limit);
    char wanted[96] = "";
    if (why->wanted)
        snprintf(wanted, sizeof(wanted),
                 ", and this request needs %" PRIu64 " for its prompt and its longest answer",
                 why->wanted);
    api_refuse(e, 429, NULL, "rate_limit_exceeded",
               "this API key has reached its limit of %s: %" PRIu64 " of %" PRIu64
               " are used or reserved%s",
               why->limit, why->taken, why->max, wanted);
    e->retry_after_ms = why->wait_ms;
    return ST_BAD;
}

enum status access_begin(struct keys *keys, const struct key *key, int64_t now_us,
                         struct api_error *e) {
    struct key_refusal why;
    return keys_begin(keys, key, now_us, &why) ? ST_OK : refuse_limit(&why, e);
}

enum status access_reserve(struct keys *keys, const struct key *key, struct key_claim *claim,
                           int64_t now_us, struct api_error *e) {
    struct key_refusal why;
    return keys_reserve(keys, key, claim, now_us, &why) ? ST_OK : refuse_limit(&why, e);
}

int32_t access_priority(const struct keys *keys, const struct key *key, int32_t wanted) {
    if (!key || key == keys_anyone(keys)) return wanted;
    return wanted < key->priority ? wanted : key->priority;
}

void access_bound_targets(const struct key *key, int64_t *ttft_us, int64_t *tpot_us) {
    const int64_t ttft_min_us = key ? (int64_t)key->ttft_ms * 1000 : 0;
    const int64_t tpot_min_us = key ? (int64_t)key->tpot_ms * 1000 : 0;
    if (*ttft_us > 0 && *ttft_us < ttft_min_us) *ttft_us = ttft_min_us;
    if (*tpot_us > 0 && *tpot_us < tpot_min_us) *tpot_us = tpot_min_us;
}
