/* cli/layer_parts.c - see cli/layer_parts.h for the contract. */
#include "cli/layer_parts.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/size.h"
#include "graph/step.h"
#include "graph/tape.h"
#include "graph/tape_part.h"

/* A tape with what is needed to run it. */
struct part {
    struct tape *tape;
    struct device_program *program;
    struct step *step;
    uint32_t in_cols, out_cols; /* of the inputs of products; 0: there is none */
};

struct layer_parts {
    struct layer_parts_options options;
    uint32_t chunk;
    struct kv_space kv;
    struct part parts[LAYER_INPUTS_MAX + 1];
    uint32_t input_count;
    struct part_input inputs[LAYER_INPUTS_MAX];
    uint32_t cuts[LAYER_INPUTS_MAX + 2]; /* part i: ops [cuts[i], cuts[i + 1]) of the layer */
    value_id values[LAYER_INPUTS_MAX];   /* that hold the inputs */
    value_id x;
};

static enum status say_uncut(const char *why, struct err *err) {
    return err_set(err, ST_BAD, "layers of this architecture cannot be calibrated one by one: %s",
                   why);
}

/* ---- inputs of products, found on the tape ---- */

/* The last op before `end` that writes the operand's columns; `end` if there is none. */
static uint32_t find_writer(const struct tape *t, struct operand o, uint32_t end) {
    for (uint32_t i = end; i-- > 0;) {
        struct op op = *tape_op(t, i);
        struct op_access a = op_access(&op);
        for (uint32_t w = 0; w < a.write_count; w++) {
            const struct operand *to = a.writes[w];
            if (to->value == o.value && to->col <= o.col && o.col + o.cols <= to->col + to->cols)
                return i;
        }
    }
    return end;
}

/* The rows of a matrix that make the operand, if one does. */
static bool find_rows(const struct tape *t, struct operand o, uint32_t end, struct part_input *in) {
    uint32_t writer = find_writer(t, o, end);
    if (writer == end || tape_op(t, writer)->kind != OP_MATMUL) return false;
    const struct op_matmul *m = &tape_op(t, writer)->matmul;
    uint32_t col = m->dst.col;
    for (uint32_t i = 0; i < m->part_count; i++) {
        uint32_t rows = m->parts[i].weight->rows;
        if (o.col >= col && o.col + o.cols <= col + rows) {
            in->matrix = m->parts[i].weight;
            in->bias = m->parts[i].bias;
            in->first_row = o.col - col;
            return true;
        }
        col += rows;
    }
    return false;
}

/* The values that attention at op `end` reads from the cache. With fewer heads of keys than of
 * queries several columns of its result are made by one row: they cannot be scaled apart. */
static bool find_value_rows(const struct tape *t, uint32_t end, struct part_input *in) {
    const struct op_attention *a = &tape_op(t, end)->attention;
    for (uint32_t i = end; i-- > 0;) {
        const struct op *op = tape_op(t, i);
        if (op->kind == OP_KV_WRITE)
            return a->heads == a->kv_heads && find_rows(t, op->kv_write.v, i, in);
    }
    return false;
}

static void find_maker(const struct tape *t, struct operand src, uint32_t end,
                       struct part_input *in) {
    uint32_t i = find_writer(t, src, end);
    in->maker = MAKER_OTHER;
    if (i == end) return;
    const struct op *op = tape_op(t, i);
    if (op->kind == OP_NORM && op->norm.group == src.cols) {
        in->maker = MAKER_NORM;
        in->norm = op->norm.weight;
    } else if (op->kind == OP_ATTENTION && find_value_rows(t, i, in)) {
        in->maker = MAKER_VALUES;
    } else if (op->kind == OP_ACT && op->act.segments == 1 && op->act.up.value != VALUE_NONE &&
               find_rows(t, op->act.up, i, in)) {
        in->maker = MAKER_UP;
    }
}

static enum status add_input(struct layer_parts *p, const struct tape *t, uint32_t i,
                             struct err *err) {
    const struct op_matmul *m = &tape_op(t, i)->matmul;
    struct part_input *in = &p->inputs[p->input_count - (p->input_count > 0)];
    bool is_new = p->input_count == 0 || m->src.value != p->values[p->input_count - 1];
    if (is_new) {
        if (p->input_count == LAYER_INPUTS_MAX)
            return say_uncut("products of a layer have more than 4 inputs", err);
        in = &p->inputs[p->input_count];
        in->cols = m->src.cols;
        find_maker(t, m->src, i, in);
        p->values[p->input_count] = m->src.value;
        p->cuts[++p->input_count] = i;
    }
    if (in->weight_count + m->part_count > INPUT_MATRICES_MAX)
        return say_uncut("more than 3 matrices read one input", err);
    for (uint32_t k = 0; k < m->part_count; k++)
        in->weights[in->weight_count++] = m->parts[k].weight;
    return ST_OK;
}

