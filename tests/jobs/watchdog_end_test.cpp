// The end of a watchdog, over real ranks.
#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "jobs/watchdog.h"
#include "parallel/host_channel.h"
#include "parallel/mpi.h"

namespace tokenmill::jobs {
namespace {

TEST_CASE("a watchdog leaves nothing under way that the next communicator would receive") {
  parallel::MpiSession session({.exit_code = [](ErrorKind) { return 1; }, .print = [](const Error&) {}});
  const Activity activity;
  for (int round = 0; round < 40; ++round) {
    CAPTURE(round);
    {
      const Watchdog watchdog(session, {&activity}, {.stall_s = 0.4});
      std::this_thread::sleep_for(std::chrono::milliseconds(7 * ((round + session.world().rank()) % 3)));
    }
    parallel::HostChannel next(session.world());
    for (int look = 0; look < 20; ++look) {
      CHECK_FALSE(next.poll());
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    parallel::agree(session.world(), std::nullopt);
  }
}

}  // namespace
}  // namespace tokenmill::jobs
