// lm_head_tiles, join_tiles; semantics in kernels/ops.h.
// Work:   the product, then one block per (tile of 1,024 ids, row): every thread holds four logits.
// Bytes:  the product's, and R * vocab_size floats once more; the partials are small.
// Order:  sums over a tile have one order; no sum crosses a tile. Not yet measured on a device.
#include "kernels/cuda/cuda_linear.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vocabulary.cuh"

namespace tokenmill::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = static_cast<int>(kVocabTile) / kThreads;

/// The tile's values of this thread, in ascending order; those past the end are minus infinity.
struct TileValues {
  float value[kPerThread];

  __device__ float max() const {
    float top = value[0];
    GPU_UNROLL for (int i = 1; i < kPerThread; ++i) top = fmaxf(top, value[i]);
    return block_reduce<kThreads>(top, Max{});
  }
  /// Sum exp((x - max) / temperature).
  __device__ float sum_exp(float max, float temperature) const {
    float sum = 0;
    GPU_UNROLL for (int i = 0; i < kPerThread; ++i) sum += expf((value[i] - max) / temperature);
    return block_reduce<kThreads>(sum, Sum{});
  }
  /// The first index inside the tile that holds max.
  __device__ int argmax(float max) const {
    int first = static_cast<int>(kVocabTile);
    GPU_UNROLL for (int i = kPerThread - 1; i >= 0; --i) {
      if (value[i] == max) first = static_cast<int>(threadIdx.x) * kPerThread + i;
    }
    return -block_reduce<kThreads>(-first, Max{});
  }
};

struct TilesCall {
  LogitsView logits;
  PartialsView out;
  RowParameters rows;
  int64_t first_id, vocab_size;
};

/// What a tile without any id that counts leaves.
__device__ void write_empty(const PartialsView& out, int64_t row, int tile, int32_t first_id, int32_t non_finite) {
  out.max[row * out.max_stride + tile] = -INFINITY;
  out.sum_exp[row * out.sum_exp_stride + tile] = 0;
  out.adjusted_max[row * out.adjusted_max_stride + tile] = -INFINITY;
  out.argmax[row * out.argmax_stride + tile] = first_id;
  out.sum_exp_t[row * out.sum_exp_t_stride + tile] = 0;
  out.non_finite[row * out.non_finite_stride + tile] = non_finite;
}

__global__ void head_tiles_kernel(TilesCall call) {
  const int tile = static_cast<int>(blockIdx.x);
  const int64_t row = blockIdx.y, first = call.first_id + tile * kVocabTile;
  const int64_t left = call.vocab_size - first;
  const int count = static_cast<int>(left < kVocabTile ? left : kVocabTile);
  if (count <= 0) {  // padding alone
    if (threadIdx.x == 0) write_empty(call.out, row, tile, static_cast<int32_t>(first), 0);
    return;
  }
  const float* logits = call.logits.tile(row, call.logits.first_tile + tile);
  const RowAdjustment adjustment = call.rows.adjustment(row);
  TileValues raw, adjusted;
  int bad = 0;
  GPU_UNROLL for (int i = 0; i < kPerThread; ++i) {
    const int at = static_cast<int>(threadIdx.x) * kPerThread + i;
    raw.value[i] = adjusted.value[i] = -INFINITY;
    if (at >= count) continue;
    raw.value[i] = adjusted.value[i] = logits[at];
    bad |= isfinite(raw.value[i]) ? 0 : 1;
    if (adjustment.active()) adjusted.value[i] = adjustment.apply(raw.value[i], first + at);
  }
  if (__syncthreads_or(bad) != 0) {
    if (threadIdx.x == 0) write_empty(call.out, row, tile, static_cast<int32_t>(first), 1);
    return;
  }
  float temperature = call.rows.slots == nullptr ? 0.0f : call.rows.temperature[call.rows.slots[row]];
  if (temperature <= 0) temperature = 1;
  const float max = raw.max(), sum = raw.sum_exp(max, 1.0f);
  const float adjusted_max = adjustment.active() ? adjusted.max() : max;
  const bool masked = adjusted_max == -INFINITY;
  const int argmax = masked ? 0 : adjusted.argmax(adjusted_max);
  const float sum_t = masked ? 0.0f : adjusted.sum_exp(adjusted_max, temperature);
  if (threadIdx.x != 0) return;
  const PartialsView& out = call.out;
  out.max[row * out.max_stride + tile] = max;
  out.sum_exp[row * out.sum_exp_stride + tile] = sum;
  out.adjusted_max[row * out.adjusted_max_stride + tile] = adjusted_max;
  out.argmax[row * out.argmax_stride + tile] = static_cast<int32_t>(first + argmax);
  out.sum_exp_t[row * out.sum_exp_t_stride + tile] = sum_t;
  out.non_finite[row * out.non_finite_stride + tile] = 0;
}

