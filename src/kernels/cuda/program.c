/* kernels/cuda/program.c - a tape on the card: its scratch memory, and its steps.
 *
 * A submit enqueues, on the device's one stream: the step's KV moves, one copy of its tables (more
 * where it has edits or masks), the ops of the tape, sampling, and the copy of the result into
 * pinned memory; then an event, which collect waits for. Two steps may be on their way; results and
 * events stand in two places, which take turns.
 *
 * Entry points: cuda_program_create, cuda_program_submit, cuda_program_collect.
 */
#include <cuda_runtime_api.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cuda/cuda_int.h"
#include "kernels/cuda/early.h"
#include "kernels/cuda/library.h"
#include "kernels/cuda/resident.h"

enum { PLACES = 2 };

/* Where the results of a step are kept until they are no longer valid. */
struct place {
    struct row_output *outputs; /* pinned */
    float *rows;                /* pinned; made when rows are first handed over */
    size_t row_cap;
    struct cuda_row_run *runs; /* pinned, [runs.cap]; NULL: no attention over a cache */
    cudaEvent_t begin, end;
    struct device_result result;
};

struct device_program {
    struct cuda_device *dev;
    struct program_options options;
    struct kv_space spaces[KV_GROUPS_MAX]; /* options.kv */
    struct cuda_kv kv[KV_GROUPS_MAX];
    uint8_t *slab;
    struct cuda_scratch scratch;
    struct cuda_plan *plan; /* [ops of the tape] */
    struct cuda_runs runs;
    struct cuda_layers *layers;    /* that one launch does; NULL: that is turned off */
    struct cuda_graphs *graphs;    /* NULL: every step is launched kernel by kernel */
    struct step_sizes table_sizes; /* that the graphs' tables have */
    int32_t *slots;                /* [slot_count] the token that was last sampled into each */
    float *saved;                  /* [edits_max] */
    uint64_t *scans;               /* scan_bytes */
    struct row_output *outputs;    /* [outputs_max] */
    uint8_t *tables;               /* the card's copy of a step's memory */
    size_t table_bytes;
    struct place places[PLACES];
    uint64_t submitted, collected;
};

static const struct tape_value *output_value(const struct device_program *p) {
    return tape_value_at(p->options.tape, tape_output(p->options.tape));
}

static size_t slab_bytes(const struct device_program *p) {
    return tape_slab_bytes(p->options.tape);
}

/* What sampling finds in the parts of each row. */
static size_t scan_bytes(const struct device_program *p) {
    size_t parts = output_value(p)->cols / CUDA_SCAN_TOKENS + (size_t)1;
    return p->options.sizes.outputs_max * parts * sizeof(uint64_t);
}

/* ---- making ---- */

static enum status take(struct device_program *p, const char *what, size_t bytes, void *out,
                        struct err *err) {
    void *memory = bytes > 0 ? cuda_take(p->dev, bytes) : NULL;
    if (bytes > 0 && !memory) return cuda_say_full(p->dev, what, bytes, err);
    memcpy(out, &memory, sizeof(memory));
    return ST_OK;
}

static enum status make_memory(struct device_program *p, struct err *err) {
    const struct step_sizes *n = &p->options.sizes;
    struct cuda_scratch *s = &p->scratch;
    TRY(take(p, "scratch memory (fewer rows at once need less)", slab_bytes(p), &p->slab, err));
    TRY(take(p, "converted rows", s->x_bytes, &s->x[0], err));
    TRY(take(p, "converted rows", s->x_bytes, &s->x[1], err));
    TRY(take(p, "scales of rows", s->x_rows * sizeof(float), &s->x_scale[0], err));
    TRY(take(p, "scales of rows", s->x_rows * sizeof(float), &s->x_scale[1], err));
    TRY(take(p, "scratch rows", s->row_floats * sizeof(float), &s->rows, err));
    if (p->dev->switches.even_tiles)
        TRY(take(p, "gates", cuda_handed_bytes(p->dev->multiprocessors), &s->handed, err));
    TRY(take(p, "parts of attention", s->part_floats * sizeof(float), &s->parts, err));
    if (p->runs.group > 0)
        TRY(take(p, "tables", p->runs.cap * sizeof(p->runs.table[0]), &p->runs.table, err));
    if (p->options.slot_count == 0) return ST_OK;
    TRY(take(p, "sampled tokens", p->options.slot_count * sizeof(int32_t), &p->slots, err));
    cudaMemset(p->slots, 0xff, p->options.slot_count * sizeof(int32_t)); /* CUDA_SLOT_EMPTY */
    cudaDeviceSynchronize();
    TRY(take(p, "edited logits", (n->edits_max + 1) * sizeof(float), &p->saved, err));
    TRY(take(p, "parts of logits", scan_bytes(p), &p->scans, err));
    return take(p, "results", n->outputs_max * sizeof(struct row_output), &p->outputs, err);
}

