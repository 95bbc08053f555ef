#include "app/build.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/models/loader.h"
#include "kernels/core/clock.h"
#include "kernels/core/error.h"
#include "kernels/core/log.h"

namespace tokenmill::app {
namespace {

/// A node's memory also holds page cache, the launcher and other users; a GPU's belongs to the job.
constexpr double kDefaultUtilizationCpu = 0.5;
constexpr double kDefaultUtilizationGpu = 0.9;

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

/// Everything but the number of KV blocks.
RunnerLimits runner_limits(const RunOptions& options, const Replica& replica) {
  // A pass of the head over fewer rows reads its weights for little: prompts are scored that many positions at once.
  constexpr int64_t kRowsPerPass = 64;
  // Entries of one step's scores, 12 bytes each.
  constexpr int64_t kScoreEntries = int64_t{1} << 21;
  RunnerLimits limits;
  limits.kv_groups = replica.model->kv_specs(replica.dtype, options.block_size);
  limits.max_num_seqs = options.max_num_seqs;
  limits.max_num_batched_tokens = options.max_num_batched_tokens;
  limits.max_logits_rows = std::max(options.max_num_seqs, std::min(kRowsPerPass, options.max_num_batched_tokens));
  limits.max_model_len = replica.max_model_len;
  limits.vocab_size = replica.model->config().vocab_size;
  const int64_t most = options.max_logprobs < 0 ? limits.vocab_size : options.max_logprobs;
  limits.max_logprobs = std::min(most, limits.vocab_size);
  limits.max_scored_rows = std::min(options.max_num_batched_tokens,
                                    std::max(kRowsPerPass, kScoreEntries / std::max<int64_t>(1, limits.max_logprobs)));
  limits.max_steps_in_flight = 1;
  return limits;
}

MemoryRequest memory_request(const RunOptions& options, const RankShare& share, const Replica& replica,
                             const RunnerLimits& limits, int64_t weight_bytes) {
  MemoryRequest r;
  const bool cpu = replica.ops->device().kind == DeviceKind::kCpu;
  r.total_bytes = replica.ops->memory().total_bytes();
  r.utilization = options.gpu_memory_utilization.value_or(cpu ? kDefaultUtilizationCpu : kDefaultUtilizationGpu);
  r.ranks_on_device = cpu ? share.ranks_on_node : 1;
  r.weight_bytes = weight_bytes;
  const Decoder& model = *replica.model;
  const int64_t tokens = limits.max_num_batched_tokens, rows = limits.max_logits_rows;
  r.activation_bytes = model.activation_bytes(replica.dtype, tokens, rows) +
                       replica.ops->workspace_bytes(model.workspace(replica.dtype, options.block_size, tokens, rows)) +
                       ModelRunner::staging_bytes(limits, model, replica.dtype, replica.ops->device().kind);
  r.kv_groups = limits.kv_groups;
  for (const KvSpec& spec : r.kv_groups) r.kv_block_bytes.push_back(replica.ops->kv_block_bytes(spec));
  r.kv_cache_bytes = options.kv_cache_memory_bytes;
  r.num_blocks = options.num_gpu_blocks_override;
  r.max_num_seqs = options.max_num_seqs;
  r.max_model_len = replica.max_model_len;
  r.max_num_batched_tokens = options.max_num_batched_tokens;
  return r;
}

}  // namespace

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
    throw Error(ErrorKind::kConfig, "--max-model-len {} exceeds the model's {} positions (max_position_embeddings); choose at most that",
                *options.max_model_len, longest);
  }
  return *options.max_model_len;
}

void warn_of_unused_tensors(const WeightBuilder& builder, const ModelConfig& config) {
  std::vector<std::string> names = builder.unused();
  std::erase_if(names, [&](const std::string& name) {
    return name.ends_with("rotary_emb.inv_freq") || (config.tie_embeddings && name == "lm_head.weight");
  });
  if (names.empty()) return;
  log::warning("{} tensor{} of the checkpoint {} not used by this configuration, {} first; does config.json belong to these weights?",
               names.size(), names.size() == 1 ? "" : "s", names.size() == 1 ? "is" : "are", names.front());
}

std::unique_ptr<Replica> build_replica(const RunOptions& options, const RankShare& share) {
  auto replica = std::make_unique<Replica>();
  const SteadyClock clock;
  double mark_s = clock.now_s();
  const auto lap = [&](const char* name) {
    const double at_s = clock.now_s();
    replica->startup_seconds.emplace_back(name, at_s - mark_s);
    log::debug("{} took {:.3f} s", name, at_s - mark_s);
    mark_s = at_s;
  };
  const int threads = options.threads ? static_cast<int>(*options.threads) : share.num_threads;
  replica->ops = make_ops(Device{}, {.num_threads = threads, .cpu_isa = options.cpu_isa});
  replica->checkpoint = std::make_unique<Checkpoint>(options.model);
  const ModelConfig& config = replica->checkpoint->config();
  replica->dtype = choose_dtype(options, *replica->checkpoint, *replica->ops, replica->dtype_note);
  replica->max_model_len = choose_max_model_len(options, config);
  WeightBuilder builder(*replica->ops, replica->checkpoint->weights(), replica->dtype);
  replica->model = std::make_unique<Decoder>(config, whole_model(config), replica->max_model_len, builder);
  replica->num_parameters = builder.num_parameters();
  warn_of_unused_tensors(builder, config);
  RunnerLimits limits = runner_limits(options, *replica);
  replica->memory = plan_memory(memory_request(options, share, *replica, limits, builder.num_bytes()));
  limits.num_blocks = replica->memory.num_blocks;
  log::debug("memory plan: {}", replica->memory.describe());
  lap("open");
  replica->weights = replica->ops->memory().allocate(builder.num_bytes());
  const std::span<std::byte> storage(static_cast<std::byte*>(replica->weights.data()), replica->weights.num_bytes());
  const int64_t bytes_read = load_weights(builder.place(storage)).bytes_read;
  log::debug("read {} of weights", format_bytes(bytes_read));
  lap("load");
  replica->runner = std::make_unique<ModelRunner>(*replica->ops, *replica->model, replica->dtype, limits);
  lap("allocate");
  return replica;
}

}  // namespace tokenmill::app
