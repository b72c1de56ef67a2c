/* model/names.c - see model/names.h for the contract.
 *
 * GGUF has one set of names for all architectures. Folders have a usual set, which
 * architectures override row by row (struct arch.names).
 */
#include "model/names.h"

#include <stdio.h>

#include "base/check.h"

struct name_row {
    const char *gguf, *hf;
};

static const struct name_row mat_rows[MAT_COUNT] = {
    [MAT_Q] = {"attn_q.weight", "self_attn.q_proj.weight"},
    [MAT_K] = {"attn_k.weight", "self_attn.k_proj.weight"},
    [MAT_V] = {"attn_v.weight", "self_attn.v_proj.weight"},
    [MAT_QKV] = {"attn_qkv.weight", "self_attn.qkv_proj.weight"},
    [MAT_O] = {"attn_output.weight", "self_attn.o_proj.weight"},
    [MAT_GATE] = {"ffn_gate.weight", "mlp.gate_proj.weight"},
    [MAT_UP] = {"ffn_up.weight", "mlp.up_proj.weight"},
    [MAT_GATE_UP] = {NULL, "mlp.gate_up_proj.weight"},
    [MAT_DOWN] = {"ffn_down.weight", "mlp.down_proj.weight"},
    [MAT_ROUTER] = {"ffn_gate_inp.weight", "mlp.gate.weight"},
    [MAT_EXPERT_GATE] = {"ffn_gate_exps.weight", "mlp.experts.%u.gate_proj.weight"},
    [MAT_EXPERT_UP] = {"ffn_up_exps.weight", "mlp.experts.%u.up_proj.weight"},
    [MAT_EXPERT_DOWN] = {"ffn_down_exps.weight", "mlp.experts.%u.down_proj.weight"},
};

static const struct name_row vec_rows[VEC_COUNT] = {
    [VEC_ATTN_NORM] = {"attn_norm.weight", "input_layernorm.weight"},
    [VEC_FFN_NORM] = {"ffn_norm.weight", "post_attention_layernorm.weight"},
    [VEC_ATTN_POST_NORM] = {"post_attention_norm.weight", NULL},
    [VEC_FFN_POST_NORM] = {"post_ffw_norm.weight", NULL},
    [VEC_Q_NORM] = {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    [VEC_K_NORM] = {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    [VEC_ATTN_NORM_BIAS] = {NULL, NULL},
    [VEC_FFN_NORM_BIAS] = {NULL, NULL},
    [VEC_Q_BIAS] = {"attn_q.bias", "self_attn.q_proj.bias"},
    [VEC_K_BIAS] = {"attn_k.bias", "self_attn.k_proj.bias"},
    [VEC_V_BIAS] = {"attn_v.bias", "self_attn.v_proj.bias"},
    [VEC_QKV_BIAS] = {"attn_qkv.bias", "self_attn.qkv_proj.bias"},
    [VEC_O_BIAS] = {"attn_output.bias", "self_attn.o_proj.bias"},
    [VEC_GATE_BIAS] = {"ffn_gate.bias", "mlp.gate_proj.bias"},
    [VEC_UP_BIAS] = {"ffn_up.bias", "mlp.up_proj.bias"},
    [VEC_DOWN_BIAS] = {"ffn_down.bias", "mlp.down_proj.bias"},
};

/* An encoder's norms come after their block, and have names of their own in GGUF. */
static const struct name_row encoder_vec_rows[VEC_COUNT] = {
    [VEC_ATTN_NORM] = {"attn_output_norm.weight", NULL},
    [VEC_ATTN_NORM_BIAS] = {"attn_output_norm.bias", NULL},
    [VEC_FFN_NORM] = {"layer_output_norm.weight", NULL},
    [VEC_FFN_NORM_BIAS] = {"layer_output_norm.bias", NULL},
};

static const char *override_of(const struct arch *arch, bool is_vec, int slot) {
    for (const struct name_override *o = arch->names; o && o->hf; o++)
        if (o->is_vec == is_vec && o->slot == slot) return o->hf;
    return NULL;
}

/* Our own patterns hold at most one "%u", the expert. */
static bool put_name(bool is_hf, const char *prefix, uint32_t layer, const char *pattern,
                     uint32_t expert, char out[NAME_BYTES]) {
    if (!pattern) return false;
    int used = is_hf ? snprintf(out, NAME_BYTES, "%s%u.", prefix, layer)
                     : snprintf(out, NAME_BYTES, "blk.%u.", layer);
    CHECK(used > 0 && used < NAME_BYTES);
    const char *p = pattern;
    for (; *p && used < NAME_BYTES - 16; p++) {
        if (p[0] == '%' && p[1] == 'u') {
            used += snprintf(out + used, (size_t)(NAME_BYTES - used), "%u", expert);
            p++;
        } else {
            out[used++] = *p;
        }
    }
    CHECK(*p == 0);
    out[used] = 0;
    return true;
}

bool mat_name(const struct name_style *s, enum mat mat, uint32_t layer, uint32_t expert,
              char out[NAME_BYTES]) {
    const char *special = s->is_hf ? override_of(s->arch, false, (int)mat) : NULL;
    const char *usual = s->is_hf ? mat_rows[mat].hf : mat_rows[mat].gguf;
    return put_name(s->is_hf, s->prefix, layer, special ? special : usual, expert, out);
}

bool vec_name(const struct name_style *s, enum vec vec, uint32_t layer, char out[NAME_BYTES]) {
    const char *special = s->is_hf ? override_of(s->arch, true, (int)vec) : NULL;
    const char *usual = s->is_hf ? vec_rows[vec].hf : vec_rows[vec].gguf;
    if (s->arch->encoder && !s->is_hf && encoder_vec_rows[vec].gguf)
        usual = encoder_vec_rows[vec].gguf;
    return put_name(s->is_hf, s->prefix, layer, special ? special : usual, 0, out);
}
