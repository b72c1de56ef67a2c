# Cross-compiles for 64-bit Arm: cmake -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake ...
#
# Headers and libraries come from a folder of Arm packages that tools/arm_root fills, build/arm-root
# unless JITNEY_ARM_ROOT in the environment names another; the machine's own packages are left
# alone. Tests run under qemu-aarch64, as the processor that QEMU_CPU names.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)

get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/../build/arm-root ABSOLUTE)
if(DEFINED ENV{JITNEY_ARM_ROOT})
  set(root $ENV{JITNEY_ARM_ROOT})
endif()
set(CMAKE_SYSROOT ${root})

# llhttp is C sources, the same for every processor, and lies on this machine.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${root})
set(ENV{PKG_CONFIG_LIBDIR} ${root}/usr/lib/aarch64-linux-gnu/pkgconfig:${root}/usr/share/pkgconfig)

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${root})
