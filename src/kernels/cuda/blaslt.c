/* kernels/cuda/blaslt.c - products of many rows by cuBLASLt, which is found when the device opens.
 *
 * Split-K is forced to 1 in every algorithm. Then a row's bits do not depend on the algorithm, on
 * the number of rows or on the row's place, and they are those of kernels/cuda/product_mma.cu
 * (measured on H200 with CUDA 13.0: every shape, tile and number of rows that was tried). The
 * option sums=any gives that up, to measure what it costs.
 *
 * cuBLASLt thinks in columns: a row-major w[n][k] is its k x n matrix, to be transposed, and a
 * row-major x[m][k] its k x m matrix. The result, n x m, is our row-major dst[m][n].
 *
 * Products of fp8 are scaled by a vector for each operand, which cuBLASLt does on Hopper from CUDA
 * 12.9 on. They accumulate as the tensor cores do ("fast"), in one accumulator.
 *
 * Which algorithm a shape takes is chosen once and kept in a table: the first that cuBLASLt
 * proposes or, if choices are timed, the fastest of those that give the bits of our own kernel; of
 * fp8, where its bits are not those of our kernel (fp8.c), those of the first that it proposes.
 *
 * Entry points: cuda_blas_open, cuda_blas_open_fp8, cuda_blas_run.
 */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cuda/blaslt.h"
#include "kernels/cuda/cuda_int.h"
#include "kernels/cuda/kept.h"
#include "kernels/cuda/library.h"

/* It stays when it is closed: half a gigabyte is not mapped again for the next device. */
enum { OPEN_FLAGS = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE };
enum { WORKSPACE_BYTES = 32 << 20, CHOICES = 4096, CANDIDATES = 16, PATH_BYTES = 4096 };
enum { NAME_BYTES = 512 };

/* The functions that are called, by their names. */
#define BLAS_FUNCTIONS(F)                                                                          \
    F(cublasLtGetVersion)                                                                          \
    F(cublasLtCreate)                                                                              \
    F(cublasLtDestroy)                                                                             \
    F(cublasLtMatmul)                                                                              \
    F(cublasLtMatmulDescCreate)                                                                    \
    F(cublasLtMatmulDescSetAttribute)                                                              \
    F(cublasLtMatmulDescDestroy)                                                                   \
    F(cublasLtMatrixLayoutCreate)                                                                  \
    F(cublasLtMatrixLayoutDestroy)                                                                 \
    F(cublasLtMatmulPreferenceCreate)                                                              \
    F(cublasLtMatmulPreferenceSetAttribute)                                                        \
    F(cublasLtMatmulPreferenceDestroy)                                                             \
    F(cublasLtMatmulAlgoGetHeuristic)                                                              \
    F(cublasLtMatmulAlgoConfigSetAttribute)                                                        \
    F(cublasLtMatmulAlgoCheck)

/* The second `name` is declared; it is no expression. */
/* NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define DECLARE(name) __typeof__(&(name)) name;
struct blas_functions {
    BLAS_FUNCTIONS(DECLARE)
};

enum { OF_A_RANGE = 1 << 30 };  /* beside the rows of a key */
enum { FREE_SCALES = 1 << 16 }; /* beside its form */

/* What an algorithm is chosen by. */
struct choice_key {
    uint32_t form, rows, weights, cols, dst_floats, dst_align;
};

struct choice {
    struct choice_key key;
    bool is_known, has_algo;
    bool is_timed;   /* it was the fastest, in this run or in an earlier one */
    bool is_refused; /* all were tried, and none gave the bits that it must */
    cublasLtMatmulAlgo_t algo;
};

struct cuda_blas {
    bool is_timed; /* algorithms are chosen by their times */
    bool any_sums; /* also those that add up in another order */
    void *library;
    struct blas_functions f;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t product, product_fp8; /* the latter NULL: vectors of scales are unknown */
    const struct cuda_device *dev;
    void *workspace;
    struct choice choices[CHOICES];
    char keep_dir[PATH_BYTES]; /* "": algorithms are not kept */
    char made_for[NAME_BYTES]; /* kernels/cuda/kept.h */
    bool keeps_new, has_new;
};

