/* access/keys.h - API keys: which exist, whose they are, and how much each may use.
 *
 * A file of lines: KEY [name=NAME] [tenant=NAME] [rpm=N] [tpm=N] [concurrent=N] [priority=N]
 * [admin]; '#' begins a comment. Keys are stored as keyed hashes and compared in constant time.
 * The file is read again when it changes or on SIGHUP; an invalid file changes nothing.
 *
 * Limits count the last minute: requests (rpm), tokens of prompts and answers (tpm); and the
 * requests under way at one time (concurrent). A line @TENANT [rpm=N] [tpm=N] [concurrent=N]
 * limits all keys of a tenant together. Usage is kept over a reload. A request whose prompt alone
 * is above tpm may run when nothing else was used.
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
    uint32_t tenant;               /* equal names of tenants have equal numbers */
    uint32_t rpm, tpm, concurrent; /* 0: no limit */
    int32_t priority;
    bool is_admin;
};

/* `path` NULL: no key is required. */
enum status keys_create(const char *path, struct keys **out, struct err *err);
void keys_destroy(struct keys *k); /* NULL is fine */
/* ST_OK also if the file has not changed; `force` reads it in any case. */
enum status keys_reload(struct keys *k, bool force, struct err *err);
/* How many keys are valid, and how often a changed file was accepted. */
struct keys_facts {
    uint32_t keys, changes;
};
struct keys_facts keys_facts(const struct keys *k);

/* NULL: there is no such key. */
const struct key *keys_find(const struct keys *k, struct str secret);
const struct key *keys_anyone(const struct keys *k); /* NULL if a key is required */
/* Is it still in the file? For requests and connections that were accepted earlier. */
bool keys_is_live(const struct keys *k, const struct key *key);

/* Begin and end a request of a key. false: over a limit; *wait_ms is when to try again, *limit the
 * limit ("requests per minute", ...). keys_end charges the tokens that the request took; until then
 * it is charged the average of the key's earlier requests. */
bool keys_begin(struct keys *k, const struct key *key, uint32_t prompt_tokens, int64_t now_us,
                int64_t *wait_ms, const char **limit);
void keys_end(struct keys *k, const struct key *key, uint32_t completion_tokens, int64_t now_us);

/* Places in a model's queue that a key's requests hold. keys_share: how many more of `places` its
 * tenant may take (base/share.h), so that one tenant cannot fill the queue; all of them if there is
 * one key. */
void keys_hold(struct keys *k, const struct key *key, uint32_t places);
void keys_drop(struct keys *k, const struct key *key, uint32_t places);
uint32_t keys_share(const struct keys *k, const struct key *key, uint32_t places);

/* For the x-ratelimit-* headers; UINT32_MAX where there is no limit. */
struct key_room {
    uint32_t requests_left, tokens_left;
    int64_t requests_reset_ms, tokens_reset_ms;
};
struct key_room keys_room(const struct keys *k, const struct key *key, int64_t now_us);

#endif
