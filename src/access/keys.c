/* access/keys.c - see access/keys.h. Counting usage is in access/quota.h.
 *
 * An entry never moves and is never freed before the end, because requests under way point to it;
 * an entry that the file no longer has is not found any more. A file is first parsed into drafts
 * of all its lines, which are then applied together, so that an invalid file changes nothing.
 */
#include "access/keys.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/share.h"
#include "access/quota.h"

enum {
    FILE_BYTES_MAX = 4 << 20,
    KEYS_MAX = 4096,     /* in one file */
    ENTRIES_MAX = 65536, /* since the start */
    SECRET_BYTES_MAX = 512,
    HASH_BYTES = 32,
    NAME_BYTES = sizeof(((struct key *)0)->name),
    PLACE_BYTES = 256,
    TTFT_MS_DEFAULT = 100, /* nobody notices a tighter target, and it would displace others */
    TPOT_MS_DEFAULT = 10,
};

/* Where the file has it, to find duplicates. */
struct line_seen {
    uint32_t read, line; /* the number of the last read that had it, and the line there */
};

struct tenant {
    char name[NAME_BYTES];
    bool has_line; /* "@NAME" in the file: it has limits */
    struct quota_limits limits;
    struct quota quota;
    struct share places[KEYS_QUEUES_MAX]; /* in each queue, of all its keys */
    struct line_seen seen;
};

struct entry {
    struct key key; /* first: a pointer to it is a pointer to the entry */
    uint8_t hash[HASH_BYTES];
    bool is_live;
    struct quota quota;
    uint32_t held[KEYS_QUEUES_MAX]; /* places in each queue */
    struct line_seen seen;
};

/* One line of a file, before it is applied. */
struct draft {
    struct key key;
    char tenant[NAME_BYTES]; /* "": the key's own */
    struct quota_limits limits;
    bool is_tenant; /* a line "@NAME" */
    uint8_t hash[HASH_BYTES];
    uint32_t number; /* of the line */
};

struct drafts {
    struct draft *rows;
    uint32_t count, cap, key_count;
};

/* If any of these differs, the file has changed. */
struct file_mark {
    int64_t mtime_ns, bytes;
    uint64_t inode, device;
};

struct keys {
    char *path; /* NULL: no key is required */
    struct file_mark mark;
    bool is_missing;            /* when it was last looked for */
    uint8_t secret[HASH_BYTES]; /* random: hashes are of no use outside this process */
    struct entry **entries;
    uint32_t entry_count, entry_cap;
    struct tenant **tenants; /* tenants[i] is tenant number i + 1 */
    uint32_t tenant_count, tenant_cap;
    struct map *entry_map, *tenant_map;    /* by hash and by name */
    uint32_t reads;                        /* how often the file was read */
    uint32_t changes;                      /* reads that were applied */
    uint32_t key_count;                    /* valid keys */
    struct budget places[KEYS_QUEUES_MAX]; /* in each queue, of all tenants; without a maximum */
    struct entry anyone;
};

/* --- parsing ----------------------------------------------------------------------------- */

static bool hash_of(const struct keys *k, struct str secret, uint8_t out[HASH_BYTES]) {
    unsigned len = 0;
    return HMAC(EVP_sha256(), k->secret, HASH_BYTES, (const unsigned char *)secret.ptr, secret.len,
                out, &len) != NULL &&
           len == HASH_BYTES;
}

static bool take_name(struct str value, char out[NAME_BYTES]) {
    if (value.len == 0 || value.len >= NAME_BYTES) return false;
    for (size_t i = 0; i < value.len; i++)
        if ((unsigned char)value.ptr[i] <= ' ' || (unsigned char)value.ptr[i] >= 0x7F) return false;
    memcpy(out, value.ptr, value.len);
    out[value.len] = 0;
    return true;
}

