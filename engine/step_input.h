#pragma once
#include <cstdint>
#include <vector>

#include "engine/runner.h"
#include "kernels/ops.h"

namespace tokenmill {

/// What a rank knows about one slot between steps: rebuilt from the deltas of the plans.
struct SlotState {
  bool used = false;
  uint64_t occupant = 0;                        ///< counts the sequences that have held the slot
  std::vector<int32_t> token_ids;               ///< known tokens, prompt and collected samples, by position
  std::vector<std::vector<int32_t>> block_ids;  ///< per KV group
};

/// The flattened batch of one step and the per-slot sampling tables: fixed device buffers, filled from pinned host
/// memory. One StepInput per step in flight; the sampling tables are shared by all (SlotTables).
class StepInput {
 public:
  StepInput(Ops& ops, const RunnerLimits& limits);
  /// Fills the host side from the plan and the slots (deltas already applied), copies it to the device, and returns the
  /// step's views; they stay valid until the next call.
  StepTensors stage(const StepPlan& plan, const std::vector<SlotState>& slots);

 private:
  struct Field {
    int64_t offset = 0;
    DType dtype = DType::kI32;
  };
  template <typename T>
  T* host(const Field& field) const;
  TensorView device(const Field& field, std::initializer_list<int64_t> shape, int64_t row_stride = -1) const;
  void flatten(const StepPlan& plan, const std::vector<SlotState>& slots);
  void fill_group(int group, const StepPlan& plan, const std::vector<SlotState>& slots);

  Ops& ops_;
  RunnerLimits limits_;
  std::vector<int64_t> max_blocks_;  ///< per group: columns of the block table
  Field token_ids_, positions_, cu_seqlens_, seq_lens_, logits_rows_, row_slots_;
  std::vector<Field> block_tables_, slot_mappings_;
  int64_t small_bytes_ = 0;  ///< everything but the block tables: copied whole
  Buffer host_, device_;
};

/// The device tables of SamplingTables for max_num_seqs slots.
class SlotTables {
 public:
  SlotTables(Ops& ops, int64_t max_num_seqs);
  const SamplingTables& tables() const { return tables_; }
  /// Enqueues the copy of one slot's parameters; last_token is left alone.
  void set(int32_t slot, const SlotSampling& sampling);

 private:
  Ops& ops_;
  Buffer host_, device_;
  SamplingTables tables_;
  SamplingTables staging_;
};

}  // namespace tokenmill
