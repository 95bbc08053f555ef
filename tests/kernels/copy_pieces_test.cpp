#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "kernels/core/error.h"
#include "tests/support/backends.h"

using namespace tokenmill;

TEST_CASE("pieces of all sizes go to the device and come back, each to its place and nothing beside it") {
  constexpr int64_t kGap = 3;  // words between two pieces on the device
  std::vector<int64_t> words = {0, 1, 2, 127, 128, 129, 5000, 70000};
  for (int64_t i = 0; i < 300; ++i) words.push_back(i % 7);  // more than one launch takes
  const int64_t total = std::accumulate(words.begin(), words.end(), int64_t{0});
  const int64_t spread = total + kGap * std::ssize(words);
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    const Buffer in = ops->memory().allocate_host(total * 4), out = ops->memory().allocate_host(spread * 4);
    const Buffer device = ops->memory().allocate(spread * 4);
    auto* sent = static_cast<int32_t*>(in.data());
    std::iota(sent, sent + total, 1);
    std::vector<CopyPiece> pieces;
    std::vector<int32_t> want(static_cast<size_t>(spread), 0);
    int64_t from = 0, to = 0;
    for (const int64_t count : words) {
      pieces.push_back({static_cast<int32_t*>(device.data()) + to, sent + from, count * 4});
      std::copy_n(sent + from, count, want.begin() + to);
      from += count;
      to += count + kGap;
    }
    ops->copy_pieces(pieces);
    const CopyPiece back{out.data(), device.data(), spread * 4};
    ops->copy_pieces({&back, 1});
    ops->copy_pieces({});
    ops->stream().synchronize();
    const auto* got = static_cast<const int32_t*>(out.data());
    CHECK(std::vector<int32_t>(got, got + spread) == want);
  }
}

TEST_CASE("pieces that are not made of whole words are refused") {
  Ops& ops = *test::backends().front();
  const Buffer host = ops.memory().allocate_host(64), device = ops.memory().allocate(64);
  auto* bytes = static_cast<std::byte*>(host.data());
  for (const CopyPiece& piece :
       {CopyPiece{device.data(), bytes, 6}, CopyPiece{device.data(), bytes + 2, 8},
        CopyPiece{static_cast<std::byte*>(device.data()) + 1, bytes, 8}, CopyPiece{device.data(), bytes, -4}}) {
    CHECK_THROWS_WITH_AS(ops.copy_pieces({&piece, 1}), doctest::Contains("all must be multiples of 4"), Error);
  }
}