/* Of a key without a name: part of its SHA-256, which does not change with a restart. */
static bool put_owner(struct str secret, struct key *key) {
    uint8_t hash[HASH_BYTES];
    unsigned len = 0;
    if (!EVP_Digest(secret.ptr, secret.len, hash, &len, EVP_sha256(), NULL)) return false;
    int used = snprintf(key->owner, sizeof(key->owner), "sha256:");
    for (uint32_t i = 0; i < HASH_BYTES / 2; i++)
        used += snprintf(key->owner + used, sizeof(key->owner) - (size_t)used, "%02x", hash[i]);
    return true;
}

static bool take_key_name(struct str value, struct key *key) {
    if (!take_name(value, key->name)) return false;
    snprintf(key->owner, sizeof(key->owner), "name:%s", key->name);
    return true;
}

static bool take_count(struct str value, uint32_t *out) {
    uint64_t number;
    if (!str_to_u64(value, &number) || number > UINT32_MAX) return false;
    *out = (uint32_t)number;
    return true;
}

static bool take_priority(struct str value, int32_t *out) {
    int64_t number;
    if (!str_to_i64(value, &number) || number < -1000 || number > 1000) return false;
    *out = (int32_t)number;
    return true;
}

/* "rpm=60" or "admin". */
static enum status read_word(struct str word, struct draft *d, struct err *err) {
    const char *equals = memchr(word.ptr, '=', word.len);
    struct str name = equals ? str_take(word, (size_t)(equals - word.ptr)) : word;
    struct str value = equals ? str_skip(word, name.len + 1) : STR("");
    bool ok = false, for_key = !d->is_tenant;
    if (str_is(name, "rpm"))
        ok = take_count(value, &d->limits.rpm);
    else if (str_is(name, "tpm"))
        ok = take_count(value, &d->limits.tpm);
    else if (str_is(name, "concurrent"))
        ok = take_count(value, &d->limits.concurrent);
    else if (for_key && str_is(name, "name"))
        ok = take_key_name(value, &d->key);
    else if (for_key && str_is(name, "tenant"))
        ok = take_name(value, d->tenant);
    else if (for_key && str_is(name, "priority"))
        ok = take_priority(value, &d->key.priority);
    else if (for_key && str_is(name, "ttft"))
        ok = take_count(value, &d->key.ttft_ms);
    else if (for_key && str_is(name, "tpot"))
        ok = take_count(value, &d->key.tpot_ms);
    else if (for_key && str_is(name, "admin"))
        ok = d->key.is_admin = !equals;
    else /* it may be part of a key, so it is not shown */
        return err_set(err, ST_BAD,
                       "unknown option; known: name= tenant= rpm= tpm= concurrent= priority= "
                       "ttft= tpot= admin");
    return ok ? ST_OK : err_set(err, ST_BAD, "invalid value of %.*s=", STR_ARG(name));
}

/* Removes the next word from *rest; empty at the end of the line or at a comment. */
static struct str next_word(struct str *rest) {
    *rest = str_trim(*rest);
    size_t len = 0;
    while (len < rest->len && rest->ptr[len] != ' ' && rest->ptr[len] != '\t') len++;
    struct str word = str_take(*rest, len);
    *rest = str_skip(*rest, len);
    if (word.len == 0 || word.ptr[0] != '#') return word;
    return STR("");
}

static enum status read_secret(const struct keys *k, struct str word, struct draft *d,
                               struct err *err) {
    if (word.len > SECRET_BYTES_MAX)
        return err_set(err, ST_BAD, "a key has at most %d characters", SECRET_BYTES_MAX);
    for (size_t i = 0; i < word.len; i++)
        if ((unsigned char)word.ptr[i] < ' ' || (unsigned char)word.ptr[i] >= 0x7F)
            return err_set(err, ST_BAD, "a key must be printable ASCII characters");
    bool ok = hash_of(k, word, d->hash) && put_owner(word, &d->key);
    return ok ? ST_OK : err_set(err, ST_NOMEM, "out of memory");
}

static enum status read_line(const struct keys *k, struct str line, struct draft *d,
                             struct err *err) {
    struct str word = next_word(&line);
    d->is_tenant = word.ptr[0] == '@';
    if (!d->is_tenant)
        TRY(read_secret(k, word, d, err));
    else if (!take_name(str_skip(word, 1), d->tenant))
        return err_set(err, ST_BAD, "a tenant's name has 1 to %d printable characters",
                       (int)NAME_BYTES - 1);
    for (word = next_word(&line); word.len > 0; word = next_word(&line))
        TRY(read_word(word, d, err));
    return ST_OK;
}

