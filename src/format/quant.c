/* format/quant.c - see format/quant.h for the contract: which method a folder was quantised with,
 * and what the methods share. */
#include "format/quant.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"

enum { NAME_BYTES = LIMIT_TENSOR_NAME_BYTES + 64, TEXT_BYTES = 512 };

/* ---- tensors ---- */

bool quant_stem(struct str name, const char *suffix, struct str *stem) {
    if (!str_ends(name, str_of(suffix))) return false;
    *stem = str_take(name, name.len - strlen(suffix));
    return stem->len > 0;
}

static struct str joined(struct str stem, const char *suffix, char out[NAME_BYTES]) {
    int len = snprintf(out, NAME_BYTES, "%.*s%s", STR_ARG(stem), suffix);
    CHECK(len > 0);
    CHECK(len < NAME_BYTES);
    return (struct str){out, (size_t)len};
}

const struct raw_tensor *quant_raw(const struct quant *q, struct str stem, const char *suffix) {
    char name[NAME_BYTES];
    uint32_t idx;
    return map_find(q->f->raw_names, joined(stem, suffix, name), &idx) ? &q->f->raws[idx] : NULL;
}

const struct tensor_info *quant_part(const struct quant *q, struct str stem, const char *suffix) {
    char name[NAME_BYTES];
    uint32_t idx;
    if (!map_find(q->f->tensor_names, joined(stem, suffix, name), &idx)) return NULL;
    q->f->tensors[idx].is_part = true;
    return &q->f->tensors[idx];
}

/* A tensor of integers that had this name is now the one with rows. */
enum status quant_add(struct quant *q, struct str stem, struct tensor_info t) {
    char name[NAME_BYTES];
    uint32_t idx;
    CHECK(t.source);
    joined(stem, ".weight", name);
    t.name = arena_dup(q->f->arena, str_of(name));
    if (!t.name.ptr) return quant_no_memory(q);
    if (map_find(q->f->tensor_names, t.name, &idx) && !q->f->tensors[idx].is_part)
        return quant_say(q, "tensor %s: is there beside its quantised form, expected one of them",
                         name);
    TRY(model_file_reserve(q->f, q->f->path, 1, q->err));
    if (map_put(q->f->tensor_names, t.name, (uint32_t)q->f->tensor_count) != ST_OK)
        return quant_no_memory(q);
    q->f->tensors[q->f->tensor_count++] = t;
    return ST_OK;
}

/* ---- sentences ---- */

enum status quant_no_memory(const struct quant *q) { return no_memory(q->f->path, q->err); }

enum status quant_say(const struct quant *q, const char *what, ...) {
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, what);
    vsnprintf(text, sizeof(text), what, args);
    va_end(args);
    return err_set(q->err, ST_BAD, "%s: %s", q->f->path, text);
}

enum status quant_say_missing(const struct quant *q, struct str stem, const char *suffix,
                              const char *needed_by) {
    return quant_say(q,
                     "tensor %.*s%s is missing; %.*s%s cannot be read without it. Fetch the folder "
                     "again",
                     STR_ARG(stem), suffix, STR_ARG(stem), needed_by);
}

/* "(2, 3)" */
static void put_shape(uint32_t count, const uint64_t *dims, char *out, size_t bytes) {
    size_t used = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < count && i < TENSOR_DIMS_MAX && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%" PRIu64, i ? ", " : "", dims[i]);
}

static bool has_shape(uint32_t count, const uint64_t *dims, uint64_t rows, uint64_t cols) {
    if (cols == 0) return count == 1 && dims[0] == rows;
    return count == 2 && dims[0] == rows && dims[1] == cols;
}

/* What was found. */
struct found {
    struct str name;
    const char *format;
    uint32_t dim_count;
    const uint64_t *dims;
};

static enum status check_shape(const struct quant *q, const struct found *t, uint64_t rows,
                               uint64_t cols, const char *why) {
    char shape[128], expected[64];
    const uint64_t dims[2] = {rows, cols};
    if (has_shape(t->dim_count, t->dims, rows, cols)) return ST_OK;
    put_shape(t->dim_count, t->dims, shape, sizeof(shape));
    put_shape(cols ? 2 : 1, dims, expected, sizeof(expected));
    return quant_say(q, "tensor %.*s is %s of shape (%s), expected (%s) %s", STR_ARG(t->name),
                     t->format, shape, expected, why);
}