/// One block per (tile of the whole vocabulary, row): words of the shard that has the tile.
__global__ void join_tiles_kernel(PartialsView out, const int32_t* gathered, int64_t columns, int64_t num_rows,
                                  VocabShards shards) {
  const int64_t tile = blockIdx.x, row = blockIdx.y, shard = shards.shard_of(tile);
  const int64_t column = tile - shards.first_tile(shard);
  if (threadIdx.x >= kTileWords) return;
  const int32_t word = gathered[((shard * kTileWords + threadIdx.x) * num_rows + row) * columns + column];
  switch (threadIdx.x) {
    case 0: out.max[row * out.max_stride + tile] = __int_as_float(word); break;
    case 1: out.sum_exp[row * out.sum_exp_stride + tile] = __int_as_float(word); break;
    case 2: out.adjusted_max[row * out.adjusted_max_stride + tile] = __int_as_float(word); break;
    case 3: out.argmax[row * out.argmax_stride + tile] = word; break;
    case 4: out.sum_exp_t[row * out.sum_exp_t_stride + tile] = __int_as_float(word); break;
    default: out.non_finite[row * out.non_finite_stride + tile] = word; break;
  }
}

}  // namespace

void CudaOps::do_lm_head_tiles(const HeadTiles& out, TensorView hidden, const Linear& head, int64_t first_id,
                               int64_t vocab_size, const LogitsRows& rows, const SamplingTables& tables) {
  const auto num_tiles = static_cast<unsigned>(out.max.cols());
  if (num_tiles == 0) return;  // an empty shard
  matmul_.run(out.logits, hidden, device_matrix(head).data(), {}, {});
  const TilesCall call{.logits = shard_logits(out.logits, first_id, vocab_size),
                       .out = partials_view(out),
                       .rows = row_parameters(rows, tables),
                       .first_id = first_id,
                       .vocab_size = vocab_size};
  gpu::Launch launch = row_launch(num_tiles, kThreads, "head_tiles");
  launch.grid.y = static_cast<unsigned>(out.logits.rows());
  TM_CUDA(gpu::launch(head_tiles_kernel, launch, call));
}

void CudaOps::do_join_tiles(const HeadTiles& tiles, TensorView gathered, const VocabShards& shards) {
  gpu::Launch launch = row_launch(shards.num_tiles(), 32, "join_tiles");
  launch.grid.y = static_cast<unsigned>(tiles.max.rows());
  TM_CUDA(gpu::launch(join_tiles_kernel, launch, partials_view(tiles), static_cast<const int32_t*>(gathered.data()),
                      gathered.cols(), tiles.max.rows(), shards));
}

RowParameters row_parameters(const LogitsRows& rows, const SamplingTables& tables) {
  const auto i32 = [](const TensorView& view) { return static_cast<int32_t*>(view.data()); };
  const auto f32 = [](const TensorView& view) { return static_cast<const float*>(view.data()); };
  return {.tokens = i32(rows.tokens),
          .slots = i32(rows.slots),
          .forced_ids = i32(rows.forced_ids),
          .masked_offsets = i32(rows.masked_offsets),
          .masked_ids = i32(rows.masked_ids),
          .temperature = f32(tables.temperature),
          .top_p = f32(tables.top_p),
          .min_p = f32(tables.min_p),
          .top_k = i32(tables.top_k),
          .key = static_cast<const int64_t*>(tables.key.data()),
          .last_token = i32(tables.last_token),
          .adjust = i32(tables.adjust),
          .presence = f32(tables.presence_penalty),
          .frequency = f32(tables.frequency_penalty),
          .repetition = f32(tables.repetition_penalty),
          .counts = i32(tables.counts),
          .bias = f32(tables.bias),
          .counts_stride = tables.counts.defined() ? tables.counts.row_stride() : 0,
          .bias_stride = tables.bias.defined() ? tables.bias.row_stride() : 0};
}

}  // namespace tokenmill::cuda
