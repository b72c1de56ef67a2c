/* fault/jobs/fault_vfs.c - see fault/jobs/fault_vfs.h. */
#define _DEFAULT_SOURCE
#include "fault/jobs/fault_vfs.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/rng.h"

enum { PATHS_MAX = 16, PATH_BYTES = 512, SECTOR = 512, LATE_US = 20000 };

/* ---- what a disk has ---- */

struct change { /* not yet synced */
    struct change *next;
    bool is_truncation;
    int64_t offset; /* of a write; or the new size */
    size_t len;
    char data[];
};

struct shadow {
    char path[PATH_BYTES]; /* "" : a free place */
    char *durable;
    size_t len;
    bool exists;     /* its name is on the disk */
    bool is_deleted; /* the deletion is not yet on the disk */
    struct change *first, *last;
};

static struct {
    pthread_mutex_t lock;
    sqlite3_vfs vfs;
    struct fault_plan plan;
    bool is_armed, has_fired;
    uint64_t counts[FAULT_KINDS];
    bool tracks, is_cut, power_armed;
    uint64_t power_left;
    struct shadow shadows[PATHS_MAX];
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *fault_kind_name(enum fault_kind kind) {
    static const char *const names[FAULT_KINDS] = {"none",     "read", "write",   "sync",
                                                   "truncate", "open", "delete",  "access",
                                                   "size",     "lock", "shm_map", "shm_lock"};
    return names[kind];
}

const char *fault_result_name(enum fault_result result) {
    static const char *const names[FAULT_RESULTS] = {"fails", "is short", "finds no space",
                                                     "is late"};
    return names[result];
}

static void *get(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    CHECK(p);
    return p;
}

/* Without the lock's owner: callers hold it. */
static struct shadow *find_shadow(const char *path) {
    for (int i = 0; i < PATHS_MAX; i++)
        if (strcmp(state.shadows[i].path, path) == 0) return &state.shadows[i];
    return NULL;
}

static void forget_changes(struct shadow *s) {
    for (struct change *c = s->first; c;) {
        struct change *next = c->next;
        free(c);
        c = next;
    }
    s->first = s->last = NULL;
}

static void resize(struct shadow *s, size_t len) {
    if (len > s->len) {
        char *bytes = realloc(s->durable, len);
        CHECK(bytes);
        memset(bytes + s->len, 0, len - s->len);
        s->durable = bytes;
    }
    s->len = len;
}

static void put(struct shadow *s, int64_t offset, const char *data, size_t len) {
    size_t end = (size_t)offset + len;
    if (end > s->len) resize(s, end);
    if (len) memcpy(s->durable + offset, data, len);
}

static void add_change(struct shadow *s, int64_t offset, const void *data, size_t len) {
    struct change *c = get(sizeof(*c) + len);
    *c = (struct change){.is_truncation = !data, .offset = offset, .len = len};
    if (len) memcpy(c->data, data, len);
    if (s->last)
        s->last->next = c;
    else
        s->first = c;
    s->last = c;
}

static void make_durable(struct shadow *s) {
    for (struct change *c = s->first; c; c = c->next) {
        if (c->is_truncation)
            resize(s, (size_t)c->offset);
        else
            put(s, c->offset, c->data, c->len);
    }
    forget_changes(s);
    s->exists = true;
}

static void read_whole(struct shadow *s) {
    FILE *f = fopen(s->path, "rb");
    if (!f) return;
    s->exists = true;
    char block[65536];
    for (size_t got; (got = fread(block, 1, sizeof(block), f)) > 0;)
        put(s, (int64_t)s->len, block, got);
    fclose(f);
}

/* Before the file is opened. */
static struct shadow *note_open(const char *path) {
    struct shadow *s = find_shadow(path);
    if (s) {
        if (s->is_deleted) { /* made again: the deletion comes before it on the disk */
            s->is_deleted = s->exists = false;
            s->len = 0;
            forget_changes(s);
        }
        return s;
    }
    s = find_shadow("");
    CHECK(s);
    CHECK(strlen(path) < PATH_BYTES);
    memcpy(s->path, path, strlen(path) + 1);
    read_whole(s);
    return s;
}

/* ---- faults ---- */

enum verdict { GO_ON, FAIL, FAIL_HALF, NO_SPACE, DEAD };

static bool changes_the_disk(enum fault_kind kind) {
    return kind == FAULT_WRITE || kind == FAULT_SYNC || kind == FAULT_TRUNCATE;
}

static enum verdict judge(enum fault_kind kind) {
    pthread_mutex_lock(&state.lock);
    enum verdict v = GO_ON;
    uint64_t n = state.counts[kind]++;
    if (state.power_armed && changes_the_disk(kind) && state.power_left-- == 0) {
        state.is_cut = true;
        state.power_armed = false;
    }
    bool is_late = false;
    if (state.is_cut) {
        v = DEAD;
    } else if (state.is_armed && kind == state.plan.kind &&
               (n == state.plan.at || (state.plan.stays && n > state.plan.at))) {
        state.has_fired = true;
        is_late = state.plan.result == FAULT_LATE;
        if (state.plan.result == FAULT_IOERR) v = FAIL;
        if (state.plan.result == FAULT_SHORT) v = FAIL_HALF;
        if (state.plan.result == FAULT_FULL) v = NO_SPACE;
    }
    pthread_mutex_unlock(&state.lock);
    if (is_late) usleep(LATE_US);
    return v;
}

static int code_of(enum verdict v, int io_error) { return v == NO_SPACE ? SQLITE_FULL : io_error; }

/* ---- files ---- */

struct fault_file {
    sqlite3_file base;
    struct shadow *shadow; /* NULL: not tracked */
    sqlite3_file *real;    /* behind this struct */
};

static sqlite3_file *real_of(sqlite3_file *f) { return ((struct fault_file *)f)->real; }
static struct shadow *shadow_of(sqlite3_file *f) { return ((struct fault_file *)f)->shadow; }

static int f_close(sqlite3_file *f) { return real_of(f)->pMethods->xClose(real_of(f)); }

static int f_read(sqlite3_file *f, void *out, int len, sqlite3_int64 at) {
    enum verdict v = judge(FAULT_READ);
    if (v != GO_ON) return SQLITE_IOERR_READ;
    return real_of(f)->pMethods->xRead(real_of(f), out, len, at);
}

static int write_through(sqlite3_file *f, const void *data, int len, sqlite3_int64 at) {
    struct shadow *s = shadow_of(f);
    if (s) {
        pthread_mutex_lock(&state.lock);
        add_change(s, at, data, (size_t)len);
        pthread_mutex_unlock(&state.lock);
    }
    return real_of(f)->pMethods->xWrite(real_of(f), data, len, at);
}

static int f_write(sqlite3_file *f, const void *data, int len, sqlite3_int64 at) {
    enum verdict v = judge(FAULT_WRITE);
    if (v == FAIL_HALF || (v == NO_SPACE && len > SECTOR))
        (void)write_through(f, data, len / 2, at);
    if (v == DEAD && shadow_of(f)) { /* it was on its way */
        pthread_mutex_lock(&state.lock);
        add_change(shadow_of(f), at, data, (size_t)len);
        pthread_mutex_unlock(&state.lock);
    }
    if (v != GO_ON) return code_of(v, SQLITE_IOERR_WRITE);
    return write_through(f, data, len, at);
}

static int f_truncate(sqlite3_file *f, sqlite3_int64 size) {
    enum verdict v = judge(FAULT_TRUNCATE);
    if (v != GO_ON) return SQLITE_IOERR_TRUNCATE;
    struct shadow *s = shadow_of(f);
    if (s) {
        pthread_mutex_lock(&state.lock);
        add_change(s, size, NULL, 0);
        pthread_mutex_unlock(&state.lock);
    }
    return real_of(f)->pMethods->xTruncate(real_of(f), size);
}

static int f_sync(sqlite3_file *f, int flags) {
    (void)flags;
    enum verdict v = judge(FAULT_SYNC);
    if (v != GO_ON) return code_of(v, SQLITE_IOERR_FSYNC);
    struct shadow *s = shadow_of(f);
    if (s) {
        pthread_mutex_lock(&state.lock);
        make_durable(s);
        pthread_mutex_unlock(&state.lock);
    }
    return SQLITE_OK;
}

static int f_size(sqlite3_file *f, sqlite3_int64 *out) {
    if (judge(FAULT_SIZE) != GO_ON) return SQLITE_IOERR_FSTAT;
    return real_of(f)->pMethods->xFileSize(real_of(f), out);
}
static int f_lock(sqlite3_file *f, int level) {
    if (judge(FAULT_LOCK) != GO_ON) return SQLITE_IOERR_LOCK;
    return real_of(f)->pMethods->xLock(real_of(f), level);
}
static int f_unlock(sqlite3_file *f, int level) {
    return real_of(f)->pMethods->xUnlock(real_of(f), level);
}
static int f_reserved(sqlite3_file *f, int *out) {
    return real_of(f)->pMethods->xCheckReservedLock(real_of(f), out);
}
static int f_control(sqlite3_file *f, int op, void *arg) {
    return real_of(f)->pMethods->xFileControl(real_of(f), op, arg);
}
static int f_sector(sqlite3_file *f) { return real_of(f)->pMethods->xSectorSize(real_of(f)); }
static int f_traits(sqlite3_file *f) {
    return real_of(f)->pMethods->xDeviceCharacteristics(real_of(f));
}
static int f_shm_map(sqlite3_file *f, int page, int bytes, int extend, void volatile **out) {
    enum verdict v = judge(FAULT_SHM_MAP);
    if (v != GO_ON) return code_of(v, SQLITE_IOERR_SHMMAP);
    return real_of(f)->pMethods->xShmMap(real_of(f), page, bytes, extend, out);
}
static int f_shm_lock(sqlite3_file *f, int offset, int n, int flags) {
    bool unlocks = flags & SQLITE_SHM_UNLOCK;
    if (!unlocks && judge(FAULT_SHM_LOCK) != GO_ON) return SQLITE_IOERR_SHMLOCK;
    return real_of(f)->pMethods->xShmLock(real_of(f), offset, n, flags);
}
static void f_shm_barrier(sqlite3_file *f) { real_of(f)->pMethods->xShmBarrier(real_of(f)); }
static int f_shm_unmap(sqlite3_file *f, int removes) {
    return real_of(f)->pMethods->xShmUnmap(real_of(f), removes);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = f_close,
    .xRead = f_read,
    .xWrite = f_write,
    .xTruncate = f_truncate,
    .xSync = f_sync,
    .xFileSize = f_size,
    .xLock = f_lock,
    .xUnlock = f_unlock,
    .xCheckReservedLock = f_reserved,
    .xFileControl = f_control,
    .xSectorSize = f_sector,
    .xDeviceCharacteristics = f_traits,
    .xShmMap = f_shm_map,
    .xShmLock = f_shm_lock,
    .xShmBarrier = f_shm_barrier,
    .xShmUnmap = f_shm_unmap,
};

/* ---- the VFS ---- */

static sqlite3_vfs *real_vfs(sqlite3_vfs *vfs) { return vfs->pAppData; }

static int v_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *out, int flags, int *got) {
    struct fault_file *f = (struct fault_file *)out;
    *f = (struct fault_file){.real = (sqlite3_file *)(f + 1)};
    enum verdict v = judge(FAULT_OPEN);
    if (v != GO_ON) return code_of(v, SQLITE_CANTOPEN);
    if (name) {
        pthread_mutex_lock(&state.lock);
        if (state.tracks) f->shadow = note_open(name);
        pthread_mutex_unlock(&state.lock);
    }
    int rc = real_vfs(vfs)->xOpen(real_vfs(vfs), name, f->real, flags, got);
    if (rc == SQLITE_OK) f->base.pMethods = &methods;
    return rc;
}

