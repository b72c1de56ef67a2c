/* cli/quantize_folder.c - `jitney quantize` to a safetensors folder; the plug is in
 * cli/quantize_run.h. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/folder_out.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/layer_calibration.h"
#include "cli/quantize_layers.h"
#include "cli/quantize_run.h"
#include "cli/quantize_source.h"
#include "format/model_file.h"
#include "format/safetensors_writer.h"
#include "format/tensor_read.h"
#include "quant/folder.h"
#include "quant/numbers.h"
#include "translate/translate.h"

struct folder_run {
    struct quantize_run *q;
    struct folder_writer *writer;
    struct folder_out out;
    struct model_file *view;               /* of a GGUF as a folder; NULL: the source is one */
    struct layer_calibration *calibration; /* NULL without --calibrate */
    size_t rounded; /* matrices that are rounded otherwise than without the text */
    uint64_t elems; /* for the progress */
};

const struct flag flags_folder[] = {
    {.name = "group",
     .kind = FLAG_WORD,
     .value = "32|64|128",
     .help = "gptq and awq: number of columns that share a scale and a zero point. Without it the "
             "largest of the three that divides the columns of all matrices."},
    {.name = "act-order",
     .kind = FLAG_BOOL,
     .help = "gptq: round the columns with the largest inputs first. Loses less, but the inputs "
             "must be permuted when the model runs."},
    {.name = "damp",
     .kind = FLAG_REAL,
     .value = "X",
     .min = 1e-6,
     .max = 1,
     .help = "gptq: add this share of the mean second moment to the second moment of each column. "
             "Without it the share is 0.01, or more if the text is short for the width of the "
             "matrix."},
    {.name = "smooth",
     .kind = FLAG_REAL,
     .value = "ALPHA",
     .fallback = "0.5",
     .min = 0,
     .max = 1,
     .help = "int8 with --calibrate: how much of the range of the inputs moves into the weights "
             "(SmoothQuant's alpha), for inputs that a norm makes."},
    {.name = "symmetric",
     .kind = FLAG_BOOL,
     .help = "gptq: scales without zero points, as some kernels of vLLM want them."},
    {.name = "nearest",
     .kind = FLAG_BOOL,
     .help = "gptq and awq: round each number to the nearest, without --calibrate. The files have "
             "the format of these procedures, but not their quality."},
    {0},
};

static const struct type {
    const char *name;
    enum pack_method method;
    struct int_format ints;
} types[] = {
    {"gptq", PACK_GPTQ, {.bits = 4, .has_no_zero = true}},
    {"awq", PACK_AWQ, {.bits = 4}},
    {"nf4", PACK_NF4, {.bits = 4}},
    {"int8", PACK_INT8, {.bits = 8, .is_symmetric = true}},
};
enum { TYPE_COUNT = sizeof(types) / sizeof(types[0]) };

static const struct type *type_of(struct str name) {
    for (int i = 0; i < TYPE_COUNT; i++)
        if (name.len == strlen(types[i].name) &&
            strncasecmp(name.ptr, types[i].name, name.len) == 0)
            return &types[i];
    return NULL;
}

static const char *find_type(struct str name) {
    const struct type *t = type_of(name);
    return t ? t->name : NULL;
}

static const char *known_types(void) { return "gptq, awq, nf4, int8"; }

static const struct {
    const char *flag, *types;
    enum pack_method methods[2];
} uses[] = {
    {"group", "gptq and awq", {PACK_GPTQ, PACK_AWQ}},
    {"nearest", "gptq and awq", {PACK_GPTQ, PACK_AWQ}},
    {"act-order", "gptq", {PACK_GPTQ, PACK_GPTQ}},
    {"damp", "gptq", {PACK_GPTQ, PACK_GPTQ}},
    {"symmetric", "gptq", {PACK_GPTQ, PACK_GPTQ}},
    {"smooth", "int8", {PACK_INT8, PACK_INT8}},
};

