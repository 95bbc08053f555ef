#include "tests/support/fake_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/core/check.h"
#include "kernels/weight_rows.h"
#include "tests/support/fake_weights.h"
#include "tests/support/random.h"
#include "tests/support/reference.h"

namespace tokenmill::test {
namespace {

double get(const TensorView& view, int64_t row, int64_t column) { return HostTensor::get_at(view, row, column); }
void put(const TensorView& view, int64_t row, int64_t column, double value) {
  HostTensor::set_at(view, row, column, value);
}
double rounded(DType dtype, double value) {
  return dtype == DType::kBF16 ? to_float(to_bf16(static_cast<float>(value))) : static_cast<float>(value);
}

/// Rows of values rounded to the compute dtype, kept as f32 in the caller's storage.
template <typename Base>
class FakeWeights final : public Base {
 public:
  FakeWeights(const LinearSpec& spec, std::span<std::byte> storage)
      : spec_(spec), rows_(spec.parts, spec.out_features, spec.in_features, "fake"), storage_(storage) {}
  const LinearSpec& spec() const override { return spec_; }
  int64_t granularity(int part) const override { return rows_.granularity(part); }
  void write(int part, int64_t byte_offset, std::span<const std::byte> bytes) override {
    rows_.write(part, byte_offset, bytes, [this](const WeightRows::Row& row) {
      for (int64_t i = 0; i < spec_.in_features; ++i) {
        put(table(), row.row, i, rounded(spec_.compute_dtype, row.values[static_cast<size_t>(i)]));
      }
    });
  }
  void finish() override { rows_.check_complete(); }
  void adopt() override {}
  TensorView table() const { return TensorView(storage_.data(), DType::kF32, {spec_.out_features, spec_.in_features}); }

 private:
  LinearSpec spec_;
  WeightRows rows_;
  std::span<std::byte> storage_;
};

class FakeVector final : public WeightSink {
 public:
  FakeVector(TensorView out, const std::vector<LinearPart>& parts)
      : out_(out),
        width_(parts.at(0).col_end - parts.at(0).col_begin),
        rows_(parts, out.num_elements() / width_, width_, "fake vector") {}
  int64_t granularity(int part) const override { return rows_.granularity(part); }
  void write(int part, int64_t byte_offset, std::span<const std::byte> bytes) override {
    rows_.write(part, byte_offset, bytes, [this](const WeightRows::Row& row) {
      for (int64_t i = 0; i < width_; ++i) {
        put(out_, 0, row.row * width_ + i, row.values[static_cast<size_t>(i)]);
      }
    });
  }
  void finish() override { rows_.check_complete(); }
  void adopt() override {}

 private:
  TensorView out_;
  int64_t width_;
  WeightRows rows_;
};

/// Blocks in the canonical layout.
class FakePool final : public KvPool {
 public:
  FakePool(const KvSpec& spec, int64_t num_blocks, std::span<std::byte> storage)
      : spec_(spec), num_blocks_(num_blocks), storage_(storage) {}
  const KvSpec& spec() const override { return spec_; }
  int64_t num_blocks() const override { return num_blocks_; }
  std::byte* block(int64_t id) const { return storage_.data() + id * canonical_block_bytes(spec_); }
  TensorView values() const {
    return TensorView(storage_.data(), spec_.dtype,
                      {num_blocks_ * canonical_block_bytes(spec_) / dtype_size(spec_.dtype)});
  }
  int64_t index(int64_t slot, int64_t layer, bool key, int64_t head, int64_t dim) const {
    const int64_t heads = spec_.num_kv_heads, size = spec_.block_size, width = key ? spec_.k_dim : spec_.v_dim;
    const int64_t layers_before = slot / size * spec_.num_layers + layer;
    return layers_before * size * heads * (spec_.k_dim + spec_.v_dim) + (key ? 0 : size * heads * spec_.k_dim) +
           (slot % size * heads + head) * width + dim;
  }

