/* model/blocks.c - see model/blocks.h for the contract. */
#include "model/blocks.h"

#include "base/check.h"
#include "model/arch.h"

static struct operand fresh(struct flow *f, const char *name, enum value_type type, uint32_t cols) {
    enum rows_kind rows = tape_value_at(f->t, f->x.value)->rows;
    return tape_all(f->t, tape_value(f->t, name, rows, type, cols));
}

struct flow flow_begin(const struct model *m, struct tape *t) {
    struct flow f = {.m = m, .t = t};
    f.x = tape_all(t, tape_value(t, "x", ROWS_TOKENS, VALUE_F32, m->hp.dim));
    tape_push(t, &(struct op){.kind = OP_EMBED,
                              .embed = {.table = &m->token_embd,
                                        .source = EMBED_TOKEN,
                                        .scale = m->hp.embed_scale,
                                        .dst = f.x}});
    return f;
}

static void push_norm(struct flow *f, struct operand src, struct operand dst,
                      const struct weight *weight, uint32_t group) {
    tape_push(f->t, &(struct op){.kind = OP_NORM,
                                 .norm = {.kind = NORM_RMS,
                                          .group = group,
                                          .eps = f->m->hp.norm_eps,
                                          .weight = weight,
                                          .src = src,
                                          .dst = dst,
                                          .q8 = operand_none}});
}

struct operand block_norm(struct flow *f, struct operand x, const struct weight *weight) {
    struct operand out = fresh(f, "norm", VALUE_F32, x.cols);
    push_norm(f, x, out, weight, x.cols);
    return out;
}

/* The quantised form of `input` if one of the matrices needs it, else NONE. */
static struct operand quantised(struct flow *f, struct operand input,
                                const struct matmul_part *parts, uint32_t count) {
    bool wanted = false;
    for (uint32_t i = 0; i < count; i++)
        if (dtype_has_integers(parts[i].weight->type)) wanted = true;
    if (!wanted) return operand_none;
    struct operand q8 = fresh(f, "q8", VALUE_Q8, input.cols);
    tape_push(f->t, &(struct op){.kind = OP_QUANT, .quant = {.src = input, .q8 = q8}});
    return q8;
}

static void push_matmul(struct flow *f, struct operand src, struct operand dst,
                        const struct matmul_part *parts, uint32_t count) {
    struct op op = {.kind = OP_MATMUL, .matmul = {.part_count = count, .src = src, .dst = dst}};
    for (uint32_t i = 0; i < count; i++) op.matmul.parts[i] = parts[i];
    tape_push(f->t, &op);
}

/* Neighbours of one kind (all plain or all quantised) become one op. */
static void push_parts(struct flow *f, struct operand plain, struct operand q8, struct operand dst,
                       const struct matmul_part *parts, uint32_t count) {
    uint32_t col = 0;
    for (uint32_t i = 0; i < count;) {
        bool quant = dtype_has_integers(parts[i].weight->type);
        uint32_t end = i, cols = 0;
        while (end < count && dtype_has_integers(parts[end].weight->type) == quant)
            cols += parts[end++].weight->rows;
        push_matmul(f, quant ? q8 : plain, operand_slice(dst, col, cols), parts + i, end - i);
        col += cols;
        i = end;
    }
}

/* The input in the order in which a weight's columns are. */
static struct operand ordered(struct flow *f, struct operand input, const struct weight *order) {
    if (!order) return input;
    struct operand out = fresh(f, "ordered", VALUE_F32, input.cols);
    tape_push(f->t, &(struct op){.kind = OP_PERMUTE,
                                 .permute = {.order = order, .src = input, .dst = out}});
    return out;
}

struct operand block_matmul(struct flow *f, const char *name, struct operand input,
                            const struct matmul_part *parts, uint32_t count) {
    CHECK(count > 0 && count <= OP_PARTS_MAX);
    uint32_t cols = 0;
    for (uint32_t i = 0; i < count; i++) cols += parts[i].weight->rows;
    struct operand dst = operand_none;
    for (uint32_t i = 0, col = 0; i < count;) {
        uint32_t end = i, wide = 0;
        while (end < count && parts[end].weight->order == parts[i].weight->order)
            wide += parts[end++].weight->rows;
        struct operand src = ordered(f, input, parts[i].weight->order);
        struct operand q8 = quantised(f, src, parts + i, end - i);
        if (i == 0) dst = fresh(f, name, VALUE_F32, cols);
        push_parts(f, src, q8, operand_slice(dst, col, wide), parts + i, end - i);
        col += wide;
        i = end;
    }
    return dst;
}

/* Queries, keys and values side by side in one value. */
static struct operand project_qkv(struct flow *f, const struct layer *l, struct operand input) {
    if (l->mat[MAT_QKV].data) {
        struct matmul_part fused = {&l->mat[MAT_QKV], l->vec[VEC_QKV_BIAS]};
        return block_matmul(f, "qkv", input, &fused, 1);
    }
    struct matmul_part parts[] = {{&l->mat[MAT_Q], l->vec[VEC_Q_BIAS]},
                                  {&l->mat[MAT_K], l->vec[VEC_K_BIAS]},
                                  {&l->mat[MAT_V], l->vec[VEC_V_BIAS]}};
    return block_matmul(f, "qkv", input, parts, 3);
}

