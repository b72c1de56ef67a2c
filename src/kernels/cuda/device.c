/* kernels/cuda/device.c - an NVIDIA GPU as a device (graph/device.h); the library's entry point.
 *
 * Entry point: jitney_cuda_open.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cuda/blaslt.h"
#include "kernels/cuda/cuda_int.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/launch_resident.h"
#include "kernels/cuda/library.h"
#include "kernels/cuda/upload.h"

enum { MAJOR_MIN = 8, HOPPER_MAJOR = 9 }; /* compute capability; 8: Ampere */
enum { SHARED_BYTES_OF_FEW = 200 << 10 }; /* products of few rows use up to so much of a block's */

/* ---- the card ---- */

void cuda_enter(const struct cuda_device *dev) { cudaSetDevice(dev->card); }

void *cuda_take(struct cuda_device *dev, size_t bytes) {
    void *ptr = NULL;
    /* The device's stream waits for no other, so what is done outside of it is waited for. */
    if (cudaMalloc(&ptr, bytes) != cudaSuccess || cudaMemset(ptr, 0, bytes) != cudaSuccess ||
        cudaDeviceSynchronize() != cudaSuccess) {
        cudaGetLastError(); /* forget the error: the caller reports it */
        cudaFree(ptr);
        return NULL;
    }
    dev->other_bytes += bytes;
    return ptr;
}

void cuda_give(struct cuda_device *dev, void *ptr, size_t bytes) {
    if (!ptr) return;
    cudaFree(ptr);
    dev->other_bytes -= bytes;
}

enum status cuda_say_full(const struct cuda_device *dev, const char *what, size_t bytes,
                          struct err *err) {
    size_t free_bytes = 0, all_bytes = 0;
    cudaMemGetInfo(&free_bytes, &all_bytes);
    return err_set(
        err, ST_NOMEM,
        "%s: no room for %zu MiB of %s: of the card's %zu MiB %zu are free; weights have "
        "%zu, KV and scratch %zu",
        dev->name, (bytes >> 20) + 1, what, all_bytes >> 20, free_bytes >> 20,
        dev->weight_bytes >> 20, dev->other_bytes >> 20);
}

enum status cuda_check(const char *what, struct err *err) {
    cudaError_t rc = cudaGetLastError();
    if (rc == cudaSuccess) return ST_OK;
    return err_set(err, ST_DEVICE, "cuda: %s failed: %s (%s)", what, cudaGetErrorString(rc),
                   cudaGetErrorName(rc));
}

/* ---- the plug ---- */

static struct device_memory device_memory(void *self) {
    size_t free_bytes = 0, total_bytes = 0;
    cuda_enter(self);
    cudaMemGetInfo(&free_bytes, &total_bytes);
    return (struct device_memory){free_bytes, total_bytes};
}

static device_addr device_alloc(void *self, size_t bytes) {
    cuda_enter(self);
    return (device_addr)(uintptr_t)cuda_take(self, bytes);
}

static void device_free(void *self, device_addr addr, size_t bytes) {
    struct cuda_device *dev = self;
    cuda_enter(dev);
    cudaStreamSynchronize(dev->stream);
    cuda_give(dev, (void *)(uintptr_t)addr, bytes);
}

/* Pinned: it must stay in place, so a file's pages are of no use. */
static void *device_host_alloc(void *self, size_t bytes, int fd) {
    void *ptr = NULL;
    (void)fd;
    cuda_enter(self);
    if (cudaHostAlloc(&ptr, bytes, cudaHostAllocPortable) != cudaSuccess) {
        cudaGetLastError();
        return NULL;
    }
    memset(ptr, 0, bytes);
    return ptr;
}

static void device_host_free(void *self, void *ptr, size_t bytes) {
    struct cuda_device *dev = self;
    (void)bytes;
    cuda_enter(dev);
    cudaStreamSynchronize(dev->stream);
    cudaFreeHost(ptr);
}

static enum status device_prepare(void *self, struct weight *w, struct err *err) {
    if (w->prepared || !w->data) return ST_OK;
    cuda_enter(self);
    return cuda_weight_create(self, w, err);
}

