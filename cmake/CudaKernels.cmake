# libexportguard_cuda.so: the kernels of src/*/cuda/*.cu, with a static cudart and a C interface. The core opens it at run
# time, so that what was built here also runs on a machine without a driver; without nvcc there is no such library.
#
# EXPORTGUARD_CUDA: AUTO (where nvcc is found), ON (an error without it), OFF
set(EXPORTGUARD_CUDA AUTO CACHE STRING "Build the CUDA kernels: AUTO, ON or OFF")
set(EXPORTGUARD_HAS_CUDA OFF)
if(EXPORTGUARD_CUDA AND NOT EXPORTGUARD_SANITIZE)
  # CMake tries the compiler with sm_52 unless told otherwise, which nvcc 13 no longer knows.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90-real 90-virtual)
  endif()
  set(CMAKE_CUDA_FLAGS_RELEASE "-O2")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(EXPORTGUARD_HAS_CUDA ON)
  elseif(NOT EXPORTGUARD_CUDA STREQUAL AUTO)
    message(FATAL_ERROR "EXPORTGUARD_CUDA=${EXPORTGUARD_CUDA}, but there is no nvcc; put it on the PATH or set CUDACXX")
  endif()
endif()
message(STATUS "CUDA kernels: ${EXPORTGUARD_HAS_CUDA}")

function(exportguard_cuda_library)
  file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*/cuda/*.cu)
  add_library(exportguard_cuda SHARED ${kernels})
  target_include_directories(exportguard_cuda PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  # CMake 3.25 does not know nvcc's flag for C++20, so what the kernels include is C++17.
  set_target_properties(exportguard_cuda PROPERTIES CUDA_STANDARD 17 CUDA_RUNTIME_LIBRARY Static
                                                    CUDA_VISIBILITY_PRESET hidden)
endfunction()
