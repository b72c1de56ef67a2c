/* quant/folder.c - which tensors become what. See quant/folder.h for the contract. */
#include "quant/folder.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "format/limits.h"
#include "format/model_file.h"
#include "format/safetensors_writer.h"
#include "format/tensor_read.h"
#include "quant/folder_int.h"

/* ---- what becomes what ---- */

/* The number that `rest` begins with, up to a dot; -1: none. */
static int32_t leading_number(struct str rest) {
    uint64_t number;
    const char *dot = rest.len ? memchr(rest.ptr, '.', rest.len) : NULL;
    if (!dot || !str_to_u64(str_take(rest, (size_t)(dot - rest.ptr)), &number)) return -1;
    return number < LIMIT_TENSORS ? (int32_t)number : -1;
}

int32_t folder_layer_of(struct str name) {
    for (struct str rest = name; rest.len;) {
        int32_t number = -1;
        if (str_starts(rest, STR("layers."))) number = leading_number(str_skip(rest, 7));
        if (str_starts(rest, STR("layer."))) number = leading_number(str_skip(rest, 6));
        if (number >= 0) return number;
        const char *dot = memchr(rest.ptr, '.', rest.len);
        rest = dot ? str_skip(rest, (size_t)(dot - rest.ptr) + 1) : str_take(rest, 0);
    }
    return -1;
}

static bool is_layer_matrix(const struct folder_tensor *t) {
    const struct tensor_info *from = t->from;
    return t->layer >= 0 && from->dim_count == 2 && from->dims[0] > 1 &&
           str_ends(from->name, STR(".weight")) && !str_ends(from->name, STR("norm.weight")) &&
           !str_ends(from->name, STR(".gate.weight"));
}

/* f16, unless most numbers in matrices are bf16. Float32 stays float32 beside the 16 bits of a
 * folder, whose authors have chosen so; elsewhere readers want one type for all. */
static void choose_plain(struct folder_writer *w) {
    uint64_t bf16 = 0, f16 = 0, all = 0;
    for (size_t i = 0; i < w->count; i++) {
        const struct tensor_info *t = w->tensors[i].from;
        if (t->dim_count < 2) continue;
        all += tensor_elems(t);
        bf16 += t->type == DTYPE_BF16 ? tensor_elems(t) : 0;
        f16 += t->type == DTYPE_F16 ? tensor_elems(t) : 0;
    }
    w->format.plain = bf16 > all / 2 ? DTYPE_BF16 : DTYPE_F16;
    w->keeps_f32 = file_is_dir(model_file_path(w->f)) && bf16 + f16 > all / 2;
}

static enum dtype kept_type(const struct folder_writer *w, const struct tensor_info *t) {
    bool changes = dtype_is_quantised(t->type) || (t->type == DTYPE_F32 && !w->keeps_f32);
    return changes ? w->format.plain : t->type;
}

static bool has_groups(const struct folder_writer *w) {
    return w->format.method == PACK_GPTQ || w->format.method == PACK_AWQ;
}

/* The first matrix of layers that groups of `group_cols` do not divide; NULL: none. */
static const struct tensor_info *find_misfit(const struct folder_writer *w, uint32_t group_cols) {
    struct pack_format format = w->format;
    format.ints.group_cols = group_cols;
    for (size_t i = 0; i < w->count; i++) {
        const struct tensor_info *t = w->tensors[i].from;
        if (is_layer_matrix(&w->tensors[i]) && !pack_fits(&format, t->dims[0], t->dims[1]))
            return t;
    }
    return NULL;
}

/* The largest usual size that divides all matrices; 0: none does. */
static uint32_t fitting_group(const struct folder_writer *w) {
    for (uint32_t group = 128; group >= 32; group /= 2)
        if (!find_misfit(w, group)) return group;
    return 0;
}

static enum status choose_group(struct folder_writer *w, struct err *err) {
    uint32_t fits = fitting_group(w);
    if (!has_groups(w)) return ST_OK;
    if (w->format.ints.group_cols == 0) w->format.ints.group_cols = fits;
    uint32_t group = w->format.ints.group_cols;
    const struct tensor_info *t = find_misfit(w, group ? group : 32);
    if (!t) return ST_OK;
    const char *advice = fits == 128  ? "give --group 128"
                         : fits == 64 ? "give --group 64"
                         : fits == 32 ? "give --group 32"
                                      : "give --type nf4 or int8, which keep such a matrix";
    return err_set(err, ST_BAD,
                   "%s: tensor %.*s: (%llu, %llu) does not divide into groups of %u columns and 8 "
                   "rows; %s",
                   model_file_path(w->f), STR_ARG(t->name), (unsigned long long)t->dims[0],
                   (unsigned long long)t->dims[1], group ? group : 32, advice);
}

