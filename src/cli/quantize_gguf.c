/* cli/quantize_gguf.c - `jitney quantize` to a GGUF file; the plug is in cli/quantize_run.h. */
#include <stdio.h>

#include "base/file_out.h"
#include "base/mem.h"
#include "cli/calibrate_run.h"
#include "cli/cli.h"
#include "cli/generated.h"
#include "cli/quantize_run.h"
#include "cli/quantize_source.h"
#include "format/model_file.h"
#include "quant/convert.h"
#include "quant/importance.h"
#include "quant/numbers.h"
#include "quant/quant.h"
#include "translate/translate.h"

struct gguf_run {
    struct quantize_run *q;
    struct model_file *view; /* of a folder as a GGUF; NULL: the source is one */
    enum dtype type;
    struct convert *convert;
    struct convert *first; /* that the plan was made of; NULL: there is no plan */
    struct file_out file;
    struct calibration calibration; /* importance: NULL without --calibrate */
    size_t weighed;                 /* tensors that are quantised with importance */
};

static const char *find_type(struct str name) {
    enum dtype type;
    return dtype_find(name, &type) && quant_has_encoder(type) ? dtype_info(type)->name : NULL;
}

static uint64_t width_of(const struct convert_tensor *t) {
    return t->from->dims[t->from->dim_count - 1];
}

static bool is_like(const struct convert_tensor *a, const struct convert_tensor *b) {
    return a->to == b->to && a->wanted == b->wanted && width_of(a) == width_of(b);
}

/* Has an earlier tensor the same fallback? Then it is mentioned there. */
static bool is_repeated(const struct gguf_run *g, size_t at) {
    for (size_t i = 0; i < at; i++)
        if (is_like(convert_at(g->convert, i), convert_at(g->convert, at))) return true;
    return false;
}

static size_t count_like(const struct gguf_run *g, const struct convert_tensor *t) {
    size_t count = 0;
    for (size_t i = 0; i < convert_count(g->convert); i++)
        count += is_like(convert_at(g->convert, i), t);
    return count;
}

/* One line for each kind of fallback. */
static void note_fallbacks(const struct gguf_run *g) {
    for (size_t i = 0; i < convert_count(g->convert); i++) {
        const struct convert_tensor *t = convert_at(g->convert, i);
        if (t->to == t->wanted || is_repeated(g, i)) continue;
        size_t count = count_like(g, t);
        char line[256];
        snprintf(line, sizeof(line),
                 "jitney: %zu %s stored as %s instead of %s, because rows of %llu elements do not "
                 "divide into blocks of %u",
                 count, count == 1 ? "matrix is" : "matrices are", dtype_info(t->to)->name,
                 dtype_info(t->wanted)->name, (unsigned long long)width_of(t),
                 dtype_info(t->wanted)->block_elems);
        note_write(line);
    }
}

/* With the types of the plan, if there is one. */
static enum status create_convert(struct gguf_run *g, struct err *err) {
    const struct quantize_run *q = g->q;
    const struct convert_options options = {.type = g->type,
                                            .types = q->plan ? quantize_plan_types(q->plan) : NULL,
                                            .allow_requantize =
                                                args_on(q->args, "allow-requantize")};
    return convert_create(g->view ? g->view : q->f, &options, &g->convert, err);
}

static enum exit_code check(const struct quantize_run *q, struct err *err) {
    for (const struct flag *f = flags_folder; f->name; f++)
        if (args_given(q->args, f->name))
            return usage_set(err, "quantize: --%s is for folders, not for a GGUF", f->name);
    return EXIT_FINE;
}

static enum status open_output(struct quantize_run *q, void **self, struct err *err) {
    struct gguf_run *g = mem_zalloc(sizeof(*g));
    *self = g;
    if (!g) return err_set(err, ST_NOMEM, "out of memory");
    g->q = q;
    g->file.fd = -1;
    g->type = DTYPE_F16; /* until there is a plan */
    if (!q->target.is_set) dtype_find(str_of(q->type), &g->type);
    if (model_file_kind(q->f) == MODEL_HF) TRY(translate_to_gguf(q->f, &g->view, err));
    if (g->view) TRY(quantize_source_check_view(q->args, g->view, err));
    TRY(create_convert(g, err));
    uint64_t bytes = convert_bytes(g->convert);
    if (q->target.is_set) TRY(quantize_plan_check(g->convert, &q->target, &bytes, err));
    if (q->target.writes_none) return ST_OK;
    TRY(file_out_open(q->out, false, &g->file, err));
    TRY(file_out_reserve(&g->file, bytes, err));
    if (!q->target.is_set) note_fallbacks(g);
    return ST_OK;
}

