#include "jobs/coordinator.h"

#include <algorithm>
#include <utility>

#include "kernels/core/check.h"

namespace tokenmill::jobs {

int64_t Grant::num_rows() const {
  int64_t sum = 0;
  for (const RowRun& run : runs) sum += run.rows.size();
  return sum;
}

Coordinator::Coordinator(RowPlan plan, RowSet done, int num_replicas, const CoordinatorOptions& options,
                         const std::vector<int64_t>& suspects)
    : plan_(std::move(plan)),
      done_(std::move(done)),
      replicas_(static_cast<size_t>(num_replicas)),
      options_(options),
      suspects_(suspects.begin(), suspects.end()) {
  for (const int64_t row : suspects) {
    TM_ASSERT(!done_.contains(row), "row {} is done and a suspect", row);
    done_.insert(row);  // the plan passes it over
  }
  rows_left_ = plan_.num_rows() - done_.count();
  TM_ASSERT(num_replicas >= 1 && options.max_chunk_rows >= 1 && options.busy_rows >= 0);
  TM_ASSERT(done_.num_rows() == plan_.num_rows(), "{} rows are planned, {} known", plan_.num_rows(), done_.num_rows());
}

int64_t Coordinator::rows_held(int replica) const { return replicas_.at(static_cast<size_t>(replica)).held(); }

std::vector<Grant> Coordinator::request(int replica) {
  Replica& r = replicas_.at(static_cast<size_t>(replica));
  TM_ASSERT(!r.waiting, "replica {} asks twice", replica);
  r.waiting = true;
  return answer(r);
}

std::vector<Grant> Coordinator::finished(int replica, int64_t num_rows) {
  Replica& r = replicas_.at(static_cast<size_t>(replica));
  TM_ASSERT(num_rows >= r.finished && num_rows <= r.granted, "replica {} finished {} rows after {} of {}", replica,
            num_rows, r.finished, r.granted);
  rows_held_ -= num_rows - r.finished;
  r.finished = num_rows;
  return answer(r);
}

std::vector<Grant> Coordinator::stop() {
  stopped_ = true;
  return answer(replicas_.front());
}

/// An equal part of the unfinished rows, rounded up. While rows are left it is at least 1, so a replica that holds
/// nothing is ready, and one that holds rows will report that it has finished some: waiting ends.
int64_t Coordinator::share() const {
  const auto count = static_cast<int64_t>(replicas_.size());
  return (rows_left_ + rows_held_ + count - 1) / count;
}

bool Coordinator::is_ready(const Replica& replica) {
  if (replica.held() >= share()) return false;
  if (4 * replica.held() <= 3 * options_.busy_rows) return true;
  return replica.held() + chunk_rows(replica) <= (share() + 1) / 2;
}

/// How many rows to hand out to a replica that has room: of the numbers near the wanted one, the one that cuts the
/// shortest shared beginning; among equals the nearest, then the larger.
int64_t Coordinator::chunk_rows(const Replica& replica) {
  const int64_t most = std::min({options_.max_chunk_rows, share() - replica.held(), rows_left_});
  const int64_t shrinking = rows_left_ / (2 * static_cast<int64_t>(replicas_.size()));
  const int64_t wanted = std::min(most, std::max<int64_t>(1, shrinking));
  const int64_t longest = std::min(most, 2 * wanted);
  look_ahead(longest + 1);
  int64_t best = wanted;
  for (int64_t rows = (wanted + 1) / 2; rows <= longest; ++rows) {
    const auto cost = [&](int64_t n) {
      return std::pair(n < rows_left_ ? ahead_[static_cast<size_t>(n)].shared : 0, std::abs(n - wanted));
    };
    if (cost(rows) <= cost(best)) best = rows;
  }
  return best;
}

/// ahead_ holds num_rows rows, or all that are left. A row shares with the one before it what all between them share.
void Coordinator::look_ahead(int64_t num_rows) {
  int shared = -1;  // over rows that are done
  while (static_cast<int64_t>(ahead_.size()) < num_rows && next_place_ < plan_.num_rows()) {
    PlannedRow row = plan_.at(next_place_++);
    if (shared >= 0) row.shared = std::min(row.shared, shared);
    if (done_.contains(row.row)) {
      shared = row.shared;
      continue;
    }
    shared = -1;
    ahead_.push_back(row);
  }
}

std::vector<RowRun> Coordinator::take(int64_t num_rows) {
  std::vector<PlannedRow> taken(ahead_.begin(), ahead_.begin() + num_rows);
  ahead_.erase(ahead_.begin(), ahead_.begin() + num_rows);
  rows_left_ -= num_rows;
  rows_held_ += num_rows;
  std::sort(taken.begin(), taken.end(), [](const PlannedRow& a, const PlannedRow& b) { return a.row < b.row; });
  std::vector<RowRun> runs;
  for (const PlannedRow& row : taken) {
    if (!runs.empty() && runs.back().rows.end == row.row)
      ++runs.back().rows.end;
    else
      runs.push_back({{row.row, row.row + 1}, row.position});
  }
  return runs;
}

/// After an event of this replica: the others' chances have not improved, unless there are no rows any more.
std::vector<Grant> Coordinator::answer(Replica& replica) {
  std::vector<Grant> grants;
  if (!stopped_ && rows_left_ > 0) {
    if (replica.waiting && is_ready(replica)) {
      Grant& grant = grants.emplace_back(Grant{index_of(replica), take(chunk_rows(replica))});
      replica.granted += grant.num_rows();
      replica.waiting = false;
    }
    if (rows_left_ > 0) return grants;
  }
  if (!stopped_ && !suspects_.empty())
    for (Grant& grant : hand_out_suspects()) grants.push_back(std::move(grant));
  if (!stopped_ && !suspects_.empty()) return grants;
  for (Replica& other : replicas_)
    if (std::exchange(other.waiting, false)) grants.push_back({index_of(other), {}});
  return grants;
}

std::vector<Grant> Coordinator::hand_out_suspects() {
  std::vector<Grant> grants;
  all_others_finished_ = all_others_finished_ || rows_held_ == 0;
  if (!all_others_finished_) return grants;
  for (Replica& replica : replicas_) {
    if (suspects_.empty() || !replica.waiting || replica.held() > 0) continue;
    const int64_t row = suspects_.front();
    suspects_.pop_front();
    grants.push_back({index_of(replica), {{{row, row + 1}}}});
    ++replica.granted;
    ++rows_held_;
    replica.waiting = false;
  }
  return grants;
}

}  // namespace tokenmill::jobs
