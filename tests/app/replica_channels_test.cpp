#include "app/replica_channels.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <string>
#include <thread>

#include "engine/engine.h"
#include "parallel/connect.h"
#include "parallel/mpi.h"
#include "tests/support/fake_runner.h"
#include "tests/support/immediate_stream.h"

namespace tokenmill::app {
namespace {

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

RunnerLimits limits() {
  RunnerLimits limits;
  limits.kv_groups = {{.block_size = 16}};
  limits.num_blocks = {40};
  limits.max_num_seqs = 8;
  limits.max_num_batched_tokens = 32;
  limits.max_logits_rows = 8;
  limits.max_model_len = 64;
  limits.vocab_size = 50;
  return limits;
}

TEST_CASE("followers execute every step of their leader and leave when it stops") {
  const parallel::Comm world = parallel::Comm::world().duplicate();
  parallel::HostProgress progress;
  ReplicaLink link(world, progress);
  MpiPlanChannel plans(link);
  const test::FakeModel model{limits().kv_groups, limits().vocab_size, 3, 0};
  test::FakeRunner device(model, limits());
  if (world.rank() == 0) {
    LeaderRunner leader(device, plans);
    Engine engine(leader, nullptr, {.eos_token_ids = {1}, .detokenize = false});
    for (int i = 0; i < 30; ++i) engine.submit({.request_id = i, .prompt_token_ids = {4, 5, i, 7, 8}});
    while (engine.step()) {
    }
    leader.stop();
    link.flush();
    CHECK(engine.take_finished().size() == 30);
  } else {
    const int64_t followed = follow(device, plans);
    CHECK(followed == device.num_steps());
  }
  for (const std::string& theirs : parallel::gather_bytes(
           world, std::to_string(device.num_steps()) + " " + std::to_string(device.num_sampled_tokens())))
    CHECK(theirs == std::to_string(device.num_steps()) + " " + std::to_string(device.num_sampled_tokens()));
  CHECK(device.num_steps() > 30);
}

TEST_CASE("messages of any length arrive whole and in order, results at the leader") {
  const parallel::Comm world = parallel::Comm::world().duplicate();
  parallel::HostProgress progress;
  ReplicaLink link(world, progress);
  MpiPlanChannel plans(link);
  MpiResultChannel results(link);
  const int last = world.size() - 1;
  for (const size_t length : {0, 1, 1000, 5000, 300000, 5000000}) {
    const std::string text(length, static_cast<char>('a' + length % 26));
    if (world.rank() == 0) {
      plans.send(bytes_of(text));
      plans.send(bytes_of(text + "2"));
      CHECK(results.receive() == bytes_of(text + "3"));
    } else {
      CHECK(plans.receive() == bytes_of(text));
      CHECK(plans.receive() == bytes_of(text + "2"));
      if (world.rank() == last) results.send(bytes_of(text + "3"));
    }
  }
  link.flush();
  parallel::agree(world, std::nullopt);
}

TEST_CASE("tensors move while a rank waits for a message") {
  const parallel::Comm world = parallel::Comm::world().duplicate();
  test::ImmediateStream stream;
  parallel::HostProgress progress;
  const parallel::Connection tensors = parallel::connect(world, stream, progress);
  ReplicaLink link(world, progress);
  constexpr int64_t kBytes = int64_t{24} << 20;  // more than any ring holds
  std::vector<std::byte> storage(kBytes, std::byte{7});
  const TensorView view(storage.data(), DType::kU8, {kBytes}, /*is_host=*/true);
  const int last = world.size() - 1;
  if (world.rank() == 0) {
    const auto sent = tensors.communicator->send(view, last);
    CHECK(link.receive("the word that the tensor is there") == bytes_of("there"));
    tensors.communicator->wait(sent);
  } else if (world.rank() == last) {
    std::fill(storage.begin(), storage.end(), std::byte{0});
    tensors.communicator->wait(tensors.communicator->recv(view, 0));
    CHECK(std::all_of(storage.begin(), storage.end(), [](std::byte b) { return b == std::byte{7}; }));
    link.send(0, bytes_of("there"));
    link.flush();
  }
  parallel::agree(world, std::nullopt);
}

TEST_CASE("a long wait costs little of a core, a short one little time") {
  const parallel::Comm world = parallel::Comm::world().duplicate();
  parallel::HostProgress progress;
  ReplicaLink link(world, progress);
  if (world.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    for (int rank = 1; rank < world.size(); ++rank) link.send(rank, bytes_of("now"));
    link.flush();
  } else {
    timespec before{}, after{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    CHECK(link.receive("a plan") == bytes_of("now"));
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    const double cpu_s =
        static_cast<double>(after.tv_sec - before.tv_sec) + static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-9;
    CHECK(cpu_s < 0.15);
    CHECK(link.waited_s() > 1.4);
  }
  parallel::agree(world, std::nullopt);
}

}  // namespace
}  // namespace tokenmill::app