static enum status find_inputs(struct layer_parts *p, const struct tape *t, struct err *err) {
    uint32_t count = tape_op_count(t);
    p->cuts[0] = 1; /* behind the op `input` */
    for (uint32_t i = 1; i < count; i++) {
        if (tape_op(t, i)->kind == OP_EXPERT_MATMUL) return say_uncut("it has experts", err);
        if (tape_op(t, i)->kind == OP_MATMUL) TRY(add_input(p, t, i, err));
    }
    p->cuts[p->input_count + 1] = count;
    return ST_OK;
}

/* ---- programs ---- */

static struct step_sizes step_sizes_of(const struct layer_parts *p, const struct part *part) {
    uint32_t dim = p->options.model->hp.dim;
    return (struct step_sizes){.rows_max = p->chunk,
                               .outputs_max = p->chunk,
                               .seqs_max = 1,
                               .group_count = 1,
                               .blocks_max = p->kv.block_count,
                               .input_floats = dim + part->in_cols};
}

/* The tape of `part` is written, not finished. */
static enum status open_part(struct layer_parts *p, struct part *part, struct err *err) {
    const struct device *device = p->options.device;
    const struct step_sizes sizes = step_sizes_of(p, part);
    const struct tape_sizes rows = {sizes.rows_max, sizes.outputs_max, sizes.seqs_max};
    const struct program_options program = {
        .tape = part->tape, .kv = &p->kv, .kv_group_count = 1, .sizes = sizes};
    TRY(tape_finish(part->tape, &rows, err));
    TRY(device->program_create(device->self, &program, &part->program, err));
    TRY(step_create(&part->step, device, &sizes, err));
    for (uint32_t b = 0; b < sizes.blocks_max; b++) step_blocks(part->step, 0, 0)[b] = b;
    return ST_OK;
}

static void close_part(const struct layer_parts *p, struct part *part) {
    const struct device *device = p->options.device;
    step_destroy(part->step, device);
    device->program_destroy(device->self, part->program);
    tape_destroy(part->tape);
}

static enum status create_tape(struct tape **out, struct err *err) {
    if (tape_create(out) == ST_OK) return ST_OK;
    return err_set(err, ST_NOMEM, "out of memory for the forward pass of a layer");
}

static enum status make_part(struct layer_parts *p, const struct tape *whole, uint32_t i,
                             struct err *err) {
    struct part *part = &p->parts[i];
    struct tape_part ops = {.whole = whole, .first = p->cuts[i], .end = p->cuts[i + 1]};
    ops.in[ops.in_count++] = p->x;
    if (i > 0) {
        ops.in[ops.in_count++] = p->values[i - 1];
        part->in_cols = p->inputs[i - 1].cols;
    }
    if (i < p->input_count) {
        ops.out[ops.out_count++] = p->values[i];
        part->out_cols = p->inputs[i].cols;
    }
    ops.out[ops.out_count++] = p->x;
    TRY(create_tape(&part->tape, err));
    TRY(tape_copy_part(&ops, part->tape, err));
    return open_part(p, part, err);
}

static enum status make_parts(struct layer_parts *p, struct err *err) {
    struct tape *whole = NULL;
    TRY(create_tape(&whole, err));
    model_build_layer(p->options.model, 0, whole, &p->x);
    enum status st = tape_status(whole, err);
    if (st == ST_OK) st = find_inputs(p, whole, err);
    for (uint32_t i = 0; i <= p->input_count && st == ST_OK; i++) st = make_part(p, whole, i, err);
    tape_destroy(whole);
    return st;
}

/* In float32, so that nothing is rounded. */
static enum status make_kv(struct layer_parts *p, struct err *err) {
    const struct device *device = p->options.device;
    const struct hparams *hp = &p->options.model->hp;
    uint32_t tokens = device->kv_block_tokens;
    size_t bytes = 0;
    p->kv = (struct kv_space){.shape = {.type = KV_F32,
                                        .layers = 1,
                                        .heads = hp->kv_heads,
                                        .head_dim = hp->head_dim,
                                        .block_tokens = tokens},
                              .block_count = (p->options.window_tokens + tokens - 1) / tokens};
    p->kv.block_bytes = device->kv_block_bytes(device->self, &p->kv.shape);
    CHECK(p->kv.block_bytes > 0);
    if (size_mul(p->kv.block_bytes, p->kv.block_count, &bytes))
        p->kv.base = device->alloc(device->self, bytes);
    if (p->kv.base) return ST_OK;
    return err_set(err, ST_NOMEM, "out of memory for the keys and values of %u tokens",
                   p->options.window_tokens);
}

static struct layer_parts *make(const struct layer_parts_options *o) {
    struct layer_parts *p = mem_zalloc(sizeof(*p));
    if (!p) return NULL;
    p->options = *o;
    p->chunk = o->chunk_tokens < o->window_tokens ? o->chunk_tokens : o->window_tokens;
    return p;
}

