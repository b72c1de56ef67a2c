/* kernels/delayed/delayed.c - see kernels/delayed/delayed.h for the contract.
 *
 * Submitted steps wait in a ring; the device's thread takes them in order, runs each on the wrapped
 * device, copies the result into the step's place in the ring, and sleeps until the step's
 * time has passed. Everything in the ring is under one lock but the step that is being run.
 */
#define _DEFAULT_SOURCE
#include "kernels/delayed/delayed.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "graph/tape.h"

enum { RING = 8, NAME_BYTES = 64, MEMORY_MAX = 64, POISON = 0xFF };

struct delayed;

/* Where the results of one step are kept until they are no longer valid. */
struct result_place {
    struct row_output *outputs; /* [outputs_max] */
    float *rows;                /* [row_max * row_floats] */
    float *kept;                /* [row_max * kept_floats]; NULL: the tape keeps nothing */
    struct device_result result;
};

struct device_program {
    struct device_program *inner;
    struct program_options options; /* kv is not kept */
    size_t row_floats, row_max, kept_floats;
    struct result_place places[2]; /* of the step under way and of the one before it */
    uint64_t submitted, collected;
};

enum entry_state { ENTRY_FREE, ENTRY_WAITING, ENTRY_DONE };

struct entry {
    enum entry_state state;
    struct device_program *program;
    const struct step *step;
    struct result_place *place;
    uint64_t number; /* of the step, counted from 1 */
    int64_t submitted_us;
    enum status status;
    struct err err;
};

/* Device memory, which the host may not touch. */
struct memory {
    void *ptr;
    size_t bytes;
};

struct delayed {
    struct device inner;
    pthread_mutex_t inner_lock; /* one caller at a time */
    struct delayed_options options;
    char name[NAME_BYTES];

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing;
    struct entry ring[RING];
    uint64_t next_submit, next_run; /* both count steps; the ring's place is modulo RING */
    int64_t last_end_us;            /* the thread's */

    struct memory memory[MEMORY_MAX]; /* under the lock */
    uint64_t memory_used;             /* bytes of all pieces; under the lock */
    bool is_open;                     /* the memory is, for a step that runs */
};

/* ---- options ---- */

static enum status parse_pair(struct str key, struct str value, struct delayed_options *o,
                              struct err *err) {
    char text[24] = "", *end;
    if (value.len > 0 && value.len < sizeof(text)) memcpy(text, value.ptr, value.len);
    unsigned long long number = strtoull(text, &end, 10);
    if (!text[0] || *end || text[0] == '-' || number > (1ull << 40))
        return err_set(err, ST_BAD,
                       "device delayed: %.*s is \"%.*s\", expected a whole number up to 2^40",
                       STR_ARG(key), STR_ARG(value));
    if (str_is(key, "depth") && number > 1)
        return err_set(err, ST_BAD, "device delayed: depth is %llu, expected 0 or 1", number);
    if (str_is(key, "depth"))
        o->depth = (uint32_t)number;
    else if (str_is(key, "delay"))
        o->delay_us = (int64_t)number;
    else if (str_is(key, "jitter"))
        o->jitter_us = (int64_t)number;
    else if (str_is(key, "seed"))
        o->seed = number;
    else if (str_is(key, "fail"))
        o->fail_step = number;
    else if (str_is(key, "lose"))
        o->lose_step = number;
    else if (str_is(key, "memory"))
        o->memory = number;
    else
        return err_set(
            err, ST_BAD,
            "device delayed: unknown option \"%.*s\"; known: depth, delay, jitter, seed, "
            "fail, lose, memory",
            STR_ARG(key));
    return ST_OK;
}

enum status delayed_parse(struct str text, struct delayed_options *out, struct err *err) {
    *out = (struct delayed_options){.depth = 1, .jitter_us = 300, .seed = 1};
    while (text.len > 0) {
        const char *comma = memchr(text.ptr, ',', text.len);
        struct str pair = {text.ptr, comma ? (size_t)(comma - text.ptr) : text.len};
        const char *equals = memchr(pair.ptr, '=', pair.len);
        struct str key = {pair.ptr, equals ? (size_t)(equals - pair.ptr) : pair.len};
        struct str value = equals ? str_skip(pair, key.len + 1) : STR("");
        TRY(parse_pair(key, value, out, err));
        text = str_skip(text, pair.len + (comma != NULL));
    }
    return ST_OK;
}

/* ---- memory ---- */

