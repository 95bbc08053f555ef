#include "kernels/core/source_place.h"

#include <doctest/doctest.h>

#include "kernels/core/check.h"
#include "kernels/core/error.h"

using namespace tokenmill;

TEST_CASE("a place in the source is named from the repository's root, whatever path the compiler was given") {
  CHECK(source_path(__FILE__) == "tests/kernels/source_place_test.cpp");
  CHECK(source_path("/usr/include/x.h") == "/usr/include/x.h");
  try {
    TM_ASSERT(2 + 2 == 5);
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(std::string_view(error.what()).starts_with("tests/kernels/source_place_test.cpp:"));
  }
}
