#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "jobs/index.h"

namespace tokenmill::jobs {

/// The answer to a replica that asked for rows. No rows: there will never be any more.
struct Grant {
  int replica = 0;
  RowRange rows;
  bool operator==(const Grant&) const = default;
};

/// Hands out the rows of a job to replicas that pull: a pure state machine, events in, answers out. There is no static
/// split: chunks of consecutive rows shrink towards the end (a 2 * num_replicas-th of what is left, at most
/// max_chunk_rows), and no replica may hold more than its equal share of the unfinished rows, so that one which asks
/// faster does not take the work of the others. A request that must wait for that is answered by a later event.
class Coordinator {
 public:
  /// todo: ascending, disjoint, non-empty ranges.
  Coordinator(std::vector<RowRange> todo, int num_replicas, int64_t max_chunk_rows);

  /// The replica asks for rows; it has at most one request open. Returns the requests that can be answered now.
  std::vector<Grant> request(int replica);
  /// The replica has finished this many rows since the job began (monotone).
  std::vector<Grant> finished(int replica, int64_t num_rows);

  int64_t rows_left() const { return rows_left_; }  ///< not handed out yet
  /// Handed to the replica and not finished.
  int64_t rows_held(int replica) const;

 private:
  struct Replica {
    int64_t granted = 0, finished = 0;
    bool waiting = false;
  };
  std::vector<Grant> answer();
  int64_t room(const Replica& replica) const;
  RowRange take(int64_t max_rows);

  std::deque<RowRange> todo_;
  std::vector<Replica> replicas_;
  int64_t max_chunk_rows_;
  int64_t rows_left_ = 0;
  int64_t rows_held_ = 0;  // by all
};

}  // namespace tokenmill::jobs