static void protect(const struct memory *m, bool is_open) {
    int rc = mprotect(m->ptr, m->bytes, is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
    CHECK(rc == 0);
}

static void protect_all(struct delayed *d, bool is_open) {
    pthread_mutex_lock(&d->lock);
    d->is_open = is_open;
    for (int i = 0; i < MEMORY_MAX; i++)
        if (d->memory[i].ptr) protect(&d->memory[i], is_open);
    pthread_mutex_unlock(&d->lock);
}

static struct device_memory delayed_memory(void *self) {
    struct delayed *d = self;
    pthread_mutex_lock(&d->lock);
    struct device_memory out = {d->options.memory - d->memory_used, d->options.memory};
    pthread_mutex_unlock(&d->lock);
    return out;
}

static bool has_room(struct delayed *d, size_t bytes) {
    return d->options.memory == 0 || bytes <= delayed_memory(d).free_bytes;
}

static device_addr delayed_alloc(void *self, size_t bytes) {
    struct delayed *d = self;
    device_addr out = 0;
    if (!has_room(d, bytes)) return 0;
    void *ptr = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ptr == MAP_FAILED) return 0;
    pthread_mutex_lock(&d->lock);
    d->memory_used += bytes;
    for (int i = 0; i < MEMORY_MAX && !out; i++) {
        if (d->memory[i].ptr) continue;
        d->memory[i] = (struct memory){ptr, bytes};
        if (d->is_open) protect(&d->memory[i], true);
        out = (device_addr)(uintptr_t)ptr;
    }
    pthread_mutex_unlock(&d->lock);
    CHECK(out); /* more pieces than any model has KV groups */
    return out;
}

static void delayed_free(void *self, device_addr addr, size_t bytes) {
    struct delayed *d = self;
    void *ptr = (void *)(uintptr_t)addr;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < MEMORY_MAX; i++)
        if (d->memory[i].ptr == ptr) d->memory[i] = (struct memory){NULL, 0};
    d->memory_used -= bytes;
    pthread_mutex_unlock(&d->lock);
    munmap(ptr, bytes);
}

static void *delayed_host_alloc(void *self, size_t bytes, int fd) {
    struct delayed *d = self;
    pthread_mutex_lock(&d->inner_lock);
    void *ptr = d->inner.host_alloc(d->inner.self, bytes, fd);
    pthread_mutex_unlock(&d->inner_lock);
    return ptr;
}

static void delayed_host_free(void *self, void *ptr, size_t bytes) {
    struct delayed *d = self;
    pthread_mutex_lock(&d->inner_lock);
    d->inner.host_free(d->inner.self, ptr, bytes);
    pthread_mutex_unlock(&d->inner_lock);
}

static enum status delayed_prepare(void *self, struct weight *w, struct err *err) {
    struct delayed *d = self;
    pthread_mutex_lock(&d->inner_lock);
    enum status st = d->inner.prepare(d->inner.self, w, err);
    pthread_mutex_unlock(&d->inner_lock);
    return st;
}

static size_t delayed_kv_block_bytes(void *self, const struct kv_shape *shape) {
    struct delayed *d = self;
    return d->inner.kv_block_bytes(d->inner.self, shape);
}

/* ---- programs ---- */

static void program_free(struct delayed *d, struct device_program *p) {
    pthread_mutex_lock(&d->inner_lock);
    d->inner.program_destroy(d->inner.self, p->inner);
    pthread_mutex_unlock(&d->inner_lock);
    for (int i = 0; i < 2; i++) {
        mem_free(p->places[i].outputs);
        mem_free(p->places[i].rows);
        mem_free(p->places[i].kept);
    }
    mem_free(p);
}

static enum status make_places(struct device_program *p) {
    for (int i = 0; i < 2; i++) {
        struct result_place *place = &p->places[i];
        place->outputs = mem_zalloc_array(p->row_max, sizeof(place->outputs[0]));
        place->rows = mem_alloc_array(p->row_max * p->row_floats, sizeof(float));
        if (!place->outputs || !place->rows) return ST_NOMEM;
        if (p->kept_floats == 0) continue;
        place->kept = mem_alloc_array(p->row_max * p->kept_floats, sizeof(float));
        if (!place->kept) return ST_NOMEM;
    }
    return ST_OK;
}

