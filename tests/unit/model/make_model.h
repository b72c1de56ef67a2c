/* unit/model/make_model.h - writes tiny GGUF models whose every number can be a lie.
 *
 * A spec says what the keys claim; the tensors follow from it, one layer, float32, and a test
 * may leave one out or put another in its place. Include it from one test program.
 */
#ifndef UNIT_MODEL_MAKE_MODEL_H
#define UNIT_MODEL_MAKE_MODEL_H

#include <stdio.h>

#include "unit/format/make_files.h"

enum { SPEC_TENSORS_MAX = 32, SPEC_NAME_BYTES = 64 };

struct spec_tensor {
    char name[SPEC_NAME_BYTES];
    uint64_t dims[4]; /* fastest first, as GGUF has them; 0: no such dim */
    uint32_t type;
};

struct spec {
    const char *arch;
    uint32_t dim, heads, kv_heads, head_dim, ffn, vocab;
    uint32_t experts, experts_used, expert_ffn;
    bool has_qk_norm, has_qkv_bias, has_post_norms;
    const char *omit;    /* a tensor that is left out; NULL: none */
    const char *lie_key; /* this key has lie_value, whatever the tensors are; NULL: none */
    uint32_t lie_value;
    struct spec_tensor extra; /* takes the place of the tensor of that name, or is one more */
};

static inline struct spec spec_of(const char *arch) {
    return (struct spec){
        .arch = arch, .dim = 32, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 48, .vocab = 10};
}

struct spec_list {
    struct spec_tensor at[SPEC_TENSORS_MAX];
    uint32_t count;
};

static inline void list_add(struct spec_list *l, const char *name, uint64_t d0, uint64_t d1,
                            uint64_t d2) {
    struct spec_tensor t = {.dims = {d0, d1, d2}, .type = T_F32};
    snprintf(t.name, sizeof(t.name), "%s", name);
    l->at[l->count++] = t;
}

static inline void list_ffn(const struct spec *s, struct spec_list *l) {
    if (s->experts == 0) {
        list_add(l, "blk.0.ffn_gate.weight", s->dim, s->ffn, 0);
        list_add(l, "blk.0.ffn_up.weight", s->dim, s->ffn, 0);
        list_add(l, "blk.0.ffn_down.weight", s->ffn, s->dim, 0);
        return;
    }
    list_add(l, "blk.0.ffn_gate_inp.weight", s->dim, s->experts, 0);
    list_add(l, "blk.0.ffn_gate_exps.weight", s->dim, s->expert_ffn, s->experts);
    list_add(l, "blk.0.ffn_up_exps.weight", s->dim, s->expert_ffn, s->experts);
    list_add(l, "blk.0.ffn_down_exps.weight", s->expert_ffn, s->dim, s->experts);
}

static inline void list_attention(const struct spec *s, struct spec_list *l) {
    uint64_t q = (uint64_t)s->heads * s->head_dim, kv = (uint64_t)s->kv_heads * s->head_dim;
    list_add(l, "blk.0.attn_q.weight", s->dim, q, 0);
    list_add(l, "blk.0.attn_k.weight", s->dim, kv, 0);
    list_add(l, "blk.0.attn_v.weight", s->dim, kv, 0);
    list_add(l, "blk.0.attn_output.weight", q, s->dim, 0);
    if (s->has_qkv_bias) {
        list_add(l, "blk.0.attn_q.bias", q, 0, 0);
        list_add(l, "blk.0.attn_k.bias", kv, 0, 0);
        list_add(l, "blk.0.attn_v.bias", kv, 0, 0);
    }
    if (s->has_qk_norm) {
        list_add(l, "blk.0.attn_q_norm.weight", s->head_dim, 0, 0);
        list_add(l, "blk.0.attn_k_norm.weight", s->head_dim, 0, 0);
    }
}

/* What the file will hold. */
static inline struct spec_list list_of(const struct spec *s) {
    struct spec_list all = {.count = 0}, kept = {.count = 0};
    list_add(&all, "token_embd.weight", s->dim, s->vocab, 0);
    list_add(&all, "output_norm.weight", s->dim, 0, 0);
    list_add(&all, "blk.0.attn_norm.weight", s->dim, 0, 0);
    list_add(&all, "blk.0.ffn_norm.weight", s->dim, 0, 0);
    if (s->has_post_norms) {
        list_add(&all, "blk.0.post_attention_norm.weight", s->dim, 0, 0);
        list_add(&all, "blk.0.post_ffw_norm.weight", s->dim, 0, 0);
    }
    list_attention(s, &all);
    list_ffn(s, &all);
    for (uint32_t i = 0; i < all.count; i++)
        if (!(s->omit && strcmp(all.at[i].name, s->omit) == 0) &&
            strcmp(all.at[i].name, s->extra.name) != 0)
            kept.at[kept.count++] = all.at[i];
    if (s->extra.name[0]) kept.at[kept.count++] = s->extra;
    return kept;
}

static inline uint64_t spec_tensor_bytes(const struct spec_tensor *t) {
    uint64_t elems = 1;
    for (int i = 0; i < 4; i++) elems *= t->dims[i] ? t->dims[i] : 1;
    return t->type == T_Q8_0 ? elems / 32 * 34 : t->type == T_F16 ? elems * 2 : elems * 4;
}

static inline void put_spec_key(struct buf *b, const struct spec *s, const char *key,
                                uint32_t value) {
    char full[SPEC_NAME_BYTES];
    snprintf(full, sizeof(full), "%s.%s", s->arch, key);
    put_key_u32(b, full, s->lie_key && strcmp(key, s->lie_key) == 0 ? s->lie_value : value);
}

static inline void put_spec_tensors(struct buf *b, const struct spec_list *l) {
    uint64_t offset = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        const struct spec_tensor *t = &l->at[i];
        uint32_t dims = 0;
        while (dims < 4 && t->dims[dims]) dims++;
        put_string(b, t->name);
        put_u32(b, dims);
        for (uint32_t d = 0; d < dims; d++) put_u64(b, t->dims[d]);
        put_u32(b, t->type);
        put_u64(b, offset);
        offset = (offset + spec_tensor_bytes(t) + 31) / 32 * 32;
    }
    put_pad(b, 32);
    for (uint64_t i = 0; i < offset; i++) buf_put_char(b, 0);
}

static inline void put_spec(struct buf *b, const struct spec *s) {
    struct spec_list l = list_of(s);
    put_head(b, 3, l.count, 12);
    put_key_str(b, "general.architecture", s->arch);
    put_spec_key(b, s, "block_count", 1);
    put_spec_key(b, s, "embedding_length", s->dim);
    put_spec_key(b, s, "attention.head_count", s->heads);
    put_spec_key(b, s, "attention.head_count_kv", s->kv_heads);
    put_spec_key(b, s, "attention.key_length", s->head_dim);
    put_spec_key(b, s, "feed_forward_length", s->ffn);
    put_spec_key(b, s, "expert_count", s->experts);
    put_spec_key(b, s, "expert_used_count", s->experts_used);
    put_spec_key(b, s, "expert_feed_forward_length", s->expert_ffn);
    put_spec_key(b, s, "context_length", 4096);
    put_spec_key(b, s, "rope.scaling.original_context_length", 2048);
    put_spec_tensors(b, &l);
}

#endif
