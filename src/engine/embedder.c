/* engine/embedder.c - see engine/embedder.h for the contract.
 *
 * Entry points: embedder_open, embedder_close, embedder_submit, embedder_next, embedder_run.
 *
 * A batch is as many waiting texts, in the order of the queue, as fit the rows of one pass. A
 * decoder's text that is longer than a pass is a batch of its own and takes several passes. One
 * such text is under way at a time: it has KV blocks of its own, which keep what was computed while
 * other batches run, and it stays in the queue until its last pass. An encoder's text is cut to
 * what the model takes, which always fits. The model is locked while a pass is submitted and not
 * longer, so a serving engine takes turns with it.
 */
#include "engine/embedder.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "engine/mean.h"
#include "graph/step.h"

enum {
    BATCH_TOKENS_DEFAULT = 2048,
    QUEUE_MAX_DEFAULT = 4096,
    BATCH_TEXTS_MAX = 256,
    SPARE_BLOCKS = 64, /* of a batch: texts end in partly filled blocks */
};

struct embedder {
    struct loaded_model *loaded;
    bool is_encoder;
    uint32_t dims, tokens_max;
    uint32_t batch_tokens, rows_max;
    int64_t window_us;
    enum kv_type kv_type;

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t arrived;  /* a job, or the end */
    pthread_cond_t finished; /* a batch */
    struct embed_queue waiting;
    struct list done;
    double token_us; /* of a pass, on average */
    bool is_closing;
    embedder_hook *hook;
    void *hook_ctx;

    atomic_llong pass_began_us; /* 0: none is under way */

    /* The embedder thread's. */
    pthread_t thread;
    bool is_running;
    struct pass pass;
    struct kv_memory kv; /* decoders */
    struct embed_job *batch[BATCH_TEXTS_MAX];
    uint32_t batch_count;
    struct embed_job *long_job; /* longer than a pass, begun and not done; NULL: none */
    struct step *step;
    uint32_t long_blocks, batch_blocks; /* KV blocks: first those of the long text */
};

/* Tokens that are computed for a job: an encoder cuts long texts. */
static uint32_t kept_tokens(const struct embedder *e, const struct embed_job *job) {
    return job->count < e->tokens_max ? job->count : e->tokens_max;
}

/* ---- one batch ---- */

/* Token i of what is computed: a text that was cut still ends with its last token, the end mark. */
static int32_t kept_token(const struct embed_job *job, uint32_t kept, uint32_t i) {
    return i + 1 == kept ? job->ids[job->count - 1] : job->ids[i];
}

/* Blocks that hold so many tokens. */
static uint32_t blocks_of(const struct embedder *e, uint32_t tokens) {
    uint32_t block_tokens = e->loaded->device.kv_block_tokens;
    return (tokens + block_tokens - 1) / block_tokens;
}

/* Tokens [first, first + count) of a job become rows; its blocks begin at `block`. */
static void fill_seq(struct embedder *e, const struct embed_job *job, uint32_t first,
                     uint32_t count, uint32_t block) {
    struct step *step = e->step;
    uint32_t index = step->seq_count++;
    step->seqs[index] = (struct step_seq){.first_row = step->row_count, .row_count = count};
    for (uint32_t g = 0; g < e->kv.group_count; g++)
        for (uint32_t b = 0; b < blocks_of(e, first + count); b++)
            step_blocks(step, index, g)[b] = block + b;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t r = step->row_count++;
        step->token[r] = kept_token(job, job->tokens, first + i);
        step->pos[r] = (int32_t)(first + i);
        step->seq[r] = index;
        step->output_row[r] = r;
    }
}

static void note_pace(struct embedder *e, int64_t took_us, uint32_t tokens) {
    const double newest_share = 0.2;
    double token_us = (double)took_us / tokens;
    pthread_mutex_lock(&e->lock);
    e->token_us =
        e->token_us > 0 ? e->token_us + newest_share * (token_us - e->token_us) : token_us;
    pthread_mutex_unlock(&e->lock);
}