static enum status draft_add(struct drafts *all, struct draft **out, struct err *err) {
    if (all->count == 2 * KEYS_MAX)
        return err_set(err, ST_BAD, "too many keys; at most %d are accepted", KEYS_MAX);
    if (all->count == all->cap) {
        uint32_t cap = all->cap ? 2 * all->cap : 16;
        struct draft *rows = mem_realloc(all->rows, cap * sizeof(*rows));
        if (!rows) return err_set(err, ST_NOMEM, "out of memory");
        all->rows = rows;
        all->cap = cap;
    }
    *out = &all->rows[all->count++];
    **out = (struct draft){0};
    return ST_OK;
}

static enum status draft_line(const struct keys *k, struct str line, uint32_t number,
                              struct drafts *all, struct err *err) {
    line = str_trim(line);
    if (line.len == 0 || line.ptr[0] == '#') return ST_OK;
    struct draft *d = NULL;
    TRY(draft_add(all, &d, err));
    d->number = number;
    d->key.ttft_ms = TTFT_MS_DEFAULT;
    d->key.tpot_ms = TPOT_MS_DEFAULT;
    snprintf(d->key.name, sizeof(d->key.name), "key-%u", number);
    TRY(read_line(k, line, d, err));
    all->key_count += !d->is_tenant;
    if (all->key_count > KEYS_MAX)
        return err_set(err, ST_BAD, "too many keys; at most %d are accepted", KEYS_MAX);
    return ST_OK;
}

/* Messages give the number of the line and never its text, because it holds a secret. */
static enum status prefix_line(const struct keys *k, uint32_t number, enum status st,
                               struct err *err) {
    char place[PLACE_BYTES];
    snprintf(place, sizeof(place), "%.200s:%u", k->path, number);
    return err_prefix(err, st, place);
}

static enum status draft_text(const struct keys *k, struct str text, struct drafts *all,
                              struct err *err) {
    for (uint32_t number = 1; text.len > 0; number++) {
        const char *end = memchr(text.ptr, '\n', text.len);
        size_t len = end ? (size_t)(end - text.ptr) : text.len;
        enum status st = draft_line(k, str_take(text, len), number, all, err);
        if (st != ST_OK) return prefix_line(k, number, st, err);
        text = str_skip(text, end ? len + 1 : len);
    }
    if (all->key_count > 0) return ST_OK;
    return err_set(err, ST_BAD, "%.200s: no keys; the file needs at least one", k->path);
}

/* --- applying ------------------------------------------------------------------------- */

static enum status grow(void **rows, uint32_t count, uint32_t *cap, struct err *err) {
    if (count < *cap) return ST_OK;
    uint32_t wider = *cap ? 2 * *cap : 16;
    if (wider > ENTRIES_MAX)
        return err_set(err, ST_FULL, "too many different keys or tenants since the start");
    void *grown = mem_realloc(*rows, wider * sizeof(void *));
    if (!grown) return err_set(err, ST_NOMEM, "out of memory");
    *rows = grown;
    *cap = wider;
    return ST_OK;
}

static enum status tenant_get(struct keys *k, const char *name, uint32_t *number, struct err *err) {
    if (map_find(k->tenant_map, str_of(name), number)) return ST_OK;
    void *rows = k->tenants;
    TRY(grow(&rows, k->tenant_count, &k->tenant_cap, err));
    k->tenants = rows;
    struct tenant *t = mem_zalloc(sizeof(*t));
    if (!t) return err_set(err, ST_NOMEM, "out of memory");
    snprintf(t->name, sizeof(t->name), "%s", name);
    if (map_put(k->tenant_map, str_of(t->name), k->tenant_count + 1) != ST_OK) {
        mem_free(t);
        return err_set(err, ST_NOMEM, "out of memory");
    }
    k->tenants[k->tenant_count++] = t;
    *number = k->tenant_count;
    return ST_OK;
}

