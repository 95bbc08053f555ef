# tokenmill::gpu: what code that uses CUDA, cuBLAS and NCCL links. TOKENMILL_CUDA decides what it is:
#   off       nothing
#   on        the toolkit's cudart, cublas, cublasLt, and nccl; libcuda and NVML are loaded at run time
#   emulated  kernels/emulation, which defines the same symbols on the host, against the toolkit's own headers
# tm_cuda_sources(files...) sets what the .cu files among them are compiled as.

add_library(tokenmill_gpu INTERFACE)
add_library(tokenmill::gpu ALIAS tokenmill_gpu)

if(TOKENMILL_CUDA STREQUAL "off")
elseif(TOKENMILL_CUDA STREQUAL "on")
  if(TOKENMILL_SANITIZE)
    message(FATAL_ERROR "TOKENMILL_SANITIZE=${TOKENMILL_SANITIZE} does not go with TOKENMILL_CUDA=on; "
      "use TOKENMILL_CUDA=emulated (presets emulated-asan, emulated-tsan)")
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit 12.4 REQUIRED)
  find_path(TOKENMILL_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
  find_library(TOKENMILL_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} REQUIRED)
  # CMAKE_CUDA_STANDARD 20 means nothing to CMake 3.25 with nvcc.
  target_compile_options(tokenmill_gpu INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  target_include_directories(tokenmill_gpu SYSTEM INTERFACE ${TOKENMILL_NCCL_INCLUDE})
  target_link_libraries(tokenmill_gpu INTERFACE CUDA::cudart CUDA::cublas CUDA::cublasLt ${TOKENMILL_NCCL_LIBRARY}
    ${CMAKE_DL_LIBS})
  # fmt 9 takes nvcc for a compiler without constexpr functions, and then fails in its own consteval ones.
  target_compile_definitions(tokenmill_gpu INTERFACE TOKENMILL_CUDA=1 $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
elseif(TOKENMILL_CUDA STREQUAL "emulated")
  # Headers may lie apart (toolkit, wheels of the single libraries): each is looked for on its own.
  set(directories "")
  foreach(header cuda_runtime cuda_fp8 cublas_v2 cublasLt nccl)
    find_path(TOKENMILL_HEADER_${header} ${header}.h HINTS $ENV{CUDA_HOME}/include $ENV{CUDA_PATH}/include
      /usr/local/cuda/include)
    mark_as_advanced(TOKENMILL_HEADER_${header})
    if(NOT TOKENMILL_HEADER_${header})
      message(FATAL_ERROR "TOKENMILL_CUDA=emulated needs the header ${header}.h of CUDA toolkit 13, cuBLAS and NCCL "
        "(no libraries, no compiler, no driver); set CUDA_HOME, or "
        "-DCMAKE_INCLUDE_PATH=\"$(scripts/fetch_cuda_headers)\", or use TOKENMILL_CUDA=off")
    endif()
    list(APPEND directories ${TOKENMILL_HEADER_${header}})
  endforeach()
  list(REMOVE_DUPLICATES directories)
  add_library(tokenmill_cuda_headers INTERFACE)
  target_include_directories(tokenmill_cuda_headers SYSTEM INTERFACE ${directories})
  target_compile_definitions(tokenmill_cuda_headers INTERFACE TOKENMILL_CUDA=1 TOKENMILL_CUDA_EMULATED=1)
  target_link_libraries(tokenmill_gpu INTERFACE tokenmill_gpu_emu)
else()
  message(FATAL_ERROR "TOKENMILL_CUDA is ${TOKENMILL_CUDA}; it must be off, on or emulated")
endif()

function(tm_cuda_sources)
  if(TOKENMILL_CUDA STREQUAL "emulated")
    set(kernels ${ARGN})
    list(FILTER kernels INCLUDE REGEX "\\.cu$")
    if(kernels)
      # -x: without it the compiler driver hands a .cu file to the linker.
      set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
    endif()
  endif()
endfunction()
