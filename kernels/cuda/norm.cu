// rms_norm, add_rms_norm, add: formulas in kernels/ops.h.
// Work:   one block per token; its threads stride over the row in packs of 16 bytes, one warp-then-block sum.
// Bytes:  rms_norm (2 T + 1) hidden_size elements, add_rms_norm (4 T + 1): the second reading of a row hits the cache.
// Limits: any hidden_size >= 1, any alignment (rows that are not aligned to 16 bytes are read element by element).
//         Not yet measured on a device.
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/norm.cuh"

namespace tokenmill::cuda {
namespace {

template <typename T>
__global__ void rms_norm_kernel(T* out, int64_t out_stride, const T* x, int64_t x_stride, const T* weight, int n,
                                float eps, bool aligned) {
  const T* row = x + blockIdx.x * x_stride;
  float sum = 0;
  for_each_pack<T>(n, aligned, [&](int i, int count, bool wide) {
    float values[kPack<T>];
    load_pack(values, row + i, count, wide);
    sum = add_squares(sum, values);
  });
  scale_row(out + blockIdx.x * out_stride, row, weight, n, norm_scale(sum, n, eps), aligned);
}

template <typename T>
__global__ void add_rms_norm_kernel(T* normed, int64_t normed_stride, T* hidden, int64_t hidden_stride, const T* block,
                                    int64_t block_stride, const T* weight, int n, float eps, bool aligned) {
  T* row = hidden + blockIdx.x * hidden_stride;
  const T* added = block + blockIdx.x * block_stride;
  float sum = 0;
  for_each_pack<T>(n, aligned, [&](int i, int count, bool wide) {
    float values[kPack<T>], b[kPack<T>];
    load_pack(values, row + i, count, wide);
    load_pack(b, added + i, count, wide);
    GPU_UNROLL for (int j = 0; j < kPack<T>; ++j) values[j] = widen(narrow<T>(values[j] + b[j]));
    store_pack(row + i, values, count, wide);
    sum = add_squares(sum, values);
  });
  // A thread reads back only what it has written itself. normed may be block: this row of it is not read again.
  scale_row(normed + blockIdx.x * normed_stride, row, weight, n, norm_scale(sum, n, eps), aligned);
}

template <typename T>
__global__ void add_kernel(T* hidden, int64_t hidden_stride, const T* block, int64_t block_stride, int n,
                           bool aligned) {
  T* row = hidden + blockIdx.x * hidden_stride;
  const T* added = block + blockIdx.x * block_stride;
  for_each_pack<T>(n, aligned, [&](int i, int count, bool wide) {
    float values[kPack<T>], b[kPack<T>];
    load_pack(values, row + i, count, wide);
    load_pack(b, added + i, count, wide);
    GPU_UNROLL for (int j = 0; j < kPack<T>; ++j) values[j] += b[j];
    store_pack(row + i, values, count, wide);
  });
}

}  // namespace

void CudaOps::do_rms_norm(TensorView out, TensorView x, TensorView weight, float eps) {
  dispatch_float(x.dtype(), [&]<typename T>() {
    TM_CUDA(gpu::launch(rms_norm_kernel<T>, row_launch(x.rows(), kNormThreads, "rms_norm"), device_data<T>(out),
                        out.row_stride(), device_data<T>(x), x.row_stride(), device_data<T>(weight), x.cols(), eps,
                        all_aligned({out, x, weight})));
  });
}

void CudaOps::do_add_rms_norm(TensorView normed, TensorView hidden, TensorView block_out, TensorView weight,
                              float eps) {
  dispatch_float(hidden.dtype(), [&]<typename T>() {
    TM_CUDA(gpu::launch(add_rms_norm_kernel<T>, row_launch(hidden.rows(), kNormThreads, "add_rms_norm"),
                        device_data<T>(normed), normed.row_stride(), device_data<T>(hidden), hidden.row_stride(),
                        device_data<T>(block_out), block_out.row_stride(), device_data<T>(weight), hidden.cols(), eps,
                        all_aligned({normed, hidden, block_out, weight})));
  });
}

void CudaOps::do_add(TensorView hidden, TensorView block_out) {
  dispatch_float(hidden.dtype(), [&]<typename T>() {
    TM_CUDA(gpu::launch(add_kernel<T>, row_launch(hidden.rows(), kNormThreads, "add"), device_data<T>(hidden),
                        hidden.row_stride(), device_data<T>(block_out), block_out.row_stride(), hidden.cols(),
                        all_aligned({hidden, block_out})));
  });
}

}  // namespace tokenmill::cuda
