#include "engine/shared_list.h"

#include <doctest/doctest.h>

namespace tokenmill {
namespace {

TEST_CASE("copies of a list share its memory and are equal to others of the same content") {
  const SharedList<int> a{1, 2, 3};
  CHECK_FALSE(a.is_shared());
  const SharedList<int> b = a;  // NOLINT(performance-unnecessary-copy-initialization): it is what is tested
  CHECK(a.is_shared());
  CHECK(&a[1] == &b[1]);
  CHECK(a == b);
  CHECK(a == SharedList<int>{1, 2, 3});
  CHECK_FALSE(a == SharedList<int>{1, 2});
  CHECK_FALSE(a == SharedList<int>{});
  CHECK(SharedList<int>(std::vector<int>{}) == SharedList<int>());
  CHECK(SharedList<int>().empty());
  CHECK_FALSE(SharedList<int>().is_shared());
  int sum = 0;
  for (const int item : a) sum += item;
  CHECK(sum == 6);
}

}  // namespace
}  // namespace tokenmill
