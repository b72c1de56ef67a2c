/* kernels/cuda/graphs.c - the ops of a decoding step as one graph, recorded once for each shape.
 *
 * All that differs between steps of one shape lies in tables in device memory, so a recorded graph
 * is launched again as it is. A shape is recorded the second time that it is seen: then all its
 * kernels are loaded and cuBLASLt has chosen its algorithms, and a shape that comes once costs
 * nothing. The least recently used graph makes room. If recording fails, graphs are not used any
 * more.
 *
 * Entry points: cuda_graphs_create, cuda_graphs_run.
 */
#include <cuda_runtime_api.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/cuda/cuda_int.h"

enum { GRAPHS_MAX = 64 };

struct graph {
    struct cuda_graph_key key;
    cudaGraphExec_t exec; /* NULL: seen, but not recorded */
    uint64_t used;        /* when; 0: never */
};

struct cuda_graphs {
    struct graph graphs[GRAPHS_MAX];
    uint64_t now;
    bool has_failed;
};

struct cuda_graphs *cuda_graphs_create(void) {
    return mem_zalloc(sizeof(struct cuda_graphs));
}

void cuda_graphs_destroy(struct cuda_graphs *g) {
    if (!g) return;
    for (int i = 0; i < GRAPHS_MAX; i++)
        if (g->graphs[i].exec) cudaGraphExecDestroy(g->graphs[i].exec);
    mem_free(g);
}

/* The graph of a shape, or the one whose place it takes. */
static struct graph *find(struct cuda_graphs *g, const struct cuda_graph_key *key) {
    struct graph *oldest = &g->graphs[0];
    for (int i = 0; i < GRAPHS_MAX; i++) {
        struct graph *at = &g->graphs[i];
        if (at->used > 0 && memcmp(&at->key, key, sizeof(*key)) == 0) return at;
        if (at->used < oldest->used) oldest = at;
    }
    return oldest;
}

static bool record(struct graph *to, cuda_enqueue_fn *enqueue, void *ctx,
                   struct CUstream_st *stream) {
    cudaGraph_t graph = NULL;
    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess)
        return false;
    enqueue(ctx);
    bool is_done = cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph;
    is_done = is_done && cudaGraphInstantiate(&to->exec, graph, 0) == cudaSuccess;
    if (graph) cudaGraphDestroy(graph);
    if (!is_done) to->exec = NULL;
    return is_done;
}

void cuda_graphs_run(struct cuda_graphs *g, const struct cuda_graph_key *key,
                     cuda_enqueue_fn *enqueue, void *ctx, struct CUstream_st *stream) {
    if (!g || g->has_failed) {
        enqueue(ctx);
        return;
    }
    struct graph *at = find(g, key);
    bool is_known = at->used > 0 && memcmp(&at->key, key, sizeof(*key)) == 0;
    if (!is_known && at->exec) {
        cudaStreamSynchronize(stream); /* it may be running */
        cudaGraphExecDestroy(at->exec);
        at->exec = NULL;
    }
    at->key = *key;
    at->used = ++g->now;
    if (is_known && !at->exec && !record(at, enqueue, ctx, stream)) {
        cudaGetLastError();
        g->has_failed = true;
    }
    if (!at->exec || cudaGraphLaunch(at->exec, stream) != cudaSuccess) enqueue(ctx);
}
