/* quant/convert.c - see quant/convert.h for the contract. */
#include "quant/convert.h"

#include "base/check.h"
#include "base/mem.h"
#include "format/gguf_writer.h"
#include "format/model_file.h"
#include "quant/choose.h"
#include "quant/quant.h"
#include "quant/recode.h"

enum { QUANTIZATION_VERSION = 2 };

struct convert {
    const struct model_file *f;
    struct gguf_writer *writer;
    struct convert_tensor *tensors; /* heap */
    size_t count;
    uint64_t elems; /* of all tensors */
    /* while writing */
    const struct convert_run *run;
    uint64_t done_elems;
    size_t current; /* tensor */
};

static bool drop_key(struct str key) {
    return str_is(key, "general.file_type") || str_is(key, "general.quantization_version");
}

static void put_keys(struct convert *c, enum dtype type) {
    gguf_writer_copy_keys(c->writer, c->f, drop_key);
    gguf_writer_put_u32(c->writer, "general.file_type", choose_file_type(type));
    gguf_writer_put_u32(c->writer, "general.quantization_version", QUANTIZATION_VERSION);
}

static uint64_t elems_of(const struct tensor_info *t) {
    uint64_t elems = 1;
    for (uint32_t i = 0; i < t->dim_count; i++) elems *= t->dims[i];
    return elems;
}

static enum status say_quantised(const struct convert *c, const struct tensor_info *t,
                                 struct err *err) {
    return err_set(err, ST_BAD,
                   "%s: tensor %.*s: is quantised already (%s), expected F32, F16 or BF16; use the "
                   "original model, or --allow-requantize, which adds a second loss to the first",
                   model_file_path(c->f), STR_ARG(t->made_of.len ? t->made_of : t->name),
                   dtype_info(t->type)->name);
}

static enum status choose_one(const struct convert *c, const struct convert_options *options,
                              bool has_output, struct convert_tensor *out, struct err *err) {
    const struct tensor_info *t = out->from;
    uint64_t width = t->dims[t->dim_count - 1];
    out->to = out->wanted = t->type;
    if ((unsigned)t->type < DTYPE_GGUF_COUNT && !choose_converts(t->name, t->dims, t->dim_count))
        return ST_OK;
    out->wanted = choose_type(options->type, t->name, width, has_output);
    out->to = choose_fallback(out->wanted, width);
    bool again = dtype_is_quantised(t->type) && out->to != t->type;
    return again && !options->allow_requantize ? say_quantised(c, t, err) : ST_OK;
}

static enum status choose_all(struct convert *c, const struct convert_options *options,
                              struct err *err) {
    bool has_output = tensor_find(c->f, "output.weight") != NULL;
    c->tensors = mem_zalloc_array(tensor_count(c->f), sizeof(c->tensors[0]));
    if (!c->tensors) return err_set(err, ST_NOMEM, "out of memory for the list of tensors");
    for (; c->count < tensor_count(c->f); c->count++) {
        const struct tensor_info *t = tensor_at(c->f, c->count);
        struct convert_tensor *own = &c->tensors[c->count];
        *own = (struct convert_tensor){.name = t->name, .from = t};
        TRY(choose_one(c, options, has_output, own, err));
        c->elems += elems_of(t);
        gguf_writer_add_tensor(c->writer, own->name, t, own->to);
    }
    return ST_OK;
}

enum status convert_create(const struct model_file *f, const struct convert_options *options,
                           struct convert **out, struct err *err) {
    CHECK(quant_has_encoder(options->type));
    CHECK(model_file_kind(f) == MODEL_GGUF);
    if (tensor_count(f) == 0)
        return err_set(err, ST_BAD, "%s: has no tensors, so there is nothing to quantise",
                       model_file_path(f));
    struct convert *c = mem_zalloc(sizeof(*c));
    if (!c) return err_set(err, ST_NOMEM, "out of memory");
    c->f = f;
    enum status st = gguf_writer_create(&c->writer, err);
    if (st == ST_OK) put_keys(c, options->type);
    if (st == ST_OK) st = choose_all(c, options, err);
    if (st == ST_OK)
        *out = c;
    else
        convert_destroy(c);
    return st;
}

void convert_destroy(struct convert *c) {
    if (!c) return;
    gguf_writer_destroy(c->writer);
    mem_free(c->tensors);
    mem_free(c);
}

size_t convert_count(const struct convert *c) { return c->count; }

struct convert_tensor *convert_at(struct convert *c, size_t i) {
    CHECK(i < c->count);
    return &c->tensors[i];
}

uint64_t convert_bytes(struct convert *c) { return gguf_writer_file_bytes(c->writer); }

static enum status put_bytes(void *ctx, const void *bytes, size_t len, struct err *err) {
    struct convert *c = ctx;
    const struct convert_tensor *t = &c->tensors[c->current];
    const struct dtype_info *info = dtype_info(t->to);
    c->done_elems += len / info->block_bytes * info->block_elems;
    if (c->run->on_progress) c->run->on_progress(c->run->progress_ctx, c->done_elems, c->elems);
    return gguf_writer_put_data(c->writer, bytes, len, err);
}

static enum status write_tensors(struct convert *c, struct recoder *r, struct err *err) {
    TRY(gguf_writer_begin(c->writer, c->run->file, err));
    for (c->current = 0; c->current < c->count; c->current++) {
        const struct convert_tensor *t = &c->tensors[c->current];
        const struct recode job = {.file = c->f,
                                   .tensor = t->from,
                                   .to = t->to,
                                   .importance = t->importance,
                                   .sink = put_bytes,
                                   .ctx = c};
        TRY(recode_tensor(r, &job, err));
        TRY(model_file_check(c->f, true, err));
    }
    gguf_writer_finish(c->writer);
    return ST_OK;
}

enum status convert_write(struct convert *c, const struct convert_run *run, struct err *err) {
    struct recoder *r;
    c->run = run;
    c->done_elems = 0;
    TRY(recoder_create(run->threads, &r, err));
    enum status st = write_tensors(c, r, err);
    recoder_destroy(r);
    return st;
}