static void push_rope(struct flow *f, const struct layer *l, struct operand x, uint32_t heads) {
    const struct model *m = f->m;
    const struct rope_params *r = l->slides ? &m->hp.rope_local : &m->hp.rope;
    tape_push(f->t,
              &(struct op){.kind = OP_ROPE,
                           .rope = {.style = r->style,
                                    .heads = heads,
                                    .head_dim = m->hp.head_dim,
                                    .rot_dims = r->rot_dims,
                                    .freqs = l->slides ? m->rope_freqs_local : m->rope_freqs,
                                    .factor = l->slides ? m->rope_factor_local : m->rope_factor,
                                    .x = x}});
}

static struct operand push_attention(struct flow *f, uint32_t layer, struct operand q) {
    const struct hparams *hp = &f->m->hp;
    const struct layer *l = &f->m->layers[layer];
    struct operand out = fresh(f, "attn", VALUE_F32, q.cols);
    tape_push(f->t, &(struct op){.kind = OP_ATTENTION,
                                 .attention = {.layer = l->kv_layer,
                                               .group = l->kv_group,
                                               .heads = hp->heads,
                                               .kv_heads = hp->kv_heads,
                                               .head_dim = hp->head_dim,
                                               .window = l->slides ? hp->window : 0,
                                               .scale = hp->attn_scale,
                                               .softcap = hp->attn_softcap,
                                               .q = q,
                                               .dst = out,
                                               .q8 = operand_none,
                                               .smoothing = l->smoothing}});
    return out;
}

/* The rows whose output is wanted. */
static struct operand wanted_rows(struct flow *f, struct operand x) {
    struct operand rows = tape_all(f->t, tape_value(f->t, "rows", ROWS_OUTPUTS, VALUE_F32, x.cols));
    tape_push(f->t, &(struct op){.kind = OP_GATHER, .gather = {.src = x, .dst = rows}});
    return rows;
}

void flow_wanted(struct flow *f) { f->x = wanted_rows(f, f->x); }

struct operand block_attention(struct flow *f, uint32_t layer, struct operand input) {
    const struct hparams *hp = &f->m->hp;
    const struct layer *l = &f->m->layers[layer];
    uint32_t q_cols = hp->heads * hp->head_dim, kv_cols = hp->kv_heads * hp->head_dim;

    struct operand qkv = project_qkv(f, l, input);
    struct operand q = operand_slice(qkv, 0, q_cols);
    struct operand k = operand_slice(qkv, q_cols, kv_cols);
    struct operand v = operand_slice(qkv, q_cols + kv_cols, kv_cols);
    if (l->vec[VEC_Q_NORM]) push_norm(f, q, q, l->vec[VEC_Q_NORM], hp->head_dim);
    if (l->vec[VEC_K_NORM]) push_norm(f, k, k, l->vec[VEC_K_NORM], hp->head_dim);
    push_rope(f, l, q, hp->heads);
    push_rope(f, l, k, hp->kv_heads);
    tape_push(f->t, &(struct op){.kind = OP_KV_WRITE,
                                 .kv_write = {.layer = l->kv_layer,
                                              .group = l->kv_group,
                                              .k = k,
                                              .v = v,
                                              .smoothing = l->smoothing}});
    struct operand out = push_attention(f, layer, q);
    if (layer + 1 == hp->layers && !f->keeps_rows) {
        out = wanted_rows(f, out);
        flow_wanted(f);
    }
    struct matmul_part o = {&l->mat[MAT_O], l->vec[VEC_O_BIAS]};
    return block_matmul(f, "attn_out", out, &o, 1);
}

/* act(gate) * up over `segments` pairs that lie side by side in gate_up. */
static struct operand push_glu(struct flow *f, struct operand gate_up, uint32_t ffn,
                               uint32_t segments) {
    struct operand out = fresh(f, "act", VALUE_F32, ffn * segments);
    tape_push(f->t, &(struct op){.kind = OP_ACT,
                                 .act = {.kind = f->m->hp.act,
                                         .segments = segments,
                                         .stride = 2 * ffn,
                                         .gate = operand_slice(gate_up, 0, ffn),
                                         .up = operand_slice(gate_up, ffn, ffn),
                                         .dst = out,
                                         .q8 = operand_none}});
    return out;
}

struct operand block_ffn(struct flow *f, uint32_t layer, struct operand input) {
    const struct layer *l = &f->m->layers[layer];
    struct matmul_part fused = {&l->mat[MAT_GATE_UP], NULL};
    struct matmul_part apart[] = {{&l->mat[MAT_GATE], l->vec[VEC_GATE_BIAS]},
                                  {&l->mat[MAT_UP], l->vec[VEC_UP_BIAS]}};
    struct operand gate_up = l->mat[MAT_GATE_UP].data ? block_matmul(f, "gate_up", input, &fused, 1)
                                                      : block_matmul(f, "gate_up", input, apart, 2);
    struct operand act = push_glu(f, gate_up, gate_up.cols / 2, 1);
    struct matmul_part down = {&l->mat[MAT_DOWN], l->vec[VEC_DOWN_BIAS]};
    return block_matmul(f, "ffn_out", act, &down, 1);
}

