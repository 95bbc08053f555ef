// pick, and its two halves shortlist and pick_listed; semantics in kernels/ops.h.
// Work:   one block per row. Greedy, forced and unfiltered rows read their partials and at most one tile of logits.
//         Filters find their border by counting in four passes over the logits (choice.cuh), 8 bits of the order key each.
// Bytes:  a filtered row reads its logits about ten times; after the first they come from L2. Not yet measured.
#include <algorithm>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/fault.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pick.cuh"

namespace tokenmill::cuda {
namespace {

__global__ void pick_kernel(PickCall call, LogitsView logits, PickOut out) {
  GPU_DYN_SHARED(dynamic);
  const int64_t row = blockIdx.x;
  const RawSoftmax softmax = raw_softmax(call.tiles, row);
  if (!softmax.finite) return out.store(call, row, 0, 0, 1);
  const RowChoice r = row_choice(call, row);
  const Choice choice = make_choice(call, row, r, reinterpret_cast<Mass*>(dynamic));
  if (choice.kind == Choice::kNothing) return out.store(call, row, 0, 0, 2);
  const RowAdjustment adjustment = call.rows.adjustment(row);
  int64_t id;
  if (choice.kind != Choice::kFiltered) {
    id = id_of(call, row, r, choice, logits, adjustment);
  } else {
    const double total = total_mass(call, row, choice.max, r.temperature);
    const LogitsSource source{logits, adjustment, row, 0, call.vocab_size, choice.max, r.temperature};
    const Border border = filter_border(source, r.filter, total);
    id = draw(source, border, r.uniform, reinterpret_cast<ChunkSum*>(dynamic));
  }
  out.store(call, row, id, softmax.logprob(logits.at(row, id)), 0);
}

/// One row of a shortlist: how many ids, the ids, their raw logits and their scaled ones.
struct ListRow {
  int32_t* words;
  int64_t capacity;
  __device__ int64_t count() const { return words[0]; }
  __device__ int32_t id(int64_t i) const { return words[1 + i]; }
  __device__ float logit(int64_t i) const { return __int_as_float(words[1 + capacity + i]); }
  __device__ float scaled(int64_t i) const { return __int_as_float(words[1 + 2 * capacity + i]); }
  __device__ void set(int64_t i, int64_t id, float logit, float scaled_logit) const {
    if (i >= capacity) return;
    words[1 + i] = static_cast<int32_t>(id);
    words[1 + capacity + i] = __float_as_int(logit);
    words[1 + 2 * capacity + i] = __float_as_int(scaled_logit);
  }
};

/// Lists, in ascending order, what top-k leaves of a shard's ids. chunks: room for one number per tile.
__device__ void list_filtered(const LogitsSource& source, const RowFilter& filter, const ListRow& list,
                              int32_t* chunks) {
  const uint32_t limit = top_k_limit(source, filter);
  const int64_t num_chunks = (source.size() + kVocabTile - 1) / kVocabTile;
  const unsigned lane = threadIdx.x % 32;
  const auto for_each_32 = [&](int64_t chunk, auto&& visit) {
    const int64_t end = (chunk + 1) * kVocabTile < source.size() ? (chunk + 1) * kVocabTile : source.size();
    for (int64_t base = chunk * kVocabTile; base < end; base += 32) {
      const int64_t i = base + lane;
      visit(i, __ballot_sync(kAllLanes, i < end && source.get(i).key <= limit));
    }
  };
  __syncthreads();
  for (int64_t chunk = threadIdx.x / 32; chunk < num_chunks; chunk += kPickWarps) {
    int32_t count = 0;
    for_each_32(chunk, [&](int64_t, unsigned kept) { count += __popc(kept); });
    if (lane == 0) chunks[chunk] = count;
  }
  __syncthreads();
  for (int64_t chunk = threadIdx.x / 32; chunk < num_chunks; chunk += kPickWarps) {
    int64_t before = 0;
    for (int64_t c = 0; c < chunk; ++c) before += chunks[c];
    for_each_32(chunk, [&](int64_t i, unsigned kept) {
      if ((kept >> lane & 1) != 0) {
        list.set(before + __popc(kept & ((1u << lane) - 1)), source.first_id + i,
                 source.logits.at(source.row, source.first_id + i), source.scaled(i));
      }
      before += __popc(kept);
    });
  }
  if (threadIdx.x == 0) {
    int32_t total = 0;
    for (int64_t c = 0; c < num_chunks; ++c) total += chunks[c];
    list.words[0] = total;
  }
}

__global__ void shortlist_kernel(PickCall call, LogitsView logits, int64_t first_id, int64_t num_ids, int32_t* lists,
                                 int64_t list_stride, int64_t capacity, FaultWord fault) {
  GPU_DYN_SHARED(dynamic);
  const int64_t row = blockIdx.x;
  const ListRow list{lists + row * list_stride, capacity};
  if (threadIdx.x == 0) list.words[0] = 0;
  if (!raw_softmax(call.tiles, row).finite) return;
  const RowChoice r = row_choice(call, row);
  const Choice choice = make_choice(call, row, r, reinterpret_cast<Mass*>(dynamic));
  if (choice.kind == Choice::kNothing) return;
  const RowAdjustment adjustment = call.rows.adjustment(row);
  if (choice.kind != Choice::kFiltered) {
    const int64_t first_tile = first_id / kVocabTile, end_tile = (first_id + num_ids + kVocabTile - 1) / kVocabTile;
    if (num_ids == 0 || choice.tile < first_tile || choice.tile >= end_tile) return;
    const int64_t id = id_of(call, row, r, choice, logits, adjustment);
    if (threadIdx.x != 0) return;
    list.words[0] = 1;
    list.set(0, id, logits.at(row, id), 0);
    return;
  }
  if (r.filter.top_k <= 0 || r.filter.top_k > kShortlistMaxTopK) {
    if (threadIdx.x == 0) fault.report(Fault::kTopKOfShortlist, r.filter.top_k, kShortlistMaxTopK);
    return;
  }
  const int64_t left = call.vocab_size - first_id;
  const LogitsSource source{logits,     adjustment, row, first_id, num_ids < left ? num_ids : left,
                            choice.max, r.temperature};
  list_filtered(source, r.filter, list, reinterpret_cast<int32_t*>(dynamic));
}

/// The lists of all ranks for one row: index p * capacity + i is entry i of rank p's list.
struct ListsSource {
  int32_t* lists;
  int64_t num_ranks, rank_stride, row_offset, capacity;