static enum status run_step(struct embedder *e, struct device_result *out, struct err *err) {
    struct device *dev = &e->loaded->device;
    e->step->output_count = e->is_encoder ? 0 : e->step->row_count;
    e->step->hands_over = true;
    loaded_model_lock(e->loaded);
    int64_t began_us = clock_now(&clock_real);
    atomic_store(&e->pass_began_us, began_us);
    enum status st = dev->submit(dev->self, e->pass.program, e->step, err);
    loaded_model_unlock(e->loaded);
    if (st == ST_OK) st = pass_collect(e->loaded, &e->pass, out, err);
    atomic_store(&e->pass_began_us, 0);
    if (st == ST_OK) note_pace(e, clock_now(&clock_real) - began_us, e->step->row_count);
    return st;
}

/* All texts of the batch in one pass. */
static enum status run_together(struct embedder *e, struct err *err) {
    uint32_t block = e->long_blocks;
    struct device_result result;
    step_clear(e->step);
    for (uint32_t n = 0; n < e->batch_count; n++) {
        fill_seq(e, e->batch[n], 0, e->batch[n]->tokens, block);
        block += blocks_of(e, e->batch[n]->tokens);
    }
    CHECK(e->step->row_count <= e->rows_max);
    CHECK(e->is_encoder || block <= e->long_blocks + e->batch_blocks);
    TRY(run_step(e, &result, err));
    for (uint32_t n = 0; n < e->batch_count; n++) {
        float *out = e->batch[n]->out;
        if (e->is_encoder) {
            memcpy(out, result.rows + n * result.row_floats, e->dims * sizeof(float));
            continue;
        }
        const struct step_seq *seq = &e->step->seqs[n];
        memset(out, 0, e->dims * sizeof(float));
        mean_add(out, e->dims, result.rows + seq->first_row * result.row_floats, result.row_floats,
                 seq->row_count);
        mean_finish(out, e->dims);
    }
    return ST_OK;
}

/* The next tokens of the long text; they are charged already. */
static enum status run_part(struct embedder *e, struct embed_job *job, uint32_t first,
                            struct err *err) {
    uint32_t count = job->computed - first;
    struct device_result result;
    if (first == 0) memset(job->out, 0, e->dims * sizeof(float));
    step_clear(e->step);
    fill_seq(e, job, first, count, 0);
    TRY(run_step(e, &result, err));
    mean_add(job->out, e->dims, result.rows, result.row_floats, count);
    if (job->computed == job->tokens) mean_finish(job->out, e->dims);
    return ST_OK;
}

static void check_numbers(const struct embedder *e, struct embed_job *job) {
    for (uint32_t i = 0; i < e->dims; i++)
        if (!isfinite(job->out[i])) {
            job->status =
                err_set(&job->err, ST_DEVICE, "the model computed a value that is not a number");
            return;
        }
}

/* ---- the thread ---- */

static struct timespec deadline_after(int64_t us) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + us % 1000000 * 1000;
    t.tv_sec += (time_t)(us / 1000000 + ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return t;
}

static bool is_full(const struct embedder *e) {
    return e->waiting.tokens >= e->batch_tokens || e->waiting.texts.used >= BATCH_TEXTS_MAX;
}

/* Wait until there are texts to run; false: the embedder is being closed. Under the lock. */
static bool await_jobs(struct embedder *e) {
    while (e->waiting.tokens == 0 && !e->is_closing) pthread_cond_wait(&e->arrived, &e->lock);
    if (e->window_us > 0) {
        struct timespec deadline = deadline_after(e->window_us);
        while (!is_full(e) && !e->is_closing)
            if (pthread_cond_timedwait(&e->arrived, &e->lock, &deadline) == ETIMEDOUT) break;
    }
    return !e->is_closing;
}

static void set_ended(struct embed_job *job) {
    job->status = err_set(&job->err, ST_CANCELLED,
                          job->has_expired ? "the request exceeded its deadline"
                                           : "the request was cancelled");
}

/* Texts that were cancelled or have expired are done. Under the lock. */
static void end_jobs(struct embedder *e, struct list *ended) {
    for (struct list_link *l; (l = list_pop_first(ended));) {
        struct embed_job *job = LIST_ITEM(l, struct embed_job, link);
        if (job == e->long_job) e->long_job = NULL;
        set_ended(job);
        list_push_last(&e->done, &job->link);
    }
}

