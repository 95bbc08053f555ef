// Two ranks: two replicas. Four: two replicas of two ranks that hold half of the rows each.
#include "app/rank_weights.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/checkpoint_digest.h"
#include "kernels/core/error.h"
#include "parallel/topology.h"
#include "tests/support/captured_log.h"
#include "tests/support/temp_dir.h"

namespace tokenmill::app {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRows = 48, kColumns = 33, kLayers = 5;
constexpr int64_t kTensorBytes = kRows * kColumns * 4;

/// The same directory on all ranks, made by rank 0.
class CommonDir {
 public:
  explicit CommonDir(const parallel::Comm& world) : world_(world) {
    if (world.rank() == 0) own_ = std::make_unique<test::TempDir>();
    path_ = own_ ? own_->path() : "";
    parallel::broadcast_bytes(world, path_, 0);
  }
  ~CommonDir() { parallel::agree(world_, std::nullopt); }  // while it is used, it stays
  const std::string& path() const { return path_; }

 private:
  const parallel::Comm& world_;
  std::unique_ptr<test::TempDir> own_;
  std::string path_;
};

float value(int64_t layer, int64_t row, int64_t column) {
  return static_cast<float>((layer * 31 + row * 7 + column * 3) % 64 - 32);
}

std::string checkpoint_bytes() {
  std::vector<float> values;
  for (int64_t layer = 0; layer < kLayers; ++layer)
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t column = 0; column < kColumns; ++column) values.push_back(value(layer, row, column));
  return {reinterpret_cast<const char*>(values.data()), values.size() * 4};
}

WeightCatalog catalog_of(const std::string& file) {
  WeightCatalog catalog;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    WeightSource source;
    source.name = source.stored_name = "layer" + std::to_string(layer);
    source.file = file;
    source.shape = {kRows, kColumns};
    source.offset = layer * kTensorBytes;
    source.num_bytes = kTensorBytes;
    catalog.add(source);
  }
  return catalog;
}

/// One rank's model: some rows of every layer.
struct Model {
  Model(Ops& ops, const WeightCatalog& catalog, const parallel::Groups& groups)
      : rows{kRows / groups.grid.tp * groups.place.tp_rank, kRows / groups.grid.tp * (groups.place.tp_rank + 1)},
        layers(kLayers),
        builder(ops, catalog, DType::kF32) {
    for (int64_t layer = 0; layer < kLayers; ++layer)
      builder.linear(layers[static_cast<size_t>(layer)], {{"layer" + std::to_string(layer), kRows, rows}}, kColumns);
  }
  /// Every element, by products with unit vectors.
  void check(Ops& ops) const {
    std::vector<float> x(kColumns), out(static_cast<size_t>(rows.size()));
    bool is_right = true;
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      for (int64_t column = 0; column < kColumns; ++column) {
        x.assign(kColumns, 0.0f);
        x[static_cast<size_t>(column)] = 1;
        ops.linear(TensorView(out.data(), DType::kF32, {1, rows.size()}),
                   TensorView(x.data(), DType::kF32, {1, kColumns}), *layers[static_cast<size_t>(layer)]);
        ops.stream().synchronize();
        for (int64_t row = 0; row < rows.size(); ++row)
          is_right = is_right && out[static_cast<size_t>(row)] == value(layer, rows.begin + row, column);
      }
    }
    CHECK(is_right);
  }
  Range rows;
  std::vector<std::unique_ptr<Linear>> layers;
  WeightBuilder builder;
};

struct Fixture {
  Fixture()
      : world(parallel::Comm::world()),
        groups(
            parallel::make_groups(world, parallel::gather_topology(world), {.dp = 2, .pp = 1, .tp = world.size() / 2})),
        ops(make_ops({}, {.num_threads = 1})),
        dir(world),
        catalog(catalog_of(dir.path() + "/w.bin")) {
    if (world.rank() == 0) std::ofstream(dir.path() + "/w.bin", std::ios::binary) << checkpoint_bytes();
    parallel::agree(world, std::nullopt);
  }

