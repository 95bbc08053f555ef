#pragma once
#include <chrono>

namespace tokenmill {

/// Seconds on a monotonic clock with an arbitrary origin; only differences mean anything. Passed to whatever measures
/// or waits, so that tests and simulations can turn the hands themselves.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now_s() const = 0;
};

/// The machine's steady clock. Thread-safe.
class SteadyClock final : public Clock {
 public:
  double now_s() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

/// A clock that moves only when told to. One thread.
class ManualClock final : public Clock {
 public:
  double now_s() const override { return now_s_; }
  void advance(double seconds) { now_s_ += seconds; }

 private:
  double now_s_ = 0;
};

}  // namespace tokenmill
