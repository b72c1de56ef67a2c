/* kill/lossy_vfs.c - see kill/lossy_vfs.h. */
#include "kill/lossy_vfs.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"

enum { SECTOR = 512, PATH_BYTES = 1024 };
/* One write in LEAK_OF has sectors that reach the file before the sync: each with chance 1/2. */
enum { LEAK_OF = 8 };

/* A file of the disk; all handles with the same path share it. */
struct disk_file {
    char path[PATH_BYTES];
    uint32_t handles;
    int64_t bytes; /* as SQLite sees it */
    /* What the real file has at or after this offset is from before a truncation: zeros. */
    int64_t valid_bytes;
    unsigned char **sectors; /* by number; NULL: as in the real file */
    uint32_t sector_cap;
    uint32_t *dirty; /* numbers of the sectors in memory */
    uint32_t dirty_count, dirty_cap;
    struct disk_file *next;
};

struct disk {
    sqlite3_vfs vfs; /* a copy of the real one with other functions */
    sqlite3_vfs *real;
    sqlite3_mutex *mutex;
    uint64_t random;
    struct disk_file *files;
};

struct handle {
    sqlite3_file base;
    struct disk *disk;
    struct disk_file *file; /* NULL: a temporary file, which no crash concerns */
    sqlite3_file *real;     /* in the memory after this struct */
};

static struct handle *handle_of(sqlite3_file *f) { return (struct handle *)f; }