/* The text becomes part of the batch and leaves the queue. Under the lock. */
static void take_job(struct embedder *e, struct embed_job *job) {
    embed_queue_charge(&e->waiting, job, job->tokens);
    embed_queue_remove(&e->waiting, job);
    e->batch[e->batch_count++] = job;
}

/* The next part of a long text. Under the lock. Returns where it begins. */
static uint32_t take_part(struct embedder *e, struct embed_job *job) {
    uint32_t first = job->computed, left = job->tokens - first;
    e->long_job = job;
    job->is_under_way = true;
    embed_queue_charge(&e->waiting, job, left < e->rows_max ? left : e->rows_max);
    return first;
}

/* Choose what the next pass computes: a part of a long text, which is returned, or a batch.
 * Under the lock. */
static struct embed_job *gather(struct embedder *e, uint32_t *first) {
    uint32_t rows = 0, blocks = 0;
    struct embed_job *job;
    e->batch_count = 0;
    while (e->batch_count < BATCH_TEXTS_MAX &&
           (job = embed_queue_next(&e->waiting, e->rows_max, e->long_job))) {
        bool is_long = job->tokens > e->rows_max;
        if (is_long && e->batch_count > 0) break;
        if (is_long) {
            *first = take_part(e, job);
            return job;
        }
        rows += job->tokens;
        blocks += blocks_of(e, job->tokens);
        bool fits = rows <= e->batch_tokens && (e->is_encoder || blocks <= e->batch_blocks);
        if (!fits && e->batch_count > 0) break; /* one always fits */
        take_job(e, job);
    }
    return NULL;
}

static void set_result(const struct embedder *e, struct embed_job *job, enum status st,
                       const struct err *err) {
    if (st == ST_OK) {
        check_numbers(e, job);
    } else {
        job->status = st;
        job->err = *err;
    }
}

/* A pass of the long text has been computed. Under the lock. */
static void finish_part(struct embedder *e, struct embed_job *job, enum status st,
                        const struct err *err) {
    job->is_under_way = false;
    if (st == ST_OK && job->computed < job->tokens && !job->is_cancelled) return;
    e->long_job = NULL;
    embed_queue_remove(&e->waiting, job);
    if (job->is_cancelled)
        set_ended(job);
    else
        set_result(e, job, st, err);
    list_push_last(&e->done, &job->link);
}

/* One pass. Enters and leaves with the lock, and computes without it. */
static void run_pass(struct embedder *e) {
    struct list ended = {0};
    struct err err = {{0}};
    uint32_t first = 0;
    embed_queue_expire(&e->waiting, clock_now(&clock_real), &ended);
    end_jobs(e, &ended);
    struct embed_job *part = gather(e, &first);
    if (!part && e->batch_count == 0) return; /* all have expired */
    pthread_mutex_unlock(&e->lock);
    enum status st = part ? run_part(e, part, first, &err) : run_together(e, &err);
    for (uint32_t n = 0; n < e->batch_count; n++) set_result(e, e->batch[n], st, &err);
    pthread_mutex_lock(&e->lock);
    if (part) finish_part(e, part, st, &err);
    for (uint32_t n = 0; n < e->batch_count; n++) list_push_last(&e->done, &e->batch[n]->link);
}

/* Something is done: wake those that wait. Enters with the lock, and leaves with it. */
static void notify(struct embedder *e) {
    if (e->done.count == 0) return;
    embedder_hook *hook = e->hook;
    void *ctx = e->hook_ctx;
    pthread_cond_broadcast(&e->finished);
    pthread_mutex_unlock(&e->lock);
    if (hook) hook(ctx);
    pthread_mutex_lock(&e->lock);
}

