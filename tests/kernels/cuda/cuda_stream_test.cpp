#include "kernels/cuda/cuda_stream.h"

#include <doctest/doctest.h>

#include <vector>

#include "kernels/core/error.h"
#include "kernels/cuda/cuda_memory.h"
#include "tests/support/cuda_device.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include "kernels/emulation/runtime.h"
#endif

using namespace tokenmill;

namespace {

/// Device and pinned memory for one int each way.
struct Ints {
  cuda::CudaMemory memory;
  Buffer on_device, in, out;
  explicit Ints(Device device)
      : memory(device), on_device(memory.allocate(4)), in(memory.allocate_host(4)), out(memory.allocate_host(4)) {}
  int& input() { return *static_cast<int*>(in.data()); }
  int& output() { return *static_cast<int*>(out.data()); }
};

}  // namespace

TEST_CASE("a stream keeps host functions and copies in order") {
  const auto device = test::cuda_device();
  if (!device) return;
  cuda::CudaStream stream(*device);
  Ints ints(*device);
  stream.enqueue([&] { ints.input() = 7; });
  stream.copy(ints.on_device.data(), ints.in.data(), 4);
  stream.enqueue([&] { ints.input() = 8; });
  stream.copy(ints.out.data(), ints.on_device.data(), 4);
  int seen = 0;
  stream.enqueue([&] { seen = ints.output(); });
  const auto event = stream.record();
  stream.wait(event);
  CHECK(stream.done(event));
  CHECK(seen == 7);
  CHECK(ints.input() == 8);
}

TEST_CASE("events pass in order; one that was not recorded is refused") {
  const auto device = test::cuda_device();
  if (!device) return;
  cuda::CudaStream stream(*device);
  int ran = 0;
  stream.enqueue([&] { ++ran; });
  const auto first = stream.record();
  stream.enqueue([&] { ++ran; });
  const auto second = stream.record();
  while (!stream.done(second)) {
  }
  CHECK(ran == 2);
  CHECK(stream.done(first));
  CHECK_NOTHROW(stream.wait(first));
  CHECK_THROWS_AS(stream.wait(second + 1), Error);
  CHECK_THROWS_AS(stream.done(second + 1), Error);
}

TEST_CASE("what a host function throws surfaces at the next wait; functions before that are skipped, later ones run") {
  const auto device = test::cuda_device();
  if (!device) return;
  cuda::CudaStream stream(*device);
  std::vector<int> order;
  stream.enqueue([&] { order.push_back(1); });
  stream.enqueue([] { throw Error(ErrorKind::kMpi, "lost a rank"); });
  stream.enqueue([&] { order.push_back(2); });
  const auto event = stream.record();
  CHECK_THROWS_WITH_AS(stream.wait(event), "lost a rank", Error);
  CHECK_NOTHROW(stream.synchronize());
  stream.enqueue([&] { order.push_back(3); });
  stream.synchronize();
  CHECK(order == std::vector<int>{1, 3});
}

TEST_CASE("captured work runs at every replay, not when recorded, on what its buffers then hold") {
  const auto device = test::cuda_device();
  if (!device) return;
  cuda::CudaStream stream(*device);
  Ints ints(*device);
  int calls = 0;
  stream.begin_capture();
  CHECK(stream.capturing());
  stream.copy(ints.on_device.data(), ints.in.data(), 4);
  stream.enqueue([&] { ++calls; });
  stream.copy(ints.out.data(), ints.on_device.data(), 4);
  const auto recording = stream.end_capture();
  CHECK_FALSE(stream.capturing());
  stream.synchronize();
  CHECK(calls == 0);
  CHECK(ints.output() == 0);
  for (const int value : {5, 6}) {
    ints.input() = value;
    stream.replay(*recording);
    stream.synchronize();
    CHECK(ints.output() == value);
  }
  CHECK(calls == 2);
}

TEST_CASE("a failure inside a replay surfaces, and the next replay runs") {
  const auto device = test::cuda_device();
  if (!device) return;
  cuda::CudaStream stream(*device);
  bool fail = true;
  int calls = 0;
  stream.begin_capture();
  stream.enqueue([&] {
    if (fail) throw Error(ErrorKind::kMpi, "lost a rank");
  });
  stream.enqueue([&] { ++calls; });
  const auto recording = stream.end_capture();
  stream.replay(*recording);
  CHECK_THROWS_WITH_AS(stream.synchronize(), "lost a rank", Error);
  CHECK(calls == 0);
  fail = false;
  stream.replay(*recording);
  stream.synchronize();
  CHECK(calls == 1);
}

TEST_CASE("an event, a recording and a second capture have no place inside a capture") {
  const auto device = test::cuda_device();
  if (!device) return;
  cuda::CudaStream stream(*device), other(*device);
  stream.begin_capture();
  stream.enqueue([] {});
  const auto recording = stream.end_capture();
  stream.begin_capture();
  CHECK_THROWS_AS(stream.record(), Error);
  CHECK_THROWS_AS(stream.begin_capture(), Error);
  CHECK_THROWS_AS(stream.replay(*recording), Error);
  CHECK_THROWS_AS(other.follow(stream), Error);
  CHECK_THROWS_AS(stream.synchronize(), Error);  // CUDA's own refusal
  CHECK_THROWS_AS(stream.end_capture(), Error);  // which has cost the capture
  CHECK_THROWS_AS(stream.end_capture(), Error);
  CHECK_NOTHROW(stream.synchronize());
}

TEST_CASE("a stream that follows another sees what the other did before") {
  const auto device = test::cuda_device();
  if (!device) return;
  for (int repeat = 0; repeat < 20; ++repeat) {
    cuda::CudaStream writer(*device), reader(*device);
    Ints ints(*device);
    ints.input() = repeat + 1;
    writer.copy(ints.on_device.data(), ints.in.data(), 4);
    reader.follow(writer);
    reader.copy(ints.out.data(), ints.on_device.data(), 4);
    reader.synchronize();
    CHECK(ints.output() == repeat + 1);
  }
}

#ifdef TOKENMILL_CUDA_EMULATED
TEST_CASE("steps that copy, record and wait allocate nothing and block nowhere") {
  const auto device = test::cuda_device();
  cuda::CudaStream stream(*device);
  Ints ints(*device);
  const auto before = emulation::counters();
  for (int step = 0; step < 5; ++step) {
    stream.copy(ints.on_device.data(), ints.in.data(), 4);
    stream.copy(ints.out.data(), ints.on_device.data(), 4);
    stream.wait(stream.record());
  }
  const auto after = emulation::counters();
  CHECK(after.device_allocations == before.device_allocations);
  CHECK(after.host_allocations == before.host_allocations);
  CHECK(after.blocking_copies == before.blocking_copies);
  CHECK(after.pageable_copies == before.pageable_copies);
  CHECK(after.synchronizations == before.synchronizations);  // waits ask, so that they can look around
}
#endif

TEST_CASE("checks run before a wait returns, and what they throw comes out of it") {
  const auto device = test::cuda_device();
  if (!device) return;
  cuda::CudaStream stream(*device);
  int asked = 0, ran = 0;
  stream.add_check(&asked, [&] {
    ++asked;
    if (ran == 2) throw Error(ErrorKind::kDevice, "work 2 means nothing");
  });
  stream.enqueue([&] { ++ran; });
  stream.wait(stream.record());
  CHECK(asked >= 1);
  stream.enqueue([&] { ++ran; });
  CHECK_THROWS_WITH_AS(stream.synchronize(), "work 2 means nothing", Error);
  stream.remove_check(&asked);
  const int before = asked;
  stream.synchronize();
  CHECK(asked == before);
}
