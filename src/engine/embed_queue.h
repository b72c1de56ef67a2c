/* engine/embed_queue.h - the texts that wait for an embedder, and whose turn it is.
 *
 * Every tenant has a list of its texts, in the order in which they came. Tenants take turns by
 * tokens: the next text is the first one of the tenant for which the fewest tokens were computed. A
 * tenant that arrives starts with the count of the tenant whose turn it is, so it neither waits
 * behind those that have been there for long nor is given what it did not ask for earlier.
 *
 * The number of waiting texts is a budget (base/share.h): no tenant can fill the queue alone. A
 * tenant of which nothing waits may always submit `least` texts.
 *
 * Lifetime: init, use, deinit; the texts are the caller's memory. Thread: one at a time (the
 * embedder's lock). Memory: one small struct for each tenant that has texts here.
 */
#ifndef ENGINE_EMBED_QUEUE_H
#define ENGINE_EMBED_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/share.h"
#include "base/status.h"

/* One text. The caller's memory; the embedder uses it until embedder_next returns it. */
struct embed_job {
    const int32_t *ids;
    uint32_t count;
    float *out;         /* embedder_dims floats */
    void *user;         /* texts with the same one are cancelled together */
    uint32_t tenant;    /* texts of different tenants take turns */
    int64_t expires_us; /* on the real clock; 0: never */
    enum status status; /* of the job, when it is done; ST_CANCELLED: cancelled or expired */
    struct err err;

    /* The embedder's. */
    struct list_link link;
    uint32_t tokens;   /* that are computed: an encoder cuts long texts */
    uint32_t computed; /* of a text that takes several passes */
    bool is_under_way; /* a pass computes it */
    bool is_cancelled; /* while a pass computes it */
    bool has_expired;  /* it was not done at expires_us */
};

struct embed_queue {
    struct list tenants; /* those that have texts here */
    struct budget texts;
    uint64_t tokens; /* of all waiting texts, not computed yet */
    uint64_t turn;   /* tokens computed for the tenant whose turn it was last, by its own count */
};

/* `has_tenants`: texts may come from several, each of which gets a share. */
void embed_queue_init(struct embed_queue *q, uint32_t texts_max, uint32_t least, bool has_tenants);
void embed_queue_deinit(struct embed_queue *q); /* it must be empty */

/* All of one tenant's texts or none; `tokens` of each is set. ST_FULL: more than its share. */
enum status embed_queue_add(struct embed_queue *q, struct embed_job *jobs, uint32_t count);

/* The next text; NULL: none waits. With `but`, a tenant whose first text has more than
 * `long_tokens` tokens is passed over, unless that text is `but`. It stays in the queue. */
struct embed_job *embed_queue_next(const struct embed_queue *q, uint32_t long_tokens,
                                   const struct embed_job *but);
/* `tokens` more of this text, the first one of its tenant, are being computed: the tenant's turn
 * ends. */
void embed_queue_charge(struct embed_queue *q, struct embed_job *job, uint32_t tokens);
void embed_queue_remove(struct embed_queue *q, struct embed_job *job);

/* Move texts to `out`, a list of links: those of `user`, or those that have expired. A text that a
 * pass computes stays and is marked. */
void embed_queue_cancel(struct embed_queue *q, const void *user, struct list *out);
void embed_queue_expire(struct embed_queue *q, int64_t now_us, struct list *out);

/* How many more texts the tenant may submit now. */
uint64_t embed_queue_room(const struct embed_queue *q, uint32_t tenant);
/* Tokens that are computed before the tenant's last waiting text is: its own, and those of the
 * others while they take turns with it. */
uint64_t embed_queue_tokens_before(const struct embed_queue *q, uint32_t tenant);

void embed_queue_verify(const struct embed_queue *q); /* CHECK all sums; linear */

#endif
