#include "engine/models/loader.h"

#include <doctest/doctest.h>

#include <atomic>

#include "engine/models/chunk_route.h"
#include "engine/models/load_plan.h"
#include "tests/engine/models/loader_fixture.h"

namespace tokenmill {
namespace {

using test::RandomPlan;
using test::RecordingSink;
using test::TensorFiles;

TensorNeed need(const std::string& file, int64_t offset, int64_t num_bytes, int64_t unit, int64_t begin, int64_t end) {
  return {file, file + "@" + std::to_string(offset), offset, num_bytes, unit, begin, end};
}

TEST_CASE("needs of one tensor become disjoint ones in units that suit all") {
  const std::vector<TensorNeed> needs = {need("b", 0, 60, 4, 8, 16),    need("a", 100, 60, 6, 0, 6),
                                         need("a", 100, 60, 4, 40, 48), need("a", 0, 10, 1, 3, 3),
                                         need("a", 100, 60, 6, 6, 18),  need("b", 0, 60, 4, 20, 24)};
  // a@100: units of 12: [0, 6) and [6, 18) grow to [0, 24); [40, 48) to [36, 48). a@0 wants nothing.
  const std::vector<TensorNeed> expected = {need("a", 100, 60, 12, 0, 24), need("a", 100, 60, 12, 36, 48),
                                            need("b", 0, 60, 4, 8, 16), need("b", 0, 60, 4, 20, 24)};
  CHECK((merge_needs(needs) == expected));
  CHECK((merge_needs(expected) == expected));
  CHECK(merge_needs({}).empty());
  CHECK_THROWS_WITH_AS(merge_needs(std::vector{need("a", 0, 10, 3, 0, 9)}),
                       doctest::Contains("a: bytes [0, 9) in units of 3 are wanted of tensor a@0 with 10 bytes"),
                       Error);
}

TEST_CASE("needs travel as bytes, and cut bytes are an error") {
  const std::vector<TensorNeed> needs = {need("dir/a.safetensors", 1, 2, 1, 0, 2), need("", 0, 0, 1, 0, 0)};
  const std::string bytes = to_bytes(needs);
  CHECK((needs_from_bytes(bytes) == needs));
  CHECK(needs_from_bytes("").empty());
  for (size_t cut = 1; cut < to_bytes(std::vector{needs[0]}).size(); ++cut)
    CHECK_THROWS_AS(needs_from_bytes(bytes.substr(0, cut)), Error);
}

TEST_CASE("nodes take turns at reading, each chunk goes along the nodes that need it") {
  // Chunks of 10 bytes: node 0 needs [0, 40), node 1 [10, 60), node 2 [20, 30) and [50, 60).
  const std::vector<std::vector<TensorNeed>> by_node = {{need("f", 0, 60, 1, 0, 40)},
                                                        {need("f", 0, 60, 1, 10, 60)},
                                                        {need("f", 0, 60, 1, 20, 30), need("f", 0, 60, 1, 50, 60)}};
  std::vector<TensorNeed> all;
  for (const auto& own : by_node) all.insert(all.end(), own.begin(), own.end());
  const LoadPlan load = make_load_plan(merge_needs(all), {.chunk_bytes = 10});
  REQUIRE(load.reads.chunks.size() == 6);
  // Chains: 0 | 1 0 | 2 0 1 | 1 0 | 1 | 2 1.
  CHECK((plan_routes(load, by_node, 0) ==
         std::vector<ChunkRoute>{{0, -1, -1, 10}, {1, 1, -1, 10}, {2, 2, 1, 10}, {3, 1, -1, 10}}));
  CHECK((plan_routes(load, by_node, 1) ==
         std::vector<ChunkRoute>{{1, -1, 0, 10}, {2, 0, -1, 10}, {3, -1, 0, 10}, {4, -1, -1, 10}, {5, 2, -1, 10}}));
  CHECK((plan_routes(load, by_node, 2) == std::vector<ChunkRoute>{{2, -1, 0, 10}, {5, -1, 1, 10}}));
  CHECK(read_all(load).size() == 6);
}

TEST_CASE("every byte reaches every sink once, ascending, whatever the sizes of chunks and the number of readers") {
  const test::TempDir dir;
  const TensorFiles files(dir.path(), 5, true);
  for (const int64_t chunk_bytes : {1, 64, 1000, 1 << 20}) {
    for (const int num_readers : {1, 3}) {
      for (unsigned seed = 0; seed < 4; ++seed) {
        CAPTURE(chunk_bytes);
        CAPTURE(seed);
        RandomPlan plan(files, seed, static_cast<int>(seed) * 7);
        const LoadStats stats = load_weights(plan.plan(), {},
                                             {.reads = {.chunk_bytes = chunk_bytes, .max_gap_bytes = 0},
                                              .num_slots = 1 + static_cast<int>(seed),
                                              .num_readers = num_readers});
        plan.check_complete();
        CHECK(stats.bytes_read == test::union_bytes({&plan.plan()}, files));
        CHECK(stats.job_bytes_read == stats.bytes_read);
      }
    }
  }
}

TEST_CASE("a tensor may feed several sinks, a sink have several parts; it is finished once, after its last byte") {
  class Stacked : public WeightSink {
   public:
    void write(int part, int64_t, std::span<const std::byte> bytes) override {
      CHECK_FALSE(finished);
      got[part] += bytes.size();
    }
    int64_t granularity(int) const override { return 4; }
    void finish() override {
      CHECK_FALSE(finished);
      finished = true;
    }
    void adopt() override {}
    std::map<int, size_t> got;
    bool finished = false;
  };
  const test::TempDir dir;
  WeightSource first, second;
  first.file = second.file = dir.write("w.bin", test::noise(40, 1));
  first.num_bytes = 16;
  second.offset = 16;
  second.num_bytes = 24;
  Stacked both, one, none;
  load_weights({{{&second, &both, 1}, {&first, &one, 0}, {&first, &both, 0}, {&first, &none, 0, 8, 8}}});
  CHECK(both.finished);
  CHECK(both.got == std::map<int, size_t>{{0, 16}, {1, 24}});
  CHECK(one.got[0] == 16);
  CHECK(none.finished);
  CHECK(none.got.empty());
}

TEST_CASE("a file that ends before its tensors, or is not there, is an error that names it and the tensor") {
  const test::TempDir dir;
  WeightSource whole, cut;
  whole.file = cut.file = dir.write("short.bin", "12345678");
  whole.stored_name = "whole";
  whole.num_bytes = 8;
  cut.stored_name = "cut";
  cut.offset = 8;
  cut.num_bytes = 8;
  RecordingSink a(4), b(4);
  CHECK_THROWS_WITH_AS(load_weights({{{&whole, &a, 0}, {&cut, &b, 0}}}),
                       doctest::Contains("short.bin: is cut off: 16 bytes wanted at offset 0, the file holds 8 there; "
                                         "tensor cut was being read"),
                       Error);
  WeightSource absent = whole;
  absent.file = dir / "absent.bin";
  CHECK_THROWS_WITH_AS(load_weights({{{&absent, &a, 0}}}), doctest::Contains("absent.bin: cannot open"), Error);
}

/// 4,000 bytes of noise in a file.
WeightSource noise_in(const test::TempDir& dir) {
  WeightSource source;
  source.file = dir.write("w.bin", test::noise(4000, 1));
  source.stored_name = "the.tensor";
  source.num_bytes = 4000;
  return source;
}

TEST_CASE("a chunk that has been read and one that has been taken in are progress") {
  const test::TempDir dir;
  const WeightSource source = noise_in(dir);
  RecordingSink sink(4);
  std::atomic<int> calls = 0;
  load_weights({{{&source, &sink, 0}}}, {},
               {.reads = {.chunk_bytes = 100}, .on_progress = [&] { ++calls; }, .num_readers = 2});
  CHECK(calls == 2 * 40);
}

TEST_CASE("what a sink throws names file and tensor, also while readers wait for room") {
  const test::TempDir dir;
  const WeightSource source = noise_in(dir);
  RecordingSink sink(4);
  sink.fails_at = 400;
  CHECK_THROWS_WITH_AS(
      load_weights({{{&source, &sink, 0}}}, {}, {.reads = {.chunk_bytes = 100}, .num_slots = 2, .num_readers = 2}),
      doctest::Contains("w.bin: tensor the.tensor: out of sink memory"), Error);
}

}  // namespace
}  // namespace tokenmill
