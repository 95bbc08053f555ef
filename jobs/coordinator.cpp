#include "jobs/coordinator.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill::jobs {

Coordinator::Coordinator(std::vector<RowRange> todo, int num_replicas, int64_t max_chunk_rows)
    : todo_(todo.begin(), todo.end()), replicas_(static_cast<size_t>(num_replicas)), max_chunk_rows_(max_chunk_rows) {
  TM_ASSERT(num_replicas >= 1 && max_chunk_rows >= 1);
  int64_t end = 0;
  for (const RowRange& range : todo_) {
    TM_ASSERT(range.begin >= end && range.size() > 0, "rows [{}, {}) behind row {}", range.begin, range.end, end);
    end = range.end;
    rows_left_ += range.size();
  }
}

int64_t Coordinator::rows_held(int replica) const {
  const Replica& r = replicas_.at(static_cast<size_t>(replica));
  return r.granted - r.finished;
}

std::vector<Grant> Coordinator::request(int replica) {
  Replica& r = replicas_.at(static_cast<size_t>(replica));
  TM_ASSERT(!r.waiting, "replica {} asks twice", replica);
  r.waiting = true;
  return answer();
}

std::vector<Grant> Coordinator::finished(int replica, int64_t num_rows) {
  Replica& r = replicas_.at(static_cast<size_t>(replica));
  TM_ASSERT(num_rows >= r.finished && num_rows <= r.granted, "replica {} finished {} rows after {} of {}", replica,
            num_rows, r.finished, r.granted);
  rows_held_ -= num_rows - r.finished;
  r.finished = num_rows;
  return answer();
}

/// Rows the replica may get now: its equal share of the unfinished rows, rounded up, less what it holds. Some replica
/// always has room while rows are left, and one without room holds rows, so waiting ends.
int64_t Coordinator::room(const Replica& replica) const {
  const auto count = static_cast<int64_t>(replicas_.size());
  const int64_t share = (rows_left_ + rows_held_ + count - 1) / count;
  return share - (replica.granted - replica.finished);
}

RowRange Coordinator::take(int64_t max_rows) {
  RowRange& first = todo_.front();
  const RowRange taken{first.begin, std::min(first.end, first.begin + max_rows)};
  first.begin = taken.end;
  if (first.size() == 0) todo_.pop_front();
  rows_left_ -= taken.size();
  rows_held_ += taken.size();
  return taken;
}

std::vector<Grant> Coordinator::answer() {
  std::vector<Grant> grants;
  const auto count = static_cast<int64_t>(replicas_.size());
  for (;;) {
    // Whoever holds least goes first, the lowest number among equals.
    Replica* next = nullptr;
    for (Replica& replica : replicas_)
      if (replica.waiting && (next == nullptr || room(replica) > room(*next))) next = &replica;
    if (next == nullptr || (rows_left_ > 0 && room(*next) <= 0)) return grants;
    Grant grant{.replica = static_cast<int>(next - replicas_.data()), .rows = {}};
    if (rows_left_ > 0) {
      const int64_t shrinking = std::max<int64_t>(1, rows_left_ / (2 * count));
      grant.rows = take(std::min({max_chunk_rows_, shrinking, room(*next)}));
      next->granted += grant.rows.size();
    }
    next->waiting = false;
    grants.push_back(grant);
  }
}

}  // namespace tokenmill::jobs
