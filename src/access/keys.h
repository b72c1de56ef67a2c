/* access/keys.h - who may ask, and how much.
 *
 * A file of lines: KEY [name=NAME] [tenant=NAME] [rpm=N] [tpm=N] [concurrent=N] [priority=N]
 * [admin]; '#' begins a comment. Keys are kept as keyed hashes and compared in constant time. The
 * file is read again when it changes or on SIGHUP; a damaged one leaves the old keys in force.
 *
 * Limits are over the last minute: requests (rpm), tokens of prompts and answers (tpm); and over
 * what is under way at one time (concurrent). A line @TENANT [rpm=N] [tpm=N] [concurrent=N] limits
 * all keys of a tenant together. What was used survives a reload. A request whose prompt alone is
 * above tpm may go when nothing else was used.
 *
 * Lifetime: create, use, destroy. Thread: the io thread.
 */
#ifndef ACCESS_KEYS_H
#define ACCESS_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct keys; /* opaque */

/* Read-only; lives until the keys are destroyed. Without a key file everybody is `anyone`. */
struct key {
    char name[64];                 /* for logs; "anyone", "key-3" */
    uint32_t tenant;               /* equal names of tenants have equal numbers */
    uint32_t rpm, tpm, concurrent; /* 0: no limit */
    int32_t priority;
    bool is_admin;
};

/* `path` NULL: everybody is let in. */
enum status keys_create(const char *path, struct keys **out, struct err *err);
void keys_destroy(struct keys *k); /* NULL is fine */
/* ST_OK also if nothing has changed; `force` reads it in any case. */
enum status keys_reload(struct keys *k, bool force, struct err *err);
/* How many keys count, and how often the file has been taken over. */
struct keys_facts {
    uint32_t keys, changes;
};
struct keys_facts keys_facts(const struct keys *k);

/* NULL: there is no such key. */
const struct key *keys_find(const struct keys *k, struct str secret);
const struct key *keys_anyone(const struct keys *k); /* NULL if a key is asked of everybody */
/* Would it still be found? For those who have been let in for long. */
bool keys_is_live(const struct keys *k, const struct key *key);

/* Begin and end a request of a key. false: over a limit; *wait_ms says when to try again, *limit
 * which one ("requests", "tokens", "concurrent"). end() charges the tokens that it took; until
 * then it counts as what the key's requests took before. */
bool keys_begin(struct keys *k, const struct key *key, uint32_t prompt_tokens, int64_t now_us,
                int64_t *wait_ms, const char **limit);
void keys_end(struct keys *k, const struct key *key, uint32_t completion_tokens, int64_t now_us);

/* Places in queues that a key's requests hold until they drop them. share() says how many more of
 * `places` its tenant may take, so that a flood of one leaves room for the others; all of them
 * where there is but one key. */
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
