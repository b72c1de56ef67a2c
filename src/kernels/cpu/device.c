/* kernels/cpu/device.c - the CPU as a device: memory, weights, and the plug. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/pool.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/image_io.h"
#include "kernels/cpu/page.h"
#include "kernels/cpu/peaks.h"
#include "kernels/cpu/affinity.h"
#include "kernels/cpu/program.h"
#include "kernels/cpu/op_timer.h"
#include "kernels/cpu/tap.h"
#include "kernels/cpu/work.h"

enum { NAME_BYTES = 32, LAYOUT_BYTES = 96 };

struct cpu_device {
    const struct cpu_table *table;
    struct pool *pool;
    bool borrows_pool;
    struct affinity *affinity; /* NULL: threads are not bound */
    struct err unbound;        /* why not, where it was asked for */
    struct list weights;       /* struct packed, in the order of preparing */
    struct page_arena panels;
    struct image_source *image; /* NULL: weights are packed */
    struct device_image_use image_use;
    struct op_timer *timer; /* NULL: profiling is off */
    struct cpu_tap tap;
    char name[NAME_BYTES];
    char layout[LAYOUT_BYTES];
};

static device_addr cpu_alloc(void *self, size_t bytes) {
    const struct cpu_device *dev = self;
    void *ptr = page_alloc(bytes);
    affinity_spread(dev->affinity, ptr, bytes);
    return (device_addr)(uintptr_t)ptr;
}

static void cpu_free(void *self, device_addr addr, size_t bytes) {
    (void)self;
    page_free((void *)(uintptr_t)addr, bytes);
}

static void *cpu_host_alloc(void *self, size_t bytes, int fd) {
    (void)self;
    return page_map(bytes, fd);
}

static void cpu_host_free(void *self, void *ptr, size_t bytes) {
    (void)self;
    page_free(ptr, bytes);
}

static void fill(struct cpu_device *dev, struct packed *p, const struct weight *w) {
    if (dev->image && image_source_read(dev->image, p, dev->pool)) {
        dev->image_use.read++;
        return;
    }
    pack_fill(p, w, dev->pool);
    dev->image_use.made++;
}

static enum status cpu_prepare(void *self, struct weight *w, struct err *err) {
    struct cpu_device *dev = self;
    /* Tables and vectors are read where they lie. */
    if (w->use != WEIGHT_MATRIX || !dev->table->packs || w->prepared) return ST_OK;
    struct packed *p = pack_create(w, &dev->panels);
    if (!p)
        return err_set(err, ST_NOMEM, "cpu: out of memory for weight %.*s of %zu bytes",
                       (int)w->name.len, w->name.ptr, w->bytes);
    fill(dev, p, w);
    list_push_last(&dev->weights, &p->in_device);
    w->prepared = p;
    return ST_OK;
}

static void cpu_update(void *self, struct weight *w) {
    const struct cpu_device *dev = self;
    if (!w->prepared) return; /* it is read where it lies */
    pack_clear(w->prepared);
    pack_fill(w->prepared, w, dev->pool);
}

/* ---- images ---- */

static const char *cpu_image_layout(void *self) { return ((struct cpu_device *)self)->layout; }

static struct image_ident ident_of(const struct cpu_device *dev, struct str key) {
    return (struct image_ident){.table = str_of(dev->table->name), .key = key};
}

static enum status cpu_image_open(void *self, const struct device_image *image, struct err *err) {
    struct cpu_device *dev = self;
    CHECK(!dev->image);
    struct image_ident id = ident_of(dev, image->key);
    return image_source_open(&dev->image, image->path, &id, image->verify, err);
}

static enum status cpu_image_close(void *self, struct device_image_use *use, struct err *err) {
    struct cpu_device *dev = self;
    *use = dev->image_use;
    enum status st = image_source_close(dev->image, err);
    dev->image = NULL;
    return st;
}

static enum status cpu_image_check(void *self, const struct device_image_check *check,
                                   struct err *err) {
    const struct cpu_device *dev = self;
    return image_check(&dev->weights, check, err);
}

static enum status cpu_image_bytes(void *self, struct str key, uint64_t *bytes, struct err *err) {
    const struct cpu_device *dev = self;
    struct image_ident id = ident_of(dev, key);
    return image_file_bytes(&dev->weights, &id, bytes, err);
}

static enum status cpu_image_write(void *self, const struct device_image_out *out,
                                   struct err *err) {
    const struct cpu_device *dev = self;
    struct image_ident id = ident_of(dev, out->key);
    return image_write(&dev->weights, &id, out, err);
}

static const struct device_images cpu_images = {
    .layout = cpu_image_layout,
    .open = cpu_image_open,
    .close = cpu_image_close,
    .check = cpu_image_check,
    .bytes = cpu_image_bytes,
    .write = cpu_image_write,
};

/* ---- running ---- */

static size_t cpu_kv_block_bytes(void *self, const struct kv_shape *shape) {
    (void)self;
    struct kv_tiles one = {.type = shape->type,
                           .layers = shape->layers,
                           .heads = shape->heads,
                           .head_dim = shape->head_dim};
    if (shape->block_tokens == 0 || shape->block_tokens % KV_TILE_TOKENS != 0) return 0;
    return kv_tile_bytes(&one) * (shape->block_tokens / KV_TILE_TOKENS);
}

