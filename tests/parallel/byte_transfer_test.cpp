#include "parallel/byte_transfer.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace tokenmill::parallel {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST_CASE("messages of any size arrive in order while others are under way, with their own length") {
  const Comm world = Comm::world();
  const int other = world.size() - 1 - world.rank();
  for (const size_t size : {size_t{1}, size_t{5000}, size_t{3} << 20}) {
    const std::string first(size, static_cast<char>('a' + world.rank())), second = first.substr(0, size / 2);
    std::string got_first(size, '?'), got_second(size, '?'), got_third(size, '?');
    std::vector<ByteTransfer> transfers;
    for (std::string* got : {&got_first, &got_second, &got_third})
      transfers.push_back(ByteTransfer::receive(world, std::as_writable_bytes(std::span(*got)), other, 7));
    transfers.push_back(ByteTransfer::send(world, bytes_of(first), other, 7));
    transfers.push_back(ByteTransfer::send(world, bytes_of(second), other, 7));
    transfers.push_back(ByteTransfer::send(world, {}, other, 7));
    for (ByteTransfer& transfer : transfers) {
      transfer.wait();
      CHECK(transfer.done());
    }
    CHECK(transfers[0].num_bytes() == static_cast<int64_t>(size));
    CHECK(transfers[1].num_bytes() == static_cast<int64_t>(size / 2));
    CHECK(transfers[2].num_bytes() == 0);
    const char theirs = static_cast<char>('a' + other);
    CHECK((got_first == std::string(size, theirs)));
    CHECK((got_second == std::string(size / 2, theirs) + std::string(size - size / 2, '?')));
    CHECK((got_third == std::string(size, '?')));
  }
}

}  // namespace
}  // namespace tokenmill::parallel