 private:
  KvSpec spec_;
  int64_t num_blocks_;
  std::span<std::byte> storage_;
};

FakePool& own(KvPool& pool) { return dynamic_cast<FakePool&>(pool); }

void norm_row(const TensorView& out, const TensorView& x, int64_t row, int64_t column, int64_t n,
              const TensorView& weight, float eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += get(x, row, column + i) * get(x, row, column + i);
  const double scale = 1 / std::sqrt(sum / static_cast<double>(n) + eps);
  for (int64_t i = 0; i < n; ++i) {
    put(out, row, column + i, rounded(x.dtype(), get(x, row, column + i) * scale) * get(weight, 0, i));
  }
}

}  // namespace

TensorView fake_table(const Linear& linear) { return dynamic_cast<const FakeWeights<Linear>&>(linear).table(); }

void fake_multiply(const TensorView& out, const TensorView& x, const TensorView& w, const LinearCall& call) {
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t c = 0; c < w.rows(); ++c) {
      double sum = 0;
      for (int64_t k = 0; k < x.cols(); ++k) sum += get(x, r, k) * get(w, c, k);
      if (call.bias.defined()) sum += get(call.bias, 0, c);
      if (call.residual.defined()) sum += get(call.residual, r, c);
      put(out, r, c, sum);
    }
  }
}

int64_t FakeOps::linear_bytes(const LinearSpec& spec) { return spec.out_features * spec.in_features * 4; }

std::unique_ptr<Linear> FakeOps::do_make_linear(const LinearSpec& spec, std::span<std::byte> storage) {
  return std::make_unique<FakeWeights<Linear>>(spec, storage);
}

std::unique_ptr<Embedding> FakeOps::do_make_embedding(const LinearSpec& spec, std::span<std::byte> storage) {
  return std::make_unique<FakeWeights<Embedding>>(spec, storage);
}

std::unique_ptr<WeightSink> FakeOps::make_vector_sink(TensorView out, const std::vector<LinearPart>& parts) {
  return std::make_unique<FakeVector>(out, parts);
}

std::unique_ptr<KvPool> FakeOps::do_make_kv_pool(const KvSpec& spec, int64_t num_blocks, std::span<std::byte> storage) {
  return std::make_unique<FakePool>(spec, num_blocks, storage);
}

void FakeOps::plan(const StepTensors& step) { TM_ASSERT(step.cu_seqlens.cols() == step.seq_lens.cols() + 1); }

void FakeOps::do_copy_blocks(KvPool& pool, std::span<const BlockCopy> copies) {
  stream_.enqueue([&pool, list = std::vector(copies.begin(), copies.end())] {
    for (const BlockCopy& c : list) {
      std::memcpy(own(pool).block(c.destination), own(pool).block(c.source),
                  static_cast<size_t>(canonical_block_bytes(pool.spec())));
    }
  });
}

void FakeOps::do_zero_blocks(KvPool& pool, std::span<const int32_t> block_ids) {
  stream_.enqueue([&pool, list = std::vector(block_ids.begin(), block_ids.end())] {
    for (const int32_t id : list) {
      std::memset(own(pool).block(id), 0, static_cast<size_t>(canonical_block_bytes(pool.spec())));
    }
  });
}

void FakeOps::do_export_blocks(KvPool& pool, std::span<const int32_t> block_ids, std::span<std::byte> out) {
  stream_.synchronize();
  const int64_t bytes = canonical_block_bytes(pool.spec());
  for (size_t i = 0; i < block_ids.size(); ++i) {
    std::memcpy(out.data() + static_cast<int64_t>(i) * bytes, own(pool).block(block_ids[i]),
                static_cast<size_t>(bytes));
  }
}

void FakeOps::do_import_blocks(KvPool& pool, std::span<const int32_t> block_ids, std::span<const std::byte> in) {
  stream_.synchronize();
  const int64_t bytes = canonical_block_bytes(pool.spec());
  for (size_t i = 0; i < block_ids.size(); ++i) {
    std::memcpy(own(pool).block(block_ids[i]), in.data() + static_cast<int64_t>(i) * bytes, static_cast<size_t>(bytes));
  }
}

