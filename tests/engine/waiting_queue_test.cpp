#include "engine/waiting_queue.h"

#include <doctest/doctest.h>

#include "kernels/core/error.h"

namespace tokenmill {
namespace {

std::unique_ptr<Sequence> sequence(int64_t handle) {
  return std::make_unique<Sequence>(handle, std::make_shared<const std::vector<int32_t>>(2, 1), 4,
                                    SequenceSampling{std::make_shared<const SamplingParams>()});
}

std::vector<int64_t> drain(WaitingQueue& queue) {
  std::vector<int64_t> handles;
  while (!queue.empty()) {
    handles.push_back(queue.front().handle());
    CHECK(queue.pop()->handle() == handles.back());
  }
  return handles;
}

TEST_CASE("sequences come out in order of arrival, those put back before all others") {
  WaitingQueue queue;
  CHECK(queue.empty());
  for (int64_t handle = 0; handle < 3; ++handle) queue.push(sequence(handle), {}, 10 * handle);
  CHECK(queue.front().handle() == 0);
  CHECK(queue.pop()->handle() == 0);
  queue.push_front(sequence(7));
  queue.push_front(sequence(8));
  CHECK(queue.size() == 4);
  CHECK(drain(queue) == std::vector<int64_t>{8, 7, 1, 2});
  CHECK_THROWS_AS(queue.pop(), Error);
  CHECK_THROWS_AS(queue.front(), Error);
}

TEST_CASE("by prefix, sequences with pages in common follow each other, the longest first") {
  using Pages = std::vector<uint64_t>;
  WaitingQueue queue({.order = WaitingOrder::kPrefix});
  queue.push(sequence(0), Pages{100}, 30);
  queue.push(sequence(1), Pages{200}, 90);
  queue.push(sequence(2), {}, 50);
  queue.push(sequence(3), Pages{100, 101}, 80);
  queue.push(sequence(4), Pages{200}, 20);
  CHECK(queue.front().handle() == 1);
  queue.push_front(sequence(9));
  CHECK(drain(queue) == std::vector<int64_t>{9, 1, 4, 3, 0, 2});
  CHECK(queue.seconds() > 0);
}

}  // namespace
}  // namespace tokenmill
