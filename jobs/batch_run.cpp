#include "jobs/batch_run.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <unordered_map>
#include <utility>

#include "jobs/journal/advice.h"
#include "kernels/core/check.h"

namespace tokenmill::jobs {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kPublish_s = 5e-3;
constexpr double kWaitForRows_s = 0.05;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

class BatchRun {
 public:
  BatchRun(Generator& generator, Feed& feed, Commit& commit, const BatchRunHooks& hooks)
      : generator_(generator),
        feed_(feed),
        commit_(commit),
        hooks_(hooks),
        activity_(hooks.activity != nullptr ? *hooks.activity : unwatched_) {}

  ReplicaStatus run() {
    if (hooks_.running != nullptr)
      generator_.on_begin([this](int64_t row) { with_advice([&] { hooks_.running->begin(row); }); });
    for (;;) {
      const auto start = Clock::now();
      const StopLevel stop = hooks_.stop_level ? hooks_.stop_level() : StopLevel::kNone;
      if (stop >= StopLevel::kSave) return save();
      const bool drains = stop >= StopLevel::kDrain;
      const bool submitted = drains ? drop() : submit();
      activity_.hold_rows(static_cast<int64_t>(in_flight_.size()));
      const bool stepped = step();
      const bool finished = take_finished();
      if (submitted || stepped || finished) {
        note_step(seconds(Clock::now() - start));
        publish_sometimes();
        continue;
      }
      if (drains) return save();
      publish_now();
      if (generator_.idle() && feed_.ended()) break;
      feed_.wait(kWaitForRows_s);
    }
    TM_ASSERT(in_flight_.empty(), "the generator is idle, but row {} and {} more have no result",
              in_flight_.begin()->first, in_flight_.size() - 1);
    return status_;
  }

 private:
  bool submit() {
    if (!ended_ && feed_.ended()) ended_ = Clock::now();
    // An idle generator gets a row even when it asks for none: it could not finish anything otherwise.
    const int64_t wanted = std::max(generator_.wants(), int64_t{generator_.idle()});
    int64_t submitted = 0;
    for (; submitted < wanted; ++submitted) {
      auto row = feed_.try_take();
      if (!row) break;
      const bool is_new = in_flight_.emplace(row->item->row(), row->row_digest).second;
      TM_ASSERT(is_new, "row {} was fed twice", row->item->row());
      generator_.submit(std::move(row->item));
    }
    return submitted > 0;
  }

  bool step() {
    const Activity::Scope scope(activity_, Activity::kStep, ++num_steps_);
    return generator_.step();
  }

  /// What has been fed and not begun is the next run's. True when there was something.
  bool drop() {
    if (!std::exchange(drains_, true)) generator_.close_admission();
    bool dropped = false;
    while (feed_.try_take()) dropped = true;
    return dropped;
  }

  ReplicaStatus save() {
    const Activity::Scope scope(activity_, "saving unfinished rows after step", num_steps_);
    std::vector<PartialRow> rows = generator_.take_partial();
    take_finished();
    for (PartialRow& row : rows) {
      const auto entry = in_flight_.find(row.row);
      TM_ASSERT(entry != in_flight_.end(), "the generator saved row {}, which it does not hold", row.row);
      ++status_.rows_saved;
      commit_.push(std::move(row), entry->second);
    }
    publish_now();
    return status_;
  }

  /// The longest step fades, so that one that was held up is not remembered for ever.
  void note_step(double step_s) {
    status_.busy_s += step_s;
    status_.longest_step_s = std::max(step_s, 0.98 * status_.longest_step_s);
  }

  bool take_finished() {
    std::vector<FinishedRow> rows = generator_.take_finished();
    const Activity::Scope scope(activity_, "handing rows to the journal after step", num_steps_);
    for (FinishedRow& row : rows) {
      const auto entry = in_flight_.find(row.row);
      TM_ASSERT(entry != in_flight_.end(), "the generator finished row {}, which it does not hold", row.row);
      const uint64_t row_digest = entry->second;
      in_flight_.erase(entry);
      if (hooks_.running != nullptr) with_advice([&] { hooks_.running->end(row.row); });
      ++status_.rows_finished;
      status_.rows_failed += row.failed ? 1 : 0;
      commit_.push(std::move(row), row_digest);
    }
    return !rows.empty();
  }

  void publish_sometimes() {
    if (seconds(Clock::now() - last_publish_) >= kPublish_s) publish_now();
  }
  void publish_now() {
    last_publish_ = Clock::now();
    if (ended_) status_.tail_s = seconds(last_publish_ - *ended_);
    status_.stats = generator_.stats();
    status_.row_s = generator_.estimate().row_s;
    if (hooks_.publish) hooks_.publish(status_);
  }

  Generator& generator_;
  Feed& feed_;
  Commit& commit_;
  const BatchRunHooks& hooks_;
  Activity unwatched_;
  Activity& activity_;
  int64_t num_steps_ = 0;
  bool drains_ = false;
  std::unordered_map<int64_t, uint64_t> in_flight_;  // row -> digest of its input record
  ReplicaStatus status_;
  std::optional<Clock::time_point> ended_;  // when nothing was left to pull
  Clock::time_point last_publish_{};
};

}  // namespace

ReplicaStatus run_batches(Generator& generator, Feed& feed, Commit& commit, const BatchRunHooks& hooks) {
  return BatchRun(generator, feed, commit, hooks).run();
}

}  // namespace tokenmill::jobs
