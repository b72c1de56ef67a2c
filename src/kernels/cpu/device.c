/* kernels/cpu/device.c - the CPU as a device: memory, weights, and the walk along a tape. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/pool.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/fp_mode.h"
#include "kernels/cpu/image_io.h"
#include "kernels/cpu/page.h"
#include "kernels/cpu/place.h"
#include "kernels/cpu/plan.h"
#include "kernels/cpu/stage.h"
#include "kernels/cpu/watch.h"

enum { NAME_BYTES = 32, LAYOUT_BYTES = 96 };

struct cpu_device {
    const struct cpu_table *table;
    struct pool *pool;
    struct place *place;    /* NULL: threads are not bound */
    struct packed *weights; /* all that were prepared */
    struct page_book panels;
    struct image_source *image; /* NULL: weights are packed */
    struct device_image_use image_use;
    struct cpu_plan *plans;  /* one for each tape that was checked */
    struct cpu_watch *watch; /* NULL: nobody does */
    char name[NAME_BYTES];
    char layout[LAYOUT_BYTES];
};

static void *cpu_alloc(void *self, size_t bytes) {
    const struct cpu_device *dev = self;
    void *ptr = page_alloc(bytes);
    place_spread(dev->place, ptr, bytes);
    return ptr;
}

static void cpu_free(void *self, void *ptr, size_t bytes) {
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
    if (!dev->table->packs || w->prepared) return ST_OK;
    struct packed *p = pack_create(w, &dev->panels);
    if (!p)
        return err_set(err, ST_NOMEM, "cpu: out of memory for weight %.*s of %zu bytes",
                       (int)w->name.len, w->name.ptr, w->bytes);
    fill(dev, p, w);
    p->next = dev->weights;
    dev->weights = p;
    w->prepared = p;
    return ST_OK;
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

static enum status cpu_image_bytes(void *self, struct str key, uint64_t *bytes, struct err *err) {
    const struct cpu_device *dev = self;
    struct image_ident id = ident_of(dev, key);
    return image_file_bytes(dev->weights, &id, bytes, err);
}

static enum status cpu_image_write(void *self, const struct device_image_out *out,
                                   struct err *err) {
    const struct cpu_device *dev = self;
    struct image_ident id = ident_of(dev, out->key);
    return image_write(dev->weights, &id, out, err);
}

static const struct device_images cpu_images = {
    .layout = cpu_image_layout,
    .open = cpu_image_open,
    .close = cpu_image_close,
    .bytes = cpu_image_bytes,
    .write = cpu_image_write,
};

/* ---- running ---- */

static void forget_plan(struct cpu_device *dev, const struct tape *t) {
    for (struct cpu_plan **link = &dev->plans; *link; link = &(*link)->next) {
        if ((*link)->tape != t) continue;
        struct cpu_plan *old = *link;
        *link = old->next;
        plan_destroy(old);
        return;
    }
}

static enum status cpu_check(void *self, const struct tape *t, struct err *err) {
    struct cpu_device *dev = self;
    for (uint32_t i = 0; i < tape_op_count(t); i++) {
        const struct op *op = tape_op(t, i);
        if (!dev->table->ops[op->kind])
            return err_set(err, ST_BAD, "%s lacks the op %s (op %u, layer %d)", dev->name,
                           op_name(op->kind), i, op->layer);
    }
    forget_plan(dev, t);
    struct cpu_plan *p;
    TRY(plan_create(&p, t, dev->table->kernels, pool_threads(dev->pool), err));
    p->next = dev->plans;
    dev->plans = p;
    place_weights(dev->place, t);
    return ST_OK;
}

static struct cpu_plan *find_plan(const struct cpu_device *dev, const struct tape *t) {
    struct cpu_plan *p = dev->plans;
    while (p && p->tape != t) p = p->next;
    return p;
}

static void run_op(const struct cpu_run *x, uint32_t i, uint32_t ith, uint32_t nth) {
    const struct op *op = tape_op(x->tape, i);
    x->table->ops[op->kind](x, op, ith, nth);
}

/* Ops that one thread does for all, while all others wait: so the scratch of any is its own. */
struct alone {
    const struct cpu_run *x;
    struct span ops;
};

static void run_alone(void *ctx) {
    const struct alone *a = ctx;
    struct lap lap = lap_begin_alone(a->x->watch);
    for (uint32_t i = a->ops.first; i < a->ops.end; i++) {
        run_op(a->x, i, 0, 1);
        lap_work(&lap, i);
    }
}

static void run_share(void *ctx, uint32_t ith, uint32_t nth) {
    const struct cpu_run *x = ctx;
    const struct cpu_plan *p = x->plan;
    uint64_t mode = fp_mode_enter();
    plan_fill_ropes(x, ith, nth);
    struct lap lap = lap_begin(x->watch, ith);
    for (uint32_t at = 0; at < p->stage_count;) {
        const struct stage *s = &p->stages[at];
        for (uint32_t i = s->first; i < s->end; i++) {
            run_op(x, i, ith, nth);
            lap_work(&lap, i);
        }
        at = stages_alone_end(p->stages, p->stage_count, at + 1, x->step, nth);
        struct alone rest = {x, {s->end, p->stages[at - 1].end}};
        bool was_mine = pool_barrier_then(x->pool, run_alone, &rest);
        lap_meet(&lap, &(struct lap_meeting){s->first, s->end, rest.ops.end, was_mine});
    }
    fp_mode_leave(mode);
}

static void cpu_run(void *self, const struct device_run *run) {
    struct cpu_device *dev = self;
    const struct tape_sizes *sizes = tape_sizes(run->tape);
    struct cpu_plan *plan = find_plan(dev, run->tape);
    struct cpu_run x = {
        .table = dev->table,
        .plan = plan,
        .tape = run->tape,
        .step = run->step,
        .kv = run->kv,
        .slab = run->slab,
        .pool = dev->pool,
        .watch = dev->watch,
    };
    CHECK(plan); /* check() comes before the first run */
    CHECK(run->step->row_count <= sizes->rows_max);
    CHECK(run->step->output_count <= sizes->outputs_max);
    CHECK(run->step->seq_count <= sizes->seqs_max);
    plan_reset_claims(plan);
    if (dev->watch) watch_begin(dev->watch, run);
    place_bind_caller(dev->place);
    pool_run(dev->pool, run_share, &x);
    if (dev->watch) watch_end(dev->watch, run);
}

static void cpu_parallel(void *self, pool_fn *fn, void *ctx) {
    struct cpu_device *dev = self;
    pool_run(dev->pool, fn, ctx);
}

static enum status cpu_watch(void *self, device_watch_fn *fn, void *ctx) {
    struct cpu_device *dev = self;
    watch_destroy(dev->watch);
    dev->watch = fn ? watch_create(pool_threads(dev->pool), fn, ctx) : NULL;
    return fn && !dev->watch ? ST_NOMEM : ST_OK;
}

static void cpu_close(void *self) {
    struct cpu_device *dev = self;
    watch_destroy(dev->watch);
    while (dev->plans) {
        struct cpu_plan *p = dev->plans;
        dev->plans = p->next;
        plan_destroy(p);
    }
    while (dev->weights) {
        struct packed *p = dev->weights;
        dev->weights = p->next;
        pack_free(p);
    }
    (void)image_source_close(dev->image, NULL);
    page_book_deinit(&dev->panels);
    pool_destroy(dev->pool);
    place_destroy(dev->place);
    mem_free(dev);
}

const char *cpu_device_place(const struct device *device, enum cpu_placement mode,
                             struct err *why) {
    struct cpu_device *dev = device->self;
    CHECK(!dev->place);
    CHECK(!dev->weights);
    dev->place = place_create(mode, pool_threads(dev->pool), why);
    place_bind_workers(dev->place, dev->pool);
    return place_text(dev->place);
}

enum status cpu_device_open(const char *isa, uint32_t threads, struct device *out,
                            struct err *err) {
    CHECK(threads >= 1);
    CHECK(threads <= POOL_THREADS_MAX);
    TRY(cpu_isa_check(isa, err));
    const struct cpu_table *table = cpu_table_find(isa);
    struct cpu_device *dev = mem_zalloc(sizeof(*dev));
    if (!dev) return err_set(err, ST_NOMEM, "cpu: out of memory for the device");
    dev->table = table;
    memcpy(dev->name, "cpu-", 4);
    memcpy(dev->name + 4, table->name, strlen(table->name) + 1);
    snprintf(dev->layout, sizeof(dev->layout), "%s image %d layout %d panels %d", dev->name,
             IMAGE_VERSION, PACK_LAYOUT_VERSION, PANEL_ROWS);
    enum status st = pool_create(&dev->pool, threads, err);
    if (st != ST_OK) {
        mem_free(dev);
        return st;
    }
    *out = (struct device){
        .name = dev->name,
        .alloc = cpu_alloc,
        .free = cpu_free,
        .prepare = cpu_prepare,
        .images = table->packs ? &cpu_images : NULL,
        .check = cpu_check,
        .run = cpu_run,
        .parallel = cpu_parallel,
        .watch = cpu_watch,
        .close = cpu_close,
        .self = dev,
    };
    return ST_OK;
}