static enum status entry_get(struct keys *k, const uint8_t hash[HASH_BYTES], struct entry **out,
                             struct err *err) {
    uint32_t i;
    if (map_find(k->entry_map, (struct str){(const char *)hash, HASH_BYTES}, &i)) {
        *out = k->entries[i];
        return ST_OK;
    }
    void *rows = k->entries;
    TRY(grow(&rows, k->entry_count, &k->entry_cap, err));
    k->entries = rows;
    struct entry *e = mem_zalloc(sizeof(*e));
    if (!e) return err_set(err, ST_NOMEM, "out of memory");
    memcpy(e->hash, hash, HASH_BYTES);
    struct str key = {(const char *)e->hash, HASH_BYTES};
    if (map_put(k->entry_map, key, k->entry_count) != ST_OK) {
        mem_free(e);
        return err_set(err, ST_NOMEM, "out of memory");
    }
    k->entries[k->entry_count++] = e;
    *out = e;
    return ST_OK;
}

/* A key without tenant= is its own tenant, whose name no file can contain. */
static void complete_tenant(struct draft *d) {
    if (d->is_tenant || d->tenant[0]) return;
    int len = snprintf(d->tenant, sizeof(d->tenant), "\n");
    for (uint32_t i = 0; i < HASH_BYTES / 2; i++)
        len += snprintf(d->tenant + len, sizeof(d->tenant) - (size_t)len, "%02x", d->hash[i]);
}

/* Find or create the entry and the tenant of a line. */
static enum status reserve_line(struct keys *k, struct draft *d, struct err *err) {
    struct entry *e = NULL;
    complete_tenant(d);
    TRY(tenant_get(k, d->tenant, &d->key.tenant, err));
    if (!d->is_tenant) TRY(entry_get(k, d->hash, &e, err));
    struct line_seen *seen = e ? &e->seen : &k->tenants[d->key.tenant - 1]->seen;
    if (seen->read == k->reads)
        return err_set(err, ST_BAD, "duplicate %s; it is already defined on line %u",
                       e ? "key" : "tenant", seen->line);
    *seen = (struct line_seen){.read = k->reads, .line = d->number};
    return ST_OK;
}

/* Everything that can fail; nothing is applied yet. */
static enum status reserve_lines(struct keys *k, struct drafts *all, struct err *err) {
    k->reads++;
    for (uint32_t i = 0; i < all->count; i++) {
        enum status st = reserve_line(k, &all->rows[i], err);
        if (st == ST_BAD) return prefix_line(k, all->rows[i].number, st, err);
        TRY(st);
    }
    return ST_OK;
}

static struct tenant *tenant_of(const struct keys *k, const struct key *key) {
    CHECK(key->tenant <= k->tenant_count);
    return key->tenant ? k->tenants[key->tenant - 1] : NULL;
}

/* A key has another tenant now: its requests under way and its places are counted there. */
static void move_usage(struct keys *k, struct entry *e, struct tenant *from, struct tenant *to) {
    if (!from || from == to) return;
    CHECK(from->quota.under_way >= e->quota.under_way);
    CHECK(from->quota.reserved >= e->quota.reserved);
    from->quota.under_way -= e->quota.under_way;
    from->quota.reserved -= e->quota.reserved;
    to->quota.under_way += e->quota.under_way;
    to->quota.reserved += e->quota.reserved;
    for (uint32_t q = 0; q < KEYS_QUEUES_MAX; q++) {
        share_give(&k->places[q], &from->places[q], e->held[q]);
        share_add(&k->places[q], &to->places[q], e->held[q]);
    }
}

static void apply_draft(struct keys *k, const struct draft *d) {
    if (d->is_tenant) {
        struct tenant *t = k->tenants[d->key.tenant - 1];
        t->has_line = true;
        t->limits = d->limits;
        return;
    }
    struct entry *e = NULL;
    enum status st = entry_get(k, d->hash, &e, NULL);
    CHECK(st == ST_OK);
    struct tenant *from = tenant_of(k, &e->key); /* NULL: a new entry */
    e->key = d->key;
    e->key.rpm = d->limits.rpm;
    e->key.tpm = d->limits.tpm;
    e->key.concurrent = d->limits.concurrent;
    e->is_live = true;
    move_usage(k, e, from, tenant_of(k, &e->key));
}

