/* engine/weight_cache.c - see engine/weight_cache.h for the contract. */
#define _GNU_SOURCE
#include "engine/weight_cache.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "engine/image_store.h"
#include "format/model_file.h"
#include "graph/device.h"

enum { KEY_BYTES_MAX = 1 << 20, NICE_LAST = 19 };

struct weight_cache {
    struct device device; /* the loaded model's, by value */
    struct image_store store;
    char *dir; /* heap */
    struct buf key;
    size_t place_len, layout_at; /* in the key: the end of the first part, the last one's start */
    char path[IMAGE_PATH_BYTES];
    struct device_image_use use;
    bool is_verified; /* what was read, while it was read */
    struct err note;

    pthread_t thread;
    bool has_thread, is_told;
    atomic_bool stopping;

    /* The thread's, until has_ended is true. */
    atomic_bool has_ended, has_checked, is_damaged;
    enum status kept;
    struct err kept_text;
};

/* The same whatever becomes of the files there. */
static void put_place(struct buf *key, const char *path) {
    char real[PATH_MAX];
    buf_printf(key, "path %s\n", realpath(path, real) ? real : path);
}

/* Text, so that a person can see what an image belongs to. Not the device: its number may be
 * another after the next mount, and beside the rest it tells nothing apart. */
static void put_files(struct buf *key, const struct model_file *file) {
    for (uint32_t i = 0; i < model_file_parts(file); i++) {
        struct file_id id = model_file_part(file, i);
        buf_printf(key, "inode %llu bytes %llu mtime %lld ctime %lld\n",
                   (unsigned long long)id.inode, (unsigned long long)id.bytes,
                   (long long)id.mtime_ns, (long long)id.ctime_ns);
    }
}

static enum status check_key(const struct buf *key, struct err *err) {
    if (buf_status(key) == ST_OK) return ST_OK;
    return err_set(err, ST_NOMEM, "out of memory for the key of cached weights");
}

static enum status make_key(struct weight_cache *c, const struct model_file *file,
                            struct err *err) {
    put_place(&c->key, model_file_path(file));
    c->place_len = c->key.len;
    put_files(&c->key, file);
    c->layout_at = c->key.len;
    buf_printf(&c->key, "%s\n", c->device.images->layout(c->device.self));
    return check_key(&c->key, err);
}

static struct image_key store_key(const struct weight_cache *c) {
    struct str all = buf_str(&c->key);
    return (struct image_key){
        .place = {all.ptr, c->place_len}, .layout = str_skip(all, c->layout_at), .all = all};
}

/* What not all may read of the model they may not read of its image. */
static bool is_private(const struct model_file *file) {
    for (uint32_t i = 0; i < model_file_parts(file); i++)
        if (!(model_file_part(file, i).mode & S_IROTH)) return true;
    return false;
}

static void open_image(struct weight_cache *c, bool verify) {
    struct device_image image = {.path = c->path, .key = buf_str(&c->key), .verify = verify};
    struct err why = {{0}};
    enum status st = c->device.images->open(c->device.self, &image, &why);
    if (st == ST_OK || st == ST_MISSING) return;
    c->note = why;
    if (st == ST_BAD) (void)unlink(c->path);
}

static enum status fill(struct weight_cache *c, const struct weight_cache_options *o,
                        const struct model_file *file, struct err *err) {
    buf_init(&c->key, KEY_BYTES_MAX);
    c->dir = mem_dup(o->dir, strlen(o->dir));
    if (!c->dir) return err_set(err, ST_NOMEM, "out of memory for cached weights");
    c->store = (struct image_store){
        .dir = c->dir, .max_bytes = o->max_bytes, .is_private = is_private(file)};
    TRY(make_key(c, file, err));
    struct image_key key = store_key(c);
    /* A folder whose name is too long has no image, and keeping one says why. */
    if (image_store_path(&c->store, &key, c->path, NULL) == ST_OK) open_image(c, o->verify);
    return ST_OK;
}

enum status weight_cache_open(struct weight_cache **out, const struct weight_cache_options *options,
                              const struct model_file *file, const struct device *device,
                              struct err *err) {
    *out = NULL;
    if (!options->dir || !device->images) return ST_OK;
    struct weight_cache *c = mem_zalloc(sizeof(*c));
    if (!c) return err_set(err, ST_NOMEM, "out of memory for cached weights");
    c->device = *device;
    c->is_verified = options->verify;
    enum status st = fill(c, options, file, err);
    if (st == ST_OK)
        *out = c;
    else
        weight_cache_close(c);
    return st;
}

void weight_cache_loaded(struct weight_cache *c) {
    if (!c) return;
    struct err why = {{0}};
    if (c->device.images->close(c->device.self, &c->use, &why) != ST_OK) {
        (void)err_set(&c->note, ST_BAD, "%s: %s", c->path, why.text);
        (void)unlink(c->path);
    }
    if (c->use.read) image_store_touch(c->path);
}

static bool is_unverified(const struct weight_cache *c) {
    return c->use.read > 0 && !c->is_verified &&
           !atomic_load_explicit(&c->has_checked, memory_order_relaxed);
}

