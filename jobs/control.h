#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "jobs/coordinator.h"
#include "jobs/progress.h"
#include "jobs/walltime.h"
#include "parallel/host_channel.h"
#include "parallel/mpi.h"

namespace tokenmill::jobs {

struct ControlOptions {
  double status_s = 0.5;    ///< how often a leader tells rank 0 where it is
  double progress_s = 2;    ///< how often rank 0 calls on_progress
  double fatal_wait_s = 3;  ///< how long a failing rank waits for rank 0 to end the job before it does so itself
  /// Rank 0 only: statuses by replica, seconds since the control began, on the control thread; and once when all
  /// replicas have finished.
  std::function<void(const std::vector<ReplicaStatus>&, double)> on_progress;
  double metrics_s = 5;  ///< how often rank 0 calls on_metrics
  /// Rank 0 only: statuses and serialized distributions by replica, seconds since the control began, on the control
  /// thread. May be empty.
  std::function<void(const std::vector<ReplicaStatus>&, const std::vector<std::string>&, double)> on_metrics = {};
  Walltime walltime = Walltime();  ///< rank 0's counts; on kernels/core/clock
};

/// The thread on every rank that carries the job's messages over a communicator of its own: requests for rows and their
/// answers, statuses, the wish to stop (from any rank to all), and the end by a fatal error. Rank 0's thread holds the
/// coordinator. It sleeps between polls: up to 2 ms on rank 0, 1 ms while an answer is awaited, 10 ms otherwise.
class Control {
 public:
  /// Collective over the session's world. leaders[r]: the world rank that leads replica r, the same on every rank;
  /// the other ranks only fail and finish. coordinator: rank 0's is the one that counts; it has leaders.size()
  /// replicas. session outlives the control.
  Control(parallel::MpiSession& session, const std::vector<int>& leaders, const ControlOptions& options,
          Coordinator coordinator);
  ~Control();

  /// The next rows for this replica; blocks until rank 0 answers. nullopt: there are no more. One thread of a leader
  /// calls it.
  std::optional<std::vector<RowRun>> pull();
  /// Where this replica is now; cheap, for the step loop.
  void publish(const ReplicaStatus& status);
  /// What this replica's distributions are now, for rank 0's on_metrics; a few KiB, so not for every step.
  void publish_distributions(std::string bytes);
  /// All ranks are to stop so soon. Any thread of any rank; later and repeated ones are harmless.
  void request_stop(StopLevel level);
  /// How soon this run is to stop: what rank 0 last told. Any thread, cheap.
  StopLevel stop_level() const { return stop_level_; }
  /// Rank 0's, after finish().
  const Walltime& walltime() const { return walltime_; }
  /// Ends the whole job with this error: one message (rank 0 prints the first that reaches it) and its exit code on
  /// every rank. Any thread.
  [[noreturn]] void fatal(const Error& error);
  /// After the last publish(): returns when every rank has finished, for until then a wish to stop may come from here.
  void finish();

 private:
  enum Message : int { kRequest, kGrant, kStatus, kDistributions, kFatal, kGoodbye, kStopRequest, kStop, kDismissal };
  struct Outbox {  // what this rank's threads want sent; guarded by mutex_
    bool request = false, finish = false;
    StopLevel stop = StopLevel::kNone;
    std::optional<Error> fatal;
    std::optional<ReplicaStatus> status;
    std::optional<std::string> distributions;
  };
  void run();
  void loop();
  bool send_outbox(double now_s);
  void receive(const parallel::Frame& frame);
  void deliver(int to, Message type, std::span<const std::byte> bytes);
  void handle(int from, Message type, std::span<const std::byte> bytes);
  void announce_stop(double now_s);
  int replica_of(int leader) const;
  void send_grants(const std::vector<Grant>& grants);
  void report_progress(double now_s);
  double elapsed_s() const;

  parallel::MpiSession& session_;
  const ControlOptions options_;
  const std::vector<int> leaders_;  // by replica
  const int rank_, size_;
  parallel::HostChannel channel_;  // the control thread's alone
  const std::chrono::steady_clock::time_point start_;

  std::mutex mutex_;
  std::condition_variable wake_, granted_;
  Outbox outbox_;
  std::optional<std::vector<RowRun>> grant_;  // the answer to pull()
  std::atomic<StopLevel> stop_level_ = StopLevel::kNone;

  // The control thread's own:
  std::optional<ReplicaStatus> unsent_status_;
  bool request_open_ = false, goodbye_sent_ = false, dismissed_ = false;
  double last_status_s_ = -1e9, last_progress_s_ = 0, last_metrics_s_ = 0;
  // On rank 0:
  Coordinator coordinator_;
  Walltime walltime_;
  std::vector<ReplicaStatus> statuses_;     // by replica
  std::vector<std::string> distributions_;  // by replica
  int goodbyes_ = 0;                        // of all ranks

  std::thread thread_;
};

}  // namespace tokenmill::jobs
