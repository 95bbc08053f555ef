#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "parallel/mpi.h"
#include "parallel/process_id.h"

namespace tokenmill::parallel {

/// Which process each rank of a group is, to notice one that has died while others wait for it: without `srun -K1`
/// nobody else would end the job. Sees processes of this kernel and process namespace only; for others the launcher's
/// word counts (README.md).
class PeerWatch {
 public:
  /// Collective over group.
  explicit PeerWatch(const Comm& group);
  /// Throws Error(kMpi) naming the first peer whose process is gone. A few system calls: for waits that already take
  /// long.
  void check(const std::string& waiting_for) const;

 private:
  struct Process {
    ProcessId id;
    int world_rank = 0;
  };
  std::vector<Process> peers_;  // on this node, without this rank
};

/// The pauses of one wait for the ranks of a group: a BackOff that looks every second whether they live, once it
/// sleeps.
class PeerWait {
 public:
  /// watch and waiting_for outlive this.
  PeerWait(const PeerWatch& watch, const char* waiting_for, BackOff back_off = BackOff::quick())
      : watch_(watch), waiting_for_(waiting_for), back_off_(back_off) {}
  /// Throws what PeerWatch::check() throws.
  void pause();
  void reset() { back_off_.reset(); }

 private:
  using Clock = std::chrono::steady_clock;
  const PeerWatch& watch_;
  const char* waiting_for_;
  BackOff back_off_;
  std::optional<Clock::time_point> looked_;
};

}  // namespace tokenmill::parallel