static int v_delete(sqlite3_vfs *vfs, const char *name, int sync) {
    if (judge(FAULT_DELETE) != GO_ON) return SQLITE_IOERR_DELETE;
    pthread_mutex_lock(&state.lock);
    struct shadow *s = state.tracks ? find_shadow(name) : NULL;
    if (s) {
        s->is_deleted = true;
        if (sync) s->exists = false;
    }
    pthread_mutex_unlock(&state.lock);
    return real_vfs(vfs)->xDelete(real_vfs(vfs), name, 0);
}

static int v_access(sqlite3_vfs *vfs, const char *name, int flags, int *out) {
    if (judge(FAULT_ACCESS) != GO_ON) return SQLITE_IOERR_ACCESS;
    return real_vfs(vfs)->xAccess(real_vfs(vfs), name, flags, out);
}
static int v_full_path(sqlite3_vfs *vfs, const char *name, int bytes, char *out) {
    return real_vfs(vfs)->xFullPathname(real_vfs(vfs), name, bytes, out);
}
static int v_randomness(sqlite3_vfs *vfs, int bytes, char *out) {
    return real_vfs(vfs)->xRandomness(real_vfs(vfs), bytes, out);
}
static int v_sleep(sqlite3_vfs *vfs, int us) { return real_vfs(vfs)->xSleep(real_vfs(vfs), us); }
static int v_time(sqlite3_vfs *vfs, double *out) {
    return real_vfs(vfs)->xCurrentTime(real_vfs(vfs), out);
}
static int v_error(sqlite3_vfs *vfs, int bytes, char *out) {
    (void)vfs;
    (void)bytes;
    (void)out;
    return 0;
}
static int v_time64(sqlite3_vfs *vfs, sqlite3_int64 *out) {
    return real_vfs(vfs)->xCurrentTimeInt64(real_vfs(vfs), out);
}

