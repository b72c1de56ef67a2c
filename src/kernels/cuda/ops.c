/* kernels/cuda/ops.c - each op of a tape as launches of kernels: operands found, sizes chosen.
 *
 * Entry points: cuda_op_measure (when a program is made), cuda_op_launch (in a step).
 */
#include <string.h>

#include "base/check.h"
#include "kernels/cuda/blaslt.h"
#include "kernels/cuda/cuda_int.h"
#include "kernels/cuda/ops.h"

enum {
    BLOCKS_PER_PROCESSOR = 8,   /* of attention; with fewer, segments are shared out */
    CLUSTER_ROWS_MAX = 64,      /* of an act: the card has all clusters of them at once */
    PART_FLOATS_MAX = 16 << 20, /* of attention's parts: 64 MiB */
    TWO_BYTES_MIN = 24 << 20    /* of weights: product_two.cu was slower with less on an H200 */
};

uint32_t cuda_step_rows(const struct step *s, enum rows_kind kind) {
    if (kind == ROWS_TOKENS) return s->row_count;
    return kind == ROWS_OUTPUTS ? s->output_count : s->seq_count;
}

struct cuda_mat cuda_mat_of(const struct cuda_run *x, struct operand o) {
    if (o.value == VALUE_NONE) return (struct cuda_mat){.base = NULL};
    const struct tape_value *v = tape_value_at(x->tape, o.value);
    return (struct cuda_mat){
        .base = x->slab + v->offset,
        .row_bytes = v->row_bytes,
        .col = o.col,
        .cols = o.cols,
        .all_cols = v->cols,
        .row_count = cuda_step_rows(x->step, v->rows),
        .pos = v->rows == ROWS_SEQS ? NULL : x->pos,
        .map = v->rows == ROWS_OUTPUTS ? x->output_row : NULL,
    };
}

/* ---- results that may be wanted as floats, quantised, or both ---- */

/* Where the floats go: `dst`, or scratch rows like those of `like`. */
static struct cuda_mat floats_of(const struct cuda_run *x, struct operand dst,
                                 const struct cuda_mat *like, uint32_t cols) {
    if (dst.value != VALUE_NONE) return cuda_mat_of(x, dst);
    struct cuda_mat m = *like;
    m.base = (uint8_t *)x->scratch->rows;
    m.row_bytes = cols * sizeof(float);
    m.col = 0;
    m.cols = m.all_cols = cols;
    CHECK((size_t)m.row_count * cols <= x->scratch->row_floats);
    return m;
}

/* `floats`, or nothing where the result is wanted in 16 bits alone. */
static struct cuda_mat unless_half(const struct cuda_run *x, struct cuda_mat floats) {
    if (x->dev->switches.lean && x->now->is_half_only) floats.base = NULL;
    return floats;
}

/* Where the next product finds its input, if this op is to put it there. */
static struct cuda_half half_of(const struct cuda_run *x) {
    const struct cuda_matrix *w = x->now->half;
    if (!w) return (struct cuda_half){.x = NULL};
    return (struct cuda_half){.x = x->scratch->x[x->now->half_to],
                              .form = w->form,
                              .row_elems = w->row_elems,
                              .scale = x->scratch->x_scale[x->now->half_to],
                              .by_card = x->dev->switches.e4m3_card};
}

static void quantise(const struct cuda_run *x, const struct cuda_mat *floats, struct operand q8) {
    if (q8.value == VALUE_NONE) return;
    struct cuda_mat to = cuda_mat_of(x, q8);
    cuda_quantise(floats, &to, &x->queue);
}

/* ---- rows ---- */

static void launch_embed(const struct cuda_run *x, const struct op *op) {
    const struct op_embed *e = &op->embed;
    static const enum cuda_index sources[] = {[EMBED_TOKEN] = CUDA_INDEX_TOKEN,
                                              [EMBED_POSITION] = CUDA_INDEX_POSITION,
                                              [EMBED_ZERO] = CUDA_INDEX_ZERO};
    struct cuda_embed a = {.table = *cuda_matrix_of(e->table),
                           .source = sources[e->source],
                           .add = e->add,
                           .scale = e->scale,
                           .token = x->token,
                           .pos = x->pos,
                           .slots = x->slots,
                           .dst = cuda_mat_of(x, e->dst)};
    cuda_embed(&a, &x->queue);
}

