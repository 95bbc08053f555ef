// token_logprobs; semantics in kernels/ops.h.
// Work:   one block per row. A rank is one counting pass over the tiles that hold a larger logit. The K most likely are
//         found by counting in four passes over the keys of the logits, gathered, and sorted in the row of the result.
// Bytes:  about six times the row's logits when K > 0, of which all but the first pass come from L2. Not yet measured.
#include "kernels/cuda/choice.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.h"

namespace tokenmill::cuda {
namespace {

struct LogprobCall {
  LogitsView logits;
  PartialsView tiles;
  const int32_t* token_ids;
  const int32_t* num_top;
  const int32_t* listed_slots;
  const int32_t* listed_ids;
  int64_t listed_stride;
  float* logprobs;
  int32_t* ranks;
  int32_t* status;
  int32_t* top_ids;
  float* top_logprobs;
  int32_t* top_ranks;
  int64_t top_ids_stride, top_logprobs_stride, top_ranks_stride, columns;
  int64_t vocab_size;
};

/// Orders any finite logits from the largest to the smallest: smaller keys first.
__device__ __forceinline__ uint32_t descending_key(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return (bits & 0x80000000u) != 0 ? bits : ~bits & 0x7fffffffu;
}

struct RawSource {
  const LogitsView& logits;
  int64_t row, count;
  __device__ int64_t size() const { return count; }
  __device__ Candidate get(int64_t i) const { return {descending_key(logits.at(row, i)), 0}; }
};

/// One more than the ids with a larger logit. Every thread gets it.
__device__ int32_t rank_of(const LogprobCall& call, int64_t row, float logit) {
  int32_t larger = 0;
  for (int tile = 0; tile < call.tiles.num_tiles; ++tile) {
    if (!(call.tiles.max[row * call.tiles.max_stride + tile] > logit)) continue;
    const float* l = call.logits.tile(row, tile);
    const int64_t left = call.vocab_size - tile * kVocabTile, count = left < kVocabTile ? left : kVocabTile;
    for (int64_t i = threadIdx.x; i < count; i += kPickThreads) larger += l[i] > logit ? 1 : 0;
  }
  return block_reduce<kPickThreads>(larger, Sum{}) + 1;
}

/// ids[0 .. k): the k most likely, in any order: all before the k-th one's logit, and of those equal to it the smallest.
__device__ void gather_most_likely(const LogprobCall& call, int64_t row, int32_t* ids, int64_t k) {
  GPU_SHARED(int, count);
  const RawSource source{call.logits, row, call.vocab_size};
  const Selected border = select(source, kNoKey, static_cast<Mass>(k), CountOne{});
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < call.vocab_size; i += kPickThreads) {
    if (source.get(i).key < border.key) ids[atomicAdd(&count, 1)] = static_cast<int32_t>(i);
  }
  if (threadIdx.x >= 32) return;
  // Equals in ascending order, by the first warp.
  auto place = static_cast<int64_t>(border.before);
  for (int64_t base = 0; base < call.vocab_size && place < k; base += 32) {
    const int64_t i = base + threadIdx.x;
    const unsigned equals = __ballot_sync(kAllLanes, i < call.vocab_size && source.get(i).key == border.key);
    const int64_t own = place + __popc(equals & ((1u << threadIdx.x) - 1));
    if ((equals >> threadIdx.x & 1) != 0 && own < k) ids[own] = static_cast<int32_t>(i);
    place += __popc(equals);
  }
}

/// Bitonic sort of any length: every comparison puts the more likely id in front, so what is missing at the end of a
/// power of two may be left out. Batcher, "Sorting networks and their applications", AFIPS 1968.
__device__ void sort_ids(const LogprobCall& call, int64_t row, int32_t* ids, int64_t k) {
  const auto order = [&](int64_t a, int64_t b) {
    const float x = call.logits.at(row, ids[a]), y = call.logits.at(row, ids[b]);
    if (x > y || (x == y && ids[a] < ids[b])) return;
    const int32_t id = ids[a];
    ids[a] = ids[b];
    ids[b] = id;
  };
  for (int64_t size = 2; size < 2 * k; size *= 2) {
    for (int64_t distance = size / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (int64_t i = threadIdx.x; i < k; i += kPickThreads) {
        const int64_t other = distance == size / 2 ? i ^ (size - 1) : i ^ distance;
        if (other > i && other < k) order(i, other);
      }
    }
  }
  __syncthreads();
}

__global__ void token_logprobs_kernel(LogprobCall call) {
  const int64_t row = blockIdx.x;
  const RawSoftmax softmax = raw_softmax(call.tiles, row);
  if (threadIdx.x == 0) call.status[row] = softmax.finite ? 0 : 1;
  int64_t num_top = call.num_top[row];
  if (num_top < 0 || !softmax.finite) return;
  num_top = num_top < call.columns ? num_top : call.columns;
  num_top = num_top < call.vocab_size ? num_top : call.vocab_size;
  const float logit = call.logits.at(row, call.token_ids[row]);
  const int32_t rank = rank_of(call, row, logit);
  if (threadIdx.x == 0) {
    call.logprobs[row] = softmax.logprob(logit);
    call.ranks[row] = rank;
  }
  if (num_top == 0) return;
  int32_t* ids = call.top_ids + row * call.top_ids_stride;
  float* logprobs = call.top_logprobs + row * call.top_logprobs_stride;
  int32_t* ranks = call.top_ranks + row * call.top_ranks_stride;
  const int32_t listed_slot = call.listed_slots[row];
  if (listed_slot >= 0) {
    const int32_t* listed = call.listed_ids + listed_slot * call.listed_stride;
    for (int64_t i = 0; i < num_top; ++i) {
      const float other = call.logits.at(row, listed[i]);
      const int32_t its_rank = rank_of(call, row, other);
      if (threadIdx.x != 0) continue;
      ids[i] = listed[i];
      logprobs[i] = softmax.logprob(other);
      ranks[i] = its_rank;
    }
    return;
  }
  gather_most_likely(call, row, ids, num_top);
  sort_ids(call, row, ids, num_top);
  for (int64_t i = threadIdx.x; i < num_top; i += kPickThreads) {
    const float own = call.logits.at(row, ids[i]);
    int64_t first = i;  // of those equal to it
    while (first > 0 && call.logits.at(row, ids[first - 1]) == own) --first;
    logprobs[i] = softmax.logprob(own);
    ranks[i] = static_cast<int32_t>(first + 1);
  }
}

}  // namespace