void fault_vfs_register(void) {
    if (state.vfs.zName) return;
    sqlite3_vfs *real = sqlite3_vfs_find(NULL);
    CHECK(real);
    state.vfs = (sqlite3_vfs){
        .iVersion = 2,
        .szOsFile = (int)sizeof(struct fault_file) + real->szOsFile,
        .mxPathname = real->mxPathname,
        .zName = FAULT_VFS_NAME,
        .pAppData = real,
        .xOpen = v_open,
        .xDelete = v_delete,
        .xAccess = v_access,
        .xFullPathname = v_full_path,
        .xRandomness = v_randomness,
        .xSleep = v_sleep,
        .xCurrentTime = v_time,
        .xGetLastError = v_error,
        .xCurrentTimeInt64 = v_time64,
    };
    CHECK(sqlite3_vfs_register(&state.vfs, 0) == SQLITE_OK);
}

/* ---- plans ---- */

void fault_vfs_plan(const struct fault_plan *plan) {
    pthread_mutex_lock(&state.lock);
    state.plan = *plan;
    state.is_armed = plan->kind != FAULT_NONE;
    state.has_fired = false;
    memset(state.counts, 0, sizeof(state.counts));
    pthread_mutex_unlock(&state.lock);
}

bool fault_vfs_heal(void) {
    pthread_mutex_lock(&state.lock);
    bool fired = state.has_fired;
    state.is_armed = state.has_fired = false;
    memset(state.counts, 0, sizeof(state.counts));
    pthread_mutex_unlock(&state.lock);
    return fired;
}