void FakeOps::do_embed(TensorView out, const Embedding& table, TensorView token_ids, TensorView last_token,
                       int64_t first_id) {
  const TensorView rows = dynamic_cast<const FakeWeights<Embedding>&>(table).table();
  stream_.enqueue([=] {
    for (int64_t t = 0; t < out.rows(); ++t) {
      int64_t id = token_ids.as<int32_t>()[t];
      if (id < 0) id = last_token.as<int32_t>()[-1 - id];
      const bool inside = id >= first_id && id < first_id + rows.rows();
      for (int64_t i = 0; i < out.cols(); ++i) put(out, t, i, inside ? get(rows, id - first_id, i) : -0.0);
    }
  });
}

void FakeOps::do_rms_norm(TensorView out, TensorView x, TensorView weight, float eps) {
  stream_.enqueue([=] {
    for (int64_t r = 0; r < x.rows(); ++r) norm_row(out, x, r, 0, x.cols(), weight, eps);
  });
}

void FakeOps::do_add_rms_norm(TensorView normed, TensorView hidden, TensorView block_out, TensorView weight,
                              float eps) {
  stream_.enqueue([=] {
    for (int64_t r = 0; r < hidden.rows(); ++r) {
      for (int64_t i = 0; i < hidden.cols(); ++i) put(hidden, r, i, get(hidden, r, i) + get(block_out, r, i));
      norm_row(normed, hidden, r, 0, hidden.cols(), weight, eps);
    }
  });
}

void FakeOps::do_add(TensorView hidden, TensorView block_out) {
  stream_.enqueue([=] {
    for (int64_t r = 0; r < hidden.rows(); ++r) {
      for (int64_t i = 0; i < hidden.cols(); ++i) put(hidden, r, i, get(hidden, r, i) + get(block_out, r, i));
    }
  });
}

void FakeOps::do_linear(TensorView out, TensorView x, const Linear& weights, const LinearCall& call) {
  const TensorView w = dynamic_cast<const FakeWeights<Linear>&>(weights).table();
  stream_.enqueue([=] { fake_multiply(out, x, w, call); });
}

void FakeOps::do_rope_angles(TensorView cos_sin, TensorView positions, TensorView inv_freq, float multiplier) {
  stream_.enqueue([=] {
    const int64_t half = cos_sin.cols() / 2;
    for (int64_t t = 0; t < cos_sin.rows(); ++t) {
      for (int64_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(positions.as<int64_t>()[t]) * inv_freq.as<float>()[i];
        put(cos_sin, t, i, std::cos(double{angle}) * multiplier);
        put(cos_sin, t, half + i, std::sin(double{angle}) * multiplier);
      }
    }
  });
}

void FakeOps::do_rope_and_store_kv(const RopeStoreArgs& args, const StepTensors& step, KvLayer kv) {
  const auto rotate = [](const TensorView& x, int64_t row, int64_t column, const TensorView& cos_sin) {
    const int64_t half = cos_sin.cols() / 2;
    for (int64_t i = 0; i < half; ++i) {
      const double a = get(x, row, column + i), b = get(x, row, column + half + i);
      const double c = get(cos_sin, row, i), s = get(cos_sin, row, half + i);
      put(x, row, column + i, a * c - b * s);
      put(x, row, column + half + i, b * c + a * s);
    }
  };
  stream_.enqueue([=] {
    FakePool& pool = own(*kv.pool);
    const KvSpec& spec = pool.spec();
    const auto* slots = step.groups[static_cast<size_t>(kv.group)].slot_mapping.as<int64_t>();
    for (int64_t t = 0; t < args.q.rows(); ++t) {
      for (const bool is_q : {true, false}) {
        const TensorView& x = is_q ? args.q : args.k;
        const TensorView& norm = is_q ? args.q_norm : args.k_norm;
        for (int64_t column = 0; column < x.cols(); column += spec.k_dim) {
          if (norm.defined()) norm_row(x, x, t, column, spec.k_dim, norm, args.norm_eps);
          rotate(x, t, column, args.cos_sin);
        }
      }
      if (slots[t] < 0) continue;
      for (int64_t h = 0; h < spec.num_kv_heads; ++h) {
        for (int64_t d = 0; d < spec.k_dim; ++d) {
          put(pool.values(), 0, pool.index(slots[t], kv.layer, true, h, d), get(args.k, t, h * spec.k_dim + d));
        }
        for (int64_t d = 0; d < spec.v_dim; ++d) {
          put(pool.values(), 0, pool.index(slots[t], kv.layer, false, h, d), get(args.v, t, h * spec.v_dim + d));
        }
      }
    }
  });
}