static size_t device_kv_block_bytes(void *self, const struct kv_shape *shape) {
    (void)self;
    uint32_t tokens = shape->block_tokens;
    if (tokens == 0 || tokens % CUDA_TILE_TOKENS != 0) return 0;
    if (shape->head_dim % CUDA_K_RUN != 0 || shape->type == KV_I4) return 0;
    return cuda_kv_tile_bytes(shape->type, shape->layers, shape->heads, shape->head_dim) *
           (tokens / CUDA_TILE_TOKENS);
}

static enum status device_create_program(void *self, const struct program_options *options,
                                         struct device_program **out, struct err *err) {
    struct cuda_device *dev = self;
    cuda_enter(dev);
    cuda_upload_destroy(dev->upload); /* weights are there */
    dev->upload = NULL;
    cuda_weights_end(dev);
    return cuda_program_create(dev, options, out, err);
}

static void device_destroy_program(void *self, struct device_program *p) {
    cuda_enter(self);
    cuda_program_destroy(p);
}

static enum status device_submit(void *self, struct device_program *p, const struct step *step,
                                 struct err *err) {
    cuda_enter(self);
    return cuda_program_submit(p, step, err);
}

static enum status device_collect(void *self, struct device_program *p, struct device_result *out,
                                  struct err *err) {
    cuda_enter(self);
    return cuda_program_collect(p, out, err);
}

static void device_close(void *self) {
    struct cuda_device *dev = self;
    cuda_enter(dev);
    cudaStreamSynchronize(dev->stream);
    cuda_watch_destroy(dev->watch);
    cuda_upload_destroy(dev->upload);
    cuda_weights_end(dev);
    cuda_weights_destroy(dev);
    cuda_blas_close(dev->blas);
    if (dev->stream) cudaStreamDestroy(dev->stream);
    mem_free(dev);
}

/* ---- opening ---- */

static bool is_same_build(const struct cuda_library_options *o) {
    const struct cuda_library_sizes own = {
        .device = sizeof(struct device),
        .step = sizeof(struct step),
        .op = sizeof(struct op),
        .weight = sizeof(struct weight),
        .sampling = sizeof(struct sampling),
        .row_output = sizeof(struct row_output),
    };
    return strcmp(o->version, JITNEY_VERSION) == 0 && memcmp(&own, &o->sizes, sizeof(own)) == 0;
}

static enum status check_driver(int card, struct err *err) {
    int driver = 0, runtime = 0, count = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        return err_set(err, ST_MISSING,
                       "cuda: no NVIDIA driver answers; install one (nvidia-smi then lists the "
                       "cards), or use --device cpu");
    cudaError_t rc = cudaGetDeviceCount(&count);
    cudaGetLastError();
    if (rc == cudaErrorInsufficientDriver || driver / 1000 < runtime / 1000)
        return err_set(err, ST_BAD,
                       "cuda: the driver is for CUDA %d.%d, this program needs %d.0 or later; "
                       "update the driver, or use --device cpu",
                       driver / 1000, driver % 1000 / 10, runtime / 1000);
    if (rc != cudaSuccess || count == 0)
        return err_set(err, ST_MISSING, "cuda: the driver sees no GPU (%s); use --device cpu",
                       cudaGetErrorString(rc));
    if (card < count) return ST_OK;
    return err_set(err, ST_MISSING, "cuda: there is no card %d; the driver sees %d, counted from 0",
                   card, count);
}

/* What needs Hopper's own machine code: later cards run the code that all have. */
static void turn_off_hopper(struct cuda_switches *s) {
    s->overlap = s->few_rows = s->two_rows = s->few_codes = s->dots = false;
    s->bulk = s->groups = s->fresh = s->resident = false;
}

