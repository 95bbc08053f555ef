#include "kernels/cpu/onednn_linear.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/core/check.h"
#include "kernels/cpu/gemm.h"
#include "kernels/random.h"

namespace tokenmill::cpu {

OnednnMatmul& OnednnProducts::get(DType dtype, int64_t columns, int64_t k_count, int thread) {
  auto& product = products_[{Shape{dtype, columns, k_count}, thread}];
  if (!product) product = std::make_unique<OnednnMatmul>(dtype, columns, k_count, required_impl_);
  return *product;
}

bool OnednnProducts::mark_verified(DType dtype, int64_t columns, int64_t k_count) {
  return std::exchange(verified_[Shape{dtype, columns, k_count}], true);
}

int64_t onednn_row_bucket(int64_t rows) {
  const int64_t step = rows <= 16 ? 1 : rows <= 128 ? 8 : rows <= 256 ? 16 : rows <= 512 ? 32 : 64;
  return (rows + step - 1) / step * step;
}

namespace {

struct Shard {
  int64_t begin, end;  // columns
  int64_t storage_offset;
  OnednnMatmul* product;
};

/// Column ranges of the threads: whole vocabulary tiles for a large matrix, else whole blocks of oneDNN's layout.
int64_t shard_unit(int64_t columns) { return columns >= 16 * kVocabTile ? kVocabTile : 64; }

std::vector<Shard> make_shards(const LinearSpec& spec, OnednnProducts& products, int num_threads) {
  const int64_t unit = shard_unit(spec.out_features), units = (spec.out_features + unit - 1) / unit;
  std::vector<Shard> shards;
  int64_t offset = 0;
  for (int thread = 0; thread < num_threads; ++thread) {
    const int64_t begin = std::min(units * thread / num_threads * unit, spec.out_features);
    const int64_t end = std::min(units * (thread + 1) / num_threads * unit, spec.out_features);
    OnednnMatmul* product =
        begin < end ? &products.get(spec.compute_dtype, end - begin, spec.in_features, thread) : nullptr;
    shards.push_back({begin, end, offset, product});
    if (product != nullptr) offset += (product->packed_bytes() + 63) / 64 * 64;
  }
  return shards;
}

int64_t storage_bytes(const std::vector<Shard>& shards) {
  const Shard& last = shards.back();
  return last.storage_offset + (last.product != nullptr ? (last.product->packed_bytes() + 63) / 64 * 64 : 0);
}

class OnednnLinear final : public CpuLinear {
 public:
  OnednnLinear(const LinearSpec& spec, std::span<std::byte> storage, OnednnProducts& products, Isa isa, int num_threads)
      : CpuLinear(spec, "linear"),
        storage_(storage),
        products_(products),
        kernels_(gemm_kernels(isa)),
        shards_(make_shards(spec, products, num_threads)) {}

  void multiply(TensorView out, TensorView x, const LinearCall& call, LinearContext& context,
                const ColumnHook& hook) const override {
    for (int64_t row = 0; row < x.rows(); row += kOnednnRowLimit) {
      const int64_t rows = std::min(kOnednnRowLimit, x.rows() - row);
      LinearCall part = call;
      if (part.residual.defined()) part.residual = part.residual.slice_rows(row, rows);
      multiply_rows(out.slice_rows(row, rows), x.slice_rows(row, rows), part, context);
    }
    if (hook.call == nullptr) return;
    const int64_t unit = hook.column_unit, columns = spec().out_features;
    context.team.run([&](int thread) {
      const auto range = context.team.share((columns + unit - 1) / unit, thread);
      for (int64_t u = range.begin; u < range.end; ++u) {
        hook.call(hook.context, u * unit, std::min((u + 1) * unit, columns));
      }
    });
  }

 private:
  /// The rows that the product reads: x itself, or a copy padded with zero rows to the bucket.
  TensorView padded_rows(TensorView x, int64_t bucket, Scratch& scratch) const {
    if (x.rows() == bucket) return x;
    const int64_t element = dtype_size(x.dtype()), row_bytes = x.cols() * element;
    auto* copy = scratch.get<std::byte>(bucket * row_bytes);
    for (int64_t r = 0; r < x.rows(); ++r) {
      std::memcpy(copy + r * row_bytes, static_cast<const std::byte*>(x.data()) + r * x.row_stride() * element,
                  static_cast<size_t>(row_bytes));
    }
    std::memset(copy + x.rows() * row_bytes, 0, static_cast<size_t>((bucket - x.rows()) * row_bytes));
    return TensorView(copy, x.dtype(), {bucket, x.cols()});
  }

  void multiply_rows(TensorView out, TensorView x, const LinearCall& call, LinearContext& context) const {
    const int64_t rows = x.rows(), bucket = onednn_row_bucket(rows);
    const TensorView a = padded_rows(x, bucket, context.shared_scratch);
    const bool direct =
        bucket == rows && out.dtype() == DType::kF32 && !call.bias.defined() && !call.residual.defined();
    context.team.run([&](int thread) {
      const Shard& shard = shards_[static_cast<size_t>(thread)];
      if (shard.product == nullptr) return;
      const std::byte* packed = storage_.data() + shard.storage_offset;
      Scratch& scratch = context.thread_scratch[static_cast<size_t>(thread)];
      Scratch& sums = product_scratch_[static_cast<size_t>(thread)];
      if (direct) {
        shard.product->run(rows, a.data(), a.row_stride(), packed, out.as<float>() + shard.begin, out.row_stride(),
                           sums);
        return;
      }
      const int64_t columns = shard.end - shard.begin;
      float* c = scratch.get(bucket * columns);
      shard.product->run(bucket, a.data(), a.row_stride(), packed, c, columns, sums);
      kernels_.epilogue({.c = c,
                         .ldc = columns,
                         .rows = rows,
                         .column_begin = shard.begin,
                         .columns = columns,
                         .out = out,
                         .bias = call.bias,
                         .residual = call.residual});
    });
  }

