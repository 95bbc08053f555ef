#pragma once
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/device/stream.h"

namespace tokenmill::cpu {

class CpuRecording : public Recording {
 public:
  std::vector<std::function<void()>> work;
};

/// Work runs at once on the calling thread (and the backend's team), so every event is done when it is recorded. After
/// work has thrown, what follows is skipped until synchronize() or wait() has rethrown the exception.
class CpuStream : public Stream {
 public:
  /// As enqueue, for any callable: no allocation unless a capture is on.
  template <typename Function>
  void submit(Function&& function) {
    if (recording_) {
      recording_->work.emplace_back(std::forward<Function>(function));
    } else {
      run(function);
    }
  }
  bool capturing() const { return recording_ != nullptr; }
  void enqueue(std::function<void()> function) override { submit(std::move(function)); }
  void copy(void* destination, const void* source, int64_t num_bytes) override;
  Event record() override { return ++last_event_; }
  void wait(Event event) override;
  bool done(Event event) override;
  void synchronize() override;
  void begin_capture() override;
  std::unique_ptr<Recording> end_capture() override;
  void replay(Recording& recording) override;

 private:
  template <typename Function>
  void run(Function&& function) {
    if (error_) return;
    try {
      function();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  Event last_event_ = 0;
  std::exception_ptr error_;
  std::unique_ptr<CpuRecording> recording_;
};

}  // namespace tokenmill::cpu
