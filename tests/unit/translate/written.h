/* unit/translate/written.h - views as files, and the logits of files, for the tests of this folder.
 *
 * Include it after cmocka.h.
 */
#ifndef UNIT_TRANSLATE_WRITTEN_H
#define UNIT_TRANSLATE_WRITTEN_H

#include <math.h>

#include "base/file_out.h"
#include "base/mem.h"
#include "format/model_file.h"
#include "format/tensor_read.h"
#include "format/view.h"
#include "golden/golden_file.h"
#include "quant/convert.h"
#include "reference/forward.h"
#include "unit/format/make_files.h"

/* A GGUF view as a file; its matrices keep their type, or become float32 if GGUF has not theirs. */
static inline void write_gguf(const struct model_file *view, const char *path) {
    const struct tensor_info *t = tensor_find(view, "blk.0.attn_output.weight");
    bool is_plain = t->type == DTYPE_F16 || t->type == DTYPE_BF16;
    const struct convert_options options = {.type = is_plain ? t->type : DTYPE_F32,
                                            .allow_requantize = true};
    struct convert *c;
    struct file_out out;
    struct err err = {0};
    if (convert_create(view, &options, &c, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(file_out_open(path, false, &out, &err), ST_OK);
    const struct convert_run run = {.threads = 1, .file = &out};
    if (convert_write(c, &run, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(file_out_publish(&out, &err), ST_OK);
    file_out_close(&out);
    convert_destroy(c);
}

/* A folder view as files in `folder`, all tensors as float32. */
static inline void write_folder(const struct model_file *view, const char *folder) {
    struct buf head, data;
    buf_init(&head, 1 << 20);
    buf_init(&data, 1 << 28);
    for (size_t i = 0; i < view_text_count(view); i++) {
        struct view_text text = view_text_at(view, i);
        write_file(folder, text.name, text.text.ptr, text.text.len);
    }
    for (size_t i = 0; i < tensor_count(view); i++) {
        const struct tensor_info *t = tensor_at(view, i);
        size_t elems = (size_t)tensor_elems(t), start = data.len;
        float *x = mem_alloc_array(elems, sizeof(*x));
        tensor_read_f32(t, 0, elems, x);
        buf_put(&data, x, elems * sizeof(*x));
        mem_free(x);
        buf_printf(&head, "%s\"%.*s\":{\"dtype\":\"F32\",\"shape\":[%llu", i ? "," : "{",
                   STR_ARG(t->name), (unsigned long long)t->dims[0]);
        for (uint32_t d = 1; d < t->dim_count; d++)
            buf_printf(&head, ",%llu", (unsigned long long)t->dims[d]);
        buf_printf(&head, "],\"data_offsets\":[%zu,%zu]}", start, data.len);
    }
    buf_put_char(&head, '}');
    struct buf file;
    buf_init(&file, 1 << 28);
    put_u64(&file, head.len);
    buf_put_str(&file, buf_str(&head));
    buf_put_str(&file, buf_str(&data));
    assert_int_equal(buf_status(&file), ST_OK);
    write_buf(folder, "model.safetensors", &file);
    buf_deinit(&file);
    buf_deinit(&head);
    buf_deinit(&data);
}

struct logits {
    float *at; /* heap */
    size_t count, room, width;
};

static inline enum status keep_logits(void *ctx, uint32_t first, uint32_t count, const float *x) {
    struct logits *l = ctx;
    (void)first;
    assert_true(l->count + count * l->width <= l->room);
    memcpy(l->at + l->count, x, count * l->width * sizeof(*x));
    l->count += count * l->width;
    return ST_OK;
}

static inline void normalise(float *x, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)x[i] * (double)x[i];
    for (size_t i = 0; i < count; i++) x[i] = (float)((double)x[i] / sqrt(sum));
}

/* The logits of a prompt, or its embedding scaled to unit length, which a GGUF always has. */
static inline void compute_logits(const char *path, const struct prompt *p, struct logits *out) {
    const struct forward_options o = {
        .threads = 1, .ctx_tokens = p->tokens, .kv_type = KV_F32, .isa = "auto"};
    struct forward *e = NULL;
    struct err err = {0};
    *out = (struct logits){.room = (size_t)p->tokens * p->width, .width = p->width};
    out->at = mem_alloc_array(out->room, sizeof(float));
    if (forward_open(path, &o, &e, &err) != ST_OK) fail_msg("%s", err.text);
    enum status st;
    if (forward_is_encoder(e)) {
        st = forward_embed(e, p->ids, p->tokens, out->at, &err);
        out->count = p->width;
        normalise(out->at, out->count);
    } else {
        st = forward_logits(e, p->ids, p->tokens, keep_logits, out, &err);
    }
    if (st != ST_OK) fail_msg("%s", err.text);
    forward_close(e);
}

/* The largest difference of the logits of two models, for the prompts of a golden file. */
static inline float logits_apart(const char *a, const char *b, const char *goldens) {
    struct golden g = {.count = 0};
    float largest = 0;
    assert_true(golden_read(goldens, &g));
    for (uint32_t i = 0; i < g.count; i++) {
        struct logits x, y;
        compute_logits(a, &g.prompts[i], &x);
        compute_logits(b, &g.prompts[i], &y);
        assert_int_equal(x.count, y.count);
        for (size_t k = 0; k < x.count; k++) {
            float diff = fabsf(x.at[k] - y.at[k]);
            if (!(diff <= largest)) largest = diff;
        }
        mem_free(x.at);
        mem_free(y.at);
    }
    golden_free(&g);
    return largest;
}

/* Every element of `want` and `got`, which may be `most` of it apart. */
static inline void compare_tensors(const struct tensor_info *want, const struct tensor_info *got,
                                   float most) {
    float a[512], b[512];
    assert_int_equal(got->dim_count, want->dim_count);
    assert_memory_equal(got->dims, want->dims, sizeof(want->dims));
    for (uint64_t at = 0, total = tensor_elems(want), count; at < total; at += count) {
        count = total - at < 512 ? total - at : 512;
        tensor_read_f32(want, at, (size_t)count, a);
        tensor_read_f32(got, at, (size_t)count, b);
        for (uint64_t i = 0; i < count; i++)
            if (!(fabsf(a[i] - b[i]) <= most * fabsf(a[i])))
                fail_msg("%.*s: element %llu is %g, expected %g", STR_ARG(want->name),
                         (unsigned long long)(at + i), (double)b[i], (double)a[i]);
    }
}

#endif
