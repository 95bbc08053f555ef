#include <doctest/doctest.h>

#include <string>

#include "tests/engine/models/loader_fixture.h"
#include "tests/support/process.h"

namespace tokenmill {
namespace {

TEST_CASE("a rank that dies while weights are loaded ends the job, whether it reads or not, and whoever notices") {
  const test::TempDir dir;
  const std::string file = dir.write("w.bin", test::noise(3 << 20, 1));
  for (const char* rank : {"0", "2"}) {
    CAPTURE(rank);
    const std::string program = std::string(" -n 3 " TM_LOADER_PROGRAM " ") + file + " " + rank;
    const auto by_launcher = test::run_process(TM_MPIEXEC + program);
    CHECK(by_launcher.exit_code != 0);
    CHECK(by_launcher.elapsed_s < 20);
    // A launcher that lets the others go on (its exit code says nothing): they notice themselves.
    const auto by_peers = test::run_process(TM_MPIEXEC " --enable-recovery" + program);
    INFO(by_peers.output);
    CHECK(by_peers.elapsed_s < 20);
    CHECK(by_peers.count(std::string("waited for a chunk of the model's weights of a group with rank ") + rank) >= 1);
  }
}

}  // namespace
}  // namespace tokenmill
