/* tests/gpu/emulate/cuda_runtime.h - what emulated kernels call of the runtime. */
#ifndef TESTS_GPU_EMULATE_RUNTIME_H
#define TESTS_GPU_EMULATE_RUNTIME_H

#include "emulate.h"

enum { cudaFuncAttributeMaxDynamicSharedMemorySize };
template <typename F> static inline void cudaFuncSetAttribute(F, int, int) {}

#endif