static void launch_norm(const struct cuda_run *x, const struct op *op) {
    const struct op_norm *n = &op->norm;
    struct cuda_mat src = cuda_mat_of(x, n->src);
    struct cuda_norm a = {.is_layer = n->kind == NORM_LAYER,
                          .group = n->group,
                          .eps = n->eps,
                          .weight = cuda_vector_of(n->weight),
                          .bias = cuda_vector_of(n->bias),
                          .src = src,
                          .dst = unless_half(x, floats_of(x, n->dst, &src, n->src.cols)),
                          .half = half_of(x),
                          .is_wide = x->dev->switches.lean,
                          .is_dense = x->dev->switches.dense};
    bool rounds = !x->dev->switches.without_fusion && cuda_norm_rounds(n->src.cols, n->group);
    if (rounds) a.q8 = cuda_mat_of(x, n->q8);
    if (a.half.x && a.half.form == CUDA_FP8)
        cuda_fp8_norm(&a, &x->queue);
    else
        cuda_norm(&a, &x->queue);
    if (!rounds) quantise(x, &a.dst, n->q8);
}

static void launch_quant(const struct cuda_run *x, const struct op *op) {
    struct cuda_mat src = cuda_mat_of(x, op->quant.src);
    quantise(x, &src, op->quant.q8);
}

static void launch_rope(const struct cuda_run *x, const struct op *op) {
    const struct op_rope *r = &op->rope;
    struct cuda_rope a = {.is_neox = r->style == ROPE_NEOX,
                          .heads = r->heads,
                          .head_dim = r->head_dim,
                          .rot_dims = r->rot_dims,
                          .freqs = cuda_vector_of(r->freqs),
                          .factor = r->factor,
                          .pos = x->pos,
                          .x = cuda_mat_of(x, r->x)};
    cuda_rope(&a, &x->queue);
}

enum cuda_act_kind cuda_act_kind_of(enum act_kind kind) {
    static const enum cuda_act_kind kinds[] = {
        [ACT_SILU] = CUDA_SILU, [ACT_GELU_TANH] = CUDA_GELU_TANH, [ACT_GELU_ERF] = CUDA_GELU_ERF};
    return kinds[kind];
}

/* The scale of a row needs all of it: a block for each row. With few of them most of the card would
 * be idle meanwhile: many blocks make floats, or the blocks of a cluster share a row. `dst`: where
 * the floats may go. */
static void launch_act_fp8(const struct cuda_run *x, struct cuda_act *a, struct cuda_mat dst) {
    struct cuda_half half = a->half;
    if (x->dev->switches.act_clusters && a->gate.row_count <= CLUSTER_ROWS_MAX) {
        cuda_fp8_act_few(a, &x->queue);
        return;
    }
    if (a->gate.row_count > CUDA_FEW_ROWS) {
        cuda_fp8_act(a, &x->queue);
        return;
    }
    a->half.x = NULL;
    a->dst = dst;
    cuda_act(a, &x->queue);
    cuda_fp8_convert(&dst, &half, &x->queue);
}

static void launch_act(const struct cuda_run *x, const struct op *op) {
    const struct op_act *o = &op->act;
    struct cuda_mat gate = cuda_mat_of(x, o->gate);
    struct cuda_act a = {.kind = cuda_act_kind_of(o->kind),
                         .segments = o->segments,
                         .stride = o->stride,
                         .gate = gate,
                         .up = cuda_mat_of(x, o->up),
                         .dst = floats_of(x, o->dst, &gate, o->gate.cols * o->segments),
                         .half = half_of(x),
                         .is_wide = x->dev->switches.lean};
    struct cuda_mat floats = a.dst;
    a.dst = unless_half(x, a.dst);
    bool is_fused = !x->dev->switches.without_fusion;
    if (is_fused) a.q8 = cuda_mat_of(x, o->q8);
    if (a.half.x && a.half.form == CUDA_FP8)
        launch_act_fp8(x, &a, floats);
    else
        cuda_act(&a, &x->queue);
    if (!is_fused) quantise(x, &a.dst, o->q8);
}

static void launch_add(const struct cuda_run *x, const struct op *op) {
    struct cuda_mat src = cuda_mat_of(x, op->add.src), dst = cuda_mat_of(x, op->add.dst);
    cuda_add(&src, &dst, &x->queue);
}

static void launch_softcap(const struct cuda_run *x, const struct op *op) {
    struct cuda_mat m = cuda_mat_of(x, op->softcap.x);
    cuda_softcap(op->softcap.cap, &m, &x->queue);
}

