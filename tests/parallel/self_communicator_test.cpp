#include "parallel/self_communicator.h"

#include <doctest/doctest.h>

#include <vector>

#include "kernels/core/error.h"
#include "support/immediate_stream.h"

namespace tokenmill::parallel {
namespace {

TensorView view(std::vector<float>& data, std::initializer_list<int64_t> shape) {
  return TensorView(data.data(), DType::kF32, shape);
}

TEST_CASE("a group of one rank hands its own parts back") {
  test::ImmediateStream stream;
  SelfCommunicator self(stream);
  CHECK(self.size() == 1);
  std::vector<float> in{1, 2, 3, 4, 5, 6}, out(6);
  self.exchange(view(out, {1, 2, 3}), view(in, {1, 2, 3}));
  CHECK(out == in);
  std::vector<float> all(6);
  self.all_gather(view(all, {1, 2, 3}), view(in, {2, 3}));
  CHECK(all == in);
  const auto before = in;
  self.all_gather(view(in, {1, 2, 3}), view(in, {2, 3}));  // in place
  self.broadcast(view(in, {2, 3}), 0);
  CHECK(in == before);
}

TEST_CASE("transfers are counted and waited for by number") {
  test::ImmediateStream stream;
  SelfCommunicator self(stream);
  std::vector<float> in(6), out(6);
  const auto first = self.exchange(view(out, {1, 6}), view(in, {1, 6}));
  const auto second = self.broadcast(view(in, {6}), 0);
  CHECK(first != second);
  self.wait(second);
  self.wait(first);
  CHECK_THROWS_WITH_AS(self.wait(second + 1), doctest::Contains("was never started"), Error);
  const TransferCount& exchanges = self.counts()[static_cast<size_t>(TransferKind::kExchange)];
  CHECK(exchanges.calls == 1);
  CHECK(exchanges.sent_bytes == 0);  // to others
}

TEST_CASE("mismatched views and missing peers are named") {
  test::ImmediateStream stream;
  SelfCommunicator self(stream);
  std::vector<float> a(8), b(8);
  CHECK_THROWS_WITH_AS(self.exchange(view(a, {2, 4}), view(b, {2, 4})),
                       doctest::Contains("float32 [2, 4] must be equal and have 1 parts"), Error);
  CHECK_THROWS_WITH_AS(self.all_gather(view(a, {1, 8}), view(b, {4})), doctest::Contains("1 times part float32 [4]"),
                       Error);
  CHECK_THROWS_WITH_AS(self.send(view(a, {8}), 0), doctest::Contains("no peer of rank 0 in a group of 1"), Error);
  CHECK_THROWS_WITH_AS(self.recv(view(a, {8}), 1), doctest::Contains("no peer"), Error);
  CHECK_THROWS_WITH_AS(self.broadcast(view(a, {8}), 1), doctest::Contains("no peer"), Error);
  CHECK_THROWS_WITH_AS(self.broadcast(view(a, {2, 4}).slice_cols(0, 2), 0), doctest::Contains("row stride 4"), Error);
}

}  // namespace
}  // namespace tokenmill::parallel