static enum status delayed_program_create(void *self, const struct program_options *options,
                                          struct device_program **out, struct err *err) {
    struct delayed *d = self;
    struct device_program *p = mem_zalloc(sizeof(*p));
    if (!p) return err_set(err, ST_NOMEM, "out of memory for a program");
    const struct tape_value *v = tape_value_at(options->tape, tape_output(options->tape));
    p->options = *options;
    p->options.kv = NULL;
    p->row_floats = v->row_bytes / sizeof(float);
    p->row_max = tape_rows_max(options->tape, v);
    if (tape_kept(options->tape) != VALUE_NONE)
        p->kept_floats =
            tape_value_at(options->tape, tape_kept(options->tape))->row_bytes / sizeof(float);
    pthread_mutex_lock(&d->inner_lock);
    enum status st = d->inner.program_create(d->inner.self, options, &p->inner, err);
    pthread_mutex_unlock(&d->inner_lock);
    if (st == ST_OK && make_places(p) != ST_OK)
        st = err_set(err, ST_NOMEM, "out of memory for the results of a program");
    if (st != ST_OK) {
        program_free(d, p);
        return st;
    }
    *out = p;
    return ST_OK;
}

static void delayed_program_destroy(void *self, struct device_program *p) {
    if (!p) return;
    CHECK(p->submitted == p->collected);
    program_free(self, p);
}

/* ---- the thread ---- */

/* Results that were collected are no longer valid. */
static void poison(const struct device_program *p, struct result_place *place) {
    memset(place->outputs, POISON, p->row_max * sizeof(place->outputs[0]));
    memset(place->rows, POISON, p->row_max * p->row_floats * sizeof(float));
    if (place->kept) memset(place->kept, POISON, p->row_max * p->kept_floats * sizeof(float));
}

static void keep_result(const struct device_program *p, const struct device_result *from,
                        struct result_place *place) {
    CHECK(from->output_count <= p->row_max);
    place->result = *from;
    if (from->outputs)
        memcpy(place->outputs, from->outputs, from->output_count * sizeof(place->outputs[0]));
    memcpy(place->rows, from->rows, from->output_count * p->row_floats * sizeof(float));
    place->result.outputs = from->outputs ? place->outputs : NULL;
    place->result.rows = place->rows;
    if (place->kept)
        memcpy(place->kept, from->kept, from->output_count * p->kept_floats * sizeof(float));
    place->result.kept = place->kept;
}

static void run_entry(struct delayed *d, struct entry *e) {
    const struct delayed_options *o = &d->options;
    struct device_result result;
    if (e->number == o->fail_step || (o->lose_step && e->number >= o->lose_step)) {
        e->status = err_set(&e->err, ST_DEVICE,
                            "device delayed: step %llu failed because of the option fail or lose",
                            (unsigned long long)e->number);
        return;
    }
    pthread_mutex_lock(&d->inner_lock);
    protect_all(d, true);
    e->status = d->inner.submit(d->inner.self, e->program->inner, e->step, &e->err);
    if (e->status == ST_OK)
        e->status = d->inner.collect(d->inner.self, e->program->inner, &result, &e->err);
    if (e->status == ST_OK) keep_result(e->program, &result, e->place);
    protect_all(d, false);
    pthread_mutex_unlock(&d->inner_lock);
}

static int64_t delay_of(const struct delayed *d, uint64_t number) {
    const struct delayed_options *o = &d->options;
    int64_t jitter_us = (int64_t)(rng_unit_at(o->seed, 0, number) * (double)o->jitter_us);
    return o->delay_us + jitter_us;
}

static void sleep_until(int64_t end_us) {
    int64_t left_us = end_us - clock_now(&clock_real);
    if (left_us <= 0) return;
    struct timespec t = {.tv_sec = left_us / 1000000, .tv_nsec = left_us % 1000000 * 1000};
    while (nanosleep(&t, &t) != 0) {
    }
}

/* Run the oldest step. Called with the lock held, and returns with it. */
static void run_next(struct delayed *d) {
    struct entry *e = &d->ring[d->next_run % RING];
    int64_t begin_us = e->submitted_us > d->last_end_us ? e->submitted_us : d->last_end_us;
    pthread_mutex_unlock(&d->lock);
    run_entry(d, e);
    int64_t planned_us = begin_us + delay_of(d, e->number);
    sleep_until(planned_us);
    int64_t end_us = clock_now(&clock_real);
    e->place->result.elapsed_us = end_us - begin_us;
    /* A sleep that was a little too long does not make the next step late. */
    d->last_end_us = end_us - planned_us < 200 ? planned_us : end_us;
    pthread_mutex_lock(&d->lock);
    e->state = ENTRY_DONE;
    d->next_run++;
    pthread_cond_broadcast(&d->changed);
}

