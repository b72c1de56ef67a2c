# libjitney-cuda.so: the device `cuda`, which the program opens when it is asked for.
#
#   JITNEY_CUDA         auto: where nvcc is found; on: nvcc must be there; off
#   JITNEY_CUDA_TARGETS quick: machine code for H100 and H200 (sm_90a), and PTX that the driver
#                       compiles on other cards at the first start; all: machine code for sm_80 and
#                       sm_89, too; 90a: H100 and H200 alone
#
# nvcc is called by rules of our own: the C files around the kernels stay C, with the warnings of
# the rest of the tree. cudart is linked in; cuBLASLt is opened at run time.
set(JITNEY_CUDA auto CACHE STRING "build libjitney-cuda.so: auto, on or off")
set(JITNEY_CUDA_TARGETS quick CACHE STRING "GPUs that it is compiled for: quick, all or 90a")
if(JITNEY_CUDA STREQUAL "off" OR JITNEY_SANITIZE OR JITNEY_FUZZ OR CMAKE_CROSSCOMPILING)
  return()
endif()

find_program(NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
if(NOT NVCC)
  if(JITNEY_CUDA STREQUAL "on")
    message(FATAL_ERROR "JITNEY_CUDA is on, but there is no nvcc on PATH or in CUDA_HOME/bin")
  endif()
  return()
endif()
get_filename_component(nvcc_real ${NVCC} REALPATH)
get_filename_component(CUDA_ROOT ${nvcc_real}/../.. ABSOLUTE)
find_path(CUDA_INCLUDE cuda_runtime_api.h PATHS ${CUDA_ROOT}/include
  ${CUDA_ROOT}/targets/x86_64-linux/include NO_DEFAULT_PATH REQUIRED)
find_library(CUDART cudart_static PATHS ${CUDA_ROOT}/lib64 ${CUDA_ROOT}/lib
  ${CUDA_ROOT}/targets/x86_64-linux/lib NO_DEFAULT_PATH REQUIRED)

set(targets -gencode arch=compute_90a,code=sm_90a)
if(JITNEY_CUDA_TARGETS STREQUAL "all")
  list(APPEND targets -gencode arch=compute_80,code=sm_80 -gencode arch=compute_89,code=sm_89)
endif()
if(NOT JITNEY_CUDA_TARGETS STREQUAL "90a")
  list(APPEND targets -gencode arch=compute_80,code=compute_80)
endif()
# The arithmetic of docs/identity.md: no fused multiply-add but by name, denormals are zero.
set(NVCC_FLAGS -std=c++17 -O3 -fmad=false -ftz=true -prec-div=true -prec-sqrt=true ${targets}
  -Xcompiler=-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics,-Wall,-Wextra
  -Werror all-warnings
  -I${CMAKE_SOURCE_DIR}/src)

file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
set(objects "")
foreach(kernel ${kernels})
  get_filename_component(name ${kernel} NAME_WE)
  set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda
    COMMAND ${NVCC} ${NVCC_FLAGS} -MD -MF ${object}.d -c ${kernel} -o ${object}
    DEPENDS ${kernel} DEPFILE ${object}.d COMMENT "nvcc ${name}.cu" VERBATIM)
  list(APPEND objects ${object})
endforeach()

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.c)
add_library(jitney_cuda SHARED ${sources} ${objects})
set_target_properties(jitney_cuda PROPERTIES OUTPUT_NAME jitney-cuda C_VISIBILITY_PRESET hidden)
set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON)
target_include_directories(jitney_cuda SYSTEM PRIVATE ${CUDA_INCLUDE})
target_link_libraries(jitney_cuda PRIVATE graph tensor base ${CUDART} ${CMAKE_DL_LIBS} rt)
target_link_options(jitney_cuda PRIVATE -Wl,--as-needed -Wl,--exclude-libs,ALL -Wl,--no-undefined)
install(TARGETS jitney_cuda LIBRARY DESTINATION lib)
if(TARGET jitney)
  add_dependencies(jitney jitney_cuda)
endif()
