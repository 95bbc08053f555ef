// rope_angles, rope_and_store_kv: formulas in kernels/ops.h.
// Work:   one block per (token, head of q or KV head); a thread owns pairs (i, i + rotary_dim / 2), so a head's norm, the
//         rotation and the store to its page need one barrier.
// Bytes:  2 T * (num_heads + num_kv_heads) * k_dim elements, and the stored T * num_kv_heads * (k_dim + v_dim).
// Limits: k_dim, v_dim >= 1, even rotary_dim <= k_dim. Not yet measured on a device.
#include "kernels/cuda/cuda_kv_pool.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/fault.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.cuh"

namespace tokenmill::cuda {
namespace {

constexpr int kThreads = 64;
constexpr int kAngleThreads = 128;

/// Cosines in f64, rounded once: positions up to 2^24 keep all bits of the angle, and the step's table is small.
__global__ void rope_angles_kernel(float* cos_sin, int64_t stride, const int64_t* positions, const float* inv_freq,
                                   int half, float multiplier) {
  const auto position = static_cast<float>(positions[blockIdx.x]);
  float* row = cos_sin + blockIdx.x * stride;
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kAngleThreads) {
    const double angle = position * inv_freq[i];
    row[i] = static_cast<float>(cos(angle)) * multiplier;
    row[half + i] = static_cast<float>(sin(angle)) * multiplier;
  }
}

/// One operand of the rotation.
template <typename T>
struct Heads {
  T* data;
  int64_t stride;  // elements between tokens
  const T* norm;   // [dim] or null
};

/// Norm and rotation of one head in place.
template <typename T>
__device__ void norm_and_rotate(T* x, const T* norm, int dim, const float* cos_sin, int half, float eps) {
  float scale = 1;
  if (norm != nullptr) {
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < dim; i += kThreads) sum = fmaf(widen(x[i]), widen(x[i]), sum);
    scale = 1.0f / sqrtf(block_reduce<kThreads>(sum, Sum{}) / static_cast<float>(dim) + eps);
  }
  const auto value = [&](int i) {
    return norm == nullptr ? widen(x[i]) : widen(narrow<T>(widen(narrow<T>(widen(x[i]) * scale)) * widen(norm[i])));
  };
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kThreads) {
    const float a = value(i), b = value(half + i), cosine = cos_sin[i], sine = cos_sin[half + i];
    x[i] = narrow<T>(fmaf(a, cosine, -(b * sine)));
    x[half + i] = narrow<T>(fmaf(a, sine, b * cosine));
  }
  for (int i = 2 * half + static_cast<int>(threadIdx.x); i < dim; i += kThreads) x[i] = narrow<T>(value(i));
}

template <typename T>
struct RopeCall {
  Heads<T> q, k;
  const T* v;
  int64_t v_stride;
  const float* cos_sin;
  int64_t cos_sin_stride;
  const int64_t* slots;  // [T]
  T* pages;              // this layer's keys of block 0
  KvPageLayout layout;
  int64_t num_slots;  // positions that the pool has
  int num_heads, half;
  float eps;
};

template <typename T>
__global__ void rope_and_store_kernel(RopeCall<T> call, FaultWord fault) {
  const int64_t token = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y), k_dim = call.layout.k_dim;
  const float* cos_sin = call.cos_sin + token * call.cos_sin_stride;
  if (head < call.num_heads) {
    norm_and_rotate(call.q.data + token * call.q.stride + head * k_dim, call.q.norm, k_dim, cos_sin, call.half,
                    call.eps);
    return;
  }
  const int kv_head = head - call.num_heads;
  T* k = call.k.data + token * call.k.stride + kv_head * k_dim;
  norm_and_rotate(k, call.k.norm, k_dim, cos_sin, call.half, call.eps);
  __syncthreads();  // the store reads what other threads have rotated
  const int64_t slot = call.slots[token];
  if (slot < 0) return;
  if (slot >= call.num_slots) {
    if (threadIdx.x == 0) fault.report(Fault::kKvSlotOutside, slot, call.num_slots);
    return;
  }
  const int64_t block = slot / call.layout.block_size, offset = slot % call.layout.block_size;
  T* keys = call.pages + block * call.layout.block_elements + call.layout.key_offset(kv_head, offset);
  T* values = call.pages + block * call.layout.block_elements + call.layout.value_offset(kv_head, offset);
  const T* v = call.v + token * call.v_stride + kv_head * call.layout.v_dim;
  for (int i = static_cast<int>(threadIdx.x); i < k_dim; i += kThreads) keys[i] = k[i];
  for (int i = static_cast<int>(threadIdx.x); i < call.layout.v_dim; i += kThreads) values[i] = v[i];
}

template <typename T>
Heads<T> heads_of(const TensorView& view, const TensorView& norm) {
  return {device_data<T>(view), view.row_stride(), norm.defined() ? device_data<T>(norm) : nullptr};
}

}  // namespace

void CudaOps::do_rope_angles(TensorView cos_sin, TensorView positions, TensorView inv_freq, float multiplier) {
  TM_CUDA(gpu::launch(rope_angles_kernel, row_launch(cos_sin.rows(), kAngleThreads, "rope_angles"),
                      device_data<float>(cos_sin), cos_sin.row_stride(), device_data<int64_t>(positions),
                      device_data<float>(inv_freq), cos_sin.cols() / 2, multiplier));
}

void CudaOps::do_rope_and_store_kv(const RopeStoreArgs& args, const StepTensors& step, KvLayer kv) {
  const CudaKvPool& pool = cuda_pool(*kv.pool);
  dispatch_float(args.q.dtype(), [&]<typename T>() {
    const RopeCall<T> call{.q = heads_of<T>(args.q, args.q_norm),
                           .k = heads_of<T>(args.k, args.k_norm),
                           .v = device_data<T>(args.v),
                           .v_stride = args.v.row_stride(),
                           .cos_sin = device_data<float>(args.cos_sin),
                           .cos_sin_stride = args.cos_sin.row_stride(),
                           .slots = device_data<int64_t>(step.groups[static_cast<size_t>(kv.group)].slot_mapping),
                           .pages = pool.layer_data<T>(kv.layer),
                           .layout = pool.layout(),
                           .num_slots = pool.num_blocks() * pool.spec().block_size,
                           .num_heads = static_cast<int>(args.q.cols() / pool.spec().k_dim),
                           .half = static_cast<int>(args.cos_sin.cols() / 2),
                           .eps = args.norm_eps};
    gpu::Launch launch = row_launch(args.q.rows(), kThreads, "rope_and_store_kv");
    launch.grid.y = static_cast<unsigned>(call.num_heads + pool.spec().num_kv_heads);
    TM_CUDA(gpu::launch(rope_and_store_kernel<T>, launch, call, fault_word()));
  });
}

}  // namespace tokenmill::cuda