_Static_assert(sizeof(struct choice_key) == CUDA_KEPT_KEY * sizeof(uint32_t), "kept as it is");
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == CUDA_KEPT_ALGO * sizeof(uint64_t), "kept as it is");

/* ---- finding the library ---- */

static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
enum { NAME_COUNT = sizeof(names) / sizeof(names[0]) };

/* `dir` is not terminated; empty: where the system looks. */
static void *open_in(const char *dir, size_t bytes) {
    char path[PATH_BYTES];
    void *library = NULL;
    for (int i = 0; i < NAME_COUNT && !library; i++) {
        int len =
            snprintf(path, sizeof(path), "%.*s%s%s", (int)bytes, dir, bytes ? "/" : "", names[i]);
        if (len > 0 && (size_t)len < sizeof(path)) library = dlopen(path, OPEN_FLAGS);
    }
    return library;
}

static void *find_library(const char *dirs) {
    void *library = NULL;
    for (const char *at = dirs; at && *at && !library;) {
        size_t bytes = strcspn(at, ":");
        if (bytes > 0) library = open_in(at, bytes);
        at += bytes + (at[bytes] == ':');
    }
    return library ? library : open_in("", 0);
}

static bool find_functions(struct cuda_blas *b) {
    bool all = true;
#define FIND(name)                                                                                 \
    *(void **)&b->f.name = dlsym(b->library, #name);                                               \
    all = all && b->f.name;
    BLAS_FUNCTIONS(FIND)
    return all;
}

static bool make_product(struct cuda_blas *b, cublasLtMatmulDesc_t *out) {
    cublasOperation_t transposed = CUBLAS_OP_T;
    if (b->f.cublasLtMatmulDescCreate(out, CUBLAS_COMPUTE_32F, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS)
        return false;
    return b->f.cublasLtMatmulDescSetAttribute(*out, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                               sizeof(transposed)) == CUBLAS_STATUS_SUCCESS;
}

/* Without it fp8 products go to our own kernel: no error. */
void cuda_blas_open_fp8(struct cuda_blas *b) {
    if (!b || b->product_fp8) return;
    const int8_t fast = 1;
    const int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    static const cublasLtMatmulDescAttributes_t modes[] = {CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
                                                           CUBLASLT_MATMUL_DESC_B_SCALE_MODE};
    bool is_fine = make_product(b, &b->product_fp8);
    is_fine = is_fine &&
              b->f.cublasLtMatmulDescSetAttribute(b->product_fp8, CUBLASLT_MATMUL_DESC_FAST_ACCUM,
                                                  &fast, sizeof(fast)) == CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < 2; i++)
        is_fine =
            is_fine && b->f.cublasLtMatmulDescSetAttribute(b->product_fp8, modes[i], &mode,
                                                           sizeof(mode)) == CUBLAS_STATUS_SUCCESS;
    if (is_fine || !b->product_fp8) return;
    b->f.cublasLtMatmulDescDestroy(b->product_fp8);
    b->product_fp8 = NULL;
}

/* Scales belong to the description of a product: they are set before each. */
static void set_scales(struct cuda_blas *b, const struct cuda_gemm *g) {
    if (g->form != CUDA_FP8) return;
    b->f.cublasLtMatmulDescSetAttribute(b->product_fp8, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                        &g->w_scale, sizeof(g->w_scale));
    b->f.cublasLtMatmulDescSetAttribute(b->product_fp8, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                                        &g->x_scale, sizeof(g->x_scale));
}

/* The description of the product; NULL: it cannot be done. */
static cublasLtMatmulDesc_t product_of(struct cuda_blas *b, const struct cuda_gemm *g) {
    if (g->form != CUDA_FP8) return b->product;
    if (!b->product_fp8 || g->weights % 16 != 0) return NULL;
    set_scales(b, g);
    return b->product_fp8;
}

static struct choice *find_choice(struct cuda_blas *b, const struct choice_key *key) {
    uint32_t hash = key->form;
    const uint32_t parts[] = {key->rows, key->weights, key->cols, key->dst_floats, key->dst_align};
    for (int i = 0; i < 5; i++) hash = (hash ^ parts[i]) * 0x9E3779B1u;
    struct choice *c = &b->choices[(hash >> 16) % CHOICES];
    if (memcmp(&c->key, key, sizeof(*key)) != 0) *c = (struct choice){.key = *key};
    return c;
}

/* ---- algorithms of an earlier run ---- */

static void read_kept(struct cuda_blas *b, const struct cuda_device *dev,
                      const struct cuda_library_options *o) {
    size_t version = b->f.cublasLtGetVersion();
    struct cuda_kept *list = mem_alloc_array(CHOICES, sizeof(*list));
    if (!list || strlen(o->keep_dir) >= sizeof(b->keep_dir)) {
        mem_free(list);
        return;
    }
    memcpy(b->keep_dir, o->keep_dir, strlen(o->keep_dir) + 1);
    b->keeps_new = o->keeps_new;
    snprintf(b->made_for, sizeof(b->made_for), "%s, cuBLASLt %zu, jitney %s%s", dev->card_name,
             version, JITNEY_VERSION, b->any_sums ? ", any sums" : "");
    uint32_t count = cuda_kept_read(b->keep_dir, b->made_for, list, CHOICES);
    for (uint32_t i = 0; i < count; i++) {
        struct choice_key key;
        memcpy(&key, list[i].key, sizeof(key));
        struct choice *c = find_choice(b, &key);
        memcpy(&c->algo, list[i].algo, sizeof(c->algo));
        c->is_known = c->has_algo = c->is_timed = true;
    }
    mem_free(list);
}

/* A folder that cannot be written costs the next run some time and nothing else. */
static void write_kept(const struct cuda_blas *b) {
    struct err ignored = {{0}};
    uint32_t count = 0;
    if (!b->has_new || !b->keeps_new) return;
    struct cuda_kept *list = mem_alloc_array(CHOICES, sizeof(*list));
    for (int i = 0; list && i < CHOICES; i++) {
        const struct choice *c = &b->choices[i];
        if (!c->is_timed) continue;
        memcpy(list[count].key, &c->key, sizeof(c->key));
        memcpy(list[count++].algo, &c->algo, sizeof(c->algo));
    }
    if (list) (void)cuda_kept_write(b->keep_dir, b->made_for, list, count, &ignored);
    mem_free(list);
}

/* ---- opening and closing ---- */

enum status cuda_blas_open(struct cuda_device *dev, const struct cuda_library_options *options,
                           struct cuda_blas **out, struct err *err) {
    const char *dirs = options->cublaslt_dirs;
    struct cuda_blas *b = mem_zalloc(sizeof(*b));
    if (!b) return err_set(err, ST_NOMEM, "cuda: out of memory for cuBLASLt");
    enum status st = ST_OK;
    b->dev = dev;
    b->is_timed = dev->switches.timed;
    b->any_sums = dev->switches.any_sums;
    b->library = find_library(dirs);
    if (!b->library)
        st = err_set(err, ST_MISSING,
                     "cuda: neither %s nor %s was found in \"%s\" or where the system looks; set "
                     "JITNEY_CUBLASLT_DIR to the folder that holds it",
                     names[0], names[1], dirs ? dirs : "");
    else if (!find_functions(b) || b->f.cublasLtCreate(&b->handle) != CUBLAS_STATUS_SUCCESS ||
             !make_product(b, &b->product))
        st = err_set(err, ST_BAD, "cuda: cuBLASLt was found but cannot be used");
    else if (!(b->workspace = cuda_take(dev, WORKSPACE_BYTES)))
        st = cuda_say_full(dev, "cuBLASLt's workspace", WORKSPACE_BYTES, err);
    if (st != ST_OK) {
        cuda_blas_close(b);
        return st;
    }
    if (b->is_timed && options->keep_dir) read_kept(b, dev, options);
    *out = b;
    return ST_OK;
}

void cuda_blas_close(struct cuda_blas *b) {
    if (!b) return;
    write_kept(b);
    cudaFree(b->workspace);
    if (b->product) b->f.cublasLtMatmulDescDestroy(b->product);
    if (b->product_fp8) b->f.cublasLtMatmulDescDestroy(b->product_fp8);
    if (b->handle) b->f.cublasLtDestroy(b->handle);
    if (b->library) dlclose(b->library);
    mem_free(b);
}

/* ---- algorithms ---- */

/* A product as cuBLASLt sees it. */
struct layouts {
    cublasLtMatmulDesc_t product; /* borrowed */
    cublasLtMatrixLayout_t w, x, dst;
};

static void layouts_deinit(struct cuda_blas *b, struct layouts *l) {
    if (l->w) b->f.cublasLtMatrixLayoutDestroy(l->w);
    if (l->x) b->f.cublasLtMatrixLayoutDestroy(l->x);
    if (l->dst) b->f.cublasLtMatrixLayoutDestroy(l->dst);
}

static bool layouts_init(struct cuda_blas *b, const struct cuda_gemm *g, struct layouts *l) {
    cudaDataType_t type = g->form == CUDA_BF16  ? CUDA_R_16BF
                          : g->form == CUDA_F16 ? CUDA_R_16F
                                                : CUDA_R_8F_E4M3;
    l->product = product_of(b, g);
    if (!l->product) return false;
    cublasStatus_t made[] = {
        b->f.cublasLtMatrixLayoutCreate(&l->w, type, g->cols, g->weights, g->cols),
        b->f.cublasLtMatrixLayoutCreate(&l->x, type, g->cols, g->rows, g->cols),
        b->f.cublasLtMatrixLayoutCreate(&l->dst, CUDA_R_32F, g->weights, g->rows,
                                        (int64_t)g->dst_floats),
    };
    for (int i = 0; i < 3; i++)
        if (made[i] != CUBLAS_STATUS_SUCCESS) return false;
    return true;
}

static uint32_t align_of(const struct cuda_gemm *g) {
    uint32_t align = 256;
    uintptr_t bits = (uintptr_t)g->dst | (g->dst_floats * sizeof(float));
    while (bits % align != 0) align /= 2;
    return align;
}

static cublasLtMatmulPreference_t make_preference(struct cuda_blas *b, uint32_t dst_align) {
    cublasLtMatmulPreference_t p = NULL;
    size_t workspace = WORKSPACE_BYTES;
    uint32_t operand_align = 128; /* rows of a multiple of 64 numbers of 16 bits, or 128 of 8 */
    if (b->f.cublasLtMatmulPreferenceCreate(&p) != CUBLAS_STATUS_SUCCESS) return NULL;
    b->f.cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &workspace, sizeof(workspace));
    b->f.cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                              &operand_align, sizeof(operand_align));
    b->f.cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                              &operand_align, sizeof(operand_align));
    b->f.cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                              &dst_align, sizeof(dst_align));
    b->f.cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                                              &dst_align, sizeof(dst_align));
    return p;
}

