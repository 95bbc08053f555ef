#pragma once
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
};

/// The thread on every rank that carries the job's messages over a communicator of its own: requests for rows and their
/// answers, statuses, and the end by a fatal error. Rank 0's thread holds the coordinator. It sleeps between polls: up
/// to 2 ms on rank 0, 1 ms while an answer is awaited, 10 ms otherwise.
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
  /// Ends the whole job with this error: one message (rank 0 prints the first that reaches it) and its exit code on
  /// every rank. Any thread.
  [[noreturn]] void fatal(const Error& error);
  /// After the last publish(): returns when rank 0 knows this rank's final status; on rank 0, when every rank has
  /// finished.
  void finish();

 private:
  enum Message : int { kRequest, kGrant, kStatus, kDistributions, kFatal, kGoodbye };
  struct Outbox {  // what this rank's threads want sent; guarded by mutex_
    bool request = false, finish = false;
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

  // The control thread's own:
  std::optional<ReplicaStatus> unsent_status_;
  bool request_open_ = false, goodbye_sent_ = false;
  double last_status_s_ = -1e9, last_progress_s_ = 0, last_metrics_s_ = 0;
  // On rank 0:
  Coordinator coordinator_;
  std::vector<ReplicaStatus> statuses_;     // by replica
  std::vector<std::string> distributions_;  // by replica
  int goodbyes_ = 0;                        // of all ranks

  std::thread thread_;
};

}  // namespace tokenmill::jobs
