#include "kernels/cuda/device_speeds.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/device/cuda_check.h"

namespace tokenmill::cuda {
namespace {

/// Times work on a stream by events of the device.
class DeviceTimer {
 public:
  DeviceTimer() {
    TM_CUDA(cudaEventCreate(&start_));
    TM_CUDA(cudaEventCreate(&end_));
  }
  ~DeviceTimer() {
    static_cast<void>(cudaEventDestroy(start_));
    static_cast<void>(cudaEventDestroy(end_));
  }
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;

  /// Seconds of the fastest repeat, after one that warms up.
  double best_s(CudaStream& stream, int repeats, const std::function<void()>& work) {
    float best_ms = std::numeric_limits<float>::max();
    for (int repeat = 0; repeat <= repeats; ++repeat) {
      TM_CUDA(cudaEventRecord(start_, stream.handle()));
      work();
      TM_CUDA(cudaEventRecord(end_, stream.handle()));
      stream.synchronize();
      float ms = 0;
      TM_CUDA(cudaEventElapsedTime(&ms, start_, end_));
      if (repeat > 0) best_ms = std::min(best_ms, ms);
    }
    constexpr double kResolution = 1e-6;  // seconds; the clock of events is no finer
    return std::max(double{best_ms} * 1e-3, kResolution);
  }

 private:
  cudaEvent_t start_ = nullptr, end_ = nullptr;
};

class CublasHandle {
 public:
  explicit CublasHandle(cudaStream_t stream) {
    TM_CUBLAS(cublasCreate(&handle_));
    TM_CUBLAS(cublasSetStream(handle_, stream));
  }
  ~CublasHandle() { static_cast<void>(cublasDestroy(handle_)); }
  CublasHandle(const CublasHandle&) = delete;
  CublasHandle& operator=(const CublasHandle&) = delete;
  cublasHandle_t get() const { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
};

double measure_tflops(cudaDataType type, CudaMemory& memory, CudaStream& stream, DeviceTimer& timer,
                      const ProbeSizes& sizes) {
  const int side = sizes.matrix_size;
  const int64_t num_bytes = int64_t{type == CUDA_R_32F ? 4 : 2} * side * side;
  const Buffer a = memory.allocate(num_bytes), b = memory.allocate(num_bytes), c = memory.allocate(num_bytes);
  const CublasHandle cublas(stream.handle());
  const float one = 1, zero = 0;
  const double seconds = timer.best_s(stream, sizes.repeats, [&] {
    TM_CUBLAS(cublasGemmEx(cublas.get(), CUBLAS_OP_T, CUBLAS_OP_N, side, side, side, &one, a.data(), type, side,
                           b.data(), type, side, &zero, c.data(), type, side, CUBLAS_COMPUTE_32F,
                           CUBLAS_GEMM_DEFAULT));
  });
  return 2.0 * side * side * side / seconds * 1e-12;
}

}  // namespace

DeviceSpeeds measure_speeds(Device device, const ProbeSizes& sizes) {
  const DeviceScope scope(device);
  CudaMemory memory(device);
  CudaStream stream(device);
  DeviceTimer timer;
  DeviceSpeeds speeds;
  {
    const Buffer first = memory.allocate(sizes.copy_bytes), second = memory.allocate(sizes.copy_bytes);
    const Buffer host = memory.allocate_host(sizes.copy_bytes);
    const auto gbps = [&](void* to, const void* from) {
      return static_cast<double>(sizes.copy_bytes) * 1e-9 /
             timer.best_s(stream, sizes.repeats, [&] { stream.copy(to, from, sizes.copy_bytes); });
    };
    speeds.copy_gbps = 2 * gbps(second.data(), first.data());
    speeds.upload_gbps = gbps(first.data(), host.data());
    speeds.download_gbps = gbps(host.data(), first.data());
  }
  speeds.bf16_tflops = measure_tflops(CUDA_R_16BF, memory, stream, timer, sizes);
  speeds.f32_tflops = measure_tflops(CUDA_R_32F, memory, stream, timer, sizes);
  return speeds;
}

}  // namespace tokenmill::cuda
