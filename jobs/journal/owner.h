#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "jobs/index.h"
#include "parallel/process_id.h"

namespace tokenmill::jobs {

/// Who a journal belongs to: a file of lines of a name and a value.
struct Owner {
  parallel::ProcessId process;  ///< rank 0
  std::string started, token;
  std::string slurm_job;       ///< empty: none
  int64_t slurm_restarts = 0;  ///< of that job, up to this run
  int64_t run = 0;             ///< of the job, counted from 0
  RowRange rows = {0, -1};     ///< of the job, or its shard; size -1: not known yet

  /// nullopt: there is none, or it is being written.
  static std::optional<Owner> read(const std::string& journal);
  /// This process.
  static Owner me(const std::string& token, int64_t run = 0, RowRange rows = {0, -1});
  std::string text() const;
  /// For messages: "gpu-02, pid 1234, started 2026-11-30T12:00:00Z".
  std::string describe() const;
  /// Slurm has put this run's job back into the queue and started it again: the earlier run is over, for Slurm.
  bool is_requeue_of(const Owner& earlier) const;
};

}  // namespace tokenmill::jobs