static void launch_gather(const struct cuda_run *x, const struct op *op) {
    struct cuda_mat src = cuda_mat_of(x, op->gather.src), dst = cuda_mat_of(x, op->gather.dst);
    cuda_gather(&src, &dst, x->output_row, NULL, &x->queue);
}

static void launch_permute(const struct cuda_run *x, const struct op *op) {
    struct cuda_mat src = cuda_mat_of(x, op->permute.src), dst = cuda_mat_of(x, op->permute.dst);
    cuda_gather(&src, &dst, NULL, cuda_vector_of(op->permute.order), &x->queue);
}

static void launch_pool(const struct cuda_run *x, const struct op *op) {
    static const enum cuda_pool_kind kinds[] = {
        [POOL_MEAN] = CUDA_POOL_MEAN, [POOL_FIRST] = CUDA_POOL_FIRST, [POOL_LAST] = CUDA_POOL_LAST};
    struct cuda_pool a = {.kind = kinds[op->pool.kind],
                          .unit_length = op->pool.unit_length,
                          .seqs = x->seqs,
                          .src = cuda_mat_of(x, op->pool.src),
                          .dst = cuda_mat_of(x, op->pool.dst)};
    cuda_pool(&a, &x->queue);
}

/* ---- experts ---- */

static void launch_route(const struct cuda_run *x, const struct op *op) {
    const struct op_route *r = &op->route;
    struct cuda_route a = {.experts = r->experts,
                           .used = r->used,
                           .normalise = r->normalise,
                           .logits = cuda_mat_of(x, r->logits),
                           .ids = cuda_mat_of(x, r->ids),
                           .weights = cuda_mat_of(x, r->weights)};
    cuda_route(&a, &x->queue);
}

static void launch_expert_sum(const struct cuda_run *x, const struct op *op) {
    const struct op_expert_sum *s = &op->expert_sum;
    struct cuda_expert_sum a = {.used = s->used,
                                .add = s->add,
                                .src = cuda_mat_of(x, s->src),
                                .weights = cuda_mat_of(x, s->weights),
                                .dst = cuda_mat_of(x, s->dst)};
    cuda_expert_sum(&a, &x->queue);
}

/* ---- products ---- */

/* Products whose activations are converted for them. */
static bool is_short(enum cuda_form form) {
    return form == CUDA_BF16 || form == CUDA_F16 || form == CUDA_FP8;
}

static void convert(const struct cuda_run *x, const struct cuda_mat *src,
                    const struct cuda_matrix *w, uint32_t segments) {
    struct cuda_half to = {.x = x->scratch->x[0],
                           .form = w->form,
                           .row_elems = w->row_elems,
                           .scale = x->scratch->x_scale[0],
                           .by_card = x->dev->switches.e4m3_card};
    struct cuda_convert a = {.src = *src, .segments = segments, .to = to};
    size_t elems = (size_t)src->row_count * segments * w->row_elems;
    CHECK(elems * sizeof(uint16_t) <= x->scratch->x_bytes);
    if (w->form == CUDA_FP8)
        cuda_fp8_convert(src, &to, &x->queue);
    else
        cuda_convert(&a, &x->queue);
}

static bool is_few(const struct cuda_run *x, const struct cuda_product *a) {
    return x->dev->switches.few_rows && cuda_product_few_can(a);
}

static bool is_two(const struct cuda_run *x, const struct cuda_few *f) {
    const struct cuda_matrix *w = &f->product.w;
    const struct cuda_switches *on = &x->dev->switches;
    bool is_large = (size_t)w->rows * w->row_elems * sizeof(uint16_t) >= TWO_BYTES_MIN;
    bool has_norm = on->two_first && f->first.src.base;
    if (!on->two_rows || !(is_large || has_norm || on->two_always)) return false;
    return is_few(x, &f->product) && cuda_product_two_can(f);
}

static bool is_dots(const struct cuda_run *x, const struct cuda_few *f) {
    return x->dev->switches.dots && !x->dev->switches.plain_codes && cuda_product_codes_dots_can(f);
}

/* Those that can do more than a product; false: none of them can. */
static bool launch_few(const struct cuda_run *x, const struct cuda_few *f) {
    bool is_more = f->first.src.base || f->gated_q8.base;
    if (is_dots(x, f))
        cuda_product_codes_dots(f, &x->queue);
    else if (is_two(x, f))
        cuda_product_two(f, &x->queue);
    else if (!is_more && is_few(x, &f->product))
        cuda_product_few(f, &x->queue);
    else
        return false;
    return true;
}

