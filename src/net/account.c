/* net/account.c - see net/account_int.h for the contract. */
#include "net/account_int.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/str.h"

enum { V4_PREFIX_BITS = 96, ADDRESS_BITS = 128, ADDRESS_TEXT_BYTES = 64 };

/* ---- the tables ---- */

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
    return x ^ (x >> 33);
}

static struct list *list_of(struct accounts *t, struct account_id id) {
    return &t->lists[mix(mix(id.high ^ t->seed) ^ id.low) % ACCOUNT_LISTS];
}

void accounts_init(struct accounts *t, uint64_t seed) { *t = (struct accounts){.seed = seed}; }

/* Without connections it holds nothing: what it held was given back. */
static void destroy(struct account *a) {
    CHECK(!a->conns.first);
    CHECK(a->heads_bytes == 0);
    CHECK(a->bodies_bytes == 0);
    CHECK(a->replies_bytes == 0);
    mem_free(a);
}

void accounts_deinit(struct accounts *t) {
    for (uint32_t i = 0; i < ACCOUNT_LISTS; i++) {
        struct list_link *link;
        while ((link = list_pop_first(&t->lists[i])))
            destroy(LIST_ITEM(link, struct account, link));
    }
}

struct account *accounts_get(struct accounts *t, struct account_id id) {
    struct list *list = list_of(t, id);
    for (struct list_link *l = list->first; l; l = l->next) {
        struct account *a = LIST_ITEM(l, struct account, link);
        if (a->id.high == id.high && a->id.low == id.low) return a;
    }
    struct account *a = mem_zalloc(sizeof(*a));
    if (!a) return NULL;
    a->id = id;
    list_push_first(list, &a->link);
    t->count++;
    return a;
}

void accounts_remove(struct accounts *t, struct account *a) {
    list_remove(list_of(t, a->id), &a->link);
    t->count--;
    destroy(a);
}

/* ---- addresses ---- */

static void put_v4(const struct in_addr *from, uint8_t out[16]) {
    memset(out, 0, 10);
    memset(out + 10, 0xff, 2);
    memcpy(out + 12, from, 4);
}

static bool is_v4(const uint8_t address[16]) {
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(address, prefix, sizeof(prefix)) == 0;
}

bool network_address(const struct sockaddr *from, uint8_t out[16]) {
    if (from->sa_family == AF_INET) {
        put_v4(&((const struct sockaddr_in *)(const void *)from)->sin_addr, out);
        return true;
    }
    if (from->sa_family != AF_INET6) return false;
    memcpy(out, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, 16);
    return true;
}

bool network_parse(const char *text, struct network *out) {
    char address[ADDRESS_TEXT_BYTES];
    const char *slash = strchr(text, '/');
    const size_t len = slash ? (size_t)(slash - text) : strlen(text);
    struct in_addr v4;
    uint64_t bits = 0;
    if (len >= sizeof(address)) return false;
    memcpy(address, text, len);
    address[len] = 0;
    const bool has_v4 = inet_pton(AF_INET, address, &v4) == 1;
    if (has_v4) put_v4(&v4, out->address);
    if (!has_v4 && inet_pton(AF_INET6, address, out->address) != 1) return false;
    const uint32_t first = has_v4 ? V4_PREFIX_BITS : 0;
    if (slash && !str_to_u64(str_of(slash + 1), &bits)) return false;
    if (bits > ADDRESS_BITS - first) return false;
    out->bits = slash ? first + (uint32_t)bits : ADDRESS_BITS;
    return true;
}

bool network_has(const struct network *n, const uint8_t address[16]) {
    const uint32_t bytes = n->bits / 8, rest = n->bits % 8;
    if (memcmp(n->address, address, bytes) != 0) return false;
    return rest == 0 || (n->address[bytes] ^ address[bytes]) >> (8 - rest) == 0;
}

struct account_id network_id(const uint8_t address[16], bool is_trusted) {
    struct account_id id = {0};
    memcpy(&id.high, address, 8);
    if (is_v4(address) || is_trusted) memcpy(&id.low, address + 8, 8);
    if (is_trusted) id.high = ~id.high;
    return id;
}
