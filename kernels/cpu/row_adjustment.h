#pragma once
#include <cstdint>
#include <span>

#include "kernels/cpu/sampling_kernels.h"
#include "kernels/step_tensors.h"

namespace tokenmill::cpu {

/// What changes one row's logits before a token is chosen from them (Ops::pick). Most rows: nothing.
struct RowAdjustment {
  const float* bias = nullptr;      ///< of all ids, or null
  const int32_t* counts = nullptr;  ///< of all ids, or null
  Penalties penalties;
  std::span<const int32_t> masked_ids;

  bool active() const { return bias != nullptr || counts != nullptr || !masked_ids.empty(); }
  /// out[i] = adjusted logits[i] of id first_id + i.
  void apply(const SamplingKernels& kernels, const float* logits, int64_t first_id, int64_t count, float* out) const;
};

/// Of row r. rows.slots undefined: nothing.
RowAdjustment row_adjustment(const LogitsRows& rows, int64_t r, const SamplingTables& tables);

}  // namespace tokenmill::cpu