uint64_t fault_vfs_count(enum fault_kind kind) {
    pthread_mutex_lock(&state.lock);
    uint64_t count = state.counts[kind];
    pthread_mutex_unlock(&state.lock);
    return count;
}

/* ---- power ---- */

static void drop_shadow(struct shadow *s) {
    forget_changes(s);
    free(s->durable);
    *s = (struct shadow){0};
}

void fault_power_begin(void) {
    pthread_mutex_lock(&state.lock);
    for (int i = 0; i < PATHS_MAX; i++) drop_shadow(&state.shadows[i]);
    state.tracks = true;
    state.is_cut = state.power_armed = false;
    pthread_mutex_unlock(&state.lock);
}

void fault_power_plan(uint64_t at) {
    pthread_mutex_lock(&state.lock);
    state.power_armed = true;
    state.power_left = at;
    pthread_mutex_unlock(&state.lock);
}

bool fault_power_is_cut(void) {
    pthread_mutex_lock(&state.lock);
    bool cut = state.is_cut;
    pthread_mutex_unlock(&state.lock);
    return cut;
}

/* Apply a part of the changes that were not synced. */
static void apply_some(struct shadow *s, struct rng *rng) {
    uint64_t style = rng_below(rng, 4); /* none, all, some, torn */
    for (struct change *c = s->first; c && style > 0; c = c->next) {
        if (style > 1 && rng_below(rng, 2)) continue;
        if (c->is_truncation) {
            resize(s, (size_t)c->offset);
        } else if (style < 3) {
            put(s, c->offset, c->data, c->len);
        } else {
            for (size_t at = 0; at < c->len; at += SECTOR) {
                size_t len = c->len - at < SECTOR ? c->len - at : SECTOR;
                if (rng_below(rng, 2)) put(s, c->offset + (int64_t)at, c->data + at, len);
            }
        }
    }
}