static uint64_t next_random(struct disk *d) {
    uint64_t x = d->random += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* ---- sectors ---- */

static int64_t min_bytes(int64_t a, int64_t b) { return a < b ? a : b; }

static bool grow_sectors(struct disk_file *f, uint32_t number) {
    uint32_t cap = f->sector_cap ? f->sector_cap : 64;
    while (cap <= number) cap *= 2;
    if (cap == f->sector_cap) return true;
    unsigned char **sectors = mem_zalloc(cap * sizeof(*sectors));
    if (!sectors) return false;
    if (f->sector_cap) memcpy(sectors, f->sectors, f->sector_cap * sizeof(*sectors));
    mem_free(f->sectors);
    f->sectors = sectors;
    f->sector_cap = cap;
    return true;
}

static bool grow_dirty(struct disk_file *f) {
    if (f->dirty_count < f->dirty_cap) return true;
    uint32_t cap = f->dirty_cap ? 2 * f->dirty_cap : 64;
    uint32_t *dirty = mem_zalloc(cap * sizeof(*dirty));
    if (!dirty) return false;
    if (f->dirty_count) memcpy(dirty, f->dirty, f->dirty_count * sizeof(*dirty));
    mem_free(f->dirty);
    f->dirty = dirty;
    f->dirty_cap = cap;
    return true;
}

static unsigned char *sector_at(const struct disk_file *f, int64_t number) {
    return number < f->sector_cap ? f->sectors[number] : NULL;
}

/* The real file's bytes; zeros where it has none. */
static int read_real(struct handle *h, void *out, int64_t bytes, int64_t offset) {
    memset(out, 0, (size_t)bytes);
    int64_t there = min_bytes(bytes, h->file->valid_bytes - offset);
    if (there <= 0) return SQLITE_OK;
    int rc = h->real->pMethods->xRead(h->real, out, (int)there, offset);
    return rc == SQLITE_IOERR_SHORT_READ ? SQLITE_OK : rc;
}

/* The sector in memory, which is made if there is none. */
static int take_sector(struct handle *h, int64_t number, unsigned char **out) {
    struct disk_file *f = h->file;
    CHECK(number < UINT32_MAX / 2);
    if (!grow_sectors(f, (uint32_t)number) || !grow_dirty(f)) return SQLITE_IOERR_NOMEM;
    if (!f->sectors[number]) {
        unsigned char *sector = mem_zalloc(SECTOR);
        if (!sector) return SQLITE_IOERR_NOMEM;
        int rc = read_real(h, sector, SECTOR, number * SECTOR);
        if (rc != SQLITE_OK) {
            mem_free(sector);
            return rc;
        }
        f->sectors[number] = sector;
        f->dirty[f->dirty_count++] = (uint32_t)number;
    }
    *out = f->sectors[number];
    return SQLITE_OK;
}

/* Write a sector to the real file. */
static int put_sector(struct handle *h, int64_t number) {
    const struct disk_file *f = h->file;
    int64_t bytes = min_bytes(SECTOR, f->bytes - number * SECTOR);
    if (bytes <= 0) return SQLITE_OK; /* it was truncated */
    return h->real->pMethods->xWrite(h->real, sector_at(f, number), (int)bytes, number * SECTOR);
}

static void drop_sectors(struct disk_file *f) {
    for (uint32_t i = 0; i < f->dirty_count; i++) {
        mem_free(f->sectors[f->dirty[i]]);
        f->sectors[f->dirty[i]] = NULL;
    }
    f->dirty_count = 0;
}

static void shuffle_dirty(struct disk *d, struct disk_file *f) {
    for (uint32_t i = f->dirty_count; i > 1; i--) {
        uint32_t j = (uint32_t)(next_random(d) % i);
        uint32_t number = f->dirty[i - 1];
        f->dirty[i - 1] = f->dirty[j];
        f->dirty[j] = number;
    }
}

/* Write everything to the real file. The process may be killed after each sector. */
static int flush(struct handle *h) {
    struct disk_file *f = h->file;
    sqlite3_int64 real_bytes = 0;
    int rc = h->real->pMethods->xFileSize(h->real, &real_bytes);
    if (rc == SQLITE_OK && real_bytes > f->valid_bytes)
        rc = h->real->pMethods->xTruncate(h->real, f->valid_bytes);
    shuffle_dirty(h->disk, f);
    for (uint32_t i = 0; i < f->dirty_count && rc == SQLITE_OK; i++)
        rc = put_sector(h, f->dirty[i]);
    if (rc != SQLITE_OK) return rc;
    drop_sectors(f);
    f->valid_bytes = f->bytes;
    return SQLITE_OK;
}

/* ---- a handle ---- */

static int do_read(sqlite3_file *base, void *out, int amount, sqlite3_int64 offset) {
    struct handle *h = handle_of(base);
    struct disk_file *f = h->file;
    sqlite3_mutex_enter(h->disk->mutex);
    int64_t there = min_bytes(amount, f->bytes - offset), done = 0;
    if (there < 0) there = 0;
    int rc = SQLITE_OK;
    while (done < there && rc == SQLITE_OK) {
        int64_t at = offset + done;
        int64_t part = min_bytes(SECTOR - at % SECTOR, there - done);
        const unsigned char *sector = sector_at(f, at / SECTOR);
        if (sector)
            memcpy((char *)out + done, sector + at % SECTOR, (size_t)part);
        else
            rc = read_real(h, (char *)out + done, part, at);
        done += part;
    }
    sqlite3_mutex_leave(h->disk->mutex);
    if (rc != SQLITE_OK || there == amount) return rc;
    memset((char *)out + there, 0, (size_t)(amount - there));
    return SQLITE_IOERR_SHORT_READ;
}

static int do_write(sqlite3_file *base, const void *bytes, int amount, sqlite3_int64 offset) {
    struct handle *h = handle_of(base);
    struct disk_file *f = h->file;
    int rc = SQLITE_OK;
    sqlite3_mutex_enter(h->disk->mutex);
    const bool leaks = next_random(h->disk) % LEAK_OF == 0;
    if (f->bytes < offset + amount) f->bytes = offset + amount;
    for (int64_t done = 0; done < amount && rc == SQLITE_OK;) {
        int64_t at = offset + done;
        int64_t part = min_bytes(SECTOR - at % SECTOR, amount - done);
        unsigned char *sector = NULL;
        rc = take_sector(h, at / SECTOR, &sector);
        if (rc == SQLITE_OK) memcpy(sector + at % SECTOR, (const char *)bytes + done, (size_t)part);
        if (rc == SQLITE_OK && leaks && next_random(h->disk) % 2) rc = put_sector(h, at / SECTOR);
        done += part;
    }
    sqlite3_mutex_leave(h->disk->mutex);
    return rc;
}

/* Bytes after the end are zeros if the file grows again. */
static int do_truncate(sqlite3_file *base, sqlite3_int64 bytes) {
    struct handle *h = handle_of(base);
    struct disk_file *f = h->file;
    int rc = SQLITE_OK;
    sqlite3_mutex_enter(h->disk->mutex);
    if (bytes < f->bytes) {
        f->bytes = bytes;
        f->valid_bytes = min_bytes(f->valid_bytes, bytes);
        for (uint32_t i = 0; i < f->dirty_count; i++) {
            int64_t begin = (int64_t)f->dirty[i] * SECTOR;
            int64_t kept = bytes - begin < 0 ? 0 : bytes - begin;
            if (kept < SECTOR) memset(f->sectors[f->dirty[i]] + kept, 0, (size_t)(SECTOR - kept));
        }
    }
    sqlite3_mutex_leave(h->disk->mutex);
    return rc;
}

static int do_sync(sqlite3_file *base, int flags) {
    (void)flags;
    struct handle *h = handle_of(base);
    sqlite3_mutex_enter(h->disk->mutex);
    int rc = flush(h);
    sqlite3_mutex_leave(h->disk->mutex);
    return rc;
}

static int do_file_size(sqlite3_file *base, sqlite3_int64 *out) {
    struct handle *h = handle_of(base);
    sqlite3_mutex_enter(h->disk->mutex);
    *out = h->file->bytes;
    sqlite3_mutex_leave(h->disk->mutex);
    return SQLITE_OK;
}

static void file_remove(struct disk *d, struct disk_file *f) {
    struct disk_file **at = &d->files;
    while (*at != f) at = &(*at)->next;
    *at = f->next;
    drop_sectors(f);
    mem_free(f->sectors);
    mem_free(f->dirty);
    mem_free(f);
}

/* What was written and not synced is written in time, as an operating system does. */
static int do_close(sqlite3_file *base) {
    struct handle *h = handle_of(base);
    sqlite3_mutex_enter(h->disk->mutex);
    int rc = SQLITE_OK;
    if (h->file && --h->file->handles == 0) {
        rc = flush(h);
        file_remove(h->disk, h->file);
    }
    sqlite3_mutex_leave(h->disk->mutex);
    int closed = h->real->pMethods->xClose(h->real);
    return rc == SQLITE_OK ? closed : rc;
}

/* A hint or a pragma that would change the real file is not passed on. */
static int do_control(sqlite3_file *base, int op, void *arg) {
    sqlite3_file *real = handle_of(base)->real;
    if (op == SQLITE_FCNTL_SIZE_HINT || op == SQLITE_FCNTL_CHUNK_SIZE ||
        op == SQLITE_FCNTL_MMAP_SIZE)
        return SQLITE_NOTFOUND;
    return real->pMethods->xFileControl(real, op, arg);
}

/* ---- what the real file does ---- */

static int do_lock(sqlite3_file *base, int level) {
    sqlite3_file *real = handle_of(base)->real;
    return real->pMethods->xLock(real, level);
}
static int do_unlock(sqlite3_file *base, int level) {
    sqlite3_file *real = handle_of(base)->real;
    return real->pMethods->xUnlock(real, level);
}
static int do_check_lock(sqlite3_file *base, int *out) {
    sqlite3_file *real = handle_of(base)->real;
    return real->pMethods->xCheckReservedLock(real, out);
}
static int do_sector_size(sqlite3_file *base) {
    sqlite3_file *real = handle_of(base)->real;
    return real->pMethods->xSectorSize(real);
}
/* The real disk may write more at once than this one. */
static int do_characteristics(sqlite3_file *base) {
    sqlite3_file *real = handle_of(base)->real;
    return real->pMethods->xDeviceCharacteristics(real) & SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}
static int do_shm_map(sqlite3_file *base, int page, int bytes, int extends, void volatile **out) {
    sqlite3_file *real = handle_of(base)->real;
    return real->pMethods->xShmMap(real, page, bytes, extends, out);
}
static int do_shm_lock(sqlite3_file *base, int offset, int count, int flags) {
    sqlite3_file *real = handle_of(base)->real;
    return real->pMethods->xShmLock(real, offset, count, flags);
}
static void do_shm_barrier(sqlite3_file *base) {
    sqlite3_file *real = handle_of(base)->real;
    real->pMethods->xShmBarrier(real);
}
static int do_shm_unmap(sqlite3_file *base, int removes) {
    sqlite3_file *real = handle_of(base)->real;
    return real->pMethods->xShmUnmap(real, removes);
}

static const sqlite3_io_methods methods = {.iVersion = 2,
                                           .xClose = do_close,
                                           .xRead = do_read,
                                           .xWrite = do_write,
                                           .xTruncate = do_truncate,
                                           .xSync = do_sync,
                                           .xFileSize = do_file_size,
                                           .xLock = do_lock,
                                           .xUnlock = do_unlock,
                                           .xCheckReservedLock = do_check_lock,
                                           .xFileControl = do_control,
                                           .xSectorSize = do_sector_size,
                                           .xDeviceCharacteristics = do_characteristics,
                                           .xShmMap = do_shm_map,
                                           .xShmLock = do_shm_lock,
                                           .xShmBarrier = do_shm_barrier,
                                           .xShmUnmap = do_shm_unmap};

/* ---- the VFS ---- */

static struct disk_file *file_find(struct disk *d, const char *path) {
    struct disk_file *f = d->files;
    while (f && strcmp(f->path, path) != 0) f = f->next;
    return f;
}

static int file_pin(struct handle *h, const char *path) {
    struct disk *d = h->disk;
    struct disk_file *f = file_find(d, path);
    if (!f) {
        f = mem_zalloc(sizeof(*f));
        if (!f) return SQLITE_NOMEM;
        CHECK(strlen(path) < sizeof(f->path));
        memcpy(f->path, path, strlen(path) + 1);
        sqlite3_int64 bytes = 0;
        int rc = h->real->pMethods->xFileSize(h->real, &bytes);
        if (rc != SQLITE_OK) {
            mem_free(f);
            return rc;
        }
        f->bytes = f->valid_bytes = bytes;
        f->next = d->files;
        d->files = f;
    }
    f->handles++;
    h->file = f;
    return SQLITE_OK;
}

static int do_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *base, int flags, int *got) {
    struct disk *d = vfs->pAppData;
    const int kept = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL;
    struct handle *h = handle_of(base);
    if (!path || !(flags & kept)) return d->real->xOpen(d->real, path, base, flags, got);
    *h = (struct handle){.disk = d, .real = (sqlite3_file *)(h + 1)};
    int rc = d->real->xOpen(d->real, path, h->real, flags, got);
    if (rc != SQLITE_OK) return rc;
    sqlite3_mutex_enter(d->mutex);
    rc = file_pin(h, path);
    sqlite3_mutex_leave(d->mutex);
    if (rc != SQLITE_OK) {
        h->real->pMethods->xClose(h->real);
        return rc;
    }
    base->pMethods = &methods;
    return SQLITE_OK;
}

static int do_delete(sqlite3_vfs *vfs, const char *path, int syncs) {
    struct disk *d = vfs->pAppData;
    return d->real->xDelete(d->real, path, syncs);
}

int lossy_vfs_register(uint64_t seed) {
    int rc = sqlite3_initialize();
    if (rc != SQLITE_OK) return rc;
    struct disk *d = mem_zalloc(sizeof(*d));
    if (!d) return SQLITE_NOMEM;
    d->real = sqlite3_vfs_find(NULL);
    CHECK(d->real);
    d->mutex = sqlite3_mutex_alloc(SQLITE_MUTEX_FAST);
    d->random = seed;
    d->vfs = *d->real;
    d->vfs.zName = LOSSY_VFS_NAME;
    d->vfs.pNext = NULL;
    d->vfs.pAppData = d;
    d->vfs.szOsFile = (int)sizeof(struct handle) + d->real->szOsFile;
    d->vfs.xOpen = do_open;
    d->vfs.xDelete = do_delete;
    return sqlite3_vfs_register(&d->vfs, 1);
}