static enum status check_source(const struct folder_writer *w, const struct folder_tensor *t,
                                bool allow_requantize, struct err *err) {
    const struct tensor_info *from = t->from;
    if (t->is_packed && from->order)
        return err_set(err, ST_BAD,
                       "%s: tensor %.*s: is quantised with act order, which is not converted; use "
                       "the original model",
                       model_file_path(w->f), STR_ARG(from->name));
    if (!t->is_packed || !dtype_is_quantised(from->type) || allow_requantize) return ST_OK;
    return err_set(err, ST_BAD,
                   "%s: tensor %.*s: is quantised already (%s), expected F32, F16 or BF16; use the "
                   "original model, or --allow-requantize, which adds a second loss to the first",
                   model_file_path(w->f), STR_ARG(from->name), dtype_info(from->type)->name);
}

static enum status choose_all(struct folder_writer *w, bool allow_requantize, struct err *err) {
    size_t packed = 0;
    choose_plain(w);
    TRY(choose_group(w, err));
    for (size_t i = 0; i < w->count; i++) {
        struct folder_tensor *t = &w->tensors[i];
        bool is_matrix = is_layer_matrix(t);
        t->is_packed = is_matrix && pack_fits(&w->format, t->from->dims[0], t->from->dims[1]);
        t->is_refused = is_matrix && !t->is_packed;
        t->to = kept_type(w, t->from);
        packed += t->is_packed;
        TRY(check_source(w, t, allow_requantize, err));
    }
    if (packed) return ST_OK;
    return err_set(err, ST_BAD,
                   "%s: has no matrix of a layer that can be packed, so there is nothing to "
                   "quantise",
                   model_file_path(w->f));
}

struct place {
    struct folder_tensor tensor;
    size_t at;
};

static int compare_places(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    if (x->tensor.layer != y->tensor.layer) return x->tensor.layer < y->tensor.layer ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* Those of no layer first; else as in the source. */
static enum status list_tensors(struct folder_writer *w, struct err *err) {
    size_t count = tensor_count(w->f);
    struct place *places = mem_zalloc_array(count ? count : 1, sizeof(places[0]));
    w->tensors = mem_zalloc_array(count ? count : 1, sizeof(w->tensors[0]));
    if (!places || !w->tensors) {
        mem_free(places);
        return err_set(err, ST_NOMEM, "out of memory for the list of tensors");
    }
    for (size_t i = 0; i < count; i++) {
        const struct tensor_info *from = tensor_at(w->f, i);
        places[i] = (struct place){{.from = from, .layer = folder_layer_of(from->name)}, i};
    }
    qsort(places, count, sizeof(places[0]), compare_places);
    for (size_t i = 0; i < count; i++) w->tensors[i] = places[i].tensor;
    w->count = count;
    mem_free(places);
    return ST_OK;
}

enum status folder_writer_create(struct model_file *f, const struct folder_options *options,
                                 struct folder_writer **out, struct err *err) {
    CHECK(model_file_kind(f) == MODEL_HF);
    if (model_file_problem(f)) return err_set(err, ST_BAD, "%s", model_file_problem(f));
    struct folder_writer *w = mem_zalloc(sizeof(*w));
    if (!w) return err_set(err, ST_NOMEM, "out of memory");
    w->f = f;
    w->format = options->format;
    enum status st = list_tensors(w, err);
    if (st == ST_OK) st = choose_all(w, options->allow_requantize, err);
    if (st == ST_OK)
        *out = w;
    else
        folder_writer_destroy(w);
    return st;
}

void folder_writer_destroy(struct folder_writer *w) {
    if (!w) return;
    safetensors_writer_destroy(w->writer);
    mem_free(w->tensors);
    mem_free(w);
}

size_t folder_writer_count(const struct folder_writer *w) { return w->count; }

const struct folder_tensor *folder_writer_at(const struct folder_writer *w, size_t i) {
    CHECK(i < w->count);
    return &w->tensors[i];
}

const struct pack_format *folder_writer_format(const struct folder_writer *w) { return &w->format; }