static void launch_own(const struct cuda_run *x, const struct cuda_product *a) {
    const struct cuda_few few = {.product = *a, .multiprocessors = x->dev->multiprocessors};
    if (launch_few(x, &few)) return;
    if (x->dev->switches.few_codes && !x->dev->switches.plain_codes &&
        cuda_product_codes_few_can(a))
        cuda_product_codes_few(a, x->dev->multiprocessors, &x->queue);
    else if (a->w.form == CUDA_FP8)
        cuda_product_fp8(a, x->dev->multiprocessors, &x->queue);
    else if (a->w.form == CUDA_F32)
        cuda_product_f32(a, &x->queue);
    else if (a->w.form == CUDA_CODES && !x->dev->switches.plain_codes)
        cuda_product_codes_mma(a, &x->queue);
    else if (a->w.form == CUDA_CODES)
        cuda_product_codes(a, &x->queue);
    else
        cuda_product_mma(a, &x->queue);
}

/* Whether cuBLASLt's results are not those of the product: what is added to them takes a second
 * kernel. With scales that are no powers of two, adding rounds in cuBLASLt's own way. */
static bool needs_finish(const struct cuda_matrix *w, bool has_bias, bool add) {
    return has_bias || (w->free_scales && add);
}

/* Through cuBLASLt; false: it has nothing for this shape. */
static bool launch_blas(const struct cuda_run *x, const struct cuda_product *a) {
    bool in_place = !needs_finish(&a->w, a->bias != NULL, a->add);
    struct cuda_gemm g = {.form = a->w.form,
                          .rows = a->row_count,
                          .weights = a->w.rows,
                          .cols = a->w.row_elems,
                          .x = a->x,
                          .w = a->w.data,
                          .x_scale = a->x_scale,
                          .w_scale = a->w.scale,
                          .free_scales = a->w.free_scales,
                          .dst = x->scratch->rows,
                          .dst_floats = a->w.rows,
                          .add = in_place && a->add};
    if (in_place) {
        g.dst = (float *)(void *)a->dst.base + a->dst.col;
        g.dst_floats = a->dst.row_bytes / sizeof(float);
    } else {
        CHECK((size_t)a->row_count * a->w.rows <= x->scratch->row_floats);
    }
    if (!cuda_blas_run(x->dev->blas, &g, x->queue.stream)) return false;
    if (in_place) return true;
    struct cuda_finish f = {
        .from = x->scratch->rows, .bias = a->bias, .add = a->add, .dst = a->dst};
    cuda_finish(&f, &x->queue);
    return true;
}

/* Part `p` of a product, or all of them at once where they are joined. */
static struct cuda_product product_of(const struct op_matmul *m, const struct cuda_joint *j,
                                      uint32_t p) {
    const struct matmul_part *part = &m->parts[p];
    return (struct cuda_product){.w = j ? j->matrix : *cuda_matrix_of(part->weight),
                                 .bias = j ? j->bias : cuda_vector_of(part->bias),
                                 .add = m->add};
}

/* ---- products of few rows with ops around them ---- */

/* Product `op` as one launch; false: it takes several. */
static bool few_of(const struct cuda_run *x, const struct op *op, const struct cuda_plan *plan,
                   struct cuda_few *f) {
    const struct op_matmul *m = &op->matmul;
    const struct cuda_joint *joint = cuda_joint_of(m->parts, m->part_count);
    if (!joint && m->part_count > 1) return false;
    *f = (struct cuda_few){.product = product_of(m, joint, 0),
                           .multiprocessors = x->dev->multiprocessors};
    f->product.src = cuda_mat_of(x, m->src);
    f->product.dst = cuda_mat_of(x, m->dst);
    f->product.x = x->scratch->x[plan->x_from];
    f->product.row_count = f->product.src.row_count;
    return f->product.row_count > 0;
}

/* The act behind a product, whose plan is `plan`. */
static void add_act(const struct cuda_run *x, const struct op *op, const struct cuda_plan *plan,
                    struct cuda_few *f) {
    f->gates = true;
    f->handed = x->scratch->handed;
    f->act = cuda_act_kind_of(op->act.kind);
    f->gated_q8 = cuda_mat_of(x, op->act.q8);
    if (plan->half)
        f->gated = (struct cuda_half){.x = x->scratch->x[plan->half_to],
                                      .form = plan->half->form,
                                      .row_elems = plan->half->row_elems};
}