  const Shard& shard_of(int64_t column) const {
    return *std::find_if(shards_.begin(), shards_.end(), [&](const Shard& s) { return column < s.end; });
  }

  template <typename T, typename Value>
  void pack_column(const Shard& shard, int64_t column, int64_t k_begin, int64_t k_end, Value&& value) {
    T* packed = reinterpret_cast<T*>(storage_.data() + shard.storage_offset) +
                shard.product->column_offsets()[static_cast<size_t>(column)];
    const std::vector<int64_t>& offsets = shard.product->k_offsets();
    for (int64_t k = k_begin; k < k_end; ++k) packed[offsets[static_cast<size_t>(k)]] = value(k);
  }

  void pack_row(int64_t row, const float* values) override {
    const Shard& shard = shard_of(row);
    const int64_t k = spec().in_features;
    if (spec().compute_dtype == DType::kF32) {
      pack_column<float>(shard, row - shard.begin, 0, k, [&](int64_t i) { return values[i]; });
    } else {
      pack_column<bf16>(shard, row - shard.begin, 0, k, [&](int64_t i) { return to_bf16(values[i]); });
    }
  }

  void pad() override {
    for (const Shard& shard : shards_) {
      if (shard.product != nullptr) zero_padding(shard);
    }
  }

  void check_packed() const override {
    for (const Shard& shard : shards_) {
      if (shard.product == nullptr) continue;
      if (!products_.mark_verified(spec().compute_dtype, shard.end - shard.begin, spec().in_features)) verify(shard);
    }
  }

  void zero_padding(const Shard& shard) {
    const auto k_padded = static_cast<int64_t>(shard.product->k_offsets().size());
    const auto columns_padded = static_cast<int64_t>(shard.product->column_offsets().size());
    for (int64_t column = 0; column < columns_padded; ++column) {
      const int64_t k_begin = column < shard.end - shard.begin ? spec().in_features : 0;
      if (spec().compute_dtype == DType::kF32) {
        pack_column<float>(shard, column, k_begin, k_padded, [](int64_t) { return 0.0f; });
      } else {
        pack_column<bf16>(shard, column, k_begin, k_padded, [](int64_t) { return bf16{0}; });
      }
    }
  }

  /// Equal rows must come out with the bits of one row alone, however many are computed together, wherever they stand
  /// and however far apart they lie. The large counts are left out where they would take seconds.
  void verify(const Shard& shard) const {
    constexpr int64_t kRowCounts[] = {1,  2,  3,  4,  5,  6,  7,  8,   9,   10,  11,  12,  13,
                                      14, 15, 16, 24, 40, 64, 72, 128, 144, 256, 288, 512, kOnednnRowLimit};
    constexpr double kMostFlops = 2e10;
    const int64_t columns = shard.end - shard.begin, k = spec().in_features;
    Scratch sums;
    std::vector<float> alone(static_cast<size_t>(columns)), out;
    for (const int64_t rows : kRowCounts) {
      if (rows > 16 && 2.0 * static_cast<double>(rows) * static_cast<double>(columns * k) > kMostFlops) break;
      for (const int64_t gap : {0, 16}) {
        const std::vector<std::byte> a = equal_rows(rows, k + gap);
        out.resize(static_cast<size_t>(rows * (columns + gap)));
        shard.product->run(rows, a.data(), k + gap, storage_.data() + shard.storage_offset, out.data(), columns + gap,
                           sums);
        if (rows == 1 && gap == 0) std::copy_n(out.begin(), columns, alone.begin());
        for (int64_t r = 0; r < rows; ++r) {
          const float* row = out.data() + r * (columns + gap);
          if (std::memcmp(alone.data(), row, static_cast<size_t>(columns) * sizeof(float)) == 0) continue;
          throw Error(ErrorKind::kDevice,
                      "oneDNN ({}) gives other bits for a row of a {} product with [{}, {}] when {} rows are computed "
                      "together; results would depend on the batch. Choose --cpu-isa avx2",
                      shard.product->impl(), to_string(spec().compute_dtype), columns, k, rows);
        }
      }
    }
  }

  /// Rows of the same numbers, stride elements apart.
  std::vector<std::byte> equal_rows(int64_t rows, int64_t stride) const {
    const int64_t element = dtype_size(spec().compute_dtype);
    std::vector<std::byte> a(static_cast<size_t>(rows * stride * element));
    for (int64_t i = 0; i < rows * stride; ++i) {
      const auto value = static_cast<float>(uniform(1, i % stride) - 0.5);
      if (spec().compute_dtype == DType::kF32) {
        reinterpret_cast<float*>(a.data())[i] = value;
      } else {
        reinterpret_cast<bf16*>(a.data())[i] = to_bf16(value);
      }
    }
    return a;
  }

  std::span<std::byte> storage_;
  OnednnProducts& products_;
  const GemmKernels& kernels_;
  std::vector<Shard> shards_;
  mutable std::vector<Scratch> product_scratch_ = std::vector<Scratch>(shards_.size());
};

}  // namespace

int64_t onednn_linear_bytes(const LinearSpec& spec, OnednnProducts& products, int num_threads) {
  return storage_bytes(make_shards(spec, products, num_threads));
}

std::unique_ptr<CpuLinear> make_onednn_linear(const LinearSpec& spec, std::span<std::byte> storage,
                                              OnednnProducts& products, Isa isa, int num_threads) {
  return std::make_unique<OnednnLinear>(spec, storage, products, isa, num_threads);
}

}  // namespace tokenmill::cpu
