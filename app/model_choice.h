#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "app/options.h"
#include "engine/models/checkpoint.h"
#include "kernels/ops.h"

namespace tokenmill::app {

/// A job's model as the options want it: opened and checked, not loaded.
struct ModelChoice {
  std::unique_ptr<Checkpoint> checkpoint;
  DType dtype = DType::kF32;
  std::string dtype_note;  ///< why it is not the checkpoint's own; empty otherwise
  int64_t max_model_len = 0;
};

/// Reads configuration and headers. Throws Error for a model, dtype, length or layout that cannot run: before any
/// weight is read.
ModelChoice choose_model(const RunOptions& options, const Ops& ops);

/// The device of a rank. Throws Error(kConfig) when it cannot compute a job of this layout, and as choose_device().
Device choose_device_of(const RunOptions& options, int local_rank);
/// threads: of the rank, where no option says.
OpsOptions ops_options_of(const RunOptions& options, int threads);

/// The compute dtype: --dtype, else the checkpoint's (bfloat16 for GGUF); float16 is widened where the device lacks it,
/// and note says so. Throws Error(kConfig) for a dtype the device cannot compute in.
DType choose_dtype(const RunOptions& options, const Checkpoint& checkpoint, const Ops& ops, std::string& note);

/// --max-model-len, else the checkpoint's. Throws Error(kConfig) when it exceeds what the checkpoint's positions allow.
int64_t choose_max_model_len(const RunOptions& options, const ModelConfig& config);

/// The last part of --model.
std::string model_name(const RunOptions& options);

}  // namespace tokenmill::app
