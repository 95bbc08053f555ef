#pragma once
// One row's choice from the partials of the whole vocabulary, shared by pick(), shortlist() and pick_listed().
#include "kernels/cuda/choice.cuh"

namespace tokenmill::cuda {

/// What the kernels of a row get, by value.
struct PickCall {
  PartialsView tiles;
  RowParameters rows;
  const int64_t* positions;
  int64_t vocab_size;
};

/// What the partials alone say of a row's choice; the same in every thread.
struct Choice {
  enum Kind : int {
    kNothing,   // every id is masked
    kGiven,     // id: forced or greedy
    kInTile,    // drawn without filters: the id of `tile` where the running weight passes `target`
    kFiltered,  // among candidates
  };
  Kind kind = kNothing;
  float max = -INFINITY;  // the largest adjusted logit
  int64_t id = 0;
  int64_t tile = 0;  // kGiven, kInTile
  Mass target = 0;   // in weights relative to the tile's maximum
};

/// Parameters of one row, read once.
struct RowChoice {
  int32_t slot, forced_id;
  float temperature;
  RowFilter filter;
  double uniform;
};

__device__ inline RowChoice row_choice(const PickCall& call, int64_t row) {
  const RowParameters& p = call.rows;
  const int32_t slot = p.slots[row];
  return {slot, p.forced_ids[row], p.temperature[slot], RowFilter{p.min_p[slot], p.top_k[slot], p.top_p[slot]},
          uniform(static_cast<uint64_t>(p.key[slot]), call.positions[p.tokens[row]] + 1)};
}

/// What a tile's weights, relative to its own maximum, count against those relative to max.
__device__ inline double tile_scale(const PickCall& call, int64_t row, int64_t tile, float max, float temperature) {
  return exp(double{call.tiles.adjusted_max[row * call.tiles.adjusted_max_stride + tile] - max} / temperature);
}

/// Mass of all ids of the row relative to its largest weight.
__device__ inline double total_mass(const PickCall& call, int64_t row, float max, float temperature) {
  double sum = 0;
  for (int t = static_cast<int>(threadIdx.x); t < call.tiles.num_tiles; t += kPickThreads) {
    const float tile_sum = call.tiles.sum_exp_t[row * call.tiles.sum_exp_t_stride + t];
    if (tile_sum > 0) sum += tile_sum * tile_scale(call, row, t, max, temperature);
  }
  return block_reduce<kPickThreads>(sum, Sum{});
}

/// The largest adjusted logit and the first tile that has it.
__device__ inline void find_greedy(const PickCall& call, int64_t row, Choice& choice) {
  float top = -INFINITY;
  for (int t = static_cast<int>(threadIdx.x); t < call.tiles.num_tiles; t += kPickThreads) {
    top = fmaxf(top, call.tiles.adjusted_max[row * call.tiles.adjusted_max_stride + t]);
  }
  choice.max = block_reduce<kPickThreads>(top, Max{});
  int first = call.tiles.num_tiles;
  for (int t = static_cast<int>(threadIdx.x); t < call.tiles.num_tiles; t += kPickThreads) {
    if (call.tiles.adjusted_max[row * call.tiles.adjusted_max_stride + t] != choice.max) continue;
    first = t;
    break;
  }
  choice.tile = -block_reduce<kPickThreads>(-first, Max{});
  if (choice.max == -INFINITY) return;
  choice.kind = Choice::kGiven;
  choice.id = call.tiles.argmax[row * call.tiles.argmax_stride + choice.tile];
}

/// Finds the tile of a draw without filters. masses: room in shared memory for one per tile.
__device__ inline void find_tile(const PickCall& call, int64_t row, const RowChoice& r, Choice& choice, Mass* masses) {
  __syncthreads();
  for (int t = static_cast<int>(threadIdx.x); t < call.tiles.num_tiles; t += kPickThreads) {
    const float tile_sum = call.tiles.sum_exp_t[row * call.tiles.sum_exp_t_stride + t];
    masses[t] = tile_sum > 0 ? to_mass(tile_sum * tile_scale(call, row, t, choice.max, r.temperature)) : 0;
  }
  __syncthreads();
  Mass total = 0;  // every thread walks alike
  for (int t = 0; t < call.tiles.num_tiles; ++t) total += masses[t];
  const Mass target = static_cast<Mass>(r.uniform * static_cast<double>(total));
  Mass sum = 0, rest = 0;
  for (int t = 0; t < call.tiles.num_tiles; ++t) {
    if (masses[t] == 0) continue;
    choice.tile = t;
    rest = target - sum;
    if (sum + masses[t] > target) break;
    sum += masses[t];
  }
  choice.kind = Choice::kInTile;
  choice.target = to_mass(static_cast<double>(rest) * 0x1p-44 /
                          tile_scale(call, row, choice.tile, choice.max, r.temperature));
  __syncthreads();  // masses may be written again
}

__device__ inline Choice make_choice(const PickCall& call, int64_t row, const RowChoice& r, Mass* masses) {
  Choice choice;
  if (r.forced_id >= 0) {
    choice.kind = Choice::kGiven;
    choice.id = r.forced_id;
    choice.tile = r.forced_id / kVocabTile;
    return choice;
  }
  find_greedy(call, row, choice);
  if (choice.kind == Choice::kNothing || r.temperature <= 0) return choice;
  if (r.filter.active()) {
    choice.kind = Choice::kFiltered;
    return choice;
  }
  find_tile(call, row, r, choice, masses);
  return choice;
}

/// Candidates among the logits of ids [first_id, first_id + count).
struct LogitsSource {
  const LogitsView& logits;
  const RowAdjustment& adjustment;
  int64_t row, first_id, count;
  float max, temperature;

