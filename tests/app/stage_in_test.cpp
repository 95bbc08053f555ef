#include "app/stage_in.h"

#include <doctest/doctest.h>

#include "kernels/core/error.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;

TEST_CASE("a directory that cannot be made is named with the system's reason") {
  const test::TempDir dir;
  const std::string model = dir.write("model.gguf", "GGUF");
  CHECK_THROWS_WITH_AS(app::stage_files(model, "model", "/dev/null", [] {}),
                       doctest::Contains("--stage-dir: /dev/null/model-"), Error);
  CHECK_THROWS_WITH_AS(app::stage_files(model, "model", "/dev/null", [] {}),
                       doctest::Contains(": Not a directory; name a directory that can be made and written to"), Error);
}