/* Do the flags fit the type? */
static enum exit_code check(const struct quantize_run *q, struct err *err) {
    const struct args *args = q->args;
    enum pack_method method = type_of(str_of(q->type))->method;
    bool calibrates = args_text(args, "calibrate") != NULL;
    for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++)
        if (args_given(args, uses[i].flag) && uses[i].methods[0] != method &&
            uses[i].methods[1] != method)
            return usage_set(err, "quantize: --%s is for %s, not for %s", uses[i].flag,
                             uses[i].types, q->type);
    if (calibrates && method == PACK_NF4)
        return usage_set(err, "quantize: --calibrate is for other types; nf4 uses no text");
    if (calibrates && args_on(args, "nearest"))
        return usage_set(err, "quantize: --nearest is for rounding without --calibrate; give one");
    if (calibrates) return EXIT_FINE;
    if ((method == PACK_GPTQ || method == PACK_AWQ) && !args_on(args, "nearest"))
        return usage_set(err,
                         "quantize: %s needs a text; give --calibrate TEXT, or --nearest to round "
                         "without one",
                         q->type);
    const char *needs = args_given(args, "smooth")      ? "smooth"
                        : args_given(args, "damp")      ? "damp"
                        : args_given(args, "act-order") ? "act-order"
                                                        : NULL;
    if (needs) return usage_set(err, "quantize: --%s is for --calibrate TEXT; give it", needs);
    return EXIT_FINE;
}

/* One line if matrices are not packed because of their shape. */
static void note_refused(const struct folder_run *r) {
    size_t count = 0;
    const struct folder_tensor *first = NULL;
    char line[512];
    for (size_t i = 0; i < folder_writer_count(r->writer); i++) {
        const struct folder_tensor *t = folder_writer_at(r->writer, i);
        if (!t->is_refused) continue;
        if (count++ == 0) first = t;
    }
    if (!first) return;
    snprintf(line, sizeof(line),
             "jitney: %zu %s not quantised, because rows of %llu elements do not divide into "
             "blocks of 32; the first is %.*s",
             count, count == 1 ? "matrix is" : "matrices are",
             (unsigned long long)first->from->dims[1], STR_ARG(first->from->name));
    note_write(line);
}

static struct folder_options options_of(const struct quantize_run *q) {
    const struct type *t = type_of(str_of(q->type));
    const char *group = args_text(q->args, "group");
    struct folder_options o = {.format = {.method = t->method, .ints = t->ints},
                               .allow_requantize = args_on(q->args, "allow-requantize")};
    if (group)
        o.format.ints.group_cols = strcmp(group, "32") == 0   ? 32
                                   : strcmp(group, "64") == 0 ? 64
                                                              : 128;
    if (args_on(q->args, "symmetric")) o.format.ints.is_symmetric = true;
    if (args_on(q->args, "act-order")) o.format.ints.has_order = true;
    return o;
}

static enum status open_output(struct quantize_run *q, void **self, struct err *err) {
    struct folder_run *r = mem_zalloc(sizeof(*r));
    *self = r;
    if (!r) return err_set(err, ST_NOMEM, "out of memory");
    r->q = q;
    r->out.fd = -1;
    if (model_file_kind(q->f) == MODEL_GGUF) TRY(translate_to_folder(q->f, &r->view, err));
    if (r->view) TRY(quantize_source_check_view(q->args, r->view, err));
    const struct folder_options options = options_of(q);
    TRY(folder_writer_create(r->view ? r->view : q->f, &options, &r->writer, err));
    for (size_t i = 0; i < folder_writer_count(r->writer); i++)
        r->elems += tensor_elems(folder_writer_at(r->writer, i)->from);
    TRY(folder_out_open(q->out, &r->out, err));
    TRY(folder_writer_begin(r->writer, &r->out, SAFETENSORS_FILE_BYTES_MAX, err));
    note_refused(r);
    return ST_OK;
}