static enum status make_places(struct device_program *p, struct err *err) {
    size_t bytes = p->options.sizes.outputs_max * sizeof(struct row_output);
    for (int i = 0; i < PLACES; i++) {
        struct place *place = &p->places[i];
        if (cudaEventCreate(&place->begin) != cudaSuccess ||
            cudaEventCreate(&place->end) != cudaSuccess)
            return cuda_check("making events", err);
        if (p->runs.group > 0 &&
            cudaMallocHost((void **)&place->runs, p->runs.cap * sizeof(place->runs[0])) !=
                cudaSuccess)
            return err_set(err, ST_NOMEM, "cuda: out of pinned memory for tables");
        if (p->options.slot_count == 0) continue;
        if (cudaMallocHost((void **)&place->outputs, bytes) != cudaSuccess)
            return err_set(err, ST_NOMEM, "cuda: out of pinned memory for results");
    }
    return ST_OK;
}

static void join_parts(struct device_program *p) {
    const struct tape *t = p->options.tape;
    for (uint32_t i = 0; i < tape_op_count(t) && !p->dev->switches.without_fusion; i++) {
        const struct op *op = tape_op(t, i);
        if (op->kind == OP_MATMUL)
            cuda_weights_join(p->dev, op->matmul.parts, op->matmul.part_count);
    }
}

static enum status measure(struct device_program *p, struct err *err) {
    const struct tape *t = p->options.tape;
    if (tape_kept(t) != VALUE_NONE)
        return err_set(err, ST_BAD, "device cuda does not keep a second value of a tape");
    p->plan = mem_zalloc_array(tape_op_count(t) + (size_t)1, sizeof(p->plan[0]));
    if (!p->plan) return err_set(err, ST_NOMEM, "out of memory for the forward pass");
    join_parts(p);
    cuda_runs_plan(&p->options, p->dev->switches.groups, &p->runs);
    cuda_plan_make(t, !p->dev->switches.without_fusion, p->plan);
    for (uint32_t i = 0; i < tape_op_count(t); i++)
        TRY(cuda_op_measure(t, i, &p->options, &p->scratch, err));
    if (!p->dev->switches.resident || p->dev->switches.plain_attention) return ST_OK;
    p->layers = mem_zalloc(sizeof(*p->layers));
    if (!p->layers) return err_set(err, ST_NOMEM, "out of memory for the forward pass");
    cuda_layers_match(t, &p->options, p->layers);
    return ST_OK;
}

static struct cuda_kv kv_of(const struct kv_space *s) {
    return (struct cuda_kv){.type = s->shape.type,
                            .layers = s->shape.layers,
                            .heads = s->shape.heads,
                            .head_dim = s->shape.head_dim,
                            .tiles_per_block = s->shape.block_tokens / CUDA_TILE_TOKENS,
                            .base = (uint8_t *)(uintptr_t)s->base};
}

static enum status time_products(const struct device_program *p, struct err *err) {
    const struct cuda_early early = {.dev = p->dev,
                                     .tape = p->options.tape,
                                     .plan = p->plan,
                                     .scratch = &p->scratch,
                                     .slab = p->slab,
                                     .slab_bytes = slab_bytes(p)};
    if (!p->dev->blas || !p->dev->switches.timed_early) return ST_OK;
    return cuda_early_products(&early, err);
}