static enum status apply_drafts(struct keys *k, struct drafts *all, struct err *err) {
    TRY(reserve_lines(k, all, err));
    for (uint32_t i = 0; i < k->entry_count; i++) k->entries[i]->is_live = false;
    for (uint32_t i = 0; i < k->tenant_count; i++) k->tenants[i]->has_line = false;
    for (uint32_t i = 0; i < all->count; i++) apply_draft(k, &all->rows[i]);
    k->key_count = all->key_count;
    k->changes++;
    return ST_OK;
}

/* --- create, reload, destroy ------------------------------------------------------------- */

static enum status mark_of(const char *path, struct file_mark *out, struct err *err) {
    struct stat info;
    if (stat(path, &info) != 0)
        return err_set(err, errno == ENOENT ? ST_MISSING : ST_IO, "%s: %s", path, strerror(errno));
    *out = (struct file_mark){
        .mtime_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec,
        .bytes = info.st_size,
        .inode = info.st_ino,
        .device = info.st_dev,
    };
    return ST_OK;
}

/* A file that is not there is reported once, and read when it is there again, also unchanged. */
static enum status report_missing(struct keys *k, bool force, enum status st, struct err *err) {
    bool is_known = k->is_missing;
    k->is_missing = true;
    k->mark = (struct file_mark){0};
    if (!is_known || force) return st;
    *err = (struct err){0};
    return ST_OK;
}

enum status keys_reload(struct keys *k, bool force, struct err *err) {
    if (!k->path) return ST_OK;
    struct file_mark mark = {0};
    enum status st = mark_of(k->path, &mark, err);
    if (st != ST_OK) return report_missing(k, force, st, err);
    k->is_missing = false;
    bool is_same = mark.mtime_ns == k->mark.mtime_ns && mark.bytes == k->mark.bytes &&
                   mark.inode == k->mark.inode && mark.device == k->mark.device;
    if (is_same && !force) return ST_OK;
    k->mark = mark; /* an invalid file is reported once */

    struct drafts all = {0};
    struct buf text;
    buf_init(&text, FILE_BYTES_MAX);
    st = file_read(k->path, &text, err);
    if (st == ST_OK) st = draft_text(k, buf_str(&text), &all, err);
    if (st == ST_OK) st = apply_drafts(k, &all, err);
    if (text.ptr) OPENSSL_cleanse(text.ptr, text.cap);
    buf_deinit(&text);
    mem_free(all.rows);
    return st;
}

struct keys_facts keys_facts(const struct keys *k) {
    return (struct keys_facts){.keys = k->key_count, .changes = k->changes};
}

enum status keys_create(const char *path, struct keys **out, struct err *err) {
    struct keys *k = mem_zalloc(sizeof(*k));
    if (!k) return err_set(err, ST_NOMEM, "out of memory");
    snprintf(k->anyone.key.name, NAME_BYTES, "anyone");
    snprintf(k->anyone.key.owner, sizeof(k->anyone.key.owner), "anyone");
    enum status st = ST_OK;
    if (path && getrandom(k->secret, HASH_BYTES, 0) != HASH_BYTES)
        st = err_set(err, ST_IO, "no random numbers: %s", strerror(errno));
    k->entry_map = map_create(0);
    k->tenant_map = map_create(0);
    bool has_maps = k->entry_map && k->tenant_map;
    if (!has_maps || (path && !(k->path = mem_dup(path, strlen(path)))))
        st = err_set(err, ST_NOMEM, "out of memory");
    if (st == ST_OK) st = keys_reload(k, true, err);
    if (st == ST_OK)
        *out = k;
    else
        keys_destroy(k);
    return st;
}

