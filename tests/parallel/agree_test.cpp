#include <doctest/doctest.h>

#include <chrono>
#include <ctime>
#include <string>
#include <thread>

#include "parallel/mpi.h"

namespace tokenmill::parallel {
namespace {

double process_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

TEST_CASE("nothing happens when no rank failed") {
  const Comm world = Comm::world();
  CHECK_NOTHROW(agree(world, std::nullopt));
  CHECK(agree_on(world, [&] { return 7 + world.rank(); }) == 7 + world.rank());
}

TEST_CASE("one rank's failure is thrown by all, with that rank named and its kind kept") {
  const Comm world = Comm::world();
  const int last = world.size() - 1;
  const std::string place = "rank " + std::to_string(last) + " of " + std::to_string(world.size()) + " on ";
  try {
    agree_on(world, [&] {
      if (world.rank() == last) throw Error(ErrorKind::kIo, "model.safetensors: is cut off");
    });
    FAIL("no error");
  } catch (const AgreedError& e) {
    CHECK(e.kind() == ErrorKind::kIo);
    CHECK(std::string(e.what()).find(place) == 0);
    CHECK(std::string(e.what()).find(": model.safetensors: is cut off") != std::string::npos);
  }
}

TEST_CASE("of several failures the first rank's is everyone's") {
  const Comm world = Comm::world();
  try {
    agree_on(world,
             [&] { throw Error(ErrorKind::kDevice, "rank " + std::to_string(world.rank()) + "'s own trouble"); });
    FAIL("no error");
  } catch (const AgreedError& e) {
    CHECK(std::string(e.what()).find("rank 0 of ") == 0);
    CHECK(std::string(e.what()).find("rank 0's own trouble") != std::string::npos);
  }
}

TEST_CASE("a failure that all ranks share is not blamed on one of them") {
  CHECK_THROWS_WITH_AS(agree(Comm::world(), Error(ErrorKind::kConfig, "--max-tokens is -1")), "--max-tokens is -1",
                       AgreedError);
}

TEST_CASE("any exception is agreed on, also an empty message") {
  const Comm world = Comm::world();
  CHECK_THROWS_AS(agree_on(world,
                           [&] {
                             if (world.rank() == 0) throw std::runtime_error("");
                           }),
                  AgreedError);
}

TEST_CASE("rank 0 works on behalf of all: a user's mistake is not blamed on it, its own trouble is") {
  const Comm world = Comm::world();
  int runs = 0;
  run_on_root(world, [&] { ++runs; });
  CHECK(runs == (world.rank() == 0 ? 1 : 0));
  CHECK_THROWS_WITH_AS(run_on_root(world, [] { throw Error(ErrorKind::kInput, "in.jsonl does not exist"); }),
                       "in.jsonl does not exist", AgreedError);
  CHECK_THROWS_WITH_AS(run_on_root(world, [] { throw Error(ErrorKind::kIo, "disk full"); }),
                       doctest::Contains("rank 0 of "), AgreedError);
  CHECK_THROWS_AS(run_on_root(world, [] { throw std::runtime_error("x"); }), AgreedError);
}

TEST_CASE("bytes are broadcast from any root and gathered in rank order, empty ones too") {
  const Comm world = Comm::world();
  const int root = world.size() - 1;
  std::string bytes = world.rank() == root ? std::string("a\0b", 3) : "something else that is longer";
  broadcast_bytes(world, bytes, root);
  CHECK(bytes == std::string("a\0b", 3));
  const auto all = gather_bytes(world, std::string(static_cast<size_t>(world.rank()), 'x'));
  REQUIRE(static_cast<int>(all.size()) == world.size());
  for (int rank = 0; rank < world.size(); ++rank) CHECK(all[rank] == std::string(static_cast<size_t>(rank), 'x'));
}

TEST_CASE("waiting for a slow rank leaves the core to others") {
  const Comm world = Comm::world();
  agree(world, std::nullopt);
  const double before = process_cpu_s();
  if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(600));
  agree(world, std::nullopt);
  CHECK(process_cpu_s() - before < 0.3);
}

TEST_CASE("communicators split by color and order by key") {
  const Comm world = Comm::world();
  const Comm half = world.split(world.rank() % 2, -world.rank());
  CHECK(half.size() == world.size() / 2);
  CHECK(half.rank() == half.size() - 1 - world.rank() / 2);
  CHECK(world.split_shared().size() == world.size());
  // A failure inside a sub-communicator is that group's alone.
  if (world.rank() % 2 == 0)
    CHECK_THROWS_AS(agree(half, Error(ErrorKind::kMpi, "even")), AgreedError);
  else
    CHECK_NOTHROW(agree(half, std::nullopt));
}

}  // namespace
}  // namespace tokenmill::parallel
