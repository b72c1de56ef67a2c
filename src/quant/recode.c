/* quant/recode.c - see quant/recode.h for the contract.
 *
 * A batch is a run of pieces. Piece i belongs to thread i % threads; each is encoded into its place
 * in the output of the batch. Where a tensor is cut has no effect on the bytes, because it is cut
 * between blocks.
 */
#include "quant/recode.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/pool.h"
#include "format/tensor_read.h"
#include "quant/numbers.h"
#include "quant/quant.h"

enum {
    PIECE_ELEMS = 1 << 16, /* a multiple of every block */
    PIECES_PER_THREAD = 4,
    COPY_BYTES = 1 << 22,
};

struct recoder {
    struct pool *pool;
    uint32_t threads;
    float *scratch; /* heap; a piece for each thread */
    uint8_t *out;   /* heap; the encoded batch */
};

enum status recoder_create(uint32_t threads, struct recoder **out, struct err *err) {
    struct recoder *r = mem_zalloc(sizeof(*r));
    if (!r) return err_set(err, ST_NOMEM, "out of memory");
    r->threads = threads ? threads : pool_default_threads();
    r->scratch = mem_alloc_array((size_t)r->threads * PIECE_ELEMS, sizeof(r->scratch[0]));
    r->out = mem_alloc_array((size_t)r->threads * PIECES_PER_THREAD * PIECE_ELEMS, sizeof(float));
    enum status st = r->scratch && r->out ? ST_OK : ST_NOMEM;
    if (st != ST_OK) err_set(err, st, "out of memory for the pieces of a tensor");
    if (st == ST_OK) st = pool_create(&r->pool, r->threads, err);
    if (st == ST_OK)
        *out = r;
    else
        recoder_destroy(r);
    return st;
}

void recoder_destroy(struct recoder *r) {
    if (!r) return;
    pool_destroy(r->pool);
    mem_free(r->scratch);
    mem_free(r->out);
    mem_free(r);
}

struct batch {
    struct recoder *r;
    const struct recode *job;
    size_t first, elems;          /* of the tensor */
    size_t width;                 /* of a row */
    size_t bad[POOL_THREADS_MAX]; /* the first element that cannot be held, by thread */
};

#define NONE_BAD SIZE_MAX

static size_t bytes_of(enum dtype type, size_t elems) {
    size_t bytes;
    CHECK(dtype_bytes(type, elems, &bytes));
    return bytes;
}

/* Importance is by column, so a piece is encoded row by row if there is one. */
static void encode_piece(const struct batch *b, size_t first, size_t elems, const float *x,
                         uint8_t *dst) {
    const struct recode *job = b->job;
    if (!job->importance) {
        quant_encode(job->to, x, NULL, elems, dst);
        return;
    }
    for (size_t at = 0; at < elems;) {
        size_t column = (first + at) % b->width, run = b->width - column;
        if (run > elems - at) run = elems - at;
        quant_encode(job->to, x + at, job->importance + column, run, dst + bytes_of(job->to, at));
        at += run;
    }
}

static void run_batch(void *ctx, uint32_t thread, uint32_t threads) {
    struct batch *b = ctx;
    const struct tensor_info *t = b->job->tensor;
    float *x = b->r->scratch + (size_t)thread * PIECE_ELEMS;
    b->bad[thread] = NONE_BAD;
    for (size_t at = (size_t)thread * PIECE_ELEMS; at < b->elems;
         at += (size_t)threads * PIECE_ELEMS) {
        size_t elems = b->elems - at < PIECE_ELEMS ? b->elems - at : PIECE_ELEMS, bad;
        tensor_read_f32(t, b->first + at, elems, x);
        if (!quant_can_hold(b->job->to, x, elems, &bad)) {
            b->bad[thread] = b->first + at + bad;
            return;
        }
        encode_piece(b, b->first + at, elems, x, b->r->out + bytes_of(b->job->to, at));
    }
}

static enum status say_bad(const struct batch *b, size_t at, struct err *err) {
    const struct tensor_info *t = b->job->tensor;
    const struct dtype_info *info = dtype_info(t->type);
    float block[256];
    size_t from = at / info->block_elems * info->block_elems;
    CHECK(info->block_elems <= 256);
    tensor_read_f32(t, from, info->block_elems, block);
    const struct bad_number bad = {.path = model_file_path(b->job->file),
                                   .tensor = t->name,
                                   .width = b->width,
                                   .at = at,
                                   .value = block[at - from],
                                   .type = b->job->to};
    return numbers_say_bad(&bad, err);
}

static enum status recode_batch(struct batch *b, struct err *err) {
    struct recoder *r = b->r;
    const struct tensor_info *t = b->job->tensor;
    pool_run(r->pool, run_batch, b);
    size_t bad = NONE_BAD;
    for (uint32_t i = 0; i < r->threads; i++) bad = b->bad[i] < bad ? b->bad[i] : bad;
    if (bad != NONE_BAD) return say_bad(b, bad, err);
    if (t->data)
        model_file_release(b->job->file, (const uint8_t *)t->data + bytes_of(t->type, b->first),
                           bytes_of(t->type, b->elems));
    return b->job->sink(b->job->ctx, r->out, bytes_of(b->job->to, b->elems), err);
}

static enum status copy_tensor(const struct recode *job, struct err *err) {
    const uint8_t *data = job->tensor->data;
    for (size_t at = 0; at < job->tensor->bytes;) {
        size_t len = job->tensor->bytes - at;
        if (len > COPY_BYTES) len = COPY_BYTES;
        TRY(job->sink(job->ctx, data + at, len, err));
        model_file_release(job->file, data + at, len);
        at += len;
    }
    return ST_OK;
}

/* The same type, from rows that a source makes. */
static enum status copy_batch(const struct batch *b, struct err *err) {
    const struct recode *job = b->job;
    tensor_read(job->tensor, b->first, b->elems, b->r->out);
    return job->sink(job->ctx, b->r->out, bytes_of(job->to, b->elems), err);
}

enum status recode_tensor(struct recoder *r, const struct recode *job, struct err *err) {
    const struct tensor_info *t = job->tensor;
    bool is_copy = t->type == job->to;
    if (is_copy && t->data) return copy_tensor(job, err);
    struct batch b = {.r = r, .job = job, .width = (size_t)t->dims[t->dim_count - 1]};
    size_t total = (size_t)tensor_elems(t);
    size_t room = (size_t)r->threads * PIECES_PER_THREAD * PIECE_ELEMS;
    CHECK(b.width % dtype_info(job->to)->block_elems == 0);
    for (; b.first < total; b.first += b.elems) {
        b.elems = total - b.first < room ? total - b.first : room;
        TRY(is_copy ? copy_batch(&b, err) : recode_batch(&b, err));
    }
    if (t->source) tensor_release(job->file, t);
    return ST_OK;
}
