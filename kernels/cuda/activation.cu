// gated_activation: formula in kernels/ops.h.
// Work:   blocks of 256 threads over (columns, tokens), one pack of 16 bytes per thread.
// Bytes:  3 T * intermediate_size elements: every input read once, every output written once.
// Limits: any width and alignment. Not yet measured on a device.
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.h"

namespace tokenmill::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void gated_activation_kernel(T* out, int64_t out_stride, const T* gate_up, int64_t gate_up_stride, int n,
                                        bool silu, bool aligned) {
  const int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * kPack<T>;
  if (i >= n) return;
  const int count = n - i < kPack<T> ? n - i : kPack<T>;
  const bool wide = aligned && count == kPack<T>;
  const T* gate = gate_up + blockIdx.x * gate_up_stride + i;
  float g[kPack<T>], u[kPack<T>];
  load_pack(g, gate, count, wide);
  load_pack(u, gate + n, count, wide);
  GPU_UNROLL for (int j = 0; j < kPack<T>; ++j) g[j] = (silu ? g[j] / (1.0f + expf(-g[j])) : g[j]) * u[j];
  store_pack(out + blockIdx.x * out_stride + i, g, count, wide);
}

}  // namespace

void CudaOps::do_gated_activation(TensorView out, TensorView gate_up, Activation activation) {
  dispatch_float(out.dtype(), [&]<typename T>() {
    const int64_t n = out.cols();
    gpu::Launch launch = row_launch(out.rows(), kThreads, "gated_activation");
    launch.grid.y = static_cast<unsigned>((n + kThreads * kPack<T> - 1) / (kThreads * kPack<T>));
    TM_CUDA(gpu::launch(gated_activation_kernel<T>, launch, device_data<T>(out), out.row_stride(),
                        device_data<T>(gate_up), gate_up.row_stride(), n, activation == Activation::kSilu,
                        all_aligned({out, gate_up}) && n % kPack<T> == 0));
  });
}

}  // namespace tokenmill::cuda