static void *embedder_main(void *arg) {
    struct embedder *e = arg;
    pthread_mutex_lock(&e->lock);
    while (await_jobs(e)) {
        run_pass(e);
        notify(e);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* ---- open and close ---- */

static void choose_sizes(struct embedder *e, const struct embedder_options *o) {
    const struct model *m = e->loaded->model;
    e->is_encoder = model_is_encoder(m);
    e->dims = m->hp.dim;
    e->tokens_max = e->is_encoder ? m->hp.embed_tokens_max : e->loaded->ctx_tokens;
    e->batch_tokens = o->batch_tokens ? o->batch_tokens : BATCH_TOKENS_DEFAULT;
    embed_queue_init(&e->waiting, o->queue_max ? o->queue_max : QUEUE_MAX_DEFAULT, o->queue_least,
                     o->has_tenants);
    e->window_us = o->window_us;
    e->kv_type = o->kv_type;
    e->rows_max = e->batch_tokens;
    if (e->is_encoder && e->rows_max < e->tokens_max) e->rows_max = e->tokens_max;
}

/* A decoder needs blocks for the longest text, if that takes several passes, and for a batch. */
static enum status make_kv(struct embedder *e, struct err *err) {
    if (e->is_encoder) return ST_OK;
    struct kv_memory_options o = {.type = e->kv_type,
                                  .block_tokens = e->loaded->device.kv_block_tokens};
    e->long_blocks = e->tokens_max > e->rows_max ? blocks_of(e, e->tokens_max) : 0;
    e->batch_blocks = blocks_of(e, e->batch_tokens) + SPARE_BLOCKS;
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
        o.block_counts[g] = e->long_blocks + e->batch_blocks;
    return kv_memory_create(e->loaded, &o, &e->kv, err);
}

static enum status make_pass(struct embedder *e, struct err *err) {
    struct pass_options o = {
        .goal = e->is_encoder ? GOAL_POOLED : GOAL_HIDDEN,
        .sizes = {.rows_max = e->rows_max,
                  .outputs_max = e->is_encoder ? 1 : e->rows_max,
                  .seqs_max = BATCH_TEXTS_MAX,
                  .group_count = e->kv.group_count,
                  .blocks_max = e->is_encoder ? 0 : blocks_of(e, e->tokens_max)},
        .kv = e->is_encoder ? NULL : &e->kv};
    struct step_sizes tables = o.sizes;
    tables.outputs_max = e->rows_max;
    TRY(pass_create(e->loaded, &o, &e->pass, err));
    return step_create(&e->step, &e->loaded->device, &tables, err);
}

static enum status make_parts(struct embedder *e, struct err *err) {
    loaded_model_lock(e->loaded);
    enum status st = make_kv(e, err);
    if (st == ST_OK) st = make_pass(e, err);
    loaded_model_unlock(e->loaded);
    return st;
}

static enum status start(struct embedder *e, struct err *err) {
    int rc = pthread_create(&e->thread, NULL, embedder_main, e);
    if (rc != 0)
        return err_set(err, ST_NOMEM, "cannot start the embedder's thread: %s", strerror(rc));
    e->is_running = true;
    return ST_OK;
}

static void init_waits(struct embedder *e) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&e->arrived, &attr);
    pthread_cond_init(&e->finished, NULL);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&e->lock, NULL);
}

enum status embedder_open(struct embedder **out, struct loaded_model *loaded,
                          const struct embedder_options *options, struct err *err) {
    if (!loaded->has_weights)
        return err_set(err, ST_BAD,
                       "the model was opened without its weights, which embedding needs");
    struct embedder *e = mem_zalloc(sizeof(*e));
    if (!e) return err_set(err, ST_NOMEM, "out of memory for an embedder");
    e->loaded = loaded;
    init_waits(e);
    choose_sizes(e, options);
    enum status st = make_parts(e, err);
    if (st == ST_OK) st = start(e, err);
    if (st != ST_OK) {
        embedder_close(e);
        return st;
    }
    *out = e;
    return ST_OK;
}

static void stop(struct embedder *e) {
    if (!e->is_running) return;
    pthread_mutex_lock(&e->lock);
    e->is_closing = true;
    pthread_cond_signal(&e->arrived);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
}

void embedder_close(struct embedder *e) {
    if (!e) return;
    stop(e);
    for (struct embed_job *job; (job = embed_queue_next(&e->waiting, 0, NULL));) {
        job->status = err_set(&job->err, ST_CANCELLED, "the model is being closed");
        embed_queue_remove(&e->waiting, job);
    }
    embed_queue_deinit(&e->waiting);
    loaded_model_lock(e->loaded);
    step_destroy(e->step, &e->loaded->device);
    pass_destroy(e->loaded, &e->pass);
    kv_memory_destroy(e->loaded, &e->kv);
    loaded_model_unlock(e->loaded);
    pthread_cond_destroy(&e->arrived);
    pthread_cond_destroy(&e->finished);
    pthread_mutex_destroy(&e->lock);
    mem_free(e);
}

