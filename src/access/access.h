/* access/access.h - may this HTTP request be handled? Its host, its origin, its API key.
 *
 * A page in a browser can make the browser call a server that only its user can reach: on
 * loopback, in a container, behind a firewall. Two headers show it: Host names the page's site
 * where DNS was changed to point here (rebinding); Origin names the page's site in all other cases.
 * So Host must name this server, unless API keys are required; and an origin other than the
 * server's own must be listed in --cors-origin.
 *
 * Names of this server: localhost and names below it, 127.0.0.1, [::1], --host, --allowed-host. If
 * it listens on all addresses, every address is accepted, because its own may be translated on
 * the way (containers); a page can be given a name that points here, but not an address.
 *
 * Paths of administrators need the key of one. Without API keys they are open if the server listens
 * on loopback or a unix socket alone and no proxy has passed the request on: Host names loopback,
 * and no header names another client.
 *
 *     access_check    when the head has arrived: host, origin, key
 *     access_recheck  when the body has arrived: is the key still valid?
 *     access_begin    before work is started: is the key within its limits? then keys_end
 *     access_reserve  when the prompt is tokenised: do the tokens fit into the key's limit?
 *
 * Lifetime: nothing is kept but what the caller keeps. Thread: the I/O thread.
 * Memory: allocates nothing.
 */
#ifndef ACCESS_ACCESS_H
#define ACCESS_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "api/error.h"
#include "base/status.h"

struct http_head;
struct key;
struct key_claim;
struct keys;
struct settings;

/* Who may use a route. */
enum access_class {
    ACCESS_UNDECLARED, /* of a row that does not say it: the server does not start */
    ACCESS_OPEN,
    ACCESS_KEY,
    ACCESS_ADMIN,
};

/* What a request is compared with. Borrowed. */
struct access_rules {
    const struct settings *settings; /* host, allowed_host, cors_origin, api_key_file */
    const struct keys *keys;
    bool is_any_address; /* it listens on all addresses, or on sockets that it was given */
    bool is_local_only;  /* it listens on loopback or a unix socket alone */
};

/* What was found out about a request. */
struct access_grant {
    const struct key *key;  /* NULL: none was sent, and the route needs none */
    bool is_allowed_origin; /* by --cors-origin: the response says so */
};

/* ST_BAD: `e` says why the request is refused; `out` is filled as far as it was checked. */
enum status access_check(const struct access_rules *rules, const struct http_head *head,
                         enum access_class class, struct access_grant *out, struct api_error *e);
/* A body may take minutes to arrive, and the key file may have changed. ST_BAD: `key` was removed
 * from it, or is no administrator's any more. */
enum status access_recheck(const struct keys *keys, const struct key *key, enum access_class class,
                           struct api_error *e);
/* ST_OK: the request is within its key's limits and may be started; keys_end must follow. ST_BAD:
 * `e` names the limit and when to try again. */
enum status access_begin(struct keys *keys, const struct key *key, int64_t now_us,
                         struct api_error *e);

/* ST_OK: the tokens of `claim` are reserved (access/keys.h), and keys_end gets `claim->reserved`.
 * ST_BAD: `e` names the limit, and when to try again or that it never helps. */
enum status access_reserve(struct keys *keys, const struct key *key, struct key_claim *claim,
                           int64_t now_us, struct api_error *e);
/* The priority of a request: `wanted`, but at most that of its key (0 where the key file does not
 * say). Larger is more important. Without keys, any. */
int32_t access_priority(const struct keys *keys, const struct key *key, int32_t wanted);
/* A request's targets, 0 if it has none, are raised to the tightest that its key may have. */
void access_bound_targets(const struct key *key, int64_t *ttft_us, int64_t *tpot_us);

/* An address that only this machine can reach: loopback in any spelling, or "localhost". */
bool access_host_is_loopback(const char *host);
/* All addresses of this machine: "0.0.0.0", "::" or "". */
bool access_host_is_any(const char *host);

#endif
