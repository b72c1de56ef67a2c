/* access/keys.h - API keys: which exist, whose they are, and how much each may use.
 *
 * A file of lines: KEY [name=NAME] [tenant=NAME] [rpm=N] [tpm=N] [concurrent=N] [priority=N]
 * [ttft=MS] [tpot=MS] [admin]; '#' begins a comment. Keys are stored as keyed hashes and compared
 * in constant time. Stored work belongs to the name of its key, or, without name=, to a hash of the
 * key: so a key that is replaced by another of the same name still sees it. The file is read again
 * when it changes or on SIGHUP; an invalid file changes nothing.
 *
 * Limits count the last minute: requests (rpm), tokens of prompts and answers (tpm); and the
 * requests under way at one time (concurrent). A line @TENANT [rpm=N] [tpm=N] [concurrent=N]
 * limits all keys of a tenant together. Usage is kept over a reload.
 *
 *     keys_begin    rpm and concurrent; is anything left of tpm?
 *     keys_reserve  when the prompt is tokenised: prompt and largest answer, at most tpm
 *     keys_end      what was used replaces what was reserved; also after a failure
 *
 * So the requests under way, however many, never use more than tpm together: an answer ends where
 * its reservation does.
 *
 * Lifetime: create, use, destroy. Thread: the I/O thread.
 */
#ifndef ACCESS_KEYS_H
#define ACCESS_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct keys; /* opaque */

/* Read-only; valid until the keys are destroyed. Without a key file every request is of the key
 * `anyone`. */
struct key {
    char name[64];                 /* for logs; "anyone", "key-3" */
    char owner[72];                /* whose stored work it sees; the same after a restart */
    uint32_t tenant;               /* equal names of tenants have equal numbers */
    uint32_t rpm, tpm, concurrent; /* 0: no limit */
    int32_t priority;
    uint32_t ttft_ms, tpot_ms; /* the tightest targets of its requests; 0: any */
    bool is_admin;
};

/* `path` NULL: no key is required. */
enum status keys_create(const char *path, struct keys **out, struct err *err);
void keys_destroy(struct keys *k); /* NULL is fine */
/* ST_OK also if the file has not changed; `force` reads it in any case. After a failure the keys
 * stay as they are. A file that is invalid or missing is reported once, with `force` each time. */
enum status keys_reload(struct keys *k, bool force, struct err *err);
/* How many keys are valid, and how often a changed file was accepted. */
struct keys_facts {
    uint32_t keys, changes;
};
struct keys_facts keys_facts(const struct keys *k);

/* NULL: there is no such key. */
const struct key *keys_find(const struct keys *k, struct str secret);
const struct key *keys_anyone(const struct keys *k); /* NULL if a key is required */
/* A key of that owner, for work that was stored before a restart; NULL: there is none any more. */
const struct key *keys_find_owner(const struct keys *k, struct str owner);
/* Tenants since the start, numbered from 1. The name of one without tenant= is that of its key. */
uint32_t keys_tenant_count(const struct keys *k);
struct str keys_tenant_name(const struct keys *k, uint32_t tenant);
/* Is it still in the file? For requests and connections that were accepted earlier. */
bool keys_is_live(const struct keys *k, const struct key *key);

/* Which limit of a key or its tenant a request would exceed. */
struct key_refusal {
    const char *limit; /* "requests per minute", "tokens per minute", "concurrent requests" */
    uint64_t max;
    uint64_t taken;  /* used in the last minute, and reserved by requests under way */
    uint64_t wanted; /* tokens of this request; 0: it is not known, or no tokens are limited */
    int64_t wait_ms; /* when to try again; 0: it is always refused */
};

/* Begin a request. false: over a limit. true: keys_end must follow. */
bool keys_begin(struct keys *k, const struct key *key, int64_t now_us, struct key_refusal *why);

/* The tokens that a request needs. */
struct key_claim {
    uint64_t prompt_tokens;
    uint64_t
        answer_tokens; /* the most that it asks for; keys_reserve lowers it to what tpm allows */
    uint64_t answer_least; /* with fewer the answer is of no use; one for each choice */
    uint64_t reserved;     /* out: for keys_end */
};
/* At most once between begin and end. false: nothing is reserved. */
bool keys_reserve(struct keys *k, const struct key *key, struct key_claim *claim, int64_t now_us,
                  struct key_refusal *why);
/* `reserved`: what keys_reserve has given, or 0; `used`: tokens of prompt and answer. */
void keys_end(struct keys *k, const struct key *key, uint64_t reserved, uint64_t used,
              int64_t now_us);

/* Places in a model's queue that a key's requests hold. Queues have numbers from 0; those from
 * KEYS_QUEUES_MAX - 1 on are counted as one. keys_share: how many more of `places` its tenant may
 * take (base/share.h), so that no tenant can fill the queue; all of them if there is one key. */
enum { KEYS_QUEUES_MAX = 16 };
void keys_hold(struct keys *k, const struct key *key, uint32_t queue, uint32_t places);
void keys_drop(struct keys *k, const struct key *key, uint32_t queue, uint32_t places);
uint32_t keys_share(const struct keys *k, const struct key *key, uint32_t queue, uint32_t places);
/* How many it may hold when no other tenant holds any. */
uint32_t keys_share_max(const struct keys *k, const struct key *key, uint32_t places);

/* Has every request of every key ended, and given back its place and its tokens? */
bool keys_are_idle(const struct keys *k);

/* Are there other keys, so that the key's tenant has a share and not everything? */
bool keys_has_others(const struct keys *k, const struct key *key);

/* For the x-ratelimit-* headers; UINT32_MAX where there is no limit. */
struct key_room {
    uint32_t requests_left, tokens_left;
    int64_t requests_reset_ms, tokens_reset_ms;
};
struct key_room keys_room(const struct keys *k, const struct key *key, int64_t now_us);

#endif
