#include "kernels/cpu/row_adjustment.h"

#include <limits>

namespace tokenmill::cpu {

void RowAdjustment::apply(const SamplingKernels& kernels, const float* logits, int64_t first_id, int64_t count,
                          float* out) const {
  kernels.adjust(logits, bias == nullptr ? nullptr : bias + first_id, counts == nullptr ? nullptr : counts + first_id,
                 count, penalties, out);
  for (const int32_t id : masked_ids) {
    if (id >= first_id && id < first_id + count) out[id - first_id] = -std::numeric_limits<float>::infinity();
  }
}

RowAdjustment row_adjustment(const LogitsRows& rows, int64_t r, const SamplingTables& tables) {
  RowAdjustment out;
  if (!rows.slots.defined()) return out;
  const int32_t* offsets = rows.masked_offsets.as<int32_t>();
  const auto num_masked = static_cast<size_t>(offsets[r + 1] - offsets[r]);
  if (num_masked > 0) out.masked_ids = {rows.masked_ids.as<int32_t>() + offsets[r], num_masked};
  const int64_t slot = rows.slots.as<int32_t>()[r];
  const int32_t adjust = tables.adjust.defined() ? tables.adjust.as<int32_t>()[slot] : 0;
  if ((adjust & kAdjustBias) != 0) out.bias = tables.bias.row<float>(slot);
  if ((adjust & kAdjustCounts) != 0) {
    out.counts = tables.counts.row<int32_t>(slot);
    out.penalties = {tables.presence_penalty.as<float>()[slot], tables.frequency_penalty.as<float>()[slot],
                     tables.repetition_penalty.as<float>()[slot]};
  }
  return out;
}

}  // namespace tokenmill::cpu