void CudaOps::do_token_logprobs(const LogprobResult& out, const HeadTiles& tiles, int64_t vocab_size,
                                const LogprobRows& rows, const SamplingTables& tables) {
  const auto i32 = [](const TensorView& view) { return static_cast<int32_t*>(view.data()); };
  const auto f32 = [](const TensorView& view) { return static_cast<float*>(view.data()); };
  const auto stride = [](const TensorView& view) { return view.defined() ? view.row_stride() : 0; };
  const LogprobCall call{.logits = whole_logits(tiles.logits, vocab_size),
                         .tiles = partials_view(tiles),
                         .token_ids = i32(rows.token_ids),
                         .num_top = i32(rows.num_top),
                         .listed_slots = i32(rows.listed_slots),
                         .listed_ids = i32(tables.listed_ids),
                         .listed_stride = stride(tables.listed_ids),
                         .logprobs = f32(out.logprobs),
                         .ranks = i32(out.ranks),
                         .status = i32(out.status),
                         .top_ids = i32(out.top_ids),
                         .top_logprobs = f32(out.top_logprobs),
                         .top_ranks = i32(out.top_ranks),
                         .top_ids_stride = stride(out.top_ids),
                         .top_logprobs_stride = stride(out.top_logprobs),
                         .top_ranks_stride = stride(out.top_ranks),
                         .columns = out.top_ids.defined() ? out.top_ids.cols() : 0,
                         .vocab_size = vocab_size};
  TM_CUDA(gpu::launch(token_logprobs_kernel, row_launch(tiles.max.rows(), kPickThreads, "token_logprobs"), call));
}

}  // namespace tokenmill::cuda
