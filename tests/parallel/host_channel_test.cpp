#include "parallel/host_channel.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tokenmill::parallel {
namespace {

std::vector<std::byte> pattern(size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 31 + static_cast<size_t>(seed)) & 0xff);
  return bytes;
}

TEST_CASE("frames keep their sender, type, bytes and order") {
  HostChannel channel(Comm::world());
  const std::vector<size_t> sizes{0, 1, 4096, 70'000, 3 << 20};  // empty, eager and rendezvous
  if (channel.rank() != 0) {
    for (size_t i = 0; i < sizes.size(); ++i)
      channel.send(0, static_cast<int>(i) + 10, pattern(sizes[i], channel.rank() + static_cast<int>(i)));
    CHECK(channel.flush(30));
  } else {
    for (int from = channel.size() - 1; from >= 1; --from)
      for (size_t i = 0; i < sizes.size(); ++i) {
        const Frame frame = channel.receive(from, 30, "a test frame");
        CHECK(frame.from == from);
        CHECK(frame.type == static_cast<int>(i) + 10);
        CHECK(frame.bytes == pattern(sizes[i], from + static_cast<int>(i)));
      }
    CHECK_FALSE(channel.poll());
  }
}

TEST_CASE("every rank can send to every rank at once, itself included") {
  HostChannel channel(Comm::world());
  for (int to = 0; to < channel.size(); ++to) channel.send(to, channel.rank(), pattern(1 << 20, to));
  std::vector<int> seen(static_cast<size_t>(channel.size()));
  int received = 0;
  for (BackOff back_off; received < channel.size(); back_off.pause())
    if (const auto frame = channel.poll()) {
      CHECK(frame->type == frame->from);
      CHECK(frame->bytes == pattern(1 << 20, channel.rank()));
      ++seen[static_cast<size_t>(frame->from)];
      ++received;
    }
  CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
  CHECK(channel.flush(30));
}

TEST_CASE("a peer that sends nothing is named after the timeout") {
  HostChannel channel(Comm::world());
  const int peer = (channel.rank() + 1) % channel.size();
  const std::string expected = "for a step plan from rank " + std::to_string(peer);
  CHECK_THROWS_WITH_AS(channel.receive(peer, 0.05, "a step plan"), doctest::Contains(expected.c_str()), Error);
}

TEST_CASE("two channels over one communicator do not hear each other") {
  HostChannel first(Comm::world()), second(Comm::world());
  const int peer = (first.rank() + 1) % first.size();
  const int from = (first.rank() + first.size() - 1) % first.size();
  first.send(peer, 1, pattern(8, 1));
  second.send(peer, 2, pattern(8, 2));
  CHECK(second.receive(from, 30, "2").type == 2);
  CHECK(first.receive(from, 30, "1").type == 1);
}

}  // namespace
}  // namespace tokenmill::parallel
