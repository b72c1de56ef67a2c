/* tests/gpu/emulate/cuda_runtime.h - what emulated kernels call of the runtime. */
#ifndef TESTS_GPU_EMULATE_RUNTIME_H
#define TESTS_GPU_EMULATE_RUNTIME_H

#include "emulate.h"

enum { cudaFuncAttributeMaxDynamicSharedMemorySize };
template <typename... P>
static inline void cudaFuncSetAttribute(void (*kernel)(P...), int, int bytes) {
    emu_allow_shared((emu_kernel *)kernel, (size_t)bytes);
}

#endif
