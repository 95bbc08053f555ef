// sum_parts, add_parts_rms_norm, and a bias added to f32 sums: formulas in kernels/ops.h.
// Work:   one block per token, threads stride over the row in packs of 16 bytes of the output's type.
// Bytes:  every part and hidden read once, out (or hidden and normed) written once; the norm reads its row from cache.
// Limits: any width and alignment. Not yet measured on a device.
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/norm.cuh"

namespace tokenmill::cuda {
namespace {

/// All parts of a tensor and the bias: what is added up for an element. One of the biases, or neither, is there.
template <typename P>
struct Parts {
  const P* data;
  int64_t row_stride, part_stride;  // elements
  int num_parts;
  const float* wide_bias;
  const __nv_bfloat16* narrow_bias;

  __device__ float sum(int64_t row, int i) const {
    const P* first = data + row * row_stride + i;
    float s = widen(first[0]);
    for (int p = 1; p < num_parts; ++p) s += widen(first[p * part_stride]);
    if (wide_bias != nullptr) s += wide_bias[i];
    if (narrow_bias != nullptr) s += widen(narrow_bias[i]);
    return s;
  }
};

template <typename P>
Parts<P> make_parts(const TensorView& parts, const TensorView& bias) {
  const bool wide = bias.defined() && bias.dtype() == DType::kF32;
  return {.data = device_data<P>(parts),
          .row_stride = parts.row_stride(),
          .part_stride = parts.size(1) * parts.row_stride(),
          .num_parts = static_cast<int>(parts.size(0)),
          .wide_bias = wide ? device_data<float>(bias) : nullptr,
          .narrow_bias = bias.defined() && !wide ? device_data<__nv_bfloat16>(bias) : nullptr};
}

template <typename T, typename P>
__global__ void sum_parts_kernel(T* out, int64_t out_stride, Parts<P> parts, int n) {
  T* row = out + blockIdx.x * out_stride;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kNormThreads) row[i] = narrow<T>(parts.sum(blockIdx.x, i));
}

template <typename T, typename P>
__global__ void add_parts_rms_norm_kernel(T* normed, int64_t normed_stride, T* hidden, int64_t hidden_stride,
                                          Parts<P> parts, const T* weight, int n, float eps, bool aligned) {
  T* row = hidden + blockIdx.x * hidden_stride;
  float sum = 0;
  for_each_pack<T>(n, aligned, [&](int i, int count, bool wide) {
    float values[kPack<T>];
    load_pack(values, row + i, count, wide);
    GPU_UNROLL for (int j = 0; j < kPack<T>; ++j) {
      if (j < count) values[j] = widen(narrow<T>(values[j] + widen(narrow<T>(parts.sum(blockIdx.x, i + j)))));
    }
    store_pack(row + i, values, count, wide);
    sum = add_squares(sum, values);
  });
  scale_row(normed + blockIdx.x * normed_stride, row, weight, n, norm_scale(sum, n, eps), aligned);
}

template <typename B>
__global__ void add_bias_kernel(float* out, int64_t out_stride, const B* bias, int n) {
  float* row = out + blockIdx.x * out_stride;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kNormThreads) row[i] += widen(bias[i]);
}

/// Calls function.operator()<T, P>() with the types of the result and of the parts.
template <typename Function>
void dispatch_parts(DType result, DType parts, Function&& function) {
  dispatch_float(result, [&]<typename T>() {
    if (parts == DType::kF32) return function.template operator()<T, float>();
    return function.template operator()<T, T>();
  });
}

}  // namespace

void CudaOps::do_sum_parts(TensorView out, TensorView parts, TensorView bias) {
  dispatch_parts(out.dtype(), parts.dtype(), [&]<typename T, typename P>() {
    TM_CUDA(gpu::launch(sum_parts_kernel<T, P>, row_launch(out.rows(), kNormThreads, "sum_parts"), device_data<T>(out),
                        out.row_stride(), make_parts<P>(parts, bias), out.cols()));
  });
}

void CudaOps::do_add_parts_rms_norm(TensorView normed, TensorView hidden, TensorView parts, TensorView bias,
                                    TensorView weight, float eps) {
  dispatch_parts(hidden.dtype(), parts.dtype(), [&]<typename T, typename P>() {
    TM_CUDA(gpu::launch(add_parts_rms_norm_kernel<T, P>, row_launch(hidden.rows(), kNormThreads, "add_parts_rms_norm"),
                        device_data<T>(normed), normed.row_stride(), device_data<T>(hidden), hidden.row_stride(),
                        make_parts<P>(parts, bias), device_data<T>(weight), hidden.cols(), eps,
                        all_aligned({normed, hidden, weight})));
  });
}

void CudaOps::add_bias(TensorView out, TensorView bias) {
  dispatch_float(bias.dtype(), [&]<typename B>() {
    TM_CUDA(gpu::launch(add_bias_kernel<B>, row_launch(out.rows(), kNormThreads, "add_bias"), device_data<float>(out),
                        out.row_stride(), device_data<B>(bias), out.cols()));
  });
}

}  // namespace tokenmill::cuda
