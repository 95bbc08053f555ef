#include "engine/models/shard.h"

#include <doctest/doctest.h>

#include <set>

#include "engine/models/layer_costs.h"
#include "kernels/core/error.h"

namespace tokenmill {
namespace {

ModelConfig config_of(int64_t heads, int64_t kv_heads, int64_t intermediate, int64_t layers, int64_t vocab) {
  ModelConfig config;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = 8;
  config.hidden_size = 64;
  config.intermediate_size = intermediate;
  config.num_layers = layers;
  config.vocab_size = vocab;
  return config;
}

ModelShard shard_of(int tp_rank, int tp_size, int invariant_parts = 0) {
  return {.grid = {.tp_size = tp_size, .pp_size = 1, .invariant_parts = invariant_parts}, .tp_rank = tp_rank};
}

/// The ranges lie behind one another and cover [0, count).
template <typename Get>
void check_covers(int n, int64_t count, Get&& get) {
  int64_t at = 0;
  for (int i = 0; i < n; ++i) {
    const Range range = get(i);
    REQUIRE(range.begin == at);
    REQUIRE(range.end >= range.begin);
    at = range.end;
  }
  REQUIRE(at == count);
}

TEST_CASE("the ranks of a stage share heads, columns, rows and tiles without gap or overlap") {
  for (const int64_t intermediate : {24, 61, 100, 1536}) {
    for (const int64_t vocab : {259, 2600, 49152}) {
      const ModelConfig c = config_of(24, 8, intermediate, 5, vocab);
      for (const int tp : {1, 2, 4, 8, 24}) {
        CAPTURE(intermediate);
        CAPTURE(vocab);
        CAPTURE(tp);
        check_covers(tp, 24, [&](int r) { return shard_of(r, tp).heads(c); });
        check_covers(tp, intermediate, [&](int r) { return shard_of(r, tp).intermediate(c); });
        check_covers(tp, vocab, [&](int r) { return shard_of(r, tp).embedding_rows(c); });
        check_covers(tp, vocab, [&](int r) { return shard_of(r, tp).vocabulary(c); });
        for (int r = 0; r < tp; ++r) {
          const ModelShard shard = shard_of(r, tp);
          CHECK(shard.intermediate(c).size() > 0);
          CHECK((shard.vocabulary(c).begin % 1024 == 0 || shard.vocabulary(c).begin == vocab));
          // The KV heads that its query heads read, and no other.
          const int64_t per_kv_head = 24 / 8;
          CHECK(shard.kv_heads(c).begin == shard.heads(c).begin / per_kv_head);
          CHECK(shard.kv_heads(c).end == (shard.heads(c).end - 1) / per_kv_head + 1);
        }
      }
    }
  }
}

TEST_CASE("a fixed number of parts cuts alike for every tensor-parallel size") {
  const ModelConfig c = config_of(24, 8, 100, 5, 259);
  std::set<std::vector<int64_t>> cuts;
  for (const int tp : {1, 2, 4}) {
    std::vector<int64_t> edges;
    for (int r = 0; r < tp; ++r) {
      const ModelShard shard = shard_of(r, tp, 4);
      CHECK(shard.num_parts() == 4 / tp);
      for (int i = 0; i < shard.num_parts(); ++i) {
        edges.push_back(shard.part_heads(c, i).end);
        edges.push_back(shard.part_intermediate(c, i).end);
      }
      CHECK(shard.part_heads(c, 0).begin == shard.heads(c).begin);
    }
    cuts.insert(edges);
  }
  CHECK(cuts.size() == 1);
}

TEST_CASE("layouts that do not fit a model are refused with those that would") {
  const ModelConfig c = config_of(8, 2, 64, 30, 259);
  check_grid({.tp_size = 4, .pp_size = 30}, c, "m");
  CHECK_THROWS_WITH_AS(check_grid({.tp_size = 3}, c, "m"),
                       doctest::Contains("--tensor-parallel-size 3 does not fit 8 query heads and 2 key/value heads (m)"),
                       Error);
  CHECK_THROWS_WITH_AS(check_grid({.tp_size = 3}, c, "m"), doctest::Contains("choose one of 1, 2, 4, 8"), Error);
  CHECK_THROWS_WITH_AS(check_grid({.tp_size = 1, .pp_size = 31}, c, "m"),
                       doctest::Contains("--pipeline-parallel-size 31 is more than the 30 layers of m; choose 1 to 30"),
                       Error);
  // 24 query heads on 3 KV heads: 4 divides the query heads, and neither divides 3 nor is a multiple of it.
  CHECK_THROWS_WITH_AS(check_grid({.tp_size = 4}, config_of(24, 3, 64, 2, 259), "m"),
                       doctest::Contains("choose one of 1, 3, 6, 12, 24"), Error);
  check_grid({.tp_size = 2, .pp_size = 1, .invariant_parts = 4}, c, "m");
  CHECK_THROWS_WITH_AS(check_grid({.tp_size = 4, .pp_size = 1, .invariant_parts = 2}, c, "m"),
                       doctest::Contains("--tp-invariant 2 does not fit --tensor-parallel-size 4"), Error);
}

TEST_CASE("stages are balanced with embedding and head counted") {
  const auto sizes = [](const std::vector<Range>& stages) {
    std::vector<int64_t> out;
    for (const Range& stage : stages) out.push_back(stage.size());
    return out;
  };
  CHECK(sizes(balance_stages(30, 4, {})) == std::vector<int64_t>{8, 8, 7, 7});
  CHECK(sizes(balance_stages(30, 2, {.layer = 1, .embedding = 0, .head = 8})) == std::vector<int64_t>{19, 11});
  CHECK(sizes(balance_stages(3, 3, {.layer = 1, .embedding = 5, .head = 50})) == std::vector<int64_t>{1, 1, 1});
  // Against every way to cut few layers.
  for (int64_t layers = 3; layers <= 9; ++layers) {
    const LayerCosts costs{.layer = 1, .embedding = 0.7, .head = 2.2};
    const auto slowest = [&](int64_t a, int64_t b, int64_t c) {
      return std::max({static_cast<double>(a) + 0.7, static_cast<double>(b), static_cast<double>(c) + 2.2});
    };
    double best = 1e9;
    for (int64_t a = 1; a <= layers - 2; ++a) {
      for (int64_t b = 1; a + b <= layers - 1; ++b) best = std::min(best, slowest(a, b, layers - a - b));
    }
    const std::vector<int64_t> got = sizes(balance_stages(layers, 3, costs));
    CHECK(slowest(got[0], got[1], got[2]) == best);
  }
}

TEST_CASE("a head that costs more than layers is measured as such") {
  const auto ops = make_ops({}, {.num_threads = 1});
  ModelConfig c = config_of(8, 2, 128, 4, 60000);
  const LayerCosts costs = measure_layer_costs(*ops, c, {}, DType::kF32, 16);
  CHECK(costs.layer > 0);
  CHECK(costs.head > 4 * costs.layer);  // 60,000 x 64 weights against 40,960: the bound leaves room for noise
}

TEST_CASE("two turns pay on a slow wire that moves by itself only, and from some length on") {
  const ModelConfig c = config_of(8, 2, 128, 4, 259);
  const ModelGrid grid{.tp_size = 2};
  const auto from = [&](const char* route, double alpha_s, double beta_s, const TurnCosts& turns) {
    const parallel::GroupCosts costs{2, {{route, {alpha_s, beta_s}, {alpha_s, beta_s}}}};
    return overlap_from(costs, c, grid, turns, 4096);
  };
  CHECK(sum_part_bytes(c, grid, 64) == 64 * c.hidden_size * 4);
  // Of 64 tokens the two sums take 262 us on the wire, the products 192 us.
  CHECK(from("mpi", 20e-6, 8e-9, {3e-6, 130e-6}) == 128);
  CHECK(from("mpi", 20e-6, 8e-9, {3e-6, 100e-6}) == 64);
  CHECK(from("mpi", 20e-6, 8e-9, {3e-6, 10e-3}) == 4096);
  CHECK(from("mpi", 20e-6, 8e-9, {3e-6, 1}) == 4097);
  // Where it can at best become shorter by less than a twentieth: little to hide behind, little to hide, little moves.
  CHECK(from("mpi", 20e-6, 8e-9, {0.1e-6}) == 4097);
  CHECK(from("mpi", 20e-6, 8e-9, {100e-6}) == 4097);
  CHECK(from("mpi", 20e-6, 8e-9, {3e-6, 0, 0.1}) == 4097);
  CHECK(from("mpi", 20e-6, 8e-9, {3e-6, 0, 0.5}) == 64);
  // Products of unknown length: not less than with any.
  CHECK(from("mpi", 20e-6, 8e-9, {}) == 32);
  CHECK(from("mpi", 20e-6, 8e-9, {.hidden_share = 0.1}) == 4097);
  CHECK(from("shm", 1e-6, 8e-9, {}) == 4097);
  CHECK(overlap_from({}, c, {}, {}, 4096) == 4097);
}

}  // namespace
}  // namespace tokenmill
