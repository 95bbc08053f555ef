#include "kernels/cpu/cpu_linear.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/core/check.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/onednn_linear.h"

namespace tokenmill::cpu {

CpuLinear::CpuLinear(const LinearSpec& spec, std::string name)
    : spec_(spec), rows_(spec.parts, spec.out_features, spec.in_features, std::move(name)) {}

void CpuLinear::write(int part, int64_t byte_offset, std::span<const std::byte> bytes) {
  rows_.write(part, byte_offset, bytes, [this](const WeightRows::Row& row) { pack_row(row.row, row.values.data()); });
}

void CpuLinear::finish() {
  rows_.check_complete();
  pad();
  check_packed();
}

namespace {

class PanelLinear final : public CpuLinear {
 public:
  PanelLinear(const LinearSpec& spec, std::span<std::byte> storage, Isa isa)
      : CpuLinear(spec, "linear"), storage_(storage), kernels_(gemm_kernels(isa)) {}

  void multiply(TensorView out, TensorView x, const LinearCall& call, LinearContext& context,
                const ColumnHook& hook) const override {
    GemmCall gemm{.a = nullptr,
                  .lda = 0,
                  .rows = x.rows(),
                  .k_count = spec().in_features,
                  .panels = storage_.data(),
                  .weight_dtype = spec().compute_dtype,
                  .columns = spec().out_features,
                  .out = out,
                  .bias = call.bias,
                  .residual = call.residual};
    prepare_rows(x, context, gemm);
    const int64_t unit = std::max<int64_t>(1, hook.column_unit / kPanelWidth), panels = num_panels(gemm.columns);
    const int64_t units = (panels + unit - 1) / unit;
    context.team.run_sized(gemm.rows * gemm.k_count * panels, [&](int thread) {
      float* scratch = context.thread_scratch[static_cast<size_t>(thread)].get(kGemmScratchFloats);
      const auto range = context.team.share(units, thread);
      if (hook.call == nullptr) {
        kernels_.panels(gemm, range.begin * unit, std::min(range.end * unit, panels), scratch);
        return;
      }
      for (int64_t u = range.begin; u < range.end; ++u) {
        const int64_t begin = u * unit, end = std::min((u + 1) * unit, panels);
        kernels_.panels(gemm, begin, end, scratch);
        hook.call(hook.context, begin * kPanelWidth, std::min(end * kPanelWidth, gemm.columns));
      }
    });
  }

 private:
  /// f32 rows are read where they are; bf16 rows, and rows whose stride would put all of a tile into one L1 set, are
  /// copied to shared scratch once for all threads.
  void prepare_rows(TensorView x, LinearContext& context, GemmCall& gemm) const {
    const bool f32 = x.dtype() == DType::kF32;
    if (f32 && x.row_stride() * 4 % 4096 != 0) {
      gemm.a = x.as<float>();
      gemm.lda = x.row_stride();
      return;
    }
    gemm.lda = gemm.k_count + (gemm.k_count % 1024 == 0 ? 16 : 0);
    float* a = context.shared_scratch.get(gemm.rows * gemm.lda);
    gemm.a = a;
    context.team.run_sized(gemm.rows * gemm.k_count / 8, [&](int thread) {
      const auto range = context.team.share(gemm.rows, thread);
      const int64_t count = range.end - range.begin;
      if (!f32) {
        kernels_.widen_rows(x.row<bf16>(range.begin), x.row_stride(), count, gemm.k_count, a + range.begin * gemm.lda,
                            gemm.lda);
        return;
      }
      for (int64_t r = range.begin; r < range.end; ++r) std::copy_n(x.row<float>(r), gemm.k_count, a + r * gemm.lda);
    });
  }

  template <typename T>
  void pack(int64_t row, const float* values) {
    const int64_t k_count = spec().in_features;
    T* panel =
        reinterpret_cast<T*>(storage_.data()) + row / kPanelWidth * panel_elements(k_count, spec().compute_dtype);
    for (int64_t k = 0; k < k_count; ++k) {
      T& element = panel[panel_index<T>(k, row % kPanelWidth)];
      if constexpr (sizeof(T) == 2) {
        element = to_bf16(values[k]);
      } else {
        element = values[k];
      }
    }
  }

  void pack_row(int64_t row, const float* values) override {
    if (spec().compute_dtype == DType::kF32) {
      pack<float>(row, values);
    } else {
      pack<bf16>(row, values);
    }
  }

  /// The last panel's missing columns are computed and dropped: zeros keep that free of slow subnormals and NaN.
  void pad() override {
    const std::vector<float> zeros(static_cast<size_t>(spec().in_features), 0.0f);
    const int64_t n = spec().out_features;
    for (int64_t row = n; row < num_panels(n) * kPanelWidth; ++row) pack_row(row, zeros.data());
  }

  std::span<std::byte> storage_;
  const GemmKernels& kernels_;
};

class CpuEmbedding final : public Embedding {
 public:
  CpuEmbedding(const LinearSpec& spec, std::span<std::byte> storage)
      : spec_(spec), rows_(spec.parts, spec.out_features, spec.in_features, "embedding"), storage_(storage) {}
  const LinearSpec& spec() const override { return spec_; }
  int64_t granularity(int part) const override { return rows_.granularity(part); }
  void write(int part, int64_t byte_offset, std::span<const std::byte> bytes) override {
    rows_.write(part, byte_offset, bytes, [this](const WeightRows::Row& row) {
      store_rounded(table().slice_rows(row.row, 1).data(), spec_.compute_dtype, row.values);
    });
  }
  void finish() override { rows_.check_complete(); }
  void adopt() override {}
  TensorView table() const {
    return TensorView(storage_.data(), spec_.compute_dtype, {spec_.out_features, spec_.in_features});
  }

