#include "kernels/device/cuda_check.h"

#include <string>
#include <string_view>

#include "kernels/core/error.h"
#include "kernels/core/source_place.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include "kernels/emulation/runtime.h"
#endif

namespace tokenmill::detail {
namespace {

/// "cuda:1", or "cuda" when even the device cannot be asked. Also forgets the error that is being reported, so that it
/// does not surface again behind an innocent launch.
std::string device_name() {
  static_cast<void>(cudaGetLastError());
  int device = -1;
  return cudaGetDevice(&device) == cudaSuccess ? "cuda:" + std::to_string(device) : "cuda";
}

/// What only the emulator knows, as ": text".
std::string emulated_detail() {
#ifdef TOKENMILL_CUDA_EMULATED
  const std::string text = emulation::last_failure();
  return text.empty() ? "" : ": " + text;
#else
  return "";
#endif
}

[[noreturn]] void fail(const char* call, const char* file, int line, std::string_view text, std::string_view name,
                       const std::string& detail) {
  throw Error(ErrorKind::kDevice, "{}: {} at {}:{}: {} ({}){}", device_name(), call, source_path(file), line, text, name,
              detail);
}

}  // namespace

void cuda_failed(cudaError_t code, const char* call, const char* file, int line) {
  fail(call, file, line, cudaGetErrorString(code), cudaGetErrorName(code), emulated_detail());
}

void cublas_failed(cublasStatus_t code, const char* call, const char* file, int line) {
  fail(call, file, line, "cuBLAS failed", cublasGetStatusName(code), "");
}

void nccl_failed(ncclResult_t code, const char* call, const char* file, int line) {
  const char* last = ncclGetLastError(nullptr);
  const std::string detail = last == nullptr || *last == '\0' ? "" : std::string(": ") + last;
  fail(call, file, line, ncclGetErrorString(code), "NCCL code " + std::to_string(static_cast<int>(code)), detail);
}

}  // namespace tokenmill::detail

namespace tokenmill {

bool streams_are_lazy() {
#ifdef TOKENMILL_CUDA_EMULATED
  return emulation::settings().mode == emulation::Mode::kLazy;
#else
  return false;
#endif
}

}  // namespace tokenmill
