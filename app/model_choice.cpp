#include "app/model_choice.h"

#include <algorithm>

#include "app/layout.h"
#include "kernels/core/error.h"
#include "kernels/device_choice.h"

namespace tokenmill::app {
namespace {

/// The dtype most of the checkpoint's bytes are stored in, when its configuration does not say.
DType stored_dtype(const Checkpoint& checkpoint) {
  int64_t bytes[3] = {0, 0, 0};
  for (const auto& [name, source] : checkpoint.weights().all()) {
    if (source.format == WeightFormat::kF32) bytes[0] += source.num_bytes;
    if (source.format == WeightFormat::kBF16) bytes[1] += source.num_bytes;
    if (source.format == WeightFormat::kF16) bytes[2] += source.num_bytes;
  }
  constexpr DType kDtypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  return kDtypes[std::max_element(bytes, bytes + 3) - bytes];
}

}  // namespace

Device choose_device_of(const RunOptions& options, int local_rank) {
  const Device device = choose_device(options.device, local_rank);
  if (device.kind == DeviceKind::kCpu) return device;
  if (!options.weight_cache.empty()) {
    throw Error(ErrorKind::kConfig,
                "--weight-cache {} on {}: packed weights are kept for CPUs only; leave the option out, or use --device "
                "cpu",
                options.weight_cache, to_string(device));
  }
  return device;
}

OpsOptions ops_options_of(const RunOptions& options, int threads) {
  return {.num_threads = options.threads ? static_cast<int>(*options.threads) : threads,
          .cpu_isa = options.cpu_isa,
          .attention_backend = options.attention_backend,
          .attention_mates = options.disable_cascade_attn ? 1 : 0};
}

DType choose_dtype(const RunOptions& options, const Checkpoint& checkpoint, const Ops& ops, std::string& note) {
  DType dtype;
  if (options.dtype) {
    dtype = *options.dtype;
  } else if (checkpoint.is_gguf()) {
    dtype = DType::kBF16;
  } else {
    dtype = checkpoint.config().dtype.value_or(stored_dtype(checkpoint));
  }
  if (dtype == DType::kF16 && !ops.supports(DType::kF16)) {
    note = fmt::format("float16 is computed in bfloat16: {} has no float16 arithmetic", to_string(ops.device()));
    dtype = DType::kBF16;
  }
  if (!ops.supports(dtype)) {
    throw Error(ErrorKind::kConfig, "--dtype {} is not supported on {}", to_string(dtype), to_string(ops.device()));
  }
  return dtype;
}

int64_t choose_max_model_len(const RunOptions& options, const ModelConfig& config) {
  if (!options.max_model_len) return config.max_positions;
  const double stretch = config.rope.kind == RopeConfig::Kind::kDynamic ? config.rope.factor : 1;
  const auto longest = static_cast<int64_t>(config.max_positions * stretch);
  if (*options.max_model_len > longest) {
    throw Error(ErrorKind::kConfig,
                "--max-model-len {} exceeds the model's {} positions (max_position_embeddings); choose at most that",
                *options.max_model_len, longest);
  }
  return *options.max_model_len;
}

ModelChoice choose_model(const RunOptions& options, const Ops& ops) {
  ModelChoice choice;
  choice.checkpoint = std::make_unique<Checkpoint>(options.model_path(), options.load_format);
  const ModelConfig& config = choice.checkpoint->config();
  check_layout(options, config);
  choice.dtype = choose_dtype(options, *choice.checkpoint, ops, choice.dtype_note);
  choice.max_model_len = choose_max_model_len(options, config);
  return choice;
}

std::string model_name(const RunOptions& options) {
  std::string model = options.model;
  while (model.size() > 1 && model.ends_with('/')) model.pop_back();
  return model.substr(model.rfind('/') + 1);
}

}  // namespace tokenmill::app
