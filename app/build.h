#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/options.h"
#include "engine/memory_plan.h"
#include "engine/model_runner.h"
#include "engine/models/checkpoint.h"
#include "engine/models/decoder.h"
#include "kernels/ops.h"

namespace tokenmill::app {

/// What a rank knows about its place before it builds anything (parallel/topology).
struct RankShare {
  int num_threads = 1;    ///< its share of the affinity mask
  int ranks_on_node = 1;  ///< ranks that share this node's memory
};

/// One rank's part of a replica, in order of construction (members are destroyed in reverse).
struct Replica {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Ops> ops;
  DType dtype = DType::kF32;
  std::string dtype_note;  ///< why it is not the checkpoint's own; empty otherwise
  int64_t max_model_len = 0;
  int64_t num_parameters = 0;
  Buffer weights;
  std::unique_ptr<Decoder> model;
  MemoryPlan memory;
  std::unique_ptr<ModelRunner> runner;
  /// ("open", "load", "allocate") and the seconds each took.
  std::vector<std::pair<std::string, double>> startup_seconds;
};

/// The compute dtype: --dtype, else the checkpoint's (bfloat16 for GGUF); float16 is widened where the device lacks it,
/// and note says so. Throws Error(kConfig) for a dtype the device cannot compute in.
DType choose_dtype(const RunOptions& options, const Checkpoint& checkpoint, const Ops& ops, std::string& note);

/// --max-model-len, else the checkpoint's. Throws Error(kConfig) when it exceeds what the checkpoint's positions allow.
int64_t choose_max_model_len(const RunOptions& options, const ModelConfig& config);

/// Warns about tensors that the model does not use: they may belong to a layer the configuration does not know of. A tied
/// head stored twice and stored rotary frequencies are expected.
void warn_of_unused_tensors(const WeightBuilder& builder, const ModelConfig& config);

/// Opens the model, plans memory, loads the weights and makes the runner. Everything that can be refused is refused
/// before weights are read. Local to this rank: no communication.
std::unique_ptr<Replica> build_replica(const RunOptions& options, const RankShare& share);

}  // namespace tokenmill::app
