#include "parallel/shared_memory.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

namespace tokenmill::parallel {
namespace {

/// A figure of /proc/self/smaps_rollup in bytes: "Pss", "Shared_Dirty", ...
int64_t resident(const std::string& name) {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  return -1;
}

TEST_CASE("what one rank writes all ranks read, at the same offsets, and it starts as zeros") {
  const Comm world = Comm::world();
  for (const int64_t size : {int64_t{1}, int64_t{4097}, (int64_t{4} << 20) + 5}) {
    CAPTURE(size);
    const SharedMemory memory(world, size);
    REQUIRE(static_cast<int64_t>(memory.bytes().size()) == size);
    CHECK(reinterpret_cast<uintptr_t>(memory.bytes().data()) % (size >= (int64_t{2} << 20) ? 2 << 20 : 4096) == 0);
    CHECK(std::all_of(memory.bytes().begin(), memory.bytes().end(), [](std::byte b) { return b == std::byte{0}; }));
    for (int writer = 0; writer < world.size(); ++writer) {
      agree(world, std::nullopt);
      if (world.rank() == writer)
        std::fill(memory.bytes().begin(), memory.bytes().end(), static_cast<std::byte>(writer + 1));
      agree(world, std::nullopt);
      CHECK(memory.bytes().front() == static_cast<std::byte>(writer + 1));
      CHECK(memory.bytes().back() == static_cast<std::byte>(writer + 1));
    }
    agree(world, std::nullopt);
  }
  CHECK(SharedMemory(world, 0).bytes().empty());
}

TEST_CASE("it is there once, and stays with the last rank that holds it") {
  const Comm world = Comm::world();
  constexpr int64_t kBytes = int64_t{32} << 20;
  const int64_t before = resident("Pss");
  SharedMemory memory(world, kBytes);
  std::fill(memory.bytes().begin(), memory.bytes().end(), static_cast<std::byte>(7));
  agree(world, std::nullopt);
  const double grown = static_cast<double>(resident("Pss") - before);
  CHECK(grown < 1.25 * kBytes / world.size());
  CHECK(grown > 0.75 * kBytes / world.size());
  agree(world, std::nullopt);
  if (world.rank() == 0) memory = SharedMemory();
  agree(world, std::nullopt);
  if (world.rank() != 0) CHECK(memory.bytes()[kBytes / 2] == static_cast<std::byte>(7));
}

TEST_CASE("a size the system refuses is everyone's error") {
  CHECK_THROWS_WITH_AS(SharedMemory(Comm::world(), int64_t{1} << 62),
                       doctest::Contains("between the ranks of a node: "), AgreedError);
}

}  // namespace
}  // namespace tokenmill::parallel