static enum status cpu_create_program(void *self, const struct program_options *options,
                                      struct device_program **out, struct err *err) {
    const struct cpu_device *dev = self;
    const struct cpu_program_parts parts = {.table = dev->table,
                                            .pool = dev->pool,
                                            .affinity = dev->affinity,
                                            .device_name = dev->name,
                                            .timer = &dev->timer,
                                            .tap = &dev->tap};
    return cpu_program_create(&parts, options, out, err);
}

static void cpu_destroy_program(void *self, struct device_program *p) {
    (void)self;
    cpu_program_destroy(p);
}

/* ---- profiling ---- */

static enum status cpu_set_watch(void *self, device_watch_fn *fn, void *ctx) {
    struct cpu_device *dev = self;
    op_timer_destroy(dev->timer);
    dev->timer = fn ? op_timer_create(pool_threads(dev->pool), fn, ctx) : NULL;
    return fn && !dev->timer ? ST_NOMEM : ST_OK;
}

static enum status cpu_measure_peaks(void *self, struct peaks *out, struct err *err) {
    struct cpu_device *dev = self;
    struct device plug = {.name = dev->name, .alloc = cpu_alloc, .free = cpu_free, .self = dev};
    return cpu_peaks_measure(&plug, out, err);
}

static struct work cpu_count_work(void *self, const struct device_run *run, const struct op *op) {
    (void)self;
    return cpu_op_work(run, op);
}

static void cpu_set_tap(void *self, device_tap_fn *fn, void *ctx) {
    struct cpu_device *dev = self;
    dev->tap = (struct cpu_tap){fn, ctx};
}

static const struct device_profiler cpu_profiler = {
    .watch = cpu_set_watch,
    .peaks = cpu_measure_peaks,
    .op_work = cpu_count_work,
    .tap = cpu_set_tap,
};

static void cpu_close(void *self) {
    struct cpu_device *dev = self;
    op_timer_destroy(dev->timer);
    for (struct list_link *l; (l = list_pop_first(&dev->weights));)
        pack_free(LIST_ITEM(l, struct packed, in_device));
    (void)image_source_close(dev->image, NULL);
    page_arena_deinit(&dev->panels);
    if (!dev->borrows_pool) pool_destroy(dev->pool);
    affinity_destroy(dev->affinity);
    mem_free(dev);
}

void cpu_device_place(struct device *device, enum cpu_placement mode) {
    struct cpu_device *dev = device->self;
    CHECK(!dev->affinity);
    CHECK(dev->weights.count == 0);
    dev->affinity = affinity_create(mode, pool_threads(dev->pool), &dev->unbound);
    affinity_bind_workers(dev->affinity, dev->pool);
    device->bound_to = affinity_text(dev->affinity);
    device->unbound_text = dev->unbound.text;
}

struct pool *cpu_device_pool(const struct device *device) {
    return ((struct cpu_device *)device->self)->pool;
}

bool cpu_device_is(const struct device *device) { return device->close == cpu_close; }

static struct device plug_of(struct cpu_device *dev) {
    return (struct device){
        .name = dev->name,
        .depth = 0,
        .threads = pool_threads(dev->pool),
        .unbound_text = "",
        .alloc = cpu_alloc,
        .free = cpu_free,
        .host_alloc = cpu_host_alloc,
        .host_free = cpu_host_free,
        .prepare = cpu_prepare,
        .update = cpu_update,
        .images = dev->table->packs ? &cpu_images : NULL,
        .kv_block_tokens = KV_TILE_TOKENS,
        .kv_block_bytes = cpu_kv_block_bytes,
        .program_create = cpu_create_program,
        .program_destroy = cpu_destroy_program,
        .submit = cpu_program_submit,
        .collect = cpu_program_collect,
        .profiler = &cpu_profiler,
        .close = cpu_close,
        .self = dev,
    };
}

/* `beside`: whose threads compute; NULL: `threads` of its own. */
static enum status open_device(const char *isa, uint32_t threads, const struct device *beside,
                               struct device *out, struct err *err) {
    TRY(cpu_isa_check(isa, err));
    const struct cpu_table *table = cpu_table_find(isa);
    struct cpu_device *dev = mem_zalloc(sizeof(*dev));
    if (!dev) return err_set(err, ST_NOMEM, "cpu: out of memory for the device");
    dev->table = table;
    memcpy(dev->name, "cpu-", 4);
    memcpy(dev->name + 4, table->name, strlen(table->name) + 1);
    snprintf(dev->layout, sizeof(dev->layout), "%s image %d layout %d panels %d", dev->name,
             IMAGE_VERSION, PACK_LAYOUT_VERSION, PANEL_ROWS);
    enum status st = ST_OK;
    dev->borrows_pool = beside != NULL;
    if (beside)
        dev->pool = cpu_device_pool(beside);
    else
        st = pool_create(&dev->pool, threads, err);
    if (st == ST_OK)
        *out = plug_of(dev);
    else
        mem_free(dev);
    return st;
}

enum status cpu_device_open(const char *isa, uint32_t threads, struct device *out,
                            struct err *err) {
    CHECK(threads >= 1);
    CHECK(threads <= POOL_THREADS_MAX);
    return open_device(isa, threads, NULL, out, err);
}

enum status cpu_device_open_beside(const char *isa, const struct device *other, struct device *out,
                                   struct err *err) {
    CHECK(cpu_device_is(other));
    return open_device(isa, 0, other, out, err);
}
