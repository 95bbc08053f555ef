// attention: formula in kernels/ops.h.
// Work:   a task is (tokens of a sequence, KV head, splits); the query heads of the KV head's group and the tokens form
//         its rows, which share one walk over the pages in blocks of 48 rows. Per tile of 64 positions: scores by panel
//         products, one online-softmax step per row, then the weighted values by panel products again.
// Order:  tiles and splits are cut at absolute positions and merged in ascending order, sums run over positions in
//         ascending order, and a masked position adds an exact zero: a row's bits depend on its own position alone, not
//         on the rows beside it, the chunk it arrives in, the block size or the threads.
// Slots:  positions past the last visible one are never read as numbers; whatever lies there cannot matter.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/attention_task.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dot_tile-inl.h"
#include "kernels/cpu/target.h"

HWY_BEFORE_NAMESPACE();
namespace tokenmill::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kStripsPerTile = kKvTile / kStripTokens;
constexpr float kMinusInfinity = -__builtin_inff();

/// The rows of one block and their scratch.
struct RowBlock {
  int64_t num_rows;
  int64_t ldq, ldo;                         // floats between rows of q, of the outputs
  float* q;                                 // [rows][ldq], widened
  float* scores;                            // [rows][kKvTile], then probabilities
  float* out;                               // [rows][ldo]: maximum, sum, output of the current split
  float* merged;                            // the same, of all splits so far
  int64_t low[kRowBlock], high[kRowBlock];  // visible positions of each row: [low, high)
  int64_t low_all, high_all;
};

HWY_INLINE float exp1(float x) { return hn::GetLane(exp(set(x))); }

/// Scores of the tile's strips [strip_begin, strip_end) for all rows.
template <typename T>
void tile_scores(const AttentionTask& task, RowBlock& b, const T* const* keys, int64_t strip_begin, int64_t strip_end) {
  const float* rows[kMaxTileRows];
  const int64_t tiles = (b.num_rows + kMaxTileRows - 1) / kMaxTileRows;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = b.num_rows * t / tiles;
    const int count = static_cast<int>(b.num_rows * (t + 1) / tiles - first);
    for (int i = 0; i < count; ++i) rows[i] = b.q + (first + i) * b.ldq;
    for (int64_t s = strip_begin; s < strip_end;) {
      int panels = best_panels(count);
      while (panels > strip_end - s) panels /= 2;
      dot_tile_any<false>(count, panels, rows, keys + s, task.layout->k_dim,
                          b.scores + first * kKvTile + s * kStripTokens, kKvTile);
      s += panels;
    }
  }
}

/// One online-softmax step of row r over the tile that starts at base: scores become probabilities.
HWY_INLINE void softmax_step(const AttentionTask& task, RowBlock& b, int64_t r, int64_t base) {
  const TagF f;
  const TagI i32;
  float* s = b.scores + r * kKvTile;
  float* state = b.out + r * b.ldo;
  const int64_t first = HWY_MAX(b.low[r] - base, int64_t{0}), last = HWY_MIN(b.high[r] - base, kKvTile);
  if (first >= last) {
    for (int64_t i = 0; i < kKvTile; i += kLanes) store(zero(), s + i);
    return;
  }
  const VecF scale = set(task.params.scale), cap = set(task.params.softcap);
  const auto before = hn::Set(i32, static_cast<int32_t>(first) - 1), to = hn::Set(i32, static_cast<int32_t>(last));
  VecF top = set(kMinusInfinity);
  for (int64_t i = 0; i < kKvTile; i += kLanes) {
    VecF x = hn::Mul(load(s + i), scale);
    if (task.params.softcap > 0) x = hn::Mul(cap, tanh(hn::Div(x, cap)));
    const auto index = hn::Iota(i32, static_cast<int32_t>(i));
    const auto visible = hn::And(hn::Gt(index, before), hn::Gt(to, index));
    x = hn::IfThenElse(hn::RebindMask(f, visible), x, set(kMinusInfinity));
    store(x, s + i);
    top = hn::Max(top, x);
  }
  const float old_max = state[0], new_max = HWY_MAX(old_max, max_lanes(top));
  const VecF shift = set(new_max == kMinusInfinity ? 0.0f : new_max);
  VecF sum = zero();
  for (int64_t i = 0; i < kKvTile; i += kLanes) {
    const VecF p = exp(hn::Sub(load(s + i), shift));
    store(p, s + i);
    sum = hn::Add(sum, p);
  }
  if (old_max != new_max) {
    const float factor = old_max == kMinusInfinity ? 0.0f : exp1(old_max - new_max);
    for (int64_t d = 1; d < b.ldo; ++d) state[d] *= factor;
  }
  state[0] = new_max;
  state[1] += sum_lanes(sum);
}

