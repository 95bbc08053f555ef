#include <fmt/format.h>
#include <fmt/ostream.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <tuple>

#include "app/agreement.h"
#include "app/commands/commands.h"
#include "app/exit_codes.h"
#include "app/layout.h"
#include "app/model_choice.h"
#include "app/progress_view.h"
#include "app/rank_map.h"
#include "app/rank_plan.h"
#include "app/report_files.h"
#include "app/row_check.h"
#include "app/rows/id_census.h"
#include "app/text_side.h"
#include "app/version.h"
#include "jobs/index.h"
#include "jobs/job.h"
#include "jobs/output_dir.h"
#include "kernels/device_choice.h"

namespace tokenmill::app {
namespace {

constexpr size_t kMostErrors = 10;  // printed
constexpr size_t kMostLines = 64;   // of the printed map
constexpr size_t kMostRanks = 64;   // of the memory plan

/// As a run would find it; nothing is made or removed. True when it holds a job to be continued.
bool check_output(const RunOptions& options, const JobFacts& facts) {
  const bool continues = check_results(options, facts);
  std::error_code ignored;
  std::filesystem::path nearest = std::filesystem::absolute(options.output, ignored);
  while (!std::filesystem::exists(nearest, ignored) && nearest.has_relative_path()) nearest = nearest.parent_path();
  if (!std::filesystem::is_directory(nearest, ignored) || ::access(nearest.c_str(), W_OK | X_OK) != 0)
    throw Error(ErrorKind::kIo, "output directory {} cannot be made: {} is {}", options.output, nearest.string(),
                std::filesystem::is_directory(nearest, ignored) ? "not writable" : "not a directory");
  return continues;
}

/// What the ranks of a planned job hold.
class PlannedRanks {
 public:
  PlannedRanks(const RunOptions& options, const ModelChoice& choice, Ops& ops, const parallel::Topology& topology,
               const parallel::Grid& grid, const std::vector<Range>& stages)
      : blocks_(static_cast<size_t>(grid.dp)) {
    const std::vector<parallel::GridPlace> places = parallel::lay_grid(topology, grid);
    for (size_t rank = 0; rank < places.size(); ++rank) {
      const parallel::GridPlace& place = places[rank];
      RankShare share = share_of(topology, places, static_cast<int>(rank), num_devices(ops.device().kind));
      if (ops.device().kind == DeviceKind::kCpu) share.weight_sharers = num_sharers(topology, places, rank);
      // Ranks of equal shards and shares are planned once.
      const auto key = std::tuple(place.pp_rank, place.tp_rank, share.ranks_on_device, share.num_threads,
                                  share.weight_sharers, share.window_bytes);
      auto found = plans_.find(key);
      if (found == plans_.end()) {
        try {
          found = plans_.emplace(key, plan_rank(options, share, choice, ops, shard_at(options, place, stages))).first;
        } catch (const Error& error) {
          throw places.size() == 1 ? error : Error(error.kind(), "rank {}: {}", rank, error.what());
        }
      }
      lower(blocks_[static_cast<size_t>(place.dp_rank)], found->second.limits.num_blocks);
      if (place.dp_rank == 0) first_replica_.emplace_back(static_cast<int>(rank), &found->second);
    }
    for (const auto& [rank, plan] : first_replica_) limit_blocks(*plan, blocks_[0]);
  }

  /// Of the replica with the fewest KV blocks.
  RunnerLimits limits() const {
    RunnerLimits limits = first_replica_[0].second->limits;
    for (const std::vector<int64_t>& blocks : blocks_) lower(limits.num_blocks, blocks);
    return limits;
  }
  int64_t num_parameters() const { return first_replica_[0].second->builder->num_parameters(); }
  /// World rank and plan of each rank of the first replica, in rank order.
  const std::vector<std::pair<int, RankPlan*>>& first_replica() const { return first_replica_; }

 private:
  /// Ranks of a memory domain that hold the same part have one copy of the weights (weight_sharers()).
  static int num_sharers(const parallel::Topology& topology, const std::vector<parallel::GridPlace>& places,
                         size_t rank) {
    int count = 0;
    for (size_t other = 0; other < places.size(); ++other) {
      count += topology.are_near(static_cast<int>(other), static_cast<int>(rank)) &&
               places[other].pp_rank == places[rank].pp_rank && places[other].tp_rank == places[rank].tp_rank;
    }
    return count;
  }
  static void lower(std::vector<int64_t>& blocks, const std::vector<int64_t>& limits) {
    if (blocks.empty()) blocks = limits;
    for (size_t group = 0; group < blocks.size(); ++group) blocks[group] = std::min(blocks[group], limits[group]);
  }

