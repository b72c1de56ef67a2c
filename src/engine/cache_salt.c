/* engine/cache_salt.c - see engine/cache_salt.h for the contract.
 *
 * The salts of tenants, which most requests use, are kept in a small table: an HMAC takes some
 * 6,000 instructions, a look-up 50.
 */
#include "engine/cache_salt.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/file.h"
#include "base/hmac.h"
#include "base/mem.h"

enum { KNOWN = 64 }; /* a power of two */

static const char FILE_LABEL[] = "jitney cache secret";
/* The first byte of what is hashed under the secret: no input for one purpose is one of another. */
enum { FOR_TENANT = 1, FOR_TEXT = 2, FOR_BLOCKS = 3 };

struct known_salt {
    uint32_t tenant;
    bool is_set;
    struct kv_salt salt;
};

struct cache_salts {
    pthread_mutex_t lock;
    struct hmac *hmac;
    struct known_salt known[KNOWN]; /* of requests without a text; by tenant % KNOWN */
};

/* ---- the secret ---- */

static enum status check_file(const char *path, const struct file_map *map, struct err *err) {
    enum { OTHERS = 077 };
    if (map->id.mode & OTHERS)
        return err_set(err, ST_BAD,
                       "%s: other users may read it (mode %03o), expected 600 or 400; run chmod "
                       "600 on it",
                       path, map->id.mode & 0777);
    if (map->len < CACHE_SECRET_BYTES)
        return err_set(err, ST_BAD, "%s: the secret has %zu bytes, expected %d or more random ones",
                       path, map->len, CACHE_SECRET_BYTES);
    return ST_OK;
}

static enum status read_secret(const char *path, struct cache_secret *out, struct err *err) {
    struct file_map map;
    TRY(file_map_open(path, &map, err));
    enum status st = check_file(path, &map, err);
    struct hmac *h = st == ST_OK ? hmac_create(FILE_LABEL, sizeof(FILE_LABEL) - 1) : NULL;
    if (h) {
        hmac_begin(h);
        hmac_add(h, map.ptr, map.len);
        hmac_end(h, out->bytes);
    } else if (st == ST_OK) {
        st = err_set(err, ST_NOMEM, "%s: out of memory while hashing", path);
    }
    hmac_destroy(h);
    file_map_close(&map);
    return st;
}

enum status cache_secret_make(const char *path, struct cache_secret *out, struct err *err) {
    _Static_assert((int)CACHE_SECRET_BYTES == (int)HMAC_BYTES, "a secret is one HMAC");
    if (path) return read_secret(path, out, err);
    if (getrandom(out->bytes, sizeof(out->bytes), 0) != (ssize_t)sizeof(out->bytes))
        return err_set(err, ST_IO, "the system has no random bytes for the prefix cache");
    return ST_OK;
}

/* ---- salts ---- */

struct cache_salts *cache_salts_create(const struct cache_secret *secret) {
    struct cache_salts *s = mem_zalloc(sizeof(*s));
    if (!s) return NULL;
    pthread_mutex_init(&s->lock, NULL);
    s->hmac = hmac_create(secret->bytes, sizeof(secret->bytes));
    if (s->hmac) return s;
    cache_salts_destroy(s);
    return NULL;
}

void cache_salts_destroy(struct cache_salts *s) {
    if (!s) return;
    hmac_destroy(s->hmac);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

/* The first 128 bits of HMAC(secret; purpose, number, text). Purpose and number have fixed lengths,
 * so different arguments are different messages. */
static struct kv_salt bits_of(struct cache_salts *s, uint8_t purpose, uint32_t number,
                              struct str text) {
    uint8_t digest[HMAC_BYTES];
    struct kv_salt bits;
    hmac_begin(s->hmac);
    hmac_add(s->hmac, &purpose, sizeof(purpose));
    hmac_add(s->hmac, &number, sizeof(number));
    hmac_add(s->hmac, text.ptr, text.len);
    hmac_end(s->hmac, digest);
    memcpy(&bits, digest, sizeof(bits));
    return bits;
}

static struct kv_salt salt_of_tenant(struct cache_salts *s, uint32_t tenant) {
    struct known_salt *known = &s->known[tenant % KNOWN];
    if (!known->is_set || known->tenant != tenant)
        *known = (struct known_salt){.tenant = tenant,
                                     .is_set = true,
                                     .salt = bits_of(s, FOR_TENANT, tenant, (struct str){0})};
    return known->salt;
}

struct kv_salt cache_salts_find(struct cache_salts *s, uint32_t tenant, struct str text) {
    pthread_mutex_lock(&s->lock);
    struct kv_salt salt =
        text.len == 0 ? salt_of_tenant(s, tenant) : bits_of(s, FOR_TEXT, tenant, text);
    pthread_mutex_unlock(&s->lock);
    return salt;
}

struct siphash_key cache_salts_block_secret(struct cache_salts *s) {
    pthread_mutex_lock(&s->lock);
    struct kv_salt bits = bits_of(s, FOR_BLOCKS, 0, (struct str){0});
    pthread_mutex_unlock(&s->lock);
    return (struct siphash_key){.low = bits.low, .high = bits.high};
}