/* Can floats be what the product begins with? */
static bool takes_floats(const struct cuda_run *x, const struct cuda_mat *m) {
    return x->dev->switches.first && m->col % 4 == 0 && m->cols % 4 == 0 && m->row_bytes % 16 == 0;
}

/* Product `op` and the act behind it in one launch; false: they take two. */
static bool launch_gated(const struct cuda_run *x, const struct op *op) {
    struct cuda_few f;
    if (!x->dev->switches.gated || !few_of(x, op, x->now, &f)) return false;
    if (f.product.w.form != CUDA_CODES && !x->now->has_x) return false;
    add_act(x, op + 1, x->now + 1, &f);
    return launch_few(x, &f);
}

/* Norm `op`, the product behind it and perhaps the act behind that in one launch; returns how many
 * ops these are, or 0. */
static uint32_t launch_normed(const struct cuda_run *x, const struct op *op) {
    const struct op_norm *n = &op[0].norm;
    const struct cuda_plan *plan = x->now + 1;
    bool gates = plan->gates && x->dev->switches.gated;
    struct cuda_few f;
    if (!few_of(x, op + 1, plan, &f)) return 0;
    f.first = (struct cuda_first){
        .src = cuda_mat_of(x, n->src), .weight = cuda_vector_of(n->weight), .eps = n->eps};
    if (gates) add_act(x, op + 2, plan + 1, &f);
    if (!takes_floats(x, &f.first.src) || !launch_few(x, &f)) return 0;
    return gates ? 3 : 2;
}

/* The product `op` that follows attention, which has left floats. */
static bool quantising_of(const struct cuda_run *x, const struct op *op,
                          const struct cuda_plan *plan, struct cuda_few *f) {
    if (!few_of(x, op, plan, f)) return false;
    f->first.src = floats_of(x, operand_none, &f->product.src, f->product.src.cols);
    return takes_floats(x, &f->first.src) && is_dots(x, f);
}

/* ---- any product ---- */

/* From so many rows on cuBLASLt does products. */
static uint32_t rows_of_blas(const struct cuda_run *x, const struct cuda_matrix *w) {
    bool is_fp8 = w->form == CUDA_FP8;
    if (is_fp8 && !cuda_fp8_is_own(&x->dev->fp8, w->free_scales)) return 1;
    if (is_fp8) return x->dev->switches.few_rows ? CUDA_FEW_ROWS + 1 : 1;
    return x->dev->switches.few_rows ? CUDA_FEW_ROWS + 1 : CUDA_MANY_ROWS;
}

static void launch_matmul(const struct cuda_run *x, const struct op *op) {
    const struct op_matmul *m = &op->matmul;
    struct cuda_mat src = cuda_mat_of(x, m->src), dst = cuda_mat_of(x, m->dst);
    const struct cuda_joint *joint = cuda_joint_of(m->parts, m->part_count);
    const struct cuda_matrix *converted = x->now->has_x ? cuda_matrix_of(m->parts[0].weight) : NULL;
    struct cuda_few quantising;
    if (src.row_count == 0) return;
    if (x->now->has_floats && quantising_of(x, op, x->now, &quantising)) {
        cuda_product_codes_dots(&quantising, &x->queue);
        return;
    }
    for (uint32_t p = 0; p < (joint ? 1 : m->part_count); p++) {
        struct cuda_product a = product_of(m, joint, p);
        a.src = src;
        a.dst = dst;
        a.dst.cols = a.w.rows;
        a.x = x->scratch->x[x->now->has_x ? x->now->x_from : 0];
        a.x_scale = x->scratch->x_scale[x->now->has_x ? x->now->x_from : 0];
        a.row_count = src.row_count;
        dst.col += a.w.rows;
        bool converts = is_short(a.w.form);
        if (converts && (!converted || converted->form != a.w.form)) {
            converted = cuda_matrix_of(m->parts[p].weight);
            convert(x, &src, converted, 1);
            a.x = x->scratch->x[0];
            a.x_scale = x->scratch->x_scale[0];
        }
        bool is_blas = converts && x->dev->blas && src.row_count >= rows_of_blas(x, &a.w);
        if (!is_blas || !launch_blas(x, &a)) launch_own(x, &a);
    }
}

