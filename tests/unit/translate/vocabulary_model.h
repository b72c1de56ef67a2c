/* unit/translate/vocabulary_model.h - a small model with the vocabulary of a file that has no more
 * than that.
 *
 * Include it after cmocka.h.
 */
#ifndef UNIT_TRANSLATE_VOCABULARY_MODEL_H
#define UNIT_TRANSLATE_VOCABULARY_MODEL_H

#include "base/file_out.h"
#include "base/mem.h"
#include "format/gguf_writer.h"
#include "format/model_file.h"

static inline bool is_no_token_key(struct str key) { return !str_starts(key, STR("tokenizer.")); }

enum { DIM = 4, FFN = 4 };

static inline void put_numbers(struct gguf_writer *w) {
    gguf_writer_put_str(w, "general.architecture", STR("llama"));
    gguf_writer_put_u32(w, "llama.block_count", 1);
    gguf_writer_put_u32(w, "llama.embedding_length", DIM);
    gguf_writer_put_u32(w, "llama.feed_forward_length", FFN);
    gguf_writer_put_u32(w, "llama.attention.head_count", 1);
    gguf_writer_put_u32(w, "llama.attention.head_count_kv", 1);
    gguf_writer_put_u32(w, "llama.context_length", 64);
    gguf_writer_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

/* llama with one layer and the vocabulary of the GGUF `vocabulary`, as the file `path`. true_key:
 * one more key, or NULL. */
static inline void write_with_vocabulary(const char *vocabulary, const char *path,
                                         const char *true_key) {
    static const char *const names[] = {
        "token_embd.weight",     "blk.0.attn_q.weight",      "blk.0.attn_k.weight",
        "blk.0.attn_v.weight",   "blk.0.attn_output.weight", "blk.0.ffn_gate.weight",
        "blk.0.ffn_up.weight",   "blk.0.ffn_down.weight",    "blk.0.attn_norm.weight",
        "blk.0.ffn_norm.weight", "output_norm.weight"};
    enum { COUNT = sizeof(names) / sizeof(names[0]), MATRICES = 8 };
    struct gguf_writer *w;
    struct file_out out;
    struct model_file *from;
    struct err err = {0};
    uint64_t vocab, rows[COUNT];
    struct str name = {0};
    bool found;
    assert_int_equal(model_file_open(vocabulary, &from, &err), ST_OK);
    meta_list(from, "tokenizer.ggml.tokens", &vocab);
    assert_int_equal(gguf_writer_create(&w, &err), ST_OK);
    put_numbers(w);
    meta_str(from, "general.name", &found, &name, NULL);
    if (found) gguf_writer_put_str(w, "general.name", name);
    gguf_writer_copy_keys(w, from, is_no_token_key);
    if (true_key) gguf_writer_put_bool(w, true_key, true);
    for (int i = 0; i < COUNT; i++) {
        rows[i] = i == 0 ? vocab : i < MATRICES ? DIM : 1;
        struct tensor_info t = {.dim_count = i < MATRICES ? 2 : 1, .dims = {rows[i], DIM, 1, 1}};
        if (i >= MATRICES) t.dims[0] = DIM, t.dims[1] = 1;
        gguf_writer_add_tensor(w, str_of(names[i]), &t, DTYPE_F32);
    }
    assert_int_equal(file_out_open(path, false, &out, &err), ST_OK);
    assert_int_equal(gguf_writer_begin(w, &out, &err), ST_OK);
    for (int i = 0; i < COUNT; i++) {
        float *x = mem_zalloc_array(rows[i] * DIM, sizeof(*x));
        for (uint64_t k = 0; k < rows[i] * DIM; k++) x[k] = (float)(k % 7) * 0.125f;
        assert_int_equal(gguf_writer_put_data(w, x, rows[i] * DIM * sizeof(*x), &err), ST_OK);
        mem_free(x);
    }
    gguf_writer_finish(w);
    assert_int_equal(file_out_publish(&out, &err), ST_OK);
    file_out_close(&out);
    gguf_writer_destroy(w);
    model_file_close(from);
}

#endif