static void *thread_main(void *arg) {
    struct delayed *d = arg;
    pthread_mutex_lock(&d->lock);
    while (!d->closing || d->next_run < d->next_submit) {
        if (d->next_run < d->next_submit)
            run_next(d);
        else
            pthread_cond_wait(&d->changed, &d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* ---- steps ---- */

static enum status delayed_submit(void *self, struct device_program *p, const struct step *step,
                                  struct err *err) {
    struct delayed *d = self;
    (void)err;
    pthread_mutex_lock(&d->lock);
    CHECK(p->submitted - p->collected <= d->options.depth);
    struct entry *e = &d->ring[d->next_submit % RING];
    while (e->state != ENTRY_FREE) pthread_cond_wait(&d->changed, &d->lock);
    *e = (struct entry){.state = ENTRY_WAITING,
                        .program = p,
                        .step = step,
                        .place = &p->places[p->submitted % 2],
                        .number = d->next_submit + 1,
                        .submitted_us = clock_now(&clock_real)};
    if (p->collected > 0) poison(p, &p->places[(p->collected - 1) % 2]);
    p->submitted++;
    d->next_submit++;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    return ST_OK;
}

/* The oldest step of the program that was not collected. */
static struct entry *oldest_of(struct delayed *d, const struct device_program *p) {
    uint64_t first = d->next_submit > RING ? d->next_submit - RING : 0;
    for (uint64_t i = first; i < d->next_submit; i++) {
        struct entry *e = &d->ring[i % RING];
        if (e->state != ENTRY_FREE && e->program == p) return e;
    }
    return NULL;
}

static enum status delayed_collect(void *self, struct device_program *p, struct device_result *out,
                                   struct err *err) {
    struct delayed *d = self;
    pthread_mutex_lock(&d->lock);
    struct entry *e = oldest_of(d, p);
    CHECK(e);
    while (e->state != ENTRY_DONE) pthread_cond_wait(&d->changed, &d->lock);
    enum status st = e->status;
    *out = e->place->result;
    if (st != ST_OK && err) *err = e->err;
    e->state = ENTRY_FREE;
    p->collected++;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    return st;
}

/* ---- open and close ---- */

static void delayed_close(void *self) {
    struct delayed *d = self;
    if (d->has_thread) {
        pthread_mutex_lock(&d->lock);
        d->closing = true;
        pthread_cond_broadcast(&d->changed);
        pthread_mutex_unlock(&d->lock);
        pthread_join(d->thread, NULL);
    }
    d->inner.close(d->inner.self);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->inner_lock);
    mem_free(d);
}

static struct device plug_of(struct delayed *d) {
    return (struct device){
        .name = d->name,
        .depth = d->options.depth,
        .threads = d->inner.threads,
        .bound_to = d->inner.bound_to,
        .unbound_text = d->inner.unbound_text,
        .memory = d->options.memory ? delayed_memory : NULL,
        .alloc = delayed_alloc,
        .free = delayed_free,
        .host_alloc = delayed_host_alloc,
        .host_free = delayed_host_free,
        .prepare = delayed_prepare,
        .kv_block_tokens = d->inner.kv_block_tokens,
        .kv_block_bytes = delayed_kv_block_bytes,
        .program_create = delayed_program_create,
        .program_destroy = delayed_program_destroy,
        .submit = delayed_submit,
        .collect = delayed_collect,
        .close = delayed_close,
        .self = d,
    };
}

enum status delayed_open(const struct device *inner, const struct delayed_options *options,
                         struct device *out, struct err *err) {
    CHECK(inner->depth == 0);
    CHECK(options->depth <= 1);
    struct delayed *d = mem_zalloc(sizeof(*d));
    if (!d) {
        inner->close(inner->self);
        return err_set(err, ST_NOMEM, "delayed: out of memory for the device");
    }
    d->inner = *inner;
    d->options = *options;
    snprintf(d->name, sizeof(d->name), "delayed-%s", inner->name);
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->inner_lock, NULL);
    pthread_cond_init(&d->changed, NULL);
    int rc = pthread_create(&d->thread, NULL, thread_main, d);
    d->has_thread = rc == 0;
    if (rc != 0) {
        delayed_close(d);
        return err_set(err, ST_NOMEM, "delayed: cannot start a thread: %s", strerror(rc));
    }
    *out = plug_of(d);
    return ST_OK;
}
