// rope_angles, rope_and_store_kv: formulas in kernels/ops.h.
// Work:   tokens in fixed ranges over the team; per token: head norms, rotation in place, then keys and values are
//         written element by element into their strip (k_dim 4-byte pairs and v_dim halves for bf16).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/norm-inl.h"
#include "kernels/cpu/target.h"

namespace tokenmill::cpu {
#ifndef TOKENMILL_CPU_ROPE_TABLE
#define TOKENMILL_CPU_ROPE_TABLE
/// Where rope_and_store_kv puts this layer's keys and values.
struct KvStore {
  std::byte* data;
  const KvPageLayout* layout;
  const int64_t* slots;  ///< [T]
  int64_t block_size, layer;
};
struct RopeKernels {
  void (*rope_and_store)(const RopeStoreArgs& args, const KvStore& kv, int64_t begin, int64_t end);
};
#endif
}  // namespace tokenmill::cpu

HWY_BEFORE_NAMESPACE();
namespace tokenmill::cpu::HWY_NAMESPACE {
namespace {

/// (x[i], x[i + half]) rotated by the angle of i; half = rotary_dim / 2.
template <typename T>
void rotate(T* x, const float* cos_sin, int64_t half) {
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t n = HWY_MIN(half - i, kLanes);
    const bool full = n == kLanes;
    const VecF a = full ? load(x + i) : load_n(x + i, n), b = full ? load(x + half + i) : load_n(x + half + i, n);
    const float* c = cos_sin + i;
    const VecF cosine = full ? load(c) : load_n(c, n), sine = full ? load(c + half) : load_n(c + half, n);
    const VecF first = hn::MulSub(a, cosine, hn::Mul(b, sine)), second = hn::MulAdd(a, sine, hn::Mul(b, cosine));
    if (full) {
      store(first, x + i);
      store(second, x + half + i);
    } else {
      store_n(first, x + i, n);
      store_n(second, x + half + i, n);
    }
  }
}

template <typename T>
void norm_and_rotate(T* x, int64_t heads, int64_t dim, const TensorView& norm, float eps, const float* cos_sin,
                     int64_t half) {
  for (int64_t h = 0; h < heads; ++h) {
    if (norm.defined()) rms_norm_row(x + h * dim, x + h * dim, norm.as<T>(), dim, eps);
    rotate(x + h * dim, cos_sin, half);
  }
}

template <typename T>
void store_token(const T* k, const T* v, const KvStore& kv, int64_t slot) {
  const KvPageLayout& layout = *kv.layout;
  const int64_t block = slot / kv.block_size, offset = slot % kv.block_size, t = offset % kStripTokens;
  for (int64_t h = 0; h < layout.num_kv_heads; ++h) {
    std::byte* strip = kv.data + layout.strip_offset(block, kv.layer, h, offset / kStripTokens);
    T* keys = reinterpret_cast<T*>(strip);
    T* values = reinterpret_cast<T*>(strip + layout.key_bytes);
    for (int64_t d = 0; d < layout.k_dim; ++d) keys[key_index<T>(t, d)] = k[h * layout.k_dim + d];
    for (int64_t d = 0; d < layout.v_dim; ++d) values[value_index<T>(t, d)] = v[h * layout.v_dim + d];
  }
}

template <typename T>
void rope_rows(const RopeStoreArgs& args, const KvStore& kv, int64_t begin, int64_t end) {
  const int64_t k_dim = kv.layout->k_dim, half = args.cos_sin.cols() / 2;
  for (int64_t t = begin; t < end; ++t) {
    const float* cos_sin = args.cos_sin.row<float>(t);
    norm_and_rotate(args.q.row<T>(t), args.q.cols() / k_dim, k_dim, args.q_norm, args.norm_eps, cos_sin, half);
    norm_and_rotate(args.k.row<T>(t), args.k.cols() / k_dim, k_dim, args.k_norm, args.norm_eps, cos_sin, half);
    if (kv.slots[t] >= 0) store_token(args.k.row<T>(t), args.v.row<T>(t), kv, kv.slots[t]);
  }
}

void rope_and_store(const RopeStoreArgs& args, const KvStore& kv, int64_t begin, int64_t end) {
  (args.q.dtype() == DType::kF32 ? rope_rows<float> : rope_rows<bf16>)(args, kv, begin, end);
}

}  // namespace

extern const RopeKernels kRope;
const RopeKernels kRope = {rope_and_store};

}  // namespace tokenmill::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>

#include "kernels/core/check.h"

namespace tokenmill::cpu {

// Cosines in f64, rounded once: the same value whatever vector length a libm might choose.
void CpuOps::do_rope_angles(TensorView cos_sin, TensorView positions, TensorView inv_freq, float multiplier) {
  stream_.submit([=, this] {
    const int64_t half = cos_sin.cols() / 2;
    team_.run_sized(cos_sin.num_elements() * 4, [&](int thread) {
      const auto range = team_.share(cos_sin.rows(), thread);
      for (int64_t t = range.begin; t < range.end; ++t) {
        const auto position = static_cast<float>(positions.as<int64_t>()[t]);
        float* row = cos_sin.row<float>(t);
        for (int64_t i = 0; i < half; ++i) {
          const double angle = position * inv_freq.as<float>()[i];
          row[i] = static_cast<float>(std::cos(angle)) * multiplier;
          row[half + i] = static_cast<float>(std::sin(angle)) * multiplier;
        }
      }
    });
  });
}

void CpuOps::do_rope_and_store_kv(const RopeStoreArgs& args, const StepTensors& step, KvLayer kv) {
  stream_.submit([=, this] {
    const auto& pool = dynamic_cast<const CpuKvPool&>(*kv.pool);
    const TensorView slots = step.groups[static_cast<size_t>(kv.group)].slot_mapping;
    const int64_t limit = pool.num_blocks() * pool.spec().block_size;
    for (int64_t t = 0; t < args.q.rows(); ++t) {
      TM_ASSERT(slots.as<int64_t>()[t] < limit, "slot {} of token {}; the pool has {}", slots.as<int64_t>()[t], t,
                limit);
    }
    const KvStore store{pool.data(), &pool.layout(), slots.as<int64_t>(), pool.spec().block_size, kv.layer};
    team_.run_sized(args.q.num_elements() + 2 * args.k.num_elements(), [&](int thread) {
      const auto range = team_.share(args.q.rows(), thread);
      TM_CPU_TABLE(kRope, isa_).rope_and_store(args, store, range.begin, range.end);
    });
  });
}

}  // namespace tokenmill::cpu
#endif
