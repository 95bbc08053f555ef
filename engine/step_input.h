#pragma once
#include <cstdint>
#include <vector>

#include "engine/runner.h"
#include "engine/step_output.h"
#include "kernels/ops.h"

namespace tokenmill {

/// What a rank knows about one slot between steps: rebuilt from the deltas of the plans.
struct SlotState {
  bool used = false;
  uint64_t occupant = 0;                        ///< counts the sequences that have held the slot
  std::vector<int32_t> token_ids;               ///< known tokens, prompt and collected samples, by position
  std::vector<std::vector<int32_t>> block_ids;  ///< per KV group
  int64_t num_prompt_tokens = 0;
  int32_t num_logprobs = -1, num_prompt_logprobs = -1;  ///< as SlotSampling's
  bool lists_logprobs = false;                          ///< the ids of logprob_token_ids, not the most likely
  /// With penalties: the device's counts cover the tokens before this position; -1: they are not right for any.
  int64_t counted_end = -1;
  bool has_penalties = false;
  int64_t shortlist = 0;  ///< shortlist_capacity() of its parameters
};

/// What the tensors of a step are for: its own sizes, or larger ones that it is padded to.
struct StepSizes {
  int64_t num_tokens = 0, num_sequences = 0, num_rows = 0;
};

/// The flattened batch of a step: fixed device buffers, filled from pinned host memory. Each step in flight has host
/// memory of its own (`flight`, below max_steps_in_flight); the device's is that of the step that runs.
class StepInput {
 public:
  StepInput(Ops& ops, const RunnerLimits& limits);
  /// Device memory that it takes, and as much on the host for each step in flight.
  static int64_t device_bytes(const RunnerLimits& limits);
  /// The plan's own sizes.
  static StepSizes sizes_of(const StepPlan& plan);

  /// Fills the host side from the plan and the slots (deltas already applied), copies it to the device, and returns the
  /// step's views. sizes: at least the plan's; what is behind the plan's is padding: tokens of no sequence that are
  /// written nowhere, sequences of no tokens, rows of token 0 for the slot behind the last one.
  StepTensors stage(const StepPlan& plan, const std::vector<SlotState>& slots, const StepSizes& sizes, int flight = 0);
  StepTensors stage(const StepPlan& plan, const std::vector<SlotState>& slots) {
    return stage(plan, slots, sizes_of(plan));
  }
  /// Views of such sizes, without reports, scores and a shortlist: those that stage() returns for steps that have none.
  StepTensors views(const StepSizes& sizes) const;
  /// Of the plan staged last: the tokens whose hidden states are wanted, [H] i32 on the device.
  TensorView hidden_tokens() const { return device(layout_.hidden_tokens, {num_hidden_}); }
  /// Rows of scores that a slot has in the step: per position the most likely tokens, then its list, where it has them.
  static int64_t num_scored_rows(const ScheduledSlot& scheduled, const SlotState& slot);
  /// What the step brings back.
  static StepOutputShape output_shape(const StepPlan& plan, const std::vector<SlotState>& slots);

 private:
  struct Field {
    int64_t offset = 0;
    DType dtype = DType::kI32;
  };
  struct Layout {
    explicit Layout(const RunnerLimits& limits);
    Field token_ids, positions, cu_seqlens, seq_lens, row_tokens, row_slots, forced_ids, masked_offsets, num_logprobs,
        listed_slots;
    std::vector<Field> slot_mappings;
    Field masked_ids, hidden_tokens, scored_tokens, scored_ids, scored_num_logprobs, scored_listed_slots, scored_lists;
    std::vector<Field> block_tables;
    std::vector<int64_t> max_blocks;  ///< per group: columns of the block table
    int64_t num_bytes = 0;
  };
  template <typename T>
  T* host(const Field& field) const;
  int64_t padding_slot() const { return limits_.max_num_seqs; }
  void pad(const StepPlan& plan, const StepSizes& sizes, int32_t num_masked);
  TensorView device(const Field& field, std::initializer_list<int64_t> shape, int64_t row_stride = -1) const;
  /// The first count elements go to the device with the rest of the step.
  void send(const Field& field, int64_t count, int64_t begin = 0);
  void send_sizes(const StepSizes& sizes, int64_t num_masked);
  void flatten(const StepPlan& plan, const std::vector<SlotState>& slots);
  int64_t fill_rows(const StepPlan& plan, const std::vector<SlotState>& slots);
  void fill_hidden(const StepPlan& plan);
  void fill_scored(const StepPlan& plan, const std::vector<SlotState>& slots);
  void fill_lists(const StepPlan& plan, const std::vector<SlotState>& slots, int64_t width);
  void fill_group(int group, const StepPlan& plan, const std::vector<SlotState>& slots);

  Ops& ops_;
  RunnerLimits limits_;
  Layout layout_;
  int64_t num_hidden_ = 0;
  std::vector<Buffer> host_;        // by flight
  const Buffer* filled_ = nullptr;  // the one in use
  Buffer device_;
  std::vector<CopyPiece> pieces_;  // of the step being staged
};

}  // namespace tokenmill