static void launch_expert_matmul(const struct cuda_run *x, const struct op *op) {
    const struct op_expert_matmul *m = &op->expert_matmul;
    struct cuda_mat src = cuda_mat_of(x, m->src), dst = cuda_mat_of(x, m->dst);
    const struct cuda_matrix *converted = NULL;
    uint32_t width = dst.cols / m->used;
    for (uint32_t p = 0; p < m->part_count; p++) {
        const struct weight *w = m->parts[p].weight;
        struct cuda_product a = {.w = *cuda_matrix_of(w),
                                 .src = src,
                                 .dst = dst,
                                 .x = x->scratch->x[0],
                                 .row_count = src.row_count * m->used,
                                 .used = m->used,
                                 .ids = cuda_mat_of(x, m->ids),
                                 .src_per_expert = m->src_per_expert,
                                 .dst_width = width};
        dst.col += a.w.rows;
        if (is_short(a.w.form) && (!converted || converted->form != a.w.form)) {
            converted = cuda_matrix_of(w);
            convert(x, &src, converted, m->src_per_expert ? m->used : 1);
        }
        launch_own(x, &a);
    }
}

/* ---- attention ---- */

static const uint32_t *blocks_of(const struct cuda_run *x, uint32_t group) {
    return x->blocks + (size_t)group * x->step->sizes.blocks_max;
}

static size_t blocks_stride(const struct cuda_run *x) {
    return (size_t)x->step->sizes.group_count * x->step->sizes.blocks_max;
}

static void launch_kv_write(const struct cuda_run *x, const struct op *op) {
    const struct op_kv_write *w = &op->kv_write;
    struct cuda_kv_write a = {.kv = x->kv[w->group],
                              .layer = w->layer,
                              .pos = x->pos,
                              .seq = x->seq,
                              .blocks = blocks_of(x, w->group),
                              .blocks_stride = blocks_stride(x),
                              .k = cuda_mat_of(x, w->k),
                              .v = cuda_mat_of(x, w->v)};
    cuda_kv_write(&a, &x->queue);
}

/* [norm q] [norm k] rope q, rope k, kv_write. */
struct cuda_qkv cuda_qkv_of(const struct cuda_run *x, const struct op *first) {
    bool has_norms = first->kind == OP_NORM;
    const struct op *norm = has_norms ? first : NULL, *rope = has_norms ? first + 2 : first;
    const struct op_rope *r = &rope[0].rope;
    const struct op_kv_write *w = &rope[2].kv_write;
    CHECK(rope[2].kind == OP_KV_WRITE);
    return (struct cuda_qkv){.kv = x->kv[w->group],
                             .layer = w->layer,
                             .pos = x->pos,
                             .seq = x->seq,
                             .blocks = blocks_of(x, w->group),
                             .blocks_stride = blocks_stride(x),
                             .q = cuda_mat_of(x, r->x),
                             .k = cuda_mat_of(x, w->k),
                             .v = cuda_mat_of(x, w->v),
                             .q_norm = norm ? cuda_vector_of(norm[0].norm.weight) : NULL,
                             .k_norm = norm ? cuda_vector_of(norm[1].norm.weight) : NULL,
                             .norm_eps = norm ? norm->norm.eps : 0.0f,
                             .is_wide = x->dev->switches.lean,
                             .rope = {.is_neox = r->style == ROPE_NEOX,
                                      .rot_dims = r->rot_dims,
                                      .freqs = cuda_vector_of(r->freqs),
                                      .factor = r->factor}};
}

/* Rounded up to a power of two, so that graphs serve longer; blocks too many end at once. */
uint32_t cuda_step_segments(const struct step *s) {
    uint32_t end = 1, segments = 1;
    for (uint32_t r = 0; r < s->row_count; r++)
        if (s->pos[r] >= (int32_t)end) end = (uint32_t)s->pos[r] + 1;
    while (segments * CUDA_ATTN_SEGMENT < end) segments *= 2;
    return segments;
}

uint32_t cuda_segments_needed(const struct cuda_run *x, uint32_t window) {
    uint32_t inside = window / CUDA_ATTN_SEGMENT + 3; /* of a run of rows */
    return window > 0 && inside < x->segments ? inside : x->segments;
}