  struct Loaded {
    LoadStats stats;
    RankWeights::CacheStats cache;
  };
  /// Loads a new model and checks all its numbers.
  Loaded load(WeightLoadOptions options = {}) {
    Model model(*ops, catalog, groups);
    const parallel::Comm sharers = weight_sharers(groups, *ops);
    if (!options.cache.empty())
      options.identity = weight_identity(model.builder, catalog, *ops, "cpu", groups.node, world);
    RankWeights weights;
    weights.load(model.builder, *ops, sharers, groups, world, options);
    model.check(*ops);
    parallel::agree(world, std::nullopt);
    return {weights.stats(), weights.cache_stats()};
  }

  parallel::Comm world;
  parallel::Groups groups;
  std::unique_ptr<Ops> ops;
  CommonDir dir;
  WeightCatalog catalog;
};

TEST_CASE_FIXTURE(Fixture, "replicas take over what the first of them has packed; every byte is read once") {
  const parallel::Comm sharers = weight_sharers(groups, *ops);
  CHECK_EQ(sharers.size(), 2);
  CHECK_EQ(sharers.rank(), groups.place.dp_rank);
  for (const LoadMode mode : {LoadMode::kNode, LoadMode::kBroadcast}) {
    const Loaded loaded = load({.mode = mode});
    CHECK_EQ(loaded.stats.job_bytes_read, kLayers * kTensorBytes);
    CHECK_EQ(loaded.stats.node_bytes_read, kLayers * kTensorBytes);
    if (groups.place.dp_rank != 0) CHECK_EQ(loaded.stats.pack_s, 0);
    CHECK_EQ(loaded.cache.bytes_written, 0);
  }
}

TEST_CASE_FIXTURE(Fixture, "one copy is shared within a node by ranks of the same memory domains") {
  const parallel::Topology real = parallel::gather_topology(world);
  // The ranks of each replica have the domains of that replica.
  const auto num_sharers = [&](const std::vector<std::vector<int>>& domains, bool on_two_nodes = false) {
    parallel::Topology topology = real;
    for (int rank = 0; rank < world.size(); ++rank) {
      const int replica = rank / groups.grid.tp;
      parallel::RankPlace& place = topology.ranks[static_cast<size_t>(rank)];
      place.cpu_place.numa_domains = domains[static_cast<size_t>(replica)];
      if (!on_two_nodes) continue;
      place.node = replica;
      place.local_rank = rank % groups.grid.tp;
    }
    topology.num_nodes = on_two_nodes ? 2 : 1;
    return weight_sharers(parallel::make_groups(world, topology, groups.grid), *ops).size();
  };
  CHECK_EQ(num_sharers({{0}, {0}}), 2);
  CHECK_EQ(num_sharers({{0, 1}, {0, 1}}), 2);  // not bound, or to one socket
  CHECK_EQ(num_sharers({{}, {}}), 2);          // not known
  CHECK_EQ(num_sharers({{0}, {1}}), 1);
  CHECK_EQ(num_sharers({{0, 1}, {2, 3}}), 1);  // each to a socket of two domains
  CHECK_EQ(num_sharers({{0, 1}, {0}}), 1);
  CHECK_EQ(num_sharers({{0}, {0}}, true), 1);
  CHECK_EQ(num_sharers({{}, {}}, true), 1);
}

