#include "app/replica_channels.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "kernels/core/error.h"

namespace tokenmill::app {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kFlush_s = 60;
constexpr double kWatch_s = 1;  // between looks at the peers' processes

/// Until the next look for a message, waited_s after the first one.
void pause(double waited_s) {
  constexpr double kSpin_s = 20e-6, kYield_s = 2e-3, kLongestSleep_s = 10e-3;
  if (waited_s < kSpin_s) return;
  if (waited_s < kYield_s) {
    sched_yield();
    return;
  }
  // A small part of what was waited already: what comes is late by that part at most.
  std::this_thread::sleep_for(Seconds(std::min(waited_s / 50, kLongestSleep_s)));
}

}  // namespace

ReplicaLink::ReplicaLink(const parallel::Comm& replica, parallel::HostProgress& progress)
    : channel_(replica), progress_(progress), watch_(replica) {}

std::vector<std::byte> ReplicaLink::receive(const char* what) {
  const auto start = Clock::now();
  const parallel::HostProgress::Wait waits(progress_, what, ++num_received_);
  double watched_s = 0;
  for (;;) {
    auto frame = channel_.poll();
    const bool moved = progress_.progress();
    const double waited_s = Seconds(Clock::now() - start).count();
    if (frame) {
      waited_s_ += waited_s;
      return std::move(frame->bytes);
    }
    if (moved) continue;
    if (waited_s - watched_s >= kWatch_s) {
      watched_s = waited_s;
      watch_.check(what);
    }
    pause(waited_s);
  }
}

void ReplicaLink::flush() {
  if (!channel_.flush(kFlush_s))
    throw Error(ErrorKind::kMpi, "the other ranks of this replica did not take its last message within {:.0f} s",
                kFlush_s);
}

void MpiPlanChannel::send(std::span<const std::byte> bytes) {
  for (int follower = 1; follower < link_.size(); ++follower) link_.send(follower, bytes);
}

}  // namespace tokenmill::app
