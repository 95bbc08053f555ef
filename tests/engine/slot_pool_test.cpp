#include "engine/slot_pool.h"

#include <doctest/doctest.h>

#include "kernels/core/error.h"

namespace tokenmill {
namespace {

TEST_CASE("slots come in ascending order, the one given back last first") {
  SlotPool pool(3, 3);
  CHECK(pool.size() == 3);
  CHECK(pool.take(false) == 0);
  CHECK(pool.take(true) == 1);
  pool.give_back(0);
  CHECK(pool.take(false) == 0);
  CHECK(pool.take(false) == 2);
  CHECK_FALSE(pool.has_one(false));
  CHECK_THROWS_AS(pool.take(false), Error);
}

TEST_CASE("sequences without penalties and biases leave the slots with tables to those that need them") {
  SlotPool pool(4, 2);
  CHECK(pool.take(false) == 2);
  CHECK(pool.take(false) == 3);
  CHECK(pool.take(true) == 0);
  CHECK(pool.take(false) == 1);  // no other is left
  CHECK_FALSE(pool.has_one(true));
  pool.give_back(3);
  CHECK(pool.has_one(false));
  CHECK_FALSE(pool.has_one(true));
  pool.give_back(1);
  CHECK(pool.take(true) == 1);
  CHECK(SlotPool(2, 100).has_one(true));
  CHECK_FALSE(SlotPool(2, 0).has_one(true));
}

}  // namespace
}  // namespace tokenmill