/* Before the model runs. A number that is kept must be finite, or the model predicts nothing.
 * Scales of codes are f16. */
static enum status check_numbers(const struct folder_run *r, struct err *err) {
    for (size_t i = 0; i < folder_writer_count(r->writer); i++) {
        const struct folder_tensor *t = folder_writer_at(r->writer, i);
        enum dtype holds = t->is_packed ? DTYPE_F16 : t->to != t->from->type ? t->to : DTYPE_F32;
        TRY(numbers_check(r->view ? r->view : r->q->f, t->from, holds, err));
    }
    return ST_OK;
}

static enum status calibrate(void *self, struct err *err) {
    struct folder_run *r = self;
    TRY(check_numbers(r, err));
    const struct layer_calibration_options options = {
        .at_once = folder_writer_format(r->writer)->method != PACK_GPTQ};
    return layer_calibration_open(r->q->args, r->q->in, &r->q->calibration_text, &options,
                                  &r->calibration, err);
}

static void show_progress(void *ctx) {
    struct folder_run *r = ctx;
    uint64_t done = 0;
    for (size_t i = 0; i < folder_writer_next(r->writer); i++)
        done += tensor_elems(folder_writer_at(r->writer, i)->from);
    quantize_on_progress(&r->q->bar, done, r->elems);
}

static enum status write_tensors(struct folder_run *r, struct err *err) {
    while (folder_writer_next(r->writer) < folder_writer_count(r->writer)) {
        TRY(folder_writer_put(r->writer, err));
        show_progress(r);
    }
    return ST_OK;
}

static enum status write_output(void *self, struct err *err) {
    struct folder_run *r = self;
    const struct args *args = r->q->args;
    const struct layer_rounding rounding = {
        .calibration = r->calibration,
        .writer = r->writer,
        .source = r->q->f,
        .damp = args_given(args, "damp") ? args_real(args, "damp") : 0,
        .smooth = args_real(args, "smooth"),
        .threads = (uint32_t)args_int(args, "threads"),
        .on_put = show_progress,
        .ctx = r};
    TRY(r->calibration ? quantize_layers(&rounding, &r->rounded, err) : write_tensors(r, err));
    return folder_writer_finish(r->writer, err);
}

static enum status readable(void *self, char path[MODEL_PATH_BYTES], struct err *err) {
    const struct folder_run *r = self;
    int need = snprintf(path, MODEL_PATH_BYTES, "%s", r->out.part);
    if (need > 0 && need < (int)MODEL_PATH_BYTES) return ST_OK;
    return err_set(err, ST_CREATE, "%s: name too long", r->out.part);
}

static enum status publish(void *self, struct err *err) {
    struct folder_run *r = self;
    return folder_out_publish(&r->out, err);
}

static void count(const void *self, struct quantize_counts *c) {
    const struct folder_run *r = self;
    const struct folder_writer *w = r->writer;
    for (size_t i = 0; i < folder_writer_count(w); i++) {
        const struct folder_tensor *t = folder_writer_at(w, i);
        c->converted += t->is_packed || t->to != t->from->type;
        c->fallbacks += t->is_refused;
        c->elems += tensor_elems(t->from);
        c->bytes_in += t->from->bytes;
        c->bytes_out += folder_writer_bytes(w, i);
    }
    c->tensors = folder_writer_count(w);
    c->file_bytes = folder_writer_file_bytes(w);
    c->weighed = r->rounded;
}

static void close_output(void *self) {
    struct folder_run *r = self;
    if (!r) return;
    layer_calibration_close(r->calibration);
    folder_writer_destroy(r->writer);
    folder_out_close(&r->out);
    model_file_close(r->view);
    mem_free(r);
}

const struct quantize_output quantize_folder = {
    .name = "folder",
    .find_type = find_type,
    .known_types = known_types,
    .check = check,
    .open = open_output,
    .calibrate = calibrate,
    .write = write_output,
    .readable = readable,
    .publish = publish,
    .close = close_output,
    .count = count,
};