void keys_destroy(struct keys *k) {
    if (!k) return;
    for (uint32_t i = 0; i < k->entry_count; i++) mem_free(k->entries[i]);
    for (uint32_t i = 0; i < k->tenant_count; i++) mem_free(k->tenants[i]);
    mem_free(k->entries);
    mem_free(k->tenants);
    map_destroy(k->entry_map);
    map_destroy(k->tenant_map);
    mem_free(k->path);
    OPENSSL_cleanse(k->secret, sizeof(k->secret));
    mem_free(k);
}

/* --- use ------------------------------------------------------------------------------ */

/* Compares with every entry, so that the time taken does not reveal which one matched. */
const struct key *keys_find(const struct keys *k, struct str secret) {
    uint8_t hash[HASH_BYTES];
    if (!k->path || secret.len == 0 || secret.len > SECRET_BYTES_MAX) return NULL;
    if (!hash_of(k, secret, hash)) return NULL;
    const struct entry *found = NULL;
    for (uint32_t i = 0; i < k->entry_count; i++) {
        const struct entry *e = k->entries[i];
        int differs = CRYPTO_memcmp(e->hash, hash, HASH_BYTES);
        if (!differs && e->is_live) found = e;
    }
    return found ? &found->key : NULL;
}

const struct key *keys_find_owner(const struct keys *k, struct str owner) {
    const struct key *anyone = keys_anyone(k);
    if (anyone && str_is(owner, anyone->owner)) return anyone;
    for (uint32_t i = 0; i < k->entry_count; i++)
        if (k->entries[i]->is_live && str_is(owner, k->entries[i]->key.owner))
            return &k->entries[i]->key;
    return NULL;
}

const struct key *keys_anyone(const struct keys *k) { return k->path ? NULL : &k->anyone.key; }

uint32_t keys_tenant_count(const struct keys *k) { return k->tenant_count; }

struct str keys_tenant_name(const struct keys *k, uint32_t tenant) {
    CHECK(tenant >= 1);
    CHECK(tenant <= k->tenant_count);
    const char *name = k->tenants[tenant - 1]->name;
    for (uint32_t i = 0; name[0] == '\n' && i < k->entry_count; i++)
        if (k->entries[i]->key.tenant == tenant) name = k->entries[i]->key.name;
    return str_of(name);
}

static struct entry *entry_of(const struct key *key) { return (struct entry *)key; }

bool keys_is_live(const struct keys *k, const struct key *key) {
    return key == &k->anyone.key || entry_of(key)->is_live;
}

static struct quota_limits limits_of(const struct key *key) {
    return (struct quota_limits){key->rpm, key->tpm, key->concurrent};
}

/* A tenant without a line has no limits. */
static struct quota_limits limits_of_tenant(const struct tenant *t) {
    return t && t->has_line ? t->limits : (struct quota_limits){0};
}

bool keys_begin(struct keys *k, const struct key *key, int64_t now_us, struct key_refusal *why) {
    struct entry *e = entry_of(key);
    struct tenant *t = tenant_of(k, key);
    struct quota_limits own = limits_of(key), shared = limits_of_tenant(t);
    if (!quota_allows(&e->quota, &own, now_us, why)) return false;
    if (t && !quota_allows(&t->quota, &shared, now_us, why)) return false;
    quota_begin(&e->quota, now_us);
    if (t) quota_begin(&t->quota, now_us);
    return true;
}

/* Lower the answer to what `tpm` allows. False: not even its least fits, at any time. */
static bool fit_claim(struct key_claim *claim, uint32_t tpm, struct key_refusal *why) {
    uint64_t least = claim->prompt_tokens + claim->answer_least;
    if (tpm == 0) return true;
    if (least > tpm) {
        *why = (struct key_refusal){.limit = "tokens per minute", .max = tpm, .wanted = least};
        return false;
    }
    uint64_t most = tpm - claim->prompt_tokens;
    if (claim->answer_tokens > most) claim->answer_tokens = most;
    return true;
}