/* Choose the types and begin anew with them. */
static enum status make_plan(struct gguf_run *g, struct err *err) {
    struct quantize_run *q = g->q;
    TRY(quantize_plan_create(q->args, g->convert, &g->calibration, &q->target, &q->plan, err));
    if (q->target.writes_none) return ST_OK;
    g->type = quantize_plan_main_type(q->plan);
    struct convert *first = g->convert;
    enum status st = create_convert(g, err);
    if (st != ST_OK) return st;
    g->first = first;
    return file_out_reserve(&g->file, convert_bytes(g->convert), err);
}

/* Before the model runs. A number that is kept must be finite, or the model predicts nothing. A
 * plan may take any type, and F16 holds what all of them hold. */
static enum status check_numbers(const struct gguf_run *g, struct err *err) {
    const struct model_file *f = g->view ? g->view : g->q->f;
    for (size_t i = 0; i < convert_count(g->convert); i++) {
        const struct convert_tensor *t = convert_at(g->convert, i);
        TRY(numbers_check(f, t->from, t->to != t->from->type ? t->to : DTYPE_F32, err));
    }
    return ST_OK;
}

/* Give every matrix that is quantised what was measured for it. */
static enum status calibrate(void *self, struct err *err) {
    struct gguf_run *g = self;
    g->calibration.text = &g->q->calibration_text;
    TRY(check_numbers(g, err));
    TRY(calibrate_model(g->q->args, g->q->in, &g->calibration, err));
    if (g->q->target.is_set) TRY(make_plan(g, err));
    for (size_t i = 0; i < convert_count(g->convert); i++) {
        struct convert_tensor *t = convert_at(g->convert, i);
        const struct tensor_info *from = t->from;
        if (t->to == from->type || !dtype_is_quantised(t->to)) continue;
        struct str measured = g->view ? from->made_of : from->name;
        t->importance =
            importance_find(g->calibration.importance, measured, from->dims[from->dim_count - 1]);
        g->weighed += t->importance != NULL;
    }
    return ST_OK;
}

static enum status write_output(void *self, struct err *err) {
    struct gguf_run *g = self;
    const struct convert_run run = {.threads = (uint32_t)args_int(g->q->args, "threads"),
                                    .file = &g->file,
                                    .on_progress = quantize_on_progress,
                                    .progress_ctx = &g->q->bar};
    return convert_write(g->convert, &run, err);
}

/* The file has no name yet. */
static enum status readable(void *self, char path[MODEL_PATH_BYTES], struct err *err) {
    struct gguf_run *g = self;
    (void)err;
    _Static_assert((int)MODEL_PATH_BYTES >= (int)FILE_OUT_PATH_BYTES, "the path fits");
    file_out_readable(&g->file, path);
    return ST_OK;
}

static enum status publish(void *self, struct err *err) {
    struct gguf_run *g = self;
    return file_out_publish(&g->file, err);
}

static void count(const void *self, struct quantize_counts *c) {
    const struct gguf_run *g = self;
    for (size_t i = 0; i < convert_count(g->convert); i++) {
        const struct convert_tensor *t = convert_at(g->convert, i);
        uint64_t elems = 1;
        size_t bytes = 0;
        for (uint32_t d = 0; d < t->from->dim_count; d++) elems *= t->from->dims[d];
        dtype_bytes(t->to, elems, &bytes);
        c->converted += t->to != t->from->type;
        c->fallbacks += t->to != t->wanted;
        c->elems += elems;
        c->bytes_in += t->from->bytes;
        c->bytes_out += bytes;
    }
    c->tensors = convert_count(g->convert);
    c->file_bytes = g->file.bytes;
    c->weighed = g->weighed;
}

static void close_output(void *self) {
    struct gguf_run *g = self;
    if (!g) return;
    file_out_close(&g->file);
    quantize_plan_destroy(g->q->plan);
    convert_destroy(g->first);
    convert_destroy(g->convert);
    importance_destroy(g->calibration.importance);
    model_file_close(g->view);
    mem_free(g);
}

const struct quantize_output quantize_gguf = {
    .name = "gguf",
    .find_type = find_type,
    .known_types = quant_known_types,
    .check = check,
    .open = open_output,
    .calibrate = calibrate,
    .write = write_output,
    .readable = readable,
    .publish = publish,
    .close = close_output,
    .count = count,
};