/* ---- clients ---- */

uint32_t embedder_dims(const struct embedder *e) { return e->dims; }
uint32_t embedder_tokens_max(const struct embedder *e) { return e->tokens_max; }

static enum status check_job(const struct embedder *e, const struct embed_job *job,
                             struct err *err) {
    if (job->count == 0) return err_set(err, ST_BAD, "the text is empty, expected one token");
    if (!e->is_encoder && job->count > e->tokens_max)
        return err_set(err, ST_BAD, "the text has %u tokens and the context holds %u", job->count,
                       e->tokens_max);
    uint32_t kept = kept_tokens(e, job), vocab = e->loaded->model->hp.vocab;
    for (uint32_t i = 0; i < kept; i++) {
        int32_t token = kept_token(job, kept, i);
        if (token < 0 || (uint32_t)token >= vocab)
            return err_set(err, ST_BAD, "token %u is %d, the model's vocabulary has 0 to %u", i,
                           token, vocab - 1);
    }
    return ST_OK;
}

enum status embedder_submit(struct embedder *e, struct embed_job *jobs, uint32_t count,
                            struct err *err) {
    for (uint32_t i = 0; i < count; i++) {
        TRY(check_job(e, &jobs[i], err));
        jobs[i].tokens = kept_tokens(e, &jobs[i]);
        jobs[i].status = ST_OK;
        jobs[i].err = (struct err){0};
    }
    pthread_mutex_lock(&e->lock);
    enum status st = embed_queue_add(&e->waiting, jobs, count);
    uint64_t room = embed_queue_room(&e->waiting, jobs[0].tenant), max = e->waiting.texts.max;
    pthread_cond_signal(&e->arrived);
    pthread_mutex_unlock(&e->lock);
    if (st != ST_FULL) return st == ST_OK ? st : err_set(err, st, "out of memory for a text");
    return err_set(err, ST_FULL,
                   "the queue is full: at most %llu texts may wait, %llu more of this tenant now",
                   (unsigned long long)max, (unsigned long long)room);
}

void embedder_cancel(struct embedder *e, const void *user) {
    struct list ended = {0};
    pthread_mutex_lock(&e->lock);
    embed_queue_cancel(&e->waiting, user, &ended);
    end_jobs(e, &ended);
    notify(e);
    pthread_mutex_unlock(&e->lock);
}

static struct embed_job *take_done(struct embedder *e) {
    return LIST_ITEM(list_pop_first(&e->done), struct embed_job, link);
}

enum status embedder_run(struct embedder *e, struct embed_job *job, struct err *err) {
    struct embed_job *done;
    TRY(embedder_submit(e, job, 1, err));
    pthread_mutex_lock(&e->lock);
    while (!(done = take_done(e))) pthread_cond_wait(&e->finished, &e->lock);
    pthread_mutex_unlock(&e->lock);
    CHECK(done == job);
    if (job->status != ST_OK) *err = job->err;
    return job->status;
}

struct embedder_queue embedder_queue(struct embedder *e, uint32_t tenant) {
    pthread_mutex_lock(&e->lock);
    double tokens = (double)embed_queue_tokens_before(&e->waiting, tenant);
    struct embedder_queue queue = {.room = embed_queue_room(&e->waiting, tenant),
                                   .wait_us = (int64_t)(tokens * e->token_us)};
    pthread_mutex_unlock(&e->lock);
    return queue;
}

struct embed_job *embedder_next(struct embedder *e) {
    pthread_mutex_lock(&e->lock);
    struct embed_job *job = take_done(e);
    pthread_mutex_unlock(&e->lock);
    return job;
}

int64_t embedder_stalled_us(const struct embedder *e) {
    int64_t began_us = atomic_load(&e->pass_began_us);
    return began_us ? clock_now(&clock_real) - began_us : 0;
}

void embedder_set_hook(struct embedder *e, embedder_hook *hook, void *ctx) {
    pthread_mutex_lock(&e->lock);
    e->hook = hook;
    e->hook_ctx = ctx;
    pthread_mutex_unlock(&e->lock);
}
