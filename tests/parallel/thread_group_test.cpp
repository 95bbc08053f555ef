#include "tests/support/thread_group.h"

#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "kernels/core/error.h"
#include "tests/support/fake_ops.h"

using namespace tokenmill;
using parallel::Communicator;
using parallel::TransferKind;
using test::FakeStream;
using test::ThreadGroup;

namespace {

TensorView view(std::vector<int32_t>& data, std::initializer_list<int64_t> shape) {
  return TensorView(data.data(), DType::kI32, shape);
}

/// body(communicator, stream) on every rank, everything run at the end.
template <typename Body>
void on_all(ThreadGroup& group, Body&& body) {
  group.run([&](int rank) {
    FakeStream stream;
    const auto communicator = group.communicator(rank, stream);
    body(*communicator, stream);
    stream.synchronize();
  });
}

}  // namespace

TEST_CASE("a group of threads moves what a communicator promises, waited for in any order") {
  for (const int size : {1, 2, 3, 5}) {
    CAPTURE(size);
    ThreadGroup group(size);
    on_all(group, [&](Communicator& ranks, FakeStream& stream) {
      const int rank = ranks.rank(), n = size;
      std::vector<int32_t> sent(static_cast<size_t>(2 * n)), received(sent.size()), part(3),
          all(static_cast<size_t>(3 * n)), word(4, rank == n - 1 ? 77 : 0), right(1, rank), left(1);
      for (int i = 0; i < 2 * n; ++i) sent[static_cast<size_t>(i)] = 100 * rank + i / 2;  // 100 from + to
      std::iota(part.begin(), part.end(), 10 * rank);
      const auto exchange = ranks.exchange(view(received, {n, 2}), view(sent, {n, 2}));
      const auto gather = ranks.all_gather(view(all, {n, 3}), view(part, {3}));
      const auto broadcast = ranks.broadcast(view(word, {4}), n - 1);
      Communicator::Transfer send = 0, recv = 0;
      if (n > 1) {
        send = ranks.send(view(right, {1}), (rank + 1) % n);
        recv = ranks.recv(view(left, {1}), (rank + n - 1) % n);
        ranks.wait(recv);
      }
      // Every rank in an order of its own.
      const Communicator::Transfer order[] = {exchange, gather, broadcast};
      for (int i = 0; i < 3; ++i) ranks.wait(order[(i + rank) % 3]);
      if (n > 1) ranks.wait(send);
      stream.synchronize();
      for (int r = 0; r < n; ++r) {
        for (int i = 0; i < 2; ++i) CHECK_EQ(received[static_cast<size_t>(2 * r + i)], 100 * r + rank);
        for (int i = 0; i < 3; ++i) CHECK_EQ(all[static_cast<size_t>(3 * r + i)], 10 * r + i);
      }
      CHECK(word == std::vector<int32_t>(4, 77));
      if (n > 1) CHECK_EQ(left[0], (rank + n - 1) % n);
      const auto& gathered = ranks.counts()[static_cast<size_t>(TransferKind::kAllGather)];
      CHECK_EQ(gathered.received_bytes, 12 * (n - 1));
    });
  }
}

TEST_CASE("a part may be gathered from its place among all, and no elements move nothing") {
  ThreadGroup group(3);
  on_all(group, [&](Communicator& ranks, FakeStream& stream) {
    std::vector<int32_t> all(6, ranks.rank()), none;
    const TensorView places = view(all, {3, 2});
    const TensorView own(all.data() + 2 * ranks.rank(), DType::kI32, {2});
    ranks.wait(ranks.all_gather(places, own));
    ranks.wait(ranks.exchange(TensorView(nullptr, DType::kI32, {3, 0}), TensorView(nullptr, DType::kI32, {3, 0})));
    stream.synchronize();
    CHECK(all == std::vector<int32_t>{0, 0, 1, 1, 2, 2});
  });
}

TEST_CASE("a rank that touches views before its wait is told so") {
  std::vector<int32_t> a[2] = {{1, 2}, {3, 4}}, b[2] = {{0, 0}, {0, 0}};
  const auto break_it = [&](bool write_sent) {
    ThreadGroup group(2);
    on_all(group, [&](Communicator& ranks, FakeStream& stream) {
      std::vector<int32_t>&sent = a[ranks.rank()], &received = b[ranks.rank()];
      const auto transfer = ranks.exchange(view(received, {2, 1}), view(sent, {2, 1}));
      if (ranks.rank() == 1) stream.enqueue([&] { (write_sent ? sent : received)[0] = 9; });
      ranks.wait(transfer);
    });
  };
  CHECK_THROWS_WITH_AS(break_it(true), doctest::Contains("rank 1 wrote what its exchange (transfer 1) sends before"),
                       Error);
  CHECK_THROWS_WITH_AS(break_it(false),
                       doctest::Contains("rank 1 wrote what its exchange (transfer 1) receives before"), Error);
}

TEST_CASE("ranks that start different transfers, wait twice or fail end the whole group") {
  std::vector<int32_t> data[2] = {{1, 2}, {3, 4}}, other[2] = {{0, 0}, {0, 0}};
  ThreadGroup different(2);
  CHECK_THROWS_WITH_AS(on_all(different,
                              [&](Communicator& ranks, FakeStream&) {
                                auto &x = data[ranks.rank()], &y = other[ranks.rank()];
                                ranks.wait(ranks.rank() == 0 ? ranks.exchange(view(y, {2, 1}), view(x, {2, 1}))
                                                             : ranks.all_gather(view(y, {2, 1}), view(x, {1})));
                              }),
                       doctest::Contains("rank 0 got 4 bytes of all_gather from rank 1 for 4 bytes of exchange"),
                       Error);
  ThreadGroup twice(1);
  CHECK_THROWS_WITH_AS(on_all(twice,
                              [&](Communicator& ranks, FakeStream&) {
                                const auto transfer = ranks.broadcast(view(data[0], {2}), 0);
                                ranks.wait(transfer);
                                ranks.wait(transfer);
                              }),
                       doctest::Contains("rank 0 waits for transfer 1 again"), Error);
  ThreadGroup failing(2);
  CHECK_THROWS_WITH_AS(on_all(failing,
                              [&](Communicator& ranks, FakeStream&) {
                                if (ranks.rank() == 1) throw Error(ErrorKind::kIo, "rank 1 read a bad file");
                                ranks.wait(ranks.broadcast(view(data[0], {2}), 1));
                              }),
                       "rank 1 read a bad file", Error);
  ThreadGroup absent(2, 0.05);
  CHECK_THROWS_WITH_AS(on_all(absent,
                              [&](Communicator& ranks, FakeStream&) {
                                if (ranks.rank() == 0) ranks.wait(ranks.recv(view(data[0], {2}), 1));
                              }),
                       doctest::Contains("rank 0 waited 0.05 s for message 0 from rank 1"), Error);
}
