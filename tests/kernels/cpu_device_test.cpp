#include <doctest/doctest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>

#include "kernels/cpu/cpu_memory.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_team.h"
#include "tests/support/backends.h"

using namespace tokenmill;

TEST_CASE("a thread team runs every thread once per job, over many jobs") {
  for (const int threads : {1, 2, 3, 5}) {
    cpu::ThreadTeam team(threads);
    REQUIRE_EQ(team.num_threads(), threads);
    std::vector<int64_t> counts(static_cast<size_t>(threads), 0);
    for (int job = 0; job < 2000; ++job) team.run([&](int thread) { ++counts[static_cast<size_t>(thread)]; });
    for (const int64_t count : counts) CHECK_EQ(count, 2000);
  }
}

TEST_CASE("a team's shares cover a range once, in order") {
  cpu::ThreadTeam team(3);
  for (const int64_t count : {0, 1, 2, 3, 7, 100}) {
    int64_t next = 0;
    for (int thread = 0; thread < 3; ++thread) {
      const auto share = team.share(count, thread);
      CHECK_EQ(share.begin, next);
      next = share.end;
    }
    CHECK_EQ(next, count);
  }
}

TEST_CASE("an exception of a team's thread reaches the caller, the lowest thread's first, and the team lives on") {
  cpu::ThreadTeam team(3);
  std::atomic<int> finished{0};
  const auto job = [&](int thread) {
    ++finished;
    if (thread > 0) throw std::runtime_error("thread " + std::to_string(thread));
  };
  CHECK_THROWS_WITH(team.run(job), "thread 1");
  CHECK_EQ(finished.load(), 3);
  int sum = 0;
  CHECK_NOTHROW(team.run([&](int thread) {
    if (thread == 0) sum = 1;
  }));
  CHECK_EQ(sum, 1);
}

TEST_CASE("work on a sleeping team wakes it") {
  cpu::ThreadTeam team(2);
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // past the spinning
    std::atomic<int> ran{0};
    team.run([&](int) { ++ran; });
    CHECK_EQ(ran.load(), 2);
  }
}

TEST_CASE("memory is zeroed, aligned and counted; too much is refused with the bytes") {
  cpu::CpuMemory memory;
  CHECK(memory.total_bytes() > 0);
  {
    Buffer small = memory.allocate(100), large = memory.allocate(int64_t{5} << 20);
    CHECK_EQ(reinterpret_cast<uintptr_t>(small.data()) % 64, 0);
    CHECK_EQ(reinterpret_cast<uintptr_t>(large.data()) % (2 << 20), 0);
    for (const Buffer* buffer : {&small, &large}) {
      CHECK(std::all_of(buffer->bytes().begin(), buffer->bytes().end(), [](std::byte b) { return b == std::byte{0}; }));
    }
    large.bytes().back() = std::byte{1};
    CHECK_EQ(memory.used_bytes(), 100 + (int64_t{5} << 20));
    Buffer moved = std::move(small);
    CHECK_EQ(small.data(), nullptr);
    CHECK_EQ(moved.num_bytes(), 100);
  }
  CHECK_EQ(memory.used_bytes(), 0);
  CHECK_EQ(memory.peak_bytes(), 100 + (int64_t{5} << 20));
  CHECK_EQ(memory.allocate(0).data(), nullptr);
  const int64_t much = memory.total_bytes() + 1;
  const std::string text = "cannot allocate " + std::to_string(much) + " bytes";
  CHECK_THROWS_WITH_AS(memory.allocate(much), doctest::Contains(text.c_str()), Error);
}

TEST_CASE("a stream keeps order, and what a function throws surfaces at the next wait") {
  cpu::CpuStream stream;
  std::vector<int> order;
  stream.enqueue([&] { order.push_back(1); });
  const auto event = stream.record();
  CHECK(stream.done(event));
  stream.enqueue([] { throw Error(ErrorKind::kMpi, "lost a rank"); });
  stream.enqueue([&] { order.push_back(2); });  // after a failure: skipped
  CHECK_THROWS_WITH_AS(stream.wait(event), "lost a rank", Error);
  CHECK_NOTHROW(stream.synchronize());
  stream.enqueue([&] { order.push_back(3); });
  CHECK_EQ(order, std::vector<int>{1, 3});
  CHECK_THROWS_AS(stream.wait(event + 100), Error);
}

TEST_CASE("captured work runs when replayed, not when recorded, on what its buffers then hold") {
  for (Ops* ops : test::backends()) {
    test::Random random(1);
    test::HostTensor x(DType::kF32, {3, 40}), w(DType::kF32, {24, 40}), out(DType::kF32, {3, 24}),
        copy(DType::kF32, {3, 24});
    x.fill_random(random);
    w.fill_random(random);
    out.fill(0);
    copy.fill(0);
    const test::TestLinear linear(*ops, w);
    Stream& stream = ops->stream();
    int calls = 0;
    stream.begin_capture();
    ops->linear(out, x, linear.get());
    stream.enqueue([&] { ++calls; });
    stream.copy(copy.view().data(), out.view().data(), 3 * 24 * 4);
    const auto recording = stream.end_capture();
    CHECK_EQ(calls, 0);
    CHECK_EQ(out.get(0, 0), 0.0);
    for (int i = 1; i <= 3; ++i) {
      x.fill_random(random);
      stream.replay(*recording);
      stream.synchronize();
      CHECK_EQ(calls, i);
      test::HostTensor want(DType::kF32, {3, 24});
      ops->linear(want, x, linear.get());
      stream.synchronize();
      CHECK(out.bytes() == want.bytes());
      CHECK(copy.bytes() == want.bytes());
    }
  }
}

TEST_CASE("a forced instruction set that the CPU lacks, or nobody knows, is refused with the choices") {
  using cpu::Isa;
  CHECK_EQ(cpu::choose_isa("auto", {Isa::kAvx2, Isa::kAvx512}), Isa::kAvx512);
  CHECK_EQ(cpu::choose_isa("avx2", {Isa::kAvx2, Isa::kAvx512}), Isa::kAvx2);
  CHECK_THROWS_WITH_AS(cpu::choose_isa("avx512_bf16", {Isa::kAvx2, Isa::kAvx512}),
                       "--cpu-isa avx512_bf16 needs instructions this CPU does not have; choose auto, avx2, avx512",
                       Error);
  CHECK_THROWS_WITH_AS(cpu::choose_isa("sse2", {Isa::kAvx2}), "--cpu-isa sse2 is unknown; choose auto, avx2", Error);
  for (const std::string& isa : test::cpu_isas()) {
    const auto ops = test::cpu_backend(isa, 2);
    CHECK_EQ(ops->numerics(), "cpu-" + isa);
    CHECK_EQ(ops->describe(), "cpu " + isa + ", 2 threads");
    CHECK(ops->supports(DType::kBF16));
    CHECK_FALSE(ops->supports(DType::kF16));
  }
}

TEST_CASE("a device this build lacks, and no threads, are refused") {
  CHECK_THROWS_WITH_AS(make_ops({DeviceKind::kCuda, 1}, {}), doctest::Contains("device cuda:1"), Error);
  CHECK_THROWS_WITH_AS(make_ops({}, {.num_threads = 0, .cpu_isa = "auto"}), doctest::Contains("--threads 0"), Error);
}
