#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <thread>

#include "jobs/bounded_queue.h"
#include "jobs/generator.h"
#include "jobs/journal/parts.h"

namespace tokenmill::jobs {

struct CommitOptions {
  double commit_s = 2;  ///< finished rows are committed at least this often: records first, then their ledger entries
  Durability durability = Durability::kDisk;
  /// Called on the thread before the files are made and before finished rows go into them; throws to stop. May be empty.
  std::function<void()> before_commit = {};
  int64_t max_queued_rows = 4096;
  int64_t max_queued_bytes = int64_t{16} << 20;
};

/// What the journal of one replica cost, counted where it does not depend on what else the machine does.
struct JournalStats {
  int64_t rows = 0, bytes = 0, commits = 0;  ///< bytes: of records and ledger entries
  double cpu_s = 0;      ///< processor time of the thread that writes
  double commit_s = 0;   ///< its wall time in commits, waiting for the disk; computing goes on meanwhile
  double blocked_s = 0;  ///< that the step loop waited for the journal, at its end too

  void add(const JournalStats& other);
  /// Of run_s: what the journal takes from computing if each second of its thread were taken from it.
  double share(double run_s) const { return run_s > 0 ? (cpu_s + blocked_s) / run_s : 0; }
};

/// The thread that appends finished rows to one new part file and its ledger. Without rows there are no files.
class Commit {
 public:
  /// on_error runs once on the thread when writing fails; later rows are dropped then.
  Commit(const PartPaths& paths, const CommitOptions& options, std::function<void(const std::exception&)> on_error);
  /// Writes what is queued, then ends; errors went to on_error. Use close() to know that all is written.
  ~Commit();

  /// Takes a row over; waits while the queue is full. Throws Error(kIo) when writing has failed.
  void push(FinishedRow row, uint64_t row_digest);
  /// The same for what an unfinished row had come to.
  void push(PartialRow row, uint64_t row_digest);
  /// Returns when every row pushed is committed and the files are closed. Throws Error(kIo) when writing has failed.
  void close();
  /// After close().
  const JournalStats& stats() const { return stats_; }

 private:
  struct Entry {
    FinishedRow row;
    uint64_t row_digest = 0;
    bool partial = false;
  };
  class Files;
  void push(Entry entry);
  void run();
  void write_all();
  const PartPaths paths_;
  const CommitOptions options_;
  const std::function<void(const std::exception&)> on_error_;
  BoundedQueue<Entry> queue_;
  JournalStats stats_;        // blocked_s is the caller's, the rest the thread's until it ends
  std::exception_ptr error_;  // written by the thread before the queue closes, read after
  std::thread thread_;
};

}  // namespace tokenmill::jobs