static enum status check_card(struct cuda_device *dev, struct err *err) {
    struct cudaDeviceProp prop;
    if (cudaGetDeviceProperties(&prop, dev->card) != cudaSuccess)
        return cuda_check("asking for the card's properties", err);
    snprintf(dev->card_name, sizeof(dev->card_name), "%s", prop.name);
    dev->multiprocessors = (uint32_t)prop.multiProcessorCount;
    if (prop.major != HOPPER_MAJOR || prop.sharedMemPerBlockOptin < SHARED_BYTES_OF_FEW)
        turn_off_hopper(&dev->switches);
    dev->fp8.is_there = prop.major == HOPPER_MAJOR;
    if (dev->fp8.is_wanted && !dev->fp8.is_there)
        return err_set(
            err, ST_BAD,
            "cuda: --weights fp8 needs an H100 or H200 (compute capability 9.0); card %d, "
            "%s, has %d.%d; use --weights auto",
            dev->card, prop.name, prop.major, prop.minor);
    if (prop.major >= MAJOR_MIN) return ST_OK;
    return err_set(err, ST_BAD,
                   "cuda: card %d, %s, has compute capability %d.%d; %d.0 (Ampere) or later is "
                   "needed; use --device cpu",
                   dev->card, prop.name, prop.major, prop.minor, MAJOR_MIN);
}

static enum status open_card(struct cuda_device *dev, const struct cuda_library_options *o,
                             struct err *err) {
    TRY(check_driver(dev->card, err));
    TRY(check_card(dev, err));
    if (cudaSetDevice(dev->card) != cudaSuccess ||
        cudaStreamCreateWithFlags(&dev->stream, cudaStreamNonBlocking) != cudaSuccess)
        return cuda_check("opening the card", err);
    cuda_rows_prepare();
    cuda_product_mma_prepare();
    if (dev->switches.few_rows) cuda_product_few_prepare();
    if (dev->switches.two_rows) cuda_product_two_prepare();
    if (dev->switches.few_codes) cuda_product_codes_few_prepare();
    if (dev->switches.dots) cuda_product_codes_dots_prepare();
    cuda_product_codes_mma_prepare();
    cuda_attention_mma_prepare();
    if (dev->switches.resident) dev->switches.resident = cuda_resident_prepare();
    TRY(cuda_check("preparing kernels", err));
    if (!o->switches.without_cublaslt) TRY(cuda_blas_open(dev, o, &dev->blas, err));
    if (dev->fp8.is_wanted) cuda_fp8_open(dev);
    return cuda_check("trying fp8 products", err);
}

__attribute__((visibility("default"))) cuda_library_open_fn jitney_cuda_open;

enum status jitney_cuda_open(const struct cuda_library_options *options, struct device *out,
                             struct err *err) {
    if (!is_same_build(options))
        return err_set(err, ST_BAD,
                       "libjitney-cuda.so is of another build than this program; install both of "
                       "one build");
    struct cuda_device *dev = mem_zalloc(sizeof(*dev));
    if (!dev) return err_set(err, ST_NOMEM, "cuda: out of memory for the device");
    dev->card = options->card;
    dev->switches = options->switches;
    dev->fp8.is_wanted = options->fp8_weights;
    snprintf(dev->name, sizeof(dev->name), "cuda:%d", dev->card);
    enum status st = open_card(dev, options, err);
    if (st != ST_OK) {
        cuda_blas_close(dev->blas);
        if (dev->stream) cudaStreamDestroy(dev->stream);
        mem_free(dev);
        return st;
    }
    *out = (struct device){
        .name = dev->name,
        .depth = dev->switches.without_depth ? 0 : 1,
        .unbound_text = "",
        .memory = device_memory,
        .alloc = device_alloc,
        .free = device_free,
        .host_alloc = device_host_alloc,
        .host_free = device_host_free,
        .prepare = device_prepare,
        .kv_block_tokens = CUDA_TILE_TOKENS,
        .kv_block_bytes = device_kv_block_bytes,
        .program_create = device_create_program,
        .program_destroy = device_destroy_program,
        .submit = device_submit,
        .collect = device_collect,
        .profiler = &cuda_profiler,
        .close = device_close,
        .self = dev,
    };
    return ST_OK;
}