TEST_CASE_FIXTURE(Fixture, "where memory cannot be shared each rank has weights of its own") {
  const test::CapturedLog log;
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit none{0, limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const parallel::Comm sharers = weight_sharers(groups, *ops);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  CHECK_EQ(sharers.size(), 1);
  CHECK_EQ(log.text().find("every rank of this node has weights of its own") != std::string::npos, world.rank() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a second run takes packed weights from the cache, and repairs what is damaged there") {
  const std::string cache = dir.path() + "/cache";
  const bool packs = groups.place.dp_rank == 0;
  const auto files = [&] {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(cache)) names.push_back(entry.path());
    return names;
  };
  const Loaded first = load({.cache = cache});
  CHECK_EQ(first.stats.job_bytes_read, kLayers * kTensorBytes);
  CHECK_EQ(first.cache.bytes_written > 0, packs);
  CHECK_EQ(files().size(), static_cast<size_t>(groups.grid.tp));  // one per part, whatever the replicas

  const Loaded second = load({.cache = cache});
  CHECK_EQ(second.stats.job_bytes_read, 0);
  CHECK_EQ(second.cache.bytes_read, packs ? first.cache.bytes_written : 0);
  CHECK_EQ(second.cache.bytes_written, 0);

  // One rank's file is cut off: that rank alone reads from the checkpoint, and writes it again.
  const int64_t size = static_cast<int64_t>(fs::file_size(files().front()));
  if (world.rank() == 0) fs::resize_file(files().front(), static_cast<uintmax_t>(size - 1));
  parallel::agree(world, std::nullopt);
  const test::CapturedLog log;
  const Loaded third = load({.mode = LoadMode::kBroadcast, .cache = cache});
  // Gaps as small as these are read over, so that all but the half in front of the first or behind the last is read.
  CHECK_EQ(third.stats.job_bytes_read, kLayers * kTensorBytes - (groups.grid.tp == 2 ? kTensorBytes / 2 : 0));
  CHECK_EQ(third.cache.bytes_written > 0, packs && third.cache.bytes_read == 0);
  CHECK_EQ(log.text().find("bytes instead of") != std::string::npos, third.cache.bytes_written > 0);
  CHECK_EQ(load({.cache = cache}).stats.job_bytes_read, 0);

  // Another checkpoint of the same shapes, different in the middle of one tensor: none of the files may be taken.
  if (world.rank() == 0) {
    std::fstream file(dir.path() + "/w.bin", std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(2 * kTensorBytes + 400);
    file.write("\0\0\0\0", 4);
  }
  parallel::agree(world, std::nullopt);
  Model model(*ops, catalog, groups);
  const parallel::Comm sharers = weight_sharers(groups, *ops);
  RankWeights weights;
  weights.load(model.builder, *ops, sharers, groups, world,
               {.cache = cache, .identity = weight_identity(model.builder, catalog, *ops, "cpu", groups.node, world)});
  CHECK_EQ(weights.stats().job_bytes_read, kLayers * kTensorBytes);
}

TEST_CASE_FIXTURE(Fixture, "a cache that cannot be written changes nothing but a warning") {
  const test::CapturedLog log;
  const Loaded loaded = load({.cache = dir.path() + "/w.bin/cache"});
  CHECK_EQ(loaded.stats.job_bytes_read, kLayers * kTensorBytes);
  CHECK_EQ(loaded.cache.bytes_written, 0);
  CHECK_EQ(log.text().find("/w.bin/cache") != std::string::npos, groups.place.dp_rank == 0);
}

TEST_CASE_FIXTURE(Fixture, "a checkpoint that cannot be looked at is everyone's error") {
  const WeightCatalog missing = catalog_of(dir.path() + "/gone.bin");
  const Model model(*ops, missing, groups);
  CHECK_THROWS_WITH_AS(weight_identity(model.builder, missing, *ops, "cpu", groups.node, world),
                       doctest::Contains("gone.bin: cannot open"), parallel::AgreedError);
}

TEST_CASE_FIXTURE(Fixture, "an identity names all that packed bytes depend on") {
  const Model model(*ops, catalog, groups);
  const std::string identity = weight_identity(model.builder, catalog, *ops, "cpu", groups.node, world);
  CHECK(identity.find(checkpoint_digest(catalog)) != std::string::npos);
  CHECK(identity.find(ops->weight_layout() + " on cpu\n") != std::string::npos);
  CHECK(identity.ends_with(model.builder.describe()));
  CHECK_NE(weight_identity(model.builder, catalog, *ops, "other cpu", groups.node, world), identity);
}

}  // namespace
}  // namespace tokenmill::app