enum status layer_parts_open(const struct layer_parts_options *options, struct layer_parts **out,
                             struct err *err) {
    struct layer_parts *p = make(options);
    if (!p) return err_set(err, ST_NOMEM, "out of memory for the forward pass of a layer");
    enum status st = make_kv(p, err);
    if (st == ST_OK) st = make_parts(p, err);
    if (st == ST_OK)
        *out = p;
    else
        layer_parts_close(p);
    return st;
}

void layer_parts_close(struct layer_parts *p) {
    if (!p) return;
    const struct device *device = p->options.device;
    for (uint32_t i = 0; i <= LAYER_INPUTS_MAX; i++) close_part(p, &p->parts[i]);
    if (p->kv.base) device->free(device->self, p->kv.base, p->kv.block_count * p->kv.block_bytes);
    mem_free(p);
}

uint32_t layer_parts_inputs(const struct layer_parts *p) { return p->input_count; }

const struct part_input *layer_parts_input(const struct layer_parts *p, uint32_t i) {
    CHECK(i < p->input_count);
    return &p->inputs[i];
}

/* ---- running ---- */

/* Rows [first, first + count) of a window. */
struct chunk {
    uint32_t first, count;
};

static void fill_step(struct step *step, struct chunk c) {
    step_clear(step);
    step->hands_over = true;
    step->row_count = step->output_count = c.count;
    step->seq_count = 1;
    step->seqs[0] = (struct step_seq){.first_row = 0, .row_count = c.count};
    for (uint32_t i = 0; i < c.count; i++) {
        step->token[i] = 0;
        step->pos[i] = (int32_t)(c.first + i);
        step->seq[i] = 0;
        step->output_row[i] = i;
    }
}

/* `cols` columns of rows that lie `stride` apart. */
struct rows {
    float *at;
    size_t stride;
};

static void copy_rows(struct rows to, struct rows from, uint32_t count, uint32_t cols) {
    for (uint32_t i = 0; i < count; i++)
        memcpy(to.at + i * to.stride, from.at + i * from.stride, cols * sizeof(*to.at));
}

static struct rows rows_of(const float *at, size_t stride) {
    return (struct rows){(float *)at, stride};
}

static enum status run_step(const struct device *device, const struct part *part,
                            struct device_result *out, struct err *err) {
    TRY(device->submit(device->self, part->program, part->step, err));
    return device->collect(device->self, part->program, out, err);
}

static enum status run_chunk(struct layer_parts *p, const struct part *part, struct chunk c,
                             struct rows x, struct rows in, struct err *err) {
    struct device_result out;
    struct step *step = part->step;
    uint32_t dim = p->options.model->hp.dim, stride = step->sizes.input_floats;
    fill_step(step, c);
    copy_rows((struct rows){step->input, stride}, x, c.count, dim);
    copy_rows((struct rows){step->input + dim, stride}, in, c.count, part->in_cols);
    TRY(run_step(p->options.device, part, &out, err));
    struct rows first = rows_of(out.rows, out.row_floats);
    if (part->out_cols) {
        copy_rows(in, first, c.count, part->out_cols);
        first = rows_of(out.kept, out.kept_floats);
    }
    copy_rows(x, first, c.count, dim);
    return ST_OK;
}

enum status layer_parts_run(struct layer_parts *p, uint32_t i, float *x, float *in,
                            struct err *err) {
    CHECK(i <= p->input_count);
    uint32_t dim = p->options.model->hp.dim, window = p->options.window_tokens;
    uint32_t stride = p->options.in_stride;
    for (uint32_t first = 0; first < window; first += p->chunk) {
        struct chunk c = {first, window - first < p->chunk ? window - first : p->chunk};
        TRY(run_chunk(p, &p->parts[i], c, (struct rows){x + (size_t)first * dim, dim},
                      (struct rows){in + (size_t)first * stride, stride}, err));
    }
    return ST_OK;
}

static enum status embed(struct layer_parts *p, const struct layer_tokens *tokens, float *x,
                         struct err *err) {
    struct part *part = &p->parts[0];
    uint32_t dim = p->options.model->hp.dim;
    TRY(make_kv(p, err));
    TRY(create_tape(&part->tape, err));
    model_build_embedding(p->options.model, part->tape);
    TRY(open_part(p, part, err));
    for (uint32_t first = 0; first < tokens->count; first += p->chunk) {
        struct device_result out;
        uint32_t left = tokens->count - first;
        struct chunk c = {0, left < p->chunk ? left : p->chunk};
        fill_step(part->step, c);
        memcpy(part->step->token, tokens->ids + first, c.count * sizeof(tokens->ids[0]));
        TRY(run_step(p->options.device, part, &out, err));
        copy_rows((struct rows){x + (size_t)first * dim, dim}, rows_of(out.rows, out.row_floats),
                  c.count, dim);
    }
    return ST_OK;
}

enum status layer_parts_embed(const struct layer_parts_options *options,
                              const struct layer_tokens *tokens, float *x, struct err *err) {
    struct layer_parts *p = make(options);
    if (!p) return err_set(err, ST_NOMEM, "out of memory for the embeddings of tokens");
    enum status st = embed(p, tokens, x, err);
    layer_parts_close(p);
    return st;
}
