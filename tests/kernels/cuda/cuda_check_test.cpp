#include "kernels/device/cuda_check.h"

#include <doctest/doctest.h>

#include "kernels/core/error.h"
#include "kernels/cuda/launch.h"
#include "tests/support/emulated_device.h"

using namespace tokenmill;

namespace {

__global__ void trap() { __trap(); }

std::string text_of(void (*call)()) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kDevice);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a failed call is reported with device, call, place, text and name, and does not surface again") {
  const test::EmulatedDevice emulated({.memory_bytes = 1 << 20});
  const std::string text = text_of([] {
    void* memory = nullptr;
    TM_CUDA(cudaMalloc(&memory, 1 << 21));
  });
  CHECK(text.find("cuda:0: cudaMalloc(&memory, 1 << 21) at tests/kernels/cuda/cuda_check_test.cpp:") == 0);
  CHECK(text.find(": out of memory (cudaErrorMemoryAllocation): cudaMalloc: 2097152 bytes asked") != std::string::npos);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("a failed kernel is reported by the wait, with the kernel's place") {
  const test::EmulatedDevice emulated;
  TM_CUDA(gpu::launch(trap, {.grid = 1, .block = 1, .name = "trap"}));
  const std::string text = text_of([] { TM_CUDA(cudaDeviceSynchronize()); });
  CHECK(text.find("cuda: cudaDeviceSynchronize() at ") == 0);  // after such a failure no call answers
  CHECK(text.find("(cudaErrorLaunchFailure): trap: ") != std::string::npos);
}

TEST_CASE("cuBLAS and NCCL are reported with the names of their codes") {
  const test::EmulatedDevice emulated;
  CHECK(text_of([] { TM_CUBLAS(cublasSetStream(nullptr, nullptr)); }).find("(CUBLAS_STATUS_NOT_INITIALIZED)") !=
        std::string::npos);
  const std::string text = text_of([] { TM_NCCL(ncclGroupEnd()); });
  CHECK(text.find("cuda:0: ncclGroupEnd() at ") == 0);
  CHECK(text.find(": invalid usage (NCCL code 5): no group is open") != std::string::npos);
}