/* `args` lacks what this function sets: the number of experts and the result. */
static struct operand push_expert_matmul(struct flow *f, const char *name,
                                         struct op_expert_matmul args) {
    uint32_t cols = 0;
    for (uint32_t i = 0; i < args.part_count; i++) cols += args.parts[i].weight->rows;
    args.used = f->m->hp.experts_used;
    args.dst = fresh(f, name, VALUE_F32, cols * args.used);
    tape_push(f->t, &(struct op){.kind = OP_EXPERT_MATMUL, .expert_matmul = args});
    return args.dst;
}

struct operand block_experts(struct flow *f, uint32_t layer, struct operand input) {
    const struct hparams *hp = &f->m->hp;
    const struct layer *l = &f->m->layers[layer];
    uint32_t used = hp->experts_used;
    struct matmul_part router = {&l->mat[MAT_ROUTER], NULL};
    struct matmul_part gate_up[] = {{&l->mat[MAT_EXPERT_GATE], NULL},
                                    {&l->mat[MAT_EXPERT_UP], NULL}};
    struct matmul_part down = {&l->mat[MAT_EXPERT_DOWN], NULL};

    struct operand q8 = quantised(f, input, gate_up, 2);
    struct operand logits = block_matmul(f, "router", input, &router, 1);
    struct operand ids = fresh(f, "expert_ids", VALUE_I32, used);
    struct operand weights = fresh(f, "expert_weights", VALUE_F32, used);
    tape_push(f->t, &(struct op){.kind = OP_ROUTE,
                                 .route = {.experts = hp->experts,
                                           .used = used,
                                           .normalise = hp->norm_topk,
                                           .logits = logits,
                                           .ids = ids,
                                           .weights = weights}});
    struct operand src = q8.value == VALUE_NONE ? input : q8;
    struct operand both = push_expert_matmul(
        f, "expert_gate_up",
        (struct op_expert_matmul){
            .parts = {gate_up[0], gate_up[1]}, .part_count = 2, .src = src, .ids = ids});
    struct operand act = push_glu(f, both, hp->expert_ffn, used);
    struct operand act_q8 = quantised(f, act, &down, 1);
    src = act_q8.value == VALUE_NONE ? act : act_q8;
    struct operand each = push_expert_matmul(
        f, "expert_out",
        (struct op_expert_matmul){
            .parts = {down}, .part_count = 1, .src = src, .ids = ids, .src_per_expert = true});
    struct operand out = fresh(f, "ffn_out", VALUE_F32, hp->dim);
    tape_push(f->t, &(struct op){
                        .kind = OP_EXPERT_SUM,
                        .expert_sum = {.used = used, .src = each, .weights = weights, .dst = out}});
    return out;
}

void block_add(struct flow *f, struct operand y) {
    tape_push(f->t, &(struct op){.kind = OP_ADD, .add = {.src = y, .dst = f->x}});
}

void block_layer(struct flow *f, uint32_t layer) {
    const struct layer *l = &f->m->layers[layer];
    tape_set_layer(f->t, (int32_t)layer);
    struct operand input = f->x; /* a draft head has no norm here */
    if (l->vec[VEC_ATTN_NORM]) input = block_norm(f, f->x, l->vec[VEC_ATTN_NORM]);
    block_add(f, block_attention(f, layer, input));
    input = block_norm(f, f->x, l->vec[VEC_FFN_NORM]);
    block_add(f, l->mat[MAT_ROUTER].data ? block_experts(f, layer, input)
                                         : block_ffn(f, layer, input));
}

void flow_head(struct flow *f, enum model_goal goal, struct operand hidden) {
    const struct model *m = f->m;
    struct operand out = hidden;
    CHECK(tape_value_at(f->t, hidden.value)->rows == ROWS_OUTPUTS);
    tape_set_layer(f->t, -1);
    if (goal == GOAL_LOGITS_AND_HIDDEN) tape_set_kept(f->t, hidden.value);
    if (goal != GOAL_HIDDEN) {
        struct matmul_part head = {m->head, NULL};
        out = block_matmul(f, "logits", hidden, &head, 1);
        float cap = m->target ? m->target->hp.final_softcap : m->hp.final_softcap;
        if (cap > 0)
            tape_push(f->t, &(struct op){.kind = OP_SOFTCAP, .softcap = {.cap = cap, .x = out}});
    }
    tape_set_output(f->t, out.value);
}

void flow_end(struct flow *f, enum model_goal goal) {
    tape_set_layer(f->t, -1);
    flow_head(f, goal, block_norm(f, f->x, f->m->final_norm));
}

void build_decoder(const struct model *m, enum model_goal goal, struct tape *t) {
    struct flow f = flow_begin(m, t);
    for (uint32_t l = 0; l < m->hp.layers; l++) m->arch->build_layer(&f, l);
    flow_end(&f, goal);
}
