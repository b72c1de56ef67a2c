/* quant/type_error.c - see quant/type_error.h for the contract. */
#include "quant/type_error.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/pool.h"
#include "format/tensor_read.h"
#include "quant/numbers.h"
#include "quant/quant.h"

struct type_error {
    struct pool *pool;
    /* while measuring */
    const struct type_error_job *job;
    size_t width, rows;
    float *sample;    /* heap; [rows][width] */
    float *decoded;   /* heap; [threads][width] */
    uint8_t *encoded; /* heap; [threads][width] of 4 bytes */
    double *errors;
};

enum status type_error_create(uint32_t threads, struct type_error **out, struct err *err) {
    struct type_error *e = mem_zalloc(sizeof(*e));
    if (!e) return err_set(err, ST_NOMEM, "out of memory");
    enum status st = pool_create(&e->pool, threads ? threads : pool_default_threads(), err);
    if (st == ST_OK)
        *out = e;
    else
        mem_free(e);
    return st;
}

static void free_rows(struct type_error *e) {
    mem_free(e->sample);
    mem_free(e->decoded);
    mem_free(e->encoded);
    e->sample = e->decoded = NULL;
    e->encoded = NULL;
}

void type_error_destroy(struct type_error *e) {
    if (!e) return;
    pool_destroy(e->pool);
    mem_free(e);
}

static double row_error(const struct type_error *e, enum dtype type, const float *x, float *decoded,
                        uint8_t *encoded) {
    const float *importance = e->job->importance;
    double sum = 0;
    quant_encode(type, x, importance, e->width, encoded);
    dtype_dequant(type, encoded, e->width, decoded);
    for (size_t i = 0; i < e->width; i++) {
        double apart = (double)x[i] - (double)decoded[i];
        sum += (importance ? (double)importance[i] : 1.0) * apart * apart;
    }
    return sum;
}

/* Type i belongs to thread i % threads, so that its sum has one order. */
static void measure_types(void *ctx, uint32_t thread, uint32_t threads) {
    struct type_error *e = ctx;
    for (uint32_t i = thread; i < e->job->type_count; i += threads) {
        float *decoded = e->decoded + thread * e->width;
        uint8_t *encoded = e->encoded + thread * e->width * sizeof(float);
        e->errors[i] = 0;
        for (size_t r = 0; r < e->rows; r++)
            e->errors[i] +=
                row_error(e, e->job->types[i], e->sample + r * e->width, decoded, encoded);
    }
}

static enum status read_sample(struct type_error *e, uint64_t all, struct err *err) {
    const struct tensor_info *t = e->job->tensor;
    for (size_t r = 0; r < e->rows; r++)
        tensor_read_f32(t, all * r / e->rows * e->width, e->width, e->sample + r * e->width);
    TRY(model_file_check(e->job->file, true, err));
    for (uint32_t i = 0; i < e->job->type_count; i++) {
        enum dtype type = e->job->types[i];
        size_t bad;
        CHECK(e->width % dtype_info(type)->block_elems == 0);
        if (quant_can_hold(type, e->sample, e->rows * e->width, &bad)) continue;
        uint64_t row = all * (bad / e->width) / e->rows;
        const struct bad_number number = {.path = model_file_path(e->job->file),
                                          .tensor = t->name,
                                          .width = e->width,
                                          .at = row * e->width + bad % e->width,
                                          .value = e->sample[bad],
                                          .type = type};
        return numbers_say_bad(&number, err);
    }
    return ST_OK;
}

enum status type_error_measure(struct type_error *e, const struct type_error_job *job,
                               double *errors, struct err *err) {
    const struct tensor_info *t = job->tensor;
    size_t threads = pool_threads(e->pool), width = (size_t)t->dims[t->dim_count - 1];
    uint64_t all = tensor_elems(t) / width, most = TYPE_ERROR_ELEMS / width;
    e->job = job;
    e->errors = errors;
    e->width = width;
    e->rows = (size_t)(most < 1 ? 1 : most < all ? most : all);
    e->sample = mem_alloc_array(e->rows * width, sizeof(e->sample[0]));
    e->decoded = mem_alloc_array(threads * width, sizeof(e->decoded[0]));
    e->encoded = mem_alloc_array(threads * width, sizeof(float));
    enum status st = e->sample && e->decoded && e->encoded ? ST_OK : ST_NOMEM;
    if (st != ST_OK) err_set(err, st, "out of memory for the rows of %.*s", STR_ARG(t->name));
    if (st == ST_OK) st = read_sample(e, all, err);
    if (st == ST_OK) pool_run(e->pool, measure_types, e);
    for (uint32_t i = 0; st == ST_OK && i < job->type_count; i++)
        errors[i] *= (double)all / (double)e->rows;
    free_rows(e);
    return st;
}
