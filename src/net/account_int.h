/* net/account_int.h - who holds how much: bytes of requests and responses, by peer and by owner.
 *
 * A *peer* is where connections come from: an IPv4 address, an IPv6 network of 64 bits (the
 * smallest that is given to one customer), or all unix sockets together. An *owner* is a number
 * that the handler gives to a request (http_set_owner): the tenant of its key. Every connection has
 * a peer; a request has its peer alone until it has an owner.
 *
 *     heads, bodies:   server, and the owner if the request has one, else the peer
 *     queued replies:  server, connection, peer, and the owner if there is one
 *
 * A share is a part of a server's budget that one peer or owner may hold (http_limits.share). Unix
 * sockets and trusted proxies carry many clients: no share or count limits such a peer.
 *
 * Lifetime: a peer's account exists while it has a connection, an owner's as long as the server.
 * Thread: the I/O thread. Memory: 144 bytes for each account.
 */
#ifndef NET_ACCOUNT_INT_H
#define NET_ACCOUNT_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/status.h"

struct http_server;
struct sockaddr;

enum { ACCOUNT_LISTS = 256 };

struct account_id {
    uint64_t high, low;
};

struct account {
    struct account_id id;
    struct list_link link; /* in its table */
    struct list conns;     /* of a peer */
    struct list deferred;  /* those whose deferred call is due */
    struct list_link turn; /* of a peer with deferred calls: in http_server.deferred */
    bool is_exempt;        /* a peer without limits */
    uint64_t heads_bytes;
    uint64_t bodies_bytes;
    uint64_t replies_bytes;
};

struct accounts {
    uint64_t seed; /* so that clients cannot choose addresses that collide */
    struct list lists[ACCOUNT_LISTS];
    uint32_t count;
};

void accounts_init(struct accounts *t, uint64_t seed);
void accounts_deinit(struct accounts *t);
/* The account of this id, created if there is none; NULL: out of memory. */
struct account *accounts_get(struct accounts *t, struct account_id id);
void accounts_remove(struct accounts *t, struct account *a);

/* Addresses whose peers are exempt. */
struct network {
    uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
    uint32_t bits;
};
/* "10.0.0.0/8", "2001:db8::1"; false: it is neither an address nor a network. */
bool network_parse(const char *text, struct network *out);
bool network_has(const struct network *n, const uint8_t address[16]);
/* IPv4 as ::ffff:a.b.c.d; false: another family. */
bool network_address(const struct sockaddr *from, uint8_t out[16]);
/* The id of an address: IPv4 all of it, IPv6 the first 64 bits. A trusted one has an id of its
 * own. */
struct account_id network_id(const uint8_t address[16], bool is_trusted);

#endif