enum status cuda_program_create(struct cuda_device *dev, const struct program_options *options,
                                struct device_program **out, struct err *err) {
    CHECK(options->kv_group_count <= KV_GROUPS_MAX);
    struct device_program *p = mem_zalloc(sizeof(*p));
    if (!p) return err_set(err, ST_NOMEM, "out of memory for the forward pass");
    p->dev = dev;
    p->options = *options;
    for (uint32_t g = 0; g < options->kv_group_count; g++) {
        p->spaces[g] = options->kv[g];
        p->kv[g] = kv_of(&options->kv[g]);
    }
    p->options.kv = options->kv ? p->spaces : NULL;
    enum status st = measure(p, err);
    if (st == ST_OK) st = make_memory(p, err);
    if (st == ST_OK && p->layers)
        st = cuda_layers_make(dev, options->tape, p->slab, p->layers, err);
    if (st == ST_OK) st = make_places(p, err);
    if (st == ST_OK) st = time_products(p, err);
    if (st != ST_OK) {
        cuda_program_destroy(p);
        return st;
    }
    *out = p;
    return ST_OK;
}

void cuda_program_destroy(struct device_program *p) {
    if (!p) return;
    const struct step_sizes *n = &p->options.sizes;
    cudaStreamSynchronize(p->dev->stream);
    for (int i = 0; i < PLACES; i++) {
        struct place *place = &p->places[i];
        cudaFreeHost(place->outputs);
        cudaFreeHost(place->rows);
        cudaFreeHost(place->runs);
        if (place->begin) cudaEventDestroy(place->begin);
        if (place->end) cudaEventDestroy(place->end);
    }
    cuda_graphs_destroy(p->graphs);
    if (p->layers) cuda_layers_deinit(p->dev, p->layers);
    mem_free(p->layers);
    mem_free(p->plan);
    cuda_give(p->dev, p->slab, slab_bytes(p));
    cuda_give(p->dev, p->scratch.x[0], p->scratch.x_bytes);
    cuda_give(p->dev, p->scratch.x[1], p->scratch.x_bytes);
    cuda_give(p->dev, p->scratch.x_scale[0], p->scratch.x_rows * sizeof(float));
    cuda_give(p->dev, p->scratch.x_scale[1], p->scratch.x_rows * sizeof(float));
    cuda_give(p->dev, p->scratch.handed, cuda_handed_bytes(p->dev->multiprocessors));
    cuda_give(p->dev, p->scratch.rows, p->scratch.row_floats * sizeof(float));
    cuda_give(p->dev, p->scratch.parts, p->scratch.part_floats * sizeof(float));
    cuda_give(p->dev, p->runs.table, p->runs.cap * sizeof(p->runs.table[0]));
    cuda_give(p->dev, p->slots, p->options.slot_count * sizeof(int32_t));
    cuda_give(p->dev, p->saved, (n->edits_max + 1) * sizeof(float));
    cuda_give(p->dev, p->scans, scan_bytes(p));
    cuda_give(p->dev, p->outputs, n->outputs_max * sizeof(struct row_output));
    cuda_give(p->dev, p->tables, p->table_bytes);
    mem_free(p);
}

/* ---- numbers of rows ---- */

/* Graphs are recorded for some numbers of rows alone: up to 8, which have kernels of their own,
 * then multiples of 8, and of 32 above 256. */
static uint32_t rounded_rows(uint32_t rows) {
    uint32_t by = rows <= CUDA_FEW_ROWS ? 1 : rows <= 256 ? 8 : 32;
    return (rows + by - 1) / by * by;
}

/* A decoding step with rows to fill it up, which are skipped; others stay what they are. What lies
 * behind a table's last entry is nobody's. */
static struct step filled_up(const struct device_program *p, const struct step *step) {
    const struct step_sizes *n = &step->sizes;
    struct step out = *step;
    uint32_t first = step->row_count, count = rounded_rows(first);
    bool is_decoding = first == step->seq_count && first == step->output_count;
    bool has_graphs = !p->dev->switches.without_graphs && !p->dev->watch;
    if (!is_decoding || !p->dev->switches.fills || !has_graphs) return out;
    if (count > n->rows_max || count > n->outputs_max || count > n->seqs_max) return out;
    for (uint32_t r = first; r < count; r++) {
        out.token[r] = 0;
        out.pos[r] = -1;
        out.seq[r] = 0;
        out.output_row[r] = r;
        out.seqs[r] = (struct step_seq){r, 1};
    }
    out.row_count = out.output_count = out.seq_count = count;
    return out;
}