void FakeOps::do_attention(TensorView out, TensorView q, const StepTensors& step, KvLayer kv,
                           const AttentionParams& params) {
  stream_.enqueue([=] {
    const FakePool& pool = own(*kv.pool);
    const KvSpec& spec = pool.spec();
    const TensorView table = step.groups[static_cast<size_t>(kv.group)].block_table;
    const int64_t heads = q.cols() / spec.k_dim;
    const auto* cu_seqlens = step.cu_seqlens.as<int32_t>();
    for (int64_t s = 0; s < step.seq_lens.cols(); ++s) {
      for (int64_t t = cu_seqlens[s]; t < cu_seqlens[s + 1]; ++t) {
        const int64_t position = step.positions.as<int64_t>()[t];
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t kv_head = h / (heads / spec.num_kv_heads);
          reference::Values query, keys, values;
          for (int64_t d = 0; d < spec.k_dim; ++d) query.push_back(get(q, t, h * spec.k_dim + d));
          const int64_t low = params.window > 0 ? std::max<int64_t>(0, position + 1 - params.window) : 0;
          for (int64_t p = 0; p <= position; ++p) {
            const int64_t block = p < low ? 0 : table.row<int32_t>(s)[p / spec.block_size];
            const int64_t slot = block * spec.block_size + p % spec.block_size;
            for (int64_t d = 0; d < spec.k_dim; ++d) {
              keys.push_back(p < low ? 0 : get(pool.values(), 0, pool.index(slot, kv.layer, true, kv_head, d)));
            }
            for (int64_t d = 0; d < spec.v_dim; ++d) {
              values.push_back(p < low ? 0 : get(pool.values(), 0, pool.index(slot, kv.layer, false, kv_head, d)));
            }
          }
          const auto result =
              reference::attention({spec.k_dim, spec.v_dim, params.scale, params.softcap, params.window}, query.data(),
                                   position, keys, values);
          for (int64_t d = 0; d < spec.v_dim; ++d) put(out, t, h * spec.v_dim + d, result[static_cast<size_t>(d)]);
        }
      }
    }
  });
}

void FakeOps::do_gated_activation(TensorView out, TensorView gate_up, Activation activation) {
  stream_.enqueue([=] {
    for (int64_t r = 0; r < out.rows(); ++r) {
      for (int64_t i = 0; i < out.cols(); ++i) {
        const double g = get(gate_up, r, i), u = get(gate_up, r, out.cols() + i);
        put(out, r, i, (activation == Activation::kSilu ? g / (1 + std::exp(-g)) : g) * u);
      }
    }
  });
}

void FakeOps::do_gather_rows(TensorView out, TensorView x, TensorView rows) {
  stream_.enqueue([=] {
    for (int64_t r = 0; r < out.rows(); ++r) {
      for (int64_t i = 0; i < out.cols(); ++i) put(out, r, i, get(x, rows.as<int32_t>()[r], i));
    }
  });
}

void FakeOps::do_sum_parts(TensorView out, TensorView parts, TensorView bias) {
  stream_.enqueue([=] {
    for (int64_t r = 0; r < out.rows(); ++r) {
      for (int64_t i = 0; i < out.cols(); ++i) {
        auto sum = static_cast<float>(get(parts, r, i));
        for (int64_t p = 1; p < parts.size(0); ++p) sum += static_cast<float>(get(parts, p * parts.size(1) + r, i));
        if (bias.defined()) sum += static_cast<float>(get(bias, 0, i));
        put(out, r, i, sum);
      }
    }
  });
}

}  // namespace tokenmill::test