/// out += probabilities x values for the tile's strips; num_tokens: readable positions of the tile.
template <typename T>
void add_values(const AttentionTask& task, RowBlock& b, const T* const* values, int64_t strip_begin, int64_t strip_end,
                int64_t num_tokens) {
  const float* rows[kMaxTileRows];
  const T* panel[kMaxTilePanels];
  const int64_t tiles = (b.num_rows + kMaxTileRows - 1) / kMaxTileRows;
  const int64_t stride = task.layout->v_panel_bytes / static_cast<int64_t>(sizeof(T));
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = b.num_rows * t / tiles;
    const int count = static_cast<int>(b.num_rows * (t + 1) / tiles - first);
    for (int64_t s = strip_begin; s < strip_end; ++s) {
      for (int i = 0; i < count; ++i) rows[i] = b.scores + (first + i) * kKvTile + s * kStripTokens;
      const int64_t tokens = HWY_MIN(kStripTokens, num_tokens - s * kStripTokens);
      for (int64_t p = 0; p < task.layout->v_panels;) {
        int panels = best_panels(count);
        while (panels > task.layout->v_panels - p) panels /= 2;
        for (int i = 0; i < panels; ++i) panel[i] = values[s] + (p + i) * stride;
        dot_tile_any<true>(count, panels, rows, panel, tokens, b.out + first * b.ldo + 2 + p * kPanelWidth, b.ldo);
        p += panels;
      }
    }
  }
}

template <typename T>
void attend_tile(const AttentionTask& task, RowBlock& b, int64_t base) {
  const KvPageLayout& layout = *task.layout;
  const int64_t strip_begin = (HWY_MAX(b.low_all, base) - base) / kStripTokens;
  const int64_t num_tokens = HWY_MIN(b.high_all - base, kKvTile);
  const int64_t strip_end = (num_tokens + kStripTokens - 1) / kStripTokens;
  const T* keys[kStripsPerTile];
  const T* values[kStripsPerTile];
  for (int64_t s = strip_begin; s < strip_end; ++s) {
    const int64_t strip = base / kStripTokens + s, block = task.block_table[strip / layout.strips_per_block];
    const std::byte* data =
        task.pages + layout.strip_offset(block, task.layer, task.kv_head, strip % layout.strips_per_block);
    keys[s] = reinterpret_cast<const T*>(data);
    values[s] = reinterpret_cast<const T*>(data + layout.key_bytes);
  }
  tile_scores(task, b, keys, strip_begin, strip_end);
  for (int64_t r = 0; r < b.num_rows; ++r) softmax_step(task, b, r, base);
  add_values(task, b, values, strip_begin, strip_end, num_tokens);
}

void clear_state(float* state, int64_t rows, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    state[r * stride] = kMinusInfinity;
    for (int64_t d = 1; d < stride; ++d) state[r * stride + d] = 0.0f;
  }
}

void merge(float* state, const float* other, int64_t rows, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r, state += stride, other += stride) {
    if (other[0] == kMinusInfinity) continue;  // nothing visible there
    const float top = HWY_MAX(state[0], other[0]);
    const float keep = state[0] == kMinusInfinity ? 0.0f : exp1(state[0] - top), add = exp1(other[0] - top);
    state[0] = top;
    for (int64_t d = 1; d < stride; ++d) state[d] = state[d] * keep + other[d] * add;
  }
}

