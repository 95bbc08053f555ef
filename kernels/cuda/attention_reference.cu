// attention, backend "reference": formula in kernels/ops.h; any architecture, dtype and head size.
// Work:   one block per (token, query head). Per tile of 64 positions: each warp computes scores of every fourth
//         position, lanes over the head's dimensions; one online-softmax step; then threads over the value's dimensions.
// Order:  tiles and splits are cut at absolute positions, splits are merged in ascending order.
// Bytes:  keys and values once per token and query head: what the other backends share, this one reads again. For
//         checking them, and for shapes that they do not take.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.cuh"

namespace tokenmill::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr float kMinusInfinity = -INFINITY;

/// Where the pieces of one block's work lie in dynamic shared memory, all f32.
struct Shared {
  float* q;       // [k_dim]
  float* scores;  // [kKvTile], then probabilities
  float* out;     // [v_dim]: of the current split
  float* merged;  // [v_dim]: of all splits so far
};

int64_t shared_bytes(const KvPageLayout& layout) {
  return static_cast<int64_t>(sizeof(float)) * (layout.k_dim + kKvTile + 2 * layout.v_dim);
}

/// Maximum and sum of an online softmax; the same in every thread.
struct SoftmaxState {
  float max = kMinusInfinity, sum = 0;
};

template <typename T>
__device__ void tile_scores(const AttentionCall<T>& call, const Shared& s, const int32_t* table, int kv_head,
                            int64_t base, int64_t low, int64_t high) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = warp; i < kKvTile; i += kWarps) {
    const int64_t p = base + i;
    const bool visible = p >= low && p < high;
    float dot = 0;
    if (visible) {
      const T* k = call.key(table, kv_head, p);
      for (int d = lane; d < call.layout.k_dim; d += 32) dot = fmaf(s.q[d], widen(k[d]), dot);
    }
    dot = warp_reduce(dot, Sum{}) * call.params.scale;
    if (call.params.softcap > 0) dot = call.params.softcap * tanhf(dot / call.params.softcap);
    if (lane == 0) s.scores[i] = visible ? dot : kMinusInfinity;
  }
}

/// One online-softmax step over the tile's scores, and the tile's values added to s.out.
template <typename T>
__device__ void add_tile(const AttentionCall<T>& call, const Shared& s, SoftmaxState& state, const int32_t* table,
                         int kv_head, int64_t base, int64_t low, int64_t high) {
  const int i = static_cast<int>(threadIdx.x);
  const float score = i < kKvTile ? s.scores[i] : kMinusInfinity;
  const float top = block_reduce<kThreads>(score, Max{});
  const float new_max = fmaxf(state.max, top);
  if (new_max == kMinusInfinity) return;  // nothing visible so far: the same in all threads
  const float p = i < kKvTile ? expf(score - new_max) : 0.0f;
  const float sum = block_reduce<kThreads>(p, Sum{});
  if (i < kKvTile) s.scores[i] = p;
  __syncthreads();
  const float factor = state.max == kMinusInfinity ? 0.0f : expf(state.max - new_max);
  const int first = static_cast<int>(low > base ? low - base : 0);
  const int last = static_cast<int>(high - base < kKvTile ? high - base : kKvTile);
  for (int d = i; d < call.layout.v_dim; d += kThreads) {
    float total = s.out[d] * factor;
    for (int t = first; t < last; ++t) total = fmaf(s.scores[t], widen(call.value(table, kv_head, base + t)[d]), total);
    s.out[d] = total;
  }
  state.sum = state.sum * factor + sum;
  state.max = new_max;
}

/// merged += a split's state.
__device__ void merge_split(const Shared& s, int v_dim, SoftmaxState& merged, const SoftmaxState& split) {
  if (split.max == kMinusInfinity) return;
  const float top = fmaxf(merged.max, split.max);
  const float keep = merged.max == kMinusInfinity ? 0.0f : expf(merged.max - top), add = expf(split.max - top);
  for (int d = static_cast<int>(threadIdx.x); d < v_dim; d += kThreads) {
    s.merged[d] = s.merged[d] * keep + s.out[d] * add;
  }
  merged = {top, merged.sum * keep + split.sum * add};
}

template <typename T>
__global__ void attention_reference_kernel(AttentionCall<T> call) {
  GPU_DYN_SHARED(dynamic);
  const int token = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y), kv_head = head / call.group();
  const int k_dim = call.layout.k_dim, v_dim = call.layout.v_dim;
  const int sequence = call.sequence_of(token);
  if (sequence < 0) return;
  auto* floats = reinterpret_cast<float*>(dynamic);
  const Shared s{floats, floats + k_dim, floats + k_dim + kKvTile, floats + k_dim + kKvTile + v_dim};
  const int32_t* table = call.block_table + sequence * call.block_table_stride;
  const int64_t high = call.positions[token] + 1;
  const int64_t low = call.params.window > 0 && high > call.params.window ? high - call.params.window : 0;
  const T* q = call.q + token * call.q_stride + head * k_dim;
  for (int d = static_cast<int>(threadIdx.x); d < k_dim; d += kThreads) s.q[d] = widen(q[d]);
  for (int d = static_cast<int>(threadIdx.x); d < v_dim; d += kThreads) s.merged[d] = 0;
  SoftmaxState merged;
  for (int64_t split = low / kKvSplit; split * kKvSplit < high; ++split) {
    const int64_t split_end = (split + 1) * kKvSplit < high ? (split + 1) * kKvSplit : high;
    const int64_t begin = low / kKvTile * kKvTile > split * kKvSplit ? low / kKvTile * kKvTile : split * kKvSplit;
    SoftmaxState state;
    for (int d = static_cast<int>(threadIdx.x); d < v_dim; d += kThreads) s.out[d] = 0;
    for (int64_t base = begin; base < split_end; base += kKvTile) {
      __syncthreads();  // the tile before has been read
      tile_scores(call, s, table, kv_head, base, low, high);
      __syncthreads();
      add_tile(call, s, state, table, kv_head, base, low, high);
    }
    merge_split(s, v_dim, merged, state);
  }
  T* out = call.out + token * call.out_stride + head * v_dim;
  for (int d = static_cast<int>(threadIdx.x); d < v_dim; d += kThreads) out[d] = narrow<T>(s.merged[d] / merged.sum);
}

}  // namespace

void CudaOps::attention_reference(TensorView out, TensorView q, const StepTensors& step, KvLayer kv,
                                  const AttentionParams& params) {
  dispatch_float(q.dtype(), [&]<typename T>() {
    const AttentionCall<T> call = make_attention_call<T>(out, q, step, kv, params);
    gpu::Launch launch = row_launch(q.rows(), kThreads, "attention_reference");
    launch.grid.y = static_cast<unsigned>(call.num_heads);
    launch.smem = static_cast<size_t>(shared_bytes(call.layout));
    TM_CUDA(gpu::launch(attention_reference_kernel<T>, launch, call));
  });
}

}  // namespace tokenmill::cuda