bool keys_reserve(struct keys *k, const struct key *key, struct key_claim *claim, int64_t now_us,
                  struct key_refusal *why) {
    struct entry *e = entry_of(key);
    struct tenant *t = tenant_of(k, key);
    struct quota_limits own = limits_of(key), shared = limits_of_tenant(t);
    CHECK(claim->answer_least <= claim->answer_tokens);
    if (!fit_claim(claim, own.tpm, why) || !fit_claim(claim, shared.tpm, why)) return false;
    uint64_t tokens = claim->prompt_tokens + claim->answer_tokens;
    if (!quota_allows_tokens(&e->quota, &own, tokens, now_us, why)) return false;
    if (t && !quota_allows_tokens(&t->quota, &shared, tokens, now_us, why)) return false;
    quota_reserve(&e->quota, tokens);
    if (t) quota_reserve(&t->quota, tokens);
    claim->reserved = tokens;
    return true;
}

void keys_end(struct keys *k, const struct key *key, uint64_t reserved, uint64_t used,
              int64_t now_us) {
    struct tenant *t = tenant_of(k, key);
    quota_end(&entry_of(key)->quota, reserved, used, now_us);
    if (t) quota_end(&t->quota, reserved, used, now_us);
}

static uint32_t number_of(uint32_t queue) {
    return queue < KEYS_QUEUES_MAX ? queue : KEYS_QUEUES_MAX - 1;
}

void keys_hold(struct keys *k, const struct key *key, uint32_t queue, uint32_t places) {
    struct tenant *t = tenant_of(k, key);
    uint32_t q = number_of(queue);
    entry_of(key)->held[q] += places;
    if (t) share_add(&k->places[q], &t->places[q], places);
}

void keys_drop(struct keys *k, const struct key *key, uint32_t queue, uint32_t places) {
    struct tenant *t = tenant_of(k, key);
    uint32_t q = number_of(queue);
    CHECK(entry_of(key)->held[q] >= places);
    entry_of(key)->held[q] -= places;
    if (t) share_give(&k->places[q], &t->places[q], places);
}

static bool is_idle(const struct quota *q) { return q->under_way == 0 && q->reserved == 0; }

bool keys_are_idle(const struct keys *k) {
    bool all = is_idle(&k->anyone.quota);
    for (uint32_t i = 0; i < k->tenant_count; i++) all = all && is_idle(&k->tenants[i]->quota);
    for (uint32_t i = 0; i < k->entry_count; i++) {
        all = all && is_idle(&k->entries[i]->quota);
        for (uint32_t q = 0; q < KEYS_QUEUES_MAX; q++) all = all && k->entries[i]->held[q] == 0;
    }
    for (uint32_t q = 0; q < KEYS_QUEUES_MAX; q++) {
        all = all && k->anyone.held[q] == 0;
        all = all && k->places[q].used == 0 && k->places[q].holders == 0;
    }
    return all;
}

bool keys_has_others(const struct keys *k, const struct key *key) {
    return k && key && tenant_of(k, key) && k->key_count >= 2;
}

uint32_t keys_share_max(const struct keys *k, const struct key *key, uint32_t places) {
    struct budget queue = {.max = places, .least = 1, .is_single = !keys_has_others(k, key)};
    return (uint32_t)share_limit(&queue, &(struct share){0});
}

uint32_t keys_share(const struct keys *k, const struct key *key, uint32_t queue, uint32_t places) {
    const struct tenant *t = tenant_of(k, key);
    uint32_t q = number_of(queue);
    if (!keys_has_others(k, key)) return places;
    struct budget all = {.max = places, .least = 1, .holders = k->places[q].holders};
    uint64_t limit = share_limit(&all, &t->places[q]);
    return limit <= t->places[q].held ? 0 : (uint32_t)(limit - t->places[q].held);
}

struct key_room keys_room(const struct keys *k, const struct key *key, int64_t now_us) {
    struct tenant *t = tenant_of(k, key);
    struct quota_limits own = limits_of(key), shared = limits_of_tenant(t);
    struct key_room room = {UINT32_MAX, UINT32_MAX, 0, 0};
    quota_narrow(&entry_of(key)->quota, &own, now_us, &room);
    if (t) quota_narrow(&t->quota, &shared, now_us, &room);
    return room;
}