static void write_image(struct shadow *s, struct rng *rng) {
    bool has_name = s->exists;
    if (!has_name && s->first && !s->is_deleted) has_name = rng_below(rng, 2);
    if (s->is_deleted && has_name) has_name = rng_below(rng, 2);
    if (!s->is_deleted) apply_some(s, rng);
    unlink(s->path);
    if (!has_name) return;
    FILE *f = fopen(s->path, "wb");
    CHECK(f);
    CHECK(s->len == 0 || fwrite(s->durable, 1, s->len, f) == s->len);
    CHECK(fclose(f) == 0);
}

void fault_power_restore(struct rng *rng) {
    pthread_mutex_lock(&state.lock);
    for (int i = 0; i < PATHS_MAX; i++) {
        struct shadow *s = &state.shadows[i];
        if (!s->path[0]) continue;
        write_image(s, rng);
        drop_shadow(s);
    }
    state.is_cut = state.power_armed = state.tracks = false;
    pthread_mutex_unlock(&state.lock);
}

/* ---- memory ---- */

static struct {
    pthread_mutex_t lock;
    sqlite3_mem_methods real;
    bool is_armed, stays, has_fired;
    uint64_t left;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool must_fail(void) {
    pthread_mutex_lock(&memory.lock);
    bool fails = memory.is_armed && (memory.has_fired ? memory.stays : memory.left-- == 0);
    if (fails) memory.has_fired = true;
    pthread_mutex_unlock(&memory.lock);
    return fails;
}

static void *m_malloc(int bytes) { return must_fail() ? NULL : memory.real.xMalloc(bytes); }
static void *m_realloc(void *p, int bytes) {
    return must_fail() ? NULL : memory.real.xRealloc(p, bytes);
}

void fault_memory_register(void) {
    CHECK(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &memory.real) == SQLITE_OK);
    sqlite3_mem_methods wrapped = memory.real;
    wrapped.xMalloc = m_malloc;
    wrapped.xRealloc = m_realloc;
    CHECK(sqlite3_config(SQLITE_CONFIG_MALLOC, &wrapped) == SQLITE_OK);
}

void fault_memory_plan(uint64_t at, bool stays) {
    pthread_mutex_lock(&memory.lock);
    memory.is_armed = true;
    memory.has_fired = false;
    memory.stays = stays;
    memory.left = at;
    pthread_mutex_unlock(&memory.lock);
}

bool fault_memory_heal(void) {
    pthread_mutex_lock(&memory.lock);
    memory.is_armed = false;
    bool fired = memory.has_fired;
    pthread_mutex_unlock(&memory.lock);
    return fired;
}
