#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "jobs/index.h"
#include "jobs/row_plan.h"
#include "jobs/row_set.h"

namespace tokenmill::jobs {

/// Consecutive rows of a grant and where the first of them starts (offset -1: to be found by the index).
struct RowRun {
  RowRange rows;
  io::RecordPosition position{.offset = -1};
  bool operator==(const RowRun&) const = default;
};

/// The answer to a replica that asked for rows: ascending runs. No rows: there will never be any more.
struct Grant {
  int replica = 0;
  std::vector<RowRun> runs;
  int64_t num_rows() const;
  bool operator==(const Grant&) const = default;
};

struct CoordinatorOptions {
  int64_t max_chunk_rows = 256;  ///< of a grant
  int64_t busy_rows = 0;         ///< what a replica must hold to be busy
};

/// Hands out the rows of a job to replicas that pull: a pure state machine, events in, answers out. There is no static
/// split: grants follow the plan and shrink towards the end (a 2 * num_replicas-th of what is left, at most
/// max_chunk_rows, more or less by up to a factor of 2 so that few prompts are cut from those they share a beginning
/// with). No replica may hold more than its equal share of the unfinished rows, so that one which asks faster does not
/// take the work of the others. One that holds three quarters of busy_rows waits until its grant makes it hold no more
/// than half of its share: rows that turn out slow leave the others something to do. A request that must wait is
/// answered by a later event.
///
/// Suspects, rows that may bring their replica down, are handed out last, when all others are finished, and one at a
/// time to a replica that holds nothing: whom they bring down loses no other row that is not finished.
class Coordinator {
 public:
  /// done: rows that are not handed out. suspects: of the others, ascending.
  Coordinator(RowPlan plan, RowSet done, int num_replicas, const CoordinatorOptions& options,
              const std::vector<int64_t>& suspects = {});

  /// The replica asks for rows; it has at most one request open. Returns the requests that can be answered now.
  std::vector<Grant> request(int replica);
  /// The replica has finished this many rows since the job began (monotone).
  std::vector<Grant> finished(int replica, int64_t num_rows);

  /// No more rows are handed out: whoever waits, and whoever asks later, is told that there are none.
  std::vector<Grant> stop();

  /// Not handed out yet.
  int64_t rows_left() const { return rows_left_ + static_cast<int64_t>(suspects_.size()); }
  /// Handed to the replica and not finished.
  int64_t rows_held(int replica) const;

 private:
  struct Replica {
    int64_t granted = 0, finished = 0;
    bool waiting = false;
    int64_t held() const { return granted - finished; }
  };
  std::vector<Grant> answer(Replica& replica);
  std::vector<Grant> hand_out_suspects();
  int index_of(const Replica& replica) const { return static_cast<int>(&replica - replicas_.data()); }
  int64_t share() const;
  bool is_ready(const Replica& replica);
  int64_t chunk_rows(const Replica& replica);
  void look_ahead(int64_t num_rows);
  std::vector<RowRun> take(int64_t num_rows);

  RowPlan plan_;
  RowSet done_;
  int64_t next_place_ = 0;        // of the plan, behind ahead_
  std::deque<PlannedRow> ahead_;  // what is handed out next
  std::vector<Replica> replicas_;
  CoordinatorOptions options_;
  std::deque<int64_t> suspects_;
  bool all_others_finished_ = false;
  int64_t rows_left_ = 0;  // without suspects
  int64_t rows_held_ = 0;  // by all
  bool stopped_ = false;
};

}  // namespace tokenmill::jobs
