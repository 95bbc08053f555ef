#include "app/layout.h"

#include <doctest/doctest.h>

#include <string>

#include "app/rank_figures.h"

namespace tokenmill::app {
namespace {

ModelConfig config() {
  ModelConfig c;
  c.num_layers = 6;
  c.hidden_size = 128;
  c.intermediate_size = 256;
  c.num_heads = 8;
  c.num_kv_heads = 2;
  c.head_dim = 16;
  c.vocab_size = 1000;
  return c;
}

RunOptions asked(int tp, int pp, int invariant = 0) {
  RunOptions options;
  options.model = "m";
  options.tensor_parallel_size = tp;
  options.pipeline_parallel_size = pp;
  options.tp_invariant = invariant;
  return options;
}

/// node_of[r]: which node world rank r sits on.
parallel::Topology topology(const std::vector<int>& node_of) {
  std::vector<parallel::RankFacts> facts;
  for (const int node : node_of) {
    const auto root = std::find(node_of.begin(), node_of.end(), node) - node_of.begin();
    facts.push_back({"n" + std::to_string(node), static_cast<int>(root), parallel::CpuSet({0})});
  }
  return parallel::lay_out(facts);
}

TEST_CASE("a rank's shard follows its place in the grid") {
  const RunOptions options = asked(2, 3, 4);
  CHECK_NOTHROW(check_layout(options, config()));
  const std::vector<Range> stages = stages_of(options, config(), {.layer = 1});
  CHECK(stages == std::vector<Range>{{0, 2}, {2, 4}, {4, 6}});
  const ModelShard shard = shard_at(options, {.dp_rank = 1, .pp_rank = 2, .tp_rank = 1}, stages);
  CHECK(shard.grid == ModelGrid{2, 3, 4});
  CHECK(shard.tp_rank == 1);
  CHECK(shard.pp_rank == 2);
  CHECK(shard.layers == Range{4, 6});
  CHECK(shard.is_last_stage());
  CHECK_THROWS_WITH_AS(check_layout(asked(3, 1), config()),
                       doctest::Contains("--tensor-parallel-size 3 does not fit 8 query heads"), Error);
}

TEST_CASE("the head costs what its parameters cost in layers") {
  const LayerCosts costs = costs_by_parameters(config());
  CHECK(costs.layer == 128 * (2 * 8 + 2 * 2) * 16 + 3 * 128 * 256);
  CHECK(costs.head == 128 * 1000);
}

TEST_CASE("tensor-parallel groups across nodes are counted, with the bytes of a token") {
  CHECK(describe_crossing(asked(2, 1), config(), topology({0, 0, 1, 1}), {2, 1, 2}).empty());
  CHECK(describe_crossing(asked(2, 1), config(), topology({0, 1, 0, 1}), {2, 1, 2}).empty());
  // 3 + 5 ranks: one pair must cross; 2 sums x 1 rank elsewhere x 128 values x 4 bytes.
  const std::string text = describe_crossing(asked(2, 1), config(), topology({0, 0, 0, 1, 1, 1, 1, 1}), {4, 1, 2});
  CHECK(
      text.starts_with("1 of 4 tensor-parallel groups cross nodes: each token brings a rank up to 1.00 KiB from other "
                       "nodes in each of the 6 layers"));
  // 4 ranks on 4 nodes, in 8 parts: each rank hears 2 parts of each of 3 others.
  CHECK(describe_crossing(asked(4, 1, 8), config(), topology({0, 1, 2, 3}), {1, 1, 4})
            .find("1 of 1 tensor-parallel groups cross nodes: each token brings a rank up to 6.00 KiB") == 0);
}

TEST_CASE("transfers of all ranks are added up by kind; what is neither computing nor a stage's own sums is bubble") {
  Ranks ranks;
  ranks.topology = topology({0, 0, 0, 0});
  ranks.groups.grid = {1, 2, 2};
  std::vector<RankFigures> all(4);
  for (int rank = 0; rank < 4; ++rank) {
    RankFigures& figures = all[static_cast<size_t>(rank)];
    figures.compute_s = 3;
    figures.tp[static_cast<size_t>(parallel::TransferKind::kAllGather)] = {10, 100, 100, 1, 0.5};
    figures.pp[static_cast<size_t>(rank < 2 ? parallel::TransferKind::kSend : parallel::TransferKind::kRecv)] = {
        5, rank < 2 ? 50 : 0, rank < 2 ? 0 : 50, 2, 0};
  }
  all[0].plans = {.num_plans = 11, .num_bytes = 1100, .seconds = 0.011};
  const jobs::ReportSection section = communication_section(ranks, all, {.device_s = 8, .num_steps = 9});
  const auto at = [](const jobs::ReportSection& values, const std::string& name) {
    for (const auto& [key, value] : values)
      if (key == name) return value;
    throw std::runtime_error("no " + name);
  };
  const auto inner = [&](const char* group, const char* kind, const char* name) {
    return at(std::get<jobs::ReportSection>(at(std::get<jobs::ReportSection>(at(section, group)), kind)), name);
  };
  CHECK(std::get<int64_t>(inner("tensor_parallel", "all_gather", "calls")) == 40);
  CHECK(std::get<double>(inner("tensor_parallel", "all_gather", "hidden_s")) == 2);
  CHECK(std::get<int64_t>(inner("pipeline_parallel", "send", "sent_bytes")) == 100);
  CHECK(std::get<int64_t>(inner("pipeline_parallel", "recv", "received_bytes")) == 100);
  CHECK(std::get<double>(at(std::get<jobs::ReportSection>(at(section, "step_plans")), "bytes_per_step")) == 100);
  CHECK(std::get<double>(at(section, "pp_bubble_fraction")) == doctest::Approx(0.5));  // 4 of 8 s
  CHECK(std::get<double>(at(section, "pp_bubble_ideal")) == doctest::Approx(0.1));
  ranks.groups.grid = {4, 1, 1};
  CHECK(communication_section(ranks, all, {}).empty());
}

TEST_CASE("memory is listed where the ranks of a replica differ") {
  std::vector<RankFigures> all(2);
  for (RankFigures& rank : all) rank.layers = {0, 3};
  CHECK(describe_memory(all).empty());
  all[1].layers = {3, 4};
  all[1].weight_bytes = 2048;
  CHECK(describe_memory(all) == std::vector<std::string>{"rank 0: layers 0-2: weights 0 B, activations 0 B, KV 0 B",
                                                         "rank 1: layer 3: weights 2.00 KiB, activations 0 B, KV 0 B"});
}

}  // namespace
}  // namespace tokenmill::app