enum status quant_check_raw(const struct quant *q, const struct raw_tensor *t, const char *format,
                            uint64_t rows, uint64_t cols, const char *why) {
    const struct found found = {t->name, t->format, t->dim_count, t->dims};
    if (strcmp(t->format, format) != 0)
        return quant_say(q, "tensor %.*s is %s, expected %s. Fetch the folder again",
                         STR_ARG(t->name), t->format, format);
    return check_shape(q, &found, rows, cols, why);
}

enum status quant_check_part(const struct quant *q, const struct tensor_info *t, uint64_t rows,
                             uint64_t cols, const char *why) {
    const struct found found = {t->name, dtype_info(t->type)->name, t->dim_count, t->dims};
    return check_shape(q, &found, rows, cols, why);
}

bool quant_int(const struct quant *q, const char *path, int64_t *out) {
    const struct json *v = json_path(q->config, path);
    if (json_kind(v) != JS_INT) return false;
    *out = json_int(v, 0);
    return true;
}

/* ---- which method ---- */

static const struct method {
    const char *name;
    enum status (*apply)(struct quant *q);
} methods[] = {
    {"gptq", quant_gptq},         {"awq", quant_awq}, {"compressed-tensors", quant_ct},
    {"bitsandbytes", quant_bnb},  {"fp8", quant_fp8}, {"fbgemm_fp8", quant_fbgemm},
    {"modelopt", quant_modelopt},
};
enum { METHOD_COUNT = sizeof(methods) / sizeof(methods[0]) };

/* The configs that tools put, or used to put, beside config.json. */
static const struct {
    const char *file, *method;
} older_configs[] = {{"quantize_config.json", "gptq"},
                     {"quant_config.json", "awq"},
                     {"hf_quant_config.json", "modelopt"}};

/* Integers or e4m3 whose names say that they are codes of a matrix. */
static const struct raw_tensor *find_codes(const struct model_file *f) {
    static const char *const suffixes[] = {".qweight", ".weight_packed", ".weight"};
    struct str stem;
    for (size_t i = 0; i < f->raw_count; i++)
        for (size_t s = 0; s < sizeof(suffixes) / sizeof(suffixes[0]); s++)
            if (quant_stem(f->raws[i].name, suffixes[s], &stem)) return &f->raws[i];
    return NULL;
}

static enum status say_unknown(const struct quant *q, struct str method) {
    char known[128] = "";
    size_t used = 0;
    for (int i = 0; i < METHOD_COUNT; i++) {
        int put =
            snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", methods[i].name);
        if (put > 0) used += (size_t)put;
        CHECK(used < sizeof(known));
    }
    return quant_say(q,
                     "config.json: quantization_config: quant_method \"%.*s\" is not read; these "
                     "are: %s. Use another folder or a GGUF of the model",
                     STR_ARG(str_take(method, 40)), known);
}

static enum status apply_method(struct quant *q, struct str method) {
    for (int i = 0; i < METHOD_COUNT; i++)
        if (str_is(method, methods[i].name)) return methods[i].apply(q);
    return say_unknown(q, method);
}

static enum status apply_config(struct quant *q, const struct json *config) {
    q->config = json_get(config, "quantization_config");
    if (json_kind(q->config) == JS_MAP)
        return apply_method(q, json_str(json_get(q->config, "quant_method")));
    const struct raw_tensor *codes = find_codes(q->f);
    if (!codes) return ST_OK;
    for (size_t i = 0; i < sizeof(older_configs) / sizeof(older_configs[0]); i++) {
        TRY(model_file_json(q->f, older_configs[i].file, &q->config, q->err));
        if (q->config) return apply_method(q, str_of(older_configs[i].method));
    }
    return quant_say(q,
                     "tensor %.*s holds codes of type %s, but config.json has no "
                     "quantization_config, which says how to read them. Fetch the folder again",
                     STR_ARG(codes->name), codes->format);
}

enum status quant_apply(struct model_file *f, const struct json *config, struct err *err) {
    struct err problem = {{0}};
    struct quant q = {.f = f, .err = &problem};
    enum status st = apply_config(&q, config);
    if (st == ST_OK) st = model_file_drop_parts(f, &problem);
    if (st == ST_OK) return ST_OK;
    if (st != ST_BAD) return err_set(err, st, "%s", problem.text);
    f->problem = arena_dup(f->arena, str_of(problem.text)).ptr;
    return f->problem ? ST_OK : no_memory(f->path, err);
}
