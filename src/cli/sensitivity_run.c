/* cli/sensitivity_run.c - see cli/sensitivity_run.h for the contract. */
#include "cli/sensitivity_run.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/loaded_model.h"
#include "engine/window_kl.h"
#include "format/model_file.h"
#include "format/tensor_read.h"
#include "quant/quant.h"
#include "quant/recode.h"

struct run {
    struct loaded_model *loaded;
    const struct sensitivity_options *options;
    struct recoder *recoder;
    struct window_kl *windows;
    /* the matrix at hand */
    uint8_t *matrix; /* heap; in the type of the weight */
    size_t matrix_bytes;
    float *floats; /* heap; of one piece */
    size_t floats_cap;
    enum dtype probe, type;
    size_t measured, not_numbers; /* matrices */
};

/* ---- matrices ---- */

struct search {
    struct str name;
    struct weight *found;
};

static enum status look_at(void *ctx, struct weight *w, struct err *err) {
    struct search *s = ctx;
    (void)err;
    if (str_eq(w->name, s->name) && w->use != WEIGHT_VECTOR) s->found = w;
    return ST_OK;
}

static const struct tensor_info *find_tensor(const struct model_file *f, struct str name) {
    for (size_t i = 0; i < tensor_count(f); i++)
        if (str_eq(tensor_at(f, i)->name, name)) return tensor_at(f, i);
    return NULL;
}

static bool reserve_floats(struct run *r, size_t elems) {
    if (elems <= r->floats_cap) return true;
    float *more = mem_realloc(r->floats, elems * sizeof(*more));
    if (!more) return false;
    r->floats = more;
    r->floats_cap = elems;
    return true;
}

/* A piece of the matrix in the probe's type: decoded, and stored as the weight is. */
static enum status take_piece(void *ctx, const void *bytes, size_t len, struct err *err) {
    struct run *r = ctx;
    const struct dtype_info *info = dtype_info(r->probe);
    size_t elems = len / info->block_bytes * info->block_elems, stored;
    if (!reserve_floats(r, elems)) return err_set(err, ST_NOMEM, "out of memory for a matrix");
    dtype_dequant(r->probe, bytes, elems, r->floats);
    quant_encode(r->type, r->floats, NULL, elems, r->matrix + r->matrix_bytes);
    CHECK(dtype_bytes(r->type, elems, &stored));
    r->matrix_bytes += stored;
    return ST_OK;
}

/* Plain numbers keep their width, so that they take no more memory than before. */
static enum dtype plain_type(enum dtype type) {
    return dtype_is_quantised(type) ? DTYPE_F32 : type;
}

static enum status make_matrix(struct run *r, const struct tensor_info *t,
                               const struct sensitivity *s, struct err *err) {
    const struct recode job = {.file = r->loaded->file,
                               .tensor = t,
                               .to = s->probe,
                               .importance = s->importance,
                               .sink = take_piece,
                               .ctx = r};
    size_t bytes;
    r->probe = s->probe;
    r->type = plain_type(t->type);
    CHECK(dtype_bytes(r->type, tensor_elems(t), &bytes));
    r->matrix_bytes = 0;
    r->matrix = mem_alloc(bytes);
    if (!r->matrix)
        return err_set(err, ST_NOMEM, "out of memory for a second %.*s", STR_ARG(t->name));
    return recode_tensor(r->recoder, &job, err);
}

/* The matrix in place of the weight's own; `w` is put back by the caller. */
static enum status put_matrix(struct run *r, struct weight *w, struct err *err) {
    w->type = r->type;
    w->data = r->matrix;
    w->bytes = r->matrix_bytes;
    w->expert_data = NULL;
    w->source = NULL;
    w->prepared = NULL;
    return r->loaded->device.prepare(r->loaded->device.self, w, err);
}

static enum status measure_one(struct run *r, struct sensitivity *s, struct err *err) {
    struct search search = {.name = s->name};
    const struct tensor_info *t = find_tensor(r->loaded->file, s->name);
    s->is_measured = false;
    TRY(model_each_weight(r->loaded->model, look_at, &search, err));
    struct weight *w = search.found;
    if (!w || !t || (uint64_t)w->rows * w->cols * w->experts != tensor_elems(t)) return ST_OK;
    struct weight saved = *w;
    enum status st = make_matrix(r, t, s, err);
    if (st == ST_OK) st = put_matrix(r, w, err);
    if (st == ST_OK) st = window_kl_measure(r->windows, &s->kl, err);
    *w = saved;
    mem_free(r->matrix);
    r->matrix = NULL;
    s->is_measured = st == ST_OK && isfinite(s->kl);
    if (s->is_measured) r->measured++;
    if (st == ST_OK && !s->is_measured) r->not_numbers++;
    return st;
}

static void show_progress(size_t done, size_t count) {
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[Kmeasuring: %zu of %zu matrices", done, count);
    if (done == count) fprintf(stderr, "\r\033[K");
}

static enum status open_windows(struct run *r, struct err *err) {
    const struct sensitivity_options *o = r->options;
    struct window_kl_options options = {.kv_type = KV_F32, .threads = o->threads};
    window_kl_spread(&o->text, SENSITIVITY_WINDOWS, SENSITIVITY_WINDOW_TOKENS, &options);
    options.first = options.window_tokens / 4;
    return window_kl_create(r->loaded, &options, &r->windows, err);
}

static enum status measure_all(struct run *r, struct sensitivity *tensors, size_t count,
                               struct err *err) {
    TRY(open_windows(r, err));
    TRY(recoder_create(r->options->threads, &r->recoder, err));
    for (size_t i = 0; i < count; i++) {
        TRY(measure_one(r, &tensors[i], err));
        show_progress(i + 1, count);
    }
    if (r->measured > 0 || r->not_numbers == 0) return ST_OK;
    return err_set(err, ST_BAD,
                   "quantize: the predictions of the model on the text for calibration are not "
                   "finite numbers, so what a matrix matters cannot be measured; \"jitney "
                   "perplexity\" shows whether the model works");
}

enum status sensitivity_run(struct loaded_model *loaded, const struct sensitivity_options *options,
                            struct sensitivity *tensors, size_t count, struct err *err) {
    struct run r = {.loaded = loaded, .options = options};
    CHECK(options->text.window_tokens >= 4);
    if (!str_starts(str_of(loaded->device.name), STR("cpu")))
        return err_set(err, ST_BAD,
                       "quantize: --budget and --bits measure on the CPU, this is %s; give "
                       "--device cpu",
                       loaded->device.name);
    enum status st = measure_all(&r, tensors, count, err);
    recoder_destroy(r.recoder);
    window_kl_destroy(r.windows);
    mem_free(r.floats);
    return st;
}