 private:
  LinearSpec spec_;
  WeightRows rows_;
  std::span<std::byte> storage_;
};

class VectorSink final : public WeightSink {
 public:
  VectorSink(TensorView out, const std::vector<LinearPart>& parts)
      : out_(out), width_(vector_width(out, parts)), rows_(parts, out.num_elements() / width_, width_, "vector") {}
  int64_t granularity(int part) const override { return rows_.granularity(part); }
  void write(int part, int64_t byte_offset, std::span<const std::byte> bytes) override {
    rows_.write(part, byte_offset, bytes, [this](const WeightRows::Row& row) {
      const int64_t offset_bytes = row.row * width_ * dtype_size(out_.dtype());
      store_rounded(static_cast<std::byte*>(out_.data()) + offset_bytes, out_.dtype(), row.values);
    });
  }
  void finish() override { rows_.check_complete(); }
  void adopt() override {}

 private:
  TensorView out_;
  int64_t width_;
  WeightRows rows_;
};

/// Fixed by ISA and shape alone, the shape of the whole tensors where a rank holds some of their rows: a row's bits do
/// not depend on how many ranks share them. Small or odd matrices stay with the own GEMM: oneDNN has no row-invariant
/// product for all of them, and there is nothing to gain.
bool use_onednn(Isa isa, const LinearSpec& spec) {
  int64_t whole_rows = 0;
  for (const LinearPart& part : spec.parts) whole_rows += part.source_rows;
  const bool large =
      spec.out_features > 0 && whole_rows >= 256 && spec.in_features >= 256 && spec.in_features % 32 == 0;
  return large && (isa == Isa::kAvx512Bf16 || (isa == Isa::kAvx512 && spec.compute_dtype == DType::kF32));
}

}  // namespace

int64_t panel_linear_bytes(const LinearSpec& spec) {
  return num_panels(spec.out_features) * panel_elements(spec.in_features, spec.compute_dtype) *
         dtype_size(spec.compute_dtype);
}

std::unique_ptr<CpuLinear> make_panel_linear(const LinearSpec& spec, std::span<std::byte> storage, Isa isa) {
  return std::make_unique<PanelLinear>(spec, storage, isa);
}

std::string CpuOps::weight_layout() const {
  std::string layout = fmt::format("cpu {}, layout {}, panels of {}", to_string(isa_), kLayoutVersion, kPanelWidth);
  if (isa_ != Isa::kAvx2)
    layout += fmt::format(", oneDNN {} in shards for {} threads", onednn_version(), team_.num_threads());
  return layout;
}

int64_t CpuOps::linear_bytes(const LinearSpec& spec) {
  if (use_onednn(isa_, spec)) return onednn_linear_bytes(spec, *onednn_, team_.num_threads());
  return panel_linear_bytes(spec);
}

int64_t CpuOps::embedding_bytes(const LinearSpec& spec) {
  return spec.out_features * spec.in_features * dtype_size(spec.compute_dtype);
}

std::unique_ptr<Linear> CpuOps::do_make_linear(const LinearSpec& spec, std::span<std::byte> storage) {
  if (use_onednn(isa_, spec)) {
    return make_onednn_linear(spec, storage, *onednn_, isa_, team_.num_threads());
  }
  return make_panel_linear(spec, storage, isa_);
}

std::unique_ptr<Embedding> CpuOps::do_make_embedding(const LinearSpec& spec, std::span<std::byte> storage) {
  return std::make_unique<CpuEmbedding>(spec, storage);
}

std::unique_ptr<WeightSink> CpuOps::make_vector_sink(TensorView out, const std::vector<LinearPart>& parts) {
  return std::make_unique<VectorSink>(out, parts);
}

void CpuOps::do_linear(TensorView out, TensorView x, const Linear& weights, const LinearCall& call) {
  const auto* own = dynamic_cast<const CpuLinear*>(&weights);
  TM_ASSERT(own != nullptr, "a linear of another device");
  const auto multiply = [=, this] {
    LinearContext context{team_, thread_scratch_, shared_scratch_};
    own->multiply(out, x, call, context, ColumnHook{});
  };
  stream_.submit(multiply, OpKind::kGemm);
}

namespace {

void fill_minus_zero(TensorView out, int64_t row) {
  if (out.dtype() == DType::kF32) {
    std::fill_n(out.row<float>(row), out.cols(), -0.0f);
  } else {
    std::fill_n(out.row<bf16>(row), out.cols(), to_bf16(-0.0f));
  }
}

}  // namespace

void CpuOps::do_embed(TensorView out, const Embedding& table, TensorView token_ids, TensorView last_token,
                      int64_t first_id) {
  const auto* own = dynamic_cast<const CpuEmbedding*>(&table);
  TM_ASSERT(own != nullptr, "an embedding of another device");
  stream_.submit([=, this] {
    const TensorView rows = own->table();
    const int64_t element = dtype_size(out.dtype()), row_bytes = rows.cols() * element;
    team_.run_sized(out.num_elements() / 16, [&](int thread) {
      const auto range = team_.share(out.rows(), thread);
      for (int64_t t = range.begin; t < range.end; ++t) {
        int64_t id = token_ids.as<int32_t>()[t];
        if (id < 0) id = -1 - id < last_token.cols() ? last_token.as<int32_t>()[-1 - id] : -1;
        if (id < first_id || id >= first_id + rows.rows()) {
          fill_minus_zero(out, t);
          continue;
        }
        const auto* row = static_cast<const std::byte*>(rows.data()) + (id - first_id) * row_bytes;
        std::copy_n(row, row_bytes, static_cast<std::byte*>(out.data()) + t * out.row_stride() * element);
      }
    });
  });
}

}  // namespace tokenmill::cpu