/* ---- moves ---- */

static void do_moves(const struct device_program *p, const struct step *step) {
    for (uint32_t i = 0; i < step->move_count; i++) {
        const struct kv_move *m = &step->moves[i];
        CHECK(m->group < p->options.kv_group_count);
        struct kv_copy copy = kv_move_copy(&p->spaces[m->group], m);
        cudaMemcpyAsync(copy.to, copy.from, copy.bytes, cudaMemcpyDefault, p->dev->stream);
    }
}

/* ---- tables ---- */

/* The card's copy of a table of the step. */
static void *table_at(const struct device_program *p, const struct step *step, const void *table) {
    return p->tables + ((const uint8_t *)table - (const uint8_t *)step->memory);
}

static void copy_table(const struct device_program *p, const struct step *step, const void *from,
                       size_t bytes) {
    if (bytes == 0) return;
    cudaMemcpyAsync(table_at(p, step, from), from, bytes, cudaMemcpyHostToDevice, p->dev->stream);
}

/* All up to the last sequence's blocks lies together; edits and masks follow (graph/step.c). */
static void copy_tables(const struct device_program *p, const struct step *step) {
    size_t blocks = (size_t)step->seq_count * step->sizes.group_count * step->sizes.blocks_max;
    const uint8_t *end = (const uint8_t *)(step->blocks + blocks);
    CHECK((const uint8_t *)step->samplings <= (const uint8_t *)step->blocks);
    copy_table(p, step, step->memory, (size_t)(end - (const uint8_t *)step->memory));
    copy_table(p, step, step->tables.edits, step->tables.edit_count * sizeof(struct logit_edit));
    copy_table(p, step, step->tables.deny, step->tables.deny_count * sizeof(uint64_t));
}

/* Steps of one size come with the same memory: this allocates once. */
static enum status make_room_for_tables(struct device_program *p, const struct step *step,
                                        struct err *err) {
    if (step->memory_bytes <= p->table_bytes) return ST_OK;
    cudaStreamSynchronize(p->dev->stream);
    cuda_graphs_destroy(p->graphs); /* they know the tables' place */
    p->graphs = p->dev->switches.without_graphs ? NULL : cuda_graphs_create();
    cuda_give(p->dev, p->tables, p->table_bytes);
    p->table_bytes = 0;
    p->tables = cuda_take(p->dev, step->memory_bytes);
    if (!p->tables) return cuda_say_full(p->dev, "step tables", step->memory_bytes, err);
    p->table_bytes = step->memory_bytes;
    return ST_OK;
}

/* ---- rows and results ---- */

/* The ops of a step, while they are enqueued. */
struct ops_run {
    const struct device_program *p;
    struct cuda_run x;
};

static void enqueue_ops(void *ctx) {
    struct ops_run *run = ctx;
    const struct cuda_plan *plan = run->p->plan;
    const struct tape *t = run->x.tape;
    struct cuda_watch *watch = run->p->dev->watch;
    cuda_watch_mark(watch, t, 0, run->p->dev->stream);
    run->x.queue.overlaps = false; /* the first kernel follows copies, not a kernel */
    for (uint32_t i = 0, done = 0; i < tape_op_count(t); i = done) {
        run->x.now = &plan[i];
        uint32_t count = run->p->layers ? cuda_layers_launch(&run->x, run->p->layers, i) : 0;
        if (count == 0) count = cuda_op_launch(&run->x, tape_op(t, i));
        run->x.queue.overlaps = run->p->dev->switches.overlap && !watch;
        for (; done < i + count; done++) cuda_watch_mark(watch, t, done + 1, run->p->dev->stream);
    }
}

/* Steps of prompts are long, and their shapes seldom come again. Graphs know the tables' places,
 * which are those of the first step. */
