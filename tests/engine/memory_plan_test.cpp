#include "engine/memory_plan.h"

#include <doctest/doctest.h>

#include "kernels/core/error.h"

namespace tokenmill {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

MemoryRequest request() {
  MemoryRequest r;
  r.total_bytes = 1024 * kMiB;
  r.utilization = 0.5;
  r.weight_bytes = 100 * kMiB;
  r.activation_bytes = 12 * kMiB;
  r.kv_groups = {KvSpec{}};
  r.kv_block_bytes = {kMiB};
  r.max_num_seqs = 8;
  r.max_model_len = 1600;  // 100 blocks of 16
  return r;
}

TEST_CASE("KV blocks get what weights and activations leave") {
  const MemoryPlan plan = plan_memory(request());
  CHECK(plan.budget_bytes == 512 * kMiB);
  CHECK(plan.num_blocks == std::vector<int64_t>{400});
  CHECK(plan.kv_bytes == 400 * kMiB);
  CHECK(plan.kv_tokens == 6400);
}

TEST_CASE("ranks on one device share the budget") {
  MemoryRequest r = request();
  r.ranks_on_device = 2;
  CHECK(plan_memory(r).num_blocks == std::vector<int64_t>{144});
}

TEST_CASE("ranks that have one copy of the weights in common count their share of it") {
  MemoryRequest r = request();
  r.ranks_on_device = r.weight_sharers = 2;
  const MemoryPlan plan = plan_memory(r);
  CHECK(plan.num_blocks == std::vector<int64_t>{194});  // 256 - 50 - 12
  CHECK(plan.weight_bytes == 100 * kMiB);
  CHECK(plan.describe().starts_with("weights 100.00 MiB shared by 2 ranks, activations"));
}

TEST_CASE("memory shared with other ranks for tensors is part of the plan") {
  MemoryRequest r = request();
  r.window_bytes = 6 * kMiB;
  const MemoryPlan plan = plan_memory(r);
  CHECK(plan.num_blocks == std::vector<int64_t>{394});
  CHECK(plan.window_bytes == 6 * kMiB);
  CHECK(plan.describe().find(", activations 12.00 MiB, shared windows 6.00 MiB, KV 394.00 MiB (") != std::string::npos);
  r.num_blocks = 395;
  CHECK_THROWS_WITH_AS(plan_memory(r), doctest::Contains("shared windows 6.00 MiB and KV cache 395.00 MiB"), Error);
}

TEST_CASE("what the driver holds of a GPU is part of the plan") {
  MemoryRequest r = request();
  r.driver_bytes = 40 * kMiB;
  const MemoryPlan plan = plan_memory(r);
  CHECK(plan.num_blocks == std::vector<int64_t>{360});
  CHECK(plan.describe().find(", activations 12.00 MiB, driver and graphs 40.00 MiB, KV 360.00 MiB (") !=
        std::string::npos);
  r.num_blocks = 361;
  CHECK_THROWS_WITH_AS(plan_memory(r), doctest::Contains("driver and graphs 40.00 MiB and KV cache 361.00 MiB"), Error);
}

TEST_CASE("no more blocks than the sequences can use") {
  MemoryRequest r = request();
  r.max_num_seqs = 2;
  CHECK(plan_memory(r).num_blocks == std::vector<int64_t>{200});
}

TEST_CASE("explicit sizes win, and every group has the same number of blocks") {
  MemoryRequest r = request();
  r.kv_groups.push_back(KvSpec{});
  r.kv_block_bytes.push_back(kMiB);
  r.kv_cache_bytes = 300 * kMiB;
  CHECK(plan_memory(r).num_blocks == std::vector<int64_t>{150, 150});
  r.num_blocks = 20;  // fewer than one longest sequence: allowed when asked for
  CHECK(plan_memory(r).num_blocks == std::vector<int64_t>{20, 20});
}

TEST_CASE("a sliding window gets the blocks of its window and a chunk, twice where there is memory") {
  MemoryRequest r = request();
  r.max_num_batched_tokens = 64;
  KvSpec window;
  window.kind = KvSpec::Kind::kSlidingWindow;
  window.window = 65;  // 4 blocks before a chunk of 4, and one for a chunk that starts inside a block
  r.kv_groups = {window};
  CHECK(plan_memory(r).num_blocks == std::vector<int64_t>{2 * 8 * 9});
  r.max_model_len = 1'600'000;  // no more for any length
  CHECK(plan_memory(r).num_blocks == std::vector<int64_t>{2 * 8 * 9});
  r.max_model_len = 1600;
  r.kv_groups = {KvSpec{}, window};  // 100 and 9 blocks a sequence share 400 MiB
  r.kv_block_bytes = {kMiB, kMiB};
  CHECK(plan_memory(r).num_blocks == std::vector<int64_t>{366, 33});
  CHECK(plan_memory(r).kv_bytes == 399 * kMiB);
  CHECK(plan_memory(r).describe() ==
        "weights 100.00 MiB, activations 12.00 MiB, KV 399.00 MiB (366 + 33 blocks, 5856 tokens) of 512.00 MiB");
  r.max_steps_in_flight = 3;  // a chunk of each may be in use: 4 + 12 + 1 blocks
  CHECK(plan_memory(r).num_blocks == std::vector<int64_t>{341, 58});
  r.kv_cache_bytes = 100 * kMiB;
  CHECK_THROWS_WITH_AS(plan_memory(r), doctest::Contains("needs 100 + 17 blocks"), Error);
}

TEST_CASE("what does not fit is refused with the numbers") {
  MemoryRequest r = request();
  r.weight_bytes = 600 * kMiB;
  CHECK_THROWS_WITH_AS(plan_memory(r), doctest::Contains("weights 600.00 MiB"), Error);
  r = request();
  r.weight_bytes = 450 * kMiB;
  CHECK_THROWS_WITH_AS(plan_memory(r),
                       doctest::Contains("50 blocks of 16 tokens; one sequence of --max-model-len 1600 needs 100"),
                       Error);
  r = request();
  r.kv_cache_bytes = 600 * kMiB;
  CHECK_THROWS_WITH_AS(plan_memory(r), doctest::Contains("KV cache 600.00 MiB"), Error);
}

TEST_CASE("a refusal names the option that asked for the blocks") {
  MemoryRequest r = request();
  r.kv_cache_bytes = 10 * kMiB;
  CHECK_THROWS_WITH_AS(plan_memory(r),
                       doctest::Contains("--kv-cache-memory-bytes 10.00 MiB holds 10 blocks of 16 tokens"), Error);
  r.kv_cache_bytes = 600 * kMiB;
  CHECK_THROWS_WITH_AS(plan_memory(r), doctest::Contains("; lower --kv-cache-memory-bytes, raise"), Error);
  r = request();
  r.num_blocks = 600;
  CHECK_THROWS_WITH_AS(plan_memory(r), doctest::Contains("; lower --num-gpu-blocks-override, raise"), Error);
  r.num_blocks = 0;
  CHECK_THROWS_WITH_AS(plan_memory(r), doctest::Contains("--num-gpu-blocks-override is 0"), Error);
  r = request();
  r.weight_bytes = 600 * kMiB;
  CHECK_THROWS_WITH_AS(plan_memory(r),
                       doctest::Contains("; lower --max-num-batched-tokens, --max-num-seqs or --max-logprobs, raise"),
                       Error);
}

TEST_CASE("bytes are printed in the largest binary unit") {
  CHECK(format_bytes(1000) == "1000 B");
  CHECK(format_bytes(1536) == "1.50 KiB");
  CHECK(format_bytes(int64_t{3} << 30) == "3.00 GiB");
}

}  // namespace
}  // namespace tokenmill
