/* kernels/cuda/runs.c - the rows of a step in runs of neighbours, for attention on tensor cores.
 *
 * Entry points: cuda_runs_plan, cuda_runs_make, cuda_step_is_whole.
 */
#include <cuda_runtime_api.h>

#include "base/check.h"
#include "kernels/cuda/cuda_int.h"

enum { SHORT_ROWS = 8 }; /* a sequence of more rows is cut into long runs */

void cuda_runs_plan(const struct program_options *options, bool by_groups, struct cuda_runs *out) {
    const struct tape *t = options->tape;
    *out = (struct cuda_runs){.long_queries = CUDA_LONG_QUERIES,
                              .cap = options->sizes.rows_max + options->sizes.seqs_max};
    if (options->kv_group_count > 0 && cuda_attends_chunks(options->kv[0].shape.type, by_groups))
        out->long_queries = CUDA_CHUNK_QUERIES;
    out->is_f8 = options->kv_group_count > 0 && options->kv[0].shape.type == KV_F8;
    for (uint32_t i = 0; i < tape_op_count(t) && out->group == 0; i++) {
        const struct op *op = tape_op(t, i);
        if (op->kind != OP_ATTENTION) continue;
        out->group = op->attention.heads / op->attention.kv_heads;
        out->kv_heads = op->attention.kv_heads;
    }
    if (out->group > CUDA_SHORT_QUERIES) out->group = 0;
}

static bool is_decoding(const struct step *step) {
    if (step->row_count != step->seq_count) return false;
    for (uint32_t s = 0; s < step->seq_count; s++)
        if (step->seqs[s].first_row != s || step->seqs[s].row_count != 1) return false;
    return true;
}

/* The runs of sequences that are long, or of those that are not; returns how many. */
static uint32_t add_runs(const struct step *step, bool is_long, uint32_t rows_at_once,
                         struct cuda_row_run *out) {
    uint32_t count = 0;
    for (uint32_t s = 0; s < step->seq_count; s++) {
        const struct step_seq *seq = &step->seqs[s];
        if ((seq->row_count > SHORT_ROWS) != is_long) continue;
        for (uint32_t r = 0; r < seq->row_count; r += rows_at_once) {
            uint32_t left = seq->row_count - r;
            out[count].first = seq->first_row + r;
            out[count].count = left < rows_at_once ? left : rows_at_once;
            count++;
        }
    }
    return count;
}

struct cuda_row_runs cuda_runs_make(const struct cuda_runs *r, const struct step *step,
                                    struct cuda_row_run *host, struct CUstream_st *stream) {
    struct cuda_row_runs out = {.short_count = step->row_count};
    if (r->group == 0 || is_decoding(step)) return out;
    out.table = r->table;
    out.short_count = add_runs(step, false, CUDA_SHORT_QUERIES / r->group, host);
    out.long_count = add_runs(step, true, r->long_queries / r->group, host + out.short_count);
    uint32_t count = out.short_count + out.long_count;
    CHECK(count <= r->cap);
    cudaMemcpyAsync(r->table, host, count * sizeof(host[0]), cudaMemcpyHostToDevice, stream);
    return out;
}

/* A decoding step whose sequences, each attended to by one block for a KV head, keep the card busy:
 * the work is that of about one such block, as long as the longest, on a multiprocessor; over a
 * cache of fp8, which takes more instructions for each byte, of one and a half. Segments apart then
 * only cost their joining. */
bool cuda_step_is_whole(const struct step *s, const struct cuda_runs *r,
                        const struct cuda_device *dev) {
    uint64_t all = 0, longest = 0, eighths = r->is_f8 ? 12 : 7;
    if (dev->switches.whole_always) return true;
    for (uint32_t i = 0; i < s->row_count; i++) {
        uint64_t tokens = s->pos[i] < 0 ? 0 : (uint64_t)s->pos[i] + 1;
        all += tokens;
        if (tokens > longest) longest = tokens;
    }
    return all * r->kv_heads * 8 >= longest * eighths * dev->multiprocessors;
}