  __device__ int64_t size() const { return count; }
  __device__ float scaled(int64_t i) const {
    const float raw = logits.at(row, first_id + i);
    return ((adjustment.active() ? adjustment.apply(raw, first_id + i) : raw) - max) / temperature;
  }
  __device__ Candidate get(int64_t i) const {
    const float x = scaled(i), weight = expf(x);
    return weight > 0 ? Candidate{order_key(x), to_mass(weight)} : Candidate{kNoKey, 0};
  }
};

/// kGiven, kInTile: the id; logits hold choice.tile. Every thread gets it.
__device__ inline int64_t id_of(const PickCall& call, int64_t row, const RowChoice& r, const Choice& choice,
                                const LogitsView& logits, const RowAdjustment& adjustment) {
  if (choice.kind == Choice::kGiven) return choice.id;
  GPU_SHARED(int64_t, found);
  if (threadIdx.x < 32) {
    const int64_t first = choice.tile * kVocabTile, left = call.vocab_size - first;
    const float tile_max = call.tiles.adjusted_max[row * call.tiles.adjusted_max_stride + choice.tile];
    const LogitsSource source{logits, adjustment, row,          first, left < kVocabTile ? left : kVocabTile,
                              tile_max, r.temperature};
    const int64_t index = find_in_chunk(source, kNoKey, 0, 0, choice.target);
    if (threadIdx.x == 0) found = index;
  }
  __syncthreads();
  if (found < 0) return call.tiles.argmax[row * call.tiles.argmax_stride + choice.tile];
  return choice.tile * kVocabTile + found;
}

/// Where a row's choice goes.
struct PickOut {
  int32_t* token_ids;
  float* logprobs;
  int32_t* status;

  __device__ void store(const PickCall& call, int64_t row, int64_t id, float logprob, int32_t state) const {
    if (threadIdx.x != 0) return;
    token_ids[row] = static_cast<int32_t>(id);
    logprobs[row] = logprob;
    status[row] = state;
    const RowParameters& p = call.rows;
    const int32_t slot = p.slots[row];
    p.last_token[slot] = static_cast<int32_t>(id);
    const bool counted = p.adjust != nullptr && (p.adjust[slot] & kAdjustCounts) != 0;
    if (state == 0 && counted) ++p.counts[slot * p.counts_stride + id];
  }
};

}  // namespace tokenmill::cuda
