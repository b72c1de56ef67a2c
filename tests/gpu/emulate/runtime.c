/* tests/gpu/emulate/runtime.c - the CUDA runtime's functions that the device calls, on the host. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "emulate_map.h"

cudaError_t cudaSetDevice(int card) { return card == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

/* The card's memory, of which so much is taken. */
enum { CARD_BYTES = 1 << 30 };
static atomic_size_t taken;

static cudaError_t take(void **out, size_t bytes) {
    *out = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaMalloc(void **out, size_t bytes) {
    cudaError_t rc = take(out, bytes);
    if (rc == cudaSuccess) atomic_fetch_add(&taken, malloc_usable_size(*out));
    return rc;
}
/* What is used after it was freed is NaN. Volatile: a compiler leaves out what is written last. */
static cudaError_t give(void *ptr) {
    static void *(*const volatile fill)(void *, int, size_t) = memset;
    if (ptr) fill(ptr, 0xff, malloc_usable_size(ptr));
    free(ptr);
    return cudaSuccess;
}
cudaError_t cudaFree(void *ptr) {
    if (ptr) atomic_fetch_sub(&taken, malloc_usable_size(ptr));
    return give(ptr);
}
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    (void)flags;
    return take(out, bytes);
}
cudaError_t cudaMallocHost(void **out, size_t bytes) { return take(out, bytes); }
cudaError_t cudaFreeHost(void *ptr) { return give(ptr); }
cudaError_t cudaMemset(void *ptr, int value, size_t bytes) {
    memset(ptr, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    (void)kind;
    memmove(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    (void)stream;
    return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, enum cudaMemcpyKind kind) {
    (void)kind;
    for (size_t i = 0; i < height; i++)
        memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    (void)stream;
    return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t stream) {
    (void)stream;
    return cudaMemset(ptr, value, bytes);
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all_bytes) {
    size_t now = atomic_load(&taken);
    *all_bytes = CARD_BYTES;
    *free_bytes = now < CARD_BYTES ? CARD_BYTES - now : 0;
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t e) { return e == cudaSuccess ? "no error" : "error"; }
const char *cudaGetErrorName(cudaError_t e) { return cudaGetErrorString(e); }
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return s ? cudaSuccess : cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    (void)flags;
    *out = NULL;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) { return s ? cudaSuccess : cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *out) {
    *out = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *out) { return cudaDriverGetVersion(out); }
cudaError_t cudaGetDeviceCount(int *out) {
    *out = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int card) {
    memset(out, 0, sizeof(*out));
    memcpy(out->name, "emulated", sizeof("emulated"));
    out->major = 9;
    out->sharedMemPerBlockOptin = 227 << 10;
    const char *count = getenv("JITNEY_EMULATED_PROCESSORS");
    out->multiProcessorCount = count ? (int)strtol(count, NULL, 10) : 2;
    return card == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaEventCreate(cudaEvent_t *out) {
    *out = NULL;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) { return e ? cudaSuccess : cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    (void)s;
    return e ? cudaSuccess : cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) { return e ? cudaSuccess : cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
    *ms = 0.0f;
    return a == b ? cudaSuccess : cudaSuccess;
}

/* A graph cannot be recorded here: steps go on kernel by kernel. */
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
    (void)mode;
    return s ? cudaErrorNotSupported : cudaErrorNotSupported;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *out) {
    *out = cudaStreamCaptureStatusNone;
    return s ? cudaSuccess : cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out) {
    *out = NULL;
    return s ? cudaErrorNotSupported : cudaErrorNotSupported;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags) {
    (void)flags;
    *out = NULL;
    return g ? cudaErrorNotSupported : cudaErrorNotSupported;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t s) {
    (void)s;
    return g ? cudaErrorNotSupported : cudaErrorNotSupported;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) { return g ? cudaSuccess : cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g) { return g ? cudaSuccess : cudaSuccess; }

/* ---- descriptions of matrices ---- */

/* Those of four dimensions of 16-bit numbers, in boxes of rows of 128 bytes. Addresses, strides and
 * boxes that the driver refuses are refused. */
static CUresult encode(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *base,
                       const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                       const cuuint32_t *each, CUtensorMapInterleave interleave,
                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                       CUtensorMapFloatOOBfill fill) {
    struct emulate_map m = {.base = base, .elem_bytes = 2};
    (void)promotion;
    bool is_known =
        (type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16) &&
        rank == 4 && interleave == CU_TENSOR_MAP_INTERLEAVE_NONE &&
        swizzle == CU_TENSOR_MAP_SWIZZLE_128B && fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
    if (!is_known || (uintptr_t)out % 64 != 0 || (uintptr_t)base % 16 != 0 || box[0] * 2 != 128)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < 4; i++) {
        if (sizes[i] == 0 || box[i] == 0 || box[i] > 256 || each[i] != 1)
            return CUDA_ERROR_INVALID_VALUE;
        if (i < 3 && (strides[i] == 0 || strides[i] % 16 != 0)) return CUDA_ERROR_INVALID_VALUE;
        m.size[i] = sizes[i];
        m.box[i] = box[i];
        if (i < 3) m.stride[i] = strides[i];
    }
    memset(out, 0, sizeof(*out));
    memcpy(out, &m, sizeof(m));
    return CUDA_SUCCESS;
}
_Static_assert(sizeof(struct emulate_map) <= sizeof(CUtensorMap), "it is put there");

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found) {
    CUresult (*at)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                   const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                   CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                   CUtensorMapFloatOOBfill) = encode;
    (void)version;
    bool is_this = strcmp(name, "cuTensorMapEncodeTiled") == 0 && flags == cudaEnableDefault;
    *found = is_this ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    if (is_this) memcpy(out, &at, sizeof(at));
    return cudaSuccess;
}
