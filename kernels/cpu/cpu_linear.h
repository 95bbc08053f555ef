#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "kernels/core/tensor.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/thread_team.h"
#include "kernels/linear.h"
#include "kernels/ops.h"
#include "kernels/weight_rows.h"

namespace tokenmill::cpu {

/// What a linear needs from the backend while it runs.
struct LinearContext {
  ThreadTeam& team;
  std::span<Scratch> thread_scratch;
  Scratch& shared_scratch;
};

/// Work on columns of out that a caller fuses behind the product, on the thread that made them, while they are in
/// cache. Column ranges given to it start at multiples of column_unit (or end the matrix).
struct ColumnHook {
  int64_t column_unit = 1;
  void (*call)(void* context, int64_t column_begin, int64_t column_end) = nullptr;
  void* context = nullptr;
};

/// A packed weight matrix of this device. Each row of the source becomes a column of the packed matrix.
class CpuLinear : public Linear {
 public:
  CpuLinear(const LinearSpec& spec, std::string name);
  const LinearSpec& spec() const override { return spec_; }
  int64_t granularity(int part) const override { return rows_.granularity(part); }
  void write(int part, int64_t byte_offset, std::span<const std::byte> bytes) override;
  void finish() override;
  void adopt() override { check_packed(); }

  /// out = x W^T (+ bias) (+ residual): Ops::linear after its checks.
  virtual void multiply(TensorView out, TensorView x, const LinearCall& call, LinearContext& context,
                        const ColumnHook& hook) const = 0;

 private:
  virtual void pack_row(int64_t row, const float* values) = 0;
  /// After the last row: padding.
  virtual void pad() {}
  /// On storage that is complete: self-tests.
  virtual void check_packed() const {}

  LinearSpec spec_;
  WeightRows rows_;
};

/// Panels for the own GEMM (panel.h), any ISA.
int64_t panel_linear_bytes(const LinearSpec& spec);
std::unique_ptr<CpuLinear> make_panel_linear(const LinearSpec& spec, std::span<std::byte> storage, Isa isa);

}  // namespace tokenmill::cpu