  std::map<std::tuple<int, int, int, int, int, int64_t>, RankPlan> plans_;
  std::vector<std::vector<int64_t>> blocks_;  // by replica
  std::vector<std::pair<int, RankPlan*>> first_replica_;
};

void print_layout(const RunOptions& options, const ModelChoice& choice, const Ops& ops,
                  const parallel::Topology& topology, const parallel::Grid& grid, const std::vector<Range>& stages,
                  const PlannedRanks& planned, std::ostream& out) {
  fmt::print(out, "{}, each like this machine: {} cores, {}\n", describe_grid(topology, grid),
             topology.ranks[0].cpus.count(), ops.describe());
  for (const std::string& line : describe_map(topology, grid, stages, {to_string(ops.device().kind), options.threads}, kMostLines)) fmt::print(out, "  {}\n", line);
  if (grid.pp > 1) fmt::print(out, "  (layers by their parameters; a run measures what they cost)\n");
  fmt::print(out, "model {} | {}, {:.1f} M parameters, {}, up to {} tokens a row\n", options.model,
             choice.checkpoint->config().architecture, static_cast<double>(planned.num_parameters()) / 1e6,
             to_string(choice.dtype), format_count(choice.max_model_len));
  size_t printed = 0;
  for (const auto& [rank, plan] : planned.first_replica()) {
    if (printed++ == kMostRanks) {
      fmt::print(out, "  and {} more ranks\n", planned.first_replica().size() - kMostRanks);
      break;
    }
    fmt::print(out, "  rank {}: {}\n", rank, plan->memory.describe());
  }
}

void print_rows(const RowFindings& found, const RunnerLimits& limits, const jobs::JobOptions& job, int num_replicas,
                std::ostream& out) {
  const auto mean = [&](int64_t sum) {
    return static_cast<double>(sum) / static_cast<double>(std::max<int64_t>(1, found.num_runnable));
  };
  fmt::print(out, "rows: {} in all, {} would run, {} with errors, {} skipped\n", format_count(found.num_rows),
             format_count(found.num_runnable), format_count(found.num_failed), format_count(found.num_skipped));
  for (const std::string& error : found.first_errors) fmt::print(out, "  {}\n", error);
  if (const auto left = found.num_failed - static_cast<int64_t>(found.first_errors.size()); left > 0)
    fmt::print(out, "  and {} more\n", format_count(left));
  fmt::print(out, "tokens: {} in prompts (longest {}, mean {:.0f}), at most {} to generate\n",
             format_count(found.prompt_tokens), format_count(found.longest_prompt), mean(found.prompt_tokens),
             format_count(found.most_new_tokens));
  const int64_t kv_tokens = limits.num_blocks[0] * limits.kv_groups[0].block_size;
  const double row_tokens = mean(found.prompt_tokens + found.most_new_tokens);
  fmt::print(out,
             "work: {} replica{} pull{} at most {} rows at a time; the KV cache of one holds {} rows of mean length\n",
             num_replicas, num_replicas == 1 ? "" : "s", num_replicas == 1 ? "s" : "", job.max_chunk_rows,
             format_count(row_tokens > 0 ? static_cast<int64_t>(static_cast<double>(kv_tokens) / row_tokens) : 0));
}

}  // namespace

int validate_job(RunOptions options, std::ostream& out) {
  const int64_t fewest =
      options.data_parallel_size.value_or(1) * options.pipeline_parallel_size * options.tensor_parallel_size;
  const int num_ranks = static_cast<int>(options.validate.ranks.value_or(fewest));
  finish_options(options, "validate", num_ranks);
  options.date = job_date(options);
  const parallel::Grid grid = parallel::resolve_grid(asked_grid(options), num_ranks);
  const int per_node = static_cast<int>(options.validate.ranks_per_node.value_or(num_ranks));
  const parallel::Topology topology = parallel::planned_topology(num_ranks, per_node);

  const OpsOptions ops_options = ops_options_of(options, topology.ranks[0].num_threads);
  const std::unique_ptr<Ops> ops = make_ops(choose_device_of(options, 0), ops_options);
  const ModelChoice choice = choose_model(options, *ops);
  const bool continues = check_output(options, job_facts(options, choice, ops->numerics()));
  try_report_files(options, "validate", grid.dp);
  const ModelConfig& config = choice.checkpoint->config();
  LayerCosts costs = costs_by_parameters(config);
  costs.head *= options.sampled_share;
  const std::vector<Range> stages = stages_of(options, config, costs);
  const PlannedRanks planned(options, choice, *ops, topology, grid, stages);
  const std::unique_ptr<TextSide> text = load_text_side(options, choice);

  fmt::print(out, "tokenmill {} validate\n", kVersion);
  print_layout(options, choice, *ops, topology, grid, stages, planned, out);
  for (const std::string& note : {choice.dtype_note, describe_crossing(options, config, topology, grid)})
    if (!note.empty()) fmt::print(out, "note: {}\n", note);
  if (continues) fmt::print(out, "note: {} holds results of this job: a run continues it\n", options.output);
  if (!text->template_note.empty())
    fmt::print(out, "note: rows with messages will be error rows: {}\n", text->template_note);
  out.flush();

  rows::IdCensus census;
  const jobs::JobOptions job{
      .reader = {.max_record_bytes = options.max_record_bytes, .ids_dataset = options.input_ids}};
  census.begin("");  // it writes no files
  const jobs::Index index = jobs::build_index(
      options.input, {.reader = job.reader,
                      .on_record = [&](const jobs::IndexedRecord& record) { census.add(record.row, record.bytes); }});
  census.finish();
  const rows::Codec codec(text->source.tokenizer, text->render_chat,
                          codec_options(options, choice, *text, census.repeated_custom_ids()));
  if (census.num_repeated_ids() > 0)
    fmt::print(out, "note: {} rows have the id of an earlier row\n", format_count(census.num_repeated_ids()));
  const RunnerLimits limits = planned.limits();
  const RowFindings found =
      check_rows(index, job.reader, codec, text->source.tokenizer, limits,
                 {.scheduler = options.scheduler, .eos_token_ids = choice.checkpoint->eos_token_ids()}, kMostErrors);
  print_rows(found, limits, job, grid.dp, out);
  const bool allowed = options.max_row_errors.allows(found.num_failed, found.num_rows);
  if (!allowed)
    fmt::print(out, "more rows with errors than --max-row-errors allows: the job would exit with {}\n", kExitRowErrors);
  return allowed ? kExitDone : kExitRowErrors;
}

}  // namespace tokenmill::app