static struct cuda_graphs *graphs_for(struct device_program *p, const struct step *step,
                                      const struct cuda_row_runs *runs) {
    const struct step_sizes none = {.rows_max = 0};
    if (memcmp(&p->table_sizes, &none, sizeof(none)) == 0) p->table_sizes = step->sizes;
    bool is_decoding = step->row_count == step->seq_count && !runs->table;
    bool is_alike = memcmp(&p->table_sizes, &step->sizes, sizeof(step->sizes)) == 0;
    return is_decoding && is_alike && !p->dev->watch ? p->graphs : NULL;
}

static void run_rows(struct device_program *p, const struct step *step, struct place *place) {
    struct ops_run run = {.p = p,
                          .x = {
                              .dev = p->dev,
                              .queue = {.stream = p->dev->stream},
                              .tape = p->options.tape,
                              .step = step,
                              .kv = p->kv,
                              .slab = p->slab,
                              .slots = p->slots,
                              .token = table_at(p, step, step->token),
                              .pos = table_at(p, step, step->pos),
                              .seq = table_at(p, step, step->seq),
                              .output_row = table_at(p, step, step->output_row),
                              .seqs = table_at(p, step, step->seqs),
                              .blocks = table_at(p, step, step->blocks),
                              .scratch = &p->scratch,
                              .segments = cuda_step_segments(step),
                              .runs = cuda_runs_make(&p->runs, step, place->runs, p->dev->stream),
                              .runs_group = p->runs.group,
                          }};
    run.x.is_whole =
        p->dev->switches.whole && !run.x.runs.table && cuda_step_is_whole(step, &p->runs, p->dev);
    const struct cuda_graph_key key = {.rows = step->row_count,
                                       .outputs = step->output_count,
                                       .seqs = step->seq_count,
                                       .segments = run.x.segments,
                                       .is_whole = run.x.is_whole};
    cuda_graphs_run(graphs_for(p, step, &run.x.runs), &key, enqueue_ops, &run, p->dev->stream);
    const struct device_run done = {.tape = p->options.tape, .step = step, .kv = p->options.kv};
    cuda_watch_tell(p->dev->watch, &done);
}
_Static_assert(sizeof(struct step_seq) == 2 * sizeof(uint32_t), "kernels read pairs of numbers");

static void sample(const struct device_program *p, const struct step *step, struct place *place) {
    const struct tape_value *v = output_value(p);
    struct cuda_sample a = {
        .logits = (float *)(void *)(p->slab + v->offset),
        .row_floats = v->row_bytes / sizeof(float),
        .vocab = v->cols,
        .output_count = step->output_count,
        .samplings = table_at(p, step, step->samplings),
        .edits = table_at(p, step, step->tables.edits),
        .deny = table_at(p, step, step->tables.deny),
        .saved = p->saved,
        .scans = p->scans,
        .slots = p->slots,
        .outputs = p->outputs,
    };
    CHECK(p->slots);
    cuda_sample(&a, p->dev->stream);
    cudaMemcpyAsync(place->outputs, p->outputs, step->output_count * sizeof(struct row_output),
                    cudaMemcpyDeviceToHost, p->dev->stream);
}

static enum status make_room_for_rows(const struct device_program *p, struct place *place,
                                      size_t rows, struct err *err) {
    size_t row_bytes = output_value(p)->row_bytes;
    if (rows <= place->row_cap) return ST_OK;
    cudaFreeHost(place->rows);
    place->rows = NULL;
    place->row_cap = 0;
    if (cudaMallocHost((void **)&place->rows, rows * row_bytes) != cudaSuccess) {
        cudaGetLastError();
        return err_set(err, ST_NOMEM, "cuda: no %zu MiB of pinned memory for rows of output",
                       (rows * row_bytes) >> 20);
    }
    place->row_cap = rows;
    return ST_OK;
}

static void copy_rows(const struct device_program *p, struct place *place, uint32_t first,
                      uint32_t count) {
    const struct tape_value *v = output_value(p);
    size_t at = first * v->row_bytes;
    cudaMemcpyAsync((uint8_t *)place->rows + at, p->slab + v->offset + at, count * v->row_bytes,
                    cudaMemcpyDeviceToHost, p->dev->stream);
}