  __device__ ListRow rank(int64_t p) const { return {lists + p * rank_stride + row_offset, capacity}; }
  __device__ int64_t size() const { return num_ranks * capacity; }
  __device__ Candidate get(int64_t i) const {
    const ListRow list = rank(i / capacity);
    if (i % capacity >= list.count()) return {kNoKey, 0};
    const float x = list.scaled(i % capacity);
    return {order_key(x), to_mass(expf(x))};
  }
};

__global__ void pick_listed_kernel(PickCall call, int32_t* lists, int64_t num_ranks, int64_t num_rows,
                                   int64_t list_stride, int64_t capacity, PickOut out, FaultWord fault) {
  GPU_DYN_SHARED(dynamic);
  const int64_t row = blockIdx.x;
  const RawSoftmax softmax = raw_softmax(call.tiles, row);
  if (!softmax.finite) return out.store(call, row, 0, 0, 1);
  const RowChoice r = row_choice(call, row);
  const Choice choice = make_choice(call, row, r, reinterpret_cast<Mass*>(dynamic));
  if (choice.kind == Choice::kNothing) return out.store(call, row, 0, 0, 2);
  const ListsSource source{lists, num_ranks, num_rows * list_stride, row * list_stride, capacity};
  int64_t index = -1;
  for (int64_t p = 0; p < num_ranks; ++p) {
    const int64_t count = source.rank(p).count();
    if (count > capacity) {
      if (threadIdx.x == 0) fault.report(Fault::kShortlistOverflow, count, capacity);
      return;
    }
    if (count > 0) index = p * capacity;
  }
  if (index < 0) {
    if (threadIdx.x == 0) fault.report(Fault::kNoIdListed, row, num_rows);
    return;
  }
  if (choice.kind == Choice::kFiltered) {
    const double total = total_mass(call, row, choice.max, r.temperature);
    const Border border = filter_border(source, r.filter, total);
    index = draw(source, border, r.uniform, reinterpret_cast<ChunkSum*>(dynamic));
  }
  const ListRow list = source.rank(index / capacity);
  out.store(call, row, list.id(index % capacity), softmax.logprob(list.logit(index % capacity)), 0);
}

PickCall pick_call(const HeadTiles& tiles, int64_t vocab_size, const StepTensors& step, const SamplingTables& tables) {
  return {partials_view(tiles), row_parameters(step.rows, tables), static_cast<const int64_t*>(step.positions.data()),
          vocab_size};
}

PickOut pick_out(const PickResult& out) {
  return {static_cast<int32_t*>(out.token_ids.data()), static_cast<float*>(out.logprobs.data()),
          static_cast<int32_t*>(out.status.data())};
}

/// Room for a number per tile, or per 1,024 candidates.
size_t pick_shared_bytes(int64_t num_tiles, int64_t num_candidates) {
  const int64_t chunks = (num_candidates + kVocabTile - 1) / kVocabTile;
  return static_cast<size_t>(num_tiles > chunks ? num_tiles : chunks) * sizeof(ChunkSum);
}

}  // namespace

void CudaOps::do_pick(const PickResult& out, const HeadTiles& tiles, int64_t vocab_size, const StepTensors& step,
                      const SamplingTables& tables) {
  gpu::Launch launch = row_launch(tiles.max.rows(), kPickThreads, "pick");
  launch.smem = pick_shared_bytes(tiles.max.cols(), vocab_size);
  TM_CUDA(gpu::launch(pick_kernel, launch, pick_call(tiles, vocab_size, step, tables),
                      whole_logits(tiles.logits, vocab_size), pick_out(out)));
}

void CudaOps::do_shortlist(TensorView list, const HeadTiles& tiles, int64_t first_id, int64_t vocab_size,
                           const StepTensors& step, const SamplingTables& tables) {
  gpu::Launch launch = row_launch(tiles.max.rows(), kPickThreads, "shortlist");
  launch.smem = pick_shared_bytes(tiles.max.cols(), 0);
  TM_CUDA(gpu::launch(shortlist_kernel, launch, pick_call(tiles, vocab_size, step, tables),
                      shard_logits(tiles.logits, first_id, vocab_size), first_id, tiles.logits.cols(),
                      static_cast<int32_t*>(list.data()), list.row_stride(), (list.cols() - 1) / 3, fault_word()));
}

void CudaOps::do_pick_listed(const PickResult& out, const HeadTiles& tiles, TensorView lists, int64_t vocab_size,
                             const StepTensors& step, const SamplingTables& tables) {
  const int64_t capacity = (lists.cols() - 1) / 3;
  gpu::Launch launch = row_launch(tiles.max.rows(), kPickThreads, "pick_listed");
  launch.smem = pick_shared_bytes(tiles.max.cols(), lists.size(0) * capacity);
  TM_CUDA(gpu::launch(pick_listed_kernel, launch, pick_call(tiles, vocab_size, step, tables),
                      static_cast<int32_t*>(lists.data()), lists.size(0), lists.size(1), lists.row_stride(), capacity,
                      pick_out(out), fault_word()));
}

bool CudaOps::do_shortlists_fit(TensorView lists) {
  std::vector<int32_t> counts(static_cast<size_t>(lists.rows()));
  TM_CUDA(cudaMemcpy2DAsync(counts.data(), sizeof(int32_t), lists.data(), lists.row_stride() * sizeof(int32_t),
                            sizeof(int32_t), counts.size(), cudaMemcpyDefault, stream_.handle()));
  stream_.synchronize();
  const int64_t capacity = (lists.cols() - 1) / 3;
  return std::all_of(counts.begin(), counts.end(), [&](int32_t count) { return count <= capacity; });
}

}  // namespace tokenmill::cuda
