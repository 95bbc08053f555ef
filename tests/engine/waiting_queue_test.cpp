#include "engine/waiting_queue.h"

#include <doctest/doctest.h>

#include "kernels/core/error.h"

namespace tokenmill {
namespace {

std::unique_ptr<Sequence> sequence(int64_t handle) {
  return std::make_unique<Sequence>(handle, std::vector<int32_t>{1, 2}, 4, SlotSampling{});
}

TEST_CASE("sequences come out in order of arrival, those put back before all others") {
  WaitingQueue queue;
  CHECK(queue.empty());
  for (int64_t handle = 0; handle < 3; ++handle) queue.push(sequence(handle));
  CHECK(queue.front().handle() == 0);
  CHECK(queue.pop()->handle() == 0);
  queue.push_front(sequence(7));
  queue.push_front(sequence(8));
  CHECK(queue.size() == 4);
  for (const int64_t handle : {8, 7, 1, 2}) {
    CHECK(queue.front().handle() == handle);
    CHECK(queue.pop()->handle() == handle);
  }
  CHECK_THROWS_AS(queue.pop(), Error);
}

}  // namespace
}  // namespace tokenmill