template <typename T>
void finish_row(const AttentionTask& task, int64_t row, const float* state) {
  const int64_t v_dim = task.layout->v_dim, token = task.token_begin + row / task.group;
  T* out = task.out.row<T>(token) + (task.kv_head * task.group + row % task.group) * v_dim;
  const VecF sum = set(state[1]);
  int64_t d = 0;
  for (; d + kLanes <= v_dim; d += kLanes) store(hn::Div(load(state + 2 + d), sum), out + d);
  if (d < v_dim) store_n(hn::Div(load_n(state + 2 + d, v_dim - d), sum), out + d, v_dim - d);
}

void finish(const AttentionTask& task, const float* state) {
  const int64_t stride = attention_state_floats(*task.layout);
  for (int64_t row = 0; row < task.num_tokens * task.group; ++row) {
    if (task.out.dtype() == DType::kF32) {
      finish_row<float>(task, row, state + row * stride);
    } else {
      finish_row<bf16>(task, row, state + row * stride);
    }
  }
}

/// Widens the queries of rows [row_begin, ...) and notes what each sees.
template <typename T>
void load_rows(const AttentionTask& task, RowBlock& b, int64_t row_begin) {
  const int64_t k_dim = task.layout->k_dim;
  b.low_all = INT64_MAX;
  b.high_all = 0;
  for (int64_t r = 0; r < b.num_rows; ++r) {
    const int64_t row = row_begin + r, token = task.token_begin + row / task.group;
    const T* q = task.q.row<T>(token) + (task.kv_head * task.group + row % task.group) * k_dim;
    float* wide = b.q + r * b.ldq;
    int64_t d = 0;
    for (; d + kLanes <= k_dim; d += kLanes) store(load(q + d), wide + d);
    if (d < k_dim) store_n(load_n(q + d, k_dim - d), wide + d, k_dim - d);
    b.high[r] = task.positions[token] + 1;
    b.low[r] = task.params.window > 0 ? HWY_MAX(b.high[r] - task.params.window, int64_t{0}) : 0;
    b.low_all = HWY_MIN(b.low_all, b.low[r]);
    b.high_all = HWY_MAX(b.high_all, b.high[r]);
  }
}

template <typename T>
void attend_rows(const AttentionTask& task, int64_t row_begin, int64_t num_rows) {
  const int64_t stride = attention_state_floats(*task.layout);
  RowBlock b;
  b.num_rows = num_rows;
  b.ldq = (task.layout->k_dim + 15) / 16 * 16;
  b.ldo = stride;
  b.q = task.scratch;
  b.scores = b.q + kRowBlock * b.ldq;
  b.out = b.scores + kRowBlock * kKvTile;
  b.merged = b.out + kRowBlock * (stride + 14);
  load_rows<T>(task, b, row_begin);
  clear_state(b.merged, num_rows, stride);
  for (int64_t split = task.split_begin; split < task.split_end; ++split) {
    const int64_t begin = HWY_MAX(split * kKvSplit, b.low_all / kKvTile * kKvTile);
    const int64_t end = HWY_MIN((split + 1) * kKvSplit, b.high_all);
    if (begin >= end) continue;
    clear_state(b.out, num_rows, stride);
    for (int64_t base = begin; base < end; base += kKvTile) attend_tile<T>(task, b, base);
    merge(b.merged, b.out, num_rows, stride);
  }
  for (int64_t r = 0; r < num_rows; ++r) {
    if (task.state == nullptr) {
      finish_row<T>(task, row_begin + r, b.merged + r * stride);
    } else {
      for (int64_t d = 0; d < stride; ++d) task.state[(row_begin + r) * stride + d] = b.merged[r * stride + d];
    }
  }
}

void attend(const AttentionTask& task) {
  const int64_t rows = task.num_tokens * task.group;
  for (int64_t row = 0; row < rows; row += kRowBlock) {
    const int64_t count = HWY_MIN(kRowBlock, rows - row);
    if (task.layout->dtype == DType::kF32) {
      attend_rows<float>(task, row, count);
    } else {
      attend_rows<bf16>(task, row, count);
    }
  }
}

}  // namespace

extern const AttentionKernels kAttention;
const AttentionKernels kAttention = {attend, merge, finish};

}  // namespace tokenmill::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tokenmill::cpu {
const AttentionKernels& attention_kernels(Isa isa) { return TM_CPU_TABLE(kAttention, isa); }
}  // namespace tokenmill::cpu
#endif
