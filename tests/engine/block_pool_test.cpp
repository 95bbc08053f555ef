#include "engine/block_pool.h"

#include <doctest/doctest.h>

#include "kernels/core/error.h"

namespace tokenmill {
namespace {

TEST_CASE("blocks are free when neither tables nor steps use them") {
  BlockPool pool(3);
  const int32_t a = pool.take().id, b = pool.take().id;
  CHECK(a == 0);
  CHECK(b == 1);
  pool.reference(a);
  pool.pin(b);
  pool.release(b);
  CHECK(pool.num_free() == 1);
  CHECK(pool.num_pinned() == 1);
  CHECK(pool.num_referenced() == 1);
  CHECK(pool.num_references() == 2);
  pool.audit({2, 0, 0});
  pool.release(a);
  pool.release(a);
  pool.unpin(b);
  CHECK(pool.num_free() == 3);
  pool.audit({0, 0, 0});
  CHECK_THROWS_AS(pool.audit({1, 0, 0}), Error);
  CHECK_THROWS_AS(pool.release(a), Error);
  CHECK_THROWS_AS(pool.unpin(b), Error);
}

TEST_CASE("a pinned block that is taken into a table again is no longer about to be free") {
  BlockPool pool(1);
  const int32_t id = pool.take().id;
  pool.pin(id);
  pool.release(id);
  pool.reference(id);
  CHECK(pool.num_pinned() == 0);
  pool.unpin(id);
  CHECK(pool.num_free() == 0);
  pool.release(id);
  CHECK(pool.num_free() == 1);
}

TEST_CASE("what holds nothing goes first, then the longest free, then what is waited for") {
  BlockPool pool(4);
  PrefixNode first, second, wanted;
  for (int i = 0; i < 4; ++i) pool.take();
  pool.cache(0, &wanted, 1);
  pool.cache(1, &first, 1);
  pool.cache(2, &second, 1);
  wanted.num_waiting = 1;
  for (const int32_t id : {0, 1, 2, 3}) pool.release(id);
  std::vector<int32_t> order;
  std::vector<PrefixNode*> evicted;
  for (int i = 0; i < 4; ++i) {
    const BlockPool::Taken taken = pool.take();
    CHECK(taken.recycled);
    order.push_back(taken.id);
    evicted.push_back(taken.evicted);
  }
  CHECK(order == std::vector<int32_t>{3, 1, 2, 0});
  CHECK(evicted == std::vector<PrefixNode*>{nullptr, &first, &second, &wanted});
  CHECK_THROWS_AS(pool.take(), Error);
}

TEST_CASE("a free block changes its place when its prefix gets or loses its last waiting sequence") {
  BlockPool pool(2);
  PrefixNode first, second;
  for (int i = 0; i < 2; ++i) pool.take();
  pool.cache(0, &first, 1);
  pool.cache(1, &second, 1);
  pool.release(0);
  pool.release(1);
  first.num_waiting = 1;
  pool.refresh_order(0);
  CHECK(pool.take().id == 1);
  pool.release(1);
  CHECK(pool.take().id == 1);  // it holds nothing now
  first.num_waiting = 0;
  pool.refresh_order(0);
  CHECK(pool.take().evicted == &first);
}

}  // namespace
}  // namespace tokenmill
