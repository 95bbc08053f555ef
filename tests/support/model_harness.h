#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/kv_cache.h"
#include "engine/models/checkpoint.h"
#include "engine/models/decoder.h"
#include "engine/slot_tables.h"
#include "engine/step_input.h"
#include "engine/step_output.h"
#include "kernels/ops.h"
#include "parallel/self_communicator.h"

namespace tokenmill::test {

/// A loaded model that tests drive by hand, below the runner: token ids in, logits out.
class ModelHarness {
 public:
  ModelHarness(Ops& ops, const std::string& path, DType dtype, int64_t max_model_len, int64_t max_tokens = 512);

  const ModelConfig& config() const { return checkpoint_->config(); }
  /// Forgets what was computed.
  void reset();
  /// Computes positions [computed, computed + ids.size()) in one step and returns the logits of the wanted offsets.
  std::vector<std::vector<float>> step(const std::vector<int32_t>& ids, const std::vector<int32_t>& wanted);
  /// All logits rows of ids, computed in chunks of chunk_size from position 0.
  std::vector<std::vector<float>> logits(const std::vector<int32_t>& ids, int64_t chunk_size);

 private:
  Ops& ops_;
  parallel::SelfCommunicator alone_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<WeightBuilder> builder_;
  std::unique_ptr<Decoder> decoder_;
  Buffer weights_, activation_storage_;
  RunnerLimits limits_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<StepInput> input_;
  std::unique_ptr<SlotTables> tables_;
  std::unique_ptr<StepOutput> output_;
  Activations activations_;
  std::vector<SlotState> slots_;
};

}  // namespace tokenmill::test