struct cuda_attention cuda_attention_of(const struct cuda_run *x, const struct op *op) {
    const struct op_attention *o = &op->attention;
    return (struct cuda_attention){.kv = x->kv[o->group],
                                   .layer = o->layer,
                                   .heads = o->heads,
                                   .kv_heads = o->kv_heads,
                                   .head_dim = o->head_dim,
                                   .window = o->window,
                                   .scale = o->scale,
                                   .softcap = o->softcap,
                                   .pos = x->pos,
                                   .seq = x->seq,
                                   .seqs = x->seqs,
                                   .blocks = blocks_of(x, o->group),
                                   .blocks_stride = blocks_stride(x),
                                   .q = cuda_mat_of(x, o->q),
                                   .segments = 1,
                                   .parts = x->scratch->parts,
                                   .is_bulk = x->dev->switches.bulk,
                                   .multiprocessors = x->dev->multiprocessors,
                                   .by_groups = x->dev->switches.groups};
}

/* With the ops of `qkv` in front; NULL: there are none. */
static void attend(const struct cuda_run *x, const struct op *op, const struct cuda_qkv *qkv) {
    const struct op_attention *o = &op->attention;
    struct cuda_attention a = cuda_attention_of(x, op);
    const struct cuda_mat q = a.q;
    a.dst = floats_of(x, o->dst, &q, o->q.cols);
    uint32_t segments = cuda_segments_needed(x, o->window);
    bool fits = cuda_attention_parts_floats(&a, segments) <= x->scratch->part_floats;
    bool is_mma = !x->dev->switches.plain_attention && cuda_attention_mma_can(&a) &&
                  o->heads / o->kv_heads == x->runs_group;
    bool has_idle = q.row_count * o->kv_heads < BLOCKS_PER_PROCESSOR * x->dev->multiprocessors;
    if (fits && (is_mma ? !x->is_whole : has_idle)) a.segments = segments;
    bool is_fresh = qkv && is_mma && !x->is_whole && cuda_attention_fresh_can(&a, &x->runs);
    if (qkv && !is_fresh) cuda_qkv(qkv, &x->queue);
    if (is_mma) {
        a.half = half_of(x);
        a.dst = unless_half(x, a.dst);
        if (is_fresh)
            cuda_attention_fresh(&a, qkv, &x->queue);
        else
            cuda_attention_mma(&a, &x->runs, &x->queue);
    } else {
        cuda_attention(&a, &x->queue);
        if (x->now->half) convert(x, &a.dst, x->now->half, 1);
    }
    struct cuda_few later;
    if (x->now->has_product && quantising_of(x, op + 1, x->now + 1, &later)) return;
    quantise(x, &a.dst, o->q8);
}

static void launch_attention(const struct cuda_run *x, const struct op *op) { attend(x, op, NULL); }

/* Ops that fuse.c joins from `op` on; returns how many. */
static uint32_t launch_qkv(const struct cuda_run *x, const struct op *op) {
    const struct cuda_qkv qkv = cuda_qkv_of(x, op);
    uint32_t count = x->now->op_count;
    if (!x->now->attends || !x->dev->switches.fresh) {
        cuda_qkv(&qkv, &x->queue);
        return count;
    }
    struct cuda_run run = *x;
    run.now += count;
    attend(&run, op + count, &qkv);
    return count + 1;
}

static void launch_self_attention(const struct cuda_run *x, const struct op *op) {
    const struct op_self_attention *o = &op->self_attention;
    struct cuda_mat q = cuda_mat_of(x, o->q);
    struct cuda_attention a = {.heads = o->heads,
                               .kv_heads = o->heads,
                               .head_dim = o->head_dim,
                               .scale = o->scale,
                               .pos = x->pos,
                               .seq = x->seq,
                               .seqs = x->seqs,
                               .q = q,
                               .k = cuda_mat_of(x, o->k),
                               .v = cuda_mat_of(x, o->v),
                               .dst = floats_of(x, o->dst, &q, o->q.cols),
                               .segments = 1};
    cuda_attention(&a, &x->queue);
    quantise(x, &a.dst, o->q8);
}

/* ---- the table ---- */

typedef void op_launch_fn(const struct cuda_run *x, const struct op *op);
static op_launch_fn *const launchers[OP_COUNT] = {
    [OP_EMBED] = launch_embed,
    [OP_NORM] = launch_norm,
    [OP_QUANT] = launch_quant,
    [OP_MATMUL] = launch_matmul,
    [OP_ROPE] = launch_rope,
    [OP_KV_WRITE] = launch_kv_write,
    [OP_ATTENTION] = launch_attention,
    [OP_SELF_ATTENTION] = launch_self_attention,
    [OP_ACT] = launch_act,
    [OP_ADD] = launch_add,
    [OP_SOFTCAP] = launch_softcap,
    [OP_ROUTE] = launch_route,
    [OP_EXPERT_MATMUL] = launch_expert_matmul,
    [OP_EXPERT_SUM] = launch_expert_sum,
    [OP_GATHER] = launch_gather,
    [OP_PERMUTE] = launch_permute,
    [OP_POOL] = launch_pool,
};

