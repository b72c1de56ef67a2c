/* kernels/cuda/resident_host.c - the layers that resident.cu computes, on the host's side: their
 * description on the card, and their launch. See kernels/cuda/resident.h.
 *
 * Entry points: cuda_layers_make, cuda_layers_launch.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/resident.h"

/* ---- descriptions of matrices ---- */

/* The driver's function. The library is not linked with the driver, so the runtime is asked. */
typedef CUresult encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                           const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_fn *find_encode(void) {
    enum { VERSION = 12000 };
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *at = NULL;
    encode_fn *encode = NULL;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &at, VERSION, cudaEnableDefault,
                                         &found) != cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
        return NULL;
    memcpy(&encode, &at, sizeof(encode));
    return encode;
}

/* Four dimensions: 64 columns, rows, blocks of rows, groups of 64 columns. A box is 8 rows of two
 * blocks and 4 groups. The blocks are 8 rows; with gates, all gates and all ups. */
static bool describe(encode_fn *encode, const struct cuda_matrix *w, bool is_gates,
                     CUtensorMap *out) {
    uint64_t row_bytes = (uint64_t)w->row_elems * sizeof(uint16_t);
    uint64_t rows = is_gates ? w->rows / 2 : CUDA_SLOT_ROWS / 2;
    const cuuint64_t sizes[] = {CUDA_SLOT_GROUP, rows, w->rows / rows,
                                w->row_elems / CUDA_SLOT_GROUP};
    const cuuint64_t strides[] = {row_bytes, rows * row_bytes, CUDA_SLOT_GROUP * sizeof(uint16_t)};
    const cuuint32_t box[] = {CUDA_SLOT_GROUP, CUDA_SLOT_ROWS / 2, 2, CUDA_SLOT_GROUPS};
    const cuuint32_t each[] = {1, 1, 1, 1};
    CUtensorMapDataType type =
        w->form == CUDA_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    return encode(out, type, 4, (void *)(uintptr_t)w->data, sizes, strides, box, each,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* ---- making ---- */

static const struct cuda_joint *joint_of(const struct op_matmul *m) {
    return cuda_joint_of(m->parts, m->part_count);
}

static const struct cuda_matrix *matrix_of(const struct op_matmul *m) {
    return joint_of(m) ? &joint_of(m)->matrix : cuda_matrix_of(m->parts[0].weight);
}

static struct cuda_resident_layer layer_of(const struct tape *t, const struct cuda_layer_ops *o,
                                           uint8_t *slab, const CUtensorMap *maps) {
    const struct op *turn = tape_op(t, o->turn);
    bool has_norms = turn->kind == OP_NORM;
    struct cuda_resident_layer l = {
        .norm = cuda_vector_of(tape_op(t, o->norm)->norm.weight),
        .ffn_norm = cuda_vector_of(tape_op(t, o->products[CUDA_PRODUCT_GATES] - 1)->norm.weight),
        .q_norm = has_norms ? cuda_vector_of(turn[0].norm.weight) : NULL,
        .k_norm = has_norms ? cuda_vector_of(turn[1].norm.weight) : NULL,
        .kv_layer = tape_op(t, o->attention)->attention.layer};
    for (int k = 0; k < CUDA_RESIDENT_PRODUCTS; k++) {
        const struct op_matmul *m = &tape_op(t, o->products[k])->matmul;
        const struct cuda_matrix *w = matrix_of(m);
        l.products[k] = (struct cuda_resident_product){
            .map = &maps[k],
            .bias = joint_of(m) ? joint_of(m)->bias : cuda_vector_of(m->parts[0].bias),
            .rows = w->rows,
            .groups = w->row_elems / CUDA_SLOT_GROUP};
    }
    const struct op_matmul *qkv = &tape_op(t, o->products[CUDA_PRODUCT_QKV])->matmul;
    l.qkv = slab + tape_value_at(t, qkv->dst.value)->offset;
    return l;
}

static size_t maps_bytes(const struct cuda_layers *l) {
    return l->count * (size_t)CUDA_RESIDENT_PRODUCTS * sizeof(CUtensorMap);
}
static size_t layers_bytes(const struct cuda_layers *l) {
    return l->count * sizeof(struct cuda_resident_layer);
}

/* Where the layers' descriptions are made, before they go to the card. */
struct made {
    CUtensorMap *maps;
    struct cuda_resident_layer *layers;
};

static bool describe_all(const struct tape *t, uint8_t *slab, struct cuda_layers *l,
                         const struct made *made) {
    encode_fn *encode = find_encode();
    const CUtensorMap *on_card = l->maps;
    for (uint32_t i = 0; encode && i < l->count; i++) {
        uint32_t first = i * CUDA_RESIDENT_PRODUCTS;
        for (uint32_t k = 0; k < CUDA_RESIDENT_PRODUCTS; k++) {
            const struct op_matmul *m = &tape_op(t, l->ops[i].products[k])->matmul;
            if (!describe(encode, matrix_of(m), k == CUDA_PRODUCT_GATES, &made->maps[first + k]))
                return false;
        }
        made->layers[i] = layer_of(t, &l->ops[i], slab, on_card + first);
    }
    return encode != NULL;
}

enum status cuda_layers_make(struct cuda_device *dev, const struct tape *t, uint8_t *slab,
                             struct cuda_layers *l, struct err *err) {
    if (l->why_not) return ST_OK;
    struct made made = {.maps = mem_alloc_aligned(64, maps_bytes(l)),
                        .layers = mem_zalloc(layers_bytes(l))};
    l->maps = cuda_take(dev, maps_bytes(l));
    l->card = cuda_take(dev, layers_bytes(l));
    l->arrivals = cuda_take(dev, sizeof(*l->arrivals));
    bool has_memory = made.maps && made.layers && l->maps && l->card && l->arrivals;
    if (has_memory && !describe_all(t, slab, l, &made))
        l->why_not = "the driver cannot describe the matrices to the card";
    if (has_memory) {
        cudaMemcpy(l->maps, made.maps, maps_bytes(l), cudaMemcpyHostToDevice);
        cudaMemcpy(l->card, made.layers, layers_bytes(l), cudaMemcpyHostToDevice);
    }
    mem_free(made.maps);
    mem_free(made.layers);
    if (!has_memory) return cuda_say_full(dev, "descriptions of layers", maps_bytes(l), err);
    return cuda_check("describing layers", err);
}

void cuda_layers_deinit(struct cuda_device *dev, struct cuda_layers *l) {
    cuda_give(dev, l->maps, maps_bytes(l));
    cuda_give(dev, l->card, layers_bytes(l));
    cuda_give(dev, l->arrivals, sizeof(*l->arrivals));
}

/* ---- launching ---- */

static struct cuda_half half_of(const struct cuda_run *x, uint32_t which,
                                const struct cuda_matrix *w) {
    return (struct cuda_half){
        .x = x->scratch->x[which], .form = w->form, .row_elems = w->row_elems};
}

static struct cuda_resident arguments_of(const struct cuda_run *x, const struct cuda_layers *l) {
    const struct cuda_layer_ops *o = &l->ops[0];
    const struct tape *t = x->tape;
    const struct op_norm *norm = &tape_op(t, o->norm)->norm;
    const struct op_matmul *out = &tape_op(t, o->products[CUDA_PRODUCT_OUT])->matmul;
    const struct op_matmul *down = &tape_op(t, o->products[CUDA_PRODUCT_DOWN])->matmul;
    struct cuda_resident r = {
        .layers = l->card,
        .layer_count = l->count,
        .rows = x->step->row_count,
        .is_bf16 = matrix_of(out)->form == CUDA_BF16,
        .norm_eps = norm->eps,
        .act = cuda_act_kind_of(tape_op(t, o->products[CUDA_PRODUCT_DOWN] - 1)->act.kind),
        .x = cuda_mat_of(x, norm->src),
        .qkv = cuda_mat_of(x, tape_op(t, o->products[CUDA_PRODUCT_QKV])->matmul.dst),
        .gated = half_of(x, 1, matrix_of(down)),
        .attention = cuda_attention_of(x, tape_op(t, o->attention)),
        .turn = cuda_qkv_of(x, tape_op(t, o->turn)),
        .arrivals = l->arrivals,
        .shape = cuda_resident_shape_of(x->step->row_count, l->normed, l->widest),
        .blocks = x->dev->multiprocessors};
    r.attention.dst.base = NULL;
    r.attention.half = half_of(x, 0, matrix_of(out));
    r.attention.segments = cuda_segments_needed(x, r.attention.window);
    return r;
}

uint32_t cuda_layers_launch(const struct cuda_run *x, struct cuda_layers *l, uint32_t i) {
    uint32_t rows = x->step->row_count;
    if (l->why_not || i != l->ops[0].norm || rows == 0 || rows > CUDA_RESIDENT_ROWS) return 0;
    if (x->runs.table || x->dev->watch) return 0;
    const struct cuda_resident r = arguments_of(x, l);
    size_t parts = cuda_attention_parts_floats(&r.attention, r.attention.segments);
    if (r.shape.slots == 0 || parts > x->scratch->part_floats) return 0;
    if (r.attention.heads / r.attention.kv_heads != x->runs_group) return 0;
    cuda_resident_layers(&r, &x->queue);
    l->steps++;
    return l->ops[l->count - 1].end - i;
}
