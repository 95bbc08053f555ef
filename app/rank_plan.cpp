#include "app/rank_plan.h"

#include <algorithm>

#include "engine/model_runner.h"
#include "kernels/core/log.h"
#include "parallel/connect.h"

namespace tokenmill::app {
namespace {

/// A node's memory also holds page cache, the launcher and other users; a GPU's belongs to the job.
constexpr double kDefaultUtilizationCpu = 0.5;
constexpr double kDefaultUtilizationGpu = 0.9;

/// Everything but the number of KV blocks.
RunnerLimits runner_limits(const RunOptions& options, const ModelChoice& choice, const Decoder& model,
                           DeviceKind device) {
  // A pass of the head over fewer rows reads its weights for little: prompts are scored that many positions at once.
  constexpr int64_t kRowsPerPass = 64;
  // Entries of one step's scores, 12 bytes each.
  constexpr int64_t kScoreEntries = int64_t{1} << 21;
  RunnerLimits limits;
  limits.kv_groups = model.kv_specs(choice.dtype, options.block_size);
  limits.max_num_seqs = options.max_num_seqs;
  limits.vocab_size = model.config().vocab_size;
  limits.max_num_batched_tokens = options.max_num_batched_tokens;
  limits.max_num_adjusted = choose_max_adjusted(options, choice.checkpoint->generation(), limits.vocab_size);
  limits.max_logits_rows = std::max(options.max_num_seqs, std::min(kRowsPerPass, options.max_num_batched_tokens));
  limits.max_model_len = choice.max_model_len;
  const int64_t most = options.max_logprobs < 0 ? limits.vocab_size : options.max_logprobs;
  limits.max_logprobs = std::min(most, limits.vocab_size);
  limits.max_scored_rows = std::min(std::max<int64_t>(2, options.max_num_batched_tokens),  // a position may take two
                                    std::max(kRowsPerPass, kScoreEntries / std::max<int64_t>(1, limits.max_logprobs)));
  if (options.hidden_states != HiddenStates::kNone)
    limits.max_hidden_rows =
        options.hidden_states == HiddenStates::kMean ? limits.max_num_batched_tokens : limits.max_num_seqs;
  limits.num_stages = model.shard().grid.pp_size;
  // A GPU has its next step before the host has seen the last one's tokens.
  limits.max_steps_in_flight = device == DeviceKind::kCuda ? limits.num_stages + 1 : limits.num_stages;
  return limits;
}

MemoryRequest memory_request(const RunOptions& options, const RankShare& share, const ModelChoice& choice, Ops& ops,
                             const Decoder& model, const RunnerLimits& limits) {
  MemoryRequest r;
  const bool cpu = ops.device().kind == DeviceKind::kCpu;
  r.total_bytes = ops.memory().total_bytes();
  r.utilization = options.gpu_memory_utilization.value_or(cpu ? kDefaultUtilizationCpu : kDefaultUtilizationGpu);
  r.ranks_on_device = share.ranks_on_device;
  const int64_t tokens = limits.max_num_batched_tokens, rows = limits.max_logits_rows;
  r.activation_bytes = model.activation_bytes(choice.dtype, tokens, rows) +
                       ops.workspace_bytes(model.workspace(choice.dtype, options.block_size, tokens, rows)) +
                       ModelRunner::staging_bytes(limits, model, choice.dtype, ops.device().kind);
  r.kv_groups = limits.kv_groups;
  for (const KvSpec& spec : r.kv_groups) r.kv_block_bytes.push_back(ops.kv_block_bytes(spec));
  r.kv_cache_bytes = options.kv_cache_memory_bytes;
  r.num_blocks = options.num_gpu_blocks_override;
  r.max_num_seqs = options.max_num_seqs;
  r.max_model_len = choice.max_model_len;
  r.max_num_batched_tokens = options.max_num_batched_tokens;
  r.max_steps_in_flight = limits.max_steps_in_flight;
  return r;
}

}  // namespace

int64_t choose_max_adjusted(const RunOptions& options, const GenerationDefaults& model, int64_t vocab_size) {
  constexpr int64_t kTableBytes = int64_t{256} << 20;
  constexpr const char* kFields[] = {"presence_penalty", "frequency_penalty", "repetition_penalty",
                                     "logit_bias",       "allowed_token_ids", "bad_words"};
  const auto given = [&](const char* name) {
    const io::JsonValue* value = options.sampling.find(name);
    return value != nullptr && !value->is_null();
  };
  const bool all = std::any_of(std::begin(kFields), std::end(kFields), given) ||
                   (options.use_generation_config && model.repetition_penalty);
  return all ? options.max_num_seqs : std::clamp<int64_t>(kTableBytes / (8 * vocab_size), 1, options.max_num_seqs);
}

RankShare share_of(const parallel::Topology& topology, const std::vector<parallel::GridPlace>& places, int rank,
                   int devices_on_node) {
  const parallel::RankPlace& place = topology.ranks.at(static_cast<size_t>(rank));
  const auto on_node = std::count_if(topology.ranks.begin(), topology.ranks.end(),
                                     [&](const parallel::RankPlace& other) { return other.node == place.node; });
  return {.num_threads = place.num_threads,
          .ranks_on_device = 1 + (static_cast<int>(on_node) - place.local_rank % devices_on_node - 1) / devices_on_node,
          .window_bytes = parallel::planned_window_bytes(topology, places, rank)};
}

RankPlan plan_rank(const RunOptions& options, const RankShare& share, const ModelChoice& choice, Ops& ops,
                   const ModelShard& shard) {
  RankPlan plan;
  plan.shard = shard;
  plan.builder = std::make_unique<WeightBuilder>(ops, choice.checkpoint->weights(), choice.dtype);
  plan.model = std::make_unique<Decoder>(choice.checkpoint->config(), shard, choice.max_model_len, *plan.builder);
  plan.limits = runner_limits(options, choice, *plan.model, ops.device().kind);
  MemoryRequest& request = plan.request;
  request = memory_request(options, share, choice, ops, *plan.model, plan.limits);
  request.weight_bytes = plan.builder->num_bytes();
  request.weight_sharers = share.weight_sharers;
  if (ops.device().kind == DeviceKind::kCpu) request.window_bytes = share.window_bytes;
  plan.memory = plan_memory(request);
  plan.limits.num_blocks = plan.memory.num_blocks;
  log::debug("memory plan: {}", plan.memory.describe());
  return plan;
}

void plan_again(RankPlan& plan, int64_t driver_bytes) {
  plan.request.driver_bytes = driver_bytes;
  plan.memory = plan_memory(plan.request);
  plan.limits.num_blocks = plan.memory.num_blocks;
}

void limit_blocks(RankPlan& plan, const std::vector<int64_t>& num_blocks) {
  MemoryPlan& memory = plan.memory;
  memory.kv_bytes = 0;
  for (size_t group = 0; group < num_blocks.size(); ++group) {
    memory.num_blocks.at(group) = std::min(memory.num_blocks.at(group), num_blocks[group]);
    memory.kv_bytes += memory.num_blocks[group] * plan.request.kv_block_bytes.at(group);
  }
  memory.kv_tokens = memory.num_blocks.at(0) * plan.limits.kv_groups.at(0).block_size;
  plan.limits.num_blocks = memory.num_blocks;
}

}  // namespace tokenmill::app
