// Steps recorded and replayed, and launched before the last one's tokens are known: the bits of steps that run operation
// by operation, one at a time.
#include "engine/step_graphs.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/self_communicator.h"
#include "tests/engine/models/loaded_model.h"
#include "tests/support/backends.h"
#include "tests/support/fake_ops.h"
#include "tests/support/random.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include "kernels/emulation/runtime.h"
#endif

namespace tokenmill {
namespace {

using test::Loaded;

/// Rows of many kinds: greedy, sampled and filtered, with penalties, biases, reports and scores; prompts of 1 to 40
/// tokens, some of which begin alike.
std::vector<Request> some_requests(int64_t count, int64_t vocab_size) {
  test::Random random(11);
  std::vector<Request> requests;
  for (int64_t i = 0; i < count; ++i) {
    Request request;
    request.request_id = i;
    const int64_t length = i % 3 == 0 ? 1 + i : 20 + random.index(20);
    for (int64_t t = 0; t < length; ++t)
      request.prompt_token_ids.push_back(t < 16 && i % 2 == 0 ? 5 : static_cast<int32_t>(random.index(vocab_size)));
    request.random_key = 77 + static_cast<uint64_t>(i);
    SamplingParams& sampling = request.sampling;
    sampling.temperature = i % 4 == 0 ? 0 : 0.9;
    sampling.max_tokens = 3 + i % 5;
    sampling.ignore_eos = true;
    if (i % 4 == 1) sampling.top_p = 0.8;
    if (i % 4 == 2) sampling.n = 2;
    if (i % 5 == 2) sampling.presence_penalty = sampling.frequency_penalty = 0.7;
    if (i % 7 == 3) sampling.logprobs = 3;
    if (i % 7 == 5) sampling.prompt_logprobs = 2;
    if (i % 6 == 4) sampling.logit_bias = SharedList<std::pair<int32_t, float>>({{7, 3.0f}, {9, -50.0f}});
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Way {
  int steps_in_flight;
  int64_t recorded;  ///< record_steps(); 0: not called
};

void check_equal(const std::vector<RequestOutput>& got, const std::vector<RequestOutput>& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    REQUIRE_FALSE(want[i].error);
    REQUIRE_FALSE(got[i].error);
    CHECK(got[i].prompt_logprobs == want[i].prompt_logprobs);
    REQUIRE(got[i].outputs.size() == want[i].outputs.size());
    for (size_t s = 0; s < want[i].outputs.size(); ++s) {
      CHECK(got[i].outputs[s].token_ids == want[i].outputs[s].token_ids);
      CHECK(got[i].outputs[s].cumulative_logprob == want[i].outputs[s].cumulative_logprob);
      CHECK(got[i].outputs[s].logprobs == want[i].outputs[s].logprobs);
    }
  }
}

std::vector<RequestOutput> run(Ops& ops, const Way& way, int64_t num_requests) {
  const auto model = std::make_unique<Loaded>(ops, "tiny-llama3", 3, 24, DType::kF32, 40, way.steps_in_flight);
  if (way.recorded > 0) model->runner->record_steps(way.recorded);
  Engine engine(*model->runner, nullptr, {.detokenize = false});
  auto outputs = test::run_all(engine, some_requests(num_requests, model->limits.vocab_size));
  const StepGraphFigures figures = model->runner->graph_figures();
  const auto replayed = [](const std::vector<StepGraphFigures::Size>& sizes) {
    return std::count_if(sizes.begin(), sizes.end(), [](const auto& size) { return size.num_steps > 0; });
  };
  // Steps of several sizes, and where reports are wanted a head that is not recorded.
  CHECK((replayed(figures.layers) > 1) == (way.recorded > 0));
  CHECK((replayed(figures.heads) > 1) == (way.recorded > 0));
  CHECK((figures.num_eager_layers > 0) == (way.recorded < 24));
  CHECK(figures.num_eager_heads > 0);
  return outputs;
}

constexpr Way kWays[] = {{2, 0}, {1, 24}, {2, 24}, {2, 10}};

void check_ways(Ops& ops, int64_t num_requests) {
  CAPTURE(ops.describe());
  const auto want = run(ops, {1, 0}, num_requests);
  for (const Way& way : kWays) {
    CAPTURE(way.steps_in_flight);
    CAPTURE(way.recorded);
    check_equal(run(ops, way, num_requests), want);
  }
}

TEST_CASE("graph sizes ascend to the largest step, and a step is padded by at most 7 tokens, a large one by 15") {
  for (const int64_t most : {1, 2, 3, 8, 100, 256, 300, 512}) {
    const std::vector<int64_t> sizes = graph_sizes(most);
    CHECK(std::is_sorted(sizes.begin(), sizes.end(), std::less_equal<>()));
    CHECK(sizes.front() == 1);
    CHECK(sizes.back() == most);
    for (int64_t count = 1; count <= most; ++count) {
      const int64_t size = *std::lower_bound(sizes.begin(), sizes.end(), count);
      CHECK(size - count <= (count <= 256 ? 7 : 15));
    }
  }
  CHECK(graph_sizes(0).empty());
}

TEST_CASE("transfers count whenever they are replayed, and not when they are recorded") {
  test::FakeOps ops;
  parallel::SelfCommunicator group(ops.stream());
  float values[2] = {1, 0};
  const TensorView part(&values[0], DType::kF32, {1}), all(&values[1], DType::kF32, {1, 1});
  StepGraphs graphs(ops.stream(), group);
  graphs.record({1, 3}, [&](int64_t size) {
    for (int64_t i = 0; i < size; ++i) group.wait(group.all_gather(all, part));
  });
  const auto calls = [&] { return group.counts()[static_cast<size_t>(parallel::TransferKind::kAllGather)].calls; };
  CHECK(calls() == 0);
  graphs.replay(*graphs.find(2));
  graphs.replay(*graphs.find(3));
  graphs.replay(*graphs.find(1));
  CHECK(calls() == 7);
  values[1] = 0;
  ops.stream().synchronize();
  CHECK(values[1] == 1);
  CHECK(graphs.graphs()[1].num_steps == 2);
  CHECK(graphs.find(4) == nullptr);
  CHECK(graphs.find(0) == nullptr);
}

TEST_CASE("recorded steps and steps in flight change no bit") {
  for (Ops* ops : test::backends()) {
    if (!test::is_slow(*ops)) check_ways(*ops, 40);
  }
}

TEST_CASE("recorded steps and steps in flight change no bit on a device of another make") {
  test::FakeOps ops;
  check_ways(ops, 12);
}

#ifdef TOKENMILL_CUDA_EMULATED
TEST_CASE("recorded steps and steps in flight change no bit on a GPU, in whatever order its work runs") {
  Ops& ops = *test::backends().back();
  const emulation::Settings settings = emulation::settings();
  const auto want = run(ops, {1, 0}, 8);
  for (const uint64_t seed : {3, 4, 5, 6}) {
    CAPTURE(seed);
    emulation::Settings other = settings;
    other.seed = seed;
    emulation::configure(other);
    check_equal(run(ops, kWays[seed % 4], 8), want);
  }
  emulation::configure(settings);
}

/// Decodes of three sequences, one token each a step, in whole graphs.
TEST_CASE(
    "in its steady state a GPU allocates nothing, no call of the host blocks, and a step's input and output are a "
    "kernel each") {
  Ops& ops = *test::backends().back();
  for (const bool recorded : {true, false}) {
    CAPTURE(recorded);
    Loaded model(ops, "tiny-llama3", 3, 24, DType::kF32, 40, 2);
    if (recorded) model.runner->record_steps(24);
    Engine engine(*model.runner, nullptr, {.detokenize = false});
    for (int64_t id = 0; id < 3; ++id) {
      Request request;
      request.request_id = id;
      request.prompt_token_ids.assign(4 + id, 5);
      request.sampling.temperature = 0.8;
      request.sampling.max_tokens = 30;
      request.sampling.ignore_eos = true;
      engine.submit(request);
    }
    for (int step = 0; step < 6; ++step) REQUIRE(engine.step());
    const emulation::Counters before = emulation::counters();
    constexpr int kSteps = 12;
    for (int step = 0; step < kSteps; ++step) REQUIRE(engine.step());
    const emulation::Counters after = emulation::counters();
    CHECK(after.device_allocations == before.device_allocations);
    CHECK(after.host_allocations == before.host_allocations);
    CHECK(after.blocking_copies == before.blocking_copies);
    CHECK(after.pageable_copies == before.pageable_copies);
    CHECK(after.copies == before.copies);
    CHECK(after.synchronizations == before.synchronizations);
    CHECK(after.graph_launches - before.graph_launches == (recorded ? 2 * kSteps : 0));
    while (engine.step()) {
    }
    CHECK(engine.take_finished().size() == 3);
  }
}
#endif

}  // namespace
}  // namespace tokenmill
