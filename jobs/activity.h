#pragma once
#include <cstdint>
#include <mutex>
#include <utility>

namespace tokenmill::jobs {

/// What a rank's main thread does now, for the watchdog. Scopes nest; the innermost counts. Thread-safe.
class Activity {
 public:
  static constexpr const char* kStep = "step";              ///< of the rows in flight
  static constexpr const char* kEncoding = "encoding row";  ///< the one of that number
  struct Now {
    const char* what = "waiting for rows";
    int64_t sequence = 0;   ///< which one: a step's number, ...
    bool must_end = false;  ///< it is a stall when it lasts
    int64_t changes = 0;    ///< grows with every beginning and end: the same number later is no progress
    int64_t num_rows = 0;   ///< in flight
  };

  /// Something that must end, from construction to destruction; `what` is a literal.
  class Scope {
   public:
    Scope(Activity& activity, const char* what, int64_t sequence)
        : activity_(activity), outer_(activity.exchange({.what = what, .sequence = sequence, .must_end = true})) {}
    ~Scope() { activity_.exchange(outer_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Activity& activity_;
    const Now outer_;
  };

  Now now() const {
    std::lock_guard lock(mutex_);
    return now_;
  }
  /// The innermost scope has come so far; for threads other than its own, too.
  void progress(int64_t sequence) {
    std::lock_guard lock(mutex_);
    now_.sequence = sequence;
    ++now_.changes;
  }
  void hold_rows(int64_t num_rows) {
    std::lock_guard lock(mutex_);
    now_.num_rows = num_rows;
  }

 private:
  Now exchange(Now next) {
    std::lock_guard lock(mutex_);
    next.changes = now_.changes + 1;
    next.num_rows = now_.num_rows;
    return std::exchange(now_, next);
  }
  mutable std::mutex mutex_;
  Now now_;
};

}  // namespace tokenmill::jobs