struct weight_report weight_cache_report(const struct weight_cache *c) {
    if (!c) return (struct weight_report){.note = ""};
    return (struct weight_report){.read = c->use.read,
                                  .made = c->use.made,
                                  .note = c->note.text,
                                  .is_unverified = is_unverified(c)};
}

/* ---- the thread that checks and writes ---- */

/* Processor and disk go to everyone else first. Only advice. */
static void step_back(void) {
    enum { WHO_PROCESS = 1, CLASS_IDLE = 3 << 13 };
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE_LAST);
    (void)syscall(SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE);
}

static bool may_go_on(void *ctx) {
    const struct weight_cache *c = ctx;
    return !atomic_load_explicit(&c->stopping, memory_order_relaxed);
}

static enum status write_image(struct weight_cache *c, uint64_t *bytes, struct err *err) {
    const struct device *d = &c->device;
    struct image_key key = store_key(c);
    struct image_part part;
    struct err why = {{0}};
    TRY(d->images->bytes(d->self, buf_str(&c->key), bytes, err));
    TRY(image_store_begin(&c->store, &key, *bytes, &part, err));
    struct device_image_out out = {
        .fd = part.fd, .key = buf_str(&c->key), .may_go_on = may_go_on, .ctx = c};
    enum status st = d->images->write(d->self, &out, &why);
    if (st != ST_OK) {
        (void)err_set(err, st, "%s: %s", part.path, why.text);
        image_store_abandon(&part);
        return st;
    }
    TRY(image_store_commit(&part, err));
    image_store_remove_older(&c->store, &key);
    return ST_OK;
}

/* Before anything is written: an image of damaged weights would have right checksums. */
static enum status check_weights(struct weight_cache *c) {
    const struct device_image_check check = {.may_go_on = may_go_on, .ctx = c};
    struct err why = {{0}};
    enum status st = c->device.images->check(c->device.self, &check, &why);
    if (st == ST_OK) {
        (void)err_set(&c->kept_text, st, "%s: the checksums of all %u weights are right", c->path,
                      c->use.read);
        atomic_store_explicit(&c->has_checked, true, memory_order_relaxed);
        return st;
    }
    (void)err_set(&c->kept_text, st, "%s: %s", c->path, why.text);
    if (st != ST_BAD) return st;
    (void)unlink(c->path);
    atomic_store_explicit(&c->is_damaged, true, memory_order_release);
    return st;
}

static void *keep_main(void *arg) {
    struct weight_cache *c = arg;
    uint64_t bytes = 0;
    step_back();
    c->kept = is_unverified(c) ? check_weights(c) : ST_OK;
    if (c->kept == ST_OK && c->use.made > 0) {
        c->kept = write_image(c, &bytes, &c->kept_text);
        if (c->kept == ST_OK)
            (void)err_set(&c->kept_text, ST_OK, "%s: %llu MiB kept for the next start", c->path,
                          (unsigned long long)(bytes >> 20));
    }
    /* The caller reads the two once it has seen this. */
    atomic_store_explicit(&c->has_ended, true, memory_order_release);
    return NULL;
}

enum status weight_cache_keep(struct weight_cache *c, struct err *err) {
    if (!c || (c->use.made == 0 && !is_unverified(c))) return ST_OK;
    CHECK(!c->has_thread);
    int rc = pthread_create(&c->thread, NULL, keep_main, c);
    if (rc != 0) return err_set(err, ST_NOMEM, "cannot start a thread: %s", strerror(rc));
    c->has_thread = true;
    return ST_OK;
}

bool weight_cache_kept(struct weight_cache *c, enum status *status, const char **text) {
    if (!c || !c->has_thread || c->is_told) return false;
    if (!atomic_load_explicit(&c->has_ended, memory_order_acquire)) return false;
    c->is_told = true;
    *status = c->kept;
    *text = c->kept_text.text;
    return true;
}

enum status weight_cache_check(const struct weight_cache *c, struct err *err) {
    if (!c || !atomic_load_explicit(&c->is_damaged, memory_order_acquire)) return ST_OK;
    return err_set(err, ST_IO,
                   "%s; the image was removed: start the server again, and it packs the weights "
                   "from the model file",
                   c->kept_text.text);
}

void weight_cache_close(struct weight_cache *c) {
    if (!c) return;
    atomic_store_explicit(&c->stopping, true, memory_order_relaxed);
    if (c->has_thread) pthread_join(c->thread, NULL);
    buf_deinit(&c->key);
    mem_free(c->dir);
    mem_free(c);
}

enum status weight_cache_forget(const char *dir, const char *path, uint64_t *freed_bytes,
                                struct err *err) {
    const struct image_store store = {.dir = dir};
    struct buf place;
    buf_init(&place, KEY_BYTES_MAX);
    put_place(&place, path);
    enum status st = check_key(&place, err);
    if (st == ST_OK) st = image_store_remove(&store, buf_str(&place), freed_bytes, err);
    buf_deinit(&place);
    return st;
}
