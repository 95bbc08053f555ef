#include "engine/waiting_queue.h"

#include <doctest/doctest.h>

#include <numeric>

#include "kernels/core/error.h"

namespace tokenmill {
namespace {

std::unique_ptr<Sequence> sequence(int64_t handle, std::vector<int32_t> prompt = {1, 2}) {
  const auto longest = static_cast<int64_t>(prompt.size()) + 2;
  return std::make_unique<Sequence>(handle, std::move(prompt), longest, SlotSampling{});
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
  for (int64_t handle = 0; handle < 3; ++handle) queue.push(sequence(handle), 10 * handle);
  CHECK(queue.front().handle() == 0);
  CHECK(queue.pop()->handle() == 0);
  queue.push_front(sequence(7));
  queue.push_front(sequence(8));
  CHECK(queue.size() == 4);
  CHECK(drain(queue) == std::vector<int64_t>{8, 7, 1, 2});
  CHECK_THROWS_AS(queue.pop(), Error);
  CHECK_THROWS_AS(queue.front(), Error);
}

/// 20 tokens of a beginning, then the number.
std::vector<int32_t> prompt(int32_t beginning, int32_t number) {
  std::vector<int32_t> ids(20);
  std::iota(ids.begin(), ids.end(), beginning);
  ids.push_back(number);
  return ids;
}

TEST_CASE("by prefix, sequences with full pages in common follow each other, the longest first") {
  WaitingQueue queue({.order = WaitingOrder::kPrefix, .page_size = 16});
  queue.push(sequence(0, prompt(100, 1)), 30);
  queue.push(sequence(1, prompt(200, 2)), 90);
  queue.push(sequence(2, {200, 201, 202}), 50);  // no full page
  queue.push(sequence(3, prompt(100, 3)), 80);
  queue.push(sequence(4, prompt(200, 4)), 20);
  CHECK(queue.front().handle() == 1);
  queue.push_front(sequence(9));
  CHECK(drain(queue) == std::vector<int64_t>{9, 1, 4, 3, 0, 2});
  CHECK(queue.seconds() > 0);
}

TEST_CASE("an order for pages of another size knows only what fills them") {
  WaitingQueue queue({.order = WaitingOrder::kPrefix, .page_size = 32});
  queue.push(sequence(0, prompt(100, 1)), 30);
  queue.push(sequence(1, prompt(200, 2)), 20);
  queue.push(sequence(2, prompt(100, 3)), 10);
  CHECK(drain(queue) == std::vector<int64_t>{0, 1, 2});
}

}  // namespace
}  // namespace tokenmill
