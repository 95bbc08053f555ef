#pragma once
#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "jobs/activity.h"
#include "parallel/host_channel.h"
#include "parallel/mpi.h"

namespace tokenmill::jobs {

/// What a rank last said of itself; seconds are durations, since ranks have clocks of their own.
struct RankState {
  std::array<char, 64> host{};
  std::array<char, 48> what{"not heard yet"};  ///< one of its threads does
  std::array<char, 48> waits{};                ///< ... inside that, for other ranks; may be empty
  int64_t sequence = 0, num_rows = 0;
  double lasts_s = 0;
  bool must_end = false;  ///< what it does
};

/// When a rank stalls.
struct StallLimits {
  double lasts_s = 0;   ///< it does something that must end for longer
  double silent_s = 0;  ///< it is not heard for longer
  bool together = false;  ///< the first only when every rank does
};

/// A rank that is beyond a limit.
struct Stalled {
  int rank = 0;
  bool silent = false;  ///< it is not heard; else it is, and makes no progress
  bool operator==(const Stalled&) const = default;
};

/// The rank that is furthest beyond its limit, if any. silent_s: by rank, since it was last heard.
std::optional<Stalled> find_stalled(const std::vector<RankState>& states, const std::vector<double>& silent_s,
                                    const StallLimits& limits);
/// A line for each rank; neighbours that do the same on one host share it.
std::vector<std::string> describe_ranks(const std::vector<RankState>& states, const std::vector<double>& silent_s);

struct WatchdogOptions {
  double stall_s = 1800;         ///< 0: nobody watches
  double silence_s = 60;         ///< or stall_s, when that is less: a rank's watchdog has nothing to wait for
  double silence_saving_s = 5;   ///< ... while the run ends: what launchers do after a rank has died is end the others
  /// Ranks wait for each other without saying so: none stalls while another one gets on.
  bool together = false;
  double commit_s = 2;           ///< finished rows are in the journal after so long, whatever the main thread does
  std::function<bool()> saving;  ///< the run ends, as far as this rank knows; any thread. May be empty
  /// What the main thread waits in for other ranks ("exchange 812"), at most 47 characters; any thread. May be empty.
  std::function<std::string()> waits_in;
  /// On rank 0, when the table is printed, with the rank that stalls: the others are to save what they have. May be
  /// empty.
  std::function<void(int rank, const RankState& state)> on_stall;
};

/// Ends the job when a rank makes no progress: a thread on every rank, over a communicator of its own, so that it works
/// while everything else waits. Ranks tell rank 0 what they do every eighth of stall_s (0.05 to 1 s); rank 0 prints a
/// table when one stalls or is gone, gives the others time to commit, and ends all ranks with Error(kMpi). A rank that
/// does not hear from rank 0 for twice as long ends the job itself. Time is counted by a thread's own rounds: a job
/// that is suspended and continued has not stalled.
class Watchdog {
 public:
  /// Collective over the session's world. activities: of this rank's threads, the main one first; they and the session
  /// outlive it.
  Watchdog(parallel::MpiSession& session, const std::vector<const Activity*>& activities, WatchdogOptions options);
  /// Collective, when no rank has work any more: waits for the others' last words.
  ~Watchdog();

 private:
  void run();
  void count(double round_s);
  void beat();
  void listen();
  void judge();
  double silence_limit_s() const;
  RankState my_state() const;
  [[noreturn]] void end_job(const Stalled& stalled);
  void part();

  parallel::MpiSession& session_;
  const WatchdogOptions options_;
  const int rank_, size_;
  const double beat_s_;
  parallel::HostChannel channel_;
  struct Watched {
    const Activity* activity;
    int64_t changes = -1;  // in the last round
    double lasts_s = 0;    // so long there was no other
  };
  std::vector<Watched> watched_;
  std::vector<RankState> states_;  // on rank 0
  std::vector<double> silent_s_;   // by rank; on others [0] only
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  bool parts_ = false;  // with the others; not when an exception ends the job
  int farewells_ = 0;   // heard
  std::thread thread_;
};

/// Collective: work() on every rank under a watchdog, for ranks that wait for each other (WatchdogOptions::together).
/// None stops watching before the others are done.
void watch_together(parallel::MpiSession& session, double stall_s, const Activity& activity,
                    const std::function<void()>& work);

}  // namespace tokenmill::jobs
