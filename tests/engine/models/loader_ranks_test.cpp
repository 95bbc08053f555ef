#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/models/loader.h"
#include "parallel/mpi.h"
#include "tests/engine/models/loader_fixture.h"

namespace tokenmill {
namespace {

using parallel::Comm;
using test::RandomPlan;
using test::RecordingSink;
using test::TensorFiles;

/// A directory that all ranks see; rank 0 makes and removes it.
class SharedDir {
 public:
  explicit SharedDir(const Comm& world) : world_(world) {
    if (world.rank() == 0) own_ = std::make_unique<test::TempDir>();
    path_ = own_ ? own_->path() : "";
    parallel::broadcast_bytes(world, path_, 0);
  }
  ~SharedDir() { parallel::agree(world_, std::nullopt); }
  const std::string& path() const { return path_; }

 private:
  const Comm& world_;
  std::unique_ptr<test::TempDir> own_;
  std::string path_;
};

/// Each rank's entries in one round; some have none.
int num_entries(unsigned round, int rank) {
  return static_cast<int>((round * 7 + static_cast<unsigned>(rank) * 5) % 4) * 9;
}

TEST_CASE("the ranks of a node read the union of their plans once, and each sink gets its bytes") {
  const Comm world = Comm::world();
  const SharedDir dir(world);
  const TensorFiles files(dir.path(), 11, world.rank() == 0);
  parallel::agree(world, std::nullopt);
  unsigned round = 0;
  for (const int64_t chunk_bytes : {1, 64, 1000, 1 << 20}) {
    for (const int num_readers : {1, 2, 5}) {
      for (int repeat = 0; repeat < 3; ++repeat, ++round) {
        CAPTURE(round);
        std::vector<std::unique_ptr<RandomPlan>> all;
        std::vector<const WeightPlan*> plans;
        for (int rank = 0; rank < world.size(); ++rank) {
          all.push_back(
              std::make_unique<RandomPlan>(files, round * 31 + static_cast<unsigned>(rank), num_entries(round, rank)));
          plans.push_back(&all.back()->plan());
        }
        RandomPlan& mine = *all[static_cast<size_t>(world.rank())];
        const LoadStats stats = load_weights(mine.plan(), {&world, &world},
                                             {.reads = {.chunk_bytes = chunk_bytes, .max_gap_bytes = 0},
                                              .num_slots = 1 + repeat,
                                              .num_readers = num_readers});
        mine.check_complete();
        // Units of several ranks may make a piece grow.
        CHECK(stats.node_bytes_read >= test::union_bytes(plans, files));
        CHECK(stats.node_bytes_read < test::union_bytes(plans, files) + 120 * 18);
        CHECK(stats.job_bytes_read == stats.node_bytes_read);
        if (num_readers == 1) CHECK((stats.bytes_read > 0) == (world.rank() == 0 && stats.node_bytes_read > 0));
      }
    }
  }
}

/// Ways to lay the world over nodes: the node of each rank.
std::vector<std::vector<int>> node_layouts(int num_ranks) {
  std::vector<std::vector<int>> layouts(4);
  for (int rank = 0; rank < num_ranks; ++rank) {
    layouts[0].push_back(0);                  // one node
    layouts[1].push_back(rank % 2);           // two, dealt out in turn
    layouts[2].push_back(rank);               // a node each
    layouts[3].push_back(rank == 0 ? 1 : 0);  // uneven
  }
  return layouts;
}

TEST_CASE("equal plans: each byte of a file once for all ranks, in chunks of any size") {
  const Comm world = Comm::world();
  const SharedDir dir(world);
  constexpr int64_t kBytes = 5 << 20;
  const std::string contents = test::noise(kBytes, 3);
  if (world.rank() == 0) io::write_file_atomically(dir.path() + "/w.bin", contents);
  parallel::agree(world, std::nullopt);
  WeightSource source;
  source.file = dir.path() + "/w.bin";
  source.num_bytes = kBytes;
  for (const std::vector<int>& layout : node_layouts(world.size())) {
    const Comm node = world.split(layout[static_cast<size_t>(world.rank())], world.rank());
    for (const LoadMode mode : {LoadMode::kNode, LoadMode::kBroadcast}) {
      const LoadOptions options{.mode = mode, .reads = {.chunk_bytes = 100'000}};
      RecordingSink sink(1 << 10);
      const LoadStats stats = load_weights({{{&source, &sink, 0}}}, {&world, &node}, options);
      CHECK((sink.bytes() == contents));
      const int num_nodes = 1 + *std::max_element(layout.begin(), layout.end());
      CHECK(stats.job_bytes_read == kBytes * (mode == LoadMode::kNode ? num_nodes : 1));
      if (mode == LoadMode::kNode) CHECK(stats.node_bytes_read == kBytes);
      // One rank stops while large messages are under way.
      for (const int64_t fails_at : {int64_t{0}, kBytes / 2, kBytes - 1}) {
        RecordingSink failing(1 << 10);
        if (world.rank() == world.size() - 1) failing.fails_at = fails_at;
        CHECK_THROWS_WITH_AS(load_weights({{{&source, &failing, 0}}}, {&world, &node}, options),
                             doctest::Contains("out of sink memory"), parallel::AgreedError);
      }
    }
  }
}

TEST_CASE("broadcast: the job reads the union of all plans once, whatever the nodes") {
  const Comm world = Comm::world();
  const SharedDir dir(world);
  const TensorFiles files(dir.path(), 23, world.rank() == 0);
  parallel::agree(world, std::nullopt);
  unsigned round = 100;
  for (const std::vector<int>& layout : node_layouts(world.size())) {
    const Comm node = world.split(layout[static_cast<size_t>(world.rank())], world.rank());
    for (const int64_t chunk_bytes : {1, 200, 1 << 20}) {
      for (int repeat = 0; repeat < 4; ++repeat, ++round) {
        CAPTURE(round);
        std::vector<std::unique_ptr<RandomPlan>> all;
        std::vector<const WeightPlan*> plans;
        for (int rank = 0; rank < world.size(); ++rank) {
          const bool equal = repeat == 3;
          all.push_back(std::make_unique<RandomPlan>(files, equal ? 7 : round * 31 + static_cast<unsigned>(rank),
                                                     equal ? 40 : num_entries(round, rank)));
          plans.push_back(&all.back()->plan());
        }
        RandomPlan& mine = *all[static_cast<size_t>(world.rank())];
        const LoadStats stats = load_weights(mine.plan(), {&world, &node},
                                             {.mode = LoadMode::kBroadcast,
                                              .reads = {.chunk_bytes = chunk_bytes, .max_gap_bytes = 0},
                                              .num_slots = 1 + repeat,
                                              .num_readers = 1 + repeat % 2});
        mine.check_complete();
        CHECK(stats.job_bytes_read >= test::union_bytes(plans, files));
        CHECK(stats.job_bytes_read < test::union_bytes(plans, files) + 120 * 18);
        CHECK(stats.node_bytes_read <= stats.job_bytes_read);
      }
    }
  }
}

TEST_CASE("each node reads what it needs") {
  const Comm world = Comm::world();
  const Comm node = world.split(world.rank() % 2, world.rank());
  const SharedDir dir(world);
  const TensorFiles files(dir.path(), 13, world.rank() == 0);
  parallel::agree(world, std::nullopt);
  RandomPlan same(files, 1, 20);
  const LoadStats stats = load_weights(same.plan(), {&world, &node}, {.reads = {.max_gap_bytes = 0}});
  same.check_complete();
  CHECK(stats.node_bytes_read == test::union_bytes({&same.plan()}, files));
  CHECK(stats.job_bytes_read == 2 * stats.node_bytes_read);
}

TEST_CASE("broadcast: a failure on any node is everyone's error, wherever in the files it is") {
  const Comm world = Comm::world();
  const SharedDir dir(world);
  const TensorFiles files(dir.path(), 29, world.rank() == 0);
  parallel::agree(world, std::nullopt);
  for (const std::vector<int>& layout : node_layouts(world.size())) {
    const Comm node = world.split(layout[static_cast<size_t>(world.rank())], world.rank());
    for (int failing = 0; failing < world.size(); ++failing) {
      for (const size_t entry : {size_t{0}, size_t{10}, size_t{30}}) {
        // Ranks that want the same, and ranks that do not.
        RandomPlan plan(files, 3 + (entry > 0 && world.rank() % 2 == 1 ? 1 : 0), 40);
        if (world.rank() == failing) plan.sink(entry).fails_at = 0;
        const bool fails = plan.plan().entries[entry].begin < plan.plan().entries[entry].end;
        const auto any = parallel::gather_values(world, world.rank() == failing && fails ? 1 : 0);
        const auto load = [&] {
          load_weights(plan.plan(), {&world, &node},
                       {.mode = LoadMode::kBroadcast, .reads = {.chunk_bytes = 30}, .num_slots = 1});
        };
        if (std::count(any.begin(), any.end(), 1) == 0)
          CHECK_NOTHROW(load());
        else
          CHECK_THROWS_WITH_AS(load(), doctest::Contains("out of sink memory"), parallel::AgreedError);
      }
    }
    if (world.rank() == 0)
      std::filesystem::resize_file(files.sources()[6].file, static_cast<uintmax_t>(files.sources()[8].offset));
    parallel::agree(world, std::nullopt);
    RandomPlan plan(files, 3, 60);
    CHECK_THROWS_WITH_AS(
        load_weights(plan.plan(), {&world, &node}, {.mode = LoadMode::kBroadcast, .reads = {.chunk_bytes = 30}}),
        doctest::Contains("part-1.bin: is cut off"), parallel::AgreedError);
    TensorFiles(dir.path(), 29, world.rank() == 0);
    parallel::agree(world, std::nullopt);
  }
}

TEST_CASE("a file that one rank reads and cannot is everyone's error, and the group can load again") {
  const Comm world = Comm::world();
  const SharedDir dir(world);
  const TensorFiles files(dir.path(), 17, world.rank() == 0);
  parallel::agree(world, std::nullopt);
  const std::string last = files.sources().back().file;
  for (const bool missing : {false, true}) {
    if (world.rank() == 0) {
      if (missing)
        std::filesystem::remove(last);
      else
        std::filesystem::resize_file(last, std::filesystem::file_size(last) / 2);
    }
    parallel::agree(world, std::nullopt);
    for (const int num_readers : {1, 2}) {
      const auto load = [&] {
        RandomPlan plan(files, 2, world.rank() == 0 ? 0 : 60);
        load_weights(plan.plan(), {&world, &world},
                     {.reads = {.chunk_bytes = 50}, .num_slots = 2, .num_readers = num_readers});
      };
      CHECK_THROWS_WITH_AS(load(), doctest::Contains(missing ? "part-2.bin: cannot open" : "part-2.bin: is cut off"),
                           parallel::AgreedError);
      CHECK_THROWS_WITH_AS(load(), doctest::Contains("tensor tensor-2."), parallel::AgreedError);
    }
  }
  const TensorFiles again(dir.path(), 17, world.rank() == 0);
  parallel::agree(world, std::nullopt);
  RandomPlan plan(again, 2, 60);
  load_weights(plan.plan(), {&world, &world});
  plan.check_complete();
}

TEST_CASE("a sink that fails on one rank is everyone's error, with that rank, file and tensor named") {
  const Comm world = Comm::world();
  const SharedDir dir(world);
  const TensorFiles files(dir.path(), 19, world.rank() == 0);
  parallel::agree(world, std::nullopt);
  for (int failing = 0; failing < world.size(); ++failing) {
    RandomPlan plan(files, 3, 40);
    size_t failing_entry = 0;
    while (plan.plan().entries[failing_entry].begin == plan.plan().entries[failing_entry].end) ++failing_entry;
    const WeightPlan::Entry& entry = plan.plan().entries[failing_entry];
    if (world.rank() == failing) plan.sink(failing_entry).fails_at = entry.end - 1;
    std::string what;
    try {
      load_weights(plan.plan(), {&world, &world}, {.reads = {.chunk_bytes = 20}, .num_slots = 1});
    } catch (const parallel::AgreedError& error) {
      what = error.what();
      CHECK(error.kind() == ErrorKind::kDevice);
    }
    CAPTURE(what);
    CHECK(what.find("rank " + std::to_string(failing) + " of ") == 0);
    CHECK(what.find(": tensor " + entry.source->name + ": out of sink memory") != std::string::npos);
  }
}

TEST_CASE("a plan that one rank cannot make is everyone's error") {
  const Comm world = Comm::world();
  WeightSource odd;
  odd.num_bytes = 10;
  RecordingSink sink(3);
  WeightPlan plan;
  if (world.rank() == world.size() - 1) plan.entries.push_back({&odd, &sink, 0});
  CHECK_THROWS_AS(load_weights(plan, {&world, &world}), parallel::AgreedError);
}

}  // namespace
}  // namespace tokenmill