/* Rows that are results themselves: all, or some of those that are sampled from. */
static enum status hand_over(const struct device_program *p, const struct step *step,
                             struct place *place, struct err *err) {
    uint32_t count = place->result.output_count;
    if (step->hands_over) {
        TRY(make_room_for_rows(p, place, count, err));
        if (count > 0) copy_rows(p, place, 0, count);
        return ST_OK;
    }
    for (uint32_t r = 0; r < count; r++) {
        if (step->samplings[r].kind != SAMPLING_HAND_OVER) continue;
        TRY(make_room_for_rows(p, place, count, err));
        copy_rows(p, place, r, 1);
    }
    return ST_OK;
}

/* ---- steps ---- */

static void check_sizes(const struct device_program *p, const struct step *step) {
    const struct tape_sizes *sizes = tape_sizes(p->options.tape);
    CHECK(step->row_count <= sizes->rows_max);
    CHECK(step->output_count <= sizes->outputs_max);
    CHECK(step->seq_count <= sizes->seqs_max);
    CHECK(step->tables.edit_count <= p->options.sizes.edits_max);
}

enum status cuda_program_submit(struct device_program *p, const struct step *step,
                                struct err *err) {
    struct place *place = &p->places[p->submitted % PLACES];
    CHECK(p->submitted - p->collected < PLACES);
    check_sizes(p, step);
    TRY(make_room_for_tables(p, step, err));
    const struct tape_value *v = output_value(p);
    place->result = (struct device_result){
        .outputs = step->hands_over ? NULL : place->outputs,
        .output_count = v->rows == ROWS_SEQS ? step->seq_count : step->output_count,
        .row_floats = v->row_bytes / sizeof(float)};
    cudaEventRecord(place->begin, p->dev->stream);
    do_moves(p, step);
    const struct step filled = filled_up(p, step);
    copy_tables(p, step);
    if (step->row_count > 0) run_rows(p, &filled, place);
    if (step->output_count > 0 && !step->hands_over) sample(p, step, place);
    TRY(hand_over(p, step, place, err));
    place->result.rows = place->rows;
    cudaEventRecord(place->end, p->dev->stream);
    TRY(cuda_check("submitting a step", err));
    p->submitted++;
    return ST_OK;
}

enum status cuda_program_collect(struct device_program *p, struct device_result *out,
                                 struct err *err) {
    struct place *place = &p->places[p->collected % PLACES];
    float elapsed_ms = 0.0f;
    CHECK(p->collected < p->submitted);
    p->collected++;
    cudaEventSynchronize(place->end);
    TRY(cuda_check("running a step", err));
    cudaEventElapsedTime(&elapsed_ms, place->begin, place->end);
    place->result.elapsed_us = (int64_t)((double)elapsed_ms * 1000.0);
    *out = place->result;
    return ST_OK;
}

/* ---- for tests ---- */

__attribute__((visibility("default"))) cuda_library_slab_fn jitney_cuda_slab;

enum status jitney_cuda_slab(struct device_program *p, size_t offset, size_t bytes, void *host,
                             bool is_write) {
    CHECK(offset + bytes <= slab_bytes(p));
    cuda_enter(p->dev);
    cudaStreamSynchronize(p->dev->stream);
    if (is_write)
        cudaMemcpy(p->slab + offset, host, bytes, cudaMemcpyHostToDevice);
    else
        cudaMemcpy(host, p->slab + offset, bytes, cudaMemcpyDeviceToHost);
    cudaDeviceSynchronize();
    return cuda_check("copying scratch memory", NULL);
}

__attribute__((visibility("default"))) cuda_library_resident_fn jitney_cuda_resident;

struct cuda_library_resident jitney_cuda_resident(const struct device_program *p) {
    const struct cuda_layers *l = p->layers;
    if (!l)
        return (struct cuda_library_resident){.why_not = "step=resident is off", .is_off = true};
    return (struct cuda_library_resident){
        .steps = l->steps, .layers = l->count, .why_not = l->why_not};
}