uint32_t cuda_op_launch(const struct cuda_run *x, const struct op *op) {
    uint32_t normed = x->now->goes_first ? launch_normed(x, op) : 0;
    if (normed > 0) return normed;
    if (x->now->gates && launch_gated(x, op)) return 2;
    if (x->now->op_count > 1) return launch_qkv(x, op);
    launchers[op->kind](x, op);
    return x->now->op_count;
}

/* ---- what a program needs ---- */

static size_t rows_max_of(const struct tape *t, struct operand o) {
    return tape_rows_max(t, tape_value_at(t, o.value));
}

static void raise_to(size_t *most, size_t need) {
    if (need > *most) *most = need;
}

/* Floats that are wanted in quantised form alone. */
static void measure_result(const struct tape *t, struct operand dst, struct operand q8, size_t rows,
                           struct cuda_scratch *s) {
    if (dst.value != VALUE_NONE || q8.value == VALUE_NONE) return;
    raise_to(&s->row_floats, rows * tape_value_at(t, q8.value)->cols);
}

static void measure_parts(const struct matmul_part *parts, uint32_t count, size_t rows,
                          uint32_t segments, bool add, struct cuda_scratch *s) {
    size_t all_rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct cuda_matrix *w = cuda_matrix_of(parts[i].weight);
        if (!is_short(w->form)) continue;
        if (w->form == CUDA_FP8) raise_to(&s->x_rows, rows);
        raise_to(&s->x_bytes, rows * segments * w->row_elems * sizeof(uint16_t));
        all_rows += w->rows;
        if (needs_finish(w, parts[i].bias != NULL, add)) raise_to(&s->row_floats, rows * all_rows);
    }
}

static enum status check_head_dim(const struct op *op, uint32_t head_dim, struct err *err) {
    enum { HEAD_DIM_MAX = 256 };
    if (head_dim % CUDA_K_RUN == 0 && head_dim > 0 && head_dim <= HEAD_DIM_MAX) return ST_OK;
    return err_set(err, ST_BAD,
                   "cuda: %s (layer %d): heads of %u dimensions; a multiple of %d up to %d is "
                   "expected",
                   op_name(op->kind), op->layer, head_dim, CUDA_K_RUN, HEAD_DIM_MAX);
}

enum status cuda_op_measure(const struct tape *t, uint32_t i, const struct program_options *options,
                            struct cuda_scratch *s, struct err *err) {
    const struct op *op = tape_op(t, i);
    switch (op->kind) {
    case OP_INPUT:
        return err_set(err, ST_BAD, "device cuda does not implement op %s (op %u of the tape)",
                       op_name(op->kind), i);
    case OP_NORM:
        measure_result(t, op->norm.dst, op->norm.q8, rows_max_of(t, op->norm.src), s);
        return ST_OK;
    case OP_ACT:
        measure_result(t, op->act.dst, op->act.q8, rows_max_of(t, op->act.gate), s);
        return ST_OK;
    case OP_MATMUL:
        measure_parts(op->matmul.parts, op->matmul.part_count, rows_max_of(t, op->matmul.src), 1,
                      op->matmul.add, s);
        return ST_OK;
    case OP_EXPERT_MATMUL:
        measure_parts(op->expert_matmul.parts, op->expert_matmul.part_count,
                      rows_max_of(t, op->expert_matmul.src), op->expert_matmul.used, false, s);
        return ST_OK;
    case OP_ATTENTION:
        measure_result(t, op->attention.dst, op->attention.q8, rows_max_of(t, op->attention.q), s);
        CHECK(op->attention.group < options->kv_group_count);
        s->part_floats = PART_FLOATS_MAX;
        return check_head_dim(op, op->attention.head_dim, err);
    case OP_SELF_ATTENTION:
        measure_result(t, op->self_attention.dst, op->self_attention.q8,
                       rows_max_of(t, op->self_attention.q), s);
        return check_head_dim(op, op->self_attention.head_dim, err);
    default:
        return ST_OK;
    }
}