/* With one part of k and nothing to add up behind it. */
static bool force_one_split(struct cuda_blas *b, const struct layouts *l,
                            cublasLtMatmulAlgo_t *algo) {
    int32_t splits = 1;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
    cublasLtMatmulHeuristicResult_t checked;
    if (b->f.cublasLtMatmulAlgoConfigSetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                                  sizeof(splits)) != CUBLAS_STATUS_SUCCESS)
        return false;
    if (b->f.cublasLtMatmulAlgoConfigSetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                  &reduction,
                                                  sizeof(reduction)) != CUBLAS_STATUS_SUCCESS)
        return false;
    return b->f.cublasLtMatmulAlgoCheck(b->handle, l->product, l->w, l->x, l->dst, l->dst, algo,
                                        &checked) == CUBLAS_STATUS_SUCCESS &&
           checked.workspaceSize <= WORKSPACE_BYTES;
}

/* The algorithms that can be used, in cuBLASLt's order. */
struct algo_list {
    cublasLtMatmulAlgo_t algos[CANDIDATES];
    int count;
};

static void list_algos(struct cuda_blas *b, const struct layouts *l, uint32_t dst_align,
                       struct algo_list *out) {
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count = 0;
    cublasLtMatmulPreference_t preference = make_preference(b, dst_align);
    out->count = 0;
    if (!preference) return;
    if (b->f.cublasLtMatmulAlgoGetHeuristic(b->handle, l->product, l->w, l->x, l->dst, l->dst,
                                            preference, CANDIDATES, found,
                                            &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    for (int i = 0; i < count; i++) {
        cublasLtMatmulAlgo_t *next = &out->algos[out->count];
        *next = found[i].algo;
        if (found[i].state == CUBLAS_STATUS_SUCCESS && (b->any_sums || force_one_split(b, l, next)))
            out->count++;
    }
    b->f.cublasLtMatmulPreferenceDestroy(preference);
}

static bool run_algo(struct cuda_blas *b, const struct cuda_gemm *g, const struct layouts *l,
                     const cublasLtMatmulAlgo_t *algo, struct CUstream_st *stream) {
    const float one = 1.0f, beta = g->add ? 1.0f : 0.0f;
    set_scales(b, g);
    return b->f.cublasLtMatmul(b->handle, l->product, &one, g->w, l->w, g->x, l->x, &beta, g->dst,
                               l->dst, g->dst, l->dst, algo, b->workspace, WORKSPACE_BYTES,
                               stream) == CUBLAS_STATUS_SUCCESS;
}

/* ---- times ---- */

enum { TRIALS = 3, CHECKED_ROWS = 4, FLUSH_BYTES = 128 << 20, TRIAL_MS_MAX = 60 };

/* What is needed to try algorithms: rows and results apart from the step's, and events. */
struct trial {
    struct cuda_gemm g; /* x: `x`, dst: `results` */
    void *x;            /* the step's rows, again and again */
    float *x_scale;     /* of fp8, likewise */
    float *results;
    float *own;     /* [CHECKED_ROWS][weights]: what our own kernel gives */
    float *host[2]; /* the same rows of both, on the host */
    void *flush;    /* written before each trial, so that weights come from memory */
    cudaEvent_t begin, end;
    uint32_t rows; /* that are checked */
};

static void trial_deinit(struct trial *t) {
    cudaFree(t->x);
    cudaFree(t->x_scale);
    cudaFree(t->results);
    cudaFree(t->own);
    cudaFree(t->flush);
    mem_free(t->host[0]);
    mem_free(t->host[1]);
    if (t->begin) cudaEventDestroy(t->begin);
    if (t->end) cudaEventDestroy(t->end);
    cudaGetLastError(); /* of memory that there was not */
}

/* As many rows as the range has, from those of the step. */
static bool copy_rows(const struct cuda_gemm *g, uint32_t rows, struct trial *t,
                      struct CUstream_st *stream) {
    bool is_fp8 = g->form == CUDA_FP8;
    size_t row_bytes = (size_t)g->cols * (is_fp8 ? 1 : sizeof(uint16_t));
    bool is_fine = cudaMalloc(&t->x, rows * row_bytes) == cudaSuccess;
    if (is_fp8)
        is_fine = is_fine && cudaMalloc((void **)&t->x_scale, rows * sizeof(float)) == cudaSuccess;
    for (uint32_t r = 0; r < rows && is_fine; r += g->rows) {
        uint32_t count = rows - r < g->rows ? rows - r : g->rows;
        is_fine = cudaMemcpyAsync((uint8_t *)t->x + r * row_bytes, g->x, count * row_bytes,
                                  cudaMemcpyDeviceToDevice, stream) == cudaSuccess;
        if (is_fp8)
            is_fine = is_fine && cudaMemcpyAsync(t->x_scale + r, g->x_scale, count * sizeof(float),
                                                 cudaMemcpyDeviceToDevice, stream) == cudaSuccess;
    }
    t->g.x = t->x;
    t->g.x_scale = t->x_scale;
    t->g.rows = rows;
    return is_fine;
}

static bool trial_init(const struct cuda_gemm *g, uint32_t rows, struct trial *t,
                       struct CUstream_st *stream) {
    size_t own_floats = (size_t)CHECKED_ROWS * g->weights;
    *t = (struct trial){.g = *g, .rows = g->rows < CHECKED_ROWS ? g->rows : CHECKED_ROWS};
    t->host[0] = mem_alloc_array(own_floats, sizeof(float));
    t->host[1] = mem_alloc_array(own_floats, sizeof(float));
    if (!t->host[0] || !t->host[1]) return false;
    if (!copy_rows(g, rows, t, stream)) return false;
    if (cudaMalloc((void **)&t->results, rows * g->dst_floats * sizeof(float)) != cudaSuccess ||
        cudaMalloc((void **)&t->own, own_floats * sizeof(float)) != cudaSuccess ||
        cudaMalloc(&t->flush, FLUSH_BYTES) != cudaSuccess)
        return false;
    t->g.dst = t->results;
    t->g.add = false;
    return cudaEventCreate(&t->begin) == cudaSuccess && cudaEventCreate(&t->end) == cudaSuccess;
}

/* Which bits algorithms must have: those of our own kernel, or of the first that gives any. */
static bool has_own_rule(const struct cuda_blas *b, const struct cuda_gemm *g) {
    return g->form != CUDA_FP8 || cuda_fp8_is_own(&b->dev->fp8, g->free_scales);
}

/* The first rows by our own kernel, to the host. */
static bool make_own(const struct cuda_blas *b, struct trial *t, struct CUstream_st *stream) {
    const struct cuda_queue queue = {.stream = stream};
    struct cuda_product p = {.w = {.form = t->g.form,
                                   .rows = t->g.weights,
                                   .cols = t->g.cols,
                                   .row_elems = t->g.cols,
                                   .data = t->g.w,
                                   .scale = t->g.w_scale},
                             .dst = {.base = (uint8_t *)t->own,
                                     .row_bytes = t->g.weights * sizeof(float),
                                     .cols = t->g.weights,
                                     .all_cols = t->g.weights,
                                     .row_count = t->rows},
                             .x = t->g.x,
                             .x_scale = t->g.x_scale,
                             .row_count = t->rows};
    if (!has_own_rule(b, &t->g)) return true;
    if (t->g.form == CUDA_FP8)
        cuda_product_fp8(&p, b->dev->multiprocessors, &queue);
    else
        cuda_product_mma(&p, &queue);
    size_t bytes = (size_t)t->rows * t->g.weights * sizeof(float);
    cudaMemcpyAsync(t->host[0], t->own, bytes, cudaMemcpyDeviceToHost, stream);
    return cudaStreamSynchronize(stream) == cudaSuccess;
}

/* The first rows of the results to one of the two places on the host. */
static bool read_results(struct trial *t, float *to, struct CUstream_st *stream) {
    size_t row_bytes = t->g.weights * sizeof(float);
    cudaMemcpy2DAsync(to, row_bytes, t->results, t->g.dst_floats * sizeof(float), row_bytes,
                      t->rows, cudaMemcpyDeviceToHost, stream);
    return cudaStreamSynchronize(stream) == cudaSuccess;
}

static bool has_own_bits(struct trial *t, struct CUstream_st *stream) {
    size_t row_bytes = t->g.weights * sizeof(float);
    if (!read_results(t, t->host[1], stream)) return false;
    for (uint32_t r = 0; r < t->rows; r++) {
        const float *own = t->host[0] + (size_t)r * t->g.weights;
        const float *other = t->host[1] + (size_t)r * t->g.weights;
        bool is_nan =
            own[0] != own[0]; /* a row that is not live, with what was left in its place */
        if (!is_nan && memcmp(own, other, row_bytes) != 0) return false;
    }
    return true;
}

/* The least time of some trials in ms; negative: it fails or gives other bits. */
static float time_algo(struct cuda_blas *b, struct trial *t, const struct layouts *l,
                       const cublasLtMatmulAlgo_t *algo, struct CUstream_st *stream) {
    float least = -1.0f, ms = 0.0f;
    if (!run_algo(b, &t->g, l, algo, stream)) return -1.0f;
    if (!b->any_sums && !has_own_bits(t, stream)) return -1.0f;
    for (int i = 0; i < TRIALS; i++) {
        cudaMemsetAsync(t->flush, i, FLUSH_BYTES, stream);
        cudaEventRecord(t->begin, stream);
        run_algo(b, &t->g, l, algo, stream);
        cudaEventRecord(t->end, stream);
        if (cudaEventSynchronize(t->end) != cudaSuccess) return -1.0f;
        cudaEventElapsedTime(&ms, t->begin, t->end);
        if (i == 0 || ms < least) least = ms;
    }
    return least;
}

/* Puts the fastest in place of the first, for `rows` rows; false: there was no room to try them, or
 * no time for it because a graph is being recorded. cuBLASLt lists the likeliest first, so trials
 * of large products, which a request waits for, end early. */
static bool time_algos(struct cuda_blas *b, const struct cuda_gemm *g, uint32_t rows,
                       const struct algo_list *list, struct choice *c, struct CUstream_st *stream) {
    struct trial t;
    struct layouts l = {0};
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    float best = -1.0f, spent = 0.0f;
    if (cudaStreamIsCapturing(stream, &capture) != cudaSuccess ||
        capture != cudaStreamCaptureStatusNone)
        return false;
    bool is_ready = trial_init(g, rows, &t, stream) && make_own(b, &t, stream);
    is_ready = is_ready && layouts_init(b, &t.g, &l);
    if (is_ready && !has_own_rule(b, g))
        is_ready =
            run_algo(b, &t.g, &l, &list->algos[0], stream) && read_results(&t, t.host[0], stream);
    for (int i = 0; is_ready && i < list->count && spent < TRIAL_MS_MAX; i++) {
        float ms = time_algo(b, &t, &l, &list->algos[i], stream);
        if (ms > 0) spent += (TRIALS + 1) * ms;
        if (ms < 0 || (best >= 0 && ms >= best)) continue;
        best = ms;
        c->algo = list->algos[i];
    }
    layouts_deinit(b, &l);
    trial_deinit(&t);
    if (is_ready) c->has_algo = best >= 0;
    return is_ready;
}

/* ---- choices ---- */

/* Algorithms are timed once for a range of rows, with the last of them: an algorithm that suits 200
 * rows may take half as long again for 256. */
uint32_t cuda_blas_range(uint32_t rows) {
    uint32_t end = 16;
    while (end < rows) end = end % 3 == 0 ? end / 3 * 4 : end / 2 * 3; /* 16, 24, 32, 48, 64... */
    return end;
}

/* For `rows` rows of the product: as many as it has, or as its range has. */
static void choose_algo(struct cuda_blas *b, const struct cuda_gemm *g, uint32_t rows,
                        bool is_timed, struct choice *c, struct CUstream_st *stream) {
    struct algo_list list = {.count = 0};
    struct cuda_gemm whole = *g;
    struct layouts l = {0};
    whole.rows = rows;
    if (layouts_init(b, &whole, &l)) list_algos(b, &l, c->key.dst_align, &list);
    layouts_deinit(b, &l);
    c->is_known = true;
    c->has_algo = list.count > 0;
    if (list.count == 0) return;
    c->algo = list.algos[0];
    bool is_tried = is_timed && list.count > 1 && time_algos(b, g, rows, &list, c, stream);
    c->is_timed = is_tried && c->has_algo;
    c->is_refused = is_tried && !c->has_algo;
    b->has_new = b->has_new || c->is_timed;
}

/* With the algorithm of a number of rows, or of the range it lies in. */
static bool run_chosen(struct cuda_blas *b, const struct cuda_gemm *g, const struct layouts *l,
                       bool is_timed, bool *is_refused, struct CUstream_st *stream) {
    uint32_t rows = is_timed ? cuda_blas_range(g->rows) : g->rows;
    struct choice_key key = {g->form | (g->free_scales ? FREE_SCALES : 0),
                             rows | (is_timed ? OF_A_RANGE : 0),
                             g->weights,
                             g->cols,
                             (uint32_t)g->dst_floats,
                             align_of(g)};
    struct choice *c = find_choice(b, &key);
    if (!c->is_known) choose_algo(b, g, rows, is_timed, c, stream);
    *is_refused = c->is_refused;
    return c->has_algo && run_algo(b, g, l, &c->algo, stream);
}

bool cuda_blas_run(struct cuda_blas *b, const struct cuda_gemm *g, struct CUstream_st *stream) {
    struct layouts l = {0};
    CHECK(!(g->free_scales && g->add));
    bool is_ready = layouts_init(b, g, &l), is_refused = false;
    bool is_done = is_ready && b->is_timed && run_chosen(b, g, &l, true, &is_refused, stream);
    if (is_ready && !is_done && !is_refused)
        is_done = run_chosen(b, g, &l, false, &is_refused, stream);
    layouts_deinit(b, &l);
    return is_done;
}
